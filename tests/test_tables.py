"""Codecs whose codes are tables: against a second implementation with powers of 40 digits, and against the
programs that they come from, COAT and bitsandbytes.
"""
import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

import oracle
import tables
from conftest import DATA

F32 = np.float32
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 31, 64, 100, 128, 200, 254, 255)


def golden(name):
    with np.load(DATA / "golden" / f"{name}.npz") as data:
        return dict(data)


def suffix_of(kind):
    return ".exp_avg_sq" if kind == "variance" else ".exp_avg"


def packed_planes(tersor, tmp_path, codec, arrays, group=None, env=None):
    """{(name, kind): float32} -> the same keys: (planes, what they are unpacked to)"""
    source, packed, out = (tmp_path / f"{name}.safetensors" for name in ("source", "packed", "out"))
    save_file({name + suffix_of(kind): np.ravel(x) for (name, kind), x in arrays.items()}, source)
    tersor("pack", source, "-o", packed, "--min-elements", "1", "--momentum", codec, "--variance",
           codec, *(["--group", str(group)] if group else []), "-f", check=0, env=env)
    tersor("unpack", packed, "-o", out, "-f", check=0, env=env)
    stored = dict(safetensors.deserialize(packed.read_bytes()))
    back = dict(safetensors.deserialize(out.read_bytes()))
    found = {}
    for name, kind in arrays:
        key = name + suffix_of(kind)
        planes = {"::quantized": np.uint8, "::scales": np.uint32, "::expand": np.uint8}
        found[name, kind] = ({s: np.frombuffer(stored[key + s]["data"], dtype)
                              for s, dtype in planes.items() if key + s in stored},
                             np.frombuffer(back[key]["data"], np.uint32))
    return found


def states():
    """Groups of one element, of zeros, all equal, subnormal, up to FLT_MAX, and of wide range."""
    rng = np.random.default_rng(7)
    lognormal = np.exp(rng.normal(0, 3, 5000)) * 1e-6
    bits = rng.integers(0, 0x7F800000, 3000, np.uint32)
    top = np.finfo(F32).max
    out = {"lognormal": lognormal, "narrow": rng.uniform(0.9, 1, 1000), "bits": oracle.from_bits(bits),
           "subnormal": oracle.from_bits(rng.integers(0, 1 << 23, 1000, np.uint32)),
           "least": oracle.from_bits(rng.integers(0, 4, 1000, np.uint32)),
           "equal": np.full(300, 0.1), "zeros": np.zeros(300), "top": np.full(300, top),
           "near_top": top * rng.uniform(0.5, 1, 1000), "one": [3e-39], "two": [1e-45, top],
           "holes": np.where(rng.integers(0, 3, 1000), 0, rng.normal(0, 1, 1000)),
           "minus_zero": np.full(5, -0.0)}
    return {name: np.asarray(x, F32) for name, x in out.items()}


def signed(x):
    return np.copysign(x, np.random.default_rng(x.size).choice([-1, 1], x.shape)).astype(F32)


def expect_same(found, codec, arrays, group=None):
    for (name, kind), x in arrays.items():
        planes, back = found[name, kind]
        want = oracle.encode(codec, x, group, kind=kind)
        assert planes.keys() == want.keys(), name
        for suffix in want:
            assert np.array_equal(planes[suffix], want[suffix].ravel()), (name, kind, suffix)
        y = oracle.decode(codec, want, group, kind=kind)
        assert np.array_equal(back, oracle.bits(y)), (name, kind)
        assert np.isfinite(y).all() and not y[x == 0].any()
        if kind == "variance":
            assert (y[x > 0] > 0).all(), name


@pytest.mark.parametrize("codec, group", [(c, g) for c in oracle.TABLED for g in (None, 1, 33)])
def test_planes_and_values_are_those_of_the_second_implementation(tersor, tmp_path, codec, group):
    arrays = {(name, kind): signed(x) if kind == "momentum" else np.abs(x)
              for name, x in states().items() for kind in ("momentum", "variance")}
    if group:       # tables of 40 digits take their time
        arrays = {key: x[:200] for key, x in arrays.items()}
    expect_same(packed_planes(tersor, tmp_path, codec, arrays, group), codec, arrays, group)


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2"])
def test_every_threshold_of_expanded_rows_is_correctly_rounded(tersor, tmp_path, fmt):
    """Groups that choose a row, with each of its thresholds and their neighbours among the elements."""
    arrays = {}
    for j in ROWS:
        ratio = tables.bounds(fmt)[j - 1]
        least = tables.expanded(fmt, j)[1]
        with np.errstate(under="ignore", over="ignore"):
            smallest = F32(1) / ratio
            while F32(1) / smallest > ratio:
                smallest = np.nextafter(smallest, F32(1))
        probes = np.concatenate([least, np.nextafter(least, F32(0))])
        probes = probes[(probes >= smallest) & (probes <= 1)]
        groups = [np.concatenate([[F32(1), smallest], probes[at:at + 126]])
                  for at in range(0, probes.size, 126)]
        groups = [np.pad(g, (0, 128 - g.size), constant_values=1) for g in groups]
        arrays[f"j{j}", "variance"] = np.concatenate(groups).astype(F32)
    found = packed_planes(tersor, tmp_path, fmt + "x", arrays)
    expect_same(found, fmt + "x", arrays)
    rows = {int(j) for planes, _ in found.values() for j in planes["::expand"]}
    assert len(rows) >= len(ROWS) - 2


def test_rounding_to_8_bit_floats_is_that_of_ml_dtypes(tersor, tmp_path):
    g = golden("coat2")
    for fmt, largest in (("e4m3", 448), ("e5m2", 57344)):
        x = g[f"round_{fmt}_x"]
        inside = np.abs(x) <= largest
        x, want = x[inside], g[f"round_{fmt}_code"][inside]
        groups = -(-x.size // 127)
        padded = np.zeros((groups, 128), F32)
        padded[:, 0] = largest
        padded[:, 1:].flat[:x.size] = x
        planes, _ = packed_planes(tersor, tmp_path, fmt, {("x", "momentum"): padded})["x", "momentum"]
        codes = planes["::quantized"].reshape(groups, 128)[:, 1:].ravel()[:x.size]
        assert (oracle.from_bits(planes["::scales"]) == 1).all()
        assert np.array_equal(codes, want)


def test_plain_codes_are_those_of_coat(tersor, tmp_path):
    """But for groups that its 1e-20 changes, and for positive variances, which do not become 0."""
    g = golden("coat2")
    arrays = {(n, kind): g[f"state_{n}"] for n, kind in (("m", "momentum"), ("v", "variance"))}
    for (n, kind), (planes, _) in packed_planes(tersor, tmp_path, "e4m3", arrays).items():
        scales = oracle.from_bits(planes["::scales"])
        alike = scales == g[f"plain_e4m3_{n}_scale"]
        assert alike.sum() >= alike.size - 2
        here = np.repeat(alike, 128)[:arrays[n, kind].size]
        ours, theirs = planes["::quantized"][here], g[f"plain_e4m3_{n}_code"][here]
        kept = (theirs == 0) & (arrays[n, kind][here] > 0) if kind == "variance" else theirs < 0
        assert np.array_equal(ours, np.where(kept, 1, theirs))


def decoded_by_coat(code, scale, k, centre):
    each = [np.repeat(a, 128)[:code.size].astype(np.float64) for a in (k, centre)]
    value = tables.plain("e4m3")[0][code & 0x7F] * np.repeat(scale, 128)[:code.size]
    y = (value.astype(np.float64) ** (1 / each[0]) * each[1]).astype(F32)
    return np.where(code & 0x80, -y, y)


def test_expanded_codes_are_those_of_the_kernel_of_coat(tersor, tmp_path):
    g = golden("coat")
    state = {n: np.zeros(g["g1"].size, F32) for n in "mv"}
    arrays, count = {}, 0
    for t in range(1, 6):
        arrays[f"m{t}", "momentum"] = F32(0.9) * state["m"] + (F32(1) - F32(0.9)) * g[f"g{t}"]
        arrays[f"v{t}", "variance"] = (F32(0.95) * state["v"]
                                       + (F32(1) - F32(0.95)) * g[f"g{t}"] * g[f"g{t}"])
        state = {n: decoded_by_coat(g[f"{n}{t}"], g[f"{n}s{t}"], g[f"{n}k{t}"], g[f"{n}c{t}"])
                 for n in "mv"}
    for (name, _), (planes, back) in packed_planes(tersor, tmp_path, "e4m3x", arrays).items():
        n, t = name
        assert np.array_equal(planes["::expand"], np.round(g[f"{n}k{t}"] * 16))
        assert np.array_equal(planes["::quantized"], g[name])
        count += planes["::quantized"].size
        peer = decoded_by_coat(g[name], g[f"{n}s{t}"], g[f"{n}k{t}"], g[f"{n}c{t}"])
        error = np.abs(oracle.from_bits(back).astype(np.float64) - peer)
        assert (error <= 6.5e-7 * np.abs(peer)).all()
    assert count == 47860


def test_maps_and_codes_of_dyn8_are_those_of_bitsandbytes(tersor, tmp_path):
    """But that only 0 becomes 0: the kernel gives small positive elements the code of 0, too."""
    g = golden("bnb")
    assert np.array_equal(tables.dynamic(False), g["code_signed"][127:])
    assert np.array_equal(tables.dynamic(True), g["code_unsigned"])
    arrays = {("x", "momentum"): g["x"], ("y", "variance"): g["y"]}
    found = packed_planes(tersor, tmp_path, "dyn8", arrays)
    for (name, kind), map_name, zero in ((("x", "momentum"), "signed", 127),
                                         (("y", "variance"), "unsigned", 0)):
        planes, _ = found[name, kind]
        theirs = g[f"{map_name}_kernel_code"]
        assert np.array_equal(oracle.from_bits(planes["::scales"]), g[f"{map_name}_absmax"])
        lost = (theirs == zero) & (g[name] > 0)
        assert np.array_equal(planes["::quantized"], np.where(lost, zero + 1, theirs))


@pytest.mark.parametrize("codec", oracle.TABLED)
def test_every_level_gives_the_same_planes(tersor, tmp_path, codec):
    arrays = {("x", "momentum"): signed(states()["lognormal"]), ("y", "variance"): states()["bits"]}
    first = packed_planes(tersor, tmp_path, codec, arrays)
    base = packed_planes(tersor, tmp_path, codec, arrays, env={"TERSOR_ISA": "base"})
    for key, (planes, back) in first.items():
        assert np.array_equal(back, base[key][1])
        assert all(np.array_equal(planes[s], base[key][0][s]) for s in planes)


def test_scales_of_another_format_are_a_usage_error(tersor, tmp_path):
    save_file({"w.exp_avg": np.ones(32, F32)}, tmp_path / "in.safetensors")
    args = ["pack", tmp_path / "in.safetensors", "-o", tmp_path / "out", "--momentum", "e4m3"]
    done = tersor(*args, "--variance", "e4m3", "--scale", "e8m8", check=2)
    assert "--scale e8m8 needs a codec with such scales" in done.stderr
    tersor(*args, "--scale", "e8m8", check=0)       # of the variance
