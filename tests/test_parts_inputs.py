"""Parts whose inputs are two checkpoints of equal headers, sizes and times are not joined."""
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from conftest import one_line_error, run_tersor
from faults import LONG
from test_mpi import mpi, pytestmark as needs_mpi  # noqa: F401

TIME = 1_700_000_000_000_000_000
COMMANDS = {
    "pack": ["pack", "in/x.safetensors", "-o", "out"],
    "pack coded": ["pack", "in/x.safetensors", "-o", "out", "--entropy"],
    "pack delta": ["pack", "in/x.safetensors", "-o", "out", "--delta", "p1.safetensors"],
    "pack directory": ["pack", "in", "-o", "out"],
    "unpack": ["unpack", "p/x.safetensors", "-o", "out"],
    "code": ["pack", "p/x.safetensors", "-o", "out", "--entropy"],
    "convert": ["convert", "in/x.safetensors", "-o", "out", "--to", "npz"],
    "convert pt": ["convert", "t/x.pt", "-o", "out", "--to", "safetensors"],
    "verify": ["verify", "p0.safetensors", "--against", "in/x.safetensors", "--json=out"],
    "diff": ["diff", "in/x.safetensors", "one.safetensors", "--json=out"],
    "audit": ["audit", "in/x.safetensors", "--json=out"],
    "granularity": ["audit", "in/x.safetensors", "--granularity", "--json=out"],
    "replay": ["replay", "in/x.safetensors", "rec", "--optimizer", "adamw", "--zero-state", "--lr", "1e-3",
               "-o", "out", "--state", "flash"],
    "replay gradients": ["replay", "one.safetensors", "grads", "--optimizer", "adamw", "--zero-state", "--lr", "1e-3",
                         "-o", "out", "--state", "flash"],
}


def save(path, tensors):
    path.parent.mkdir(exist_ok=True)
    save_file(tensors, path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Four checkpoints of three parts' worth of pieces in each form that commands read."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(5)
    first = {f"l{k}.weight": rng.normal(0, 0.02, (300, 2000)).astype(np.float32) for k in range(4)}
    second = {name: x * np.float32(1.001) for name, x in first.items()}
    element = {name: x.copy() for name, x in first.items()}
    element["l3.weight"][7, 11] += 1        # only its time tells it
    rows = {name: x.copy() for name, x in first.items()}
    rows["l3.weight"][100:140] *= np.float32(1.01)
    for i, tensors in enumerate((first, second, rows, element)):
        save(folder / str(i) / "x.safetensors", tensors)
        run_tersor("pack", f"{i}/x.safetensors", "-o", f"p{i}.safetensors", cwd=folder, check=0)
        run_tersor("convert", f"{i}/x.safetensors", "-o", f"{i}.pt", cwd=folder, check=0)
    return folder


@pytest.fixture
def where(tmp_path, made):
    """`put(i)` makes checkpoint i what all commands read, at one time."""
    (tmp_path / "rec").mkdir()
    for name, source in ("one.safetensors", "1/x.safetensors"), ("rec/step-1.safetensors", "1/x.safetensors"), \
            ("p0.safetensors", "p0.safetensors"), ("p1.safetensors", "p1.safetensors"):
        shutil.copy(made / source, tmp_path / name)

    def put(i, root=tmp_path):
        for name, source in ("in/x.safetensors", f"{i}/x.safetensors"), ("p/x.safetensors", f"p{i}.safetensors"), \
                ("t/x.pt", f"{i}.pt"), ("grads/step-1.safetensors", f"{i}/x.safetensors"):
            (root / name).parent.mkdir(exist_ok=True, parents=True)
            shutil.copy(made / source, root / name)
            os.utime(root / name, ns=(TIME, TIME + 1000 * (i == 3) + 5))
    return put


@pytest.mark.parametrize("name, other", [(name, other) for i, name in enumerate(COMMANDS) for other in (1, 2, 3)
                                         if LONG or i == 0 or i % 3 == other - 1])
def test_parts_of_two_checkpoints_are_not_joined(tmp_path, where, name, other):
    args = COMMANDS[name]
    for i, n in enumerate((0, other, 0), 1):
        where(n)
        run_tersor(*args, "--part", f"{i}/3", "-j1", cwd=tmp_path, check=0)
    done = run_tersor("join", "out", cwd=tmp_path, check=3)
    assert "inputs" in one_line_error(done) and not (tmp_path / "out").exists()
    where(0)
    run_tersor("join", "out", cwd=tmp_path, check=3)        # also where the joiner has most parts' file
    for path in tmp_path.glob("out.part-2-*"):
        path.unlink()
    run_tersor(*args, "--part", "2/3", "-j1", cwd=tmp_path, check=0)
    assert run_tersor("join", "out", cwd=tmp_path).returncode in (0, 1)


@pytest.mark.parametrize("other", [1, 2, 3], ids=["step", "rows", "element"])
@needs_mpi
def test_a_rank_that_sees_another_file_is_refused(mpi, tmp_path, where, other):  # noqa: F811
    where(0, tmp_path / "a")
    where(other, tmp_path / "b")
    args = ["pack", "in/x.safetensors", "-o", str(tmp_path / "out")]
    others = {rank: ["-C", tmp_path / "b", mpi.program, *args] for rank in (1,)}
    done = mpi(3, *args, cwd=tmp_path / "a", programs={1: "env"}, others=others)
    assert done.returncode == 3 and "inputs" in done.stderr and not (tmp_path / "out").exists()
