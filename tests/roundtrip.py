#!/usr/bin/env python3
"""Is what comes back from tersor what went in?  For any checkpoint or directory of checkpoints.

    roundtrip.py PATH... [--tersor PROGRAM] [--all] [--no-files] [--torch PYTHON]

A file or a directory of torch.distributed.checkpoint is converted to every container that can hold it, and back;
packed by lossless codecs, by default, with --entropy, and unpacked.  A directory of files is packed and unpacked
as a whole in the same three ways, and each checkpoint in it as a file.  Asserted is that keys and their order,
types, dtypes, shapes, strides of dense tensors, tensors that share their memory, requires_grad, Parameters,
objects and all other values are the same; that values are equal, or differ by no more than the figures that
the packed file states, computed here; that other files of a directory come back byte for byte.

helpers/anyfile.py reads the files; nothing here calls tersor's library.  With --torch, torch.load of
that Python must also take what it took before, and give equal tensors.  --all adds more states and codecs.
Exit status 1: something differs.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "helpers"))
import anyfile                                                        # noqa: E402
import packed_text                                                    # noqa: E402
from anyfile import Object, Tensor, Unreadable                        # noqa: E402

LOSSLESS = ("--weights", "bf16+exact16", "--momentum", "f32", "--variance", "f32")
MODES = {"lossless": LOSSLESS, "default": (), "entropy": ("--entropy",)}
MORE_MODES = {"tight": ("--state", "tight"), "coat": ("--state", "coat"), "bitsandbytes": ("--state", "bitsandbytes"),
              "small": ("--min-elements", "1"), "lossless-entropy": (*LOSSLESS, "--entropy", "all")}
SUFFIX = {"pt": ".pt", "safetensors": ".safetensors", "npz": ".npz", "npy": ".npy", "dcp": ".dcp"}

# What a command may refuse, as SECURITY.md says; anything else that it refuses is a fault.
REFUSALS = [
    ("convert", "dcp", "expected text or ints|expected a dict|joined keys|with an empty name"),
    ("convert", "npz|pt|dcp", "F4|F6"),
    ("convert", "pt", "with an empty name"),
    ("convert", "npz", "in its name"),
    ("", "", "C128|complex128|sparse|quantized tensor|nested tensor|meta|TorchScript|holds parts of tensors|before 1\\.6|DTensor|subclass|whole module"),
]


class Differs(Exception):
    pass


# --- Values -----------------------------------------------------------------------------------------------------

def bits(x):
    return struct.pack("<d", x)


class Comparison:
    """Raises Differs at the first place where b is not a.  @equal says whether the elements of two tensors are."""

    def __init__(self, equal=None, whole=True, grad=True):
        self.equal = equal or (lambda a, b, at: a.content() == b.content() or fail(at, "values differ"))
        self.grad = grad
        self.whole, self.pairs, self.views, self.backs, self.seen = whole, {}, {}, {}, set()

    def same(self, a, b, at=""):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return self.tensor(a, b, at)
        if type(a) is not type(b) and not (isinstance(a, Object) and isinstance(b, Object)):
            fail(at, f"{kind(a)} became {kind(b)}")
        if isinstance(a, (dict, list, set, Object)) and not self.first(a, b, at):
            return None
        if isinstance(a, dict):
            return self.mapping(a, b, at)
        if isinstance(a, (list, tuple)):
            len(a) == len(b) or fail(at, f"{len(a)} elements became {len(b)}")
            for i, (x, y) in enumerate(zip(a, b)):
                self.same(x, y, f"{at}[{i}]")
        elif isinstance(a, (set, frozenset)):
            self.same(sorted(a, key=repr), sorted(b, key=repr), f"{at}{{}}")
        elif isinstance(a, Object):
            a.what == b.what or fail(at, f"{a.what} became {b.what}")
            self.same(a.parts(), b.parts(), f"{at}<{a.what.split('.')[-1]}>")
        elif isinstance(a, type) and issubclass(a, Object):
            a.what == b.what or fail(at, f"{a.what} became {b.what}")
        elif isinstance(a, float):
            bits(a) == bits(b) or fail(at, f"{a!r} became {b!r}")
        elif isinstance(a, complex):
            self.same((a.real, a.imag), (b.real, b.imag), at)
        else:
            a == b or fail(at, f"{a!r:.60} became {b!r:.60}")
        return None

    def first(self, a, b, at):
        """Values that are one object in a are one in b, and others are not; False if it was compared before."""
        known, back = self.pairs.get(id(a)), self.pairs.get(("back", id(b)))
        if (known and known[1] is not b) or (back and back[0] is not a):
            fail(at, "one value became two, or two became one")
        self.pairs[id(a)] = self.pairs["back", id(b)] = (a, b)
        return known is None

    def mapping(self, a, b, at):
        len(a) == len(b) or fail(at, f"keys {missing(a, b)}")
        for (j, x), (k, y) in zip(a.items(), b.items()):
            if not isinstance(j, Object):
                (type(j) is type(k) and (j == k or j != j)) or fail(at, f"key {j!r:.60} became {k!r:.60}")
            self.same(j, k, f"{at}<key>")
            self.same(x, y, f"{at}.{j}")
        self.same(vars(a) if hasattr(a, "__dict__") else None, vars(b) if hasattr(b, "__dict__") else None, f"{at}<attributes>")

    def tensor(self, a, b, at):
        for what in ("dtype", "shape") + ("requires_grad", "parameter") * self.grad:
            x, y = getattr(a, what), getattr(b, what)
            x == y or fail(at, f"{what} {x} became {y}")
        if anyfile.is_dense(a) and self.whole:
            anyfile.real_strides(a) == anyfile.real_strides(b) or fail(at, f"strides {a.stride} became {b.stride}")
        if a.numel and self.whole:
            self.views.setdefault(a.view(), b.view()) == b.view() or fail(at, "tied tensors came apart")
            self.backs.setdefault(b.view(), a.view()) == a.view() or fail(at, "tensors became tied")
        if self.grad:
            self.same(a.more, b.more, f"{at}<attributes>")
        self.equal(a, b, at)


def fail(at, what):
    at = at if len(at) < 200 else f"{at[:90]} ... {at[-90:]}"
    raise Differs(f"{at or 'the root'}: {what}")


def kind(x):
    return x.what if isinstance(x, Object) else type(x).__name__


def missing(a, b):
    def some(keys):
        return ", ".join(map(str, keys[:3])) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "") or "none"
    return f"lost: {some([k for k in a if k not in b])}; new: {some([k for k in b if k not in a])}"


def walk(value, at=(), inside=()):
    """(place, leaf) of everything in a value."""
    if isinstance(value, (dict, list, tuple, Object)):
        if id(value) in inside:                     # in itself
            return
        inside = (*inside, id(value))
        pairs = value.items() if isinstance(value, dict) else enumerate(value.parts() if isinstance(value, Object) else value)
        for k, v in pairs:
            yield from walk(v, (*at, k), inside)
    else:
        yield at, value


def tensors_of(value):
    """The different tensors of a value: those of one view count once."""
    found = {}
    for _, leaf in walk(value):
        if isinstance(leaf, Tensor):
            found.setdefault(leaf.view() if leaf.numel else id(leaf), leaf)
            for _, more in walk(leaf.more):
                if isinstance(more, Tensor):
                    found.setdefault(more.view() if more.numel else id(more), more)
    return list(found.values())


# --- Figures ----------------------------------------------------------------------------------------------------

def as_floats(t):
    """binary64 values of a tensor, and the ordered binary32 integers of what it widens to."""
    raw = t.content()
    if t.dtype == "BF16":
        x = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    elif t.dtype in ("F32", "F16"):
        x = np.frombuffer(raw, anyfile.NUMPY[t.dtype]).astype("<f4")
    else:
        raise Unreadable(f"figures of {t.dtype}")
    b = x.view("<u4").astype(np.int64)
    return x.astype(np.float64), np.where(b >> 31, -(b & 0x7fffffff), b)


def check_figures(name, a, b, stated):
    """What was stated when it was packed is not less than what is so."""
    (x, ox), (y, oy) = as_floats(a), as_floats(b)
    finite = np.isfinite(x)
    if not finite.all():
        a.content() == b.content() or fail(name, "packed with values that are not finite, and they differ")
        return
    with np.errstate(all="ignore"):
        d = np.abs(x - y)
        real = {"abs": d.max(initial=0), "ulp": np.abs(ox - oy).max(initial=0),
                "rel": (d[x != 0] / np.abs(x[x != 0])).mean() if (x != 0).any() else 0,
                "nmse": (d @ d) / (x @ x) if d.any() else 0,
                "flushed": int(((x != 0) & (y == 0)).sum())}
    for figure in real.keys() & stated.keys():
        value, said = real[figure], stated[figure]
        # sums have rounded terms in binary32 in a report; what a file records is rounded to 13 bits
        if said is None or not value <= said * (1 + (1e-5 if "exact" in stated else 2e-4)) + 1e-45:
            fail(name, f"{figure} is {value:.9g}, stated is {said}")
    exact = np.frombuffer(a.content(), "u1").reshape(max(a.numel, 1), -1) if a.numel else np.zeros((0, 1))
    other = np.frombuffer(b.content(), "u1").reshape(max(a.numel, 1), -1) if a.numel else np.zeros((0, 1))
    equal = int((exact == other).all(axis=1).sum())
    equal == stated.get("exact", equal) or fail(name, f"{equal} elements are equal, stated is {stated['exact']}")


# --- The program ------------------------------------------------------------------------------------------------

class Tersor:
    def __init__(self, program, log):
        self.program, self.log = program, log

    def __call__(self, *args, status=0):
        done = subprocess.run([self.program, *map(str, args)], capture_output=True, text=True, errors="replace",
                              timeout=300, env={**os.environ, "LC_ALL": "C"})
        if done.returncode != status:
            raise Refused(args[0], args, done)
        return done


def command_line(args):
    return " ".join(pathlib.Path(a).name if isinstance(a, pathlib.Path) else str(a) for a in args)


class Refused(Exception):
    def __init__(self, command, args, done):
        self.command, self.status = command, done.returncode
        errors = [x for x in done.stderr.splitlines() if not x.startswith("tersor: warning")]
        self.message = errors[-1] if errors else f"status {done.returncode}"
        super().__init__(f"tersor {command_line(args)}: status {self.status}: {self.message}")

    def documented(self, to=""):
        return self.status == 3 and any(re.match(c or ".", self.command) and re.fullmatch(t or ".*", to) and
                                        re.search(m, self.message) for c, t, m in REFUSALS)


def verified(tersor, packed, source):
    """verify twice; it says with status 1 what is not finite, which the source has too."""
    for more in ((), ("--against", source)):
        try:
            tersor("verify", packed, *more)
        except Refused as e:
            if e.status != 1 or "non-finite" not in e.message:
                raise


# --- One file ---------------------------------------------------------------------------------------------------

class Trip:
    """A file, or a directory of torch.distributed.checkpoint, and what was read of it without tersor."""

    def __init__(self, path, tersor, work, report):
        self.path, self.tersor, self.work, self.report = path, tersor, work, report
        self.kind, self.value = anyfile.read(path)
        if self.kind == "dcp" and any(p.suffix != ".distcp" and p.name != ".metadata" for p in path.iterdir()):
            self.path = path / ".metadata"          # without the files beside it that tersor would join
        self.tensors = tensors_of(self.value)
        self.suffix = SUFFIX.get(self.kind, ".safetensors")

    def into(self, name):
        return self.work / name

    def step(self, what, action):
        """One line of the report."""
        try:
            said = action()
            self.report.ok(self.path, what, said)
            return said
        except Refused as e:
            if e.documented(what.split()[-1] if what.startswith("convert") else ""):
                self.report.refused(self.path, what, e.message)
            else:
                self.report.wrong(self.path, what, str(e))
        except (Differs, Unreadable) as e:
            self.report.wrong(self.path, what, str(e))
        except Exception as e:                      # a file that cannot even be read
            self.report.wrong(self.path, what, f"{type(e).__name__}: {e}")
        return None

    def run(self, modes):
        for to in ("safetensors", "pt", "npz", "dcp", "shards"):
            self.step(f"convert to {to}", lambda to=to: self.convert(to))
        for mode, options in modes.items():
            self.step(f"pack {mode}", lambda m=mode, o=options: self.pack(m, o))

    def out(self, name, kind):
        """An output's name, and what tersor wants of it."""
        path = self.into(name + SUFFIX.get(kind, ".safetensors"))
        return path, (("--to", kind) if kind in SUFFIX else ())

    def back(self, command, source, name):
        """The source again in the container of this file, and how far it is the same."""
        path, to = self.out(name, self.kind)
        if self.kind == "shards":
            self.tersor(command, source, "-o", path)
            return anyfile.read(path)[1]
        self.tersor(command, source, "-o", path, *to)
        return anyfile.read(path)[1]

    def convert(self, to):
        there, how = self.out(f"to-{to}", to)
        more = ("--max-shard-size", max(64, sum(len(t.content()) for t in self.tensors) // 3)) if to == "shards" else how
        self.tersor("convert", self.path, "-o", there, *more)
        if to == "shards":
            index = there.with_name(there.name + ".index.json")
            there = index if index.exists() else there
        there_kind, there_value = anyfile.read(there)
        self.tensors_are_there(there_value, to)
        if to == "npz":
            return f"{len(tensors_of(there_value))} tensors"
        if to == self.kind:
            self.compare(there_value)
            if to == "pt":
                self.report.pair(self.path, there)
            return "the same"
        back = self.back("convert", there, f"back-{to}")
        if to == "dcp" and self.kind == "pt":
            loosely(self.value, there_value)
            return "the same leaves"
        if self.kind == "dcp" and to == "pt":
            nested(self.value, there_value)
        self.compare(back, metadata=to in ("safetensors", "shards"))
        return f"{there_kind} and back"

    def tensors_are_there(self, value, to):
        """Every tensor of this file is in another container, and no other."""
        def key(t):
            dtype = re.sub("^(F8.*|BF16)$", f"V{anyfile.ITEM.get(t.dtype, 0)}", t.dtype) if to == "npz" else t.dtype
            return dtype, t.shape, t.content()
        here, there = (collections.Counter(map(key, tensors_of(v))) for v in (self.value, without_tree(value)))
        for counted in (here, there):                           # empty tensors share no memory that tells
            counted.update({k: 1 - n for k, n in counted.items() if not k[2]})
        if to in ("dcp", "npz") or self.kind in ("dcp", "shards"):       # ties are a tensor under each name there
            here, there = set(here), set(there)
        if here != there:
            lost, new = here - there, there - here
            fail("tensors", f"{len(lost)} of {len(here)} are not there, {len(new)} others are: "
                 f"{[k[:2] for k in [*lost][:2]]} {[k[:2] for k in [*new][:2]]}")

    def compare(self, back, equal=None, metadata=True):
        a, b = self.value, back
        if self.kind in ("safetensors", "shards", "npz", "npy"):
            names = sorted(a["tensors"]), sorted(b["tensors"])
            names[0] == names[1] or fail("tensors", missing(*(x["tensors"] for x in (a, b))))
            for name in names[0]:
                Comparison(equal, whole=False).same(a["tensors"][name], b["tensors"][name], name)
            if self.kind in ("safetensors", "shards") and metadata:
                own = {k: v for k, v in b["metadata"].items() if k != "tersor_generation"}
                for k, v in a["metadata"].items():
                    own.get(k) == v or fail("metadata", f"{k} is {own.get(k)!r:.60}, was {v!r:.60}")
        elif self.kind == "dcp":
            names = sorted(a["entries"]), sorted(b["entries"])
            names[0] == names[1] or fail("entries", missing(*(x["entries"] for x in (a, b))))
            comparison = Comparison(equal)
            comparison.views = comparison.backs = Anything()
            for name in names[0]:
                comparison.same(a["entries"][name], b["entries"][name], name)
            if a["planner"] and b["planner"]:
                paths = [{k: v for k, v in x["planner"].items() if k in x["entries"]} for x in (a, b)]
                paths[0] == paths[1] or fail("planner_data", "differs")
        else:
            Comparison(equal).same(a, b)

    # --- packed

    def pack(self, mode, options):
        packed = self.into(f"{mode}.packed.safetensors")
        done = self.tersor("pack", self.path, "-o", packed, *options, "--json", self.into("report.json"))
        verified(self.tersor, packed, self.path)
        report = json.loads(self.into("report.json").read_text())
        stated = {t["name"]: t for t in report["tensors"]}
        if mode == "entropy":
            self.recoded(packed)
        exact = self.names_of(packed, mode, stated)
        if exact is None:
            return "states that another program compressed: decoded, not compared"
        back = self.back("unpack", packed, f"unpacked-{mode}")
        lossy = anyfile.read(self.unpacked_flat(packed, mode))[1]["tensors"]
        self.compare(back, self.judge(stated, exact, lossy))
        if mode == "lossless" and self.kind == "pt":
            self.report.pair(self.path, self.out(f"unpacked-{mode}", "pt")[0])
        n = sum(t["codec"] != "raw" for t in stated.values())
        return f"{n} of {len(stated)} tensors packed" + (", with warnings" if "warning" in done.stderr else "")

    def unpacked_flat(self, packed, mode):
        flat = self.into(f"flat-{mode}.safetensors")
        self.tersor("unpack", packed, "-o", flat, "--to", "safetensors", "-f")
        return flat

    def names_of(self, packed, mode, stated):
        """{name: tensor as it was}: names from tersor, bytes that are this file's own; None if states are decoded."""
        if mode == "lossless" or not hasattr(self, "exact"):
            source = packed
            if mode != "lossless":
                source = self.into("names.packed.safetensors")
                self.tersor("pack", self.path, "-o", source, *LOSSLESS)
            self.exact = without_tree(anyfile.read(self.unpacked_flat(source, "names"))[1])["tensors"]
            here = {(t.dtype, t.shape, t.content()) for t in self.tensors}
            there = {(t.dtype, t.shape, t.content()) for t in self.exact.values()}
            self.decoded = here != there
            if self.decoded and not self.is_compressed():
                fail("lossless", f"{len(here - there)} tensors are not there, {len(there - here)} others are")
        if self.decoded:
            return None
        set(stated) - {"tersor::tree"} <= set(self.exact) or fail("report", f"names {missing(stated, self.exact)}")
        return self.exact

    def is_compressed(self):
        said = self.tersor("inspect", self.path)
        return "compressed states" in said.stdout + said.stderr

    def judge(self, stated, exact, lossy):
        """equal() for tensors of the file and of what was unpacked, by the figures that are stated."""
        judged = {}
        by_content = collections.defaultdict(list)
        kept = beside_quantized(exact) if self.report.quantized else set()
        for name, t in exact.items():
            by_content[t.dtype, t.shape, t.content()].append(name)
            said = stated.get(name)
            other = lossy.get(name) or fail(name, "is not in the unpacked file")
            (other.dtype, other.shape) == (t.dtype, t.shape) or fail(name, f"{t} became {other}")
            if said is None or "error" not in said or name in kept:
                t.content() == other.content() or fail(name, "belongs to a quantized weight and differs" if name in kept
                                                       else "is stated to be raw and differs")
            else:
                check_figures(name, t, other, said["error"])
            judged[name] = other

        def equal(a, b, at):
            names = by_content.get((a.dtype, a.shape, a.content())) or fail(at, "is in no packed tensor")
            if not any(judged[n].content() == b.content() for n in names):
                fail(at, f"values are not those of {names[0]}")
        return equal

    def recoded(self, packed):
        """Coded planes lose nothing: as they were without, byte for byte."""
        plain, coded, default = self.into("plain.packed.safetensors"), self.into("coded.packed.safetensors"), self.into("default.packed.safetensors")
        self.tersor("convert", packed, "-o", plain, "--plain")
        if default.exists() and default.read_bytes() != plain.read_bytes():
            fail("convert --plain", "does not give the bytes of pack without --entropy")
        self.tersor("convert", plain, "-o", coded, "--entropy")
        coded.read_bytes() == packed.read_bytes() or fail("convert --entropy", "does not give the bytes of pack --entropy")


def beside_quantized(tensors):
    """Names of floats that say what the integers or 8-bit floats of a weight mean: those of its module, or below it."""
    quantized = {n for n, t in tensors.items() if re.match("U8|I8|I32|F8", t.dtype) and t.numel >= 16
                 and re.search("weight$|weight_packed$|[.]_data$", n)}
    owners = {n.rpartition(".")[0] + "." for n in quantized if "." in n} | {n + "." for n in quantized}
    return {n for n, t in tensors.items() if t.dtype in ("F32", "F16", "BF16") and n not in quantized
            and not n.endswith("bias") and any(n.startswith(o) and "." not in n[len(o):] for o in owners)}


class Anything(dict):
    def setdefault(self, key, value):
        return value


def without_tree(value):
    if isinstance(value, dict) and "tensors" in value:
        return {**value, "tensors": {n: t for n, t in value["tensors"].items() if n != "tersor::tree"}}
    return value


def loosely(tree, dcp):
    """The leaves of a tree and of a DCP directory: integer keys are text there, empty dicts are gone."""
    def leaves(pairs):
        return {tuple(map(str, at)): leaf for at, leaf in pairs}
    a = leaves(walk(tree))
    b = {}
    for name, value in dcp["entries"].items():
        at = (dcp["planner"] or {}).get(name, (name,))
        b.update(leaves((((*at, *more), leaf) for more, leaf in walk(value))))
    a.keys() == b.keys() or fail("leaves", missing(a, b))
    comparison = Comparison(whole=False, grad=False)
    for at in a:
        comparison.same(a[at], b[at], ".".join(at))


def nested(dcp, tree):
    a = {}
    for name, value in dcp["entries"].items():
        a[tuple(map(str, (dcp["planner"] or {}).get(name, (name,))))] = value
    for at, value in a.items():
        found = tree
        for key in at:
            if isinstance(found, (list, tuple)):
                found = found[int(key)]
            else:
                found = next((v for k, v in found.items() if str(k) == key), None)
        comparison = Comparison(whole=False)
        comparison.same(value, found, ".".join(at))


# --- A directory ------------------------------------------------------------------------------------------------

class DirectoryTrip:
    def __init__(self, path, tersor, work, report):
        self.path, self.tersor, self.work, self.report = path, tersor, work, report

    def run(self, modes):
        for mode, options in modes.items():
            Trip.step(self, f"pack directory {mode}", lambda m=mode, o=options: self.pack(m, o))

    def pack(self, mode, options):
        packed, back = self.work / f"dir-{mode}", self.work / f"dir-{mode}-back"
        self.tersor("pack", self.path, "-o", packed, *options)
        verified(self.tersor, packed, self.path)
        self.tersor("unpack", packed, "-o", back)
        index = {e["path"]: e for e in json.loads((packed / "tersor.json").read_text())["entries"]}
        here, there = entries(self.path), entries(back)
        dcp = {p for p in here if here[p] == "dcp"}
        for p in (here.keys() ^ there.keys()):
            if not any(p.startswith(str(d)) for d in dcp):
                fail(p, "is lost" if p in here else "is new")
        equal = packed_files = 0
        for p in here:
            here[p] == there[p] or fail(p, f"{here[p]} became {there[p]}")
            (self.path / p).stat().st_mode == (back / p).stat().st_mode or fail(p, "permissions differ")
            if here[p] == "file":
                same = (self.path / p).read_bytes() == (back / p).read_bytes()
                equal += same
                entry = index.get(p) or fail(p, "is not in tersor.json")
                if entry["as"] != "packed":
                    same or fail(p, f"is {entry['as']} and differs")
                    continue
            if here[p] in ("file", "dcp"):
                packed_files += self.packed_file(mode, p, packed, back, here[p])
        return f"{packed_files} packed and compared, {equal} files equal"

    def packed_file(self, mode, p, packed, back, what):
        holder = packed / p / "dcp.tersor" if what == "dcp" else packed / (p + ".tersor")
        if not holder.exists():
            return 0
        work = self.work / f"file-{mode}-{p.replace('/', '-')}"
        work.mkdir()
        trip = Trip(self.path / p, self.tersor, work, self.report)
        header = packed_text.read(holder)
        stated = {t["name"]: t for t in header["tensors"]}
        lossless = holder
        if mode != "lossless":
            lossless = self.work / "dir-lossless" / holder.relative_to(packed)
            if not lossless.exists():
                lossless = None
        lossy = anyfile.read(trip.unpacked_flat(holder, mode))[1]["tensors"]
        value = anyfile.read(back / p)[1]
        if lossless is None:                       # not smaller without loss: copied there, so names from its file
            exact = trip.names_of(None, mode, stated)
        else:
            exact = without_tree(anyfile.read(trip.unpacked_flat(lossless, "names"))[1])["tensors"]
        try:
            trip.compare(value, trip.judge(stated, exact, lossy))
        except Differs as e:
            raise Differs(f"{p}: {e}") from e
        return 1


def entries(root):
    """{path: "file", "directory", "link" or "dcp"}; what is in a DCP directory is part of that, but for files beside."""
    found = {}
    for folder, folders, files in os.walk(root):
        at = pathlib.Path(folder)
        is_dcp = (at / ".metadata").is_file() and any(f.endswith(".distcp") for f in files)
        found[at.relative_to(root).as_posix()] = "dcp" if is_dcp else "directory"
        for f in files:
            p = at / f
            if is_dcp and (f == ".metadata" or f.endswith(".distcp")):
                continue
            found[p.relative_to(root).as_posix()] = "link" if p.is_symlink() else "file"
    return found


# --- All of it --------------------------------------------------------------------------------------------------

class Report:
    def __init__(self, quiet=False, quantized=True, keep=None):
        self.quantized, self.keep, self.pairs = quantized, keep, []
        self.quiet, self.counts, self.faults, self.seconds = quiet, collections.Counter(), [], time.time()

    def line(self, mark, path, what, said):
        if not self.quiet or mark == "WRONG":
            print(f"{mark:8}{path}: {what}" + (f": {said}" if said else ""), flush=True)

    def ok(self, path, what, said):
        self.counts["same"] += 1
        self.line("same", path, what, said)

    def refused(self, path, what, said):
        self.counts["refused"] += 1
        self.line("refused", path, what, said)

    def wrong(self, path, what, said):
        self.counts["wrong"] += 1
        self.faults.append((str(path), what, said))
        self.line("WRONG", path, what, said)

    def pair(self, path, copy):
        """A .pt and what it became without loss, for torch_pairs.py."""
        if self.keep and path.is_file():
            kept = pathlib.Path(self.keep) / f"{len(self.pairs)}.pt"
            shutil.copyfile(copy, kept)
            self.pairs.append((str(path), str(kept)))

    def with_torch(self, python):
        """torch.load itself takes the copies, and has equal values."""
        given = "".join(f"{a}\t{b}\n" for a, b in self.pairs)
        script = pathlib.Path(__file__).resolve().parent / "helpers" / "torch_pairs.py"
        done = subprocess.run([*python, script], input=given, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            path, said = line.split("\t", 1)
            (self.wrong if said.startswith("WRONG") else self.ok)(path, "torch.load", said)

    def other(self, path, said):
        self.counts["other"] += 1
        self.line("other", path, said, "")


def is_checkpoint(path):
    try:
        return anyfile.kind_of(path) is not None
    except OSError:
        return False


def room_for(path):
    """Memory, where all the copies of a small checkpoint fit into it: every output is synced."""
    files = path.rglob("*") if path.is_dir() else [path]
    need, shm = 40 * sum(f.stat().st_size for f in files if f.is_file()), pathlib.Path("/dev/shm")
    return shm if shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 2 * need + 2**24 else None


def roundtrip(path, tersor, report, modes=None, files=True):
    """Everything above for a path, in a temporary directory."""
    path, modes = pathlib.Path(path), modes or MODES
    call = Tersor(tersor, report)
    todo = []
    if path.is_dir():
        if not (path / ".metadata").is_file():
            todo.append((DirectoryTrip, path))
        if files or (path / ".metadata").is_file():
            dcp = [p for p in (path, *sorted(path.rglob("*"))) if p.is_dir() and (p / ".metadata").is_file()]
            todo += [(Trip, p) for p in dcp]
            todo += [(Trip, p) for p in sorted(path.rglob("*")) if p.is_file() and p.suffix != ".distcp" and is_checkpoint(p)]
    else:
        todo.append((Trip, path))
    for trip, p in todo:
        with tempfile.TemporaryDirectory(prefix="roundtrip-", dir=room_for(p)) as work:
            try:
                one = trip(p, call, pathlib.Path(work), report)
            except Unreadable as e:
                report.other(p, f"not read here: {e}")
                continue
            if isinstance(one, Trip) and one.kind is None:
                report.other(p, "is no checkpoint")
                continue
            one.run(modes)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("path", nargs="+")
    p.add_argument("--tersor", default=os.environ.get("TERSOR", "build/tersor"))
    p.add_argument("--all", action="store_true")
    p.add_argument("--no-files", action="store_true")
    p.add_argument("--torch")
    p.add_argument("-q", action="store_true")
    args = p.parse_args()
    if not shutil.which(args.tersor):
        p.error(f"{args.tersor}: no such program; --tersor names it")
    with tempfile.TemporaryDirectory(prefix="roundtrip-kept-") as kept:
        report = Report(args.q, keep=kept if args.torch else None)
        for path in args.path:
            roundtrip(path, args.tersor, report, {**MODES, **MORE_MODES} if args.all else MODES, not args.no_files)
        if args.torch:
            report.with_torch([args.torch])
    c = report.counts
    print(f"{c['same']} the same, {c['refused']} refused as documented, {c['other']} not checkpoints, {c['wrong']} wrong, "
          f"{time.time() - report.seconds:.1f} s")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
