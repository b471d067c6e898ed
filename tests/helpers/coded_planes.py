"""Coded planes a second time, from docs/internals/format.md, section 18, alone: decode() and encode() a piece."""
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


# --- Contexts (18.4) --------------------------------------------------------------------------

def code_level(q):
    q = np.maximum(np.asarray(q, np.int64), 1)
    e = np.floor(np.log2(q)).astype(np.int64)
    return 16 * e + 16 * q // 2**e % 16


def means_bytes(means):
    mean, rows, columns = means
    data = mean.to_bytes(4, "little") + rows.astype(np.int8).tobytes() + columns.astype(np.int8).tobytes()
    return data + bytes(-len(data) % 4)


def read_means(body, R, columns):
    data = body.take(4 + R + columns, pad=True)
    mean = int.from_bytes(data[:4], "little")
    need(mean <= 65535, "mean")
    lines = np.frombuffer(data[4:], np.int8).astype(np.int64)
    return mean, lines[:R], lines[R:]


class Variance:
    """A piece of n codes whose first is element `first` of a tensor with L columns; scales of its elements."""

    def __init__(self, scales, first, L):
        self.scale_levels = np.asarray(scales, np.int64) // 16
        self.L, self.n = L, len(scales)
        index = np.arange(first, first + self.n)
        self.row, self.column = (index // L - first // L, index % L) if L else (index, index)
        self.R = int(self.row[-1]) + 1 if self.n else 0

    def possible(self):
        return self.L > 0 and 8 * (self.R + self.L) <= self.n

    def code_levels(self, codes):
        return code_level(codes)

    def means(self, codes):
        levels = self.scale_levels + self.code_levels(codes)
        mean = int(levels.sum()) // self.n
        rows = np.bincount(self.row, levels).astype(np.int64) // np.bincount(self.row)
        columns = np.bincount(self.column, levels).astype(np.int64) // np.bincount(self.column)
        return mean, np.clip(rows - mean, -127, 127), np.clip(columns - mean, -127, 127)

    def contexts(self, means):
        mean, rows, columns = means
        expected = mean + rows[self.row] + columns[self.column] - self.scale_levels
        return np.clip(expected - 64, 0, 63) // 4


class LogVariance(Variance):
    """The same of `log8`, whose scales have 4 bytes."""

    def __init__(self, scales, first, L):
        super().__init__(scales, first, L)
        u = np.asarray(scales, np.int64)
        self.scale_levels = u // 2**19 % 4096
        self.r = np.array([4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 208, 272, 384])[u % 16]

    def code_levels(self, codes):
        return 384 - (255 - np.asarray(codes, np.int64)) * self.r // 256

    def contexts(self, means):
        mean, rows, columns = means
        above = mean + rows[self.row] + columns[self.column] - self.scale_levels - 384
        return np.clip(255 + above * (65536 // self.r) // 256, 0, 255) // 16


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


def take_segments(body, sizes):
    """States and words of segments: a row for each."""
    counts = np.frombuffer(body.take(2 * len(sizes), pad=True), "<u2").astype(np.int64)
    x = np.full((len(sizes), LANES), LOW, np.int64)
    words = np.zeros((len(sizes), max(counts, default=0) + 1), np.int64)
    for i, (count, k) in enumerate(zip(counts, sizes)):
        x[i, :states_of(k)] = np.frombuffer(body.take(4 * states_of(k)), "<u4")
        words[i, :count] = np.frombuffer(body.take(2 * int(count), pad=True), "<u2")
    need((x >= LOW).all(), "a state is too small")
    return x, words, counts


def decode_segments(f, body, n, contexts):
    """All segments at once, since each has its own states and words."""
    start = np.cumsum(f, axis=1) - f
    symbol_of = np.array([np.repeat(np.arange(256), row) for row in f])
    sizes = segments_of(n)
    x, words, counts = take_segments(body, sizes)
    segment, k = np.arange(len(sizes))[:, None], np.array(sizes)[:, None]
    at = np.zeros_like(counts)
    symbols = np.zeros((len(sizes), SEGMENT), np.uint8)
    padded_contexts = np.resize(np.append(contexts, np.zeros(SEGMENT, int)), len(sizes) * SEGMENT)
    for i in order(max(sizes, default=0))[0]:
        on = i < k
        slot = x % SLOTS
        c = padded_contexts[SEGMENT * segment + i]
        s = symbol_of[c, slot]
        symbols[:, i] = s
        x = np.where(on, f[c, s] * (x // SLOTS) + slot - start[c, s], x)
        lacks = x < LOW
        place = at[:, None] + np.cumsum(lacks, axis=1) - 1
        at += lacks.sum(axis=1)
        need((at <= counts).all(), "words end early")
        x = np.where(lacks, LOW * x + words[segment, np.maximum(place, 0)], x)
    need((at == counts).all() and (x == LOW).all(), "does not end where encoding began")
    return symbols.reshape(-1)[:n]


def decode_coded(body, n):
    need(len(body.data) < n, "not smaller")
    return decode_segments(read_table(body)[None], body, n, np.zeros(n, int))


def tables_of_contexts(begin):
    """The number of each context's table, given a bit for each context that a table begins with."""
    need(0 < begin < 2**16 and begin.bit_count() <= 8, "contexts with which tables begin")
    return np.maximum(np.cumsum([begin >> c & 1 for c in range(16)]) - 1, 0)


def decode_with_contexts(body, n, variance):
    need(len(body.data) < n and variance and variance.possible(), "contexts")
    means = read_means(body, variance.R, variance.L)
    tables = tables_of_contexts(body.number(4))
    f = np.array([read_table(body) for _ in range(max(tables) + 1)])
    return decode_segments(f, body, n, tables[variance.contexts(means)])


def decode_stream(mode, body, n, variance=None):
    if mode == 0:
        symbols = np.frombuffer(body.take(n, pad=True), np.uint8)
        need(len(set(symbols.tolist())) > 1, "constant, but raw")
    elif mode == 1:
        symbols = np.full(n, body.take(1, pad=True)[0], np.uint8)
    elif mode == 3:
        symbols = decode_with_contexts(body, n, variance)
    else:
        need(mode == 2, "mode")
        symbols = decode_coded(body, n)
    body.end()
    return symbols


def decode(piece, width, rotated, n, variance=None):
    """The elements of a piece as unsigned integers."""
    piece = Bytes(piece)
    if n == 0:
        piece.end()
        return np.zeros(0, f"u{width}")
    heads = [(piece.number(1), piece.number(3)) for _ in range(width)]
    need(all(size % 4 == 0 for _, size in heads), "size of a body")
    streams = [decode_stream(mode, Bytes(piece.take(size)), n, variance) for mode, size in heads]
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


def encode_segment(f, symbols, contexts):
    start = np.cumsum(f, axis=1) - f
    x = np.full(LANES, LOW, np.int64)
    index, there = order(len(symbols))
    words = []
    for i, on in zip(index[::-1], there[::-1]):
        at = contexts[np.where(on, i, 0)], symbols[np.where(on, i, 0)]
        full = on & (x >= 1048576 * f[at])
        words.append((x[full] % LOW).astype("<u2"))
        x = np.where(full, x // LOW, x)
        x = np.where(on, SLOTS * (x // np.maximum(f[at], 1)) + x % np.maximum(f[at], 1) + start[at], x)
    words = np.concatenate(words[::-1]).tobytes()
    return len(words) // 2, x[:states_of(len(symbols))].astype("<u4").tobytes() + words + bytes(-len(words) % 4)


def counts_of(symbols):
    return np.bincount(symbols, minlength=256)


def price(counts, f):
    return sum(int(c) * cost(f[s]) for s, c in enumerate(counts) if c)


def worth(n, front, price):
    heads = sum(2 + 4 * states_of(k) for k in segments_of(n))
    return front + heads + price // 2048 < n - n // 128


def encode_segments(f, symbols, contexts):
    segments = [encode_segment(f, symbols[at:at + SEGMENT], contexts[at:at + SEGMENT])
                for at in range(0, len(symbols), SEGMENT)]
    sizes = b"".join(nwords.to_bytes(2, "little") for nwords, _ in segments)
    return sizes + bytes(-len(sizes) % 4) + b"".join(segment for _, segment in segments)


def encode_stream(symbols):
    n, counts = len(symbols), counts_of(symbols)
    raw = 0, symbols.tobytes() + bytes(-n % 4)
    if counts[symbols[0]] == n:
        return 1, bytes([symbols[0], 0, 0, 0])
    f = frequencies(counts)
    table = table_bytes(f)
    if not worth(n, len(table), price(counts, f)):
        return raw
    body = table + encode_segments(f[None], symbols, np.zeros(n, int))
    return (2, body) if len(body) < n else raw


def information(c):
    """About c log2(c) in 1/256."""
    if c == 0:
        return 0
    e = int(c).bit_length() - 1
    x = (int(c) << 16 >> e) - 65536
    return int(c) * (((e << 16) + x + (x * (65536 - x) // 65536 * 22544) // 65536) // 256)


def bits_taken(counts):
    return information(counts.sum()) - sum(information(c) for c in counts)


def choose_groups(counts):
    """The first context of each group, and the counts of all; by step 6."""
    groups = [(c, row) for c, row in enumerate(counts) if row.any()]
    while len(groups) > 1:
        loss = [bits_taken(a + b) - bits_taken(a) - bits_taken(b) for (_, a), (_, b) in zip(groups, groups[1:])]
        i = loss.index(min(loss))
        if loss[i] >= 409600 and len(groups) <= 8:
            break
        groups[i:i + 2] = [(groups[i][0], groups[i][1] + groups[i + 1][1])]
    return groups


def table_of(counts):
    if (counts > 0).sum() > 1:
        return frequencies(counts)
    s = int(counts.argmax())
    f = np.zeros(256, np.int64)
    f[s], f[s ^ 1] = 4095, 1
    return f


def encode_with_contexts(symbols, variance):
    n, counts = len(symbols), counts_of(symbols)
    if not n or not variance.possible() or (counts > 0).sum() == 1:
        return None
    means = variance.means(symbols)
    contexts = variance.contexts(means)
    groups = choose_groups([counts_of(symbols[contexts == c]) for c in range(16)])
    begin = sum(1 << c for c, _ in groups)
    f = np.array([table_of(of_group) for _, of_group in groups])
    front = means_bytes(means) + begin.to_bytes(4, "little") + b"".join(map(table_bytes, f))
    paid = sum(price(of_group, row) for (_, of_group), row in zip(groups, f))
    plain = frequencies(counts)
    alone = 2048 * len(table_bytes(plain)) + price(counts, plain)
    if not worth(n, len(front), paid) or 2048 * len(front) + paid >= alone:
        return None
    body = front + encode_segments(f, symbols, tables_of_contexts(begin)[contexts])
    return (3, body) if len(body) < n else None


def encode_codes(symbols, variance):
    """A piece of codes of a variance."""
    if not len(symbols):
        return b""
    mode, body = encode_with_contexts(symbols, variance) or encode_stream(symbols)
    return bytes([mode]) + len(body).to_bytes(3, "little") + body


def encode(elements, rotated):
    """A piece of unsigned elements."""
    if not len(elements):
        return b""
    streams = [encode_stream(symbols) for symbols in split(elements, rotated)]
    heads = b"".join(bytes([mode]) + len(body).to_bytes(3, "little") for mode, body in streams)
    return heads + b"".join(body for _, body in streams)
