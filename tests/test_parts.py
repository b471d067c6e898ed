"""`--part I/N` and `tersor join`: what N processes make together is, to the byte, what one makes."""
import os
import re
import shutil

import numpy as np
import pytest

import torchfile
from conftest import DATA, one_line_error, run_tersor, write_source
from helpers.part_reports import HEADER, Report, change

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"
COUNTS = 1, 2, 3, 5, 7


def odd_tensors(seed=0):
    """One tensor with most of the bytes, odd sizes, empty and scalar ones, pairs of state, raw ones."""
    rng = np.random.default_rng(seed)
    tensors = {
        "big.weight": rng.normal(size=(1100, 1201)).astype(np.float32),
        "a.weight": rng.normal(size=(3, 262147 // 3)).astype(np.float32),
        "a.weight.exp_avg": rng.normal(size=(3, 262147 // 3)).astype(np.float32) / 100,
        "a.weight.exp_avg_sq": rng.normal(size=(3, 262147 // 3)).astype(np.float32) ** 2 / 1e6,
        "empty.weight": np.zeros((0, 4), np.float32),
        "scalar": np.float32(3).reshape(()),
        "ids": ("I64", (40_000,), np.arange(40_000).tobytes()),
        "half": ("BF16", (300_001,), rng.integers(0, 2**14, 300_001, dtype=np.uint16).tobytes()),
    }
    return tensors


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "in.safetensors"
    write_source(path, odd_tensors())
    return path


def contents(folder):
    """Every file of a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def one_process(tmp_path, args, folder="one"):
    """A command in a folder of its own: its exit status, output, and the files it makes there."""
    where = tmp_path / folder
    where.mkdir()
    done = run_tersor(*args, cwd=where)
    return done.returncode, done.stdout, done.stderr, contents(where)


def in_parts(tmp_path, args, n, out):
    """The same in n parts, the last first."""
    where = tmp_path / f"parts-{n}"
    where.mkdir()
    for i in range(n, 0, -1):
        done = run_tersor(*args, "--part", f"{i}/{n}", cwd=where, check=0)
        assert done.stderr == "" and re.match(rf"{re.escape(out)}: part {i} of {n}: ", done.stdout)
        assert not (where / out).exists()
    done = run_tersor("join", out, cwd=where)
    if done.returncode > 1:     # a failure is no outcome: the parts stay
        for i in range(1, n + 1):
            (where / f"{out}.part-{i}-of-{n}.bin").unlink()
    found = done.returncode, done.stdout, done.stderr, contents(where)
    shutil.rmtree(where)
    return found


def assert_same(tmp_path, args, out, counts=COUNTS):
    whole = one_process(tmp_path, args)
    for n in counts:
        assert in_parts(tmp_path, args, n, out) == whole
    shutil.rmtree(tmp_path / "one")
    return whole


PACKING = [
    (),
    ("--max-shard-size", "2M"),
    ("--model", "model.safetensors", "--state", "tight"),
    ("--group", "48", "--variance", "bf16", "--max-error", "nmse=1e-3"),
    ("--weights", "fp16+ulp8", "--max-error", "nmse=1e-12"),
    ("--entropy",),
    ("--entropy=states", "--max-shard-size", "2M"),
]


@pytest.mark.parametrize("options", PACKING, ids=lambda o: " ".join(o) or "plain")
def test_pack_in_parts_has_the_bytes_of_one_process(tmp_path, source, options):
    args = "pack", source, "-o", "out.safetensors", "--json", "report.json", "-v", *options
    status, _, _, files = assert_same(tmp_path, args, "out.safetensors")
    assert status == (1 if options[-1:] == ("nmse=1e-12",) else 0)
    assert ("out.safetensors" in files) == (status == 0 and "--max-shard-size" not in options)


def test_parts_more_than_pieces_are_empty(tmp_path):
    args = "pack", TINY, "-o", "out.safetensors", "--json", "report.json"
    assert_same(tmp_path, args, "out.safetensors", counts=(23,))
    write_source(tmp_path / "one.safetensors", {"a.weight": np.ones(40, np.float32)})
    args = "pack", tmp_path / "one.safetensors", "-o", "out.safetensors"
    assert_same(tmp_path, args, "out.safetensors", counts=(3,))


def test_values_that_change_the_layout_are_packed_when_joined(tmp_path):
    """Which tensors stay raw, no part can know alone."""
    tensors = odd_tensors(1)
    tensors["big.weight"][900, 7] = np.nan
    write_source(tmp_path / "in.safetensors", tensors)
    args = "pack", tmp_path / "in.safetensors", "-o", "out.safetensors", "--json", "report.json"
    status, _, stderr, _ = assert_same(tmp_path, args, "out.safetensors", counts=(1, 3))
    assert status == 0 and "1 non-finite value" in stderr


def test_packed_files_are_coded_and_made_plain_again_in_parts(tmp_path, source):
    """Where a coded piece goes is known when all before it are: parts leave them in files of their own."""
    packed, coded = tmp_path / "packed.safetensors", tmp_path / "coded.safetensors"
    run_tersor("pack", source, "-o", packed, check=0)
    run_tersor("pack", packed, "-o", coded, "--entropy", check=0)
    out = "-o", "out.safetensors", "--json", "report.json"
    assert_same(tmp_path, ("pack", packed, *out, "--entropy"), "out.safetensors")
    assert_same(tmp_path, ("convert", coded, *out, "--plain"), "out.safetensors", counts=(3,))
    tensors = odd_tensors()
    tensors["big.weight"] += np.float32(1e-3)
    write_source(tmp_path / "next.safetensors", tensors)
    args = "pack", tmp_path / "next.safetensors", *out, "--delta", packed
    _, _, _, files = assert_same(tmp_path, args, "out.safetensors", counts=(2, 3))
    (tmp_path / "delta.safetensors").write_bytes(files["out.safetensors"])
    args = "convert", tmp_path / "delta.safetensors", *out, "--plain", "--base", packed
    assert_same(tmp_path, args, "out.safetensors", counts=(2,))


@pytest.mark.parametrize("how", ["short", "long", "changed", "fewer", "more"])
def test_coded_pieces_that_are_not_all_there_are_refused(tmp_path, how):
    run_tersor("pack", TINY, "-o", tmp_path / "in.safetensors", check=0)
    for i in 1, 2:
        run_tersor("pack", "in.safetensors", "-o", "out.safetensors", "--entropy", "--part", f"{i}/2",
                   cwd=tmp_path, check=0)
    path = report_of(tmp_path, 2, 2)
    old, report = path.read_bytes(), Report(path.read_bytes())
    assert report.data_nbytes == len(report.data) > 10_000 and report.bytes() == old
    changed = bytearray(old)
    changed[HEADER.size + 5000] ^= 1
    if how in ("fewer", "more"):
        report.data_nbytes += 1 if how == "more" else -1
        report.data = (report.data + b"x")[:report.data_nbytes]
    path.write_bytes({"short": old[:-5], "long": old + b"x", "changed": changed}.get(how) or report.bytes())
    refused(tmp_path, 3, path.name)
    path.write_bytes(old)
    run_tersor("join", "out.safetensors", cwd=tmp_path, check=0)


@pytest.mark.parametrize("out", ["out.safetensors", "out.pt", "out.npz"])
def test_unpack_and_convert_in_parts(tmp_path, source, out):
    run_tersor("pack", source, "-o", tmp_path / "packed.safetensors", check=0)
    args = "unpack", tmp_path / "packed.safetensors", "-o", out, "--json", "report.json"
    args += ("--to", "npz") if out == "out.npz" else ("--to", "pt") if out == "out.pt" else ()
    assert_same(tmp_path, args, out, counts=(1, 2, 5))
    assert_same(tmp_path, ("convert", source, "-o", out, "--json", "report.json"), out, counts=(3,))


def test_pt_with_records_that_are_not_read_in_order(tmp_path):
    """Views of one storage, strided: the checksums of their records are dealt to the parts too."""
    run_tersor("convert", TINY, "-o", tmp_path / "in.pt", check=0)
    args = "pack", tmp_path / "in.pt", "-o", "out.safetensors", "--json", "report.json"
    assert_same(tmp_path, args, "out.safetensors", counts=(2, 3))
    args = "verify", tmp_path / "in.pt", "--json", "report.json"
    assert_same(tmp_path, args, "report.json", counts=(2, 3))


def test_arrays_in_another_order_are_read_again(tmp_path):
    """Their runs are single elements, of which parts note none: their record's CRC-32 says what they wrote."""
    x = np.arange(1100 * 900, dtype=np.float32)
    turned = torchfile.Tensor(torchfile.Storage(x.tobytes()), (900, 1100), (1, 900))
    (tmp_path / "in.pt").write_bytes(torchfile.pt({"w": turned}))
    args = "convert", tmp_path / "in.pt", "-o", "out.pt", "--json", "report.json"
    assert_same(tmp_path, args, "out.pt", counts=(3,))
    for i in 1, 2, 3:
        run_tersor(*args, "--part", f"{i}/3", cwd=tmp_path, check=0)
    file, = tmp_path.glob(".out.pt.*.tmp")
    good = file.read_bytes()
    file.write_bytes(good[:2_000_000] + b"x" + good[2_000_001:])
    done = run_tersor("join", "out.pt", cwd=tmp_path, check=3)
    assert "than its parts wrote" in one_line_error(done) and not (tmp_path / "out.pt").exists()
    file.write_bytes(good)
    run_tersor("join", "out.pt", cwd=tmp_path, check=0)


def test_damage_that_a_part_finds_is_what_one_process_says(tmp_path, source):
    """The part reports it and ends well; the damage of the lowest piece is the one to be told."""
    packed = tmp_path / "packed.safetensors"
    run_tersor("pack", source, "-o", packed, "--entropy", check=0)
    data = bytearray(packed.read_bytes())
    for at in 400_000, 4_000_000:
        data[at] ^= 16
    packed.write_bytes(data)
    status, *_ = assert_same(tmp_path, ("verify", packed, "--json", "report.json"), "report.json")
    assert status == 3


@pytest.mark.parametrize("damage", ["none", "bits", "other"])
def test_verify_in_parts(tmp_path, source, damage):
    packed, original = tmp_path / "packed.safetensors", tmp_path / "original.safetensors"
    run_tersor("pack", source, "-o", packed, check=0)
    tensors = odd_tensors()
    if damage == "other":
        tensors["a.weight"][2, 5] += 1
    write_source(original, tensors)
    if damage == "bits":
        data = bytearray(packed.read_bytes())
        data[-1000] ^= 1
        packed.write_bytes(data)
    args = "verify", packed, "--against", original, "--json", "report.json"
    status, *_ = assert_same(tmp_path, args, "report.json")
    assert status == {"none": 0, "bits": 3, "other": 1}[damage]


def test_several_files_are_verified_in_parts(tmp_path, source):
    """Whole ones, one with a damaged plane, one that is cut, and one that is no checkpoint."""
    names = []
    for name in "a", "b", "c":
        names.append(tmp_path / f"{name}.safetensors")
        run_tersor("pack", source, "-o", names[-1], check=0)
    args = "verify", *names, source, "--json", "report.json"
    assert assert_same(tmp_path, args, "report.json")[0] == 0
    data = bytearray(names[1].read_bytes())
    data[-1000] ^= 1
    names[1].write_bytes(data)
    os.truncate(names[2], 5000)
    (tmp_path / "none").write_bytes(b"text")
    args = "verify", names[1], names[0], names[2], tmp_path / "none", source, "--json", "report.json"
    status, _, stderr, _ = assert_same(tmp_path, args, "report.json")
    assert status == 3 and len(stderr.splitlines()) == 3


def test_diff_in_parts(tmp_path, source):
    tensors = odd_tensors()
    tensors["big.weight"][[3, 1000], [2, 900]] += [1e-3, 7]
    tensors["a.weight"][0, 0] = np.inf
    write_source(tmp_path / "other.safetensors", tensors)
    args = "diff", source, tmp_path / "other.safetensors", "--json", "report.json"
    status, stdout, *_ = assert_same(tmp_path, args, "report.json")
    assert status == 1 and "big.weight" in stdout


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_tensor_with_most_bytes_does_not_unbalance_parts(tmp_path, n):
    """80% of the bytes in one tensor: no part has more than 1.1 times the mean."""
    big = np.zeros((16, 1 << 20), np.float32)
    small = {f"s{i}.weight": np.zeros(1 << 18, np.float32) for i in range(16)}
    write_source(tmp_path / "in.safetensors", {"big.weight": big, **small})
    shares = []
    for i in range(1, n + 1):
        run_tersor("verify", tmp_path / "in.safetensors", "--json", "r.json", "--part", f"{i}/{n}",
                   cwd=tmp_path, check=0)
        run, = Report((tmp_path / f"r.json.part-{i}-of-{n}.bin").read_bytes()).runs
        shares.append(run.end - run.first)
    assert sum(shares) == 80 and max(shares) <= 1.1 * sum(shares) / n


# --- What does not fit ---------------------------------------------------------------------------


def pack_parts(tmp_path, source, n, *options, skip=()):
    for i in range(1, n + 1):
        if i not in skip:
            run_tersor("pack", source, "-o", "out.safetensors", *options, "--part", f"{i}/{n}",
                       cwd=tmp_path, check=0)


def refused(tmp_path, status, message):
    done = run_tersor("join", "out.safetensors", cwd=tmp_path, check=status)
    assert message in one_line_error(done), done.stderr
    assert not (tmp_path / "out.safetensors").exists()


def report_of(tmp_path, i, n):
    return tmp_path / f"out.safetensors.part-{i}-of-{n}.bin"


def test_parts_that_are_not_all_there_are_refused_and_can_follow(tmp_path):
    refused(tmp_path, 4, "found no parts")
    pack_parts(tmp_path, TINY, 3, skip=(2,))
    refused(tmp_path, 4, "found 2 of 3 parts: part 2 is missing")
    pack_parts(tmp_path, TINY, 3, skip=(1, 3))
    run_tersor("join", "out.safetensors", cwd=tmp_path, check=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.safetensors"]
    run_tersor("pack", TINY, "-o", tmp_path / "whole.safetensors", check=0)
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_parts_of_other_options_counts_or_versions_are_refused(tmp_path):
    pack_parts(tmp_path, TINY, 2, skip=(2,))
    pack_parts(tmp_path, TINY, 2, "--state", "tight", skip=(1,))
    refused(tmp_path, 3, "other inputs or options")
    pack_parts(tmp_path, TINY, 2)
    pack_parts(tmp_path, TINY, 3, skip=(2, 3))
    refused(tmp_path, 3, "found parts of")
    report_of(tmp_path, 1, 3).unlink()
    change(report_of(tmp_path, 2, 2), lambda report: setattr(report, "version", b"0.0"))
    refused(tmp_path, 3, "found a part by tersor 0.0")
    shutil.copy(report_of(tmp_path, 1, 2), report_of(tmp_path, 2, 2))
    refused(tmp_path, 3, "found part 1 of 2, expected 2 of 2")


def put(run, **members):
    run.__dict__.update(members)


DAMAGE = {
    "magic": (lambda r: setattr(r, "magic", b"TSRPART2"), "expected TSRPART1"),
    "number": (lambda r: setattr(r, "number", 3), "number"),
    "count": (lambda r: setattr(r, "count", 1 << 30), "number"),
    "data": (lambda r: setattr(r, "data", b"x"), "bytes, expected"),
    "size": (lambda r: setattr(r, "data_nbytes", 1 << 63), "bytes, expected more"),
    "words": (lambda r: setattr(r, "words", r.words[:-1]), "words"),
    "gap": (lambda r: put(r.runs[0], first=r.runs[0].first + 1, nfound=r.runs[0].nfound - 1,
                          found=r.runs[0].found[1:]), "expected from"),
    "jobs": (lambda r: put(r.runs[0], jobs=r.runs[0].jobs + 1), "expected from"),
    "order": (lambda r: put(r.runs[0], first=1 << 40), "pipelines"),
    "many": (lambda r: put(r.runs[0], end=1 << 60, jobs=1 << 60, nfound=(1 << 60) - r.runs[0].first), "pipelines"),
    "record": (lambda r: put(r.runs[0], found_nbytes=r.runs[0].found_nbytes + 8,
                             found=[f + bytes(8) for f in r.runs[0].found]), "of each job, expected"),
    "huge": (lambda r: put(r.runs[0], found_nbytes=1 << 62), "pipelines"),
    "status": (lambda r: put(r.runs[0], status=5, message=b"full"), "pipelines"),
    "message": (lambda r: put(r.runs[0], status=2, nfound=0, found=[], message=b"x" * 2000), "pipelines"),
    "file": (lambda r: put(r.runs[0], file=1), "expected file 0"),
    "runs": (lambda r: r.runs.pop(), "all that was done"),
    "files": (lambda r: setattr(r, "files", r.files[:-1]), "files"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_reports_are_refused(tmp_path, how):
    """What cannot be, under a hash that is right."""
    pack_parts(tmp_path, TINY, 2)
    edit, message = DAMAGE[how]
    change(report_of(tmp_path, 2, 2), edit)
    refused(tmp_path, 3, message)
    assert report_of(tmp_path, 2, 2).exists()


@pytest.mark.parametrize("left", [0, 7, 95, 96, 200, -1])
def test_reports_that_are_cut_are_refused(tmp_path, left):
    pack_parts(tmp_path, TINY, 2)
    path = report_of(tmp_path, 2, 2)
    path.write_bytes(path.read_bytes()[:left])
    refused(tmp_path, 3, path.name)


def test_inputs_that_change_between_parts_are_refused(tmp_path):
    source = tmp_path / "in.safetensors"
    write_source(source, {"a.weight": np.ones(300_000, np.float32)})
    pack_parts(tmp_path, source, 2)
    refused_after = lambda: refused(tmp_path, 3, "the inputs have changed since")
    os.utime(source, (1, 1))
    refused_after()
    write_source(source, {"a.weight": np.ones(300_001, np.float32)})
    refused_after()


def test_the_file_of_all_parts_must_be_there_and_whole(tmp_path):
    pack_parts(tmp_path, TINY, 2)
    file, = tmp_path.glob(".out.safetensors.*.tmp")
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    refused(tmp_path, 3, "the file of all parts")
    file.unlink()
    refused(tmp_path, 4, "the file of all parts")
    file.symlink_to("in.safetensors")
    refused(tmp_path, 4, "the file of all parts")


def test_an_output_that_appeared_is_not_replaced(tmp_path):
    pack_parts(tmp_path, TINY, 2)
    (tmp_path / "out.safetensors").write_text("mine")
    done = run_tersor("join", "out.safetensors", cwd=tmp_path, check=4)
    assert "output exists" in one_line_error(done)
    assert (tmp_path / "out.safetensors").read_text() == "mine"
    (tmp_path / "out.safetensors").unlink()
    run_tersor("join", "out.safetensors", cwd=tmp_path, check=0)


@pytest.mark.parametrize("part", ["0/3", "4/3", "1", "1/", "/3", "1/3/5", "-1/3", "1/70000", "a/b", ""])
def test_parts_that_make_no_sense_are_usage_errors(tmp_path, part):
    done = run_tersor("pack", TINY, "-o", "out.safetensors", f"--part={part}", cwd=tmp_path, check=2)
    assert "option --part: found" in one_line_error(done)
    assert not list(tmp_path.iterdir())


def test_what_has_no_parts_says_so(tmp_path):
    for args in (("pack", TINY, "-o", "-"), ("pack", "-", "-o", "o"), ("verify", TINY),
                 ("pack", TINY, "-o", "o", "--dry-run"),
                 ("convert", TINY.parent, "-o", "o/", "--entropy"), ("inspect", TINY)):
        done = run_tersor(*args, "--part", "1/2", cwd=tmp_path, check=2, input="")
        assert one_line_error(done)
    assert not list(tmp_path.iterdir())
