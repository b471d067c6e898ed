#!/usr/bin/env python3
"""A torch AdamW checkpoint as one flat safetensors file, without torch.

    real_state.py CHECKPOINT.pt OUT.safetensors [--worst N] [--budget BYTES]

CHECKPOINT.pt is the zip that torch.save writes: {"model": {name: tensor}, "optimizer": state_dict},
whose parameter ids are positions in the model's order.  Every parameter becomes `<name>`,
`<name>.exp_avg` and `<name>.exp_avg_sq`.  --worst keeps only the N parameters that FlashOptim's
FP16 scales hurt most (NMSE of the update), as many as fit the budget.
"""
import argparse
import collections
import pathlib
import pickle
import sys
import zipfile

import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "helpers"))
from oracle import update_nmse  # noqa: E402


def rebuild_tensor(storage, offset, shape, stride, *_):
    out = storage[offset:offset + int(np.prod(shape, dtype=int))].reshape(shape)
    if tuple(n * out.itemsize for n in stride) != out.strides:
        raise ValueError(f"only contiguous tensors are expected, found stride {stride}")
    return out


class Unpickler(pickle.Unpickler):
    """Knows three names and calls nothing else."""
    NAMES = {("collections", "OrderedDict"): collections.OrderedDict,
             ("torch", "FloatStorage"): np.dtype("<f4"),
             ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor}

    def __init__(self, archive, root):
        super().__init__(archive.open(f"{root}/data.pkl"))
        self.archive, self.root = archive, root

    def find_class(self, module, name):
        if (module, name) not in self.NAMES:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return self.NAMES[module, name]

    def persistent_load(self, pid):
        kind, dtype, key, _, count = pid
        assert kind == "storage"
        return np.frombuffer(self.archive.read(f"{self.root}/data/{key}"), dtype, count)


def read_checkpoint(path):
    """-> {name: (weight, exp_avg, exp_avg_sq)} in the model's order"""
    with zipfile.ZipFile(path) as archive:
        root = archive.namelist()[0].split("/")[0]
        tree = Unpickler(archive, root).load()
    model, optimizer = tree["model"], tree["optimizer"]
    # With several groups the ids would count through the groups, not through the model.
    ids = [group["params"] for group in optimizer["param_groups"]]
    if ids != [list(range(len(model)))]:
        raise ValueError(f"one group of {len(model)} parameters expected, found {len(ids)}")
    out = {}
    for i, (name, weight) in enumerate(model.items()):
        state = optimizer["state"][i]
        m, v = state["exp_avg"], state["exp_avg_sq"]
        if not weight.shape == m.shape == v.shape:
            raise ValueError(f"{name}: shapes {weight.shape}, {m.shape}, {v.shape}")
        out[name] = weight, m, v
    return out


def worst(params, count, budget):
    """The parameters with the largest update error under f16 scales, within `budget` bytes."""
    order = sorted(params, key=lambda n: -update_nmse(*params[n][1:], "f16"))
    kept, used = {}, 0
    for name in order:
        size = 3 * params[name][0].nbytes
        if len(kept) < count and used + size <= budget:
            kept[name] = params[name]
            used += size
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    parser.add_argument("--worst", type=int, metavar="N", help="keep the N worst parameters")
    parser.add_argument("--budget", type=int, default=1 << 20, metavar="BYTES",
                        help="of their tensors together (default 1 MiB)")
    args = parser.parse_args()
    params = read_checkpoint(args.checkpoint)
    if args.worst:
        kept = worst(params, args.worst, args.budget)
        params = {name: params[name] for name in params if name in kept}
    flat = {}
    for name, triple in params.items():
        for suffix, array in zip(("", ".exp_avg", ".exp_avg_sq"), triple):
            flat[name + suffix] = np.ascontiguousarray(array)
    save_file(flat, args.out)


if __name__ == "__main__":
    main()
