#!/usr/bin/env python3
"""docs/internals/speed.csv: encoding and decoding with each codec, in percent of copying the same elements.

    tersor bench -j2 --json epyc.json               and on a machine with a GPU, with --device cuda
    speed_table.py EPYC=epyc.json H200=h200.json > docs/internals/speed.csv
"""
import json
import sys


def main(*reports):
    rows, header = {}, ["codec", "bytes"]
    for place, argument in enumerate(reports):
        name, path = argument.split("=", 1)
        header += [f"{name} encode", f"{name} decode"]
        with open(path, encoding="utf-8") as file:
            kernels = json.load(file)["kernels"]
        for kernel in kernels:
            row = rows.setdefault(kernel["codec"], [f"{kernel['bytes_per_element']:.6g}"] + [""] * (2 * len(reports)))
            row[1 + 2 * place:3 + 2 * place] = (f"{100 * kernel[way]:.0f}" for way in ("encode_of_copy", "decode_of_copy"))
    print(",".join(header))
    for codec, row in rows.items():
        print(",".join([codec, *row]))


if __name__ == "__main__":
    main(*sys.argv[1:])
