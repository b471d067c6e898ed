# SPDX-License-Identifier: Apache-2.0
"""Packed checkpoints of Hugging Face's Trainer.

    trainer = Trainer(..., callbacks=[TersorCallback()])
    trainer.train(resume_from_checkpoint=restore("out"))        # None if there is nothing to resume from
"""
from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import torch
from transformers import TrainerCallback

import tersor
from tersor.saving import latest

__all__ = ["TersorCallback", "restore"]

NAME, PACKED = "checkpoint-{step}", "packed"


class TersorCallback(TrainerCallback):
    """Pack each checkpoint-N that the Trainer wrote into ``packed/checkpoint-N``, in the background.

    Parameters
    ----------
    replace : bool
        Remove checkpoint-N once it is packed, but for the best one; `restore` brings back the last.
    **options
        Of `tersor.pack`, such as ``state="tight"`` or ``entropy=True``.
    """

    def __init__(self, replace: bool = True, **options: Any):
        self.replace, self.options = replace, options
        self.pool, self.running = ThreadPoolExecutor(1, "tersor"), []

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.barrier()     # other ranks write into the directory, too
        self.wait(all_of_them=False)
        if state.is_world_process_zero:
            source = os.path.join(args.output_dir, NAME.replace("{step}", str(state.global_step)))
            keep = not self.replace or source == state.best_model_checkpoint
            self.running.append(self.pool.submit(self.pack, source, args.output_dir, keep))

    def pack(self, source: str, folder: str, keep: bool) -> None:
        os.makedirs(os.path.join(folder, PACKED), exist_ok=True)
        tersor.pack(source, os.path.join(folder, PACKED, os.path.basename(source), ""), force=True, **self.options)
        if not keep:
            shutil.rmtree(source)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.wait(all_of_them=True)

    def wait(self, all_of_them: bool) -> None:
        """Raise what went wrong with the checkpoints that are packed."""
        for future in [f for f in self.running if all_of_them or f.done()]:
            self.running.remove(future)
            future.result()


def restore(output_dir: Any) -> Optional[str]:
    """The last checkpoint-N of a directory, unpacked if only its packed form is there."""
    found = [latest(os.path.join(output_dir, NAME)), latest(os.path.join(output_dir, PACKED, NAME))]
    steps = [int(path.rpartition("-")[2]) if path else -1 for path in found]
    if steps[1] <= steps[0]:
        return found[0]
    target = os.path.join(output_dir, os.path.basename(found[1]))
    tersor.unpack(found[1], os.path.join(target, ""))
    return target
