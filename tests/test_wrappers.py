"""A wrapper around model and optimizer is not part of a weight's name, in every container alike."""
import json

import numpy as np
import pytest

import torchfile
from conftest import one_line_error, run_tersor, safetensors_bytes
from torchfile import arrays_in, dcp, pt, tensor, whole

tmp_path = torchfile.tmp_path

W = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
CONTAINERS = ["safetensors", "npz", "pt", "dcp"]


def write(tmp_path, container, names):
    """A checkpoint with these names, or keys, as they are."""
    path = tmp_path / f"in.{container}"
    if container == "safetensors":
        header = {n: {"dtype": "F32", "shape": [8, 8], "data_offsets": [256 * i, 256 * i + 256]}
                  for i, n in enumerate(names)}
        path.write_bytes(safetensors_bytes(header, W.tobytes() * len(names)))
    elif container == "npz":
        np.savez(path, **{n: W for n in names})
    elif container == "pt":
        path.write_bytes(pt({n: tensor(W) for n in names}))
    else:
        dcp(path, {n: whole(tensor(W)) for n in names}, paths={n: (n,) for n in names})
    return path


def kinds(path, *options):
    """{name: (kind, weight)} as pack finds them."""
    done = run_tersor("pack", path, "-o", path.with_name("packed.safetensors"), "--json", "--force",
                      *options, check=0)
    return {t["name"]: (t["kind"], t.get("weight")) for t in json.loads(done.stdout)["tensors"]}


# ---- Flat names ----

@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("wrapper", ["app", "trainer", "a.b"])
def test_states_find_their_weights_in_a_wrapper(container, wrapper, tmp_path):
    w = wrapper
    got = kinds(write(tmp_path, container, [
        f"{w}.model.fc.weight", f"{w}.optim.state.fc.weight.exp_avg",
        f"{w}.optim.state.fc.weight.exp_avg_sq", f"{w}.optim.state.fc.weight.unknown"]))
    assert got == {f"{w}.model.fc.weight": ("weight", None),
                   f"{w}.optim.state.fc.weight.exp_avg": ("momentum", f"{w}.model.fc.weight"),
                   f"{w}.optim.state.fc.weight.exp_avg_sq": ("variance", f"{w}.model.fc.weight"),
                   f"{w}.optim.state.fc.weight.unknown": ("other", None)}


@pytest.mark.parametrize("container", CONTAINERS)
def test_wrappers_inside_the_wrapper_are_no_part_of_a_name_either(container, tmp_path):
    got = kinds(write(tmp_path, container, [
        "app.model._orig_mod.w", "app.optimizer.state.exp_avg.module.w"]))
    assert got["app.optimizer.state.exp_avg.module.w"] == ("momentum", "app.model._orig_mod.w")


@pytest.mark.parametrize("container", CONTAINERS)
def test_two_wrappers_keep_their_weights_apart(container, tmp_path):
    """As a generator and a discriminator."""
    names = [f"{net}.{key}" for net in "DG" for key in ("model.w", "optim.state.w.exp_avg")]
    got = kinds(write(tmp_path, container, names))
    for net in "DG":
        assert got[f"{net}.optim.state.w.exp_avg"] == ("momentum", f"{net}.model.w")


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_weight_outside_does_not_take_the_states_of_the_wrapper(container, tmp_path):
    path = write(tmp_path, container, ["w", "app.model.w", "app.optim.state.w.exp_avg"])
    done = run_tersor("pack", path, "-o", tmp_path / "out.safetensors", check=3)
    assert "ambiguous" in one_line_error(done)


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_module_of_a_model_is_no_wrapper(container, tmp_path):
    """Without an optimizer's state beside it, or without a model."""
    got = kinds(write(tmp_path, container, ["agent.model.w", "agent.optim.w"]))
    assert got == {"agent.model.w": ("weight", None), "agent.optim.w": ("weight", None)}
    got = kinds(write(tmp_path, container, ["x.net.w", "x.optim.state.w.exp_avg"]))
    assert got == {"x.net.w": ("weight", None), "x.optim.state.w.exp_avg": ("momentum", None)}


def test_names_in_files_stay_as_they_are(tmp_path):
    names = ["app.model.w", "app.optim.state.w.exp_avg"]
    path = write(tmp_path, "safetensors", names)
    kinds(path)
    run_tersor("unpack", tmp_path / "packed.safetensors", "-o", tmp_path / "back.safetensors", check=0)
    assert sorted(arrays_in(tmp_path / "back.safetensors")) == names


# ---- Trees ----

def nested(wrap):
    return wrap({"model": {"fc.weight": tensor(W)},
                 "optim": {"state": {"fc.weight": {"exp_avg": tensor(W)}},
                           "param_groups": [{"params": ["fc.weight"], "lr": 0.1}]}})


@pytest.mark.parametrize("wrap", [
    lambda v: {"app": v}, lambda v: {"app": v, "step": 3, "rng": tensor(W)}, lambda v: {"a": {"b": v}},
    lambda v: {"app": v, "other": {"x": tensor(W)}}], ids=["alone", "beside", "two", "flat beside"])
def test_the_model_is_found_in_a_wrapper(wrap, tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt(nested(wrap)))
    got = kinds(path)
    assert got["fc.weight"] == ("weight", None)
    assert got["fc.weight.exp_avg"] == ("momentum", "fc.weight")


def test_the_model_is_found_in_a_wrapper_of_a_flattened_optimizer(tmp_path):
    path = tmp_path / "in"
    dcp(path, {"app.model.fc.weight": whole(tensor(W)), "app.optim.state.fc.weight.exp_avg": whole(tensor(W)),
               "app.optim.param_groups.fc.weight.lr": 0.1},
        paths={"app.model.fc.weight": ("app", "model", "fc.weight"),
               "app.optim.state.fc.weight.exp_avg": ("app", "optim", "state.fc.weight.exp_avg"),
               "app.optim.param_groups.fc.weight.lr": ("app", "optim", "param_groups.fc.weight.lr")})
    assert kinds(path) == {"fc.weight": ("weight", None),
                           "fc.weight.exp_avg": ("momentum", "fc.weight")}


def test_numbered_states_in_a_wrapper_are_matched_to_the_model(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"app": {
        "model": {"a": tensor(W), "b": tensor(W)},
        "optimizer": {"state": {0: {"exp_avg": tensor(W)}, 1: {"exp_avg": tensor(W)}},
                      "param_groups": [{"params": [0, 1]}]}}}))
    assert kinds(path) == {"a": ("weight", None), "b": ("weight", None),
                           "a.exp_avg": ("momentum", "a"), "b.exp_avg": ("momentum", "b")}


def test_two_wrappers_in_a_tree_keep_their_keys(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({net: nested(lambda v: v) for net in "GD"}))
    got = kinds(path)
    for net in "GD":
        assert got[f"{net}.optim.state.fc.weight.exp_avg"] == ("momentum", f"{net}.model.fc.weight")


def test_a_copy_of_the_model_is_no_wrapper(tmp_path):
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"net": {"w": tensor(W)}, "ema": {"module": {"w": tensor(W)}, "decay": 0.9}}))
    assert kinds(path).keys() == {"w", "ema.module.w"}
