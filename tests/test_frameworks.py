"""Directories of training frameworks, each read as one checkpoint under the parameters' names.

Real ones are in tests/data/frameworks.  `zero` writes what DeepSpeed's ZeRO stages write, so that
paddings, shared and frozen parameters and hostile files can be made; DeepSpeed's own merge is what the
expected files of the real ones come from.
"""
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

import torchfile
from conftest import DATA, one_line_error, run_tersor, safetensors_bytes
from torchfile import (Dict, Tensor, arrays_in, converted, must_refuse, ordered, pt, size_of,
                       tensor)

tmp_path = torchfile.tmp_path

FRAMEWORKS = DATA / "frameworks"
DEEPSPEED = FRAMEWORKS / "deepspeed"
STAGES = ("zero1-fp32", "zero2-bf16", "zero3-bf16")
TREE = "tersor::tree"


def joined(source, tmp_path, *options):
    """What convert makes of a directory, without the tree."""
    found = converted(source, *options, to=tmp_path / "joined.safetensors")
    found.pop(TREE, None)
    return found


def notes(*args):
    """What is told with -v; without, a healthy checkpoint that is only read has no warnings."""
    assert not run_tersor(*args, check=0).stderr
    done = run_tersor(*args, "-v", check=0)
    return done.stderr


def copied(source, tmp_path):
    return shutil.copytree(source, tmp_path / "copy")


# ---- DeepSpeed, as it wrote them ----

@pytest.mark.parametrize("stage", STAGES)
def test_zero_partitions_become_whole_tensors(stage, tmp_path):
    found = joined(DEEPSPEED / f"{stage}-2rank", tmp_path)
    expected = arrays_in(FRAMEWORKS / "expected" / f"deepspeed-{stage}-2rank.safetensors")
    steps = {name: found.pop(name) for name in list(found) if name.endswith(".step")}
    assert found == expected
    weights = [name for name in expected if not name.endswith(("exp_avg", "exp_avg_sq"))]
    assert sorted(steps) == sorted(f"{name}.step" for name in weights)
    assert all(step == ("F32", [], np.float32(20).tobytes()) for step in steps.values())


@pytest.mark.parametrize("stage", STAGES)
def test_tag_directory_is_read_as_the_one_above(stage, tmp_path):
    above = joined(DEEPSPEED / f"{stage}-2rank", tmp_path)
    assert joined(DEEPSPEED / f"{stage}-2rank" / "global_step20", tmp_path) == above


def test_copies_of_weights_are_left_out_and_said(tmp_path):
    said = notes("inspect", DEEPSPEED / "zero2-bf16-2rank")
    assert "their 21 copies in the model file (model.embed_tokens.weight) are left out" in said
    assert "left out" not in notes("inspect", DEEPSPEED / "zero3-bf16-2rank")


@pytest.mark.parametrize("stage", STAGES)
def test_deepspeed_packs_as_weights_and_states(stage, tmp_path):
    source, out = DEEPSPEED / f"{stage}-2rank", tmp_path / "packed.safetensors"
    packed = json.loads(run_tersor("pack", source, "-o", out, "--json", check=0).stdout)
    run_tersor("verify", out, "--against", source, check=0)
    assert packed["totals"]["stored_nbytes"] / packed["totals"]["parameters"] == pytest.approx(5.126, abs=0.01)
    assert packed["totals"]["bytes_per_parameter"] == pytest.approx(out.stat().st_size / packed["totals"]["parameters"])
    back = tmp_path / "back.safetensors"
    run_tersor("unpack", out, "-o", back, check=0)
    exact = safetensors.numpy.load_file(
        FRAMEWORKS / "expected" / f"deepspeed-{stage}-2rank.safetensors")
    again = safetensors.numpy.load_file(back)
    for name, values in exact.items():
        if not name.endswith(("exp_avg", "exp_avg_sq")):
            assert np.abs(again[name] - values).max() <= np.abs(values).max() * 2 ** -14, name


@pytest.mark.parametrize("folder", ("deepspeed/zero3-bf16-2rank", "peft/checkpoint-20",
                                    "accelerate-fsdp/checkpoint-10"))
def test_diff_takes_a_directory_and_what_was_made_of_it(folder, tmp_path):
    source, out = FRAMEWORKS / folder, tmp_path / "joined.safetensors"
    run_tersor("convert", source, "-o", out, check=0)
    n = len(json.loads(run_tersor("inspect", source, "--json", check=0).stdout)["tensors"])
    done = run_tersor("diff", "--strict", source, out, check=0)
    assert f"{n} tensors compared: 0 differ" in done.stdout


def test_joined_pt_has_model_and_optimizer_by_name(tmp_path):
    out = tmp_path / "joined.pt"
    run_tersor("convert", DEEPSPEED / "zero2-bf16-2rank", "-o", out, "--opaque", "drop", check=0)
    root = torchfile.load(out)
    weights = root["module"].keys()
    assert len(weights) == 21 and weights[0] == "model.embed_tokens.weight"
    optimizer = root["optimizer"]
    decayed, others = optimizer["param_groups"]
    assert decayed["weight_decay"] == 0.1 and len(decayed["params"]) == 16
    assert sorted(decayed["params"] + others["params"]) == sorted(weights)
    state = optimizer["state"]
    assert sorted(state.keys()) == sorted(weights)
    assert state["model.norm.weight"]["exp_avg"].shape == (64,)
    assert root["global_steps"] == 20
    for partitions in ("param_shapes", "zero_stage", "partition_count"):
        assert partitions not in root


# ---- DeepSpeed, made by hand ----

rng = np.random.default_rng(12)


def values(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def divide(flat, ranks, align=1):
    """Equal parts of a vector with zeros at its end, and how many zeros there are."""
    part = -(-len(flat) // (ranks * align)) * align
    padded = np.zeros(part * ranks, np.float32)
    padded[:len(flat)] = flat
    return [padded[i * part:(i + 1) * part] for i in range(ranks)], len(padded) - len(flat)


def flatten(arrays, stage, ranks, lean=False):
    """A group's flat part on each rank."""
    if stage == 3:
        parts = [divide(a.ravel(), ranks)[0] for a in arrays]
        return [np.concatenate([p[i] for p in parts]) for i in range(ranks)]
    parts, padding = divide(np.concatenate([a.ravel() for a in arrays]), ranks, align=2)
    for i in reversed(range(ranks)):
        cut = min(padding, len(parts[i])) if lean else 0
        parts[i] = parts[i][:len(parts[i]) - cut]
        padding -= cut
    return parts


class Zero:
    """What the ZeRO stages save: groups of {name: (weight, {state: array})}."""

    def __init__(self, stage, ranks, groups, lean=True):
        self.stage, self.ranks, self.groups = stage, ranks, groups
        self.lean = lean
        self.module = {name: weight.astype(np.float32) for group in groups
                       for name, (weight, _) in group.items()}
        self.buffers, self.frozen, self.shared = {}, {}, {}
        self.model_edit = self.optim_edit = lambda rank, state: None
        self.elastic = False

    def expected(self):
        found = {}
        for group in self.groups:
            for name, (weight, states) in group.items():
                found[name] = ("F32", list(weight.shape), weight.tobytes())
                found[f"{name}.step"] = ("F32", [], np.float32(7).tobytes())
                for field, array in states.items():
                    found[f"{name}.{field}"] = ("F32", list(array.shape), array.tobytes())
        for name, array in {**self.buffers, **self.frozen}.items():
            found[name] = (torchfile.STORAGES[torchfile.OF_NUMPY[array.dtype.name]][0],
                           list(array.shape), array.tobytes())
        return found

    def states_of(self, rank):
        fields = list(next(iter(self.groups[0].values()))[1])
        for group in self.groups:
            yield {"step": tensor(np.float32(7)),
                   **{field: tensor(flatten([s[field] for _, s in group.values()], self.stage,
                                            self.ranks)[rank]) for field in fields}}

    def optim(self, rank):
        flat = [tensor(flatten([w for w, _ in group.values()], self.stage, self.ranks,
                               self.lean)[rank]) for group in self.groups]
        base = {"state": Dict(list(enumerate(self.states_of(rank)))),
                "param_groups": [{"lr": 0.1 * (g + 1), "params": [g]}
                                 for g in range(len(self.groups))]}
        if self.elastic:
            base = list(self.states_of(rank))
        stage = torchfile.Call(torchfile.Global("deepspeed.runtime.zero.config", "ZeroStageEnum"),
                               (self.stage,))
        count = self.ranks if self.stage == 3 else [self.ranks] * len(self.groups)
        state = {"zero_stage": stage, "partition_count": count}
        if self.stage == 3:
            state |= {"optimizer_state_dict": base, "fp32_flat_groups": flat}
        else:
            state |= {"base_optimizer_state": base, "single_partition_of_fp32_groups": flat}
        self.optim_edit(rank, state)
        return {"optimizer_state_dict": state, "ds_version": "0.19.8"}

    def model(self, rank):
        empty = tensor(np.zeros(0, np.float32))
        divided = self.stage == 3
        module = [(name, empty if divided else tensor(a))
                  for name, a in {**self.module, **self.frozen}.items()]
        module += [(alias, empty if divided else dict(module)[name])
                   for alias, name in self.shared.items()]
        module += [(name, tensor(a)) for name, a in self.buffers.items()]
        fragments = [(name, tensor(divide(a.ravel(), self.ranks)[0][rank] if divided else a))
                     for name, a in self.frozen.items()]
        state = {"module": ordered(module), "buffer_names": list(self.buffers), "optimizer": None,
                 "param_shapes": [ordered([(name, size_of(w.shape))
                                           for name, (w, _) in group.items()])
                                  for group in self.groups],
                 "frozen_param_shapes": ordered([(name, size_of(a.shape))
                                                 for name, a in self.frozen.items()]),
                 "frozen_param_fragments": ordered(fragments),
                 "shared_params": dict(self.shared), "global_steps": 7, "ds_version": "0.19.8"}
        self.model_edit(rank, state)
        return state

    def save(self, folder, tag="global_step7"):
        tagged = folder / tag
        tagged.mkdir(parents=True)
        (folder / "latest").write_text(tag)
        for rank in range(self.ranks):
            name = f"zero_pp_rank_{rank}_mp_rank_00"
            (tagged / f"{name}_optim_states.pt").write_bytes(pt(self.optim(rank)))
            if self.stage == 3:
                (tagged / f"{name}_model_states.pt").write_bytes(pt(self.model(rank)))
        if self.stage < 3:
            (tagged / "mp_rank_00_model_states.pt").write_bytes(pt(self.model(0)))
        return folder


def param(*shape):
    return values(*shape), {"exp_avg": values(*shape), "exp_avg_sq": values(*shape) ** 2}


def small(stage, ranks=3, **more):
    """Two groups whose sizes no number of ranks divides."""
    return Zero(stage, ranks, [{"a.weight": param(5, 7), "b.weight": param(3, 2, 3)},
                               {"a.bias": param(5), "b.bias": param(1), "c": param(11)}], **more)


@pytest.mark.parametrize("ranks", (1, 2, 3, 8))
@pytest.mark.parametrize("stage", (1, 2, 3))
def test_padding_is_no_part_of_a_tensor(stage, ranks, tmp_path):
    zero = small(stage, ranks)
    assert joined(zero.save(tmp_path / "in"), tmp_path) == zero.expected()


@pytest.mark.parametrize("lean", (True, False))
def test_weights_with_and_without_padding(lean, tmp_path):
    zero = small(2, 8, lean=lean)
    assert joined(zero.save(tmp_path / "in"), tmp_path) == zero.expected()


def test_elastic_checkpoint(tmp_path):
    zero = small(2)
    zero.elastic = True
    assert joined(zero.save(tmp_path / "in"), tmp_path) == zero.expected()


@pytest.mark.parametrize("stage", (2, 3))
def test_buffers_and_frozen_parameters_are_kept(stage, tmp_path):
    zero = small(stage)
    zero.buffers = {"rotary.inv_freq": values(9), "bn.num_batches_tracked": np.int64(5)}
    zero.frozen = {"frozen.weight": values(5, 5), "frozen.bias": values(1)}
    assert joined(zero.save(tmp_path / "in"), tmp_path) == zero.expected()


@pytest.mark.parametrize("stage", (2, 3))
def test_shared_parameters_stay_shared(stage, tmp_path):
    zero = small(stage)
    zero.shared = {"head.weight": "a.weight"}
    source, out = zero.save(tmp_path / "in"), tmp_path / "joined.pt"
    run_tersor("convert", source, "-o", out, "--opaque", "drop", check=0)
    module = torchfile.load(out)["module"]
    assert module["head.weight"].storage.record == module["a.weight"].storage.record
    assert module["head.weight"].content == zero.groups[0]["a.weight"][0].tobytes()


def test_each_parameter_has_a_step_of_its_own(tmp_path):
    out = tmp_path / "joined.pt"
    run_tersor("convert", small(2).save(tmp_path / "in"), "-o", out, "--opaque", "drop", check=0)
    state = torchfile.load(out)["optimizer"]["state"]
    records = [state[name]["step"].storage.record for name in state.keys()]
    assert len(set(records)) == len(records) == 5


def test_alignment_between_parameters(tmp_path):
    """Newer versions put zeros behind each parameter of a group and say how many."""
    zero = Zero(2, 2, [{"a": param(5), "b": param(4)}])
    padded = [("a", 3), ("b", 4)]

    def edit(rank, state):
        def spaced(arrays):
            return np.concatenate([np.concatenate([x, np.zeros(n, np.float32)])
                                   for x, (_, n) in zip(arrays, padded)])
        group = zero.groups[0]
        state["param_alignment_paddings"] = [[n for _, n in padded]]
        state["single_partition_of_fp32_groups"] = [
            tensor(np.split(spaced([w for w, _ in group.values()]), 2)[rank])]
        state["base_optimizer_state"]["state"] = Dict([(0, {
            "step": tensor(np.float32(7)),
            **{field: tensor(np.split(spaced([s[field] for _, s in group.values()]), 2)[rank])
               for field in ("exp_avg", "exp_avg_sq")}})])
    zero.optim_edit = edit
    assert joined(zero.save(tmp_path / "in"), tmp_path) == zero.expected()


@pytest.mark.parametrize("stage", (2, 3))
def test_partitions_may_be_views_of_larger_storages(stage, tmp_path):
    zero = small(stage)

    def edit(rank, state):
        key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
        for g, t in enumerate(state[key]):
            flat = np.frombuffer(t.storage.data, np.float32)
            apart = np.full(3 * len(flat) + 5, np.nan, np.float32)
            apart[2:2 + 3 * len(flat):3] = flat
            state[key][g] = Tensor(tensor(apart).storage, flat.shape, (3,), 2)
    zero.optim_edit = edit
    assert joined(zero.save(tmp_path / "in"), tmp_path) == zero.expected()


def test_large_parameters_are_read_in_parts_of_several_ranks(tmp_path):
    """Larger than what is read at once, with the cuts between ranks inside of a row."""
    zero = Zero(3, 7, [{"a": param(301, 1009), "b": param(5)}])
    assert joined(zero.save(tmp_path / "in"), tmp_path) == zero.expected()


def test_earlier_checkpoints_are_named_and_left_out(tmp_path):
    source = small(2).save(tmp_path / "in", "global_step6")
    zero = small(2)
    shutil.copytree(zero.save(tmp_path / "later") / "global_step7", source / "global_step7")
    (source / "latest").write_text("global_step7\n")
    assert joined(source, tmp_path) == zero.expected()
    assert "global_step6 is another one" in notes("inspect", source)


def test_weights_beside_deepspeeds_directory_are_left_out_and_said(tmp_path):
    """As Trainer and Accelerate have it."""
    zero = small(3)
    source = zero.save(tmp_path / "in", "global_step7")
    safetensors.numpy.save_file({"a.weight": values(5, 7)}, source / "model.safetensors")
    (source / "rng_state_0.pth").write_bytes(pt({"cpu": tensor(np.arange(5, dtype=np.uint8))}))
    found = joined(source, tmp_path)
    assert found.pop("rng_state_0.cpu")[1] == [5]
    assert found == zero.expected()
    assert "model.safetensors (1 files in all) is taken for a copy" in notes("inspect", source)


# ---- DeepSpeed that does not hold together ----

def refused(folder, *facts, **more):
    return must_refuse(folder, *facts, among=folder, **more)


@pytest.mark.parametrize("stage", (2, 3))
def test_missing_rank_is_refused(stage, tmp_path):
    source = small(stage).save(tmp_path / "in")
    (source / "global_step7" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    refused(source, "complete")


def test_last_rank_missing_is_refused(tmp_path):
    source = small(2).save(tmp_path / "in")
    (source / "global_step7" / "zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
    refused(source, "partition_count")


@pytest.mark.parametrize("stage", (2, 3))
def test_shapes_that_do_not_fit_are_refused(stage, tmp_path):
    for n, shape in enumerate(((6, 7), (500, 7), (2 ** 40, 2 ** 40), (0,))):
        zero = small(stage)

        def edit(rank, state, shape=shape):
            state["param_shapes"][0].pairs[0] = ("a.weight", size_of(shape))
        zero.model_edit = edit
        refused(zero.save(tmp_path / f"in{n}"), "param_shapes")


def test_states_of_other_sizes_are_refused(tmp_path):
    zero = small(2)

    def edit(rank, state):
        state["base_optimizer_state"]["state"][1]["exp_avg"] = tensor(values(3))
    zero.optim_edit = edit
    refused(zero.save(tmp_path / "in"), "exp_avg", "group 1")


def test_files_of_two_saves_are_refused(tmp_path):
    zero = small(3)

    def edit(rank, state):
        state["global_steps"] = 7 + (rank == 2)
    zero.model_edit = edit
    refused(zero.save(tmp_path / "in1"), "global_steps 8", "rank 2")
    for stage in (2, 3):
        zero = small(stage)

        def optim(rank, state):
            base = state["base_optimizer_state" if zero.stage < 3 else "optimizer_state_dict"]
            base["state"][1]["step"] = tensor(np.float32(7 + (rank == 1)))
        zero.optim_edit = optim
        refused(zero.save(tmp_path / f"in{stage}"), "step", "rank 1", "one save")


def test_state_that_is_neither_a_number_nor_per_element_is_refused(tmp_path):
    zero = small(2)

    def edit(rank, state):
        state["base_optimizer_state"]["state"][1]["step"] = tensor(values(3, 3))
    zero.optim_edit = edit
    refused(zero.save(tmp_path / "in"), "step", "9 elements")


def test_tensor_parallelism_is_refused(tmp_path):
    source = small(2).save(tmp_path / "in")
    tagged = source / "global_step7"
    shutil.copy(tagged / "mp_rank_00_model_states.pt", tagged / "mp_rank_01_model_states.pt")
    refused(source, "mp_rank_01_model_states.pt", "tensor, pipeline or expert parallelism")


def test_link_to_a_tag_is_refused(tmp_path):
    source = small(2).save(tmp_path / "in", "real")
    (source / "link").symlink_to("real")
    (source / "latest").write_text("link")
    line = one_line_error(run_tersor("inspect", source))
    assert "link" in line
    assert "found link" not in notes("inspect", source, "--follow-symlinks")


@pytest.mark.parametrize("tag", ("../elsewhere", "", "/tmp", "absent"))
def test_tag_is_a_name_in_the_directory(tag, tmp_path):
    source = small(2).save(tmp_path / "in")
    (source / "latest").write_text(tag)
    refused(source, "found no directory")


def test_two_names_of_one_parameter_are_refused(tmp_path):
    zero = small(2)

    def edit(rank, state):
        state["param_shapes"][1].pairs[0] = ("a.weight", size_of((5,)))
    zero.model_edit = edit
    refused(zero.save(tmp_path / "in"), "a.weight", "found twice")


def test_damage_to_a_partition_is_found(tmp_path):
    source = small(2).save(tmp_path / "in")
    file = source / "global_step7" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    data = bytearray(file.read_bytes())
    at = torchfile.data_offsets(bytes(data))
    data[next(at[name] for name in at if name.endswith("/data/1"))] ^= 1
    file.write_bytes(data)
    done = run_tersor("convert", source, "-o", tmp_path / "out.safetensors")
    assert done.returncode == 3 and "damaged" in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


# ---- Universal checkpoints ----

def universal(folder, zero, boxed):
    """What ds_to_universal makes of a checkpoint; `boxed`: of stage 1 or 2."""
    tagged = folder / "global_step7_universal"
    source = zero.save(folder.parent / "source")
    for group in zero.groups:
        for name, (weight, states) in group.items():
            at = tagged / "zero" / name
            at.mkdir(parents=True)
            for field, array in {"fp32": weight, **states}.items():
                value = {"cat_dim": 0, "param": tensor(array)} if boxed else tensor(array)
                (at / f"{field}.pt").write_bytes(pt(value))
            (at / "step.pt").write_bytes(pt(tensor(np.float32(7))))
    for name, array in {**zero.buffers, **zero.frozen}.items() if boxed else ():
        at = tagged / "zero" / name
        at.mkdir()
        (at / "fp32.pt").write_bytes(pt({"param": tensor(array.astype(np.float32))}))
    common = dict(zero.optim(0)["optimizer_state_dict"],
                  param_groups=[{"lr": 0.1, "params": [0]}, {"lr": 0.2, "params": [1]}])
    (tagged / "zero" / "optimizer_state.pt").write_bytes(pt(common))
    for file in (source / "global_step7").glob("*_model_states.pt"):
        shutil.copy(file, tagged)
    (folder / "latest_universal").write_text(tagged.name)
    return folder


@pytest.mark.parametrize("stage", (2, 3))
def test_universal_checkpoint(stage, tmp_path):
    zero = small(stage)
    zero.buffers = {"inv_freq": values(4), "tracked": np.int64(5)}
    zero.frozen = {"frozen": values(2, 5)}
    (tmp_path / "in").mkdir()
    source = universal(tmp_path / "in", zero, boxed=stage == 2)
    assert joined(source, tmp_path) == zero.expected()
    assert joined(source / "global_step7_universal", tmp_path) == zero.expected()


def test_universal_checkpoint_without_a_parameter_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    source = universal(tmp_path / "in", small(2), boxed=True)
    shutil.rmtree(source / "global_step7_universal" / "zero" / "b.bias")
    refused(source, "found no directory b.bias")


def test_universal_checkpoint_with_an_unknown_parameter_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    source = universal(tmp_path / "in", small(2), boxed=True)
    at = source / "global_step7_universal" / "zero"
    shutil.copytree(at / "b.bias", at / "d.bias")
    refused(source, "d.bias/exp_avg.pt")


# ---- Hugging Face ----

@pytest.mark.parametrize("folder, weights, n", (
    ("trainer/checkpoint-30", "model.safetensors", 21),
    ("accelerate/checkpoint_0", "model.safetensors", 21),
    ("peft/checkpoint-20", "adapter_model.safetensors", 8)))
def test_hugging_face_weights_optimizer_and_states_are_one_checkpoint(folder, weights, n, tmp_path):
    source = FRAMEWORKS / folder
    found = joined(source, tmp_path)
    for name, array in arrays_in(source / weights).items():
        assert found.pop(name) == array
    optimizer = torchfile.load(source / next(
        name for name in ("optimizer.pt", "optimizer.bin") if (source / name).exists()))
    states = sorted(torchfile.content_of(t) for _, t in torchfile.tensors_in(optimizer))
    assert sorted(data for name, (_, _, data) in found.items()
                  if name.endswith(("step", "exp_avg", "exp_avg_sq"))) == states
    assert len(states) == 3 * n


def test_files_without_tensors_are_named(tmp_path):
    said = notes("inspect", FRAMEWORKS / "trainer" / "checkpoint-30")
    line = next(line for line in said.splitlines() if "no tensors in it" in line)
    for name in ("config.json", "generation_config.json", "trainer_state.json",
                 "training_args.bin"):
        assert name in line
    assert "optimizer.pt" not in line and "scheduler.pt" not in line


def test_states_come_back_in_a_pt(tmp_path):
    source, out = copied(FRAMEWORKS / "trainer" / "checkpoint-30", tmp_path), tmp_path / "joined.pt"
    (source / "rng_state.pth").write_bytes(pt({"cpu": tensor(np.arange(5, dtype=np.uint8))}))
    run_tersor("convert", source, "-o", out, check=0)
    root = torchfile.load(out)
    assert root.keys() == ["model", "optimizer", "rng_state", "scheduler"]
    assert root["rng_state"]["cpu"].content == bytes(range(5))
    assert len(root["model"].keys()) == 21
    for key, name in (("optimizer", "optimizer.pt"), ("scheduler", "scheduler.pt")):
        torchfile.same(root[key], torchfile.load(source / name))


def write_model(folder, **arrays):
    folder.mkdir(exist_ok=True)
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    return folder


def write_optimizer(folder, *shapes):
    state = [(i, {"exp_avg": tensor(values(*shape))}) for i, shape in enumerate(shapes)]
    value = {"state": Dict(state), "param_groups": [{"params": list(range(len(shapes)))}]}
    (folder / "optimizer.pt").write_bytes(pt(value))
    return value


def test_order_that_nothing_settles_keeps_numbers(tmp_path):
    source = write_model(tmp_path / "in", a=values(4), b=values(4), c=values(2, 2))
    write_optimizer(source, (4,), (4,), (2, 2))
    found = joined(source, tmp_path)
    assert sorted(found) == ["a", "b", "c", *(f"optimizer.state.{i}.exp_avg" for i in range(3))]
    assert "called by the optimizer's numbers" in run_tersor("inspect", source, check=0).stderr
    assert "called by the optimizer's numbers" in run_tersor(
        "pack", source, "-o", tmp_path / "out.safetensors", check=0).stderr
    (tmp_path / "names").write_text("b\na\nc\n")
    found = joined(source, tmp_path, "--params", tmp_path / "names")
    assert sorted(found) == ["a", "a.exp_avg", "b", "b.exp_avg", "c", "c.exp_avg"]


def test_order_of_safetensors_is_not_taken_for_the_models(tmp_path):
    """Names sorted by the file: the first state need not be the first name's."""
    source = write_model(tmp_path / "in", a=values(4), b=values(4))
    write_optimizer(source, (4,), (4,))
    assert "called by the optimizer's numbers" in run_tersor(
        "pack", source, "-o", tmp_path / "out.safetensors", check=0).stderr


def test_names_of_states_cannot_collide_with_weights(tmp_path):
    source = write_model(tmp_path / "in", **{"rng_state.cpu": values(3), "scaler.x": values(2)})
    (source / "rng_state.pth").write_bytes(pt({"cpu": tensor(np.arange(5, dtype=np.uint8))}))
    (source / "scaler.pt").write_bytes(pt({"x": tensor(values(7)), "n": 1}))
    found = converted(source, to=tmp_path / "out.safetensors")
    found.pop(TREE, None)
    assert found["model.rng_state.cpu"][1] == [3] and found["model.scaler.x"][1] == [2]
    assert sorted(len(data) for _, _, data in found.values()) == [5, 8, 12, 28]


def test_torch_weights_in_a_directory(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    a, b = values(3, 2), values(2, 2)
    (source / "pytorch_model.bin").write_bytes(pt(ordered([("a", tensor(a)), ("b", tensor(b))])))
    write_optimizer(source, (3, 2), (2, 2))
    assert sorted(joined(source, tmp_path)) == ["a", "a.exp_avg", "b", "b.exp_avg"]


def test_tensors_that_are_not_read_are_refused_by_name(tmp_path):
    for n, (name, content) in enumerate((
            ("extra.pt", pt({"x": tensor(values(2))})),
            ("ema.bin", pt({"x": tensor(values(2))})),
            ("values.npy", b"\x93NUMPY\x01\0"),
            ("model.gguf", b"GGUF\3\0\0\0"),
            ("unnamed", safetensors_bytes({}, b"")),
            ("nested/deep/ema.pt", pt([tensor(values(2))])))):
        source = write_model(tmp_path / f"in{n}", a=values(4))
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
        refused(source, name)


def test_two_models_are_ambiguous(tmp_path):
    source = write_model(tmp_path / "in", a=values(4))
    shutil.copy(source / "model.safetensors", source / "model_1.safetensors")
    refused(source, "ambiguous", "model.safetensors and model_1.safetensors")


def test_directory_of_nothing_known_lists_what_is_there(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.pt").write_bytes(pt([tensor(values(2))]))
    (source / "b.pt").write_bytes(pt([tensor(values(2))]))
    refused(source, "a.pt, b.pt", commands=("pack", "convert", "verify"))


def test_directory_of_checkpoints_lists_them(tmp_path):
    for step in (10, 20):
        write_model(tmp_path / f"checkpoint-{step}", a=values(4))
    line = one_line_error(run_tersor("convert", tmp_path, "-o", tmp_path / "out.safetensors"))
    assert "(checkpoint-10/, checkpoint-20/); name the one that is meant" in line


def test_missing_tokenizer_files_make_no_note(tmp_path):
    source = write_model(tmp_path / "in", a=values(4))
    assert notes("inspect", source) == ""


# ---- FSDP ----

def test_fsdp_model_and_optimizer_are_read_together(tmp_path):
    source = FRAMEWORKS / "accelerate-fsdp" / "checkpoint-10"
    together = joined([source / "pytorch_model_fsdp_0", source / "optimizer_0"], tmp_path)
    assert joined(source, tmp_path) == together
    assert len(together) == 84
    out = tmp_path / "joined.pt"
    run_tersor("convert", source, "-o", out, check=0)
    assert sorted(torchfile.load(out).keys()) == ["model", "optimizer"]


# ---- Megatron ----

MEGATRON = FRAMEWORKS / "states" / "megatron-legacy.pt"


def megatron(folder, iteration=20, rank="mp_rank_00"):
    at = folder / f"iter_{iteration:07}" / rank
    at.mkdir(parents=True)
    shutil.copy(MEGATRON, at / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text(f"{iteration}")
    return folder


def test_megatron_legacy_masters_are_called_by_their_parameters(tmp_path):
    source = megatron(tmp_path / "in")
    found = joined(source, tmp_path)
    plain = converted(MEGATRON, to=tmp_path / "plain.safetensors")
    names = ("language_model.embedding.word_embeddings.weight",
             "decoder.layers.0.mlp.linear_fc1.weight")
    for i, name in enumerate(names):
        assert found[f"{name}.fp32_param"] == plain[f"optimizer.fp32_from_fp16_params.0.{i}"]
        for field in ("", ".exp_avg", ".exp_avg_sq"):
            assert found[name + field] == plain[name + field]
    assert joined(source / "iter_0000020", tmp_path) == found


def test_megatron_iterations_before_the_latest_are_named(tmp_path):
    megatron(tmp_path / "in", 10)
    source = megatron(tmp_path / "in", 20)
    assert "iter_0000010 is another one" in notes("inspect", source)


def test_megatron_with_several_ranks_is_refused(tmp_path):
    megatron(tmp_path / "in")
    source = megatron(tmp_path / "in", rank="mp_rank_01")
    refused(source, "mp_rank_01", "tensor or pipeline parallelism")


def test_megatron_flat_buffers_are_refused(tmp_path):
    source = megatron(tmp_path / "in")
    (source / "iter_0000020" / "mp_rank_00" / "distrib_optim.pt").write_bytes(pt([]))
    refused(source, "distrib_optim.pt", "torch_dist")


@pytest.mark.parametrize("text", ("", "x", "20x", "-1", "21"))
def test_megatron_tracker_is_the_number_of_an_iteration(text, tmp_path):
    source = megatron(tmp_path / "in")
    (source / "latest_checkpointed_iteration.txt").write_text(text)
    refused(source, "iter")


def test_torch_dist_has_plain_values_beside_its_tensors(tmp_path):
    """A real one of megatron-core, and what Lightning has in meta.pt."""
    source = FRAMEWORKS / "megatron"
    found = joined(source, tmp_path)
    assert found["common.optimizer.optimizer.state.common_step"][2] == np.float32(6).tobytes()
    assert found["optimizer.state.fp32_param.decoder.layers.mlp.linear_fc1.weight"][1] == [1, 64, 16]
    assert "left out: metadata.json" in notes("inspect", source)
    shutil.copytree(source / "iter_0000006", tmp_path / "in")
    (tmp_path / "in" / "meta.pt").write_bytes(pt({"epoch": 3}))
    assert joined(tmp_path / "in", tmp_path, "-f") == found


# ---- What tersor packed ----

def torchtitan(folder):
    """step-N/ with the model at the root, beside a flattened optimizer."""
    w, m, v = (tensor(values(40, 30) ** n) for n in (1, 1, 2))
    tensors = {"tok.weight": w, "optimizer.state.tok.weight.exp_avg": m,
               "optimizer.state.tok.weight.exp_avg_sq": v}
    paths = {name: ("optimizer", name.removeprefix("optimizer.")) if name != "tok.weight" else (name,)
             for name in tensors}
    folder.mkdir()
    torchfile.dcp(folder / "step-10", {name: torchfile.whole(t) for name, t in tensors.items()},
                  paths=paths)


MADE = {
    "deepspeed universal": lambda folder: (folder.mkdir(), universal(
        folder, Zero(2, 2, [{"w": param(50, 40)}, {"b": param(300)}]), boxed=True)),
    "megatron legacy": megatron,
    "torchtitan": torchtitan,
}


@pytest.mark.parametrize("layout", MADE)
def test_layout_made_by_hand_comes_back_from_a_packed_directory(layout, tmp_path):
    source, packed, back = (tmp_path / name for name in ("in", "packed", "back"))
    MADE[layout](source)
    run_tersor("pack", source, "-o", packed, check=0)
    run_tersor("verify", packed, "--against", source, check=0)
    run_tersor("unpack", packed, "-o", back, check=0)
    before, after = ({str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*")
                      if file.is_file()} for root in (source, back))
    changed = [name for name in before if before[name] != after.pop(name)]
    assert changed and not after
    root = "step-10" if layout == "torchtitan" else ""
    a, b = (joined(top / root, tmp_path, "-f") for top in (source, back))
    assert sorted(a) == sorted(b)
    for name in a:
        assert a[name][:2] == b[name][:2]
        if a[name] != b[name]:
            x, y = (np.frombuffer(t[name][2], "<f4").astype("f8") for t in (a, b))
            assert np.square(x - y).sum() <= 1e-3 * np.square(x).sum()


@pytest.mark.parametrize("folder", ("trainer/checkpoint-30", "deepspeed/zero3-bf16-2rank"))
def test_packed_directory_is_converted_as_what_it_was_packed_from(folder, tmp_path):
    source, out = FRAMEWORKS / folder, tmp_path / "packed"
    run_tersor("pack", source, "-o", f"{out}/", "--weights", "f32", "--momentum", "f32",
               "--variance", "f32", check=0)
    assert joined(out, tmp_path) == joined(source, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["joined.safetensors", "packed"]


def test_damaged_packed_directory_is_not_converted(tmp_path):
    out = tmp_path / "packed"
    run_tersor("pack", FRAMEWORKS / "trainer" / "checkpoint-30", "-o", f"{out}/", check=0)
    file = out / "optimizer.pt.tersor"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert run_tersor("convert", out, "-o", tmp_path / "out.safetensors").returncode == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed"]


def test_packed_directory_is_one_input_alone(tmp_path):
    out = tmp_path / "packed"
    run_tersor("pack", FRAMEWORKS / "trainer" / "checkpoint-30", "-o", f"{out}/", check=0)
    other = FRAMEWORKS / "peft" / "checkpoint-20"
    line = one_line_error(run_tersor("convert", out, other, "-o", tmp_path / "out.safetensors"))
    assert "is a packed directory; name a packed file in it (model.safetensors.tersor, optimizer.pt.tersor); " in line
    assert "tersor unpack restores it, and tersor convert makes it one checkpoint" in line


@pytest.mark.parametrize("command", [["audit"], ["diff", "FILE"]], ids=lambda c: c[0])
def test_packed_directory_where_a_file_is_expected_is_named(tmp_path, command):
    source, packed = FRAMEWORKS / "trainer" / "checkpoint-30", tmp_path / "packed"
    run_tersor("pack", source, "-o", packed, check=0)
    files = {"FILE": source / "model.safetensors"}
    line = one_line_error(run_tersor(*[files.get(a, a) for a in command], packed, check=3))
    assert line.startswith(f"tersor: {packed}: is a packed directory; name a packed file in it (model.safetensors.te")


def test_warnings_about_a_packed_directory_name_it(tmp_path):
    """Not the directory that it is unpacked into, which is gone by then."""
    packed, long = tmp_path / "packed", tmp_path / ("d" * 120)
    run_tersor("pack", FRAMEWORKS / "trainer" / "checkpoint-30", "-o", packed, check=0)
    long.mkdir()
    for out in tmp_path / "x.safetensors", long / "x.safetensors":
        done = run_tersor("convert", packed, "-o", out, "--json", tmp_path / "report.json", check=0)
        line, = done.stderr.splitlines()
        assert line.startswith(f"tersor: warning: {packed}: left out: config.json")
        told = run_tersor("convert", packed, "-o", out, "-fv", "--json", tmp_path / "report.json", check=0)
        lines = told.stderr.splitlines()
        assert len(lines) > 1 and all(s.startswith((f"tersor: warning: {packed}", f"tersor: note: {packed}")) for s in lines)
        assert out.parent == long or any(f"{packed}/rng_state.pth: " in line for line in lines)
        assert ".unpacked." not in done.stderr + (tmp_path / "report.json").read_text()
    (packed / "model.safetensors.tersor").write_bytes(b"x")
    line = one_line_error(run_tersor("convert", packed, "-o", tmp_path / "y.safetensors", check=3))
    assert ".unpacked." not in line


HEALTHY = [FRAMEWORKS / "trainer" / "checkpoint-30", FRAMEWORKS / "accelerate" / "checkpoint_0", FRAMEWORKS / "accelerate-fsdp" / "checkpoint-10",
           DEEPSPEED / "zero1-fp32-2rank", DEEPSPEED / "zero2-bf16-2rank", DATA / "tiny-gpt" / "hf",
           FRAMEWORKS / "peft" / "checkpoint-20"]


@pytest.mark.parametrize("folder", HEALTHY, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_a_healthy_directory_gives_no_warning(tmp_path, folder):
    packed = tmp_path / "packed"
    commands = [("inspect", folder), ("diff", folder, folder), ("pack", folder, "-o", packed), ("inspect", packed),
                ("verify", packed), ("verify", packed, "--against", folder), ("unpack", packed, "-o", tmp_path / "back")]
    said = {args[0]: run_tersor(*args, check=0).stderr for args in commands}
    assert not any(said.values()), said
    said = run_tersor("audit", folder).stderr
    assert "warning" not in said or "elements are too few" in said, said
