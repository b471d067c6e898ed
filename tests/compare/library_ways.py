#!/usr/bin/env python3
"""One way of a Python library to keep a checkpoint, once: for head_to_head.py, which says what for.

    library_ways.py WAY write|read SOURCE TARGET

Write: from the FP32 safetensors file SOURCE; read: to such a file.  Prints the seconds that this took, without
the start of Python and the imports.  Needs torch, safetensors and the library of the way.
"""
import collections
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file, save_file


def kind(name):
    return name.rpartition(".")[2]


def saved(encode, decode):
    """A way of torch.save: each tensor by itself."""
    def write(tensors, target):
        torch.save({n: encode(n, t) for n, t in tensors.items()}, target)

    def read(source):
        return {n: decode(t) for n, t in torch.load(source, weights_only=True).items()}
    return write, read


def of_moments(encode):
    return lambda n, t: encode(n, t) if kind(n) in ("exp_avg", "exp_avg_sq") and t.numel() >= 4096 else t


def plain():
    return saved(lambda n, t: t, lambda t: t)


def bf16():
    return saved(lambda n, t: t.bfloat16(), lambda t: t.float())


def bitsandbytes():
    """Moments as Adam8bit keeps them: dynamic codes, blocks of 256; smaller tensors stay as they are."""
    from bitsandbytes import functional as F
    maps = {n: F.create_dynamic_map(signed=n == "exp_avg") for n in ("exp_avg", "exp_avg_sq")}

    def encode(n, t):
        codes, state = F.quantize_blockwise(t, code=maps[kind(n)], blocksize=256)
        return {"codes": codes, "absmax": state.absmax, "map": state.code}

    def decode(t):
        if isinstance(t, torch.Tensor):
            return t
        return F.dequantize_blockwise(t["codes"], absmax=t["absmax"], code=t["map"], blocksize=256)
    return saved(of_moments(encode), decode)


def torchao():
    """Moments as AdamW8bit keeps them: blocks of 256; tensors that are small or do not divide stay."""
    from torchao.optim.subclass_8bit import OptimState8bit

    def encode(n, t):
        if t.numel() % 256:
            return t
        state = OptimState8bit.zeros(t.shape, signed=kind(n) == "exp_avg", block_size=256)
        return state.copy_(t)
    return saved(of_moments(encode), lambda t: t.dequantize() if isinstance(t, OptimState8bit) else t)


def flashoptim():
    """Model and FlashAdamW as the library saves them after a step: BF16 weights, 8-bit corrections, which it
    writes as BF16, and its moments.  Needs a GPU."""
    from flashoptim import FlashAdamW

    def optimizer(names, tensors):
        model = torch.nn.ParameterDict(collections.OrderedDict(
            (n.replace(".", "/"), torch.nn.Parameter(tensors[n].bfloat16().cuda())) for n in names))
        return model, FlashAdamW(model.parameters(), lr=1e-3, fused=True)

    def write(tensors, target):
        names = [n for n in tensors if n + ".exp_avg" in tensors]
        model, kept = optimizer(names, tensors)
        state = {i: {"step": torch.tensor(1), "exp_avg": tensors[n + ".exp_avg"],
                     "exp_avg_sq": tensors[n + ".exp_avg_sq"]} for i, n in enumerate(names)}
        kept.load_state_dict({"state": state, "param_groups": kept.state_dict()["param_groups"]})
        for group in kept.param_groups:
            for parameter in group["params"]:
                kept._ensure_state_initialized(parameter, group)    # what its first step does
        kept.set_fp32_model_state_dict(model, {n.replace(".", "/"): tensors[n] for n in names})
        torch.save({"model": model.state_dict(), "optimizer": kept.state_dict()}, target)

    def read(source):
        saved = torch.load(source, weights_only=True)
        names = {n.replace("/", "."): t for n, t in saved["model"].items()}
        model, kept = optimizer(names, names)
        kept.load_state_dict(saved["optimizer"])
        tensors = {n.replace("/", "."): t.cpu() for n, t in kept.get_fp32_model_state_dict(model).items()}
        for name, parameter in model.items():
            for moment in "exp_avg", "exp_avg_sq":
                value = kept.state[parameter][moment].materialize()
                tensors[f"{name.replace('/', '.')}.{moment}"] = value.float().cpu()
        return tensors
    return write, read


def dcp():
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint._extension import ZStandard

    def write(tensors, target):
        checkpoint.save(tensors, storage_writer=checkpoint.FileSystemWriter(target, _extensions=[ZStandard()]),
                        no_dist=True)

    def read(source):
        reader = checkpoint.FileSystemReader(source)
        found = reader.read_metadata().state_dict_metadata
        tensors = {n: torch.empty(m.size, dtype=m.properties.dtype) for n, m in found.items()}
        checkpoint.load(tensors, storage_reader=reader, no_dist=True)
        return tensors
    return write, read


def zipnn():
    from zipnn import ZipNN
    coder = ZipNN(input_format="byte", bytearray_dtype="float32")
    return coder


def in_bytes(coder, what, source, target):
    data = bytearray(pathlib.Path(source).read_bytes())
    pathlib.Path(target).write_bytes(coder.compress(data) if what == "write" else coder.decompress(data))


WAYS = {"torch": plain, "bf16": bf16, "bitsandbytes": bitsandbytes, "torchao": torchao, "dcp": dcp,
        "flashoptim": flashoptim}
WARMED = {"flashoptim"}     # done once before: kernels are compiled, and the GPU is started


def main():
    way, what, source, target = sys.argv[1:]
    coder = zipnn() if way == "zipnn" else None
    write, read = (None, None) if coder else WAYS[way]()
    for _ in range(2 if way in WARMED else 1):
        start = time.perf_counter()
        if coder:
            in_bytes(coder, what, source, target)
        elif what == "write":
            write(load_file(source), target)
        else:
            save_file({n: t.contiguous() for n, t in read(source).items()}, target)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main())
