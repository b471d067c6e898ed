"""Whatever goes in comes back: tests/roundtrip.py over every fixture, and over random checkpoints of PyTorch."""
import collections
import os
import pathlib
import stat
import subprocess
import sys

import pytest

from conftest import BINARY, DATA, ROOT

sys.path.insert(0, str(ROOT / "tests"))
import anyfile                                                        # noqa: E402
import roundtrip                                                      # noqa: E402

LONG = bool(os.environ.get("TERSOR_LONG"))
TORCH = [os.environ.get("TERSOR_TORCH_PYTHON", "/usr/bin/python3")]

# Directories whose files go one by one, too; those of the others are alike.
WITH_FILES = {"checkpoint-10", "checkpoint-30", "hf", "megatron", "zero1-fp32-2rank"}

# (part of a path, part of a step): objects of a DCP that cannot be read are carried as bytes, which are objects
# again in a DCP only.
EXPECTED = [("dcp-entries/unread", step) for step in ("convert to safetensors", "convert to pt", "convert to npz",
                                                      "convert to shards", "pack lossless")]


def fixtures():
    """Files and DCP directories one by one, directories of frameworks as a whole.  Hostile files have their own tests."""
    found = [*sorted((DATA / "frameworks" / "quantized").iterdir()), DATA / "frameworks" / "megatron"]
    found += [DATA / "flashoptim.npz", DATA / "real-gpt-rows" / "start.safetensors", DATA / "real-gpt-worst.safetensors"]
    found += sorted((DATA / "golden").glob("*.npz"))
    for folder in ("torch", "torch/dcp-entries", "tiny-gpt"):
        found += [p for p in sorted((DATA / folder).iterdir()) if p.is_file() or (p / ".metadata").exists()]
    found += [DATA / "torch" / "muon", DATA / "torch" / "ranks", DATA / "tiny-gpt" / "hf",
              DATA / "recording-fsdp2"]
    found += [p for p in sorted((DATA / "frameworks" / "states").rglob("*")) if p.suffix in (".pt", ".safetensors")]
    found += [DATA / "frameworks" / "states" / "dcp-own-class", *sorted((DATA / "frameworks" / "optimizers").iterdir())]
    found += [p for where in ("trainer", "accelerate", "accelerate-fsdp", "peft", "deepspeed")
              for p in sorted((DATA / "frameworks" / where).iterdir()) if p.is_dir()]
    return [p for p in found if not p.name == "coat2.npz"]             # which has text


@pytest.mark.every_case
@pytest.mark.parametrize("path", fixtures(), ids=lambda p: p.relative_to(DATA).as_posix())
def test_fixture_comes_back(path, tmp_path):
    report = roundtrip.Report(quiet=True, keep=tmp_path)
    roundtrip.roundtrip(path, BINARY, report, {**roundtrip.MODES, **roundtrip.MORE_MODES} if LONG else None,
                        files=LONG or path.name in WITH_FILES)
    if LONG:
        report.with_torch(TORCH)
    faults = [f for f in report.faults if not any(p in f[0] and s in f[1] for p, s in EXPECTED)]
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.parametrize("first", range(0, 400 if LONG else 20, 20))
def test_random_checkpoint_comes_back(first, tmp_path):
    made, kept = tmp_path / "made", tmp_path / "kept"
    made.mkdir()
    kept.mkdir()
    script = ROOT / "tests" / "helpers" / "random_checkpoints.py"
    subprocess.run([*TORCH, script, made, str(first), "20"], check=True, timeout=300)
    report = roundtrip.Report(quiet=True, quantized=False, keep=kept)
    roundtrip.roundtrip(made, BINARY, report)
    report.with_torch(TORCH)
    assert not report.faults, "\n".join(map(str, report.faults))
    assert report.counts["same"] > 80


# --- The oracle itself ------------------------------------------------------------------------------------------

def tensor(values=(1.0, 2.0, 3.0, 4.0), shape=(2, 2), **more):
    import numpy as np
    t = anyfile.plain("F32", shape, np.array(values, "<f4").tobytes())
    t.storage.data = t.content()
    for name, value in more.items():
        setattr(t, name, value)
    return t


class Foo(anyfile.Object):
    what = "m.Foo"


class Bar(anyfile.Object):
    what = "m.Bar"


T, SHARED = tensor(), []
DIFFERENT = {
    "value": ({"a": T}, {"a": tensor((1.0, 2.0, 3.0, 5.0))}),
    "sign of zero": ({"a": tensor((0.0,), (1,))}, {"a": tensor((-0.0,), (1,))}),
    "dtype": ({"a": T}, {"a": tensor(dtype="I32")}),
    "shape": ({"a": T}, {"a": tensor(shape=(4,))}),
    "strides": ({"a": tensor(stride=(1, 2))}, {"a": T}),
    "requires_grad": ({"a": tensor(requires_grad=True)}, {"a": T}),
    "Parameter": ({"a": tensor(parameter=True)}, {"a": T}),
    "tie that is lost": ([T, T], [tensor(), tensor()]),
    "tie that is new": ([tensor(), tensor()], [T, T]),
    "list that was shared": ([SHARED, SHARED], [[], []]),
    "key": ({"a": 1}, {"b": 1}),
    "key that is lost": ({"a": 1, "b": 1}, {"a": 1}),
    "order of keys": ({"a": 1, "b": 1}, {"b": 1, "a": 1}),
    "type of a key": ({1: 1}, {"1": 1}),
    "type of a dict": (collections.OrderedDict(), {}),
    "tuple and list": ((1,), [1]),
    "length": ([1], [1, 2]),
    "int and bool": (1, True),
    "int and float": (1, 1.0),
    "float's zero": (0.0, -0.0),
    "text": ("a", "b"),
    "class of an object": (Foo(), Bar()),
    "arguments of an object": (Foo(1), Foo(2)),
    "set": ({1}, {2}),
    "attribute of a tensor": (tensor(more={"x": 1}), T),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_oracle_sees_a_different(what):
    a, b = DIFFERENT[what]
    roundtrip.Comparison().same(a, a)
    with pytest.raises(roundtrip.Differs):
        roundtrip.Comparison().same(a, b)


@pytest.mark.parametrize("figure", ["abs", "ulp", "rel", "nmse", "exact", "flushed"])
def test_oracle_sees_a_figure_that_is_too_small(figure):
    a, b = tensor((1.0, -2.0, 1e-3, 4.0)), tensor((1.001, -2.0, 0.0, 4.01))
    stated = {"abs": 0.0101, "ulp": 2**31, "rel": 0.3, "nmse": 1e-4, "exact": 1, "flushed": 1}
    roundtrip.check_figures("a", a, b, stated)
    with pytest.raises(roundtrip.Differs, match=figure if figure != "exact" else "elements are equal"):
        roundtrip.check_figures("a", a, b, {**stated, figure: stated[figure] / 1000})


FLIP = """#!/bin/sh
[ "$1" = {command} ] || exec "{program}" "$@"
exec "{python}" -S -c '
import os, subprocess, sys
done = subprocess.run(["{program}", *sys.argv[1:]])
if "-o" in sys.argv and done.returncode == 0:
    path = sys.argv[sys.argv.index("-o") + 1]
    if os.path.isfile(path):
        data = bytearray(open(path, "rb").read())
        at = data.find(b"{before}")
        data[at] ^= 1
        open(path, "wb").write(data)
sys.exit(done.returncode)
' "$@"
"""


@pytest.mark.parametrize("command, before", [("unpack", "betas"), ("convert", "betas"), ("unpack", "nothing such")])
def test_oracle_sees_a_program_that_changes_one_bit(command, before, tmp_path):
    wrong = tmp_path / "tersor"
    wrong.write_text(FLIP.format(program=os.path.abspath(BINARY), python=sys.executable, command=command,
                                 before=before))
    wrong.chmod(wrong.stat().st_mode | stat.S_IXUSR)
    path = DATA / "tiny-gpt" / ("checkpoint.pt" if before == "betas" else "checkpoint.safetensors")
    report = roundtrip.Report(quiet=True)
    roundtrip.roundtrip(path, str(wrong), report)
    assert any(what.startswith("pack" if command == "unpack" else "convert") for _, what, _ in report.faults), report.counts


def test_oracle_reads_without_torch_and_without_importing_what_a_file_names():
    path = DATA / "frameworks" / "peft" / "checkpoint-20" / "training_args.bin"
    before = set(sys.modules)
    kind, value = anyfile.read(path)
    assert kind == "pt" and isinstance(value, anyfile.Object) and "TrainingArguments" in value.what
    assert not {m for m in set(sys.modules) - before if m.startswith(("torch", "transformers"))}


def test_command_line_says_what_differs(tmp_path):
    script = ROOT / "tests" / "roundtrip.py"
    done = subprocess.run([sys.executable, script, DATA / "torch" / "model.pt", "--tersor", BINARY], capture_output=True, text=True)
    assert done.returncode == 0 and "0 wrong" in done.stdout
    assert pathlib.Path(script).stat().st_mode & stat.S_IXUSR
