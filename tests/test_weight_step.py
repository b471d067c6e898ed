"""What rounding does to weights in steps of their optimizer: measured, bounded, told, and chosen by."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import reader
from conftest import one_line_error
from torchfile import Dict, ordered, pt, tensor

SHAPES = {"embedding": (96, 64), "matrix": (64, 64), "bias": (50,)}
SIZE = {"embedding": 1.0, "matrix": 0.03, "bias": 0.1}


def state(rng):
    """Weights, momenta and variances of updates of about 0.2."""
    w, m, v = {}, {}, {}
    for name, shape in SHAPES.items():
        w[name] = np.float32(rng.normal(0, SIZE[name], shape))
        v[name] = np.float32(np.exp(rng.normal(-14, 1, shape)))
        m[name] = np.float32(rng.normal(0, 0.2, shape) * np.sqrt(v[name]))
    return w, m, v


def checkpoint(folder, lr, lrs=()):
    w, m, v = state(np.random.default_rng(3))
    moments = {i: {"step": 9, "exp_avg": tensor(m[n]), "exp_avg_sq": tensor(v[n])} for i, n in enumerate(w)}
    groups = [{"params": list(range(len(w))), "lr": lr, "betas": (0.9, 0.95), "eps": 1e-8}]
    groups += [{"params": [], "lr": x, "betas": (0.9, 0.95), "eps": 1e-8} for x in lrs]
    path = folder / "c.pt"
    path.write_bytes(pt({"model": ordered({n: tensor(x) for n, x in w.items()}),
                         "optimizer": {"state": Dict(moments), "param_groups": groups}}))
    return path, w, m, v


def pack(tersor, folder, source, *args, check=0):
    done = tersor("pack", source, "-o", folder / "p", "-f", "--json", "-", *args, check=check)
    return json.loads(done.stdout), done


def step_of(w, back, m, v, lr):
    u = np.float64(m) / (np.sqrt(np.float64(v)) + 1e-8)
    return np.sqrt(np.mean((np.float64(w) - back) ** 2)) / (lr * np.sqrt(np.mean(u ** 2)))


@pytest.mark.parametrize("lr", [1e-6, 3e-4])
@pytest.mark.parametrize("codec", ["bf16+ulp8", "bf16+rn10", "bf16"])
def test_it_is_the_error_over_a_step(tersor, tmp_path, lr, codec):
    source, w, m, v = checkpoint(tmp_path, lr, lrs=(10 * lr, 0.0))
    report, _ = pack(tersor, tmp_path, source, "--weights", codec)
    tersor("unpack", tmp_path / "p", "-o", tmp_path / "b.safetensors", "-q", check=0)
    back = load_file(tmp_path / "b.safetensors")
    names = {t["name"].rpartition(".")[2]: t for t in report["tensors"] if "weight_step" in t}
    assert set(names) == set(w)
    for name, t in names.items():
        assert t["weight_step"] == pytest.approx(step_of(w[name], back[t["name"]], m[name], v[name], lr), rel=1e-5)
    steps = report["losses"]["weight_steps"]
    assert steps["lr"] == lr and steps["largest"] == max(t["weight_step"] for t in names.values())
    audited = json.loads(tersor("audit", source, "--codec", f"{codec},softsign8,sqrt8", "--json", check=0).stdout)
    assert audited["checkpoints"][0]["recommended"]["weight_step"] == pytest.approx(steps["largest"], rel=1e-6)
    verified = json.loads(tersor("verify", tmp_path / "p", "--against", source, "--json", check=0).stdout)
    assert verified["files"][0]["losses"]["weight_steps"] == steps


def test_a_rounding_of_more_than_a_step_is_told_and_bounded(tersor, tmp_path):
    source, *_ = checkpoint(tmp_path, 1e-6)
    report, done = pack(tersor, tmp_path, source)
    assert report["losses"]["weight_steps"]["largest"] > 1
    assert "weights are rounded by up to" in done.stderr and "--auto chooses finer corrections" in done.stderr
    run = tersor("pack", source, "-o", tmp_path / "no", "--max-error", "weight-step=0.5", "-qq", check=1)
    assert "embedding: found weight-step error" in one_line_error(run) and not (tmp_path / "no").exists()
    run = tersor("verify", tmp_path / "p", "--against", source, "--max-error", "weight-step=0.5", "-qq", check=1)
    assert "embedding: found weight-step error" in run.stderr
    report, done = pack(tersor, tmp_path, checkpoint(tmp_path, 3e-4)[0], "--max-error", "weight-step=0.5")
    assert not done.stderr


@pytest.mark.parametrize("lr, want", [
    (3e-4, {"embedding": "bf16+ulp8", "matrix": "bf16+ulp8", "bias": "bf16+ulp8"}),
    (1e-5, {"embedding": "bf16+rn12", "matrix": "bf16+ulp8", "bias": "bf16+rn10"}),
    (1e-6, {"embedding": "bf16+ulp16", "matrix": "bf16+rn10", "bias": "bf16+rn12"})])
def test_auto_chooses_the_smallest_correction_within_a_quarter_of_a_step(tersor, tmp_path, lr, want):
    source, *_ = checkpoint(tmp_path, lr)
    report, done = pack(tersor, tmp_path, source, "--auto", "1e-3")
    found = {n.rpartition(".")[2]: t.codec for n, t in reader.read(tmp_path / "p").tensors.items() if t.kind == "weight"}
    assert found == want and not done.stderr
    for t in report["tensors"]:
        if "weight_step" in t:
            assert t["choice"]["metric"] == "weight-step"
            assert t["choice"]["error"] == pytest.approx(t["weight_step"]) and t["weight_step"] <= 0.25
            assert "refused_error" not in t["choice"] or t["choice"]["refused_error"] > 0.25


def test_weights_that_are_named_or_have_no_rate_stay_as_they_were(tersor, tmp_path):
    source, w, m, v = checkpoint(tmp_path, 1e-6)
    report, _ = pack(tersor, tmp_path, source, "--auto", "1e-3", "--weights", "bf16+ulp8")
    assert {t["codec"] for t in report["tensors"] if t["kind"] == "weight"} == {"bf16+ulp8"}
    plain = {n: x for n, x in w.items()} | {f"{n}.exp_avg": x for n, x in m.items()} | {
        f"{n}.exp_avg_sq": x for n, x in v.items()}
    save_file(plain, tmp_path / "plain.safetensors")
    report, _ = pack(tersor, tmp_path, tmp_path / "plain.safetensors", "--auto", "1e-3")
    assert {t["codec"] for t in report["tensors"] if t["kind"] == "weight"} == {"bf16+ulp8"}
    assert "weight_steps" not in report["losses"]
