"""The table of `make compare`: the ways that need no Python library, on a small checkpoint."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import BINARY, run_tersor

SCRIPT = Path(__file__).parent / "compare" / "head_to_head.py"
DEFAULT = "tersor"
EXACT = "tersor, exact"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rng = np.random.default_rng(3)
    m = (rng.standard_normal((64, 96)) * 1e-3).astype("f4")
    path = tmp_path_factory.mktemp("compare") / "source.safetensors"
    save_file({"a.weight": rng.standard_normal((64, 96)).astype("f4"), "a.weight.exp_avg": m,
               "a.weight.exp_avg_sq": m * m + np.float32(1e-9)}, path)
    return path


def compare(source, folder, *names):
    out = folder / "rows.json"
    done = subprocess.run([sys.executable, SCRIPT, BINARY, source, "--folder", folder, "--repeats", "1",
                           "--json", out, "--only", *names], capture_output=True, text=True, check=True)
    return {r["way"]: r for r in json.loads(out.read_text())}, done


def test_bytes_and_errors_are_those_of_the_files(source, tmp_path):
    rows, _ = compare(source, tmp_path, "cp", DEFAULT)
    assert rows["cp"]["bytes"] == source.stat().st_size and rows["cp"]["differing"] == 0
    packed, back = tmp_path / "p.safetensors", tmp_path / "b.safetensors"
    run_tersor("pack", source, "-o", packed, "-q", "-q", check=0)
    run_tersor("unpack", packed, "-o", back, "-q", "-q", check=0)
    assert rows[DEFAULT]["bytes"] == packed.stat().st_size
    a, b = ({n: x.astype("f8") for n, x in load_file(f).items()} for f in (source, back))
    u, y = (x["a.weight.exp_avg"] / (x["a.weight.exp_avg_sq"] ** 0.5 + 1e-8) for x in (a, b))
    nmse, relative = ((u - y) ** 2).sum() / (u ** 2).sum(), np.abs(b["a.weight"] / a["a.weight"] - 1).mean()
    assert nmse > 0 and rows[DEFAULT]["update_nmse"] == pytest.approx(nmse, rel=1e-9)
    assert relative > 0 and rows[DEFAULT]["weights"] == pytest.approx(relative, rel=1e-6)
    assert rows[DEFAULT]["differing"] == sum(int((a[n] != b[n]).sum()) for n in a) > 0


def test_what_is_lossless_is_said_to_be(source, tmp_path):
    names = [EXACT, *(n for n in ("zstd -3", "xz -6") if shutil.which(n.split()[0]))]
    rows, done = compare(source, tmp_path, *names)
    assert [rows[n]["differing"] for n in names] == [0] * len(names)
    assert all(f"| {n} |" in done.stdout for n in names)


def test_a_way_without_its_library_is_named(source, tmp_path):
    rows, done = compare(source, tmp_path, "ZipNN")
    assert not rows and "left out: ZipNN: no --python" in done.stderr
