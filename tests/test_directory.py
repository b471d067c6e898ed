"""A directory in, a directory out: every file is accounted for (docs/reading.md)."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import xxhash

import reader
import torchfile
from conftest import BINARY, DATA, ROOT, one_line_error, run_tersor, safetensors_bytes
from test_dcp_write import metadata_of, stored_in
import faults
from faults import read_log, spread

FRAMEWORKS = DATA / "frameworks"
LAYOUTS = ["trainer/checkpoint-30", "accelerate/checkpoint_0", "peft/checkpoint-20",
           "accelerate-fsdp/checkpoint-10", "deepspeed/zero1-fp32-2rank",
           "deepspeed/zero2-bf16-2rank", "deepspeed/zero3-bf16-2rank", "states", "megatron"]
TRAINER = FRAMEWORKS / LAYOUTS[0]
LIBRARY = os.environ.get("TERSOR_FAULTS", str(ROOT / "build" / "tests" / "libfaults.so"))
SHARED = pathlib.Path(BINARY).resolve().parent / "libtersor.so"
INDEX = "tersor.json"
ZEROS = b"0" * 16
FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}


# ---- Directories -------------------------------------------------------------------------------

def tree(root):
    """Path -> bytes of each file below a directory, None of each directory."""
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
            for path in sorted(pathlib.Path(root).rglob("*"))}


def modes(root):
    return {name: stat.S_IMODE((root / name).stat().st_mode) for name in [".", *tree(root)]}


def index_of(packed):
    return json.loads((packed / INDEX).read_bytes())


def entries_of(packed):
    return {entry["path"]: entry for entry in index_of(packed)["entries"]}


def seal(index):
    """The bytes of an index: its hash is right, whatever else it says."""
    index = {**index, "check": ZEROS.decode()}
    text = json.dumps(index, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    return text.replace(ZEROS + b'"}\n', xxhash.xxh3_64_hexdigest(text).encode() + b'"}\n')


@pytest.fixture
def source(tmp_path):
    """A checkpoint of several files, with what a copy must not lose."""
    root = tmp_path / "source"
    (root / "sub" / "empty").mkdir(parents=True)
    rng = np.random.default_rng(1)
    w = rng.normal(0, 0.02, (64, 65)).astype("f4")
    safetensors.numpy.save_file({"a.weight": w, "b.weight": w[::-1].copy()},
                                root / "model.safetensors", {"format": "pt"})
    state = {"state": {0: {"step": torchfile.tensor(np.float32(3)),
                           "exp_avg": torchfile.tensor(w * np.float32(1e-3)),
                           "exp_avg_sq": torchfile.tensor(np.square(w))}},
             "param_groups": [{"lr": 0.1, "params": [0]}]}
    (root / "sub" / "optimizer.pt").write_bytes(torchfile.pt(state))
    np.savez(root / "arrays.npz", x=w)
    np.save(root / "array.npy", w)
    (root / "config.json").write_text('{"a": 1}\n')
    (root / ".hidden").write_bytes(b"")
    (root / "sub" / "name with spaces \u00e9\n").write_bytes(b"\x00\xff" * 1000)
    (root / "config.json").chmod(0o640)
    (root / "model.safetensors").chmod(0o600)
    (root / "sub" / "name with spaces \u00e9\n").chmod(0o755)
    (root / "sub" / "empty").chmod(0o750)
    (root / "sub").chmod(0o555)
    root.chmod(0o711)
    yield root
    (root / "sub").chmod(0o755)


@pytest.fixture
def packed(source, tmp_path):
    out = tmp_path / "packed"
    run_tersor("pack", source, "-o", out, check=0)
    return out


def unpack(packed, tmp_path, name="back", **kwargs):
    out = tmp_path / name
    run_tersor("unpack", packed, "-o", out, **{"check": 0, **kwargs})
    return out


# ---- What comes back ---------------------------------------------------------------------------

def source_tensors(path):
    """Name as tersor has it -> array, of a file with tensors."""
    if path.suffix == ".safetensors":
        return safetensors.numpy.load_file(path)
    if path.suffix == ".npz":
        return dict(np.load(path))
    return {path.stem: np.load(path)}


def check_restored(original, restored, packed):
    """A file that was packed: the reader of the document decodes the same values, errors are as recorded."""
    decoded = reader.read(packed).tensors
    if original.suffix in (".safetensors", ".npz", ".npy"):
        a, b = source_tensors(original), source_tensors(restored)
        assert list(a) == list(b)
        pairs = [(a[name], b[name], decoded[name]) for name in a]
    else:
        try:
            a, b = torchfile.load(original), torchfile.load(restored)
        except torchfile.Forbidden:     # a class that is no plain value to torch either
            _, records = torchfile.records_of(restored.read_bytes())
            assert {t.source_bytes for t in decoded.values()} <= {*records.values()}
            return
        torchfile.same(a, b, bits=False)
        pairs = []
        found = {t.source_bytes: t for t in decoded.values()}
        for (_, x), (_, y) in zip(torchfile.tensors_in(a), torchfile.tensors_in(b)):
            content = torchfile.content_of(y)
            if content == torchfile.content_of(x):
                continue
            dtype = FLOATS[x.st_dtype]
            pairs.append((np.frombuffer(torchfile.content_of(x), dtype),
                          np.frombuffer(content, dtype), found[content]))
    assert any(t.error for _, _, t in pairs)
    for x, y, t in pairs:
        assert x.shape == y.shape and x.dtype == y.dtype
        if t.error is None:
            assert x.tobytes() == y.tobytes()
            continue
        assert t.source_bytes == y.tobytes()
        x, y = x.astype("f8"), y.astype("f8")
        power = np.square(x).sum()
        nmse = np.square(x - y).sum() / power if power else 0
        assert nmse == pytest.approx(t.error["nmse"], rel=2**-13, abs=1e-30)
        assert nmse < 1e-3


def check_dcp(original, restored, packed, tmp_path):
    """A directory of torch.distributed.checkpoint: its archives hold what the packed file decodes to."""
    decoded = {name: t for name, t in reader.read(packed).tensors.items() if t.kind != "other"}
    content = {torchfile.content_of(t) for value in stored_in(restored).values()
               for _, t in torchfile.tensors_in(value)}
    assert decoded and {t.source_bytes for t in decoded.values()} <= content
    run_tersor("convert", original, "-o", tmp_path / "whole.safetensors", "-f", check=0)
    whole = safetensors.numpy.load_file(tmp_path / "whole.safetensors")
    for name, t in decoded.items():
        x, y = whole[name].astype("f8"), np.frombuffer(t.source_bytes, whole[name].dtype).astype("f8")
        assert np.square(x.ravel() - y).sum() <= 1e-3 * np.square(x).sum()
    assert metadata_of(original)["planner_data"] == metadata_of(restored)["planner_data"]


def check_round_trip(source, packed, back):
    """Every file of the source is there, packed or copied, and comes back."""
    entries, files, before, after = entries_of(packed), tree(packed), tree(source), tree(back)
    parts = {name for name, entry in entries.items() if entry["as"] == "part"}
    assert list(entries) == sorted(before)
    assert before.keys() - parts <= after.keys()
    assert all(name.endswith("/__0_0.distcp") or name == "__0_0.distcp"
               for name in after.keys() - (before.keys() - parts))
    known = {INDEX}
    for name, content in before.items():
        entry = entries[name]
        if content is None:
            assert entry["as"] == "directory" and files[name] is None and after[name] is None
            known.add(name)
            continue
        assert entry["nbytes"] == len(content)
        if entry["as"] == "copied":
            assert entry["xxh3"] == xxhash.xxh3_64_hexdigest(content)
            assert files[name] == content and after[name] == content
            known.add(name)
            continue
        if entry["as"] == "part":
            assert name.endswith(".distcp") and name not in files
            continue
        assert entry["as"] == "packed"
        stored = [file["path"] for file in entry["files"]]
        if entry["kind"] == "dcp":
            assert pathlib.Path(name).name == ".metadata"
            assert stored == [str(pathlib.Path(name).parent / "dcp.tersor")]
            known.update(stored)
            check_dcp((source / name).parent, (back / name).parent, packed / stored[0], back.parent)
            continue
        assert stored in ([f"{name}.tersor"], [name, f"{name}.tersor"])
        for file in entry["files"]:
            written = files[file["path"]]
            header = 8 + int.from_bytes(written[:8], "little")
            assert file["nbytes"] == len(written)
            assert file["header"] == xxhash.xxh3_64_hexdigest(written[:header])
        assert sum(len(files[path]) for path in stored) < len(content)
        known.update(stored)
        check_restored(source / name, back / name, packed / stored[-1])
    assert known == files.keys()
    kept = {name: mode for name, mode in modes(source).items() if name not in parts}
    assert kept.items() <= modes(back).items()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_directory_of_a_framework_comes_back(layout, tmp_path):
    source, out = FRAMEWORKS / layout, tmp_path / "packed"
    run_tersor("pack", source, "-o", f"{out}/", "-q", check=0)
    check_round_trip(source, out, unpack(out, tmp_path))
    run_tersor("verify", out, check=0)
    run_tersor("verify", out, "--against", source, check=0)


def test_trainer_directory_packs_model_and_optimizer(tmp_path):
    out = tmp_path / "packed"
    done = run_tersor("pack", TRAINER, "-o", out, check=0)
    entries = entries_of(out)
    assert [name for name, e in entries.items() if e["as"] == "packed"][:2] == [
        "model.safetensors", "optimizer.pt"]
    assert "106,816" in done.stdout and "momentum" in done.stdout and "variance" in done.stdout
    before = sum(map(len, tree(TRAINER).values()))
    assert sum(map(len, tree(out).values())) < before / 2


def test_everything_of_a_directory_comes_back(source, packed, tmp_path):
    check_round_trip(source, packed, unpack(packed, tmp_path))
    stored = {name: e["as"] for name, e in entries_of(packed).items()}
    assert [n for n, how in stored.items() if how == "packed"] == [
        "array.npy", "arrays.npz", "model.safetensors", "sub/optimizer.pt"]


def test_model_of_a_packed_directory_is_a_plain_one(source, packed):
    """Loaders find the narrow weights under the source's name, and no other tensor."""
    found = safetensors.safe_open(packed / "model.safetensors", "np")
    assert list(found.keys()) == ["a.weight", "b.weight"]
    assert {found.get_slice(name).get_dtype() for name in found.keys()} == {"BF16"}


def test_index_of_shards_has_the_total_of_the_narrow_weights(tmp_path):
    root, out = tmp_path / "hf", tmp_path / "p"
    root.mkdir()
    run_tersor("convert", TRAINER / "model.safetensors", "-o", root / "model.safetensors",
               "--max-shard-size", "150K", check=0)
    name = "model.safetensors.index.json"
    original = json.loads((root / name).read_text())
    run_tersor("pack", root, "-o", out, check=0)
    stored = json.loads((out / name).read_text())
    assert original["metadata"]["total_size"] == 427264
    assert stored == {**original, "metadata": {"total_size": 213632}}
    assert run_tersor("inspect", out / name, check=0).stderr == ""
    back = unpack(out, tmp_path)
    assert (back / name).read_bytes() == (root / name).read_bytes()
    for args in (["verify", out, "--against", root], ["diff", out, back]):
        run_tersor(*args, check=0)
    assert entries_of(out)[name]["total_size"] == {
        "at": (root / name).read_bytes().index(b"427264"), "was": "427264", "is": "213632"}
    for change in (b"213633", b"113632"):
        content = (out / name).read_bytes()
        (out / name).write_bytes(content.replace(b"213632", change))
        assert run_tersor("verify", out, check=3).stdout.startswith(f"FAULT   {name}\n")
        run_tersor("unpack", out, "-o", tmp_path / "no", check=3)
        (out / name).write_bytes(content)
    (root / "model-00002-of-00003.safetensors").unlink()        # nothing to correct it by
    run_tersor("pack", root, "-o", tmp_path / "q", check=0)
    assert (tmp_path / "q" / name).read_bytes() == (root / name).read_bytes()


def test_packed_files_have_the_permissions_of_their_sources(source, packed):
    expected = modes(source)
    assert modes(packed)["."] == expected["."]
    for name, entry in entries_of(packed).items():
        for file in entry.get("files", [{"path": name}]):
            assert modes(packed)[file["path"]] == expected[name]


def test_same_directory_gives_the_same_bytes(source, packed, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    run_tersor("pack", copy, "-o", tmp_path / "again", "-j", 3, check=0)
    assert tree(packed) == tree(tmp_path / "again")


def test_the_report_names_every_file(source, tmp_path):
    done = run_tersor("pack", source, "-o", tmp_path / "p", "--json", check=0)
    report = json.loads(done.stdout)
    assert report["schema"] == "tersor.pack-directory.v1"
    files = {file["path"]: file for file in report["files"]}
    assert files.keys() == tree(source).keys()
    out = tree(tmp_path / "p")
    assert report["stored_nbytes"] == sum(len(x) for x in out.values() if x is not None)
    assert report["nbytes"] == sum(len(x) for x in tree(source).values() if x is not None)
    assert report["packed"] == 4 and report["copied"] == 3 and report["directories"] == 2
    again = json.loads(run_tersor("inspect", tmp_path / "p", "--json", check=0).stdout)
    assert again["files"] == report["files"]
    assert again["totals"]["parameters"] == report["totals"]["parameters"]
    text = run_tersor("inspect", tmp_path / "p", check=0).stdout
    assert max(map(len, text.split("\nkind")[0].splitlines())) <= 80
    for name in ("model.safetensors", "config.json", ".hidden", "sub/optimizer.pt"):
        assert f"\n{name} " in text


def test_dry_run_writes_nothing_and_plans_the_same_files(source, tmp_path):
    plan = json.loads(run_tersor("pack", source, "-o", tmp_path / "p", "--json", "--dry-run",
                                 check=0).stdout)
    assert not (tmp_path / "p").exists() and sorted(os.listdir(tmp_path)) == ["source"]
    real = json.loads(run_tersor("pack", source, "-o", tmp_path / "p", "--json", check=0).stdout)
    assert [(f["path"], f["stored"]) for f in plan["files"]] == [
        (f["path"], f["stored"]) for f in real["files"]]
    run_tersor("unpack", tmp_path / "p", "-o", tmp_path / "b", "--dry-run", check=0)
    assert not (tmp_path / "b").exists()


def test_long_names_are_whole_in_the_report(source, tmp_path):
    for rank in (0, 1):
        (source / f"zero_pp_rank_{rank}_mp_rank_00_optimizer_and_other_states.txt").write_text("x")
    done = run_tersor("pack", source, "-o", tmp_path / "p", check=0)
    for rank in (0, 1):
        assert f"\nzero_pp_rank_{rank}_mp_rank_00_optimizer_and_other_states.txt\n" in done.stdout


@pytest.mark.parametrize("below", [".", "step/model"])
def test_checkpoint_of_two_ranks_is_one_packed_file(below, tmp_path):
    root = tmp_path / "in" / "ck"
    shutil.copytree(DATA / "torch" / "dcp-2rank", root / below)
    (root / below / "loader.json").write_text("{}")
    run_tersor("pack", root, "-o", tmp_path / "p", check=0)
    prefix = "" if below == "." else f"{below}/"
    entries = entries_of(tmp_path / "p")
    assert {name: e["as"] for name, e in entries.items() if e["as"] != "directory"} == {
        f"{prefix}.metadata": "packed", f"{prefix}__0_0.distcp": "part",
        f"{prefix}__1_0.distcp": "part", f"{prefix}loader.json": "copied"}
    check_round_trip(root, tmp_path / "p", unpack(tmp_path / "p", tmp_path))
    run_tersor("verify", tmp_path / "p", "--against", root, check=0)
    run_tersor("diff", tmp_path / "p", tmp_path / "back", "--max-error", "nmse=1e-30", check=0)
    run_tersor("diff", root, tmp_path / "p", "--max-error", "nmse=1e-3", check=0)
    (root / below / "__1_0.distcp").unlink()
    done = run_tersor("verify", tmp_path / "p", "--against", root, check=1)
    assert f"FAULT   {prefix}__1_0.distcp\n" in done.stdout


def test_checkpoint_with_an_object_that_is_left_out_is_copied(tmp_path):
    source = tmp_path / "in"
    sparse = torchfile.Call(torchfile.Global("torch._utils", "_rebuild_sparse_tensor"), (1, 2))
    torchfile.dcp(source, {"w": torchfile.whole(torchfile.tensor(np.ones(64, "f4"))), "s": sparse},
                  {"s": ("s",)})
    run_tersor("pack", source, "-o", tmp_path / "p", "-q", "--opaque", "drop", check=0)
    assert entries_of(tmp_path / "p")[".metadata"]["reason"] == (
        "has an object that is not supported, which packing would leave out")
    check_round_trip(source, tmp_path / "p", unpack(tmp_path / "p", tmp_path))
    run_tersor("diff", source, tmp_path / "back", "-q", check=0)


def test_rules_are_for_the_whole_directory(tmp_path):
    """An expression need not match in every file, but in one."""
    out = tmp_path / "p"
    done = run_tersor("pack", TRAINER, "-o", out, "--keep", "embed_tokens", "--strict", check=0)
    assert done.stderr == ""
    assert reader.read(out / "model.safetensors.tersor").tensors["model.embed_tokens.weight"].codec == "raw"
    shutil.rmtree(out)
    args = ("pack", TRAINER, "-o", out, "--keep", "embed_tokens", "--keep", "no_such")
    done = run_tersor(*args, check=0)
    assert done.stderr == (
        f"tersor: warning: regular expression 'no_such' matches no tensor of {TRAINER}\n")
    done = run_tersor(*args, "-f", "--strict", check=2)
    assert "'no_such': matches no tensor of" in one_line_error(done)
    one_line_error(run_tersor("pack", TRAINER, "-o", tmp_path / "q", "--keep", "*bad(", check=2))


class Entry(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("stored_as", ctypes.c_int), ("container", ctypes.c_int),
                ("mode", ctypes.c_uint), ("generation", ctypes.c_uint), ("nbytes", ctypes.c_uint64)]


@pytest.mark.skipif(not SHARED.exists(), reason="only the tool is built")
def test_library_packs_as_the_tool_does(source, packed, tmp_path):
    library = ctypes.CDLL(str(SHARED))
    library.tsr_directory_entry.restype = ctypes.POINTER(Entry)
    handle, err = ctypes.c_void_p(), ctypes.create_string_buffer(2048)
    status = library.tsr_pack_directory(os.fsencode(source), os.fsencode(tmp_path / "p"), None, None, None,
                                        ctypes.byref(handle), err)
    assert status == 0, err.raw[4:]
    assert tree(tmp_path / "p") == tree(packed)
    expected = index_of(packed)["entries"]
    library.tsr_directory_nentries.restype = ctypes.c_size_t
    assert library.tsr_directory_nentries(handle) == len(expected)
    for i, e in enumerate(expected):
        found = library.tsr_directory_entry(handle, ctypes.c_size_t(i))[0]
        assert (found.path.decode(), found.mode) == (e["path"], int(e["mode"], 8))
        assert found.nbytes == e.get("nbytes", 0)
    assert not library.tsr_directory_entry(handle, ctypes.c_size_t(len(expected)))
    library.tsr_directory_close(handle)


def made_of_packed(root):
    """The status and the message of tsr_directory_index()."""
    err = ctypes.create_string_buffer(2048)
    return ctypes.CDLL(str(SHARED)).tsr_directory_index(os.fsencode(root), err), err.raw[4:].split(b"\0")[0].decode()


@pytest.mark.skipif(not SHARED.exists(), reason="only the tool is built")
def test_files_that_are_packed_already_become_a_packed_directory(source, tmp_path):
    """As ranks of a job write them.  What is expected is composed here, from the files."""
    root = tmp_path / "made"
    shutil.copytree(source, root)
    nbytes = {"model.safetensors": 2 * 64 * 65 * 4, "sub/optimizer.pt": (2 * 64 * 65 + 1) * 4}
    for name in nbytes:
        (root / name).unlink()
        run_tersor("pack", source / name, "-o", root / name, check=0)
    (root / INDEX).write_bytes(b"of what was here before")
    assert made_of_packed(root) == (0, "")
    index, entries = index_of(root), entries_of(root)
    assert (root / INDEX).read_bytes() == seal(index)
    assert set(entries) == set(tree(source)) and index["mode"] == "0711"
    for name, entry in entries.items():
        full, copied = root / name, {"path": name, "as": "copied", "mode": f"{modes(root)[name]:04o}"}
        if full.is_dir():
            assert entry == {**copied, "as": "directory"}
        elif name in nbytes:
            content = full.read_bytes()
            header = content[:8 + int.from_bytes(content[:8], "little")]
            file = {"path": name, "nbytes": len(content), "header": xxhash.xxh3_64_hexdigest(header)}
            assert entry == {**copied, "as": "packed", "nbytes": nbytes[name], "kind": name.split(".")[-1],
                             "generation": 1, "files": [file]}
        else:
            assert entry == {**copied, "nbytes": full.stat().st_size,
                             "xxh3": xxhash.xxh3_64_hexdigest(full.read_bytes())}
    run_tersor("verify", root, check=0)
    back = unpack(root, tmp_path)
    assert modes(back) == {**modes(source), **{name: modes(root)[name] for name in nbytes}}
    assert set(safetensors.numpy.load_file(back / "model.safetensors")) == {"a.weight", "b.weight"}


@pytest.mark.skipif(not SHARED.exists(), reason="only the tool is built")
@pytest.mark.parametrize("name, content, code, words", [
    ("model.safetensors", b"\x40" + bytes(7) + b"{" * 64, 2, "model.safetensors: header byte 1: expected a key"),
    (b"\xff", b"", 3, "expected UTF-8"), ("link", None, 3, "symbolic link")], ids=["damaged", "name", "link"])
def test_no_index_is_made_of(name, content, code, words, tmp_path):
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(content) if content is not None else path.symlink_to("nowhere")
    (tmp_path / INDEX).write_bytes(b"old")
    status, message = made_of_packed(tmp_path)
    assert status == code and words in message, (status, message)
    assert not (tmp_path / INDEX).exists()


# ---- What is copied and why --------------------------------------------------------------------

def one_file(tmp_path, name, content):
    root = tmp_path / "one"
    root.mkdir(exist_ok=True)
    (root / name).write_bytes(content)
    return root


@pytest.mark.parametrize("name, content, reason", [
    ("a.pt", torchfile.pt({"a": 1}), "has no tensors"),
    ("b.pt", torchfile.pt(torchfile.tensor(np.arange(999))), "has no weights or states to pack"),
    ("c.safetensors", safetensors_bytes({"w": {"dtype": "F32", "shape": [200],
                                               "data_offsets": [0, 800]}}, bytes(800)),
     "would not become smaller"),
    ("d.pkl", b"\x80\x02}q\x00.", "a Python pickle outside of an archive"),
    ("e.txt", b"text", None),
    ("f.zip", b"PK\x03\x04 and nothing else", None),
], ids="abcdef")
def test_what_packing_does_not_help_is_copied(name, content, reason, tmp_path):
    root = one_file(tmp_path, name, content)
    done = run_tersor("pack", root, "-o", tmp_path / "p", check=0)
    entry = entries_of(tmp_path / "p")[name]
    assert entry["as"] == "copied" and (tmp_path / "p" / name).read_bytes() == content
    assert entry.get("reason", "x").startswith(reason or "x")
    assert reason is None or f"\n    {reason}" in done.stdout
    check_round_trip(root, tmp_path / "p", unpack(tmp_path / "p", tmp_path))


LOSSLESS = ["--weights", "bf16+exact16", "--momentum", "f32", "--variance", "f32"]


def sizes_of(packed):
    return {path.name: path.stat().st_size for path in packed.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [LOSSLESS, []], ids=["lossless", "default"])
def test_directory_is_archived_as_its_files_are(options, tmp_path):
    """A file that coding makes smaller is packed, and takes what it takes when it is packed alone."""
    packed = tmp_path / "packed"
    report = json.loads(run_tersor("pack", TRAINER, "-o", packed, *options, "--entropy", "--json", check=0).stdout)
    for name in "model.safetensors", "optimizer.pt":
        run_tersor("pack", TRAINER / name, "-o", tmp_path / name, *options, "--entropy", check=0)
        assert (tmp_path / name).read_bytes() == (packed / f"{name}.tersor").read_bytes()
        assert not (packed / name).exists()
    assert report["packed"] == 2 and report["stored_nbytes"] < (0.82 if options else 0.4) * report["nbytes"]
    assert report["stored_nbytes"] == sum(sizes_of(packed).values())
    run_tersor("verify", packed, "--against", TRAINER, check=0)
    back = unpack(packed, tmp_path)
    if options:
        assert (back / "model.safetensors").read_bytes() == (TRAINER / "model.safetensors").read_bytes()
        run_tersor("diff", back, TRAINER, check=0)
    dry = run_tersor("pack", TRAINER, "-o", tmp_path / "dry", *options, "--entropy", "--dry-run", check=0).stdout
    assert " planned before coding, " in dry and not (tmp_path / "dry").exists()
    run_tersor("pack", TRAINER, "-o", tmp_path / "states", *options, "--entropy=states", check=0)
    states = entries_of(tmp_path / "states")["model.safetensors"]
    assert states["as"] == ("copied" if options else "packed")
    assert (tmp_path / "states" / "model.safetensors").exists()


def test_file_of_raw_tensors_is_coded_in_an_archive(tmp_path):
    """A BF16 model has nothing to pack, but a coded plane; random bytes have neither."""
    source, rng = tmp_path / "source", np.random.default_rng(7)
    source.mkdir()
    w = rng.normal(0, 0.02, (300, 400)).astype(ml_dtypes.bfloat16)
    safetensors.numpy.save_file({"a.weight": w}, source / "model.safetensors")
    safetensors.numpy.save_file({"rng": rng.integers(0, 256, 5000).astype("u1")}, source / "rng.safetensors")
    run_tersor("pack", source, "-o", tmp_path / "coded", "--entropy", check=0)
    entries = entries_of(tmp_path / "coded")
    assert entries["model.safetensors"]["as"] == "packed" and entries["model.safetensors"]["generation"] == 0
    assert sizes_of(tmp_path / "coded")["model.safetensors.tersor"] < 0.75 * w.nbytes
    assert entries["rng.safetensors"]["as"] == "copied"
    assert entries["rng.safetensors"]["reason"] == "has no weights or states to pack"
    assert tree(unpack(tmp_path / "coded", tmp_path)) == tree(source)
    for how in "--plain", "--entropy=states":
        run_tersor("convert", tmp_path / "coded", "-o", tmp_path / how, how, check=0)
        assert tree(unpack(tmp_path / how, tmp_path, how + "-back")) == tree(source)


def make_orbax(root):
    (root / "10" / "default").mkdir(parents=True)
    for name in "_METADATA", "_sharding", "manifest.ocdbt":
        (root / "10" / "default" / name).write_text("{}")


def make_unfinished(root):
    shutil.copytree(DATA / "torch" / "dcp-2rank", root, dirs_exist_ok=True)
    (root / ".metadata").unlink()


def make_bf16(root):
    safetensors.numpy.save_file({"a.weight": np.ones((64, 64), ml_dtypes.bfloat16)}, root / "model.safetensors")


def make_unread(root):
    """A file that is refused, beside a small one that is read."""
    shutil.copy(DATA / "torch" / "torchscript.pt", root)
    (root / "rng.pt").write_bytes(torchfile.pt(torchfile.tensor(np.arange(99).astype("u1"))))


NOTHING = {"empty": (lambda root: None, "no file in it holds tensors"),
           "text": (lambda root: (root / "a.txt").write_text("x"), "no file in it holds tensors"),
           "orbax": (make_orbax, "{root}/10/default: found a checkpoint of Orbax; restore it in Python and flatten it "
                                 "to safetensors"),
           "dcp": (make_unfinished, "__1_0.distcp: has no .metadata beside it: the save did not finish"),
           "bf16": (make_bf16, "100% of the input's data is BF16, which stays as it is: "),
           "unread": (make_unread, "torchscript.pt: found a TorchScript program"),
           "coded": (lambda root: shutil.copy(DATA / "frameworks" / "states" / "torchao-adamw8bit.pt", root / "o.pt"),
                     "o.pt: has states that another tool compressed already")}


@pytest.mark.parametrize("name", NOTHING)
def test_a_directory_of_which_nothing_is_packed_says_why(name, tmp_path):
    make, why = NOTHING[name]
    root = tmp_path / "source"
    root.mkdir()
    make(root)
    lead = f"{root}: nothing was packed: {why.format(root=root)}"
    done = run_tersor("pack", root, "-o", tmp_path / "p", check=0)
    assert one_line_error(done).startswith(f"tersor: warning: {lead}")
    assert run_tersor("pack", root, "-o", tmp_path / "q", "-q", check=0).stderr == ""
    if name != "unread":        # that is an error of its own
        done = run_tersor("pack", root, "-o", tmp_path / "s", "--strict", "-q", check=1)
        assert one_line_error(done).startswith(f"tersor: {lead}")
        assert tree(tmp_path / "s") == tree(tmp_path / "p")
    if name == "bf16":
        assert run_tersor("pack", root, "-o", tmp_path / "e", "--entropy", "--strict", check=0).stderr == ""


def test_file_that_cannot_be_read_is_copied_and_named(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(DATA / "torch" / "torchscript.pt", source)
    done = run_tersor("pack", source, "-o", tmp_path / "p", "-q", check=0)
    entry = entries_of(tmp_path / "p")["torchscript.pt"]
    assert entry["as"] == "copied" and "TorchScript" in entry["reason"]
    assert str(source) not in json.dumps(index_of(tmp_path / "p"))
    assert "TorchScript" in done.stdout
    run_tersor("pack", source, "-o", tmp_path / "q", "--strict", "-q", check=3)
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("name, content", [
    ("model.safetensors", b""),
    ("model.safetensors", safetensors_bytes({"a": {"dtype": "F32", "shape": [2],
                                                   "data_offsets": [0, 8]}}, b"1234567")),
    ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"),
    ("model.bin", torchfile.pt({"w": torchfile.tensor(np.ones(4000, "f4"))})[:-100]),
    ("model.pt", bytes(5000)),
])
def test_damaged_file_is_an_error(name, content, tmp_path):
    root = one_file(tmp_path, name, content)
    done = run_tersor("pack", root, "-o", tmp_path / "p", check=3)
    assert name in one_line_error(done)
    assert sorted(os.listdir(tmp_path)) == ["one"]


def test_taken_names_do_not_collide(source, tmp_path):
    (source / "model.safetensors.tersor").write_bytes(b"mine")
    (source / ("x" * 248 + ".npy")).write_bytes((source / "array.npy").read_bytes())
    run_tersor("pack", source, "-o", tmp_path / "p", check=0)
    entries = entries_of(tmp_path / "p")
    assert entries["model.safetensors"]["reason"] == "another file has its name with .tersor"
    assert entries["x" * 248 + ".npy"]["reason"] == "its name is too long to add .tersor"
    check_round_trip(source, tmp_path / "p", unpack(tmp_path / "p", tmp_path))


def test_bound_that_does_not_hold_leaves_nothing(source, tmp_path):
    run_tersor("pack", source, "-o", tmp_path / "p", "--max-error", "nmse=1e-30", check=1)
    assert sorted(os.listdir(tmp_path)) == ["source"]


# ---- What is refused ---------------------------------------------------------------------------

def test_links_and_special_files_are_refused(source, tmp_path):
    (source / "link").symlink_to("config.json")
    done = run_tersor("pack", source, "-o", tmp_path / "p", check=3)
    assert "symbolic link" in one_line_error(done) and "--follow-symlinks" in done.stderr
    run_tersor("pack", source, "-o", tmp_path / "p", "--follow-symlinks", check=0)
    assert (tmp_path / "p" / "link").read_text() == '{"a": 1}\n'
    assert not (tmp_path / "p" / "link").is_symlink()
    (source / "link").unlink()
    (source / "link").symlink_to("sub")
    assert "link to a directory" in run_tersor("pack", source, "-o", tmp_path / "q",
                                               "--follow-symlinks", check=3).stderr
    (source / "link").unlink()
    os.mkfifo(source / "fifo")
    assert "FIFO" in one_line_error(run_tersor("pack", source, "-o", tmp_path / "q", check=3))
    (source / "fifo").unlink()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(source / "s"))
        assert "socket" in one_line_error(run_tersor("pack", source, "-o", tmp_path / "q", check=3))
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("out", ["source", "source/x", "source/sub/x", "."])
def test_output_that_is_part_of_the_input_is_refused(out, source, tmp_path):
    before = tree(source)
    for force in ([], ["-f"]):
        done = run_tersor("pack", source, "-o", tmp_path / out, *force, check=4)
        assert "output" in one_line_error(done)
    assert tree(source) == before and os.listdir(tmp_path) == ["source"]


def test_packed_directory_is_not_packed_again(packed, tmp_path):
    done = run_tersor("pack", packed, "-o", tmp_path / "p", check=3)
    assert INDEX in one_line_error(done)


def test_options_of_files_are_refused_for_directories(source, packed, tmp_path):
    for args in (["pack", source, "-o", tmp_path / "p.pt"],
                 ["pack", source, "-o", tmp_path / "p", "--max-shard-size", "1M"],
                 ["pack", source, "-o", tmp_path / "p", "--model", tmp_path / "m"],
                 ["unpack", packed, "-o", tmp_path / "p.pt"],
                 ["unpack", packed, "-o", tmp_path / "p", "--to", "pt"]):
        one_line_error(run_tersor(*args, check=2))
    assert not (tmp_path / "p").exists() and not (tmp_path / "p.pt").exists()


def test_name_that_is_not_utf8_is_refused(source, tmp_path):
    (pathlib.Path(os.fsdecode(os.fsencode(source) + b"/\xff"))).write_bytes(b"x")
    assert "UTF-8" in one_line_error(run_tersor("pack", source, "-o", tmp_path / "p", check=3))


# ---- Complete or absent ------------------------------------------------------------------------

def shim(fault, inside):
    return {**os.environ, "LC_ALL": "C", "LD_PRELOAD": LIBRARY, "TERSOR_FAULT": fault,
            "TERSOR_FAULT_PATH": str(inside),
            "ASAN_OPTIONS": "verify_asan_link_order=0:allocator_may_return_null=1"}


def faulty(args, fault, inside):
    return subprocess.run([BINARY, *map(str, args)], env=shim(fault, inside), capture_output=True,
                          text=True)


@pytest.fixture
def small(tmp_path):
    root = tmp_path / "in" / "ck"
    (root / "sub").mkdir(parents=True)
    w = np.random.default_rng(1).normal(0, 1, 5000).astype("f4")
    safetensors.numpy.save_file({"w": w}, root / "sub" / "m.safetensors")
    (root / "a.txt").write_text("text")
    (tmp_path / "out").mkdir()
    return root


FAULTS = [f"{call}:{n}:{error}" for call, n, error in [
    ("pwrite", 1, "ENOSPC"), ("pwrite", 2, "EIO"), ("pwrite", 3, "EIO"), ("fsync", 1, "EIO"),
    ("fsync", 2, "EIO"), ("rename", 1, "EIO"), ("rename", 3, "EIO"), ("open", 3, "EACCES")]]


@pytest.mark.parametrize("fault", FAULTS)
def test_failure_leaves_the_old_directory_or_none(fault, small, tmp_path):
    out = tmp_path / "out" / "p"
    before = tree(small)
    done = faulty(["pack", small, "-o", out], fault, tmp_path / "out")
    if "may not survive a power cut" in done.stderr:
        assert str(out) + ": published and complete" in one_line_error(done)
        run_tersor("verify", out, check=0)
    elif done.returncode:
        assert not os.listdir(tmp_path / "out"), done.stderr
    else:
        run_tersor("verify", out, check=0)
    run_tersor("pack", small, "-o", out, "-f", check=0)
    old = tree(out)
    done = faulty(["pack", small, "-o", out, "-f", "--weights", "bf16+ulp16"], fault, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["p"]
    assert (tree(out) == old) == (done.returncode != 0 and "published" not in done.stderr)
    run_tersor("verify", out, "--against", small, check=0)
    assert tree(small) == before


@pytest.mark.parametrize("name, status", [("sigterm", 128 + signal.SIGTERM),
                                          ("sigint", 128 + signal.SIGINT), ("kill", -9)])
@pytest.mark.parametrize("call", ["pwrite:1", "pwrite:2", "rename:2"])
def test_signal_leaves_no_directory(name, status, call, small, tmp_path):
    done = faulty(["pack", small, "-o", tmp_path / "out" / "p"], f"{call}:{name}", tmp_path / "out")
    assert done.returncode == status
    left = os.listdir(tmp_path / "out")
    assert "p" not in left
    assert left == [] or (name == "kill" and left[0].startswith(".p.") and left[0].endswith(".tmp"))
    run_tersor("pack", small, "-o", tmp_path / "out" / "p", check=0)
    done = faulty(["unpack", tmp_path / "out" / "p", "-o", tmp_path / "out" / "b"],
                  f"{call}:{name}", tmp_path / "out" / ".b")
    assert not (tmp_path / "out" / "b").exists() and done.returncode == status


@pytest.mark.parametrize("name", ["sigterm", "sigint", "sighup"])
def test_signal_after_a_directory_has_its_name_changes_nothing(name, small, tmp_path):
    out = tmp_path / "out" / "p"
    log = tmp_path / "log"
    run_tersor("pack", small, "-o", out, "-j1", env=faults.shim(tmp_path, log=log), check=0)
    calls = [e for e in read_log(log) if e.mark == ">"]
    named = max(i for i, e in enumerate(calls) if e.call.startswith("rename"))
    for n in range(named + 2, len(calls) + 1):
        shutil.rmtree(out)
        run_tersor("pack", small, "-o", out, "-j1", env=faults.shim(tmp_path, f"any:{n}:{name}"), check=0)
        run_tersor("verify", out, check=0)


@pytest.mark.parametrize("command", ["pack", "unpack", "verify", "diff", "inspect"])
def test_every_allocation_fails_cleanly(command, small, tmp_path):
    packed, out = tmp_path / "p", tmp_path / "out" / "x"
    run_tersor("pack", small, "-o", packed, check=0)
    args = {"pack": [small, "-o", out], "unpack": [packed, "-o", out], "inspect": [packed],
            "verify": [packed, "--against", small], "diff": [packed, small]}[command] + ["-qq"]
    args += ["-j", "1"] if command != "inspect" else []
    count = tmp_path / "count"
    env = {**shim("any:1000000000:EIO", tmp_path), "TERSOR_FAULT_COUNT": str(count)}
    subprocess.run([BINARY, command, *map(str, args)], env=env, check=command != "diff")
    n = int.from_bytes(count.read_bytes()[-8:], "little")
    shutil.rmtree(out, ignore_errors=True)
    assert n > 50
    failed = 0
    for i in spread(n, 40):
        env["TERSOR_FAULT_MALLOC"] = str(i)
        done = subprocess.run([BINARY, command, *map(str, args)], env=env, capture_output=True,
                              text=True)
        assert done.returncode in (0, 1, 3, 4), (i, done.stderr)
        failed += done.returncode == 4
        assert done.returncode != 4 or "memory" in done.stderr, done.stderr
        assert os.listdir(tmp_path / "out") == (["x"] if out.exists() else [])
        shutil.rmtree(out, ignore_errors=True)
    assert failed > 10


def test_force_replaces_a_packed_directory_as_a_whole(source, packed, tmp_path):
    done = run_tersor("pack", source, "-o", packed, check=4)
    assert "--force" in one_line_error(done)
    run_tersor("pack", TRAINER, "-o", packed, "-f", "-q", check=0)
    run_tersor("verify", packed, "--against", TRAINER, check=0)
    assert sorted(os.listdir(tmp_path)) == ["packed", "source"]
    back = unpack(packed, tmp_path)
    one_line_error(run_tersor("unpack", packed, "-o", back, check=4))
    run_tersor("unpack", packed, "-o", back, "-f", check=0)
    assert tree(back).keys() == tree(TRAINER).keys()


def test_force_replaces_no_other_directory(source, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("x")
    run_tersor("pack", source, "-o", other, "-f", check=4)
    assert tree(other) == {"mine": b"x"}
    (tmp_path / "file").write_text("x")
    run_tersor("pack", source, "-o", tmp_path / "file", "-f", check=4)
    assert (tmp_path / "file").read_text() == "x"


def test_directory_in_the_making_is_private(source, tmp_path):
    """Permissions are set before the directory can be entered."""
    job = subprocess.Popen([BINARY, "pack", source, "-o", tmp_path / "p", "-q"],
                           env=shim("pwrite:2:stop", tmp_path / ".p"), stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT)
    temp = next(tmp_path.glob(".p.*.tmp"))
    assert stat.S_IMODE(temp.stat().st_mode) == 0o700
    job.send_signal(signal.SIGCONT)
    assert job.wait() == 0


# ---- Verify ------------------------------------------------------------------------------------

def test_verify_notices_a_flipped_byte_in_any_file(source, packed):
    files = [name for name, content in tree(packed).items() if content]
    assert len(files) >= 8
    for name in files:
        path = packed / name
        content, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
        for at in {0, len(content) // 3, len(content) - 1}:
            path.chmod(0o600)
            path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1:])
            done = run_tersor("verify", packed)
            assert done.returncode == 3, (name, at)
            assert name.split("/")[-1][:15] in done.stderr.replace("\\n", "\n")
        path.write_bytes(content)
        path.chmod(mode)
    run_tersor("verify", packed, check=0)


def test_verify_notices_missing_and_extra_files(packed):
    (packed / "config.json").rename(packed / "config2.json")
    done = run_tersor("verify", packed, check=3)
    lines = done.stdout.splitlines()
    assert lines[:4] == ["FAULT   config.json", "        is missing",
                         "FAULT   config2.json", "        is not in the index"]
    (packed / "config2.json").rename(packed / "config.json")
    (packed / "more").mkdir()
    done = run_tersor("verify", packed, check=1)
    assert "FAULT   more\n" in done.stdout
    (packed / "more").rmdir()
    (packed / "sub" / "empty").rmdir()
    run_tersor("verify", packed, check=3)


def test_packed_file_of_another_run_is_noticed(source, packed, tmp_path):
    """The same sizes and a sound file, but of other values: the header is not the one that was written."""
    w = np.random.default_rng(2).normal(0, 0.02, (64, 65)).astype("f4")
    np.save(source / "array.npy", w)
    run_tersor("pack", source, "-o", tmp_path / "other", check=0)
    shutil.copy(tmp_path / "other" / "array.npy.tersor", packed / "array.npy.tersor")
    done = run_tersor("verify", packed, check=3)
    assert "is not the file that was written here" in " ".join(done.stdout.split())
    run_tersor("unpack", packed, "-o", tmp_path / "b", check=3)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("lie", [{"generation": 7}, {"kind": "npz"}], ids=lambda lie: next(iter(lie)))
def test_an_index_that_lies_about_a_packed_file_is_noticed(packed, lie):
    index = index_of(packed)
    next(e for e in index["entries"] if e["path"] == "model.safetensors").update(lie)
    (packed / INDEX).write_bytes(seal(index))
    done = run_tersor("verify", packed, check=3)
    assert "FAULT   model.safetensors\n        the index is wrong: found generation 1 of a safetensors file" in done.stdout
    assert done.stdout.count("FAULT") == 1


def test_verify_against_the_original_and_others(source, packed, tmp_path):
    run_tersor("verify", packed, "--against", source, check=0)
    (source / "config.json").write_text('{"a": 2}\n')
    done = run_tersor("verify", packed, "--against", source, check=1)
    assert done.stdout.startswith("FAULT   config.json\n        differs from the original\n")
    (source / "config.json").write_text('{"a": 1}\n')
    w = safetensors.numpy.load_file(source / "model.safetensors")
    w["a.weight"][3, 4] += 1
    safetensors.numpy.save_file(w, source / "model.safetensors", {"format": "pt"})
    done = run_tersor("verify", packed, "--against", source, check=1)
    assert done.stdout.startswith("FAULT   model.safetensors\n")
    (source / "more").write_text("x")
    assert "is only in the original" in run_tersor("verify", packed, "--against", source,
                                                   check=1).stdout


def test_verify_says_first_that_the_original_is_another(packed):
    done = run_tersor("verify", packed, "--against", TRAINER, check=1)
    assert done.stdout.startswith(f"{TRAINER} is not the directory that {packed} was packed from: ")
    assert "FAULT" not in done.stdout and "is not the directory" in one_line_error(done)
    done = run_tersor("verify", packed, "--against", packed, check=3)
    assert "packed directory, expected the original" in one_line_error(done)


# ---- Diff --------------------------------------------------------------------------------------

def test_diff_compares_directories_by_file(source, packed, tmp_path):
    back = unpack(packed, tmp_path)
    assert run_tersor("diff", packed, back, check=0).stdout == "7 files compared: 0 differ\n"
    run_tersor("diff", packed, packed, check=0)
    run_tersor("diff", source, packed, "--max-error", "nmse=1e-3", check=0)
    done = run_tersor("diff", source, packed, check=1)
    assert "differs array.npy\n        1 of 1 tensors differ\n" in done.stdout
    (back / "config.json").write_text("{}")
    (back / ".hidden").unlink()
    (back / "more").write_text("x")
    done = run_tersor("diff", packed, back, check=1)
    assert done.stdout == ("differs .hidden\n        only in A\n"
                           "differs config.json\n        bytes differ\n"
                           "differs more\n        only in B\n8 files compared: 3 differ\n")
    report = json.loads(run_tersor("diff", packed, back, "--json", check=1).stdout)
    assert [f["path"] for f in report["files"] if f["fault"]] == [".hidden", "config.json", "more"]


def test_diff_of_files_that_are_not_read_is_by_bytes(tmp_path):
    a, b, packed = (tmp_path / name for name in ("a", "b", "packed"))
    for root, tail in ((a, b"x"), (b, b"y")):
        root.mkdir()
        (root / "old.pkl").write_bytes(b"\x80\x02}q\x00." + tail)
    run_tersor("pack", a, "-o", packed, check=0)
    assert "bytes differ" in run_tersor("diff", packed, b, check=1).stdout
    run_tersor("diff", packed, a, check=0)


@pytest.mark.parametrize("layout", ["trainer/checkpoint-30", "deepspeed/zero3-bf16-2rank"])
def test_diff_compares_plain_directories_as_checkpoints(layout, tmp_path):
    source = FRAMEWORKS / layout
    run_tersor("pack", source, "-o", tmp_path / "packed", check=0)
    back = unpack(tmp_path / "packed", tmp_path)
    n = len(json.loads(run_tersor("inspect", source, "--json", check=0).stdout)["tensors"])
    assert f"{n} tensors compared: 0 differ\n" in run_tersor("diff", source, source, check=0).stdout
    done = run_tersor("diff", source, back, "--max-error", "nmse=1e-3", check=0)
    assert f"{n} tensors compared: " in done.stdout and "compared: 0 differ, " not in done.stdout


def copies(source, tmp_path):
    for name in "a", "b":
        shutil.copytree(source, tmp_path / name)
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("layout", ["trainer/checkpoint-30", "deepspeed/zero2-bf16-2rank", "accelerate-fsdp/checkpoint-10"])
def test_diff_of_checkpoints_compares_what_is_beside_them(layout, tmp_path):
    """Tensors as those of one checkpoint, every other file by its bytes."""
    a, b = copies(FRAMEWORKS / layout, tmp_path)
    for root in a, b:
        (root / "logs").mkdir()
        (root / "logs" / "x.txt").write_text("equal")
        (root / "trainer_state.json").write_text("{}")
    done = run_tersor("diff", a, b, check=0)
    assert ": 0 differ\n" in done.stdout and ": left out: " not in done.stderr
    assert re.search(r"\n[2-9] other files compared: 0 differ\n$", done.stdout)
    (b / "trainer_state.json").write_text("[]")
    (b / "logs" / "x.txt").unlink()
    (b / "more").write_text("")
    done = run_tersor("diff", a, b, check=1)
    assert " tensors compared: 0 differ\n" in done.stdout
    assert ("differs logs/x.txt\n        only in A\ndiffers more\n        only in B\n"
            "differs trainer_state.json\n        bytes differ\n") in done.stdout
    assert re.search(r"\n[3-9] other files compared: 3 differ\n$", done.stdout)
    report = json.loads(run_tersor("diff", a, b, "--json", check=1).stdout)
    assert report["differing"] == 0 and report["faults"] == 3
    assert {f["path"] for f in report["files"] if f["fault"]} == {"logs/x.txt", "more", "trainer_state.json"}


def test_diff_of_directories_that_are_no_checkpoints_is_by_file(tmp_path):
    source = tmp_path / "source"
    for n in 10, 20:
        shutil.copytree(TRAINER, source / f"checkpoint-{n}")
    a, b = copies(source, tmp_path)
    assert run_tersor("diff", a, b, check=0).stdout == "16 files compared: 0 differ\n"
    (b / "checkpoint-20" / "config.json").write_text("{}")
    (b / "checkpoint-10" / "training_args.bin").write_bytes(torchfile.pt({"a": 1}))
    done = run_tersor("diff", a, b, check=1)
    assert done.stdout == ("differs checkpoint-10/training_args.bin\n        bytes differ\n"
                           "differs checkpoint-20/config.json\n        bytes differ\n16 files compared: 2 differ\n")
    (tmp_path / "empty").mkdir()
    assert run_tersor("diff", tmp_path / "empty", tmp_path / "empty", check=0).stdout == "0 files compared: 0 differ\n"


def test_diff_compares_checkpoints_that_are_not_the_latest(tmp_path):
    a, b = copies(FRAMEWORKS / "deepspeed" / "zero2-bf16-2rank", tmp_path)
    latest = (a / "latest").read_text().strip()
    for root in a, b:
        shutil.copytree(root / latest, root / "global_step1")
    assert " other files compared: 0 differ\n" in run_tersor("diff", a, b, check=0).stdout
    victim = next((b / "global_step1").glob("*_optim_states.pt"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"x")
    done = run_tersor("diff", a, b, check=1)
    assert f"differs global_step1/{victim.name}\n        bytes differ\n" in done.stdout


# ---- Hostile indices ---------------------------------------------------------------------------

def test_index_is_as_the_document_says(source, packed):
    index = index_of(packed)
    assert (packed / INDEX).read_bytes() == seal(index)
    assert list(index) == ["tersor_directory", "tool", "mode", "entries", "check"]
    assert index["tersor_directory"] == 1 and index["mode"] == "0711"
    assert entries_of(packed)["sub"] == {"path": "sub", "as": "directory", "mode": "0555"}


def copied(path, **more):
    return {"path": path, "as": "copied", "mode": "0644", "nbytes": 0,
            "xxh3": xxhash.xxh3_64_hexdigest(b""), **more}


def packed_entry(path, stored=None, **more):
    files = [{"path": name, "nbytes": 8, "header": "0" * 15 + "1"}
             for name in stored or [f"{path}.tersor"]]
    return {"path": path, "as": "packed", "mode": "0644", "nbytes": 8, "kind": "pt",
            "generation": 1, "files": files, **more}


HOSTILE = {
    "absolute": [copied("/etc/passwd")],
    "above": [copied("../x")],
    "above in the middle": [{"path": "a", "as": "directory", "mode": "0755"}, copied("a/../../x")],
    "dot": [copied("./x")],
    "empty name": [copied("")],
    "two slashes": [{"path": "a", "as": "directory", "mode": "0755"}, copied("a//x")],
    "slash at the end": [copied("x/")],
    "backslash": [copied("..\\x")],
    "long name": [copied("x" * 256)],
    "long path": [{"path": "/".join(["x" * 200] * n), "as": "directory", "mode": "0755"}
                  for n in range(1, 30)],
    "deep": [{"path": "/".join("x" * n), "as": "directory", "mode": "0755"} for n in range(1, 80)],
    "twice": [copied("x"), copied("x")],
    "unsorted": [copied("y"), copied("x")],
    "no parent": [copied("a/x")],
    "parent is a file": [copied("a"), copied("a/x")],
    "the index itself": [copied(INDEX)],
    "mode": [copied("x", mode="4755")],
    "mode as a number": [copied("x", mode=420)],
    "size": [copied("x", nbytes=-1)],
    "size as a text": [copied("x", nbytes="0")],
    "huge size": [copied("x", nbytes=2 ** 60)],
    "hash": [copied("x", xxh3="xyz")],
    "kind of entry": [copied("x", **{"as": "link"})],
    "unknown member": [copied("x", target="/etc/passwd")],
    "long reason": [copied("x", reason="x" * 1025)],
    "stored elsewhere": [packed_entry("x", ["../x.tersor"])],
    "stored as another": [packed_entry("x", ["y.tersor"])],
    "stored over another": [packed_entry("x"), copied("x.tersor")],
    "stored twice": [packed_entry("x", ["x", "x"])],
    "stored three times": [packed_entry("x", ["x", "x.tersor", "x"])],
    "stored nowhere": [packed_entry("x", files=[])],
    "container": [packed_entry("x", kind="dcp")],
    "dcp stored elsewhere": [packed_entry(".metadata", kind="dcp")],
    "part of nothing": [{"path": "x.distcp", "as": "part", "mode": "0644", "nbytes": 0}],
    "part of a copy": [copied(".metadata"), {"path": "x.distcp", "as": "part", "mode": "0644", "nbytes": 0}],
    "part of another directory": [packed_entry(".metadata", ["dcp.tersor"], kind="dcp"),
                                  {"path": "a", "as": "directory", "mode": "0755"},
                                  {"path": "a/x.distcp", "as": "part", "mode": "0644", "nbytes": 0}],
    "generation": [packed_entry("x", generation=2 ** 40)],
    "not an object": ["x"],
    "total of another file": [copied("x", total_size={"at": 0, "was": "0", "is": "1"})],
    "total behind the end": [copied("a.index.json", nbytes=5, total_size={"at": 5, "was": "1", "is": "2"})],
    "total that is no number": [copied("a.index.json", nbytes=5,
                                       total_size={"at": 0, "was": "1", "is": "../x"})],
    "total without digits": [copied("a.index.json", nbytes=5, total_size={"at": 0, "was": "", "is": "1"})],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_index_is_refused(name, tmp_path):
    root = tmp_path / "packed"
    root.mkdir()
    (root / "x").write_bytes(b"")
    (root / INDEX).write_bytes(seal({"tersor_directory": 1, "tool": "t", "mode": "0755",
                                     "entries": HOSTILE[name]}))
    for args in (["unpack", root, "-o", tmp_path / "b"], ["verify", root], ["inspect", root],
                 ["diff", root, root]):
        done = run_tersor(*args, check=3)
        assert INDEX in one_line_error(done), done.stderr
    assert sorted(os.listdir(tmp_path)) == ["packed"]


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"check":"0000000000000000"}\n', b"\x00" * 99])
def test_text_that_is_no_index_is_refused(text, tmp_path):
    root = tmp_path / "packed"
    root.mkdir()
    (root / INDEX).write_bytes(text)
    one_line_error(run_tersor("unpack", root, "-o", tmp_path / "b", check=3))
    one_line_error(run_tersor("verify", root, check=3))


def test_index_of_another_version_is_refused(tmp_path):
    root = tmp_path / "packed"
    root.mkdir()
    (root / INDEX).write_bytes(seal({"tersor_directory": 2, "tool": "t", "mode": "0755",
                                     "entries": []}))
    assert "version 2" in one_line_error(run_tersor("verify", root, check=3))


def test_links_in_a_packed_directory_are_refused(source, packed, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes((packed / "config.json").read_bytes())
    (packed / "config.json").unlink()
    (packed / "config.json").symlink_to(secret)
    for args in (["unpack", packed, "-o", tmp_path / "b"], ["verify", packed]):
        assert "symbolic link" in one_line_error(run_tersor(*args, check=3))
    assert not (tmp_path / "b").exists()


def test_damaged_copy_is_not_unpacked(packed, tmp_path):
    (packed / "config.json").write_text('{"a": 9}\n')
    done = run_tersor("unpack", packed, "-o", tmp_path / "b", check=3)
    assert "config.json: damaged" in one_line_error(done)
    assert sorted(os.listdir(tmp_path)) == ["packed", "source"]


def test_directories_that_the_index_lacks_are_said_to_be_left_out(packed, tmp_path):
    index = index_of(packed)
    index["entries"] = [e for e in index["entries"] if e["path"] != "sub/empty"]
    (packed / INDEX).write_bytes(seal(index))
    line = one_line_error(run_tersor("unpack", packed, "-o", tmp_path / "back", check=0))
    assert line == f"tersor: warning: {packed}: left out 1 entry that is not in its index, such as sub/empty"


@pytest.mark.parametrize("change", ["modified", "replaced", "removed", "added", "directory"])
def test_a_directory_that_changes_while_it_is_packed_is_refused(change, source, tmp_path):
    """A packed directory is of one moment: all files are there before its index is published, then one changes."""
    job = subprocess.Popen([BINARY, "pack", source, "-o", tmp_path / "p", "-qq"], stderr=subprocess.PIPE, text=True,
                           env=shim("rename:1:stop", INDEX))
    os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT)
    victim = source / "config.json"
    if change == "modified":
        victim.write_text('{"a": 2}\n')
    elif change == "replaced":
        (tmp_path / "t").write_text('{"a": 3}\n')
        os.replace(tmp_path / "t", victim)
    elif change == "removed":
        victim.unlink()
    else:
        victim = source / "more"
        victim.mkdir() if change == "directory" else victim.write_text("x")
    job.send_signal(signal.SIGCONT)
    line = job.communicate(timeout=60)[1]
    how = {"modified": "modified or replaced", "replaced": "modified or replaced", "removed": "removed"}
    assert line == f"tersor: {victim}: changed while reading: it was {how.get(change, 'added')}\n"
    assert job.returncode == 4 and sorted(os.listdir(tmp_path)) == ["source"]


@pytest.mark.parametrize("stage, stored", [
    ("zero1-fp32-2rank", 8.125), ("zero2-bf16-2rank", 7.125), ("zero3-bf16-2rank", 5.125)])
def test_flat_partitions_are_copies_of_the_model(tmp_path, stage, stored):
    """A parameter is counted once, though the model and the optimizer are in different files."""
    source, packed = DATA / "frameworks" / "deepspeed" / stage, tmp_path / "packed"
    done = run_tersor("pack", source, "-o", packed, check=0)
    totals = figures(["inspect", packed])
    assert totals["stored_nbytes"] / totals["parameters"] == pytest.approx(stored, abs=0.0005)
    size = sum(path.stat().st_size for path in packed.rglob("*") if path.is_file())
    line = f"{size / totals['parameters']:.3f} bytes per parameter"
    assert line in done.stdout and line in run_tersor("inspect", packed, check=0).stdout
    assert ("copies of parameters" in done.stdout) == (stored > 6)


def figures(args):
    return json.loads(run_tersor(*args, "--json", check=0).stdout)["totals"]


def test_an_average_in_a_file_of_its_own_is_a_copy(tmp_path):
    source, packed = tmp_path / "source", tmp_path / "packed"
    for folder in "unet", "unet_ema":
        (source / folder).mkdir(parents=True)
        shutil.copy(TRAINER / "model.safetensors", source / folder)
    shutil.copy(TRAINER / "optimizer.pt", source)
    for args in ["pack", source, "-o", packed], ["inspect", packed]:
        totals = figures(args)
        assert totals["parameters"] == 106816
        assert totals["copies"] == [{"under": "another file", "elements": 106816}]
        assert totals["stored_nbytes"] / totals["parameters"] == pytest.approx(3 + 3 + 2 * 1.0625, abs=0.01)


def test_states_of_another_tool_count_with_what_they_take(tmp_path):
    """The file of torchao is copied: its codes, not the FP32 values that they stand for."""
    source, packed = tmp_path / "source", tmp_path / "packed"
    source.mkdir()
    shutil.copy(FRAMEWORKS / "states" / "torchao-adamw8bit.pt", source / "o.pt")
    alone = figures(["inspect", source / "o.pt"])
    alone.pop("bytes_per_parameter")    # that of a directory counts its index, too
    for args in ["pack", source, "-o", packed], ["inspect", packed]:
        done = run_tersor(*args, "-f" if args[0] == "pack" else "-q", check=0).stdout
        assert "dyn8 f32/256" in done or args[0] == "inspect"
        found = figures([*args, *(["-f"] if args[0] == "pack" else [])])
        assert found.pop("bytes_per_parameter") > 6.25 and found == alone


def test_unsettled_order_of_an_optimizer_does_not_keep_a_file_from_being_packed(tmp_path):
    """Each file comes back by itself, so its states can keep the optimizer's numbers."""
    source, packed = tmp_path / "source", tmp_path / "packed"
    source.mkdir()
    shutil.copy(DATA / "frameworks" / "states" / "frozen-layers.pt", source)
    done = run_tersor("pack", source, "-o", packed, check=0)
    assert "called by the optimizer's numbers" in done.stderr and "1 packed, 0 copied" in done.stdout
    names = reader.read(packed / "frozen-layers.pt.tersor").tensors
    assert names["optimizer.state.7.exp_avg"].codec == "softsign8"
    run_tersor("verify", packed, "--against", source, check=0)


def test_files_that_the_index_lacks_are_said_to_be_left_out(tmp_path):
    """Somebody put them into the packed directory; what comes out of it is what went in."""
    (tmp_path / "in").mkdir()
    shutil.copy(DATA / "tiny-gpt" / "checkpoint.safetensors", tmp_path / "in" / "model.safetensors")
    run_tersor("pack", tmp_path / "in", "-o", tmp_path / "packed", check=0)
    said = {}
    for n in 0, 1, 2:
        for args in (["unpack", tmp_path / "packed", "-o", tmp_path / f"out{n}"],
                     ["convert", tmp_path / "packed", "--entropy", "-o", tmp_path / f"coded{n}"]):
            said[args[0], n] = run_tersor(*args, check=0).stderr
        (tmp_path / "packed" / "sub").mkdir(exist_ok=True)
        (tmp_path / "packed" / "sub" / f"note{n}.txt").write_text("by hand")
    for command in "unpack", "convert":
        assert said[command, 0] == ""
        assert "left out 2 entries that are not in its index, such as sub\n" in said[command, 1]
        assert "left out 3 entries that are not in its index" in said[command, 2]
    assert not (tmp_path / "out2" / "sub").exists()
