"""Stores a second time, from docs/internals/format.md, section 19, alone: the files of a snapshot, as bytes."""
import json
import pathlib
import struct
import zlib

import numpy as np
import xxhash

import coded_planes
import differences
import oracle
from coded_planes import Bytes, decode_segments, need, read_table, tables_of_contexts

BLOCK = 262144
DTYPES = {"U8": 1, "I8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F16": 2, "BF16": 2, "I16": 2, "F32": 4,
          "I32": 4, "U32": 4, "F64": 8, "I64": 8}
BYTES, CODES, CHANGES, STEPS, RATIOS, LOGS = range(1, 7)
KINDS = {"other": 0, "weight": 1, "momentum": 2, "variance": 4}


def pieces(n):
    return [min(BLOCK, n - at) for at in range(0, n, BLOCK)]


def ids(text):
    return [text[i:i + 32] for i in range(0, len(text), 32)]


class Place:
    """Rows and columns of the elements of a block."""

    def __init__(self, n, columns, phase):
        self.n, self.columns = n, columns
        index = phase + np.arange(n)
        self.row, self.column = (index // columns, index % columns) if columns else (index * 0, index)
        self.rows = int(self.row[-1]) + 1
        self.has_lines = columns > 1 and self.rows > 1 and self.rows + columns <= n // 8

    def lines(self, body):
        numbers = symbols(body.take(body.number(4)), self.rows + self.columns).view(np.int8).astype(np.int64)
        return numbers[:self.rows][self.row] + numbers[self.rows:][self.column]


def symbols(piece, n, contexts=None):
    if contexts is None or piece[0] != 3:
        return coded_planes.decode(piece, 1, False, n)
    body = Bytes(piece[4:])
    need(int.from_bytes(piece[1:4], "little") == len(body.data) < n, "size")
    tables = tables_of_contexts(body.number(4))
    f = np.array([read_table(body) for _ in range(max(tables) + 1)])
    found = decode_segments(f, body, n, tables[contexts])
    body.end()
    return found


def integers(body, place):
    """And which of them stand for no number."""
    nescapes, by_lines = body.number(4), body.number(4)
    large = np.frombuffer(body.take(4 * nescapes), "<i4")
    need(by_lines in (0, 1) and (place.has_lines or not by_lines), "lines")
    contexts = np.clip(8 + place.lines(body), 0, 15) if by_lines else None
    s = symbols(body.take(len(body.data)), place.n, contexts).astype(np.int64)
    k = np.where(s & 1, -(s >> 1) - 1, s >> 1)
    need((s <= 254).all() and (s == 254).sum() == nescapes, "symbols")
    k[s == 254] = large
    return k, s == 253


def steps(body, place, base):
    step, _ = struct.unpack("<2f", body.take(8))
    return base + integers(body, place)[0].astype("f4") * np.float32(step)


def ratios(body, place, variance):
    step, eps = struct.unpack("<2f", body.take(8))
    k, _ = integers(body, place)
    return k.astype("f4") * np.float32(step) * (np.sqrt(variance) + np.float32(eps))


def logs(body, place):
    mean, step = struct.unpack("<iI", body.take(8))
    expected = mean + (place.lines(body) * 2**20 if place.has_lines else 0)
    k, none = integers(body, place)
    return np.where(none, 0, np.clip(expected + k * step, 1, 0x7f7fffff)).astype("<i4").view("<f4")


def weight_planes(x):
    return oracle.encode_ulp(x, "bf16", 8)


def changes(body, n, base):
    narrow, correction = weight_planes(base)
    found = differences.decode(body.take(len(body.data)), "BF16", np.asarray(narrow, "<u2"),
                               np.asarray(correction).astype("i1").view("u1"))
    return oracle.decode_ulp(found[0], found[1].view("i1"), "bf16", 8)


def codes(body, kind, place):
    """The last plane comes first."""
    n, groups = place.n, -(-place.n // 32)
    plane1 = body.take(body.number(4))
    plane0 = body.take(body.number(4))
    if kind == "weight":
        correction = coded_planes.decode(plane1, 1, False, n).view("i1")
        return oracle.decode_ulp(coded_planes.decode(plane0, 2, True, n), correction, "bf16", 8)
    scales = coded_planes.decode(plane1, 2, False, groups)
    if kind == "momentum":
        return oracle.decode_softsign(coded_planes.decode(plane0, 1, False, n).view("i1"), scales)
    first = int(place.column[0]) if place.columns else 0
    variance = coded_planes.Variance(np.repeat(scales, 32)[:n], first, place.columns or 1)
    return oracle.decode_sqrt(coded_planes.decode(plane0, 1, False, n, variance), scales)


class Store:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        assert json.loads((self.path / "tersor-store.json").read_text()) == {"tersor_store": 1}

    def snapshot(self, step):
        text = (self.path / "snapshots" / f"{step:015d}.json").read_bytes()
        body, _, end = text.rpartition(b',"check":"')
        assert end == xxhash.xxh3_128_hexdigest(body).encode() + b'"}\n'
        return json.loads(text)

    def object(self, name):
        data = (self.path / "objects" / name[:2] / name[2:]).read_bytes()
        assert xxhash.xxh3_128_hexdigest(data) == name
        return data

    def block(self, name, n, columns, phase, kinds, dtype):
        """The elements of each slot."""
        data = self.object(name)
        version, slots, depth, _, count, cols, where, low, high = struct.unpack("<4B3I2Q", data[:32])
        assert (version, slots, count, cols, where & 0xffffff) == (1, len(kinds), n, columns, phase)
        assert [where >> 24 & 15, where >> 28][:slots] == [KINDS[kind] for kind in kinds]
        place, body = Place(n, columns, phase), Bytes(data[32:])
        base = self.block(f"{high:016x}{low:016x}", n, columns, phase, kinds, dtype)[0] if depth else None
        found = [None] * slots
        for i in reversed(range(slots)):
            form, part = body.number(4), None
            part = Bytes(body.take(body.number(4)))
            if form == BYTES:
                width = DTYPES[dtype]
                bits = coded_planes.decode(part.data, width, dtype in ("F32", "BF16"), n)
                found[i] = bits.view("<f4") if dtype == "F32" else bits
                continue
            found[i] = {CODES: lambda: codes(part, kinds[i], place), CHANGES: lambda: changes(part, n, base),
                        STEPS: lambda: steps(part, place, base), LOGS: lambda: logs(part, place),
                        RATIOS: lambda: ratios(part, place, found[1])}[form]()
        body.end()
        return found

    def files(self, step):
        """The bytes of each file."""
        snapshot = self.snapshot(step)
        made = [bytearray(f["nbytes"]) for f in snapshot["files"]]
        free = [np.ones(f["nbytes"], bool) for f in snapshot["files"]]
        for t in snapshot["tensors"]:
            kinds, width, at = [of["kind"] for of in t["of"]], DTYPES[t["dtype"]], 0
            for name, n in zip(ids(t["objects"]), pieces(t["n"])):
                phase = (t["phase"] + at) % t["columns"] if t["columns"] else 0
                for of, x in zip(t["of"], self.block(name, n, t["columns"], phase, kinds, t["dtype"])):
                    first = of["offset"] + at * width
                    made[of["file"]][first:first + n * width] = x.tobytes()
                    free[of["file"]][first:first + n * width] = False
                at += n
        for f, data, is_free in zip(snapshot["files"], made, free):
            sizes = pieces(int(is_free.sum()))
            rest = b"".join(self.block(name, n, 0, 0, ["other"], "U8")[0].tobytes()
                            for name, n in zip(ids(f["rest"]), sizes))
            np.frombuffer(data, np.uint8)[is_free] = np.frombuffer(rest, np.uint8)
            for at, offset, nbytes in zip(*[iter(f["crcs"])] * 3):
                data[at:at + 4] = zlib.crc32(data[offset:offset + nbytes]).to_bytes(4, "little")
        return {f["path"]: bytes(data) for f, data in zip(snapshot["files"], made) if not f["directory"]}
