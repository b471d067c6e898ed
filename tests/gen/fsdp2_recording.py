#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/data/recording-fsdp2: gradients that three ranks recorded, and the same put together.

    torchrun --nproc-per-node 3 tests/gen/fsdp2_recording.py OUT

by PyTorch 2.15 on the CPU, with the package safetensors.  Seven rows over three ranks are 3, 3 and 1,
and one row is on the first alone.
"""
import pathlib
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "packaging/wheel"))
from tersor.record import GradientRecorder

out = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
recorder = GradientRecorder(out, optimizer, model.named_parameters(), dtype=torch.bfloat16)
whole = {}
for step in (1, 2):
    optimizer.zero_grad()
    torch.manual_seed(100 * step + rank)
    recorder.loss = model(torch.randn(5, 4)).pow(2).mean()
    recorder.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    for name, p in model.named_parameters():
        whole[f"{step}.{name}"] = p.grad.full_tensor().to(torch.bfloat16)
    optimizer.step()
recorder.close()
if rank == 0:
    save_file(whole, out / "whole.safetensors")
dist.destroy_process_group()
