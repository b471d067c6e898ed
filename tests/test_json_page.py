"""docs/json.txt: the schemas of all JSON reports, as tests/schemas.py finds them, and the dataclasses made of them."""
import dataclasses
import os
import re
import subprocess
import sys
import typing

import pytest

from conftest import BINARY, DATA, ROOT

sys.path.insert(0, str(ROOT / "packaging" / "wheel"))
os.environ["TERSOR"] = os.path.abspath(BINARY)

import tersor                       # noqa: E402: of the tree
from tersor import reports          # noqa: E402

LIST = (ROOT / "docs" / "json.txt").read_text()
OURS = {"json", "passed", "warnings", "message"}    # no members


def test_every_member_of_every_schema_is_reported_and_listed():
    done = subprocess.run([sys.executable, ROOT / "tests" / "schemas.py", "--tersor", BINARY], capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", sorted((ROOT / "man").glob("tersor-*.1")), ids=lambda page: page.stem)
def test_members_of_a_man_page_are_in_the_list_of_schemas(page):
    section = re.search(r"^\.Sh JSON\n(.*?)(?=^\.Sh )", page.read_text(), re.M | re.S)
    named = set(re.findall(r"^\.It Va ([\w-]+)", section[1], re.M)) if section else set()
    command = page.stem.removeprefix("tersor-")
    lists = re.findall(rf"^tersor\.{command}(?:-\w+)?\.v1\n((?:    .*\n)*)", LIST, re.M)
    assert named <= set(re.sub(r"^ +\S+: ", "", "".join(lists), flags=re.M).split())


# ---- Dataclasses of the Python package --------------------------------------------------------------------------

def listed(command):
    """{place: members} of all reports of a command."""
    found = {}
    for text in re.findall(rf"^tersor\.{command}(?:-directory)?\.v1\n((?:    .*\n)*)", LIST, re.M):
        for line in re.sub(r"\n {8,}", " ", text).split("\n"):
            place, _, names = line.rpartition(": ")
            found.setdefault(place.strip(), set()).update(names.split())
    return found


def parts(hint):
    """What a field is made of, and how that is written behind its place."""
    inner = typing.get_args(hint)
    if type(None) in inner:
        return parts(inner[0])
    return (inner[-1], ".*" if len(inner) > 1 else "[]") if inner else (hint, "")


def test_every_field_of_a_dataclass_is_a_member():
    """Of the reports of a command that it is for; a class of parts may have those of several."""
    found = {}

    def check(kind, place, places):
        for name, hint in typing.get_type_hints(kind).items():
            if name in OURS:
                continue
            inner, how = parts(hint)
            found[kind.__name__, name] = found.get((kind.__name__, name), False) or name in places.get(place, ())
            if dataclasses.is_dataclass(inner):
                check(inner, f"{place}.{name}{how}".lstrip("."), places)
    for command, kind in reports.REPORTS.items():
        check(kind, "", listed(command))
    assert [field for field, is_member in found.items() if not is_member] == []


def is_a(hint, value):
    """Whether a value has the type of a field; whole numbers are floats, too."""
    inner = typing.get_args(hint)
    if type(None) in inner:
        return value is None or is_a(inner[0], value)
    if inner:
        items = value.values() if isinstance(value, dict) else value
        return isinstance(value, typing.get_origin(hint)) and all(is_a(inner[-1], each) for each in items)
    if dataclasses.is_dataclass(hint):
        return type(value) is hint and all(is_a(each, getattr(value, name))
                                           for name, each in typing.get_type_hints(hint).items() if name != "json")
    return isinstance(value, (int, float) if hint is float else hint)


def test_members_of_real_reports_have_the_types_of_the_fields(tmp_path):
    gpt, folder = DATA / "tiny-gpt" / "checkpoint.pt", DATA / "frameworks" / "trainer" / "checkpoint-30"
    packed, directory = tmp_path / "packed", tmp_path / "directory"
    made = [tersor.pack(gpt, packed), tersor.pack(folder, directory), tersor.unpack(packed, tmp_path / "back"),
            tersor.inspect(packed), tersor.inspect(directory), tersor.verify(packed, against=gpt),
            tersor.verify(directory, against=folder), tersor.diff(packed, gpt), tersor.diff(directory, folder),
            tersor.audit(gpt), tersor.convert(gpt, tmp_path / "c", to="safetensors"),
            tersor.replay(gpt, DATA / "tiny-gpt" / "recording", state="flash,tight", steps="401..402")]
    for report in made:
        assert is_a(type(report), report), report["schema"]
    pack, audit, replay = made[0], made[-3], made[-1]
    assert pack.totals.parameters == pack["totals"]["parameters"] == 84288 and pack.by_kind[0].kind == "weight"
    assert {raw.why for raw in pack.kept_raw} == {"dtype", "other"}
    assert pack.tensors[3].error.nmse == pack.tensors[3].error["nmse"] == pack["tensors"][3]["error"]["nmse"] > 0
    assert audit.checkpoints[0].recommended.form == "ratio8/sqrt8" in [f.form for f in audit.checkpoints[0].forms]
    assert [state.name for state in replay.states] == [each["name"] for each in replay["states"]]
    assert replay.states[0].worst["weight-nmse"].value >= 0
    assert made[1].files[0].path and made[6].files[0].fault is None
