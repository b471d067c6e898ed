"""Ratios and logarithms in k bits (docs/internals/format.md 8.18), against numpy: planes, values, what they lose."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import oracle
import reader
from conftest import DATA

TRAINED = DATA / "tiny-gpt" / "expected-adamw-fp32.safetensors"
WORST = DATA / "real-gpt-worst.safetensors"
PAIRS = [("ratio10", "log6"), ("ratio9", "log7"), ("ratio4", "log4"), ("ratio3", "log3")]
GROUPS = {"ratio10": 64, "ratio9": 64, "ratio4": 64, "ratio3": 64, "log7": 128, "log6": 128, "log4": 256,
          "log3": 256}


def state(rng, shape):
    """A momentum and a variance whose elements range over orders of magnitude, some of them 0."""
    v = np.float32(np.exp(rng.normal(-15, 5, shape)))
    m = np.float32(rng.normal(0, 0.3, shape) * np.sqrt(v))
    v.ravel()[::17] = m.ravel()[::17] = 0
    return {"exp_avg": m, "exp_avg_sq": v}


def pack(tersor, folder, source, momentum, variance, *args):
    packed = folder / "packed.safetensors"
    tersor("pack", source, "-o", packed, "-f", "-q", "--momentum", momentum, "--variance", variance, *args, check=0)
    return packed


def unpack(tersor, packed):
    out = packed.with_name("out.safetensors")
    tersor("unpack", packed, "-o", out, "-f", "-qq", check=0)
    return load_file(out)


def scale_of(codec, scale="e8m8"):
    return "f28" if codec in oracle.LOGS else "e5m3" if codec in oracle.WITHOUT_ZERO else scale


def check(tersor, packed, tensors, group=None, scale="e8m8"):
    arrays, read, got = load_file(packed), reader.read(packed).tensors, unpack(tersor, packed)
    for name in [name for name in tensors if name.endswith(".exp_avg")]:
        m, v = tensors[name], tensors[name + "_sq"]
        codec, beside = read[name].codec, read[name + "_sq"].codec
        still = codec in oracle.WITHOUT_ZERO
        assert np.float32(read[name].eps) == np.float32(1e-8)
        x = {name: (codec, oracle.ratio(m, v, still=still)), name + "_sq": (beside, v)}
        for key, (codec, elements) in x.items():
            size, how = group or GROUPS[codec], scale_of(codec, scale)
            want = oracle.encode(codec, elements, size, how)
            for suffix, plane in want.items():
                np.testing.assert_array_equal(arrays[key + suffix].view(plane.dtype), plane, key + suffix)
            back = oracle.decode(codec, want, size, how, n=elements.size).reshape(elements.shape)
            back = oracle.momentum(back, got[name + "_sq"], still=still) if key == name else back
            assert got[key].tobytes() == back.tobytes() == read[key].array.tobytes(), key
            assert np.isfinite(back).all() and not back[v == 0].any()


@pytest.mark.parametrize("group", [None, 32, 96, 1024])
@pytest.mark.parametrize("momentum, variance", PAIRS)
def test_planes_and_values(tersor, tmp_path, momentum, variance, group):
    rng = np.random.default_rng(3)
    shapes = [(1000,), (40, 100), (3, 48), (7, 64), (2, 3, 130), (1,), (31,), (33,), (512,), (4097,)]
    tensors = {f"t{i}.{k}": x for i, shape in enumerate(shapes) for k, x in state(rng, shape).items()}
    source = tmp_path / "s.safetensors"
    save_file(tensors, source)
    args = ["--min-elements", 1, *(["--group", group] if group else [])]
    check(tersor, pack(tersor, tmp_path, source, momentum, variance, *args), tensors, group)
    if scale_of(momentum) == "e8m8":
        packed = pack(tersor, tmp_path, source, momentum, variance, *args, "--scale", "f32")
        check(tersor, packed, tensors, group, "f32")


@pytest.mark.parametrize("momentum, variance", PAIRS)
def test_tiles_threads_and_coded_planes(tersor, tmp_path, momentum, variance):
    rng = np.random.default_rng(9)
    source = tmp_path / "s.safetensors"
    tensors = {f"t{i}.{k}": x for i, n in enumerate([700001, 262144 * 2]) for k, x in state(rng, (n,)).items()}
    save_file(tensors, source)
    packed = pack(tersor, tmp_path, source, momentum, variance, "-j", 3)
    check(tersor, packed, tensors)
    want = unpack(tersor, packed)
    coded = pack(tersor, tmp_path, source, momentum, variance, "--entropy")
    got = unpack(tersor, coded)
    assert all(got[name].tobytes() == want[name].tobytes() for name in want)
    assert all(t.values is None or t.array.tobytes() == want[name].tobytes()
               for name, t in reader.read(coded).tensors.items())
    tersor("verify", coded, "--against", source, check=0)


@pytest.mark.parametrize("k", oracle.LOG_CAPS)
def test_tables_are_correctly_rounded(k):
    """The reader's powers in binary64 are those of 40 digits."""
    for p in range(16):
        codes, scale = np.arange(2 ** k), np.full(2 ** k, 0x3f800000 | p, np.uint32)
        values, thresholds = oracle.log_row(p, k)
        np.testing.assert_array_equal(reader.decode_log(codes, scale, k), values * values)
        assert (np.diff(values) > 0).all() and (thresholds[2:] > values[1:-1]).all()


@pytest.mark.parametrize("codec", [c for c in oracle.PACKED if c in oracle.LOGS])
def test_every_threshold_of_logarithms(tersor, tmp_path, codec):
    """Roots whose ratio to the scale is a threshold, and the next ones."""
    k, group, parts = oracle.PACKED[codec], 64, []
    for p in range(16):
        t = oracle.log_row(p, k)[1][2:]
        v = np.float32(np.concatenate([np.nextafter(t, np.float32(0)), t, np.nextafter(t, np.float32(2))]).astype(
            np.float64) ** 2)
        least = np.float32(2.0 ** (-2 * oracle.log_range(p, k)))
        v = v[v >= least]
        v = np.append(v, np.full(-v.size % 62, 1, np.float32)).reshape(-1, 62)
        parts.append(np.concatenate([np.ones((len(v), 1), np.float32), np.full((len(v), 1), least), v], 1))
    v = np.concatenate(parts)
    source = tmp_path / "s.safetensors"
    save_file({"w.exp_avg_sq": v}, source)
    packed = tmp_path / "p.safetensors"
    tersor("pack", source, "-o", packed, "-q", "--variance", codec, "--group", group, check=0)
    for suffix, plane in oracle.encode(codec, v, group, "f28").items():
        np.testing.assert_array_equal(load_file(packed)["w.exp_avg_sq" + suffix], plane)


@pytest.mark.parametrize("codec", sorted(oracle.WITHOUT_ZERO))
def test_ratios_above_the_range_of_the_scale_are_stored_otherwise(tersor, tmp_path, codec):
    """e5m3 ends at 3840: a group of larger ratios would come back as small ones."""
    source, packed = tmp_path / "s.safetensors", tmp_path / "p.safetensors"
    for ratio, other in (3800.5, False), (4000.5, True), (1000000.5, True):
        x = np.full((2, 64), ratio, np.float32)
        save_file({"w.exp_avg": x, "w.exp_avg_sq": np.ones_like(x)}, source)
        done = tersor("pack", source, "-fo", packed, "--momentum", codec, "--variance", "f32", check=0)
        assert ("softsign8 instead" in done.stderr) == other, done.stderr
        assert (load_file(packed)["w.exp_avg::quantized"].dtype == np.int8) == other


@pytest.mark.parametrize("codec", [c for c in oracle.PACKED if c in oracle.RATIOS])
def test_every_threshold_of_ratios(tersor, tmp_path, codec):
    """Ratios from -1 to 1 around each place where the code changes, and where nothing is ordinary."""
    k, group = oracle.PACKED[codec], 64
    if codec in oracle.WITHOUT_ZERO:
        at = np.array(oracle.MAX_LEVELS[k])
        z = (at[1:] + at[:-1]) / 2 / 3
    else:
        levels = 2 ** (k - 1) - 1
        half = (np.arange(levels) + 0.5) / levels
        z = half / (2 - half)
    z = np.float32(z)
    near = np.concatenate([np.nextafter(z, np.float32(0)), z, np.nextafter(z, np.float32(2)), np.zeros(1, np.float32)])
    near = np.append(near, np.zeros(-near.size % 31, np.float32)).reshape(-1, 31)
    x = np.concatenate([np.ones((len(near), 1), np.float32), near, -near, -np.ones((len(near), 1), np.float32)], 1)
    most = (11,) if codec in oracle.WITHOUT_ZERO else (63, 120, 127)     # e5m3 ends at 3840
    x = np.concatenate([x * np.float32(2.0 ** e) for e in (0, -1, -62, -126, -140, *most)])
    with np.errstate(over="ignore"):
        x = np.clip(x, -np.finfo(np.float32).max, np.finfo(np.float32).max)
    tensors = {"w.exp_avg": x, "w.exp_avg_sq": np.ones_like(x)}
    source = tmp_path / "s.safetensors"
    save_file(tensors, source)
    packed = tmp_path / "p.safetensors"
    tersor("pack", source, "-o", packed, "-q", "--momentum", codec, "--variance", "f32", "--group", group, check=0)
    p = oracle.ratio(x, tensors["w.exp_avg_sq"])
    for suffix, plane in oracle.encode(codec, p, group, scale_of(codec)).items():
        np.testing.assert_array_equal(load_file(packed)["w.exp_avg" + suffix], plane)


@pytest.mark.parametrize("codec", oracle.WITHOUT_ZERO)
def test_ties_between_levels(tersor, tmp_path, codec):
    """A group whose scale is 1, with every middle of two levels and the floats beside it."""
    level = [round(x * 10000) for x in oracle.MAX_LEVELS[oracle.PACKED[codec]]]
    middle = np.array([np.float32((a + b) / 20000) for a, b in zip(level, level[1:])])
    near = np.concatenate([np.nextafter(middle, np.float32(0)), middle, np.nextafter(middle, np.float32(9))])
    near = np.concatenate([near, -near])
    rest = np.sqrt((128 - (np.float64(near) ** 2).sum()) / (128 - near.size))
    x = np.append(near, np.full(128 - near.size, rest, np.float32))
    source, packed = tmp_path / "s.safetensors", tmp_path / "p.safetensors"
    save_file({"w.exp_avg": x, "w.exp_avg_sq": np.ones_like(x)}, source)
    tersor("pack", source, "-o", packed, "-q", "--momentum", codec, "--variance", "f32", "--group", 128, check=0)
    arrays = load_file(packed)
    assert oracle.load_scale(arrays["w.exp_avg::scales"], "e5m3") == [1]
    for suffix, plane in oracle.encode(codec, x, 128, "e5m3").items():
        np.testing.assert_array_equal(arrays["w.exp_avg" + suffix], plane)


# Update NMSE of the step that comes back: median and worst of the parameters.
@pytest.mark.parametrize("momentum, variance, median, worst", [
    ("ratio9", "log7", 7.4e-6, 1.05e-5), ("ratio10", "log6", 1.9e-6, 3.0e-6), ("ratio4", "log4", 9.1e-3, 3.0e-2),
    ("ratio3", "log3", 3.3e-2, 8.2e-2)])
@pytest.mark.parametrize("source, count", [(TRAINED, 29), (WORST, 14)])
def test_updates_of_trained_models(tersor, tmp_path, momentum, variance, median, worst, source, count):
    want, got = load_file(source), unpack(tersor, pack(tersor, tmp_path, source, momentum, variance))
    errors = []
    for name in [name for name in want if name + ".exp_avg" in want]:
        u, back = (np.float64(t[name + ".exp_avg"] / (np.sqrt(t[name + ".exp_avg_sq"]) + np.float32(1e-8)))
                   for t in (want, got))
        errors.append(((back - u) ** 2).sum() / (u ** 2).sum())
    assert len(errors) == count and np.median(errors) <= median and max(errors) <= worst, (np.median(errors), max(errors))


@pytest.mark.parametrize("form, codecs, bits", [
    ("fine", {("momentum", "ratio9", 64), ("variance", "log7", 128)}, 8.25),
    ("four", {("momentum", "ratio4", 64), ("variance", "log4", 256)}, 4.125)])
def test_forms(tersor, tmp_path, form, codecs, bits):
    rng = np.random.default_rng(1)
    source, packed = tmp_path / "s.safetensors", tmp_path / "p.safetensors"
    tensors = {f"w.{k}": x for k, x in state(rng, (512, 512)).items()} | {"w": np.ones((512, 512), np.float32)}
    save_file(tensors, source)
    tersor("pack", source, "-o", packed, "--state", form, "--weights", "f32", check=0)
    read = reader.read(packed).tensors
    assert {(t.kind, t.codec, t.group) for t in read.values() if t.kind != "weight"} == codecs
    nbytes = sum(x.nbytes for name, x in load_file(packed).items() if ".exp_avg" in name)
    assert nbytes * 8 / 2 == bits * 512 * 512
    report = json.loads(tersor("audit", source, "--state", form, "--json", check=0).stdout)
    assert form in json.dumps(report)


def test_a_group_that_is_no_multiple_of_32(tersor, tmp_path):
    rng = np.random.default_rng(1)
    source = tmp_path / "s.safetensors"
    tensors = {f"w.{k}": x for k, x in state(rng, (1000,)).items()}
    save_file(tensors, source)
    packed = pack(tersor, tmp_path, source, "ratio9", "log7", "--group", 33, "--min-elements", 1)
    check(tersor, packed, tensors, 64)
