#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/pack.py TERSOR [--emulated]: pack, unpack, verify and diff with cuda:0 against the CPU:
the same files, byte for byte, the same reports and the same failures; then what only a GPU can fail
of.  Needs Python alone."""
import itertools
import json
import random
import re
import shutil
import signal
import struct
import subprocess
import time

import common
from common import DATA, EMULATED, TERSOR, expect, floats, go_through, narrow, read, tersor, write

GPT = DATA / "tiny-gpt"
CHECKPOINT = GPT / "checkpoint.safetensors"
PIECE = 262144
SIZES = [0, 1, 31, 33, 4096, 100003, PIECE, PIECE + 17]


# ---- CPU and GPU ----

def both(root, *args, out=None, status=0):
    """The command on either; the same status, report, messages and files, which are those of @out
    if it went well, else none.  Returns a copy of the output, and the GPU's messages."""
    done, report, folders = {}, {}, {d: root / d for d in ("cpu", "cuda")}
    for device, folder in folders.items():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        output = ("-o", out) if out else ()
        done[device] = tersor(*args, *output, "--device", common.gpus if device == "cuda" else device,
                              "--json=report", cwd=folder)
        if (folder / "report").exists():
            report[device] = (folder / "report").read_text()
            (folder / "report").unlink()
    cpu, gpu = done["cpu"], done["cuda"]
    say = (*args, gpu.stderr)
    expect(cpu.returncode == status, "status", cpu.returncode, cpu.stderr, *say)
    expect(gpu.returncode == status, "status", gpu.returncode, *say)
    expect(gpu.stderr == cpu.stderr, cpu.stderr, "is not", *say)
    expect(gpu.stdout == cpu.stdout and report.get("cuda") == report.get("cpu"), "reports differ", *say)
    names = [sorted(p.name for p in f.iterdir()) for f in folders.values()]
    expect(names[0] == names[1], "files", names, *say)
    expect(bool(names[1]) == (out is not None and status == 0), "files", names, *say)
    for name in names[0]:
        expect((folders["cpu"] / name).read_bytes() == (folders["cuda"] / name).read_bytes(),
               name, "differs", *say)
    copy = root / f"copy-{out}"
    if names[1] == [out]:
        shutil.copy(folders["cuda"] / out, copy)
    return copy, gpu.stderr


def round_trip(root, original, *args):
    """Pack, unpack, verify and compare."""
    packed = both(root, "pack", original, *args, out="packed.safetensors")[0]
    back = both(root, "unpack", packed, out="back.safetensors")[0]
    both(root, "verify", packed, "--against", original)
    both(root, "diff", packed, back)
    both(root, "diff", original, packed, "--tol", "nmse=1e-30", status=1)
    return packed


# ---- What there is to pack ----

WEIGHTS = ["bf16+ulp8", "bf16+ulp16", "fp16+ulp8", "fp16+ulp16", "bf16+exact16", "bf16+bf16",
           "fp16+fp16", "bf16", "fp16", "f32", "bf16+trunc1", "bf16+trunc7", "bf16+trunc16",
           "fp16+trunc1", "fp16+trunc13", "bf16+sr1", "bf16+sr8", "bf16+sr16", "bf16+rn1", "bf16+rn10", "fp16+sr5",
           "fp16+sr13", "e5m2+trunc4", "e5m2+trunc16", "e4m3+trunc8", "e5m2+sr8", "e4m3+sr16"]
MOMENTA = ["softsign8", "ratio8", "linear8", "e4m3", "e5m2", "e4m3x", "e5m2x", "dyn8", "bf16", "f32",
           "ratio10", "ratio9", "ratio4", "ratio3"]
VARIANCES = ["sqrt8", "ulinear8", "log8", "e5m2x", "dyn8", "e4m3", "e5m2", "e4m3x", "bf16", "f32", "log6", "log7",
             "log4", "log3"]


def any_bytes(some, n):
    return some.getrandbits(8 * n).to_bytes(n, "little")


def training_state(path, sizes=SIZES, seed=0, scale=1e-2):
    """Weights and their states."""
    tensors = {}
    for i, n in enumerate(sizes):
        values = struct.unpack(f"<{n}f", floats(n, seed + 77 + i, scale))
        squares = struct.pack(f"<{n}f", *(x * x for x in values))
        tensors[f"p{i}.weight"] = ("F32", [n], floats(n, seed + i))
        tensors[f"p{i}.weight.exp_avg"] = ("F32", [n], floats(n, seed + 50 + i, scale))
        tensors[f"p{i}.weight.exp_avg_sq"] = ("F32", [n], squares)
    write(path, tensors)
    return path


def grid_state(path, rows, columns, tensors=()):
    """A matrix and its states, each an outer product times noise; after what else there is."""
    n = rows * columns
    values = struct.unpack(f"<{n}f", floats(n, 5))
    tensors = dict(tensors)
    for i, name in enumerate(("w.weight", "w.weight.exp_avg", "w.weight.exp_avg_sq")):
        grid = [((r % 37 + 1) * (k % 19 + 1)) ** (i / 2) for r in range(rows) for k in range(columns)]
        tensors[name] = ("F32", [rows, columns], struct.pack(
            f"<{n}f", *(abs(a * b) if i == 2 else a * b for a, b in zip(values, grid))))
    write(path, tensors)
    return path


def codecs(root):
    """Every codec, on a small checkpoint; and that this list has them all."""
    named = {c["family"] or c["name"] for c in json.loads(tersor("codecs", "--json").stdout)["codecs"]}
    tested = {re.sub(r"(trunc|rn|sr)\d+", r"\1<k>", c) for c in WEIGHTS + MOMENTA + VARIANCES}
    expect(named == tested, "codecs", named ^ tested)
    for weight, momentum, variance in zip(WEIGHTS, itertools.cycle(MOMENTA), itertools.cycle(VARIANCES)):
        codings = ("--weights", weight, "--momentum", momentum, "--variance", variance)
        seed = ("--seed", "11") if "+sr" in weight else ()
        packed = both(root, "pack", CHECKPOINT, *codings, *seed, out="packed.safetensors")[0]
        both(root, "unpack", packed, out="back.safetensors")
        if weight in ("bf16+exact16", "f32", "fp16+trunc13", "fp16+sr13"):
            both(root, "verify", packed, "--against", CHECKPOINT)
            both(root, "diff", packed, CHECKPOINT, "--tol", "nmse=1")


def chosen_codecs(root):
    """Codecs chosen by their errors: the same ones, and the same reports."""
    for args in (["--auto", "1e-4"], ["--auto", "3e-5"], ["--max-bytes", "540K"],
                 ["--auto", "1e-7", "--auto-codecs", "bf16,bf16+ulp8,e5m2+trunc8,tight,softsign8/log8"]):
        both(root, "pack", CHECKPOINT, *args, out="packed.safetensors")
    original = training_state(root / "in.safetensors", [PIECE + 17, 4096, 31])
    both(root, "pack", original, "--auto", "1e-3", out="packed.safetensors")
    both(root, "pack", original, "--max-bytes", "1000", status=1, out="packed.safetensors")


def groups_and_scales(root):
    """Tensors of no, one and many elements, in one piece and in several, with any group."""
    original = training_state(root / "in.safetensors")
    scales = itertools.cycle(("e8m8", "f16", "f32"))
    for group in 1, 3, 32, 48, 1000, 65536:
        args = ("--group", group, "--scale", next(scales))
        if group % 32:
            args += ("--momentum", "linear8", "--variance", "ulinear8", "--weights", "bf16+sr8")
        round_trip(root, original, *args)


LOWRANK = ("--momentum", "lowrank16+linear8", "--min-elements", "1")


def matrices(path, *shapes, dtype="F32", **put):
    """Momenta, the name's element 1234 as given."""
    tensors = {}
    for i, (rows, columns) in enumerate(shapes):
        noise, row = struct.unpack("<997f", floats(997, i)), [k % 19 + 1 for k in range(columns)]
        data = b"".join(struct.pack(f"<{columns}f", *(
            (r % 37 - 18) * x + 9 * noise[(r * 31 + 7 * k) % 997] for k, x in enumerate(row))) for r in range(rows))
        if f"m{i}" in put:
            data = data[:4936] + struct.pack("<I", put[f"m{i}"]) + data[4940:]
        tensors[f"m{i}.exp_avg"] = (dtype, [rows, columns], narrow(data, dtype))
    write(path, tensors)
    return path


def lowrank(root):
    """Momenta by their factors: matrices of several tiles, groups that end before and with the rows, narrow
    elements, what is not finite or overflows, coded planes and differences, and parts."""
    path = root / "in.safetensors"
    shapes = [(200, 256), (107, 1111), (3001, 120), (120, 3000), (600, 1111)]
    original = matrices(path, *shapes)
    for args in (), ("--group", "48", "--scale", "f32"), ("--group", "1", "-j", "3"):
        packed = round_trip(root, original, *LOWRANK, *args)
        expect(sum("::factors" in name for name in read(packed)) == len(shapes), "factors", args)
    round_trip(root, original, "--min-elements", "1", "--momentum", "lowrank32+linear8")
    base = both(root, "pack", original, *LOWRANK, "--entropy", out="base.safetensors")[0]
    both(root, "unpack", base, out="back.safetensors")
    both(root, "pack", original, *LOWRANK, "--delta", base, out="next.safetensors")
    whole = both(root, "pack", original, *LOWRANK, out="packed.safetensors")[0].read_bytes()
    for part in "1/3", "3/3", "2/3":
        done = tersor("pack", original, "-o", root / "parts", *LOWRANK, "--device", common.gpus, "--part", part)
        expect(done.returncode == 0, part, done.stderr)
    expect(tersor("join", root / "parts").returncode == 0 and (root / "parts").read_bytes() == whole, "parts")
    for dtype in "BF16", "F16":
        packed = round_trip(root, matrices(path, (300, 256), dtype=dtype), *LOWRANK)
        expect("m0.exp_avg::factors" in read(packed), dtype)
    odd = matrices(path, *[(200, 256)] * 4, m0=0x7fc12345, m1=0xff800000, m2=0x7f7fffff)
    packed = both(root, "pack", odd, *LOWRANK, out="packed.safetensors")[0]
    expect(sum(name.endswith("::factors") for name in read(packed)) == 1, read(packed).keys())
    both(root, "unpack", packed, out="back.safetensors")
    both(root, "pack", odd, *LOWRANK, "--strict", status=3, out="packed.safetensors")


def threads(root):
    original = training_state(root / "in.safetensors", [5 * PIECE + 3, 0, 7])
    for n in 1, 2, 7:
        packed = both(root, "pack", original, "-j", n, out="packed.safetensors")[0]
        both(root, "unpack", packed, "-j", n, out="x.pt")
        both(root, "verify", packed, "-j", n, "--against", original)
        both(root, "diff", packed, original, "-j", n, "--tol", "nmse=1")


def other_types(root):
    """What is not FP32, has no codec or is kept passes as it is."""
    original = root / "in.safetensors"
    data = floats(1000, 3)
    write(original, {"a.weight": ("F32", [10, 100], data), "b.weight": ("BF16", [1000], narrow(data, "BF16")),
                     "c.weight": ("F16", [1000], narrow(data, "F16")), "d": ("I64", [500], data),
                     "e": ("F64", [500], data), "f": ("BOOL", [3], b"\1\0\1"), "g": ("F32", [], data[:4]),
                     "h.weight": ("F32", [], data[:4]), "i.weight": ("F32", [3, 0, 5], b""),
                     "j.weight": ("F32", [1000], data)})
    packed = round_trip(root, original, "--keep", "^j")
    expect(read(packed)["a.weight"][0] == "BF16" and read(packed)["j.weight"][2] == data, "kept")
    both(root, "diff", original, original)
    both(root, "verify", original)
    nothing = root / "nothing.safetensors"
    write(nothing, {})
    both(root, "diff", packed, nothing, status=1)
    packed = both(root, "pack", nothing, out="packed.safetensors")[0]
    both(root, "unpack", packed, out="back.safetensors")


def narrow_states(root):
    """Momenta and variances of BF16 and F16; masters whose narrow weights are the model's."""
    states = read(training_state(root / "fp32.safetensors"))
    original = root / "in.safetensors"
    for dtype, group in ("BF16", 32), ("F16", 48):
        write(original, {name: (dtype, shape, narrow(data, dtype)) if "exp_avg" in name else (d, shape, data)
                         for name, (d, shape, data) in states.items()})
        packed = round_trip(root, original, "--group", group)
        expect("p5.weight.exp_avg::quantized" in read(packed), "momentum of", dtype, "is raw")
    model = DATA / "frameworks" / "states" / "bf16-model-fp32-master.pt"
    packed = round_trip(root, model)
    expect("master.0" not in read(packed), "a master has its own narrow weights")


def containers(root):
    """In any container, from several files, into shards."""
    for source in "checkpoint.pt", "dcp":
        packed = both(root, "pack", GPT / source, out="packed.safetensors")[0]
        for out in "x.pt", "x.npz", "x.safetensors":
            both(root, "unpack", packed, out=out)
        both(root, "diff", GPT / source, packed, "--tol", "nmse=1e-2")
        both(root, "verify", GPT / source)
    both(root, "pack", GPT / "hf" / "model.safetensors.index.json", out="packed.safetensors")
    a = training_state(root / "a.safetensors", [5000, 33])
    b = root / "b.safetensors"
    write(b, {"q.weight": ("F32", [70000], floats(70000, 9))})
    packed = both(root, "pack", a, b, out="packed.safetensors")[0]
    both(root, "verify", packed, "--against", a, "--against", b)
    both(root, "pack", a, b, "--max-shard-size", "100K", out="s.safetensors")
    index = root / "cuda" / "s.safetensors.index.json"
    expect(index.exists(), "no shards")
    shards = root / "shards"
    index.parent.rename(shards)
    both(root, "unpack", shards / index.name, "--max-shard-size", "150K", out="t.safetensors")
    both(root, "verify", shards / index.name)


def other_tools(root):
    """Compressed states of FlashOptim, also with any bytes as planes, and of bitsandbytes."""
    theirs = GPT / "flashadamw24-after.pt"
    packed = both(root, "pack", theirs, out="packed.safetensors")[0]
    both(root, "unpack", theirs, out="x.pt")
    both(root, "diff", packed, theirs, "--tol", "nmse=1e-2")
    both(root, "pack", theirs, "--group", "48", "--weights", "fp16+ulp16", out="packed.safetensors")
    some, n = random.Random(5), PIECE + 5000
    groups = -(-n // 32)
    flat = root / "flat.safetensors"
    write(flat, {"a.weight": ("BF16", [n], any_bytes(some, 2 * n)),
                 "a.weight.error_bits": ("I8", [n], any_bytes(some, n)),
                 "b.weight": ("F16", [n], any_bytes(some, 2 * n)),
                 "b.weight.error_bits": ("I16", [n], any_bytes(some, 2 * n)),
                 "a.weight.exp_avg::quantized": ("I8", [n], any_bytes(some, n)),
                 "a.weight.exp_avg::scales": ("F16", [groups], any_bytes(some, 2 * groups)),
                 "a.weight.exp_avg_sq::quantized": ("U8", [n], any_bytes(some, n)),
                 "a.weight.exp_avg_sq::scales": ("F16", [groups], any_bytes(some, 2 * groups)),
                 "c.state1": ("U8", [n], any_bytes(some, n)), "c.qmap1": ("F32", [256], floats(256, 1)),
                 "c.absmax1": ("F32", [-(-n // 256)], floats(-(-n // 256), 2))})
    coded = root / "coded.pt"
    expect(tersor("convert", flat, "-o", coded).returncode == 0, "convert")
    back = both(root, "unpack", coded, out="x.safetensors")[0]
    recognised = "a.weight", "b.weight", "a.weight.exp_avg", "a.weight.exp_avg_sq", "c.state1"
    types = {name: t[0] for name, t in read(back).items() if name != "tersor_generation"}
    expect(types == dict.fromkeys(recognised, "F32"), types)
    both(root, "verify", coded, status=1)
    both(root, "verify", coded, "--allow-nonfinite")
    both(root, "diff", coded, back)
    both(root, "pack", coded, "--map", "state1$=momentum", out="packed.safetensors")


def values_that_do_not_fit(root):
    """They stay raw, in a second pass, or are an error; bounds; scales that are lost."""
    original = training_state(root / "in.safetensors", [5000, 33, 70000])
    tensors = read(original)
    nan, minus, large = struct.pack("<I", 0x7fc12345), struct.pack("<f", -1e-9), struct.pack("<f", 3.4e38)

    def put(name, at, what):
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, shape, data[:4 * at] + what + data[4 * at + 4:])

    put("p0.weight", 4999, nan)
    put("p1.weight.exp_avg_sq", 32, minus)
    put("p2.weight", 69999, large)
    put("p2.weight.exp_avg", 41, struct.pack("<f", float("inf")))
    odd = root / "odd.safetensors"
    write(odd, tensors)
    packed = both(root, "pack", odd, "--weights", "fp16+ulp8", out="packed.safetensors")[0]
    kept = [name for name, t in read(packed).items() if t[0] == "F32"]
    expect(sorted(kept) == ["p0.weight", "p1.weight.exp_avg_sq", "p2.weight", "p2.weight.exp_avg"], kept)
    both(root, "unpack", packed, out="x.safetensors")
    both(root, "verify", packed, "--against", odd, status=1)
    both(root, "diff", packed, odd, "--tol", "nmse=1e-2")
    line = both(root, "pack", odd, "--strict", out="packed.safetensors", status=3)[1]
    expect("p0.weight: found 1 non-finite value" in line, line)
    line = both(root, "pack", original, "--max-error", "nmse=1e-9", out="packed.safetensors", status=1)[1]
    expect("nothing written" in line, line)
    tiny = training_state(root / "tiny.safetensors", [5000], scale=1e-9)
    line = both(root, "pack", tiny, "--compat", "flashoptim", out="packed.safetensors")[1]
    expect("groups lost their state" in line, line)
    huge = training_state(root / "huge.safetensors", [5000], scale=1e6)
    line = both(root, "pack", huge, "--compat", "flashoptim", out="packed.safetensors")[1]
    expect("found 5000 values and 157 scales overflow" in line, line)
    write(root / "wide.safetensors", {"w.weight": ("F32", [5000], b"".join(
        struct.pack("<I", 0x7f7fff00 ^ (i << 31 & 0xffffffff) ^ i) for i in range(5000)))})
    for weight in "bf16+ulp8", "bf16", "fp16+fp16", "bf16+exact16", "bf16+trunc3", "fp16+sr2":
        both(root, "pack", root / "wide.safetensors", "--weights", weight, out="packed.safetensors")


def damage(root):
    """The same line from either, and nothing left."""
    original = training_state(root / "in.safetensors", [PIECE + 5, 70000])
    packed = both(root, "pack", original, out="packed.safetensors")[0]
    raw = bytearray(packed.read_bytes())
    raw[len(raw) // 2] ^= 4
    packed.write_bytes(raw)
    line = both(root, "unpack", packed, out="x.safetensors", status=3)[1]
    expect("is damaged: found hash" in line, line)
    both(root, "verify", packed, status=3)
    packed.write_bytes(raw[:-1])
    both(root, "unpack", packed, out="x.safetensors", status=3)
    raw = bytearray((GPT / "checkpoint.pt").read_bytes())
    raw[len(raw) // 2] ^= 4
    zipped = root / "x.pt"
    zipped.write_bytes(raw)
    both(root, "pack", zipped, out="packed.safetensors", status=3)
    both(root, "verify", zipped, status=3)
    both(root, "diff", zipped, CHECKPOINT, status=3)
    both(root, "pack", root / "none.safetensors", out="packed.safetensors", status=4)


# ---- Coded planes ----

CODED = [("--entropy",), ("--entropy=states", "--weights", "fp16+ulp16", "--variance", "log8"),
         ("--entropy", "--weights", "bf16+trunc4", "--momentum", "linear8", "--group", "48"),
         ("--entropy", "--weights", "f32", "--momentum", "bf16", "--variance", "dyn8")]


def coded(root):
    """Planes of pieces, short and whole, with lines and without, come to the same bytes and back; and a
    base's differences."""
    original = root / "in.safetensors"
    tensors = read(training_state(original, [3, 4099, PIECE + 17]))
    for i, dtype in enumerate(("I64", "I32", "I16", "U8", "BOOL")):
        tensors[f"n{i}"] = (dtype, [5000], bytes(j // 7 % 2 for j in range(5000 << 3 >> min(i, 3))))
    tensors = read(grid_state(original, 128, 1024, tensors))
    for args in CODED:
        packed = round_trip(root, original, *args)
    base = both(root, "pack", original, "--entropy", out="base.safetensors")[0]
    tensors["w.weight"] = ("F32", [128, 1024], struct.pack(
        "<131072f", *(1.0001 * x for x in struct.unpack("<131072f", floats(131072, 5)))))
    write(root / "next.safetensors", tensors)
    packed = both(root, "pack", root / "next.safetensors", "--delta", base, out="next.packed")[0]
    both(root, "unpack", packed, out="back.safetensors")
    raw = bytearray(base.read_bytes())
    for at in range(len(raw) // 3, len(raw), len(raw) // 7):
        raw[at] ^= 16
        (root / "damaged").write_bytes(raw)
        line = both(root, "unpack", root / "damaged", out="x.safetensors", status=3)[1]
        expect("is damaged: piece" in line, line)
        raw[at] ^= 16


def coded_there(root):
    """Planes without a codec have no kernels but those that code: their failures are the command's."""
    plain, packed = root / "in.safetensors", root / "packed.safetensors"
    write(plain, {"n": ("I32", [5000], bytes(i // 9 % 3 for i in range(20000)))})
    pack = ("pack", plain, "--entropy", "--device", "cuda")
    expect(tersor(*pack, "-o", packed).returncode == 0, "pack")
    fails(root, 4, "unspecified launch failure", *pack, "-o", root / "x", TERSOR_EMULATED_BAD_LAUNCH="1")
    for command in ("unpack", packed, "-o", root / "x"), ("verify", packed), \
            ("diff", packed, plain):
        fails(root, 4, "unspecified launch failure", *command, "--device", "cuda",
              TERSOR_EMULATED_BAD_LAUNCH="1")
        fails(root, 4, "out of memory", *command, "--device", "cuda", "-j", "1",
              TERSOR_EMULATED_BAD_MALLOC="3")


# ---- What only a GPU fails of ----

def commands(root):
    """Each command that takes a GPU, to be run in this directory."""
    packed = root / "packed.safetensors"
    if not packed.exists():
        expect(tersor("pack", CHECKPOINT, "-o", packed).returncode == 0, "pack")
    return {"pack": ("pack", CHECKPOINT, "-o", root / "out.safetensors"),
            "unpack": ("unpack", packed, "-o", root / "out.pt"),
            "verify": ("verify", packed), "diff": ("diff", packed, CHECKPOINT, "--tol", "nmse=1")}


def fails(root, status, what, *args, **env):
    """One line, and nothing left behind."""
    before = sorted(root.iterdir())
    done = tersor(*args, **env)
    expect(done.returncode == status, "status", done.returncode, done.stderr, args, env)
    expect(what in done.stderr and done.stderr.rstrip("\n").count("\n") == 0,
           done.stderr, "without", what)
    expect(sorted(root.iterdir()) == before and not done.stdout, "left something", args, env)


def refusals(root):
    for command in commands(root).values():
        fails(root, 4, "cuda:63: no such GPU", *command, "--device", "cuda:63")
        fails(root, 2, "unknown device 'gpu'", *command, "--device", "gpu")
        fails(root, 2, "unknown device 'cuda:'", *command, "--device", "cuda:")
        env = {"TERSOR_EMULATED_GPUS" if EMULATED else "CUDA_VISIBLE_DEVICES": "0" if EMULATED else ""}
        fails(root, 4, "cuda:0: ", *command, "--device", "cuda", **env)


def choice(root):
    """Without --device, and with auto, it is the CPU; -v says what it is."""
    for name, command in commands(root).items():
        verb = {"pack": "packing", "unpack": "unpacking", "verify": "verifying", "diff": "comparing"}[name]
        for device, where in ((), "the CPU"), (("auto",), "the CPU"), (("cpu",), "the CPU"), \
                (("cuda",), "cuda:0"), (("cuda:0",), "cuda:0"):
            for out in root.glob("out*"):
                out.unlink()
            done = tersor(*command, "-v", *(("--device", *device) if device else ()))
            said = [line for line in done.stderr.splitlines() if f"tersor: {verb} on " in line]
            expect(done.returncode == 0 and len(said) == 1, said, done.stderr)
            expect(said[0].startswith(f"tersor: {verb} on {where}, "), said)
    if EMULATED:
        done = tersor("verify", root / "packed.safetensors", "-v", TERSOR_EMULATED_GPUS="0")
        expect("verifying on" not in done.stderr, "where there is no choice", done.stderr)


def several(root):
    """On lists of GPUs as on one; -v names each; a machine of one says so."""
    common.on_lists(root, threads, other_types, values_that_do_not_fit, damage, coded)
    for device, env in common.lists_of_gpus():
        for name, command in commands(root).items():
            for out in root.glob("out*"):
                out.unlink()
            done = tersor(*command, "-v", "-j1", "--device", device, **env)
            said = [line.split()[3] for line in done.stderr.splitlines() if "ing on cuda:" in line]
            asked = ["cuda:0,", "cuda:1,"] if device == "cuda:all" else [f"cuda:{n}," for n in device[5:].split(",")]
            expect(done.returncode == 0 and said[:len(asked)] == asked and
                   (device == "cuda:all" or len(said) == len(asked)), name, device, said, done.stderr)


def lists_refused(root):
    for command in commands(root).values():
        fails(root, 2, "'cuda:0,0': found GPU 0 twice", *command, "--device", "cuda:0,0")
        for bad in "cuda:0,", "cuda:,0", "cuda:0,,1", "cuda:0,x", "cuda:all,0", "cuda:0,1024", "cuda:-1", "cuda:0 ,1":
            fails(root, 2, f"unknown device '{bad}'", *command, "--device", bad)
        many = "cuda:" + ",".join(str(n) for n in range(65))
        fails(root, 2, "found more than 64 GPUs", *command, "--device", many)
        fails(root, 4, "cuda:63: no such GPU", *command, "--device", "cuda:0,63")
    fails(root, 2, "one GPU is measured", "bench", "--device", "cuda:all")


def one_of_several_fails(root):
    """Out of memory or broken: that GPU is named, and no other does its work."""
    two = {"TERSOR_EMULATED_GPUS": "2", "TERSOR_EMULATED_BAD_GPU": "1"}
    for name, command in commands(root).items():
        for jobs in 1, 6:
            run = (*command, "-j", jobs, "--device", "cuda:all")
            for n in 1, 2, 3, 5:
                fails(root, 4, "cuda:1: ", *run, **two, TERSOR_EMULATED_BAD_LAUNCH=str(n))
            for n in 1, 2, 3:
                line = f"cuda:1: {'cannot be used' if n < 2 else 'cannot allocate'}"
                fails(root, 4, line, *run, **two, TERSOR_EMULATED_BAD_MALLOC=str(n))


def bench_of_coding(root):
    """The planes of bench --entropy become as small as on the CPU; those of a file with log8 are measured,
    too."""
    small, planes = {}, {}
    for device in "cpu", "cuda":
        done = tersor("bench", "--entropy", "--elements", "300000", "--repeats", "1", "--json", "--device",
                      device)
        expect(done.returncode == 0, done.stderr)
        report = json.loads(done.stdout)
        planes[device] = report["planes"]
        small[device] = {p["plane"]: p["coded_bytes_per_element"] for p in report["planes"]}
    expect(len(planes["cpu"]) == 4 and small["cpu"] == small["cuda"], small)
    expect(small["cpu"]["weights"] < 1.4, small)
    expect(all(p["compared_pieces"] == 0 for p in planes["cpu"]), planes["cpu"])
    for p in planes["cuda"]:
        moved = 1 + p["coded_bytes_per_element"] / p["bytes_per_element"]
        expect(p["compared_pieces"] == 2, p)
        for way in "encode", "decode":
            share = p[f"{way}_gbps"] * moved / report["copy_gbps"]
            expect(abs(p[f"{way}_of_copy"] / share - 1) < 1e-4, p, share)
    packed = root / "log8.safetensors"
    original = grid_state(root / "in.safetensors", 300, 1024)
    expect(tersor("pack", original, "-o", packed, "--variance", "log8").returncode == 0, "pack")
    done = tersor("bench", "--entropy", packed, "--elements", "300001", "--repeats", "1", "--device", "cuda")
    expect(done.returncode == 0 and "variances" in done.stdout, done.stdout, done.stderr)
    expect("pieces compared: the CPU's bytes" in done.stdout, done.stdout)


def cancelling(root):
    """SIGINT in the middle: nothing is left."""
    original = training_state(root / "in.safetensors", [(1 << 20) * (1 if EMULATED else 8)])
    folder = root / "out"
    folder.mkdir()
    run = subprocess.Popen([TERSOR, "pack", original, "-o", folder / "x", "--group", "48",
                            "--device", "cuda"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.1 if EMULATED else 0.5)
    run.send_signal(signal.SIGINT)
    run.communicate()
    expect(run.returncode in (0, -2, 130), "status", run.returncode)
    expect(run.returncode == 0 or not list(folder.iterdir()), "left something")


def out_of_memory(root):
    """Every allocation in turn: fatal for the one thread that there is, else for that thread alone."""
    for name, command in commands(root).items():
        plain = tersor(*command, "-q")
        made = {p: p.read_bytes() for p in root.glob("out*")}
        expect(len(made) == (name in ("pack", "unpack")), name, made.keys())
        first = 5 if name == "pack" else 3      # of one thread; pack has room for a pair of tensors
        for jobs in 1, 3:
            for out in made:
                out.unlink(missing_ok=True)
            for n in range(1, 24):
                if n <= first:
                    fails(root, 4, "out of memory", *command, "-j", jobs, "--device", "cuda",
                          TERSOR_EMULATED_BAD_MALLOC=str(n))
                    continue
                done = tersor(*command, "-q", "-j", jobs, "--device", "cuda",
                              TERSOR_EMULATED_BAD_MALLOC=str(n))
                expect(done.returncode == 0 and done.stdout == plain.stdout, name, n, done.stderr)
                expect({p: p.read_bytes() for p in root.glob("out*")} == made, name, n)
                for out in made:
                    out.unlink()


def failing_kernels(root):
    for command in commands(root).values():
        for n in 1, 2, 3, 50:
            for jobs in 1, 3:
                fails(root, 4, "cuda:0: ", *command, "-j", jobs, "--device", "cuda",
                      TERSOR_EMULATED_BAD_LAUNCH=str(n))
        fails(root, 4, "unspecified launch failure", *command, "--device", "cuda",
              TERSOR_EMULATED_BAD_LAUNCH="2")


TESTS = [codecs, chosen_codecs, groups_and_scales, lowrank, threads, other_types, narrow_states, containers,
         other_tools, values_that_do_not_fit, damage, coded, refusals, choice, several, lists_refused, bench_of_coding,
         cancelling]

go_through("packing and unpacking",
           TESTS + ([coded_there, out_of_memory, failing_kernels, one_of_several_fails] if EMULATED else []),
           ("diff", CHECKPOINT, CHECKPOINT))
