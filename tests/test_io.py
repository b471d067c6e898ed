"""Files under faults, and hazards of inputs.

The faults come from outside, by LD_PRELOAD of build/tests/libfaults.so (tests/faults/faults.c tells
its rules).  TERSOR_LONG=1 runs the full products instead of samples; with a TERSOR that was built
with AddressSanitizer the test of failing allocations also finds leaks.
"""
import ctypes
import fcntl
import itertools
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from errno import EACCES, EMFILE

import numpy as np
import pytest

from conftest import BINARY, DATA, one_line_error, run_tersor, safetensors_bytes
from faults import LIBRARY, LONG, NEVER, is_temp, read_log, shim, spread
import torchfile

ERRNOS = ["EIO", "ENOSPC", "EDQUOT", "EACCES", "EMFILE"]
COMMANDS = ["pack", "unpack"]
NO_PREALLOCATION = "fallocate:1+:EOPNOTSUPP"


# ---- common parts ----

def ordinal(events, call, wanted):
    """Which of the calls of this kind is the first one that `wanted` accepts, from 1."""
    begun = [e for e in events if e.mark == ">" and e.call == call]
    return next(i for i, e in enumerate(begun, 1) if wanted(e))


class Job:
    """A run of one command in a directory of its own; `old` is what the target holds before."""

    def __init__(self, root, command, source, expected, old=None):
        self.command, self.source_bytes, self.expected, self.old = command, source, expected, old
        self.root = root
        self.source = root / "in.safetensors"
        self.out = root / "out"
        self.target = self.out / "target.safetensors"
        self.log = root / "log"
        self.reset()

    def reset(self):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.source.unlink(missing_ok=True)
        self.source.write_bytes(self.source_bytes)
        os.utime(self.source, (1_000_000_000, 1_000_000_000))   # any later change shows
        if self.old is not None:
            self.target.write_bytes(self.old)
        self.log.unlink(missing_ok=True)

    def args(self, *extra):
        force = [] if self.old is None else ["--force"]
        return [self.command, self.source, "-o", self.target, *force, *map(str, extra)]

    def run(self, fault=NEVER, *extra, malloc=None, count=None, **kwargs):
        """Run with the fault; the source must come out of it unharmed."""
        done = run_tersor(*self.args(*extra), **kwargs,
                          env=shim(self.root, fault, malloc, self.log, count))
        assert self.source.read_bytes() == self.source_bytes
        return done

    def start(self, fault=NEVER, *extra):
        env = dict(os.environ, LC_ALL="C", **shim(self.root, fault, log=self.log))
        return subprocess.Popen([BINARY, *map(str, self.args(*extra))], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def events(self):
        return read_log(self.log)

    def names(self):
        return sorted(p.name for p in self.out.iterdir())

    def state(self):
        """"old", "new", or what is wrong with the output directory."""
        names = self.names()
        if names == [] and self.old is None:
            return "old"
        if names != [self.target.name]:
            return f"files {names}"
        got = self.target.read_bytes()
        if got == self.expected:
            return "new"
        return "old" if got == self.old else f"target holds {len(got)} other bytes"

    def must_be_clean(self, done, status=4):
        assert done.returncode == status, (done.returncode, done.stderr)
        assert self.state() == "old"
        return one_line_error(done)

    def must_have_worked(self, done):
        assert done.returncode == 0, (done.returncode, done.stderr)
        assert self.state() == "new"


def checkpoint(seed, sizes):
    """An FP32 checkpoint with Adam state, as bytes."""
    rng = np.random.default_rng(seed)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for i, shape in enumerate(sizes):
        for suffix in ("", ".exp_avg", ".exp_avg_sq"):
            values = rng.standard_normal(shape).astype(np.float32) * np.float32(0.01)
            # As of an optimizer: the root of a variance is not far below its momentum.
            values = values * values + np.float32(1e-4) if suffix == ".exp_avg_sq" else values
            header[f"layer{i}.weight{suffix}"] = {
                "dtype": "F32", "shape": list(shape),
                "data_offsets": [len(data), len(data) + values.nbytes]}
            data += values.tobytes()
    header["step"] = {"dtype": "I64", "shape": [], "data_offsets": [len(data), len(data) + 8]}
    return safetensors_bytes(header, data + struct.pack("<q", 400))


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """{size: {command: (source, expected output)}} made by runs without faults."""
    root = tmp_path_factory.mktemp("material")
    sources = {
        "small": checkpoint(1, [(257,), (64, 33)]),
        "other": checkpoint(2, [(257,), (64, 33)]),
        "tiny-gpt": (DATA / "tiny-gpt" / "checkpoint.safetensors").read_bytes(),
    }
    result = {}
    for name, source in sources.items():
        plain, packed, unpacked = (root / f"{name}-{kind}" for kind in ("plain", "packed", "back"))
        plain.write_bytes(source)
        run_tersor("pack", plain, "-o", packed, check=0)
        run_tersor("unpack", packed, "-o", unpacked, check=0)
        result[name] = {"pack": (source, packed.read_bytes()),
                        "unpack": (packed.read_bytes(), unpacked.read_bytes())}
    return result


@pytest.fixture
def scratch(tmp_path):
    """A directory for hundreds of runs: in memory where there is such a place, as fsync is slow."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield pathlib.Path(path)


@pytest.fixture
def make_job(material, scratch):
    numbers = itertools.count()

    def make(command, size="small", replace=False, root=scratch):
        source, expected = material[size][command]
        old = material["other"][command][1] if replace else None
        return Job(root / f"job{next(numbers)}", command, source, expected, old)
    return make


@pytest.fixture(params=[f"{c}-{kind}" for c in COMMANDS for kind in ("new", "replace")])
def job(request, make_job):
    """pack and unpack of a small file, each to a new name and with --force over an old file."""
    command, kind = request.param.split("-")
    return make_job(command, replace=kind == "replace")


def wait_until_stopped(process):
    """False if the process ended instead; it can still be waited for."""
    for _ in range(20000):
        how = os.waitid(os.P_PID, process.pid,
                        os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if how:
            return how.si_code == os.CLD_STOPPED
        time.sleep(0.001)
    process.kill()
    return False


def finish(process, timeout=60):
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


# ---- the fault library itself: a fault that does not happen would prove nothing ----

SELF_TEST = r"""
import errno, os, sys
d, call = sys.argv[1:]
def opened(flags=os.O_RDWR): return os.open(d + "/file", flags)
fd = opened() if call != "open" else -1
calls = {
    "open": opened,
    "read": lambda: os.read(fd, 10), "pread": lambda: os.pread(fd, 10, 0),
    "write": lambda: os.write(fd, b"x" * 10), "pwrite": lambda: os.pwrite(fd, b"x" * 10, 0),
    "fallocate": lambda: os.posix_fallocate(fd, 0, 10), "ftruncate": lambda: os.ftruncate(fd, 10),
    "fsync": lambda: os.fsync(fd), "close": lambda: os.close(fd),
    "rename": lambda: os.rename(d + "/file", d + "/file2"),
    "linkat": lambda: os.link(d + "/file", d + "/file2"),
    "unlink": lambda: os.unlink(d + "/file"),
    "mkdir": lambda: os.mkdir(d + "/file2"), "stat": lambda: os.fstat(fd).st_size,
    "chmod": lambda: os.chmod(d + "/file", 0o600), "readdir": lambda: os.listdir(d)[0],
}
try:
    result = calls[call]()
    print("done", len(result) if isinstance(result, bytes) else result)
except OSError as e:
    print(errno.errorcode[e.errno])
"""


def run_self_test(directory, call, fault, **kwargs):
    (directory / "file").write_bytes(bytes(10))
    env = dict(os.environ, **shim(directory, fault, log=directory.parent / "log", **kwargs))
    return subprocess.run([sys.executable, "-c", SELF_TEST, directory, call], env=env, text=True,
                          capture_output=True, timeout=60)


SHIM_CALLS = ["open", "read", "pread", "write", "pwrite", "fallocate", "ftruncate", "fsync",
              "close", "rename", "linkat", "unlink", "mkdir", "stat", "chmod", "readdir"]


@pytest.mark.parametrize("call", SHIM_CALLS)
def test_faults_reach_every_call(call, tmp_path):
    directory = tmp_path / "d"
    directory.mkdir()
    done = run_self_test(directory, call, f"{call}:1:EDQUOT")
    assert done.stdout == "EDQUOT\n", done.stderr
    failed = [e for e in read_log(tmp_path / "log") if e.mark == ">" and e.err]
    path = {"mkdir": directory / "file2", "readdir": directory}.get(call, directory / "file")
    assert [(e.call, e.path) for e in failed] == [(call, str(path))]
    # other files and later calls are left alone
    assert run_self_test(directory, call, f"{call}:9:EDQUOT").stdout.startswith("done")
    env = dict(os.environ, **shim(directory / "elsewhere", f"{call}:1+:EDQUOT"))
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "file").write_bytes(bytes(10))
    done = subprocess.run([sys.executable, "-c", SELF_TEST, directory, call], env=env, text=True,
                          capture_output=True)
    assert done.stdout.startswith("done")


def test_faults_shorten_signal_and_count(tmp_path):
    directory = tmp_path / "d"
    directory.mkdir()
    for call in ("read", "pread", "write", "pwrite"):
        assert run_self_test(directory, call, f"{call}:1:short=3").stdout == "done 3\n"
        assert run_self_test(directory, call, f"{call}:1:short1-all").stdout == "done 1\n"
    assert run_self_test(directory, "write", "write:1:kill").returncode == -signal.SIGKILL
    count = tmp_path / "count"
    done = run_self_test(directory, "fsync", "any:9:kill,fsync:1:EIO", count=count)
    assert done.stdout == "EIO\n"
    n = struct.unpack("9Q", count.read_bytes())
    assert n[:3] == (2, 1, 0) and n[8] > 0      # one open and one fsync of the file; allocations
    assert run_self_test(directory, "write", "wrote:1:EIO").returncode == 125


# ---- Every call fails once ----

def may_be_ignored(event, job):
    """Failures that harm nothing: of closing a file that was only read, and of preallocation by an
    errno that cannot mean a full disk."""
    if event.call == "fallocate":
        return event.err in (EACCES, EMFILE)
    return event.call == "close" and not is_temp(event.path, job.target)


def one_fault(job, fault, *extra):
    """Run with a fault; return what is wrong with the outcome, or None."""
    job.reset()
    done = job.run(fault, *extra)
    injected = [e for e in job.events() if e.mark == ">" and e.err]
    state = job.state()
    after_publish = any(e.mark == "<" and e.call in ("rename", "linkat") and e.n == 0
                        for e in job.events())
    lines = done.stderr.splitlines()
    told = len(lines) == 1 and lines[0].startswith("tersor: ")
    if done.returncode == 0:
        right = state == "new" and all(may_be_ignored(e, job) for e in injected)
    elif done.returncode == 4 and after_publish:
        right = state == "new" and told and "published" in lines[0]
    else:
        right = done.returncode == 4 and state == "old" and told
    if right:
        return None
    what = [(e.call, os.path.relpath(e.path, job.root)) for e in injected]
    return f"{fault} {what}: exit {done.returncode}, {state}, {done.stderr!r}"


@pytest.mark.parametrize("threads", [1, 3])
def test_every_call_fails_once_and_leaves_the_target_clean(job, threads):
    job.must_have_worked(job.run(NEVER, "-j", threads))
    begun = [e for e in job.events() if e.mark == ">"]
    faults = []
    for n in spread(len(begun), 60):
        errnos = ERRNOS if LONG else [ERRNOS[(n + threads) % len(ERRNOS)]]
        faults += [f"any:{n}:{errno}" for errno in errnos]
    for call in {e.call for e in begun}:        # and each kind, at its ends, with every errno
        for n in {1, sum(e.call == call for e in begun)}:
            faults += [f"{call}:{n}:{errno}" for errno in ERRNOS]
    wrong = [one_fault(job, fault, "-j", threads) for fault in dict.fromkeys(faults)]
    assert [w for w in wrong if w] == []


@pytest.mark.parametrize("threads", [1, 3])
def test_every_call_fails_from_then_on_and_leaves_the_target_clean(job, threads):
    """A disk that goes away: even cleaning up fails, then a temporary file may stay."""
    job.run(NEVER, "-j", threads)
    n_calls = sum(e.mark == ">" for e in job.events())
    for n in spread(n_calls, 12):
        job.reset()
        done = job.run(f"any:{n}+:EIO", "-j", threads)
        left = [name for name in job.names() if name != job.target.name]
        assert all(is_temp(job.out / name, job.target) for name in left), left
        for name in left:
            (job.out / name).unlink()
        published = job.state() == "new"
        assert published or job.state() == "old", (n, job.state())
        if done.returncode != 0 or not published:
            assert done.returncode == 4, (n, done.returncode)
            assert ("published" in one_line_error(done)) == published


@pytest.mark.parametrize("command", ["verify", "inspect", "diff"])
def test_every_call_of_a_reader_fails_once(command, make_job):
    job = make_job("unpack")                    # its source is a packed checkpoint
    args = [command, job.source, *([job.source] if command == "diff" else [])]
    clean = run_tersor(*args, check=0, env=shim(job.root, log=job.log))
    begun = [e for e in job.events() if e.mark == ">"]
    assert begun
    for n in spread(len(begun), 40):
        for errno in ERRNOS if LONG else [ERRNOS[n % len(ERRNOS)]]:
            job.reset()
            done = run_tersor(*args, env=shim(job.root, f"any:{n}:{errno}", log=job.log))
            failed = [e for e in job.events() if e.mark == ">" and e.err]
            if done.returncode == 0:
                assert done.stdout == clean.stdout
                assert all(may_be_ignored(e, job) for e in failed), (n, errno, failed)
            else:
                assert done.returncode == 4, (n, errno, failed, done.stderr)
                one_line_error(done)
            assert job.state() == "old"


# ---- Short transfers and interruptions ----

@pytest.mark.parametrize("fault", [
    "any:1:eintr-all",
    "any:1:short1-all,any:1:eintr-all",
    "any:1+:short=4093",
    *(f"{call}:1:eintr-all" for call in
      ("open", "read", "pread", "write", "pwrite", "fallocate", "ftruncate", "fsync", "close")),
])
def test_short_and_interrupted_calls_change_nothing(job, fault):
    done = job.run(fault)
    job.must_have_worked(done)
    moved = sum(e.n for e in job.events() if e.mark == "<" and e.err == 0
                and e.call in ("write", "pwrite"))
    assert moved >= len(job.expected)           # the fault library saw all of it


@pytest.mark.parametrize("command", COMMANDS)
def test_short_and_interrupted_calls_change_nothing_of_a_real_checkpoint(command, make_job):
    job = make_job(command, "tiny-gpt")
    job.must_have_worked(job.run("any:1+:short=1021,any:1:eintr-all", "-j", 3))


def test_a_write_of_nothing_is_an_error(job):
    for call in ("write", "pwrite"):
        job.reset()
        done = job.run(f"{call}:1+:short=0", timeout=20)
        if any(e.call == call for e in job.events()):
            assert "no progress" in job.must_be_clean(done)


# ---- No space ----

def write_call(job):
    """The call that the tool writes with, and how often it does in pieces of 512 bytes."""
    job.reset()
    job.must_have_worked(job.run("write:1+:short=512,pwrite:1+:short=512"))
    begun = [e.call for e in job.events() if e.mark == ">" and e.call in ("write", "pwrite")]
    assert len(set(begun)) == 1
    job.reset()
    return begun[0], len(begun)


@pytest.mark.parametrize("errno", ["ENOSPC", "EDQUOT"])
def test_disk_full_after_some_writes_leaves_the_target_clean(job, errno):
    call, n_writes = write_call(job)
    for percent in (0, 1, 50, 99):
        n = 1 + n_writes * percent // 100
        for more in ("", "," + NO_PREALLOCATION):
            job.reset()
            done = job.run(f"{call}:1+:short=512,{call}:{n}+:{errno}{more}")
            line = job.must_be_clean(done)
            assert re.search("space" if errno == "ENOSPC" else "quota", line), line


@pytest.mark.parametrize("errno", ["ENOSPC", "EDQUOT"])
def test_preallocation_finds_the_disk_full(job, errno):
    done = job.run(f"fallocate:1+:{errno}")
    if any(e.call == "fallocate" for e in job.events()):
        job.must_be_clean(done)


@pytest.mark.parametrize("percent", [0, 1, 50, 99])
def test_limit_of_file_sizes_leaves_the_target_clean(job, percent):
    limit = len(job.expected) * percent // 100

    def set_limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    for more in ("", NO_PREALLOCATION):
        job.reset()
        env = {"LD_PRELOAD": LIBRARY, "TERSOR_FAULT": more} if more else {}
        done = run_tersor(*job.args(), env=env, preexec_fn=set_limit)
        job.must_be_clean(done)


@pytest.fixture(scope="session")
def may_mount(tmp_path_factory):
    point = tmp_path_factory.mktemp("mount")
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", point], capture_output=True).returncode:
        return False
    subprocess.run(["umount", point], check=True)
    return True


@pytest.mark.parametrize("percent", [0, 1, 50, 99])
@pytest.mark.parametrize("command", COMMANDS)
def test_full_tmpfs_leaves_the_target_clean(command, percent, make_job, may_mount, tmp_path):
    """A really full disk.  Where mounting is not allowed, the same by faults alone."""
    point = tmp_path / "disk"
    point.mkdir()
    if not may_mount:
        job = make_job(command, "tiny-gpt")
        call, n_writes = write_call(job)
        n = 1 + n_writes * percent // 100
        job.must_be_clean(job.run(f"{call}:1+:short=512,{call}:{n}+:ENOSPC,{NO_PREALLOCATION}"))
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", point], check=True)
    try:
        job = make_job(command, "tiny-gpt", root=point)
        job.must_have_worked(run_tersor(*job.args()))       # it does fit
        for fault in (NEVER, NO_PREALLOCATION):
            job.reset()
            free = os.statvfs(point).f_bavail * os.statvfs(point).f_frsize
            keep = len(job.expected) * percent // 100 // 4096 * 4096
            filler = point / "filler"
            with open(filler, "wb") as f:
                os.posix_fallocate(f.fileno(), 0, free - keep)
            done = run_tersor(*job.args(), env={"LD_PRELOAD": LIBRARY, "TERSOR_FAULT": fault})
            assert "space" in job.must_be_clean(done)
            filler.unlink()
    finally:
        subprocess.run(["umount", point], check=True)


# ---- Publishing fails ----

def test_failed_fsync_is_final(job):
    job.run()
    n = ordinal(job.events(), "fsync", lambda e: is_temp(e.path, job.target))
    job.reset()
    job.must_be_clean(job.run(f"fsync:{n}:EIO"))
    assert sum(e.mark == ">" and e.call == "fsync" for e in job.events()) == n     # no second try


@pytest.mark.parametrize("errno", ["EIO", "ENOSPC", "EDQUOT"])
def test_failed_close_of_the_output_leaves_the_target_clean(job, errno):
    job.run()
    n = ordinal(job.events(), "close", lambda e: is_temp(e.path, job.target))
    job.reset()
    job.must_be_clean(job.run(f"close:{n}:{errno}"))


@pytest.mark.parametrize("errno", ["EXDEV", "EACCES", "EIO", "EPERM", "EROFS"])
def test_failed_rename_leaves_the_target_clean(job, errno):
    job.must_be_clean(job.run(f"rename:1+:{errno},linkat:1+:{errno}"))


def test_kernel_without_rename_noreplace_is_served_or_fails_cleanly(job):
    """The file system may not know the flag: another way, or a clean failure."""
    done = job.run("rename:1:EINVAL")
    if done.returncode == 0:
        job.must_have_worked(done)
    else:
        job.must_be_clean(done)


def test_rename_by_linking_cannot_remove_the_temporary_name(job):
    """The target is there: to say that it is not would be worse than the leftover."""
    done = job.run("rename:1:EINVAL,unlink:1+:EIO")
    if any(e.call == "linkat" for e in job.events()):
        left = [name for name in job.names() if name != job.target.name]
        assert all(is_temp(job.out / name, job.target) for name in left)
        assert job.target.read_bytes() == job.expected
        assert done.returncode == 0 or "published" in one_line_error(done)


def test_failed_fsync_of_the_directory_has_its_own_message(job):
    """Its own message: the file is published, but may not be durable."""
    job.run()
    n = ordinal(job.events(), "fsync", lambda e: e.path == str(job.out))
    job.reset()
    done = job.run(f"fsync:{n}:EIO")
    assert done.returncode == 4
    assert job.state() == "new"
    line = one_line_error(done)
    assert str(job.target) in line and "published" in line


def test_failure_while_cleaning_up_keeps_the_first_message(job):
    """The first error is the one to report; the temporary file cannot but stay."""
    call, _ = write_call(job)
    done = job.run(f"{call}:1:ENOSPC,unlink:1+:EIO")
    assert done.returncode == 4
    assert "space" in one_line_error(done)
    left = [name for name in job.names() if name != job.target.name]
    assert len(left) == 1 and is_temp(job.out / left[0], job.target)
    (job.out / left[0]).unlink()
    assert job.state() == "old"


# ---- Kill -9 ----

def check_after_kill(job, wrong, where):
    left = [name for name in job.names() if name != job.target.name]
    for name in left:
        if not is_temp(job.out / name, job.target):
            wrong.append(f"{where}: left {name}")
        (job.out / name).unlink()
    state = job.state()
    if state not in ("old", "new"):
        wrong.append(f"{where}: {state}")
    elif job.command == "pack" and job.target.exists():
        run_tersor("verify", job.target, check=0)
    return state, bool(left)


def test_kill_at_every_call_leaves_the_old_or_the_new_file(job):
    job.run()
    n_calls = sum(e.mark == ">" for e in job.events())
    wrong, seen = [], set()
    for n in range(1, n_calls + 1):
        job.reset()
        done = job.run(f"any:{n}:kill")
        assert done.returncode == -signal.SIGKILL
        seen.add(check_after_kill(job, wrong, n))
    assert wrong == []
    assert ("old", False) in seen and ("old", True) in seen and ("new", False) in seen, seen


@pytest.mark.parametrize("size, slow", [
    ("small", "write:1+:short=512,pwrite:1+:short=512,any:1+:delay=1"), ("tiny-gpt", NEVER)])
def test_kill_at_random_points_leaves_the_old_or_the_new_file(size, slow, make_job):
    rng = random.Random(59)
    for command in COMMANDS:
        job = make_job(command, size, replace=True)
        begin = time.monotonic()
        job.must_have_worked(job.run(slow))
        whole = time.monotonic() - begin
        wrong = []
        for i in range(500 if LONG else 25):
            job.reset()
            process = job.start(slow, "-j", 1 + i % 3)
            time.sleep(rng.random() * whole)
            process.kill()
            process.communicate()
            check_after_kill(job, wrong, i)
        assert wrong == []
        job.reset()
        (job.out / f".{job.target.name}.{'0123456789abcdef'}.tmp").write_bytes(b"left behind")
        run_tersor(*job.args(), check=0)        # a leftover is in nobody's way
        assert job.target.read_bytes() == job.expected
        assert len(job.names()) == 2            # and is not deleted blindly


# ---- Signals that ask to stop ----

@pytest.mark.parametrize("name", ["sigint", "sigterm", "sighup"])
def test_signal_at_any_call_cleans_up(job, name):
    number = getattr(signal, name.upper())
    ended = {128 + number, -number}             # by exit, or by the signal itself: same to a shell
    job.run()
    n_calls = sum(e.mark == ">" for e in job.events())
    states = set()
    for n in spread(n_calls, 30):
        job.reset()
        done = job.run(f"any:{n}:{name}", "-j", 1 + n % 2)
        state = job.state()
        states.add((state, done.returncode in ended))
        assert state == "old" or done.returncode == 0, f"call {n}: the output is there, the status {done.returncode}"
        assert len(done.stderr.splitlines()) <= 1, done.stderr
        assert state in ("old", "new"), (n, state)
        assert done.returncode in ended or (done.returncode == 0 and state == "new"), (
            n, done.returncode, state)
    assert ("old", True) in states


@pytest.mark.parametrize("name", ["sigint", "sigterm", "sighup"])
@pytest.mark.parametrize("command", COMMANDS)
def test_signal_after_the_output_has_its_name_changes_nothing(command, name, make_job):
    """On the call that closes its directory, and on those after it that close the inputs."""
    job = make_job(command, "tiny-gpt", replace=True)
    job.must_have_worked(job.run(NEVER, "-j1"))
    calls = [e for e in job.events() if e.mark == ">"]
    named = max(i for i, e in enumerate(calls) if e.call.startswith("rename"))
    assert len(calls) > named + 2
    for n in range(named + 2, len(calls) + 1):
        job.reset()
        job.must_have_worked(job.run(f"any:{n}:{name}", "-j1"))


@pytest.mark.parametrize("name", ["sigint", "sigterm", "sighup"])
@pytest.mark.parametrize("command", COMMANDS)
def test_signal_from_outside_mid_write_cleans_up(command, name, make_job):
    number = getattr(signal, name.upper())
    job = make_job(command, "tiny-gpt", replace=True)
    slow = "write:1+:short=16384,pwrite:1+:short=16384,write:1+:delay=10,pwrite:1+:delay=10"
    rng = random.Random(60)
    for i in range(40 if LONG else 4):
        job.reset()
        process = job.start(slow, "-j", 1 + i % 3)
        while process.poll() is None and not any(is_temp(job.out / name, job.target)
                                                 for name in job.names()):
            time.sleep(0.001)
        time.sleep(rng.random() * 0.02)
        process.send_signal(number)
        done = finish(process)
        assert done.returncode in (128 + number, -number), (done.returncode, done.stderr)
        assert job.state() == "old"


def test_ignored_hangup_stays_ignored(make_job):
    """As nohup asks."""
    job = make_job("pack")
    done = job.run("any:3:sighup",
                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    job.must_have_worked(done)


# ---- Order of writes, and the states that a power cut can leave ----

def test_data_is_synced_before_it_is_renamed(job):
    job.must_have_worked(job.run(NEVER, "-j", 3))
    events = job.events()

    def positions(mark, calls, path):
        return [i for i, e in enumerate(events) if e.mark == mark and e.call in calls
                and (is_temp(e.path, job.target) if path == "temp" else e.path == str(path))]

    written = positions("<", ("write", "pwrite"), "temp")
    sizes = positions("<", ("ftruncate", "fallocate"), "temp")
    covered = np.zeros(len(job.expected), bool)
    for i in written:
        covered[events[i].off:events[i].off + events[i].n] = True
    assert covered.all()                        # all bytes went by calls that the library saw
    sync_begin, = positions(">", ("fsync",), "temp")
    sync_end, = positions("<", ("fsync",), "temp")
    closed, = positions("<", ("close",), "temp")
    publish_begin, = positions(">", ("rename", "linkat"), "temp")
    publish_end, = positions("<", ("rename", "linkat"), "temp")
    dir_sync_begin, = positions(">", ("fsync",), job.out)
    order = [max(written + sizes), sync_begin, sync_end, closed, publish_begin, publish_end,
             dir_sync_begin]
    assert order == sorted(order)
    assert events[publish_begin].path2 == str(job.target)
    touched = ("write", "pwrite", "ftruncate", "fallocate")
    assert not positions(">", touched, job.target) and not positions(">", touched, job.source)


def crash_contents(done, pending, job):
    """What the target can hold after a power cut: `done` are the calls that had ended, `pending` is
    one that had begun or None.  Writes that were not fsynced may be there, or not, or in half, and
    changes of the directory likewise up to its fsync."""
    files, temp = {}, None                      # extents per file: [offset, length, is durable]
    changes = []                                # of names, not yet durable
    base = job.old

    def image(path, choose):
        data = bytearray(len(job.expected))
        for off, n, durable in files[path]:
            n = n if durable else choose(n)
            data[off:off + n] = job.expected[off:off + n]
        return bytes(data)

    durable_name = None
    for e in done + ([pending] if pending else []):
        if is_temp(e.path, job.target):
            temp = e.path
            extents = files.setdefault(temp, [])
            if e.call in ("write", "pwrite"):
                extents.append([e.off, max(e.n, 0), False])
            elif e.call == "fsync" and e is not pending:
                for extent in extents:
                    extent[2] = True
            elif e.call in ("rename", "linkat"):
                changes.append(temp)
        elif e.call == "fsync" and e.path == str(job.out) and e is not pending and changes:
            durable_name, changes = changes[-1], []
    kept = [lambda n: 0, lambda n: n, lambda n: n // 2]
    for name in {durable_name, *changes}:
        if name is None:
            yield base
        else:
            yield from (image(name, choose) for choose in kept)


def test_power_cut_at_every_call_leaves_the_old_or_the_new_file(job):
    job.must_have_worked(job.run("write:1+:short=512,pwrite:1+:short=512"))
    events = job.events()
    seen = set()
    for i, event in enumerate(events):
        done = [e for e in events[:i] if e.mark == "<"]
        for content in crash_contents(done, event if event.mark == ">" else None, job):
            assert content in (job.old, job.expected), f"torn at {event}"
            seen.add(content)
    assert seen == {job.old, job.expected}
    # the model does tell: without the fsync of the file there is a torn state
    lame = [e for e in events if e.mark == "<" and not (e.call == "fsync" and is_temp(
        e.path, job.target))]
    assert not set(crash_contents(lame, None, job)) <= {job.old, job.expected}


# ---- The output is an input ----

@pytest.mark.parametrize("force", [[], ["--force"]], ids=["plain", "force"])
@pytest.mark.parametrize("how", ["path", "dot", "parent", "hard-link", "symlink", "linked-dir"])
@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_is_the_input_is_refused(command, how, force, make_job):
    job = make_job(command)
    target = job.out / "t"
    if how == "path":
        target = job.source
    elif how == "dot":
        target = f"{job.root}/./{job.source.name}"
    elif how == "parent":
        target = f"{job.out}/../{job.source.name}"
    elif how == "hard-link":
        os.link(job.source, target)
    elif how == "symlink":
        target.symlink_to(job.source)
    else:
        target.symlink_to(job.root)
        target = target / job.source.name
    before = job.source.stat()
    done = run_tersor(command, job.source, "-o", target, *force)
    assert done.returncode == 4
    one_line_error(done)
    after = job.source.stat()
    assert job.source.read_bytes() == job.source_bytes
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [p.name for p in job.root.iterdir() if p.suffix == ".tmp"] == []
    assert set(job.names()) <= {"t"}


@pytest.mark.parametrize("how", ["path", "hard-link"])
@pytest.mark.parametrize("command", [*COMMANDS, "verify", "inspect", "diff"])
def test_json_report_over_the_input_is_refused(command, how, make_job):
    job = make_job(command if command in COMMANDS else "unpack")
    args = job.args()
    if command not in COMMANDS:
        args = [command, job.source, *([job.source] if command == "diff" else [])]
    report = job.source if how == "path" else job.root / "link"
    if how == "hard-link":
        os.link(job.source, report)
    done = run_tersor(*args, f"--json={report}")
    assert done.returncode in (2, 4)
    one_line_error(done)
    assert job.source.read_bytes() == report.read_bytes() == job.source_bytes
    assert job.names() == []


def test_json_report_over_the_output_is_refused(job):
    done = run_tersor(*job.args(), f"--json={job.target}")
    assert done.returncode in (2, 4)
    one_line_error(done)
    assert job.state() == "old"


# ---- Targets that must not be replaced ----

def listing(directory):
    result = []
    for path in sorted(directory.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        result.append((str(path), info.st_mode, info.st_ino, content))
    return result


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["plain", "force"])
@pytest.mark.parametrize("kind", ["dir", "full-dir", "symlink", "dangling", "symlink-dir", "fifo",
                                  "socket"])
@pytest.mark.parametrize("command", COMMANDS)
def test_target_that_is_not_a_file_is_refused(command, kind, force, make_job):
    job = make_job(command)
    if kind in ("dir", "full-dir"):
        job.target.mkdir()
        if kind == "full-dir":
            (job.target / "file").write_bytes(b"kept")
    elif kind == "symlink":
        (job.out / "file").write_bytes(b"kept")
        job.target.symlink_to("file")
    elif kind == "dangling":
        job.target.symlink_to("nothing")
    elif kind == "symlink-dir":
        (job.out / "sub").mkdir()
        job.target.symlink_to("sub")
    elif kind == "fifo":
        os.mkfifo(job.target)
    else:
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(job.target))
    before = listing(job.out)
    done = run_tersor(*job.args(), *force, timeout=20)
    assert done.returncode == 4
    assert str(job.target) in one_line_error(done)
    assert listing(job.out) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_target_that_exists_is_kept_without_force(command, make_job):
    job = make_job(command, replace=True)
    before = listing(job.out)
    done = run_tersor(command, job.source, "-o", job.target)
    assert done.returncode == 4
    assert "--force" in one_line_error(done)
    assert listing(job.out) == before
    job.must_have_worked(run_tersor(command, job.source, "-o", job.target, "-f"))


def drop_root_override():
    """Root without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH obeys file modes."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):
            if libc.prctl(24, capability, 0, 0, 0) != 0:        # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "prctl")


def test_target_in_a_read_only_directory_is_refused(job):
    job.out.chmod(0o555)
    try:
        done = run_tersor(*job.args(), preexec_fn=drop_root_override)
        line = job.must_be_clean(done)
        assert "ermission" in line
    finally:
        job.out.chmod(0o755)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["missing-dir", "file-as-dir", "long-name", "slash"])
def test_target_that_cannot_be_created_is_refused(command, kind, make_job):
    job = make_job(command)
    target = {"missing-dir": job.out / "no" / "t", "file-as-dir": job.source / "t",
              "long-name": job.out / ("t" * 256), "slash": f"{job.out}/t/"}[kind]
    before = listing(job.root)
    done = run_tersor(command, job.source, "-o", target)
    assert done.returncode == 4
    one_line_error(done)
    assert listing(job.root) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_target_with_the_longest_name_is_written_or_fails_cleanly(command, make_job):
    """The temporary name is longer than the target's: it works, or fails cleanly."""
    job = make_job(command)
    job.target = job.out / ("t" * 255)
    done = run_tersor(*job.args())
    if done.returncode == 0:
        job.must_have_worked(done)
    else:
        job.must_be_clean(done)


# ---- Two writers ----

@pytest.mark.parametrize("force", [False, True], ids=["no-clobber", "force"])
@pytest.mark.parametrize("command", COMMANDS)
def test_of_racing_writers_one_complete_file_remains(command, force, make_job, material):
    jobs = [make_job(command, size) for size in ("small", "other") * 2]
    target = jobs[0].target
    whole = {material[size][command][1] for size in ("small", "other")}
    for _ in range(200 if LONG else 15):
        jobs[0].reset()
        writers = [subprocess.Popen([BINARY, command, str(job.source), "-o", str(target),
                                     *(["--force"] if force else [])], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                   for job in jobs]
        done = [finish(writer) for writer in writers]
        status = sorted(d.returncode for d in done)
        expected = [0] + [4] * 3            # with --force too, if one writes over what another has seen
        assert status == expected or force and set(status) <= {0, 4} and status[0] == 0, [d.stderr for d in done]
        for d in done:
            if d.returncode:
                one_line_error(d)
        assert jobs[0].names() == [target.name]
        assert target.read_bytes() in whole


@pytest.mark.parametrize("force", [False, True], ids=["no-clobber", "force"])
@pytest.mark.parametrize("command", COMMANDS)
def test_target_that_appears_before_publishing_is_kept(command, force, make_job):
    """The slow writer has checked that the target is absent; then the quick one publishes."""
    slow, quick = make_job(command), make_job(command, "other")
    process = slow.start("rename:1:stop,linkat:1:stop", *(["--force"] if force else []))
    try:
        assert wait_until_stopped(process)
        run_tersor(command, quick.source, "-o", slow.target, check=0)
        process.send_signal(signal.SIGCONT)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
    done = finish(process)
    assert slow.names() == [slow.target.name]
    if force:
        slow.must_have_worked(done)
    else:
        assert done.returncode == 4
        one_line_error(done)
        assert slow.target.read_bytes() == quick.expected


# ---- The input changes while it is read ----

def change(path, how):
    size = path.stat().st_size
    if how == "truncated":
        os.truncate(path, size // 2)
    elif how == "emptied":
        os.truncate(path, 0)
    elif how == "grown":
        with open(path, "ab") as f:
            f.write(bytes(100))
    elif how == "rewritten":
        with open(path, "r+b") as f:
            f.seek(-1, os.SEEK_END)
            f.write(b"\x01")
    else:
        other = path.with_name("other")
        other.write_bytes(path.read_bytes())
        other.rename(path)


@pytest.mark.parametrize("how", ["truncated", "emptied", "grown", "rewritten", "replaced"])
@pytest.mark.parametrize("command", ["pack", "unpack", "verify", "diff"])
def test_input_that_changes_while_it_is_read_is_refused(command, how, make_job):
    job = make_job("unpack" if command in ("verify", "diff") else command)
    args = job.args()
    if command in ("verify", "diff"):
        same = job.root / "same"
        same.write_bytes(job.source_bytes)
        args = [command, job.source, *([same] if command == "diff" else [])]
    run_tersor(*args, check=0, env=shim(job.source, log=job.log))
    reads = [e.call for e in job.events() if e.mark == ">" and e.call in ("read", "pread")]
    assert reads
    points = {(call, n) for call in set(reads)
              for n in (1, (reads.count(call) + 1) // 2, reads.count(call))}
    for call, n in sorted(points):
        job.reset()
        env = dict(os.environ, LC_ALL="C", **shim(job.source, f"{call}:{n}:stop"))
        process = subprocess.Popen([BINARY, *map(str, args)], env=env, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert wait_until_stopped(process)
            change(job.source, how)
        finally:
            process.send_signal(signal.SIGCONT)
        done = finish(process)
        assert done.returncode in (3, 4), (call, n, done.returncode, done.stderr)
        line = one_line_error(done)             # new bytes of the same size may break a hash first
        assert "changed" in line or (how == "rewritten" and "damaged" in line)
        assert job.state() == "old"


@pytest.mark.parametrize("command", ["verify", "pack"])
def test_input_rewritten_within_the_second_is_refused(command, make_job):
    """Size and second of the last change are as before: only its nanoseconds tell."""
    job = make_job("unpack" if command == "verify" else command)
    args = ["verify", job.source] if command == "verify" else job.args()
    run_tersor(*args, check=0, env=shim(job.source, log=job.log))
    reads = sum(e.mark == ">" and e.call == "pread" for e in job.events())
    job.reset()
    env = dict(os.environ, LC_ALL="C", **shim(job.source, f"pread:{reads}:stop"))
    process = subprocess.Popen([BINARY, *map(str, args)], env=env, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    try:
        assert wait_until_stopped(process)
        then = job.source.stat().st_mtime_ns
        job.source.write_bytes(job.source_bytes)
        os.utime(job.source, ns=(then, then + 1))
    finally:
        process.send_signal(signal.SIGCONT)
    done = finish(process)
    assert done.returncode == 4 and "changed while reading" in one_line_error(done)
    assert job.state() == "old"


def test_input_that_ends_early_is_refused(job):
    """A read that returns nothing before the known end."""
    for call in ("read", "pread"):
        job.reset()
        job.run()
        n_calls = sum(e.mark == ">" and e.call == call and e.path == str(job.source)
                      for e in job.events())
        for n in spread(n_calls, 12):
            job.reset()
            done = job.run(f"{call}:{n}:short=0")
            assert done.returncode in (3, 4)
            assert job.state() == "old"
            assert "changed" in one_line_error(done)


# ---- Standard streams ----

@pytest.fixture
def printing(make_job):
    """Command lines that print results, with the job whose files they use."""
    job, pack = make_job("unpack"), make_job("pack")
    return [
        (["version"], None), (["codecs"], None), (["--help"], None), (["completion", "bash"], None),
        (["inspect", job.source], None), (["inspect", "--json", job.source], None),
        (["verify", "--json", job.source], None), (["diff", job.source, job.source], None),
        (["diff", "--json", job.source, job.source], None),
        ([*pack.args(), "--json"], pack), ([*job.args(), "--json"], job),
    ]


def run_on(args, stdout, **kwargs):
    return subprocess.run([BINARY, *map(str, args)], env=dict(os.environ, LC_ALL="C"), text=True,
                          stdout=stdout, stderr=subprocess.PIPE, timeout=20, **kwargs)


@pytest.mark.parametrize("kind", ["closed", "dev-full", "no-reader", "no-reader-ignored",
                                  "full-pipe"])
def test_results_that_cannot_be_printed_are_an_error(kind, printing):
    for args, job in printing:
        if job:
            job.reset()
        read_end, write_end = os.pipe()
        full = open("/dev/full", "w")
        kwargs = {}
        if kind.startswith("no-reader"):
            os.close(read_end)
            # Popen restores SIGPIPE to its default, as in a shell; some parents leave it ignored
            kwargs = {"restore_signals": kind == "no-reader"}
        elif kind == "full-pipe":
            fcntl.fcntl(write_end, fcntl.F_SETFL, os.O_NONBLOCK)
            for size in (65536, 4096, 1):
                try:
                    while os.write(write_end, bytes(size)):
                        pass
                except BlockingIOError:
                    pass
        elif kind == "closed":
            kwargs = {"preexec_fn": lambda: os.close(1)}
        try:
            done = run_on(args, full if kind == "dev-full" else write_end, **kwargs)
        finally:
            full.close()
            os.close(write_end)
            if not kind.startswith("no-reader"):
                os.close(read_end)
        assert done.returncode == 4, (args, done.returncode, done.stderr)
        if kind.startswith("no-reader"):
            assert done.stderr == ""            # who has closed the pipe knows
        else:
            one_line_error(done)
        if job:                                 # published whole, or not at all
            assert job.state() in ("old", "new")
            assert job.source.read_bytes() == job.source_bytes


def test_json_file_that_cannot_be_written_is_an_error(job):
    done = run_tersor(*job.args(), "--json=/dev/full")
    assert done.returncode == 4
    one_line_error(done)
    assert job.state() in ("old", "new")


@pytest.mark.parametrize("closed", [(0,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)],
                         ids=lambda fds: "".join(map(str, fds)))
def test_closed_streams_do_not_become_files(job, closed):
    """The first file that is opened must not take the place of stdout and get its text."""
    def close_some():
        for fd in closed:
            os.close(fd)

    extra = ["--json", "-v"] if 1 in closed else ["-v"]
    done = subprocess.run([BINARY, *map(str, job.args(*extra))], preexec_fn=close_some,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert done.returncode in ((4,) if 1 in closed else (0,)), (done.returncode, done.stderr)
    assert job.source.read_bytes() == job.source_bytes
    assert job.state() in (("old", "new") if 1 in closed else ("new",))


def test_full_stderr_does_not_hide_the_status(make_job):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, "inspect", "/nonexistent"], stderr=full, timeout=20)
    assert done.returncode == 4
    job = make_job("pack")
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *map(str, job.args("-v"))], stderr=full,
                              stdout=subprocess.PIPE, timeout=20)
    assert done.returncode in (0, 4)
    assert job.state() in ("old", "new") if done.returncode else job.state() == "new"


# ---- No memory ----

@pytest.mark.parametrize("how", ["once", "forever"])
@pytest.mark.parametrize("command", ["pack", "unpack", "verify", "diff", "inspect"])
def test_every_allocation_fails_cleanly(command, how, make_job):
    job = make_job(command if command in COMMANDS else "unpack")
    args = job.args()
    if command not in COMMANDS:
        args = [command, job.source, *([job.source] if command == "diff" else [])]
    if command != "inspect":    # AddressSanitizer itself cannot start a thread without memory
        args += ["-j", 1 if b"__asan_init" in pathlib.Path(BINARY).read_bytes() else 2]
    count = job.root / "count"
    clean = run_tersor(*args, env=shim(job.root, count=count), check=0)
    n_allocations = struct.unpack("9Q", count.read_bytes())[8]
    assert n_allocations > 0
    failures = 0
    for n in spread(n_allocations, 60):
        job.reset()
        malloc = f"{n}:forever" if how == "forever" else n
        done = run_tersor(*args, env=shim(job.root, malloc=malloc))
        assert job.source.read_bytes() == job.source_bytes
        if done.returncode == 0:                # it could do without
            assert done.stdout == clean.stdout
            assert job.state() == ("new" if command in COMMANDS else "old")
        else:
            failures += 1
            assert done.returncode == 4, (n, done.returncode, done.stderr)
            line = one_line_error(done)
            if job.state() == "new":
                assert "published" in line or "stdout" in line, (n, line)
            else:
                assert job.state() == "old", (n, job.state())
    assert failures > 0


def test_recording_without_memory_is_not_read_as_one_without_manifest(tmp_path):
    args = ["inspect", DATA / "recording-fsdp2"]
    count = tmp_path / "count"
    run_tersor(*args, env=shim(tmp_path, count=count), check=0)
    for n in spread(struct.unpack("9Q", count.read_bytes())[8], 60):
        done = run_tersor(*args, env=shim(tmp_path, malloc=n))
        assert done.returncode in (0, 4), (n, done.returncode, done.stderr)


# ---- Surroundings that must not matter ----

@pytest.mark.parametrize("command", COMMANDS)
def test_output_does_not_depend_on_surroundings(command, make_job):
    job = make_job(command, "tiny-gpt")
    elsewhere = job.root / "elsewhere"
    elsewhere.mkdir()
    surroundings = [
        dict(extra=["-j", n]) for n in (1, 2, 3, 8)] + [
        dict(umask=0o077), dict(umask=0), dict(cwd=job.root), dict(cwd=elsewhere), dict(cwd="/"),
        dict(env={"TZ": "Asia/Kathmandu"}), dict(env={"LC_ALL": "de_DE.UTF-8"}),
        dict(env={"LC_ALL": "", "LANG": "C"}), dict(env={"HOME": "", "USER": "somebody"}),
    ]
    for kwargs in surroundings:
        job.reset()
        env = dict(os.environ, **kwargs.pop("env", {}))
        done = subprocess.run([BINARY, *map(str, job.args(*kwargs.pop("extra", [])))], env=env,
                              capture_output=True, timeout=60, **kwargs)
        assert (done.returncode, job.state()) == (0, "new"), (kwargs, done.stderr)


@pytest.mark.parametrize("command", COMMANDS)
def test_output_does_not_depend_on_names_and_times_of_the_input(command, make_job):
    job = make_job(command)
    run_tersor(command, job.source.name, "-o", f"out/{job.target.name}", cwd=job.root, check=0)
    assert job.state() == "new"
    job.reset()
    os.utime(job.source, (1, 1))
    run_tersor(command, f"../{job.source.name}", "-o", job.target.name, cwd=job.out, check=0)
    assert job.state() == "new"
    time.sleep(1.01)                            # another second on the clock
    job.reset()
    job.must_have_worked(run_tersor(*job.args()))


@pytest.mark.parametrize("umask", [0, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("command", COMMANDS)
def test_mode_of_the_output_is_the_umask(command, umask, make_job):
    job = make_job(command)
    run_tersor(*job.args(), umask=umask, check=0)
    assert stat.S_IMODE(job.target.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
@pytest.mark.parametrize("command", COMMANDS)
def test_replaced_file_keeps_its_mode(command, mode, make_job):
    job = make_job(command, replace=True)
    job.target.chmod(mode)
    run_tersor(*job.args(), umask=0o022, check=0)
    assert stat.S_IMODE(job.target.stat().st_mode) == mode


# ---- inputs that are not files ----

@pytest.mark.parametrize("kind", ["dir", "socket", "device", "proc", "missing",
                                  "unreadable"])
@pytest.mark.parametrize("command", ["pack", "unpack", "verify", "inspect", "diff"])
def test_input_is_not_a_readable_file(command, kind, make_job):
    """Rejected at once, without an endless read.  A FIFO is read: test_commands.py."""
    job = make_job("pack")
    path = job.root / "input"
    kwargs = {}
    if kind == "dir":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(path))
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "proc":
        path = "/proc/self/status"
    elif kind == "unreadable":
        path.write_bytes(job.source_bytes)
        path.chmod(0)
        kwargs = {"preexec_fn": drop_root_override}
    tail = {"diff": [path], "pack": ["-o", job.target], "unpack": ["-o", job.target]}
    done = run_tersor(command, path, *tail.get(command, []), timeout=20, **kwargs)
    if (command, kind) == ("diff", "dir"):                              # compared file by file: there is none
        assert (done.returncode, done.stdout) == (0, "0 files compared: 0 differ\n")
        return
    assert done.returncode in ((4,) if kind in ("missing", "unreadable") else (3, 4))
    assert str(path) in one_line_error(done)
    assert job.names() == []


# ---- Memory ----

@pytest.mark.parametrize("command", ["pack", "diff"])
def test_memory_does_not_grow_with_the_input(command, tmp_path):
    """A hundred times the data, in holes of the file, takes the same memory."""
    peaks = []
    for mib in (2, 200):
        source = tmp_path / f"{mib}.safetensors"
        n = mib << 18
        source.write_bytes(safetensors_bytes(
            {"w": {"dtype": "F32", "shape": [n], "data_offsets": [0, 4 * n]}}))
        with open(source, "r+b") as f:
            f.truncate(source.stat().st_size + 4 * n)
        args = ["pack", source, "-o", tmp_path / f"out{mib}"] if command == "pack" else ["diff", source, source]
        done, peak, _ = torchfile.run_measured(*args, "-j2")
        assert done.returncode == 0, done.stderr
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 16, peaks
