# SPDX-License-Identifier: Apache-2.0
"""What a binary asks of the machine that runs it, as readelf says it."""
import os
import re
import subprocess

# The parts of GNU libc, which every Linux with that library has.
LIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
        "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}


def readelf(binary, *options):
    return subprocess.run(["readelf", "--wide", *options, binary], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def machine(binary):
    found = re.search(r"Machine: +(.*)", readelf(binary, "--file-header"))[1]
    return MACHINES.get(found, found)


def needed(binary):
    """The shared libraries that it is loaded with."""
    return re.findall(r"\(NEEDED\) .*\[(.*)\]", readelf(binary, "--dynamic"))


def beside_libc(binary):
    return sorted(set(needed(binary)) - LIBC)


def glibc(binary):
    """The oldest GNU libc that has what it calls, as (major, minor); (0, 0) without any."""
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", readelf(binary, "--version-info"))
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))
