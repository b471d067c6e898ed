"""Directories with files that no framework writes: refused, or accounted for, and within bounds."""
import numpy as np
import pytest

import torchfile
from conftest import one_line_error, run_tersor
from test_directory import entries_of, index_of, tree
from test_frameworks import converted, small
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
