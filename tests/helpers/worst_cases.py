"""Files that cost a parser as much as they can for their size, each of a number of parts.

Every function writes one into a folder and returns its path.  What Python shares is shared in the file too.
"""
import json
import struct

import numpy as np

import torchfile
from conftest import safetensors_bytes
from test_directory import INDEX, copied, packed_entry, seal
from test_frameworks import Zero
from torchfile import (Call, Chunk, Dict, Global, Raw, Sharded, Storage, Tensor, ordered, pickled, pt,
                       tensor)

ONE = np.ones(1, np.float32)
LONG = "k" * 60000


def st(folder, header, data=b""):
    path = folder / "in.safetensors"
    path.write_bytes(safetensors_bytes(header, data))
    return path


def empty(shape=(0,)):
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 0]}


def saved(folder, value, **more):
    path = folder / "in.pt"
    path.write_bytes(pt(value, **more))
    return path


# --- safetensors ------------------------------------------------------------------------------------------

def st_tensors(folder, n):
    return st(folder, {f"{i}": empty() for i in range(n)})


def st_metadata(folder, n):
    return st(folder, {"__metadata__": {f"{i}": "" for i in range(n)}})


def st_rank_64(folder, n):
    return st(folder, {f"{i}": empty([1] * 63 + [0]) for i in range(n)})


def st_names_with_a_common_prefix(folder, n):
    return st(folder, {"k" * 2000 + f"{i}": empty() for i in range(n)})


def st_escapes(folder, n):
    return st(folder, json.dumps({"\u0100" * 100 + f"{i}": empty() for i in range(n)}).encode())


def st_brackets(folder, n):
    return st(folder, b'{"a":' + b"[" * n)


def st_shape(folder, n):
    return st(folder, b'{"a":{"dtype":"F32","shape":[' + b"1," * n + b'0],"data_offsets":[0,0]}}')


def st_states(folder, n):
    names = [f"{i}{field}" for i in range(n) for field in ("", ".exp_avg", ".exp_avg_sq", ".step")]
    return st(folder, {name: empty() for name in names})


def st_states_of_states(folder, n):
    return st(folder, {"a" + ".exp_avg" * i: empty() for i in range(1, n)})


def st_wrapped(folder, n):
    return st(folder, {"module." * (i % 60) + f"{i}.weight": empty() for i in range(n)})


# --- .pt --------------------------------------------------------------------------------------------------

def pt_tensors(folder, n):
    return saved(folder, {f"{i}": tensor(ONE) for i in range(n)})


def pt_views_of_one_storage(folder, n):
    storage = Storage(bytes(4 * n))
    return saved(folder, {f"{i}": Tensor(storage, (1,), offset=i) for i in range(n)})


def pt_ties(folder, n):
    return saved(folder, dict.fromkeys(map(str, range(n)), tensor(ONE)))


def pt_rank_64(folder, n):
    storage, shape = Storage(bytes(4)), (1,) * 64
    return saved(folder, {f"{i}": Tensor(storage, shape, shape) for i in range(n)})


def pt_a_long_key_of_many(folder, n):
    return saved(folder, {f"{i}": {LONG: i} for i in range(n)})


def pt_a_long_key_of_many_tensors(folder, n):
    storage = Storage(bytes(4))
    return saved(folder, {f"{i}": {LONG: Tensor(storage, (1,))} for i in range(n)})


def pt_a_long_text_in_many_places(folder, n):
    return saved(folder, {"a": [LONG] * n, "b": tensor(ONE)})


def pt_a_long_text_in_many_sets(folder, n):
    return saved(folder, {"a": [Call(Global("builtins", "set"), ([LONG, i],)) for i in range(n)]})


def pt_nested(folder, n):
    value = []
    for _ in range(180):
        value = [value]
    return saved(folder, {f"{i}": [value] for i in range(min(n, 80000))})


def pt_deep(folder, n):
    return saved(folder, Raw(b"]" * n))


def pt_laughs(folder, n):
    value = [1] * n
    for _ in range(3):
        value = [value] * n
    return saved(folder, {"a": value})


def pt_shared_lists(folder, n):
    return saved(folder, {"a": [[1] * n] * n})


def batches(item, n, start=b"]", end=b"e"):
    """Picklers append a thousand at a time."""
    return Raw(start + b"".join(b"(" + b"".join(item(i + k) for k in range(1000)) + end for i in range(0, n, 1000)))


def pt_nones(folder, n):
    return saved(folder, batches(lambda i: b"N", n))


def pt_empty_lists(folder, n):
    return saved(folder, batches(lambda i: b"]", n))


def pt_dict_items(folder, n):
    return saved(folder, batches(lambda i: b"J" + struct.pack("<i", i) + b"N", n, b"}", b"u"))


def pt_keys(folder, n):
    return saved(folder, {f"{i}": None for i in range(n)})


def pt_ints(folder, n):
    return saved(folder, {"a": list(range(n))})


def pt_objects(folder, n):
    return saved(folder, {f"{i}": Call(Global("a.b", "c"), (), {"x": i}, new=True) for i in range(n)})


def pt_classes(folder, n):
    return saved(folder, {f"{i}": Call(Global("a.b", f"c{i}"), ()) for i in range(n)})


def pt_deflated(folder, n):
    pickle, records = pickled({"a": tensor(np.zeros(n, np.float32))})
    members = [torchfile.Member("archive/data/0", records["0"], deflate=True)]
    path = folder / "in.pt"
    path.write_bytes(torchfile.zip_bytes(torchfile.pt_members(pickle, {}) + members))
    return path


def pt_deflated_pickle(folder, n):
    pickle = b"\x80\x02](" + b"N" * (100 * n) + b"e."
    path = folder / "in.pt"
    path.write_bytes(torchfile.pt_of(pickle, data_pkl=torchfile.Member("archive/data.pkl", pickle, deflate=True)))
    return path


def pt_members(folder, n):
    path = folder / "in.pt"
    path.write_bytes(torchfile.pt_of(pickled({"a": tensor(ONE)})[0], {f"{i}": bytes(4) for i in range(n)}))
    return path


def optimizer(states, groups):
    return {"state": Dict(states), "param_groups": groups}


def group(params, **more):
    return {"params": params, "lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, **more}


def fields(storage):
    return {name: Tensor(storage, (1,)) for name in ("exp_avg", "exp_avg_sq", "step")}


def pt_optimizer(folder, n):
    storage = Storage(bytes(4))
    model = ordered({f"p{i}": Tensor(storage, (1,)) for i in range(n)})
    states = {i: fields(storage) for i in range(n)}
    return saved(folder, {"model": model, "optimizer": optimizer(states, [group(list(range(n)))])})


def pt_param_groups(folder, n):
    storage = Storage(bytes(4))
    model = ordered({f"p{i}": Tensor(storage, (1,)) for i in range(n)})
    states = {i: fields(storage) for i in range(n)}
    return saved(folder, {"model": model, "optimizer": optimizer(states, [group([i]) for i in range(n)])})


def pt_param_names(folder, n):
    storage = Storage(bytes(4))
    names = [f"p{i}" for i in range(n)]
    return saved(folder, {"model": ordered({name: Tensor(storage, (1,)) for name in names}),
                          "optimizer": optimizer({i: fields(storage) for i in range(n)},
                                                 [group(list(range(n)), param_names=names)])})


def pt_one_long_param_name(folder, n):
    storage = Storage(bytes(4))
    return saved(folder, {"model": ordered({LONG: Tensor(storage, (1,))}),
                          "optimizer": optimizer({i: fields(storage) for i in range(n)},
                                                 [group(list(range(n)), param_names=[LONG] * n)])})


def pt_state_fields(folder, n):
    storage = Storage(bytes(4))
    model = ordered({"p": Tensor(storage, (1,))})
    return saved(folder, {"model": model, "optimizer": optimizer(
        {0: {f"f{i}": Tensor(storage, (1,)) for i in range(n)}}, [group([0])])})


def pt_optimizers(folder, n):
    storage = Storage(bytes(4))
    model = ordered({"p": Tensor(storage, (1,))})
    return saved(folder, {"model": model, "optimizers": [
        optimizer({0: fields(storage)}, [group([0])]) for _ in range(n)]})


def pt_one_optimizer_in_many_places(folder, n):
    storage = Storage(bytes(4))
    names = [f"p{i}" for i in range(n)]
    one = optimizer({i: fields(storage) for i in range(n)}, [group(list(range(n)), param_names=names)])
    return saved(folder, {"model": ordered({name: Tensor(storage, (1,)) for name in names}),
                          "optimizers": [one] * n})


def pt_wrappers(folder, n):
    value = {"a": tensor(ONE), **{f"{i}": None for i in range(n)}}
    for _ in range(150):
        value = {"state_dict": value}
    return saved(folder, value)


# --- .npz -------------------------------------------------------------------------------------------------

def npz_members(folder, n):
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    header += b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }".ljust(117) + b"\n"
    path = folder / "in.npz"
    path.write_bytes(torchfile.zip_bytes([torchfile.Member(f"{i}.npy", header) for i in range(n)]))
    return path


def npz_deflated(folder, n):
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    header += (b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % n).ljust(117) + b"\n"
    path = folder / "in.npz"
    path.write_bytes(torchfile.zip_bytes([torchfile.Member("a.npy", header + bytes(4 * n), deflate=True)]))
    return path


# --- Directories of torch.distributed.checkpoint ----------------------------------------------------------

def dcp_entries(folder, n):
    blob = pt(tensor(ONE))
    return torchfile.dcp(folder / "in", {f"{i}": Sharded((1,), [Chunk((0,), blob, (1,))]) for i in range(n)})


def grid(shape, cuts, blob=None, name="a"):
    """A tensor cut into equal boxes."""
    chunks = []
    for at in np.ndindex(*cuts):
        sizes = tuple(s // c for s, c in zip(shape, cuts))
        chunks.append(Chunk(tuple(i * s for i, s in zip(at, sizes)), blob or b"", sizes))
    return {name: Sharded(shape, chunks)}


def dcp_chunks(folder, n):
    return torchfile.dcp(folder / "in", grid((n,), (n,), pt(tensor(ONE))))


def dcp_grid(folder, n):
    k = int(n ** 0.5)
    return torchfile.dcp(folder / "in", grid((k, k), (k, k)))


def dcp_chunks_of_rank_64(folder, n):
    """A plane parts them in the last dimension only."""
    chunks = [Chunk((*[0] * 63, i), b"", (1,) * 64) for i in range(n)]
    return torchfile.dcp(folder / "in", {"a": Sharded((*[1] * 63, n), chunks)})


def dcp_pinwheel(folder, n):
    """Four bundles of strips around a square: no plane parts them, and no two overlap."""
    m, chunks = n // 4, []
    for i in range(m):
        chunks += [Chunk((i, 0), b"", (1, 2 * m)), Chunk((0, 2 * m + i), b"", (2 * m, 1)),
                   Chunk((2 * m + i, m), b"", (1, 2 * m)), Chunk((m, i), b"", (2 * m, 1))]
    return torchfile.dcp(folder / "in", {"a": Sharded((3 * m, 3 * m), chunks + [Chunk((m, m), b"", (m, m))])})


def dcp_stairs(folder, n):
    """Boxes that all overlap in every dimension but one: the i-th ends where the next begins."""
    chunks = [Chunk((i, 0, 0), b"", (1, n, n)) for i in range(n)]
    return torchfile.dcp(folder / "in", {"a": Sharded((n, n, n), chunks)})


def dcp_a_long_name_of_many_chunks(folder, n):
    return torchfile.dcp(folder / "in", grid((n,), (n,), name=LONG), paths={LONG: ("a",)})


def dcp_names_with_a_common_prefix(folder, n):
    entries = {}
    for end in "ab":
        entries |= grid((n,), (n,), name=LONG + end)
    return torchfile.dcp(folder / "in", entries, paths={LONG + "a": ("a",), LONG + "b": ("b",)})


def dcp_list_indices(folder, n):
    return torchfile.dcp(folder / "in", {f"{i}": i for i in range(n)},
                         paths={f"{i}": (f"{i}", 1000000) for i in range(n)})


def dcp_a_long_key_of_many_paths(folder, n):
    return torchfile.dcp(folder / "in", {f"{i}": i for i in range(n)},
                         paths={f"{i}": (f"{i}", LONG) for i in range(n)})


def dcp_deep_paths(folder, n):
    return torchfile.dcp(folder / "in", {f"{i}": i for i in range(n)},
                         paths={f"{i}": (f"{i}", *["a"] * 150) for i in range(n)})


# --- Indices ----------------------------------------------------------------------------------------------

def index_of_tensors(folder, n):
    (folder / "in").mkdir()
    names = [f"{i}" for i in range(n)]
    (folder / "in" / "a.safetensors").write_bytes(safetensors_bytes({name: empty() for name in names}))
    path = folder / "in" / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "a.safetensors")}))
    return path


def index_of_shards(folder, n):
    (folder / "in").mkdir()
    names = [f"{i}" for i in range(n)]
    path = folder / "in" / "model.safetensors.index.json"
    for name in names:
        (folder / "in" / f"{name}.safetensors").write_bytes(safetensors_bytes({name: empty()}))
    path.write_text(json.dumps({"metadata": {}, "weight_map": {i: f"{i}.safetensors" for i in names}}))
    return path


# --- Recordings -------------------------------------------------------------------------------------------

def recording(folder, steps, groups, names):
    (folder / "in").mkdir()
    (folder / "in" / "a.safetensors").write_bytes(safetensors_bytes(
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
         for i, name in enumerate(names)}, bytes(4 * len(names))))
    (folder / "in" / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": "sgd", "param_groups": groups,
        "steps": steps}))
    return folder / "in"


def recording_of_one_file(folder, n):
    return recording(folder, [{"step": i + 1, "file": "a.safetensors"} for i in range(n)], [{"lr": 0.1}],
                     [f"{i}" for i in range(n)])


def recording_of_new_names(folder, n):
    """A tensor more in each step."""
    (folder / "in").mkdir()
    for i in range(n):
        (folder / "in" / f"{i + 1}.safetensors").write_bytes(safetensors_bytes({f"{i}": empty()}))
    return folder / "in"


def recording_of_groups(folder, n):
    names = [f"{i}" for i in range(n)]
    return recording(folder, [{"step": 1, "file": "a.safetensors"}],
                     [{"lr": 0.1, "params": [name]} for name in names], names)


# --- Packed directories -----------------------------------------------------------------------------------

def packed_directory(folder, entries):
    (folder / "in").mkdir()
    (folder / "in" / INDEX).write_bytes(
        seal({"tersor_directory": 1, "tool": "t", "mode": "0755", "entries": entries}))
    return folder / "in"


def directory_of_copies(folder, n):
    return packed_directory(folder, sorted((copied(f"{i}") for i in range(n)), key=lambda e: e["path"]))


def directory_of_deep_paths(folder, n):
    top = [{"path": "/".join(["x" * 100] * k), "as": "directory", "mode": "0755"} for k in range(1, 39)]
    return packed_directory(folder, top + sorted(
        (copied("/".join(["x" * 100] * 38) + f"/{i}") for i in range(n)), key=lambda e: e["path"]))


def directory_of_packed(folder, n):
    return packed_directory(folder, sorted((packed_entry(f"{i}") for i in range(n)), key=lambda e: e["path"]))


def directory_of_parts(folder, n):
    return packed_directory(folder, [packed_entry(".metadata", ["dcp.tersor"], kind="dcp")] + sorted(
        ({"path": f"{i}.distcp", "as": "part", "mode": "0644", "nbytes": 0} for i in range(n)),
        key=lambda e: e["path"]))


# --- DeepSpeed --------------------------------------------------------------------------------------------

def zero_state_fields(folder, n):
    zero = Zero(2, 1, [{"a": (ONE, {})}])
    storage = Storage(bytes(4))
    zero.states_of = lambda rank: iter([{f"f{i}": Tensor(storage, (1,)) for i in range(n)}])
    return zero.save(folder / "in")


def zero_state_numbers(folder, n):
    zero = Zero(2, 1, [{f"p{i}": (ONE, {}) for i in range(n)}])
    zero.states_of = lambda rank: iter([{f"f{i}": i for i in range(n)}])
    return zero.save(folder / "in")


def zero_groups(folder, n):
    return Zero(2, 1, [{f"p{i}": (ONE, {})} for i in range(n)]).save(folder / "in")


def zero_params(folder, n):
    return Zero(3, 2, [{f"p{i}": (ONE, {}) for i in range(n)}]).save(folder / "in")
