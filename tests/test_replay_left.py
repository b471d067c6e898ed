"""States of stepped parameters that the replayed optimizer does not have: refused, or left as they are and named."""
import json

import numpy as np
import pytest

from conftest import DATA, one_line_error, run_tersor
from safetensors.numpy import load_file, save_file

SLOW, OTHER = "a second momentum, as AdEMAMix keeps one", "a state of another optimizer"
BASIS = "a momentum that its variance does not divide, as with SOAP, which keeps them in another basis"
ADABELIEF = "a variance of gradients around their momentum, as AdaBelief keeps it"
REFUSED = {
    "optimizers/adabelief": ("0.weight.exp_avg_var", ADABELIEF),
    "optimizers/adam-mini": ("0.weight.vmean", OTHER),
    "optimizers/ademamix": ("0.weight.exp_avg_slow", SLOW),
    "optimizers/amos": ("0.weight.exp_avg_sq", OTHER),
    "optimizers/apollo": ("0.weight.exp_avg", OTHER),
    "optimizers/galore": ("0.weight.exp_avg", OTHER),
    "optimizers/heavyball-ademamix": ("0.weight.0.update_by_ademamix_exp_avg_slow_0", SLOW),
    "optimizers/heavyball-soap": ("0.weight.0.scale_by_soap_exp_avg_2", BASIS),
    "optimizers/nero": ("0.weight.exp_avg_sq", OTHER),
    "optimizers/prodigy": ("0.weight.p0", OTHER),
    "states/bitsandbytes/ademamix8bit": ("0.weight.state1", "two momenta, as AdEMAMix of bitsandbytes keeps them"),
    "states/schedule-free": ("w.z", OTHER),
    "states/soap": ("w.exp_avg", BASIS),
}
NAMED = {                               # the first, and how many
    "optimizers/adashift": ("optimizer.state.0.grad_queue.0", 40),
    "optimizers/aggmo": ("0.weight.momentum_buffer.0", 12),
    "optimizers/madgrad": ("0.weight.grad_sum_sq", 12),
    "optimizers/magma": ("optimizer.magma_state.(0).alignment", 4),
    "optimizers/scion": ("0.weight.d", 4),
}
STEPPED = ["optimizers/heavyball-adamw", "states/all-bf16", "states/batchnorm", "states/bitsandbytes-adamw8bit",
           "states/torchao-adamw4bit", "states/torchao-adamw8bit"]


def warning(name, n, optimizer="adamw"):
    return (f"tensor {name}: is a state that {optimizer} does not step: it stays as it is, and training that uses it "
            f"gives another result ({n} in all)")


def recorded(folder, grads, **manifest):
    folder.mkdir()
    save_file(grads, folder / "1.safetensors")
    (folder / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": "adamw", "param_groups": [{"params": list(grads)}],
        "steps": [{"step": 1, "file": "1.safetensors", "lr": [0.01]}], **manifest}))
    return folder


def replayed(path, *args, check=0):
    return run_tersor("replay", path, *args, "--count", "0", check=check)


def test_every_optimizer_is_here():
    of_them = [name for name in [*REFUSED, *NAMED, *STEPPED] if name.startswith("optimizers/")]
    assert sorted(of_them) == sorted(f"optimizers/{p.stem}" for p in (DATA / "frameworks" / "optimizers").glob("*.pt"))


@pytest.mark.parametrize("source", [*REFUSED, *NAMED, *STEPPED])
def test_real_checkpoints(tmp_path, source):
    path, plain = DATA / "frameworks" / f"{source}.pt", tmp_path / "plain.safetensors"
    found = json.loads(run_tersor("inspect", path, "--json", check=0).stdout)["tensors"]
    recording = recorded(tmp_path / "rec", {t["name"]: np.ones(t["shape"], np.float32) for t in found
                                            if t["kind"] == "weight"})
    if source in REFUSED:
        name, what = REFUSED[source]
        message = one_line_error(replayed(path, recording, check=3))
        assert f"tensor {name}: is {what}; replay has no rule for it" in message
        return
    done = replayed(path, recording, "--json")
    words = warning(*NAMED[source]) if source in NAMED else "a state that"
    assert (words in done.stderr) == any(words in note for note in json.loads(done.stdout)["notes"]) == (source in NAMED)
    if source in NAMED:                 # the same in another container, in another order
        run_tersor("convert", path, "-o", plain, check=0)
        assert words[words.index(": is"):] in replayed(plain, recording).stderr


@pytest.fixture
def case(tmp_path):
    """m.w is stepped and u is not, both with AdamW's states."""
    names = [f"{w}{s}" for w in ("u", "m.w") for s in ("", ".exp_avg", ".exp_avg_sq")]

    def run(added, *options, check=0, optimizer="adamw"):
        path = tmp_path / "in.safetensors"
        save_file({**{name: np.ones(8, np.float32) for name in names}, **added}, path)
        recording = tmp_path / "rec"
        if not recording.exists():
            recorded(recording, {"m.w": np.ones(8, np.float32)}, optimizer=optimizer)
        return replayed(path, recording, *options, check=check)
    return run


ONES = np.ones(8, np.float32)


@pytest.mark.parametrize("added, first, n", [
    ({"m.w.q": ONES}, "m.w.q", 1),
    ({"m.w.s.0": ONES, "m.w.s.1": ONES[:1], "m.w-2": ONES, "m.w-2.q": ONES}, "m.w.s.0", 2),     # m.w-2 is no part
    ({"m": ONES, "m.w.q": ONES}, "m.w.q", 1),      # m is not stepped
    ({"m.w.codes": np.ones(8, np.uint8)}, "m.w.codes", 1),
    ({"optimizer.state.m.w.q": ONES}, "optimizer.state.m.w.q", 1),
    ({"optimizer.state.0.grad_queue.0": ONES}, "optimizer.state.0.grad_queue.0", 1),
    ({"u.q": ONES, "u.z": ONES, "optimizer.state.z.u": ONES, "u.exp_avg_slow": ONES}, None, 0),    # not stepped
    ({"m.w.k": np.ones(1, np.int64), "m.w.step": np.zeros((), np.float32)}, None, 0),       # counters
    ({"optimizer.param_groups.0.lr": np.ones((), np.float32), "optimizer.state.k": np.ones(1, np.int64)}, None, 0),
], ids=lambda v: ",".join(v) if isinstance(v, dict) else None)
def test_what_is_left_is_named(case, added, first, n):
    done = case(added)
    assert (warning(first, n) in done.stderr) if n else ("a state that" not in done.stderr)


def test_a_parameter_may_be_named_within_another(tmp_path):
    """What comes behind m.w.b is still a state of m.w."""
    path = tmp_path / "in.safetensors"
    save_file({name: ONES for name in ("m.w", "m.w.b", "m.w.b.q", "m.w.c", "m.x.q")}, path)
    done = replayed(path, recorded(tmp_path / "rec", {"m.w": ONES, "m.w.b": ONES}))
    assert warning("m.w.b.q", 2) in done.stderr


@pytest.mark.parametrize("optimizer, options, left", [
    ("lion", [], ["exp_avg_sq"]), ("sgd", [], ["exp_avg", "exp_avg_sq"]),
    ("sgd", ["--hyper", "momentum=0.9"], ["exp_avg_sq"]), ("adam", [], [])])
def test_of_another_optimizer(case, optimizer, options, left):
    done = case({}, *options, optimizer=optimizer)
    assert (warning(f"m.w.{left[0]}", len(left), optimizer) in done.stderr) if left else ("a state that" not in done.stderr)


@pytest.mark.parametrize("name", ["m.w.z", "m.w.p0", "m.w.square_avg", "optimizer.state.m.w.z", "optimizer.state.square_avg.m.w"])
def test_known_states_of_others_are_refused(case, name, tmp_path):
    for options in [], ["--zero-state"], ["--dry-run"], ["--audit"]:
        assert f"tensor {name}: is {OTHER}; replay has no rule" in one_line_error(case({name: ONES}, *options, check=3))
    done = case({name: ONES}, "--map", "(z|p0|square_avg)=other", "-o", tmp_path / "out.safetensors")
    assert warning(name, 1) in done.stderr and (load_file(tmp_path / "out.safetensors")[name] == ONES).all()


def test_every_form_of_a_replay_says_so(case):
    for options in ["--dry-run"], ["--audit"], ["--state", "flash,fp32"], ["--json"], ["--vary", "lr=1"]:
        assert warning("m.w.q", 1) in case({"m.w.q": ONES}, *options).stderr
    quiet = case({"m.w.q": ONES}, "-q", "--json", "--state", "flash,fp32")
    assert not quiet.stderr
    assert all(warning("m.w.q", 1) in s["notes"][0] for s in json.loads(quiet.stdout)["states"])


def test_a_reduced_momentum_is_refused_in_a_packed_file_too(tmp_path):
    """Its kind there is "other", which its name contradicts: the momentum began anew."""
    w = np.ones((4, 8), "f4")
    save_file({"w": w, "w.exp_avg": w[:, :1].copy(), "w.exp_avg_sq": w[:, :1].copy()}, tmp_path / "a.safetensors")
    run_tersor("pack", tmp_path / "a.safetensors", "-o", tmp_path / "packed", "--min-elements", "1", check=0)
    recording = recorded(tmp_path / "recording", {"w": w})
    for path in (tmp_path / "a.safetensors", tmp_path / "packed"):
        done = run_tersor("replay", path, recording, "-o", tmp_path / "out", check=3)
        assert one_line_error(done) == f"tersor: {path}: tensor w.exp_avg: is {OTHER}; replay has no rule for it"
