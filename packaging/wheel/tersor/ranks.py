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
    start, size, first = [0] * t.ndim, list(t.shape), True
    for i, placement in enumerate(getattr(t, "placements", ())):
        number, n = t.device_mesh.get_local_rank(i), t.device_mesh.size(i)
        if type(placement).__name__ == "Shard":     # torch.chunk() of what the ones before left
            d = placement.dim
            chunk = -(-size[d] // n)
            begin = min(number * chunk, size[d])
            start[d], size[d] = start[d] + begin, min(chunk, size[d] - begin)
        elif type(placement).__name__ == "Replicate":
            first = first and number == 0
        else:
            raise ValueError(f"a tensor is placed as {placement}: expected Shard or Replicate")
    return start, size, first
