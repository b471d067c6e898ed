#!/usr/bin/env python3
"""Coded planes beside general coders: the planes of one packed file through each of them, in one run.

    coders.py TERSOR PACKED [--bytes N] [--repeats N] [--device cuda]

PACKED is what `tersor pack` writes, without --entropy.  Its planes (BF16 weights, corrections, codes of
momenta and of variances) are put behind each other by what they hold; those that all coders can be measured
with are the first N bytes of each (default 64M).  tersor's figures are those of `tersor bench --entropy`,
on the whole file.  On a CPU each coder runs in one thread: zlib, zstd (module zstandard) and ZipNN (module
zipnn), those that can be imported.  With --device cuda, nvCOMP's ANS (modules cupy and nvidia.nvcomp) runs
beside tersor's kernels, on planes that are repeated to 1 GiB.  Speeds are GB/s of the plane, the best of the
repeats; every coder's output is decoded and compared.  Prints a table in Markdown.
"""
import argparse
import json
import subprocess
import sys
import time
import zlib

import numpy as np

PLANES = "weights", "corrections", "momenta", "variances"


def planes_of(path, limit):
    """The bytes of each plane, of at most `limit`."""
    data = np.memmap(path, np.uint8, "r")
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:begin].tobytes())
    text = json.loads(header.pop("__metadata__")["tersor"])
    names = dict.fromkeys(name.partition("::")[0] for name in header)
    kinds = {name: text["codings"][t if isinstance(t, int) else t["coding"]]["kind"] for name, t in zip(names, text["tensors"])}
    found = {name: [] for name in PLANES}
    for name, array in header.items():
        kind, dtype = kinds.get(name.partition("::")[0]), array["dtype"]
        plane = {("weight", "BF16"): "weights", ("weight", "I8"): "corrections",
                 ("momentum", "U8"): "momenta", ("momentum", "I8"): "momenta",
                 ("variance", "U8"): "variances"}.get((kind, dtype))
        if plane:
            first, last = array["data_offsets"]
            found[plane].append(data[begin + first:begin + last])
    return {name: np.concatenate(parts).tobytes()[:limit] for name, parts in found.items() if parts}


def best(repeats, call):
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def zlib_huffman(data):
    z = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    return z.compress(data) + z.flush()


def coders(elements):
    """Of a plane with elements of so many bytes: (name, encode, decode)."""
    yield "zlib -6", lambda d: zlib.compress(d, 6), zlib.decompress
    yield "zlib, Huffman only", zlib_huffman, zlib.decompress
    try:
        import zstandard
        for level in 1, 3, 19:
            c = zstandard.ZstdCompressor(level=level, threads=0)
            yield f"zstd -{level}", c.compress, zstandard.ZstdDecompressor().decompress
    except ImportError:
        print("zstandard cannot be imported: left out", file=sys.stderr)
    try:
        import zipnn
        dtype = "bfloat16" if elements == 2 else "float8_e4m3fn"
        z = zipnn.ZipNN(input_format="byte", bytearray_dtype=dtype, threads=1)
        # A copy, since it overwrites what it codes.
        yield "ZipNN", lambda d: z.compress(bytearray(d)), lambda d: bytes(z.decompress(d))
    except ImportError:
        print("zipnn cannot be imported: left out", file=sys.stderr)


def row(name, plane, elements, ratio, encode, decode):
    cells = name, plane, f"{8 * elements * ratio:.2f}", f"{encode:.3g}", f"{decode:.3g}"
    print(f"| {' | '.join(cells)} |", flush=True)


def on_cpu(planes, repeats):
    for plane, data in planes.items():
        elements = 2 if plane == "weights" else 1
        for name, encode, decode in coders(elements):
            slow = name in ("zlib -6", "zstd -19")
            part = data[:len(data) // 8 // 2 * 2] if slow else data
            try:
                coded, encoding = best(1 if slow else repeats, lambda: encode(part))
                plain, decoding = best(repeats, lambda: decode(coded))
            except Exception as error:
                print(f"| {name} | {plane} | {str(error)[:60]} | | |", flush=True)
                continue
            assert plain == part, f"{name} lost {plane}"
            row(name, plane, elements, len(coded) / len(part), len(part) / 1e9 / encoding,
                len(part) / 1e9 / decoding)


def on_gpu(planes, repeats):
    import cupy
    from nvidia import nvcomp
    codec = nvcomp.Codec(algorithm="ANS")
    for plane, data in planes.items():
        part = np.frombuffer(data, np.uint8)
        array = cupy.asarray(np.tile(part, -(-(1 << 30) // len(part)))[:1 << 30])
        seconds = {"encode": [], "decode": []}
        for _ in range(repeats + 1):
            began, encoded, decoded = (cupy.cuda.Event() for _ in range(3))
            began.record()
            coded = codec.encode(nvcomp.as_array(array))
            encoded.record()
            encoded.synchronize()
            seconds["encode"].append(cupy.cuda.get_elapsed_time(began, encoded) / 1e3)
            began.record()
            plain = codec.decode(coded)
            decoded.record()
            decoded.synchronize()
            seconds["decode"].append(cupy.cuda.get_elapsed_time(began, decoded) / 1e3)
        assert bool((cupy.asarray(plain).view(cupy.uint8).ravel() == array).all()), plane
        elements = 2 if plane == "weights" else 1
        row("nvCOMP ANS", plane, elements, coded.size / len(array),
            len(array) / 1e9 / min(seconds["encode"]), len(array) / 1e9 / min(seconds["decode"]))


def tersor(program, path, device):
    where = ["--device", device] if device else ["-j1"]
    report = subprocess.run([program, "bench", "--entropy", path, *where, "--no-progress", "--json"],
                            check=True, capture_output=True, text=True).stdout
    for p in json.loads(report)["planes"]:
        elements = p["bytes_per_element"]
        row("tersor", p["plane"], elements, p["coded_bytes_per_element"] / elements, p["encode_gbps"],
            p["decode_gbps"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tersor")
    parser.add_argument("packed")
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=["cuda"])
    args = parser.parse_args()
    planes = planes_of(args.packed, args.bytes)
    print("| coder | plane | bits per element | encode | decode |\n|---|---|---|---|---|")
    tersor(args.tersor, args.packed, args.device)
    (on_gpu if args.device else on_cpu)(planes, args.repeats)


if __name__ == "__main__":
    sys.exit(main())
