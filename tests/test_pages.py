"""Pages of documentation: the commands of the tour and the README print what they show; tables are their data's."""
import filecmp
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from conftest import BINARY, DATA, ROOT
from sessions import check_sessions

TRAINER = DATA / "frameworks" / "trainer"
DOCS = ROOT / "docs"


def test_tour(tmp_path):
    """docs/tour.md, and the charts in it."""
    for name in ("checkpoint-30", "recording"):
        shutil.copytree(TRAINER / name, tmp_path / name)
    check_sessions(DOCS / "tour.md", tmp_path)
    for name in ("audit.svg", "states.svg"):
        if os.environ.get("TERSOR_REFRESH"):
            shutil.copy(tmp_path / name, DOCS / "tour")
        assert filecmp.cmp(tmp_path / name, DOCS / "tour" / name, shallow=False), name


def test_readme(tmp_path):
    """Every command that README shows with its output."""
    shutil.copytree(TRAINER / "checkpoint-30", tmp_path / "checkpoint-30")
    shutil.copytree(TRAINER / "recording", tmp_path / "recording")
    for name in ("checkpoint.pt", "checkpoint.safetensors"):
        shutil.copy(DATA / "tiny-gpt" / name, tmp_path)
    check_sessions(ROOT / "README.md", tmp_path)


@pytest.mark.parametrize("page, program", [("resume.md", ["gen/resume_tables.py", "docs/resume"]),
                                           ("resume.md", ["gen/series_tables.py", "docs/series/study.csv"])])
def test_tables_are_those_of_the_data(page, program):
    script, *args = program
    done = subprocess.run([sys.executable, ROOT / "tests" / script, *args], cwd=ROOT, check=True, text=True,
                          stdout=subprocess.PIPE)
    tables = [t for t in re.split(r"\n(?=\n\*\*)", done.stdout) if t.strip()]
    assert len(tables) > 1
    text = (DOCS / page).read_text()
    for table in tables:
        assert table.strip() in text, table


def test_the_chart_of_a_series_is_its_datas(tmp_path):
    subprocess.run([sys.executable, ROOT / "tests/gen/series_tables.py", DOCS / "series/study.csv", "--figure",
                    tmp_path / "series.svg"], check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "series.svg").read_text() == (DOCS / "series.svg").read_text()


def anchors(page):
    """What links to a heading of the page are called."""
    headings = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_of_the_pages_lead_somewhere():
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), ROOT / "tests" / "README.md"]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            found = page.parent / pathlib.PurePosixPath(target) if target else page
            assert found.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(found), f"{page.name}: {target}#{anchor}"


def test_demo_shows_what_readme_shows():
    """make demo packs the checkpoint of README, with the same commands."""
    done = subprocess.run(["sh", ROOT / "tests" / "demo.sh", BINARY], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    session = re.search(r"^```\n(\$ tersor pack .*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)[1]
    commands = re.findall(r"^(\$ tersor .*)$", session, re.M)
    assert len(commands) == 3 and all(f"{command}\n" in done.stdout for command in commands)
    for line in session.splitlines():
        assert line == "..." or f"{line}\n" in done.stdout, line
