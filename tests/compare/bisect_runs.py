#!/usr/bin/env python3
"""Pairs of real runs that differ in one planted thing: does `tersor bisect` find it, and what does recording cost?

    TERSOR=build/tersor bisect_runs.py [--device cuda] [--small] [--steps N] [--folder DIR] [--with PYTHON] [--ranks N]

A GPT (33.7 M parameters; --small: 0.9 M) is trained on source text with fused AdamW, and signatures are recorded.
Prints a line per pair: what was planted at which step, and what bisect says; exits 1 if it says something else.
Then the time of a step without and with the recorder, by turns. --with is another Python, such as one with another
version of PyTorch, that records the same run again; --ranks has N processes, a GPU each, share its batches. Needs torch, and libtersor beside the program.
"""
import argparse
import importlib.machinery
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "packaging" / "wheel"), str(ROOT / "tests" / "gen")]
PROGRAM = os.path.abspath(os.environ.get("TERSOR", ROOT / "build" / "tersor"))
os.environ["TERSOR"] = PROGRAM
os.environ.setdefault("TERSOR_LIBRARY", os.path.join(os.path.dirname(PROGRAM), "libtersor.so"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")     # the same bits at every run

import torch                                                            # noqa: E402

try:
    import tokenizers                                                   # noqa: E402, F401
except ImportError:     # gpt.py has more in it than the model
    for missing in ("tokenizers", "tokenizers.models"):
        sys.modules[missing] = types.ModuleType(missing)
    sys.modules["tokenizers"].__spec__ = importlib.machinery.ModuleSpec("tokenizers", None)
    for part in ("Tokenizer", "models", "pre_tokenizers", "trainers"):
        setattr(sys.modules["tokenizers"], part, None)
import gpt                                                              # noqa: E402
from tersor.record import GradientRecorder                              # noqa: E402
from tersor.signatures import SignatureRecorder                         # noqa: E402

# Tokens are bytes; the rest of a larger vocabulary is there for the size of the embedding.
LARGE, SMALL = (8192, 256, 512, 8, 8, 16), (256, 64, 128, 4, 4, 4)  # vocabulary, context, width, layers, heads, batch
AT = 7                  # the step at which something is planted

# Name: what bisect has to say, at which step, and what is changed.
PAIRS = {
    "the same again": ("equal", None, {}), "another seed": ("loaded state", 0, {"seed": 2}),
    "other batches": ("gradient", 1, {"shift": 1}), f"two batches swapped, {AT}": ("gradient", AT, {"swap": AT}),
    f"one bit of a momentum, {AT}": ("optimizer", AT, {"flip": AT}), f"lr, {AT}": ("hyperparameters", AT, {"lr_at": AT}),
    "weight decay": ("hyperparameters", 1, {"decay": 0.2}), "foreach": ("optimizer", 1, {"fused": False}),
    f"TF32 on, {AT}": ("gradient", AT, {"tf32": AT}), "BF16 autocast": ("gradient", 1, {"autocast": True})}


class Run:
    def __init__(self, args, seed=1, shift=0, swap=None, flip=None, lr_at=None, decay=0.1, fused=True, tf32=None,
                 autocast=False):
        self.args, self.swap, self.flip, self.lr_at, self.tf32, self.autocast = args, swap, flip, lr_at, tf32, autocast
        vocabulary, self.context, width, layers, heads, self.batch = SMALL if args.small else LARGE
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.manual_seed(seed)
        self.model = gpt.GPT(vocabulary, self.context, width, layers, heads).to(args.device)
        try:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=decay,
                                               **({"fused": True} if fused else {"foreach": True}))
        except (RuntimeError, TypeError):   # no fused step here
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=decay)
        self.data, self.shift, self.step = text(args), shift, 0
        self.forward = self.model
        if torch.distributed.is_initialized():      # averages gradients
            self.forward = torch.nn.parallel.DistributedDataParallel(self.model)

    def take(self):
        self.step = step = self.step + 1
        if step == self.tf32:
            torch.backends.cuda.matmul.allow_tf32 = True
        if step == self.lr_at:
            self.optimizer.param_groups[0]["lr"] *= 1.01
        number = {self.swap: step + 1, (self.swap or -9) + 1: step - 1}.get(step, step) if self.swap else step
        chosen = torch.Generator().manual_seed(1000 * self.shift + number)
        at = torch.randint(len(self.data) - self.context - 1, (self.batch, 1), generator=chosen)
        rows = self.data[at + torch.arange(self.context + 1)].to(self.args.device, non_blocking=True)
        if torch.distributed.is_initialized():
            rows = rows.chunk(torch.distributed.get_world_size())[torch.distributed.get_rank()]
        with torch.autocast(self.args.device.split(":")[0], torch.bfloat16, enabled=self.autocast):
            loss = self.forward(rows[:, :-1], rows[:, 1:])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if step == self.flip:
            moment = self.optimizer.state[self.model.h[1].fc.weight]["exp_avg"]
            moment.view(-1)[12345:12346].view(torch.int32).bitwise_xor_(1 << 22)
        self.optimizer.step()


def text(args, kept=[]):
    if not kept:
        files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:100]
        kept.append(torch.tensor(list(b"".join(f.read_bytes() for f in files)), dtype=torch.int64))
    return kept[0]


def record(args, folder, options, gradients=False):
    run = Run(args, **options)
    names = list(run.model.named_parameters())
    recorders = [SignatureRecorder(folder, run.optimizer, names)]
    recorders += [GradientRecorder(folder, run.optimizer, names)] if gradients else []
    for _ in range(args.steps):
        run.take()
    for r in recorders:
        r.close()
    return sum(p.numel() for p in run.model.parameters())


def bisect(*args):
    done = subprocess.run([PROGRAM, "bisect", *map(str, args), "--json"], capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def compare(args, name, folder, expected=None, at=None):
    began = time.perf_counter()
    found = bisect(folder / "base", folder / name)
    taken = time.perf_counter() - began
    first = [t for t in found["tensors"] if t["differing"] and t["first_step"] == found["step"]]
    wrong = expected and (found["cause"] != expected or (at is not None and found["step"] != at))
    print(f"{name:28} {found['cause']:16} {found['step'] if found['step'] is not None else '':>5} {len(first):>8}  "
          f"{first[0]['name'] + ' ' + first[0]['of'] if first else '':40} {taken:6.2f}  {'WRONG' if wrong else ''}")
    for h in found["hyperparameters"]:
        print(f"    {h['name']}: {h['a']}, {h['b']}")
    return bool(wrong)


def time_steps(run, n):
    synchronize = torch.cuda.synchronize if run.args.device.startswith("cuda") else lambda: None
    synchronize()
    began = time.perf_counter()
    for _ in range(n):
        run.take()
    synchronize()
    return (time.perf_counter() - began) / n


def cost(args, folder, times=1):
    """By turns in one run, as a GPU's clock changes: with the recorder, and without it."""
    run, n = Run(args), 5 if args.small else 20
    run.batch *= times
    time_steps(run, n)
    taken = {False: [], True: []}
    for turn in range(10):
        for recorded in (False, True):
            if recorded:
                path = folder / f"timed-{times}-{turn}"
                recorder = SignatureRecorder(path, run.optimizer, run.model.named_parameters(), first_step=run.step + 1)
                time_steps(run, 3)      # the first step makes the buffers
            taken[recorded].append(time_steps(run, n))
            if recorded:
                recorder.close()
    without, using = (1000 * statistics.median(taken[r]) for r in (False, True))
    print(f"\na step of {run.batch} sequences: {without:.2f} ms without, {using:.2f} ms with signatures: "
          f"{100 * (using / without - 1):+.2f}%; turns {[round(100 * (b / a - 1), 2) for a, b in zip(*taken.values())]}%")
    if args.device.startswith("cuda"):
        gpu_time(run, folder / f"timed-{times}")
    print(f"a file: {(path / 'signatures.tsig').stat().st_size / (n + 4) / 1000:.1f} kB a step")


def gpu_time(run, folder):
    """What a step's signatures take on the GPU, and on the CPU to start them."""
    recorder = SignatureRecorder(folder, run.optimizer, run.model.named_parameters(), first_step=run.step + 1)
    time_steps(run, 3)
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000_000)       # so that the GPU does not wait for the CPU
    began = time.perf_counter()
    before.record()
    for hook in (recorder._before, recorder._after):
        hook(run.optimizer, (), {})
    after.record()
    started = time.perf_counter() - began
    torch.cuda.synchronize()
    print(f"of it {before.elapsed_time(after):.3f} ms on the GPU, {1000 * started:.2f} ms to start that on the CPU")
    recorder.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--with", dest="other")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--record", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if torch.cuda.is_available():
        torch.use_deterministic_algorithms(True)
    if args.record:
        if args.ranks:
            torch.distributed.init_process_group("nccl" if args.device.startswith("cuda") else "gloo")
            args.device += f":{torch.distributed.get_rank()}" if args.device == "cuda" else ""
        record(args, args.record, {})
        return 0
    folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="bisect-"))
    n = record(args, folder / "base", {}, gradients=args.small)
    print(f"{n:,} parameters, {args.steps} steps, PyTorch {torch.__version__}, {args.device}")
    print(f"\n{'planted, at step':28} {'found':16} {'step':>5} {'tensors':>8}  {'first':40} {'s':>6}")
    wrong = False
    for name, (expected, at, options) in PAIRS.items():
        if "TF32" in name and not args.device.startswith("cuda"):
            continue
        record(args, folder / name, options)
        # On a CPU fused and foreach may have the same bits, and BF16 may be missing.
        wrong |= compare(args, name, folder, expected if name != "foreach" or args.device != "cpu" else None, at)
    again = ["--device", args.device, "--steps", str(args.steps), *(["--small"] if args.small else [])]
    if args.other:
        subprocess.run([args.other, __file__, "--record", folder / "other", *again], check=True)
        compare(args, "other", folder)
    if args.ranks:
        name = f"{args.ranks} ranks"
        subprocess.run([sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={args.ranks}", __file__,
                        "--ranks", str(args.ranks), "--record", folder / name, *again], check=True)
        # Sums of gradients have another order.
        wrong |= compare(args, name, folder, "gradient", 1)
    cost(args, folder)
    cost(args, folder, 4)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
