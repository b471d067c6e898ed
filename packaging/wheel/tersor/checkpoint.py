# SPDX-License-Identifier: Apache-2.0
"""Single tensors of any checkpoint that tersor reads, decoded in memory: `tersor.open`."""
from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping

import numpy as np

from tersor import library

__all__ = ["Array", "Checkpoint", "open"]

TYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I8": "i1", "U8": "u1", "I16": "<i2", "U16": "<u2", "I32": "<i4",
         "U32": "<u4", "I64": "<i8", "U64": "<u8", "BOOL": "?", "C64": "<c8"}


class Array(library.Tensor):
    """A tensor of a checkpoint; nothing is read before it is indexed.

    Attributes
    ----------
    name, kind, stored : str
        As of `tersor.library.Tensor`: `stored` is the element type before packing.
    shape : list of int
    """

    def numpy(self, first: int = 0, last: Any = None) -> np.ndarray:
        """Rows from `first` to before `last` of the first dimension, or all; BF16, for which numpy has no type, as FP32.

        Returns
        -------
        numpy.ndarray
            Of the tensor's shape, or of so many rows; of shape () for a scalar.

        Raises
        ------
        TypeError
            For FP8, which `torch` gives.
        """
        shape = list(self.shape)
        rows = range(shape[0] if shape else 1)[slice(first, last)]
        row = int(np.prod(shape[1:], dtype=np.int64))
        widened = self.packed or self.stored == "BF16"
        if not widened and self.stored not in TYPES:
            raise TypeError(f"tensor {self.name}: numpy has no type {self.stored}")
        values = np.empty(len(rows) * row, "<f4" if widened else TYPES[self.stored])
        if values.size and widened:
            library.call("tsr_checkpoint_read_f32", self.file.handle, self.description, rows.start * row, values.size,
                         values.ctypes.data)
        elif values.size:
            self.read(rows.start * row, values.size, values.itemsize, values.ctypes.data)
        if self.stored == "F16":
            values = values.astype("<f2", copy=False)
        return values.reshape([len(rows), *shape[1:]] if shape else [])

    def __getitem__(self, index: Any) -> np.ndarray:
        """As of an array: ``t[:]``, ``t[10:20, 3]``.  Only the rows that it needs are decoded."""
        first, *rest = (index if isinstance(index, tuple) else (index,)) or (Ellipsis,)
        if self.shape and isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            first = range(self.shape[0])[first]
            return self.numpy(first, first + 1)[(0, *rest)]
        if self.shape and isinstance(first, slice) and first.step in (None, 1):
            start, stop, _ = first.indices(self.shape[0])
            return self.numpy(start, max(start, stop))[(slice(None), *rest)]
        return self.numpy()[index]

    def torch(self) -> Any:
        """All of it as a tensor of PyTorch, in its own type."""
        from tersor.torch import Tensor
        return Tensor(self.file, self.description).whole()


class Checkpoint(Mapping[str, Array]):
    """The tensors of a checkpoint by name; ``with tersor.open(path) as c:`` closes it.

    Attributes
    ----------
    metadata : dict of str to str
        Of the file; of a packed directory, where its files differ in an entry, that of the first.
    """

    def __init__(self, path: Any, parts: bool = False):
        files, arrays = library.open_all(path, Array, parts)
        self._arrays: Dict[str, Array] = arrays
        self.metadata: Dict[str, str] = {}
        for file in reversed(files):
            self.metadata.update(file.metadata())

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def close(self) -> None:
        """Let go of the file; it is closed with the last tensor that is still used."""
        self._arrays = {}

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def open(path: Any, parts: bool = False) -> Checkpoint:
    """Open a checkpoint: packed or not, a file, or a directory that ``tersor inspect`` shows as one or
    that ``tersor pack`` wrote.

    Parameters
    ----------
    path : path
    parts : bool
        Accept a file with one rank's parts of tensors.
    """
    return Checkpoint(path, parts)
