"""`replay --compat torch-cuda-fused` against what PyTorch's fused AdamW computes on a GPU, by bits.

tests/data/golden/cuda-fused.npz is of PyTorch 2.11 on an H100: weights, 16 gradients and their learning rates,
and weights and moments after steps 1 and 16.
"""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import DATA, run_tersor

OPTIONS = {"adamw95": ([0.9, 0.95], 0.1), "adamw999": ([0.9, 0.999], 0.01)}


@pytest.fixture(scope="module")
def golden():
    with np.load(DATA / "golden" / "cuda-fused.npz") as data:
        return dict(data)


def recorded(golden, folder, betas, decay):
    """The start and the gradients, as a checkpoint and a recording."""
    names = [f"w{i}" for i in range(5)]
    save_file({f"w{i}": golden[f"w0.{i}"] for i in range(5)}, folder / "start.safetensors")
    (folder / "rec").mkdir()
    for t in range(1, 17):
        save_file({f"w{i}": golden[f"g.{t}.{i}"] for i in range(5)}, folder / "rec" / f"step-{t}.safetensors")
    (folder / "rec" / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": "adamw",
        "param_groups": [{"params": names, "betas": betas, "eps": 1e-8, "weight_decay": decay}],
        "steps": [{"step": t, "file": f"step-{t}.safetensors", "lr": [float(golden["lr"][t - 1])]}
                  for t in range(1, 17)]}))
    return folder / "start.safetensors", folder / "rec"


def equal(out, golden, optimizer, t, part, suffix):
    got = [load_file(out)[f"w{i}{suffix}"] for i in range(5)]
    want = [golden[f"{optimizer}.{t}.{part}.{i}"] for i in range(5)]
    same = np.concatenate([(a.view("i4") == b.view("i4")).ravel() for a, b in zip(got, want)])
    return same.mean(), max(np.abs(a.astype("f8") - b).max() for a, b in zip(got, want))


@pytest.mark.parametrize("optimizer, t, weights", [("adamw95", 1, 1), ("adamw95", 16, 0.99), ("adamw999", 1, 1),
                                                   ("adamw999", 16, 1)])
def test_fused_adamw_of_a_gpu(tmp_path, golden, optimizer, t, weights):
    out = tmp_path / "out.safetensors"
    run_tersor("replay", *recorded(golden, tmp_path, *OPTIONS[optimizer]), "--steps", f"1..{t}",
               "--compat", "torch-cuda-fused", "-o", out, check=0)
    assert equal(out, golden, optimizer, t, "m", ".exp_avg") == (1, 0)
    assert equal(out, golden, optimizer, t, "v", ".exp_avg_sq") == (1, 0)
    share, worst = equal(out, golden, optimizer, t, "w", "")
    assert share >= weights and worst <= (2**-24 if weights < 1 else 0), (share, worst)


def test_the_order_of_a_cpu_is_another_one(tmp_path, golden):
    out = tmp_path / "out.safetensors"
    run_tersor("replay", *recorded(golden, tmp_path, *OPTIONS["adamw999"]), "-o", out, check=0)
    for part, suffix, share in ("m", ".exp_avg", 0.128), ("v", ".exp_avg_sq", 0.002), ("w", "", 0.156):
        assert equal(out, golden, "adamw999", 16, part, suffix)[0] == pytest.approx(share, abs=1e-3), part


def test_other_optimizers_are_refused(tmp_path, golden):
    start, recording = recorded(golden, tmp_path, *OPTIONS["adamw999"])
    refused = run_tersor("replay", start, recording, "--optimizer", "adam", "--compat", "torch-cuda-fused")
    assert refused.returncode == 2 and "torch-cuda-fused" in refused.stderr, refused.stderr


def test_the_recorded_order_is_followed(tmp_path, golden):
    start, recording = recorded(golden, tmp_path, *OPTIONS["adamw999"])
    manifest = json.loads((recording / "manifest.json").read_text())
    outs = {}
    for order, options in (("torch-cuda-fused", ()), ("torch-cuda-fused", ("--compat", "pytorch")), (None, ()),
                           ("of-the-future", ())):
        (recording / "manifest.json").write_text(json.dumps(manifest | {"order": order}))
        out = tmp_path / f"{order}{len(options)}.safetensors"
        report = json.loads(run_tersor("replay", start, recording, "-o", out, *options, "--json=-", check=0).stdout)
        outs[order, bool(options)] = out.read_bytes(), report["order"]
    assert outs["torch-cuda-fused", False][1] == "torch-cuda-fused"
    run_tersor("replay", start, recording, "-o", tmp_path / "x", "--compat", "torch-cuda-fused", check=0)
    assert (tmp_path / "x").read_bytes() == outs["torch-cuda-fused", False][0] != outs[None, False][0]
    assert outs["torch-cuda-fused", True] == outs[None, False] == outs["of-the-future", False]
    assert outs[None, False][1] == "pytorch"


def test_a_form_without_a_step_in_the_recorded_order_is_told(tmp_path, golden):
    start, recording = recorded(golden, tmp_path, *OPTIONS["adamw999"])
    manifest = json.loads((recording / "manifest.json").read_text())
    (recording / "manifest.json").write_text(json.dumps(manifest | {"order": "torch-cuda-fused"}))
    done = run_tersor("replay", start, recording, "--state", "gefen", "-v", check=0)
    assert "was recorded in the order torch-cuda-fused: that program's order" in done.stderr, done.stderr
    (recording / "manifest.json").write_text(json.dumps(manifest | {"order": 1}))
    refused = run_tersor("replay", start, recording)
    assert refused.returncode == 3 and "expected the name of an order of operations" in refused.stderr
