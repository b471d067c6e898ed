# SPDX-License-Identifier: Apache-2.0
"""Load packed checkpoints of `tersor` into a PyTorch model and optimizer, and save them.

    import tersor_torch
    tersor_torch.save("step-400.safetensors", model, optimizer)     # packs with the binary
    tersor_torch.load("step-400.safetensors", model, optimizer)     # in place
    value = tersor_torch.read("step-400.safetensors")               # as torch.load() of the source

load() and read() take a packed file, the file beside a plain model (model.safetensors.tersor), the
index of shards, or a directory that `tersor pack DIR -o OUT/` wrote.  Tensors are decoded one after
the other, in pieces, straight into their parameters: there is no FP32 copy on disk, nor a second
one in memory.  With FSDP2, TP or DDP every rank calls load() and save(), and decodes only its part; any
rank may call read().

The formulas are those of docs/format.md, sections 6 to 8, and give the bits that `tersor unpack`
gives.  Hashes are checked by `tersor verify` beforehand; it is the program that $TERSOR names, the
one of the Python package whose module this is, or `tersor` in the PATH, and check=False does without.
"""
import base64
import collections
import importlib
import json
import mmap
import os
import pickle
import shutil
import struct
import subprocess
import tempfile

import torch

CHUNK = 1 << 20     # elements that are decoded at once
WRAPPERS = {"module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}
TREE, TREE_ENTRY = "tersor::tree", "tersor_tree"

# The types of arrays; unsigned ones that PyTorch has not always had are read as signed.
DTYPES = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "int16", "F16": "float16",
          "BF16": "bfloat16", "I32": "int32", "U32": "int32", "F32": "float32", "C64": "complex64",
          "F64": "float64", "I64": "int64", "U64": "int64", "F8_E4M3": "float8_e4m3fn",
          "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
          "F8_E5M2FNUZ": "float8_e5m2fnuz"}
UNSIGNED = {"U16": "uint16", "U32": "uint32", "U64": "uint64"}


# ---- Files: docs/format.md, sections 3 and 5 -----------------------------------------------------

class File:
    """A safetensors file: its metadata, and its arrays as views of the mapped file."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.bytes = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
        self.start = 8 + struct.unpack("<Q", self.bytes[:8])[0]
        self.arrays = json.loads(self.bytes[8:self.start])
        self.metadata = self.arrays.pop("__metadata__", {})

    def array(self, name, dtype, first, count):
        """Some consecutive elements of an array, read as a type of PyTorch."""
        begin, end = self.arrays[name]["data_offsets"]
        offset = begin + first * torch.empty((), dtype=dtype).element_size()
        if count == 0 or offset >= end:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self.bytes, dtype=dtype, count=count, offset=self.start + offset)


class Tensor:
    """A tensor of the source, decoded on demand."""

    def __init__(self, entry, files):
        self.name, self.kind, self.shape = entry["name"], entry["kind"], entry["shape"]
        self.narrow = entry.get("narrow", self.name)
        self.beside, self.eps = entry.get("beside"), entry.get("eps")
        self.codec, self.scale, self.group = entry["codec"], entry.get("scale"), entry.get("group")
        self.row = self.shape[-1] if entry.get("rows") else None
        if self.row:                    # section 4.4: groups that end with the rows
            self.group = -(-self.row // (self.row // self.group))
        self.stored, self.files = entry["dtype"], files
        known = UNSIGNED.get(self.stored, DTYPES.get(self.stored, ""))
        self.dtype = getattr(torch, known, None) or getattr(torch, DTYPES[self.stored])

    def plane(self, suffix, dtype, first, count):
        name = self.name + suffix if suffix else self.narrow
        file = next(f for f in self.files if name in f.arrays)
        return file.array(name, getattr(torch, dtype), first, count)

    def elements(self, first, count):
        """Some consecutive elements, flat."""
        if self.codec == "raw":
            return self.plane("", DTYPES[self.stored], first, count).view(self.dtype)
        values = decode(self, first, count)
        if self.beside:                 # section 8.13: ratios to the roots of a tensor, which is it by now
            root = self.beside.elements(first, count).float().sqrt()
            values = values * (root + torch.tensor(self.eps, dtype=torch.float32))
        return values.to(self.dtype)

    def whole(self):
        result = torch.empty(self.shape, dtype=self.dtype)
        fill(result, self)
        return result


# ---- Codecs: sections 6 to 8 ---------------------------------------------------------------------
#
# Each operation on float32 tensors is one rounding (RN of the document).

def from_bits(bits):
    """float32 of the 32 low bits of integers."""
    bits = bits & 0xffffffff
    return torch.where(bits > 0x7fffffff, bits - 2**32, bits).to(torch.int32).view(torch.float32)


def widen(stored, narrow):
    """Section 6; `stored` are the patterns, as int16.  Integers keep a signaling NaN as it is."""
    n = stored.long() & 0xffff
    if narrow == "bf16":
        return from_bits(n << 16)
    if narrow == "e4m3":                # its NaN: section 8.10 widens nothing else
        return from_bits(0x7fc00000 | (n & 0x80) << 24)
    if narrow == "e5m2":
        n = n << 8
    sign, exponent, mantissa = n >> 15 << 31, n >> 10 & 31, n & 0x3ff
    wide = torch.where(exponent == 31, 255, exponent + 112) << 23 | mantissa << 13
    tiny = (mantissa.float() * 2.0**-24).view(torch.int32).long()
    return from_bits(sign | torch.where(exponent == 0, tiny, wide))


def decode(t, first, count):
    """Elements `first` to `first + count - 1` of a packed tensor, as float32."""
    narrow, _, rest = t.codec.partition("+")
    if t.codec == "f32":
        return t.plane("", "float32", first, count)
    if t.group:
        return decode_group(t, first, count)
    stored = t.plane("", "uint8" if narrow in ("e5m2", "e4m3") else "int16", first, count)
    if not rest:
        return widen(stored, narrow)
    if rest.startswith(("trunc", "sr")):
        return decode_truncated(t, stored, narrow, first, count)
    correction = t.plane("::error_bits", "int8" if rest == "ulp8" else "int16", first, count)
    if rest.startswith("ulp"):
        return decode_ulp(stored, narrow, correction)
    if rest == "exact16":
        magnitude = ((stored.long() & 0x7fff) << 16) + correction.long()
        return from_bits(magnitude & 0x7fffffff | (stored.long() & 0x8000) << 16)
    n, r = widen(stored, narrow), widen(correction, narrow)
    return torch.where((r == 0) | ~torch.isfinite(n), n, n + r)


def decode_ulp(stored, narrow, q):
    """Section 8.3.  The sum is exact in float64, and its conversion the one rounding."""
    shift, mask, bias = (7, 0xff, 135) if narrow == "bf16" else (10, 0x1f, 26)
    exponent = stored.long() >> shift & mask
    n = widen(stored, narrow)
    c = q.float() / (127.0 if q.dtype == torch.int8 else 32767.0)
    power = (exponent.clamp(min=1) - bias + 1023 << 52).view(torch.float64)
    corrected = (n.double() + c.double() * power).float()
    return torch.where((exponent == mask) | (q == 0), n, corrected)


def group_at(t, element):
    """Which group elements are in: section 4.4."""
    if not t.row:
        return element // t.group
    return element // t.row * -(-t.row // t.group) + element % t.row // t.group


def decode_group(t, first, count):
    """Sections 7 and 8.6 to 8.9."""
    at = group_at(t, torch.arange(first, first + count))
    begin, end = (int(at[0]), int(at[-1]) + 1) if count else (0, 0)
    stored = {"f32": "float32", "f28": "int32"}.get(t.scale, "int16")
    scales = t.plane("::scales", stored, begin, end - begin)
    if t.scale == "e8m8":
        scales = from_bits((scales.long() & 0xffff) << 15)
    elif t.scale == "f16":
        scales = widen(scales, "fp16")
    s = scales[at - begin]
    if t.codec == "log8":               # section 8.17
        c = t.plane("::quantized", "uint8", first, count)
        octaves = torch.tensor([0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 13, 17, 24], dtype=torch.float64)
        power = torch.exp2(-(255 - c.double()) * octaves[s.long() & 15] / 254).float()
        r = torch.where(c == 0, 0.0, power) * from_bits(s.long() & 0xfffffff0)
        return r * r
    signed = t.codec in ("softsign8", "linear8", "ratio8")
    q = t.plane("::quantized", "int8" if signed else "uint8", first, count).float()
    if t.codec in ("softsign8", "ratio8"):
        return s * (q / (254.0 - q.abs()))
    if t.codec == "linear8":
        return q / 127.0 * s
    r = q / 255.0 * s
    return r * r if t.codec == "sqrt8" else r


def decode_truncated(t, stored, narrow, first, count):
    """Sections 4.5 and 8.10: 32 elements share p words of 32 bits."""
    stochastic = "+sr" in t.codec
    k = int(t.codec.partition("+")[2].strip("truncs"))
    p = k + stochastic
    block = first // 32
    words = t.plane("::extra_bits", "int32", block * p, (-(-(first + count) // 32) - block) * p if count else 0)
    words = words.view(-1, p).long() & 0xffffffff
    at = torch.arange(32) * p
    low, high = at // 32, (at // 32 + 1).clamp(max=p - 1)
    v = (words[:, low] >> at % 32 | words[:, high] << 32 - at % 32) & (1 << p) - 1
    v = v.reshape(-1)[first - 32 * block:][:count]
    top = 7 if narrow in ("e5m2", "e4m3") else 15
    m = stored.long() & (1 << top) - 1
    special = m >= {"bf16": 0x7f80, "fp16": 0x7c00, "e5m2": 0x7c, "e4m3": 0x7f}[narrow]
    m = m - (v >> k & (m > 0).long())
    x = (m << 16) + ((v & (1 << k) - 1) << 16 - k)
    sign = (stored.long() >> top & 1) << 31
    if narrow != "bf16":                # X of 1, the least normal weight, and where its bits go
        unit, normal, shift, offset = {"fp16": (2.0**-40, 0x400, -3, 0x38000000),
                                       "e5m2": (2.0**-32, 4, 5, 0x38000000),
                                       "e4m3": (2.0**-25, 8, 4, 0x3c000000)}[narrow]
        tiny = (x.float() * unit).view(torch.int32).long()
        x = torch.where(m < normal, tiny, (x >> -shift if shift < 0 else x << shift) + offset)
    return torch.where(special, widen(stored, narrow), from_bits(x | sign))


# ---- Checkpoints ---------------------------------------------------------------------------------

class Checkpoint:
    """The tensors of a packed checkpoint by name, in all its files, and its trees."""

    def __init__(self, path, check=True):
        if check:
            verify(path)
        self.tensors, self.trees = {}, []
        for packed in files_of(os.fspath(path)):
            self._add(packed)
        for t in self.tensors.values():
            if t.beside:
                t.beside = self.tensors[t.beside]
            if t.narrow != t.name:      # a master copy: its plane 0 may be in another shard
                t.files = t.files + self.tensors[t.narrow].files

    def _add(self, path):
        file = File(path)
        if "tersor" not in file.metadata:
            raise ValueError(f"{path} is not a packed file")
        text = json.loads(file.metadata["tersor"])
        if text["version"] != 1:
            raise ValueError(f"{path}: unknown version {text['version']}")
        if "entropy" in text:
            raise ValueError(f"{path}: planes are entropy coded: tersor convert --plain makes it readable here")
        files = [file]
        if "weights" in text:
            name = text["weights"]
            if os.path.basename(name) != name or name in ("", ".", ".."):
                raise ValueError(f"{path}: weights is not the name of a file")
            files.append(File(os.path.join(os.path.dirname(path), name)))
        tensors = {entry["name"]: Tensor(entry, files) for entry in text["tensors"]}
        pickled = tensors.pop(TREE, None)
        if pickled:
            self.trees.append(bytes(pickled.whole().tolist()))
        elif TREE_ENTRY in file.metadata:
            self.trees.append(base64.b64decode(file.metadata[TREE_ENTRY], validate=True))
        for name in tensors.keys() & self.tensors.keys():
            raise ValueError(f"{path}: tensor {name} is in another file too")
        self.tensors.update(tensors)


def files_of(path):
    """The packed files of a checkpoint."""
    if os.path.isdir(path):
        with open(os.path.join(path, "tersor.json")) as f:
            entries = json.load(f)["entries"]
        return [os.path.join(path, e["files"][-1]["path"]) for e in entries if e["as"] == "packed"]
    if path.endswith(".index.json"):
        with open(path) as f:
            names = sorted(set(json.load(f)["weight_map"].values()))
        return [os.path.join(os.path.dirname(path), name) for name in names]
    return [path]


class Opaque:
    """What stands in a tree for an object that is not a plain value: nothing is imported or called."""
    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        self.args = args

    def __setstate__(self, state):
        self.state = state

    def append(self, item):
        pass

    def extend(self, items):
        pass

    def __setitem__(self, key, value):
        pass


class Tree(pickle.Unpickler):
    """What was saved around the tensors; `tensor` makes one from its name (section 5.6)."""

    def __init__(self, file, tensor):
        super().__init__(file)
        rebuild = lambda name, *_: tensor(name)
        self.known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("collections", "defaultdict"): lambda *_: {}, ("builtins", "set"): set,
            ("builtins", "complex"): complex, ("torch", "Size"): torch.Size,
            ("torch._utils", "_rebuild_tensor_v2"): rebuild,
            ("torch._utils", "_rebuild_tensor_v3"): rebuild,
            ("torch._utils", "_rebuild_parameter"): lambda data, *_: data}

    def persistent_load(self, pid):
        return pid[2]

    def find_class(self, module, name):
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        return self.known.get((module, name)) or type(name, (Opaque,), {"__module__": module})


def read(path, check=True):
    """What torch.load() of the unpacked file would return, or a list of it if there are several;
    without a tree, tensors by name.  Objects that are not plain values are Opaque."""
    import io
    checkpoint = Checkpoint(path, check)
    made = {}

    def tensor(name):
        if name not in made:        # tied ones are one tensor
            made[name] = checkpoint.tensors[name].whole()
        return made[name]
    trees = [Tree(io.BytesIO(tree), tensor).load() for tree in checkpoint.trees]
    if not trees:
        return {name: tensor(name) for name in checkpoint.tensors}
    return trees[0] if len(trees) == 1 else trees


# ---- Into a model and an optimizer ---------------------------------------------------------------

def part_of(t):
    """Where this rank's part of a DTensor begins, and how long it is, per dimension."""
    start, size = [0] * t.ndim, list(t.shape)
    for i, placement in enumerate(getattr(t, "placements", ())):
        rank, n = t.device_mesh.get_local_rank(i), t.device_mesh.size(i)
        if type(placement).__name__ == "Shard":     # torch.chunk() of what the ones before left
            d = placement.dim
            chunk = -(-size[d] // n)
            begin = min(rank * chunk, size[d])
            start[d], size[d] = start[d] + begin, min(chunk, size[d] - begin)
        elif type(placement).__name__ != "Replicate":
            raise ValueError(f"a tensor is placed as {placement}: not loadable")
    return start or [0], size or [1]


def fill(target, source):
    """Decode a tensor, or of a DTensor the local part, into `target`, rows by rows."""
    start, size = part_of(target)
    local = (target.to_local() if hasattr(target, "to_local") else target).detach()
    shape = list(source.shape) or [1]
    if list(target.shape) != list(source.shape):
        raise ValueError(f"{source.name}: found shape {source.shape}, expected {list(target.shape)}")
    if local.numel() == 0:
        return
    if list(local.shape or [1]) != size:
        raise ValueError(f"{source.name}: found a local part {list(local.shape)}, expected {size}")
    row = torch.Size(shape[1:]).numel()
    rows = max(1, CHUNK // max(row, 1))
    out = local if local.ndim else local.view(1)
    for at in range(0, size[0], rows):
        n = min(rows, size[0] - at)
        block = source.elements((start[0] + at) * row, n * row).view(n, *shape[1:])
        out[at:at + n].copy_(block[(slice(None), *(slice(s, s + k) for s, k in zip(start[1:], size[1:])))])


def canonical(name):
    """A name without what wrappers add, as docs/names.md compares names."""
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    while len(parts) > 1 and parts[0] == "model":
        parts = parts[1:]
    return ".".join(parts)


def without_roots(name):
    """The name of a state without the keys of an optimizer's state_dict."""
    while name.startswith(("optimizer.", "optim.", "state.")):
        name = name.partition(".")[2]
    return name


def load(path, model, optimizer=None, strict=True, check=True):
    """Decode a checkpoint into a model and an optimizer, in place.

    strict: raise KeyError for a tensor of the model that the checkpoint lacks, and, if the checkpoint is
    of a flat file, for a weight that the model lacks.  An optimizer gets the states of its parameters, and the hyperparameters of its
    groups if the checkpoint has them.  Returns the names of tensors that nothing was done with.
    """
    if check:
        run_once(lambda: verify(path))
    checkpoint = Checkpoint(path, check=False)
    unused = dict.fromkeys(checkpoint.tensors)
    by_canonical = {canonical(name): t for name, t in checkpoint.tensors.items()}
    names, tensors = {}, {}
    for name, t in model.state_dict(keep_vars=True).items():
        if isinstance(t, torch.Tensor):
            names.setdefault(id(t), []).append(name)    # tied ones have several
            tensors[id(t)] = t
    missing = []
    for key, target in tensors.items():
        found = [checkpoint.tensors.get(n) or by_canonical.get(canonical(n)) for n in names[key]]
        found = [t for t in found if t]
        if found:
            fill(target, found[0])
        else:
            missing.append(names[key][0])
        for t in found:
            unused.pop(t.name, None)
    if optimizer:
        load_optimizer(checkpoint, optimizer, names, unused)
    # What is saved with a tree says where everything belongs: an EMA copy there is not too much.
    known = {canonical(name) for aliases in names.values() for name in aliases}
    extra = [name for name in unused if checkpoint.tensors[name].kind == "weight"
             and canonical(name.rpartition(".")[0]) not in known and not checkpoint.trees]
    if strict and (missing or extra):
        raise KeyError(f"{path}: not in the checkpoint: {missing}; not in the model: {extra}")
    return list(unused)


def load_optimizer(checkpoint, optimizer, names, unused):
    states = {}     # by name or number of a parameter: its state, tensors as those of the checkpoint
    for name in list(unused):
        base, _, field = without_roots(name).rpartition(".")
        states.setdefault(canonical(base), {})[field] = checkpoint.tensors[name]
    saved = find_optimizer(checkpoint)
    for key, state in (saved["state"] if saved else {}).items():
        plain = {k: v for k, v in state.items() if not isinstance(v, Tensor)} \
            if isinstance(state, dict) else {}
        states.setdefault(canonical(str(key)), {}).update(plain)
    number = -1
    for group in optimizer.param_groups:
        for p in group["params"]:
            number += 1
            keys = [canonical(name) for name in names.get(id(p), [])] + [str(number)]
            state = next((states[key] for key in keys if key in states), {})
            for field, value in state.items():
                optimizer.state[p][field] = state_of(p, field, value, group)
                if isinstance(value, Tensor):
                    unused.pop(value.name, None)
    if saved and len(saved["param_groups"]) == len(optimizer.param_groups):
        for group, old in zip(optimizer.param_groups, saved["param_groups"]):
            group.update({k: v for k, v in old.items()
                          if k not in ("params", "param_names") and not isinstance(v, (Opaque, Tensor))})


def state_of(p, field, value, group):
    """A value of the state of a parameter: placed like it, if it is shaped like it."""
    if not isinstance(value, Tensor):
        return value
    if list(value.shape) == list(p.shape) and field != "step":
        result = torch.zeros_like(p.detach(), dtype=value.dtype)
        fill(result, value)
        return result
    there = field != "step" or group.get("capturable") or group.get("fused")
    return value.whole().to(p.device if there else "cpu")


def find_optimizer(checkpoint):
    """The state_dict of the one optimizer in what was saved, with Tensor for tensors; or None."""
    import io
    found, todo = [], [Tree(io.BytesIO(t), checkpoint.tensors.get).load() for t in checkpoint.trees]
    while todo:
        value = todo.pop()
        if isinstance(value, dict) and isinstance(value.get("state"), dict) and \
                isinstance(value.get("param_groups"), list):
            found.append(value)
        elif isinstance(value, (dict, list, tuple)):
            todo += value.values() if isinstance(value, dict) else value
    return found[0] if len(found) == 1 else None


# ---- Saving --------------------------------------------------------------------------------------

def save(path, model, optimizer=None, options=(), scratch=None, **more):
    """Pack a model, its optimizer and any other values into one file, which is replaced if it exists.

    options: more options of `tersor pack`.  scratch: a directory for what torch writes and tersor
    packs, then removed: by default in memory (/dev/shm).  Of a sharded model every rank writes its part
    with torch.distributed.checkpoint, beside `path`, where all ranks must see it.
    """
    sharded = any(hasattr(t, "placements") for t in model.state_dict().values())
    path = os.fspath(path)
    if sharded:
        scratch = scratch or path + ".scratch"
        save_sharded(scratch, model, optimizer, more)
        run_once(lambda: pack(scratch, path, options))
        return
    if not is_first():
        run_once(lambda: None)
        return
    folder = tempfile.mkdtemp(dir=scratch or ("/dev/shm" if os.path.isdir("/dev/shm") else None))
    value = {"model": model.state_dict(), **more}
    if optimizer:
        value["optimizer"] = with_names(optimizer, model)
    try:
        torch.save(value, os.path.join(folder, "checkpoint.pt"))
    except BaseException:
        shutil.rmtree(folder)
        raise
    run_once(lambda: pack(folder, path, options, "checkpoint.pt"))


def with_names(optimizer, model):
    """The state_dict of an optimizer, whose groups say which parameters they have."""
    names = {id(p): name for name, p in model.named_parameters()}
    state = optimizer.state_dict()
    groups = [{**saved, "param_names": [names[id(p)] for p in group["params"]]}
              for saved, group in zip(state["param_groups"], optimizer.param_groups)]
    return {**state, "param_groups": groups}


def save_sharded(folder, model, optimizer, more):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    value = {"model": get_model_state_dict(model), **more}
    if optimizer:
        value["optim"] = get_optimizer_state_dict(model, optimizer)
    dcp.save(value, checkpoint_id=folder)


def pack(folder, path, options, name=""):
    try:
        run("pack", os.path.join(folder, name), "-o", path, "-f", "-q", "--no-progress", *options)
    finally:
        shutil.rmtree(folder)


# ---- The program, and ranks ----------------------------------------------------------------------

def find_program():
    if os.environ.get("TERSOR"):
        return os.environ["TERSOR"]
    if __package__ == "tersor":         # the wheel has this file as tersor.torch, and the program
        return importlib.import_module(__package__).program()
    program = shutil.which("tersor")
    if not program:
        raise FileNotFoundError("tersor is not in the PATH, and $TERSOR does not name it")
    return program


def run(*args):
    done = subprocess.run([find_program(), *map(os.fspath, args)], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"tersor {args[0]}: exit status {done.returncode}")


def verify(path):
    """Check every hash; objects in a tree do not matter, as nothing here imports or calls them."""
    run("verify", "-qq", "--allow-nonfinite", "--opaque", "carry", path)


def distributed():
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def is_first():
    return not distributed() or torch.distributed.get_rank() == 0


def run_once(work):
    """Do something on the first rank; the others wait for it and fail with it."""
    error = None
    if is_first():
        try:
            work()
        except Exception as e:  # to be raised on every rank
            error = e
    if distributed():
        box = [error]
        torch.distributed.broadcast_object_list(box, src=0)
        error = box[0]
    if error:
        raise error
