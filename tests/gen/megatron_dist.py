"""A checkpoint of Megatron-LM in its format torch_dist, saved, loaded and resumed by megatron-core on a CPU.

    megatron_dist.py save DIR                   makes DIR: tests/data/frameworks/megatron
    megatron_dist.py load ORIGINAL COPY...      loads and resumes each copy, and compares it with the original

A GPT in BF16 is trained with AdamW and FP32 masters; states of random generators and the _extra_state of
layers are saved as Megatron-LM does it. Made with PyTorch 2.15 and megatron-core 0.16.1. What it asks of a
GPU is answered by the CPU: the current device, synchronize, and tensors on "cuda".
"""
import argparse
import contextlib
import io
import os
import pathlib
import random
import sys

import numpy as np
import torch

ITERATION = 6
SHARD = (1, 1), (0, 0)


def on_the_cpu():
    def here(make):
        def on_cpu(*args, **options):
            if str(options.get("device")).startswith("cuda"):
                options["device"] = "cpu"
            return make(*args, **options)
        return on_cpu

    torch.cuda.synchronize = lambda *a, **k: None
    torch.cuda.current_device = lambda: "cpu"
    torch.tensor, torch.zeros, torch.empty = here(torch.tensor), here(torch.zeros), here(torch.empty)
    kind = torch.Tensor.type
    torch.Tensor.type = lambda t, *a, **k: \
        kind(t, *a, **k) if a or k else kind(t).replace("torch.", "torch.cuda.")

on_the_cpu()
# pylint: disable=wrong-import-position
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params
from megatron.core.transformer import TransformerConfig



def make_state(optimizer, config):
    """So that a fresh optimizer has states to load into."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if not optimizer.state[p]:
                optimizer.state[p] = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(p),
                                      "exp_avg_sq": torch.zeros_like(p)}


class Training:
    def __init__(self, seed):
        torch.manual_seed(seed)
        config = TransformerConfig(
            num_layers=1, hidden_size=16, num_attention_heads=2, use_cpu_initialization=True, bf16=True,
            params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, hidden_dropout=0.0,
            attention_dropout=0.0)
        self.model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=32,
                              max_sequence_length=16).bfloat16()
        params = list(self.model.parameters())
        group = {"lr_mult": 1.0, "is_expert_parallel": False, "is_decoupled_lr": False}
        inner = torch.optim.AdamW(
            [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1, "wd_mult": 1.0, **group},
             {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0, "wd_mult": 0.0, **group}],
            lr=1e-3)
        options = OptimizerConfig(optimizer="adam", lr=1e-3, bf16=True, params_dtype=torch.bfloat16,
                                  clip_grad=0.0, use_distributed_optimizer=False)
        self.optimizer = Float16OptimizerWithFloat16Params(inner, options, None, make_state)

    def train(self, steps, seed):
        data = torch.Generator().manual_seed(seed)
        losses = []
        for _ in range(steps):
            ids = torch.randint(0, 32, (2, 17), generator=data).cummax(1)[0]
            mask = torch.ones(1, 1, 16, 16).tril() < 0.5
            self.optimizer.zero_grad()
            loss = self.model(ids[:, :-1], torch.arange(16).repeat(2, 1), mask,
                              labels=ids[:, 1:]).float().mean()
            loss.backward()
            for p in self.model.parameters():
                p.main_grad = p.grad
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    def state(self, is_loading=False):
        rng = [{"random_rng_state": random.getstate(), "np_rng_state": np.random.get_state(),
                "torch_rng_state": torch.get_rng_state(), "cuda_rng_state": torch.get_rng_state(),
                "rng_tracker_states": {"model-parallel-rng": torch.get_rng_state()[:64].clone()}}]
        model = self.model.sharded_state_dict()
        state = {
            "args": argparse.Namespace(lr=1e-3, num_layers=1, bf16=True), "checkpoint_version": 3.0,
            "iteration": ITERATION, "num_floating_point_operations_so_far": 1e9,
            "model": model, "optimizer": self.optimizer.sharded_state_dict(model, is_loading),
            "opt_param_scheduler": {"max_lr": 1e-3, "num_steps": ITERATION},
            "rng_state": ShardedObject("rng_state", rng, *SHARD, replica_id=0),
        }
        # What TransformerEngine's layers have there: bytes, and in newer versions a tensor of them.
        for key, data in ("bytes", io.BytesIO(bytes(range(256)))), ("tensor", torch.arange(24).byte()):
            key = f"te.{key}._extra_state"
            state[key] = ShardedObject(key, data, (1,), (0,), replica_id=0)
        return state

    def load(self, folder):
        state = dist_checkpointing.load(self.state(is_loading=True), str(folder))
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state


def iteration_of(folder):
    name = (pathlib.Path(folder) / "latest_checkpointed_iteration.txt").read_text()
    return pathlib.Path(folder) / f"iter_{int(name):07}"


def save(folder):
    random.seed(1)
    np.random.seed(1)
    training = Training(0)
    print(training.train(ITERATION, 1))
    folder = pathlib.Path(folder)
    at = folder / f"iter_{ITERATION:07}"
    at.mkdir(parents=True)
    dist_checkpointing.save(training.state(), str(at))
    (folder / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))


def compare(a, b, at=""):
    """The largest relative error of tensors; anything else must be equal."""
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), at
        if not a.is_floating_point():
            assert torch.equal(a, b), at
            return 0.0
        return ((a.double() - b.double()).norm() / a.double().norm().clamp_min(1e-30)).item()
    assert type(a) is type(b), at
    if isinstance(a, dict):
        assert a.keys() == b.keys(), at
        return max((compare(a[k], b[k], f"{at}.{k}") for k in a), default=0.0)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b), at
        return max((compare(x, y, f"{at}.{i}") for i, (x, y) in enumerate(zip(a, b))), default=0.0)
    if isinstance(a, np.ndarray):
        assert np.array_equal(a, b), at
    elif isinstance(a, io.BytesIO):
        assert a.getvalue() == b.getvalue(), at
    else:
        assert a == b, at
    return 0.0


def load(original, copies):
    first = Training(2)
    want = first.load(iteration_of(original))
    before = [p.detach().clone() for p in first.model.parameters()]
    losses = first.train(8, 5)
    print(f"{original}: loads, {sum(map(torch.numel, before))} parameters, losses {losses[0]} to {losses[-1]}")
    want = Training(3).load(iteration_of(original))
    for copy in copies:
        training = Training(4)
        found = training.load(iteration_of(copy))
        error = compare(want, found)
        off = max(abs(a - b) for a, b in zip(losses, training.train(8, 5)))
        print(f"{copy}: loads, largest relative error of a tensor {error:.2g}, all else equal; "
              f"8 steps later losses differ by at most {off:.2g}")


if __name__ == "__main__":      # saving starts processes that import this file
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    tensor_parallel.get_cuda_rng_tracker().fork = lambda *a: contextlib.nullcontext()
    if sys.argv[1] == "save":
        save(sys.argv[2])
    else:
        load(sys.argv[2], sys.argv[3:])
    torch.distributed.destroy_process_group()
