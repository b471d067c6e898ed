"""tersor.open: tensors of checkpoints as numpy arrays (packaging/wheel/tersor/checkpoint.py)."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from conftest import BINARY, DATA, ROOT, run_tersor, write_source

TRAINER = DATA / "frameworks" / "trainer" / "checkpoint-30"


@pytest.fixture(autouse=True)
def package(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "packaging" / "wheel"))
    monkeypatch.setenv("TERSOR", os.path.abspath(BINARY))
    if not os.environ.get("TERSOR_LIBRARY"):
        monkeypatch.setenv("TERSOR_LIBRARY", str(os.path.join(os.path.dirname(os.path.abspath(BINARY)), "libtersor.so")))


def opened(path):
    import tersor
    return tersor.open(path)


@pytest.fixture
def packed(tmp_path):
    """A packed file with tensors of every sort, and what unpack makes of it."""
    rng = np.random.default_rng(1)
    w = rng.normal(0, 0.02, (6, 5, 7)).astype("f4")
    source = write_source(tmp_path / "source.safetensors", {
        "w": w, "w.exp_avg": w * np.float32(1e-3), "w.exp_avg_sq": np.square(w), "scalar": np.array(7, "f4"),
        "empty": np.zeros((0, 3), "f4"), "ids": ("I64", (2,), np.array([1, 2], "<i8").tobytes()),
        "half": ("F16", (3,), np.array([1, 2, 3], "<f2").tobytes()), "flag": ("BOOL", (2,), b"\1\0"),
    }, {"step": "400", "format": "pt"})
    run_tersor("pack", source, "-o", tmp_path / "packed", "-q", check=0)
    run_tersor("unpack", tmp_path / "packed", "-o", tmp_path / "back.safetensors", "-q", check=0)
    return tmp_path / "packed", safetensors.numpy.load_file(tmp_path / "back.safetensors")


def test_tensors_are_those_of_unpack(packed):
    path, want = packed
    with opened(path) as checkpoint:
        assert set(checkpoint) == set(want) and len(checkpoint) == len(want)
        for name, array in want.items():
            found = checkpoint[name].numpy()
            assert (found.dtype, found.shape) == (array.dtype, array.shape), name
            assert found.tobytes() == array.tobytes(), name
        assert checkpoint["w.exp_avg"].kind == "momentum" and checkpoint["w"].shape == [6, 5, 7]
        assert checkpoint.metadata["step"] == "400" and "tersor" not in checkpoint.metadata


@pytest.mark.parametrize("index", [
    (), ..., 0, -1, np.int64(2), True, slice(None), slice(1, 3), slice(-2, None), slice(4, 1), slice(9, 12),
    slice(None, None, 2), slice(None, None, -1), (1, 2), (slice(1, 3), 4), (slice(2, 5), slice(1, 3), -1), (..., 3), None,
    [0, 5]], ids=str)
def test_index_is_that_of_an_array(packed, index):
    path, want = packed
    found, expected = opened(path)["w"][index], want["w"][index]
    assert np.shape(found) == np.shape(expected) and found.tobytes() == expected.tobytes()


def test_scalars_and_what_is_not_there(packed):
    checkpoint = opened(packed[0])
    assert checkpoint["scalar"][()] == 7 and checkpoint["scalar"].numpy().shape == ()
    with pytest.raises(IndexError):
        checkpoint["w"][6]
    with pytest.raises(KeyError):
        checkpoint["none"]
    with pytest.raises(IndexError):
        checkpoint["scalar"][0]


def test_types_that_numpy_lacks(tmp_path):
    path = write_source(tmp_path / "x.safetensors", {
        "f8": ("F8_E4M3", (2,), b"\x38\x40"), "b": ("BF16", (2,), np.array([0x3f80, 0xc000], "<u2").tobytes())})
    checkpoint = opened(path)
    assert checkpoint["b"].numpy().dtype == np.float32 and checkpoint["b"].numpy().tolist() == [1, -2]
    with pytest.raises(TypeError, match="tensor f8: numpy has no type F8_E4M3"):
        checkpoint["f8"].numpy()


def test_packed_directory_is_one_checkpoint(tmp_path):
    run_tersor("pack", TRAINER, "-o", f"{tmp_path}/packed/", "-q", check=0)
    run_tersor("unpack", f"{tmp_path}/packed/", "-o", f"{tmp_path}/back/", "-q", check=0)
    checkpoint = opened(tmp_path / "packed")
    model = safetensors.numpy.load_file(tmp_path / "back" / "model.safetensors")
    assert len(checkpoint) > len(model) and checkpoint.metadata["format"] == "pt"
    for name, array in model.items():
        assert checkpoint[name].numpy().tobytes() == array.tobytes(), name


def test_import_needs_nothing():
    """Neither numpy nor PyTorch is imported before it is needed."""
    code = "import json, sys, tersor; print(json.dumps([m in sys.modules for m in ('numpy', 'torch')]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "packaging" / "wheel")})
    assert json.loads(done.stdout) == [False, False]
