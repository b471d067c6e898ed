#!/usr/bin/env python3
"""Directories of torch.distributed.checkpoint whose entries the values alone do not show.

    dcp_entries.py OUT_DIRECTORY

Made tests/data/torch/dcp-entries with PyTorch 2.15:
    flat        DefaultSavePlanner(flatten_state_dict=False): no planner_data, objects with and without tensors
    nested      flattened by dcp.save: dicts and lists without items, keys with dots, numbers and tuples as keys
    nested-2.3  the same as PyTorch up to 2.3 flattened it: dicts and lists without tensors are objects
    unread      objects that hold what tersor does not read, and one that is a bare tensor
"""
import argparse
import collections
import io
import os
import random
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _version
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

randn = torch.randn


def optimizer():
    w = torch.nn.Parameter(randn(24, 20))
    made = torch.optim.AdamW([w], lr=1e-3)
    for _ in range(3):
        w.grad = randn(24, 20)
        made.step()
    return made.state_dict()


class Bytes(DefaultSavePlanner):
    """Bytes are the entry itself, as in Megatron's planner."""

    def transform_object(self, write_item, object):
        return io.BytesIO(object) if isinstance(object, bytes) else super().transform_object(write_item, object)


def flat():
    return {
        "w": randn(24, 20), "rng_state/shard_0_1": [{"cpu": torch.get_rng_state()[:64].clone(), "py": random.getstate()[:1]}],
        "x._extra_state/shard_0_1": [io.BytesIO(bytes(range(256)))], "y._extra_state/shard_0_1": [None],
        "plain": {"x": 1}, "none": None, "empty": {}, "empty list": [], "dots.a.b": randn(3, 4),
        "dots": {"a": {"b": randn(3, 4)}, "a.b": randn(3, 4)}, "opt": optimizer(),
        "keys": {1: randn(3), (1, 2): randn(2, 2), 1.5: randn(2), None: 5},
        "ordered": collections.OrderedDict(a=randn(3, 3)), "space": argparse.Namespace(lr=1.0, t=randn(3)),
        "tuple": (randn(3), {"a": randn(4)}), "bytes": b"\0\xff", "list": [1, [2, randn(3)], {}],
        "last": randn(4, 2, 3, 3).to(memory_format=torch.channels_last), "turned": randn(6, 9).t(),
        "in an object": {"x": randn(4, 5, 6).permute(2, 0, 1)},
    }


def nested():
    return {
        "model": {"a.w": randn(24, 20), "last": randn(4, 2, 3, 3).to(memory_format=torch.channels_last)},
        "optim": optimizer(), "empty": {}, "empty list": [], "none": None, "holes": [{}, 5, {}], "more": [{}, {"a": 1}],
        "keys": {1: randn(3), (1, 2): randn(2, 2), 1.5: randn(2), None: 5}, "dots.a": {"b.c": randn(3, 3)},
        "list": [randn(2), [randn(3), []]], "tuple": (randn(3), {"a": randn(4)}), "turned": randn(6, 9).t(),
        "ordered": collections.OrderedDict(a=randn(3, 3)), "bytesio": io.BytesIO(b"abc\xff"),
    }


def unread():
    bare = io.BytesIO()
    torch.save(randn(4, 4), bare)
    return {"w": randn(24, 20), "bare": bare.getvalue(), "sparse": [torch.eye(3).to_sparse(), randn(3)],
            "double": [torch.ones(3, dtype=torch.complex128)], "module": [torch.nn.Linear(2, 2)], "read": [randn(3)]}


if __name__ == "__main__":
    torch.manual_seed(0)
    os.chdir(sys.argv[1])
    dcp.save(flat(), checkpoint_id="flat", planner=DefaultSavePlanner(flatten_state_dict=False), no_dist=True)
    dcp.save(nested(), checkpoint_id="nested", no_dist=True)
    dcp.save(unread(), checkpoint_id="unread", planner=Bytes(flatten_state_dict=False), no_dist=True)
    _version._derived_version = "2_3"
    dcp.save(nested(), checkpoint_id="nested-2.3", no_dist=True)
