"""Entries of a directory of torch.distributed.checkpoint stay entries: their keys, types, paths and values.

The directories are real: tests/gen/dcp_entries.py and tests/gen/megatron_dist.py made them.
"""
import collections
import io
import json
import pickle
import shutil

import pytest

import torchfile
from conftest import DATA, one_line_error, run_tersor
from test_dcp_write import metadata_of
from torchfile import dcp, new, pt, tensor, whole

tmp_path = torchfile.tmp_path

FLAT, NESTED, OLD, UNREAD = (DATA / "torch" / "dcp-entries" / name
                             for name in ("flat", "nested", "nested-2.3", "unread"))
MEGATRON = DATA / "frameworks" / "megatron"
ITERATION = "iter_0000006"
SOURCES = {"flat": FLAT, "nested": NESTED, "nested-2.3": OLD, "unread": UNREAD, "megatron": MEGATRON / ITERATION}
LOSSLESS = "--weights", "f32", "--momentum", "f32", "--variance", "f32", "--min-elements", "1"


# ---- A reader of objects: stand-ins for all classes, which compare by what was asked of them ----

class Stand:
    def __new__(cls, *args):
        self = object.__new__(cls)
        self.made, self.state, self.items = args, None, []
        return self

    def __init__(self, *args):
        pass

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        self.items.append((key, value))

    def append(self, value):
        self.items.append(value)

    def __call__(self, *args):      # a call of what a call made
        return (self, args)

    def __repr__(self):
        return f"{type(self).__module__}.{type(self).__name__}{self.made}{self.state}{self.items}"


class Objects(pickle.Unpickler):
    REAL = {("collections", "OrderedDict"): collections.OrderedDict, ("_codecs", "encode"): str.encode}

    def __init__(self, members):
        super().__init__(io.BytesIO(members["data.pkl"]))
        self.members = members

    def find_class(self, module, name):
        if module in ("builtins", "__builtin__"):
            return super().find_class("builtins", name)
        return self.REAL.get((module, name)) or type(name, (Stand,), {"__module__": module})

    def persistent_load(self, pid):     # its bytes in place of its key
        return (pid[0], pid[1].__name__, self.members[f"data/{pid[2]}"], *pid[3:])


def parts_of(folder):
    """{(fqn, offset): the value of the archive, as text}"""
    out = {}
    for index, info in metadata_of(folder)["storage_data"].items():
        where = info.state
        data = (folder / where["relative_path"]).read_bytes()
        blob = data[where["offset"]:where["offset"] + where["length"]]
        offset = index.state.get("offset")
        out[index.state["fqn"], offset and offset[1]] = repr(Objects(torchfile.records_of(blob)[1]).load())
    return out


def entries_of(folder):
    """What a load plan sees of each entry; paths of what is no entry are none."""
    metadata = metadata_of(folder)
    entries = metadata["state_dict_metadata"]
    paths = metadata["planner_data"]
    return ({k: (type(v).__name__, repr(getattr(v, "state", {}).get("size"))) for k, v in entries.items()},
            paths and {k: v for k, v in paths.items() if k in entries})


def same_entries(folder, source, values=True):
    assert entries_of(folder) == entries_of(source)
    if values:
        found, want = parts_of(folder), parts_of(source)
        assert found.keys() == want.keys()
        assert [k for k in want if found[k] != want[k]] == []


# ---- Every way ----

@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]


def test_converted_entries_are_the_same(source, tmp_path):
    run_tersor("convert", source / ".metadata", "--to", "dcp", "-o", tmp_path / "dcp", check=0)
    same_entries(tmp_path / "dcp", source)
    for name in "x.pt", "x.safetensors":
        run_tersor("convert", source / ".metadata", "-o", tmp_path / name, check=0)
        run_tersor("convert", tmp_path / name, "--to", "dcp", "-o", tmp_path / "out", "-f", check=0)
        same_entries(tmp_path / "out", source)


@pytest.mark.parametrize("options", [(), ("--entropy",), ("--part",)], ids=["plain", "coded", "parts"])
def test_packed_entries_are_the_same(source, options, tmp_path):
    packed = tmp_path / "p.safetensors"
    for lossless in True, False:
        words = ["pack", source / ".metadata", "-o", packed, *(LOSSLESS if lossless else ())]
        if options == ("--part",):
            for i in "12":
                run_tersor(*words, "--part", f"{i}/2", check=0)
            run_tersor("join", packed, check=0)
        else:
            run_tersor(*words, *options, check=0)
        run_tersor("unpack", packed, "--to", "dcp", "-o", tmp_path / "out", "-f", "--max-shard-size", "9K",
                   check=0)
        same_entries(tmp_path / "out", source, lossless)
        run_tersor("unpack", packed, "-o", tmp_path / "x.pt", "-f", check=0)
        run_tersor("convert", tmp_path / "x.pt", "--to", "dcp", "-o", tmp_path / "out", "-f", check=0)
        same_entries(tmp_path / "out", source, lossless)
        packed.unlink()


def test_entries_in_packed_directories_are_the_same(source, tmp_path):
    top = tmp_path / "in"
    shutil.copytree(source, top / "deep" / "checkpoint")
    (top / "other.json").write_text("{}")
    run_tersor("pack", top, "-o", f"{tmp_path}/p/", *LOSSLESS, check=0)
    run_tersor("verify", tmp_path / "p", "--against", top, check=0)
    run_tersor("unpack", tmp_path / "p", "-o", tmp_path / "back", check=0)
    same_entries(tmp_path / "back" / "deep" / "checkpoint", source)
    names = [{str(p.relative_to(root)) for p in root.rglob("*") if p.suffix != ".distcp"}
             for root in (top, tmp_path / "back")]
    assert names[0] == names[1]


def test_states_in_an_object_are_packed(tmp_path):
    report = json.loads(run_tersor("pack", FLAT, "-o", tmp_path / "p.safetensors", "--json", check=0).stdout)
    codecs = {t["name"]: t["codec"] for t in report["tensors"]}
    assert codecs["opt.state.0.exp_avg"] == "softsign8" and codecs["opt.state.0.exp_avg_sq"] == "sqrt8"


def test_names_that_read_the_same_are_numbered(tmp_path):
    run_tersor("convert", FLAT, "-o", tmp_path / "x.safetensors", check=0)
    names = torchfile.arrays_in(tmp_path / "x.safetensors")
    assert {"dots.a.b", "dots.a.b#2", "dots.a.b#3"} <= names.keys()


def test_diff_sees_an_entry_that_is_missing(tmp_path):
    value = {"a": tensor(torchfile.np.ones((3, 4), "f4")), "b": tensor(torchfile.np.ones(5, "f4"))}
    dcp(tmp_path / "both", {k: whole(v) for k, v in value.items()})
    dcp(tmp_path / "one", {"a": whole(value["a"])})
    done = run_tersor("diff", tmp_path / "both", tmp_path / "one")
    assert done.returncode == 1 and "b" in done.stdout


# ---- Megatron ----

def test_joined_directory_of_megatron_has_its_entries(tmp_path):
    """And what common.pt holds, as one more."""
    run_tersor("convert", MEGATRON, "--to", "dcp", "-o", tmp_path / "out", check=0)
    entries, paths = entries_of(tmp_path / "out")
    assert entries.pop("common") == ("BytesStorageMetadata", "None")
    assert (entries, paths) == entries_of(MEGATRON / ITERATION)
    values = parts_of(tmp_path / "out")
    assert {k: v for k, v in values.items() if k[0] != "common"} == parts_of(MEGATRON / ITERATION)


def test_groups_without_parameters_are_read(tmp_path):
    """Megatron's common.pt has groups and states of an optimizer, but no list of parameters."""
    for command in ("inspect", MEGATRON), ("pack", MEGATRON, "-o", f"{tmp_path}/p/"):
        assert run_tersor(*command, check=0)


@pytest.mark.parametrize("old", [{"decoder.w": {"nd_reformulated_orig_global_shape": (3, 4)}}, {"decoder.w": {}}])
def test_mcore_data_comes_back(old, tmp_path):
    """What megatron-core before 0.14 adds to .metadata, without which it does not load flattened tensors."""
    plan = new("megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan", {"mcore_data": old})
    dcp(tmp_path / "in", {"decoder.w": whole(tensor(torchfile.np.ones((3, 4), "f4")))},
        edit=lambda state: state.update(planner_data=None, mcore_data=old, all_local_plans=[plan]))
    run_tersor("pack", tmp_path / "in", "-o", tmp_path / "p.safetensors", check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "--to", "dcp", "-o", tmp_path / "out", check=0)
    assert metadata_of(tmp_path / "out")["mcore_data"] == old
    assert metadata_of(tmp_path / "out")["planner_data"] is None


# ---- What an attribute may say ----

@pytest.mark.parametrize("attribute, fact", [
    ({"planner_data": {"a": 5}}, "expected the path of an entry"),
    ({"planner_data": {"a": ()}}, "expected the path of an entry"),
    ({"planner_data": {1: ("a",)}}, "expected the path of an entry"),
    ({"planner_data": {"x": ("a",), "x" * 70000: ("b",)}}, "make no name"),
    ({"planner_data": {"x\0": ("a",)}}, "make no name"),
    ({"unread": {"x": 5}}, "unread: expected tensors"),
    ({"planner_data": {"b": ("a",)}}, "two values of this name"),
    ({"planner_data": None}, None), ({"planner_data": {"y": ("a", 3, "z")}}, None), ({"planner_data": 7}, None),
    ({"planner_data": {"y": ("a",), "z": ("a",)}}, None), ([], None),
])
def test_an_attribute_of_any_kind(attribute, fact, tmp_path):
    ones = tensor(torchfile.np.ones(4, "f4"))
    root = torchfile.Dict([("a", ones), ("b", [ones, None])], ordered=True,
                          state=torchfile.Dict([("_dcp_metadata", attribute)]))
    (tmp_path / "in.pt").write_bytes(pt(root))
    done = run_tersor("convert", tmp_path / "in.pt", "--to", "dcp", "-o", tmp_path / "out")
    if fact:
        assert done.returncode == 3 and fact in one_line_error(done)
    else:
        assert done.returncode == 0, done.stderr
        run_tersor("verify", tmp_path / "out", check=0)


def test_dropped_and_refused_objects(tmp_path):
    run_tersor("convert", UNREAD, "--to", "dcp", "-o", tmp_path / "out", "--opaque", "drop", check=0)
    assert "sparse" not in metadata_of(tmp_path / "out")["state_dict_metadata"]
    done = run_tersor("convert", UNREAD, "--to", "dcp", "-o", tmp_path / "no", "--opaque", "refuse")
    assert done.returncode == 3 and not (tmp_path / "no").exists()


def test_states_in_another_arrangement_are_carried(tmp_path):
    """megatron-core before 0.14 saves states of its distributed optimizer as [1, 1, n]."""
    values = torchfile.np.arange(768, dtype="f4")
    entries = {"w": values.reshape(32, 24), "optimizer.state.exp_avg.w": values.reshape(1, 1, 768)}
    dcp(tmp_path / "in", {k: whole(tensor(v)) for k, v in entries.items()},
        edit=lambda state: state.update(planner_data=None))
    done = run_tersor("pack", tmp_path / "in", "-o", tmp_path / "p.safetensors", "--json", check=0)
    codecs = {t["name"]: t["codec"] for t in json.loads(done.stdout)["tensors"]}
    assert codecs["w"] and codecs["optimizer.state.exp_avg.w"] == "raw"
