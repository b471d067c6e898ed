"""`tersor store`: what comes back, within which error, and what is refused."""
import json
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import xxhash

from conftest import BINARY, DATA, one_line_error, run_tersor, write_source
from faults import LONG, shim, spread
from store_reader import Store, ids
from test_delta import training
from test_entropy import quiet

FRAMEWORKS = DATA / "frameworks"
TRAINER = FRAMEWORKS / "trainer/checkpoint-30"
SOURCES = [*sorted(FRAMEWORKS.glob("*/*")), *sorted((DATA / "dcp").glob("*")), DATA / "tiny-gpt/checkpoint.pt"]
BOUNDS = {"1e-3": 1e-3, "1e-2": 1.6e-2}


def report(*args, check=0):
    return json.loads(run_tersor("store", *args, "--json=-", "-q", check=check).stdout)


def add(store, path, *options, check=0):
    return report("add", store, path, *options, check=check)


def get(store, step, out, *options):
    quiet("store", "get", store, str(step), "-o", out, *options)
    return out


def contents(path):
    """Bytes and permissions of a file, or of everything below a directory."""
    if path.is_file():
        return {"": (path.read_bytes(), path.stat().st_mode)}
    return {str(p.relative_to(path)): (p.read_bytes() if p.is_file() else None, p.stat().st_mode)
            for p in path.rglob("*")}


def walk(folder, steps, **options):
    """One tensor with its states per step, as run_N.safetensors."""
    paths = training(folder, steps, **options)
    return [p.rename(folder / f"run_{i}.safetensors") for i, p in enumerate(paths)]


def arrays(path):
    """F32 tensors of a safetensors file."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    return {name: np.frombuffer(data[8 + n:][slice(*t["data_offsets"])], "<f4")
            for name, t in header.items() if name != "__metadata__" and t["dtype"] == "F32"}


def nmse(found, true, relative_to=None):
    found, true = found.astype("f8"), true.astype("f8")
    scale = true if relative_to is None else true - relative_to.astype("f8")
    return float(((found - true) ** 2).sum() / (scale ** 2).sum())


def stored(store):
    return {p.relative_to(store): p.read_bytes() for p in store.rglob("*") if p.is_file()}


# --- What comes back --------------------------------------------------------------------------

@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.name)
def test_a_lossless_snapshot_is_the_checkpoint(tmp_path, source):
    add(tmp_path / "s", source, "--step", "7", "--tier", "lossless")
    assert contents(get(tmp_path / "s", 7, tmp_path / source.name)) == contents(source)


@pytest.mark.parametrize("source, tier", [(source, tier) for i, source in enumerate(SOURCES)
                                          for k, tier in enumerate(("exact", "1e-2")) if LONG or i % 2 == k],
                         ids=lambda p: getattr(p, "name", p))
def test_a_snapshot_is_what_a_reader_of_the_format_finds(tmp_path, source, tier):
    """All but FP32 training state has its bits, and zip members the CRC-32 of what they hold."""
    added = add(tmp_path / "s", source, "--step", "7", "--tier", tier)
    out = get(tmp_path / "s", 7, tmp_path / source.name)
    found = Store(tmp_path / "s").files(7)
    written = {name or source.name: data for name, (data, _) in contents(out).items() if data is not None}
    assert found == written
    assert {name: len(data) for name, data in found.items()} == {
        name or source.name: len(data) for name, (data, _) in contents(source).items() if data is not None}
    assert added["new_nbytes"] == sum(len(d) for p, d in stored(tmp_path / "s").items() if p.parts[0] == "objects")
    if added["state_nbytes"]:
        assert run_tersor("diff", source, out, "-q").returncode <= 1
    else:
        assert contents(out) == contents(source)


def test_an_exact_snapshot_has_the_values_of_pack(tmp_path):
    path, = walk(tmp_path, 1, shape=(64, 512))
    add(tmp_path / "s", path, "--step", "1")
    quiet("pack", path, "-o", tmp_path / "p")
    quiet("unpack", tmp_path / "p", "-o", tmp_path / "u.safetensors")
    assert get(tmp_path / "s", 1, tmp_path / "o").stat().st_size == path.stat().st_size
    packed, found = arrays(tmp_path / "u.safetensors"), arrays(tmp_path / "o")
    for name, x in packed.items():
        assert np.array_equal(x, found[name]), name


@pytest.mark.parametrize("tier", ["1e-3", "1e-2", "trace"])
def test_errors_are_what_numpy_finds_and_within_the_bounds(tmp_path, tier):
    """A chain of twelve: weights against the last version that came back, updates and roots."""
    paths = walk(tmp_path, 12, shape=(301, 1101))      # which no vector divides
    before, eps = None, np.float64(1e-8)
    limits = {"1e-3": (1e-3, 1e-3, 1e-3), "1e-2": (1.6e-2,) * 3, "trace": (0.33, 0.25, 7e-2)}[tier]
    for i, path in enumerate(paths):
        errors = add(tmp_path / "s", path, "--tier", tier)["errors"]
        true = arrays(path)
        found = arrays(get(tmp_path / "s", i, tmp_path / f"o{i}"))
        w, m, v = (true[n].astype("f8") for n in ("a.weight", "a.weight.exp_avg", "a.weight.exp_avg_sq"))
        x, y, z = (found[n].astype("f8") for n in ("a.weight", "a.weight.exp_avg", "a.weight.exp_avg_sq"))
        update = nmse(y / (np.sqrt(z) + eps), m / (np.sqrt(v) + eps))
        assert errors["update"] == pytest.approx(update, rel=1e-3)
        assert errors["variance"] == pytest.approx(nmse(np.sqrt(z), np.sqrt(v)), rel=1e-3)
        assert update <= limits[1] * 1.0001 and errors["variance"] <= limits[2]
        assert np.array_equal(found["same.weight"], found["same.weight"][:1].repeat(9000))
        if before is not None:
            moved = nmse(x, w, relative_to=before)
            assert errors["weight"] <= limits[0] and moved <= limits[0] * 1.0001
            assert tier == "trace" or moved >= limits[0] / 3
        before = x
    listed = report("ls", tmp_path / "s")["snapshots"]
    assert max(s["depth"] for s in listed) == 8
    assert run_tersor("store", "verify", tmp_path / "s", check=0).stdout.endswith("intact\n")


def test_bounds_of_ones_own(tmp_path):
    a, b = walk(tmp_path, 2)
    bounds = ["--weight-error", "1e-4", "--update-error", "1e-5", "--variance-error", "1e-6"]
    add(tmp_path / "s", a, *bounds)
    errors = add(tmp_path / "s", b, *bounds)
    assert errors["tier"] == "bounds"
    assert errors["errors"]["weight"] <= 1e-4
    assert errors["errors"]["update"] <= 1e-5 and errors["errors"]["variance"] <= 1e-6
    for bad in (["--tier", "exact", *bounds], bounds[:4], ["--weight-error", "2", *bounds[2:]],
                ["--weight-error", "x", *bounds[2:]]):
        assert run_tersor("store", "add", tmp_path / "s", b, "--step", "9", *bad).returncode == 2


def test_bounds_hold_where_no_step_keeps_them(tmp_path):
    """One element is so large beside the others that its integer would be, too."""
    rng = np.random.default_rng(2)
    w = rng.standard_normal((60, 700)).astype("f4")
    m, v = w * np.float32(1e-3), np.full_like(w, 1e-6)
    bounds = ["--weight-error", "1e-12", "--update-error", "1e-12", "--variance-error", "1e-12"]
    for step in range(2):
        w, m, v = w + np.float32(1e-3) * m, m.copy(), v.copy()
        w.flat[5], m.flat[7], v.flat[9] = 1e3 * (step + 1), 1e3, 1e6
        path = write_source(tmp_path / f"x_{step}.safetensors", {"a.weight": w, "a.weight.exp_avg": m,
                                                                  "a.weight.exp_avg_sq": v})
        errors = add(tmp_path / "s", path, *bounds)["errors"]
        assert all(e is None or e <= 1e-12 for k, e in errors.items() if k != "weight_ulps"), errors
    found = arrays(get(tmp_path / "s", 1, tmp_path / "o"))
    update = m.astype("f8") / (np.sqrt(v.astype("f8")) + 1e-8)
    other = found["a.weight.exp_avg"] / (np.sqrt(found["a.weight.exp_avg_sq"].astype("f8")) + 1e-8)
    assert nmse(other, update.reshape(-1)) <= 1e-11


def test_a_momentum_without_a_variance_has_its_bits_where_there_are_bounds(tmp_path):
    """Muon's: no bound says what its error does; thinning leaves it as it is."""
    rng = np.random.default_rng(3)
    m = rng.standard_normal((70, 90)).astype("f4")
    path = write_source(tmp_path / "x_1.safetensors", {"a.weight": m * 2, "a.weight.momentum_buffer": m})
    add(tmp_path / "s", path, "--tier", "1e-2")
    assert arrays(get(tmp_path / "s", 1, tmp_path / "o"))["a.weight.momentum_buffer"].tobytes() == m.tobytes()
    add(tmp_path / "t", path)
    before = arrays(get(tmp_path / "t", 1, tmp_path / "p"))["a.weight.momentum_buffer"]
    nbytes = report("du", tmp_path / "t")["nbytes"]
    quiet("store", "thin", tmp_path / "t", "--keep", "trace:rest")
    assert arrays(get(tmp_path / "t", 1, tmp_path / "q"))["a.weight.momentum_buffer"].tobytes() == before.tobytes()
    assert report("du", tmp_path / "t")["nbytes"] == nbytes


def test_the_same_bytes_with_any_number_of_threads_and_simd_level(tmp_path):
    paths = walk(tmp_path, 3, shape=(700, 900))
    made = []
    for i, (threads, level) in enumerate([("1", "base"), ("2", "avx2"), ("5", "")]):
        env = {"TERSOR_ISA": level} if level else {}
        for path in paths:
            done = run_tersor("store", "add", tmp_path / f"s{i}", path, "--tier", "1e-2", "-j", threads, "-qq", env=env)
            if done.returncode == 2 and level:
                pytest.skip(f"no {level} here")
        made.append(stored(tmp_path / f"s{i}"))
    assert made[0] == made[1] == made[2]


def test_what_did_not_change_is_stored_once(tmp_path):
    first = add(tmp_path / "s", TRAINER)
    assert first["new_nbytes"] > 400_000
    for step, tier in (31, "exact"), (32, "1e-2"):
        again = add(tmp_path / "s", TRAINER, "--step", str(step), "--tier", tier)
        weights = 0 if tier == "exact" else again["new_nbytes"]
        assert again["new_nbytes"] == weights and weights < 180_000
    # Weights that did not move are those of the exact version: only the state was coded anew.
    listed = report("ls", tmp_path / "s")["snapshots"]
    assert listed[1]["alone_nbytes"] == 0 and listed[2]["depth"] == 0
    assert listed[0]["alone_nbytes"] + listed[0]["shared_nbytes"] == first["new_nbytes"]


def test_values_without_a_codec_come_back(tmp_path):
    """NaN, infinities, -0, huge steps, variances of 0 under momenta, negative variances, subnormals."""
    rng = np.random.default_rng(5)
    w = rng.standard_normal((40, 64)).astype("f4")
    m, v = w * np.float32(1e-3), w * w * np.float32(1e-6)
    tensors = {"a.weight": w, "a.weight.exp_avg": m, "a.weight.exp_avg_sq": v}
    odd = {"nan": ("a.weight", np.nan), "inf": ("a.weight.exp_avg", np.inf), "negative": ("a.weight.exp_avg_sq", -1.0),
           "huge": ("a.weight", 3e38), "zero": ("a.weight.exp_avg_sq", 0.0), "tiny": ("a.weight.exp_avg_sq", 1e-45),
           "largest": ("a.weight.exp_avg_sq", 3.4e38)}
    write_source(tmp_path / "x_0.safetensors", tensors)
    add(tmp_path / "s", tmp_path / "x_0.safetensors", "--tier", "1e-2")
    for i, (name, value) in enumerate(odd.values(), 1):
        changed = {**tensors, name: tensors[name].copy()}
        changed[name].flat[7] = value
        path = write_source(tmp_path / f"x_{i}.safetensors", changed)
        errors = add(tmp_path / "s", path, "--tier", "1e-2")["errors"]
        found = arrays(get(tmp_path / "s", i, tmp_path / "o", "-f"))
        assert found[name].tobytes() == changed[name].tobytes() or (
            found[name].flat[7] == pytest.approx(value, rel=0.5, abs=1e-30))
        for error in errors.values():
            assert error is None or error <= 1.6e-2 or name == "a.weight"
        assert Store(tmp_path / "s").files(i)[path.name] == (tmp_path / "o").read_bytes()


# --- Thinning and dropping --------------------------------------------------------------------

def state_of(store, tmp_path):
    """What each snapshot gives back, by step."""
    return {s["step"]: get(store, s["step"], tmp_path / "now", "-f").read_bytes()
            for s in report("ls", store)["snapshots"]}


def filled(tmp_path, steps=8, tier="exact"):
    for path in walk(tmp_path, steps):
        add(tmp_path / "s", path, "--tier", tier)
    return tmp_path / "s"


RULES = ["--keep", "exact:last=2", "--keep", "drop:older=6", "--keep", "1e-3:every=2", "--keep", "1e-2:rest"]


def test_thin_stores_older_snapshots_coarser(tmp_path):
    store = filled(tmp_path)
    before, nbytes = state_of(store, tmp_path), report("du", store)["nbytes"]
    exact = {s["step"]: s["errors"] for s in report("ls", store)["snapshots"]}
    planned = report("thin", store, *RULES, "--dry-run")
    assert [s["change"] for s in planned["snapshots"]] == ["drop"] + ["store coarser"] * 5 + ["keep"] * 2
    assert [s["to"] for s in planned["snapshots"][1:6]] == ["1e-2", "1e-3"] * 2 + ["1e-2"]
    assert state_of(store, tmp_path) == before
    thinned = report("thin", store, *RULES)
    now = report("ls", store)
    assert now["nbytes"] == nbytes - thinned["freed_nbytes"] < 0.75 * nbytes and now["unused_nbytes"] == 0
    assert [s["tier"] for s in now["snapshots"]] == ["1e-2", "1e-3", "1e-2", "1e-3", "1e-2", "exact", "exact"]
    after = state_of(store, tmp_path)
    assert after[6] == before[6] and after[7] == before[7] and after[1] != before[1]
    for s in now["snapshots"][:5]:
        true, found = arrays(tmp_path / f"run_{s['step']}.safetensors"), arrays(get(store, s["step"], tmp_path / "x", "-f"))
        for k, bound in ("update", BOUNDS[s["tier"]]), ("variance", BOUNDS[s["tier"]]):
            assert s["errors"][k] <= (np.sqrt(bound) + np.sqrt(exact[s["step"]][k])) ** 2 * 1.001
        root, other = (np.sqrt(x["a.weight.exp_avg_sq"].astype("f8")) for x in (true, found))
        assert nmse(other, root) <= s["errors"]["variance"] * 1.001
        assert nmse(found["a.weight.exp_avg"] / (other + 1e-8), true["a.weight.exp_avg"] / (root + 1e-8)) <= (
            s["errors"]["update"] * 1.001)
    run_tersor("store", "verify", store, check=0)
    assert report("thin", store, *RULES)["freed_nbytes"] == 0
    reader = Store(store)
    for step, data in after.items():
        assert next(iter(reader.files(step).values())) == data


def test_drop_keeps_what_others_need(tmp_path):
    store = filled(tmp_path, 6)
    before = state_of(store, tmp_path)
    quiet("store", "drop", store, "0", "3")
    after = state_of(store, tmp_path)
    assert sorted(after) == [1, 2, 4, 5] and all(after[k] == before[k] for k in after)
    run_tersor("store", "verify", store, check=0)
    used = sum(s["alone_nbytes"] for s in report("ls", store)["snapshots"])
    assert used <= report("du", store)["nbytes"]
    assert run_tersor("store", "drop", store, "3").returncode == 2
    quiet("store", "drop", store, "1", "2", "4", "5")
    assert report("du", store)["nbytes"] == 0


def test_diff_of_two_snapshots(tmp_path):
    store = filled(tmp_path, 2)
    found = report("diff", store, "0", "1", check=1)
    a, b = arrays(get(store, 0, tmp_path / "a")), arrays(get(store, 1, tmp_path / "b"))
    assert {t["name"] for t in found["tensors"]} == {"a.weight", "a.weight.exp_avg", "a.weight.exp_avg_sq"}
    for t in found["tensors"]:
        d = b[t["name"]].astype("f8") - a[t["name"]]
        assert t["different"] == np.count_nonzero(d)
        assert t["moved"] == pytest.approx(np.sqrt((d ** 2).mean()), rel=1e-6)
    assert found["different_files"] == 1    # b.weight and the metadata differ
    same = report("diff", store, "1", "1")
    assert same["different"] == same["different_files"] == same["in_one_only"] == 0


def test_diff_measures_whole_tensors_of_which_one_block_changed(tmp_path):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((600, 700)).astype("f4")
    y = x.copy()
    y.flat[5] += 1
    for step, w in enumerate((x, y)):
        add(tmp_path / "s", write_source(tmp_path / f"x_{step}.safetensors", {"a.weight": w}), "--tier", "lossless")
    t, = report("diff", tmp_path / "s", "0", "1", check=1)["tensors"]
    moved = float(y.flat[5]) - float(x.flat[5])
    assert t["different"] == 1 and t["moved"] == pytest.approx(abs(moved) / np.sqrt(x.size), rel=1e-6)
    assert t["relative"] == pytest.approx(abs(moved) / np.linalg.norm(x.astype("f8")), rel=1e-6)


# --- Kills, faults, damage --------------------------------------------------------------------

def killed_at(fraction, seconds, *args):
    process = subprocess.Popen([BINARY, "store", *map(str, args), "-qq"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    time.sleep(fraction * seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_kill_leaves_every_snapshot_as_it_was_or_is_to_be(tmp_path):
    paths = walk(tmp_path, 5, shape=(400, 700))
    for path in paths[:4]:
        add(tmp_path / "s", path)
    done = tmp_path / "done"
    shutil.copytree(tmp_path / "s", done)
    actions = {"add": ("add", paths[4]), "thin": ("thin", "--keep", "exact:last=1", "--keep", "1e-2:rest"),
               "drop": ("drop", "1", "2")}
    expected, seconds = {}, {}
    for name, (action, *more) in actions.items():
        copy = tmp_path / name
        shutil.copytree(done, copy)
        started = time.monotonic()
        quiet("store", action, copy, *more)
        seconds[name] = time.monotonic() - started
        expected[name] = state_of(copy, tmp_path)
        shutil.rmtree(copy)
    before = state_of(done, tmp_path)
    for i in range(1000 if LONG else 12):
        name = list(actions)[i % 3]
        action, *more = actions[name]
        copy = tmp_path / "copy"
        shutil.copytree(done, copy)
        killed_at((i // 3 * 37 % 101) / 100, seconds[name], action, copy, *more)
        after = state_of(copy, tmp_path)
        for step in before:
            assert after.get(step, expected[name].get(step)) in (before[step], expected[name].get(step)), (name, i)
            assert step in after or step not in expected[name]
        left = [s for s in more if name != "drop" or int(s) in after]
        if (name != "add" or 4 not in after) and left:
            quiet("store", action, copy, *left)
        quiet("store", "thin", copy)
        assert state_of(copy, tmp_path) == expected[name]
        assert report("ls", copy)["unused_nbytes"] == 0 and not list((copy / "new").iterdir())
        run_tersor("store", "verify", copy, check=0)
        shutil.rmtree(copy)


def test_verify_finds_a_flipped_bit_in_any_file(tmp_path):
    store = filled(tmp_path, 3, "1e-2")
    files = [p for p in sorted(store.rglob("*")) if p.is_file()]
    sizes = np.array([p.stat().st_size for p in files])
    rng = np.random.default_rng(1)
    for i in range(1000 if LONG else 40):
        path = files[i % len(files)] if i < len(files) else files[rng.choice(len(files), p=sizes / sizes.sum())]
        good, mode = path.read_bytes(), path.stat().st_mode
        bad = bytearray(good)
        bit = int(rng.integers(8 * len(bad)))
        bad[bit // 8] ^= 1 << bit % 8
        path.chmod(0o644)
        path.write_bytes(bad)
        done = run_tersor("store", "verify", store)
        assert done.returncode == 3, (path, bit, done.stdout, done.stderr)
        path.write_bytes(good)
        path.chmod(mode)
    run_tersor("store", "verify", store, check=0)


@pytest.mark.parametrize("action", ["add", "get", "thin"])
def test_a_call_that_fails_is_an_error_and_loses_nothing(tmp_path, action):
    """Each system call fails once, as on a full disk; the snapshots are what they were."""
    paths = walk(tmp_path, 3)
    for path in paths[:2]:
        add(tmp_path / "s", path)
    before = state_of(tmp_path / "s", tmp_path)
    copy, out = tmp_path / "copy", tmp_path / "out"
    args = {"add": ("add", copy, paths[2]), "get": ("get", copy, "1", "-o", out),
            "thin": ("thin", copy, "--keep", "1e-2:rest")}[action]

    def run(**fault):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path / "s", copy)
        out.unlink(missing_ok=True)
        return run_tersor("store", *args, "-qq", "-j1", env=shim(tmp_path, **fault))
    count = tmp_path / "count"
    assert run(count=count).returncode == 0
    calls = int(np.frombuffer(count.read_bytes(), "u8")[0])
    for call in spread(calls, 24):
        done = run(fault=f"any:{call}:ENOSPC")
        assert done.returncode in (0, 3, 4), (call, done.stderr)
        after = state_of(copy, tmp_path)
        for step in before:
            assert after[step] == before[step] or action == "thin", (call, step)
        run_tersor("store", "verify", copy, check=0)


def test_a_full_disk_is_said(tmp_path):
    paths = walk(tmp_path, 2)
    add(tmp_path / "s", paths[0])
    done = run_tersor("store", "add", tmp_path / "s", paths[1], "-qq",
                      preexec_fn=lambda: __import__("resource").setrlimit(
                          __import__("resource").RLIMIT_FSIZE, (20_000, 20_000)))
    assert done.returncode in (4, 128 + signal.SIGXFSZ, -signal.SIGXFSZ)
    assert [s["step"] for s in report("ls", tmp_path / "s")["snapshots"]] == [0]


def test_a_store_that_lacks_an_object_says_which_and_what_needs_it(tmp_path):
    store = filled(tmp_path, 2)
    name = ids(Store(store).snapshot(1)["tensors"][0]["objects"])[0]
    (store / "objects" / name[:2] / name[2:]).unlink()
    done = run_tersor("store", "ls", store, check=0)
    assert name[2:] in done.stderr and "is missing, and step 1 needs it" in done.stderr
    assert "is missing" in json.dumps(report("verify", store, check=3))
    assert "is missing" in one_line_error(run_tersor("store", "get", store, "1", "-o", tmp_path / "o", "-q", check=3))
    assert not (tmp_path / "o").exists()


def rewritten(store, step, edit):
    """A snapshot whose text is @edit's, with the right hash."""
    path = store / "snapshots" / f"{step:015d}.json"
    body = path.read_bytes().rpartition(b',"check":"')[0].decode()
    body = edit(body)
    path.chmod(0o644)
    path.write_bytes(f'{body},"check":"{xxhash.xxh3_128_hexdigest(body.encode())}"}}\n'.encode())


LIES = {
    "path up": lambda s: s.replace('"path":"run_0.safetensors"', '"path":"../run_0"'),
    "absolute path": lambda s: s.replace('"path":"run_0.safetensors"', '"path":"/tmp/run_0"'),
    "another step": lambda s: s.replace('"step":0', '"step":5'),
    "version": lambda s: s.replace('"tersor_snapshot":1', '"tersor_snapshot":2'),
    "larger tensor": lambda s: s.replace('"n":42000', '"n":420000000'),
    "tensors overlap": lambda s: s.replace('"file":0', '"file":0', 1).replace('"offset":', '"offset":1', 1),
    "file": lambda s: s.replace('"file":0', '"file":9', 1),
    "smaller file": lambda s: s.replace('"nbytes":', '"nbytes":1', 1).replace('"nbytes":1', '"nbytes":', 1)
    .replace('"nbytes":5', '"nbytes":1'),
    "crc outside": lambda s: s.replace('"crcs":[]', '"crcs":[99999999,0,5]'),
    "kind": lambda s: s.replace('"kind":"weight"', '"kind":"heavy"', 1),
    "dtype": lambda s: s.replace('"dtype":"F32"', '"dtype":"F4"', 1),
    "digits": lambda s: s.replace('"objects":"', '"objects":"x', 1),
    "no tensors": lambda s: s.replace('"tensors":[', '"other":['),
    "mode": lambda s: s.replace('"mode":', '"mode":99', 1),
    "phase": lambda s: s.replace('"phase":0', '"phase":7000', 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_snapshot_that_lies_is_refused(tmp_path, lie):
    store = filled(tmp_path, 2)
    rewritten(store, 0, LIES[lie])
    done = run_tersor("store", "verify", store, check=3)
    assert "000000000000000.json" in done.stdout
    assert "nothing is removed from the store" in one_line_error(run_tersor("store", "thin", store, "-q", check=3))
    assert run_tersor("store", "get", store, "0", "-o", tmp_path / "o", "-q").returncode == 2
    get(store, 1, tmp_path / "fine")


def test_objects_of_another_tensor_or_with_a_false_base_are_refused(tmp_path):
    store = filled(tmp_path, 2)
    snapshot = Store(store).snapshot(0)
    a, b = (ids(t["objects"])[0] for t in snapshot["tensors"][:2])
    rewritten(store, 0, lambda s: s.replace(a, "0" * 32).replace(b, a).replace("0" * 32, b))
    assert "it is a block of another tensor" in one_line_error(
        run_tersor("store", "get", store, "0", "-o", tmp_path / "o", "-q", check=3))


# --- Who uses it at once, and where -----------------------------------------------------------

def test_two_that_add_at_once_are_both_there(tmp_path):
    paths = walk(tmp_path, 6, shape=(400, 700))
    add(tmp_path / "s", paths[0])
    running = [subprocess.Popen([BINARY, "store", "add", tmp_path / "s", p, "-qq"]) for p in paths[1:]]
    assert [p.wait() for p in running] == [0] * 5
    assert [s["step"] for s in report("ls", tmp_path / "s")["snapshots"]] == list(range(6))
    run_tersor("store", "verify", tmp_path / "s", check=0)


def test_thinning_wants_the_store_for_itself(tmp_path):
    import fcntl
    store = filled(tmp_path, 2)
    with open(store / "tersor-store.json") as f:
        fcntl.flock(f, fcntl.LOCK_SH)
        assert "another process uses the store" in one_line_error(run_tersor("store", "thin", store, check=4))
        assert len(report("ls", store)["snapshots"]) == 2
        fcntl.flock(f, fcntl.LOCK_EX)
        assert "another process thins the store" in one_line_error(run_tersor("store", "ls", store, check=4))
    quiet("store", "thin", store)


@pytest.mark.skipif(os.getuid() == 0 and not shutil.which("unshare"), reason="root writes anywhere")
def test_a_store_that_cannot_be_written_can_be_read(tmp_path):
    store = filled(tmp_path, 2)
    script = f"mount --bind {store} {store} && mount -o remount,ro,bind {store} && exec \"$@\""

    def inside(*args):
        return subprocess.run(["unshare", "-rm", "sh", "-c", script, "sh", BINARY, "store", *map(str, args)],
                              capture_output=True, text=True)
    if inside("ls", store).returncode not in (0, 3, 4):
        pytest.skip("no mount namespaces here")
    assert inside("get", store, "1", "-o", tmp_path / "o", "-qq").returncode == 0
    assert inside("verify", store).returncode == 0
    done = inside("add", store, tmp_path / "run_1.safetensors", "--step", "9")
    assert done.returncode == 4 and "Read-only file system" in done.stderr


def test_a_wrong_command_line_is_told_before_a_store_is_looked_for_or_made(tmp_path):
    none, path = tmp_path / "none", tmp_path / "checkpoint"
    path.write_bytes(b"x")
    for args, words in [(("get", none, "x", "-o", tmp_path / "o"), "expected a number"),
                        (("get", none, "0"), "get needs -o OUT"), (("diff", none, "0", "x"), "expected a number"),
                        (("drop", none, "0", "x"), "expected a number"), (("add", none, path), "give --step N"),
                        (("thin", none, "--keep", "1e-2"), "expected TIER:WHICH")]:
        done = run_tersor("store", *args)
        assert done.returncode == 2 and words in done.stderr, (args, done.returncode, done.stderr)
    done = run_tersor("store", "get", none, "0", "-o", tmp_path / "o")
    assert done.returncode == 3 and "is no store" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_what_is_no_store_and_what_does_not_fit_together(tmp_path):
    path, = walk(tmp_path, 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("x")
    cases = [(("ls", tmp_path / "none"), 3, "is no store"), (("add", tmp_path / "full", path), 3, "is no store"),
             (("add", tmp_path / "s", tmp_path / "none_1"), 4, "cannot open"),
             (("add", tmp_path / "s", path, "--keep", "1e-2:rest"), 2, "--keep does not go with store add"),
             (("ls", tmp_path / "s", "--tier", "exact"), 2, "--tier does not go with store ls"),
             (("lsx", tmp_path / "s"), 2, "ls"), (("get", tmp_path / "s", "0"), 2, "get needs -o OUT"),
             (("get", tmp_path / "s", "9", "-o", tmp_path / "o"), 2, "has no step 9"),
             (("get", tmp_path / "s", "x", "-o", tmp_path / "o"), 2, "expected a number"),
             (("add", tmp_path / "s", path), 2, "has step 0 already"),
             (("add", tmp_path / "s", tmp_path / "full"), 2, "give --step N"),
             (("thin", tmp_path / "s", "--keep", "1e-2"), 2, "expected TIER:WHICH"),
             (("thin", tmp_path / "s", "--keep", "1e-2:last"), 2, "expected last=N"),
             (("thin", tmp_path / "s", "--keep", "1e-2:every=0"), 2, "expected last=N"),
             (("get", tmp_path / "s", "0", "-o", path), 4, "output exists"),
             (("get", tmp_path / "s", "0", "-o", tmp_path / "s/x"), 4, "inside")]
    add(tmp_path / "s", path)
    for args, status, words in cases:
        done = run_tersor("store", *args)
        assert done.returncode == status and words in done.stderr, (args, done.returncode, done.stderr)
    (tmp_path / "plain_3").mkdir()
    done = run_tersor("store", "add", tmp_path / "plain_3/s", tmp_path / "plain_3", "-q")
    assert done.returncode == 4 and not list((tmp_path / "plain_3").iterdir())


def test_a_base_in_the_store_that_was_replaced_is_found(tmp_path):
    """An object's bytes are its name's: another one in its place is not decoded."""
    store = filled(tmp_path, 2, "1e-2")
    base = Store(store).snapshot(0)
    name = next(ids(t["objects"])[0] for t in base["tensors"] if t["of"][0]["name"] == "a.weight")
    other = next(ids(t["objects"])[0] for t in base["tensors"] if t["of"][0]["name"] == "same.weight")
    path = store / "objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes((store / "objects" / other[:2] / other[2:]).read_bytes())
    assert "damaged: its bytes have the hash" in one_line_error(
        run_tersor("store", "get", store, "1", "-o", tmp_path / "o", "-q", check=3))
