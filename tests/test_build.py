"""Building where it cannot work: a missing library and an unsupported machine are named."""
import os
import subprocess
import tarfile

import pytest

from conftest import ROOT

# A compiler that does not see the header HIDDEN.
COMPILER = """#!/bin/sh
case " $* " in
*" -E "*)
	text=$(cat)
	case $text in *HIDDEN*) echo "fatal error: HIDDEN: No such file or directory" >&2; exit 1 ;; esac
	printf '%s\\n' "$text" | exec gcc "$@" ;;
*" -c "*) echo "compiled" >&2; exit 1 ;;
esac
exec gcc "$@"
"""


def make(tmp_path, *args):
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(["make", "-C", ROOT, f"BUILD={tmp_path / 'build'}", "GPU=0", *args],
                          env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("header, package", [
    ("cjson/cJSON.h", "libcjson-dev"), ("xxhash.h", "libxxhash-dev"), ("zlib.h", "zlib1g-dev"),
    ("libdeflate.h", "libdeflate-dev"),
])
def test_make_without_a_library_names_its_package(tmp_path, header, package):
    compiler = tmp_path / "cc"
    compiler.write_text(COMPILER.replace("HIDDEN", header))
    compiler.chmod(0o755)
    done = make(tmp_path, f"CC={compiler}", "all")
    assert done.returncode != 0 and "compiled" not in done.stderr
    assert f"packages that are not installed: {package}\nrun: make setup\n" in done.stderr


def test_make_without_a_compiler_names_its_package(tmp_path):
    done = make(tmp_path, f"CC={tmp_path / 'absent'}", "all")
    assert done.returncode != 0
    assert "not installed: gcc" in done.stderr and "run: make setup" in done.stderr


@pytest.mark.parametrize("flags, words", [
    (["-m32"], "32-bit builds are not supported"),
    (["-U__BYTE_ORDER__", "-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__"],
     "big-endian builds are not supported"),
    ([], ""),
], ids=["32-bit", "big-endian", "supported"])
def test_other_machines_are_refused_at_compile_time(flags, words):
    """Freestanding, so that no library for the other machine is needed."""
    done = subprocess.run(["gcc", *flags, "-ffreestanding", "-std=c11", "-fsyntax-only",
                           ROOT / "src/base/platform.h"], capture_output=True, text=True)
    assert (done.returncode != 0) == bool(words) and words in done.stderr


@pytest.mark.skipif(not os.environ.get("TERSOR_LONG") or not (ROOT / ".git").exists(),
                    reason="packs all sources, from a checkout: check-long")
def test_source_archive_has_what_is_committed_and_the_same_bytes_again(tmp_path):
    for name in ("one", "two"):
        done = make(tmp_path / name, "dist")
        assert done.returncode == 0, done.stderr
    one, two = (next((tmp_path / name / "build").glob("tersor-*.tar.gz")) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        packed = {m.name.split("/", 1)[1] for m in archive if not m.isdir()}
    committed = subprocess.run(["git", "ls-tree", "-r", "--name-only", "-z", "HEAD"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout
    assert packed == set(committed.split("\0")) - {""}
