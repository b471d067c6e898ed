#!/usr/bin/env python3
"""torch.load of two files: lines ORIGINAL <tab> COPY from the standard input, a line PATH <tab> what is so for each."""
import collections
import sys
import warnings

warnings.simplefilter("ignore")
import torch                                                          # noqa: E402

NEW = hasattr(torch, "float8_e5m2")


def loaded(path, weights_only):
    try:
        return torch.load(path, map_location="cpu", **({"weights_only": weights_only} if NEW or weights_only else {}))
    except Exception as e:
        return e


def storage_of(t):
    s = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
    return s.data_ptr()


def dense(t):
    step = 1
    for s, n in sorted((s, n) for s, n in zip(t.stride(), t.shape) if n > 1):
        if s != step:
            return False
        step *= n
    return True


def same(a, b, at, ties):
    """Nothing, or where two values differ."""
    if type(a) is not type(b):
        return f"{at}: {type(a).__name__} became {type(b).__name__}"
    if type(a) in (torch.Tensor, torch.nn.Parameter):
        if (a.dtype, a.shape, a.requires_grad) != (b.dtype, b.shape, b.requires_grad):
            return f"{at}: {a.dtype} {list(a.shape)} became {b.dtype} {list(b.shape)}"
        if a.numel() and dense(a) and a.stride() != b.stride() and 1 not in a.shape:
            return f"{at}: strides {a.stride()} became {b.stride()}"
        if a.numel():
            view = storage_of(a), a.storage_offset(), a.shape, a.stride()
            if ties.setdefault(view, storage_of(b)) != storage_of(b):
                return f"{at}: tied tensors came apart"
        x, y = (t.detach().contiguous().reshape(-1).cpu() for t in (a, b))
        if a.dtype == torch.bool:
            return "" if torch.equal(x, y) else f"{at}: values differ"
        return "" if x.numel() == 0 or torch.equal(x.view(torch.uint8), y.view(torch.uint8)) else f"{at}: values differ"
    if isinstance(a, dict):
        if len(a) != len(b):
            return f"{at}: keys differ"
        return next(filter(None, (same(j, k, f"{at}<key>", ties) or same(a[j], b[k], f"{at}.{j}", ties)
                                  for j, k in zip(a, b))), "")
    if isinstance(a, (list, tuple, collections.deque)):
        if len(a) != len(b):
            return f"{at}: lengths differ"
        return next(filter(None, (same(x, y, f"{at}[{i}]", ties) for i, (x, y) in enumerate(zip(a, b)))), "")
    if type(a).__eq__ is object.__eq__ or isinstance(a, torch.Tensor) or not isinstance(a == b, bool):
        return ""                                   # an object, which anyfile.py compares
    return "" if a == b or a != a else f"{at}: {a!r:.60} became {b!r:.60}"


def judged(original, copy):
    said = []
    for weights_only in (True, False):
        a, b = loaded(original, weights_only), loaded(copy, weights_only)
        if isinstance(a, Exception):
            said.append(f"torch cannot read the original: {type(a).__name__}")
            continue
        if isinstance(b, Exception):
            return f"WRONG weights_only={weights_only}: {type(b).__name__}: {b}".replace("\n", " ").replace("\t", " ")[:300]
        wrong = same(a, b, "", {})
        if wrong:
            return f"WRONG weights_only={weights_only}: {wrong}".replace("\n", " ").replace("\t", " ")[:300]
        said.append("equal")
    return ", ".join(said)


for line in sys.stdin:
    one, two = line.rstrip("\n").split("\t")
    print(one, judged(one, two), sep="\t", flush=True)
