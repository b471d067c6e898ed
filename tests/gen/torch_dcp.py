#!/usr/bin/env python3
"""A small directory of torch.distributed.checkpoint by a current PyTorch, on two ranks.

    torch_dcp.py OUT_DIRECTORY EXPECTED.safetensors

Made tests/data/torch/dcp-2.15 with PyTorch 2.15.0.  The tensors of model and optimizer are sharded
along rows, along columns, unevenly, replicated, transposed; EXPECTED has them whole under the names
that tersor gives them.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

SHAPES = {"rows": (7, 5), "columns": (3, 9), "norm.weight": (6,), "one": (1, 4), "whole": (4, 4)}
PLACES = {"rows": Shard(0), "columns": Shard(1), "norm.weight": Shard(0), "one": Shard(0),
          "whole": Replicate()}


def values():
    generator = torch.Generator().manual_seed(0)
    out = {}
    for name, shape in SHAPES.items():
        for suffix in ("", ".exp_avg", ".exp_avg_sq"):
            out[name + suffix] = torch.randn(shape, generator=generator)
    return out


def work(rank, folder):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    full = values()

    def spread(name):
        return distribute_tensor(full[name], mesh, [PLACES[name.split(".exp_avg")[0]]])

    state = {name: {"step": torch.tensor(3.0), "exp_avg": spread(f"{name}.exp_avg"),
                    "exp_avg_sq": spread(f"{name}.exp_avg_sq")} for name in SHAPES}
    dcp.save({
        "model": {name: spread(name) for name in SHAPES} | {"turned": full["rows"].t() + 1},
        "optim": {"state": state, "param_groups": [{
            "lr": 0.001, "betas": (0.9, 0.95), "foreach": None, "params": list(SHAPES)}]},
        "step": 3, "text": "two ranks",
    }, checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    out, expected = sys.argv[1:]
    mp.spawn(work, (out,), nprocs=2)
    full = values()
    save_file(full | {"turned": (full["rows"].t() + 1).contiguous()}, expected)
