"""Directories of torch.distributed.checkpoint that are written.

What is right comes from real directories, from the tests' own reader of their pickles and archives
(torchfile), and from the reader that test_dcp.py tests.
"""
import io
import json
import os
import pathlib
import pickle
import shutil
import signal
import struct
import subprocess

import numpy as np
import pytest

import torchfile
from conftest import BINARY, DATA, one_line_error, run_tersor, safetensors_bytes
from faults import LIBRARY, TEMP_NAME, shim, spread
from torchfile import Dict, Sharded, Tensor, arrays_in, dcp, pt, tensor, whole

tmp_path = torchfile.tmp_path

TINY = DATA / "tiny-gpt" / "dcp"
FSDP = DATA / "frameworks" / "accelerate-fsdp" / "checkpoint-10"
REAL = [TINY, DATA / "torch" / "dcp-2rank", FSDP / "optimizer_0", FSDP / "pytorch_model_fsdp_0"]
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(5, dtype=np.float64)


# ---- A reader of .metadata: stand-ins for torch's classes, of which nothing runs ----

class Object:
    def __init__(self, *args):
        pass

    def __setstate__(self, state):
        self.state = state

    def __repr__(self):
        return f"{type(self).__name__}({self.state})"


class Metadata(pickle.Unpickler):
    CLASSES = {}

    def find_class(self, module, name):
        if (module, name) in (("torch", "Size"), ("torch.serialization", "_get_layout"),
                              (torchfile.META, "_MEM_FORMAT_ENCODING")):
            return lambda *args: (name, *args)
        if module == "torch":
            return name                         # a dtype
        if module.startswith("torch.distributed."):
            return self.CLASSES.setdefault((module, name), type(name, (Object,), {}))
        return lambda *args: (module, name, *args)


def metadata_of(folder):
    return Metadata(io.BytesIO((folder / ".metadata").read_bytes())).load().state


def stored_in(folder):
    """{fqn: the value in its archive, or the pickle of an object} of a directory that was written."""
    out = {}
    for index, info in metadata_of(folder)["storage_data"].items():
        where = info.state
        data = (folder / where["relative_path"]).read_bytes()
        blob = data[where["offset"]:where["offset"] + where["length"]]
        assert len(blob) == where["length"]
        try:
            out[index.state["fqn"]] = torchfile.load(blob)
        except torchfile.Forbidden:
            out[index.state["fqn"]] = torchfile.records_of(blob)[1]["data.pkl"]
    return out


def write(source, out, *options, command="convert"):
    sources = source if isinstance(source, (list, tuple)) else [source]
    return run_tersor(command, *sources, "--to", "dcp", "-o", out, *options, check=0)


def arrays(source, tmp_path):
    out = tmp_path / "arrays.safetensors"
    run_tersor("convert", source, "-o", out, "--force", check=0)
    return arrays_in(out)


# ---- As PyTorch writes them ----

@pytest.mark.parametrize("real", REAL, ids=lambda p: p.name)
def test_what_is_read_from_a_real_directory_is_written_as_it_was(real, tmp_path):
    write(real, tmp_path / "out")
    assert arrays(real, tmp_path) == arrays(tmp_path / "out", tmp_path)
    run_tersor("verify", tmp_path / "out", check=0)
    was, now = metadata_of(real), metadata_of(tmp_path / "out")
    assert now["planner_data"] == was["planner_data"]
    assert now["state_dict_metadata"].keys() == was["state_dict_metadata"].keys()
    for fqn, entry in was["state_dict_metadata"].items():
        mine = now["state_dict_metadata"][fqn]
        assert type(mine) is type(entry)
        if type(entry).__name__ == "BytesStorageMetadata":
            continue
        properties = entry.state["properties"].state[:5]
        assert mine.state["properties"].state == properties
        assert mine.state["size"] == entry.state["size"]
        chunk, = mine.state["chunks"]
        assert chunk.state["sizes"] == entry.state["size"]
        assert chunk.state["offsets"] == ("Size", (0,) * len(entry.state["size"][1]))


def test_pickles_have_the_classes_and_members_of_real_ones(tmp_path):
    """But for what PyTorch lets be absent: where a save came from, and transformations."""
    write(FSDP / "optimizer_0", tmp_path / "out")

    def shapes(value, into):
        if isinstance(value, Object):
            state = getattr(value, "state", {})
            names = frozenset(state) if isinstance(state, dict) else len(state)
            into.add((type(value).__name__, names))
            shapes(state, into)
        elif isinstance(value, dict):
            for pair in value.items():
                shapes(pair, into)
        elif isinstance(value, (list, tuple)):
            for item in value:
                shapes(item, into)
        return into

    was = metadata_of(FSDP / "optimizer_0")
    now = metadata_of(tmp_path / "out")
    assert was.keys() == now.keys() and was["version"] == now["version"] == "1.0.0"
    assert now["storage_meta"] is None
    was["storage_meta"] = None
    strides = ("TensorProperties", 6)
    assert shapes(was, set()) - {strides} == shapes(now, set()) - {("TensorProperties", 5)}


@pytest.mark.parametrize("real", REAL, ids=lambda p: p.name)
def test_objects_and_tensors_are_archives_that_torch_loads(real, tmp_path):
    write(real, tmp_path / "out")
    values = stored_in(tmp_path / "out")
    entries = metadata_of(tmp_path / "out")["state_dict_metadata"]
    assert values.keys() == entries.keys()
    for fqn, value in values.items():
        is_tensor = type(entries[fqn]).__name__ == "TensorStorageMetadata"
        assert isinstance(value, Tensor) == is_tensor, fqn
        if is_tensor:
            assert ("Size", tuple(value.shape)) == entries[fqn].state["size"]
            assert not value.parameter and not value.requires_grad


def test_output_depends_on_the_input_alone(tmp_path):
    for name in ("one", "two"):
        write(TINY, tmp_path / name, "-j", 1 if name == "one" else 3)
    for file in (".metadata", "__0_0.distcp"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


# ---- Flattening ----

def flattened(tmp_path, value, *options):
    """{fqn: value} and the paths that a .pt becomes."""
    (tmp_path / "in.pt").write_bytes(pt(value))
    done = write(tmp_path / "in.pt", tmp_path / "out", *options)
    return stored_in(tmp_path / "out"), metadata_of(tmp_path / "out")["planner_data"], done.stderr


def test_a_state_dict_is_flattened_as_pytorch_does(tmp_path):
    """Dicts always, lists where a tensor or a dict is in them, tuples never."""
    values, paths, notes = flattened(tmp_path, {
        "model": {"a.b": tensor(A)},
        "more": {"ids": {0: {"step": 3}}, "groups": [{"lr": 0.5, "betas": (0.9, 0.99)}]},
        "ints": [1, 2, [3]], "mixed": [tensor(B), 5], "nested": [[tensor(B)], []],
        "pair": (1, {"x": 2}), "none": None, "text": "t", "empty": [],
    })
    assert paths == {
        "model.a.b": ("model", "a.b"), "more.ids.0.step": ("more", "ids", "0", "step"),
        "more.groups.0.lr": ("more", "groups", 0, "lr"),
        "more.groups.0.betas": ("more", "groups", 0, "betas"),
        "ints": ("ints",), "mixed.0": ("mixed", 0), "mixed.1": ("mixed", 1),
        "nested.0.0": ("nested", 0, 0), "nested.1": ("nested", 1),
        "pair": ("pair",), "none": ("none",), "text": ("text",), "empty": ("empty",)}
    assert values.keys() == paths.keys()
    assert values["more.groups.0.betas"] == (0.9, 0.99)
    assert values["ints"] == [1, 2, [3]] and values["none"] is None and values["text"] == "t"
    assert values["mixed.1"] == 5 and values["nested.1"] == [] == values["empty"]
    assert values["pair"][1].items() == [("x", 2)]
    assert torchfile.content_of(values["model.a.b"]) == A.tobytes()
    assert torchfile.content_of(values["nested.0.0"]) == B.tobytes()
    assert "1 key that was an int is made text" in notes


def test_dicts_without_items_are_named_as_left_out(tmp_path):
    values, _, notes = flattened(tmp_path, {"a": tensor(A), "state": {}, "deep": {"x": {}}})
    assert list(values) == ["a"]
    assert "2 empty dicts are left out" in notes


def test_a_tied_tensor_is_stored_under_both_names(tmp_path):
    shared = tensor(A)
    values, _, _ = flattened(tmp_path, {"embed": shared, "head": shared, "pair": (shared, 1)})
    for value in (values["embed"], values["head"], values["pair"][0]):
        assert torchfile.content_of(value) == A.tobytes()
    back = arrays(tmp_path / "out", tmp_path)
    assert {"embed", "head"} <= back.keys() and back["embed"] == back["head"]
    run_tersor("verify", tmp_path / "out", check=0)


def test_safetensors_become_flat_names(tmp_path):
    header = {"a.b": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]},
              "c": {"dtype": "BF16", "shape": [2], "data_offsets": [48, 52]},
              "none": {"dtype": "I64", "shape": [0], "data_offsets": [52, 52]}}
    (tmp_path / "in.safetensors").write_bytes(safetensors_bytes(header, A.tobytes() + b"abcd"))
    write(tmp_path / "in.safetensors", tmp_path / "out")
    assert metadata_of(tmp_path / "out")["planner_data"] == {n: (n,) for n in header}
    assert arrays(tmp_path / "out", tmp_path) == arrays_in(tmp_path / "in.safetensors")


def test_weights_beside_a_tree_are_written_too(tmp_path):
    (tmp_path / "optim.pt").write_bytes(pt({"state": {0: {"exp_avg": tensor(A), "step": tensor(B)}},
                                            "param_groups": [{"params": [0]}]}))
    header = {"w": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}}
    (tmp_path / "m.safetensors").write_bytes(safetensors_bytes(header, A.tobytes()))
    write([tmp_path / "m.safetensors", tmp_path / "optim.pt"], tmp_path / "out")
    assert stored_in(tmp_path / "out").keys() == {
        "model.w", "optimizer.state.0.exp_avg", "optimizer.state.0.step",
        "optimizer.param_groups.0.params"}


def test_two_directories_become_one(tmp_path):
    """As Accelerate has model and optimizer."""
    write([FSDP / "pytorch_model_fsdp_0", FSDP / "optimizer_0"], tmp_path / "out")
    names = set()
    for folder in FSDP.iterdir():
        names |= metadata_of(folder)["state_dict_metadata"].keys()
    assert metadata_of(tmp_path / "out")["state_dict_metadata"].keys() == names


@pytest.mark.parametrize("value, fact", [
    ([1, tensor(A)], "a list"), (tensor(A), "a tensor"), ({"a.b": tensor(A), "a": {"b": 1}}, "a.b"),
    ({(1, 2): 3, "a": tensor(A)}, "a tuple"), ({"a\0b": 1, "a": tensor(A)}, "make no name"),
    ({1.5: 1, "a": tensor(A)}, "a float"),
], ids=["list", "tensor", "two of a name", "tuple", "NUL", "float"])
def test_what_has_no_place_is_refused(value, fact, tmp_path):
    (tmp_path / "in.pt").write_bytes(pt(value))
    done = run_tersor("convert", tmp_path / "in.pt", "--to", "dcp", "-o", tmp_path / "out", check=3)
    assert fact in one_line_error(done)
    assert [p.name for p in tmp_path.iterdir()] == ["in.pt"]


# ---- Files ----

def test_a_tensor_without_a_name_is_refused(tmp_path):
    header = {"": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    (tmp_path / "in.safetensors").write_bytes(safetensors_bytes(header, bytes(4)))
    done = run_tersor("convert", tmp_path / "in.safetensors", "--to", "dcp", "-o", tmp_path / "out", check=3)
    assert "empty name" in one_line_error(done)
    assert not (tmp_path / "out").exists()


def test_max_shard_size_divides_entries_among_files(tmp_path):
    write(TINY, tmp_path / "one")
    write(TINY, tmp_path / "many", "--max-shard-size", "100K")
    files = sorted(tmp_path.glob("many/*.distcp"))
    assert len(files) > 5
    assert {f.name for f in files} == {f"__0_{i}.distcp" for i in range(len(files))}
    assert all(f.stat().st_size <= 100 << 10 for f in files)
    assert arrays(tmp_path / "many", tmp_path) == arrays(tmp_path / "one", tmp_path)
    run_tersor("verify", tmp_path / "many", check=0)


def test_an_entry_larger_than_the_limit_has_a_file_of_its_own(tmp_path):
    write(TINY, tmp_path / "many", "--max-shard-size", "1")
    assert len(list(tmp_path.glob("many/*.distcp"))) == \
        len(metadata_of(tmp_path / "many")["storage_data"])


def test_memory_does_not_grow_with_the_tensors(tmp_path):
    n = 1 << 28
    head = safetensors_bytes({"a": {"dtype": "F32", "shape": [n >> 2], "data_offsets": [0, n]}})
    with open(tmp_path / "in.safetensors", "wb") as file:
        file.write(head)
        file.truncate(len(head) + n)
    done, peak, _ = torchfile.run_measured("convert", tmp_path / "in.safetensors", "--to", "dcp", "-o",
                                           tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert peak < 100


# ---- Unpacking ----

def test_a_packed_directory_comes_back_as_one(tmp_path):
    packed = tmp_path / "packed.safetensors"
    run_tersor("pack", TINY, "-o", packed, check=0)
    run_tersor("unpack", packed, "-o", f"{tmp_path}/slash/", check=0)
    run_tersor("unpack", packed, "-o", tmp_path / "named", "--to", "dcp", check=0)
    run_tersor("unpack", packed, "-o", tmp_path / "file.pt", check=0)
    run_tersor("unpack", packed, "-o", tmp_path / "plain.safetensors", check=0)
    want = arrays_in(tmp_path / "plain.safetensors")
    for name in ("slash", "named"):
        assert arrays(tmp_path / name, tmp_path) == want
        assert metadata_of(tmp_path / name)["planner_data"] == metadata_of(TINY)["planner_data"]
    torchfile.load(tmp_path / "file.pt")


def test_lossy_generations_are_counted(tmp_path):
    packed = tmp_path / "packed.safetensors"
    run_tersor("pack", TINY, "-o", packed, check=0)
    run_tersor("unpack", packed, "--to", "dcp", "-o", tmp_path / "out", check=0)
    done = run_tersor("pack", tmp_path / "out", "-o", tmp_path / "again.safetensors", "--json",
                      check=0)
    assert json.loads(done.stdout)["generation"] == 2


def test_a_packed_pt_becomes_a_directory_on_request(tmp_path):
    source = DATA / "tiny-gpt" / "checkpoint.pt"
    packed = tmp_path / "packed.safetensors"
    run_tersor("pack", source, "-o", packed, "--keep", ".", check=0)
    run_tersor("unpack", packed, "--to", "dcp", "-o", tmp_path / "out", check=0)
    write(source, tmp_path / "direct")
    for file in (".metadata", "__0_0.distcp"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "direct" / file).read_bytes()


# ---- Complete or absent ----

def entries_of(folder):
    return sorted(p.name for p in folder.iterdir())


def test_existing_outputs_are_kept_without_force(tmp_path):
    write(REAL[1], tmp_path / "out")
    before = (tmp_path / "out" / ".metadata").read_bytes()
    done = run_tersor("convert", TINY, "--to", "dcp", "-o", tmp_path / "out", check=4)
    assert "--force" in one_line_error(done)
    assert (tmp_path / "out" / ".metadata").read_bytes() == before


def test_force_replaces_the_whole_directory(tmp_path):
    write(TINY, tmp_path / "out", "--max-shard-size", "100K")
    write(REAL[1], tmp_path / "out", "--force")
    assert entries_of(tmp_path / "out") == [".metadata", "__0_0.distcp"]
    assert entries_of(tmp_path) == ["out"]
    run_tersor("verify", tmp_path / "out", check=0)


def test_directories_of_other_things_are_never_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters").write_text("dear")
    for force in ([], ["--force"]):
        done = run_tersor("convert", TINY, "--to", "dcp", "-o", tmp_path / "home", *force, check=4)
        assert "other things" in one_line_error(done)
    assert entries_of(tmp_path / "home") == ["letters"] and entries_of(tmp_path) == ["home"]


def test_the_input_is_not_replaced(tmp_path):
    shutil.copytree(REAL[1], tmp_path / "in")
    for out in (tmp_path / "in", f"{tmp_path}/in/"):
        done = run_tersor("convert", tmp_path / "in", "--to", "dcp", "-o", out, "--force")
        assert done.returncode in (2, 4), done
    run_tersor("verify", tmp_path / "in", check=0)
    (tmp_path / "in" / "x.safetensors").write_bytes(safetensors_bytes({}))
    done = run_tersor("convert", tmp_path / "in" / "x.safetensors", "--to", "dcp", "-o", tmp_path / "in",
                      "--force", check=4)
    assert "input" in one_line_error(done)
    assert (tmp_path / "in" / "x.safetensors").exists()


def test_dry_run_writes_nothing(tmp_path):
    done = write(TINY, tmp_path / "out", "--dry-run", "--json")
    planned = json.loads(done.stdout)["nbytes"]
    assert entries_of(tmp_path) == []
    write(TINY, tmp_path / "out")
    assert planned == sum(p.stat().st_size for p in (tmp_path / "out").iterdir())


FAULTS = ["pwrite", "fsync", "rename", "open", "close"]


@pytest.mark.parametrize("force", [False, True], ids=["new", "force"])
@pytest.mark.parametrize("call", FAULTS)
def test_after_a_fault_there_is_the_old_directory_or_the_new_one(call, force, tmp_path):
    out = tmp_path / "root"
    out.mkdir()
    target = out / "target"
    args = ["convert", REAL[1], "--to", "dcp", "-o", target, "--max-shard-size", "20K"]
    args += ["--force"] if force else []

    def reset():
        shutil.rmtree(out)
        out.mkdir()
        if force:
            shutil.copytree(REAL[3], target)

    def state():
        return {p.name: p.read_bytes() for p in target.iterdir()} if target.exists() else None

    reset()
    old = state()
    count = tmp_path / "count"
    run_tersor(*args, env=shim(out, f"{call}:1000000:EIO", count=count), check=0)
    new, n = state(), struct.unpack("9Q", count.read_bytes())[0]
    assert new != old and n > 0
    for i in spread(n, 12):
        reset()
        done = run_tersor(*args, env=shim(out, f"{call}:{i}:ENOSPC"))
        assert done.returncode in (0, 4), (i, done)
        assert state() in (old, new), (call, i, sorted(state() or ()))
        left = [p.name for p in out.iterdir() if p.name != "target"]
        if done.returncode == 0:
            assert state() == new and left == []
        elif state() != new or old == new:
            assert left == [], (call, i, left, done.stderr)
        else:
            assert "published" in one_line_error(done), (call, i)


@pytest.mark.parametrize("call", ["pwrite", "fsync", "rename"])
def test_a_kill_leaves_no_directory_that_could_be_taken_for_one(call, tmp_path):
    out = tmp_path / "root"
    for i in (1, 2, 4):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        done = run_tersor("convert", REAL[1], "--to", "dcp", "-o", out / "target", "--max-shard-size",
                          "20K", env=shim(out, f"{call}:{i}:kill"))
        assert done.returncode == -signal.SIGKILL
        names = entries_of(out)
        assert all(TEMP_NAME.fullmatch(name) for name in names), names


def test_every_allocation_fails_cleanly(tmp_path):
    out = tmp_path / "root"
    out.mkdir()
    args = ["convert", REAL[1], "--to", "dcp", "-o", out / "target", "-j", 1]
    count = tmp_path / "count"
    run_tersor(*args, env=shim(tmp_path, count=count), check=0)
    shutil.rmtree(out / "target")
    for how in ("", ":forever"):
        for n in spread(struct.unpack("9Q", count.read_bytes())[8], 40):
            done = run_tersor(*args, env=shim(tmp_path, malloc=f"{n}{how}"))
            if done.returncode == 0:
                shutil.rmtree(out / "target")
                continue
            assert done.returncode == 4, (n, done)
            if (out / "target").exists() and "published" in done.stderr + done.stdout:
                shutil.rmtree(out / "target")
            assert entries_of(out) == [], (n, done.stderr)


# ---- The Hugging Face form that DCP also writes: read where it is plain ----

def hf_shard(path, offset, rows):
    """As HuggingFaceStorageWriter of PyTorch 2.15 writes a rank's rows of a matrix from `offset` on."""
    info = json.dumps({"w": {"saved_offsets": [offset, 0]}, "b": {"saved_offsets": [0]}})
    header = {"__metadata__": {"DCP_VERSION": "1.0", "DCP_SHARDING_INFO": info, "format": "pt"},
              "w": {"dtype": "F32", "shape": [len(rows), 4], "data_offsets": [0, rows.nbytes]},
              "b": {"dtype": "F32", "shape": [0], "data_offsets": [rows.nbytes, rows.nbytes]}}
    path.write_bytes(safetensors_bytes(header, rows.tobytes()))


def test_what_one_rank_wrote_in_safetensors_is_read(tmp_path):
    hf_shard(tmp_path / "shard-00001-model-00001-of-00001.safetensors", 0, A)
    got = arrays(tmp_path, tmp_path)
    assert got["w"] == ("F32", [3, 4], A.tobytes())


def test_parts_of_tensors_in_safetensors_are_refused_in_words(tmp_path):
    """Half of a model must not be taken for the model."""
    folder = tmp_path / "in"
    folder.mkdir()
    files = [folder / f"shard-0000{i}-model-00001-of-00001.safetensors" for i in (1, 2)]
    hf_shard(files[0], 0, A[:2])
    hf_shard(files[1], 2, A[2:])
    for source in (folder, *files):
        for command in (["inspect", source], ["verify", source],
                        ["pack", source, "-o", tmp_path / "out.safetensors"]):
            line = one_line_error(run_tersor(*command, check=3))
            assert "parts of tensors" in line and "consolidate" in line, (command, line)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]
    files[1].rename(tmp_path / "moved.safetensors")     # its offsets still tell
    line = one_line_error(run_tersor("inspect", tmp_path / "moved.safetensors", check=3))
    assert "parts of tensors" in line


# ---- Objects that are not plain ----

def test_an_object_that_is_carried_is_written_as_it_was(tmp_path):
    source = DATA / "frameworks" / "states" / "dcp-own-class"
    done = write(source, tmp_path / "out")
    assert "__main__.Foo" in done.stderr
    assert metadata_of(tmp_path / "out")["planner_data"] == metadata_of(source)["planner_data"]
    for index, info in metadata_of(tmp_path / "out")["storage_data"].items():
        if index.state["fqn"] == "cfg":
            where = info.state
            data = (tmp_path / "out" / where["relative_path"]).read_bytes()
            _, records = torchfile.records_of(data[where["offset"]:where["offset"] + where["length"]])
            assert b"c__main__\nFoo\n" in records["data.pkl"]
            break
    else:
        pytest.fail("cfg is not stored")


def test_an_object_that_is_left_out_is_named(tmp_path):
    source = DATA / "frameworks" / "states" / "dcp-own-class"
    done = write(source, tmp_path / "out", "--opaque", "drop")
    assert "cfg" in done.stderr and "left out" in done.stderr
