"""What Adam guarantees of its moments, in verify, pack, audit and diff --steps: flipped bits, and no false alarm."""
import json

import numpy as np
import pytest
import safetensors.numpy

import bit_flips
from conftest import DATA, one_line_error, run_tersor

TINY = DATA / "tiny-gpt" / "checkpoint.pt"
TRAINER = DATA / "frameworks" / "trainer" / "checkpoint-30" / "optimizer.pt"
TRAINED = [TINY, TRAINER, DATA / "frameworks" / "peft" / "checkpoint-20" / "optimizer.pt",
           DATA / "frameworks" / "megatron" / "iter_0000006", DATA / "frameworks" / "accelerate-fsdp" / "checkpoint-10",
           DATA / "frameworks" / "deepspeed" / "zero2-bf16-2rank", DATA / "torch" / "optimizer-decay-groups.pt",
           DATA / "torch" / "dcp-2rank", *sorted((DATA / "frameworks" / "states").glob("*.pt"))]


def moments(report):
    report = report.get("files", report.get("checkpoints", [report]))[0]
    return report["moments"]


def run(*args, check=0):
    done = run_tersor(*args, "--json", check=check)
    return moments(json.loads(done.stdout)), done.stderr


def k_of(b1, b2):
    """The bound by brute force: gradients that make |m| largest for sqrt(v) = 1 are (b1/b2)^k."""
    k = np.arange(20000)
    g = (b1 / b2) ** k
    return ((1 - b1) * b1 ** k * g).sum() / np.sqrt(((1 - b2) * b2 ** k * g * g).sum())


@pytest.mark.parametrize("path, betas", [(TINY, (0.9, 0.95)), (TRAINER, (0.9, 0.999))], ids=["0.95", "0.999"])
def test_bound_is_that_of_the_worst_gradients(path, betas):
    found, stderr = run("verify", path)
    assert found["checked"] and tuple(found["betas"]) == betas and not stderr
    assert found["bound"] == pytest.approx(k_of(*betas) * 17 / 16, rel=1e-3)


@pytest.mark.parametrize("path", TRAINED, ids=lambda p: "/".join(p.parts[-2:]))
def test_no_false_alarm_on_trained_states(path):
    assert run("verify", path)[0]["violations"] == 0


@pytest.mark.parametrize("path", [TINY, TRAINER], ids=["0.95", "0.999"])
@pytest.mark.parametrize("state", ["flash", "tight", "coat", "bitsandbytes", "ratio8/sqrt8"])
def test_no_false_alarm_on_what_was_packed_and_unpacked(path, state, tmp_path):
    packed, restored = tmp_path / "packed", tmp_path / "restored.pt"
    assert run("pack", path, "-o", packed, "--state", state)[0]["violations"] == 0
    run_tersor("unpack", packed, "-o", restored, check=0)
    found = run("verify", restored)[0]
    assert found["checked"] and found["violations"] == 0


@pytest.fixture(scope="module")
def flipped(tmp_path_factory):
    """The top bit of one momentum is flipped: (file, name of its variance, element)."""
    out = tmp_path_factory.mktemp("flipped") / "checkpoint.pt"
    momenta, variances = bit_flips.moments(TINY)
    bit_flips.flip(TINY, out, {momenta[3][0]: [(momenta[3][1] + 77, 30)]})
    names = [t["name"] for t in json.loads(run_tersor("inspect", TINY, "--json", check=0).stdout)["tensors"]
             if t["kind"] == "variance"]
    assert len(names) == len(variances)
    return out, names[3]


@pytest.mark.parametrize("command", ["verify", "pack", "audit", "against"])
def test_a_violation_is_a_warning_that_names_the_element(flipped, command, tmp_path):
    path, name = flipped
    args = {"verify": ("verify", path), "audit": ("audit", path), "pack": ("pack", path, "-o", tmp_path / "out"),
            "against": ("verify", tmp_path / "packed", "--against", path)}[command]
    if command == "against":
        run_tersor("pack", path, "-o", tmp_path / "packed", check=0)
    found, stderr = run(*args)
    assert (found["violations"], found["faulty"], found["tensor"], found["element"]) == (1, True, name, 77)
    assert abs(found["momentum"]) > 1e30 and found["variance"] > 0
    assert f"warning: {args[1]}: tensor {name}: element 77 has momentum" in stderr
    assert "Adam with betas 0.9, 0.95 keeps it below 1.238" in stderr


def test_strict_makes_it_an_error(flipped, tmp_path):
    path, name = flipped
    done = run_tersor("verify", path, "--strict", check=1)
    assert f"tensor {name}: element 77" in one_line_error(done) and f"FAULT   {name}" in done.stdout
    done = run_tersor("pack", path, "-o", tmp_path / "out", "--strict", check=1)
    assert f"tensor {name}: element 77" in one_line_error(done) and not (tmp_path / "out").exists()
    run_tersor("verify", TINY, "--strict", check=0)


def test_rates_by_bit_are_those_of_the_formula():
    """What numpy finds of the same flips."""
    for (side, bit), rate in bit_flips.rates(run_tersor.__globals__["BINARY"], TINY, 100).items():
        assert rate >= {("m", 30): 0.95, ("v", 31): 0.8, ("v", 29): 0.8}.get((side, bit), 0)
        assert rate == 0 or bit > 20 or rate < 0.03, (side, bit)


def test_negative_variance_is_found_without_betas(tmp_path):
    g = np.random.default_rng(0).standard_normal(1000).astype("f4")
    v = g * g
    v[500] *= -1
    safetensors.numpy.save_file({"w": g, "w.exp_avg": g, "w.exp_avg_sq": v}, tmp_path / "a.safetensors")
    found, stderr = run("verify", tmp_path / "a.safetensors", "-v")
    assert not found["checked"] and (found["violations"], found["element"]) == (1, 500) and found["bound"] is None
    assert "does not say its betas" in stderr and "which is negative" in stderr


def test_another_optimizer_is_no_fault(tmp_path):
    """Nearly all elements are outside: ADOPT divides gradients by the root before it adds them up."""
    def outside(key, array):
        if key in keys:
            array[:] = (array.view("<f4") * 1e4).view("<u4")
    keys = {t[0] for t in bit_flips.moments(TINY)[0]}
    bit_flips.rewrite(TINY, tmp_path / "adopt.pt", outside)
    found, stderr = run("verify", tmp_path / "adopt.pt", "--strict", "-v")
    assert found["violations"] > 1000 and not found["faulty"] and "another optimizer" in stderr


def test_steps_leave_so_much_of_a_variance(tmp_path):
    variances = bit_flips.moments(TINY)[1]
    record, first = variances[2][:2]

    def decay(factor):
        def change(key, array):
            if key in {v[0] for v in variances}:
                array[:] = (array.view("<f4") * np.float32(factor)).view("<u4")
        return change
    bit_flips.rewrite(TINY, tmp_path / "b.pt", decay(0.95 ** 10))
    found, stderr = run("diff", TINY, tmp_path / "b.pt", "--steps", "10", check=1)
    assert found["checked"] and found["variances"] == 29 and found["violations"] == 0 and not stderr
    assert run("diff", TINY, tmp_path / "b.pt", "--steps", "9", check=1)[0]["violations"] > 1000

    def halve(key, array):
        if key == record:
            array[first + 5] -= np.uint32(1 << 23)
    bit_flips.rewrite(tmp_path / "b.pt", tmp_path / "c.pt", halve)
    found, stderr = run("diff", TINY, tmp_path / "c.pt", "--steps", "10", check=1)
    assert (found["violations"], found["element"]) == (1, 5) and "10 steps with beta2 0.95 leave at least" in stderr
    assert "moments" not in json.loads(run_tersor("diff", TINY, tmp_path / "b.pt", "--json", check=1).stdout)


def test_steps_between_files_without_betas_are_not_checked(tmp_path):
    g = np.ones(9, "f4")
    safetensors.numpy.save_file({"w": g, "w.exp_avg": g, "w.exp_avg_sq": g}, tmp_path / "a.safetensors")
    found, stderr = run("diff", tmp_path / "a.safetensors", tmp_path / "a.safetensors", "--steps", "3")
    assert not found["checked"] and "neither file says one beta2" in stderr


def test_steps_of_directories_file_by_file_are_refused(tmp_path):
    for name in "ab":
        run_tersor("pack", TRAINER.parent, "-o", tmp_path / name, check=0)
    done = run_tersor("diff", tmp_path / "a", tmp_path / "b", "--steps", "3", check=2)
    assert "not files of directories" in one_line_error(done)
