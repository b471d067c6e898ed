#!/usr/bin/env python3
"""What packing does to a run at a low learning rate: the table of docs/resume.md, "Low learning rates".

A GPT of 25.6 M parameters is trained on Python sources for 600 steps with AdamW, then goes on for 320 steps at a
learning rate of 1e-6 and is packed and unpacked after every 40.  Prints how far each run's displacement over these
steps is from that of a run that was never packed.  Needs PyTorch and a GPU; three minutes on an H100.
"""
import argparse
import glob
import math
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 8, 512, 8, 256, 48
STEPS, RATE, LOW, TIMES, EACH = 600, 6e-4, 1e-6, 8, 40
FORMS = {"run repeated": None, "bf16+ulp8": [], "bf16+trunc10": ["--weights", "bf16+trunc10"],
         "bf16+rn10": ["--weights", "bf16+rn10"], "bf16+rn12": ["--weights", "bf16+rn12"],
         "bf16+ulp16": ["--weights", "bf16+ulp16"], "--auto 1e-4": ["--auto", "1e-4"]}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.f1, self.f2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text():
    """Bytes of the sources of PyTorch."""
    names = sorted(glob.glob(os.path.dirname(torch.__file__) + "/**/*.py", recursive=True))
    data = b"".join(open(name, "rb").read() for name in names)[:48_000_000]
    return torch.frombuffer(bytearray(data[:len(data) * 95 // 100]), dtype=torch.uint8).cuda()


def train(model, optimizer, data, first, n, rate):
    """@rate: of each step's number."""
    for step in range(first, first + n):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        seeded = torch.Generator(device="cuda").manual_seed(step)
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,), generator=seeded, device="cuda")
        x = data[starts[:, None] + torch.arange(LENGTH + 1, device="cuda")].long()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x[:, :-1])
        loss = F.cross_entropy(logits.float().reshape(-1, 256), x[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def cosine(step):
    return RATE * min(1, (step + 1) / 100) * (0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))


def fresh():
    torch.manual_seed(3)
    model = Model().cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)


def save(model, optimizer, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def load(model, optimizer, path):
    saved = torch.load(path, map_location="cuda", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


def displacement(data, start, folder, tersor, options):
    """Of each parameter, and the bytes per parameter of the last packed file; @options None: not packed."""
    model, optimizer = fresh()
    load(model, optimizer, start)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    nbytes = 0
    for i in range(TIMES):
        train(model, optimizer, data, 10_000 + i * EACH, EACH, lambda _: LOW)
        if options is None:
            continue
        save(model, optimizer, f"{folder}/now.pt")
        subprocess.run([tersor, "pack", f"{folder}/now.pt", "-fqqo", f"{folder}/packed", *options], check=True)
        subprocess.run([tersor, "unpack", f"{folder}/packed", "-fqqo", f"{folder}/back.pt"], check=True)
        load(model, optimizer, f"{folder}/back.pt")
        nbytes = os.path.getsize(f"{folder}/packed") / sum(p.numel() for p in model.parameters())
    return {name: p.detach() - before[name] for name, p in model.named_parameters()}, nbytes


def distance(moved, control, names):
    off = sum(((moved[n] - control[n]) ** 2).sum() for n in names)
    return (off / sum((control[n] ** 2).sum() for n in names)).sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tersor", default="build/tersor")
    args = parser.parse_args()
    data = text()
    with tempfile.TemporaryDirectory() as folder:
        model, optimizer = fresh()
        train(model, optimizer, data, 0, STEPS, cosine)
        start = f"{folder}/start.pt"
        save(model, optimizer, start)
        control, _ = displacement(data, start, folder, args.tersor, None)
        tables = ["tokens.weight", "places.weight"]
        columns = [list(control), tables, [n for n, x in control.items() if x.ndim == 2 and n not in tables],
                   [n for n, x in control.items() if x.ndim == 1]]
        print("| weights | B/param | all | embeddings | matrices | vectors |\n|---|---|---|---|---|---|")
        for name, options in FORMS.items():
            moved, nbytes = displacement(data, start, folder, args.tersor, options)
            figures = " | ".join(f"{100 * distance(moved, control, names):.3g}%" for names in columns)
            print(f"| {name} | {nbytes:.3f} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
