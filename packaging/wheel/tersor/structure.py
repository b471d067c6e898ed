# SPDX-License-Identifier: Apache-2.0
"""What is around the tensors of a state, from which libtersor plans a save: a pickle with holes, and facts of each.

libtersor finds names and structure in it as in what torch.save or safetensors wrote; there is no copy of the state.
"""
from __future__ import annotations

import array
import io
import pickle
from typing import Any, Dict, List, Mapping, Tuple

import torch

from tersor.library import library

__all__ = ["DTYPES", "Structure", "of_tensors", "of_value"]

DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
          "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
          "uint16": "U16", "uint32": "U32", "uint64": "U64", "float8_e4m3fn": "F8_E4M3",
          "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
          "float8_e5m2fnuz": "F8_E5M2FNUZ"}
CLASSES = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)}


def hole(number: int, requires_grad: bool, is_parameter: bool) -> None:
    """What a pickle calls in the place of a tensor; libtersor reads it (tersor/saving.h)."""
    raise pickle.UnpicklingError("found the structure of a state, which has no elements")


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
    return t.detach().resolve_conj().resolve_neg()


class Structure:
    """The structure of a state: `tensors` has the tensor of each number."""

    def __init__(self) -> None:
        self.pickled = b""
        self.tensors: List[torch.Tensor] = []
        self.facts = array.array("Q")
        self.metadata: Mapping[str, str] = {}
        self.named = False
        self.numbers: Dict[Any, int] = {}
        self.known: Dict[Any, int] = {}     # the number of each type

    def number(self, value: torch.Tensor, where: str = "a tensor") -> int:
        """The number of a tensor, which is that of any other one with the same elements."""
        t, shape, stride = plain(value, where), value.shape, value.stride()
        key = (t.data_ptr(), t.device, t.dtype, shape, stride) if t.numel() else len(self.tensors)
        found = self.numbers.setdefault(key, len(self.tensors))
        if found < len(self.tensors):
            return found
        if t.dtype not in self.known:
            name = DTYPES.get(str(t.dtype).partition(".")[2])
            if not name:
                raise TypeError(f"{where} of shape {list(shape)} is of {t.dtype}: expected a type that safetensors has")
            self.known[t.dtype] = library().tsr_dtype_find(name.encode())
        self.tensors.append(t)
        self.facts.extend((self.known[t.dtype], len(shape), *shape,
                           *(stride if t.is_contiguous() else dense_strides(t))))
        return found


class Pickler(pickle.Pickler):
    """Pickles as torch.save does, but a tensor is a hole."""

    def __init__(self, file: Any, structure: Structure):
        super().__init__(file, protocol=2)
        self.structure = structure

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        return hole, (self.structure.number(value), value.requires_grad, type(value) is torch.nn.Parameter)


def of_value(value: Any) -> Structure:
    """That of what torch.save would write of any value."""
    pickled, structure = io.BytesIO(), Structure()
    Pickler(pickled, structure).dump(value)
    structure.pickled = pickled.getvalue()
    return structure


class Hole:
    """Stands for a tensor whose number is known."""

    def __init__(self, number: int):
        self.number = number

    def __reduce__(self) -> Any:
        return hole, (self.number, False, False)


def of_tensors(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> Structure:
    """That of what safetensors would write of tensors by name."""
    for key, value in metadata.items():
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in key + value):
            raise ValueError(f"metadata {key!r}: found NUL or a lone surrogate, expected what UTF-8 without NUL holds")
    structure = Structure()
    structure.named, structure.metadata = True, metadata
    structure.pickled = pickle.dumps({name: Hole(structure.number(t, name)) for name, t in tensors.items()}, 2)
    return structure
