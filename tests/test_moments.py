"""BF16 and F16 in packed files, against the oracle and the second reader: states, masters of a model."""
import json
import os

import ml_dtypes
import numpy as np
import pytest

import oracle
import reader
import torchfile
from conftest import DATA, ROOT, one_line_error, write_source
from test_reader import BESIDE, Packed, compare, contents

NARROW = {"BF16": "bf16", "F16": "fp16"}
ALL_BF16 = DATA / "frameworks" / "states" / "all-bf16.pt"
GPT = DATA / "tiny-gpt"


def values(variance=False):
    """FP32 values of many magnitudes, which are then rounded to the type under test."""
    rng = np.random.default_rng(12)
    tensors = {"normal": rng.normal(0, 1e-3, (37, 29)).astype("f4"),
               "wide": (rng.normal(0, 1, 4000) * 10.0 ** rng.integers(-9, 3, 4000)).astype("f4"),
               "subnormal": (rng.integers(-200, 200, 333) * 2.0 ** -24).astype("f4"),
               "zeros": np.array([0, -0.0] * 20, "f4"), "one": np.array([3], "f4"),
               "empty": np.zeros((0, 4), "f4"), "halves": np.full(70, 0.33, "f4")}
    return {name: np.abs(x) if variance else x for name, x in tensors.items()}


def narrow(x, dtype):
    return dtype, x.shape, oracle.narrow(x.ravel(), NARROW[dtype]).astype("<u2").tobytes()


def widen(tensor):
    dtype, _, content = tensor
    return oracle.widen(np.frombuffer(content, "<u2"), NARROW[dtype])


def pack(tersor, tmp_path, tensors, *options):
    source = write_source(tmp_path / "source", tensors)
    report = json.loads(tersor("pack", source, "-o", tmp_path / "packed", "-f", "--json", *options,
                               check=0).stdout)
    return source, tmp_path / "packed", report


@pytest.mark.parametrize("scale, group", [("e8m8", 32), ("f32", 7), ("f16", 100)])
@pytest.mark.parametrize("kind, codec", [("momentum", "softsign8"), ("momentum", "linear8"),
                                         ("variance", "sqrt8"), ("variance", "ulinear8")])
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_states_are_packed(tersor, tmp_path, dtype, kind, codec, scale, group):
    """Codes as for the same values in FP32; what comes back is rounded to the type."""
    tensors = {name: narrow(x, dtype) for name, x in values(kind == "variance").items()}
    source, packed, report = pack(tersor, tmp_path, tensors, f"--map=.={kind}", f"--{kind}", codec,
                                  "--scale", scale, "--group", group)
    arrays = contents(packed)[1]
    checkpoint = compare(packed, tersor)
    back = contents(packed.with_suffix(".unpacked"))[1]
    for name, tensor in tensors.items():
        x = widen(tensor)
        planes = oracle.encode(codec, x.reshape(tensor[1]), group, scale)
        for suffix, plane in planes.items():
            assert arrays[name + suffix][2] == plane.tobytes(), (name, suffix)
        y = oracle.narrow(oracle.decode(codec, planes, group, scale).ravel(), NARROW[dtype])
        assert back[name] == (dtype, tensor[1], y.astype("<u2").tobytes()), name
        error = checkpoint.tensors[name].error
        wide = oracle.widen(y, NARROW[dtype])
        assert error["abs"] == pytest.approx(np.abs(wide - x).max(initial=0), rel=2**-13)
    assert [t["codec"] for t in report["tensors"]] == [codec] * len(tensors)
    done = tersor("verify", packed, "--against", source, check=0)
    assert "errors are as recorded" in done.stdout
    assert "0 differ" in tersor("diff", packed, packed.with_suffix(".unpacked"), check=0).stdout


@pytest.mark.parametrize("tensors, reason", [
    ({"m": [1, np.inf]}, "1 non-finite value"), ({"m": [1, np.nan]}, "1 non-finite value"),
    ({"v": [1, -1, 0]}, "1 negative variance"), ({"v": [1, -0.0]}, None),
    # The scale is rounded up to 65536, from where F16 has no finite number any more.
    ({"m": [65504, 1]}, "1 values and 0 scales overflow the narrow format"),
    ({"m": [65280, 1]}, None)])
def test_what_the_codec_cannot_hold_stays_raw(tersor, tmp_path, tensors, reason):
    tensors = {name: narrow(np.array(x, "f4"), "F16") for name, x in tensors.items()}
    source, packed, report = pack(tersor, tmp_path, tensors, "--map=m=momentum", "--map=v=variance")
    assert [t["raw_reason"] for t in report["tensors"]] == [reason]
    found = compare(packed, tersor).tensors
    for name, tensor in tensors.items():
        assert (found[name].raw == tensor[2]) if reason else found[name].codec != "raw"
    tersor("verify", packed, "--against", source, "--allow-nonfinite", check=0)


def test_only_scaled_codecs_take_narrow_states(tersor, tmp_path):
    """Weights, 8-bit floats and FP64 are raw; so are narrow states without a codec with scales."""
    x = values()["normal"]
    tensors = {"w": narrow(x, "BF16"), "m": narrow(x, "BF16"), "v": narrow(x * x, "BF16"),
               "m64": ("F64", x.shape, x.astype("f8").tobytes()),
               "m8": ("F8_E4M3", x.shape, x.astype(ml_dtypes.float8_e4m3fn).tobytes())}
    kinds = ["--map=^w$=weight", "--map=^m=momentum", "--map=^v$=variance"]
    _, _, report = pack(tersor, tmp_path, tensors, *kinds)
    assert [t["codec"] for t in report["tensors"]] == ["raw", "softsign8", "sqrt8", "raw", "raw"]
    _, packed, report = pack(tersor, tmp_path, tensors, *kinds, "--momentum=bf16", "--variance=f32")
    assert {t["codec"] for t in report["tensors"]} == {"raw"}
    assert {name: t.raw for name, t in compare(packed, tersor).tensors.items()} == {
        name: t[2] for name, t in tensors.items()}


def test_checkpoint_of_bf16_alone(tersor, tmp_path):
    """What PyTorch saved comes back in its own types; moments take 1.06 instead of 2 bytes."""
    packed, back = tmp_path / "packed", tmp_path / "back.pt"
    report = json.loads(tersor("pack", ALL_BF16, "-o", packed, "--json", check=0).stdout)
    for row in report["by_kind"]:
        if row["kind"] in ("momentum", "variance"):
            assert row["codec"] != "raw" and row["nbytes"] == 2 * row["elements"]
            assert row["stored_nbytes"] / row["elements"] == pytest.approx(1 + 2 / 32, rel=1e-3)
    totals = report["totals"]
    assert totals["stored_nbytes"] / totals["parameters"] == pytest.approx(4.125, abs=0.01)
    tersor("verify", packed, "--against", ALL_BF16, check=0)
    tersor("unpack", packed, "-o", back, check=0)
    before, after = torchfile.load(ALL_BF16), torchfile.load(back)
    torchfile.same(before["model"], after["model"])
    nmse = {"exp_avg": 4e-5, "exp_avg_sq": 1e-4}
    for number, state in before["optimizer"]["state"].items():
        for key, limit in nmse.items():
            x, y = state[key], after["optimizer"]["state"][number][key]
            assert x.st_dtype == y.st_dtype == "BF16" and tuple(x.shape) == tuple(y.shape)
            x, y = (widen(torchfile.as_array(t)).astype("f8") for t in (x, y))
            assert ((x - y) ** 2).sum() <= limit * (x ** 2).sum()


def test_bounds_are_in_binary32(tersor, tmp_path):
    """A step of BF16 is 65536 numbers of FP32: a bound on ULP counts those."""
    x = np.linspace(1, 2, 320).astype("f4")
    source = write_source(tmp_path / "in", {"m.exp_avg": narrow(x, "BF16")})
    packed = tmp_path / "packed"
    report = json.loads(tersor("pack", source, "-o", packed, "--json", check=0).stdout)
    ulp = report["tensors"][0]["error"]["ulp"]
    assert ulp >= 65536 and ulp % 65536 == 0
    tersor("verify", packed, "--against", source, "--max-error", f"ulp={ulp}", check=0)
    for command in ("pack", source, "-o", tmp_path / "x"), ("verify", packed, "--against", source):
        done = tersor(*command, "--max-error", f"ulp={ulp - 1}")
        assert done.returncode == 1 and "ulp error" in done.stdout + done.stderr


@pytest.mark.parametrize("change", [{"codec": "bf16"}, {"dtype": "F64"}, {"dtype": "U16"}])
def test_other_codecs_on_narrow_types_are_refused(tersor, tmp_path, change):
    p = Packed()
    if "codec" in change:
        p.add("m", "bf16", np.zeros(3, "<u2"), dtype="BF16")
    else:
        p.add("m", "softsign8", np.zeros(3, "i1"), np.zeros(1, "<u2"), scale="e8m8", group=32)
        p.tersor["tensors"][0] |= change
    bad = p.write(tmp_path / "bad")
    with pytest.raises(reader.ReaderError):
        reader.read(bad)
    assert "a dtype that it does not take" in one_line_error(tersor("verify", bad, check=3))


def test_every_code_as_a_narrow_type(tersor, tmp_path):
    """All codes with scales over the whole range, infinite and NaN ones too, from another writer."""
    codes = np.arange(256, dtype=np.uint8)
    p = Packed()
    for dtype in NARROW:
        for codec, code in reader.SCALED.items():
            if codec in (*reader.TABLED, *reader.PACKED, "log8") or reader.is_lowrank(codec):    # without such scales
                continue
            for number, scale in enumerate((0x0001, 0x0155, 0x7507, 0x8f00, 0xbeff, 0xff00, 0xff80)):
                p.add(f"{codec}.{dtype}.{number}", codec, codes.view(reader.STORED[code]),
                      np.array([scale], "<u2"), dtype=dtype, scale="e8m8", group=256)
    checkpoint = reader.read(p.write(tmp_path / "packed"))
    tersor("unpack", tmp_path / "packed", "-o", tmp_path / "back", check=0)
    for name, tensor in contents(tmp_path / "back")[1].items():
        if BESIDE in name:
            continue
        theirs, own = widen(tensor), checkpoint.tensors[name].values
        assert tensor[0] == name.split(".")[1]
        assert ((theirs.view("u4") == own.view("u4")) | (np.isnan(theirs) & np.isnan(own))).all()


def test_replay_goes_on_from_narrow_states(tersor, tmp_path):
    """The state is that of the unpacked checkpoint, to the bit."""
    _, tensors = contents(GPT / "checkpoint.safetensors")
    for name, (dtype, shape, content) in tensors.items():
        if name.endswith(("exp_avg", "exp_avg_sq")):
            tensors[name] = narrow(np.frombuffer(content, "<f4").reshape(shape), "BF16")
    metadata, _ = contents(GPT / "checkpoint.safetensors")
    source, packed = write_source(tmp_path / "source", tensors, metadata), tmp_path / "packed"
    tersor("pack", source, "-o", packed, "--weights", "bf16+exact16", check=0)
    tersor("unpack", packed, "-o", tmp_path / "back", check=0)
    for start in "packed", "back":
        tersor("replay", tmp_path / start, GPT / "recording", "--count", 2, "-o",
               tmp_path / f"{start}.after", check=0)
    done = tersor("diff", tmp_path / "packed.after", tmp_path / "back.after", check=0)
    assert ": 0 differ" in done.stdout


# ---- Masters beside a model in BF16 or F16 --------------------------------------------------------

MASTERS = DATA / "frameworks" / "states" / "bf16-model-fp32-master.pt"


def masters(fmt="bf16", shape=(70, 50), count=3, seed=4):
    """FP32 masters and, before them, the model that they round to."""
    rng = np.random.default_rng(seed)
    dtype = {"bf16": "BF16", "fp16": "F16"}[fmt]
    fp32 = {f"master.{i}": rng.normal(0, 0.02, shape).astype("f4") for i in range(count)}
    model = {f"w{i}": narrow(x, dtype) for i, x in enumerate(fp32.values())}
    return model, fp32


def narrows(report):
    return {t["name"]: t.get("narrow") for t in report["tensors"] if t["codec"] != "raw"}


def rounds_to(x, dtype):
    return x.astype(dtype).view("u2")


def check_masters(codec, x, y):
    """Masters round to the model: a correction whose value would not is one or two steps nearer to 0."""
    dtype = ml_dtypes.bfloat16 if codec.startswith("bf16") else np.float16
    plain = oracle.decode(codec, oracle.encode(codec, x)).ravel().astype("<f4")
    good = rounds_to(plain, dtype) == rounds_to(x.ravel(), dtype)
    assert (rounds_to(y, dtype) == rounds_to(x.ravel(), dtype)).all()
    assert (plain.view("u4") == y.view("u4"))[good].all() and good.mean() > 0.98
    step = np.abs(plain - x.ravel())[good].max()
    assert (np.abs(y - plain)[~good] <= 4 * step).all()


def test_masters_of_a_bf16_model_take_a_correction(tersor, tmp_path):
    """5.125 bytes per parameter; what PyTorch loads is what it is without that."""
    packed, back = tmp_path / "packed", tmp_path / "back.pt"
    report = json.loads(tersor("pack", MASTERS, "-o", packed, "--json", check=0).stdout)
    model = [t["name"] for t in report["tensors"] if t["dtype"] == "BF16"]
    assert narrows(report) == {t["name"]: model[int(t["name"][7:])] if "master." in t["name"] else None
                               for t in report["tensors"] if t["codec"] != "raw"}
    assert report["totals"]["parameters"] == 106816
    assert report["totals"]["stored_nbytes"] / 106816 == pytest.approx(5.125, abs=0.002)
    assert report["totals"]["bytes_per_parameter"] == pytest.approx(packed.stat().st_size / 106816)
    plan = json.loads(tersor("pack", MASTERS, "-o", packed, "--json", "-f", "--dry-run", check=0).stdout)
    assert (narrows(plan), plan["data_nbytes"]) == (narrows(report), report["data_nbytes"])
    arrays = contents(packed)[1]
    assert "master.3" not in arrays and arrays["master.3::error_bits"][0] == "I8"
    compare(packed, tersor)
    done = tersor("verify", packed, "--against", MASTERS, check=0)
    assert "168 planes" in done.stdout and "errors are as recorded" in done.stdout
    tersor("unpack", packed, "-o", back, check=0)
    before, after = torchfile.load(MASTERS), torchfile.load(back)
    torchfile.same(before["model"], after["model"])
    for x, y in zip(before["master"], after["master"]):
        x, y = (np.frombuffer(torchfile.content_of(t), "<f4") for t in (x, y))
        check_masters("bf16+ulp8", x, y)
    shown = json.loads(tersor("inspect", packed, "--json", check=0).stdout)
    assert narrows(shown) == narrows(report)
    assert shown["totals"]["bytes_per_parameter"] == report["totals"]["bytes_per_parameter"]


@pytest.mark.parametrize("codec", ["bf16+ulp8", "bf16+ulp16", "bf16+bf16", "fp16+ulp8", "fp16+fp16"])
@pytest.mark.parametrize("order", ["model first", "masters first"])
def test_masters_in_either_order(tersor, tmp_path, codec, order):
    model, fp32 = masters(codec[:4])
    tensors = model | fp32 if order == "model first" else fp32 | model
    source, packed, report = pack(tersor, tmp_path, tensors, "--weights", codec)
    assert narrows(report) == {f"master.{i}": f"w{i}" for i in range(3)}
    compare(packed, tersor)
    tersor("verify", packed, "--against", source, check=0)
    back = contents(packed.with_suffix(".unpacked"))[1]
    for name, x in fp32.items():
        check_masters(codec, x, np.frombuffer(back[name][2], "<f4"))
    assert {name: back[name] for name in model} == model
    assert "0 differ" in tersor("diff", packed, packed.with_suffix(".unpacked"), check=0).stdout


def test_masters_in_shards(tersor, tmp_path):
    """A master and its model can be in different shards."""
    model, fp32 = masters()
    source = write_source(tmp_path / "in", model | fp32)
    tersor("pack", source, "-o", tmp_path / "s.safetensors", "--max-shard-size", 7000, check=0)
    index = tmp_path / "s.safetensors.index.json"
    assert len(json.loads(index.read_text())["weight_map"]) == 6
    compare(index, tersor)
    tersor("verify", index, "--against", source, check=0)


@pytest.mark.parametrize("place", [0, 1, 1234, 69 * 50 + 49, 1000 * 1000 - 5000])
def test_one_bit_makes_it_no_master(tersor, tmp_path, place):
    """Wherever the difference is: the model as it is, the FP32 tensor whole, and a note."""
    model, fp32 = masters(shape=(1000, 1000) if place > 70 * 50 else (70, 50))
    bits = np.frombuffer(model["w1"][2], "<u2").copy()
    bits[place] ^= 1
    model["w1"] = *model["w1"][:2], bits.tobytes()
    source = write_source(tmp_path / "in", model | fp32)
    done = tersor("pack", source, "-o", tmp_path / "packed", "--json", check=0)
    assert narrows(json.loads(done.stdout)) == {"master.0": "w0", "master.1": None, "master.2": "w2"}
    assert "master.1: is not the master of any tensor of its shape" in done.stderr
    assert "1 such tensors, 2 masters" in done.stderr
    compare(tmp_path / "packed", tersor)
    tersor("verify", tmp_path / "packed", "--against", source, check=0)


def test_equal_tensors_are_told_apart_by_order(tersor, tmp_path):
    """New norms are all ones: any will do, and tensors that differ at the end only are not mixed up."""
    ones = np.ones(9000, "f4")
    other = ones.copy()
    other[5000] = 2
    fp32 = {"m.a": ones, "m.b": other, "m.c": ones, "ema.a": ones, "ema.b": other, "ema.c": ones}
    model = {name: narrow(fp32[f"m.{name}"], "BF16") for name in "abc"}
    source, packed, report = pack(tersor, tmp_path, model | fp32)
    assert narrows(report) == {name: name[-1] for name in fp32}
    compare(packed, tersor)
    tersor("verify", packed, "--against", source, check=0)


def test_kept_and_other_tensors_are_no_masters(tersor, tmp_path):
    model, fp32 = masters(count=4)
    fp32["master.2"] = fp32["master.2"].copy()
    fp32["master.2"][0, 0] = np.nan
    fp32["master.3"] = fp32["master.3"].reshape(50, 70)
    source = write_source(tmp_path / "in", model | fp32)
    done = tersor("pack", source, "-o", tmp_path / "packed", "--json", "--keep=master.0", check=0)
    assert narrows(json.loads(done.stdout)) == {"master.1": "w1", "master.3": None}
    assert "master.2: found 1 non-finite value, kept raw" in done.stderr
    compare(tmp_path / "packed", tersor)
    for codec in "bf16", "f32", "fp16+ulp8":
        _, packed, report = pack(tersor, tmp_path, model | fp32, "--weights", codec)
        assert set(narrows(report).values()) == {None}
        compare(packed, tersor)


def test_no_note_without_masters(tersor, tmp_path):
    """Vectors in two types are usual."""
    rng = np.random.default_rng(8)
    tensors = {"norm": rng.normal(1, 0.1, 64).astype("f4"),
               "bias": narrow(rng.normal(0, 1, 64).astype("f4"), "BF16")}
    source = write_source(tmp_path / "in", tensors)
    assert tersor("pack", source, "-o", tmp_path / "packed", check=0).stderr == ""


def packed_master():
    p = Packed()
    p.add("w", "raw", np.array([0x3f80, 0xbe9a], "<u2"), dtype="BF16")
    p.add("m", "bf16+ulp8", np.array([0x3f80, 0xbe9a], "<u2"), np.array([0, 5], "i1"))
    entry = p.tersor["tensors"][1]
    error, hashes = entry.pop("error"), entry.pop("xxh3")
    entry |= {"narrow": "w", "xxh3": hashes, "error": error}
    begin, end = p.header.pop("m")["data_offsets"]
    p.header["m::error_bits"]["data_offsets"] = [begin, begin + 2]
    p.data = p.data[:begin] + p.data[end:]
    return p


def test_narrow_of_another_writer(tersor, tmp_path):
    checkpoint = compare(packed_master().write(tmp_path / "packed"), tersor)
    c = np.float32(5) / np.float32(127)
    assert checkpoint.tensors["m"].values.tolist() == [1, np.float32(-0.30078125 + float(c) * 2 ** -10)]


def entry(**members):
    return lambda p: p.tersor["tensors"][1].update(members)


def of_w(**members):
    return lambda p: p.tersor["tensors"][0].update(members)


def with_own_array(p):
    p.header["m"] = {"dtype": "BF16", "shape": [2], "data_offsets": [len(p.data), len(p.data) + 4]}
    p.data += bytes(4)


def one_hash(p):
    del p.tersor["tensors"][1]["xxh3"][0]


def chain(p):
    """The tensor named is itself without an array of its own."""
    content = p.tersor["tensors"][1]
    p.tersor["tensors"].append(content | {"name": "n", "narrow": "m"})
    p.header["n::error_bits"] = p.header["m::error_bits"] | {
        "data_offsets": [len(p.data), len(p.data) + 2]}
    p.data += p.data[-2:]


@pytest.mark.parametrize("change, reason", {
    "missing": (entry(narrow="v"), "narrow v"), "itself": (entry(narrow="m"), "narrow m"),
    "a number": (entry(narrow=1), "narrow is not a name"),
    "a chain": (chain, "narrow m"),
    "another hash": (entry(xxh3=["0" * 16, packed_master().tersor["tensors"][1]["xxh3"][1]]), "narrow w"),
    "another shape": (lambda p: (of_w(shape=[2, 1])(p), p.header["w"].update(shape=[2, 1])), "narrow w"),
    "another dtype": (lambda p: (of_w(dtype="F16")(p), p.header["w"].update(dtype="F16")), "narrow w"),
    "not raw": (lambda p: of_w(codec="bf16", dtype="F32")(p) or p.tersor["tensors"][0].update(
        error=p.tersor["tensors"][1]["error"]), "narrow w"),
    "no correction": (entry(codec="bf16"), "a codec without a correction"),
    "an array of its own": (with_own_array, "not a plane of any packed tensor"),
    "one hash": (one_hash, "hash"),
}.values())
def test_wrong_narrow_is_refused(tersor, tmp_path, change, reason):
    p = packed_master()
    change(p)
    bad = p.write(tmp_path / "bad")
    with pytest.raises(reader.ReaderError):
        reader.read(bad)
    for command in ("verify", bad), ("unpack", bad, "-o", tmp_path / "out"):
        assert reason in one_line_error(tersor(*command, check=3))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["w", "m::error_bits"])
def test_damage_of_masters_is_found(tersor, tmp_path, name):
    p = packed_master()
    at = p.header[name]["data_offsets"][0]
    p.data = p.data[:at] + bytes([p.data[at] ^ 1]) + p.data[at + 1:]
    bad = p.write(tmp_path / "bad")
    with pytest.raises(reader.ReaderError):
        reader.read(bad)
    assert "damaged" in one_line_error(tersor("verify", bad, check=3))


def test_masters_survive_a_replay(tersor, tmp_path):
    """A pair that is not stepped stays a pair, planes untouched."""
    model, fp32 = masters(count=1)
    metadata, tensors = contents(GPT / "checkpoint.safetensors")
    source = write_source(tmp_path / "in", tensors | model | fp32, metadata)
    tersor("pack", source, "-o", tmp_path / "packed", check=0)
    tersor("replay", tmp_path / "packed", GPT / "recording", "--count", 2, "-o", tmp_path / "after",
           check=0)
    after = compare(tmp_path / "after", tersor)
    assert after.tensors["master.0"].narrow == "w0"
    before = reader.read(tmp_path / "packed").tensors["master.0"]
    assert after.tensors["master.0"].source_bytes == before.source_bytes


def test_masters_of_a_flashoptim_export(tersor, tmp_path):
    """FlashOptim's state has no such thing: the planes of the master are written whole."""
    model, fp32 = masters(count=1)
    source = write_source(tmp_path / "in", model | fp32 | {"master.0.exp_avg": fp32["master.0"]})
    tersor("pack", source, "-o", tmp_path / "packed", "--compat", "flashoptim", check=0)
    assert reader.read(tmp_path / "packed").tensors["master.0"].narrow == "w0"
    tersor("convert", tmp_path / "packed", "-o", tmp_path / "f.pt", "--to", "flashoptim", check=0)
    found = torchfile.load(tmp_path / "f.pt")
    assert torchfile.content_of(found["model"]["master.0"]) == model["w0"][2]
    assert torchfile.content_of(found["model"]["w0"]) == model["w0"][2]


def test_masters_beside_a_model_file(tersor, tmp_path):
    """The model's file has the model and no master; corrections are in the other file."""
    packed, model = tmp_path / "state.tersor", tmp_path / "model.safetensors"
    tersor("pack", MASTERS, "-o", packed, "--model", model, check=0)
    arrays, weights = contents(packed)[1], contents(model)[1]
    names = {f"master.{i}" for i in range(21)}
    assert not names & weights.keys() and not names & arrays.keys()
    assert {name + "::error_bits" for name in names} <= arrays.keys()
    compare(packed, tersor)
    tersor("verify", packed, "--against", MASTERS, check=0)
    assert reader.read(packed).tensors["master.20"].narrow in weights


def test_masters_of_megatron(tersor, tmp_path):
    """Its lists of masters are weights; in this file, made by hand, they are not the model's."""
    done = tersor("pack", DATA / "frameworks" / "states" / "megatron-legacy.pt", "-o",
                  tmp_path / "packed", "--json", check=0)
    found = {t["name"]: t for t in json.loads(done.stdout)["tensors"]}
    for number in range(2):
        master = found[f"optimizer.fp32_from_fp16_params.0.{number}"]
        assert (master["kind"], master["codec"], master.get("narrow")) == ("weight", "bf16+ulp8", None)
    assert "(2 such tensors, 0 masters)" in done.stderr


@pytest.mark.parametrize("command", ["pack", "unpack", "verify"])
def test_masters_without_memory(tersor, tmp_path, command):
    """Whichever allocation fails: one line, nothing left, and nothing leaks."""
    library = os.environ.get("TERSOR_FAULTS", str(ROOT / "build" / "tests" / "libfaults.so"))
    model, fp32 = masters(count=2)
    fp32["other"] = fp32["master.0"] + 1
    source = write_source(tmp_path / "in", model | {"n": model["w0"]} | fp32)
    tersor("pack", source, "-o", tmp_path / "packed", check=0)
    args = {"pack": ("pack", source, "-o", tmp_path / "x"), "verify": ("verify", tmp_path / "packed"),
            "unpack": ("unpack", tmp_path / "packed", "-o", tmp_path / "x")}[command]
    env = {"LD_PRELOAD": library, "TERSOR_FAULT": "any:1000000000:EIO", "TERSOR_FAULT_PATH": str(tmp_path),
           "ASAN_OPTIONS": "verify_asan_link_order=0:allocator_may_return_null=1"}
    failures = 0
    for number in range(1, 400, 1 if "TERSOR_LONG" in os.environ else 5):
        (tmp_path / "x").unlink(missing_ok=True)
        done = tersor(*args, "-q", "-j", 1, env=env | {"TERSOR_FAULT_MALLOC": str(number)})
        if done.returncode:
            failures += 1
            line = one_line_error(done)
            assert done.returncode == 4 and "memory" in line, (number, line)
            assert not (tmp_path / "x").exists() or "stdout" in line, (number, line)
    assert failures > 20


def test_masters_with_a_long_tree(tersor, tmp_path):
    """What was saved around the tensors is a tensor itself then, which has no name to look up."""
    model, fp32 = masters(count=3)
    dtype = {"BF16": "BFloat16Storage"}
    saved = {"model": torchfile.ordered((name, torchfile.Tensor(torchfile.Storage(
        content, dtype[kind]), shape)) for name, (kind, shape, content) in model.items()),
        "fp32": [torchfile.tensor(x) for x in fp32.values()], "log": [f"line {i}" for i in range(9000)]}
    source, packed = tmp_path / "in.pt", tmp_path / "packed"
    source.write_bytes(torchfile.pt(saved))
    report = json.loads(tersor("pack", source, "-o", packed, "--json", check=0).stdout)
    assert list(narrows(report).values()) == ["w0", "w1", "w2"]
    assert "tersor::tree" in contents(packed)[1]
    tersor("verify", packed, "--against", source, check=0)
    tersor("unpack", packed, "-o", tmp_path / "back.pt", check=0)
    back = torchfile.load(tmp_path / "back.pt")
    torchfile.same(saved["model"], back["model"])
    torchfile.same(saved["log"], back["log"])
