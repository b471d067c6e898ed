"""Pieces of differences a second time, from docs/internals/format.md, section 18.7, alone: decode() one."""
import numpy as np

from coded_planes import Bytes, code_level, decode_segments, need, read_table, tables_of_contexts

FLOATS = {"BF16": 7, "F16": 10, "F32": 23}


def ordered(elements, dtype):
    """Unsigned elements as integers whose order is theirs."""
    bits = 8 * elements.dtype.itemsize
    x, sign = elements.astype(np.int64), 1 << (bits - 1)
    return np.where(x & sign, 2 * sign - 1 - x, x | sign) if dtype in FLOATS else x ^ sign


def unordered(x, dtype, bits):
    sign = 1 << (bits - 1)
    back = np.where(x & sign, x ^ sign, 2 * sign - 1 - x) if dtype in FLOATS else x ^ sign
    return back.astype(f"u{bits // 8}")


def rescaled(codes, old_scales, scales):
    """Codes of variances on other scales, given the scales of their elements."""
    def parts(c):
        return [int(v) for v in 256 + c % 256], [int(v) for v in c // 256]
    out = []
    for c, mo, eo, mn, en in zip(codes.tolist(), *parts(old_scales.astype(int)), *parts(scales.astype(int))):
        t = min(255 * 65536, 65536 * mo * 2**max(0, eo - en) // (mn * 2**max(0, en - eo)))
        out.append(min(255, (c * t + 32768) // 65536))
    return np.array(out, np.uint8)


def contexts_of(old, dtype, e, of_variance):
    if dtype in FLOATS:
        need(e < 256, "an exponent")
        bits = 8 * old.dtype.itemsize
        return np.clip(((old.astype(np.int64) & ((1 << (bits - 1)) - 1)) >> FLOATS[dtype]) - e, 0, 7)
    need(e == 0, "an exponent of what is no float")
    if of_variance:
        return np.clip(code_level(old) - 64, 0, 63) // 8
    return old.astype(np.int64) >> 5 if old.dtype.itemsize == 1 else np.zeros(len(old), np.int64)


def read_symbols(mode, body, n, contexts):
    if mode == 1:
        symbols = np.full(n, body.take(1, pad=True)[0], np.int64)
    else:
        need(mode == 3, "mode")
        tables, e = tables_of_contexts(body.number(2)), body.number(2)
        f = np.array([read_table(body) for _ in range(max(tables) + 1)])
        symbols = decode_segments(f, body, n, tables[contexts(e)]).astype(np.int64)
    body.end()
    return symbols


def decode(piece, dtype, old, correction=None, old_scales=None, scales=None):
    """The elements of a piece as unsigned integers, or with the old corrections two such arrays."""
    piece, n = Bytes(piece), len(old)
    need(piece.number(1) == 4 and piece.number(3) == len(piece.data), "head")
    mode, size = piece.number(1), piece.number(3)
    if scales is not None:
        old = rescaled(old, old_scales, scales)
    width, more = 8 * old.dtype.itemsize, 8 * correction.dtype.itemsize if correction is not None else 0
    bits = width + more
    symbols = read_symbols(mode, Bytes(piece.take(size)), n,
                           lambda e: contexts_of(old, dtype, e, scales is not None))
    r = np.zeros(n, np.int64) if bits == 8 else np.maximum(symbols // 8 - 1, 0)
    need(bits == 8 or (r <= bits - 4).all(), "a symbol that is too large")
    rests = piece.take(-(-int(r.sum()) // 8), pad=True)
    piece.end()
    stream = np.unpackbits(np.frombuffer(rests, np.uint8), bitorder="little")
    ends = np.cumsum(r)
    need(not stream[int(r.sum()):].any(), "bits behind the rests")
    z = (symbols - 8 * r) << r
    for b in range(int(r.max()) if n else 0):
        has = r > b
        z[has] += stream[(ends - r)[has] + b].astype(np.int64) << b
    d = np.where(z % 2, -(z + 1) // 2, z // 2)
    p = ordered(old, dtype)
    if more:
        p = (p << more) + ordered(correction, None)
    x = (p + d) % (1 << bits)
    if not more:
        return unordered(x, dtype, width)
    return unordered(x >> more, dtype, width), unordered(x % (1 << more), None, more)
