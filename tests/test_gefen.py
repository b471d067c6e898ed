"""pack --state gefen: momenta by a learned codebook, variances as means of blocks."""
import base64
import json
import re
import struct

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

import reader
from conftest import DATA, one_line_error

F32, F64 = np.float32, np.float64
RECORDING = DATA / "tiny-gpt" / "recording"


def mean_of(block):
    """In pieces of 64 and one after the other, as docs/internals/format.md says."""
    total = F64(0)
    for first in range(0, len(block), 64):
        piece = F64(0)
        for value in block[first:first + 64].astype(F64):
            piece += value
        total += piece
    return np.array(F32(total / F64(len(block))))


def nearest(entries, z):
    right = np.minimum(np.searchsorted(entries, z), 255)
    left = np.maximum(right - 1, 0)
    return np.where(np.abs(z - entries[left]) <= np.abs(z - entries[right]), left, right)


def planes_of(packed):
    with safetensors.safe_open(packed, "np") as f:
        return {name: f.get_tensor(name) for name in f.keys()
                if name.endswith(("::quantized", "::scales", "::blockmean"))}


def check_planes(packed, source, minimum=1):
    """Codes, scales and means of every tensor in a learned codec; returns the reader's view."""
    found, state, planes = reader.read(packed), load_file(source), planes_of(packed)
    seen = 0
    for t in found.tensors.values():
        x = state[t.name].ravel()
        if t.codec == "gefen8":
            blocks = x.reshape(-1, t.group)
            scales = np.abs(blocks).max(1)
            z = np.where(scales[:, None] > 0, blocks / np.where(scales > 0, scales, 1)[:, None],
                         F32(0)).astype(F32)
            assert np.array_equal(planes[t.name + "::scales"], scales)
            assert np.array_equal(planes[t.name + "::quantized"].ravel(),
                                  nearest(t.codebook, z.ravel()))
        elif t.codec == "blockmean":
            means = [mean_of(b) for b in x.reshape(-1, t.group)]
            assert np.array_equal(planes[t.name + "::blockmean"], means)
        seen += t.codec in reader.LEARNED
    assert seen >= minimum
    return found


def test_planes_are_those_of_the_document(tersor, tiny_gpt, tmp_path):
    packed = tmp_path / "p.safetensors"
    tersor("pack", tiny_gpt, "-o", packed, "--state", "gefen", check=0)
    found = check_planes(packed, tiny_gpt, 20)
    book = next(t.codebook for t in found.tensors.values() if t.codec == "gefen8")
    learned = json.loads(tersor("codebook", tiny_gpt, "--json", check=0).stdout)
    assert np.array_equal(book, np.array(learned["codebook"], F32))
    periods = {t["name"]: (t["period"], t["block"]) for t in learned["tensors"]}
    for t in found.tensors.values():
        if t.codec in reader.LEARNED:
            weight = t.name.removesuffix("_sq").removesuffix(".exp_avg")
            assert t.group == periods[weight][t.codec == "gefen8"]


def test_unpack_verify_and_diff_take_it(tersor, tiny_gpt, tmp_path):
    packed, back = tmp_path / "p.safetensors", tmp_path / "b.safetensors"
    tersor("pack", tiny_gpt, "-o", packed, "--state", "gefen", check=0)
    tersor("verify", packed, "--against", tiny_gpt, check=0)
    tersor("unpack", packed, "-o", back, check=0)
    restored = load_file(back)
    for t in reader.read(packed).tensors.values():
        if t.values is not None:
            assert np.array_equal(restored[t.name], t.array), t.name
    tersor("diff", back, packed, check=0)
    assert "gefen8 f32/" in tersor("inspect", "-v", packed, check=0).stdout


def test_short_blocks_get_the_usual_codecs_and_a_warning_says_so(tersor, tiny_gpt, tmp_path):
    packed, peer = tmp_path / "p.safetensors", tmp_path / "q.safetensors"
    done = tersor("pack", tiny_gpt, "-o", packed, "--state", "gefen", check=0)
    assert "tensors have softsign8 or sqrt8, as their blocks are so short" in done.stderr
    codecs = {t.codec for t in reader.read(packed).tensors.values()}
    assert {"gefen8", "blockmean", "sqrt8"} <= codecs
    done = tersor("pack", tiny_gpt, "-o", peer, "--state", "gefen", "--compat", "gefen", check=0)
    assert "softsign8" not in done.stderr
    found = check_planes(peer, tiny_gpt, 50)
    assert {t.codec for t in found.tensors.values() if t.kind in ("momentum", "variance")} == {
        *reader.LEARNED}
    book = next(t.codebook for t in found.tensors.values() if t.codec == "gefen8")
    assert np.all(book != 0)


def test_zeros_stay_zeros(tersor, tiny_gpt, tmp_path):
    state = load_file(tiny_gpt)
    state["lm_head.weight.exp_avg"][5:9] = 0
    state["wte.weight.exp_avg"][:] = 0
    save_file(state, tmp_path / "c.safetensors")
    tersor("pack", tmp_path / "c.safetensors", "-o", tmp_path / "p.safetensors", "--state", "gefen",
           check=0)
    found = check_planes(tmp_path / "p.safetensors", tmp_path / "c.safetensors")
    assert found.tensors["lm_head.weight.exp_avg"].codec == "gefen8"
    assert np.all(found.tensors["lm_head.weight.exp_avg"].array[5:9] == 0)
    assert np.all(found.tensors["wte.weight.exp_avg"].array == 0)


def test_a_codebook_from_gradients(tersor, tiny_gpt, tmp_path):
    packed = tmp_path / "p.safetensors"
    tersor("pack", tiny_gpt, "-o", packed, "--state", "gefen", "--codebook-from", RECORDING, check=0)
    found = check_planes(packed, tiny_gpt, 20)
    learned = json.loads(tersor("codebook", RECORDING, "--json", check=0).stdout)
    book = next(t.codebook for t in found.tensors.values() if t.codec == "gefen8")
    assert np.array_equal(book, np.array(learned["codebook"], F32))


def test_entries_nearest_to_values_are_those_of_the_program(tersor, tmp_path):
    """One block with a largest magnitude of 1: codes are of the values themselves."""
    with np.load(DATA / "golden" / "gefen.npz") as data:
        x, want, entries = data["near_x"], data["near_i"], data["cb256"]
    assert np.array_equal(nearest(entries, x), want)


def test_same_bytes_for_all_threads_and_levels(tersor, tiny_gpt, tmp_path):
    outs = []
    for i, (threads, level) in enumerate([(1, "base"), (3, "base"), (2, None)]):
        out = tmp_path / f"{i}.safetensors"
        tersor("pack", tiny_gpt, "-o", out, "--state", "gefen", "-j", threads, check=0,
               env={"TERSOR_ISA": level} if level else {})
        outs.append(out.read_bytes())
    assert outs[0] == outs[1] == outs[2]


def test_shards_have_the_codebook_that_they_need(tersor, tiny_gpt, tmp_path):
    tersor("pack", tiny_gpt, "-o", tmp_path / "p.safetensors", "--state", "gefen",
           "--max-shard-size", "100K", check=0)
    index = tmp_path / "p.safetensors.index.json"
    again = reader.read(index)
    assert any(t.codec == "gefen8" for t in again.tensors.values())
    tersor("unpack", index, "-o", tmp_path / "b.safetensors", check=0)
    restored = load_file(tmp_path / "b.safetensors")
    assert all(np.array_equal(restored[t.name], t.array) for t in again.tensors.values()
               if t.values is not None)


def test_a_recording_that_does_not_fit_is_refused(tersor, tiny_gpt, tmp_path):
    rng = np.random.default_rng(2)
    (tmp_path / "rec").mkdir()
    save_file({"wte.weight": rng.normal(size=(100, 7)).astype(F32)}, tmp_path / "rec/1.safetensors")
    done = tersor("pack", tiny_gpt, "-o", tmp_path / "p.safetensors", "--state", "gefen",
                  "--codebook-from", tmp_path / "rec", check=3)
    assert "expected the 700 that blocks were learned from" in one_line_error(done)
    assert not (tmp_path / "p.safetensors").exists()


@pytest.mark.parametrize("args", [["--few-bins"], ["--compat", "gefen"], ["--codebook-from", "x"],
                                  ["--state", "gefen", "--group", "32"],
                                  ["--state", "gefen", "--compat", "flashoptim"],
                                  ["--momentum", "gefen8"]])
def test_options_that_do_not_fit_together(tersor, tiny_gpt, tmp_path, args):
    done = tersor("pack", tiny_gpt, "-o", tmp_path / "p.safetensors", *args, check=2)
    assert re.search("--state|gefen", one_line_error(done))


@pytest.mark.parametrize("change", ["missing", "short", "descending", "unused"])
def test_a_file_with_a_wrong_codebook_is_refused(tersor, tiny_gpt, tmp_path, change):
    args = [] if change == "unused" else ["--state", "gefen"]
    tersor("pack", tiny_gpt, "-o", tmp_path / "p.safetensors", *args, check=0)
    content = (tmp_path / "p.safetensors").read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    text = json.loads(header["__metadata__"]["tersor"])
    book = base64.b64decode(text.pop("codebook", "")) or np.linspace(-1, 1, 256, dtype="<f4").tobytes()
    if change != "missing":
        book = {"short": book[:-4], "descending": book[::-1], "unused": book}[change]
        text = dict(list(text.items())[:4]) | {"codebook": base64.b64encode(book).decode()} | text
    header["__metadata__"]["tersor"] = json.dumps(text, separators=(",", ":"))
    header["__metadata__"]["tersor_check"] = "0" * 16
    out = json.dumps(header, separators=(",", ":")).encode()
    out += b" " * (-len(out) % 8)
    out = out.replace(b'"tersor_check":"' + b"0" * 16,
                      b'"tersor_check":"' + reader.header_hash(out, b"0" * 16).encode())
    (tmp_path / "q.safetensors").write_bytes(struct.pack("<Q", len(out)) + out + content[8 + size:])
    done = tersor("verify", tmp_path / "q.safetensors", check=3)
    assert "codebook" in one_line_error(done)
    with pytest.raises(reader.ReaderError):
        reader.read(tmp_path / "q.safetensors")


def test_replay_continues_in_fp32(tersor, tiny_gpt, tmp_path):
    packed, back = tmp_path / "p.safetensors", tmp_path / "b.safetensors"
    tersor("pack", tiny_gpt, "-o", packed, "--state", "gefen", "--weights", "f32", check=0)
    tersor("unpack", packed, "-o", back, check=0)
    outs = []
    for i, source in enumerate((packed, back)):
        tersor("replay", source, RECORDING, "-o", tmp_path / f"{i}.safetensors", "--state", "fp32",
               check=0)
        outs.append(load_file(tmp_path / f"{i}.safetensors"))
    assert outs[0].keys() == outs[1].keys()
    assert all(np.array_equal(outs[0][k], outs[1][k]) for k in outs[0])
