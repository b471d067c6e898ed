"""The numpy model of replaying against what PyTorch and FlashOptim made of the same gradients: the
model is the oracle of other tests."""
import json

import ml_dtypes
import numpy as np
import oracle
import pytest
import replay_model as model
import torchfile
from conftest import DATA
from safetensors import safe_open

GPT = DATA / "tiny-gpt"
F32 = np.float32
MANIFEST = json.loads((GPT / "recording" / "manifest.json").read_text())
GROUP_OF = {name: i for i, group in enumerate(MANIFEST["param_groups"]) for name in group["params"]}
SUFFIX = {"weight": "", "momentum": ".exp_avg", "variance": ".exp_avg_sq"}


def load(path):
    with safe_open(GPT / path, "numpy") as f:
        return {name: f.get_tensor(name).astype(F32).ravel() for name in f.keys()}


@pytest.fixture(scope="module")
def grads():
    assert ml_dtypes.bfloat16       # without it safetensors cannot read them
    return [load(f"recording/{s['file']}") for s in MANIFEST["steps"]]


@pytest.fixture(scope="module")
def start():
    return load("checkpoint.safetensors")


def recorded_hyper(i, name):
    group, recorded = GROUP_OF[name], MANIFEST["steps"][i]
    given = MANIFEST["param_groups"][group]
    return model.hyper("adamw", lr=recorded["lr"][group], beta1=given["betas"][0],
                       beta2=given["betas"][1], eps=given["eps"],
                       weight_decay=given["weight_decay"])


def replay(optimizer, start, grads, resumed=False, **given):
    """16 steps of every parameter; -> part -> name -> array"""
    out = {part: {} for part in SUFFIX}
    for name in GROUP_OF:
        state = {part: start[name + suffix] if resumed or part == "weight" else
                 np.zeros_like(start[name]) for part, suffix in SUFFIX.items()}
        for i, g in enumerate(grads):
            h = recorded_hyper(i, name) if resumed else model.hyper(optimizer, **given)
            t = MANIFEST["steps"][i]["step"] if resumed else i + 1
            state = model.step(optimizer, h, t, not resumed and i == 0, g[name], state)
        for part, x in state.items():
            out[part][name] = x
    return out


def compare(got, expected, suffix=""):
    """-> elements whose bits differ, the largest difference over its tensor's largest magnitude"""
    differ, worst = 0, 0.0
    for name, x in got.items():
        y = expected[name + suffix]
        differ += int((x.view(np.uint32) != y.view(np.uint32)).sum())
        worst = max(worst, float(np.abs(x.astype(float) - y).max() / np.abs(y).max()))
    return differ, worst


def test_adamw_from_the_checkpoint(start, grads):
    got, expected = replay("adamw", start, grads, True), load("expected-adamw-fp32.safetensors")
    assert compare(got["momentum"], expected, ".exp_avg") == (0, 0)
    assert compare(got["variance"], expected, ".exp_avg_sq") == (0, 0)
    differ, worst = compare(got["weight"], expected)
    assert differ == 18 and worst < 3e-8        # of 84,288: roots in which MKL is an ULP low


@pytest.mark.parametrize("name, optimizer, given, known", [
    ("adam", "adam", dict(lr=1e-3, weight_decay=0.01), 135),
    ("sgd", "sgd", dict(lr=0.1, momentum=0.9, weight_decay=1e-4), 0),
    ("sgd-nesterov", "sgd", dict(lr=0.1, momentum=0.9, nesterov=1), 0),
    ("sgd-plain", "sgd", dict(lr=0.1), 0),
    ("lion", "lion", dict(lr=1e-4, weight_decay=0.1), 0)])
def test_from_no_state(start, grads, name, optimizer, given, known):
    got = replay(optimizer, start, grads, **given)["weight"]
    differ, worst = compare(got, load(f"expected-{name}-fp32.safetensors"))
    assert differ == known and worst < 6e-8


def test_fma_rounds_once():
    """Against exact arithmetic."""
    from fractions import Fraction
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0x20000000, 0x5F000000, 20000, np.uint32).view(F32) for _ in range(2))
    c = (-(a.astype(float) * b)).astype(F32)
    c = (c.view(np.uint32) + rng.integers(-3, 4, c.size).astype(np.uint32)).view(F32)
    for x, y, z, got in zip(a, b, c, model.fma(a, b, c)):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = [Fraction(float(v)) for v in (np.nextafter(got, F32(-np.inf)), got,
                                             np.nextafter(got, F32(np.inf))) if np.isfinite(v)]
        assert min(abs(exact - v) for v in near) == abs(exact - Fraction(float(got)))


# ---- FlashOptim ---------------------------------------------------------------------------------

def flash_codings(weights="bf16+ulp8"):
    return {"weight": (weights, 1, "f16"), "momentum": ("softsign8", 32, "f16"),
            "variance": ("sqrt8", 32, "f16")}


class Counts:
    """Elements, how many codes differ and by more than 1."""
    def __init__(self):
        self.n = self.differ = self.far = 0

    def add(self, x, y):
        distance = np.abs(np.asarray(x, np.int64).ravel() - np.asarray(y, np.int64).ravel())
        self.n += distance.size
        self.differ += int((distance > 0).sum())
        self.far += int((distance > 1).sum())


@pytest.fixture(scope="module")
def flash_runs(start, grads):
    """bits -> name -> planes after 16 steps from the checkpoint"""
    out = {}
    for bits, codec in ((24, "bf16+ulp8"), (32, "bf16+ulp16")):
        codings = flash_codings(codec)
        for name in GROUP_OF:
            planes = model.pack(codings, {part: start[name + suffix]
                                          for part, suffix in SUFFIX.items()})
            for i, g in enumerate(grads):
                planes = model.packed_step("adamw", recorded_hyper(i, name),
                                           MANIFEST["steps"][i]["step"], False, g[name], planes,
                                           codings, flashoptim=True)
            out.setdefault(bits, {})[name] = planes
    return out


@pytest.mark.parametrize("bits, exact, near", [(24, 0.999, 0.9996), (32, 0.977, 0.995)])
def test_flashoptim_from_the_checkpoint(flash_runs, bits, exact, near):
    """Its divisions and roots are approximate: with 32 bits, where a step of the correction is less
    than an ULP, small weights drift by some."""
    saved = torchfile.load(GPT / f"flashadamw{bits}-after.pt")
    weights = load(f"flashadamw{bits}-after-fp32.safetensors")
    momenta, variances = Counts(), Counts()
    same = close = total = 0
    for i, name in enumerate(GROUP_OF):
        planes = flash_runs[bits][name]
        state = saved["optimizer"]["state"][i]
        for part, key, dtype, counts in (("momentum", "exp_avg", np.int8, momenta),
                                         ("variance", "exp_avg_sq", np.uint8, variances)):
            codes = np.frombuffer(state[f"{key}::quantized"].content, dtype)
            counts.add(codes, planes[part]["::quantized"])
        w = oracle.decode(flash_codings(f"bf16+ulp{bits - 16}")["weight"][0], planes["weight"])
        one_step = 2.0 ** 15 / (127 if bits == 24 else 32767)      # in ULP of the weight
        ulp = np.spacing(np.abs(weights[name])).astype(float)
        off = np.abs(w.astype(float) - weights[name]) / ulp
        same += int((off == 0).sum())
        close += int((off <= one_step + 0.5).sum())
        total += off.size
    assert (momenta.n, variances.n, total) == (84288,) * 3
    assert momenta.differ <= 33 and momenta.far <= 5      # all in four groups, by their scale
    assert variances.differ <= 16 and variances.far == 0
    assert same / total >= exact and close / total >= near, (same, close)


@pytest.mark.parametrize("optimizer, given, far", [
    ("adamw", dict(lr=1e-3, weight_decay=0.1, beta2=0.95), 20),
    ("lion", dict(lr=1e-4, weight_decay=0.1, beta2=0.95), 1),
    ("sgd", dict(lr=1e-2, momentum=0.9, weight_decay=1e-4), 0)])
def test_flashoptim_from_no_state(optimizer, given, far):
    """12 steps on three tensors; `far`: corrections more than 1 apart, where weights are near 0."""
    golden = np.load(DATA / "flashoptim.npz")
    h = model.hyper(optimizer, **given)
    codings = flash_codings()
    weights, corrections, momenta = Counts(), Counts(), Counts()
    for i in range(3):
        w = oracle.narrow(golden[f"traj_w0_{i}"].ravel(), "bf16")
        state = {part: np.zeros(w.size, F32) for part in model.parts(optimizer, h)}
        planes = model.pack(codings, {**state, "weight": oracle.widen(w, "bf16")})
        for t in range(12):
            g = oracle.widen(golden[f"traj_g_{t}_{i}"].ravel(), "bf16")
            planes = model.packed_step(optimizer, h, t + 1, t == 0, g, planes, codings,
                                       flashoptim=True)
        key = "momentum_buffer" if optimizer == "sgd" else "exp_avg"
        weights.add(golden[f"traj_{optimizer}_p{i}"], planes["weight"][""])
        corrections.add(golden[f"traj_{optimizer}_e{i}"], planes["weight"]["::error_bits"])
        momenta.add(golden[f"traj_{optimizer}_{key}_q{i}"], planes["momentum"]["::quantized"])
    assert corrections.n == 3433
    assert weights.far == 0 and weights.differ <= 2
    assert corrections.far <= far and corrections.differ <= 25
    assert momenta.far <= 1 and momenta.differ <= 8
