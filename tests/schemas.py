#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/json.txt lists the members of every --json report; are they those of real reports?

    schemas.py --tersor PATH            check the list; exit 1 on a difference
    schemas.py --tersor PATH --update   write it anew

Reports are those of the commands in tests/frozen/cases and of COMMANDS below.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE.parent / "docs" / "json.txt"
HEAD = ("# Members of the JSON reports, by schema; ci.md says how to read a line.  tests/schemas.py --update writes "
        "this.\n")
sys.path[:0] = [str(HERE / "frozen"), str(HERE / "helpers")]

import inputs           # noqa: E402: of the frozen cases
import run as frozen    # noqa: E402
import signature_file   # noqa: E402

# What is not frozen: directories, speeds, deltas, reports with a baseline.  d/ is tests/data.
COMMANDS = """
version --json
bench --elements 64K --repeats 1 --json
bench --entropy --elements 64K --repeats 1 --json
bench --file-size 1M --repeats 1 --dir . --json
pack d/frameworks/trainer/checkpoint-30 -o p --json
pack d/frameworks/trainer/checkpoint-30 -o pd --delta p --json
inspect p --json
verify p --against d/frameworks/trainer/checkpoint-30 --json
unpack p -o u --json
diff p d/frameworks/trainer/checkpoint-30 --json
convert p -o c --entropy --json
diff p/optimizer.pt.tersor c/optimizer.pt.tersor --json
pack d/frameworks/quantized/bitsandbytes-int8.safetensors -o q --json
inspect d/frameworks/quantized/bitsandbytes-int8.safetensors --json
pack d/frameworks/states/bf16-model-fp32-master.pt -o m --json
pack d/tiny-gpt/checkpoint.pt -o base -q
pack d/tiny-gpt/checkpoint.pt --delta base -o delta --json
inspect delta --json
diff d/tiny-gpt/checkpoint.pt delta --steps 1 --json
pack d/tiny-gpt/checkpoint.pt -o x.safetensors.tersor --model x.safetensors -q
inspect x.safetensors.tersor --json
verify base none --json
convert delta -o plain --plain --json
convert d/tiny-gpt/recording -o r --entropy --json
pack x.safetensors -o w --only weights --delta x.safetensors --as bf16 --json
apply w x.safetensors -o y --json
store add s d/tiny-gpt/checkpoint.pt --step 1 --json
store add s d/tiny-gpt/checkpoint.pt --step 2 --tier 1e-2 --json
store ls s --json
store du s --json
store get s 1 -o sg --json
store diff s 1 2 --json
store verify s --json
store thin s --keep 1e-2:rest --json
store drop s 1 --json
audit d/tiny-gpt/checkpoint.pt --codec bf16,softsign8,sqrt8 --json=a
audit d/tiny-gpt/checkpoint.safetensors --codec bf16,softsign8,sqrt8 --baseline a --json
audit d/tiny-gpt/checkpoint.pt --codec bf16+ulp8,softsign8,sqrt8 --json
audit d/tiny-gpt/checkpoint.pt --table coat-1 --json
sweep --library to_bf16.so --symbol to_bf16_fast --last 0xffff --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --state flash,tight --steps 401..402 --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --zero-state --steps ..401 --hyper amsgrad=1 --hyper maximize=1 --hyper tensor_lr=1 --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --vary lr=1e-4 --vary beta2=0.9 --steps 401..402 --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --audit --steps 401..402 --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --signatures run/signatures.tsig --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --signatures other.tsig --order torch-cuda-fused --json
bisect run other.tsig --from d/tiny-gpt/checkpoint.pt --json
bisect ranks ranks --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --signatures lr.tsig --lr 1e-3 --steps ..402 --weight-decay 0.3 --json
bisect other.tsig lr.tsig --json
replay muon/1.safetensors muon --optimizer muon --lr 1e-3 --json
replay d/tiny-gpt/checkpoint.pt d/tiny-gpt/recording --weights bf16+sr4 --steps 401..402 --json
"""
# Objects whose members are a file's own, or codecs.
NAMED_BY_DATA = re.compile(r"(^|\.)(metadata|hyperparameters|choice\.tensors)$")


def add(value, place, schema):
    """Note the members of @value, which is at @place in a report, in @schema: {place: {member: None}}."""
    if isinstance(value, list):
        for item in value:
            add(item, f"{place}[]", schema)
    elif isinstance(value, dict) and not NAMED_BY_DATA.search(place):
        for name, member in value.items():
            schema[place].setdefault(name)
            add(member, f"{place}.{name}".lstrip("."), schema)


def merged(schema):
    """Objects that all members of an object are, with the same members, are one: worst.*"""
    places = dict(schema)
    for place, names in schema.items():
        inner = [tuple(sorted(schema.get(f"{place}.{name}", ()))) for name in names]
        if len(inner) > 2 and inner[0] and len(set(inner)) == 1:
            for name in names:
                del places[f"{place}.{name}"]
            places[f"{place}.*"] = inner[0]
    return places


def collect(tersor):
    """{schema: {place: members}} of all reports."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))

    def see(data):
        report = json.loads(data)
        if str(report.get("schema", "")).startswith("tersor."):
            add(report, "", found[report["schema"]])

    class Result(frozen.Result):
        def report(self, kind, data, name, into):
            if kind == "json":
                see(data)
            super().report(kind, data, name, into)

    frozen.Result = Result
    known = frozen.cases()
    frozen.run_all(tersor, frozen.selected(known, None)[1], known, None, os.cpu_count())
    with tempfile.TemporaryDirectory(prefix="schemas-") as scratch:
        os.symlink(HERE / "data", f"{scratch}/d")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", f"{scratch}/to_bf16.so",
                        HERE.parent / "examples" / "to_bf16.c"], check=True)
        shutil.copytree(HERE / "data" / "tiny-gpt" / "recording", f"{scratch}/run")
        os.mkdir(f"{scratch}/ranks")
        tensors = [("w", "weight", "F32", [1])]
        for rank in range(2):
            pathlib.Path(f"{scratch}/ranks/{rank}.tsig").write_bytes(
                signature_file.head(signature_file.of_tensors(tensors, 2, rank)) +
                signature_file.block(401, 0, [0.1], [bytes([rank + 1]) * 32]))
        os.mkdir(f"{scratch}/muon")
        pathlib.Path(f"{scratch}/muon/1.safetensors").write_bytes(
            inputs.safetensors({"w": ("F32", [2, 3], inputs.floats(6, 1))}))
        for command in COMMANDS.strip().splitlines():
            done = subprocess.run([tersor, *shlex.split(command)], cwd=scratch, capture_output=True)
            if done.returncode not in (0, 1) and not done.stdout:
                sys.exit(f"{command}: exit {done.returncode}\n{done.stderr.decode()}")
            if command.endswith("--json"):
                see(done.stdout)
    return {name: merged(schema) for name, schema in sorted(found.items())}


def listed(found):
    text = HEAD
    for name, schema in found.items():
        rows = [textwrap.fill(f"{place + ': ' if place else ''}{' '.join(sorted(names))}", 110,
                              initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
                for place, names in sorted(schema.items())]
        text += f"\n{name}\n" + "\n".join(rows) + "\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tersor", default="build/tersor", help="the program (default build/tersor)")
    parser.add_argument("--update", action="store_true", help="write the list anew")
    args = parser.parse_args()
    was, now = LIST.read_text(), listed(collect(os.path.abspath(args.tersor)))
    if args.update:
        LIST.write_text(now)
    elif now != was:
        lines = set(was.splitlines()) ^ set(now.splitlines())
        print(f"{LIST}: listed and reported differ; tests/schemas.py --update writes what is reported:")
        print("\n".join(sorted(lines)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
