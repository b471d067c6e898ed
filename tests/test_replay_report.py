"""What tersor replay --compare reports: every figure against a replay in numpy, and the forms that
reports have."""
import csv
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import oracle
import pytest
import replay_model as model
from safetensors import safe_open
from conftest import DATA, one_line_error, run_tersor, write_source
from faults import LONG
from page import Page
from test_replay_model import GPT, MANIFEST, SUFFIX, load, recorded_hyper

F32 = np.float32
CHECKPOINT, RECORDING = GPT / "checkpoint.safetensors", GPT / "recording"
FIGURES = ("weight-ulp", "weight-nmse", "weight-cosine", "momentum-nmse", "variance-nmse",
           "momentum-quant", "variance-quant", "update-nmse", "update-quant", "update-norm",
           "stalled", "underflow", "variance-lost")


def replay(*args, **kwargs):
    return run_tersor("replay", *args, **{"check": 0, **kwargs})


def report(*args, **kwargs):
    return json.loads(replay(*args, "--compare", "fp32", "--json", **kwargs).stdout)


# ---- figures against numpy ----------------------------------------------------------------------

def nmse(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    error, norm = ((x - y) ** 2).sum(), (x * x).sum()
    return error / norm if norm else (np.inf if error else 0.0)


def positions(x):
    b = oracle.bits(x).astype(np.int64)
    return np.where(b >> 31, -(b & 0x7FFFFFFF), b)


def shapes():
    with safe_open(CHECKPOINT, "numpy") as f:
        return {name: tuple(f.get_slice(name).get_shape()) for name in f.keys()}


def lost_groups(x, plane, group, row):
    """Groups that are not all 0 and whose scale is; @row: elements of a row that they follow."""
    x = x.reshape(-1, row) if row else x.reshape(1, -1)
    padded = np.zeros((len(x), plane.size // len(x) * group), F32)
    padded[:, :x.shape[1]] = x
    return int((padded.reshape(-1, group).any(1) & (plane == 0)).sum())


class Step:
    """One tensor at one step, or several joined."""
    def __init__(self, fp32_before, fp32, before, stepped, after, underflow):
        self.fp32_before, self.fp32, self.before = fp32_before, fp32, before
        self.stepped, self.after, self.underflow = stepped, after, underflow

    @classmethod
    def join(cls, steps):
        def joined(which):
            return {part: np.concatenate([getattr(s, which)[part] for s in steps])
                    for part in getattr(steps[0], which)}
        return cls(*map(joined, ("fp32_before", "fp32", "before", "stepped", "after")),
                   sum(s.underflow for s in steps))

    def figures(self):
        w, x = self.after["weight"], self.fp32["weight"]
        step = x - self.fp32_before["weight"]
        computed, stored = (s["weight"] - self.before["weight"] for s in (self.stepped, self.after))
        wd, xd = w.astype(np.float64), x.astype(np.float64)
        out = {"weight-ulp": int(np.abs(positions(w) - positions(x)).max()),
               "weight-nmse": nmse(x, w),
               "weight-cosine": wd @ xd / np.sqrt((wd @ wd) * (xd @ xd)),
               "update-nmse": nmse(step, computed), "update-quant": nmse(computed, stored),
               "update-norm": np.sqrt((stored.astype(np.float64) ** 2).sum()),
               "stalled": int(((self.stepped["weight"] != self.before["weight"])
                               & (w == self.before["weight"])).sum())}
        for part in ("momentum", "variance"):
            if part in self.fp32:
                out[f"{part}-nmse"] = nmse(self.fp32[part], self.after[part])
                out[f"{part}-quant"] = nmse(self.stepped[part], self.after[part])
                out["underflow"] = self.underflow
        if "variance" in self.fp32:
            out["variance-lost"] = int(((self.stepped["variance"] != 0)
                                        & (self.after["variance"] == 0)).sum())
        return out


def trajectory(name, start, grads, codings, optimizer, hyper_of, fresh):
    """Both replays of one tensor; -> Step per step"""
    fp32 = {part: np.zeros_like(start[name]) if fresh and part != "weight" else
            start[name + suffix] for part, suffix in SUFFIX.items() if part in codings}
    shape = shapes()[name]
    planes = model.pack(codings, fp32, shape=shape)
    for i, g in enumerate(grads):
        t = i + 1 if fresh else MANIFEST["steps"][i]["step"]
        before, fp32_before = model.unpack(codings, planes), fp32
        fp32 = model.step(optimizer, hyper_of(i, name), t, fresh and i == 0, g[name], fp32)
        stepped = model.step(optimizer, hyper_of(i, name), t, fresh and i == 0, g[name], before)
        planes = model.pack(codings, stepped, shape=shape)
        group, scale = codings.get("momentum", (None, 32, "e8m8"))[1:]
        size = oracle.row_group(shape, group, scale)
        yield Step(fp32_before, fp32, before, stepped, model.unpack(codings, planes),
                   sum(lost_groups(stepped[part], planes[part]["::scales"], size or group,
                                   size and shape[-1])
                       for part in ("momentum", "variance") if part in codings))


def expected(codings, nsteps, optimizer="adamw", hyper_of=recorded_hyper, fresh=False):
    """-> [{tensor or "*": figures} for each step]"""
    start = load("checkpoint.safetensors")
    grads = [load(f"recording/{s['file']}") for s in MANIFEST["steps"][:nsteps]]
    steps = {name: list(trajectory(name, start, grads, codings, optimizer, hyper_of, fresh))
             for name in grads[0]}
    out = [{name: s[i].figures() for name, s in steps.items()} for i in range(nsteps)]
    for i, figures in enumerate(out):
        figures["*"] = Step.join([s[i] for s in steps.values()]).figures()
    return out


def check_figures(got, want, where):
    assert set(got) == set(want), where
    for figure, value in want.items():
        if isinstance(value, int) or not np.isfinite(value):
            assert got[figure] == (value if np.isfinite(value) else None), (where, figure)
        else:
            # The sums are of differences that were rounded to FP32.
            assert got[figure] == pytest.approx(value, rel=2e-6, abs=1e-30), (where, figure)


def check_report(got, want):
    steps = got["steps"]
    assert [s["step"] for s in steps] == [s["step"] for s in MANIFEST["steps"][:len(want)]]
    for i, figures in enumerate(want):
        check_figures(steps[i]["total"], figures["*"], (i, "*"))
        for tensor in got["tensors"]:
            mine = {f: tensor[f][i] for f in FIGURES if f in tensor}
            check_figures(mine, figures[tensor["name"]], (i, tensor["name"]))
    assert {t["name"] for t in got["tensors"]} == set(want[0]) - {"*"}


def flash(scale="e8m8", weights="bf16+ulp8", momentum="softsign8", variance="sqrt8"):
    return {"weight": (weights, 1, scale), "momentum": (momentum, 32, scale),
            "variance": (variance, 32, scale)}


@pytest.mark.parametrize("codings, nsteps", [
    (flash(), 16 if LONG else 6), (flash("f16"), 6), (flash(variance="ulinear8"), 6),
    (flash("f16", "bf16", "linear8", "ulinear8"), 4), (flash("f32", "bf16+exact16"), 4)])
def test_figures_against_numpy(codings, nsteps):
    names = [codec for codec, _, _ in codings.values()]
    got = report(CHECKPOINT, RECORDING, "--steps", f"..{400 + nsteps}", "--weights", names[0],
                 "--momentum", names[1], "--variance", names[2], "--scale", codings["weight"][2])
    check_report(got, expected(codings, nsteps))


def test_figures_of_lion():
    """From no momentum, and without a variance."""
    codings = {"weight": ("bf16+ulp8", 1, "e8m8"), "momentum": ("softsign8", 32, "f32")}
    got = report(CHECKPOINT, RECORDING, "--optimizer", "lion", "--zero-state", "--lr", "1e-4",
                 "--betas", "0.9,0.99", "--weight-decay", "0.1", "--state", "flash", "--steps",
                 "..405")
    check_report(got, expected(codings, 5, "lion", fresh=True,
                               hyper_of=lambda i, name: model.hyper("lion", lr=1e-4,
                                                                    weight_decay=0.1)))
    assert "variance" not in got["state"]


def test_two_replays_in_fp32_are_the_same():
    got = report(CHECKPOINT, RECORDING, "--state", "fp32")
    for step in got["steps"]:
        norm = step["total"].pop("update-norm")
        assert norm > 0 and step["total"].pop("weight-cosine") == 1
        assert not any(step["total"].values())
    assert replay(CHECKPOINT, RECORDING, "--state", "fp32", "--max-error", "weight-ulp=0").stdout


def test_reports_do_not_depend_on_threads(tmp_path):
    for threads in (1, 2, 3):
        files = [f"--{kind}={tmp_path / f'{kind}{threads}'}" for kind in
                 ("json", "csv", "svg", "html")]
        replay(CHECKPOINT, RECORDING, "--state", "flash", "--compare", "fp32", "-qq", *files,
               "-j", threads)
    for kind in ("json", "csv", "svg", "html"):
        one = (tmp_path / f"{kind}1").read_bytes()
        assert one and all((tmp_path / f"{kind}{n}").read_bytes() == one for n in (2, 3))


# ---- forms of the report ------------------------------------------------------------------------

@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All reports of a linear state, which diverges: {kind: path}, and the text."""
    at = tmp_path_factory.mktemp("reports")
    files = {kind: at / f"replay.{kind}" for kind in ("json", "csv", "svg", "html")}
    done = replay(CHECKPOINT, RECORDING, "--state", "flash", "--variance", "ulinear8", "--scale",
                  "f16", "--compare", "fp32", *(f"--{kind}={path}" for kind, path in files.items()))
    return {**files, "text": done.stdout}


def test_json_is_complete(made):
    got = json.loads(made["json"].read_text())
    assert got["schema"] == "tersor.replay.v1" and got["optimizer"] == "adamw"
    assert got["state"]["variance"] == {"codec": "ulinear8", "scale": "f16", "group": 32}
    assert got["parameters"] == sum(t["elements"] for t in got["tensors"]) == 84288
    assert [g["weight_decay"] for g in got["groups"]] == [0.1, 0]
    assert [s["lr"] for s in got["steps"]] == [
        [float(f"{lr:.9g}") for lr in s["lr"]] for s in MANIFEST["steps"]]
    for figure, worst in got["worst"].items():
        pick = min if figure == "weight-cosine" else max
        series = {t["name"]: t[figure] for t in got["tensors"]}
        assert worst["value"] == pick(v for values in series.values() for v in values)
        assert series[worst["tensor"]][worst["step"] - 401] == worst["value"]
    assert set(got["worst"]) == set(FIGURES)
    assert [f["level"] for f in got["findings"]] == ["bad"] * 3


def test_csv_says_what_json_says(made):
    got = json.loads(made["json"].read_text())
    rows = list(csv.DictReader(made["csv"].read_text().splitlines()))
    tensors = {t["name"]: t for t in got["tensors"]}
    assert len(rows) == 16 * (len(tensors) + 1) and set(rows[0]) == {"step", "tensor", *FIGURES}
    for row in rows:
        i = int(row["step"]) - 401
        for figure in FIGURES:
            want = (got["steps"][i]["total"][figure] if row["tensor"] == "*" else
                    tensors[row["tensor"]][figure][i])
            assert float(row[figure]) == want


def test_text_fits_and_makes_the_divergence_plain(made):
    text = made["text"]
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    worst = json.loads(made["json"].read_text())["worst"]["update-nmse"]
    assert worst["value"] > 1000
    assert "bad The replay has diverged from FP32 in 3 of 29 tensors" in words
    assert f"Worst is {worst['tensor']} at step {worst['step']}" in words
    assert "bad ulinear8 stores variances as 0 that are not" in words
    flash_text = replay(CHECKPOINT, RECORDING, "--state", "flash", "--compare", "fp32").stdout
    assert "diverged" not in flash_text and "underflow" not in flash_text


def test_text_makes_underflow_of_scales_plain():
    figures = expected(flash("f16"), 1)[0]
    groups = figures["*"]["underflow"]
    done = replay(CHECKPOINT, RECORDING, "--state", "flash", "--scale", "f16", "--steps", "..401",
                  "--compare", "fp32")
    words = " ".join(done.stdout.split())
    assert groups > 0
    assert f"Scales underflow: at step 401 {groups} of 5284 groups" in words
    named = {line.split()[-1]: int(line.split()[0]) for line in done.stdout.split(
        "groups lost")[1].split("\n\n")[0].splitlines()[1:]}
    assert named == {name: f["underflow"] for name, f in figures.items()
                     if f["underflow"] and name != "*"}


def panels(root):
    return [e for e in root.iter() if e.get("class") == "panel"]


def test_svg_is_well_formed(made):
    root = ET.parse(made["svg"]).getroot()
    ns = "{http://www.w3.org/2000/svg}"
    assert root.tag == ns + "svg" and len(panels(root)) == 9
    for panel in panels(root):
        lines = [g for g in panel.iter(ns + "g") if g.get("class") in ("all", "worst")]
        assert len(lines) == 2
        for line in lines:
            path = line.find(ns + "path").get("d")
            points = re.findall(r"[ML]([-0-9.]+) ([-0-9.]+)", path)
            assert len(points) == 16
            assert all(float(panel.get("data-left")) <= float(x) <= float(panel.get("data-right"))
                       and float(panel.get("data-top")) <= float(y) <=
                       float(panel.get("data-bottom")) for x, y in points)


def test_heights_are_logarithms(made):
    """Of the update's error: a decade is as high as any other."""
    root, got = ET.parse(made["svg"]).getroot(), json.loads(made["json"].read_text())
    ns = "{http://www.w3.org/2000/svg}"
    panel = panels(root)[2]
    assert "".join(panel.find(ns + "text").itertext()).startswith("Update error")
    path = next(g for g in panel.iter(ns + "g") if g.get("class") == "all").find(ns + "path")
    y = [float(y) for _, y in re.findall(r"[ML]([-0-9.]+) ([-0-9.]+)", path.get("d"))]
    logs = np.log10([s["total"]["update-nmse"] for s in got["steps"]])
    slope, offset = np.polyfit(logs, y, 1)
    assert slope < 0 and np.abs(slope * logs + offset - y).max() < 0.11


def test_page_stands_alone(made):
    text = made["html"].read_text()
    page = Page(text)
    assert not re.search(r"(src=|href=|url\(|@import|https?:)", text.replace(
        "http://www.w3.org/2000/svg", ""))
    assert page.tags.count("svg") == 2 and page.tags.count("table") == 2
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))
    assert data["first"] == 401 and data["n"] == 16 and len(data["panels"]) == 9
    got = json.loads(made["json"].read_text())
    update = next(p for p in data["panels"] if p["title"] == "Update error")
    for i, step in enumerate(got["steps"]):
        assert update["total"][i] == pytest.approx(step["total"]["update-nmse"], rel=1e-3)
        worst = data["names"][update["tensor"][i]]
        series = {t["name"]: t["update-nmse"][i] for t in got["tensors"]}
        assert series[worst] == max(series.values())
    assert "The replay has diverged from FP32" in page.text


# ---- other replays ------------------------------------------------------------------------------

def make(at, nsteps, names=("a.weight", "b.weight"), spoil=()):
    """A checkpoint and a directory of gradients; the steps in `spoil` have a NaN."""
    rng = np.random.default_rng(6)
    state = {}
    for name in names:
        state[name] = rng.standard_normal((8, 40)).astype(F32)
        state[name + ".exp_avg"] = 1e-3 * rng.standard_normal((8, 40)).astype(F32)
        state[name + ".exp_avg_sq"] = 1e-6 * rng.random((8, 40)).astype(F32)
    write_source(at / "start.safetensors", state)
    (at / "grads").mkdir()
    for i in range(1, nsteps + 1):
        grads = {name: 1e-3 * rng.standard_normal((8, 40)).astype(F32) for name in names}
        if i in spoil:
            grads[names[0]][0, 0] = np.nan
        write_source(at / "grads" / f"step-{i:05}.safetensors", grads)
    return ["--optimizer", "adamw", "--lr", "1e-3", at / "start.safetensors", at / "grads"]


def rows_of(text):
    """Of the table of steps."""
    return [line for line in text.splitlines() if re.match(r" *\d+ +\d\.\d\de", line)]


def test_a_long_table_is_a_sample(tmp_path):
    args = make(tmp_path, 300)
    text = replay(*args, "--state", "flash", "--compare", "fp32").stdout
    steps = [int(line.split()[0]) for line in rows_of(text)]
    got = report(*args, "--state", "flash")["steps"]
    assert max(map(len, text.splitlines())) <= 80
    assert steps[0] == 1 and steps[-1] == 300 and 20 <= len(steps) <= 26 and steps == sorted(steps)
    for figure in ("momentum-nmse", "variance-nmse", "weight-nmse", "update-nmse", "stalled"):
        assert 1 + int(np.argmax([s["total"][figure] for s in got])) in steps
    assert f"{len(steps)} of 300 steps" in text
    verbose = replay(*args, "--state", "flash", "--compare", "fp32", "-v").stdout
    assert len(rows_of(verbose)) == 300


def test_skipped_steps_are_said(tmp_path):
    args = make(tmp_path, 6, spoil=(2, 5))
    svg, page, table = (tmp_path / name for name in ("a.svg", "a.html", "a.csv"))
    done = replay(*args, "--state", "flash", "--compare", "fp32", "--on-nonfinite", "skip",
                  f"--svg={svg}", f"--html={page}", f"--csv={table}")
    assert "2 of 6 steps skipped" in done.stdout and ": 2, 5" in done.stdout
    assert len([row for row in rows_of(done.stdout) if "skipped" in row]) == 2
    # Each line is broken twice.
    for panel in panels(ET.parse(svg).getroot()):
        path = panel.find(".//*[@class='all']/{http://www.w3.org/2000/svg}path").get("d")
        assert path.count("M") == 3
    assert Page(page.read_text()).text.count("(skipped)") == 2
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["step"] for row in rows} == {"1", "3", "4", "6"}
    got = report(*args, "--state", "flash", "--on-nonfinite", "skip")
    assert got["skipped"] == 2 and [s["skipped"] for s in got["steps"]] == [
        False, True, False, False, True, False]
    assert [v is None for v in got["tensors"][0]["update-nmse"]] == [
        False, True, False, False, True, False]


def test_names_cannot_harm_reports(tmp_path):
    name = '<script>alert(1)</script>&"quoted",comma\x1b[31m\u202e'
    args = make(tmp_path, 3, (name, "b.weight"))
    files = {kind: tmp_path / f"r.{kind}" for kind in ("json", "csv", "svg", "html")}
    text = replay(*args, "--state", "flash", "--compare", "fp32",
                  *(f"--{kind}={path}" for kind, path in files.items())).stdout
    assert "\x1b" not in text and "\u202e" not in text
    ET.parse(files["svg"])
    page = files["html"].read_text()
    assert "<script>alert" not in page and "\x1b" not in page and page.count("</script>") == 3
    Page(page)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    assert name in data["names"]
    assert json.loads(files["json"].read_text())["tensors"][0]["name"] == name
    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert "\x1b" not in files["csv"].read_text()
    assert {row["tensor"] for row in rows} == {
        name.replace("\x1b", "\\x1b").replace("\u202e", "\\xe2\\x80\\xae"), "b.weight", "*"}


def test_a_gate_names_the_first_tensor_over_its_limit():
    got = report(CHECKPOINT, RECORDING, "--state", "flash")
    limit = 1e-4
    step, tensor = next((i, t) for i in range(16) for t in got["tensors"]
                        if t["variance-nmse"][i] > limit)
    done = replay(CHECKPOINT, RECORDING, "--state", "flash", "--max-error", f"variance-nmse={limit}",
                  check=1)
    words = " ".join(done.stdout.split())
    assert f"Gate failed: variance-nmse of {tensor['name']} at step {401 + step} is" in words
    assert one_line_error(done)


def test_warnings_of_small_learning_rates():
    done = replay(CHECKPOINT, RECORDING, "--state", "flash", "--lr", "1e-9", "--check-numerics")
    got = json.loads(replay(CHECKPOINT, RECORDING, "--state", "flash", "--lr", "1e-9",
                            "--check-numerics", "--json").stdout)
    start = load("checkpoint.safetensors")
    assert got["warnings"] and f"of {len(got['warnings'])} of 29 tensors" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    for warning in got["warnings"]:
        assert warning["lr"] == 1e-9
        assert warning["largest"] == pytest.approx(np.abs(start[warning["tensor"]]).max(), rel=1e-2)


def test_report_without_a_comparison():
    done = replay(CHECKPOINT, RECORDING, "--state", "flash")
    assert "16 steps, 401 to 416" in done.stdout and "NMSE" not in done.stdout
    assert DATA.name not in done.stderr
