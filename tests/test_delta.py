"""Deltas: `pack --delta`, what reads them with their base, and `convert --plain` back."""
import json
import re
import shutil
import struct

import numpy as np
import pytest

import differences
import packed_text
from conftest import VECTORS, one_line_error, run_tersor, write_source
from test_entropy import bf16, mixed, pack, quiet, rewritten
from test_reader import contents, split

CODINGS = [(), ("--weights", "bf16"), ("--weights", "bf16+ulp16"), ("--weights", "fp16+ulp8"),
           ("--weights", "bf16+exact16"), ("--weights", "bf16+trunc8"), ("--weights", "fp16"),
           ("--state", "tight"), ("--state", "flashoptim"), ("--state", "coat"), ("--state", "bitsandbytes"),
           ("--weights", "f32", "--momentum", "bf16", "--variance", "bf16")]


def training(folder, steps=2, shape=(60, 700), lr=1e-4, seed=1):
    """Checkpoints of a few steps of something like Adam."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(shape).astype("f4") * np.float32(0.02)
    m, v = np.zeros_like(w), np.full_like(w, 1e-8)
    paths = []
    for step in range(steps):
        for _ in range(3 if step else 30):
            g = rng.standard_normal(shape).astype("f4") * np.float32(1e-4)
            m, v = np.float32(0.9) * m + np.float32(0.1) * g, np.float32(0.95) * v + np.float32(0.05) * g * g
            w = w - np.float32(lr) * m / (np.sqrt(v) + np.float32(1e-8))
        paths.append(write_source(folder / f"step{step}.safetensors", {
            "a.weight": w, "a.weight.exp_avg": m, "a.weight.exp_avg_sq": v, "b.weight": bf16(w[:7] * 3),
            "same.weight": np.full((300, 30), 0.5, "f4")}, {"format": "pt", "step": str(step)}))
    return paths


def sizes(path):
    return path.stat().st_size


@pytest.mark.parametrize("options", CODINGS, ids=lambda o: "-".join(o) or "default")
def test_a_delta_gives_its_checkpoint_back_to_the_byte(tmp_path, options):
    old, new = training(tmp_path)
    base = pack(old, tmp_path / "base.st", *options)
    plain, delta = pack(new, tmp_path / "plain.st", *options), tmp_path / "delta.st"
    pack(new, delta, *options, "--delta", base)
    quiet("verify", delta)
    quiet("convert", "--plain", delta, "-o", tmp_path / "back.st")
    assert (tmp_path / "back.st").read_bytes() == plain.read_bytes()
    again = pack(plain, tmp_path / "again.st", "--delta", base)
    assert again.read_bytes() == delta.read_bytes()
    coded = pack(new, tmp_path / "coded.st", *options, "--entropy")
    assert sizes(delta) < sizes(coded) + 300
    quiet("unpack", delta, "-o", tmp_path / "u1.safetensors")
    quiet("unpack", plain, "-o", tmp_path / "u2.safetensors")
    assert (tmp_path / "u1.safetensors").read_bytes() == (tmp_path / "u2.safetensors").read_bytes()


def test_every_sort_of_plane_to_itself_costs_next_to_nothing(tmp_path):
    source = mixed(tmp_path)
    base = pack(source, tmp_path / "base.st", "--entropy")
    delta = pack(source, tmp_path / "delta.st", "--delta", base)
    quiet("convert", "--plain", delta, "-o", tmp_path / "back.st")
    assert (tmp_path / "back.st").read_bytes() == pack(source, tmp_path / "plain.st").read_bytes()
    sizes_of = {name: len(data) for name, (_, _, data) in contents(delta)[1].items()}
    assert sum(n for name, n in sizes_of.items() if name.startswith("a.weight")) < 600, sizes_of


def test_threads_give_the_same_delta(tmp_path):
    old, new = training(tmp_path, shape=(700, 800))
    base = pack(old, tmp_path / "base.st")
    one = pack(new, tmp_path / "one.st", "--delta", base, "-j1")
    assert pack(new, tmp_path / "four.st", "--delta", base, "-j4").read_bytes() == one.read_bytes()


def chain(folder, n, *options):
    paths = training(folder, n + 1)
    names = [pack(paths[0], folder / "chain0.st")]
    for i, path in enumerate(paths[1:], 1):
        names.append(pack(path, folder / f"chain{i}.st", "--delta", names[-1], *options))
    return paths, names


def test_a_chain_is_followed(tmp_path):
    paths, names = chain(tmp_path, 4)
    quiet("convert", "--plain", names[-1], "-o", tmp_path / "back.st")
    assert (tmp_path / "back.st").read_bytes() == pack(paths[-1], tmp_path / "plain.st").read_bytes()
    quiet("verify", names[-1])
    # A base in another coding is the same base.
    quiet("convert", "--plain", names[2], "-o", tmp_path / "made-plain.st")
    quiet("verify", names[3], "--base", tmp_path / "made-plain.st")
    names[0].rename(tmp_path / "was.st")
    quiet("pack", tmp_path / "was.st", "-o", names[0], "--entropy")
    quiet("verify", names[-1])


def test_a_base_is_not_replaced_by_its_delta(tmp_path):
    old, new = training(tmp_path)
    base = pack(old, tmp_path / "base.st")
    before = base.read_bytes()
    for args in (("pack", new, "--delta", base), ("convert", "--plain", pack(new, tmp_path / "d.st", "--delta", base))):
        refused = run_tersor(*args, "-o", base, "-f")
        assert "base.st" in one_line_error(refused) and refused.returncode in (2, 4), refused
        assert base.read_bytes() == before


def test_a_chain_has_a_limit(tmp_path):
    paths, names = chain(tmp_path, 2)
    refused = run_tersor("pack", paths[0], "-o", tmp_path / "x", "--delta", names[-1], "--max-chain", 2)
    assert refused.returncode != 0 and "--max-chain allows more" in refused.stderr
    assert not (tmp_path / "x").exists()
    quiet("pack", paths[0], "-o", tmp_path / "x", "--delta", names[-1], "--max-chain", 3)


def test_a_missing_base_is_named_and_can_be_elsewhere(tmp_path):
    old, new = training(tmp_path)
    base = pack(old, tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    (tmp_path / "other").mkdir()
    shutil.move(base, tmp_path / "other" / "moved.st")
    missing = run_tersor("verify", delta)
    assert missing.returncode != 0 and "base.st, which is missing; --base" in one_line_error(missing)
    quiet("verify", delta, "--base", tmp_path / "other" / "moved.st")


def test_diff_takes_two_deltas_whose_bases_moved(tmp_path):
    first, second, new = training(tmp_path, 3)
    one, two = pack(first, tmp_path / "one.st"), pack(second, tmp_path / "two.st")
    a, b = (pack(new, tmp_path / name, "--delta", base) for name, base in (("a.st", one), ("b.st", two)))
    (tmp_path / "other").mkdir()
    moved = [shutil.move(base, tmp_path / "other" / base.name) for base in (one, two)]
    quiet("diff", a, b, "--base", moved[0], "--base-b", moved[1])
    quiet("diff", a, a, "--base", moved[0])
    shutil.move(moved[0], one)
    quiet("diff", a, b, "--base-b", moved[1])
    refused = run_tersor("diff", a, b, "--base", one)
    assert refused.returncode == 3 and "b.st was made from, which was called two.st" in one_line_error(refused)


def test_another_base_is_refused(tmp_path):
    first, second, new = training(tmp_path, 3)
    base = pack(first, tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    other = pack(second, tmp_path / "other.st")
    refused = run_tersor("verify", delta, "--base", other)
    assert refused.returncode == 3 and f"{other}: is not what {delta} was made from" in one_line_error(refused)


def test_a_delta_that_uses_nothing_of_its_base_is_told(tmp_path):
    new, = training(tmp_path, 1, shape=(50, 600))
    base = pack(new, tmp_path / "base.st")
    new, = training(tmp_path, 1)
    options = "--weights", "fp16", "--state", "coat", "--delta", base
    told = run_tersor("pack", new, "-o", tmp_path / "d", *options, check=0)
    assert re.search(r"d: is no smaller than without --delta: base.st has no plane ", told.stderr), told.stderr
    run_tersor("pack", new, "-o", tmp_path / "e", *options, "--strict", check=1)
    plain = pack(new, tmp_path / "plain.st", *options[:4])
    run_tersor("pack", plain, "-o", tmp_path / "f", "--delta", base, "--strict", check=1)
    quiet("verify", tmp_path / "f")
    assert run_tersor("pack", new, "-o", tmp_path / "g", "--delta", plain, "--strict", check=0).stderr == ""


def test_a_delta_away_from_its_base_is_told(tmp_path):
    old, new = training(tmp_path)
    base = pack(old, tmp_path / "base.st")
    (tmp_path / "other").mkdir()
    out = tmp_path / "other" / "d.st"
    for source in new, pack(new, tmp_path / "plain.st"):
        told = run_tersor("pack", source, "-o", out, "--delta", base, "-f", check=0)
        assert told.stderr == f"tersor: warning: {out}: its base is not beside it: move it to where {base} is, " \
                              "or read it with --base\n"
    quiet("inspect", out, "--base", base)
    out.rename(tmp_path / "d.st")
    quiet("inspect", tmp_path / "d.st")
    (tmp_path / "link").symlink_to(tmp_path)
    assert run_tersor("pack", new, "-o", tmp_path / "link" / "e.st", "--delta", base, check=0).stderr == ""


def test_tensors_that_the_base_lacks_are_coded_without_it(tmp_path):
    rng = np.random.default_rng(3)
    w = rng.standard_normal((200, 200)).astype("f4")
    old = write_source(tmp_path / "old.safetensors", {"a.weight": w, "shape.weight": w, "codec.weight": w})
    new = write_source(tmp_path / "new.safetensors", {"a.weight": w, "shape.weight": w.reshape(100, 400),
                                                      "codec.weight": bf16(w), "new.weight": w})
    base = pack(old, tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    quiet("verify", delta)
    quiet("convert", "--plain", delta, "-o", tmp_path / "back.st")
    assert (tmp_path / "back.st").read_bytes() == pack(new, tmp_path / "plain.st").read_bytes()


def edited(path, change):
    """Change the text of a file, and its check with it."""
    path.write_bytes(rewritten(*split(path.read_bytes()), lambda whole, text, data: change(text)))


@pytest.mark.parametrize("base, words", [
    ({"name": "../base.st"}, "base is not"), ({"name": "/etc/passwd"}, "base is not"), ({"depth": 0}, "base is not"),
    ({"depth": 65}, "over the limit of 64"), ({"depth": 1, "name": "gone.st"}, "which is missing"), ({"set": "0" * 16}, "is not what"),
    ({"set": "x"}, "base is not"), ({"name": "delta.st"}, "chain"), ({"name": "new.safetensors"}, "is not what"),
])
def test_lies_about_the_base_are_refused(tmp_path, base, words):
    old, new = training(tmp_path)
    shutil.copy(new, tmp_path / "new.safetensors")
    pack(old, tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", tmp_path / "base.st")
    edited(delta, lambda text: text["base"].update(base))
    refused = run_tersor("verify", delta)
    assert refused.returncode in (3, 4), refused
    assert words in one_line_error(refused)


def pieces_of(array):
    """The coded pieces of an array of U8."""
    ends = [struct.unpack_from("<Q", array, 0)[0]]
    while ends[-1] < len(array):
        ends.append(struct.unpack_from("<Q", array, 16 * len(ends))[0])
    return [array[a:b] for a, b in zip([16 * len(ends), *ends], ends)]


def scale_of_each(scales, shape, rows):
    group = 32
    size = -(-shape[-1] // (shape[-1] // group)) if rows else group
    i = np.arange(int(np.prod(shape)))
    per_row = -(-shape[-1] // size)
    return np.frombuffer(scales, "<u2")[i // shape[-1] * per_row + i % shape[-1] // size if rows else i // group]


@pytest.mark.parametrize("options", CODINGS[:4], ids=lambda o: "-".join(o) or "default")
def test_a_decoder_from_the_document_alone_reads_differences(tmp_path, options):
    old, new = training(tmp_path, shape=(44, 750))
    base, plain = pack(old, tmp_path / "base.st", *options), pack(new, tmp_path / "plain.st", *options)
    meta, planes = contents(pack(new, tmp_path / "delta.st", *options, "--delta", base))
    was, now = contents(base)[1], contents(plain)[1]
    rows = {t["name"]: t.get("rows") for t in packed_text.read(tmp_path / "delta.st")["tensors"]}
    seen = set()
    for name, (_, _, data) in planes.items():
        if not name.endswith("::coded"):
            continue
        plane = name.removesuffix("::coded")
        dtype, shape, expected = now[plane]
        kind = f"u{len(expected) // max(1, int(np.prod(shape)))}"
        piece, = pieces_of(data)
        seen.add((plane.rpartition("::")[2] if "::" in plane else "", piece[0]))
        if piece[0] == 5:
            assert piece == b"\5\0\0\0"
        if piece[0] != 4:
            continue
        more, given = {}, np.frombuffer(was[plane][2], kind)
        errors, scales = plane + "::error_bits", plane.replace("quantized", "scales")
        if errors + "::coded" in planes:
            more["correction"] = np.frombuffer(was[errors][2], f"u{len(was[errors][2]) // len(given)}")
        if plane.endswith("exp_avg_sq::quantized"):
            tensor = plane.removesuffix("::quantized")
            more |= {key: scale_of_each(of[scales][2], shape, rows[tensor])
                     for key, of in (("old_scales", was), ("scales", now))}
        got = differences.decode(piece, dtype, given, **more)
        if "correction" in more:
            got, corrections = got
            assert corrections.tobytes() == now[errors][2]
        assert got.tobytes() == expected, plane
    assert ("", 4) in seen and ("quantized", 4) in seen and (("error_bits", 5) in seen) == (options != CODINGS[1])


def test_damaged_differences_are_refused(tmp_path):
    old, new = training(tmp_path, shape=(20, 400))
    base = pack(old, tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    whole = delta.read_bytes()
    header, data = split(whole)
    start, rng = len(whole) - len(data), np.random.default_rng(5)
    for at in rng.integers(start, len(whole), 40):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        delta.write_bytes(damaged)
        assert run_tersor("verify", delta, "-q", "-q").returncode == 3, at


@pytest.mark.parametrize("plane", ["a.weight", "a.weight::error_bits", "a.weight.exp_avg_sq::quantized"])
def test_a_damaged_base_is_said_to_be_damaged_or_another(tmp_path, plane):
    """Whichever file it is in: planes of a packed base as they are have no hash that is looked at."""
    old, new = training(tmp_path)
    base = pack(old, tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    content = bytearray(base.read_bytes())
    header, data = split(bytes(content))
    content[len(content) - len(data) + json.loads(header)[plane]["data_offsets"][0] + 1001] ^= 1
    base.write_bytes(content)
    line, tensor = one_line_error(run_tersor("verify", delta, check=3)), plane.partition("::")[0]
    assert f"{delta}: tensor {tensor}: piece 1 of 1: " in line
    assert f": data is damaged, here or in {base}, or that is not the base that this was made with" in line


@pytest.mark.parametrize("change, words", [
    (lambda piece: b"\4" + piece[1:], "differs from a plane"),
    (lambda piece: b"\5\0\0\0" + piece[4:], "not known"),
], ids=["differences", "with another plane"])
def test_pieces_that_cannot_be_of_a_base_are_refused(tmp_path, change, words):
    """In a file without a base, pieces that say they have one."""
    source = write_source(tmp_path / "w.safetensors", {"w": bf16(np.ones((100, 10), "f4"))})
    path = pack(source, tmp_path / "coded.st", "--entropy")
    header, data = split(path.read_bytes())
    at = struct.unpack_from("<Q", data, 0)[0]
    path.write_bytes(rewritten(header, data[:16] + change(data[16:at]) + data[at:], lambda *_: None))
    assert words in one_line_error(run_tersor("verify", path, check=3))


def test_a_damaged_piece_of_a_tensor_that_the_base_lacks_is_said_to_be_damaged(tmp_path):
    """It looks like a difference: another base might have the tensor, but no --base is sure to help."""
    w = bf16(np.random.default_rng(4).standard_normal((300, 40)).astype("f4"))
    base = pack(write_source(tmp_path / "old.safetensors", {"a": w}), tmp_path / "base.st")
    new = write_source(tmp_path / "new.safetensors", {"a": w, "c": w})
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    header, data = split(delta.read_bytes())
    at = json.loads(header)["c::coded"]["data_offsets"][0] + 16
    delta.write_bytes(rewritten(header, data[:at] + b"\4" + data[at + 1:], lambda *_: None))
    line = one_line_error(run_tersor("verify", delta, check=3))
    assert f"{delta}: tensor c: is damaged, or was made with a base that has a tensor of this name" in line
    assert f"which {base} has not" in line and "--base" not in line and "::" not in line
    plan = run_tersor("unpack", delta, "-o", tmp_path / "out", "--dry-run", check=3)
    assert one_line_error(plan) == line
    quiet("unpack", pack(new, delta, "--delta", base, "-f"), "-o", tmp_path / "out", "--dry-run")


def test_weights_of_a_delta_are_unpacked_whatever_its_states_are(tmp_path):
    """Only what is written is looked at."""
    old, new = training(tmp_path)
    weights = {k: np.frombuffer(x, "<f4").reshape(n) for k, (_, n, x) in contents(old)[1].items() if k == "a.weight"}
    base = pack(write_source(old, weights), tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    header, data = split(delta.read_bytes())
    at = json.loads(header)["a.weight.exp_avg_sq::quantized::coded"]["data_offsets"][0] + 16
    delta.write_bytes(rewritten(header, data[:at] + b"\4" + data[at + 1:], lambda *_: None))
    quiet("unpack", delta, "-o", tmp_path / "out", "--only", "weights")
    run_tersor("unpack", delta, "-o", tmp_path / "all", check=3)
    assert not (tmp_path / "all").exists()


def test_shards_have_bases_and_are_bases(tmp_path):
    paths, shards = training(tmp_path, 3), ("--max-shard-size", "100K")
    for name, path, options in (("base", paths[0], ()), ("one", paths[1], ("--delta", "base")),
                                ("two", paths[2], ("--delta", "one"))):
        options = [tmp_path / f"{o}.safetensors.index.json" if o in ("base", "one") else o for o in options]
        pack(path, tmp_path / f"{name}.safetensors", *shards, *options)
    index = tmp_path / "two.safetensors.index.json"
    quiet("verify", index)
    quiet("convert", "--plain", index, "-o", tmp_path / "back.st")
    assert (tmp_path / "back.st").read_bytes() == pack(paths[2], tmp_path / "plain.st").read_bytes()
    one = json.loads(index.read_text())
    assert len(set(one["weight_map"].values())) > 1


def test_masters_and_weights_in_another_file(tmp_path):
    """Plane 0 is another tensor's array, or plain in a file of its own: corrections then differ alone."""
    old, new = training(tmp_path)
    for path in (old, new):
        w = np.frombuffer(contents(path)[1]["a.weight"][2], "<f4").reshape(60, 700)
        write_source(path, {"a.weight": bf16(w), "a.weight.master": w, "a.weight.exp_avg": w * np.float32(1e-3)})
    base = pack(old, tmp_path / "base.st")
    delta = pack(new, tmp_path / "delta.st", "--delta", base)
    quiet("convert", "--plain", delta, "-o", tmp_path / "back.st")
    assert (tmp_path / "back.st").read_bytes() == pack(new, tmp_path / "plain.st").read_bytes()
    pack(new, tmp_path / "rest.st", "--delta", base, "--model", tmp_path / "model.safetensors")
    quiet("verify", tmp_path / "rest.st")
    states = pack(new, tmp_path / "states.st", "--delta", base, "--entropy=states")
    quiet("verify", states)
    assert "a.weight" in contents(states)[1]


def test_the_vectors_of_the_document():
    text = (VECTORS / "coded.txt").read_text().partition("[differences]\n")[2]
    rows = re.sub(r"\n +", "", text).splitlines()
    assert len(rows) == 4
    for row in rows:
        dtype, old, new, piece = (part.strip() for part in row.split("|"))
        old, new = ([bytes.fromhex(part) for part in parts.split()] for parts in (old, new))
        more = {"correction": np.frombuffer(old[1], "u1")} if len(old) > 1 else {}
        got = differences.decode(bytes.fromhex(piece), dtype, np.frombuffer(old[0], "u1" if dtype == "U8" else "<u2"),
                                 **more)
        assert [part.tobytes() for part in (got if more else [got])] == new, row
