"""What torch.save writes, made and read by hand: zip records and pickle opcodes, no torch.

Builders make good files (`pt`), directories of torch.distributed.checkpoint (`dcp`) and, part by
part, hostile ones (`zip_bytes`, `with_central`, `pt_of`).  `load` reads a .pt with an interpreter
that permits exactly what torch's weights_only loader permits, so that what it loads torch loads.
Values that both sides use: None, bool, int, float, str, bytes, list, tuple, set, Dict, Global, Call
and Tensor.  `same` compares them: types, float bits, order of keys, dtypes, shapes and bytes.
"""
import collections
import functools
import io
import json
import os
import resource
import pathlib
import pickletools
import re
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest
import safetensors

from conftest import BINARY, one_line_error, run_tersor, safetensors_bytes

# --- Element types ------------------------------------------------------------------------------

STORAGES = {    # storage class: (safetensors dtype, bytes per element, torch dtype)
    "DoubleStorage": ("F64", 8, "float64"), "FloatStorage": ("F32", 4, "float32"),
    "HalfStorage": ("F16", 2, "float16"), "BFloat16Storage": ("BF16", 2, "bfloat16"),
    "LongStorage": ("I64", 8, "int64"), "IntStorage": ("I32", 4, "int32"),
    "ShortStorage": ("I16", 2, "int16"), "CharStorage": ("I8", 1, "int8"),
    "ByteStorage": ("U8", 1, "uint8"), "BoolStorage": ("BOOL", 1, "bool"),
    "ComplexFloatStorage": ("C64", 8, "complex64"),
    "ComplexDoubleStorage": ("C128", 16, "complex128"),
}
UNTYPED = {     # torch dtype: (safetensors dtype, bytes per element); only in untyped storages
    "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1), "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1), "uint16": ("U16", 2), "uint32": ("U32", 4),
    "uint64": ("U64", 8),
}
OF_NUMPY = {"float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage",
            "bfloat16": "BFloat16Storage", "int64": "LongStorage", "int32": "IntStorage",
            "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage",
            "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
            "complex128": "ComplexDoubleStorage"}
ITEM = {**{dtype: size for dtype, size, _ in STORAGES.values()}, **dict(UNTYPED.values())}


# --- Values -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Global:
    module: str
    name: str


@dataclass
class Call:
    """callee(*args), then what BUILD gave it; `new`: callee.__new__(callee, *args)."""
    callee: Global
    args: tuple = ()
    state: object = None
    new: bool = False


@dataclass
class Raw:
    """Opcodes as they are, leaving one value on the stack."""
    opcodes: bytes


class Dict:
    """A dict as the pairs that a pickle has, so that 1 and True are two keys."""

    def __init__(self, pairs=(), ordered=False, state=None):
        self.pairs = list(pairs.items() if isinstance(pairs, dict) else pairs)
        self.ordered, self.state = ordered, state

    def __getitem__(self, key):
        found = [v for k, v in self.pairs if type(k) is type(key) and k == key]
        if not found:
            raise KeyError(key)
        return found[-1]

    def keys(self):
        return [k for k, _ in self.pairs]

    def items(self):
        return self.pairs

    def __contains__(self, key):
        return any(type(k) is type(key) and k == key for k, _ in self.pairs)

    def __repr__(self):
        return f"Dict({self.pairs!r}, ordered={self.ordered}, state={self.state!r})"


@dataclass
class Storage:
    """A record data/KEY.  numel is what the pickle says (elements; bytes if untyped).

    key: where it must not be the next free number; record: the key of one that `load` found.
    """
    data: bytes
    cls: str = "FloatStorage"
    numel: int = None
    key: str = None
    location: str = "cpu"
    module: str = "torch"
    record: str = None

    def __post_init__(self):
        if self.numel is None:
            size = 1 if self.cls == "UntypedStorage" else STORAGES[self.cls][1]
            self.numel = len(self.data) // size


@dataclass
class Tensor:
    storage: Storage
    shape: tuple
    stride: tuple = None
    offset: int = 0
    dtype: str = None               # of torch; given for untyped storages (_rebuild_tensor_v3)
    requires_grad: bool = False
    parameter: bool = False
    metadata: object = None         # {"conj": True} and its like
    content: bytes = None           # what `load` found: contiguous, little-endian

    def __post_init__(self):
        if self.stride is None:
            self.stride = contiguous(self.shape)

    @property
    def st_dtype(self):
        return UNTYPED[self.dtype][0] if self.dtype else STORAGES[self.storage.cls][0]


def contiguous(shape):
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def tensor(array, **more):
    """A contiguous tensor with the values of a numpy array (ml_dtypes' bfloat16 too)."""
    array = np.asarray(array)
    return Tensor(Storage(array.tobytes(), OF_NUMPY[array.dtype.name]), array.shape, **more)


def untyped(dtype, content, shape):
    """A tensor of a type that only untyped storages hold."""
    return Tensor(Storage(bytes(content), "UntypedStorage", module="torch.storage"), tuple(shape),
                  dtype=dtype)


def ordered(pairs=(), **metadata):
    """An OrderedDict, with _metadata as state_dicts of modules have it if any is given."""
    state = {"_metadata": Dict([("", {"version": 1})], ordered=True), **metadata}
    return Dict(pairs, ordered=True, state=state if metadata else None)


def same(a, b, where="", bits=True):
    """Raise AssertionError with the key path where two values differ."""
    if isinstance(a, (dict, Dict)) and isinstance(b, (dict, Dict)):
        a, b = (Dict(x) if isinstance(x, dict) else x for x in (a, b))
        assert a.ordered == b.ordered, f"{where}: kinds of dict differ"
        assert list(map(typed, a.keys())) == list(map(typed, b.keys())), \
            f"{where}: keys {a.keys()} and {b.keys()}"
        for (key, x), (_, y) in zip(a.pairs, b.pairs):
            same(x, y, f"{where}.{key!r}", bits)
        same(a.state, b.state, f"{where}<state>", bits)
    elif isinstance(a, Tensor) and isinstance(b, Tensor):
        assert (a.st_dtype, tuple(a.shape), a.parameter, a.requires_grad) == (
            b.st_dtype, tuple(b.shape), b.parameter, b.requires_grad), (where, a, b)
        if bits:
            assert content_of(a) == content_of(b), f"{where}: contents differ"
    elif isinstance(a, (list, tuple)) and type(a) is type(b):
        assert len(a) == len(b), f"{where}: lengths {len(a)} and {len(b)}"
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]", bits)
    elif isinstance(a, Call) and isinstance(b, Call):
        assert a.callee == b.callee, f"{where}: {a.callee} and {b.callee}"
        same(a.args, b.args, f"{where}()", bits)
        same(a.state, b.state, f"{where}<state>", bits)
    elif isinstance(a, (set, frozenset)) and type(a) is type(b):
        assert set(map(typed, a)) == set(map(typed, b)), f"{where}: {a} and {b}"
    else:
        assert typed(a) == typed(b), f"{where}: {a!r} and {b!r}"


def typed(value):
    """Something equal only for values of one type with the same bits."""
    if isinstance(value, float):
        return float, struct.pack("<d", value)
    if isinstance(value, tuple):
        return tuple, tuple(map(typed, value))
    return type(value), value


def content_of(t):
    """The elements of a tensor in C order, little-endian."""
    if t.content is not None:
        return t.content
    size = ITEM[t.st_dtype]
    flat = np.frombuffer(t.storage.data, np.dtype((np.void, size)))
    if 0 in t.shape:
        return b""
    view = np.lib.stride_tricks.as_strided(flat[t.offset:], t.shape,
                                           [s * size for s in t.stride], writeable=False)
    return view.tobytes()


def tensors_in(value, path=()):
    """(path, Tensor) of everything under a value, in its order."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, (dict, Dict)):
        for key, item in value.items():
            yield from tensors_in(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from tensors_in(item, (*path, i))


# --- Pickles ------------------------------------------------------------------------------------

ORDERED_DICT = Global("collections", "OrderedDict")


def text(s, proto=2):
    data = s if isinstance(s, bytes) else s.encode("utf-8", "surrogatepass")
    if proto >= 4 and len(data) < 256:
        return b"\x8c" + bytes([len(data)]) + data
    return b"X" + struct.pack("<I", len(data)) + data


def number(n):
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if 0 <= n < 65536:
        return b"M" + struct.pack("<H", n)
    if -2**31 <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    data = n.to_bytes((n.bit_length() >> 3) + 1, "little", signed=True)
    if n < 0 and len(data) > 1 and data[-1] == 0xff and data[-2] & 0x80:
        data = data[:-1]
    if len(data) > 255:
        return b"\x8b" + struct.pack("<i", len(data)) + data
    return b"\x8a" + bytes([len(data)]) + data


class Pickler:
    """Opcodes for values, memoised as CPython does it; numbers storages as it meets them."""

    def __init__(self, proto=2, memo=True):
        self.out, self.proto, self.memo = io.BytesIO(), proto, {} if memo else None
        self.storages, self.alive = [], []

    def put(self, key):
        """Memoise what is on top of the stack."""
        if self.memo is None or key is None:
            return
        n = self.memo[key] = len(self.memo)
        if self.proto >= 4:
            self.out.write(b"\x94")
        else:
            self.out.write(b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n))

    def got(self, key):
        """Fetch from the memo if it is there."""
        n = (self.memo or {}).get(key)
        if n is None:
            return False
        self.out.write(b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n))
        return True

    def identity(self, value):
        """What tells whether a value was written before: itself, or its text."""
        if isinstance(value, (str, Global)):
            return type(value), value
        if isinstance(value, (list, tuple, dict, Dict, set, Call, Tensor)) and value != ():
            self.alive.append(value)        # so that no other value gets its id
            return "id", id(value)
        return None

    def save(self, value):
        key = self.identity(value)
        if key is not None and self.got(key):
            return
        self.write(value, key)

    def write(self, value, key):
        w = self.out.write
        if isinstance(value, Raw):
            w(value.opcodes)
        elif value is None or isinstance(value, bool):
            w({None: b"N", True: b"\x88", False: b"\x89"}[value])
        elif isinstance(value, int):
            w(number(value))
        elif isinstance(value, float):
            w(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            w(text(value, self.proto))
            self.put(key)
        elif isinstance(value, bytes):
            self.save_bytes(value)
        elif isinstance(value, Global):
            self.save_global(value)
            self.put(key)
        elif isinstance(value, list):
            w(b"]")
            self.put(key)
            self.items(value, b"e")
        elif isinstance(value, tuple):
            self.save_tuple(value)
            self.put(key)
        elif isinstance(value, (set, frozenset)):
            self.save(Call(Global("__builtin__", type(value).__name__),
                           (sorted(value, key=repr),)))
        elif isinstance(value, (dict, Dict)):
            self.save_dict(value, key)
        elif isinstance(value, Call):
            self.save_call(value, key)
        elif isinstance(value, Tensor):
            self.save_tensor(value, key)
        else:
            raise TypeError(value)

    def items(self, values, op):
        if values:
            self.out.write(b"(")
            for value in values:
                self.save(value)
            self.out.write(op)

    def save_bytes(self, value):
        if self.proto >= 3:
            self.out.write(b"C" + bytes([len(value)]) + value)
        elif value:
            self.save(Call(Global("_codecs", "encode"), (value.decode("latin-1"), "latin1")))
        else:
            self.save(Call(Global("__builtin__", "bytes"), ()))

    def save_global(self, value):
        if self.proto >= 4:
            self.save(value.module)
            self.save(value.name)
            self.out.write(b"\x93")
        else:
            self.out.write(f"c{value.module}\n{value.name}\n".encode())

    def save_tuple(self, value):
        if not value:
            self.out.write(b")")
        elif len(value) <= 3:
            for item in value:
                self.save(item)
            self.out.write(bytes([0x84 + len(value)]))
        else:
            self.items(value, b"t")

    def save_dict(self, value, key):
        value = Dict(value) if isinstance(value, dict) else value
        if value.ordered:
            self.save(ORDERED_DICT)
            self.out.write(b")R")
        else:
            self.out.write(b"}")
        self.put(key)
        self.items([x for pair in value.pairs for x in pair], b"u")
        if value.state is not None:
            self.save(value.state)
            self.out.write(b"b")

    def save_call(self, value, key):
        self.save(value.callee)
        self.save(value.args)
        self.out.write(b"\x81" if value.new else b"R")
        self.put(key)
        if value.state is not None:
            self.save(value.state)
            self.out.write(b"b")

    def save_storage(self, s):
        at = next((i for i, other in enumerate(self.storages) if other is s), None)
        if at is None:
            at = len(self.storages)
            self.storages.append(s)
        key = str(at) if s.key is None else s.key
        self.save(("storage", Global(s.module, s.cls), key, s.location, s.numel))
        self.out.write(b"Q")

    def save_tensor(self, t, key):
        if t.parameter:
            inner = Tensor(t.storage, t.shape, t.stride, t.offset, t.dtype)
            self.save(Call(Global("torch._utils", "_rebuild_parameter"),
                           (inner, t.requires_grad, Dict(ordered=True))))
            self.put(key)
            return
        self.save(Global("torch._utils", f"_rebuild_tensor_v{3 if t.dtype else 2}"))
        self.out.write(b"(")
        self.save_storage(t.storage)
        shape = t.shape if isinstance(t.shape, Call) else tuple(t.shape)
        for item in (t.offset, shape, tuple(t.stride), t.requires_grad, Dict(ordered=True)):
            self.save(item)
        if t.dtype:
            self.save(Global("torch", t.dtype))
        if t.metadata is not None:
            self.save(t.metadata)
        self.out.write(b"tR")
        self.put(key)

    def finish(self, value):
        self.save(value)
        body = self.out.getvalue() + b"."
        frame = b"\x95" + struct.pack("<Q", len(body)) if self.proto >= 4 else b""
        return b"\x80" + bytes([self.proto]) + frame + body


def pickled(value, proto=2, memo=True):
    """(pickle, {key: bytes} of the storages in it)"""
    pickler = Pickler(proto, memo)
    pickle = pickler.finish(value)
    return pickle, {str(i) if s.key is None else s.key: s.data
                    for i, s in enumerate(pickler.storages)}


# --- Zip archives -------------------------------------------------------------------------------

@dataclass
class Hole:
    """Contents that are zero but for parts {offset: bytes}; sparse in a file."""
    nbytes: int
    parts: dict = field(default_factory=dict)
    crc: int = 0

    def __len__(self):
        return self.nbytes


@dataclass
class Member:
    name: str
    data: object = b""              # bytes or a Hole
    deflate: bool = False
    stored: bytes = None            # what stands in the file, if not what follows from data
    crc: int = None
    size: int = None                # uncompressed, as the directory says

    def body(self):
        if self.stored is not None:
            return self.stored
        if self.deflate:
            squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
            return squeeze.compress(self.data) + squeeze.flush()
        return self.data


BIG = 0xffffffff


def local_header(m, at, body, crc, size, align):
    """A local header as torch's miniz writes it: no sizes, and an extra field that aligns."""
    name = m.name.encode()
    extra = b""
    if size >= BIG or len(body) >= BIG:
        extra = struct.pack("<HHQQ", 1, 16, 0, 0)
    if at >= BIG:
        extra = struct.pack("<HHQ", 1, 8, at)
    if align > 1:
        pad = -(at + 30 + len(name) + 4 + len(extra)) % align
        extra += struct.pack("<2sH", b"FB", pad) + b"Z" * pad
    flags = 0x0808 if len(body) else 0x0800
    return struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 0, flags, 8 if m.deflate else 0, 0, 0, 0, 0, 0,
                       len(name), len(extra)) + name + extra


def descriptor(crc, csize, size, at):
    if not csize:
        return b""
    wide = max(csize, size, at) >= BIG
    return struct.pack("<4sIQQ" if wide else "<4sIII", b"PK\7\10", crc, csize, size)


def central_header(m, at, csize, crc, size):
    name, extra = m.name.encode(), b""
    if size >= BIG or csize >= BIG:
        extra = struct.pack("<QQ", size, csize)
        size = csize = BIG
    if at >= BIG:
        extra += struct.pack("<Q", at)
        at = BIG
    if extra:
        extra = struct.pack("<HH", 1, len(extra)) + extra
    return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0, 0, 0x0808 if csize else 0x0800,
                       8 if m.deflate else 0, 0, 0, crc, csize, size, len(name), len(extra), 0, 0,
                       0, 0, at) + name + extra


def end_of_directory(n, nbytes, at, comment=b""):
    """The three records that torch always writes."""
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 798, 45, 0, 0, n, n, nbytes, at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + nbytes, 1)
    return end64 + locator + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, min(n, 0xffff),
                                         min(n, 0xffff), min(nbytes, BIG), min(at, BIG),
                                         len(comment)) + comment


def write_zip(file, members, align=64, comment=b""):
    """Write an archive as torch.save lays it out; returns {name: offset of its data}."""
    directory, where = b"", {}
    for m in members:
        at, body = file.tell(), m.body()
        size = len(m.data) if m.size is None else m.size
        crc = m.crc
        if crc is None:
            crc = m.data.crc if isinstance(m.data, Hole) else zlib.crc32(m.data)
        file.write(local_header(m, at, body, crc, size, align))
        where[m.name] = file.tell()
        if isinstance(body, Hole):
            for offset, part in body.parts.items():
                file.seek(where[m.name] + offset)
                file.write(part)
            file.seek(where[m.name] + body.nbytes)
        else:
            file.write(body)
        file.write(descriptor(crc, len(body), size, at))
        directory += central_header(m, at, len(body), crc, size)
    file.write(directory + end_of_directory(len(members), len(directory), file.tell(), comment))
    return where


def zip_bytes(members, **more):
    file = io.BytesIO()
    write_zip(file, members, **more)
    return file.getvalue()


CENTRAL = {     # field: (offset in a central header, struct format)
    "made_by": (4, "H"), "needed": (6, "H"), "flags": (8, "H"), "method": (10, "H"),
    "crc": (16, "I"), "csize": (20, "I"), "size": (24, "I"), "disk": (34, "H"),
    "external": (38, "I"), "offset": (42, "I"),
}
LOCAL = {"needed": (4, "H"), "flags": (6, "H"), "method": (8, "H"), "crc": (14, "I"),
         "csize": (18, "I"), "size": (22, "I")}
END = {"disk": (4, "H"), "directory_disk": (6, "H"), "here": (8, "H"), "count": (10, "H"),
       "nbytes": (12, "I"), "offset": (16, "I")}
END64 = {"nbytes": (40, "Q"), "offset": (48, "Q"), "here": (24, "Q"), "count": (32, "Q"),
         "disk": (16, "I"), "size": (4, "Q")}


def patch(data, at, fields, **values):
    data = bytearray(data)
    for name, value in values.items():
        offset, form = fields[name]
        struct.pack_into("<" + form, data, at + offset, value)
    return bytes(data)


def central_at(data, name):
    """Where the central header of a member starts."""
    end = data.rindex(b"PK\5\6")
    at = struct.unpack_from("<I", data, end + 16)[0]
    while data[at:at + 4] == b"PK\1\2":
        lengths = struct.unpack_from("<HHH", data, at + 28)
        if data[at + 46:at + 46 + lengths[0]] == name.encode():
            return at
        at += 46 + sum(lengths)
    raise KeyError(name)


def with_central(data, name, **values):
    """The archive with fields of a member's central header changed."""
    return patch(data, central_at(data, name), CENTRAL, **values)


def local_at(data, name):
    return struct.unpack_from("<I", data, central_at(data, name) + 42)[0]


def with_local(data, name, **values):
    return patch(data, local_at(data, name), LOCAL, **values)


def renamed(data, old, new, local=True, central=True):
    """The archive with a member's name replaced by one of the same length."""
    assert len(old) == len(new)
    data = bytearray(data)
    places = ((local, local_at(data, old), 30), (central, central_at(data, old), 46))
    for change, at, skip in places:
        if change:
            data[at + skip:at + skip + len(new)] = new if isinstance(new, bytes) else new.encode()
    return bytes(data)


def with_end(data, **values):
    return patch(data, data.rindex(b"PK\5\6"), END, **values)


def with_end64(data, **values):
    return patch(data, data.rindex(b"PK\6\6"), END64, **values)


# --- .pt files ----------------------------------------------------------------------------------

ERAS = {    # what members stand before and behind the records of storages
    "1.13": ([], [("version", b"3\n")]),
    "2.1": ([("byteorder", b"little")],
            [("version", b"3\n"), (".data/serialization_id", b"0" * 40)]),
    "2.11": ([(".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")],
             [("version", b"3\n"), (".data/serialization_id", b"0" * 40)]),
}


def pt_members(pickle, records, root="archive", era="2.11", **instead):
    """The members of a .pt; `instead` replaces one by its name (data_pkl), None drops it."""
    before, after = ERAS[era]
    members = [("data.pkl", pickle), *before, *((f"data/{k}", v) for k, v in records.items()),
               *after]
    out = []
    for name, data in members:
        data = instead.get(name.lstrip(".").replace("/", "_").replace(".", "_"), data)
        if data is not None:
            out.append(data if isinstance(data, Member) else Member(f"{root}/{name}", data))
    return out


def pt_of(pickle, records=None, comment=b"", **more):
    """A .pt with this pickle and these records {key: bytes}."""
    return zip_bytes(pt_members(pickle, records or {}, **more), comment=comment)


def pt(value, proto=2, memo=True, **more):
    """The .pt that torch.save(value) writes."""
    return pt_of(*pickled(value, proto, memo), **more)


# --- Directories of torch.distributed.checkpoint ------------------------------------------------

META = "torch.distributed.checkpoint.metadata"
FILES = "torch.distributed.checkpoint.filesystem"


def new(module, name, state=None):
    return Call(Global(module, name), (), state, new=True)


def size_of(shape):
    return Call(Global("torch", "Size"), (tuple(shape),))


def dcp_properties(dtype="float32"):
    layout = Call(Global("torch.serialization", "_get_layout"), ("torch.strided",))
    memory = Call(Global(META, "_MEM_FORMAT_ENCODING"), (0,))
    return new(META, "TensorProperties",
               (Global("torch", dtype), layout, False, memory, False))


@dataclass
class Chunk:
    offsets: tuple
    tensor: object                  # a Tensor, or the bytes of its blob
    sizes: tuple = None             # as the metadata says; the tensor's
    file: str = "__0_0.distcp"
    at: int = None                  # offset and length in the file as the metadata says
    length: int = None
    index: object = 0
    more: dict = field(default_factory=dict)    # other members of its _StorageInfo


@dataclass
class Sharded:
    """A tensor of a DCP directory."""
    shape: tuple
    chunks: list
    dtype: str = "float32"


def whole(t, **more):
    return Sharded(tuple(t.shape), [Chunk((0,) * len(t.shape), t, **more)],
                   t.dtype or STORAGES[t.storage.cls][2])


def blob_of(value):
    return value if isinstance(value, bytes) else pt(value, root="archive")


def dcp(folder, entries, paths=None, metadata=True, extra=None, files=(), edit=None):
    """Write a directory.

    entries: {fqn: Sharded, or any other value, which becomes bytes}; paths: {fqn: tuple}, where the
    tree is not what the dots say; extra: more members of the Metadata; files: names of files to be
    there even if nothing is in them; edit: what to do to the state of the Metadata.
    """
    folder.mkdir(exist_ok=True)
    content = collections.defaultdict(bytes, {name: b"" for name in files})
    listed, stored = [], []

    def store(fqn, offsets, value, c):
        blob = blob_of(value)
        at = len(content[c.file]) if c.at is None else c.at
        length = len(blob) if c.length is None else c.length
        content[c.file] += blob
        index = {"fqn": fqn, "offset": size_of(offsets), "index": c.index} if offsets is not None \
            else {"fqn": fqn, "index": None}
        stored.append((new(META, "MetadataIndex", index),
                       new(FILES, "_StorageInfo", {"relative_path": c.file, "offset": at,
                                                   "length": length, **c.more})))

    for fqn, entry in entries.items():
        if not isinstance(entry, Sharded):
            listed.append((fqn, new(META, "BytesStorageMetadata")))
            store(fqn, None, entry, Chunk((), None))
            continue
        chunks = [new(META, "ChunkStorageMetadata",
                      {"offsets": size_of(c.offsets),
                       "sizes": size_of(c.tensor.shape if c.sizes is None else c.sizes)})
                  for c in entry.chunks]
        listed.append((fqn, new(META, "TensorStorageMetadata", {
            "properties": dcp_properties(entry.dtype), "size": size_of(entry.shape),
            "chunks": chunks})))
        for c in entry.chunks:
            store(fqn, c.offsets, c.tensor, c)
    state = {
        "state_dict_metadata": Dict(listed),
        "planner_data": {fqn: (paths or {}).get(fqn, tuple(fqn.split("."))) for fqn in entries},
        "storage_data": Dict(stored),
        **(extra or {}),
    }
    if edit:
        edit(state)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    if metadata:
        pickle, _ = pickled(new(META, "Metadata", state), proto=4)
        (folder / ".metadata").write_bytes(pickle)
    return folder


# --- Reading ------------------------------------------------------------------------------------

class Forbidden(Exception):
    """What torch's weights_only loader would refuse."""


REBUILD = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
           "_rebuild_parameter_with_state")
DTYPES = {name for _, _, name in STORAGES.values()} | set(UNTYPED)
ALLOWED = {
    ("collections", "OrderedDict"), ("collections", "Counter"),
    ("torch.nn.parameter", "Parameter"), ("torch", "Size"), ("torch", "Tensor"),
    ("torch", "device"), ("torch.serialization", "_get_layout"), ("_codecs", "encode"),
    ("builtins", "bytearray"), ("builtins", "set"), ("builtins", "complex"),
    ("__builtin__", "bytearray"), ("__builtin__", "set"), ("__builtin__", "complex"),
    ("torch.storage", "UntypedStorage"), ("torch.storage", "TypedStorage"),
    *(("torch._utils", name) for name in REBUILD),
    *(("torch", name) for name in STORAGES), *(("torch", name) for name in DTYPES),
}


class Storages:
    """Records of an archive by key, with what the pickle calls them."""

    def __init__(self, records):
        self.records, self.used = records, {}

    def of(self, pid):
        kind, cls, key, _, numel = pid
        if kind != "storage" or type(key) is not str or key not in self.records:
            raise Forbidden(f"persistent id {pid}")
        module = "torch.storage" if cls.name == "UntypedStorage" else "torch"
        if cls.module != module:
            raise Forbidden(f"storage class {cls}")
        size = 1 if cls.name == "UntypedStorage" else STORAGES[cls.name][1]
        if len(self.records[key]) != numel * size:
            raise Forbidden(f"record data/{key} has {len(self.records[key])} bytes for {pid}")
        found = self.used.setdefault(key, Storage(self.records[key], cls.name, numel,
                                                  module=module, record=key))
        if (found.cls, found.numel) != (cls.name, numel):
            raise Forbidden(f"storage {key} has two types")
        return found


class Loader:
    """The interpreter of torch's weights_only loader, over the opcodes that pickletools decodes."""

    def __init__(self, pickle, storages):
        self.stack, self.memo, self.storages = [], {}, storages
        self.pickle = pickle

    def run(self):
        end = 0
        for op, arg, pos in pickletools.genops(self.pickle):
            method = getattr(self, "op_" + op.name.lower(), None)
            if method is None:
                raise Forbidden(f"opcode {op.name} at {pos}")
            method(arg)
            end = pos
        if end != len(self.pickle) - 1 or len(self.stack) != 1:
            raise Forbidden("something is left")
        return self.stack[0]

    def push(self, value):
        self.stack.append(value)

    def to_mark(self):
        at = max(i for i, v in enumerate(self.stack) if v is Loader)
        items, self.stack[at:] = self.stack[at + 1:], []
        return items

    def op_proto(self, arg):
        if arg != 2:
            raise Forbidden(f"protocol {arg}")

    def op_stop(self, _):
        pass

    def op_mark(self, _):
        self.push(Loader)

    def op_none(self, _):
        self.push(None)

    def op_newtrue(self, _):
        self.push(True)

    def op_newfalse(self, _):
        self.push(False)

    op_binint = op_binint1 = op_binint2 = op_long1 = op_binfloat = op_binunicode = push

    def op_empty_tuple(self, _):
        self.push(())

    def op_empty_list(self, _):
        self.push([])

    def op_empty_dict(self, _):
        self.push(Dict())

    def op_tuple(self, _):
        self.push(tuple(self.to_mark()))

    def take(self, n):
        items, self.stack[-n:] = self.stack[-n:], []
        if len(items) != n or any(v is Loader for v in items):
            raise Forbidden("stack underflow")
        return items

    def op_tuple1(self, _):
        self.push(tuple(self.take(1)))

    def op_tuple2(self, _):
        self.push(tuple(self.take(2)))

    def op_tuple3(self, _):
        self.push(tuple(self.take(3)))

    def op_binput(self, arg):
        self.memo[arg] = self.stack[-1]

    op_long_binput = op_binput

    def op_binget(self, arg):
        self.push(self.memo[arg])

    op_long_binget = op_binget

    def extend(self, items):
        if type(self.stack[-1]) is not list:
            raise Forbidden("APPENDS to what is no list")
        self.stack[-1].extend(items)

    def op_append(self, _):
        self.extend(self.take(1))

    def op_appends(self, _):
        self.extend(self.to_mark())

    def set_items(self, items):
        if not isinstance(self.stack[-1], Dict):
            raise Forbidden("SETITEMS to what is no dict")
        pairs = list(zip(items[::2], items[1::2], strict=True))
        self.stack[-1].pairs.extend(pairs)

    def op_setitem(self, _):
        self.set_items(self.take(2))

    def op_setitems(self, _):
        self.set_items(self.to_mark())

    def op_global(self, arg):
        module, name = arg.split(" ", 1)
        if (module, name) not in ALLOWED:
            raise Forbidden(f"global {arg}")
        self.push(Global(module, name))

    def op_binpersid(self, _):
        pid, = self.take(1)
        self.push(self.storages.of(pid))

    def op_build(self, _):
        state, = self.take(1)
        target = self.stack[-1]
        if not isinstance(target, Dict) or not target.ordered or not isinstance(state, Dict):
            raise Forbidden("BUILD of what is no OrderedDict")
        target.state = state

    def op_reduce(self, _):
        callee, args = self.take(2)
        if not isinstance(callee, Global) or type(args) is not tuple:
            raise Forbidden("REDUCE of what is no call")
        self.push(self.call(callee, args))

    def call(self, callee, args):
        if callee == ORDERED_DICT and args == ():
            return Dict(ordered=True)
        if callee.module == "torch._utils":
            return self.rebuild(callee.name, args)
        if callee.module in ("builtins", "__builtin__") and callee.name == "set":
            return set(*args)
        if callee == Global("_codecs", "encode"):
            return args[0].encode(args[1])
        return Call(callee, args)

    def rebuild(self, name, args):
        if name == "_rebuild_parameter":
            inner, requires_grad, hooks = args
            return Tensor(inner.storage, inner.shape, inner.stride, inner.offset, inner.dtype,
                          requires_grad, True, content=inner.content)
        storage, offset, shape, stride, requires_grad, hooks, *rest = args
        if not isinstance(hooks, Dict) or hooks.pairs or not hooks.ordered:
            raise Forbidden(f"hooks {hooks}")
        dtype = rest.pop(0).name if name == "_rebuild_tensor_v3" else None
        t = Tensor(storage, shape, stride, offset, dtype, requires_grad,
                   metadata=rest[0] if rest else None)
        reach = offset + sum((n - 1) * s for n, s in zip(shape, stride)) + 1
        if 0 not in shape and reach * ITEM[t.st_dtype] > len(storage.data):
            raise Forbidden(f"tensor {t.shape} is outside its storage")
        t.content = content_of(t)
        return t


def records_of(data):
    """(root, {member behind the root: bytes}) of an archive, every CRC checked."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(set(names)) == len(names)
        root = names[0].split("/")[0] + "/"
        assert all(name.startswith(root) for name in names), names
        return root, {name[len(root):]: archive.read(name) for name in names}


def load(source):
    """What is in a .pt (a path or bytes); raises Forbidden where torch's loader would."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    _, records = records_of(data)
    assert records["version"].strip() == b"3"
    assert records.get("byteorder", b"little") == b"little"
    storages = Storages({name[5:]: content for name, content in records.items()
                         if name.startswith("data/")})
    value = Loader(records["data.pkl"], storages).run()
    return value


def data_offsets(data):
    """{member: where its data starts} as the local headers say."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        out = {}
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            out[info.filename] = info.header_offset + 30 + name + extra
        return out


def directory_of(data):
    """The central directory as a list of dicts that `with_directory` takes."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [{"name": i.filename, "at": i.header_offset, "csize": i.compress_size,
                 "crc": i.CRC, "size": i.file_size, "deflate": i.compress_type == 8}
                for i in archive.infolist()]


def with_directory(data, entries, insert=b""):
    """The archive with another central directory, `insert` in front of it."""
    end = data.rindex(b"PK\5\6")
    at = struct.unpack_from("<I", data, end + 16)[0]
    directory = b"".join(
        central_header(Member(e["name"], deflate=e["deflate"]), e["at"], e["csize"], e["crc"],
                       e["size"]) for e in entries)
    return data[:at] + insert + directory + end_of_directory(len(entries), len(directory),
                                                             at + len(insert))


# --- Running the binary on them -----------------------------------------------------------------

READERS = ("inspect", "convert", "verify", "diff A", "diff B", "pack")
WHOLE = READERS[1:]             # those that read all data; inspect reads only what names tensors
INFLATING = ("convert", "verify", "pack")   # and diff, too, inflates only what both files have
LONG = os.environ.get("TERSOR_LONG") == "1"
# A process of its own, because a child's peak starts at the size of the one that spawned it.
MEASURE = """
import resource, subprocess, sys
report, stack, *command = sys.argv[1:]
if int(stack):
    resource.setrlimit(resource.RLIMIT_STACK, (int(stack), int(stack)))
status = subprocess.call(command)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(report, "w") as file:
    print(used.ru_maxrss / 1024, used.ru_utime + used.ru_stime, file=file)
sys.exit(status if status >= 0 else 128 - status)
"""


def run_bounded(*args, stack=0):
    """Run the binary; also return its peak memory in MiB and its seconds of CPU time.

    The peak is never less than what the tests themselves take; run_measured() is exact, and slow.
    """
    command = [BINARY, *map(str, args)]
    if stack:
        command = ["/bin/sh", "-c", f'ulimit -s {stack >> 10} && exec "$0" "$@"', *command]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors,
                                   env={**os.environ, "LC_ALL": "C"})
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        _, status, used = os.wait4(process.pid, 0)
        watchdog.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        done = subprocess.CompletedProcess(command, process.returncode, out.read(), errors.read())
    peak = used.ru_maxrss / 1024
    # What was forked counts the memory of the tests until it starts the binary.
    if peak >= 0.9 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:
        return run_measured(*args, stack=stack)
    return done, peak, used.ru_utime + used.ru_stime


def run_measured(*args, stack=0, timeout=60):
    """Run the binary; also return its peak memory in MiB and its seconds of CPU time."""
    with tempfile.NamedTemporaryFile() as report:
        command = [sys.executable, "-ISc", MEASURE, report.name, str(stack), BINARY,
                   *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, "LC_ALL": "C"})
        peak, seconds = map(float, report.read().split())
    return done, peak, seconds


def holds(reason, fact):
    """A fact is a text, a whole number, a pattern, or alternatives in a tuple."""
    if isinstance(fact, tuple):
        return any(holds(reason, one) for one in fact)
    if isinstance(fact, int):
        return str(fact) in re.findall(r"\d+", reason)
    if isinstance(fact, re.Pattern):
        return fact.search(reason) is not None
    return fact in reason


def folder_state(folder):
    """Every file below a folder, with its size and time of change."""
    return {p: (p.lstat().st_size, p.lstat().st_mtime_ns) for p in folder.rglob("*")}


def command_lines(path, other, out):
    return {"inspect": ["inspect", path], "verify": ["verify", path],
            "diff A": ["diff", path, other], "diff B": ["diff", other, path],
            "pack": ["pack", path, "-o", out], "convert": ["convert", path, "-o", out]}


def some_of(commands):
    """The first two, and one of the rest that is always the same for a test; in long runs all."""
    if LONG or len(commands) < 4:
        return commands
    chosen = zlib.crc32(os.environ.get("PYTEST_CURRENT_TEST", "").encode()) % (len(commands) - 2)
    return *commands[:2], commands[2 + chosen]


def must_refuse(path, *facts, commands=READERS, options=(), status=3, bounded=False, stack=0,
                other=None, among=None):
    """Check that commands refuse what is at a path, saying why on one line, and write nothing.

    Every command is one of `commands`; a short run takes three of them.

    Every fact must be in the reason.  The line names the file, or one in the directory `among`.
    With `bounded`, memory and time must stay within the limits for hostile input, and the reason
    must call it a limit if `bounded` is "limit".
    """
    folder = path.parent
    out = folder / "must-not-be.safetensors"
    if other is None:
        other = folder / "other.safetensors"
        other.write_bytes(safetensors_bytes(
            {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)))
    before = folder_state(folder)
    for command in some_of(commands):
        args = command_lines(path, other, out)[command]
        if bounded or stack:
            done, peak, seconds = run_bounded(*args, *options, stack=stack)
            assert peak < 512 and seconds < 2, (command, peak, seconds)
        else:
            done = run_tersor(*args, *options)
        assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
        line = one_line_error(done)
        assert line.isprintable() and done.stdout == "", (command, line, done.stdout)
        assert line.startswith((f"tersor: {path}", *([f"tersor: {among}"] if among else []))), line
        reason = line.removeprefix(f"tersor: {path}")
        for fact in (*facts, *(["limit"] if bounded == "limit" else [])):
            assert holds(reason, fact), (command, fact, line)
        assert folder_state(folder) == before, (command, "left something")
    return line


def arrays_in(path):
    """{name: (dtype, shape, bytes)} of a safetensors file, as the Python package reads it."""
    return {name: (t["dtype"], list(t["shape"]), bytes(t["data"]))
            for name, t in safetensors.deserialize(path.read_bytes())}


def metadata_in(path):
    with safetensors.safe_open(path, "np") as file:
        return file.metadata() or {}


def converted(source, *options, to=None, env=None):
    """What convert makes of inputs, as arrays; the file is written beside the first input."""
    sources = source if isinstance(source, (list, tuple)) else [source]
    out = to or sources[0].parent / "converted.safetensors"
    run_tersor("convert", *sources, "-o", out, "--force", *options, check=0, env=env)
    return arrays_in(out)


def as_array(t):
    """A Tensor as `arrays_in` has it."""
    return t.st_dtype, list(t.shape), content_of(t)


@pytest.fixture
def tmp_path(request):
    """pytest's own, but in memory where there is room for it: every output is synced."""
    room = os.statvfs("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    if not room or room.f_bavail * room.f_frsize < 2 << 30:
        yield request.getfixturevalue("tmp_path_factory").mktemp("files")
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield pathlib.Path(path)


TORCH = "/usr/bin/python3"


# Imports torch once: each line of JSON on its standard input is a script for a process of its own.
SERVER = """
import json, os, signal, sys, torch
for line in sys.stdin:
    arguments, environment, out, err, seconds = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitpid(child, 0)[1], flush=True)
else:
    sys.exit()
for fd, path, flags in (0, "/dev/null", os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY):
    os.dup2(os.open(path, flags), fd)
os.environ.clear()
os.environ.update(environment)
signal.alarm(seconds)
sys.argv = ["-c", *arguments[1:]]
exec(arguments[0])
"""


@functools.lru_cache(None)
def torch_server():
    return subprocess.Popen([TORCH, "-W", "ignore", "-c", SERVER], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_torch(script, *args, timeout=120):
    """Run a script with the system's torch; returns what it printed as JSON."""
    if not os.access(TORCH, os.X_OK):
        pytest.fail(f"{TORCH} is missing: install python3-torch")
    if "LD_PRELOAD" in os.environ:      # it has to be there from the start
        done = subprocess.run([TORCH, "-W", "ignore", "-c", script, *map(str, args)],
                              capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    server = torch_server()
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        asked = [[script, *map(str, args)], dict(os.environ), out.name, err.name, timeout]
        print(json.dumps(asked), file=server.stdin, flush=True)
        status = server.stdout.readline()
        assert status, f"{TORCH} has no torch: install python3-torch\n{server.stderr.read()}"
        assert status == "0\n", (status, err.read())
        return json.load(out)
