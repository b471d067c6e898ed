# SPDX-License-Identifier: Apache-2.0
"""Packed checkpoints in a PyTorch model and optimizer, and saving them.

    import tersor.torch
    tersor.torch.save("step-400.safetensors", model, optimizer)         # or async_save: in the background
    tersor.torch.load("step-400.safetensors", model, optimizer)         # in place
    value = tersor.torch.read("step-400.safetensors")                   # as torch.load() of the source

load() and read() take everything that `tersor unpack` takes: a packed file, the file next to a plain
model (model.safetensors.tersor), the index of shards, a delta whose base is there, entropy-coded files,
or a directory that `tersor pack DIR -o OUT/` wrote.  libtersor decodes: there is no formula here, and
the bits are those of `tersor unpack`.  Tensors are decoded one after the other, in pieces, straight into
their parameters: there is no FP32 copy on disk, nor a second one in memory.  With FSDP2, TP or DDP every
rank calls load(), and decodes only its part; any rank may call read().  The program checks hashes before
anything is loaded (check=False: it does not).
"""
from __future__ import annotations

import collections
import io
import os
import pickle
from typing import Any, List, Optional

import numpy
import torch

from tersor import commands, library
from tersor.ranks import part_of, run_once
from tersor.saving import Saved, async_save, latest, save, save_value
from tersor.structure import DTYPES

__all__ = ["Checkpoint", "Opaque", "Saved", "async_save", "latest", "load", "read", "save",
           "save_value"]

CHUNK = 1 << 20     # elements that are decoded at once
WRAPPERS = {"module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"}

NAMES = {stored: name for name, stored in DTYPES.items()}


class Tensor(library.Tensor):
    """A tensor of a checkpoint, decoded on demand to one of PyTorch."""

    def __init__(self, file, description):
        super().__init__(file, description)
        name = NAMES.get(self.stored, "")
        self.dtype = getattr(torch, name, None) or getattr(torch, name.lstrip("u"), None)   # before 2.3: as signed
        if not self.dtype:
            raise TypeError(f"tensor {self.name}: PyTorch has no type {self.stored}")

    def elements(self, first, count):
        """Some consecutive elements, flat."""
        values = torch.empty(count, dtype=torch.float32 if self.packed else self.dtype, device="cpu")
        self.read(first, count, values.element_size(), values.data_ptr())
        return values.to(self.dtype)

    def whole(self, stride=None):
        """All of it, with these strides."""
        if stride is None or len(stride) != len(self.shape):
            result = torch.empty(self.shape, dtype=self.dtype, device="cpu")
        else:
            result = torch.empty_strided(self.shape, stride, dtype=self.dtype, device="cpu")
        fill(result, self)
        return result


# ---- Checkpoints ---------------------------------------------------------------------------------

def verify(path):
    """Check every hash; objects in a tree do not matter, as nothing here imports or calls them."""
    commands.verify(path, allow_nonfinite=True)


class Checkpoint:
    """The tensors of a checkpoint by name, in all its files, and its trees."""

    def __init__(self, path, check=True):
        if check:
            verify(path)
        files, self.tensors = library.open_all(path, Tensor)
        self.trees = [tree for tree in (file.tree() for file in files) if tree]


class Opaque:
    """What stands in a tree for an object that is not a plain value: nothing is imported or called."""
    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        self.args = args

    def __setstate__(self, state):
        self.state = state

    append = extend = __setitem__ = lambda self, *_: None


def scalar(kind, data):
    """A number of NumPy, such as a learning rate that was computed with it."""
    try:
        dtype = numpy.dtype(kind.args[0]).newbyteorder(kind.state[1])
        return numpy.frombuffer(data, dtype, 1)[0] if dtype.kind in "biufc" else Opaque(kind, data)
    except (AttributeError, LookupError, TypeError, ValueError):    # no number of NumPy's
        return Opaque(kind, data)


def device(*args):
    try:
        return torch.device(*args)
    except (RuntimeError, TypeError):   # this build has no such kind
        return Opaque(*args)


class Tree(pickle.Unpickler):
    """What was saved around the tensors; `tensor` makes one from its name (section 5.6)."""

    def __init__(self, file, tensor):
        super().__init__(file)
        rebuild = lambda name, offset, size, stride, *_: tensor(name, stride)
        self.known = {
            ("collections", "OrderedDict"): collections.OrderedDict, ("collections", "Counter"): collections.Counter,
            ("collections", "defaultdict"): lambda *_: {}, ("torch", "Size"): torch.Size,
            **{(f"numpy.{core}.multiarray", "scalar"): scalar for core in ("core", "_core")},
            ("torch", "device"): device, ("_codecs", "encode"): lambda text, _: text.encode("latin1"),
            **{("__builtin__", kind.__name__): kind for kind in (set, frozenset, complex, range, slice)},
            ("__builtin__", "xrange"): range, ("__builtin__", "bytes"): lambda: b"",     # what has bytes is encoded
            ("__builtin__", "bytearray"): lambda data=b"", _="": bytearray(
                data if isinstance(data, bytes) else data.encode("latin1")),
            ("torch._utils", "_rebuild_tensor_v2"): rebuild,
            ("torch._utils", "_rebuild_tensor_v3"): rebuild,
            ("torch._utils", "_rebuild_parameter"): lambda data, *_: data}

    def persistent_load(self, pid):
        return pid[2]

    def find_class(self, module, name):
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        return self.known.get((module, name)) or type(name, (Opaque,), {"__module__": module})


def read(path: Any, check: bool = True) -> Any:
    """What torch.load() of the unpacked file would return; without a tree, tensors by name.

    Of a packed directory: a list with what each file that had a tree returns, and last, if other files have
    tensors, these by name.  One thing alone is not in a list.  Objects that are not plain values are Opaque.
    """
    checkpoint = Checkpoint(path, check)
    made = {}

    def tensor(name, stride=None):
        if name not in made:        # tied ones are one tensor
            made[name] = checkpoint.tensors[name].whole(stride)
        return made[name]
    values = [Tree(io.BytesIO(tree), tensor).load() for tree in checkpoint.trees]
    rest = {name: tensor(name) for name in checkpoint.tensors if name not in made}
    if rest or not values:
        values.append(rest)
    return values[0] if len(values) == 1 else values


# ---- Into a model and an optimizer ---------------------------------------------------------------

def fill(target, source):
    """Decode a tensor, or of a DTensor the local part, into `target`, which has its shape."""
    start, size, _ = part_of(target)
    local = (target.to_local() if hasattr(target, "to_local") else target).detach()
    if local.numel() == 0:
        return
    if list(local.shape) != size:
        raise ValueError(f"{source.name}: found a local part {list(local.shape)}, expected {size}")
    copy_part(local, source, start)


def copy_part(out, source, start):
    """Decode the part of a tensor that begins at `start` into all of `out`, rows by rows."""
    if not out.ndim:
        out, start = out.view(1), [0]
    row = torch.Size(source.shape[1:]).numel()
    rows = max(1, CHUNK // max(row, 1))
    rest = [slice(begin, begin + length) for begin, length in zip(start[1:], out.shape[1:])]
    for at in range(0, len(out), rows):
        n = min(rows, len(out) - at)
        block = source.elements((start[0] + at) * row, n * row).view(n, *source.shape[1:])
        out[at:at + n].copy_(block[(slice(None), *rest)])


def canonical(name):
    """A name without what wrappers add, as docs/reading.md compares names."""
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    while len(parts) > 1 and parts[0] == "model":
        parts = parts[1:]
    return ".".join(parts)


def without_roots(name):
    """The name of a state without the keys of an optimizer's state_dict."""
    while name.startswith(("optimizer.", "optim.", "state.")):
        name = name.partition(".")[2]
    return name


def load(path: Any, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None, strict: bool = True,
         check: bool = True) -> List[str]:
    """Decode a checkpoint into a model and an optimizer, in place.

    Parameters
    ----------
    path : path
        Whatever ``tersor unpack`` takes, a plain checkpoint, or the directory of a sharded save, which
        torch.distributed.checkpoint loads onto any number of ranks.
    model, optimizer
        An optimizer gets the states of its parameters, and the hyperparameters of its groups if the checkpoint
        has them; a hyperparameter that is an object stays.  If the state_dict of its class has more, so does it,
        by its load_state_dict.
    strict : bool
        Raise KeyError for a tensor of the model that the checkpoint lacks, and, if the checkpoint is of a flat
        file, for a weight that the model lacks.
    check : bool
        Let the program compare all planes with their hashes first.

    Returns
    -------
    list of str
        The names of tensors that nothing was done with.

    Raises
    ------
    KeyError
        As `strict` says.
    ValueError
        A tensor has another shape; the optimizer has another number of groups than the one in the checkpoint, or
        that has several and none under the key "optimizer", as `save` has it; or a state is an object.

    Of these nothing was changed then.  A ValueError for states that lack what the optimizer's class needs, and one
    for a part of a tensor that is on another rank, come when others are loaded.
    """
    if os.path.isdir(path) and os.path.isfile(os.path.join(path, ".metadata")):
        from tersor import dcp
        if dcp.is_one(path):
            dcp.load_state(path, model, optimizer, check)
            return []
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
    missing, pairs = [], []
    for key, target in tensors.items():
        found = [checkpoint.tensors.get(n) or by_canonical.get(canonical(n)) for n in names[key]]
        found = [t for t in found if t]
        if found:
            pairs.append((target, found[0]))
        else:
            missing.append(names[key][0])
        for t in found:
            unused.pop(t.name, None)
    loading = Loading(checkpoint, optimizer, names, unused) if optimizer else None
    # What is saved with a tree says where everything belongs: an EMA copy there is not too much.
    known = {canonical(name) for aliases in names.values() for name in aliases}
    extra = [name for name in unused if checkpoint.tensors[name].kind == "weight"
             and canonical(name.rpartition(".")[0]) not in known and not checkpoint.trees]
    if strict and (missing or extra):
        raise KeyError(f"{path}: not in the checkpoint: {missing}; not in the model: {extra}")
    for target, source in pairs:
        if list(target.shape) != source.shape:
            raise ValueError(f"{source.name}: found shape {source.shape}, expected {list(target.shape)}")
    for target, source in pairs:
        fill(target, source)
    if loading:
        loading.apply()
    return list(unused)


# ---- An optimizer ----------------------------------------------------------------------------------

def leaves(value, path=()):
    """All that is in dicts, lists and tuples, and the keys that lead there."""
    if not isinstance(value, (dict, list, tuple)):
        yield path, value
        return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(each, (*path, key))


def mapped(value, make, there=None, field=None):
    """A value with what make(tensor, what is there so far, the last key of a dict) gives for its tensors."""
    if isinstance(value, Tensor):
        return make(value, there, field)
    if isinstance(value, dict):
        old = there if isinstance(there, dict) else {}
        return type(value)({k: mapped(v, make, old.get(k), k) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        old = there if isinstance(there, (list, tuple)) and len(there) == len(value) else [None] * len(value)
        return type(value)(mapped(v, make, o, field) for v, o in zip(value, old))
    return value


def is_plain(value):
    return not any(isinstance(each, Opaque) for _, each in leaves(value))


class Loading:
    """What a checkpoint has for an optimizer, checked; `apply` changes the optimizer.

    `names` are those of the parameters by their id.  Takes what goes into the optimizer out of `unused`.
    """

    def __init__(self, checkpoint, optimizer, names, unused):
        self.optimizer, self.saved = optimizer, find_optimizer(checkpoint)
        self.filled = {}        # what each tensor of a group was filled from
        groups = self.saved["param_groups"] if self.saved else []
        n = len(optimizer.param_groups)
        if self.saved and n != len(groups):
            raise ValueError(f"the optimizer has {n} groups of parameters, expected {len(groups)} as in the "
                             "checkpoint: their hyperparameters would be lost")
        self.groups = [{k: v for k, v in group.items() if k not in ("params", "param_names") and is_plain(v)}
                       for group in groups]
        self.more = {k: v for k, v in (self.saved or {}).items()
                     if k not in ("state", "param_groups") and k in optimizer.state_dict()}
        self.check(self.more, "the optimizer")
        states, self.shared = self.find_states(checkpoint, groups, names, unused)
        self.states = []        # parameters with their group and state
        for group in optimizer.param_groups:
            for p in group["params"]:
                state = {}
                for key in (str(len(self.states)), *map(canonical, names.get(id(p), []))):
                    state.update(states.get(key, {}))
                self.check(state, names.get(id(p), ["a parameter"])[0])
                self.states.append((p, group, state))
        for _, t in leaves([self.more, self.shared, self.groups, [state for *_, state in self.states]]):
            if isinstance(t, Tensor):
                unused.pop(t.name, None)

    def find_states(self, checkpoint, groups, names, unused):
        """States by the name or number of their parameter, and what is of none."""
        states, shared = {}, {}
        for name in unused:
            base, _, field = without_roots(name).rpartition(".")
            states.setdefault(canonical(base), {})[field] = checkpoint.tensors[name]
        known = {canonical(name) for aliases in names.values() for name in aliases}
        name_of = {key: name for group in groups
                   for key, name in zip(group.get("params", ()), group.get("param_names", ()))}
        owned = {key for group in groups for key in group.get("params", ())}
        for key, state in self.saved["state"].items() if self.saved else ():
            if isinstance(state, dict) and key in (owned or [key]):
                key = str(name_of.get(key) or self.named(state, known) or key)
                states.setdefault(canonical(key), {}).update(state)
            else:
                self.check({key: state}, "the optimizer")
                shared[key] = state
        return states, shared

    @staticmethod
    def named(state, known):
        """The parameter that the tensors of a state are named for, where the optimizer has a number."""
        for path, t in leaves(state):
            field = "".join(f".{key}" for key in path)
            if isinstance(t, Tensor) and t.name.endswith(field) and path[-1] != "step":     # which may be shared
                base = canonical(without_roots(t.name)[:-len(field)])
                if base in known:
                    return base
        return None

    @staticmethod
    def check(state, name):
        for path, value in leaves(state):
            if isinstance(value, Opaque):
                raise ValueError(f"{name}: state {'.'.join(map(str, path))}: found an object of "
                                 f"{type(value).__module__}.{type(value).__name__}, expected tensors and plain values")

    def apply(self):
        if self.more:
            self.load_more()
        state = self.optimizer.state
        for p, group, values in self.states:
            for field, value in values.items():
                state.setdefault(p, {})[field] = mapped(
                    value, lambda t, _, field: placed(p, field, t, group), field=field)
        for here, values in [(state, self.shared), *zip(self.optimizer.param_groups, self.groups)]:
            for key, value in values.items():
                here[key] = mapped(value, self.hyperparameter, here.get(key))
        if self.saved and not self.more and hasattr(self.optimizer, "__setstate__"):    # as load_state_dict() does
            try:
                self.optimizer.__setstate__({"state": state, "param_groups": self.optimizer.param_groups})
            except KeyError as e:
                raise ValueError(f"{type(self.optimizer).__name__} needs {e} in its states: found those of another "
                                 "optimizer") from None

    def load_more(self):
        """By the class's own load_state_dict(), which casts states and copies groups: these are kept."""
        states, groups = dict(self.optimizer.state), [dict(group) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), **mapped(self.more, self.hyperparameter)})
        self.optimizer.state.update(states)
        for group, kept in zip(self.optimizer.param_groups, groups):
            group.update(kept)

    def hyperparameter(self, source, there, _):
        """Such as a learning rate: into the tensor that is there, so that what shares it goes on to."""
        if not isinstance(there, torch.Tensor):
            return source.whole()
        if list(there.shape) != source.shape or self.filled.setdefault(id(there), source.name) != source.name:
            return source.whole().to(there.device)
        fill(there, source)
        return there


def placed(p, field, source, group):
    """A tensor of the state of a parameter: placed like it, if it is shaped like it."""
    if list(source.shape) == list(p.shape) and field != "step":
        result = torch.zeros_like(p.detach(), dtype=source.dtype)
        fill(result, source)
        return result
    there = field != "step" or group.get("capturable") or group.get("fused")
    return source.whole().to(p.device if there else "cpu")


def find_optimizer(checkpoint):
    """The state_dict of the optimizer in what was saved, with Tensor for tensors; None without one.

    Of several it is the one that `save` was given, under the key "optimizer".
    """
    tensor = lambda name, _: checkpoint.tensors.get(name)
    is_one = lambda value: isinstance(value, dict) and isinstance(value.get("state"), dict) and \
        isinstance(value.get("param_groups"), list) and all(isinstance(g, dict) for g in value["param_groups"])
    roots = [Tree(io.BytesIO(t), tensor).load() for t in checkpoint.trees]
    found, todo = [], list(roots)
    while todo:
        value = todo.pop()
        if is_one(value):
            found.append(value)
        elif isinstance(value, (dict, list, tuple)):
            todo += value.values() if isinstance(value, dict) else value
    if len(found) > 1:
        found = [root["optimizer"] for root in roots if isinstance(root, dict) and is_one(root.get("optimizer"))]
        if len(found) != 1:
            raise ValueError("the checkpoint has several optimizers, expected one, or one under the key 'optimizer'")
    return found[0] if found else None
