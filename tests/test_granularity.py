"""tersor audit --granularity: 8-bit floats by how many elements share a scale, against COAT and numpy."""
import csv
import io
import json
import re
import xml.etree.ElementTree as ET

import ml_dtypes
import numpy as np
import pytest

from conftest import DATA, one_line_error, run_tersor, write_source
from test_replay_report import Page

F32 = np.float32
FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448), "e5m2": (ml_dtypes.float8_e5m2, 57344)}
NAMES = ("tensor", "1x128", "1x64", "1x32", "1x16", "1x8", "1x4", "8x8", "4x4", "2x2")
DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
          "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
          "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz}


def audit(*args, check=0):
    return run_tersor("audit", "--granularity", *args, check=check)


def report(*args, check=0):
    return json.loads(audit("--json", *args, check=check).stdout)


def by_granularity(rows):
    """{format: {granularity: figures}} of an array of the report."""
    found = {fmt: {} for fmt in FORMATS}
    for row in rows:
        figures = dict(row)
        found[figures.pop("format")][figures.pop("granularity")] = figures
    assert all(tuple(by) == NAMES for by in found.values())
    return found


def by_name(found):
    return {t["name"]: {**t, **(by_granularity(t["errors"]) if "errors" in t else {})}
            for t in found["tensors"]}


def write(path, tensors):
    """A safetensors file of {name: (dtype, array)}."""
    return write_source(path, {name: (dtype, x.shape, x.tobytes()) for name, (dtype, x) in tensors.items()})


# ---- numpy --------------------------------------------------------------------------------------

def up_to_bf16(scale):
    bits = scale.astype(F32).view(np.uint32)
    return ((bits + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(F32)


def stored(x, fmt, name):
    """What comes back of a matrix, and its bytes: each group cut out, tails as smaller groups."""
    dtype, largest = FORMATS[fmt]
    rows, columns = x.shape if name == "tensor" else map(int, name.split("x"))
    y, groups = np.empty_like(x), 0
    for top in range(0, x.shape[0], rows):
        for left in range(0, x.shape[1], columns):
            part = x[top:top + rows, left:left + columns]
            scale = up_to_bf16((np.abs(part).max() + F32(1e-10)) / F32(largest))
            code = (part / scale).clip(-largest, largest).astype(dtype)
            y[top:top + rows, left:left + columns] = code.astype(F32) * scale
            groups += 1
    return y, x.size + 2 * groups


def expected(x, fmt, name):
    y, nbytes = stored(x, fmt, name)
    exact, back = x.astype(np.float64), y.astype(np.float64)
    power = (exact**2).sum()
    return {"nmse": ((exact - back)**2).sum() / power if power else 0,
            "max_abs": np.abs(exact - back).max(), "zeroed": np.count_nonzero((x != 0) & (y == 0)),
            "nbytes": nbytes}


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_those_of_numpy_for_every_floating_type(tmp_path, dtype):
    rng = np.random.default_rng(len(dtype))
    shapes = [(), (1,), (37,), (9, 130), (2, 3, 5, 20)]
    arrays = {f"x{i}": (rng.standard_normal(s) * 2.0**rng.integers(-6, 4, s)).astype(DTYPES[dtype])
              for i, s in enumerate(shapes)}
    found = by_name(report(write(tmp_path / "x.safetensors",
                                 {n: (dtype, x) for n, x in arrays.items()})))
    for name, x in arrays.items():
        matrix = x.astype(F32).reshape(-1, x.shape[-1] if x.ndim else 1)
        assert (found[name]["rows"], found[name]["columns"]) == matrix.shape
        assert found[name]["max"] == pytest.approx(float(np.abs(matrix).max()), rel=1e-8)
        for fmt in FORMATS:
            for granularity in NAMES:
                assert found[name][fmt][granularity] == pytest.approx(
                    expected(matrix, fmt, granularity), rel=1e-7), (name, fmt, granularity)


# ---- COAT ---------------------------------------------------------------------------------------

@pytest.fixture
def activations(tmp_path):
    with np.load(DATA / "golden" / "coat2.npz") as data:
        golden = {name: data[name] for name in data if name.startswith("act_")}
    np.savez(tmp_path / "act.npz", x=golden["act_x"])
    return tmp_path / "act.npz", golden


@pytest.mark.parametrize("fmt", FORMATS)
def test_errors_by_granularity_are_those_of_coat(activations, fmt):
    path, golden = activations
    found = by_name(report("--scale", "f32", path))["x"][fmt]
    for name, nmse in zip(golden["act_nmse_order"], golden[f"act_{fmt}_nmse"]):
        assert found[str(name)]["nmse"] == pytest.approx(nmse, rel=2e-6), name


@pytest.mark.parametrize("fmt", FORMATS)
def test_codes_and_scales_are_those_of_the_program_of_coat(activations, fmt):
    """Their error is: what the golden codes decode to is compared with the program's own figures."""
    path, golden = activations
    x = golden["act_x"]
    scale = golden[f"act_{fmt}_g16_scale_bf16"].view(ml_dtypes.bfloat16).astype(F32)
    codes = golden[f"act_{fmt}_g16_code"].view(FORMATS[fmt][0]).astype(F32)
    whole = golden[f"act_{fmt}_tensor_code"].view(FORMATS[fmt][0]).astype(F32)
    back = {"1x16": codes * np.repeat(scale, 16, axis=1),
            "tensor": whole * golden[f"act_{fmt}_tensor_scale"]}
    found = by_name(report("--scale", "coat", path))["x"][fmt]
    for name, y in back.items():
        dd = (x.astype(np.float64) - y)**2
        assert found[name]["nmse"] == pytest.approx(dd.sum() / (x.astype(np.float64)**2).sum(),
                                                    rel=1e-8)
        assert found[name]["zeroed"] == np.count_nonzero((x != 0) & (y == 0))
        assert found[name]["max_abs"] == pytest.approx(np.sqrt(dd.max()), rel=1e-6)


# ---- what to use --------------------------------------------------------------------------------

def test_tensors_with_outliers_need_smaller_groups(tmp_path):
    rng = np.random.default_rng(5)
    even, wild = rng.standard_normal((2, 64, 256)).astype(F32)
    wild[7, 19] = 1e6
    np.savez(tmp_path / "even.npz", even=even)
    np.savez(tmp_path / "wild.npz", even=even, wild=wild)
    calm, found = (report(tmp_path / f"{n}.npz") for n in ("even", "wild"))
    assert calm["verdict"] == {"format": "e4m3", "granularity": "tensor"}
    assert found["verdict"]["granularity"] != "tensor"
    assert by_granularity(found["over_tensors"])["e4m3"]["tensor"]["far"] == 1
    text = " ".join(audit(tmp_path / "wild.npz").stdout.split())
    assert text.startswith(f"Use {found['verdict']['format'].upper()} with one scale per "
                           f"{found['verdict']['granularity']} (")
    assert "With one scale per tensor 1 of 2 tensors lose much more than with one scale per 1x16" in text


# ---- what cannot be measured ----------------------------------------------------------------------

def test_tensors_that_are_not_finite_are_named_and_the_others_measured(tmp_path):
    bad = np.array([1, np.nan, np.inf, 2], F32)
    path = write(tmp_path / "x.safetensors", {
        "bad": ("F32", bad), "wide": ("F64", np.array([1e300])), "good": ("F32", bad[:1]),
        "zeros": ("F32", np.zeros((4, 4), F32)), "none": ("F32", np.zeros((0, 3), F32)),
        "counts": ("I64", np.arange(3))})
    done = audit(path, check=1)
    for line in ("bad: 2 NaN or infinite elements as FP32: not measured",
                 "wide: 1 NaN or infinite elements as FP32: not measured",
                 "1 tensor of zeros alone: not in these figures",
                 "1 tensor without elements: not in these figures",
                 "1 tensor of other types: not measured"):
        assert line in done.stdout.splitlines()
    found = by_name(report(path, check=1))
    assert [n for n, t in found.items() if not t["measured"]] == ["bad", "wide", "counts"]
    assert found["zeros"]["e4m3"]["tensor"]["nmse"] == 0


def test_scales_of_other_codecs_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3, F32))
    line = one_line_error(audit("--scale", "e8m8", tmp_path / "x.npy", check=2))
    assert line == ("tersor: audit: option --scale: found 'e8m8', expected bf16, f32 or coat with "
                    "--granularity (see 'tersor audit --help')")


def test_scales_and_options_of_the_other_mode_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3, F32))
    done = run_tersor("audit", "--scale", "bf16", tmp_path / "x.npy", check=2)
    assert "option --scale: bf16 is for --granularity" in one_line_error(done)
    for option in ("--codec=e4m3", "--group=32", "--keep=x", "--map=x=weight", "--steps",
                   "--gate=nmse=1", "--baseline=x"):
        line = one_line_error(audit(option, tmp_path / "x.npy", check=2))
        assert "--granularity and --" in line and "exclude each other" in line


# ---- reports --------------------------------------------------------------------------------------

def test_the_text_fits_80_columns_and_csv_is_json(tmp_path, tiny_gpt):
    text = audit("-v", tiny_gpt, "--csv", tmp_path / "x.csv").stdout
    assert max(map(len, text.splitlines())) <= 80
    found = report(tiny_gpt)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    assert [(r["tensor"], r["format"], r["granularity"]) for r in rows] == [
        (t["name"], fmt, name) for t in found["tensors"] for fmt in FORMATS for name in NAMES]
    for row in rows:
        error = by_name(found)[row["tensor"]][row["format"]][row["granularity"]]
        assert {k: float(row[k]) for k in error} == error


def test_drawings_show_the_figures_of_the_report(tmp_path, tiny_gpt):
    svg, page = tmp_path / "x.svg", tmp_path / "x.html"
    text = audit(tiny_gpt, "--svg", svg, "--html", page).stdout
    rows = by_granularity(report(tiny_gpt)["over_tensors"])
    y, logs = [], []
    for panel in ET.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}g"):
        fmt = panel.get("data-panel")
        if not fmt:
            continue
        paths = [p.get("d") for p in panel.iter("{http://www.w3.org/2000/svg}path")
                 if p.get("d").count("L") == 8]
        assert len(paths) == 2
        for path, figure in zip(paths, ("median_nmse", "largest_nmse")):
            y += [float(at) for _, at in re.findall(r"[ML]([-0-9.]+) ([-0-9.]+)", path)]
            logs += [np.log10(rows[fmt][name][figure]) for name in NAMES]
    assert len(y) == 40
    slope, offset = np.polyfit(logs, y, 1)
    assert slope < 0 and np.abs(slope * np.array(logs) + offset - y).max() < 0.11
    shown = Page(page.read_text())
    heading = "E4M3: NMSE of tensors by granularity, the largest first"
    assert heading in text and heading in shown.text
    verdict = " ".join(text.split("\n\n")[0].split())
    assert verdict in shown.text and shown.tags.count("table") == 3 and shown.tags.count("svg") == 2
    assert not re.search(r"(src=|href=|url\(|@import|https?:)", page.read_text().replace(
        "http://www.w3.org/2000/svg", ""))


def test_packed_files_are_measured_as_what_they_decode_to(tmp_path, tiny_gpt):
    run_tersor("pack", tiny_gpt, "-o", tmp_path / "packed.safetensors", check=0)
    run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "back.safetensors", check=0)
    packed, back = (by_name(report(tmp_path / f"{n}.safetensors")) for n in ("packed", "back"))
    assert packed == back


def test_kinds_can_be_chosen(tiny_gpt):
    names = [t["name"] for t in report("--kind", "variance", tiny_gpt)["tensors"]]
    assert names and all("exp_avg_sq" in n for n in names)
