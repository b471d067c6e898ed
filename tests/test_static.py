"""The static binary: what it needs of a machine, and that it is the same program (make static)."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from conftest import BINARY, ROOT

CHECK = ROOT / "packaging/static/check.sh"

pytestmark = pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf, of binutils")


def check(binary, glibc, **kwargs):
    return subprocess.run([str(CHECK), str(binary), glibc], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHON": sys.executable}, **kwargs)


def compile_program(folder, source):
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    (folder / "main.c").write_text(source)
    subprocess.run(["gcc", "main.c", "-o", "program"], cwd=folder, check=True)
    return folder / "program"


def test_binary_that_loads_a_library_is_refused():
    loaded = subprocess.run(["ldd", BINARY], capture_output=True, text=True, check=True).stdout
    if "libcjson" not in loaded:
        pytest.skip("the binary under test loads no libcjson")
    done = check(BINARY, "2.99")
    assert done.returncode == 1
    assert "loads libcjson.so.1, libdeflate.so.0, libz.so.1; expected no library but GNU libc" in done.stderr


def test_binary_for_a_newer_glibc_is_refused(tmp_path):
    # gettid() came with 2.30.
    program = compile_program(tmp_path, "#define _GNU_SOURCE\n#include <unistd.h>\n"
                                        "int main(void) { return gettid() == 0; }\n")
    done = check(program, "2.17")
    assert done.returncode == 1 and "expected 2.17 or older" in done.stderr
    assert check(program, "2.99").returncode == 0


def test_path_of_the_binary_may_be_relative(tmp_path):
    compile_program(tmp_path, "int main(void) { return 0; }\n")
    assert check("program", "2.99", cwd=tmp_path).returncode == 0
    assert check("absent", "2.99", cwd=tmp_path).returncode != 0


@pytest.mark.skipif(not os.environ.get("TERSOR_LONG"), reason="downloads a compiler: check-long")
def test_static_binary_packs_the_same_bytes(tiny_gpt, tmp_path):
    for tool in ("dpkg-source", "apt-get"):
        if not shutil.which(tool):
            pytest.skip(f"no {tool}: .ci/setup release")
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    subprocess.run(["make", "-C", str(ROOT), f"BUILD={tmp_path / 'build'}", "GPU=0", "static"], check=True,
                   env=env, timeout=1800, stdout=subprocess.DEVNULL)
    static = pathlib.Path(tmp_path / "build/static/tersor")
    assert check(static, "2.17").returncode == 0
    # Its compiler's library once denied every SIMD level.
    levels = {subprocess.run([binary, "version", "-v"], capture_output=True, text=True).stdout.splitlines()[1]
              for binary in (static, BINARY)}
    assert len(levels) == 1 and "SIMD level: " in levels.pop()
    for name, binary in (("ours", static), ("theirs", BINARY)):
        subprocess.run([binary, "pack", "-q", tiny_gpt, "-o", tmp_path / name], check=True)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
