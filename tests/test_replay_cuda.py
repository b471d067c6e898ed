"""`replay --order` against what PyTorch's kernels compute, by bits.

tests/data/golden/cuda-fused.npz has weights, 16 gradients and their learning rates, torch-orders.json what
PyTorch 2.11 made of them on an H100 and on a CPU: digests of weights and moments after steps 1, 2 and 16.
"""
import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import DATA, run_tersor
from torchfile import run_torch

PYTORCH = json.loads((DATA / "golden" / "torch-orders.json").read_text())
ORDERS = {"cuda-fused": "torch-cuda-fused", "cuda-foreach": "torch-cuda-foreach", "cuda-forloop": "torch-cuda-forloop",
          "cuda-capturable": "torch-cuda-capturable",
          "cuda-capturable-forloop": "torch-cuda-capturable-forloop", "cpu-fused": "torch-cpu-fused", "cpu-foreach": "torch-cpu",
          "cpu-forloop": "torch-cpu"}
OPTIMIZERS = {
    "adamw95": ("adamw", {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}),
    "adamw999": ("adamw", {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}),
    "adam": ("adam", {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}),
    "sgd": ("sgd", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01})}
PARTS = {"w": "", "m": ".exp_avg", "v": ".exp_avg_sq", "x": ".max_exp_avg_sq"}


@pytest.fixture(scope="module")
def golden():
    with np.load(DATA / "golden" / "cuda-fused.npz") as data:
        return dict(data)


def recorded(golden, folder, optimizer, switch=None, **more):
    """The start and the gradients, as a checkpoint and a recording."""
    kind, hyper = OPTIMIZERS[optimizer]
    rates = [float(np.float32(lr)) if switch == "tensor_lr" else float(lr) for lr in golden["lr"]]
    switches = {name: True for name in switch.split("+")} if switch else {}
    names = [f"w{i}" for i in range(5)]
    save_file({f"w{i}": golden[f"w0.{i}"] for i in range(5)}, folder / "start.safetensors")
    (folder / "rec").mkdir()
    for t in range(1, 17):
        save_file({f"w{i}": golden[f"g.{t}.{i}"] for i in range(5)}, folder / "rec" / f"step-{t}.safetensors")
    (folder / "rec" / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": kind,
        "param_groups": [{"params": names, **hyper, **switches}],
        "steps": [{"step": t, "file": f"step-{t}.safetensors", "lr": [rates[t - 1]]}
                  for t in range(1, 17)]} | more))
    return folder / "start.safetensors", folder / "rec"


def part_of(out, part, optimizer):
    suffix = ".momentum_buffer" if part == "m" and optimizer == "sgd" else PARTS[part]
    tensors = load_file(out)
    return np.concatenate([tensors[f"w{i}{suffix}"].ravel() for i in range(5)])


def digest(x):
    return hashlib.sha256(x.tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("name", PYTORCH["digests"])
def test_form_by_form(tmp_path, golden, name):
    """Every bit of every form, but where a CPU's root is not rounded to nearest: these are listed."""
    switch, _, form = name.rpartition("/")
    form, optimizer = form.rsplit("-", 1)
    start, recording = recorded(golden, tmp_path, optimizer, switch)
    roots = PYTORCH["roots"].get(optimizer, {}) if ORDERS[form] == "torch-cpu" and not switch else {}
    outs = {}
    for t in (1, 2, 16):
        outs[t] = tmp_path / f"{t}.safetensors"
        run_tersor("replay", start, recording, "--steps", f"1..{t}", "--order", ORDERS[form], "-o", outs[t], check=0)
    for of, want in PYTORCH["digests"][name].items():
        t, part = of.split(".")
        got = part_of(outs[int(t)], part, optimizer)
        for index, bits in roots.get(of, []):
            assert 0 < abs(int(got.view("u4")[index]) - bits) <= 2, (of, index)
            got.view("u4")[index] = bits
        assert digest(got) == want, of


STEPS = """
import json, sys
import torch
kind, b1, b2, decay, rates, w, gradients = json.loads(sys.argv[1])
p, m, v = (torch.tensor(w) * f for f in (1, 0, 0))
for t, (lr, g) in enumerate(zip(rates, gradients), 1):
    g = torch.tensor(g)
    if kind == "adam":
        g = g.add(p, alpha=decay)
    else:
        p.mul_(1 - lr * decay)
    m.lerp_(g, 1 - b1)
    v.mul_(b2).addcmul_(g, g, value=1 - b2)
    p.addcdiv_(m, (v.sqrt() / (1 - b2**t)**0.5).add_(1e-8), value=-(lr / (1 - b1**t)))
print(json.dumps([not torch.backends.mkl.is_available(), *(x.view(torch.int32).tolist() for x in (p, m, v))]))
"""


@pytest.mark.parametrize("optimizer", ["adamw95", "adam"])
def test_with_a_rounded_root_a_cpu_has_every_bit(tmp_path, golden, optimizer):
    """What PyTorch does one operation at a time, in the one of the system, which has no MKL."""
    kind, hyper = OPTIMIZERS[optimizer]
    tensor = [golden[f"w0.{i}"].ravel().tolist() for i in (1, 3, 4)]
    gradients = [[golden[f"g.{t}.{i}"].ravel().tolist() for i in (1, 3, 4)] for t in range(1, 17)]
    rounded, *want = run_torch(STEPS, json.dumps([kind, *hyper["betas"], hyper["weight_decay"], golden["lr"].tolist(),
                                                 sum(tensor, []), [sum(g, []) for g in gradients]]))
    if not rounded:
        pytest.skip("PyTorch takes roots from MKL")
    out = tmp_path / "out.safetensors"
    run_tersor("replay", *recorded(golden, tmp_path, optimizer), "-o", out, check=0)
    tensors = load_file(out)
    for suffix, bits in zip(PARTS.values(), want):
        got = np.concatenate([tensors[f"w{i}{suffix}"].ravel() for i in (1, 3, 4)])
        assert got.view("i4").tolist() == bits, suffix


def test_the_order_of_a_cpu_is_another_one(tmp_path, golden):
    out = tmp_path / "out.safetensors"
    run_tersor("replay", *recorded(golden, tmp_path, "adamw999"), "-o", out, check=0)
    for part, share in ("m", 0.128), ("v", 0.002), ("w", 0.156):
        want = np.concatenate([golden[f"adamw999.16.{part}.{i}"].ravel() for i in range(5)])
        same = (part_of(out, part, "adamw999").view("i4") == want.view("i4")).mean()
        assert same == pytest.approx(share, abs=1e-3), part


# ---- Which element of a tensor it is ----

def fma(a, b, c):
    """a b is exact in 64 bits and more; rounding twice makes a difference once in 2^40."""
    return (a.astype(np.longdouble) * np.longdouble(b) + c).astype(np.float32)


@pytest.mark.parametrize("n", [400_000, 400_007])
@pytest.mark.parametrize("more", [(), ("--compare", "fp32"), ("-j1",)], ids=["plain", "compared", "alone"])
def test_elements_are_told_apart_in_every_tile(tmp_path, n, more):
    """The first of a thread's 4 elements has another coupled decay, the last n % 8 another sum on a CPU."""
    rng = np.random.default_rng(8)
    w, g = (rng.standard_normal(n).astype("f4") * 0.05 for _ in range(2))
    v = (rng.standard_normal(n) ** 2 * 1e-3).astype("f4")
    m, index, decay = np.zeros(n, "f4"), np.arange(n), np.float32(0.01)
    save_file({"w": w, "w.exp_avg": m, "w.exp_avg_sq": v}, tmp_path / "in.safetensors")
    (tmp_path / "rec").mkdir()
    save_file({"w": g}, tmp_path / "rec" / "step-9.safetensors")
    replay = ("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--optimizer", "adam", "--lr", "1e-3",
              "--weight-decay", "0.01", *more, "-o")
    first = index % 4 == 0 if n % 4 == 0 else index % 2048 < 512
    coupled, beta = np.where(first, g + w * decay, fma(w, decay, g)), np.float32(0.9)
    run_tersor(*replay, tmp_path / "cuda.safetensors", "--order", "torch-cuda-fused", check=0)
    got = load_file(tmp_path / "cuda.safetensors")["w.exp_avg"]
    assert (got.view("u4") == fma(coupled, -beta, coupled).view("u4")).all()
    coupled, rest, beta2 = fma(w, decay, g), np.float32(1 - 0.999), np.float32(0.999)
    square = rest * coupled
    most = (square.astype(np.longdouble) * coupled + beta2 * v).astype("f4")
    left = (v.astype(np.longdouble) * beta2 + square * coupled).astype("f4")
    run_tersor(*replay, tmp_path / "cpu.safetensors", "--order", "torch-cpu-fused", check=0)
    got = load_file(tmp_path / "cpu.safetensors")["w.exp_avg_sq"]
    assert n % 8 == 0 or (left != most)[-7:-4].any()
    assert (got.view("u4") == np.where(index >= n - n % 8, left, most).view("u4")).all()


# ---- Before PyTorch 2.11 ----

def test_scalars_in_binary64(tmp_path, golden):
    """The source of PyTorch 2.10 in numpy: numbers that meet a hyperparameter are in binary64, variables rounded."""
    start, recording = recorded(golden, tmp_path, "adamw999")
    out, f = tmp_path / "out.safetensors", np.float32
    run_tersor("replay", start, recording, "--order", "torch-cuda-fused-double", "-o", out, check=0)
    w = np.concatenate([golden[f"w0.{i}"].ravel() for i in range(5)])
    m, v = 0 * w, 0 * w
    for t in range(1, 17):
        g, lr = np.concatenate([golden[f"g.{t}.{i}"].ravel() for i in range(5)]).astype("f8"), golden["lr"][t - 1]
        w = (w - lr * 0.01 * w.astype("f8")).astype("f4")
        m = (0.9 * m.astype("f8") + (1 - 0.9) * g).astype("f4")
        v = (0.999 * v.astype("f8") + (1 - 0.999) * g * g).astype("f4")
        divisor = ((np.sqrt(v) / f((1 - 0.999**t) ** 0.5)).astype("f8") + 1e-8).astype("f4")
        w = w - f(lr / np.float64(f(1 - 0.9**t))) * m / divisor
    for part, want in ("w", w), ("m", m), ("v", v):
        assert (part_of(out, part, "adamw999").view("u4") == want.view("u4")).all(), part


# ---- Which order is followed ----

@pytest.mark.parametrize("order, optimizer", [("torch-cuda-fused", "lion"), ("torch-cuda-capturable", "sgd"),
                                              ("torch-cuda-foreach", "sgdw"), ("coat", "adam")])
def test_other_optimizers_are_refused(tmp_path, golden, order, optimizer):
    start, recording = recorded(golden, tmp_path, "adamw999")
    refused = run_tersor("replay", start, recording, "--optimizer", optimizer, "--lr", "1", "--order", order)
    assert refused.returncode == 2 and order in refused.stderr, refused.stderr


def test_the_old_names(tmp_path, golden):
    replay = ("replay", *recorded(golden, tmp_path, "adamw999"), "--json=-", "--dry-run")
    for options in ("--order", "pytorch"), ("--compat", "pytorch"), ("--compat", "torch-cpu"):
        report = json.loads(run_tersor(*replay, *options, check=0).stdout)
        assert (report["order"], report["order_from"]) == ("torch-cpu", "option")


CASES = [      # what the manifest says besides, options, the order, who says so, and the line of the report
    ({}, (), "torch-cpu", "default", "torch-cpu; the recording does not say"),
    ({"order": None}, (), "torch-cpu", "default", "torch-cpu; the recording does not say"),
    ({"order": "of-the-future"}, (), "torch-cpu", "default", "torch-cpu; the recording says of-the-future"),
    ({"order": "pytorch"}, (), "torch-cpu", "recording", "torch-cpu, as recorded"),
    ({"order": "torch-cuda-fused", "pytorch": "2.11.0+cu130", "device": "NVIDIA H100", "fused": True}, (),
     "torch-cuda-fused", "recording", "torch-cuda-fused, as recorded: PyTorch 2.11.0+cu130, NVIDIA H100"),
    ({"order": "torch-cuda-fused", "pytorch": "2.10.1"}, (), "torch-cuda-fused-double", "recording",
     "torch-cuda-fused-double, as recorded: PyTorch 2.10.1"),
    ({"order": "torch-cuda-foreach", "capturable": True}, (), "torch-cuda-capturable", "recording",
     "torch-cuda-capturable, as recorded"),
    ({"order": "torch-cuda-fused"}, ("--order", "torch-cpu"), "torch-cpu", "option",
     "torch-cpu, as asked; the recording says torch-cuda-fused"),
    ({}, ("--order", "torch-cuda-fused"), "torch-cuda-fused", "option",
     "torch-cuda-fused, as asked; the recording does not say"),
    ({"order": "torch-cuda-fused"}, ("--optimizer", "lion"), "torch-cpu", "default",
     "torch-cpu; the recording says torch-cuda-fused")]


@pytest.mark.parametrize("said, options, order, source, line", CASES)
def test_who_says_in_which_order(tmp_path, golden, said, options, order, source, line):
    start, recording = recorded(golden, tmp_path, "adamw999", **said)
    done = run_tersor("replay", start, recording, "--dry-run", *options, check=0)
    assert f"order       {line}\n" in done.stdout, done.stdout
    report = json.loads(run_tersor("replay", start, recording, "--dry-run", *options, "--json=-", check=0).stdout)
    assert (report["order"], report["order_from"]) == (order, source)
    names = ("order", "pytorch", "device", "fused", "foreach", "capturable")
    assert report["recorded"] == {name: said.get(name) for name in names}
    inspected = json.loads(run_tersor("inspect", recording, "--json=-", check=0).stdout)
    assert {name: inspected[name] for name in names} == report["recorded"]


def test_what_is_recorded_is_followed(tmp_path, golden):
    start, recording = recorded(golden, tmp_path, "adam", order="torch-cuda-fused")
    run_tersor("replay", start, recording, "-o", tmp_path / "a.safetensors", check=0)
    assert digest(part_of(tmp_path / "a.safetensors", "w", "adam")) == PYTORCH["digests"]["cuda-fused-adam"]["16.w"]


def test_a_recorded_order_without_a_step_is_not_followed(tmp_path, golden):
    """Nor is the note silent: a state of means has no step in the fused kernel's order."""
    start, recording = recorded(golden, tmp_path, "adamw999", order="torch-cuda-fused")
    for options, why in ((("--state", "gefen", "--steps", "..2"), "blocks"), (("--optimizer", "lion"), "has no lion")):
        done = run_tersor("replay", start, recording, *options, "-v", "-o", tmp_path / "x.safetensors", "-f", check=0)
        assert "torch-cuda-fused" in done.stderr and why in done.stderr, done.stderr


@pytest.mark.parametrize("member, value, found", [
    ("order", 1, "order: found 1"), ("order", "x" * 32, "limit of 31"), ("order", "", "order: found"),
    ("pytorch", ["2.11"], "pytorch: found a list"), ("pytorch", "2" * 64, "limit of 63"),
    ("device", {}, "device: found an object"), ("device", "d" * 96, "limit of 95"), ("fused", 1, "fused: found 1"),
    ("foreach", "yes", 'foreach: found "yes"'), ("capturable", [], "capturable: found an empty list")])
def test_hostile_members(tmp_path, golden, member, value, found):
    refused = run_tersor("replay", *recorded(golden, tmp_path, "adamw999", **{member: value}))
    assert refused.returncode == 3 and "manifest.json: " in refused.stderr and found in refused.stderr, refused.stderr


def test_a_name_for_a_terminal(tmp_path, golden):
    start, recording = recorded(golden, tmp_path, "adamw999", order="torch-cpu", device="\x1b[2J", pytorch="2.11\n")
    for command in ("inspect", recording), ("replay", start, recording, "--dry-run"):
        assert "\x1b" not in run_tersor(*command, check=0).stdout


# ---- AMSGrad ----

AMSGRAD = {"w", "w.exp_avg", "w.exp_avg_sq", "w.max_exp_avg_sq"}


def amsgrad_run(folder, nsteps, **manifest):
    """A state whose variances are below the largest so far, and gradients; what numpy makes of them."""
    rng, f, b2 = np.random.default_rng(3), np.float32, np.float32(0.999)
    w, m, g = (rng.standard_normal(1000).astype("f4") * f(s) for s in (0.05, 1e-3, 1e-2))
    v = (rng.standard_normal(1000) ** 2 * 1e-4).astype("f4")
    x = v * f(1.5)
    save_file({"w": w, "w.exp_avg": m, "w.exp_avg_sq": v, "w.max_exp_avg_sq": x}, folder / "in.safetensors")
    (folder / "rec").mkdir()
    for t in range(9, 9 + nsteps):
        scaled = g * f(t)
        save_file({"w": scaled}, folder / "rec" / f"step-{t}.safetensors")
        w = w * f(1 - 1e-3 * 0.01)
        m = fma(scaled - m, f(1 - 0.9), m)
        v = ((f(1 - 0.999) * scaled).astype(np.longdouble) * scaled + b2 * v).astype("f4")
        x = np.maximum(x, v)
        w = w + f(-(1e-3 / (1 - 0.9**t))) * m / (np.sqrt(x) / f((1 - 0.999**t) ** 0.5) + f(1e-8))
    if manifest:
        steps = [{"step": t, "file": f"step-{t}.safetensors"} for t in range(9, 9 + nsteps)]
        (folder / "rec" / "manifest.json").write_text(json.dumps(
            {"format": "tersor-recording", "version": 1, "optimizer": "adamw", "steps": steps, **manifest}))
    return ("replay", folder / "in.safetensors", folder / "rec", "--lr", "1e-3"), dict(zip(sorted(AMSGRAD), (w, m, v, x)))


@pytest.mark.parametrize("manifest", [{}, {"param_groups": [{"params": ["w"], "amsgrad": True}]}], ids=["none", "says so"])
def test_a_state_with_a_largest_variance_is_continued(tmp_path, manifest):
    replay, want = amsgrad_run(tmp_path, 5, **manifest)
    options = () if manifest else ("--optimizer", "adamw")
    run_tersor(*replay, *options, "-o", tmp_path / "out.safetensors", check=0)
    got = load_file(tmp_path / "out.safetensors")
    assert set(got) >= AMSGRAD and {n: (got[n].view("u4") != want[n].view("u4")).sum() for n in AMSGRAD} == dict.fromkeys(AMSGRAD, 0)
    assert (want["w.max_exp_avg_sq"] > want["w.exp_avg_sq"]).any()
    run_tersor(*replay, *options, "--hyper", "amsgrad=0", "-fo", tmp_path / "off.safetensors", check=0)
    off, start = (load_file(tmp_path / name) for name in ("off.safetensors", "in.safetensors"))
    assert (off["w"] != got["w"]).any() and (off["w.max_exp_avg_sq"] == start["w.max_exp_avg_sq"]).all()


@pytest.mark.parametrize("state", ["flash", "tight", "dyn8/dyn8", "fp32,flash"])
def test_a_largest_variance_is_coded_as_variances_are(tmp_path, state):
    replay, want = amsgrad_run(tmp_path, 5)
    options = ("--optimizer", "adamw", "--state", state, "--compare", "fp32")
    done = run_tersor(*replay, *options, *(() if "," in state else ("-o", tmp_path / "out.safetensors")), "--json=-", check=0)
    report = json.loads(done.stdout)
    states = report["states"] if "," in state else [report]
    for found in states:
        assert found["state"]["max_variance"]["codec"] == found["state"]["variance"]["codec"]
    if "," not in state:
        run_tersor("unpack", tmp_path / "out.safetensors", "-o", tmp_path / "back.safetensors", check=0)
        got = load_file(tmp_path / "back.safetensors")
        for name in AMSGRAD:
            assert np.abs(got[name] - want[name]).max() <= 0.1 * np.abs(want[name]).max(), name


def test_a_fresh_run_gets_a_third_state(tmp_path, golden):
    start, recording = recorded(golden, tmp_path, "adamw95", "amsgrad")
    run_tersor("convert", start, "-o", tmp_path / "in.pt", check=0)
    run_tersor("replay", tmp_path / "in.pt", recording, "-o", tmp_path / "out.pt", check=0)
    run_tersor("convert", tmp_path / "out.pt", "-o", tmp_path / "out.safetensors", check=0)
    assert {f"w{i}.max_exp_avg_sq" for i in range(5)} <= set(load_file(tmp_path / "out.safetensors"))


@pytest.mark.parametrize("options, text", [
    (("--order", "flashoptim"), "AMSGrad has a step in PyTorch's orders only"),
    (("--state", "gefen"), "none with means of blocks"), (("--optimizer", "lion"), "amsgrad: found true, which lion")])
def test_steps_that_do_not_exist_are_refused(tmp_path, options, text):
    replay, _ = amsgrad_run(tmp_path, 2, param_groups=[{"params": ["w"], "amsgrad": True, "betas": [0.9, 0.999]}])
    refused = run_tersor(*replay, *options, check=3)
    assert text in refused.stderr, refused.stderr


# ---- Maximize ----

def test_maximize_is_a_negated_gradient(tmp_path, golden):
    """As in PyTorch, whose rule it is: negated before the decay, so that this still shrinks weights."""
    script = """
import json, sys
import torch
values, gradients = json.loads(sys.argv[1])
p = torch.nn.Parameter(torch.tensor(values))
optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01, maximize=True)
for g in gradients:
    p.grad = torch.tensor(g)
    optimizer.step()
print(json.dumps([p.detach().view(torch.int32).tolist(), optimizer.state[p]["momentum_buffer"].view(torch.int32).tolist()]))
"""
    w = golden["w0.1"]
    gradients = [golden[f"g.{t}.1"] for t in (1, 2, 3)]
    want = run_torch(script, json.dumps([w.tolist(), [g.tolist() for g in gradients]]))
    (tmp_path / "rec").mkdir()
    save_file({"w": w}, tmp_path / "in.safetensors")
    for t, g in enumerate(gradients, 1):
        save_file({"w": g}, tmp_path / "rec" / f"{t}.safetensors")
    manifest = {"format": "tersor-recording", "version": 1, "optimizer": "sgd",
                "param_groups": [{"momentum": 0.9, "weight_decay": 0.01, "maximize": True, "lr": 0.1}],
                "steps": [{"step": t, "file": f"{t}.safetensors"} for t in (1, 2, 3)]}
    (tmp_path / "rec" / "manifest.json").write_text(json.dumps(manifest))
    for order in ("torch-cpu", "torch-cuda-foreach"):
        run_tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--order", order, "-f",
                   "-o", tmp_path / "out.safetensors", check=0)
        got = load_file(tmp_path / "out.safetensors")
        assert [got[name].view("i4").tolist() for name in ("w", "w.momentum_buffer")] == want
    refused = run_tersor("replay", tmp_path / "in.safetensors", tmp_path / "rec", "--optimizer", "lion")
    assert refused.returncode == 3 and "maximize" in refused.stderr, refused.stderr
