# SPDX-License-Identifier: Apache-2.0
"""What the scripts beside this one share: running the program named by their first argument, files
of tensors, and going through tests.  Needs Python alone."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

TERSOR = pathlib.Path(sys.argv[1]).resolve()
EMULATED = "--emulated" in sys.argv
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
count = 0


def expect(condition, *what):
    global count
    count += 1
    if not condition:
        print("failed:", *what)
        sys.exit(1)


def tersor(*args, cwd=None, **env):
    return subprocess.run([str(TERSOR), *map(str, args)], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, **env})


def write(path, tensors):
    """A safetensors file of name -> (dtype, shape, bytes)."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def read(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    return {name: (t["dtype"], t["shape"], raw[slice(*(8 + size + o for o in t["data_offsets"]))])
            for name, t in header.items() if name != "__metadata__"}


def floats(n, seed, scale=1.0):
    some = random.Random(seed)
    block = struct.pack("<997f", *(some.gauss(0, scale) for _ in range(997)))
    return (block * (n // 997 + 1))[:4 * n]


def narrow(data, dtype):
    if dtype == "BF16":
        return b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
    n = len(data) // 4
    return struct.pack(f"<{n}e", *struct.unpack(f"<{n}f", data)) if dtype == "F16" else data


def lists_of_gpus():
    """Lists of several GPUs for --device, and the environment that makes them; none where there is one."""
    if EMULATED:
        return [("cuda:all", {"TERSOR_EMULATED_GPUS": "2"}), ("cuda:2,0,1", {"TERSOR_EMULATED_GPUS": "3"})]
    n = len(json.loads(tersor("version", "--json").stdout)["gpus"])
    return [("cuda:all", {}), ("cuda:1,0", {})] if n > 1 else []


gpus = "cuda"   # what tests compare with the CPU


@contextlib.contextmanager
def on(device, env):
    """What is "cuda" otherwise is @device."""
    global gpus
    gpus = device
    os.environ.update(env)
    yield
    gpus = "cuda"
    for name in env:
        del os.environ[name]


def on_lists(root, *tests):
    """Each test on every list of GPUs; says so if there are none."""
    if not lists_of_gpus():
        print("several GPUs: left out, found one")
    for i, (device, env) in enumerate(lists_of_gpus()):
        with on(device, env):
            for test in tests:
                folder = root / f"{i}-{test.__name__}"
                folder.mkdir()
                test(folder)


def go_through(what, tests, probe):
    """Each test in a directory of its own; status 77 if the command @probe, on a GPU, fails."""
    with tempfile.TemporaryDirectory() as scratch:
        done = tersor(*probe, "--device", "cuda")
        if done.returncode:
            print(done.stderr.strip())
            sys.exit(77)
        for test in tests:
            began = time.monotonic()
            folder = pathlib.Path(scratch) / test.__name__
            folder.mkdir()
            test(folder)
            shutil.rmtree(folder)
            print(f"{test.__name__}: ok, {time.monotonic() - began:.1f} s", flush=True)
    print(f"{what} on a GPU: {count} checks passed")
