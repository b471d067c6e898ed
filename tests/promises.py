#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promises of tersor with the tests that hold them, as Markdown; --check: are the lists consistent?

    promises.py             mutants/promises.txt, for each promise the test that must notice a fault (mutants/rows.txt),
                            and all tests with the first sentence of their docstrings
    promises.py --check     every promise has a fault that fits the source, every fault a promise, every test is there"""
import ast
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "mutants"))

import run as mutants  # noqa: E402

# 73 is about the fuzz targets themselves.
WITHOUT_A_FAULT = {"73"}


def promises():
    """(section, number, sentence) of each promise."""
    section = ""
    text = re.sub(r"^#.*\n", "", (HERE / "mutants" / "promises.txt").read_text(), flags=re.M)
    for line in re.sub(r"\n +", " ", text).splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            yield section, *line.split(" ", 1)


def killers():
    """{number: the tests that must notice a fault}"""
    tests = {}
    for number, names, _ in mutants.read_rows(HERE / "mutants" / "rows.txt"):
        tests.setdefault(number, []).extend(name for name in names if name not in tests.get(number, []))
    return tests


def tests_of(path):
    """The tests of a file: name, and the first paragraph of its docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def misfits():
    """Rows whose lines do not stand in their file once."""
    for number, _, changes in mutants.read_rows(HERE / "mutants" / "rows.txt"):
        for name, old, _ in changes:
            source = HERE.parent / name
            if not source.exists() or source.read_text().count(old) != 1:
                yield f"tests/mutants/rows.txt: {number}: {name} has not once: {old.splitlines()[0].strip()}"


def check():
    yield from misfits()
    faults, numbers = killers(), [number for _, number, _ in promises()]
    names = {f"{path.name}::{name}" for path in HERE.glob("test_*.py") for name, _ in tests_of(path)}
    for number in sorted(set(numbers) - set(faults) - WITHOUT_A_FAULT, key=int):
        yield f"tests/mutants/promises.txt: {number} has no fault in rows.txt"
    for number in sorted(set(faults) - set(numbers), key=int):
        yield f"tests/mutants/rows.txt: {number} is no number of promises.txt"
    for number, tests in faults.items():
        for test in tests:
            if "::" in test and test.partition("[")[0] not in names:
                yield f"tests/mutants/rows.txt: {number}: there is no {test}"


def page():
    faults, last = killers(), None
    yield "# Promises, and the tests that hold them\n"
    for section, number, sentence in promises():
        if section != last:
            yield f"\n## {section}\n"
        tests = ", ".join(f"`{test}`" for test in faults.get(number, ()))
        yield f"- **{number}** {sentence}" + f" ({tests})" * bool(tests)
        last = section
    for path in sorted(HERE.glob("test_*.py")):
        title = ast.get_docstring(ast.parse(path.read_text())) or ""
        yield f"\n## {path.name}: {' '.join(title.partition(chr(10) * 2)[0].split())}\n"
        for name, text in tests_of(path):
            yield f"- `{name}`" + f": {text}" * bool(text)


def main():
    if sys.argv[1:] == ["--check"]:
        wrong = list(check())
        print("\n".join(wrong), end="\n" if wrong else "")
        return bool(wrong)
    print("\n".join(page()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
