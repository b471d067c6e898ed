"""States as the programs of COAT and Gefen keep them: read, decoded, packed; what does not fit is refused."""
import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from conftest import DATA, one_line_error, run_tersor
from torchfile import ordered, pt, same, tensor, untyped
import torchfile

tmp_path = torchfile.tmp_path
F32 = np.float32
KERNEL = dict(np.load(DATA / "golden" / "coat.npz"))            # of the real kernel
PORT = dict(np.load(DATA / "golden" / "coat-expand.npz"))       # of its port, with its edges
VALUES = dict(np.load(DATA / "golden" / "coat2.npz"))


def coat(codes, dtype="float8_e4m3fn", shape=None, **parts):
    """The state of one moment: the names of parts are those of the program, without exp_avg."""
    state = {"exp_avg": untyped(dtype, codes.tobytes(), shape or codes.shape)}
    return state | {f"{part}_exp_avg": tensor(np.asarray(x, F32)) for part, x in parts.items()}


def state_dict(momentum, variance, shape):
    state = {"step": 5, **momentum, **{k.replace("exp_avg", "exp_avg_sq"): v for k, v in variance.items()}}
    return {"model": ordered({"w": tensor(np.ones(shape, F32))}), "optimizer": {
        "state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0]}]}}


def decoded(codes, values, s, k, c, group=128):
    """sign * |code * s|^(1/k) * c in 64 bits of precision, rounded once."""
    n = codes.size
    s, k, c = (np.repeat(np.asarray(x, np.longdouble), group)[:n] for x in (s, k, c))
    code = values[codes & 0x7f].astype(np.longdouble)
    constant = np.isinf(k) | (k == 0)
    with np.errstate(all="ignore"):
        x = np.where(constant, 1, np.power(code * s, 1 / np.where(constant, 1, k))) * c
    return np.where(codes & 0x80, -x, x).astype(F32)


def unpacked(path, *args):
    out = path.with_name("out.safetensors")
    run_tersor("unpack", path, "-o", out, "-f", "-qq", *args, check=0)
    return load_file(out)


def write(folder, value):
    path = folder / "in.pt"
    path.write_bytes(pt(value))
    return path


def of_kernel(t, moment, shape=None):
    return coat(KERNEL[f"{moment}{t}"], shape=shape, scale=KERNEL[f"{moment}s{t}"],
                expand=KERNEL[f"{moment}k{t}"], sqrt_minmax=KERNEL[f"{moment}c{t}"])


@pytest.mark.parametrize("t", [1, 3, 5])
@pytest.mark.parametrize("shape", [(4786,), (2, 2393)])
def test_states_of_coats_kernel_are_decoded(tmp_path, t, shape):
    path = write(tmp_path, state_dict(of_kernel(t, "m", shape), of_kernel(t, "v", shape), shape))
    found = unpacked(path)
    assert set(found) >= {"w", "w.exp_avg", "w.exp_avg_sq"} and not any("expand" in n or "scale" in n for n in found)
    for moment, name in (("m", "w.exp_avg"), ("v", "w.exp_avg_sq")):
        want = decoded(KERNEL[f"{moment}{t}"], VALUES["e4m3_values"], *(KERNEL[f"{moment}{x}{t}"] for x in "skc"))
        assert found[name].shape == shape
        np.testing.assert_array_equal(found[name].ravel(), want)


def test_the_decoded_moments_are_those_of_training(tmp_path):
    """m and v of the first step are known: (1 - beta) g and (1 - beta) g^2."""
    g = KERNEL["g1"].astype(np.float64)
    found = unpacked(write(tmp_path, state_dict(of_kernel(1, "m"), of_kernel(1, "v"), g.shape)))
    for name, x in (("w.exp_avg", 0.1 * g), ("w.exp_avg_sq", 0.05 * g * g)):
        error = ((found[name] - x) ** 2).sum() / (x ** 2).sum()
        assert error < 1e-3, (name, error)


def test_edges_of_coat_are_as_its_program_has_them(tmp_path):
    """Groups of zeros, of equal values (k is infinite), tiny and wide ones; a port in float32 decodes them."""
    parts = {x: coat(PORT[f"expand_e4m3_{x}_code"], scale=PORT[f"expand_e4m3_{x}_scale"],
                     expand=PORT[f"expand_e4m3_{x}_k"], sqrt_minmax=PORT[f"expand_e4m3_{x}_centre"]) for x in "mv"}
    n = PORT["expand_e4m3_m_code"].size
    found = unpacked(write(tmp_path, state_dict(parts["m"], parts["v"], (n,))))
    for x, name in (("m", "w.exp_avg"), ("v", "w.exp_avg_sq")):
        assert np.isinf(PORT[f"expand_e4m3_{x}_k"]).any()
        want = PORT[f"expand_e4m3_{x}_decoded"]
        np.testing.assert_allclose(found[name], want, rtol=4e-6, atol=0)      # its products and powers round one by one
        exact = decoded(PORT[f"expand_e4m3_{x}_code"], VALUES["e4m3_values"],
                        *(PORT[f"expand_e4m3_{x}_{p}"] for p in ("scale", "k", "centre")))
        np.testing.assert_array_equal(found[name], exact)


@pytest.mark.parametrize("dtype, name", [("float8_e4m3fn", "e4m3"), ("float8_e5m2", "e5m2")])
@pytest.mark.parametrize("expanded", [False, True])
def test_every_code_of_both_formats(tmp_path, dtype, name, expanded):
    rng = np.random.default_rng(4)
    codes = np.tile(np.arange(256, dtype=np.uint8), 24)
    groups = codes.size // 128
    s = np.float32(2.0) ** rng.integers(-40, 5, groups).astype(F32) * rng.uniform(1, 2, groups).astype(F32)
    k = np.float32(rng.integers(1, 300, groups) / 16)
    c = np.float32(np.exp(rng.normal(-10, 3, groups)))
    parts = {"scale": s} | ({"expand": k, "sqrt_minmax": c} if expanded else {})
    state = coat(codes, dtype, **parts)
    found = unpacked(write(tmp_path, state_dict(state, state, codes.shape)))["w.exp_avg"]
    values = VALUES[f"{name}_values"]
    if expanded:
        want = decoded(codes, values, s, k, c)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    else:
        want = (values[codes] * np.repeat(s, 128)).astype(F32)
    ok = ~np.isnan(want)
    assert ok.sum() >= codes.size * 0.97
    np.testing.assert_array_equal(found[ok], want[ok])


def test_states_of_coat_in_every_command(tmp_path):
    value = state_dict(of_kernel(5, "m"), of_kernel(5, "v"), (4786,))
    path = write(tmp_path, value)
    text = run_tersor("inspect", path, "-v", check=0).stdout
    assert text.count("e4m3x f32/128") >= 2 and "with compressed states" in text
    packed = tmp_path / "p.safetensors"
    report = json.loads(run_tersor("pack", path, "-o", packed, "--json", check=0).stdout)
    kinds = {t["name"]: t["kind"] for t in report["tensors"]}
    assert kinds["w.exp_avg"] == "momentum" and kinds["w.exp_avg_sq"] == "variance"
    assert "errors are as recorded" in run_tersor("verify", packed, "--against", path, check=0).stdout
    run_tersor("convert", path, "-o", tmp_path / "a.safetensors", check=0)
    run_tersor("convert", tmp_path / "a.safetensors", "-o", tmp_path / "b.pt", check=0)
    same(value, torchfile.load(tmp_path / "b.pt"))
    run_tersor("diff", path, tmp_path / "b.pt", check=0)


@pytest.mark.parametrize("change, message", [
    ("no expand", "expected both or none"), ("no sqrt_minmax", "expected both or none"),
    ("scale of 37", "37 scales"), ("expand of 37", "37 scales"), ("scale of f16", "scales of F16"),
    ("expand of f16", "scales of F16")])
def test_parts_of_coat_that_do_not_fit(tmp_path, change, message):
    m = of_kernel(5, "m")
    what, _, how = change.replace("no ", "").partition(" of ")
    key = what + "_exp_avg"
    if change.startswith("no"):
        del m[key]
    else:
        m[key] = tensor(np.ones(37 if how == "37" else 38, np.float16 if how == "f16" else F32))
    path = write(tmp_path, state_dict(m, of_kernel(5, "v"), (4786,)))
    done = run_tersor("unpack", path, "-o", tmp_path / "o.safetensors", check=3)
    assert message in one_line_error(done) and not (tmp_path / "o.safetensors").exists()


# ---- Gefen ------------------------------------------------------------------------------------

GEFEN = dict(np.load(DATA / "golden" / "gefen-state.npz"))      # of the real program, after 5 or 3 steps
NAMES = ["Wte.weight", "h.0.Attn", "odd"]


def gefen(kind="f32", names=NAMES, order=(0, 1, 2), lower=True, book=True):
    """The state_dict that its program saves: blocks are rows, and each parameter is a group."""
    floats = F32 if kind == "f32" else ml_dtypes.bfloat16
    model, states, groups = [], {}, []
    for i, name in enumerate(names):
        w = GEFEN[f"{kind}_w_{i}"]
        model.append((name, tensor(w if kind == "f32" else w.view(ml_dtypes.bfloat16).astype(F32))))
    for at, i in enumerate(order):
        period = int(GEFEN[f"{kind}_period_{i}"])
        codes = GEFEN[f"{kind}_m_{i}"].reshape(-1, period)
        states[at] = {"automatic_period": period, "step": 5, "m_codebook_shape": codes.shape,
                      "m_codebook": tensor(codes),
                      "m_magnitude": tensor(GEFEN[f"{kind}_mag_{i}"].astype(floats).reshape(-1, 1)),
                      "vmean": tensor(GEFEN[f"{kind}_v_{i}"].astype(floats).reshape(-1, 1))}
        if period == 1:
            states[at]["period_one_divisor"] = codes.size // GEFEN[f"{kind}_mag_{i}"].size
        groups.append({"name": names[i].lower() if lower else f"param_{at}", "lr": 0.1, "params": [at]})
    optimizer = {"state": states, "param_groups": groups, "gefen_global_step": 5}
    if book:
        optimizer["gefen_codebook"] = tensor(GEFEN[f"{kind}_codebook"])
    return {"model": ordered(model), "optimizer": optimizer}


def moments(kind, i):
    """Decoded: an entry times the block's magnitude, and the block's mean for all of its elements."""
    w, m, mag, v = (GEFEN[f"{kind}_{x}_{i}"] for x in ("w", "m", "mag", "v"))
    momentum = GEFEN[f"{kind}_codebook"][m] * np.repeat(mag.ravel(), m.size // mag.size)
    return momentum.reshape(w.shape), np.repeat(v.ravel(), m.size // v.size).reshape(w.shape)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("order, lower", [((0, 1, 2), True), ((2, 0, 1), True), ((0, 1, 2), False)])
def test_states_of_gefen_are_decoded_under_their_parameters(tmp_path, kind, order, lower):
    """By the names of groups, in any order; or by position, where they are numbers."""
    found = unpacked(write(tmp_path, gefen(kind, order=order, lower=lower)))
    for i, name in enumerate(NAMES):
        momentum, variance = moments(kind, i)
        assert found[name + ".m_codebook"].dtype == found[name + ".vmean"].dtype == F32
        np.testing.assert_array_equal(found[name + ".m_codebook"], momentum)
        np.testing.assert_array_equal(found[name + ".vmean"], variance)
    assert not any("magnitude" in n or n.endswith("gefen_codebook") for n in found)


def test_positions_that_sizes_contradict_are_not_taken(tmp_path):
    found = unpacked(write(tmp_path, gefen(order=(2, 0, 1), lower=False)))
    assert not any(name + ".m_codebook" in found for name in NAMES)


def test_states_of_gefen_in_every_command(tmp_path):
    value = gefen()
    path = write(tmp_path, value)
    assert "gefen8" in run_tersor("inspect", path, "-v", check=0).stdout
    packed = tmp_path / "p.safetensors"
    report = json.loads(run_tersor("pack", path, "-o", packed, "--json", check=0).stdout)
    kinds = {t["name"]: t["kind"] for t in report["tensors"]}
    assert kinds["odd.m_codebook"] == "momentum" and kinds["odd.vmean"] == "variance"
    assert report["losses"]["updates"]["measured"] == 3
    assert "errors are as recorded" in run_tersor("verify", packed, "--against", path, check=0).stdout
    run_tersor("unpack", path, "-o", tmp_path / "u.pt", check=0)
    assert "m_magnitude" not in torchfile.load(tmp_path / "u.pt")["optimizer"]["state"][0]
    run_tersor("convert", path, "-o", tmp_path / "a.safetensors", check=0)
    run_tersor("convert", tmp_path / "a.safetensors", "-o", tmp_path / "b.pt", check=0)
    same(value, torchfile.load(tmp_path / "b.pt"))


@pytest.mark.parametrize("change, message", [
    ("no m_magnitude", "expected .m_magnitude"), ("no codebook", "0 of gefen_codebook, expected one"),
    ("codebook of 255", "found 255 of F32, expected 256"), ("m_magnitude of 7", "7 scales"),
    ("vmean of 5", "5 scales"), ("m_magnitude of f64", "scales of F64")])
def test_parts_of_gefen_that_do_not_fit(tmp_path, change, message):
    value = gefen(book=change != "no codebook")
    state = value["optimizer"]["state"][0]
    if change == "no m_magnitude":
        del state["m_magnitude"]
    elif change == "codebook of 255":
        value["optimizer"]["gefen_codebook"] = tensor(np.zeros(255, F32))
    elif change == "m_magnitude of f64":
        state["m_magnitude"] = tensor(np.ones((6, 1)))
    elif " of " in change:
        what, _, n = change.partition(" of ")
        state[what] = tensor(np.ones((int(n), 1), F32))
    done = run_tersor("unpack", write(tmp_path, value), "-o", tmp_path / "o.safetensors", check=3)
    assert message in one_line_error(done) and not (tmp_path / "o.safetensors").exists()
