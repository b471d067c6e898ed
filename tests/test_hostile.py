"""Small files that would hold the tool up, and what it must not write: tests/data/hostile."""
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

import torchfile
from conftest import BINARY, DATA, one_line_error, run_tersor, safetensors_bytes
from torchfile import pt, tensor

tmp_path = torchfile.tmp_path

HOSTILE = DATA / "hostile"
W = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def used(*args):
    """(exit status, seconds of CPU, MiB of memory) of a run."""
    done, peak, seconds = torchfile.run_measured(*args)
    return done.returncode, seconds, peak


# ---- Long keys ----

@pytest.mark.parametrize("name, expected", [("pt-key-beside", 0), ("pt-key-beside-more", 3),
                                            ("pt-key-nested", 3)])
def test_a_long_key_costs_its_length_once(name, expected):
    status, seconds, peak = used("inspect", HOSTILE / f"{name}.pt")
    assert status == expected
    assert seconds < 2 and peak < 400


def nested(key, depth, inner):
    for _ in range(depth):
        inner = {key: inner}
    return inner


def test_a_long_key_above_dicts_without_tensors_is_never_copied(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"w": tensor(W), "x": nested("k" * (4 << 20), 190, 1)}))
    status, seconds, peak = used("inspect", path)
    assert status == 0
    assert seconds < 2 and peak < 400


@pytest.mark.parametrize("length, depth", [(65536, 1), (40000, 2), (4 << 20, 190)])
def test_a_name_over_the_limit_is_refused_before_it_is_made(length, depth, tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt(nested("k" * length, depth, tensor(W))))
    line = one_line_error(run_tersor("inspect", path, check=3))
    assert "over the limit of 65535" in line
    assert used("inspect", path)[2] < 400


def test_a_name_at_the_limit_is_read(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt(nested("k" * 32767, 2, tensor(W))))
    assert "k" * 32767 in run_tersor("inspect", "--json", path, check=0).stdout


# ---- Names ----

@pytest.mark.parametrize("number, name", enumerate(["../x", "/x", "a//b", "a\\b", ""]))
def test_npz_is_not_written_with_names_that_its_reader_refuses(number, name, tmp_path):
    source, out = HOSTILE / f"st-name-{number}.safetensors", tmp_path / "out.npz"
    for args in (["convert"], ["pack"]):
        path = source
        if args == ["pack"]:                                     # and what unpack makes of it
            path, args = tmp_path / "packed.safetensors", ["unpack"]
            run_tersor("pack", source, "-o", path, check=0)
        line = one_line_error(run_tersor(*args, path, "-o", out, check=3))
        assert f'tensor "{name}"' in line or f'tensor "{name}"'.replace("\\", "\\\\") in line
        assert "in its name" in line
        assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("name", ["a/b", "a.b", "..a", "a/...", "\N{SNOWMAN}"])
def test_npz_is_written_with_plain_paths(name, tmp_path):
    source, out = tmp_path / "in.safetensors", tmp_path / "out.npz"
    source.write_bytes(safetensors_bytes({name: {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}},
                                         W.tobytes()))
    run_tersor("convert", source, "-o", out, check=0)
    run_tersor("diff", source, out, check=0)
    assert list(np.load(out)) == [name]


def test_pt_is_not_written_with_an_empty_name(tmp_path):
    line = one_line_error(run_tersor("convert", HOSTILE / "st-name-4.safetensors", "-o", tmp_path / "out.pt",
                                     check=3))
    assert "empty" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("container, out", [("pt", "out.pt"), ("dcp", "out/")])
def test_no_tensor_is_written_that_looks_like_codes_of_flashoptim(container, out, tmp_path):
    """Found by fuzzing: the output was refused, as codes without their scales."""
    source = tmp_path / "in.safetensors"
    save_file({"optimizer::quantized": W}, source)
    line = one_line_error(run_tersor("convert", source, "-o", tmp_path / out, "--to", container, check=3))
    assert f"the name is that of codes of FlashOptim in a {container}, found none with their scales" in line
    assert list(tmp_path.iterdir()) == [source]


def test_a_pt_with_an_empty_key_is_refused_and_a_bare_tensor_is_read(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"": tensor(W)}))
    assert "empty key" in one_line_error(run_tersor("inspect", path, check=3))
    path.write_bytes(pt(tensor(W)))
    assert "tensor" in run_tersor("inspect", path, check=0).stdout


def test_a_tensor_called_metadata_is_not_written_to_safetensors(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"__metadata__": tensor(W), "w": tensor(W)}))
    out = tmp_path / "out.safetensors"
    for command in ("convert", "pack"):
        line = one_line_error(run_tersor(command, path, "-o", out, check=3))
        assert "__metadata__" in line and not out.exists()


def test_pack_writes_no_name_over_the_limit(tmp_path):
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    source.write_bytes(safetensors_bytes({"n" * 65535: {"dtype": "F32", "shape": [512, 8],
                                                        "data_offsets": [0, 16384]}}, W.tobytes() * 64))
    assert "over the limit of 65535" in one_line_error(run_tersor("pack", source, "-o", out, check=3))
    assert not out.exists()


# ---- Keys that are one to Python ----

@pytest.mark.parametrize("command", ["inspect", "pack"])
def test_one_and_true_are_one_key(command, tmp_path):
    args = ["-o", tmp_path / "out"] if command == "pack" else []
    line = one_line_error(run_tersor(command, HOSTILE / "pt-one-and-true.pt", *args, check=3))
    assert "key True twice" in line and not list(tmp_path.iterdir())


def twins(a, b):
    """What is said of a dict with both keys."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "in.pt"
        path.write_bytes(pt(torchfile.Dict([(a, 1), (b, 2)])))
        return run_tersor("inspect", path).stderr


@pytest.mark.parametrize("a, b", [(0, False), (1, 1.0), (True, 1.0), (0.0, -0.0), (-7, -7.0), (2**40, 2.0**40),
                                  (0.5, 0.5)])
def test_equal_numbers_are_one_key(a, b):
    assert hash(a) == hash(b) and a == b                          # Python agrees
    line = twins(a, b)
    assert line and "twice in a dict" in line


@pytest.mark.parametrize("a, b", [(0, True), (1, 1.5), ("1", 1), (b"1", "1"), (2**53 + 1, 2.0**53),
                                  (float("nan"), float("nan"))])
def test_other_keys_are_two(a, b):
    assert not twins(a, b)


# ---- Signals before data flow ----

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["inspect", "convert", "pack"])
def test_a_signal_ends_the_reading_of_a_header(command, number, tmp_path):
    source = tmp_path / "in.pt"
    source.write_bytes(pt({"w": tensor(W), "x": torchfile.Raw(b"](" + b"}(K\x01K\x02u" * 900_000 + b"e"
                                                              + b"(" + b"}(K\x01K\x02u" * 900_000 + b"e")}))
    args = ["-o", tmp_path / "out.safetensors"] if command != "inspect" else []
    process = subprocess.Popen([BINARY, command, source, *args], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(number)
    process.wait()
    assert process.returncode in (-number, 128 + number)
    assert time.monotonic() - began < 0.2
    assert list(tmp_path.iterdir()) == [source]


# ---- Modes and owners of what is replaced ----

@pytest.mark.parametrize("mode, kept", [(0o4711, 0o711), (0o2755, 0o755), (0o600, 0o600)])
def test_a_replaced_file_keeps_its_owner_but_not_set_uid(mode, kept, tmp_path):
    out = tmp_path / "out.npz"
    out.write_bytes(b"old")
    owner = (1234, 1235) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(out, *owner)
    out.chmod(mode)
    run_tersor("convert", DATA / "tiny-gpt" / "checkpoint.safetensors", "-o", out, "-f", check=0)
    now = out.stat()
    assert (stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid) == (kept, *owner)
