"""Coded files and deltas, changed and their hashes set right: the program and the reader of docs/internals/format.md agree.

A case depends on its number alone: FUZZ_CASE=17 runs number 17 and no other.  With TERSOR_LONG=1 they go on for
15 minutes, and 5 for deltas.
"""
import json
import os
import random
import struct
import time

import numpy as np
import pytest
import xxhash

import coded_planes
import packed_text
import reader
from conftest import run_tersor, write_source
from test_reader import ZEROS, compare, contents, sealed, split

SECONDS = 900 if os.environ.get("TERSOR_LONG") else 10**9
CASES = [int(os.environ["FUZZ_CASE"])] if "FUZZ_CASE" in os.environ else range(
    10**9 if os.environ.get("TERSOR_LONG") else 250)
CODINGS = [[], ["--state", "tight", "--weights", "bf16+sr9"], ["--state", "coat", "--weights", "e4m3+trunc8"],
           ["--state", "bitsandbytes"], ["--state", "four"], ["--state", "fine"], ["--state", "flashoptim", "--weights", "fp16+fp16"], ["--group", "24"],
           ["--weights", "bf16+ulp16"], ["--weights", "bf16+exact16"], ["--momentum", "linear8"],
           ["--weights", "f32", "--momentum", "bf16", "--variance", "f32"]]
EDGES = [0, 1, 2, 4, 7, 255, 4095, 4096, 65535, 65536, 2**24 - 1, 2**31, 2**32 - 1]
TEXT = {
    "shape": lambda r, t: r.choice([[], [0], [1], [2**40], [2**24, 2**24], [3, 512], [1536], [1536, 1], [64, 24],
                                    t["shape"][::-1], t["shape"] + [1]]),
    "codec": lambda r, t: r.choice(["raw", "bf16", "softsign8", "sqrt8", "log8", "ratio8", "linear8", "e4m3", "dyn8",
                                    "ratio9", "ratio4", "log7", "log3", "bf16+ulp8", "bf16+exact16", "f32"]),
    "dtype": lambda r, t: r.choice(["F32", "BF16", "F16", "I64", "U8", "F4", "F64", "F8_E8M0"]),
    "group": lambda r, t: r.choice([0, 1, 2, 16, 31, 32, 64, 1536, 65536, 65537, 2**40]),
    "scale": lambda r, t: r.choice(["e8m8", "f16", "f32", "f28", "e5m3"]),
    "rows": lambda r, t: r.choice([True, False]),
    "kind": lambda r, t: r.choice(["weight", "momentum", "variance", "other"]),
    "narrow": lambda r, t: r.choice(["a.weight", "bytes", ""]),
    "xxh3": lambda r, t: t["xxh3"][::-1],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Files as (folder, metadata, arrays, text): coded ones, and deltas with what they unpack to."""
    at, rng = tmp_path_factory.mktemp("fuzz"), np.random.default_rng(1)
    v = np.exp(rng.normal(0, 2, (24, 1)) + rng.normal(0, 2, (1, 64)) + rng.normal(0, 0.5, (24, 64))).astype("f4")
    w, m = rng.normal(0, 0.02, v.shape).astype("f4"), (np.sqrt(v) * rng.normal(0, 1, v.shape)).astype("f4")
    more = {"b.weight": ("BF16", (5, 8), w.tobytes()[:80]), "step": ("I64", (), struct.pack("<q", 400)),
            "same.weight": np.full((20, 30), 0.5, "f4"), "bytes": ("U8", (700,), bytes(rng.integers(0, 5, 700, "u1"))),
            "long": ("I64", (150,), rng.integers(0, 1000, 150).tobytes()), "four": ("F4", (300,), rng.bytes(150))}
    for name, by in (("old", 1), ("new", np.float32(1.01))):
        write_source(at / name, {"a.weight": w * by, "a.weight.exp_avg": m * by, "a.weight.exp_avg_sq": v * by, **more},
                     {"format": "pt"})
    coded, deltas = [], []
    for i, options in enumerate(CODINGS):
        pack = lambda source, out, *more: run_tersor("pack", at / source, "-o", at / out, "-qq", *more, *options,
                                                     "--min-elements", "1", check=0)
        pack("old", f"{i}.base")
        pack("old", f"{i}.coded", "--entropy")
        pack("new", f"{i}.delta", "--delta", at / f"{i}.base")
        run_tersor("unpack", at / f"{i}.delta", "-o", at / f"{i}.back", "-qq", check=0)
        coded.append((at / f"{i}.coded", None))
        deltas.append((at / f"{i}.delta", (at / f"{i}.back").read_bytes()))
    return coded, deltas


def opened(path):
    metadata, arrays = contents(path)
    return metadata, {name: [dtype, list(shape), bytearray(data)] for name, (dtype, shape, data) in arrays.items()}, \
        packed_text.read(path)


def write(path, metadata, arrays, text):
    metadata = metadata | {"tersor": json.dumps(packed_text.fold(text)), "tersor_check": ZEROS}
    header, data = split(write_source(path, {name: tuple(a) for name, a in arrays.items()}, metadata).read_bytes())
    path.write_bytes(sealed(header, data))


# ---- Changes -------------------------------------------------------------------------------------

def hurt(r, piece):
    """Changed bytes, near the front more often: heads, tables and states are there."""
    p, word = bytearray(piece), 4 * r.randrange(len(piece) // 4 + 1)
    front = word if r.random() < 0.5 else min(word, 4 * r.randrange(8))
    how = r.randrange(8)
    if how == 0 and p:
        p[r.randrange(len(p))] ^= 1 << r.randrange(8)
    elif how == 1 and p:
        p[r.randrange(min(64, len(p)))] = r.choice([*range(8), 127, 128, 254, 255])
    elif how == 2:
        p[front:front + 4] = r.choice(EDGES).to_bytes(4, "little")
    elif how == 3:
        number = int.from_bytes(p[front:front + 4], "little") + r.choice([-65536, -256, -4, -1, 1, 4, 256, 65536])
        p[front:front + 4] = (number % 2**32).to_bytes(4, "little")
    elif how == 4:
        del p[len(p) - r.choice([1, 2, 4, 8, len(p) // 2]):]
    elif how == 5:
        p += r.choice([bytes(4), r.randbytes(4), r.randbytes(64)])
    elif how == 6:
        del p[word:word + 4]
    else:
        p[word:word] = r.randbytes(4)
    return bytes(p)


def forged(r, n, width):
    """A piece of n elements in streams of any mode, their tables right or nearly, and the symbols of each."""
    streams, plain = [], []
    for _ in range(width):
        most = r.choice([1, 2, 3, 16, 256])
        symbols = np.array([int(r.expovariate(4 / most)) % most for _ in range(n)], np.uint8)
        plain.append(symbols)
        f = coded_planes.frequencies(np.bincount(symbols, minlength=256)) if n else np.zeros(256, int)
        lie, how = f.copy(), r.randrange(8)
        if how == 0:
            lie[symbols[:1]] += r.choice([-1, 1])
        elif how == 1:
            lie[r.randrange(256)] = 0
        elif how == 2:
            lie[:] = 16
        if n and how < 6 and (f > 0).sum() > 1 and lie.any():
            body = coded_planes.table_bytes(lie) + coded_planes.encode_segments(f[None], symbols, np.zeros(n, int))
            streams.append((r.choice([2, 2, 2, 3]), body))
        elif how == 6:
            streams.append((1, bytes([symbols[0] if n else 0, 0, 0, 0])))
        else:
            streams.append((0, symbols.tobytes() + bytes(-n % 4)))
    return b"".join(bytes([mode]) + len(body).to_bytes(3, "little") for mode, body in streams) \
        + b"".join(body for _, body in streams), plain


def put_piece(array, piece):
    array[2][:] = struct.pack("<Q", 16 + len(piece)) + array[2][8:16] + piece
    array[1] = [len(array[2])]


def planes_of(text):
    """(elements, bytes of each, whether they are rotated, tensor, number of the plane) by the name of a plane."""
    found = {}
    for tensor in text["tensors"]:
        for i, (name, dtype, shape) in enumerate(reader.planes_of(reader.parse_tensor(tensor))):
            n, bits = reader.elements(shape), reader.BITS[dtype]
            found[name] = n * bits // max(8, bits), max(1, bits // 8), dtype in ("BF16", "F32"), tensor, i
    return found


def change(r, arrays, text, planes, delta):
    """One change; deltas keep their texts, which would say other tensors with right hashes."""
    coded = [name for name in arrays if name.endswith("::coded") and len(arrays[name][2]) >= 16]
    if not coded:
        return
    name, how = r.choice(coded), r.randrange(100) * (0.7 if delta else 1)
    array, plane = arrays[name], name.removesuffix("::coded")
    if how < 45:
        put_piece(array, hurt(r, bytes(array[2][16:])))
    elif how < 60 and planes:
        n, width, rotated, tensor, i = planes[plane]
        piece, streams = forged(r, n, width)
        put_piece(array, piece)
        digest = xxhash.xxh3_64_intdigest(coded_planes.merge(streams, rotated).tobytes())
        struct.pack_into("<Q", array[2], 8, digest)
        tensor["xxh3"][i] = xxhash.xxh3_64_hexdigest(struct.pack("<Q", digest))
    elif how < 66:
        struct.pack_into("<Q", array[2], r.choice([0, 8]), r.choice([*EDGES, 2**63, 2**64 - 1, len(array[2]) - 1]))
    elif how < 70:
        array[1] = [len(array[2]) + r.choice([-1, 1])]
    elif how < 76:
        other = arrays[r.choice(coded)]
        array[1:], other[1:] = other[1:], array[1:]
    elif how < 92:
        tensor, member = r.choice(text["tensors"]), r.choice(list(TEXT))
        tensor[member] = TEXT[member](r, tensor)
    elif how < 96:
        arrays[plane] = arrays.pop(name) if r.random() < 0.5 else ["U8", [4], bytes(4)]
    elif how < 98:
        text["entropy"] = r.choice(["rans32", "rans64", ""])
    else:
        r.shuffle(text["tensors"])


def set_hashes_right(monkeypatch, path, arrays, text):
    """What the document's decoder finds, as far as it decodes, is what the file records."""
    tensors = {t["name"]: t for t in text["tensors"]}

    def record(found, recorded, name, i):
        if isinstance(found, int):
            struct.pack_into("<Q", arrays[name + reader.CODED][2], 16 * i + 8, found)
        else:
            tensors[name]["xxh3"][i] = found
        return True

    with monkeypatch.context() as patch:
        patch.setattr(reader, "is_hash", record)
        try:
            reader.read(path)
        except reader.ReaderError:
            pass


# ---- The comparison ------------------------------------------------------------------------------

def statuses(path):
    """Of `verify`, and of `unpack` into path.out: both accept, or both refuse with one line."""
    done = [run_tersor("verify", path, "--allow-nonfinite", "-qq"),
            run_tersor("unpack", path, "-o", path.with_suffix(".out"), "-f", "-qq")]
    for d in done:
        assert d.returncode in (0, 3, 4) and len(d.stderr.splitlines()) == (d.returncode != 0), d
    assert done[0].returncode == done[1].returncode, done
    return done[1]


def fuzzed(made, seconds):
    """Changed files, with what they were made of."""
    end = time.monotonic() + seconds
    for i in CASES:
        if time.monotonic() > end:
            return
        r = random.Random(i)
        source, back = r.choice(made)
        metadata, arrays, text = opened(source)
        planes = planes_of(text) if back is None else None
        for _ in range(r.choice([1, 1, 1, 2, 3])):
            change(r, arrays, text, planes, back is not None)
        path = source.with_name(f"case-{i}")
        try:
            write(path, metadata, arrays, text)
        except (OverflowError, ValueError):
            continue
        yield i, r, path, back, (metadata, arrays, text)
        path.unlink()       # what fails stays


def test_the_document_and_the_program_accept_the_same_files(made, monkeypatch):
    accepted = refused = 0
    for i, r, path, _, parts in fuzzed(made[0], SECONDS):
        if r.random() < 0.8:
            set_hashes_right(monkeypatch, path, *parts[1:])
            write(path, *parts)
        done = statuses(path)
        try:
            reader.read(path)
        except reader.ReaderError as error:
            assert done.returncode == 3, f"case {i}: accepted, though {error}"
            refused += 1
        else:
            assert done.returncode == 0, f"case {i}: {done.stderr}"
            compare(path, run_tersor)
            accepted += 1
    assert "FUZZ_CASE" in os.environ or accepted + refused > 20, (accepted, refused)


def test_a_changed_delta_is_refused_or_gives_its_checkpoint(made):
    accepted = refused = 0
    for i, _, path, back, _ in fuzzed(made[1], SECONDS / 3):
        if statuses(path).returncode == 0:
            assert path.with_suffix(".out").read_bytes() == back, f"case {i}"
            accepted += 1
        else:
            refused += 1
    assert "FUZZ_CASE" in os.environ or accepted + refused > 20, (accepted, refused)
