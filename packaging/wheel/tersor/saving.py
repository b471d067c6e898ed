# SPDX-License-Identifier: Apache-2.0
"""Saving the state of a training job, packed, from its memory: `tersor.torch.save` and `async_save`.

The planes are made where the tensors are.  Of tensors on a GPU only planes cross the bus, into pinned memory that
is kept for the next save; a thread writes the file while training goes on.  No FP32 copy of the state is made in
host memory, on disk or in /dev/shm.  tersor.planes makes them, and has a GPU code them if wanted.
"""
from __future__ import annotations

import concurrent.futures
import os
import re
import shutil
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch

from tersor.planes import Format, Saved, Staged
from tersor.ranks import rank, run_once
from tersor.structure import of_value

__all__ = ["Saved", "async_save", "latest", "save", "save_value"]

STARTED = time.time()


def with_names(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> Dict[str, Any]:
    """The state_dict of an optimizer, whose groups say which parameters they have."""
    names = {id(p): name for name, p in model.named_parameters()}
    state = optimizer.state_dict()
    if "param_groups" not in state:     # one around another
        return state
    groups = [{**saved, "param_names": [names.get(id(p), "") for p in group["params"]]}
              for saved, group in zip(state["param_groups"], optimizer.param_groups)]
    named = all(all(group["param_names"]) for group in groups)
    return {**state, "param_groups": groups if named else state["param_groups"]}


def state_of(model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer],
             more: Mapping[str, Any]) -> Dict[str, Any]:
    value = {"model": model.state_dict(), **more}
    if optimizer:
        value["optimizer"] = with_names(optimizer, model)
    return value


STEP = "{step}"


def numbered(pattern: str) -> List[Tuple[int, str]]:
    """The saves of a pattern, by their step."""
    folder, name = os.path.split(os.path.abspath(pattern))
    wanted = re.escape(name).replace(re.escape(STEP), r"(\d+)")
    found = [(re.fullmatch(wanted, each), each) for each in (os.listdir(folder) if os.path.isdir(folder) else [])]
    return sorted((int(match[1]), os.path.join(folder, each)) for match, each in found if match)


def latest(pattern: str) -> Optional[str]:
    """The save of the highest step of a pattern such as "run/step-{step}.safetensors"; None if there is none.

    Files appear complete: what a crash interrupts is not among them.
    """
    found = numbered(os.fspath(pattern))
    return found[-1][1] if found else None


def remove(path: str) -> None:
    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def keep_newest(pattern: str, n: int, spared: str) -> None:
    """Remove all but the newest saves of a pattern, and one that is spared; 0: none."""
    for _, old in numbered(pattern)[:-n] if n else ():
        if old != os.path.abspath(spared):
            remove(old)


def prune(pattern: str, path: str, keep_last: int) -> None:
    """Remove what an earlier process was killed over, and all but the newest saves."""
    directory, name = os.path.split(os.path.abspath(pattern if STEP in pattern else path))
    mine = r"\." + re.escape(name).replace(re.escape(STEP), r"\d+") + r"\.[0-9a-f]{16}\.tmp"
    for other in os.listdir(directory):
        left = os.path.join(directory, other)
        try:
            if re.fullmatch(mine, other) and os.stat(left).st_mtime < STARTED:
                os.unlink(left)
        except FileNotFoundError:
            pass
    if STEP in pattern:
        keep_newest(pattern, keep_last, path)


WRITER = concurrent.futures.ThreadPoolExecutor(1, "tersor")
LAST: List[concurrent.futures.Future] = []


def target_of(path: Any, step: Optional[int]) -> Tuple[str, str]:
    """The pattern that a path is, and the path of this step."""
    pattern = os.path.abspath(os.fspath(path))
    if (STEP in os.path.basename(pattern)) != (step is not None) or STEP in os.path.dirname(pattern):
        raise ValueError(f"{pattern}: step= goes with a path whose name has {STEP}")
    return pattern, pattern.replace(STEP, str(step))


def in_shards(model: torch.nn.Module) -> bool:
    return any(hasattr(t, "placements") for t in model.state_dict().values())


def async_save(path: Any, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None, *,
               step: Optional[int] = None, keep_last: int = 0, state: str = "flash", weights: str = "bf16+ulp8",
               entropy: bool = False, delta: Any = None, threads: int = 0,
               **more: Any) -> "concurrent.futures.Future[Saved]":
    """Pack a model, its optimizer and any other values; the file is written while training goes on.

    Parameters
    ----------
    path : path
        The file to write or to replace, when it is complete.  ``{step}`` in it stands for `step`.
    model, optimizer
        What has a ``state_dict``; tensors on the CPU or on CUDA devices.  Of a model in shards (FSDP2, TP) every
        rank has to call this, and the path is that of a directory (`tersor.dcp`).
    step : int
        With ``{step}`` in the path.
    keep_last : int
        How many saves of the pattern to keep; 0: all.
    state, weights : str
        Codecs, as ``tersor pack --state`` and ``--weights`` have them.
    entropy : bool
        Code the planes without loss, in the background: those of tensors on a GPU there, before they are copied.
    delta : path, optional
        A packed file to store the difference from.
    threads : int
        Threads of the writer; 0: at most half of the processors.
    **more
        Other values to save, such as ``epoch=3`` or ``scheduler=scheduler.state_dict()``.

    Returns
    -------
    Future of Saved
        Raises what went wrong while the file was written, such as a full disk; training goes on.  Ranks of a
        job that hold the same state do nothing but the first.  A save that is still written is waited for.
    """
    pattern, target = target_of(path, step)
    form = Format(state, weights, entropy, delta, threads)
    if in_shards(model):
        if delta is not None or keep_last:
            raise ValueError(f"{target}: delta= and keep_last= are for a model that is not in shards")
        from tersor import dcp
        return dcp.save_state(target, model, optimizer, more, state=state, weights=weights, entropy=entropy,
                              threads=threads)
    if rank():
        nothing: concurrent.futures.Future = concurrent.futures.Future()
        nothing.set_result(Saved(target, 0, 0.0, {}, []))
        return nothing
    if LAST:
        concurrent.futures.wait(LAST)
    prune(pattern, target, 0)
    staged = Staged(of_value(state_of(model, optimizer, more)), form)

    def write() -> Saved:
        saved = staged.write(target)
        prune(pattern, target, keep_last)
        return saved
    LAST[:] = [WRITER.submit(write)]
    return LAST[0]


def save_value(path: Any, value: Any, **form: Any) -> Saved:
    """What ``torch.save(value, path)`` saves, packed; `form` are `state` to `threads` of `async_save`."""
    target = os.path.abspath(os.fspath(path))
    if LAST:
        concurrent.futures.wait(LAST)
    prune(target, target, 0)
    return Staged(of_value(value), Format(**form)).write(target)


def save(path: Any, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None,
         **arguments: Any) -> Saved:
    """As `async_save`, but return when the file is written; an error is raised on every rank."""
    def work() -> Saved:
        return async_save(path, model, optimizer, **arguments).result()
    return work() if in_shards(model) else run_once(work)
