# SPDX-License-Identifier: Apache-2.0
"""Record the gradients of Hugging Face's Trainer for `tersor replay`.

    trainer = Trainer(..., callbacks=[RecordSteps("recording", steps=100)])
    trainer.train(resume_from_checkpoint="checkpoint-30")

Needs record_gradients.py beside it, or the Python package tersor.  The steps counted are those of the
optimizer, after clipping.  With gradients in BF16, as here, a step takes two bytes per parameter; dtype=None
keeps FP32 gradients as they are.
"""
import torch
from transformers import TrainerCallback

try:
    from tersor.record_gradients import GradientRecorder
except ImportError:
    from record_gradients import GradientRecorder


class RecordSteps(TrainerCallback):
    def __init__(self, directory, steps, dtype=torch.bfloat16):
        self.directory, self.left, self.dtype = directory, steps, dtype

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
        self.recorder = GradientRecorder(self.directory, optimizer, model.named_parameters(),
                                         first_step=state.global_step + 1, dtype=self.dtype)

    def on_step_end(self, args, state, control, **_):
        self.left -= 1
        if self.left == 0:
            self.recorder.close()
