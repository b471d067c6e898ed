"""Command lines with real checkpoints: inputs of several kinds in one command, and what verify says."""
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import resource
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import BINARY, DATA, one_line_error, run_tersor
from torchfile import (Storage, Tensor, content_of, load, metadata_in, pt, tensor, tensors_in,
                       tmp_path)  # noqa: F401

FRAMEWORKS = DATA / "frameworks"
TRAINER = FRAMEWORKS / "trainer" / "checkpoint-30"
ORDER = FRAMEWORKS / "expected" / "trainer-parameter-order.txt"
TORCH = DATA / "torch"
BITSANDBYTES = FRAMEWORKS / "states" / "bitsandbytes-adamw8bit.pt"


def value_at(root, *keys):
    """What a loaded .pt has at these keys."""
    for key in keys:
        root = dict(root.pairs)[key]
    return root


def packed(path, *sources):
    run_tersor("pack", *sources, "-o", path, check=0)
    return path


# --- Inputs with and without a tree -------------------------------------------------------------

def joined(tmp_path, *sources, out="back.pt"):
    """Several inputs packed to one file and unpacked to a .pt; the value in it."""
    done = run_tersor("pack", *sources, "-o", tmp_path / "packed.safetensors", check=0)
    assert "is not part of what was saved" not in done.stderr
    done = run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / out, check=0)
    assert done.stderr == ""
    for command in ("inspect", "verify"):
        assert run_tersor(command, tmp_path / out, check=0).stderr == ""
    return load(tmp_path / out)


def assert_has_weights(model, weights):
    found = dict(model.pairs)
    assert sorted(found) == sorted(weights)
    for name, expected in weights.items():
        x = np.frombuffer(content_of(found[name]), np.float32).reshape(expected.shape)
        assert np.abs(x - expected).max() <= 2.0**-16 * np.abs(expected).max(), name


@pytest.mark.parametrize("order", [1, -1])
def test_weights_come_back_beside_an_optimizer_with_a_tree(tmp_path, order):
    sources = [TRAINER / "model.safetensors", TRAINER / "optimizer.pt"][::order]
    root = joined(tmp_path, *sources, "--params", ORDER)
    assert [key for key, _ in root.pairs] == ["model", "optimizer"]
    assert_has_weights(value_at(root, "model"), load_file(TRAINER / "model.safetensors"))
    before, after = load(TRAINER / "optimizer.pt"), value_at(root, "optimizer")
    assert [k for k, _ in after.pairs] == [k for k, _ in before.pairs]
    assert len(value_at(after, "state").pairs) == len(value_at(before, "state").pairs) == 21


def test_weights_come_back_beside_the_optimizer_of_a_dcp_directory(tmp_path):
    root = joined(tmp_path, TRAINER / "model.safetensors",
                  FRAMEWORKS / "accelerate-fsdp" / "checkpoint-10" / "optimizer_0")
    assert [key for key, _ in root.pairs] == ["model", "optimizer"]
    assert_has_weights(value_at(root, "model"), load_file(TRAINER / "model.safetensors"))
    assert [k for k, _ in value_at(root, "optimizer").pairs] == ["state", "param_groups"]


def test_weights_join_several_trees_as_the_first_of_a_list(tmp_path):
    """With more than an optimizer there is no usual form."""
    root = joined(tmp_path, TRAINER / "optimizer.pt", TRAINER / "model.safetensors",
                  TRAINER / "scheduler.pt", "--params", ORDER)
    assert isinstance(root, list) and len(root) == 3
    assert_has_weights(root[0], load_file(TRAINER / "model.safetensors"))
    assert [k for k, _ in root[1].pairs] == ["state", "param_groups"]


def test_weights_join_a_tree_that_a_safetensors_file_keeps(tmp_path):
    run_tersor("convert", TRAINER / "optimizer.pt", "-o", tmp_path / "optimizer.safetensors", check=0)
    root = joined(tmp_path, TRAINER / "model.safetensors", tmp_path / "optimizer.safetensors")
    assert [key for key, _ in root.pairs] == ["model", "optimizer"]
    assert_has_weights(value_at(root, "model"), load_file(TRAINER / "model.safetensors"))


def test_a_tensor_that_one_file_keeps_outside_its_tree_is_noted_once_and_written(tmp_path):
    run_tersor("convert", TORCH / "model.pt", "-o", tmp_path / "a.safetensors", check=0)
    tensors = load_file(tmp_path / "a.safetensors")
    tensors |= {f"extra.{i}": np.arange(4, dtype=np.float32) for i in range(3)}
    save_file(tensors, tmp_path / "b.safetensors", metadata_in(tmp_path / "a.safetensors"))
    done = run_tersor("convert", tmp_path / "b.safetensors", "-o", tmp_path / "b.pt", check=0)
    assert done.stderr.count("is not part of what was saved (tersor_tree; 3 in all)") == 1
    assert len(done.stderr.splitlines()) == 1
    assert len(list(tensors_in(load(tmp_path / "b.pt")))) == len(tensors)


# --- verify -------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", [
    BITSANDBYTES, DATA / "tiny-gpt" / "flashadamw24-after.pt",
    DATA / "tiny-gpt" / "flashadamw32-after.pt"], ids=lambda path: path.stem)
@pytest.mark.parametrize("options", [[], ["--keep", "."], ["--momentum", "linear8", "--weights", "bf16"]],
                         ids=["default", "raw", "other-codecs"])
def test_verify_against_compressed_states_of_other_tools(tmp_path, source, options):
    path = tmp_path / "packed.safetensors"
    run_tersor("pack", source, "-o", path, *options, check=0)
    done = run_tersor("verify", path, "--against", source, check=0)
    assert "raw tensors equal the original's, errors are as recorded" in done.stdout


def test_verify_against_remainders_of_transformer_engine(tmp_path):
    """FP32 weights as BF16 and the low halves, as in the state of its optimizer."""
    x = np.random.default_rng(1).standard_normal((50, 80)).astype(np.float32)
    low = (x.view(np.uint32) & 0xffff).astype(np.uint16).view(np.int16)
    narrow = ((x.view(np.uint32).astype(np.int64) - low) >> 16).astype(np.uint16)
    for name, shift in (("a", 0), ("b", 1)):
        state = {"exp_avg": tensor(x), "exp_avg_sq": tensor(x * x),
                 "master_param": tensor(low + np.int16(shift))}
        (tmp_path / f"{name}.pt").write_bytes(pt({
            "model": {"w": Tensor(Storage(narrow.tobytes(), "BFloat16Storage"), (50, 80))},
            "optimizer": {"state": {0: state}, "param_groups": [{"lr": 0.1, "params": [0]}]}}))
    for options in ([], ["--weights", "bf16+exact16"], ["--keep", "."]):
        path = tmp_path / "packed.safetensors"
        run_tersor("pack", tmp_path / "a.pt", "-o", path, "-f", *options, check=0)
        run_tersor("verify", path, "--against", tmp_path / "a.pt", check=0)
        assert "1 of 3 tensors differ" in one_line_error(
            run_tersor("verify", path, "--against", tmp_path / "b.pt", check=1))


def test_verify_against_compressed_states_sees_a_changed_code(tmp_path):
    """The decoded states are compared, not only names and shapes."""
    path = packed(tmp_path / "packed.safetensors", BITSANDBYTES)
    codes = next(t for where, t in tensors_in(load(BITSANDBYTES)) if where[-1] == "state1")
    changed = bytearray(content_of(codes))
    changed[7] ^= 0x40
    with zipfile.ZipFile(BITSANDBYTES) as old, zipfile.ZipFile(tmp_path / "other.pt", "w") as new:
        for member in old.namelist():
            content = old.read(member)
            new.writestr(member, bytes(changed) if content == content_of(codes) else content)
    done = run_tersor("verify", path, "--against", tmp_path / "other.pt", check=1)
    assert "is not what" in one_line_error(done) and "1 of 6 tensors differ" in done.stderr
    assert "weight.state1" in done.stdout


def data_of(path):
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little"):]


@pytest.mark.parametrize("name", ["w", "w.exp_avg", "w.exp_avg_sq"])
def test_verify_against_sees_one_element_that_decodes_to_the_same(tmp_path, name):
    """By the figures alone: the codes of both originals are equal."""
    rng = np.random.default_rng(1)
    x = rng.normal(0, 0.02, (100, 300)).astype("f4")
    tensors = {"w": x, "w.exp_avg": x * np.float32(0.1), "w.exp_avg_sq": np.square(x)}
    save_file(tensors, tmp_path / "a.safetensors")
    path = packed(tmp_path / "packed.safetensors", tmp_path / "a.safetensors")
    run_tersor("verify", path, "--against", tmp_path / "a.safetensors", check=0)
    tensors[name][7, 7] *= np.float32(1 + 2**-17)
    save_file(tensors, tmp_path / "b.safetensors")
    again = packed(tmp_path / "again.safetensors", tmp_path / "b.safetensors")
    assert data_of(path) == data_of(again)
    run_tersor("verify", path, "--against", tmp_path / "b.safetensors", check=1)


def test_verify_against_the_wrong_original_says_so_first(tmp_path):
    path = packed(tmp_path / "packed.safetensors", TRAINER / "model.safetensors")
    wrong = {name: x + 1 for name, x in load_file(TRAINER / "model.safetensors").items()}
    wrong["another"] = wrong.pop("model.norm.weight")
    save_file(wrong, tmp_path / "wrong.safetensors")
    args = "verify", path, "--against", tmp_path / "wrong.safetensors"
    done = run_tersor(*args, check=1)
    assert one_line_error(done) == (
        f"tersor: {tmp_path}/wrong.safetensors: is not what {path} was packed from: 20 of 21 tensors "
        "differ, 1 is not in it, 1 of its tensors is missing, first another")
    assert done.stdout.count("FAULT") == 6 and "and 16 more tensors (-v lists all)" in done.stdout
    assert run_tersor(*args, "-v", check=1).stdout.count("FAULT") == 21


def test_verify_takes_several_files_and_exits_with_the_worst(tmp_path):
    good = packed(tmp_path / "good.safetensors", TRAINER / "model.safetensors")
    save_file({"x": np.float32([1, np.nan])}, tmp_path / "nan.safetensors")
    content = bytearray(good.read_bytes())
    content[-1] ^= 1
    (tmp_path / "damaged.safetensors").write_bytes(content)
    done = run_tersor("verify", good, tmp_path / "nan.safetensors", good, check=1)
    assert done.stdout.count("good.safetensors: 21 tensors") == 2
    assert "found 1 non-finite value" in one_line_error(done)
    files = [good, tmp_path / "damaged.safetensors", tmp_path / "nan.safetensors", good]
    done = run_tersor("verify", *files, "--json", check=3)
    found = json.loads(done.stdout)["files"]
    assert [f["file"] for f in found] == [str(f) for f in files]
    assert [f.get("faults") for f in found] == [0, None, 1, 0] and "hash" in found[1]["error"]
    done = run_tersor("verify", *files, "--against", good, check=2)
    assert "--against is for one file; found 4" in one_line_error(done)


# --- Standard streams ---------------------------------------------------------------------------

MODEL = TRAINER / "model.safetensors"
SOURCES = [MODEL, TRAINER / "optimizer.pt", TORCH / "arrays-deflated.npz", DATA / "torch" / "odd.pt"]


def pipe(*args, stdin=b"", check=0, **kwargs):
    """The binary with bytes as its standard input; its standard output as bytes."""
    done = subprocess.run([BINARY, *map(str, args)], input=stdin, capture_output=True, timeout=60,
                          **kwargs)
    assert done.returncode == check, done.stderr
    return done


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_streams_carry_what_files_do(tmp_path, source):
    """Packed, unpacked, converted through pipes: the same bytes as with files."""
    run_tersor("pack", source, "-o", tmp_path / "p.safetensors", check=0)
    run_tersor("unpack", tmp_path / "p.safetensors", "-o", tmp_path / "u.pt", check=0)
    run_tersor("convert", source, "-o", tmp_path / "c.safetensors", check=0)
    content = source.read_bytes()
    stream = pipe("pack", "-", "-o", "-", stdin=content).stdout
    assert stream == (tmp_path / "p.safetensors").read_bytes()
    assert pipe("unpack", "-", "-o", "-", "--to", "pt", stdin=stream).stdout == \
        (tmp_path / "u.pt").read_bytes()
    assert pipe("convert", "-o-", "--to=safetensors", "-", stdin=content).stdout == \
        (tmp_path / "c.safetensors").read_bytes()


def test_streams_can_be_inspected_verified_and_compared(tmp_path):
    path = packed(tmp_path / "p.safetensors", MODEL)
    assert b"/dev/stdin: packed safetensors, 21 tensors" in \
        pipe("inspect", "-", stdin=path.read_bytes()).stdout
    assert b"42 planes have the hash" in pipe("verify", "-", stdin=path.read_bytes()).stdout
    pipe("verify", path, "--against", "-", stdin=MODEL.read_bytes())
    pipe("diff", "-", path, "--max-error", "nmse=1e-6", stdin=MODEL.read_bytes())
    args = "pack", MODEL, TRAINER / "optimizer.pt", "--params", "-", "-o", tmp_path / "both.safetensors"
    pipe(*args, stdin=ORDER.read_bytes())
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    assert b"/dev/stdin" in pipe("verify", "-", stdin=bytes(damaged), check=3).stderr


def test_a_file_as_standard_input_is_not_copied(tmp_path):
    """No scratch file is needed for `< file`."""
    with MODEL.open("rb") as file:
        done = subprocess.run([BINARY, "inspect", "-"], stdin=file, capture_output=True,
                              env={**os.environ, "TMPDIR": str(tmp_path / "nowhere")}, timeout=60)
    assert done.returncode == 0 and b"21 tensors" in done.stdout
    done = pipe("inspect", "-", stdin=MODEL.read_bytes(), check=4,
                env={**os.environ, "TMPDIR": str(tmp_path / "nowhere")})
    assert b"cannot make a scratch file in" in done.stderr


@pytest.mark.parametrize("command", ["pack", "unpack", "verify", "inspect", "diff"])
def test_a_fifo_is_read_once_its_writer_comes(tmp_path, command):
    """Also by a writer that is there first, and one that writes in pieces."""
    path = packed(tmp_path / "p.safetensors", MODEL)
    content = (MODEL if command == "pack" else path).read_bytes()
    os.mkfifo(tmp_path / "fifo")
    tail = {"diff": [path], "pack": ["-o", tmp_path / "out"], "unpack": ["-o", tmp_path / "out"]}
    args = [BINARY, command, tmp_path / "fifo", *tail.get(command, [])]
    for late in (False, True):
        (tmp_path / "out").unlink(missing_ok=True)

        def write():
            if late:
                time.sleep(0.1)
            with open(tmp_path / "fifo", "wb", buffering=0) as fifo:
                for i in range(0, len(content), 70001):
                    fifo.write(content[i:i + 70001])

        writer = threading.Thread(target=write)
        writer.start()
        done = subprocess.run(args, capture_output=True, timeout=30)
        writer.join()
        assert done.returncode == 0, done.stderr
    if command == "pack":
        assert (tmp_path / "out").read_bytes() == path.read_bytes()


def test_waiting_for_a_stream_can_be_stopped(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for args, stdin in ((["inspect", tmp_path / "fifo"], subprocess.DEVNULL),
                        (["inspect", "-"], subprocess.PIPE)):
        with subprocess.Popen([BINARY, *map(str, args)], stdin=stdin, stderr=subprocess.PIPE) as child:
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            assert child.wait(10) == -signal.SIGINT


def test_a_socket_as_standard_input_is_read():
    ours, theirs = socket.socketpair()
    with subprocess.Popen([BINARY, "inspect", "-"], stdin=theirs, stdout=subprocess.PIPE) as child:
        theirs.close()
        ours.sendall(MODEL.read_bytes())
        ours.close()
        assert b"21 tensors" in child.communicate(timeout=30)[0] and child.returncode == 0


def test_a_minus_is_a_file_with_its_directory(tmp_path):
    run_tersor("pack", MODEL, "-o", "./-", check=0, cwd=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["-"]
    assert "21 tensors" in run_tersor("inspect", "./-", check=0, cwd=tmp_path, stdin=subprocess.DEVNULL).stdout
    done = pipe("pack", MODEL, "-o", "-", cwd=tmp_path)
    assert done.stdout == (tmp_path / "-").read_bytes() and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("args, status, text", [
    (["inspect", "-", "-"], 2, "standard input can be read once; found it 2 times"),
    (["verify", "-", "--against", "-"], 2, "found it 2 times"),
    (["pack", MODEL, "-o", "-", "--json"], 2, "the output and --json both on the standard output"),
    (["pack", MODEL, "-o", "-", "--max-shard-size", "1M"], 2, "--max-shard-size needs a file"),
    (["sweep", "--last", "9", "--svg", "-", "--csv", "-"], 2, "--csv and --svg both on the standard"),
    (["convert", MODEL, "-o", "-"], 2, "name the format with --to"),
    (["inspect", "-"], 4, "found a special file (device)"),
], ids=str)
def test_streams_that_cannot_be_used_are_refused(args, status, text):
    assert text in one_line_error(run_tersor(*args, check=status, stdin=subprocess.DEVNULL))


def test_a_terminal_gets_no_output():
    ours, theirs = pty.openpty()
    done = subprocess.run([BINARY, "pack", MODEL, "-o", "-"], stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 4 and b"/dev/stdout: found a terminal, expected a file or pipe" in done.stderr


@pytest.mark.parametrize("args, status", [
    (["pack", MODEL, "-o", "-", "--max-error", "nmse=1e-30"], 1),
    (["convert", TORCH / "no-crc.pt", "-o", "-", "--to", "safetensors", "--strict"], 3)], ids=str)
def test_nothing_comes_out_of_a_run_that_fails(args, status):
    assert pipe(*args, check=status).stdout == b""


def test_a_reader_that_leaves_is_an_error():
    """More than a pipe holds; not the signal, so that the message comes."""
    with subprocess.Popen([BINARY, "convert", str(MODEL), "-o", "-", "--to", "npz"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert len(child.stdout.read(1000)) == 1000
        child.stdout.close()
        assert child.stderr.read() == b"tersor: /dev/stdout: cannot write: Broken pipe\n"
        assert child.wait(10) == 4


def test_a_full_disk_is_named(tmp_path):
    """A limit on the size of files stands for it."""
    for args, stdin in ((["pack", MODEL, "-o", "-"], b""), (["inspect", "-"], MODEL.read_bytes())):
        done = pipe(*args, stdin=stdin, check=4, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (100_000, 100_000)))
        assert b"scratch file in $TMPDIR" in done.stderr or b"cannot reserve" in done.stderr
        assert done.stdout == b""


# --- Reports ------------------------------------------------------------------------------------

def test_report_options_take_their_file_alike(tmp_path):
    sweep = ["sweep", "--last", "99", "--codec", "bf16+ulp8"]
    files = {name: tmp_path / f"r.{name}" for name in ("json", "csv", "svg", "html")}
    words = [word for name, path in files.items() for word in (f"--{name}", path)]
    assert "bf16+ulp8" in run_tersor(*sweep, *words, check=0).stdout
    for name, path in files.items():
        content = path.read_text()
        assert run_tersor(*sweep, f"--{name}", "-", check=0).stdout == content, name
        assert run_tersor(*sweep, f"--{name}=-", check=0).stdout == content, name
        again = tmp_path / f"again.{name}"
        run_tersor(*sweep, f"--{name}={again}", check=0)
        assert again.read_text() == content


def test_a_checkpoint_behind_a_report_option_is_an_operand(tmp_path):
    assert json.loads(run_tersor("inspect", "--json", MODEL, check=0).stdout)["inputs"] == [str(MODEL)]
    index = DATA / "tiny-gpt" / "hf" / "model.safetensors.index.json"
    assert json.loads(run_tersor("inspect", "--json", index, check=0).stdout)["inputs"] == [str(index)]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama"}))
    before = path.read_bytes()
    done = run_tersor("inspect", "--json", path, MODEL, check=2)
    assert f"'{path}' exists and is no report; put --json behind the operands" in one_line_error(done)
    done = run_tersor("inspect", MODEL, "--json", tmp_path / "r.txt", check=2)
    assert f"is neither an input that exists nor called *.json; --json={tmp_path}/r.txt takes any" \
        in one_line_error(done)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]
    for _ in range(2):     # a report is replaced
        run_tersor("inspect", "--json", tmp_path / "r.json", MODEL, check=0)
    assert json.loads((tmp_path / "r.json").read_text())["inputs"] == [str(MODEL)]


@pytest.mark.parametrize("args", [["pack", MODEL], ["unpack", "packed"], ["convert", MODEL, "--to", "pt"]],
                         ids=lambda args: args[0])
def test_a_dry_run_needs_no_output(tmp_path, args):
    packed(tmp_path / "packed", MODEL)
    done = run_tersor(*args, "--dry-run", check=0, cwd=tmp_path)
    assert "planned" in done.stdout and len(list(tmp_path.iterdir())) == 1
    if args[0] != "pack":       # which names it
        assert "no output; give it with -o OUT" in one_line_error(run_tersor(*args, check=2, cwd=tmp_path))


def test_version_has_a_short_name():
    assert run_tersor("-V", check=0).stdout == run_tersor("--version", check=0).stdout


# --- Completion ---------------------------------------------------------------------------------

@pytest.mark.parametrize("breaks", [" \t\n\"'><=;|&(:", " \t\n\"'><;|&("], ids=["default", "without-equals"])
@pytest.mark.parametrize("line, offered", [
    ("tersor pack in --weights=", {"bf16+ulp8", "fp16", "f32"}),
    ("tersor pack in --weights=bf16+ul", {"bf16+ulp8", "bf16+ulp16"}),
    ("tersor pack in --momentum=so", {"softsign8"}), ("tersor pack --weights bf16+ul", {"bf16+ulp8"}),
    ("tersor convert in --to=fl", {"flashoptim"}), ("tersor pack in --json=RE", {"README"})])
def test_completion_after_an_equals_sign(tmp_path, line, offered, breaks):
    """Words as readline splits them."""
    words = [w for w in re.findall(r"[=:]+|[^=: ]+" if "=" in breaks else r"[^ ]+", line)]
    (tmp_path / "script").write_text(run_tersor("completion", "bash", check=0).stdout)
    (tmp_path / "README").touch()
    code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; _tersor; ' \
           'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "--norc", "-c", code, "bash", tmp_path / "script", *words],
                          capture_output=True, text=True, cwd=tmp_path, check=True)
    lead = line.split()[-1].split("=")[0] + "=" if "=" in line and "=" not in breaks else ""
    found = set(done.stdout.split())
    assert {lead + word for word in offered} <= found
    typed = line.split("=")[-1].split()[-1] if not line.endswith("=") else ""
    assert all(word.startswith(lead + typed) for word in found)


# --- Expressions --------------------------------------------------------------------------------

@pytest.mark.parametrize("option", [["--keep", "layer5"], ["--map", "nosuch=momentum"]], ids=str)
def test_an_expression_that_matches_nothing_is_a_warning_or_with_strict_an_error(tmp_path, option):
    args = "pack", MODEL, "-o", tmp_path / "out", *option, "--keep", "norm"
    text = f"regular expression '{option[1].split('=')[0]}'"
    done = run_tersor(*args, check=0)
    assert done.stderr == f"tersor: warning: {text} matches no tensor of {MODEL}\n"
    line = one_line_error(run_tersor(*args, "-f", "--strict", check=2))
    assert line == f"tersor: {text}: matches no tensor of {MODEL}; only --strict refuses this"
    done = run_tersor("pack", MODEL, "-o", tmp_path / "out", "-f", "--keep", "norm", "--strict", check=0)
    assert done.stderr == ""


def test_a_glob_gets_the_expression_that_is_meant(tmp_path):
    both = [MODEL, TRAINER / "optimizer.pt", "--params", ORDER, "-o", tmp_path / "out", "-f"]
    line = one_line_error(run_tersor("pack", *both, "--keep", "*norm.weight", check=2))
    assert line.endswith(r"; the glob of that form is the expression '^.*norm\.weight$'")
    done = run_tersor("pack", *both, "--keep", "model.*.weight", "--json", check=0)
    found = [t["name"] for t in json.loads(done.stdout)["tensors"] if t["kind"] == "other"]
    meant = [name for name in load_file(MODEL) if name.startswith("model.")]
    assert f"matches {len([n for n in found if n.startswith('model')])} tensors" in done.stderr
    assert f"match {len(meant)} and is the expression '^model\\..*\\.weight$'" in done.stderr
    done = run_tersor("pack", *both, "--keep", r"^model\..*\.weight$", check=0)
    assert done.stderr == ""
    assert run_tersor("pack", *both, "--keep", ".*norm.*", check=0).stderr == ""


# --- diff and replay ----------------------------------------------------------------------------

def test_diff_within_tolerances_is_only_summed_up(tmp_path):
    a = {"near": np.float32([1, 2]), "far": np.float32([1, 2]), "same": np.float32([3])}
    b = {"near": np.float32([1, 2.0001]), "far": np.float32([1, 3]), "same": np.float32([3])}
    save_file(a, tmp_path / "a.safetensors")
    save_file(b, tmp_path / "b.safetensors")
    args = "diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors"

    def lines(*options, check):
        return run_tersor(*args, *options, check=check).stdout.splitlines()

    assert [line.split()[0] for line in lines("--max-error", "abs=2", check=0)] == ["worst:", "3"]
    assert [line.split()[:1] for line in lines("--max-error", "abs=0.5", check=1)] == \
        [["tensor"], ["far"], [], ["worst:"], ["3"]]
    assert sum(line.startswith(("near", "far", "same"))
               for line in lines("--max-error", "abs=2", "-v", check=0)) == 3
    assert sum(line.startswith(("near", "far")) for line in lines(check=1)) == 2


def test_a_distance_across_zero_is_no_number_of_ulp(tmp_path):
    save_file({"x": np.float32([1e-3, 1])}, tmp_path / "a.safetensors")
    save_file({"x": np.float32([-1e-3, 1])}, tmp_path / "b.safetensors")
    args = "diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    assert re.search(r"^x +1 +at zero +2\.00e-03", run_tersor(*args, check=1).stdout, re.M)
    exact = 2 * int(np.float32(1e-3).view(np.uint32))
    assert json.loads(run_tersor(*args, "--json", check=1).stdout)["tensors"][0]["error"]["ulp"] == exact
    gpt = DATA / "tiny-gpt"
    done = run_tersor("replay", gpt / "checkpoint.pt", gpt / "recording", "--state", "flash",
                      "--compare", "fp32", "-v", check=0)
    assert "ULP" not in done.stdout and not re.search(r"(?<![.\d])\d{9}", done.stdout)


def test_replay_with_another_optimizer_is_warned_about():
    gpt = DATA / "tiny-gpt"
    args = "replay", gpt / "checkpoint.pt", gpt / "recording"
    assert run_tersor(*args, "--optimizer", "adamw", check=0).stderr == ""
    assert run_tersor(*args, "--optimizer", "adam", check=0).stderr == \
        f"tersor: warning: {gpt}/recording: was recorded with adamw, but adam is replayed\n"


# --- Files of other programs --------------------------------------------------------------------

# The first bytes of files that Flax 0.12, h5py, gguf and gzip wrote; llm.c's header by its source.
def archive_of(*names):
    """A zip archive with these members, as a program other than torch.save writes it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name in names:
            z.writestr(name, "content")
    return out.getvalue()


FOREIGN = {
    "ppo.zip": (archive_of("data", "pytorch_variables.pth", "policy.pth", "policy.optimizer.pth",
                           "_stable_baselines3_version", "system_info.txt"),
                "a zip archive of other files, such as Stable-Baselines3 or Keras writes; unzip it and name one of them "
                "(pytorch_variables.pth, policy.pth, policy.optimizer.pth)"),
    "m.keras": (archive_of("metadata.json", "config.json", "model.weights.h5"), "a zip archive of other files"),
    "folder.zip": (archive_of("run/config.json", "run/model.safetensors"), "a zip archive of other files"),
    "flax.msgpack": (b"\x82\xa6params\x81\xa5dense\x82\xa6kernel\xc7N\x01\x93\x92\x04\x04\xa7float32",
                     "a MessagePack file, such as Flax writes"),
    "long.msgpack": (b"\xde\x00\x10\xd9\x20" + b"encoder.block.0.attention.kernel" + b"\x01" * 40,
                     "a MessagePack file"),
    "model.h5": (b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0\x04\0\x10", "an HDF5 file, such as Keras writes"),
    "m.gguf": (b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x14\0\0\0\0\0\0\0general.architecture",
               "a GGUF model of llama.cpp"),
    "gpt2_124M.bin": (np.array([20240326, 3, 64, 256] + [0] * 252, "<i4").tobytes(), "a model of llm.c"),
    "state_00000010_00000.bin": (np.array([20240527, 1] + [0] * 254, "<i4").tobytes(),
                                 "an optimizer state of llm.c"),
    "model.safetensors.gz": (b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "data compressed by gzip"),
    "model.safetensors.zst": (b"\x28\xb5\x2f\xfd\x04\x58", "data compressed by zstd"),
    "lfs.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
                        "a pointer of Git LFS, not the file itself; git lfs pull fetches it"),
    "checkpoint": (b'model_checkpoint_path: "ckpt-1"\n', "the list of a TensorFlow checkpoint"),
    "ckpt-1.index": (b"\0\0\0\0" + b"x" * 60 + bytes.fromhex("57fb808b247547db"),
                     "the index of a TensorFlow checkpoint"),
    "config.json": (b'{"model_type": "llama"}', "JSON without an object weight_map, so no index of shards"),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("command", [["inspect"], ["pack", "--dry-run"], ["verify"]], ids=lambda c: c[0])
def test_a_file_of_another_program_is_named(tmp_path, command, name):
    content, says = FOREIGN[name]
    (tmp_path / name).write_bytes(content)
    line = one_line_error(run_tersor(*command, tmp_path / name, check=3))
    assert line.startswith(f"tersor: {tmp_path / name}: found {says}")
    (tmp_path / name).write_bytes(content[:12])         # cut: any error, but one line and no crash
    one_line_error(run_tersor(*command, tmp_path / name, check=3))


@pytest.mark.parametrize("names", [["_CHECKPOINT_METADATA"], ["manifest.ocdbt", "d"], ["_METADATA", "_sharding"]],
                         ids=str)
def test_a_checkpoint_of_orbax_is_named(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    line = one_line_error(run_tersor("inspect", tmp_path, check=3))
    assert line.startswith(f"tersor: {tmp_path}: found a checkpoint of Orbax; restore it in Python")


def test_in_a_directory_an_expression_may_match_in_any_file(tmp_path):
    args = "pack", TRAINER, "-o", tmp_path / "out", "--keep", "norm"
    done = run_tersor(*args, "--dry-run", check=0)
    assert "regular expression" not in done.stderr
    run_tersor(*args, "--strict", check=0)
    text = f"regular expression 'nosuch' matches no tensor of {TRAINER}"
    done = run_tersor(*args, "-f", "--keep", "nosuch", check=0)
    assert done.stderr.count("regular expression") == 1 and text in done.stderr
    line = one_line_error(run_tersor(*args, "-f", "--keep", "nosuch", "--strict", check=2))
    assert line.startswith(f"tersor: regular expression 'nosuch': matches no tensor of {TRAINER};")


def test_a_directory_is_no_stream(tmp_path):
    packed(tmp_path / "packed", TRAINER)
    for command, source in (("pack", TRAINER), ("unpack", tmp_path / "packed")):
        assert "planned" in run_tersor(command, source, "--dry-run", check=0).stdout
        line = one_line_error(run_tersor(command, source, "-o", "-", "-q", check=2))
        assert line == "tersor: /dev/stdout: expected a name for the output directory"


def bar_on(columns, tmp_path, interrupt=False):
    """What a terminal of so many columns gets of a progress bar, and whether a line of it is full."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen([BINARY, "sweep", "-j1"], stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "LC_ALL": "C"})
    os.close(theirs)
    said, until = b"", time.monotonic() + 20
    while said.count(b"%") < 3 and time.monotonic() < until:
        said += os.read(ours, 4096)
    child.send_signal(signal.SIGINT)
    child.wait()
    with contextlib.suppress(OSError):      # no more to read
        while chunk := os.read(ours, 4096):
            said += chunk
    os.close(ours)
    assert child.returncode == -signal.SIGINT
    return said.decode()


@pytest.mark.parametrize("columns, shows", [(120, r"\[#*\.+\] +\d+%"), (60, r"\[#*\.+\] +\d+%"), (40, r"sweeping +\d+%"), (10, r"^\s*\d+%")])
def test_a_bar_fits_the_terminal_and_ctrl_c_leaves_a_clean_line(columns, shows, tmp_path):
    said = bar_on(columns, tmp_path)
    draws = said.split("\r")
    assert max(len(draw.replace("\x1b[K", "")) for draw in draws) < columns and "\n" not in said
    assert re.search(shows, draws[1]) and draws[-1].replace("\x1b[K", "").strip() == ""
