"""Replay in the states of other programs, against what COAT and bitsandbytes made of the same gradients; and in
several states at once.
"""
import csv
import json
import re
import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

import faults
from conftest import DATA, run_tersor

F32, F64 = np.float32, np.float64
GROUP = 128
TINY = DATA / "tiny-gpt"


def golden(name):
    with np.load(DATA / "golden" / f"{name}.npz") as data:
        return dict(data)


def replay(root, w0, gradients, *args):
    """The state after each step from none: as it is stored, and decoded."""
    (root / "rec").mkdir()
    save_file({"w": w0}, root / "in.safetensors")
    for t, g in enumerate(gradients, 1):
        save_file({"w": g}, root / "rec" / f"step-{t}.safetensors")
    for t in range(1, len(gradients) + 1):
        packed, plain = root / f"packed-{t}.safetensors", root / f"plain-{t}.safetensors"
        run_tersor("replay", root / "in.safetensors", root / "rec", "-o", packed, "--zero-state", "--steps",
                   f"1..{t}", "--weights", "f32", *args, check=0)
        run_tersor("unpack", packed, "-o", plain, check=0)
        yield t, codes(packed), load_file(plain)


def codes(path):
    arrays = dict(safetensors.deserialize(path.read_bytes()))
    return {name.removesuffix("::quantized"): np.frombuffer(a["data"], np.uint8).astype(int)
            for name, a in arrays.items() if name.endswith("::quantized")}


def farthest(x, y):
    return np.abs(x.astype(F64) - y).max() / np.abs(y).max()


# --- COAT ---------------------------------------------------------------------------------------------

def coat_decoded(coat, key, t):
    values = golden("coat2")["e4m3_values"].astype(F64)
    codes = coat[f"{key}{t}"]
    scale, power, centre = (coat[f"{key}{part}{t}"].astype(F64)[np.arange(len(codes)) // GROUP]
                            for part in "skc")
    y = values[codes] * scale
    return np.sign(y) * np.abs(y) ** (1 / power) * centre


def test_coats_adamw_steps_as_its_kernel_does(tmp_path):
    coat = golden("coat")
    gradients = [coat[f"g{t}"] for t in range(1, 6)]
    steps = replay(tmp_path, coat["p0"], gradients, "--state", "coat", "--order", "coat", "--optimizer",
                   "adamw", "--lr", "1e-3", "--weight-decay", "0.1", "--betas", "0.9,0.95", "--eps", "1e-8")
    for t, _, state in steps:
        for key, name in (("m", "w.exp_avg"), ("v", "w.exp_avg_sq")):
            want = coat_decoded(coat, key, t)
            # A code is 2^-4 of its value apart from the next: the bar is 2^-7 of 99.9%.
            assert (np.abs(state[name] - want) <= 1e-6 * np.abs(want)).all(), (t, key)
        if t == 1:
            np.testing.assert_array_equal(state["w"], coat["p1"])
        if t == 5:
            assert farthest(state["w"], coat["p5"]) <= 1e-6


def test_the_order_of_coat_is_another(tmp_path):
    """Where the decay enters decides last places of weights: the test above would see it."""
    coat = golden("coat")
    args = ["--state", "coat", "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.1", "--betas",
            "0.9,0.95"]
    _, _, state = next(replay(tmp_path, coat["p0"], [coat["g1"]], *args))
    assert (state["w"] != coat["p1"]).any() and farthest(state["w"], coat["p1"]) <= 1e-6


# --- bitsandbytes -------------------------------------------------------------------------------------

def test_8_bit_adam_steps_as_bitsandbytes_does(tmp_path):
    """Variances that its kernel stores as 0, and updates by them, are its own: ours never become 0."""
    bnb = golden("bnb")
    gradients = [(bnb[f"adam_g{t}"].astype(np.uint32) << 16).view(F32) for t in range(1, 5)]
    steps = replay(tmp_path, bnb["adam_w0"], gradients, "--state", "bitsandbytes", "--order", "bitsandbytes",
                   "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.01", "--betas", "0.9,0.999")
    lost = np.zeros(len(bnb["adam_w0"]), bool)
    for t, packed, state in steps:
        before = lost
        lost = lost | (bnb[f"adam_v{t}"] == 0)
        for key, name in (("m", "w.exp_avg"), ("v", "w.exp_avg_sq")):
            got, want = packed[name], bnb[f"adam_{key}{t}"].astype(int)
            assert np.abs(got - want).max() <= 1, (t, key)
            same = (got == want) | (lost if key == "v" else False)
            assert same.mean() >= 0.999, (t, key, same.mean())
        if t in (1, 4):
            want = bnb[f"adam_w{t}"].astype(F64)
            near = np.abs(state["w"] - want) <= 1e-6 * np.abs(bnb["adam_w0"]).max()
            assert near[~before].mean() >= 0.998, t
    assert 0.05 < lost.mean() < 0.1


# --- What is refused ----------------------------------------------------------------------------------

@pytest.mark.parametrize("order, optimizer", [("coat", "adam"), ("coat", "lion"), ("bitsandbytes", "sgd")])
def test_an_order_without_the_optimizer_is_refused(tersor, order, optimizer):
    done = tersor("replay", TINY / "checkpoint.safetensors", TINY / "recording", "--order", order, "--optimizer",
                  optimizer, "--zero-state")
    assert done.returncode == 2
    assert f"the optimizer is {optimizer}, which the order {order} does not have" in done.stderr


@pytest.mark.parametrize("state", ["coat", "bitsandbytes"])
def test_8_steps_and_8_more_are_16(tersor, tmp_path, state):
    run = ("replay", TINY / "checkpoint.safetensors", TINY / "recording", "--state", state)
    whole, half, both = (tmp_path / f"{name}.safetensors" for name in ("whole", "half", "both"))
    tersor(*run, "-o", whole, check=0)
    tersor(*run, "-o", half, "--steps", "..408", check=0)
    tersor("replay", half, TINY / "recording", "-o", both, "--steps", "409..", check=0)
    assert both.read_bytes() == whole.read_bytes()


# --- Several states -----------------------------------------------------------------------------------

STATES = ["flash", "tight", "coat", "bitsandbytes", "flashoptim", "fp32"]
RUN = ("replay", TINY / "checkpoint.pt", TINY / "recording")


def report(*args):
    return json.loads(run_tersor(*RUN, "--json", *args, check=0).stdout)


def test_several_states_give_the_figures_of_each_alone():
    together = report("--state", ",".join(STATES))["states"]
    assert [s.pop("name") for s in together] == STATES
    for name, state in zip(STATES, together):
        alone = report("--state", name, "--compare", "fp32", "--order", "torch-cpu")
        assert state.pop("bytes_per_parameter") == pytest.approx(
            (alone["state_nbytes"] - 3 * 4 * alone["parameters"]) / alone["parameters"], rel=1e-8)
        assert state.pop("order_from") == "default"
        assert state == {key: alone[key] for key in state}, name


def test_threads_do_not_change_what_several_states_report():
    outputs = {run_tersor(*RUN, "--state", "flash,tight,coat", "--csv", "-j", str(n), check=0).stdout
               for n in (1, 2, 7)}
    assert len(outputs) == 1
    rows = list(csv.DictReader(outputs.pop().splitlines()))
    assert len(rows) == 3 * 16 * 30 and {row["state"] for row in rows} == {"flash", "tight", "coat"}


def read_nbytes(tmp_path, states):
    log = tmp_path / f"{states}.log"
    run_tersor(*RUN, "--state", states, "--compare", "fp32", env=faults.shim(TINY / "recording", log=log), check=0)
    return sum(e.n for e in faults.read_log(log) if e.mark == "<" and e.call.startswith(("read", "pread")))


def test_gradients_are_read_once_for_all_states(tmp_path):
    one, three = (read_nbytes(tmp_path, states) for states in ("flash", "flash,tight,coat"))
    data = sum(path.stat().st_size for path in (TINY / "recording").glob("*.safetensors"))
    assert one > data and three - one < data / 10      # headers are read for each


def test_the_table_has_a_line_per_state_and_fits():
    text = run_tersor(*RUN, "--state", "flash,tight,coat", check=0).stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    table = {line.split()[0]: line for line in lines if re.match(r"(flash|tight|coat) ", line)}
    assert set(table) == {"flash", "tight", "coat"}
    assert "5.094" in table["tight"] and "3.52e-09*" in table["tight"] and "1.26e-04*" in table["tight"]
    assert "fine  flash: Every update" in text and "bad   coat: Updates of 2 of 29" in text
    assert "watch tight: Updates of 2 of 29 tensors are more than 3.2% of their length off" in text


def test_chart_and_page_have_every_state(tmp_path):
    svg, html = tmp_path / "x.svg", tmp_path / "x.html"
    run_tersor(*RUN, "--state", "flash,tight,bitsandbytes", "--svg", svg, "--html", html, check=0)
    for text in (svg.read_text(), html.read_text()):
        for label in ("flash, 5.140 B", "tight, 5.094 B", "bitsandbytes, 5.032 B"):
            assert f">{label}<" in text
        assert "Update error, worst tensor" in text and 'class="s2"' in text
    page = html.read_text()
    assert "<td>bf16+ulp8, dyn8, dyn8</td>" in page and "Replay in 3 states" in page
    assert re.search(r"<tr><td>416</td>(<td>\d\.\d+e-\d\d</td>){3}</tr>", page)


def test_a_gate_names_the_state_that_fails(tmp_path):
    done = run_tersor(*RUN, "--state", "flash,coat", "--max-error", "update-nmse=0.01")
    assert done.returncode == 1 and "Gate failed for coat: update-nmse" in done.stdout
    assert "step 404: tensor h.0.c_attn.bias: coat: found update-nmse" in done.stderr
    run_tersor(*RUN, "--state", "flash,tight", "--max-error", "update-nmse=0.01", check=0)


@pytest.mark.parametrize("args, message", [
    (("--state", "flash,"), "option --state: found 'flash,', expected fp32, flash"),
    (("--state", "flash,odd"), "or several with commas"),
    (("--state", "flash,tight,flash"), "option --state: found flash twice"),
    (("--state", "flash,tight", "-o", "x.pt"), "several states are compared: leave -o out"),
    (("--state", "flash,tight", "--check-numerics"), "leave --check-numerics out"),
])
def test_several_states_are_refused_where_one_is_meant(tmp_path, args, message):
    done = run_tersor(*RUN, *args, cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, []) and message in done.stderr


def test_several_states_miss_the_gradients_that_each_of_them_misses(tmp_path):
    """Only the first state looks at the headers of the steps; a gradient without dimensions is a parameter, too."""
    rng = np.random.default_rng(5)
    model = {"module.b": rng.standard_normal((4, 64)).astype(F32), "a": rng.standard_normal((2, 32)).astype(F32),
             "scale": np.array(2, F32), "frozen": np.zeros(3, F32)}
    (tmp_path / "rec").mkdir()
    save_file(model, tmp_path / "in.safetensors")
    for t, names in enumerate([["b", "a", "scale"], ["b", "scale"], ["b", "a"]], 1):
        grads = {n: rng.standard_normal(model.get(n, model.get(f"module.{n}")).shape).astype(F32) for n in names}
        save_file(grads, tmp_path / "rec" / f"step-{t}.safetensors")
    run = ("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--optimizer", "adamw", "--lr", "1e-3",
           "--compare", "fp32", "--json", "-", "--state")
    several = json.loads(run_tersor(*run, "flash,tight,fp32", check=0).stdout)["states"]
    for state in several:
        alone = json.loads(run_tersor(*run, state["name"], check=0).stdout)
        assert alone["missing"] == state["missing"] and alone["steps"] == state["steps"]
        assert {m["tensor"] for m in alone["missing"]} == {"a", "scale"}


@pytest.mark.parametrize("args", [("--state", "flash", "--compare", "fp32"), ("--state", "flash,tight")])
def test_a_dry_run_has_no_figures(args):
    """Nothing was compared, so there is no divergence to print, and no nan."""
    text = run_tersor(*RUN, *args, "--dry-run", check=0).stdout
    assert "nan" not in text and "stalled" not in text


# What states leave of a change of all weights: the norm of what they add to it over its own.
DIVERGENCE = {"flash": 9.2e-5, "tight": 6.8e-5, "coat": 5.1e-4}


@pytest.mark.parametrize("state", DIVERGENCE)
def test_8_steps_of_a_trained_model_move_its_weights_as_far_apart_from_fp32_as_was_measured(tmp_path, state):
    """Of all weights the figures are 9.14e-5, 6.85e-5 and 5.13e-4; here are 6,912 of them."""
    folder, moved = DATA / "real-gpt-rows", {}
    start = load_file(folder / "start.safetensors")
    for name, args in ("fp32", ()), (state, ("--state", state, "--weights", "f32")):
        packed, plain = tmp_path / f"{name}.packed.safetensors", tmp_path / f"{name}.safetensors"
        run_tersor("replay", folder / "start.safetensors", folder / "recording", *args, "-o", packed, check=0)
        run_tersor("unpack" if args else "convert", packed, "-o", plain, check=0)
        after = load_file(plain)
        moved[name] = np.concatenate([(after[n].astype(F64) - start[n]).ravel() for n in start if "exp_avg" not in n])
    apart = ((moved[state] - moved["fp32"]) ** 2).sum() / (moved["fp32"] ** 2).sum()
    assert abs(apart / DIVERGENCE[state] - 1) <= 0.1, apart
