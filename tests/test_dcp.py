"""Directories of torch.distributed.checkpoint.

Real ones come from PyTorch 2.11, on one rank and on two; the others are made by torchfile.dcp.
"""
import json
import os
import pathlib
import re
import shutil

import numpy as np
import pytest

import torchfile
from conftest import DATA, one_line_error, run_tersor, traced
from torchfile import (META, Call, Chunk, Global, Sharded, Storage,
                       Tensor, arrays_in, as_array, converted, dcp, must_refuse, new, pickled, pt,
                       size_of, tensor, untyped, whole)

tmp_path = torchfile.tmp_path

TINY = DATA / "tiny-gpt" / "dcp"
TWO_RANKS = DATA / "torch" / "dcp-2rank"
CHECKPOINT = DATA / "tiny-gpt" / "checkpoint.pt"
LONG = os.environ.get("TERSOR_LONG") == "1"
A = np.arange(48, dtype=np.float32).reshape(6, 8)


def grid(values, rows, columns, files=("__0_0.distcp",)):
    """A matrix in chunks, dealt out to files."""
    chunks, dtype = [], torchfile.STORAGES[torchfile.OF_NUMPY[values.dtype.name]][2]
    r = 0
    for height in rows:
        c = 0
        for width in columns:
            chunks.append(Chunk((r, c), tensor(values[r:r + height, c:c + width].copy()),
                                file=files[len(chunks) % len(files)], index=len(chunks)))
            c += width
        r += height
    return Sharded(values.shape, chunks, dtype)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def refused(folder):
    def check(*facts, **more):
        line = must_refuse(folder, *facts, among=folder, other=CHECKPOINT, **more)
        shutil.rmtree(folder)
        return line
    return check


def read(folder, *options):
    return converted(folder, *options, to=folder.parent / "out.safetensors")


# ---- What makes a directory a checkpoint ----

def test_directory_without_metadata_is_refused(folder, refused):
    dcp(folder, {"model.a": whole(tensor(A))}, metadata=False)
    refused(".metadata")


def test_interrupted_save_is_refused(folder, refused):
    dcp(folder, {"model.a": whole(tensor(A))})
    (folder / ".metadata").rename(folder / ".metadata.tmp")
    refused(".metadata")


def test_a_leftover_beside_the_metadata_does_no_harm(folder):
    dcp(folder, {"model.a": whole(tensor(A))})
    (folder / ".metadata.tmp").write_bytes(b"half")
    assert read(folder) == {"a": as_array(tensor(A))}


def test_zero_length_data_file_is_accepted(folder):
    dcp(folder, {"model.a": whole(tensor(A))}, files=["__1_0.distcp", "__2_0.distcp"])
    assert (folder / "__1_0.distcp").stat().st_size == 0
    assert read(folder) == {"a": as_array(tensor(A))}
    run_tersor("verify", folder, check=0)


@pytest.mark.parametrize("content", [b"", b"\x80", b"PK\3\4", b"{}", b"\x80\4N.", b"\x80\4}.",
                                     b"\x80\4\x95\2\0\0\0\0\0\0\0N.", b"\xff" * 100], ids=repr)
def test_metadata_that_is_not_metadata_is_refused(folder, refused, content):
    dcp(folder, {"model.a": whole(tensor(A))})
    (folder / ".metadata").write_bytes(content)
    refused(".metadata")


def test_metadata_cut_anywhere_is_refused(folder):
    dcp(folder, {"model.a": whole(tensor(A)), "step": 3})
    good = (folder / ".metadata").read_bytes()
    for length in sorted({*range(0, len(good), 23), *range(len(good) - 20, len(good))}):
        (folder / ".metadata").write_bytes(good[:length])
        one_line_error(run_tersor("inspect", folder, check=3))


def test_missing_data_file_is_named(folder):
    dcp(folder, {"model.a": whole(tensor(A))})
    (folder / "__0_0.distcp").unlink()
    for args in (["inspect", folder], ["verify", folder],
                 ["convert", folder, "-o", folder.parent / "x.safetensors"]):
        done = run_tersor(*args)
        assert done.returncode in (3, 4) and "__0_0.distcp" in one_line_error(done)


# ---- Chunks ----

@pytest.mark.parametrize("offsets, shape", [
    ((0, 6), (6, 8)), ((1, 0), (6, 8)), ((0, 2**63), (6, 8)), ((2**64 - 1, 0), (6, 8)),
    ((0, 2**64 - 4), (6, 8)), ((-1, 0), (6, 8)), ((0,), (6, 8)), ((0, 0, 0), (6, 8)),
    ((0, 0), (6, 7)), ((0, 0), (5, 8)), ((0, 0), (6, 9)), ((0, 0), (48,)), ((0, 0), (8, 6)),
    ((0, 0), ()), ((0, 0), (6, -8)), ((0, 0), (2**32, 2**32)),
], ids=str)
def test_chunk_out_of_bounds_or_uncovered_is_refused(folder, refused, offsets, shape):
    dcp(folder, {"model.a": Sharded(shape, [Chunk(offsets, tensor(A))]),
                 "model.b": whole(tensor(A))})
    refused("model.a", bounded=True)


@pytest.mark.parametrize("shape", [(2**32, 2**32), (2**47, 2**47, 4)], ids=str)
def test_shape_whose_product_wraps_to_the_volume_of_its_chunks_is_refused(folder, refused, shape):
    dcp(folder, {"model.a": Sharded(shape, []), "model.b": whole(tensor(A))})
    refused("model.a", "over the limit of 2^64")


def test_overlapping_chunks_are_refused(folder, refused):
    for rows in ([(0, 4), (3, 6)], [(0, 6), (0, 6)], [(0, 6), (2, 3)], [(0, 3), (0, 3)]):
        dcp(folder, {"model.a": Sharded((6, 8), [
            Chunk((r, 0), tensor(A[r:end].copy()), index=i) for i, (r, end) in enumerate(rows)])})
        refused("model.a")


def test_chunks_that_overlap_and_leave_a_gap_of_the_same_size_are_refused(folder, refused):
    """The volumes add up: only looking at the boxes finds it."""
    half = A[:3, :4].copy()
    places = [(0, 0), (0, 4), (3, 0), (2, 0)]
    dcp(folder, {"model.a": Sharded((6, 8), [Chunk(at, tensor(half), index=i)
                                             for i, at in enumerate(places)])})
    refused("model.a")


def test_uncovered_elements_are_refused(folder, refused):
    for chunks in ([], [(0, 5)], [(1, 6)], [(0, 2), (3, 6)]):
        dcp(folder, {"model.a": Sharded((6, 8), [Chunk((r, 0), tensor(A[r:end].copy()), index=i)
                                                 for i, (r, end) in enumerate(chunks)])})
        refused("model.a")


def test_dtype_other_than_that_of_the_blob_is_refused(folder, refused):
    for values in (A.astype(np.float64), A.astype(np.int32), A.astype(np.float16)):
        dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), tensor(values))], "float32")})
        refused("model.a")


def test_shape_other_than_that_of_the_blob_is_refused(folder, refused):
    for values in (A.T.copy(), A.reshape(48), A[:5].copy(), A.reshape(6, 2, 4), np.float32(1)):
        dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), tensor(values), sizes=(6, 8))])})
        refused("model.a")


def test_blob_that_is_not_a_tensor_is_refused(folder, refused):
    for value in ({"a": tensor(A)}, [tensor(A)], 5, None, "text", ()):
        dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), pt(value), sizes=(6, 8))])})
        refused("model.a")


def test_blob_that_is_not_an_archive_is_refused(folder, refused):
    good = pt(tensor(A))
    for blob in (b"", b"PK\3\4", bytes(len(good)), good[:-1], good + b"\0", b"\0" + good,
                 good[::-1], good[:200] + good):
        dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), blob, sizes=(6, 8))])})
        refused("model.a")


def test_damaged_blob_is_refused(folder, refused):
    blob = bytearray(pt(tensor(A)))
    at = torchfile.data_offsets(bytes(blob))["archive/data/0"]
    blob[at + 5] ^= 1
    dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), bytes(blob), sizes=(6, 8))])})
    refused(("model.a", "tensor a"), re.compile("(?i)crc|checksum"), commands=torchfile.WHOLE)


def test_unknown_dtypes_are_refused(folder, refused):
    for dtype in ("complex128", "qint8", "float7"):
        dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), tensor(A))], dtype)})
        refused("model.a")


@pytest.mark.skipif(not LONG, reason="TERSOR_LONG=1 makes 60,000 chunks")
def test_many_chunks_are_checked_in_little_time(folder):
    """60,000 chunks: not every pair can be looked at."""
    n, blob = 60_000, pt(tensor(A[0, :1].copy()))
    chunks = [Chunk((i,), b"", (1,), at=0, length=len(blob), index=i) for i in range(n)]
    dcp(folder, {"model.a": Sharded((n,), chunks)})
    (folder / "__0_0.distcp").write_bytes(blob)
    done, peak, seconds = torchfile.run_measured("inspect", folder)
    assert done.returncode == 3, "one blob cannot be all chunks"
    assert peak < 512 and seconds < 2


def test_more_chunks_than_the_limit_are_refused(folder, refused):
    def edit(state):
        entry = state["state_dict_metadata"].pairs[0][1].state
        entry["chunks"] = entry["chunks"] * 70_000

    dcp(folder, {"model.a": whole(tensor(A))}, edit=edit)
    refused(bounded="limit", commands=("inspect", "convert"))


# ---- Places in files ----

@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".", "", "x\0", "..\\x",
                                  "./__0_0.distcp", "a" * 256, "\ud800"],
                         ids=lambda n: repr(n)[:20])
def test_paths_that_lead_out_are_refused(folder, refused, name):
    dcp(folder, {"model.a": whole(tensor(A))})
    (folder.parent / "x").write_bytes((folder / "__0_0.distcp").read_bytes())

    def edit(state):
        state["storage_data"].pairs[0][1].state["relative_path"] = name

    dcp(folder, {"model.a": whole(tensor(A))}, edit=edit)
    refused()


def test_nothing_outside_is_opened(folder):
    dcp(folder, {"model.a": whole(tensor(A))},
        edit=lambda state: state["storage_data"].pairs[0][1].state.update(relative_path="../out"))
    (folder.parent / "out").write_bytes(pt(tensor(A)))
    done, lines = traced(folder, "inspect", folder)
    assert done.returncode == 3 and ".metadata" in "".join(lines)
    assert not re.search(r'"(\.\./)?out"|/out"', "\n".join(lines))


@pytest.mark.parametrize("at, length", [
    (0, 10**6), (1, None), (10**6, None), (2**64 - 1, None), (2**63, None), (0, 2**64 - 1),
    (2**64 - 100, 200), (0, 0), (0, 100), (-1, None), (0, -1), (2**70, None), (0, 2**70),
], ids=str)
def test_offset_and_length_outside_the_file_are_refused(folder, refused, at, length):
    dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), tensor(A), at=at, length=length)]),
                 "model.b": whole(tensor(A))})
    refused(bounded=True)


def test_blobs_that_share_bytes_are_refused(folder, refused):
    blob = pt(tensor(A))
    dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), blob, (6, 8))]),
                 "model.b": Sharded((6, 8), [Chunk((0, 0), b"", (6, 8), at=0, length=len(blob))])})
    refused()


@pytest.mark.parametrize("key, value", [
    ("offset", "0"), ("offset", 0.0), ("offset", None), ("length", "5"), ("length", None),
    ("relative_path", 5), ("relative_path", None), ("relative_path", ["__0_0.distcp"])], ids=str)
def test_members_of_the_wrong_type_are_refused(folder, refused, key, value):
    dcp(folder, {"model.a": whole(tensor(A))},
        edit=lambda state: state["storage_data"].pairs[0][1].state.update({key: value}))
    refused()


@pytest.mark.parametrize("key", ["offset", "length", "relative_path"])
def test_missing_members_are_refused(folder, refused, key):
    dcp(folder, {"model.a": whole(tensor(A))},
        edit=lambda state: state["storage_data"].pairs[0][1].state.pop(key))
    refused()


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory", "device"])
def test_data_file_that_is_not_a_regular_file_is_refused(folder, kind):
    dcp(folder, {"model.a": whole(tensor(A))})
    data = folder / "__0_0.distcp"
    data.rename(folder.parent / "real")
    if kind == "symlink":
        data.symlink_to(folder.parent / "real")
    elif kind == "fifo":
        os.mkfifo(data)
    elif kind == "directory":
        data.mkdir()
    else:
        data.symlink_to("/dev/zero")
    done = run_tersor("inspect", folder, timeout=10)
    assert done.returncode in (3, 4) and "__0_0.distcp" in one_line_error(done)
    if kind == "symlink":
        assert read(folder, "--follow-symlinks") == {"a": as_array(tensor(A))}


# ---- Flattening ----

GROUPS = [{"lr": 0.001, "betas": (0.9, 0.999), "amsgrad": False, "foreach": None,
           "params": ["a", "b.c"]}]


def adam(name, t):
    m, v = (tensor(np.full(t.shape, x, np.float32)) for x in (0.5, 0.25))
    return {f"{name}.exp_avg": m, f"{name}.exp_avg_sq": v, f"{name}.step": tensor(np.float32(3))}


def test_flattening_of_torch_2_4_and_later_is_undone(folder):
    """Dicts and lists of dicts are taken apart to leaves; tuples and plain lists are blobs."""
    t = {"a": tensor(A), "b.c": tensor(A[0].copy())}
    entries, paths = {}, {}
    for name, value in t.items():
        entries[f"model.{name}"] = whole(value)
        paths[f"model.{name}"] = ("model", name)
        for key, state in adam(name, value).items():
            entries[f"optim.state.{key}"] = whole(state)
            paths[f"optim.state.{key}"] = ("optim", "state", name, key.removeprefix(f"{name}."))
    for key, value in GROUPS[0].items():
        entries[f"optim.param_groups.0.{key}"] = value
        paths[f"optim.param_groups.0.{key}"] = ("optim", "param_groups", 0, key)
    entries["step"], paths["step"] = 12, ("step",)
    dcp(folder, entries, paths)
    expected = {name: as_array(value) for name, value in t.items()}
    for name, value in t.items():
        expected.update({k: as_array(v) for k, v in adam(name, value).items()})
    assert read(folder) == expected
    out = folder.parent / "out.pt"
    run_tersor("convert", folder, "-o", out, check=0)
    found = torchfile.load(out)
    assert set(found.keys()) == {"model", "optim", "step"} and found["step"] == 12
    torchfile.same(GROUPS, [g for g in found["optim"]["param_groups"]])
    torchfile.same(t, found["model"])
    assert list(found["optim"]["state"].keys()) == ["a", "b.c"]


def test_flattening_of_torch_2_3_is_undone(folder):
    """Containers without tensors are one blob each."""
    t = tensor(A)
    entries = {"model.a": whole(t), "optim.param_groups": GROUPS, "args": {"x": [1, {"y": 2}]}}
    paths = {"model.a": ("model", "a"), "optim.param_groups": ("optim", "param_groups"),
             "args": ("args",)}
    for key, state in adam("a", t).items():
        entries[f"optim.state.{key}"] = whole(state)
        paths[f"optim.state.{key}"] = ("optim", "state", "a", key[2:])
    dcp(folder, entries, paths)
    assert read(folder) == {"a": as_array(t), **{k: as_array(v) for k, v in adam("a", t).items()}}
    out = folder.parent / "out.pt"
    run_tersor("convert", folder, "-o", out, check=0)
    torchfile.same(GROUPS, torchfile.load(out)["optim"]["param_groups"])
    torchfile.same({"x": [1, {"y": 2}]}, torchfile.load(out)["args"])


def test_flattened_optimizer_of_torchtitan_is_read(folder):
    """The path stops at ("optim", "state.<name>.exp_avg"), and groups repeat per parameter."""
    t = tensor(A)
    entries = {"model.b.c": whole(t)}
    paths = {"model.b.c": ("model", "b.c")}
    for key, state in adam("b.c", t).items():
        entries[f"optim.state.{key}"] = whole(state)
        paths[f"optim.state.{key}"] = ("optim", f"state.{key}")
    entries["optim.param_groups.b.c.lr"] = 0.5
    paths["optim.param_groups.b.c.lr"] = ("optim", "param_groups.b.c.lr")
    dcp(folder, entries, paths)
    assert read(folder) == {"b.c": as_array(t),
                            **{k: as_array(v) for k, v in adam("b.c", t).items()}}


def test_optimizer_ids_became_strings(folder):
    """optimizer.state_dict() saved as it is: ids "0", "1"; joined through param_groups."""
    t = {"w": tensor(A), "b": tensor(A[0].copy())}
    entries = {f"model.{k}": whole(v) for k, v in t.items()}
    paths = {f"model.{k}": ("model", k) for k in t}
    for i, (name, value) in enumerate(t.items()):
        for key, state in adam(str(i), value).items():
            entries[f"optimizer.state.{key}"] = whole(state)
            paths[f"optimizer.state.{key}"] = ("optimizer", "state", str(i), key.split(".")[1])
    entries["optimizer.param_groups.0.params"] = [0, 1]
    paths["optimizer.param_groups.0.params"] = ("optimizer", "param_groups", 0, "params")
    dcp(folder, entries, paths)
    expected = {k: as_array(v) for k, v in t.items()}
    for name, value in t.items():
        expected.update({k: as_array(v) for k, v in adam(name, value).items()})
    assert read(folder) == expected


def test_dotted_names_are_distinguished_by_the_planner(folder):
    entries = {"part.x.y": whole(tensor(A)), "part.x.z.0": whole(tensor(A + 1)),
               "list.0": whole(tensor(A + 2)), "list.1": "text"}
    paths = {"part.x.y": ("part", "x.y"), "part.x.z.0": ("part", "x", "z.0"), "list.0": ("list", 0),
             "list.1": ("list", 1)}
    dcp(folder, entries, paths)
    out = folder.parent / "out.pt"
    run_tersor("convert", folder, "-o", out, check=0)
    torchfile.same({"part": {"x.y": tensor(A), "x": {"z.0": tensor(A + 1)}},
                    "list": [tensor(A + 2), "text"]}, torchfile.load(out))


@pytest.mark.parametrize("descriptors", [["zstd"], ["quantize", "zstd"]])
def test_transforms_are_unsupported_by_name(folder, refused, descriptors):
    dcp(folder, {"model.a": Sharded((6, 8), [
        Chunk((0, 0), tensor(A), more={"transform_descriptors": descriptors})])})
    refused("zstd")


@pytest.mark.parametrize("descriptors", [None, [], ()])
def test_empty_transforms_are_accepted(folder, descriptors):
    dcp(folder, {"model.a": Sharded((6, 8), [
        Chunk((0, 0), tensor(A), more={"transform_descriptors": descriptors})])})
    assert read(folder) == {"a": as_array(tensor(A))}


def test_old_and_new_metadata_are_read(folder):
    """Members come and go with versions of torch: storage_meta, version, planner_data."""
    class_of_path = Call(Global("pathlib", "PosixPath"), ("/", "tmp", "x"))
    new_path = Call(Global("pathlib._local", "PosixPath"), ("/", "tmp", "x"))
    for path in (class_of_path, new_path, "/tmp/x"):
        meta = new(META, "StorageMeta", {"checkpoint_id": path, "save_id": "a", "load_id": None,
                                         "modules": []})
        dcp(folder, {"model.a": whole(tensor(A))}, extra={"storage_meta": meta, "version": "1.0.0"})
        assert read(folder) == {"a": as_array(tensor(A))}
    dcp(folder, {"model.a": whole(tensor(A))}, edit=lambda state: state.pop("planner_data"))
    assert [v for _, v in sorted(read(folder).items())] == [as_array(tensor(A))]
    dcp(folder, {"model.a": whole(tensor(A))}, extra={"storage_meta": None, "planner_data": None})
    assert [v for _, v in sorted(read(folder).items())] == [as_array(tensor(A))]


def test_bytes_entries_with_and_without_state_are_read(folder):
    for state in (None, {}):
        def edit(meta):
            meta["state_dict_metadata"].pairs[1] = (
                "step", new(META, "BytesStorageMetadata", state))
        dcp(folder, {"model.a": whole(tensor(A)), "step": 4}, edit=edit)
        assert read(folder) == {"a": as_array(tensor(A))}
        run_tersor("convert", folder, "-o", folder.parent / "out.pt", "--force", check=0)
        assert torchfile.load(folder.parent / "out.pt")["step"] == 4


def test_properties_of_older_torch_are_read(folder):
    """TensorProperties and its enum once lived under torch.distributed._shard."""
    old = "torch.distributed._shard.sharded_tensor.metadata"
    layout = Call(Global("torch.serialization", "_get_layout"), ("torch.strided",))
    memory = Call(Global(old, "MEM_FORMAT_ENCODING"), (0,))
    by_name = Call(Global("builtins", "getattr"), (Global(META, "_MEM_FORMAT_ENCODING"),
                                                   "TORCH_CONTIGUOUS_FORMAT"))
    for module, encoding in ((old, memory), (META, by_name)):
        properties = new(module, "TensorProperties",
                         (Global("torch", "float32"), layout, False, encoding, False))
        dcp(folder, {"model.a": whole(tensor(A))}, edit=lambda state: state[
            "state_dict_metadata"].pairs[0][1].state.update(properties=properties))
        assert read(folder) == {"a": as_array(tensor(A))}


@pytest.mark.parametrize("strides", [None, (8, 1), (1, 6)])
def test_properties_of_newer_torch_are_read(folder, strides):
    """A sixth member, the strides that the tensor had; an enum by getattr; names by Python 3.11."""
    layout = Call(Global("torch.serialization", "_get_layout"), ("torch.strided",))
    encoding = Call(Global("builtins", "getattr"), (Global(META, "_MEM_FORMAT_ENCODING"),
                                                    "TORCH_CONTIGUOUS_FORMAT"))
    properties = new(META, "TensorProperties",
                     (Global("torch", "float32"), layout, False, encoding, False, strides))
    dcp(folder, {"model.a": whole(tensor(A))}, edit=lambda state: state[
        "state_dict_metadata"].pairs[0][1].state.update(properties=properties))
    assert read(folder) == {"a": as_array(tensor(A))}


# ---- Good directories ----

def test_dcp_of_torch_2_15(tmp_path):
    """Two ranks: sharded by rows, by columns, unevenly, replicated, transposed."""
    source = DATA / "torch" / "dcp-2.15"
    found = converted(source, to=tmp_path / "out.safetensors")
    expected = arrays_in(DATA / "torch" / "expected-dcp-2.15.safetensors")
    assert expected.items() <= found.items()
    assert set(found) - set(expected) == {
        f"{n}.step" for n in ("rows", "columns", "norm.weight", "one", "whole")}
    run_tersor("verify", source, check=0)
    out = tmp_path / "out.pt"
    run_tersor("convert", source, "-o", out, check=0)
    value = torchfile.load(out)
    assert value.keys() == ["model", "optim", "step", "text"] and value["text"] == "two ranks"
    group, = value["optim"]["param_groups"]
    assert group["betas"] == (0.9, 0.95) and group["params"] == value["optim"]["state"].keys()


def test_dcp_of_two_ranks(tmp_path):
    out = converted(TWO_RANKS, to=tmp_path / "out.safetensors")
    expected = arrays_in(DATA / "torch" / "expected-dcp.safetensors")
    assert expected.items() <= out.items()
    rest = set(out) - set(expected)
    assert rest == {n for n in (f"{w}.step" for w in expected) if n in rest} and len(rest) == 7
    run_tersor("verify", TWO_RANKS, check=0)
    run_tersor("diff", TWO_RANKS, DATA / "torch" / "expected-dcp.safetensors", check=0)


def test_dcp_of_two_ranks_as_torch_file(tmp_path):
    out = tmp_path / "out.pt"
    run_tersor("convert", TWO_RANKS, "-o", out, check=0)
    found = torchfile.load(out)
    assert found.keys() == ["model", "optim", "step", "extra"]
    expected = arrays_in(DATA / "torch" / "expected-dcp.safetensors")
    for name, t in found["model"].items():
        assert as_array(t) == expected[name]
        assert set(found["optim"]["state"][name].keys()) == {"step", "exp_avg", "exp_avg_sq"}
    group, = found["optim"]["param_groups"]
    assert group["params"] == found["model"].keys()
    assert type(found["step"]) is int and set(found["extra"].keys()) == {"note", "lr"}


def test_diff_of_dcp_and_other_containers_finds_nothing():
    for other in (CHECKPOINT, DATA / "tiny-gpt" / "checkpoint.safetensors"):
        for a, b in ((TINY, other), (other, TINY)):
            report = json.loads(run_tersor("diff", "--json", a, b, check=0).stdout)
            assert report["exceeding"] == 0
            assert sum(t["result"] == "equal" for t in report["tensors"]) >= 87


def test_dcp_packs_like_the_same_state_in_safetensors(tmp_path):
    found = {}
    for name, source in (("dcp", TINY), ("st", DATA / "tiny-gpt" / "checkpoint.safetensors")):
        out = tmp_path / f"{name}.safetensors"
        run_tersor("pack", source, "-o", out, check=0)
        found[name] = arrays_in(out)
    assert found["st"].items() <= found["dcp"].items()
    run_tersor("verify", tmp_path / "dcp.safetensors", "--against", TINY, check=0)


def test_dcp_round_trip_through_packed_to_torch(tmp_path):
    """param_groups, step and args come back, and torch resumes from them."""
    packed = tmp_path / "p.safetensors"
    run_tersor("pack", TINY, "-o", packed, "--weights", "f32", "--momentum", "f32", "--variance", "f32",
               check=0)
    run_tersor("unpack", packed, "-o", tmp_path / "back.pt", check=0)
    run_tersor("convert", TINY, "-o", tmp_path / "direct.pt", check=0)
    torchfile.same(torchfile.load(tmp_path / "direct.pt"), torchfile.load(tmp_path / "back.pt"))
    groups = torchfile.load(tmp_path / "back.pt")["optim"]["param_groups"]
    assert [g["weight_decay"] for g in groups] == [0.1, 0.0]
    assert groups[0]["betas"] == (0.9, 0.95) and "wte.weight" in groups[0]["params"]


def test_chunks_of_all_shapes(folder):
    """Grids over several files, in any order; scalars, empty and narrow tensors, views as blobs."""
    rng = np.random.default_rng(0)
    big = rng.standard_normal((40, 50)).astype(np.float32)
    cube = rng.integers(-100, 100, (6, 5, 4)).astype(np.int16)
    one = grid(big, (13, 7, 20), (50,), ("__0_0.distcp", "__1_0.distcp", "__1_1.distcp"))
    two = grid(big + 1, (10, 30), (1, 40, 9), ("__1_0.distcp", "__0_0.distcp"))
    two.chunks.reverse()
    parts = [Chunk((x, y, 0), tensor(cube[x:x + 3, y:y + w].copy()), index=i) for i, (x, y, w) in
             enumerate([(0, 0, 2), (0, 2, 3), (3, 0, 1), (3, 1, 4)])]
    base = Storage(big.tobytes())
    strided = Tensor(base, (50, 40), (1, 50))
    entries = {
        "model.one": one, "model.two": two, "model.cube": Sharded((6, 5, 4), parts, "int16"),
        "model.scalar": whole(tensor(np.float64(2.5))), "model.int": whole(tensor(np.int64(-1))),
        "model.empty": Sharded((0, 7), [Chunk((0, 0), tensor(np.zeros((0, 7), np.float32)))]),
        "model.t": whole(strided),
        "model.bf16": whole(Tensor(Storage(rng.bytes(20), "BFloat16Storage"), (10,))),
        "model.f8": whole(untyped("float8_e4m3fn", rng.bytes(6), (2, 3))),
        "model.bool": whole(tensor(rng.integers(0, 2, 9).astype(bool))),
    }
    dcp(folder, entries, {k: tuple(k.split(".")) for k in entries})
    expected = {"one": ("F32", [40, 50], big.tobytes()),
                "two": ("F32", [40, 50], (big + 1).tobytes()),
                "cube": ("I16", [6, 5, 4], cube.tobytes()),
                **{k: as_array(entries[f"model.{k}"].chunks[0].tensor)
                   for k in ("scalar", "int", "empty", "t", "bf16", "f8", "bool")}}
    assert read(folder) == expected
    run_tersor("verify", folder, check=0)


def test_empty_chunks_of_ranks_without_a_share(folder):
    """More ranks than rows: some chunks are empty."""
    chunks = [Chunk((0, 0), tensor(A[:6].copy())),
              Chunk((6, 0), tensor(np.zeros((0, 8), np.float32)), index=1)]
    dcp(folder, {"model.a": Sharded((6, 8), chunks)})
    assert read(folder) == {"a": as_array(tensor(A))}


def test_entries_that_do_not_go_together(folder, refused):
    def drop(state):
        state["storage_data"].pairs.pop(0)

    def double(state):
        state["storage_data"].pairs.append(state["storage_data"].pairs[0])

    def foreign(state):
        index, info = state["storage_data"].pairs[0]
        state["storage_data"].pairs.append((new(META, "MetadataIndex", {
            "fqn": "model.zzz", "offset": size_of((0, 0)), "index": 0}), info))

    def moved(state):
        state["storage_data"].pairs[0][0].state["offset"] = size_of((1, 0))

    def nameless(state):
        state["state_dict_metadata"].pairs[0] = (5, state["state_dict_metadata"].pairs[0][1])

    def odd(state):
        state["state_dict_metadata"].pairs[0] = ("model.a", 5)

    def no_storage(state):
        del state["storage_data"]

    def no_names(state):
        del state["state_dict_metadata"]

    for edit in (drop, double, foreign, moved, nameless, odd, no_storage, no_names):
        dcp(folder, {"model.a": whole(tensor(A)), "model.b": whole(tensor(A))}, edit=edit)
        refused()


def test_index_in_a_metadata_index_is_only_a_hint(folder):
    dcp(folder, {"model.a": grid(A, (3, 3), (8,))},
        edit=lambda state: [i.state.update(index=7) for i, _ in state["storage_data"].pairs])
    assert read(folder) == {"a": as_array(tensor(A))}


def test_paths_that_collide(folder, refused):
    dcp(folder, {"x.a": whole(tensor(A)), "y": whole(tensor(A + 1))},
        {"x.a": ("x", "a"), "y": ("x", "a")})
    refused()


def test_files_of_safetensors_format_are_refused_or_read(folder):
    """The Hugging Face writer of DCP: whole safetensors files under the names of shards."""
    dcp(folder, {"model.a": Sharded((6, 8), [Chunk((0, 0), torchfile.safetensors_bytes(
        {"model.a": {"dtype": "F32", "shape": [6, 8], "data_offsets": [0, 192]}}, A.tobytes()),
        (6, 8), file="model-00001-of-00001.safetensors")])})
    done = run_tersor("convert", folder, "-o", folder.parent / "out.safetensors")
    if done.returncode == 0:
        assert list(arrays_in(folder.parent / "out.safetensors").values()) == [as_array(tensor(A))]
    else:
        assert done.returncode == 3 and "safetensors" in one_line_error(done)


# ---- Nothing in it is executed ----

@pytest.mark.parametrize("where", ["root", "entry", "path", "state"])
def test_hostile_metadata(folder, refused, where):
    evil = Call(Global("posix", "system"), ("touch canary",))
    dcp(folder, {"model.a": whole(tensor(A))})
    state = {"root": evil, "entry": {"state_dict_metadata": {"a": evil}},
             "path": {"planner_data": {"a": (evil,)}}, "state": evil}[where]
    value = evil if where == "root" else new(META, "Metadata", state)
    (folder / ".metadata").write_bytes(pickled(value, proto=4)[0])
    refused("posix", "system")
    assert not pathlib.Path("canary").exists()


def test_bombs_in_metadata(folder, refused):
    for body in (b"]\x94" + b"".join(b"](h%ch%ce\x94" % (i, i) for i in range(29)),
                 b")" + b"\x85" * 1_000_000, b"(" * 1_000_000, b"]\x94h\0a"):
        dcp(folder, {"model.a": whole(tensor(A))})
        (folder / ".metadata").write_bytes(b"\x80\x04" + body + b".")
        refused(".metadata", bounded=True, stack=256 << 10, commands=("inspect", "convert"))


def test_sizes_in_metadata_are_not_believed(folder, refused):
    """A tensor of 2^40 elements whose one chunk is a view of one element."""
    huge = Tensor(Storage(bytes(4)), (2**40,), (0,))
    dcp(folder, {"model.a": Sharded((2**40,), [Chunk((0,), huge)])})
    refused("model.a", bounded="limit")


def test_objects_of_unknown_classes_are_opaque(folder):
    """A Python object that nobody knows does not make the tensors unreadable."""
    evil = Call(Global("my_company.data", "Sampler"), (), {"epoch": 3}, new=True)
    dcp(folder, {"model.a": whole(tensor(A)), "loader": evil}, {"loader": ("loader",)})
    out = folder.parent / "out.safetensors"
    done = run_tersor("convert", folder, "-o", out, check=0)
    assert arrays_in(out) == {"a": as_array(tensor(A))}
    assert "my_company.data.Sampler" in done.stderr


def test_objects_that_call_are_opaque_and_never_called(folder):
    evil = Call(Global("posix", "system"), ("touch canary",))
    dcp(folder, {"model.a": whole(tensor(A)), "loader": evil}, {"loader": ("loader",)})
    out = folder.parent / "out.safetensors"
    done = run_tersor("convert", folder, "-o", out, cwd=folder.parent)
    assert done.returncode in (0, 3) and "system" in done.stdout + done.stderr
    assert not (folder.parent / "canary").exists()


def test_broken_object_is_an_error_that_names_it(folder, refused):
    dcp(folder, {"model.a": whole(tensor(A)), "loader": pt_broken()}, {"loader": ("loader",)})
    refused("loader")


def pt_broken():
    return torchfile.pt_of(b"\x80\2h\0.")
