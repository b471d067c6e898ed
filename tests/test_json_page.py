"""docs/json.txt: the schemas of all JSON reports, as tests/schemas.py finds them in reports."""
import re
import subprocess
import sys

import pytest

from conftest import BINARY, ROOT

LIST = (ROOT / "docs" / "json.txt").read_text()


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
