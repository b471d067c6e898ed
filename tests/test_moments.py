"""Momenta and variances of BF16 and F16 in packed files, against the oracle and the second reader."""
import json

import ml_dtypes
import numpy as np
import pytest

import oracle
import reader
import torchfile
from conftest import DATA, one_line_error, safetensors_bytes
from test_reader import Packed, compare, contents, write_source

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
        planes = oracle.encode(codec, x, group, scale)
        for suffix, plane in planes.items():
            assert arrays[name + suffix][2] == plane.tobytes(), (name, suffix)
        y = oracle.narrow(oracle.decode(codec, planes, group, scale).ravel(), NARROW[dtype])
        assert back[name] == (dtype, tensor[1], y.astype("<u2").tobytes()), name
        error = checkpoint.tensors[name].error
        wide = oracle.widen(y, NARROW[dtype])
        assert error["exact"] == (wide.view("u4") == x.view("u4")).sum()
        assert error["abs"] == pytest.approx(np.abs(wide - x).max(initial=0), rel=1e-8)
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
    assert report["totals"]["bytes_per_parameter"] == pytest.approx(4.125, abs=0.01)
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
            for number, scale in enumerate((0x0001, 0x0155, 0x7507, 0x8f00, 0xbeff, 0xff00, 0xff80)):
                p.add(f"{codec}.{dtype}.{number}", codec, codes.view(reader.STORED[code]),
                      np.array([scale], "<u2"), dtype=dtype, scale="e8m8", group=256)
    checkpoint = reader.read(p.write(tmp_path / "packed"))
    tersor("unpack", tmp_path / "packed", "-o", tmp_path / "back", check=0)
    for name, tensor in contents(tmp_path / "back")[1].items():
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
