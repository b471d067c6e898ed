"""Python objects in a .pt: carried as they were, refused or left out, and never made by tersor.

The oracle is Python's own pickle.  What tersor wrote of this file's classes is loaded with it and
compared as objects; real checkpoints, whose frameworks are not here, are loaded with stand-ins that
record how each object would be made, and compared with the original, shared objects included.
"""
import argparse
import collections
import enum
import functools
import io
import json
import pathlib
import pickle
import re

import ml_dtypes
import numpy as np
import pytest

from conftest import DATA, one_line_error, run_tersor
from helpers.torchfile import (Call, Dict, Global, Raw, Storage, Tensor, contiguous, load, pickled, pt, pt_of,
                               records_of, tensor, tmp_path, untyped)

FRAMEWORKS = DATA / "frameworks"
RANKS = DATA / "torch" / "ranks"
W = np.arange(4, dtype=np.float32)
FIXTURES = sorted([*FRAMEWORKS.glob("deepspeed/*/global_step20/*.pt"),
                   *FRAMEWORKS.glob("*/*/training_args.bin"),
                   FRAMEWORKS / "states" / "megatron-legacy.pt"])
RANK_FILES = sorted(RANKS.glob("*.pt"))


# --- How an object would be made ----------------------------------------------------------------

class Made:
    """What stands for an object of a class, or for the result of a function."""

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        self.log = [("new", args, kwargs)]
        return self

    def __init__(self, *args, **kwargs):
        self.log[0] = ("call", args, kwargs)        # REDUCE comes here, NEWOBJ does not

    def __call__(self, *args):
        return Made(self, *args)

    def __setstate__(self, state):
        self.log.append(("state", state))

    def __setitem__(self, key, value):
        self.log.append(("item", key, value))

    def append(self, value):
        self.log.append(("append", value))

    def extend(self, values):
        self.log += [("append", value) for value in values]


PLAIN = {("builtins", "set"): set, ("builtins", "frozenset"): frozenset, ("builtins", "bytes"): bytes,
         ("_codecs", "encode"): str.encode}


class Reader(pickle._Unpickler):        # the one in Python: NEWOBJ takes stand-ins
    def __init__(self, pickled, records):
        super().__init__(io.BytesIO(pickled))
        self.records, self.stand_ins = records, {}

    def find_class(self, module, name):
        module = {"__builtin__": "builtins"}.get(module, module)
        if (module, name) == ("builtins", "getattr"):
            return lambda of, attribute: self.find_class(of.__module__, f"{of.__name__}.{attribute}")
        if (module, name) in PLAIN:
            return PLAIN[module, name]
        key = module, name
        if key not in self.stand_ins:
            self.stand_ins[key] = type(name, (Made,), {"__module__": module})
        return self.stand_ins[key]

    def persistent_load(self, pid):
        return "storage", pid[1].__name__, self.records[f"data/{pid[2]}"]


ITEM = {"CharStorage": 1, "FloatStorage": 4, "BFloat16Storage": 2, "ByteStorage": 1, "LongStorage": 8, "IntStorage": 4}


def name_of(v):
    return f"{type(v).__module__}.{type(v).__name__}"


def elements(v):
    """A call of _rebuild_tensor_v2: type, shape and bytes in row-major order."""
    (_, storage, data), offset, shape, stride, grad = v.log[0][1][:5]
    size = ITEM[storage]
    flat = np.frombuffer(data, np.dtype((np.void, size)))
    view = np.lib.stride_tricks.as_strided(flat[offset:], shape, [s * size for s in stride])
    return "tensor", storage, tuple(shape), view.tobytes() if 0 not in shape else b"", grad


def described(v, ids):
    """A value as text and tuples; what is met again is its number."""
    if isinstance(v, type) and issubclass(v, Made):
        return "class", v.__module__, v.__name__
    if isinstance(v, Made) and name_of(v) == "torch._utils._rebuild_tensor_v2":
        return elements(v)
    if isinstance(v, Made) and name_of(v) == "torch._tensor._rebuild_from_type_v2":
        function, kind, args, state = v.log[0][1]
        made = function(*args)
        inner = elements(made) if args[0].__class__ is tuple else described(made, ids)
        return "typed", kind.__name__, inner, described(state, ids)
    if isinstance(v, (list, dict, set, Made)):
        if id(v) in ids:
            return "again", ids[id(v)][0]
        ids[id(v)] = len(ids), v        # it stays, so that no other value gets its id
    if isinstance(v, dict):
        return "dict", [(described(k, ids), described(x, ids)) for k, x in v.items()]
    if isinstance(v, (list, tuple)):
        return type(v).__name__, [described(x, ids) for x in v]
    if isinstance(v, (set, frozenset)):
        return type(v).__name__, sorted(map(repr, v))
    if isinstance(v, Made):
        return name_of(v), [described(x, ids) for x in v.log]
    return type(v).__name__, repr(v)


def read(path):
    _, records = records_of(path.read_bytes())
    return described(Reader(records["data.pkl"], records).load(), {})


def globals_in(path):
    _, records = records_of(path.read_bytes())
    reader = Reader(records["data.pkl"], records)
    reader.load()
    return {f"{module}.{name}" for module, name in reader.stand_ins}


def both_ways(path, folder, *options):
    """The same checkpoint as convert writes it, and as it comes out of a packed file."""
    run_tersor("convert", path, "-o", folder / "converted.pt", *options, check=0)
    run_tersor("pack", path, "-o", folder / "packed.safetensors", "--keep", ".", *options, check=0)
    run_tersor("unpack", folder / "packed.safetensors", "-o", folder / "unpacked.pt", *options,
               check=0)
    return folder / "converted.pt", folder / "unpacked.pt"


# --- Real checkpoints ---------------------------------------------------------------------------

@pytest.mark.parametrize("path", FIXTURES + RANK_FILES, ids=lambda path: str(path.relative_to(DATA)))
def test_objects_of_frameworks_come_back_as_they_were(path, tmp_path):
    """Made in the same way, in the same places, and shared where they were shared."""
    want = read(path)
    for out in both_ways(path, tmp_path):
        assert read(out) == want, out


def test_every_class_that_is_carried_is_named(tmp_path):
    path = FRAMEWORKS / "trainer" / "checkpoint-30" / "training_args.bin"
    packed = tmp_path / "packed.safetensors"
    names = {name for name in globals_in(path) if not name.startswith("torch.")}
    assert len(names) == 9
    for args in (["pack", path, "-o", packed], ["convert", path, "-o", tmp_path / "c.pt"],
                 ["unpack", packed, "-o", tmp_path / "u.pt"], ["inspect", packed]):
        stderr = run_tersor(*args, check=0).stderr
        assert set(re.findall(r"(?:transformers|accelerate)\.[\w.]+", stderr)) == names
        assert "weights_only=False" in stderr and "(9 in all)" in stderr
        assert stderr.count("carries Python objects") == 1


def test_deepspeed_moments_are_packed(tmp_path):
    path = next(FRAMEWORKS.glob("deepspeed/zero1*/global_step20/zero_pp_rank_0*"))
    done = run_tersor("pack", path, "-o", tmp_path / "x.safetensors", "-v", check=0)
    assert re.search(r"^momentum +softsign8 .* [1-9]", done.stdout, re.M)
    assert re.search(r"^variance +sqrt8 .* [1-9]", done.stdout, re.M)
    assert "LossScaler" in done.stderr and "ZeroStageEnum" in done.stderr


# --- Objects of this file -----------------------------------------------------------------------

class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Plain:
    def __init__(self, **values):
        self.__dict__.update(values)

    def __eq__(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = object.__hash__


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __eq__(self, other):
        return (self.a, self.b) == (other.a, other.b)


class Both(Slots):
    """Slots and a __dict__: a state of two."""

    def __init__(self, a, b, c):
        super().__init__(a, b)
        self.c = c

    def __eq__(self, other):
        return super().__eq__(other) and self.c == other.c


class Keywords:
    def __new__(cls, a, *, b):
        self = super().__new__(cls)
        self.made = a, b
        return self

    def __getnewargs_ex__(self):
        return (self.made[0],), {"b": self.made[1]}

    def __eq__(self, other):
        return self.made == other.made


class MyList(list):
    pass


class MyDict(dict):
    pass


class Reduced:
    """All that __reduce__ can give but a function for the state."""

    def __init__(self, *args):
        self.args, self.items, self.pairs = args, [], {}

    def __reduce__(self):
        return (Reduced, self.args, {"extra": 1}, iter(self.items), None)

    def append(self, item):
        self.items.append(item)

    def __eq__(self, other):
        return (self.args, self.items) == (other.args, other.items)


class Node:
    def __init__(self, parent=None):
        self.parent, self.children = parent, []


class SetByFunction:
    def __reduce__(self):
        return object.__new__, (SetByFunction,), {"a": 1}, None, None, set_state


def set_state(obj, state):
    obj.__dict__.update(state)


class Outer:
    class Inner(Plain):
        class Innermost(Plain):
            pass


Point = collections.namedtuple("Point", "x y")
VALUES = {
    "enum": [Color.RED, Color.BLUE, Color.RED],
    "state": Plain(a=1, b=[1.5, None, "x"], c=Plain(d={1: 2})),
    "slots": Slots(1, "two"),
    "slots-and-dict": Both(1, 2, 3),
    "keywords": Keywords(1, b=2),
    "list": MyList([1, [2], "3"]),
    "dict": MyDict(a=1, b=MyDict(c=2)),
    "reduce": (lambda r: r.items.extend([1, 2]) or r)(Reduced(1, "a")),
    "named-tuple": Point(1, (2, 3)),
    "nested": [Outer.Inner(a=1), Outer.Inner.Innermost(b=2), Outer.Inner],
    "partial": None,
    "class": [Plain, len, collections.OrderedDict],
    "bytes": [bytearray(b"\x00\xffa"), b"", b"\x80"],
    "counter": collections.Counter("abca"),
    "default": collections.defaultdict(Plain, a=Plain(b=1)),
    "complex": [1 + 2j, Ellipsis, NotImplemented],
    "namespace": argparse.Namespace(a=Color.BLUE, b=pathlib.PurePosixPath("/x/y")),
    "keys": {Color.RED: 1, Point(1, 2): 2},
}


def opened(path):
    return pickle.loads(records_of(path.read_bytes())[1]["data.pkl"])


@pytest.mark.parametrize("proto", [2, 3, 4, 5])
@pytest.mark.parametrize("name", VALUES)
def test_carried_objects_load_as_equal_ones(name, proto, tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickle.dumps({"v": VALUES[name]}, proto)))
    for out in both_ways(path, tmp_path):
        assert opened(out) == {"v": VALUES[name]}


@pytest.mark.parametrize("proto", [2, 4])
def test_a_partial_function_is_carried(proto, tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickle.dumps(functools.partial(int, "101", base=2), proto)))
    for out in both_ways(path, tmp_path):
        assert opened(out)() == 5


@pytest.mark.parametrize("proto", [2, 4])
def test_shared_objects_stay_shared(proto, tmp_path):
    a = Plain(x=[1])
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickle.dumps([a, {"again": a}, a.x, Plain(x=[1])], proto)))
    for out in both_ways(path, tmp_path):
        first, again, items, other = opened(out)
        assert again["again"] is first and first.x is items and other is not first
        assert other == first


@pytest.mark.parametrize("proto", [2, 4])
def test_an_object_can_contain_itself(proto, tmp_path):
    """Nodes that know their parents, as those of OmegaConf do."""
    root = Node()
    root.children = [Node(root), Node(root)]
    root.children[0].children = [Node(root.children[0])]
    root.other = root.children[1]
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickle.dumps({"config": root, "child": root.children[0]}, proto)))
    for out in both_ways(path, tmp_path):
        found = opened(out)
        top = found["config"]
        assert top.parent is None and len(top.children) == 2
        assert all(child.parent is top for child in top.children)
        assert top.children[0].children[0].parent is top.children[0] is found["child"]
        assert top.other is top.children[1]


def test_a_state_set_by_a_function_is_refused(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickle.dumps(SetByFunction(), 4)))
    assert opened(path).a == 1
    line = one_line_error(run_tersor("inspect", path, "--opaque", "carry", check=3))
    assert "POP" in line and "dropped" in line


# --- The policy ---------------------------------------------------------------------------------

SCALER = Call(Global("deepspeed.runtime.fp16.loss_scaler", "LossScaler"), (),
              {"cur_scale": 1.0}, new=True)
OWN = Call(Global("my_company.things", "Thing"), (1,), {"a": 2}, new=True)


def checkpoint(tmp_path, **values):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"model": Dict({"w": tensor(W)}), **values}))
    return path


def pack(path, *options, check=0):
    return run_tersor("pack", path, "-f", "-o", path.parent / "packed.safetensors", *options,
                      check=check)


@pytest.mark.parametrize("value,options,status", [
    (SCALER, [], 0), (SCALER, ["refuse"], 3), (SCALER, ["carry"], 0), (SCALER, ["drop"], 0),
    (OWN, [], 0), (OWN, ["refuse"], 3), (OWN, ["carry"], 0), (OWN, ["drop"], 0)])
def test_what_the_option_says_happens(value, options, status, tmp_path):
    path = checkpoint(tmp_path, v=value, after=7)
    name = f"{value.callee.module}.{value.callee.name}"
    options = ["--opaque", *options] if options else []
    done = pack(path, *options, "-v", check=status)
    assert name in done.stderr
    if status:
        assert "data.pkl: v: found" in one_line_error(done) and "--opaque carry" in done.stderr
        return
    run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "out.pt", *options,
               check=0)
    _, records = records_of((tmp_path / "out.pt").read_bytes())
    found = Reader(records["data.pkl"], records).load()
    assert found["after"] == 7
    if "drop" in options:
        assert found["v"] is None and f"a call of {name} was left out" in done.stderr
        assert load(tmp_path / "out.pt")["v"] is None       # with what weights_only permits
    else:
        assert name_of(found["v"]) == name
        assert [entry[0] for entry in found["v"].log] == ["new", "state"]


@pytest.mark.parametrize("name", ["posix.system", "os.popen", "subprocess.Popen", "__builtin__.eval",
                                  "__builtin__.open", "runpy.run_path", "socket.socket"])
@pytest.mark.parametrize("hide", ["call", "itself", "argument", "state"])
def test_what_runs_code_is_never_carried(name, hide, tmp_path):
    runs = Global(*name.rsplit(".", 1))
    value = {"call": Call(runs, ("id",)), "itself": runs,
             "argument": Call(Global("m", "C"), (Call(runs, ("id",)),)),
             "state": Call(Global("m", "C"), (), state=Dict([("f", runs)]))}[hide]
    path = checkpoint(tmp_path, v=value)
    name = name.replace("__builtin__", "builtins")
    for options in ([], ["--opaque", "carry"]):
        assert name in one_line_error(pack(path, *options, check=3))
        assert "not carried" in one_line_error(run_tersor("inspect", path, *options, check=3))
    assert "was left out" in pack(path, "--opaque", "drop").stderr


def test_an_option_that_is_no_word(tmp_path):
    done = run_tersor("inspect", checkpoint(tmp_path), "--opaque", "yes", check=2)
    assert "refuse" in done.stderr and "carry" in done.stderr and "drop" in done.stderr


def test_a_packed_file_follows_the_same_rule(tmp_path):
    path, packed = checkpoint(tmp_path, v=OWN), tmp_path / "packed.safetensors"
    pack(path)
    for args in (["inspect", packed], ["verify", packed], ["unpack", packed, "-o", tmp_path / "u.pt"],
                 ["diff", packed, packed], ["verify", packed, "--against", path]):
        line = one_line_error(run_tersor(*args, "--opaque", "refuse", check=3))
        assert "my_company.things.Thing" in line and "--opaque carry" in line
        assert "my_company.things.Thing (1 in all)" in run_tersor(*args, check=0).stderr
    done = run_tersor("unpack", packed, "-o", tmp_path / "d.pt", "--opaque", "drop", check=0)
    assert "Thing was left out" in done.stderr and load(tmp_path / "d.pt")["v"] is None


def test_many_objects_that_are_left_out_are_counted(tmp_path):
    path = checkpoint(tmp_path, **{f"v{i}": Call(Global("m", f"C{i}")) for i in range(15)})
    done = pack(path, "--opaque", "drop")
    assert done.stderr.count("was left out") == 10
    assert "15 objects in all were left out" in done.stderr


def test_a_shared_object_is_left_out_everywhere(tmp_path):
    path = checkpoint(tmp_path, a=OWN, b=[OWN])
    pack(path, "--opaque", "drop")
    run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "out.pt", check=0)
    found = load(tmp_path / "out.pt")
    assert found["a"] is None and found["b"] == [None]


def test_a_part_of_a_plain_object_can_be_left_out(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickle.dumps(argparse.Namespace(own=Plain(a=1), n=1))))
    run_tersor("convert", path, "-o", tmp_path / "out.pt", "--opaque", "drop", check=0)
    assert opened(tmp_path / "out.pt") == argparse.Namespace(own=None, n=1)


def test_what_names_an_object_that_is_left_out_names_none(tmp_path):
    """A node of plain values that is kept elsewhere, and its parent that is left out."""
    node = argparse.Namespace(n=1)
    node.parent = Plain(child=node)
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickle.dumps({"parent": node.parent, "node": node})))
    run_tersor("convert", path, "-o", tmp_path / "out.pt", "--opaque", "drop", check=0)
    assert opened(tmp_path / "out.pt") == {"parent": None,
                                           "node": argparse.Namespace(n=1, parent=None)}


def test_a_key_cannot_be_left_out(tmp_path):
    line = one_line_error(pack(checkpoint(tmp_path, v=Dict([(OWN, 1)])), "--opaque", "drop", check=3))
    assert "key" in line and "Thing" in line


def test_modules_and_other_tensors_are_not_carried(tmp_path):
    module = Call(Global("m", "Net"), (), Dict({"_parameters": Dict({"w": tensor(W)}, ordered=True)}),
                  new=True)
    sparse = Call(Global("torch._utils", "_rebuild_sparse_tensor"), (1, 2))
    for value, word in ((module, "state_dict()"), (sparse, "a sparse tensor")):
        for policy in ("carry", "drop", "refuse"):
            path = checkpoint(tmp_path, v=value)
            assert word in one_line_error(pack(path, "--opaque", policy, check=3))


def test_members_of_enumerations(tmp_path):
    """Enum(value), or getattr(Enum, name) as Python 3.11 writes it; one that is called is named too."""
    stage = Global("deepspeed.runtime.zero.config", "ZeroStageEnum")
    by_name = Call(Global("__builtin__", "getattr"), (stage, "weights"))
    path = checkpoint(tmp_path, a=Call(stage, (2,)), b=by_name)
    want = read(path)
    for out in both_ways(path, tmp_path):
        assert read(out) == want
    assert "ZeroStageEnum.weights" in pack(checkpoint(tmp_path, a=Call(by_name, ()))).stderr
    write = Call(Global("__builtin__", "getattr"), (Global("pathlib", "Path"), "write_text"))
    assert "pathlib.Path.write_text" in pack(checkpoint(tmp_path, a=Call(write, (1,)))).stderr


# --- Tensors in objects -------------------------------------------------------------------------

def test_tensors_in_carried_objects_are_tensors(tmp_path):
    """In state, items and arguments; they are packed and come back in their places."""
    values = [tensor(W + i) for i in range(3)]
    holder = Call(Global("m", "Holder"), (values[0],), {"t": values[1], "d": [values[2]]}, new=True)
    path = checkpoint(tmp_path, h=holder)
    want = read(path)
    for out in both_ways(path, tmp_path):
        assert read(out) == want
    done = run_tersor("inspect", path, "--opaque", "carry", "-v", check=0)
    assert {"h.0", "h.t", "h.d.0"} <= set(done.stdout.split())


def test_tensors_in_dropped_objects_are_named_as_unused(tmp_path):
    path = checkpoint(tmp_path, h=Call(Global("m", "Holder"), (), {"t": tensor(W)}, new=True))
    done = pack(path, "--opaque", "drop")
    assert "m.Holder was left out" in done.stderr and "is part of no tensor" in done.stderr


def attributed(t, state):
    """What torch.save writes of a tensor with attributes; torch.nn.Buffer has two."""
    return Call(Global("torch._tensor", "_rebuild_from_type_v2"),
                (Global("torch._utils", "_rebuild_tensor_v2"), Global("torch", "Tensor"), t, state))


def test_attributes_of_tensors_are_kept(tmp_path):
    """A real DeepSpeed ZeRO-3 file has them: `ds_id`."""
    path = next(FRAMEWORKS.glob("deepspeed/zero3*/global_step20/bf16_zero_pp_rank_0*"))
    assert "typed" in repr(read(path)) and "ds_id" in repr(read(path))
    for out in both_ways(path, tmp_path):
        assert "ds_id" in repr(read(out))


def wrapped(module, name, size, state, grad=False, dtype="float32"):
    """What torch.save writes of a subclass of tensor."""
    cls = Global(module, name)
    layout = Call(Global("torch.serialization", "_get_layout"), ("torch.strided",))
    cpu = Call(Global("torch", "device"), ("cpu",))
    args = (cls, Global("torch", dtype), tuple(size), contiguous(size), 0, layout, cpu, grad)
    return Call(Global("torch._tensor", "_rebuild_from_type_v2"),
                (Global("torch._utils", "_rebuild_wrapper_subclass"), cls, args, state))


def with_state(tmp_path, *states, shape=(4, 64)):
    """A model of one weight and an optimizer with these states of it."""
    weight = np.zeros(shape, np.float32)
    state = {"step": tensor(np.float32(3)), **dict(zip(("exp_avg", "exp_avg_sq"), states))}
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"model": Dict({"w": tensor(weight)}),
                         "optimizer": {"state": {0: state}, "param_groups": [{"params": [0]}]}}))
    return path


TORCHAO = FRAMEWORKS / "states" / "torchao-adamw8bit.pt"


def test_states_of_torchao_are_decoded(tmp_path):
    """Real ones: qmap[codes] * scale, one scale per block, in binary32; packed as FP32 is."""
    _, records = records_of(TORCHAO.read_bytes())
    original = Reader(records["data.pkl"], records).load()["optimizer"]["state"]
    run_tersor("unpack", TORCHAO, "-o", tmp_path / "out.pt", check=0)
    out = load(tmp_path / "out.pt")["optimizer"]["state"]
    for state in ("exp_avg", "exp_avg_sq"):
        parts = original[0][state].log[0][1][3]
        codes, scale, qmap = (np.frombuffer(elements(parts[key])[3], dtype) for key, dtype in
                              (("codes", np.uint8), ("scale", np.float32), ("qmap", np.float32)))
        want = qmap[codes].reshape(len(scale), -1) * scale[:, None]
        found = out[0][state]
        assert found.st_dtype == "F32" and tuple(found.shape) == (256, 128)
        assert found.content == want.tobytes()
    done = run_tersor("pack", TORCHAO, "-o", tmp_path / "packed.safetensors", check=0)
    assert re.search(r"^momentum +softsign8 .* 33,024 ", done.stdout, re.M)
    run_tersor("verify", tmp_path / "packed.safetensors", "--against", TORCHAO, check=0)
    assert "weight.exp_avg " in run_tersor("inspect", TORCHAO, "-v", check=0).stdout


TORCHAO4 = FRAMEWORKS / "states" / "torchao-adamw4bit.pt"


def test_4bit_states_of_torchao_are_decoded(tmp_path):
    """As OptimState4bit.dequantize() does: the upper half of a byte first, a scale for 128 elements."""
    _, records = records_of(TORCHAO4.read_bytes())
    original = Reader(records["data.pkl"], records).load()["optimizer"]["state"]
    run_tersor("unpack", TORCHAO4, "-o", tmp_path / "out.pt", check=0)
    out = load(tmp_path / "out.pt")["optimizer"]["state"]
    for state in ("exp_avg", "exp_avg_sq"):
        parts = original[0][state].log[0][1][3]
        codes, scale, qmap = (np.frombuffer(elements(parts[key])[3], dtype) for key, dtype in
                              (("codes", np.uint8), ("scale", np.float32), ("qmap", np.float32)))
        want = qmap[np.stack([codes >> 4, codes & 15], -1)].reshape(len(scale), -1) * scale[:, None]
        assert len(qmap) == 16 and want.shape == (32, 128) and np.count_nonzero(want)
        assert out[0][state].st_dtype == "F32" and tuple(out[0][state].shape) == (64, 64)
        assert out[0][state].content == want.tobytes()
    run_tersor("pack", TORCHAO4, "-o", tmp_path / "packed.safetensors", check=0)
    run_tersor("verify", tmp_path / "packed.safetensors", "--against", TORCHAO4, check=0)
    assert re.search(r"^weight.exp_avg +momentum +dyn4 +\[64, 64\] +2.18 kB", run_tersor(
        "inspect", TORCHAO4, "-v", check=0).stdout, re.M)


@pytest.mark.parametrize("path", [TORCHAO, TORCHAO4])
def test_convert_keeps_states_of_torchao(path, tmp_path):
    run_tersor("convert", path, "-o", tmp_path / "out.pt", check=0)
    assert "bit" in repr(read(path)) and read(tmp_path / "out.pt") == read(path)
    run_tersor("convert", path, "-o", tmp_path / "out.safetensors", check=0)
    run_tersor("convert", tmp_path / "out.safetensors", "-o", tmp_path / "back.pt", check=0)
    assert read(tmp_path / "back.pt") == read(path)


def fp8(codes, scale):
    return wrapped("torchao.optim.subclass_fp8", "OptimStateFp8", codes.shape, {
        "codes": untyped("float8_e4m3fn", codes.tobytes(), codes.shape), "scale": tensor(scale),
        "block_size": codes.size // max(scale.size, 1)})


def test_fp8_states_of_torchao(tmp_path):
    """All codes, with a scale per row."""
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64)
    scale = np.array([1, 0.1, 1e-30, 3e-41], np.float32)
    path = with_state(tmp_path, fp8(codes, scale))
    run_tersor("unpack", path, "-o", tmp_path / "out.pt", check=0)
    found = np.frombuffer(load(tmp_path / "out.pt")["optimizer"]["state"][0]["exp_avg"].content,
                          np.float32).reshape(4, 64)
    want = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale[:, None]
    np.testing.assert_array_equal(found, want)
    assert (np.signbit(found) == np.signbit(want))[~np.isnan(want)].all()


def int4(size, **parts):
    return wrapped("torchao.optim.subclass_4bit", "OptimState4bit", size, {
        "codes": tensor(np.zeros(128, np.uint8)), "scale": tensor(np.ones(2, np.float32)),
        "qmap": tensor(np.ones(16, np.float32)), "signed": True, "_shape": size, "block_size": 128, **parts})


def int8(codes, scale, qmap):
    return wrapped("torchao.optim.subclass_8bit", "OptimState8bit", codes.shape, {
        "codes": tensor(codes), "scale": tensor(scale), "qmap": tensor(qmap), "signed": True,
        "block_size": 64})


@pytest.mark.parametrize("state,word", [
    (fp8(np.zeros((4, 64), np.uint8), np.ones(3, np.float32)), "3 scales"),
    (fp8(np.zeros((4, 64), np.uint8), np.ones(0, np.float32)), "0 scales"),
    (fp8(np.zeros((4, 64), np.uint8), np.ones(4, np.float64)), "scales of F64"),
    (int8(np.zeros((4, 64), np.uint8), np.ones(4, np.float32), np.ones(16, np.float32)), "256 F32"),
    (int8(np.zeros((4, 64), np.int8), np.ones(4, np.float32), np.ones(256, np.float32)),
     "codes of I8"),
    (int4((4, 63)), "expected U8 for two elements each"),
    (int4((4, -64)), "two elements"),
    (int4((2,) * 65), "two elements"),
    (int4((4, 64), codes=tensor(np.zeros(128, np.int8))), "128 codes of I8"),
    (int4((4, 64), codes=Tensor(Storage(bytes(256), "ByteStorage"), (128,), (2,))), "a view of other data"),
    (int4((4, 64), codes=Tensor(Storage(bytes(256), "ByteStorage"), (128,), offset=64)), "a view of other data"),
    (int4((4, 64), scale=tensor(np.ones(3, np.float32))), "3 scales"),
    (int4((4, 64), scale=tensor(np.ones(256, np.float32))), "256 scales"),
    (int4((4, 64), qmap=tensor(np.ones(256, np.float32))), "16 F32"),
    (wrapped("torchao.optim.subclass_2bit", "OptimState2bit", (4, 64), {
        "codes": tensor(np.zeros(128, np.uint8))}), "torchao.optim.subclass_2bit.OptimState2bit"),
    (wrapped("torchao.optim.subclass_8bit", "OptimState8bit", (4, 64), {}), "OptimState8bit"),
    (wrapped("torchao.optim.subclass_8bit", "OptimState8bit", (4, 64), {"codes": 1}), "subclass"),
    (wrapped("my_company.tensors", "Ragged", (4,), {}), "my_company.tensors.Ragged"),
])
def test_states_that_cannot_be_read_are_refused(state, word, tmp_path):
    for policy in ([], ["--opaque", "carry"]):
        path = with_state(tmp_path, state)
        done = run_tersor("unpack", path, "-o", tmp_path / "out.pt", *policy, check=3)
        assert word in one_line_error(done)


def dtensor(local, size, *placements, state=None, grad=False):
    """As PyTorch 2.15 writes it; the mesh has a tensor of its own."""
    where = "torch.distributed.tensor.placement_types"
    mesh = Call(Global("torch.distributed.device_mesh", "DeviceMesh"), (),
                {"_rank_map": tensor(np.zeros(1, np.int32))}, new=True)
    placed = tuple(Call(Global(where, name), (), {"dim": 0} if name == "Shard" else None, new=True)
                   for name in placements)
    spec = Call(Global("torch.distributed.tensor._dtensor_spec", "DTensorSpec"), (),
                {"mesh": mesh, "placements": placed}, new=True)
    return wrapped("torch.distributed.tensor", "DTensor", size,
                   (state, {"_local_tensor": local, "_spec": spec}), grad)


@pytest.mark.parametrize("size,placements", [
    ((4,), ["Shard"]), ((4,), ["Replicate"]), ((8,), ["Shard"]), ((4, 1), ["Replicate"]),
    ((4,), ["Partial"]), ((4,), ["Replicate", "Partial"])])
def test_a_dtensor_stays_what_it_is(size, placements, tmp_path):
    """Its local tensor is packed like any other, and what is around it comes back."""
    path = tmp_path / "in.pt"
    local = np.arange(64, dtype=np.float32)
    path.write_bytes(pt({
        "a": dtensor(tensor(local), size, *placements),
        "p": dtensor(tensor(local + 1), size, *placements, state={"_is_param": True}, grad=True)}))
    for out in both_ways(path, tmp_path):
        assert read(out) == read(path)
    run_tersor("pack", path, "-o", tmp_path / "p.safetensors", "--strict", "-f", check=0)
    done = run_tersor("verify", tmp_path / "p.safetensors", "--against", path, check=0)
    assert not done.stderr


def test_the_device_of_a_dtensor_is_that_of_its_local_tensor(tmp_path):
    """tersor writes tensors of the CPU; a wrapper that says otherwise is not moved by to(device)."""
    path = tmp_path / "in.pt"
    value = dtensor(tensor(W), (8,), "Shard")
    path.write_bytes(pt({"a": value}))
    want = read(path)
    index = next(i for i, v in enumerate(value.args[2]) if v == Call(Global("torch", "device"), ("cpu",)))
    for device in ("cuda:1",), ("cuda", 1):
        args = list(value.args[2])
        args[index] = Call(Global("torch", "device"), device)
        path.write_bytes(pt({"a": Call(value.callee, (*value.args[:2], tuple(args), value.args[3]))}))
        for out in both_ways(path, tmp_path, "-f"):
            assert read(out) == want


@pytest.mark.parametrize("size,placements,fine", [
    ((4,), ["Shard"], True), ((4,), ["Replicate", "Shard"], True), ((8,), ["Shard"], False),
    ((4, 1), ["Replicate"], False), ((4,), ["Partial"], False), ((4,), ["MaskPartial"], False)])
def test_a_dcp_directory_holds_whole_dtensors_only(size, placements, fine, tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"a": dtensor(tensor(W), size, *placements)}))
    done = run_tersor("convert", path, "--to", "dcp", "-o", tmp_path / "out", check=0 if fine else 3)
    if not fine:
        assert "one rank's part of a tensor (DTensor)" in one_line_error(done)
    else:
        run_tersor("convert", tmp_path / "out", "-o", tmp_path / "back.pt", check=0)
        found = load(tmp_path / "back.pt")      # and an entry for the ranks in the mesh
        assert found["a"].content == W.tobytes() and len(found.items()) == 2


@pytest.mark.parametrize("size,placements,words", [
    ((8,), ["Shard"], "Shard(0) of [8]"), ((4, 2), ["Replicate", "Shard"], "Replicate, Shard(0) of [4, 2]"),
    ((4,), ["Partial"], "Partial of [4]")])
def test_inspect_says_what_a_part_is_of(size, placements, words, tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"w": tensor(W), "a": dtensor(tensor(W + 1), size, *placements)}))
    shown = run_tersor("inspect", path, check=0)
    assert f"1 of them are one rank's parts: a is {words}" in shown.stdout and not shown.stderr
    path.write_bytes(pt({"w": tensor(W), "a": dtensor(tensor(W + 1), (4,), "Shard")}))
    assert "parts" not in run_tersor("inspect", path, check=0).stdout


@pytest.mark.parametrize("local,spec", [
    (None, "fine"), (1, "fine"), ([tensor(W)], "fine"), (tensor(W), None), (tensor(W), [1])],
    ids=["none", "number", "list", "no spec", "odd spec"])
def test_odd_dtensors(local, spec, tmp_path):
    """Without a local tensor: refused by name.  What is around it is not looked into."""
    value = dtensor(local, (4,), "Shard")
    state = dict(value.args[3][1])
    if spec != "fine":
        state["_spec"] = spec
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"a": Call(value.callee, (*value.args[:3], (None, state)))}))
    if not isinstance(local, (list, int, type(None))):
        assert "1 of them are one rank's parts: a is of [4]" in run_tersor("inspect", path, check=0).stdout
        for out in both_ways(path, tmp_path):
            assert read(out) == read(path)
    else:
        assert "subclass" in one_line_error(run_tersor("inspect", path, check=3))


def test_a_state_of_torchao_in_a_dtensor(tmp_path):
    """Decoded as one that stands alone, and in its DTensor again."""
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64)
    scale = np.array([1, 0.1, 1e-30, 3e-41], np.float32)
    path = with_state(tmp_path, fp8(codes, scale))
    run_tersor("unpack", path, "-o", tmp_path / "alone.pt", check=0)
    want = locals_in(tmp_path / "alone.pt")
    path = with_state(tmp_path, dtensor(fp8(codes, scale), (8, 64), "Shard"))
    run_tersor("unpack", path, "-o", tmp_path / "out.pt", check=0)
    found = locals_in(tmp_path / "out.pt")
    assert list(found) == list(want)
    for at, values in want.items():
        np.testing.assert_array_equal(found[at], values)
    assert "'DTensor'" in repr(read(tmp_path / "out.pt")) and "OptimStateFp8" not in repr(read(tmp_path / "out.pt"))


@pytest.mark.parametrize("nshards", [0, 1, 2])
def test_the_shards_of_a_sharded_tensor(nshards, tmp_path):
    """FSDP1's: the first of the rank names it.  The classes around it are carried and named."""
    where = "torch.distributed._shard.sharded_tensor"
    shards = [Call(Global(f"{where}.shard", "Shard"), (), (None, {"tensor": tensor(W + i), "metadata": i}), new=True)
              for i in range(nshards)]
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"w": wrapped(f"{where}.api", "ShardedTensor", (9,), (shards, None, None, None, False))}))
    if not nshards:
        assert "ShardedTensor" in one_line_error(run_tersor("inspect", path, check=3))
        return
    shown = run_tersor("inspect", path, check=0)
    assert "w is of [9]" in shown.stdout and f"{where}.shard.Shard" in shown.stderr
    for out in both_ways(path, tmp_path):
        assert read(out) == read(path)


# --- The files of each rank ---------------------------------------------------------------------

def locals_in(path):
    """The FP32 tensors, of DTensors the local ones, as arrays by the keys that lead to them."""
    def walk(value, at):
        if isinstance(value, Made) and name_of(value) == "torch._tensor._rebuild_from_type_v2":
            value = value.log[0][1][3][1]["_local_tensor"]
        if isinstance(value, Made) and name_of(value) == "torch._utils._rebuild_tensor_v2":
            _, storage, shape, content, _ = elements(value)
            if storage == "FloatStorage":
                yield at, np.frombuffer(content, np.float32).reshape(shape)
        elif isinstance(value, (dict, Made)):
            items = value.items() if isinstance(value, dict) else [e[1:] for e in value.log if e[0] == "item"]
            for key, item in items:
                yield from walk(item, (*at, key))
    _, records = records_of(path.read_bytes())
    return dict(walk(Reader(records["data.pkl"], records).load(), ()))


@pytest.mark.parametrize("path", RANK_FILES, ids=lambda path: path.stem)
def test_local_tensors_are_packed_like_others(path, tmp_path):
    run_tersor("pack", path, "-o", tmp_path / "p.safetensors", "--strict", check=0)
    run_tersor("verify", tmp_path / "p.safetensors", "--against", path, check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", tmp_path / "out.pt", check=0)
    want, found = locals_in(path), locals_in(tmp_path / "out.pt")
    assert list(found) == list(want)
    lossy = 0
    for at, values in want.items():
        assert found[at].shape == values.shape
        error = np.linalg.norm(found[at] - values) / max(np.linalg.norm(values), 1e-30)
        assert error < 0.01, at
        lossy += error > 0
    assert lossy >= len(want) // 4
    # Everything else is as it was: with the same elements they would be equal.
    assert skeleton(read(tmp_path / "out.pt")) == skeleton(read(path))


def skeleton(value):
    """What read() gives, without the elements of tensors."""
    if isinstance(value, tuple) and value[:1] == ("tensor",):
        return value[:3]
    return [skeleton(v) for v in value] if isinstance(value, (list, tuple)) else value


def test_a_rank_has_the_states_of_its_own_parts(tmp_path):
    """Matched by position in one file and in two; shapes are those of the parts, and one is empty."""
    parts = {"embed.weight": [32, 32], "three.weight": [1, 32], "three.bias": [1], "head.weight": [0, 35]}
    for paths in [RANKS / "one.rank-1.pt"], [RANKS / "model_world_size_2_rank_1.pt",
                                            RANKS / "optim_world_size_2_rank_1.pt"]:
        run_tersor("inspect", *paths, "--json", tmp_path / "report.json", check=0)
        found = json.loads((tmp_path / "report.json").read_text())
        shapes = {t["name"]: (t["kind"], t["shape"]) for t in found["tensors"]}
        assert found["parts"] == 12
        for name, shape in parts.items():
            assert shapes[name] == ("weight", shape)
            assert shapes[f"{name}.exp_avg"] == ("momentum", shape)
            assert shapes[f"{name}.exp_avg_sq"] == ("variance", shape)


def test_the_type_of_a_dtensor_is_not_changed(tmp_path):
    """The model alone as BF16: its wrapper and its mesh would say F32 still."""
    run_tersor("pack", RANKS / "one.rank-1.pt", "-o", tmp_path / "p.safetensors", check=0)
    args = ["unpack", tmp_path / "p.safetensors", "-o", tmp_path / "model.pt", "--only", "weights"]
    assert "DTensors" in one_line_error(run_tersor(*args, "--as", "bf16", check=3))
    run_tersor(*args, check=0)
    want = {at[1:]: values for at, values in locals_in(RANKS / "one.rank-1.pt").items() if at[0] == "model"}
    assert list(locals_in(tmp_path / "model.pt")) == list(want)


def test_a_model_with_an_object_that_has_a_tensor(tmp_path):
    """The model alone keeps what its values refer to."""
    path, model = tmp_path / "in.pt", {"w": tensor(np.arange(64, dtype=np.float32)), "extra": Call(
        Global("some.module", "State"), (), {"table": tensor(W)}, new=True)}
    path.write_bytes(pt({"model": model, "optimizer": {"state": {}, "param_groups": []}}))
    run_tersor("pack", path, "-o", tmp_path / "p.safetensors", "--keep", ".", check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", tmp_path / "model.pt", "--only", "weights", check=0)
    path.write_bytes(pt(model))
    assert read(tmp_path / "model.pt") == read(path)


def test_a_directory_of_rank_files(tmp_path):
    source = tmp_path / "step"
    source.mkdir()
    for path in RANK_FILES:
        (source / path.name).write_bytes(path.read_bytes())
    run_tersor("pack", source, "-o", tmp_path / "packed", "--strict", check=0)
    run_tersor("verify", tmp_path / "packed", "--against", source, check=0)
    run_tersor("unpack", tmp_path / "packed", "-o", tmp_path / "back", check=0)
    assert (tmp_path / "packed" / "optim_world_size_2_rank_1.pt.tersor").exists()
    for path in RANK_FILES:
        assert list(locals_in(tmp_path / "back" / path.name)) == list(locals_in(path))


@pytest.mark.parametrize("command", [["inspect"], ["convert", "-o", "out.pt"]])
def test_the_files_of_several_ranks_are_no_checkpoint(command, tmp_path):
    for rank in "01":
        (tmp_path / f"model_world_size_2_rank_{rank}.pt").write_bytes(
            (RANKS / "model_world_size_2_rank_1.pt").read_bytes())
    done = run_tersor(*command, tmp_path, check=3, cwd=tmp_path)
    assert "several ranks" in one_line_error(done) and "name those of one rank" in done.stderr


def test_a_buffer_is_a_plain_tensor_with_attributes(tmp_path):
    """torch.nn.Buffer(x), saved outside a state_dict()."""
    t = tensor(W)
    args = Raw(pickled(t, memo=False)[0][2:-1][len(b"ctorch._utils\n_rebuild_tensor_v2\n"):-1])
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(pickled(
        Dict([("b", attributed(args, {"persistent": True, "_is_buffer": True}))]), memo=False)[0],
        {"0": t.storage.data}))
    want = read(path)
    for out in both_ways(path, tmp_path):
        assert read(out) == want
    assert "_is_buffer" in repr(want)
    assert "b" in run_tersor("inspect", path, "-v", check=0).stdout.split()


# --- Hostile ------------------------------------------------------------------------------------

def hostile(tmp_path):
    target = tmp_path / "executed"
    system = Global("evil", "run")   # of a module that is not known for running programs
    touch = (f"touch {target}",)
    return target, {
        "call": Call(system, touch),
        "new": Call(system, touch, new=True),
        "callee": Call(Call(Global("m", "f"), ()), touch),
        "state": Call(Global("argparse", "Namespace"), (), {"a": Call(system, touch)}, new=True),
        "argument": Call(Global("argparse", "Namespace"), (Call(system, touch),)),
        "inner": Call(SCALER.callee, (), {"a": Call(system, touch)}, new=True),
        "key": Dict([(Call(system, touch), 1)]),
        "function": system,
    }


@pytest.mark.parametrize("where", hostile(pathlib.Path("/"))[1])
def test_a_hostile_call_is_inert(where, tmp_path):
    """Carried, named and not made; refused or left out where the option says so."""
    target, values = hostile(tmp_path)
    path = checkpoint(tmp_path, v=values[where])
    name = "m.f" if where == "callee" else "evil.run"
    assert name in one_line_error(pack(path, "--opaque", "refuse", check=3)) or where == "inner"
    assert name in pack(path).stderr
    done = run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "out.pt", check=0)
    assert name in done.stderr and read(tmp_path / "out.pt") == read(path)
    assert not target.exists()
    if where != "key":
        pack(path, "--opaque", "drop")
        run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "dropped.pt", check=0)
        assert b"evil" not in (tmp_path / "dropped.pt").read_bytes()


def test_what_is_carried_does_run_in_python(tmp_path):
    """The warning is no exaggeration: the output makes the call that the input made."""
    target, values = hostile(tmp_path)
    path = checkpoint(tmp_path, v=values["call"])
    run_tersor("convert", path, "-o", tmp_path / "out.pt", "--opaque", "carry", check=0)
    opcodes = records_of((tmp_path / "out.pt").read_bytes())[1]["data.pkl"]
    assert b"cevil\nrun\n" in opcodes and str(target).encode() in opcodes


def test_a_call_that_is_dropped_from_the_stack_is_refused(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(b"\x80\x02cposix\nsystem\nX\x02\0\0\0ls\x85R0N."))
    assert "POP" in one_line_error(run_tersor("inspect", path, "--opaque", "carry", check=3))


@pytest.mark.parametrize("opcodes,word", [
    (b"cm\nC\n)}\x92", None),
    (b"cm\nC\n)]\x92", "NEWOBJ_EX: found a list for keyword arguments"),
    (b"cm\nC\nN}\x92", "NEWOBJ_EX: found None for arguments"),
    (b"cm\nC\n)\x81}bNa", "APPEND: found items for an object that has a state already"),
    (b"cm\nC\n)\x81}b}b", "BUILD: found an object that has a state already"),
    (b"\x96\x09\0\0\0\0\0\0\0", "BYTEARRAY8: found a length"),
    (b"cm\nC\n)\x81q\0(h\0lb", "LIST"),
    (b"]q\0cm\nC\n)\x81h\0ba", "contains itself"),
], ids=repr)
def test_opcodes_of_objects(opcodes, word, tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt_of(b"\x80\x04" + opcodes + b"."))
    if word:
        assert word in one_line_error(run_tersor("inspect", path, "--opaque", "carry", check=3))
    else:
        run_tersor("inspect", path, "--opaque", "carry", check=0)


# --- DCP ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("policy", [None, "carry", "drop", "refuse"])
def test_an_object_in_a_dcp_directory(policy, tmp_path):
    folder = FRAMEWORKS / "states" / "dcp-own-class"
    options = ["--opaque", policy] if policy else []
    done = run_tersor("convert", folder, "-o", tmp_path / "out.pt", *options,
                      check=3 if policy == "refuse" else 0)
    assert "__main__.Foo" in done.stderr
    if policy == "refuse":
        return
    _, records = records_of((tmp_path / "out.pt").read_bytes())
    found = Reader(records["data.pkl"], records).load()
    if policy == "drop":
        assert found["cfg"] is None
    else:
        assert name_of(found["cfg"]) == "__main__.Foo"


def test_objects_in_a_dcp_directory_that_is_written(tmp_path):
    """An object is one entry; attributes of tensors have no place there, and a note says so."""
    path = next(FRAMEWORKS.glob("deepspeed/zero3*/global_step20/bf16_zero_pp_rank_0*"))
    done = run_tersor("convert", path, "--to", "dcp", "-o", tmp_path / "out", check=0)
    assert "attributes of 2 tensors are left out" in done.stderr
    run_tersor("convert", tmp_path / "out", "-o", tmp_path / "back.pt", check=0)
    _, records = records_of((tmp_path / "back.pt").read_bytes())
    _, before = records_of(path.read_bytes())
    found, want = (Reader(r["data.pkl"], r).load()["optimizer_state_dict"]
                   for r in (records, before))
    for key in ("loss_scaler", "zero_stage"):
        assert described(found[key], {}) == described(want[key], {})
    line = one_line_error(run_tersor("convert", TORCHAO, "--to", "dcp", "-o", tmp_path / "no", check=3))
    assert "OptimState8bit" in line and not (tmp_path / "no").exists()


def test_a_part_of_a_tree_of_objects_in_a_dcp_directory(tmp_path):
    """A node cannot be an entry of its own if its parent is another's; what is whole can be written."""
    root = Node()
    root.children = [Node(root)]
    for value, status in (({"a": root, "b": 1}, 0), ({"a": root, "b": root.children[0]}, 3)):
        path = tmp_path / "in.pt"
        path.write_bytes(pt_of(pickle.dumps(value)))
        done = run_tersor("convert", path, "--to", "dcp", "-f", "-o", tmp_path / "out", "--opaque",
                          "carry", check=status)
        if status:
            assert "names one around it" in one_line_error(done)
