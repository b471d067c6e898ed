#!/usr/bin/env python3
"""Random checkpoints that PyTorch itself saves and loads: random_checkpoints.py FOLDER FIRST_SEED COUNT

Nested values with odd keys and types, views, strides, ties, narrow floats, NaNs with payloads, empty tensors: by
torch.save, as zip or in the form before PyTorch 1.6, and by dcp.save where it is there.  Runs with PyTorch 1.13.
"""
import collections
import pathlib
import random
import sys
import warnings

warnings.simplefilter("ignore")
import torch                                                          # noqa: E402

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
NARROW = [getattr(torch, n) for n in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu") if hasattr(torch, n)]
OTHERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64]
WIDE = [getattr(torch, n) for n in ("uint16", "uint32", "uint64") if hasattr(torch, n) and hasattr(torch, "float8_e5m2")]
SIZE = {torch.float64: 8, torch.complex64: 8, torch.int64: 8, torch.float32: 4, torch.int32: 4, torch.float16: 2,
        torch.bfloat16: 2, torch.int16: 2, **{d: 1 for d in NARROW}, **{d: 2 << i for i, d in enumerate(WIDE)}}
SPECIAL = [0x00000000, 0x80000000, 0x7fc00001, 0xffbadbad, 0x7f800000, 0xff800000, 0x00000001, 0x7f7fffff, 0x80000001]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        torch.manual_seed(seed)
        self.tensors, self.values = [], []

    def shape(self):
        r = self.r
        return [r.choice((1, 2, 3, 4, 5, 7, 8, 16, 17, 33)) if r.random() < 0.95 else 0 for _ in range(r.choice((0, 1, 1, 2, 2, 2, 3, 4)))]

    def fresh(self):
        r, shape = self.r, self.shape()
        dtype = r.choice(r.choice((FLOATS[:1], FLOATS[:1], FLOATS, OTHERS, NARROW or FLOATS, WIDE or OTHERS)))
        n = 1
        for s in shape:
            n *= s
        if dtype == torch.bool:
            return torch.rand(shape) < 0.5
        if dtype in FLOATS and r.random() < 0.8:
            t = torch.randn(shape) * 10.0 ** r.randint(-12, 4)
            if r.random() < 0.2:
                t = t.square()
            return t.to(dtype)
        if dtype == torch.float32:                          # any bits at all
            bits = [r.choice(SPECIAL) if r.random() < 0.5 else r.getrandbits(32) for _ in range(n)]
            return torch.tensor([b - (b >> 31 << 32) for b in bits], dtype=torch.int32).view(torch.float32).reshape(shape)
        raw = torch.tensor([r.getrandbits(8) for _ in range(n * SIZE.get(dtype, 1))], dtype=torch.uint8)
        return raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)

    def viewed(self, t):
        r = self.r
        way = r.choice(("same", "t", "permute", "slice", "expand", "step", "last", "flat"))
        if way == "t" and t.dim() >= 2:
            return t.transpose(0, 1)
        if way == "permute" and t.dim() >= 2:
            return t.permute(r.sample(range(t.dim()), t.dim()))
        if way == "slice" and t.dim() and t.shape[0] > 1:
            return t[1:]
        if way == "expand":
            return t.unsqueeze(0).expand(3, *t.shape)
        if way == "step" and t.dim() and t.shape[-1] > 2:
            return t[..., ::2]
        if way == "last" and t.dim() == 4:
            return t.contiguous(memory_format=torch.channels_last)
        return t

    def tensor(self):
        r = self.r
        if self.tensors and r.random() < 0.15:
            t = r.choice(self.tensors)
            return t if r.random() < 0.6 or t.requires_grad else self.viewed(t)
        t = self.fresh()
        if r.random() < 0.4:
            t = self.viewed(t)
        if r.random() < 0.15 and t.dtype in FLOATS:
            t = torch.nn.Parameter(t, requires_grad=r.random() < 0.7)
        elif r.random() < 0.1 and t.dtype in FLOATS:
            t.requires_grad_()
        self.tensors.append(t)
        return t

    def key(self):
        r = self.r
        return r.choice((lambda: "".join(r.choice("abcxyz._/ é漢\n\"\\:") for _ in range(r.randint(1, 8))),
                         lambda: r.randint(-5, 300), lambda: r.choice((2**31, 2**63, -2**70, 10**400)),
                         lambda: r.choice((True, False, None, 0.5, -0.0, 1e300, b"bytes", (1, "a"), ())),
                         lambda: r.choice(("weight", "bias", "exp_avg", "exp_avg_sq", "step", "state", "param_groups"))))()

    def scalar(self):
        r = self.r
        return r.choice((None, True, False, 0, -1, 255, 65536, 2**31, 2**63, -2**64 - 1, 3**200, 0.0, -0.0, 1e-320, 1.5,
                         float("inf"), float("nan"), "", "text", "\ud800" if False else "\u2028", "x" * 300, b"", b"\x00\xff",
                         complex(1, -0.0), torch.float32, torch.device("cpu"), torch.Size([2, 3]), range(3) if False else 7,
                         frozenset({1, 2}), {1, "a"}, bytearray(b"ab"), ...) if r.random() < 0.9 else (r.getrandbits(64),))

    def value(self, depth):
        r = self.r
        if self.values and r.random() < 0.05:
            return r.choice(self.values)
        kind = r.choice(("tensor", "tensor", "tensor", "scalar", "dict", "ordered", "list", "tuple") if depth else ("tensor", "tensor", "scalar"))
        if kind == "tensor":
            return self.tensor()
        if kind == "scalar":
            return self.scalar()
        n = r.randint(0, 5)
        if kind == "dict":
            made = {self.key(): self.value(depth - 1) for _ in range(n)}
        elif kind == "ordered":
            made = collections.OrderedDict((self.key(), self.value(depth - 1)) for _ in range(n))
            if r.random() < 0.3:
                made._metadata = {"": {"version": 1}}
        else:
            made = [self.value(depth - 1) for _ in range(n)]
            made = tuple(made) if kind == "tuple" else made
        self.values.append(made)
        return made

    def optimizer(self):
        """What torch.optim saves, of random parameters."""
        r = self.r
        shapes = [self.shape() for _ in range(r.randint(1, 4))]
        model = collections.OrderedDict((f"layer.{i}.weight", torch.randn(s)) for i, s in enumerate(shapes))
        state = {i: {"step": torch.tensor(float(r.randint(0, 9))), "exp_avg": torch.randn(s) * 1e-3, "exp_avg_sq": torch.rand(s) * 1e-6}
                 for i, s in enumerate(shapes) if r.random() < 0.9}
        return {"model": model, "optimizer": {"state": state, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(range(len(shapes)))}]}}

    def checkpoint(self):
        r = self.r
        if r.random() < 0.25:
            return {**self.optimizer(), "extra": self.value(3)}
        return self.value(4) if r.random() < 0.2 else {self.key(): self.value(3) for _ in range(r.randint(1, 6))}


def text_keys(value):
    """What dcp.save takes: dicts with text as keys."""
    if isinstance(value, dict):
        return {f"k{i}": text_keys(v) for i, v in enumerate(value.values())}
    if isinstance(value, (list, tuple)):
        return type(value)(map(text_keys, value))
    return value.detach().contiguous() if isinstance(value, torch.Tensor) else value


def main(folder, first, count):
    folder = pathlib.Path(folder)
    try:
        import torch.distributed.checkpoint as dcp
        assert hasattr(dcp, "save")
    except (ImportError, AssertionError):
        dcp = None
    for seed in range(first, first + count):
        value = Maker(seed).checkpoint()
        form = ("zip", "zip", "zip", "legacy", "dcp")[seed % 5]
        path = folder / f"{seed}-{form}"
        if form == "dcp" and dcp:
            value = text_keys(value) if isinstance(value, dict) else {"only": text_keys(value)}
            dcp.save(value, checkpoint_id=path)
        else:
            torch.save(value, f"{path}.pt", _use_new_zipfile_serialization=form != "legacy")
            try:
                torch.load(f"{path}.pt", **({"weights_only": False} if hasattr(torch, "float8_e5m2") else {}))
            except Exception as e:                  # what PyTorch cannot load is not asked of tersor
                print(f"{path}: {e}", file=sys.stderr)
                pathlib.Path(f"{path}.pt").unlink()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
