# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job: who is first, what one does for all, and which part of a tensor a rank has."""
from __future__ import annotations

from typing import Any, Callable, List, Tuple

import torch


def distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def rank() -> int:
    return torch.distributed.get_rank() if distributed() else 0


def barrier() -> None:
    if distributed():
        torch.distributed.barrier()


def run_once(work: Callable[[], Any]) -> Any:
    """Do something on the first rank; the others wait for it, and get its result or raise its error."""
    result = error = None
    if rank() == 0:
        try:
            result = work()
        except Exception as e:  # to be raised on every rank
            error = e
    if distributed():
        box = [result, error]
        torch.distributed.broadcast_object_list(box, src=0)
        result, error = box
    if error:
        raise error
    return result


def part_of(t: Any) -> Tuple[List[int], List[int], bool]:
    """Where this rank's part of a DTensor begins, its shape, and whether no rank before has the same one."""
    if not hasattr(t, "placements"):
        return [0] * t.ndim, list(t.shape), True
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    except ImportError:     # before 2.5
        from torch.distributed._tensor._utils import compute_local_shape_and_global_offset
    partial = [placement for placement in t.placements if placement.is_partial()]
    if partial:
        raise ValueError(f"a tensor is placed as {partial[0]}: expected Shard or Replicate")
    size, start = compute_local_shape_and_global_offset(t.shape, t.device_mesh, t.placements)
    first = all(t.device_mesh.get_local_rank(i) == 0 for i, p in enumerate(t.placements) if p.is_replicate())
    return list(start), list(size), first
