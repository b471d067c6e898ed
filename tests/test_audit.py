"""tersor audit: what each codec would do to a checkpoint, against numpy and against pack."""
import csv
import json
import math
import os
import re
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import oracle
from conftest import BINARY, DATA, ROOT, run_tersor, write_source

TRAINED = DATA / "tiny-gpt" / "expected-adamw-fp32.safetensors"
M, V = ".exp_avg", ".exp_avg_sq"
GROUP = {"softsign8": 32, "linear8": 32, "ratio8": 64, "sqrt8": 32, "ulinear8": 32, "log8": 64, "e4m3": 128,
         "e4m3x": 128, "e5m2x": 128, "dyn8": 256}
SCALE = {"log8": "f28", "e4m3": "f32", "e4m3x": "f32", "e5m2x": "f32", "dyn8": "f32"}


def audit(path, *args, check=0):
    """The one checkpoint of a report."""
    report = json.loads(run_tersor("audit", path, "--json", *args, check=check).stdout)
    assert report["schema"] == "tersor.audit.v1" and len(report["checkpoints"]) == 1
    return report["checkpoints"][0]


def width(text):
    """Of all lines but commands, which have paths and are not wrapped."""
    return max(len(line) for line in text.splitlines() if not line.startswith("      tersor pack "))


def trials(found):
    """{(tensor, codec): figures}"""
    return {(t["name"], c["codec"]): c for t in found["tensors"] for c in t["codecs"]}


def updates(found):
    """{(weight, momentum's codec, variance's codec): figures}"""
    return {(p["momentum"].removesuffix(M), c["momentum"], c["variance"]): c
            for p in found["updates"] for c in p["codecs"]}


def quantiles(values):
    ordered = sorted(values)
    return [ordered[max(1, math.ceil(p * len(ordered) / 100)) - 1] for p in (0, 5, 25, 50, 75, 95, 100)]


@pytest.fixture(scope="module")
def trained():
    return load_file(TRAINED)


@pytest.fixture(scope="module")
def found():
    return audit(TRAINED)


def there_and_back(codec, x, kind):
    size, scale = GROUP[codec], SCALE.get(codec, "e8m8")
    planes = oracle.encode(codec, x, size, scale, kind=kind)
    return np.asarray(oracle.decode(codec, planes, size, scale, kind=kind), np.float32).reshape(x.shape), planes


def back_in(trained, name, m_codec, v_codec):
    m, v = trained[name + M], trained[name + V]
    v2 = there_and_back(v_codec, v, "variance")[0] if v_codec else v
    if m_codec == "ratio8":
        return oracle.momentum(there_and_back("ratio8", oracle.ratio(m, v), "momentum")[0], v2), v2
    return (there_and_back(m_codec, m, "momentum")[0] if m_codec else m), v2


# ---- against numpy -------------------------------------------------------------------------------

@pytest.mark.parametrize("m_codec", [None, "softsign8", "linear8", "ratio8", "e4m3x", "dyn8"])
@pytest.mark.parametrize("v_codec", [None, "sqrt8", "ulinear8", "log8", "e4m3", "e5m2x"])
def test_updates_are_numpys(trained, found, m_codec, v_codec):
    if not m_codec and not v_codec:
        return
    seen = updates(found)
    for name in ("lm_head.weight", "h.0.c_attn.bias", "wte.weight", "h.1.c_proj.bias"):
        m, v = trained[name + M], trained[name + V]
        m2, v2 = back_in(trained, name, m_codec, v_codec)
        w = m2 / (np.sqrt(v2) + np.float32(1e-8))
        got = seen[name, m_codec, v_codec]
        assert got["nmse"] == pytest.approx(oracle.update_error(m, v, m2, v2), rel=1e-6), name
        assert got["max_after"] == pytest.approx(np.abs(w).max(), rel=1e-6)
        assert got["exposed"] == ((v > 0) & (v2 == 0) & (m2 != 0)).sum()


@pytest.mark.parametrize("codec", list(GROUP))
def test_errors_are_numpys(trained, found, codec):
    seen = trials(found)
    variance = codec in ("sqrt8", "ulinear8", "log8")
    kind, suffix = ("variance", V) if variance else ("momentum", M)
    for name in (n.removesuffix(suffix) for n in trained if n.endswith(suffix)):
        x = trained[name + suffix]
        y = back_in(trained, name, "ratio8", "log8")[0] if codec == "ratio8" else there_and_back(codec, x, kind)[0]
        got = seen[name + suffix, codec]
        d = np.float64(x) - y
        assert got["nmse"] == pytest.approx((d ** 2).sum() / (np.float64(x) ** 2).sum(), rel=1e-6)
        assert got["max_abs"] == pytest.approx(np.abs(d).max(), rel=1e-6)
        assert got["mean_rel"] == pytest.approx(np.abs(d[x != 0] / x[x != 0]).mean(), rel=1e-6)
        assert got["zeroed"] == ((x != 0) & (y == 0)).sum()


def groups_of(x, size):
    """Groups of a tensor, which follow rows where they would straddle them."""
    row = oracle.row_group(x.shape, size, "e8m8")
    if row:
        return [r[i:i + row] for r in x.reshape(-1, x.shape[-1]) for i in range(0, x.shape[-1], row)]
    flat = x.ravel()
    return [flat[i:i + size] for i in range(0, flat.size, size)]


def octaves(group):
    """Base 2 logarithms linear between powers of 2, as the bits of a float are."""
    mag = np.abs(group[group != 0]).view(np.uint32).astype(np.int64)
    return (mag.max() - mag.min()) / 2 ** 23 if mag.size else None


@pytest.mark.parametrize("codec", ["softsign8", "sqrt8", "log8", "ulinear8"])
def test_groups_are_numpys(trained, found, codec):
    """How far they range, and those that a decay does not change."""
    kind, suffix, beta = ("momentum", M, 0.9) if codec == "softsign8" else ("variance", V, 0.999)
    seen = trials(found)
    for name in ("lm_head.weight" + suffix, "h.0.c_attn.bias" + suffix, "wte.weight" + suffix):
        x, got = trained[name], seen[name, codec]
        ranges = [r for r in map(octaves, groups_of(x, GROUP[codec])) if r is not None]
        assert got["range_max"] == pytest.approx(max(ranges), rel=1e-6)
        assert got["range_mean"] == pytest.approx(sum(ranges) / len(ranges), rel=1e-6)
        y, planes = there_and_back(codec, x, kind)
        again = there_and_back(codec, y * np.float32(beta), kind)[1]
        codes = [groups_of(np.asarray(p["::quantized"]).reshape(x.shape), GROUP[codec]) for p in (planes, again)]
        scales = [np.ravel(p["::scales"]) for p in (planes, again)]
        alive = [np.any(g) for g in groups_of(y, GROUP[codec])]
        stuck = sum(a and np.array_equal(c, d) and s == t
                    for a, c, d, s, t in zip(alive, *codes, *scales, strict=True))
        assert (got["groups"], got["stuck"]) == (sum(alive), stuck), name


def test_quantiles_are_by_nearest_rank(found):
    seen = trials(found)
    for codec in found["codecs"]:
        values = [c["nmse"] for (name, label), c in seen.items() if label == codec["codec"] and c["measured"]
                  and next(t["kind"] for t in found["tensors"] if t["name"] == name) == codec["kind"]]
        assert len(values) == codec["tensors"] == 29 and codec["nmse"] == quantiles(values)
    for pair in found["pairs"]:
        values = [c["nmse"] for (_, *codecs), c in updates(found).items()
                  if codecs == [pair["momentum"], pair["variance"]]]
        assert pair["pairs"] == 29 and pair["nmse"] == quantiles(values)


# ---- against pack --------------------------------------------------------------------------------

def state(rng, shape):
    v = np.float32(np.exp(rng.normal(-15, 5, shape)))
    m = np.float32(rng.normal(0, 0.3, shape) * np.sqrt(v))
    v.ravel()[::17] = 0
    return {M: m, V: v}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Several tiles, rows that groups follow, and odd numbers of elements."""
    rng = np.random.default_rng(4)
    path = tmp_path_factory.mktemp("audit") / "large.safetensors"
    save_file({f"t{i}.weight{k}": x for i, shape in enumerate([(700, 640), (333333,), (500, 800), (77, 65)])
               for k, x in {"": np.float32(rng.normal(0, 1, shape)), **state(rng, shape)}.items()}, path)
    return path


@pytest.mark.parametrize("m_codec, v_codec", [("softsign8", "sqrt8"), ("e4m3x", "e4m3x"), ("dyn8", "dyn8"),
                                              ("ratio8", "log8"), ("linear8", "ulinear8"), ("bf16", "bf16")])
def test_figures_are_those_that_pack_prints(large, tmp_path, m_codec, v_codec):
    """To the last digit; where rows of 800 cut a large tensor, tiles differ and so may digits."""
    codecs = f"bf16+ulp8,{m_codec},{v_codec}"
    found = audit(large, "--codec", codecs, "-j2")
    packed = json.loads(run_tersor("pack", large, "-o", tmp_path / "p.safetensors", "--momentum", m_codec,
                                   "--variance", v_codec, "--json", check=0).stdout)
    seen, us = trials(found), updates(found)
    for t in packed["tensors"]:
        got = seen[t["name"], t["codec"]]
        near = 1e-7 if t["name"].startswith("t2") else 0
        for ours, theirs in (("nmse", "nmse"), ("max_abs", "abs"), ("mean_rel", "rel"), ("zeroed", "flushed")):
            assert got[ours] == pytest.approx(t["error"][theirs], rel=near, abs=0), (t["name"], ours)
        if "update" in t:
            u = us[t["name"].removesuffix(V), m_codec, v_codec]
            assert u["nmse"] == pytest.approx(t["update"]["nmse"], rel=near, abs=0)
            assert (u["max_after"], u["exposed"]) == (t["update"]["max_after"], t["update"]["exposed"])


def test_threads_change_nothing(large):
    reports = {run_tersor("audit", large, "--json", "-j", n, check=0).stdout for n in (1, 2, 5)}
    assert len(reports) == 1


# ---- the table of what is known -------------------------------------------------------------------

# Momentum, variance: the median and the worst update NMSE, the largest |u|.
KNOWN = [("softsign8", "sqrt8", 3.7e-5, 1.1e-4, 0.99), ("e4m3x", "e4m3x", 2.2e-4, 4.4e-3, 1.03),
         ("ratio8", "log8", 2.8e-5, 3.3e-4, 1.01), ("ratio8", "sqrt8", 2.8e-5, 7.7e-5, 1.01)]


@pytest.mark.parametrize("m_codec, v_codec, median, worst, largest", KNOWN)
def test_a_trained_model(found, m_codec, v_codec, median, worst, largest):
    pair = next(p for p in found["pairs"] if (p["momentum"], p["variance"]) == (m_codec, v_codec))
    assert pair["nmse"][3] == pytest.approx(median, rel=0.02)
    assert pair["nmse"][6] == pytest.approx(worst, rel=0.03)
    assert pair["max_after"] == pytest.approx(largest, abs=0.006)


def test_text_fits_80_columns(found):
    text = run_tersor("audit", TRAINED, check=0).stdout
    assert width(text) <= 80
    best, *others = found["forms"]
    assert text.startswith(f"fine  use {best['form']}: every update stays within ")
    assert f" tersor pack {TRAINED} --state {best['form']} " in " ".join(text.split())
    assert found["recommended"] == {
        "weight": "bf16+ulp8", "command": f"tersor pack {TRAINED} --state {best['form']}",
        **{key: best[key] for key in ("form", "momentum", "variance", "update_nmse", "grade", "bytes_per_parameter")}}
    assert [f["update_nmse"] for f in others] == sorted(f["update_nmse"] for f in others)
    assert {"flash", "tight", "coat", "bitsandbytes", "bf16/bf16"} <= {f["form"] for f in found["forms"]}
    assert [f["form"] for f in found["forms"] if f["default"]] == ["flash"]
    for form in found["forms"]:
        grade = "fine" if form["update_nmse"] < 1e-3 else "watch" if form["update_nmse"] < 1e-2 else "bad"
        assert form["grade"] == grade and re.search(rf"^{form['form']} +{grade} ", text, re.M)


@pytest.mark.parametrize("state, grade, status", [("flash", "fine", 0), ("bitsandbytes", "bad", 1), ("e4m3/e5m2", "watch", 0),
                                                  ("bf16/f32", "fine", 0)])
def test_a_form_that_is_asked_for_is_judged(state, grade, status):
    done = run_tersor("audit", TRAINED, "--state", state, "--max-error", "update-nmse=1e-2", "--json", "-", check=status)
    got = json.loads(done.stdout)["checkpoints"][0]
    assert got["recommended"]["form"] == state and got["recommended"]["grade"] == grade
    if "/" in state:
        assert (got["recommended"]["momentum"], got["recommended"]["variance"]) == tuple(state.split("/"))
    assert "update-nmse=1e-2" in done.stderr if status else not done.stderr


@pytest.mark.parametrize("state, message", [
    ("tigth", "option --state: found 'tigth', expected flash, flashoptim, tight"),
    ("softsign8/e9", "unknown variance codec 'e9'"), ("sqrt8/sqrt8", "codec 'sqrt8' is not for momentum"),
    ("gefen8/sqrt8", "codec 'gefen8' is learned")])
@pytest.mark.parametrize("command", ["audit", "pack", "replay"])
def test_a_form_that_is_none(command, state, message, tmp_path):
    args = {"audit": (), "pack": ("-o", tmp_path / "o"), "replay": (DATA / "tiny-gpt" / "recording",)}[command]
    assert message.replace("expected flash", "expected fp32, flash" if command == "replay" else "expected flash") in \
        run_tersor(command, TRAINED, *args, "--state", state, check=2).stderr


# ---- several checkpoints, gates, baselines --------------------------------------------------------

def test_steps_are_checkpoints_of_their_own(tmp_path):
    steps = [DATA / "tiny-gpt" / "checkpoint.safetensors", TRAINED]
    done = run_tersor("audit", "--steps", *steps, "--json", tmp_path / "s.json", "--csv", tmp_path / "s.csv", check=0)
    report = json.loads((tmp_path / "s.json").read_text())
    alone = [audit(path) for path in steps]
    assert report["checkpoints"] == alone
    rows = (tmp_path / "s.csv").read_text().splitlines()
    assert {row.split(",")[0] for row in rows[1:]} == {str(path) for path in steps}
    assert all(row.count(",") == rows[0].count(",") for row in rows)
    worst = [next(p["nmse"][6] for p in a["pairs"] if (p["momentum"], p["variance"]) == ("softsign8", "sqrt8"))
             for a in alone]
    assert all(f" {w:.1e} " in done.stdout for w in worst) and width(done.stdout) <= 80


def test_csv_has_the_figures_of_json(found, tmp_path):
    run_tersor("audit", TRAINED, "--csv", tmp_path / "a.csv", check=0)
    names, *rows = [line.split(",") for line in (tmp_path / "a.csv").read_text().splitlines()]
    seen, us = trials(found), updates(found)
    for row in (dict(zip(names, r, strict=True)) for r in rows):
        name = row["tensor"].strip('"')
        if row["kind"] == "update":
            want = us.pop((name.removesuffix(V), row["codec"] or None, row["variance_codec"] or None))
            figures = ("nmse", "max_after", "exposed")
        else:
            want = seen.pop((name, row["codec"]))
            figures = ("nmse", "max_abs", "zeroed", "stuck", "range_max", "nbytes")
        assert all(float(row[f]) == want[f] for f in figures)
    assert not us and not any(c["measured"] for c in seen.values())


@pytest.mark.parametrize("gate, codecs, status", [
    ("update-nmse=1.2e-4", "softsign8,sqrt8", 0), ("update-nmse=1e-4", "softsign8,sqrt8", 1),
    ("update-nmse=1e-4,p50", "softsign8,sqrt8", 0), ("update-nmse=1e-4", "softsign8,ratio8,sqrt8", 0),
    ("max-update=1", "softsign8,sqrt8", 0), ("max-update=0.9", "softsign8,sqrt8", 1),
    ("exposed=0", "softsign8,sqrt8", 0), ("nmse=1e-4", "softsign8,sqrt8", 0), ("nmse=1e-6", "softsign8,sqrt8", 1),
    ("stuck=0", "softsign8,sqrt8", 1), ("stuck=0", "softsign8,log8", 0), ("zeroed=0", "softsign8,log8", 1)])
def test_gates(gate, codecs, status):
    done = run_tersor("audit", TRAINED, "--codec", codecs, "--max-error", gate, "-qq", check=status)
    assert not status or f"gate {gate}: found " in done.stderr


@pytest.mark.parametrize("gate", ["update-nmse", "update-nmse=", "update-nmse=x", "update-nmse=1,p33", "u=1",
                                  "max-update=1,p50", "update-nmse=-1", "update-nmse=nan"])
def test_gates_that_are_none(gate):
    assert f"found '{gate}'" in run_tersor("audit", TRAINED, "--max-error", gate, check=2).stderr


def test_a_baseline(tmp_path):
    base = tmp_path / "base.json"
    codecs = ("--codec", "softsign8,sqrt8")
    run_tersor("audit", TRAINED, *codecs, "--json", base, check=0)
    assert "every figure is as in the baseline" in run_tersor("audit", TRAINED, *codecs, "--baseline", base, check=0).stdout
    table = tmp_path / "table.json"
    run_tersor("audit", TRAINED, "--table", "flashoptim-4", "--json", table, check=0)
    done = run_tersor("audit", TRAINED, "--table", "flashoptim-4", "--baseline", table, check=0)
    assert "every figure is as in the baseline" in done.stdout
    report = json.loads(base.read_text())
    trial = report["checkpoints"][0]["tensors"][1]["codecs"][0]
    trial["nmse"] *= 2
    base.write_text(json.dumps(report))
    done = run_tersor("audit", TRAINED, *codecs, "--baseline", base, "--json", check=1)
    moved = json.loads(done.stdout)["moved"]
    assert len(moved) == 1 and float(moved[0]["was"]) == 2 * float(moved[0]["now"])
    assert report["checkpoints"][0]["tensors"][1]["name"] in moved[0]["figure"]
    assert "differ" in run_tersor("audit", TRAINED, "--codec", "linear8,sqrt8", "--baseline", base, check=1).stdout
    base.write_text("{}")
    assert "found no schema" in run_tersor("audit", TRAINED, "--baseline", base, check=3).stderr
    base.write_text('{"schema":"tersor.sweep.v1"}')
    assert "found schema tersor.sweep.v1" in run_tersor("audit", TRAINED, "--baseline", base, check=3).stderr


# ---- inputs that are not in order -----------------------------------------------------------------

def pair_of(shape=(64, 64)):
    return {"w" + k: x for k, x in state(np.random.default_rng(1), shape).items()}


def spoilt(**changes):
    """A sound pair, and tensors beside it."""
    return {**pair_of(), **{k.replace("__", "."): x for k, x in changes.items()}}


N, Z = np.full((8, 8), np.nan, np.float32), np.zeros((8, 8), np.float32)
ONE = np.ones((8, 8), np.float32) / 3


@pytest.mark.parametrize("tensors, name, what", [
    (spoilt(b__exp_avg=ONE, b__exp_avg_sq=N), "b.exp_avg_sq", "64 values are not finite"),
    (spoilt(b__exp_avg=N, b__exp_avg_sq=ONE), "b.exp_avg", "64 values are not finite"),
    (spoilt(b__exp_avg=ONE, b__exp_avg_sq=-ONE), "b.exp_avg_sq", "64 values of a variance are negative"),
    (spoilt(b__exp_avg=Z, b__exp_avg_sq=ONE), "b.exp_avg", "64 values are 0, all there are"),
    (spoilt(b__exp_avg=ONE[:1, :1], b__exp_avg_sq=ONE[:1, :1]), "b.exp_avg", "1 elements are too few")])
def test_a_tensor_without_figures_is_named_and_others_go_on(tmp_path, tensors, name, what):
    path = tmp_path / "s.safetensors"
    save_file(tensors, path)
    done = run_tersor("audit", path, "--json", check=1)
    line = next(line for line in done.stderr.splitlines() if f"tensor {name}: " in line)
    assert what in line and "--keep leaves it out" in line
    seen = updates(json.loads(done.stdout)["checkpoints"][0])
    assert seen["w", "softsign8", "sqrt8"] == updates(audit(sound(tmp_path)))["w", "softsign8", "sqrt8"]
    assert ("b", "softsign8", "sqrt8") not in seen or "0, all" in what
    kept = run_tersor("audit", path, "--keep", r"^b\.", check=0)
    alone = run_tersor("audit", sound(tmp_path), check=0).stdout
    assert kept.stdout[kept.stdout.index("\nform"):] == alone[alone.index("\nform"):]


def sound(folder):
    path = folder / "sound.safetensors"
    save_file(pair_of(), path)
    return path


def test_state_without_pairs(tmp_path):
    path = tmp_path / "s.safetensors"
    save_file({"w.exp_avg_sq": pair_of()["w.exp_avg_sq"]}, path)
    done = run_tersor("audit", path, check=1)
    assert "no momentum has a variance here" in done.stderr and "--map" in done.stderr and "sqrt8" in done.stdout
    run_tersor("audit", path, "--kind", "variance", check=0)


def test_a_codebook_that_cannot_be_learned(tmp_path):
    """Three values only: of the codecs asked for the others are tried."""
    path = tmp_path / "s.safetensors"
    save_file({"w.exp_avg": np.float32(np.arange(4096) % 3 - 1), "w.exp_avg_sq": np.ones(4096, np.float32)}, path)
    done = run_tersor("audit", path, "--codec", "softsign8,gefen8,sqrt8", "--json", check=1)
    assert "learned codecs are not tried" in done.stderr and "bins" in done.stderr
    assert {c["codec"] for c in json.loads(done.stdout)["checkpoints"][0]["codecs"]} == {"softsign8", "sqrt8"}


def test_nothing_to_audit(tmp_path):
    path = tmp_path / "s.safetensors"
    save_file({"steps": np.arange(9)}, path)
    assert "found no tensor" in run_tersor("audit", path, check=3).stderr
    assert "found no tensor" in run_tersor("audit", TRAINED, "--kind", "weight", "--codec", "sqrt8", check=3).stderr
    assert "unknown codec" in run_tersor("audit", TRAINED, "--codec", "sqrt9", check=2).stderr


# ---- tables of the papers -------------------------------------------------------------------------

def pooled(trained, m_codec, v_codec):
    """The update NMSE of all elements together, numpy's."""
    error = total = 0
    for name in (n.removesuffix(M) for n in trained if n.endswith(M)):
        m, v = trained[name + M], trained[name + V]
        m2, v2 = back_in(trained, name, m_codec, v_codec)
        u = np.float64(m / (np.sqrt(v) + np.float32(1e-8)))
        error += ((u - m2 / (np.sqrt(v2) + np.float32(1e-8))) ** 2).sum()
        total += (u ** 2).sum()
    return error / total


@pytest.mark.parametrize("table", ["coat-1", "coat-9"])
def test_coats_tables_are_numpys(trained, table):
    pairs = json.loads(run_tersor("audit", TRAINED, "--table", table, "--json", check=0).stdout)["checkpoints"][0]["pairs"]
    assert len({(p["momentum"], p["variance"]) for p in pairs}) == {"coat-1": 16, "coat-9": 10}[table]
    for p in pairs:
        if "e5m2" not in (p["momentum"], p["variance"]):
            assert p["pooled"] == pytest.approx(pooled(trained, p["momentum"], p["variance"]), rel=1e-5)
    shown = run_tersor("audit", TRAINED, "--table", table, check=0).stdout
    assert all(f"{p['pooled']:.1e}" in shown for p in pairs)


def test_linear_codes_in_learned_blocks(trained):
    """The table of Gefen: groups of a tensor are the blocks that are learned for it."""
    found = json.loads(run_tersor("audit", TRAINED, "--table", "gefen", "--json", check=0).stdout)
    assert found["table"] == "gefen"
    learned = json.loads(run_tersor("codebook", TRAINED, "--json", check=0).stdout)
    seen = trials(found["checkpoints"][0])
    for t in learned["tensors"]:
        x = trained[t["name"] + M]
        y = oracle.decode("linear8", oracle.encode("linear8", x, t["block"], "f32"), t["block"], "f32").reshape(x.shape)
        want = ((np.float64(x) - y) ** 2).sum() / (np.float64(x) ** 2).sum()
        assert seen[t["name"] + M, "linear8"]["nmse"] == pytest.approx(want, rel=1e-6)


def test_the_examples_of_the_document():
    """docs/codecs.md shows what the program prints."""
    text = (ROOT / "docs" / "codecs.md").read_text()
    shown = re.findall(r"^```\n\$ (tersor audit .*)\n((?:(?!```).*\n)+)```$", text, re.M)
    assert len(shown) == 1
    for command, output in shown:
        done = subprocess.run(command.replace("tersor", os.path.abspath(BINARY), 1), shell=True, cwd=TRAINED.parent, check=True,
                              capture_output=True, text=True)
        assert done.stdout == output, command


def test_tables_name_their_codecs():
    assert "--table and --codec exclude each other" in run_tersor("audit", TRAINED, "--table", "gefen", "--codec", "dyn8", check=2).stderr
    for table in ("flashoptim-4", "coat-1", "coat-9", "gefen", "extra-bits"):
        text = run_tersor("audit", TRAINED, "--table", table, check=0).stdout
        assert width(text) <= 80


def test_a_packed_file_is_refused(tmp_path):
    """What it holds would lose nothing in the codec that it is in."""
    packed = tmp_path / "p.safetensors"
    run_tersor("pack", TRAINED, "-o", packed, check=0)
    assert "is packed already" in run_tersor("audit", packed, check=3).stderr


def test_more_tensors_than_memory_has_room_for(tmp_path):
    path = tmp_path / "many.safetensors"
    save_file({f"w{i}": np.ones(16, np.float32) for i in range(30000)}, path)
    done = run_tersor("audit", path, "--codec", "all", check=3)
    assert "more than 256 MiB" in done.stderr and "fewer codecs" in done.stderr


@pytest.mark.parametrize("first", "=+-@")
def test_a_name_is_no_formula_in_csv(tmp_path, first):
    """Spreadsheets run cells that begin so; numbers below 0 are still numbers."""
    name = f"{first}cmd|' /C calc'!A0,\"x\"\u2028\ufeff"
    source = write_source(tmp_path / "m.safetensors", {name: np.linspace(-1, 1, 4096, dtype="f4").reshape(64, 64)})
    run_tersor("audit", source, "--csv", tmp_path / "out.csv", "-q", check=0)
    text = (tmp_path / "out.csv").read_text()
    cells = [row for row in csv.reader(text.splitlines()) if any("calc" in cell for cell in row)]
    assert cells and all("'" + first in row for row in ["".join(c) for c in cells])
    assert "\u2028" not in text and "\ufeff" not in text
