"""Directories with files that no framework writes: refused, or accounted for, and within bounds."""
import numpy as np
import pytest

import torchfile
from conftest import run_tersor
from test_directory import entries_of, tree
from test_frameworks import Zero, small
from torchfile import Dict, must_refuse, tensor, whole

tmp_path = torchfile.tmp_path


@pytest.mark.parametrize("stage", (2, 3))
def test_a_tensor_under_two_keys_of_a_rank_is_kept_under_both(stage, tmp_path):
    zero = small(stage, 2)
    own = tensor(np.arange(6, dtype=np.float32))

    def edit(rank, state):
        if rank:
            state |= {"one": own, "two": own, "three": [own], "four": [7]}
    zero.optim_edit = edit
    out = tmp_path / "joined.pt"
    run_tersor("convert", zero.save(tmp_path / "in"), "-o", out, "--opaque", "drop", check=0)
    kept = torchfile.load(out)["zero_rank_1"]["zero_optimizer"]
    assert list(kept.keys()) == ["one", "two", "three"]


@pytest.mark.parametrize("state", (2, "0"))
@pytest.mark.parametrize("stage", (2, 3))
def test_a_state_of_no_group_is_refused(stage, state, tmp_path):
    zero = small(stage, 2)

    def edit(rank, found):
        base = found["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]
        base["state"] = Dict(list(base["state"].items()) + [(state, {"exp_avg": tensor(
            np.ones(3, np.float32))})])
    zero.optim_edit = edit
    must_refuse(zero.save(tmp_path / "in"), "state that is of none of the 2 groups",
                options=("--opaque", "drop"))


def test_an_elastic_state_of_no_group_is_refused(tmp_path):
    zero = small(2, 2)
    zero.elastic = True

    def edit(rank, found):
        found["base_optimizer_state"].append({"exp_avg": tensor(np.ones(3, np.float32))})
    zero.optim_edit = edit
    must_refuse(zero.save(tmp_path / "in"), "state that is of none of the 2 groups",
                options=("--opaque", "drop"))


def test_data_files_that_metadata_does_not_name_are_no_parts(tmp_path):
    """As a save on fewer ranks into the directory of an earlier one leaves them."""
    source = torchfile.dcp(tmp_path / "in", {
        "a.weight": whole(tensor(np.linspace(0, 1, 90000, dtype=np.float32).reshape(300, 300)))})
    (source / "__9_0.distcp").write_bytes(b"left over")
    packed, back = tmp_path / "packed", tmp_path / "back"
    done = run_tersor("pack", source, "-o", packed, check=0)
    assert "has *.distcp files beside it that it does not name" in done.stdout
    run_tersor("unpack", packed, "-o", back, check=0)
    assert tree(back) == tree(source)
    run_tersor("verify", packed, "--against", source, check=0)


def test_a_file_with_the_name_of_the_packed_one(tmp_path):
    source = torchfile.dcp(tmp_path / "in", {"a.weight": whole(tensor(np.ones((300, 300), np.float32)))})
    (source / "dcp.tersor").write_text("mine")
    packed, back = tmp_path / "packed", tmp_path / "back"
    done = run_tersor("pack", source, "-o", packed, check=0)
    assert "another file beside it is called dcp.tersor" in done.stdout
    run_tersor("unpack", packed, "-o", back, check=0)
    assert tree(back) == tree(source)


def test_empty_data_files_are_parts(tmp_path):
    source = torchfile.dcp(tmp_path / "in", {
        "a.weight": whole(tensor(np.linspace(0, 1, 90000, dtype=np.float32).reshape(300, 300)))},
        files=("__9_0.distcp",))
    packed = tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    assert entries_of(packed)["__9_0.distcp"]["as"] == "part"
    assert entries_of(packed)[".metadata"]["as"] == "packed"


def test_many_parameters_and_many_keys_in_no_more_time_than_both(tmp_path):
    zero = Zero(2, 1, [{f"p{i}": (np.ones(1, np.float32), {}) for i in range(6000)}])
    zero.optim_edit = lambda rank, state: state.update({f"k{i}": i for i in range(150000)})
    source = zero.save(tmp_path / "in")
    done, peak, seconds = torchfile.run_bounded("inspect", source, "--opaque", "drop")
    assert done.returncode == 0 and seconds < 1.5, seconds


def test_directories_too_deep_to_be_searched_are_refused(tmp_path):
    source = small(2).save(tmp_path / "in")
    deep = source / "global_step7" / "extra" / "/".join("123456789")
    deep.mkdir(parents=True)
    (deep / "a.pt").write_bytes(torchfile.pt({"a": tensor(np.ones(3, np.float32))}))
    must_refuse(source, "extra/1/2/3/4/5/6/7/8/9 beside the files that were read",
                options=("--opaque", "drop"))
