"""Packages without a compiler: the Python wheel, its list of what is linked in, Debian packages."""
import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from conftest import BINARY, ROOT

VERSION = re.search(r'TSR_VERSION "(.*)"', (ROOT / "include/tersor/version.h").read_text())[1]
SYSTEM_PYTHON = "/usr/bin/python3"      # it has PyTorch
SONAME = re.search(r"SO_NAME := (\S+)", (ROOT / "Makefile").read_text())[1]
COMPLETIONS = {"bash": "bash-completion/completions/tersor", "zsh": "zsh/site-functions/_tersor",
               "fish": "fish/vendor_completions.d/tersor.fish"}
INFO, SCRIPTS = f"tersor-{VERSION}.dist-info", f"tersor-{VERSION}.data/scripts"
LONG = pytest.mark.skipif(not os.environ.get("TERSOR_LONG"), reason="installs packages: check-long")

pytestmark = pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf, of binutils")


def run(*command, check=0, **kwargs):
    kwargs.setdefault("env", clean())
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900,
                          **kwargs)
    assert done.returncode == check, f"exit {done.returncode}\n{done.args}\n{done.stdout}{done.stderr}"
    return done


def clean(**more):
    """The environment without what points Python, make or a reader at this build."""
    dropped = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHONPATH", "TERSOR", "VIRTUAL_ENV")
    return {**{name: value for name, value in os.environ.items() if name not in dropped}, **more}


def make_wheel(out, binary, *words, **environment):
    run("make", "-C", ROOT, f"BUILD={out}", "GPU=0", f"TERSOR_BINARY={binary}", "wheel", *words,
        env=clean(**environment))
    (wheel,) = (out / "wheel").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def stripped(tmp_path_factory):
    """The binary and the library under test without their symbols, which would be most of the wheel."""
    path = tmp_path_factory.mktemp("stripped") / "tersor"
    library = pathlib.Path(BINARY).resolve().parent / "libtersor.so"
    if not library.exists():
        pytest.skip("only the tool is built")
    run("strip", BINARY, "-o", path)
    run("strip", library, "-o", path.with_name("libtersor.so"))
    return path


@pytest.fixture(scope="module")
def wheel(stripped, tmp_path_factory):
    return make_wheel(tmp_path_factory.mktemp("wheel"), stripped)


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    """The wheel as unzip lays it down, with the modes of its entries."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            pathlib.Path(archive.extract(entry, folder)).chmod(entry.external_attr >> 16 & 0o777)
    return folder


@pytest.fixture(scope="module")
def static_binary(tmp_path_factory):
    """A program that needs no library but the C library, and that no wheel has to be built for."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("static")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    run("gcc", folder / "main.c", "-o", folder / "tersor")
    run("gcc", "-shared", folder / "main.c", "-o", folder / "libtersor.so")
    return folder / "tersor"


# --- The wheel --------------------------------------------------------------------------------


def test_record_names_every_file_of_the_wheel_with_its_hash_and_length(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
        assert len(files) == len(archive.namelist())
    rows = list(csv.reader(io.StringIO(files[f"{INFO}/RECORD"].decode())))
    assert [name for name, _, _ in rows] == list(files)
    for name, digest, length in rows:
        if name == f"{INFO}/RECORD":
            assert (digest, length) == ("", "")
            continue
        algorithm, value = digest.split("=", 1)
        assert base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)) == \
            hashlib.new(algorithm, files[name]).digest()
        assert algorithm == "sha256" and int(length) == len(files[name])


def test_wheel_has_the_program_the_library_the_manual_the_modules_and_the_licences(unpacked, stripped):
    assert (unpacked / SCRIPTS / "tersor").read_bytes() == stripped.read_bytes()
    assert (unpacked / "tersor" / SONAME).read_bytes() == stripped.with_name("libtersor.so").read_bytes()
    pages = unpacked / f"tersor-{VERSION}.data/data/share/man/man1"
    assert {p.name: p.read_bytes() for p in pages.iterdir()} == \
        {p.name: p.read_bytes() for p in (ROOT / "man").glob("*.1")}
    share = unpacked / f"tersor-{VERSION}.data/data/share"
    for shell, path in COMPLETIONS.items():
        assert (share / path).read_text() == run(BINARY, "completion", shell).stdout
    modules = {p.name: p.read_bytes() for p in (ROOT / "packaging/wheel/tersor").glob("*.*")}
    assert {"torch.py", "dcp.py", "record.py", "py.typed"} <= modules.keys()
    assert modules.items() <= {p.name: p.read_bytes() for p in (unpacked / "tersor").iterdir()}.items()
    fields = (unpacked / INFO / "METADATA").read_text().split("\n\n")[0].splitlines()
    assert {"Name: tersor", f"Version: {VERSION}"} <= set(fields)
    texts = [line.split(": ")[1] for line in fields if line.startswith("License-File: ")]
    assert "LICENSE" in texts and all((unpacked / INFO / "licenses" / text).stat().st_size for text in texts)
    assert {"cJSON", "libdeflate", "zlib", "xxHash"} <= {pathlib.Path(text).stem for text in texts}


def test_python_dash_m_starts_the_program_of_the_wheel(unpacked, tiny_gpt, tmp_path):
    env = clean(PYTHONPATH=str(unpacked), PATH="/usr/bin:/bin")
    done = run(sys.executable, "-m", "tersor", "--version", env=env)
    assert done.stdout == f"tersor {VERSION}\n"
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(sys.executable, "-m", "tersor", "pack", "-q", tiny_gpt, "-o", ours, env=env)
    run(BINARY, "pack", "-q", tiny_gpt, "-o", theirs)
    assert ours.read_bytes() == theirs.read_bytes()
    done = run(sys.executable, "-m", "tersor", "pack", tmp_path / "absent", "-o", ours, env=env, check=4)
    assert "absent" in done.stderr and "Traceback" not in done.stderr


FUNCTIONS = """
import inspect, json, pickle, sys, typing
import tersor

source, out = sys.argv[1:]
packed = tersor.pack(source, out + "/p.safetensors", state="tight", keep=["wte", "wpe"], max_error={"nmse": 1, "ulp": 4e9})
failed = tersor.pack(source, out + "/q.safetensors", max_error={"nmse": 1e-12})
try:
    tersor.pack(source, out + "/p.safetensors")
except tersor.TersorError as error:
    carried = pickle.loads(pickle.dumps(error))
    exists = carried.status, str(carried)
tersor.unpack(packed["output"], out + "/u.safetensors")
seen = {
    "output": packed["output"], "passed": packed.passed, "momenta": [t["codec"] for t in packed["tensors"]],
    "failed": [failed.passed, failed.message], "exists": exists,
    "verified": tersor.verify(packed["output"], against=source).passed,
    "differ": [tersor.diff(source, out + "/u.safetensors").passed, tersor.diff(source, source).passed],
    "recommended": tersor.audit([source])["checkpoints"][0]["recommended"]["command"],
    "strange": tersor.run("codecs", "softsign8")["codecs"][0]["name"],
    "warnings": tersor.pack(source, out + "/w.safetensors", state="bitsandbytes").warnings,
    "hints": [name for name in tersor.__all__ if inspect.isfunction(getattr(tersor, name))
              and not getattr(tersor, name).__annotations__.get("return")],
    "documented": all(getattr(tersor, name).__doc__ for name in tersor.__all__)}
print(json.dumps(seen))
"""


def test_commands_are_functions_of_the_package(unpacked, tiny_gpt, tmp_path):
    done = run(sys.executable, "-c", FUNCTIONS, tiny_gpt, tmp_path, env=clean(PYTHONPATH=str(unpacked)))
    seen = json.loads(done.stdout)
    assert (unpacked / "tersor" / "py.typed").exists()
    assert seen["output"] == f"{tmp_path}/p.safetensors" and seen["passed"] and seen["verified"]
    assert {"ratio8", "bf16+ulp8", "raw"} <= set(seen["momenta"])
    assert not seen["failed"][0] and "found nmse error" in seen["failed"][1]
    assert not (tmp_path / "q.safetensors").exists()
    assert seen["exists"][0] == 4 and "exists" in seen["exists"][1]
    assert seen["differ"] == [False, True] and seen["strange"] == "softsign8"
    assert seen["recommended"].startswith("tersor pack") and "10% of their length" in seen["warnings"][0]
    assert seen["hints"] == [] and seen["documented"]


def test_import_of_the_package_loads_neither_numpy_nor_torch(unpacked):
    program = "import sys, tersor; print(tersor.__version__, sorted({'numpy', 'torch'} & set(sys.modules)))"
    done = run(sys.executable, "-c", program, env=clean(PYTHONPATH=str(unpacked)))
    assert done.stdout == f"{VERSION} []\n"


def test_reader_of_the_wheel_checks_with_the_program_of_the_wheel(unpacked, tiny_gpt, tmp_path):
    """No tersor in the PATH."""
    if run(SYSTEM_PYTHON, "-c", "import importlib.util; print(importlib.util.find_spec('torch'))").stdout == "None\n":
        pytest.skip("no PyTorch")
    whole, damaged = tmp_path / "whole.safetensors", tmp_path / "damaged.safetensors"
    run(BINARY, "pack", "-q", tiny_gpt, "-o", whole)
    content = bytearray(whole.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    program = ("import sys, tersor.torch as reader\n"
               "for path in sys.argv[1:]:\n"
               "    print(sum(t.numel() for t in reader.read(path).values()), flush=True)\n")
    env = clean(PYTHONPATH=str(unpacked), PATH="/usr/bin:/bin")
    done = run(SYSTEM_PYTHON, "-c", program, whole, damaged, env=env, check=1)
    assert done.stdout == "252864\n"
    assert "TersorError" in done.stderr and str(damaged) in done.stderr and "hash" in done.stderr


def test_program_that_lost_its_mode_or_is_gone_is_named(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)    # modes are lost
    env = clean(PYTHONPATH=str(tmp_path))
    binary = tmp_path / SCRIPTS / "tersor"
    done = run(sys.executable, "-m", "tersor", "--version", env=env, check=1)
    assert f"{binary} may not be executed" in done.stderr
    binary.unlink()
    done = run(sys.executable, "-m", "tersor", "--version", env=env, check=1)
    assert f"not where it was installed: {binary}" in done.stderr


def test_same_sources_and_date_give_the_same_wheel(static_binary, tmp_path):
    one, two, other = (make_wheel(tmp_path / name, static_binary, SOURCE_DATE_EPOCH=str(epoch))
                       for name, epoch in (("one", 1700000000), ("two", 1700000000), ("other", 1700000060)))
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_name_of_the_wheel_says_what_its_binary_needs(wheel, stripped, static_binary, tmp_path):
    """Libraries beside the C library make it a wheel for machines like this one."""
    for binary, path in ((stripped, wheel), (static_binary, make_wheel(tmp_path, static_binary))):
        loaded = run("ldd", binary).stdout
        versions = re.findall(r"GLIBC_2\.(\d+)", run("readelf", "--version-info", "--wide", binary).stdout)
        newest = max(17, *map(int, versions))
        platform = "linux" if "libcjson" in loaded else f"manylinux_2_{newest}"
        machine = os.uname().machine
        assert path.name == f"tersor-{VERSION}-py3-none-{platform}_{machine}.whl"
        with zipfile.ZipFile(path) as archive:
            assert f"Tag: py3-none-{platform}_{machine}\n" in archive.read(f"{INFO}/WHEEL").decode()


@LONG
def test_pip_installs_the_wheel_and_takes_all_of_it_away(wheel, tiny_gpt, tmp_path):
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    before = {path for path in venv.rglob("*") if not path.is_dir()}
    pip = [venv / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", "--no-compile", wheel)
    assert run(venv / "bin/tersor", "--version").stdout == f"tersor {VERSION}\n"
    run(venv / "bin/python", "-m", "tersor", "pack", "-q", tiny_gpt, "-o", tmp_path / "packed")
    run(venv / "bin/tersor", "verify", "-q", tmp_path / "packed")
    assert (venv / "share/man/man1/tersor-pack.1").exists()
    run(*pip, "uninstall", "-y", "tersor")
    assert {path for path in venv.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts} == \
        {path for path in before if "__pycache__" not in path.parts}


@LONG
def test_pip_target_has_the_program_too(wheel, tmp_path):
    run(sys.executable, "-m", "pip", "install", "--no-index", "--target", tmp_path / "lib", wheel)
    done = run(sys.executable, "-m", "tersor", "--version", env=clean(PYTHONPATH=str(tmp_path / "lib")))
    assert done.stdout == f"tersor {VERSION}\n"


# --- What is linked in ------------------------------------------------------------------------

SOURCES = ("# a comment\n"
           f"zlib\t1.3.1\thttps://zlib.net/zlib-1.3.1.tar.gz\t{'a' * 64}\tZlib\n\n"
           f"cJSON\t1.7.18\thttps://github.com/DaveGamble/cJSON\t{'b' * 64}\tMIT\n")


def sbom(binary, sources, *more, check=0):
    return run(sys.executable, ROOT / "packaging/sbom.py", binary, "--version", "1.2.3",
               "--epoch", 1700000000, "--sources", sources, *more, check=check)


def test_list_of_what_is_linked_in_has_versions_licences_and_hashes(static_binary, tmp_path):
    (tmp_path / "sources.txt").write_text(SOURCES)
    found = json.loads(sbom(static_binary, tmp_path / "sources.txt").stdout)
    tersor, zlib, cjson = found["packages"]
    assert found["spdxVersion"] == "SPDX-2.3" and found["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    assert tersor["checksums"] == [{"algorithm": "SHA256", "checksumValue":
                                    hashlib.sha256(static_binary.read_bytes()).hexdigest()}]
    assert [tuple(one[key] for key in ("name", "versionInfo", "licenseDeclared")) for one in (tersor, zlib)] \
        == [("tersor", "1.2.3", "Apache-2.0"), ("zlib", "1.3.1", "Zlib")]
    assert zlib["downloadLocation"] == "https://zlib.net/zlib-1.3.1.tar.gz"
    assert cjson["checksums"] == [{"algorithm": "SHA256", "checksumValue": "b" * 64}]
    assert {(one["spdxElementId"], one["relationshipType"], one["relatedSpdxElement"])
            for one in found["relationships"]} == {
        ("SPDXRef-DOCUMENT", "DESCRIBES", tersor["SPDXID"]),
        (tersor["SPDXID"], "STATIC_LINK", zlib["SPDXID"]), (tersor["SPDXID"], "STATIC_LINK", cjson["SPDXID"])}


def test_wheel_has_the_list_of_what_is_linked_in_and_names_the_licences(static_binary, tmp_path):
    (tmp_path / "sources.txt").write_text(SOURCES)
    path = make_wheel(tmp_path / "build", static_binary, f"TERSOR_SOURCES={tmp_path / 'sources.txt'}",
                      SOURCE_DATE_EPOCH="1700000000")
    with zipfile.ZipFile(path) as archive:
        found = archive.read(f"{INFO}/sboms/tersor.spdx.json")
        fields = archive.read(f"{INFO}/METADATA").decode().splitlines()
    assert "License-Expression: Apache-2.0 AND MIT AND Zlib" in fields
    assert found == (tmp_path / "build" / f"tersor-{VERSION}.spdx.json").read_bytes()
    assert [package["name"] for package in json.loads(found)["packages"]] == ["tersor", "zlib", "cJSON"]


@pytest.mark.parametrize("line, words", [
    ("zlib\t1.3.1\thttps://zlib.net\tZlib", "sources.txt:1: expected name, version, URL, SHA-256 and"),
    (f"zlib\t\thttps://zlib.net\t{'a' * 64}\tZlib", "sources.txt:1: expected name"),
    (f"other\t1\thttps://zlib.net\t{'a' * 64}\tZlib", "sources.txt:1: packaging/licenses has no other.txt"),
])
def test_sources_without_a_field_or_a_text_of_their_licence_are_refused(static_binary, tmp_path, line, words):
    (tmp_path / "sources.txt").write_text(line + "\n")
    assert words in sbom(static_binary, tmp_path / "sources.txt", check=1).stderr


def test_list_is_refused_for_a_binary_that_it_would_not_describe(static_binary, tmp_path):
    (tmp_path / "sources.txt").write_text(SOURCES)
    sources = tmp_path / "sources.txt"
    assert "built without CUDA" in sbom(static_binary, sources, "--cuda", "12.6", check=1).stderr
    driver = tmp_path / "with-driver"
    driver.write_bytes(static_binary.read_bytes() + b"libcuda.so.1\0")
    assert "the version of its toolkit was not given" in sbom(driver, sources, check=1).stderr
    found = json.loads(sbom(driver, sources, "--cuda", "12.6").stdout)
    assert found["packages"][-1]["versionInfo"] == "12.6"
    if "libcjson" in run("ldd", BINARY).stdout:
        assert "loads libcjson" in sbom(BINARY, sources, check=1).stderr


# --- make install -----------------------------------------------------------------------------

def make_install(prefix, path="", **variables):
    """Installs what is built; what make said in plain lines, not commands."""
    build = pathlib.Path(BINARY).resolve().parent
    if not (build / "libtersor.so").exists():
        pytest.skip("only the tool is built")
    words = [f"{name}={value}" for name, value in {"BUILD": build, "PREFIX": prefix, **variables}.items()]
    return run("make", "-C", ROOT, "-s", "--no-print-directory", "-o", "all", "install", *words,
               env=clean(PATH=path + os.environ["PATH"])).stdout


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_install_says_with_what_programs_find_the_library(tiny_gpt, tmp_path):
    said = make_install(tmp_path / "prefix")
    (export,) = [line for line in said.splitlines() if line.startswith("  export ")]
    build = f'cc -o pack "{ROOT}/examples/pack.c" $(pkg-config --cflags --libs tersor) && ./pack "$1" packed'
    done = subprocess.run(["sh", "-c", f"{export} && {build}", "sh", tiny_gpt], cwd=tmp_path, capture_output=True,
                          text=True, env=clean())
    assert done.returncode == 0 and (tmp_path / "packed").stat().st_size, done.stderr
    share = tmp_path / "prefix/share"
    for shell, path in COMPLETIONS.items():
        assert (share / path).read_text() == run(BINARY, "completion", shell).stdout
    run("make", "-C", ROOT, "uninstall", f"PREFIX={tmp_path / 'prefix'}")
    assert [path for path in (tmp_path / "prefix").rglob("*") if not path.is_dir()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run ldconfig")
def test_install_runs_ldconfig_where_the_loader_searches(tmp_path):
    """A program in its place prints which directories are searched, and notes that it ran."""
    program = tmp_path / "bin/ldconfig"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncase "$*" in\n-NXv) echo "{tmp_path}/prefix/lib: (from a test)" ;;\n'
                       f'"") touch "{tmp_path}/ran" ;;\nesac\n')
    program.chmod(0o755)
    assert make_install(tmp_path / "prefix", f"{program.parent}:", DESTDIR=f"{tmp_path}/root") == ""
    assert not (tmp_path / "ran").exists()
    assert "export LD_LIBRARY_PATH=" in make_install(tmp_path / "other", f"{program.parent}:")
    assert not (tmp_path / "ran").exists()
    assert make_install(tmp_path / "prefix", f"{program.parent}:") == "" and (tmp_path / "ran").exists()


# --- Debian packages --------------------------------------------------------------------------

def package_files(deb):
    """{path: mode} of files and links."""
    rows = [line.split(maxsplit=5) for line in run("dpkg-deb", "-c", deb).stdout.splitlines()]
    return {path.split(" -> ")[0].removeprefix("."): mode for mode, *_, path in rows if mode[0] != "d"}


def check_contents(debian):
    names = {deb.name.split("_")[0]: package_files(deb) for deb in debian.glob("*.deb")}
    shared = SONAME.replace(".so.", "")
    assert set(names) == {"tersor", shared, "libtersor-dev"}
    tersor, library, headers = names["tersor"], names[shared], names["libtersor-dev"]
    assert tersor["/usr/bin/tersor"] == "-rwxr-xr-x"
    assert {f"/usr/share/man/man1/{page.name}.gz" for page in (ROOT / "man").glob("*.1")} <= set(tersor)
    assert "/usr/share/bash-completion/completions/tersor" in tersor
    assert "/usr/share/zsh/vendor-completions/_tersor" in tersor
    assert "/usr/share/fish/vendor_completions.d/tersor.fish" in tersor
    assert all(f"/usr/share/doc/{name}/copyright" in files for name, files in names.items())
    (path,) = [path for path in library if "/doc/" not in path]
    assert re.fullmatch(f"/usr/lib/[^/]+/{re.escape(SONAME)}", path)
    assert {f"/usr/include/tersor/{path.name}" for path in (ROOT / "include/tersor").iterdir()} <= \
        set(headers)
    for deb in debian.glob("*.deb"):
        assert run("dpkg-deb", "-f", deb, "Version").stdout.strip() == VERSION


def check_program(debian, tiny_gpt, tmp_path):
    (deb,) = debian.glob("tersor_*.deb")
    run("dpkg-deb", "-x", deb, tmp_path / "root")
    for name, binary in (("ours", tmp_path / "root/usr/bin/tersor"), ("theirs", BINARY)):
        run(binary, "pack", "-q", tiny_gpt, "-o", tmp_path / name)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def check_lintian(debian):
    assert not list((ROOT / "packaging").rglob("*lintian-overrides*"))
    (changes,) = debian.glob("*.changes")
    levels = "error,warning,info,pedantic,experimental"
    done = run("lintian", "-EvIL", "+pedantic", "--fail-on", levels, changes)
    assert not re.search(r"^[EWIPX]:", done.stdout, re.MULTILINE)


@LONG
def test_debian_packages_have_all_parts_pack_the_same_bytes_and_lintian_is_silent(tiny_gpt, tmp_path):
    """One test, as the packages are built once for it."""
    absent = [tool for tool in ("dpkg-buildpackage", "dh", "lintian") if not shutil.which(tool)]
    if absent:
        pytest.skip(f"no {', '.join(absent)}: .ci/setup release")
    run("make", "-C", ROOT, f"BUILD={tmp_path / 'build'}", "GPU=0", "deb")
    debian = tmp_path / "build/deb"
    check_contents(debian)
    check_program(debian, tiny_gpt, tmp_path)
    check_lintian(debian)
