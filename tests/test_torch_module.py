"""tersor.torch: packed checkpoints into PyTorch models and optimizers (packaging/wheel/tersor/torch.py)."""
import json
import os
import pathlib
import re

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import torchfile
from conftest import BINARY, DATA, ROOT, run_tersor, write_source
from test_companion import NAME, TINY, TRAINER, mixed, near_ties, pack, resealed

PACKAGE = ROOT / "packaging" / "wheel"

SAME_BITS = """
import json, struct, sys
sys.path.insert(0, sys.argv[1])
import torch, tersor.torch as tersor_torch
seen = 0
for packed, plain in json.loads(sys.argv[2]):
    content = open(plain, "rb").read()
    size = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:size])
    tensors = tersor_torch.Checkpoint(packed).tensors
    assert tensors.keys() == header.keys() - {"__metadata__", "tersor::tree"}, packed
    for name, t in tensors.items():
        begin, end = header[name]["data_offsets"]
        want = content[size + begin:size + end]
        whole = t.whole()
        assert list(whole.shape) == header[name]["shape"], name
        bits = whole.reshape(-1).view(torch.uint8) if whole.numel() else whole
        assert bytes(bits.tolist()) == want, (packed, name)
        n, item = whole.numel(), max(1, len(want) // max(1, whole.numel()))
        for first in range(0, n, max(1, n // 5)):       # parts, as ranks take them
            part = t.elements(first, min(37, n - first)).reshape(-1).view(torch.uint8)
            assert bytes(part.tolist()) == want[first * item:][:len(part)], (packed, name, first)
        seen += 1
print(json.dumps(seen))
"""

INTO_A_MODEL = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch, tersor.torch as tersor_torch
folder = sys.argv[2]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(50, 24)
        self.mid = torch.nn.Sequential(torch.nn.Linear(24, 33), torch.nn.BatchNorm1d(33),
                                       torch.nn.Linear(33, 24))
        self.head = torch.nn.Linear(24, 50, bias=False)
        self.head.weight = self.wte.weight
        self.scale = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.head(self.mid(self.wte(x))) * self.scale

def make():
    torch.manual_seed(3)
    model = Net()
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return model, torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                     {"params": rest, "weight_decay": 0.0}], lr=1e-3)

def train(model, optimizer, steps, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x, y = torch.randint(0, 50, (2, 16), generator=g)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, optimizer

def states(model, optimizer):
    return {f"{n}.{k}": v for n, p in model.named_parameters() for k, v in optimizer.state[p].items()}

model, optimizer = train(*make(), 3, 1)
optimizer.param_groups[0]["lr"] = 5e-4
path = os.path.join(folder, "packed.safetensors")
tersor_torch.save(path, model, optimizer, epoch=4)
loaded, opt = make()
assert tersor_torch.load(path, loaded, opt) == []
value = tersor_torch.read(path)
assert value["epoch"] == 4 and value["model"]["wte.weight"] is value["model"]["head.weight"]
expected, expected_opt = make()
expected.load_state_dict(value["model"])
for group in value["optimizer"]["param_groups"]:
    del group["param_names"]
expected_opt.load_state_dict(value["optimizer"])
for key, t in expected.state_dict().items():
    assert torch.equal(loaded.state_dict()[key], t), key
wanted, found = states(expected, expected_opt), states(loaded, opt)
assert wanted.keys() == found.keys() and len(wanted) == 3 * len(list(model.parameters()))
assert all(torch.equal(found[key], t) for key, t in wanted.items())
assert [g["lr"] for g in opt.param_groups] == [5e-4, 1e-3]
assert all(torch.allclose(t, model.state_dict()[k], rtol=2**-9) for k, t in loaded.state_dict().items())

# On without a difference to what read() gave; and what does not fit is named.
a, b = train(loaded, opt, 3, 2)[0], train(expected, expected_opt, 3, 2)[0]
assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters()))
loaded.more = torch.nn.Linear(2, 2)
try:
    tersor_torch.load(path, loaded)
    raise SystemExit("loaded without its weights")
except KeyError as e:
    assert "more.weight" in str(e)
left = tersor_torch.load(path, loaded, strict=False)
assert len(left) == len(wanted) and all("." in name for name in left)
with open(path, "r+b") as f:
    f.seek(-1, 2)
    last = f.read(1)
    f.seek(-1, 2)
    f.write(bytes([last[0] ^ 1]))
try:
    tersor_torch.load(path, make()[0], strict=False)
    raise SystemExit("loaded a damaged file")
except RuntimeError as e:
    assert "is damaged" in str(e)
print(json.dumps(sorted(os.listdir(folder))))
"""


@pytest.fixture(autouse=True)
def binary_for_examples(monkeypatch):
    """The program under test, with the library that was built with it."""
    monkeypatch.setenv("TERSOR", os.path.abspath(BINARY))
    if not (pathlib.Path(BINARY).parent / "libtersor.so").exists():
        monkeypatch.setenv("TERSOR_LIBRARY", str(ROOT / "build" / "libtersor.so"))


def codecs_of(tersor, kind):
    """All of a kind, and of a family with a number of bits the ends and one between."""
    found = json.loads(tersor("codecs", "--json", check=0).stdout)["codecs"]
    ends = re.compile(r".*\+(trunc|rn|sr)([2-6]|8|9|10|11|12|14|15)$")
    return [c["name"] for c in found if kind in c["kinds"] and not ends.match(c["name"])]


def test_torch_decodes_every_codec_to_the_bits_of_unpack(tmp_path, tersor):
    """Every codec that the program lists, every form of scales, odd groups; what is coded or in several files."""
    pairs = []
    rng = np.random.default_rng(7)
    v = np.square(rng.normal(0, 1e-4, (7, 300))).astype("f4")
    m = (np.sqrt(v) * rng.uniform(-1, 1, v.shape)).astype("f4")
    states = write_source(tmp_path / "states", {"w": np.ones(v.shape, "f4"), "w.exp_avg": m, "w.exp_avg_sq": v})
    near = write_source(tmp_path / "near", {"w": near_ties(), "s": np.geomspace(1e-45, 1e38, 333, dtype="f4"),
                                            "z": np.array([0.0, -0.0], "f4")})

    def add(source, *options):
        packed, plain = tmp_path / f"packed-{len(pairs)}", tmp_path / f"plain-{len(pairs)}"
        run_tersor("pack", source, "-o", packed, "-q", "--min-elements", "1", *options, check=0)
        pairs.append((packed, plain))
    for kind, source in ("weight", near), ("momentum", states), ("variance", states):
        for codec in codecs_of(tersor, kind):
            option = {"weight": "--weights"}.get(kind, f"--{kind}")
            add(source, option, codec)
            add(source, option, codec, "--entropy")
    for options in (["--scale", "f16", "--group", "7"], ["--scale", "f32", "--group", "100"], ["--group", "65536"],
                    ["--state", "gefen"], ["--state", "tight", "--entropy"], ["--model", tmp_path / "model"]):
        add(states, *options)
    half = np.linspace(-1, 1, 99, dtype="f4").astype(ml_dtypes.bfloat16)
    add(write_source(tmp_path / "half", {"w": near_ties(), "w.exp_avg": (
        "BF16", near_ties().shape, np.resize(half, near_ties().shape).tobytes())}))
    add(DATA / "frameworks" / "states" / "bf16-model-fp32-master.pt")
    pairs.append((pack(mixed(tmp_path), tmp_path / "pair")[0], tmp_path / "plain-pair"))
    add(TINY / "checkpoint.safetensors")
    add(TINY / "checkpoint.safetensors", "--delta", pairs[-1][0])
    run_tersor("pack", TINY / "checkpoint.safetensors", "-o", tmp_path / "shards.safetensors", "-q",
               "--max-shard-size", "200K", check=0)
    pairs.append((tmp_path / "shards.safetensors.index.json", tmp_path / "plain-shards"))
    for packed, plain in pairs:
        run_tersor("unpack", packed, "-o", plain, "-q", "--to", "safetensors", check=0)
    assert torchfile.run_torch(SAME_BITS, PACKAGE, json.dumps(
        [[str(packed), str(plain)] for packed, plain in pairs])) > 300


def test_torch_refuses_a_codec_that_the_library_does_not_know(tmp_path):
    packed = tmp_path / "packed"
    run_tersor("pack", mixed(tmp_path), "-o", packed, "-q", check=0)
    content = packed.read_bytes()
    assert b"softsign8" in content
    def other(text):
        for entry in text["codings"]:
            entry["codec"] = entry["codec"].replace("softsign8", "softsign9")
    resealed(packed, other)
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor.torch as tersor_torch
said = []
for check in True, False:
    try:
        tersor_torch.read(sys.argv[2], check=check)
    except RuntimeError as e:
        said.append(str(e))
print(json.dumps(said))
"""
    said = torchfile.run_torch(script, PACKAGE, packed)
    assert len(said) == 2 and all("softsign9" in line for line in said)


def test_torch_opens_nothing_outside_of_the_directory(tmp_path):
    """Names in an index lead out, and nothing was checked before."""
    for folder in "a", "b":
        (tmp_path / folder).mkdir()
    run_tersor("pack", mixed(tmp_path), "-o", tmp_path / "secret.safetensors", "-q", check=0)
    (tmp_path / "a" / "tersor.json").write_text(json.dumps(
        {"entries": [{"as": "packed", "files": [{"path": "../secret.safetensors"}]}]}))
    index = tmp_path / "b" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "../secret.safetensors"}}))
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor.torch as tersor_torch
said = []
for path in sys.argv[2:]:
    try:
        tersor_torch.read(path, check=False)
    except (ValueError, RuntimeError) as e:
        said.append(str(e))
print(json.dumps(said))
"""
    said = torchfile.run_torch(script, PACKAGE, tmp_path / "a", index, tmp_path / "b")
    assert len(said) == 3 and all("../secret.safetensors" in line for line in said)


def test_torch_takes_plain_checkpoints_and_names_what_is_none(tmp_path):
    """A .pt that was never packed has its values; a text is no checkpoint."""
    w = np.arange(12, dtype="f4").reshape(3, 4)
    (tmp_path / "plain.pt").write_bytes(torchfile.pt({"weight": torchfile.tensor(w)}))
    (tmp_path / "text.pt").write_text("hello")
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, tersor.torch as tersor_torch
model = torch.nn.Linear(4, 3, bias=False)
left = tersor_torch.load(sys.argv[2], model)
try:
    tersor_torch.load(sys.argv[3], model)
except RuntimeError as e:
    said = str(e)
print(json.dumps([left, model.weight.tolist(), said]))
"""
    left, values, said = torchfile.run_torch(script, PACKAGE, tmp_path / "plain.pt", tmp_path / "text.pt")
    assert left == [] and values == w.tolist() and "text.pt: not a kind of file" in said


def test_torch_saves_loads_and_trains_on(tmp_path):
    assert torchfile.run_torch(INTO_A_MODEL, PACKAGE, tmp_path) == ["packed.safetensors"]


def test_torch_loads_a_directory(tmp_path):
    """The Trainer's: a model in two files, an optimizer by numbers, and what it holds besides."""
    out, back = tmp_path / "out", tmp_path / "back"
    run_tersor("pack", TRAINER.parent, "-o", f"{out}/", "-q", check=0)
    run_tersor("unpack", f"{out}/", "-o", f"{back}/", "-q", check=0)
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, tersor.torch as tersor_torch
checkpoint = tersor_torch.Checkpoint(sys.argv[2])
order = open(sys.argv[4]).read().split()
model = torch.nn.Module()
for name in order:
    module = model
    for part in name.split(".")[:-1]:
        module = module._modules.setdefault(part, torch.nn.Module())
    module.register_parameter(name.split(".")[-1], torch.nn.Parameter(
        torch.zeros(checkpoint.tensors[name].shape)))
params = dict(model.named_parameters())
optimizer = torch.optim.AdamW([{"params": [params[n] for n in order if params[n].ndim > 1]},
                               {"params": [params[n] for n in order if params[n].ndim < 2]}])
left = tersor_torch.load(sys.argv[2], model, optimizer)
values = tersor_torch.read(sys.argv[2])     # the optimizer and what else has a tree, and the model
assert any(isinstance(v, dict) and "param_groups" in v for v in values) and set(values[-1]) == set(order)
assert all(torch.equal(values[-1][n], p) for n, p in model.named_parameters())
saved = torch.load(sys.argv[3] + "/optimizer.pt")
for p, number in zip((p for g in optimizer.param_groups for p in g["params"]), saved["state"]):
    assert optimizer.state[p].keys() == saved["state"][number].keys()
    assert all(torch.equal(v, saved["state"][number][k]) for k, v in optimizer.state[p].items())
assert [g["weight_decay"] for g in optimizer.param_groups] == \
    [g["weight_decay"] for g in saved["param_groups"]]
print(json.dumps([left, {n: p.detach().double().sum().item() for n, p in params.items()}]))
"""
    left, sums = torchfile.run_torch(script, PACKAGE, out, back,
                                     DATA / "frameworks" / "expected" / "trainer-parameter-order.txt")
    restored = safetensors.numpy.load_file(back / NAME)
    assert left == [] and sums.keys() == restored.keys()
    for name, total in sums.items():
        assert total == pytest.approx(restored[name].astype("f8").sum(), abs=1e-9), name


def test_torch_executes_nothing_of_a_tree(tmp_path):
    """An object that was carried is a placeholder, and what stands around it is there."""
    canary = tmp_path / "canary"
    evil = torchfile.Call(torchfile.Global("evil", "run"), (f"touch {canary}",))
    source, packed = tmp_path / "source.pt", tmp_path / "packed"
    source.write_bytes(torchfile.pt({"evil": evil, "step": 3, "state_dict": torchfile.ordered(
        [("w", torchfile.tensor(np.arange(64, dtype="f4")))], version=1)}))
    run_tersor("pack", source, "-o", packed, "-q", check=0)
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tersor.torch as tersor_torch
value = tersor_torch.read(sys.argv[2])
print(json.dumps([isinstance(value["evil"], tersor_torch.Opaque), type(value["evil"]).__name__,
                  value["step"], value["state_dict"]["w"].tolist()]))
"""
    done = torchfile.run_torch(script, PACKAGE, packed)
    assert done == [True, "run", 3, list(range(64))] and not canary.exists()
