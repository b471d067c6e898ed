# SPDX-License-Identifier: Apache-2.0
"""What a person at a terminal sees: colours, what Ctrl-C leaves, lines of 80 columns, and what to do next."""
import os
import pty
import re
import select
import signal
import subprocess
import time

import numpy as np
import pytest
import safetensors.numpy

from conftest import BINARY, DATA, one_line_error, run_tersor

TINY = DATA / "tiny-gpt"
CHECKPOINT, RECORDING = TINY / "checkpoint.pt", TINY / "recording"
GRADES = re.compile(r"\x1b\[(3[123])m(\w+)\x1b\[0m")


def in_terminal(*args, env=(), interrupt=False, cwd=None):
    """(exit status, what the terminal got) of the program on a terminal."""
    main, end = pty.openpty()
    process = subprocess.Popen([BINARY, *map(str, args)], stdin=end, stdout=end, stderr=end, cwd=cwd,
                               env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **dict(env)})
    os.close(end)
    got, stopped = b"", False
    while True:
        ready, _, _ = select.select([main], [], [], 60)
        try:
            more = os.read(main, 65536) if ready else b""
        except OSError:                         # the other end is closed
            more = b""
        if not more:
            break
        got += more
        if interrupt and not stopped and b"%" in got:
            process.send_signal(signal.SIGINT)
            stopped = True
    os.close(main)
    return process.wait(60), got.decode().replace("\r\n", "\n")


@pytest.fixture
def packed(tmp_path):
    run_tersor("pack", CHECKPOINT, "-o", tmp_path / "p.safetensors", check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", tmp_path / "m.safetensors", "--only", "weights", check=0)
    run_tersor("pack", CHECKPOINT, "-o", tmp_path / "d.safetensors", "--only", "weights", "--delta",
               tmp_path / "m.safetensors", check=0)
    return tmp_path


# Colour

def grades(text):
    return {word: color for color, word in GRADES.findall(text)}


def test_grades_have_colours_on_a_terminal():
    plain = run_tersor("audit", CHECKPOINT, check=0).stdout
    status, shown = in_terminal("audit", CHECKPOINT, "--no-progress")
    assert status == 0 and grades(shown) == {"fine": "32", "watch": "33", "bad": "31"}
    assert GRADES.sub(r"\2", shown) == plain            # and nothing moves by it


@pytest.mark.parametrize("args, env, colored", [
    ([], {"NO_COLOR": "1"}, False), ([], {"TERM": "dumb"}, False), (["--color", "never"], {}, False),
    (["--color=auto"], {}, True), (["--color", "always"], {"NO_COLOR": "1", "TERM": "dumb"}, True)])
def test_colours_can_be_switched_off(args, env, colored):
    status, shown = in_terminal("audit", CHECKPOINT, "--no-progress", *args, env=env)
    assert status == 0 and bool(grades(shown)) == colored and ("\x1b" in shown) == colored


def test_files_and_other_reports_have_no_colours(tmp_path):
    assert "\x1b" not in run_tersor("audit", CHECKPOINT, check=0).stdout
    assert grades(run_tersor("audit", CHECKPOINT, "--color", "always", check=0).stdout)
    run_tersor("audit", CHECKPOINT, "--color", "always", "--json=a.json", "--csv=a.csv", "--html=a.html", cwd=tmp_path,
               check=0)
    for path in tmp_path.iterdir():
        assert b"\x1b" not in path.read_bytes(), path
    assert "\x1b" not in run_tersor("audit", CHECKPOINT, "--color", "always", "--json", check=0).stdout


def test_faults_are_red(packed):
    shown = run_tersor("verify", "p.safetensors", "--against", CHECKPOINT, "--max-error", "nmse=1e-12", "--color",
                       "always", cwd=packed, check=1).stdout
    assert grades(shown)["FAULT"] == "31"


# Ctrl-C

def test_ctrl_c_leaves_a_clean_line_and_no_output(tmp_path):
    x = np.random.default_rng(1).standard_normal(20_000_000, np.float32)
    safetensors.numpy.save_file({"w": np.tile(x, 8)}, tmp_path / "in.safetensors")
    status, shown = in_terminal("pack", "in.safetensors", "-o", "out.safetensors", "-j1", interrupt=True, cwd=tmp_path)
    assert status == 128 + signal.SIGINT
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]
    last = shown.rstrip("\n").split("\n")[-1].split("\r")[-1]
    assert "%" not in last and "[" not in last, last     # the bar is wiped, whatever line comes then


# Closed pipes

def test_a_reader_that_leaves_is_no_news():
    """head closes the pipe: the status is that of an output that was not written whole, without a message."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([BINARY, "codecs", "--json"], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert done.stderr == b"" and done.returncode == 4


# Messages that say what to do next

@pytest.mark.parametrize("args, said", [
    (["audit", RECORDING], "is a recording, expected a checkpoint; 'tersor replay CHECKPOINT RECORDING' takes it last"),
    (["replay", RECORDING, CHECKPOINT], "is a recording, expected a checkpoint"),
    (["replay", CHECKPOINT, "p.safetensors"], "is a file, expected a recording: a directory"),
    (["apply", "m.safetensors", "d.safetensors"], "it comes before the model"),
    (["apply", "d.safetensors", "p.safetensors"], "which was called m.safetensors"),
    (["unpack", CHECKPOINT, "-o", "x"], "is not a packed file; tersor pack packs it"),
    (["convert", "--entropy", CHECKPOINT, "-o", "x"], "tersor pack --entropy packs and codes it")])
def test_operands_of_the_wrong_kind_are_told(packed, args, said):
    assert said in one_line_error(run_tersor(*args, cwd=packed, check=3))


def test_a_report_in_no_directory_is_found_before_the_work(tmp_path):
    line = one_line_error(run_tersor("audit", "--html", tmp_path / "no" / "x.html", CHECKPOINT, check=4))
    assert "x.html: cannot open its directory" in line


@pytest.mark.parametrize("option, path, said", [
    ("--svg", "a.png", "is written as SVG"), ("--html", "a.pdf", "is written as HTML"), ("--svg", "a.svg", ""),
    ("--html", "a.html", ""), ("--svg", "a", "")])
def test_a_chart_with_another_extension_is_told(tmp_path, option, path, said):
    done = run_tersor("audit", option, path, CHECKPOINT, cwd=tmp_path, check=0)
    assert (said in done.stderr) if said else done.stderr == ""


def test_a_file_goes_into_the_directory_that_is_named(tmp_path):
    (tmp_path / "to").mkdir()
    run_tersor("pack", CHECKPOINT, "-o", f"{tmp_path}/to/", check=0)
    packed = tmp_path / "to" / "checkpoint.packed.safetensors"
    run_tersor("unpack", packed, "-o", f"{tmp_path}/to/", check=0)
    assert (tmp_path / "to" / "checkpoint.safetensors").exists()
    assert "no file name" in one_line_error(run_tersor("pack", CHECKPOINT, "-o", f"{tmp_path}/none/", check=4))


def test_codecs_can_be_named():
    shown = run_tersor("codecs", "softsign8", "bf16+rn8", check=0).stdout
    assert "softsign8*" in shown and "bf16+rn1..13" in shown and "sqrt8" not in shown
    assert "did you mean 'softsign8'?" in one_line_error(run_tersor("codecs", "softsing8", check=2))


# 80 columns

COMMANDS = [
    ["inspect", CHECKPOINT], ["inspect", "-v", CHECKPOINT], ["inspect", RECORDING], ["inspect", "p.safetensors"],
    ["pack", CHECKPOINT, "-o", "o1"], ["pack", "-v", CHECKPOINT, "-o", "o2"], ["pack", TINY / "hf", "-o", "o3"],
    ["pack", "--entropy", CHECKPOINT, "-o", "o4"], ["pack", "--auto", "1e-4", CHECKPOINT, "-o", "o5"],
    ["unpack", "p.safetensors", "-o", "o6"], ["verify", "p.safetensors"],
    ["verify", "-v", "p.safetensors", "--against", CHECKPOINT], ["diff", "p.safetensors", CHECKPOINT],
    ["diff", "-v", CHECKPOINT, TINY / "checkpoint.safetensors"], ["apply", "--dry-run", "d.safetensors", "m.safetensors"],
    ["convert", CHECKPOINT, "-o", "o7.safetensors"], ["convert", CHECKPOINT, "-o", "o.npz"], ["audit", CHECKPOINT],
    ["audit", "-v", CHECKPOINT], ["audit", "--granularity", CHECKPOINT], ["replay", CHECKPOINT, RECORDING],
    ["replay", CHECKPOINT, RECORDING, "--state", "flash,tight,coat"], ["replay", CHECKPOINT, RECORDING, "--audit"],
    ["replay", "-v", CHECKPOINT, RECORDING, "--state", "coat", "--compare", "fp32"], ["codecs"], ["codecs", "-v"],
    ["codebook", CHECKPOINT], ["sweep", "--codec", "bf16+ulp8", "--last", "0xffff"], ["version", "-v"]]


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: " ".join(str(a) for a in args if a not in
                                                                     (CHECKPOINT, RECORDING)))
def test_reports_fit_80_columns(packed, args):
    """But for lines that hold a path of the caller's."""
    done = run_tersor(*args, cwd=packed, check=None)
    assert done.returncode in (0, 1), done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80 and "/" not in line] == []
