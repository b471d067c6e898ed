"""`pack --only weights --delta` and `apply`: the weights that change from step to step, put onto a served model."""
import json
import os
import re
import shutil
import signal
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import BINARY, DATA, one_line_error, run_tersor
from test_entropy import quiet
from test_reader import contents

TINY = DATA / "tiny-gpt" / "checkpoint.safetensors"
SHAPES = {"embed.weight": (2000, 64), "attn.weight": (64, 256), "mlp.weight": (300, 1000), "norm.weight": (64,),
          "scale": (1,)}


class AdamW:
    """A trainer in FP32, at a learning rate of reinforcement learning, that serves BF16."""

    def __init__(self, rng, lr):
        self.rng, self.lr, self.t = rng, lr, 0
        self.w = {k: (rng.standard_normal(s) * 0.02).astype("f4") for k, s in SHAPES.items()}
        self.m = {k: np.zeros_like(x) for k, x in self.w.items()}
        self.v = {k: np.zeros_like(x) for k, x in self.w.items()}

    def step(self):
        self.t += 1
        for k, w in self.w.items():
            g = (self.rng.standard_normal(w.shape) * 1e-3).astype("f4")
            self.m[k] = np.float32(0.9) * self.m[k] + np.float32(0.1) * g
            self.v[k] = np.float32(0.95) * self.v[k] + np.float32(0.05) * g * g
            m, v = self.m[k] / (1 - 0.9**self.t), self.v[k] / (1 - 0.95**self.t)
            w -= (self.lr * m / (np.sqrt(v) + 1e-8)).astype("f4")

    def save(self, path):
        """As safetensors writes it, with metadata in an order of its own."""
        save_file({k: x.astype(ml_dtypes.bfloat16) for k, x in self.w.items()}, path,
                  metadata={"step": str(self.t), "format": "pt", "by": "trainer"})
        return path


def make_update(new, base, out, *options):
    quiet("pack", new, "-o", out, "--only", "weights", "--delta", base, *options)
    return out


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two models a step apart, and the update from one to the other."""
    folder = tmp_path_factory.mktemp("pair")
    trainer = AdamW(np.random.default_rng(1), 1e-6)
    models = []
    for name in ("old", "new"):
        trainer.step()
        models.append(trainer.save(folder / f"{name}.safetensors"))
    return *models, make_update(models[1], models[0], folder / "update")


def test_a_server_follows_a_trainer(tmp_path):
    """Five updates, each a small part of the model, in place and to a new file: the trainer's bytes."""
    trainer = AdamW(np.random.default_rng(0), 1e-6)
    for _ in range(20):
        trainer.step()
    old = trainer.save(tmp_path / "0.safetensors")
    served = shutil.copy(old, tmp_path / "served.safetensors")
    os.chmod(served, 0o640)
    n = sum(w.size for w in trainer.w.values())
    for i in range(1, 6):
        trainer.step()
        new = trainer.save(tmp_path / f"{i}.safetensors")
        update = make_update(new, old, tmp_path / f"u{i}")
        assert sum(len(a[2]) for a in contents(update)[1].values()) < 0.016 * n
        quiet("apply", update, old, "-o", tmp_path / "out", "-f", "-j2")
        quiet("apply", update, served)
        assert new.read_bytes() == (tmp_path / "out").read_bytes() == served.read_bytes()
        assert served.stat().st_mode & 0o777 == 0o640
        old = new
    assert not list(tmp_path.glob(".*"))


def test_no_change_costs_next_to_nothing(tmp_path, pair):
    update = make_update(pair[1], pair[1], tmp_path / "u")
    assert sum(len(a[2]) for a in contents(update)[1].values()) < 500
    quiet("apply", update, pair[1], "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == pair[1].read_bytes()


def test_threads_give_the_same_update(tmp_path, pair):
    for threads in 1, 3:
        assert make_update(pair[1], pair[0], tmp_path / str(threads), f"-j{threads}").read_bytes() == pair[2].read_bytes()


@pytest.mark.parametrize("form", ["fp32", "packed", "pt"])
def test_the_model_of_a_checkpoint_is_rounded(tmp_path, form):
    """With its optimizer, in FP32 or packed; the base is what a server would have got in BF16."""
    quiet("unpack", *packed_tiny(tmp_path), "-o", tmp_path / "base.safetensors", "--only", "weights", "--as", "bf16")
    checkpoint = {k: x for k, x in load_file(TINY).items()}
    for name in checkpoint if form != "pt" else ():
        checkpoint[name] = checkpoint[name] * np.float32(1.001)
    save_file(checkpoint, tmp_path / "next.safetensors", metadata={"format": "pt"})
    source = tmp_path / "next.safetensors"
    if form == "packed":
        quiet("pack", source, "-o", tmp_path / "next.packed")
        source = tmp_path / "next.packed"
    if form == "pt":
        source = TINY.with_suffix(".pt")
    update = make_update(source, tmp_path / "base.safetensors", tmp_path / "u", "--as", "bf16")
    quiet("apply", update, tmp_path / "base.safetensors", "-o", tmp_path / "out")
    out = contents(tmp_path / "out")[1]
    if form == "pt":  # which has a buffer more
        assert out.pop("seen")[0] == "I64"
    assert out.keys() == contents(tmp_path / "base.safetensors")[1].keys() and len(out) == 29
    for name, (dtype, _, content) in out.items():
        assert dtype == "BF16"
        assert content == checkpoint[name].astype(ml_dtypes.bfloat16).tobytes(), name
    assert not list(tmp_path.glob(".*")) and not list(tmp_path.glob("*.model"))


def packed_tiny(folder):
    quiet("pack", TINY, "-o", folder / "tiny.packed")
    return [folder / "tiny.packed"]


def test_what_is_applied_twice_is_said_to_be_there(tmp_path, pair):
    model = tmp_path / "m.safetensors"
    shutil.copy(pair[0], model)
    quiet("apply", pair[2], model)
    for out in [], ["-o", tmp_path / "out"], ["-o", tmp_path / "out", "--dry-run"]:
        line = one_line_error(run_tersor("apply", pair[2], model, *out, check=3))
        assert line == f"tersor: {pair[2]}: the update is already in {model}"
    assert model.read_bytes() == pair[1].read_bytes() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("weights", ["bf16+ulp8", "bf16+ulp16", "bf16+exact16", "bf16"])
def test_narrow_weights_of_a_packed_checkpoint_are_a_base(tmp_path, weights):
    """Whatever its codec adds to them: the update is that against the model that they are, nearly to the byte."""
    moved = {k: x * np.float32(1.00001) if x.dtype == "f4" else x for k, x in load_file(TINY).items()}
    save_file(moved, tmp_path / "next.safetensors", metadata={"format": "pt"})
    base = tmp_path / "base.packed"
    quiet("pack", TINY, "-o", base, "--weights", weights)
    quiet("unpack", base, "-o", tmp_path / "plain.safetensors", "--only", "weights", "--as", "bf16")
    update = make_update(tmp_path / "next.safetensors", base, tmp_path / "u", "--as", "bf16")
    plain = make_update(tmp_path / "next.safetensors", tmp_path / "plain.safetensors", tmp_path / "v", "--as", "bf16")
    assert abs(update.stat().st_size - plain.stat().st_size) < 100
    quiet("verify", update)
    quiet("apply", update, base, "-o", tmp_path / "out")
    quiet("apply", plain, tmp_path / "plain.safetensors", "-o", tmp_path / "out2")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "out2").read_bytes()
    quiet("pack", tmp_path / "out", "-o", tmp_path / "coded", "--entropy")
    assert update.stat().st_size < (tmp_path / "coded").stat().st_size / 2


@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_a_base_of_another_type_is_refused_with_the_way_out(tmp_path, form):
    base = tmp_path / f"base.{form}"
    quiet("convert", TINY, "-o", base)
    command = "pack", TINY, "-o", tmp_path / "u", "--only", "weights", "--as", "bf16", "--delta"
    line = one_line_error(run_tersor(*command, base, check=3))
    assert f"{base}: has no tensor with the name, shape and type of one" in line and "tersor pack makes" in line
    assert not (tmp_path / "u").exists()
    quiet("pack", base, "-o", tmp_path / "base.packed")
    quiet(*command, tmp_path / "base.packed")
    quiet("apply", tmp_path / "u", tmp_path / "base.packed", "-o", tmp_path / "out")


def test_of_a_packed_directory_the_file_is_named(tmp_path):
    (tmp_path / "in").mkdir()
    shutil.copy(TINY, tmp_path / "in" / "model.safetensors")
    quiet("pack", tmp_path / "in", "-o", tmp_path / "packed")
    command = "pack", TINY, "-o", tmp_path / "u", "--only", "weights", "--as", "bf16", "--delta"
    line = one_line_error(run_tersor(*command, tmp_path / "packed", check=2))
    named = re.search(r"a base is one file, such as (\S+)", line).group(1)
    assert named == f"{tmp_path}/packed/model.safetensors"
    quiet(*command, named)
    line = one_line_error(run_tersor("pack", TINY, "-o", tmp_path / "d", "--delta", tmp_path / "packed", check=2))
    named = re.search(r"a base is one file, such as (\S+)", line).group(1)
    quiet("pack", TINY, "-o", tmp_path / "d", "--delta", named)


@pytest.mark.parametrize("change", ["shapes", "names"])
def test_a_model_of_the_same_bytes_in_other_shapes_is_no_base(tmp_path, pair, change):
    """No byte of it is another one, so the update may as well be damaged: both are said, also of a plan."""
    other = tmp_path / "other.safetensors"
    if change == "shapes":
        save_file({k: x.reshape(-1) for k, x in load_file(pair[0]).items()}, other, metadata={"format": "pt"})
    else:  # in the same order
        save_file({k + "_": x for k, x in load_file(pair[0]).items()}, other, metadata={"format": "pt"})
    before = other.read_bytes()
    for out in ["-o", tmp_path / "out"], []:
        for plan in [], ["--dry-run"]:
            error = one_line_error(run_tersor("apply", pair[2], other, *out, *plan, check=3))
            assert re.search(rf"{pair[2]}: tensor [a-z.]+: is damaged, or was made with a base that has a tensor of "
                             rf"this name, dtype and shape, which {other} has not$", error), error
    assert other.read_bytes() == before and sorted(x.name for x in tmp_path.iterdir()) == ["other.safetensors"]


def test_a_model_whose_names_are_swapped_is_no_base(tmp_path):
    """All its bytes are right, and every tensor has a shape that it had."""
    rng = np.random.default_rng(6)
    old, new, other = (tmp_path / f"{name}.safetensors" for name in ("old", "new", "other"))
    tensors = {k: rng.standard_normal((300, 100)).astype(ml_dtypes.bfloat16) for k in "ab"}
    save_file(tensors, old)
    save_file({k: (x.astype("f4") * np.float32(1.001)).astype(ml_dtypes.bfloat16) for k, x in tensors.items()}, new)
    update = make_update(new, old, tmp_path / "u")
    data = old.read_bytes()
    assert data.count(b'"a"') == data.count(b'"b"') == 1
    other.write_bytes(data.replace(b'"a"', b'"c"').replace(b'"b"', b'"a"').replace(b'"c"', b'"b"'))
    refused(update, other, 3, f"{update}: tensor ", f" data is damaged, here or in {other}, or that is not the base")
    line = one_line_error(run_tersor("apply", update, other, "-o", tmp_path / "out", check=3))
    assert re.search(rf"{update}: tensor [ab]: piece 1 of 1: .+: data is damaged, here or in {other}, ", line), line
    assert not (tmp_path / "out").exists()


def test_a_model_of_other_bytes_in_other_shapes_is_said_to_be_another(tmp_path, pair):
    """Which is the better reason, and is known without what is damaged."""
    other = tmp_path / "other.safetensors"
    save_file({k: x.reshape(-1) for k, x in load_file(pair[1]).items()}, other, metadata={"format": "pt"})
    refused(pair[2], other, 3, f"{other}: is not what {pair[2]} was made from")
    assert "is not what" in one_line_error(run_tersor("apply", pair[2], other, "--dry-run", check=3))


def test_a_packed_base_is_taken_too(tmp_path):
    base = packed_model(tmp_path / "base", 0.02)
    new = save(tmp_path / "new.safetensors", 0.02001)
    update = make_update(new, base, tmp_path / "u")
    quiet("apply", update, base, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == new.read_bytes()
    assert "is not one plain safetensors file" in one_line_error(run_tersor("apply", update, base, check=3))


def save(path, scale):
    w = np.random.default_rng(3).standard_normal((40, 50)) * scale
    save_file({"w": w.astype(ml_dtypes.bfloat16)}, path)
    return path


def packed_model(path, scale):
    quiet("pack", save(path.with_suffix(".safetensors"), scale), "-o", path, "--keep", "w")
    return path


HF = DATA / "tiny-gpt" / "hf"
INDEX = "model.safetensors.index.json"


def sharded_pair(folder):
    """A model in a directory as its trainer saved it, the next one, and the update."""
    old, new = (shutil.copytree(HF, folder / name) for name in ("old", "new"))
    for shard in new.glob("*.safetensors"):
        save_file({k: x * np.float32(1.0001) for k, x in load_file(shard).items()}, shard, metadata={"format": "pt"})
    return old, new, make_update(new / INDEX, old / INDEX, folder / "update")


def shards(folder):
    """The bytes of the shards that the index names, in their order; each tensor is where the index has it."""
    where = json.loads((folder / INDEX).read_text())["weight_map"]
    for name in set(where.values()):
        assert {k for k, v in where.items() if v == name} == load_file(folder / name).keys()
    return [(folder / name).read_bytes() for name in sorted(set(where.values()))]


@pytest.mark.parametrize("argument", ["", INDEX])
def test_shards_are_replaced_in_place(tmp_path, argument):
    """Each tensor stays in its shard; other files and permissions stay; and back again."""
    old, new, update = sharded_pair(tmp_path)
    served = shutil.copytree(old, tmp_path / "served")
    (served / "config.json").write_text("{}")
    for name in (INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        os.chmod(served / name, 0o640)
    quiet("apply", update, served / argument)
    assert shards(served) == shards(new) and len(list(served.iterdir())) == 4
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in served.iterdir() if path.name != "config.json")
    quiet("apply", make_update(old / INDEX, served / INDEX, tmp_path / "back"), served / argument)
    assert shards(served) == shards(old) and len(list(served.iterdir())) == 4


def test_shards_go_to_a_new_directory(tmp_path):
    old, new, update = sharded_pair(tmp_path)
    quiet("apply", update, old, "-o", f"{tmp_path}/out/")
    for path in new.iterdir():
        if path.name == INDEX:
            assert json.loads(path.read_text()) == json.loads((tmp_path / "out" / INDEX).read_text())
        else:
            assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()
    assert len(list((tmp_path / "out").iterdir())) == 3
    line = one_line_error(run_tersor("apply", update, old, "-o", f"{tmp_path}/out/", check=4))
    assert "exists" in line and "--force" not in line
    assert "is not replaced" in one_line_error(run_tersor("apply", update, old, "-o", f"{tmp_path}/out/", "-f", check=2))


def test_a_directory_of_one_file_is_replaced_in_place(tmp_path, pair):
    (tmp_path / "m").mkdir()
    shutil.copy(pair[0], tmp_path / "m" / "model.safetensors")
    quiet("apply", pair[2], tmp_path / "m")
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == pair[1].read_bytes()


def test_the_weights_of_a_packed_directory_are_not_replaced(tmp_path):
    """What other programs read there is half of what its FP32 weights are made of."""
    served, later = tmp_path / "served", tmp_path / "later.safetensors"
    (tmp_path / "saved").mkdir()
    tensors = {"w": (np.random.default_rng(4).standard_normal((64, 96)) * 0.02).astype("f4")}
    save_file(tensors, tmp_path / "saved" / "model.safetensors", metadata={"format": "pt"})
    save_file({"w": tensors["w"] * np.float32(1.01)}, later, metadata={"format": "pt"})
    quiet("pack", tmp_path / "saved", "-o", served)
    model = served / "model.safetensors"
    before = model.read_bytes()
    update = make_update(later, model, tmp_path / "u", "--as", "bf16")
    line = one_line_error(run_tersor("apply", update, model, check=3))
    assert "model.safetensors.tersor beside it" in line and "output" in line
    assert model.read_bytes() == before
    quiet("verify", served)
    quiet("apply", update, model, "-o", tmp_path / "out.safetensors")
    assert (load_file(tmp_path / "out.safetensors")["w"] ==
            (tensors["w"] * np.float32(1.01)).astype(ml_dtypes.bfloat16)).all()


def test_shards_that_lose_and_gain_tensors(tmp_path):
    """A shard of which nothing is left goes, and a new tensor is in one of the others."""
    old, new, _ = sharded_pair(tmp_path)
    gone = load_file(new / "model-00002-of-00002.safetensors").keys()
    tensors = load_file(new / "model-00001-of-00002.safetensors") | {"x.weight": np.ones((3, 5), "f4")}
    save_file(tensors, tmp_path / "next.safetensors", metadata={"format": "pt"})
    update = make_update(tmp_path / "next.safetensors", old / INDEX, tmp_path / "u")
    quiet("apply", update, old)
    assert len(shards(old)) == 1 and len(list(old.iterdir())) == 2 and gone
    run_tersor("diff", "--strict", old, tmp_path / "next.safetensors", check=0)


def test_shards_that_may_be_those_of_others_are_not_replaced(tmp_path):
    old, new, _ = sharded_pair(tmp_path)
    os.rename(old / "model-00001-of-00002.safetensors", old / "base.safetensors")
    (old / INDEX).write_text((old / INDEX).read_text().replace("model-00001-of-00002", "base"))
    update = make_update(new / INDEX, old / INDEX, tmp_path / "u")
    before = {path: path.read_bytes() for path in old.iterdir()}
    line = one_line_error(run_tersor("apply", update, old, check=3))
    assert "nor shards named after their index" in line and "expected the name of an output" in line
    assert before == {path: path.read_bytes() for path in old.iterdir()}
    quiet("apply", update, old, "-o", f"{tmp_path}/out/")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in before}


def test_shards_are_cut_anew(tmp_path, pair):
    quiet("convert", pair[0], "-o", tmp_path / "s.safetensors", "--max-shard-size", "300K")
    index = tmp_path / "s.safetensors.index.json"
    quiet("apply", pair[2], index, "-o", tmp_path / "t.safetensors", "--max-shard-size", "300K")
    assert len(list(tmp_path.glob("t-*.safetensors"))) == len(list(tmp_path.glob("s-*.safetensors"))) > 1
    run_tersor("diff", "--strict", tmp_path / "t.safetensors.index.json", pair[1], check=0)


def refused(update, model, status, *texts):
    """With that status and line, and the model as it was."""
    before = model.read_bytes()
    line = one_line_error(run_tersor("apply", update, model, check=status))
    assert all(text in line for text in texts), line
    assert "--base" not in line and model.read_bytes() == before
    assert not list(model.parent.glob(".*"))


def test_another_model_is_refused(tmp_path, pair):
    model = tmp_path / "m.safetensors"
    shutil.copy(pair[1], model)
    refused(pair[2], model, 3, f"{pair[2]}: the update is already in {model}")
    data = bytearray(pair[0].read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    refused(pair[2], model, 3, f"{model}: is not what {pair[2]} was made from, which was called old.safetensors")
    refused(pair[2], pair[2], 3)


def test_what_the_update_does_not_read_is_checked(tmp_path):
    """Bytes of the model that decoding has no use for: of a tensor that goes, and of one that is all new."""
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    rng = np.random.default_rng(5)
    save_file({k: rng.standard_normal((700, 1000)).astype("f2") for k in ("a.stays", "b.goes", "c.other")}, old)
    tensors = load_file(old)
    del tensors["b.goes"]
    tensors["c.other"] = rng.standard_normal((700, 1000)).astype("f2")
    save_file(tensors, new)
    update = make_update(new, old, tmp_path / "u")
    quiet("apply", update, old, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == new.read_bytes()
    data = old.read_bytes()
    start = len(data) - 3 * 1400000
    for at in (0, 600000, 1400000, 2799999, 2800000, 4199999):
        old.write_bytes(data[:start + at] + bytes([data[start + at] ^ 1]) + data[start + at + 1:])
        refused(update, old, 3, f"{old}: is not what {update} was made from, which was called old.safetensors")
        line = one_line_error(run_tersor("apply", update, old, "-o", tmp_path / "none", check=3))
        assert "is not what" in line and not (tmp_path / "none").exists() and not list(tmp_path.glob(".*"))


def test_a_damaged_update_is_refused(tmp_path, pair):
    model, update = tmp_path / "m.safetensors", tmp_path / "u"
    shutil.copy(pair[0], model)
    good = pair[2].read_bytes()
    for at in (50, len(good) // 2, len(good) - 700, len(good) - 5):
        update.write_bytes(good[:at] + bytes([good[at] ^ 16]) + good[at + 1:])
        refused(update, model, 3)
    update.write_bytes(good[:-100])
    refused(update, model, 3)


def test_what_is_no_update_is_refused(tmp_path, pair):
    model = tmp_path / "m.safetensors"
    shutil.copy(pair[0], model)
    refused(pair[1], model, 3, "is not a packed delta")
    quiet("pack", TINY, "-o", tmp_path / "packed")
    refused(tmp_path / "packed", model, 3, "is not a packed delta")
    quiet("pack", TINY, "-o", tmp_path / "delta", "--delta", tmp_path / "packed")
    line = one_line_error(run_tersor("apply", tmp_path / "delta", tmp_path / "packed", "-o", tmp_path / "x", check=3))
    assert "is packed as" in line and "weights as they are" in line


def test_links_and_existing_outputs_are_not_replaced(tmp_path, pair):
    model, link = tmp_path / "m.safetensors", tmp_path / "link.safetensors"
    shutil.copy(pair[0], model)
    link.symlink_to(model)
    assert "symbolic link" in one_line_error(run_tersor("apply", pair[2], link, check=4))
    assert "same file as input" in one_line_error(run_tersor("apply", pair[2], model, "-o", model, check=4))
    assert "exists" in one_line_error(run_tersor("apply", pair[2], pair[0], "-o", model, check=4))
    assert model.read_bytes() == pair[0].read_bytes()


@pytest.mark.parametrize("args, text", [
    (["--only", "weights"], "needs --delta"), (["--only", "weights", "--delta", "B", "--state", "coat"], "--only and --state exclude each other"),
    (["--only", "weights", "--delta", "B", "--as", "f8_e4m3"], "expected bf16, f16 or f32"),
    (["--only", "weights", "--delta", "B", "--max-shard-size", "1M"],
     "--only and --max-shard-size exclude each other"),
])
def test_what_does_not_go_with_an_update_is_refused(tmp_path, pair, args, text):
    args = [pair[0] if a == "B" else a for a in args]
    assert text in one_line_error(run_tersor("pack", pair[1], "-o", tmp_path / "u", *args, check=2))


def test_dry_runs_write_nothing_and_reports_say_what(tmp_path, pair):
    shutil.copy(pair[0], tmp_path / "m")
    done = run_tersor("apply", pair[2], tmp_path / "m", "--dry-run", "--json", check=0)
    report = json.loads(done.stdout)
    assert report["dry_run"] and report["in_place"] and report["output"] == str(tmp_path / "m")
    assert report["nbytes"] == pair[1].stat().st_size and len(report["tensors"]) == len(SHAPES)
    quiet("pack", pair[1], "-o", tmp_path / "u", "--only", "weights", "--delta", pair[0], "--dry-run")
    assert (tmp_path / "m").read_bytes() == pair[0].read_bytes() and len(list(tmp_path.iterdir())) == 1


def paused(call, update, model):
    """An `apply` that stops before a call on the model's directory."""
    job = subprocess.Popen([BINARY, "apply", update, model, "-qq"], stderr=subprocess.PIPE, text=True, env={
        **os.environ, "LD_PRELOAD": os.environ["TERSOR_FAULTS"], "TERSOR_FAULT": f"{call}:stop",
        "TERSOR_FAULT_PATH": str(model.parent)})
    os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOWAIT)
    return job


def go_on(job):
    job.send_signal(signal.SIGCONT)
    return job.communicate(timeout=60)[1], job.returncode


@pytest.mark.parametrize("change", ["other-apply", "renamed", "written", "removed"])
@pytest.mark.parametrize("call", ["fsync:1", "rename:1"])
def test_a_model_that_changes_while_it_is_updated_is_not_lost(tmp_path, pair, call, change):
    """Before the file is synced, and between the last look and the renaming."""
    old, new, update = pair
    model, third = tmp_path / "d" / "m.safetensors", tmp_path / "third.safetensors"
    model.parent.mkdir()
    shutil.copy(old, model)
    shutil.copy(old, third)
    with third.open("r+b") as f:
        f.seek(-2, os.SEEK_END)
        f.write(b"\x12\x34")
    other = make_update(third, old, tmp_path / "other")
    job = paused(call, update, model)
    if change == "other-apply":
        quiet("apply", other, model)
    elif change == "renamed":
        shutil.copy(third, tmp_path / "t")
        os.rename(tmp_path / "t", model)
    elif change == "written":
        with model.open("r+b") as f:
            f.write(third.read_bytes())
    else:
        model.unlink()
    said, status = go_on(job)
    assert status == 4 and len(said.splitlines()) == 1, said
    if change == "removed":
        assert not model.exists()
    else:
        assert "replaced by another program while its successor was written" in said
        assert model.read_bytes() == third.read_bytes()
    assert os.listdir(model.parent) == ([] if change == "removed" else [model.name])


@pytest.mark.parametrize("change", ["other-apply", "index", "shard"])
@pytest.mark.parametrize("call", ["fsync:1", "rename:1"])
def test_shards_that_change_while_they_are_updated_are_not_lost(tmp_path, call, change):
    """Before the first new shard is synced, when all has been read, and before it has its name."""
    old, third, update = sharded_pair(tmp_path)
    served = shutil.copytree(old, tmp_path / "served")
    job = paused(call, update, served / INDEX)
    if change == "other-apply":
        quiet("apply", update, served / INDEX)
    elif change == "index":
        shutil.copy(served / INDEX, served / "t")
        os.rename(served / "t", served / INDEX)
    else:
        shard = next(served.glob("model-00001-of-*"))
        shutil.copy(third / shard.name, served / "t")
        os.rename(served / "t", shard)
    now = shards(served)
    said, status = go_on(job)
    assert status == 4 and len(said.splitlines()) == 1, said
    assert shards(served) == now and len(os.listdir(served)) == 3


def test_of_two_updates_at_once_one_is_refused(tmp_path, pair):
    """The one that is not refused is the model; 100 pairs under TERSOR_LONG."""
    old, new, update = pair
    model = tmp_path / "d" / "m.safetensors"
    model.parent.mkdir()
    delay = {**os.environ, "LD_PRELOAD": os.environ["TERSOR_FAULTS"], "TERSOR_FAULT": "fsync:1:delay=50",
             "TERSOR_FAULT_PATH": str(model.parent)}
    for _ in range(100 if os.environ.get("TERSOR_LONG") else 8):
        shutil.copy(old, model)
        jobs = [subprocess.Popen([BINARY, "apply", update, model, "-qq"], env=delay, stderr=subprocess.DEVNULL)
                for _ in range(2)]
        codes = sorted(job.wait() for job in jobs)
        assert codes[0] == 0 and codes[1] in (3, 4), codes
        assert model.read_bytes() == new.read_bytes() and os.listdir(model.parent) == [model.name]
