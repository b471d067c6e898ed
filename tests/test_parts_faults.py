"""Parts that are killed or fail: nothing stands under the output's name, `join` refuses, `--continue` mends."""
import os
import shutil

import pytest

from conftest import DATA, one_line_error, run_tersor
from helpers.faults import shim
from helpers.part_reports import HEADER, Report, change

TINY = DATA / "tiny-gpt"
LONG = os.environ.get("TERSOR_LONG") == "1"
COMMANDS = {
    "pack": ["pack", "in.safetensors", "-o", "out.safetensors", "--json", "r.json"],
    "code": ["pack", "packed.safetensors", "-o", "out.safetensors", "--entropy"],
    "directory": ["pack", "folder", "-o", "out"],
    "spool": ["pack", "in.safetensors", "-o", "out.safetensors", "--entropy"],
    "unpack": ["unpack", "packed.safetensors", "-o", "out.safetensors"],
    "replay": ["replay", "in.safetensors", str(TINY / "recording"), "-o", "out.safetensors", "--state", "flash"],
}


@pytest.fixture
def where(tmp_path):
    """Inputs, and what one process makes of them in `one`."""
    def prepare(name):
        shutil.copy(TINY / "checkpoint.safetensors", tmp_path / "in.safetensors")
        run_tersor("pack", "in.safetensors", "-o", "packed.safetensors", cwd=tmp_path, check=0)
        (tmp_path / "folder").mkdir()
        for i in 1, 2:
            shutil.copy(tmp_path / "in.safetensors", tmp_path / "folder" / f"{i}.safetensors")
        args = COMMANDS[name]
        run_tersor(*args, cwd=tmp_path, check=0)
        out = args[args.index("-o") + 1]
        made = tree(tmp_path, out)
        for path in (tmp_path / out, tmp_path / "r.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return args, out, made
    return prepare


@pytest.fixture(params=["pack", "unpack", "directory", "spool"])
def shared(request):
    """A command whose parts write into one file."""
    return request.param


def tree(where, out):
    path = where / out
    files = path.rglob("*") if path.is_dir() else [path]
    return {str(p.relative_to(where)): p.read_bytes() for p in files if p.is_file()}


def part(where, args, i, *options, fault=None, check=None):
    env = shim(where, fault=fault) if fault else None
    return run_tersor(*args, "--part", f"{i}/3", "-j1", *options, cwd=where, env=env, check=check)


def mend(where, args, out, made):
    """The same again: parts that are done stay, the others follow, and all is as one process makes it."""
    said = [part(where, args, i, "--continue", check=0).stdout for i in (1, 2, 3)]
    run_tersor("join", out, cwd=where, check=0)
    assert tree(where, out) == made
    assert not list(where.glob("*.part-*")) and not list(where.glob(".out*"))
    return ["was done before" in s for s in said]


@pytest.mark.parametrize("point", range(1, 21) if LONG else (3, 11))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_part_that_is_killed_is_done_again(tmp_path, where, name, point):
    """At points spread over its calls on files."""
    args, out, made = where(name)
    part(tmp_path, args, 1, check=0)
    part(tmp_path, args, 3, check=0)
    killed = part(tmp_path, args, 2, fault=f"all:{3 * point}:kill")
    assert not (tmp_path / out).exists()
    if killed.returncode:       # it had as many calls
        assert killed.returncode == -9
        if not list(tmp_path.glob("*.part-2-of-3.bin")):
            assert "part 2 is missing" in one_line_error(run_tersor("join", out, cwd=tmp_path, check=4))
    assert mend(tmp_path, args, out, made)[::2] == [True, True]


@pytest.mark.parametrize("fault", ["pwrite:1+:ENOSPC", "fsync:1:EIO", "rename:1:EIO", "ftruncate:1:ENOSPC"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_part_whose_disk_fails_leaves_no_report(tmp_path, where, name, fault):
    args, out, made = where(name)
    done = part(tmp_path, args, 1, fault=fault)
    if done.returncode:
        assert done.returncode == 4 and one_line_error(done)
        assert not list(tmp_path.glob("*.part-1-of-3.bin")) and not (tmp_path / out).exists()
    else:                       # it does not make this call, or nothing is lost by it
        assert fault.startswith("ftruncate")
    mend(tmp_path, args, out, made)


def test_a_part_by_another_version_is_done_again(tmp_path, where):
    args, out, made = where("pack")
    for i in 1, 2, 3:
        part(tmp_path, args, i, check=0)
    change(tmp_path / f"{out}.part-2-of-3.bin", lambda report: setattr(report, "version", b"0.0"))
    assert "found a part by tersor 0.0" in one_line_error(run_tersor("join", out, cwd=tmp_path, check=3))
    assert mend(tmp_path, args, out, made) == [True, False, True]


def test_a_part_is_done_again_whose_file_is_gone(tmp_path, where, shared):
    """Another part makes the file anew, without what was written into the old one."""
    args, out, made = where(shared)
    part(tmp_path, args, 1, check=0)
    gone = list(tmp_path.glob(".out*"))
    assert gone
    for path in gone:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for i in 2, 3:
        part(tmp_path, args, i, check=0)
    said = one_line_error(run_tersor("join", out, cwd=tmp_path, check=3))
    assert "than part 1 wrote" in said and "do that part again" in said
    assert not (tmp_path / out).exists()
    assert mend(tmp_path, args, out, made) == [False, True, True]


@pytest.mark.parametrize("point", range(1, 9) if LONG else (1, 2, 3, 4))
def test_a_join_that_is_killed_as_it_removes_what_is_left(tmp_path, where, shared, point):
    """The output stands; parts that are done over it take no report for what is in a new file."""
    args, out, made = where(shared)
    args = [*args, "-f"]
    for i in 1, 2, 3:
        part(tmp_path, args, i, check=0)
    killed = run_tersor("join", out, cwd=tmp_path, env=shim(tmp_path, fault=f"unlink:{point}:kill"))
    if killed.returncode == 0:
        return
    assert killed.returncode == -9
    assert tree(tmp_path, out) in (made, {})    # a directory in the making loses files of joins before
    mend(tmp_path, args, out, made)


@pytest.mark.parametrize("name", ["pack", "directory", "spool", "unpack", "code"])
def test_bits_of_reports_and_of_the_common_files_are_checked(tmp_path, where, name):
    """`join` refuses and keeps the parts, whatever was flipped in what they left."""
    args, out, made = where(name)
    for i in 1, 2, 3:
        part(tmp_path, args, i, check=0)
    left = {p: p.read_bytes() for p in tmp_path.rglob("*")
            if p.is_file() and (".part-" in p.name or p.name.endswith(".tmp"))}
    for path, good in left.items():
        report = path.suffix == ".bin"
        step = 61 if LONG else 997
        data = 8 * (HEADER.size + Report(good).data_nbytes) if report else 0
        spots = [*range(0, data, 8 * 20_011), *range(data, len(good) * 8, step)] if report \
            else range(8 * (len(good) // 3), len(good) * 8, 8 * 100_003)
        for bit in spots if LONG else list(spots)[:12]:
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            done = run_tersor("join", out, cwd=tmp_path)
            assert done.returncode in (3, 4), (path, bit, done.stdout)
            assert not (tmp_path / out).exists() and path.exists()
        path.write_bytes(good)
    assert run_tersor("join", out, cwd=tmp_path).returncode == 0 and tree(tmp_path, out) == made


SHARDS = ["pack", "in.safetensors", "-o", "out.safetensors", "--max-shard-size", "300K"]


@pytest.mark.parametrize("name", ["pack", "directory", "shards"])
def test_a_join_with_one_failed_call_can_be_run_again(tmp_path, where, name):
    """Whichever call it is: the first of several files may be in place by then."""
    args, out, made = where(name) if name != "shards" else (SHARDS, "out.safetensors", None)
    if name == "shards":
        where("pack")
        run_tersor(*args, cwd=tmp_path, check=0)
        made = {p.name: p.read_bytes() for p in tmp_path.glob("out*")}
        assert len(made) > 2        # and an index
    shards = lambda: {p.name: p.read_bytes() for p in tmp_path.glob("out*") if ".part-" not in p.name}
    seen = lambda: shards() if name == "shards" else tree(tmp_path, out)
    clear = lambda: [shutil.rmtree(p) if p.is_dir() else p.unlink()
                     for p in [*tmp_path.glob("out*"), *tmp_path.glob(".out*"), *tmp_path.glob("r.json")]]
    calls = ["fsync", "ftruncate", "rename", "close", "pwrite", "open", "stat", "unlink"]
    failed = 0
    for call in calls if LONG else calls[:3]:
        for n in range(1, 28 if LONG else 8):
            clear()
            for i in 1, 2, 3:
                part(tmp_path, args, i, check=0)
            fault = f"{call}:{n}:EIO"
            first = run_tersor("join", out, "-j1", cwd=tmp_path, env=shim(tmp_path, fault=fault))
            if seen() == made:      # complete; or complete, and said to be in doubt
                continue
            assert first.returncode != 0, fault
            again = run_tersor("join", out, cwd=tmp_path)
            assert again.returncode == 0 and seen() == made, (fault, first.stderr, again.stderr)
            failed += 1
    assert failed


def test_a_failed_stat_is_no_answer_about_the_file_of_all_parts(tmp_path, where):
    """`join` says that the system failed, whichever call it is: status 4."""
    args, out, made = where("spool")
    statuses = set()
    for n in range(1, 25):
        (tmp_path / out).unlink(missing_ok=True)
        for i in 1, 2, 3:
            part(tmp_path, args, i, "--continue", check=0)
        done = run_tersor("join", out, "-j1", cwd=tmp_path, env=shim(tmp_path, fault=f"stat:{n}:EIO"))
        assert done.returncode in (0, 4), (n, done.stderr)      # nothing depends on some of them
        assert done.returncode or tree(tmp_path, out) == made
        statuses.add(done.returncode)
    assert statuses == {0, 4}
