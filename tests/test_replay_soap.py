"""Replay of SOAP in FP32: against what its authors' program and pytorch_optimizer made, and NumPy in binary64."""
import json

import numpy as np
import pytest
import torchfile
from safetensors.numpy import load_file, save_file

from conftest import DATA, one_line_error, run_tersor

PROGRAMS = {"authors": "torch-cpu", "pytorch_optimizer": "pytorch-optimizer"}
SOAP = DATA / "torch" / "soap"
F32 = np.float32
FREQUENCY, LIMIT = 3, 10


def nmse(x, y):
    x, y = (np.asarray(a, np.float64) for a in (x, y))
    return ((x - y) ** 2).sum() / (x ** 2).sum()


def plain(path, folder):
    run_tersor("convert", path, "-o", folder / f"{path.stem}.safetensors", "-f", check=0)
    return load_file(folder / f"{path.stem}.safetensors")


# --- Programs -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("program", PROGRAMS)
def test_replay_makes_what_the_program_made(tmp_path, program):
    """Nine steps with two new bases; the library of each multiplies and decomposes in another order."""
    folder, out = SOAP / program, tmp_path / "out.pt"
    done = run_tersor("replay", folder / "before.pt", folder / "recording", "-o", out, check=0)
    assert "warning" not in done.stderr and f"order       {PROGRAMS[program]}" in done.stdout
    before, got, want = plain(folder / "before.pt", tmp_path), plain(out, tmp_path), plain(folder / "after.pt", tmp_path)
    assert set(got) == set(want) and sum(".Q." in name for name in got) == 4
    for name, x in want.items():
        assert nmse(before[name], x) > 1e-3, name
        assert nmse(x, got[name]) < 1e-11, name
        if name in ("embed.weight", "up.weight", "up.bias", "head.weight"):
            assert nmse(x - before[name], got[name] - before[name]) < 1e-11, name


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_output_counts_steps_where_its_program_does(tmp_path, program):
    folder, out = SOAP / program, tmp_path / "out.pt"
    run_tersor("replay", folder / "before.pt", folder / "recording", "-o", out, check=0)
    got, want = ([[dict(at.pairs).get("step") for at in each] for each in
                       (optimizer["param_groups"], [v for _, v in optimizer["state"].pairs])]
                      for path in (out, folder / "after.pt") for optimizer in [torchfile.load(path)["optimizer"]])
    assert got == want == ([[None], [17] * 4] if program == "authors" else [[18], [None] * 4])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("args", [(), ("--state", "flash")])
def test_4_steps_and_5_more_are_9(tmp_path, program, args):
    folder = SOAP / program
    first = json.loads((folder / "recording" / "manifest.json").read_text())["steps"][0]["step"]
    suffix = ".safetensors" if args else ".pt"
    whole, half, both = (tmp_path / f"{name}{suffix}" for name in ("whole", "half", "both"))
    order = ("--order", PROGRAMS[program])
    run_tersor("replay", folder / "before.pt", folder / "recording", "-o", whole, *args, *order, check=0)
    run_tersor("replay", folder / "before.pt", folder / "recording", "-o", half, *args, *order, "--steps",
               f"..{first + 3}", check=0)
    run_tersor("replay", half, folder / "recording", "-o", both, *order, "--steps", f"{first + 4}..", check=0)
    assert both.read_bytes() == whole.read_bytes()
    if not args:
        done = run_tersor("replay", half, folder / "recording", check=3)
        assert f"expected those of step {first + 4}" in one_line_error(done)


@pytest.mark.parametrize("how", ["base", "avx2", "avx512", "threads", "disk", "compare", "parts"])
def test_the_same_bytes_however_it_runs(tmp_path, monkeypatch, how):
    folder = SOAP / "authors"
    files = [tmp_path / f"{name}.pt" for name in ("once", "again")]
    replay = ["replay", folder / "before.pt", folder / "recording", "-o"]
    run_tersor(*replay, files[0], "--threads", "1", check=0)
    args = {"threads": ("--threads", "3"), "disk": ("--state-on-disk", tmp_path), "compare": ("--compare", "fp32")}
    if how.startswith(("base", "avx")):
        monkeypatch.setenv("TERSOR_ISA", how)
        done = run_tersor(*replay, files[1])
        if "no SIMD level" in done.stderr:
            pytest.skip(done.stderr)
    elif how == "parts":
        for i in (1, 2):
            run_tersor(*replay, files[1], "--part", f"{i}/2", check=0)
        run_tersor("join", files[1], check=0)
    else:
        run_tersor(*replay, files[1], *args[how], check=0)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_compressed_state_is_compared_with_the_same_steps_in_fp32(tmp_path):
    folder, out = SOAP / "authors", tmp_path / "out.pt"
    args = ("replay", folder / "before.pt", folder / "recording")
    report = json.loads(run_tersor(*args, "--state", "bf16/bf16", "--compare", "fp32", "-o", tmp_path / "p.safetensors",
                                   "--json", check=0).stdout)
    run_tersor(*args, "-o", out, check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", tmp_path / "p.pt", check=0)
    fp32, packed = plain(out, tmp_path), plain(tmp_path / "p.pt", tmp_path)
    for name, x in fp32.items():
        assert (".GG." in name or ".Q." in name) == bool((x == packed[name]).all()), name
    weights = [name for name in fp32 if f"{name}.exp_avg" in fp32]
    flat = [np.concatenate([x[name].ravel() for name in weights]) for x in (fp32, packed)]
    assert report["steps"][-1]["total"]["weight-nmse"] == pytest.approx(nmse(*flat), rel=1e-6)
    assert nmse(*flat) > 1e-8


# --- NumPy --------------------------------------------------------------------------------------------

class Model:
    """A matrix or vector with its state, in binary64."""

    def __init__(self, state, order):
        self.s, self.order = {name: x.astype(np.float64) for name, x in state.items()}, order

    def turn(self, x, back=False):
        for side in range(x.ndim):
            q = self.s.get(f"Q.{side}")
            if q is not None:
                x = np.moveaxis(np.tensordot(q if back else q.T, x, axes=(1, side)), 0, side)
        return x

    def step(self, g, t, lr, b1, b2, eps, decay, shampoo, normalize, correct):
        s, g, ours = self.s, g.astype(np.float64), self.order == "torch-cpu"
        n = t if ours else t - 1
        turned = self.turn(g)
        s["exp_avg"] = b1 * s["exp_avg"] + (1 - b1) * (turned if ours else g)
        s["exp_avg_sq"] = b2 * s["exp_avg_sq"] + (1 - b2) * turned ** 2
        m = s["exp_avg"] if ours else self.turn(s["exp_avg"])
        u = self.turn(m / (np.sqrt(s["exp_avg_sq"]) + eps), back=True)
        if normalize:
            u = u / (np.sqrt((u ** 2).mean()) + (1e-30 if ours else eps))
        rate = lr * np.sqrt(1 - b2 ** n) / (1 - b1 ** n) if correct else lr
        s["w"] = (s["w"] - rate * u) * (1 - lr * decay)
        if ours:
            s["exp_avg"] = self.turn(s["exp_avg"], back=True)
        bases = {}
        for side in range(g.ndim):
            if f"Q.{side}" not in s:
                continue
            rows = np.moveaxis(g, side, 0).reshape(g.shape[side], -1)
            s[f"GG.{side}"] = shampoo * s[f"GG.{side}"] + (1 - shampoo) * rows @ rows.T
            if n % FREQUENCY == 0:
                q = s[f"Q.{side}"]
                values = np.einsum("ij,ik,kj->j", q, s[f"GG.{side}"], q)
                order = np.argsort(-values, kind="stable")
                s["exp_avg_sq"] = np.take(s["exp_avg_sq"], order, axis=side)
                bases[f"Q.{side}"] = np.linalg.qr(s[f"GG.{side}"] @ q[:, order])[0]
        s.update(bases)
        if ours:
            s["exp_avg"] = self.turn(s["exp_avg"])


def start(rng, shape):
    """A state as after some steps; no two eigenvalues are near each other."""
    state = {"w": rng.normal(size=shape), "exp_avg": 0.1 * rng.normal(size=shape),
             "exp_avg_sq": 0.01 + rng.random(shape) ** 2}
    for side, n in enumerate(shape):
        if len(shape) == 2 and n <= LIMIT:
            q = np.linalg.qr(rng.normal(size=(n, n)))[0]
            turned = np.linalg.qr(q + 0.1 * rng.normal(size=(n, n)))[0]
            state[f"GG.{side}"] = turned @ np.diag(2.0 ** np.arange(n)) @ turned.T / n
            state[f"Q.{side}"] = q
    return {name: x.astype(F32) for name, x in state.items()}


def saved(folder, states, gradients, first=5, **group):
    """states: by weight; gradients: of each step, by weight."""
    save_file({name if field == "w" else f"{name}.{field}": x for name, state in states.items()
               for field, x in state.items()}, folder / "in.safetensors")
    rec = folder / "rec"
    rec.mkdir()
    steps = []
    for t, grads in enumerate(gradients, first):
        save_file(grads, rec / f"{t}.safetensors")
        steps.append({"step": t, "file": f"{t}.safetensors", "lr": [0.01]})
    (rec / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": "soap", "steps": steps,
        "param_groups": [{"params": list(states), "precondition_frequency": FREQUENCY, "max_precond_dim": LIMIT,
                          **group}]}))
    return folder / "in.safetensors", rec


SHAPES = {"both": (7, 10), "rows": (9, 40), "columns": (67, 8), "none": (12, 11), "one": (1, 1), "vector": (13,)}


@pytest.mark.parametrize("order", PROGRAMS.values())
@pytest.mark.parametrize("shampoo, normalize, correct", [(None, False, True), (0.8, True, True), (0.3, False, False)])
def test_steps_are_those_of_the_formula(tmp_path, order, shampoo, normalize, correct):
    rng = np.random.default_rng(3)
    states = {name: start(rng, shape) for name, shape in SHAPES.items()}
    gradients = [{name: rng.normal(size=shape).astype(F32) for name, shape in SHAPES.items()} for _ in range(7)]
    given = {} if shampoo is None else {"shampoo_beta": shampoo}
    source, rec = saved(tmp_path, states, gradients, betas=[0.9, 0.97], eps=1e-3, weight_decay=0.2,
                        normalize_grads=normalize, correct_bias=correct, **given)
    out = tmp_path / "out.safetensors"
    count = ("--count", "4") if order == "torch-cpu" else ()    # where no group says it, of the first step
    run_tersor("replay", source, rec, "-o", out, "--order", order, *count, check=0)
    got = load_file(out)
    for name, state in states.items():
        model = Model(state, order)
        for t, grads in enumerate(gradients, 5):
            model.step(grads[name], t, 0.01, 0.9, 0.97, 1e-3, 0.2, 0.97 if shampoo is None else shampoo, normalize,
                       correct)
        for field, x in model.s.items():
            assert nmse(x, got[name if field == "w" else f"{name}.{field}"]) < 1e-11, (name, field)


@pytest.mark.parametrize("order", PROGRAMS.values())
def test_signs_and_order_of_columns_do_not_move_weights(tmp_path, order):
    """Signs change no bit, since products only change theirs; another order adds them in another one."""
    rng = np.random.default_rng(4)
    state = start(rng, (9, 8))
    gradients = [{"w": rng.normal(size=(9, 8)).astype(F32)} for _ in range(5)]
    signs, places = rng.choice([-1, 1], 9).astype(F32), rng.permutation(9)
    turned, moved = dict(state), dict(state)
    turned["Q.0"], moved["Q.0"] = state["Q.0"] * signs, np.ascontiguousarray(state["Q.0"][:, places])
    moved["exp_avg_sq"] = state["exp_avg_sq"][places]
    if order == "torch-cpu":        # whose momentum is in the bases
        turned["exp_avg"], moved["exp_avg"] = state["exp_avg"] * signs[:, None], state["exp_avg"][places]
    results = []
    for name, each in ("plain", state), ("turned", turned), ("moved", moved):
        (tmp_path / name).mkdir()
        source, rec = saved(tmp_path / name, {"w": each}, gradients)
        run_tersor("replay", source, rec, "-o", tmp_path / f"{name}.safetensors", "--order", order, "--count", "4",
                   check=0)
        results.append(load_file(tmp_path / f"{name}.safetensors"))
    assert not (signs == 1).all() and nmse(state["w"], results[0]["w"]) > 1e-6
    for name, x in results[0].items():
        np.testing.assert_array_equal(x, results[1][name])      # a new basis has its own signs ...
        assert nmse(x, results[2][name]) < 1e-11, name          # ... and its own order


def test_factors_of_zeros_and_of_rank_1_have_orthogonal_bases(tmp_path):
    rng = np.random.default_rng(5)
    shapes = {"dead": (6, 8), "thin": (9, 1), "tiny": (5, 7), "huge": (6, 6)}
    states = {name: start(rng, shape) for name, shape in shapes.items()}
    for state in states.values():
        for side in (0, 1):
            state[f"GG.{side}"] *= 0
    grads = {name: rng.normal(size=shape).astype(F32) for name, shape in shapes.items()}
    grads["dead"] *= 0
    grads["tiny"] *= F32(1e-21)
    grads["huge"] *= F32(1e16)
    source, rec = saved(tmp_path, states, [grads] * 4)
    run_tersor("replay", source, rec, "-o", tmp_path / "out.safetensors", "--count", "4", check=0)
    got = load_file(tmp_path / "out.safetensors")
    for name, shape in shapes.items():
        for side, n in enumerate(shape):
            q = got[f"{name}.Q.{side}"].astype(np.float64)
            assert np.abs(q.T @ q - np.eye(n)).max() < 2e-6, (name, side)


# --- Refusals -----------------------------------------------------------------------------------------

def changed(tmp_path, change=None, group=None, gradients=3, shape=(6, 8), **kwargs):
    rng = np.random.default_rng(6)
    state = start(rng, shape)
    if change:
        change(state)
    grads = [{"w": rng.normal(size=shape).astype(F32)} for _ in range(gradients)]
    return saved(tmp_path, {"w": state}, grads, **(group or {}), **kwargs)


@pytest.mark.parametrize("change, args, words", [
    (lambda s: s.pop("GG.1"), (), "tensor w: found no GG.1, expected one by max_precond_dim 10, without merge_dims and"),
    (lambda s: s.pop("Q.0"), (), "tensor w: found no Q.0, expected one"),
    (lambda s: [s.pop(x) for x in ("GG.0", "GG.1", "Q.0", "Q.1")], (), "tensor w: found no GG.0, expected one"),
    (lambda s: [s.pop(x) for x in ("exp_avg", "exp_avg_sq")], (), "found no exp_avg and exp_avg_sq to begin with"),
    (lambda s: s.update(momentum_buffer=s.pop("exp_avg")), (), "found no exp_avg and exp_avg_sq to begin with"),
    (lambda s: s.update({"GG.0": np.zeros((6, 8), F32)}), (), "w.GG.0: found F32 of shape [6, 8], expected F32 of [6, 6]"),
    (lambda s: s.update({"Q.1": s["Q.1"].astype(np.float16)}), (), "w.Q.1: found F16 of shape [8, 8], expected F32"),
    (None, ("--zero-state",), "expected those of soap: replay does not make its first eigenbases"),
    (None, ("--hyper", "max_precond_dim=7"), "found GG.1, expected none by max_precond_dim 7"),
    (None, (), "found no step beside its state, expected one, as its authors' soap has it"),
    (lambda s: s.update(step=np.full((), 4, F32)), ("--order", "pytorch-optimizer"), "found a step beside its state, expected none"),
    (None, ("--order", "pytorch-optimizer", "--count", "0"), "found no step before these"),
    (None, ("--order", "gefen", "--count", "4"), "the optimizer is soap, which the order gefen does not have"),
    (None, ("--momentum", "ratio8", "--count", "4"), "which is in another basis"),
    (None, ("--variance", "blockmean", "--count", "4", "--few-bins"), "no step by the means of blocks in other bases"),
    (None, ("--hyper", "precondition_frequency=2.5"), "expected a whole number from 1 to 2^31"),
    (None, ("--hyper", "shampoo_beta=1"), "expected a number from 0 to below 1"),
    (None, ("--hyper", "maximize=1"), "soap has no hyperparameter maximize"),
])
def test_what_is_refused(tmp_path, change, args, words):
    source, rec = changed(tmp_path, change)
    done = run_tersor("replay", source, rec, *args)
    assert done.returncode in (2, 3) and words in one_line_error(done)


@pytest.mark.parametrize("group, words", [
    ({"merge_dims": True}, "merge_dims: found true, which this optimizer cannot be replayed with"),
    ({"precondition_1d": 1}, "precondition_1d: found true"),
    ({"maximize": True}, "maximize: found true, which soap cannot be replayed with"),
    ({"normalize_grads": 2}, "normalize_grads: found 2, expected true or false"),
    ({"max_precond_dim": 0}, "max_precond_dim: found 0, expected a whole number"),
    ({"shampoo_beta": -1}, "shampoo_beta: found -1, expected a number from 0 to below 1"),
    ({"shampoo_beta": "x"}, "shampoo_beta: found \"x\", expected a finite number"),
    ({"warmup": 3}, "found the hyperparameter warmup, which no optimizer of tersor has"),
])
def test_what_a_recording_may_not_say(tmp_path, group, words):
    source, rec = changed(tmp_path, group=group)
    assert words in one_line_error(run_tersor("replay", source, rec, "--count", "4"))


def test_a_vector_with_a_factor_and_a_tensor_of_a_convolution_are_refused(tmp_path):
    def with_factor(state):
        state["GG.0"] = state["Q.0"] = np.eye(5, dtype=F32)

    for name, shape, change, words in (
            ("vector", (5,), with_factor, "found GG.0, expected none"),
            ("kernel", (4, 3, 2), None, "found 3 dimensions, expected at most 2 of a matrix for soap")):
        (tmp_path / name).mkdir()
        source, rec = changed(tmp_path / name, change, shape=shape)
        assert words in one_line_error(run_tersor("replay", source, rec, "--count", "4", check=3))


def test_a_group_counts_steps_without_a_gradient(tmp_path):
    """pytorch_optimizer's bias correction goes on; of the authors' program a parameter has its own."""
    rng = np.random.default_rng(7)
    states = {name: start(rng, (4, 4)) for name in "ab"}
    grads = [{name: rng.normal(size=(4, 4)).astype(F32) for name in names} for names in ("ab", "a", "ab")]
    source, rec = saved(tmp_path, states, grads)
    run_tersor("replay", source, rec, "--count", "4", check=0)
    done = run_tersor("replay", source, rec, "--order", "pytorch-optimizer", check=3)
    assert "tensor b: found steps without its gradient, expected none" in one_line_error(done)


@pytest.mark.parametrize("name, value", [("shampoo_beta", 0.5), ("precondition_frequency", 7)])
def test_what_the_state_says_is_not_contradicted(tmp_path, name, value):
    folder = SOAP / "authors"
    done = run_tersor("replay", folder / "before.pt", folder / "recording", "--hyper", f"{name}={value}", check=3)
    assert f"{name} of embed.weight: found" in one_line_error(done) and f"expected {value}" in done.stderr


def test_another_beta2_is_not_that_of_the_factors(tmp_path):
    """Which programs keep in the state; a new one would be refused by the test above."""
    folder = SOAP / "authors"
    run_tersor("replay", folder / "before.pt", folder / "recording", "--betas", "0.9,0.99", check=0)
    run_tersor("replay", folder / "before.pt", folder / "recording", "--vary", "beta2=0.9,0.99", check=0)


def test_factors_that_overflow_are_not_written(tmp_path):
    """Sums of ten squares do; one square of a variance does not."""
    source, rec = changed(tmp_path, shape=(6, 10))
    big = np.random.default_rng(8).choice([-6.2e18, 6.2e18], (6, 10)).astype(F32)
    save_file({"w": big}, rec / "7.safetensors")
    args = ("replay", source, rec, "--count", "4")
    done = run_tersor(*args, "-o", tmp_path / "out.safetensors", check=3)
    assert "after step 7 found" in one_line_error(done) and "of its factors and bases that are not" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()
    assert "of its factors and bases are not finite" in run_tersor(*args, check=0).stderr


@pytest.mark.parametrize("suffix, words", [(".pt", "data is damaged: found CRC-32"), (".safetensors", "is damaged: found hash")])
def test_a_damaged_factor_is_found_before_the_first_step(tmp_path, suffix, words):
    folder, path = SOAP / "authors", tmp_path / f"in{suffix}"
    factor = plain(folder / "before.pt", tmp_path)["up.weight.GG.1"].tobytes()
    if suffix == ".pt":
        path.write_bytes((folder / "before.pt").read_bytes())
    else:
        run_tersor("pack", folder / "before.pt", "-o", path, check=0)
    data = bytearray(path.read_bytes())
    assert data.count(factor) == 1
    data[data.index(factor) + 5] ^= 1
    path.write_bytes(data)
    done = run_tersor("replay", path, folder / "recording", "--count", "8", check=3)
    assert "up.weight.GG.1" in one_line_error(done) and words in done.stderr


def test_a_matrix_without_elements_has_no_factor(tmp_path):
    def as_saved(state):
        del state["GG.0"], state["Q.0"]
        state["GG.1"] = state["Q.1"] = np.eye(8, dtype=F32)

    source, rec = changed(tmp_path, as_saved, shape=(0, 8))
    done = run_tersor("replay", source, rec, "-o", tmp_path / "out.safetensors", "--count", "4", check=3)
    assert "tensor w: found GG.1, expected none" in one_line_error(done)


def test_other_optimizers_still_refuse_such_a_state():
    folder = SOAP / "authors"
    done = run_tersor("replay", folder / "before.pt", folder / "recording", "--optimizer", "adamw", check=3)
    assert "is a momentum that its variance does not divide, as with SOAP" in one_line_error(done)


def test_groups_that_count_other_steps_are_refused(tmp_path):
    """Of one optimizer all do the same, and a replay leaves one number in all of them."""
    folder = SOAP / "pytorch_optimizer"
    for name, second, status in ("same", 9, 0), ("other", 8, 3):
        root = torchfile.load(folder / "before.pt")
        groups = root["optimizer"]["param_groups"]
        pairs = dict(groups[0].pairs)
        groups[0] = torchfile.Dict({**pairs, "params": [0, 1]})
        groups.append(torchfile.Dict({**pairs, "params": [2, 3], "step": second}))
        path, out = tmp_path / f"{name}.pt", tmp_path / f"{name}-out.pt"
        path.write_bytes(torchfile.pt(root))
        done = run_tersor("replay", path, folder / "recording", "-o", out, check=status)
        if status:
            assert "param_groups: found step" in one_line_error(done)
        else:
            assert [g["step"] for g in torchfile.load(out)["optimizer"]["param_groups"]] == [18, 18]
