"""Optimizers of published libraries: what they keep besides states of their parameters' shapes comes back.

The files are real, small enough that nothing is packed (tests/gen/optimizers.py), so that what comes back is
equal; tests/compare/optimizers.py trains on with all classes that there are.
"""
import json

import numpy as np
import pytest

from conftest import DATA, run_tersor, safetensors_bytes, write_source
from helpers.torchfile import Dict, ordered, pt, tensor, tmp_path
from test_opaque import read

FILES = sorted((DATA / "frameworks" / "optimizers").glob("*.pt"))
NAMES = {                               # what is special in each, by its name
    "adashift": "optimizer.state.0.grad_queue.0", "aggmo": "0.weight.momentum_buffer.0.99",
    "amos": "0.weight.exp_avg_sq", "galore": "optimizer.state.0.projector.ortho_matrix",
    "madgrad": "optimizer.state.k", "magma": "optimizer.magma_state.(1).alignment",
    "nero": "2.weight.exp_avg_sq", "scion": "0.weight.d",
    "adam-mini": "0.weight.vmean", "apollo": "0.weight.exp_avg_sq", "prodigy": "0.weight.p0",
    "heavyball-soap": "0.weight.0.scale_by_soap_Q_3.0",
}
# What is known by names of its own.
MOMENTS = {
    "adabelief": {"0.weight.exp_avg": "momentum", "0.weight.exp_avg_var": "variance"},
    "adam-mini": {"2.weight.m": "momentum", "2.bias.v": "variance"},
    "ademamix": {"0.weight.exp_avg": "momentum", "0.weight.exp_avg_slow": "momentum", "0.weight.exp_avg_sq": "variance"},
    "heavyball-adamw": {"2.bias.0.update_by_adam_exp_avg_0": "momentum",
                        "2.bias.0.update_by_adam_exp_avg_sq_0": "variance"},
    "heavyball-ademamix": {"0.weight.0.update_by_ademamix_exp_avg_fast_0": "momentum",
                           "0.weight.0.update_by_ademamix_exp_avg_slow_0": "momentum",
                           "0.weight.0.update_by_ademamix_exp_avg_sq_0": "variance"},
    "heavyball-soap": {"0.weight.0.scale_by_soap_exp_avg_2": "momentum",
                       "0.weight.0.scale_by_soap_exp_avg_sq_2": "variance"},
}
CLASSES = {"adashift": "collections.deque", "galore": "galore_torch.galore_projector.GaLoreProjector",
           "apollo": "apollo_torch.random_projector.GradientProjector",
           "scion": "pytorch_optimizer.optimizer.scion.LMONorm"}


def kinds(path):
    found = json.loads(run_tersor("inspect", path, "--json", "-q", check=0).stdout)
    return {t["name"]: t["kind"] for t in found["tensors"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_comes_back_as_it_was(path, tmp_path):
    packed, back = tmp_path / "packed", tmp_path / "back.pt"
    found, moments = kinds(path), MOMENTS.get(path.stem, {})
    assert path.stem not in NAMES or found[NAMES[path.stem]] == "other"
    assert {name: found[name] for name in moments} == moments
    done = run_tersor("pack", path, "-o", packed, check=0)
    assert (f"{CLASSES[path.stem]} (1 in all)" if path.stem in CLASSES else "") in done.stderr
    run_tersor("verify", packed, check=0)
    run_tersor("verify", packed, "--against", path, check=0)
    run_tersor("unpack", packed, "-o", back, check=0)
    run_tersor("convert", path, "-o", tmp_path / "converted.pt", check=0)
    assert read(back) == read(path) == read(tmp_path / "converted.pt")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_directory_comes_back_as_it_was(path, tmp_path):
    """As Trainer writes it; the large weight makes packing worth while."""
    source, packed, back = tmp_path / "in", tmp_path / "packed", tmp_path / "back"
    source.mkdir()
    (source / "model.safetensors").write_bytes(safetensors_bytes(
        {"w": {"dtype": "F32", "shape": [4096], "data_offsets": [0, 16384]}},
        np.linspace(0.1, 0.2, 4096, dtype="f4").tobytes()))
    (source / "optimizer.pt").write_bytes(path.read_bytes())
    wanted = [*MOMENTS.get(path.stem, ()), NAMES.get(path.stem)][0].split(".")[-1]
    assert any(name.endswith(wanted) for name in kinds(source))
    run_tersor("pack", source, "-o", packed, check=0)
    run_tersor("verify", packed, check=0)
    run_tersor("verify", packed, "--against", source, check=0)
    run_tersor("unpack", packed, "-o", back, check=0)
    assert read(back / "optimizer.pt") == read(path)
    run_tersor("pack", source, "-o", tmp_path / "one.safetensors", check=0)


@pytest.mark.parametrize("state", ["exp_avg_var", "exp_avg_sq"])
def test_a_variance_about_the_mean_does_not_bound_the_momentum(state, tmp_path):
    """AdaBelief's is small where gradients hardly change, which for Adam is a flipped bit."""
    m, v = np.ones(4096, "f4"), np.full(4096, 1, "f4")
    v[7] = 1e-6
    path = tmp_path / "in.pt"
    path.write_bytes(pt({"model": ordered({"w": tensor(m)}), "optimizer": {
        "state": Dict([(0, {"exp_avg": tensor(m), state: tensor(v)})]),
        "param_groups": [{"betas": (0.9, 0.999), "eps": 1e-8, "params": [0]}]}}))
    found = json.loads(run_tersor("verify", path, "--json", check=0).stdout)["files"][0]["moments"]
    assert found["violations"] == (state == "exp_avg_sq")


def test_codes_of_lpmm_stay_as_they_are(tmp_path):
    """4-bit states of thu-ml/low-bit-optimizers, by its source: flat, padded to 2,048 and a byte more."""
    codes = tensor(np.arange(1025).astype("i1"))
    scales = {"max1": tensor(np.ones((1, 1), "f4")), "scaled_shape": (1, 128), "shape": (4, 3)}
    axes = {"max_dims": [tensor(np.ones((4, 1), "f4")), tensor(np.ones((1, 3), "f4"))], "max1": None, "dim": 2}
    qmap = tensor(np.linspace(-1, 1, 16, dtype="f4"))
    state = {"exp_avg": codes, "exp_avg_qstate": {"enable": True, "overhead": scales, "qmap": qmap},
             "exp_avg_sq": codes, "exp_avg_sq_qstate": {"enable": True, "overhead": axes, "qmap": qmap}}
    path, packed, back = tmp_path / "in.pt", tmp_path / "packed", tmp_path / "back.pt"
    path.write_bytes(pt({"model": ordered({"w": tensor(np.linspace(1, 2, 12, dtype="f4").reshape(4, 3))}),
                         "optimizer": {"state": Dict([(0, state)]), "param_groups": [{"params": [0]}]}}))
    found = kinds(path)
    assert {found.pop("w")} == {"weight"} and set(found.values()) == {"other"} and "w.exp_avg" in found
    done = run_tersor("pack", path, "-o", packed, check=0)
    assert "state that tersor does not know" in done.stdout
    run_tersor("unpack", packed, "-o", back, check=0)
    assert read(back) == read(path)


def chained(*fields):
    """A .pt of a weight w with what HeavyBall keeps for a chain of steps, each of another value."""
    state = {field: tensor(np.full(64, i + 1, "f4")) for i, field in enumerate(fields)}
    return pt({"model": ordered({"w": tensor(np.ones(64, "f4"))}), "optimizer": {
        "state": Dict([(0, Dict([(0, state)]))]), "param_groups": [{"betas": (0.9, 0.99), "eps": 1e-8, "params": [0]}]}})


@pytest.mark.parametrize("fields, moments", [
    (["scale_by_adam_exp_avg_2", "scale_by_adam_exp_avg_sq_2", "update_by_adam_exp_avg_0", "update_by_adam_exp_avg_sq_0"],
     ["scale_by_adam_exp_avg_2", "scale_by_adam_exp_avg_sq_2"]),
    (["nesterov_momentum_momentum_2", "update_by_adam_exp_avg_0", "update_by_adam_exp_avg_sq_0"],
     ["update_by_adam_exp_avg_0", "update_by_adam_exp_avg_sq_0"]),
    (["update_by_adam_exp_avg_0", "update_by_adam_exp_avg_sq_0", "z_momentum_momentum_2"],
     ["update_by_adam_exp_avg_0", "update_by_adam_exp_avg_sq_0"]),
    (["a_momentum_1", "b_momentum_2"], ["a_momentum_1"])], ids=len)
def test_of_two_steps_of_a_chain_one_has_the_moments(fields, moments, tmp_path):
    """The others are state that tersor does not know; they were refused as ambiguous."""
    path, packed, back = tmp_path / "in.pt", tmp_path / "packed", tmp_path / "back.pt"
    path.write_bytes(chained(*fields))
    found = kinds(path)
    assert [field for field in fields if found[f"w.0.{field}"] != "other"] == moments
    run_tersor("pack", path, "-o", packed, check=0)
    run_tersor("verify", packed, "--against", path, check=0)
    assert kinds(packed) == found
    run_tersor("unpack", packed, "-o", back, check=0)
    assert kinds(back) == found


def test_a_momentum_is_not_divided_by_the_variance_of_another_step(tmp_path):
    """It is no bound of it, so that there is nothing to find fault with."""
    path = tmp_path / "in.pt"
    for step, checked in ("update_by_adam", True), ("nesterov", False):
        path.write_bytes(chained(f"{step}_exp_avg_0", "update_by_adam_exp_avg_sq_0"))
        report = json.loads(run_tersor("pack", path, "-o", tmp_path / "packed", "-f", "--json", check=0).stdout)
        assert bool((report["losses"].get("updates") or {}).get("measured")) == checked


def test_names_of_steps_count_in_an_optimizer_only(tmp_path):
    """A model may have a weight of such a name; Apple's AdEMAMix has exp_avg_fast and exp_avg_slow."""
    w = np.ones(64, "f4")
    path = write_source(tmp_path / "in.safetensors", {
        "w": w, "w.0.block_exp_avg_0": w, "v": w, "optimizer.state.v.0.block_exp_avg_0": w, "u": w, "u.exp_avg_fast": w,
        "u.exp_avg_slow": w})
    found = kinds(path)
    assert {name for name, kind in found.items() if kind == "momentum"} == {
        "optimizer.state.v.0.block_exp_avg_0", "u.exp_avg_fast", "u.exp_avg_slow"}
    assert found["w.0.block_exp_avg_0"] == "weight"


def of_shapes(model, states, groups):
    state = Dict([(i, {"exp_avg": tensor(np.full(shape, i + 1, "f4"))}) for i, shape in enumerate(states)])
    return pt({"model": ordered({n: tensor(np.zeros(shape, "f4")) for n, shape in model.items()}),
               "optimizer": {"state": state, "param_groups": [{"params": g} for g in groups]}})


MODEL = {"a": (4, 3), "b": (4,), "c": (3, 4), "d": (3,)}


@pytest.mark.parametrize("states", [[()] * 4, [(4, 1), (4,), (1, 4), (3,)], [(4,), (), (3,), ()],
                                    [(2, 3), (4,), (3, 2), (3,)]], ids=str)
def test_one_group_of_all_parameters_settles_states_of_other_shapes(states, tmp_path):
    """Also where what is left of a matrix has the shape of a bias."""
    path, params = tmp_path / "in.pt", tmp_path / "params"
    path.write_bytes(of_shapes(MODEL, states, [[0, 1, 2, 3]]))
    found = kinds(path)
    for name, shape in zip(MODEL, states):
        assert found[f"{name}.exp_avg"] == ("momentum" if shape == MODEL[name] else "other")
    path.write_bytes(of_shapes(MODEL, states, [[0, 1], [2, 3]]))
    params.write_text("\n".join(MODEL))
    run_tersor("inspect", path, "--params", params, check=0)


def test_states_of_other_shapes_that_nothing_settles_keep_numbers(tmp_path):
    """One parameter is frozen; which, no shape says: not even one that is a parameter's."""
    path = tmp_path / "in.pt"
    for states in ([()] * 3, [(4,), (), (3,)]):
        path.write_bytes(of_shapes(MODEL, states, [[0, 1, 2]]))
        assert [n for n in kinds(path) if "exp_avg" in n] == [f"optimizer.state.{i}.exp_avg" for i in range(3)]
        assert "called by the optimizer's numbers" in run_tersor("inspect", path, check=0).stderr
