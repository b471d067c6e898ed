"""Replay by the rules of Gefen and Muon, against what the programs made of the same gradients."""
import base64
import json

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

import packed_text
from conftest import DATA, run_tersor, safetensors_bytes
from replay_model import fma
from test_peers import GEFEN, NAMES, gefen, moments, write
from test_reader import ZEROS, sealed, split

F32, F64 = np.float32, np.float64
TINY = DATA / "tiny-gpt"
RUN = ("replay", TINY / "checkpoint.pt", TINY / "recording")


@pytest.fixture(scope="module")
def golden():
    with np.load(DATA / "golden" / "gefen-steps.npz") as data:
        return dict(data)


def record(root, golden, case, ntensors, nsteps):
    """The start and the gradients of a case as files; -> the arguments for both."""
    (root / "rec").mkdir()
    save_file({f"w{i}": golden[f"{case}_w0_{i}"] for i in range(ntensors)}, root / "in.safetensors")
    for t in range(1, nsteps + 1):
        gradients = {f"w{i}": golden[f"{case}_g{t}_{i}"] for i in range(ntensors)}
        save_file(gradients, root / "rec" / f"step-{t}.safetensors")
    return root / "in.safetensors", root / "rec"


def planes(path):
    arrays = dict(safetensors.deserialize(path.read_bytes()))
    return {name: np.frombuffer(a["data"], F32 if a["dtype"] == "F32" else np.uint8) for name, a in arrays.items()}


def near(x, y):
    """The largest difference, relative to the largest value."""
    return np.abs(x.ravel().astype(F64) - y.ravel()).max() / np.abs(y).max()


COMPAT = ("--zero-state", "--weights", "f32", "--momentum", "gefen8", "--variance", "blockmean", "--order", "gefen",
         "--optimizer", "gefen", "--lr", "1e-3", "--betas", "0.9,0.95", "--weight-decay", "0.1", "--few-bins")


def test_gefen_steps_as_its_program_does(tmp_path, golden):
    """Every index of five steps: blocks, codebook and momenta are its program's."""
    start, recording = record(tmp_path, golden, "f32", 3, 5)
    nindices = 0
    for t in range(1, 6):
        out = tmp_path / f"{t}.safetensors"
        run_tersor("replay", start, recording, "-o", out, "--steps", f"1..{t}", *COMPAT, check=0)
        got = planes(out)
        for i in range(3):
            np.testing.assert_array_equal(got[f"w{i}.exp_avg::quantized"], golden[f"f32_m{t}_{i}"])
            nindices += golden[f"f32_m{t}_{i}"].size
            assert near(got[f"w{i}.exp_avg::scales"], golden[f"f32_mag{t}_{i}"]) <= 1e-6
            assert near(got[f"w{i}.exp_avg_sq::blockmean"], golden[f"f32_v{t}_{i}"]) <= 1e-6
            assert near(got[f"w{i}"], golden[f"f32_w{t}_{i}"]) <= 1e-6
    assert nindices == 8945


def narrow_recording(root, golden, ntensors, nsteps):
    """The same of BF16, which numpy has not."""
    (root / "rec").mkdir()
    save_file({f"w{i}": golden[f"bf16_w0_{i}"] for i in range(ntensors)}, root / "in.safetensors")
    for t in range(1, nsteps + 1):
        header, data = {}, b""
        for i in range(ntensors):
            g = golden[f"bf16_g{t}_{i}"]
            header[f"w{i}"] = {"dtype": "BF16", "shape": list(g.shape), "data_offsets": [len(data), len(data) + g.nbytes]}
            data += g.tobytes()
        (root / "rec" / f"step-{t}.safetensors").write_bytes(safetensors_bytes(header, data))
    return root / "in.safetensors", root / "rec"


def test_gefen_steps_in_bf16_as_its_program_does(tmp_path, golden):
    """Its state has the type of the gradients.  99.9% of the indices are equal, all within one entry."""
    start, recording = narrow_recording(tmp_path, golden, 3, 3)
    same = total = 0
    for t in range(1, 4):
        out = tmp_path / f"{t}.safetensors"
        run_tersor("replay", start, recording, "-o", out, "--steps", f"1..{t}", "--zero-state", "--weights", "bf16",
                   "--momentum", "gefen8", "--variance", "blockmean", "--order", "gefen", "--optimizer", "gefen",
                   "--lr", "1e-3", "--betas", "0.9,0.999", "--few-bins", check=0)
        got = planes(out)
        for i in range(3):
            indices = got[f"w{i}.exp_avg::quantized"].astype(int)
            off = np.abs(indices - golden[f"bf16_m{t}_{i}"].astype(int))
            assert off.max() <= 1, (t, i)
            same, total = same + np.count_nonzero(off == 0), total + off.size
            np.testing.assert_array_equal(got[f"w{i}.exp_avg::scales"], golden[f"bf16_mag{t}_{i}"])
            assert near(got[f"w{i}.exp_avg_sq::blockmean"], golden[f"bf16_v{t}_{i}"]) <= 2 ** -8
            bits = got[f"w{i}"].view(np.uint16).astype(int)
            assert np.abs(bits - golden[f"bf16_w{t}_{i}"].ravel().astype(int)).max() <= 1, (t, i)
    assert total == 5367 and same >= 0.999 * total, (same, total)


# --- Forms of the state -------------------------------------------------------------------------------

@pytest.mark.parametrize("args", [("--state", "gefen"), ("--state", "gefen", "--optimizer", "gefen"),
                                  ("--momentum", "softsign8", "--variance", "blockmean"),
                                  ("--momentum", "gefen8")])
def test_8_steps_and_8_more_are_16(tersor, tmp_path, args):
    whole, half, both = (tmp_path / f"{name}.safetensors" for name in ("whole", "half", "both"))
    again = args[2:] if "--optimizer" in args else ()
    tersor(*RUN, *args, "-o", whole, check=0)
    tersor(*RUN, *args, "-o", half, "--steps", "..408", check=0)
    tersor("replay", half, TINY / "recording", "-o", both, "--steps", "409..", *again, check=0)
    assert both.read_bytes() == whole.read_bytes()


def means(x, block):
    return x.astype(F64).reshape(-1, block).mean(1)


def test_adamw_over_means_is_gefens_rule(tersor, tmp_path):
    """One step of AdamW from the checkpoint in binary64, with a variance per block and no codes: within
    rounding."""
    out = tmp_path / "out.safetensors"
    args = ("--weights", "f32", "--momentum", "f32", "--variance", "blockmean", "--steps", "401")
    tersor("replay", TINY / "checkpoint.safetensors", TINY / "recording", *args, "-o", out, check=0)
    learned = json.loads(tersor("codebook", TINY / "recording", "--json", check=0).stdout)
    block = {t["name"]: t["period"] for t in learned["tensors"]}
    manifest = json.loads((TINY / "recording" / "manifest.json").read_text())
    before, after = load_file(TINY / "checkpoint.safetensors"), load_file(out)
    step = manifest["steps"][0]
    lr = dict(zip(["0", "1"], step["lr"]))
    checked = 0
    for group, h in enumerate(manifest["param_groups"]):
        for name in h["params"]:
            g = gradients(TINY / "recording" / step["file"])[name].astype(F64).ravel()
            b1, b2, p = *h["betas"], block[name]
            m = b1 * before[f"{name}.exp_avg"].ravel().astype(F64) + (1 - b1) * g
            v = b2 * means(before[f"{name}.exp_avg_sq"].ravel(), p) + (1 - b2) * (g * g).reshape(-1, p).mean(1)
            np.testing.assert_allclose(after[f"{name}.exp_avg_sq::blockmean"], v, rtol=1e-6)
            step_size = lr[str(group)] / (1 - b1 ** 401)
            root = np.sqrt(np.repeat(v, p)) / np.sqrt(1 - b2 ** 401) + h["eps"]
            w = before[name].ravel() * (1 - lr[str(group)] * h["weight_decay"]) - step_size * m / root
            np.testing.assert_allclose(after[name].ravel(), w, rtol=1e-6, atol=1e-8)
            checked += w.size
    assert checked == 84288


def gradients(path):
    arrays = dict(safetensors.deserialize(path.read_bytes()))
    return {name: (np.frombuffer(a["data"], np.uint16).astype(np.uint32) << 16).view(F32)
            for name, a in arrays.items()}


def test_gefen_beside_other_states(tersor):
    """The figures beside others are those alone, and FP32's are AdamW's."""
    together = json.loads(tersor(*RUN, "--state", "flash,gefen", "--json", check=0).stdout)["states"]
    alone = json.loads(tersor(*RUN, "--state", "gefen", "--compare", "fp32", "--json", check=0).stdout)
    figures = together[1]
    assert figures["worst"] == alone["worst"]
    assert together[0]["worst"] != alone["worst"]


def test_the_compared_state_is_the_written_one(tersor, tmp_path):
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    tersor(*RUN, "--state", "gefen", "-o", a, check=0)
    tersor(*RUN, "--state", "gefen", "--compare", "fp32", "-o", b, check=0)
    assert a.read_bytes() == b.read_bytes()


# --- What is refused ----------------------------------------------------------------------------------

@pytest.mark.parametrize("args, why", [
    (("--momentum", "ratio8", "--variance", "blockmean"), "ratios are to the variance of each element"),
    (("--optimizer", "gefen", "--momentum", "ratio8"), "the step uses the momentum as it is stored"),
    (("--optimizer", "adam", "--state", "gefen"), "decays weights apart from the gradient"),
    (("--state", "gefen", "--order", "coat"), "has no step by the means of blocks"),
    (("--state", "gefen", "--group", "32"), "whose blocks are learned")])
def test_what_does_not_go_together_is_refused(tersor, args, why):
    done = tersor(*RUN, *args)
    assert done.returncode == 2 and why in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 or "was recorded with" in done.stderr


def changed(source, target, change):
    """A packed file with another text: change(text)."""
    header, data = split(source.read_bytes())
    header = json.loads(header)
    metadata = header["__metadata__"]
    text = packed_text.read(source)
    change(text)
    metadata |= {"tersor": json.dumps(packed_text.fold(text)), "tersor_check": ZEROS}
    target.write_bytes(sealed(json.dumps(header, separators=(",", ":")).encode(), data))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    out = tmp_path_factory.mktemp("packed") / "gefen.safetensors"
    run_tersor(*RUN, "--state", "gefen", "--steps", "..401", "-o", out, check=0)
    return out


def test_few_values_to_learn_from_are_refused(tersor, tmp_path):
    (tmp_path / "rec").mkdir()
    save_file({"w": np.ones(64, F32)}, tmp_path / "in.safetensors")
    save_file({"w": np.ones(64, F32)}, tmp_path / "rec" / "step-1.safetensors")
    run = ("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--state", "gefen", "--optimizer", "gefen",
           "--lr", "1e-3")
    done = tersor(*run, "-o", tmp_path / "out.safetensors")
    assert done.returncode == 3 and "found values in 1 bins of the histogram" in done.stderr
    assert "--few-bins" in done.stderr and not (tmp_path / "out.safetensors").exists()
    tersor(*run, "--few-bins", check=0)


def test_a_gradient_that_is_nan_teaches_nothing(tersor, tmp_path):
    (tmp_path / "rec").mkdir()
    g = np.linspace(-1, 1, 4096).astype(F32)
    g[7] = np.nan
    save_file({"w": g}, tmp_path / "in.safetensors")
    save_file({"w": g}, tmp_path / "rec" / "step-1.safetensors")
    save_file({"w": np.linspace(-1, 1, 4096).astype(F32)}, tmp_path / "rec" / "step-2.safetensors")
    done = tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--state", "gefen", "--optimizer",
                  "gefen", "--lr", "1e-3", "--on-nonfinite", "skip", "-o", tmp_path / "out.safetensors")
    assert done.returncode == 3 and "tensor w: found 1 values that are not finite" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


def test_blocks_that_do_not_divide_the_tensor_are_refused(tersor, tmp_path, packed):
    bad = tmp_path / "bad.safetensors"

    def lengthen(text):
        t = next(t for t in text["tensors"] if t["name"] == "h.0.c_attn.bias.exp_avg")
        assert t["group"] == 144
        t["group"] = 145
    changed(packed, bad, lengthen)
    done = tersor("replay", bad, TINY / "recording", "--steps", "402", "-o", tmp_path / "out.safetensors")
    assert done.returncode == 3, done.stderr
    assert "h.0.c_attn.bias" in done.stderr and "blocks of 145 elements, expected a divisor of its 144" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


def test_a_parameter_without_a_first_gradient_is_f32_and_named(tersor, tmp_path):
    (tmp_path / "rec").mkdir()
    w = np.linspace(-1, 1, 4096).astype(F32)
    save_file({"a": w, "b": w}, tmp_path / "in.safetensors")
    save_file({"a": w}, tmp_path / "rec" / "step-1.safetensors")
    save_file({"a": w, "b": w}, tmp_path / "rec" / "step-2.safetensors")
    out = tmp_path / "out.safetensors"
    done = tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--state", "gefen", "--optimizer",
                  "gefen", "--lr", "1e-3", "-o", out, check=0)
    assert "step 1 has no gradients to learn the blocks of 2 states from: these are f32" in done.stderr
    got = planes(out)
    assert "b.exp_avg" in got and "a.exp_avg::quantized" in got


def test_a_codebook_that_is_not_ascending_is_refused(tersor, tmp_path, packed):
    bad = tmp_path / "bad.safetensors"

    def swap(text):
        entries = np.frombuffer(base64.b64decode(text["codebook"]), F32).copy()
        entries[[100, 101]] = entries[[101, 100]]
        text["codebook"] = base64.b64encode(entries.tobytes()).decode()
    changed(packed, bad, swap)
    done = tersor("replay", bad, TINY / "recording", "--steps", "402", "-o", tmp_path / "out.safetensors")
    assert done.returncode == 3 and "codebook is not ascending" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("lost, kept", [("exp_avg", "exp_avg_sq"), ("exp_avg_sq", "exp_avg")])
def test_a_variance_without_its_momentum_is_refused(tersor, tmp_path, packed, lost, kept):
    plain, bad = tmp_path / "plain.safetensors", tmp_path / "bad.safetensors"
    tersor("unpack", packed, "-o", plain, check=0)
    state = load_file(plain)
    del state[f"wte.weight.{lost}"]
    save_file(state, bad)
    done = tersor("replay", bad, TINY / "recording", "--state", "gefen", "--steps", "402", "-o",
                  tmp_path / "out.safetensors")
    assert done.returncode == 3, done.stderr
    assert f"tensor wte.weight: found no {'momentum' if lost == 'exp_avg' else 'variance'} of this weight" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


# --- Muon ---------------------------------------------------------------------------------------------

MUON = ("--zero-state", "--weights", "f32", "--lr", "2e-3")
A, B, C = 3.4445, -4.7750, 2.0315


def bf16(x):
    """RN to BF16, of numbers that are not near its limits."""
    bits = np.asarray(x, F32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(F32)


def orthogonal(x, eps=1e-7):
    """Five rounds of Newton and Schulz in BF16, sums in binary64."""
    x = bf16(x)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = bf16(x / max(bf16(F32(np.sqrt((x.astype(F64) ** 2).sum()))), bf16(F32(eps))))
    for _ in range(5):
        a = bf16(x.astype(F64) @ x.T.astype(F64))
        b = bf16(B * a + C * (a.astype(F64) @ a))
        x = bf16(A * x + b.astype(F64) @ x)
    return x.T if tall else x


def test_orthogonalisation_is_within_the_bound(tmp_path, golden):
    """A step of lr 1 from zero without momentum is the orthogonalised gradient."""
    save_file({"w": np.zeros((12, 20), F32)}, tmp_path / "in.safetensors")
    (tmp_path / "rec").mkdir()
    save_file({"w": golden["ns_x"]}, tmp_path / "rec" / "step-1.safetensors")
    out = tmp_path / "out.safetensors"
    run_tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", "-o", out, "--zero-state", "--optimizer",
               "muon", "--lr", "1", "--weight-decay", "0", "--hyper", "momentum=0", check=0)
    assert near(-load_file(out)["w"], golden["ns_y"]) <= 2 ** -6
    assert near(-load_file(out)["w"], orthogonal(golden["ns_x"])) <= 2 ** -7


def test_gefen_muon_steps_as_its_program_does(tmp_path, golden):
    """Every index of three steps; weights by the bound of the orthogonalisation."""
    start, recording = record(tmp_path, golden, "muon", 2, 3)
    nindices = 0
    for t in range(1, 4):
        out = tmp_path / f"{t}.safetensors"
        run_tersor("replay", start, recording, "-o", out, "--steps", f"1..{t}", *MUON, "--momentum", "gefen8",
                   "--order", "gefen", "--optimizer", "gefen-muon", check=0)
        got = planes(out)
        for i in range(2):
            name = f"w{i}.momentum_buffer"
            np.testing.assert_array_equal(got[f"{name}::quantized"], golden[f"muon_m{t}_{i}"])
            nindices += golden[f"muon_m{t}_{i}"].size
            assert near(got[f"{name}::scales"], golden[f"muon_mag{t}_{i}"]) <= 1e-6
            rows, columns = golden[f"muon_w0_{i}"].shape
            off = np.abs(got[f"w{i}"].reshape(rows, columns) - golden[f"muon_w{t}_{i}"]).max()
            assert off <= t * 2e-3 * max(1, rows / columns) ** 0.5 * 2 ** -6 * 0.5, (t, i, off)
    assert nindices == 5256


@pytest.mark.parametrize("shape", [(24, 48), (48, 24), (1, 40), (33, 1), (67, 70)])
@pytest.mark.parametrize("args, match, nesterov", [((), 0, 1), (("--hyper", "match_rms=1", "--hyper", "nesterov=0"), 1, 0)])
def test_muon_is_that_of_pytorch(tmp_path, shape, args, match, nesterov):
    rng = np.random.default_rng(3)
    w, m, mu, lr, decay = rng.normal(size=shape).astype(F32), np.zeros(shape), 0.95, 2e-3, 0.1
    start, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({"w": w}, start)
    (tmp_path / "rec").mkdir()
    ratio = 0.2 * np.sqrt(max(shape)) if match else np.sqrt(max(1, shape[0] / shape[1]))
    want = w.astype(F64)
    for t in (1, 2, 3):
        g = rng.normal(size=shape).astype(F32)
        save_file({"w": g}, tmp_path / "rec" / f"step-{t}.safetensors")
        m = m + (1 - mu) * (g - m)
        update = g + mu * (m - g) if nesterov else m
        want = want * (1 - lr * decay) - lr * ratio * orthogonal(update)
    run_tersor("replay", start, tmp_path / "rec", "-o", out, *MUON, "--optimizer", "muon", *args, check=0)
    got = load_file(out)
    assert np.abs(got["w"] - want).max() <= 3 * lr * ratio * 2 ** -7
    assert near(got["w.momentum_buffer"], m) <= 1e-6


def product(a, b):
    """Terms are added in ascending order in FP32; each is exact."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for k in range(a.shape[1]):
        total += a[:, k:k + 1] * b[k]
    return total


def squares(x):
    """Their sum in binary64, by pieces of 64."""
    total = F64(0)
    for first in range(0, x.size, 64):
        piece = F64(0)
        for value in x.ravel()[first:first + 64].astype(F64):
            piece += value * value
        total += piece
    return total


def rounded(x):
    x = bf16(x)
    return np.where(np.abs(x) < F32(2.0 ** -64), F32(0), x)


def moved_by_muon(w, update, lr, decay, eps=1e-7):
    """docs/replay.md, every operation in its order."""
    rows, columns = w.shape
    x = bf16(update if rows <= columns else update.T)
    x = rounded(x / max(bf16(F32(np.sqrt(squares(x)))), bf16(F32(eps))))
    for _ in range(5):
        a = rounded(product(x, x.T))
        b = rounded(F32(B) * a + F32(C) * product(a, a))
        x = rounded(F32(A) * x + product(b, x))
    x = x if rows <= columns else x.T
    return fma(F32(-(lr * max(1, rows / columns) ** 0.5)), x, w * F32(1 - lr * decay))


@pytest.mark.parametrize("optimizer", ["muon", "gefen-muon"])
@pytest.mark.parametrize("shape", [(24, 48), (67, 33), (1, 40), (9, 1030)])
def test_a_step_of_a_matrix_has_the_bits_of_the_formula(tmp_path, shape, optimizer):
    """Some weights are 0, where even what is tiny shows; in the second step the terms of the update cancel."""
    rng = np.random.default_rng(11)
    w, m = rng.normal(size=shape).astype(F32), np.zeros(shape, F32)
    w[0, ::2] = 0
    save_file({"w": w}, tmp_path / "in.safetensors")
    (tmp_path / "rec").mkdir()
    first = (1e4 * rng.normal(size=shape)).astype(F32)
    first[0] *= F32(1e-24)
    for t in (1, 2):
        g = first if t == 1 else (-0.95 ** 2 / (1 - 0.95 ** 2) * m).astype(F32)
        save_file({"w": g}, tmp_path / "rec" / f"step-{t}.safetensors")
        m = fma(F32(1 - 0.95), g - m, m)
        u = fma(F32(0.95) - F32(1), m - g, m) if optimizer == "muon" else fma(F32(1 - 0.95), g, F32(0.95) * m)
        w = moved_by_muon(w, u, 2e-3, 0.1)
    out = tmp_path / "out.safetensors"
    run_tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", "-o", out, *MUON, "--optimizer", optimizer,
               check=0)
    got = load_file(out)
    np.testing.assert_array_equal(got["w.momentum_buffer"].view(np.uint32), m.view(np.uint32))
    np.testing.assert_array_equal(got["w"].view(np.uint32), w.view(np.uint32))


def test_recordings_of_muon_and_adamw_are_replayed_one_after_the_other(tmp_path):
    """What torch.optim.Muon and AdamW made of one model in 6 steps, from the state of both after 2."""
    folder, weights = DATA / "torch" / "muon", {}
    run_tersor("replay", folder / "before.pt", folder / "muon", "-o", tmp_path / "half.pt", check=0)
    run_tersor("replay", tmp_path / "half.pt", folder / "adamw", "-o", tmp_path / "out.pt", check=0)
    for path in tmp_path / "out.pt", folder / "after.pt", folder / "before.pt":
        run_tersor("convert", path, "-o", tmp_path / f"{path.stem}.safetensors", check=0)
        weights[path.stem] = load_file(tmp_path / f"{path.stem}.safetensors")
    got, want, before = (weights[stem] for stem in ("out", "after", "before"))
    assert set(got) == set(want) and sum(name.endswith("momentum_buffer") for name in got) == 2
    for name, x in want.items():
        if name.endswith("momentum_buffer"):
            np.testing.assert_array_equal(got[name], x)
        elif x.shape in ((40, 24), (24, 40)):
            assert np.abs(x - before[name]).max() > 0.01
            assert np.abs(got[name] - x).max() <= 2 ** -9 * 6 * 0.02 * max(1, x.shape[0] / x.shape[1]) ** 0.5
        else:
            assert near(got[name], x) <= 1e-6


def test_muon_takes_matrices_only(tersor, tmp_path):
    done = tersor(*RUN, "--optimizer", "muon", "--zero-state", "--lr", "1e-3")
    assert done.returncode == 3 and "expected 2 of a matrix for muon" in done.stderr


@pytest.mark.parametrize("optimizer, args", [("muon", ()), ("muon", ("--momentum", "softsign8")),
                                             ("gefen-muon", ("--state", "gefen"))])
def test_matrices_8_steps_and_8_more_are_16(tersor, tmp_path, optimizer, args):
    rng = np.random.default_rng(5)
    shapes = {"a": (48, 96), "b": (130, 40)}
    save_file({name: rng.normal(size=s).astype(F32) for name, s in shapes.items()}, tmp_path / "in.safetensors")
    (tmp_path / "rec").mkdir()
    for t in range(1, 17):
        save_file({name: rng.normal(size=s).astype(F32) for name, s in shapes.items()},
                  tmp_path / "rec" / f"step-{t:02}.safetensors")
    whole, half, both, one, compared = (tmp_path / f"{name}.safetensors"
                                        for name in ("whole", "half", "both", "one", "compared"))
    base = ("--optimizer", optimizer, "--lr", "1e-3")
    tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", *base, *args, "-o", whole, check=0)
    tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", *base, *args, "-o", half, "--steps", "..8", check=0)
    tersor("replay", half, tmp_path / "rec", *base, "-o", both, "--steps", "9..", check=0)
    assert both.read_bytes() == whole.read_bytes()
    tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", *base, *args, "-o", one, "-j", "1",
           env={"TERSOR_ISA": "base"}, check=0)
    assert one.read_bytes() == whole.read_bytes()
    tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", *base, *args, "-o", compared, "--compare", "fp32",
           check=0)
    assert compared.read_bytes() == whole.read_bytes()


# --- States of the program ----------------------------------------------------------------------------

def nearest(codebook, z):
    right = np.clip(np.searchsorted(codebook, z), 0, 255)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(z - codebook[left]) <= np.abs(z - codebook[right]), left, right)


@pytest.mark.parametrize("args", [("--optimizer", "gefen"), ("--optimizer", "gefen", "--state", "gefen")])
def test_a_state_of_gefens_program_goes_on(tmp_path, args):
    """Its blocks, codebook and step are used: one step more in numpy gives the same indices."""
    source = write(tmp_path, gefen())
    rng = np.random.default_rng(1)
    gradients = {name: rng.normal(size=GEFEN[f"f32_w_{i}"].shape).astype(F32) for i, name in enumerate(NAMES)}
    (tmp_path / "rec").mkdir()
    save_file(gradients, tmp_path / "rec" / "step-6.safetensors")
    out = tmp_path / "out.safetensors"
    run_tersor("replay", source, tmp_path / "rec", "-o", out, *args, "--weights", "f32", "--lr", "1e-3", "--betas",
               "0.9,0.95", "--weight-decay", "0.1", check=0)
    got, book = planes(out), GEFEN["f32_codebook"]
    same = total = 0
    for i, name in enumerate(NAMES):
        m, v = (x.ravel().astype(F32) for x in moments("f32", i))
        g, p = gradients[name].ravel(), int(GEFEN[f"f32_period_{i}"])
        m = m + F32(0.1) * (g - m)
        block = m.size // GEFEN[f"f32_mag_{i}"].size
        mag = np.abs(m).reshape(-1, block).max(1)
        index = nearest(book, m / np.repeat(mag, block))
        found = got[f"{name}.m_codebook::quantized"].astype(int)
        assert np.abs(found - index).max() <= 1
        same, total = same + np.count_nonzero(found == index), total + index.size
        assert near(got[f"{name}.m_codebook::scales"], mag) <= 1e-6
        v = np.repeat(0.95 * v.reshape(-1, p)[:, 0] + 0.05 * (g.astype(F64) ** 2).reshape(-1, p).mean(1), p)
        w = GEFEN[f"f32_w_{i}"].ravel() * (1 - 1e-4) - 1e-3 / (1 - 0.9 ** 6) * book[found] * np.repeat(mag, block) / (
            np.sqrt(v / (1 - 0.95 ** 6)) + 1e-8)
        assert near(got[name], w) <= 1e-6
    assert same >= 0.999 * total and total == 1789


def test_the_result_depends_on_neither_threads_nor_processor(tersor, tmp_path):
    outs = []
    for n, env in (("1", "base"), ("2", "avx2"), ("3", None)):
        outs.append(tmp_path / f"{n}.safetensors")
        tersor(*RUN, "--state", "gefen", "-o", outs[-1], "-j", n, env={"TERSOR_ISA": env} if env else {}, check=0)
    assert len({out.read_bytes() for out in outs}) == 1
