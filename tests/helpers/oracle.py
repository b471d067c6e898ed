"""Second implementation of every codec, in numpy: what docs/internals/format.md and numerics.md say and nothing else.

Independent of the C code on purpose.  Every float32 operation below rounds once, to nearest even;
where a step must be exact or fused it runs in float64, and the comment says why that is the same.

    planes = encode(codec, x, group, scale)    dict: plane suffix ("" is the tensor itself) -> array
             encode(codec, x, seed=0, name="") for the stochastic ones
    y = decode(codec, planes, group, scale)    float32, flat
             both with kind="variance" for those of TABLED, which tables.py has
    reason = rawness(codec, x, group, scale)   why pack must leave x raw, or None
"""
import decimal

import numpy as np
import xxhash

import tables

F32 = np.float32
# Exponent bits, mantissa bits, bias.
FORMATS = {"bf16": (8, 7, 127), "fp16": (5, 10, 15), "e5m2": (5, 2, 15), "e4m3": (4, 3, 7)}
SCALES = {"f16": np.dtype("<u2"), "e8m8": np.dtype("<u2"), "f32": np.dtype("<u4"),
          "f28": np.dtype("<u4"), "e5m3": np.dtype("u1")}
WEIGHTS = ("bf16+ulp8", "bf16+ulp16", "fp16+ulp8", "fp16+ulp16", "bf16", "fp16",
           "bf16+bf16", "fp16+fp16", "bf16+exact16")
TRUNCATED = tuple(f"{fmt}+{kind}{k}" for kind in ("trunc", "sr")
                  for fmt, last in (("bf16", 16), ("fp16", 13), ("e5m2", 16), ("e4m3", 16))
                  for k in range(1, last + 1)) + tuple(f"bf16+rn{k}" for k in range(1, 14))
MOMENTA = ("softsign8", "linear8")
# Codes of k bits, 32 in k words, in flat groups; decode() needs their number `n`.
PACKED = {"ratio10": 10, "ratio9": 9, "ratio4": 4, "ratio3": 3, "log7": 7, "log6": 6, "log4": 4, "log3": 3}
LOGS = ("log8", *(c for c in PACKED if c[0] == "l"))        # variances, with scales of their own
# Momenta as ratios to their variances, which ratio() and momentum() make and undo; `still`: those that have no 0.
RATIOS = ("ratio8", *(c for c in PACKED if c[0] == "r"))
WITHOUT_ZERO = ("ratio4", "ratio3")
VARIANCES = ("sqrt8", "ulinear8")
TABLED = tuple(tables.GROUPS)


def bits(x):
    return np.ascontiguousarray(x, F32).view(np.uint32)


def from_bits(b):
    return np.ascontiguousarray(b, np.uint32).view(F32)


# ---- narrow weights -----------------------------------------------------------------------------

def narrow(x, fmt):
    """Round to nearest even; a NaN stays a quiet NaN with its sign and top payload bits."""
    b = bits(x)
    mag, sign = b & 0x7FFFFFFF, b >> 31 << 15
    if fmt == "bf16":
        # The carry out of the mantissa moves into the exponent, up to infinity: that is rounding.
        out = (b + 0x7FFF + (b >> 16 & 1)) >> 16
        nan = b >> 16 | 0x40
    else:
        # Integer form of |x| / 2^(e-10): the significand shifted right, the rest rounded.
        exp = mag >> 23
        sig = mag & 0x7FFFFF | np.where(exp > 0, 0x800000, 0).astype(np.uint32)
        shift = np.where(exp >= 113, 13, np.minimum(126 - exp.astype(np.int64), 31))
        shift = shift.astype(np.uint32)
        kept = sig >> shift
        rest = sig & ((np.uint32(1) << shift) - 1)
        half = np.uint32(1) << (shift - 1)
        kept = kept + ((rest > half) | ((rest == half) & (kept & 1 == 1)))
        # A normal result holds its hidden bit in `kept`, hence exponent - 1.
        out = kept + np.where(exp >= 113, (exp - 113) << 10, 0)
        out = np.where((exp >= 143) | (out >= 0x7C00), 0x7C00, out) | sign
        nan = sign | 0x7E00 | b >> 13 & 0x1FF
    return np.where(mag > 0x7F800000, nan, out).astype(np.uint16)


def widen(n, fmt):
    """The float32 of the same value, bit by bit; a NaN keeps its payload, shifted up."""
    n = np.asarray(n, np.uint16).astype(np.uint32)
    if fmt == "bf16":
        return from_bits(n << 16)
    sign, exp, man = (n & 0x8000) << 16, n >> 10 & 31, n & 0x3FF
    normal = sign | (exp + 112) << 23 | man << 13
    special = sign | 0x7F800000 | man << 13
    # man * 2^-24 is exact in float32.
    subnormal = sign | bits(man.astype(F32) * F32(2.0 ** -24))
    return from_bits(np.where(exp == 31, special, np.where(exp == 0, subnormal, normal)))


def _exponent(n, fmt):
    width, mant, _ = FORMATS[fmt]
    return n.astype(np.int64) >> mant & (1 << width) - 1


def is_special(n, fmt):
    """Infinite or NaN: no correction applies.  E4M3 has no infinity and one NaN."""
    if fmt == "e4m3":
        return n & 0x7F == 0x7F
    return _exponent(n, fmt) == (1 << FORMATS[fmt][0]) - 1


def _half_ulp(n, fmt):
    """2^l as float64, where it is always a normal number."""
    _, mant, bias = FORMATS[fmt]
    return np.ldexp(1.0, np.maximum(_exponent(n, fmt), 1) - bias - mant - 1)


def _round_away(t):
    """Halves away from zero.  Exact: t has 24 bits and is below 2^15, so float64 holds t + 0.5."""
    t = t.astype(np.float64)
    return np.copysign(np.floor(np.abs(t) + 0.5), t)


# ---- weights ------------------------------------------------------------------------------------

def encode_ulp(x, fmt, b):
    """-> (narrow uint16, correction int8 or int16)"""
    n = narrow(x, fmt)
    limit = (1 << b - 1) - 1
    with np.errstate(invalid="ignore", over="ignore"):
        t = (np.asarray(x, np.float64) - widen(n, fmt)) / _half_ulp(n, fmt)
        t = np.where(is_special(n, fmt), 0, np.clip(t, -1, 1))
    assert np.array_equal(t.astype(F32), t)         # difference and scaling are exact in float32
    return n, _round_away(t.astype(F32) * F32(limit)).astype(f"<i{b // 8}")


def decode_ulp(n, corr, fmt, b):
    frac = corr.astype(F32) / F32((1 << b - 1) - 1)
    wide = widen(n, fmt)
    with np.errstate(invalid="ignore", over="ignore"):
        base, step = wide.astype(np.float64), frac * _half_ulp(n, fmt)
        # The float64 sum is exact, so the conversion is the only rounding: this is the fma.  2^l is
        # half of base's last place, base < 2^(l+12) and frac is a multiple of 2^-38: 50 bits.
        total = base + step
        fused = total.astype(F32)
    ok = ~is_special(n, fmt)
    low = total - base
    assert not np.any((((base - (total - low)) + (step - low)) != 0)[ok])   # TwoSum error is 0
    return np.where(ok & (corr != 0), bits(fused), bits(wide)).view(F32)


def encode_exact16(x):
    b = bits(x)
    mag = (b & 0x7FFFFFFF).astype(np.int64)
    nmag = mag + 0x8000 >> 16
    nmag = np.where(mag > 0x7F800000, np.clip(nmag, 0x7F81, 0x7FFF), nmag)
    corr = np.clip(mag - (nmag << 16), -32768, 32767)
    return (nmag | (b >> 31 << 15)).astype(np.uint16), corr.astype("<i2")


def decode_exact16(n, corr):
    n = n.astype(np.int64)
    return from_bits((((n & 0x7FFF) << 16) + corr | (n & 0x8000) << 16).astype(np.uint32))


def encode_float(x, fmt):
    """-> (narrow, narrow of the rest)"""
    n = narrow(x, fmt)
    with np.errstate(invalid="ignore", over="ignore"):
        rest = np.where(is_special(n, fmt), F32(0), np.asarray(x, F32) - widen(n, fmt)).astype(F32)
    return n, narrow(rest, fmt)


def decode_float(n, corr, fmt):
    wide, rest = widen(n, fmt), widen(corr, fmt)
    with np.errstate(invalid="ignore", over="ignore"):
        total = wide + rest
    keep = is_special(n, fmt) | (rest == 0)
    return np.where(keep, bits(wide), bits(total)).view(F32)


# ---- truncated splits ---------------------------------------------------------------------------

def philox(counter, key):
    """Philox4x32-10: 4 arrays of words and 2 words -> 4 rows.  From the paper, in 64-bit words."""
    c = [np.asarray(word, np.uint64) for word in counter]
    k = [int(word) for word in key]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        left, right = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [right >> np.uint64(32) ^ c[1] ^ np.uint64(k[0]), right & low,
             left >> np.uint64(32) ^ c[3] ^ np.uint64(k[1]), left & low]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return np.stack([word.astype(np.uint32) for word in c])


def random_bits(n, seed, name):
    """16 for each of n elements of a tensor."""
    block = np.arange(-(-n // 8), dtype=np.uint64)
    stream = xxhash.xxh3_64_intdigest(name.encode())
    words = philox([block & np.uint64(0xFFFFFFFF), block >> np.uint64(32),
                    np.full_like(block, stream % 2**32), np.full_like(block, stream >> 32)],
                   [seed % 2**32, seed >> 32])
    return np.ascontiguousarray(words.T).view("<u2").ravel()[:n]


def _places(x, fmt):
    """|x| in last places of its narrow weight rounded toward zero: (narrow magnitude, fraction)."""
    _, mant, bias = FORMATS[fmt]
    x = np.abs(np.asarray(x, np.float64))
    # frexp has the significand in [0.5, 1); 2^place is the value of the last place.
    place = np.maximum(np.frexp(x)[1] - 1, 1 - bias) - mant
    t = np.ldexp(x, -place)                         # exact: a power of two
    whole = np.floor(t)
    mag = whole.astype(np.int64) + np.where(whole >= 1 << mant, (place + mant + bias - 1) << mant, 0)
    return mag, t - whole


def _largest(fmt):
    width, mant, _ = FORMATS[fmt]
    return 0x7E if fmt == "e4m3" else ((1 << width) - 1 << mant) - 1


def _special_magnitude(x, fmt):
    """Of what is not finite or overflows."""
    if fmt in ("bf16", "fp16"):
        return narrow(x, fmt) & 0x7FFF
    quiet = 0x7E | bits(x) >> 21 & 1
    return np.where(np.isnan(x), quiet, 0x7C) if fmt == "e5m2" else np.full(np.shape(x), 0x7F)


def widen_special(n, fmt):
    """Bits of the float32 that a special narrow weight stands for."""
    if fmt in ("bf16", "fp16"):
        return bits(widen(n, fmt))
    n = n.astype(np.uint32)
    mag = 0x7F800000 | (n & 3) << 21 if fmt == "e5m2" else 0x7FC00000
    return mag | (n & 0x80) << 24


TOO_LARGE = {"bf16": np.inf, "fp16": 65536, "e5m2": 65536, "e4m3": 480}


def encode_truncated(x, fmt, k, random=None, nearest=False):
    """-> (narrow, extra-bits plane); `random` are 16 bits an element, None to truncate or round to nearest."""
    b = bits(x)
    word = np.uint16 if fmt in ("bf16", "fp16") else np.uint8
    special = ~(np.abs(x) < TOO_LARGE[fmt])
    mag, rest = _places(np.where(special, 0, x), fmt)
    value = np.floor(rest * 2.0 ** k).astype(np.int64)
    if random is not None:
        up = (np.floor(rest * 65536) + random >= 65536) & (mag != _largest(fmt))
        mag, value = mag + up, value + (up.astype(np.int64) << k)
    if nearest:         # of what is k bits behind the place, halves up; so is the narrow weight of that
        value = np.floor(rest * 2.0 ** k + 0.5).astype(np.int64)
        mag, value = mag + (value >> k), value & (1 << k) - 1
        mag = mag + (2 * value >= 1 << k)
    mag = np.where(special, _special_magnitude(x, fmt), mag)
    value = np.where(special, 0, value)
    sign = b >> 31 << 8 * word().itemsize - 1
    return (mag | sign).astype(word), pack_bits(value, k + (random is not None))


def pack_bits(values, width):
    """32 values in `width` words, as one string of bits, the lowest bit first."""
    padded = np.zeros(-(-values.size // 32) * 32, np.int64)
    padded[:values.size] = values
    each = padded[:, None] >> np.arange(width) & 1
    return np.packbits(each.astype(np.uint8).ravel(), bitorder="little").view("<u4")


def unpack_bits(words, width, n):
    each = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(-1, width)[:n]
    return each.astype(np.int64) @ (1 << np.arange(width))


def decode_truncated(n, words, fmt, k, stochastic, nearest=False):
    _, mant, bias = FORMATS[fmt]
    value = unpack_bits(words, k + stochastic, n.size)
    n = n.ravel()
    sign = n >> 8 * n.itemsize - 1
    mag = (n & (1 << 8 * n.itemsize - 1) - 1).astype(np.int64)
    mag = np.maximum(mag - (2 * value >= 1 << k if nearest else value >> k), 0)
    exponent = np.maximum(mag >> mant, 1)
    whole = (mag & (1 << mant) - 1) + np.where(mag >> mant, 1 << mant, 0)
    # At most 24 bits: exact, and so is the conversion.
    y = np.ldexp(whole + (value & (1 << k) - 1) * 2.0 ** -k, exponent - bias - mant)
    with np.errstate(over="ignore"):
        y = bits(y.astype(F32)) | sign.astype(np.uint32) << 31
    return np.where(is_special(n, fmt), widen_special(n, fmt), y).astype(np.uint32).view(F32)


def truncated(codec):
    """(format, k, whether stochastic) of a truncated split's name, or None."""
    fmt, _, kind = codec.partition("+")
    if not kind.startswith(("trunc", "sr", "rn")):
        return None
    return fmt, int(kind.lstrip("truncs")), kind.startswith("sr")


# ---- scales -------------------------------------------------------------------------------------

def _grouped(x, group):
    """[groups, group], the last one filled up with zeros, which change no maximum."""
    x = np.asarray(x, F32).ravel()
    out = np.zeros((-(-x.size // group), group), F32)
    out.ravel()[:x.size] = x
    return out


def _store(s, scale, squared):
    """-> (plane as stored, the float32 that the encoder divides by)"""
    if scale == "f32":
        return bits(s), s
    if scale == "e5m3":
        code = np.where(s > 0, np.clip((bits(s).astype(np.int64) + 0x80000 >> 20) - 856, 1, 255), 0).astype("u1")
        return code, load_scale(code, scale)
    if scale == "f16":      # FlashOptim: only the stored scale is rounded; the divisor has a floor
        return narrow(s, "fp16"), np.maximum(s, F32(1e-12))
    # Rounded up to 8 mantissa bits, but never to infinity; a scale whose square is decoded
    # stays below 2^64.
    code = np.minimum(bits(s) + 0x7FFF >> 15, 0xBEFF if squared else 0xFEFF).astype("<u2")
    return code, load_scale(code, scale)


def load_scale(plane, scale):
    if scale == "f32":
        return from_bits(plane)
    if scale == "f16":
        return widen(plane, "fp16")
    if scale == "e5m3":
        return np.where(plane == 0, F32(0), from_bits(plane.astype(np.uint32) + 856 << 20))
    return from_bits(plane.astype(np.uint32) << 15)


def _unit(S):
    """The power of two that keeps quotients and products of a group in the normal range."""
    return np.where(S < F32(2.0 ** -60), F32(2.0 ** 64),
                    np.where(S >= F32(2.0 ** 120), F32(2.0 ** -4), F32(1)))


def _expand(s, n, group):
    return np.repeat(s, group)[:n]


def _code(t, S, n, limit, dtype):
    """Nearest code, halves away from zero; the sum is rounded to float32 like everything else."""
    code = np.copysign(np.minimum(np.floor(np.abs(t) + F32(0.5)), limit), t)
    return np.where(S == 0, 0, code).astype(dtype).ravel()[:n]


def _absmax(x):
    """Per group; +0 for a group of zeros of either sign."""
    return np.abs(x).max(1, initial=0)


# ---- momentum -----------------------------------------------------------------------------------

def encode_softsign(x, group=32, scale="e8m8", levels=127):
    """-> (int8 codes, scale plane)"""
    m = _grouped(x, group)
    plane, S = _store(_absmax(m), scale, False)
    S = S[:, None]
    f = _unit(S)
    with np.errstate(invalid="ignore", divide="ignore"):
        mf = m * f
        z = (F32(2) * mf) / (S * f + np.abs(mf))
        return _code(F32(levels) * z, S, np.size(x), levels, np.int8 if levels == 127 else np.int16), plane


def decode_softsign(q, plane, group=32, scale="e8m8", levels=127):
    # q/127 / (2 - |q|/127) as one quotient of small integers.
    frac = q.astype(F32) / (2 * levels - np.abs(q.astype(np.int32))).astype(F32)
    return _expand(load_scale(plane, scale), q.size, group) * frac


MAX_LEVELS = {3: [0.2451, 0.7560, 1.3439, 2.1520],
              4: [0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326]}


def encode_levels(x, group, scale, k):
    """-> (signed codes, scale plane): the nearest level, relative to the root mean square of a group."""
    m = _grouped(x, group)
    largest = _absmax(m)[:, None]
    count = np.minimum(group, np.size(x) - group * np.arange(len(m)))[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(largest > 0, np.abs(m) / largest, F32(0))
        total = np.floor(t * t * F32(32768)).astype(np.int64).sum(1, keepdims=True)
        mean = total.astype(F32) / count.astype(F32) * F32(2.0 ** -15)
        plane, S = _store((largest * np.sqrt(mean))[:, 0], scale, False)
        S = S[:, None]
        t = np.abs(m * _unit(S)) / (S * _unit(S))
        at = [decimal.Decimal(str(level)) for level in MAX_LEVELS[k]]
        middle = np.array([nearest_float((a + b) / 2) for a, b in zip(at, at[1:])], F32)
        level = np.searchsorted(middle, t, "right")
    return np.where(S == 0, 0, np.where(m < 0, -1 - level, level)).ravel()[:np.size(x)], plane


def decode_levels(q, plane, group, scale, k):
    level = np.array(MAX_LEVELS[k], F32)[np.where(q < 0, -1 - q, q)]
    return _expand(load_scale(plane, scale), q.size, group) * np.where(q < 0, -level, level)


def encode_linear(x, group=32, scale="e8m8"):
    m = _grouped(x, group)
    plane, S = _store(_absmax(m), scale, False)
    S = S[:, None]
    f = _unit(S)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _code((m * f) * (F32(127) / (S * f)), S, np.size(x), 127, np.int8), plane


def decode_linear(q, plane, group=32, scale="e8m8"):
    return _expand(load_scale(plane, scale), q.size, group) * (q.astype(F32) / F32(127))


def divisor(v, eps=1e-8, still=False):
    with np.errstate(invalid="ignore"):
        root = np.sqrt(np.asarray(v, F32))
        return np.where(root == 0, F32(0), root + F32(eps)) if still else root + F32(eps)


def ratio(m, v, eps=1e-8, still=False):
    d = divisor(v, eps, still)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        return np.where(d == 0, F32(0), np.asarray(m, F32) / d).astype(F32)


def momentum(p, v, eps=1e-8, still=False):
    return p * divisor(v, eps, still)


# ---- variance -----------------------------------------------------------------------------------

def _keep_positive(code, plane, v, group, scale, decode):
    """The least code of a positive variance is the least one that decodes to something: not with f16."""
    v = np.asarray(v, F32).ravel()
    for _ in range(255 if scale != "f16" else 0):
        zero = (code == 0) | (decode(code, plane, group, scale) == 0)
        lost = (v > 0) & zero & (code < 255)
        if not lost.any():
            break
        code = code + lost.astype(np.uint8)
    return code


def encode_sqrt(v, group=32, scale="e8m8"):
    """-> (uint8 codes, scale plane)"""
    r = np.sqrt(_grouped(v, group))
    plane, S = _store(_absmax(r), scale, True)
    S = S[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        code = _code(r * (F32(255) / S), S, np.size(v), 255, np.uint8)
        return _keep_positive(code, plane, v, group, scale, decode_sqrt), plane


def decode_sqrt(q, plane, group=32, scale="e8m8"):
    t = _expand(load_scale(plane, scale), q.size, group) * (q.astype(F32) / F32(255))
    return t * t


def encode_ulinear(v, group=32, scale="e8m8"):
    x = _grouped(v, group)
    plane, S = _store(_absmax(x), scale, False)
    S = S[:, None]
    f = _unit(S)
    with np.errstate(invalid="ignore", divide="ignore"):
        code = _code((x * f) * (F32(255) / (S * f)), S, np.size(v), 255, np.uint8)
        return _keep_positive(code, plane, v, group, scale, decode_ulinear), plane


def decode_ulinear(q, plane, group=32, scale="e8m8"):
    return _expand(load_scale(plane, scale), q.size, group) * (q.astype(F32) / F32(255))


LOG_RANGES = [0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 13, 17, 24]     # octaves
LOG_CAPS = {8: 24, 7: 13, 6: 13, 4: 10, 3: 6}
_log_rows = {}


def log_row(p, k=8):
    """Values and thresholds of a range, correctly rounded from 40 digits; entry 0 of the latter is unused."""
    if (p, k) not in _log_rows:
        last = 2 ** k - 1
        with decimal.localcontext() as context:
            context.prec = 40
            step = decimal.Decimal(log_range(p, k)) / (last - 1)
            power = [decimal.Decimal(2) ** (-half * step / 2) for half in range(2 * last + 1)]
        exact = [F32(0)] + [nearest_float(power[2 * (last - c)]) for c in range(1, last + 1)]
        _log_rows[p, k] = np.array(exact, F32), np.array([0] + [nearest_float(power[2 * (last - c) + 1])
                                                                for c in range(1, last + 1)], F32)
    return _log_rows[p, k]


def log_range(p, k):
    return min(LOG_RANGES[p], LOG_CAPS[k])


def nearest_float(x):
    """The float32 next to a Decimal; rounding by way of float64 could round twice."""
    y = F32(float(x))
    around = [np.nextafter(y, F32(-np.inf)), y, np.nextafter(y, F32(np.inf))]
    return min(around, key=lambda f: (abs(decimal.Decimal(float(f)) - x), int(F32(f).view(np.uint32)) & 1))


def encode_log(v, group=64, scale="f28", k=8):
    """-> (uint8 codes, scale plane)"""
    v = np.asarray(v, F32).ravel()
    codes, scales = np.zeros(v.size, np.uint8), []
    for first in range(0, v.size, group):
        r = np.sqrt(v[first:first + group])
        stored = min(int(bits(r.max())[0]) + 15 & ~15, 0x5f7ffff0)
        s = from_bits(np.array([stored]))[0]
        positive = r[r > 0]
        p = 0
        if positive.size:
            while p < 15 and s * F32(2.0 ** -log_range(p, k)) > positive.min():
                p += 1
            codes[first:first + group] = np.where(
                r > 0, np.maximum(np.searchsorted(log_row(p, k)[1][1:], r / s, "right"), 1), 0)
        scales.append(stored | p)
    return codes, np.array(scales, "<u4")


def decode_log(q, plane, group=64, scale="f28", k=8):
    rows = np.array([log_row(int(p), k)[0] for p in plane & 15]) if plane.size else np.zeros((0, 2 ** k), F32)
    at = np.arange(q.size) // group
    root = rows[at, q] * from_bits(plane & ~np.uint32(15))[at]
    return root * root


# ---- packed codes -------------------------------------------------------------------------------

def encode_packed(codec, x, group, scale):
    k = PACKED[codec]
    if codec in LOGS:
        q, plane = encode_log(x, group, k=k)
    elif codec in WITHOUT_ZERO:
        q, plane = encode_levels(x, group, scale, k)
    else:
        q, plane = encode_softsign(x, group, scale, 2 ** (k - 1) - 1)
    return {"::quantized": pack_bits(q.astype(np.int64) & 2 ** k - 1, k), "::scales": plane}


def decode_packed(codec, planes, group, scale, n):
    k = PACKED[codec]
    q, plane = unpack_bits(planes["::quantized"], k, n), planes["::scales"]
    if codec in LOGS:
        return decode_log(q, plane, group, k=k)
    q = np.where(q >> k - 1, q - 2 ** k, q)
    if codec in WITHOUT_ZERO:
        return decode_levels(q, plane, group, scale, k)
    return decode_softsign(q, plane, group, scale, 2 ** (k - 1) - 1)


# ---- by codec name ------------------------------------------------------------------------------

STATE = {"softsign8": (encode_softsign, decode_softsign), "linear8": (encode_linear, decode_linear),
         "ratio8": (encode_softsign, decode_softsign), "log8": (encode_log, decode_log),
         "sqrt8": (encode_sqrt, decode_sqrt), "ulinear8": (encode_ulinear, decode_ulinear)}


def row_group(shape, group, scale):
    """The size of groups that do not cross rows, or None where groups are flat."""
    if len(shape) < 2 or scale == "f16" or not group < shape[-1] <= 65536 or shape[-1] % group == 0:
        return None
    return -(-shape[-1] // (shape[-1] // group))


def encode(codec, x, group=32, scale="e8m8", seed=0, name="", kind="momentum"):
    """An array of two or more dimensions has groups that follow rows, where its tensor would."""
    x = np.asarray(x, F32)
    if codec in TABLED:
        return tables.encode(codec, x, group, kind)
    if codec in PACKED:
        return encode_packed(codec, x.ravel(), group, scale)
    size = row_group(x.shape, group, scale) if codec in STATE else None
    if size:
        rows = [STATE[codec][0](row, size, scale) for row in x.reshape(-1, x.shape[-1])]
        return {"::quantized": np.array([q for q, _ in rows]).reshape(x.shape),
                "::scales": np.concatenate([s for _, s in rows])}
    x = x.ravel()
    if codec in STATE:
        q, s = STATE[codec][0](x, group, scale)
        return {"::quantized": q, "::scales": s}
    if codec == "f32":
        return {"": bits(x)}
    fmt, _, kind = codec.partition("+")
    if not kind:
        return {"": narrow(x, fmt)}
    if truncated(codec):
        _, k, stochastic = truncated(codec)
        random = random_bits(x.size, seed, name) if stochastic else None
        return dict(zip(("", "::extra_bits"), encode_truncated(x, fmt, k, random, kind.startswith("rn"))))
    if kind == "exact16":
        pair = encode_exact16(x)
    elif kind == fmt:
        pair = encode_float(x, fmt)
    else:
        pair = encode_ulp(x, fmt, int(kind.removeprefix("ulp")))
    return {"": pair[0], "::error_bits": pair[1]}


def decode(codec, planes, group=32, scale="e8m8", kind="momentum", n=None):
    """Elements, flat; the codes have the shape of the tensor."""
    if codec in TABLED:
        return tables.decode(codec, planes, group, kind)
    if codec in PACKED:
        return decode_packed(codec, planes, group, scale, n)
    shape = np.shape(planes["::quantized"]) if codec in STATE else ()
    size = row_group(shape, group, scale)
    if size:
        rows = planes["::quantized"].reshape(-1, shape[-1])
        scales = planes["::scales"].reshape(len(rows), -1)
        return np.concatenate([STATE[codec][1](q, s, size, scale) for q, s in zip(rows, scales)])
    planes = {key: np.ravel(plane) for key, plane in planes.items()}
    if codec in STATE:
        return STATE[codec][1](planes["::quantized"], planes["::scales"], group, scale)
    if codec == "f32":
        return from_bits(planes[""])
    fmt, _, kind = codec.partition("+")
    if not kind:
        return widen(planes[""], fmt)
    if truncated(codec):
        return decode_truncated(planes[""], planes["::extra_bits"], *truncated(codec), kind.startswith("rn"))
    n, corr = planes[""], planes["::error_bits"]
    if kind == "exact16":
        return decode_exact16(n, corr)
    if kind == fmt:
        return decode_float(n, corr, fmt)
    return decode_ulp(n, corr, fmt, int(kind.removeprefix("ulp")))


def rawness(codec, x, group=32, scale="e8m8"):
    """Why pack must leave this tensor raw FP32: "non-finite", "negative", "overflow" or None."""
    x = np.asarray(x, F32)
    if codec == "f32":
        return None
    if not np.isfinite(x).all():
        return "non-finite"
    if codec in VARIANCES and (x < 0).any():
        return "negative"
    planes = encode(codec, x, group, scale)
    if codec in STATE:
        finite = np.isfinite(load_scale(planes["::scales"], scale)).all()
    else:
        finite = not is_special(planes[""], codec.partition("+")[0]).any()
    return None if finite else "overflow"


# ---- what a codec does to a step ----------------------------------------------------------------

def update_error(m, v, m2, v2, eps=1e-8):
    """NMSE of Adam's update m / (sqrt(v) + eps) when (m2, v2) stand in for (m, v): of this step's, or of a later
    one's, with a true momentum and a gradient more in v2, whichever is larger.  Not finite ones are left out."""
    m, v, m2, v2 = (np.asarray(a, np.float32).ravel() for a in (m, v, m2, v2))
    later, eps = v2 + (v - v2) * np.float32(1 / 1024), np.float32(eps)
    with np.errstate(invalid="ignore"):
        u, u2, u3 = m / (np.sqrt(v) + eps), m2 / (np.sqrt(v2) + eps), m / (np.sqrt(later) + eps)
    u, u2, u3 = (a[np.isfinite(u)] for a in (u, u2, u3))
    worst = max((np.float64(u - w) ** 2).sum() for w in (u2, u3))
    return float(worst / (np.float64(u) ** 2).sum()) if worst else 0.0


def update_nmse(m, v, scale, group=32):
    """The same after softsign8 + sqrt8."""
    return update_error(m, v, *(decode(codec, encode(codec, x, group, scale), group, scale)
                                for codec, x in (("softsign8", m), ("sqrt8", v))))
