"""Replays that training goes on from: where new states, counters and learning rates go.

What torch 1.13.1 makes of a file is the oracle: an optimizer loads it, and takes further steps.
"""
import json
import resource

import ml_dtypes
import numpy as np
import pytest
import torchfile
from conftest import DATA, one_line_error, run_tersor
from safetensors.numpy import load_file, save_file
from torchfile import Storage, Tensor, ordered, pt, run_torch, tensor

tmp_path = torchfile.tmp_path
RNG = np.random.default_rng(6)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def record(folder, grads, groups=None, optimizer="adam"):
    """A recording of steps 1, 2, ...: @grads is a list of {name: gradient}."""
    folder.mkdir()
    steps = [{"step": i + 1, "file": f"{i + 1}.safetensors"} for i in range(len(grads))]
    for step, entry in zip(grads, steps):
        save_file(step, folder / entry["file"])
    if groups:
        (folder / "manifest.json").write_text(json.dumps({
            "format": "tersor-recording", "version": 1, "optimizer": optimizer,
            "param_groups": groups, "steps": steps}))
    return folder


def replay(*args, check=0, **kwargs):
    return run_tersor("replay", *args, check=check, **kwargs)


ADAM = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False,
        "maximize": False, "foreach": None, "capturable": False}
SGD = {"momentum": 0.9, "dampening": 0, "nesterov": False, "differentiable": False}


def numbered(*params, **more):
    """A state_dict() of an optimizer whose groups number @params parameters."""
    groups, n = [], 0
    for count in params:
        groups.append({"lr": 0.5, **ADAM, **SGD, "params": list(range(n, n + count)), **more})
        n += count
    return {"state": {}, "param_groups": groups}


# Steps that torch takes: those of [first, last) of the recording, from a .pt or from nothing.
TORCH_STEPS = """
import json, sys, torch
def run(job):
    saved = torch.load(job["from"])
    params = {n: torch.nn.Parameter(v) for n, v in saved["model"].items()}
    groups = [{"params": [params[n] for n in g], "lr": lr} for g, lr in job["groups"]]
    optimizer = getattr(torch.optim, job["optimizer"])(groups, **job["options"])
    if job["load"]:
        optimizer.load_state_dict(saved["optimizer"])
    for step in grads[job["first"]:job["last"]]:
        for n, p in params.items():
            p.grad = torch.tensor(step[n]) if n in step else None
        optimizer.step()
    names = {p: n for n, p in params.items()}
    return {
        "weights": {n: p.tolist() for n, p in params.items()},
        "lr": [g["lr"] for g in optimizer.param_groups],
        "state": {names[p]: {k: v.tolist() if torch.is_tensor(v) else v for k, v in s.items()}
                  for p, s in optimizer.state.items()}}
grads, jobs = json.load(open(sys.argv[1]))
print(json.dumps([run(job) for job in jobs]))
"""


def torch_steps(grads, groups, *jobs, optimizer="Adam", **options):
    """Each of @jobs is (file, whether it has the optimizer too, first step, last step)."""
    kept = jobs[0][0].with_suffix(".json")
    kept.write_text(json.dumps([[{n: x.tolist() for n, x in step.items()} for step in grads], [
        {"from": str(path), "groups": groups, "first": first, "last": last, "load": load,
         "optimizer": optimizer, "options": options} for path, load, first, last in jobs]]))
    return run_torch(TORCH_STEPS, kept)


def close(a, b):
    assert a.keys() == b.keys()
    for key in a:
        if isinstance(a[key], dict):
            close(a[key], b[key])
        else:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-5, atol=1e-7, err_msg=str(key))


def goes_on(tmp_path, saved, grads, groups, half, optimizer="Adam", manifest=True, torch=True,
            **hyper):
    """Replay to step @half, then let torch go on: as if torch had taken all steps."""
    begin, out = tmp_path / "begin.pt", tmp_path / "half.pt"
    begin.write_bytes(pt(saved))
    recorded = [{"params": names, "lr": lr, **hyper} for names, lr in groups]
    folder = record(tmp_path / "rec", grads, recorded if manifest else None, optimizer.lower())
    more = () if manifest else ("--optimizer", optimizer.lower(), "--lr", groups[0][1])
    replay(begin, folder, "--steps", f"..{half}", "-o", out, *more)
    if torch:
        n = len(grads)
        whole, rest = torch_steps(grads, groups, (begin, False, 0, n), (out, True, half, n),
                                  optimizer=optimizer, **hyper)
        close(rest["state"], whole["state"])
        close(rest["weights"], whole["weights"])
        assert rest["lr"] == whole["lr"]
    return torchfile.load(out)


# ---- H1: an optimizer without any state yet ----

def test_empty_state_of_two_groups(tmp_path):
    """The groups of the recording tell which number is which parameter; none has a name."""
    model = {"w": random(8, 4), "b": random(8, 4)}
    saved = {"model": {n: tensor(x) for n, x in model.items()}, "optimizer": numbered(1, 1)}
    grads = [{n: random(8, 4) for n in model} for _ in range(3)]
    after = goes_on(tmp_path, saved, grads, [(["b"], 0.01), (["w"], 0.02)], 1)
    assert list(after.keys()) == ["model", "optimizer"]
    assert list(after["optimizer"]["state"].keys()) == [0, 1]


def test_empty_state_of_one_group_in_another_order(tmp_path):
    """One shape for all: only the recording knows the order of the optimizer."""
    model = {n: random(8, 4) for n in "abc"}
    saved = {"model": {n: tensor(x) for n, x in model.items()}, "optimizer": numbered(3)}
    grads = [{n: random(8, 4) for n in model} for _ in range(3)]
    goes_on(tmp_path, saved, grads, [(["b", "a", "c"], 0.01)], 2)


@pytest.mark.parametrize("empty", [{}, ordered()])
def test_empty_state_without_a_manifest(tmp_path, empty):
    """Numbers of one group follow the model."""
    model = {n: random(4) for n in "ab"}
    saved = {"model": {n: tensor(x) for n, x in model.items()},
             "optimizer": {**numbered(2), "state": empty}}
    grads = [{n: random(4) for n in model} for _ in range(2)]
    goes_on(tmp_path, saved, grads, [(["a", "b"], 0.01)], 1, manifest=False)


def test_empty_state_whose_numbers_mean_nothing(tmp_path):
    """Two groups, and no list of either: refused, but --params or names tell."""
    model = {n: random(4) for n in "wb"}
    saved = {"model": {n: tensor(x) for n, x in model.items()}, "optimizer": numbered(1, 1)}
    begin, out, order = tmp_path / "in.pt", tmp_path / "out.pt", tmp_path / "order"
    begin.write_bytes(pt(saved))
    grads = [{n: random(4) for n in model}]
    folder = record(tmp_path / "rec", grads)
    adam = ["--optimizer", "adam", "--lr", "0.01", "-o", out]
    line = one_line_error(replay(begin, folder, *adam, check=3))
    assert "optimizer" in line and "--params" in line and not out.exists()
    # Before the first step: what is wrong with its gradients does not show yet.
    spoilt = record(tmp_path / "spoilt", [{n: np.full(4, np.nan, "f4") for n in model}])
    assert line == one_line_error(replay(begin, spoilt, *adam, check=3))
    assert "not finite" in one_line_error(replay(begin, spoilt, *adam[:-2], check=3))
    assert line == one_line_error(replay(begin, spoilt, *adam, "--dry-run", check=3))
    order.write_text("b\nw\n")
    replay(begin, folder, *adam, "--params", order)
    state = torchfile.load(out)["optimizer"]["state"]
    for i, name in enumerate("bw"):
        got = np.frombuffer(torchfile.content_of(state[i]["exp_avg"]), np.float32)
        np.testing.assert_allclose(got, 0.1 * grads[0][name], rtol=1e-5)


def test_momentum_that_is_none(tmp_path):
    """SGD lists parameters that had no step yet with None."""
    model = {n: random(4) for n in "ab"}
    saved = {"model": {n: tensor(x) for n, x in model.items()}, "optimizer": numbered(2)}
    saved["optimizer"]["state"] = {0: {"momentum_buffer": None}, 1: {"momentum_buffer": None}}
    grads = [{n: random(4) for n in model} for _ in range(2)]
    after = goes_on(tmp_path, saved, grads, [(["a", "b"], 0.01)], 1, "SGD", momentum=0.9)
    assert [list(after["optimizer"]["state"][i].keys()) for i in (0, 1)] == [["momentum_buffer"]] * 2


# ---- H2, H3: an optimizer that is new ----

@pytest.mark.parametrize("there", [{}, {"optimizer": None}, {"optimizer": {}}])
def test_new_optimizer_has_the_recorded_order(tmp_path, there):
    """Every listed parameter has a number, one without gradients too."""
    model = {"a": random(8, 4), "b": random(8, 4), "c": random(8, 4), "fz": random(3)}
    saved = {"model": {n: tensor(x) for n, x in model.items()}, **there, "step": 0}
    grads = [{n: random(8, 4) for n in "abc"} for _ in range(4)]
    after = goes_on(tmp_path, saved, grads, [(["b", "a", "c", "fz"], 0.01)], 2,
                    torch=there == {"optimizer": None})
    group, = after["optimizer"]["param_groups"]
    assert group["params"] == [0, 1, 2, 3] and group["param_names"] == ["b", "a", "c", "fz"]
    assert sorted(after["optimizer"]["state"].keys()) == [0, 1, 2] and after["step"] == 2
    run_tersor("inspect", tmp_path / "half.pt", check=0)    # a key twice would be refused


def test_what_is_called_optimizer_is_not_replaced(tmp_path):
    begin = tmp_path / "in.pt"
    begin.write_bytes(pt({"model": {"a": tensor(random(4))}, "optimizer": {"name": "adam"}}))
    folder = record(tmp_path / "rec", [{"a": random(4)}], [{"params": ["a"], "lr": 0.1}])
    line = one_line_error(replay(begin, folder, "-o", tmp_path / "out.pt", check=3))
    assert "optimizer: found something other" in line


def test_new_optimizer_keeps_what_decouples(tmp_path):
    """initial_lr and decouple_lr are what a second replay, or FlashOptim, shrinks weights by."""
    begin, out = tmp_path / "in.pt", tmp_path / "out.pt"
    begin.write_bytes(pt({"model": {"a": tensor(random(4))}, "epoch": 1}))
    folder = record(tmp_path / "rec", [{"a": random(4)}], [
        {"params": ["a"], "lr": 0.1, "initial_lr": 0.4, "decouple_lr": True,
         "weight_decay": 0.1}], "adamw")
    replay(begin, folder, "-o", out)
    group, = torchfile.load(out)["optimizer"]["param_groups"]
    assert group["initial_lr"] == 0.4 and group["decouple_lr"] is True and group["lr"] == 0.1


# ---- M1: parameters without a state yet ----

LATE = [{"a": random(6), **({"b": random(6)} if i in (5, 7) else {})} for i in range(8)]


@pytest.mark.parametrize("optimizer, hyper", [
    ("adam", {}), ("adamw", {}), ("lion", {}),
    ("sgd", {"momentum": 0.9, "dampening": 0.5}), ("sgd", {"momentum": 0.9, "nesterov": True})])
def test_first_gradient_after_going_on(tmp_path, optimizer, hyper):
    """4 + 4 steps are 8 steps, to the bit, though b has its first gradient at step 6."""
    begin = tmp_path / "in.safetensors"
    save_file({"a": random(6), "b": random(6)}, begin)
    folder = record(tmp_path / "rec", LATE, [{"params": ["a", "b"], "lr": 0.01, **hyper}],
                    optimizer)
    whole, half, rest = (tmp_path / f"{n}.safetensors" for n in ("whole", "half", "rest"))
    replay(begin, folder, "-o", whole)
    replay(begin, folder, "--steps", "..4", "-o", half)
    replay(half, folder, "--steps", "5..", "-o", rest)
    got, expected = load_file(rest), load_file(whole)
    assert got.keys() == expected.keys()
    for name in got:
        assert np.array_equal(got[name], expected[name]), name


def test_first_gradient_after_going_on_in_torch_and_back(tmp_path):
    """torch saves no state for b; its file is replayed further, as torch steps."""
    model = {n: tensor(random(6)) for n in "ba"}
    groups = [(["a", "b"], 0.01)]
    begin, half, end = (tmp_path / f"{n}.pt" for n in ("begin", "half", "end"))
    begin.write_bytes(pt({"model": model}))
    folder = record(tmp_path / "rec", LATE, [{"params": ["a", "b"], "lr": 0.01}])
    replay(begin, folder, "--steps", "..4", "-o", half)
    assert list(torchfile.load(half)["optimizer"]["state"].keys()) == [0]
    replay(half, folder, "--steps", "5..", "-o", end)
    whole, got = torch_steps(LATE, groups, (begin, False, 0, 8), (end, True, 8, 8))
    close(got["weights"], whole["weights"])
    close(got["state"], whole["state"])
    assert got["state"]["b"]["step"] == 2


def test_flattened_states_get_their_like(tmp_path):
    """torch.distributed flattens an optimizer: "state.NAME.exp_avg"."""
    first = LATE[0]["a"]
    model = {n: tensor(random(6)) for n in "ab"}
    state = {"state.a.exp_avg": tensor(0.1 * first), "state.a.exp_avg_sq": tensor(first ** 2),
             "state.a.step": tensor(np.array(5, np.float32)), "param_groups.a.lr": 0.01}
    begin, out = tmp_path / "in.pt", tmp_path / "out.pt"
    begin.write_bytes(pt({"model": model, "optimizer": state}))
    folder = record(tmp_path / "rec", LATE, [{"params": ["a", "b"], "lr": 0.01}])
    replay(begin, folder, "--steps", "6..6", "-o", out)
    after = torchfile.load(out)
    assert {k for k in after["optimizer"].keys() if k.startswith("state.b.")} == {
        "state.b.step", "state.b.exp_avg", "state.b.exp_avg_sq"}
    assert set(after.keys()) == {"model", "optimizer"}
    got = load_file(torchfile_of(out, tmp_path))
    assert got["model.b.step" if "model.b.step" in got else "b.step"] == 1


def torchfile_of(path, tmp_path):
    out = tmp_path / "as.safetensors"
    run_tersor("convert", path, "-o", out, check=0)
    return out


def test_state_that_is_missing_is_still_refused(tmp_path):
    """Adam without counters: nothing tells a new parameter from one whose state is missing."""
    begin = tmp_path / "in.safetensors"
    save_file({"a": random(6), "b": random(6), "a.exp_avg": random(6),
               "a.exp_avg_sq": random(6) ** 2}, begin)
    folder = record(tmp_path / "rec", LATE, [{"params": ["a", "b"], "lr": 0.01}])
    line = one_line_error(replay(begin, folder, "--steps", "6..", check=3))
    assert "tensor b: found no momentum of this weight" in line


# ---- Counters ----

@pytest.mark.parametrize("dtype, before, after", [
    (ml_dtypes.bfloat16, 254, np.float32), (np.float16, 2046, np.float32),
    (np.float32, (1 << 24) - 2, np.float64), (np.int32, (1 << 31) - 2, np.int64),
    (np.float16, 3, np.float16), (np.int64, 5, np.int64)])
@pytest.mark.parametrize("state", ["fp32", "flash"])
def test_counter_that_its_type_cannot_hold(tmp_path, dtype, before, after, state):
    """Written in a wider one instead of rounded."""
    begin, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({"a": random(6), "a.exp_avg": random(6), "a.exp_avg_sq": random(6) ** 2,
               "a.step": np.array(before, dtype)}, begin)
    folder = record(tmp_path / "rec", LATE[:3])
    for i in (3, 2, 1):
        (folder / f"{i}.safetensors").rename(folder / f"{before + i}.safetensors")
    replay(begin, folder, "--optimizer", "adam", "--lr", "0.01", "--state", state, "-o", out)
    plain = load_file(torchfile_of(out, tmp_path) if state == "fp32" else unpacked(out))
    assert int(plain["a.step"]) == before + 3 and plain["a.step"].dtype == after


def unpacked(path):
    out = path.with_suffix(".unpacked")
    run_tersor("unpack", path, "-o", out, "--to", "safetensors", check=0)
    return out


@pytest.mark.parametrize("options, reason", [
    (["--count", str(1 << 48)], "expected a number from 0 to 281474976710655"),
    (["--zero-state", "--count", "5"], "--zero-state"),
])
def test_count_that_cannot_be(tmp_path, options, reason):
    begin = tmp_path / "in.safetensors"
    save_file({"a": random(6)}, begin)
    folder = record(tmp_path / "rec", LATE[:1], [{"params": ["a"], "lr": 0.01}])
    assert reason in one_line_error(replay(begin, folder, *options, check=2))
    replay(begin, folder, "--zero-state", "--count", "0")
    replay(begin, folder, "--count", str((1 << 48) - 1))


# ---- M10: tensors without dimensions ----

SCALES = [random(8) for _ in range(4)]


def scalar_case(tmp_path, name="logit_scale", state=True, manifest=True):
    """A checkpoint with a parameter without dimensions, and its twin in which it has one."""
    paths = []
    for kind, shape in (("none", ()), ("one", (1,))):
        def array(x):
            return np.full(shape, x, np.float32)

        root = tmp_path / kind
        root.mkdir()
        tensors = {"w": SCALES[0], name: array(2.5)}
        if state:
            tensors |= {"w.exp_avg": SCALES[1], "w.exp_avg_sq": SCALES[2] ** 2,
                        f"{name}.exp_avg": array(0.5), f"{name}.exp_avg_sq": array(0.25),
                        "w.step": np.float32(0), f"{name}.step": np.float32(0)}
        save_file({n: np.asarray(x) for n, x in tensors.items()}, root / "in.safetensors")
        grads = [{"w": SCALES[3], "logit_scale": array(0.1 * i)} for i in range(1, 5)]
        paths.append((root / "in.safetensors",
                      record(root / "rec", grads, [{"params": ["w", "logit_scale"]}] if manifest
                             else None)))
    return paths


def same_but_for_shapes(a, b):
    a, b = load_file(a), load_file(b)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name
        assert b[name].shape in ((1,), a[name].shape), name


@pytest.mark.parametrize("form", [[], ["--state", "flash"]])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("manifest", [False, True])
@pytest.mark.parametrize("name", ["logit_scale", "module.logit_scale"])
def test_parameter_without_dimensions(tmp_path, form, state, manifest, name):
    """It is one if the recording has it, with its state, and goes on like one that has an element."""
    outs = []
    adam = [*form, "--optimizer", "adam", "--lr", "0.01", "-o"]
    for begin, folder in scalar_case(tmp_path, name, state, manifest):
        whole, half, rest = (begin.with_name(n) for n in ("whole", "half", "rest"))
        replay(begin, folder, *adam, whole)
        replay(begin, folder, *adam, half, "--steps", "..2")
        replay(half, folder, *adam, rest, "--steps", "3..")
        assert whole.read_bytes() == rest.read_bytes()
        outs.append(whole)
    same_but_for_shapes(*outs)
    given = tmp_path / "given"
    begin, folder = tmp_path / "none" / "in.safetensors", tmp_path / "none" / "rec"
    replay(begin, folder, *adam, given, "--map", rf"^{name}$=weight")
    assert given.read_bytes() == outs[0].read_bytes()


def test_parameter_without_dimensions_of_a_packed_file(tmp_path):
    """There it was kept raw, and stays so, with its state."""
    (begin, folder), _ = scalar_case(tmp_path)
    packed, out, plain = (begin.with_name(n) for n in ("packed", "out", "plain"))
    run_tersor("pack", begin, "-o", packed, "--min-elements", "1", check=0)
    adam = ["--optimizer", "adam", "--lr", "0.01", "-o"]
    replay(packed, folder, *adam, out)
    run_tersor("verify", out, check=0)
    replay(begin, folder, *adam, plain)
    got, expected = load_file(out), load_file(plain)
    for name in ("", ".exp_avg", ".exp_avg_sq", ".step"):
        assert got["logit_scale" + name].tobytes() == expected["logit_scale" + name].tobytes()
    assert "w::error_bits" in got and got["logit_scale"] != 2.5


def test_what_has_no_dimensions_and_is_not_settled(tmp_path):
    """A rule says that it is none; two could be it; or it has the name of a state."""
    (begin, folder), _ = scalar_case(tmp_path, manifest=False)
    adam = ["--optimizer", "adam", "--lr", "0.01"]
    line = one_line_error(replay(begin, folder, *adam, "--map", "^logit_scale$=other", check=3))
    assert "tensor logit_scale" in line and "--map '^NAME$=weight'" in line
    save_file({"w": random(8), "module.logit_scale": np.array(1, np.float32),
               "model.logit_scale": np.array(2, np.float32)}, begin)
    assert "tensor logit_scale" in one_line_error(replay(begin, folder, *adam, check=3))
    save_file({"w": random(8), "w.step": np.array(0, np.float32)}, begin)
    folder = record(tmp_path / "step", [{"w": random(8), "w.step": np.array(1, np.float32)}])
    assert "tensor w.step" in one_line_error(replay(begin, folder, *adam, check=3))


def test_parameter_without_dimensions_in_a_pt(tmp_path):
    """Its number in the optimizer is found, too."""
    model = {"w": random(8), "logit_scale": np.array(2.5, np.float32)}
    saved = {"model": {n: tensor(x) for n, x in model.items()}, "optimizer": numbered(2)}
    grads = [{"w": random(8), "logit_scale": np.array(0.1, np.float32)} for _ in range(2)]
    goes_on(tmp_path, saved, grads, [(["w", "logit_scale"], 0.01)], 1)


# ---- Learning rates in param_groups ----

def test_lr_of_the_last_step_is_written(tmp_path):
    begin, out = tmp_path / "in.pt", tmp_path / "out.pt"
    model = {n: tensor(random(6)) for n in "ab"}
    begin.write_bytes(pt({"model": model, "optimizer": numbered(1, 1, initial_lr=1.0)}))
    grads = [{n: random(6) for n in "ab"} for _ in range(3)]
    folder = record(tmp_path / "rec", grads, [{"params": [n], "lr": 0.1} for n in "ab"])
    schedule = tmp_path / "schedule"
    schedule.write_text("1 .1 .2\n2 .3 .4\n3 .5 .6\n")
    replay(begin, folder, "--schedule", schedule, "--steps", "..2", "-o", out)
    groups = torchfile.load(out)["optimizer"]["param_groups"]
    assert [g["lr"] for g in groups] == [.3, .4] and [g["initial_lr"] for g in groups] == [1, 1]


def test_lr_of_other_groups_stays(tmp_path):
    """Two groups there, one here."""
    begin, out = tmp_path / "in.pt", tmp_path / "out.pt"
    model = {n: tensor(random(6)) for n in "ab"}
    optimizer = numbered(1, 1)
    optimizer["param_groups"][0]["param_names"] = ["a"]
    optimizer["param_groups"][1]["param_names"] = ["b"]
    begin.write_bytes(pt({"model": model, "optimizer": optimizer}))
    folder = record(tmp_path / "rec", [{n: random(6) for n in "ab"}],
                    [{"params": ["a", "b"], "lr": 0.1}])
    replay(begin, folder, "-o", out)
    assert [g["lr"] for g in torchfile.load(out)["optimizer"]["param_groups"]] == [.5, .5]


# ---- Many parameters ----

def test_many_small_parameters(tmp_path):
    """Joining numbers to names costs little beside the rest: no more than numbering anew."""
    n = 20000
    names = [f"layer.{i}.weight" for i in range(n)]
    storage = Storage(bytes(4 * n))
    begin, out = tmp_path / "in.pt", tmp_path / "out.pt"
    model = {name: Tensor(storage, (1,), offset=i) for i, name in enumerate(names)}
    folder = record(tmp_path / "rec", [{name: np.ones(1, np.float32) for name in names}])

    def seconds(saved):
        begin.write_bytes(pt(saved))
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        replay(begin, folder, "--optimizer", "sgd", "--lr", "0.1", "--hyper", "momentum=0.9",
               "-o", out, "--force")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used

    anew = seconds({"model": model, "epoch": 1})
    joined = seconds({"model": model, "optimizer": numbered(n)})
    assert joined < 2.5 * anew      # about 1; it was more than 4


# ---- Sharded by torch 2.15 ----

def test_parameter_without_a_state_in_dcp(tmp_path):
    """`turned` never had a gradient in the run that saved this.  Lion: variances there are random."""
    source, out = DATA / "torch" / "dcp-2.15", tmp_path / "out.pt"
    before = load_file(torchfile_of(source, tmp_path))
    seen = int(before["rows.step"])
    grads = {n: random(*before[n].shape) for n in ("rows", "columns", "one", "turned")}
    folder = tmp_path / "rec"
    folder.mkdir()
    save_file(grads, folder / f"{seen + 1}.safetensors")
    replay(source, folder, "--optimizer", "lion", "--lr", "0.01", "-o", out)
    (tmp_path / "as.safetensors").unlink()
    after = load_file(torchfile_of(out, tmp_path))
    assert after["rows.step"] == seen + 1
    np.testing.assert_allclose(after["turned.exp_avg"], 0.01 * grads["turned"], rtol=1e-5)
    assert after.keys() - before.keys() == {"turned.exp_avg"}
    group, = torchfile.load(out)["optim"]["param_groups"]
    assert group["params"] == ["rows", "columns", "norm.weight", "one", "whole", "turned"]
