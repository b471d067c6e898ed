"""What -f replaces: a directory of its own kind and nothing else, by every command that makes one or a file."""
import os
import shutil
import signal
import subprocess

import pytest

from conftest import BINARY, DATA, one_line_error, run_tersor

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"


def quiet(*args, **kwargs):
    run_tersor(*args, "-q", check=0, **kwargs)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An input of each kind, all in one directory."""
    at = tmp_path_factory.mktemp("inputs")
    (at / "source").mkdir()
    shutil.copy(TINY, at / "source" / "m.safetensors")
    (at / "source" / "config.json").write_text("{}")
    shutil.copy(TINY, at / "m.safetensors")
    shutil.copytree(TINY.parent / "recording", at / "recording")
    quiet("pack", at / "source", "-o", at / "packed")
    quiet("pack", at / "m.safetensors", "-o", at / "p")
    quiet("convert", at / "m.safetensors", "--to", "dcp", "-o", at / "sharded")
    quiet("convert", at / "recording", "--entropy", "-o", at / "coded")
    return at


# A command, its inputs, and other options; OUT is put behind
COMMANDS = {
    "pack-directory": ("pack", "source"),
    "pack-directory-in-parts": ("pack", "source", "--part", "1/2"),
    "pack-file": ("pack", "m.safetensors"),
    "pack-dcp": ("pack", "sharded"),
    "pack-coded": ("pack", "source", "--entropy"),
    "unpack-directory": ("unpack", "packed"),
    "unpack-directory-in-parts": ("unpack", "packed", "--part", "1/2"),
    "unpack-file": ("unpack", "p"),
    "unpack-to-dcp": ("unpack", "p", "--to", "dcp"),
    "convert-to-dcp": ("convert", "m.safetensors", "--to", "dcp"),
    "convert-packed-to-dcp": ("convert", "packed", "--to", "dcp"),
    "convert-file": ("convert", "m.safetensors", "--to", "safetensors"),
    "code-directory": ("convert", "packed", "--entropy"),
    "plain-directory": ("convert", "packed", "--plain"),
    "code-recording": ("convert", "recording", "--entropy"),
    "plain-recording": ("convert", "coded", "--plain"),
    "replay": ("replay", "m.safetensors", "recording"),
}


def run(made, name, out, **kwargs):
    command = COMMANDS[name]
    inputs = [str(made / x) if (made / x).exists() else x for x in command[1:]]
    return run_tersor(command[0], *inputs, "-o", out, "-f", "-q", **kwargs)


def snapshot(root):
    return {os.path.relpath(os.path.join(at, name), root): os.lstat(os.path.join(at, name)).st_ino
            for at, folders, files in os.walk(root) for name in folders + files}


def things(at):
    (at / "docs").mkdir(parents=True)
    (at / "docs" / "thesis").write_text("x")


def home(at):
    things(at)
    (at / ".config").mkdir()
    (at / ".profile").write_text("x")
    for name in ("config.json", "m.safetensors", "tersor.json", ".metadata", "manifest.json", "__0_0.distcp"):
        (at / name).write_text("{}")


def only_an_empty_folder(at):
    (at / "kept").mkdir(parents=True)


def only_a_link(at):
    at.mkdir()
    (at / "config.json").symlink_to("/etc/hostname")


@pytest.mark.parametrize("fill", [things, home, only_an_empty_folder, only_a_link], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_replaces_a_directory_of_other_things(made, tmp_path, name, fill):
    fill(tmp_path / "out")
    before = snapshot(tmp_path)
    for out, cwd in ("out", tmp_path), ("out/", tmp_path), (".", tmp_path / "out"), ("../out", tmp_path / "out"):
        if (name, out) == ("pack-file", "out/"):        # puts a file into it, see test_terminal.py
            continue
        one_line_error(run(made, name, out, cwd=cwd, check=4))
        assert snapshot(tmp_path) == before
    for out in tmp_path, tmp_path / "out" / "..":
        run(made, name, out, check=4)
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_replaces_its_input_or_what_holds_it(made, name):
    before = snapshot(made)
    inputs = [made / x for x in COMMANDS[name][1:] if (made / x).exists()]
    for out in made, *inputs:
        assert run(made, name, out).returncode in (2, 4)
        assert snapshot(made) == before
    run_tersor("verify", made / "packed", check=0)


# Commands that make a directory, and what of one made before is named if something is added to it
DIRECTORIES = [name for name in COMMANDS if "directory" in name and "parts" not in name or "dcp" in name and
               name != "pack-dcp" or "recording" in name]


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_of_the_same_kind_is_replaced_unless_more_is_in_it(made, tmp_path, name):
    out = tmp_path / "out"
    run(made, name, out, check=0)
    before = snapshot(out).keys()
    run(made, name, out, check=0)
    assert snapshot(out).keys() == before
    for more in "notes", "deep/notes", "other.safetensors", "__x.distcp":
        (out / more).parent.mkdir(exist_ok=True)
        (out / more).write_text("mine")
        line = one_line_error(run(made, name, out, check=4))
        assert f"found {more.split('/')[0]} in it" in line, line
        assert (out / more).read_text() == "mine" and snapshot(out).keys() > before
        (out / more).unlink()
        if (out / more).parent != out:      # it would be named, too
            (out / more).parent.rmdir()
    run(made, name, out, check=0)
    assert os.listdir(tmp_path) == ["out"]


def test_an_index_lists_what_may_go_not_what_is_written(made, tmp_path):
    """Another checkpoint's packed directory is replaced; what lost its index, or has a damaged one, is not."""
    quiet("pack", DATA / "frameworks" / "trainer" / "checkpoint-30", "-o", tmp_path / "out")
    index = tmp_path / "out" / "tersor.json"
    for damage in index.unlink, lambda: index.write_text("{}"):
        text = index.read_bytes()
        damage()
        line = one_line_error(run(made, "pack-directory", tmp_path / "out", check=4))
        assert "is a directory of other things" in line
        index.write_bytes(text)
    run(made, "unpack-directory", tmp_path / "out", check=4)
    run(made, "pack-directory", tmp_path / "out", check=0)
    run_tersor("verify", tmp_path / "out", check=0)


def test_what_comes_in_while_the_command_runs_is_kept(made, tmp_path):
    """The directory is looked at again right before it is replaced."""
    run(made, "unpack-directory", tmp_path / "out", check=0)
    fault = {"LD_PRELOAD": os.environ["TERSOR_FAULTS"], "TERSOR_FAULT": "pwrite:1:stop",
             "TERSOR_FAULT_PATH": str(tmp_path)}
    job = subprocess.Popen([BINARY, "unpack", made / "packed", "-o", tmp_path / "out", "-f", "-q"],
                           env={**os.environ, **fault}, stderr=subprocess.PIPE, text=True)
    os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT)
    (tmp_path / "out" / "notes").write_text("mine")
    job.send_signal(signal.SIGCONT)
    assert "found notes in it" in job.communicate()[1] and job.returncode == 4
    assert (tmp_path / "out" / "notes").read_text() == "mine" and os.listdir(tmp_path) == ["out"]
