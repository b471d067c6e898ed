#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that tersor still writes what it wrote: the outputs of every command in tests/frozen/cases.

This is the net under changes that must not change a stored byte, such as a rebuild of the source
tree.  It does not know what is right; the other tests do.  It knows what was, so a difference is
either a mistake or a change that was meant.  Only for the latter run --update, and commit
expected.json with the change that explains it.  A new version number changes every packed file,
since they name the tool.

    run.py --tersor PATH                check against expected.json; exit 1 on any difference
    run.py --tersor PATH --no-text      leave out what only people read: tables, prose, messages
    run.py --tersor PATH --device cuda  the same results from a GPU, where a command takes --device
    run.py --tersor PATH --update       record, all or with -k only some
    run.py --list                       the commands; -k WORD selects by name or command

Recorded of each command are its exit status, the SHA-256 of every file that it wrote, and that of
standard output if it is a report for machines.  "text" has the hashes of what a change of wording
changes: tables on standard output, and reports whole where they contain prose.  In "files" and
"stdout" the prose of such reports is blanked.  Standard error is not recorded.  TERSOR_ISA in the
environment reaches the commands: results must not depend on it.

Needs Python 3.9 alone, so it also runs on a machine with a GPU and little else.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import inputs

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
EXPECTED = HERE / "expected.json"
ON_A_DEVICE = {"sweep", "replay", "pack", "unpack", "verify", "diff"}
# Options of replay with which it runs on the CPU only.
ON_THE_CPU = ("--compare", "--gate", "--check-numerics", "--csv", "--svg", "--html")
STATUS_ONLY = {"bench", "completion", "version"}


# ---- The table of cases ----

def cases():
    """Name -> command, from the file cases: `NAME = values` and `case: command` with $NAME in both.

    Where $NAME is part of a case's name, which is a directory, its value has "-" for "/"."""
    lists, found = {}, {}
    for number, line in enumerate((HERE / "cases").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if m := re.fullmatch(r"([A-Z]+) = (.*)", line):
            lists[m[1]] = m[2].split()
            continue
        name, command = line.split(": ", 1)
        used = re.search(r"\$([A-Z]+)", name)
        for value in lists[used[1]] if used else [""]:
            full = [text.replace(f"-{used[0]}", "-" + value.replace("/", "-")).replace(used[0], value)
                    if used else text for text in (name, command)]
            if full[0] in found:
                sys.exit(f"cases:{number}: a second {full[0]}")
            found[full[0]] = full[1]
    return found


def needs(command, known):
    """The cases whose files a command reads, as ../CASE/FILE."""
    return {name for name in re.findall(r"\.\./([^/\s,]+)/", command) if name in known}


def selected(known, word):
    """Cases to check, and with them those to run, in an order in which each finds its inputs."""
    check = [n for n in known if not word or word in n or word in known[n]]
    order = []

    def add(name):
        if name not in order:
            for other in needs(known[name], known):
                add(other)
            order.append(name)
    for name in check:
        add(name)
    return set(check), order


# ---- What is recorded ----

def sha(data):
    return hashlib.sha256(data).hexdigest()[:16]


def without_prose(kind, data):
    """A report for machines with the sentences in it blanked."""
    if kind == "json":
        string = rb'"(?:[^"\\]|\\.)*"'
        data = re.sub(rb'"(text|fault|raw_reason|summary)":' + string, rb'"\1":""', data)
        return re.sub(rb'"(notes)":\[' + string + rb"(?:," + string + rb")*\]", rb'"\1":[""]', data)
    if kind in ("html", "svg"):
        # Between tags, what has both a letter and a space.
        return re.sub(rb">(?=[^<]*[A-Za-z])[^<>{}]* [^<>{}]*<", b"><", data)
    return data


def without_device(data):
    """A JSON report without the members that say where it was made."""
    value = rb'("[^"]*"|\[[^]]*\]|[^,{}\[\]]+)'
    return re.sub(rb',?"(device|devices|gpus?|simd|threads|seconds)":' + value, b"", data)


class Result:
    """What one command did, as expected.json has it."""

    def __init__(self, status):
        self.entry = {"exit": status, "files": {}, "text": {}}

    def report(self, kind, data, name, into):
        if kind == "json":
            data = without_device(data)
        plain = without_prose(kind, data)
        into[name] = sha(plain)
        if plain != data:
            self.entry["text"][name] = sha(data)

    def file(self, name, data):
        kind = name.rpartition(".")[2]
        if kind in ("json", "html", "svg", "csv") and not name.endswith(".index.json"):
            self.report(kind, data, name, self.entry["files"])
        else:
            self.entry["files"][name] = sha(data)

    def stdout(self, words, data):
        kind = "json" if "--json" in words else "csv" if "--csv" in words else None
        if kind and data:
            self.report(kind, data, "stdout", self.entry)
        elif data:
            self.entry["text"]["stdout"] = sha(data)

    def done(self):
        return {key: value for key, value in self.entry.items() if value != {}}


def run(tersor, root, name, command, device):
    folder = root / name
    folder.mkdir()
    words = shlex.split(command)
    if device and words[0] in ON_A_DEVICE and not any(w.startswith("--device") for w in words) and not (
            words[0] == "replay" and any(w.partition("=")[0] in ON_THE_CPU for w in words)):
        words += ["--device", device]
    done = subprocess.run([tersor, *words], cwd=folder, stdin=subprocess.DEVNULL, timeout=300,
                          capture_output=True, env={**os.environ, "LC_ALL": "C"})
    result = Result(done.returncode)
    if words[0] not in STATUS_ONLY:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                result.file(path.relative_to(folder).as_posix(), path.read_bytes())
        result.stdout(words, done.stdout)
    return result.done()


def run_all(tersor, order, known, device, jobs):
    """Runs @jobs cases at a time, each after those whose files it reads."""
    results, futures = {}, {}
    with tempfile.TemporaryDirectory(prefix="frozen-") as scratch:
        root = pathlib.Path(scratch)
        inputs.make(root, DATA, tersor)

        def one(name):
            for other in needs(known[name], known):
                futures[other].result()
            results[name] = run(tersor, root, name, known[name], device)

        # Workers take cases in this order, so the ones that a case waits for are already taken.
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for name in order:
                futures[name] = pool.submit(one, name)
            for future in futures.values():
                future.result()
    return results


# ---- expected.json ----

def dump(entries):
    """One line per member, so that a diff shows which output changed."""
    lines = []
    for name, entry in sorted(entries.items()):
        members = [f"  {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted(entry.items())]
        lines.append(f" {json.dumps(name)}: {{\n" + ",\n".join(members) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def flat(entry, text):
    """Entry as one dictionary: exit, stdout, FILE and, with @text, "text of ..."."""
    out = {key: entry[key] for key in ("command", "exit", "stdout") if key in entry}
    out |= entry.get("files", {})
    if text:
        out |= {f"text of {key}": value for key, value in entry.get("text", {}).items()}
    return out


def differences(name, was, now, text):
    if was is None:
        return [f"{name}: not in expected.json"]
    was, now = flat(was, text), flat(now, text)
    return [f"{name}: {key}: expected {was.get(key, 'none')}, found {now.get(key, 'none')}"
            for key in sorted({*was, *now}) if was.get(key) != now.get(key)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tersor", default="build/tersor", help="the program (default build/tersor)")
    parser.add_argument("--device", help="give this to commands that take --device")
    parser.add_argument("--no-text", action="store_true", help="do not compare what only people read")
    parser.add_argument("--update", action="store_true", help="record instead of checking")
    parser.add_argument("--list", action="store_true", help="list the commands")
    parser.add_argument("-k", metavar="WORD", help="only cases with this in their name or command")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="cases at a time (default 2)")
    args = parser.parse_args()
    known = cases()
    check, order = selected(known, args.k)
    if args.list:
        for name in sorted(check):
            print(f"{name}: {known[name]}")
        return 0
    if args.update and args.device:
        parser.error("--update records what the CPU does: leave --device out")
    began = time.monotonic()
    found = run_all(os.path.abspath(args.tersor), order, known, args.device, args.jobs)
    found = {name: {"command": known[name], **found[name]} for name in check}
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    if args.update:
        EXPECTED.write_text(dump({n: e for n, e in {**expected, **found}.items() if n in known}))
        print(f"{len(found)} recorded, {time.monotonic() - began:.0f} s")
        return 0
    failed = 0
    for name in sorted(check if args.k else {*check, *expected}):
        if name not in known:
            lines = [f"{name}: in expected.json only"]
        else:
            lines = differences(name, expected.get(name), found[name], not args.no_text)
        failed += bool(lines)
        for line in lines:
            print(line)
    print(f"{len(found) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
