#!/usr/bin/env python3
"""Checkpoints of bitsandbytes' optimizers, for tests/data/frameworks/states/bitsandbytes.

    bitsandbytes_states.py OUT

Needs torch and bitsandbytes 0.50.  Two weights of 4096 elements have 8-bit states, which share their tables;
the bias has FP32 states.
"""
import pathlib
import sys

import bitsandbytes.optim
import torch


def main():
    for name, model_too in (("AdamW8bit", False), ("AdEMAMix8bit", True), ("RMSprop8bit", False)):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(64, 64), torch.nn.Linear(64, 64))
        optimizer = getattr(bitsandbytes.optim, name)(model.parameters())
        tokens = torch.randint(0, 64, (16, 8))
        for _ in range(6):
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        saved = {"optimizer": optimizer.state_dict()}
        if model_too:
            saved["model"] = model.state_dict()
        torch.save(saved, pathlib.Path(sys.argv[1]) / f"{name.lower()}.pt")


if __name__ == "__main__":
    main()
