"""Second implementation of the codecs whose codes are tables: docs/internals/format.md, 8.15 and 8.16.

Powers are computed with 40 digits and rounded once; codes are found by searching the thresholds.

    planes = encode(codec, x, group, kind)     {"::quantized": uint8, "::scales": float32 bits, ...}
    y = decode(codec, planes, group, kind)     float32, flat
"""
import decimal
import functools
from fractions import Fraction

import numpy as np

F32 = np.float32
FORMATS = {"e4m3": (3, 7, 126), "e5m2": (2, 15, 123)}       # mantissa bits, bias, the largest code
GROUPS = {"e4m3": 128, "e5m2": 128, "e4m3x": 128, "e5m2x": 128, "dyn8": 256}
LEAST = 2.0 ** -149
CONTEXT = decimal.Context(prec=40)


# ---- rounding -----------------------------------------------------------------------------------

def rounded(d):
    """A Decimal as float32, to nearest even; its float64 decides unless that is on a boundary."""
    wide = float(d)
    with np.errstate(over="ignore", under="ignore"):
        near = F32(wide)
    if not np.isfinite(near):
        return near
    for other in (np.nextafter(near, F32(np.inf)), np.nextafter(near, F32(-np.inf))):
        if np.isfinite(other) and (float(near) + float(other)) / 2 == wide != float(near):
            middle = decimal.Decimal((float(near) + float(other)) / 2)
            if d != middle:
                return max(near, other) if d > middle else min(near, other)
    return near


@functools.cache
def log_of(numerator, denominator):
    return CONTEXT.subtract(CONTEXT.ln(decimal.Decimal(numerator)),
                            CONTEXT.ln(decimal.Decimal(denominator)))


def power(base, j):
    """RN(base^(16/j)) of a Fraction."""
    log = CONTEXT.divide(CONTEXT.multiply(log_of(base.numerator, base.denominator), 16), j)
    return rounded(CONTEXT.exp(log))


# ---- tables -------------------------------------------------------------------------------------

def value(fmt, c):
    """Of a code without sign, exactly."""
    mantissa, bias, _ = FORMATS[fmt]
    field, rest = c >> mantissa, c & (1 << mantissa) - 1
    return Fraction(rest + (1 << mantissa if field else 0)) * Fraction(2) ** (max(field, 1) - bias
                                                                           - mantissa)


@functools.cache
def plain(fmt):
    """(values of 128 codes, the least t that has each code from 1 on, as floats)"""
    last = FORMATS[fmt][2]
    values = np.full(128, np.nan, F32)
    values[:last + 1] = [float(value(fmt, c)) for c in range(last + 1)]
    if fmt == "e5m2":
        values[last + 1] = np.inf
    middles = [F32(float(value(fmt, c - 1) + value(fmt, c)) / 2) for c in range(1, last + 1)]
    return values, passing(middles)


@functools.cache
def expanded(fmt, j):
    last = FORMATS[fmt][2]
    if j == 0:
        return np.zeros(128, F32), None
    most = value(fmt, last)
    values = plain(fmt)[0].copy()
    values[1:last + 1] = [power(value(fmt, c) / most, j) for c in range(1, last + 1)]
    middles = [power((value(fmt, c - 1) + value(fmt, c)) / 2 / most, j)
               for c in range(1, last + 1)]
    return values, passing(middles)


def passing(middles):
    """The least t > 0 that passes each: itself where the code is even, else the next float."""
    itself = np.maximum(np.array(middles, F32), F32(LEAST))
    up = np.nextafter(np.array(middles, F32), F32(np.inf))
    codes = np.arange(1, len(middles) + 1)
    return np.maximum.accumulate(np.where(codes % 2, up, itself))


@functools.cache
def bounds(fmt):
    """B(1) to B(255)."""
    most = value(fmt, FORMATS[fmt][2]) / value(fmt, 1) * Fraction(7, 16)
    return np.minimum(np.array([power(most, j) for j in range(1, 256)], F32), np.finfo(F32).max)


@functools.cache
def dynamic(unsigned):
    """The map without its negative half."""
    tenth, one, out = F32(0.1), F32(1), [F32(0)]
    for decade in range(7):
        n = 2 ** (decade + unsigned)
        width = float(one - tenth) / n
        edges = [F32(float(tenth) + k * width) if k < (n + 1) // 2 else F32(1 - (n - k) * width)
                 for k in range(n + 1)]
        out += [F32((a + b) / F32(2)) * F32(10.0 ** (decade - 6)) for a, b in zip(edges, edges[1:])]
    return np.array(out + [one], F32)


# ---- encoding -----------------------------------------------------------------------------------

def first_above_zero(values, scale):
    """The least code from 1 on that decodes to something but 0, or the last."""
    with np.errstate(under="ignore"):
        found = np.nonzero(values[1:] * scale > 0)[0]
    return int(found[0]) + 1 if len(found) else len(values) - 1


def encode_float(fmt, x, variance, expand):
    """A group: (codes, scale, j)"""
    mags = np.abs(x)
    top, last = mags.max(), FORMATS[fmt][2]
    sign = np.signbit(x).astype(np.uint8) << 7
    if top == 0:
        return sign, F32(0), 0
    with np.errstate(over="ignore", under="ignore"):
        if expand:
            ratio = top / mags[mags > 0].min()
            fits = np.nonzero(ratio <= bounds(fmt))[0]
            j, scale = int(fits[-1]) + 1 if len(fits) else 1, top
            values, least = expanded(fmt, j)
        else:
            j, scale = 0, max(top / F32(value(fmt, last)), F32(LEAST))
            values, least = plain(fmt)
        t = mags / scale
    code = np.searchsorted(least, t, side="right")
    if expand or variance:
        code = np.where(mags > 0, np.maximum(code, first_above_zero(values[:last + 1], scale)), code)
    return code.astype(np.uint8) | sign, scale, j


def encode_dynamic(x, variance):
    """A group, by distances in float64, which are exact enough: no two are equal but in ties."""
    mags = np.abs(x)
    scale = mags.max()
    half = dynamic(variance)
    signed = half if variance else np.concatenate([-half[127:0:-1], half])
    zero = 0 if variance else 127
    with np.errstate(invalid="ignore", under="ignore"):
        t = np.where(scale > 0, x / scale, F32(0)).astype(np.float64)
    middles = (signed[1:].astype(np.float64) + signed[:-1]) / 2
    code = np.searchsorted(middles, t, side="left")         # a tie goes to the lower index
    least = first_above_zero(half, scale) if scale > 0 else 0
    code = np.where(x > 0, np.maximum(code, zero + least), code)
    low = np.minimum(code, zero - min(least, 127)) if not variance else 0
    return np.where(x < 0, low, np.where(x == 0, zero, code)).astype(np.uint8), scale


def encode(codec, x, group=None, kind="momentum"):
    x = np.asarray(x, F32).ravel()
    group, variance = group or GROUPS[codec], kind == "variance"
    codes, scales, js = [np.zeros(0, np.uint8)], [], []
    for first in range(0, x.size, group):
        part = x[first:first + group]
        if codec == "dyn8":
            code, scale = encode_dynamic(part, variance)
        else:
            code, scale, j = encode_float(codec[:4], part, variance, codec.endswith("x"))
            js.append(j)
        codes.append(code)
        scales.append(scale)
    planes = {"::quantized": np.concatenate(codes),
              "::scales": np.array(scales, F32).view(np.uint32)}
    if codec.endswith("x"):
        planes["::expand"] = np.array(js, np.uint8)
    return planes


# ---- decoding -----------------------------------------------------------------------------------

def decode(codec, planes, group=None, kind="momentum"):
    codes = np.ravel(planes["::quantized"]).view(np.uint8)
    group = group or GROUPS[codec]
    scales = np.repeat(planes["::scales"].view(F32).ravel(), group)[:codes.size]
    if codec == "dyn8":
        half = dynamic(kind == "variance")
        values = half if kind == "variance" else np.concatenate([-half[127:0:-1], half])
        with np.errstate(all="ignore"):
            return values[codes] * scales
    if codec.endswith("x"):
        rows = np.repeat(planes["::expand"].ravel(), group)[:codes.size]
        values = np.zeros(codes.size, F32)
        for j in np.unique(rows):
            here = rows == j
            values[here] = expanded(codec[:4], int(j))[0][codes[here] & 0x7F]
    else:
        values = plain(codec)[0][codes & 0x7F]
    with np.errstate(all="ignore"):
        y = values * scales
    return np.where(codes & 0x80, -y, y)
