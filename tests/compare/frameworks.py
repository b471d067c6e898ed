#!/usr/bin/env python3
"""Checkpoints of frameworks, freshly made: through the oracle, and trained on with what came back.

    frameworks.py [--only REGEX] [-o TABLE.md] [--jobs N] [--seconds N] [--minutes N]
                                        with a Python that has the frameworks; TERSOR names the program

Every recipe trains something tiny, and saves it as the framework does.  tests/roundtrip.py takes the directory.
Then it is packed and unpacked by default, and the framework goes on from the original and from what came back:
the table has the largest difference of the losses.  A framework that is not installed is left out, by name.
"""
import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import types

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))
TERSOR = os.path.abspath(os.environ.get("TERSOR", "build/tersor"))
RECIPES = {}
UNFORKED = ("megatron-core",)       # asks CUDA for its state, which a process that was forked may not


def recipe(library, what, *more):
    """A function that saves into a directory and returns resume(directory) -> losses, or None."""
    def add(function):
        name = f"{library}: {what}"
        RECIPES[name] = (library, lambda d: function(d, *more))
        return function
    return add


def variants(library, pairs):
    def add(function):
        for what, value in pairs:
            RECIPES[f"{library}: {what}"] = (library, lambda d, v=value: function(d, v))
        return function
    return add


# --- What several recipes use -----------------------------------------------------------------------------------

def batch(step, n=16, width=16):
    import torch
    g = torch.Generator().manual_seed(1000 + step)
    return torch.randn(n, width, generator=g)


def tokens(step, n=4, length=24, words=64):
    import torch
    g = torch.Generator().manual_seed(2000 + step)
    start = torch.randint(0, words, (n, 1), generator=g)
    return (start + 3 * torch.arange(length)) % words


def gpt(width=32, words=64, layers=2):
    import torch
    nn = torch.nn
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
            self.ln_2, self.fc, self.proj = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            h = self.ln_1(x)
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
            return x + self.proj(nn.functional.gelu(self.fc(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.h = nn.Embedding(words, width), nn.ModuleList(Block() for _ in range(layers))
            self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.lm_head.weight = self.wte.weight

        def forward(self, x):
            y = self.wte(x[:, :-1])
            for block in self.h:
                y = block(y)
            y = self.lm_head(self.ln_f(y))
            return nn.functional.cross_entropy(y.float().reshape(-1, words), x[:, 1:].reshape(-1))

    return GPT()


def steps(model, optimizer, loss, first, n):
    losses = []
    for i in range(first, first + n):
        optimizer.zero_grad()
        value = loss(model, i)
        value.backward()
        optimizer.step()
        losses.append(float(value))
    return losses


def trained(d, build, loss, optimizer=None, save=None, load=None):
    """Train, save and resume with a loop of PyTorch."""
    import torch
    make = optimizer or (lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3))
    save = save or (lambda m, o, d: torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "step": 12}, d / "checkpoint.pt"))

    def default_load(m, o, d):
        saved = torch.load(d / "checkpoint.pt", weights_only=False)
        m.load_state_dict(saved["model"])
        o.load_state_dict(saved["optimizer"])

    torch.manual_seed(0)
    m = build()
    o = make(m)
    steps(m, o, loss, 0, 12)
    save(m, o, d)

    def resume(d):
        torch.manual_seed(0)
        m = build()
        o = make(m)
        (load or default_load)(m, o, d)
        torch.manual_seed(5)
        return steps(m, o, loss, 12, 8)
    return resume


def of_gpt(m, step):
    return m(tokens(step))


def of_output(m, step, shape=(4, 3, 32, 32)):
    import torch
    g = torch.Generator().manual_seed(step)
    y = m(torch.randn(shape, generator=g))
    y = y[0] if isinstance(y, (tuple, list)) else getattr(y, "sample", y)
    return (y - 1).square().mean()


# --- PyTorch itself ---------------------------------------------------------------------------------------------

@recipe("torch", "loop as in nanoGPT")
def nano(d):
    import torch

    def save(m, o, d):
        torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "model_args": {"n_layer": 2, "bias": False},
                    "iter_num": 12, "best_val_loss": torch.tensor(3.5), "config": {"lr": 1e-3, "betas": (0.9, 0.95)}},
                   d / "checkpoint.pt")

    def groups(m):
        decay = [p for p in m.parameters() if p.dim() >= 2]
        return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": [p for p in m.parameters() if p.dim() < 2],
                                                                          "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.95))
    return trained(d, gpt, of_gpt, groups, save)


@recipe("torch", "channels_last, fused AdamW")
def channels(d):
    import torch
    nn = torch.nn

    def build():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.AdaptiveAvgPool2d(1),
                             nn.Flatten(), nn.Linear(16, 8)).to(memory_format=torch.channels_last)
    return trained(d, build, of_output, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, fused=True))


@recipe("torch", "AMP scaler, scheduler, EMA, RNG")
def amp(d):
    import random
    import numpy
    import torch

    def save(m, o, d):
        ema = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(o, 100)
        torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "ema": ema.state_dict(),
                    "scaler": torch.amp.GradScaler("cpu").state_dict(), "scheduler": schedule.state_dict(),
                    "rng": {"torch": torch.get_rng_state(), "numpy": numpy.random.get_state(), "python": random.getstate()}},
                   d / "checkpoint.pt")
    return trained(d, gpt, of_gpt, None, save)


@recipe("torch", "DistributedDataParallel, ZeroRedundancyOptimizer")
def redundancy(d):
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    alone()

    def build():
        return torch.nn.parallel.DistributedDataParallel(gpt())

    def save(m, o, d):
        o.consolidate_state_dict()
        torch.save({"model": m.state_dict(), "optimizer": o.state_dict()}, d / "checkpoint.pt")
    return trained(d, build, of_gpt, lambda m: ZeroRedundancyOptimizer(m.parameters(), torch.optim.AdamW, lr=1e-3), save)


def alone():
    import torch.distributed as dist
    if not dist.is_initialized():
        meeting = tempfile.mktemp(prefix="frameworks-meeting-")
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)


@recipe("torch", "distributed.checkpoint")
def dcp(d):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def save(m, o, d):
        model, optimizer = get_state_dict(m, o)
        dcp.save({"model": model, "optim": optimizer, "step": 12, "args": {"lr": 1e-3, "names": ["a", "b"]}}, checkpoint_id=d / "dcp")

    def load(m, o, d):
        model, optimizer = get_state_dict(m, o)
        state = {"model": model, "optim": optimizer}
        dcp.load(state, checkpoint_id=d / "dcp")
        set_state_dict(m, o, model_state_dict=state["model"], optim_state_dict=state["optim"])
    return trained(d, gpt, of_gpt, None, save, load)


RANKS = """
import sys, os, json, pathlib, torch, torch.distributed as dist
sys.path.insert(0, {here!r})
import frameworks
os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"] = sys.argv[1], "2", sys.argv[1]
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", sys.argv[4]
losses = getattr(frameworks, sys.argv[2])(sys.argv[3], sys.argv[5:])
if sys.argv[1] == "0":
    print("LOSSES", json.dumps(losses), flush=True)
os._exit(0)
"""


def two_ranks(function, *args):
    """A function of this module on two ranks of gloo; what rank 0 returns."""
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, "-c", RANKS.format(here=str(HERE.parent)), str(r), function, str(args[0]), str(port),
                               *map(str, args[1:])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in (0, 1)]
    outs = [r.communicate() for r in ranks]
    found = re.search("^LOSSES (.*)$", outs[0][0], re.M)
    if not found:
        lines = [x for x in (outs[0][1] or outs[1][1]).splitlines() if "Error" in x or "Exception" in x]
        raise RuntimeError((lines or ["a rank died"])[-1])
    return json.loads(found[1])


def fsdp2_run(d, args):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard
    what, way = args
    dist.init_process_group("gloo")
    m, d, rank = gpt(), pathlib.Path(d), dist.get_rank()
    for block in m.h:
        fully_shard(block)
    fully_shard(m)
    o = torch.optim.AdamW(m.parameters(), lr=1e-3)
    files = {n: d / f"{n}_world_size_2_rank_{rank}.pt" for n in ("model", "optim", "extra_state")}
    if what == "make":
        steps(m, o, of_gpt, 0, 12)
        if way == "dcp":
            model, optimizer = get_state_dict(m, o)
            dcp.save({"model": model, "optim": optimizer}, checkpoint_id=d / "step-12")
        else:
            torch.save(m.state_dict(), files["model"])
            torch.save(o.state_dict(), files["optim"])
            torch.save({"lr_scheduler": {"last_epoch": 12}, "rng": {"cpu": torch.get_rng_state()}}, files["extra_state"])
        dist.barrier()
        return []
    if way == "dcp":
        model, optimizer = get_state_dict(m, o)
        state = {"model": model, "optim": optimizer}
        dcp.load(state, checkpoint_id=d / "step-12")
        set_state_dict(m, o, model_state_dict=state["model"], optim_state_dict=state["optim"])
    else:
        m.load_state_dict(torch.load(files["model"], weights_only=False))
        o.load_state_dict(torch.load(files["optim"], weights_only=False))
    losses = steps(m, o, of_gpt, 12, 8)
    dist.barrier()
    return losses


@variants("torch", [("FSDP2 on 2 ranks, distributed.checkpoint", "dcp"), ("FSDP2 on 2 ranks, a file per rank as verl saves", "files")])
def fsdp2(d, way):
    two_ranks("fsdp2_run", d, "make", way)
    return lambda d: two_ranks("fsdp2_run", d, "resume", way)


# --- DeepSpeed, Megatron ----------------------------------------------------------------------------------------

def deepspeed_run(d, args):
    import torch
    import deepspeed
    what, stage = args
    deepspeed.init_distributed("gloo")
    m = gpt()
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": int(stage)}, "bf16": {"enabled": stage != "1"},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}, "steps_per_print": 1000}
    engine, *_ = deepspeed.initialize(model=m, model_parameters=m.parameters(), config=config)

    def run(first, n):
        losses = []
        for i in range(first, first + n):
            loss = engine(tokens(i))
            engine.backward(loss)
            engine.step()
            losses.append(float(loss))
        return losses
    if what == "make":
        run(0, 12)
        engine.save_checkpoint(d, tag="global_step12", client_state={"epoch": 3})
        torch.distributed.barrier()
        return []
    engine.load_checkpoint(d)
    losses = run(12, 8)
    torch.distributed.barrier()
    return losses


@variants("deepspeed", [(f"ZeRO-{i} on 2 ranks", i) for i in (1, 2, 3)])
def deepspeed_(d, stage):
    two_ranks("deepspeed_run", d, "make", stage)
    return lambda d: two_ranks("deepspeed_run", d, "resume", stage)


@recipe("megatron-core", "torch_dist")
def megatron(d):
    import torch
    torch.cuda.synchronize, torch.cuda.current_device = lambda *a: None, lambda: torch.device("cpu")
    from megatron.core import dist_checkpointing as mc, parallel_state
    from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
    alone()
    parallel_state.initialize_model_parallel()

    def sharded(m, o):
        state = {"model": {n: ShardedTensor.from_rank_offsets(f"model.{n}", p.data) for n, p in m.named_parameters()}}
        for i, (n, p) in enumerate(m.named_parameters()):
            for k in ("exp_avg", "exp_avg_sq"):
                at = o.state[p].setdefault(k, torch.zeros_like(p))
                state.setdefault("optimizer", {})[f"{n}.{k}"] = ShardedTensor.from_rank_offsets(f"optimizer.state.{k}.{n}", at)
        state["rng_state"] = ShardedObject("rng_state", [{"cpu": torch.get_rng_state()}], (1,), (0,))
        state.update(iteration=12, args=types.SimpleNamespace(lr=1e-3, layers=2), checkpoint_version=3.0)
        return state

    def save(m, o, d):
        (d / "iter_0000012").mkdir()
        mc.save(sharded(m, o), str(d / "iter_0000012"), ("torch_dist", 1))
        (d / "latest_checkpointed_iteration.txt").write_text("12")

    def load(m, o, d):
        o.step()
        back = mc.load(sharded(m, o), str(d / "iter_0000012"))
        m.load_state_dict(back["model"], strict=False)
        for n, p in m.named_parameters():
            o.state[p] = {"step": torch.tensor(12.), **{k: back["optimizer"][f"{n}.{k}"] for k in ("exp_avg", "exp_avg_sq")}}
        assert back["iteration"] == 12 and len(back["rng_state"]) == 1
    return trained(d, gpt, of_gpt, None, save, load)


# --- Hugging Face -----------------------------------------------------------------------------------------------

def llama(**more):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=160, num_hidden_layers=2,
                                        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, **more))


def of_llama(m, step):
    x = tokens(step)
    return m(input_ids=x, labels=x).loss


class Rows:
    def __len__(self):
        return 400

    def __getitem__(self, i):
        x = tokens(i, 1)[0]
        return {"input_ids": x, "labels": x}


@variants("transformers", [(f"Trainer, {o}", o) for o in (
    "adamw_torch_fused", "adamw_torch", "adafactor", "rmsprop", "adagrad", "sgd", "lion_32bit", "lion_8bit", "adamw_8bit",
    "ademamix_8bit", "paged_adamw_32bit", "schedule_free_adamw", "adamw_torch_8bit", "galore_adamw", "apollo_adamw")])
def trainer(d, optim):
    from transformers import Trainer, TrainingArguments

    def run(d, n, **more):
        low_rank = {"optim_target_modules": ["attn", "mlp"]} if re.match("galore|apollo", optim) else {}
        schedule = {"lr_scheduler_type": "constant"} if "schedule_free" in optim else {}
        args = TrainingArguments(output_dir=str(d), max_steps=20, per_device_train_batch_size=4, optim=optim, save_steps=12,
                                 logging_steps=1, report_to=[], use_cpu=True, learning_rate=1e-3, disable_tqdm=True, seed=1,
                                 **low_rank, **schedule)
        args.save_total_limit = 1
        t = Trainer(model=llama(), args=args, train_dataset=Rows())
        if n:
            from transformers import TrainerCallback

            class Stop(TrainerCallback):
                def on_step_end(self, args, state, control, **kwargs):
                    control.should_training_stop = state.global_step >= n
            t.add_callback(Stop())
        t.train(**more)
        return [x["loss"] for x in t.state.log_history if "loss" in x and x["step"] > 12]
    out = d.parent / "trainer"
    run(out, 12)
    (out / "checkpoint-12").rename(d / "checkpoint-12")
    if re.match("galore|apollo", optim):        # transformers itself does not resume from their objects
        return None
    return lambda d: run(d.parent / "resumed", 0, resume_from_checkpoint=str(d / "checkpoint-12"))


@recipe("transformers", "save_pretrained in shards, BF16")
def shards(d):
    import torch
    from transformers import LlamaForCausalLM
    m = llama().to(torch.bfloat16)
    m.save_pretrained(d, max_shard_size="20KB")

    def resume(d):
        m = LlamaForCausalLM.from_pretrained(d, dtype=torch.float32)
        return steps(m, torch.optim.AdamW(m.parameters()), of_llama, 0, 8)
    return resume


@recipe("accelerate", "save_state")
def accelerate_(d):
    import torch
    from accelerate import Accelerator

    def make():
        a = Accelerator(cpu=True)
        m = llama()
        o = torch.optim.AdamW(m.parameters(), lr=1e-3)
        s = torch.optim.lr_scheduler.LambdaLR(o, lambda i: 1 / (1 + i / 50))
        return a, *a.prepare(m, o, s)

    def run(a, m, o, s, first, n):
        losses = []
        for i in range(first, first + n):
            loss = of_llama(m, i)
            a.backward(loss)
            o.step()
            s.step()
            o.zero_grad()
            losses.append(float(loss))
        return losses
    a, m, o, s = make()
    run(a, m, o, s, 0, 12)
    a.save_state(str(d / "checkpoint_0"))

    def resume(d):
        a, m, o, s = make()
        a.load_state(str(d / "checkpoint_0"))
        return run(a, m, o, s, 12, 8)
    return resume


def lora(m):
    from peft import LoraConfig, get_peft_model
    return get_peft_model(m, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=True))


def adapter(d, base):
    import torch
    from peft import PeftModel

    def save(m, o, d):
        m.save_pretrained(d)
        torch.save(o.state_dict(), d / "optimizer.pt")
    torch.manual_seed(0)
    m = lora(base())
    make = lambda m: torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-3)          # noqa: E731
    o = make(m)
    steps(m, o, of_llama, 0, 12)
    save(m, o, d)

    def resume(d):
        m = PeftModel.from_pretrained(base(), d, is_trainable=True)
        o = make(m)
        o.load_state_dict(torch.load(d / "optimizer.pt", weights_only=True))
        return steps(m, o, of_llama, 12, 8)
    return resume


@recipe("peft", "LoRA adapter and optimizer")
def peft_lora(d):
    return adapter(d, llama)


def four_bit(folder):
    import torch
    from transformers import BitsAndBytesConfig, LlamaForCausalLM
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32))


@recipe("peft", "QLoRA: 4-bit base and adapter")
def qlora(d):
    from transformers import LlamaForCausalLM
    whole = d.parent / "whole"
    llama().save_pretrained(whole)
    four_bit(whole).save_pretrained(d / "base")
    (d / "adapter").mkdir()
    inner = adapter(d / "adapter", lambda: LlamaForCausalLM.from_pretrained(d / "base"))
    del inner

    def resume(d):
        import torch
        from peft import PeftModel
        m = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(d / "base"), d / "adapter", is_trainable=True)
        o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=1e-3)
        o.load_state_dict(torch.load(d / "adapter" / "optimizer.pt", weights_only=True))
        return steps(m, o, of_llama, 12, 8)
    return resume


@recipe("trl", "SFT of a LoRA model")
def trl(d):
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import SFTConfig, SFTTrainer
    words = {f"w{i}": i for i in range(60)} | {"<pad>": 60, "<eos>": 61, "<unk>": 62}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    rows = Dataset.from_dict({"text": [" ".join(f"w{int(x) % 60}" for x in tokens(i, 1)[0]) for i in range(200)]})

    def run(d, n, **more):
        class Stop(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                control.should_training_stop = state.global_step >= n
        t = SFTTrainer(model=lora(llama()), train_dataset=rows, processing_class=tokenizer, callbacks=[Stop()], args=SFTConfig(
            output_dir=str(d), max_steps=20, save_steps=12, logging_steps=1, report_to=[], use_cpu=True, bf16=False,
            per_device_train_batch_size=4, max_length=32, disable_tqdm=True))
        t.train(**more)
        return [x["loss"] for x in t.state.log_history if "loss" in x and x["step"] > 12]
    out = d.parent / "sft"
    run(out, 12)
    (out / "checkpoint-12").rename(d / "checkpoint-12")
    return lambda d: run(d.parent / "resumed", 20, resume_from_checkpoint=str(d / "checkpoint-12"))


@recipe("diffusers", "UNet with EMA")
def diffusers_(d):
    import torch
    from diffusers import UNet2DModel
    from diffusers.training_utils import EMAModel

    def build():
        torch.manual_seed(0)
        return UNet2DModel(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
                           down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))

    def loss(m, step):
        g = torch.Generator().manual_seed(step)
        x = torch.randn(2, 3, 16, 16, generator=g)
        return (m(x, torch.tensor([step, 2 * step])).sample - x).square().mean()

    def save(m, o, d):
        m.save_pretrained(d / "unet")
        ema = EMAModel(m.parameters(), model_cls=UNet2DModel, model_config=m.config)
        ema.step(m.parameters())
        ema.save_pretrained(d / "unet_ema")
        torch.save(o.state_dict(), d / "optimizer.bin")

    def load(m, o, d):
        m.load_state_dict(UNet2DModel.from_pretrained(d / "unet").state_dict())
        EMAModel.from_pretrained(d / "unet_ema", UNet2DModel)
        o.load_state_dict(torch.load(d / "optimizer.bin"))
    return trained(d, build, loss, None, save, load)


@recipe("sentence-transformers", "save")
def sentences(d):
    import torch
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast
    vocabulary = d.parent / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(59))]))
    base = d.parent / "bert"
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)).save_pretrained(base)
    BertTokenizerFast(vocab_file=str(vocabulary)).save_pretrained(base)
    word = models.Transformer(str(base))
    m = SentenceTransformer(modules=[word, models.Pooling(32), models.Dense(32, 16)], device="cpu")
    steps(m, torch.optim.AdamW(m.parameters(), lr=1e-3), of_sentences, 0, 8)
    m.save(str(d / "model"))

    def resume(d):
        m = SentenceTransformer(str(d / "model"), device="cpu")
        torch.manual_seed(1)
        return steps(m, torch.optim.AdamW(m.parameters(), lr=1e-3), of_sentences, 8, 8)
    return resume


def of_sentences(m, step):
    texts = [" ".join(f"w{int(x) % 59}" for x in row) for row in tokens(step, 4, 6)]
    return m(m.tokenize(texts))["sentence_embedding"].square().mean()


# --- Vision -----------------------------------------------------------------------------------------------------

@variants("timm", [("ResNet, channels_last, EMA", "test_resnet"), ("ViT, Lamb", "vit_tiny_patch16_224")])
def timm_(d, name):
    import timm
    import torch
    from timm.optim import create_optimizer_v2
    from timm.utils import CheckpointSaver, ModelEmaV3
    more = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2} if "vit" in name else {}

    def build():
        torch.manual_seed(0)
        return timm.create_model(name, num_classes=8, **more).to(memory_format=torch.channels_last)

    def save(m, o, d):
        CheckpointSaver(m, o, model_ema=ModelEmaV3(m), checkpoint_dir=str(d), args=argparse.Namespace(model=name)).save_checkpoint(1, 0.5)
        for link in ("model_best.pth.tar",):
            (d / link).unlink(missing_ok=True)

    def load(m, o, d):
        saved = torch.load(next(d.glob("checkpoint*.tar")), weights_only=False)
        m.load_state_dict(saved["state_dict"])
        o.load_state_dict(saved["optimizer"])
    return trained(d, build, of_output, lambda m: create_optimizer_v2(m, opt="lamb" if "vit" in name else "adamw", lr=1e-3), save, load)


@recipe("open_clip_torch", "CLIP")
def clip(d):
    import open_clip
    import torch

    def build():
        torch.manual_seed(0)
        return open_clip.CLIP(32, {"layers": 1, "width": 32, "image_size": 32, "patch_size": 8, "head_width": 16},
                              {"context_length": 24, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1})

    def loss(m, step):
        g = torch.Generator().manual_seed(step)
        image, text, scale = m(torch.randn(4, 3, 32, 32, generator=g), tokens(step))[:3]
        return torch.nn.functional.cross_entropy(scale * image @ text.T, torch.arange(4))

    def save(m, o, d):
        torch.save({"epoch": 1, "name": "x", "state_dict": m.state_dict(), "optimizer": o.state_dict()}, d / "epoch_1.pt")

    def load(m, o, d):
        saved = torch.load(d / "epoch_1.pt", weights_only=True)
        m.load_state_dict(saved["state_dict"])
        o.load_state_dict(saved["optimizer"])
    return trained(d, build, loss, None, save, load)


@recipe("segmentation-models-pytorch", "Unet, save_pretrained")
def segmentation(d):
    import segmentation_models_pytorch as smp
    import torch

    def build():
        torch.manual_seed(0)
        return smp.Unet("resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(16, 8, 8), classes=2)

    def save(m, o, d):
        m.save_pretrained(d / "model")
        torch.save(o.state_dict(), d / "optimizer.pt")

    def load(m, o, d):
        m.load_state_dict(smp.from_pretrained(d / "model").state_dict())
        o.load_state_dict(torch.load(d / "optimizer.pt"))
    return trained(d, build, of_output, None, save, load)


@recipe("monai", "UNet")
def monai_(d):
    import torch
    from monai.networks.nets import UNet

    def build():
        torch.manual_seed(0)
        return UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2)).to(memory_format=torch.channels_last_3d)
    return trained(d, build, lambda m, i: of_output(m, i, (2, 1, 16, 16, 16)), lambda m: torch.optim.NAdam(m.parameters()))


@recipe("torchvision", "MobileNet, SGD with momentum")
def torchvision_(d):
    import torch
    import torchvision

    def build():
        torch.manual_seed(0)
        return torchvision.models.mobilenet_v3_small(num_classes=8, width_mult=0.5)
    return trained(d, build, of_output, lambda m: torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9, nesterov=True))


# --- Trainers ---------------------------------------------------------------------------------------------------

@recipe("lightning", "Trainer")
def lightning_(d):
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = gpt(), []
            self.save_hyperparameters({"lr": 1e-3})

        def training_step(self, x, i):
            loss = self.net(x)
            self.losses.append(float(loss))
            return loss

        def configure_optimizers(self):
            o = torch.optim.AdamW(self.parameters(), lr=1e-3)
            return [o], [torch.optim.lr_scheduler.StepLR(o, 4)]

    def run(n, **more):
        m = Module()
        t = lightning.Trainer(max_steps=n, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                              enable_model_summary=False, default_root_dir=d.parent, devices=1)
        t.fit(m, torch.utils.data.DataLoader([tokens(i, 1)[0] for i in range(128)], batch_size=4), **more)
        return t, m.losses
    t, _ = run(12)
    t.save_checkpoint(d / "epoch=0-step=12.ckpt")
    return lambda d: run(20, ckpt_path=str(d / "epoch=0-step=12.ckpt"), weights_only=False)[1]


@recipe("lightning", "Fabric")
def fabric(d):
    import torch
    from lightning.fabric import Fabric
    f = Fabric(accelerator="cpu", devices=1)

    def save(m, o, d):
        f.save(d / "state.ckpt", {"model": m, "optimizer": o, "iter": 12})

    def load(m, o, d):
        f.load(d / "state.ckpt", {"model": m, "optimizer": o, "iter": 0}, weights_only=False)
    return trained(d, gpt, of_gpt, lambda m: torch.optim.Adam(m.parameters(), amsgrad=True), save, load)


@recipe("litgpt", "GPT")
def litgpt_(d):
    import torch
    from litgpt import GPT, Config

    def build():
        torch.manual_seed(0)
        return GPT(Config(block_size=32, vocab_size=64, padded_vocab_size=64, n_layer=2, n_head=4, n_embd=32, intermediate_size=64))

    def loss(m, step):
        x = tokens(step)
        y = m(x[:, :-1])
        return torch.nn.functional.cross_entropy(y.reshape(-1, y.shape[-1]), x[:, 1:].reshape(-1))

    def save(m, o, d):
        torch.save({"model": m.state_dict(), "optimizer": o.state_dict(), "iter_num": 12, "step_count": 12}, d / "lit_model.pth")

    def load(m, o, d):
        saved = torch.load(d / "lit_model.pth")
        m.load_state_dict(saved["model"])
        o.load_state_dict(saved["optimizer"])
    return trained(d, build, loss, None, save, load)


@recipe("fastai", "Learner.save")
def fastai_(d):
    import torch
    from fastai.learner import Learner
    from fastai.data.core import DataLoaders
    from fastai.losses import MSELossFlat
    x = batch(0, 128)
    rows = torch.utils.data.TensorDataset(x, x[:, :4].contiguous())

    def make(d):
        torch.manual_seed(0)
        loader = torch.utils.data.DataLoader(rows, batch_size=16)
        from fastai.data.load import DataLoader
        loader = DataLoader(rows, bs=16, num_workers=0)
        net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        return Learner(DataLoaders(loader, loader), net, loss_func=MSELossFlat(), path=d, model_dir=".")
    with quiet():
        learner = make(d)
        learner.fit(2)
        learner.save("learner")

    def resume(d):
        with quiet():
            learner = make(d)
            learner.load("learner")
            learner.fit(1)
        return [float(v) for v in learner.recorder.losses]
    return resume


@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@recipe("pytorch-ignite", "Checkpoint")
def ignite_(d):
    import torch
    from ignite.engine import Engine
    from ignite.handlers import Checkpoint, DiskSaver

    def save(m, o, d):
        engine = Engine(lambda e, b: None)
        engine.run([0], max_epochs=1)
        Checkpoint({"model": m, "optimizer": o, "trainer": engine}, DiskSaver(str(d), require_empty=False), n_saved=1)(engine)

    def load(m, o, d):
        Checkpoint.load_objects({"model": m, "optimizer": o}, torch.load(next(d.glob("*.pt")), weights_only=False))
    return trained(d, gpt, of_gpt, lambda m: torch.optim.RAdam(m.parameters(), lr=1e-3), save, load)


@recipe("skorch", "save_params")
def skorch_(d):
    import numpy
    import skorch
    import torch
    x = batch(0, 64).numpy()
    y = (x[:, :1] * 2).astype(numpy.float32)

    def make():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        return skorch.NeuralNetRegressor(net, max_epochs=6, optimizer=torch.optim.Adam, verbose=0, train_split=None, iterator_train__shuffle=False,
                                         warm_start=True)
    n = make().fit(x, y)
    files = {"f_params": "params.pt", "f_optimizer": "optimizer.pt", "f_history": "history.json"}
    n.save_params(**{k: str(d / v) for k, v in files.items()})

    def resume(d):
        n = make().initialize()
        n.load_params(**{k: str(d / v) for k, v in files.items()})
        n.partial_fit(x, y)
        return [r["train_loss"] for r in n.history][-6:]
    return resume


# --- Others -----------------------------------------------------------------------------------------------------

@variants("stable-baselines3", [("PPO, the zip", False), ("PPO, its members", True)])
def baselines(d, members):
    import zipfile
    import gymnasium
    import torch
    from stable_baselines3 import PPO

    def environment():
        return gymnasium.make("CartPole-v1")
    m = PPO("MlpPolicy", environment(), n_steps=32, batch_size=16, seed=1, device="cpu", policy_kwargs={"net_arch": [16]})
    m.learn(64)
    m.save(d / "ppo.zip")
    if members:
        with zipfile.ZipFile(d / "ppo.zip") as z:
            z.extractall(d)
        (d / "ppo.zip").unlink()

    def resume(d):
        if members:
            with zipfile.ZipFile(d.parent / f"{d.name}.zip", "w") as z:
                for p in d.iterdir():
                    z.write(p, p.name)
        m = PPO.load(d.parent / f"{d.name}.zip" if members else d / "ppo.zip", device="cpu")
        torch.manual_seed(1)
        x = torch.rand(64, 4)
        values, logs, _ = m.policy.evaluate_actions(x, torch.zeros(64))
        loss = values.mean() - logs.mean()
        loss.backward()
        m.policy.optimizer.step()
        after = m.policy.evaluate_actions(x, torch.zeros(64))
        return [float(loss), float(after[0].mean() - after[1].mean())]
    return resume


@variants("torchao", [("AdamW8bit", "AdamW8bit"), ("AdamWFp8", "AdamWFp8"), ("AdamW4bit", "AdamW4bit")])
def torchao_(d, name):
    import torch
    import torchao.optim

    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
    return trained(d, build, lambda m, i: (m(batch(i)) - 1).square().mean(), lambda m: getattr(torchao.optim, name)(m.parameters(), lr=1e-3))


@recipe("torchao", "int8 weights")
def torchao_weights(d):
    import torch
    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    quantize_(m, Int8WeightOnlyConfig())
    torch.save(m.state_dict(), d / "model.pt")

    def resume(d):
        n = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        n.load_state_dict(torch.load(d / "model.pt", weights_only=False), assign=True)
        return [float(n(batch(i, 4, 64)).square().mean()) for i in range(8)]
    return resume


@variants("bitsandbytes", [(n, n) for n in ("AdamW8bit", "Lion8bit", "AdEMAMix8bit", "PagedAdamW32bit", "RMSprop8bit")])
def bitsandbytes_(d, name):
    import bitsandbytes
    import torch

    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
    more = {} if "32" in name else {"min_8bit_size": 256}
    return trained(d, build, lambda m, i: (m(batch(i)) - 1).square().mean(), lambda m: getattr(bitsandbytes.optim, name)(m.parameters(), lr=1e-3, **more))


@variants("flax", [("optax AdamW, safetensors", "safetensors"), ("optax Lion, npz", "npz")])
def flax_(d, container):
    import flax.traverse_util as traverse
    import jax
    import numpy
    import optax
    from flax import linen
    from safetensors.numpy import load_file, save_file

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(8)(linen.tanh(linen.LayerNorm()(linen.Dense(64)(x))))
    net = Net()
    tx = optax.adamw(1e-3) if container == "safetensors" else optax.lion(1e-4)
    params = net.init(jax.random.PRNGKey(0), batch(0).numpy())
    state = tx.init(params)

    def run(params, state, first, n):
        losses = []
        for i in range(first, first + n):
            loss, g = jax.value_and_grad(lambda p, i=i: ((net.apply(p, batch(i).numpy()) - 1) ** 2).mean())(params)
            updates, state = tx.update(g, state, params)
            params = optax.apply_updates(params, updates)
            losses.append(float(loss))
        return params, state, losses
    params, state, _ = run(params, state, 0, 12)

    def flat(params, state):
        tree = {"params": params["params"], "opt_state": jax.tree_util.tree_map(numpy.asarray, flax_state(state))}
        return {k: numpy.asarray(v) for k, v in traverse.flatten_dict(tree, sep=".").items()}

    def flax_state(state):
        from flax.serialization import to_state_dict
        return to_state_dict(state)
    arrays = {k: v for k, v in flat(params, state).items() if hasattr(v, "dtype") and v.dtype != object}
    if container == "npz":
        numpy.savez(d / "state.npz", **arrays)
    else:
        save_file(arrays, d / "state.safetensors")

    def resume(d):
        from flax.serialization import from_state_dict
        back = dict(numpy.load(d / "state.npz")) if container == "npz" else load_file(d / "state.safetensors")
        tree = traverse.unflatten_dict(traverse.flatten_dict(back, sep=None) if False else {tuple(k.split(".")): v for k, v in back.items()})
        whole = flax_state(state)
        new = from_state_dict(state, merged(whole, tree["opt_state"]))
        return run({"params": tree["params"]}, new, 12, 8)[2]
    return resume


def merged(whole, part):
    if not isinstance(whole, dict):
        return part
    return {k: merged(v, part[k]) if k in part else v for k, v in whole.items()}


@recipe("keras", "model.save and weights")
def keras_(d):
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy
    keras.utils.set_random_seed(0)

    def data(i):
        x = batch(i, 64).numpy()
        return x, x[:, :2] * 2
    m = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(2)])
    m.compile("adam", "mse")
    m.fit(*data(0), epochs=3, verbose=0, shuffle=False)
    m.save(d / "model.keras")
    numpy.savez(d / "weights.npz", **{f"{i}.{v.path.replace('/', '.')}": numpy.asarray(v.value.detach()) for i, v in enumerate(m.weights)})

    def resume(d):
        m = keras.models.load_model(d / "model.keras")
        with numpy.load(d / "weights.npz") as z:
            m.set_weights([z[k] for k in sorted(z.files, key=lambda k: int(k.split(".")[0]))])
        return m.fit(*data(1), epochs=3, verbose=0, shuffle=False).history["loss"]
    return resume


def module_recipe(library, what, make, loss, optimizer=None):
    def run(d):
        return trained(d, make, loss, optimizer)
    RECIPES[f"{library}: {what}"] = (library, run)


def of_x_transformer():
    import torch
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
    torch.manual_seed(0)
    return AutoregressiveWrapper(TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True)))


def of_graph():
    import torch
    from torch_geometric.nn import GCN
    torch.manual_seed(0)
    return GCN(16, 32, 2, 4)


def graph_loss(m, step):
    import torch
    g = torch.Generator().manual_seed(step)
    return (m(batch(step), torch.randint(0, 16, (2, 40), generator=g)) - 1).square().mean()


def of_gp():
    import gpytorch
    import torch

    class GP(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            x = batch(0, 24)
            super().__init__(x, x[:, 0], likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=16))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
    torch.manual_seed(0)
    return GP(gpytorch.likelihoods.GaussianLikelihood())


def gp_loss(m, step):
    import gpytorch
    m.train()
    x = batch(0, 24)
    return -gpytorch.mlls.ExactMarginalLogLikelihood(m.likelihood, m)(m(x), x[:, 0])


def of_ema():
    from ema_pytorch import EMA
    m = gpt()
    m.ema = [EMA(m, beta=0.9, update_every=1)]
    return m


def of_rl():
    import torch
    from torchrl.modules import MLP
    torch.manual_seed(0)
    return MLP(in_features=16, out_features=4, num_cells=[64, 64])


def plain_loss(m, step):
    return (m(batch(step)) - 1).square().mean()


def tune():
    import torch
    from torchtune.models.llama3 import llama3
    torch.manual_seed(0)
    return llama3(vocab_size=64, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=32, max_seq_len=64)


def tune_loss(m, step):
    import torch
    x = tokens(step)
    y = m(x[:, :-1])
    return torch.nn.functional.cross_entropy(y.reshape(-1, 64), x[:, 1:].reshape(-1))


module_recipe("x-transformers", "decoder", of_x_transformer, lambda m, i: m(tokens(i)))
module_recipe("torch-geometric", "GCN", of_graph, graph_loss)
module_recipe("gpytorch", "exact GP", of_gp, gp_loss)
module_recipe("torchrl", "MLP", of_rl, plain_loss)
module_recipe("torchtune", "Llama 3", tune, tune_loss)


@recipe("tensordict", "memory-mapped and saved")
def tensordict_(d):
    import torch
    from tensordict import TensorDict
    torch.manual_seed(0)
    net = torch.nn.Linear(16, 64)
    td = TensorDict.from_module(net).data.clone()
    torch.save(td.to_dict(), d / "as_dict.pt")
    torch.save(td, d / "tensordict.pt")
    td.memmap(str(d / "memmap"))

    def resume(d):
        a = torch.load(d / "as_dict.pt", weights_only=False)
        b = torch.load(d / "tensordict.pt", weights_only=False)
        c = TensorDict.load_memmap(d / "memmap")
        return [float(x["weight"].square().mean()) for x in (a, b, c)]
    return resume


@recipe("optimum-quanto", "int8 weights")
def quanto(d):
    import torch
    from optimum.quanto import freeze, qint8, quantize, quantization_map, requantize
    from safetensors.torch import load_file, save_file

    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    m = build()
    quantize(m, weights=qint8)
    freeze(m)
    save_file(m.state_dict(), d / "model.safetensors")
    (d / "quantization_map.json").write_text(json.dumps(quantization_map(m)))

    def resume(d):
        n = build()
        requantize(n, load_file(d / "model.safetensors"), json.loads((d / "quantization_map.json").read_text()), device=torch.device("cpu"))
        return [float(n(batch(i, 4, 64)).square().mean()) for i in range(8)]
    return resume


@recipe("compressed-tensors", "FP8 weights")
def compressed(d):
    import torch
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from safetensors.torch import save_file
    torch.manual_seed(0)
    m = llama()
    config = QuantizationConfig(config_groups={"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "symmetric": True,
                                                                                             "strategy": "channel"}}}, ignore=["lm_head"])
    apply_quantization_config(m, config)
    for module in m.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data = module.weight.abs().amax(1, keepdim=True) / 448
    ModelCompressor(quantization_config=config).compress_model(m)
    save_file({k: v.contiguous().clone() for k, v in m.state_dict().items()}, d / "model.safetensors", {"format": "pt"})
    (d / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "quantization_config": config.model_dump(mode="json")}))


@recipe("orbax-checkpoint", "PyTree")
def orbax(d):
    import numpy
    import orbax.checkpoint as ocp
    tree = {"params": {"w": numpy.arange(4096, dtype=numpy.float32).reshape(64, 64)}, "step": 3}
    with ocp.PyTreeCheckpointer() as c:
        c.save(str(d / "orbax"), tree)

    def resume(d):
        with ocp.PyTreeCheckpointer() as c:
            return [float(c.restore(str(d / "orbax"))["params"]["w"].mean())]
    return resume


# --- One recipe, in a process of its own ------------------------------------------------------------------------

def one(name):
    """A line of JSON for the table."""
    import roundtrip
    library, run = RECIPES[name]
    with tempfile.TemporaryDirectory(prefix="frameworks-") as work:
        work = pathlib.Path(work)
        source, back = work / "in", work / "out"
        source.mkdir()
        with contextlib.redirect_stdout(sys.stderr):
            resume = run(source)
        report = roundtrip.Report(quiet=True)
        with contextlib.redirect_stdout(sys.stderr):
            roundtrip.roundtrip(source, TERSOR, report)
        row = {"same": report.counts["same"], "refused": report.counts["refused"],
               "wrong": [f"{what}: {said}".replace(str(work), "") for _, what, said in report.faults]}
        tersor = lambda *a: subprocess.run([TERSOR, *map(str, a)], check=True, capture_output=True, text=True)   # noqa: E731
        tersor("pack", source, "-o", work / "packed", "--json", work / "report.json")
        tersor("unpack", work / "packed", "-o", back)
        packed = json.loads((work / "report.json").read_text())
        row.update(packed=packed["packed"], copied=packed["copied"], before=packed["nbytes"], after=packed["stored_nbytes"])
        if resume:
            with contextlib.redirect_stdout(sys.stderr):
                a, b = resume(source), resume(back)
            assert len(a) == len(b) and a, "resumed runs have other lengths"
            row["difference"] = max(abs(x - y) for x, y in zip(a, b))
            row["finite"] = all(map(math.isfinite, a))
    return row


def version_of(name):
    try:
        return importlib.metadata.version(RECIPES[name][0])
    except importlib.metadata.PackageNotFoundError:
        return None


class Child:
    """A recipe in a process that has the imports of this one."""

    def __init__(self, name, seconds):
        self.name, self.seconds, self.end = name, seconds, time.monotonic() + seconds
        self.log, self.result = tempfile.NamedTemporaryFile("r", errors="replace"), tempfile.NamedTemporaryFile("r")
        if RECIPES[name][0] in UNFORKED:
            command = [sys.executable, HERE, "--one", name, self.log.name, self.result.name]
            self.pid = subprocess.Popen(command, start_new_session=True).pid
            return
        self.pid = os.fork()
        if self.pid == 0:
            in_child(name, self.log.name, self.result.name)

    def row(self):
        """None while it runs."""
        if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() < self.end:
                return None
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return {"absent": f"took more than {self.seconds} s"}
        said = self.result.read()
        if said:
            return {**json.loads(said), "version": version_of(self.name)}
        lines = [x for x in self.log.read().splitlines() if x.strip() and "leaked" not in x]
        return {"absent": (lines or ["died"])[-1][:160]}


def run_all(names, jobs, seconds, last):
    """(name, row) of each, as they end."""
    todo, running = list(names), []
    while todo or running:
        while todo and len(running) < jobs:
            name = todo.pop(0)
            if version_of(name) is None:
                yield name, {"absent": f"{RECIPES[name][0]} is not installed"}
            elif time.monotonic() > last:
                yield name, {"absent": "was not reached in time"}
            else:
                running.append(Child(name, seconds))
        for child in list(running):
            row = child.row()
            if row:
                running.remove(child)
                yield child.name, row
        time.sleep(0.1)


def in_child(name, log, result):
    try:
        if os.getpgid(0) != os.getpid():
            os.setpgid(0, 0)
        fd = os.open(log, os.O_WRONLY)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        row = one(name)
        pathlib.Path(result).write_text(json.dumps(row))
    except BaseException:
        import traceback
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def preload():
    """What most recipes import: once, for all of them."""
    for module in ("torch", "torch.distributed.checkpoint", "roundtrip", "transformers", "transformers.trainer", "accelerate", "peft",
                   "transformers.models.llama.modeling_llama"):
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def table(rows):
    lines = ["| framework | what | packed | copied | size | checked | loss difference | |", "|---|---|---|---|---|---|---|---|"]
    for name, r in rows:
        library, _, what = name.partition(": ")
        if "absent" not in r:
            size = f"{100 * r['after'] / r['before']:.0f}%"
            difference = f"{r['difference']:.1e}" if "difference" in r else "-"
            said = f"**{r['wrong'][0][:150]}** ({len(r['wrong'])})".replace("|", "/") if r["wrong"] else "same"
            lines.append(f"| {library} {r['version']} | {what} | {r['packed']} | {r['copied']} | {size} | {r['same']} | {difference} | {said} |")
    absent = [f"- {name}: {r['absent']}" for name, r in rows if "absent" in r]
    return "\n".join(lines + (["", "Not tried here:", "", *absent] if absent else []))


def main():
    if sys.argv[1:2] == ["--one"]:
        in_child(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="")
    p.add_argument("-o", default="/dev/stdout")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--seconds", type=int, default=600, help="for one recipe")
    p.add_argument("--minutes", type=float, default=1e6, help="for all of them; the rest is named")
    args = p.parse_args()
    last = time.monotonic() + 60 * args.minutes
    preload()
    names = [n for n in RECIPES if re.search(args.only, n)]
    rows = []
    for name, row in run_all(names, args.jobs, args.seconds, last):
        print(name, json.dumps(row)[:600], file=sys.stderr, flush=True)
        rows.append((name, row))
        rows.sort(key=lambda r: names.index(r[0]))
        if args.o != "/dev/stdout":
            pathlib.Path(args.o).write_text(table(rows) + "\n")
    if args.o == "/dev/stdout":
        print(table(rows))
    return 1 if any(r.get("wrong") for _, r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
