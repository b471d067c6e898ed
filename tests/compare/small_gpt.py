#!/usr/bin/env python3
"""A GPT of 10 M parameters, trained on the CPU for some minutes: the checkpoint of `make compare`.

    small_gpt.py OUT [--steps N]

The model is that of tests/gen/gpt.py (8 layers of 256, 128 tokens of context, 8,192 tokens), the text the
source of Python's standard library, AdamW (beta1 0.9, beta2 0.95, weight decay 0.1) at 1e-3.  OUT has <name>,
<name>.exp_avg and <name>.exp_avg_sq in FP32.  Needs torch, numpy, tokenizers and safetensors.
"""
import argparse
import pathlib
import sys
import sysconfig

import numpy as np
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gen"))
import gpt  # noqa: E402

VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS, BATCH = 8192, 128, 256, 8, 8, 4
TEXTS = 300


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:TEXTS]
    texts = [f.read_text("utf-8", "ignore") for f in files]
    ids = torch.from_numpy(np.concatenate(gpt.tokens(texts, texts[::4], VOCABULARY)).astype(np.int64))
    torch.manual_seed(1)
    model = gpt.GPT(VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(args.steps):
        at = torch.randint(len(ids) - CONTEXT - 1, (BATCH,))
        rows = torch.stack([ids[i:i + CONTEXT + 1] for i in at])
        loss = model(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{sum(p.numel() for p in model.parameters())} parameters, loss {loss.item():.3f}", file=sys.stderr)
    tensors = {}
    for name, p in model.named_parameters():
        tensors[name] = p.detach().contiguous()
        for moment in "exp_avg", "exp_avg_sq":
            tensors[f"{name}.{moment}"] = optimizer.state[p][moment].contiguous()
    save_file(tensors, args.out)


if __name__ == "__main__":
    sys.exit(main())
