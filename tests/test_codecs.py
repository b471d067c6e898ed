"""Every codec through the binary, bit for bit against oracle.py, and FlashOptim's own outputs.

A file of several tensors per run: structured bit patterns, random bits, the golden inputs and the
edges of the exponent range, at lengths that leave groups and vectors incomplete.
"""
import functools
import json

import ml_dtypes
import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

import oracle
from conftest import DATA

F32 = np.float32
FLT_MAX = np.finfo(F32).max
GROUPS = (1, 7, 32, 33, 1000)
# What /proc/cpuinfo must list for a SIMD level.
LEVELS = {"base": set(), "avx2": {"avx2", "fma"},
          "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}


# ---- data ---------------------------------------------------------------------------------------

@functools.cache
def golden():
    with np.load(DATA / "flashoptim.npz") as data:
        return dict(data)


def structured():
    """Every exponent with the mantissas next to a rounding point of BF16, FP16 and E8M8."""
    low = {0, 1, 2, 0x7FFFFF, 0x7FFFFE, 0x555555, 0x2AAAAA}
    for bit in range(23):
        low |= {1 << bit, (1 << bit) - 1, (1 << bit) + 1, 0x7FFFFF ^ 1 << bit, 3 << bit & 0x7FFFFF,
                (3 << bit & 0x7FFFFF) - 1, (3 << bit & 0x7FFFFF) + 1}
    mantissa = np.array(sorted(low & set(range(1 << 23))), np.uint32)
    exponent = np.arange(255, dtype=np.uint32)[:, None] << 23
    mag = (exponent | mantissa).ravel()
    return oracle.from_bits(np.concatenate([mag, mag | 0x80000000]))


@functools.cache
def weights():
    rng = np.random.default_rng(20250101)
    bits = rng.integers(0, 1 << 32, 20_001, dtype=np.uint32)
    out = {
        "structured": structured(),
        "random": oracle.from_bits(bits),
        "golden": oracle.from_bits(golden()["split_bits"]),
        # Where FP16 ends, and what the subnormals of BF16 and of FP16 round to.
        "fp16range": oracle.from_bits(rng.integers(0x32000000, 0x47800000, 10_007, np.uint32)
                                      | rng.integers(0, 2, 10_007, np.uint32) << 31),
        "subnormal": oracle.from_bits(np.concatenate([
            np.arange(4097, dtype=np.uint32), rng.integers(0, 1 << 24, 5000, np.uint32),
            0x80000000 | rng.integers(0, 1 << 24, 5000, np.uint32)])),
        "shaped": rng.normal(0, 0.02, (3, 5, 7, 11)).astype(F32),
    }
    for n in (0, 1, 2, 15, 17, 31, 32, 33, 63, 65, 127, 255, 1023):
        out[f"length{n}"] = rng.normal(0, 1, n).astype(F32)
    return out


def near_ties(scale_of_code, levels):
    """In each group of 32: the scale 1, then values around the point between two codes."""
    mid = scale_of_code((np.arange(levels) + 0.5) / levels).astype(F32)
    steps = np.arange(-15, 16)
    bits = oracle.bits(mid).astype(np.int64)[:, None] + steps
    values = oracle.from_bits(bits.astype(np.uint32))
    return np.concatenate([np.ones((levels, 1), F32), values], axis=1).ravel()


def blocks(rng, magnitudes, n):
    """A run of n values below each magnitude, which itself stands at a random place in the run."""
    x = rng.uniform(0, 1, (len(magnitudes), n)) * np.asarray(magnitudes, np.float64)[:, None]
    x = x.astype(F32)
    x[np.arange(len(magnitudes)), rng.integers(0, n, len(magnitudes))] = magnitudes
    return x.ravel()


def around(*values):
    """Each value and its two neighbours on either side."""
    bits = oracle.bits(np.array(values, F32)).astype(np.int64)[:, None] + np.arange(-2, 3)
    return oracle.from_bits(bits.ravel().astype(np.uint32))


@functools.cache
def states():
    """Magnitudes; the momentum tests add signs, the variance tests square some of them."""
    rng = np.random.default_rng(20250102)
    powers = 2.0 ** np.arange(-149, 128)
    out = {
        "normal": rng.normal(0, 1e-4, 40_003).astype(F32),
        "heavy": (rng.standard_t(1.5, 20_001) * 1e-3).astype(F32),
        "random": oracle.from_bits(rng.integers(0, 0x7F800000, 20_011, np.uint32)),
        "powers": blocks(rng, powers, 32),
        # Rounding up to 8 mantissa bits must stop at 2^128 - 2^119.
        "flt_max": blocks(rng, [FLT_MAX] * 9 + list(around(2.0 ** 127, 2.0 ** 128 - 2.0 ** 119)),
                          33)[:-5],
        "all_max": np.full(1000, FLT_MAX, F32),
        "units": blocks(rng, around(2.0 ** -60, 2.0 ** 120, 2.0 ** -126, 2.0 ** 64, 2.0 ** -64,
                                    2.0 ** -14, 2.0 ** -24, 2.0 ** -25, 65504, 65519.996, 1e-12),
                        32),
        "subnormal": oracle.from_bits(rng.integers(0, 1 << 23, 4001, np.uint32)),
        "least": oracle.from_bits(rng.integers(0, 3, 997, np.uint32)),
        "holes": np.where(np.arange(5000) // 100 % 2, 0, rng.normal(0, 1, 5000)).astype(F32),
        "minus_zero": np.full(70, -0.0, F32),
        "softsign_ties": near_ties(lambda z: z / (2 - z), 127),
        "linear_ties": near_ties(lambda z: z, 127),
        "ulinear_ties": near_ties(lambda z: z, 255),
        "sqrt_ties": near_ties(lambda z: z * z, 255),
        "shaped": rng.normal(0, 1e-3, (3, 5, 7, 11)).astype(F32),
    }
    for case in ("normal", "heavy", "zeros", "tiny", "one", "steps"):
        out[f"golden_{case}"] = golden()[f"q_{case}_x"]
    for n in (0, 1, 2, 31, 33, 65, 999, 1001):
        out[f"length{n}"] = rng.normal(0, 1e-6, n).astype(F32)
    return out


def momentum(x):
    rng = np.random.default_rng(x.size)
    return np.copysign(x, rng.choice([-1, 1], x.shape) * np.where(x < 0, -1, 1)).astype(F32)


def variance(x):
    return np.where(np.signbit(x) & (x == 0), x, np.abs(x)).astype(F32)


# ---- the binary ---------------------------------------------------------------------------------

def planes_of(path):
    """{name: (dtype, shape, bytes)}, by the safetensors package"""
    return {name: (t["dtype"], tuple(t["shape"]), bytes(t["data"]))
            for name, t in safetensors.deserialize(path.read_bytes())}


def pack(tersor, tmp_path, tensors, *args, env=None, name="packed"):
    source, packed = tmp_path / "source.safetensors", tmp_path / f"{name}.safetensors"
    save_file(tensors, source)
    done = tersor("pack", source, "-o", packed, "--min-elements", "1", *args, check=0, env=env)
    return packed, done


def unpack(tersor, tmp_path, packed):
    out = tmp_path / "unpacked.safetensors"
    tersor("unpack", packed, "-o", out, check=0)
    return planes_of(out)


def plane_dtype(codec, suffix, scale):
    if suffix == "::scales":
        return {"f16": "F16", "e8m8": "U16", "f32": "F32"}[scale]
    if suffix == "::extra_bits":
        return "U32"
    if suffix == "::quantized":
        return "U8" if codec in oracle.VARIANCES + oracle.LOGS else "I8"
    fmt, _, kind = codec.partition("+")
    fmt = {"bf16": "BF16", "fp16": "F16", "f32": "F32", "e5m2": "F8_E5M2", "e4m3": "F8_E4M3"}
    if suffix == "":
        return fmt[codec.partition("+")[0]]
    return fmt.get(kind) or ("I8" if kind == "ulp8" else "I16")


def first_difference(name, got, want, source):
    at = int(np.flatnonzero(got != want)[0])
    return (f"{name}: {np.count_nonzero(got != want)} of {want.size} differ, the first at {at}: "
            f"got {got[at]}, oracle {want[at]}, around x = "
            f"{source.ravel()[at:at + 1]} ({oracle.bits(source).ravel()[at:at + 1]})")


def check_tensor(packed, unpacked, name, x, codec, scale="e8m8", group=32, seed=0):
    """Planes and decoded values of one source tensor; the number of planes checked."""
    if oracle.rawness(codec, x, group, scale):
        codec = "f32"
    planes = oracle.encode(codec, x, group, scale, seed, name)
    for suffix, want in planes.items():
        dtype, shape, data = packed[name + suffix]
        shaped = suffix not in ("::scales", "::extra_bits")
        assert dtype == plane_dtype(codec, suffix, scale), name + suffix
        assert shape == (x.shape if shaped else want.shape), name + suffix
        got, want = np.frombuffer(data, want.dtype), want.ravel()
        assert np.array_equal(got, want), first_difference(name + suffix, got, want, x)
    extra = {key for key in packed if key.split("::")[0] == name} - {name + s for s in planes}
    assert not extra, f"{name}: planes that do not belong to {codec}: {extra}"
    want = oracle.bits(oracle.decode(codec, planes, group, scale))
    dtype, shape, data = unpacked[name]
    got = np.frombuffer(data, np.uint32)
    assert (dtype, shape) == ("F32", x.shape), name
    assert np.array_equal(got, want), first_difference(name + " decoded", got, want, x)
    return codec != "f32"


# ---- the oracle itself --------------------------------------------------------------------------

def test_oracle_narrowing_agrees_with_ml_dtypes_and_numpy():
    x = np.concatenate([w.ravel() for w in weights().values()])
    x = x[~np.isnan(x)]
    with np.errstate(over="ignore"):
        for fmt, dtype in (("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)):
            assert np.array_equal(oracle.narrow(x, fmt), x.astype(dtype).view(np.uint16))
            every = np.arange(1 << 16, dtype=np.uint16)
            wide = every.view(dtype).astype(F32)
            real = ~np.isnan(wide)
            ours = oracle.widen(every, fmt)
            assert np.array_equal(oracle.bits(ours)[real], oracle.bits(wide)[real])
            assert np.isnan(ours[~real]).all()


def test_oracle_reproduces_every_correction_of_flashoptim():
    g = golden()
    x = oracle.from_bits(g["split_bits"])
    for fmt in ("bf16", "fp16"):
        finite = ~oracle.is_special(g[f"{fmt}_narrow"], fmt)
        assert np.array_equal(oracle.narrow(x, fmt), g[f"{fmt}_narrow"])
        for b in (8, 16):
            corr = oracle.encode_ulp(x, fmt, b)[1]
            assert np.array_equal(corr[finite], g[f"{fmt}_ecc{b}"][finite])


# ---- planes and values, bit for bit -------------------------------------------------------------

@pytest.mark.parametrize("codec", oracle.WEIGHTS + oracle.TRUNCATED)
def test_weight_codec_equals_oracle(codec, tersor, tmp_path):
    fmt = codec.partition("+")[0]
    tensors = {}
    for name, x in weights().items():
        special = oracle.is_special(oracle.encode(codec, x)[""], fmt).reshape(x.shape)
        keep = np.isfinite(x) & ~special
        tensors[name] = x if keep.all() else x[keep]
    assert tensors["structured"].size > 10_000
    seed = 2**48 - 5 if "+sr" in codec else 0
    options = ("--seed", seed) if seed else ()
    packed, _ = pack(tersor, tmp_path, tensors, "--weights", codec, *options)
    unpacked = unpack(tersor, tmp_path, packed)
    packed = planes_of(packed)
    for name, x in tensors.items():
        assert check_tensor(packed, unpacked, name, x, codec, seed=seed), f"{name} was left raw"


# ---- truncated splits ---------------------------------------------------------------------------

def test_oracle_random_numbers_are_those_of_the_paper():
    """The known answers of Random123, the paper's own implementation."""
    for counter, key, want in (
            ((0,) * 4, (0,) * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
            ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
            ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
             "d16cfe09 94fdcceb 5001e420 24126ea1")):
        got = oracle.philox([np.array([word]) for word in counter], key)
        assert " ".join(f"{word:08x}" for word in got[:, 0]) == want


BITS = {    # row: (bits of x, codec, bits of what comes back)
    "bf16 toward zero": (0x3F80FFFF, "bf16+trunc1", 0x3F808000),
    "bf16 all bits": (0xBF80FFFF, "bf16+trunc16", 0xBF80FFFF),
    "bf16 FLT_MAX": (0x7F7FFFFF, "bf16+trunc16", 0x7F7FFFFF),
    "bf16 FLT_MAX, 8 bits": (0x7F7FFFFF, "bf16+trunc8", 0x7F7FFF00),
    "bf16 FLT_MAX at random": (0xFF7FFFFF, "bf16+sr16", 0xFF7FFFFF),
    "bf16 least": (0x80000001, "bf16+trunc16", 0x80000001),
    "bf16 least, 8 bits": (0x80000001, "bf16+trunc8", 0x80000000),
    "fp16 normal": (0x38800001, "fp16+trunc13", 0x38800001),
    "fp16 above 65504": (0x477FFFFF, "fp16+trunc13", 0x477FFFFF),
    "fp16 above 65504, 2 bits": (0xC77FFFFF, "fp16+trunc2", 0xC77FF800),
    "fp16 above 65504 at random": (0x477FFFFF, "fp16+sr13", 0x477FFFFF),
    "fp16 subnormal": (0x387FFFFF, "fp16+trunc13", 0x387FFFFE),
    "fp16 2^-24 and the next float": (0x33800001, "fp16+trunc13", 0x33800000),
    "fp16 least extra bit": (0xAD000000, "fp16+trunc13", 0xAD000000),
    "fp16 below all extra bits": (0xACFFFFFF, "fp16+trunc13", 0x80000000),
    "fp16 below all extra bits at random": (0xACFFFFFF, "fp16+sr13", 0x80000000),
    "e5m2 above 57344": (0x477FFFFF, "e5m2+trunc16", 0x477FFFE0),
    "e5m2 above 57344 at random": (0xC77FFFFF, "e5m2+sr16", 0xC77FFFE0),
    "e5m2 subnormal": (0x387FFFFF, "e5m2+trunc16", 0x387FFFC0),
    "e5m2 least extra bit": (0xAF800000, "e5m2+trunc16", 0xAF800000),
    "e5m2 below all extra bits": (0xAF7FFFFF, "e5m2+trunc16", 0x80000000),
    "e4m3 above 448": (0x43EFFFFF, "e4m3+trunc16", 0x43EFFFF0),
    "e4m3 above 448 at random": (0xC3EFFFFF, "e4m3+sr4", 0xC3EF0000),
    "e4m3 subnormal": (0x3C7FFFFF, "e4m3+trunc16", 0x3C7FFFE0),
    "e4m3 least extra bit": (0xB3000000, "e4m3+trunc16", 0xB3000000),
    "e4m3 below all extra bits": (0xB2FFFFFF, "e4m3+trunc16", 0x80000000),
}


@pytest.mark.parametrize("row", BITS)
def test_truncated_split_gives_back(row, tersor, tmp_path):
    source, codec, want = BITS[row]
    x = np.full(37, source, np.uint32)
    packed, _ = pack(tersor, tmp_path, {"w": oracle.from_bits(x)}, "--weights", codec, "--strict")
    got = np.frombuffer(unpack(tersor, tmp_path, packed)["w"][2], np.uint32)
    assert [f"{v:08x}" for v in set(got)] == [f"{want:08x}"]


@pytest.mark.parametrize("bits, codec", [(0x47800000, "e5m2+trunc16"), (0xC3F00000, "e4m3+sr1"),
                                         (0x43F00000, "e4m3+trunc16")])
def test_what_fp8_cannot_hold_stays_raw(bits, codec, tersor, tmp_path):
    """65536 on, and 480 on: E4M3 has a NaN there, and no infinity."""
    x = oracle.from_bits(np.full(37, bits, np.uint32))
    packed, done = pack(tersor, tmp_path, {"w": x}, "--weights", codec)
    assert planes_of(packed)["w"][0] == "F32" and "w: " in done.stderr and "raw" in done.stderr
    assert np.array_equal(np.frombuffer(planes_of(packed)["w"][2], np.uint32), oracle.bits(x))


@pytest.mark.parametrize("fmt", ["e5m2", "e4m3"])
def test_fp8_weights_are_those_of_exact_arithmetic(fmt, tersor, tmp_path):
    """Truncation to FP8 and the bits behind it, from exact arithmetic: data/golden."""
    with np.load(DATA / "golden/split.npz") as golden:
        fits = golden[f"split_{fmt}_narrow"] >= 0
        x = golden["split_x"][fits]
        narrow = golden[f"split_{fmt}_narrow"][fits].astype(np.uint8)
        assert fits.sum() > 500 and fits.sum() < fits.size
        for k in (4, 8, 16):
            packed, _ = pack(tersor, tmp_path, {"w": x}, "--weights", f"{fmt}+trunc{k}", "--strict")
            planes = planes_of(packed)
            assert np.array_equal(np.frombuffer(planes["w"][2], np.uint8), narrow)
            words = np.frombuffer(planes["w::extra_bits"][2], "<u4")
            assert np.array_equal(oracle.unpack_bits(words, k, x.size),
                                  golden[f"split_{fmt}_extra{k}"][fits])
            back = np.frombuffer(unpack(tersor, tmp_path, packed)["w"][2], np.float32)
            assert np.array_equal(back, golden[f"split_{fmt}_back{k}"][fits])
            (tmp_path / "unpacked.safetensors").unlink()
            packed.unlink()


def test_random_rounding_is_undone_whatever_the_seed(tersor, tmp_path):
    """Other narrow weights, the same decoded ones: those of the truncated split."""
    x = weights()["shaped"]
    narrow, decoded, seeds = set(), set(), []
    for options in (("bf16+trunc9",), ("bf16+sr9",), ("bf16+sr9", "--seed", 1),
                    ("bf16+sr9", "--seed", 2**32), ("bf16+sr9", "--seed", 2**48 - 1)):
        packed, _ = pack(tersor, tmp_path, {"w": x}, "--weights", *options, name=len(seeds))
        narrow.add(planes_of(packed)["w"][2])
        decoded.add(unpack(tersor, tmp_path, packed)["w"][2])
        seeds.append(json.loads(tersor("inspect", packed, "--json").stdout)["tensors"][0]
                     .get("seed"))
        (tmp_path / "unpacked.safetensors").unlink()
    assert len(narrow) == 5 and len(decoded) == 1
    assert seeds == [None, 0, 1, 2**32, 2**48 - 1]


def test_random_rounding_differs_between_tensors_and_places(tersor, tmp_path):
    x = np.full(10_000, 1.00390625 * 1.001, F32)
    packed, _ = pack(tersor, tmp_path, {"a": x, "b": x}, "--weights", "bf16+sr4")
    a, b = (np.frombuffer(planes_of(packed)[name][2], np.uint16) for name in "ab")
    assert len(set(a)) == len(set(b)) == 2 and not np.array_equal(a, b)
    assert not np.array_equal(a[:5000], a[5000:])


@pytest.mark.parametrize("codec, scale", [("bf16+sr3", 1.0), ("fp16+sr3", 1.0),
                                          ("fp16+sr3", 2.0 ** -17), ("bf16+sr3", 2.0 ** -130)])
def test_random_rounding_is_unbiased(codec, scale, tersor, tmp_path):
    """The narrow weights of n equal values average to it, within 5 standard deviations."""
    rng = np.random.default_rng(8)
    n = 100_000
    values = (np.array([1.001, 1.0039, 1.5001, 1.9999, 1.0, -1.3]) * scale).astype(F32)
    x = {f"w{i}": np.full(n, value) for i, value in enumerate(values)}
    packed, _ = pack(tersor, tmp_path, x, "--weights", codec, "--seed", rng.integers(1, 1000))
    fmt = codec[:4]
    for i, value in enumerate(values):
        data = np.frombuffer(planes_of(packed)[f"w{i}"][2], np.uint16)
        wide = oracle.widen(data, fmt).astype(np.float64)
        down, up = wide.min(), wide.max()
        assert down <= value <= up
        if down == up:
            assert value == down
            continue
        share = (float(value) - down) / (up - down)
        sigma = np.sqrt(share * (1 - share) / n)
        assert abs((wide == up).mean() - share) < 5 * sigma + 2.0 ** -16


@pytest.mark.parametrize("codec", ["bf16+trunc5", "bf16+sr5", "fp16+sr13"])
def test_truncated_splits_go_through_in_pieces(codec, tersor, tmp_path):
    """More than one piece, an incomplete run at the end, any number of threads."""
    rng = np.random.default_rng(9)
    x = rng.normal(0, 1, 3 * 262_144 + 45).astype(F32)
    want = None
    for threads in (1, 3):
        packed, _ = pack(tersor, tmp_path, {"w": x}, "--weights", codec, "-j", threads,
                         name=f"p{threads}")
        want = want or packed.read_bytes()
        assert packed.read_bytes() == want
    unpacked = unpack(tersor, tmp_path, packed)
    assert check_tensor(planes_of(packed), unpacked, "w", x, codec)
    done = tersor("diff", tmp_path / "unpacked.safetensors", packed, check=0)
    assert ": 0 differ" in done.stdout


def test_exact16_returns_every_finite_bitstring_it_packs(tersor, tmp_path):
    x = structured()
    x = x[(oracle.bits(x) & 0x7FFFFFFF) < 0x7F7F8000]
    packed, _ = pack(tersor, tmp_path, {"w": x}, "--weights", "bf16+exact16")
    assert unpack(tersor, tmp_path, packed)["w"][2] == x.tobytes()
    assert planes_of(packed)["w"][0] == "BF16"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("scale", ["f16", "e8m8", "f32"])
@pytest.mark.parametrize("codecs", [("softsign8", "sqrt8"), ("linear8", "ulinear8")], ids="-".join)
def test_state_codecs_equal_oracle(codecs, scale, group, tersor, tmp_path):
    tensors = {}
    for name, x in states().items():
        tensors[name] = np.zeros_like(x)
        tensors[f"{name}.exp_avg"] = momentum(x)
        tensors[f"{name}.exp_avg_sq"] = variance(x)
    packed, _ = pack(tersor, tmp_path, tensors, "--momentum", codecs[0], "--variance", codecs[1],
                     "--scale", scale, "--group", group)
    unpacked = unpack(tersor, tmp_path, packed)
    packed = planes_of(packed)
    held = 0
    for name in states():
        for codec, suffix in zip(codecs, (".exp_avg", ".exp_avg_sq")):
            held += check_tensor(packed, unpacked, name + suffix, tensors[name + suffix], codec,
                                 scale, group)
    # f16 overflows in these cases only; e8m8 and f32 hold every finite group.
    overflow = {"random", "powers", "flt_max", "all_max", "units"}
    if scale != "f16":
        overflow = set()
    raw = {n for n in states() for c, s in zip(codecs, (".exp_avg", ".exp_avg_sq"))
           if oracle.rawness(c, tensors[n + s], group, scale)}
    assert raw <= overflow | ({"golden_heavy"} if scale == "f16" else set())
    assert held >= 2 * (len(states()) - len(overflow) - 1)


@pytest.mark.parametrize("codec", ["bf16", "f32"])
def test_uncompanded_state_equals_oracle(codec, tersor, tmp_path):
    x = np.abs(structured())
    x = x[~oracle.is_special(oracle.narrow(x, "bf16"), "bf16")]
    tensors = {"w": np.zeros_like(x), "w.exp_avg": momentum(x), "w.exp_avg_sq": x}
    packed, _ = pack(tersor, tmp_path, tensors, "--momentum", codec, "--variance", codec)
    unpacked = unpack(tersor, tmp_path, packed)
    for name in ("w.exp_avg", "w.exp_avg_sq"):
        check_tensor(planes_of(packed), unpacked, name, tensors[name], codec)


@pytest.mark.parametrize("scale", ["e8m8", "f32"])
@pytest.mark.parametrize("codec", oracle.MOMENTA + oracle.VARIANCES)
def test_no_finite_group_decodes_to_inf_or_nan_and_zero_stays_zero(codec, scale, tersor, tmp_path):
    suffix = ".exp_avg" if codec in oracle.MOMENTA else ".exp_avg_sq"
    option = "--momentum" if codec in oracle.MOMENTA else "--variance"
    sign = momentum if codec in oracle.MOMENTA else variance
    tensors = {}
    for name, x in states().items():
        tensors[name] = np.zeros_like(x)
        tensors[name + suffix] = sign(x)
    packed, _ = pack(tersor, tmp_path, tensors, option, codec, "--scale", scale)
    unpacked = unpack(tersor, tmp_path, packed)
    packed = planes_of(packed)
    for name in states():
        assert f"{name}{suffix}::quantized" in packed, f"{name} was left raw"
        y = np.frombuffer(unpacked[name + suffix][2], F32)
        assert np.isfinite(y).all(), name
        zero = tensors[name + suffix].ravel() == 0
        assert not oracle.bits(y)[zero].any(), f"{name}: a zero decodes to something else than +0"


# ---- what stays raw -----------------------------------------------------------------------------

def with_value(value, n=100):
    x = np.linspace(0.5, 1, n).astype(F32)
    x[n // 3] = value
    return x


NAN = oracle.from_bits(np.array([0x7FC12345, 0xFF812345], np.uint32))
RAW = {     # row: (tensor, options, value)
    "weight nan": ("w", [], NAN[0]),
    "weight signalling nan": ("w", [], NAN[1]),
    "weight inf": ("w", [], np.inf),
    "weight -inf": ("w", [], -np.inf),
    "weight rounds to bf16 inf": ("w", [], oracle.from_bits([0x7F7F8000])[0]),
    "weight FLT_MAX": ("w", ["--weights", "bf16"], FLT_MAX),
    "weight rounds to fp16 inf": ("w", ["--weights", "fp16+ulp8"], 65520),
    "exact16 rounds to bf16 inf": ("w", ["--weights", "bf16+exact16"],
                                   oracle.from_bits([0xFF7F8000])[0]),
    "truncated at 2^16": ("w", ["--weights", "fp16+trunc13"], 65536),
    "rounded at random, 2^16": ("w", ["--weights", "fp16+sr13"], -65536),
    "truncated nan": ("w", ["--weights", "bf16+trunc16"], NAN[1]),
    "float split rounds to fp16 inf": ("w", ["--weights", "fp16+fp16"], -65520),
    "momentum nan": ("w.exp_avg", [], NAN[0]),
    "momentum inf": ("w.exp_avg", [], -np.inf),
    "momentum overflows f16": ("w.exp_avg", ["--scale", "f16"], -65520),
    "linear momentum overflows f16": ("w.exp_avg", ["--scale", "f16", "--momentum", "linear8"],
                                      65520),
    "momentum rounds to bf16 inf": ("w.exp_avg", ["--momentum", "bf16"], FLT_MAX),
    "variance nan": ("w.exp_avg_sq", [], NAN[1]),
    "variance inf": ("w.exp_avg_sq", [], np.inf),
    "variance negative": ("w.exp_avg_sq", [], -1e-30),
    "variance least negative": ("w.exp_avg_sq", [], oracle.from_bits([0x80000001])[0]),
    "linear variance negative": ("w.exp_avg_sq", ["--variance", "ulinear8"], -1),
    "root of variance overflows f16": ("w.exp_avg_sq", ["--scale", "f16"], 65520.0 ** 2),
    "linear variance overflows f16": ("w.exp_avg_sq", ["--scale", "f16", "--variance", "ulinear8"],
                                      65520),
}
HELD = {    # the neighbour on the other side of each edge is packed
    "weight below bf16 inf": ("w", [], oracle.from_bits([0x7F7F7FFF])[0]),
    "weight below fp16 inf": ("w", ["--weights", "fp16+ulp8"], oracle.from_bits([0x477FEFFF])[0]),
    "exact16 below bf16 inf": ("w", ["--weights", "bf16+exact16"],
                               oracle.from_bits([0xFF7F7FFF])[0]),
    "truncated below 2^16": ("w", ["--weights", "fp16+trunc13"],
                             oracle.from_bits([0x477FFFFF])[0]),
    "truncated FLT_MAX": ("w", ["--weights", "bf16+trunc1"], FLT_MAX),
    "rounded at random, FLT_MAX": ("w", ["--weights", "bf16+sr1"], FLT_MAX),
    "momentum below f16 inf": ("w.exp_avg", ["--scale", "f16"], oracle.from_bits([0xC77FEFFF])[0]),
    "momentum FLT_MAX": ("w.exp_avg", [], -FLT_MAX),
    "variance FLT_MAX": ("w.exp_avg_sq", [], FLT_MAX),
    "variance -0": ("w.exp_avg_sq", [], -0.0),
    "root of variance below f16 inf": ("w.exp_avg_sq", ["--scale", "f16"], 65519.0 ** 2),
}


def one_special(name, value):
    tensors = {n: np.full(100, 0.5, F32) for n in ("w", "w.exp_avg", "w.exp_avg_sq")}
    tensors[name] = with_value(value)
    return tensors


@pytest.mark.parametrize("row", RAW)
def test_raw(row, tersor, tmp_path):
    name, options, value = RAW[row]
    tensors = one_special(name, value)
    packed, done = pack(tersor, tmp_path, tensors, "--json", *options)
    planes = planes_of(packed)
    assert planes[name] == ("F32", (100,), tensors[name].tobytes())
    assert not {key for key in planes if key.startswith(name + "::")}
    # Only this tensor; the report names it and nobody else.
    for other in set(tensors) - {name}:
        assert planes.get(other, ("",))[0] != "F32"
    assert f"tensor {name}:" in done.stderr
    assert reported_raw(done.stdout) == {name}
    assert unpack(tersor, tmp_path, packed)[name][2] == tensors[name].tobytes()


@pytest.mark.parametrize("row", RAW)
def test_strict_refuses(row, tersor, tmp_path):
    name, options, value = RAW[row]
    source, packed = tmp_path / "source.safetensors", tmp_path / "packed.safetensors"
    save_file(one_special(name, value), source)
    done = tersor("pack", source, "-o", packed, "--strict", *options, check=3)
    line, = done.stderr.splitlines()
    assert line.startswith("tersor: ") and f"tensor {name}:" in line
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("row", HELD)
def test_not_raw(row, tersor, tmp_path):
    name, options, value = HELD[row]
    # Which refuses the zeros of f16, too, and updates beside the largest of all numbers.
    strict = ["--strict"] if "--scale" not in options and row not in ("momentum FLT_MAX", "variance FLT_MAX") else []
    packed, done = pack(tersor, tmp_path, one_special(name, value), "--json", *strict, *options)
    assert planes_of(packed).get(name, ("",))[0] != "F32"
    assert reported_raw(done.stdout) == set()


def reported_raw(text):
    """Names of the tensors that the JSON report gives a reason for leaving raw."""
    report = json.loads(text)
    assert report["schema"] == "tersor.pack.v1"
    return {t["name"] for t in report["tensors"] if t.get("raw_reason")}


# ---- parity with FlashOptim ---------------------------------------------------------------------

@pytest.mark.parametrize("b", [8, 16])
@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_parity_corrections(fmt, b, tersor, tmp_path):
    g = golden()
    finite = ~oracle.is_special(g[f"{fmt}_narrow"], fmt)
    x = oracle.from_bits(g["split_bits"])[finite]
    packed, _ = pack(tersor, tmp_path, {"w": x}, "--compat", "flashoptim",
                     "--weights", f"{fmt}+ulp{b}")
    planes = planes_of(packed)
    assert planes["w"][2] == g[f"{fmt}_narrow"][finite].tobytes()
    assert planes["w::error_bits"][2] == g[f"{fmt}_ecc{b}"][finite].tobytes()
    # Decoded: 1 ULP where their division is approximate; -0 with no correction is +0 to them.
    ours = np.frombuffer(unpack(tersor, tmp_path, packed)["w"][2], np.uint32)
    theirs = g[f"{fmt}_recon{b}"][finite]
    zeros = (ours == 0x80000000) & (theirs == 0)
    away = np.abs(ours.astype(np.int64) - theirs)[~zeros]
    assert away.max() <= 1
    assert np.count_nonzero(away) <= (3 if fmt == "bf16" else 100)


@pytest.mark.parametrize("codec,key", [("softsign8", "softsign"), ("linear8", "linear"),
                                       ("sqrt8", "sqrt"), ("ulinear8", "ulinear")])
def test_parity_codes_and_scales(codec, key, tersor, tmp_path):
    """At least 99.99% of the codes equal, none more than 1 apart, every scale equal."""
    suffix = ".exp_avg" if codec in oracle.MOMENTA else ".exp_avg_sq"
    tensors, want = {}, {}
    for case in ("normal", "heavy", "zeros", "tiny", "one", "steps"):
        x, q, s, d = (golden()[f"q_{case}_{k}"]
                      for k in ("x", f"{key}_q", f"{key}_s", f"{key}_d"))
        # A group whose FP16 scale is infinite would leave the tensor raw.
        ok = s != 0x7C00
        each = np.repeat(ok, 32)[:x.size]
        tensors[case] = np.zeros(each.sum(), F32)
        tensors[case + suffix] = (x if codec in oracle.MOMENTA else x * x)[each]
        want[case] = q[each], s[ok], d[each]
    packed, _ = pack(tersor, tmp_path, tensors, "--compat", "flashoptim",
                     "--momentum" if codec in oracle.MOMENTA else "--variance", codec)
    planes, unpacked = planes_of(packed), unpack(tersor, tmp_path, packed)
    count = unequal = 0
    for case, (q, s, d) in want.items():
        dtype, _, scales = planes[f"{case}{suffix}::scales"]
        assert (dtype, scales) == ("F16", s.tobytes()), case
        got = np.frombuffer(planes[f"{case}{suffix}::quantized"][2], q.dtype).astype(int)
        assert np.abs(got - q).max() <= 1, case
        count += q.size
        unequal += np.count_nonzero(got != q)
        y = np.frombuffer(unpacked[case + suffix][2], F32)
        same = got == q
        # Their divisions are approximate: a few ULP, squared for sqrt8.
        assert np.all(np.abs(y - d)[same] <= 5e-7 * np.abs(d[same])), case
    assert unequal <= count * 1e-4, f"{unequal} of {count}"


# ---- the same bits everywhere -------------------------------------------------------------------

CONFIGURATIONS = [
    ("bf16+ulp8", "softsign8", "sqrt8", "e8m8", 32),
    ("bf16+ulp16", "linear8", "ulinear8", "f16", 7),
    ("fp16+ulp8", "softsign8", "sqrt8", "f32", 33),
    ("fp16+ulp16", "linear8", "ulinear8", "e8m8", 1),
    ("bf16+bf16", "softsign8", "ulinear8", "f32", 1000),
    ("fp16+fp16", "bf16", "bf16", "e8m8", 32),
    ("bf16+exact16", "linear8", "sqrt8", "f16", 32),
    ("bf16", "f32", "f32", "e8m8", 32),
    ("bf16+trunc11", "softsign8", "sqrt8", "e8m8", 32),
    ("fp16+sr12", "softsign8", "sqrt8", "e8m8", 32),
    ("fp16", "softsign8", "sqrt8", "f16", 64)]


def mixed():
    """Everything above in one file; some of it stays raw."""
    tensors = dict(weights())
    for name, x in states().items():
        tensors[f"s_{name}"] = np.zeros_like(x)
        tensors[f"s_{name}.exp_avg"] = momentum(x)
        tensors[f"s_{name}.exp_avg_sq"] = variance(x)
    finite = np.concatenate([x.ravel() for x in weights().values()])
    tensors["packed_by_all"] = finite[np.abs(finite) < 65000]   # also drops NaN
    return tensors


def options(configuration):
    names = ("--weights", "--momentum", "--variance", "--scale", "--group")
    return [str(word) for pair in zip(names, configuration) for word in pair]


def cpu_flags():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return {flag for line in file if line.startswith("flags") for flag in line.split()}


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "-".join(map(str, c)))
def test_every_isa_level_and_thread_count_gives_the_same_file(configuration, tersor, tmp_path):
    args = options(configuration)
    packed, _ = pack(tersor, tmp_path, mixed(), *args)
    source, want = tmp_path / "source.safetensors", packed.read_bytes()
    args += ["--min-elements", "1"]
    flags = cpu_flags()
    for level, needs in LEVELS.items():
        env = {"TERSOR_ISA": level}
        if not needs <= flags:      # the variable never claims what the processor lacks
            done = tersor("pack", source, "-o", tmp_path / "no", *args, env=env, check=2)
            assert level in done.stderr
            continue
        for threads in (1, 2, 3):
            tersor("pack", source, "-o", packed, "-f", "-j", threads, *args, env=env, check=0)
            assert packed.read_bytes() == want, f"{level}, {threads} threads"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda c: "-".join(map(str, c)))
def test_every_isa_level_and_thread_count_decodes_the_same(configuration, tersor, tmp_path):
    packed, _ = pack(tersor, tmp_path, mixed(), *options(configuration))
    out = tmp_path / "out.safetensors"
    seen = set()
    for level, needs in LEVELS.items():
        for threads in (1, 2, 3) if needs <= cpu_flags() else ():
            tersor("unpack", packed, "-o", out, "-f", "-j", threads, check=0,
                   env={"TERSOR_ISA": level})
            seen.add(out.read_bytes())
    assert len(seen) == 1


def test_unknown_isa_level_is_a_usage_error(tersor, tmp_path):
    save_file({"w": np.ones(3, F32)}, tmp_path / "source.safetensors")
    tersor("pack", tmp_path / "source.safetensors", "-o", tmp_path / "packed.safetensors",
           env={"TERSOR_ISA": "mmx"}, check=2)
    assert not (tmp_path / "packed.safetensors").exists()
