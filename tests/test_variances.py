"""Positive variances stay positive, and groups follow rows: docs/internals/numerics.md, docs/internals/format.md 4.4 and 8.8."""
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import oracle
import reader
from conftest import DATA

TRAINED = DATA / "tiny-gpt" / "expected-adamw-fp32.safetensors"
EPS = 1e-8


def there_and_back(tersor, folder, source, *args):
    """What comes back, and the packed file's bytes of data."""
    packed, out = folder / "packed.safetensors", folder / "out.safetensors"
    tersor("pack", source, "-o", packed, "-f", "-q", *args, check=0)
    tersor("unpack", packed, "-o", out, "-f", "-q", check=0)
    blob = packed.read_bytes()
    return load_file(out), len(blob) - 8 - int.from_bytes(blob[:8], "little")


def test_updates_of_a_trained_model(tersor, tmp_path):
    """Before these rules: 36 and 428 where 0.99 is the true largest."""
    want = load_file(TRAINED)
    got, nbytes = there_and_back(tersor, tmp_path, TRAINED)
    names = [name for name in want if name + ".exp_avg" in want]
    errors = [oracle.update_error(*(t[name + s] for t in (want, got)
                                    for s in (".exp_avg", ".exp_avg_sq"))) for name in names]
    largest = max(np.abs(got[n + ".exp_avg"] / (np.sqrt(np.float64(got[n + ".exp_avg_sq"])) + EPS)).max()
                  for n in names)
    assert len(names) == 29 and max(errors) <= 1.5e-4, max(errors)
    assert largest <= 1.0
    assert nbytes <= 5.125 * sum(want[name].size for name in names)


def wide(rng, shape):
    """Variances over many orders of magnitude, zeros and subnormal numbers among them."""
    x = np.exp(rng.normal(-20, 12, shape)).astype(np.float32)
    x.ravel()[::7] = 0
    x.ravel()[::11] = np.float32(1e-45)
    return x


@pytest.mark.parametrize("codec", ["sqrt8", "ulinear8"])
@pytest.mark.parametrize("scale", ["e8m8", "f32"])
def test_positive_variances_stay_positive(tersor, tmp_path, codec, scale):
    rng = np.random.default_rng(5)
    v = {"w.exp_avg_sq": wide(rng, 4096), "x.exp_avg_sq": wide(rng, (31, 77)),
         "tiny.exp_avg_sq": np.float32(1e-45) * rng.integers(0, 4000, 999).astype(np.float32)}
    source = tmp_path / "v.safetensors"
    save_file(v, source)
    got, _ = there_and_back(tersor, tmp_path, source, "--variance", codec, "--scale", scale)
    for name, want in v.items():
        assert ((got[name] > 0) == (want > 0)).all(), name


def test_flashoptim_keeps_its_rule(tersor, tmp_path):
    v = np.full(32, 1e-12, np.float32)
    v[0] = 1
    source = tmp_path / "v.safetensors"
    save_file({"w.exp_avg_sq": v}, source)
    got, _ = there_and_back(tersor, tmp_path, source, "--compat", "flashoptim")
    assert (got["w.exp_avg_sq"][1:] == 0).all()


# Rows of 33 to 65,536 elements have groups of their own; others are flat.
SHAPES = [(7, 33), (3, 5, 47), (2, 63), (5, 65), (4, 100), (2, 65535), (9, 32), (9, 64), (9, 31), (2, 65537),
          (1, 48), (5, 2049)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("codec, name", [("softsign8", "w.exp_avg"), ("sqrt8", "w.exp_avg_sq"),
                                         ("linear8", "w.exp_avg"), ("ulinear8", "w.exp_avg_sq")])
def test_groups_follow_rows(tersor, tmp_path, codec, name, threads):
    rng = np.random.default_rng(len(codec))
    option = "--momentum" if name.endswith("avg") else "--variance"
    state = {}
    for shape in SHAPES:
        x = rng.normal(0, 1, shape) * np.exp(rng.normal(-5, 4, shape[:-1] + (1,)))
        state[f"{shape[-1]}.{name}"] = np.float32(x if option == "--momentum" else x * x)
    source, packed = tmp_path / "s.safetensors", tmp_path / "p.safetensors"
    save_file(state, source)
    tersor("pack", source, "-o", packed, option, codec, "-j", threads, "-q", check=0)
    arrays, described = load_file(packed), reader.read(packed).tensors
    for key, x in state.items():
        want = oracle.encode(codec, x)
        size = oracle.row_group(x.shape, 32, "e8m8")
        assert described[key].rows == (size is not None)
        assert arrays[key + "::scales"].size == (x.size // x.shape[-1] * -(-x.shape[-1] // size)
                                                 if size else -(-x.size // 32))
        np.testing.assert_array_equal(arrays[key + "::scales"], want["::scales"], key)
        np.testing.assert_array_equal(arrays[key + "::quantized"].ravel(), want["::quantized"].ravel())
    got, _ = there_and_back(tersor, tmp_path, source, option, codec)
    for key, x in state.items():
        back = oracle.decode(codec, oracle.encode(codec, x)).reshape(x.shape)
        assert got[key].tobytes() == back.tobytes(), key
        assert described[key].array.tobytes() == back.tobytes()


def test_a_row_does_not_suffer_from_its_neighbour(tersor, tmp_path):
    """Rows of 48 beside rows a million times as large, as an embedding has them."""
    rng = np.random.default_rng(1)
    m = np.float32(rng.normal(0, 1, (64, 48)) * np.where(np.arange(64) % 2, 1, 1e-6)[:, None])
    source = tmp_path / "m.safetensors"
    save_file({"w.exp_avg": m}, source)
    got, _ = there_and_back(tersor, tmp_path, source)
    error = ((got["w.exp_avg"] - m) ** 2).sum(1) / (m ** 2).sum(1)
    assert error.max() < 1e-4
