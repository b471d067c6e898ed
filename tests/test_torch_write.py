"""The .pt files we write: torch loads them and goes on with them.

The system's torch 1.13.1 loads what we write.  Its weights_only loader knows no floats (BINFLOAT),
so files with hyperparameters are loaded there without it; `torchfile.load` then holds them against
the opcodes and globals that a current weights_only loader permits.
"""
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import zipfile

import numpy as np
import pytest
import safetensors.numpy

import torchfile
from conftest import DATA, ROOT, one_line_error, run_tersor
from torchfile import (Tensor, Storage, arrays_in, content_of, converted, ordered, pt, run_torch,
                       tensor, tensors_in, untyped)

tmp_path = torchfile.tmp_path

CHECKPOINT = DATA / "tiny-gpt" / "checkpoint.pt"
FILES = DATA / "torch"
RAW_CODECS = ("--weights", "f32", "--momentum", "f32", "--variance", "f32")
W = np.arange(128, dtype=np.float32).reshape(16, 8)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The real checkpoint after each way through tersor: {name: path}."""
    folder = tmp_path_factory.mktemp("made")
    original = folder / "original.pt"
    shutil.copy(CHECKPOINT, original)

    def run(*args):
        run_tersor(*args, check=0)

    run("pack", original, "-o", folder / "packed.safetensors")
    run("unpack", folder / "packed.safetensors", "-o", folder / "back.pt")
    run("unpack", folder / "packed.safetensors", "-o", folder / "back.safetensors")
    run("pack", original, "-o", folder / "exact.safetensors", *RAW_CODECS)
    run("unpack", folder / "exact.safetensors", "-o", folder / "exact.pt")
    run("convert", original, "-o", folder / "converted.pt")
    run("convert", original, "-o", folder / "plain.safetensors")
    run("convert", folder / "plain.safetensors", "-o", folder / "again.pt")
    run("convert", DATA / "tiny-gpt" / "checkpoint.safetensors", "-o", folder / "flat.pt")
    run("convert", FILES / "model.pt", "-o", folder / "model.pt")
    run("convert", DATA / "tiny-gpt" / "hf", "-o", folder / "hf.pt")
    run("convert", FILES / "dcp-2rank", "-o", folder / "dcp.pt")
    (folder / "types.source").write_bytes(pt(every_type()))
    run("convert", folder / "types.source", "-o", folder / "types.pt")
    return folder


def every_type():
    """A tensor of each type that torch 1.13.1 knows."""
    rng = np.random.default_rng(0)
    kinds = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8]
    value = {np.dtype(k).name: tensor((rng.standard_normal((3, 5)) * 100).astype(k))
             for k in kinds}
    value["bool"] = tensor(rng.integers(0, 2, 7).astype(bool))
    value["bfloat16"] = Tensor(Storage(rng.bytes(10), "BFloat16Storage"), (5,))
    value["scalar"], value["empty"] = tensor(np.float32(2)), tensor(np.zeros((0, 4), np.float32))
    value["c64"] = tensor(np.array([1 + 2j, 3 - 4j], np.complex64))
    return value


def all_made(made):
    return sorted(set(made.glob("*.pt")) - {made / "original.pt"})


# ---- Torch loads it ----

TORCH_SAYS = """
import hashlib, json, sys, torch
def digest(x):
    if isinstance(x, torch.Tensor):
        flat = x.detach().contiguous()
        flat = flat.view(torch.int16) if x.dtype == torch.bfloat16 else flat
        return [str(x.dtype), list(x.shape), hashlib.sha1(flat.numpy().tobytes()).hexdigest()]
    if isinstance(x, dict):
        return {str(k): digest(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [digest(v) for v in x]
    return repr(x)
def load(path):
    result = {}
    for mode, options in {"plain": {}, "weights_only": {"weights_only": True}}.items():
        try:
            value = torch.load(path, **options)
            result[mode] = digest(value)
            result["type"] = type(value).__name__
        except Exception as e:
            result[mode] = str(e)[:300]
    try:
        torch.load(path, map_location="meta")
        result["meta"] = True
    except Exception as e:
        result["meta"] = str(e)[:300]
    return result

class Node(torch.nn.Module):
    pass
def build(state):
    root = Node()
    for name, value in state.items():
        *path, leaf = name.split(".")
        at = root
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, Node())
            at = getattr(at, part)
        if value.is_floating_point():
            at.register_parameter(leaf, torch.nn.Parameter(torch.zeros_like(value)))
        else:
            at.register_buffer(leaf, torch.zeros_like(value))
    return root
def sha1(x):
    return hashlib.sha1(x.detach().contiguous().numpy().tobytes()).hexdigest()
def resume(path):
    saved = torch.load(path)
    model = build(saved["model"])
    problems = model.load_state_dict(saved["model"])
    params = dict(model.named_parameters())
    # The groups as the training script makes them: decay for matrices, none for the rest.
    groups = [[p for p in params.values() if p.dim() > 1],
              [p for p in params.values() if p.dim() < 2]]
    optimizer = torch.optim.AdamW([{"params": g} for g in groups], lr=1.0)
    optimizer.load_state_dict(saved["optimizer"])
    result = {"missing": list(problems.missing_keys), "groups": repr(
        [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]),
        "steps": sorted({float(s["step"]) for s in optimizer.state.values()}),
        "before": {n: sha1(p) for n, p in params.items()}}
    torch.manual_seed(0)
    for _ in range(2):
        for p in params.values():
            p.grad = torch.randn_like(p)
        optimizer.step()
    result["after"] = {n: sha1(p) for n, p in params.items()}
    result["states"] = {n: [sha1(optimizer.state[p][k]) for k in ("exp_avg", "exp_avg_sq")]
                        for n, p in params.items()}
    result["norm"] = {n: float(p.double().norm()) for n, p in params.items()}
    return result

n = int(sys.argv[1])
paths = sys.argv[2:]
print(json.dumps({"loaded": {p: load(p) for p in paths},
                  "resumed": {p: resume(p) for p in paths[:n]}}))
"""
RESUMED = ("original", "exact", "converted", "again", "back")


@pytest.fixture(scope="module")
def torch_says(made):
    """What torch makes of every file, and of going on from those with an optimizer."""
    first = [made / f"{name}.pt" for name in RESUMED]
    rest = sorted({*made.glob("*.pt"), made / "types.source"} - set(first))
    return run_torch(TORCH_SAYS, len(first), *first, *rest)


@pytest.fixture(scope="module")
def loaded(torch_says):
    return torch_says["loaded"]


def test_torch_loads_equal_values(made, loaded):
    original = loaded[str(made / "original.pt")]["plain"]
    assert set(original) == {"model", "optimizer", "step", "args"}
    for name in ("exact", "converted", "again"):
        assert loaded[str(made / f"{name}.pt")]["plain"] == original, name


def test_torch_loads_what_was_packed(made, loaded):
    back = loaded[str(made / "back.pt")]["plain"]
    original = loaded[str(made / "original.pt")]["plain"]
    for part in ("step", "args"):
        assert back[part] == original[part]
    assert back["optimizer"]["param_groups"] == original["optimizer"]["param_groups"]
    assert list(back["model"]) == list(original["model"])
    assert back["model"]["seen"] == original["model"]["seen"]
    assert back["model"]["wte.weight"][:2] == original["model"]["wte.weight"][:2]
    assert {k: v["step"] for k, v in back["optimizer"]["state"].items()} == {
        k: v["step"] for k, v in original["optimizer"]["state"].items()}


def test_torch_1_13_loads_tensors_with_weights_only(made, loaded):
    for name in ("model", "flat", "hf"):
        result = loaded[str(made / f"{name}.pt")]
        assert isinstance(result["weights_only"], dict), result["weights_only"]
        assert result["weights_only"] == result["plain"]
    assert loaded[str(made / "model.pt")]["type"] == "OrderedDict"


def test_plain_safetensors_become_a_flat_dict(made, loaded):
    tensors = safetensors.numpy.load_file(DATA / "tiny-gpt" / "checkpoint.safetensors")
    found = loaded[str(made / "flat.pt")]["plain"]
    assert set(found) == set(tensors)
    for name, values in tensors.items():
        assert found[name] == [f"torch.{values.dtype}", list(values.shape),
                               hashlib.sha1(values.tobytes()).hexdigest()]


def test_our_file_loads_onto_the_meta_device(made, loaded):
    """As far as torch 1.13.1 can: it says the same of a file of its own."""
    want = loaded[str(made / "original.pt")]["meta"]
    for path in all_made(made):
        assert loaded[str(path)]["meta"] == want, path


def test_current_weights_only_permits_all_of_it(made):
    """Opcodes, globals, and what SETITEMS, APPENDS, BUILD and REDUCE may be applied to."""
    paths = all_made(made)
    assert len(paths) == 9
    for path in paths:
        torchfile.load(path)
    with pytest.raises(torchfile.Forbidden):        # the check can fail
        torchfile.load(FILES / "protocol4.pt")


def test_every_storage_type_loads(made, loaded):
    mine, source = loaded[str(made / "types.pt")], loaded[str(made / "types.source")]
    assert isinstance(mine["weights_only"], dict), mine["weights_only"]
    assert mine == source
    torchfile.same(every_type(), torchfile.load(made / "types.pt"))


def test_what_came_from_a_dcp_directory_loads(made, loaded):
    found = loaded[str(made / "dcp.pt")]["plain"]
    assert set(found) == {"model", "optim", "step", "extra"} and len(found["model"]) == 7


def test_types_that_only_untyped_storages_hold_load(tmp_path):
    """torch 1.13.1 has none of these; what we write is what PyTorch 2.11 writes."""
    rng = np.random.default_rng(1)
    value = {name: untyped(name, rng.bytes(6 * size), (2, 3))
             for name, (_, size) in torchfile.UNTYPED.items() if name != "float8_e8m0fnu"}
    source, out = tmp_path / "in.pt", tmp_path / "out.pt"
    source.write_bytes(pt(value))
    run_tersor("convert", source, "-o", out, check=0)
    torchfile.same(value, torchfile.load(out))
    for _, t in tensors_in(torchfile.load(out)):
        assert t.storage.cls == "UntypedStorage" and t.storage.numel == len(t.storage.data)


@pytest.mark.parametrize("dtype, shape, nbytes", [("F4", [4], 2), ("F6_E2M3", [4], 3),
                                                  ("F6_E3M2", [4], 3)])
def test_types_that_torch_lacks_are_refused(tmp_path, dtype, shape, nbytes):
    path, out = tmp_path / "in.safetensors", tmp_path / "out.pt"
    path.write_bytes(torchfile.safetensors_bytes(
        {"the weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, nbytes]}},
        bytes(nbytes)))
    done = run_tersor("convert", path, "-o", out, check=3)
    line = one_line_error(done)
    assert "the weight" in line and dtype in line and not out.exists()


# ---- The archive ----

def test_unzip_and_zipfile_find_no_fault(made):
    if shutil.which("unzip") is None:
        pytest.fail("unzip is not installed")
    for path in all_made(made):
        done = subprocess.run(["unzip", "-tqq", path], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, (path, done.stdout, done.stderr)
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None


def test_every_record_is_aligned_and_stored(made):
    for path in all_made(made):
        data = path.read_bytes()
        offsets = torchfile.data_offsets(data)
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                assert info.compress_type == zipfile.ZIP_STORED
                if re.search(r"/data/\d+$", info.filename):
                    assert offsets[info.filename] % 64 == 0, info.filename


def test_our_archive_has_the_layout_of_torch(made):
    """One root, its pickle first, the version last or near it, dense keys, nothing that lies."""
    for path in all_made(made):
        root, records = torchfile.records_of(path.read_bytes())
        names = list(records)
        assert names[0] == "data.pkl" and root != "/"
        assert records["version"] == b"3\n" and records["byteorder"] == b"little"
        assert ".format_version" not in names and ".storage_alignment" not in names
        keys = [int(n[5:]) for n in names if n.startswith("data/")]
        assert keys == list(range(len(keys))) and keys


def test_every_record_is_used_and_as_long_as_its_tensor(made):
    for path in all_made(made):
        _, records = torchfile.records_of(path.read_bytes())
        used = {t.storage.record: t for _, t in tensors_in(torchfile.load(path))}
        assert {f"data/{k}" for k in used} == {n for n in records if n.startswith("data/")}
        for key, t in used.items():
            assert len(records[f"data/{key}"]) == len(content_of(t)), (path, key)
            assert t.offset == 0 and tuple(t.stride) == torchfile.contiguous(t.shape)


def test_our_own_files_are_checked_files(made):
    for path in all_made(made):
        run_tersor("verify", "--strict", path, check=0)


def test_same_input_gives_the_same_archive(made, tmp_path):
    """Whatever the directory, the name, the time, the threads and the locale."""
    for name, source, env in (("one", tmp_path, {"TZ": "Asia/Tokyo"}),
                              ("two", "/", {"LC_ALL": "C.UTF-8"})):
        out = tmp_path / f"{name}.pt"
        run_tersor("convert", made / "original.pt", "-o", out, check=0, cwd=source, env=env)
        assert out.read_bytes() == (made / "converted.pt").read_bytes()
    for threads in (1, 7):
        out = tmp_path / f"{threads}.pt"
        run_tersor("unpack", made / "packed.safetensors", "-o", out, "-j", threads, check=0)
        assert out.read_bytes() == (made / "back.pt").read_bytes()


def test_writing_it_again_changes_nothing(made, tmp_path):
    for name in ("converted", "again", "model", "flat"):
        out = tmp_path / f"{name}.pt"
        run_tersor("convert", made / f"{name}.pt", "-o", out, check=0)
        assert out.read_bytes() == (made / f"{name}.pt").read_bytes(), name


def test_archive_may_hold_more_members_than_a_classic_directory_counts(tmp_path):
    """70,000 records: the count takes a zip64 end of directory."""
    n = 70_000
    header = {f"t{i}": {"dtype": "I16", "shape": [1], "data_offsets": [2 * i, 2 * i + 2]}
              for i in range(n)}
    source, out = tmp_path / "in.safetensors", tmp_path / "out.pt"
    source.write_bytes(torchfile.safetensors_bytes(
        header, np.arange(n, dtype=np.uint16).tobytes()))
    run_tersor("convert", source, "-o", out, check=0)
    assert b"PK\6\7" in out.read_bytes()[-42:]
    with zipfile.ZipFile(out) as archive:
        names = archive.namelist()
        assert len(names) == n + 3
        name = next(name for name in names if name.endswith("/data/69999"))
        assert archive.read(name) == struct.pack("<H", 69999 % 65536)
    run_tersor("verify", "-qq", out, check=0)


def test_zip64_is_written_only_where_it_is_needed(made):
    for path in all_made(made):
        assert b"PK\6\6" not in path.read_bytes()[-200:], path


# ---- Training goes on ----

@pytest.fixture(scope="module")
def resumed(made, torch_says):
    """Two optimizer steps in torch from each file with model and optimizer."""
    return {name: torch_says["resumed"][str(made / f"{name}.pt")] for name in RESUMED}


def test_done_load_state_dict_succeeds_and_training_goes_on_to_the_bit(resumed):
    assert len(resumed["original"]["after"]) == 29 and resumed["original"]["steps"] == [400]
    assert resumed["original"]["after"] != resumed["original"]["before"]
    for name in ("exact", "converted", "again"):
        assert resumed[name] == resumed["original"], name


def test_done_load_state_dict_succeeds_with_what_was_packed(resumed):
    back, original = resumed["back"], resumed["original"]
    assert back["missing"] == [] and back["groups"] == original["groups"]
    assert back["steps"] == original["steps"]
    for name, norm in original["norm"].items():
        assert abs(back["norm"][name] - norm) <= 1e-3 * norm, name


def test_done_param_groups_and_tree_are_equal(made):
    original = torchfile.load(made / "original.pt")
    for name in ("back", "exact", "converted", "again"):
        torchfile.same(original, torchfile.load(made / f"{name}.pt"), bits=name != "back")


def test_done_packed_tensors_are_within_the_codec_s_error(made):
    original = dict(tensors_in(torchfile.load(made / "original.pt")))
    back = dict(tensors_in(torchfile.load(made / "back.pt")))
    assert list(back) == list(original)
    for path, t in original.items():
        if t.st_dtype != "F32" or t.shape == ():
            assert content_of(back[path]) == content_of(t), path
            continue
        x, y = (np.frombuffer(content_of(v), np.float32).astype(np.float64)
                for v in (t, back[path]))
        if path[0] == "model":          # half a step of 1/127 of half a unit of BF16
            assert np.all(abs(x - y) <= 2.0**-8 / 126 / 2 * abs(x)), path
        else:
            assert np.sum((x - y)**2) <= 1e-3 * np.sum(x**2), path


def test_done_unpack_to_either_container_gives_the_same_tensors(made):
    """back.pt and back.safetensors hold the same bits under the same names."""
    found = converted(made / "back.pt", to=made / "from-back.safetensors")
    assert {k: v for k, v in arrays_in(made / "back.safetensors").items()
            if not k.startswith("tersor::")} == {
        k: v for k, v in found.items() if not k.startswith("tersor::")}


def test_done_model_and_optimizer_in_two_files(tmp_path):
    """model.pt and optimizer.pt join; the joined file has the states under their weights' names."""
    packed, out = tmp_path / "packed.safetensors", tmp_path / "out.safetensors"
    run_tersor("pack", FILES / "model.pt", FILES / "optimizer-decay-groups.pt", "-o", packed,
               *RAW_CODECS, check=0)
    run_tersor("unpack", packed, "-o", out, check=0)
    expected = arrays_in(FILES / "expected-adamw.safetensors")
    assert expected.items() <= arrays_in(out).items()
    run_tersor("verify", packed, "--against", FILES / "model.pt", "--against",
               FILES / "optimizer-decay-groups.pt", check=0)


# ---- Which kind is written ----

@pytest.mark.parametrize("suffix, kind", [
    (".pt", "pt"), (".pth", "pt"), (".bin", "pt"), (".ckpt", "pt"), (".safetensors", "safetensors"),
    (".npz", "npz")])
def test_kind_follows_the_extension(tmp_path, suffix, kind):
    source, out = tmp_path / "in.pt", tmp_path / f"out{suffix}"
    source.write_bytes(pt({"w": tensor(W)}))
    run_tersor("convert", source, "-o", out, check=0)
    assert json.loads(run_tersor("inspect", "--json", out, check=0).stdout)["kind"] == kind


@pytest.mark.parametrize("name", ["out", "out.xyz", "out.PT.gz", "safetensors"])
def test_unknown_extension_is_a_usage_error_without_to(tmp_path, name):
    source, out = tmp_path / "in.pt", tmp_path / name
    source.write_bytes(pt({"w": tensor(W)}))
    done = run_tersor("convert", source, "-o", out, check=2)
    assert "--to" in one_line_error(done) and not out.exists()
    run_tersor("convert", source, "-o", out, "--to", "pt", check=0)
    torchfile.same({"w": tensor(W)}, torchfile.load(out))
    done = run_tersor("convert", source, "-o", tmp_path / "x.pt", "--to", "zip", check=2)
    assert "safetensors" in one_line_error(done)


def test_to_wins_over_the_extension(tmp_path):
    source, out = tmp_path / "in.pt", tmp_path / "out.safetensors"
    source.write_bytes(pt({"w": tensor(W)}))
    run_tersor("convert", source, "-o", out, "--to", "pt", check=0)
    assert out.read_bytes()[:4] == b"PK\3\4"


def test_unpack_falls_back_to_the_kind_of_the_source(made, tmp_path):
    run_tersor("unpack", made / "packed.safetensors", "-o", tmp_path / "out", check=0)
    assert (tmp_path / "out").read_bytes() == (made / "back.pt").read_bytes()
    run_tersor("unpack", made / "packed.safetensors", "-o", tmp_path / "out.pt", "--to",
               "safetensors", check=0)
    assert arrays_in(tmp_path / "out.pt") == arrays_in(made / "back.safetensors")


def test_convert_changes_no_bit(made):
    """Names as in checkpoint.safetensors, bytes as in the .pt."""
    found = arrays_in(made / "plain.safetensors")
    expected = arrays_in(DATA / "tiny-gpt" / "checkpoint.safetensors")
    assert expected.items() <= found.items()
    rest = {k: v for k, v in found.items() if k not in expected and not k.startswith("tersor::")}
    assert rest.pop("seen")[0] == "I64"
    assert all(k.endswith(".step") and v[0] == "F32" and v[1] == [] for k, v in rest.items())
    assert len(rest) == 29


# ---- Outputs ----

def test_output_rules_hold_for_convert(made, tmp_path):
    source = tmp_path / "in.pt"
    shutil.copy(made / "converted.pt", source)
    before = source.read_bytes()
    for target in (source, tmp_path / "link.pt", tmp_path / "hard.pt"):
        if target.name == "link.pt":
            target.symlink_to(source)
        if target.name == "hard.pt":
            target.hardlink_to(source)
        for force in ([], ["--force"]):
            one_line_error(run_tersor("convert", source, "-o", target, *force, check=4))
            assert source.read_bytes() == before
    target = tmp_path / "there.pt"
    target.write_bytes(b"old")
    run_tersor("convert", source, "-o", target, check=4)
    assert target.read_bytes() == b"old"
    run_tersor("convert", source, "-o", target, "--force", check=0)
    assert target.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_output_is_not_touched_when_an_input_is_damaged(made, tmp_path):
    good = (made / "converted.pt").read_bytes()
    source, target = tmp_path / "bad.pt", tmp_path / "there.pt"
    at = torchfile.data_offsets(good)["archive/data/3" if b"archive/data/3" in good else
                                      next(iter(torchfile.data_offsets(good)))]
    source.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
    target.write_bytes(b"old")
    run_tersor("convert", source, "-o", target, "--force", check=3)
    assert target.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.pt", "there.pt"]


def test_dry_run_writes_nothing(made, tmp_path):
    run_tersor("convert", made / "converted.pt", "-o", tmp_path / "x.pt", "--dry-run", check=0)
    assert not list(tmp_path.iterdir())


def test_json_report_of_convert(made, tmp_path):
    out = tmp_path / "x.safetensors"
    done = run_tersor("convert", made / "converted.pt", "-o", out, "--json", check=0)
    report = json.loads(done.stdout)
    assert report["schema"] == "tersor.convert.v1" and report["output"] == str(out)


def test_faults_while_writing_leave_nothing(made, tmp_path):
    """The nth write, sync or rename fails: no file, no temporary, status 4."""
    library = os.environ.get("TERSOR_FAULTS", str(ROOT / "build" / "tests" / "libfaults.so"))
    if not os.path.exists(library):
        pytest.fail(f"{library} is missing: make check builds it")
    for fault in ("any:1:EIO", "open:1:EMFILE", "fallocate:1:ENOSPC", "pwrite:1:ENOSPC",
                  "pwrite:5:EIO", "pwrite:50:EIO", "fsync:1:EIO", "rename:1:EACCES",
                  "linkat:1:EIO", "close:1:EIO"):
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        done = run_tersor("convert", made / "converted.pt", "-o", out / "x.pt", env={
            "LD_PRELOAD": library, "TERSOR_FAULT": fault, "TERSOR_FAULT_PATH": str(out)})
        if done.returncode == 0:        # no such call was made
            (out / "x.pt").unlink()
            continue
        assert done.returncode == 4 and not list(out.iterdir()), (fault, done.stderr)


def test_state_dict_order_and_ordered_dicts_survive(tmp_path):
    """Order of keys is what positional optimizer ids hang on."""
    value = ordered({f"p{i * 7 % 13}": tensor(np.full(2, i, np.float32)) for i in range(13)}, x=1)
    source = tmp_path / "in.pt"
    source.write_bytes(pt(value))
    for route in ((("convert", "pt"),), (("convert", "safetensors"), ("convert", "pt")),
                  (("pack", "safetensors"), ("unpack", "pt"))):
        at = source
        for i, (command, kind) in enumerate(route):
            out = tmp_path / f"{i}.{kind}"
            run_tersor(command, at, "-o", out, "--force",
                       *(RAW_CODECS if command == "pack" else ()), check=0)
            at = out
        torchfile.same(value, torchfile.load(at))


def test_lossy_generations_travel_in_a_torch_file(tmp_path):
    """Packed, unpacked to .pt and packed again: the second packing knows of the first."""
    packed, back = tmp_path / "p.safetensors", tmp_path / "back.pt"
    run_tersor("pack", DATA / "tiny-gpt" / "checkpoint.pt", "-o", packed, check=0)
    run_tersor("unpack", packed, "-o", back, check=0)
    done = run_tersor("inspect", "--json", back, check=0)
    assert json.loads(done.stdout)["generation"] == 1 and done.stderr == ""
    again = run_tersor("pack", back, "-o", tmp_path / "again.safetensors", "--json", check=0)
    assert json.loads(again.stdout)["generation"] == 2 and "lossy generation 2" in again.stderr
