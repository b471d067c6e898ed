#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the tests fail when the code is wrong?  Each mutant is a copy of the tree with one small fault.

    run.py rows [NUMBER...]     the mutants of rows.txt: each promise of promises.txt has a fault that
                                its test must notice
    run.py chosen [-n 100]      mutants of the parsers and of the file layer that operators.py makes and
                                --seed chooses; each runs against the tests of its file (suites.py)

A mutant is killed when a test fails, and survives when all pass.  A chosen mutant that does not compile,
or compiles to the same object code, is none, and the next one takes its place.  survivors.txt explains
those that no test can notice.  Exit 1 if a row's mutant survives or no longer fits the source, or if
fewer than --score percent of the chosen are killed.

Everything is built in a copy of the tree below --tree, as the sources are now, and as an ordinary user
where this one is root: a mutant may remove any file that it can.  GNU make, a compiler and the
packages of `make check` must be there.
"""
import argparse
import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import operators
import suites

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NOBODY = 65534
MEMORY = 8 << 30
SECONDS = 120       # of one unit test or row; a test from outside has five times as much


def update(source, copy):
    """Only what changed is copied, and built again."""
    if not copy.exists() or copy.read_bytes() != source.read_bytes():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


class Tree:
    """A copy of the sources with a build of its own."""

    def __init__(self, path, jobs):
        self.path, self.jobs = path.resolve(), jobs
        self.build = self.path / "build"
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                                capture_output=True, text=True).stdout.split("\n")
        self.path.mkdir(parents=True, exist_ok=True)
        for name in listed:
            if (ROOT / name).is_file():
                update(ROOT / name, self.path / name)
        self.tmp = self.path / "tmp"
        self.tmp.mkdir(mode=0o777, exist_ok=True)
        self.tmp.chmod(0o777)
        self.venv = pathlib.Path(os.environ.get("VENV", ROOT / "build" / "venv"))

    def make(self, *targets):
        return subprocess.run(["make", "-s", f"-j{self.jobs}", "GPU=0", "CFLAGS=-O2", *map(str, targets)],
                              cwd=self.path, capture_output=True, text=True)

    def run(self, command, seconds):
        """Whether the command passes, and the end of what it says."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        env = {**os.environ, "TMPDIR": str(self.tmp), "HOME": str(self.tmp), "PYTHONDONTWRITEBYTECODE": "1",
               "TERSOR": str(self.build / "tersor"), "TERSOR_FAULTS": str(self.build / "tests/libfaults.so")}
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        process = subprocess.Popen(list(map(str, command)), cwd=self.path, env=env, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, preexec_fn=limit,
                                   start_new_session=True, **user)
        try:
            said, _ = process.communicate(timeout=seconds)
            return process.returncode == 0, said.decode(errors="replace")
        except subprocess.TimeoutExpired:
            return False, f"more than {seconds} s"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)      # also what the tests left behind
            except ProcessLookupError:
                pass
            process.wait()
            for left in self.tmp.iterdir():
                shutil.rmtree(left, ignore_errors=True)

    def pytest(self, tests, seconds, *args):
        return self.run([self.venv / "bin/python", "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider",
                         *args, *tests], seconds)


class Change:
    """One mutant in a tree, for the time of a `with`."""

    def __init__(self, tree, path, text):
        self.source, self.text = tree.path / path, text
        self.objects = [(tree.build / kind / path).with_suffix(".o") for kind in ("obj", "counted")]
        self.kept = []

    def __enter__(self):
        for path in (self.source, *self.objects):
            if path.exists():
                keep = path.with_name(path.name + ".kept")
                shutil.copy2(path, keep)
                self.kept.append((keep, path))
        self.source.write_text(self.text)
        return self

    def __exit__(self, *exception):
        for keep, path in self.kept:
            os.replace(keep, path)
        if self.source.suffix != ".c":
            os.utime(self.source)       # what includes it is compiled again
        kept = {path for _, path in self.kept}
        for path in filter(pathlib.Path.exists, self.objects):
            if path in kept:
                os.utime(path)      # so that what was linked with the mutant is linked again
            else:
                path.unlink()       # the mutant's own


def run_program(tree, name):
    """Whether a unit test passes, or a fuzz target on its corpus."""
    corpus = tree.path / "tests/fuzz/corpus" / name.removeprefix("fuzz_")
    inputs = sorted(corpus.iterdir()) if name.startswith("fuzz_") else []
    return tree.run([tree.build / "tests" / name, *inputs], SECONDS)[0]


# --- Rows ---------------------------------------------------------------------------------------

def read_rows(path):
    """(row, tests, [(file, old, new)]) of each paragraph of rows.txt."""
    for paragraph in path.read_text().split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line and not line.startswith("#")]
        if not lines:
            continue
        row, *tests = lines[0].split()
        changes = []
        for line in lines[1:]:
            if line[0] not in "-+":
                changes.append([line, "", ""])
            else:
                changes[-1]["-+".index(line[0]) + 1] += line[1:] + "\n"
        yield row, tests, changes


def mutated(tree, changes):
    """{file: its text with the changes}, or None if one of them no longer fits the source."""
    texts = {}
    for path, old, new in changes:
        text = texts.get(path) or (tree.path / path).read_text()
        if text.count(old) != 1:
            return None
        texts[path] = text.replace(old, new)
    return texts


def tools(tests):
    """The tool, and the one that counts for the tests that count."""
    return ["build/tersor"] + ["build/counted/tersor"] * any("test_bounds" in test for test in tests)


def check_rows(tree, only):
    rows = [row for row in read_rows(HERE / "rows.txt") if not only or row[0] in only]
    bad, killers = 0, set()
    for row, tests, changes in rows:
        texts, start = mutated(tree, changes), time.monotonic()
        if texts is None:
            result = "does not fit the source"
        else:
            with contextlib.ExitStack() as stack:
                for path, text in texts.items():
                    stack.enter_context(Change(tree, path, text))
                programs = [test for test in tests if "::" not in test]
                made = tree.make(*tools(tests), *(f"build/tests/{name}" for name in programs))
                if made.returncode != 0:
                    result = "does not compile: " + made.stderr.strip().split("\n")[0]
                else:
                    result = notice(tree, tests, killers)
        bad += not result.startswith("killed")
        print(f"row {row:3} {time.monotonic() - start:4.0f} s  {changes[0][0]}: {result}", flush=True)
    spurious = check_killers(tree, killers)
    print(f"{len(rows) - bad} of {len(rows)} mutants of {len({row[0] for row in rows})} rows are killed")
    return bad == 0 and not spurious


def notice(tree, tests, killers):
    """What the tests of a row make of its mutant: each must fail."""
    for test in tests:
        if "::" in test:
            passed, said = tree.pytest([f"tests/{test}"], 2 * SECONDS)
        else:
            passed, said = run_program(tree, test), test
        if passed:
            return f"survived {test}"
        killers.add(reason(said))
    return f"killed: {reason(said)}"


def reason(said):
    """Which test noticed."""
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.M)
    last = [line for line in said.split("\n") if line.strip()][-1:]
    return failed[0] if failed else (last or ["no output"])[0][:100]


# --- Chosen mutants -----------------------------------------------------------------------------

def kill(tree, path):
    """The test that notices the change of a file, or None; the quickest tests come first."""
    units, fuzz, files = suites.of(path)
    made = tree.make("build/tersor", *suites.programs(units, fuzz))
    if made.returncode != 0:
        return "link: " + made.stderr[:100]
    for name in [*units, *(f"fuzz_{name}" for name in fuzz)]:
        if not run_program(tree, name):
            return name
    passed, said = tree.pytest([f"tests/{name}.py" for name in files], 5 * SECONDS, *suites.SHORT)
    return None if passed else reason(said)


def try_mutant(tree, mutant):
    """What became of it: "killed", "survived" or "none", and by what or why."""
    lines = (tree.path / mutant.path).read_text().split("\n")
    lines[mutant.line - 1] = mutant.new
    target = (tree.build / "obj" / mutant.path).with_suffix(".o")
    before = target.read_bytes()
    with Change(tree, mutant.path, "\n".join(lines)):
        made = tree.make(target.relative_to(tree.path))
        if made.returncode != 0:
            return "none", "does not compile"
        if target.read_bytes() == before:
            return "none", "same object code"
        killer = kill(tree, mutant.path)
    return ("killed", killer) if killer else ("survived", "")


def explained():
    """{(file, old line, new line): why} of survivors.txt."""
    found = {}
    for paragraph in (HERE / "survivors.txt").read_text().split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line and not line.startswith("#")]
        if len(lines) >= 4:
            found[lines[0], lines[1][2:], lines[2][2:]] = " ".join(lines[3:])
    return found


def check_chosen(tree, args):
    paths = [path.relative_to(ROOT) for module in suites.MODULES for path in sorted((ROOT / module).rglob("*.c"))]
    os.chdir(ROOT)
    why, killers = explained(), {}
    tally = dict.fromkeys(("killed", "equivalent", "survived", "none"), 0)
    for number, mutant in enumerate(operators.chosen(paths, args.seed)):
        if sum(tally.values()) - tally["none"] == args.n:
            break
        if number < args.skip:
            continue
        key = mutant.path, mutant.old.strip(), mutant.new.strip()
        start = time.monotonic()
        if key in why and not args.all:
            result, by = "equivalent", why[key]
        else:
            result, by = try_mutant(tree, mutant)
        tally[result] += 1
        if result == "killed":
            killers.setdefault(by, mutant)
        print(f"{number:4} {result:10} {time.monotonic() - start:4.0f} s  {mutant.path}:{mutant.line} "
              f"{mutant.operator}: {by}", flush=True)
        if result in ("survived", "equivalent"):
            print(f"       - {key[1]}\n       + {key[2]}", flush=True)
    spurious = check_killers(tree, killers)
    tried = tally["killed"] + tally["survived"]
    score = 100 * tally["killed"] / tried if tried else 0
    print(f"{tally['killed']} of {tried} mutants are killed: {score:.1f}%; {tally['equivalent']} more cannot be "
          f"noticed (survivors.txt); {tally['none']} were no mutants")
    return not spurious and score >= args.score


def check_killers(tree, killers):
    """Whether one of the tests that killed fails without a mutant as well."""
    programs = sorted(killer for killer in killers if re.fullmatch(r"\w+", killer))
    tests = sorted(killer for killer in killers if killer.startswith("tests/"))
    tree.make(*tools(tests), *(f"build/tests/{name}" for name in programs))
    bad = [name for name in programs if not run_program(tree, name)]
    passed, said = tree.pytest(tests, 5 * SECONDS) if tests else (True, "")
    bad += [] if passed else [reason(said)]
    for name in bad:
        print(f"fails without a mutant: {name}")
    return bool(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rows", "chosen"))
    parser.add_argument("row", nargs="*", help="only these rows")
    parser.add_argument("-n", type=int, default=100, help="how many mutants are chosen (100)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first ones")
    parser.add_argument("--all", action="store_true", help="also run those that survivors.txt explains")
    parser.add_argument("--score", type=float, default=90, help="percent that must be killed (90)")
    parser.add_argument("--tree", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("-j", type=int, default=2, dest="jobs")
    args = parser.parse_args()
    tree = Tree(args.tree, args.jobs)
    made = tree.make("all", "build/tests/libfaults.so", *(suites.programs() if args.what == "chosen" else ()))
    if made.returncode != 0:
        sys.exit(made.stderr)
    fine = check_rows(tree, args.row) if args.what == "rows" else check_chosen(tree, args)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
