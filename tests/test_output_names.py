"""Outputs without -o: of pack and unpack, of one input; nothing is replaced unasked."""
import json
import shutil

import pytest

from conftest import DATA, one_line_error, run_tersor

TINY, TRAINER = DATA / "tiny-gpt", DATA / "frameworks" / "trainer" / "checkpoint-30"


@pytest.fixture
def here(tmp_path):
    shutil.copytree(TRAINER, tmp_path / "run" / "checkpoint-30")
    for suffix in ("pt", "safetensors"):
        shutil.copy(TINY / f"checkpoint.{suffix}", tmp_path / f"tiny.{suffix}")
    return tmp_path


@pytest.mark.parametrize("source, packed, restored", [
    ("run/checkpoint-30", "run/checkpoint-30.packed", "run/checkpoint-30"),
    ("run/checkpoint-30//", "run/checkpoint-30.packed", "run/checkpoint-30"),
    ("tiny.pt", "tiny.packed.safetensors", "tiny.safetensors"),
    ("./tiny.safetensors", "tiny.packed.safetensors", "tiny.safetensors")])
def test_there_and_back(here, source, packed, restored):
    run_tersor("pack", source, "-q", cwd=here, check=0)
    assert (here / packed).exists()
    run_tersor("verify", packed, "--against", source, "-qq", cwd=here, check=0)
    shutil.rmtree(here / restored) if (here / restored).is_dir() else (here / restored).unlink()
    run_tersor("unpack", packed, "-q", cwd=here, check=0)
    assert (here / restored).exists()


def test_nothing_is_replaced_unasked(here):
    run_tersor("pack", "tiny.pt", "-qq", cwd=here, check=0)
    before = (here / "tiny.packed.safetensors").read_bytes()
    assert "tiny.packed.safetensors: output exists" in one_line_error(run_tersor("pack", "tiny.pt", cwd=here, check=4))
    assert "tiny.safetensors: output exists" in one_line_error(
        run_tersor("unpack", "tiny.packed.safetensors", cwd=here, check=4))
    assert (here / "tiny.packed.safetensors").read_bytes() == before
    run_tersor("pack", "tiny.pt", "-qqf", "--state", "tight", cwd=here, check=0)
    assert (here / "tiny.packed.safetensors").read_bytes() != before


@pytest.mark.parametrize("args", [("pack", "tiny.pt", "tiny.safetensors"), ("pack", "-"), ("pack", "."), ("pack", "run/.."),
                                  ("unpack", "tiny.pt"), ("pack", "x.packed"), ("convert", "tiny.pt")])
def test_where_there_is_no_name_one_is_asked_for(here, args):
    shutil.copytree(here / "run", here / "x.packed")
    assert "no output; give it with -o OUT" in one_line_error(run_tersor(*args, cwd=here, check=2))


def test_a_second_operand_is_no_output(here):
    run_tersor("pack", "tiny.pt", "-qq", cwd=here, check=0)
    assert "unexpected operand 'u'; an output goes behind -o" in one_line_error(
        run_tersor("unpack", "tiny.packed.safetensors", "u", cwd=here, check=2))


def test_the_command_of_an_audit_can_be_pasted(here):
    report = json.loads(run_tersor("audit", "run/checkpoint-30", "-q", "--json", cwd=here, check=0).stdout)
    command = report["checkpoints"][0]["recommended"]["command"].split()
    run_tersor(*command[1:], "-q", cwd=here, check=0)
    assert (here / "run" / "checkpoint-30.packed").is_dir()
