"""Command lines with real checkpoints: inputs of several kinds in one command, and what verify says."""
import json
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import DATA, one_line_error, run_tersor
from torchfile import content_of, load, metadata_in, tensors_in, tmp_path  # noqa: F401

FRAMEWORKS = DATA / "frameworks"
TRAINER = FRAMEWORKS / "trainer" / "checkpoint-30"
ORDER = FRAMEWORKS / "expected" / "trainer-parameter-order.txt"
TORCH = DATA / "torch"
BITSANDBYTES = FRAMEWORKS / "states" / "bitsandbytes-adamw8bit.pt"


def value_at(root, *keys):
    """What a loaded .pt has at these keys."""
    for key in keys:
        root = dict(root.pairs)[key]
    return root


def packed(path, *sources):
    run_tersor("pack", *sources, "-o", path, check=0)
    return path


# --- Inputs with and without a tree -------------------------------------------------------------

def joined(tmp_path, *sources, out="back.pt"):
    """Several inputs packed to one file and unpacked to a .pt; the value in it."""
    done = run_tersor("pack", *sources, "-o", tmp_path / "packed.safetensors", check=0)
    assert "is not part of what was saved" not in done.stderr
    done = run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / out, check=0)
    assert done.stderr == ""
    for command in ("inspect", "verify"):
        assert run_tersor(command, tmp_path / out, check=0).stderr == ""
    return load(tmp_path / out)


def assert_has_weights(model, weights):
    found = dict(model.pairs)
    assert sorted(found) == sorted(weights)
    for name, expected in weights.items():
        x = np.frombuffer(content_of(found[name]), np.float32).reshape(expected.shape)
        assert np.abs(x - expected).max() <= 2.0**-16 * np.abs(expected).max(), name


@pytest.mark.parametrize("order", [1, -1])
def test_weights_come_back_beside_an_optimizer_with_a_tree(tmp_path, order):
    sources = [TRAINER / "model.safetensors", TRAINER / "optimizer.pt"][::order]
    root = joined(tmp_path, *sources, "--params", ORDER)
    assert [key for key, _ in root.pairs] == ["model", "optimizer"]
    assert_has_weights(value_at(root, "model"), load_file(TRAINER / "model.safetensors"))
    before, after = load(TRAINER / "optimizer.pt"), value_at(root, "optimizer")
    assert [k for k, _ in after.pairs] == [k for k, _ in before.pairs]
    assert len(value_at(after, "state").pairs) == len(value_at(before, "state").pairs) == 21


def test_weights_come_back_beside_the_optimizer_of_a_dcp_directory(tmp_path):
    root = joined(tmp_path, TRAINER / "model.safetensors",
                  FRAMEWORKS / "accelerate-fsdp" / "checkpoint-10" / "optimizer_0")
    assert [key for key, _ in root.pairs] == ["model", "optimizer"]
    assert_has_weights(value_at(root, "model"), load_file(TRAINER / "model.safetensors"))
    assert [k for k, _ in value_at(root, "optimizer").pairs] == ["state", "param_groups"]


def test_weights_join_several_trees_as_the_first_of_a_list(tmp_path):
    """With more than an optimizer there is no usual form."""
    root = joined(tmp_path, TRAINER / "optimizer.pt", TRAINER / "model.safetensors",
                  TRAINER / "scheduler.pt", "--params", ORDER)
    assert isinstance(root, list) and len(root) == 3
    assert_has_weights(root[0], load_file(TRAINER / "model.safetensors"))
    assert [k for k, _ in root[1].pairs] == ["state", "param_groups"]


def test_weights_join_a_tree_that_a_safetensors_file_keeps(tmp_path):
    run_tersor("convert", TRAINER / "optimizer.pt", "-o", tmp_path / "optimizer.safetensors", check=0)
    root = joined(tmp_path, TRAINER / "model.safetensors", tmp_path / "optimizer.safetensors")
    assert [key for key, _ in root.pairs] == ["model", "optimizer"]
    assert_has_weights(value_at(root, "model"), load_file(TRAINER / "model.safetensors"))


def test_a_tensor_that_one_file_keeps_outside_its_tree_is_noted_once_and_written(tmp_path):
    run_tersor("convert", TORCH / "model.pt", "-o", tmp_path / "a.safetensors", check=0)
    tensors = load_file(tmp_path / "a.safetensors")
    tensors |= {f"extra.{i}": np.arange(4, dtype=np.float32) for i in range(3)}
    save_file(tensors, tmp_path / "b.safetensors", metadata_in(tmp_path / "a.safetensors"))
    done = run_tersor("convert", tmp_path / "b.safetensors", "-o", tmp_path / "b.pt", check=0)
    assert done.stderr.count("is not part of what was saved (tersor_tree; 3 in all)") == 1
    assert len(done.stderr.splitlines()) == 1
    assert len(list(tensors_in(load(tmp_path / "b.pt")))) == len(tensors)


# --- verify -------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", [
    BITSANDBYTES, DATA / "tiny-gpt" / "flashadamw24-after.pt",
    DATA / "tiny-gpt" / "flashadamw32-after.pt"], ids=lambda path: path.stem)
@pytest.mark.parametrize("options", [[], ["--keep", "."], ["--momentum", "linear8", "--weights", "bf16"]],
                         ids=["default", "raw", "other-codecs"])
def test_verify_against_compressed_states_of_other_tools(tmp_path, source, options):
    path = tmp_path / "packed.safetensors"
    run_tersor("pack", source, "-o", path, *options, check=0)
    done = run_tersor("verify", path, "--against", source, check=0)
    assert "raw tensors equal the original's, errors are as recorded" in done.stdout


def test_verify_against_compressed_states_sees_a_changed_code(tmp_path):
    """The decoded states are compared, not only names and shapes."""
    path = packed(tmp_path / "packed.safetensors", BITSANDBYTES)
    codes = next(t for where, t in tensors_in(load(BITSANDBYTES)) if where[-1] == "state1")
    changed = bytearray(content_of(codes))
    changed[7] ^= 0x40
    with zipfile.ZipFile(BITSANDBYTES) as old, zipfile.ZipFile(tmp_path / "other.pt", "w") as new:
        for member in old.namelist():
            content = old.read(member)
            new.writestr(member, bytes(changed) if content == content_of(codes) else content)
    done = run_tersor("verify", path, "--against", tmp_path / "other.pt", check=1)
    assert "is not what" in one_line_error(done) and "1 of 6 tensors differ" in done.stderr
    assert "weight.state1" in done.stdout


def test_verify_against_the_wrong_original_says_so_first(tmp_path):
    path = packed(tmp_path / "packed.safetensors", TRAINER / "model.safetensors")
    wrong = {name: x + 1 for name, x in load_file(TRAINER / "model.safetensors").items()}
    wrong["another"] = wrong.pop("model.norm.weight")
    save_file(wrong, tmp_path / "wrong.safetensors")
    args = "verify", path, "--against", tmp_path / "wrong.safetensors"
    done = run_tersor(*args, check=1)
    assert one_line_error(done) == (
        f"tersor: {tmp_path}/wrong.safetensors: is not what {path} was packed from: 20 of 21 tensors "
        "differ, 1 is not in it, 1 of its tensors is missing, first another")
    assert done.stdout.count("FAULT") == 6 and "and 16 more tensors (-v lists all)" in done.stdout
    assert run_tersor(*args, "-v", check=1).stdout.count("FAULT") == 21


def test_verify_takes_several_files_and_exits_with_the_worst(tmp_path):
    good = packed(tmp_path / "good.safetensors", TRAINER / "model.safetensors")
    save_file({"x": np.float32([1, np.nan])}, tmp_path / "nan.safetensors")
    content = bytearray(good.read_bytes())
    content[-1] ^= 1
    (tmp_path / "damaged.safetensors").write_bytes(content)
    done = run_tersor("verify", good, tmp_path / "nan.safetensors", good, check=1)
    assert done.stdout.count("good.safetensors: 21 tensors") == 2
    assert "found 1 non-finite value" in one_line_error(done)
    files = [good, tmp_path / "damaged.safetensors", tmp_path / "nan.safetensors", good]
    done = run_tersor("verify", *files, "--json", check=3)
    found = json.loads(done.stdout)["files"]
    assert [f["file"] for f in found] == [str(f) for f in files]
    assert [f.get("faults") for f in found] == [0, None, 1, 0] and "hash" in found[1]["error"]
    done = run_tersor("verify", *files, "--against", good, check=2)
    assert "--against is for one file; found 4" in one_line_error(done)
