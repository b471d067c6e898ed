"""What torch.save writes, good and hostile.

Good files come from PyTorch 2.11 (tests/data/torch), from the system's torch 1.13.1 and from
torchfile.py; hostile ones are made there, byte by byte.  A hostile file must be refused by
every command that reads one: exit status 3, one line that names the file and the part at fault,
nothing written and nothing executed.  TERSOR_LONG=1 sweeps every bit and every length.
"""
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest

import torchfile
from conftest import BINARY, DATA, one_line_error, run_tersor, traced
from torchfile import (Call, Dict, Global, Hole, Member, Storage, Tensor, WHOLE, arrays_in,
                       as_array, converted, must_refuse, pickled, pt, pt_members,
                       pt_of, run_torch, tensor, untyped, with_central, with_directory, zip_bytes)

tmp_path = torchfile.tmp_path

FILES = DATA / "torch"
LONG = os.environ.get("TERSOR_LONG") == "1"
RAW_CODECS = ("--weights", "f32", "--momentum", "f32", "--variance", "f32")
W = np.arange(128, dtype=np.float32).reshape(16, 8)


def pkl(*parts):
    """A pickle of protocol 2 from opcodes."""
    return b"\x80\x02" + b"".join(parts) + b"."


def tensor_ops(key="0", cls="FloatStorage", numel=4, offset=0, shape=(4,), stride=(1,)):
    """The opcodes of one tensor."""
    return pickled(Tensor(Storage(b"", cls, numel, key), shape, stride, offset),
                   memo=False)[0][2:-1]


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def refused(folder):
    """Check that the bytes of a .pt are refused."""
    def check(content, *facts, **more):
        path = folder / "bad.pt"
        path.write_bytes(content)
        return must_refuse(path, *facts, **more)
    return check


@pytest.fixture
def read(folder):
    """What the bytes of a .pt hold, as arrays, by way of `convert`."""
    def check(content, *options):
        path = folder / "good.pt"
        path.write_bytes(content)
        return converted(path, *options)
    return check


def in_parallel(work, items):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, items))


# ---- The builders are not what is tested, but all rests on them ----

@pytest.mark.parametrize("name", ["model", "odd", "sgd", "named-parameters", "protocol4",
                                  "optimizer-decay-groups"])
def test_builder_lays_out_an_archive_as_torch_does(name):
    real = (FILES / f"{name}.pt").read_bytes()
    _, records = torchfile.records_of(real)
    storages = {k[5:]: v for k, v in records.items() if k.startswith("data/")}
    assert pt_of(records["data.pkl"], storages, root=name,
                 data_serialization_id=records[".data/serialization_id"]) == real


def test_reader_of_the_tests_agrees_with_torch():
    expected = np.load(FILES / "odd-expected.npz")
    kinds = {"BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn,
             "F8_E5M2": ml_dtypes.float8_e5m2, "F16": np.float16}
    found = dict(torchfile.load(FILES / "odd.pt").items())
    assert set(expected) == set(found) - {"py"}
    for name, want in expected.items():
        want = want.astype(kinds.get(found[name].st_dtype, want.dtype))
        assert torchfile.content_of(found[name]) == want.tobytes(), name
        assert tuple(found[name].shape) == want.shape


# ---- Damage ----

def spread(n, most):
    """0..n-1, or about `most` of them, both ends closely."""
    if LONG or n <= most:
        return range(n)
    rng = np.random.default_rng(n)
    return sorted({*range(40), *range(n - 120, n), *rng.integers(0, n, most - 160).tolist()})


def deflated_pt():
    pickle, _ = pickled({"w": tensor(W)})
    return zip_bytes([Member(m.name, m.data, deflate=len(m.data) > 60)
                      for m in pt_members(pickle, {"0": W.tobytes()})])


def test_archive_truncated_at_any_byte_is_refused(folder):
    good = (FILES / "protocol4.pt").read_bytes()

    def check(length):
        path, out = folder / f"{length}.pt", folder / f"{length}.safetensors"
        path.write_bytes(good[:length])
        done = run_tersor("convert", path, "-o", out)
        path.unlink()
        return length if done.returncode != 3 or out.exists() else None

    assert set(in_parallel(check, spread(len(good), 300))) == {None}
    assert not list(folder.iterdir())


@pytest.mark.parametrize("kind", ["stored", "deflated"])
def test_no_bit_flip_changes_data_silently(folder, kind):
    good = (FILES / "protocol4.pt").read_bytes() if kind == "stored" else deflated_pt()
    (folder / "good.pt").write_bytes(good)
    expected = converted(folder / "good.pt")
    assert len(expected) == 1

    def check(bit):
        path, out = folder / f"{bit}.pt", folder / f"{bit}.safetensors"
        path.write_bytes(good[:bit // 8] + bytes([good[bit // 8] ^ 1 << bit % 8])
                         + good[bit // 8 + 1:])
        done = run_tersor("convert", path, "-o", out)
        if done.returncode == 0:
            right = arrays_in(out) == expected
            out.unlink()
        else:
            right = done.returncode == 3 and not out.exists() and done.stderr.count("\n") == 1
        path.unlink()
        return done.returncode if right else f"bit {bit}: {done.returncode} {done.stderr}"

    results = collections.Counter(in_parallel(check, spread(8 * len(good), 400)))
    assert set(results) <= {0, 3}, results
    assert results[3] > sum(results.values()) / 2


def wrong_crc(value, where="data/0", deflate=False):
    """An archive that is right but for one CRC, in the directory and behind the data alike."""
    members = pt_members(*pickled(value))
    one = next(m for m in members if m.name == f"archive/{where}")
    one.crc, one.deflate = zlib.crc32(one.data) ^ 1, deflate
    return zip_bytes(members)


@pytest.mark.parametrize("where", ["data/0", "data.pkl"])
@pytest.mark.parametrize("deflate", [False, True])
def test_wrong_crc_is_refused(refused, where, deflate):
    refused(wrong_crc({"w": tensor(W)}, where, deflate), (f"archive/{where}", "w"),
            re.compile("(?i)crc|checksum"),
            commands=torchfile.READERS if where == "data.pkl" else
            torchfile.INFLATING if deflate else WHOLE)


def test_a_crc_is_checked_though_only_a_view_is_read(refused):
    storage = Storage(W.tobytes())
    refused(wrong_crc({"w": Tensor(storage, (2,), (1,), 5)}), commands=WHOLE)


def test_a_crc_is_checked_for_every_view(refused):
    """Many tensors in one record: whichever is read, what is wrong is found."""
    storage = Storage(W.tobytes())
    refused(wrong_crc({f"w{i}": Tensor(storage, (8,), (16,), i) for i in range(16)}),
            commands=WHOLE)


@pytest.mark.parametrize("where", ["data/0", "data.pkl"])
def test_directory_and_descriptor_may_not_differ(refused, where):
    good = pt({"w": tensor(W)})
    refused(with_central(good, f"archive/{where}", crc=1), f"archive/{where}",
            commands=WHOLE)


@pytest.fixture(params=["torch 2.11", "by hand"])
def without_crc(request, folder):
    path = folder / "no-crc.pt"
    if request.param == "by hand":
        pickle, storages = pickled({"w": tensor(W)})
        path.write_bytes(zip_bytes([Member(m.name, m.data, crc=0)
                                    for m in pt_members(pickle, {"0": W.tobytes()})]))
        return path, W.tobytes()
    shutil.copy(FILES / "no-crc.pt", path)
    data = path.read_bytes()
    at = torchfile.data_offsets(data)["no-crc/data/0"]
    return path, data[at:at + 512]


def test_no_crc_is_unverified(folder, without_crc):
    path, content = without_crc
    out = folder / "out.safetensors"
    done = run_tersor("convert", path, "-o", out, check=0)
    assert arrays_in(out) == {"w": ("F32", [16, 8], content)}
    assert re.search("(?i)unverified|checksum|crc", done.stdout + done.stderr)
    done = run_tersor("verify", path, check=0)
    assert re.search("(?i)unverified|checksum|crc", done.stdout + done.stderr)


def test_no_crc_is_refused_in_strict_mode(folder, without_crc):
    path, _ = without_crc
    must_refuse(path, re.compile("(?i)unverified|checksum|crc"), commands=("verify", "convert", "pack"),
                options=["--strict"])


def test_strict_mode_takes_checked_files_and_empty_tensors(folder):
    path = folder / "in.pt"
    path.write_bytes(pt({"w": tensor(W), "e": tensor(np.zeros((0, 3), np.float32))}))
    assert converted(path, "--strict")["e"] == ("F32", [0, 3], b"")
    run_tersor("verify", "--strict", path, check=0)


# ---- Zip archives ----

def test_duplicate_member_names_are_refused(refused):
    pickle, _ = pickled({"w": tensor(W)})
    members = pt_members(pickle, {"0": W.tobytes()})
    refused(zip_bytes([*members, Member("archive/data/0", W.tobytes())]), "archive/data/0")
    refused(zip_bytes([*members, Member("archive/data.pkl", pickle)]), "archive/data.pkl")


def test_local_and_central_name_that_differ_are_refused(refused):
    good = pt({"w": tensor(W)})
    refused(torchfile.renamed(good, "archive/data/0", "archive/data/1", central=False),
            "archive/data/")
    refused(torchfile.renamed(good, "archive/data/0", "archive/data/1", local=False),
            "archive/data/")


def test_local_and_central_method_that_differ_are_refused(refused):
    good = pt({"w": tensor(W)})
    refused(torchfile.with_local(good, "archive/data/0", method=8), "archive/data/0")


def overlapping():
    """An archive with a member inside the data of another one."""
    inner = Member("archive/data/1", W.tobytes())
    value = {"outer": Tensor(Storage(bytes(1024), "ByteStorage"), (1024,)), "inner": tensor(W)}
    pickle, _ = pickled(value)
    record = torchfile.local_header(inner, 0, inner.data, 0, 512, 1) + inner.data
    good = zip_bytes(pt_members(pickle, {"0": record.ljust(1024, b"\0")}))
    start = torchfile.data_offsets(good)["archive/data/0"]
    return with_directory(good, [*torchfile.directory_of(good), {
        "name": inner.name, "at": start, "csize": 512, "size": 512, "crc": zlib.crc32(inner.data),
        "deflate": False}])


def test_member_inside_another_is_refused(refused):
    refused(overlapping(), re.compile("archive/data/[01]"))


def test_member_that_reaches_into_the_next_is_refused(refused):
    value = {"a": Tensor(Storage(bytes(1024), "ByteStorage"), (1024,)), "b": tensor(W)}
    pickle, _ = pickled(value)
    good = zip_bytes(pt_members(pickle, {"0": bytes(512), "1": W.tobytes()}))
    refused(with_central(good, "archive/data/0", csize=1024, size=1024), "archive/data/")
    refused(with_central(good, "archive/version", csize=1000, size=1000), "archive/")


def test_member_that_reaches_into_the_directory_is_refused(refused):
    good = pt({"w": tensor(W)})
    refused(with_central(good, "archive/.data/serialization_id", csize=100, size=100), "archive/")


def test_decoy_end_of_directory_in_the_comment_is_refused(refused):
    good = pt({"w": tensor(W)})
    end = good[good.rindex(b"PK\5\6"):]
    # One that does not reach the end, one that does, and one with a directory of its own.
    for decoy in (end + b"xx", end, b"PK\5\6" + bytes(18)):
        refused(pt({"w": tensor(W)}, comment=decoy))
    other = b"".join(torchfile.central_header(Member("archive/version"), 0, 2, 0, 2)
                     for _ in range(1))
    at = len(good)
    refused(pt({"w": tensor(W)}, comment=other + struct.pack(
        "<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(other), at, 0)))


def test_second_archive_in_the_comment_does_not_replace_the_first(refused):
    """Readers that look for the last end record see a tensor of ones, others one of zeros."""
    zeros, ones = np.zeros(16, np.float32), np.ones(16, np.float32)
    first, second = pt({"w": tensor(zeros)}), pt({"w": tensor(ones)})
    moved = [{**e, "at": e["at"] + len(first)} for e in torchfile.directory_of(second)]
    body = second[:struct.unpack_from("<I", second, second.rindex(b"PK\5\6") + 16)[0]]
    directory = b"".join(torchfile.central_header(Member(e["name"]), e["at"], e["csize"], e["crc"],
                                                  e["size"]) for e in moved)
    at = len(first) + len(body)
    decoy = body + directory + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, len(moved), len(moved),
                                           len(directory), at, 0)
    refused(pt({"w": tensor(zeros)}, comment=decoy))


def test_a_plain_comment_is_fine(read):
    assert read(pt({"w": tensor(W)}, comment=b"made on a Tuesday")) == {"w": as_array(tensor(W))}


@pytest.mark.parametrize("junk", [b"\0", b"\n", b"junk" * 30, bytes(70000)], ids=len)
def test_junk_after_the_end_is_refused(refused, junk):
    refused(pt({"w": tensor(W)}) + junk)


@pytest.mark.parametrize("args", [(0, False, False), (2 ** 63, False, False), (0, False), ("0", 1, 2), ()])
def test_the_hole_of_a_running_job_is_no_tensor_of_a_file(refused, args):
    """What tersor.torch.save hands over in the place of a tensor, whose elements are in the job's memory."""
    refused(pt({"w": Call(Global("tersor.structure", "hole"), args)}), "w", "tensor of a running job")
    refused(pt({"p": Call(Global("torch._utils", "_rebuild_parameter"),
                          (Call(Global("tersor.structure", "hole"), args), True, Call(torchfile.ORDERED_DICT, ())))}),
            "p")


@pytest.mark.parametrize("junk", [b"\0", b"#!/bin/sh\n", bytes(64), b"PK\3\4"], ids=repr)
def test_junk_in_front_is_refused(refused, junk):
    refused(junk + pt({"w": tensor(W)}))


def test_junk_in_front_of_the_directory_is_refused(refused):
    good = pt({"w": tensor(W)})
    refused(with_directory(good, torchfile.directory_of(good)[1:]))
    refused(with_directory(good, torchfile.directory_of(good), insert=bytes(30)))


def zeros_deflated(nbytes, block=1 << 20):
    """What deflate makes of zeros, in time that does not grow with them."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    one = squeeze.compress(bytes(block)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return one * (nbytes // block) + squeeze.flush()


def bomb(nbytes, stored, size=None, crc=0x1234):
    pickle, _ = pickled({"w": Tensor(Storage(b"", "ByteStorage", nbytes), (nbytes,))})
    return pt_of(pickle, {"0": Member("archive/data/0", b"", True, stored, crc,
                                      nbytes if size is None else size)})


def test_total_of_deflated_members_is_limited(refused):
    refused(bomb(80 << 30, zeros_deflated(80 << 30)), bounded="limit",
            commands=("inspect", "convert"))


def test_deflate_ratio_is_limited(refused):
    stored = zeros_deflated(1 << 20)
    refused(bomb(1 << 30, stored), bounded=True)
    refused(bomb(1033 * len(stored) + 65, stored), bounded=True)


def test_deflated_pickle_is_limited(refused):
    nbytes = 300 << 20
    data = Member("archive/data.pkl", b"", True, zeros_deflated(nbytes), 0x1234, nbytes)
    refused(pt_of(data), re.compile("data.pkl"), bounded="limit")


def test_overlapping_members_cannot_make_a_bomb(refused):
    """Fifield's zip bomb: many directory entries, one kernel of deflated zeros."""
    kernel = zeros_deflated(64 << 20)
    pickle, _ = pickled({f"w{i}": Tensor(Storage(b"", "ByteStorage", 64 << 20), (64 << 20,))
                         for i in range(200)})
    good = pt_of(pickle, {"0": Member("archive/data/0", b"", True, kernel, 0, 64 << 20)})
    entries = torchfile.directory_of(good)
    one = next(e for e in entries if e["name"] == "archive/data/0")
    refused(with_directory(good, entries + [{**one, "name": f"archive/data/{i}"}
                                            for i in range(1, 200)]), bounded=True)


def test_an_inflated_record_is_not_held_in_memory(folder):
    """A ratio of 1000:1 is what deflate gives for zeros: read, with little memory."""
    nbytes = 256 << 20
    path, out = folder / "zeros.pt", folder / "out.safetensors"
    path.write_bytes(bomb(nbytes, zeros_deflated(nbytes), crc=crc_of_zeros(0, nbytes)))
    done, peak, _ = torchfile.run_measured("convert", path, "-o", out)
    assert done.returncode == 0 or (done.returncode == 3 and "limit" in done.stderr), done.stderr
    assert peak < 128
    if done.returncode == 0:
        assert out.stat().st_size > nbytes


@pytest.mark.parametrize("declared", [W.nbytes - 4, W.nbytes + 4, 4])
def test_inflated_size_must_be_the_declared_one(refused, declared):
    numel = declared // 4
    pickle, _ = pickled({"w": Tensor(Storage(b"", "FloatStorage", numel), (numel,))})
    body = Member("", W.tobytes(), True).body()
    refused(pt_of(pickle, {"0": Member("archive/data/0", W.tobytes(), True, body,
                                       size=declared)}), commands=torchfile.INFLATING)


@pytest.mark.parametrize("stored", [b"", b"\0", b"\x07" * 40, zeros_deflated(1 << 20)[:50]])
def test_broken_deflate_stream_is_refused(refused, stored):
    pickle, _ = pickled({"w": tensor(W)})
    refused(pt_of(pickle, {"0": Member("archive/data/0", W.tobytes(), True, stored)}),
            commands=torchfile.INFLATING)


def test_deflated_records_are_read(read):
    assert read(deflated_pt()) == {"w": as_array(tensor(W))}


@pytest.mark.parametrize("method", [1, 9, 12, 14, 93, 95, 98])
def test_other_compression_methods_are_refused(refused, method):
    good = pt({"w": tensor(W)})
    for data in (with_central(good, "archive/data/0", method=method),
                 torchfile.with_local(with_central(good, "archive/data/0", method=method),
                                      "archive/data/0", method=method)):
        refused(data, "archive/data/0")


def test_encrypted_member_is_refused(refused):
    good = pt({"w": tensor(W)})
    for flags in (0x0809, 0x0849, 0x2809):
        refused(torchfile.with_local(with_central(good, "archive/data/0", flags=flags),
                                     "archive/data/0", flags=flags), "archive/data/0",
                re.compile("(?i)encrypt|flag"))


def test_archive_of_several_disks_is_refused(refused):
    good = pt({"w": tensor(W)})
    refused(torchfile.with_end(good, disk=1))
    refused(torchfile.with_end(good, directory_disk=1))
    refused(torchfile.with_end(good, here=1))
    refused(torchfile.with_end64(good, disk=1))
    refused(with_central(good, "archive/data/0", disk=1))


@pytest.mark.parametrize("name", [
    "../x", "archive/../x", "archive/../../etc/x", "/etc/x", "/archive/x", "archive//x",
    "archive/./x", "./archive/x", "archive\\x", "archive/..\\..\\x", "archive/x/..", "archive/\0x",
    "elsewhere/x", "x", "",
], ids=repr)
def test_member_names_that_lead_out_are_refused(refused, name):
    pickle, _ = pickled({"w": tensor(W)})
    members = pt_members(pickle, {"0": W.tobytes()})
    refused(zip_bytes([*members, Member(name, b"content")]))


def test_member_names_that_are_not_utf8_are_refused(refused):
    good = pt({"w": tensor(W)})
    refused(torchfile.renamed(good, "archive/data/0", b"archive/data/\xff"))
    refused(torchfile.renamed(good, "archive/data/0", b"archive/dat\xc0\xaf0"))


def test_names_in_messages_are_escaped(refused):
    pickle, _ = pickled({"w": tensor(W)})
    members = pt_members(pickle, {"0": W.tobytes()})
    name = "archive/\x1b[31mred\n\x7f\u009b"
    refused(zip_bytes([*members, Member(name, b"a"), Member(name, b"b")]))


GIANT = 2**32 + 2**20          # bytes of a record that needs zip64


def giant_pt(path, **crc):
    """A sparse file with a record of more than 4 GiB, and one that starts behind it."""
    parts = {4 * i: struct.pack("<f", v) for i, v in ((0, 1.5), (2**29, -2.5),
                                                      (GIANT // 4 - 1, 3.5))}
    storage, late = Storage(b"", "FloatStorage", GIANT // 4), tensor(W)
    views = [Tensor(storage, (2,), (n,), at) for n, at in ((2**29, 0), (1, GIANT // 4 - 2))]
    pickle, _ = pickled({"far": views[0], "end": views[1], "late": late})
    with open(path, "wb") as file:
        return torchfile.write_zip(file, pt_members(
            pickle, {"0": Member("archive/data/0", Hole(GIANT, parts, **crc)), "1": W.tobytes()}))


def test_record_of_more_than_4_gib_is_read(tmp_path):
    """Views of it are exact, and so is what comes behind it; sparse, and without a CRC to check."""
    path = tmp_path / "giant.pt"
    where = giant_pt(path)
    assert where["archive/data/1"] > 2**32 and path.stat().st_blocks * 512 < 2**20
    out = tmp_path / "out.safetensors"
    done, peak, _ = torchfile.run_measured("convert", path, "-o", out)
    assert done.returncode == 0 and peak < 128, done.stderr
    assert arrays_in(out) == {
        "far": ("F32", [2], struct.pack("<2f", 1.5, -2.5)),
        "end": ("F32", [2], struct.pack("<2f", 0, 3.5)), "late": as_array(tensor(W))}
    run_tersor("inspect", path, check=0)


def test_giant_records_are_really_zip64(tmp_path):
    """The quirks of torch's zip64 are there: what is read above is what Python's zipfile reads."""
    where = giant_pt(tmp_path / "giant.pt")
    with zipfile.ZipFile(tmp_path / "giant.pt") as archive:
        big, late = (archive.getinfo(f"archive/data/{i}") for i in range(2))
        assert big.file_size == big.compress_size == GIANT and late.header_offset > 2**32
        assert archive.read(late) == W.tobytes()
    data = open(tmp_path / "giant.pt", "rb")
    data.seek(late.header_offset + 18)
    assert data.read(8) == bytes(8)
    data.seek(where["archive/data/1"] + len(W.tobytes()))
    assert data.read(8)[:4] == b"PK\7\10"


@pytest.mark.parametrize("of", ["at", "csize", "size", "both sizes", "at and size"])
def test_zip64_fields_that_wrap_are_refused(refused, of):
    good = pt({"w": tensor(W)})
    entries = torchfile.directory_of(good)
    for value in (2**64 - 1, 2**64 - 512, 2**63, 2**64 - 16 - entries[4]["at"]):
        change = {"at": {"at": value}, "csize": {"csize": value}, "size": {"size": value},
                  "both sizes": {"csize": value, "size": value},
                  "at and size": {"at": value, "csize": 2**64 - value, "size": 2**64 - value}}[of]
        refused(with_directory(good, [{**e, **change} if e["name"].endswith("data/0") else e
                                      for e in entries]), "archive/data/0", bounded=True)


@pytest.mark.parametrize("fields", [
    {"offset": 2**64 - 1}, {"nbytes": 2**64 - 1}, {"offset": 2**64 - 56, "nbytes": 100},
    {"count": 2**63, "here": 2**63}, {"count": 1_000_001, "here": 1_000_001},
    {"count": 0, "here": 0},
    {"offset": 0}, {"size": 2**64 - 1}, {"size": 43},
], ids=str)
def test_end_of_directory_that_wraps_is_refused(refused, fields):
    good = pt({"w": tensor(W)})
    refused(torchfile.with_end64(good, **fields), bounded=True)
    plain = {k: min(v, 2**32 - 1) for k, v in fields.items() if k in ("offset", "nbytes")}
    if plain:
        refused(torchfile.with_end(torchfile.with_end64(good, **fields), **plain), bounded=True)


def test_directory_larger_than_the_file_is_refused(refused):
    good = pt({"w": tensor(W)})
    refused(torchfile.with_end(good, nbytes=2**31))
    refused(torchfile.with_end(good, count=1000, here=1000))
    refused(torchfile.with_end(good, offset=len(good)))


# ---- Tensors in storages ----

@pytest.mark.parametrize("delta", [-4, -1, 1, 4, 64])
def test_record_too_short_or_too_long_is_refused(refused, delta):
    content = bytes(range(128))
    record = (content + bytes(64))[:128 + delta]
    for shape in ((32,), (4, 8), (2,)):
        pickle, _ = pickled({"model": {"w": Tensor(Storage(b"", "FloatStorage", 32), shape)}})
        refused(pt_of(pickle, {"0": record}), ("data/0", "w"), (128, 32), len(record))


def test_record_missing_or_empty_is_refused(refused):
    pickle, _ = pickled({"w": Tensor(Storage(b"", "FloatStorage", 32), (32,))})
    refused(pt_of(pickle, {"0": b""}), ("data/0", "w"))
    refused(pt_of(pickle, {}), ("data/0", "w"))


@pytest.mark.parametrize("numel, shape, stride, offset", [
    (2**62, (2**62,), (1,), 0), (2**62, (1,), (1,), 0), (2**64 - 1, (1,), (1,), 0),
    (2**63, (1,), (1,), 0), (-4, (1,), (1,), 0), (2**70, (1,), (1,), 0),
], ids=str)
def test_impossible_number_of_elements_of_a_storage_is_refused(refused, numel, shape, stride, offset):
    pickle, _ = pickled({"w": Tensor(Storage(b"", "FloatStorage", numel), shape, stride, offset)})
    refused(pt_of(pickle, {"0": bytes(16)}), ("data/0", "w"), bounded=True)


@pytest.mark.parametrize("shape, stride, offset", [
    ((4,), (-1,), 3), ((4,), (1,), -1), ((-4,), (1,), 0), ((-1, -4), (4, 1), 0),
    ((5,), (1,), 0), ((4,), (1,), 1), ((2,), (4,), 0), ((2, 2), (2, 2), 0), ((2, 2), (3, 1), 0),
    ((1,), (1,), 4), ((), (), 4), ((), (), 2**62), ((2,), (2**62,), 0), ((2,), (2**63,), 0),
    ((2**32, 2**32), (2**32, 1), 0), ((2**32, 2**32), (1, 1), 0), ((3,), (2**63,), 0),
    ((2**63,), (1,), 0), ((2**64,), (1,), 0), ((2**64 + 1,), (1,), 0), ((2,), (2**64 - 1,), 1),
    ((2,), (1, 1), 0), ((2, 2), (1,), 0), ((2,), (1,), 2**64), ((1,), (1,), 2**64 - 1),
    ((1,) * 65, (1,) * 65, 0), ((0, -1), (1, 1), 0), ((0, 2**49), (1, 1), 0),
], ids=str)
def test_views_outside_their_storage_are_refused(refused, shape, stride, offset):
    t = Tensor(Storage(bytes(16)), shape, stride, offset)
    refused(pt({"model": {"the weight": t}}), "the weight", bounded=True)


@pytest.mark.parametrize("what", [
    {"shape": 4}, {"shape": (4.0,)}, {"shape": ("4",)}, {"shape": (None,)}, {"stride": (1.0,)},
    {"offset": 0.0}, {"offset": None}, {"offset": (0,)},
], ids=str)
def test_sizes_of_the_wrong_type_are_refused(refused, what):
    ops = {"shape": (4,), "stride": (1,), "offset": 0, **what}
    t = Tensor(Storage(bytes(16)), (4,))
    pickler = torchfile.Pickler(memo=False)
    pickler.save(Global("torch._utils", "_rebuild_tensor_v2"))
    pickler.out.write(b"(")
    pickler.save_storage(t.storage)
    for item in (ops["offset"], ops["shape"], ops["stride"], False, Dict(ordered=True)):
        pickler.save(item)
    body = b"}" + torchfile.text("the weight") + pickler.out.getvalue() + b"tRs"
    refused(pt_of(pkl(body), {"0": bytes(16)}), "the weight")


MAKE = """
import collections, json, sys, numpy, torch
torch.manual_seed(0)
folder = sys.argv[1]
torch.save({"w": torch.arange(128.).reshape(16, 8), "n": torch.arange(5)}, f"{folder}/old.pt")
base = torch.randn(6, 5, 4)
w = torch.arange(48, dtype=torch.int32).reshape(6, 8)
d = {
    "transpose": base.transpose(0, 2), "permute": base.permute(1, 2, 0), "column": base[:, 1],
    "step": base[::2, 1::3, ::2], "slice": base[1:4, 2:, 1:3], "one": base[5, 4, 3],
    "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "channels_last_3d": torch.randn(2, 3, 2, 4, 5).contiguous(memory_format=torch.channels_last_3d),
    "expand": torch.randn(3, 1).expand(3, 7), "expand_all": torch.tensor(2.5).expand(4, 3),
    "zero_d": torch.tensor(3.25), "zero_d_int": torch.tensor(-7), "empty": torch.zeros(0, 5),
    "empty_mid": torch.zeros(3, 0, 2), "diagonal": base[0].diagonal(),
    "as_strided": torch.arange(20.).as_strided((4, 3), (2, 1), 3),
    "unfold": torch.arange(12.).unfold(0, 4, 3), "size_one": base[:1, :, 2:3],
    "i32_t": w.t(), "i32_col": w[:, 3:5], "bool_t": (w > 9).t(), "u8": w.to(torch.uint8)[2:, ::2],
    "f64": base.double()[2].t(), "half": base.half()[:, ::2],
    "bf16": base.bfloat16().transpose(0, 1),
    "i64": w.long()[:, 1], "i16": w.short().t(), "i8": w.char()[1:],
    "c64": torch.randn(3, 2, dtype=torch.complex64).t(),
}
d["tied"] = d["slice"]
d["tied_view"] = base[1:4, 2:, 1:3]
torch.save(d, f"{folder}/views.pt")
out = {}
for k, v in d.items():
    c = v.contiguous()
    raw = torch.view_as_real(c) if c.is_complex() else c
    raw = raw.view(torch.int16) if v.dtype == torch.bfloat16 else raw
    out[k] = [list(v.shape), raw.numpy().tobytes().hex()]
w = torch.arange(8.).reshape(2, 4)
class Sub(torch.Tensor): pass
kinds = {
    "sparse": w.to_sparse(), "csr": w.to_sparse_csr(),
    "quantized": torch.quantize_per_tensor(w, 0.1, 0, torch.qint8),
    "meta": torch.empty(3, device="meta"), "numpy": numpy.float64(1.5),
    "array": numpy.arange(3), "counter": collections.Counter("aab"),
    "subclass": w.as_subclass(Sub),
}
for name, value in kinds.items():
    torch.save({"good": w, "part": {"the key": value}}, f"{folder}/{name}.pt")
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def by_torch(tmp_path_factory):
    """Files that the system's torch 1.13.1 writes, and its own list of the values of views.pt."""
    made = tmp_path_factory.mktemp("by-torch")
    return made, run_torch(MAKE, made)


def test_views_and_strides_as_torch_has_them(folder, by_torch):
    made, expected = by_torch
    found = converted(made / "views.pt", to=folder / "out.safetensors")
    tied = {"tied", "tied_view"}
    assert set(found) == set(expected) - tied
    for name, (shape, content) in expected.items():
        assert found["slice" if name in tied else name][1:] == (shape, bytes.fromhex(content)), name


def test_odd_file_of_torch_2_11_is_read():
    """Strides, views, ties, narrow floats, NaN: as PyTorch 2.11's own list of values."""
    with tempfile.TemporaryDirectory() as temp:
        found = converted(FILES / "odd.pt", to=pathlib.Path(temp) / "out.safetensors")
    expected = dict(torchfile.tensors_in(torchfile.load(FILES / "odd.pt")))
    expected = {path[0]: as_array(t) for path, t in expected.items()}
    assert expected.pop("tied_b") == expected["tied_a"]
    assert found == expected


def test_strides_of_large_tensors_are_followed(read):
    """Larger than any buffer that a reader may use for picking elements."""
    base = np.random.default_rng(0).standard_normal((600, 3, 700)).astype(np.float32)
    storage = Storage(base.tobytes())
    views = {
        "t": Tensor(storage, (700, 3, 600), (1, 700, 2100)),
        "mid": Tensor(storage, (3, 600, 700), (700, 2100, 1)),
        "column": Tensor(storage, (600, 3), (2100, 700), 699),
        "steps": Tensor(storage, (300, 350), (4200, 2), 1),
        "rows": Tensor(storage, (6, 3, 700), (210000, 700, 1)),
    }
    expected = {"t": base.transpose(2, 1, 0), "mid": base.transpose(1, 0, 2),
                "column": base[:, :, 699], "steps": base[::2, 0, 1::2], "rows": base[::100]}
    found = read(pt(views))
    assert {k: (v[1], hashlib.sha1(v[2]).digest()) for k, v in found.items()} == {
        k: (list(v.shape), hashlib.sha1(v.tobytes()).digest()) for k, v in expected.items()}


def test_every_storage_type_is_read(read):
    rng = np.random.default_rng(1)
    value, expected = {}, {}
    for cls, (dtype, size, _) in torchfile.STORAGES.items():
        if dtype != "C128":
            content = rng.bytes(6 * size) if dtype != "BOOL" else b"\0\1\1\0\1\0"
            value[cls] = Tensor(Storage(content, cls), (2, 3), (1, 2))
            expected[cls] = as_array(value[cls])
    for name, (dtype, size) in torchfile.UNTYPED.items():
        value[name] = untyped(name, rng.bytes(6 * size), (3, 2))
        expected[name] = as_array(value[name])
    assert read(pt(value)) == expected


def test_type_without_a_name_in_safetensors_is_refused(refused):
    for t in (tensor(np.zeros(3, np.complex128)),
              Tensor(Storage(bytes(4), "QInt8Storage", 4), (4,))):
        refused(pt({"model": {"the weight": t}}), "the weight",
                re.compile("complex128|ComplexDouble|QInt8"))


def test_a_tensor_of_an_untyped_storage_ends_inside_it(refused):
    short = Tensor(Storage(bytes(7), "UntypedStorage", module="torch.storage"), (4,),
                   dtype="uint16")
    refused(pt({"the weight": short}), ("the weight", "data/0"))


@pytest.mark.parametrize("shape", [(2**20,), (2**40,), (2**20, 2**20), (2**14, 2**14, 2**14)], ids=str)
def test_giant_tensor_expanded_from_one_element_meets_the_limit(refused, shape):
    t = Tensor(Storage(bytes(4)), shape, (0,) * len(shape))
    refused(pt({"w": t}), "w", bounded="limit")


@pytest.mark.parametrize("n, numel", [(1000, 2**28), (70, 2**18)])
def test_many_expanded_tensors_meet_the_limit(refused, n, numel):
    """Large ones, and such that each is within the limit of one tensor."""
    storage = Storage(bytes(4))
    refused(pt({f"w{i}": Tensor(storage, (numel - i,), (0,)) for i in range(n)}), bounded="limit")


# ---- Nothing is executed ----

CALLS = [("posix", "system"), ("os", "system"), ("nt", "system"), ("builtins", "eval"),
         ("__builtin__", "eval"), ("builtins", "exec"), ("builtins", "getattr"),
         ("torch", "load"), ("torch.hub", "load"), ("subprocess", "Popen"),
         ("subprocess", "check_output"), ("runpy", "run_path"), ("socket", "create_connection"),
         ("importlib", "import_module"), ("torch._utils", "_rebuild_everything"),
         ("operator", "attrgetter"), ("pickle", "loads"), ("my_company.models", "Transformer")]
NEVER_CARRIED = {"posix", "os", "nt", "subprocess", "runpy", "socket", "importlib"}
CANARY = "touch canary"
REFUSE = ("--opaque", "refuse")


@pytest.mark.parametrize("module, name", CALLS, ids=".".join)
@pytest.mark.parametrize("proto", [2, 4])
def test_foreign_callables_are_named_and_refused_on_request(folder, module, name, proto):
    calls = {
        "reduce": Call(Global(module, name), (CANARY,)),
        "new": Call(Global(module, name), (), {"x": 1}, new=True),
        "state": Call(Global(module, name), (), {"x": 1}),
    }
    path = folder / "bad.pt"
    for how, value in calls.items():
        path.write_bytes(pt({"model": {"w": tensor(W)}, "payload": value}, proto))
        words = re.compile(rf"({re.escape(module)}|builtins)[. ]{name}")
        must_refuse(path, words, "payload", commands=("inspect", "convert"), options=REFUSE)
        if module in NEVER_CARRIED or name in ("eval", "exec"):
            must_refuse(path, words, "payload", "not carried", commands=("inspect", "convert"))
        else:
            assert f".{name} (1 in all)" in run_tersor("inspect", path, check=0).stderr


def test_foreign_callables_are_refused_as_root_key_argument_and_state(refused):
    evil = Call(Global("posix", "system"), (CANARY,))
    t = tensor(W)
    values = {
        "root": evil, "key": Dict([(evil, 1)]), "in a list": [1, [evil]],
        "state": Dict({"w": t}, ordered=True, state=evil),
        "callee": Call(evil, (1,)),
        "shape": Call(Global("torch", "Size"), (evil,)),
        "size of a tensor": Tensor(t.storage, evil, (1,)),
        "metadata": Tensor(t.storage, t.shape, metadata=evil),
    }
    for value in values.values():
        refused(pt(value), "posix", "system", commands=("inspect", "convert"), options=REFUSE)


def test_a_whole_module_gets_advice(refused):
    module = Call(Global("my_company.models", "Transformer"), (), Dict({
        "training": True, "_parameters": Dict({"w": tensor(W)}, ordered=True)}), new=True)
    refused(pt(module), "my_company.models", "state_dict")


@pytest.mark.parametrize("opcode", [
    b"I1\n", b"L1L\n", b"F1.5\n", b"S'a'\n", b"Va\n", b"P0\n", b"(i__main__\nX\n",
    b"(cposix\nsystem\no",
    b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00", b"d", b"2", b"(l", b"g0\n", b"Np0\n",
    b"\x97", b"(d", b"\xff", b"\x00", b"N\x98",
], ids=repr)
def test_opcodes_that_torch_does_not_write_are_refused(refused, opcode):
    refused(pt_of(pkl(opcode)), "data.pkl", commands=("inspect", "convert"))


SYSTEM = re.compile(r'"(/etc/ld\.so\.[a-z]+|(/usr)?/lib[^"]*|/usr/share/locale[^"]*|'
                    r'/sys/devices/system/cpu[^"]*|/proc/(self|stat|cpuinfo|sys/vm)[^"]*)"')


def suspicious(lines, allowed, folder):
    """Calls that do more than map libraries and read the input."""
    out = []
    for line in lines:
        call = line.split(None, 1)[1]
        if re.match(r'exit|\+\+\+|---|<\.\.\. exit|arch_prctl|newfstatat\(\d+, "",', call):
            continue
        if re.match(r"clone3?\(.*CLONE_THREAD", call) or "resumed>" in call:
            continue
        if re.match(r"execve\(", call) and BINARY in call:
            continue
        if SYSTEM.search(call) or f'"{folder}"' in call or any(
                f'"{path}"' in call for path in allowed):
            continue
        out.append(line)
    return out


@pytest.mark.parametrize("command", ["inspect", "verify", "convert", "pack", "diff"])
def test_strace_shows_nothing_but_the_input_opened(folder, command):
    payload = Call(Global("pickle", "loads"), (CANARY,))
    (folder / "evil.pt").write_bytes(pt({"w": tensor(W), "payload": payload}))
    (folder / "good.pt").write_bytes(pt({"w": tensor(W)}))
    options = [*REFUSE, "-o", folder / "out.safetensors"] if command in ("convert", "pack") else []
    other = [folder / "good.pt"] if command == "diff" else []
    done, lines = traced(folder, command, folder / "evil.pt", *other, *options)
    assert done.returncode in {"convert": [3], "pack": [3], "diff": [0, 1]}.get(command, [0])
    assert "pickle.loads" in done.stderr and not (folder / "canary").exists()
    opened = [line for line in lines if "evil.pt" in line]
    assert any("open" in line for line in opened)
    assert suspicious(lines, [folder / "evil.pt", *other, *options[3:]], folder) == []
    assert not any(re.search(r"O_(WRONLY|RDWR|CREAT)|socket\(|fork|execve\((?!.*tersor)", line)
                   for line in lines), lines


def test_the_payload_is_live(folder):
    """Python's own unpickler runs it, so the test above could fail."""
    payload = pickled({"payload": Call(Global("posix", "system"), (CANARY,))})[0]
    subprocess.run([sys.executable, "-c", "import pickle, sys; pickle.load(sys.stdin.buffer)"],
                   input=payload, cwd=folder, check=True)
    assert (folder / "canary").exists()


def test_strace_shows_that_a_good_file_opens_nothing_else(folder):
    (folder / "good.pt").write_bytes((DATA / "tiny-gpt" / "checkpoint.pt").read_bytes())
    done, lines = traced(folder, "verify", folder / "good.pt")
    assert done.returncode == 0, done.stderr
    assert suspicious(lines, [folder / "good.pt"], folder) == []


# ---- Storages, versions, kinds ----

def test_storage_key_with_two_types_is_refused(refused):
    for a, b in (("FloatStorage", "IntStorage"), ("FloatStorage", "ByteStorage")):
        size = torchfile.STORAGES[b][1]
        value = {"a": Tensor(Storage(bytes(16), a, key="0"), (4,)),
                 "b": Tensor(Storage(bytes(16), b, 16 // size, key="0"), (4,))}
        refused(pt(value), ("data/0", "storage 0", '"0"', "b", "key 0"))
    value = {"a": Tensor(Storage(bytes(16), key="0"), (4,)),
             "b": Tensor(Storage(bytes(16), "UntypedStorage", key="0", module="torch.storage"),
                         (2,), dtype="uint16")}
    refused(pt(value), ("data/0", "storage 0", "b"))


def test_storage_key_with_two_lengths_is_refused(refused):
    value = {"a": Tensor(Storage(bytes(16), key="0"), (4,)),
             "b": Tensor(Storage(bytes(16), numel=2, key="0"), (2,))}
    refused(pt(value), ("data/0", "storage 0", "b"))


@pytest.mark.parametrize("key", ["../../x", "/etc/passwd", "..", ".", "", "a", "0x1", "-1", "1 ",
                                 "12345678901", "0/../0", "0\0", "\u0660"], ids=repr)
def test_storage_keys_that_are_not_numbers_are_refused(refused, key):
    pickle = pkl(tensor_ops(key))
    refused(pt_of(pickle, {"0": bytes(16)}))
    if not re.search(r"\.|^/|^$|\0", key):
        refused(pt_of(pickle, {key: bytes(16)}))


def test_storage_key_that_leads_out_is_not_followed(folder):
    (folder / "x").write_bytes(bytes(16))
    path = folder / "a" / "b" / "bad.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes(pt_of(pkl(tensor_ops("../../x")), {"0": bytes(16)}))
    must_refuse(path, "../../x")


def test_missing_record_is_refused(refused):
    refused(pt_of(pkl(tensor_ops("7")), {"0": bytes(16)}), re.compile("data/7"))


@pytest.mark.parametrize("pid", [
    "storage", ("storage",), ("module", Global("torch", "FloatStorage"), "0", "cpu", 4),
    ("storage", Global("torch", "FloatStorage"), 0, "cpu", 4),
    ("storage", Global("torch", "FloatStorage"), "0", "cpu", "4"),
    ("storage", Global("torch", "FloatStorage"), "0", "cpu", 4.0),
    ("storage", Global("torch", "FloatStorage"), "0", "cpu", None),
    ("storage", Global("torch", "FloatStorage"), "0", "cpu"),
    ("storage", Global("torch", "FloatStorage"), "0", "cpu", 4, None, 1),
    ("storage", Global("torch", "PurpleStorage"), "0", "cpu", 4),
    ("storage", Global("numpy", "FloatStorage"), "0", "cpu", 4),
    ("storage", "FloatStorage", "0", "cpu", 4), None, 7, [], {},
], ids=str)
def test_persistent_ids_of_other_shapes_are_refused(refused, pid):
    ops = pickled(pid, memo=False)[0][2:-1]
    rest = tensor_ops()
    body = rest.replace(pickled(("storage", Global("torch", "FloatStorage"), "0", "cpu", 4),
                                memo=False)[0][2:-1], ops)
    assert pid == ("storage", Global("torch", "FloatStorage"), "0", "cpu", 4) or body != rest
    refused(pt_of(pkl(b"}" + torchfile.text("the weight") + body + b"s"), {"0": bytes(16)}))


def test_unreferenced_record_is_read_past(folder):
    path = folder / "in.pt"
    path.write_bytes(pt_of(pickled({"w": tensor(W)})[0], {"0": W.tobytes(), "1": bytes(100)}))
    assert converted(path) == {"w": as_array(tensor(W))}
    must_refuse(path, "data/1", commands=("convert", "verify"), options=["--strict"])


def test_big_endian_is_swapped(read):
    rng = np.random.default_rng(2)
    value, expected = {}, {}
    for cls, (dtype, size, _) in torchfile.STORAGES.items():
        if dtype == "C128":
            continue
        content = rng.bytes(6 * size) if dtype != "BOOL" else b"\0\1\1\0\1\0"
        unit = size // 2 if dtype == "C64" else size
        big = b"".join(content[i:i + unit][::-1] for i in range(0, len(content), unit))
        value[cls] = Tensor(Storage(big, cls), (2, 3), (1, 2))
        expected[cls] = as_array(Tensor(Storage(content, cls), (2, 3), (1, 2)))
    for name, (dtype, size) in torchfile.UNTYPED.items():
        content = rng.bytes(6 * size)
        big = b"".join(content[i:i + size][::-1] for i in range(0, len(content), size))
        value[name] = untyped(name, big, (6,))
        expected[name] = (dtype, [6], content)
    assert read(pt(value, byteorder=b"big")) == expected


@pytest.mark.parametrize("byteorder", [b"middle", b"", b"Little", b"little\0", b"bigger"], ids=repr)
def test_unknown_byte_orders_are_refused(refused, byteorder):
    refused(pt({"w": tensor(W)}, byteorder=byteorder), "byteorder")


@pytest.mark.parametrize("version", [b"11", b"11\n", b"0\n", b"-3\n", b"", b"\n", b"three", b"3.0",
                                     b"99999999999999999999\n", b"3\n3\n"], ids=repr)
def test_unknown_archive_versions_are_refused(refused, version):
    refused(pt({"w": tensor(W)}, version=version), "version")


def test_archive_without_a_version_is_refused(refused):
    refused(pt({"w": tensor(W)}, version=None), "version")


def test_archive_without_a_pickle_is_refused(refused):
    refused(pt({"w": tensor(W)}, data_pkl=None), ("data.pkl", "not a"))


def test_version_is_found_in_its_new_place(read):
    """Archives of version 6 and later may keep it in .data/version."""
    pickle, _ = pickled({"w": tensor(W)})
    members = pt_members(pickle, {"0": W.tobytes()}, version=None)
    assert read(zip_bytes([*members, Member("archive/.data/version", b"6\n")])) == {
        "w": as_array(tensor(W))}


@pytest.mark.parametrize("version", range(1, 11))
def test_archive_versions_that_torch_reads_are_read(read, version):
    assert read(pt({"w": tensor(W)}, version=b"%d\n" % version)) == {"w": as_array(tensor(W))}


@pytest.mark.parametrize("era", list(torchfile.ERAS))
@pytest.mark.parametrize("root", ["archive", "checkpoint-7", "päth"])
def test_archives_of_all_ages_are_read(read, era, root):
    value = {"b": tensor(W), "a": tensor(W[:3])}
    assert read(pt(value, era=era, root=root)) == {k: as_array(v) for k, v in value.items()}


def test_archive_of_torch_1_13_is_read(folder, by_torch):
    path = by_torch[0] / "old.pt"
    assert "byteorder" not in "".join(zipfile.ZipFile(path).namelist())
    assert converted(path, to=folder / "out.safetensors") == {
        "w": as_array(tensor(W)), "n": as_array(tensor(np.arange(5)))}


def test_more_than_ten_storages_are_read_in_old_and_new_order(read):
    """0, 1, 10, 11, 2 .. in old files, 0, 1, 2 .. in new ones."""
    value = {f"w{i}": tensor(np.full(3, i, np.float32)) for i in range(12)}
    pickle, storages = pickled(value)
    for order in (sorted(storages), storages, reversed(storages)):
        found = read(pt_of(pickle, {key: storages[key] for key in order}))
        assert found == {k: as_array(v) for k, v in value.items()}


@pytest.mark.parametrize("name, wanted", [
    ("protocol4.pt", {"w"}), ("model.pt", 7), ("sgd.pt", 14), ("named-parameters.pt", 28)])
def test_archive_of_torch_2_11_is_read(tmp_path, name, wanted):
    found = converted(FILES / name, to=tmp_path / "out.safetensors")
    expected = {as_array(t)[2] for _, t in torchfile.tensors_in(torchfile.load(FILES / name))} \
        if name != "protocol4.pt" else None
    assert len(found) == (wanted if isinstance(wanted, int) else len(wanted))
    if expected:
        assert {content for _, _, content in found.values()} == expected


def test_pickle_of_protocol_4_is_read(read, tmp_path):
    value = {"w": tensor(W), "tied": 5, "b": b"bytes", "n": [1, 2**70, -1.5]}
    value["again"] = value["w"]
    assert read(pt(value, proto=4)) == {"w": as_array(tensor(W))}
    found = converted(FILES / "protocol4.pt", to=tmp_path / "out.safetensors")
    _, records = torchfile.records_of((FILES / "protocol4.pt").read_bytes())
    assert found == {"w": ("F32", [16, 8], records["data/0"])}


def refused_or_opaque(path, kind, out, key="the key"):
    """Either no output, or one without the value; always said which it is and where it stands."""
    out.unlink(missing_ok=True)
    done = run_tersor("convert", path, "-o", out, "-v")
    said = done.stdout + done.stderr
    assert done.returncode in (0, 3), said
    assert re.search(kind, said) and key in said, said
    if done.returncode == 0:
        assert list(arrays_in(out)) == ["good"]
    else:
        assert not out.exists()
    run_tersor("inspect", path, check=done.returncode)


def test_tensors_that_are_not_strided_are_named_and_refused(folder, by_torch):
    for name, kind in {"sparse": "sparse", "csr": "sparse|csr", "quantized": "qtensor|quantized",
                       "meta": "meta", "numpy": r"numpy|multiarray", "array": "numpy|multiarray",
                       "subclass": "_rebuild_from_type_v2|Sub|type"}.items():
        refused_or_opaque(by_torch[0] / f"{name}.pt", f"(?i){kind}", folder / "out.safetensors")


def test_a_counter_is_read_as_a_mapping(folder, by_torch):
    run_tersor("convert", by_torch[0] / "counter.pt", "-o", folder / "out.safetensors", check=0)
    assert list(arrays_in(folder / "out.safetensors")) == ["good"]


@pytest.mark.parametrize("metadata", [{"conj": True}, {"neg": True}, {"conj": True, "neg": True}],
                         ids=str)
def test_conj_and_neg_are_never_ignored(folder, metadata):
    values = np.array([1 - 2j, 3 + 4j], np.complex64)
    t = tensor(values, metadata=metadata)
    (folder / "conj.pt").write_bytes(pt({"good": tensor(W), "part": {"the key": t}}))
    done = run_tersor("convert", folder / "conj.pt", "-o", folder / "out.safetensors")
    if done.returncode == 0:
        values = np.conj(values) if "conj" in metadata else values
        values = -values if "neg" in metadata else values
        name, = set(arrays_in(folder / "out.safetensors")) - {"good"}
        assert arrays_in(folder / "out.safetensors")[name][2] == values.tobytes()
    else:
        assert done.returncode == 3 and "the key" in done.stderr
        assert any(bit in done.stderr for bit in metadata)


@pytest.mark.parametrize("metadata", [{}, {"conj": False}, {"conj": False, "neg": False}], ids=str)
def test_no_conj_is_fine(read, metadata):
    t = tensor(np.array([1 - 2j], np.complex64), metadata=metadata)
    assert read(pt({"c": t})) == {"c": as_array(t)}


@pytest.mark.parametrize("module, name", [
    ("torch._utils", "_rebuild_wrapper_subclass"), ("torch.distributed._tensor.api", "DTensor"),
    ("torch.distributed.tensor", "DTensor"), ("torch._tensor", "_rebuild_from_type_v2"),
    ("torch._utils", "_rebuild_device_tensor_from_numpy"), ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"), ("numpy", "dtype"),
], ids=".".join)
def test_other_kinds_are_refused_by_name(folder, module, name):
    value = Call(Global(module, name), (tensor(W[:1]), "cpu"))
    path = folder / "in.pt"
    path.write_bytes(pt({"good": tensor(W), "part": {"the key": value}}))
    refused_or_opaque(path, re.escape(name), folder / "out.safetensors")


def test_torchscript_is_refused_by_name(folder):
    path = folder / "script.pt"
    shutil.copy(FILES / "torchscript.pt", path)
    must_refuse(path, re.compile("(?i)torchscript"))


def tar_of_2017():
    head = bytearray(512)
    head[:8], head[257:263] = b"storages", b"ustar\0"
    return bytes(head) + bytes(2048)


@pytest.mark.parametrize("kind", ["torch 1.5", "tar", "PYTORCH1"])
def test_older_formats_get_advice(folder, kind):
    path = folder / "old.pt"
    path.write_bytes({"torch 1.5": (FILES / "legacy.pt").read_bytes(), "tar": tar_of_2017(),
                      "PYTORCH1": b"PYTORCH1" + bytes(1000)}[kind])
    must_refuse(path, re.compile("(?i)(save|write) (it )?again|re-?save|torch.save"))


# ---- Pickles ----

BOMBS = {
    "aliases": (b"](]q\0" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(29)) + b"e",
                "limit"),
    "aliased dicts": (b"](}q\0" + b"".join(b"}(X\1\0\0\0ah%cX\1\0\0\0bh%cuq%c" % (i, i, i + 1)
                                           for i in range(29)) + b"e", "limit"),
    "aliased tuples": (b"(NNNq\0" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1)
                                             for i in range(29)) + b"t", "limit"),
    "list in itself": (b"]q\0h\0a", True),
    "dict in itself": (b"}q\0X\1\0\0\0ah\0s", True),
    "tuple in itself": (b"]q\0h\0\x85q\1a", True),
    "state of itself": (b"ccollections\nOrderedDict\n)Rq\0h\0b", True),
    "nested tuples": (b")" + b"\x85" * 1_000_000, "limit"),
    "nested lists": (b"]" * 500_000 + b"a" * 499_999, True),
    "nested dicts": (b"}K\0" * 400_000 + b"N" + b"s" * 400_000, True),
    "nested calls": (b"ctorch\nSize\n" + b")R" * 1_000_000, True),
    "nested calls as arguments": (b"ctorch\nSize\nq\0" * 1 + b"h\0" * 300_000 + b")R"
                                  + b"\x85R" * 299_999, True),
    "nested ids": (b"N" + b"Q" * 1_000_000, True),
    "nested states": (b"ccollections\nOrderedDict\n)Rq\0" * 1 + b"h\0" * 300_000
                      + b"b" * 300_000, True),
    "marks": (b"(" * 1_000_000, "limit"),
    "marks and tuples": (b"(" * 5000 + b"t" * 5000, True),
    "stack": (b"N" * 2_000_000, True),
    "long int": (b"\x8b" + struct.pack("<i", 100_000) + b"\1" * 100_000, True),
    "long string": (b"X" + struct.pack("<I", 17 << 20) + b"a" * (17 << 20), "limit"),
    "declared string": (b"X\xff\xff\xff\xffabc", True),
    "declared int": (b"\x8b\xff\xff\xff\x7fabc", True),
    "negative int length": (b"\x8b\xff\xff\xff\xff", True),
    "declared string of protocol 4": (b"\x8d" + b"\xff" * 8, True),
    "long global": (b"c" + b"a" * 300 + b"\nb\n", True),
    "strange global": (b"c\x1b[31m\n\x07\n", True),
    "global without an end": (b"ctorch", True),
}


@pytest.mark.parametrize("name", BOMBS)
def test_pickle_bombs_meet_a_limit(refused, name):
    """Each in little time, memory and, with `ulimit -s 256`, stack."""
    body, bounded = BOMBS[name]
    refused(pt_of(pkl(body)), "data.pkl", bounded=bounded, stack=256 << 10,
            commands=torchfile.READERS if LONG or name == "aliases" else ("inspect", "convert"))


def test_pickle_bombs_under_a_key_meet_a_limit(refused):
    for name in ("aliases", "list in itself", "nested tuples"):
        refused(pt_of(pkl(b"}" + torchfile.text("the key") + BOMBS[name][0] + b"s")),
                bounded=BOMBS[name][1], stack=256 << 10, commands=("inspect", "pack"))


def test_aliasing_bomb_is_small():
    assert len(pkl(BOMBS["aliases"][0])) < 350


def test_number_of_pickle_operations_is_limited(refused):
    refused(pt_of(pkl(b"N0" * 1_000_000)), "data.pkl", bounded=True, commands=("inspect",))
    data = Member("archive/data.pkl", bytes(1), True,
                  zeros_deflated(200 << 20), 0x1234, 200 << 20)
    refused(pt_of(data), "data.pkl", bounded=True, commands=("inspect",))


def test_what_is_shared_or_deep_within_reason_is_read(read):
    shared = [1, 2, 3]
    deep = 1
    for _ in range(100):
        deep = [deep]
    assert read(pt({"w": tensor(W), "s": [shared] * 500, "d": deep})) == {
        "w": as_array(tensor(W))}


def test_pickle_of_many_tensors_is_read(folder):
    """20,000 tensors and 160,000 memo entries are no bomb."""
    storage = Storage(bytes(4 * 20000))
    value = {f"layer.{i}": Tensor(storage, (1,), (1,), i) for i in range(20000)}
    path = folder / "many.pt"
    path.write_bytes(pt(value))
    done, peak, seconds = torchfile.run_bounded("inspect", "--json", path)
    assert done.returncode == 0 and peak < 512 and seconds < 2, (done.stderr, peak, seconds)
    assert len(json.loads(done.stdout)["tensors"]) == 20000


@pytest.mark.parametrize("body", [
    b"Nr\0\0\0\x80", b"Nr\xff\xff\xff\xff", b"Nq\5", b"Nq\0Nq\0", b"h\0", b"j\0\0\0\x80",
    b"h\0Nq\0",
    b"0", b"NN", b"a", b"N]a", b"\x85", b"N\x86", b"NN\x87", b"R", b"NR", b")R", b"]t", b"t", b"e",
    b"}Ns", b"}(Nu", b"}(u)", b"(", b"N(", b"(s", b"(NNa", b"](", b"Q", b"b", b"Nb", b"q\0",
    b"\x81", b"N\x81", b"N)R", b"K\1)R", b"]Na0", b"N]NNs", b")Na", b"}N(e", b"K", b"M\1", b"J\1\2",
    b"G\0\0", b"X\1\0", b"\x8a", b"\x8a\5\1", b"\x93", b"X\1\0\0\0aN\x93",
], ids=repr)
def test_broken_pickle_programs_are_refused(refused, body):
    refused(pt_of(pkl(body)), "data.pkl", commands=("inspect", "convert"))


@pytest.mark.parametrize("pickle", [
    b"", b"\x80", b"\x80\2", b"\x80\2N", b"N.", b"\x80\2N.N.", b"\x80\2N.\n", b"\x80\2N.\0",
    b"\x80\2..", b"\x80\0N.", b"\x80\1N.", b"\x80\6N.", b"\x80\xffN.",
    b"\x80\2}q\0.\x80\2}.", b"(dp0\n.", b"\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\xffN.",
    b"\x80\4\x95\1\0", b"\x80\4\x95\x64\0\0\0\0\0\0\0N.",
], ids=repr)
def test_pickle_without_stop_or_with_bytes_after_it_is_refused(refused, pickle):
    refused(pt_of(pickle), "data.pkl", commands=("inspect", "convert"))


INTS = [0, 1, -1, 127, 128, -128, -129, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -2**31,
        -2**31 - 1, 2**40, -2**40, 2**53 + 1, 2**63 - 1, 2**63, -2**63, 2**64, 2**127, -2**127,
        2**1000, -2**2000]
FLOATS = [0.0, -0.0, 1.5, -0.1, 1e308, float("inf"), float("-inf"), 5e-324, -2.5e-310,
          *struct.unpack("<3d", struct.pack("<3Q", 0x7ff8000000000000, 0xfff8000000000001,
                                            0x7ff0000000000001))]
TREE = {
    "ints": INTS, "floats": FLOATS, "none": None, "bools": [True, False, 1, 0],
    "texts": ["", "a", "téxt", "\u0000", "\n\t\x1b", "😀", "'\"\\"],
    "bytes": [b"", b"\0\xff", b"abc"],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((),)],
    "empty": [{}, [], Dict(ordered=True)],
    "keys": Dict([(0, "a"), ("0", "b"), (-1, "c"), ((1, 2), "d"), (2**70, "e"), (None, "f"),
                  (1.5, "g")]),
    "size": Call(Global("torch", "Size"), ((2, 3),)), "dtype": Global("torch", "bfloat16"),
    "device": Call(Global("torch", "device"), ("cuda", 3)), "set": {1, "a"},
    "shared": None,
}
TREE["shared"] = [TREE["ints"], TREE["ints"]]


def whole_tree():
    rng = np.random.default_rng(3)
    w = tensor(rng.standard_normal((4, 6)).astype(np.float32))
    model = torchfile.ordered({
        "a.weight": w, "a.bias": tensor(rng.standard_normal(6).astype(np.float32)), "tied": w,
        "p": tensor(np.ones(3, np.float32), parameter=True, requires_grad=True),
        "n": tensor(np.int64(7)), "grad": tensor(np.ones(2, np.float16), requires_grad=True),
        "t": Tensor(w.storage, (6, 4), (1, 6))}, _x=1)
    return {"model": model, "py": TREE, "step": 400, "list": [tensor(W), "x", (tensor(W[:2]), 3)],
            "int keys": Dict([(0, tensor(W[:1])), (1, {"x": tensor(W[:3])})])}


ROUTES = {
    "pt": [("convert", "pt")],
    "safetensors and back": [("convert", "safetensors"), ("convert", "pt")],
    "packed and back": [("pack", "safetensors"), ("unpack", "pt")],
    "packed, unpacked and back": [("pack", "safetensors"), ("unpack", "safetensors"),
                                  ("convert", "pt")],
}


def travel(source, folder, route, may_refuse=False):
    """Where a file ends that goes through commands; None if one of them refused it."""
    at = source
    for i, (command, kind) in enumerate(ROUTES[route]):
        out = folder / f"{route}-{i}.{kind}"
        codecs = RAW_CODECS if command == "pack" else ()
        done = run_tersor(command, at, "-o", out, "--force", *codecs)
        if may_refuse and done.returncode == 3:
            one_line_error(done)
            assert not out.exists()
            return None
        assert done.returncode == 0, (command, done.stderr)
        at = out
    return at


@pytest.mark.parametrize("route", ROUTES)
def test_values_come_back_bit_for_bit(folder, route):
    value = whole_tree()
    source = folder / "in.pt"
    source.write_bytes(pt(value))
    assert len(INTS) == len(set(INTS)) and -2**63 in INTS
    found = torchfile.load(travel(source, folder, route))
    torchfile.same(value, found)


@pytest.mark.parametrize("route", ROUTES)
def test_ties_come_back_tied(folder, route):
    source = folder / "in.pt"
    source.write_bytes(pt(whole_tree()))
    model = torchfile.load(travel(source, folder, route))["model"]
    assert model["a.weight"].storage is model["tied"].storage
    assert model["a.weight"].storage is not model["t"].storage
    assert len({t.storage.record for _, t in model.items()}) == len(model.pairs) - 1


@pytest.mark.parametrize("route", ROUTES)
def test_odd_file_of_torch_2_11_comes_back(folder, route):
    source = folder / "in.pt"
    shutil.copy(FILES / "odd.pt", source)
    found = torchfile.load(travel(source, folder, route))
    torchfile.same(torchfile.load(source), found)
    assert found["tied_a"].storage is found["tied_b"].storage
    assert found["view_of_w"].storage is not found["tied_a"].storage


def test_a_large_tree_travels_too(folder):
    """More text than a metadata entry should hold: RNG states are lists of thousands of ints."""
    rng = np.random.default_rng(4)
    value = {"w": tensor(W), "rng": [tuple(int(x) for x in rng.integers(0, 2**63, 625))
                                     for _ in range(60)],
             "names": [f"name {i}" for i in range(5000)]}
    source = folder / "in.pt"
    source.write_bytes(pt(value))
    for route in ROUTES:
        torchfile.same(value, torchfile.load(travel(source, folder, route)))


def test_tree_of_another_type_is_refused(folder):
    """It is the same bytes, but no longer what tersor writes."""
    source, flat = folder / "in.pt", folder / "flat.safetensors"
    source.write_bytes(pt({"w": tensor(W), "names": [f"name {i}" for i in range(50000)]}))
    run_tersor("convert", source, "-o", flat, check=0)
    data = flat.read_bytes()
    tree = re.compile(rb'("tersor::tree":\{"dtype":)"U8"')
    assert tree.search(data)
    flat.write_bytes(tree.sub(rb'\1"I8"', data))
    done = run_tersor("convert", flat, "-o", folder / "out.pt", check=3)
    assert "bytes of I8, expected" in one_line_error(done)


def test_root_that_is_not_a_dict_comes_back(folder):
    for value in (tensor(W), [tensor(W), 5], (1, tensor(W[:2])),
                  torchfile.ordered({"w": tensor(W)})):
        source = folder / "in.pt"
        source.write_bytes(pt(value))
        for route in ROUTES:
            torchfile.same(value, torchfile.load(travel(source, folder, route)))


def test_file_without_tensors_comes_back(folder):
    value = {"step": 3, "args": {"lr": 0.1}}
    source = folder / "in.pt"
    source.write_bytes(pt(value))
    for route in ROUTES:
        torchfile.same(value, torchfile.load(travel(source, folder, route)))


KEYS = {
    "1 and True": Dict([(1, "int"), (True, "bool")]),
    "0 and False and 0.0": Dict([(0, "int"), (False, "bool"), (0.0, "float"), (-0.0, "minus")]),
    "int and str": Dict([(1, "int"), ("1", "str")]),
    "str and bytes": Dict([("a", "str"), (b"a", "bytes")]),
    "surrogate": Dict([("\ud800", "lone"), ("\udfff\ud800", "two"), ("?", "question")]),
    "tuple": Dict([((1,), "tuple"), ((True,), "bool"), ("(1,)", "str")]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_never_merged(folder, name):
    value = {"w": tensor(W), "d": KEYS[name]}
    source = folder / "in.pt"
    source.write_bytes(pt(value))
    for route in ROUTES:
        end = travel(source, folder, route, may_refuse=True)
        if end is not None:
            torchfile.same(value, torchfile.load(end))


@pytest.mark.parametrize("name", KEYS)
def test_tensors_under_keys_that_look_alike_are_kept_distinct(folder, name):
    keys = KEYS[name].keys()
    value = {"part": Dict([(k, tensor(np.full(3, i, np.float32))) for i, k in enumerate(keys)])}
    source, out = folder / "in.pt", folder / "out.safetensors"
    source.write_bytes(pt(value))
    done = run_tersor("convert", source, "-o", out)
    if done.returncode == 0:
        contents = [c for _, _, c in arrays_in(out).values()]
        assert sorted(contents) == sorted(np.full(3, i, "<f4").tobytes() for i in range(len(keys)))
    else:
        assert done.returncode == 3 and not out.exists() and "part" in done.stderr


@pytest.mark.parametrize("pairs", [[("w", 1), ("w", 2)], [(0, 1), (0, 2)],
                                   [("a", tensor(W)), ("a", tensor(W + 1))]], ids=["s", "i", "t"])
def test_a_key_that_comes_twice_is_never_merged(folder, pairs):
    """Python keeps the last one: to keep the first or both would be to read something else."""
    source, out = folder / "in.pt", folder / "out.pt"
    source.write_bytes(pt({"d": Dict(pairs)}))
    for kind in ("pt", "safetensors"):
        out = folder / f"out.{kind}"
        done = run_tersor("convert", source, "-o", out)
        if done.returncode == 3:
            one_line_error(done)
            assert not out.exists()
        elif kind == "pt":              # a later pair replaces an earlier one when it is loaded
            torchfile.same(pairs[-1][1], torchfile.load(out)["d"][pairs[0][0]])
        else:
            assert done.returncode == 0
            assert list(arrays_in(out).values()) in ([], [as_array(tensor(W + 1))])


def test_names_that_collide_are_kept_distinct(folder):
    """a.b under the root, and b under a: two tensors, and two names for them."""
    source, out = folder / "in.pt", folder / "out.safetensors"
    source.write_bytes(pt({"a.b": tensor(W), "a": {"b": tensor(W + 1)}}))
    done = run_tersor("convert", source, "-o", out)
    if done.returncode == 3:
        assert "a.b" in one_line_error(done)
        return
    assert sorted(v[2] for v in arrays_in(out).values()) == sorted(
        [W.tobytes(), (W + 1).tobytes()])
    for route in ROUTES:
        torchfile.same(torchfile.load(source), torchfile.load(travel(source, folder, route)))


def test_names_are_escaped_for_terminals(folder):
    """What cannot be shown is escaped; a key that is no UTF-8 is called by its place."""
    source = folder / "in.pt"
    source.write_bytes(pt({"\ud800": tensor(W)}))
    assert list(converted(source)) == ["(0)"]
    source.write_bytes(pt({"\x1b[31m\n": tensor(W)}))
    done = run_tersor("inspect", "-v", source, check=0)
    assert "\x1b" not in done.stdout and "[31m" in done.stdout
    assert list(converted(source)) == ["\x1b[31m\n"]


# ---- What a file is, is told by its content ----

@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy", ".index.json", ".zip", ""])
def test_kind_is_told_by_content(folder, suffix):
    path = folder / f"file{suffix}"
    path.write_bytes(pt({"w": tensor(W)}))
    assert converted(path) == {"w": as_array(tensor(W))}
    report = json.loads(run_tersor("inspect", "--json", path, check=0).stdout)
    assert report["kind"] == "pt" and [t["name"] for t in report["tensors"]] == ["w"]


def test_zip_that_is_neither_torch_nor_numpy(refused):
    refused(zip_bytes([Member("readme.txt", b"hello")]))
    refused(zip_bytes([]))


def test_inspect_counts_bytes_and_parameters():
    report = json.loads(run_tersor("inspect", "--json", DATA / "tiny-gpt" / "checkpoint.pt",
                                   check=0).stdout)
    assert report["totals"]["parameters"] == 84288
    assert {t["kind"] for t in report["tensors"]} >= {"weight", "momentum", "variance"}


# ---- The same state in another container is the same state ----

def test_diff_of_torch_and_safetensors_finds_nothing():
    pair = DATA / "tiny-gpt" / "checkpoint.pt", DATA / "tiny-gpt" / "checkpoint.safetensors"
    for a, b in (pair, pair[::-1]):
        report = json.loads(run_tersor("diff", "--json", a, b, check=0).stdout)
        assert report["exceeding"] == 0
        assert sum(t["result"] == "equal" for t in report["tensors"]) == 87


def test_diff_still_finds_a_changed_element(folder):
    value = torchfile.load(DATA / "tiny-gpt" / "checkpoint.pt")
    t = value["optimizer"]["state"][3]["exp_avg_sq"]
    t.storage.data = t.content = b"\1" + t.content[1:]
    path = folder / "changed.pt"
    path.write_bytes(pt(value))
    report = json.loads(run_tersor("diff", "--json", path,
                                   DATA / "tiny-gpt" / "checkpoint.safetensors", check=1).stdout)
    assert [(t["name"], t["different"]) for t in report["tensors"]
            if t["result"] != "equal" and t["exceeds"]] == [("h.0.c_proj.weight.exp_avg_sq", 1)]


def test_diff_notes_what_only_one_container_can_hold(folder):
    """Counters and whole optimizers are notes; --strict counts them; lost state differs."""
    other = DATA / "tiny-gpt" / "checkpoint.safetensors"
    source = DATA / "tiny-gpt" / "checkpoint.pt"
    run_tersor("diff", "--strict", source, other, check=1)
    hf = DATA / "tiny-gpt" / "hf"
    run_tersor("diff", source, hf, check=0)
    run_tersor("diff", hf, source, check=0)
    run_tersor("diff", "--strict", source, hf, check=1)
    value = torchfile.load(source)
    state = value["optimizer"]["state"]
    state[3].pairs = [(k, v) for k, v in state[3].pairs if k != "exp_avg"]
    (folder / "lost.pt").write_bytes(pt(value))
    run_tersor("diff", folder / "lost.pt", other, check=1)
    run_tersor("diff", folder / "lost.pt", source, check=1)


def test_pack_keeps_what_a_safetensors_checkpoint_packs_to(folder):
    """The same tensors pack to the same planes, whatever they came in."""
    packed = {}
    for kind in ("pt", "safetensors"):
        out = folder / f"{kind}.safetensors"
        run_tersor("pack", DATA / "tiny-gpt" / f"checkpoint.{kind}", "-o", out, check=0)
        packed[kind] = arrays_in(out)
    assert packed["safetensors"].items() <= packed["pt"].items()
    extra = set(packed["pt"]) - set(packed["safetensors"])
    assert all("::" not in name or name.startswith("tersor::") for name in extra)
    run_tersor("verify", folder / "pt.safetensors", check=0)
    run_tersor("verify", folder / "pt.safetensors", "--against",
               DATA / "tiny-gpt" / "checkpoint.pt", check=0)


# ---- Sizes and speed ----

@pytest.mark.skipif(not LONG, reason="TERSOR_LONG=1 reads and writes 6 GB")
def test_long_six_gigabytes_in_bounded_memory(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("six")       # on disk: 12 GB
    numel = 6 * 2**30 // 4 - 1000
    pickle, _ = pickled({"big": Tensor(Storage(b"", "FloatStorage", numel), (numel,)),
                         "late": tensor(W)})
    parts = {0: b"\0\0\x80\x3f", 5 * 2**30: b"\0\0\0\x40"}
    crc, at = 0, 0
    for start, part in parts.items():
        crc = crc_of_zeros(crc, start - at)
        crc, at = zlib.crc32(part, crc), start + len(part)
    crc = crc_of_zeros(crc, 4 * numel - at)
    path = tmp_path / "six.pt"
    with open(path, "wb") as file:
        torchfile.write_zip(file, pt_members(pickle, {
            "0": Member("archive/data/0", Hole(4 * numel, parts, crc)), "1": W.tobytes()}))
    out = tmp_path / "six.safetensors"
    for args in (["verify", path], ["convert", path, "-o", out],
                 ["convert", out, "-o", tmp_path / "back.pt"],
                 ["diff", path, tmp_path / "back.pt"]):
        done, peak, _ = torchfile.run_measured(*args, timeout=900)
        assert done.returncode == 0 and peak < 512, (args[0], done.stderr, peak)
    with open(out, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        begin = file.tell() + header["big"]["data_offsets"][0]
        for start, part in parts.items():
            file.seek(begin + start)
            assert file.read(4) == part
    with zipfile.ZipFile(tmp_path / "back.pt") as archive:
        assert archive.testzip() is None
    for name, at in torch_data_offsets(tmp_path / "back.pt").items():
        assert not re.search("data/[0-9]", name) or at % 64 == 0
    shutil.rmtree(tmp_path)


def torch_data_offsets(path):
    out = {}
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for info in archive.infolist():
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            out[info.filename] = info.header_offset + 30 + name + extra
    return out


def crc_of_zeros(crc, n):
    """The CRC after n more zero bytes."""
    block = bytes(1 << 20)
    for _ in range(n >> 20):
        crc = zlib.crc32(block, crc)
    return zlib.crc32(bytes(n & (1 << 20) - 1), crc)


@pytest.mark.skipif(not LONG, reason="TERSOR_LONG=1 measures")
def test_long_reading_torch_is_as_fast_as_reading_safetensors(folder):
    """At least 80% of the speed; best of seven runs of each, taken in turn."""
    rng = np.random.default_rng(5)
    value = {f"layer.{i}": tensor(rng.standard_normal((2048, 2048)).astype(np.float32))
             for i in range(24)}
    source, plain = folder / "in.pt", folder / "in.safetensors"
    source.write_bytes(pt(value))
    run_tersor("convert", source, "-o", plain, check=0)
    best = {source: 1e9, plain: 1e9}
    for _ in range(7):
        for path in best:
            start = time.monotonic()
            run_tersor("verify", path, check=0)
            best[path] = min(best[path], time.monotonic() - start)
    assert best[plain] / best[source] >= 0.8, best
