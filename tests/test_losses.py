"""Nothing lost without a name: what pack and verify say of zeros, signs, updates and views that come apart."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import oracle
from conftest import DATA, run_tersor
from torchfile import Dict, ordered, pt, tensor

TRAINED = DATA / "tiny-gpt" / "expected-adamw-fp32.safetensors"
TIED = DATA / "hostile" / "pt-transposed-tie.pt"


def updates(m, v, eps=1e-8):
    """u = m / (sqrt(v) + eps), every operation rounded to FP32."""
    return np.float32(m) / (np.sqrt(np.float32(v)) + np.float32(eps))


def nmse(before, after, m="w.exp_avg"):
    return oracle.update_error(before[m], before[m + "_sq"], after[m], after[m + "_sq"])


def packed(tersor, folder, source, *args, status=0):
    """The JSON report of pack, the tensors as they come back, and the process."""
    out, back = folder / "packed.safetensors", folder / "back.safetensors"
    run = tersor("pack", source, "-o", out, "-f", "--json", *args, check=status)
    tersor("unpack", out, "-o", back, "-f", "-q", check=0)
    return json.loads(run.stdout), load_file(back), run


def by_name(report):
    return {t["name"]: t for t in report["tensors"]}


@pytest.mark.parametrize("args", [(), ("--compat", "flashoptim"), ("--variance", "bf16"),
                                  ("--momentum", "f32"), ("--momentum", "linear8", "--group", "48")])
def test_updates_of_a_trained_model_are_those_of_numpy(tersor, tmp_path, args):
    before = load_file(TRAINED)
    report, after, _ = packed(tersor, tmp_path, TRAINED, *args)
    tensors, worst, largest = by_name(report), [], []
    for name in [n for n in before if n.endswith(".exp_avg_sq")]:
        m = name.replace("_sq", "")
        u, w = updates(before[m], before[name]), updates(after[m], after[name])
        got = tensors[name]["update"]
        assert got["nmse"] == pytest.approx(nmse(before, after, m), rel=1e-6)
        assert np.float32(got["max_before"]) == np.abs(u).max()
        assert np.float32(got["max_after"]) == np.abs(w).max()
        exposed = (before[name] != 0) & (after[name] == 0) & (after[m] != 0)
        assert got["exposed"] == exposed.sum()
        worst.append(got["nmse"])
        largest.append(got["max_after"])
    losses = report["losses"]
    assert losses["updates"]["measured"] == 29 and losses["updates"]["not_measured"] == 0
    assert losses["updates"]["nmse"] == max(worst) and losses["updates"]["max_after"] == max(largest)
    for kind, end in (("momentum", ".exp_avg"), ("variance", ".exp_avg_sq")):
        lost = sum(((before[n] != 0) & (after[n] == 0)).sum() for n in before if n.endswith(end))
        assert losses["zeroed"][kind] == lost


def test_figures_of_a_trained_model(tersor, tmp_path):
    """36 and 428 are those of FlashOptim's rule, 1.1e-4 and 0.99 of the default."""
    good = packed(tersor, tmp_path, TRAINED)[0]["losses"]
    bad, _, run = packed(tersor, tmp_path, TRAINED, "--compat", "flashoptim")
    assert good["updates"]["nmse"] < 1.5e-4 and good["updates"]["max_after"] < 1.01
    assert bad["losses"]["updates"]["nmse"] > 35 and bad["losses"]["updates"]["max_after"] > 428
    assert bad["losses"]["zeroed"]["variance_under_momentum"] == 1
    assert "1 variance becomes 0 under a momentum that does not" in run.stderr


def test_strict_refuses_variances_that_vanish_under_a_momentum(tersor, tmp_path):
    out = tmp_path / "out.safetensors"
    run = tersor("pack", TRAINED, "-o", out, "--compat", "flashoptim", "--strict", check=3)
    assert "lm_head.weight.exp_avg_sq" in run.stderr and not out.exists()
    tersor("pack", TRAINED, "-o", out, "--strict", "-q", check=0)


def big_state(rng, shape):
    g = np.float32(rng.normal(0, 1e-3, shape) * np.exp(rng.normal(0, 2, shape)))
    return {"w.exp_avg": g * np.float32(0.5), "w.exp_avg_sq": g * g}


@pytest.mark.parametrize("shape, args", [((263000,), ()), ((700, 500), ()),
                                         ((540001,), ("--momentum", "f32")),
                                         ((1100, 333), ("--variance", "f32"))])
def test_threads_and_levels_give_the_same_figures(tersor, tmp_path, shape, args):
    source, state = tmp_path / "s.safetensors", big_state(np.random.default_rng(3), shape)
    save_file(state, source)
    reports = []
    for threads, env in (("-j1", {}), ("-j3", {}), ("-j1", {"TERSOR_ISA": "base"})):
        out = tmp_path / "p.safetensors"
        run = tersor("pack", source, "-o", out, "-f", "--json", *args, threads, check=0, env=env)
        reports.append((json.loads(run.stdout)["losses"], out.read_bytes()))
    assert reports[0] == reports[1] == reports[2]
    run = tersor("verify", out, "--against", source, "--json", check=0)
    verified = json.loads(run.stdout)["files"][0]
    assert verified["losses"] == reports[0][0]
    back = tmp_path / "b.safetensors"
    tersor("unpack", out, "-o", back, "-f", "-q", check=0)
    got = load_file(back)
    assert verified["losses"]["updates"]["nmse"] == pytest.approx(nmse(state, got), rel=1e-6)


def test_bound_on_updates_names_the_tensor(tersor, tmp_path):
    out = tmp_path / "out.safetensors"
    run = tersor("pack", TRAINED, "-o", out, "--max-error", "update-nmse=1e-4", check=1)
    assert ".exp_avg_sq: found update-nmse error" in run.stderr and not out.exists()
    tersor("pack", TRAINED, "-o", out, "--max-error", "update-nmse=1.5e-4", "-q", check=0)
    tersor("verify", out, "--against", TRAINED, "--max-error", "update-nmse=1.5e-4", check=0)
    run = tersor("verify", out, "--against", TRAINED, "--max-error", "update-nmse=1e-4", check=1)
    assert "update-nmse" in run.stderr
    run = tersor("diff", out, TRAINED, "--max-error", "update-nmse=1", check=2)
    assert "unknown metric 'update-nmse'" in run.stderr


def test_zeros_and_signs(tersor, tmp_path):
    w, m = np.full(64, 0.5, np.float32), np.linspace(-1, 1, 64, dtype=np.float32)
    v = m * m
    w[:5], m[:3], m[40:44] = np.float32(1e-45), -0.0, 1e-30
    source = tmp_path / "s.safetensors"
    save_file({"w": w, "w.exp_avg": m, "w.exp_avg_sq": v}, source)
    report, back, _ = packed(tersor, tmp_path, source)
    lost = {n: int(((x != 0) & (back[n] == 0)).sum())
            for n, x in (("w", w), ("w.exp_avg", m), ("w.exp_avg_sq", v))}
    signs = sum(int(((x == 0) & np.signbit(x) & ~np.signbit(back[n])).sum())
                for n, x in (("w", w), ("w.exp_avg", m)))
    assert report["losses"]["zeroed"] == {
        "weight": lost["w"], "momentum": lost["w.exp_avg"], "variance": lost["w.exp_avg_sq"],
        "other": 0, "variance_under_momentum": 0}
    assert report["losses"]["signs_of_zero"] == signs == 3
    assert lost["w.exp_avg"] >= 4
    text = tersor("pack", source, "-o", tmp_path / "p.safetensors", "-f", check=0).stdout
    assert "momenta" in text and "lose the sign of zero: 3 values" in text
    lines = [line for line in text.splitlines() if "of the input" not in line]
    assert max(map(len, lines)) == 80


def test_a_variance_alone_is_said_not_to_be_measured(tersor, tmp_path):
    source, state = tmp_path / "s.safetensors", big_state(np.random.default_rng(1), (40, 32))
    save_file({"w.exp_avg_sq": state["w.exp_avg_sq"]}, source)
    run = tersor("pack", source, "-o", tmp_path / "p.safetensors", check=0)
    assert "updates not measured: variances that go with no momentum here: 1" in run.stdout
    save_file({"w.exp_avg": state["w.exp_avg"]}, source)
    run = tersor("pack", source, "-o", tmp_path / "p.safetensors", "-f", check=0)
    assert "updates" not in run.stdout


def test_unlike_tiles_are_said_not_to_be_measured(tersor, tmp_path):
    """Rows of 500 with groups of their own, beside BF16: errors are summed in other tiles."""
    source = tmp_path / "s.safetensors"
    for rows, measured in ((700, 0), (70, 1)):
        save_file(big_state(np.random.default_rng(1), (rows, 500)), source)
        losses = packed(tersor, tmp_path, source, "--variance", "bf16")[0]["losses"]["updates"]
        assert (losses["measured"], losses["not_measured"]) == (measured, 1 - measured)


def test_moments_without_finite_updates_are_left_out(tersor, tmp_path):
    state = big_state(np.random.default_rng(2), (40, 32))
    state["w.exp_avg"][3, 4:6] = np.inf, np.nan
    source = tmp_path / "s.safetensors"
    save_file(state, source)
    report, back, _ = packed(tersor, tmp_path, source)
    got = by_name(report)["w.exp_avg_sq"]["update"]
    assert got["nonfinite"] == 2 and got["nmse"] == pytest.approx(nmse(state, back), rel=1e-6)


def test_amsgrad_divides_by_its_largest_variance(tersor, tmp_path):
    state = big_state(np.random.default_rng(4), (40, 32))
    state["w.max_exp_avg_sq"] = state["w.exp_avg_sq"] * np.float32(4)
    source = tmp_path / "s.safetensors"
    save_file(state, source)
    report = by_name(packed(tersor, tmp_path, source)[0])
    assert "update" in report["w.max_exp_avg_sq"] and "update" not in report["w.exp_avg_sq"]


@pytest.mark.parametrize("command", ["pack", "convert"])
def test_views_that_come_apart_are_noted(tersor, tmp_path, command):
    run = tersor(command, TIED, "-o", tmp_path / "out.safetensors", check=0)
    assert "shares its memory" in run.stderr and "come apart (1 in all)" in run.stderr
    run = tersor("inspect", TIED, check=0)
    assert "come apart" not in run.stderr


def test_masters_that_share_planes_with_their_model_share_no_memory(tmp_path):
    """A packed file stores a master as the correction of a weight; nothing comes apart."""
    source = DATA / "frameworks" / "states" / "bf16-model-fp32-master.pt"
    run_tersor("pack", source, "-o", tmp_path / "p", check=0)
    for args in (["unpack", tmp_path / "p", "-o", tmp_path / "back.pt"], ["verify", tmp_path / "p", "--against", source],
                 ["diff", tmp_path / "p", tmp_path / "back.pt"]):
        assert "shares its memory" not in run_tersor(*args, check=0).stderr


# ---- Directories, and what has no name ----

def state_file(path, seed, eps=None):
    """A weight with its state; as a .pt with an eps of its own if it is given."""
    rng = np.random.default_rng(seed)
    arrays = {"w": np.float32(rng.normal(0, 1, 4096)), **big_state(rng, (4096,))}
    if eps is None:
        save_file(arrays, path)
        return
    state = {0: {"exp_avg": tensor(arrays["w.exp_avg"]), "exp_avg_sq": tensor(arrays["w.exp_avg_sq"])}}
    path.write_bytes(pt({"model": ordered({"w": tensor(arrays["w"])}), "optimizer": {
        "state": Dict(state), "param_groups": [{"params": [0], "lr": 0.1, "eps": eps}]}}))


def test_verify_of_a_directory_says_what_was_lost(tersor, tmp_path):
    source, out = tmp_path / "source", tmp_path / "packed"
    source.mkdir()
    for i in range(2):
        state_file(source / f"{i}.safetensors", i)
    packing = json.loads(tersor("pack", source, "-o", out, "--json", check=0).stdout)
    done = tersor("verify", out, "--against", source, "--json", check=0)
    assert json.loads(done.stdout)["losses"] == packing["losses"]
    assert packing["losses"]["updates"]["measured"] == 2
    text = tersor("verify", out, "--against", source, check=0).stdout
    assert "largest |u|" in text and "become zero" in text
    assert "losses" not in json.loads(tersor("verify", out, "--json", check=0).stdout)


def test_files_with_an_eps_each_are_said_to_have_one_each(tersor, tmp_path):
    for name, eps, expected in (("same", (1e-8, 1e-8), 1e-8), ("other", (1e-8, 1e-3), None)):
        source = tmp_path / name
        source.mkdir()
        for i in range(2):
            state_file(source / f"{i}.pt", i, eps[i])
        out = tmp_path / f"{name}.packed"
        found = json.loads(tersor("pack", source, "-o", out, "--json", check=0).stdout)["losses"]["updates"]
        assert found["measured"] == 2 and found["eps"] == pytest.approx(expected)
        text = tersor("verify", out, "--against", source, check=0).stdout
        assert ("eps of each file" in text) == (expected is None)


def test_unpack_says_the_largest_error_of_packing(tersor, tmp_path):
    source, folder = tmp_path / "s.safetensors", tmp_path / "folder"
    state_file(source, 0)
    folder.mkdir()
    state_file(folder / "a.safetensors", 0)
    report = packed(tersor, tmp_path, source)[0]
    worst = max(report["tensors"], key=lambda t: t.get("error", {}).get("nmse", 0))
    expected = f"NMSE {worst['error']['nmse']:.2e} in {worst['name']}"
    assert expected in tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "x.safetensors").stdout
    tersor("pack", folder, "-o", tmp_path / "p", "-q", check=0)
    text = tersor("unpack", tmp_path / "p", "-o", tmp_path / "back", check=0).stdout
    assert expected in text and "of a.safetensors" in text and "1 file unpacked" in text
    text = tersor("verify", tmp_path / "p", check=0).stdout
    assert "1 packed file and 0 copies" in text


def test_dry_run_without_an_output_names_none(tersor, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    state_file(folder / "a.safetensors", 0)
    for source in (folder, folder / "a.safetensors"):
        text = tersor("pack", source, "--dry-run", check=0).stdout
        assert "stdout" not in text and "dry run: " in text
        assert json.loads(tersor("pack", source, "--dry-run", "--json", check=0).stdout)["output"] is None


def test_narrow_variances_that_become_zero_are_counted(tersor, tmp_path):
    """F16 has nothing below 6e-8: scales are not why."""
    rng = np.random.default_rng(1)
    v = np.exp(rng.normal(-9, 4, 4096)).clip(0, 6e4).astype(np.float16) / np.float16(100)
    source = tmp_path / "s.safetensors"
    save_file({"w": np.float32(rng.normal(0, 1, 4096)), "w.exp_avg": np.float32(rng.normal(0, 1e-3, 4096)),
               "w.exp_avg_sq": v}, source)
    report, back, run = packed(tersor, tmp_path, source)
    lost = (v != 0) & (back["w.exp_avg_sq"] == 0) & (back["w.exp_avg"] != 0)
    assert report["losses"]["zeroed"]["variance_under_momentum"] == lost.sum() > 0
    assert "type has nothing between" in run.stderr and "e8m8" not in run.stderr
