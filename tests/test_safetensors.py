"""Safetensors files, hostile and good.

A hostile file must be refused by every command that reads one: exit status 3, one line that names
the file, the tensor at fault and what was found and expected; nothing written, nothing changed.
A good file must be accepted with its exact values; the oracle is the Python safetensors package.
"""
import hashlib
import json
import os
import re
import struct
import subprocess

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from conftest import BINARY, one_line_error, run_tersor, safetensors_bytes
from torchfile import run_measured

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}
MAX_HEADER = 100_000_000
MAX_SIZE = 2**48 - 1                # of a dimension or an offset
TOO_LARGE = ("overflow", "limit", "2^48-1", MAX_SIZE)
RAW_CODECS = ("--weights", "f32", "--momentum", "f32", "--variance", "f32")
GOOD = safetensors_bytes({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4))


def member(name="a", dtype='"F32"', shape="[1]", offsets="[0,4]"):
    """One tensor's entry; every argument is JSON text (the name without its quotes)."""
    return f'"{name}":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}'


def made_of(*members, data=b""):
    return safetensors_bytes(("{" + ",".join(members) + "}").encode(), data)


def tensors_of(*tensors, metadata=None):
    """A file holding (name, dtype, shape, bytes) back to back in the order given."""
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, dtype, shape, content in tensors:
        end = len(data) + len(content)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), end]}
        data += content
    return safetensors_bytes(header, data)


def folder_state(folder):
    """Every file of the folder with its content and time of change."""
    state = {}
    for path in folder.iterdir():
        with open(path, "rb") as file:
            state[path.name] = (hashlib.file_digest(file, "sha1").digest(),
                                path.stat().st_mtime_ns)
    return state


@pytest.fixture
def refused(tmp_path):
    """Check that every command refuses the bytes of a file.

    A fact is a number or a text that the reason must hold; of a tuple one must be there.
    `tensor` must be named; `near` may be named by its place in the header instead, where the
    JSON text itself breaks a rule.  With `peak_mib`, memory and time are bounded as well.
    """
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    good.write_bytes(GOOD)

    def holds(reason, fact):
        if isinstance(fact, tuple):
            return any(holds(reason, one) for one in fact)
        if isinstance(fact, int):
            return str(fact) in re.findall(r"\d+", reason)
        return fact in reason

    def check(content, *facts, tensor=None, near=None, peak_mib=None):
        bad.write_bytes(content)
        before = folder_state(tmp_path)
        for args in (["inspect", bad], ["verify", bad], ["diff", bad, good], ["diff", good, bad],
                     ["pack", bad, "-o", tmp_path / "out.safetensors"]):
            if peak_mib is None:
                done = run_tersor(*args)
            else:
                done, peak, seconds = run_measured(*args)
                assert peak <= peak_mib and seconds < 5, (args[0], peak, seconds)
            assert done.returncode == 3, (args, done.returncode, done.stdout, done.stderr)
            line = one_line_error(done)
            assert line.isprintable() and done.stdout == ""
            assert line.startswith(f"tersor: {bad}: "), line
            reason = line.removeprefix(f"tersor: {bad}: ")
            if tensor is not None:
                assert reason.startswith(f"tensor {tensor}: "), line
            if near is not None:
                assert re.match(rf"tensor {near}: |header: byte \d+: ", reason), line
            for fact in facts:
                assert holds(reason, fact), (args[0], fact, reason)
            assert folder_state(tmp_path) == before, args
        bad.unlink()

    return check


@pytest.fixture
def accepted(tmp_path):
    """Check that the bytes of a file are read with exactly the values that Python reads."""
    source, packed, out = (tmp_path / f"{name}.safetensors" for name in ("in", "packed", "out"))

    def check(content):
        source.write_bytes(content)
        expected = {name: (t["dtype"], list(t["shape"]), bytes(t["data"]))
                    for name, t in safetensors.deserialize(content)}

        report = json.loads(run_tersor("inspect", "--json", source, check=0).stdout)
        assert report["schema"] == "tersor.inspect.v1" and report["kind"] == "safetensors"
        assert len(report["tensors"]) == len(expected)
        assert ({t["name"]: (t["dtype"], t["shape"], t["nbytes"]) for t in report["tensors"]}
                == {name: (d, s, len(b)) for name, (d, s, b) in expected.items()})

        run_tersor("verify", source, check=0)
        run_tersor("diff", source, source, check=0)
        run_tersor("pack", source, "-o", packed, "--force", *RAW_CODECS, check=0)
        run_tersor("unpack", packed, "-o", out, "--force", check=0)
        assert source.read_bytes() == content
        for path in (packed, out):
            got = {name: (t["dtype"], list(t["shape"]), bytes(t["data"]))
                   for name, t in safetensors.deserialize(path.read_bytes())}
            assert got == expected, path
        with (safetensors.safe_open(source, "np") as before,
              safetensors.safe_open(out, "np") as after):
            assert (after.metadata() or {}) == (before.metadata() or {})
        return report

    return check


# The length prefix

@pytest.mark.parametrize("size", range(8))
def test_file_shorter_than_its_length_prefix(refused, size):
    refused(bytes(size), size, 8)
    refused(b"\xff" * size, size, 8)


def test_header_length_over_the_limit(refused):
    refused(struct.pack("<Q", 2**64 - 1) + b"{}", 2**64 - 1, MAX_HEADER, peak_mib=64)
    refused(struct.pack("<Q", 2**63) + b"{}", 2**63, MAX_HEADER, peak_mib=64)
    refused(struct.pack("<Q", MAX_HEADER + 1) + b"{}", MAX_HEADER + 1, MAX_HEADER, peak_mib=64)


def test_header_over_the_limit_is_not_read_even_when_it_is_there(refused):
    refused(struct.pack("<Q", MAX_HEADER + 1) + bytes(MAX_HEADER + 1),
            MAX_HEADER + 1, MAX_HEADER, peak_mib=64)


@pytest.mark.parametrize("length, size", [(1000, 100), (93, 100), (MAX_HEADER, 100), (1, 8)])
def test_truncated_header_is_refused(refused, length, size):
    file = struct.pack("<Q", length) + b'{"a":'.ljust(size - 8)[:size - 8]
    refused(file, (length, length + 8), (size, size - 8), peak_mib=64)


# Shapes, offsets and the size of the file

@pytest.mark.parametrize("dtype, shape", [
    ("F32", "[4294967296,4294967296]"),
    ("U8", "[4294967296,4294967296]"),
    ("F32", "[2147483648,2147483648]"),             # 2^62 elements: only the bytes wrap
    ("F32", "[65536,65536,65536,65536]"),
    ("F4", "[281474976710655,65537,4294967296]"),
], ids=["elements", "u8", "bytes", "rank4", "f4"])
def test_shape_whose_product_wraps_to_zero_is_refused(refused, dtype, shape):
    refused(made_of(member("w", f'"{dtype}"', shape, "[0,0]")),
            TOO_LARGE, tensor="w")


def test_dimension_over_the_limit(refused):
    for value in (2**48, 2**63 - 1, 2**63, 2**64 - 1):
        for shape in (f"[2,{value}]", f"[0,{value}]"):
            refused(made_of(member("w", '"U8"', shape, "[0,0]")), value, TOO_LARGE, near="w")


@pytest.mark.parametrize("last", [2**64 - 1, 2**64])
def test_sizes_that_wrap_only_in_their_sum_are_refused(refused, last):
    ends = [k * 2**61 for k in range(8)] + [last]
    refused(made_of(*(member(f"t{k}", '"U8"', f"[{ends[k + 1] - ends[k]}]",
                             f"[{ends[k]},{ends[k + 1]}]") for k in range(8))),
            2**61, TOO_LARGE, near="t0")


def test_hole_between_tensors_is_refused(refused):
    refused(made_of(member("a"), member("b", offsets="[8,12]"), data=bytes(12)), 4, 8, tensor="b")


@pytest.mark.parametrize("second", ["[4,12]", "[0,8]", "[0,4]"])
def test_overlapping_tensors_are_refused(refused, second):
    size = int(second[1:-1].split(",")[1]) - int(second[1])
    refused(made_of(member("a", '"U8"', "[8]", "[0,8]"), member("b", '"U8"', f"[{size}]", second),
                    data=bytes(12 if second == "[4,12]" else 8)),
            ("overlap", 4, 8), ("tensor a: ", "tensor b: "))


def test_begin_after_end_is_refused(refused):
    refused(made_of(member("a", offsets="[4,0]"), data=bytes(4)), 4, 0, tensor="a")
    refused(made_of(member("a"), member("b", '"U8"', "[0]", "[4,0]"), data=bytes(4)),
            4, 0, tensor="b")


def test_first_begin_other_than_zero_is_refused(refused):
    refused(made_of(member("a", offsets="[4,8]"), data=bytes(8)), 4, 0, tensor="a")
    refused(made_of(member("a", shape="[0]", offsets="[4,4]"), data=bytes(4)), 4, 0, tensor="a")


@pytest.mark.parametrize("change", [+1, -1])
def test_one_byte_too_many_or_too_few(refused, change):
    for members, size in (([member("a", shape="[4]", offsets="[0,16]")], 16),
                          ([member("a", shape="[2]", offsets="[0,8]"),
                            member("b", shape="[2]", offsets="[8,16]")], 16)):
        whole = len(made_of(*members)) + size
        file = made_of(*members, data=bytes(size + change))
        refused(file, (size, whole), (size + change, whole + change))


def test_trailing_bytes_without_tensors(refused):
    refused(safetensors_bytes({}, bytes(1)), 0, 1)
    refused(safetensors_bytes({"__metadata__": {"a": "b"}}, bytes(8)), 0, 8)


# The JSON text

@pytest.mark.parametrize("other, offsets", [
    ("weight", "[0,4]"), ("weight", "[4,8]"),
    ("w\\u0065ight", "[0,4]"), ("w\\u0065ight", "[4,8]"), ("\\u0077eight", "[4,8]"),
])
def test_duplicate_tensor_is_refused(refused, other, offsets):
    """Names are compared after unescaping, and neither the first nor the last one wins."""
    data = bytes(4 if offsets == "[0,4]" else 8)
    refused(made_of(member("weight"), member(other, offsets=offsets), data=data), "weight")
    refused(made_of(member(other, offsets=offsets), member("weight"), data=data), "weight")


@pytest.mark.parametrize("extra", ['"dtype":"F32"', '"dtype":"I32"', '"d\\u0074ype":"F32"',
                                   '"shape":[1]', '"data_offsets":[0,4]'])
def test_duplicate_member_of_a_tensor_is_refused(refused, extra):
    entry = member("w")[:-1] + "," + extra + "}"
    name = re.sub(r"\\u0074", "t", extra).split('"')[1]
    refused(made_of(entry, data=bytes(4)), name, near="w")


def test_duplicate_metadata_is_refused(refused):
    refused(made_of('"__metadata__":{"x":"1"}', '"__metadata__":{"x":"1"}'), "__metadata__")
    refused(made_of('"__metadata__":{"step":"1","step":"1"}'), "step")
    refused(made_of('"__metadata__":{"step":"1","\\u0073tep":"2"}'), "step")


NOT_INTEGERS = ["1.0", "1e1", "1E0", "-1", "-0", '"4"', "null", "true", "[4]", "{}",
                "9007199254740993", "18446744073709551616", "1" + "0" * 400]


@pytest.mark.parametrize("text", NOT_INTEGERS)
def test_offset_that_is_not_an_integer_in_range_is_refused(refused, text):
    # 2^53 + 1 must not have passed through a double on its way into the message.
    facts = [text] if text[0] in "-0123456789" and len(text) < 30 else []
    for offsets in (f"[0,{text}]", f"[{text},4]"):
        refused(made_of(member("w", offsets=offsets), data=bytes(4)), *facts, near="w")


@pytest.mark.parametrize("text", NOT_INTEGERS)
def test_dimension_that_is_not_an_integer_in_range_is_refused(refused, text):
    facts = [text] if text[0] in "-0123456789" and len(text) < 30 else []
    refused(made_of(member("w", shape=f"[{text}]"), data=bytes(4)), *facts, near="w")


@pytest.mark.parametrize("value", ["1", "null", "true", "false", "{}", "[]", '{"a":"b"}'])
def test_metadata_value_that_is_not_a_string_is_refused(refused, value):
    refused(made_of('"__metadata__":{"format":"pt","step":' + value + "}", member("a"),
                    data=bytes(4)), "step", "string")


def test_metadata_value_that_is_a_number_is_refused(refused):
    refused(made_of('"__metadata__":{"step":1.5}'), "step")


@pytest.mark.parametrize("value", ["null", "[]", '"x"', "1", '[["a","b"]]'])
def test_metadata_that_is_not_an_object_is_refused(refused, value):
    refused(made_of('"__metadata__":' + value, member("a"), data=bytes(4)), "__metadata__")


@pytest.mark.parametrize("text", [
    b"\xff", b"\x80", b"\xc3", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xed\xa0\x80",
    b"\xed\xbf\xbf", b"\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82",
], ids=lambda text: text.hex())
def test_invalid_utf8_is_refused(refused, text):
    name = member("N").encode().replace(b"N", b"n" + text + b"n", 1)
    refused(safetensors_bytes(b"{" + name + b"}", bytes(4)), "UTF-8")
    refused(safetensors_bytes(b'{"__metadata__":{"k":"' + text + b'"}}'), "UTF-8")


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "\\ud800\\u0041", "\\udc00\\ud800",
                                  "\\ud800x", "\\uDBFF\\uDBFF"])
def test_lone_surrogate_escape_is_refused(refused, text):
    refused(made_of(member("n" + text + "n"), data=bytes(4)), "surrogate")
    refused(made_of('"__metadata__":{"k":"' + text + '"}'), "surrogate")


@pytest.mark.parametrize("text", ["\\x41", "\\u12", "\\u00g0", "\\u", "\\'", "\\ "])
def test_unknown_escape_is_refused(refused, text):
    refused(made_of(member("n" + text + "n"), data=bytes(4)))


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x08, 0x09, 0x0A, 0x0D, 0x1B, 0x1F])
def test_raw_control_byte_in_a_string_is_refused(refused, byte):
    refused(made_of(member(f"n{chr(byte)}n"), data=bytes(4)))
    refused(made_of('"__metadata__":{"k":"' + chr(byte) + '"}'))


def test_nul_in_a_name_is_refused(refused):
    """C would end the name there, and two names could become one."""
    refused(made_of(member("n\\u0000n"), data=bytes(4)))
    refused(made_of('"__metadata__":{"k\\u0000":"v"}'))


@pytest.mark.parametrize("before, after", [
    (b"", b"\0" * 8), (b"", b" \0"), (b"\0", b""), (b"\xef\xbb\xbf", b""),
    (b"", b"\v"), (b"\f", b""), (b"\xc2\xa0", b""), (b"", b"\x1a"),
])
def test_padding_other_than_white_space_is_refused(refused, before, after):
    text = b"{" + member("a").encode() + b"}"
    refused(safetensors_bytes(before + text + after, bytes(4)))


def test_utf16_is_refused(refused):
    for encoding in ("utf-16-le", "utf-16"):
        refused(safetensors_bytes(("{" + member("a") + "}").encode(encoding), bytes(4)))


def test_error_lines_hold_no_raw_byte_of_the_file(tmp_path):
    bad = tmp_path / "bad.safetensors"
    for text in (b"\xff\xfe", b"\xc2\x9b31m", b"\x1b[31m", b"\x7f", b"\\u001b[31m", b"\\u009b",
                 b"\\u007f"):
        entry = member("N", shape="[2]").encode().replace(b"N", text, 1)
        bad.write_bytes(safetensors_bytes(b"{" + entry + b"}", bytes(4)))
        for command in (["inspect", bad], ["verify", bad], ["pack", bad, "-o", bad.parent / "o"]):
            done = subprocess.run([BINARY, *command], capture_output=True, timeout=60)
            assert done.returncode == 3 and done.stdout == b""
            line = done.stderr.removesuffix(b"\n").decode()         # UTF-8 or the test fails
            assert not re.search("[\0-\x1f\x7f-\x9f]", line), line


def test_valid_escapes_are_accepted(accepted):
    metadata = '"__metadata__":{"k\\ud83d\\ude00":"\\b\\f\\n\\r\\t\\/\\"\\\\\\u0001"}'
    name = "\\u00e9\\ud83d\\ude00\\/\\\"\\\\\x7f"
    report = accepted(made_of(metadata, member(name), data=bytes(4)))
    assert [t["name"] for t in report["tensors"]] == ['é😀/"\\\x7f']


# What a strict reader must still take

@pytest.mark.parametrize("before", [b"", b" ", b"\t", b"\n", b"\r", b" \t\n\r\n  "])
@pytest.mark.parametrize("after", [b"", b" ", b"\t", b"\n", b"\r", b"\r\n\t   "])
def test_white_space_around_the_header_is_accepted(accepted, before, after):
    accepted(safetensors_bytes(before + b"{" + member("a").encode() + b"}" + after,
                               np.float32([0.1]).tobytes()))


def test_white_space_between_tokens_is_accepted(accepted):
    text = json.dumps({"__metadata__": {"a": "b"},
                       "w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}}, indent=1)
    accepted(safetensors_bytes(text.replace(":", " \r\n\t: ").encode(), bytes(range(8))))


@pytest.mark.parametrize("shape, size", [("[]", 4), ("[0]", 0), ("[2,0,3]", 0), ("[1,1,1]", 4),
                                         ("[" + "1," * 63 + "1]", 4),
                                         (f"[0,{MAX_SIZE}]", 0)])
@pytest.mark.parametrize("dtype", ["F32", "I32"])
def test_rank_0_and_empty_shapes_are_read(accepted, shape, size, dtype):
    accepted(made_of(member("a", f'"{dtype}"', shape, f"[0,{size}]"), data=bytes(range(size))))


def test_empty_tensors_beside_others_are_read(accepted):
    accepted(made_of(member("first", shape="[0]", offsets="[0,0]"), member("w"),
                     member("x", shape="[0,7]", offsets="[4,4]"),
                     member("y", '"U8"', "[3]", "[4,7]"),
                     member("last", '"I64"', "[0]", "[7,7]"), data=bytes(range(7))))


def test_file_without_tensors_is_read(accepted):
    accepted(safetensors_bytes({}))
    accepted(safetensors_bytes(b"{}"))


def test_file_with_metadata_only_is_read(accepted):
    accepted(safetensors_bytes({"__metadata__": {"format": "pt", "": "", "ключ": "значение"}}))
    accepted(safetensors_bytes({"__metadata__": {}}))


@pytest.mark.parametrize("dtype", BITS)
def test_every_dtype_is_read(accepted, dtype):
    count = 8                                       # a whole number of bytes for 4 and 6 bits too
    size = count * BITS[dtype] // 8
    data = bytes(i % 2 if dtype == "BOOL" else 0x38 + i % 8 for i in range(size))
    accepted(tensors_of(("a", dtype, [2, count // 2], data), ("b.step", dtype, [0], b"")))


@pytest.mark.parametrize("dtype, count", [("F4", 1), ("F4", 3), ("F6_E2M3", 2), ("F6_E3M2", 3)])
def test_odd_number_of_packed_elements_is_refused(refused, dtype, count):
    bits = count * BITS[dtype]
    for size in (bits // 8, bits // 8 + 1):
        refused(made_of(member("w", f'"{dtype}"', f"[{count}]", f"[0,{size}]"), data=bytes(size)),
                (bits, count, "byte"), tensor="w")


@pytest.mark.parametrize("dtype", BITS)
def test_size_that_does_not_fit_the_shape_is_refused(refused, dtype):
    for count, size in ((8, BITS[dtype] + 1), (8, BITS[dtype] - 1), (0, 1), (8, 0)):
        refused(made_of(member("w", f'"{dtype}"', f"[{count}]", f"[0,{size}]"), data=bytes(size)),
                size, count * BITS[dtype] // 8, tensor="w")


@pytest.mark.parametrize("dtype", ["f32", "F128", "C128", "F8", "F8_E4M3FN", "BF16 ", "", "I4",
                                   "F3", "F322"])
def test_unknown_dtype_is_refused(refused, dtype):
    refused(made_of(member("w", f'"{dtype}"'), data=bytes(4)), dtype, tensor="w")


def test_dtype_with_a_nul_is_refused(refused):
    refused(made_of(member("w", '"F32\\u0000"')), near="w")


# Resources

@pytest.mark.parametrize("opening", [
    '{"a":' + "[" * 10**6, '{"a":' * 10**6, '{"__metadata__":{"a":' + "[" * 10**6,
    '{"a":{"dtype":"F32","data_offsets":[0,4],"shape":' + "[" * 10**6,
], ids=["arrays", "objects", "metadata", "shape"])
def test_nesting_of_a_million(refused, opening):
    refused(safetensors_bytes(opening.encode()), "limit", peak_mib=512)


def test_header_of_a_million_brackets(refused):
    refused(safetensors_bytes(b"[" * 10**6), peak_mib=512)


def header_of_100_mb(entries, length):
    """A header just below the limit made of as many entries as fit."""
    count = (MAX_HEADER - 100) // length
    text = "{" + ",".join(entries(count)) + "}"
    assert 0.9 * MAX_HEADER < len(text) <= MAX_HEADER
    return safetensors_bytes(text.encode().ljust(MAX_HEADER))


def test_header_of_100_mb_of_tiny_tensors(refused):
    rest = '":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    refused(header_of_100_mb(lambda count: (f'"{i:x}{rest}' for i in range(count)),
                             len(rest) + 8), "limit", peak_mib=512)


@pytest.mark.skipif(not os.environ.get("TERSOR_LONG"), reason="takes 10 s; TERSOR_LONG=1 runs it")
def test_header_of_100_mb_of_tiny_metadata(refused):
    refused(header_of_100_mb(lambda count: ['"__metadata__":{' + ",".join(
        f'"{i:x}":""' for i in range(count)) + "}"], 12), "limit", peak_mib=512)


def test_shape_of_100_mb(refused):
    shape = "[" + "1," * 49_000_000 + "1]"
    refused(safetensors_bytes(("{" + member("w", shape=shape) + "}").encode(), bytes(4)),
            "limit", near="w", peak_mib=512)


# Alignment, other formats, and writing again

@pytest.mark.parametrize("pad", range(8))
def test_unaligned_data_is_read(accepted, pad):
    """The data begins at any address: an unpadded header, or odd tensors in front."""
    rng = np.random.default_rng(pad)
    values = rng.standard_normal(37).astype(np.float32)
    header = b"{" + ",".join([member("odd", '"U8"', "[1]", "[0,1]"),
                              member("w", shape="[37]", offsets="[1,149]"),
                              member("w.exp_avg", shape="[37]", offsets="[149,297]"),
                              member("d", '"F64"', "[1]", "[297,305]")]).encode() + b"}"
    accepted(safetensors_bytes(header + b" " * pad, b"x" + values.tobytes() * 2 + bytes(8)))


@pytest.mark.parametrize("length", [0x04034B50, 0x9C78, 0x0280, 0x8B1F, 0x5A42, 0x2F7B],
                         ids=["zip", "zlib", "pickle", "gzip", "bzip2", "brace"])
def test_header_length_that_looks_like_another_format(accepted, length):
    header = b"{" + member("w", shape="[3]", offsets="[0,12]").encode() + b"}"
    accepted(safetensors_bytes(header.ljust(length), np.float32([1, -2, 0.3]).tobytes()))


def test_other_formats_are_not_safetensors(refused):
    refused(b"PK\3\4" + bytes(1000))
    refused(b"\x80\x02}q\0." + bytes(1000))
    refused(b"\x93NUMPY\x01\0" + bytes(120))
    refused(b"a line of text\n" * 10)


@pytest.fixture
def written_again(tmp_path):
    def check(source):
        packed, out = tmp_path / "packed.safetensors", tmp_path / "out.safetensors"
        run_tersor("pack", source, "-o", packed, *RAW_CODECS, check=0)
        run_tersor("unpack", packed, "-o", out, check=0)
        assert out.read_bytes() == source.read_bytes()
        for path in (packed, out):
            length, = struct.unpack("<Q", path.read_bytes()[:8])
            assert length % 8 == 0
    return check


def test_write_read_write_of_a_real_checkpoint_changes_no_byte(written_again, tiny_gpt):
    written_again(tiny_gpt)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_write_read_write_of_the_reference_writer_changes_no_byte(written_again, tmp_path, metadata):
    source = tmp_path / "source.safetensors"
    rng = np.random.default_rng(18)
    tensors = {f"{dtype}.{i}": rng.integers(0, 2, (3, i)).astype(dtype) for i in range(4)
               for dtype in ("bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8",
                             "f8")}
    tensors["w.exp_avg"] = tensors["w"] = rng.standard_normal(100).astype("f4")
    tensors["w.exp_avg_sq"] = tensors["w"] ** 2
    tensors["step"] = np.array(7, "f4")
    tensors['"\\/é😀\x7f\n'] = np.zeros(1, "i4")
    safetensors.numpy.save_file(tensors, source, metadata)
    written_again(source)


# The rest of the rules of the format

@pytest.mark.parametrize("text", [
    "", " ", "{", "}", "[]", '""', "null", "1", "{}}", "{}{}", "{} x", "{,}", '{"a"}', '{"a":}',
    "{'a':{}}", "{a:{}}", '{"a":{}', "{" + member("a") + ",}", "{/**/}", "{}//", '{"a"',
    "{" + member("a", shape="[1,]") + "}", "{" + member("a", shape="[,1]") + "}",
    "{" + member("a", shape="[01]") + "}", "{" + member("a", shape="[+1]") + "}",
    "{" + member("a", shape="[0x1]") + "}", "{" + member("a", shape="[1 1]") + "}",
    "{" + member("a", shape="[NaN]") + "}", "{" + member("a", shape="[1.]") + "}",
    "{" + member("a", shape="[.5]") + "}", "{" + member("a", shape="[1e]") + "}",
    "{" + member("a", shape="[Infinity]") + "}", "{" + member("a", shape="[nul]") + "}",
])
def test_header_that_is_not_one_json_object(refused, text):
    refused(safetensors_bytes(text.encode(), bytes(4)))


@pytest.mark.parametrize("entry", ["{}", "[]", "null", "1", '"F32"', '["F32",[1],[0,4]]'])
def test_tensor_entry_that_is_no_such_object(refused, entry):
    refused(made_of(f'"w":{entry}', data=bytes(4)), tensor="w")


@pytest.mark.parametrize("missing", ["dtype", "shape", "data_offsets"])
def test_tensor_entry_with_a_missing_member(refused, missing):
    entry = json.loads("{" + member("w") + "}")
    del entry["w"][missing]
    refused(safetensors_bytes(entry, bytes(4)), missing, tensor="w")


@pytest.mark.parametrize("extra", ["strides", "DTYPE", ""])
def test_tensor_entry_with_an_unknown_member(refused, extra):
    entry = json.loads("{" + member("w") + "}")
    entry["w"][extra] = [1]
    refused(safetensors_bytes(entry, bytes(4)), extra, tensor="w")


@pytest.mark.parametrize("changed", [
    {"dtype": "32"}, {"dtype": "null"}, {"dtype": '["F32"]'}, {"shape": "1"}, {"shape": "{}"},
    {"shape": "null"}, {"offsets": "4"}, {"offsets": "[]"}, {"offsets": "[4]"},
    {"offsets": "[0,4,4]"}, {"offsets": '{"0":0,"1":4}'}, {"offsets": "null"},
], ids=str)
def test_tensor_member_of_the_wrong_type(refused, changed):
    refused(made_of(member("w", **changed), data=bytes(4)), tensor="w")


def test_rank_over_the_limit(refused):
    refused(made_of(member("w", shape="[" + "1," * 64 + "1]"), data=bytes(4)), 65, 64, tensor="w")


def test_name_over_the_limit(refused):
    refused(made_of(member("n" * 65537), data=bytes(4)), "limit", 65537, (65535, 65536))


def test_entries_in_another_order_than_their_data(accepted):
    accepted(made_of(member("a", offsets="[8,12]"), member("b", '"U8"', "[4]", "[4,8]"),
                     member("c", offsets="[0,4]"), data=bytes(range(12))))


NOT_FINITE = {
    "F64": ("<Q", 0x7FF8000000000001, 0xFFF0000000000000), "F32": ("<I", 0x7FC00001, 0xFF800000),
    "F16": ("<H", 0x7E01, 0xFC00), "BF16": ("<H", 0x7FC1, 0xFF80), "F8_E5M2": ("B", 0x7E, 0xFC),
    "F8_E4M3": ("B", 0x7F, None), "F8_E8M0": ("B", 0xFF, None),
    "F8_E4M3FNUZ": ("B", 0x80, None), "F8_E5M2FNUZ": ("B", 0x80, None),
}


@pytest.mark.parametrize("dtype", NOT_FINITE)
def test_verify_counts_nan_and_inf(tersor, tmp_path, dtype):
    form, nan, inf = NOT_FINITE[dtype]
    file = tmp_path / "in.safetensors"
    zero = struct.calcsize(form) * b"\0"
    for value in (nan,) if inf is None else (nan, inf):
        data = zero * 2 + struct.pack(form, value) * 7 + zero * 2
        file.write_bytes(tensors_of(("good", dtype, [4], zero * 4), ("worse", dtype, [11], data)))
        done = tersor("verify", file, check=1)
        assert re.search(r"^FAULT +worse\n +found 7 non-finite values$", done.stdout, re.M), done.stdout


# --- Files of no kind that is read ---------------------------------------------------------------

@pytest.mark.parametrize("content, found", [
    (b"# tersor\n\nA toolkit for training state.\n", "found text starting with '# tersor'"),
    ("h\u00e9llo, world, how are you".encode(), "found text starting with 'h\u00e9llo, world, h"),
    (b"hi", "found text starting with 'hi'"),
    (b"\n\nname,value\n", "found text starting with ''"),
    (b"\x7fELF\x02\x01\x01\x00" + bytes(40), "found bytes 7f 45 4c 46 02 01 01 00"),
    (b"GIF89a\x00\x01\x00\x01\x00", "found bytes 47 49 46 38 39 61 00 01"),
], ids=["heading", "accents", "short", "empty lines", "ELF", "GIF"])
def test_a_file_of_another_kind_is_not_called_safetensors(refused, content, found):
    refused(content, "not a kind of file that tersor reads", found,
            "expected safetensors, an index, .pt, DCP, .npz, .npy or a recording")


@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 7, struct.pack("<Q", 1000) + b"[" * 8])
def test_a_cut_or_damaged_safetensors_file_still_is_one(refused, content):
    refused(content, "safetensors" if len(content) < 8 else "header")
