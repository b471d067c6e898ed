#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model trained with SOAP, by its authors' program and by pytorch_optimizer.

    soap.py AUTHORS_SOAP_PY OUT_DIRECTORY

Made tests/data/torch/soap with PyTorch 2.15.0 on a CPU, soap.py of nikhilvyas/SOAP and pytorch_optimizer 4.1.0.
In authors/ and pytorch_optimizer/: before.pt is the model with its optimizer after 9 steps, recording/ is
of 9 more by tersor.record, after.pt is what they made of it.  Bases are new every 4 steps, and rows or columns
of more than 20 have none.
"""
import importlib.util
import pathlib
import sys

import pytorch_optimizer
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/wheel"))
from tersor.record import GradientRecorder

spec = importlib.util.spec_from_file_location("soap", sys.argv[1])
authors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(authors)
torch.set_num_threads(1)


def train(out, make, first_step):
    out.mkdir(parents=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    model.add_module("embed", torch.nn.Embedding(24, 12))
    model.add_module("up", torch.nn.Linear(12, 18))
    model.add_module("act", torch.nn.GELU())
    model.add_module("head", torch.nn.Linear(18, 24, bias=False))
    optimizer = make(model.parameters())

    def step():
        tokens = torch.randint(24, (64, 8))
        logits = model(tokens).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, (5 * tokens.flatten() + 1) % 24)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def save(name):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, out / name)

    for _ in range(9):
        step()
    save("before.pt")
    recorder = GradientRecorder(out / "recording", optimizer, model.named_parameters(), first_step=first_step)
    for _ in range(9):
        step()
    recorder.close()
    save("after.pt")


common = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1, "precondition_frequency": 4}
# Its first step, which only makes factors and bases, is none to the authors' program.
train(pathlib.Path(sys.argv[2]) / "authors",
      lambda p: authors.SOAP(p, max_precond_dim=20, **common), 9)
train(pathlib.Path(sys.argv[2]) / "pytorch_optimizer",
      lambda p: pytorch_optimizer.SOAP(p, max_precondition_dim=20, normalize_gradient=True, **common), 10)
