"""The command line: usage, help, reports, refusals, discovery by name, and what packs give back."""
import hashlib
import json
import os
import re
import subprocess

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from conftest import BINARY, DATA, one_line_error, run_tersor, safetensors_bytes

COMMANDS = ("pack", "unpack", "inspect", "verify", "diff", "apply", "join", "store", "audit", "sweep", "replay", "bisect", "codecs",
            "codebook", "bench", "completion", "version")
WEIGHT_CODECS = ("bf16+ulp8", "bf16+ulp16", "fp16+ulp8", "fp16+ulp16", "bf16", "fp16",
                 "bf16+bf16", "fp16+fp16", "bf16+exact16", "f32")
# Of truncated splits, with k from 1 on.
FAMILIES = {"bf16+trunc": 16, "fp16+trunc": 13, "e5m2+trunc": 16, "e4m3+trunc": 16,
            "bf16+rn": 13, "bf16+sr": 16, "fp16+sr": 13, "e5m2+sr": 16, "e4m3+sr": 16}
TRUNCATED_CODECS = tuple(f"{name}{k + 1}" for name, last in FAMILIES.items() for k in range(last))
STATE_CODECS = ("softsign8", "linear8", "sqrt8", "ulinear8")
RAW_CODECS = ("--weights", "f32", "--momentum", "f32", "--variance", "f32")


def save(path, tensors, metadata=None):
    safetensors.numpy.save_file(
        {name: np.asarray(t, np.float32) if isinstance(t, list) else t
         for name, t in tensors.items()}, path, metadata)
    return path


def tensors_of(path):
    """{name: (dtype, shape, bytes)} as the Python package reads them."""
    return {name: (t["dtype"], list(t["shape"]), bytes(t["data"]))
            for name, t in safetensors.deserialize(path.read_bytes())}


def header_of(path):
    """The header in its own order."""
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


def files_in(folder):
    return {path.name: (path.read_bytes() if path.is_file() else None, path.lstat().st_mtime_ns)
            for path in folder.iterdir()}


def triple(name="w", size=100, seed=0):
    """A weight with its momentum and variance."""
    rng = np.random.default_rng(seed)
    grad = rng.standard_normal(size).astype(np.float32) * np.float32(1e-3)
    return {name: rng.standard_normal(size).astype(np.float32), f"{name}.exp_avg": grad,
            f"{name}.exp_avg_sq": grad * grad}


@pytest.fixture
def source(tmp_path):
    return save(tmp_path / "in.safetensors", triple(), {"format": "pt"})


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.safetensors"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The real checkpoint, packed by default and unpacked again."""
    folder = tmp_path_factory.mktemp("packed")
    run_tersor("pack", DATA / "tiny-gpt" / "checkpoint.safetensors", "-o", folder / "packed",
               check=0)
    run_tersor("unpack", folder / "packed", "-o", folder / "unpacked", check=0)
    return folder


# Wrong command lines

@pytest.mark.parametrize("args, nearest", [
    ("pck", "pack"), ("unpak", "unpack"), ("Inspect", "inspect"), ("verfy IN", "verify"),
    ("pack IN -o OUT --wieghts bf16", "--weights"), ("pack IN -o OUT --dryrun", "--dry-run"),
    ("pack IN -o OUT --weights bf16+ulp9", "bf16+ulp8"),
    ("pack IN -o OUT --weights=bf16-exact16", "bf16+exact16"),
    ("pack IN -o OUT --weights bf16+trunk8", "bf16+trunc8"),
    ("pack IN -o OUT --momentum softsing8", "softsign8"),
    ("pack IN -o OUT --variance sqrt", "sqrt8"),
    ("sweep --codec bf16,fp16+upl8", "fp16+ulp8"), ("inspect IN --jsn", "--json"), ("bench --codec bf16+upl8", "bf16+ulp8"),
])
def test_unknown_word_is_a_usage_error_that_names_the_nearest(tersor, source, out, args, nearest):
    before = files_in(out.parent)
    done = tersor(*(str({"IN": source, "OUT": out}.get(word, word)) for word in args.split()),
                  check=2)
    line = one_line_error(done)
    assert re.search(r"did you mean .?" + re.escape(nearest) + r"(?![\w+-])", line), line
    assert done.stdout == "" and files_in(out.parent) == before


@pytest.mark.parametrize("args, expected", [
    ("pack IN -o OUT --scale e8m9", "e8m8"), ("pack IN -o OUT --max-error nsme=1", "nmse"),
    ("pack IN -o OUT --map x=wieght", "weight"),
    ("pack IN -o OUT --compat flashoptin", "flashoptim"), ("diff IN IN --max-error ulps=4", "ulp"),
    ("completion bsh", "bash"),
])
def test_unknown_choice_is_a_usage_error_that_names_the_choices(tersor, source, out, args,
                                                                 expected):
    done = tersor(*(str({"IN": source, "OUT": out}.get(word, word)) for word in args.split()),
                  check=2)
    assert re.search(rf"expected.* {expected}\b", one_line_error(done)) and not out.exists()


@pytest.mark.parametrize("args", [
    "xyzzy", "--xyzzy", "pack --xyzzy IN -o OUT", "pack -Z IN -o OUT", "pack", "pack IN IN",
    "pack -o OUT", "pack IN -o", "pack IN -o OUT -j", "pack IN -o OUT --weights", "unpack IN",
    "unpack -o OUT", "unpack IN IN -o OUT", "inspect", "verify", "diff", "diff IN",
    "diff IN IN IN", "codecs IN", "version IN", "completion", "completion bash zsh",
    "completion tcsh",
    "pack IN -o OUT --weights sqrt8", "pack IN -o OUT --momentum bf16+ulp8",
    "pack IN -o OUT --variance softsign8", "pack IN -o OUT --momentum sqrt8",
    "pack IN -o OUT --weights bf16+trunc0", "pack IN -o OUT --weights fp16+trunc14",
    "pack IN -o OUT --weights bf16+sr17", "pack IN -o OUT --weights bf16+trunc08",
    "pack IN -o OUT --seed 1", "pack IN -o OUT --weights bf16+trunc8 --seed 7",
    "pack IN -o OUT --weights bf16+sr8 --seed 281474976710656",
    "pack IN -o OUT --weights bf16+sr8 --seed=-1", "pack IN -o OUT --weights bf16+sr8 --seed x",
    "pack IN -o OUT --dry-run=1", "pack IN -o OUT --force=yes",
])
def test_wrong_command_line_is_a_usage_error(tersor, source, out, args):
    before = files_in(out.parent)
    done = tersor(*(str({"IN": source, "OUT": out}.get(word, word)) for word in args.split()),
                  check=2)
    one_line_error(done)
    assert done.stdout == "" and files_in(out.parent) == before


@pytest.mark.parametrize("option", [
    "--group=0", "--group=65537", "--group=x", "--group=", "--group=3.5", "--group=32x",
    "--group=-32", "--group=18446744073709551648", "--threads=x", "--threads=-1",
    "--threads=", "--threads=1e3", "--threads=99999999999999999999", "-jx", "-j-1",
    "--max-error=nmse", "--max-error=nmse=", "--max-error=nmse=x", "--max-error=nmse=1e-3x",
    "--max-error=nmse=-1", "--max-error=nmse=nan", "--max-error==1", "--max-error=",
    "--map=x", "--map=x=", "--map=[=weight", "--keep=[", "--keep=(",
])
def test_bad_number_or_pattern_is_a_usage_error(tersor, source, out, option):
    before = files_in(out.parent)
    done = tersor("pack", source, "-o", out, option, check=2)
    name, value = ("--threads", option[2:]) if option[1] == "j" else option.split("=", 1)
    assert name in one_line_error(done) or f"'{value[:1]}'" in done.stderr
    assert files_in(out.parent) == before


def test_numbers_are_decimal(tersor, source, out):
    """A leading zero does not make a group of 010 one of 8."""
    tersor("pack", source, "-o", out, "--group", "010", check=0)
    assert tensors_of(out)["w.exp_avg::scales"][1] == [10]


def test_bad_tolerance_is_a_usage_error(tersor, source):
    for value in ("ulp", "ulp=", "ulp=x", "ulp=-1", "=4", "ulp=nan"):
        assert "--max-error" in one_line_error(tersor("diff", source, source, "--max-error", value, check=2))


def test_unknown_instruction_set_level_is_a_usage_error(tersor, source, out):
    done = tersor("pack", source, "-o", out, env={"TERSOR_ISA": "avx1024"}, check=2)
    assert "TERSOR_ISA" in one_line_error(done) and not out.exists()


def test_no_command_is_a_usage_error(tersor):
    done = tersor(check=2)
    assert done.stdout == "" and "--help" in one_line_error(done)


def test_operands_may_begin_with_a_dash(tersor, source):
    source.rename(source.parent / "--in")
    tersor("inspect", "--", "--in", cwd=source.parent, check=0)
    tersor("inspect", "--in", cwd=source.parent, check=2)


def test_short_and_long_options_are_the_same(tersor, source, tmp_path):
    for number, option in enumerate((["-j2"], ["-j", "2"], ["--threads", "2"], ["--threads=2"])):
        tersor("pack", *option, source, "-o", tmp_path / str(number), check=0)
    assert len({(tmp_path / str(number)).read_bytes() for number in range(4)}) == 1


# Help, version, list of codecs, completion

@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_on_stdout_and_fits_80_columns(tersor, command, option):
    done = tersor(*command.split(), option, check=0)
    assert done.stderr == "" and f"tersor {command}".strip() in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert done.stdout.endswith("\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_h_is_a_screen_and_help_has_every_option_once(tersor, command):
    brief, whole = (tersor(command, option, check=0).stdout for option in ("-h", "--help"))
    assert len(brief.splitlines()) <= 24 and f"tersor {command} --help" in brief
    options = re.findall(r"^  (?:-.,|   ) --([a-z-]+)", whole, re.M)
    assert len(set(options)) == len(options) == int(re.search(r"^All (\d+) options", brief, re.M)[1])
    assert set(re.findall(r"^  (?:-.,|   ) --([a-z-]+)", brief, re.M)) < set(options)


def test_help_names_every_command_and_option(tersor):
    text = tersor("--help", check=0).stdout
    assert all(re.search(rf"^\s*{command}\b", text, re.M) for command in COMMANDS)
    for command, options in {
        "pack": "--weights --momentum --variance --scale --group --keep --map --max-error --strict"
                " --compat --threads --force --dry-run --json --no-progress --help",
        "unpack": "--threads --force --dry-run --json", "inspect": "--json",
        "verify": "--against --json", "diff": "--max-error --json", "codecs": "--json",
    }.items():
        text = tersor(command, "--help", check=0).stdout
        assert [option for option in options.split() if option not in text] == []


def test_version(tersor):
    assert re.fullmatch(r"tersor \d+\.\d+\.\d+\S*\n", tersor("version", check=0).stdout)


def words_of(value):
    """Every string of a JSON value."""
    if isinstance(value, str):
        return {value}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(words_of, parts))


def test_codecs_lists_every_codec(tersor):
    names = words_of(json.loads(tersor("codecs", "--json", check=0).stdout))
    text = tersor("codecs", check=0).stdout.split()
    for codec in WEIGHT_CODECS + STATE_CODECS:
        assert codec in names and (codec in text or codec + "*" in text)
    assert set(TRUNCATED_CODECS) <= names
    for name, last in FAMILIES.items():
        assert f"{name}1..{last}" in text
        assert {f"{name}0", f"{name}{last + 1}"}.isdisjoint(names)


def completions(script, *words):
    """What bash offers for the last of the words."""
    code = r"""
        source "$1"; shift
        function=$(complete -p tersor | sed 's/.*-F \([^ ]*\).*/\1/')
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        COMPREPLY=()
        "$function" tersor "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "--norc", "--noprofile", "-c", code, "bash", script, *words],
                          capture_output=True, text=True, timeout=20)
    assert "command not found" not in done.stderr, done.stderr
    return {word.strip() for word in done.stdout.splitlines()}


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory):
    script = tmp_path_factory.mktemp("completion") / "tersor.bash"
    script.write_text(run_tersor("completion", "bash", check=0).stdout)
    return script


def test_bash_completion_is_valid_bash(bash_script):
    subprocess.run(["bash", "-n", bash_script], check=True)


@pytest.mark.parametrize("words, offered", [
    ([""], {*COMMANDS, "convert", "help"}), (["pa"], {"pack"}), (["ve"], {"verify", "version"}),
    (["pack", "--we"], {"--weights"}),
    (["pack", "--ma"], {"--map", "--max-bytes", "--max-chain", "--max-error", "--max-shard-size"}),
    (["diff", "--max-e"], {"--max-error"}), (["completion", ""], {"bash", "zsh", "fish"}),
    (["completion", "z"], {"zsh"}), (["pack", "--scale", ""], {"f16", "e8m8", "f32"}),
    (["pack", "--scale", "e"], {"e8m8"}), (["pack", "--weights", "bf16+e"], {"bf16+exact16"}),
    (["pack", "--momentum", "so"], {"softsign8"}), (["pack", "in", "--variance", "sq"], {"sqrt8"}),
], ids=lambda words: " ".join(sorted(words) if isinstance(words, set) else words))
def test_bash_completion_offers(bash_script, words, offered):
    assert completions(bash_script, "tersor", *words) == offered


def test_bash_completion_offers_only_codecs_of_the_kind(bash_script):
    weights = completions(bash_script, "tersor", "pack", "--weights", "")
    momentum = completions(bash_script, "tersor", "pack", "--momentum", "")
    assert set(WEIGHT_CODECS + TRUNCATED_CODECS) <= weights and not weights & set(STATE_CODECS)
    assert {"softsign8", "linear8", "f32"} <= momentum and "bf16+ulp8" not in momentum


def test_bash_completion_offers_every_option_of_the_help(tersor, bash_script):
    for command in COMMANDS:
        text = tersor(command, "--help", check=0).stdout
        options = set(re.findall(r"^ {2,6}(?:-\w, )?(--[a-z][a-z-]+)", text, re.M))
        offered = {o.rstrip("=") for o in completions(bash_script, "tersor", command, "--")}
        assert options <= offered


@pytest.mark.parametrize("shell, mark", [("zsh", "#compdef tersor"),
                                         ("fish", "complete -c tersor")])
def test_completion_of_the_other_shells(tersor, shell, mark):
    text = tersor("completion", shell, check=0).stdout
    assert mark in text
    for word in (*COMMANDS, "weights", "max-error", "bf16+exact16", "softsign8", "e8m8"):
        assert word in text


# Reports

def report_commands(source, packed, out):
    return {
        "pack": ["pack", source, "-o", out], "unpack": ["unpack", packed / "packed", "-o", out],
        "inspect": ["inspect", source], "verify": ["verify", packed / "packed"],
        "diff": ["diff", source, source], "codecs": ["codecs"], "version": ["version"],
        "bench": ["bench", "--elements", "4096", "--repeats", "1"],
        "sweep": ["sweep", "--last", "4095"],
    }


@pytest.mark.parametrize("command", ["pack", "unpack", "inspect", "verify", "diff", "codecs",
                                     "bench", "version", "sweep"])
def test_json_report_on_stdout_and_in_a_file(tersor, source, packed, out, command):
    args = report_commands(source, packed, out)[command]
    done = tersor(*args, "--json", check=0)
    report = json.loads(done.stdout)                    # the whole of stdout is one object
    assert report["schema"] == f"tersor.{command}.v1" and done.stderr == ""

    out.unlink(missing_ok=True)
    file = out.parent / "report.json"
    done = tersor(*args, f"--json={file}", check=0)
    assert json.loads(file.read_text()).keys() == report.keys()
    assert not done.stdout.startswith("{")


@pytest.mark.parametrize("command", ["pack", "unpack", "inspect", "verify", "diff"])
@pytest.mark.parametrize("link", [False, True])
def test_json_report_never_replaces_an_input(tersor, source, packed, out, command, link):
    args = report_commands(source, packed, out)[command]
    before = args[1].read_bytes()
    name = args[1].parent / "link" if link else args[1]
    if link:
        os.link(args[1], name)
    done = tersor(*args, f"--json={name}")
    if link:
        name.unlink()
    after = args[1].read_bytes()
    args[1].write_bytes(before)                         # other tests read it too
    assert after == before
    assert done.returncode == 4 and str(name) in one_line_error(done)


@pytest.mark.parametrize("command", ["pack", "unpack"])
def test_json_report_and_output_are_different_files(tersor, source, packed, out, command):
    args = report_commands(source, packed, out)[command]
    before = files_in(out.parent)
    done = tersor(*args, f"--json={out}")
    assert done.returncode in (2, 4) and files_in(out.parent) == before
    one_line_error(done)


def test_json_report_of_a_failed_comparison(tersor, source, tmp_path):
    other = save(tmp_path / "other", triple(seed=1))
    report = json.loads(tersor("diff", source, other, "--json", check=1).stdout)
    assert report["schema"] == "tersor.diff.v1"


def test_inspect_reports_kind_and_codec(tersor, source, out):
    plain = json.loads(tersor("inspect", source, "--json", check=0).stdout)
    assert plain["kind"] == "safetensors" and plain["inputs"] == [str(source)]
    kinds = {"w": "weight", "w.exp_avg": "momentum", "w.exp_avg_sq": "variance"}
    assert {t["name"]: t["kind"] for t in plain["tensors"]} == kinds

    tersor("pack", source, "-o", out, check=0)
    report = json.loads(tersor("inspect", out, "--json", check=0).stdout)
    assert report["kind"] == "packed"
    assert {t["name"]: t["kind"] for t in report["tensors"]} == kinds
    assert {t["name"]: t["codec"] for t in report["tensors"]} == {
        "w": "bf16+ulp8", "w.exp_avg": "softsign8", "w.exp_avg_sq": "sqrt8"}


def test_nothing_but_results_is_printed_when_stderr_is_no_terminal(tersor, tiny_gpt, tmp_path):
    for option in ([], ["--no-progress"]):
        done = tersor("pack", tiny_gpt, "-o", tmp_path / "out", "--force", *option, check=0)
        assert done.stderr == "" and "\r" not in done.stdout


def test_verbose_pack_prints_what_belongs_together(tersor, source, out):
    text = tersor("pack", "-v", source, "-o", out, check=0).stdout
    for name, kind in (("w.exp_avg", "momentum"), ("w.exp_avg_sq", "variance")):
        assert re.search(rf"^ *{name} .*(\n +)?{kind} of w$", text, re.M), text


# Where output goes

STDOUT_COMMANDS = [["inspect", "IN"], ["inspect", "IN", "--json"], ["verify", "IN"],
                   ["diff", "IN", "IN"], ["diff", "IN", "IN", "--json"], ["codecs"],
                   ["codecs", "--json"], ["version"], ["sweep", "--last", "99"],
                   ["sweep", "--last", "99", "--csv"], ["--help"], ["pack", "--help"],
                   ["completion", "bash"], ["completion", "fish"]]


@pytest.mark.parametrize("args", STDOUT_COMMANDS, ids=" ".join)
def test_full_stdout_is_an_error(source, args):
    args = [str(source) if arg == "IN" else arg for arg in args]
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=20)
    assert done.returncode == 4
    assert "stdout" in one_line_error(done) or "standard output" in done.stderr


@pytest.mark.parametrize("args", STDOUT_COMMANDS, ids=" ".join)
def test_closed_stdout_is_an_error(source, args):
    args = [str(source) if arg == "IN" else arg for arg in args]
    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', BINARY, *args],
                          stderr=subprocess.PIPE, text=True, timeout=20)
    assert 0 < done.returncode < 128 and one_line_error(done)


@pytest.mark.parametrize("closed", ["0<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_never_mix_messages_into_the_output(tersor, source, out, closed):
    """With stdout closed the output file could become descriptor 1, and the report its content."""
    tersor("pack", source, "-o", out, check=0)
    expected = out.read_bytes()
    for command in (["pack", str(source), "-o", str(out), "-f"],
                    ["pack", "-v", str(source), "-o", str(out), "-f"],
                    ["pack", "--json", str(source), "-o", str(out), "-f"]):
        subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', BINARY, *command], timeout=20,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert out.read_bytes() == expected
    assert set(files_in(out.parent)) == {source.name, out.name}


@pytest.mark.parametrize("command", ["pack", "unpack"])
def test_existing_output_is_refused_without_force(tersor, source, packed, out, command):
    args = report_commands(source, packed, out)[command]
    out.write_bytes(b"precious")
    before = files_in(out.parent)
    line = one_line_error(tersor(*args, check=4))
    assert line.startswith(f"tersor: {out}: ") and "exists" in line and "--force" in line
    assert files_in(out.parent) == before
    for force in ("-f", "--force"):
        out.write_bytes(b"precious")
        tersor(*args, force, check=0)
        assert len(tensors_of(out)) > 0
    assert set(files_in(out.parent)) == set(before)


@pytest.mark.parametrize("command", ["pack", "unpack"])
def test_dry_run_writes_nothing(tersor, source, packed, out, command):
    args = report_commands(source, packed, out)[command]
    before = files_in(out.parent)
    assert tersor(*args, "--dry-run", check=0).stdout != ""
    report = json.loads(tersor(*args, "--dry-run", "--json", check=0).stdout)
    assert report["schema"] == f"tersor.{command}.v1"
    assert files_in(out.parent) == before


def test_missing_input(tersor, source, out):
    none = out.parent / "none"
    for args in (["inspect", none], ["verify", none], ["pack", none, "-o", out],
                 ["unpack", none, "-o", out], ["diff", none, source], ["diff", source, none]):
        line = one_line_error(tersor(*args, check=4))
        assert line.startswith(f"tersor: {none}: ") and "No such file" in line
    assert not out.exists()


# Which tensor is what

LAYOUTS = {
    "plain": ("h.0.w", "h.0.w.exp_avg", "h.0.w.exp_avg_sq"),
    "sgd": ("h.0.w", "h.0.w.momentum_buffer", None),
    "state": ("h.0.w", "state.h.0.w.exp_avg", "state.h.0.w.exp_avg_sq"),
    "state sgd": ("h.0.w", "state.h.0.w.momentum_buffer", None),
    "torchtitan": ("h.0.w", "optimizer.state.h.0.w.exp_avg", "optimizer.state.h.0.w.exp_avg_sq"),
    "torchtitan model": ("model.h.0.w", "optimizer.state.h.0.w.exp_avg",
                         "optimizer.state.h.0.w.exp_avg_sq"),
    "flattened dcp": ("model.h.0.w", "optim.state.h.0.w.exp_avg", "optim.state.h.0.w.exp_avg_sq"),
    "megatron": ("optimizer.state.fp32_param.h.w", "optimizer.state.exp_avg.h.w",
                 "optimizer.state.exp_avg_sq.h.w"),
    "megatron model": ("h.w", "optimizer.state.exp_avg.h.w", "optimizer.state.exp_avg_sq.h.w"),
    "megatron chained": ("chained_0.optimizer.state.fp32_param.h.w",
                         "chained_0.optimizer.state.exp_avg.h.w",
                         "chained_0.optimizer.state.exp_avg_sq.h.w"),
    "megatron fsdp": ("h.w", "optimizer.state.module.module.module.h.w.exp_avg",
                      "optimizer.state.module.module.module.h.w.exp_avg_sq"),
    "paddle": ("linear_0.w_0", "linear_0.w_0/moment1_0", "linear_0.w_0/moment2_0"),
    "mlx": ("h.0.w", "h.0.w.m", "h.0.w.v"),
    "optax": ("h.0.w", "h.0.w.mu", "h.0.w.nu"),
    "compiled": ("h.0.w", "optimizer.state._orig_mod.h.0.w.exp_avg",
                 "optimizer.state._orig_mod.h.0.w.exp_avg_sq"),
    "compiled model": ("_orig_mod.h.0.w", "state.h.0.w.exp_avg", "state.h.0.w.exp_avg_sq"),
    "compiled both": ("_orig_mod.h.0.w", "_orig_mod.h.0.w.exp_avg", "_orig_mod.h.0.w.exp_avg_sq"),
    "ddp": ("h.0.w", "state.module.h.0.w.exp_avg", "state.module.h.0.w.exp_avg_sq"),
    "ddp model": ("module.h.0.w", "state.h.0.w.exp_avg", "state.h.0.w.exp_avg_sq"),
    "ddp compiled": ("module._orig_mod.h.0.w", "h.0.w.exp_avg", "h.0.w.exp_avg_sq"),
    "checkpointed": ("h.0._checkpoint_wrapped_module.w", "optimizer.state.h.0.w.exp_avg",
                     "optimizer.state.h.0.w.exp_avg_sq"),
    "fsdp": ("h.0.w", "state._fsdp_wrapped_module.h.0.w.exp_avg",
             "state._fsdp_wrapped_module.h.0.w.exp_avg_sq"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_name_layout_is_recognized(tersor, source, out, layout):
    weight, momentum, variance = LAYOUTS[layout]
    values = triple()
    tensors = {weight: values["w"], momentum: values["w.exp_avg"]}
    expected = {weight: ("BF16", [100]), f"{weight}::error_bits": ("I8", [100]),
                f"{momentum}::quantized": ("I8", [100]), f"{momentum}::scales": ("U16", [4])}
    if variance:
        tensors[variance] = values["w.exp_avg_sq"]
        expected |= {f"{variance}::quantized": ("U8", [100]), f"{variance}::scales": ("U16", [4])}
    save(source, tensors)
    report = json.loads(tersor("inspect", "--json", source, check=0).stdout)
    kinds = {weight: "weight", momentum: "momentum", variance: "variance"}
    assert all(t["kind"] == kinds[t["name"]] for t in report["tensors"])
    tersor("pack", source, "-o", out, check=0)
    assert {name: t[:2] for name, t in tensors_of(out).items()} == expected


SHORT_NAMES = ("mlx", "optax")


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout not in SHORT_NAMES])
@pytest.mark.parametrize("which", ["momentum", "variance"])
def test_shape_mismatch_in_a_layout_is_refused(tersor, source, out, layout, which):
    """That it is noticed shows that the names were joined."""
    weight, momentum, variance = LAYOUTS[layout]
    wrong = variance if which == "variance" and variance else momentum
    tensors = {weight: [1, 2, 3, 4], momentum: [1, 2, 3, 4]}
    if variance:
        tensors[variance] = [1, 2, 3, 4]
    tensors[wrong] = [1, 2, 3, 4, 5]
    save(source, tensors)
    line = one_line_error(tersor("pack", source, "-o", out, check=3))
    assert line.startswith(f"tersor: {source}: tensor {wrong}: ")
    assert weight in line and "[5]" in line and "[4]" in line
    assert not out.exists()


@pytest.mark.parametrize("first, second", [
    ("w.exp_avg", "state.w.exp_avg"), ("w.exp_avg", "optimizer.state.w.exp_avg"),
    ("w.exp_avg", "w/moment1_0"), ("w.exp_avg_sq", "optimizer.state.exp_avg_sq.w"),
    ("state.w.exp_avg", "state.module.w.exp_avg"), ("w.exp_avg", "w.momentum_buffer"),
])
def test_two_candidates_for_one_weight_are_refused(tersor, source, out, first, second):
    save(source, {name: [0.3, 1.7] for name in ("w", first, second)})
    line = one_line_error(tersor("pack", source, "-o", out, check=3))
    assert str(source) in line and "ambiguous" in line
    assert {"w", first, second} <= set(re.findall(r"[\w./]+\b", line.split(str(source))[1]))
    assert not out.exists()

    # Told which is which, it goes on.
    tersor("pack", source, "-o", out, "--map", f"^{re.escape(second)}$=other",
           "--min-elements", "1", check=0)
    planes = tensors_of(out)
    assert f"{first}::quantized" in planes and planes[second][0] == "F32"


def test_two_weights_for_one_momentum_are_refused(tersor, source, out):
    save(source, {"_orig_mod.w": [1, 2], "module.w": [1, 2], "state.w.exp_avg": [1, 2]})
    line = one_line_error(tersor("pack", source, "-o", out, check=3))
    assert "ambiguous" in line and "module.w" in line and "_orig_mod.w" in line
    assert not out.exists()


@pytest.mark.parametrize("name", ["attn.m", "attn.v", "attn.mu", "attn.nu", "m", "v"])
@pytest.mark.parametrize("other", ["other", "attn"])
def test_short_names_are_state_only_beside_their_weight(tersor, source, name, other):
    """A layer may be called v: only a weight of the same shape in front makes it a variance."""
    save(source, {name: [1, -2], other: [1, 2, 3]})
    report = json.loads(tersor("inspect", "--json", source, check=0).stdout)
    assert {t["name"]: t["kind"] for t in report["tensors"]} == {name: "weight", other: "weight"}


def test_what_is_no_weight_passes_raw(tersor, source, out):
    tensors = {"step": np.array(3, "f4"), "ids": np.arange(5), "half": np.ones(3, "f2"),
               "double": np.ones(3), "flag": np.array([True]), "w": np.ones(16, "f4")}
    save(source, tensors)
    tersor("pack", source, "-o", out, check=0)
    before, after = tensors_of(source), tensors_of(out)
    assert {name: after[name] for name in tensors if name != "w"} == {
        name: before[name] for name in tensors if name != "w"}
    assert after["w"][0] == "BF16"


@pytest.mark.parametrize("kind, planes", [
    ("weight", {"x.odd": "BF16", "x.odd::error_bits": "I8"}),
    ("momentum", {"x.odd::quantized": "I8", "x.odd::scales": "U16"}),
    ("variance", {"x.odd::quantized": "U8", "x.odd::scales": "U16"}),
    ("other", {"x.odd": "F32"}),
])
def test_map_overrides_the_names(tersor, source, out, kind, planes):
    save(source, {"x.odd": [1, 2, 3]})
    tersor("pack", source, "-o", out, "--map", rf"\.odd$={kind}", check=0)
    assert {name: t[0] for name, t in tensors_of(out).items()} == planes


def test_map_of_a_momentum_to_a_weight_by_name(tersor, source, out):
    save(source, {"w": [1, 2, 3], "w.exp_avg": [1, 2, 3]})
    tersor("pack", source, "-o", out, "--map", r"exp_avg$=weight", "--min-elements", "1", check=0)
    assert {"w", "w::error_bits", "w.exp_avg", "w.exp_avg::error_bits"} == set(tensors_of(out))


def test_keep_leaves_tensors_raw(tersor, source, out):
    tersor("pack", source, "-o", out, "--keep", r"^w$", "--keep", "_sq$", check=0)
    before, after = tensors_of(source), tensors_of(out)
    assert {name: t[0] for name, t in after.items()} == {
        "w": "F32", "w.exp_avg::quantized": "I8", "w.exp_avg::scales": "U16",
        "w.exp_avg_sq": "F32"}
    assert after["w"] == before["w"] and after["w.exp_avg_sq"] == before["w.exp_avg_sq"]


@pytest.mark.parametrize("option, dtype", [
    ("--scale=e8m8", "U16"), ("--scale=f16", "F16"), ("--scale=f32", "F32"),
    ("--compat=flashoptim", "F16"),
])
@pytest.mark.parametrize("group", [1, 7, 32, 100, 65536])
def test_scale_and_group(tersor, source, out, option, dtype, group):
    tersor("pack", source, "-o", out, option, f"--group={group}", check=0)
    planes = tensors_of(out)
    for name in ("w.exp_avg", "w.exp_avg_sq"):
        assert planes[f"{name}::scales"][:2] == (dtype, [-(-100 // group)])


# What is refused, and what is reported

def test_bound_that_is_not_met(tersor, source, out):
    before = files_in(out.parent)
    line = one_line_error(tersor("pack", source, "-o", out, "--max-error", "nmse=1e-30", check=1))
    assert re.search(r"tensor w(\.exp_avg(_sq)?)?: .*nmse.*1e-30", line, re.I), line
    assert files_in(out.parent) == before

    out.write_bytes(b"precious")
    tersor("pack", source, "-o", out, "-f", "--max-error", "nmse=1e-30", check=1)
    assert out.read_bytes() == b"precious" and set(files_in(out.parent)) == {out.name, source.name}

    tersor("pack", source, "-o", out, "-f", "--max-error", "nmse=0.5", check=0)
    tersor("pack", source, "-o", out, "-f", "--max-error", "nmse=0", *RAW_CODECS, check=0)


ODD_VALUES = {
    "nan weight": ("w", np.nan, []), "inf weight": ("w", np.inf, []),
    "weight over bf16": ("w", 3.4e38, []),
    "weight over fp16": ("w", 65520, ["--weights=fp16+ulp8"]),
    "nan momentum": ("w.exp_avg", np.nan, []), "inf momentum": ("w.exp_avg", -np.inf, []),
    "nan variance": ("w.exp_avg_sq", np.nan, []), "inf variance": ("w.exp_avg_sq", np.inf, []),
    "negative variance": ("w.exp_avg_sq", -1e-9, []),
    "negative variance, linear": ("w.exp_avg_sq", -1e-9, ["--variance=ulinear8"]),
}


@pytest.mark.parametrize("case", ODD_VALUES)
def test_what_no_codec_holds_stays_raw_or_is_refused(tersor, source, out, case):
    name, value, options = ODD_VALUES[case]
    tensors = triple()
    tensors[name][50] = value
    save(source, tensors)
    done = tersor("pack", source, "-o", out, *options, check=0)
    warning, = (line for line in done.stderr.splitlines() if "raw" in line)
    assert warning.startswith("tersor: ") and f"tensor {name}: " in warning
    before, after = tensors_of(source), tensors_of(out)
    assert after[name] == before[name]
    assert len(after) == 6 - 1                          # the other two are packed all the same

    out.unlink()
    line = one_line_error(tersor("pack", source, "-o", out, "--strict", *options, check=3))
    assert line.startswith(f"tersor: {source}: tensor {name}: ")
    assert set(files_in(out.parent)) == {source.name}


def test_packed_file_is_not_packed_again(tersor, source, out, tmp_path):
    tersor("pack", source, "-o", out, check=0)
    line = one_line_error(tersor("pack", out, "-o", tmp_path / "again", check=3))
    assert line.startswith(f"tersor: {out}: ") and "packed" in line
    assert not (tmp_path / "again").exists()


def test_plain_file_is_not_unpacked(tersor, source, out):
    line = one_line_error(tersor("unpack", source, "-o", out, check=3))
    assert line.startswith(f"tersor: {source}: ") and "packed" in line and not out.exists()


@pytest.mark.parametrize("suffix", ["error_bits", "extra_bits", "quantized", "scales"])
def test_source_name_that_ends_in_a_plane_suffix_is_refused(tersor, source, out, suffix):
    save(source, {"w": [1, 2], f"x::{suffix}": np.arange(3)})
    line = one_line_error(tersor("pack", source, "-o", out, check=3))
    assert line.startswith(f"tersor: {source}: tensor x::{suffix}: ") and not out.exists()


def test_terminal_escapes_in_names_are_never_printed(tmp_path):
    names = ["\x1b]0;owned\x07", "\x1b[31mred", "bell\x07", "del\x7f", "c1\x9b31m", "cr\rover",
             "line\nINJECTED", "nel\x85", "tab\there"]
    files = []
    for number in range(2):
        header, data = {"__metadata__": {"\x1b[1m": "\x1b[2m\r\n"}}, b""
        for name in names:
            values = np.full(4, number + 1, np.float32)
            values[3] = np.nan if name == names[1] else 1
            header[name] = {"dtype": "F32", "shape": [4],
                            "data_offsets": [len(data), len(data) + 16]}
            data += values.tobytes()
        files.append(tmp_path / f"{number}")
        files[-1].write_bytes(safetensors_bytes(header, data))
    one, two = files
    odd, packed = tmp_path / "\x1b[31m\n.safetensors", tmp_path / "packed"
    odd.write_bytes(b"bad")
    for args, status in (
            (["inspect", one], 0), (["inspect", "-v", one], 0), (["inspect", "--json", one], 0),
            (["verify", one], 1), (["verify", "--json", one], 1), (["diff", one, two], 1),
            (["diff", "--json", one, two], 1), (["pack", "-v", one, "-o", packed], 0),
            (["pack", "-f", "--json", one, "-o", packed], 0),
            (["pack", "-f", "--strict", one, "-o", packed, "--min-elements", "1"], 3),
            (["inspect", packed], 0), (["inspect", "--json", packed], 0),
            (["verify", packed], None),
            (["unpack", "-v", packed, "-o", tmp_path / "out"], 0), (["inspect", odd], 3),
            (["inspect", tmp_path / "\x1b[0m"], 4), (["\x1b[31m"], 2), (["pack", "--\x1b[31m"], 2),
            (["pack", one, "-o", packed, "--weights", "\x1b[31m"], 2)):
        done = subprocess.run([BINARY, *args], capture_output=True, timeout=20)
        assert status is None or done.returncode == status, (args, done)
        text = (done.stdout + done.stderr).decode()
        assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f]|^INJECTED", text, re.M), (args, text)


def test_lossy_generations_are_counted(tersor, source, tmp_path):
    generation = source
    for number, momentum in ((1, "softsign8"), (2, "linear8"), (3, "softsign8")):
        packed, unpacked = tmp_path / f"packed{number}", tmp_path / f"unpacked{number}"
        done = tersor("pack", generation, "-o", packed, "--momentum", momentum, check=0)
        if number == 1:
            assert done.stderr == ""
        else:
            assert f"generation {number}" in done.stderr and str(generation) in done.stderr
        tersor("unpack", packed, "-o", unpacked, check=0)
        assert header_of(unpacked)["__metadata__"] == {"format": "pt",
                                                       "tersor_generation": str(number)}
        generation = unpacked


@pytest.mark.parametrize("value", ["", "x", "-1", "0", "1e3", " 1", "01", "9" * 20])
def test_generation_that_is_no_number_is_refused(tersor, source, out, value):
    save(source, triple(), {"tersor_generation": value})
    assert "tersor_generation" in one_line_error(tersor("pack", source, "-o", out, check=3))
    assert not out.exists()


def test_packing_again_without_further_loss_is_no_new_generation(tersor, source, out, tmp_path):
    """The same codecs take their own values back exactly."""
    tersor("pack", source, "-o", out, check=0)
    tersor("unpack", out, "-o", tmp_path / "once", check=0)
    done = tersor("pack", tmp_path / "once", "-o", out, "-f", check=0)
    tersor("unpack", out, "-o", tmp_path / "twice", check=0)
    assert (tmp_path / "twice").read_bytes() == (tmp_path / "once").read_bytes()
    assert done.stderr == ""


def test_lossless_pack_is_no_generation(tersor, source, out, tmp_path):
    for number in range(2):
        tersor("pack", source, "-o", out, "-f", *RAW_CODECS, check=0)
        done = tersor("unpack", out, "-o", tmp_path / "back", "-f", check=0)
        assert (tmp_path / "back").read_bytes() == source.read_bytes() and done.stderr == ""


# diff

def test_diff_of_equal_files(tersor, source, packed, tiny_gpt):
    tersor("diff", source, source, check=0)
    tersor("diff", packed / "packed", packed / "unpacked", check=0)
    tersor("diff", packed / "unpacked", packed / "packed", check=0)
    tersor("diff", tiny_gpt, packed / "packed", check=1)
    tersor("diff", tiny_gpt, packed / "packed", "--max-error", "nmse=1e-2", check=0)


def test_diff_names_the_worst_tensor_and_index(tersor, tmp_path):
    rng = np.random.default_rng(0)
    one = {name: rng.uniform(1, 2, 1000).astype("f4") for name in ("first", "worst", "last")}
    two = {name: values.copy() for name, values in one.items()}
    two["first"].view("i4")[7] += 1
    two["worst"].view("i4")[300] += 2
    two["worst"].view("i4")[877] -= 3
    two["last"].view("i4")[9] += 2
    a, b = save(tmp_path / "a", one), save(tmp_path / "b", two)
    text = tersor("diff", a, b, check=1).stdout
    assert any({"worst", "877"} <= set(re.findall(r"\w+", line))
               for line in text.splitlines()), text
    words = words_of(report := json.loads(tersor("diff", "--json", a, b, check=1).stdout))
    assert "worst" in words and re.search(r":\s*\[?877\b", json.dumps(report))

    tersor("diff", a, b, "--max-error", "ulp=4", check=0)
    tersor("diff", a, b, "--tol=ulp=3", check=0)
    tersor("diff", a, b, "--max-error", "ulp=2", check=1)
    tersor("diff", a, b, "--max-error", "ulp=4", "--max-error", "nmse=1e-30", check=1)


@pytest.mark.parametrize("one, two, status", [
    (0x00000000, 0x80000000, 1), (0x7FC00000, 0x7FC00000, 0), (0x7FC00000, 0x7FC00001, 1),
    (0x7F800001, 0xFF800001, 1), (0x7F800000, 0x7F7FFFFF, 1), (0x00000001, 0x00000001, 0),
])
def test_diff_compares_bits(tersor, tmp_path, one, two, status):
    files = [save(tmp_path / str(i), {"w": np.uint32([1, value, 2]).view("f4")})
             for i, value in enumerate((one, two))]
    tersor("diff", *files, check=status)


@pytest.mark.parametrize("other", [
    {"w": [1, 2]}, {"w": [1, 2], "x": [3], "y": [4]}, {"w": [1, 2], "x": [3, 4]},
    {"w": [1, 2], "x": np.array([3], "f8")}, {"w": [1, 2], "x": np.array([[3]], "f4")},
], ids=["missing", "extra", "longer", "dtype", "rank"])
def test_diff_of_other_tensors(tersor, tmp_path, other):
    a = save(tmp_path / "a", {"w": [1, 2], "x": [3]})
    b = save(tmp_path / "b", other)
    name = "y" if "y" in other else "x"
    for pair in ((a, b), (b, a)):
        for option in ([], ["--max-error", "ulp=1000000"]):
            text = tersor("diff", *pair, *option, check=1).stdout
            assert name in re.findall(r"\w+", text)


# What comes back, and surroundings that change nothing

def test_lossless_codecs_give_back_every_bit(tersor, source, out, tmp_path):
    """Names, their order, metadata and every bit, NaN payloads of raw tensors included."""
    rng = np.random.default_rng(71)
    finite = rng.integers(0, 2**32, 5000, np.uint32)
    finite = finite[(finite & 0x7F800000) != 0x7F800000]
    finite[:6] = 0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0xBF7F8000
    finite[finite & 0x7FFFFFFF >= 0x7F7F8000] = 0x3F800000
    huge = np.uint32([0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F8000, 0])
    odd = np.uint32([0x7F800001, 0xFFC12345, 0x7FC00000, 0x7F800000, 0xFF800000, 0])
    any_bits = rng.integers(0, 256, 4800, np.uint8).tobytes()
    tensors = [
        ("z.last", "I64", [600], any_bits), ("w", "F32", [finite.size], finite.tobytes()),
        ("w.exp_avg", "F32", [finite.size], finite[::-1].tobytes()),
        ("w.exp_avg_sq", "F32", [finite.size], (finite & 0x7FFFFFFF).tobytes()),
        ("b", "BF16", [2, 1200], any_bits), ("huge", "F32", [2, 2], huge.tobytes()),
        ("odd", "F32", [3, 1, 2], odd.tobytes()), ("odd.exp_avg", "F32", [3, 1, 2], odd.tobytes()),
        ("a\u00e9\U0001f600 \"\\/", "F64", [600], any_bits), ("h", "F16", [2400], any_bits),
        ("step", "F32", [], odd[:1].tobytes()), ("empty", "F32", [0, 3], b""),
        ("e4m3", "F8_E4M3", [4800], any_bits), ("c", "C64", [600], any_bits),
    ]
    metadata = {"format": "pt", "tab\tkey": "line\nvalue", "a": "é😀\x7f", "": ""}
    header, data = {"__metadata__": metadata}, b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    source.write_bytes(safetensors_bytes(header, data))
    for codec, plane in (("f32", None), ("bf16+exact16", "w::error_bits"),
                         ("bf16+trunc16", "w::extra_bits"), ("bf16+sr16", "w::extra_bits")):
        tersor("pack", source, "-o", out, "-f", "--weights", codec, *RAW_CODECS[2:], check=0)
        assert {name for name in tensors_of(out) if name.startswith("w::")} == ({plane} - {None})
        tersor("unpack", out, "-o", tmp_path / "back", "-f", check=0)
        assert tensors_of(tmp_path / "back") == tensors_of(source)
        after = header_of(tmp_path / "back")
        assert after.pop("__metadata__") == metadata
        assert list(after) == [tensor[0] for tensor in tensors]
        tersor("diff", source, tmp_path / "back", check=0)


def test_default_codecs_keep_names_order_shapes_and_metadata(tiny_gpt, packed):
    before, after = header_of(tiny_gpt), header_of(packed / "unpacked")
    assert after["__metadata__"].pop("tersor_generation") == "1"
    assert json.dumps(after) == json.dumps(before)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Enough for several threads: tensors of uneven size, with and without state."""
    folder = tmp_path_factory.mktemp("large")
    tensors = {}
    for number, size in enumerate((1_500_001, 3, 300_000, 65_537)):
        tensors |= triple(f"h.{number}.w", size, number)
    tensors["ids"] = np.arange(100_000)
    save(folder / "in.safetensors", tensors, {"format": "pt"})
    run_tersor("pack", folder / "in.safetensors", "-o", folder / "packed", "-j1", check=0)
    run_tersor("unpack", folder / "packed", "-o", folder / "unpacked", "-j1", check=0)
    return folder


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("threads, umask, env", [
    (1, 0o022, {}), (2, 0o077, {"TZ": "Asia/Kathmandu"}), (7, 0o000, {"TZ": "UTC", "HOME": "/"}),
    (0, 0o027, {"LANG": "tr_TR.UTF-8", "TZ": "America/St_Johns"}),
])
def test_packed_bytes_are_the_same_whatever_the_surroundings(tersor, large, tmp_path, threads, umask, env):
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    name = os.path.relpath(large / "in.safetensors", cwd)
    tersor("pack", name, "-o", "other-name", f"-j{threads}", cwd=cwd, umask=umask, env=env, check=0)
    assert digest(cwd / "other-name") == digest(large / "packed")
    assert str(tmp_path).encode() not in (cwd / "other-name").read_bytes()[:100_000]
    tersor("unpack", "other-name", "-o", "back", f"-j{threads}", cwd=cwd, umask=umask, env=env,
           check=0)
    assert digest(cwd / "back") == digest(large / "unpacked")


@pytest.fixture(scope="module")
def comma_locale(tmp_path_factory):
    """Environments in which a decimal comma is in force, whatever locales are installed."""
    folder = tmp_path_factory.mktemp("locale")
    characters = "".join(f"<U{code:04X}> /x{code:02x} CHARACTER\n" for code in range(128))
    (folder / "charmap").write_text("<code_set_name> UTF-8\n<comment_char> %\n<escape_char> /\n"
                                    f"CHARMAP\n{characters}END CHARMAP\n")
    (folder / "source").write_text('comment_char %\nescape_char /\nLC_NUMERIC\n'
                                   'decimal_point "<U002C>"\nthousands_sep "<U002E>"\n'
                                   'grouping 3;3\nEND LC_NUMERIC\n')
    # localedef warns of the categories left out, and says so in its exit status as well.
    subprocess.run(["localedef", "--force", "--no-archive", "-i", folder / "source",
                    "-f", folder / "charmap", folder / "de_DE.UTF-8"], capture_output=True)
    numeric = {"LOCPATH": str(folder), "LC_ALL": "", "LC_NUMERIC": "de_DE.UTF-8"}
    control = subprocess.run(["/usr/bin/printf", "%.1f", "1,5"], env=numeric, text=True,
                             capture_output=True)
    assert control.stdout == "1,5"
    return [numeric, {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"}]


def test_decimal_comma_changes_nothing(comma_locale, tiny_gpt, packed, tmp_path):
    def run_in(env, *args):
        return subprocess.run([BINARY, *args], env=dict(os.environ, **env), capture_output=True,
                              timeout=60)

    original = packed / "packed"
    commands = [["inspect", tiny_gpt], ["inspect", "--json", original], ["codecs", "--json"],
                ["verify", "--json", original], ["diff", "--json", tiny_gpt, original],
                ["diff", tiny_gpt, original], ["diff", tiny_gpt, original, "--max-error", "nmse=0.5"],
                ["pack", tiny_gpt, "-o", tmp_path / "no", "--max-error", "nmse=1.5e-30"]]
    for number, env in enumerate(comma_locale):
        out, back = tmp_path / f"out{number}", tmp_path / f"back{number}"
        assert run_in(env, "pack", tiny_gpt, "-o", out, "--max-error", "nmse=0.5").returncode == 0
        assert run_in(env, "unpack", out, "-o", back).returncode == 0
        assert digest(out) == digest(original) and digest(back) == digest(packed / "unpacked")
        for args in commands:
            here, there = run_in(env, *args), run_in({"LC_ALL": "C"}, *args)
            assert (here.returncode, here.stdout, here.stderr) == (
                there.returncode, there.stdout, there.stderr)


# ---- Where to encode and decode ----

DEVICE_COMMANDS = {
    "pack": lambda source, packed, out: ("pack", source, "-o", out),
    "unpack": lambda source, packed, out: ("unpack", packed / "packed", "-o", out),
    "verify": lambda source, packed, out: ("verify", packed / "packed"),
    "diff": lambda source, packed, out: ("diff", packed / "packed", packed / "unpacked"),
}


@pytest.mark.parametrize("command", DEVICE_COMMANDS)
def test_a_gpu_that_is_not_there(tersor, source, packed, out, command):
    """One line that names it, status 4, and nothing is left; tests/gpu has what a GPU does."""
    args = DEVICE_COMMANDS[command](source, packed, out)
    for device in "cuda:1000", "cuda:63":
        done = tersor(*args, "--device", device, check=4)
        assert one_line_error(done).startswith(f"tersor: {device}: "), done.stderr
        assert not out.exists() and not done.stdout
    for device in "gpu", "cuda:", "cuda:x", "cuda:99999", "":
        done = tersor(*args, "--device", device, check=2)
        assert f"unknown device '{device}', expected auto, cpu, cuda, cuda:all, cuda:N or cuda:N,N..." in done.stderr
        assert not out.exists() and not done.stdout


@pytest.mark.parametrize("command", DEVICE_COMMANDS)
def test_lists_of_gpus_that_are_none(tersor, source, packed, out, command):
    """Twice, nothing between commas, too many, and lists of GPUs that are not there."""
    args = DEVICE_COMMANDS[command](source, packed, out)
    refused = {d: f"unknown device '{d}', expected " for d in ("cuda:0,", "cuda:,1", "cuda:0,,1", "cuda:0,x", "cuda:0 ,1",
                                                              "cuda:all,0", "cuda:0,all", "cuda:0,1024", "cuda0,1")}
    refused["cuda:1,2,1"] = "device 'cuda:1,2,1': found GPU 1 twice, expected it once"
    refused["cuda:0,00"] = "found GPU 0 twice"
    refused["cuda:" + ",".join(map(str, range(65)))] = "found more than 64 GPUs"
    for device, line in refused.items():
        done = tersor(*args, "--device", device, check=2)
        assert line in done.stderr and not done.stdout and not out.exists(), device
    for device, named in ("cuda:900,901", "cuda:900"), ("cuda:all", "cuda:"):
        if device == "cuda:all" and json.loads(tersor("version", "--json", check=0).stdout)["gpus"]:
            continue
        done = tersor(*args, "--device", device, check=4)
        assert one_line_error(done).startswith(f"tersor: {named}") and not done.stdout and not out.exists()


@pytest.mark.parametrize("command", DEVICE_COMMANDS)
def test_auto_is_the_cpu(tersor, source, packed, out, command):
    args = DEVICE_COMMANDS[command](source, packed, out)
    done = []
    for device in (), ("--device", "auto"), ("--device", "cpu"):
        text = tersor(*args, *device, check=0).stdout
        done.append((text, out.exists() and out.read_bytes()))
        out.unlink(missing_ok=True)
    assert done[0] == done[1] == done[2]


@pytest.mark.parametrize("size, nbytes", [("1KB", 1000), ("1k", 1024), ("1KiB", 1024), ("1kib", 1024), ("1K", 1024), ("1kb", 1000),
                                          ("9", 9), ("5GB", None), ("5g", None), ("5GiB", None), ("7mb", None), ("2TB", None)])
def test_sizes_are_as_people_write_them(tersor, source, out, size, nbytes):
    """The message of a budget that cannot be met repeats it; larger ones are met."""
    done = tersor("pack", source, "-o", out, "--max-bytes", size, "-qq", check=1 if nbytes else 0)
    assert not nbytes or f"expected at most {nbytes};" in done.stderr


@pytest.mark.parametrize("size", ["5GX", "5 G", "G", "5Gi", "99999999T", "18446744073709551616", "1e9"])
def test_what_is_no_size_says_what_is(tersor, source, out, size):
    assert "such as 5G (2^30) or 5GB (10^9)" in one_line_error(
        tersor("pack", source, "-o", out, "--max-bytes", size, check=2))


@pytest.mark.parametrize("command, failed, kept", [
    (["pack", "-f", "-o", "OUT"], "nmse=1e-12", "ulp=4e9"), (["verify", "PACKED", "--against"], "nmse=1e-12", "ulp=4e9"),
    (["diff", "PACKED"], "nmse=1e-12", "ulp=4e9"), (["audit"], "nmse=1e-12,p95", "max-update=1e9"),
    (["replay", "--state", "flash", DATA / "tiny-gpt/recording"], "update-nmse=1e-12", "weight-nmse=1")])
def test_every_command_has_one_name_for_bounds(tersor, tmp_path, command, failed, kept):
    """--max-error, several with commas; what some commands called it still works."""
    source, packed = DATA / "tiny-gpt/checkpoint.pt", tmp_path / "p.safetensors"
    tersor("pack", source, "-o", packed)
    words = [{"OUT": tmp_path / "out.safetensors", "PACKED": packed}.get(w, w) for w in command]
    words = words[:1] + [source] + words[1:] if command[0] == "replay" else words + [source]
    for name in ("--max-error", "--gate", "--tol"):
        tersor(*words, name, kept, check=0)
        tersor(*words, name, f"{kept},{failed}", check=1)
        tersor(*words, name, failed, name, kept, check=1)
    error = one_line_error(tersor(*words, "--max-error", f"{kept},what=1", check=2))
    assert "--max-error" in error and "what" in error


@pytest.mark.parametrize("wrong, right", [
    ("compress", "pack"), ("restore", "unpack"), ("info", "inspect"), ("list", "inspect"), ("compare", "diff"),
    ("check", "verify"), ("decompress", "unpack"), ("extract", "unpack")])
def test_commands_are_known_by_their_meaning(tersor, wrong, right):
    assert f"unknown command '{wrong}'; did you mean '{right}'?" in one_line_error(tersor(wrong, check=2))


@pytest.mark.parametrize("command, wrong, right", [
    ("pack", "--tolerance=x", "--max-error"), ("pack", "--dtype=bf16", "--npy-dtype"),
    ("inspect", "--as=bf16", "--npy-dtype"), ("pack", "--codec=x", "--state"), ("pack", "--output-dir=x", "--output"),
    ("verify", "--workers=2", "--threads"), ("pack", "--lossless", "--entropy")])
def test_options_are_known_by_their_meaning(tersor, source, command, wrong, right):
    assert f"did you mean '{right}'?" in one_line_error(tersor(command, source, wrong, check=2))
