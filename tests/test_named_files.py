"""Names that come from a file: a regular file in the same directory, or a refusal at once."""
import json
import os
import shutil
import socket
import time

import pytest

from conftest import DATA, one_line_error, run_tersor

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"


def quiet(*args):
    run_tersor(*args, "-q", check=0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One of each that names files."""
    at = tmp_path_factory.mktemp("named")
    shutil.copy(TINY, at / "m.safetensors")
    quiet("pack", at / "m.safetensors", "-o", at / "base")
    quiet("pack", at / "m.safetensors", "-o", at / "delta", "--delta", at / "base")
    quiet("pack", at / "m.safetensors", "-o", at / "second", "--delta", at / "delta")
    quiet("pack", at / "m.safetensors", "-o", at / "rest", "--model", at / "weights")
    quiet("pack", at / "m.safetensors", "-o", at / "s.safetensors", "--max-shard-size", "200K")
    (at / "source").mkdir()
    shutil.copy(TINY, at / "source" / "m.safetensors")
    (at / "source" / "config.json").write_text("{}")
    quiet("pack", at / "source", "-o", at / "packed")
    quiet("convert", at / "m.safetensors", "--to", "dcp", "-o", at / "dcp")
    shutil.copytree(TINY.parent / "recording", at / "recording")
    return at


# What is opened, what it names, and the commands that read it
NAMES = {
    "base": ("delta", "base", ("verify", "inspect", "unpack")),
    "base-of-a-base": ("second", "base", ("verify", "inspect", "unpack")),
    "weights": ("rest", "weights", ("verify", "inspect", "unpack")),
    "shard": ("s.safetensors.index.json", "s-00001-of-*.safetensors", ("verify", "inspect", "unpack")),
    "packed-file": ("packed", "packed/m.safetensors*", ("verify", "unpack")),
    "copied-file": ("packed", "packed/config.json", ("verify", "unpack")),
    "index": ("packed", "packed/tersor.json", ("verify", "unpack")),
    "dcp-part": ("dcp", "dcp/__0_0.distcp", ("inspect", "pack")),
    "dcp-metadata": ("dcp", "dcp/.metadata", ("inspect", "audit")),
    "step": ("recording", "recording/*3.safetensors", ("inspect", "replay")),
    "manifest": ("recording", "recording/manifest.json", ("inspect", "replay")),
}


def put_fifo(at, _):
    os.mkfifo(at)


def put_device(at, _):
    os.mknod(at, 0o600 | 0o020000, os.makedev(1, 5))        # /dev/zero, which has no end


def put_socket(at, _):
    cwd = os.getcwd()
    os.chdir(at.parent)
    socket.socket(socket.AF_UNIX).bind(at.name)
    os.chdir(cwd)


def put_directory(at, real):
    at.mkdir()
    shutil.copy(real, at / "model.safetensors")


def put_link_in(at, real):
    shutil.copy(real, at.parent / "kept")
    at.symlink_to("kept")


def put_link_out(at, real):
    at.symlink_to(real)


PUTS = [put_fifo, put_device, put_socket, put_directory, put_link_in, put_link_out]


@pytest.mark.parametrize("put", PUTS, ids=lambda f: f.__name__[4:])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_from_a_file_opens_regular_files_only(made, tmp_path, name, put):
    opened, pattern, commands = NAMES[name]
    at = tmp_path / "in"
    shutil.copytree(made, at)
    named = sorted(at.glob(pattern))[0]
    named.rename(tmp_path / "real")
    try:
        put(named, tmp_path / "real")
    except PermissionError:
        pytest.skip("devices are root's to make")
    for command in commands:
        out = () if command in ("verify", "inspect") else ("-o", tmp_path / "out")
        model = (at / "m.safetensors",) if command == "replay" else ()
        before = time.monotonic()
        done = run_tersor(command, *model, at / opened, *out, timeout=10)
        assert time.monotonic() - before < 2 and done.returncode in (1, 2, 3, 4), (command, done)
        said = done.stderr + done.stdout
        assert named.name in said or done.returncode == 2, (command, said)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["base", "base-of-a-base", "weights", "shard", "dcp-part"])
def test_links_are_followed_if_that_is_asked_for(made, tmp_path, name):
    opened, pattern, _ = NAMES[name]
    at = tmp_path / "in"
    shutil.copytree(made, at)
    named = sorted(at.glob(pattern))[0]
    named.rename(tmp_path / "real")
    named.symlink_to(tmp_path / "real")
    run_tersor("inspect", at / opened, "--follow-symlinks", check=0)
    line = one_line_error(run_tersor("inspect", at / opened))
    assert "found a symbolic link, expected a regular file; --follow-symlinks" in line, line


def test_a_base_that_the_user_names_may_be_anything_that_opens(made, tmp_path):
    """A link, a directory or a stream, anywhere; the base of that base is named by a file again."""
    shutil.copytree(made, tmp_path / "in")
    at, base = tmp_path / "in", tmp_path / "real"
    (at / "base").rename(base)
    (tmp_path / "link").symlink_to(base)
    run_tersor("verify", at / "delta", "--base", tmp_path / "link", check=0)
    (at / "base").symlink_to(base)
    line = one_line_error(run_tersor("verify", at / "second", "--base", at / "delta", check=4))
    assert "base: found a symbolic link" in line
    assert json.loads(run_tersor("verify", at / "delta", "--follow-symlinks", "--json", check=0).stdout)
