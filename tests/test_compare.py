"""The tables of `make compare`: the ways and forms that need no Python library, on small checkpoints."""
import json
import re
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import BINARY, DATA, ROOT, run_tersor

COMPARE = ROOT / "tests" / "compare"
SCRIPT = COMPARE / "head_to_head.py"
sys.path.insert(0, str(COMPARE))
import forms  # noqa: E402
import peer_forms  # noqa: E402

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


# forms

def rows_of(table):
    header, _, *rows = (line.strip("| ").split(" | ") for line in table.strip().splitlines())
    return {row[0]: dict(zip(header, row)) for row in rows}


def test_the_page_has_the_figures_of_forms():
    """All that no library and no clock decides."""
    names = [*forms.OURS, "lpmm, 4 bits", "NVFP4", "MXFP4"]
    done = subprocess.run([sys.executable, COMPARE / "forms.py", BINARY, "--rounds", "0", "--gpu",
                           ROOT / "docs" / "internals" / "speed.csv",
                           f"tiny-gpt={DATA / 'tiny-gpt' / 'expected-adamw-fp32.safetensors'}",
                           f"real GPT={DATA / 'real-gpt-worst.safetensors'}", "--only", *names],
                          capture_output=True, text=True, check=True)
    page = re.search(r"^\| form \|.*?\n(?=\n)", (ROOT / "docs" / "codecs.md").read_text(), re.M | re.S)[0]
    shown, made = rows_of(page), rows_of(done.stdout)
    assert list(made) == names and len(shown) == len(names) + 3
    for name in names:
        row = next(row for form, row in shown.items() if form == name or form.startswith(name + ", "))
        for column in ("tiny-gpt", "real GPT", "16 steps", "sqrt(v)", "GPU"):
            assert row[column] == made[name][column], (name, column)


def test_peers_are_stepped_as_tersor_steps(tmp_path):
    """The model with moments rounded between steps gives what `replay` gives in that form, bit for bit."""
    def bf16(x):
        return x.astype(ml_dtypes.bfloat16).astype("f4")
    for state, back in (("bf16/bf16", lambda m, v: (bf16(m), bf16(v))), ("fp32", lambda m, v: (m, v))):
        found, made = forms.Tersor(BINARY, tmp_path, state).replayed(), forms.replay(back)
        assert made.keys() <= found.keys() and all((made[n] == found[n]).all() for n in made)


@pytest.mark.parametrize("micro", [False, True])
def test_fp4_is_that_of_ml_dtypes(micro):
    x = (np.random.default_rng(4).standard_normal((50, 40)) * 1e-4).astype("f4")
    group = 32 if micro else 16
    rows = np.pad(x.ravel(), (0, -x.size % group)).reshape(-1, group)
    most = abs(rows).max(1, keepdims=True)
    if micro:
        scale = 2.0 ** np.ceil(np.log2(most / 6))
    else:
        whole = most.max() / np.float32(6 * 448)
        scale = (most / 6 / whole).astype(ml_dtypes.float8_e4m3fn).astype("f4") * whole
    want = ((rows / scale).astype(ml_dtypes.float4_e2m1fn).astype("f4") * scale).ravel()[:x.size].reshape(x.shape)
    found = peer_forms.fp4(x, peer_forms.E2M1, micro)
    assert found == pytest.approx(want, rel=1e-6) and len(np.unique(want)) > 12


def test_a_variance_by_rank_1_is_a_sixteenth_of_the_smaller_of_row_and_column():
    v = np.array([[16, 3, 1], [2, 1, 0.001]], "f4") * np.float32(1e-8)
    want = np.array([[16, 3, 1], [2, 1, 1 / 16]]) * 1e-8
    assert peer_forms.rank1(v) == pytest.approx(want, rel=1e-6)
