#!/usr/bin/env python3
"""A GPT of 110 M parameters, trained on a GPU on text that every machine has: its full state for measurements.

    train_gpt.py OUT [--steps N] [--beta2 X] [--save STEP...]

The text is the source and documentation of Python's packages on the machine, in tokens of a byte-pair
encoding of 16,384 entries that is learned from it.  The model has 12 layers of 768, 512 tokens of context and
separate embedding and head.  AdamW (beta1 0.9, eps 1e-8, weight decay 0.1), learning rate 6e-4 to 6e-5 by a
cosine, 32,768 tokens a step, weights in FP32 and arithmetic in BF16.  At each step of --save
(default: the last), OUT/state-<step>.safetensors has <name>, <name>.exp_avg and <name>.exp_avg_sq in FP32.
The same seed does not give the same bits on another GPU; docs/internals/performance.md says what was measured on which.
Needs torch, numpy, tokenizers and safetensors.
"""
import argparse
import math
import pathlib
import site
import sys
import sysconfig
import time

import numpy as np
import torch
from safetensors.torch import save_file

import gpt

VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS, BATCH = 16384, 512, 768, 12, 12, 64
TEXT_BYTES = 160_000_000


def texts():
    """Python and reStructuredText files in a fixed order, until they are enough."""
    left = TEXT_BYTES
    for root in [sysconfig.get_paths()["stdlib"], *site.getsitepackages()]:
        for path in sorted(pathlib.Path(root).rglob("*")):
            if path.suffix in (".py", ".rst", ".md", ".txt", ".pyi") and path.is_file() and left > 0:
                text = path.read_text("utf-8", "ignore")[:200_000]
                left -= len(text)
                yield text


def tokens(folder):
    cached = folder / "tokens.npy"
    if cached.exists():
        return np.load(cached)
    all_texts = list(texts())
    ids = np.concatenate(gpt.tokens(all_texts, all_texts[::4], VOCABULARY))
    np.save(cached, ids)
    return ids


def save(model, optimizer, path):
    arrays = {}
    for name, p in model.named_parameters():
        state = optimizer.state[p]
        arrays[name] = p.detach().float().cpu().contiguous()
        for moment in "exp_avg", "exp_avg_sq":
            arrays[f"{name}.{moment}"] = state[moment].detach().float().cpu().contiguous()
    save_file(arrays, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--save", type=int, nargs="*", default=[])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    data = torch.from_numpy(tokens(args.out).astype(np.int32)).cuda()
    model = gpt.GPT(VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, args.beta2), eps=1e-8,
                                  weight_decay=0.1, fused=True)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count} parameters, {len(data)} tokens, beta2 {args.beta2}", flush=True)
    compiled, began = torch.compile(model), time.monotonic()
    offsets = torch.arange(CONTEXT + 1, device="cuda")
    for step in range(1, args.steps + 1):
        lr = 6e-5 + 0.5 * 5.4e-4 * (1 + math.cos(math.pi * step / args.steps))
        lr *= min(1, step / 100)
        for group in optimizer.param_groups:
            group["lr"] = lr
        at = torch.randint(len(data) - CONTEXT - 1, (BATCH, 1), device="cuda")
        batch = data[at + offsets].long()
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 200 == 0 or step == 1:
            print(f"step {step} lr {lr:.2e} loss {loss.item():.3f} {time.monotonic() - began:.0f} s", flush=True)
        if step in (args.save or [args.steps]):
            save(model, optimizer, args.out / f"state-{step}.safetensors")


if __name__ == "__main__":
    sys.exit(main())
