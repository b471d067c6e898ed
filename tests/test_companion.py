"""Packed checkpoints in two files: a plain model and, beside it, the rest (docs/internals/format.md, 5.8)."""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import xxhash

import reader
import torchfile
from conftest import BINARY, DATA, ROOT, one_line_error, run_tersor, write_source
from test_reader import CHECK, ZEROS, compare, contents, sealed, split

TRAINER = DATA / "frameworks" / "trainer" / "checkpoint-30" / "model.safetensors"
TINY = DATA / "tiny-gpt"
LIBRARY = os.environ.get("TERSOR_FAULTS", str(ROOT / "build" / "tests" / "libfaults.so"))
NAME = "model.safetensors"


def pack(source, folder, *options, check=0, **kwargs):
    """The packed file and its weights file."""
    folder.mkdir(exist_ok=True)
    packed = folder / f"{NAME}.tersor"
    sources = source if isinstance(source, list) else [source]
    run_tersor("pack", *sources, "-o", packed, "--model", folder / NAME, "-q", *options,
               check=check, **kwargs)
    return packed, folder / NAME


def mixed(tmp_path, seed=1, **metadata):
    """Tensors of every sort that a model can have, and states."""
    rng = np.random.default_rng(seed)
    w = rng.normal(0, 0.02, (5, 33)).astype("f4")
    return write_source(tmp_path / f"mixed-{seed}.safetensors", {
        "w": w,
        "w.exp_avg": w * np.float32(1e-3),
        "w.exp_avg_sq": np.square(w),
        "bad": np.array([np.nan, seed], "f4"),
        "bad.exp_avg": np.array([np.inf, seed], "f4"),
        "empty": np.zeros((0, 3), "f4"),
        "scalar": np.array(seed, "f4"),
        "ids": ("I64", (2,), np.array([seed, 2], "<i8").tobytes()),
        "half": ("BF16", (3,), np.array([1, seed, 3], "<u2").tobytes()),
    }, metadata or None)


# ---- The file of weights -----------------------------------------------------------------------

def test_weights_file_is_the_model_and_nothing_else(tmp_path):
    packed, plain = pack(TRAINER, tmp_path / "out")
    source = safetensors.numpy.load_file(TRAINER)
    metadata, found = contents(plain)
    assert metadata == contents(TRAINER)[0] == {"format": "pt"}
    assert found.keys() == source.keys()
    for name, (dtype, shape, content) in found.items():
        expected = source[name].astype(ml_dtypes.bfloat16)
        assert (dtype, shape, content) == ("BF16", expected.shape, expected.tobytes())
    assert {name.split("::")[1] for name in contents(packed)[1]} == {"error_bits"}


@pytest.mark.parametrize("codec", ["bf16+ulp8", "fp16+ulp16", "bf16+sr3", "bf16+exact16", "bf16",
                                   "f32", "fp16+fp16"])
def test_pair_is_the_checkpoint_that_one_file_is(tmp_path, tersor, codec):
    source = mixed(tmp_path, format="np", step="400")
    packed, plain = pack(source, tmp_path / "out", "--weights", codec)
    assert compare(packed, tersor).metadata == {"format": "np", "step": "400"}
    one = tmp_path / "one"
    tersor("pack", source, "-o", one, "-q", "--weights", codec, check=0)
    whole = {name: array for path in (packed, plain) for name, array in contents(path)[1].items()}
    assert whole == contents(one)[1]
    assert contents(plain)[0] == {"format": "np", "step": "400"}
    assert contents(plain)[1].keys() == {"w", "bad", "empty", "scalar", "ids", "half"}
    for path in packed, one:
        tersor("unpack", path, "-o", path.with_suffix(".back"), check=0)
    assert packed.with_suffix(".back").read_bytes() == one.with_suffix(".back").read_bytes()


@pytest.mark.parametrize("tensors", [
    {}, {"w": np.zeros((2, 0), "f4")}, {"w": np.array(3, "f4")},
    {"ids": ("I64", (1,), bytes(8)), "mask": ("BOOL", (1,), b"\1")},
    {"a.exp_avg": np.ones(3, "f4"), "v.exp_avg_sq": np.ones(3, "f4")},
], ids=["nothing", "empty", "scalar", "raw", "states"])
def test_pair_of_unusual_models(tmp_path, tersor, tensors):
    source = write_source(tmp_path / "source", tensors)
    packed, plain = pack(source, tmp_path / "out")
    assert compare(packed, tersor).tensors.keys() == tensors.keys()
    assert contents(plain)[0] == {}
    assert safetensors.numpy.load_file(plain).keys() == {
        name for name in tensors if "exp_avg" not in name}


def test_pair_of_a_tree(tmp_path, tersor):
    """The tree, in either form, is no part of the model."""
    packed, plain = pack(TINY / "checkpoint.pt", tmp_path / "out")
    assert compare(packed, tersor).tree is not None
    assert contents(plain)[0] == {"format": "pt"}
    expected = contents(TINY / "checkpoint.safetensors")[1]
    assert contents(plain)[1].keys() - {"tersor::tree"} >= {
        name for name in expected if "exp_avg" not in name}
    assert "tersor::tree" not in contents(plain)[1]
    back = tmp_path / "back.pt"
    tersor("unpack", packed, "-o", back, check=0)
    tersor("verify", packed, "--against", TINY / "checkpoint.pt", check=0)


def test_generation_counts_but_is_not_in_the_model(tmp_path, tersor):
    packed, _ = pack(mixed(tmp_path), tmp_path / "1")
    back = tmp_path / "back.safetensors"
    tersor("unpack", packed, "-o", back, check=0)
    assert contents(back)[0] == {"tersor_generation": "1"}
    again, plain = pack(back, tmp_path / "2")
    assert contents(plain)[0] == {} and reader.read(again).generation in (1, 2)


# ---- Commands ----------------------------------------------------------------------------------

def test_commands_take_the_pair(tmp_path, tersor):
    packed, plain = pack(TRAINER, tmp_path / "out")
    assert f"weights in {NAME}" in tersor("inspect", packed, check=0).stdout
    report = json.loads(tersor("inspect", packed, "--json", check=0).stdout)
    assert (report["kind"], report["weights"]) == ("packed", NAME)
    assert "42 planes have the hash" in tersor("verify", packed, check=0).stdout
    tersor("verify", packed, "--against", TRAINER, check=0)
    tersor("diff", packed, TRAINER, "--max-error", "nmse=1e-6", check=0)
    one = tmp_path / "one"
    tersor("pack", TRAINER, "-o", one, "-q", check=0)
    tersor("diff", packed, one, check=0)
    assert "is not a packed file" in one_line_error(tersor("unpack", plain, "-o", tmp_path / "x"))
    alone = json.loads(tersor("inspect", plain, "--json", check=0).stdout)
    assert alone["kind"] == "safetensors" and "weights" not in alone


def test_pair_is_found_from_any_directory(tmp_path, tersor):
    packed, plain = pack(TRAINER, tmp_path / "out")
    tersor("verify", f"{NAME}.tersor", cwd=packed.parent, check=0)
    tersor("verify", f"out/{NAME}.tersor", cwd=tmp_path, check=0)
    moved = tmp_path / "moved"
    packed.parent.rename(moved)
    tersor("verify", moved / packed.name, check=0)


def test_packed_file_under_a_name_of_another_kind_is_warned_of(tmp_path, tersor):
    for name in "x.pt", "x.pth", "x.bin", "x.ckpt", "x.npz", "x.npy":
        done = tersor("pack", TRAINER, "-o", tmp_path / name, check=0)
        assert f"warning: {tmp_path / name}: a packed file is a safetensors file" in done.stderr
    for name in "x.safetensors", "x.tersor", "x", "pt":
        assert tersor("pack", TRAINER, "-o", tmp_path / name, check=0).stderr == ""


# ---- What is refused before anything is written ------------------------------------------------

def listing(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("model, facts", [
    ("../m.safetensors", ["another name in the directory"]),
    ("sub/m.safetensors", ["another name in the directory"]),
    ("out", ["another", "file of this command"]),
    ("old", ["old: output exists"]),
    ("", ["another name"]),
])
def test_other_places_are_refused(tmp_path, model, facts):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "old").write_text("precious")
    before = listing(folder / "sub"), (folder / "old").read_bytes()
    done = run_tersor("pack", TRAINER, "-o", folder / "out", "--model", f"{folder}/{model}", "-q")
    assert done.returncode in (2, 4)
    assert all(fact in one_line_error(done) for fact in facts), done.stderr
    assert (listing(folder / "sub"), (folder / "old").read_bytes()) == before
    assert sorted(p.name for p in folder.iterdir()) == ["old", "sub"]


def test_source_is_not_overwritten(tmp_path):
    source = tmp_path / NAME
    source.write_bytes(TRAINER.read_bytes())
    done = run_tersor("pack", source, "-o", tmp_path / "out", "--model", source, "-f")
    assert "same file as input" in one_line_error(done) and done.returncode == 4
    assert listing(tmp_path) == {NAME: TRAINER.read_bytes()}


def test_pairs_are_not_replaced(tmp_path):
    packed, plain = pack(TRAINER, tmp_path / "out")
    for gone in None, plain, packed:
        if gone:
            gone.rename(tmp_path / "kept")
        before = listing(packed.parent)
        done = run_tersor("pack", TRAINER, "-o", packed, "--model", plain, "-f", "-qq")
        assert "two files cannot be replaced at once" in one_line_error(done)
        assert done.returncode == 4 and listing(packed.parent) == before
        if gone:
            (tmp_path / "kept").rename(gone)


def test_pair_in_shards_is_refused(tmp_path):
    done = run_tersor("pack", TRAINER, "-o", tmp_path / "p.safetensors", "--model",
                      tmp_path / NAME, "--max-shard-size", "1K")
    assert "cannot be in shards" in one_line_error(done) and done.returncode == 2
    assert not list(tmp_path.iterdir())


def test_dry_run_writes_neither(tmp_path):
    folder = tmp_path / "out"
    pack(TRAINER, folder, "--dry-run")
    assert not list(folder.iterdir())
    pack(TRAINER, folder, "--max-error", "abs=0", check=1)
    assert not list(folder.iterdir())


# ---- Files that do not belong together ---------------------------------------------------------

def rewritten(path, change):
    """The weights file with other contents: change(header, data) -> data."""
    header, data = split(path.read_bytes())
    header = json.loads(header)
    data = change(header, data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def resealed(path, change):
    """The packed file with another text: change(text)."""
    header, data = split(path.read_bytes())
    header = json.loads(header)
    metadata = header["__metadata__"]
    text = json.loads(metadata["tersor"])
    text = change(text) or text
    metadata |= {"tersor": json.dumps(text), "tersor_check": ZEROS}
    path.write_bytes(sealed(json.dumps(header, separators=(",", ":")).encode(), data))


def add_array(name):
    def change(header, data):
        header[name] = {"dtype": "U8", "shape": [1], "data_offsets": [len(data), len(data) + 1]}
        return data + b"x"
    return change


def add_entry(**entries):
    def change(header, data):
        header["__metadata__"] = header.get("__metadata__", {}) | entries
        return data
    return change


def other_dtype(header, data):
    header["w"]["dtype"] = "F16"
    return data


def reshaped(header, data):
    header["w"]["shape"].reverse()
    return data


def named(name):
    """The text with another member `weights`, in its place."""
    def change(text):
        return {key: name if key == "weights" else value for key, value in text.items()}
    return change


def with_shard(text):
    return {**{k: text[k] for k in ("version", "tool", "source", "generation")},
            "shard": {"number": 1, "count": 2, "set": "0" * 16},
            **{k: text[k] for k in ("weights", "tensors")}}


def other_checkpoint(packed, plain):
    other = pack(mixed(plain.parent.parent, seed=2), plain.parent.parent / "other")[1]
    plain.write_bytes(other.read_bytes())


def link(packed, plain):
    real = plain.with_name("real")
    plain.rename(real)
    plain.symlink_to(real)


def directory(packed, plain):
    plain.unlink()
    plain.mkdir()


DAMAGE = {
    "missing": (lambda packed, plain: plain.unlink(), 4,
                ["model.safetensors.tersor: its weights are in model.safetensors", "missing"]),
    "another checkpoint's": (other_checkpoint, 3, ["/model.safetensors: tensor", "hash"]),
    "packed": (lambda packed, plain: plain.write_bytes(packed.read_bytes()), 3,
               ["/model.safetensors: is a packed file"]),
    "entry tersor": (lambda packed, plain: rewritten(plain, add_entry(tersor="{}")), 3,
                     ["/model.safetensors: is a packed file"]),
    "entry tersor_check": (lambda packed, plain: rewritten(plain, add_entry(tersor_check=ZEROS)),
                           3, ["/model.safetensors: is a packed file"]),
    "extra array": (lambda packed, plain: rewritten(plain, add_array("x")), 3,
                    ["/model.safetensors: tensor x", "not a plane"]),
    "array in both": (lambda packed, plain: rewritten(plain, add_array("w::error_bits")), 3,
                      ["tensor w"]),
    "other dtype": (lambda packed, plain: rewritten(plain, other_dtype), 3,
                    ["/model.safetensors: tensor w", "dtype or shape"]),
    "other shape": (lambda packed, plain: rewritten(plain, reshaped), 3,
                    ["/model.safetensors: tensor w", "dtype or shape"]),
    "cut": (lambda packed, plain: plain.write_bytes(plain.read_bytes()[:-1]), 3,
            ["/model.safetensors"]),
    "no safetensors": (lambda packed, plain: plain.write_text("{}"), 3, ["/model.safetensors"]),
    "link": (link, 4, ["/model.safetensors", "symbolic link"]),
    "directory": (directory, 4, ["/model.safetensors"]),
    "itself": (lambda packed, plain: resealed(packed, named(packed.name)), 3,
               ["is a packed file"]),
    "shard and weights": (lambda packed, plain: resealed(packed, with_shard), 3,
                          ["shard and weights"]),
    **{f"named {name!r}": ((lambda name: lambda packed, plain: resealed(packed, named(name)))(name),
                           3, ["weights is not the name of a file"])
       for name in ["", ".", "..", "../model.safetensors", "/etc/passwd", "a/b", "a\\b", "x" * 256,
                    7, None, [], {}]},
}


@pytest.mark.parametrize("how", DAMAGE)
def test_files_that_do_not_fit_are_refused(tmp_path, how):
    packed, plain = pack(mixed(tmp_path), tmp_path / "out")
    run_tersor("verify", packed, "--allow-nonfinite", check=0)
    reader.read(packed)
    damage, status, facts = DAMAGE[how]
    damage(packed, plain)
    out = tmp_path / "back"
    for args in (["verify", packed], ["unpack", packed, "-o", out]):
        done = run_tersor(*args)
        assert done.returncode == status, done.stderr
        assert all(fact in one_line_error(done) for fact in facts), done.stderr
        assert not out.exists()
    with pytest.raises(reader.ReaderError):
        reader.read(packed)


def test_links_are_followed_if_asked(tmp_path):
    packed, plain = pack(TRAINER, tmp_path / "out")
    link(packed, plain)
    run_tersor("verify", packed, "--follow-symlinks", check=0)


def test_metadata_of_the_weights_file_means_nothing(tmp_path, tersor):
    packed, plain = pack(mixed(tmp_path, step="400"), tmp_path / "out")
    rewritten(plain, add_entry(step="1", tersor_generation="9", other="x"))
    assert compare(packed, tersor).metadata == {"step": "400"}


# ---- Failures while writing --------------------------------------------------------------------

@pytest.mark.parametrize("action", ["EIO", "kill"])
@pytest.mark.parametrize("call", ["rename", "fsync"])
@pytest.mark.parametrize("n", range(1, 4))
def test_failure_leaves_no_packed_file_without_its_weights(tmp_path, call, n, action):
    if not os.path.exists(LIBRARY):
        pytest.fail(f"{LIBRARY} is missing: make check builds it")
    folder = tmp_path / "out"
    folder.mkdir()
    packed, plain = folder / f"{NAME}.tersor", folder / NAME
    done = run_tersor("pack", TRAINER, "-o", packed, "--model", plain, "-q",
                      env={"LD_PRELOAD": LIBRARY, "TERSOR_FAULT_PATH": str(folder),
                           "TERSOR_FAULT": f"{call}:{n}:{action}"})
    assert done.returncode == {"EIO": 4, "kill": -9}[action] or (call, n) == ("rename", 3)
    if packed.exists():
        run_tersor("verify", packed, "--against", TRAINER, check=0)
    if action == "EIO" and not packed.exists():
        assert done.returncode == 4 and not list(folder.iterdir())
    elif done.returncode == 0:
        assert packed.exists() and plain.exists()


# ---- The model alone: unpack --only weights -----------------------------------------------------

TYPES = {"bf16": ("BF16", ml_dtypes.bfloat16), "f16": ("F16", np.float16), "f32": ("F32", np.float32)}


def only(packed, name, *options, check=0):
    out = packed.parent / name
    done = run_tersor("unpack", packed, "--only", "weights", "-o", out, "-f", *options, check=check)
    return out, done


def near_ties():
    """Values whose narrow neighbours are hard to tell apart once they were corrected in 8 bits."""
    bits = 0x3f800000 + np.arange(-40, 40)[:, None] * 0x8000 + np.arange(-300, 300, 7)
    return bits.astype("u4").view("f4")


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("codec", ["bf16+ulp8", "bf16+ulp16", "fp16+ulp8", "bf16+bf16", "fp16+fp16",
                                   "bf16", "fp16", "f32", "bf16+exact16", "bf16+trunc4",
                                   "bf16+sr4", "fp16+sr13", "e5m2+trunc8", "e4m3+trunc4"])
def test_model_is_rounded_to_nearest_once(tmp_path, codec, to):
    """The narrow plane, if its codec rounded to nearest, and else the rounded decoded value."""
    source = write_source(tmp_path / "source", {"w": near_ties(), "v": near_ties()[::-1] * 3})
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, "-q", "--weights", codec, check=0)
    out, _ = only(packed, "model.safetensors", "--as", to)
    decoded = reader.read(packed).tensors
    dtype, numpy_type = TYPES[to]
    nearest = not any(part in codec for part in ("trunc", "sr", "exact"))
    for name, (found, _, content) in contents(out)[1].items():
        assert found == dtype
        values = decoded[name].array
        if nearest and (codec[:4], to) in (("bf16", "bf16"), ("fp16", "f16")):
            values = np.frombuffer(contents(source)[1][name][2], "f4")
        assert content == values.astype(numpy_type).tobytes(), (name, codec)


def test_model_of_a_pair_is_its_weights_file(tmp_path):
    packed, plain = pack(TRAINER, tmp_path / "out")
    one = tmp_path / "one"
    run_tersor("pack", TRAINER, "-o", one, "-q", check=0)
    found = only(packed, "m.safetensors", "--as", "bf16")[0]
    assert found.read_bytes() == only(one, "m.safetensors", "--as", "bf16")[0].read_bytes()
    assert contents(found)[1] == {name: contents(plain)[1][name] for name in contents(found)[1]}
    assert contents(found)[1].keys() == contents(plain)[1].keys()
    assert contents(found)[0] == {"format": "pt", "tersor_generation": "1"}
    whole = tmp_path / "whole.safetensors"
    run_tersor("unpack", packed, "-o", whole, check=0)
    assert only(packed, "n.safetensors")[0].read_bytes() == whole.read_bytes()


def test_model_of_a_flat_file_is_everything_but_states(tmp_path):
    """Masters, counters and states are an optimizer's; integers and what was kept raw are not."""
    w = np.ones((3, 40), "f4")
    source = write_source(tmp_path / "source", {
        "w": w, "w.exp_avg": w, "w.exp_avg_sq": w, "w.step": np.array(3, "f4"), "w.fp32_param": w,
        "attn.v": w, "kept": w, "kept.exp_avg": w, "optimizer.state.x.sum": w, "nan": w * np.nan,
        "ids": ("I64", (1,), bytes(8)), "f8": ("F8_E4M3", (4,), b"abcd"),
    })
    for folder, options in ("out", ["--keep", "^kept"]), ("all", []):
        packed, plain = pack(source, tmp_path / folder, *options)
        out, _ = only(packed, "m.safetensors", "--as", "f16")
        model = {"w", "attn.v", "kept", "nan", "ids", "f8"}
        assert contents(out)[1].keys() == contents(plain)[1].keys() == model
        types = {name: dtype for name, (dtype, _, _) in contents(out)[1].items()}
        assert types == {name: "F16" for name in model} | {"ids": "I64", "f8": "F8_E4M3"}
        assert contents(out)[1]["f8"] == ("F8_E4M3", (4,), b"abcd")
        assert np.isnan(np.frombuffer(contents(out)[1]["nan"][2], "f2")).all()


def test_model_of_a_tree_is_its_state_dict(tmp_path):
    packed = tmp_path / "packed"
    run_tersor("pack", TINY / "checkpoint.pt", "-o", packed, "-q", check=0)
    source = torchfile.load(TINY / "checkpoint.pt")["model"]
    whole = tmp_path / "whole.pt"
    run_tersor("unpack", packed, "-o", whole, check=0)
    out, _ = only(packed, "m.pt")
    torchfile.same(torchfile.load(out), torchfile.load(whole)["model"])
    assert [k for k, _ in torchfile.load(out).items()] == [k for k, _ in source.items()]
    flat, _ = only(packed, "m.safetensors", "--as", "bf16")
    assert contents(flat)[1].keys() == {key for key, _ in source.items()}
    assert contents(flat)[0] == {"format": "pt", "tersor_generation": "1"}


def test_tied_weights_have_each_of_their_names(tmp_path):
    w = torchfile.tensor(np.linspace(-1, 1, 64, dtype="f4").reshape(2, 32))
    ema = torchfile.tensor(np.ones((2, 32), "f4"))
    count = torchfile.tensor(np.array(5, "i8"))
    source = tmp_path / "source.pt"
    source.write_bytes(torchfile.pt({
        "ema": {"wte.weight": ema, "head.weight": ema}, "step": 3,
        "model": torchfile.ordered([("wte.weight", w), ("head.weight", w), ("count", count)])}))
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, "-q", check=0)
    flat, _ = only(packed, "m.safetensors")
    found = contents(flat)[1]
    assert found.keys() == {"wte.weight", "head.weight", "count"}
    assert found["wte.weight"] == found["head.weight"] and found["count"][0] == "I64"
    tree = torchfile.load(only(packed, "m.pt", "--as", "bf16")[0])
    assert [key for key, _ in tree.items()] == ["wte.weight", "head.weight", "count"]
    assert tree["wte.weight"].storage is tree["head.weight"].storage
    assert tree["wte.weight"].st_dtype == "BF16" and tree["count"].st_dtype == "I64"


def test_model_beside_an_optimizer_of_another_file(tmp_path):
    folder = TRAINER.parent
    order = DATA / "frameworks" / "expected" / "trainer-parameter-order.txt"
    packed = tmp_path / "packed"
    run_tersor("pack", TRAINER, folder / "optimizer.pt", "-o", packed, "-q", "--params", order,
               check=0)
    for name in "m.safetensors", "m.npz":
        out, _ = only(packed, name)
        run_tersor("diff", out, TRAINER, "--max-error", "nmse=1e-6", "--strict", check=0)
    tree = torchfile.load(only(packed, "m.pt")[0])
    assert {key for key, _ in tree.items()} == set(contents(TRAINER)[1])


def test_f64_is_rounded_once_and_overflow_is_said(tmp_path):
    """1 + 2^-8 + 2^-40 is above the tie of BF16, but not once it is FP32."""
    values = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8, -1 - 2**-8 - 2**-50, 1e-320, 1e300, np.inf])
    source = write_source(tmp_path / "source", {"d": ("F64", (6,), values.tobytes()),
                                                "big": np.array([70000, 1, np.nan], "f4")})
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, "-q", check=0)
    out, done = only(packed, "m.safetensors", "--as", "bf16")
    assert contents(out)[1]["d"][2] == np.array(
        [0x3f81, 0x3f80, 0xbf81, 0, 0x7f80, 0x7f80], "<u2").tobytes()
    assert "1 finite value became infinite in BF16" in done.stderr
    out, done = only(packed, "m.safetensors", "--as", "f16")
    assert "2 finite values became infinite in F16" in done.stderr
    with np.errstate(over="ignore"):
        assert contents(out)[1]["d"][2] == values.astype("f2").tobytes()
        out, done = only(packed, "m.safetensors", "--as", "f32")
        assert contents(out)[1]["d"][2] == values.astype("f4").tobytes()


@pytest.mark.parametrize("n", [0, 1, 262143, 262144, 262145, 524289])
def test_model_of_several_tiles(tmp_path, n):
    values = np.random.default_rng(n).normal(0, 1, n).astype("f4")
    half = values.astype(ml_dtypes.bfloat16)
    source = write_source(tmp_path / "source", {
        "w": values, "kept": values, "half": ("BF16", (n,), half.tobytes())})
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, "-q", "--keep", "kept", check=0)
    for to, (dtype, numpy_type) in TYPES.items():
        found = contents(only(packed, "m.safetensors", "--as", to, "-j2")[0])[1]
        assert found["kept"][2] == values.astype(numpy_type).tobytes()
        assert found["half"][2] == half.astype(numpy_type).tobytes()
    assert contents(only(packed, "m.safetensors", "--as", "bf16")[0])[1]["w"][2] == half.tobytes()
    archive = np.load(only(packed, "m.npz", "--as", "f16")[0])
    assert archive["kept"].tobytes() == values.astype("f2").tobytes()


def test_model_where_there_is_none_is_refused(tmp_path):
    source = write_source(tmp_path / "source", {"w.exp_avg": np.ones(40, "f4")})
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, "-q", check=0)
    out, done = only(packed, "m.safetensors", check=3)
    assert "no tensor of a model" in one_line_error(done) and not out.exists()


@pytest.mark.parametrize("options, fact", [
    (["--as", "bf16"], "--as needs --only weights"),
    (["--only", "optimizer"], "expected weights"),
    (["--only", "weights", "--as", "f8_e4m3"], "expected bf16, f16 or f32"),
])
def test_wrong_parts_and_types_are_refused(tmp_path, options, fact):
    done = run_tersor("unpack", TRAINER, "-o", tmp_path / "out", *options)
    assert done.returncode == 2 and fact in one_line_error(done)


def test_damage_of_the_model_is_found(tmp_path):
    packed, plain = pack(TRAINER, tmp_path / "out")
    content = bytearray(plain.read_bytes())
    content[-1] ^= 1
    plain.write_bytes(content)
    out, done = only(packed, "m.safetensors", "--as", "bf16", check=3)
    assert "/model.safetensors: tensor" in one_line_error(done) and not out.exists()


# ---- The text ----------------------------------------------------------------------------------

def test_every_plane_has_one_place(tmp_path):
    """The hashes in the text are those of the arrays of both files."""
    packed, plain = pack(mixed(tmp_path), tmp_path / "out")
    text = json.loads(contents(packed)[0]["tersor"])
    assert text["weights"] == pathlib.Path(plain).name and "shard" not in text
    hashes = [xxhash.xxh3_64_hexdigest(struct.pack("<Q", xxhash.xxh3_64_intdigest(content)) if content else b"")
              for path in (packed, plain) for _, _, content in contents(path)[1].values()]
    assert sorted(hashes) == sorted(sum((t["xxh3"] for t in text["tensors"]), []))
    assert CHECK not in plain.read_bytes()


# ---- examples/tersor_torch.py -------------------------------------------------------------------

SAME_BITS = """
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch, torch
seen = 0
for packed, plain in json.loads(sys.argv[2]):
    content = open(plain, "rb").read()
    size = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:size])
    tensors = tersor_torch.Checkpoint(packed).tensors
    assert tensors.keys() == header.keys() - {"__metadata__", "tersor::tree"}, packed
    for name, t in tensors.items():
        begin, end = header[name]["data_offsets"]
        want = content[size + begin:size + end]
        whole = t.whole()
        assert list(whole.shape) == header[name]["shape"], name
        bits = whole.reshape(-1).view(torch.uint8) if whole.numel() else whole
        assert bytes(bits.tolist()) == want, (packed, name)
        n, item = whole.numel(), max(1, len(want) // max(1, whole.numel()))
        for first in range(0, n, max(1, n // 5)):       # parts, as ranks take them
            part = t.elements(first, min(37, n - first)).reshape(-1).view(torch.uint8)
            assert bytes(part.tolist()) == want[first * item:][:len(part)], (packed, name, first)
        seen += 1
print(json.dumps(seen))
"""

INTO_A_MODEL = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch, torch
folder = sys.argv[2]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(50, 24)
        self.mid = torch.nn.Sequential(torch.nn.Linear(24, 33), torch.nn.BatchNorm1d(33),
                                       torch.nn.Linear(33, 24))
        self.head = torch.nn.Linear(24, 50, bias=False)
        self.head.weight = self.wte.weight
        self.scale = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.head(self.mid(self.wte(x))) * self.scale

def make():
    torch.manual_seed(3)
    model = Net()
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return model, torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                     {"params": rest, "weight_decay": 0.0}], lr=1e-3)

def train(model, optimizer, steps, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x, y = torch.randint(0, 50, (2, 16), generator=g)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, optimizer

def states(model, optimizer):
    return {f"{n}.{k}": v for n, p in model.named_parameters() for k, v in optimizer.state[p].items()}

model, optimizer = train(*make(), 3, 1)
optimizer.param_groups[0]["lr"] = 5e-4
path = os.path.join(folder, "packed.safetensors")
tersor_torch.save(path, model, optimizer, epoch=4)
loaded, opt = make()
assert tersor_torch.load(path, loaded, opt) == []
value = tersor_torch.read(path)
assert value["epoch"] == 4 and value["model"]["wte.weight"] is value["model"]["head.weight"]
expected, expected_opt = make()
expected.load_state_dict(value["model"])
for group in value["optimizer"]["param_groups"]:
    del group["param_names"]
expected_opt.load_state_dict(value["optimizer"])
for key, t in expected.state_dict().items():
    assert torch.equal(loaded.state_dict()[key], t), key
wanted, found = states(expected, expected_opt), states(loaded, opt)
assert wanted.keys() == found.keys() and len(wanted) == 3 * len(list(model.parameters()))
assert all(torch.equal(found[key], t) for key, t in wanted.items())
assert [g["lr"] for g in opt.param_groups] == [5e-4, 1e-3]
assert all(torch.allclose(t, model.state_dict()[k], rtol=2**-9) for k, t in loaded.state_dict().items())

# On without a difference to what read() gave; and what does not fit is named.
a, b = train(loaded, opt, 3, 2)[0], train(expected, expected_opt, 3, 2)[0]
assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters()))
loaded.more = torch.nn.Linear(2, 2)
try:
    tersor_torch.load(path, loaded)
    raise SystemExit("loaded without its weights")
except KeyError as e:
    assert "more.weight" in str(e)
left = tersor_torch.load(path, loaded, strict=False)
assert len(left) == len(wanted) and all("." in name for name in left)
with open(path, "r+b") as f:
    f.seek(-1, 2)
    last = f.read(1)
    f.seek(-1, 2)
    f.write(bytes([last[0] ^ 1]))
try:
    tersor_torch.load(path, make()[0], strict=False)
    raise SystemExit("loaded a damaged file")
except RuntimeError as e:
    assert "is damaged" in str(e)
print(json.dumps(sorted(os.listdir(folder))))
"""


@pytest.fixture(autouse=True)
def binary_for_examples(monkeypatch):
    """The program under test, with the library that was built with it."""
    monkeypatch.setenv("TERSOR", os.path.abspath(BINARY))
    if not (pathlib.Path(BINARY).parent / "libtersor.so").exists():
        monkeypatch.setenv("TERSOR_LIBRARY", str(ROOT / "build" / "libtersor.so"))


def codecs_of(tersor, kind):
    """All of a kind, and of a family with a number of bits the ends and one between."""
    found = json.loads(tersor("codecs", "--json", check=0).stdout)["codecs"]
    ends = re.compile(r".*\+(trunc|rn|sr)([2-6]|8|9|10|11|12|14|15)$")
    return [c["name"] for c in found if kind in c["kinds"] and not ends.match(c["name"])]


def test_torch_decodes_every_codec_to_the_bits_of_unpack(tmp_path, tersor):
    """Every codec that the program lists, every form of scales, odd groups; what is coded or in several files."""
    pairs = []
    rng = np.random.default_rng(7)
    v = np.square(rng.normal(0, 1e-4, (7, 300))).astype("f4")
    m = (np.sqrt(v) * rng.uniform(-1, 1, v.shape)).astype("f4")
    states = write_source(tmp_path / "states", {"w": np.ones(v.shape, "f4"), "w.exp_avg": m, "w.exp_avg_sq": v})
    near = write_source(tmp_path / "near", {"w": near_ties(), "s": np.geomspace(1e-45, 1e38, 333, dtype="f4"),
                                            "z": np.array([0.0, -0.0], "f4")})

    def add(source, *options):
        packed, plain = tmp_path / f"packed-{len(pairs)}", tmp_path / f"plain-{len(pairs)}"
        run_tersor("pack", source, "-o", packed, "-q", "--min-elements", "1", *options, check=0)
        pairs.append((packed, plain))
    for kind, source in ("weight", near), ("momentum", states), ("variance", states):
        for codec in codecs_of(tersor, kind):
            option = {"weight": "--weights"}.get(kind, f"--{kind}")
            add(source, option, codec)
            add(source, option, codec, "--entropy")
    for options in (["--scale", "f16", "--group", "7"], ["--scale", "f32", "--group", "100"], ["--group", "65536"],
                    ["--state", "gefen"], ["--state", "tight", "--entropy"], ["--model", tmp_path / "model"]):
        add(states, *options)
    half = np.linspace(-1, 1, 99, dtype="f4").astype(ml_dtypes.bfloat16)
    add(write_source(tmp_path / "half", {"w": near_ties(), "w.exp_avg": (
        "BF16", near_ties().shape, np.resize(half, near_ties().shape).tobytes())}))
    add(DATA / "frameworks" / "states" / "bf16-model-fp32-master.pt")
    pairs.append((pack(mixed(tmp_path), tmp_path / "pair")[0], tmp_path / "plain-pair"))
    add(TINY / "checkpoint.safetensors")
    add(TINY / "checkpoint.safetensors", "--delta", pairs[-1][0])
    run_tersor("pack", TINY / "checkpoint.safetensors", "-o", tmp_path / "shards.safetensors", "-q",
               "--max-shard-size", "200K", check=0)
    pairs.append((tmp_path / "shards.safetensors.index.json", tmp_path / "plain-shards"))
    for packed, plain in pairs:
        run_tersor("unpack", packed, "-o", plain, "-q", "--to", "safetensors", check=0)
    assert torchfile.run_torch(SAME_BITS, ROOT / "examples", json.dumps(
        [[str(packed), str(plain)] for packed, plain in pairs])) > 300


def test_torch_refuses_a_codec_that_the_library_does_not_know(tmp_path):
    packed = tmp_path / "packed"
    run_tersor("pack", mixed(tmp_path), "-o", packed, "-q", check=0)
    content = packed.read_bytes()
    assert b"softsign8" in content
    def other(text):
        for entry in text["tensors"]:
            entry["codec"] = entry["codec"].replace("softsign8", "softsign9")
    resealed(packed, other)
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch
said = []
for check in True, False:
    try:
        tersor_torch.read(sys.argv[2], check=check)
    except RuntimeError as e:
        said.append(str(e))
print(json.dumps(said))
"""
    said = torchfile.run_torch(script, ROOT / "examples", packed)
    assert len(said) == 2 and all("softsign9" in line for line in said)


SCRATCH = """
import json, os, resource, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch, torch
folder, mine = sys.argv[2:]
before = {mine: os.listdir(mine)}
model = torch.nn.Linear(64, 33)
tersor_torch.save(os.path.join(folder, "a"), model, scratch=mine)
os.chdir(folder)
tersor_torch.save("-", model)           # a name like any other
said = []
for options, scratch in (["--weights", "none"], mine), ([], os.path.join(mine, "absent")):
    try:
        tersor_torch.save("b", model, options=options, scratch=scratch)
    except (RuntimeError, FileNotFoundError) as e:
        said.append(str(e))

class Broken:
    def __reduce__(self):
        raise ValueError("cannot be saved")
try:
    tersor_torch.save("c", model, more=Broken())
except ValueError as e:
    said.append(str(e))
limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limit))        # as a full disk
try:
    tersor_torch.save("d", model, scratch=mine)
except RuntimeError as e:
    said.append(str(e))
assert before == {name: os.listdir(name) for name in before}
print(json.dumps([sorted(os.listdir(folder)), said]), flush=True)
os._exit(0)     # PyTorch 1.13 tries to write on when it ends
"""


def test_torch_saves_without_copies_in_memory_and_removes_nothing(tmp_path):
    """The user's directory for scratch files survives, also when packing fails; nothing is left anywhere."""
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.mkdir()
    out.mkdir()
    (mine / "precious").write_text("x")
    files, said = torchfile.run_torch(SCRATCH, ROOT / "examples", out, mine)
    assert files == ["-", "a"] and (mine / "precious").read_text() == "x"
    assert "none" in said[0] and "absent" in said[1] and said[2] == "cannot be saved"
    assert f"cannot write a checkpoint into {mine}, scratch= names another" in said[3]


SLOW = """#!/bin/sh
export LD_PRELOAD="{library}" TERSOR_FAULT=fsync:1:delay=3000 TERSOR_FAULT_PATH="{out}"
exec "{binary}" "$@"
"""

SAVE = """
import sys
sys.path.insert(0, sys.argv[1])
import tersor_torch, torch
tersor_torch.save(sys.argv[2], torch.nn.Linear(64, 33))
"""


def temporaries(folder):
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("sent,to_all", [("SIGTERM", False), ("SIGKILL", False), ("SIGINT", False),
                                         ("SIGINT", True), ("SIGTERM", True)])
def test_a_save_that_is_ended_leaves_nothing(tmp_path, sent, to_all):
    """While the program packs, a signal to Python, or as by Ctrl-C to both: all of the file, or none."""
    out, scratch, slow = tmp_path / "out", tmp_path / "scratch", tmp_path / "slow"
    out.mkdir()
    scratch.mkdir()
    slow.write_text(SLOW.format(library=LIBRARY, out=out, binary=os.path.abspath(BINARY)))
    slow.chmod(0o755)
    library = pathlib.Path(BINARY).parent.absolute() / "libtersor.so"
    env = {**os.environ, "TERSOR": str(slow), "TMPDIR": str(scratch),
           "TERSOR_LIBRARY": os.environ.get("TERSOR_LIBRARY", str(library))}
    python = subprocess.Popen([torchfile.TORCH, "-W", "ignore", "-c", SAVE, ROOT / "examples", out / "packed"],
                              env=env, start_new_session=True, stderr=subprocess.DEVNULL)
    wait_until(lambda: temporaries(out) or python.poll() is not None)
    (os.killpg if to_all else os.kill)(python.pid, getattr(signal, sent))
    assert python.wait(60) != 0
    wait_until(lambda: not temporaries(out))
    assert os.listdir(scratch) == [] and os.listdir(out) in ([], ["packed"])
    if os.listdir(out):
        run_tersor("verify", out / "packed", check=0)


def test_torch_opens_nothing_outside_of_the_directory(tmp_path):
    """Names in an index lead out, and nothing was checked before."""
    for folder in "a", "b":
        (tmp_path / folder).mkdir()
    run_tersor("pack", mixed(tmp_path), "-o", tmp_path / "secret.safetensors", "-q", check=0)
    (tmp_path / "a" / "tersor.json").write_text(json.dumps(
        {"entries": [{"as": "packed", "files": [{"path": "../secret.safetensors"}]}]}))
    index = tmp_path / "b" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "../secret.safetensors"}}))
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch
said = []
for path in sys.argv[2:]:
    try:
        tersor_torch.read(path, check=False)
    except (ValueError, RuntimeError) as e:
        said.append(str(e))
print(json.dumps(said))
"""
    said = torchfile.run_torch(script, ROOT / "examples", tmp_path / "a", index, tmp_path / "b")
    assert len(said) == 3 and all("../secret.safetensors" in line for line in said)


def test_torch_takes_plain_checkpoints_and_names_what_is_none(tmp_path):
    """A .pt that was never packed has its values; a text is no checkpoint."""
    w = np.arange(12, dtype="f4").reshape(3, 4)
    (tmp_path / "plain.pt").write_bytes(torchfile.pt({"weight": torchfile.tensor(w)}))
    (tmp_path / "text.pt").write_text("hello")
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch, torch
model = torch.nn.Linear(4, 3, bias=False)
left = tersor_torch.load(sys.argv[2], model)
try:
    tersor_torch.load(sys.argv[3], model)
except RuntimeError as e:
    said = str(e)
print(json.dumps([left, model.weight.tolist(), said]))
"""
    left, values, said = torchfile.run_torch(script, ROOT / "examples", tmp_path / "plain.pt", tmp_path / "text.pt")
    assert left == [] and values == w.tolist() and "text.pt: not a kind of file" in said


SHARDED = """
import json, os, sys, types
sys.path.insert(0, sys.argv[1])
import tersor_torch, torch
folder, mine, fails = sys.argv[2:]

class Shard(torch.nn.Module):
    def state_dict(self):
        return {"w": types.SimpleNamespace(placements=[])}

# What torch.distributed.checkpoint does for a sharded model, on one rank: this PyTorch is older.
dcp = types.ModuleType("torch.distributed.checkpoint")
def write(value, checkpoint_id):
    if fails == "yes":
        raise OSError("no room")
    torch.save({"w": torch.arange(64.0)}, os.path.join(checkpoint_id, "w.pt"))
dcp.save = write
state = types.ModuleType("torch.distributed.checkpoint.state_dict")
state.get_model_state_dict = state.get_optimizer_state_dict = lambda *_: {}
sys.modules.update({dcp.__name__: dcp, state.__name__: state})
torch.distributed.checkpoint = dcp
tersor_torch.run = lambda *args, **more: open(os.path.join(folder, "packed"), "w").close()
try:
    tersor_torch.save(os.path.join(folder, "packed"), Shard(), scratch=mine or None)
except OSError as e:
    assert fails == "yes" and str(e) == "no room"
print(json.dumps(sorted(os.listdir(folder))))
"""


@pytest.mark.parametrize("fails", ["no", "yes"])
@pytest.mark.parametrize("given", [True, False])
def test_sharded_save_removes_only_its_own_directory(tmp_path, fails, given):
    mine, out = tmp_path / "mine", tmp_path / "out"
    for folder in mine, out, out / "packed.scratch":
        folder.mkdir()
        (folder / "precious").write_text("x")
    left = torchfile.run_torch(SHARDED, ROOT / "examples", out, mine if given else "", fails)
    assert left == sorted(["packed.scratch", "precious"] + ["packed"] * (fails == "no"))
    assert [p.name for p in mine.iterdir()] == [p.name for p in (out / "packed.scratch").iterdir()] == ["precious"]


def test_torch_saves_loads_and_trains_on(tmp_path):
    assert torchfile.run_torch(INTO_A_MODEL, ROOT / "examples", tmp_path) == ["packed.safetensors"]


def test_torch_loads_a_directory(tmp_path):
    """The Trainer's: a model in two files, an optimizer by numbers, and what it holds besides."""
    out, back = tmp_path / "out", tmp_path / "back"
    run_tersor("pack", TRAINER.parent, "-o", f"{out}/", "-q", check=0)
    run_tersor("unpack", f"{out}/", "-o", f"{back}/", "-q", check=0)
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch, torch
checkpoint = tersor_torch.Checkpoint(sys.argv[2])
order = open(sys.argv[4]).read().split()
model = torch.nn.Module()
for name in order:
    module = model
    for part in name.split(".")[:-1]:
        module = module._modules.setdefault(part, torch.nn.Module())
    module.register_parameter(name.split(".")[-1], torch.nn.Parameter(
        torch.zeros(checkpoint.tensors[name].shape)))
params = dict(model.named_parameters())
optimizer = torch.optim.AdamW([{"params": [params[n] for n in order if params[n].ndim > 1]},
                               {"params": [params[n] for n in order if params[n].ndim < 2]}])
left = tersor_torch.load(sys.argv[2], model, optimizer)
values = tersor_torch.read(sys.argv[2])     # the optimizer and what else has a tree, and the model
assert any(isinstance(v, dict) and "param_groups" in v for v in values) and set(values[-1]) == set(order)
assert all(torch.equal(values[-1][n], p) for n, p in model.named_parameters())
saved = torch.load(sys.argv[3] + "/optimizer.pt")
for p, number in zip((p for g in optimizer.param_groups for p in g["params"]), saved["state"]):
    assert optimizer.state[p].keys() == saved["state"][number].keys()
    assert all(torch.equal(v, saved["state"][number][k]) for k, v in optimizer.state[p].items())
assert [g["weight_decay"] for g in optimizer.param_groups] == \
    [g["weight_decay"] for g in saved["param_groups"]]
print(json.dumps([left, {n: p.detach().double().sum().item() for n, p in params.items()}]))
"""
    left, sums = torchfile.run_torch(script, ROOT / "examples", out, back,
                                     DATA / "frameworks" / "expected" / "trainer-parameter-order.txt")
    restored = safetensors.numpy.load_file(back / NAME)
    assert left == [] and sums.keys() == restored.keys()
    for name, total in sums.items():
        assert total == pytest.approx(restored[name].astype("f8").sum(), abs=1e-9), name


def test_torch_executes_nothing_of_a_tree(tmp_path):
    """An object that was carried is a placeholder, and what stands around it is there."""
    canary = tmp_path / "canary"
    evil = torchfile.Call(torchfile.Global("evil", "run"), (f"touch {canary}",))
    source, packed = tmp_path / "source.pt", tmp_path / "packed"
    source.write_bytes(torchfile.pt({"evil": evil, "step": 3, "state_dict": torchfile.ordered(
        [("w", torchfile.tensor(np.arange(64, dtype="f4")))], version=1)}))
    run_tersor("pack", source, "-o", packed, "-q", check=0)
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor_torch
value = tersor_torch.read(sys.argv[2])
print(json.dumps([isinstance(value["evil"], tersor_torch.Opaque), type(value["evil"]).__name__,
                  value["step"], value["state_dict"]["w"].tolist()]))
"""
    done = torchfile.run_torch(script, ROOT / "examples", packed)
    assert done == [True, "run", 3, list(range(64))] and not canary.exists()
