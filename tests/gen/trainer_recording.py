#!/usr/bin/env python3
"""Hugging Face's Trainer resumes a checkpoint for six steps and records them; the losses are printed.

    trainer_recording.py TEXT.xz RECORDING [CHECKPOINT]

Made tests/data/frameworks/trainer/recording from the checkpoint-30 beside it, and the losses in docs/tour.md.
TEXT is that of documentation_text.py.  Needs torch, transformers, accelerate and safetensors.
"""
import lzma
import pathlib
import sys
import tempfile

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging/wheel"))
from tersor.transformers import RecordSteps  # noqa: E402
from transformers import LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

STEPS = 6


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == 30 + STEPS

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']:.6f}")


def main():
    text, recording, *rest = sys.argv[1:]
    checkpoint = rest[0] if rest else str(ROOT / "tests/data/frameworks/trainer/checkpoint-30")
    rows = torch.tensor(list(lzma.open(text).read(400 * 64))).view(-1, 64)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, per_device_train_batch_size=4, max_steps=60, learning_rate=1e-3,
                                 lr_scheduler_type="cosine", warmup_steps=5, weight_decay=0.1,
                                 save_strategy="no", report_to=[], logging_steps=1, use_cpu=True,
                                 disable_tqdm=True)
        Trainer(LlamaForCausalLM.from_pretrained(checkpoint), args,
                train_dataset=[{"input_ids": row, "labels": row} for row in rows],
                callbacks=[RecordSteps(recording, STEPS), Stop()]).train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    sys.exit(main())
