# SPDX-License-Identifier: Apache-2.0
"""Momenta as a product of rank 16 or 32 and what it leaves (docs/internals/format.md 8.19), against numpy."""
import copy
import hashlib
import json

import numpy as np
import pytest
import torchfile
from safetensors.numpy import load_file, save_file

import oracle
import reader
from conftest import run_tersor
from test_delta import training
from test_format import joined, one_piece, parts, plane, refused, unpacked
from test_muon import BEFORE, error, report

CODEC, TWICE = "lowrank16+linear8", "lowrank32+linear8"
MOMENTUM = "w.exp_avg"
FACTORS = MOMENTUM + "::factors"
SHAPES = [(200, 256), (256, 200), (120, 3000), (3000, 120), (300, 300)]


def matrix(shape, rank=24, noise=0.05, seed=0):
    """Singular values that fall, and noise, as a gradient's."""
    rng = np.random.default_rng(seed)
    left, right = (rng.standard_normal((n, rank)) for n in shape)
    return np.float32(1e-3 * (left * np.geomspace(3, 0.1, rank) @ right.T + noise * rng.standard_normal(shape)))


def pack(folder, tensors, *args, name="packed.safetensors", codec=CODEC, check=0):
    """Tensors or a file, packed."""
    if isinstance(tensors, dict):
        save_file(tensors, folder / "s.safetensors")
        tensors = folder / "s.safetensors"
    done = run_tersor("pack", tensors, "-o", folder / name, "-f", "--min-elements", "1", "--momentum", codec, *args,
                      check=check)
    return folder / name, done


def unpack(packed):
    run_tersor("unpack", packed, "-o", packed.with_suffix(".out"), "-f", "-qq", check=0)
    return load_file(packed.with_suffix(".out"))


def codecs(packed):
    return {name: t.codec for name, t in reader.read(packed).tensors.items()}


def product_of(packed, name=MOMENTUM):
    tensor = reader.read(packed).tensors[name]
    return reader.product(tensor.shape, load_file(packed)[name + "::factors"].tobytes())


@pytest.mark.parametrize("args, group, scale", [
    ((), 32, "e8m8"), (("--scale", "f32"), 32, "f32"), (("--group", 48), 48, "e8m8"), (("--group", 7), 7, "e8m8")])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_planes_and_values(tmp_path, shape, args, group, scale):
    m = matrix(shape)
    packed, _ = pack(tmp_path, {MOMENTUM: m}, *args)
    arrays, got, rest = load_file(packed), unpack(packed)[MOMENTUM], m - product_of(packed)
    assert codecs(packed) == {MOMENTUM: CODEC}
    want = oracle.encode("linear8", rest, group, scale)
    for suffix, content in want.items():
        np.testing.assert_array_equal(arrays[MOMENTUM + suffix].view(content.dtype).ravel(), content.ravel(), suffix)
    assert got.tobytes() == reader.read(packed).tensors[MOMENTUM].array.tobytes()
    assert np.abs(got - m).max() <= np.abs(rest).max() / 200


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors_are_nearly_the_best(tmp_path, shape):
    """Singular values say what any product of rank 16 leaves at least."""
    m = matrix(shape, rank=60)
    packed, _ = pack(tmp_path, {MOMENTUM: m})
    least = (np.linalg.svd(m.astype("f8"), compute_uv=False)[16:] ** 2).sum()
    assert least * 0.999 <= ((m - product_of(packed).astype("f8")) ** 2).sum() <= least * 1.12
    plain, _ = pack(tmp_path, {MOMENTUM: m}, "--momentum", "linear8", name="plain.safetensors")
    found, other = (error(m, unpack(path)[MOMENTUM]) for path in (packed, plain))
    assert found < other * 0.6


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rank_32_is_rank_16_of_what_rank_16_leaves(tmp_path, shape):
    m = matrix(shape, rank=60)
    first, _ = pack(tmp_path, {MOMENTUM: m}, name="first.safetensors")
    packed, _ = pack(tmp_path, {MOMENTUM: m}, codec=TWICE)
    second, _ = pack(tmp_path, {MOMENTUM: m - product_of(first)}, name="second.safetensors")
    arrays, rest = load_file(packed), m - product_of(packed)
    assert codecs(packed) == {MOMENTUM: TWICE}
    stages = [load_file(path)[FACTORS].tobytes() for path in (first, second)]
    assert arrays[FACTORS].tobytes() == b"".join(stages)
    for suffix, content in oracle.encode("linear8", rest, 32, "e8m8").items():
        np.testing.assert_array_equal(arrays[MOMENTUM + suffix].view(content.dtype).ravel(), content.ravel(), suffix)
    got = unpack(packed)[MOMENTUM]
    assert got.tobytes() == reader.read(packed).tensors[MOMENTUM].array.tobytes()
    least = (np.linalg.svd(m.astype("f8"), compute_uv=False)[32:] ** 2).sum()
    assert least * 0.999 <= (rest.astype("f8") ** 2).sum() <= least * 1.3
    assert error(m, got) < error(m, unpack(first)[MOMENTUM]) * 0.8


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_less_rank_than_factors_have(tmp_path, rank):
    m = matrix((200, 256), rank, noise=0)
    packed, _ = pack(tmp_path, {MOMENTUM: m})
    assert np.abs(unpack(packed)[MOMENTUM] - m).max() <= np.abs(m).max() * 1e-4
    assert np.isfinite(product_of(packed)).all() and (rank or not np.any(product_of(packed)))


@pytest.mark.parametrize("scale", [1e-42, 1e-37, 1e-20, 1e30, 1e38])
def test_any_magnitude(tmp_path, scale):
    m = matrix((200, 256))
    m = np.float32(m / np.abs(m).max() * np.float64(scale))
    packed, _ = pack(tmp_path, {MOMENTUM: m})
    assert codecs(packed) == {MOMENTUM: CODEC}
    got = unpack(packed)[MOMENTUM].astype("f8")
    assert ((got - m) ** 2).sum() <= (3e-5 if scale > 1e-38 else 1e-2) * (m.astype("f8") ** 2).sum()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_momenta(tmp_path, dtype):
    """Values are rounded to the type of the source after the sum."""
    bits = oracle.narrow(matrix((200, 256)), {"bfloat16": "bf16", "float16": "fp16"}[dtype])
    storage = torchfile.Storage(bits.tobytes(), {"bfloat16": "BFloat16Storage", "float16": "HalfStorage"}[dtype])
    (tmp_path / "s.pt").write_bytes(torchfile.pt({
        "model": {"w": torchfile.tensor(matrix((200, 256)))},
        "optimizer": {"state": {0: {"momentum_buffer": torchfile.Tensor(storage, (200, 256))}},
                      "param_groups": [{"lr": 0.1, "ns_steps": 5, "params": [0]}]}}))
    packed, _ = pack(tmp_path, tmp_path / "s.pt")
    name = "w.momentum_buffer"
    assert codecs(packed)[name] == CODEC
    run_tersor("unpack", packed, "--to", "safetensors", "-o", tmp_path / "u", "-f", check=0)
    header, _, data = parts_of((tmp_path / "u").read_bytes())
    want = reader.NARROW[header[name]["dtype"]](reader.read(packed).tensors[name].array.ravel())
    assert plane(header, data, name) == want.tobytes()


def parts_of(blob):
    size = int.from_bytes(blob[:8], "little")
    return json.loads(blob[8:8 + size]), None, blob[8 + size:]


@pytest.mark.parametrize("codec", [CODEC, TWICE])
def test_threads_processors_tiles_and_coded_planes(tmp_path, monkeypatch, codec):
    """700,000 elements are three pieces; a row is in none but one."""
    tensors = {f"{i}.exp_avg": matrix(shape, seed=i) for i, shape in enumerate([(700, 1000), (300, 2000), (4000, 150)])}
    packed, _ = pack(tmp_path, tensors, "-j", 1, codec=codec)
    want = unpack(packed)
    assert set(codecs(packed).values()) == {codec}
    assert all(t.array.tobytes() == want[name].tobytes() for name, t in reader.read(packed).tensors.items())
    for i, (level, threads) in enumerate([("base", 1), ("avx2", 3), (None, 2)]):
        if level:
            monkeypatch.setenv("TERSOR_ISA", level)
        other, _ = pack(tmp_path, tensors, "-j", threads, name=f"{i}.safetensors", codec=codec)
        assert other.read_bytes() == packed.read_bytes()
        assert all(x.tobytes() == want[name].tobytes() for name, x in unpack(other).items())
    coded, _ = pack(tmp_path, tensors, "--entropy", name="coded.safetensors", codec=codec)
    assert coded.stat().st_size < packed.stat().st_size
    for path in (coded, packed):
        run_tersor("verify", path, "--against", tmp_path / "s.safetensors", check=0)
    assert all(x.tobytes() == want[name].tobytes() for name, x in unpack(coded).items())
    run_tersor("convert", "--plain", coded, "-o", tmp_path / "plain.safetensors", check=0)
    assert (tmp_path / "plain.safetensors").read_bytes() == packed.read_bytes()


def test_a_delta_and_its_base(tmp_path):
    old, new = training(tmp_path, shape=(200, 300))
    base, _ = pack(tmp_path, old, "--entropy", name="base.safetensors")
    delta, _ = pack(tmp_path, new, "--delta", base, name="delta.safetensors")
    plain, _ = pack(tmp_path, new, name="plain.safetensors")
    run_tersor("convert", "--plain", delta, "-o", tmp_path / "back.safetensors", check=0)
    assert codecs(plain)["a.weight.exp_avg"] == CODEC
    assert (tmp_path / "back.safetensors").read_bytes() == plain.read_bytes()


def test_parts_make_the_same_file(tmp_path):
    m = matrix((700, 1000))
    packed, _ = pack(tmp_path, {MOMENTUM: m})
    args = ["pack", tmp_path / "s.safetensors", "-o", tmp_path / "p", "--momentum", CODEC, "--min-elements", 1]
    for i in (1, 2):
        run_tersor(*args, "--part", f"{i}/2", check=0)
    run_tersor("join", tmp_path / "p", check=0)
    assert (tmp_path / "p").read_bytes() == packed.read_bytes()


def test_what_has_no_factors_has_softsign8(tmp_path):
    tensors = {"a.exp_avg": matrix((100, 100)), "b.exp_avg": matrix((1, 5000))[0],
               "c.exp_avg": matrix((200, 512)).reshape(2, 100, 512), "d.exp_avg": matrix((200, 256)),
               "e.exp_avg": np.zeros((200, 256), np.float32), "f.exp_avg": matrix((90000, 3)).T.copy()}
    packed, done = pack(tmp_path, tensors)
    assert codecs(packed) == dict.fromkeys(tensors, "softsign8") | {"d.exp_avg": CODEC, "e.exp_avg": CODEC}
    assert "4 tensors have softsign8, the first a.exp_avg: a low-rank codec is for matrices" in done.stderr
    assert not unpack(packed)["e.exp_avg"].any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_matrix_with_an_element_that_is_not_finite_stays_raw(tmp_path, value):
    m = matrix((200, 256))
    m[17, 3] = value
    packed, done = pack(tmp_path, {MOMENTUM: m, "x.exp_avg": matrix((200, 256))})
    assert codecs(packed) == {MOMENTUM: "raw", "x.exp_avg": CODEC} and MOMENTUM in done.stdout + done.stderr
    assert unpack(packed)[MOMENTUM].tobytes() == m.tobytes()
    _, done = pack(tmp_path, {MOMENTUM: m}, "--strict", check=3)
    assert MOMENTUM in done.stderr


# ---- Judged by the update ------------------------------------------------------------------------

@pytest.fixture(scope="module")
def muon(tmp_path_factory):
    path = tmp_path_factory.mktemp("muon") / "s.pt"
    m = {i: matrix((200, 256), seed=i) for i in range(2)}
    path.write_bytes(torchfile.pt({
        "model": {name: torchfile.tensor(m[i]) for i, name in enumerate("ab")},
        "optimizer": {"state": {i: {"momentum_buffer": torchfile.tensor(x)} for i, x in m.items()},
                      "param_groups": [{"lr": 0.1, "ns_steps": 5, "params": [0, 1]}]}}))
    return path, {f"{name}.momentum_buffer": m[i] for i, name in enumerate("ab")}


def test_audit_and_pack_have_the_error_of_the_update(muon, tmp_path):
    path, momenta = muon
    packed, _ = pack(tmp_path, path)
    run_tersor("unpack", packed, "--to", "safetensors", "-o", tmp_path / "u", check=0)
    errors = {name: error(m, load_file(tmp_path / "u")[name]) for name, m in momenta.items()}
    found = report("audit", path, "--codec", f"{CODEC},softsign8,bf16,{TWICE}")["checkpoints"][0]
    pair = {p["momentum"]: p for p in found["pairs"]}
    assert pair[CODEC]["nmse"][6] == pytest.approx(max(errors.values()), rel=1e-3)
    assert pair[CODEC]["nmse"][6] < pair["softsign8"]["nmse"][6] / 2
    assert pair[TWICE]["nmse"][6] < pair[CODEC]["nmse"][6]
    seen = {(t["name"], t["codec"]): t for c in found["tensors"] for t in [{**c, **x} for x in c.get("codecs", [])]}
    packed = report("pack", path, "-o", tmp_path / "q", "--min-elements", "1", "--momentum", CODEC)["tensors"]
    for tensor in packed:
        if tensor["name"] in errors:
            assert tensor["update"]["nmse"] == pytest.approx(errors[tensor["name"]], rel=1e-3)
            assert seen[tensor["name"], CODEC]["nmse"] == pytest.approx(tensor["error"]["nmse"], rel=1e-6)


def test_auto_takes_it_where_softsign8_is_too_far_off(muon, tmp_path):
    path, momenta = muon
    soft = report("pack", path, "-o", tmp_path / "s", "--min-elements", "1")["tensors"]
    worst = max(t["update"]["nmse"] for t in soft if t["name"] in momenta)
    for bound, want in ((worst * 1.01, "softsign8"), (worst / 2, CODEC)):
        done = report("pack", path, "-o", tmp_path / "a", "-f", "--min-elements", "1", "--auto", str(bound),
                      "--auto-codecs", f"softsign8/sqrt8,{CODEC}/sqrt8")
        assert {t["codec"] for t in done["tensors"] if t["name"] in momenta} == {want}


def test_auto_takes_the_rank_that_a_matrix_needs(tmp_path):
    """By the judged update: one of the matrices has a longer tail."""
    path = tmp_path / "s.pt"
    m = {"a": matrix((200, 256), rank=12), "b": matrix((200, 256), rank=40)}
    path.write_bytes(torchfile.pt({
        "model": {name: torchfile.tensor(x) for name, x in m.items()},
        "optimizer": {"state": {i: {"momentum_buffer": torchfile.tensor(x)} for i, x in enumerate(m.values())},
                      "param_groups": [{"lr": 0.1, "ns_steps": 5, "params": [0, 1]}]}}))
    errors = {codec: [t["update"]["nmse"] for t in report(
        "pack", path, "-o", tmp_path / "p", "-f", "--min-elements", "1", "--momentum", codec)["tensors"]
        if t["name"].endswith("momentum_buffer")] for codec in (CODEC, TWICE)}
    assert errors[CODEC][0] < errors[CODEC][1] / 1.1 and errors[TWICE][1] < errors[CODEC][1] / 1.1
    bound = max(errors[CODEC][0], errors[TWICE][1]) * 1.01
    done = report("pack", path, "-o", tmp_path / "a", "--min-elements", "1", "--auto", str(bound), "--auto-codecs",
                  f"{CODEC}/sqrt8,{TWICE}/sqrt8")
    assert {t["name"][0]: t["codec"] for t in done["tensors"] if t["name"].endswith("momentum_buffer")} == {
        "a": CODEC, "b": TWICE}


def test_a_packed_file_is_not_replayed_in_factors(tmp_path):
    done = run_tersor("replay", BEFORE, BEFORE.with_name("muon"), "--momentum", CODEC, "-o", tmp_path / "r", check=2)
    assert "a step changes the whole matrix" in done.stderr and not (tmp_path / "r").exists()


# ---- Hostile files -------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("good"), {MOMENTUM: matrix((200, 256))})[0].read_bytes()


def without_factors(header, tersor, data):
    del header[FACTORS]
    cut = {k: v for k, v in header.items() if k != "__metadata__"}
    out = b""
    for name, entry in cut.items():
        content = plane(header, data, name)
        entry["data_offsets"] = [len(out), len(out) + len(content)]
        out += content
    return out


def shaped(*shape):
    return lambda header, tersor, data: header[FACTORS].update(shape=list(shape))


def entry(**change):
    return lambda header, tersor, data: tersor["tensors"][0].update(change)


@pytest.mark.parametrize("change, expect", [
    (without_factors, f"no plane {FACTORS}"),
    (shaped(200, 42), "does not fit its codec"),
    (lambda h, t, d: h[FACTORS].update(dtype="I8"), "does not fit its codec"),
    (lambda h, t, d: t["tensors"][0].pop("rows") and None, "a low-rank codec without rows"),
    (entry(shape=[51200]), "a low-rank codec of a tensor that it is not for"),
    (entry(shape=[2, 100, 256]), "a low-rank codec of a tensor that it is not for"),
    (entry(shape=[0, 256]), "a low-rank codec of a tensor that it is not for"),
    (entry(shape=[51200, 1]), "a low-rank codec of a tensor that it is not for"),
    (entry(shape=[2**40, 2**8]), "does not fit its codec"),
    (entry(shape=[400, 128]), "does not fit its codec"),
    (entry(group=257), "a low-rank codec of a tensor that it is not for"),
    (entry(scale="f16"), "a scale format that its codec does not have"),
    (entry(codec="lowrank15+linear8"), "unknown codec lowrank15+linear8"),
    (entry(codec=TWICE), "does not fit its codec"),
    (entry(codec="linear8"), "rows of a tensor whose rows its groups divide"),
])
def test_hostile_headers_are_refused(good, tmp_path, change, expect):
    header, tersor, data = parts(good)
    data = change(header, tersor, data) or data
    refused(tmp_path, joined(header, tersor, data), expect)


def test_reserved_name(tmp_path):
    _, done = pack(tmp_path, {"w::factors": matrix((200, 256))}, check=3)
    assert "the name ends in the suffix of a plane" in done.stderr


def test_any_bytes_are_factors(good, tmp_path):
    """What comes out may be NaN, but it comes out, and numpy says the same."""
    header, tersor, data = parts(good)
    begin, end = header[FACTORS]["data_offsets"]
    for seed in range(3):
        other, text = copy.deepcopy(header), copy.deepcopy(tersor)
        content = np.random.default_rng(seed).bytes(end - begin)
        text["tensors"][0]["xxh3"][2] = one_piece(content)
        blob = joined(other, text, data[:begin] + content + data[end:])
        out, _ = unpacked(tmp_path, blob)
        with np.errstate(all="ignore"):
            want = reader.read_bytes(blob).tensors[MOMENTUM].array
        got = np.frombuffer(out[MOMENTUM], "<f4").reshape(want.shape)
        np.testing.assert_array_equal(got, want)


# ---- Golden --------------------------------------------------------------------------------------

def test_planes_of_a_matrix_stay_the_same(tmp_path):
    """Factors, too: every tersor packs to the same bytes."""
    i, j = np.indices((200, 256))
    m = np.float32(((i * 7919 + j * 104729) % 1009 - 504) * ((i * j) % 31 - 15)) * np.float32(2.0 ** -20)
    packed, _ = pack(tmp_path, {MOMENTUM: m})
    found = {name: hashlib.sha256(x.tobytes()).hexdigest()[:16] for name, x in load_file(packed).items()}
    assert found == {MOMENTUM + "::quantized": "2a898af7481755f1", MOMENTUM + "::scales": "f867718d4f93f920",
                     FACTORS: "f7ca59f19fd3525a"}
