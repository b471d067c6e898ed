#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The structure of the tree: .ci/structure.py BUILD prints one line per violation and exits 1 if any.

In a folder of src: no circle of calls between its files.  In one directory: at most 6,000 lines and 30
files.  In src and include: names of files are unique, and each file opens by saying what it is.
In documents: at most 110 columns.  BUILD holds the object files that calls are read from.
"""
import collections
import pathlib
import re
import subprocess
import sys

DIRECTORY_LINES = 6000
DIRECTORY_FILES = 30
COLUMNS = 110
SOURCES = (".c", ".cu")
HEADERS = (".h", ".cuh")


def code_files():
    return [path for top in ("src", "include") for path in sorted(pathlib.Path(top).rglob("*"))
            if path.suffix in SOURCES + HEADERS]


def room(path):
    """src/codec/simd/split_simd.c is in the room src/codec."""
    return "/".join(path.parts[:2])


def source_of(obj, build):
    """BUILD/obj/src/codec/simd/split_simd.avx2.o was built from src/codec/simd/split_simd.c."""
    base = obj.relative_to(build / "obj")
    base = base.with_name(base.name.split(".")[0])
    return next((path for path in map(base.with_suffix, SOURCES) if path.exists()), None)


def symbols(build):
    """({file: functions defined}, {file: symbols used}) of every object of src, variants together.

    A table may refer to the functions of its rows, and they to the table: data makes no circle."""
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    objects = sorted((build / "obj/src").rglob("*.o"))
    listing = subprocess.run(["nm", "-A", *map(str, objects)], capture_output=True, text=True,
                             check=True).stdout if objects else ""
    for line in listing.splitlines():
        name, _, rest = line.partition(":")
        kind, symbol = rest.split()[-2:]
        source = source_of(pathlib.Path(name), build)
        if source and kind == "U":
            used[source].add(symbol)
        elif source and kind == "T":
            defined[source].add(symbol)
    return defined, used


def circles(edges):
    """Strongly connected components of more than one node (Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            component = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return found


def check_circles(build):
    defined, used = symbols(build)
    if not defined:
        yield f"{build}: no objects of src: build first"
    owner = {symbol: path for path, names in defined.items() for symbol in names}
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for path, names in used.items():
        for symbol in names & owner.keys():
            if owner[symbol] != path and room(owner[symbol]) == room(path):
                edges[path][owner[symbol]].add(symbol)
    for component in circles(edges):
        calls = [f"{a.stem} calls {b.stem} ({', '.join(sorted(edges[a][b]))})"
                 for a in component for b in component if b in edges[a]]
        yield f"{room(component[0])}: circle of calls: {'; '.join(calls)}"


def check_sizes():
    lines, files = collections.Counter(), collections.Counter()
    for path in sorted(pathlib.Path("src").glob("*/**/*")):
        if path.is_file():
            lines[path.parent] += path.read_bytes().count(b"\n")
            files[path.parent] += 1
    for folder, count in lines.items():
        if count > DIRECTORY_LINES:
            yield f"{folder}: {count} lines, more than {DIRECTORY_LINES}"
    for folder, count in files.items():
        if count > DIRECTORY_FILES:
            yield f"{folder}: {count} files, more than {DIRECTORY_FILES}"


def check_names():
    """A header may be named as the source that implements it, nothing else has the same name."""
    for kinds in (SOURCES, HEADERS):
        places = collections.defaultdict(list)
        for path in code_files():
            if path.suffix in kinds:
                places[path.stem].append(path)
        for paths in places.values():
            if len({path.parent for path in paths}) > 1:
                yield f"{paths[0]}: same name as {', '.join(map(str, paths[1:]))}"


def check_openings():
    """After the SPDX line, and perhaps the guard of a header, comes a comment."""
    for path in code_files():
        text = re.sub(r"\A.*SPDX.*\n", "", path.read_text())
        text = re.sub(r"\A#ifndef (\w+)\n#define \1\n", "", text.lstrip())
        if not re.match(r"\s*/[/*]", text):
            yield f"{path}:2: does not open with a comment that says what it is"


def documents():
    for top in (".", "docs", "docs/internals", "tests", "tests/fuzz", "tests/data", "examples", ".github"):
        yield from sorted(pathlib.Path(top).glob("*.md"))


def check_documents():
    for path in documents():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > COLUMNS and len(re.sub(r"https?://\S+", "", line)) > COLUMNS:
                yield f"{path}:{number}: {len(line)} columns, more than {COLUMNS}"


def main():
    build = pathlib.Path(sys.argv[1])
    checks = [check_circles(build), check_sizes(), check_names(), check_openings(),
              check_documents()]
    violations = [line for check in checks for line in check]
    print("\n".join(violations), end="\n" if violations else "")
    return bool(violations)


if __name__ == "__main__":
    sys.exit(main())
