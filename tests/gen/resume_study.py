#!/usr/bin/env python3
"""Does a run that resumes from a packed checkpoint train as before?  The figures of docs/resume.md.

    resume_study.py TEXT.xz OUT --tersor TERSOR [--optimizer adamw|lion] [--beta2 X] [--seed N...]

A GPT of 33.9 M parameters (8 layers of 512, context 512, separate embedding and head, a byte-pair vocabulary
of 8,192 learned from the text) is trained on TEXT, which documentation_text.py makes: 1,500 steps of 16,384
tokens, learning rate 1e-3 (Lion: 1e-4) after 100 steps, by a cosine to a tenth, decay 0.1, clipped at 1,
weights in FP32, arithmetic in BF16.  After one third and two thirds of the steps the whole state is written as
safetensors, packed and unpacked by tersor in one of the forms below, read back, and trained on.  The part before
the first third is trained once for all forms of a seed; the batches are the same for all, but for "other data".

OUT/losses.csv has the training loss of every tenth step and the loss on held-out text every hundredth;
OUT/resumes.csv has the largest step of the 20 after each resume, as the root mean square and the largest
element of the change of all weights over the learning rate.  Rows are appended, so seeds can be run one by one.
Needs torch, numpy, tokenizers and safetensors; a GPU.
"""
import argparse
import lzma
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import gpt

VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS, BATCH = 8192, 512, 512, 8, 8, 32
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HELD_OUT = 64 * (CONTEXT + 1)
PACKED = {"FlashOptim's form": ["--compat", "flashoptim"], "tersor": [], "tight": ["--state", "tight"],
          "coat": ["--state", "coat"], "bitsandbytes": ["--state", "bitsandbytes"]}
TWENTY = "tersor, 20 times"
WEIGHTS = "BF16 weights alone"
FORMS = ["control", "control again", "other data", *PACKED, TWENTY, WEIGHTS]


def tokens(text, folder):
    cached = folder / "tokens.npy"
    if cached.exists():
        return np.load(cached)
    paragraphs = lzma.open(text, "rt", encoding="utf-8").read().split("\n\n")
    lines = ["\n\n".join(paragraphs[i:i + 50]) + "\n\n" for i in range(0, len(paragraphs), 50)]
    ids = gpt.tokens(lines, lines[::8], VOCABULARY)
    np.random.default_rng(1).shuffle(ids)
    np.save(cached, np.concatenate(ids))
    return np.load(cached)


class Lion(torch.optim.Optimizer):
    """Chen and others, 2023, algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                self.state[p].setdefault("exp_avg", torch.zeros_like(p))
            grads, momenta = [p.grad for p in params], [self.state[p]["exp_avg"] for p in params]
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
            signs = torch._foreach_sign(torch._foreach_lerp(grads, momenta, b1))
            torch._foreach_add_(params, signs, alpha=-group["lr"])
            torch._foreach_lerp_(momenta, grads, 1 - b2)


class Run:
    """One model on the GPU, whose state is set to that of one run after another."""

    def __init__(self, args, data):
        self.args, self.data, self.model = args, data, gpt.GPT(VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS).to(DEVICE)
        self.compiled = torch.compile(self.model) if DEVICE == "cuda" else self.model
        self.offsets = torch.arange(CONTEXT + 1, device=DEVICE)
        self.held_out = data[:HELD_OUT].view(64, CONTEXT + 1).long()
        self.scratch = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.fresh_optimizer()

    def fresh_optimizer(self):
        kind = {"lr": 0.0, "weight_decay": 0.1}
        if self.args.optimizer == "lion":
            self.optimizer = Lion(self.model.parameters(), betas=(0.9, 0.99), **kind)
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), betas=(0.9, self.args.beta2), eps=1e-8,
                                               fused=DEVICE == "cuda", **kind)

    def lr(self, step):
        peak = 1e-4 if self.args.optimizer == "lion" else 1e-3
        return peak * min(1, step / 100) * (0.55 + 0.45 * math.cos(math.pi * step / self.args.steps))

    def state(self):
        """{name: tensor}, the tensors themselves, and the count of steps."""
        arrays, count = {}, 0
        for name, p in self.model.named_parameters():
            arrays[name] = p.data
            for key, value in self.optimizer.state[p].items():
                if key == "step":
                    count = int(value)
                else:
                    arrays[f"{name}.{key}"] = value
        return arrays, count

    def copy(self):
        arrays, count = self.state()
        return {name: a.clone() for name, a in arrays.items()}, count

    def set(self, arrays, count):
        self.fresh_optimizer()
        for name, p in self.model.named_parameters():
            p.data.copy_(arrays[name])
            for key in "exp_avg", "exp_avg_sq":
                if f"{name}.{key}" in arrays:
                    self.optimizer.state[p][key] = arrays[f"{name}.{key}"].to(DEVICE).clone()
            if self.args.optimizer == "adamw" and self.optimizer.state[p]:
                self.optimizer.state[p]["step"] = torch.tensor(float(count), device=DEVICE)

    def through(self, options):
        """The state through files: packed and unpacked."""
        folder = pathlib.Path(self.scratch.name)
        arrays, count = self.state()
        save_file({name: a.cpu() for name, a in arrays.items()}, folder / "state.safetensors")
        for words in (["pack", "state.safetensors", "-o", "packed.safetensors", *options],
                      ["unpack", "packed.safetensors", "-o", "state.safetensors"]):
            subprocess.run([self.args.tersor, *words, "-f", "-qq"], cwd=folder, check=True)
        self.set(load_file(folder / "state.safetensors"), count)

    def resume(self, form):
        if form in PACKED or form == TWENTY:
            self.through(PACKED.get(form, []))
        elif form == WEIGHTS:
            for p in self.model.parameters():
                p.data.copy_(p.data.bfloat16())
            self.fresh_optimizer()

    @torch.no_grad()
    def validate(self):
        losses = []
        for part in self.held_out.split(BATCH):
            with torch.autocast(DEVICE, torch.bfloat16):
                losses.append(self.compiled(part[:, :-1].contiguous(), part[:, 1:].contiguous()))
        return torch.stack(losses).mean().item()

    def step(self, step, seed):
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr(step)
        rng = np.random.default_rng([seed, step])
        at = torch.from_numpy(rng.integers(HELD_OUT, len(self.data) - CONTEXT - 1, (BATCH, 1))).to(DEVICE)
        batch = self.data[at + self.offsets].long()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = self.compiled(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def train(self, form, seed, first, last, out):
        args, third = self.args, self.args.steps // 3
        resumes = {third, 2 * third} if form != TWENTY else \
            {third + i * 2 * third // 20 for i in range(20)}
        data_seed = seed + 1000 if form == "other data" else seed
        watched, before = range(0), None
        for step in range(first + 1, last + 1):
            if step - 1 in resumes and first:
                self.resume(form)
                if step - 1 in (third, 2 * third):
                    watched, largest = range(step, step + 20), [0.0, 0.0]
            if step in watched:
                before = [p.data.clone() for p in self.model.parameters()]
            loss = self.step(step, data_seed)
            if step in watched:
                change = torch.cat([(p.data - b).view(-1) for p, b in zip(self.model.parameters(), before)])
                change /= self.lr(step)
                largest = [max(largest[0], change.square().mean().sqrt().item()),
                           max(largest[1], change.abs().max().item())]
                if step == watched[-1]:
                    out.resume(form, seed, watched[0] - 1, *largest)
            if step % 10 == 0:
                out.loss(form, seed, step, loss.item(), self.validate() if step % 100 == 0 else None)


class Tables:
    def __init__(self, folder, args):
        beta2 = args.beta2 if args.optimizer == "adamw" else 0.99
        self.run = f"{args.optimizer},{beta2},{args.steps}"
        self.files = [self.table(folder / "losses.csv", "optimizer,beta2,steps,seed,form,step,training,held_out"),
                      self.table(folder / "resumes.csv", "optimizer,beta2,steps,seed,form,after,rms_over_lr,max_over_lr")]

    def table(self, path, head):
        file = path.open("a", buffering=1)
        if not file.tell():
            print(head, file=file)
        return file

    def loss(self, form, seed, step, training, held_out):
        held_out = "" if held_out is None else f"{held_out:.5f}"
        print(f'{self.run},{seed},"{form}",{step},{training:.5f},{held_out}', file=self.files[0])

    def resume(self, form, seed, after, rms, largest):
        print(f'{self.run},{seed},"{form}",{after},{rms:.5f},{largest:.4f}', file=self.files[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tersor", type=lambda p: str(pathlib.Path(p).resolve()), required=True)
    parser.add_argument("--optimizer", choices=["adamw", "lion"], default="adamw")
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--form", nargs="+", choices=FORMS, default=FORMS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    data = torch.from_numpy(tokens(args.text, args.out).astype(np.int32)).to(DEVICE)
    run, out, third = Run(args, data), Tables(args.out, args), args.steps // 3
    print(f"{sum(p.numel() for p in run.model.parameters())} parameters, {len(data)} tokens", flush=True)
    for seed in args.seed:
        torch.manual_seed(seed)
        run.model.start()
        run.fresh_optimizer()
        began = time.monotonic()
        run.train("before", seed, 0, third, out)
        start = run.copy()
        for form in args.form:
            run.set(*start)
            run.train(form, seed, third, args.steps, out)
            print(f"seed {seed} {form}: {run.validate():.4f}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
