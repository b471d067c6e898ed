"""Flip bits in the moments of a .pt of PyTorch's, with the CRC-32 of its records made right again.

    bit_flips.py TERSOR NAME=FILE...    docs/internals/bit-flips.csv: of 500 flips of each bit, how many percent
                                        `verify` finds in momenta and in variances
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

import anyfile


def moments(path):
    """[(record, offset in elements, numel)] of the momenta, and of their variances in the same order."""
    value = anyfile.read(path)[1]
    value = value.get("optimizer", value)
    found = []
    for name in "exp_avg", "exp_avg_sq":
        tensors = [s[name] for s in value["state"].values()]
        found.append([(t.storage.key, t.offset, t.numel) for t in tensors])
    return found


def rewrite(path, out, change):
    """Copy a .pt, with change(record's key, its FP32 array) called for each record of it."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            folder, _, key = info.filename.rpartition("/data/")
            if folder and len(data) % 4 == 0:
                array = np.frombuffer(data, "<u4").copy()
                change(key, array)
                data = array.tobytes()
            new.writestr(zipfile.ZipInfo(info.filename), data)


def flip(path, out, flips):
    """@flips: {record: [(element of the record, bit)]}."""
    def change(key, array):
        for element, bit in flips.get(key, ()):
            array[element] ^= np.uint32(1 << bit)
    rewrite(path, out, change)


def rates(tersor, path, n=500):
    """{(side, bit): share of n flipped bits, each in an element of its own, that verify says are wrong}."""
    rng, found = np.random.default_rng(1), {}
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "flipped.pt"
        for side, tensors in zip("mv", moments(path)):
            ends = np.cumsum([t[2] for t in tensors])
            for bit in range(32):
                flips = {}
                for place in rng.choice(ends[-1], n, replace=False):
                    i = int(np.searchsorted(ends, place, "right"))
                    element = int(place - (ends[i] - tensors[i][2]))
                    flips.setdefault(tensors[i][0], []).append((tensors[i][1] + element, bit))
                flip(path, out, flips)
                done = subprocess.run([tersor, "verify", out, "--json"], capture_output=True, check=False)
                report = json.loads(done.stdout)["files"][0]
                nonfinite = sum(t["nonfinite"] for t in report["tensors"])
                found[side, bit] = (report["moments"]["violations"] + nonfinite) / n
    return found


def main(tersor, *files):
    names, paths = zip(*(file.split("=", 1) for file in files))
    tables = [rates(tersor, path) for path in paths]
    groups = [("sign", [31])] + [(f"exponent {2 ** (b - 23)}", [b]) for b in range(30, 22, -1)]
    groups += [("mantissa", range(23))]
    print(",".join(["bit"] + [f"{name} {side}" for name in names for side in "mv"]))
    for name, bits in groups:
        print(",".join([name] + [f"{100 * np.mean([t[side, b] for b in bits]):.1f}" for t in tables for side in "mv"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
