"""tersor sweep: its figures against numpy and the golden reports, its reports, its refusals.

With TERSOR_LONG=1 also: the golden reports of all 2^32 bit patterns, 2^24 patterns against numpy.
"""
import csv
import html
import json
import os
import re
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import golden
import oracle
from conftest import BINARY, ROOT, one_line_error, run_tersor
from page import Page
from test_codecs import LEVELS, cpu_flags

LONG = os.environ.get("TERSOR_LONG") == "1"
F32 = np.float32
CODECS = ("f32", *oracle.WEIGHTS, *oracle.TRUNCATED)
# One exponent and sign on, FP16's least and largest in it, and infinities.
SMALL = ("--first", "0x3f7ffc00", "--last", "0x3f8013ff")


def sweep(*args, **kwargs):
    return run_tersor("sweep", *args, **{"check": 0, **kwargs})


def report(*args):
    return json.loads(sweep("--json", *args).stdout)


def rows_of(codec):
    """{exponent: {figure: value}} of one entry of a report."""
    return golden.parse(golden.text_of(codec))


def add(a, b):
    """The rows of two ranges in one."""
    total = {e: dict(row) for e, row in a.items()}
    for e, row in b.items():
        into = total.setdefault(e, dict.fromkeys(golden.FIGURES, 0))
        for figure, value in row.items():
            into[figure] = (max(into[figure], value) if figure.startswith("max")
                            else into[figure] + value)
    return total


# ---- figures ------------------------------------------------------------------------------------

def expected(codec, first, n):
    """The row of n patterns with one exponent, by numpy."""
    bits = np.arange(first, first + n, dtype=np.uint64).astype(np.uint32)
    x = oracle.from_bits(bits)
    with np.errstate(all="ignore"):
        y = oracle.decode(codec, oracle.encode(codec, x))
        yb = oracle.bits(y)
        compared = np.isfinite(x) & np.isfinite(y) & (x != 0)
        rel = np.where(compared, np.abs(x - y) / np.abs(x), F32(0))
    ordered = [np.where(b >> 31, -(b & 0x7FFFFFFF).astype(np.int64), b) for b in (bits, yb)]
    ulp = np.abs(ordered[0] - ordered[1])[np.isfinite(x) & np.isfinite(y)]
    terms = np.ldexp(rel.astype(np.float64), 47)
    assert np.array_equal(terms, np.floor(terms)), "a relative error is no multiple of 2^-47"
    return {"count": n, "exact": np.count_nonzero(bits == yb),
            "overflow": np.count_nonzero(np.isfinite(x) & np.isinf(y)),
            "nan_in": np.count_nonzero(np.isnan(x)), "nan_out": np.count_nonzero(np.isnan(y)),
            "compared": np.count_nonzero(compared),
            "rel_sum": int(terms.astype(np.int64).sum()),
            "max_rel": float(f"{rel.max(initial=0):.9g}"), "max_ulp": int(ulp.max(initial=0))}


# Numpy takes some 60 ns per value, and tersor starts once per block.
BLOCK = 4096
NBLOCKS = 4096 if LONG else 24


def blocks():
    """Aligned runs of BLOCK patterns, spread over all exponents and both signs."""
    rng = np.random.default_rng(32)
    step = 2**32 // NBLOCKS
    places = np.arange(NBLOCKS, dtype=np.int64) * step + rng.integers(0, step, NBLOCKS)
    edges = [0, 0x32FFF000, 0x387FF000, 0x38800000, 0x477FE000, 0x477FF000, 0x7F7F7000, 0x7F7FF000,
             0x7F800000, 0x80000000, 0xC77FF000, 0xFFFFF000]
    return sorted({int(at) // BLOCK * BLOCK for at in places} | set(edges))


@pytest.mark.parametrize("part", range(8))
def test_figures_agree_with_numpy(part):
    for first in blocks()[part::8]:
        found = report("--first", first, "--last", first + BLOCK - 1)
        assert [c["codec"] for c in found["codecs"]] != []
        assert {c["codec"] for c in found["codecs"]} == set(CODECS)
        for codec in found["codecs"]:
            (exponent, row), = rows_of(codec).items()
            assert exponent == first >> 23 & 255
            assert row == expected(codec["codec"], first, BLOCK), (codec["codec"], hex(first))


@pytest.mark.parametrize("exponent", golden.STRATA if LONG else (112, 142, 255))
def test_stratum_is_as_in_the_golden_reports(exponent):
    parts = [report("--first", sign << 31 | exponent << 23,
                    "--last", (sign << 31 | exponent << 23) + 2**23 - 1) for sign in (0, 1)]
    found = {}
    for plus, minus in zip(*(part["codecs"] for part in parts)):
        row = add(rows_of(plus), rows_of(minus))[exponent]
        if plus["codec"] in golden.WHOLE:
            assert row == golden.rows_of(plus["codec"])[exponent], plus["codec"]
        assert golden.row_digest(row) == golden.digests()[plus["codec"]][1 + golden.STRATA.index(exponent)], plus["codec"]
        found[plus["codec"]] = row
    assert_more_bits_are_never_worse(found)


def assert_more_bits_are_never_worse(rows):
    for fmt, last in (("bf16", 16), ("fp16", 13), ("e5m2", 16), ("e4m3", 16)):
        for k in range(2, last + 1):
            less, more = (rows[f"{fmt}+trunc{n}"] for n in (k - 1, k))
            assert more["rel_sum"] <= less["rel_sum"]
            assert more["max_ulp"] <= less["max_ulp"]
            assert more["exact"] >= less["exact"]


def test_golden_reports_are_whole():
    assert set(golden.digests()) == set(CODECS)
    assert {path.name for path in golden.FOLDER.glob("sweep-*")} == {
        golden.path_of(codec).name for codec in golden.WHOLE}
    for codec in golden.WHOLE:
        rows = golden.rows_of(codec)
        assert list(rows) == list(range(256))
        assert {row["count"] for row in rows.values()} == {2**24}
        # E4M3 has a NaN, and no infinity, from 480 on.
        nan_from = 135 if codec.startswith("e4m3") else 255
        assert rows[255]["nan_in"] == 2**24 - 2
        assert rows[255]["nan_out"] == 2**24 - 2 * (nan_from == 255)
        assert all(row["nan_out"] == 0 and row["max_rel"] <= 1
                   for e, row in rows.items() if e < nan_from)


@pytest.mark.parametrize("codec, percent", [
    ("bf16+ulp16", 99.7287), ("bf16+ulp8", 0.3868), ("bf16+bf16", 3.3379), ("fp16+ulp8", 0.3768),
    ("fp16+ulp16", 13.3328), ("fp16+fp16", 5.3920), ("bf16+exact16", 100), ("bf16+trunc16", 100), ("f32", 100)])
def test_share_that_comes_back_is_what_flashoptim_gave(codec, percent):
    """Measured with FlashOptim's kernels on an H200, and what must lose nothing."""
    total = golden.finite(golden.rows_of(codec))
    assert abs(100 * total["exact"] / total["count"] - percent) <= (percent < 100) * 0.00015
    assert total["count"] == 255 * 2**24


def test_mean_error_of_bf16_ulp8_in_every_normal_binade():
    rows = golden.rows_of("bf16+ulp8")
    for exponent in range(1, 254):
        assert f"{golden.mean(rows[exponent]):.3e}" == "5.345e-06"


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_a_correction_of_k_bits_is_within_its_bound(bits):
    """docs/codecs.md: 2^-(8+k) of a normal weight; worst is the first half step above a power of two."""
    bound = 2.0 ** -(8 + bits)
    worst = float(f"{F32(bound / (1 + bound)):.9g}")
    assert {golden.rows_of(f"bf16+rn{bits}")[e]["max_rel"] for e in range(1, 255)} == {worst}


def test_random_rounding_gives_back_what_truncation_does():
    for codec in oracle.TRUNCATED:
        if "+sr" in codec:
            assert golden.digests()[codec] == golden.digests()[codec.replace("+sr", "+trunc")]


def test_documented_figures_are_those_of_the_golden_reports():
    assert (ROOT / "docs" / "internals" / "sweeps.csv").read_text() == golden.table()


@pytest.mark.skipif(not LONG, reason="2^32 bit patterns through every codec")
def test_full_sweep_is_the_golden_report(tmp_path):
    sweep("--json=" + str(tmp_path / "report"), "-qq", timeout=3600)
    found = json.loads((tmp_path / "report").read_text())
    assert (found["first"], found["last"]) == (0, 2**32 - 1)
    for codec in found["codecs"]:
        name = codec["codec"]
        assert golden.digests_of(golden.text_of(codec)) == golden.digests()[name], name


@pytest.mark.skipif(not LONG, reason="2^32 bit patterns")
def test_figure_of_the_readme_is_what_is_drawn(tmp_path):
    sweep("--codec", "bf16,fp16,bf16+bf16,fp16+fp16,*+ulp*", "--svg", tmp_path / "sweep.svg", "-qq",
          timeout=3600)
    assert (tmp_path / "sweep.svg").read_text() == (ROOT / "docs" / "sweep.svg").read_text()


# ---- ranges, threads, levels --------------------------------------------------------------------

def test_partial_reports_add_up():
    whole = report("--first", 0x477EFF00, "--last", 0x4780FFFF)
    parts = [report("--first", 0x477EFF00, "--last", 0x477F2344),
             report("--first", 0x477F2345, "--last", 0x47800000),
             report("--first", 0x47800001, "--last", 0x4780FFFF)]
    for i, codec in enumerate(whole["codecs"]):
        rows = [rows_of(part["codecs"][i]) for part in parts]
        assert add(add(rows[0], rows[1]), rows[2]) == rows_of(codec), codec["codec"]
        finite = {figure: codec["finite"][figure] for figure in golden.FIGURES}
        finite["rel_sum"] = int(finite["rel_sum"], 16)
        assert finite == golden.finite(rows_of(codec))


def all_reports(folder, *args, env=None):
    """The bytes of every report of one sweep."""
    files = {kind: folder / f"r.{kind}" for kind in ("json", "csv", "svg", "html")}
    text = sweep(*args, "-v", f"--json={files['json']}", f"--csv={files['csv']}", "--svg",
                 files["svg"], "--html", files["html"], env=env).stdout
    return text, {kind: path.read_bytes() for kind, path in files.items()}


def test_every_isa_level_and_thread_count_gives_the_same_bytes(tmp_path):
    args = ("--first", "0x477f0000", "--last", "0x4782ffff")
    want = all_reports(tmp_path, *args, "-j", 1)
    for level, needs in LEVELS.items():
        for threads in (1, 2, 5) if needs <= cpu_flags() else ():
            assert all_reports(tmp_path, *args, "-j", threads,
                               env={"TERSOR_ISA": level}) == want, (level, threads)


def test_decimal_comma_changes_nothing(tmp_path):
    plain = all_reports(tmp_path, *SMALL)
    assert all_reports(tmp_path, *SMALL, env={"LC_ALL": "de_DE.UTF-8"}) == plain


# ---- what is swept ------------------------------------------------------------------------------

@pytest.mark.parametrize("lists, codecs", [
    (["bf16"], ["bf16"]), (["bf16,fp16"], ["bf16", "fp16"]),
    (["fp16,bf16+ulp8", "bf16"], ["bf16+ulp8", "bf16", "fp16"]),
    (["*+ulp16"], ["bf16+ulp16", "fp16+ulp16"]), (["bf16,bf16,b?16"], ["bf16"]),
    (["fp16+trunc1[0-9]"], ["fp16+trunc10", "fp16+trunc11", "fp16+trunc12", "fp16+trunc13"]),
])
def test_codec_takes_names_and_patterns(lists, codecs):
    options = [word for names in lists for word in ("--codec", names)]
    assert [c["codec"] for c in report(*SMALL, *options)["codecs"]] == codecs


def test_range_is_hexadecimal_or_decimal_and_inclusive():
    for first, last, count in (("0x3F800000", "1065353216", 1), ("0", "9", 10),
                               ("4294967295", "0xffffffff", 1), ("010", "10", 1)):
        found = report("--codec", "bf16", "--first", first, "--last", last)
        assert sum(row["count"] for row in found["codecs"][0]["exponents"]) == count
        assert found["last"] - found["first"] + 1 == count


@pytest.mark.parametrize("args, text", [
    (["--codec", "bf16+ulp9"], "did you mean 'bf16+ulp8'"),
    (["--codec", "bf16,fp61"], "did you mean 'fp16'"),
    (["--codec", "bf16+trunk8"], "did you mean 'bf16+trunc8'"),
    (["--codec", "softsign8"], "not for weight"), (["--codec", "soft*"], "matches 'soft*'"),
    (["--codec", ""], "codec ''"), (["--codec", "bf16,"], "codec ''"),
    (["--codec", "x" * 300], "unknown weight codec"),
    (["--first", "2", "--last", "1"], "--first 0x00000002 is after --last 0x00000001"),
    (["--first", "0xffffffff", "--last", "0xfffffffe"], "is after"),
    *[([option, value], f"option {option}: found '{value}', expected a number")
      for option in ("--first", "--last")
      for value in ("4294967296", "0x100000000", "-1", "", "0x", "1.0", "3f800000", "0xg", " 1",
                    "1 ", "18446744073709551616", "0x10000000000000000")],
    (["--csv", "--json"], "both on the standard output"),
    (["--device", "gpu"], "unknown device 'gpu'"), (["x"], "unexpected operand"),
], ids=str)
def test_wrong_command_line_is_found_before_the_sweep(args, text, tmp_path):
    """Nothing here gives a range: a sweep would take minutes."""
    done = sweep(*args, check=2, timeout=5, cwd=tmp_path)
    assert text in one_line_error(done)
    assert done.stdout == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args, text", [
    (["--csv=no/such/folder"], "no/such/folder"), (["--json=no/such/folder"], "no/such/folder"),
    (["--svg", "no/such/folder"], "no/such/folder"), (["--html", "/dev/full"], "/dev/full"),
    (["--svg", "."], "directory"), (["--svg", ""], "no file name")], ids=str)
def test_report_that_cannot_be_written_is_found_before_the_sweep(args, text, tmp_path):
    done = sweep(*args, check=4, timeout=5, cwd=tmp_path)
    assert text in one_line_error(done) and done.stdout == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [
    ["--json=a", "--csv=a"], ["--csv=a", "--svg", "a"], ["--svg", "a", "--html", "./a"],
    ["--html", "a", "--json=a"], ["--baseline", "a", "--json=a"], ["--svg", "a", "--baseline", "a"],
], ids=str)
def test_reports_do_not_land_on_each_other_or_the_baseline(args, tmp_path):
    (tmp_path / "a").write_text("{}")
    done = sweep(*args, check=4, timeout=5, cwd=tmp_path)
    assert "would replace" in one_line_error(done)
    assert (tmp_path / "a").read_text() == "{}" and done.stdout == ""


# ---- interruption -------------------------------------------------------------------------------

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_sweep_prints_nothing(number, tmp_path):
    files = [tmp_path / name for name in ("json", "csv", "svg", "html")]
    with subprocess.Popen([BINARY, "sweep", "-v", f"--json={files[0]}", f"--csv={files[1]}",
                           "--svg", files[2], "--html", files[3]], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        time.sleep(0.7)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (-number, b"", b"")
    assert list(tmp_path.iterdir()) == []


# ---- reports ------------------------------------------------------------------------------------

def test_text_fits_80_columns_and_names_every_codec():
    for args in ((), ("-v",)):
        text = sweep("--first", "0x477fff00", "--last", "0x477fffff", *args).stdout
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert set(CODECS) <= set(text.split())
    assert sweep(*SMALL, "-qq").stdout == ""


def test_shares_are_whole_only_where_nothing_is_missing():
    """All but one of 2^22 come back: that is not 100%."""
    line = sweep("--codec", "bf16+trunc8,f32", "--first", 0x3F800000, "--last", 0x3F800001).stdout
    assert re.search(r"bf16\+trunc8 +3 +50\.0000 ", line) and re.search(r"f32 +4 +100 ", line)
    line = sweep("--codec", "bf16", "--first", 0x3F800000, "--last", 0x3FFFFFFF).stdout
    assert re.search(r"bf16 +2 +0\.0015 ", line)


def test_verbose_shows_exponents_with_equal_figures_in_one_line():
    text = sweep("--codec", "f32", "--first", "0x00000000", "--last", "0x03ffffff", "-v").stdout
    lines = text.splitlines()
    assert [line.split()[:4] for line in lines[-2:]] == [
        ["0", "subnorm.", "100", "0"], ["1", "to", "7", "-126..-120"]]


def test_csv_has_the_figures_of_the_json_report(tmp_path):
    found = report(*SMALL, f"--csv={tmp_path / 'r'}")
    printed = sweep(*SMALL, "--csv").stdout
    assert printed == (tmp_path / "r").read_text()
    lines = iter(csv.DictReader(printed.splitlines()))
    for codec in found["codecs"]:
        for row in codec["exponents"]:
            line = next(lines)
            assert line.pop("codec") == codec["codec"]
            assert line.pop("rel_sum") == row.pop("rel_sum")
            assert {k: float(v) for k, v in line.items()} == row
    assert next(lines, None) is None


def test_derived_members_are_those_of_the_integers():
    for codec in report(*SMALL)["codecs"]:
        for row in (codec["finite"], *codec["exponents"]):
            total = int(row["rel_sum"], 16) / 2**47
            want = total / row["compared"] if row["compared"] else 0
            assert row["mean_rel"] == pytest.approx(want, rel=1e-8)


# ---- baselines ----------------------------------------------------------------------------------

NARROW = (*SMALL, "--codec", "bf16+ulp8,fp16")


@pytest.fixture
def baseline(tmp_path):
    path = tmp_path / "baseline.json"
    sweep(*NARROW, f"--json={path}", "-qq")
    return path


def edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_same_figures_as_the_baseline(baseline):
    done = sweep(*NARROW, "--baseline", baseline)
    assert done.stdout.splitlines()[-1] == "every figure is as in the baseline"
    assert report(*NARROW, "--baseline", baseline)["moved"] == []
    # A baseline may have more codecs, also ones that this build lacks, and been made with --baseline.
    sweep("--codec", "fp16", *SMALL, "--baseline", baseline)
    edit(baseline, lambda d: d["codecs"].append({**d["codecs"][0], "codec": "bf16+ulp4"}))
    edit(baseline, lambda d: d.update(moved=[]))
    sweep(*NARROW, "--baseline", baseline)


def test_what_moved_is_shown(baseline):
    def change(data):
        row, finite = data["codecs"][1]["exponents"][1], data["codecs"][1]["finite"]
        assert row["exponent"] == 127
        for counted in (row, finite):
            counted["exact"] += 3
            counted["rel_sum"] = f"{int(counted['rel_sum'], 16) - 1:x}"
            counted["max_ulp"] = 5000

    edit(baseline, change)
    done = sweep(*NARROW, "--baseline", baseline, check=1)
    assert done.stderr == ""
    moved = [line.split() for line in done.stdout.splitlines()[-3:]]
    assert [line[:3] for line in moved] == [["fp16", "127", figure]
                                            for figure in ("exact", "rel_sum", "max_ulp")]
    found = json.loads(sweep(*NARROW, "--baseline", baseline, "--json", check=1).stdout)
    assert [(m["codec"], m["exponent"], m["figure"], m["was"], m["now"]) for m in found["moved"]
            ] == [(line[0], 127, *line[2:]) for line in moved]
    was, now = map(int, moved[0][3:])
    assert was == now + 3 and int(moved[1][4], 16) == int(moved[1][3], 16) + 1


def row(data):
    return data["codecs"][0]["exponents"][0]


WRONG = {   # (change, a part of the message)
    "no schema": (lambda d: d.pop("schema"), "no schema"),
    "another schema": (lambda d: d.update(schema="tersor.diff.v1"), "tersor.diff.v1"),
    "a later version": (lambda d: d.update(schema="tersor.sweep.v2"), "tersor.sweep.v2"),
    "schema is a number": (lambda d: d.update(schema=1), "no schema"),
    "no range": (lambda d: d.pop("first"), "no range"),
    "range too large": (lambda d: d.update(last=2**32), "to 0x100000000, expected"),
    "another range": (lambda d: d.update(last=d["last"] + 1), "found a sweep of 0x3f7ffc00 to 0x3f801400"),
    "no codecs": (lambda d: d.pop("codecs"), "no codecs"),
    "codecs is an object": (lambda d: d.update(codecs={}), "no codecs"),
    "codec missing": (lambda d: d["codecs"].pop(), "no codec fp16"),
    "inverted range": (lambda d: d.update(first=d["last"] + 1), "found a sweep of"),
    "codec twice": (lambda d: d["codecs"].append(d["codecs"][0]), "found codec bf16+ulp8 twice"),
    "codec without name": (lambda d: d["codecs"][0].pop("codec"), "without codec"),
    "codec is null": (lambda d: d["codecs"].append(None), "without codec"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_baseline_is_found_before_the_sweep(name, baseline):
    change, text = WRONG[name]
    edit(baseline, change)
    done = sweep(*NARROW, "--baseline", baseline, check=3)
    line = one_line_error(done)
    assert line.startswith(f"tersor: {baseline}: ") and text in line and done.stdout == ""


NEVER = {   # (change, figure, was): what no report has differs as well
    "a figure missing": (lambda d: row(d).pop("max_ulp"), "max_ulp", "none"),
    "a figure below 0": (lambda d: row(d).update(exact=-1), "exact", "-1"),
    "a figure is a string": (lambda d: row(d).update(exact="x"), "exact", "x"),
    "a figure is null": (lambda d: row(d).update(exact=None), "exact", "null"),
    "another count": (lambda d: row(d).update(count=1), "count", "1"),
    "sum in capitals": (lambda d: row(d).update(rel_sum="AB"), "rel_sum", "AB"),
    "a figure with a fraction": (lambda d: row(d).update(exact=1.5), "exact", "1.5"),
    "more exact than there are": (lambda d: row(d).update(exact=row(d)["count"] + 1), "exact", "1025"),
    "sum is a number": (lambda d: row(d).update(rel_sum=1), "rel_sum", "1"),
    "sum is empty": (lambda d: row(d).update(rel_sum=""), "rel_sum", ""),
    "ULP too large": (lambda d: row(d).update(max_ulp=2**32), "max_ulp", "4294967296"),
    "largest error below 0": (lambda d: row(d).update(max_rel=-1), "max_rel", "-1"),
    "an exponent missing": (lambda d: d["codecs"][0]["exponents"].pop(0), "", "none"),
    "no exponents": (lambda d: d["codecs"][0].pop("exponents"), None, "none"),
}
# What follows from the rows, and what no row has.
BESIDES = {   # (change, figure)
    "sums that do not add up": (lambda d: d["codecs"][0]["finite"].update(exact=3), "finite: exact"),
    "no finite": (lambda d: d["codecs"][0].pop("finite"), "finite"),
    "another mean": (lambda d: d["codecs"][0].update(mean_rel=0.5), "mean_rel"),
    "an exponent more": (lambda d: d["codecs"][0]["exponents"].append({**row(d), "exponent": 200}), ""),
    "an exponent twice": (lambda d: d["codecs"][0]["exponents"].append(row(d)), ""),
    "exponent too large": (lambda d: d["codecs"][0]["exponents"].append({**row(d), "exponent": 256}), ""),
}


@pytest.mark.parametrize("name", NEVER)
def test_figures_that_no_report_has_differ(name, baseline):
    change, figure, was = NEVER[name]
    edit(baseline, change)
    moved = json.loads(sweep(*NARROW, "--baseline", baseline, "--json", check=1).stdout)["moved"]
    assert [(m["codec"], m["was"]) for m in moved] == [("bf16+ulp8", was)]
    assert figure is None or (moved[0]["figure"] == figure and moved[0]["exponent"] == 126)


@pytest.mark.parametrize("name", BESIDES)
def test_what_only_the_baseline_has_differs(name, baseline):
    change, figure = BESIDES[name]
    edit(baseline, change)
    moved = json.loads(sweep(*NARROW, "--baseline", baseline, "--json", check=1).stdout)["moved"]
    assert [(m["codec"], m["figure"]) for m in moved] == [("bf16+ulp8", figure)]


@pytest.mark.parametrize("content", [
    b"", b"{", b"null", b"[]", b"\x89PNG\r\n", b"{}", b'{"schema":"tersor.sweep.v1"}',
    b'{"schema":"tersor.sweep.v1","schema":"tersor.sweep.v1"}', b"[" * 100_000, b"\0" * 5000,
], ids=repr)
def test_baseline_that_is_no_report(content, tmp_path):
    (tmp_path / "b").write_bytes(content)
    done = sweep("--baseline", tmp_path / "b", check=3, timeout=5)
    assert one_line_error(done).startswith(f"tersor: {tmp_path / 'b'}: ") and done.stdout == ""


def test_every_truncation_of_a_baseline_is_refused(baseline):
    content = baseline.read_bytes()
    for n in range(0, len(content) - 2, 1 if LONG else 7):
        baseline.write_bytes(content[:n])
        one_line_error(sweep(*NARROW, "--baseline", baseline, check=3))


def test_missing_baseline(tmp_path):
    sweep("--baseline", tmp_path / "none", check=4, timeout=5)


# ---- figures ------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A sweep of a few exponents with all its reports."""
    folder = tmp_path_factory.mktemp("drawn")
    found = report("--first", "0x387f0000", "--last", "0x3900ffff", "--svg", folder / "r.svg",
                   "--html", folder / "r.html")
    return folder, found


def lines_of(root):
    """{codec: [(x, y)]} of the paths in an SVG element."""
    lines = {}
    for group in root.iter(f"{SVG}g"):
        if "data-codec" in group.attrib:
            path = group.find(f"{SVG}path").attrib["d"]
            assert re.fullmatch(r"([ML]-?[\d.]+ -?[\d.]+(h0\.1)?)*", path), path
            lines[group.attrib["data-codec"]] = [
                tuple(map(float, point.split())) for point in re.findall(r"[-\d.]+ [-\d.]+", path)]
    return lines


def test_svg_shows_the_mean_error_of_each_codec(drawn):
    folder, found = drawn
    root = ET.parse(folder / "r.svg").getroot()
    panels = [g for g in root.iter(f"{SVG}g") if g.get("class") == "panel"]
    assert [p.get("data-panel") for p in panels] == ["BF16", "FP16", "FP8 (E5M2)", "FP8 (E4M3)"]
    for panel in panels[2:]:
        prefix = panel.get("data-panel")[5:-1].lower()
        assert set(lines_of(panel)) == {f"{prefix}+trunc{k}" for k in (4, 8, 12)}
    for panel in panels[:2]:
        first, last, left, right = (float(panel.get(f"data-{key}"))
                                    for key in ("first", "last", "left", "right"))
        lines = lines_of(panel)
        prefix = panel.get("data-panel").lower()
        assert {f"{prefix}+ulp8", f"{prefix}+ulp16", f"{prefix}+{prefix}", prefix} <= set(lines)
        assert all(codec.startswith(prefix) and "+sr" not in codec for codec in lines)
        heights = {}
        for codec in found["codecs"]:
            points = dict(lines.get(codec["codec"], ()))
            for row in codec["exponents"] if points else ():
                x = left + (row["exponent"] - 127 - first) * (right - left) / (last - first)
                at = [y for px, y in points.items() if abs(px - x) < 0.2]
                if at:
                    heights[at[0]] = max(heights.get(at[0], 0), row["mean_rel"])
        # Higher up is a larger error, 0 below all others.
        ordered = [heights[y] for y in sorted(heights)]
        assert len(ordered) > 4 and ordered == sorted(ordered, reverse=True)


def test_svg_lines_differ_without_colour(drawn):
    root = ET.parse(drawn[0] / "r.svg").getroot()
    for panel in (g for g in root.iter(f"{SVG}g") if g.get("class") == "panel"):
        groups = [g for g in panel.iter(f"{SVG}g") if "data-codec" in g.attrib]
        marks = [(g.get("stroke-dasharray"), g.find(f".//{SVG}path[@class='marker']").get("d"))
                 for g in groups if g.find(f".//{SVG}path[@class='marker']") is not None]
        assert len(marks) > 2 and len(set(marks)) == len(marks)


def test_svg_of_one_format_has_one_panel(tmp_path):
    for codecs, panels in (("bf16", 1), ("fp16,bf16", 2), ("f32", 0)):
        sweep(*SMALL, "--codec", codecs, "--svg", tmp_path / "f")
        root = ET.parse(tmp_path / "f").getroot()
        assert sum(g.get("class") == "panel" for g in root.iter(f"{SVG}g")) == panels


def test_page_is_whole_and_needs_no_network(drawn):
    text = (drawn[0] / "r.html").read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.boxes) == {c for c in CODECS if c != "f32"}
    assert page.boxes["bf16+ulp8"] and page.boxes["bf16+trunc8"] and not page.boxes["bf16+trunc7"]
    links = set(re.findall(r"[a-z]+://[^\"' )]*", text))
    assert links == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe)|@import|url\(|src=|href=", text)


def test_page_has_the_figures_of_the_json_report(drawn):
    folder, found = drawn
    data = json.loads(Page((folder / "r.html").read_text()).scripts["data"])
    assert [c["codec"] for c in data] == [c["codec"] for c in found["codecs"]]
    for drawing, codec in zip(data, found["codecs"]):
        rows = {e: r[2:] for r in drawing["rows"] for e in range(r[0], r[1] + 1)}
        assert rows == {r["exponent"] - 127: [r["count"], r["exact"], r["mean_rel"], r["max_rel"],
                                              r["max_ulp"], r["overflow"]]
                        for r in codec["exponents"]}


# ---- the page in a browser ----------------------------------------------------------------------

# Runs in the page; what it says is read from the document that the browser dumps.
DRIVER = """
const said = [];
function say(what, value) { said.push([what, value]); }
const svg = [...document.querySelectorAll(".chart > svg")]
	.find(s => s.getBoundingClientRect().width);
const tip = document.getElementById("tip");
const visible = panel => [...svg.querySelectorAll(`.panel[data-panel="${panel}"] g.line`)]
	.filter(g => getComputedStyle(g).display !== "none").map(g => g.dataset.codec);
const rows = () => tip.hidden ? null
	: [...tip.querySelectorAll("tr")].slice(1).map(r => [...r.cells].map(c => c.textContent));
function pointAt(panelName, exponent) {
	const d = svg.querySelector(`.panel[data-panel="${panelName}"]`).dataset;
	const [first, last, left, right, top, bottom] =
		["first", "last", "left", "right", "top", "bottom"].map(k => Number(d[k]));
	const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
	const x = left + (exponent - first) * (right - left) / (last - first);
	svg.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, pointerType: "mouse",
		clientX: box.left + x * scale, clientY: box.top + (top + bottom) / 2 * scale }));
}
const box = codec => document.querySelector(`input[data-codec="${codec}"]`);
say("shown", svg.id);
say("fits", document.documentElement.scrollWidth <= document.documentElement.clientWidth);
say("small text", Math.min(...[...svg.querySelectorAll(".tick")].map(
	t => parseFloat(getComputedStyle(t).fontSize) * svg.getBoundingClientRect().width
		/ svg.viewBox.baseVal.width)) < 9);
say("at first", visible("BF16"));
say("no values yet", tip.hidden);
pointAt("BF16", -14);
say("values", rows());
say("title", tip.firstChild.textContent);
const t = tip.getBoundingClientRect();
say("inside", t.left >= 0 && t.right <= innerWidth && t.top >= 0 && t.bottom <= innerHeight);
box("bf16").click();
say("without bf16", visible("BF16"));
pointAt("BF16", -14);
say("values without bf16", rows().map(r => r[0]));
box("bf16+trunc16").click();
say("with trunc16", visible("BF16"));
document.getElementById("none").click();
say("none", visible("BF16").concat(visible("FP16")));
document.getElementById("all").click();
say("all", [...svg.querySelectorAll(".panel")].flatMap(p => visible(p.dataset.panel)).length);
document.getElementById("reset").click();
say("reset", visible("BF16"));
svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
say("one on", tip.firstChild.textContent);
svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
say("panel below", [tip.dataset.panel, tip.firstChild.textContent]);
pointAt("FP16", -14);
say("fp16 values", rows());
svg.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
say("hidden", tip.hidden);
const pre = document.createElement("pre");
pre.id = "said";
pre.textContent = JSON.stringify(said);
document.body.append(pre);
"""


def browser():
    return shutil.which("chromium") or shutil.which("chromium-browser")


def drive(page, folder, width):
    """What DRIVER says of a page in a frame of this width."""
    driven, frame = folder / "driven.html", folder / f"frame{width}.html"
    driven.write_text(page.replace("</body>", f"<script>{DRIVER}</script></body>"))
    # The window of a browser has a least width; a frame has not.
    frame.write_text(f"""<!DOCTYPE html><body style="margin:0">
        <iframe src="driven.html" style="width:{width}px;height:900px;border:0"></iframe>
        <script>onload = () => document.body.append(
            document.querySelector("iframe").contentDocument.getElementById("said"))</script>""")
    done = subprocess.run(
        [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000",
         "--allow-file-access-from-files", "--disable-web-security", "--host-resolver-rules=MAP * ~",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", "--dump-dom",
         f"file://{frame}"], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stdout[-2000:] + done.stderr
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.skipif(not browser() and not LONG, reason="no Chromium; check-long installs it")
@pytest.mark.parametrize("width, figure", [(1280, "wide"), (390, "narrow")])
def test_page_in_a_browser(width, figure, drawn):
    folder, found = drawn
    said = drive((folder / "r.html").read_text(), folder, width)
    shown = ["bf16+ulp8", "bf16+ulp16", "bf16+exact16", "bf16+bf16", "bf16", "bf16+trunc4",
             "bf16+trunc8", "bf16+trunc12"]
    at_14 = {c["codec"]: next(r for r in c["exponents"] if r["exponent"] == 113)
             for c in found["codecs"]}
    assert said["shown"] == figure and said["fits"] and not said["small text"]
    assert said["at first"] == said["reset"] == shown and said["no values yet"]
    assert [row[0] for row in said["values"]] == sorted(
        shown, key=lambda c: -at_14[c]["mean_rel"])
    for name, mean, largest, exact in said["values"]:
        row = at_14[name]
        assert float(mean.replace("\u2212", "-")) == pytest.approx(row["mean_rel"], rel=0.005)
        assert float(largest.replace("\u2212", "-")) == pytest.approx(row["max_rel"], rel=0.005)
        assert float(exact.strip("<%")) == pytest.approx(100 * row["exact"] / row["count"], rel=0.05)
    assert said["title"] == "|x| from 2\u221214 to 2\u221213" and said["inside"]
    assert said["without bf16"] == [c for c in shown if c != "bf16"]
    assert "bf16" not in said["values without bf16"] and len(said["values without bf16"]) == 7
    assert said["with trunc16"] == said["without bf16"] + ["bf16+trunc16"]
    assert said["none"] == [] and said["all"] == len(CODECS) - 1
    assert said["one on"] == "|x| from 2\u221213 to 2\u221212"
    assert said["panel below"] == ["FP16", "|x| from 2\u221213 to 2\u221212"]
    assert ["fp16+ulp16", "0", "0", "100%"] in said["fp16 values"] and said["hidden"]
