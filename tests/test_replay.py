"""tersor replay end to end: against what PyTorch and FlashOptim made of the same gradients, against
itself in parts, and on inputs that are not in order."""
import filecmp
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import time

import ml_dtypes
import numpy as np
import pytest
import replay_model as model
import packed_text
import torchfile
from conftest import BINARY, DATA, ROOT, one_line_error, run_tersor, safetensors_bytes
from safetensors.numpy import load_file, save_file
from sessions import check_sessions

GPT = DATA / "tiny-gpt"
RECORDING = GPT / "recording"
CHECKPOINT = GPT / "checkpoint.safetensors"
TORCH = GPT / "checkpoint.pt"
BF16 = ml_dtypes.bfloat16
MANIFEST = json.loads((RECORDING / "manifest.json").read_text())
PARAMS = [name for group in MANIFEST["param_groups"] for name in group["params"]]


def replay(*args, check=0, **kwargs):
    return run_tersor("replay", *args, check=check, **kwargs)


def arrays(path):
    """Every array of a safetensors file: name -> (dtype, bytes as uint8)."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    data = np.frombuffer(raw, np.uint8, offset=8 + size)
    return {name: (v["dtype"], data[slice(*v["data_offsets"])])
            for name, v in header.items() if name != "__metadata__"}


def packed_header(path):
    return packed_text.read(path)


def values(tensor):
    """The elements of a tensor of a .pt."""
    return np.frombuffer(torchfile.content_of(tensor), np.float32)


def bits(x):
    return x.view(np.uint32)


# ---- Against PyTorch ----

def compare(got, expected, suffix, least, worst):
    """At least @least of all elements bit for bit, none off by more than @worst of its tensor."""
    same = total = 0
    for name in PARAMS:
        x, y = got[name + suffix], expected[name + suffix]
        assert x.dtype == np.float32 and x.shape == y.shape
        same += np.count_nonzero(bits(x) == bits(y))
        total += x.size
        off = np.abs(x.astype(np.float64) - y).max()
        assert off <= worst * np.abs(y).max(), (name + suffix, off / np.abs(y).max())
    assert total == 84288 and same >= least * total, f"{suffix or 'weight'}: {same} of {total}"
    return same


@pytest.mark.parametrize("source", [CHECKPOINT, TORCH, GPT / "dcp"])
def test_adamw_from_the_checkpoint(source, tmp_path):
    """Both moments bit for bit; decay and no decay are two groups of the recording."""
    out = tmp_path / "out.safetensors"
    replay(source, RECORDING, "-o", out)
    got, expected = load_file(out), load_file(GPT / "expected-adamw-fp32.safetensors")
    if source == GPT / "dcp":
        got = {name.removeprefix("model."): x for name, x in got.items()}
    compare(got, expected, ".exp_avg", 1, 0)
    compare(got, expected, ".exp_avg_sq", 1, 0)
    assert compare(got, expected, "", 0.999, 1e-6) == 84270


@pytest.mark.parametrize("name, options", [
    ("adam", ["--optimizer", "adam", "--lr", "1e-3", "--betas", "0.9,0.999",
              "--weight-decay", "0.01"]),
    ("sgd", ["--optimizer", "sgd", "--lr", "0.1", "--hyper", "momentum=0.9",
             "--weight-decay", "1e-4"]),
    ("sgd-nesterov", ["--optimizer", "sgd", "--lr", "0.1", "--hyper", "momentum=0.9",
                      "--nesterov", "--weight-decay", "0"]),
    ("sgd-plain", ["--optimizer", "sgd", "--lr", "0.1", "--weight-decay", "0"]),
    ("lion", ["--optimizer", "lion", "--lr", "1e-4", "--betas", "0.9,0.99",
              "--weight-decay", "0.1"]),
])
def test_optimizers_from_zero_state(name, options, tmp_path):
    out = tmp_path / "out.safetensors"
    replay(TORCH, RECORDING, "--zero-state", *options, "-o", out)
    least = 0.998 if name == "adam" else 1      # docs/replay.md tells why
    compare(load_file(out), load_file(GPT / f"expected-{name}-fp32.safetensors"), "", least, 1e-6)


def test_sgd_starts_without_a_momentum(tmp_path):
    """Weights alone: the first buffer is the gradient, and the buffers are added."""
    out, weights = tmp_path / "out.safetensors", tmp_path / "weights.safetensors"
    save_file({k: v for k, v in load_file(CHECKPOINT).items() if k in PARAMS}, weights)
    sgd = ["--optimizer", "sgd", "--lr", "0.1", "--hyper", "momentum=0.9", "--weight-decay",
           "1e-4"]
    replay(weights, RECORDING, *sgd, "-o", out)
    got = load_file(out)
    compare(got, load_file(GPT / "expected-sgd-fp32.safetensors"), "", 1, 0)
    assert set(got) == set(PARAMS) | {f"{name}.momentum_buffer" for name in PARAMS}


# ---- Against FlashOptim ----

FLASH = {"24": ["--state", "flashoptim"],
         "32": ["--state", "flashoptim", "--weights", "bf16+ulp16"]}


def correction(dtype, raw):
    """FlashOptim's error_bits: BF16 whole numbers, or 16-bit integers that are called BF16."""
    narrow = raw.view(np.uint16)
    if dtype == "I8":
        return raw.view(np.int8).astype(int)
    return narrow.view(np.int16).astype(int) if dtype == "I16" else narrow


@pytest.mark.parametrize("width", FLASH)
def test_flashoptim_state(width, tmp_path):
    """From FP32, packed as FlashOptim does; codes, narrow weights and decoded weights."""
    out, theirs = tmp_path / "out.safetensors", tmp_path / "theirs.safetensors"
    replay(TORCH, RECORDING, *FLASH[width], "-o", out)
    run_tersor("convert", GPT / f"flashadamw{width}-after.pt", "-o", theirs, check=0)
    got, expected = arrays(out), arrays(theirs)
    for field, dtype in (("exp_avg", np.int8), ("exp_avg_sq", np.uint8)):
        same = near = total = 0
        for name in PARAMS:
            x = got[f"{name}.{field}::quantized"][1].view(dtype).astype(int)
            y = expected[f"{name}.{field}::quantized"][1].view(dtype).astype(int)
            same += np.count_nonzero(x == y)
            near += np.count_nonzero(np.abs(x - y) <= 1)
            total += x.size
        assert same >= 0.999 * total and near >= 0.9999 * total, (field, same, near, total)
    same = sum(np.count_nonzero(got[name][1].view(np.uint16) == expected[name][1].view(np.uint16))
               for name in PARAMS)
    assert same >= 0.999 * 84288
    # decoded: within one step of the correction, which is at most 2^(e-8) / N
    run_tersor("unpack", out, "-o", theirs, "--force", check=0)
    decoded, wanted = load_file(theirs), load_file(GPT / f"flashadamw{width}-after-fp32.safetensors")
    near = 0
    for name in PARAMS:
        _, e = np.frexp(np.abs(wanted[name]).astype(np.float64))
        step = np.ldexp(1.0, e - 1 - 8) / (127 if width == "24" else 32767)
        near += np.count_nonzero(np.abs(decoded[name] - wanted[name].astype(np.float64)) <=
                                 step * 1.01)
    # with 16 bits a step is about an ULP of FP32
    assert near >= (0.999 if width == "24" else 0.98) * 84288, near


def step_of(x):
    """The step of an 8-bit correction at these weights."""
    return np.ldexp(1.0, np.frexp(np.abs(x))[1] - 1 - 8) / 127 * 1.01


def joined(narrow, correction):
    """Narrow weights in BF16 and their 8-bit corrections, decoded."""
    x = narrow.view(BF16).astype(np.float64)
    return x + correction.astype(float) / 127 * np.ldexp(1.0, np.frexp(np.abs(x))[1] - 1 - 8)


TRAJECTORIES = {
    "adamw": (["--lr", "1e-3", "--weight-decay", "0.1", "--betas", "0.9,0.95"],
              {"exp_avg": np.int8, "exp_avg_sq": np.uint8}),
    "lion": (["--lr", "1e-4", "--weight-decay", "0.1", "--betas", "0.9,0.95"],
             {"exp_avg": np.int8}),
    "sgd": (["--lr", "1e-2", "--hyper", "momentum=0.9", "--weight-decay", "1e-4"],
            {"momentum_buffer": np.int8}),
}


@pytest.fixture(scope="module")
def trajectory(tmp_path_factory):
    """FlashOptim's vectors as a checkpoint of weights and a directory of gradients by step."""
    root = tmp_path_factory.mktemp("trajectory")
    vectors = np.load(DATA / "flashoptim.npz")
    narrow = {f"w{i}": vectors[f"traj_w0_{i}"].astype(BF16).astype(np.float32) for i in range(3)}
    save_file(narrow, root / "weights.safetensors")
    (root / "grads").mkdir()
    for t in range(12):
        save_file({f"w{i}": vectors[f"traj_g_{t}_{i}"].view(BF16) for i in range(3)},
                  root / "grads" / f"step-{t + 1}.safetensors")
    return root, vectors


@pytest.mark.parametrize("optimizer", TRAJECTORIES)
def test_flashoptim_trajectories(optimizer, trajectory, tmp_path):
    """12 steps on three tensors from a directory without a manifest."""
    root, vectors = trajectory
    options, fields = TRAJECTORIES[optimizer]
    out = tmp_path / "out.safetensors"
    replay(root / "weights.safetensors", root / "grads", "--optimizer", optimizer, *options,
           "--state", "flashoptim", "-o", out)
    got = arrays(out)
    for field, dtype in fields.items():
        off = np.concatenate([
            np.abs(got[f"w{i}.{field}::quantized"][1].view(dtype).astype(int) -
                   vectors[f"traj_{optimizer}_{field}_q{i}"].astype(int).ravel())
            for i in range(3)])
        # a code of Lion's is 3 off, in a group whose FP16 scale was rounded the other way
        assert np.count_nonzero(off > 1) <= (optimizer == "lion")
        assert np.count_nonzero(off == 0) >= 0.997 * off.size, field
    near = total = 0
    for i in range(3):
        found = joined(got[f"w{i}"][1].view(np.uint16), got[f"w{i}::error_bits"][1].view(np.int8))
        wanted = joined(vectors[f"traj_{optimizer}_p{i}"].ravel(),
                        vectors[f"traj_{optimizer}_e{i}"].ravel())
        near += np.count_nonzero(np.abs(found - wanted) <= step_of(wanted))
        total += found.size
        # What is left: weights next to 0, whose steps are finer than an update is exact; a code of
        # a variance that is 1 off; and a sign of Lion's that was decided by a last bit.
        assert np.abs(found - wanted).max() <= 2 * float(options[1])
    assert near >= 0.99 * total, (near, total)


# ---- Against the model of the steps in numpy ----

def test_missing_gradients_and_counts(tmp_path):
    """A parameter without a gradient is not stepped, nor is its count; bias correction is its own."""
    rng = np.random.default_rng(5)
    start = {name: rng.standard_normal(70).astype(np.float32) for name in ("a", "b", "frozen")}
    save_file(start, tmp_path / "start.safetensors")
    grads = [{name: rng.standard_normal(70).astype(np.float32) for name in names}
             for names in ("ab", "a", "b", "ab")]
    (tmp_path / "grads").mkdir()
    for i, g in enumerate(grads):
        save_file(g, tmp_path / "grads" / f"g{i + 1:03d}.safetensors")
    out = tmp_path / "out.safetensors"
    done = replay(tmp_path / "start.safetensors", tmp_path / "grads", "--optimizer", "adam", "--lr",
                  "0.01", "-o", out, "--json", "-q")
    report = json.loads(done.stdout)
    assert [s["missing"] for s in report["steps"]] == [0, 1, 1, 0]
    assert report["missing"] == [{"tensor": "a", "first": 3, "steps": 1},
                                 {"tensor": "b", "first": 2, "steps": 1}]
    got = load_file(out)
    h = model.hyper("adam", lr=0.01)
    for name in "ab":
        state = {"weight": start[name], "momentum": np.zeros(70, np.float32),
                 "variance": np.zeros(70, np.float32)}
        t = 0
        for g in grads:
            if name in g:
                t += 1
                state = model.step("adam", h, t, t == 1, g[name], state)
        assert got[f"{name}.step"] == t == 3
        for part, suffix in (("weight", ""), ("momentum", ".exp_avg"), ("variance", ".exp_avg_sq")):
            assert np.array_equal(bits(got[name + suffix]), bits(state[part])), (name, part)
    assert np.array_equal(got["frozen"], start["frozen"]) and "frozen.exp_avg" not in got


# ---- The documentation ----

WALK = ROOT / "docs" / "replay.md"


def test_walk_through(tmp_path):
    """Every session of docs/replay.md."""
    shutil.copytree(RECORDING, tmp_path / "recording")
    for name in ("checkpoint.pt", "checkpoint.safetensors"):
        shutil.copy(GPT / name, tmp_path)
    shutil.copy(GPT / "expected-adamw-fp32.safetensors", tmp_path / "expected.safetensors")
    check_sessions(WALK, tmp_path)


# ---- Against itself ----

STATES = {
    "fp32": [],
    "flash": ["--state", "flash"],
    "flashoptim": ["--state", "flashoptim"],
    "stochastic": ["--weights", "bf16+sr8", "--momentum", "bf16", "--variance", "sqrt8", "--seed",
                   "7", "--group", "48"],
    "mixed": ["--weights", "fp16+trunc5", "--momentum", "linear8", "--variance", "f32"],
}


@pytest.mark.parametrize("source", [CHECKPOINT, TORCH])
@pytest.mark.parametrize("state", STATES)
def test_eight_and_eight_are_sixteen(source, state, tmp_path):
    """Saving in between changes not a bit of the file; nor do threads, nor comparing with FP32."""
    kind = source.suffix if state == "fp32" else ".safetensors"
    whole, beside, half, rest = (tmp_path / f"{name}{kind}"
                                 for name in ("whole", "beside", "half", "rest"))
    options = STATES[state]
    replay(source, RECORDING, *options, "-o", whole, "-j", "1")
    replay(source, RECORDING, *options, "-o", beside, "-j", "4", "--compare", "fp32",
           "--check-numerics")
    assert filecmp.cmp(whole, beside, shallow=False)
    replay(source, RECORDING, *options, "-o", half, "--steps", "..408", "-j", "4")
    resumed = ["--order", "flashoptim"] if state == "flashoptim" else []
    resumed += ["--seed", "7", "--weights", "bf16+sr8"] if state == "stochastic" else []
    replay(half, RECORDING, *resumed, "-o", rest, "--steps", "409..")
    assert filecmp.cmp(whole, rest, shallow=False)
    if state != "fp32":
        run_tersor("verify", rest, check=0)
        assert packed_header(rest)["generation"] == 1


@pytest.mark.parametrize("between", ["half.safetensors", "half.pt"])
def test_eight_and_eight_from_a_state_with_f16_scales(between, tmp_path):
    """Packed before as FlashOptim does it, and saved in between as a packed file or its state dict."""
    start, whole, half, rest, other = (tmp_path / name for name in (
        "start.safetensors", "whole.safetensors", between, "rest.safetensors", "other.safetensors"))
    run_tersor("pack", CHECKPOINT, "--compat", "flashoptim", "-o", start, check=0)
    order = ["--order", "flashoptim", "-o"]
    replay(start, RECORDING, *order, whole)
    replay(start, RECORDING, *order, half, "--steps", "..408",
           *(["--to", "flashoptim"] if half.suffix == ".pt" else []))
    replay(half, RECORDING, *order, rest, "--steps", "409..")
    assert half.suffix == ".pt" or filecmp.cmp(whole, rest, shallow=False)
    assert " 0 differ" in run_tersor("diff", whole, rest, check=0).stdout
    replay(start, RECORDING, "--order", "torch-cpu", "-o", other)
    assert " 0 differ" not in run_tersor("diff", whole, other).stdout


def test_steps_of_many_files(tmp_path):
    """Fewer steps at once than usual, and one that has more files than are open at once."""
    (tmp_path / "rec").mkdir()
    shapes = {name: x.shape for name, x in load_file(CHECKPOINT).items()}
    steps = []
    for step in MANIFEST["steps"][:12]:
        grads = arrays(RECORDING / step["file"])
        files = [{name: grads[name][1].view(BF16).reshape(shapes[name])} for name in PARAMS]
        files += [{}] * (261 if step["step"] == 405 else 0)
        names = [f"{step['step']}-{i}.safetensors" for i in range(len(files))]
        for name, tensors in zip(names, files):
            save_file(tensors, tmp_path / "rec" / name)
        steps.append({"step": step["step"], "files": names, "lr": step["lr"]})
    (tmp_path / "rec" / "manifest.json").write_text(json.dumps(MANIFEST | {"steps": steps}))
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    replay(CHECKPOINT, tmp_path / "rec", "-o", a)
    replay(CHECKPOINT, RECORDING, "-o", b, "--steps", "..412")
    assert filecmp.cmp(a, b, shallow=False)


def test_a_stochastic_state_draws_anew_at_every_step(tmp_path):
    """With a learning rate of 0 nothing else could move the weights."""
    results = []
    for steps, seed in (("401", "1"), ("402", "1"), ("401", "2"), ("401", "1")):
        out = tmp_path / f"{len(results)}.safetensors"
        replay(CHECKPOINT, RECORDING, "--weights", "bf16+sr8", "--momentum", "f32", "--variance",
               "f32", "--seed", seed, "--lr", "0", "--weight-decay", "0", "--steps", steps,
               "--count", "400", "-o", out)
        results.append(arrays(out)["lm_head.weight"][1].tobytes())
    assert results[0] == results[3] != results[1] and results[0] != results[2]


def test_everything_else_stays(tmp_path):
    """A .pt in, a .pt out: its tree, in which only tensors and counts of steps have moved."""
    out = tmp_path / "out.pt"
    replay(TORCH, RECORDING, "-o", out)
    before, after = torchfile.load(TORCH), torchfile.load(out)
    assert after["step"] == 416 and before["step"] == 400
    torchfile.same(after["args"], before["args"])
    assert list(after["model"].keys()) == list(before["model"].keys())
    last = MANIFEST["steps"][-1]["lr"]
    assert [group["lr"] for group in after["optimizer"]["param_groups"]] == last
    for new, old in zip(after["optimizer"]["param_groups"], before["optimizer"]["param_groups"]):
        assert list(new.keys()) == list(old.keys())
        for key in old.keys():
            if key != "lr":
                torchfile.same(new[key], old[key])
    for i, state in after["optimizer"]["state"].items():
        assert list(state.keys()) == list(before["optimizer"]["state"][i].keys())
        assert values(state["step"]) == [416]
    expected = load_file(GPT / "expected-adamw-fp32.safetensors")
    for i, name in enumerate(PARAMS):
        assert np.array_equal(values(after["optimizer"]["state"][i]["exp_avg"]),
                              expected[f"{name}.exp_avg"].ravel())


def test_a_packed_checkpoint_stays_packed(tmp_path):
    """By default in its own codecs, whose planes are taken as they are; --state fp32 decodes it."""
    packed, out, plain = (tmp_path / f"{n}.safetensors" for n in ("packed", "out", "plain"))
    run_tersor("pack", TORCH, "-o", packed, "--compat", "flashoptim", check=0)
    replay(packed, RECORDING, "-o", out, "--order", "flashoptim")
    direct = tmp_path / "direct.safetensors"
    replay(TORCH, RECORDING, "-o", direct, "--state", "flashoptim")
    a, b = arrays(out), arrays(direct)
    assert a.keys() == b.keys() and all(np.array_equal(a[k][1], b[k][1]) for k in a)
    assert packed_header(out)["generation"] == 1
    replay(packed, RECORDING, "-o", plain, "--state", "fp32", "--to", "safetensors")
    assert load_file(plain)["wte.weight"].dtype == np.float32
    assert json.loads(run_tersor("inspect", "--json", plain, check=0).stdout)["generation"] == 1


def test_packed_state_in_other_forms(tmp_path):
    """Shards, FlashOptim's state dict, and decoded into a .pt: all of the same state."""
    one, many, flash, pt = (tmp_path / n for n in ("one.safetensors", "many.safetensors",
                                                    "flash.pt", "plain.pt"))
    replay(TORCH, RECORDING, "-o", one, "--state", "flashoptim")
    replay(TORCH, RECORDING, "-o", many, "--state", "flashoptim", "--max-shard-size", "200K")
    index = tmp_path / "many.safetensors.index.json"
    run_tersor("verify", index, check=0)
    assert " 0 differ" in run_tersor("diff", one, index, check=0).stdout
    replay(TORCH, RECORDING, "-o", flash, "--state", "flashoptim", "--to", "flashoptim")
    done = run_tersor("diff", one, flash, "-v", check=1)         # what FlashOptim's groups have besides
    assert " 0 differ" in done.stdout and "besides tensors: 4 values differ" in done.stdout
    assert done.stdout.count(".quantize: absent") == done.stdout.count(".master_bytewidth: absent") == 2
    replay(TORCH, RECORDING, "-o", pt, "--state", "flashoptim", "--to", "pt")
    assert " 0 differ" in run_tersor("diff", one, pt, check=0).stdout
    done = replay(TORCH, RECORDING, "-o", tmp_path / "x.pt", "--state", "flash", check=2)
    assert "--to pt" in one_line_error(done)


@pytest.mark.parametrize("options, words", [
    (["--state", "flash", "-o", "x.pt"], "not pt; --to pt"),
    (["--state", "flash", "-o", "x", "--to", "flashoptim"], "found codec softsign8 with e8m8"),
    (["--state", "fp32", "-o", "x", "--to", "flashoptim"], "--state flashoptim"),
    (["-o", "."], "output exists and is a directory"),
    (["-o", "no/x.safetensors"], "cannot open its directory"),
])
def test_outputs_that_cannot_be_are_refused_first(options, words, case):
    """Not when all steps are done: the gradients of the first are not finite here."""
    case.grads[0]["a"][0] = np.nan
    case.run()
    done = replay(case.root / "in.safetensors", case.root / "rec", *options, cwd=case.root,
                  check=None)
    assert words in one_line_error(done)


def test_frozen_tensors_are_packed_like_the_rest(tmp_path):
    """A weight without gradients, and a tensor that is no weight."""
    rng = np.random.default_rng(2)
    save_file({"a": rng.standard_normal(64).astype(np.float32),
               "frozen": rng.standard_normal(64).astype(np.float32),
               "ids": np.arange(5)}, tmp_path / "in.safetensors")
    (tmp_path / "g").mkdir()
    save_file({"a": np.ones(64, np.float32)}, tmp_path / "g" / "1.safetensors")
    out = tmp_path / "out.safetensors"
    replay(tmp_path / "in.safetensors", tmp_path / "g", "--optimizer", "lion", "--lr", "1e-3",
           "--state", "flash", "-o", out)
    codecs = {t["name"]: t["codec"] for t in packed_header(out)["tensors"]}
    assert codecs == {"a": "bf16+ulp8", "frozen": "bf16+ulp8", "ids": "raw",
                      "a.exp_avg": "softsign8"}
    run_tersor("verify", out, check=0)


def test_new_states_in_a_tree(tmp_path):
    """A .pt with a model alone gets an optimizer's state_dict() beside it, which resumes."""
    whole, half, rest = (tmp_path / f"{n}.pt" for n in ("whole", "half", "rest"))
    tree = torchfile.load(TORCH)
    start = tmp_path / "start.pt"
    start.write_bytes(torchfile.pt({"model": tree["model"], "step": 400}))
    replay(start, RECORDING, "-o", whole)
    replay(start, RECORDING, "-o", half, "--steps", "..405")
    state = torchfile.load(half)
    assert state["step"] == 405 and list(state.keys()) == ["model", "step", "optimizer"]
    groups = state["optimizer"]["param_groups"]
    assert [g["param_names"] for g in groups] == [g["params"] for g in MANIFEST["param_groups"]]
    assert groups[0]["params"] + groups[1]["params"] == list(range(29))
    assert groups[0]["betas"] == (0.9, 0.95) and groups[0]["lr"] == MANIFEST["steps"][4]["lr"][0]
    assert values(state["optimizer"]["state"][0]["step"]) == [5]
    replay(half, RECORDING, "-o", rest, "--steps", "406..", "--count", "5")
    a, b = torchfile.load(whole), torchfile.load(rest)
    for i in range(29):
        for field in ("step", "exp_avg", "exp_avg_sq"):
            assert torchfile.content_of(a["optimizer"]["state"][i][field]) == \
                torchfile.content_of(b["optimizer"]["state"][i][field])
    for name in PARAMS:
        assert torchfile.content_of(a["model"][name]) == torchfile.content_of(b["model"][name])


@pytest.mark.parametrize("ordered", [False, True])
def test_a_counter_changes_no_other_number(tmp_path, ordered):
    """A small number of a pickle may be read as one value: ids were renumbered with the counters."""
    def tensor():
        return torchfile.tensor(np.ones((2, 2), np.float32))

    names = [f"w{i}" for i in range(5)]
    states = {i: {"step": 3, "exp_avg": tensor(), "exp_avg_sq": tensor()} for i in range(5)}
    root = {"model": {n: tensor() for n in names}, "step": 3, "seed": 3,
            "optimizer": {"state": states, "param_groups": [{"lr": 0.1, "params": list(range(5)), "fours": [3, 4]}]}}
    source, out = tmp_path / "in.pt", tmp_path / "out.pt"
    source.write_bytes(torchfile.pt(torchfile.Dict(root, ordered=ordered)))
    (tmp_path / "rec").mkdir()
    save_file({n: np.ones((2, 2), np.float32) for n in names}, tmp_path / "rec" / "4.safetensors")
    run_tersor("replay", source, tmp_path / "rec", "--optimizer", "adamw", "--lr", "0.1", "-o", out, check=0)
    got = torchfile.load(out)
    group = got["optimizer"]["param_groups"][0]
    assert (got["step"], got["seed"], group["params"], group["fours"]) == (4, 3, [0, 1, 2, 3, 4], [3, 4])
    assert [(i, s["step"]) for i, s in got["optimizer"]["state"].pairs] == [(i, 4) for i in range(5)]


def test_flat_trees_and_integer_counts(tmp_path):
    """A flat state dict takes new states under their names; a Python number counts, too."""
    flat, out = tmp_path / "flat.pt", tmp_path / "out.pt"
    x = np.ones(8, np.float32)
    (tmp_path / "g").mkdir()
    save_file({"w": x}, tmp_path / "g" / "8.safetensors")
    flat.write_bytes(torchfile.pt({"w": torchfile.tensor(x)}))
    adam = ["--optimizer", "adam", "--lr", "0.1"]
    replay(flat, tmp_path / "g", *adam, "-o", out)
    got = torchfile.load(out)
    assert list(got.keys()) == ["w", "w.step", "w.exp_avg", "w.exp_avg_sq"] and values(got["w.step"]) == [1]
    tree = {"model": {"w": torchfile.tensor(x)}, "optimizer": {
        "state": {0: {"step": 7, "exp_avg": torchfile.tensor(x), "exp_avg_sq": torchfile.tensor(x)}},
        "param_groups": [{"params": [0]}]}}
    flat.write_bytes(torchfile.pt(tree))
    replay(flat, tmp_path / "g", *adam, "-o", out, "--force")
    assert torchfile.load(out)["optimizer"]["state"][0]["step"] == 8
    tree["optimizer"]["state"][0]["step"] = 6
    flat.write_bytes(torchfile.pt(tree))
    done = replay(flat, tmp_path / "g", *adam, check=3)
    assert "step 8" in one_line_error(done) and "has seen 6" in done.stderr


# ---- Reports ----

def test_without_output_only_the_report(tmp_path):
    done = replay(TORCH, RECORDING, "--state", "flash", "--compare", "fp32", "--json",
                  cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["schema"] == "tersor.replay.v1" and report["output"] is None
    assert len(report["steps"]) == 16 and not report["written"]
    assert list(tmp_path.iterdir()) == []


def test_report_files(tmp_path):
    names = {"--svg": "r.svg", "--html": "r.html"}
    options = [word for option, name in names.items() for word in (option, tmp_path / name)]
    replay(TORCH, RECORDING, "--state", "flash", "--compare", "fp32", *options,
           f"--csv={tmp_path / 'r.csv'}", f"--json={tmp_path / 'r.json'}", "-qq")
    assert {p.name for p in tmp_path.iterdir()} == {"r.svg", "r.html", "r.csv", "r.json"}


def test_fp32_against_itself_is_exact():
    done = replay(TORCH, RECORDING, "--state", "fp32", "--compare", "fp32", "--json")
    for step in json.loads(done.stdout)["steps"]:
        assert step["total"]["weight-ulp"] == 0 and step["total"]["update-nmse"] == 0


def test_gates(tmp_path):
    """A gate is on every tensor at every step; what fails is told and nothing is written."""
    out = tmp_path / "out.safetensors"
    flash = ["--state", "flash", "-o", out]
    replay(TORCH, RECORDING, *flash, "--max-error", "weight-nmse=1e-3", "--max-error", "weight-cosine=0.01")
    out.unlink()
    linear = ["--variance", "ulinear8", "--scale", "f16"]
    done = replay(TORCH, RECORDING, *flash, *linear, "--max-error", "update-nmse=0.5", check=1)
    message = one_line_error(done)
    assert "step 401: tensor wte.weight: found update-nmse" in message
    assert list(tmp_path.iterdir()) == []


def test_check_numerics():
    """BF16 alone cannot take steps of 1e-6; with corrections it can."""
    def warnings(*options):
        done = replay(CHECKPOINT, RECORDING, "--check-numerics", "--json", *options)
        return {w["tensor"] for w in json.loads(done.stdout)["warnings"]}

    largest = {k: np.abs(v).max() for k, v in load_file(CHECKPOINT).items() if k in PARAMS}
    assert warnings("--lr", "1e-6", "--weight-decay", "0", "--state", "fp32") == set()
    for codec, spacing in (("bf16", 2.0 ** -7), ("bf16+ulp8", 2.0 ** -8 / 127)):
        lr = 1e-5 if codec == "bf16+ulp8" else 1e-3
        ulp = {k: spacing * 2.0 ** np.floor(np.log2(v)) for k, v in largest.items()}
        found = warnings("--lr", str(lr), "--weight-decay", "0", "--weights", codec, "--momentum",
                         "f32", "--variance", "f32", "--steps", "401")
        assert found == {k for k in ulp if lr < ulp[k] / 2} and 0 < len(found) < 29, codec


@pytest.mark.parametrize("codec", [
    "f32", "bf16", "fp16", "bf16+ulp8", "bf16+ulp16", "fp16+ulp8", "fp16+ulp16", "bf16+trunc5",
    "fp16+trunc7", "bf16+sr4", "fp16+sr3", "bf16+bf16", "fp16+fp16", "bf16+exact16"])
def test_check_numerics_knows_the_spacing(codec, tmp_path):
    """How far apart decoded values are is measured: all below 1.75 that are next to each other."""
    x = (np.float32(1.75).view(np.uint32) - np.arange(1 << 17, dtype=np.uint32)).view(np.float32)
    names = [tmp_path / f"{n}.safetensors" for n in ("in", "packed", "out")]
    save_file({"w": x}, names[0])
    run_tersor("pack", names[0], "-o", names[1], "--weights", codec, check=0)
    run_tersor("unpack", names[1], "-o", names[2], check=0)
    gaps = np.diff(np.unique(load_file(names[2])["w"]).astype(np.float64))
    # The gaps of corrections in the ULP are rounded to FP32; those of pairs of floats get smaller
    # toward the narrow weight.
    spacing = gaps.mean() if "ulp" in codec else gaps.max()
    (tmp_path / "g").mkdir()
    save_file({"w": np.zeros(x.shape, np.float32)}, tmp_path / "g" / "1.safetensors")
    found = [len(json.loads(replay(
        names[0], tmp_path / "g", "--optimizer", "sgd", "--lr", repr(float(share * spacing)),
        "--weights", codec, "--check-numerics", "--json").stdout)["warnings"])
        for share in (0.49, 0.51)]
    assert found == [1, 0], spacing


def test_dry_run(tmp_path):
    out = tmp_path / "out.safetensors"
    done = replay(TORCH, RECORDING, "--state", "flash", "-o", out, "--dry-run", "--json")
    assert json.loads(done.stdout)["dry_run"] and list(tmp_path.iterdir()) == []
    out.touch()
    assert "exists" in one_line_error(replay(TORCH, RECORDING, "-o", out, "--dry-run", check=4))


def test_a_plan_does_not_take_new_states_for_views_of_others(tmp_path):
    weights = {name: x for name, x in load_file(CHECKPOINT).items() if name in PARAMS}
    save_file(weights, tmp_path / "weights.safetensors")
    begin = (tmp_path / "weights.safetensors", RECORDING, "-o", tmp_path / "out.safetensors", "--lr", "1e-3")
    assert replay(*begin, "--dry-run").stderr == replay(*begin).stderr == ""
    assert len(load_file(tmp_path / "out.safetensors")) >= 3 * len(weights) > 0


# ---- Inputs that are not in order ----

@pytest.fixture
def case(tmp_path):
    """A checkpoint of two weights with their state, and three steps that follow: to be spoiled."""
    class Case:
        root = tmp_path
        state = {}
        grads = [{n: np.full(40, 0.01 * (i + 1), np.float32) for n in "ab"} for i in range(3)]
        manifest = {"format": "tersor-recording", "version": 1, "optimizer": "adamw",
                    "grad_dtype": "F32",
                    "param_groups": [{"params": ["a", "b"], "betas": [0.9, 0.95], "eps": 1e-8,
                                      "weight_decay": 0.1}]}

        def run(self, *options, check=3):
            (tmp_path / "rec").mkdir(exist_ok=True)
            save_file(self.state, tmp_path / "in.safetensors")
            for i, g in enumerate(self.grads):
                save_file(g, tmp_path / "rec" / f"{i + 1}.safetensors")
            self.manifest.setdefault("steps", [
                {"step": i + 1, "file": f"{i + 1}.safetensors", "lr": [0.01]}
                for i in range(len(self.grads))])
            (tmp_path / "rec" / "manifest.json").write_text(json.dumps(self.manifest))
            return self.again(*options, check=check)

        def again(self, *options, check=3):
            out = tmp_path / "out.safetensors"
            done = replay(tmp_path / "in.safetensors", tmp_path / "rec", "-o", out, *options,
                          check=check)
            left = {p.name for p in tmp_path.iterdir()} - {"in.safetensors", "rec"}
            assert left == ({"out.safetensors"} if check == 0 else set())
            return one_line_error(done) if check else out

    c = Case()
    for name in "ab":
        c.state |= {name: np.ones(40, np.float32), f"{name}.exp_avg": np.zeros(40, np.float32),
                    f"{name}.exp_avg_sq": np.zeros(40, np.float32)}
    return c


def test_case_is_in_order(case):
    case.run(check=0)


def test_parameter_that_the_checkpoint_lacks(case):
    for field in ("", ".exp_avg", ".exp_avg_sq"):
        del case.state["b" + field]
    assert "tensor b: found no weight of this name" in case.run()


def test_extra_gradient(case):
    case.grads[1]["c"] = np.ones(3, np.float32)
    message = case.run()
    assert "step 2: tensor c: is an extra gradient" in message


def test_extra_gradient_without_a_manifest(case):
    """There every gradient is a parameter, which must be a weight."""
    case.grads[1]["c"] = np.ones(3, np.float32)
    case.run("--lr", "0.01")
    case.root.joinpath("rec", "manifest.json").unlink()
    message = case.again("--optimizer", "adamw", "--lr", "0.01")
    assert "rec/2.safetensors: step 2: tensor c: found no weight of this name" in message


@pytest.mark.parametrize("options", [[], ["--on-missing", "skip"]])
def test_missing_gradients_are_told(case, options):
    """Of parameters that some or all steps lack; those are not stepped."""
    case.state["c"] = np.ones(40, np.float32)
    case.manifest["param_groups"][0]["params"].append("c")
    del case.grads[1]["b"]
    del case.grads[2]["b"]
    case.run("--lr", "0.01", check=0)
    args = [case.root / "in.safetensors", case.root / "rec", *options]
    report = json.loads(replay(*args, "--json").stdout)
    assert report["missing"] == [{"tensor": "b", "first": 2, "steps": 2},
                                 {"tensor": "c", "first": 1, "steps": 3}]
    assert [s["missing"] for s in report["steps"]] == [1, 2, 2]
    rows = [line.split() for line in replay(*args).stdout.splitlines()]
    assert ["2", "3", "2", "b"] in rows and ["3", "3", "1", "c"] in rows
    report = json.loads(replay(*args, "--json", "--steps", "..1").stdout)
    assert report["missing"] == [{"tensor": "c", "first": 1, "steps": 1}]


def test_missing_gradients_can_be_refused(case):
    """The first parameter of the first step that lacks any, before anything is computed."""
    for name in "cd":
        case.state |= {name: np.ones(40, np.float32), f"{name}.exp_avg": np.zeros(40, np.float32),
                       f"{name}.exp_avg_sq": np.zeros(40, np.float32)}
        case.manifest["param_groups"][0]["params"].append(name)
        for grads in case.grads:
            grads[name] = np.ones(40, np.float32)
    case.run("--on-missing", "fail", check=0)
    case.root.joinpath("out.safetensors").unlink()
    del case.grads[2]["a"], case.grads[1]["d"], case.grads[1]["c"]
    case.grads[0]["a"][3] = np.nan
    message = case.run("--on-missing", "fail")
    assert "rec/2.safetensors: step 2: tensor c: found no gradient" in message
    case.root.joinpath("rec", "manifest.json").unlink()
    message = case.again("--on-missing", "fail", "--optimizer", "adamw", "--lr", "0.01")
    assert "rec/2.safetensors: step 2: tensor c: found no gradient" in message
    assert "skip or fail" in case.again("--on-missing", "keep", check=2)


def test_gradient_of_another_shape(case):
    case.grads[2]["b"] = np.ones((4, 10), np.float32)
    assert "step 3: tensor b: found shape [4, 10], expected [40]" in case.run()


def test_gradient_of_another_type(case):
    case.grads[2]["b"] = np.ones(40, np.float64)
    assert "step 3: tensor b: found dtype F64" in case.run()


def test_missing_state(case):
    del case.state["b.exp_avg_sq"]
    assert "tensor b: found no variance" in case.run()
    case.run("--zero-state", check=0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_nonfinite_gradient(case, value, dtype):
    """Named by step, tensor and element; the first step, though a later one has it earlier."""
    case.grads = [{n: g.astype(dtype) for n, g in step.items()} for step in case.grads]
    case.grads[1]["b"][17] = value
    case.grads[2]["a"][0] = value
    assert "step 2: tensor b: gradient element 17 is not finite" in case.run()


def test_steps_with_nonfinite_gradients_can_be_skipped(case):
    """As if the step was not there, but for its number."""
    good = [case.grads[0], case.grads[2]]
    case.grads[1]["b"][17] = np.nan
    out = load_file(case.run("--on-nonfinite", "skip", check=0))
    case.root.joinpath("out.safetensors").unlink()
    done = replay(case.root / "in.safetensors", case.root / "rec", "--on-nonfinite", "skip",
                  "--json")
    report = json.loads(done.stdout)
    assert [s["skipped"] for s in report["steps"]] == [False, True, False]
    assert "1 of 3 steps skipped" in done.stderr
    case.grads = good
    del case.manifest["steps"]
    expected = load_file(case.run(check=0))
    for name in expected:
        assert np.array_equal(out[name], expected[name]), name
    assert out["a.step"] == 2 and "a.step" not in expected


def test_truncated_step(case):
    case.run(check=0)
    (case.root / "out.safetensors").unlink()
    path = case.root / "rec" / "2.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert "step 2" in case.again()


def test_missing_step_file(case):
    case.run(check=0)
    (case.root / "out.safetensors").unlink()
    (case.root / "rec" / "3.safetensors").unlink()
    assert "3.safetensors" in case.again(check=4)


def test_gap_in_steps(case):
    case.manifest["steps"] = [{"step": s, "file": f"{s}.safetensors", "lr": [0.1]} for s in (1, 3)]
    assert "step 3" in case.run()


@pytest.mark.parametrize("options, words", [
    (["--betas", "0.9,1"], "step 1: group 0: beta2: found 1"),
    (["--lr", "-1"], "lr: found -1"),
    (["--eps", "-1e-8"], "eps"),
    (["--weight-decay", "-0.1"], "weight_decay"),
])
def test_hyperparameters_out_of_range(case, options, words):
    assert words in case.run(*options)


def test_count_that_does_not_fit(case):
    for name in "ab":
        case.state[f"{name}.step"] = np.array(5, np.float32)
    message = case.run()
    assert "step 1" in message and "has seen 5" in message and "--count" in message
    case.run("--count", "5", check=0)
    assert load_file(case.root / "out.safetensors")["a.step"] == 8


def test_count_that_is_none(case):
    case.state["a.step"] = np.array(0.5, np.float32)
    assert "a.step: found 0.5" in case.run()


def test_states_that_a_codec_cannot_take(case):
    case.state["a"][3] = np.inf
    assert "tensor a: found 1 non-finite values" in case.run("--state", "flash")
    case.state["a"][3] = 1e5
    assert "found 1 values over its range, which fp16 cannot hold" in \
        case.run("--weights", "fp16")
    case.state["a"][3] = 1
    case.state["a.exp_avg_sq"][0] = -1
    assert "a.exp_avg_sq: found 1 negative variances, which sqrt8" in case.run("--state", "flash")


def test_states_that_leave_a_codecs_range(case):
    case.grads[1]["b"][:] = 1e30
    message = case.run("--momentum", "softsign8", "--scale", "f16", "--optimizer", "sgd", "--hyper",
                       "momentum=0.9", "--zero-state", "--lr", "0")
    assert "step 2: tensor b: found" in message and "momentum over the range of softsign8" in message


def test_weights_in_two_copies(case):
    case.state["a.master_param"] = case.state["a"]
    assert "a.master_param: is a second copy" in case.run()


@pytest.mark.parametrize("field, words", [
    ("exp_avg_slow", "a second momentum, as AdEMAMix keeps one"),
    ("exp_avg_var", "a variance of gradients around their momentum, as AdaBelief keeps it"),
    ("max_exp_avg_var", "a variance of gradients around their momentum, as AdaBelief keeps it")])
@pytest.mark.parametrize("name", ["{0}.{1}", "optimizer.state.{1}.{0}"])
def test_states_of_rules_that_are_not_replayed(case, field, words, name):
    """They were stepped as Adam's variances, or left as they were beside weights that moved."""
    if field == "exp_avg_var":
        del case.state["b.exp_avg_sq"]
    case.state[name.format("b", field)] = np.zeros(40, np.float32)
    for options in [], ["--zero-state"], ["--optimizer", "lion"]:
        assert f"tensor {name.format('b', field)}: is {words}; replay has no rule" in case.run(*options)
    if field == "exp_avg_slow":                 # the user knows better
        assert not load_file(case.run("--map", f"{field}=other", check=0))[name.format("b", field)].any()
        (case.root / "out.safetensors").unlink()
    for grads in case.grads:
        del grads["b"]
    del case.manifest["steps"]
    out = load_file(case.run(check=0))          # no step of it: copied unchanged
    assert not out[name.format("b", field)].any()


def test_weight_that_is_none(case):
    assert "tensor a: found no weight" in case.run("--map", "^a$=other")


def test_damaged_packed_input(case, tmp_path):
    case.run(check=0)
    packed = tmp_path / "packed.safetensors"
    run_tersor("pack", tmp_path / "in.safetensors", "-o", packed, check=0)
    raw = bytearray(packed.read_bytes())
    raw[-1] ^= 1
    packed.write_bytes(raw)
    done = replay(packed, tmp_path / "rec", "-o", tmp_path / "x.safetensors", check=3)
    assert "damaged" in one_line_error(done)


def test_damaged_gradients_of_a_pt(tmp_path):
    """A record's checksum is checked as it passes."""
    x = np.arange(40, dtype=np.float32)
    save_file({"w": x}, tmp_path / "in.safetensors")
    (tmp_path / "g").mkdir()
    raw = bytearray(torchfile.pt({"w": torchfile.tensor(x)}))
    path = tmp_path / "g" / "1.pt"
    path.write_bytes(raw)
    sgd = ["--optimizer", "sgd", "--lr", "1"]
    replay(tmp_path / "in.safetensors", tmp_path / "g", *sgd)
    at = bytes(raw).index(x.tobytes())
    raw[at + 8] ^= 1
    path.write_bytes(raw)
    done = replay(tmp_path / "in.safetensors", tmp_path / "g", *sgd, check=3)
    assert "damaged: found CRC-32" in one_line_error(done)


@pytest.mark.parametrize("options, words", [
    (["--steps", "400..402"], "401 to 416"),
    (["--steps", "5..3"], "A up to B"),
    (["--momentum", "0.9"], "--hyper momentum=0.9"),
    (["--optimizer", "adagrad"], "expected sgd, sgdw, adam, adamw, lion, gefen, muon, gefen-muon or soap"),
    (["--hyper", "momentun=1"], "did you mean 'momentum'"),
    (["--max-error", "weight-nsme=1"], "did you mean 'weight-nmse'"),
    (["--max-error", "weight-nmse"], "FIGURE=VALUE"),
    (["--state", "fp16"], "expected fp32, flash, flashoptim, tight, fine, four, coat, bitsandbytes, gefen or MOMENTUM/VARIANCE"),
    (["--compare", "bf16"], "expected fp32"),
    (["--scale", "f16"], "codec with groups"),
    (["--lr", "1", "--schedule", "x"], "exclude each other"),
    (["--to", "pt"], "--to needs --output"),
    (["--count", "x"], "--count"),
    (["--betas", "0.9"], "B1,B2"),
    (["--on-nonfinite", "stop"], "fail or skip"),
    (["--device", "gpu"], "unknown device"),
])
def test_usage(options, words):
    assert words in one_line_error(replay(TORCH, RECORDING, *options, check=2))


def test_schedule(tmp_path):
    """The recording's own learning rates from a file give the same; one lr for both groups."""
    schedule = tmp_path / "schedule.txt"
    schedule.write_text("# step lr\n" + "".join(
        f"{s['step']} {s['lr'][0]!r}\n" for s in MANIFEST["steps"]))
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    replay(TORCH, RECORDING, "-o", a, "--schedule", schedule)
    replay(TORCH, RECORDING, "-o", b)
    assert filecmp.cmp(a, b, shallow=False)


# ---- Writing ----

def test_output_is_never_half_there(tmp_path):
    """The nth call fails: no file, no temporary, status 4."""
    library = os.environ.get("TERSOR_FAULTS", str(ROOT / "build" / "tests" / "libfaults.so"))
    if not os.path.exists(library):
        pytest.fail(f"{library} is missing: make check builds it")
    for state, name in (("fp32", "x.pt"), ("flash", "x.safetensors")):
        for fault in ("open:1:EMFILE", "fallocate:1:ENOSPC", "pwrite:1:ENOSPC", "pwrite:9:EIO",
                      "fsync:1:EIO", "rename:1:EACCES", "linkat:1:EIO"):
            out = tmp_path / "out"
            out.mkdir(exist_ok=True)
            done = run_tersor("replay", TORCH, RECORDING, "--state", state, "-o", out / name, env={
                "LD_PRELOAD": library, "TERSOR_FAULT": fault, "TERSOR_FAULT_PATH": str(out)})
            if done.returncode == 0:        # no such call was made
                (out / name).unlink()
                continue
            assert done.returncode == 4 and not list(out.iterdir()), (fault, done.stderr)


def test_existing_output_and_inputs(tmp_path):
    out = tmp_path / "out.safetensors"
    shutil.copy(CHECKPOINT, out)
    assert "exists" in one_line_error(replay(CHECKPOINT, RECORDING, "-o", out, check=4))
    replay(CHECKPOINT, RECORDING, "-o", out, "--force")
    message = one_line_error(replay(out, RECORDING, "-o", out, "--force", "--count", "400",
                                    check=4))
    assert "input" in message


def make_large(root, nelements, nsteps, ntensors=4):
    """A checkpoint with its state and gradients in BF16, a sparse file each."""
    shape = [nelements // ntensors // 1024, 1024]
    names = [f"w{i}" for i in range(ntensors)]

    def write(path, dtype, wanted):
        size = int(np.prod(shape)) * (2 if dtype == "BF16" else 4)
        header = {n: {"dtype": dtype, "shape": shape, "data_offsets": [i * size, (i + 1) * size]}
                  for i, n in enumerate(wanted)}
        path.write_bytes(safetensors_bytes(header))
        os.truncate(path, path.stat().st_size + size * len(wanted))

    write(root / "in.safetensors", "F32",
          [n + s for n in names for s in ("", ".exp_avg", ".exp_avg_sq")])
    (root / "rec").mkdir()
    for i in range(nsteps):
        write(root / "rec" / f"{i + 1}.safetensors", "BF16", names)
    return ["replay", root / "in.safetensors", root / "rec", "--optimizer", "adamw", "--lr", "1e-3"]


def test_a_signal_stops_it(tmp_path):
    args = make_large(tmp_path, 1 << 24, 1)
    for i in range(2, 400):
        os.link(tmp_path / "rec" / "1.safetensors", tmp_path / "rec" / f"{i}.safetensors")
    out = tmp_path / "out.safetensors"
    process = subprocess.Popen([BINARY, *map(str, args), "-o", out], stderr=subprocess.PIPE)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert {p.name for p in tmp_path.iterdir()} == {"in.safetensors", "rec"}


@pytest.mark.skipif(not os.environ.get("TERSOR_LONG"), reason="takes seconds and memory: check-long")
@pytest.mark.parametrize("state, nbytes", [("fp32", 12), ("flash", 5.125)])
def test_memory_is_the_state_and_little_more(state, nbytes, tmp_path):
    """Peak RSS: the state, two of the largest gradients, 256 MiB."""
    n = 1 << 26
    args = make_large(tmp_path, n, 3)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    pid = os.posix_spawn(BINARY, [BINARY, *map(str, args), "--state", state, "-qq", "-j", "4"],
                         os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0 and before >= 0
    assert usage.ru_maxrss * 1024 <= n * nbytes + 2 * (n // 4) * 2 + (256 << 20)
