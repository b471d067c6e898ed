#!/usr/bin/env python3
"""Ways to keep one checkpoint beside each other, in one run: a table in Markdown.

    head_to_head.py TERSOR CHECKPOINT [--python PYTHON] [--folder DIR] [--repeats N] [--only NAME...]

CHECKPOINT is a safetensors file with FP32 tensors <name>, <name>.exp_avg and <name>.exp_avg_sq.  Every way
writes a file (or directory) from it and makes an FP32 safetensors file of that again, each in a process of its
own, in DIR (default /dev/shm).  Bytes are those of the files; errors are computed here in FP64 from what came
back.  Ways in Python libraries run in PYTHON (library_ways.py); without it they are left out and named, as
are zstd and xz where they are not installed.  Needs numpy.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
EXACT = ["--weights", "bf16+exact16", "--momentum", "f32", "--variance", "f32"]
PACKS = {"tersor": [], "tersor, tight": ["--state", "tight"],
         "tersor, `--entropy`": ["--entropy"],
         "tersor, tight, `--entropy`": ["--state", "tight", "--entropy"],
         "FlashOptim's form, by tersor": ["--compat", "flashoptim"],
         "tersor, exact": EXACT, "tersor, exact, `--entropy`": [*EXACT, "--entropy"]}
LIBRARIES = {"ZipNN": "zipnn", "torch.save, FP32": "torch", "torch.save, all BF16": "bf16",
             "DCP, Zstandard": "dcp", "bitsandbytes, 8 bits": "bitsandbytes",
             "torchao, 8 bits": "torchao", "FlashOptim": "flashoptim"}
SLOW = "zstd -19", "xz -6"      # run once


def commands(tersor, python):
    """name -> (needs, write(source, target), read(target, back)), the latter two giving a command."""
    quiet = ["--device", "cpu", "-q", "-q"]
    ways = {"cp": ("", lambda s, d: ["cp", s, d], lambda d, b: ["cp", d, b])}
    for name, options in PACKS.items():
        ways[name] = ("", lambda s, d, o=options: [tersor, "pack", s, "-o", d, *o, *quiet],
                      lambda d, b: [tersor, "unpack", d, "-o", b, *quiet])
    for level in 3, 19:
        ways[f"zstd -{level}"] = ("", lambda s, d, n=level: ["zstd", f"-{n}", "-T0", "-q", s, "-o", d],
                                  lambda d, b: ["zstd", "-d", "-q", d, "-o", b])
    # xz has no option for the name of its output.
    ways["xz -6"] = ("", lambda s, d: ["sh", "-c", 'exec xz -6 -T0 -c "$0" > "$1"', s, d],
                     lambda d, b: ["sh", "-c", 'exec xz -d -T0 -c "$0" > "$1"', d, b])
    for name, key in LIBRARIES.items():
        one = [python, str(HERE / "library_ways.py"), key]
        ways[name] = ("Python, a GPU" if key == "flashoptim" else "Python",
                      lambda s, d, o=one: [*o, "write", s, d], lambda d, b, o=one: [*o, "read", d, b])
    return ways


def missing(name, python):
    program = name.split()[0]
    if name in LIBRARIES:
        return None if python else "no --python"
    return f"{program} is not installed" if program in ("zstd", "xz") and not shutil.which(program) else None


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def run(command):
    """Seconds and peak memory in MiB; a library way prints its own seconds, without the start of Python."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, message = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError((message.strip() or f"status {process.returncode}").splitlines()[-1])
    return float(output) if "library_ways.py" in " ".join(command) else seconds, usage.ru_maxrss / 1024


def timed(command, target, repeats):
    results = []
    for _ in range(repeats):
        remove(target)
        results.append(run(command))
    return statistics.median(s for s, _ in results), max(m for _, m in results)


def size(path):
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    return sum(os.stat(f).st_size for f in files)


def arrays(path):
    import numpy as np
    data = np.memmap(path, np.uint8, "r")
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:begin].tobytes())
    header.pop("__metadata__", None)
    for name, array in header.items():
        if array["dtype"] != "F32":
            raise SystemExit(f"{path}: tensor {name}: found {array['dtype']}, expected F32")
    return {name: data[begin + a["data_offsets"][0]:begin + a["data_offsets"][1]].view("<f4")
            for name, a in header.items()}


def errors(source, back, eps=1e-8):
    """Elements that are not the same bits; mean relative error of the weights; NMSE of the updates, as in
    `tersor audit`, of all elements together."""
    import numpy as np
    a, b = arrays(source), arrays(back)
    if a.keys() != b.keys():
        raise SystemExit(f"{back}: found {len(b)} tensors, expected the {len(a)} of {source}")
    differing = sum(int((a[n].view("u4") != b[n].view("u4")).sum()) for n in a)
    relative = count = error = norm = 0
    for name in (n for n in a if n + ".exp_avg_sq" in a):
        w, x = a[name].astype("f8"), b[name].astype("f8")
        there = w != 0
        relative += float((np.abs(x - w)[there] / np.abs(w[there])).sum())
        count += int(there.sum())
        u, y = (s[name + ".exp_avg"].astype("f8") / (np.sqrt(s[name + ".exp_avg_sq"].astype("f8")) + eps)
                for s in (a, b))
        error, norm = error + float(((u - y) ** 2).sum()), norm + float((u * u).sum())
    parameters = sum(a[n].size for n in a if n + ".exp_avg_sq" in a)
    return {"parameters": parameters, "differing": differing, "weights": relative / max(count, 1),
            "update_nmse": error / norm if norm else 0.0}


def measure(name, way, source, folder, repeats):
    _, write, read = way
    # torch.load takes a file of that name for safetensors, whatever is in it.
    packed = folder / ("packed.bin" if name in LIBRARIES else "packed.safetensors")
    back = folder / "back.safetensors"
    remove(packed), remove(back)
    repeats = 1 if name in SLOW else repeats
    row = {"way": name}
    row["write"], row["write_mib"] = timed(write(str(source), str(packed)), packed, repeats)
    row["read"], row["read_mib"] = timed(read(str(packed), str(back)), back, repeats)
    row["bytes"] = size(packed)
    # In a process of its own: the memory of this one would count as that of its children.
    found = subprocess.run([sys.executable, __file__, "--errors", source, back], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    return {**row, **json.loads(found)}


def table(rows, ways):
    print("| way | bytes per parameter | lossless | update NMSE | weights | write | read | memory | needs |")
    print("|---|---|---|---|---|---|---|---|---|")
    base = next((r for r in rows if r["way"] == "cp"), None)
    for r in rows:
        lossless = r["differing"] == 0
        times = [f"{r[k] / base[k]:.1f}x" if base not in (r, None) else f"{r[k]:.2f} s" for k in ("write", "read")]
        print(f"| {r['way']} | {r['bytes'] / r['parameters']:.3f} | {'yes' if lossless else 'no'} "
              f"| {0 if lossless else format(r['update_nmse'], '.1e')} "
              f"| {0 if lossless else format(r['weights'], '.1e')} | {times[0]} | {times[1]} "
              f"| {r['write_mib']:.0f}, {r['read_mib']:.0f} | {ways[r['way']][0]} |")


def main():
    if sys.argv[1:2] == ["--errors"]:
        return print(json.dumps(errors(*sys.argv[2:4])))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tersor")
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--python", help="a Python with the libraries")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="names of ways")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    ways, rows = commands(args.tersor, args.python), []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        source = pathlib.Path(folder) / "source.safetensors"
        shutil.copyfile(args.checkpoint, source)
        for name in args.only or ways:
            reason = missing(name, args.python)
            try:
                if not reason:
                    rows.append(measure(name, ways[name], source, pathlib.Path(folder), args.repeats))
            except RuntimeError as error:
                reason = str(error)
            if reason:
                print(f"left out: {name}: {reason}", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    table(rows, ways)


if __name__ == "__main__":
    sys.exit(main())
