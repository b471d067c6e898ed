#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of src and include that the tests ran, by folder: tests/coverage.py BUILD [--missed].

BUILD was built with --coverage and has been tested; `make coverage` does both.  A line counts as run if
any variant of it was: SIMD levels, and inline functions of headers in several files.  --missed lists
the lines that never ran.  Needs gcov of the gcc that built it, nothing else.
"""
import collections
import json
import pathlib
import subprocess
import sys


def objects(build):
    return sorted((build / "obj/src").rglob("*.gcno"))


def counted(paths):
    """{file: {line: times run}}; objects that no test loaded have no counts, and their lines 0."""
    lines = collections.defaultdict(collections.Counter)
    for path in paths:
        done = subprocess.run(["gcov", "--json-format", "--stdout", str(path)], capture_output=True,
                              text=True, check=True)
        for report in done.stdout.splitlines():
            for file in json.loads(report)["files"]:
                for line in file["lines"]:
                    lines[file["file"]][line["line_number"]] += line["count"]
    return {name: counts for name, counts in lines.items() if name.startswith(("src/", "include/"))}


def folder(name):
    return "/".join(pathlib.Path(name).parts[:2]) if name.startswith("src/") else "include"


def row(name, total, run):
    print(f"{name:16} {total:7} {run:7} {100 * run / total:7.2f}%")


def main():
    build = pathlib.Path(sys.argv[1])
    lines = counted(objects(build))
    if not lines:
        sys.exit(f"{build}: not built with --coverage")
    totals, run = collections.Counter(), collections.Counter()
    for name, counts in lines.items():
        for where in {folder(name), name.split("/")[0]}:
            totals[where] += len(counts)
            run[where] += sum(count > 0 for count in counts.values())
    print(f"{'folder':16} {'lines':>7} {'run':>7} {'':>8}")
    for where in sorted(totals, key=lambda where: (where == "src", where)):
        row(where, totals[where], run[where])
    if "--missed" in sys.argv:
        for name in sorted(lines):
            missed = sorted(number for number, count in lines[name].items() if not count)
            if missed:
                print(f"{name}: {' '.join(map(str, missed))}")


if __name__ == "__main__":
    main()
