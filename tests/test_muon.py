# SPDX-License-Identifier: Apache-2.0
"""Momenta of Muon are judged by the update that is made orthogonal from them: NumPy does the same in binary64."""
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import torchfile

from conftest import DATA, run_tersor

BEFORE = DATA / "torch" / "muon" / "before.pt"          # torch.optim.Muon and AdamW of PyTorch 2.15
MOMENTA = ("up.weight.momentum_buffer", "down.weight.momentum_buffer")


def orthogonal(m):
    """Five rounds of Newton and Schulz, as Keller Jordan's Muon has them."""
    x = m.reshape(m.shape[0], -1).astype(np.float64)
    x = x.T if x.shape[0] > x.shape[1] else x
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def error(m, decoded):
    x, y = orthogonal(m), orthogonal(decoded)
    return ((x - y) ** 2).sum() / (x ** 2).sum()


@pytest.fixture(scope="module")
def momenta(tmp_path_factory):
    out = tmp_path_factory.mktemp("muon") / "plain.safetensors"
    run_tersor("convert", BEFORE, "-o", out, check=0)
    return {name: x for name, x in safetensors.numpy.load_file(out).items() if name in MOMENTA}


def decoded(tmp_path, codec):
    run_tersor("pack", BEFORE, "-o", tmp_path / "p.safetensors", "-f", "--min-elements", "1", "--momentum", codec,
               check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", tmp_path / "u.safetensors", "-f", check=0)
    return safetensors.numpy.load_file(tmp_path / "u.safetensors")


def report(*args):
    return json.loads(run_tersor(*args, "--json", check=0).stdout)


@pytest.mark.parametrize("codec", ["bf16", "softsign8", "linear8", "e5m2"])
def test_audit_and_pack_have_the_error_of_the_orthogonal_update(momenta, tmp_path, codec):
    found = decoded(tmp_path, codec)
    errors = {name: error(m, found[name]) for name, m in momenta.items()}
    pairs = report("audit", BEFORE, "--codec", f"{codec},bf16")["checkpoints"][0]["pairs"]
    pair = next(p for p in pairs if (p["momentum"], p["variance"]) == (codec, "bf16"))
    assert pair["nmse"][6] == pytest.approx(max(errors.values()), rel=1e-3)
    assert pair["worst"] == max(errors, key=errors.get)
    packed = report("pack", BEFORE, "-o", tmp_path / "q.safetensors", "--min-elements", "1", "--momentum", codec)
    for tensor in packed["tensors"]:
        if tensor["name"] in errors:
            assert tensor["update"]["nmse"] == pytest.approx(errors[tensor["name"]], rel=1e-3)
    verified = report("verify", tmp_path / "q.safetensors", "--against", BEFORE)
    updates = {t["name"]: t["update"] for t in verified["files"][0]["tensors"] if t["name"] in errors}
    assert updates == {t["name"]: t["update"] for t in packed["tensors"] if t["name"] in errors} and len(updates) == 2


def test_a_pair_has_what_there_is_without_a_variance(momenta):
    """No update divides by anything, so none is exposed; all are finite, since the momentum is."""
    updates = report("audit", BEFORE, "--codec", "softsign8,sqrt8")["checkpoints"][0]["updates"]
    found = {u["momentum"]: u for u in updates if u["momentum"] in MOMENTA}
    for name, m in momenta.items():
        assert found[name]["max_before"] == pytest.approx(np.abs(orthogonal(m)).max(), rel=1e-3)
        assert found[name]["nonfinite"] == 0 and len(found[name]["codecs"]) == 3
        assert all(c["exposed"] == c["overflow"] == 0 < c["nmse"] for c in found[name]["codecs"]
                   if c["momentum"] == "softsign8")


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_momentum_that_is_not_finite_is_in_no_pair(tmp_path, wrong):
    m = np.random.default_rng(0).standard_normal((2, 40, 64)).astype(np.float32)
    m[1, 3, 5] = wrong
    (tmp_path / "s.pt").write_bytes(torchfile.pt({
        "model": {name: torchfile.tensor(m[0]) for name in "ab"},
        "optimizer": {"state": {i: {"momentum_buffer": torchfile.tensor(x)} for i, x in enumerate(m)},
                      "param_groups": [{"lr": 0.1, "ns_steps": 5, "params": [0, 1]}]}}))
    done = run_tersor("audit", tmp_path / "s.pt", "--codec", "softsign8,sqrt8", "--json", check=1)
    found = json.loads(done.stdout)["checkpoints"][0]
    assert [(u["momentum"], u["nonfinite"]) for u in found["updates"]] == [("a.momentum_buffer", 0)]
    assert {t["name"]: t["state"] for t in found["tensors"] if t["kind"] == "momentum"} == {
        "a.momentum_buffer": "sound", "b.momentum_buffer": "nonfinite"}


def test_ratios_are_what_pack_stores_in_their_place(tmp_path):
    """There is no variance: the form `tight` has softsign8 there, and is as good as the default."""
    forms = {f["form"]: f for f in report("audit", BEFORE)["checkpoints"][0]["forms"]}
    assert forms["tight"]["update_nmse"] == forms["flash"]["update_nmse"] > 0.01


def test_what_is_bad_in_8_bits_is_not_advised(tmp_path):
    """docs/codecs.md: in more bytes, if all pairs of about two are bad; replay of these steps agrees."""
    verdict = report("audit", BEFORE)["checkpoints"][0]["recommended"]
    assert verdict["momentum"] == "bf16" and verdict["grade"] == "watch"
    done = run_tersor("pack", BEFORE, "-o", tmp_path / "p.safetensors", "--min-elements", "1", check=0)
    assert "updates of 2 of 6 tensors are 10% of their length off or more" in done.stderr
    run_tersor("pack", BEFORE, "-o", tmp_path / "s.safetensors", "--min-elements", "1", "--strict", check=3)
    run_tersor("pack", BEFORE, "-o", tmp_path / "s.safetensors", "--min-elements", "1", "--strict", "--state",
               verdict["form"], check=0)
    worst = {}
    for form in ("flash", verdict["form"]):
        figures = report("replay", BEFORE, DATA / "torch" / "muon" / "muon", "--state", form, "--compare", "fp32")
        worst[form] = max(step["total"]["update-nmse"] for step in figures["steps"])
    assert worst[verdict["form"]] < worst["flash"] / 3


def test_auto_keeps_the_orthogonal_update_within_its_bound(tmp_path):
    def codecs(*args):
        packed = report("pack", BEFORE, "-o", tmp_path / "p.safetensors", "-f", "--min-elements", "1", *args)
        return {t["codec"] for t in packed["tensors"] if t["name"] in MOMENTA}, packed

    assert codecs()[0] == {"softsign8"}
    chosen, packed = codecs("--auto", "1e-2", "--max-error", "update-nmse=1e-2")
    assert chosen == {"bf16"} and packed["losses"]["updates"]["nmse"] < 1e-2
    assert codecs("--auto", "1e-3")[0] == {"raw"}               # nothing in fewer than 4 bytes is as near


@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_figures_do_not_depend_on_the_processor(monkeypatch, isa):
    wanted = run_tersor("audit", BEFORE, "--json", check=0).stdout
    monkeypatch.setenv("TERSOR_ISA", isa)
    done = run_tersor("audit", BEFORE, "--json")
    if "no SIMD level" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == wanted


def test_parts_find_the_same(tmp_path):
    shutil.copy(BEFORE, tmp_path)
    args = ["audit", "before.pt"]
    for i in (1, 2):
        run_tersor(*args, "--json=a.json", "--part", f"{i}/2", cwd=tmp_path, check=0)
    run_tersor("join", "a.json", cwd=tmp_path, check=0)
    wanted = run_tersor(*args, "--json=b.json", cwd=tmp_path, check=0)
    assert wanted.returncode == 0 and (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize("group, muon", [
    ({"ns_steps": 5}, True), ({"use_muon": True}, True), ({"use_muon": False, "ns_steps": 5}, False), ({}, False)])
def test_the_param_group_tells_muon(tmp_path, group, muon):
    """SGD's momentum_buffer is called alike, and is what SGD moves by."""
    m = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    (tmp_path / "s.pt").write_bytes(torchfile.pt({"model": {"w": torchfile.tensor(m)}, "optimizer": {
        "state": {0: {"momentum_buffer": torchfile.tensor(m)}},
        "param_groups": [{"lr": 0.1, "momentum": 0.9, **group, "params": [0]}]}}))
    done = run_tersor("audit", tmp_path / "s.pt", "--codec", "softsign8,sqrt8", "--json", check=0 if muon else 1)
    assert len(json.loads(done.stdout)["checkpoints"][0]["pairs"]) == muon
