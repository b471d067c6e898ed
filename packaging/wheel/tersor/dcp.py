# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint with packed files: each rank packs its own shards, on its GPU.

    writer = TersorWriter("run/step-100")
    dcp.async_save(state, storage_writer=writer, async_stager=writer.stager)
    dcp.load(state, storage_reader=TersorReader("run/step-100"))         # on any number of ranks

A directory has one packed safetensors file per rank, DCP's `.metadata`, and the index that makes it a packed
directory, so that `tersor verify`, `diff`, `unpack` and `store add` take it.  Unpacked it is what DCP's
HuggingFaceStorageWriter writes on several ranks.
"""
from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import io
import json
import os
import pickle
import re
from typing import Any, Dict, List, Mapping, Optional

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.utils._pytree import tree_map

from tersor.library import File, call
from tersor.planes import Format, Saved, Staged
from tersor.ranks import part_of
from tersor.structure import of_tensors
from tersor.torch import Tensor, copy_part, verify

__all__ = ["TersorReader", "TersorStager", "TersorWriter"]

INDEX, METADATA, OFFSETS = "tersor.json", ".metadata", "DCP_SHARDING_INFO"
SHARD = "shard-{:05d}-model-00001-of-00001.safetensors"
OURS = r"\.?" + re.escape(SHARD).replace(re.escape("{:05d}"), r"\d+") + r"(\.[0-9a-f]{16}\.tmp)?"


@dataclasses.dataclass
class Stored:
    """Where something is: in a file of the directory, or, what is no tensor, here."""
    file: str
    data: Optional[bytes] = None


def local_part(name: str, t: torch.Tensor) -> Any:
    """What this rank has of a tensor, and where that begins."""
    if hasattr(t, "local_shards"):
        raise TypeError(f"{name} is a ShardedTensor: expected a tensor or the DTensor of fully_shard()")
    return (t.to_local() if hasattr(t, "placements") else t), part_of(t)[0]


class TersorStager:
    """The AsyncStager of DCP: planes are made on the GPU, and training goes on.

    Parameters are those of `tersor.torch.async_save`.  The state that `stage` returns has the live tensors,
    of which DCP looks at shapes only; whatever is no tensor is copied.
    """

    should_synchronize_after_execute = False

    def __init__(self, state: str = "flash", weights: str = "bf16+ulp8", entropy: bool = False,
                 threads: int = 0):
        self.form = Format(state, weights, entropy, None, threads)
        self.staged: Optional[Staged] = None

    def stage(self, state_dict: Any, **_: Any) -> Any:
        flat, _ = flatten_state_dict(state_dict)
        self.put({name: t for name, t in flat.items() if isinstance(t, torch.Tensor)})
        return tree_map(lambda x: x if isinstance(x, torch.Tensor) else copy.deepcopy(x), state_dict)

    def put(self, tensors: Dict[str, torch.Tensor]) -> None:
        self.close()
        parts = {name: local_part(name, t) for name, t in tensors.items()}
        offsets = {name: {"saved_offsets": offset} for name, (_, offset) in parts.items()}
        parts = {name: t for name, (t, _) in parts.items()}
        self.staged = Staged(of_tensors(parts, {OFFSETS: json.dumps(offsets), "format": "pt"}), self.form)

    def take(self) -> Optional[Staged]:
        staged, self.staged = self.staged, None
        return staged

    def synchronize_staging(self) -> None:
        pass

    def close(self) -> None:
        if self.staged:
            self.staged.drop()
        self.staged = None


class Directory:
    """What a StorageWriter and a StorageReader have in common: a directory, and plans that are kept."""

    def __init__(self, path: Any):
        self.reset(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return "://" not in str(checkpoint_id)

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id:
            self.path = os.path.abspath(os.fspath(checkpoint_id))

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        return plans


class TersorWriter(Directory, dcp.StorageWriter):
    """The StorageWriter of DCP for a directory of packed files.

    Parameters
    ----------
    path : path
        The directory; a checkpoint in it is replaced, and counts as incomplete until the new one is complete.
    stager : TersorStager, optional
        What `dcp.async_save` stages with; without one `dcp.save` packs with the other arguments, those of
        `TersorStager`.
    """

    def __init__(self, path: Any, stager: Optional[TersorStager] = None, **arguments: Any):
        super().__init__(path)
        self.stager = stager or TersorStager(**arguments)
        self.saved = self.nothing()

    def nothing(self) -> Saved:
        return Saved(self.path, 0, 0.0, {}, [])

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:
        if is_coordinator:
            os.makedirs(self.path, exist_ok=True)
            for name in sorted(os.listdir(self.path), key=INDEX.__ne__):    # without an index it is no checkpoint
                if name in (INDEX, METADATA) or re.fullmatch(OURS, name):
                    os.unlink(os.path.join(self.path, name))

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        return [dataclasses.replace(plan, storage_data=rank) for rank, plan in enumerate(plans)]

    def write_data(self, plan: Any, planner: Any) -> Any:
        name = SHARD.format(plan.storage_data + 1)
        blobs = [item for item in plan.items if item.type == WriteItemType.BYTE_IO]
        tensors = [item for item in plan.items if item.type != WriteItemType.BYTE_IO]
        results = [WriteResult(item.index, len(data), Stored(name, data)) for item in blobs
                   for data in [planner.resolve_data(item).getvalue()]]
        if not self.stager.staged and tensors:
            flat, _ = flatten_state_dict(planner.state_dict)
            self.stager.put({item.index.fqn: flat[item.index.fqn] for item in tensors})
        staged, self.saved = self.stager.take(), self.nothing()
        if staged and tensors:
            staged.keep({item.index.fqn for item in tensors})
            sizes = staged.nbytes
            self.saved = dataclasses.replace(staged.write(os.path.join(self.path, name)), path=self.path)
            results += [WriteResult(item.index, sizes[item.index.fqn], Stored(name)) for item in tensors]
        elif staged:
            staged.drop()
        done: Any = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Any, results: List[List[Any]]) -> None:
        metadata.storage_data = {each.index: each.storage_data for rank in results for each in rank}
        metadata.storage_meta = None
        with open(os.path.join(self.path, METADATA), "wb") as file:
            pickle.dump(metadata, file, protocol=4)
            file.flush()
            os.fsync(file.fileno())
        call("tsr_directory_index", os.fsencode(self.path))     # from here on it is a checkpoint


# What DCP's metadata is made of; nothing else is imported, and nothing but these is called.
KNOWN = {"torch.distributed.checkpoint.metadata": {
             "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta",
             "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"},
         "torch.serialization": {"_get_layout"}, "torch": {"Size"}, "collections": {"OrderedDict"}}


class MetadataUnpickler(pickle.Unpickler):
    """Of DCP's metadata, which may come from anybody."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "Stored" and module == __name__:
            return Stored
        dtype = module == "torch" and isinstance(getattr(torch, name, None), (torch.dtype, torch.layout))
        if name in KNOWN.get(module, ()) or dtype:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"found {module}.{name}, expected what DCP's metadata has")


class TersorReader(Directory, dcp.StorageReader):
    """The StorageReader of DCP for what TersorWriter wrote, on as many ranks as there are now.

    Parameters
    ----------
    path : path
        The directory.
    check : bool
        Let the first rank compare all planes with their hashes before anything is loaded.
    trust : bool
        Load objects that are no plain values, such as a custom scheduler's: DCP unpickles them, which runs
        code of whoever wrote the checkpoint.  Without it they are refused by name.
    """

    def __init__(self, path: Any, check: bool = True, trust: bool = False):
        super().__init__(path)
        self.check, self.trust = check, trust
        self.where: Dict[Any, Stored] = {}

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        if not os.path.exists(os.path.join(self.path, INDEX)):
            raise FileNotFoundError(f"{self.path}: has no {INDEX}: no checkpoint, or one whose save was "
                                    "interrupted")
        if self.check:
            verify(self.path)
            self.check = False
        with open(os.path.join(self.path, METADATA), "rb") as file:
            return MetadataUnpickler(file).load()

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *_: Any, **__: Any) -> None:
        self.where = metadata.storage_data

    def plain(self, name: str, data: bytes) -> io.BytesIO:
        """The bytes of an object, which are a pickle of plain values unless they are trusted."""
        if not self.trust:
            try:
                torch.load(io.BytesIO(data), weights_only=True)
            except pickle.UnpicklingError:
                raise pickle.UnpicklingError(f"{self.path}: {name}: is an object that only a pickle holds: "
                                             "found no plain value; trust=True runs what it says") from None
        return io.BytesIO(data)

    def read_data(self, plan: Any, planner: Any) -> Any:
        files: Dict[str, Dict[str, Tensor]] = {}
        for item in plan.items:
            where = self.where[item.storage_index]
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self.plain(item.storage_index.fqn, where.data or b""))
                continue
            name = os.path.basename(where.file)
            if name not in files:
                file = File(os.path.join(self.path, name), parts=True)
                files[name] = {t.name: t for t in file.tensors(Tensor)}
            stored = files[name][item.storage_index.fqn]
            target = planner.resolve_tensor(item).detach()
            copy_part(target, stored, item.storage_offsets)
            planner.commit_tensor(item, target)
        done: Any = Future()
        done.set_result(None)
        return done


# ---- Models and optimizers ------------------------------------------------------------------------

def state_of(model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer]) -> Dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    value = {"model": get_model_state_dict(model)}
    if optimizer:
        value["optim"] = get_optimizer_state_dict(model, optimizer)
    return value


def save_state(path: Any, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer],
               more: Mapping[str, Any], **form: Any) -> "concurrent.futures.Future[Saved]":
    """What `tersor.torch.async_save` does with a model in shards."""
    writer = TersorWriter(path, **form)
    state = {**state_of(model, optimizer), **more}
    result: concurrent.futures.Future = concurrent.futures.Future()

    def done(written: concurrent.futures.Future) -> None:
        if written.exception():
            result.set_exception(written.exception())
        else:
            result.set_result(writer.saved)
    dcp.async_save(state, storage_writer=writer, async_stager=writer.stager).add_done_callback(done)
    return result


def is_one(path: Any) -> bool:
    """Whether a directory is one that TersorWriter wrote."""
    return os.path.isfile(os.path.join(path, METADATA)) and os.path.isfile(os.path.join(path, INDEX)) and \
        any(name.startswith("shard-") for name in os.listdir(path))


def load_state(path: Any, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer],
               check: bool = True) -> None:
    """Load what a model in shards saved into a model that is in as many, in others, or in one piece."""
    from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
    state = state_of(model, optimizer)
    dcp.load(state, storage_reader=TersorReader(path, check))
    set_model_state_dict(model, state["model"])
    if optimizer:
        set_optimizer_state_dict(model, optimizer, state["optim"])
