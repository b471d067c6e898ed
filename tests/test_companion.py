"""Packed checkpoints in two files: a plain model and, beside it, the rest (docs/format.md, 5.8)."""
import json
import os
import pathlib

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import xxhash

import reader
from conftest import DATA, ROOT, one_line_error, run_tersor
from test_reader import CHECK, ZEROS, compare, contents, sealed, split, write_source

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
    tersor("diff", packed, TRAINER, "--tol", "nmse=1e-6", check=0)
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
@pytest.mark.parametrize("call", ["rename", "linkat", "fsync", "close"])
@pytest.mark.parametrize("n", range(1, 5))
def test_failure_leaves_no_packed_file_without_its_weights(tmp_path, call, n, action):
    if not os.path.exists(LIBRARY):
        pytest.fail(f"{LIBRARY} is missing: make check builds it")
    folder = tmp_path / "out"
    folder.mkdir()
    packed, plain = folder / f"{NAME}.tersor", folder / NAME
    done = run_tersor("pack", TRAINER, "-o", packed, "--model", plain, "-q",
                      env={"LD_PRELOAD": LIBRARY, "TERSOR_FAULT_PATH": str(folder),
                           "TERSOR_FAULT": f"{call}:{n}:{action}"})
    if packed.exists():
        run_tersor("verify", packed, "--against", TRAINER, check=0)
    if action == "EIO" and not packed.exists():
        assert done.returncode == 4 and not list(folder.iterdir())
    elif done.returncode == 0:
        assert packed.exists() and plain.exists()


# ---- The library -------------------------------------------------------------------------------

def test_every_plane_has_one_place(tmp_path):
    """The hashes in the text are those of the arrays of both files."""
    packed, plain = pack(mixed(tmp_path), tmp_path / "out")
    text = json.loads(contents(packed)[0]["tersor"])
    assert text["weights"] == pathlib.Path(plain).name and "shard" not in text
    hashes = [xxhash.xxh3_64_hexdigest(content) for path in (packed, plain)
              for _, _, content in contents(path)[1].values()]
    assert sorted(hashes) == sorted(sum((t["xxh3"] for t in text["tensors"]), []))
    assert CHECK not in plain.read_bytes()
