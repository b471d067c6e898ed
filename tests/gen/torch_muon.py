#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model trained with torch.optim.Muon and, for what is no hidden matrix, torch.optim.AdamW.

    torch_muon.py OUT_DIRECTORY

Made tests/data/torch/muon with PyTorch 2.15.0 on a CPU.  before.pt is the model with both optimizers
after 2 steps; muon/ and adamw/ are recordings of 6 more, by tersor.record; after.pt is
what both made of them.
"""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/wheel"))
from tersor.record import GradientRecorder

out = pathlib.Path(sys.argv[1])
out.mkdir()
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential()
model.add_module("embed", torch.nn.Embedding(16, 24))
model.add_module("up", torch.nn.Linear(24, 40))
model.add_module("act", torch.nn.GELU())
model.add_module("down", torch.nn.Linear(40, 24))
model.add_module("head", torch.nn.Linear(24, 16, bias=False))
hidden = ("up.weight", "down.weight")
muon = torch.optim.Muon([p for n, p in model.named_parameters() if n in hidden], lr=2e-2, weight_decay=0.1)
adamw = torch.optim.AdamW([p for n, p in model.named_parameters() if n not in hidden], lr=1e-2, foreach=False)


def step():
    tokens = torch.randint(16, (8, 12))
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), (3 * tokens.flatten() + 1) % 16)
    loss.backward()
    for optimizer in (muon, adamw):
        optimizer.step()
        optimizer.zero_grad()


def save(name):
    torch.save({"model": model.state_dict(), "muon": muon.state_dict(), "adamw": adamw.state_dict()}, out / name)


for _ in range(2):
    step()
save("before.pt")
for name, optimizer in ("muon", muon), ("adamw", adamw):
    GradientRecorder(out / name, optimizer, model.named_parameters(), first_step=3)
for _ in range(6):
    step()
save("after.pt")
