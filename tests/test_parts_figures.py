"""tersor sweep, audit and replay in parts: what is joined is what one process makes, to the byte."""
import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from conftest import DATA, one_line_error, run_tersor
from helpers.part_reports import HEADER, Report

F32 = np.float32
TINY = DATA / "tiny-gpt"
COUNTS = [1, 2, 3, 5, 7]
REPORTS = ["--json=r.json", "--csv=r.csv", "--html=r.html"]


def part(root, args, number, count, **kwargs):
    return run_tersor(*args, "-j1", "--part", f"{number}/{count}", cwd=root, **kwargs)


def parts(root, args, count):
    """Do all parts, the last one first."""
    for number in range(count, 0, -1):
        part(root, args, number, count, check=0)


def join(root, of="r.json", **kwargs):
    return run_tersor("join", of, cwd=root, **kwargs)


def outputs(root, kept):
    """What a command left beside `kept`, by name; removed."""
    found = {}
    for path in root.iterdir():
        if path.name not in kept:
            found[path.name] = path.read_bytes()
            path.unlink()
    return found


def check_joined(root, args, of="r.json", counts=COUNTS):
    """The outcome of one process, which is that of any number of parts."""
    kept = {path.name for path in root.iterdir()}
    one = run_tersor(*args, cwd=root)
    expected = outputs(root, kept)
    assert of in expected
    for count in counts:
        parts(root, args, count)
        done = join(root, of)
        assert (done.returncode, done.stdout, done.stderr) == (one.returncode, one.stdout, one.stderr), count
        assert outputs(root, kept) == expected, count
    return one


# --- sweep --------------------------------------------------------------------------------------------

def sweep(first, last, *args):
    return ["sweep", "--codec", "bf16,fp16,bf16+ulp8,bf16+trunc4", "--first", first, "--last", last, *args]


def test_a_sweep_is_the_same_in_parts(tmp_path):
    """From the largest numbers of one sign, by infinities and NaN, to the smallest of the other."""
    check_joined(tmp_path, sweep("0x7f7ff000", "0x800fffff", "-v", *REPORTS, "--svg=r.svg"))


def test_each_part_of_a_sweep_has_some_of_each_small_exponent(tmp_path):
    """Two of 16 parts once had all subnormals, and took five times as long as the others on some processors."""
    args = ["sweep", "--codec", "bf16", "--last", "0x2fffffff", "--json=r.json"]
    for number in range(1, 5):
        part(tmp_path, args, number, 4)
        run, = Report((tmp_path / f"r.json.part-{number}-of-4.bin").read_bytes()).runs
        rows = np.frombuffer(run.found[0], "<u8").reshape(256, -1)     # of each exponent: the count, and figures
        assert np.all(rows[:32, 0] == 1 << 21), rows[:, 0]


def test_a_sweep_of_fewer_patterns_than_parts_is_the_same(tmp_path):
    check_joined(tmp_path, sweep("0x3f7fffff", "0x3f800001", *REPORTS), counts=[7])


def test_a_sweep_in_parts_is_compared_with_its_baseline(tmp_path):
    args = sweep(0, 70000)
    run_tersor(*args, "--json=base", cwd=tmp_path, check=0)
    report = json.loads((tmp_path / "base").read_text())
    for row in report["codecs"][0]["exponents"][0], report["codecs"][0]["finite"]:
        row["exact"] = 17
    (tmp_path / "base").write_text(json.dumps(report))
    assert check_joined(tmp_path, [*args, "--baseline=base", *REPORTS], counts=[3]).returncode == 1


# --- audit --------------------------------------------------------------------------------------------

@pytest.fixture
def checkpoint(tmp_path):
    """A pair of several tiles with 80% of all elements, and odd ones around it."""
    rng = np.random.default_rng(1)

    def pair(*shape):
        v = (2.0 ** -rng.uniform(10, 30, shape)).astype(F32)
        return {"exp_avg": (rng.standard_normal(shape) * np.sqrt(v)).astype(F32), "exp_avg_sq": v}

    arrays = {"z": rng.standard_normal(100_003).astype(F32), "a.exp_avg_sq": rng.random(4097).astype(F32)}
    for name, shape in {"big": (700, 1024), "m": (33, 31), "n": (150, 513)}.items():
        arrays[name] = rng.standard_normal(shape).astype(F32)
        arrays |= {f"{name}.{key}": x for key, x in pair(*shape).items()}
    save_file(arrays, tmp_path / "in.safetensors")
    return "in.safetensors"


def test_an_audit_is_the_same_in_parts(tmp_path, checkpoint):
    check_joined(tmp_path, ["audit", checkpoint, "--codec", "softsign8,ratio8,sqrt8,log8,bf16+ulp8", "-v",
                            *REPORTS, "--svg=r.svg"])


def test_an_audit_in_parts_learns_misses_its_gate_and_has_faults(tmp_path, checkpoint):
    """A tensor that is not finite, whichever part has it, is named by who joins."""
    bad = np.full(20_000, 1, F32)
    bad[19_000] = np.nan
    save_file({"bad": bad}, tmp_path / "bad.safetensors")
    done = check_joined(tmp_path, ["audit", checkpoint, "bad.safetensors", "--codec", "gefen8,blockmean,fp16",
                                   "--max-error", "update-nmse=1e-9", *REPORTS], counts=[2, 5])
    assert done.returncode == 1 and "tensor bad" in done.stderr and "update-nmse" in done.stderr


def test_an_audit_of_several_checkpoints_is_the_same_in_parts(tmp_path, checkpoint):
    shutil.copy(TINY / "checkpoint.safetensors", tmp_path / "tiny.safetensors")
    check_joined(tmp_path, ["audit", "--steps", "tiny.safetensors", checkpoint, "--codec", "softsign8,sqrt8",
                            *REPORTS], counts=[3])


def test_granularities_are_the_same_in_parts(tmp_path, checkpoint):
    """Tensors of many tiles, wide ones among them, and one that is not finite."""
    rng = np.random.default_rng(5)
    bad = np.full(20_000, 1, F32)
    bad[19_000] = np.inf
    save_file({"wide": rng.standard_normal((3, 70_001)).astype(F32), "bad": bad, "none": np.zeros((0, 3), F32),
               "half": rng.standard_normal((513, 257)).astype(np.float16)}, tmp_path / "wide.safetensors")
    done = check_joined(tmp_path, ["audit", checkpoint, "wide.safetensors", "--granularity", "-v", *REPORTS,
                                   "--svg=r.svg"])
    assert done.returncode == 1
    check_joined(tmp_path, ["audit", checkpoint, "--granularity", "--scale", "coat", "--kind", "variance", *REPORTS],
                 counts=[3])


# --- replay -------------------------------------------------------------------------------------------

@pytest.fixture
def recording(tmp_path):
    """Ten steps, more than a window; `n` has no gradient at some, `m` one that is not finite."""
    rng = np.random.default_rng(2)
    shapes = {"big": (300, 1000), "m": (33, 31), "n": (150, 513)}
    (tmp_path / "rec").mkdir()
    arrays = {}
    for name, shape in shapes.items():
        arrays[name] = rng.standard_normal(shape).astype(F32)
    save_file(arrays, tmp_path / "in.safetensors")
    for step in range(1, 11):
        grads = {name: (rng.standard_normal(shape) * 1e-2).astype(F32) for name, shape in shapes.items()}
        if step in (4, 9):
            del grads["n"]
        if step == 6:
            grads["m"][5, 5] = np.inf
        save_file(grads, tmp_path / "rec" / f"step-{step}.safetensors")
    return ["replay", "in.safetensors", "rec", "--optimizer", "adamw", "--zero-state"]


SKIP = ["--on-nonfinite", "skip"]
RATE = ["--lr", "1e-3"]


def test_a_replay_that_is_compared_is_the_same_in_parts(tmp_path, recording):
    check_joined(tmp_path, [*recording, *SKIP, *RATE, "--state", "flash", "--compare", "fp32", "-v", *REPORTS])


def test_a_replay_in_several_states_is_the_same_in_parts(tmp_path, recording):
    check_joined(tmp_path, [*recording, *SKIP, *RATE, "--state", "flash,tight,coat", *REPORTS], counts=[3])


@pytest.mark.parametrize("form", [["--state", "flash"], ["--state", "tight", "--compare", "fp32"],
                                  ["--state", "fp32", "--max-shard-size", "300K"],
                                  ["--state", "fp32", "--to", "npz"],
                                  ["--optimizer", "gefen", "--state", "gefen", "--steps", "1..3"],
                                  ["--optimizer", "muon", "--steps", "1..3"]], ids=lambda form: form[1])
def test_a_replayed_checkpoint_is_the_same_in_parts(tmp_path, recording, form):
    out = "out.npz" if "npz" in form else "out.safetensors"
    last = out if "300K" not in form else f"{out}.index.json"
    args = [*recording, *SKIP, *RATE, *form, "-o", out, "--json=r.json"]
    kept = {path.name for path in tmp_path.iterdir()}
    one = run_tersor(*args, cwd=tmp_path, check=0)
    expected = outputs(tmp_path, kept)
    assert last in expected or out in expected
    for count in [2, 5]:
        parts(tmp_path, args, count)
        assert join(tmp_path, out, check=0).stdout == one.stdout
        assert outputs(tmp_path, kept) == expected, count


def test_learning_rates_too_small_are_named_the_same_in_parts(tmp_path, recording):
    done = check_joined(tmp_path, [*recording, *SKIP, "--lr", "1e-9", "--check-numerics", "--state", "flash",
                                   "-v", "--json=r.json"], counts=[3])
    assert "lr" in done.stdout


def test_a_gate_that_fails_is_the_same_in_parts(tmp_path, recording):
    args = [*recording, *SKIP, *RATE, "--state", "flash", "--max-error", "update-nmse=1e-9", "-o", "out.safetensors",
            "--json=r.json"]
    done = check_joined(tmp_path, args, counts=[])
    parts(tmp_path, args, 3)
    joined = join(tmp_path, "out.safetensors")
    assert (joined.returncode, joined.stdout, joined.stderr) == (1, done.stdout, done.stderr)
    assert {path.name for path in tmp_path.iterdir()} == {"in.safetensors", "rec", "r.json"}


def test_the_part_with_a_gradient_that_is_not_finite_says_so(tmp_path, recording):
    expected = run_tersor(*recording, *RATE, "-o", "out.safetensors", cwd=tmp_path)
    done = [part(tmp_path, [*recording, *RATE, "-o", "out.safetensors"], i, 3) for i in (1, 2, 3)]
    assert sorted(d.returncode for d in done) == [0, 0, expected.returncode]
    assert one_line_error(max(done, key=lambda d: d.returncode)) == one_line_error(expected)
    assert "missing" in one_line_error(join(tmp_path, "out.safetensors", check=4))
    assert not (tmp_path / "out.safetensors").exists()


def test_a_state_that_a_part_did_not_leave_as_it_says_is_refused(tmp_path, recording):
    args = [*recording, *SKIP, *RATE, "--state", "flash", "-o", "out.safetensors"]
    parts(tmp_path, args, 3)
    path = tmp_path / "out.safetensors.part-2-of-3.bin"
    content = bytearray(path.read_bytes())
    content[HEADER.size + Report(content).data_nbytes // 2] ^= 1
    path.write_bytes(content)
    line = one_line_error(join(tmp_path, "out.safetensors", check=3))
    assert path.name in line and "hash" in line and "expected" in line
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("change", ["checkpoint", "gradient", "schedule"])
def test_inputs_that_change_before_the_parts_are_joined_are_refused(tmp_path, recording, change):
    (tmp_path / "lr").write_text("".join(f"{step} 1e-3\n" for step in range(1, 11)))
    parts(tmp_path, [*recording, *SKIP, "--schedule", "lr", "--state", "flash", "--compare", "fp32",
                     "--json=r.json"], 2)
    if change == "schedule":
        (tmp_path / "lr").write_text("".join(f"{step} {step // 10 + 1}e-3\n" for step in range(1, 11)))
    else:
        path = tmp_path / {"checkpoint": "in.safetensors", "gradient": "rec/step-10.safetensors"}[change]
        os.utime(path, (1, 1))
    assert "inputs have changed" in one_line_error(join(tmp_path, check=3))
    assert not (tmp_path / "r.json").exists()


# --- What has no parts --------------------------------------------------------------------------------

@pytest.mark.parametrize("args, what", [
    (["replay", "in.safetensors", "rec", "--audit", "--optimizer", "adamw", "--lr", "1", "--zero-state"], "audit"),
    (["replay", "in.safetensors", "rec", "--dry-run", "--optimizer", "adamw", "--lr", "1"], "--dry-run"),
    (["sweep", "--codec", "bf16"], "report"),
])
def test_what_has_no_parts_is_refused_in_words(tmp_path, recording, args, what):
    report = [] if what == "report" else ["--json=r.json"]
    done = part(tmp_path, [*args, *report], 1, 2)
    assert done.returncode in (2, 3)
    assert what in done.stderr
    assert not (tmp_path / "r.json.part-1-of-2.bin").exists()
