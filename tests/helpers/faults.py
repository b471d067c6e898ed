"""The fault library build/tests/libfaults.so from Python (tests/faults/faults.c tells its rules)."""
import os
import pathlib
import re
from typing import NamedTuple

from conftest import ROOT

LIBRARY = os.environ.get("TERSOR_FAULTS", str(ROOT / "build" / "tests" / "libfaults.so"))
LONG = os.environ.get("TERSOR_LONG") == "1"
NEVER = "any:1000000000:EIO"
TEMP_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")


def shim(inside, fault=NEVER, malloc=None, log=None, count=None):
    """Environment for faults on files below `inside`."""
    env = {"LD_PRELOAD": LIBRARY, "TERSOR_FAULT": fault, "TERSOR_FAULT_PATH": str(inside),
           "ASAN_OPTIONS": "verify_asan_link_order=0:allocator_may_return_null=1"}
    for name, value in (("MALLOC", malloc), ("LOG", log), ("COUNT", count)):
        if value is not None:
            env[f"TERSOR_FAULT_{name}"] = str(value)
    return env


class Event(NamedTuple):
    mark: str       # ">" before the call, "<" after it
    call: str
    path: str
    path2: str
    off: int        # the flags of open and rename
    n: int          # bytes asked for, or the result
    err: int        # injected errno before the call, errno after it


def read_log(path):
    events = []
    for line in pathlib.Path(path).read_text().splitlines():
        mark, call, one, two, off, n, err = line.split("\t")
        events.append(Event(mark, call, one, two, int(off), int(n), int(err)))
    return events


def is_temp(path, target):
    match = TEMP_NAME.fullmatch(os.path.basename(path))
    return (match is not None and match[1] == os.path.basename(target)
            and os.path.dirname(path) == os.path.dirname(str(target)))


def spread(n, most):
    """1..n, or about `most` of them: both ends and evenly spaced ones between."""
    if LONG or n <= most:
        return list(range(1, n + 1))
    ends = most // 3
    middle = {ends + (n - 2 * ends) * i // ends for i in range(1, ends)}
    return sorted({*range(1, ends + 1), *middle, *range(n - ends + 1, n + 1)})
