"""A reader of the tersor packed format, which follows docs/internals/format.md and nothing else.

    checkpoint = reader.read("packed.safetensors")  # or the index of a sharded one
    checkpoint.tensors["layer.weight"].array        # float32
    checkpoint.tensors["step"].raw                  # bytes, of a tensor that is not packed
    checkpoint.tree                                 # a pickle: never to be given to pickle.load

It is meant to be read: one function per section of the document, in the document's order, and no
speed beyond what numpy gives. Nothing of a file is given out before all of it is checked. Where
a reader SHOULD reject something or MAY accept it, this one rejects it.
"""
import base64
import binascii
import dataclasses
import json
import pathlib
import re
import struct

import numpy as np
import xxhash

import coded_planes
import tables


class ReaderError(Exception):
    """The file is damaged, or not a packed file."""


class UnsupportedError(ReaderError):
    """The file may be in order, but is of a version or uses a name that is not known here."""


@dataclasses.dataclass
class Tensor:
    """A tensor of the source; either `values` or `raw` is there."""
    name: str
    kind: str
    dtype: str
    shape: tuple
    codec: str
    scale: str | None = None
    group: int | None = None
    error: dict | None = None           # as the file records it; None for `raw`
    values: np.ndarray | None = None    # float32 of any dtype, flat: numpy lacks some valid shapes
    raw: bytes | None = None            # the bytes of a `raw` tensor
    seed: int | None = None             # of a stochastic codec
    rows: bool = False                  # whether groups end with the rows
    narrow: str | None = None           # the tensor whose array is plane 0
    codebook: np.ndarray | None = None  # of a tensor with one
    waiting: tuple | None = None        # until that is known: the hash of plane 0, and plane 1
    beside: str | None = None           # the variance that a momentum's ratios are relative to
    eps: float | None = None

    @property
    def array(self):
        return self.values.reshape(self.shape)

    @property
    def source_bytes(self):
        """The tensor's bytes in the source's container."""
        if self.values is None:
            return self.raw
        return (self.values.astype("<f4") if self.dtype == "F32"
                else NARROW[self.dtype](self.values).astype("<u2")).tobytes()


@dataclasses.dataclass
class Checkpoint:
    tensors: dict       # of Tensor by name, in the order of the source's data
    metadata: dict      # the source's own entries
    generation: int     # how often the values went through a lossy codec
    tool: str
    source_kind: str    # what the checkpoint was read from
    shard: dict | None = None   # which part of a checkpoint this is; None for all of it
    weights: str | None = None  # the file beside this one that has the arrays it lacks
    tree: bytes | None = None   # what was saved around the tensors
    entropy: bool = False       # whether planes of this file are coded


def check(condition, message, error=ReaderError):
    if not condition:
        raise error(message)


# ---- JSON: sections 3.1 and 5.2 ------------------------------------------------------------------

INTEGER_MAX = 2**48 - 1


def is_integer(value):
    return type(value) is int and 0 <= value <= INTEGER_MAX     # bool is an int, too


def only_plain_integers(digits):
    check(digits.isdecimal() and len(digits) < 16 and int(digits) <= INTEGER_MAX,
          f"{digits[:40]} is not an integer from 0 to 2^48-1")
    return int(digits)


def any_number(digits):
    """An int only where it is spelled as section 5.2 demands of integers, else binary64."""
    return int(digits) if digits.isdecimal() and len(digits) < 16 else float(digits)


def not_json(token):
    raise ReaderError(f"{token} is not JSON")


def unique_keys(members):
    result = dict(members)
    check(len(result) == len(members), "two equal keys in an object")
    return result


def parse_json(text, integer, real, depth_max, values_max):
    try:
        root = json.loads(text, object_pairs_hook=unique_keys, parse_int=integer, parse_float=real,
                          parse_constant=not_json)
    except (ValueError, RecursionError) as error:
        raise ReaderError(f"not valid JSON: {error}") from None
    pending, done = [(root, 1)], 0
    while pending:
        check(done + len(pending) <= values_max, f"more than {values_max} values")
        value, depth = pending.pop()
        done += 1
        check(depth <= depth_max or not isinstance(value, (dict, list)),
              f"nested deeper than {depth_max} levels")
        if isinstance(value, dict):
            for key in value:
                check_string(key)
            pending += [(member, depth + 1) for member in value.values()]
        elif isinstance(value, list):
            pending += [(element, depth + 1) for element in value]
        elif isinstance(value, str):
            check_string(value)
    return root


def check_string(string):
    check("\0" not in string, "U+0000 in a string")
    # Pairs of escapes were joined: what is left is a lone one.
    check(string.isascii() or not re.search("[\ud800-\udfff]", string),
          "the escape of a lone surrogate")


# ---- The container: section 3 --------------------------------------------------------------------

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


@dataclasses.dataclass
class Array:
    dtype: str
    shape: list
    begin: int
    end: int


def elements(shape):
    """The product of a shape. A 0 does not excuse what overflows in front of it."""
    check(isinstance(shape, list) and len(shape) <= 64 and all(map(is_integer, shape)),
          "a shape is not an array of at most 64 integers")
    product = 1
    for dimension in shape:
        product *= dimension
        check(product < 2**64, "a shape's product exceeds 2^64-1")
    return product


def split_file(content):
    """The header's bytes and the data."""
    check(len(content) >= 8, "shorter than 8 bytes")
    size = struct.unpack("<Q", content[:8])[0]
    check(size <= 100_000_000, "the header is longer than 100,000,000 bytes")
    check(8 + size <= len(content), "the header is longer than the file")
    return content[8:8 + size], content[8 + size:]


def parse_header(header, data_size):
    """The metadata and, by name, the arrays."""
    check(header[:1] == b"{", "the header does not begin with an object")
    try:
        text = header.decode()
    except UnicodeDecodeError:
        raise ReaderError("the header is not UTF-8") from None
    entries = parse_json(text, only_plain_integers, only_plain_integers, depth_max=4,
                         values_max=2_000_000)
    metadata = entries.pop("__metadata__", {})
    check(isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()),
          "__metadata__ is not an object of strings")
    arrays = {name: parse_array(name, entry) for name, entry in entries.items()}
    check_cover(arrays, data_size)
    return metadata, arrays


def parse_array(name, entry):
    check(len(name.encode()) <= 65_535, "an array's name is longer than 65,535 bytes")
    check(isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"},
          f"{name}: not exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    check_known(dtype, BITS, "dtype")
    bits = elements(shape) * BITS[dtype]
    check(bits < 2**64, f"{name}: more than 2^64-1 bits")
    check(bits % 8 == 0, f"{name}: its bits do not make whole bytes")
    check(isinstance(offsets, list) and len(offsets) == 2 and all(map(is_integer, offsets)),
          f"{name}: data_offsets are not two integers")
    check(offsets[1] - offsets[0] == bits // 8, f"{name}: its offsets do not fit its shape")
    return Array(dtype, shape, *offsets)


def check_cover(arrays, data_size):
    """No holes, no overlap, nothing behind the last array."""
    at = 0
    for name, array in sorted(arrays.items(), key=lambda item: (item[1].begin, item[1].end)):
        check(array.begin == at, f"{name}: a hole or an overlap in front of it")
        at = array.end
    check(at == data_size, "the arrays do not end where the file ends")


def check_known(name, known, what):
    check(isinstance(name, str), f"a {what} is not a string")
    check(name in known, f"unknown {what} {name!r}", UnsupportedError)


# ---- Planes: section 4 ---------------------------------------------------------------------------

SUFFIXES = ("::error_bits", "::extra_bits", "::quantized", "::scales", "::blockmean", "::expand",
            "::factors", "::coded")
ERROR_BITS, EXTRA_BITS, QUANTIZED, SCALES, MEANS, EXPAND, FACTORS, CODED = SUFFIXES
SCALE_DTYPE = {"e8m8": "U16", "f16": "F16", "f32": "F32", "f28": "U32", "e5m3": "U8"}
TABLED = {"e4m3": "F8_E4M3", "e5m2": "F8_E5M2", "e4m3x": "F8_E4M3", "e5m2x": "F8_E5M2", "dyn8": "U8"}
SCALED = {"softsign8": "I8", "linear8": "I8", "ratio8": "I8", "sqrt8": "U8", "ulinear8": "U8",
          "log8": "U8", "lowrank16+linear8": "I8", "lowrank32+linear8": "I8", **TABLED}
# Packed codes: their bits.
PACKED = {"ratio10": 10, "ratio9": 9, "ratio4": 4, "ratio3": 3, "log7": 7, "log6": 6, "log4": 4, "log3": 3}
SCALED |= dict.fromkeys(PACKED, "U32")
UNSCALED = {
    "f32": ("F32",),
    "bf16": ("BF16",),
    "fp16": ("F16",),
    "bf16+ulp8": ("BF16", "I8"),
    "bf16+ulp16": ("BF16", "I16"),
    "fp16+ulp8": ("F16", "I8"),
    "fp16+ulp16": ("F16", "I16"),
    "bf16+exact16": ("BF16", "I16"),
    "bf16+bf16": ("BF16", "BF16"),
    "fp16+fp16": ("F16", "F16"),
}
# Truncated splits: the narrow plane's type, k and p, the bits per element.
TRUNCATED = {f"{prefix}+{kind}{k}": (dtype, k, k + more)
             for prefix, dtype, last in (("bf16", "BF16", 16), ("fp16", "F16", 13),
                                         ("e5m2", "F8_E5M2", 16), ("e4m3", "F8_E4M3", 16))
             for kind, more in (("trunc", 0), ("sr", 1)) for k in range(1, last + 1)}
TRUNCATED |= {f"bf16+rn{k}": ("BF16", k, k) for k in range(1, 14)}
LEARNED = ("gefen8", "blockmean")
CODECS = {"raw", *UNSCALED, *TRUNCATED, *SCALED, *LEARNED}


def is_stochastic(codec):
    return codec in TRUNCATED and "+sr" in codec


def is_lowrank(codec):
    return codec.startswith("lowrank")


def stages_of(codec):
    """Section 4.10: one for each 16 columns of the factors."""
    return int(codec.removeprefix("lowrank")[:2]) // 16


def share_of(shape):
    """Section 4.10: bytes of the factors of a stage for each row of a matrix."""
    return -(-18 * (shape[0] + shape[1]) // shape[0])


def group_of(tensor):
    """How many elements a group has, and how many a row that groups do not cross; 0: there is none."""
    if not tensor.rows:
        return tensor.group, 0
    row = tensor.shape[-1]
    return -(-row // (row // tensor.group)), row


def piece_of(tensor):
    """Section 4.7: how many elements a piece has."""
    if tensor.codec == "raw":
        return 131_072 if BITS[tensor.dtype] == 64 else 262_144
    at = tensor.shape[-1] if tensor.rows else tensor.group or 1
    return 262_144 // at * at


def plane_size(tensor, plane, count):
    """The bytes of a plane that `count` elements from the first on take."""
    _, dtype, _ = planes_of(tensor)[plane]
    if plane_is_of_elements(tensor, plane):
        return count * BITS[dtype] // 8
    if tensor.codec in TRUNCATED or tensor.codec in PACKED and plane == 0:
        return -(-count // 32) * bits_of(tensor) * 4
    size, row = group_of(tensor)
    if plane == 2 and is_lowrank(tensor.codec):
        return count // row * share_of(tensor.shape) * stages_of(tensor.codec)
    groups = count // row * -(-row // size) if row else -(-count // size)
    return groups * BITS[dtype] // 8


def bits_of(tensor):
    """Section 4.5: how many bits an element has in a plane of words."""
    return PACKED.get(tensor.codec) or TRUNCATED[tensor.codec][2]


def has_shape_of_tensor(codec):
    """Whether plane 0 has an element for each of the tensor's."""
    return codec not in PACKED and codec != "blockmean"


def suffixes_of(codec):
    """Section 4: what the names of the planes end in."""
    if codec in SCALED or codec == "gefen8":
        return [QUANTIZED, SCALES] + [EXPAND] * codec.endswith("x") + [FACTORS] * is_lowrank(codec)
    if codec == "blockmean":
        return [MEANS]
    return [""] + ([EXTRA_BITS] if codec in TRUNCATED else [ERROR_BITS] * (len(UNSCALED.get(codec, "1")) - 1))


def plane_is_of_elements(tensor, plane):
    return has_shape_of_tensor(tensor.codec) and not (plane and tensor.codec in {*SCALED, *LEARNED, *TRUNCATED})


def cut(tensor, plane, content):
    """Section 4.7: the pieces of a plane."""
    piece, count = piece_of(tensor), elements(list(tensor.shape))
    ends = [plane_size(tensor, plane, min(end, count)) for end in range(piece, count + piece, piece)]
    check(not ends and not content or ends[-1] == len(content), f"{tensor.name}: pieces do not fit")
    return [content[begin:end] for begin, end in zip([0, *ends], ends)]


def plane_hash(tensor, plane, content):
    """Section 5.4: the hash of the hashes of a plane's pieces."""
    pieces = [xxhash.xxh3_64_intdigest(piece) for piece in cut(tensor, plane, content)]
    return xxhash.xxh3_64_hexdigest(struct.pack(f"<{len(pieces)}Q", *pieces))


def is_hash(found, recorded, name, i):
    """Whether the i-th piece or plane of `name` has the hash that is recorded."""
    return found == recorded


def planes_of(tensor):
    """(array name, dtype, shape) of each plane."""
    name, shape = tensor.name, list(tensor.shape)
    if tensor.codec == "raw":
        return [(name, tensor.dtype, shape)]
    if tensor.codec in SCALED:
        size, row = group_of(tensor)
        groups = elements(shape) // row * -(-row // size) if row else -(-elements(shape) // size)
        words = [-(-elements(shape) // 32) * PACKED.get(tensor.codec, 0)]
        return [(name + QUANTIZED, SCALED[tensor.codec], words if tensor.codec in PACKED else shape),
                (name + SCALES, SCALE_DTYPE[tensor.scale], [groups]),
                (name + EXPAND, "U8", [groups])][:3 if tensor.codec.endswith("x") else 2] + \
            ([(name + FACTORS, "U8", [shape[0] * share_of(shape) * stages_of(tensor.codec)])]
             if is_lowrank(tensor.codec) else [])
    if tensor.codec in LEARNED:
        blocks = [-(-elements(shape) // tensor.group)]
        if tensor.codec == "blockmean":
            return [(name + MEANS, "F32", blocks)]
        return [(name + QUANTIZED, "U8", shape), (name + SCALES, "F32", blocks)]
    if tensor.codec in TRUNCATED:
        dtype, _, width = TRUNCATED[tensor.codec]
        return [(name, dtype, shape),
                (name + EXTRA_BITS, "U32", [-(-elements(shape) // 32) * width])]
    names = (name, name + ERROR_BITS)
    return [(plane, dtype, shape) for plane, dtype in zip(names, UNSCALED[tensor.codec])]


# ---- Metadata: section 5 -------------------------------------------------------------------------

HASH = "[0-9a-f]{16}"
KINDS = {"weight", "momentum", "variance", "other"}
SOURCE_KINDS = {"safetensors", "pt", "dcp", "npz", "npy"}
FIGURES = {"abs": 3, "ulp": 3, "rel": 3, "nmse": 7, "cosine": 3}    # bytes of each
CODING = ["kind", "codec", "dtype", "scale", "group", "rows", "eps", "seed"]
OF_TENSOR = ["name", "shape", "beside", "narrow"]


def parse_tersor(metadata, arrays, more):
    """The checkpoint, its tensors still without values, and the hashes of each tensor's planes."""
    root = parse_json(metadata["tersor"], any_number, float, depth_max=8, values_max=4_000_000)
    check(isinstance(root, dict) and is_integer(root.get("version")), "no version")
    check(root["version"] == 1, f"unknown version {root['version']}", UnsupportedError)
    check_members(root, ["version", "tool", "source", "generation"] + optional(root, ["shard", "weights", "codebook", "entropy"])
                  + ["codings", "xxh3"] + optional(root, ["error"]) + ["tensors"])
    check(root.get("entropy", "rans32") == "rans32", "unknown coder", UnsupportedError)
    check(isinstance(root["tool"], str), "tool is not a string")
    check(is_integer(root["generation"]) and root["generation"] <= 1_000_000, "wrong generation")
    checkpoint = Checkpoint({}, source_metadata(metadata, root["source"]), root["generation"],
                            root["tool"], root["source"]["kind"], parse_shard(root.get("shard")),
                            parse_weights(root), entropy="entropy" in root)
    entries = expand(root, arrays | more(checkpoint.weights), arrays)
    hashes, codebook = {}, parse_codebook(root, entries)
    for entry in entries:
        tensor = parse_tensor(entry)
        tensor.codebook = codebook
        check(tensor.name not in hashes, f"{tensor.name}: two tensors of this name")
        checkpoint.tensors[tensor.name] = tensor
        hashes[tensor.name] = entry["xxh3"]
    return checkpoint, hashes


def expand(root, arrays, own):
    """Section 5.4: an object for each tensor, with what the text leaves to codings, lists and arrays.

    `own`: those of the packed file itself; `arrays` has those of its weights file, too.
    """
    check(isinstance(root["codings"], list) and isinstance(root["tensors"], list), "codings or tensors is not an array")
    check(isinstance(root["xxh3"], str) and isinstance(root.get("error", ""), str), "xxh3 or error is not a string")
    hashes, figures = from_base64(root["xxh3"], "xxh3"), from_base64(root.get("error", ""), "error")
    left, entries, used = dict.fromkeys(name.removesuffix(CODED) if "entropy" in root else name for name in own), [], set()
    for coding in root["codings"]:
        check_members(coding, ["kind", "codec"] + optional(coding, CODING[2:]))
        check_known(coding["codec"], CODECS, "codec")
    for item in root["tensors"]:
        item = item if isinstance(item, dict) else {"coding": item}
        check_members(item, ["coding"] + optional(item, OF_TENSOR))
        check(is_integer(item["coding"]) and item["coding"] < len(root["codings"]), "no such coding")
        entry = {"dtype": "F32"} | root["codings"][item["coding"]] | item
        used.add(item["coding"])
        suffixes = suffixes_of(entry["codec"])
        check("narrow" not in entry or len(suffixes) == 2, "narrow of a codec without a correction")
        if "name" not in entry:
            first = next(iter(left), None)
            check(first is not None and first.endswith(suffixes["narrow" in entry]), "the next array is no first plane")
            entry["name"] = first.removesuffix(suffixes["narrow" in entry])
        check(isinstance(entry["name"], str), "a tensor's name is not a string")
        if "shape" not in entry:
            plane = own.get(entry["name"] + suffixes[0])
            check(plane and "narrow" not in entry and has_shape_of_tensor(entry["codec"]), f"{entry['name']}: no shape")
            entry["shape"] = plane.shape
        for suffix in suffixes["narrow" in entry:]:
            left.pop(entry["name"] + suffix, None)
        size = 8 * len(suffixes)
        check(len(hashes) >= size, "too few hashes")
        entry["xxh3"] = [f"{digest:016x}" for digest, in struct.iter_unpack("<Q", hashes[:size])]
        hashes = hashes[size:]
        if "error" in root and entry["codec"] != "raw":
            entry["error"], figures = expand_figures(figures[:19]), figures[19:]
            if entry["error"] is None:
                del entry["error"]
        entries.append({key: entry[key] for key in ENTRY if key in entry})
    check(not hashes and not figures, "too many hashes or figures")
    check(len(used) == len(root["codings"]), "a coding that no tensor has")
    return entries


ENTRY = ["name", "kind", "dtype", "shape", "codec", "scale", "group", "rows", "beside", "eps", "seed", "narrow",
         "xxh3", "error"]


def expand_figures(content):
    """The figures of a tensor by name; None if they were not measured, and in place of infinity."""
    check(len(content) == 19, "too few figures")
    if content == b"\xff" * 19:
        return None
    at, values = 0, {}
    for name, n in FIGURES.items():
        values[name], = struct.unpack("<d", bytes(8 - n) + content[at:at + n])
        at += n
    check(not any(np.isnan(list(values.values()))), "a figure is not a number")
    values["cosine"] = 1 - values["cosine"]
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def optional(value, names):
    return [name for name in names if isinstance(value, dict) and name in value]


def parse_codebook(root, entries):
    """Section 8.14: 256 floats that do not decrease, if some tensor is in the codec that has them."""
    used = any(entry["codec"] == "gefen8" for entry in entries)
    check(used == ("codebook" in root), "a codebook without gefen8, or the reverse")
    if not used:
        return None
    check(isinstance(root["codebook"], str), "codebook is not a string")
    entries = np.frombuffer(from_base64(root["codebook"], "codebook"), "<f4")
    check(len(entries) == 256 and np.all(np.isfinite(entries)) and np.all(np.diff(entries) >= 0),
          "codebook is not 256 ascending floats")
    return entries


def check_members(value, names):
    check(isinstance(value, dict) and list(value) == names, f"not exactly {', '.join(names)}")


def parse_shard(shard):
    if shard is None:
        return None
    check_members(shard, ["number", "count", "set"])
    check(is_integer(shard["count"]) and shard["count"] >= 2 and is_integer(shard["number"])
          and 1 <= shard["number"] <= shard["count"], "wrong number or count of a shard")
    check(isinstance(shard["set"], str) and re.fullmatch(HASH, shard["set"]), "wrong set of a shard")
    return shard


def parse_weights(root):
    """Section 5.8: the name of the weights file."""
    if "weights" not in root:
        return None
    check(isinstance(root["weights"], str) and is_file_name(root["weights"]),
          "weights is not the name of a file")
    check("shard" not in root, "both shard and weights")
    return root["weights"]


def source_metadata(metadata, source):
    check(isinstance(source, dict), "source is not an object")
    check_known(source.get("kind"), SOURCE_KINDS, "source kind")
    check_members(source, ["kind", "format"] + ["order"] * ("order" in source))
    if "order" in source:
        check(isinstance(source["order"], list)
              and sorted(source["order"]) == list(range(len(source["order"]))), "order is not one of places")
    check("tersor_generation" not in metadata, "there is an entry tersor_generation")
    result = {key: value for key, value in metadata.items()
              if key not in ("tersor", "tersor_check", "format")}
    if source["format"] is not None:
        check(isinstance(source["format"], str), "format is neither a string nor null")
        check("format" in metadata, "no entry format")
        result["format"] = source["format"]
    return result


def parse_tensor(entry):
    check(isinstance(entry, dict), "a tensor is not an object")
    codec = entry.get("codec")
    check_known(codec, CODECS, "codec")
    scaled = codec in SCALED or codec in LEARNED
    check_members(entry, ["name", "kind", "dtype", "shape", "codec"] + ["scale", "group"] * scaled
                  + ["rows"] * (scaled and "rows" in entry) + ["beside", "eps"] * codec.startswith("ratio")
                  + ["seed"] * is_stochastic(codec) + ["narrow"] * ("narrow" in entry)
                  + ["xxh3"] + ["error"] * (codec != "raw" and "error" in entry))
    name = entry["name"]
    check(not name.endswith(SUFFIXES), f"{name}: ends in a reserved suffix")
    check_known(entry["kind"], KINDS, "kind")
    check_known(entry["dtype"], BITS, "dtype")
    check(codec == "raw" or entry["dtype"] in ("F32", *NARROW)[:3 if scaled else 1],
          f"{name}: {codec} of {entry['dtype']}")
    elements(entry["shape"])
    if scaled:
        check_known(entry["scale"], SCALE_DTYPE, "scale")
        check(codec not in TABLED or entry["scale"] == "f32", f"{name}: wrong scale")
        check(codec in SCALED or entry["scale"] == "f32" and "rows" not in entry,
              f"{name}: {codec} with {entry['scale']}, or rows")
        check(codec.startswith("log") == (entry["scale"] == "f28"), f"{name}: wrong scale")
        check(codec not in PACKED or entry["scale"] != "f16", f"{name}: wrong scale")
        check((codec in ("ratio4", "ratio3")) == (entry["scale"] == "e5m3"), f"{name}: wrong scale")
        check(is_integer(entry["group"]) and 1 <= entry["group"] <= 65_536, f"{name}: wrong group")
        check(codec not in PACKED or entry["group"] % 32 == 0, f"{name}: wrong group")
        row = entry["shape"][-1] if len(entry["shape"]) > 1 else 0
        if is_lowrank(codec):
            check(entry.get("rows") is True and len(entry["shape"]) == 2 and entry["group"] <= row <= 65_536
                  and entry["shape"][0] and 16 * share_of(entry["shape"]) <= 3 * row and entry["scale"] != "f16",
                  f"{name}: not for a low-rank codec")
        else:
            check("rows" not in entry or entry["rows"] is True and entry["scale"] != "f16"
                  and codec not in (*TABLED, *PACKED) and entry["group"] < row <= 65_536 and row % entry["group"],
                  f"{name}: wrong rows")
    if codec.startswith("ratio"):
        check(isinstance(entry["beside"], str), f"{name}: beside is not a string")
        check(type(entry["eps"]) in (int, float) and 0 <= entry["eps"] < 2.0**128 - 2.0**103, f"{name}: wrong eps")
    if is_stochastic(codec):
        check(is_integer(entry["seed"]), f"{name}: wrong seed")
    if "narrow" in entry:
        check(isinstance(entry["narrow"], str), f"{name}: narrow is not a string")
        check(codec in TRUNCATED or len(UNSCALED.get(codec, ())) == 2, f"{name}: narrow with {codec}")
    return Tensor(name, entry["kind"], entry["dtype"], tuple(entry["shape"]), codec,
                  entry.get("scale"), entry.get("group"), entry.get("error"),
                  rows=entry.get("rows", False), seed=entry.get("seed"), narrow=entry.get("narrow"),
                  beside=entry.get("beside"), eps=entry.get("eps"))


def check_header(header, metadata):
    """Section 5.5: the header's hash."""
    # The same bytes behind a backslash are the end of another key: {"a\"tersor_check":"b"}.
    found = re.findall(rb'(?<!\\)"tersor_check":"(%s)"' % HASH.encode(), header)
    check(len(found) == 1 and found[0].decode() == metadata.get("tersor_check"),
          "tersor_check is missing or not in its exact form")
    check(header_hash(header, found[0]) == found[0].decode(), "tersor_check is not the header's")


def header_hash(header, digits):
    entry = b'"tersor_check":"%s"'
    return xxhash.xxh3_64_hexdigest(header.replace(entry % digits, entry % (b"0" * 16)))


TREE, TREE_ENTRY = "tersor::tree", "tersor_tree"


def take_tree(checkpoint):
    """Section 5.6: the tree is neither a tensor of the source nor an entry of its metadata."""
    tensor = checkpoint.tensors.pop(TREE, None)
    text = checkpoint.metadata.pop(TREE_ENTRY, None)
    check(tensor is None or text is None, "two trees")
    if tensor:
        check(tensor.codec == "raw" and tensor.dtype == "U8", f"{TREE} is not raw bytes")
        checkpoint.tree = tensor.raw
    if text is not None:
        checkpoint.tree = from_base64(text)
    return checkpoint


def from_base64(text, what=TREE_ENTRY):
    try:
        content = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        content = None
    # Decoding and encoding again: bits that no byte uses are zero.
    check(content is not None and base64.b64encode(content).decode() == text,
          f"{what} is not base64")
    return content


# ---- Shards: section 5.7 -------------------------------------------------------------------------

def is_index(content):
    return b"\0" not in content[:8] and content.lstrip(b" \t\n\r")[:1] == b"{"


def parse_index(content):
    """Name of the shard by name of the array."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ReaderError("the index is not UTF-8") from None
    index = parse_json(text, any_number, float, depth_max=16, values_max=2_000_000)
    places = index.get("weight_map")
    check(isinstance(places, dict) and places, "the index has no weight_map")
    check(isinstance(index.get("metadata", {}), dict), "the index's metadata is not an object")
    for name, shard in places.items():
        check(isinstance(shard, str) and is_file_name(shard),
              f"{name}: the name of its shard is not that of a file")
    return places


def is_file_name(name):
    return 1 <= len(name.encode()) <= 255 and name not in (".", "..") and not set(name) & set("/\\")


def read_shards(folder, places):
    """The checkpoint of all shards that an index names."""
    shards = sorted(set(places.values()), key=str.encode)
    joined = None
    for number, shard in enumerate(shards, 1):
        check((folder / shard).is_file(), f"{shard}: there is no such shard")
        part, arrays = read_file((folder / shard).read_bytes(), folder)
        check(arrays == {name for name, place in places.items() if place == shard},
              f"{shard}: other arrays than the index says")
        at = (part.shard["number"], part.shard["count"]) if part.shard else (1, 1)
        check(at == (number, len(shards)), f"{shard}: is not shard {number} of {len(shards)}")
        joined = join(joined, part) if joined else part
    return take_tree(find_narrow(joined))


def join(into, part):
    check((into.generation, into.source_kind, into.shard["set"])
          == (part.generation, part.source_kind, part.shard["set"]), "shards of two checkpoints")
    check(not into.tensors.keys() & part.tensors.keys(), "a tensor in two shards")
    for key, value in part.metadata.items():
        check(into.metadata.setdefault(key, value) == value, f"the shards differ in {key!r}")
    into.tensors |= part.tensors
    return into


# ---- Narrow floats and scales: sections 6 and 7 --------------------------------------------------

STORED = {"I8": "<i1", "U8": "<u1", "I16": "<i2", "U16": "<u2", "BF16": "<u2", "F16": "<u2",
          "U32": "<u4", "F32": "<u4", "F8_E4M3": "u1", "F8_E5M2": "u1"}


def from_bits(bits):
    return bits.astype(np.uint32).view(np.float32)


def widen_bf16(narrow):
    return from_bits(narrow.astype(np.uint32) << 16)


def widen_f16(narrow):
    """By hand, as a conversion would make a signalling NaN quiet."""
    narrow = narrow.astype(np.uint32)
    sign, exponent, mantissa = narrow >> 15 << 31, narrow >> 10 & 31, narrow & 0x3ff
    subnormal = (mantissa.astype(np.float32) * np.float32(2**-24)).view(np.uint32)      # exact
    wide = np.where(exponent == 31, 255, exponent + (127 - 15)) << 23 | mantissa << 13
    return from_bits(sign | np.where(exponent == 0, subnormal, wide))


def widen_e5m2(narrow):
    """The top byte of the same value's F16."""
    return widen_f16(narrow.astype(np.uint16) << 8)


def widen_e4m3_nan(narrow):
    return from_bits(0x7fc00000 | (narrow.astype(np.uint32) & 0x80) << 24)


WIDEN = {"BF16": widen_bf16, "F16": widen_f16, "F32": from_bits, "F8_E5M2": widen_e5m2,
         "F8_E4M3": widen_e4m3_nan}


def round_off(bits, count):
    """Integers without their lowest bits: to nearest, ties to even."""
    return (bits + (1 << count - 1) - 1 + (bits >> count & 1)) >> count


def narrow_bf16(values):
    bits = values.view(np.uint32).astype(np.int64)
    return np.where(np.isnan(values), bits >> 16 | 0x40, round_off(bits, 16)).astype(np.uint16)


def narrow_f16(values):
    bits = values.view(np.uint32).astype(np.int64)
    magnitude = bits & 0x7fffffff
    # Below 2^-14 in units of 2^-24, which rint() rounds as it should; product and rint() are exact.
    small = np.rint(np.minimum(np.abs(values), np.float32(1)).astype(np.float64) * 2**24)
    large = np.minimum(round_off(magnitude, 13) - (127 - 15 << 10), 0x7c00)
    narrow = np.where(magnitude < 0x38800000, small.astype(np.int64), large)
    narrow = np.where(np.isnan(values), 0x7e00 | bits >> 13 & 0x1ff, narrow)
    return (bits >> 31 << 15 | narrow).astype(np.uint16)


NARROW = {"BF16": narrow_bf16, "F16": narrow_f16}


def widen_scales(scale, stored):
    if scale == "e8m8":
        return from_bits(stored.astype(np.uint32) << 15)
    if scale == "e5m3":
        return np.where(stored == 0, np.float32(0), from_bits(stored.astype(np.uint32) + 856 << 20))
    if scale == "f28":      # with the number of the range in its last four bits
        return from_bits(stored)
    return WIDEN[SCALE_DTYPE[scale]](stored)


# ---- Codecs: section 8 ---------------------------------------------------------------------------
#
# Every operation on float32 arrays is an RN of the document.

# The exponent's shift and mask, and bias + mantissa bits + 1.
EXPONENT = {"BF16": (7, 0xff, 127 + 7 + 1), "F16": (10, 0x1f, 15 + 10 + 1)}
LEVELS = {"I8": 127, "I16": 32767}


def as_float(integers):
    return integers.astype(np.float32)


def decode_ulp(narrow, narrow_dtype, correction, correction_dtype):
    """Section 8.3."""
    shift, mask, offset = EXPONENT[narrow_dtype]
    exponent = narrow.astype(np.int32) >> shift & mask
    value = WIDEN[narrow_dtype](narrow)
    c = as_float(correction) / np.float32(LEVELS[correction_dtype])
    # The sum is exact in binary64; the conversion is its one rounding.
    step = np.ldexp(c.astype(np.float64), np.maximum(exponent, 1) - offset)
    corrected = (value.astype(np.float64) + step).astype(np.float32)
    return np.where((exponent == mask) | (correction == 0), value, corrected)


def decode_exact(narrow, correction):
    """Section 8.4."""
    narrow = narrow.astype(np.int64)
    magnitude = ((narrow & 0x7fff) << 16) + correction
    return from_bits(magnitude & 0x7fffffff | (narrow & 0x8000) << 16)


def decode_sum(narrow, rest):
    """Section 8.5."""
    return np.where((rest == 0) | ~np.isfinite(narrow), narrow, narrow + rest)


LOG_RANGES = [0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 13, 17, 24]


LOG_CAPS = {8: 24, 7: 13, 6: 13, 4: 10, 3: 6}


def decode_log(codes, scales, bits=8):
    """Sections 8.17, 8.18; powers in binary64 are within 2^-50 of the exact ones, which never are that near a tie."""
    last, ranges = 2**bits - 1, np.minimum(LOG_RANGES, LOG_CAPS[bits])
    exponent = -(last - codes.astype(np.float64)) * ranges[scales & 15] / (last - 1)
    root = np.where(codes == 0, np.float32(0), np.exp2(exponent).astype(np.float32))
    root = root * from_bits(scales & ~np.uint32(15))
    return root * root


MAX_LEVELS = {3: (0.2451, 0.7560, 1.3439, 2.1520),
              4: (0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326)}


def decode_packed(bits, codes, scales):
    """Section 8.18: ratios."""
    q = np.where(codes >= 2**(bits - 1), codes - 2**bits, codes)
    if bits < 8:
        level = np.array(MAX_LEVELS[bits], np.float32)
        return scales * np.where(q < 0, -level[np.minimum(~q, len(level) - 1)], level[np.maximum(q, 0)])
    return scales * (as_float(q) / (np.float32(2**bits - 2) - np.abs(as_float(q))))


def decode_quantized(codec, codes, scales):
    """Sections 8.6 to 8.9; `scales` has one for each element."""
    if codec.startswith("log"):
        return decode_log(codes, scales.view(np.uint32), PACKED.get(codec, 8))
    if codec in PACKED:
        return decode_packed(PACKED[codec], codes, scales)
    q = as_float(codes)
    if codec in ("softsign8", "ratio8"):
        return scales * (q / (np.float32(254) - np.abs(q)))
    if codec == "linear8":
        return q / np.float32(127) * scales
    value = q / np.float32(255) * scales
    return value * value if codec == "sqrt8" else value


def product(shape, factors):
    """Section 8.19: the product of the factors, one column of them after the other, stage after stage."""
    rows = sum(shape)
    total = np.zeros(shape, np.float32)
    for at in range(0, len(factors), shape[0] * share_of(shape)):
        codes = np.frombuffer(factors, np.int8, 16 * rows, at)
        scales = widen_scales("e8m8", np.frombuffer(factors, "<u2", rows, at + 16 * rows))
        left, right = np.split(decode_quantized("linear8", codes, np.repeat(scales, 16)).reshape(rows, 16), [shape[0]])
        for k in range(16):
            total = total + left[:, k, None] * right[:, k]
    return total


def unpack_bits(words, width, count):
    """Section 4.5: the bits of each element as an integer."""
    places = np.arange(count, dtype=np.int64)[:, None] * width + np.arange(width)
    found = words[places >> 5] >> (places & 31).astype(np.uint32) & 1
    return (found.astype(np.int64) << np.arange(width)).sum(1)


def decode_truncated(codec, narrow, words):
    """Section 8.10."""
    dtype, k, width = TRUNCATED[codec]
    bits = unpack_bits(words, width, len(narrow))
    sign = 1 << 8 * narrow.itemsize - 1
    magnitude = (narrow & (sign - 1)).astype(np.int64)
    up = bits >> (k - 1) if "+rn" in codec else bits >> k
    fixed = (magnitude - (up & (magnitude > 0)) << 16) + (bits % 2**k << (16 - k))
    if dtype == "BF16":
        value, special = from_bits(fixed), magnitude >= 0x7f80
    elif dtype == "F16":
        value = np.where(fixed < 0x400 << 16, as_float(fixed) * np.float32(2**-40),
                         from_bits((fixed >> 3) + 0x38000000))
        special = magnitude >= 0x7c00
    elif dtype == "F8_E5M2":
        value = np.where(fixed < 4 << 16, as_float(fixed) * np.float32(2**-32),
                         from_bits((fixed << 5) + 0x38000000))
        special = magnitude >= 0x7c
    else:
        value = np.where(fixed < 8 << 16, as_float(fixed) * np.float32(2**-25),
                         from_bits((fixed << 4) + 0x3c000000))
        special = magnitude == 0x7f
    value = np.where(narrow & sign, -value, value)
    return np.where(special, WIDEN[dtype](narrow), value)



def rounded_to(dtype, values):
    """Section 8.11."""
    return WIDEN[dtype](NARROW[dtype](values))


def decode(tensor, planes):
    """The tensor's elements from the bytes of its planes."""
    dtypes = [dtype for _, dtype, _ in planes_of(tensor)]
    stored = [np.frombuffer(plane, STORED[dtype]) for plane, dtype in zip(planes, dtypes)]
    codec = tensor.codec
    with np.errstate(all="ignore"):     # any pattern is valid, also infinities and NaN
        if codec in SCALED:
            if codec in TABLED:
                keys = (QUANTIZED, SCALES, EXPAND)
                values = tables.decode(codec, dict(zip(keys, stored)), tensor.group, tensor.kind)
                return values if tensor.dtype == "F32" else rounded_to(tensor.dtype, values)
            size, row = group_of(tensor)
            scales = np.repeat(widen_scales(tensor.scale, stored[1]), size)
            if row:         # what the last group of a row has too many
                scales = scales.reshape(-1, -(-row // size) * size)[:, :row].ravel()
            codes, count = stored[0], elements(list(tensor.shape))
            if codec in PACKED:
                codes = unpack_bits(codes, PACKED[codec], count)
            values = decode_quantized(codec.split("+")[-1], codes, scales[:count])
            if is_lowrank(codec):
                values = values + product(tensor.shape, planes[2]).ravel()
            if tensor.dtype == "F32" or codec.startswith("ratio"):
                return values
            return rounded_to(tensor.dtype, values)
        if codec in LEARNED:
            values = np.repeat(from_bits(stored[-1]), tensor.group)[:elements(list(tensor.shape))]
            if codec == "gefen8":
                values = tensor.codebook[stored[0]] * values
            return values if tensor.dtype == "F32" else rounded_to(tensor.dtype, values)
        if codec in TRUNCATED:
            return decode_truncated(codec, *stored)
        if len(stored) == 1:
            return WIDEN[dtypes[0]](stored[0])
        if codec == "bf16+exact16":
            return decode_exact(*stored)
        if codec in ("bf16+bf16", "fp16+fp16"):
            return decode_sum(*map(WIDEN[dtypes[0]], stored))
        return decode_ulp(stored[0], dtypes[0], stored[1], dtypes[1])


# ---- Reading: section 11 -------------------------------------------------------------------------

def read(path):
    """The checkpoint of a packed file or an index; ReaderError if it is not wholly in order."""
    path = pathlib.Path(path)
    content = path.read_bytes()
    if is_index(content):
        return read_shards(path.parent, parse_index(content))
    return read_bytes(content, path.parent)


def read_bytes(content, folder=None):
    """`folder` is where the weights file is, if there is one."""
    checkpoint = read_file(content, folder)[0]
    check(checkpoint.shard is None, "a shard without the others")
    return take_tree(find_narrow(checkpoint))


def find_narrow(checkpoint):
    """Section 5.4: decode the tensors whose plane 0 is another tensor."""
    for tensor in checkpoint.tensors.values():
        if tensor.narrow is None:
            continue
        found, (digits, correction) = checkpoint.tensors.get(tensor.narrow), tensor.waiting
        check(found and found.raw is not None and found.shape == tensor.shape
              and found.dtype == planes_of(tensor)[0][1]
              and plane_hash(found, 0, found.raw) == digits,
              f"{tensor.name}: {tensor.narrow} is not its narrow plane")
        tensor.values = decode(tensor, [found.raw, correction])
    return find_beside(checkpoint)


def find_beside(checkpoint):
    """Section 8.13: what was decoded of `ratio<k>` are ratios to the roots of another tensor."""
    for tensor in checkpoint.tensors.values():
        if not tensor.codec.startswith("ratio"):
            continue
        v = checkpoint.tensors.get(tensor.beside)
        check(v and not v.codec.startswith("ratio") and v.shape == tensor.shape and (v.codec != "raw" or v.dtype in WIDEN),
              f"{tensor.name}: {tensor.beside} is no tensor that it can be relative to")
        elements = v.values if v.codec != "raw" else WIDEN[v.dtype](np.frombuffer(v.raw, STORED[v.dtype]))
        with np.errstate(all="ignore"):
            divisor = np.sqrt(elements) + np.float32(tensor.eps)
            if tensor.codec in ("ratio4", "ratio3"):
                divisor = np.where(elements == 0, np.float32(0), divisor)
            tensor.values = tensor.values * divisor
            if tensor.dtype != "F32":
                tensor.values = WIDEN[tensor.dtype](NARROW[tensor.dtype](tensor.values))
    return checkpoint


def read_file(content, folder=None):
    """The checkpoint, the tree still in it, and the names of the file's arrays."""
    header, data = split_file(content)
    metadata, arrays = parse_header(header, len(data))
    if "tersor" not in metadata:
        check("tersor_check" not in metadata, "tersor_check without tersor")
        raise ReaderError("not a packed file")
    check_header(header, metadata)
    names = set(arrays)
    placed = {name: (array, data) for name, array in arrays.items()}

    def more(weights):
        if weights:
            check(folder, "a packed file without its weights file")
            add_weights(placed, folder / weights)
        return {name: array for name, (array, _) in placed.items()}

    checkpoint, hashes = parse_tersor(metadata, arrays, more)
    arrays = placed
    used = []
    for tensor in checkpoint.tensors.values():
        own = planes_of(tensor)[tensor.narrow is not None:]
        planes = [take_any(arrays, tensor, i + (tensor.narrow is not None), used if checkpoint.entropy else None)
                  for i in range(len(own))]
        recorded = hashes[tensor.name]
        first = len(planes_of(tensor)) - len(own)
        check(len(recorded) == first + len(own)
              and all(is_hash(plane_hash(tensor, first + i, plane), recorded[first + i], tensor.name, first + i)
                      for i, plane in enumerate(planes)),
              f"{tensor.name}: a plane does not have the hash that was recorded")
        if tensor.narrow is not None:
            tensor.waiting = recorded[0], planes[0]
        elif tensor.codec == "raw":
            tensor.raw = planes[0]
        else:
            tensor.values = decode(tensor, planes)
    check(bool(used) == checkpoint.entropy, "entropy without a coded plane")
    check(not arrays, f"arrays that are no plane: {', '.join(arrays)}")
    return checkpoint, names


def add_weights(arrays, path):
    """Section 5.8: the arrays of the weights file."""
    check(path.is_file() and not path.is_symlink(), f"{path.name}: there is no such weights file")
    header, data = split_file(path.read_bytes())
    metadata, more = parse_header(header, len(data))
    check(not metadata.keys() & {"tersor", "tersor_check"}, f"{path.name}: is a packed file")
    check(not arrays.keys() & more.keys(), "an array in both files")
    arrays.update((name, (array, data)) for name, array in more.items())


def contexts_of(arrays, tensor):
    """What contexts of elements `at` of a code plane depend on, or None."""
    logarithmic = tensor.codec == "log8" and group_of(tensor)[0] > 1
    if not logarithmic and (tensor.codec, tensor.scale) != ("sqrt8", "e8m8"):
        return None
    scales = scale_of_each(tensor, take_any(dict(arrays), tensor, 1, []))
    columns = tensor.shape[-1] if tensor.shape else 1
    sort = coded_planes.LogVariance if logarithmic else coded_planes.Variance
    return lambda at: sort(scales[at], at.start, columns)


def take_coded(arrays, tensor, plane):
    """Section 4.8: the bytes of a coded plane, and None of one that is not."""
    name, dtype, _ = planes_of(tensor)[plane]
    array, data = arrays.get(name + CODED, (None, None))
    if not array or name in arrays:
        return None
    del arrays[name + CODED]
    check(array.dtype == "U8" and len(array.shape) == 1, f"{name}: its coded array is not of U8")
    content, count = data[array.begin:array.end], elements(list(tensor.shape))
    check(count <= 2**56 and -(-count // piece_of(tensor)) * 16 <= len(content),
          f"{name}: its coded array is too short for its index")
    sizes = [plane_size(tensor, plane, min(end, count)) for end in range(0, count + piece_of(tensor), piece_of(tensor))]
    sizes = [end - begin for begin, end in zip(sizes, sizes[1:])]
    contexts = contexts_of(arrays, tensor) if plane == 0 else None
    at, decoded = 16 * len(sizes), []
    for i, size in enumerate(sizes):
        end, digest = struct.unpack_from("<QQ", content, 16 * i)
        check(at <= end <= len(content), f"{name}: piece {i} is not in its array")
        begin = i * piece_of(tensor)
        variance = contexts and contexts(slice(begin, begin + size))
        piece = decode_piece(content[at:end], dtype, size, variance)
        check(is_hash(xxhash.xxh3_64_intdigest(piece), digest, name, i), f"{name}: piece {i} does not have its hash")
        decoded.append(piece)
        at = end
    check(at == len(content), f"{name}: bytes behind its last piece")
    return b"".join(decoded)


def scale_of_each(tensor, scales):
    """The stored scale of each element: section 4.4."""
    count, (size, row) = elements(list(tensor.shape)), group_of(tensor)
    i = np.arange(count)
    groups = i // row * -(-row // size) + i % row // size if row else i // size
    return np.frombuffer(scales, "<u4" if tensor.scale == "f28" else "<u2")[groups]


def decode_piece(content, dtype, size, variance):
    width = 1 if BITS[dtype] % 8 else BITS[dtype] // 8
    try:
        return coded_planes.decode(content, width, dtype in ("BF16", "F32"), size // width, variance).tobytes()
    except coded_planes.Refused as error:
        raise ReaderError(str(error)) from None


def take_any(arrays, tensor, plane, used):
    """A plane as it is, or, with a list for their names, coded."""
    coded = take_coded(arrays, tensor, plane) if used is not None else None
    if coded is None:
        return take_plane(arrays, *planes_of(tensor)[plane])
    used.append(tensor.name)
    return coded


def take_plane(arrays, name, dtype, shape):
    """A plane's bytes; its array is used up, so that no other tensor can have it."""
    array, data = arrays.pop(name, (None, None))
    check(array, f"{name}: not in the file, or a plane of two tensors")
    check(array.dtype == dtype and array.shape == shape, f"{name}: another dtype or shape")
    return data[array.begin:array.end]
