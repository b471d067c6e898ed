# SPDX-License-Identifier: Apache-2.0
"""Skeletons: files in memory that have everything of a checkpoint but the elements of its tensors.

libtersor reads names, shapes and structure from them, as from what torch.save or safetensors wrote, and so plans
a save without a copy of the state.
"""
from __future__ import annotations

import collections
import io
import json
import os
import pickle
import struct
import zlib
from typing import Any, Dict, List, Mapping, Tuple

import torch

__all__ = ["DTYPES", "Skeleton", "of_tensors", "of_value"]

TYPED = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
         "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
         "complex64": "ComplexFloat", "complex128": "ComplexDouble"}


STORAGES = {getattr(torch, name): getattr(torch, typed + "Storage") for name, typed in TYPED.items()}
NO_HOOKS: Any = collections.OrderedDict()
CLASSES = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)}


class Storage:
    """What a pickle has in the place of the elements of a tensor."""
    __slots__ = "tensor", "key", "nbytes", "typed"

    def __init__(self, tensor: torch.Tensor, key: str):
        self.tensor, self.key = tensor, key
        self.nbytes = tensor.numel() * tensor.element_size()
        self.typed = STORAGES.get(tensor.dtype)

    def id(self) -> Tuple[Any, ...]:
        if self.typed:
            return "storage", self.typed, self.key, "cpu", self.tensor.numel()
        return "storage", torch.storage.UntypedStorage, self.key, "cpu", self.nbytes


def dense_strides(t: torch.Tensor) -> Tuple[int, ...]:
    """The strides of a tensor if they leave no gaps, else those of a row-major one."""
    rows, expected = [1] * t.dim(), 1
    for d in range(t.dim() - 2, -1, -1):
        rows[d] = rows[d + 1] * max(t.shape[d + 1], 1)
    for d in sorted((d for d in range(t.dim()) if t.shape[d] > 1), key=t.stride):
        if t.stride(d) != expected:
            return tuple(rows)
        expected *= t.shape[d]
    return t.stride() if t.numel() else tuple(rows)


def plain(t: torch.Tensor, where: str = "a tensor") -> torch.Tensor:
    """A tensor, detached; TypeError if it is not a dense one that has its elements."""
    what = "sparse" if t.layout != torch.strided else "quantized" if t.is_quantized else \
        "on the meta device" if t.is_meta else "nested" if getattr(t, "is_nested", False) else \
        "" if type(t) in CLASSES else f"a {type(t).__name__}"
    if what:
        raise TypeError(f"{where} of shape {list(t.shape)} is {what}: expected a dense tensor with its elements")
    t = t.detach()
    return t.resolve_conj() if t.is_complex() else t


class Pickler(pickle.Pickler):
    """Pickles as torch.save does, but every tensor that is not the same as another has a storage of its own."""

    def __init__(self, file: Any):
        super().__init__(file, protocol=2)
        self.storages: Dict[Any, Storage] = {}

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        t, shape, stride = plain(value), value.shape, value.stride()
        if type(value) is torch.nn.Parameter:
            return torch._utils._rebuild_parameter, (t, value.requires_grad, NO_HOOKS)
        key = (t.data_ptr(), t.device, t.dtype, shape, stride) if t.numel() else len(self.storages)
        storage = self.storages.get(key)
        if storage is None:
            storage = self.storages[key] = Storage(t, str(len(self.storages)))
        dense = stride if t.is_contiguous() else dense_strides(t)
        arguments = (storage, 0, tuple(shape), dense, value.requires_grad, NO_HOOKS)
        if storage.typed:
            return torch._utils._rebuild_tensor_v2, arguments
        return torch._utils._rebuild_tensor_v3, (*arguments, t.dtype)

    def persistent_id(self, value: Any) -> Any:
        return value.id() if isinstance(value, Storage) else None


class Skeleton:
    """A file in memory with everything but the elements: `tensors` has the tensor of each hole's offset."""

    def __init__(self) -> None:
        self.file = open(os.memfd_create("tersor"), "w+b", buffering=0)    # closed with the last reference
        self.path = f"/proc/self/fd/{self.file.fileno()}"
        self.tensors: Dict[int, torch.Tensor] = {}
        self.end = 0

    def put(self, data: bytes) -> None:
        while data:
            n = os.pwrite(self.file.fileno(), data, self.end)
            data, self.end = data[n:], self.end + n

    def hole(self, t: torch.Tensor, nbytes: int) -> None:
        if nbytes:
            self.tensors[self.end] = t
        self.end += nbytes

    def close(self) -> None:
        self.file.close()


class Archive:
    """A zip archive in a skeleton, each entry in the form of zip64.  zipfile takes five times as long for it."""
    LOCAL, ENTRY = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L")
    SIZES, END = struct.Struct("<2H3Q"), struct.Struct("<4sQ2H2L4Q4sLQL4s4H2LH")
    MOST, VERSION, DATE = 0xFFFFFFFF, 45, 33    # 1980-01-01

    def __init__(self, skeleton: Skeleton):
        self.skeleton = skeleton
        self.entries: List[bytes] = []

    def add(self, path: str, content: Any, nbytes: int, crc: int = 0) -> None:
        """An entry: bytes, or the tensor in the place of which is a hole."""
        name, at, most = path.encode(), self.skeleton.end, self.MOST
        self.skeleton.put(self.LOCAL.pack(b"PK\3\4", self.VERSION, 0, 0, 0, self.DATE, crc, most, most, len(name), 20)
                          + name + struct.pack("<2H2Q", 1, 16, nbytes, nbytes))
        if isinstance(content, bytes):
            self.skeleton.put(content)
        else:
            self.skeleton.hole(content, nbytes)
        self.entries.append(self.ENTRY.pack(b"PK\1\2", self.VERSION, self.VERSION, 0, 0, 0, self.DATE, crc, most, most,
                                            len(name), 28, 0, 0, 0, 0, most)
                            + name + self.SIZES.pack(1, 24, nbytes, nbytes, at))

    def close(self) -> None:
        n, at = len(self.entries), self.skeleton.end
        self.skeleton.put(b"".join(self.entries))
        end = self.skeleton.end
        self.skeleton.put(self.END.pack(b"PK\6\6", 44, self.VERSION, self.VERSION, 0, 0, n, n, end - at, at,
                                        b"PK\6\7", 0, end, 1,
                                        b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, self.MOST, self.MOST, 0))


def of_value(value: Any) -> Skeleton:
    """What torch.save would write of any value: a zip archive."""
    pickled, skeleton = io.BytesIO(), Skeleton()
    pickler = Pickler(pickled)
    pickler.dump(value)
    archive = Archive(skeleton)
    archive.add("archive/data.pkl", pickled.getvalue(), pickled.tell(), zlib.crc32(pickled.getvalue()))
    for storage in pickler.storages.values():
        archive.add(f"archive/data/{storage.key}", storage.tensor, storage.nbytes)
    archive.add("archive/version", b"3\n", 2, zlib.crc32(b"3\n"))
    archive.close()
    return skeleton


DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
          "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
          "uint16": "U16", "uint32": "U32", "uint64": "U64", "float8_e4m3fn": "F8_E4M3",
          "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
          "float8_e5m2fnuz": "F8_E5M2FNUZ"}


def of_tensors(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> Skeleton:
    """What safetensors would write of tensors by name."""
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at, found = 0, {name: plain(t, name) for name, t in tensors.items()}
    for name, t in found.items():
        dtype = DTYPES.get(str(t.dtype).partition(".")[2])
        if not dtype:
            raise TypeError(f"{name}: safetensors has no type for {t.dtype}")
        end = at + t.numel() * t.element_size()
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    skeleton = Skeleton()
    skeleton.put(struct.pack("<Q", len(text)) + text)
    for t in found.values():
        skeleton.hole(t, t.numel() * t.element_size())
    skeleton.file.truncate(skeleton.end)
    return skeleton
