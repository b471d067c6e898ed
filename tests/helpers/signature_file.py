# SPDX-License-Identifier: Apache-2.0
"""Files of signatures, read and written from docs/replay.md alone, with the package xxhash."""
import functools
import json
import math
import struct

import numpy as np
import xxhash

PIECE = 32768
TYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}


def sign(data, dtype="F32"):
    """The 32 bytes of a tensor's bytes."""
    x = np.frombuffer(data, TYPES.get(dtype, "u1"))
    if dtype == "BF16":
        x = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    figures = struct.pack("<ffII", 0, 0, 0, 0)
    if dtype in ("F32", "F16", "BF16"):
        x = x.astype(np.float64)
        finite = x[np.isfinite(x)]
        rms = math.sqrt(np.mean(finite ** 2)) if len(finite) else 0
        figures = struct.pack("<ffII", np.abs(finite).max(initial=0), rms, len(x) - len(finite), (x == 0).sum())
    pieces = [data[at:at + PIECE] for at in range(0, len(data), PIECE)] or [b""]
    hashes = [xxhash.xxh3_128_digest(p.ljust(max(256, -(-len(p) // 64) * 64), b"\0")) for p in pieces]
    return functools.reduce(lambda a, b: xxhash.xxh3_128_digest(a + b), hashes) + figures


def block(step, loss, rates, signatures):
    """A step; a signature that is None is of a tensor that is not there."""
    data = struct.pack(f"<Qd{len(rates)}d", step, loss, *rates) + b"".join(s or bytes(32) for s in signatures)
    return data + struct.pack("<Q", xxhash.xxh3_64_intdigest(data))


def head(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"TSRSIGN1" + struct.pack("<QQ", len(text), xxhash.xxh3_64_intdigest(text)) + text


def read(path):
    """The head, and (step, loss, learning rates, {(name, of): 32 bytes}) of each step."""
    data = path.read_bytes()
    assert data[:8] == b"TSRSIGN1"
    n, digest = struct.unpack_from("<QQ", data, 8)
    assert digest == xxhash.xxh3_64_intdigest(data[24:24 + n])
    value, at, steps = json.loads(data[24:24 + n]), 24 + n, []
    keys, groups = [(t["name"], t["of"]) for t in value["tensors"]], len(value["param_groups"])
    size = 24 + 8 * groups + 32 * len(keys)
    while at < len(data):
        body = data[at:at + size - 8]
        assert struct.unpack("<Q", data[at + size - 8:at + size])[0] == xxhash.xxh3_64_intdigest(body)
        step, loss, *rates = struct.unpack_from(f"<Qd{groups}d", body)
        first = 16 + 8 * groups
        steps.append((step, loss, rates, {k: body[first + 32 * i:][:32] for i, k in enumerate(keys)}))
        at += size
    return value, steps


def of_tensors(tensors, ranks=1, rank=0, **more):
    """A head for (name, of, dtype, shape) tensors, whose groups are one."""
    return {"format": "tersor-signatures", "version": 1, "rank": rank, "ranks": ranks, "optimizer": "adamw",
            "order": "torch-cpu", "param_groups": [{"params": sorted({t[0] for t in tensors})}],
            "tensors": [dict(zip(("name", "of", "dtype", "shape"), t)) for t in tensors], **more}
