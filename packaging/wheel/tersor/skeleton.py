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
        self.fd = os.memfd_create("tersor")
        self.path = f"/proc/self/fd/{self.fd}"
        self.tensors: Dict[int, torch.Tensor] = {}
        self.at = 0

    def put(self, data: bytes) -> None:
        os.pwrite(self.fd, data, self.at)
        self.at += len(data)

    def hole(self, t: torch.Tensor) -> None:
        if t.numel():
            self.tensors[self.at] = t
        self.at += t.numel() * t.element_size()

    def close(self) -> None:
        os.close(self.fd)


def of_value(value: Any) -> Skeleton:
    """What torch.save would write of any value: a zip archive (APPNOTE.TXT 6.3, zip64 where sizes need it)."""
    file = io.BytesIO()
    pickler = Pickler(file)
    pickler.dump(value)
    members: List[Tuple[str, Any]] = [("data.pkl", file.getvalue())]
    members += [(f"data/{s.key}", s) for s in pickler.storages.values()]
    members.append(("version", b"3\n"))
    skeleton, directory = Skeleton(), []
    for name, content in members:
        size = content.nbytes if isinstance(content, Storage) else len(content)
        crc = 0 if isinstance(content, Storage) else zlib.crc32(content)
        path, at, large = b"archive/" + name.encode(), skeleton.at, size >= 0xffffffff
        extra = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
        short = 0xffffffff if large else size
        skeleton.put(struct.pack("<IHHHHHIIIHH", 0x04034b50, 45, 0, 0, 0, 33, crc, short, short, len(path),
                                 len(extra)) + path + extra)
        if isinstance(content, Storage):
            skeleton.hole(content.tensor)
        else:
            skeleton.put(content)
        fields = [size, size] * large + [at] * (at >= 0xffffffff)
        extra = struct.pack(f"<HH{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""
        directory.append(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 45, 45, 0, 0, 0, 33, crc, short, short,
                                     len(path), len(extra), 0, 0, 0, 0, min(at, 0xffffffff)) + path + extra)
    at, size, n = skeleton.at, sum(map(len, directory)), len(directory)
    for entry in directory:
        skeleton.put(entry)
    if at >= 0xffffffff or n >= 0xffff:
        end = skeleton.at
        skeleton.put(struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, n, n, size, at))
        skeleton.put(struct.pack("<IIQI", 0x07064b50, 0, end, 1))
    skeleton.put(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, min(n, 0xffff), min(n, 0xffff), size,
                             min(at, 0xffffffff), 0))
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
        skeleton.hole(t)
    os.ftruncate(skeleton.fd, skeleton.at)
    return skeleton
