#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/saving.py TERSOR [--emulated]: tersor.torch saves a model on cuda:0 to the bytes that it saves the
same model on the CPU to, entropy coded or not, and stages what the file has.  Needs PyTorch; emulated, the memory
of the CPU is the GPU's, as libtersor's next to TERSOR has it."""
import contextlib
import ctypes
import os
import sys
import tempfile
import time

from common import EMULATED, TERSOR, expect, tersor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packaging", "wheel"))
os.environ["TERSOR"] = str(TERSOR)
os.environ.setdefault("TERSOR_LIBRARY", str(TERSOR.parent / "libtersor.so"))
try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed here", file=sys.stderr)
    sys.exit(0)
import tersor.torch as tt                   # noqa: E402
from tersor import planes                   # noqa: E402


class Stream:
    """Of a GPU whose work is done when something waits for it: NULL, where it is done at once."""
    cuda_stream = 0

    def __init__(self, *_):
        pass

    def record_event(self):
        return self

    def wait_event(self, _):
        pass

    synchronize = record_event


class Cuda:
    """torch.cuda, for tensors that are on the CPU."""
    free = 1 << 40
    Stream = Stream
    device = stream = staticmethod(lambda _: contextlib.nullcontext())
    current_stream = staticmethod(Stream)
    current_device = staticmethod(lambda: 0)
    mem_get_info = staticmethod(lambda _: (Cuda.free, Cuda.free))


class Torch:
    """torch, without pinned memory."""
    cuda = Cuda

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def empty(*args, pin_memory=False, **kwargs):
        made = torch.empty(*args, **kwargs)
        made.is_pinned = lambda: pin_memory
        return made


def emulate():
    """Encode all tensors as if they were on a GPU."""
    cpu = planes.Staged.encode

    def encode(self):
        if not ON_GPU:
            return cpu(self)
        indices = range(len(self.plan.tensors))
        self.finish.append(planes.encode_on_gpu(self.plan, list(indices), torch.device("cpu", 0)))
    planes.torch, planes.Staged.encode = Torch(), encode


ON_GPU = False


def make(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(700, 512), torch.nn.Linear(512, 300), torch.nn.LayerNorm(300),
                                torch.nn.Linear(300, 99, bias=False), torch.nn.Linear(99, 2700, bias=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randint(0, 700, (8,))).square().mean().backward()
        optimizer.step()
    model.to(device)
    for state in optimizer.state.values():
        state.update({k: v.to(device) for k, v in state.items() if isinstance(v, torch.Tensor) and v.ndim})
    return model, optimizer


def saved(folder, name, on_gpu, **form):
    """What the file has, and how many bytes of planes were copied to the host."""
    global ON_GPU
    ON_GPU = on_gpu
    device = "cuda" if on_gpu and not EMULATED else "cpu"
    model, optimizer = make(device)
    path = os.path.join(folder, name)
    model.register_buffer("bad", torch.full((600, 600), float("inf"), device=device))     # stays FP32
    more = {"raw": torch.arange(2000, device=device), "none": torch.zeros(0, 3), "host": torch.ones(2000)}
    begun = time.perf_counter()
    future = tt.async_save(path, model, optimizer, **form, **more)
    blocked, result = time.perf_counter() - begun, future.result()
    with open(path, "rb") as file:
        return file.read(), sum(m.numel() for m in planes.HOST.idle), result, blocked


def check_damage(folder):
    """What does not decode is not written: pieces are decoded for their hashes."""
    write = planes.Plan.write

    def damaged(plan, path):
        i = next(i for i, coded in enumerate(plan.coded) if plan.planes[i, 0] and coded[0])
        ctypes.memset(int(plan.planes[i, 0] + plan.coded[i, 0]) - 40, 0x5a, 8)
        return write(plan, path)
    planes.Plan.write = damaged
    try:
        saved(folder, "damaged", True, entropy=True)
        expect(False, "damaged planes are written")
    except RuntimeError as e:
        expect("the state to save: tensor" in str(e) and "data is damaged: piece" in str(e), e)
        expect(not os.path.exists(os.path.join(folder, "damaged")), "a damaged file")
    planes.Plan.write = write


# What is free on a GPU, and how many bytes of planes are copied together: all, or some at a time.
MEMORY = (1 << 40, planes.SEGMENT), (1 << 40, 1 << 20), (0, 1 << 20)


def main():
    if EMULATED:
        emulate()
    elif not torch.cuda.is_available():
        sys.exit("no GPU here")
    with tempfile.TemporaryDirectory() as folder:
        for form in ({}, {"entropy": True}, {"entropy": True, "state": "tight"},
                     {"entropy": True, "state": "ratio8/log8", "weights": "fp16+ulp8"},
                     {"entropy": True, "state": "coat", "weights": "bf16+exact16"}):
            want, _, plain, _ = saved(folder, "cpu", False, **form)
            for free, segment in MEMORY if EMULATED else ((0, planes.SEGMENT),):
                Cuda.free, planes.SEGMENT = free, segment
                got, staged, result, blocked = saved(folder, "gpu", True, **form)
                expect(got == want, form, "other bytes than from the CPU", len(got), len(want))
                expect(result.raw == plain.raw, form, result.raw, plain.raw)
                done = tersor("verify", "--allow-nonfinite", os.path.join(folder, "gpu"))
                expect(done.returncode == 0, form, done.stderr)
                print(f"ok   {form}: {len(got)} bytes, held up {blocked:.4f} s, {staged} bytes of host memory")
        check_damage(folder)
        base = os.path.join(folder, "cpu")
        want = saved(folder, "d0", False, entropy=True, delta=base)[0]
        expect(saved(folder, "d1", True, entropy=True, delta=base)[0] == want, "a delta has other bytes")


main()
