"""docs/internals/format.md against the binary, and damage to packed files.

The document's definitions, and the packed file and test vectors in tests/vectors, must be what the binary
does today. Damage: every truncation, every bit flip, swapped planes, wrong versions and
unknown parts of a packed file are refused with exit status 3, and nothing is written.
"""
import base64
import concurrent.futures
import copy
import json
import os
import pathlib
import re
import signal
import struct
import subprocess

import numpy as np
import pytest
import safetensors.numpy
import xxhash

import oracle
import packed_text
import reader
import tables
from conftest import BINARY, ROOT, VECTORS, codec_vectors, one_line_error, run_tersor

DOCUMENT = (ROOT / "docs" / "internals" / "format.md").read_text()
LONG = os.environ.get("TERSOR_LONG") == "1"
# A sanitizer's binary takes ten times as long: it gets one bit of every byte.
SANITIZED = b"__asan_init" in pathlib.Path(BINARY).read_bytes()
CHECK = b'"tersor_check":"'
ZEROS = b"0" * 16
PIECE = int(re.search(r"floor\((\d+) / A\)", DOCUMENT)[1])
DTYPES = ["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0",
          "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64",
          "F64", "I64", "U64"]
METRICS = ("abs", "ulp", "rel", "nmse", "cosine")


# ---- packed files in parts -----------------------------------------------------------------------

def xxh3(content):
    return xxhash.xxh3_64_hexdigest(content)


def one_piece(content):
    """The hash of a plane of one piece, or none."""
    return xxh3(struct.pack("<Q", xxhash.xxh3_64_intdigest(content)) if content else b"")


def parts(blob):
    """header, its `tersor` text with an object for each tensor, and the data of a packed file"""
    size = struct.unpack("<Q", blob[:8])[0]
    header = json.loads(blob[8:8 + size])
    return header, packed_text.unfold(json.loads(header["__metadata__"]["tersor"]), header), blob[8 + size:]


def plane(header, data, name):
    return data[slice(*header[name]["data_offsets"])]


def sealed(header_text, data):
    """A file with this header, its check made anew as section 5.5 says."""
    header_text += b" " * (-len(header_text) % 8)
    at = header_text.find(CHECK) + len(CHECK)
    if at >= len(CHECK):
        zeroed = header_text[:at] + ZEROS + header_text[at + 16:]
        header_text = header_text[:at] + xxh3(zeroed).encode() + header_text[at + 16:]
    return struct.pack("<Q", len(header_text)) + header_text + data


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def joined(header, tersor, data):
    """The file of these parts; `tersor` may also be a text."""
    header = copy.deepcopy(header)
    header["__metadata__"]["tersor"] = tersor if isinstance(tersor, str) else compact(packed_text.fold(tersor))
    return sealed(compact(header).encode(), data)


def forged(tensors):
    """A packed file made from nothing: (name, codec, scale, group, shape, [plane bytes])."""
    width = {"U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
             "F32": 4, "U32": 4}
    header = {"__metadata__": {"format": "pt", "tersor": "", "tersor_check": ZEROS.decode()}}
    listed, data = [], b""
    ones = [(f"beside {t[0]}", "raw", None, None, t[4], [np.ones(t[4], "<f4").tobytes()])
            for t in tensors if t[1].startswith("ratio")]
    for name, codec, scale, group, shape, contents in tensors + ones:
        for (suffix, dtype), content in zip(planes_of(codec, scale), contents):
            count = len(content) // width[dtype]
            flat = suffix in ("::scales", "::extra_bits", "::expand") or codec in oracle.PACKED
            header[name + suffix] = {"dtype": dtype, "shape": [count] if flat else list(shape),
                                     "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        entry = {"name": name, "kind": "weight", "dtype": "F32", "shape": list(shape),
                 "codec": codec}
        if scale:
            entry |= {"scale": scale, "group": group}
        if "+sr" in codec:
            entry["seed"] = 0
        if codec.startswith("ratio"):       # to roots of 1, which it decodes as they are
            entry |= {"beside": f"beside {name}", "eps": 0}
        entry["xxh3"] = [one_piece(c) for c in contents]
        if codec != "raw":
            entry["error"] = dict.fromkeys(METRICS, 0)
        listed.append(entry)
    return joined(header, {"version": 1, "tool": "test",
                           "source": {"kind": "safetensors", "format": None},
                           "generation": 1, "tensors": listed}, data)


def planes_of(codec, scale):
    """[(suffix, dtype)] of section 4's table."""
    if codec in ("raw", "f32"):
        return [("", "F32")]
    if codec in oracle.TABLED:
        codes = {"e4m3": "F8_E4M3", "e5m2": "F8_E5M2", "dyn8": "U8"}[codec.rstrip("x")]
        return [("::quantized", codes), ("::scales", "F32")] + [("::expand", "U8")] * ("x" in codec)
    if codec in oracle.STATE or codec in oracle.PACKED:
        codes = "U32" if codec in oracle.PACKED else "U8" if codec in oracle.VARIANCES + oracle.LOGS else "I8"
        return [("::quantized", codes), ("::scales", reader.SCALE_DTYPE[scale])]
    first, _, second = codec.partition("+")
    narrow = {"bf16": "BF16", "fp16": "F16", "e5m2": "F8_E5M2", "e4m3": "F8_E4M3"}[first]
    if not second:
        return [("", narrow)]
    if codec in oracle.TRUNCATED:
        return [("", narrow), ("::extra_bits", "U32")]
    return [("", narrow), ("::error_bits", {"ulp8": "I8", "ulp16": "I16", "exact16": "I16",
                                            first: narrow}[second])]


def scales_of(codec):
    if codec in oracle.TABLED:
        return ("f32",)
    if codec in oracle.LOGS:
        return ("f28",)
    if codec in oracle.PACKED:
        return ("e5m3",) if codec in oracle.WITHOUT_ZERO else ("e8m8", "f32")
    return ("e8m8", "f16", "f32") if codec in oracle.STATE else ("",)


def unpacked(folder, blob):
    """The tensors that the binary decodes a packed file to, as bytes, and its metadata."""
    (folder / "unpack.in").write_bytes(blob)
    target = folder / "unpack.out"
    run_tersor("unpack", "-f", "-q", "-q", folder / "unpack.in", "-o", target, check=0)
    out = target.read_bytes()
    size = struct.unpack("<Q", out[:8])[0]
    header = json.loads(out[8:8 + size])
    metadata = header.pop("__metadata__", {})
    return {name: plane(header, out[8 + size:], name) for name in header}, metadata


# ---- the packed file and the vectors of section 16 -----------------------------------------------

DUMP = (VECTORS / "packed-file.txt").read_text()
DUMP_LINE = re.compile(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  .*)?$", re.M)


def example(folder):
    """Run the commands of packed-file.txt; -> (source, packed file)"""
    commands = re.search(r"```\n(.*?)```", DUMP, re.S)[1]
    path = os.path.dirname(os.path.abspath(BINARY)) + os.pathsep + os.environ["PATH"]
    subprocess.run(["sh", "-e", "-c", commands], cwd=folder, env=dict(os.environ, PATH=path),
                   check=True, capture_output=True, timeout=60)
    return tuple((folder / f"{name}.safetensors").read_bytes() for name in ("tiny", "packed"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The packed file of section 16."""
    return example(tmp_path_factory.mktemp("tiny"))[1]


def test_hex_dump_is_what_the_binary_writes(tmp_path):
    blob = example(tmp_path)[1]
    found = b""
    for offset, digits in DUMP_LINE.findall(DUMP):
        assert int(offset, 16) == len(found), f"offset {offset} follows {len(found):08x}"
        found += bytes.fromhex(digits)
    assert found == blob
    assert f"The file has {len(blob)} bytes." in DUMP


def test_text_beside_the_hex_dump_is_the_same_bytes():
    lines = re.findall(r"^[0-9a-f]{8}  ([0-9a-f ]+?) +\|(.*)\|$", DUMP, re.M)
    assert len(lines) > 60
    for digits, text in lines:
        shown = "".join(chr(c) if 32 <= c < 127 else "." for c in bytes.fromhex(digits))
        assert text == shown


def test_decoded_values_of_the_example(tmp_path):
    source, blob = example(tmp_path)
    rows = re.findall(r"^\| ([a-z_.]+)\[(\d)\] \| \S+ \| ([0-9a-f]{8}) \| (.*?) \| \S+ "
                      r"\| ([0-9a-f]{8}) \|$", DUMP, re.M)
    assert len(rows) == 9
    before = safetensors.numpy.load(source)
    after, _ = unpacked(tmp_path, blob)
    header, _, data = parts(blob)
    for name, index, x, stored, y in rows:
        i = int(index)
        assert f"{before[name].view(np.uint32)[i]:08x}" == x
        assert f"{np.frombuffer(after[name], '<u4')[i]:08x}" == y
        want = []
        for suffix in ("", "::error_bits", "::quantized", "::scales"):
            if name + suffix in header:
                content = plane(header, data, name + suffix)
                each = len(content) // (1 if suffix == "::scales" else 3)
                at = 0 if suffix == "::scales" else i * each
                want.append(content[at:at + each][::-1].hex())
        assert stored == ", ".join(want)


def vectors():
    for codec, scale, *values in codec_vectors():
        yield codec, scale.replace("-", ""), [int(v, 16) for v in values[:-1]], int(values[-1], 16)


def plane_widths(codec, scale):
    return [{"F32": 4, "U32": 4}.get(dtype, 1 if "8" in dtype else 2) for _, dtype in planes_of(codec, scale)]


def plane_contents(codec, scale, stored):
    """The bytes of each plane of one element."""
    contents = [v.to_bytes(w, "little") for v, w in zip(stored, plane_widths(codec, scale))
                if v < 1 << 8 * w]
    if codec in oracle.TRUNCATED:       # the element's bits, then those of 31 that are not there
        _, k, stochastic = oracle.truncated(codec)
        contents[1:] = [stored[1].to_bytes(4 * (k + stochastic), "little")]
    if codec in oracle.PACKED:
        contents[0] = stored[0].to_bytes(4 * oracle.PACKED[codec], "little")
    return contents


def decode_vectors(folder, rows):
    """What the binary decodes each (codec, scale, stored integers) to."""
    tensors = []
    for i, (codec, scale, stored) in enumerate(rows):
        contents = plane_contents(codec, scale, stored)
        tensors.append((f"t{i}", codec, scale, 32, [1], contents))
    out, _ = unpacked(folder, forged(tensors))
    return [struct.unpack("<I", out[f"t{i}"])[0] for i in range(len(rows))]


def family(codec):
    return re.sub(r"(trunc|rn|sr)\d+$", r"\1<k>", codec)


def test_vectors_decode_to_what_the_document_says(tmp_path):
    rows = list(vectors())
    codecs = {*oracle.WEIGHTS, *oracle.TRUNCATED, *oracle.MOMENTA, *oracle.RATIOS, *oracle.VARIANCES,
              *oracle.LOGS, *oracle.TABLED, "f32"}
    assert set(map(family, {row[0] for row in rows})) == set(map(family, codecs))
    found = decode_vectors(tmp_path, [row[:3] for row in rows])
    assert [f"{v:08x}" for v in found] == [f"{row[3]:08x}" for row in rows]


def test_vectors_agree_with_the_second_implementation():
    signed = {"I8": np.int8, "I16": np.int16, "U8": np.uint8, "F32": np.uint32, "U32": np.uint32,
              "F8_E5M2": np.uint8, "F8_E4M3": np.uint8}
    for codec, scale, stored, decoded in vectors():
        planes = {}
        for content, (suffix, dtype) in zip(plane_contents(codec, scale, stored),
                                            planes_of(codec, scale)):
            planes[suffix] = np.frombuffer(content, signed.get(dtype, np.uint16))
        with np.errstate(invalid="ignore"):
            y = oracle.decode(codec, planes, 32, scale or "e8m8", n=1)
        assert f"{oracle.bits(y)[0]:08x}" == f"{decoded:08x}", (codec, scale, stored)


def test_every_codec_and_dtype_is_specified(tersor):
    codecs = json.loads(tersor("codecs", "--json", check=0).stdout)["codecs"]
    table = DOCUMENT[DOCUMENT.index("\n## 4. "):DOCUMENT.index("\n## 5. ")]
    for codec in codecs:
        assert f"`{family(codec['name'])}`" in table
        assert codec["family"] in (None, family(codec["name"]))
        for suffix in {p["suffix"] for p in codec["planes"]} - {""}:
            assert f"`{suffix}`" in table
        got = [(p["suffix"], p["dtype"]) for p in codec["planes"]]
        want = planes_of(codec["name"], scales_of(codec["name"])[0])
        assert [g[0] for g in got] == [w[0] for w in want]
        assert [g[1] for g in got][:1] == [w[1] for w in want][:1]
    rows = re.findall(r"^\| (\d+) to (\d+) \| ([A-Z0-9_, ]+) \| \d+ \|$", DOCUMENT, re.M)
    listed = {int(first) + i: name for first, _, names in rows for i, name in enumerate(names.split(", "))}
    assert [listed[i] for i in range(len(DTYPES))] == DTYPES
    assert [int(last) + 1 for _, last, _ in rows] == [int(first) for first, _, _ in rows[1:]] + [len(DTYPES)]


def test_maps_of_dyn8_are_the_vectors(tmp_path):
    """Every index of a momentum and of a variance, by the binary and by a second implementation."""
    text = (VECTORS / "dyn8.txt").read_text()
    p, u = (re.findall(r"[0-9a-f]{8}", text.split(f"[{name}]")[1].split("[")[0]) for name in "PU")
    codes, one = bytes(range(256)), struct.pack("<f", 1)
    for kind, values in (("momentum", [f"{int(v, 16) | 1 << 31:08x}" for v in p[127:0:-1]] + p), ("variance", u)):
        header, tersor, data = parts(forged([("w", "dyn8", "f32", 256, [256], [codes, one])]))
        tersor["tensors"][0]["kind"] = kind
        out, _ = unpacked(tmp_path, joined(header, tersor, data))
        assert [f"{v:08x}" for v in np.frombuffer(out["w"], "<u4")][:len(values)] == values
        assert [f"{v:08x}" for v in tables.dynamic(kind == "variance").view(np.uint32)] == (p, u)[kind == "variance"]


@pytest.mark.parametrize("macro, text", [
    ("TSR_PIECE_ELEMENTS", "floor({} / A) * A consecutive elements"),
    ("TSR_ST_HEADER_MAX", "| N, the header's bytes | {:,} |"),
    ("TSR_ST_VALUES_MAX", "| JSON values in the header | {:,} "),
    ("TSR_PACKED_VERSION", "the version of this format, {} |"),
    ("TSR_GENERATION_MAX", "| `generation` | {:,} |"),
    ("TSR_RANK_MAX", "| dimensions | {} |"),
    ("TSR_NAME_MAX", "suffix included | {:,} |"),
    ("TSR_GROUP_MAX", "| G | {:,} |"),
    ("TSR_PLANES_MAX", "| planes of a tensor | {} |"),
    ("TSR_MEASURE_LANES", "goes to lane i mod {};"),
])
def test_documented_limits_are_those_of_the_sources(macro, text):
    """No test could see some of them: sums over other tiles rarely differ in nine digits."""
    headers = (path.read_text() for top in ("src", "include") for path in (ROOT / top).rglob("*.h"))
    value, = re.findall(rf"#define {macro} (?:UINT64_C\()?(\d+)", "".join(headers))
    assert text.format(int(value)) in " ".join(DOCUMENT.split())


# ---- what the document says of a real file -------------------------------------------------------

@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A packed file of every kind of tensor, and its source's path."""
    folder = tmp_path_factory.mktemp("real")
    rng = np.random.default_rng(70)
    w = rng.standard_normal((9, 30001)).astype(np.float32)      # two pieces, last group short
    tensors = {
        "zz.weight": w, "zz.weight.exp_avg": w * np.float32(1e-3),
        "zz.weight.exp_avg_sq": (w * w * np.float32(1e-6)).astype(np.float32),
        # 0.5 beside 60000 is flushed to 0: a distance of more than 10^9, ten digits.
        "lost.exp_avg": np.array([6e4, 0.5, -0.25], np.float32),
        "a \"quoted\" näme\\": w[0, :5], "nan": np.array([1, np.nan, 3], np.float32),
        "empty": np.zeros((0, 3), np.float32), "scalar": np.array(2.5, np.float32),
        "step": np.array([400], np.int64), "half": w[0, :9].astype(np.float16),
        "flags": np.array([True, False]),
    }
    metadata = {"zebra": "last\n\x01\"", "Alpha": "ß", "format": "np"}
    (folder / "source").write_bytes(safetensors.numpy.save(tensors, metadata))
    run_tersor("pack", "-q", "-q", folder / "source", "-o", folder / "packed",
               "--min-elements", "1", check=0)
    return (folder / "packed").read_bytes(), folder / "source"


def test_header_check_is_the_hash_that_the_document_defines(real, tiny):
    for blob in (real[0], tiny):
        size = struct.unpack("<Q", blob[:8])[0]
        text = blob[8:8 + size]
        assert text.count(CHECK) == 1
        at = text.index(CHECK) + len(CHECK)
        assert xxh3(text[:at] + ZEROS + text[at + 16:]).encode() == text[at:at + 16]


def test_plane_hashes_are_those_of_the_arrays(real):
    header, tersor, data = parts(real[0])
    seen = set()
    for t in tersor["tensors"]:
        names = [t["name"]] if t["codec"] == "raw" else [
            t["name"] + suffix for suffix, _ in planes_of(t["codec"], t.get("scale"))]
        tensor = reader.parse_tensor(t)
        assert t["xxh3"] == [reader.plane_hash(tensor, i, plane(header, data, name))
                             for i, name in enumerate(names)]
        seen.update(names)
    assert seen == set(header) - {"__metadata__"}
    assert "2d06800538d394c2" in str(tersor["tensors"])         # the empty tensor


def test_order_of_metadata_arrays_and_tensors(real):
    header, tersor, _ = parts(real[0])
    keys = list(header["__metadata__"])
    assert keys == sorted(keys, key=str.encode) and {"format", "tersor", "tersor_check"} < set(keys)
    arrays = sorted((v["data_offsets"][0], -DTYPES.index(v["dtype"]), k.encode())
                    for k, v in header.items() if k != "__metadata__" and 0 not in v["shape"])
    assert arrays == sorted(arrays, key=lambda a: a[1:])
    listed = [t["name"] + suffix for t in tersor["tensors"] for suffix in reader.suffixes_of(t["codec"])]
    assert list(header) == ["__metadata__", *listed]
    source = parts_of_plain(real[1].read_bytes())
    by_offset = sorted(source, key=lambda k: (*source[k]["data_offsets"], k.encode()))
    assert [t["name"] for t in tersor["tensors"]] == by_offset
    assert list(tersor) == ["version", "tool", "source", "generation", "tensors"]
    assert tersor["source"] == {"kind": "safetensors", "format": "np"}


def parts_of_plain(blob):
    header = json.loads(blob[8:8 + struct.unpack("<Q", blob[:8])[0]])
    header.pop("__metadata__", None)
    return header


def test_header_text_and_padding_are_as_specified(real, tiny):
    """Section 10.3, from the parsed header alone: the same bytes come out."""
    for blob in (real[0], tiny):
        size = struct.unpack("<Q", blob[:8])[0]
        header = json.loads(blob[8:8 + size])
        text = json.loads(header["__metadata__"]["tersor"])
        header["__metadata__"]["tersor"] = compact(text)
        assert blob[8:8 + size].rstrip(b" ") == compact(header).encode()
        header["__metadata__"]["tersor"] = compact(text | {"generation": 1000000})
        assert size == (len(compact(header).encode()) + 7) // 8 * 8


def test_text_says_once_what_tensors_have_in_common(real, tiny):
    """Section 5.4: numbers of codings, and nothing that an array shows."""
    for blob, codings in ((real[0], 9), (tiny, 3)):
        header = json.loads(blob[8:8 + struct.unpack("<Q", blob[:8])[0]])
        text = json.loads(header["__metadata__"]["tersor"])
        assert len(text["codings"]) == codings == len({compact(c) for c in text["codings"]})
        assert set(text["tensors"]) == set(range(codings))


def test_unpacking_gives_back_names_order_bytes_and_metadata(real, tmp_path):
    blob, path = real
    source = path.read_bytes()
    out, metadata = unpacked(tmp_path, blob)
    entries = parts_of_plain(source)
    start = 8 + struct.unpack("<Q", source[:8])[0]
    assert list(out) == sorted(entries, key=lambda k: (*entries[k]["data_offsets"], k.encode()))
    for t in parts(blob)[1]["tensors"]:
        before = source[start:][slice(*entries[t["name"]]["data_offsets"])]
        if t["codec"] == "raw":
            assert out[t["name"]] == before
        else:
            assert len(out[t["name"]]) == len(before)
    assert metadata == {"zebra": "last\n\x01\"", "Alpha": "ß", "format": "np",
                        "tersor_generation": "1"}


def test_any_safetensors_reader_sees_a_bf16_model(real):
    header, _, data = parts(real[0])
    seen = safetensors.deserialize(real[0])
    arrays = {name: entry for name, entry in seen}
    source = safetensors.numpy.load(real[1].read_bytes())
    assert set(arrays) == set(header) - {"__metadata__"}
    narrow = np.frombuffer(arrays["zz.weight"]["data"], "<u2")
    assert arrays["zz.weight"]["dtype"] == "BF16" and arrays["zz.weight"]["shape"] == [9, 30001]
    assert np.array_equal(narrow, oracle.narrow(source["zz.weight"].ravel(), "bf16"))


def figures(x, y, group):
    """Section 9, word for word."""
    x, y = x.ravel(), y.ravel()
    with np.errstate(divide="ignore", invalid="ignore"):
        d = x - y
        a = np.where(x == 0, np.float32(0), np.abs(d) / np.abs(x))
    size = PIECE // group * group

    def total(terms):
        lanes = np.zeros(8)
        for at in range(0, len(terms), size):
            piece = terms[at:at + size]
            piece = np.concatenate([np.zeros(8), piece, np.zeros(-len(piece) % 8)])
            lanes = lanes + np.add.accumulate(piece.reshape(-1, 8))[-1]
        return np.add.accumulate(np.concatenate([[0.0], lanes]))[-1]

    def ordered(v):
        b = v.view(np.uint32).astype(np.int64)
        return np.where(b >> 31, -(b & 0x7FFFFFFF), b)

    xw, dw = x.astype(np.float64), d.astype(np.float64)
    XX, DD, XD = total(xw * xw), total(dw * dw), total(xw * dw)
    P, Y, Q = XX - XD, (XX - 2 * XD) + DD, XX * DD - XD * XD
    W = np.sqrt(XX) * np.sqrt(max(Y, 0.0))
    e = (0 if DD == 0 else 1 if W == 0 else 1 - P / W if P <= 0 else max(Q, 0.0) / (W * (W + P)))
    nonzero = np.count_nonzero(x)
    values = {"abs": np.abs(d).max(initial=0),
              "ulp": np.abs(ordered(x) - ordered(y)).max(initial=0),
              "rel": total(a.astype(np.float64)) / nonzero if nonzero else 0,
              "nmse": DD / XX if DD else 0, "cosine": 1 - e}
    # The upper bytes of a binary64, of the cosine that of 1 - cosine: section 5.4.
    rounded = {k: struct.unpack("<d", bytes(8 - n) + packed_text.fold_figure(float(e if k == "cosine" else values[k]), n))[0]
               for k, n in reader.FIGURES.items()}
    return rounded | {"cosine": 1 - rounded["cosine"]}


@pytest.mark.parametrize("options, group", [
    ((), 32), (("--group", "40"), 40), (("--group", "65536"), 65536),
    (("--weights", "fp16+ulp16", "--momentum", "linear8", "--variance", "ulinear8"), 32),
    (("--compat", "flashoptim"), 32),
], ids=lambda v: " ".join(v) if isinstance(v, tuple) else None)
def test_error_figures_are_as_defined(options, group, real, tmp_path):
    run_tersor("pack", "-q", "-q", "--min-elements", "1", *options, real[1], "-o", tmp_path / "p",
               check=0)
    blob = (tmp_path / "p").read_bytes()
    header, tersor, data = parts(blob)
    out, _ = unpacked(tmp_path, blob)
    source = safetensors.numpy.load(real[1].read_bytes())
    ngrouped = 0
    for t in tersor["tensors"]:
        if t["codec"] == "raw":
            assert "error" not in t
            continue
        x, y = source[t["name"]], np.frombuffer(out[t["name"]], "<f4")
        ngrouped += "group" in t
        assert t["error"] == figures(x, y, x.shape[-1] if t.get("rows") else t.get("group", 1)), t["name"]
    assert ngrouped == 3


# ---- damage: every truncation, every bit flip ----------------------------------------------------

class Hang(Exception):
    pass


def on_alarm(signum, frame):
    raise Hang


def outcome(argv, stderr_path):
    """Exit status (negative: signal, None: it hung) and standard error of one run, cheaply."""
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
               (os.POSIX_SPAWN_OPEN, 2, stderr_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)]
    child = os.posix_spawn(argv[0], argv, dict(os.environ, LC_ALL="C"), file_actions=actions)
    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(30)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except Hang:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        status = None
    signal.alarm(0)
    with open(stderr_path, errors="backslashreplace") as file:
        return status, file.read()


def mutated(blob, mutation):
    kind, at = mutation
    if kind == "cut":
        return blob[:at]
    out = bytearray(blob)
    out[at // 8] ^= 1 << at % 8
    return bytes(out)


def try_verify(folder, blob, mutations):
    """Those of the mutations that are not refused in the one right way, by one process for all of them."""
    paths = [os.path.join(folder, f"{os.getpid()}-{i}.st") for i in range(len(mutations))]
    for path, mutation in zip(paths, mutations):
        with open(path, "wb") as file:
            file.write(mutated(blob, mutation))
    status, text = outcome([BINARY, "verify", "-j", "1", *paths], os.path.join(folder, f"{os.getpid()}.err"))
    lines = text.splitlines()
    if status != 3 or len(lines) != len(paths):
        return [(status, text)] if len(mutations) == 1 else [
            wrong for mutation in mutations for wrong in try_verify(folder, blob, [mutation])]
    return [(mutation, line) for mutation, path, line in zip(mutations, paths, lines)
            if not line.startswith(f"tersor: {path}: ")]


def check_all_refused(folder, blob, mutations):
    share = 128
    chunks = [mutations[i:i + share] for i in range(0, len(mutations), share)]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        done = pool.map(try_verify, [str(folder)] * len(chunks), [blob] * len(chunks), chunks)
        wrong = [w for part in done for w in part]
    assert wrong == []


def all_flips(blob):
    if SANITIZED:
        return [("flip", 8 * at + at % 8) for at in range(len(blob))]
    return [("flip", bit) for bit in range(8 * len(blob))]


def test_undamaged_file_is_accepted(tiny, tmp_path):
    """The control: what the others damage is sound."""
    (tmp_path / "p").write_bytes(tiny)
    assert len(tiny) < 2048
    run_tersor("verify", tmp_path / "p", check=0)


def test_every_truncation_is_refused(tiny, tmp_path):
    check_all_refused(tmp_path, tiny, [("cut", size) for size in range(len(tiny))])


def test_every_bit_flip_is_refused(tiny, tmp_path):
    check_all_refused(tmp_path, tiny, all_flips(tiny))


def test_every_bit_flip_of_a_file_with_every_codec_is_refused(tmp_path):
    """All bits only with TERSOR_LONG=1; else a prime stride, which meets every bit position."""
    blob = every_codec()
    (tmp_path / "p").write_bytes(blob)
    run_tersor("verify", "--allow-nonfinite", tmp_path / "p", check=0)
    check_all_refused(tmp_path, blob, all_flips(blob)[::1 if LONG else 61])


def every_codec():
    """A forged file of five elements in every codec and scale format."""
    tensors = []
    x = np.array([1, -0.3, 0.007, 0, 1e-9], np.float32)
    for codec in ("f32", *oracle.WEIGHTS, "bf16+trunc5", "fp16+sr13", *oracle.MOMENTA,
                  *oracle.VARIANCES, *oracle.TABLED):
        for scale in scales_of(codec):
            made = oracle.encode(codec, np.abs(x) if codec in oracle.VARIANCES else x, 4,
                                 scale or "e8m8")
            contents = [made[suffix].tobytes() for suffix, _ in planes_of(codec, scale)]
            tensors.append((f"{codec}/{scale}", codec, scale, 4, [5], contents))
    return forged(tensors)


def test_damaged_files_are_not_unpacked(tiny, tmp_path):
    """A sample of the same damage: unpack refuses it too and leaves nothing behind."""
    sample = all_flips(tiny)[::7 if SANITIZED else 61]
    sample += [("cut", size) for size in range(0, len(tiny), 37)]
    # Also every byte of the data: what a header check alone would let pass.
    data = 8 + struct.unpack("<Q", tiny[:8])[0]
    sample += [("flip", 8 * at + at % 8) for at in range(data, len(tiny))]
    path = tmp_path / "in"
    for mutation in sample:
        path.write_bytes(mutated(tiny, mutation))
        argv = [BINARY, "unpack", "-j", "1", str(path), "-o", str(tmp_path / "out")]
        status, text = outcome(argv, str(tmp_path / "err"))
        assert (status, text.count("\n")) == (3, 1), (mutation, status, text)
        assert text.startswith(f"tersor: {path}: ")
        assert sorted(os.listdir(tmp_path)) == ["err", "in"]


# ---- damage: swapped planes, wrong versions, unknown and missing parts ---------------------------

def refused(folder, blob, expect=""):
    """Both readers refuse it; the reason contains `expect`."""
    path, out = folder / "bad", folder / "out"
    path.write_bytes(blob)
    for command in (("verify", path), ("unpack", path, "-o", out)):
        done = run_tersor(*command)
        assert done.returncode == 3, (command, done.returncode, done.stdout, done.stderr)
        line = one_line_error(done)
        assert line.startswith(f"tersor: {path}: ") and expect in line, line
    assert not out.exists()


def swap(a, b):
    def change(header, tersor):
        header[a]["data_offsets"], header[b]["data_offsets"] = (header[b]["data_offsets"],
                                                                header[a]["data_offsets"])
    return change


@pytest.mark.parametrize("a, b", [
    ("w.exp_avg::scales", "w.exp_avg_sq::scales"),
    ("w.exp_avg::quantized", "w::error_bits"),
    ("w.exp_avg_sq::quantized", "w.exp_avg::quantized"),
])
def test_swapped_planes_are_refused(a, b, tiny, tmp_path):
    header, tersor, data = parts(tiny)
    (s, e), (t, f) = header[a]["data_offsets"], header[b]["data_offsets"]
    moved = bytearray(data)
    moved[s:e], moved[t:f] = data[t:f], data[s:e]
    assert moved != data and e - s == f - t
    refused(tmp_path, tiny[:-len(data)] + bytes(moved), "is damaged")           # the bytes
    swap(a, b)(header, tersor)
    refused(tmp_path, joined(header, tersor, data), "is damaged")               # the offsets


def test_swapped_hashes_and_names_are_refused(tiny, tmp_path):
    header, tersor, data = parts(tiny)
    changed = copy.deepcopy(tersor)
    changed["tensors"][0]["xxh3"].reverse()
    refused(tmp_path, joined(header, changed, data), "is damaged")
    changed = copy.deepcopy(tersor)
    first, second = changed["tensors"][1:]
    first["name"], second["name"] = second["name"], first["name"]
    refused(tmp_path, joined(header, changed, data), "does not fit its codec")
    two = forged([("a", "softsign8", "e8m8", 2, [2], [b"\x01\x7f", b"\x00\x70"]),
                  ("b", "softsign8", "e8m8", 2, [2], [b"\x7f\x01", b"\x00\x71"])])
    header, tersor, data = parts(two)
    (tmp_path / "good").write_bytes(two)
    run_tersor("verify", tmp_path / "good", check=0)
    tersor["tensors"][0]["name"], tersor["tensors"][1]["name"] = "b", "a"
    refused(tmp_path, joined(header, tersor, data), "is damaged")


def put(*path, value):
    """A change that sets a value in the `tersor` text."""
    def change(header, tersor):
        at = tersor
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
    return change


def drop(*path):
    def change(header, tersor):
        at = tersor
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]
    return change


def last_first(*path):
    """A change that moves the last member of an object to its front."""
    def change(header, tersor):
        at = tersor
        for step in path:
            at = at[step]
        members = list(at.items())
        at.clear()
        at.update([members[-1], *members[:-1]])
    return change


def in_header(function):
    return lambda header, tersor: function(header)


def put_entry(name, member, value):
    return in_header(lambda header: header[name].__setitem__(member, value))


def grouped_as_raw(header, tersor):
    tersor["tensors"][1] |= {"codec": "raw"}


def rows_after_group(value):
    def change(header, tersor):
        members = list(tersor["tensors"][1].items())
        at = [key for key, _ in members].index("group") + 1
        tersor["tensors"][1] = dict(members[:at] + [("rows", value)] + members[at:])
    return change


def folded(function):
    """A change of the text as a file has it."""
    def change(header, tersor):
        text = packed_text.fold(tersor)
        tersor.clear()
        tersor.update(function(text) or text)
    return change


def of_list(member, function):
    """A change of the bytes of a list in base64."""
    return folded(lambda t: t.__setitem__(member, base64.b64encode(function(base64.b64decode(t[member]))).decode()))


def without_names(function=lambda header, tersor: None):
    """Names and shapes are left to the arrays, in the order of the header."""
    def change(header, tersor):
        text = packed_text.fold(tersor)
        text["tensors"] = [t["coding"] for t in text["tensors"]]
        tersor.clear()
        tersor.update(text)
        function(header, tersor)
    return change


def arrays_backwards(header, tersor):
    arrays = [(name, header.pop(name)) for name in list(header) if name != "__metadata__"]
    header.update(reversed(arrays))


def repeat_tensor(header, tersor):
    tersor["tensors"].append(tersor["tensors"][0])


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


W, M, V = ("tensors", 0), ("tensors", 1), ("tensors", 2)
MEMBERS = "missing or unknown members"
CHANGES = {
    "version 0": (put("version", value=0), "found packed format version 0, expected 1"),
    "version 2": (put("version", value=2), "found packed format version 2, expected 1"),
    "version 2 with a new member": (
        lambda h, t: t.update(version=2, feature=[1]), "found packed format version 2, expected 1"),
    "version as text": (put("version", value="1"), "no version"),
    "version 1.5": (put("version", value=1.5), "no version"),
    "version true": (put("version", value=True), "no version"),
    "no version": (drop("version"), "no version"),
    "unknown root member": (put("features", value=1), MEMBERS),
    "no tool": (drop("tool"), MEMBERS),
    "no source": (drop("source"), MEMBERS),
    "no generation": (drop("generation"), MEMBERS),
    "no tensors": (drop("tensors"), MEMBERS),
    "root out of order": (folded(lambda t: dict(reversed(t.items()))), MEMBERS),
    "unknown source kind": (put("source", "kind", value="torch"), "unknown source kind torch"),
    "source kind is a number": (put("source", "kind", value=1), MEMBERS),
    "unknown source member": (put("source", "path", value="x"), MEMBERS),
    "no source format": (drop("source", "format"), MEMBERS),
    "source out of order": (last_first("source"), MEMBERS),
    "source format is a number": (put("source", "format", value=1), "source format"),
    "source format without the entry": (
        in_header(lambda h: h["__metadata__"].pop("format")), "no format entry"),
    "source is a list": (put("source", value=[]), MEMBERS),
    "generation -1": (put("generation", value=-1), "generation"),
    "generation 1.5": (put("generation", value=1.5), "generation"),
    "generation 1000001": (put("generation", value=1000001), "generation"),
    "generation as text": (put("generation", value="1"), "generation"),
    "tensors is an object": (folded(lambda t: t.update(tensors={})), "no list of tensors"),
    "tensor is a text": (folded(lambda t: t["tensors"].__setitem__(0, "w")), "without one of the codings"),
    "tensor is null": (folded(lambda t: t["tensors"].__setitem__(0, None)), "without one of the codings"),
    "number of no coding": (folded(lambda t: t["tensors"].__setitem__(0, 3)), "without one of the codings"),
    "negative coding": (folded(lambda t: t["tensors"].__setitem__(0, -1)), "without one of the codings"),
    "coding 0.5": (folded(lambda t: t["tensors"][0].update(coding=0.5)), "without one of the codings"),
    "codings is an object": (folded(lambda t: t.update(codings={})), "no list of codings"),
    "coding is a text": (folded(lambda t: t["codings"].__setitem__(0, "raw")), "a coding with missing or"),
    "coding out of order": (
        folded(lambda t: t["codings"].__setitem__(0, dict(reversed(t["codings"][0].items())))), "a coding with missing or"),
    "unknown member of a coding": (folded(lambda t: t["codings"][0].update(bits=8)), "a coding with missing or"),
    "coding that no tensor has": (folded(lambda t: t["codings"].append(t["codings"][0])), "a coding that no tensor has"),
    "unknown codec of no tensor": (
        folded(lambda t: t["codings"].append({"kind": "weight", "codec": "bf16+ulp9"})), "unknown codec bf16+ulp9"),
    "tensors before codings": (
        folded(lambda t: dict(sorted(t.items(), key=lambda m: m[0] == "codings"))), MEMBERS),
    "unknown tensor member": (put(*W, "extra", value=1), MEMBERS),
    "tensor out of order": (folded(lambda t: t["tensors"].__setitem__(0, dict(reversed(t["tensors"][0].items())))), MEMBERS),
    "unknown kind": (put(*W, "kind", value="bias"), "kind"),
    "kind is a number": (put(*W, "kind", value=1), "kind"),
    "unknown dtype": (put(*W, "dtype", value="F31"), "unknown dtype"),
    "codec on another dtype": (
        put(*W, "dtype", value="F64"), "a codec with a dtype that it does not take"),
    "other shape": (put(*W, "shape", value=[4]), "does not fit its codec"),
    "other rank": (put(*W, "shape", value=[3, 1]), "does not fit its codec"),
    "65 dimensions": (put(*W, "shape", value=[3] + [1] * 64), "shape"),
    "shape past 64 bits": (put(*W, "shape", value=[2**40, 2**40]), "shape"),
    "negative shape": (put(*W, "shape", value=[-3]), "shape"),
    "fractional shape": (put(*W, "shape", value=[3.5]), "shape"),
    "shape is a number": (put(*W, "shape", value=3), "shape"),
    "unknown codec": (put(*W, "codec", value="bf16+ulp9"), "unknown codec bf16+ulp9"),
    "codec in capitals": (put(*W, "codec", value="BF16+ULP8"), "unknown codec BF16+ULP8"),
    "codec is null": (put(*W, "codec", value=None), "no codec"),
    "codec of other planes": (put(*W, "codec", value="bf16+ulp16"), "does not fit its codec"),
    "codec without the second plane": (put(*W, "codec", value="bf16"), "hashes"),
    "state as raw": (grouped_as_raw, ""),
    "unknown scale": (put(*M, "scale", value="e9m9"), "unknown scale format"),
    "other scale": (put(*M, "scale", value="f16"), "does not fit its codec"),
    "scale is null": (put(*M, "scale", value=None), "scale"),
    "no scale": (drop(*M, "scale"), "scale"),
    "no group": (drop(*M, "group"), "group"),
    "rows of a vector": (rows_after_group(True), "rows of a tensor whose rows its groups divide"),
    "rows false": (rows_after_group(False), "rows is not true"),
    "rows of a weight": (put(*W, "rows", value=True), "rows of a codec without groups"),
    "group 0": (put(*M, "group", value=0), "group is not an integer from 1 to 65536"),
    "group 65537": (put(*M, "group", value=65537), "group is not an integer from 1 to 65536"),
    "group 2": (put(*M, "group", value=2), "does not fit its codec"),
    "group as text": (put(*M, "group", value="32"), "group"),
    "hashes are no base64": (folded(lambda t: t.update(xxh3=t["xxh3"] + "?===")), "xxh3 is not base64"),
    "hashes are a list": (folded(lambda t: t.update(xxh3=[t["xxh3"]])), "xxh3 is not base64"),
    "hash of 7 bytes": (of_list("xxh3", lambda b: b[:-1]), "no hash for each plane"),
    "one hash less": (of_list("xxh3", lambda b: b[:-8]), "no hash for each plane"),
    "no hashes": (folded(lambda t: t.pop("xxh3") and t), MEMBERS),
    "one hash more": (of_list("xxh3", lambda b: b + bytes(8)), "more hashes than planes"),
    "hash of 9 bytes": (of_list("xxh3", lambda b: b + bytes(1)), "more hashes than planes"),
    "wrong hash": (put(*W, "xxh3", 1, value=ZEROS.decode()), "is damaged"),
    "figures are a list": (folded(lambda t: t.update(error=[])), "error is not base64"),
    "figures of no tensor": (folded(lambda t: t.update(error="")), "no error figures"),
    "one figure less": (of_list("error", lambda b: b[:-3]), "no error figures"),
    "one figure more": (of_list("error", lambda b: b + bytes(3)), "more error figures than tensors"),
    "figure that is no number": (
        of_list("error", lambda b: b[:3] + bytes([0, 0xf8, 0x7f]) + b[6:]), "an error figure is not a number"),
    "one figure not measured": (of_list("error", lambda b: b"\xff" * 3 + b[3:]), "an error figure is not a number"),
    "tensor twice": (repeat_tensor, "no plane w"),
    "more tensors than arrays": (folded(lambda t: t.update(tensors=t["tensors"] * 3)), "more tensors than arrays"),
    "more names than arrays": (
        without_names(lambda h, t: t["tensors"].extend([0, 0])), "more tensors than arrays"),
    "codings exchanged": (without_names(lambda h, t: t["tensors"].reverse()), "first plane"),
    "arrays backwards": (
        without_names(arrays_backwards), "a name that no source tensor can have"),
    "shape of a first plane that is not there": (
        folded(lambda t: (t["tensors"][0].pop("shape"), t["tensors"][0].update(name="x")) and None), "no plane x"),
    "tensor left out": (drop("tensors", 0), "is not a plane of any packed tensor"),
    "name of nothing": (put(*W, "name", value="x"), "no plane x"),
    "name is a number": (put(*W, "name", value=1), "name"),
    "plane renamed": (
        in_header(lambda h: h.__setitem__("w::bits", h.pop("w::error_bits"))),
        "no plane w::error_bits"),
    "plane of another type": (put_entry("w::error_bits", "dtype", "U8"), "does not fit its codec"),
    "plane of another shape": (
        put_entry("w::error_bits", "shape", [1, 3]), "does not fit its codec"),
    "scales of rank 2": (put_entry("w.exp_avg::scales", "shape", [1, 1]), "does not fit its codec"),
    "narrow plane as F16": (put_entry("w", "dtype", "F16"), "does not fit its codec"),
    "array that is no plane": (
        in_header(lambda h: h.update(x={"dtype": "U8", "shape": [0], "data_offsets": [0, 0]})),
        "is not a plane of any packed tensor"),
    "unknown member of an array": (put_entry("w", "codec", "x"), "found member codec"),
    "metadata entry that is no text": (
        in_header(lambda h: h["__metadata__"].__setitem__("step", 400)), "not a string"),
    "nested too deep": (put("tool", value=nested(9)), "nested deeper than the limit of 8"),
    **{f"no {member}": (folded(lambda t, m=member: t["codings"][1].pop(m) and None), "a coding with missing or")
       for member in ("kind", "codec")},
    "no coding": (folded(lambda t: t["tensors"][1].pop("coding") and None), MEMBERS),
}


@pytest.mark.parametrize("name", CHANGES)
def test_wrong_version_unknown_or_missing_part_is_refused(name, tiny, tmp_path):
    """Changes that fit the header's check again: only the rule itself can refuse them."""
    change, expect = CHANGES[name]
    header, tersor, data = parts(tiny)
    change(header, tersor)
    refused(tmp_path, joined(header, tersor, data), expect)


def sr_file(change):
    """One element as fp16+sr2, its entry and arrays changed."""
    blob = forged([("w", "fp16+sr2", "", 1, [1], [b"\x01\x3c", bytes(12)])])
    header, tersor, data = parts(blob)
    change(header, tersor["tensors"][0])
    return joined(header, tersor, data)


@pytest.mark.parametrize("change, expect", [
    (lambda h, t: t.pop("seed"), "no seed"),
    (lambda h, t: t.update(seed="0"), "no seed"),
    (lambda h, t: t.update(seed=-1), "no seed"),
    (lambda h, t: t.update(seed=1.5), "no seed"),
    (lambda h, t: t.update(seed=2**48), "no seed"),
    (lambda h, t: t.update(codec="fp16+trunc3"), "seed of a codec that is not stochastic"),
    (lambda h, t: t.update(codec="fp16+sr3"), "does not fit its codec"),
    (lambda h, t: t.update(codec="fp16+sr14"), "unknown codec fp16+sr14"),
    (lambda h, t: t.update(shape=[33]), "does not fit its codec"),
    (lambda h, t: h["w::extra_bits"].update(dtype="I32"), "does not fit its codec"),
    (lambda h, t: h["w::extra_bits"].update(shape=[3, 1]), "does not fit its codec"),
    (lambda h, t: h.update({"w::error_bits": h.pop("w::extra_bits")}), "no plane w::extra_bits"),
])
def test_wrong_seed_or_extra_bits_are_refused(change, expect, tmp_path):
    out, _ = unpacked(tmp_path, sr_file(lambda h, t: None))
    assert out["w"].hex() == "0020803f"
    refused(tmp_path, sr_file(change), expect)


@pytest.mark.parametrize("text", [
    "", "null", "[]", "1", "{}", '{"version":1', "{version:1}", '{"version":1,"version":1}',
    "\ufeff{}", '{"version":1}x', '{"version":01}', '{"version":1,}', "{'version':1}",
], ids=repr)
def test_text_that_is_not_packed_metadata_is_refused(text, tiny, tmp_path):
    header, _, data = parts(tiny)
    refused(tmp_path, joined(header, text, data))


def test_duplicate_key_in_the_text_is_refused(tiny, tmp_path):
    header, tersor, data = parts(tiny)
    text = compact(tersor)
    for extra in ('"codec":"raw",', '"\\u0063odec":"raw",'):
        twice = text.replace('"codec":', extra + '"codec":', 1)
        refused(tmp_path, joined(header, twice, data), "duplicate key")


@pytest.mark.parametrize("change", [
    lambda text: text.replace(CHECK, b'"tersor_chek":"'),
    lambda text: text.replace(CHECK, b'"tersor_check": "'),
    lambda text: text.replace(CHECK, b'"tersor\\u005fcheck":"'),
    lambda text: text.replace(b'"tersor":', b'"tensor":'),
    lambda text: re.sub(rb'("tersor_check":")(.{16})', lambda m: m[1] + ZEROS, text),
    lambda text: re.sub(rb'("tersor_check":")(.{16})', lambda m: m[1] + m[2].upper(), text),
    lambda text: re.sub(rb'("tersor_check":")(.{16})', lambda m: m[1] + m[2][:15], text),
    lambda text: re.sub(rb'("tersor_check":")(.{16})', lambda m: m[1] + m[2] + b"0", text),
    lambda text: text + b"        ",
], ids=["no check", "space before it", "escaped key", "check only", "zeros", "capitals",
        "15 digits", "17 digits", "more padding"])
def test_header_check_in_another_form_is_refused(change, tiny, tmp_path):
    header, _, data = parts(tiny)
    text = tiny[8:-len(data)]
    assert re.search(rb'"tersor_check":"[0-9a-f]*[a-f]', text)      # so that capitals differ
    text = change(text)
    refused(tmp_path, struct.pack("<Q", len(text)) + text + data)


# ---- what a reader must not reject ---------------------------------------------------------------

def spaced(header, tersor, data):
    header["__metadata__"]["tersor"] = json.dumps(packed_text.fold(tersor), indent=2)
    text = json.dumps(header, indent=1).encode().replace(b'"tersor_check": "', CHECK)
    return sealed(text + b" \t\r\n" * 50, data)


def other_layout(header, tersor, data):
    """Arrays backwards in the data and in the header, so that some are not aligned."""
    arrays = [name for name in header if name != "__metadata__"]
    moved, out = {"__metadata__": header["__metadata__"]}, b""
    for name in reversed(arrays):
        content = plane(header, data, name)
        moved[name] = header[name] | {"data_offsets": [len(out), len(out) + len(content)]}
        out += content
    return joined(moved, tersor, out)


def changed_by(*changes):
    def make(header, tersor, data):
        for change in changes:
            change(header, tersor)
        return joined(header, tersor, data)
    return make


@pytest.mark.parametrize("make", [
    changed_by(), spaced, other_layout,
    changed_by(put("tool", value="someone else's 3.0")),
    changed_by(put("generation", value=1000000)),
    changed_by(put(*W, "kind", value="other"), put(*V, "kind", value="momentum")),
    changed_by(put(*W, "error", "nmse", value=None)), changed_by(put(*W, "error", value=None)), changed_by(without_names()),
    changed_by(in_header(lambda h: h["__metadata__"].update({"": "", "naïve": "\u0001\"\\"}))),
], ids=["same", "white space", "other layout", "tool", "generation", "kinds", "infinite figure",
        "not measured", "no names", "metadata"])
def test_unusual_but_valid_files_are_read(make, tiny, tmp_path):
    want, _ = unpacked(tmp_path, tiny)
    got, _ = unpacked(tmp_path, make(*parts(tiny)))
    assert got == want


def test_hostile_planes_decode_without_a_fault(tmp_path):
    """Any pattern in any plane: what comes out may be NaN, but it comes out."""
    rng = np.random.default_rng(1)
    tensors = []
    for i, codec in enumerate(("f32", *oracle.WEIGHTS, *oracle.TRUNCATED, *oracle.MOMENTA,
                               *oracle.VARIANCES, *oracle.TABLED)):
        for scale in scales_of(codec):
            widths = plane_widths(codec, scale)
            counts = [4096] + [4096 // 4 if scale else 4096] * 2
            if codec in oracle.TRUNCATED:
                _, k, stochastic = oracle.truncated(codec)
                widths[1], counts[1] = 4, 128 * (k + stochastic)
            tensors.append((f"{i}{scale}", codec, scale, 4, [64, 64],
                            [rng.bytes(n * w) for n, w in zip(counts, widths)]))
    blob = forged(tensors)
    out, _ = unpacked(tmp_path, blob)
    assert all(len(content) == 4 * 4096 for content in out.values())
    run_tersor("verify", "--allow-nonfinite", tmp_path / "unpack.in", check=0)
    run_tersor("verify", tmp_path / "unpack.in", check=1)
