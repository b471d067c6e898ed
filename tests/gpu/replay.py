#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/replay.py TERSOR [--emulated]: replays on cuda:0 against replays on the CPU, whose
files must be the same, byte for byte, and whose failures must be the same lines; then what only a
GPU can fail of.  Needs Python alone."""
import json
import math
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import common
from common import DATA, EMULATED, TERSOR, expect, floats, go_through, narrow, read, tersor, write

GPT = DATA / "tiny-gpt"
RECORDING = GPT / "recording"
CHECKPOINT = GPT / "checkpoint.safetensors"
WIDTH = {"F32": 4, "BF16": 2, "F16": 2}


class Case:
    """A checkpoint of weights alone, and a recording; tensors have a size or a shape."""

    def __init__(self, root, shapes, steps, dtypes=("F32",), scale=1e-2):
        shapes = [s if isinstance(s, tuple) else (s,) for s in shapes]
        sizes = [math.prod(s) for s in shapes]
        self.root = pathlib.Path(tempfile.mkdtemp(dir=root))
        self.start, self.recording = self.root / "in.safetensors", self.root / "rec"
        self.recording.mkdir()
        write(self.start, {f"p{i}.weight": ("F32", shapes[i], floats(n, i)) for i, n in enumerate(sizes)})
        for s in range(1, steps + 1):
            dtype = dtypes[s % len(dtypes)]
            write(self.step(s), {f"p{i}.weight": (dtype, shapes[i], narrow(floats(n, 99 * s + i, scale), dtype))
                                 for i, n in enumerate(sizes)})

    def step(self, s):
        return self.recording / f"step-{s:03}.safetensors"

    def change(self, s, what):
        tensors = read(self.step(s))
        what(tensors)
        write(self.step(s), tensors)


def put_nan(tensor, index):
    def change(tensors):
        dtype, shape, data = tensors[tensor]
        at = index * WIDTH[dtype]
        nan = b"\0\0\xc0\x7f" if dtype == "F32" else b"\xc0\x7f" if dtype == "BF16" else b"\0\x7e"
        tensors[tensor] = (dtype, shape, data[:at] + nan + data[at + WIDTH[dtype]:])
    return change


# ---- CPU and GPU ----

def both(root, start, recording, *args, name="x.safetensors", status=0):
    """Replay on either; the same status, report, messages and file."""
    done = {}
    for device in ("cpu", "cuda"):
        folder = root / device
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        done[device] = tersor("replay", start, recording, "-o", folder / name, "--device",
                              common.gpus if device == "cuda" else device, *args)
    cpu, gpu = done["cpu"], done["cuda"]
    say = (start, *args, gpu.stderr)
    expect(cpu.returncode == status, "status", cpu.returncode, cpu.stderr, *say)
    expect(gpu.returncode == status, "status", gpu.returncode, *say)
    expect(gpu.stderr == cpu.stderr, cpu.stderr, "is not", *say)
    expect(gpu.stdout.replace("/cuda/", "/cpu/") == cpu.stdout, "reports differ", *say)
    files = [sorted(p.name for p in (root / d).iterdir()) for d in ("cpu", "cuda")]
    expect(files[0] == files[1] and bool(files[0]) == (status == 0), "files", files, *say)
    for file in files[0]:
        expect((root / "cpu" / file).read_bytes() == (root / "cuda" / file).read_bytes(),
               file, "differs", *say)
    return root / "cuda" / name, gpu.stderr


OPTIMIZERS = {
    "plain sgd": ("--optimizer", "sgd", "--hyper", "momentum=0", "--weight-decay", "0.01"),
    "sgd": ("--optimizer", "sgd", "--hyper", "momentum=0.9", "--hyper", "dampening=0.1"),
    "nesterov": ("--optimizer", "sgd", "--hyper", "momentum=0.9", "--nesterov"),
    "sgdw": ("--optimizer", "sgdw", "--hyper", "momentum=0.9", "--weight-decay", "0.1"),
    "adam": ("--optimizer", "adam", "--weight-decay", "0.1"),
    "adamw": ("--decouple-lr",),
    "lion": ("--optimizer", "lion", "--betas", "0.9,0.99"),
    "fused adam": ("--optimizer", "adam", "--weight-decay", "0.1", "--hyper", "maximize=1",
                   "--order", "torch-cuda-fused"),
    "a CPU's fused sgd": ("--optimizer", "sgd", "--hyper", "momentum=0.9", "--order", "torch-cpu-fused"),
    "gefen": ("--optimizer", "gefen", "--order", "torch-cpu", "--weight-decay", "0.1"),
}
STATES = [
    ("--state", "fp32"),
    ("--state", "flash"),
    ("--state", "flashoptim"),
    ("--state", "flash", "--weights", "bf16+ulp16", "--scale", "f32", "--group", "64"),
    ("--weights", "bf16+exact16", "--momentum", "bf16", "--variance", "bf16"),
    ("--weights", "bf16+sr8", "--seed", "7", "--momentum", "linear8", "--variance", "sqrt8",
     "--group", "48"),
    ("--weights", "fp16+trunc5", "--momentum", "f32", "--variance", "ulinear8", "--group", "128"),
    ("--weights", "bf16+bf16", "--momentum", "softsign8", "--variance", "ulinear8"),
    ("--weights", "fp16+ulp8", "--momentum", "linear8", "--variance", "ulinear8"),
    ("--weights", "bf16", "--momentum", "bf16", "--variance", "sqrt8", "--group", "128"),
]


def optimizers_and_states(root):
    for optimizer, args in OPTIMIZERS.items():
        for state in STATES:
            both(root, CHECKPOINT, RECORDING, *args, *state, "--zero-state", "--lr", "3e-4",
                 "--steps", "401..403")


def figures(start, recording, *args, **env):
    """What a comparison says on either device, with a report per step and tensor: the same text."""
    said = {device: tersor("replay", start, recording, *args, "--csv", "--device", on, **env)
            for device, on in (("cpu", "cpu"), ("cuda", common.gpus))}
    cpu, gpu = said["cpu"], said["cuda"]
    expect(cpu.returncode == gpu.returncode == 0, cpu.stderr, gpu.stderr, *args)
    expect(gpu.stderr == cpu.stderr and cpu.stdout.count("\n") > 1, gpu.stderr, "is not", cpu.stderr, *args)
    expect(gpu.stdout == cpu.stdout, "figures differ", start, *args)


def comparisons(root):
    """With FP32, of every optimizer, and of states of all kinds; and the checkpoint that is written."""
    steps = ("--zero-state", "--lr", "3e-4", "--steps", "401..402")
    for optimizer, args in OPTIMIZERS.items():
        figures(CHECKPOINT, RECORDING, *args, *steps, "--state", "flash")
    for state in STATES + [("--state", "tight"), ("--state", "fine"), ("--state", "four"), ("--state", "coat", "--order", "coat"),
                           ("--state", "bitsandbytes", "--order", "bitsandbytes")]:
        figures(CHECKPOINT, RECORDING, *steps, *state)
    figures(CHECKPOINT, RECORDING, "--steps", "..402", "--state", "flash,tight,coat,fp32")
    figures(CHECKPOINT, RECORDING, "--steps", "..402", "--state", "flash,gefen")
    figures(CHECKPOINT, RECORDING, "--steps", "..402", "--state", "gefen", "--optimizer", "gefen")
    both(root, CHECKPOINT, RECORDING, "--steps", "..403", "--state", "flash", "--compare", "fp32")
    both(root, CHECKPOINT, RECORDING, "--state", "coat", "--gate", "update-nmse=1e-9", status=1)


def comparisons_of_any_size(root):
    """Runs that end anywhere, parameters without gradients, and steps that are skipped."""
    case = Case(root, [1, 0, 65, 65536, 131072 + 9], 4, ("F32", "BF16", "F16"))
    case.change(2, lambda tensors: [tensors.pop(f"p{i}.weight") for i in (0, 3)])
    case.change(3, put_nan("p4.weight", 70001))
    args = ("--optimizer", "adamw", "--lr", "1e-2", "--on-nonfinite", "skip")
    for state in "flash", "fp32", "tight", "flash,coat,bitsandbytes":
        figures(case.start, case.recording, *args, "--state", state)
    figures(case.start, case.recording, *args, "--state", "flash", "--group", "48")
    if not EMULATED:
        case = Case(root, [(1 << 22) + 100003, 5], 2, ("BF16", "F32"))
        for state in ("--state", "flash"), ("--state", "tight,flash"), ("--state", "flash", "--group", "48"):
            figures(case.start, case.recording, *args, *state)


def containers(root):
    """From a .pt into a .pt; packed files, with the state that they have; into other forms."""
    both(root, GPT / "checkpoint.pt", RECORDING, name="x.pt")
    both(root, CHECKPOINT, RECORDING, "-j", "1")
    packed = root / "packed.safetensors"
    expect(tersor("pack", CHECKPOINT, "-o", packed).returncode == 0, "pack")
    both(root, packed, RECORDING, "-j", "3")
    both(root, packed, RECORDING, "--to", "safetensors", "--steps", "..404")
    theirs = GPT / "flashadamw24-after.pt"
    go_on = ("--count", "400", "--order", "flashoptim")
    both(root, theirs, RECORDING, *go_on, "--steps", "..402")
    both(root, theirs, RECORDING, *go_on, "--to", "flashoptim", name="x.pt")


def parts(root):
    """8 + 8 = 16, the second half on the CPU or the GPU."""
    for state in (), ("--state", "flash"), ("--state", "gefen"):
        whole = both(root, CHECKPOINT, RECORDING, *state)[0].read_bytes()
        half = root / "half.safetensors"
        both(root, CHECKPOINT, RECORDING, *state, "--steps", "..408")[0].rename(half)
        rest = both(root, half, RECORDING, "--steps", "409..")[0].read_bytes()
        expect(whole == rest, "8 + 8 is not 16", state)


def gradients(root):
    """Of every type in turn, missing ones, tensors of any size, with and without codecs."""
    sizes = [1, 31, 0, 4096, 100003]
    for args in (), ("--state", "flash"), ("--state", "flash", "--group", "48"):
        case = Case(root, sizes, 10, ("F32", "BF16", "F16"))
        for s in 1, 2, 9:
            case.change(s, lambda tensors: tensors.pop("p3.weight"))
        case.change(4, lambda tensors: [tensors.pop(f"p{i}.weight") for i in range(4)])
        both(root, case.start, case.recording, "--optimizer", "adamw", "--lr", "1e-2", *args)


def long_tensors(root):
    """More than are copied at once, 2^22 elements, and not a multiple of anything."""
    n = (1 << 22) + 100003
    case = Case(root, [50, n], 1 if EMULATED else 3, ("BF16", "F32"))
    for args in ("--state", "flash"), ("--weights", "bf16+sr8", "--momentum", "bf16"):
        both(root, case.start, case.recording, "--optimizer", "lion", "--lr", "1e-3", *args)
    case.change(1, put_nan("p1.weight", n - 2))
    line = both(root, case.start, case.recording, "--optimizer", "lion", "--lr", "1e-3", status=3)[1]
    expect(f"tensor p1.weight: gradient element {n - 2} " in line, line)


def matrices(root):
    """Muon, which steps them as a whole: of any shape, in any state, beside FP32."""
    case = Case(root, [(12, 20), (1, 3), (65, 7), (64, 200)] + ([] if EMULATED else [(300, 500)]), 3, ("BF16", "F32"))
    steps = ("--zero-state", "--lr", "1e-2", "--steps", "..2")
    for args in (("--optimizer", "muon"), ("--optimizer", "muon", "--momentum", "softsign8", "--weights", "bf16+ulp8"),
                 ("--optimizer", "gefen-muon", "--state", "gefen", "--hyper", "match_rms=1"),
                 ("--optimizer", "gefen-muon", "--state", "gefen", "--order", "gefen")):
        both(root, case.start, case.recording, *steps, *args)
    figures(case.start, case.recording, *steps, "--optimizer", "muon", "--momentum", "softsign8")
    if not EMULATED:  # enough tiles of the largest kind for all processors of a GPU
        large = Case(root, [(2200, 2230)], 1)
        both(root, large.start, large.recording, "--zero-state", "--lr", "1e-2", "--optimizer", "muon")
    case.change(3, put_nan("p2.weight", 17))
    line = both(root, case.start, case.recording, "--optimizer", "muon", "--zero-state", "--lr", "1", status=3)[1]
    expect("step 3: tensor p2.weight: gradient element 17 is not finite" in line, line)


def order_of_gefen(root):
    """Its program's codebook and type of state, which is that of the gradients."""
    compat = ("--state", "gefen", "--order", "gefen")
    both(root, CHECKPOINT, RECORDING, *compat, "--steps", "..403")
    for dtype in "F32", "BF16", "F16":
        case = Case(root, [4096, (40, 96), 31, 8193], 3, (dtype,))
        for optimizer in "gefen", "adamw":
            both(root, case.start, case.recording, *compat, "--optimizer", optimizer, "--zero-state", "--lr", "1e-2")
        figures(case.start, case.recording, *compat, "--zero-state", "--lr", "1e-2", "--optimizer", "gefen")


def of_several(root):
    """States of all kinds, compared and not; tensors that are dealt in parts and whole, and fewer than GPUs."""
    for state in STATES[:4]:
        both(root, CHECKPOINT, RECORDING, "--zero-state", "--lr", "3e-4", "--steps", "401..403", *state)
    figures(CHECKPOINT, RECORDING, "--steps", "..402", "--state", "flash,tight,gefen")
    one = Case(root, [(1 << 21) + 5 if EMULATED else (1 << 23) + 5], 2, ("BF16", "F32"))
    figures(one.start, one.recording, "--optimizer", "sgd", "--hyper", "momentum=0.9", "--lr", "1e-2", "--state", "flash",
            "--steps", "..1")
    both(root, one.start, one.recording, "--optimizer", "lion", "--lr", "1e-3", "--state", "flash")


def several(root):
    """On lists of GPUs as on one; -v names each; a machine of one says so."""
    common.on_lists(root, of_several, gradients, matrices, nonfinite, damage)
    for device, env in common.lists_of_gpus():
        done = tersor("replay", CHECKPOINT, RECORDING, "--steps", "401", "-v", "--device", device, **env)
        said = [line.split()[3] for line in done.stderr.splitlines() if ": replayed on " in line]
        asked = ["cuda:0,", "cuda:1,"] if device == "cuda:all" else [f"cuda:{n}," for n in device[5:].split(",")]
        expect(said[:len(asked)] == asked, device, said, done.stderr)


def one_of_several_fails(root):
    """Out of memory or broken: that GPU is named, and no other does its work."""
    two = {"TERSOR_EMULATED_GPUS": "2", "TERSOR_EMULATED_BAD_GPU": "1"}
    plain = (CHECKPOINT, RECORDING, "--steps", "401..402", "--device", "cuda:all")
    for n in 1, 2, 3, 9:
        fails(root, 4, "cuda:1: ", *plain, **two, TERSOR_EMULATED_BAD_LAUNCH=str(n))
    fails(root, 4, "cuda:1: cannot allocate", *plain, **two, TERSOR_EMULATED_BAD_MALLOC="3")
    fails(root, 4, "bytes for the state: out of memory", *plain, **two, TERSOR_EMULATED_BAD_MALLOC="3")
    n = 1
    while tersor("replay", *plain, **two, TERSOR_EMULATED_BAD_MALLOC=str(n)).returncode:
        fails(root, 4, "cuda:1: ", *plain, **two, TERSOR_EMULATED_BAD_MALLOC=str(n))
        n += 1
    expect(n > 5, "allocations", n)


def nonfinite(root):
    case = Case(root, [50, 700, 90000], 12, ("BF16", "F32", "F16"))
    args = ("--optimizer", "adam", "--lr", "1e-3", "--state", "flash")
    case.change(11, put_nan("p0.weight", 3))
    case.change(10, put_nan("p2.weight", 70001))
    line = both(root, case.start, case.recording, *args, status=3)[1]
    expect("step 10: tensor p2.weight: gradient element 70001 is not finite" in line, line)
    out = both(root, case.start, case.recording, *args, "--on-nonfinite", "skip")[0]
    expect(out.exists(), "no file")


def damage(root):
    """Files that are not as they should be, values that do not fit."""
    case = Case(root, [50, 700], 3)
    args = ("--optimizer", "sgd", "--hyper", "momentum=0.9", "--lr", "1")
    case.change(2, lambda t: t.update({"p1.weight": ("F32", [700], struct.pack("<f", 7e4) * 700)}))
    line = both(root, case.start, case.recording, *args, "--momentum", "softsign8",
                "--scale", "f16", status=3)[1]
    expect("step 2: tensor p1.weight: found 22 scales of its momentum" in line, line)
    case = Case(root, [50, 70000], 3)
    for s in 1, 2, 3:
        zipped = case.recording / f"{s}.pt"
        expect(tersor("convert", case.step(s), "-o", zipped).returncode == 0, "convert")
        case.step(s).unlink()
    both(root, case.start, case.recording, *args)
    raw = bytearray(zipped.read_bytes())
    raw[150000] ^= 1
    zipped.write_bytes(raw)
    line = both(root, case.start, case.recording, *args, status=3)[1]
    expect("3.pt" in line, line)


# ---- What only a GPU fails of ----

def fails(root, status, what, *args, **env):
    """One line, and nothing left behind."""
    before = sorted(root.iterdir())
    start = args or (CHECKPOINT, RECORDING, "--steps", "401..402")
    done = tersor("replay", "-o", root / "none.safetensors", "--device", "cuda", *start, **env)
    expect(done.returncode == status, "status", done.returncode, done.stderr, args, env)
    expect(what in done.stderr and done.stderr.rstrip("\n").count("\n") == 0,
           done.stderr, "without", what)
    expect(sorted(root.iterdir()) == before and not done.stdout, "left something", args, env)


def refusals(root):
    plain = (CHECKPOINT, RECORDING)
    fails(root, 4, "cuda:63: no such GPU", *plain, "--device", "cuda:63")
    fails(root, 2, "--check-numerics runs on the CPU: leave --device cuda:0 out", *plain,
          "--check-numerics", "--device", "cuda:0")
    fails(root, 2, "unknown device 'gpu'", *plain, "--device", "gpu")
    fails(root, 2, "'cuda:0,0': found GPU 0 twice", *plain, "--device", "cuda:0,0")
    fails(root, 4, "cuda:63: no such GPU", *plain, "--device", "cuda:0,63")
    fails(root, 2, "--check-numerics runs on the CPU: leave --device cuda:all out", *plain,
          "--check-numerics", "--device", "cuda:all")


def choice(root):
    """auto is the CPU for little work or without room on a GPU; -v says so where there is a GPU."""
    def where(*args, **env):
        done = tersor("replay", *args, "-v", **env)
        expect(done.returncode == 0, done.stderr)
        return [line.split()[3] for line in done.stderr.splitlines() if ": replayed on " in line]

    expect(where(CHECKPOINT, RECORDING) == ["the"], "auto, tiny")
    expect(where(CHECKPOINT, RECORDING, "--device", "cuda") == ["cuda:0,"], "cuda")
    # 2 GiB of gradients in holes of files, all of which are left out for their last element.
    case, n = Case(root, [1], 1), 1 << 26
    header = json.dumps({"w.weight": {"dtype": "F32", "shape": [n], "data_offsets": [0, 4 * n]}})
    header = header.encode() + b" " * (-len(header) % 8)
    for path in [case.start] + [case.step(s) for s in range(1, 9)]:
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header)
            f.seek(4 * n - 4, 1)
            f.write(b"\0\0\0\0" if path == case.start else b"\0\0\xc0\x7f")
    much = (case.start, case.recording, "--optimizer", "sgd", "--hyper", "momentum=0", "--lr", "1",
            "--on-nonfinite", "skip", "-j4", "--weights", "bf16")
    expect(where(*much) == ["cuda:0,"], "auto, much")
    expect(where(*much, "-j5") == ["the"], "auto, not much for so many threads")
    expect(where(*much, "--weights", "f32") == ["the"], "auto, little work for a byte read")
    expect(where(*much, "--compare", "fp32", "-j32") == ["cuda:0,"], "auto, much work for a byte read")
    if EMULATED:
        expect(where(*much, TERSOR_EMULATED_BAD_MALLOC="4") == ["the"], "auto without room")
        expect(where(*much, TERSOR_EMULATED_GPUS="0") == [], "auto without a GPU")
    else:
        expect(where(*much, CUDA_VISIBLE_DEVICES="") == [], "auto without a GPU")
    shutil.rmtree(case.root)


def cancelling(root):
    """SIGINT in the middle: nothing is left."""
    case = Case(root, [1 << 17 if EMULATED else 1 << 22], 8)
    folder = case.root / "out"
    folder.mkdir()
    run = subprocess.Popen([TERSOR, "replay", case.start, case.recording, "-o", folder / "x",
                            "--optimizer", "adamw", "--lr", "1e-3", "--state", "flash", "--group",
                            "48", "--device", "cuda"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    run.communicate()
    expect(run.returncode in (0, -2, 130),
           "status", run.returncode)
    expect(run.returncode == 0 or not list(folder.iterdir()), "left something")


def out_of_memory(root):
    """Every allocation in turn; the third, behind two checks of the GPU, is that of the state."""
    fails(root, 4, "bytes for the state: out of memory", TERSOR_EMULATED_BAD_MALLOC="3")
    state = ("--state", "flash", "--group", "48", "--steps", "401..402")
    n = 1
    while tersor("replay", CHECKPOINT, RECORDING, *state, "--device", "cuda",
                 TERSOR_EMULATED_BAD_MALLOC=str(n)).returncode:
        fails(root, 4, "cuda:0: ", CHECKPOINT, RECORDING, *state, TERSOR_EMULATED_BAD_MALLOC=str(n))
        n += 1
    expect(n > 5, "allocations", n)
    n, compare = 1, (CHECKPOINT, RECORDING, "--state", "flash,tight", "--steps", "401", "--device", "cuda")
    while (done := tersor("replay", *compare, TERSOR_EMULATED_BAD_MALLOC=str(n))).returncode:
        expect(done.returncode == 4 and "cuda:0: " in done.stderr and not done.stdout, n, done.stderr)
        n += 1
    expect(n > 10, "allocations of a comparison", n)


def failing_kernels(root):
    for n in 1, 2, 3, 30, 58:
        fails(root, 4, "cuda:0: ", TERSOR_EMULATED_BAD_LAUNCH=str(n))
    fails(root, 4, "unspecified launch failure", TERSOR_EMULATED_BAD_LAUNCH="2")
    fails(root, 4, "cuda:0: no such GPU, found 0", TERSOR_EMULATED_GPUS="0")


TESTS = [optimizers_and_states, comparisons, comparisons_of_any_size, containers, parts, gradients,
         long_tensors, matrices, order_of_gefen, nonfinite, damage,
         refusals, choice, several, cancelling]

go_through("replays", TESTS + ([out_of_memory, failing_kernels, one_of_several_fails] if EMULATED else []),
           ("replay", CHECKPOINT, RECORDING, "--steps", "401"))
