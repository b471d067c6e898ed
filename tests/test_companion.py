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

import packed_text
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


def reshaped(name):
    """The array with its dimensions in another order."""
    def change(header, data):
        header[name]["shape"].reverse()
        return data
    return change


def named(name):
    """The text with another member `weights`, in its place."""
    def change(text):
        return {key: name if key == "weights" else value for key, value in text.items()}
    return change


def with_shard(text):
    return {**{k: text[k] for k in ("version", "tool", "source", "generation")},
            "shard": {"number": 1, "count": 2, "set": "0" * 16},
            **{k: text[k] for k in ("weights", "codings", "xxh3", "error", "tensors")}}


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
    "other shape": (lambda packed, plain: rewritten(plain, reshaped("w")), 3,
                    ["/model.safetensors: tensor w", "dtype or shape"]),
    "other shape of a raw tensor": (lambda packed, plain: rewritten(plain, reshaped("empty")), 3,
                                    ["/model.safetensors: tensor empty", "dtype or shape"]),
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


@pytest.mark.parametrize("how, codec", [(how, None) for how in DAMAGE] + [("other shape", "bf16+trunc8")])
def test_files_that_do_not_fit_are_refused(tmp_path, how, codec):
    weights = ["--weights", codec] if codec else []
    packed, plain = pack(mixed(tmp_path), tmp_path / "out", *weights)
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
    (["--as", "bf16"], "--as needs --only=weights"),
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
    text = packed_text.read(pathlib.Path(packed))
    assert text["weights"] == pathlib.Path(plain).name and "shard" not in text
    hashes = [xxhash.xxh3_64_hexdigest(struct.pack("<Q", xxhash.xxh3_64_intdigest(content)) if content else b"")
              for path in (packed, plain) for _, _, content in contents(path)[1].values()]
    assert sorted(hashes) == sorted(sum((t["xxh3"] for t in text["tensors"]), []))
    assert CHECK not in plain.read_bytes()
