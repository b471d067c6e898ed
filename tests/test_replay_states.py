"""Replay in the states of other programs: against what COAT and bitsandbytes made of the same gradients."""
import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

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
    steps = replay(tmp_path, coat["p0"], gradients, "--state", "coat", "--compat", "coat", "--optimizer",
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
    steps = replay(tmp_path, bnb["adam_w0"], gradients, "--state", "bitsandbytes", "--compat", "bitsandbytes",
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
    done = tersor("replay", TINY / "checkpoint.safetensors", TINY / "recording", "--compat", order, "--optimizer",
                  optimizer, "--zero-state")
    assert done.returncode == 2
    assert f"the optimizer is {optimizer}, which is not in the program {order}" in done.stderr


@pytest.mark.parametrize("state", ["coat", "bitsandbytes"])
def test_8_steps_and_8_more_are_16(tersor, tmp_path, state):
    run = ("replay", TINY / "checkpoint.safetensors", TINY / "recording", "--state", state)
    whole, half, both = (tmp_path / f"{name}.safetensors" for name in ("whole", "half", "both"))
    tersor(*run, "-o", whole, check=0)
    tersor(*run, "-o", half, "--steps", "..408", check=0)
    tersor("replay", half, TINY / "recording", "-o", both, "--steps", "409..", check=0)
    assert both.read_bytes() == whole.read_bytes()
