# SPDX-License-Identifier: Apache-2.0
"""Signatures of runs, and `tersor bisect` of pairs that differ in one planted thing.

The runs are of PyTorch, recorded by tersor.signatures; tests/helpers/signature_file.py is the oracle of the format.
"""
import json
import math
import os
import shutil
import socket
import struct
import subprocess
import time

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import xxhash

import signature_file
import torchfile
from conftest import DATA, ROOT, one_line_error, run_tersor, safetensors_bytes, traced
from torchfile import run_torch

tmp_path = torchfile.tmp_path

RUNS = {"base": {}, "same": {}, "seed": {"seed": 2}, "batch": {"batch": 1}, "order": {"swap": 9},
        "flip": {"flip": 12}, "decay": {"weight_decay": 0.2}, "lr": {"lr_from": [8, 0.02]}, "short": {"steps": 7},
        "other": {"other": True}, "late": {"late": 5}, "wide": {"width": 24}}
STEPS, TENSORS = 20, 20

TRAIN = """
import json, sys
import numpy as np
import torch
sys.path.insert(0, sys.argv[1])
from tersor.record import GradientRecorder
from tersor.signatures import SignatureRecorder

class AdamW(torch.optim.AdamW):
    '''The same formula in another order of operations.'''
    @torch.no_grad()
    def step(self):
        g = self.param_groups[0]
        for p in g["params"]:
            s = self.state[p]
            if not s:
                s["step"], s["exp_avg"], s["exp_avg_sq"] = torch.tensor(0.), torch.zeros_like(p), torch.zeros_like(p)
            s["step"] += 1
            s["exp_avg"].copy_(s["exp_avg"] * 0.9 + p.grad * (1 - 0.9))
            s["exp_avg_sq"].copy_(s["exp_avg_sq"] * 0.95 + p.grad ** 2 * (1 - 0.95))
            m, v = s["exp_avg"] / (1 - 0.9 ** s["step"]), s["exp_avg_sq"] / (1 - 0.95 ** s["step"])
            p.copy_(p * (1 - g["lr"] * g["weight_decay"]) - g["lr"] * (m / (v.sqrt() + 1e-8)))

def run(folder, seed=1, batch=0, steps=20, flip=None, weight_decay=0.1, lr_from=None, swap=None, other=False,
        late=None, width=16, keep=False):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Tanh(), torch.nn.Linear(width, 4))
    optimizer = (AdamW if other else torch.optim.AdamW)(model.parameters(), lr=0.01, betas=(0.9, 0.95),
                                                      weight_decay=weight_decay)
    names = list(model.named_parameters())
    recorder = SignatureRecorder(folder, optimizer, names)
    gradients = GradientRecorder(folder + "/gradients", optimizer, names) if keep else None
    data = torch.randn(steps + 1, 8, 8, generator=torch.Generator().manual_seed(batch))
    kept = {}
    def keep_state(step):
        for name, p in names:
            kept[f"{step} {name} weight"] = p.detach().numpy().copy()
            kept.update({f"{step} {name} {k}": v.numpy().copy() for k, v in optimizer.state[p].items()})
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/checkpoint-{step}.pt")
    if keep:
        keep_state(0)
    for step in range(1, steps + 1):
        if lr_from and step == lr_from[0]:
            optimizer.param_groups[0]["lr"] = lr_from[1]
        model[0].bias.requires_grad_(late is None or step >= late)
        x = data[step + (1 if step == swap else -1 if step - 1 == swap else 0)]
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if step == flip:
            optimizer.state[model[0].weight]["exp_avg"].view(-1)[5:6].view(torch.int32).bitwise_xor_(8)
        recorder.loss = loss if step != 3 else None
        if keep:
            kept.update({f"{step} {n} gradient": p.grad.numpy().copy() for n, p in names})
        optimizer.step()
        if keep:
            keep_state(step)
    recorder.close()
    if keep:
        gradients.close()
        np.savez(folder + "/kept.npz", **kept)

for name, options in json.loads(sys.argv[3]).items():
    run(sys.argv[2] + "/" + name, **options)
print("{}")
"""


# Two processes with DistributedDataParallel; the second adds one ULP to a gradient behind the reduction.
RANKS = """
import os, sys
import torch
sys.path.insert(0, sys.argv[1])
from tersor.signatures import SignatureRecorder
rank, spoil = int(sys.argv[3]), sys.argv[5] == "spoil"
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[4])
torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
torch.manual_seed(1)
model = torch.nn.Linear(8, 4)
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
recorder = SignatureRecorder(sys.argv[2], optimizer, parallel.named_parameters())
torch.manual_seed(2 + rank)
for step in range(1, 6):
    optimizer.zero_grad()
    parallel(torch.randn(8, 8)).square().mean().backward()
    if spoil and rank and step == 4:
        model.bias.grad[2] = torch.nextafter(model.bias.grad[2], torch.tensor(9.))
    optimizer.step()
recorder.close()
torch.distributed.destroy_process_group()
"""


def run_ranks(folder, how):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    args = torchfile.TORCH, "-W", "ignore", "-c", RANKS, ROOT / "packaging" / "wheel", folder
    ranks = [subprocess.Popen([*map(str, args), str(rank), str(port), how], stderr=subprocess.PIPE,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(2)]
    for process in ranks:
        assert process.communicate(timeout=300)[1] == b"" and process.returncode == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    kept = {"kept": {"keep": True}, "kept-flip": {"keep": True, "flip": 12},
            "kept-order": {"keep": True, "swap": 9}}
    run_torch(TRAIN, ROOT / "packaging" / "wheel", folder, json.dumps({**RUNS, **kept}))
    for name in kept:   # apart from signatures, and those with gradients beside them
        (folder / f"{name}-states").mkdir()
        for path in (folder / name).glob("*.pt"):
            path.rename(folder / f"{name}-states" / path.name)
        for path in (folder / name / "gradients").iterdir():
            shutil.copy(path, folder / name)
    return folder


def bisect(a, b, *options, check=None):
    done = run_tersor("bisect", a, b, "--json", *options, check=check)
    report = json.loads(done.stdout)
    assert report["schema"] == "tersor.bisect.v1"
    assert done.returncode == (report["cause"] != "equal")
    return report


def first(report):
    """What differs at the step that shows it."""
    return sorted((t["name"], t["of"]) for t in report["tensors"] if t.get("first_step") == report["step"]
                  and t["differing"])


# ---- The file ----

def test_signatures_are_those_of_xxhash_and_numpy(runs):
    """All of a file but its head, which is JSON."""
    path = runs / "kept" / "signatures.tsig"
    kept = np.load(runs / "kept" / "kept.npz")
    value, steps = signature_file.read(path)
    assert value["optimizer"] == "adamw" and value["order"] == "torch-cpu" and (value["rank"], value["ranks"]) == (0, 1)
    assert value["param_groups"][0]["betas"] == [0.9, 0.95]
    names = [(t["name"], t["of"]) for t in value["tensors"]]
    assert len(names) == TENSORS and [s[0] for s in steps] == list(range(STEPS + 1))
    written = 0
    for step, loss, rates, found in steps:
        assert rates == [0.01] and math.isnan(loss) == (step in (0, 3))
        for key in names:
            of = f"{step} {key[0]} {key[1]}"
            expected = signature_file.sign(kept[of].tobytes()) if of in kept else bytes(32)
            assert found[key][:20] == expected[:20] and found[key][24:] == expected[24:], (of, found[key], expected)
            assert math.isclose(*(struct.unpack("<f", s[20:24])[0] for s in (found[key], expected)), rel_tol=1e-6)
            written += of in kept
    assert written == len(kept.files)
    assert path.stat().st_size == len(signature_file.head(json.dumps(value).encode())) + 21 * (24 + 8 + 32 * TENSORS)


# ---- Pairs that differ in one thing ----

def test_equal_runs(runs):
    report = bisect(runs / "base", runs / "same", check=0)
    assert report["step"] is None and report["steps"] == STEPS + 1
    assert all(t["compared"] and not t["differing"] for t in report["tensors"])
    assert run_tersor("bisect", runs / "base" / "signatures.tsig", runs / "same", check=0).stdout.count("equal")


@pytest.mark.parametrize("name, cause, step, of", [
    ("seed", "loaded state", 0, {"weight"}), ("batch", "gradient", 1, {"gradient", "weight", "exp_avg", "exp_avg_sq"}),
    ("order", "gradient", 9, {"gradient", "weight", "exp_avg", "exp_avg_sq"}), ("flip", "optimizer", 12, {"exp_avg", "weight"}),
    ("decay", "hyperparameters", 1, {"weight"}), ("lr", "hyperparameters", 8, {"weight"}),
    ("other", "optimizer", None, None)])
def test_planted_differences(runs, name, cause, step, of):
    report = bisect(runs / "base", runs / name, check=1)
    assert report["cause"] == cause, report
    if step is not None:
        assert report["step"] == step
        assert {o for _, o in first(report)} == of
    assert report["known_before"] == (cause not in ("loaded state",))
    assert bisect(runs / name, runs / "base")["cause"] == cause
    text = run_tersor("bisect", runs / "base", runs / name, check=1).stdout
    assert f"first difference: {cause}, step {report['step']}" in text


def test_hyperparameters_are_named(runs):
    assert [(h["name"], h["group"], h["a"], h["b"]) for h in bisect(runs / "base", runs / "decay")["hyperparameters"]] == \
        [("weight_decay", 0, "0.1", "0.2")]
    assert [(h["name"], h["step"], h["a"], h["b"]) for h in bisect(runs / "base", runs / "lr")["hyperparameters"]] == \
        [("lr", 8, "0.01", "0.02")]


@pytest.mark.parametrize("switch", ["amsgrad", "maximize"])
def test_a_switch_that_one_run_does_not_mention_is_off(tmp_path, switch):
    for name, group in ("a", {switch: True}), ("b", {}):
        value = signature_file.of_tensors([("w", "weight", "F32", [1])])
        value["param_groups"][0] |= {"weight_decay": 0.1, **group}
        blocks = [signature_file.block(t, 0, [0.1], [signature_file.sign(bytes([t * (name == "a" or t < 2), 0, 0, 0]))])
                  for t in range(3)]
        (tmp_path / name).write_bytes(signature_file.head(value) + b"".join(blocks))
    report = bisect(tmp_path / "a", tmp_path / "b")
    assert report["cause"] == "hyperparameters" and report["hyperparameters"][0]["name"] == switch


def signed(path, rates, of="gradient", **more):
    """A file of signatures of a tensor that never changes, with these learning rates."""
    value = signature_file.of_tensors([("w", of, "F32", [1])], **more)
    steps = [signature_file.block(t, 0, [lr], [signature_file.sign(bytes(4))]) for t, lr in enumerate(rates)]
    path.write_bytes(signature_file.head(value) + b"".join(steps))
    return path


def test_numbers_that_differ_are_shown_apart_from_the_step_on(tmp_path):
    rates = [0.1] * 5
    report = bisect(signed(tmp_path / "a", rates), signed(tmp_path / "b", rates[:3] + [0.1 + 1e-13] * 2))
    assert (report["cause"], report["step"]) == ("hyperparameters", 3)
    lr, = report["hyperparameters"]
    assert lr["step"] == 3 and (float(lr["a"]), float(lr["b"])) == (0.1, 0.1 + 1e-13)


def test_a_rank_that_the_other_side_lacks_is_not_compared(tmp_path):
    for folder, n in ("one", 1), ("both", 2):
        (tmp_path / folder).mkdir()
        for rank in range(n):
            signed(tmp_path / folder / f"{rank}.tsig", [0.1] * 3, ranks=2, rank=rank)
    done = run_tersor("bisect", tmp_path / "one", tmp_path / "both", check=0)
    assert "1 of 2 ranks" in done.stderr and "the same bits" in done.stdout


@pytest.mark.parametrize("names", [("model.w", "module.w"), ("w", "module.w")])
def test_two_names_of_one_tensor_are_refused(tmp_path, names):
    safetensors.numpy.save_file({name: np.ones(3, "f4") for name in names}, tmp_path / "a.safetensors")
    refused = run_tersor("bisect", tmp_path / "a.safetensors", tmp_path / "a.safetensors", check=3)
    assert "found two names of one weight" in one_line_error(refused)


@pytest.mark.parametrize("path", sorted((DATA / "frameworks" / "optimizers").glob("*.pt")), ids=lambda p: p.stem)
def test_what_an_optimizer_keeps_is_compared_once(path):
    """Also its second momentum, as AdEMAMix has one."""
    report = bisect(path, path, check=0)
    assert report["cause"] == "equal" and report["tensors"]
    assert all(t["compared"] == 1 for t in report["tensors"])


@pytest.mark.parametrize("path", sorted((DATA / "frameworks" / "optimizers").glob("[!h]*.pt")), ids=lambda p: p.stem)
def test_signatures_and_a_checkpoint_have_the_same_states(path, tmp_path):
    """Whatever an optimizer calls them: a recorder signs what has a key of its own, as in HeavyBall nothing has."""
    plain, signatures = tmp_path / "plain.safetensors", tmp_path / "a.tsig"
    run_tersor("convert", path, "-o", plain, check=0)
    tensors = safetensors.numpy.load_file(plain)
    weights = ["0.weight", "0.bias", "2.weight", "2.bias"]
    keys = {(name, "weight"): name for name in weights}
    keys.update({(name, key): f"{name}.{key}" for name, _, key in (name.rpartition(".") for name in tensors)
                 if name in weights})
    types = {"float32": "F32", "int64": "I64"}
    assert len(keys) > 4 or path.stem == "aggmo"

    def sign(differing=None):
        head = signature_file.of_tensors([(*k, types[str(tensors[n].dtype)], list(tensors[n].shape)) for k, n in keys.items()])
        found = {k: (tensors[n] + (k == differing)).astype(tensors[n].dtype) for k, n in keys.items()}
        signatures.write_bytes(signature_file.head(head) + signature_file.block(12, 0, [0.01], [
            signature_file.sign(t.tobytes(), types[str(t.dtype)]) for t in found.values()]))
        return bisect(signatures, path)

    report = sign()
    assert report["cause"] == "equal"
    assert {(t["name"], t["of"]) for t in report["tensors"] if t["compared"]} == keys.keys()
    for key in keys:
        assert first(sign(key)) == [key]


def test_states_with_odd_keys_are_compared(tmp_path):
    """One that is called as what a run has besides, and two that say the same of a weight."""
    ones = np.ones(3, "f4")
    path = tmp_path / "a.pt"
    path.write_bytes(torchfile.pt({"model": torchfile.ordered({"w": torchfile.tensor(ones)}), "optimizer": {
        "state": torchfile.Dict([(0, {key: torchfile.tensor(ones[:n]) for key, n in (
            ("exp_avg", 3), ("weight", 3), ("gradient", 3), ("mu", 1), ("p0", 3), ("master_param", 3))})]),
        "param_groups": [{"params": [0]}]}}))
    report = bisect(path, path, check=0)
    assert sorted((t["name"], t["of"]) for t in report["tensors"] if t["compared"]) == [
        ("w", "master_param"), ("w", "momentum"), ("w", "p0"), ("w", "weight"), ("w.gradient", "other"), ("w.mu", "other"),
        ("w.weight", "other")]


def test_a_second_momentum_that_differs_is_named(tmp_path):
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    run_tersor("convert", DATA / "frameworks" / "optimizers" / "ademamix.pt", "-o", a, check=0)
    with safetensors.safe_open(a, "np") as f:
        tensors, metadata = {name: f.get_tensor(name) for name in f.keys()}, f.metadata()
    tensors["2.bias.exp_avg_slow"][0] += 1
    safetensors.numpy.save_file(tensors, b, metadata)
    assert first(bisect(a, b, check=1)) == [("2.bias", "exp_avg_slow")]


def test_memory_does_not_grow_with_steps(tmp_path):
    """Names are kept once: 2 MB of them, which 60 steps would make 240 in the two passes over both sides."""
    for folder, n in ("few", 4), ("many", 60):
        (tmp_path / folder).mkdir()
        for t in range(n):
            safetensors.numpy.save_file({f"{i}." + 60 * "layer." + "weight": np.full(1, t, "f4") for i in range(3000)},
                                        tmp_path / folder / f"step-{t}.safetensors")
    peaks = [torchfile.run_measured("bisect", tmp_path / folder, tmp_path / folder)[1] for folder in ("few", "many")]
    assert peaks[1] < peaks[0] + 16, peaks


def test_one_flipped_bit_names_its_tensor(runs):
    assert first(bisect(runs / "base", runs / "flip")) == [("0.weight", "exp_avg"), ("0.weight", "weight")]


def test_fewer_steps_are_compared_up_to_the_shorter(runs):
    report = bisect(runs / "base", runs / "short", check=0)
    assert report["steps"] == 8 and report["last_step"] == 7
    assert "A has 21 steps, B 8" in run_tersor("bisect", runs / "base", runs / "short").stdout


def test_parameter_that_begins_late(runs):
    """Its gradient and states are in the file from the start, and absent until then."""
    _, steps = signature_file.read(runs / "late" / "signatures.tsig")
    for step, _, _, found in steps:
        assert (found["0.bias", "gradient"] == bytes(32)) == (step < 5)
        assert (found["0.bias", "exp_avg"] == bytes(32)) == (step < 5)
    assert first(bisect(runs / "base", runs / "late")) == [
        (n, o) for n in ("0.bias",) for o in ("exp_avg", "exp_avg_sq", "gradient", "step", "weight")]


def test_another_model_is_named(runs):
    report = bisect(runs / "base", runs / "wide", check=1)
    assert {t["name"] for t in report["tensors"] if t["where"] == "shapes differ"} == {"0.weight", "0.bias", "2.weight"}
    assert "shapes differ" in run_tersor("bisect", runs / "base", runs / "wide").stdout


# ---- Values: gradients and checkpoints ----

def values(folder, key):
    return np.load(folder / "kept.npz")[key].reshape(-1)


def check_elements(report, a, b, step):
    """Against numpy."""
    checked = 0
    for t in report["tensors"]:
        if "element" in t:
            of = {"momentum": "exp_avg", "variance": "exp_avg_sq"}.get(t["of"], t["of"])
            x, y = (values(f, f"{step} {t['name']} {of}") for f in (a, b))
            at = np.flatnonzero(x.view("u4") != y.view("u4"))
            assert (t["elements"], t["element"]) == (len(at), at[0])
            assert [np.float32(t["value_a"]), np.float32(t["value_b"])] == [x[at[0]], y[at[0]]]
            checked += 1
    return checked


def test_signatures_are_those_of_checkpoints(runs):
    """A file's hashes are those of the tensors in checkpoints, at every step."""
    report = bisect(runs / "kept", runs / "kept-states", check=0)
    assert report["steps"] == STEPS + 1 and len(report["tensors"]) == 16 and report["b"]["source"] == "checkpoints"
    report = bisect(runs / "kept", runs / "kept-flip-states", check=1)
    assert (report["cause"], report["step"]) == ("state", 12)
    assert first(report) == [("0.weight", "exp_avg"), ("0.weight", "weight")]


def test_checkpoints(runs):
    report = bisect(runs / "kept-states", runs / "kept-flip-states", check=1)
    assert (report["cause"], report["step"]) == ("state", 12)
    assert check_elements(report, runs / "kept", runs / "kept-flip", 12) == 2
    assert "1 element, first 5: " in run_tersor("bisect", runs / "kept-states", runs / "kept-flip-states").stdout
    assert bisect(runs / "kept-states" / "checkpoint-7.pt", runs / "kept-flip-states", check=0)["first_step"] == 7
    assert bisect(runs / "kept-states" / "checkpoint-12.pt", runs / "kept-flip-states", check=1)["cause"] == "state"


def test_packed_checkpoint_against_the_plain_one(runs, tmp_path):
    run_tersor("pack", runs / "kept-states" / "checkpoint-9.pt", "-o", tmp_path / "p.safetensors", "--weights",
               "bf16+exact16", "--momentum", "f32", "--variance", "f32", "--min-elements", 1, check=0)
    assert bisect(runs / "kept-states", tmp_path / "p.safetensors", check=0)["first_step"] == 9


def test_gradients(runs):
    for a, b in ("kept/gradients", "kept-flip/gradients"), ("kept", "kept-flip"), ("kept", "kept-flip/gradients"):
        report = bisect(runs / a, runs / b, check=1)
        of_signatures = report["a"]["source"] == report["b"]["source"] == "signatures"
        assert report["cause"] == ("optimizer" if of_signatures else "gradient")
        if not of_signatures:
            assert check_elements(report, runs / "kept", runs / "kept-flip", report["step"])
            assert not report["known_before"]
    assert bisect(runs / "kept", runs / "kept" / "gradients", check=0)["steps"] == STEPS
    refused(runs / "kept" / "gradients", runs / "kept-states", "no tensor in common")


def test_gradients_beside_signatures_have_values(runs):
    report = bisect(runs / "kept", runs / "kept-order", check=1)
    assert (report["cause"], report["step"], report["known_before"]) == ("gradient", 9, True)
    assert check_elements(report, runs / "kept", runs / "kept-order", 9) == 4
    assert {t["of"] for t in report["tensors"] if "element" in t} == {"gradient"}


# ---- Replays ----

GPT = DATA / "tiny-gpt"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """The signatures of tests/data's recording, with its gradients beside them."""
    folder = tmp_path_factory.mktemp("replayed") / "run"
    shutil.copytree(GPT / "recording", folder)
    run_tersor("replay", GPT / "checkpoint.pt", GPT / "recording", "--signatures", folder / "signatures.tsig", "-qq", check=0)
    return folder


def test_replay_writes_signatures_of_the_run(replayed, tmp_path):
    """Against the tensors of the recording and of the checkpoints before and after it, by xxhash and numpy."""
    value, steps = signature_file.read(replayed / "signatures.tsig")
    manifest = json.loads((GPT / "recording" / "manifest.json").read_text())
    assert value["optimizer"] == "adamw" and value["order"] == "torch-cpu"
    assert [(g["betas"], g["eps"], g["weight_decay"], sorted(g["params"])) for g in value["param_groups"]] == \
        [(g["betas"], g["eps"], g["weight_decay"], sorted(g["params"])) for g in manifest["param_groups"]]
    assert [s[0] for s in steps] == list(range(400, 417))
    before = safetensors.numpy.load_file(GPT / "checkpoint.safetensors")
    after = safetensors.numpy.load_file(GPT / "expected-adamw-fp32.safetensors")
    states = {"weight": "", "momentum": ".exp_avg", "variance": ".exp_avg_sq"}
    for (_, _, _, found), tensors in (steps[0], before), (steps[-1], after):
        other = [k for k, s in found.items() if k[1] in states and
                 s[:16] != signature_file.sign(tensors[k[0] + states[k[1]]].tobytes())[:16]]
        assert len(other) == (8 if tensors is after else 0) and {k[1] for k in other} <= {"weight"}
    for (step, loss, rates, found), recorded in zip(steps[1:], manifest["steps"], strict=True):
        assert (step, rates) == (recorded["step"], recorded["lr"]) and loss == recorded["loss"]
        with safetensors.safe_open(GPT / "recording" / recorded["file"], "np") as f:
            assert sum(k[1] == "gradient" for k in found) == len(f.keys())
    raw = (GPT / "recording" / manifest["steps"][3]["file"]).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            data = raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            assert steps[4][3][name, "gradient"][:20] == signature_file.sign(data, t["dtype"])[:20]


def test_signatures_are_of_one_type_of_gradient(tmp_path):
    folder = tmp_path / "recording"
    shutil.copytree(GPT / "recording", folder)
    files = [step["file"] for step in json.loads((folder / "manifest.json").read_text())["steps"]]
    file = (folder / files[-1]).read_bytes()
    n = struct.unpack("<Q", file[:8])[0]
    header, data = json.loads(file[8:8 + n]), bytearray(file[8 + n:])
    name = min(key for key in header if key != "__metadata__")
    begin, end = header[name]["data_offsets"]
    data[begin:end] = bytes(end - begin)
    header[name]["dtype"] = "F16"
    (folder / files[-1]).write_bytes(safetensors_bytes(header, data))
    done = run_tersor("replay", GPT / "checkpoint.pt", folder, "--signatures", tmp_path / "signatures.tsig", check=3)
    assert one_line_error(done).endswith(f"tensor {name}: found a gradient in F16, expected BF16, as before")
    assert not (tmp_path / "signatures.tsig").exists()


def opens(folder, *options):
    """How often a replay opens the file of each recorded step."""
    manifest = json.loads((GPT / "recording" / "manifest.json").read_text())
    done, calls = traced(folder, "replay", GPT / "checkpoint.pt", GPT / "recording", *options)
    assert done.returncode == 0, done.stderr
    return [sum(f'/{step["file"]}", O_RDONLY' in call for call in calls) for step in manifest["steps"]]


def test_signatures_open_no_step_more(tmp_path):
    """A step is opened for the plan and for its window, by its name in the directory and by its path."""
    n = len(opens(tmp_path, "--dry-run"))
    assert opens(tmp_path, "--dry-run") == [2] * n
    assert opens(tmp_path, "--signatures", tmp_path / "signatures.tsig") == [4] * n


def test_replay_does_not_depend_on_threads_or_where_it_begins(replayed, tmp_path):
    for threads in 1, 3:
        run_tersor("replay", GPT / "checkpoint.pt", GPT / "recording", "--signatures", tmp_path / f"{threads}.tsig", "-j",
                   threads, "-o", tmp_path / f"{threads}.pt", "--steps", f"..{408}", check=0)
    assert (tmp_path / "1.tsig").read_bytes() == (tmp_path / "3.tsig").read_bytes()
    run_tersor("replay", tmp_path / "1.pt", GPT / "recording", "--steps", "409..", "--signatures", tmp_path / "rest.tsig",
               check=0)
    assert bisect(replayed, tmp_path / "rest.tsig", check=0)["steps"] == 9
    assert bisect(replayed, tmp_path / "1.pt", check=0)["first_step"] == 408


@pytest.mark.parametrize("options, words", [
    (["--state", "flash"], ["FP32"]), (["--audit"], ["--signatures"]), (["--state", "flash,tight"], ["--signatures"]),
    (["--device", "cuda"], ["--signatures"])])
def test_replays_without_signatures(tmp_path, options, words):
    done = run_tersor("replay", GPT / "checkpoint.pt", GPT / "recording", "--signatures", tmp_path / "s.tsig", *options)
    assert done.returncode == 2 and all(w in one_line_error(done) for w in words), done.stderr
    assert not list(tmp_path.iterdir())


def test_existing_file_is_kept(tmp_path):
    (tmp_path / "s.tsig").write_text("kept")
    args = "replay", GPT / "checkpoint.pt", GPT / "recording", "--steps", "..402", "--signatures", tmp_path / "s.tsig"
    assert "--force" in one_line_error(run_tersor(*args, check=4))
    assert (tmp_path / "s.tsig").read_text() == "kept"
    run_tersor(*args, "--force", check=0)
    assert [p.name for p in tmp_path.iterdir()] == ["s.tsig"]
    assert len(signature_file.read(tmp_path / "s.tsig")[1]) == 3


def spoiled(path, out, step, key):
    """A copy with another hash of one tensor from a step on."""
    value, steps = signature_file.read(path)
    data = signature_file.head(value)
    for number, loss, rates, found in steps:
        if number >= step:
            found[key] = bytes(15) + b"\1" + found[key][16:]
        data += signature_file.block(number, loss, rates, found.values())
    out.write_bytes(data)
    return out


def test_replay_says_who_is_right(replayed, tmp_path):
    wrong = spoiled(replayed / "signatures.tsig", tmp_path / "b.tsig", 409, ("h.0.ln_1.weight", "momentum"))
    report = bisect(replayed, wrong, "--from", GPT / "checkpoint.pt", check=1)
    assert (report["cause"], report["step"]) == ("optimizer", 409)
    assert report["replay"] == {"of": "a", "tensors": 1, "as_a": 1, "as_b": 0}
    assert bisect(wrong, replayed, "--from", GPT / "checkpoint.pt")["replay"] == {"of": "b", "tensors": 1, "as_a": 0,
                                                                                "as_b": 1}
    assert "bits of A in 1 and those of B in 0 of the 1" in \
        run_tersor("bisect", replayed, wrong, "--from", GPT / "checkpoint.pt").stdout.replace("\n  ", " ")
    left = tmp_path / "left.safetensors"
    run_tersor("convert", GPT / "checkpoint.pt", "-o", left, check=0)
    safetensors.numpy.save_file({**safetensors.numpy.load_file(left), "wte.weight.q": np.ones(8, np.float32)}, left)
    done = run_tersor("bisect", replayed, wrong, "--from", left, check=1)
    assert "warning: " in done.stderr and "tensor wte.weight.q: is a state that adamw does not step" in done.stderr
    assert "replay" not in bisect(replayed, replayed / "signatures.tsig", "--from", GPT / "checkpoint.pt", check=0)
    for args, word in ((wrong, replayed / "signatures.tsig", GPT / "checkpoint.pt"), "has gradients"), \
            ((replayed, wrong, tmp_path / "late.pt"), "expected one before step 409"):
        if word.startswith("expected"):
            run_tersor("replay", GPT / "checkpoint.pt", GPT / "recording", "-o", args[2], check=0)
        done = run_tersor("bisect", args[0], args[1], "--from", args[2])
        assert done.returncode == 2 and word in one_line_error(done), done.stderr


# ---- Size and time ----

def test_thousand_steps_of_500_tensors_take_less_than_a_second(tmp_path):
    rng = np.random.default_rng(5)
    tensors = [(f"w{i // 5}", ("gradient", "weight", "exp_avg", "exp_avg_sq", "step")[i % 5], "F32", [4]) for i in range(500)]
    head = signature_file.head(signature_file.of_tensors(tensors))
    for name in "a", "b":
        data = [head]
        for step in range(1000):
            signed = rng.bytes(32 * 500) if name == "a" or step == 999 else None
            signed = signed or kept[step]   # the same bytes but for the last step
            body = struct.pack("<Qdd", step, 0.5, 0.1) + signed
            data.append(body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body)))
            if name == "a":
                kept = {} if not step else kept
                kept[step] = signed
        (tmp_path / f"{name}.tsig").write_bytes(b"".join(data))
    begin = time.monotonic()
    report = bisect(tmp_path / "a.tsig", tmp_path / "b.tsig", check=1)
    assert time.monotonic() - begin < 1
    assert report["step"] == 999 and report["steps"] == 1000


# ---- Files that are not as they should be ----

def write(path, tensors=(("w", "gradient", "F32", [2]), ("w", "weight", "F32", [2])), steps=3, change=None, left_out=(),
          **more):
    """A file of signatures whose tensors are zeros; @change: {(step, index): bytes}."""
    path.parent.mkdir(exist_ok=True, parents=True)
    data = signature_file.head(signature_file.of_tensors(tensors, **more))
    for step in sorted({*range(steps)} - {*left_out}):
        signed = [signature_file.sign((change or {}).get((step, i), bytes(4 * math.prod(t[3])))) for i, t in enumerate(tensors)]
        if not step:
            signed = [None if t[1] == "gradient" else s for t, s in zip(tensors, signed)]
        data += signature_file.block(step, math.nan, [0.1], signed)
    path.write_bytes(data)
    return path


def refused(a, b, *words, status=3):
    done = run_tersor("bisect", a, b, timeout=20)
    assert done.returncode == status, (done.stdout, done.stderr)
    line = one_line_error(done)
    assert line.isprintable()
    for word in words:
        assert str(word) in line, (word, line)


def test_torn_step_is_left_out_and_said(tmp_path, runs):
    whole = (runs / "base" / "signatures.tsig").read_bytes()
    size = 24 + 8 + 32 * TENSORS
    for cut in 1, 8, size - 1:
        torn = tmp_path / f"torn-{cut}.tsig"
        torn.write_bytes(whole[:-cut])
        report = bisect(runs / "base", torn, check=0)
        assert report["b"]["torn_nbytes"] == size - cut and report["steps"] == STEPS
        assert "was not written to its end" in run_tersor("bisect", runs / "base", torn).stderr
    torn.write_bytes(whole[:-size] + bytes(size))       # a file that grew before its bytes were there
    assert bisect(runs / "base", torn, check=0)["b"]["torn_nbytes"] == size


def test_ranks_of_a_run(tmp_path):
    for how in "sound", "spoil":
        run_ranks(tmp_path / how, how)
    assert sorted(p.name for p in (tmp_path / "sound").iterdir()) == [f"signatures-rank0000{r}.tsig" for r in range(2)]
    report = bisect(tmp_path / "sound", tmp_path / "sound", check=0)
    assert report["a"]["ranks"] == report["a"]["ranks_found"] == 2 and {t["rank"] for t in report["tensors"]} == {0, 1}
    report = bisect(tmp_path / "sound", tmp_path / "spoil", check=1)
    assert (report["cause"], report["step"]) == ("ranks", 4)
    assert report["b"]["ranks_differ"] == {"step": 4, "rank": 1, "other": 0, "name": "module.bias", "of": "gradient"}
    # One rank of it is compared with a run of one.
    assert bisect(tmp_path / "sound" / "signatures-rank00001.tsig", tmp_path / "spoil", check=1)["step"] == 4


def test_ranks_that_disagree(tmp_path):
    for rank in range(2):
        for name, change in ("a", {}), ("b", {(2, 0): struct.pack("<2f", 1, rank)}):
            write(tmp_path / name / f"signatures-rank0000{rank}.tsig", ranks=2, rank=rank, change=change)
    report = bisect(tmp_path / "a", tmp_path / "b", check=1)
    assert report["cause"] == "ranks" and report["step"] == 2
    assert report["b"]["ranks_differ"] == {"step": 2, "rank": 1, "other": 0, "name": "w", "of": "gradient"}
    assert "ranks_differ" not in report["a"]
    os.remove(tmp_path / "b" / "signatures-rank00001.tsig")
    assert "1 of 2 ranks" in run_tersor("bisect", tmp_path / "a", tmp_path / "b", check=1).stderr


def test_cause_behind_a_gap_is_not_known(tmp_path):
    """With the step before it the weight would be the optimizer's."""
    change = {(3, 1): struct.pack("<2f", 1, 0)}
    for left_out, cause in ((), "optimizer"), ((2,), "state"):
        a = write(tmp_path / "a.tsig", steps=5, left_out=left_out)
        report = bisect(a, write(tmp_path / "b.tsig", steps=5, change=change), check=1)
        assert (report["cause"], report["step"], report["known_before"]) == (cause, 3, not left_out)


def test_other_numbers_of_ranks(tmp_path):
    write(tmp_path / "a" / "signatures.tsig")
    for rank in range(2):
        write(tmp_path / "b" / f"signatures-rank0000{rank}.tsig", ranks=2, rank=rank)
    assert bisect(tmp_path / "a", tmp_path / "b", check=0)["steps"] == 3


@pytest.mark.parametrize("spoil, words", [
    (lambda d: d[:20], ["expected a head"]), (lambda d: d[:100], ["ends in its head"]),
    (lambda d: d[:8] + struct.pack("<Q", 2 ** 40) + d[16:], ["over the limit"]),
    (lambda d: d[:30] + b"X" + d[31:], ["head is damaged"]),
    (lambda d: d[:-50] + b"X" + d[-49:], ["has no whole step"]),
    (lambda d: d + d[-(24 + 8 + 64):], ["step 0 after step 0"])])
def test_damaged_files(tmp_path, spoil, words):
    good = write(tmp_path / "good.tsig")
    bad = tmp_path / "bad.tsig"
    bad.write_bytes(spoil(write(tmp_path / "bad.tsig", steps=1).read_bytes()))
    refused(good, bad, bad, *words)


def test_damage_in_the_middle_is_no_torn_step(tmp_path):
    path = write(tmp_path / "a.tsig")
    data = bytearray(path.read_bytes())
    data[-150] ^= 1
    path.write_bytes(data)
    refused(path, path, "step number 1 is damaged")


@pytest.mark.parametrize("change, words", [
    ({"format": "x"}, ['format: found "x", expected "tersor-signatures"']), ({"version": 2}, ["newer tersor"]), ({"rank": 1}, ["rank, ranks"]),
    ({"tensors": []}, ["tensors"]), ({"tensors": None}, ["tensors"]), ({"tensors": {"w": 1}}, ["tensors"]),
    ({"tensors": [{"name": "w", "of": "weight", "dtype": "F32"}]}, ["shape"]), ({"tensors": [1]}, ["name"]), ({"tensors": [{"name": "", "of": "weight", "dtype": "F32", "shape": [2]}]}, ["name"]),
    ({"tensors": [{"name": "w", "of": "weight", "dtype": "F33", "shape": [2]}]}, ["dtype"]),
    ({"tensors": [{"name": "w", "of": "weight", "dtype": "F32", "shape": [2 ** 40, 2 ** 40]}]}, ["shape"]),
    ({"tensors": [{"name": "w", "of": "weight", "dtype": "F32", "shape": [2]}] * 2}, ["twice"]),
    ({"param_groups": [{"params": ["w"], "unheard_of": 1}]}, ["unheard_of"])])
def test_heads_that_are_refused(tmp_path, change, words):
    tensors = (("w", "weight", "F32", [2]),)
    bad = tmp_path / "bad.tsig"
    bad.write_bytes(signature_file.head({**signature_file.of_tensors(tensors), **change}) +
                    signature_file.block(0, 0.0, [0.1], [bytes(32)]))
    refused(write(tmp_path / "good.tsig", tensors), bad, bad, *words)


def test_a_head_that_is_no_object(tmp_path):
    bad = tmp_path / "bad.tsig"
    bad.write_bytes(signature_file.head([1]))
    refused(bad, bad, bad, "head: found a list, expected an object")


def test_nothing_in_common(tmp_path):
    a = write(tmp_path / "a.tsig")
    refused(a, write(tmp_path / "b.tsig", (("x", "weight", "F32", [2]),)), "no tensor in common", "w", "x")
    late = signature_file.head(signature_file.of_tensors((("w", "weight", "F32", [2]),)))
    (tmp_path / "c.tsig").write_bytes(late + signature_file.block(9, 0.0, [0.1], [bytes(32)]))
    refused(a, tmp_path / "c.tsig", "steps 0 to 2", "9 to 9")
    refused(a, tmp_path, "x" * 0)
    refused(a, tmp_path / "none", status=4)


# ---- What goes wrong while a run is recorded -------------------------------------------------------

RECORD = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
from tersor import signatures

class Elsewhere(torch.overrides.TorchFunctionMode):
    '''As after torch.set_default_device(), which PyTorch has since 2.0.'''
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in (torch.empty, torch.tensor):
            kwargs.setdefault("device", "meta")
        return function(*args, **kwargs)

def start(folder, dtype=torch.float32):
    weight = torch.nn.Parameter(torch.ones(8, 8, dtype=dtype))
    optimizer = torch.optim.SGD([weight], lr=0.01, momentum=0.9)
    return weight, optimizer, signatures.SignatureRecorder(folder, optimizer, [("w", weight)])

def step(weight, optimizer):
    optimizer.zero_grad()
    weight.abs().square().sum().backward()
    optimizer.step()

def said(what, *args):
    try:
        what(*args)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
"""


def record(script, *args):
    return run_torch(RECORD + script, ROOT / "packaging" / "wheel", *args)


def test_the_default_device_is_not_the_host(tmp_path):
    record("""
for name in "a", "b":
    weight, optimizer, recorder = start(sys.argv[2] + "/" + name)
    for _ in range(3):
        if name == "a":
            step(weight, optimizer)
        else:
            with Elsewhere():
                step(weight, optimizer)
    recorder.close()
print("{}")
""", tmp_path)
    assert bisect(tmp_path / "a", tmp_path / "b", check=0)["steps"] == 4


def test_a_dtype_without_a_name_is_refused_at_every_step(tmp_path):
    found = record("""
weight, optimizer, recorder = start(sys.argv[2], torch.complex64)
print(json.dumps([said(step, weight, optimizer) for _ in range(2)]))
""", tmp_path)
    assert found == ["TypeError: w: its gradient is of torch.complex64: not recordable"] * 2


def test_a_recorder_that_saw_no_step_leaves_no_file(tmp_path):
    """It would not be one of signatures, and a second recorder could not begin there."""
    record("""
for _ in range(2):
    weight, optimizer, recorder = start(sys.argv[2])
    recorder.close()
print("{}")
""", tmp_path)
    assert not list(tmp_path.iterdir())


def test_after_a_step_that_is_not_written_none_is(tmp_path):
    """Each says so, and none waits for memory that the lost ones had."""
    found = record("""
weight, optimizer, recorder = start(sys.argv[2])
for _ in range(2):
    step(weight, optimizer)
while recorder.writing:
    recorder.writing.pop(0).result()
call = signatures.call
def fail(name, *args):
    raise RuntimeError("no " + name)
signatures.call = fail
found = []
for k in range(6):
    found.append(said(step, weight, optimizer))
    if k == 1:
        while not recorder.writing[-1].done():
            pass
        signatures.call = call
found.append(said(recorder.close))
print(json.dumps(found))
""", tmp_path)
    lost = f"OSError: {tmp_path}/signatures.tsig: step %d is not written, as a step before it was not"
    assert found == [None, None, "RuntimeError: no tsr_sign", None, "RuntimeError: no tsr_sign", None, lost % 5]
    assert bisect(tmp_path, tmp_path, check=0)["steps"] == 3


def test_a_step_that_is_refused_gives_its_number_to_no_other(tmp_path):
    found = record("""
weight, optimizer, recorder = start(sys.argv[2])
found = []
for momentum in 0.9, 0.9, 0.8, 0.9, 0.9, 0.9:
    optimizer.param_groups[0]["momentum"] = momentum
    found.append(said(step, weight, optimizer))
found.append(said(recorder.close))
print(json.dumps(found))
""", tmp_path)
    assert found[:3] == [None, None, "ValueError: step 3: a hyperparameter other than lr has changed"]
    assert any("step 3 is not written" in (f or "") for f in found[3:]), found
    assert bisect(tmp_path, tmp_path, check=0)["steps"] == 3
