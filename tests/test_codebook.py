"""Blocks and codebooks: those of Gefen's program, from gradients and from checkpoints."""
import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import DATA, one_line_error

F32 = np.float32


@pytest.fixture(scope="module")
def golden():
    with np.load(DATA / "golden" / "gefen.npz") as data:
        return dict(data)


def parts(golden):
    return {key[5:-2]: golden[key] for key in golden if re.fullmatch(r"part_\w+_g", key)}


@pytest.fixture
def gradients(golden, tmp_path):
    save_file(parts(golden), tmp_path / "gradients.safetensors")
    return tmp_path / "gradients.safetensors"


def learn(tersor, *args):
    return json.loads(tersor("codebook", *args, "--json", check=0).stdout)


def entries(report):
    return np.array(report["codebook"], F32)


# ---- against Gefen's program --------------------------------------------------------------------

def test_periods_and_scores_are_those_of_the_program(tersor, golden, gradients):
    report = learn(tersor, gradients, "--gradients")
    assert len(report["tensors"]) == len(parts(golden)) == 13
    for t in report["tensors"]:
        name = t["name"]
        want = dict(zip(golden[f"part_{name}_divisors"].tolist(), golden[f"part_{name}_scores"]))
        assert t["period"] == golden[f"part_{name}_period"], name
        for c in t["candidates"]:
            assert c["score"] == pytest.approx(want[c["length"]], rel=1e-6, abs=1e-9)
        assert {d for d in want if d > 8} <= {c["length"] for c in t["candidates"]}


def test_periods_of_the_paper(tersor, golden, gradients):
    report = learn(tersor, gradients, "--gradients", "--partition", "variance")
    for t in report["tensors"]:
        want = golden[f"part_{t['name']}_paper_E"]
        found = [c["score"] for c in t["candidates"]]
        assert t["period"] == golden[f"part_{t['name']}_paper_period"], t["name"]
        assert found == pytest.approx(want[:len(found)].tolist(), rel=1e-6, abs=1e-12)


def test_the_codebook_is_that_of_the_program(tersor, golden, gradients):
    report = learn(tersor, gradients, "--gradients", "--compat", "gefen")
    assert report["counts"] == golden["hist256_counts"].tolist()
    assert np.array_equal(entries(report), golden["cb256"])
    assert report["nmse"] == pytest.approx(2.09745e-5, rel=1e-5)


# ---- what is ours -------------------------------------------------------------------------------

def nearest_bins(x, block):
    blocks = x.reshape(-1, block)
    most = np.abs(blocks).max(1, keepdims=True)
    z = np.where(most > 0, blocks / np.where(most > 0, most, F32(1)), F32(0))
    return np.clip(np.floor((z + F32(1)) * F32(2048)), 0, 4095).astype(int).ravel()


def test_one_entry_is_0_and_blocks_are_those_that_are_stored(tersor, gradients):
    report = learn(tersor, gradients, "--gradients")
    values = load_file(gradients)
    counts = np.zeros(4096, int)
    for t in report["tensors"]:
        if t["period"] == 1:
            n = t["elements"]
            assert t["block"] == max(d for d in range(1, 257) if n % d == 0)
        else:
            assert t["block"] == t["period"]
        counts += np.bincount(nearest_bins(values[t["name"]].ravel(), t["block"]), minlength=4096)
    found = entries(report)
    assert report["counts"] == counts.tolist()
    assert found[0] == -1 and found[-1] == 1 and np.sum(found == 0) == 1
    assert np.all(np.diff(found) > 0)


def test_a_recording_gives_its_first_step(tersor, tmp_path):
    recording = DATA / "tiny-gpt" / "recording"
    report = learn(tersor, recording)
    first = sorted(recording.glob("*.safetensors"))[0]
    again = learn(tersor, first, "--gradients")
    del report["inputs"], again["inputs"]
    assert report == again
    assert sum(report["counts"]) == 84288


def test_of_a_checkpoint_variances_give_blocks_and_momenta_the_histogram(tersor, tiny_gpt):
    report = learn(tersor, tiny_gpt)
    state = load_file(tiny_gpt)
    counts = np.zeros(4096, int)
    for t in report["tensors"]:
        momentum = state[t["name"] + ".exp_avg"].ravel()
        counts += np.bincount(nearest_bins(momentum, t["block"]), minlength=4096)
    assert report["counts"] == counts.tolist()
    assert any(t["period"] > 1 for t in report["tensors"])


@pytest.mark.parametrize("rule", ["adjacent", "variance"])
def test_threads_and_simd_levels_agree(tersor, tiny_gpt, rule):
    want = learn(tersor, tiny_gpt, "--partition", rule, "-j1")
    assert learn(tersor, tiny_gpt, "--partition", rule, "-j7") == want
    for level in ("base", "avx2"):
        done = tersor("codebook", tiny_gpt, "--partition", rule, "--json", "-j1",
                      env={"TERSOR_ISA": level})
        if done.returncode == 0:    # the processor has it
            assert json.loads(done.stdout) == want


def test_tensors_of_many_tiles_are_one(tersor, tmp_path):
    rng = np.random.default_rng(5)
    scale = np.exp(rng.normal(0, 3, 3000)).astype(F32)
    g = (rng.normal(0, 1, (3000, 250)) * scale[:, None]).astype(F32)
    save_file({"w": g}, tmp_path / "g.safetensors")
    report = learn(tersor, tmp_path / "g.safetensors", "--gradients", "-j3")
    assert report["tensors"][0]["period"] == 250
    assert report["counts"] == np.bincount(nearest_bins(g.ravel(), 250), minlength=4096).tolist()


def test_svg_and_text(tersor, tiny_gpt, tmp_path):
    done = tersor("codebook", tiny_gpt, "-v", "--svg", tmp_path / "c.svg", check=0)
    assert "256 entries learned from 84,288 values" in done.stdout
    text = (tmp_path / "c.svg").read_text()
    assert text.count('class="entry"') == 256 and text.endswith("</svg>\n")


# ---- what is refused ----------------------------------------------------------------------------

@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gradients_that_are_not_finite_are_refused(tersor, tmp_path, value):
    g = np.random.default_rng(1).normal(size=(64, 64)).astype(F32)
    g[3, 5] = value
    save_file({"w": g}, tmp_path / "g.safetensors")
    done = tersor("codebook", tmp_path / "g.safetensors", "--gradients", check=3)
    assert "tensor w: found 1 values that are not finite" in one_line_error(done)


def test_states_that_are_not_finite_are_not_counted(tersor, tiny_gpt, tmp_path):
    state = load_file(tiny_gpt)
    state["wte.weight.exp_avg"][0, 0] = np.nan
    state["wpe.weight.exp_avg_sq"][0, 0] = -1
    save_file(state, tmp_path / "c.safetensors")
    report = learn(tersor, tmp_path / "c.safetensors")
    left = {t["name"] for t in report["tensors"] if not t["counted"]}
    assert left == {"wte.weight", "wpe.weight"}


def test_too_few_bins_are_refused_unless_accepted(tersor, tmp_path):
    g = np.zeros((16, 16), F32)
    g[0] = 1
    save_file({"w": g}, tmp_path / "g.safetensors")
    done = tersor("codebook", tmp_path / "g.safetensors", "--gradients", check=3)
    assert "found values in 2 bins" in one_line_error(done)
    assert "--few-bins" in one_line_error(done)
    report = learn(tersor, tmp_path / "g.safetensors", "--gradients", "--few-bins")
    assert report["nonempty"] == 2 and report["codebook"][-1] == 1


def test_a_checkpoint_without_states_is_refused(tersor, tmp_path):
    save_file({"w": np.ones((8, 8), F32)}, tmp_path / "w.safetensors")
    done = tersor("codebook", tmp_path / "w.safetensors", check=3)
    assert "found no momenta or variances" in one_line_error(done)
