"""Codecs chosen tensor by tensor: `pack --auto`, `--max-bytes`.  numpy decides again what is within a bound."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import oracle
import reader
from conftest import DATA, one_line_error

TRAINED = DATA / "tiny-gpt" / "expected-adamw-fp32.safetensors"
GROUPS = {"dyn8": 256, "e4m3": 128, "e4m3x": 128, "ratio8": 64, "log8": 64}
USUAL = [("dyn8", "dyn8"), ("e4m3", "e4m3"), ("e4m3x", "e4m3x"), ("ratio8", "sqrt8"), ("ratio8", "log8"),
         ("softsign8", "sqrt8"), ("bf16", "bf16")]


def trip(codec, x, kind):
    """Bytes of the planes, and what comes back, flat."""
    group = GROUPS.get(codec, 32)
    scale = "f28" if codec == "log8" else "e8m8"
    planes = oracle.encode(codec, x, group, scale, kind=kind)
    return sum(p.nbytes for p in planes.values()), oracle.decode(codec, planes, group, scale, kind=kind)


def pair_trip(codecs, m, v):
    """Bytes of both, and the error of the update."""
    nv, v2 = trip(codecs[1], v, "variance")
    if codecs[0] == "ratio8":
        nm, p = trip("ratio8", oracle.ratio(m, v).reshape(m.shape), "momentum")
        m2 = oracle.momentum(p, v2)
    else:
        nm, m2 = trip(codecs[0], m, "momentum")
    return nm + nv, oracle.update_error(m, v, m2, v2)


@pytest.fixture(scope="module")
def trials():
    """Per weight of the trained model: bytes and errors of the usual candidates, by bytes."""
    tensors = load_file(TRAINED)
    found = {}
    for name in tensors:
        if name + ".exp_avg" in tensors and tensors[name].size >= 16:
            m, v = tensors[name + ".exp_avg"], tensors[name + ".exp_avg_sq"]
            all_of = [(*pair_trip(pair, m, v), pair) for pair in USUAL]
            found[name] = sorted(all_of, key=lambda t: t[0])
    assert len(found) == 29
    return found


def cheapest(options, bound):
    return next((pair for _, error, pair in options if error <= bound), (None, None))


def codecs(packed):
    return {name: None if t.codec == "raw" else t.codec for name, t in reader.read(packed).tensors.items()}


def pack(tersor, folder, source, *args, check=0, **kwargs):
    packed = folder / "packed.safetensors"
    done = tersor("pack", source, "-o", packed, "-f", *args, check=check, **kwargs)
    return packed, done


@pytest.mark.parametrize("bound", [1e-6, 2.5e-5, 3e-5, 4e-5, 1e-4, 2.5e-4, 1e-3, 0.5, 1e9])
def test_each_pair_has_the_smallest_codecs_within_the_bound(tersor, tmp_path, trials, bound):
    packed, done = pack(tersor, tmp_path, TRAINED, "--auto", bound, "--json")
    got = codecs(packed)
    report = {t["name"]: t for t in json.loads(done.stdout)["tensors"]}
    for name, options in trials.items():
        want = cheapest(options, bound)
        assert (got[name + ".exp_avg"], got[name + ".exp_avg_sq"]) == want, name
        assert got[name] == "bf16+ulp8"
        choice = report[name + ".exp_avg_sq"]["choice"]
        order = [pair for _, _, pair in options]
        assert choice["tried"] == (order.index(want) + 1 if want[0] else len(order))
        assert choice["metric"] == "update-nmse"
        errors = {pair: error for _, error, pair in options}
        smaller = order[:order.index(want)] if want[0] else order
        if want[0]:
            assert choice["error"] == pytest.approx(errors[want], rel=1e-4)
            assert choice["error"] == report[name + ".exp_avg_sq"]["update"]["nmse"]
        else:
            assert report[name + ".exp_avg_sq"]["raw_reason"] == "no codec within the bound"
        if smaller:
            least = min(smaller, key=errors.get)
            assert choice["refused"] == least[1]
            assert choice["refused_error"] == pytest.approx(errors[least], rel=1e-3)
        else:
            assert choice["refused"] is None
    tersor("verify", packed, "--against", TRAINED, check=0)


def test_a_dry_run_chooses_the_same(tersor, tmp_path):
    packed, done = pack(tersor, tmp_path, TRAINED, "--auto", "1e-4", "--json")
    real = json.loads(done.stdout)
    plan = json.loads(tersor("pack", TRAINED, "-o", tmp_path / "x", "--auto", "1e-4", "--json", "--dry-run",
                             check=0).stdout)
    assert not (tmp_path / "x").exists() and plan["choice"] == real["choice"]
    assert [(t["codec"], t.get("choice")) for t in plan["tensors"]] == [
        (t["codec"], t.get("choice")) for t in real["tensors"]]


@pytest.mark.parametrize("option", [["--auto", "1e-4"], ["--max-bytes", "500000"]])
def test_threads_and_processors_choose_the_same(tersor, tmp_path, option):
    rng = np.random.default_rng(8)
    tensors = {}
    for i, shape in enumerate([(700001,), (512, 700), (33,)]):
        v = np.float32(np.exp(rng.normal(-15, 1 + 3 * i, shape)))
        tensors |= {f"t{i}.exp_avg_sq": v, f"t{i}.exp_avg": np.float32(rng.normal(0, 0.3, shape) * np.sqrt(v)),
                    f"t{i}": np.float32(rng.normal(size=shape))}
    source = tmp_path / "s.safetensors"
    save_file(tensors, source)
    if option[0] == "--max-bytes":
        option = [option[0], "6500000"]
    files = set()
    for threads, level in [(1, "base"), (2, "avx2"), (3, "avx512")]:
        packed, _ = pack(tersor, tmp_path, source, *option, "-j", threads, "-q",
                         env={"TERSOR_ISA": level} if level == "base" else None)
        files.add(packed.read_bytes())
    assert len(files) == 1 and len(set(codecs(tmp_path / "packed.safetensors").values())) > 2


# ---- the list ----------------------------------------------------------------------------------

def test_a_list_is_tried_in_the_order_of_bytes(tersor, tmp_path, trials):
    packed, done = pack(tersor, tmp_path, TRAINED, "--auto", "1", "--auto-codecs", "bf16/bf16,flash,tight", "--json")
    got = codecs(packed)
    for name, options in trials.items():
        smallest = min((n, USUAL.index(pair)) for n, _, pair in options if pair in USUAL[4:])
        if sum(n == smallest[0] for n, _, _ in options) == 1:
            assert got[name + ".exp_avg"] == USUAL[smallest[1]][0]


def test_weights_have_a_choice_if_the_list_has_their_codecs(tersor, tmp_path):
    names = ["bf16", "bf16+trunc4", "bf16+ulp8", "e5m2+trunc8", "e4m3+trunc4"]
    tensors = load_file(TRAINED)
    for bound in (1e-4, 1e-6, 1e-8, 1e-20):
        packed, done = pack(tersor, tmp_path, TRAINED, "--auto", bound, "--auto-codecs", ",".join(names[1:] + ["flash"]),
                            "--json")
        report = {t["name"]: t for t in json.loads(done.stdout)["tensors"]}
        for name, codec in codecs(packed).items():
            if name.endswith(("exp_avg", "exp_avg_sq")):
                continue
            x = tensors[name].ravel().astype(np.float64)
            options = []
            for one in names[1:]:
                planes = oracle.encode(one, tensors[name])
                back = oracle.decode(one, planes).astype(np.float64)
                options.append((sum(p.nbytes for p in planes.values()), names.index(one), one,
                                ((x - back) ** 2).sum() / (x ** 2).sum()))
            want = next((o for o in sorted(options) if o[3] <= bound), None)
            assert codec == (want[2] if want else None), (name, bound)
            assert report[name]["choice"]["metric"] == "nmse"


def test_state_without_its_other_moment_is_chosen_by_its_own_error(tersor, tmp_path):
    tensors = load_file(TRAINED)
    m = tensors["h.0.c_fc.weight.exp_avg"]
    source = tmp_path / "s.safetensors"
    save_file({"w": tensors["h.0.c_fc.weight"], "w.momentum_buffer": m}, source)
    packed, done = pack(tersor, tmp_path, source, "--auto", "3e-5", "--json")
    report = {t["name"]: t for t in json.loads(done.stdout)["tensors"]}
    errors = {}
    for codec in ("dyn8", "e4m3", "e4m3x", "softsign8", "bf16"):
        n, back = trip(codec, m, "momentum")
        errors[codec] = (n, ((back - m.ravel()).astype(np.float64) ** 2).sum() / (m.astype(np.float64) ** 2).sum())
    want = next(c for c in sorted(errors, key=lambda c: errors[c][0]) if errors[c][1] <= 3e-5)
    assert codecs(packed)["w.momentum_buffer"] == want == "softsign8"
    assert report["w.momentum_buffer"]["choice"]["metric"] == "nmse"


# ---- values ------------------------------------------------------------------------------------

def state(rng, shape):
    v = np.float32(np.exp(rng.normal(-15, 2, shape)))
    return np.float32(rng.normal(0, 0.3, shape) * np.sqrt(v)), v


def test_zeros_take_the_smallest(tersor, tmp_path):
    zeros = np.zeros((40, 64), np.float32)
    save_file({"w": zeros + 1, "w.exp_avg": zeros, "w.exp_avg_sq": zeros}, tmp_path / "s.safetensors")
    packed, _ = pack(tersor, tmp_path, tmp_path / "s.safetensors", "--auto", "0")
    assert codecs(packed)["w.exp_avg"] == "dyn8" and codecs(packed)["w.exp_avg_sq"] == "dyn8"


@pytest.mark.parametrize("bad", ["exp_avg", "exp_avg_sq", "both"])
def test_a_tensor_with_nan_stays_raw_and_the_other_is_chosen_alone(tersor, tmp_path, bad):
    m, v = state(np.random.default_rng(3), (40, 64))
    for name, x in (("exp_avg", m), ("exp_avg_sq", v)):
        if bad in (name, "both"):
            x[3, 3] = np.nan
    save_file({"w": np.ones((40, 64), np.float32), "w.exp_avg": m, "w.exp_avg_sq": v}, tmp_path / "s.safetensors")
    packed, done = pack(tersor, tmp_path, tmp_path / "s.safetensors", "--auto", "1e-3")
    got = codecs(packed)
    for name in ("exp_avg", "exp_avg_sq"):
        assert (got["w." + name] is None) == (bad in (name, "both")), got
        assert (f"w.{name}: found 1 non-finite value, kept raw" in done.stderr) == (bad in (name, "both"))
    pack(tersor, tmp_path, tmp_path / "s.safetensors", "--auto", "1e-3", "--strict", check=3)


def test_values_that_codecs_cannot_hold_are_no_choice(tersor, tmp_path):
    m, v = state(np.random.default_rng(3), (40, 64))
    v[5, 5] = -1
    save_file({"w": np.ones((40, 64), np.float32), "w.exp_avg": m, "w.exp_avg_sq": v}, tmp_path / "s.safetensors")
    packed, done = pack(tersor, tmp_path, tmp_path / "s.safetensors", "--auto", "1e-3",
                        "--auto-codecs", "dyn8,tight,flash,bf16/bf16")
    assert codecs(packed)["w.exp_avg_sq"] == "bf16", done.stderr
    packed, done = pack(tersor, tmp_path, tmp_path / "s.safetensors", "--auto", "1e-3", "--auto-codecs", "flash")
    assert codecs(packed)["w.exp_avg_sq"] is None and "w.exp_avg_sq: found 1 negative variance" in done.stderr


# ---- a budget ----------------------------------------------------------------------------------

@pytest.mark.parametrize("budget", [475000, 482000, 500000, 560000, 620000, 956000, 2000000])
def test_a_budget_gets_the_smallest_worst_error_that_fits(tersor, tmp_path, trials, budget):
    packed, done = pack(tersor, tmp_path, TRAINED, "--max-bytes", budget, "--json")
    report = json.loads(done.stdout)
    bound = report["choice"]["bound"]
    assert packed.stat().st_size <= budget
    got = codecs(packed)
    for name, options in trials.items():
        want = cheapest(options, bound * (1 + 1e-8))
        assert (got[name + ".exp_avg"], got[name + ".exp_avg_sq"]) == want, name
    errors = sorted({0.0} | {error for options in trials.values() for _, error, _ in options})
    lower = [e for e in errors if e < bound * (1 - 1e-4)]
    if lower:
        packed, _ = pack(tersor, tmp_path, TRAINED, "--auto", lower[-1] * (1 + 1e-5))
        assert packed.stat().st_size > budget
    else:
        assert bound == 0 and None in got.values()


@pytest.mark.parametrize("args", [["--max-bytes", "400000"],
                                  ["--max-bytes", "400K", "--auto-codecs", "flash,bf16/bf16"]])
def test_a_budget_that_cannot_be_met_says_what_can(tersor, tmp_path, args):
    packed, done = pack(tersor, tmp_path, TRAINED, *args, check=1)
    line = done.stderr.splitlines()[-1]
    assert "with the smallest codecs to choose from, expected at most" in line and "--auto-codecs" in line
    assert not packed.exists()
    least = int(line.split("found ")[1].split()[0])
    pack(tersor, tmp_path, TRAINED, "--max-bytes", least, *args[2:])
    assert packed.stat().st_size <= least
    packed.unlink()
    # Other codecs can have descriptions that are a few bytes shorter.
    pack(tersor, tmp_path, TRAINED, "--max-bytes", least - 200, *args[2:], check=1)
    assert not packed.exists()


def test_weights_can_be_part_of_a_budget(tersor, tmp_path):
    packed, _ = pack(tersor, tmp_path, TRAINED, "--max-bytes", "350K", "--auto-codecs",
                     "e4m3+trunc4,bf16,bf16+ulp8,e5m2+trunc8,flash,tight,dyn8")
    assert packed.stat().st_size <= 350 * 1024
    assert {c for n, c in codecs(packed).items() if ".exp_avg" not in n} <= {"e4m3+trunc4", "bf16", "e5m2+trunc8"}


# ---- directories, and what is refused -----------------------------------------------------------

def test_a_directory_is_chosen_for_file_by_file(tersor, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(TRAINED.read_bytes())
    done = tersor("pack", folder, "-o", tmp_path / "out", "--auto", "3e-5", check=0)
    alone, _ = pack(tersor, tmp_path, TRAINED, "--auto", "3e-5")
    inside = next(p for p in (tmp_path / "out").rglob("*.tersor"))
    assert codecs(inside) == codecs(alone) and len(set(codecs(alone).values())) > 3
    assert "chosen within an error of 3.0e-05" in done.stdout
    done = tersor("pack", folder, "-o", tmp_path / "no", "--max-bytes", "1M", check=2)
    assert "--max-bytes is for one packed file" in one_line_error(done)


@pytest.mark.parametrize("args, message", [
    (["--auto", "1e-4", "--max-bytes", "1M"], "exclude each other"),
    (["--auto", "x"], "expected a number from 0"), (["--auto", "-1"], "expected a number"),
    (["--auto", "nan"], "expected a number"), (["--max-bytes", "0"], "--max-bytes"),
    (["--auto-codecs", "flash"], "needs --auto or --max-bytes"),
    (["--auto", "1", "--auto-codecs", "softsign8"], "is for momenta only"),
    (["--auto", "1", "--auto-codecs", "log8"], "is for variances only"),
    (["--auto", "1", "--auto-codecs", "sqrt8/softsign8"], "'sqrt8' is not for momentum"),
    (["--auto", "1", "--auto-codecs", "gefen"], "learned from the data"),
    (["--auto", "1", "--auto-codecs", "flash,,tight"], "unknown"),
    (["--auto", "1", "--auto-codecs", ""], "unknown"),
    (["--auto", "1", "--auto-codecs", "softsing8/sqrt8"], "did you mean 'softsign8'?"),
    (["--auto", "1", "--auto-codecs", ",".join(["flash"] * 21)], "more than 20"),
    (["--auto", "1", "--state", "tight"], "--state and --auto exclude each other"),
    (["--auto", "1", "--momentum", "bf16"], "--momentum and --auto exclude each other"),
    (["--auto", "1", "--weights", "bf16", "--auto-codecs", "bf16"], "--weights does not go with")])
def test_choices_that_make_no_sense(tersor, tmp_path, args, message):
    packed, done = pack(tersor, tmp_path, TRAINED, *args, check=2)
    assert message in one_line_error(done) and not packed.exists()
