"""`convert --entropy` and `--plain` of recordings and packed directories: there and back, to the byte."""
import json
import shutil
import struct

import numpy as np
import pytest

import reader
from conftest import one_line_error, run_tersor
from test_entropy import TINY, bf16, pack, quiet, rewritten
from test_reader import contents, split, write_source


@pytest.fixture
def coded_recording(tmp_path):
    """The recording of tiny-gpt, each step coded, with its manifest."""
    quiet("convert", TINY.parent / "recording", "-o", tmp_path / "rec", "--entropy")
    return tmp_path / "rec"


def test_coded_gradients_are_replayed_to_the_same_bytes(tmp_path, coded_recording):
    source = TINY.parent / "recording"
    sizes = [sum(p.stat().st_size for p in folder.glob("*.safetensors")) for folder in (source, coded_recording)]
    assert sizes[1] < 0.69 * sizes[0]
    for state in "fp32", "flash":
        for recording, out in (source, "plain"), (coded_recording, "coded"):
            quiet("replay", TINY, recording, "-o", tmp_path / f"{out}-{state}", "--state", state)
        assert (tmp_path / f"plain-{state}").read_bytes() == (tmp_path / f"coded-{state}").read_bytes()


def test_damaged_coded_gradient_is_refused(tmp_path, coded_recording):
    step = sorted(coded_recording.glob("*.safetensors"))[3]
    data = bytearray(step.read_bytes())
    arrays = json.loads(split(bytes(data))[0])
    at = max(t["data_offsets"][1] for name, t in arrays.items() if name.endswith("::coded"))
    data[8 + struct.unpack("<Q", data[:8])[0] + at - 40] ^= 4
    step.write_bytes(data)
    line = one_line_error(run_tersor("replay", TINY, coded_recording, "-o", tmp_path / "x", check=3))
    assert step.name in line and "piece" in line and not (tmp_path / "x").exists()


def test_gradients_in_a_codec_with_loss_are_refused(tmp_path, coded_recording):
    step = sorted(coded_recording.glob("*.safetensors"))[3]
    pack(TINY, step, "--force")
    line = one_line_error(run_tersor("replay", TINY, coded_recording, "-o", tmp_path / "x", check=3))
    assert "is packed as bf16+ulp8, expected a gradient as it is, entropy coded or not" in line


def files_of(folder):
    return {p.relative_to(folder): (p.stat().st_mode, p.read_bytes() if p.is_file() else None) for p in folder.rglob("*")}


def test_a_recording_comes_back_to_the_byte(tmp_path, coded_recording):
    """safetensors writes metadata in any order; other files and directories come along."""
    source, back = TINY.parent / "recording", tmp_path / "back"
    quiet("convert", coded_recording, "-o", back, "--plain")
    assert files_of(back) == files_of(source)
    heads = [p.read_bytes()[:200] for p in sorted(source.glob("*.safetensors"))]
    assert any(head.index(b"loss") > head.index(b"step") for head in heads)
    quiet("convert", back, "-o", tmp_path / "again", "--entropy", "-j1")
    assert files_of(tmp_path / "again") == files_of(coded_recording)


def test_what_cannot_come_back_is_copied(tmp_path):
    """A header with white space, gradients of random bits, a .pt, one packed with loss; and what is no gradient."""
    rec, rng = tmp_path / "rec", np.random.default_rng(1)
    shutil.copytree(TINY.parent / "recording", rec)
    steps = sorted(rec.glob("*.safetensors"))
    data = steps[0].read_bytes()
    text, body = split(data)
    text = json.dumps(json.loads(text)).encode()
    steps[0].write_bytes(struct.pack("<Q", len(text)) + text + body)
    (rec / "notes").mkdir(mode=0o750)
    (rec / "notes" / "README").write_text("kept")
    arrays = {name: (a[0], a[1], rng.bytes(len(a[2]))) for name, a in contents(steps[1])[1].items()}
    write_source(steps[1], arrays)
    quiet("convert", steps[2], "-o", tmp_path / "x.pt", "--to", "pt")
    shutil.move(tmp_path / "x.pt", steps[2])
    result = run_tersor("convert", rec, "-o", tmp_path / "coded", "--entropy", "--json", check=0)
    files = {f["path"]: f for f in json.loads(result.stdout)["files"]}
    assert [files[p.name].get("reason") for p in steps[:4]] == \
        ["its header would not come back as it is", "coding does not make it smaller", "not safetensors", None]
    assert "3 files of gradients copied as they are" in result.stderr
    before, after = files_of(rec), files_of(tmp_path / "coded")
    assert before.keys() == after.keys()
    assert {p.name for p in before if before[p] == after[p]} \
        == {p.name for p in steps[:3]} | {"notes", "README", "manifest.json"}
    quiet("convert", tmp_path / "coded", "-o", tmp_path / "back", "--plain")
    assert files_of(tmp_path / "back") == before


def test_recordings_of_ranks_are_coded(tmp_path):
    """Offsets in the metadata come along."""
    rec, rng = tmp_path / "rec", np.random.default_rng(2)
    rec.mkdir()
    files = []
    for rank in range(2):
        offsets = json.dumps({"w": {"saved_offsets": [500 * rank, 0]}})
        grads = {"w": bf16(rng.normal(0, 1e-3, (500, 40)).astype("f4"))}
        files.append(f"s-{rank}.safetensors")
        write_source(rec / files[-1], grads, {"format": "pt", "DCP_SHARDING_INFO": offsets})
    (rec / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": "sgd", "param_groups": [{"lr": 0.1}],
        "steps": [{"step": 1, "files": files}]}))
    source = write_source(tmp_path / "m", {"w": rng.normal(0, 1, (1000, 40)).astype("f4")}, {"format": "pt"})
    quiet("convert", rec, "-o", tmp_path / "coded", "--entropy")
    assert all((tmp_path / "coded" / f).stat().st_size < 0.9 * (rec / f).stat().st_size for f in files)
    for name in "rec", "coded":
        quiet("replay", source, tmp_path / name, "-o", tmp_path / f"{name}.out")
    assert (tmp_path / "rec.out").read_bytes() == (tmp_path / "coded.out").read_bytes()
    path = tmp_path / "coded" / files[1]
    path.write_bytes(path.read_bytes()[:-2000] + bytes(1000) + path.read_bytes()[-1000:])
    line = one_line_error(run_tersor("replay", source, tmp_path / "coded", "-o", tmp_path / "x", check=3))
    assert files[1] in line and "piece" in line and not (tmp_path / "x").exists()


@pytest.mark.parametrize("edit", [[0, 0, 1], [0, 1, 3], [0, 1], {"0": 1}, [0, 1, -1], "012"])
def test_an_order_of_metadata_that_is_none_is_refused(tmp_path, edit, coded_recording):
    path = next(p for p in sorted(coded_recording.glob("*.safetensors")) if b'order' in p.read_bytes()[:4000])
    path.write_bytes(rewritten(*split(path.read_bytes()), lambda w, t, d: t["source"].update(order=edit)))
    if edit == [0, 1]:
        quiet("unpack", path, "-o", tmp_path / "x")
        return
    assert "order is not" in one_line_error(run_tersor("verify", path, check=3))
    with pytest.raises(reader.ReaderError):
        reader.read(path)


# --- Directories -----------------------------------------------------------------------------------

def test_packed_directories_are_coded_and_plain_again(tmp_path):
    """Models beside their weights, an index with the size of its shards, copies, a DCP: each of each other's bytes.

    Gradients are left out: their files have nothing to pack, and are packed only where planes are coded."""
    source, forms = tmp_path / "source", {"p": [], "e": ["--entropy"], "s": ["--entropy=states"]}
    shutil.copytree(TINY.parent, source / "tiny", ignore=shutil.ignore_patterns("recording"))
    quiet("convert", TINY, "-o", source / "model.safetensors", "--max-shard-size", "300K")
    for name, how in forms.items():
        quiet("pack", source, "-o", tmp_path / name, *how)
    assert any(p.name.endswith(".index.json") for p in (tmp_path / "p").iterdir())
    for start in forms:
        for end, how in forms.items():
            quiet("convert", tmp_path / start, "-o", tmp_path / "out", "-f", *(how or ["--plain"]))
            assert files_of(tmp_path / "out") == files_of(tmp_path / end), f"{start} to {end}"
    quiet("verify", tmp_path / "out", "--against", source)
    quiet("pack", tmp_path / "p", "-o", tmp_path / "out", "-f", "--entropy")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "e")
    line = one_line_error(run_tersor("pack", tmp_path / "p", "-o", tmp_path / "x", "--entropy", "--group", "8", check=2))
    assert "keeps its codecs" in line


def test_a_damaged_packed_directory_is_not_recoded(tmp_path):
    quiet("pack", TINY.parent, "-o", tmp_path / "p")
    path = tmp_path / "p" / "checkpoint.safetensors.tersor"
    for victim in (path, tmp_path / "p" / "recording" / "manifest.json"):
        good = victim.read_bytes()
        victim.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
        one_line_error(run_tersor("convert", tmp_path / "p", "--entropy", "-o", tmp_path / "x", check=3))
        assert not (tmp_path / "x").exists()
        victim.write_bytes(good)


@pytest.mark.parametrize("args, text", [
    (["--entropy", "--plain"], "--plain and --entropy exclude each other"), (["--entropy=states"], "a recording has none"),
    (["--entropy", "--to", "pt"], "--entropy and --to exclude"), (["--entropy", "--max-shard-size", "1M"], "not a directory"),
])
def test_what_does_not_go_with_a_recording_is_refused(tmp_path, args, text):
    line = one_line_error(run_tersor("convert", TINY.parent / "recording", "-o", tmp_path / "x", *args, check=2))
    assert text in line
