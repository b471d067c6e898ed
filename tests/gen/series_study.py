#!/usr/bin/env python3
"""A run's checkpoints in stores of each tier: the tables of docs/resume.md.

A GPT of 34.9 M parameters is trained on Python sources with AdamW for 1,000 steps, saved from step 300 on after
every 100, then at a learning rate of 1e-6 eight times after 40 more.  Each tier has a store of its own.  Prints per
seed and tier the bytes per parameter of a snapshot beyond the first, its errors, and the held-out loss after 200 steps
from the last snapshot of the first series; the same of what ExCP and Check-N-Run do to these states, written anew
from their papers.  Needs PyTorch and a GPU; five minutes on an H100 for a seed.
"""
import argparse
import json
import subprocess
import tempfile

import torch
import torch.nn.functional as F

import low_rate_study as study

study.LAYERS, STEPS, EVERY, FIRST, RESUMED = 11, 1000, 100, 300, 200
study.STEPS = STEPS
LOW_TIMES, LOW_EACH = 8, 40
TIERS = ["exact", "1e-3", "1e-2", "trace"]


def fresh(seed, beta2):
    torch.manual_seed(seed)
    model = study.Model().cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=study.RATE, betas=(0.9, beta2), weight_decay=0.1)


@torch.no_grad()
def held_out(model, data):
    total = 0
    for k in range(60):
        seeded = torch.Generator(device="cuda").manual_seed(10**6 + k)
        starts = torch.randint(0, len(data) - study.LENGTH - 1, (study.BATCH,), generator=seeded, device="cuda")
        x = data[starts[:, None] + torch.arange(study.LENGTH + 1, device="cuda")].long()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x[:, :-1])
        total += F.cross_entropy(logits.float().reshape(-1, 256), x[:, 1:].reshape(-1)).item()
    return total / 60


class Stores:
    """One per tier; `add` returns the report."""

    def __init__(self, tersor, folder):
        self.tersor, self.folder = tersor, folder

    def run(self, *args):
        return json.loads(subprocess.run([self.tersor, "store", *args, "--json=-", "-q"], check=True,
                                         capture_output=True, text=True).stdout)

    def add(self, tier, path, step):
        return self.run("add", f"{self.folder}/{tier}.store", path, "--step", str(step), "--tier", tier)

    def get(self, tier, step):
        self.run("get", f"{self.folder}/{tier}.store", str(step), "-o", f"{self.folder}/back.pt", "-f")
        return f"{self.folder}/back.pt"


def state(model, optimizer):
    """Weights, momenta and variances by name."""
    return {name: (p.detach().clone(), optimizer.state[p]["exp_avg"].clone(), optimizer.state[p]["exp_avg_sq"].clone())
            for name, p in model.named_parameters()}


def entropy(symbols):
    p = torch.bincount(symbols.flatten() - symbols.min()).double()
    p = p[p > 0] / symbols.numel()
    return float(-(p * p.log2()).sum()) * symbols.numel()


def clusters(x, keep, n=15):
    """ExCP: 0 for what is pruned, else the mean of one of @n clusters, here between quantiles."""
    kept = x[keep]
    if kept.numel() < n:
        return torch.where(keep, x, 0), 0.0
    some = kept[torch.randint(0, kept.numel(), (min(kept.numel(), 200_000),), device=x.device)]
    edges = torch.quantile(some, torch.linspace(0, 1, n + 1, device=x.device)[1:-1])
    index = torch.bucketize(kept, edges)
    sums = torch.zeros(n, device=x.device).scatter_add_(0, index, kept)
    means = sums / torch.bincount(index, minlength=n).clamp_min(1)
    out, symbols = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.long)
    out[keep], symbols[keep] = means[index], index + 1
    return out, entropy(symbols)


def excp(w, m, v, old):
    """Li et al., arXiv 2406.11257: residuals that are large beside weight and root of the variance, here 5%."""
    moved = w - old
    score = moved.abs() * v.sqrt()
    some = score.flatten()[torch.randint(0, score.numel(), (min(score.numel(), 200_000),), device=w.device)]
    keep = score > torch.quantile(some, 0.95)
    parts = [clusters(x, keep) for x in (moved, m, v)]
    return old + parts[0][0], parts[1][0], parts[2][0], sum(p[1] for p in parts)


def rows(x, bits):
    """Check-N-Run (Eisenman et al., NSDI 2022): rows quantized uniformly between their extremes."""
    z = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    low, high = z.amin(1, keepdim=True), z.amax(1, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp_min(1e-38)
    return (low + ((z - low) / step).round() * step).view_as(x), bits * x.numel() + 64 * z.shape[0]


def check_n_run(bits):
    def recipe(w, m, v, old):
        parts = [rows(x, bits) for x in (w - old, m, v)]
        return old + parts[0][0], parts[1][0], parts[2][0].clamp_min(0), sum(p[1] for p in parts)
    return recipe


PEERS = {"ExCP": excp, "Check-N-Run, 8 bits": check_n_run(8), "Check-N-Run, 4 bits": check_n_run(4)}


def sums(x):
    return float((x.double() ** 2).sum())


def peer(recipe, series):
    """The last state as it comes back from a closed loop over the series, its bytes per parameter and errors."""
    back = {name: x[0] for name, x in series[0].items()}
    for now in series[1:]:
        found, nbits, error, whole = {}, 0, [0.0] * 3, [0.0] * 3
        for name, (w, m, v) in now.items():
            old = back[name]
            x, y, z, bits = recipe(w, m, v, old)
            found[name] = x, y, z
            u, g = m / (v.sqrt() + 1e-8), y / (z.sqrt() + 1e-8)
            for i, (a, b) in enumerate([(x - w, w - old), (g - u, u), (z.sqrt() - v.sqrt(), v.sqrt())]):
                error[i], whole[i] = error[i] + sums(a), whole[i] + sums(b)
            nbits += bits
        back = {name: x[0] for name, x in found.items()}
    n = sum(x.numel() for x in back.values())
    return found, nbits / 8 / n, [e / a for e, a in zip(error, whole)]


def put(model, optimizer, found):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(found[name][0])
            optimizer.state[p]["exp_avg"].copy_(found[name][1])
            optimizer.state[p]["exp_avg_sq"].copy_(found[name][2])


def print_row(*cells):
    print("row\t" + "\t".join(f"{c:.6g}" if isinstance(c, float) else str(c) for c in cells), flush=True)


def resume(seed, beta2, data, tests, path, found=None, batches=0):
    model, optimizer = fresh(seed, beta2)
    study.load(model, optimizer, path)
    if found:
        put(model, optimizer, found)
    study.train(model, optimizer, data, STEPS + batches, RESUMED, lambda _: study.RATE / 10)
    return held_out(model, tests)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tersor", default="build/tersor")
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    args = parser.parse_args()
    data = study.text()
    data, tests = data[:len(data) * 98 // 100], data[len(data) * 98 // 100:]
    for seed in args.seed:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            one_seed(args, seed, data, tests, folder)


def one_seed(args, seed, data, tests, folder):
    stores, path, series = Stores(args.tersor, folder), f"{folder}/now.pt", []
    model, optimizer = fresh(seed, args.beta2)
    study.train(model, optimizer, data, 0, FIRST, study.cosine)
    n = sum(p.numel() for p in model.parameters())
    reports = {tier: [] for tier in TIERS}

    def save(step):
        study.save(model, optimizer, path)
        series.append(state(model, optimizer))
        for tier in TIERS:
            reports[tier].append(stores.add(tier, path, step))

    def tell(kind, tier):
        later = reports[tier][1:]
        errors = [later[-1]["errors"][k] for k in ("weight", "weight_ulps", "update", "variance")]
        print_row(kind, args.beta2, seed, tier, reports[tier][0]["new_nbytes"] / n,
                  sum(r["new_nbytes"] for r in later) / len(later) / n, *errors)

    for step in range(FIRST, STEPS + 1, EVERY):
        if step > FIRST:
            study.train(model, optimizer, data, step - EVERY, EVERY, study.cosine)
        save(step)
    control = resume(seed, args.beta2, data, tests, path)
    print_row("loss", args.beta2, seed, "control", control, 0.0)
    print_row("loss", args.beta2, seed, "repeat", control, resume(seed, args.beta2, data, tests, path) - control)
    other = resume(seed, args.beta2, data, tests, path, batches=5000)
    print_row("loss", args.beta2, seed, "other batches", control, other - control)
    for tier in TIERS:
        tell("series", tier)
        back = stores.get(tier, STEPS)
        print_row("loss", args.beta2, seed, tier, control, resume(seed, args.beta2, data, tests, back) - control)
    for name, recipe in PEERS.items():
        found, nbytes, errors = peer(recipe, series)
        print_row("series", args.beta2, seed, name, "", nbytes, errors[0], "", *errors[1:])
        print_row("loss", args.beta2, seed, name, control,
                  resume(seed, args.beta2, data, tests, path, found) - control)
    del series[:-1]
    for tier in TIERS:
        reports[tier] = reports[tier][-1:]
    for i in range(1, LOW_TIMES + 1):
        study.train(model, optimizer, data, 20_000 + i * LOW_EACH, LOW_EACH, lambda _: study.LOW)
        save(STEPS + i)
    moved = {name: x[0] - series[0][name][0] for name, x in series[-1].items()}
    for tier in TIERS:
        tell("low", tier)
        back = torch.load(stores.get(tier, STEPS + LOW_TIMES), map_location="cuda", weights_only=True)["model"]
        off = sum(sums(back[name] - x[0]) for name, x in series[-1].items())
        print_row("moved", args.beta2, seed, tier, (off / sum(sums(x) for x in moved.values())) ** 0.5)
    for name, recipe in PEERS.items():
        found, nbytes, errors = peer(recipe, series)
        print_row("low", args.beta2, seed, name, "", nbytes, errors[0], "", *errors[1:])
        off = sum(sums(found[k][0] - x[0]) for k, x in series[-1].items())
        print_row("moved", args.beta2, seed, name, (off / sum(sums(x) for x in moved.values())) ** 0.5)


if __name__ == "__main__":
    main()
