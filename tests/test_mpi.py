"""`tersor-mpi`: ranks make, to the byte, what one process makes; one that fails or dies leaves nothing."""
import os
import pathlib
import shutil
import subprocess
import time

import numpy as np
import pytest

from conftest import BINARY, DATA, run_tersor, write_source
from helpers.faults import LIBRARY

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"
LONG = os.environ.get("TERSOR_LONG") == "1"
BUILD = pathlib.Path(BINARY).parent


def found():
    """The MPIs whose compiler made a tersor-mpi: {suffix: launcher}."""
    launchers = {}
    for suffix, launcher in (".openmpi", "mpirun.openmpi"), (".mpich", "mpirun.mpich"), ("", "mpirun"):
        if (BUILD / f"tersor-mpi{suffix}").exists() and shutil.which(launcher):
            launchers[suffix] = launcher
    if len(launchers) > 1:
        launchers.pop("", None)     # one of the others
    return launchers


MPIS = found()
pytestmark = pytest.mark.skipif(not MPIS, reason="no tersor-mpi: make mpi needs mpicc")
COUNTS = (2, 3, 4, 7) if LONG else (3,)


@pytest.fixture(params=sorted(MPIS) or [""], ids=lambda suffix: suffix[1:] or "mpi")
def mpi(request):
    suffix = request.param

    def run(n, *args, cwd, faults=None, check=None, others=None, programs=None):
        """n ranks; @faults: {rank: what goes wrong there}, @others: {rank: its command line}, @programs: {rank: the
        program it runs}."""
        words = [MPIS[suffix]]
        if "mpich" not in suffix:
            words += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        for rank in range(n):
            env = []
            if faults and rank in faults:
                env = ["env", f"LD_PRELOAD={LIBRARY}", f"TERSOR_FAULT={faults[rank]}", f"TERSOR_FAULT_PATH={cwd}"]
            command = (others or {}).get(rank, args)
            program = (programs or {}).get(rank, BUILD / f"tersor-mpi{suffix}")
            words += [":"] * (rank > 0) + ["-n", "1", *env, program, *command]
        done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
        if check is not None:
            assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
        return done

    run.program = BUILD / f"tersor-mpi{suffix}"
    return run


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """One tensor with most of the bytes, a pair of moments, an odd one and an empty one."""
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("mpi") / "in.safetensors"
    return write_source(path, {
        "big.weight": rng.normal(size=(1100, 1201)).astype(np.float32),
        "a.weight": rng.normal(size=(262147,)).astype(np.float32),
        "a.weight.exp_avg": rng.normal(size=(262147,)).astype(np.float32) / 100,
        "a.weight.exp_avg_sq": rng.normal(size=(262147,)).astype(np.float32) ** 2 / 1e6,
        "empty.weight": np.zeros((0, 4), np.float32)})


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_same(mpi, tmp_path, args):
    """Files, standard output and exit status of ranks are those of one process."""
    (tmp_path / "one").mkdir()
    one = run_tersor(*args, cwd=tmp_path / "one")
    for n in COUNTS:
        where = tmp_path / f"ranks-{n}"
        where.mkdir()
        ranks = mpi(n, *args, cwd=where, check=one.returncode)
        assert ranks.stdout == one.stdout
        assert files(where) == files(tmp_path / "one")
    return one


COMMANDS = {
    "pack": ("-o", "out.safetensors", "--json", "report.json", "-v"),
    "pack shards": ("-o", "out.safetensors", "--max-shard-size", "2M"),
    "pack bound": ("-o", "out.safetensors", "--max-error", "nmse=1e-12"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_ranks_pack_what_one_process_packs(mpi, tmp_path, source, name):
    done = assert_same(mpi, tmp_path, ["pack", source, *COMMANDS[name]])
    assert done.returncode == ("bound" in name)


def test_ranks_unpack_and_verify(mpi, tmp_path, source):
    packed = tmp_path / "packed.safetensors"
    run_tersor("pack", source, "-o", packed, check=0)
    assert_same(mpi, tmp_path, ["unpack", packed, "-o", "out.safetensors"])
    shutil.rmtree(tmp_path / "one")
    for n in COUNTS:
        shutil.rmtree(tmp_path / f"ranks-{n}")
    done = assert_same(mpi, tmp_path, ["verify", packed])     # no output, no report in a file
    assert done.returncode == 0 and "9 planes have the hash" in done.stdout


FIGURES = {
    "audit": ["audit", TINY, "--json", "report.json", "--csv", "table.csv"],
    "replay": ["replay", TINY, DATA / "tiny-gpt" / "recording", "--state", "flash", "--compare", "fp32",
               "-o", "after.safetensors", "--optimizer", "adamw"],
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_over_ranks(mpi, tmp_path, name):
    assert assert_same(mpi, tmp_path, FIGURES[name]).returncode == 0


def test_commands_without_parts_run_once(mpi, tmp_path):
    done = mpi(2, "inspect", TINY, cwd=tmp_path, check=0)
    assert done.stdout == run_tersor("inspect", TINY).stdout


def test_one_error_line_of_the_lowest_part(mpi, tmp_path, source):
    """Each part has a damaged piece: what one process says is said once."""
    packed = tmp_path / "packed.safetensors"
    run_tersor("pack", source, "-o", packed, check=0)
    data = bytearray(packed.read_bytes())
    for at in range(4000, len(data), 100_000):
        data[at] ^= 1
    packed.write_bytes(data)
    one = run_tersor("unpack", packed, "-o", "out.safetensors", "-j1", cwd=tmp_path, check=3)
    done = mpi(3, "unpack", packed, "-o", "out.safetensors", "-j1", cwd=tmp_path)
    assert done.returncode == 3
    assert [line for line in done.stderr.splitlines() if line.startswith("tersor: ")] == one.stderr.splitlines()
    assert not (tmp_path / "out.safetensors").exists()


def test_another_command_line_on_a_rank_is_refused(mpi, tmp_path):
    done = mpi(2, "pack", TINY, "-o", "out", cwd=tmp_path, others={1: ["pack", TINY, "-o", "else"]})
    assert done.returncode == 2 and "tersor: rank 1 was given another command line" in done.stderr
    assert not files(tmp_path)


def test_another_version_on_a_rank_is_refused(mpi, tmp_path):
    """The same program with another number in it."""
    content = mpi.program.read_bytes()
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.split()[1].encode() + b"\0"
    other = tmp_path / "tersor-mpi"
    other.write_bytes(content.replace(version, version[:-2] + b"~\0"))
    assert other.read_bytes() != content
    other.chmod(0o755)
    (tmp_path / "work").mkdir()
    done = mpi(3, "pack", TINY, "-o", "out", cwd=tmp_path / "work", programs={2: other})
    assert done.returncode == 2 and "tersor: rank 2 runs another version of tersor-mpi" in done.stderr
    assert not files(tmp_path / "work")


def test_a_full_disk_on_one_rank(mpi, tmp_path, source):
    done = mpi(3, "pack", source, "-o", "out.safetensors", cwd=tmp_path, faults={1: "pwrite:1+:ENOSPC"})
    assert done.returncode == 4 and "No space left" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()
    mpi(3, "pack", source, "-o", "out.safetensors", "--continue", cwd=tmp_path, check=0)
    run_tersor("pack", source, "-o", "one.safetensors", cwd=tmp_path, check=0)
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()
    assert sorted(files(tmp_path)) == ["one.safetensors", "out.safetensors"]


@pytest.mark.parametrize("point", range(1, 21) if LONG else (1, 7))
def test_a_rank_that_is_killed(mpi, tmp_path, source, point):
    """At its point-th call on files: nothing stands under the output's name, and all end at once: at most 10 s
    later than a run of the same ranks, which takes seconds on a busy machine."""
    began = time.monotonic()
    mpi(3, "version", cwd=tmp_path)
    usual, began = time.monotonic() - began, time.monotonic()
    done = mpi(3, "pack", source, "-o", "out.safetensors", cwd=tmp_path, faults={point % 3: f"all:{point}:kill"})
    assert done.returncode != 0 and time.monotonic() - began < 10 + usual
    assert not (tmp_path / "out.safetensors").exists()
    mpi(3, "pack", source, "-o", "out.safetensors", "--continue", cwd=tmp_path, check=0)
    run_tersor("pack", source, "-o", "one.safetensors", cwd=tmp_path, check=0)
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()


def test_the_tool_itself_links_no_mpi():
    listing = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    assert "mpi" not in listing.lower()
