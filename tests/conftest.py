"""Shared fixtures: the binary under test and the bytes of hand-made safetensors files."""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

import pytest

# Whoever runs the tests may ignore signals, which the programs under test would inherit.
for _signal in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, signal.SIG_DFL)

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("TERSOR", str(ROOT / "build" / "tersor"))
DATA = ROOT / "tests" / "data"
VECTORS = ROOT / "tests" / "vectors"       # test vectors and bytes of docs/internals/format.md
sys.path.insert(0, str(ROOT / "tests" / "helpers"))     # import oracle, torchfile and so on


# Without --every-case and TERSOR_LONG, `make check` runs so many of the cases of a test that has more.
CASES = 12


def pytest_addoption(parser):
    parser.addoption("--every-case", action="store_true", help="all cases of tests that have many")


def has_room_in_memory():
    """Whether /dev/shm holds what tests write at a time, and leaves memory to them."""
    try:
        text = pathlib.Path("/proc/meminfo").read_text()
        available = int(re.search(r"MemAvailable: *(\d+) kB", text)[1]) << 10
        return min(shutil.disk_usage("/dev/shm").free, available) > 6 << 30 and os.access("/dev/shm", os.W_OK)
    except OSError:
        return False


def pytest_configure(config):
    # Every output is synced: on a disk, tests wait for that longer than for all else.
    if not (config.getoption("basetemp") or "TMPDIR" in os.environ) and has_room_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")
    if config.getoption("--every-case") or os.environ.get("TERSOR_LONG"):
        os.environ["TERSOR_EVERY_CASE"] = "1"       # for the lists of cases of tests that take long
    config.addinivalue_line("markers", "every_case: never sampled")


def pytest_collection_modifyitems(config, items):
    """Cases at even distances of the tests that have many, if no file or test was named."""
    if os.environ.get("TERSOR_EVERY_CASE") or config.getoption("keyword") or \
            not all(pathlib.Path(arg).is_dir() for arg in config.args):
        return
    cases = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = {item for some in cases.values() if len(some) > CASES and not some[0].get_closest_marker("every_case")
                for i, item in enumerate(some) if i * CASES // len(some) == (i - 1) * CASES // len(some)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    item.failed = getattr(item, "failed", False) or report.failed


@pytest.fixture
def tmp_path(tmp_path, request):
    """pytest's, removed after a test that passed: all tests together write 14 GB."""
    yield tmp_path
    if not request.node.failed:
        shutil.rmtree(tmp_path, ignore_errors=True)


def pytest_sessionfinish(session):
    """What fixtures of modules made, where all tests passed."""
    if not session.testsfailed and (made := getattr(session.config, "_tmp_path_factory", None)):
        shutil.rmtree(made.getbasetemp(), ignore_errors=True)


def run_tersor(*args, env=None, check=None, timeout=120, **kwargs):
    """Run the binary; `check` is the expected exit status."""
    full = {**os.environ, "LC_ALL": "C", **(env or {})}
    done = subprocess.run([BINARY, *map(str, args)], env=full, timeout=timeout,
                          capture_output=True, text=True, errors="backslashreplace", **kwargs)
    if check is not None:
        assert done.returncode == check, (
            f"exit {done.returncode}, expected {check}\n{done.args}\n{done.stdout}{done.stderr}")
    return done


def traced(folder, *args):
    """A run in the folder, and its system calls that open files, make processes or sockets.

    Under a sanitizer leaks are not looked for: that is not done while another process traces.
    """
    if shutil.which("strace") is None:
        pytest.fail("strace is not installed")
    with tempfile.NamedTemporaryFile("r") as log:
        done = subprocess.run(
            ["strace", "-f", "-qq", "-E", "ASAN_OPTIONS=detect_leaks=0", "-o", log.name,
             "-e", "trace=%file,%process,%network", BINARY, *map(str, args)],
            capture_output=True, text=True, cwd=folder, timeout=60)
        return done, log.read().splitlines()


@pytest.fixture
def tersor():
    return run_tersor


@pytest.fixture
def tiny_gpt():
    return DATA / "tiny-gpt" / "checkpoint.safetensors"


def safetensors_bytes(header, data=b"", pad=True):
    """A safetensors file from a header (dict, or raw bytes taken as they are) and its data."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode()
        if pad:
            header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def codec_vectors():
    """The lines of vectors/codecs.txt, split."""
    lines = (VECTORS / "codecs.txt").read_text().splitlines()
    return [line.split() for line in lines if not line.startswith(("#", "codec "))]


def write_source(path, tensors, metadata=None):
    """A safetensors file of arrays, as float32, or of (dtype, shape, bytes)."""
    header, data = {"__metadata__": metadata} if metadata is not None else {}, b""
    for name, tensor in tensors.items():
        if not isinstance(tensor, tuple):
            tensor = "F32", tensor.shape, tensor.astype("<f4").tobytes()
        dtype, shape, content = tensor
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    path.write_bytes(safetensors_bytes(header, data))
    return path


def one_line_error(done):
    """The single error line of a failed run."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("tersor: "), done.stderr
    return lines[0]
