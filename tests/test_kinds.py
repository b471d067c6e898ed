# SPDX-License-Identifier: Apache-2.0
"""What pack takes for a weight, for state that it knows, and for state that it does not; what stays raw."""
import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import DATA, one_line_error, run_tersor
from helpers import torchfile as tf

STATES = DATA / "frameworks" / "states"
RNG = np.random.default_rng(12)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def saved(value):
    """The .pt of a value in which arrays stand for tensors."""
    def wrap(v):
        if isinstance(v, dict):
            return {k: wrap(x) for k, x in v.items()}
        if isinstance(v, list):
            return [wrap(x) for x in v]
        return tf.tensor(v) if isinstance(v, (np.ndarray, np.floating)) else v
    return tf.pt(wrap(value))


def pack(tmp_path, *sources, options=(), check=0):
    """The JSON report of packing, with its tensors by name."""
    out = tmp_path / "packed.safetensors"
    done = run_tersor("pack", *sources, "-o", out, "-f", "--json", *options, check=check)
    report = json.loads(done.stdout)
    report["by_name"] = {t["name"]: t for t in report["tensors"]}
    report["why"] = {k["why"]: k for k in report["kept_raw"]}
    return report


def checkpoint(tmp_path, states, model=None, **groups):
    """A .pt with a model w [16, 8] and an optimizer with these states of it."""
    root = {"model": model or {"w": f32(16, 8)},
            "optimizer": {"state": {0: states}, "param_groups": [{"lr": 0.1, **groups, "params": [0]}]}}
    path = tmp_path / "c.pt"
    path.write_bytes(saved(root))
    return path


# ---- Unknown state -----------------------------------------------------------------------------

# What torch.optim, SOAP and schedule-free optimizers keep for a parameter [16, 8].
UNKNOWN = {
    "adagrad": {"sum": (16, 8)}, "rmsprop": {"square_avg": (16, 8), "grad_avg": (16, 8)},
    "adadelta": {"square_avg": (16, 8), "acc_delta": (16, 8)}, "adamax": {"exp_inf": (16, 8)},
    "adafactor": {"row_var": (16, 1), "col_var": (1, 8)}, "adafactor-1d": {"variance": (16, 8)},
    "rprop": {"prev": (16, 8), "step_size": (16, 8)}, "asgd": {"ax": (16, 8)},
    "schedule-free": {"z": (16, 8)},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_state_in_a_tree_stays_raw_and_is_named(tmp_path, name):
    states = {field: f32(*shape) for field, shape in UNKNOWN[name].items()}
    report = pack(tmp_path, checkpoint(tmp_path, {"step": np.float32(3), **states}),
                  options=("--min-elements", "1"))
    for field in states:
        t = report["by_name"][f"w.{field}"]
        assert (t["kind"], t["codec"], t["raw_reason"]) == ("other", "raw", None)
    assert report["by_name"]["w"]["codec"] == "bf16+ulp8"
    assert set(report["why"]["unknown_state"]["fields"]) == set(states)
    assert report["why"]["unknown_state"]["tensors"] == len(states)
    assert report["totals"]["parameters"] == 128


@pytest.mark.parametrize("name", UNKNOWN)
def test_known_names_of_unknown_state_beside_their_weight(tmp_path, name):
    """The same without a tree; without the weight such a name is a weight's own."""
    states = {field: f32(*shape) for field, shape in UNKNOWN[name].items()}
    source = tmp_path / "s.safetensors"
    for weights, kind in (({"w": f32(16, 8)}, "other"), ({}, "weight")):
        save_file({**weights, **{f"w.{field}": x for field, x in states.items()}}, source)
        report = pack(tmp_path, source)
        for field in states:
            assert report["by_name"][f"w.{field}"]["kind"] == kind, field


def test_short_names_of_state_need_the_shape_of_the_weight(tmp_path):
    save_file({"w": f32(16, 8), "w.z": f32(16), "w.sum": f32(8, 16)}, tmp_path / "s.safetensors")
    report = pack(tmp_path, tmp_path / "s.safetensors")
    assert report["by_name"]["w.z"]["kind"] == report["by_name"]["w.sum"]["kind"] == "weight"


@pytest.mark.parametrize("file, fields", [
    ("soap.pt", {"GG", "Q", "preconditioner"}), ("schedule-free.pt", {"z"}),
])
def test_real_layouts_of_unknown_state(tmp_path, file, fields):
    report = pack(tmp_path, STATES / file)
    assert set(report["why"]["unknown_state"]["fields"]) == fields
    raw = [t["name"] for t in report["tensors"] if t["name"].split(".")[1:2] and
           t["name"].split(".")[1] in fields]
    assert raw and all(report["by_name"][n]["codec"] == "raw" for n in raw)
    assert report["totals"]["parameters"] == 128
    text = run_tersor("pack", STATES / file, "-o", tmp_path / "p", check=0).stdout
    line = next(s for s in text.splitlines() if s.startswith("kept raw: optimizer state"))
    assert "--other CODEC packs them" in line and all(f in line for f in fields)


def test_unknown_state_keeps_its_place_through_safetensors(tmp_path):
    """A conversion keeps the tree, and the tree says whose state it is."""
    source = tmp_path / "s.safetensors"
    run_tersor("convert", STATES / "soap.pt", "-o", source, check=0)
    assert set(pack(tmp_path, source)["why"]["unknown_state"]["fields"]) == {"GG", "Q", "preconditioner"}


def test_state_of_optimizers_under_any_key(tmp_path):
    model, state = {"w": f32(16, 8)}, {"state": {0: {"sum": f32(16, 8)}}, "param_groups": [{"params": [0]}]}
    (tmp_path / "gan.pt").write_bytes(saved({"G": model, "optG": state}))
    report = pack(tmp_path, tmp_path / "gan.pt")
    assert report["why"]["unknown_state"]["fields"] == ["sum"]


@pytest.mark.parametrize("codec", ["bf16+ulp8", "softsign8", "sqrt8", "bf16", "bf16+exact16"])
def test_other_packs_unknown_state(tmp_path, codec):
    x = np.abs(f32(16, 8))
    source = checkpoint(tmp_path, {"step": np.float32(3), "exp_avg": f32(16, 8), "sum": x})
    report = pack(tmp_path, source, options=("--other", codec))
    assert report["by_name"]["w.sum"]["codec"] == codec
    assert report["by_name"]["w.sum"]["kind"] == "other"
    assert report["by_name"]["w.step"]["codec"] == "raw"
    assert "unknown_state" not in report["why"]
    run_tersor("verify", tmp_path / "packed.safetensors", check=0)
    run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "u.pt", check=0)
    got = tf.content_of(tf.load(tmp_path / "u.pt")["optimizer"]["state"][0]["sum"])
    assert np.allclose(np.frombuffer(got, np.float32).reshape(16, 8), x, rtol=0.05, atol=0.05)


def test_other_without_a_sign_keeps_negative_state_raw(tmp_path):
    source = checkpoint(tmp_path, {"z": f32(16, 8)})
    report = pack(tmp_path, source, options=("--other", "sqrt8"))
    assert "negative" in report["by_name"]["w.z"]["raw_reason"]


def test_other_leaves_what_a_rule_keeps(tmp_path):
    source = checkpoint(tmp_path, {"sum": f32(16, 8)})
    for rule in (("--keep", "sum"), ("--map", "sum=other")):
        report = pack(tmp_path, source, options=("--other", "bf16", *rule))
        assert report["by_name"]["w.sum"]["codec"] == "raw"


def test_other_refuses_no_codec_and_an_unknown_one(tmp_path):
    done = run_tersor("pack", STATES / "soap.pt", "-o", tmp_path / "p", "--other", "bf61", check=2)
    assert "unknown codec 'bf61'" in done.stderr


# ---- Small tensors, integers, buffers ----------------------------------------------------------

@pytest.mark.parametrize("n, options, codec", [
    (15, (), "raw"), (16, (), "bf16+ulp8"), (15, ("--min-elements", "15"), "bf16+ulp8"),
    (1, ("--min-elements", "1"), "bf16+ulp8"), (100, ("--min-elements", "101"), "raw"),
    (1, ("--map", "lr=weight"), "bf16+ulp8"),
])
def test_small_tensors_stay_raw(tmp_path, n, options, codec):
    save_file({"lr": f32(n)}, tmp_path / "s.safetensors")
    report = pack(tmp_path, tmp_path / "s.safetensors", options=options)
    assert report["by_name"]["lr"]["codec"] == codec
    assert report["by_name"]["lr"]["raw_reason"] == ("few elements" if codec == "raw" else None)
    assert ("few_elements" in report["why"]) == (codec == "raw")


def test_small_tensors_are_no_reason_to_fail_or_warn(tmp_path):
    save_file({"lr": f32(3), "steps": np.full(20, 100001, np.float32)}, tmp_path / "s.safetensors")
    done = run_tersor("pack", tmp_path / "s.safetensors", "-o", tmp_path / "p", "--strict", check=0)
    assert done.stderr == ""


@pytest.mark.parametrize("value, codec", [
    (100001.0, "raw"), (-100001.0, "raw"), (16777216.0, "bf16+ulp8"), (16777215.0, "raw"),
    (128.0, "bf16+ulp8"), (100001.5, "bf16+ulp8"), (-0.0, "bf16+ulp8"),
    (3.3895e38, "bf16+ulp8"),
])
def test_integers_that_would_change_stay_raw(tmp_path, value, codec):
    x = np.full(20, value, np.float32)
    save_file({"steps": x}, tmp_path / "s.safetensors")
    report = pack(tmp_path, tmp_path / "s.safetensors")
    assert report["by_name"]["steps"]["codec"] == codec
    run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "u.safetensors", check=0)
    if codec == "raw":
        assert report["by_name"]["steps"]["raw_reason"] == "only integers"
        assert np.array_equal(load_file(tmp_path / "u.safetensors")["steps"], x)
        assert pack(tmp_path, tmp_path / "s.safetensors",
                    options=("--map", "steps=weight"))["by_name"]["steps"]["codec"] == "bf16+ulp8"


def test_one_fraction_in_the_last_tile_makes_no_integers(tmp_path):
    x = np.full(3_000_000, 100001, np.float32)
    x[-1] = 0.3
    save_file({"w": x}, tmp_path / "s.safetensors")
    assert pack(tmp_path, tmp_path / "s.safetensors")["by_name"]["w"]["codec"] == "bf16+ulp8"


@pytest.mark.parametrize("name", ["bn.running_mean", "bn.running_var", "rotary.inv_freq", "q.weight_scale"])
def test_buffers_are_no_weights(tmp_path, name):
    save_file({name: f32(32), "w": f32(32)}, tmp_path / "s.safetensors")
    report = pack(tmp_path, tmp_path / "s.safetensors")
    assert (report["by_name"][name]["kind"], report["by_name"][name]["codec"]) == ("other", "raw")
    assert report["totals"]["parameters"] == 32


def test_a_buffer_that_is_trained_is_a_weight(tmp_path):
    save_file({"inv_freq": f32(32), "inv_freq.exp_avg": f32(32)}, tmp_path / "s.safetensors")
    report = pack(tmp_path, tmp_path / "s.safetensors")
    assert report["by_name"]["inv_freq"]["kind"] == "weight"
    assert report["by_name"]["inv_freq.exp_avg"]["weight"] == "inv_freq"


# ---- Nothing was packed ------------------------------------------------------------------------

def nothing_line(tmp_path, source, *options):
    done = run_tersor("pack", source, "-o", tmp_path / "n", "-f", *options, check=0)
    return [s for s in done.stdout.splitlines() if "nothing was packed" in s]


def test_says_when_nothing_was_packed(tmp_path):
    line, = nothing_line(tmp_path, STATES / "schedule-free.pt", "--keep", ".")
    assert line.startswith("nothing was packed: 100% of the input's data is neither weight")
    save_file({f"s{i}": f32(8) for i in range(9)}, tmp_path / "s.safetensors")
    line, = nothing_line(tmp_path, tmp_path / "s.safetensors")
    assert "small tensors; --min-elements 1 packs them" in line
    source = checkpoint(tmp_path, {"sum": f32(16, 80)}, model={"w": np.zeros((16, 80), np.float64)})
    line, = nothing_line(tmp_path, source)
    assert re.search(r"\d+% of the input's data is F64", line)
    save_file({"w": f32(16), "x": np.zeros(1000, np.float16)}, tmp_path / "s.safetensors")
    line, = nothing_line(tmp_path, tmp_path / "s.safetensors")
    assert line.startswith("almost nothing was packed: 97% of the input's data is F16")
    assert not nothing_line(tmp_path, STATES / "soap.pt")


# ---- Names -------------------------------------------------------------------------------------

def test_flattened_flax_and_optax(tmp_path):
    report = pack(tmp_path, STATES / "flax-optax.safetensors", options=("--min-elements", "1"))
    for name in ("dense.kernel", "dense.bias"):
        for root, kind in (("mu", "momentum"), ("nu", "variance")):
            t = report["by_name"][f"opt_state.0.{root}.{name}"]
            assert (t["kind"], t["weight"]) == (kind, f"params.{name}")
        assert report["by_name"][f"params.{name}"]["kind"] == "weight"
    assert report["by_name"]["opt_state.0.count"]["kind"] == "other"
    assert report["totals"]["parameters"] == 16 * 8 + 8


@pytest.mark.parametrize("root", ["opt_state.1.0.", "opt_state.inner_state.0.", "opt_state.",
                                  "opt_state.0.inner_opt_state.2."])
def test_nested_states_of_optax(tmp_path, root):
    save_file({"params.a.w": f32(32), f"{root}mu.a.w": f32(32), f"{root}nu.params.a.w": f32(32)},
              tmp_path / "s.safetensors")
    report = pack(tmp_path, tmp_path / "s.safetensors")
    assert report["by_name"][f"{root}mu.a.w"]["weight"] == "params.a.w"
    assert report["by_name"][f"{root}nu.params.a.w"]["kind"] == "variance"
