"""helpers/reader.py, which knows docs/internals/format.md only, against the binary and the vectors of the document."""
import base64
import collections
import dataclasses
import io
import json
import math
import pickle
import re
import shutil
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors
import xxhash

import oracle
import packed_text
import reader
from conftest import DATA, VECTORS, codec_vectors, safetensors_bytes, write_source

CHECK = b'"tersor_check":"'
ZEROS = "0" * 16
ANY_NAN = {*reader.SCALED, "bf16+bf16", "fp16+fp16"}    # whose NaN have no pattern of their own


# ---- Files -------------------------------------------------------------------------------------

def split(content):
    size = struct.unpack("<Q", content[:8])[0]
    return content[8:8 + size], content[8 + size:]


def contents(path):
    """What is in a safetensors file, in the order of its data: metadata and tensors."""
    header, data = split(path.read_bytes())
    header = json.loads(header)
    metadata = header.pop("__metadata__", {})
    order = sorted(header, key=lambda name: header[name]["data_offsets"])
    return metadata, {name: (header[name]["dtype"], tuple(header[name]["shape"]),
                             data[slice(*header[name]["data_offsets"])]) for name in order}


@dataclasses.dataclass
class Global:
    """What a tree names; calling it gives a tuple."""
    name: str

    def __call__(self, *args):
        return self.name, *args


def load_tree(content):
    """A tree, with tensors as tuples of the arguments that would rebuild them."""
    class Inert(pickle.Unpickler):
        def find_class(self, module, name):
            if (module, name) == ("collections", "OrderedDict"):
                return collections.OrderedDict
            return Global(f"{module}.{name}")

        def persistent_load(self, pid):
            return pid

    return Inert(io.BytesIO(content)).load()


def check_tree(tree, checkpoint):
    """The tree itself; tensors that have no place in it get one, in a mapping before it."""
    if tree is None:
        return
    found, stored = load_tree(tree), load_tree(checkpoint.tree)
    if found != stored:
        placed, rest = found
        assert rest == stored and placed
        assert set(placed) <= set(checkpoint.tensors)
        assert not any(f"'{name}'" in repr(stored) for name in placed)


def compare(path, tersor):
    """The reader's tensors must be those that `tersor unpack` writes."""
    checkpoint = reader.read(path)
    out = path.with_suffix(".unpacked")
    tersor("unpack", path, "-o", out, "--to", "safetensors", "-f", "-q", check=0)
    metadata, tensors = contents(out)
    if checkpoint.generation:
        assert metadata.pop("tersor_generation") == str(checkpoint.generation)
    tree = tensors.pop("tersor::tree", (None, None, None))[2]
    if "tersor_tree" in metadata:
        tree = base64.b64decode(metadata.pop("tersor_tree"))
    assert (tree is None) == (checkpoint.tree is None)
    check_tree(tree, checkpoint)
    if checkpoint.source_kind != "safetensors":
        assert metadata.pop("format") == "pt" and "format" not in checkpoint.metadata
        tensors = {name: tensors[name] for name in checkpoint.tensors if name in tensors}
    assert metadata == checkpoint.metadata
    assert list(tensors) == list(checkpoint.tensors)
    for name, (dtype, shape, content) in tensors.items():
        tensor = checkpoint.tensors[name]
        assert (tensor.dtype, tensor.shape) == (dtype, shape)
        if tensor.codec in ANY_NAN:
            theirs = (np.frombuffer(content, "<f4") if dtype == "F32"
                      else reader.WIDEN[dtype](np.frombuffer(content, "<u2")))
            differ = theirs.view("u4") != tensor.values.view("u4")
            differ &= ~(np.isnan(theirs) & np.isnan(tensor.values))
            at = np.flatnonzero(differ)[:4]
            assert not len(at), (name, tensor.codec, at, theirs[at], tensor.values[at])
        else:
            assert tensor.source_bytes == content, (name, tensor.codec)
    return checkpoint


# ---- Packed files made by hand -----------------------------------------------------------------

def figures():
    return {"abs": 0, "ulp": 0, "rel": 0, "nmse": 0.5, "cosine": None}


BESIDE = "beside "


class Packed:
    """A packed file in parts: `header` and `tersor` are its two JSON texts as objects."""

    def __init__(self, generation=1):
        self.header = {"__metadata__": {"format": "pt"}}
        self.tersor = {"version": 1, "tool": "by hand",
                       "source": {"kind": "safetensors", "format": None},
                       "generation": generation, "tensors": []}
        self.data = b""

    def add(self, name, codec, *planes, dtype="F32", shape=None, scale=None, group=None):
        shape = list(shape if shape is not None else planes[0].shape)
        tensor = reader.Tensor(name, "other", dtype, tuple(shape), codec, scale, group)
        seed = {"seed": 5} if reader.is_stochastic(codec) else {}
        if codec.startswith("ratio"):       # to roots of 1
            self.add(BESIDE + name, "raw", np.ones(shape, "<f4"))
            seed = {"beside": BESIDE + name, "eps": 0}
        entry = {"name": name, "kind": "other", "dtype": dtype, "shape": shape, "codec": codec}
        if scale:
            entry |= {"scale": scale, "group": group}
        entry |= seed
        entry["xxh3"] = [reader.plane_hash(tensor, i, plane.tobytes()) for i, plane in enumerate(planes)]
        if codec != "raw":
            entry["error"] = figures()
        self.tersor["tensors"].append(entry)
        for plane, (plane_name, plane_dtype, plane_shape) in zip(planes, reader.planes_of(tensor)):
            begin = len(self.data)
            self.data += plane.tobytes()
            self.header[plane_name] = {"dtype": plane_dtype, "shape": plane_shape,
                                       "data_offsets": [begin, len(self.data)]}
        return self

    def text(self, **dump):
        """The header, its check still zeros."""
        metadata = self.header["__metadata__"]
        if self.tersor is not None:
            metadata = metadata | {"tersor": json.dumps(packed_text.fold(self.tersor), **dump)}
        metadata = metadata | {"tersor_check": ZEROS}
        return json.dumps(self.header | {"__metadata__": metadata}, separators=(",", ":")).encode()

    def sealed(self):
        return sealed(self.text(), self.data)

    def write(self, path):
        path.write_bytes(self.sealed())
        return path


def sealed(text, data):
    """A file whose header has the right check."""
    digits = xxhash.xxh3_64_hexdigest(text).encode()
    text = text.replace(CHECK + ZEROS.encode(), CHECK + digits)
    return struct.pack("<Q", len(text)) + text + data


def sample():
    """Every sort of plane, an empty tensor and a scalar."""
    return (Packed()
            .add("w", "bf16+ulp8", np.array([0x3f80, 0xbe9a, 0x3be5], "<u2"),
                 np.array([0, 102, 96], "i1"))
            .add("m", "softsign8", np.array([127, -42, 0], "i1"), np.array([0x7507], "<u2"),
                 scale="e8m8", group=2**16)
            .add("v", "ulinear8", np.array([[255, 3]], "u1"), np.array([1, 0], "<f4"),
                 scale="f32", group=1)
            .add("e", "f32", np.zeros([2, 0], "<f4"))
            .add("step", "raw", np.array(7, "<i8"), dtype="I64")
            .add("r", "fp16+sr2", np.array([0x3c01, 0x8001], "<u2"),
                 np.array([0x3d, 0, 0], "<u4")))


# ---- Codecs against the binary -----------------------------------------------------------------

def weights():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 4000, dtype=np.uint32)
    bits = bits[(bits >> 23 & 0xff) < 0xfe]
    tiny = np.array([0, 1, 2, 0x7fff, 0x8000, 0x8001, 0x7fffff, 0x800000, 0x800001, 0xffff8000])
    ties = 0x3f800000 + np.array([-1, 0, 1, 0x7fff, 0x8000, 0x8001, 0x18000])
    edges = np.concatenate([tiny, ties, 0x38800000 + np.arange(-3, 3)]).astype(np.uint32)
    edges = np.concatenate([edges, edges | 0x80000000]).view("f4")
    fits = rng.normal(0, 0.02, (7, 11, 13)).astype("f4")
    return {
        "fits": fits,
        "small": np.ldexp(fits, rng.integers(-30, 12, fits.shape)).astype("f4"),
        "edges": edges[np.isfinite(edges)],
        "wide": bits.view("f4"),
        "max": np.array([0x7f7f7fff, 0xff7f7fff], "u4").view("f4"),
        "overflow": np.array([3.4028235e38, 1], "f4"),
        "infinite": np.array([np.inf, 1, -np.inf], "f4"),
        "nan": np.array([0x7fc00000, 0xffff0000, 0x7f800001, 0x7fc02000], "u4").view("f4"),
        "quiet nan": np.array([0x7fc10000, 0xff800000, 0x80000000], "u4").view("f4"),
        "zeros": np.zeros(5, "f4"),
        "minus zeros": -np.zeros((5, 1), "f4"),
        "scalar": np.array(0.3, "f4"),
        "empty": np.zeros((3, 0), "f4"),
        "one": np.array([-1e-3], "f4"),
    }


def states():
    rng = np.random.default_rng(2)
    outliers = rng.normal(0, 1e-4, 999).astype("f4")
    outliers[::97] *= 1e4
    subnormal = rng.integers(-1000, 1000, (33, 3)).astype("f4") * np.float32(1e-45)
    return weights() | {"outliers": outliers, "subnormal": subnormal,
                        "dead groups": np.repeat(np.array([0, 1e-9, 0, 3], "f4"), 40)}


def absolute(tensors):
    return {name: np.asarray(np.abs(values)) for name, values in tensors.items()}


def pack(tersor, tmp_path, kind, tensors, *options):
    source = write_source(tmp_path / "source", tensors, {"format": "np", "step": "400"})
    packed = tmp_path / "packed"
    tersor("pack", source, "-o", packed, "-q", f"--map=.={kind}", *options, check=0)
    checkpoint = compare(packed, tersor)
    assert checkpoint.metadata == {"format": "np", "step": "400"}
    return checkpoint


@pytest.mark.parametrize("codec", sorted(reader.UNSCALED | reader.TRUNCATED))
def test_weights(tersor, tmp_path, codec):
    checkpoint = pack(tersor, tmp_path, "weight", weights(), "--weights", codec)
    codecs = {name: tensor.codec for name, tensor in checkpoint.tensors.items()}
    for name in ["fits", "small", "edges", "zeros", "scalar", "empty", "one"]:
        assert codecs[name] == codec
    assert codecs["nan"] == ("f32" if codec == "f32" else "raw")
    if codec in ("f32", "bf16+exact16", "bf16+trunc16", "bf16+sr16"):
        assert checkpoint.generation == 0
        for name, values in weights().items():
            assert checkpoint.tensors[name].source_bytes == values.tobytes()


@pytest.mark.parametrize("group", [1, 7, 32, 65536])
@pytest.mark.parametrize("scale", ["e8m8", "f16", "f32"])
@pytest.mark.parametrize("kind, codec", [("momentum", "softsign8"), ("momentum", "linear8"),
                                         ("variance", "sqrt8"), ("variance", "ulinear8")])
def test_states(tersor, tmp_path, kind, codec, scale, group):
    tensors = states()
    if kind == "variance":
        tensors = absolute(tensors)
    checkpoint = pack(tersor, tmp_path, kind, tensors, f"--{kind}", codec, "--scale", scale,
                      "--group", group)
    for name in ["fits", "zeros", "scalar", "empty", "one", "outliers", "subnormal", "dead groups"]:
        tensor = checkpoint.tensors[name]
        assert (tensor.codec, tensor.scale, tensor.group) == (codec, scale, group)


@pytest.mark.parametrize("kind", ["momentum", "variance"])
@pytest.mark.parametrize("codec", ["bf16", "f32"])
def test_unscaled_states(tersor, tmp_path, kind, codec):
    checkpoint = pack(tersor, tmp_path, kind, states(), f"--{kind}", codec)
    assert checkpoint.tensors["outliers"].codec == codec


def test_flashoptim(tersor, tmp_path):
    for kind in "momentum", "variance":
        checkpoint = pack(tersor, tmp_path, kind, absolute(states()), "--compat=flashoptim", "-f")
        assert checkpoint.tensors["outliers"].scale == "f16"


def test_every_narrow_pattern(tersor, tmp_path):
    """Hostile ones too: no writer makes most of these planes."""
    rng = np.random.default_rng(3)
    packed = Packed()
    narrow = np.tile(np.arange(65536).astype("<u2"), 6).reshape(6, -1)
    for codec, dtypes in sorted(reader.UNSCALED.items()):
        if dtypes[0] == "F32":
            packed.add(codec, codec, rng.integers(0, 2**32, 9999, dtype="u4").view("<f4"))
        elif len(dtypes) == 1:
            packed.add(codec, codec, narrow)
        else:
            rest = rng.integers(0, 256, narrow.nbytes, dtype="u1")
            rest = rest.view(reader.STORED[dtypes[1]])[:narrow.size].reshape(narrow.shape)
            low = np.iinfo(rest.dtype).min
            for i, value in enumerate([low, low + 1, 1, 0]):
                rest[i] = value
            packed.add(codec, codec, narrow, rest)
    for codec, (dtype, _, width) in reader.TRUNCATED.items():
        words = rng.integers(0, 2**32, (65536 + 9) // 32 * width + width, dtype="u4")
        patterns = np.append(narrow[0], narrow[0][:9]).astype(reader.STORED[dtype])
        packed.add(codec, codec, patterns, words)
    compare(packed.write(tmp_path / "packed"), tersor)


def test_every_code(tersor, tmp_path):
    rng = np.random.default_rng(4)
    packed = Packed()
    edges = {"e8m8": [0, 1, 0x7f00, 0xbeff, 0xbf00, 0xfeff, 0xff00, 0xff01, 0xffff],
             "f16": [0, 1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x7c01, 0x8000, 0xbc00, 0xffff],
             "f32": [0, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x80000000,
                     0xbf800000, 0xffffffff]}
    codes = np.tile(np.arange(256).astype("u1"), 512)
    for codec, code in reader.SCALED.items():
        if codec in reader.TABLED or reader.is_lowrank(codec):      # which have tests of their own
            continue
        formats = {"f28": edges["f32"]} if codec.startswith("log") else edges
        if codec in reader.PACKED and formats is edges:
            formats = {"e5m3": [0, 1, 255]} if codec in oracle.WITHOUT_ZERO else {s: edges[s] for s in ("e8m8", "f32")}
        for scale, values in formats.items():
            dtype = reader.STORED[reader.SCALE_DTYPE[scale]]
            scales = rng.integers(0, 2**32, 512).astype(dtype)
            scales[:len(values)] = values
            shape, stored = codes.shape, codes.view(reader.STORED[code]) if code != "U32" else None
            if codec in reader.PACKED:
                shape, stored = (512 * 1024,), oracle.pack_bits(np.tile(np.arange(1024), 512), reader.PACKED[codec])
            packed.add(f"{codec} {scale}", codec, stored, scales, shape=shape, scale=scale,
                       group=shape[0] // 512)
    compare(packed.write(tmp_path / "packed"), tersor)


# ---- The document ------------------------------------------------------------------------------

def test_vectors_of_the_document():
    packed, expected = Packed(), []
    lines = list(codec_vectors())
    for i, (codec, scale, *planes, decoded) in enumerate(lines):
        scaled = {} if scale == "-" else {"scale": scale, "group": 32 if codec in reader.PACKED else 1}
        if codec in reader.TRUNCATED:
            bits = int(planes.pop(), 16).to_bytes(4 * reader.TRUNCATED[codec][2], "little")
            scaled["words"] = np.frombuffer(bits, "<u4")
        if codec in reader.PACKED:
            bits = int(planes[0], 16).to_bytes(4 * reader.PACKED[codec], "little")
            scale = np.array([int(planes[1], 16)], reader.STORED[reader.SCALE_DTYPE[scale]])
            packed.add(str(i), codec, np.frombuffer(bits, "<u4"), scale, shape=[1], **scaled)
            expected.append(decoded)
            continue
        planes = [np.array([int(plane, 16)], f"<u{len(plane) // 2}") for plane in planes]
        planes += [scaled.pop("words")] if "words" in scaled else []
        packed.add(str(i), codec, *planes, **scaled)
        expected.append(decoded)
    checkpoint = reader.read_bytes(packed.sealed())
    found = [f"{t.values.view('u4')[0]:08x}" for name, t in checkpoint.tensors.items() if BESIDE not in name]
    assert list(zip(lines, found)) == list(zip(lines, expected)) and len(lines) > 40


def test_file_of_the_document():
    content, text = b"", (VECTORS / "packed-file.txt").read_text()
    for at, row in re.findall(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} )+)", text, re.M):
        assert int(at, 16) == len(content)
        content += bytes.fromhex(row)
    checkpoint = reader.read_bytes(content)
    assert checkpoint.metadata == {"format": "np", "step": "400"} and checkpoint.generation == 1
    decoded = re.findall(r"^\| ([\w.]+)\[(\d)\] .*\| (\w{8}) \|$", text, re.M)
    assert len(decoded) == 9
    for name, i, bits in decoded:
        assert checkpoint.tensors[name].values.view("u4")[int(i)] == int(bits, 16)


# ---- Checkpoints -------------------------------------------------------------------------------

def stored_bytes(tensors):
    """By the document's rules: 3 bytes for each weight's element, 1 and a U16 per group for others."""
    def groups(shape):
        rows, row = (math.prod(shape[:-1]), shape[-1]) if len(shape) > 1 else (1, shape[0])
        if row > 32 and len(shape) > 1:
            return rows * (row // 32)
        return -(-rows * row // 32)
    return sum(math.prod(shape) * 3 if not name.endswith(("exp_avg", "exp_avg_sq"))
               else math.prod(shape) + 2 * groups(shape) for name, (_, shape, _) in tensors)


@pytest.fixture
def packed_gpt(tersor, tiny_gpt, tmp_path):
    packed = tmp_path / "packed.safetensors"
    tersor("pack", tiny_gpt, "-o", packed, "-q", check=0)
    return packed


def test_checkpoint(tersor, tiny_gpt, packed_gpt):
    checkpoint = compare(packed_gpt, tersor)
    metadata, tensors = contents(tiny_gpt)
    assert checkpoint.metadata == metadata and checkpoint.generation == 1
    assert ([(t.name, t.dtype, t.shape) for t in checkpoint.tensors.values()]
            == [(name, dtype, shape) for name, (dtype, shape, _) in tensors.items()])
    for name, (_, _, content) in tensors.items():
        x, y = np.frombuffer(content, "<f4"), checkpoint.tensors[name].values
        assert np.abs(x - y).max() <= np.abs(x).max() * 2**-6


def test_size(tiny_gpt, packed_gpt):
    tensors = contents(tiny_gpt)[1].items()
    header, data = split(packed_gpt.read_bytes())
    assert len(data) == stored_bytes(tensors)
    sizes = [len(content) // 4 for _, (_, _, content) in tensors]
    parameters, short = sum(sizes) // 3, sum(n % 32 != 0 for n in sizes)
    assert 5.06 * parameters <= len(data) <= 5.125 * parameters + 2 * short
    assert len(header) % 8 == 0


def test_weights_load_without_tersor(tiny_gpt, packed_gpt):
    _, tensors = contents(tiny_gpt)
    with safetensors.safe_open(packed_gpt, framework="np") as file:
        weights = [name for name in file.keys() if "::" not in name]
        assert sorted(weights) == sorted(n for n in tensors if "exp_avg" not in n)
        assert file.metadata()["format"] == "pt"
        for name in weights:
            loaded = file.get_tensor(name)
            _, shape, content = tensors[name]
            rounded = np.frombuffer(content, "<f4").reshape(shape).astype(ml_dtypes.bfloat16)
            assert loaded.dtype == ml_dtypes.bfloat16 and loaded.shape == shape
            assert (loaded.view("u2") == rounded.view("u2")).all()


def test_worst_of_real_gpt(tersor, tmp_path):
    packed = tmp_path / "packed"
    tersor("pack", DATA / "real-gpt-worst.safetensors", "-o", packed, "-q", check=0)
    compare(packed, tersor)


def test_names_metadata_and_order_survive(tersor, tmp_path):
    """Names and entries of all sorts, the source's data in an order of its own."""
    rng = np.random.default_rng(5)
    names = ["z.weight", "a.weight", "é\U0001f600\n\"\\", "tersor", "b::scale", "x" * 300, "", " ",
             "z.weight.exp_avg", "z.weight.exp_avg_sq", "\x7f\x01"]
    tensors = {name: np.abs(rng.normal(0, 1, 40)).astype("f4") for name in names}
    tensors |= {"i": ("I64", (), b"\1" * 8), "f4": ("F4", (3, 2), b"abc"),
                "empty": ("BOOL", (4, 0), b""), "last": ("F8_E8M0", (1, 1, 3), b"\xff\0\x7f")}
    for metadata in [None, {}, {"format": "np"}, {"é\t": "\"\\\x1f\U0001f600", "": ""},
                     {"format": "pt", "b": "2", "a": "1"}]:
        source = write_source(tmp_path / "source", tensors, metadata)
        tersor("pack", source, "-o", tmp_path / "packed", "-q", "-f", check=0)
        checkpoint = compare(tmp_path / "packed", tersor)
        assert checkpoint.metadata == (metadata or {})
        assert list(checkpoint.tensors) == list(tensors)


def test_generations(tersor, tmp_path):
    source = write_source(tmp_path / "0", {"w": np.array([0.3, 1], "f4")}, {"a": "b"})
    # What was decoded is encoded to the same planes: the second time loses nothing.
    for codec, generation in [("bf16+ulp8", 1), ("bf16+ulp8", 1), ("bf16", 2), ("f32", 2)]:
        tersor("pack", source, "-o", tmp_path / "packed", "-q", "-f", "--weights", codec,
               "--map=.=weight", check=0)
        checkpoint = compare(tmp_path / "packed", tersor)
        assert checkpoint.metadata == {"a": "b"} and checkpoint.generation == generation
        source = tmp_path / "unpacked"
        tersor("unpack", tmp_path / "packed", "-o", source, "-q", "-f", check=0)


# ---- Trees -------------------------------------------------------------------------------------

def tensors_in(value):
    """Name by storage, shape and strides of each tensor in a tree."""
    if isinstance(value, tuple) and value and value[0] == "torch._utils._rebuild_tensor_v2":
        (kind, _, name, location, numel), offset, shape, stride = value[1:5]
        assert (kind, location, offset, numel) == ("storage", "cpu", 0, int(np.prod(shape)))
        assert np.prod(shape) == 1 + sum((n - 1) * s for n, s in zip(shape, stride)) or not np.prod(shape)
        return {name: shape}
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return {}
    return {name: shape for item in value for name, shape in tensors_in(item).items()}


@pytest.fixture
def packed_pt(tersor, tmp_path):
    packed = tmp_path / "packed.safetensors"
    tersor("pack", DATA / "tiny-gpt" / "checkpoint.pt", "-o", packed, "-q", check=0)
    return packed


def test_tree(tersor, packed_pt):
    checkpoint = compare(packed_pt, tersor)
    assert checkpoint.source_kind == "pt" and checkpoint.metadata == {}
    tree = load_tree(checkpoint.tree)
    assert list(tree) == ["model", "optimizer", "step", "args"]
    assert tree["step"] == 400 and tree["args"]["betas"] == (0.9, 0.95)
    assert [group["weight_decay"] for group in tree["optimizer"]["param_groups"]] == [0.1, 0.0]
    assert tensors_in(tree) == {t.name: t.shape for t in checkpoint.tensors.values()}


LOG = [f"line {i}" for i in range(9000)]


def with_long_tree():
    tree = np.frombuffer(pickle.dumps({"log": LOG}, protocol=2), "u1")
    assert len(tree) > 65_536
    return sample().add("tersor::tree", "raw", tree, dtype="U8")


def test_long_tree_is_a_tensor(tersor, tmp_path):
    path = with_long_tree().write(tmp_path / "packed")
    checkpoint = compare(path, tersor)
    assert "tersor::tree" not in checkpoint.tensors and load_tree(checkpoint.tree) == {"log": LOG}
    # Packed again, it is no source tensor of that either.
    tersor("unpack", path, "-o", tmp_path / "source", "-q", check=0)
    tersor("pack", tmp_path / "source", "-o", path, "-f", "-q", check=0)
    assert load_tree(reader.read(path).tree)[-1] == {"log": LOG}


@pytest.mark.parametrize("command", [["verify"], ["unpack", "--to=pt", "-o", "out"]])
def test_damaged_long_tree_is_found(tersor, tmp_path, command):
    content = with_long_tree().sealed()
    (tmp_path / "packed").write_bytes(flip(content, content.rindex(b"line 77")))
    tersor(*command, "packed", cwd=tmp_path, check=3)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pt", "dcp", "npz", "npy"])
def test_source_kind(tersor, tmp_path, kind):
    packed = sample()
    packed.tersor["source"]["kind"] = kind
    assert compare(packed.write(tmp_path / "packed"), tersor).source_kind == kind


# ---- Shards ------------------------------------------------------------------------------------

@pytest.fixture
def sharded(tersor, tmp_path):
    """Packs a checkpoint in shards and returns the index."""
    def pack_shards(name="checkpoint.pt"):
        tersor("pack", DATA / "tiny-gpt" / name, "-o", tmp_path / "p.safetensors",
               "--max-shard-size", "100K", "-q", check=0)
        return tmp_path / "p.safetensors.index.json"
    return pack_shards


def set_of(path):
    """What the shards of a packed file would have in common."""
    value = 0
    for entry in packed_text.read(path)["tensors"]:
        for digits in entry["xxh3"]:
            value = xxhash.xxh3_64_intdigest(struct.pack("<Q", int(digits, 16)), seed=value)
    return f"{value:016x}"


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "checkpoint.pt"])
def test_shards(tersor, tmp_path, sharded, name):
    index = sharded(name)
    tersor("pack", DATA / "tiny-gpt" / name, "-o", tmp_path / "whole", "-q", check=0)
    whole, checkpoint = reader.read(tmp_path / "whole"), compare(index, tersor)
    assert list(checkpoint.tensors) == list(whole.tensors)
    assert all(checkpoint.tensors[n].source_bytes == t.source_bytes
               for n, t in whole.tensors.items())
    assert (checkpoint.tree, checkpoint.metadata) == (whole.tree, whole.metadata)
    assert (checkpoint.generation, checkpoint.source_kind) == (1, whole.source_kind)

    shards = sorted(tmp_path.glob("p-*.safetensors"))
    assert len(shards) > 3
    assert [s.name for s in shards] == [f"p-{i + 1:05}-of-{len(shards):05}.safetensors"
                                        for i in range(len(shards))]
    parts = [reader.read_file(shard.read_bytes())[0] for shard in shards]
    assert sum((list(part.tensors) for part in parts), []) == list(whole.tensors)
    assert [part.shard for part in parts] == [{"number": i + 1, "count": len(parts),
                                               "set": set_of(tmp_path / "whole")}
                                              for i in range(len(parts))]
    assert ["tersor_tree" in part.metadata for part in parts] == [
        i == 0 and whole.tree is not None for i in range(len(parts))]
    sizes = [sum(len(plane) for _, _, plane in contents(shard)[1].values()) for shard in shards]
    assert max(sizes) <= 100 * 1024
    assert json.loads(index.read_text())["metadata"]["total_size"] == sum(sizes)


def edit_index(change):
    def edit_both(folder, index):
        content = json.loads(index.read_text())
        change(content["weight_map"], sorted(set(content["weight_map"].values())))
        index.write_text(json.dumps(content))
    return edit_both


def edit_shard(number, change):
    """Another `tersor` text in a shard, sealed anew."""
    def edit_both(folder, index):
        shard = sorted(folder.glob("p-*.safetensors"))[number]
        text, data = split(shard.read_bytes())
        text = json.loads(text)
        metadata = text["__metadata__"]
        root = json.loads(metadata["tersor"])
        change(root, metadata)
        metadata |= {"tersor": json.dumps(root), "tersor_check": ZEROS}
        shard.write_bytes(sealed(json.dumps(text, separators=(",", ":")).encode(), data))
    return edit_both


def one_shard_of_another(folder, index):
    shards = sorted(folder.glob("p-*.safetensors"))
    shutil.copy(shards[0], shards[1])


def only_shards(keep):
    """An index of some of the shards, which has nothing but these."""
    def edit_map(places, shards):
        for name in [n for n, shard in places.items() if shard not in keep(shards)]:
            del places[name]
    return edit_index(edit_map)


def swap_shards(folder, index):
    """Two shards in the place of each other, and an index that says so."""
    first, second = sorted(folder.glob("p-*.safetensors"))[:2]
    first.rename(folder / "x"), second.rename(first), (folder / "x").rename(second)
    other = {first.name: second.name, second.name: first.name}
    edit_index(lambda m, s: m.update({n: other.get(p, p) for n, p in m.items()}))(folder, index)


BAD_SHARDS = {
    "a shard missing": (lambda folder, index: next(folder.glob("p-*2-of-*")).unlink(), 4),
    "directory in a name": (edit_index(lambda m, s: m.update(a="../a")), 3),
    "two dots": (edit_index(lambda m, s: m.update(a="..")), 3),
    "empty name": (edit_index(lambda m, s: m.update(a="")), 3),
    "backslash in a name": (edit_index(lambda m, s: m.update(a="a\\b")), 3),
    "name too long": (edit_index(lambda m, s: m.update(a="a" * 256)), 3),
    "shard is a number": (edit_index(lambda m, s: m.update(a=1)), 3),
    "array that is not there": (edit_index(lambda m, s: m.update(a=s[0])), 3),
    "array that is not listed": (edit_index(lambda m, s: m.pop("wte.weight")), 3),
    "array in another shard": (edit_index(lambda m, s: m.update({"wte.weight": s[-1]})), 3),
    "no arrays": (edit_index(lambda m, s: m.clear()), 3),
    "no weight_map": (lambda folder, index: index.write_text('{"metadata":{}}'), 3),
    "metadata is a list": (lambda folder, index:
                           index.write_text(index.read_text().replace("{\n    \"total", "[{\"total")
                                            .replace("\n  },", "}],", 1)), 3),
    "equal keys": (lambda folder, index:
                   index.write_text(index.read_text().replace('"weight_map"', '"a":1,"a":2,'
                                                              '"weight_map"')), 3),
    "a shard twice": (one_shard_of_another, 3),
    "swapped shards": (swap_shards, 3),
    "without the first": (only_shards(lambda s: s[1:]), 3),
    "without the last": (only_shards(lambda s: s[:-1]), 3),
    "without one between": (only_shards(lambda s: s[:1] + s[2:]), 3),
    "the first alone": (only_shards(lambda s: s[:1]), 3),
    "another set": (edit_shard(1, lambda r, m: r["shard"].update(set="0" * 16)), 3),
    "another count": (edit_shard(1, lambda r, m: r["shard"].update(count=9)), 3),
    "another number": (edit_shard(1, lambda r, m: r["shard"].update(number=3)), 3),
    "no shard": (edit_shard(1, lambda r, m: r.pop("shard")), 3),
    "shard without set": (edit_shard(1, lambda r, m: r["shard"].pop("set")), 3),
    "shard with more": (edit_shard(1, lambda r, m: r["shard"].update(x=1)), 3),
    "number 0": (edit_shard(0, lambda r, m: r["shard"].update(number=0)), 3),
    "set in capitals": (edit_shard(0, lambda r, m: r["shard"].update(set="A" * 16)), 3),
    "another generation": (edit_shard(1, lambda r, m: r.update(generation=2)), None),
    "another source kind": (edit_shard(1, lambda r, m: r["source"].update(kind="dcp")), None),
    "metadata that differ": (lambda folder, index:
                             [edit_shard(i, lambda r, m: m.update(a=str(i)))(folder, index)
                              for i in range(2)], 3),
    "another tree": (edit_shard(1, lambda r, m: m.update(tersor_tree="gAJOLg==")), 3),
}


@pytest.mark.parametrize("name", BAD_SHARDS)
def test_rejects_shards(tersor, tmp_path, sharded, name):
    change, status = BAD_SHARDS[name]
    index = sharded()
    reader.read(index)
    change(tmp_path, index)
    with pytest.raises(reader.ReaderError):
        reader.read(index)
    if status is not None:      # a MUST and not a SHOULD
        tersor("unpack", index, "-o", tmp_path / "out.pt", check=status)
        assert not (tmp_path / "out.pt").exists()


def test_one_shard_is_refused(tersor, tmp_path, sharded):
    sharded("checkpoint.safetensors")
    for shard in tmp_path.glob("p-*.safetensors"):
        with pytest.raises(reader.ReaderError, match="without the others"):
            reader.read(shard)
        tersor("unpack", shard, "-o", tmp_path / "out", check=3)
        with safetensors.safe_open(shard, framework="np") as file:
            assert list(file.keys())


@pytest.mark.parametrize("text", [b" \t\r\n", b""], ids=["white space in front", "as it is"])
def test_index_is_told_from_a_file(tersor, sharded, text):
    index = sharded("checkpoint.safetensors")
    index.write_bytes(text + index.read_bytes())
    compare(index, tersor)


# ---- What is unusual but valid -----------------------------------------------------------------

def any_order():
    p = sample()
    p.header = dict(reversed(p.header.items()))
    p.tersor["tensors"].reverse()
    return p.sealed()


def escaped_key():
    p = sample()
    p.header["__metadata__"]['a"tersor_check'] = "0123456789abcdef"
    return p.sealed()


def white_space():
    p = sample()
    text = p.text(indent=1).replace(b'},"', b'}\t, \r\n"').replace(b"[", b"[ ") + b" \t\r\n" * 9
    return sealed(text, p.data)


def no_format_of_the_source():
    p = sample()
    p.header["__metadata__"].pop("format")
    return p.sealed()


def white_space_before_tersor():
    p = sample()
    text = p.text().replace(b'"tersor":"{', b'"tersor":" \\t\\n{')
    return sealed(text, p.data)


def strange_figures():
    p = sample()
    p.tersor["tensors"][0]["error"] |= {"abs": -1.5, "cosine": 7, "nmse": 1e300}
    return p.sealed()


def reserved_entry():
    p = sample()
    p.header["__metadata__"]["tersor_something"] = "kept"
    return p.sealed()


def empty_arrays():
    p = sample()
    for i in range(3):
        p.add(f"e{i}", "softsign8", np.zeros([0, 2**40], "i1"), np.zeros(0, "<f2"), scale="f16",
              group=1)
    p.header["e1::scales"]["data_offsets"] = [6, 6]
    return p.sealed()


VALID = {
    "as it is": lambda: sample().sealed(),
    "no tensors": lambda: Packed().sealed(),
    "any order": any_order,
    "white space": white_space,
    "padding": lambda: sealed(sample().text() + b" " * 99_999, sample().data),
    "check in another key": escaped_key,
    "empty arrays": empty_arrays,
    "no entry format": no_format_of_the_source,
    "white space before the tersor text": white_space_before_tersor,
    "strange figures": strange_figures,
    "an entry that begins with tersor": reserved_entry,
    "a tree": lambda: edit_metadata(tersor_tree=TREE_OF_NOTHING),
    "a long tree": lambda: with_long_tree().sealed(),
}
TREE_OF_NOTHING = base64.b64encode(pickle.dumps({"a": 1}, protocol=2)).decode()


def edit_metadata(**entries):
    p = sample()
    p.header["__metadata__"] |= entries
    return p.sealed()


@pytest.mark.parametrize("name", VALID)
def test_valid(tersor, tmp_path, name):
    path = tmp_path / "packed"
    path.write_bytes(VALID[name]())
    compare(path, tersor)


# ---- What must be rejected ---------------------------------------------------------------------

def edit(change):
    """The sample with `change` made to its parts, and the check made anew."""
    def make():
        p = sample()
        change(p)
        return p.sealed()
    return make


def header(change):
    return edit(lambda p: change(p.header))


def metadata(**entries):
    return edit(lambda p: p.header["__metadata__"].update(entries))


def array(name, **members):
    return edit(lambda p: p.header[name].update(members))


def root(**members):
    return edit(lambda p: p.tersor.update(members))


def tensor(index, **members):
    return edit(lambda p: p.tersor["tensors"][index].update(members))


def without(index, member):
    return edit(lambda p: p.tersor["tensors"][index].pop(member))


def text(old, new):
    """The sample with other bytes in its header, and the check made anew."""
    def make():
        p = sample()
        assert p.text().count(old) >= 1
        return sealed(p.text().replace(old, new, 1), p.data)
    return make


def whole(change):
    """The sample's file with `change` made to its bytes."""
    return lambda: change(sample().sealed())


def flip(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at:][1:]


def folded(function):
    """The sample with a change of its text as the file has it."""
    def change(p):
        p.tersor = packed_text.fold(p.tersor)
        p.tersor = function(p.tersor) or p.tersor
    return edit(change)


def of_list(member, function):
    """The sample with a change of the bytes of a list in base64."""
    return folded(lambda t: t.__setitem__(member, base64.b64encode(function(base64.b64decode(t[member]))).decode()))


def no_format(p):
    p.header["__metadata__"].pop("format")
    p.tersor["source"]["format"] = "np"


def same_name_twice(p):
    """Two tensors called m, of which no array belongs to both."""
    p.add("m", "raw", np.array(1, "<i8"), dtype="I64")


def shared_plane(p):
    p.tersor["tensors"].append(p.tersor["tensors"][0])


def tree_with_a_codec(p):
    p.add("tersor::tree", "f32", np.zeros(3, "<f4"))


def tree_of_another_dtype(p):
    p.add("tersor::tree", "raw", np.zeros(3, "<i1"), dtype="I8")


def flip_in_long_tree():
    content = with_long_tree().sealed()
    return flip(content, content.rindex(b"line 77"))


def too_many_values():
    return safetensors_bytes({"a": [""] * 1_999_999})


E0 = {"dtype": "U8", "data_offsets": [0, 0]}
BAD = {
    # the container
    "empty file": (lambda: b"", "shorter"),
    "header too long": (whole(lambda c: c[:3] + b"\xff" + c[4:]), "100,000,000"),
    "short file": (whole(lambda c: c[:100]), "than the file"),
    "truncated": (whole(lambda c: c[:-1]), "file ends"),
    "trailing byte": (whole(lambda c: c + b"\0"), "file ends"),
    "no header": (lambda: bytes(8), "begin with an object"),
    "no object": (lambda: safetensors_bytes(b"[]"), "begin with an object"),
    "byte order mark": (text(b"{", b"\xef\xbb\xbf{"), "begin with an object"),
    "not UTF-8": (text(b'"step"', b'"st\xc0\xafep"'), "UTF-8"),
    "surrogate in UTF-8": (text(b'"step"', b'"\xed\xa0\x80"'), "UTF-8"),
    "control character": (text(b'"step"', b'"st\x1fep"'), "valid JSON"),
    "behind the object": (lambda: sealed(sample().text() + b"\0", sample().data), "valid JSON"),
    "comma too many": (text(b"}}", b"},}"), "valid JSON"),
    "NaN": (text(b'"step":{', b'"x":NaN,"step":{'), "not JSON"),
    "U+0000": (text(b'"step"', b'"st\\u0000ep"'), "U+0000"),
    "lone surrogate": (text(b'"step"', b'"st\\udc00ep"'), "surrogate"),
    "equal keys": (text(b'"step":', b'"step":{},"\\u0073tep":'), "equal keys"),
    "minus zero": (text(b"[0,6]", b"[-0,6]"), "integer"),
    "fraction": (text(b"[0,6]", b"[0.0,6]"), "integer"),
    "exponent": (text(b"[0,6]", b"[0e0,6]"), "integer"),
    "leading zero": (text(b"[0,6]", b"[00,6]"), "valid JSON"),
    "large integer": (header(lambda h: h.update(a=E0 | {"shape": [0, 2**48]})), "integer"),
    "deep": (text(b"[0,6]", b"[[[0]],6]"), "nested"),
    "very deep": (lambda: safetensors_bytes(b'{"a":' + b"[" * 10**6), "valid JSON"),
    "too many values": (too_many_values, "more than 2000000 values"),
    "metadata of numbers": (metadata(a=1), "strings"),
    "metadata is null": (text(b'"__metadata__":', b'"__metadata__":null,"x":'), "strings"),
    "long name": (header(lambda h: h.update({"é" * 32768: E0 | {"shape": [0]}})), "65,535"),
    "extra member of an array": (array("w", x=1), "not exactly dtype"),
    "missing member of an array": (header(lambda h: h["w"].pop("shape")), "not exactly dtype"),
    "array is a string": (header(lambda h: h.update(w="")), "not exactly dtype"),
    "unknown dtype": (array("w", dtype="F24"), "unknown dtype"),
    "65 dimensions": (header(lambda h: h.update(a=E0 | {"shape": [0] * 65})), "at most 64"),
    "product too large": (header(lambda h: h.update(a=E0 | {"shape": [2**40, 2**40, 0]})), "2^64"),
    "too many bits": (header(lambda h: h.update(a=E0 | {"shape": [2**31, 2**31]})), "bits"),
    "half a byte": (array("w", dtype="F4", shape=[3]), "whole bytes"),
    "three offsets": (array("w", data_offsets=[0, 6, 6]), "two integers"),
    "offsets do not fit": (array("w", shape=[2]), "do not fit"),
    "offsets swapped": (array("w", data_offsets=[6, 0]), "do not fit"),
    "overlap": (array("step", data_offsets=[0, 8]), "overlap"),
    "hole": (header(lambda h: h.pop("m::quantized")), "hole"),
    "empty array inside another": (array("e", data_offsets=[1, 1]), "overlap"),
    # the check
    "a bit of the header": (whole(lambda c: flip(c, c.index(b"by hand"))), "tersor_check is not"),
    "other padding": (lambda: sealed(sample().text() + b"  ", sample().data)
                      .replace(b"}  ", b"} \n"), "tersor_check is not"),
    "a bit of the check": (whole(lambda c: flip(c, c.index(CHECK) + 20)), "tersor_check"),
    "no check": (text(b'"tersor_check":"0000000000000000"', b'"a":""'), "missing"),
    "check in capitals": (whole(lambda c: re.sub(CHECK + b".{16}", lambda m: CHECK + m[0][16:]
                                                 .upper().replace(b"0", b"A"), c)), "exact form"),
    "check behind a space": (text(CHECK, CHECK[:-1] + b' "'), "exact form"),
    "check with an escape": (text(CHECK, b'"tersor\\u005fcheck":"'), "exact form"),
    "check without tersor": (edit(lambda p: setattr(p, "tersor", None)), "without tersor"),
    "not packed": (lambda: safetensors_bytes({}), "not a packed file"),
    # the metadata
    "no format": (edit(no_format), "no entry format"),
    "an entry tersor_generation": (metadata(tersor_generation="1"), "tersor_generation"),
    "version 2": (root(version=2), "unknown version 2"),
    "version is a string": (root(version="1"), "no version"),
    "version is true": (root(version=True), "no version"),
    "tersor is no object": (edit(lambda p: setattr(p, "tersor", [])), "no version"),
    "tersor is no JSON": (text(b'\\"version', b"version"), "valid JSON"),
    "tersor is deep": (root(tool=[[[[[[[[]]]]]]]]), "nested"),
    "equal keys in tersor": (text(b'\\"tool\\":', b'\\"tool\\":\\"\\",\\"tool\\":'), "equal keys"),
    "U+0000 in tersor": (root(tool="\0"), "U+0000"),
    "members out of order": (folded(lambda t: dict(reversed(t.items()))), "not exactly version"),
    "missing member": (edit(lambda p: p.tersor.pop("tool")), "not exactly version"),
    "unknown member": (root(x=1), "not exactly version"),
    "tool is null": (root(tool=None), "tool"),
    "generation too large": (root(generation=1_000_001), "generation"),
    "generation below 0": (root(generation=-1), "generation"),
    "generation with a fraction": (root(generation=0.5), "generation"),
    "tensors is an object": (folded(lambda t: t.update(tensors={})), "tensors"),
    "codings is an object": (folded(lambda t: t.update(codings={})), "codings"),
    "coding is null": (folded(lambda t: t["codings"].__setitem__(0, None)), "not exactly kind"),
    "unknown member of a coding": (folded(lambda t: t["codings"][0].update(x=1)), "not exactly kind"),
    "number of no coding": (folded(lambda t: t["tensors"].__setitem__(0, 99)), "no such coding"),
    "a shape that no array shows": (folded(lambda t: t["tensors"][5].update(coding=5) or t["tensors"][5].pop("shape") and
                                           t["tensors"][5].update(name="x")), "no shape"),
    "a name too many": (folded(lambda t: t["tensors"].append(0)), "no first plane"),
    "unknown source kind": (root(source={"kind": "gguf", "format": None}), "unknown source kind"),
    "source is null": (root(source=None), "source is not"),
    "source without format": (root(source={"kind": "safetensors"}), "not exactly kind"),
    "source format is a number": (root(source={"kind": "safetensors", "format": 1}), "format"),
    # tensors
    "a tensor is null": (folded(lambda t: t["tensors"].__setitem__(0, None)), "no such coding"),
    "name is a number": (tensor(0, name=1), "name is not"),
    "unknown codec": (tensor(0, codec="bf16+ulp4"), "unknown codec"),
    "no codec": (folded(lambda t: t["codings"][0].pop("codec") and None), "not exactly kind"),
    "unknown kind": (tensor(0, kind="gradient"), "unknown kind"),
    "unknown source dtype": (tensor(0, dtype="F24"), "unknown dtype"),
    "codec on I32": (tensor(0, dtype="I32"), "of I32"),
    "unknown scale": (tensor(1, scale="e8m0"), "unknown scale"),
    "no scale": (without(1, "scale"), "not exactly name"),
    "no group": (without(1, "group"), "not exactly name"),
    "group 0": (tensor(1, group=0), "group"),
    "group too large": (tensor(1, group=65_537), "group"),
    "scale without need": (tensor(0, scale="e8m8"), "not exactly name"),
    "no seed": (without(5, "seed"), "not exactly name"),
    "seed without need": (tensor(0, seed=0), "not exactly name"),
    "seed too large": (tensor(5, seed=2**48), "seed"),
    "seed below 0": (tensor(5, seed=-1), "seed"),
    "seed is a string": (tensor(5, seed="5"), "seed"),
    "words for other bits": (tensor(5, codec="fp16+sr3"), "another dtype or shape"),
    "words of rank 2": (array("r::extra_bits", shape=[3, 1]), "another dtype or shape"),
    "figures are a list": (folded(lambda t: t.update(error=[])), "not a string"),
    "a figure is no number": (of_list("error", lambda b: b[:3] + b"\xff" * 3 + b[6:]), "not a number"),
    "a figure too few": (of_list("error", lambda b: b[:-3]), "too few figures"),
    "a figure too many": (of_list("error", lambda b: b + bytes(3)), "too many hashes or figures"),
    "no hashes": (of_list("xxh3", lambda b: b""), "too few hashes"),
    "a hash too many": (of_list("xxh3", lambda b: b + bytes(8)), "too many hashes or figures"),
    "short hash": (of_list("xxh3", lambda b: b[:-1]), "too few hashes"),
    "hashes with bits to spare": (folded(lambda t: t.update(xxh3=t["xxh3"][:-3] + "B==")), "base64"),
    "source shape of 65": (tensor(0, shape=[1] * 65), "at most 64"),
    "source shape overflows": (tensor(0, shape=[2**40, 2**40, 0]), "2^64"),
    "reserved suffix": (tensor(4, name="step::scales"), "reserved suffix"),
    # planes
    "another shape": (tensor(0, shape=[1, 3]), "another dtype or shape"),
    "another dtype": (array("w", dtype="F16"), "another dtype or shape"),
    "another group": (tensor(2, group=2), "another dtype or shape"),
    "scales of rank 2": (array("m::scales", shape=[1, 1]), "another dtype or shape"),
    "a plane missing": (tensor(0, name="x"), "not in the file"),
    "an array too many": (header(lambda h: h.update(a=E0 | {"shape": [0]})), "no plane"),
    "a plane of two tensors": (edit(shared_plane), "two tensors"),
    "two tensors of one name": (edit(same_name_twice), "two tensors"),
    # the tree
    "tree that is no base64": (metadata(tersor_tree="gAJOLg="), "base64"),
    "tree with white space": (metadata(tersor_tree="gAJO\nLg=="), "base64"),
    "tree with bits to spare": (metadata(tersor_tree="gAJOLh=="), "base64"),
    "tree with a codec": (edit(tree_with_a_codec), "raw bytes"),
    "tree of another dtype": (edit(tree_of_another_dtype), "raw bytes"),
    "a bit of a long tree": (flip_in_long_tree, "hash that was recorded"),
    # the data
    "a bit of the data": (whole(lambda c: flip(c, len(c) - 1)), "hash that was recorded"),
    "swapped hashes": (edit(lambda p: p.tersor["tensors"][0]["xxh3"].reverse()),
                       "hash that was recorded"),
}


@pytest.mark.parametrize("name", BAD)
def test_rejects(tersor, tmp_path, name):
    make, message = BAD[name]
    content = make()
    with pytest.raises(reader.ReaderError, match=re.escape(message)) as error:
        reader.read_bytes(content)
    unsupported = isinstance(error.value, reader.UnsupportedError)
    assert unsupported == message.startswith("unknown ")
    path = tmp_path / "packed"
    path.write_bytes(content)
    tersor("unpack", path, "-o", tmp_path / "out", check=3)
    assert not (tmp_path / "out").exists()


def test_every_bit_counts():
    content = sample().sealed()
    for at in range(len(content)):
        with pytest.raises(reader.ReaderError):
            reader.read_bytes(flip(content, at))


def test_every_truncation_is_rejected():
    content = sample().sealed()
    for size in range(len(content)):
        with pytest.raises(reader.ReaderError):
            reader.read_bytes(content[:size])


def test_a_key_that_ends_like_the_check_is_packed(tersor, tmp_path):
    """A source's own key that ends in "tersor_check must not get the digits of the check."""
    source, packed = tmp_path / "source", tmp_path / "packed"
    header = {"__metadata__": {'a"tersor_check': "0123456789abcdef"},
              "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    source.write_bytes(safetensors_bytes(header, struct.pack("<f", 1.5)))
    tersor("pack", source, "-o", packed, check=0)
    tersor("verify", packed, "--against", source, check=0)
    assert reader.read(packed).metadata['a"tersor_check'] == "0123456789abcdef"
