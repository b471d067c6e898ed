""".npy and .npz files, good and hostile.

numpy writes and reads the good files; hostile headers are made by hand.
"""
import io
import json
import os
import shutil
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import torchfile
from conftest import DATA, one_line_error, run_tersor, safetensors_bytes
from torchfile import Member, arrays_in, converted, must_refuse, pt, tensor, zip_bytes

tmp_path = torchfile.tmp_path

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "int8": "I8", "uint8": "U8",
         "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64",
         "uint64": "U64", "bool": "BOOL", "complex64": "C64"}


def npy(header, data=b"", version=(1, 0), pad=True):
    """An .npy file from the text of its header."""
    text = header if isinstance(header, bytes) else header.encode("latin-1")
    size = "<H" if version[0] == 1 else "<I"
    if pad:
        text += b" " * (-(8 + struct.calcsize(size) + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack(size, len(text)) + text + data


def head(descr="'<f4'", order="False", shape="(2, 3, 4)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def saved(array, **more):
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def savez(path, compressed=False, **arrays):
    (np.savez_compressed if compressed else np.savez)(path, **arrays)


def triple(array):
    """An array as safetensors has it: C order, little-endian."""
    array = np.asarray(array)
    little = array.astype(array.dtype.newbyteorder("<"))
    return NAMES[array.dtype.name], list(array.shape), little.tobytes("C")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "array.npy"


@pytest.fixture
def refused(path):
    def check(content, *facts, **more):
        path.write_bytes(content)
        must_refuse(path, *facts, **more)
    return check


@pytest.fixture
def read(path):
    """The one array of an .npy file, which has no name."""
    def check(content, *options):
        path.write_bytes(content)
        found, = converted(path, *options).values()
        return found
    return check


# ---- Types that are not read ----

@pytest.mark.parametrize("descr", [
    "'|O'", "'O'", "'|S4'", "'<U2'", "'<M8[s]'", "'<m8'", "'<f16'", "'<g'", "'<c32'", "'<f3'",
    "'<i16'", "'|V8'", "'<V3'", "'|V0'", "'<f'", "'f'", "''", "'<'", "'<f4 '", "' <f4'",
    "'<f4,<f4'",
    "'2<f4'", "'<f04'", "'<f-4'", "'<f4\\x00'", "'=x4'", "'^f4'", "'<b1x'", "'<i3'", "'>V2x'",
    "'|f0'",
    "[('a', '<f4')]", "[('a', '<f4'), ('b', '<i4')]", "('<f4', (2,))", "4", "None", "True", "{}",
    "'float32'", "'<q8'",
])
def test_types_that_are_not_read_are_refused(refused, descr):
    refused(npy(head(descr, shape="(2,)"), bytes(64)))


def test_object_arrays_are_never_unpickled(refused, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'canary'}",)

    refused(saved(np.array([Evil(), 1], object), allow_pickle=True), "O")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn], ids=str)
def test_types_without_a_name_are_refused_without_as(refused, dtype):
    content = saved(np.arange(8).astype(dtype))
    assert b"V" in content[:60]
    refused(content, "--npy-dtype")


AS = {"bf16": (ml_dtypes.bfloat16, "BF16"), "f8_e4m3": (ml_dtypes.float8_e4m3fn, "F8_E4M3"),
      "f8_e5m2": (ml_dtypes.float8_e5m2, "F8_E5M2"),
      "f8_e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, "F8_E4M3FNUZ"),
      "f8_e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, "F8_E5M2FNUZ"),
      "f8_e8m0": (ml_dtypes.float8_e8m0fnu, "F8_E8M0")}


@pytest.mark.parametrize("name", AS)
def test_types_without_a_name_are_read_with_as(read, name):
    dtype, wanted = AS[name]
    values = np.arange(1, 13).astype(dtype)
    size = "V2" if name == "bf16" else "V1"
    for order in "<|":
        content = npy(head(f"'{order}{size}'", shape="(3, 4)"), values.tobytes())
        assert read(content, "--npy-dtype", name) == (wanted, [3, 4], values.tobytes())


def test_big_endian_opaque_types_are_swapped(read):
    values = np.arange(1, 13).astype(ml_dtypes.bfloat16)
    big = values.view(np.uint16).astype(">u2").tobytes()
    assert read(npy(head("'>V2'", shape="(12,)"), big), "--npy-dtype", "bf16") == (
        "BF16", [12], values.tobytes())


@pytest.mark.parametrize("name, descr", [("bf16", "'<V1'"), ("f8_e4m3", "'<V2'"), ("f32", "'<V4'")])
def test_as_of_another_size_is_refused(path, name, descr):
    path.write_bytes(npy(head(descr, shape="(2,)"), bytes(2 * int(descr[-2]))))
    done = run_tersor("convert", path, "-o", path.with_suffix(".safetensors"), "--npy-dtype", name)
    assert done.returncode in (2, 3) and not path.with_suffix(".safetensors").exists()
    one_line_error(done)


def test_as_does_not_change_what_has_a_type(read):
    assert read(saved(A), "--npy-dtype", "bf16") == triple(A)


def test_unknown_as_is_refused(path):
    path.write_bytes(saved(A))
    done = run_tersor("convert", path, "-o", path.with_suffix(".safetensors"), "--npy-dtype", "purple",
                      check=2)
    assert "bf16" in one_line_error(done)


# ---- Good files of all ages ----

@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)], ids=str)
def test_versions_1_to_3_are_read(read, version):
    file = io.BytesIO()
    np.lib.format.write_array(file, A, version)
    assert file.getvalue()[6:8] == bytes(version)
    assert read(file.getvalue()) == triple(A)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_types_and_orders_are_read(read, dtype, order, layout):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((3, 4, 5)) * 50).astype(dtype)
    if dtype == "complex64":
        values = values + 1j * rng.standard_normal((3, 4, 5)).astype(np.float32)
    array = np.array(values, np.dtype(dtype).newbyteorder(order), order=layout)
    content = saved(array)
    if array.dtype.itemsize > 1:
        assert order.encode() in content[:30]
    assert (b"'fortran_order': True" in content) == (layout == "F")
    assert read(content) == triple(values)


@pytest.mark.parametrize("shape", [(), (3,), (0,), (1,), (2, 0, 3), (1, 1, 1), (1,) * 32], ids=str)
@pytest.mark.parametrize("layout", ["C", "F"])
def test_shapes_of_every_rank_are_read(read, shape, layout):
    values = np.arange(np.prod(shape, dtype=int), dtype=np.int16).reshape(shape)
    assert read(saved(np.array(values, order=layout))) == triple(values)


def test_16_aligned_header_of_an_old_numpy_is_read(read):
    text = head().encode()
    text += b" " * (-(10 + len(text) + 1) % 16) + b"\n"
    content = npy(text, A.tobytes(), pad=False)
    assert (10 + len(text)) % 64 != 0
    assert read(content) == triple(A)


@pytest.mark.parametrize("text", [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}",
    "{'shape': (2, 3, 4), 'fortran_order': False, 'descr': '<f4'}",
    '{"descr": "<f4", "fortran_order": False, "shape": (2, 3, 4)}',
    "{'descr':'<f4','fortran_order':False,'shape':(2,3,4,)}",
    "{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 , 4 ) , }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L, 4L), }",
    "{'descr': 'f4', 'fortran_order': False, 'shape': (2, 3, 4), }",
    "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3, 4), }",
])
def test_spellings_of_the_header_by_any_numpy_are_read(path, text):
    """The first six are written by some numpy; of the last two either answer is right."""
    path.write_bytes(npy(text, A.tobytes()))
    done = run_tersor("convert", path, "-o", path.with_suffix(".safetensors"))
    if "'f4'" in text or "=f4" in text:
        assert done.returncode in (0, 3)
    else:
        assert done.returncode == 0, done.stderr
    if done.returncode == 0:
        assert list(arrays_in(path.with_suffix(".safetensors")).values()) == [triple(A)]


def test_spaces_and_growth_padding_are_read(read):
    for pad in (0, 1, 21, 63, 64, 5000):
        text = head().encode() + b" " * pad + b"\n"
        assert read(npy(text, A.tobytes(), pad=False)) == triple(A)


def test_bits_of_floats_survive(read):
    bits = np.array([0x7fc00001, 0xff800001, 0x7f800001, 0x80000000, 1, 0x807fffff], np.uint32)
    assert read(saved(bits.view(np.float32)))[2] == bits.tobytes()
    big = npy(head("'>f4'", shape="(6,)"), bits.astype(">u4").tobytes())
    assert read(big)[2] == bits.tobytes()


def test_large_array_in_fortran_order_is_read(read):
    values = np.random.default_rng(1).standard_normal((700, 3, 500)).astype(np.float32)
    assert read(saved(np.asfortranarray(values))) == triple(values)


# ---- Hostile headers ----

@pytest.mark.parametrize("version, length", [((1, 0), 0), ((1, 0), 1), ((1, 0), 65535),
                                             ((2, 0), 0), ((2, 0), 2**32 - 1), ((3, 0), 2**31),
                                             ((2, 0), 65536)], ids=str)
def test_impossible_header_length_is_refused(refused, version, length):
    size = "<H" if version[0] == 1 else "<I"
    content = b"\x93NUMPY" + bytes(version) + struct.pack(size, length)
    refused(content + head().encode() + b"\n" + A.tobytes(), bounded=True)
    refused(content, bounded=True)


def test_header_over_the_limit_is_refused_even_when_it_is_there(refused):
    """65,535 bytes of header, and more than a reader should take."""
    refused(npy(head().encode() + b" " * 200_000, A.tobytes(), (2, 0)), bounded=True)


@pytest.mark.parametrize("version", [(0, 0), (4, 0), (1, 1), (2, 5), (255, 255), (0, 1)], ids=str)
def test_unknown_versions_are_refused(refused, version):
    refused(npy(head(), A.tobytes(), version))


@pytest.mark.parametrize("cut", range(0, 140, 3))
def test_file_cut_in_the_header_is_refused(path, cut):
    path.write_bytes(saved(A)[:cut])
    one_line_error(run_tersor("inspect", path, check=3))


@pytest.mark.parametrize("text", [
    "", "{}", "{", "}", "()", "[]", "None", "1", "{'descr'}", "{'descr': '<f4'}",
    "{'descr': '<f4', 'fortran_order': False}", "{'fortran_order': False, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), 'x': 1}",
    "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'fortran_order': True, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': None, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': false, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': 'False', 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': 24}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3, 4]}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (24)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, (3, 4))}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4))}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,, 12)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)} trailing",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}{}",
    "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4),,}",
    "{'descr: '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}",
    "{descr: '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)",
    "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3, 4)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 2*2)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, len('aaaa'))}",
    "{'descr': '<f4', 'fortran_order': not True, 'shape': (2, 3, 4)}",
    "{'descr': __import__('os').system('touch canary'), 'fortran_order': False, 'shape': (1,)}",
    "__import__('os').system('touch canary')",
    "{**{'descr': '<f4'}, 'fortran_order': False, 'shape': (2, 3, 4)}",
    "dict(descr='<f4', fortran_order=False, shape=(2, 3, 4))",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)} # comment",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}\0",
    "{'de\\x73cr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}",
    "(" * 50000, "{'a':" * 10000,
], ids=lambda text: text[:60])
def test_hostile_header_text_is_refused(refused, text, tmp_path):
    long = len(text) > 1000
    refused(npy(text, A.tobytes()), bounded=long, stack=(256 << 10) * long)
    assert not (tmp_path / "canary").exists() and not os.path.exists("canary")


@pytest.mark.parametrize("shape", [
    "(-1,)", "(2, -3, 4)", "(18446744073709551616,)", "(4294967296, 4294967296)",
    "(4611686018427387904, 4)", "(2.0, 12)", "(True, 24)", "(0x18,)", "(2, 3, 4e0)", "('24',)",
    "(None,)",
    "(1_0,)", "(024,)", "(+24,)", "(--24,)", "(281474976710656, 0)",
    "(999999999999999999999999999999,)",
    "(" + "1, " * 65 + ")",
], ids=lambda shape: shape[:30])
def test_impossible_shapes_are_refused(refused, shape):
    refused(npy(head(shape=shape), A.tobytes()), bounded=True)


@pytest.mark.parametrize("delta", [-96, -4, -1, 1, 4, 1000])
def test_file_must_have_just_its_data(refused, delta):
    refused(npy(head(), (A.tobytes() + bytes(1000))[:96 + delta]))


def test_header_without_its_newline_is_refused(path):
    text = head().encode()
    path.write_bytes(npy(text + b" " * (-(10 + len(text)) % 64), A.tobytes(), pad=False))
    assert run_tersor("inspect", path).returncode in (0, 3)


# ---- Archives ----

def test_zip64_headers_of_numpy_archives_are_read(tmp_path):
    """np.savez puts a zip64 extra field even into the local headers of small members."""
    path = tmp_path / "a.npz"
    arrays = {"w": A, "layer.1/b": np.asfortranarray(A[0]), "s": np.float64(2),
              "big": np.arange(10, dtype=">i8"), "e": np.zeros((0, 2), np.float32)}
    savez(path, **arrays)
    with zipfile.ZipFile(path) as archive:
        info = archive.infolist()[0]
    extra = path.read_bytes()[info.header_offset + 30 + len(info.filename):]
    assert extra[:4] == b"\1\0\x10\0" and info.extra == b""
    assert converted(path) == {k: triple(v) for k, v in arrays.items()}


def test_streamed_archives_are_read(tmp_path):
    """Written to a pipe: sizes stand behind the data."""
    class Pipe(io.RawIOBase):
        def __init__(self):
            self.data = b""

        def writable(self):
            return True

        def write(self, b):
            self.data += bytes(b)
            return len(b)

    for compressed in (False, True):
        pipe = Pipe()
        savez(pipe, compressed, w=A, b=A[0])
        assert b"PK\7\10" in pipe.data
        (tmp_path / "a.npz").write_bytes(pipe.data)
        assert converted(tmp_path / "a.npz") == {"w": triple(A), "b": triple(A[0])}


@pytest.mark.parametrize("name", ["arrays.npz", "arrays-deflated.npz"])
def test_archives_of_numpy_2_5(tmp_path, name):
    shutil.copy(DATA / "torch" / name, tmp_path / name)
    expected = {k: triple(v) for k, v in np.load(DATA / "torch" / name).items()}
    assert converted(tmp_path / name) == expected
    run_tersor("verify", tmp_path / name, check=0)


def test_real_archive_of_numpy(tmp_path):
    """1.2 MB, 148 arrays of six types, deflated."""
    with np.load(DATA / "flashoptim.npz") as arrays:
        expected = {k: triple(v) for k, v in arrays.items()}
    assert converted(DATA / "flashoptim.npz", to=tmp_path / "out.safetensors") == expected


def test_archive_with_one_array_in_objects_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    savez(path, w=A, o=np.array([None], object))
    must_refuse(path, "o")


def test_archive_of_opaque_types(tmp_path):
    path = tmp_path / "a.npz"
    values = np.arange(8).astype(ml_dtypes.bfloat16)
    savez(path, w=values, x=A)
    must_refuse(path, "w", "--npy-dtype")
    assert converted(path, "--npy-dtype", "bf16") == {"w": ("BF16", [8], values.tobytes()),
                                               "x": triple(A)}


def test_archive_members_are_checked(tmp_path):
    path = tmp_path / "a.npz"
    good = zip_bytes([Member("w.npy", saved(A)), Member("b.npy", saved(A[0]))], align=1)
    path.write_bytes(good)
    assert converted(path) == {"w": triple(A), "b": triple(A[0])}
    at = torchfile.data_offsets(good)["w.npy"] + 150
    path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1:])
    must_refuse(path, "w", commands=torchfile.WHOLE)
    for members in ([Member("w.npy", saved(A)[:-1])], [Member("w.npy", saved(A) + b"\0")],
                    [Member("w.npy", b"")], [Member("w.npy", saved(A)), Member("w.npy", saved(A))],
                    [Member("../w.npy", saved(A))], [Member("w.npy", b"\x93NUMPY\1\0")]):
        path.write_bytes(zip_bytes(members, align=1))
        must_refuse(path, "w")


def test_archive_with_a_member_that_is_no_array(tmp_path):
    """numpy hands such members out as bytes; there is no tensor in them."""
    path = tmp_path / "a.npz"
    path.write_bytes(zip_bytes([Member("w.npy", saved(A)), Member("readme.txt", b"hello")],
                               align=1))
    done = run_tersor("convert", path, "-o", tmp_path / "out.safetensors")
    assert "readme.txt" in done.stdout + done.stderr
    if done.returncode == 0:
        assert arrays_in(tmp_path / "out.safetensors") == {"w": triple(A)}
    else:
        assert done.returncode == 3


def test_empty_archive(tmp_path):
    path = tmp_path / "a.npz"
    savez(path)
    done = run_tersor("inspect", path)
    assert done.returncode in (0, 3) and not done.stderr.count("\n") > 1


def test_deflated_zeros_in_little_memory(tmp_path):
    path = tmp_path / "a.npz"
    savez(path, True, w=np.zeros((32 << 20,), np.float32))
    done, peak, _ = torchfile.run_measured("convert", path, "-o", tmp_path / "out.safetensors")
    assert done.returncode == 0 and peak < 128, (done.stderr, peak)
    with safetensors.safe_open(tmp_path / "out.safetensors", "np") as file:
        assert not file.get_tensor("w").any()


def test_deflated_arrays_of_many_sizes(tmp_path):
    """Whichever buffer fills up first: what is inflated may lag behind what was read."""
    path = tmp_path / "a.npz"
    for nbytes in (2**18, 2**20 - 128, *range(2**20 - 112, 2**20 - 60, 2), 2**20, 3 * 2**20):
        values = np.zeros(nbytes // 2, np.int16)
        savez(path, True, w=values)
        run_tersor("verify", path, check=0)
    dtype, shape, content = converted(path)["w"]
    assert (dtype, shape, content) == ("I16", [len(values)], values.tobytes())


# ---- Writing ----

def checkpoint(path):
    rng = np.random.default_rng(2)
    values = {name: (rng.standard_normal((3, 4)) * 50).astype(name) for name in NAMES}
    values |= {"scalar": np.float32(1.5), "empty": np.zeros((2, 0), np.int8),
               "layer.0/weight": A, "nan": np.array([0x7fa00001], np.uint32).view(np.float32)}
    safetensors.numpy.save_file({k: np.asarray(v) for k, v in values.items()}, path)
    return values


def test_npz_is_what_numpy_loads(tmp_path):
    source, out = tmp_path / "in.safetensors", tmp_path / "out.npz"
    values = checkpoint(source)
    run_tersor("convert", source, "-o", out, check=0)
    with np.load(out, allow_pickle=False) as found:
        assert set(found) == set(values)
        for name, want in values.items():
            got = found[name]
            assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
    assert converted(out) == arrays_in(source)
    run_tersor("diff", source, out, check=0)


def test_npy_is_what_numpy_loads_and_writes(tmp_path):
    for i, values in enumerate((A, A[0, 0], np.float64(2), np.zeros((0, 3), np.int16),
                                np.arange(3, dtype=np.uint64), np.zeros((1,) * 20, bool))):
        source, out = tmp_path / "in.safetensors", tmp_path / f"{i}.npy"
        values = np.asarray(values)
        safetensors.numpy.save_file({"w": values.copy()}, source)
        run_tersor("convert", source, "-o", out, check=0)
        got = np.load(out, allow_pickle=False)
        assert (got.dtype, got.shape) == (values.dtype, values.shape)
        assert got.tobytes() == values.tobytes()
        assert out.read_bytes() == saved(values), "numpy itself writes other bytes"


def test_npy_holds_one_tensor(tmp_path):
    source, out = tmp_path / "in.safetensors", tmp_path / "out.npy"
    safetensors.numpy.save_file({"a": A, "b": A}, source)
    done = run_tersor("convert", source, "-o", out)
    assert done.returncode in (2, 3) and not out.exists()
    one_line_error(done)


def test_narrow_floats_travel_as_opaque_types(tmp_path):
    """BF16 and FP8 are written as ml_dtypes writes them, and come back with --npy-dtype."""
    for name, (dtype, wanted) in AS.items():
        values = np.arange(1, 9).astype(dtype)
        source, out = tmp_path / "in.safetensors", tmp_path / "out.npy"
        source.write_bytes(safetensors_bytes(
            {"w": {"dtype": wanted, "shape": [2, 4], "data_offsets": [0, values.nbytes]}},
            values.tobytes()))
        run_tersor("convert", source, "-o", out, "--force", check=0)
        got = np.load(out)
        assert got.dtype.kind == "V" and got.shape == (2, 4) and got.tobytes() == values.tobytes()
        (_, found), = converted(out, "--npy-dtype", name).items()
        assert found == (wanted, [2, 4], values.tobytes())


@pytest.mark.parametrize("dtype, nbytes", [("F4", 2), ("F6_E2M3", 3), ("F6_E3M2", 3)])
def test_types_that_numpy_has_not_are_refused(tmp_path, dtype, nbytes):
    source = tmp_path / "in.safetensors"
    source.write_bytes(safetensors_bytes(
        {"the weight": {"dtype": dtype, "shape": [4], "data_offsets": [0, nbytes]}}, bytes(nbytes)))
    for kind in ("npy", "npz"):
        out = tmp_path / f"out.{kind}"
        done = run_tersor("convert", source, "-o", out, check=3)
        assert "the weight" in one_line_error(done) and not out.exists()


def test_torch_to_npz(tmp_path):
    source, out = tmp_path / "in.pt", tmp_path / "out.npz"
    source.write_bytes(pt({"w": tensor(A), "t": torchfile.Tensor(
        torchfile.Storage(A.tobytes()), (4, 6), (1, 4))}))
    run_tersor("convert", source, "-o", out, check=0)
    with np.load(out) as found:
        assert found["w"].tobytes() == A.tobytes()
        assert found["t"].tobytes() == A.reshape(6, 4).T.tobytes("C")


def test_packing_an_archive(tmp_path):
    source = tmp_path / "in.npz"
    rng = np.random.default_rng(3)
    values = {"w": rng.standard_normal(100).astype(np.float32)}
    values |= {"w.exp_avg": values["w"] / 100, "w.exp_avg_sq": values["w"]**2}
    savez(source, **values)
    run_tersor("pack", source, "-o", tmp_path / "p.safetensors", check=0)
    run_tersor("verify", tmp_path / "p.safetensors", "--against", source, check=0)
    safetensors.numpy.save_file(values, tmp_path / "in.safetensors")
    run_tersor("pack", tmp_path / "in.safetensors", "-o", tmp_path / "q.safetensors", check=0)
    assert arrays_in(tmp_path / "p.safetensors") == arrays_in(tmp_path / "q.safetensors")
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", tmp_path / "back.npz", check=0)
    assert set(np.load(tmp_path / "back.npz")) == set(values)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".bin", ""])
def test_kind_is_told_by_content(tmp_path, suffix):
    for kind, content in (("npy", saved(A)), ("npz", None)):
        path = tmp_path / f"file{suffix}"
        if content:
            path.write_bytes(content)
        else:
            with open(path, "wb") as file:
                savez(file, a=A)
        report = json.loads(run_tersor("inspect", "--json", path, check=0).stdout)
        assert report["kind"] == kind
        assert list(converted(path, to=tmp_path / "o.safetensors").values()) == [triple(A)]


@pytest.mark.parametrize("path", ["weight.npy", "./weight.npy", "deep/down/weight.npy"])
def test_array_of_a_file_is_called_as_the_file(path, tmp_path):
    source = tmp_path / path
    source.parent.mkdir(parents=True, exist_ok=True)
    np.save(source, np.arange(4, dtype=np.float32))
    run_tersor("convert", path, "-o", "out.npz", cwd=tmp_path, check=0)
    assert np.load(tmp_path / "out.npz").files == ["weight"]
