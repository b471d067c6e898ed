"""Small files that would hold the tool up, and what it must not write: tests/data/hostile."""
import os
import subprocess

import numpy as np
import pytest

import torchfile
from conftest import BINARY, DATA, one_line_error, run_tersor, safetensors_bytes
from torchfile import pt, tensor

tmp_path = torchfile.tmp_path

HOSTILE = DATA / "hostile"
W = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def used(*args):
    """(exit status, seconds of CPU, MiB of memory, at least that of this process) of a run."""
    process = subprocess.Popen([BINARY, *map(str, args)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


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
