"""Momenta as ratios to their variances: docs/internals/numerics.md, docs/internals/format.md 8.13."""
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import packed_text
import oracle
import reader
from conftest import DATA

TRAINED = DATA / "tiny-gpt" / "expected-adamw-fp32.safetensors"
EPS = 1e-8


def pack(tersor, folder, source, *args, variance="sqrt8"):
    packed = folder / "packed.safetensors"
    tersor("pack", source, "-o", packed, "-f", "-q", "--momentum", "ratio8", "--variance", variance, *args,
           check=0)
    return packed


def unpack(tersor, packed):
    out = packed.with_name("out.safetensors")
    tersor("unpack", packed, "-o", out, "-f", "-qq", check=0)
    return load_file(out)


def state(rng, shape):
    """A momentum and a variance whose elements range over orders of magnitude, some of them 0."""
    v = np.float32(np.exp(rng.normal(-15, 5, shape)))
    m = np.float32(rng.normal(0, 0.3, shape) * np.sqrt(v))
    v.ravel()[::17] = 0
    return {"exp_avg": m, "exp_avg_sq": v}


def stored(packed, name):
    arrays = load_file(packed)
    return {s: arrays[name + s] for s in ("::quantized", "::scales")}


@pytest.mark.parametrize("variance, worst", [("log8", 3.4e-4), ("sqrt8", 7.7e-5), ("f32", 5e-5), ("ulinear8", 2.6e-4),
                                             ("bf16", 5e-5)])
def test_updates_of_a_trained_model(tersor, tmp_path, variance, worst):
    """With softsign8: 3.7e-5 and 1.1e-4.  The variance's codec matters to later updates only."""
    want = load_file(TRAINED)
    got = unpack(tersor, pack(tersor, tmp_path, TRAINED, variance=variance))
    names = [name for name in want if name + ".exp_avg" in want]
    errors = [oracle.update_error(*(t[name + s] for t in (want, got)
                                    for s in (".exp_avg", ".exp_avg_sq"))) for name in names]
    assert len(names) == 29 and np.median(errors) <= 2.9e-5 and max(errors) <= worst, max(errors)


# Sizes of groups, of which those of the variance begin elsewhere; rows that groups follow, and flat ones.
@pytest.mark.parametrize("group", [None, 32, 48, 1000])
@pytest.mark.parametrize("variance", ["log8", "sqrt8", "f32"])
def test_codes_are_those_of_ratios(tersor, tmp_path, group, variance):
    rng = np.random.default_rng(3)
    shapes = [(1000,), (40, 100), (3, 48), (7, 64), (2, 3, 130)]
    source = tmp_path / "s.safetensors"
    tensors = {f"t{i}.{k}": x for i, shape in enumerate(shapes) for k, x in state(rng, shape).items()}
    save_file(tensors, source)
    packed = pack(tersor, tmp_path, source, *(["--group", group] if group else []), variance=variance)
    read, got = reader.read(packed).tensors, unpack(tersor, packed)
    for i, shape in enumerate(shapes):
        m, v = tensors[f"t{i}.exp_avg"], tensors[f"t{i}.exp_avg_sq"]
        size = group or 64
        want = oracle.encode("ratio8", oracle.ratio(m, v).reshape(shape), size)
        planes = stored(packed, f"t{i}.exp_avg")
        for suffix, plane in want.items():
            np.testing.assert_array_equal(planes[suffix].ravel(), plane.ravel(), str(shape))
        back = oracle.decode("ratio8", want, size).reshape(shape)
        back = oracle.momentum(back, got[f"t{i}.exp_avg_sq"])
        assert got[f"t{i}.exp_avg"].tobytes() == back.tobytes()
        assert read[f"t{i}.exp_avg"].array.tobytes() == back.tobytes()
        assert read[f"t{i}.exp_avg"].beside == f"t{i}.exp_avg_sq"


@pytest.mark.parametrize("threads", [1, 3])
def test_tiles_and_threads_change_nothing(tersor, tmp_path, threads):
    rng = np.random.default_rng(9)
    source = tmp_path / "s.safetensors"
    tensors = {f"t{i}.{k}": x for i, n in enumerate([700001, 262144 * 2])
               for k, x in state(rng, (n,)).items()}
    save_file(tensors, source)
    packed = pack(tersor, tmp_path, source, "-j", threads)
    got = unpack(tersor, packed)
    for i in range(2):
        p = oracle.ratio(tensors[f"t{i}.exp_avg"], tensors[f"t{i}.exp_avg_sq"])
        back = oracle.decode("ratio8", oracle.encode("ratio8", p, 64), 64)
        back = oracle.momentum(back, got[f"t{i}.exp_avg_sq"])
        assert got[f"t{i}.exp_avg"].tobytes() == back.tobytes()
    tersor("verify", packed, "--against", source, check=0)
    assert tersor("diff", packed, tmp_path / "out.safetensors", check=0).returncode == 0


def codecs(packed):
    return {name: t.codec for name, t in reader.read(packed).tensors.items()}


def test_a_momentum_without_a_variance_gets_softsign8(tersor, tmp_path):
    rng = np.random.default_rng(1)
    source = tmp_path / "s.safetensors"
    s = state(rng, (64, 64))
    save_file({"a": s["exp_avg"], "a.exp_avg": s["exp_avg"], "b": s["exp_avg"], "b.momentum_buffer": s["exp_avg"]},
              source)
    done = tersor("pack", source, "-o", tmp_path / "p.safetensors", "--momentum", "ratio8", check=0)
    assert codecs(tmp_path / "p.safetensors")["a.exp_avg"] == "softsign8"
    assert "a.exp_avg and 1 more: have no variance here" in done.stderr and "softsign8 instead" in done.stderr


@pytest.mark.parametrize("what, m, v", [
    ("non-finite", 1.0, np.nan), ("negative", 1.0, -1.0), ("overflows", 3e38, 0.0)])
def test_ratios_that_cannot_be_held_are_not_made(tersor, tmp_path, what, m, v):
    rng = np.random.default_rng(2)
    s = state(rng, (64, 64))
    s["exp_avg"][3, 3], s["exp_avg_sq"][3, 3] = m, v
    source = tmp_path / "s.safetensors"
    save_file({f"w.{k}": x for k, x in s.items()}, source)
    packed = pack(tersor, tmp_path, source)
    assert codecs(packed)["w.exp_avg"] == "softsign8"
    assert abs(unpack(tersor, packed)["w.exp_avg"][3, 3] - np.float32(m)) <= abs(m) * 0.01


def forge(packed, change):
    """Change the description of a packed file, and its check."""
    blob = packed.read_bytes()
    n = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:8 + n])
    meta = header["__metadata__"]
    text = packed_text.read(packed)
    change(text["tensors"])
    meta["tersor"] = json.dumps(packed_text.fold(text))
    meta["tersor_check"] = "0" * 16
    out = json.dumps(header, separators=(",", ":")).encode()
    digits = reader.header_hash(out, b"0" * 16)
    out = out.replace(b'"tersor_check":"' + b"0" * 16, b'"tersor_check":"' + digits.encode())
    packed.write_bytes(struct.pack("<Q", len(out)) + out + blob[8 + n:])


@pytest.mark.parametrize("beside, eps, message", [
    ("x.exp_avg_sq", 1e-8, "found beside x.exp_avg_sq"), ("w.exp_avg", 1e-8, "found beside w.exp_avg"),
    ("small.exp_avg_sq", 1e-8, "found beside small"), (None, 1e-8, "beside is not a name"),
    ("w.exp_avg_sq", -1, "eps is not a number"), ("w.exp_avg_sq", "1", "eps is not a number"),
    ("w.exp_avg_sq", 1e300, "eps is not a number"), ("w.exp_avg_sq", None, "eps is not a number"),
    ("w.exp_avg_sq", "missing", "eps is not a number")])
def test_damaged_files_are_refused(tersor, tmp_path, beside, eps, message):
    rng = np.random.default_rng(2)
    source = tmp_path / "s.safetensors"
    save_file({f"w.{k}": x for k, x in state(rng, (8, 64)).items()}
              | {f"small.{k}": x for k, x in state(rng, (64,)).items()}, source)
    packed = pack(tersor, tmp_path, source)

    def change(tensors):
        entry = next(t for t in tensors if t["name"] == "w.exp_avg")
        entry.update(beside=beside, eps=eps)
        if eps == "missing":
            del entry["eps"]
    forge(packed, change)
    recording = ["replay", DATA / "tiny-gpt" / "recording", "-o", tmp_path / "r.safetensors"]
    for command in (["inspect"], ["verify"], ["unpack", "-o", tmp_path / "u.safetensors"], recording):
        done = tersor(command[0], packed, *command[1:], check=3)
        assert message in done.stderr, done.stderr
    with pytest.raises(reader.ReaderError):
        reader.read(packed)


def test_eps_is_the_optimizers(tersor, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.AdamW(model.parameters(), eps=1e-5)
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    packed = pack(tersor, tmp_path, tmp_path / "c.pt")
    tensors = [t for t in reader.read(packed).tensors.values() if t.codec == "ratio8"]
    assert len(tensors) == 2 and all(np.float32(t.eps) == np.float32(1e-5) for t in tensors)


def test_bf16_states(tersor, tmp_path):
    rng = np.random.default_rng(6)
    torch = pytest.importorskip("torch")
    s = {f"w.{k}": torch.from_numpy(x).bfloat16() for k, x in state(rng, (16, 64)).items()}
    torch.save(s, tmp_path / "s.pt")
    packed = pack(tersor, tmp_path, tmp_path / "s.pt")
    tersor("unpack", packed, "-o", tmp_path / "u.pt", "-qq", check=0)
    got = torch.load(tmp_path / "u.pt")
    read = reader.read(packed).tensors["w.exp_avg"]
    assert read.codec == "ratio8" and got["w.exp_avg"].dtype == torch.bfloat16
    np.testing.assert_array_equal(got["w.exp_avg"].float().numpy(), read.array)


def test_shards_have_both(tersor, tmp_path):
    """The variance is in another shard than the momentum."""
    rng = np.random.default_rng(6)
    source = tmp_path / "s.safetensors"
    save_file({f"w.{k}": x for k, x in state(rng, (64, 640)).items()}, source)
    packed = tmp_path / "p.safetensors"
    tersor("pack", source, "-o", packed, "--momentum", "ratio8", "--max-shard-size", "45KB", "-q", check=0)
    index = packed.with_name("p.safetensors.index.json")
    whole = unpack(tersor, pack(tersor, tmp_path, source))
    tersor("verify", index, "--against", source, check=0)
    tersor("unpack", index, "-o", tmp_path / "u.safetensors", "-qq", check=0)
    assert load_file(tmp_path / "u.safetensors")["w.exp_avg"].tobytes() == whole["w.exp_avg"].tobytes()
    assert reader.read(index).tensors["w.exp_avg"].array.tobytes() == whole["w.exp_avg"].tobytes()


# ---- log8, and both ------------------------------------------------------------------------------

def test_tables_are_correctly_rounded():
    """The reader's powers in binary64 are those of 40 digits."""
    for p in range(16):
        codes, scale = np.arange(256, dtype=np.uint8), np.full(256, 0x3f800000 | p, np.uint32)
        values, thresholds = oracle.log_row(p)
        np.testing.assert_array_equal(reader.decode_log(codes, scale), values * values)
        assert (np.diff(values) > 0).all() and (thresholds[2:] > values[1:-1]).all()


def variances(rng):
    """Ranges from none to all, subnormal roots' squares, zeros, the largest finite, one of a kind."""
    for octaves in (0, 0.1, 0.3, 1.7, 7.9, 8.1, 16, 30, 50, 120):
        v = np.exp2(-rng.uniform(0, octaves, 1000) - rng.uniform(0, 20)).astype(np.float32)
        v[::13] = 0
        yield v
    yield np.float32(1e-45) * rng.integers(0, 9, 999).astype(np.float32)
    yield np.full(64, np.finfo(np.float32).max)
    yield np.float32([3e38] + [1e-45] * 70)
    yield np.zeros(100, np.float32)
    yield np.float32(rng.random((7, 100)))
    yield np.float32([[0.5]])


@pytest.mark.parametrize("group", [None, 1, 33])
def test_codes_of_variances(tersor, tmp_path, group):
    tensors = {f"t{i}.exp_avg_sq": v for i, v in enumerate(variances(np.random.default_rng(8)))}
    source = tmp_path / "s.safetensors"
    save_file(tensors, source)
    packed = pack(tersor, tmp_path, source, *(["--group", group] if group else []), "--min-elements", 1,
                  variance="log8")
    got, read = unpack(tersor, packed), reader.read(packed).tensors
    for name, v in tensors.items():
        want = oracle.encode("log8", v, group or 64, "f28")
        planes = stored(packed, name)
        np.testing.assert_array_equal(planes["::scales"], want["::scales"], name)
        np.testing.assert_array_equal(planes["::quantized"].ravel(), want["::quantized"].ravel(), name)
        back = oracle.decode("log8", want, group or 64, "f28").reshape(v.shape)
        assert got[name].tobytes() == back.tobytes() == read[name].array.tobytes()
        assert ((back > 0) == (v > 0)).all() and np.isfinite(back).all()


def test_every_threshold_from_both_sides(tersor, tmp_path):
    """Roots whose ratio to the scale is a threshold, and the next ones: their squares are inexact, so a momentum's
    FP32 variance is chosen whose root is the wanted one."""
    parts = []
    for p in range(16):
        t = oracle.log_row(p)[1][2:]
        near = np.unique(np.concatenate([np.nextafter(t, np.float32(0)), t, np.nextafter(t, np.float32(2))]))
        v = np.float32(near.astype(np.float64) ** 2)
        least = np.float32(2.0 ** (-2 * oracle.LOG_RANGES[p]))
        v = v[v >= least]
        v = np.append(v, np.full(-v.size % 62, 1, np.float32)).reshape(-1, 62)
        parts.append(np.concatenate([np.ones((len(v), 1), np.float32), np.full((len(v), 1), least), v], 1))
    v = np.concatenate(parts)
    source = tmp_path / "s.safetensors"
    save_file({"w.exp_avg_sq": v}, source)
    planes = stored(pack(tersor, tmp_path, source, variance="log8"), "w.exp_avg_sq")
    want = oracle.encode("log8", v, 64, "f28")
    assert set(want["::scales"] & 15) == set(range(16))
    np.testing.assert_array_equal(planes["::quantized"].ravel(), want["::quantized"])


def test_tight_is_both(tersor, tmp_path):
    packed = tmp_path / "p.safetensors"
    tersor("pack", TRAINED, "-o", packed, "--state", "tight", "--weights", "f32", check=0)
    kinds = {(t.kind, t.codec, t.group) for t in reader.read(packed).tensors.values() if t.kind != "weight"}
    assert kinds == {("momentum", "ratio8", 64), ("variance", "log8", 64)}
    want, got = load_file(TRAINED), unpack(tersor, packed)
    names = [name for name in want if name + ".exp_avg" in want]
    errors = [oracle.update_error(*(t[n + s] for t in (want, got) for s in (".exp_avg", ".exp_avg_sq")))
              for n in names]
    assert np.median(errors) <= 2.9e-5 and max(errors) <= 3.4e-4
    arrays = load_file(packed)
    nbytes = sum(x.nbytes for name, x in arrays.items() if ".exp_avg" in name)
    assert nbytes * 8 / 2 <= 8.45 * sum(want[n].size for n in names)     # small tensors have short groups
