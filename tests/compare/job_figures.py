#!/usr/bin/env python3
"""The figures of a training job in docs/internals/performance.md, and replays of 200 recorded steps.

    TERSOR=build/tersor job_figures.py [saves] [steps] [replays] [--parameters N] [--folder DIR]

On the first GPU, or on the CPU without one; the table is of 998,731,776 parameters on a GPU, which is the default
there.  DIR is where files go: on tmpfs, so that no disk is measured (/dev/shm).  Prints what was measured.

saves    what holds up training and how long the rest takes: DCP with cached pinned memory, TersorWriter,
         async_save, also with entropy coding
steps    a GPT's steps with an async_save every 20 and without, by turns
replays  for each order of operations, the share of elements that a replay of 200 steps gives bit for bit
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

from jobs import PROGRAM    # sets the paths of the package, the program and the library
import torch
import torch.distributed.checkpoint as dcp

import tersor.torch
from tersor.dcp import TersorWriter
from tersor.planes import HOST
from tersor.record import GradientRecorder

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gen"))
import gpt      # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def synchronize():
    """Wait for the stream that trains: copies on others run while it goes on."""
    if CUDA:
        torch.cuda.current_stream().synchronize()


def timed(work):
    """Seconds that a call takes, with all that is queued before and by it, and its result."""
    synchronize()
    begun = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - begun, result


def available():
    """Bytes of host memory that are free, pinned ones included."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


# ---- Saves ----------------------------------------------------------------------------------------------

def state_of(parameters):
    """A model of square layers and biases with Adam's moments, all FP32."""
    width = 2048 if parameters > 1 << 26 else 256      # with 10^9 parameters 1,428 tensors, as a GPT has
    layers = max(1, parameters // (width * width + width))
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, device=DEVICE) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for p in model.parameters():
        optimizer.state[p] = {"step": torch.tensor(3.0), "exp_avg": torch.randn_like(p) * 1e-3,
                              "exp_avg_sq": torch.rand_like(p) * 1e-6}
    return model, optimizer


def saves(args):
    model, optimizer = state_of(args.parameters)
    n = sum(p.numel() for p in model.parameters())
    print(f"saves: {n:,} parameters, {12 * n / 1e9:.2f} GB with Adam, into {args.folder}")
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()["state"]}
    theirs = dcp.FileSystemWriter(f"{args.folder}/dcp", cache_staged_state_dict=CUDA)    # which pins
    ours = TersorWriter(f"{args.folder}/w")
    ways = {"DCP": lambda: dcp.async_save(state, storage_writer=theirs, no_dist=True),
            "TersorWriter": lambda: dcp.async_save(state, storage_writer=ours, async_stager=ours.stager, no_dist=True),
            "async_save": lambda: tersor.torch.async_save(f"{args.folder}/a", model, optimizer),
            "async_save, coded": lambda: tersor.torch.async_save(f"{args.folder}/a", model, optimizer, entropy=True),
            "torch.save": lambda: torch.save(state, f"{args.folder}/pt")}
    for name, way in ways.items():
        HOST.idle.clear()
        getattr(torch._C, "_host_emptyCache", lambda: None)()
        free, blocked, behind = available(), [], []
        for _ in range(4):
            seconds, future = timed(way)
            blocked.append(seconds)
            behind.append(timed(future.result)[0] if future else 0)
            for each in os.listdir(args.folder):
                path = os.path.join(args.folder, each)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        print(f"  {name}: blocked {blocked[0]:.3f} s first, later {min(blocked[1:]):.3f} to {max(blocked[1:]):.3f} s; "
              f"behind {min(behind):.2f} to {max(behind):.2f} s; host memory {(free - available()) / 1e9:.2f} GB more",
              flush=True)


# ---- Steps ----------------------------------------------------------------------------------------------

def steps(args):
    for sequences in (8, 64) if CUDA else (8,):     # a step that waits for the CPU to start its kernels, and one of the GPU
        steps_of(args, sequences)


def steps_of(args, sequences):
    torch.manual_seed(1)
    sizes = (8192, 256, 512, 10, 8) if CUDA else (512, 64, 128, 2, 4)       # 33.6 M parameters, or 0.5 M
    model = gpt.GPT(*sizes).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = torch.randint(sizes[0], (sequences, sizes[1] + 1), device=DEVICE)

    def hundred(every):
        saved = None
        for step in range(1, 101):
            optimizer.zero_grad()
            model(rows[:, :-1], rows[:, 1:]).backward()
            optimizer.step()
            if every and step % every == 0:
                saved = tersor.torch.async_save(f"{args.folder}/step-{{step}}", model, optimizer, step=step,
                                                keep_last=1)
        return saved
    hundred(0)
    hundred(20)
    pairs = []
    for _ in range(9 if sequences == 8 else 3):
        alone, (beside, saved) = timed(lambda: hundred(0))[0], timed(lambda: hundred(20))
        pairs.append((alone, beside))
        saved.result()
    without, beside = (10 * statistics.median(each) for each in zip(*pairs))
    n = sum(p.numel() for p in model.parameters())
    print(f"steps: a GPT of {n:,} parameters, {sequences} sequences: {without:.2f} ms a step, with a save every 20 {beside:.2f} ms, "
          f"{100 * beside / without - 100:.1f}% more (medians of {len(pairs)} pairs of 100 steps)")


# ---- Replays --------------------------------------------------------------------------------------------

ADAM, ADAMW, SGD = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD
ORDERS = {"AdamW fused": (ADAMW, {"fused": True}),
          "AdamW fused, beta2 0.95": (ADAMW, {"fused": True, "betas": (0.9, 0.95)}),
          "AdamW fused, maximize": (ADAMW, {"fused": True, "maximize": True}),
          "Adam fused, L2": (ADAM, {"fused": True, "weight_decay": 0.01}), "AdamW": (ADAMW, {}),
          "AdamW for-loop": (ADAMW, {"foreach": False}), "Adam, L2": (ADAM, {"weight_decay": 0.01}),
          "SGD, Nesterov": (SGD, {"momentum": 0.9, "nesterov": True}),
          "SGD fused": (SGD, {"fused": True, "momentum": 0.9})}
ORDERS |= {"AdamW fused, AMSGrad": (ADAMW, {"fused": True, "amsgrad": True}),
           "Adam fused, L2, AMSGrad": (ADAM, {"fused": True, "weight_decay": 0.01, "amsgrad": True}),
           "Adam fused, L2, maximize": (ADAM, {"fused": True, "weight_decay": 0.01, "maximize": True}),
           "AdamW, AMSGrad": (ADAMW, {"amsgrad": True}),
           "AdamW for-loop, lr a tensor": (ADAMW, {"foreach": False, "lr": torch.tensor(1e-2)})}
if CUDA:
    ORDERS |= {"AdamW capturable": (ADAMW, {"capturable": True}),
               "AdamW capturable, lr a tensor": (ADAMW, {"capturable": True, "lr": torch.tensor(1e-2, device="cuda")}),
               "AdamW capturable for-loop": (ADAMW, {"capturable": True, "foreach": False}),
               "Adam capturable, L2, AMSGrad": (ADAM, {"capturable": True, "weight_decay": 0.01, "amsgrad": True})}


def replayed(folder, kind, options):
    """{kind of tensor: share of equal elements} after 200 steps."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(67, 129), torch.nn.Tanh(), torch.nn.Linear(129, 33), torch.nn.Tanh(),
                                torch.nn.Linear(33, 1)).to(DEVICE)
    optimizer = kind(model.parameters(), **{"lr": 1e-2, **options})

    def train(n):
        for _ in range(n):
            optimizer.zero_grad()
            x = torch.randn(16, 67, device=DEVICE)
            (model(x) - x.sum(1, keepdim=True).sin()).square().mean().backward()
            optimizer.step()

    def save(name):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/{name}.pt")
    train(5)
    save("start")
    recorder = GradientRecorder(f"{folder}/recording", optimizer, model.named_parameters(), first_step=6)
    train(200)
    recorder.close()
    save("end")
    subprocess.run([PROGRAM, "replay", f"{folder}/start.pt", f"{folder}/recording", "-o", f"{folder}/replayed.pt",
                    "--to", "pt", "--state", "fp32", "-qq"], check=True)
    equal, counted = {}, {}
    with tersor.open(f"{folder}/end.pt") as end, tersor.open(f"{folder}/replayed.pt") as ours:
        for name, t in end.items():
            kind = "x" if name.endswith("max_exp_avg_sq") else "v" if name.endswith("_sq") else \
                "m" if name.endswith(("exp_avg", "momentum_buffer")) else "w"
            if t.shape:
                equal[kind] = equal.get(kind, 0) + int((t[:].view("i4") == ours[name][:].view("i4")).sum())
                counted[kind] = counted.get(kind, 0) + t[:].size
    return {kind: 100 * equal[kind] / n for kind, n in counted.items()}


def replays(args):
    print(f"replays: elements that are equal bit for bit after 200 steps on {DEVICE}")
    for name, (kind, options) in ORDERS.items():
        with tempfile.TemporaryDirectory(prefix="tersor-replays-") as folder:
            found = replayed(folder, kind, options)
        print(f"  {name}: " + ", ".join(f"{kind} {share:.5f}%" for kind, share in sorted(found.items())), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[[], "saves", "steps", "replays"])
    parser.add_argument("--parameters", type=int, default=998_731_776 if CUDA else 29_400_000)
    parser.add_argument("--folder", default="/dev/shm")
    args = parser.parse_args()
    args.folder = tempfile.mkdtemp(prefix="tersor-figures-", dir=args.folder)
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if CUDA else f'{os.cpu_count()} processors'}")
    try:
        for name in args.what or ("saves", "steps", "replays"):
            globals()[name](args)
    finally:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
