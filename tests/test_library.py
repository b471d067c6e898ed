"""libtersor as its users have it: examples/pack.c in C and C++, and the shared library by ctypes."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import BINARY, ROOT

BUILD = pathlib.Path(BINARY).resolve().parent
LIBRARY = BUILD / "libtersor.so"
HEADERS = ROOT / "include" / "tersor"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="only the tool is built")


def built_example(tmp_path, compiler):
    """examples/pack.c, linked with the shared library."""
    if not shutil.which(compiler[0]):
        pytest.skip(f"no {compiler[0]}")
    (tmp_path / "libtersor.so.0").symlink_to(LIBRARY)
    program = tmp_path / "pack"
    subprocess.run([*compiler, "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}",
                    ROOT / "examples" / "pack.c", "-x", "none", tmp_path / "libtersor.so.0",
                    f"-Wl,-rpath,{tmp_path}", "-o", program], check=True)
    return program


@pytest.mark.parametrize("compiler", [["gcc", "-std=c11"], ["g++", "-std=c++17", "-x", "c++"]],
                         ids=["C", "C++"])
def test_the_example_packs_as_the_tool_does(compiler, tiny_gpt, tersor, tmp_path):
    program = built_example(tmp_path, compiler)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    done = subprocess.run([program, tiny_gpt, ours], capture_output=True, text=True, check=True)
    tersor("pack", tiny_gpt, "-o", theirs, check=0)
    assert ours.read_bytes() == theirs.read_bytes()
    found = re.fullmatch(r"(\d+) tensors\n(\d+) bytes, worst error (\S+)\n", done.stdout)
    assert int(found[1]) > 0 and int(found[2]) == ours.stat().st_size
    assert 0 < float(found[3]) < 0.1
    done = subprocess.run([program, tiny_gpt, ours], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"cannot pack: {ours}: output exists (force replaces an existing output)\n"


# --- By ctypes, as a binding would -----------------------------------------------------------


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("msg", ctypes.c_char * 1024), ("hint", ctypes.c_int)]


@pytest.fixture(scope="module")
def library():
    return ctypes.CDLL(str(LIBRARY))


def strings(*paths):
    return (ctypes.c_char_p * len(paths))(*(os.fsencode(path) for path in paths))


def test_the_version_is_that_of_the_headers(library):
    library.tsr_version.restype = ctypes.c_char_p
    version = library.tsr_version().decode()
    assert f'"{version}"' in (HEADERS / "version.h").read_text()
    major, minor, patch = map(int, version.split("."))
    assert library.tsr_version_number() == 10000 * major + 100 * minor + patch


def test_only_what_the_headers_declare_is_exported(library):
    assert library.tsr_pack
    for internal in ("tsr_json_read", "tsr_arena_new", "tsr_fail", "tsr_zip_open"):
        with pytest.raises(AttributeError):
            getattr(library, internal)


def test_open_and_find(library, tiny_gpt):
    checkpoint, err = ctypes.c_void_p(), Err()
    assert library.tsr_checkpoint_open(strings(tiny_gpt), 1, None, ctypes.byref(checkpoint),
                                       ctypes.byref(err)) == 0
    library.tsr_checkpoint_find.restype = ctypes.c_void_p
    library.tsr_checkpoint_find.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    assert library.tsr_checkpoint_find(checkpoint, b"no such tensor") is None
    library.tsr_checkpoint_close(checkpoint)


@pytest.mark.parametrize("content, code, words", [
    (None, 5, "in: cannot open: No such file"), (b"not a checkpoint", 2, "in: "),
])
def test_failures_have_codes_and_messages(content, code, words, library, tmp_path):
    path, checkpoint, err = tmp_path / "in", ctypes.c_void_p(), Err()
    if content is not None:
        path.write_bytes(content)
    assert library.tsr_checkpoint_open(strings(path), 1, None, ctypes.byref(checkpoint),
                                       ctypes.byref(err)) == code
    assert err.code == code and words in err.msg.decode() and not checkpoint
