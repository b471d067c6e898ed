"""Directories in parts: what N processes pack, unpack and verify file by file is what one makes, to the byte."""
import os
import shutil
import subprocess

import numpy as np
import pytest

from conftest import BINARY, one_line_error, run_tersor, write_source
from helpers.faults import LIBRARY
from helpers.part_reports import HEADER, Report
from test_parts import COUNTS, assert_same, contents

F32 = np.float32
LONG = os.environ.get("TERSOR_LONG") == "1"
SOME = COUNTS if LONG else (1, 3)


def moments(rng, name, n):
    return {f"{name}": rng.normal(size=(n,)).astype(F32),
            f"{name}.exp_avg": rng.normal(size=(n,)).astype(F32) / 100,
            f"{name}.exp_avg_sq": rng.normal(size=(n,)).astype(F32) ** 2 / 1e4 + F32(1e-4)}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file with most of the bytes, files in folders, one that is not worth packing, and copies."""
    rng = np.random.default_rng(5)
    root = tmp_path_factory.mktemp("source") / "in"
    for folder in "optimizer/rank-1", "empty":
        (root / folder).mkdir(parents=True)
    write_source(root / "model.safetensors", {"big.weight": rng.normal(size=(1100, 1201)).astype(F32),
                                              "norm.bias": rng.normal(size=(40,)).astype(F32)})
    for i in range(3):
        write_source(root / "optimizer" / f"state-{i}.safetensors", moments(rng, f"l{i}.weight", 90_001 + 7 * i))
    write_source(root / "optimizer" / "rank-1" / "ids.safetensors", {"ids": np.arange(60_000, dtype=np.int64)})
    run_tersor("convert", root / "optimizer" / "state-1.safetensors", "-o", root / "optimizer" / "rank-1" / "s.pt",
               check=0)
    (root / "config.json").write_text('{"model_type": "x"}\n')
    (root / "optimizer" / "notes.bin").write_bytes(rng.bytes(3_000_000))
    return root


def modes(folder):
    return {str(p.relative_to(folder)): p.stat().st_mode for p in folder.rglob("*")}


@pytest.mark.parametrize("options", [(), ("--entropy",), ("--state", "tight")],
                         ids=lambda o: o[0] if o else "plain")
def test_a_directory_is_packed_in_parts(tmp_path, source, options):
    args = "pack", source, "-o", "out", "--json", "report.json", "-v", *options
    status, _, _, files = assert_same(tmp_path, args, "out", counts=COUNTS if LONG or not options else (3,))
    assert status == 0 and "out/tersor.json" in files and "out/config.json" in files


def test_a_directory_is_unpacked_and_verified_in_parts(tmp_path, source):
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    status, *_ = assert_same(tmp_path, ("unpack", packed, "-o", "back", "--json", "report.json"), "back", SOME)
    assert status == 0
    status, *_ = assert_same(tmp_path, ("verify", packed, "--json", "report.json"), "report.json", SOME)
    assert status == 0
    args = "verify", packed, "--against", source, "--json", "report.json"
    assert_same(tmp_path, args, "report.json", counts=(3,))


def test_a_packed_directory_is_coded_and_made_plain_in_parts(tmp_path, source):
    """The coded pieces of all files lie in one file of each part, which `join` reads file by file."""
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    args = "convert", packed, "-o", "coded", "--json", "report.json"
    status, stdout, _, files = assert_same(tmp_path, (*args, "--entropy", "-v"), "coded", SOME)
    assert status == 0 and "5 files coded" in stdout and "coded/tersor.json" in files
    assert_same(tmp_path, (*args, "--entropy=states"), "coded", counts=(2,))
    run_tersor("convert", packed, "-o", tmp_path / "coded", "--entropy", check=0)
    assert_same(tmp_path, ("convert", tmp_path / "coded", "-o", "plain", "--plain"), "plain", SOME)
    run_tersor("convert", tmp_path / "coded", "-o", tmp_path / "plain", "--plain", check=0)
    assert contents(tmp_path / "plain") == contents(packed)


def code_parts(tmp_path, packed, n):
    for i in range(1, n + 1):
        run_tersor("convert", packed, "-o", "out", "--entropy", "--part", f"{i}/{n}", cwd=tmp_path, check=0)


def test_damage_in_a_directory_that_is_coded_in_parts(tmp_path, source):
    """Of a piece of a file, as one process says it; of what a part wrote; and pieces that no file has."""
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    code_parts(tmp_path, packed, 3)
    path = tmp_path / "out.part-2-of-3.bin"
    good = path.read_bytes()
    size = Report(good).data_nbytes
    flipped = bytearray(good)
    flipped[HEADER.size + size - 1] ^= 1
    path.write_bytes(flipped)
    assert "is damaged" in one_line_error(run_tersor("join", "out", cwd=tmp_path, check=3))
    path.write_bytes(good[:-1])
    assert "expected" in one_line_error(run_tersor("join", "out", cwd=tmp_path, check=3))
    for change in -1, 1:     # fewer bytes of pieces than they are, or more
        report = Report(good)
        report.data_nbytes += change
        report.data = (report.data + b"x")[:report.data_nbytes]
        path.write_bytes(report.bytes())
        one_line_error(run_tersor("join", "out", cwd=tmp_path, check=3))
        assert not (tmp_path / "out").exists()
    path.write_bytes(good)
    run_tersor("join", "out", cwd=tmp_path, check=0)
    path = packed / "optimizer" / "state-1.safetensors.tersor"
    raw = bytearray(path.read_bytes())
    raw[200_000] ^= 1
    path.write_bytes(raw)
    one = run_tersor("convert", packed, "-o", "out2", "--entropy", cwd=tmp_path, check=3)
    shutil.rmtree(tmp_path / "out")
    code_parts(tmp_path, packed, 3)
    done = run_tersor("join", "out", cwd=tmp_path, check=3)
    assert one_line_error(done) == one_line_error(one) and "state-1" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["pwrite:9:ENOSPC", "rename:2:EIO", "all:100:kill", "all:300:kill"])
def test_join_of_a_coded_directory_can_be_run_again(tmp_path, source, what):
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    code_parts(tmp_path, packed, 2)
    env = {"LD_PRELOAD": str(LIBRARY), "TERSOR_FAULT": what, "TERSOR_FAULT_PATH": str(tmp_path)}
    done = run_tersor("join", "out", cwd=tmp_path, env=env)
    assert done.returncode != 0 and not (tmp_path / "out").exists()
    if what == "all:300:kill":
        code_parts(tmp_path, packed, 2)
    run_tersor("join", "out", cwd=tmp_path, check=0)
    run_tersor("convert", packed, "-o", tmp_path / "one", "--entropy", check=0)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "out", "packed"]


def test_directories_are_compared_in_parts(tmp_path, source):
    """With the original, and with another: tensors of a packed file and of a copy, bytes, and files of one side."""
    packed, other = tmp_path / "packed", tmp_path / "other"
    run_tersor("pack", source, "-o", packed, check=0)
    args = "diff", source, packed, "--json", "report.json"
    status, *_ = assert_same(tmp_path, (*args, "--max-error", "rel=0.01", "--max-error", "nmse=1e-3"), "report.json", SOME)
    assert status == 1       # small momenta become zero
    shutil.copytree(source, other)
    write_source(other / "optimizer" / "state-1.safetensors", moments(np.random.default_rng(8), "l1.weight", 90_008))
    write_source(other / "optimizer" / "rank-1" / "ids.safetensors", {"ids": np.arange(1, 60_001, dtype=np.int64)})
    (other / "config.json").write_text("{}")
    (other / "optimizer" / "more.bin").write_bytes(b"x")
    (other / "optimizer" / "state-2.safetensors").unlink()
    status, stdout, _, _ = assert_same(tmp_path, ("diff", packed, other, "-v", "--json", "report.json"), "report.json",
                                       SOME)
    assert status == 1 and "bytes differ" in stdout and "only in A" in stdout and "only in B" in stdout
    assert "ids.safetensors" in stdout and "1 of 1 tensors differ" in stdout
    os.truncate(next(packed.glob("optimizer/state-0*")), 5000)
    status, _, stderr, _ = assert_same(tmp_path, ("diff", packed, other, "--json", "report.json"), "report.json", (2,))
    assert status == 3 and "cannot be read" in stderr


def test_permissions_are_those_of_one_process(tmp_path, source):
    run_tersor("pack", source, "-o", tmp_path / "one", check=0)
    for i in 1, 2:
        run_tersor("pack", source, "-o", "out", "--part", f"{i}/2", cwd=tmp_path, check=0)
    run_tersor("join", "out", cwd=tmp_path, check=0)
    assert modes(tmp_path / "out") == modes(tmp_path / "one")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "one").stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "out"]


def test_faults_of_several_files_are_those_that_one_process_finds(tmp_path, source):
    """A file whose planes are damaged, one that is cut, one that is gone, and a copy that is another."""
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    for name, at in ("model.safetensors.tersor", 300_000), ("optimizer/state-1.safetensors.tersor", 200_000):
        path = packed / name
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    os.truncate(next(packed.glob("optimizer/state-0*")), 5000)
    next(packed.glob("optimizer/state-2*")).unlink()
    (packed / "optimizer" / "notes.bin").write_bytes(b"x" * 3_000_000)
    args = "verify", packed, "--json", "report.json"
    status, _, stderr, _ = assert_same(tmp_path, args, "report.json", counts=(2, 5))
    assert status == 3 and "5 of" in stderr


def test_one_file_with_most_bytes_does_not_unbalance_parts(tmp_path):
    big = tmp_path / "in"
    big.mkdir()
    write_source(big / "big.safetensors", {"w.weight": np.ones((16, 1 << 18), F32)})
    for i in range(4):
        write_source(big / f"small-{i}.safetensors", {"w.weight": np.ones(1 << 18, F32)})
    mib = []
    for i in range(1, 5):
        done = run_tersor("pack", big, "-o", "out", "--part", f"{i}/4", cwd=tmp_path, check=0)
        mib.append(float(done.stdout.split(": ")[-1].split()[0]))
    assert max(mib) <= 1.1 * sum(mib) / 4


def pack_parts(tmp_path, source, n, skip=(), options=()):
    for i in range(1, n + 1):
        if i not in skip:
            run_tersor("pack", source, "-o", "out", *options, "--part", f"{i}/{n}", cwd=tmp_path, check=0)


def test_a_directory_without_all_its_parts_is_refused(tmp_path, source):
    pack_parts(tmp_path, source, 3, skip=(2,))
    assert "part 2 is missing" in one_line_error(run_tersor("join", "out", cwd=tmp_path, check=4))
    folder, = tmp_path.glob(".out.*.tmp")
    pack_parts(tmp_path, source, 3, skip=(1, 3))
    shutil.move(folder, tmp_path / "elsewhere")
    assert "the directory of all parts" in one_line_error(run_tersor("join", "out", cwd=tmp_path, check=4))
    folder.symlink_to("elsewhere")
    assert "the directory of all parts" in one_line_error(run_tersor("join", "out", cwd=tmp_path, check=4))
    folder.unlink()
    shutil.move(tmp_path / "elsewhere", folder)
    run_tersor("join", "out", cwd=tmp_path, check=0)
    run_tersor("pack", source, "-o", tmp_path / "one", check=0)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_a_source_that_changes_between_parts_is_refused(tmp_path, source):
    mine = tmp_path / "in"
    shutil.copytree(source, mine)
    pack_parts(tmp_path, mine, 2)
    os.utime(mine / "optimizer" / "state-1.safetensors", (1, 1))
    assert "the inputs have changed since" in one_line_error(run_tersor("join", "out", cwd=tmp_path, check=3))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["pwrite:9:ENOSPC", "rename:2:EIO", "all:60:kill", "all:150:kill", "all:300:kill"])
def test_join_that_fails_within_a_directory_can_be_run_again(tmp_path, source, what):
    """Files that it had put in place by then are taken back, also by parts that are done again."""
    pack_parts(tmp_path, source, 2)
    env = {"LD_PRELOAD": str(LIBRARY), "TERSOR_FAULT": what, "TERSOR_FAULT_PATH": str(tmp_path)}
    done = run_tersor("join", "out", cwd=tmp_path, env=env)
    assert done.returncode != 0 and not (tmp_path / "out").exists()
    if what == "all:300:kill":
        pack_parts(tmp_path, source, 2)
    run_tersor("join", "out", cwd=tmp_path, check=0)
    run_tersor("pack", source, "-o", tmp_path / "one", check=0)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "out"]


@pytest.mark.parametrize("n", range(1, 25) if LONG else (1, 9, 16))
def test_a_join_whose_rename_fails_can_be_run_again(tmp_path, source, n):
    """The planes that it codes were once removed before the directory was put in place."""
    pack_parts(tmp_path, source, 2, options=("--entropy",))
    env = {"LD_PRELOAD": str(LIBRARY), "TERSOR_FAULT": f"rename:{n}:EIO", "TERSOR_FAULT_PATH": str(tmp_path)}
    done = run_tersor("join", "out", cwd=tmp_path, env=env)
    assert done.returncode in (0, 4)
    if done.returncode:
        assert not (tmp_path / "out").exists()
        run_tersor("join", "out", cwd=tmp_path, check=0)
    run_tersor("pack", source, "-o", tmp_path / "one", "--entropy", check=0)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "out"]


def test_a_part_without_its_data_is_done_again(tmp_path, source):
    """With --continue: coded pieces are in the report, whose size says whether all are there."""
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    code_parts(tmp_path, packed, 2)
    args = "convert", packed, "-o", "out", "--entropy", "--part", "2/2", "--continue"
    assert "before" in run_tersor(*args, cwd=tmp_path, check=0).stdout
    report = tmp_path / "out.part-2-of-2.bin"
    for damage in report.unlink, lambda: os.truncate(report, report.stat().st_size - 5):
        damage()
        assert "before" not in run_tersor(*args, cwd=tmp_path, check=0).stdout
    run_tersor("join", "out", cwd=tmp_path, check=0)


def test_parts_that_run_at_once_make_the_same_directories(tmp_path):
    """Two once saw that a directory was not there, and one of them failed to make it."""
    root = tmp_path / "in"
    for i in range(200):
        (root / f"folder-{i:03}").mkdir(parents=True)
    write_source(root / "w.safetensors", {"w.weight": np.ones((100, 100), F32)})
    running = [subprocess.Popen([BINARY, "pack", root, "-o", "out", "--part", f"{i}/6", "-j1", "-qq"], cwd=tmp_path,
                                stderr=subprocess.PIPE) for i in range(1, 7)]
    assert [(p.communicate()[1], p.returncode) for p in running] == [(b"", 0)] * 6
    run_tersor("join", "out", cwd=tmp_path, check=0)
    run_tersor("pack", root, "-o", tmp_path / "one", check=0)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


@pytest.mark.parametrize("at", range(20, 700, 20) if LONG else (340, 400))
@pytest.mark.parametrize("options", [(), ("--entropy",)], ids=["plain", "coded"])
def test_a_join_that_was_killed_leaves_nothing_in_the_directory(tmp_path, source, options, at):
    """Its files in the making were once published with the directory by the one after it.  A file of the source
    that has such a name is copied, as all others."""
    mine = tmp_path / "in"
    shutil.copytree(source, mine)
    (mine / "optimizer" / ".model.safetensors.0123456789abcdef.tmp").write_bytes(b"not ours to remove")
    pack_parts(tmp_path, mine, 2, options=options)
    env = {"LD_PRELOAD": str(LIBRARY), "TERSOR_FAULT": f"all:{at}:kill", "TERSOR_FAULT_PATH": str(tmp_path)}
    done = run_tersor("join", "out", cwd=tmp_path, env=env)
    if done.returncode != 0:
        run_tersor("join", "out", cwd=tmp_path, check=0)
    run_tersor("pack", mine, "-o", tmp_path / "one", *options, check=0)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
