"""Checkpoints of any kind as plain values, read without tersor and without torch.

    read(path) -> (kind, value)     kind: pt, dcp, safetensors, shards, npz, npy or None

A value is made of dicts, lists, tuples, sets, numbers, text and bytes as Python has them, of Tensor, and of
Object, which stands for an instance of any other class and for the result of any other function, with all that
the pickle gives it.  No class of a file is imported and no function of it is called.
"""
import collections
import io
import json
import math
import pathlib
import pickle
import struct
import zipfile

import numpy as np

STORAGES = {"Double": "F64", "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Long": "I64", "Int": "I32",
            "Short": "I16", "Char": "I8", "Byte": "U8", "Bool": "BOOL", "ComplexFloat": "C64",
            "ComplexDouble": "C128", "QInt8": "QI8", "QUInt8": "QU8", "QInt32": "QI32", "Untyped": "U8"}
DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
          "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
          "complex128": "C128", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
          "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
          "uint16": "U16", "uint32": "U32", "uint64": "U64", "complex32": "C32", "float4_e2m1fn_x2": "F4x2"}
ITEM = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
        "C64": 8, "C128": 16, "U16": 2, "U32": 4, "U64": 8, "C32": 4, "F4x2": 1, "QI8": 1, "QU8": 1, "QI32": 4}
ITEM.update({d: 1 for d in DTYPES.values() if d.startswith("F8")})
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
         "U8": "u1", "BOOL": "?", "C64": "<c8", "C128": "<c16", "U16": "<u2", "U32": "<u4", "U64": "<u8"}


class Unreadable(Exception):
    """This module does not read such a file; that says nothing about the file."""


class Object:
    """What a class or function that is not imported would have made."""
    what = "?"

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        self.args, self.kwargs, self.state, self.items, self.pairs = args, kwargs, None, [], []
        return self

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        self.state = state

    def append(self, item):
        self.items.append(item)

    def extend(self, items):
        self.items.extend(items)

    def add(self, item):
        self.items.append(item)

    def __setitem__(self, key, value):
        self.pairs.append((key, value))

    def parts(self):
        return self.args, self.kwargs, self.state, self.items, self.pairs

    def __repr__(self):
        return f"<{self.what}>"


class Storage:
    def __init__(self, key, dtype, numel, data):
        self.key, self.dtype, self.numel, self.data = key, dtype, numel, data


class Tensor:
    def __init__(self, storage, dtype, offset, shape, stride, requires_grad=False):
        self.storage, self.dtype, self.offset = storage, dtype, offset
        self.shape, self.stride = tuple(shape), tuple(stride)
        self.requires_grad, self.parameter, self.more, self._content = requires_grad, False, None, None

    @property
    def numel(self):
        return math.prod(self.shape)

    def content(self):
        """The elements as bytes in row-major order."""
        if self._content is None:
            self._content = b"" if 0 in self.shape else self._elements()
        return self._content

    def _elements(self):
        size = ITEM[self.dtype]
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.stride))
        if (last + 1) * size > len(self.storage.data):
            raise Unreadable(f"a tensor ends at element {last + 1} of a storage of {len(self.storage.data)} bytes")
        flat = np.frombuffer(self.storage.data, np.dtype((np.void, size)))
        if self.stride == row_major(self.shape):
            return flat[self.offset:self.offset + self.numel].tobytes()
        return np.lib.stride_tricks.as_strided(flat[self.offset:], self.shape,
                                               [s * size for s in self.stride], writeable=False).tobytes()

    def view(self):
        """Equal for the same view of one storage; empty tensors have no elements to share."""
        return (id(self.storage), self.offset, self.shape, real_strides(self), self.dtype)

    def __repr__(self):
        return f"<{self.dtype} {list(self.shape)} stride {list(self.stride)}>"


def row_major(shape):
    stride, step = [], 1
    for n in reversed(shape):
        stride.append(step)
        step *= max(n, 1)
    return tuple(reversed(stride))


def real_strides(t):
    """Those that matter: of dimensions of more than one element."""
    return () if 0 in t.shape else tuple((n, s) for n, s in zip(t.shape, t.stride) if n > 1)


def is_dense(t):
    """Its elements lie one after the other in some order of its dimensions."""
    step = 1
    for s, n in sorted((s, n) for n, s in real_strides(t)):
        if s != step:
            return False
        step *= n
    return True


def plain(dtype, shape, content):
    t = Tensor(None, dtype, 0, shape, row_major(shape))
    t.storage, t._content = Storage(None, dtype, t.numel, content), bytes(content)
    return t


# --- Pickles ----------------------------------------------------------------------------------------------------

REAL = {("collections", "OrderedDict"): collections.OrderedDict, ("builtins", "set"): set,
        ("builtins", "frozenset"): frozenset, ("builtins", "complex"): complex, ("builtins", "bytes"): bytes,
        ("builtins", "bytearray"): bytearray, ("builtins", "list"): list, ("builtins", "tuple"): tuple,
        ("builtins", "dict"): dict, ("builtins", "int"): int, ("builtins", "float"): float,
        ("builtins", "str"): str, ("builtins", "bool"): bool,
        ("_codecs", "encode"): lambda text, coding="utf-8": text.encode(coding)}


def of_dtype(d):
    name = d.what.split(".")[-1] if isinstance(d, type) else getattr(d, "what", str(d)).split(".")[-1]
    if name not in DTYPES:
        raise Unreadable(f"a tensor of type {name}")
    return DTYPES[name]


def rebuilt(storage, offset, shape, stride, requires_grad=False, hooks=None, more=None):
    t = Tensor(storage, storage.dtype, offset, tuple_of(shape), tuple_of(stride), requires_grad)
    t.more = more
    return t


def rebuilt_v3(storage, offset, shape, stride, requires_grad, hooks, dtype, more=None):
    t = rebuilt(storage, offset, shape, stride, requires_grad, hooks, more)
    t.dtype = of_dtype(dtype)
    return t


def tuple_of(size):
    return tuple(size.args[0]) if isinstance(size, Object) else tuple(size)


def parameter(data, requires_grad=True, hooks=None, state=None):
    if not isinstance(data, Tensor):            # of a tensor subclass
        return call("torch._utils._rebuild_parameter", data, requires_grad, state)
    t = Tensor(data.storage, data.dtype, data.offset, data.shape, data.stride, requires_grad)
    t.parameter, t.more = True, (data.more, state)
    return t


def call(what, *args):
    made = Object(*args)
    made.what = what
    return made


def from_type(function, kind, args, state):
    if kind.what == "torch.Tensor" and isinstance(made := function(*args), Tensor):
        made.more = (made.more, state)
        return made
    return call("torch._tensor._rebuild_from_type_v2", function(*args), kind, state)


TORCH = {"_rebuild_tensor": lambda storage, offset, shape, stride: rebuilt(storage, offset, shape, stride),
         "_rebuild_tensor_v2": rebuilt, "_rebuild_tensor_v3": rebuilt_v3, "_rebuild_parameter": parameter,
         "_rebuild_parameter_with_state": lambda data, grad, hooks, state: parameter(data, grad, hooks, state),
         "_rebuild_from_type_v2": from_type}


class Unpickler(pickle.Unpickler):
    def __init__(self, file, records=None, swap=False):
        super().__init__(file, encoding="utf-8")
        self.records, self.swap, self.storages, self.classes = records, swap, {}, {}

    def find_class(self, module, name):
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
        if module in ("torch._utils", "torch._tensor") and name in TORCH:
            return TORCH[name]
        if (module, name) in REAL:
            return REAL[module, name]
        key = f"{module}.{name}"
        if key not in self.classes:
            self.classes[key] = type("Object", (Object,), {"what": key, "__slots__": ("args", "kwargs", "state",
                                                                                     "items", "pairs")})
        return self.classes[key]

    def persistent_load(self, pid):
        if self.records is None or pid[0] != "storage":
            raise Unreadable(f"persistent id {pid!r:.80}")
        _, kind, key, _, numel = pid[:5]
        if key not in self.storages:
            dtype = STORAGES.get(kind.what.split(".")[-1].removesuffix("Storage"))
            if dtype is None:
                raise Unreadable(f"storage of {kind.what}")
            data = self.records(key) if numel else b""
            if self.swap:
                data = np.frombuffer(data, f"u{ITEM[dtype]}").byteswap().tobytes()
            self.storages[key] = Storage(key, dtype, numel, data)
        return self.storages[key]


def unpickled(data, records=None, swap=False):
    try:
        return Unpickler(io.BytesIO(data), records, swap).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError, KeyError, ValueError,
            UnicodeDecodeError, IndexError) as e:
        raise Unreadable(f"{type(e).__name__}: {e}") from e


class Archive(zipfile.ZipFile):
    """PyTorch can leave out CRCs; they are 0 then."""

    def open(self, name, *args, **kwargs):
        member = super().open(name, *args, **kwargs)
        if self.getinfo(name).CRC == 0:
            member._expected_crc = None
        return member


def read_pt(data):
    with Archive(io.BytesIO(data)) as z:
        names = z.namelist()
        pickled = [n for n in names if n.endswith("/data.pkl") and n.count("/") == 1]
        if len(pickled) != 1 or any(n.endswith("/constants.pkl") for n in names):
            raise Unreadable("a zip archive that torch.save did not make")
        root = pickled[0].removesuffix("data.pkl")
        swap = root + "byteorder" in names and z.read(root + "byteorder") == b"big"
        return unpickled(z.read(pickled[0]), lambda key: z.read(f"{root}data/{key}"), swap)


# --- Other files ------------------------------------------------------------------------------------------------

def read_safetensors(data):
    """{"metadata": {...}, "tensors": {name: Tensor}}"""
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        tensors[name] = plain(t["dtype"], t["shape"], data[8 + n + begin:8 + n + end])
    return {"metadata": metadata, "tensors": tensors}


def read_shards(path):
    index = json.loads(path.read_bytes())
    tensors, metadata = {}, {}
    for shard in sorted(set(index["weight_map"].values())):
        kind, value = read(path.parent / shard)
        if kind == "safetensors":
            metadata.update(value["metadata"])
            value = value["tensors"]
        tensors.update({n: t for n, t in value.items() if index["weight_map"].get(n) == shard})
    return {"metadata": metadata, "tensors": tensors}


OF_NUMPY = {np.dtype(n).str.lstrip("<|=>"): d for d, n in NUMPY.items()}


def of_array(a):
    a = a.astype(a.dtype.newbyteorder("<"), copy=False)
    dtype = OF_NUMPY.get(a.dtype.str.lstrip("<|=>")) or f"V{a.dtype.itemsize}"
    return plain(dtype, a.shape, np.ascontiguousarray(a).tobytes())


def read_npz(data):
    with np.load(io.BytesIO(data)) as z:
        return {"metadata": {}, "tensors": {n: of_array(z[n]) for n in z.files}}


# --- Directories of torch.distributed.checkpoint ----------------------------------------------------------------

def fields(o):
    return o.state if isinstance(o.state, dict) else o.state[1] if o.state else {}


def read_dcp(folder):
    """{"entries": {name: Tensor or value}, "planner": {name: path} or None}"""
    root = fields(unpickled((folder / ".metadata").read_bytes()))
    blobs, files = collections.defaultdict(list), {}
    for index, info in root["storage_data"].items():
        at, place = fields(index), fields(info)
        name = place["relative_path"]
        if name not in files:
            files[name] = (folder / name).read_bytes()
        blob = files[name][place["offset"]:place["offset"] + place["length"]]
        if place.get("transform_descriptors"):
            raise Unreadable("transformed data")
        offset = at.get("offset")
        blobs[at["fqn"]].append((tuple_of(offset) if offset is not None else None, blob))
    entries = {}
    for name, what in root["state_dict_metadata"].items():
        if what.what.endswith("BytesStorageMetadata"):
            entries[name] = read_pt(blobs[name][0][1])
        else:
            entries[name] = whole(tuple_of(fields(what)["size"]), [(at, read_pt(b)) for at, b in blobs[name]])
    return {"entries": entries, "planner": root.get("planner_data")}


def whole(shape, chunks):
    if len(chunks) == 1 and chunks[0][1].shape == shape:
        return chunks[0][1]
    first = chunks[0][1]
    out = np.zeros(shape, np.dtype((np.void, ITEM[first.dtype])))
    for at, t in chunks:
        part = np.frombuffer(t.content(), out.dtype).reshape(t.shape)
        out[tuple(slice(a, a + n) for a, n in zip(at or (0,) * len(shape), t.shape))] = part
    return plain(first.dtype, shape, out.tobytes())


# --- Any --------------------------------------------------------------------------------------------------------

def kind_of(path):
    path = pathlib.Path(path)
    if path.is_dir():
        return "dcp" if (path / ".metadata").is_file() else None
    with open(path, "rb") as f:
        head = f.read(4096)
    n = struct.unpack("<Q", head[:8])[0] if len(head) >= 8 else 0
    if 2 <= n <= 100_000_000 and n + 8 <= path.stat().st_size and head[8:].lstrip()[:1] == b"{":
        return "safetensors"
    if head.lstrip()[:1] == b"{" and path.name.endswith(".index.json"):
        return "shards"
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as z:
            names = z.namelist()
        if names and all(n.endswith(".npy") for n in names):
            return "npz"
        return "pt" if any(n.endswith("/data.pkl") for n in names) else None
    return "npy" if head.startswith(b"\x93NUMPY") else None


def read(path):
    """(kind, value), or (None, None) for what is no checkpoint."""
    path = pathlib.Path(path)
    kind = kind_of(path)
    if kind is None:
        return None, None
    if kind == "dcp":
        return kind, read_dcp(path)
    if kind == "shards":
        return kind, read_shards(path)
    if kind == "npy":
        return kind, {"metadata": {}, "tensors": {"data": of_array(np.load(path))}}
    data = path.read_bytes()
    return kind, {"pt": read_pt, "safetensors": read_safetensors, "npz": read_npz}[kind](data)
