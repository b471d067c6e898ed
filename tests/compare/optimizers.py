#!/usr/bin/env python3
"""Optimizers of published libraries, each packed, unpacked, and trained on with what came back.

    optimizers.py [--only REGEX] [--roundtrip] [--minutes N] [-o TABLE.csv]
                                        with a Python that has the libraries; TERSOR names the program

Every class trains a small model for 12 steps.  What torch.save makes of {"model", "optimizer"}, and a directory
with model.safetensors and optimizer.pt as Trainer writes it, go through inspect, pack, verify, verify --against,
unpack and convert.  The optimizer loads the state that unpack wrote and goes on for 8 steps; so does one with
the original state, and the largest difference of the losses is in the table.  Keys, types and values of all that
is not packed must be the original's, after convert all of them.  With --roundtrip the file goes through
tests/roundtrip.py too, and every fault that it finds is one of the class.
"""
import argparse
import collections
import contextlib
import csv
import functools
import importlib
import importlib.metadata
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.simplefilter("ignore")
import torch                                                          # noqa: E402
from safetensors.torch import load_file, save_file                    # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import roundtrip                                                      # noqa: E402

TERSOR = os.environ.get("TERSOR", "build/tersor")
AS_FP32 = "gives FP32 states"            # what pack says of states that another program compressed
BEFORE, AFTER = 12, 8


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(collections.OrderedDict(
        emb=torch.nn.Embedding(64, 32), fc=torch.nn.Linear(32, 64), act=torch.nn.Tanh(),
        fc2=torch.nn.Linear(64, 32), ln=torch.nn.LayerNorm(32), out=torch.nn.Linear(32, 64)))


def loss_of(m, step):
    g = torch.Generator().manual_seed(step)
    x = torch.randint(0, 64, (64,), generator=g)
    return torch.nn.functional.cross_entropy(m(x), (x * 7 + 3) % 64)


# --- Ways to step -----------------------------------------------------------------------------------------------

def plain(m, o, step, **kw):
    o.zero_grad()
    loss = loss_of(m, step)
    loss.backward(**kw)
    o.step()
    return loss.item()


def second_order(m, o, step):
    return plain(m, o, step, create_graph=True)


def closure(m, o, step):
    def again():
        o.zero_grad()
        loss = loss_of(m, step)
        loss.backward()
        return loss
    first = loss_of(m, step).item()
    again()
    o.step(again)
    return first


def with_loss(m, o, step):
    o.zero_grad()
    loss = loss_of(m, step)
    loss.backward()
    o.step(lambda: float(loss))
    return loss.item()


def two_steps(m, o, step):
    loss = loss_of(m, step)
    loss.backward()
    o.first_step(zero_grad=True)
    loss_of(m, step).backward()
    o.second_step(zero_grad=True)
    return loss.item()


def fused_backward(m, o, step):
    loss = loss_of(m, step)
    if getattr(o, "clip_grad_norm", None):
        o.grad_norm(loss)
        loss = loss_of(m, step)
    o.fused_backward(loss, 1e-3)
    return loss.item()


STEPS = [plain, second_order, closure, with_loss, two_steps, fused_backward]


# --- Ways to construct ------------------------------------------------------------------------------------------

def groups(m, **flag):
    """Matrices in one group and the rest in another, as Muon and GaLore want them."""
    at = [p for n, p in m.named_parameters() if p.ndim == 2 and "emb" not in n]
    rest = [p for n, p in m.named_parameters() if p.ndim != 2 or "emb" in n]
    on, off = flag.pop("on", {}), flag.pop("off", {})
    return [{"params": at, **on}, {"params": rest, **off}]


def constructors(cls):
    """In the order in which they are tried."""
    kw = {"lr": 1e-3}
    for more in ({}, {"num_iterations": 100}, {"momentum": 0.9}, {"num_data": 64}, {"total_steps": 100}, {"model": None}):
        def make(m, more=more, lr=True):
            known = {k: (m if k == "model" else v) for k, v in more.items()}
            return cls(m.parameters(), **known, **(kw if lr else {}))
        yield make
        yield functools.partial(make, lr=False)
    yield lambda m: cls(m, lr=1e-3)
    yield lambda m: cls(m)
    yield lambda m: cls(m.named_parameters(), lr=1e-3)
    yield lambda m: cls(m.named_parameters(), lr=1e-3, dim=32, n_heads=4)
    yield lambda m: cls(groups(m, on={"use_muon": True}, off={"use_muon": False}), lr=1e-3)
    yield lambda m: cls(groups(m, on={"use_muon": True}, off={"use_muon": False}))
    yield lambda m: cls(groups(m)[0]["params"], lr=1e-3)
    yield lambda m: cls(torch.optim.AdamW(m.parameters(), lr=1e-3))
    yield lambda m: cls(m.parameters(), base_optimizer=torch.optim.AdamW, lr=1e-3)
    yield lambda m: cls(m.parameters(), base_optimizer=torch.optim.AdamW(m.parameters(), lr=1e-3))
    yield lambda m: cls(m, base_optimizer=torch.optim.AdamW(m.parameters(), lr=1e-3))


LOW_RANK = {"rank": 8, "update_proj_gap": 4, "scale": 0.25, "proj_type": "std"}


def low_rank(cls, **more):
    kw = {} if "lr" in more else {"lr": 1e-3}
    more.pop("lr", None)
    return lambda m: cls(groups(m, on={**LOW_RANK, **more}), **kw)


def classes():
    """(library, class name, constructors or None)"""
    def module(name):
        try:
            return importlib.import_module(name)
        except Exception as e:                      # a library that does not import is named in the table
            print(f"{name}: {type(e).__name__}: {e}", file=sys.stderr)
            return None

    def of(library, where, names=None):
        m = module(where)
        found = sorted(n for n, c in vars(m).items() if inspect.isclass(c) and issubclass(c, torch.optim.Optimizer)
                       and c is not torch.optim.Optimizer and not n.startswith("_")) if m else []
        for name in names or found:
            if m:
                yield library, name, list(constructors(getattr(m, name)))

    po = module("pytorch_optimizer")
    if po:
        for name in sorted(po.get_supported_optimizers()):
            cls = po.load_optimizer(name)
            special = [low_rank(cls)] if cls.__name__ in ("GaLore", "APOLLO") else []
            yield "pytorch_optimizer", cls.__name__, special + list(constructors(cls))
    heavy = module("heavyball")
    if heavy:
        heavy.utils.compile_mode = None
        names = sorted(n for n, c in vars(heavy).items() if inspect.isclass(c) and n[0].isupper() and n != "C"
                       and issubclass(c, torch.optim.Optimizer))
        yield from of("heavyball", "heavyball", names)
    yield from of("torch", "torch.optim")
    yield from of("transformers", "transformers.optimization", ["Adafactor"])
    for library, where in (("madgrad", "madgrad"), ("schedulefree", "schedulefree"), ("prodigyopt", "prodigyopt"),
                           ("lion-pytorch", "lion_pytorch"), ("adam-mini", "adam_mini")):
        yield from of(library, where)
    g, a, b = module("galore_torch"), module("apollo_torch"), module("bitsandbytes")
    for name in ("GaLoreAdamW", "GaLoreAdafactor", "GaLoreAdamW8bit") if g else ():
        if hasattr(g, name):
            yield "galore-torch", name, [low_rank(getattr(g, name)), low_rank(getattr(g, name), lr=None)]
    if a:
        yield "apollo-torch", "APOLLOAdamW", [low_rank(a.APOLLOAdamW, proj="random", scale_type="channel",
                                                       scale=1)]
    for name in sorted(vars(b.optim)) if b else ():
        cls = getattr(b.optim, name)
        if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer):
            small = functools.partial(cls, lr=1e-3, min_8bit_size=256)
            yield "bitsandbytes", name, [lambda m, c=small: c(m.parameters()), lambda m, c=small: c(m.parameters(), momentum=0.9),
                                           *constructors(cls)]


# --- One class --------------------------------------------------------------------------------------------------

def ready(o):
    if callable(getattr(o, "train", None)):         # schedule-free optimizers have modes
        o.train()
    return o


def trained(makers):
    """(maker, way to step, model, optimizer) of the first that trains; or what each failed with."""
    failed = []
    for make in makers:
        for step in STEPS:
            m = model()
            try:
                torch.manual_seed(2)
                o = ready(make(m))
                for i in range(BEFORE):
                    step(m, o, i)
                if all(torch.equal(a, b) for a, b in zip(m.parameters(), model().parameters())):
                    raise RuntimeError("no parameter changed")
                if not all(torch.isfinite(p).all() for p in m.parameters()):
                    raise RuntimeError("diverged")
                return make, step, m, o
            except Exception as e:
                failed.append(f"{type(e).__name__}: {e}".split("\n")[0][:90])
    raise RuntimeError(failed[0])


def go_on(make, step, saved):
    m = model()
    o = ready(make(m))
    m.load_state_dict(saved["model"])
    if isinstance(o, torch.optim.Optimizer) and saved["optimizer"] is not None:
        o.load_state_dict(saved["optimizer"])
    torch.manual_seed(3)
    return [step(m, o, BEFORE + i) for i in range(AFTER)]


def equal(a, b, at="", loosely=False):
    """Nothing, or the place where two values differ; with @loosely floats of tensors may."""
    if type(a) is not type(b):
        return f"{at}: {type(a).__name__} became {type(b).__name__}"
    if isinstance(a, torch.Tensor):
        dense = a.untyped_storage().nbytes() == a.nbytes
        if a.shape != b.shape or a.dtype != b.dtype or (dense and a.stride() != b.stride()):
            return f"{at}: {a.shape} {a.dtype} became {b.shape} {b.dtype}"
        if loosely and a.is_floating_point():
            return ""
        return "" if torch.equal(a.nan_to_num(), b.nan_to_num()) else f"{at}: values differ"
    if isinstance(a, dict):
        if [*map(repr, a)] != [*map(repr, b)]:
            return f"{at}: keys differ"
        return next(filter(None, (equal(a[k], b[j], f"{at}.{k}", loosely) for k, j in zip(a, b))), "")
    if isinstance(a, (list, tuple, collections.deque)):
        if len(a) != len(b):
            return f"{at}: lengths differ"
        return next(filter(None, (equal(x, y, f"{at}.{i}", loosely) for i, (x, y) in enumerate(zip(a, b)))), "")
    if hasattr(a, "__dict__") and not isinstance(a, type) and type(a).__eq__ is object.__eq__:
        return equal(vars(a), vars(b), at, loosely)
    return "" if a == b or a != a else f"{at}: {a!r} became {b!r}"


def tersor(*args):
    done = subprocess.run([TERSOR, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{args[0]}: {done.stderr.strip()[:300]}")
    return done


def load(path):
    return torch.load(path, weights_only=False)


def file_trip(d, saved):
    torch.save(saved, d / "in.pt")
    tersor("inspect", d / "in.pt")
    said = tersor("pack", d / "in.pt", "-o", d / "packed").stderr
    tersor("verify", d / "packed")
    tersor("verify", d / "packed", "--against", d / "in.pt")
    tersor("unpack", d / "packed", "-o", d / "out.pt")
    tersor("convert", d / "in.pt", "-o", d / "converted.pt")
    wrong = equal(load(d / "in.pt"), load(d / "converted.pt"))
    if AS_FP32 not in said:
        wrong = wrong or equal(load(d / "in.pt"), load(d / "out.pt"), loosely=True)
    if wrong:
        raise RuntimeError(f"not as it was: {wrong}")
    return said, json.loads(tersor("inspect", "--json", d / "packed").stdout), load(d / "out.pt")


def directory_trip(d, saved):
    (d / "in").mkdir()
    save_file(saved["model"], d / "in" / "model.safetensors", {"format": "pt"})
    torch.save(saved["optimizer"], d / "in" / "optimizer.pt")
    tersor("inspect", d / "in")
    said = tersor("pack", d / "in", "-o", d / "dir").stderr
    tersor("verify", d / "dir")
    tersor("verify", d / "dir", "--against", d / "in")
    tersor("unpack", d / "dir", "-o", d / "back")
    wrong = equal(load(d / "in" / "optimizer.pt"), load(d / "back" / "optimizer.pt"), loosely=True)
    if wrong and AS_FP32 not in said:
        raise RuntimeError(f"directory: not as it was: {wrong}")
    return {"model": load_file(d / "back" / "model.safetensors"),
            "optimizer": load(d / "back" / "optimizer.pt")}


def oracle(path):
    report = roundtrip.Report(quiet=True)
    roundtrip.roundtrip(path, TERSOR, report)
    if report.faults:
        raise RuntimeError("not as it was: {1}: {2}".format(*report.faults[0]))


def row(makers, d, roundtrip_too=False):
    make, step, m, o = trained(makers)
    state = o.state_dict()
    saved = {"model": m.state_dict(), "optimizer": state}
    said, report, back = file_trip(d, saved)
    if roundtrip_too:
        oracle(d / "in.pt")
    also = directory_trip(d, saved)
    carried = re.search(r"\((\d+) in all\)", "".join(x for x in said.splitlines() if "carries Python" in x))
    kinds = collections.Counter()
    for t in report["tensors"]:
        if t["name"].rsplit(".", 1)[0] not in dict(m.named_modules()):
            kinds[t["codec"] != "raw"] += 1
    resume = []
    original = go_on(make, step, load(d / "in.pt"))
    for other in (back, also):
        resume.append(max(abs(x - y) for x, y in zip(original, go_on(make, step, other))))
    return (f"{kinds[True]} | {kinds[False]} | {carried[1] if carried else 0} | "
            f"{report['totals']['bytes_per_parameter']:.2f} | {max(resume):.1e} | works{', as FP32' if AS_FP32 in said else ''}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--only", default="")
    p.add_argument("-o", default="/dev/stdout")
    p.add_argument("--roundtrip", action="store_true")
    p.add_argument("--minutes", type=float, default=1e6)
    args = p.parse_args()
    rows, untried, worked, seen = [], [], 0, {}
    last = time.monotonic() + 60 * args.minutes
    with tempfile.NamedTemporaryFile() as meeting:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting.name}.gloo", rank=0,
                                             world_size=1)
    for library, name, makers in classes():
        if not re.search(args.only, f"{library}.{name}"):
            continue
        if time.monotonic() > last:
            untried.append(f"- {library} {name}: was not reached in time")
            continue
        seen[library] = 1
        with tempfile.TemporaryDirectory(prefix="optimizers-") as d:
            try:
                with contextlib.redirect_stdout(None):
                    text = row(makers, pathlib.Path(d), args.roundtrip)
                worked += 1
            except Exception as e:
                text = str(e).split("\n")[0].replace(d + "/", "").replace("|", "/")
                if not re.match(r"(inspect|pack|verify|unpack|convert|not as|directory)", text):
                    untried.append(f"- {library} {name}: {text[:80]}")
                    text = ""
                else:
                    text = f"|||||{text[:160]}"
        print(library, name, text or untried[-1], file=sys.stderr, flush=True)
        if text:
            rows.append([name, library, *(cell.strip() for cell in text.split("|"))])
    versions = ", ".join(f"{x} {importlib.metadata.version(x)}" for x in seen)
    with open(args.o, "w", encoding="utf-8") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(["class", "library", "packed", "raw", "objects", "bytes per parameter", "loss difference",
                        "result"])
        table.writerows(rows)
    print(textwrap.fill(f"{worked} of {len(rows)} classes work, with {versions}. {len(untried)} more do not train "
                        "this model here.", 110), *untried, sep="\n", file=sys.stderr)
    return 1 if worked < len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
