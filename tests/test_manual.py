"""The manual: its examples run, its options and report members are those of the program."""
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import safetensors.numpy

import signature_file
from conftest import BINARY, DATA, ROOT, run_tersor
from faults import LONG

CHECKPOINT = DATA / "tiny-gpt" / "checkpoint.safetensors"
RATED = CHECKPOINT.with_suffix(".pt")       # with a learning rate
QUANTIZED = DATA / "frameworks" / "quantized" / "bitsandbytes-int8.safetensors"
PAGES = sorted((ROOT / "man").glob("*.1"))
COMMANDS = ("pack", "unpack", "inspect", "verify", "diff", "convert", "apply", "join", "store", "audit", "sweep",
            "replay", "bisect", "codecs", "codebook", "bench", "completion", "version")
# What keeps `tersor bench` short; the last of equal options counts.
BENCH_KERNELS = "--elements 64K --repeats 1"
BENCH_FILES = "--file-size 1M --repeats 1"


def page_of(command):
    return ROOT / "man" / f"tersor-{command}.1"


def section(page, name):
    """The source lines of a section."""
    text = page.read_text()
    found = re.search(rf'^\.S[hs] {name}\n(.*?)(?=^\.S[hs] |\Z)', text, re.M | re.S)
    assert found, f"{page.name}: no section {name}"
    return found.group(1)


def blocks(source):
    """The literal displays in a piece of mdoc, as they are shown."""
    shown = []
    for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", source, re.M | re.S):
        for escape, text in ((r"\-", "-"), (r"\(aq", "'"), (r"\(ti", "~"), (r"\e", "\\")):
            block = block.replace(escape, text)
        shown.append(block)
    return shown


# Examples

def sessions():
    """(id, [(command, expected output or None)]) for every display in EXAMPLES and line of help that no display has."""
    found = []
    for page in PAGES:
        for i, block in enumerate(blocks(section(page, "EXAMPLES"))):
            commands = []
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                lines = part.splitlines()
                end = 1
                while lines[end - 1].endswith(("\\", "|")):
                    end += 1
                commands.append(("\n".join(lines[:end]), lines[end:] or None))
            assert commands, f"{page.name}: a display in EXAMPLES without a $ prompt"
            found.append((f"{page.name}-{i + 1}", commands))
    on_pages = {commands[0][0] for _, commands in found}
    for command in COMMANDS:
        text = run_tersor(command, "--help", check=0).stdout
        lines = re.search(r"^Examples:\n((?:  .*\n)+)", text, re.M).group(1).splitlines()
        found += [(f"{command}-help-{i + 1}", [(line.strip(), None)])
                  for i, line in enumerate(lines) if line.strip() not in on_pages]
    return found


SESSIONS = sessions()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Every file that an example may name."""
    folder = tmp_path_factory.mktemp("library")
    tensors = safetensors.numpy.load_file(CHECKPOINT)
    states = {name: t for name, t in tensors.items() if ".exp_avg" in name}
    safetensors.numpy.save_file(states, folder / "optimizer.safetensors")
    safetensors.numpy.save_file({name: t for name, t in tensors.items() if name not in states},
                                folder / "model.safetensors", metadata={"format": "pt", "step": "400"})
    for name in ("checkpoint", "in", "before", "after"):
        shutil.copy(CHECKPOINT, folder / f"{name}.safetensors")
    for name in ("checkpoint", "big"):
        shutil.copy(CHECKPOINT.with_suffix(".pt"), folder / f"{name}.pt")
    shutil.copy(CHECKPOINT.with_name("flashadamw24-after.pt"), folder / "flash.pt")
    shutil.copytree(DATA / "frameworks" / "trainer" / "checkpoint-30", folder / "checkpoint-30")
    shutil.copytree(folder / "checkpoint-30", folder / "checkpoint-600")
    for step in "400", "500":
        run_tersor("store", "add", folder / "run.store", folder / "checkpoint-30", "--step", step, check=0)
    for name in ("dcp", "recording"):
        shutil.copytree(CHECKPOINT.with_name(name), folder / name)
    for path in CHECKPOINT.with_name("hf").iterdir():
        shutil.copy(path, folder)
    for name in "run-a", "run-b":   # a recording with signatures
        shutil.copytree(folder / "recording", folder / name)
        run_tersor("replay", folder / "checkpoint.pt", folder / "recording", "--signatures",
                   folder / name / "signatures.tsig", check=0)
    packed, restored = folder / "packed.safetensors", folder / "restored.safetensors"
    run_tersor("pack", CHECKPOINT, "-o", packed, check=0)
    run_tersor("unpack", packed, "-o", restored, check=0)
    model = folder / "model.safetensors"
    run_tersor("pack", model, "-o", folder / "update.safetensors", "--only", "weights", "--delta", model, check=0)
    return folder


@pytest.fixture
def shell(tmp_path, library):
    """Runs a command in bash in a scratch directory where `tersor` is the binary under test."""
    home, bin_dir = tmp_path / "home", tmp_path / "bin"
    (home / ".config" / "fish" / "completions").mkdir(parents=True)
    (home / "work").mkdir()
    bin_dir.mkdir()
    wrapper = bin_dir / "tersor"
    wrapper.write_text('#!/bin/bash\nif [[ $1 == bench && " $* " == *" --dir "* ]]; then\n'
                       f'set -- "$@" {BENCH_FILES}\nelif [[ $1 == bench && "$*" == *.safetensors ]]; then\n'
                       'set -- "$@" --repeats 1\nelif [[ $1 == bench ]]; then\n'
                       f'set -- "$@" {BENCH_KERNELS}\nfi\n'
                       f'exec "{os.path.abspath(BINARY)}" "$@"\n')
    wrapper.chmod(0o755)
    env = dict(os.environ, LC_ALL="C", HOME=str(home), PATH=f"{bin_dir}:{os.environ['PATH']}")

    def run(command):
        return subprocess.run(["bash", "-c", "set -euo pipefail\n" + command], cwd=home / "work",
                              env=env, capture_output=True, text=True, timeout=120)

    run.folder = home / "work"
    return run


def compile_conversions(library):
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "examples" / "to_bf16.c"], check=True)


def provide(commands, library, folder):
    """Put the files there that the commands name before they make them."""
    made = set()
    for command, _ in commands:
        words = command.replace("\\\n", " ").split()
        for before, word in zip([""] + words, words):
            if re.fullmatch(r"-f?o|--output|--model", before):
                made.add(word)
            elif word in made or not re.fullmatch(r"(\./)?\w[\w.-]*", word):
                continue
            elif (library / word).is_dir():
                shutil.copytree(library / word, folder / word, dirs_exist_ok=True)
            elif re.search(r"\.(safetensors|pt|index\.json)$", word):
                shards = library.glob("model-0*") if word.endswith(".json") else []
                for path in (library / word, *shards):
                    shutil.copy(path, folder)
            elif word == "./f.so":
                compile_conversions(folder / word)
            elif word.endswith(".npz"):
                np.savez(folder / word, x=np.arange(64.0))


@pytest.mark.parametrize("commands", [c for _, c in SESSIONS], ids=[i for i, _ in SESSIONS])
def test_example_runs_and_shows_what_the_manual_shows(shell, library, commands):
    if not LONG and any(command.startswith("tersor sweep --library") for command, _ in commands):
        pytest.skip("2^32 bit patterns; test_sweep_library.py has some of them")
    provide(commands, library, shell.folder)
    for command, shown in commands:
        done = shell(command)
        # A warning may be in the nature of an example, but not of one whose output is shown; -v asks for notes.
        said = [line for line in done.stderr.splitlines() if not line.startswith("tersor: note: ")
                and (shown is not None or not line.startswith("tersor: warning: "))]
        assert done.returncode == 0 and not said, f"{command}\n{done.stdout}{done.stderr}"
        if shown is not None:
            assert [line.rstrip() for line in done.stdout.splitlines()] == shown, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_names_its_command_in_its_examples(page):
    words = page.stem.replace("-", " ")
    assert any(words in block for block in blocks(section(page, "EXAMPLES")))


# Options

@pytest.mark.parametrize("command", COMMANDS)
def test_page_and_help_have_the_same_options(command):
    text = run_tersor(command, "--help", check=0).stdout
    in_help = set(re.findall(r"^ {2,6}(?:-\w, )?--([a-z-]+)", text, re.M))
    in_help |= set(re.findall(r"^  -(\w), --", text, re.M))
    items = re.findall(r"^\.It (Fl .*)", page_of(command).read_text(), re.M)
    in_page = {name.lstrip("-") for item in items for name in re.findall(r"Fl (-?[a-z-]+)", item)}
    assert "help" in in_help and in_page == in_help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_at_most_80_columns_wide(command):
    for args in ((command, "--help"), ("--help",)):
        assert [line for line in run_tersor(*args, check=0).stdout.splitlines()
                if len(line) > 80] == []


def test_overview_lists_the_commands_of_the_help():
    text = run_tersor("--help", check=0).stdout
    in_help = re.findall(r"^  ([a-z]+) ", text[text.index("Commands:"):], re.M)
    listed = re.findall(r"^\.It Cm ([a-z]+)$",
                        (ROOT / "man" / "tersor.1").read_text().split(".Ss Words")[0], re.M)
    assert listed == in_help == list(COMMANDS)
    assert sorted(page.name for page in PAGES) == sorted(
        ["tersor.1"] + [page_of(command).name for command in COMMANDS])


# Reports

def members(value, inside=None):
    """Names of all members in a JSON value, except of objects whose members are a file's own."""
    if isinstance(value, list):
        return set().union(*(members(v) for v in value))
    if not isinstance(value, dict) or inside in ("metadata", "hyperparameters"):
        return set()
    return set(value).union(*(members(v, key) for key, v in value.items()))


def report(*args):
    done = run_tersor(*args)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def audit_that_moved(scratch):
    """A report with a baseline that differs."""
    base = scratch / "audit.json"
    run_tersor("audit", CHECKPOINT, "--codec", "bf16", f"--json={base}", check=0)
    done = run_tersor("audit", CHECKPOINT, "--baseline", base, "--json", check=1)
    return json.loads(done.stdout)


def sweep_that_moved(scratch):
    """A report that differs from its baseline."""
    args = ("sweep", "--codec", "bf16", "--last", "9")
    baseline = scratch / "baseline"
    run_tersor(*args, f"--json={baseline}", check=0)
    baseline.write_text(baseline.read_text().replace('"overflow":0', '"overflow":1'))
    return report(*args, "--baseline", baseline, "--json")


def sweep_of_a_library(scratch):
    compile_conversions(scratch / "f.so")
    return report("sweep", "--library", scratch / "f.so", "--symbol", "to_bf16_fast", "--last", "65535", "--json")


def replay_of_a_matrix(scratch):
    """Hyperparameters of Muon."""
    (scratch / "muon").mkdir(exist_ok=True)
    safetensors.numpy.save_file({"w": np.ones((2, 3), "f4")}, scratch / "muon" / "step-1.safetensors")
    return report("replay", scratch / "muon" / "step-1.safetensors", scratch / "muon", "--optimizer", "muon",
                  "--lr", "1e-3", "--json")


def replay_with_a_missing_gradient(scratch):
    save = safetensors.numpy.save_file
    save({name: np.ones(2, np.float32) for name in "ab"}, scratch / "in.safetensors")
    (scratch / "rec").mkdir()
    for step, names in enumerate(("ab", "a"), 1):
        save({name: np.ones(2, np.float32) for name in names},
             scratch / "rec" / f"{step}.safetensors")
    return report("replay", scratch / "in.safetensors", scratch / "rec", "--optimizer", "sgd", "--lr",
                  "1", "--json")


def pair(scratch):
    """A packed file whose weights are in another one."""
    packed = scratch / "m.safetensors.tersor"
    run_tersor("pack", CHECKPOINT, "-o", packed, "--model", scratch / "m.safetensors", check=0)
    return packed


def delta(scratch):
    """A packed file that is a delta to another one."""
    for name, options in (("base", ()), ("delta", ("--delta", scratch / "base"))):
        run_tersor("pack", CHECKPOINT, "-o", scratch / name, *options, check=0)
    return scratch / "delta"


def coded(scratch):
    run_tersor("pack", CHECKPOINT, "-o", scratch / "coded", "--entropy", check=0)
    return scratch / "coded"


def rated(scratch):
    """A packed file of which steps are known."""
    run_tersor("pack", RATED, "-o", scratch / "rated.packed", "-qq", check=0)
    return scratch / "rated.packed"


def bisected(library, scratch):
    """Runs by two orders, with other hyperparameters, and of two ranks."""
    args = "replay", CHECKPOINT, library / "recording", "--steps", "..402", "--signatures"
    report(*args, scratch / "fused.tsig", "--order", "torch-cuda-fused", "--json")
    report(*args, scratch / "lr.tsig", "--lr", "1e-3", "--weight-decay", "0.3", "--json")
    for rank in range(2):
        (scratch / "ranks").mkdir(exist_ok=True)
        (scratch / "ranks" / f"{rank}.tsig").write_bytes(
            signature_file.head(signature_file.of_tensors([("w", "weight", "F32", [1])], 2, rank)) +
            signature_file.block(401, 0, [0.1], [bytes([rank + 1]) * 32]))
    return [report("bisect", library / "run-a", scratch / "fused.tsig", "--from", CHECKPOINT, "--json"),
            report("bisect", scratch / "fused.tsig", scratch / "lr.tsig", "--json"),
            report("bisect", scratch / "ranks", scratch / "ranks", "--json"),
            report("bisect", CHECKPOINT, CHECKPOINT.with_name("expected-adamw-fp32.safetensors"), "--json")]


def reports(command, library, scratch):
    """Objects that between them have every member that this command can report."""
    packed, restored = library / "packed.safetensors", library / "restored.safetensors"
    out = scratch / "out"
    return {
        "pack": lambda: [report("pack", CHECKPOINT, "-o", out, "--json"),
                         report("pack", RATED, "-o", scratch / "rated", "--json"),
                         report("pack", QUANTIZED, "-o", scratch / "quantized", "--json"),
                         report("pack", packed, "--entropy", "-o", scratch / "coded", "--json"),
                         report("pack", packed, "--delta", packed, "-o", scratch / "delta", "--json")],
        "unpack": lambda: [report("unpack", packed, "-o", out, "--json")],
        "inspect": lambda: [report("inspect", packed, "--json"),
                            report("inspect", CHECKPOINT, "--json"),
                            report("inspect", QUANTIZED, "--json"),
                            report("inspect", pair(scratch), "--json"),
                            report("inspect", coded(scratch), "--json"),
                            report("inspect", delta(scratch), "--json"),
                            report("inspect", CHECKPOINT.with_name("recording"), "--json")],
        "verify": lambda: [report("verify", packed, "--against", CHECKPOINT, "--json"),
                           report("verify", rated(scratch), "--against", RATED, "--json"),
                           report("verify", restored, "--json")],
        "diff": lambda: [report("diff", CHECKPOINT, packed, "--json", "--steps", "1")],
        "convert": lambda: [report("convert", library / "checkpoint.pt", "-o", out, "--to",
                                   "safetensors", "--json"),
                            report("convert", packed, "-o", scratch / "plain", "--plain", "--json")],
        "apply": lambda: [report("apply", library / "update.safetensors", library / "model.safetensors",
                                 "-o", out, "--json")],
        "audit": lambda: [report("audit", RATED, "--codec", "bf16+ulp8,softsign8,sqrt8", "--json"),
                          audit_that_moved(scratch),
                          report("audit", "--granularity", CHECKPOINT, "--json"),
                          report("audit", CHECKPOINT, "--table", "coat-1", "--json")],
        "sweep": lambda: [sweep_that_moved(scratch), sweep_of_a_library(scratch)],
        "replay": lambda: [report("replay", CHECKPOINT, CHECKPOINT.with_name("recording"),
                                  "--weights", "bf16+sr4", "--momentum", "softsign8",
                                  "--variance", "sqrt8", "--lr", "1e-6", "--check-numerics",
                                  "--max-error", "update-nmse=1e-9", "--json"),
                           report("replay", CHECKPOINT, CHECKPOINT.with_name("recording"),
                                  "--optimizer", "sgd", "--lr", "1e-6", "--zero-state", "--json"),
                           report("replay", CHECKPOINT, CHECKPOINT.with_name("recording"), "--vary", "lr=1e-6",
                                  "--json"),
                           report("replay", CHECKPOINT, CHECKPOINT.with_name("recording"), "--zero-state", "--steps",
                                  "..401", "--hyper", "amsgrad=1", "--hyper", "maximize=1", "--hyper", "tensor_lr=1",
                                  "--json"),
                           replay_of_a_matrix(scratch), replay_with_a_missing_gradient(scratch)],
        "bisect": lambda: bisected(library, scratch),
        "codecs": lambda: [report("codecs", "--json")],
        "codebook": lambda: [report("codebook", CHECKPOINT, "--json")],
        "bench": lambda: [report("bench", *BENCH_KERNELS.split(), "--json"),
                          report("bench", *BENCH_FILES.split(), "--dir", scratch, "--json"),
                          report("bench", "--entropy", *BENCH_KERNELS.split(), "--json")],
        "version": lambda: [report("version", "--json")],
    }[command]()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("completion", "join", "store")])
def test_json_section_lists_the_members_of_the_report(command, library, tmp_path):
    common = set(re.findall(r"^\.It Va ([\w-]+)", section(ROOT / "man" / "tersor.1", "JSON reports"),
                            re.M))
    source = section(page_of(command), "JSON")
    listed = set(re.findall(r"^\.It Va ([\w-]+)", source, re.M))
    if "See JSON reports" in source:
        listed |= {"schema"}
    else:
        common = set()
    objects = reports(command, library, tmp_path)
    schemas = {f"tersor.{command}.v1", f"tersor.{command}-granularity.v1", f"tersor.{command}-library.v1"}
    assert {o["schema"] for o in objects} <= schemas
    found = members(objects)
    assert found - common == listed - common, "listed in the page and reported differ"
    assert listed <= found


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_are_readable_at_80_columns(page):
    """Lists in lists leave at least 24 columns, and a quotation ends before the next begins."""
    shown = subprocess.run(["mandoc", "-Tascii", "-O", "width=80", page], check=True, capture_output=True, text=True)
    lines = re.sub(".\b", "", shown.stdout).splitlines()
    assert [line for line in lines if re.match(" {56}", line)] == []
    assert not [line for line in lines if re.search("\"\"|'{3}", line)]


def test_overview_lists_common_members_that_are_reported(tmp_path):
    listed = re.findall(r"^\.It Va (\w+)", section(ROOT / "man" / "tersor.1", "JSON reports"), re.M)
    packed = report("pack", CHECKPOINT, "-o", tmp_path / "out", "--json", "--weights", "bf16+sr8")
    momentum = next(t for t in packed["tensors"] if t["kind"] == "momentum")
    weight = next(t for t in packed["tensors"] if t["kind"] == "weight")
    model = DATA / "frameworks" / "states" / "bf16-model-fp32-master.pt"
    packed = report("pack", model, "-o", tmp_path / "model", "--json")
    master = next(t for t in packed["tensors"] if "narrow" in t)
    packed = report("pack", QUANTIZED, "-o", tmp_path / "quantized", "--json")
    scale = next(t for t in packed["tensors"] if "quantized" in t)
    assert listed and set(listed) <= {*momentum, *momentum["error"], *weight, *master, *scale}


# Tables

def size_of(text, k):
    """Bytes per element: a number, 2+k/8 or 2+(k+1)/8, or as much more than 1."""
    found = re.fullmatch(r"([12])\+(k|\(k\+1\))/8", text)
    return int(found[1]) + (k + (found[2] != "k")) / 8 if found else float(text)


def test_codec_tables_are_those_of_the_program():
    rows = {}
    for block in blocks(page_of("codecs").read_text()):
        if block.startswith("codec "):
            for line in block.splitlines()[1:]:
                name, size, planes = re.split(r"  +", line)[:3]
                ks = re.search(r"k = (\d+) to (\d+)", line)
                for k in range(int(ks[1]), int(ks[2]) + 1) if ks else (0,):
                    rows[name.replace("<k>", str(k))] = (size_of(size, k), planes.split(", "))
    codecs = {}
    for c in report("codecs", "--json")["codecs"]:
        codecs[c["name"]] = (c["bytes_per_element"], ["scales" if p["suffix"] == "::scales" else
                                                      p["dtype"] for p in c["planes"]])
    assert rows == codecs


def names_table():
    """[(component, whether it is a weak one, kind)]."""
    block = next(b for b in blocks(page_of("pack").read_text()) if b.startswith("component "))
    return [(row[0].removesuffix(" *"), row[0].endswith(" *"), row[1])
            for row in (re.split(r"  +", line) for line in block.splitlines()[1:])]


@pytest.mark.parametrize("component, weak, kind", names_table(), ids=[n[0] for n in names_table()])
def test_name_in_the_table_means_what_the_table_says(tmp_path, component, weak, kind):
    path = tmp_path / "in.safetensors"
    value = np.arange(1, 5, dtype=np.float32)

    def kinds(tensors):
        safetensors.numpy.save_file(tensors, path)
        return {t["name"]: (t["kind"], t.get("weight")) for t in report("inspect", path, "--json")
                ["tensors"]}

    weight = "a" if kind in ("momentum", "variance") else None
    for name in (f"a.{component}", f"a/{component}", f"optimizer.state.{component}.a",
                 f"optimizer.state.a.{component}", f"chained_3.state.a.{component}"):
        assert kinds({"a": value, name: value}) == {"a": ("weight", None), name: (kind, weight)}
    # Without its weight a strong name still counts, a weak one is a parameter.
    alone = f"a.{component}"
    assert kinds({alone: value}) == {alone: ("weight" if weak else kind, None)}


@pytest.mark.parametrize("component", [n for n, _, kind in names_table() if kind == "other"])
@pytest.mark.parametrize("shape", [(), (1,)], ids=["rank 0", "rank 1"])
def test_counter_need_not_have_the_shape_of_its_weight(tmp_path, component, shape):
    path = tmp_path / "in.safetensors"
    name = f"optimizer.state.a.{component}"
    safetensors.numpy.save_file({"a": np.ones(4, np.float32), name: np.ones(shape, np.float32)},
                                path)
    found = {t["name"]: t["kind"] for t in report("inspect", path, "--json")["tensors"]}
    assert found == {"a": "weight", name: "other"}


def names_of_a():
    """The names that the page gives as those of one momentum."""
    lines = re.search(r"^So\n(.*?)^are all the momentum", page_of("pack").read_text(),
                      re.M | re.S).group(1)
    return [word for word in lines.split() if re.search(r"\w[./]\w", word)]


def test_names_that_the_page_gives_for_one_momentum_are_that(tmp_path):
    path = tmp_path / "in.safetensors"
    value = np.arange(1, 5, dtype=np.float32)
    assert len(names_of_a()) > 3
    for name in names_of_a():
        safetensors.numpy.save_file({"a": value, name: value}, path)
        found = {t["name"]: (t["kind"], t.get("weight"))
                 for t in report("inspect", path, "--json")["tensors"]}
        assert found[name] == ("momentum", "a")
