"""The charts and the page of tersor audit: they show the figures of its report, and need nothing else."""
import csv
import html
import io
import json
import re
import subprocess
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from conftest import DATA, run_tersor, write_source
from page import Page
from test_sweep import LONG, browser

NS = "{http://www.w3.org/2000/svg}"
CHECKPOINT = DATA / "tiny-gpt" / "checkpoint.safetensors"


def draw(at, *args, check=0):
    files = {kind: at / f"audit.{kind}" for kind in ("json", "svg", "html")}
    done = run_tersor("audit", *args, *(f"--{kind}={path}" for kind, path in files.items()),
                      check=check)
    return {**files, "text": done.stdout}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("audit"), CHECKPOINT)


def shown(value, digits):
    """A figure as charts write it."""
    if value is None:
        return "\u221e"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}" if value > 0 else "0"


def panel(root, name):
    return next(g for g in root.iter(NS + "g") if g.get("data-panel") == name)


def titles(element):
    return [t.text.strip() for t in element.iter(NS + "title")]


def test_boxes_are_the_quantiles_of_the_report(made):
    root, got = ET.parse(made["svg"]).getroot(), json.loads(made["json"].read_text())
    got = got["checkpoints"][0]
    for kind in ("momentum", "variance", "weight"):
        codecs = [c for c in got["codecs"] if c["kind"] == kind]
        rows = [g for g in panel(root, kind).iter(NS + "g") if g.get("class") == "row"]
        assert len(rows) == len(codecs) > 5
        worst = {c["codec"]: max((t for t in got["tensors"] if t["kind"] == kind), key=lambda t: next(
            x["nmse"] for x in t["codecs"] if x["codec"] == c["codec"]))["name"] for c in codecs}
        for codec, words in zip(codecs, titles(panel(root, kind))):
            figures = ", ".join(f"{p}% {shown(q, 2)}" for p, q in
                                zip((0, 5, 25, 50, 75, 95, 100), codec["nmse"]))
            assert words == (f"{codec['codec']}, {codec['tensors']} tensors: {figures}; largest: "
                             f"{worst[codec['codec']]}")


def test_places_along_the_axis_are_logarithms(made):
    """Of the boxes' edges, medians, whiskers and ends: a decade is as wide as any other."""
    root, got = ET.parse(made["svg"]).getroot(), json.loads(made["json"].read_text())
    codecs = [c for c in got["checkpoints"][0]["codecs"] if c["kind"] == "momentum"]
    rows = [g for g in panel(root, "momentum").iter(NS + "g") if g.get("class") == "row"]
    x, logs = [], []
    for codec, row in zip(codecs, rows):
        whisker, box = row.find(f"{NS}line"), row.find(f"{NS}rect[@class='box']")
        ends = [float(re.match(r"translate\(([-\d.]+) ", p.get("transform"))[1])
                for p in row.iter(NS + "path")]
        left, width = float(box.get("x")), float(box.get("width"))
        median = row.find(f"{NS}line[@class='median']")
        x += [ends[0], float(whisker.get("x1")), left, float(median.get("x1")), left + width,
              float(whisker.get("x2")), ends[1]]
        logs += list(np.log10(codec["nmse"]))
    slope, offset = np.polyfit(logs, x, 1)
    assert slope > 0 and np.abs(slope * np.array(logs) + offset - x).max() < 0.11


def test_the_map_has_the_worst_error_of_each_pair_of_codecs(made):
    root, got = ET.parse(made["svg"]).getroot(), json.loads(made["json"].read_text())
    pairs = got["checkpoints"][0]["pairs"]
    cells = {}
    for cell in panel(root, "updates").iter(NS + "g"):
        title = cell.find(NS + "title")
        if title is not None:
            cells[title.text.split(",")[0]] = cell
    assert len(cells) == len(pairs) > 50
    for pair in pairs:
        cell = cells[f"{pair['momentum']} + {pair['variance']}"]
        assert cell.find(NS + "text").text == shown(pair["nmse"][6], 1)
        decade = np.ceil(np.log10(pair["nmse"][6])) + 5
        assert cell.get("class").split()[:2] == ["cell", f"q{int(np.clip(decade, 0, 6))}"]
    best = [name for name, cell in cells.items() if "best" in cell.get("class")]
    recommended = got["checkpoints"][0]["recommended"]
    assert best == [f"{recommended['momentum']} + {recommended['variance']}"]


def test_page_says_what_the_report_says_and_stands_alone(made):
    text = made["html"].read_text()
    page = Page(text)
    assert not re.search(r"(src=|href=|url\(|@import|https?:)", text.replace(
        "http://www.w3.org/2000/svg", ""))
    assert page.tags.count("svg") == 8 and page.tags.count("table") == 6
    got = json.loads(made["json"].read_text())["checkpoints"][0]
    recommended = got["recommended"]
    verdict = page.text.index(f"use {recommended['form']}: every update stays within")
    assert verdict < page.text.index(recommended["command"]) < page.text.index("Updates")
    rows = re.findall(r"<tr><td[^>]*>([^<]*)</td>", text[text.index("Worst tensors"):
                                                         text.index("Pairs of codecs")])
    best = recommended["momentum"], recommended["variance"]
    errors = {u["momentum"]: next(c["nmse"] for c in u["codecs"]
                                  if (c["momentum"], c["variance"]) == best)
              for u in got["updates"]}
    assert rows == [n.removesuffix(".exp_avg") for n in sorted(errors, key=errors.get, reverse=True)]


def test_the_table_of_pairs_says_its_order(made):
    pairs = json.loads(made["json"].read_text())["checkpoints"][0]["pairs"]
    text = made["html"].read_text()
    table = text[text.index("NMSE of updates, the smallest worst error first."):]
    shown = re.findall(r"<tr><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)</td>", table[:table.index("</table>")])
    assert [(m.split()[0], v.split()[0]) for m, v in shown] == [(p["momentum"], p["variance"]) for p in pairs]
    worst = [p["nmse"][6] for p in pairs if not p["raw"]]
    assert worst == sorted(worst)


def test_drawings_do_not_depend_on_threads(tmp_path):
    made = []
    for threads in (1, 3):
        (tmp_path / str(threads)).mkdir()
        files = draw(tmp_path / str(threads), "-j", threads, CHECKPOINT)
        made.append([files[kind].read_bytes() for kind in ("svg", "html")])
    assert made[0] == made[1]


# ---- several checkpoints --------------------------------------------------------------------------

def test_curves_are_the_worst_errors_of_each_checkpoint(tmp_path):
    last = CHECKPOINT.with_name("expected-adamw-fp32.safetensors")
    made = draw(tmp_path, "--steps", CHECKPOINT, last, CHECKPOINT)
    got = json.loads(made["json"].read_text())["checkpoints"]
    found = panel(ET.parse(made["svg"]).getroot(), "checkpoints")
    names = [t.text for t in found.iter(NS + "text") if t.get("class") == "key"]
    curves = [g for g in found.iter(NS + "g") if re.match(r"s\d", g.get("class", ""))
              and len(g.findall(NS + "path")) == 4]
    assert len(names) == len(curves) == 4 and names[1] == "softsign8 + sqrt8"
    y, logs = [], []
    for name, curve in zip(names, curves):
        points = re.findall(r"[ML]([-0-9.]+) ([-0-9.]+)", curve.find(NS + "path").get("d"))
        y += [float(at) for _, at in points]
        for checkpoint in got:
            logs.append(np.log10(next(p["nmse"][6] for p in checkpoint["pairs"]
                                      if f"{p['momentum']} + {p['variance']}" == name)))
    slope, offset = np.polyfit(logs, y, 1)
    assert slope < 0 and np.abs(slope * np.array(logs) + offset - y).max() < 0.11
    page = Page(made["html"].read_text())
    assert page.tags.count("table") == 7 and f"2{last}" in page.text


# ---- other checkpoints ----------------------------------------------------------------------------

def test_names_cannot_harm_drawings(tmp_path):
    name = '<script>alert(1)</script>&"quoted"\x1b[31m\u202e'
    x = np.random.default_rng(1).standard_normal((8, 64))
    made = draw(tmp_path, write_source(tmp_path / "x.safetensors", {
        name: x, name + ".exp_avg": x / 10, name + ".exp_avg_sq": x * x / 100}))
    page = made["html"].read_text()
    assert "<script>alert" not in page and page.count("<script") == 1 and not re.search("[\x1b\u202e]", page + made["svg"].read_text())
    Page(page)
    assert any("alert(1)" in t for t in titles(ET.parse(made["svg"]).getroot()))


def test_checkpoints_without_states_or_with_faults_are_drawn(tmp_path):
    x = np.random.default_rng(2).standard_normal((8, 64))
    weights = draw(tmp_path, write_source(tmp_path / "w.safetensors", {"w": x}))
    root = ET.parse(weights["svg"]).getroot()
    assert [g.get("data-panel") for g in root.iter(NS + "g") if g.get("data-panel")] == ["weight"]
    assert "Worst tensors" not in Page(weights["html"].read_text()).text
    bad = x.copy()
    bad[0, 0] = np.nan
    spoilt = draw(tmp_path, write_source(tmp_path / "b.safetensors", {"w": x, "bad": bad}), check=1)
    assert "bad: 1 values are not finite" in Page(spoilt["html"].read_text()).text


def test_every_chart_of_the_page_has_a_sentence(made):
    text, got = made["html"].read_text(), json.loads(made["json"].read_text())["checkpoints"][0]
    wide = text[text.index('<div class="chart wide">'):text.index('<div class="chart narrow">')]
    assert [bool(re.match(r"</svg>\n<p>.*</p>\n", wide[m.start():])) for m in re.finditer("</svg>", wide)] == [True] * 4
    fine = sum(pair["nmse"][6] < 1e-3 for pair in got["pairs"])
    assert f"<p>{fine} of {len(got['pairs'])} pairs are fine" in wide
    for kind, room in (("momentum", 1.2), ("variance", 1.2), ("weight", 3.2)):
        codecs = [c for c in got["codecs"] if c["kind"] == kind and c["bytes"] <= room]
        best = min(codecs, key=lambda c: c["nmse"][6])
        assert f"<p>In at most {room} bytes {best['codec']} is nearest to every tensor" in wide


# In a browser: what the links give, and that the page fits.
LINKS = """
const given = [];
URL.createObjectURL = blob => { blob.text().then(t => given.push([blob.type, t])); return "#"; };
for (const link of document.querySelectorAll("a.get"))
	link.click();
setTimeout(() => {
	const pre = document.createElement("pre"), root = document.documentElement;
	pre.id = "said";
	pre.textContent = JSON.stringify({ given, fits: root.scrollWidth <= root.clientWidth,
		cut: [...document.querySelectorAll(".scroll")].filter(s => s.scrollWidth > s.clientWidth).length });
	document.body.append(pre);
}, 100);
"""


@pytest.mark.skipif(not browser() and not LONG, reason="no Chromium; check-long installs it")
def test_tables_are_taken_along_as_csv_and_json(made, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(made["html"].read_text().replace("</body>", f"<script>{LINKS}</script></body>"))
    done = subprocess.run([browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000",
                           f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000", "--dump-dom",
                           page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    said = json.loads(html.unescape(re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.S)[1]))
    tables = [list(csv.reader(io.StringIO(text))) for kind, text in said["given"] if kind == "text/csv"]
    assert said["fits"] and said["cut"] == 0 and len(tables) == 6
    assert json.loads(next(text for kind, text in said["given"] if kind == "application/json")) == tables
    marked = [text.splitlines() for kind, text in said["given"] if kind == "text/markdown"]
    assert [[line.strip("| ").split(" | ") for line in lines if "---" not in line][1][:2] for lines in marked] == \
        [table[1][:2] for table in tables]
    form = json.loads(made["json"].read_text())["checkpoints"][0]["forms"][0]
    assert tables[0][1][:2] == [form["form"], form["grade"]] and float(tables[0][1][3]) == pytest.approx(
        form["update_nmse"], rel=0.01)
