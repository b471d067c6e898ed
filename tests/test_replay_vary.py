"""replay --vary: what other hyperparameters would have made of the recorded gradients, against replays one by one."""
import csv
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import DATA, one_line_error, run_tersor

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"
RECORDING = DATA / "tiny-gpt" / "recording"
GRID = ("--vary", "lr=1e-4,1e-3", "--vary", "beta2=0.95,0.999")


def vary(*args, check=0):
    return json.loads(run_tersor("replay", TINY, RECORDING, *args, "--json", check=check).stdout)


def state_after(folder, name, *args):
    out = folder / f"{name}.safetensors"
    run_tersor("replay", TINY, RECORDING, "-o", out, "--weights", "f32", "--momentum", "f32", "--variance", "f32",
               "--to", "safetensors", *args, check=0)
    return load_file(out)


def flat(state, kind):
    """Weights, momenta or variances in one vector."""
    suffix = {"weights": "", "momentum": ".exp_avg", "variance": ".exp_avg_sq"}[kind]
    names = sorted(n for n in state if n.endswith(".exp_avg"))
    return np.concatenate([state[n.removesuffix(".exp_avg") + suffix].ravel() for n in names]).astype("f8")


def distance(a, b):
    return np.sqrt(((a - b) ** 2).sum() / (a ** 2).sum())


def test_figures_are_those_of_replays_one_by_one(tmp_path):
    variants = vary(*GRID)["variants"]
    assert [v["name"] for v in variants] == ["as recorded", "lr=1e-4 beta2=0.95", "lr=1e-3 beta2=0.95",
                                             "lr=1e-4 beta2=0.999", "lr=1e-3 beta2=0.999"]
    recorded = state_after(tmp_path, "recorded")
    for i, v in enumerate(variants):
        hyper = [arg for name, x in v.get("changed", {}).items() for arg in ("--hyper", f"{name}={x}")]
        assert bool(hyper) == (i > 0)
        alone = state_after(tmp_path, i, *hyper)
        before = state_after(tmp_path, f"before{i}", *hyper, "--steps", "401..415")
        for kind in "weights", "momentum", "variance":
            assert v[kind] == pytest.approx(distance(flat(recorded, kind), flat(alone, kind)), rel=1e-6), kind
        step = flat(alone, "weights") - flat(before, "weights")
        assert v["update_rms_last"] == pytest.approx(np.sqrt((step ** 2).mean()), rel=1e-6)
        assert v["steps"][-1]["update_rms"] == v["update_rms_last"] and len(v["steps"]) == 16
    assert variants[0]["weights"] == variants[0]["update"] == 0
    assert variants[2]["weights"] > variants[1]["weights"] > 0


def test_gradients_are_read_once(tmp_path):
    """A recording whose file is gone after it was opened would be read again by a second replay."""
    one = vary("--vary", "lr=1e-4")
    many = vary("--vary", "lr=1e-4,2e-4,3e-4,4e-4,5e-4,6e-4,7e-4,8e-4,9e-4,1e-3,2e-3,3e-3,4e-3,5e-3,6e-3")
    assert len(many["variants"]) == 16 and many["variants"][1] == one["variants"][1]


@pytest.mark.parametrize("threads", [1, 3])
def test_result_does_not_depend_on_threads(threads):
    assert vary(*GRID, "-j", threads) == vary(*GRID)


@pytest.mark.parametrize("optimizer, name, value", [("sgd", "momentum", "0.5"), ("lion", "beta1", "0.8"),
                                                    ("adam", "eps", "1e-3"), ("adamw", "weight_decay", "0.5")])
def test_any_hyperparameter_of_the_optimizer(optimizer, name, value, tmp_path):
    args = ("--optimizer", optimizer, "--lr", "1e-3", "--zero-state")
    v = vary(*args, "--vary", f"{name}={value}")["variants"][1]
    a, b = state_after(tmp_path, "a", *args), state_after(tmp_path, "b", *args, "--hyper", f"{name}={value}")
    assert v["weights"] == pytest.approx(distance(flat(a, "weights"), flat(b, "weights")), rel=1e-6)
    assert v["weights"] > 0


def test_matrices_of_muon_have_their_own_rate(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "rec").mkdir()
    save_file({"w": rng.standard_normal((6, 4)).astype("f4")}, tmp_path / "in.safetensors")
    for step in 1, 2:
        save_file({"w": rng.standard_normal((6, 4)).astype("f4")}, tmp_path / "rec" / f"step-{step}.safetensors")
    args = ("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--optimizer", "muon", "--hyper", "match_rms=1")
    for lr, out in ("1e-3", "a"), ("1e-2", "b"):
        run_tersor(*args, "--lr", lr, "-o", tmp_path / f"{out}.safetensors", check=0)
    a, b = (load_file(tmp_path / f"{out}.safetensors")["w"].astype("f8") for out in "ab")
    done = run_tersor(*args, "--lr", "1e-3", "--vary", "lr=1e-2", "--json", check=0)
    assert json.loads(done.stdout)["variants"][1]["weights"] == pytest.approx(distance(a, b), rel=1e-6)


def test_reports_say_what_they_cannot_know(tmp_path):
    files = {kind: tmp_path / kind for kind in ("svg", "html", "csv")}
    done = run_tersor("replay", TINY, RECORDING, *GRID, "--svg", files["svg"], "--html", files["html"],
                      f"--csv={files['csv']}", check=0)
    words = " ".join(done.stdout.split())
    assert "gradients are those of the recorded run" in words and "not what the loss would have been" in words
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "lr=1e-3 beta2=0.999" in "".join(ET.parse(files["svg"]).getroot().itertext())
    assert "not what the loss would have been" in " ".join(files["html"].read_text().split())
    rows = list(csv.DictReader(open(files["csv"], encoding="ascii")))
    assert {row["variant"] for row in rows} == {"as recorded", *(v["name"] for v in vary(*GRID)["variants"])}


@pytest.mark.parametrize("args, text", [
    (["--vary", "lr"], "expected NAME=X"), (["--vary", "=1"], "expected NAME=X"), (["--vary", "lr="], "a number"),
    (["--vary", "lr=1e-3,x"], "found 'x', expected a number"), (["--vary", "beta=0.9"], "did you mean 'beta"),
    (["--vary", "lr=1", "--vary", "lr=2"], "found lr twice"),
    (["--vary", "lr=1,2,3,4", "--vary", "beta2=0.1,0.2,0.3,0.4"], "more than 15 combinations"),
    (["--vary", "lr=1", "--state", "flash"], "--vary and --state exclude"), (["--vary", "lr=1", "-o", "x"], "--vary and --output"),
    (["--vary", "lr=1", "--device", "cuda"], "on the CPU"), (["--vary", "lr=1", "--audit"], "--audit"),
], ids=str)
def test_wrong_command_line(args, text):
    assert text in one_line_error(run_tersor("replay", TINY, RECORDING, *args, check=2))


def test_value_out_of_range_is_named():
    done = run_tersor("replay", TINY, RECORDING, "--vary", "beta2=0.9,1.5", check=3)
    assert "beta2" in one_line_error(done) and "1.5" in done.stderr
    done = run_tersor("replay", TINY, RECORDING, "--vary", "momentum=0.9", check=2)
    assert "adamw has no hyperparameter momentum" in one_line_error(done)
