"""Figures of README.md and NEWS.md stand in the pages that their sentence or row links; charts are their data's."""
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from test_pages import anchors

UNITS = (r"GB|MB|kB|MiB|GiB|ms|s|%|B|bytes?|bits|billion|M|T|x|times|parameters|checkpoints|(?:optimizer )?classes|codecs|steps|"
         r"seeds|threads|cores|minutes|libraries|tensors")
# A decimal number; or a whole one with a unit behind it. Names such as bf16 and 1.0.0 are no figures.
FIGURE = re.compile(rf"(?<![\w.^/-])(?:\d[\d,]*\.\d+(?:e-?\d+)?(?![\w.]*\.\d|\w)|\de-\d+\b|"
                    rf"\d[\d,]*[ \n](?:{UNITS})\b)")


def paragraphs(text):
    """Sentences that belong together: a paragraph, a row of a table, an item of a list. Not code, nor headings."""
    text = re.sub(r"^```.*?^```\n", "\n", text, flags=re.M | re.S)
    found = []
    for block in re.split(r"\n\s*\n|\n(?=\| |- )", text):
        if block.strip() and not block.startswith("#") and not re.match(r"\[\w+\]: ", block):
            found.append(" ".join(block.split()))
    return found


def named(text):
    """What [word]: page at the end of a page gives."""
    return dict(re.findall(r"^\[(\w+)\]: (\S+)$", text, re.M))


def section(link):
    """What a link leads to: a page, or one of its sections."""
    name, _, anchor = link.partition("#")
    page = ROOT / name
    text = page.read_text()
    if not anchor:
        return text
    assert anchor in anchors(page), link
    for part in re.split(r"^(?=#+ )", text, flags=re.M):
        heading = re.sub(r"[^\w\- ]", "", part.split("\n")[0].lstrip("# ").lower()).replace(" ", "-")
        if heading == anchor:
            return part
    raise AssertionError(link)


def links(paragraph, names):
    found = re.findall(r"\]\(((?:docs/)[^)]*)\)", paragraph)
    return found + [names[n] for n in re.findall(r"\]\[(\w+)\]", paragraph)]


def has(text, figure):
    return re.search(rf"(?<![\w.]){re.escape(figure)}(?![\d]|[.,]\d)", " ".join(text.split())) is not None


def figures_of(name):
    """[(figure, paragraph, pages)]."""
    text = (ROOT / name).read_text()
    names, found = named(text), []
    for paragraph in paragraphs(text):
        pages = links(paragraph, names)
        said = re.sub(r"\]\([^)]*\)|`[^`]*`", " ", paragraph)
        found += [(figure, paragraph, pages) for figure in FIGURE.findall(said)]
    return found


def missing(figures, elsewhere=()):
    """Those that are in no page that is linked, or without a link in no page of all."""
    return [(figure, paragraph[:80]) for figure, paragraph, pages in figures
            if not any(has(section(page), figure) for page in pages or elsewhere)]


def test_figures_of_readme_are_in_the_pages_it_links():
    figures = figures_of("README.md")
    assert len(figures) > 25
    assert not missing(figures)


def test_figures_of_news_are_in_the_pages():
    every = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))]
    assert not missing(figures_of("NEWS.md"), every)


def test_another_figure_would_be_found_missing():
    """With another last digit all but a few are in no linked page."""
    others = [(re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 5) % 10), figure), *rest)
              for figure, *rest in figures_of("README.md")]
    assert len(missing(others)) > 0.85 * len(others)


def test_chart_of_sizes_is_that_of_its_table():
    done = subprocess.run([sys.executable, ROOT / "tests" / "gen" / "size_chart.py", ROOT / "docs" / "codecs.md"],
                          check=True, capture_output=True, text=True)
    assert done.stdout == (ROOT / "docs" / "size.svg").read_text()
    assert len(re.findall("lossy|lossless", done.stdout)) == 5
    caption = re.search(r"!\[([^\]]*)\]\(docs/size.svg\)", (ROOT / "README.md").read_text())[1]
    figures = FIGURE.findall(caption)
    assert len(figures) == 4 and all(f">{figure}<" in done.stdout for figure in figures)


@pytest.mark.parametrize("page, title", [("codecs.md", "Other programs"), ("internals/performance.md", "Files"),
                                         ("internals/performance.md", "Coded planes"),
                                         ("internals/performance.md", "Replays"), ("resume.md", "How to make it again")])
def test_page_of_a_figure_names_its_command(page, title):
    text = (ROOT / "docs" / page).read_text()
    begin = re.search(rf"^(## |\*\*){re.escape(title)}", text, re.M).start()
    assert re.search(r"`?(tersor|make|tests/gen/\w+\.py) ", text[begin:begin + 1200])


def test_chart_of_low_rates_is_that_of_its_table():
    page = ROOT / "docs" / "resume.md"
    done = subprocess.run([sys.executable, ROOT / "tests" / "gen" / "low_rate_chart.py", page], check=True,
                          capture_output=True, text=True)
    assert done.stdout == (ROOT / "docs" / "low-rate.svg").read_text()
    section = re.search(r"^## Low learning rates\n(.*?)^## ", page.read_text(), re.M | re.S)[1]
    forms = re.findall(r"^\| [`r]", section, re.M)
    assert len(forms) == 7 and done.stdout.count("<circle") == 1 + len(forms)
