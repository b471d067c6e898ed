"""Locales, time zones, users and file systems: what is around a run changes nothing, or is said."""
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

import numpy as np
import pytest

from conftest import BINARY, DATA, one_line_error, run_tersor, safetensors_bytes
from faults import shim

MODEL = DATA / "tiny-gpt" / "checkpoint.safetensors"
NOBODY = 65534


def small(path, name="w"):
    """A checkpoint of one tensor."""
    data = np.arange(256, dtype=np.float32).tobytes()
    path.write_bytes(safetensors_bytes(
        {name: {"dtype": "F32", "shape": [256], "data_offsets": [0, len(data)]}}, data))
    return path


# ---- Locales and time zones ----

@pytest.fixture(scope="module")
def locales(tmp_path_factory):
    """Environments of locales that change case (Turkish), the decimal point (German) or nothing at all."""
    folder = tmp_path_factory.mktemp("locales")
    made = {}
    for name in ("de_DE", "tr_TR"):
        source = folder / name
        source.write_text("".join(f'{part}\ncopy "{name}"\nEND {part}\n' for part in ("LC_CTYPE", "LC_NUMERIC")))
        # It warns of the categories left out, and says so in its exit status as well.
        subprocess.run(["localedef", "--force", "--no-archive", "-i", source, "-f", "UTF-8",
                        folder / f"{name}.UTF-8"], capture_output=True)
        made[name] = {"LOCPATH": str(folder), "LC_ALL": "", "LANG": "", "LC_CTYPE": f"{name}.UTF-8",
                      "LC_NUMERIC": f"{name}.UTF-8"}
    code, library = folder / "set.c", folder / "set.so"
    code.write_text("#include <locale.h>\n"
                    "__attribute__((constructor)) static void set(void) { setlocale(LC_ALL, \"\"); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", code, "-o", library], check=True)
    control = subprocess.run(["/usr/bin/printf", "%.1f", "1,5"], env=made["de_DE"], text=True, capture_output=True)
    assert control.stdout == "1,5"
    # The tool sets no locale; programs that use the library may: what is loaded first does so here.
    for name in list(made):
        made[f"{name} set"] = {**made[name], "LD_PRELOAD": str(library),
                               "ASAN_OPTIONS": "verify_asan_link_order=0"}
    return {**made, "C": {"LANG": "C", "LC_ALL": "C"}, "absent": {"LC_ALL": "xx_YY.UTF-8"}}


SURROUNDINGS = ["C", "de_DE", "tr_TR", "absent", "Asia/Kathmandu", "America/St_Johns", ":nonsense"]


def environment(name, locales):
    return locales[name] if name in locales else {"TZ": name}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return outputs(tmp_path_factory.mktemp("expected"), {"LC_ALL": "C.UTF-8", "TZ": "UTC"})


def outputs(folder, env):
    """What commands of every container write and print, by name."""
    source = folder / "in.safetensors"
    shutil.copy(MODEL, source)
    commands = [["pack", source, "-o", "packed.safetensors"],
                ["unpack", "packed.safetensors", "-o", "back.safetensors"],
                ["convert", source, "-o", "out.pt"], ["convert", source, "-o", "out.npz"],
                ["convert", source, "--to", "dcp", "-o", "dcp"],
                ["inspect", "packed.safetensors", "--json"], ["inspect", "out.pt"],
                ["verify", "packed.safetensors"], ["diff", "in.safetensors", "packed.safetensors"],
                ["convert", "packed.safetensors", "-o", "sharded.safetensors", "--max-shard-size", "50k"],
                ["pack", source, "-o", "no", "--max-error", "nmse=1.5e-30"],
                ["diff", "in.safetensors", "packed.safetensors", "--max-error", "nmse=0.5"],
                ["codecs", "--json"], ["nonsense"]]
    said = {}
    for command in commands:
        done = run_tersor(*command, env=env, cwd=folder)
        seconds = re.compile(r"[\d.]+ (G|M|k)?B/s|[\d.]+ m?s\b")
        said[" ".join(map(str, command[:1] + command[-1:]))] = (
            done.returncode, seconds.sub("", done.stdout.replace(str(folder), "")), done.stderr.replace(str(folder), ""))
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            said[str(path.relative_to(folder))] = path.read_bytes()
    return said


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_locale_and_time_zone_change_no_output(name, locales, expected, tmp_path):
    found = outputs(tmp_path, environment(name, locales))
    assert {key for key in expected if found.get(key) != expected[key]} == set()


@pytest.mark.parametrize("name", ["de_DE set", "tr_TR set"])
def test_files_and_json_are_the_same_in_a_program_that_sets_a_locale(name, locales, expected, tmp_path):
    found = outputs(tmp_path, locales[name])
    files = {key for key in expected if "." in key.split()[0] or key.endswith("--json")}
    assert len(files) > 8 and {key for key in files if found.get(key) != expected[key]} == set()


@pytest.mark.parametrize("name", ["C", "de_DE", "tr_TR", "tr_TR set", "absent"])
def test_names_that_are_not_ascii_are_read_and_written_in_every_locale(name, locales, tmp_path):
    """File and tensor names are bytes of UTF-8, whatever the locale takes them for."""
    folder = tmp_path / "Größe-ığİ-重み"
    folder.mkdir()
    source = small(folder / "été.safetensors", "wärme.İı.重み")
    env = environment(name, locales)
    run_tersor("pack", source, "-o", folder / "gepackt-ö.safetensors", env=env, check=0)
    run_tersor("unpack", folder / "gepackt-ö.safetensors", "-o", folder / "zurück.npz", env=env, check=0)
    assert list(np.load(folder / "zurück.npz")) == ["wärme.İı.重み"]
    done = subprocess.run([BINARY, "inspect", "-v", source], env={**os.environ, **env}, capture_output=True)
    assert done.returncode == 0 and "wärme.İı.重み".encode() in done.stdout
    source.write_bytes(source.read_bytes()[:-1])
    done = subprocess.run([BINARY, "inspect", source], env={**os.environ, **env}, capture_output=True)
    assert done.returncode == 3 and "été.safetensors".encode() in done.stderr


def test_options_are_found_in_a_locale_with_another_i(locales, tmp_path):
    """In Turkish the capital of i is not I."""
    done = run_tersor("pack", MODEL, "-o", tmp_path / "out", "--weights", "bf16", "--FORCE", env=locales["tr_TR"])
    assert done.returncode == 2
    run_tersor("inspect", MODEL, env=locales["tr_TR"], check=0)


# ---- Users ----

@pytest.fixture(scope="module")
def user():
    """What makes a run that of an ordinary user, also where the tests are root's, and in root's home: the program
    is a copy that everyone may run."""
    if os.geteuid() != 0:
        yield {}
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(BINARY, folder)
        os.chmod(program, 0o755)
        yield {"executable": program, "user": NOBODY, "group": NOBODY, "extra_groups": []}


@pytest.fixture
def shared():
    """A directory in which everyone may write; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield pathlib.Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
@pytest.mark.parametrize("mode, kept", [(0o644, 0o644), (0o4755, 0o755), (0o2750, 0o750), (0o1666, 0o666)])
def test_a_user_who_replaces_the_file_of_another_owns_it(mode, kept, shared, user):
    """Only root can give a file away; a set-uid bit never goes to a new owner."""
    out = shared / "out.npz"
    out.write_bytes(b"old")
    out.chmod(mode)
    source = small(shared / "in.safetensors")
    run_tersor("convert", source, "-o", out, "--force", check=0, **user)
    now = out.stat()
    assert (stat.S_IMODE(now.st_mode), now.st_uid) == (kept, NOBODY)


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
@pytest.mark.parametrize("who", ["root", "user"])
def test_a_new_file_has_the_mode_of_the_umask(who, umask, mode, shared, user):
    if who == "root" and os.geteuid() != 0:
        pytest.skip("not root")
    out = shared / "out.npz"
    run_tersor("convert", small(shared / "in.safetensors"), "-o", out, umask=umask, check=0,
               **(user if who == "user" else {}))
    assert stat.S_IMODE(out.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_a_user_may_not_replace_a_file_in_a_directory_of_another(shared, user):
    shared.chmod(0o755)
    source, out = small(shared / "in.safetensors"), shared / "out.npz"
    out.write_bytes(b"old")
    out.chmod(0o666)
    done = run_tersor("convert", source, "-o", out, "--force", check=4, **user)
    assert "ermission denied" in one_line_error(done)
    assert out.read_bytes() == b"old" and len(list(shared.iterdir())) == 2


# ---- File systems that lack calls ----

LACKING = ["EINVAL", "ENOSYS", "EOPNOTSUPP"]


@pytest.fixture
def run(tmp_path):
    source, out = small(tmp_path / "in.safetensors"), tmp_path / "out"
    out.mkdir()

    def convert(fault, *args, name="out.npz"):
        return run_tersor("convert", source, "-o", out / name, *args, env=shim(tmp_path, fault))
    convert.out = out
    return convert


@pytest.mark.parametrize("errno", LACKING)
def test_without_rename_noreplace_a_link_publishes(errno, run):
    assert run(f"rename:1+:{errno}").returncode == 0
    assert [path.name for path in run.out.iterdir()] == ["out.npz"]


@pytest.mark.parametrize("link", [*LACKING, "EPERM"])
@pytest.mark.parametrize("rename", LACKING)
def test_without_rename_noreplace_and_links_a_new_file_is_refused_with_advice(rename, link, run):
    """What appears there meanwhile could be lost, so who runs it decides."""
    done = run(f"rename:1+:{rename},linkat:1+:{link}")
    assert done.returncode == 4 and list(run.out.iterdir()) == []
    assert "without replacing" in one_line_error(done) and "--force" in done.stderr
    assert run(f"rename:9+:{rename},linkat:1+:{link}", "--force").returncode == 0
    assert [path.name for path in run.out.iterdir()] == ["out.npz"]


def test_without_rename_noreplace_a_file_that_is_there_is_kept(run):
    (run.out / "out.npz").write_bytes(b"theirs")
    done = run("rename:1+:EINVAL")
    assert done.returncode == 4 and "exists" in one_line_error(done)
    assert (run.out / "out.npz").read_bytes() == b"theirs"


@pytest.mark.parametrize("errno", ["EPERM", "EACCES", "EROFS"])
def test_a_rename_that_is_not_permitted_is_not_called_lacking(errno, run):
    done = run(f"rename:1+:{errno}")
    assert done.returncode == 4 and list(run.out.iterdir()) == []
    assert "without replacing" not in one_line_error(done)


@pytest.mark.parametrize("errno", LACKING)
def test_directories_that_cannot_be_synced_leave_a_whole_file_and_a_word(errno, run):
    """The fsync after that of the file is the directory's."""
    done = run(f"fsync:2:{errno}")
    assert done.returncode == 4
    assert "published and complete, but may not survive a power cut" in one_line_error(done)
    assert sorted(np.load(run.out / "out.npz")) == ["w"]


@pytest.mark.parametrize("errno", ["EOPNOTSUPP", "EISDIR", "EINVAL"])
def test_without_nameless_files_a_scratch_file_has_a_name_for_a_moment(errno, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [BINARY, "convert", small(tmp_path / "in.safetensors"), "--to", "npz", "-o", "-"],
        env={**os.environ, "TMPDIR": str(scratch), **shim(scratch, f"open:1:{errno}")},
        capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout[:2] == b"PK" and list(scratch.iterdir()) == []


@pytest.mark.parametrize("errno", ["ENOSPC", "EACCES", "EROFS"])
def test_a_scratch_file_that_cannot_be_made_is_an_error(errno, tmp_path):
    done = subprocess.run(
        [BINARY, "convert", small(tmp_path / "in.safetensors"), "--to", "npz", "-o", "-"],
        env={**os.environ, "TMPDIR": str(tmp_path), **shim(tmp_path, f"open:2:{errno}")},
        capture_output=True, text=True)
    assert done.returncode == 4 and "scratch file in" in one_line_error(done) and not done.stdout
