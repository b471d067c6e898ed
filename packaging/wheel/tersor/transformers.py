# SPDX-License-Identifier: Apache-2.0
"""Packed checkpoints of Hugging Face's Trainer, and recordings of its gradients for `tersor replay`.

    trainer = Trainer(..., callbacks=[TersorCallback(), RecordSteps("recording", steps=100)])
    trainer.train(resume_from_checkpoint=restore("out"))        # None if there is nothing to resume from
"""
from __future__ import annotations

import glob
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import torch
from transformers import TrainerCallback

import tersor
from tersor.ranks import barrier, run_once
from tersor.record import GradientRecorder
from tersor.saving import keep_newest, numbered

__all__ = ["RecordSteps", "TersorCallback", "restore"]

NAME, PACKED, REMOVED = "checkpoint-{step}", "packed", ".removed-"
LAST_WRITTEN = "trainer_state.json"     # of what the Trainer writes into a checkpoint


class TersorCallback(TrainerCallback):
    """Pack each checkpoint-N that the Trainer wrote into ``packed/checkpoint-N``, in the background.

    Parameters
    ----------
    replace : bool
        Remove checkpoint-N once it is packed, but for the best one; `restore` brings back the last.  The Trainer's
        `save_total_limit` holds for the packed ones, too.
    **options
        Of `tersor.pack`, such as ``state="tight"`` or ``entropy=True``.
    """

    def __init__(self, replace: bool = True, **options: Any):
        self.replace, self.options = replace, options
        self.pool, self.running = ThreadPoolExecutor(1, "tersor"), None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        barrier()   # other ranks write into the directory, too
        self.wait()
        if state.is_world_process_zero:
            source = os.path.join(args.output_dir, NAME.replace("{step}", str(state.global_step)))
            self.running = self.pool.submit(self.pack, source, args.output_dir, args.save_total_limit or 0,
                                            state.best_model_checkpoint or "")

    def pack(self, source: str, folder: str, limit: int = 0, best: str = "") -> None:
        for left in glob.glob(os.path.join(glob.escape(folder), REMOVED + "*")):   # by a process that was killed
            shutil.rmtree(left)
        packed = os.path.join(folder, PACKED)
        os.makedirs(packed, exist_ok=True)
        tersor.pack(source, os.path.join(packed, os.path.basename(source), ""), force=True, **self.options)
        keep_newest(os.path.join(packed, NAME), limit, spared=os.path.join(packed, os.path.basename(best)))
        if self.replace and source != best:
            gone = os.path.join(folder, REMOVED + os.path.basename(source))
            os.rename(source, gone)     # at no moment is half of a checkpoint under its name
            shutil.rmtree(gone)

    def wait(self) -> None:
        """Wait for the checkpoint that is being packed; raises what went wrong."""
        running, self.running = self.running, None
        if running:
            running.result()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_save:     # the Trainer may remove an older checkpoint then
            self.wait()

    on_epoch_end = on_step_end

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.wait()


class RecordSteps(TrainerCallback):
    """Record the gradients of the next steps into a new directory.

    The steps counted are those of the optimizer, after clipping.  With gradients in BF16 a step takes two bytes per
    parameter; ``dtype=None`` keeps FP32 gradients as they are.
    """

    def __init__(self, directory: Any, steps: int, dtype: Optional[torch.dtype] = torch.bfloat16):
        self.directory, self.left, self.dtype = directory, steps, dtype

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None,
                       **_: Any) -> None:
        optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
        self.recorder = GradientRecorder(self.directory, optimizer, model.named_parameters(),
                                         first_step=state.global_step + 1, dtype=self.dtype)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.recorder.close()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.recorder.close()


def restore(output_dir: Any) -> Optional[str]:
    """The last complete checkpoint-N of a directory, unpacked if only its packed form is there; None without one.

    With several ranks every one calls it, after TrainingArguments made the process group; the first unpacks.
    """
    def on_first() -> Optional[str]:
        found = [(step, True, path) for step, path in numbered(os.path.join(output_dir, NAME))
                 if os.path.isfile(os.path.join(path, LAST_WRITTEN))]
        found += [(step, False, path) for step, path in numbered(os.path.join(output_dir, PACKED, NAME))]
        _, complete, path = max(found, default=(0, True, None))
        if complete:
            return path
        target = os.path.join(output_dir, os.path.basename(path))
        if os.path.isdir(target):   # incomplete
            shutil.rmtree(target)
        tersor.unpack(path, os.path.join(target, ""))
        return target
    return run_once(on_first)
