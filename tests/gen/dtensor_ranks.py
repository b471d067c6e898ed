#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save that each rank of a run with FSDP2 or tensor parallelism writes, and runs that go on.

    dtensor_ranks.py make OUT [--mesh 2] [--width 32] [--steps 6]
    dtensor_ranks.py samples OUT            # what tests/data/torch/ranks has
    dtensor_ranks.py resume DIR [--mesh 2] [--steps 10]

`make` trains a small model on as many gloo processes as the mesh has places ("2", "2x2"), and every rank
saves model_world_size_N_rank_R.pt, optim_world_size_N_rank_R.pt and extra_state_world_size_N_rank_R.pt, as
verl does, and one.rank-R.pt with model and optimizer.  `resume` loads the first two into a new model and
prints the losses of the steps that follow.  Written by PyTorch 2.15; needs no GPU.
"""
import argparse
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

FILES = "{kind}_world_size_{n}_rank_{rank}.pt"


class Model(torch.nn.Module):
    """With a weight of three rows, and one of one row, of which only the first rank has something."""

    def __init__(self, width):
        super().__init__()
        self.embed = torch.nn.Embedding(2 * width, width)
        self.three = torch.nn.Linear(width, 3)
        self.head = torch.nn.Linear(3 + width, 1, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(torch.cat([torch.tanh(self.three(x)), x], -1)).sum(-1)


def setup(rank, n, store, mesh_shape, width):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=n)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    names = ("replicate", "shard")[-len(mesh_shape):]
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    model = Model(width)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)


def train(model, optimizer, scheduler, first, steps, width):
    for step in range(first, first + steps):
        g = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        tokens = torch.randint(0, 2 * width, (16,), generator=g)
        loss = ((model(tokens) - (tokens % 7).float() / 7) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        yield mean.item() / dist.get_world_size()


def name(kind):
    return FILES.format(kind=kind, n=dist.get_world_size(), rank=dist.get_rank())


def make(rank, n, store, args):
    model, optimizer, scheduler = setup(rank, n, store, args.mesh, args.width)
    list(train(model, optimizer, scheduler, 0, args.steps, args.width))
    out = pathlib.Path(args.directory)
    torch.save(model.state_dict(), out / name("model"))
    torch.save(optimizer.state_dict(), out / name("optim"))
    torch.save({"lr_scheduler": scheduler.state_dict(), "rng": {"cpu": torch.get_rng_state()}},
               out / name("extra_state"))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
               out / f"one.rank-{rank}.pt")
    dist.destroy_process_group()


def placed(rank, n, store, args):
    """DTensors with every placement, and a parameter."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=n)
    g = torch.Generator().manual_seed(7)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    full = torch.randn(32, 24, generator=g)
    model = {
        "columns.weight": distribute_tensor(full, mesh, [Replicate(), Shard(1)]),
        "rows.weight": distribute_tensor(full, mesh, [Shard(0), Shard(0)]),
        "both.weight": distribute_tensor(full, mesh, [Shard(0), Shard(1)]),
        "whole.weight": distribute_tensor(full, mesh, [Replicate(), Replicate()]),
        "sum.weight": DTensor.from_local(full / 4, mesh, [Partial(), Partial()], run_check=False),
        "line.weight": distribute_tensor(full[0], mesh["tp"], [Shard(0)]),
        "param": torch.nn.Parameter(distribute_tensor(full[:8], mesh["tp"], [Shard(0)])),
        "plain": full[:2].clone(),
    }
    torch.save(model, pathlib.Path(args.directory) / f"placed.rank-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def resume(rank, n, store, args):
    model, optimizer, scheduler = setup(rank, n, store, args.mesh, args.width)
    source = pathlib.Path(args.directory)
    load = lambda kind: torch.load(source / name(kind), weights_only=False)
    model.load_state_dict(load("model"))
    optimizer.load_state_dict(load("optim"))
    scheduler.load_state_dict(load("extra_state")["lr_scheduler"])
    losses = list(train(model, optimizer, scheduler, args.first, args.steps, args.width))
    if rank == 0:
        print(" ".join(f"{loss:.9g}" for loss in losses))
    dist.destroy_process_group()


def processes(work, args):
    n = torch.Size(args.mesh).numel()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (n, os.path.join(folder, "store"), args), nprocs=n)


def samples(args):
    """The second rank of a run on two, and the last of a mesh of 2x2."""
    args.width, args.steps = 32, 6
    out = pathlib.Path(args.directory)
    with tempfile.TemporaryDirectory() as folder:
        args.directory = folder
        args.mesh = (2,)
        processes(make, args)
        args.mesh = (2, 2)
        processes(placed, args)
        for file in ["model_world_size_2_rank_1.pt", "optim_world_size_2_rank_1.pt", "one.rank-1.pt",
                     "placed.rank-3.pt"]:
            (out / file).write_bytes((pathlib.Path(folder) / file).read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=["make", "samples", "resume"])
    parser.add_argument("directory")
    parser.add_argument("--mesh", default=(2,), type=lambda s: tuple(map(int, s.split("x"))))
    parser.add_argument("--width", default=32, type=int)
    parser.add_argument("--first", default=6, type=int, help="step that a run goes on with")
    parser.add_argument("--steps", default=6, type=int)
    args = parser.parse_args()
    pathlib.Path(args.directory).mkdir(parents=True, exist_ok=True)
    if args.command == "samples":
        samples(args)
    else:
        processes({"make": make, "resume": resume}[args.command], args)


if __name__ == "__main__":
    sys.exit(main())
