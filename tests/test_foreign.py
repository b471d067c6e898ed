"""Other tools' optimizer states, and whose state is whose.

Optimizer ids are positions: how they are joined to parameters.  FlashOptim's compressed state
dicts, both ways.  Read only: the 8-bit states of bitsandbytes, the 16-bit remainders of
TransformerEngine, BF16 states.  The oracle of the codecs is oracle.py, of the rest numpy.
"""
import json
import re
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import oracle
import torchfile
from conftest import DATA, one_line_error, run_tersor
from torchfile import (Dict, Storage, Tensor, arrays_in, as_array, content_of, converted,
                       must_refuse, ordered, pt, run_torch, tensor, tensors_in)

tmp_path = torchfile.tmp_path

FILES = DATA / "torch"
TINY = DATA / "tiny-gpt"
RAW_CODECS = ("--weights", "f32", "--momentum", "f32", "--variance", "f32")
BF16 = ml_dtypes.bfloat16


def values_of(t, dtype):
    return np.frombuffer(content_of(t), dtype).reshape(t.shape)


def bf16(bits):
    """A BF16 tensor from its bits."""
    return Tensor(Storage(np.asarray(bits, np.uint16).tobytes(), "BFloat16Storage"), bits.shape)


def unsettled(*sources, options=()):
    """The states keep their numbers, which a warning says; none is called another parameter's."""
    out = sources[0].parent / "unsettled.safetensors"
    done = run_tersor("convert", *sources, "-o", out, "--force", *options, check=0)
    assert "ambiguous" in done.stderr and "called by the optimizer's numbers" in done.stderr
    found = arrays_in(out)
    states = [name for name in found if name.endswith(("exp_avg", "exp_avg_sq", "momentum_buffer"))]
    assert states and all("state." in name for name in states), states
    return found


# ---- Optimizer ids are positions: joined to parameters by names, or by order and shape ----

@pytest.mark.parametrize("inputs, expected", [
    (["model.pt", "optimizer-decay-groups.pt"], "expected-adamw"),
    (["optimizer-decay-groups.pt", "model.pt"], "expected-adamw"),
    (["named-parameters.pt"], "expected-named"), (["sgd.pt"], "expected-sgd"),
])
def test_ids_are_joined_to_parameters(tmp_path, inputs, expected):
    """Groups of decay and no decay permute the parameters; param_names; momentum of SGD."""
    found = converted([FILES / name for name in inputs], to=tmp_path / "out.safetensors")
    wanted = arrays_in(FILES / f"{expected}.safetensors")
    assert wanted.items() <= found.items()
    weights = {n for n in wanted if not n.endswith(("exp_avg", "exp_avg_sq", "momentum_buffer"))}
    rest = set(found) - set(wanted)
    assert rest <= {f"{w}.step" for w in weights}
    if inputs[0] != "optimizer-decay-groups.pt":    # by itself its states have no names
        run_tersor("diff", FILES / inputs[0], FILES / f"{expected}.safetensors", check=0)


def test_wrong_partner_is_not_joined(tmp_path):
    """sgd.pt's model and an Adam state of the same shapes join; one of other shapes does not."""
    model = torchfile.load(FILES / "model.pt")
    model.pairs = model.pairs[:-1]
    (tmp_path / "model.pt").write_bytes(pt(model))
    unsettled(tmp_path / "model.pt", FILES / "optimizer-decay-groups.pt")


def training(shapes, groups, names=None, key="optimizer", frozen=(), extra=(), state=True,
             ids=None):
    """A model with parameters p0, p1, .. and an optimizer whose groups list them by number.

    The states of parameter i hold i + 0.25 and i + 0.5, so that it shows whose they are.
    """
    model = ordered({f"p{i}": tensor(np.full(s, i, np.float32)) for i, s in enumerate(shapes)}, x=1)
    model.pairs += list(extra)
    states, listed, n = {}, [], 0
    for group in groups:
        listed.append({"lr": 0.1, "params": []})
        if names:
            listed[-1]["param_names"] = [f"p{i}" for i in group]
        for i in group:
            if i not in frozen and state:
                states[n] = {"step": tensor(np.float32(7)),
                             "exp_avg": tensor(np.full(shapes[i], i + 0.25, np.float32)),
                             "exp_avg_sq": tensor(np.full(shapes[i], i + 0.5, np.float32))}
            listed[-1]["params"].append(n)
            n += 1
    return {"model": model, key: {"state": Dict(states), "param_groups": listed}}


def check_training(found, shapes, without=()):
    for i, shape in enumerate(shapes):
        for suffix, add in (("", 0), (".exp_avg", 0.25), (".exp_avg_sq", 0.5)):
            name = f"p{i}{suffix}"
            if suffix and i in without:
                assert name not in found
            else:
                assert found[name] == as_array(tensor(np.full(shape, i + add, np.float32))), name


SHAPES = [(4, 3), (3,), (4, 3), (3,), (5,)]


@pytest.mark.parametrize("groups", [[[0, 1, 2, 3, 4]], [[0, 2], [1, 3, 4]], [[1, 3, 4], [0, 2]],
                                    [[0, 2, 4], [1, 3]]], ids=str)
@pytest.mark.parametrize("names", [False, True])
def test_ids_of_groups_that_keep_the_model_s_order(tmp_path, groups, names):
    path = tmp_path / "in.pt"
    path.write_bytes(pt(training(SHAPES, groups, names)))
    check_training(converted(path), SHAPES)


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3, 4]], [[2], [0, 1, 3, 4]], [[0, 1, 4], [2, 3]],
                                    [[4], [3], [2], [1], [0]]], ids=str)
def test_ids_that_shapes_cannot_settle(tmp_path, groups):
    """The same shapes in two groups: more than one assignment keeps the order."""
    path, params = tmp_path / "in.pt", tmp_path / "params.txt"
    path.write_bytes(pt(training(SHAPES, groups)))
    unsettled(path)
    flat = [i for group in groups for i in group]
    params.write_text("".join(f"p{i}\n" for i in flat))
    check_training(converted(path, "--params", params), SHAPES)
    for command in (["pack", path, "-o", tmp_path / "p.safetensors"], ["inspect", path],
                    ["verify", path], ["diff", path, path]):
        run_tersor(*command, "--params", params, check=0)
    path.write_bytes(pt(training(SHAPES, groups, names=True)))
    check_training(converted(path), SHAPES)


@pytest.mark.parametrize("text", [
    "p0\np1\np2\np3\n", "p0\np1\np2\np3\np4\np5\n", "p0\np1\np2\np3\nx\n", "p1\np0\np2\np3\np4\n",
    "p0\np0\np2\np3\np4\n", "", "p0 p1 p2 p3 p4\n", "p0\np1\np2\np3\n\xffp4\n",
], ids=repr)
def test_params_that_do_not_fit(tmp_path, text):
    """Too few, too many, unknown, of another shape, twice."""
    path, params, out = (tmp_path / n for n in ("in.pt", "params.txt", "out.safetensors"))
    path.write_bytes(pt(training(SHAPES, [[0, 1], [2, 3, 4]])))
    params.write_bytes(text.encode("latin-1"))
    done = run_tersor("convert", path, "-o", out, "--params", params)
    assert done.returncode in (2, 3) and not out.exists(), done.stderr
    one_line_error(done)


def test_params_without_a_newline_at_the_end(tmp_path):
    path, params = tmp_path / "in.pt", tmp_path / "params.txt"
    path.write_bytes(pt(training(SHAPES, [[0, 1], [2, 3, 4]])))
    for text in ("p0\np1\np2\np3\np4", "p0\r\np1\r\np2\r\np3\r\np4\r\n"):
        params.write_text(text)
        done = run_tersor("convert", path, "-o", tmp_path / "o.safetensors", "--force", "--params",
                          params)
        assert done.returncode == 0 or "\r" in text
    run_tersor("convert", path, "-o", tmp_path / "x.safetensors", "--params", tmp_path / "none",
               check=4)


def test_ids_do_not_fit_at_all(tmp_path):
    """An optimizer for other parameters than the model's."""
    value = training(SHAPES, [[0, 1, 2, 3, 4]])
    other = training([(9, 9), (3,), (4, 3), (3,), (5,)], [[0, 1, 2, 3, 4]])
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"model": value["model"], "optimizer": other["optimizer"]}))
    unsettled(path)
    more = training([*SHAPES, (5,)], [[0, 1, 2, 3, 4, 5]])
    path.write_bytes(pt({"model": value["model"], "optimizer": more["optimizer"]}))
    unsettled(path)


def test_names_that_do_not_fit(tmp_path):
    """param_names that name no parameter, or one of another shape."""
    for change in (["p0", "p1", "p2", "p3", "zzz"], ["p1", "p0", "p2", "p3", "p4"],
                   ["p0", "p1", "p2", "p3"], ["p0", "p0", "p2", "p3", "p4"], "p0", [0, 1, 2, 3, 4]):
        value = training(SHAPES, [[0, 1, 2, 3, 4]], names=True)
        value["optimizer"]["param_groups"][0]["param_names"] = change
        path = tmp_path / "in.pt"
        path.write_bytes(pt(value))
        done = run_tersor("convert", path, "-o", tmp_path / "o.safetensors", "--force")
        if done.returncode == 0:        # wrong names may be left out of account, not believed
            found = arrays_in(tmp_path / "o.safetensors")
            check_training({n: found[n] for n in found}, SHAPES if change != [
                "p0", "p1", "p2", "p3", "zzz"] else SHAPES[:4])
        else:
            assert done.returncode == 3
            one_line_error(done)


def test_frozen_parameters_have_no_state(tmp_path):
    """Frozen: not in the optimizer at all, or in it without a state."""
    shapes = [(4, 3), (3,), (2, 2), (3,), (5,)]
    path = tmp_path / "in.pt"
    path.write_bytes(pt(training(shapes, [[0, 1, 2, 3, 4]], frozen=(1, 3))))
    check_training(converted(path), shapes, without=(1, 3))
    path.write_bytes(pt(training(shapes, [[0, 2, 4]])))
    check_training(converted(path), shapes, without=(1, 3))


def test_frozen_parameters_that_make_ids_ambiguous(tmp_path):
    """Of two equal shapes one is frozen: the order tells which, or nobody can."""
    path, params = tmp_path / "in.pt", tmp_path / "params"
    path.write_bytes(pt(training(SHAPES, [[0, 1, 2, 4]])))
    check_training(converted(path), SHAPES, without=(3,))
    path.write_bytes(pt(training(SHAPES, [[0, 1, 4]])))
    unsettled(path)
    params.write_text("p0\np1\np4\n")
    check_training(converted(path, "--params", params), SHAPES, without=(2, 3))


@pytest.mark.parametrize("groups", [[[3, 2, 1, 0]], [[1, 0, 3, 2]], [[2, 0, 1, 3]]])
def test_an_order_that_is_not_the_models_tells_nothing(tmp_path, groups):
    """Two parameters of a shape are not told apart by an order that another shape shows to be another."""
    shapes, path, params = [(4, 3), (3,), (4, 3), (3,)], tmp_path / "in.pt", tmp_path / "params"
    path.write_bytes(pt(training(shapes, groups)))
    unsettled(path)
    params.write_text("".join(f"p{i}\n" for group in groups for i in group))
    check_training(converted(path, "--params", params), shapes)


def test_parameters_of_different_shapes_may_come_in_any_order(tmp_path):
    shapes, path = [(4, 3), (3,), (5,)], tmp_path / "in.pt"
    path.write_bytes(pt(training(shapes, [[2, 0, 1]])))
    check_training(converted(path), shapes)


def test_tied_parameters_have_one_id(tmp_path):
    """The tied name is no parameter of its own, whichever of its names comes first."""
    shapes = [(4, 3), (3,), (5,)]
    value = training(shapes, [[0, 1, 2]])
    weight = value["model"]["p0"]
    value["model"].pairs.append(("lm_head.weight", weight))
    path = tmp_path / "in.pt"
    path.write_bytes(pt(value))
    found = converted(path)
    check_training(found, shapes)
    assert "lm_head.weight" not in found
    value["model"].pairs.insert(0, value["model"].pairs.pop())
    path.write_bytes(pt(value))
    found = converted(path)
    assert set(found) >= {"lm_head.weight", "lm_head.weight.exp_avg"} and "p0" not in found


def test_buffers_are_no_parameters(tmp_path):
    """Running statistics are tensors of the model without a place in the optimizer."""
    shapes = [(4, 3), (7,), (5,)]
    extra = [("running_mean", tensor(np.zeros(6, np.float32))),
             ("num_batches_tracked", tensor(np.int64(3)))]
    path = tmp_path / "in.pt"
    path.write_bytes(pt(training(shapes, [[0, 1, 2]], extra=extra)))
    found = converted(path)
    check_training(found, shapes)
    assert "running_mean" in found and "running_mean.exp_avg" not in found


def test_ids_need_not_be_dense_or_in_order(tmp_path):
    """After groups were added and removed ids are any ints; their position counts."""
    shapes = [(4, 3), (3,), (5,)]
    value = training(shapes, [[0, 1, 2]])
    renumber = {0: 17, 1: 3, 2: 8}
    state = value["optimizer"]["state"]
    value["optimizer"]["state"] = Dict([(renumber[k], v) for k, v in state.pairs])
    value["optimizer"]["param_groups"][0]["params"] = [17, 3, 8]
    path = tmp_path / "in.pt"
    path.write_bytes(pt(value))
    check_training(converted(path), shapes)


@pytest.mark.parametrize("change", ["no groups", "unknown id", "id twice", "bad id",
                                    "state of shape"])
def test_optimizers_that_contradict_themselves(tmp_path, change):
    value = training(SHAPES[:2], [[0, 1]])
    optimizer = value["optimizer"]
    if change == "no groups":
        optimizer["param_groups"] = []
    elif change == "unknown id":
        optimizer["param_groups"][0]["params"] = [0, 5]
    elif change == "id twice":
        optimizer["param_groups"][0]["params"] = [0, 0]
    elif change == "bad id":
        optimizer["param_groups"][0]["params"] = [0, 1.5]
    else:
        optimizer["state"][0]["exp_avg_sq"] = tensor(np.zeros(7, np.float32))
        optimizer["state"].pairs[0] = (0, {**optimizer["state"][0],
                                           "exp_avg_sq": tensor(np.zeros(7, np.float32))})
    path = tmp_path / "in.pt"
    path.write_bytes(pt(value))
    for command in (["convert", path, "-o", tmp_path / "c.safetensors"],
                    ["pack", path, "-o", tmp_path / "p.safetensors", *RAW_CODECS]):
        done = run_tersor(*command)
        if change == "state of shape":
            assert done.returncode == (3 if command[0] == "pack" else 0), done.stderr
        elif done.returncode == 0:      # then no state is called another parameter's
            found = arrays_in(tmp_path / f"{command[0][0]}.safetensors")
            for i in range(2):
                for suffix, add in ((".exp_avg", 0.25), (".exp_avg_sq", 0.5)):
                    t = found.get(f"p{i}{suffix}")
                    assert t in (None, as_array(tensor(np.full(SHAPES[i], i + add, np.float32))))
        else:
            assert done.returncode == 3, (command, done.stderr)
            one_line_error(done)


@pytest.mark.parametrize("key", ["optimizer", "optim", "optimizer_state_dict", "opt"])
def test_optimizers_under_any_key(tmp_path, key):
    """It is one by its state and param_groups, not by its name."""
    path = tmp_path / "in.pt"
    path.write_bytes(pt(training(SHAPES, [[0, 1, 2, 3, 4]], key=key)))
    check_training(converted(path), SHAPES)


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict", "module"])
def test_models_under_any_usual_key(tmp_path, key):
    value = training(SHAPES, [[0, 1, 2, 3, 4]])
    path = tmp_path / "in.pt"
    path.write_bytes(pt({key: value["model"], "optimizer": value["optimizer"], "epoch": 3}))
    check_training(converted(path), SHAPES)


def test_lightning_lists_its_optimizers(tmp_path):
    value = training(SHAPES, [[0, 1, 2, 3, 4]])
    path = tmp_path / "in.ckpt"
    path.write_bytes(pt({"epoch": 1, "state_dict": value["model"],
                         "optimizer_states": [value["optimizer"]]}))
    check_training(converted(path), SHAPES)


def test_optimizer_without_a_model(tmp_path):
    """States cannot be named after weights that are not there; they are still tensors."""
    path = tmp_path / "in.pt"
    value = training(SHAPES, [[0, 1, 2, 3, 4]])["optimizer"]
    path.write_bytes(pt(value))
    found = converted(path)
    assert sorted(v[2] for n, v in found.items() if v[1] != []) == sorted(
        content_of(t) for p, t in tensors_in(value) if t.shape)
    value = training(SHAPES, [[0, 1], [2, 3, 4]], names=True)["optimizer"]
    path.write_bytes(pt(value))
    found = converted(path)
    for i, shape in enumerate(SHAPES):
        assert found[f"p{i}.exp_avg"] == as_array(tensor(np.full(shape, i + 0.25, np.float32)))


def test_step_may_be_an_int(tmp_path):
    """As torch before 1.12 had it; it comes back as it was."""
    value = training(SHAPES, [[0, 1, 2, 3, 4]])
    for _, state in value["optimizer"]["state"].pairs:
        state["step"] = 12
    source, out = tmp_path / "in.pt", tmp_path / "out.pt"
    source.write_bytes(pt(value))
    check_training(converted(source), SHAPES)
    run_tersor("pack", source, "-o", tmp_path / "p.safetensors", *RAW_CODECS, check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", out, check=0)
    torchfile.same(value, torchfile.load(out))


def test_learning_rate_may_be_a_tensor(tmp_path):
    value = training(SHAPES, [[0, 1, 2, 3, 4]])
    value["optimizer"]["param_groups"][0]["lr"] = tensor(np.float32(0.125))
    source, out = tmp_path / "in.pt", tmp_path / "out.pt"
    source.write_bytes(pt(value))
    run_tersor("pack", source, "-o", tmp_path / "p.safetensors", *RAW_CODECS, check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", out, check=0)
    torchfile.same(value, torchfile.load(out))


def test_amsgrad_has_three_states(tmp_path):
    value = training(SHAPES[:2], [[0, 1]])
    for key, state in value["optimizer"]["state"].pairs:
        state["max_exp_avg_sq"] = state["exp_avg_sq"]
    source = tmp_path / "in.pt"
    source.write_bytes(pt(value))
    value["optimizer"]["state"][0]["max_exp_avg_sq"] = tensor(np.full((4, 3), 9, np.float32))
    source.write_bytes(pt(value))
    found = converted(source)
    check_training(found, SHAPES[:2])
    assert found["p0.max_exp_avg_sq"] == as_array(tensor(np.full((4, 3), 9, np.float32)))


# ---- FlashOptim ----

def flash(bits):
    return TINY / f"flashadamw{bits}-after.pt"


def flash_scales(t):
    """Scales of a state: FP16, or (FlashOptim 0.1.4 with BF16 weights) their bits called BF16."""
    assert t.st_dtype in ("F16", "BF16")
    return np.frombuffer(content_of(t), np.uint16)


def decode_flash(path, bits):
    """Every weight and state of a compressed state dict, in FP32, by the oracle of the codecs."""
    saved = torchfile.load(path)
    names, out = [], {}
    weights = [(n, t) for n, t in saved["model"].items() if t.st_dtype == "BF16"]
    shapes = {n: tuple(t.shape) for n, t in weights}
    state = saved["optimizer"]["state"]
    # As the fixture was made: the model's order is the order of ids.
    for (name, w), i in zip(weights, [i for g in saved["optimizer"]["param_groups"]
                                      for i in g["params"]], strict=True):
        s = state[i]
        assert tuple(s["error_bits"].shape) == shapes[name]
        if bits == 24:
            integers = values_of(s["error_bits"], BF16).astype(np.float32)
            correction = integers.astype(np.int8)
            assert np.array_equal(correction, integers)
        else:
            correction = values_of(s["error_bits"], np.int16)
        narrow = values_of(w, np.uint16)
        out[name] = oracle.decode_ulp(narrow, correction, "bf16", bits - 16)
        out[f"{name}.exp_avg"] = oracle.decode_softsign(
            values_of(s["exp_avg::quantized"], np.int8).ravel(),
            flash_scales(s["exp_avg::scales"]), 32, "f16")
        out[f"{name}.exp_avg_sq"] = oracle.decode_sqrt(
            values_of(s["exp_avg_sq::quantized"], np.uint8).ravel(),
            flash_scales(s["exp_avg_sq::scales"]), 32, "f16")
        names.append(name)
    return {n: (shapes[n.removesuffix(".exp_avg").removesuffix(".exp_avg_sq")],
                np.asarray(v, np.float32).ravel()) for n, v in out.items()}


def check_f32(found, expected):
    for name, (shape, values) in expected.items():
        dtype, got, content = found[name]
        assert (dtype, tuple(got)) == ("F32", shape), name
        assert content == values.tobytes(), name


@pytest.mark.parametrize("bits", [24, 32])
def test_done_flashoptim_unpacks_to_its_own_reconstruction(tmp_path, bits):
    """Bit for bit, but for its approximate division: 1 ULP in 1 element of 1,000."""
    out = tmp_path / "out.safetensors"
    run_tersor("unpack", flash(bits), "-o", out, check=0)
    found = safetensors.numpy.load_file(out)
    expected = safetensors.numpy.load_file(TINY / f"flashadamw{bits}-after-fp32.safetensors")
    total = wrong = 0
    for name, values in expected.items():
        a, b = (v.view(np.int32).astype(np.int64) for v in (found[name], values))
        distance = np.abs(a - b)
        assert distance.max(initial=0) <= 1, name
        total, wrong = total + distance.size, wrong + int((distance != 0).sum())
    assert total == 84288 and wrong <= total / 1000, wrong


@pytest.mark.parametrize("bits", [24, 32])
def test_flashoptim_unpacks_as_the_oracle_says(tmp_path, bits):
    out = tmp_path / "out.safetensors"
    run_tersor("unpack", flash(bits), "-o", out, check=0)
    expected = decode_flash(flash(bits), bits)
    found = arrays_in(out)
    check_f32(found, expected)
    rest = {n for n in found if n not in expected and not n.startswith("tersor::")}
    assert rest == {f"{n}.step" for n in expected if not n.endswith(("exp_avg", "exp_avg_sq"))}


@pytest.mark.parametrize("bits", [24, 32])
def test_flashoptim_in_every_command(tmp_path, bits):
    report = json.loads(run_tersor("inspect", "--json", flash(bits), check=0).stdout)
    assert report["totals"]["parameters"] == 84288
    assert {t["kind"] for t in report["tensors"]} >= {"weight", "momentum", "variance"}
    run_tersor("verify", flash(bits), check=0)
    other = TINY / f"flashadamw{bits}-after-fp32.safetensors"
    run_tersor("diff", flash(bits), other, "--max-error", "ulp=1", check=0)
    run_tersor("diff", flash(bits), flash(56 - bits), check=1)


@pytest.mark.parametrize("bits", [24, 32])
def test_flashoptim_packs_to_ours(tmp_path, bits):
    """Repacked with the same codecs: weights stay but for a few next to a power of two."""
    packed, out = tmp_path / "p.safetensors", tmp_path / "out.safetensors"
    run_tersor("pack", flash(bits), "-o", packed, "--weights", f"bf16+ulp{bits - 16}", "--compat",
               "flashoptim", check=0)
    run_tersor("verify", packed, check=0)
    run_tersor("unpack", packed, "-o", out, "--to", "safetensors", check=0)
    expected = decode_flash(flash(bits), bits)
    found, changed = arrays_in(out), 0
    for name, (shape, values) in expected.items():
        got = np.frombuffer(found[name][2], np.float32)
        assert found[name][:2] == ("F32", list(shape))
        if name.endswith(("exp_avg", "exp_avg_sq")):
            assert np.sum((got.astype(float) - values)**2) <= 1e-3 * np.sum(values.astype(float)**2)
        else:
            assert np.all(np.abs(got - values) <= 2.0**-15 * np.abs(values)), name
            changed += np.count_nonzero(got.view(np.int32) != values.view(np.int32))
    assert changed <= 84288 / 500, changed


def test_flashoptim_weights_that_stay_raw(tmp_path):
    """A codec that cannot hold their NaN leaves them raw, as they decode."""
    bits = np.arange(0x3f80, 0x3f80 + 300, dtype=np.uint16)
    bits[7] = 0x7fc0
    plain, torch = tmp_path / "in.safetensors", tmp_path / "in.pt"
    packed, unpacked, decoded = (tmp_path / f"{n}.safetensors" for n in ("p", "u", "d"))
    safetensors.numpy.save_file({"a.weight": bits.view(BF16),
                                 "a.weight.error_bits": np.ones(300, np.int8)}, plain)
    run_tersor("convert", plain, "-o", torch, check=0)
    run_tersor("unpack", torch, "-o", decoded, "--to", "safetensors", check=0)
    done = run_tersor("pack", torch, "-o", packed, check=0)
    assert "raw" in done.stdout
    run_tersor("unpack", packed, "-o", unpacked, "--to", "safetensors", check=0)
    assert arrays_in(unpacked)["a.weight"] == arrays_in(decoded)["a.weight"]
    assert arrays_in(decoded)["a.weight"][:2] == ("F32", [300])


def test_flashoptim_counts_as_a_lossy_generation(tmp_path):
    packed = tmp_path / "p.safetensors"
    done = run_tersor("pack", flash(24), "-o", packed, check=0)
    report = json.loads(run_tersor("inspect", "--json", packed, check=0).stdout)
    assert report["generation"] == 2 and "generation" in done.stderr


@pytest.mark.parametrize("bits", [24, 32])
def test_flashoptim_containers_change_without_loss(tmp_path, bits):
    """convert changes the container only: through safetensors and back nothing differs."""
    for route in ([("convert", "pt")], [("convert", "safetensors"), ("convert", "pt")]):
        at = flash(bits)
        for i, (command, kind) in enumerate(route):
            out = tmp_path / f"{len(route)}-{i}.{kind}"
            run_tersor(command, at, "-o", out, check=0)
            at = out
        torchfile.same(torchfile.load(flash(bits)), torchfile.load(at))


def test_flashoptim_scales_that_are_called_bf16(tmp_path):
    """FlashOptim 0.1.4 views the FP16 scales of BF16 weights as BF16, lest torch rounds them."""
    saved = torchfile.load(flash(24))
    for _, state in saved["optimizer"]["state"].items():
        state.pairs = [(k, bf16(flash_scales(t)) if k.endswith("::scales") else t)
                       for k, t in state.pairs]
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(saved))
    run_tersor("unpack", path, "-o", out, check=0)
    check_f32(arrays_in(out), decode_flash(flash(24), 24))


def test_flashoptim_without_compression_keeps_bf16_states(tmp_path):
    """compress_state_dict=False: momentum and variance are plain BF16 tensors."""
    saved = torchfile.load(flash(24))
    expected = decode_flash(flash(24), 24)
    names = iter(n for n in expected if not n.endswith(("exp_avg", "exp_avg_sq")))
    for _, state in saved["optimizer"]["state"].items():
        name = next(names)
        shape = expected[name][0]
        states = {k: bf16(expected[f"{name}.{k}"][1].astype(BF16).view(np.uint16).reshape(shape))
                  for k in ("exp_avg", "exp_avg_sq")}
        state.pairs = [(k, t) for k, t in state.pairs if "::" not in k] + list(states.items())
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(saved))
    run_tersor("unpack", path, "-o", out, check=0)
    found = arrays_in(out)
    for name, (shape, values) in expected.items():
        if name.endswith(("exp_avg", "exp_avg_sq")):
            narrow = values.astype(BF16)
            assert found[name] in (("BF16", list(shape), narrow.tobytes()),
                                   ("F32", list(shape), narrow.astype(np.float32).tobytes())), name
        else:
            assert found[name] == ("F32", list(shape), values.tobytes()), name


@pytest.mark.parametrize("value", [0.5, 128.0, -128.5, float("nan"), float("inf"), 1e30])
def test_flashoptim_corrections_that_are_no_int8(tmp_path, value):
    saved = torchfile.load(flash(24))
    error = saved["optimizer"]["state"][3]["error_bits"]
    content = bytearray(error.content)
    content[100:102] = np.array(value, BF16).tobytes()
    error.content = error.storage.data = bytes(content)
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(saved))
    done = run_tersor("unpack", path, "-o", out, check=3)
    assert "error_bits" in one_line_error(done) and not out.exists()


@pytest.mark.parametrize("change", ["no scales", "few scales", "codes of int16", "shape",
                                    "scales of f64", "error bits of another shape"])
def test_flashoptim_parts_that_do_not_fit(tmp_path, change):
    saved = torchfile.load(flash(24))
    state = saved["optimizer"]["state"][0]
    pairs = dict(state.pairs)
    scales = pairs["exp_avg::scales"]
    if change == "no scales":
        del pairs["exp_avg::scales"]
    elif change == "few scales":
        pairs["exp_avg::scales"] = tensor(np.ones(383, np.float16))
    elif change == "codes of int16":
        pairs["exp_avg::quantized"] = tensor(np.ones((256, 48), np.int16))
    elif change == "shape":
        pairs["exp_avg::quantized"] = tensor(np.ones((48, 255), np.int8))
    elif change == "scales of f64":
        pairs["exp_avg::scales"] = tensor(np.ones(scales.shape, np.float64))
    else:
        pairs["error_bits"] = bf16(np.zeros((48, 256), np.uint16))
    state.pairs = list(pairs.items())
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(saved))
    done = run_tersor("unpack", path, "-o", out, check=3)
    one_line_error(done)
    assert not out.exists()


@pytest.fixture(scope="module")
def both_written(tmp_path_factory):
    """FlashOptim state dicts made of the real checkpoint, by way of packed files."""
    folder, out = tmp_path_factory.mktemp("written"), {}
    for bits in (24, 32):
        out[bits] = bits, folder / f"packed{bits}.safetensors", folder / f"flash{bits}.pt"
        run_tersor("pack", TINY / "checkpoint.pt", "-o", out[bits][1], "--weights",
                   f"bf16+ulp{bits - 16}", "--compat", "flashoptim", check=0)
        run_tersor("convert", "--to", "flashoptim", out[bits][1], "-o", out[bits][2], check=0)
    return out


@pytest.fixture(params=[24, 32])
def written(request, both_written):
    return both_written[request.param]


def test_done_written_flashoptim_state_dict_has_the_layout_of_its_own(written):
    """Keys, dtypes and shapes as FlashOptim wrote them for the same model; groups as they were."""
    bits, _, out = written
    mine, theirs = torchfile.load(out), torchfile.load(flash(bits))
    original = torchfile.load(TINY / "checkpoint.pt")
    assert {"model", "optimizer"} <= set(mine.keys())
    weights = {n: t for n, t in mine["model"].items() if t.shape}
    assert set(weights) == set(theirs["model"].keys())
    for name, t in theirs["model"].items():
        assert (weights[name].st_dtype, tuple(weights[name].shape)) == ("BF16", tuple(t.shape))
    # The state dict of a model is loaded as it is: what the model has besides stays in it.
    assert set(mine["model"].keys()) == set(original["model"].keys())
    assert [g["params"] for g in mine["optimizer"]["param_groups"]] == [
        g["params"] for g in theirs["optimizer"]["param_groups"]]
    state = mine["optimizer"]["state"]
    assert state.keys() == theirs["optimizer"]["state"].keys()
    for i, want in theirs["optimizer"]["state"].items():
        assert set(state[i].keys()) == set(want.keys())
        for key, t in want.items():
            got = state[i][key]
            kinds = ("F16", "BF16") if key.endswith("::scales") else (t.st_dtype,)
            assert got.st_dtype in kinds and tuple(got.shape) == tuple(t.shape), (i, key)
    for group, before in zip(mine["optimizer"]["param_groups"],
                             original["optimizer"]["param_groups"], strict=True):
        for key in ("lr", "betas", "eps", "weight_decay"):
            torchfile.same(before[key], group[key])
        # Without it FlashOptim does not load the corrections.
        assert group["master_bytewidth"] == bits // 8 and group["quantize"] is True
        assert type(group["master_bytewidth"]) is int


def test_done_written_flashoptim_state_dict_holds_the_packed_values(written, tmp_path):
    bits, packed, out = written
    run_tersor("unpack", packed, "-o", tmp_path / "a.safetensors", "--to", "safetensors", check=0)
    run_tersor("unpack", out, "-o", tmp_path / "b.safetensors", "--to", "safetensors", check=0)
    a, b = (arrays_in(tmp_path / f"{x}.safetensors") for x in "ab")
    states = {n for n in a if not n.startswith("tersor::")}
    assert {n: a[n] for n in states} == {n: b[n] for n in states & set(b)} | {
        n: a[n] for n in states - set(b)}
    assert len(states & set(b)) >= 87
    planes, state = arrays_in(packed), torchfile.load(out)
    ids = [i for g in state["optimizer"]["param_groups"] for i in g["params"]]
    order = [n for n, _ in torchfile.load(flash(bits))["model"].items()]
    for name, i in zip(order, ids, strict=True):
        got = state["optimizer"]["state"][i]
        assert content_of(state["model"][name]) == planes[name][2]
        for key in ("exp_avg", "exp_avg_sq"):
            for part in ("quantized", "scales"):
                assert content_of(got[f"{key}::{part}"]) == planes[f"{name}.{key}::{part}"][2]
        bits_of = content_of(got["error_bits"])
        if bits == 24:
            want = np.frombuffer(planes[f"{name}::error_bits"][2], np.int8)
            assert bits_of == want.astype(np.float32).astype(BF16).tobytes()
        else:
            assert bits_of == planes[f"{name}::error_bits"][2]


LOAD = """
import json, sys, torch
out = {}
for path in sys.argv[2:]:
    saved = torch.load(path)
    params = {k: torch.nn.Parameter(v.clone()) for k, v in saved["model"].items()
              if v.dtype == torch.bfloat16}
    names = iter(sys.argv[1].split(","))
    groups = [{"params": [params[next(names)] for _ in g["params"]]}
              for g in saved["optimizer"]["param_groups"]]
    optimizer = torch.optim.AdamW(groups, lr=1.0)
    optimizer.load_state_dict(saved["optimizer"])   # casts floats to the dtype of their weight
    result = out[path] = {}
    for name, p in params.items():
        s = optimizer.state[p]
        e = s["error_bits"]
        result[name] = [str(e.dtype), list(e.shape), e.view(torch.int16).numpy().tobytes().hex(),
                        s["exp_avg::quantized"].float().abs().max().item(), float(s["step"])]
print(json.dumps(out))
"""


def test_done_torch_loads_the_written_flashoptim_state_dicts(both_written):
    """Optimizer.load_state_dict, on which FlashOptim's rests, takes them and keeps every bit."""
    order = [n for n, _ in torchfile.load(flash(24))["model"].items()]
    found = run_torch(LOAD, ",".join(order), *(out for _, _, out in both_written.values()))
    for bits, packed, out in both_written.values():
        planes = arrays_in(packed)
        for name, (dtype, shape, content, code, step) in found[str(out)].items():
            assert dtype == "torch.bfloat16" and shape == planes[name][1]
            assert 0 < code <= 127 and step == 400
            correction = planes[f"{name}::error_bits"][2]
            if bits == 24:
                correction = np.frombuffer(correction, np.int8).astype(BF16).tobytes()
            assert bytes.fromhex(content) == correction


def test_done_written_flashoptim_scales_survive_loading(both_written):
    """What FlashOptim 0.1.4 makes of the scales of BF16 weights.

    torch casts every floating-point state to the dtype of its weight, so FP16 scales arrive rounded
    to BF16; FlashOptim then takes the bits for FP16.  Written as FP16 they would come out wrong by
    factors up to 10^6, and no error would say so; written as BF16 with the bits of FP16 they stay.
    """
    for bits, packed, out in both_written.values():
        planes, saved = arrays_in(packed), torchfile.load(out)
        order = [n for n, _ in torchfile.load(flash(bits))["model"].items()]
        ids = [i for g in saved["optimizer"]["param_groups"] for i in g["params"]]
        for name, i in zip(order, ids, strict=True):
            for key in ("exp_avg", "exp_avg_sq"):
                t = saved["optimizer"]["state"][i][f"{key}::scales"]
                kept = content_of(t)
                if t.st_dtype != "BF16":
                    kept = values_of(t, np.float16).astype(BF16).tobytes()
                assert kept == planes[f"{name}.{key}::scales"][2], (name, key, t.st_dtype)


def test_flashoptim_has_no_other_codecs(tmp_path):
    """Packed with what FlashOptim cannot hold: refused by name, nothing written."""
    for codecs in ([], ["--weights", "bf16+exact16", "--compat", "flashoptim"],
                   ["--weights", "fp16+ulp8", "--scale", "f16"],
                   ["--momentum", "linear8", "--compat", "flashoptim"],
                   ["--group", "64", "--compat", "flashoptim"], ["--scale", "f32"],
                   [*RAW_CODECS]):
        packed, out = tmp_path / "p.safetensors", tmp_path / "x.pt"
        run_tersor("pack", TINY / "checkpoint.pt", "-o", packed, "--force", *codecs, check=0)
        done = run_tersor("convert", "--to", "flashoptim", packed, "-o", out)
        assert done.returncode in (2, 3), codecs
        one_line_error(done)
        assert not out.exists()


def test_flashoptim_is_made_of_packed_files_only(tmp_path):
    out = tmp_path / "x.pt"
    for source in (TINY / "checkpoint.pt", TINY / "checkpoint.safetensors"):
        done = run_tersor("convert", "--to", "flashoptim", source, "-o", out)
        assert done.returncode in (2, 3) and not out.exists()
        one_line_error(done)


def test_flashoptim_there_and_back_again(written, tmp_path):
    """What we write, we read; packed again, weights stay but for a few next to a power of two."""
    bits, packed, out = written
    again = tmp_path / "again.safetensors"
    run_tersor("pack", out, "-o", again, "--weights", f"bf16+ulp{bits - 16}", "--compat",
               "flashoptim", check=0)
    a, b = arrays_in(packed), arrays_in(again)
    changed = 0
    for name, (dtype, shape, content) in a.items():
        if "::" not in name and dtype == "BF16":
            assert b[name][:2] == (dtype, shape), name
            changed += np.count_nonzero(np.frombuffer(content, np.uint16)
                                        != np.frombuffer(b[name][2], np.uint16))
    assert changed <= 84288 / 250, changed


# ---- bitsandbytes ----

def dynamic_map(signed):
    """A table of 256 values like bitsandbytes' dynamic map: uneven, sorted, from -1 (or 0) to 1."""
    rng = np.random.default_rng(11)
    values = np.sort(rng.random(254).astype(np.float32)**3)
    values = np.concatenate([[np.float32(0)], values, [np.float32(1)]]).astype(np.float32)
    if signed:
        values = np.concatenate([-values[:0:-2], values[::2]]).astype(np.float32)
    return np.resize(values, 256).astype(np.float32)


def bitsandbytes(n=5000, block=256, nest=False, two=True, shape=None):
    """A weight with its 8-bit states, and what they decode to."""
    rng = np.random.default_rng(n + block)
    shape = shape or (n,)
    blocks = -(-n // block)
    state, expected = {"step": 9}, {}
    for i in (1, 2)[:1 + two]:
        codes = rng.integers(0, 256, n).astype(np.uint8)
        table = dynamic_map(i == 1)
        absmax = rng.random(blocks).astype(np.float32) * np.float32(1e-3)
        state |= {f"state{i}": tensor(codes.reshape(shape)), f"qmap{i}": tensor(table),
                  f"absmax{i}": tensor(absmax)}
        expected[f"state{i}"] = table[codes] * np.repeat(absmax, block)[:n]
    if nest:
        state = {"step": 9, "__bnb_optimizer_quant_state__": {
            k: v for k, v in state.items() if k != "step"}}
    weight = tensor(rng.standard_normal(shape).astype(np.float32))
    value = {"model": ordered({"w": weight}), "optimizer": {
        "state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0]}]}}
    return value, shape, expected


def states_of(found, weight="w"):
    """The two states of a weight, whatever they are called: (dtype, shape, bytes) in order."""
    names = sorted(n for n, v in found.items() if n.startswith(f"{weight}.") and v[1] != []
                   and not re.search("qmap|absmax", n))
    return names, [found[n] for n in names]


@pytest.mark.parametrize("n, block, nest, shape", [
    (5000, 256, False, None), (5000, 2048, False, None), (4096, 256, True, (64, 64)),
    (8192, 256, False, (2, 64, 64)), (4097, 2048, True, None), (6000, 4096, False, (60, 100)),
], ids=str)
def test_bitsandbytes_states_are_decoded(tmp_path, n, block, nest, shape):
    value, shape, expected = bitsandbytes(n, block, nest, shape=shape)
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(value))
    run_tersor("unpack", path, "-o", out, check=0)
    names, states = states_of(arrays_in(out))
    assert len(states) == 2, names
    for (dtype, got, content), key in zip(states, ("state1", "state2")):
        assert (dtype, tuple(got)) == ("F32", shape), names
        assert content == expected[key].tobytes(), key
    assert not any("qmap" in n or "absmax" in n for n in arrays_in(out))


@pytest.mark.parametrize("nest", [False, True])
def test_bitsandbytes_states_are_packed_as_momentum_and_variance(tmp_path, nest):
    value, shape, expected = bitsandbytes(nest=nest)
    path, packed = tmp_path / "in.pt", tmp_path / "p.safetensors"
    expected["state2"] = np.abs(expected["state2"])
    path.write_bytes(pt(value))
    report = json.loads(run_tersor("pack", "--json", path, "-o", packed, check=0).stdout)
    kinds = {t["kind"]: t["name"] for t in report["tensors"] if t["kind"] != "other"}
    assert set(kinds) == {"weight", "momentum", "variance"}, report["tensors"]
    out = tmp_path / "out.safetensors"
    run_tersor("unpack", packed, "-o", out, "--to", "safetensors", check=0)
    found = arrays_in(out)
    for kind, key in (("momentum", "state1"), ("variance", "state2")):
        got = np.frombuffer(found[kinds[kind]][2], np.float32).astype(float)
        assert np.sum((got - expected[key])**2) <= 1e-3 * np.sum(expected[key].astype(float)**2)


def test_bitsandbytes_sizes_are_compared_with_what_the_file_has(tmp_path):
    path, packed = tmp_path / "in.pt", tmp_path / "p.safetensors"
    path.write_bytes(pt(bitsandbytes(n=500_000)[0]))
    done = run_tersor("pack", path, "-o", packed, check=0)
    share = float(re.search(r"([0-9.]+)% of the input's data", done.stdout)[1])
    assert abs(share - 100 * packed.stat().st_size / path.stat().st_size) < 0.5


def test_bitsandbytes_with_one_state(tmp_path):
    value, shape, expected = bitsandbytes(two=False)
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(value))
    run_tersor("unpack", path, "-o", out, check=0)
    names, states = states_of(arrays_in(out))
    assert states == [("F32", list(shape), expected["state1"].tobytes())], names


def test_bitsandbytes_small_tensors_stay_fp32(tmp_path):
    """Below 4096 elements state1 and state2 are FP32, without a table."""
    values = np.arange(100, dtype=np.float32)
    value = {"model": ordered({"w": tensor(values)}), "optimizer": {
        "state": {0: {"step": 1, "state1": tensor(values / 7), "state2": tensor(values / 9)}},
        "param_groups": [{"params": [0]}]}}
    path, packed = tmp_path / "in.pt", tmp_path / "p.safetensors"
    path.write_bytes(pt(value))
    found = converted(path)
    assert states_of(found)[1] == [as_array(tensor(values / 7)), as_array(tensor(values / 9))]
    report = json.loads(run_tersor("pack", "--json", path, "-o", packed, check=0).stdout)
    assert {t["kind"] for t in report["tensors"]} >= {"weight", "momentum", "variance"}


def test_bitsandbytes_containers_change_without_loss(tmp_path):
    for nest in (False, True):
        value, _, _ = bitsandbytes(nest=nest)
        path = tmp_path / "in.pt"
        path.write_bytes(pt(value))
        run_tersor("convert", path, "-o", tmp_path / "a.safetensors", "--force", check=0)
        run_tersor("convert", tmp_path / "a.safetensors", "-o", tmp_path / "b.pt", "--force",
                   check=0)
        torchfile.same(value, torchfile.load(tmp_path / "b.pt"))


REAL_BNB = DATA / "frameworks" / "states" / "bitsandbytes"


def decoded_by_numpy(path):
    """{(parameter, state): FP32 values} of a real checkpoint, whose parameters share their tables."""
    expected = {}
    for number, state in dict(torchfile.load(path).items())["optimizer"]["state"].items():
        inner = dict(dict(state.items())["__bnb_optimizer_quant_state__"].items())
        for key in ("state1", "state2"):
            if key not in inner:
                continue
            values = values_of(inner[key], np.uint8 if f"qmap{key[-1]}" in inner else np.float32)
            if f"qmap{key[-1]}" in inner:
                table = values_of(inner[f"qmap{key[-1]}"], np.float32)
                scale = values_of(inner[f"absmax{key[-1]}"], np.float32)
                values = (table[values].reshape(scale.size, -1) * scale.reshape(-1, 1)).reshape(values.shape)
            expected[number, key] = values
    return expected


@pytest.mark.parametrize("name", ["adamw8bit", "ademamix8bit", "rmsprop8bit"])
def test_bitsandbytes_as_it_really_saves(tmp_path, name):
    """Several 8-bit states with one table; small ones in FP32; two momenta in one tensor."""
    path, packed = REAL_BNB / f"{name}.pt", tmp_path / "p.safetensors"
    expected = decoded_by_numpy(path)
    assert sum(v.size >= 4096 for v in expected.values()) >= 2
    done = run_tersor("unpack", path, "-o", tmp_path / "fp32.safetensors", check=0)
    found = arrays_in(tmp_path / "fp32.safetensors")
    contents = sorted(v.tobytes() for v in expected.values())
    assert sorted(c for n, (_, _, c) in found.items() if re.search("state[12]$", n)) == contents
    done = run_tersor("pack", path, "-o", packed, check=0)
    assert "compressed by another tool" in done.stderr
    run_tersor("verify", packed, "--against", path, check=0)
    run_tersor("unpack", packed, "-o", tmp_path / "back.pt", check=0)
    state = dict(torchfile.load(tmp_path / "back.pt").items())["optimizer"]["state"]
    for (number, key), values in expected.items():
        inner = dict(dict(state[number].items())["__bnb_optimizer_quant_state__"].items())
        assert not [k for k in inner if "qmap" in k or "absmax" in k]
        got = values_of(inner[key], np.float32)
        assert got.shape == values.shape and np.sum((got - values)**2.0) <= 1e-3 * np.sum(values**2.0)
    run_tersor("convert", path, "-o", tmp_path / "copy.pt", check=0)
    torchfile.same(torchfile.load(path), torchfile.load(tmp_path / "copy.pt"))


def test_one_table_of_bitsandbytes_stays_one(tmp_path):
    path = REAL_BNB / "adamw8bit.pt"
    run_tersor("convert", path, "-o", tmp_path / "copy.pt", check=0)
    state = dict(torchfile.load(tmp_path / "copy.pt").items())["optimizer"]["state"]
    inner = [dict(dict(s.items())["__bnb_optimizer_quant_state__"].items()) for _, s in state.items()]
    tables = [s["qmap1"] for s in inner if "qmap1" in s]
    assert len(tables) == 2 and tables[0].storage is tables[1].storage


@pytest.mark.parametrize("name, kinds", [
    ("ademamix8bit", {"state1": "momentum", "state2": "variance"}), ("rmsprop8bit", {"state1": "other"}),
    ("adamw8bit", {"state1": "momentum", "state2": "variance"})])
def test_what_bitsandbytes_divides_by_is_no_momentum(name, kinds):
    """state1 alone, with an eps, is the root's argument in RMSprop and Adagrad: it stays FP32."""
    report = json.loads(run_tersor("inspect", "--json", REAL_BNB / f"{name}.pt", check=0).stdout)
    assert {(t["name"].rsplit(".", 1)[-1], t["kind"]) for t in report["tensors"]
            if re.search("state[12]$", t["name"])} == set(kinds.items())


def test_a_weight_is_no_table(tmp_path):
    """A parameter that is also called qmap1 stays in the output."""
    value, _, _ = bitsandbytes(4096, 256)
    table = value["optimizer"]["state"][0]["qmap1"]
    value["model"] = ordered({"w": dict(value["model"].items())["w"], "t": table})
    (tmp_path / "in.pt").write_bytes(pt(value))
    done = run_tersor("unpack", tmp_path / "in.pt", "-o", tmp_path / "out.safetensors")
    assert done.returncode == 3 or "t" in arrays_in(tmp_path / "out.safetensors")


def test_stacked_states_of_bitsandbytes_have_blocks_of_their_own(tmp_path):
    """The blocks of AdEMAMix's second momentum begin where that begins, which no group does."""
    value, _, _ = bitsandbytes(8000, 256, shape=(2, 4000))
    value["optimizer"]["state"][0]["absmax1"] = tensor(np.ones((2, 16), np.float32))
    (tmp_path / "in.pt").write_bytes(pt(value))
    done = run_tersor("unpack", tmp_path / "in.pt", "-o", tmp_path / "out.safetensors", check=3)
    assert "scales" in one_line_error(done)
    run_tersor("convert", tmp_path / "in.pt", "-o", tmp_path / "copy.pt", check=0)


@pytest.mark.parametrize("change", ["no qmap", "no absmax", "qmap of 255", "qmap of f16",
                                    "absmax of 21", "absmax of 0", "absmax of f64"])
def test_bitsandbytes_parts_that_do_not_fit(tmp_path, change):
    value, _, _ = bitsandbytes(5000, 256)
    state = value["optimizer"]["state"][0]
    if change.startswith("no"):
        del state[change[3:] + "1"]
    elif change == "qmap of 255":
        state["qmap1"] = tensor(np.zeros(255, np.float32))
    elif change == "qmap of f16":
        state["qmap1"] = tensor(np.zeros(256, np.float16))
    elif change == "absmax of f64":
        state["absmax1"] = tensor(np.zeros(20, np.float64))
    else:
        state["absmax1"] = tensor(np.zeros(int(change.split()[-1]), np.float32))
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(value))
    done = run_tersor("unpack", path, "-o", out, check=3)
    one_line_error(done)
    assert not out.exists()


# ---- TransformerEngine: the low 16 bits of FP32 weights ----

def remainders():
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 4000, dtype=np.uint32)
    bits[:8] = [0, 0x80000000, 0x3f800000, 0x3f808000, 0x3f807fff, 0x7f7f7fff, 0xbf7fffff, 1]
    bits[bits >> 23 & 0xff == 0xff] &= 0x7f7fffff
    # As the kernel does it: the BF16 weight is rounded, and goes back by one where the low half,
    # taken as a signed integer, is negative.
    low = (bits & 0xffff).astype(np.uint16).view(np.int16)
    narrow = ((bits.astype(np.int64) - low) >> 16).astype(np.uint16)
    return bits.reshape(50, 80), narrow.reshape(50, 80), low.reshape(50, 80)


def remainder_file(narrow, low, key="master_param"):
    state = {"exp_avg": tensor(np.ones(low.shape, np.float32)),
             "exp_avg_sq": tensor(np.ones(low.shape, np.float32)), key: tensor(low)}
    return {"model": ordered({"w": bf16(narrow)}), "optimizer": {
        "state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0], "step": 5}]}}


def test_transformer_engine_remainders_make_fp32_weights(tmp_path):
    bits, narrow, low = remainders()
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    path.write_bytes(pt(remainder_file(narrow, low)))
    run_tersor("unpack", path, "-o", out, check=0)
    found = arrays_in(out)
    assert found["w"] == ("F32", [50, 80], bits.tobytes())
    assert "w.exp_avg" in found and "w.master_param" not in found


def test_transformer_engine_remainders_pack_exactly(tmp_path):
    bits, narrow, low = remainders()
    path, packed, out = (tmp_path / n for n in ("in.pt", "p.safetensors", "out.safetensors"))
    path.write_bytes(pt(remainder_file(narrow, low)))
    run_tersor("pack", path, "-o", packed, "--weights", "bf16+exact16", check=0)
    run_tersor("unpack", packed, "-o", out, "--to", "safetensors", check=0)
    assert arrays_in(out)["w"] == ("F32", [50, 80], bits.tobytes())


def test_transformer_engine_remainders_are_never_taken_for_weights(tmp_path):
    """INT16 master_param beside FP32 weights, of another shape, or of I32: not joined silently."""
    bits, narrow, low = remainders()
    path, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    for value in (remainder_file(narrow, low.reshape(80, 50)),
                  remainder_file(narrow, low.astype(np.int32))):
        path.write_bytes(pt(value))
        done = run_tersor("unpack", path, "-o", out, "--force")
        if done.returncode == 0:
            assert arrays_in(out)["w"][0] == "BF16"
        else:
            assert done.returncode == 3


def test_fp32_master_weights_are_kept(tmp_path):
    """A full FP32 master_param is read as what it is, beside the BF16 weight of the model."""
    bits, narrow, _ = remainders()
    master = bits.view(np.float32)
    path = tmp_path / "in.pt"
    path.write_bytes(pt(remainder_file(narrow, master)))
    found = converted(path)
    assert found["w"] == as_array(bf16(narrow))
    assert found["w.master_param"] == ("F32", [50, 80], bits.tobytes())


# ---- BF16 states ----

def test_bf16_states_are_read(tmp_path):
    rng = np.random.default_rng(6)
    bits = rng.integers(0, 0x7f00, (10, 20)).astype(np.uint16)
    value = {"model": ordered({"w": bf16(bits)}), "optimizer": {"state": {0: {
        "step": tensor(np.float32(3)), "exp_avg": bf16(bits // 2), "exp_avg_sq": bf16(bits // 3)}},
        "param_groups": [{"params": [0]}]}}
    path, packed, out = (tmp_path / n for n in ("in.pt", "p.safetensors", "out.safetensors"))
    path.write_bytes(pt(value))
    found = converted(path)
    assert found["w"] == as_array(bf16(bits))
    assert found["w.exp_avg"] == as_array(bf16(bits // 2))
    assert found["w.exp_avg_sq"] == as_array(bf16(bits // 3))
    run_tersor("pack", path, "-o", packed, "--momentum=bf16", "--variance=bf16", check=0)
    run_tersor("unpack", packed, "-o", out, "--to", "safetensors", check=0)
    assert {n: arrays_in(out)[n] for n in found if not n.startswith("tersor::")} == {
        n: v for n, v in found.items() if not n.startswith("tersor::")}
    run_tersor("unpack", packed, "-o", tmp_path / "back.pt", check=0)
    torchfile.same(value, torchfile.load(tmp_path / "back.pt"))


def test_unpack_of_what_is_not_compressed(tmp_path):
    """Nothing packed, nothing compressed: told to use convert, nothing written."""
    out = tmp_path / "out.safetensors"
    for source in (TINY / "checkpoint.pt", TINY / "checkpoint.safetensors", FILES / "sgd.pt"):
        done = run_tersor("unpack", source, "-o", out, check=3)
        assert "packed" in one_line_error(done) and not out.exists()
    shutil.rmtree(out, ignore_errors=True)


def test_a_pt_of_a_plain_model_and_an_optimizer_has_both(tmp_path):
    """The model is a file of tensors alone; what is written is what a program that saves both saves."""
    weights = {"a": np.ones(4, np.float32), "b": np.ones(6, np.float32)}
    (tmp_path / "in.pt").write_bytes(pt({name: tensor(w) for name, w in weights.items()}))
    run_tersor("convert", tmp_path / "in.pt", "-o", tmp_path / "in.npz", check=0)
    state = {i: {"step": 1, "exp_avg": tensor(w), "exp_avg_sq": tensor(w)}
             for i, w in enumerate(weights.values())}
    (tmp_path / "optimizer.pt").write_bytes(pt({"state": state, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}))
    run_tersor("convert", tmp_path / "in.npz", tmp_path / "optimizer.pt", "-o", tmp_path / "both.pt", check=0)
    both = dict(torchfile.load(tmp_path / "both.pt").items())
    assert set(both) == {"model", "optimizer"}
    assert set(dict(both["optimizer"].items())) == {"state", "param_groups"}
