#!/usr/bin/env python3
"""Quantized models as frameworks save them, cut to a layer, for tests/data/frameworks/quantized.

    quantized_models.py OUT

Needs torch, transformers 5, bitsandbytes 0.50 and compressed-tensors 0.20.  Each model is a Llama of two layers
with random weights, quantized and saved whole.  Of its file OUT/NAME.safetensors has one projection with all that
belongs to it, and a norm, which is not quantized.
"""
import pathlib
import sys
import tempfile

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig, QuantizationScheme,
                                             apply_quantization_config)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

NF4 = dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")
BITSANDBYTES = {
    "bitsandbytes-nf4": dict(NF4, bnb_4bit_use_double_quant=True),
    "bitsandbytes-nf4-in-float32": dict(NF4, bnb_4bit_quant_storage=torch.float32),
    "bitsandbytes-int8": dict(load_in_8bit=True),
}
COMPRESSED_TENSORS = {
    "compressed-tensors-fp8": dict(num_bits=8, type="float", strategy="channel"),
    "compressed-tensors-int4": dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False),
}
KEPT = ("model.layers.0.self_attn.k_proj.", "model.layers.0.input_layernorm.")


def base(folder):
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                 num_attention_heads=4, num_key_value_heads=2)).save_pretrained(folder)
    return folder


def by_bitsandbytes(source, folder, options):
    AutoModelForCausalLM.from_pretrained(
        source, quantization_config=BitsAndBytesConfig(**options), device_map="cpu",
        dtype=torch.float32).save_pretrained(folder)


def by_compressed_tensors(source, folder, options):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**options))
    apply_quantization_config(model, QuantizationConfig(config_groups={"all": scheme}, ignore=["lm_head"]))
    for module in model.modules():
        if getattr(module, "weight_scale", None) is None:
            continue
        args, w = module.quantization_scheme.weights, module.weight.data
        w = w.reshape(w.shape[0], -1, args.group_size or w.shape[1])
        scale, zero = calculate_qparams(w.amin(-1), w.amax(-1), args)
        module.weight_scale.data = scale
        if getattr(module, "weight_zero_point", None) is not None:
            module.weight_zero_point.data = zero.to(module.weight_zero_point.dtype)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        source = base(scratch / "base")
        for made, how in ((BITSANDBYTES, by_bitsandbytes), (COMPRESSED_TENSORS, by_compressed_tensors)):
            for name, options in made.items():
                how(source, scratch / name, options)
                tensors = load_file(scratch / name / "model.safetensors")
                save_file({k: v.clone() for k, v in tensors.items() if k.startswith(KEPT)},
                          pathlib.Path(sys.argv[1]) / f"{name}.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
