"""tersor replay --audit: audits of the state after every step in FP32."""
import csv
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from conftest import DATA, one_line_error, run_tersor, write_source
from test_replay_report import make

GPT = DATA / "tiny-gpt"
CHECKPOINT, RECORDING = GPT / "checkpoint.safetensors", GPT / "recording"


def replay(*args, check=0):
    return run_tersor("replay", "--audit", *args, check=check)


def report(*args, check=0):
    return json.loads(replay("--json", *args, check=check).stdout)


def figures(audit):
    """What is known of codecs, of their pairs and of each tensor, without learned ones and weights."""
    codecs = {(c["kind"], c["codec"]): c["nmse"] for c in audit["codecs"]}
    pairs = {(p["momentum"], p["variance"]): (p["nmse"], p["max_after"], p["exposed"])
             for p in audit["pairs"]}
    tensors = {(t["name"], c["codec"]): c for t in audit["tensors"] for c in t["codecs"]}
    return codecs, pairs, tensors


def expect_within(found, wanted):
    for ours, all_of_them in zip(figures(found), figures(wanted)):
        assert ours and all(all_of_them[key] == value for key, value in ours.items())


@pytest.fixture(scope="module")
def steps():
    return report(CHECKPOINT, RECORDING, "--eps", "1e-8", "--betas", "0.9,0.999")


def test_a_step_is_as_in_the_checkpoint_after_it(steps, tmp_path):
    assert steps["schema"] == "tersor.replay-audit.v1"
    assert steps["steps"] == list(range(401, 417)) and len(steps["checkpoints"]) == 16
    for step in (401, 405, 416):
        at = tmp_path / f"{step}.safetensors"
        run_tersor("replay", CHECKPOINT, RECORDING, "--steps", f"..{step}", "--state", "fp32", "-o", at,
                   "--eps", "1e-8", "--betas", "0.9,0.999", check=0)
        alone = json.loads(run_tersor("audit", at, "--json", check=0).stdout)["checkpoints"][0]
        found = steps["checkpoints"][step - 401]
        assert found["file"] == f"step {step}"
        assert {c["kind"] for c in found["codecs"]} == {"momentum", "variance"}
        expect_within(found, alone)


def test_states_differ_from_step_to_step(steps):
    worst = [next(p["nmse"][6] for p in c["pairs"]
                  if (p["momentum"], p["variance"]) == ("softsign8", "sqrt8"))
             for c in steps["checkpoints"]]
    assert len(set(worst)) == 16


def test_eps_and_betas_are_those_of_the_replay():
    first = report(CHECKPOINT, RECORDING, "--steps", "..401")["checkpoints"][0]
    manifest = json.loads((RECORDING / "manifest.json").read_text())
    assert first["betas_known"] and first["eps_known"]
    assert first["betas"] == list(manifest["param_groups"][0]["betas"])
    other = report(CHECKPOINT, RECORDING, "--steps", "..401", "--betas", "0.8,0.9", "--eps", "1e-4")
    assert other["checkpoints"][0]["betas"] == [0.8, 0.9]
    assert other["checkpoints"][0]["eps"] == pytest.approx(1e-4)


def test_reports_have_every_step(tmp_path):
    files = {kind: tmp_path / f"a.{kind}" for kind in ("csv", "svg", "html")}
    text = replay(CHECKPOINT, RECORDING, *(f"--{kind}={path}" for kind, path in files.items())).stdout
    assert text.startswith("after step 416:\nfine  use ") and max(map(len, text.splitlines())) <= 80
    lines = re.findall(r"^step (\d+)  +(\S+)", text, re.M)
    assert [int(step) for step, _ in lines] == list(range(401, 417))
    rows = list(csv.reader(files["csv"].read_text().splitlines()))[1:]
    assert {row[0] for row in rows} == {f"step {step}" for step in range(401, 417)}
    panel = next(g for g in ET.parse(files["svg"]).getroot().iter()
                 if g.get("data-panel") == "checkpoints")
    curve = next(p.get("d") for p in panel.iter("{http://www.w3.org/2000/svg}path"))
    assert len(re.findall("[ML]", curve)) in (1, 16)
    assert "<td>16</td><td title=\"step 416\">" in files["html"].read_text()


def test_skipped_steps_have_no_audit(tmp_path):
    args = make(tmp_path, 6, spoil=(2, 5))
    assert report(*args, "--on-nonfinite", "skip")["steps"] == [1, 3, 4, 6]


def test_what_cannot_be_audited_is_refused(tmp_path):
    for options in (["-o", tmp_path / "x"], ["--compare", "fp32"], ["--check-numerics"],
                    ["--max-error", "update-nmse=1"], ["--dry-run"]):
        line = one_line_error(replay(*options, CHECKPOINT, RECORDING, check=2))
        name = "--output" if options[0] == "-o" else options[0]
        assert f"--audit and {name} exclude each other" in line
    line = one_line_error(replay("--device", "cuda", CHECKPOINT, RECORDING, check=2))
    assert "--audit runs on the CPU" in line
    line = one_line_error(replay("--state", "flash", CHECKPOINT, RECORDING, check=2))
    assert "found a state in" in line and "expected FP32 to look at after each step" in line
    run_tersor("pack", CHECKPOINT, "-o", tmp_path / "packed.safetensors", check=0)
    done = replay("--state", "fp32", tmp_path / "packed.safetensors", RECORDING, check=3)
    assert "is packed: found what a codec left, expected an FP32 state" in one_line_error(done)
    args = make(tmp_path, 2)
    write_source(tmp_path / "start.safetensors", {n: np.ones((8, 40)) for n in ("a.weight", "b.weight")})
    done = replay("--zero-state", *args, check=3)
    assert "expected one to look at after each step" in one_line_error(done)
