"""Completion as bash, zsh and fish do it: lists with commas, words without the option's description, help."""
import shutil
import subprocess

import pytest

from conftest import run_tersor

BASH = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
_tersor
printf '%s\n' "${COMPREPLY[@]}"
"""

# zsh completes in its line editor only: one in a pseudo-terminal, which writes what its line became.
ZSH = r"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "fpath=($PWD \$fpath); autoload -U compinit; compinit -u -D; show() { print -r -- \$BUFFER >line }
zle -N show; bindkey '^I' complete-word; bindkey '^T' show; touch ready"
wait_for() { for ((i = 0; i < 300; i++)) { [[ -s $1 || -e ready && $1 = ready ]] && return; sleep 0.1; zpty -r -t z } }
wait_for ready >terminal
zpty -w -n z "$1"$'\t'$'\x14'
wait_for line >terminal
zpty -d z
"""


def offered_by_bash(folder, line):
    (folder / "script").write_text(run_tersor("completion", "bash", check=0).stdout)
    done = subprocess.run(["bash", "--norc", "-c", BASH, "bash", folder / "script", *line.split(" ")],
                          capture_output=True, text=True, timeout=20, check=True)
    return set(done.stdout.split())


def offered_by_fish(folder, line):
    (folder / "script").write_text(run_tersor("completion", "fish", check=0).stdout)
    done = subprocess.run(["fish", "--no-config", "-c", f"source script; complete -C '{line}'"],
                          capture_output=True, text=True, timeout=20, check=True, cwd=folder,
                          env={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    return set(done.stdout.splitlines())


def line_by_zsh(folder, line):
    (folder / "_tersor").write_text(run_tersor("completion", "zsh", check=0).stdout)
    subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", line], capture_output=True, timeout=90, check=True, cwd=folder,
                   env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "TERM": "vt100"})
    return (folder / "line").read_text().strip()


LISTS = [("replay --state flash,ti", {"flash,tight"}),
         ("sweep --codec bf16,fp16+ulp", {"bf16,fp16+ulp8", "bf16,fp16+ulp16"}),
         ("pack --auto-codecs softsign8,sq", {"softsign8,sqrt8"}), ("audit --codec softsign8,sq", {"softsign8,sqrt8"})]


@pytest.mark.parametrize("line, offered", [*LISTS, ("pack --state flash,ti", set()), ("help pa", {"pack"})])
def test_bash_completes_the_last_word_of_a_list(tmp_path, line, offered):
    assert offered_by_bash(tmp_path, f"tersor {line}") == offered


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
@pytest.mark.parametrize("line, offered", [
    *LISTS, ("replay --state=flash,ti", {"--state=flash,tight"}), ("pack --scale ", {"e8m8", "f16", "f32"}),
    ("pack --dry", {"--dry-run\tshow the plan, write nothing"})])
def test_fish_completes_lists_and_describes_options_not_their_words(tmp_path, line, offered):
    assert offered_by_fish(tmp_path, f"tersor {line}") == offered


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
def test_fish_completes_commands_behind_help(tmp_path):
    assert {word.split("\t")[0] for word in offered_by_fish(tmp_path, "tersor help pa")} == {"pack"}


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
@pytest.mark.parametrize("line, becomes", [
    ("replay --state flash,ti", "replay --state flash,tight,"),
    ("replay --state=flash,ti", "replay --state=flash,tight,"),
    ("sweep --codec bf16,fp16+ulp1", "sweep --codec bf16,fp16+ulp16,"), ("pack --scale e", "pack --scale e8m8"),
    ("help pa", "help pack")])
def test_zsh_completes_the_last_word_of_a_list(tmp_path, line, becomes):
    assert line_by_zsh(tmp_path, f"tersor {line}") == f"tersor {becomes}"


def test_every_option_has_words_in_the_text_of_its_help():
    lines = [line for line in run_tersor("completion", "fish", check=0).stdout.splitlines() if " -l " in line]
    assert len(lines) > 300
    assert not [line for line in lines if line.endswith("-d ''")]
