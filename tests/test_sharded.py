"""Hugging Face's shards with an index, in and out."""
import collections
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess

import numpy as np
import pytest
import safetensors.numpy

import torchfile
from conftest import BINARY, DATA, ROOT, one_line_error, run_tersor, safetensors_bytes
from torchfile import arrays_in, converted, must_refuse, pt, tensor

tmp_path = torchfile.tmp_path

HF = DATA / "tiny-gpt" / "hf"
SOURCE = DATA / "tiny-gpt" / "checkpoint.safetensors"
RAW_CODECS = ("--weights", "f32", "--momentum", "f32", "--variance", "f32")
LIBRARY = os.environ.get("TERSOR_FAULTS", str(ROOT / "build" / "tests" / "libfaults.so"))
A = np.arange(6, dtype=np.float32).reshape(2, 3)
SHARDS = {"model-00001-of-00002.safetensors": {"a": A, "b": A + 1},
          "model-00002-of-00002.safetensors": {"c": A + 2}}


def write(folder, shards=None, weight_map=None, index="model.safetensors.index.json", **more):
    """Shards and their index; weight_map may be a dict, or the text of one."""
    folder.mkdir(exist_ok=True)
    shards = SHARDS if shards is None else shards
    for name, tensors in shards.items():
        safetensors.numpy.save_file(tensors, folder / name, {"format": "pt"})
    if weight_map is None:
        weight_map = {t: name for name, tensors in shards.items() for t in tensors}
    if not isinstance(weight_map, str):
        weight_map = json.dumps(weight_map)
    metadata = more.get("metadata", '{"total_size": 72}')
    text = '{"metadata": %s, "weight_map": %s}' % (metadata, weight_map) if metadata else \
        '{"weight_map": %s}' % weight_map
    (folder / index).write_text(more.get("text", text))
    return folder / index


def expected(shards=None):
    return {name: ("F32", list(values.shape), values.tobytes())
            for tensors in (shards or SHARDS).values() for name, values in tensors.items()}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "model"


@pytest.fixture
def refused(folder):
    def check(index, *facts, **more):
        for path in (index, folder):
            must_refuse(path, *facts, among=folder, other=SOURCE, **more)
    return check


# ---- Names in the index ----

@pytest.mark.parametrize("name", [
    "../x", "/etc/passwd", "a/b", "..", ".", "", "x\0", "x\0.safetensors", "\\x", "..\\x", "a\\b",
    "./model-00001-of-00002.safetensors", "/", "a/", "x" * 256,
], ids=lambda name: repr(name)[:20])
def test_shard_names_that_lead_elsewhere_are_refused(folder, refused, name):
    (folder.parent / "x").mkdir()
    index = write(folder, weight_map={"a": name, "b": name, "c": name})
    refused(index)


@pytest.mark.parametrize("value", ["1", "null", "[]", "{}", "true", '["model.safetensors"]'])
def test_shard_names_that_are_not_strings_are_refused(folder, refused, value):
    refused(write(folder, weight_map='{"a": %s}' % value))


def test_nothing_is_opened_before_the_names_are_checked(folder):
    """One bad name, behind good ones: not even the good shards are opened."""
    weight_map = {"a": "model-00001-of-00002.safetensors", "c": "../outside.safetensors"}
    index = write(folder, weight_map=weight_map)
    safetensors.numpy.save_file({"c": A}, folder.parent / "outside.safetensors")
    if shutil.which("strace") is None:
        pytest.fail("strace is not installed")
    log = folder.parent / "strace"
    done = subprocess.run(["strace", "-f", "-o", log, "-e", "trace=%file", BINARY, "inspect",
                           index], capture_output=True, text=True)
    assert done.returncode == 3 and "../outside.safetensors" in done.stderr
    assert "index.json" in log.read_text()
    assert not re.search(r"outside\.safetensors|model-0000", log.read_text())


# ---- Shards that are not regular files ----

@pytest.mark.parametrize("kind", ["symlink", "dangling", "fifo", "directory", "device", "socket"])
def test_shard_that_is_not_a_regular_file_is_refused(folder, kind):
    index = write(folder)
    shard = folder / "model-00002-of-00002.safetensors"
    shard.rename(folder.parent / "real")
    if kind == "symlink":
        shard.symlink_to(folder.parent / "real")
    elif kind == "dangling":
        shard.symlink_to(folder.parent / "nowhere")
    elif kind == "fifo":
        os.mkfifo(shard)
    elif kind == "directory":
        shard.mkdir()
    elif kind == "device":
        shard.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(shard))
    for path in (index, folder):
        for args in (["inspect", path], ["verify", path],
                     ["convert", path, "-o", folder.parent / "out.safetensors"]):
            done = run_tersor(*args, timeout=10)
            assert done.returncode in (3, 4), (args, done.stderr)
            assert shard.name in one_line_error(done)
            assert not (folder.parent / "out.safetensors").exists()


def test_links_are_followed_if_asked(folder):
    """As the snapshots of the Hugging Face cache have them: links into ../blobs."""
    index = write(folder)
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for i, name in enumerate(SHARDS):
        (folder / name).rename(blobs / f"blob{i}")
        (folder / name).symlink_to(f"../blobs/blob{i}")
    for path in (index, folder):
        one_line_error(run_tersor("inspect", path, check=3 if run_tersor(
            "inspect", path).returncode == 3 else 4))
        found = converted(path, "--follow-symlinks", to=folder.parent / "out.safetensors")
        assert found == expected()
        run_tersor("verify", path, "--follow-symlinks", check=0)
        run_tersor("inspect", path, "--follow-symlinks", check=0)
        run_tersor("diff", path, folder.parent / "out.safetensors", "--follow-symlinks", check=0)
        run_tersor("pack", path, "--follow-symlinks", "-o", folder.parent / "packed.safetensors",
                   "--force", check=0)


def test_a_followed_link_still_leads_to_a_regular_file(folder):
    index = write(folder)
    shard = folder / "model-00002-of-00002.safetensors"
    shard.unlink()
    shard.symlink_to("/dev/zero")
    for _ in range(2):
        done = run_tersor("inspect", index, "--follow-symlinks", timeout=10)
        assert done.returncode in (3, 4) and shard.name in one_line_error(done)
        shard.unlink(missing_ok=True)
        os.mkfifo(shard) if not shard.exists() else None


# ---- Index and shards must say the same ----

def test_missing_shard_is_named(folder):
    index = write(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    for path in (index, folder):
        for args in (["inspect", path], ["verify", path], ["diff", path, SOURCE],
                     ["convert", path, "-o", folder.parent / "out.safetensors"]):
            done = run_tersor(*args)
            assert done.returncode in (3, 4)
            assert "model-00002-of-00002.safetensors" in one_line_error(done)


def test_tensor_missing_in_its_shard_is_named(folder, refused):
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
                  "c": "model-00002-of-00002.safetensors"}
    refused(write(folder, weight_map={**weight_map, "phantom": "model-00002-of-00002.safetensors"}),
            "phantom")
    refused(write(folder, weight_map={**weight_map, "b": "model-00002-of-00002.safetensors"}), "b")


def test_tensor_that_the_index_lacks_is_named(folder, refused):
    refused(write(folder, weight_map={"a": "model-00001-of-00002.safetensors",
                                      "c": "model-00002-of-00002.safetensors"}), "b")


def test_tensor_in_two_shards_is_named(folder, refused):
    shards = {**SHARDS, "model-00002-of-00002.safetensors": {"c": A + 2, "stale": A},
              "model-00001-of-00002.safetensors": {"a": A, "b": A + 1, "stale": A}}
    refused(write(folder, shards), "stale")


def test_damaged_shard_is_named(folder):
    index = write(folder)
    shard = folder / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    must_refuse(index, among=folder, other=SOURCE)
    assert shard.name in run_tersor("inspect", index).stderr


def test_packed_shard_is_refused(folder, tmp_path):
    index = write(folder)
    shard = folder / "model-00001-of-00002.safetensors"
    run_tersor("pack", shard, "-o", tmp_path / "packed.safetensors", check=0)
    shutil.copy(tmp_path / "packed.safetensors", shard)
    must_refuse(index, among=folder, other=SOURCE)


# ---- total_size is advice ----

@pytest.mark.parametrize("metadata, warned", [
    ('{"total_size": 72}', False), ('{"total_size": 72.0}', None), ('{"total_size": 7.2e1}', None),
    ('{"total_size": 73}', True), ('{"total_size": 0}', True), ('{"total_size": 1e400}', True),
    ('{"total_size": 1.3e10}', True), ('{"total_size": 18446744073709551616}', True),
    ('{"total_size": -1}', True), ("{}", True), (None, True),
    ('{"total_size": 72, "total_parameters": 18}', False),
    ('{"total_size": 72, "anything": ["else", {"x": null}]}', False),
], ids=str)
def test_wrong_total_size_is_a_warning(folder, metadata, warned):
    index = write(folder, metadata=metadata)
    for path in (index, folder):
        assert converted(path, to=folder.parent / "out.safetensors") == expected()
        done = run_tersor("inspect", path, check=0)
        if warned is not None:
            assert ("total_size" in done.stderr) == warned, done.stderr


# ---- The text of an index ----

@pytest.mark.parametrize("text", [
    "", "{", "{}", "[]", '{"weight_map": []}', '{"weight_map": 1}', '{"metadata": {}}',
    '{"weight_map": {"a": "model-00001-of-00002.safetensors", "a": "x.safetensors"}}',
    '{"weight_map": {"a": "x.safetensors", "\\u0061": "x.safetensors"}}',
    '{"weight_map": {}, "weight_map": {}}', '{"weight_map": {"a": "x"}} trailing',
    '{"weight_map": {"a\\u0000": "x.safetensors"}}', '{"weight_map": {"\\ud800": "x"}}',
    '\ufeff{"weight_map": {"a": "x"}}', '{"weight_map": {"a": "x",}}',
    '{"metadata": %s1%s, "weight_map": {"a": "x"}}' % ("[" * 100, "]" * 100),
    '{"weight_map": {"a": "x" /* y */}}', "{'weight_map': {'a': 'x'}}",
], ids=lambda text: text[:30])
def test_index_that_is_no_index(folder, text):
    index = write(folder, text=text)
    for args in (["inspect", index], ["inspect", folder], ["verify", index],
                 ["convert", index, "-o", folder.parent / "out.safetensors"]):
        done = run_tersor(*args, check=3)
        assert str(folder) in one_line_error(done)
        assert not (folder.parent / "out.safetensors").exists()


def test_index_nested_too_deep_takes_no_stack(folder):
    index = write(folder, text="[" * 1_000_000)
    must_refuse(index, among=folder, other=SOURCE, bounded=True, stack=256 << 10)
    index = write(folder, text='{"weight_map":' * 300_000)
    must_refuse(index, among=folder, other=SOURCE, bounded=True, stack=256 << 10)


def test_index_with_many_names(folder):
    """100,000 tensors in 100 shards are read in little time."""
    folder.mkdir()
    weight_map = {}
    for i in range(100):
        names = [f"layer.{i}.{j}" for j in range(1000)]
        (folder / f"shard_{i:02}").write_bytes(safetensors_bytes({
            n: {"dtype": "F16", "shape": [1], "data_offsets": [2 * j, 2 * j + 2]}
            for j, n in enumerate(names)}, bytes(2000)))
        weight_map |= {n: f"shard_{i:02}" for n in names}
    index = write(folder, {}, weight_map, metadata=None)
    done, peak, seconds = torchfile.run_bounded("inspect", "--json", index)
    assert done.returncode == 0 and peak < 512 and seconds < 2, (done.stderr, peak, seconds)
    assert len(json.loads(done.stdout)["tensors"]) == 100_000


# ---- Reading ----

def test_shards_are_one_checkpoint(folder):
    index = write(folder)
    for path in (index, folder):
        assert converted(path, to=folder.parent / "out.safetensors") == expected()
        run_tersor("verify", path, check=0)
        run_tersor("diff", path, folder.parent / "out.safetensors", check=0)
        report = json.loads(run_tersor("inspect", "--json", path, check=0).stdout)
        assert [t["name"] for t in report["tensors"]] == ["a", "b", "c"]


def test_shards_of_other_names(folder):
    """Names follow no pattern: only the index says what is a shard."""
    shards = {"shard_00.safetensors": {"a": A}, "x": {"b": A + 1}, "é.bin": {"c": A + 2}}
    for name in ("model.fp16.safetensors.index.json",
                 "diffusion_pytorch_model.safetensors.index.json"):
        index = write(folder, shards, index=name)
        for path in (index, folder):
            assert converted(path, to=folder.parent / "out.safetensors") == expected(shards)
        index.unlink()


def test_shards_whose_metadata_differ(folder):
    """torch.distributed.checkpoint's writer for Hugging Face keeps a note of its own in each."""
    index = write(folder)
    for i, (name, tensors) in enumerate(SHARDS.items()):
        safetensors.numpy.save_file(tensors, folder / name, {
            "format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(
                {t: {"saved_offsets": [0, 0]} for t in tensors})})
    for path in (index, folder):
        assert converted(path, to=folder.parent / "out.safetensors") == expected()
        run_tersor("verify", path, check=0)


def test_index_is_known_by_its_content(folder):
    index = write(folder, index="index.txt")
    assert converted(index, to=folder.parent / "out.safetensors") == expected()


def test_directory_with_one_model_file(folder):
    folder.mkdir()
    safetensors.numpy.save_file({"a": A}, folder / "model.safetensors")
    assert converted(folder, to=folder.parent / "out.safetensors") == {
        "a": ("F32", [2, 3], A.tobytes())}


def test_directory_with_several_indexes_is_ambiguous(folder):
    write(folder)
    write(folder, index="model.fp16.safetensors.index.json")
    done = run_tersor("inspect", folder, check=3)
    assert "index.json" in one_line_error(done)


def test_directory_without_a_checkpoint(folder):
    folder.mkdir()
    one_line_error(run_tersor("inspect", folder, check=3))
    (folder / "readme.txt").write_text("hello")
    one_line_error(run_tersor("verify", folder, check=3))


def test_shards_of_torch_files(folder):
    """The .bin twin: pytorch_model.bin.index.json names .pt files."""
    folder.mkdir()
    values = {"pytorch_model-00001-of-00002.bin": {"a": tensor(A), "b": tensor(A + 1)},
              "pytorch_model-00002-of-00002.bin": {"c": tensor(A + 2)}}
    for name, value in values.items():
        (folder / name).write_bytes(pt(value))
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 72}, "weight_map": {
        t: name for name, value in values.items() for t in value}}))
    for path in (index, folder):
        assert converted(path, to=folder.parent / "out.safetensors") == expected()


def test_diff_with_hf_shards_finds_nothing():
    report = json.loads(run_tersor("diff", "--json", HF, SOURCE, check=1).stdout)
    weights = {n for n in arrays_in(SOURCE) if not n.endswith(("exp_avg", "exp_avg_sq"))}
    assert {t["name"] for t in report["tensors"] if t["result"] == "equal"} == weights
    report = json.loads(run_tersor("diff", "--json", DATA / "tiny-gpt" / "checkpoint.pt",
                                   HF / "model.safetensors.index.json", check=0).stdout)
    assert report["exceeding"] == 0
    assert {t["name"] for t in report["tensors"] if t["result"] == "equal"} == weights


def test_shards_join_with_an_optimizer(tmp_path):
    """Weights from hf/, states from an optimizer's own file."""
    value = torchfile.load(DATA / "tiny-gpt" / "checkpoint.pt")["optimizer"]
    (tmp_path / "optimizer.pt").write_bytes(pt(value))
    out = tmp_path / "out.safetensors"
    # The order of an index is not that of the model: only names or --params can settle it.
    names = [n for n in torchfile.load(DATA / "tiny-gpt" / "checkpoint.pt")["model"].keys()
             if n != "seen"]
    order = [n for n in names if len(arrays_in(SOURCE)[n][1]) > 1] + [
        n for n in names if len(arrays_in(SOURCE)[n][1]) < 2]
    (tmp_path / "params").write_text("".join(f"{n}\n" for n in order))
    run_tersor("convert", HF, tmp_path / "optimizer.pt", "-o", out, "--params",
               tmp_path / "params", check=0)
    assert arrays_in(SOURCE).items() <= arrays_in(out).items()


# ---- Writing ----

def shards_of(index):
    weight_map = json.loads(index.read_text())["weight_map"]
    found = {}
    for name in sorted(set(weight_map.values())):
        arrays = arrays_in(index.parent / name)
        assert set(arrays) == {t for t, shard in weight_map.items() if shard == name}
        found.update(arrays)
    return found, sorted(set(weight_map.values()))


@pytest.mark.parametrize("size, limit", [("100K", 100 << 10), ("300000", 300_000),
                                         ("900K", 900 << 10)])
def test_max_shard_size_writes_shards_and_index(tmp_path, size, limit):
    out = tmp_path / "model.safetensors"
    run_tersor("convert", SOURCE, "-o", out, "--max-shard-size", size, check=0)
    index = tmp_path / "model.safetensors.index.json"
    found, shards = shards_of(index)
    n = len(shards)
    assert shards == [f"model-{i:05}-of-{n:05}.safetensors" for i in range(1, n + 1)] and n > 1
    assert {p.name for p in tmp_path.iterdir()} == {*shards, index.name}
    assert found == arrays_in(SOURCE)
    for name in shards:
        sizes = [len(content) for _, _, content in arrays_in(tmp_path / name).values()]
        assert sum(sizes) <= max(limit, max(sizes)) and sizes
        assert torchfile.metadata_in(tmp_path / name).get("format") == "pt"
    assert n <= 2 * (1_011_456 // limit + 1)
    report = json.loads(index.read_text())
    assert report["metadata"]["total_size"] == sum(len(c) for _, _, c in found.values())
    for path in (index, tmp_path):
        run_tersor("diff", path, SOURCE, check=0)
        run_tersor("verify", path, check=0)


def test_max_shard_size_text_is_as_transformers_writes_it(tmp_path):
    out = tmp_path / "model.safetensors"
    run_tersor("convert", SOURCE, "-o", out, "--max-shard-size", "100K", check=0)
    text = (tmp_path / "model.safetensors.index.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_max_shard_size_one_shard_has_the_plain_name(tmp_path):
    out = tmp_path / "model.safetensors"
    run_tersor("convert", SOURCE, "-o", out, "--max-shard-size", "1G", check=0)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    assert arrays_in(out) == arrays_in(SOURCE)


def test_max_shard_size_smaller_than_every_tensor(tmp_path):
    """No tensor is split: each gets a shard of its own."""
    write(tmp_path / "in")
    run_tersor("convert", tmp_path / "in", "-o", tmp_path / "x.safetensors", "--max-shard-size",
               "1", check=0)
    found, shards = shards_of(tmp_path / "x.safetensors.index.json")
    assert found == expected() and len(shards) == 3


def test_max_shard_size_empty_tensor_after_one_that_is_too_large(tmp_path):
    """It stays with it, except in packed files, where a full shard takes nothing more."""
    empty = np.zeros(0, np.float32)
    write(tmp_path / "in", {"model-00001-of-00001.safetensors": {"a": A, "b": empty, "c": A}})
    run_tersor("convert", tmp_path / "in", "-o", tmp_path / "x.safetensors", "--max-shard-size",
               "8", check=0)
    run_tersor("pack", tmp_path / "in", *RAW_CODECS, "-o", tmp_path / "p.safetensors",
               "--max-shard-size", "8", check=0)
    run_tersor("unpack", tmp_path / "p.safetensors.index.json", "-o", tmp_path / "u.safetensors",
               "--max-shard-size", "8", check=0)

    def numbers(name):
        weight_map = json.loads((tmp_path / f"{name}.safetensors.index.json").read_text())
        return [int(re.search("[0-9]+", weight_map["weight_map"][t])[0]) for t in "abc"]
    assert numbers("x") == numbers("u") == [1, 1, 2] and numbers("p") == [1, 2, 3]


@pytest.mark.parametrize("size", ["0", "-1", "x", "", "1T5", "1KB5", "1.5.5",
                                  "99999999999999999999",
                                  "1e3x"])
def test_max_shard_size_that_is_none(tmp_path, size):
    done = run_tersor("convert", SOURCE, "-o", tmp_path / "x.safetensors",
                      f"--max-shard-size={size}", check=2)
    assert "--max-shard-size" in one_line_error(done) and not list(tmp_path.iterdir())


def test_max_shard_size_is_for_safetensors(tmp_path):
    done = run_tersor("convert", SOURCE, "-o", tmp_path / "x.pt", "--max-shard-size", "100K")
    assert done.returncode == 2 and not list(tmp_path.iterdir())


def test_packed_shards(tmp_path):
    """A packed checkpoint in shards is one: verified, unpacked, compared."""
    whole, out = tmp_path / "whole.safetensors", tmp_path / "shards" / "packed.safetensors"
    out.parent.mkdir()
    run_tersor("pack", SOURCE, "-o", whole, check=0)
    run_tersor("pack", SOURCE, "-o", out, "--max-shard-size", "50K", check=0)
    index = out.parent / "packed.safetensors.index.json"
    found, shards = shards_of(index)
    assert found == arrays_in(whole) and len(shards) > 4
    for path in (index, out.parent):
        assert json.loads(run_tersor("inspect", "--json", path, check=0).stdout)["kind"] == "packed"
        run_tersor("verify", path, check=0)
        run_tersor("verify", path, "--against", SOURCE, check=0)
        run_tersor("diff", path, whole, check=0)
        run_tersor("unpack", path, "-o", tmp_path / "a.safetensors", "--force", check=0)
    run_tersor("unpack", whole, "-o", tmp_path / "b.safetensors", check=0)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_packed_shards_that_do_not_belong_together(tmp_path):
    """One shard of another packing, of the same shapes and names: found, not mixed in."""
    tensors = safetensors.numpy.load_file(SOURCE)
    safetensors.numpy.save_file({k: v * 2 for k, v in tensors.items()}, tmp_path / "other", {})
    for name, source in (("one", SOURCE), ("two", tmp_path / "other")):
        (tmp_path / name).mkdir()
        run_tersor("pack", source, "-o", tmp_path / name / "p.safetensors", "--max-shard-size",
                   "100K", check=0)
    shards = shards_of(tmp_path / "one" / "p.safetensors.index.json")[1]
    shutil.copy(tmp_path / "two" / shards[1], tmp_path / "one" / shards[1])
    for command in (["verify"], ["unpack", "-o", tmp_path / "x.safetensors"]):
        done = run_tersor(command[0], tmp_path / "one", *command[1:], check=3)
        one_line_error(done)
    assert not (tmp_path / "x.safetensors").exists()


def test_unpacked_shards(tmp_path):
    packed, out = tmp_path / "packed.safetensors", tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    run_tersor("pack", SOURCE, "-o", packed, *RAW_CODECS, check=0)
    run_tersor("unpack", packed, "-o", out, "--max-shard-size", "200K", check=0)
    found, _ = shards_of(out.parent / "model.safetensors.index.json")
    assert found == arrays_in(SOURCE)


def test_torch_to_shards_and_back(tmp_path):
    """What a .pt holds besides tensors survives the shards."""
    source, out = DATA / "tiny-gpt" / "checkpoint.pt", tmp_path / "s" / "m.safetensors"
    out.parent.mkdir()
    run_tersor("convert", source, "-o", out, "--max-shard-size", "100K", check=0)
    run_tersor("convert", out.parent, "-o", tmp_path / "back.pt", check=0)
    torchfile.same(torchfile.load(source), torchfile.load(tmp_path / "back.pt"))


def test_existing_shards_are_not_replaced_without_force(tmp_path):
    out = tmp_path / "m.safetensors"
    args = ["convert", SOURCE, "-o", out, "--max-shard-size", "300K"]
    run_tersor(*args, check=0)
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    one_line_error(run_tersor(*args, check=4))
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before
    (tmp_path / "m.safetensors.index.json").unlink()
    one_line_error(run_tersor(*args, check=4))
    run_tersor(*args, "--force", check=0)
    assert shards_of(tmp_path / "m.safetensors.index.json")[0] == arrays_in(SOURCE)


def test_same_input_same_shards(tmp_path):
    digests = set()
    for name, threads in (("a", 1), ("b", 5)):
        (tmp_path / name).mkdir()
        run_tersor("pack", SOURCE, "-o", tmp_path / name / "m.safetensors", "--max-shard-size",
                   "100K", "-j", threads, check=0)
        digests.add(tuple((p.name, hashlib.sha1(p.read_bytes()).digest())
                          for p in sorted((tmp_path / name).iterdir())))
    assert len(digests) == 1


# ---- Commit order: shards first, each synced, the index last ----

def calls_of(folder, *args):
    log = folder.parent / "log"
    if not os.path.exists(LIBRARY):
        pytest.fail(f"{LIBRARY} is missing: make check builds it")
    done = run_tersor(*args, env={
        "LD_PRELOAD": LIBRARY, "TERSOR_FAULT": "any:1000000000:EIO",
        "TERSOR_FAULT_PATH": str(folder), "TERSOR_FAULT_LOG": str(log)}, check=0)
    calls = [line.split("\t") for line in log.read_text().splitlines()]
    return done, [(c[1], os.path.basename(c[2]), os.path.basename(c[3])) for c in calls
                  if c[0] == ">"]


def test_shards_are_published_before_the_index(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    _, calls = calls_of(folder, "convert", SOURCE, "-o", folder / "m.safetensors",
                        "--max-shard-size", "300K")
    published = [(i, two) for i, (call, _, two) in enumerate(calls) if call in ("rename", "linkat")]
    names = [name for _, name in published]
    assert names[-1] == "m.safetensors.index.json", names
    assert names[:-1] == sorted(shards_of(folder / names[-1])[1])
    synced = [(i, one) for i, (call, one, _) in enumerate(calls) if call == "fsync"]
    for at, name in published:
        assert any(i < at and name in one for i, one in synced), name
    # Between the last shard and the index the directory is synced: the index names what is there.
    assert any(published[-2][0] < i < published[-1][0] and one == "out" for i, one in synced), calls
    assert any(i > published[-1][0] and one == "out" for i, one in synced)


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("action", ["EIO", "kill"])
def test_failure_between_shards_leaves_no_index(tmp_path, n, action):
    """However far it got: without an index there is no checkpoint to be taken for one."""
    folder = tmp_path / "out"
    folder.mkdir()
    if not os.path.exists(LIBRARY):
        pytest.fail(f"{LIBRARY} is missing: make check builds it")
    results = collections.Counter()
    for call in ("rename", "linkat"):
        done = run_tersor("convert", SOURCE, "-o", folder / "m.safetensors", "--max-shard-size",
                          "300K", env={"LD_PRELOAD": LIBRARY, "TERSOR_FAULT_PATH": str(folder),
                                       "TERSOR_FAULT": f"{call}:{n}:{action}"})
        index = folder / "m.safetensors.index.json"
        results[done.returncode] += 1
        if done.returncode == 0:
            assert shards_of(index)[0] == arrays_in(SOURCE)
        elif action == "EIO":
            assert done.returncode == 4 and not index.exists()
            assert not list(folder.glob(".*")), "temporary files are left"
        else:
            assert not index.exists()
        for path in folder.iterdir():
            path.unlink()
    assert len(results) == 2 or n > 4, results


@pytest.mark.parametrize("n", range(1, 6))
def test_old_index_is_still_consistent_when_replacing_fails(tmp_path, n):
    """--force over shards: until the index is renamed nothing of the old checkpoint is mixed in."""
    folder, old = tmp_path / "out", tmp_path / "old.safetensors"
    folder.mkdir()
    if not os.path.exists(LIBRARY):
        pytest.fail(f"{LIBRARY} is missing: make check builds it")
    tensors = safetensors.numpy.load_file(SOURCE)
    safetensors.numpy.save_file({k: v + 1 for k, v in tensors.items()}, old)
    args = ["-o", folder / "m.safetensors", "--max-shard-size", "300K"]
    run_tersor("convert", old, *args, check=0)
    for call in ("rename", "linkat"):
        done = run_tersor("convert", SOURCE, *args, "--force", env={
            "LD_PRELOAD": LIBRARY, "TERSOR_FAULT": f"{call}:{n}:EIO",
            "TERSOR_FAULT_PATH": str(folder)})
        index = folder / "m.safetensors.index.json"
        if done.returncode == 0:
            assert shards_of(index)[0] == arrays_in(SOURCE)
            continue
        assert done.returncode == 4
        if index.exists():              # then it must not show a mixture
            assert shards_of(index)[0] in (arrays_in(old), arrays_in(SOURCE))
        for path in folder.iterdir():
            path.unlink()
        run_tersor("convert", old, *args, check=0)
