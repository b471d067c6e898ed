#!/usr/bin/env python3
"""tests/data/frameworks/optimizers: what optimizers of libraries keep besides tensors of the parameters' shapes.

    optimizers.py FOLDER     with torch 2.15, pytorch_optimizer 4.1, madgrad 1.3 and galore-torch 1.0

Every file is what torch.save makes of {"model", "optimizer"} after 12 steps of a model so small that nothing of it
is packed.
"""
import pathlib
import sys

import galore_torch
import madgrad
import pytorch_optimizer
import torch


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))


def low_rank(m, **more):
    at = {"rank": 2, "update_proj_gap": 4, "scale": 0.25, "proj_type": "std"}
    return galore_torch.GaLoreAdamW([{"params": [p for p in m.parameters() if p.ndim == 2], **at},
                                     {"params": [p for p in m.parameters() if p.ndim != 2]}], lr=1e-2)


def of(name, **more):
    return lambda m: pytorch_optimizer.load_optimizer(name)(m.parameters(), lr=1e-2, **more)


OPTIMIZERS = {
    "madgrad": lambda m: madgrad.MADGRAD(m.parameters(), lr=1e-2),      # an entry besides the states
    "amos": of("amos"),                                                 # states of shape []
    "nero": of("nero"),                                                 # of one column
    "aggmo": of("aggmo"),                                               # floats as keys
    "adashift": of("adashift"),                                         # collections.deque
    "scion": of("scion"),                                               # an enumeration
    "galore": low_rank,                                                 # an object, and a projection
    "magma": lambda m: pytorch_optimizer.load_optimizer("magma")(       # tuples as keys
        torch.optim.AdamW(m.parameters(), lr=1e-2)),
}

for name, make in OPTIMIZERS.items():
    m = model()
    o = make(m)
    for i in range(12):
        o.zero_grad()
        torch.manual_seed(i)
        m(torch.randn(5, 3)).square().mean().backward()
        o.step()
    torch.save({"model": m.state_dict(), "optimizer": o.state_dict()}, pathlib.Path(sys.argv[1]) / f"{name}.pt")
