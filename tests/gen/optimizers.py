#!/usr/bin/env python3
"""tests/data/frameworks/optimizers: what optimizers of libraries keep besides tensors of the parameters' shapes.

    optimizers.py FOLDER     with torch 2.15, pytorch_optimizer 4.1, madgrad 1.3, galore-torch 1.0, apollo-torch 1.0.3,
                             adam-mini 1.1.1, heavyball 3.2.1 and prodigyopt 1.1.2

Every file is what torch.save makes of {"model", "optimizer"} after 12 steps of a model so small that nothing of it
is packed.
"""
import pathlib
import sys

import adam_mini
import apollo_torch
import galore_torch
import heavyball
import madgrad
import prodigyopt
import pytorch_optimizer
import torch


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))


def low_rank(m, optimizer=galore_torch.GaLoreAdamW, **more):
    at = {"rank": 2, "update_proj_gap": 4, "scale": 0.25, "proj_type": "std", **more}
    return optimizer([{"params": [p for p in m.parameters() if p.ndim == 2], **at},
                                     {"params": [p for p in m.parameters() if p.ndim != 2]}], lr=1e-2)


def of(name, **more):
    return lambda m: pytorch_optimizer.load_optimizer(name)(m.parameters(), lr=1e-2, **more)


def heavy(name):
    heavyball.utils.compile_mode = None
    return lambda m: getattr(heavyball, name)(m.parameters(), lr=1e-2)


def by_heads(m):
    o = adam_mini.Adam_mini(m.named_parameters(), lr=1e-2, dim=4, n_heads=8, verbose=False)
    o.wqk_names.add("0.weight")
    return o


def named(state, m):
    """As FSDP names parameters."""
    names = [name for name, _ in m.named_parameters()]
    return {"state": {names[i]: s for i, s in state["state"].items()},
            "param_groups": [{**g, "params": [names[i] for i in g["params"]]} for g in state["param_groups"]]}


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
    "adabelief": of("adabelief"),                                       # a variance about the mean
    "ademamix": of("ademamix"),                                         # a second momentum
    "prodigy": lambda m: prodigyopt.Prodigy(m.parameters()),            # the first weights, flat
    "apollo": lambda m: low_rank(m, apollo_torch.APOLLOAdamW, proj="random", scale_type="channel", scale=1),
    "adam-mini": by_heads,                                              # a mean of each head
    "heavyball-adamw": heavy("AdamW"),                                  # states by view and place in a chain
    "heavyball-ademamix": heavy("AdEMAMix"),
    "heavyball-soap": heavy("SOAP"),                                    # moments in stacks of one
}

for name, make in OPTIMIZERS.items():
    m = model()
    o = make(m)
    for i in range(12):
        o.zero_grad()
        torch.manual_seed(i)
        m(torch.randn(5, 3)).square().mean().backward()
        o.step()
    state = named(o.state_dict(), m) if name == "adam-mini" else o.state_dict()
    torch.save({"model": m.state_dict(), "optimizer": state}, pathlib.Path(sys.argv[1]) / f"{name}.pt")
