# SPDX-License-Identifier: Apache-2.0
"""Quantized models: what belongs to a quantized weight stays as it is, to the byte, and is named."""
import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import conftest
from conftest import DATA
from helpers import torchfile as tf

SAMPLES = DATA / "frameworks" / "quantized"
RNG = np.random.default_rng(33)
LAYER = "model.layers.0.self_attn.k_proj."
NORM = "model.layers.0.input_layernorm.weight"


def run_tersor(*args):
    return conftest.run_tersor(*args, check=0)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ints(dtype, *shape):
    return RNG.integers(0, 100, shape).astype(dtype)


def fp8(*shape):
    return f32(*shape).astype(ml_dtypes.float8_e4m3fn)


def tensors(path):
    """Each tensor's type, shape and bytes."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {k: (t["dtype"], t["shape"], data[start + t["data_offsets"][0]:start + t["data_offsets"][1]])
            for k, t in header.items()}


def pack(tmp_path, source, *options):
    done = run_tersor("pack", source, "-o", tmp_path / "packed", "-f", "--json", "--min-elements", "1", *options)
    report = json.loads(done.stdout)
    return report, {t["name"]: t for t in report["tensors"]}


def quantized(tmp_path, source, *options):
    """The weight that each tensor belongs to."""
    return {k: t["quantized"] for k, t in pack(tmp_path, source, *options)[1].items() if "quantized" in t}


def model(path, **layer):
    """A model of one quantized layer and a norm, and the names that belong to the layer."""
    save_file({**{LAYER + k: v for k, v in layer.items()}, NORM: f32(64)}, path)
    return path


# Layouts as the documentation of their formats has them, with FP32 in place of FP16 where both are used.
LAYOUTS = {
    "gptq": ({"qweight": ints(np.int32, 8, 32), "qzeros": ints(np.int32, 2, 4), "scales": f32(2, 32),
              "g_idx": ints(np.int32, 64), "bias": f32(32)}, "qweight", ["scales", "bias"]),
    "awq": ({"qweight": ints(np.int32, 64, 4), "qzeros": ints(np.int32, 2, 4), "scales": f32(2, 32)},
            "qweight", ["scales"]),
    "fp8-blocks": ({"weight": fp8(128, 64), "weight_scale_inv": f32(8, 4)}, "weight", ["weight_scale_inv"]),
    "fp8-tensor": ({"weight": fp8(32, 64), "weight_scale": f32(1), "input_scale": f32(1)},
                   "weight", ["weight_scale", "input_scale"]),
    "hqq": ({"W_q": ints(np.uint8, 32, 32), "scale": f32(1, 32), "zero": f32(1, 32)}, "W_q", ["scale", "zero"]),
    "torchao": ({"_weight_qdata": ints(np.int8, 32, 64), "_weight_scale": f32(32)},
                "_weight_qdata", ["_weight_scale"]),
    "quanto": ({"weight._data": ints(np.int8, 32, 64), "weight._scale": f32(32, 1)},
               "weight._data", ["weight._scale"]),
    "mxfp4": ({"up_blocks": ints(np.uint8, 2, 64, 2, 16), "up_scales": ints(np.uint8, 2, 64, 2),
               "up_bias": f32(2, 64)}, "up_blocks", ["up_bias"]),
}
SAVED = {
    "bitsandbytes-int8": ("weight", ["SCB"]),
    "bitsandbytes-nf4": ("weight", ["weight.nested_absmax", "weight.nested_quant_map", "weight.quant_map"]),
    "bitsandbytes-nf4-in-float32": ("weight", ["weight", "weight.absmax", "weight.quant_map"]),
    "compressed-tensors-fp8": ("weight", ["weight_scale"]),
    "compressed-tensors-int4": ("weight_packed", ["weight_scale"]),
}


@pytest.fixture(params=[*SAVED, *LAYOUTS])
def sample(request, tmp_path):
    """A model, the name of its quantized weight, and the names that belong to it."""
    name = request.param
    if name in SAVED:
        weight, parts = SAVED[name]
        return SAMPLES / f"{name}.safetensors", LAYER + weight, [LAYER + k for k in parts]
    layer, weight, parts = LAYOUTS[name]
    return model(tmp_path / f"{name}.safetensors", **layer), LAYER + weight, [LAYER + k for k in parts]


def test_parts_of_quantized_weights_stay_as_they_are(tmp_path, sample):
    source, weight, parts = sample
    report, by_name = pack(tmp_path, source)
    assert {k: t["quantized"] for k, t in by_name.items() if "quantized" in t} == dict.fromkeys(parts, weight)
    assert all((by_name[k]["kind"], by_name[k]["codec"]) == ("other", "raw") for k in parts)
    assert by_name[NORM]["codec"] == "bf16+ulp8"
    assert report["quantized"]["tensors"] == len(parts)
    run_tersor("verify", tmp_path / "packed", "--against", source)
    run_tersor("unpack", tmp_path / "packed", "-o", tmp_path / "back.safetensors")
    before, after = tensors(source), tensors(tmp_path / "back.safetensors")
    assert [k for k in before if before[k] != after[k]] in ([], [NORM])


def test_reports_name_the_weight(tmp_path, sample):
    source, weight, parts = sample
    line = f"raw, as part of quantized weights: {len(parts)} tensor"
    assert line in run_tersor("pack", source, "-o", tmp_path / "p", "--min-elements", "1").stdout
    for path in (source, tmp_path / "p"):
        shown = run_tersor("inspect", "-v", path).stdout
        assert shown.count("    of the quantized model.") == len(parts) and line in shown
        report = json.loads(run_tersor("inspect", "--json", path).stdout)
        assert {t["name"]: t["quantized"] for t in report["tensors"] if "quantized" in t} == \
            dict.fromkeys(parts, weight)


def as_bf16(tmp_path, source):
    run_tersor("pack", source, "-o", tmp_path / "p", "-f", "--min-elements", "1")
    run_tersor("unpack", tmp_path / "p", "-o", tmp_path / "bf16.safetensors", "--only", "weights", "--as", "bf16")
    return tmp_path / "bf16.safetensors"


def test_another_type_is_not_for_them(tmp_path, sample):
    before, after = tensors(sample[0]), tensors(as_bf16(tmp_path, sample[0]))
    assert [k for k in before if before[k] != after[k]] == [NORM] and after[NORM][0] == "BF16"


def test_an_update_of_a_quantized_model(tmp_path, sample):
    base = as_bf16(tmp_path, sample[0])
    run_tersor("pack", sample[0], "-o", tmp_path / "update", "--only", "weights", "--as", "bf16", "--delta", base)
    run_tersor("apply", tmp_path / "update", base, "-o", tmp_path / "new.safetensors")
    assert tensors(tmp_path / "new.safetensors") == tensors(base)


def test_in_a_pt(tmp_path):
    arrays = {LAYER + "weight": ints(np.int8, 32, 64), LAYER + "SCB": f32(32), NORM: f32(64)}
    (tmp_path / "c.pt").write_bytes(tf.pt({"model": {k: tf.tensor(v) for k, v in arrays.items()}}))
    assert quantized(tmp_path, tmp_path / "c.pt") == {LAYER + "SCB": LAYER + "weight"}
    run_tersor("unpack", tmp_path / "packed", "-o", tmp_path / "back.pt")
    run_tersor("convert", tmp_path / "back.pt", "-o", tmp_path / "back.safetensors")
    assert tensors(tmp_path / "back.safetensors")[LAYER + "SCB"][2] == arrays[LAYER + "SCB"].tobytes()


def test_a_rule_comes_first(tmp_path):
    source = SAMPLES / "bitsandbytes-int8.safetensors"
    assert pack(tmp_path, source, "--map", "SCB=weight")[1][LAYER + "SCB"]["codec"] == "bf16+ulp8"


# ---- Directories -------------------------------------------------------------------------------

def reasons(tmp_path, source):
    done = run_tersor("pack", source, "-o", tmp_path / "packed", "--json")
    return {f["path"]: f["reason"] for f in json.loads(done.stdout)["files"]}


COPIED = "is a quantized model, which is opened in the types that it has"


def test_a_quantized_model_in_a_directory_is_copied(tmp_path, sample):
    source = tmp_path / "model"
    source.mkdir()
    save_file({"lm_head.weight": f32(64, 64)}, tmp_path / "head.safetensors")
    run_tersor("convert", sample[0], tmp_path / "head.safetensors", "-o", source / "model.safetensors")
    assert reasons(tmp_path, source) == {"model.safetensors": COPIED}
    assert (tmp_path / "packed/model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()


def test_a_weight_and_its_scales_in_different_shards(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    shards = [{LAYER + "weight": ints(np.int8, 1024, 64)}, {LAYER + "SCB": f32(1024), "lm_head.weight": f32(64, 64)},
              {NORM: f32(1024)}]
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    for name, shard in zip(names, shards):
        save_file(shard, source / name)
    index = {"metadata": {"total_size": 0},
             "weight_map": {k: name for name, shard in zip(names, shards) for k in shard}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    found = reasons(tmp_path, source)
    assert [found[n] for n in names] == ["has no weights or states to pack", COPIED, COPIED]
    report = json.loads(run_tersor("inspect", "--json", source / "model.safetensors.index.json").stdout)
    assert report["quantized"]["tensors"] == 1


def test_a_pt_in_a_directory_is_packed(tmp_path):
    source = tmp_path / "model"
    source.mkdir()
    arrays = {LAYER + "weight": ints(np.int8, 32, 64), LAYER + "SCB": f32(32), "lm_head.weight": f32(64, 64)}
    (source / "pytorch_model.bin").write_bytes(tf.pt({k: tf.tensor(v) for k, v in arrays.items()}))
    assert reasons(tmp_path, source) == {"pytorch_model.bin": None}
    assert "raw, as part of quantized weights: 1 tensor, 128 B" in \
        run_tersor("inspect", tmp_path / "packed").stdout


# ---- Ordinary models ---------------------------------------------------------------------------

ORDINARY = {
    "batch normalization": {"bn.weight": f32(64), "bn.bias": f32(64), "bn.num_batches_tracked": np.int64(3)},
    "counter with a dimension": {"bn.weight": f32(64), "bn.num_batches_tracked": ints(np.int32, 1)},
    "positions": {"emb.weight": f32(4, 16), "emb.position_ids": ints(np.int64, 1, 512),
                  "emb.token_type_ids": ints(np.int64, 1, 512)},
    "mask": {"attn.bias": np.ones((1, 1, 64, 64), np.bool_), "attn.scale": f32(32)},
    "mask above weights": {"attn.bias": np.ones((1, 1, 64, 64), np.uint8), "attn.c_attn.weight": f32(16, 16)},
    "relative positions": {"attn.relative_position_bias_table": f32(169, 3),
                           "attn.relative_position_index": ints(np.int64, 49, 49)},
    "pruning mask": {"fc.weight_orig": f32(32, 32), "fc.weight_mask": ints(np.uint8, 32, 32), "fc.bias": f32(32)},
    "mask as large": {"fc.weight": f32(32, 32), "fc.mask": ints(np.int32, 32, 32)},
    "extra state": {"fc.weight": f32(64, 64), "fc.layer_norm_weight": f32(64),
                    "fc._extra_state": ints(np.uint8, 1000)},
    "random numbers": {"w": f32(8, 16), "rng_state": ints(np.uint8, 5056)},
    "names without dots": {"model_ema.num_updates": np.int32(7), "model_ema.decay": np.float32(0.9),
                           "model_ema.block0weight": f32(64)},
    "counters of an optimizer": {"w": f32(64), "w.step": np.int64(3), "w.exp_avg": f32(64)},
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_models_have_none(tmp_path, name):
    save_file({k: np.asarray(v) for k, v in ORDINARY[name].items()}, tmp_path / "s.safetensors")
    by_name = pack(tmp_path, tmp_path / "s.safetensors")[1]
    assert not [k for k, t in by_name.items() if "quantized" in t]
    assert all(t["codec"] != "raw" for t in by_name.values() if t["dtype"] == "F32" and t["shape"])


def test_states_are_no_parts(tmp_path):
    """FP8 weights in training: moments and a master copy keep their kinds; a trained bias is a weight."""
    save_file({"fc.weight": fp8(32, 64), "fc.weight_scale": f32(32), "fc.weight.exp_avg": f32(32, 64),
               "fc.weight.exp_avg_sq": f32(32, 64) ** 2, "fc.weight.master_param": f32(32, 64),
               "fc.bias": f32(32), "fc.bias.exp_avg": f32(32)}, tmp_path / "s.safetensors")
    by_name = pack(tmp_path, tmp_path / "s.safetensors")[1]
    assert {k: t["quantized"] for k, t in by_name.items() if "quantized" in t} == {"fc.weight_scale": "fc.weight"}
    assert {k: t["kind"] for k, t in by_name.items() if t["dtype"] == "F32"} == {
        "fc.weight_scale": "other", "fc.weight.exp_avg": "momentum", "fc.weight.exp_avg_sq": "variance",
        "fc.weight.master_param": "weight", "fc.bias": "weight", "fc.bias.exp_avg": "momentum"}
