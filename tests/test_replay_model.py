"""The numpy model of replaying against what PyTorch and FlashOptim made of the same gradients: the
model is the oracle of other tests."""
import json

import ml_dtypes
import numpy as np
import pytest
import replay_model as model
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
