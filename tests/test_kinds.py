# SPDX-License-Identifier: Apache-2.0
"""What pack takes for a weight, for state that it knows, and for state that it does not; what stays raw."""
import json
import re
import struct

import ml_dtypes
import numpy as np
import pytest
import xxhash
from safetensors.numpy import load_file, save_file

from conftest import DATA, one_line_error, run_tersor, write_source
from helpers import torchfile as tf
from test_entropy import rewritten
from test_reader import split

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


@pytest.mark.parametrize("file, fields", [("soap.pt", {"Q"}), ("schedule-free.pt", {"z"})])
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
    assert set(pack(tmp_path, source)["why"]["unknown_state"]["fields"]) == {"Q"}


@pytest.mark.parametrize("other, packed", [((), False), (("--other", "softsign8"), False), (("--other", "bf16"), False),
                                           (("--other", "bf16+exact16"), True)])
def test_factors_of_preconditioners_are_only_packed_without_loss(tmp_path, other, packed):
    """The inverse root of a rounded factor has an NMSE of 0.009 to 20; rounded eigenvectors do not matter."""
    report = pack(tmp_path, STATES / "soap.pt", options=("--min-elements", "1", *other))
    for name, t in report["by_name"].items():
        if ".GG." in name or name.endswith(".preconditioner"):
            assert (t["codec"] != "raw") == packed, name
        if ".Q." in name:
            assert (t["codec"] != "raw") == bool(other), name
    assert ("factors" in report["why"]) != packed
    if not packed:
        assert report["why"]["factors"]["tensors"] == 3


def test_many_names_under_one_root_are_told_in_time(tmp_path):
    """Each momentum looked at all of them for a factor: a minute where this takes one second."""
    names = [f"layers.shard.p{i:05d}" for i in range(40000)]
    one = ("F32", [1], bytes(4))
    path = write_source(tmp_path / "s.safetensors", {prefix + name: one for prefix in (
        "", "optimizer.exp_avg.", "optimizer.exp_avg_sq.") for name in names})
    found = json.loads(run_tersor("inspect", path, "--json", "-q", check=0, timeout=20).stdout)["tensors"]
    assert sum(t["kind"] == "momentum" for t in found) == len(names)


def test_moments_in_different_bases_are_not_divided(tmp_path):
    """SOAP's variance is of the gradient in the eigenvectors' basis: m / sqrt(v) is not its update."""
    adam = pack(tmp_path, checkpoint(tmp_path, {"exp_avg": f32(16, 8), "exp_avg_sq": np.abs(f32(16, 8)) + 1}))
    assert adam["losses"]["updates"]["measured"] == 1
    report = pack(tmp_path, STATES / "soap.pt")
    assert not (report["losses"].get("updates") or {}).get("measured") and report["by_name"]["w.exp_avg"]["codec"] == "softsign8"
    tight = pack(tmp_path, STATES / "soap.pt", options=("--state", "tight"))
    assert tight["by_name"]["w.exp_avg"]["codec"] == "softsign8"    # there is nothing to have a ratio to


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
    save_file({"w": f32(32), "lr": f32(3), "steps": np.full(20, 100001, np.float32)}, tmp_path / "s.safetensors")
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
    """The line of the report, or of stderr if nothing at all was packed: then --strict exits with 1."""
    args = "pack", source, "-o", tmp_path / "n", "-f", *options
    done = run_tersor(*args, check=0)
    lead = f"tersor: warning: {source}: "
    lines = [s.removeprefix(lead) for s in done.stderr.splitlines() if s.startswith(lead + "nothing was packed: ")]
    strict = run_tersor(*args, "--strict", check=1 if lines else 0)
    assert [f"tersor: {source}: {s}" for s in lines] == [s for s in strict.stderr.splitlines() if "nothing was" in s]
    return lines + [s for s in done.stdout.splitlines() if "nothing was packed" in s]


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
    assert line.startswith("almost nothing was packed: 97% of the input's data is F16, which stays as it is")
    assert "weights are packed if they are F32" in line
    assert not nothing_line(tmp_path, STATES / "soap.pt", "--state", "bf16/bf16")


@pytest.mark.parametrize("states, eps, kind", [
    ("mb", True, "other"), ("bm", True, "other"), ("mb", False, "momentum"), ("mv", True, "momentum"),
    ("m", True, "momentum"), ("bmv", True, "momentum")])
def test_what_an_optimizer_divides_by_is_no_momentum(tmp_path, states, eps, kind):
    """KATE's m is the sum under a root, beside a b and without a v; its optimizer has an eps."""
    source = checkpoint(tmp_path, {name: np.square(f32(16, 8)) for name in states}, **({"eps": 1e-8} if eps else {}))
    report = pack(tmp_path, source)
    assert report["by_name"]["w.m"]["kind"] == kind
    assert report["by_name"]["w.m"]["codec"] == ("softsign8" if kind == "momentum" else "raw")
    fields = [field for kept in report["kept_raw"] for field in kept.get("fields", [])]
    assert ("m" in fields) == (kind == "other")


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


# ---- Order of parameters -----------------------------------------------------------------------

FRAMEWORKS = DATA / "frameworks"
TRAINER = FRAMEWORKS / "trainer" / "checkpoint-30"


def moments(path):
    """exp_avg of each number of the optimizer in a .pt, as bytes."""
    root = dict(tf.load(path).items())
    state = root.get("optimizer", root)["state"]
    return {number: tf.content_of(s["exp_avg"]) for number, s in state.items()}


def matched(tmp_path, sources, *options):
    """The names that the numbers of an optimizer got, in order, and stderr."""
    out = tmp_path / "named.safetensors"
    done = run_tersor("convert", *sources, "-o", out, "-fv", *options, check=0)
    by_bytes = {}
    for name, x in load_file(out).items():
        if name.endswith(".exp_avg"):
            by_bytes.setdefault(x.tobytes(), []).append(name.removesuffix(".exp_avg"))
    found = [by_bytes[content] for content in moments(sources[-1]).values()]
    assert all(len(names) == 1 for names in found)
    return [names[0] for names in found], done.stderr


def parameters_of(path):
    """The names of the tensors of the model in a .pt, in its order."""
    return [n for n, _ in tf.load(path)["model"].items()]


@pytest.mark.parametrize("folder, files", [
    ("trainer/checkpoint-30", ("model.safetensors", "optimizer.pt")),
    ("accelerate/checkpoint_0", ("model.safetensors", "optimizer.bin")),
])
def test_decay_groups_beside_a_model_in_safetensors(tmp_path, folder, files):
    """The truth is what the Trainer itself said; Accelerate trained the same model."""
    names, stderr = matched(tmp_path, [FRAMEWORKS / folder / f for f in files])
    truth = (FRAMEWORKS / "expected" / "trainer-parameter-order.txt").read_text().split()
    assert names == truth
    assert "groups with and without weight decay" in stderr and "as defined by Llama" in stderr


def test_adapters_whose_shapes_tell_the_order(tmp_path):
    folder = FRAMEWORKS / "peft" / "checkpoint-20"
    names, stderr = matched(tmp_path, [folder / "adapter_model.safetensors", folder / "optimizer.pt"])
    assert names == [f"base_model.model.model.layers.{i}.self_attn.{m}_proj.lora_{part}.weight"
                     for i in (0, 1) for m in "qv" for part in "AB"]
    assert "one group in the order of the model" in stderr


def test_batch_norm(tmp_path):
    names, stderr = matched(tmp_path, [STATES / "batchnorm.pt"])
    assert names == ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]
    assert "by shape and order, without buffers" in stderr


def test_learning_rate_per_parameter(tmp_path):
    names, stderr = matched(tmp_path, [STATES / "layerwise-lr.pt"])
    assert names == parameters_of(STATES / "layerwise-lr.pt")
    assert "a learning rate per layer, in the order of the model" in stderr


def optimized(tmp_path, model, groups, stateless=(), graded=True, name="o.pt"):
    """A .pt with a model {name: shape} and the state of an optimizer over groups of names."""
    weights = {n: f32(*shape) for n, shape in model.items()}
    order = [n for group in groups for n in group]
    state = {i: {"exp_avg": f32(*model[n])} for i, n in enumerate(order) if n not in stateless}
    numbers, param_groups = iter(range(len(order))), []
    for i, group in enumerate(groups):
        # Without decay only what has none by its name; the learning rate falls.
        decay = 0.0 if group and all(n.endswith(("bias", "norm.weight")) for n in group) else 0.1
        param_groups.append({"lr": 0.1 * 0.5 ** (i if graded else 0), "weight_decay": decay,
                             "params": [next(numbers) for _ in group]})
    path = tmp_path / name
    path.write_bytes(saved({"model": weights,
                            "optimizer": {"state": state, "param_groups": param_groups}}))
    return path, order


MLP = {f"{layer}.{part}": shape for layer in ("a", "b", "c")
       for part, shape in (("weight", (6, 6)), ("bias", (6,)), ("norm.weight", (6,)))}
MLP["head.weight"] = (3, 6)


def only(*ends, model=MLP):
    return [n for n in model if n.endswith(ends)]


PROVED = {
    "decay-by-rank": [only("a.weight", "b.weight", "c.weight", "head.weight"), only("bias", "norm.weight")],
    "no-decay-first": [only("bias", "norm.weight"), only("a.weight", "b.weight", "c.weight", "head.weight")],
    "all-but-biases": [only("weight"), only("bias")],
    "per-layer": [[n for n in MLP if n.startswith(layer)] for layer in ("a", "b", "c", "head")],
    "per-layer-reversed": [[n for n in MLP if n.startswith(layer)] for layer in ("head", "c", "b", "a")],
    "head-first": [["head.weight"], [n for n in MLP if n != "head.weight"]],
    "empty-group": [list(MLP), []],
    "one-frozen": [[n for n in MLP if n != "head.weight"]],
}


@pytest.mark.parametrize("case", PROVED)
def test_rules(tmp_path, case):
    path, order = optimized(tmp_path, MLP, PROVED[case])
    names, _ = matched(tmp_path, [path])
    assert names == order


@pytest.mark.parametrize("case", PROVED)
def test_buffers_and_parameters_without_state_do_not_matter(tmp_path, case):
    model = {}
    for n, shape in MLP.items():
        model[n] = shape
        if n.endswith("norm.weight"):
            model[n.replace("weight", "running_mean")] = shape
            model[n.replace("weight", "running_var")] = shape
    stateless = () if case == "head-first" else ("b.bias",)
    path, order = optimized(tmp_path, model, PROVED[case], stateless=stateless)
    names, _ = matched(tmp_path, [path])
    assert names == [n for n in order if n not in stateless]


def unsettled(done):
    assert "ambiguous" in done.stderr and "called by the optimizer's numbers" in done.stderr


SQUARE = {f"{layer}.weight": (6, 6) for layer in "abc"}
AMBIGUOUS = {
    "a-layer-frozen": (MLP, [[n for n in MLP if not n.startswith("a")]]),
    "two-of-three": (MLP, [only("a.weight", "c.weight", "bias")]),
    # The other way round, each group has the same shapes.
    "two-layers": (MLP, [[n for n in MLP if n.startswith("a")],
                         [n for n in MLP if not n.startswith("a")]]),
    "both-directions": (SQUARE, [["a.weight"], ["b.weight"], ["c.weight"]]),
    "unknown-rule": (MLP, [only("a.weight", "b.bias", "head.weight"),
                           [n for n in MLP if n not in only("a.weight", "b.bias", "head.weight")]]),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_ambiguous_orders_keep_numbers_and_names_settle_them(tmp_path, case):
    model, groups = AMBIGUOUS[case]
    path, order = optimized(tmp_path, model, groups)
    unsettled(run_tersor("convert", path, "-f", "-o", tmp_path / "x.safetensors", check=0))
    (tmp_path / "names").write_text("\n".join(order))
    assert matched(tmp_path, [path], "--params", tmp_path / "names")[0] == order


def test_groups_need_a_reason(tmp_path):
    """Groups of the same layers with one learning rate, or of biases that decay, follow no rule."""
    for groups in (PROVED["per-layer"], PROVED["all-but-biases"]):
        path, _ = optimized(tmp_path, MLP, groups, graded=False)
        root = tf.load(path)
        for group in root["optimizer"]["param_groups"]:
            group.pairs = [(k, 0.1 if k == "weight_decay" else v) for k, v in group.items()]
        path.write_bytes(tf.pt(root))
        unsettled(run_tersor("convert", path, "-f", "-o", tmp_path / "x.safetensors", check=0))


def test_frozen_layers_among_equal_ones_keep_numbers(tmp_path):
    """Which of two equal layers was frozen cannot be told; a checkpoint of what is trained can."""
    source = STATES / "frozen-layers.pt"
    unsettled(run_tersor("convert", source, "-o", tmp_path / "x.safetensors", check=0))
    weights = tf.load(source)["model"]
    trained = {n: f32(*t.shape) for n, t in weights.items() if not n.startswith("model.layers.0.")}
    (tmp_path / "trained.pt").write_bytes(saved(trained))
    names, _ = matched(tmp_path, [source], "--params-from", tmp_path / "trained.pt")
    assert names == list(trained)


def test_order_from_another_checkpoint(tmp_path):
    """The names in safetensors are in alphabetical order, and of no known architecture."""
    path, order = optimized(tmp_path, MLP, [list(reversed(MLP))])
    root = tf.load(path)
    save_file({n: f32(*MLP[n]) for n in sorted(MLP)}, tmp_path / "m.safetensors")
    (tmp_path / "only.pt").write_bytes(tf.pt(root["optimizer"]))
    sources = [tmp_path / "m.safetensors", tmp_path / "only.pt"]
    unsettled(run_tersor("convert", *sources, "-o", tmp_path / "x", "--to", "safetensors", check=0))
    (tmp_path / "order.pt").write_bytes(saved({n: f32(*MLP[n]) for n in order}))
    for model in ("order.pt", "packed", "converted.safetensors"):
        if model == "packed":
            run_tersor("pack", tmp_path / "order.pt", "-o", tmp_path / model, check=0)
        elif model != "order.pt":
            run_tersor("convert", tmp_path / "order.pt", "-o", tmp_path / model, check=0)
        assert matched(tmp_path, sources, "--params-from", tmp_path / model)[0] == order


def test_order_from_what_keeps_none_is_refused(tmp_path):
    sources = [TRAINER / "model.safetensors", TRAINER / "optimizer.pt", "-o", tmp_path / "x.pt"]
    line = one_line_error(run_tersor("convert", *sources, "--params-from", sources[0], check=3))
    assert "does not keep the order of parameters" in line and "--params" in line
    (tmp_path / "other.pt").write_bytes(saved({"another": f32(3)}))
    line = one_line_error(run_tersor("convert", *sources, "--params-from", tmp_path / "other.pt", check=2))
    assert "none of the 1 names" in line
    (tmp_path / "names").write_text("a")
    line = one_line_error(run_tersor("convert", *sources, "--params-from", tmp_path / "other.pt",
                                     "--params", tmp_path / "names", check=2))
    assert "--params-from and --params exclude each other" in line


# ---- Copies ------------------------------------------------------------------------------------

def summary_of(tmp_path, source):
    """Totals of inspect and of pack, which must agree on parameters, also once packed."""
    report = pack(tmp_path, source)
    for path in (source, tmp_path / "packed.safetensors"):
        totals = json.loads(run_tersor("inspect", path, "--json", check=0).stdout)["totals"]
        assert totals["parameters"] == report["totals"]["parameters"]
        assert totals["copies"] == report["totals"]["copies"]
    return report["totals"]


MODEL = {"layer.weight": f32(32, 8), "layer.bias": f32(32), "head.weight": f32(4, 32)}
N = sum(x.size for x in MODEL.values())


@pytest.mark.parametrize("key", ["ema", "anything", "averaged.module"])
def test_weights_outside_the_model_are_copies(tmp_path, key):
    copy = {n: f32(*x.shape) for n, x in MODEL.items()}
    for part in reversed(key.split(".")):
        copy = {part: copy}
    (tmp_path / "c.pt").write_bytes(saved({"model": MODEL, **copy}))
    totals = summary_of(tmp_path, tmp_path / "c.pt")
    assert totals["parameters"] == N and totals["elements"] == 2 * N
    assert totals["copies"] == [{"under": f"{key.split('.')[0]}.*", "elements": N}]
    assert totals["stored_nbytes"] == 6 * N
    text = run_tersor("pack", tmp_path / "c.pt", "-o", tmp_path / "p", check=0).stdout
    assert f"copies of parameters: {N} elements under {key.split('.')[0]}.*\n" in text


def test_other_weights_outside_the_model_are_no_copies(tmp_path):
    other = {"layer.weight": f32(8, 8), "reward.weight": f32(32)}
    (tmp_path / "c.pt").write_bytes(saved({"model": MODEL, "critic": other}))
    totals = summary_of(tmp_path, tmp_path / "c.pt")
    assert totals["parameters"] == N + 8 * 8 + 32 and totals["copies"] == []


def test_names_of_copies_in_safetensors(tmp_path):
    """Only under known keys: a decoder can have a part like that of the whole."""
    for key, copies in (("ema", N), ("swa_model.module", N), ("decoder", 0)):
        save_file({**MODEL, **{f"{key}.{n}": f32(*x.shape) for n, x in MODEL.items()}},
                  tmp_path / "s.safetensors")
        totals = summary_of(tmp_path, tmp_path / "s.safetensors")
        assert totals["parameters"] == 2 * N - copies


@pytest.mark.parametrize("alias", ["master_param", "fp32_param"])
@pytest.mark.parametrize("model", [True, False])
def test_masters_are_copies_if_their_weights_are_there(tmp_path, alias, model):
    masters = {f"{n}.{alias}": x for n, x in MODEL.items()}
    save_file({**({n: f32(*x.shape) for n, x in MODEL.items()} if model else {}), **masters},
              tmp_path / "s.safetensors")
    totals = summary_of(tmp_path, tmp_path / "s.safetensors")
    assert totals["parameters"] == N
    assert totals["copies"] == ([{"under": f"*.{alias}", "elements": N}] if model else [])


@pytest.mark.parametrize("sizes, copies", [((N,), N), ((N - 50, 50), N), ((N - 50, 49), 0)])
def test_flat_partitions(tmp_path, sizes, copies):
    (tmp_path / "c.pt").write_bytes(saved({"model": MODEL, "flat_groups": [f32(n) for n in sizes]}))
    totals = summary_of(tmp_path, tmp_path / "c.pt")
    assert totals["parameters"] == N + sum(sizes) - copies
    assert totals["copies"] == ([{"under": "flat_groups.*", "elements": N}] if copies else [])


@pytest.mark.parametrize("file, where, n", [
    ("bf16-model-fp32-master.pt", "master.*", 106816),
    ("megatron-legacy.pt", "optimizer.fp32_from_fp16_params.*", 4096),
])
def test_masters_beside_a_model_of_a_framework(tmp_path, file, where, n):
    totals = summary_of(tmp_path, STATES / file)
    assert totals["parameters"] == n and totals["copies"] == [{"under": where, "elements": n}]


def masters(path, shape=(3000, 70)):
    """A model in BF16 and its FP32 masters: any, and those that are hard to tell from the next narrow weight."""
    x = RNG.standard_normal(shape).astype("f4") * np.float32(0.02)
    narrow = x.astype(ml_dtypes.bfloat16).view("u2").astype("u4") << 16
    x[:1000] = (narrow[:1000] + RNG.integers(0x7f80, 0x8000, (1000, shape[1]))).astype("u4").view("f4")
    x[1000:2000] = (narrow[1000:2000] - RNG.integers(0x3f00, 0x8000, (1000, shape[1]))).astype("u4").view("f4")
    x[2000] = np.exp2(np.arange(shape[1]) - 60) * (1 - 2.0**-10)
    save_file({"model.w": x.astype(ml_dtypes.bfloat16), "master.w": x}, path)
    return path


@pytest.mark.parametrize("weights", ["bf16+ulp8", "bf16+ulp16"])
def test_masters_round_to_the_model_that_they_share(tmp_path, weights):
    """To the bits, so that what is unpacked shares them again, and its third copy is its second."""
    source, seen = masters(tmp_path / "0.safetensors"), []
    for i in range(3):
        report = pack(tmp_path, source, options=("--map", "^master=weight", "--weights", weights))
        assert report["data_nbytes"] == 210000 * (3 if weights == "bf16+ulp8" else 4)
        run_tersor("verify", tmp_path / "packed.safetensors", "--against", source, check=0)
        source = tmp_path / f"{i + 1}.safetensors"
        run_tersor("unpack", tmp_path / "packed.safetensors", "-o", source, check=0)
        seen.append(load_file(source))
        assert np.array_equal(seen[-1]["master.w"].astype(ml_dtypes.bfloat16).view("u2"), seen[-1]["model.w"].view("u2"))
    original = load_file(tmp_path / "0.safetensors")["master.w"]
    error = np.abs(seen[0]["master.w"].astype("f8") - original)
    ulp = np.exp2(np.floor(np.log2(np.abs(original))) - 7)
    assert np.all(error <= 1.6 * ulp / 2 / (127 if weights == "bf16+ulp8" else 32767) + np.abs(original) * 2.0**-24)
    if weights == "bf16+ulp8":
        assert np.array_equal(seen[1]["master.w"], seen[2]["master.w"])


def test_masters_without_loss_are_not_moved(tmp_path):
    """A model that is rounded half away from zero, as the codec rounds, beside masters half way to the next."""
    x = (RNG.standard_normal((1000, 70)) * 0.02).astype("f4")
    x[:10] = ((x[:10].view("u4") & 0xffff0000) | 0x8000).view("f4")
    away = ((x.view("u4") + 0x8000) >> 16).astype("u2").view(ml_dtypes.bfloat16)
    source, out = tmp_path / "0.safetensors", tmp_path / "1.safetensors"
    save_file({"model.w": away, "master.w": x}, source)
    pack(tmp_path, source, options=("--map", "^master=weight", "--weights", "bf16+exact16"))
    run_tersor("unpack", tmp_path / "packed.safetensors", "-o", out, check=0)
    assert np.array_equal(load_file(out)["master.w"].view("u4"), x.view("u4"))
    assert np.array_equal(load_file(out)["model.w"].view("u2"), away.view("u2"))


def test_masters_that_do_not_round_are_found(tmp_path):
    """As other programs may write them: a correction half way to the next narrow weight, which is even."""
    pack(tmp_path, masters(tmp_path / "0.safetensors"), options=("--map", "^master=weight"))
    path = tmp_path / "packed.safetensors"

    def change(whole, text, data):
        start, end = whole["master.w::error_bits"]["data_offsets"]
        first, _ = whole["model.w"]["data_offsets"]
        odd = next(i for i in range(end - start) if data[first + 2 * i] & 1)
        data = bytearray(data)
        data[start + odd] = 127
        master, = (t for t in text["tensors"] if t["name"] == "master.w")
        only = xxhash.xxh3_64_intdigest(data[start:end])    # piece of its plane
        master["xxh3"][1] = xxhash.xxh3_64_hexdigest(struct.pack("<Q", only))
        return bytes(data)
    path.write_bytes(rewritten(*split(path.read_bytes()), change))
    assert "tensor master.w: has values that do not round to the model's, which it shares" in \
        one_line_error(run_tersor("verify", path, check=1))


def test_state_alone_counts_by_its_momenta(tmp_path):
    (tmp_path / "o.pt").write_bytes(saved({"state": {0: {"exp_avg": f32(99), "sum": f32(99)}},
                                           "param_groups": [{"params": [0]}]}))
    assert summary_of(tmp_path, tmp_path / "o.pt")["parameters"] == 99
