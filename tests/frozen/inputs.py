# SPDX-License-Identifier: Apache-2.0
"""Inputs of the frozen cases that are not in tests/data, made the same way every time."""
import collections
import io
import json
import pickle
import random
import struct
import subprocess
import sys
import types
import zipfile


# ---- Values ----

def floats(n, seed, scale=1.0):
    """@n values of a normal distribution, 997 of them in turn."""
    some = random.Random(seed)
    values = struct.pack("<997f", *(some.gauss(0, scale) for _ in range(997)))
    return (values * (n // 997 + 1))[:4 * n]


def squares(n, seed, scale=1.0):
    values = struct.unpack(f"<{n}f", floats(n, seed, scale))
    return struct.pack(f"<{n}f", *(v * v for v in values))


def narrow(data, dtype):
    """FP32 values as BF16, towards zero, or FP16."""
    if dtype == "BF16":
        return b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
    n = len(data) // 4
    return struct.pack(f"<{n}e", *struct.unpack(f"<{n}f", data)) if dtype == "F16" else data


def bits(*patterns):
    return struct.pack(f"<{len(patterns)}I", *patterns)


# ---- safetensors ----

def safetensors(tensors, metadata=None):
    """Bytes of a file of name -> (dtype, shape, bytes)."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values())


def shapes_of(path):
    """Name -> shape of the weights in a file."""
    content = path.read_bytes()
    header = json.loads(content[8:8 + struct.unpack("<Q", content[:8])[0]])
    return {name: t["shape"] for name, t in header.items()
            if name != "__metadata__" and "exp_avg" not in name}


def state(name, shape, seed, scale=0.02):
    """A weight with its momentum and variance."""
    n = 1
    for size in shape:
        n *= size
    return {name: ("F32", shape, floats(n, seed, scale)),
            f"{name}.exp_avg": ("F32", shape, floats(n, seed + 1, scale * 1e-2)),
            f"{name}.exp_avg_sq": ("F32", shape, squares(n, seed + 2, scale * 1e-2))}


def small():
    """Odd sizes, other dtypes, an empty tensor and one of rank 0."""
    n = 37 * 11
    return {
        **state("a", [37, 11], 1), **state("b", [1], 4), **state("c", [33], 7), **state("d", [2, 3, 65], 10),
        "empty": ("F32", [0, 4], b""), "scalar": ("F32", [], struct.pack("<f", 1.5)),
        "e.bf16": ("BF16", [37, 11], narrow(floats(n, 13), "BF16")),
        "e.f16": ("F16", [37, 11], narrow(floats(n, 14), "F16")),
        "e.f64": ("F64", [3], struct.pack("<3d", 1, -2, 1e300)),
        "ids": ("I64", [4], struct.pack("<4q", 1, -1, 2**40, 0)),
        "mask": ("BOOL", [5], b"\1\0\1\1\0"), "bytes": ("U8", [3], b"abc"),
        "step": ("I64", [], struct.pack("<q", 7)),
    }


def edges():
    """Values at the ends of formats, all of which some codec can take."""
    patterns = [sign | p for sign in (0, 0x80000000) for p in (
        0, 1, 2, 0x7fffff, 0x800000, 0x800001, 0x33000000, 0x33000001, 0x387fe000, 0x38800000, 0x3f7fffff,
        0x3f800000, 0x3f800001, 0x3f808000, 0x3f807fff, 0x3f808001, 0x477fdfff, 0x477fe000, 0x477fefff)]
    some = random.Random(99)
    patterns += [some.getrandbits(32) & 0xbfffffff for _ in range(400)]
    n = len(patterns)
    tiny = [p & 0x0fffffff for p in patterns]
    return {"w": ("F32", [n], bits(*patterns)), "w.exp_avg": ("F32", [n], bits(*tiny)),
            "w.exp_avg_sq": ("F32", [n], bits(*(p & 0x3fffffff for p in patterns)))}


def special():
    """Tensors that stay raw, each for another reason, beside some that do not."""
    nan, inf, big = 0x7fc00000, 0x7f800000, 0x7f7fffff
    some = list(struct.unpack("<64I", floats(64, 3)))
    return {
        "fine": ("F32", [64], bits(*some)), "nan": ("F32", [64], bits(*some[1:], nan)),
        "inf": ("F32", [64], bits(*some[1:], inf)), "big": ("F32", [64], bits(*some[1:], big)),
        "fine.exp_avg": ("F32", [64], bits(*some[1:], nan)),
        "fine.exp_avg_sq": ("F32", [64], bits(*some)),
        "big.exp_avg": ("F32", [64], bits(*some[1:], big)),
        "big.exp_avg_sq": ("F32", [64], bits(*([0x01000000] * 64))),
    }


# ---- NumPy ----

def npy(descr, shape, data, fortran=False):
    head = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data


def archive(records):
    """Bytes of a zip file, dated 1980."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in records.items():
            z.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


# ---- What torch.save writes ----

def stand_in(module, name):
    """A function of this name, for pickle to write as a global."""
    def function(*args):
        return args
    function.__module__, function.__name__, function.__qualname__ = module, name, name
    return function


TORCH = types.ModuleType("torch")
UTILS = types.ModuleType("torch._utils")
UTILS._rebuild_tensor_v2 = stand_in("torch._utils", "_rebuild_tensor_v2")
STORAGES = {"F32": "FloatStorage", "BF16": "BFloat16Storage", "I16": "ShortStorage", "U8": "ByteStorage",
            "F16": "HalfStorage", "I64": "LongStorage", "F64": "DoubleStorage"}
for storage in STORAGES.values():
    setattr(TORCH, storage, stand_in("torch", storage))
WIDTH = {"F32": 4, "BF16": 2, "I16": 2, "U8": 1, "F16": 2, "I64": 8, "F64": 8}


class Tensor:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), data

    def __reduce__(self):
        stride, step = [], 1
        for size in reversed(self.shape):
            stride.insert(0, step)
            step *= size
        hooks = collections.OrderedDict()
        return UTILS._rebuild_tensor_v2, (Stored(self), 0, self.shape, tuple(stride), False, hooks)


class Stored:
    def __init__(self, tensor):
        self.tensor = tensor


class Pickler(pickle._Pickler):    # the one in Python, whose output no interpreter's speed-ups change
    def __init__(self, out):
        super().__init__(out, 2)
        self.records = []

    def persistent_id(self, value):
        if not isinstance(value, Stored):
            return None
        t = value.tensor
        self.records.append(t.data)
        return ("storage", getattr(TORCH, STORAGES[t.dtype]), str(len(self.records) - 1), "cpu",
                len(t.data) // WIDTH[t.dtype])


def pt(value):
    """Bytes of what torch.save writes of a value with Tensors."""
    kept = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules["torch"], sys.modules["torch._utils"] = TORCH, UTILS
    try:
        out = io.BytesIO()
        pickler = Pickler(out)
        pickler.dump(value)
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return archive({"in/data.pkl": out.getvalue(), "in/byteorder": b"little",
                    **{f"in/data/{i}": data for i, data in enumerate(pickler.records)}, "in/version": b"3\n"})


def training(weight, states, **more):
    return {"model": {"w": weight}, "optimizer": {
        "state": {0: states}, "param_groups": [{"lr": 0.1, **more, "params": [0]}]}}


def bitsandbytes():
    n, group = 5000, 256
    some = random.Random(17)
    states = {"step": 9}
    for i in (1, 2):
        table = sorted(some.random()**3 * (-1 if i == 1 and some.random() < 0.5 else 1) for _ in range(256))
        scales = [some.random() * 1e-3 for _ in range(-(-n // group))]
        states |= {f"state{i}": Tensor("U8", [n], some.randbytes(n)),
                   f"qmap{i}": Tensor("F32", [256], struct.pack("<256f", *table)),
                   f"absmax{i}": Tensor("F32", [len(scales)], struct.pack(f"<{len(scales)}f", *scales))}
    return training(Tensor("F32", [n], floats(n, 18)), states)


def transformer_engine():
    n = 4000
    values = struct.unpack(f"<{n}I", floats(n, 19))
    low = [(v & 0xffff) - (v >> 15 & 1) * 0x10000 for v in values]
    high = [(v - r) >> 16 for v, r in zip(values, low)]
    return training(Tensor("BF16", [50, 80], struct.pack(f"<{n}H", *high)), {
        "exp_avg": Tensor("F32", [50, 80], floats(n, 20)),
        "exp_avg_sq": Tensor("F32", [50, 80], squares(n, 21)),
        "master_param": Tensor("I16", [50, 80], struct.pack(f"<{n}h", *low))}, step=5)


def narrow_states():
    return training(Tensor("BF16", [10, 20], narrow(floats(200, 22), "BF16")), {
        "step": Tensor("F32", [], struct.pack("<f", 3)),
        "exp_avg": Tensor("BF16", [10, 20], narrow(floats(200, 23), "BF16")),
        "exp_avg_sq": Tensor("BF16", [10, 20], narrow(squares(200, 24), "BF16"))})


# ---- Recordings ----

def recording(folder, shapes, steps, optimizer="adamw", missing=(), change=None, kind="safetensors", **group):
    """Gradients of @steps steps in FP32, BF16 and FP16 in turn, without the (step, name) in @missing."""
    folder.mkdir()
    listed = []
    for step in range(1, steps + 1):
        dtype = ("F32", "BF16", "F16")[step % 3]
        tensors = {}
        for i, (name, shape) in enumerate(shapes.items()):
            n = 1
            for size in shape:
                n *= size
            if (step, name) not in missing:
                tensors[name] = (dtype, shape, narrow(floats(n, 100 * step + i, 0.01), dtype))
        if change:
            change(step, tensors)
        file = f"step-{step:08}.{kind}"
        (folder / file).write_bytes(WRITE[kind](tensors))
        listed.append({"step": step, "file": file, "lr": [0.01 / step], "loss": 1 / step})
    (folder / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": optimizer,
        "param_groups": [{"params": list(shapes), **group}], "steps": listed}, indent=1))


WRITE = {
    "safetensors": safetensors,
    "pt": lambda tensors: pt({name: Tensor(*t) for name, t in tensors.items()}),
    "npz": lambda tensors: archive({
        f"{name}.npy": npy("<f4" if dtype == "F32" else "<f2", shape, data)
        for name, (dtype, shape, data) in tensors.items() if dtype != "BF16"}),
}


def put_nan(step, tensors):
    if step == 2:
        dtype, shape, data = tensors["a"]
        tensors["a"] = (dtype, shape, data[:-2] + (b"\0\x7e" if dtype == "F16" else b"\xc0\x7f"))


# ---- All ----

def damaged(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def make_bad(folder, good):
    def put(name, data):
        (folder / name).write_bytes(data)

    put("empty.safetensors", b"")
    put("short.safetensors", good[:-5])
    put("long.safetensors", good + b"x")
    put("huge-header.safetensors", struct.pack("<Q", 2**62) + b"{}")
    put("not-json.safetensors", struct.pack("<Q", 8) + b"{nonsens")
    put("overlap.safetensors", struct.pack("<Q", 128) + json.dumps({
        n: {"dtype": "F32", "shape": [2], "data_offsets": [4 * i, 4 * i + 8]} for i, n in enumerate("ab")
    }).encode().ljust(128) + bytes(12))
    put("text.pt", b"not a checkpoint\n")
    call = b"\x80\x02cos\nsystem\nX\4\0\0\0trueq\0\x85R."
    put("evil.pt", archive({"in/data.pkl": call, "in/version": b"3\n"}))
    put("duplicate.json", b'{"weight_map":{"a":"x","a":"y"}}')
    put("objects.npy", npy("|O", [1], b"\x80\x02N."))


def make(root, data, tersor):
    """Everything the cases read: root/gpt, torch, fsdp2 and data in tests/data, root/in made here."""
    for name, target in {"data": data, "gpt": data / "tiny-gpt", "torch": data / "torch",
                         "fsdp2": data / "recording-fsdp2"}.items():
        (root / name).symlink_to(target)
    folder = root / "in"
    folder.mkdir()

    def put(name, content):
        (folder / name).write_bytes(content)

    put("small.safetensors", safetensors(small(), {"format": "pt", "note": "made for tests/frozen"}))
    put("edges.safetensors", safetensors(edges()))
    put("special.safetensors", safetensors(special()))
    put("large.safetensors", safetensors({**state("a", [300001], 30), **state("b", [700, 33], 33)}))
    put("weights.safetensors", safetensors({"a": ("F32", [300001], floats(300001, 30)),
                                            "b": ("F32", [700, 33], floats(23100, 33))}))
    put("states.safetensors", safetensors({n: t for n, t in {**state("a", [300001], 30), **state(
        "b", [700, 33], 33)}.items() if "exp" in n}))
    put("bf16-weights.safetensors", safetensors({
        "a": ("BF16", [300001], narrow(floats(300001, 30), "BF16")),
        "b": ("BF16", [700, 33], narrow(floats(23100, 33), "BF16"))}))
    put("other-names.safetensors", safetensors({
        f"{prefix}w{suffix}": ("F32", [40], floats(40, 40 + i)) for i, (prefix, suffix) in enumerate((
            ("model.", ""), ("optimizer.state.exp_avg.", ""), ("x.", ".fp32"), ("x.", "")))}))
    put("strided.npy", npy("<f4", [5, 7], floats(35, 50), fortran=True))
    put("big-endian.npy", npy(">f4", [35], floats(35, 51)))
    put("void.npy", npy("<V2", [35], narrow(floats(35, 52), "BF16")))
    put("void1.npy", npy("|V1", [16], bytes(range(16))))
    put("void.npz", archive({"a.npy": npy("<V2", [3, 4], narrow(floats(12, 53), "BF16")),
                             "b.npy": npy("<f4", [4], floats(4, 54))}))
    put("bitsandbytes.pt", pt(bitsandbytes()))
    put("transformer-engine.pt", pt(transformer_engine()))
    put("narrow-states.pt", pt(narrow_states()))
    put("names.txt", b"w\n")
    put("two-names.txt", b"w\nv\n")
    put("unnamed.pt", pt(training(Tensor("F32", [6], floats(6, 60)), {
        "exp_avg": Tensor("F32", [6], floats(6, 61)),
        "exp_avg_sq": Tensor("F32", [6], squares(6, 62))})["optimizer"]))
    put("schedule.txt", b"# step lr\n" + b"".join(b"%d %g\n" % (s, 1e-3 / s) for s in range(1, 5)))
    put("short-schedule.txt", b"1 0.1\n")
    put("fsdp2-weights.safetensors", safetensors({
        "0.weight": ("F32", [7, 4], floats(28, 70)), "0.bias": ("F32", [7], floats(7, 71)),
        "2.weight": ("F32", [1, 7], floats(7, 72)), "2.bias": ("F32", [1], floats(1, 73))}))
    (folder / "linked").mkdir()
    index = "model.safetensors.index.json"
    (folder / "linked" / index).write_bytes((data / "tiny-gpt/hf" / index).read_bytes())
    for shard in sorted((data / "tiny-gpt/hf").glob("*.safetensors")):
        (folder / "linked" / shard.name).symlink_to(shard)
    shapes = {"a": [300001], "b": [700, 33]}
    recording(folder / "rec", shapes, 4, missing={(2, "b"), (3, "b")}, betas=[0.9, 0.99], weight_decay=0.1)
    recording(folder / "rec-sgd", shapes, 3, "sgd", momentum=0.9, dampening=0.1, weight_decay=0.01)
    recording(folder / "rec-torch", shapes_of(data / "torch/expected-adamw.safetensors"), 3, weight_decay=0.1)
    recording(folder / "rec-nan", shapes, 3, change=put_nan)
    recording(folder / "rec-pt", {"w": [10, 20]}, 3, kind="pt")
    recording(folder / "rec-npz", {"b": [700, 33]}, 3, kind="npz")
    recording(folder / "rec-bare", shapes, 2)
    (folder / "rec-bare" / "manifest.json").unlink()
    (folder / "rec-broken").mkdir()
    (folder / "rec-broken" / "manifest.json").write_text('{"format": "tersor-recording", "version": 9}')
    make_bad(folder, safetensors(small()))
    # Packed files with a wrong bit in the data and one in the header.
    packed = folder / "packed.safetensors"
    subprocess.run([tersor, "pack", folder / "large.safetensors", "-o", packed, "-qq"], check=True)
    content = packed.read_bytes()
    put("damaged.safetensors", damaged(content, len(content) - 1000))
    put("damaged-header.safetensors", damaged(content, content.index(b"generation") + 1))
    for name in ("linked-packed", "shards"):
        (folder / name).mkdir()
    subprocess.run([tersor, "pack", folder / "small.safetensors", "-o", folder / "shards/p.safetensors",
                    "--max-shard-size", "3K", "-qq"], check=True)
    for shard in (folder / "shards").iterdir():
        if shard.name.endswith(".json"):
            put(f"linked-packed/{shard.name}", shard.read_bytes())
        else:
            (folder / "linked-packed" / shard.name).symlink_to(shard)
    # A report of a sweep with another figure than that of today.
    report = subprocess.run([tersor, "sweep", "--codec", "bf16+ulp8", "--first", "0x3f7fff00", "--last",
                             "0x3f8100ff", "--json"], check=True, capture_output=True).stdout
    put("moved.json", report.replace(b'"max_ulp":', b'"max_ulp":1'))
