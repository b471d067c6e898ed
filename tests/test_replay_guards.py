"""tersor replay: inputs that must stay, states that are not finite, options that would do nothing,
and parts of a run that must be the same as the whole."""
import filecmp
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torchfile
from conftest import DATA, ROOT, one_line_error, run_tersor, safetensors_bytes
from safetensors.numpy import load_file, save_file
from test_replay_report import FIGURES

GPT = DATA / "tiny-gpt"
RECORDING = GPT / "recording"
CHECKPOINT = GPT / "checkpoint.safetensors"


def replay(*args, check=0, **kwargs):
    return run_tersor("replay", *args, check=check, **kwargs)


def record(folder, steps, optimizer="adam", lr=lambda step: [0.01], **group):
    """A recording of steps 1, 2, ...: dicts of gradients."""
    folder.mkdir()
    names = sorted({name for grads in steps for name in grads})
    for i, grads in enumerate(steps):
        save_file(grads, folder / f"{i + 1}.safetensors")
    (folder / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": optimizer,
        "param_groups": [{"params": names, **group}],
        "steps": [{"step": i + 1, "file": f"{i + 1}.safetensors", "lr": lr(i + 1)}
                  for i in range(len(steps))]}))
    return folder


@pytest.fixture
def small(tmp_path):
    """A weight of 40 elements, and the gradients of 4 steps."""
    rng = np.random.default_rng(0)
    save_file({"a": rng.standard_normal(40).astype("f4")}, tmp_path / "in.safetensors")
    return [{"a": rng.standard_normal(40).astype("f4")} for _ in range(4)]


# ---- Inputs stay ----

@pytest.mark.parametrize("option", ["-o", "--html", "--svg", "--csv=", "--json="])
@pytest.mark.parametrize("target", ["manifest.json", "2.safetensors", "new", "link", "../outside"])
def test_no_file_of_the_recording_is_replaced(small, tmp_path, option, target):
    """Not its manifest, not a step, by no name; and nothing is put between them."""
    rec = record(tmp_path / "rec", small)
    os.link(rec / "3.safetensors", tmp_path / "outside")
    (tmp_path / "alias").symlink_to("rec")
    path = tmp_path / "alias" / "1.safetensors" if target == "link" else rec / target
    before = {p.name: p.read_bytes() for p in rec.iterdir()}
    options = [f"{option}{path}"] if option.endswith("=") else [option, path]
    options += ["-f"] if option == "-o" else []
    message = one_line_error(replay(tmp_path / "in.safetensors", rec, *options, check=4))
    assert "input" in message
    assert {p.name: p.read_bytes() for p in rec.iterdir()} == before
    assert (tmp_path / "outside").read_bytes() == before["3.safetensors"]


@pytest.mark.parametrize("option", ["--schedule", "--params"])
def test_no_other_input_is_replaced(small, tmp_path, option):
    rec, text = record(tmp_path / "rec", small), tmp_path / "text"
    text.write_text("1 .1\n2 .1\n3 .1\n4 .1\n" if option == "--schedule" else "a\n")
    before = text.read_bytes()
    for target in (["-o", text, "-f"], ["--html", text]):
        one_line_error(replay(tmp_path / "in.safetensors", rec, option, text, *target, check=4))
        assert text.read_bytes() == before


# ---- States that are not finite ----

def test_weights_that_become_infinite(small, tmp_path):
    """They are told, counted, and not written, whatever the form."""
    rec = record(tmp_path / "rec", small, "sgd")
    sgd = [tmp_path / "in.safetensors", rec, "--lr", "3e38"]
    out = tmp_path / "out.safetensors"
    for state in (["--state", "fp32"], ["--weights", "bf16+exact16"]):
        message = one_line_error(replay(*sgd, *state, "-o", out, check=3))
        assert "tensor a: after step 4 found" in message and "its weight" in message
        assert not out.exists()
    done = replay(*sgd, "--json")
    assert "tensor a: after step 4" in done.stderr and "not finite" in done.stderr
    with np.errstate(over="ignore", invalid="ignore"):
        w = load_file(tmp_path / "in.safetensors")["a"].astype(np.float64)
        for grads in small:
            w = (w - np.float64(np.float32(3e38)) * grads["a"]).astype(np.float32).astype(float)
    expected = np.count_nonzero(~np.isfinite(w))
    assert 0 < expected < 41 and json.loads(done.stdout)["nonfinite"] == expected


@pytest.mark.parametrize("field, value, part", [("a", np.nan, "weight"),
                                                ("a.exp_avg_sq", -1, "weight"),
                                                ("a.exp_avg", np.inf, "weight")])
def test_states_that_were_not_in_order(small, tmp_path, field, value, part):
    state = {k: np.zeros(40, "f4") for k in ("a", "a.exp_avg", "a.exp_avg_sq")}
    state[field][7] = value
    save_file(state, tmp_path / "in.safetensors")
    small[0]["a"][7] = small[1]["a"][7] = 0
    rec, out = record(tmp_path / "rec", small[:2]), tmp_path / "out.safetensors"
    message = one_line_error(replay(tmp_path / "in.safetensors", rec, "-o", out, check=3))
    assert f"found 1 values of its {part}" in message and not out.exists()


def test_what_a_codec_cannot_take_is_counted_by_kind(small, tmp_path):
    """Only what there is."""
    save_file({"a": np.zeros(40, "f4"), "a.exp_avg": np.zeros(40, "f4"),
               "a.exp_avg_sq": np.full(40, -1, "f4")}, tmp_path / "in.safetensors")
    rec = record(tmp_path / "rec", small)
    message = one_line_error(replay(tmp_path / "in.safetensors", rec, "--state", "flash", check=3))
    assert "found 40 negative variances, which sqrt8 cannot hold" in message
    assert not re.search(r"\b0 ", message)


def test_findings_of_infinite_figures(small, tmp_path):
    """One sentence says it; none of those whose numbers would mean nothing."""
    grads = [{"a": np.where(np.arange(40) < 4, 0, g["a"]).astype("f4")} for g in small]
    rec = record(tmp_path / "rec", grads, eps=0)
    done = replay(tmp_path / "in.safetensors", rec, "--state", "flash", "--compare", "fp32",
                  "--json", "-q")
    texts = [f["text"] for f in json.loads(done.stdout)["findings"]]
    assert any("is infinite from step" in t for t in texts)
    assert not any("inf%" in t or "of inf" in t or "too coarse" in t for t in texts), texts


# ---- In parts as a whole ----

@pytest.mark.parametrize("schedule", [False, True])
def test_initial_lr_is_that_of_the_first_step_recorded(small, tmp_path, schedule):
    rec = record(tmp_path / "rec", small, "adamw", lambda s: [0.01 * s], decouple_lr=True,
                 weight_decay=0.5)
    options = []
    if schedule:
        (tmp_path / "s").write_text("".join(f"{s} {0.02 * s}\n" for s in (1, 2, 3, 4)))
        options = ["--schedule", tmp_path / "s"]
    whole, half, both = (tmp_path / f"{n}.safetensors" for n in ("whole", "half", "both"))
    replay(tmp_path / "in.safetensors", rec, "-o", whole, *options)
    replay(tmp_path / "in.safetensors", rec, "-o", half, "--steps", "..2", *options)
    replay(half, rec, "-o", both, "--steps", "3..", *options)
    a, b = load_file(whole), load_file(both)
    assert all(np.array_equal(a[k], b[k]) for k in a)


def test_going_on_with_a_state_of_flashoptim(tmp_path):
    """Its order of operations must be said again: the file does not have it."""
    whole, half, both = (tmp_path / f"{n}.safetensors" for n in ("whole", "half", "both"))
    replay(CHECKPOINT, RECORDING, "--state", "flashoptim", "--steps", "..404", "-o", whole)
    replay(CHECKPOINT, RECORDING, "--state", "flashoptim", "--steps", "..402", "-o", half)
    on = [half, RECORDING, "--steps", "403..404", "-o", both]
    message = one_line_error(replay(*on, check=2))
    assert "--order flashoptim" in message and "f16" in message
    replay(*on, "--order", "flashoptim")
    assert filecmp.cmp(whole, both, shallow=False)
    replay(*on, "--order", "torch-cpu", "-f")
    assert not filecmp.cmp(whole, both, shallow=False)
    replay(*on, "--state", "flash", "-f")


# ---- Options ----

@pytest.mark.parametrize("options, word", [
    (["--optimizer", "sgd", "--decouple-lr"], "decouple_lr"),
    (["--optimizer", "adam", "--decouple-lr"], "decouple_lr"),
    (["--optimizer", "sgd", "--eps", "3"], "eps"),
    (["--optimizer", "sgd", "--betas", ".1,.2"], "beta1"),
    (["--optimizer", "lion", "--eps", "3"], "eps"),
    (["--hyper", "momentum=-1"], "momentum"), (["--nesterov"], "nesterov"),
    (["--hyper", "nesterov=2"], "nesterov"), (["--hyper", "dampening=0"], "dampening"),
])
def test_options_that_do_nothing(options, word):
    message = one_line_error(replay(CHECKPOINT, RECORDING, "--zero-state", "--lr", "1e-3",
                                    *options, check=2))
    assert f"has no hyperparameter {word}" in message


@pytest.mark.parametrize("option", ["--csv=", "--svg=", "--html="])
def test_reports_compare(small, tmp_path, option):
    rec = record(tmp_path / "rec", small)
    for name, compare in (("a", []), ("b", ["--compare", "fp32"])):
        replay(tmp_path / "in.safetensors", rec, f"{option}{tmp_path / name}", *compare, "-qq")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert len((tmp_path / "a").read_bytes()) > 300


# ---- What is shown ----

def test_damaged_gradients_name_their_step(tmp_path):
    """Though the file's name does not have it."""
    x = np.arange(40, dtype=np.float32)
    save_file({"w": x}, tmp_path / "in.safetensors")
    (tmp_path / "rec").mkdir()
    for name in "xy":
        raw = bytearray(torchfile.pt({"w": torchfile.tensor(x)}))
        raw[bytes(raw).index(x.tobytes()) + 8] ^= name == "y"
        (tmp_path / "rec" / f"{name}.pt").write_bytes(raw)
    (tmp_path / "rec" / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": "sgd",
        "param_groups": [{"params": ["w"]}],
        "steps": [{"step": i + 7, "file": f"{n}.pt", "lr": [0.1]} for i, n in enumerate("xy")]}))
    message = one_line_error(replay(tmp_path / "in.safetensors", tmp_path / "rec", check=3))
    assert "y.pt" in message and "step 8" in message and "damaged" in message


def test_lines_of_the_report_fit(small, tmp_path):
    name = "n" * 150
    save_file({name: load_file(tmp_path / "in.safetensors")["a"]}, tmp_path / "in.safetensors")
    rec = record(tmp_path / "rec", [{name: g["a"]} for g in small])
    done = replay(tmp_path / "in.safetensors", rec, "--state", "flash", "--compare", "fp32")
    table = done.stdout[done.stdout.index("worst tensor"):].split("\n\n")[0]
    assert ".." in table and max(map(len, table.splitlines())) == 80


def test_the_page_says_what_it_is_of(small, tmp_path):
    rec = record(tmp_path / "rec", small)
    replay("in.safetensors", "rec", "--html", "r.html", "-qq", cwd=tmp_path)
    page = (tmp_path / "r.html").read_text()
    version = run_tersor("--version", check=0).stdout.split()[1]
    assert "<dt>recording</dt><dd>rec</dd>" in page and f"tersor {version}" in page
    assert str(tmp_path) not in page and str(ROOT) not in page
    assert "beta1" in page and not re.search("dampening|nesterov|momentum 0|decouple_lr", page)
    groups = json.loads(replay("in.safetensors", "rec", "--json", cwd=tmp_path).stdout)["groups"]
    assert groups[0].keys() == {"beta1", "beta2", "eps", "weight_decay"}


# ---- The recorder ----

@pytest.mark.parametrize("kind, decoupled, expected", [
    ("Adam", True, "adamw"), ("Adam", False, "adam"), ("AdamW", True, "adamw"),
    ("FlashAdamW", False, "adamw"), ("RAdam", True, None), ("NAdam", True, None),
    ("NAdam", False, None), ("SGD", False, "sgd"), ("CoatAdamW", False, "adamw"), ("Gefen", False, "gefen"),
    ("GefenMuon", False, "gefen-muon"), ("Muon", False, "muon"), ("AdamW8bit", False, "adamw"),
    ("AdamWFp8", False, "adamw"), ("Adam4bit", False, "adam"), ("_AdamW", False, "adamw"),
    ("bitsandbytes.optim.Adam8bit", False, "adamw"), ("bitsandbytes.optim.PagedAdamW32bit", False, "adamw"),
    ("bitsandbytes.optim.Lion8bit", False, "lion"), ("torchao.optim.Adam8bit", False, "adam"),
    ("SOAP", False, "soap"), ("pytorch_optimizer.optimizer.soap.SOAP", False, "soap"), ("heavyball.SOAP", False, None)])
def test_recorder_knows_which_optimizers_it_can_name(tmp_path, kind, decoupled, expected):
    """With as much of PyTorch as the class needs to be made."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "class distributed:\n    is_available = staticmethod(lambda: False)\n")
    script = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / "packaging" / "wheel")!r}]
sys.modules["safetensors"] = None
from tersor.record import GradientRecorder
step = lambda self: None
group = {{"params": [], "decoupled_weight_decay": {decoupled}}}
module, _, name = {kind!r}.rpartition(".")
optimizer = type(name, (), {{"param_groups": [group], "step": step, "__module__": module}})()
try:
    print(GradientRecorder({str(tmp_path / "rec")!r}, optimizer, []).kind)
except ValueError as error:
    print("refused", error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if expected:
        assert done.stdout.strip() == expected
    else:
        assert done.stdout.startswith("refused") and "kind=" in done.stdout


# ---- Many small tensors ----

def test_many_small_tensors_take_little_memory(tmp_path):
    """Headers, not elements: some KiB of each tensor were too much."""
    n, steps = 10000, 9
    names = [f"layers.{i // 10}.block.{i % 10}.weight" for i in range(n)]

    def write(path, wanted, dtype, nbytes):
        header = {name: {"dtype": dtype, "shape": [8], "data_offsets": [i * nbytes, (i + 1) * nbytes]}
                  for i, name in enumerate(wanted)}
        path.write_bytes(safetensors_bytes(header, bytes(nbytes * len(wanted))))

    write(tmp_path / "in.safetensors", [name + part for part in ("", ".exp_avg", ".exp_avg_sq")
                                        for name in names], "F32", 32)
    (tmp_path / "rec").mkdir()
    for i in range(steps):
        write(tmp_path / "rec" / f"{i + 1}.safetensors", names, "BF16", 16)
    done, peak, _ = torchfile.run_measured(
        "replay", tmp_path / "in.safetensors", tmp_path / "rec", "--optimizer", "adamw", "--lr", "1e-3",
        "-o", tmp_path / "out.safetensors", "-qq", "-j", "2")
    assert done.returncode == 0 and peak < 55      # MiB; it was 74. Room for a fourth plane took 6


# ---- Gates ----

GATED = [CHECKPOINT, RECORDING, "--state", "flash", "--scale", "f16", "--steps", "..403"]


@pytest.fixture(scope="module")
def gated():
    return json.loads(replay(*GATED, "--compare", "fp32", "--json").stdout)


def test_gates_are_on_every_figure(gated):
    assert set(gated["worst"]) == set(FIGURES)


@pytest.mark.parametrize("figure", FIGURES)
def test_a_gate_on_each_figure_passes_and_fails(gated, figure, tmp_path):
    """At the worst of all tensors and steps, which is not over the limit, and just below it."""
    def error(value):
        return None if value is None else 1 - value if figure == "weight-cosine" else value

    values = [(error(tensor[figure][i]), gated["steps"][i]["step"], tensor["name"])
              for i in range(3) for tensor in gated["tensors"] if figure in tensor]
    worst = max(value for value, *_ in values if value is not None)
    assert worst > 0
    # Figures in JSON have 9 digits; 1 - cosine loses some of these.
    slack = 2e-9 if figure == "weight-cosine" else 1e-8 * worst
    out = tmp_path / "out.safetensors"
    replay(*GATED, "--max-error", f"{figure}={worst + slack!r}", "-o", out)
    out.unlink()
    limit = worst * 0.999 - slack
    _, step, name = next(v for v in values if v[0] is not None and v[0] > limit)
    done = replay(*GATED, "--max-error", f"{figure}={limit!r}", "-o", out, check=1)
    assert f"step {step}: tensor {name}: found {figure} " in one_line_error(done)
    assert not out.exists()
