#!/usr/bin/env python3
"""Forms of two moments beside each other, tersor's and its peers': the table of docs/codecs.md, in Markdown.

    forms.py TERSOR NAME=STATE... [--rounds N] [--gpu speed.csv] [--only NAME...]

STATE: a safetensors file with FP32 tensors W, W.exp_avg and W.exp_avg_sq.  For each form: bits per moment in the
last state; for each state the NMSE of m / (sqrt(v) + eps) as it comes back, median and worst of its parameters;
after the 16 steps of tests/data/tiny-gpt/recording, with the moments in this form between steps and FP32 weights,
the worst squared error of weights over their way and the worst NMSE of sqrt(v).  Then the speed of encoding and of
decoding both moments in one thread, in percent of copying as many bytes: least time of N rounds, by `tersor bench`
and, for libraries, in CPU time; and the same on a GPU, from the column H200 of a speed.csv.  Libraries that are not
installed are named.  Needs numpy, safetensors and xxhash.
"""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import safetensors
from safetensors.numpy import load_file

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "compare")]
import replay_model  # noqa: E402
from peer_forms import PEERS  # noqa: E402

DATA = TESTS / "data" / "tiny-gpt"
ELEMENTS = 1 << 23      # of a measurement of speed
# name -> form of --state, codecs whose speed is its speed
OURS = {"`flash`": ("flash", "softsign8", "sqrt8"), "`tight`": ("tight", "ratio8", "log8"),
        "`fine`": ("fine", "ratio9", "log7"), "`ratio10/log6`": ("ratio10/log6", "ratio10", "log6"),
        "`four`": ("four", "ratio4", "log4"), "`ratio3/log3`": ("ratio3/log3", "ratio3", "log3"),
        "`bf16/bf16`": ("bf16/bf16", "bf16", "bf16"), "`e4m3/e4m3`": ("e4m3/e4m3", "e4m3", "e4m3"),
        "`coat`": ("coat", "e4m3x", "e4m3x"), "`gefen`": ("gefen", "gefen8", "blockmean"),
        "`dyn8/dyn8`": ("bitsandbytes", "dyn8", "dyn8"), "`flashoptim`": ("flashoptim",)}


def squares(x):
    return float((x.astype(np.float64) ** 2).sum())


def parameters(tensors):
    return [n for n in tensors if n + ".exp_avg_sq" in tensors]


def moments(tensors, name):
    return tensors[name + ".exp_avg"], tensors[name + ".exp_avg_sq"]


def nmse(want, got):
    return squares(got - want) / squares(want)


def update_errors(want, got):
    def update(m, v):
        return m / (np.sqrt(v) + np.float32(1e-8))
    pairs = ((update(*moments(want, n)), update(*moments(got, n))) for n in parameters(want))
    return [nmse(u, y) for u, y in pairs if u.any()]


class Tersor:
    """A form of the program, by its own pack, unpack and replay."""

    def __init__(self, program, folder, form):
        self.program, self.form = program, form
        self.packed, self.out, self.report = (folder / n for n in ("p.safetensors", "o.safetensors", "r.json"))

    def run(self, *args):
        subprocess.run([self.program, *args, "-qq"], check=True)

    def back(self, file):
        """What comes back, and bits per moment."""
        self.run("pack", file, "-f", "-o", self.packed, "--state", self.form, "--weights", "f32", "--json", self.report)
        kinds = [k for k in json.loads(self.report.read_text())["by_kind"] if k["kind"] in ("momentum", "variance")]
        stored, elements = (sum(k[what] for k in kinds) for what in ("stored_nbytes", "elements"))
        self.run("unpack", self.packed, "-f", "-o", self.out)
        return load_file(self.out), 8 * stored / elements

    def replayed(self):
        self.run("replay", DATA / "checkpoint.safetensors", DATA / "recording", "-f", "-o", self.out, "--to", "safetensors",
                 "--state", self.form, "--weights", "f32", "--order", "torch-cpu")
        return load_file(self.out)


class Peer:
    """A form of peer_forms.py, stepped by the model of tests/helpers."""

    def __init__(self, form):
        self.form = form

    def back(self, file):
        tensors, stored, elements = load_file(file), 0, 0
        for name in parameters(tensors):
            m, v = moments(tensors, name)
            tensors[name + ".exp_avg"], tensors[name + ".exp_avg_sq"] = self.form.back(m, v)
            stored, elements = stored + m.size * self.form.bits(m.shape), elements + 2 * m.size
        return tensors, stored / elements

    def replayed(self):
        return replay(self.form.back)

    def seconds(self):
        import torch
        torch.set_num_threads(1)
        form, both = self.form.timed(), np.zeros(2)
        for signed in True, False:
            x = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(1)) * 1e-3
            x = x if signed else x * x
            form.decode(form.encode(x, signed))     # compiles
            start = time.process_time()
            planes = form.encode(x, signed)
            middle = time.process_time()
            form.decode(planes)
            both += [middle - start, time.process_time() - middle]
        return both / ELEMENTS


def replay(back):
    """The recorded steps, each from what `back` makes of the moments of the one before."""
    manifest = json.loads((DATA / "recording" / "manifest.json").read_text())
    tensors = load_file(DATA / "checkpoint.safetensors")
    state = {n: dict(zip(("weight", "momentum", "variance"), (tensors[n], *back(*moments(tensors, n)))))
             for n in parameters(tensors)}
    for step in manifest["steps"]:
        gradients = dict(safetensors.deserialize((DATA / "recording" / step["file"]).read_bytes()))
        for group, lr in zip(manifest["param_groups"], step["lr"]):
            h = replay_model.hyper("adamw", lr=lr, beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
                                   weight_decay=group["weight_decay"])
            for name in group["params"]:
                bits = np.frombuffer(gradients[name]["data"], "<u2").astype("<u4") << 16
                g = bits.view("<f4").reshape(state[name]["weight"].shape)
                new = replay_model.step("adamw", h, step["step"], False, g, state[name])
                new["momentum"], new["variance"] = back(new["momentum"], new["variance"])
                state[name] = new
    return {n + suffix: s[part] for n, s in state.items()
            for suffix, part in (("", "weight"), (".exp_avg", "momentum"), (".exp_avg_sq", "variance"))}


def measure(form, states, want):
    row = {"updates": []}
    for file in states.values():
        got, row["bits"] = form.back(file)
        row["updates"].append(update_errors(load_file(file), got))
    first, got = load_file(DATA / "checkpoint.safetensors"), form.replayed()
    names = parameters(want)
    row["way"] = max(squares(got[n] - want[n]) / squares(want[n] - first[n]) for n in names)
    row["root"] = max(nmse(np.sqrt(moments(want, n)[1]), np.sqrt(moments(got, n)[1])) for n in names)
    return row


def bench(program, folder):
    """Bytes that memcpy reads and writes in a second, and codec -> seconds to encode and to decode an element."""
    report = folder / "bench.json"
    subprocess.run([program, "bench", "-j1", "--elements", str(ELEMENTS), "--repeats", "1", "-qq", "--json", report],
                   check=True)
    found = json.loads(report.read_text())
    return found["copy_gbps"] * 1e9, {k["codec"]: np.array([k["bytes_per_element"] / k[way] / 1e9
                                                            for way in ("encode_gbps", "decode_gbps")])
                                      for k in found["kernels"]}


def measure_speed(args, folder, rows, peers):
    """By turns, so that what else the machine does is no one form's."""
    copy, codecs, least = 0, {}, {}
    for _ in range(args.rounds):
        rate, found = bench(args.tersor, folder)
        copy, codecs = max(copy, rate), {c: np.minimum(s, codecs.get(c, np.inf)) for c, s in found.items()}
        least |= {n: np.minimum(p.seconds(), least.get(n, np.inf)) for n, p in peers.items()}
    least |= {n: sum(codecs[c] for c in OURS[n][1:]) for n in rows if n in OURS and OURS[n][1:]}
    for name, seconds in least.items():
        rows[name]["cpu"] = 100 * (8 + 2 * rows[name]["bits"] / 8) / seconds / copy
    print(f"copy in one thread: {copy / 1e9:.1f} GB/s, read and written", file=sys.stderr)


def gpu_percent(table, codecs):
    rows = [table.get(codec, {}) for codec in codecs]
    if not rows or not all(r.get("H200 encode") for r in rows):
        return None
    return [sum(float(r["bytes"]) for r in rows) / sum(float(r["bytes"]) / float(r[f"H200 {way}"]) for r in rows)
            for way in ("encode", "decode")]


def short(*errors):
    return ", ".join(f"{e:.1e}".replace("e-0", "e-").replace("e+0", "e") for e in errors)


def percent(pair):
    return "-" if pair is None else "/".join(f"{x:.0f}" if x >= 1.5 else f"{x:.1f}" for x in pair)


def table(rows, states):
    """Forms with the same figures are one row: a peer's, and how tersor calls it."""
    head, found = ["form", "bits", *states, "16 steps", "sqrt(v)", "CPU", "GPU"], {}
    for name, r in rows.items():
        updates = (short(np.median(errors), max(errors)) for errors in r["updates"])
        cells = (f"{r['bits']:.4g}", *updates, short(r["way"]), short(r["root"]), percent(r.get("cpu")), percent(r.get("gpu")))
        found.setdefault(cells, []).append(name)
    print("| " + " | ".join(head) + " |", "|" + "---|" * len(head), sep="\n")
    for cells, names in found.items():
        print(f"| {', '.join(names)} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tersor")
    parser.add_argument("states", nargs="+", type=lambda s: s.split("=", 1), metavar="NAME=STATE")
    parser.add_argument("--rounds", type=int, default=20, help="of measuring speed; 0 leaves it out")
    parser.add_argument("--gpu", help="a speed.csv")
    parser.add_argument("--only", nargs="*", help="names of forms")
    args = parser.parse_args()
    gpu = {r["codec"]: r for r in csv.DictReader(open(args.gpu, encoding="utf-8"))} if args.gpu else {}
    os.environ["TRITON_INTERPRET"] = "1"    # for FlashOptim; whichever library imports Triton first reads it
    states, rows, peers = dict(args.states), {}, {}
    want = replay(lambda m, v: (m, v))
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        folder = pathlib.Path(folder)
        for name in args.only or [*OURS, *PEERS]:
            try:
                form = Tersor(args.tersor, folder, OURS[name][0]) if name in OURS else Peer(PEERS[name]())
                rows[name] = measure(form, states, want)
            except ImportError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
                continue
            rows[name]["gpu"] = gpu_percent(gpu, OURS.get(name, ())[1:])
            if name in PEERS and form.form.timed:
                peers[name] = form
        if args.rounds:
            measure_speed(args, folder, rows, peers)
    table(rows, states)


if __name__ == "__main__":
    sys.exit(main())
