"""Coded planes a second time, from docs/format.md, section 18, alone: decode() and encode() a piece."""
import numpy as np

SEGMENT, BLOCK, LANES, LOW, SLOTS = 32768, 128, 32, 65536, 4096


class Refused(ValueError):
    """A piece that a reader must reject."""


def need(condition, what):
    if not condition:
        raise Refused(what)


def padded(nbytes):
    return -(-nbytes // 4) * 4


def segments_of(n):
    return [min(SEGMENT, n - at) for at in range(0, n, SEGMENT)]


def states_of(k):
    return min(LANES, -(-k // 4))


class Bytes:
    """Bytes taken from the front."""

    def __init__(self, data):
        self.data = bytes(data)

    def take(self, nbytes, pad=False):
        size = padded(nbytes) if pad else nbytes
        need(len(self.data) >= size, "ends early")
        taken, self.data = self.data[:size], self.data[size:]
        need(not any(taken[nbytes:]), "padding")
        return taken[:nbytes]

    def number(self, nbytes):
        return int.from_bytes(self.take(nbytes), "little")

    def end(self):
        need(not self.data, "bytes left over")


# --- Streams (18.1) ---------------------------------------------------------------------------

def split(elements, rotated):
    """Unsigned elements to their streams."""
    bits = 8 * elements.dtype.itemsize
    if rotated:
        elements = elements << 1 | elements >> (bits - 1)
    return [(elements >> 8 * k & 255).astype(np.uint8) for k in range(bits // 8)]


def merge(streams, rotated):
    bits = 8 * len(streams)
    kind = np.dtype(f"u{len(streams)}")
    elements = np.zeros(len(streams[0]), kind)
    for k, stream in enumerate(streams):
        elements |= stream.astype(kind) << kind.type(8 * k)
    if rotated:
        elements = elements >> kind.type(1) | elements << kind.type(bits - 1)
    return elements


def order(k):
    """The symbols of a segment of k, round by round: indices, (rounds, 32), and which of them there are."""
    block, turn, lane = np.ogrid[:-(-k // BLOCK), :4, :LANES]
    index = (block * BLOCK + lane * 4 + turn).reshape(-1, LANES)
    return index, index < k


# --- Decoding ---------------------------------------------------------------------------------

def read_table(body):
    a, b, w, zero = body.take(4)
    need(a < b and 1 <= w <= 12 and zero == 0, "head of a table")
    nbits = (b - a + 1) * w
    packed = body.take(-(-nbits // 8), pad=True)
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    need(not bits[nbits:].any(), "bits behind a table")
    f = np.zeros(256, np.int64)
    f[a:b + 1] = bits[:nbits].reshape(-1, w) @ (1 << np.arange(w))
    need(f.sum() == SLOTS and f[a] and f[b] and int(f.max()).bit_length() == w, "table")
    return f


def decode_segment(f, body, nwords, k):
    start = np.cumsum(f) - f
    symbol_of = np.repeat(np.arange(256), f)
    x = np.full(LANES, LOW, np.int64)
    nstates = states_of(k)
    x[:nstates] = np.frombuffer(body.take(4 * nstates), "<u4")
    need((x >= LOW).all(), "a state is too small")
    words = np.frombuffer(body.take(2 * nwords, pad=True), "<u2").astype(np.int64)
    index, there = order(k)
    symbols, at = np.zeros(index.size, np.uint8), 0
    for i, on in zip(index, there):
        slot = x % SLOTS
        s = symbol_of[slot]
        symbols[i[on]] = s[on]
        x = np.where(on, f[s] * (x // SLOTS) + slot - start[s], x)
        lacks = x < LOW
        need(at + lacks.sum() <= nwords, "words end early")
        x[lacks] = LOW * x[lacks] + words[at:at + lacks.sum()]
        at += lacks.sum()
    need(at == nwords and (x == LOW).all(), "does not end where encoding began")
    return symbols[:k]


def decode_coded(body, n):
    need(len(body.data) < n, "not smaller")
    f = read_table(body)
    segments = segments_of(n)
    nwords = np.frombuffer(body.take(2 * len(segments), pad=True), "<u2")
    return np.concatenate([decode_segment(f, body, int(c), k) for c, k in zip(nwords, segments)])


def decode_stream(mode, body, n):
    if mode == 0:
        symbols = np.frombuffer(body.take(n, pad=True), np.uint8)
        need(len(set(symbols.tolist())) > 1, "constant, but raw")
    elif mode == 1:
        symbols = np.full(n, body.take(1, pad=True)[0], np.uint8)
    else:
        need(mode == 2, "mode")
        symbols = decode_coded(body, n)
    body.end()
    return symbols


def decode(piece, width, rotated, n):
    """The elements of a piece as unsigned integers."""
    piece = Bytes(piece)
    if n == 0:
        piece.end()
        return np.zeros(0, f"u{width}")
    heads = [(piece.number(1), piece.number(3)) for _ in range(width)]
    need(all(size % 4 == 0 for _, size in heads), "size of a body")
    streams = [decode_stream(mode, Bytes(piece.take(size)), n) for mode, size in heads]
    piece.end()
    return merge(streams, rotated)


# --- Encoding (18.4) --------------------------------------------------------------------------

def share(c, t):
    return max(1, (c * t + 2**31) // 2**32)


def frequencies(counts):
    present = {s: int(c) for s, c in enumerate(counts) if c}
    low, high = 0, 2**46
    while high - low > 1:
        t = (low + high) // 2
        if sum(share(c, t) for c in present.values()) <= SLOTS:
            low = t
        else:
            high = t
    f = np.zeros(256, np.int64)
    for s, c in present.items():
        f[s] = share(c, low)
    for s, c in present.items():
        if f.sum() < SLOTS and share(c, low + 1) != f[s]:
            f[s] += 1
    return f


def cost(f):
    e = int(f).bit_length() - 1
    y, g = 2**(16 - e) * int(f), e
    for _ in range(8):
        y, g = y * y // 65536, 2 * g
        if y >= 131072:
            y, g = y // 2, g + 1
    return 3072 - g


def table_bytes(f):
    a, b = np.flatnonzero(f)[[0, -1]]
    w = int(f.max()).bit_length()
    packed = sum(int(v) << i * w for i, v in enumerate(f[a:b + 1]))
    nbytes = -(-int(b - a + 1) * w // 8)
    return bytes([a, b, w, 0]) + packed.to_bytes(padded(nbytes), "little")


def encode_segment(f, symbols):
    start = np.cumsum(f) - f
    x = np.full(LANES, LOW, np.int64)
    index, there = order(len(symbols))
    words = []
    for i, on in zip(index[::-1], there[::-1]):
        s = symbols[np.where(on, i, 0)]
        full = on & (x >= 1048576 * f[s])
        words.append((x[full] % LOW).astype("<u2"))
        x = np.where(full, x // LOW, x)
        x = np.where(on, SLOTS * (x // np.maximum(f[s], 1)) + x % np.maximum(f[s], 1) + start[s], x)
    words = np.concatenate(words[::-1]).tobytes()
    return len(words) // 2, x[:states_of(len(symbols))].astype("<u4").tobytes() + words + bytes(-len(words) % 4)


def encode_stream(symbols):
    n, counts = len(symbols), np.bincount(symbols, minlength=256)
    raw = 0, symbols.tobytes() + bytes(-n % 4)
    if counts[symbols[0]] == n:
        return 1, bytes([symbols[0], 0, 0, 0])
    f = frequencies(counts)
    table = table_bytes(f)
    heads = sum(2 + 4 * states_of(k) for k in segments_of(n))
    bits = sum(int(c) * cost(f[s]) for s, c in enumerate(counts) if c)
    if not len(table) + heads + bits // 2048 < n - n // 128:
        return raw
    segments = [encode_segment(f, symbols[at:at + SEGMENT]) for at in range(0, n, SEGMENT)]
    sizes = b"".join(nwords.to_bytes(2, "little") for nwords, _ in segments)
    body = table + sizes + bytes(-len(sizes) % 4) + b"".join(segment for _, segment in segments)
    return (2, body) if len(body) < n else raw


def encode(elements, rotated):
    """A piece of unsigned elements."""
    if not len(elements):
        return b""
    streams = [encode_stream(symbols) for symbols in split(elements, rotated)]
    heads = b"".join(bytes([mode]) + len(body).to_bytes(3, "little") for mode, body in streams)
    return heads + b"".join(body for _, body in streams)
