"""Strides of dense tensors: channels_last, transposed, permuted, wherever a .pt or DCP comes back."""
import base64
import json
import os
import pickle
import pickletools
import zipfile

import pytest

import torchfile
from conftest import BINARY, ROOT, one_line_error, run_tersor
from test_reader import sealed, split

# Every kind of dense order, types of 1 to 8 bytes, sizes of one tile and of several; an optimizer with states.
MAKE = """
import itertools, sys, torch
torch.manual_seed(0)
last, last_3d = torch.channels_last, torch.channels_last_3d
tensors = {
    "last": torch.randn(24, 3, 3, 3).to(memory_format=last),
    "last_3d": torch.randn(8, 5, 3, 3, 3).to(memory_format=last_3d),
    "one": torch.randn(24, 3, 1, 1).to(memory_format=last),
    "half": torch.randn(64, 32, 3, 3).bfloat16().to(memory_format=last),
    "transposed": torch.randn(300, 700).t(),
    "tiles": torch.randn(1100, 900).t(),
    "large": torch.randn(2, 700, 500).permute(2, 0, 1),
    "double": torch.randn(6, 5, 4, dtype=torch.float64).permute(1, 2, 0),
    "complex": torch.randn(5, 7, dtype=torch.complex64).t(),
    "ints": torch.arange(60).view(3, 4, 5).permute(2, 0, 1),
    "bools": (torch.randn(17, 9) > 0).t(),
    "empty": torch.empty(0, 3, 4).permute(2, 0, 1),
    "rows": torch.randn(4, 5), "scalar": torch.tensor(2.0),
}
tensors.update({f"permuted-{i}": torch.randn(9, 8, 7, 6).permute(p)
                for i, p in enumerate(itertools.permutations(range(4)))})
model = torch.nn.Conv2d(4, 8, 3).to(memory_format=last)
model.weight.grad = torch.randn(8, 4, 3, 3).to(memory_format=last)
optimizer = torch.optim.AdamW([model.weight])
optimizer.step()
folder = sys.argv[1]
torch.save({"tensors": tensors, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
           folder + "/source.pt")
torch.save({"w": torch.ones(3, 4)}, folder + "/rows.pt")
torch.save({"w": torch.randn(4, 8).t()}, folder + "/columns.pt")
torch.save({"gap": torch.arange(40.).view(4, 10)[:, ::2], "twice": torch.ones(5, 1).expand(5, 6)},
           folder + "/views.pt")
print("null")
"""

COMPARE = """
import json, sys, torch
def flat(value, name=""):
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}")
source = dict(flat(torch.load(sys.argv[1])))
wrong = []
for path in sys.argv[2:]:
    found = dict(flat(torch.load(path)))
    assert source.keys() == found.keys() or path.endswith("dcp.pt"), path
    for name, t in found.items():
        want = source[name]
        if name.endswith("empty") and path.endswith("dcp.pt"):
            continue        # it has no chunk there
        near = torch.equal(want, t) if not want.is_floating_point() else \\
            (want.double() - t.double()).norm() <= 2e-2 * want.double().norm()
        if t.stride() != want.stride() or not near:
            wrong.append([path, name, want.stride(), t.stride(), bool(near)])
print(json.dumps(wrong))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    torchfile.run_torch(MAKE, folder)
    return folder / "source.pt"


def ways(source, folder):
    """The source by every way back to a .pt."""
    def run(name, *words):
        run_tersor(*words, check=0)
        return folder / name

    def unpack(name, packed, *options):
        return run(name, "unpack", packed, "-o", folder / name, "-qq", *options)
    options = {"plain": [], "coded": ["--entropy"], "tight": ["--state", "tight"],
               "delta": ["--delta", folder / "plain"]}
    packed = {name: run(name, "pack", source, "-o", folder / name, "-qq", *more)
              for name, more in options.items()}
    run("", "pack", source, "-o", folder / "s.safetensors", "-qq", "--max-shard-size", "900K")
    packed["shards"] = folder / "s.safetensors.index.json"
    for name, path in packed.items():
        yield unpack(f"{name}.pt", path)
    yield run("convert.pt", "convert", source, "-o", folder / "convert.pt", "-qq")
    run("back.safetensors", "convert", source, "-o", folder / "back.safetensors", "-qq")
    yield run("tree.pt", "convert", folder / "back.safetensors", "-o", folder / "tree.pt", "-qq")
    for i in range(1, 4):
        unpack("parts.pt", packed["plain"], "--part", f"{i}/3")
    yield run("parts.pt", "join", folder / "parts.pt")
    (folder / "in").mkdir()
    (folder / "in" / "source.pt").write_bytes(source.read_bytes())
    run("out", "pack", folder / "in", "-o", f"{folder}/out/", "-qq")
    unpack("dir/", folder / "out")
    yield folder / "dir" / "source.pt"
    run("dcp", "unpack", packed["plain"], "-o", f"{folder}/dcp/", "--to", "dcp", "-qq")
    yield run("dcp.pt", "convert", folder / "dcp", "-o", folder / "dcp.pt", "-qq")


def test_strides_come_back_by_every_way(source, tmp_path):
    files = list(ways(source, tmp_path))
    assert torchfile.run_torch(COMPARE, source, *files) == []
    for path in files:      # checksums of records that were written in another order
        assert zipfile.ZipFile(path).testzip() is None, path


def test_python_reads_them_with_their_strides(source, tmp_path, monkeypatch, tersor):
    packed, out = tmp_path / "packed", tmp_path / "read.pt"
    tersor("pack", source, "-o", packed, "-qq", check=0)
    script = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import tersor.torch as tersor_torch
torch.save(tersor_torch.read(sys.argv[2]), sys.argv[3])
print("null")
"""
    monkeypatch.setenv("TERSOR", os.path.abspath(BINARY))
    if not (ROOT / "build" / "libtersor.so").exists():
        pytest.skip("only the tool is built")
    monkeypatch.setenv("TERSOR_LIBRARY", str(ROOT / "build" / "libtersor.so"))
    torchfile.run_torch(script, ROOT / "packaging" / "wheel", packed, out)
    assert torchfile.run_torch(COMPARE, source, out) == []


def test_containers_without_strides_name_what_they_lose(source, tmp_path):
    for name in "a.safetensors", "a.npz":
        done = run_tersor("convert", source, "-o", tmp_path / name, check=0)
        assert "here 38 tensors are row-major: tensors.last, " in done.stderr and done.stderr.endswith(", ...\n")
    done = run_tersor("convert", source.with_name("rows.pt"), "-o", tmp_path / "rows.npz", check=0)
    assert "memory format" not in done.stderr


def test_views_with_gaps_are_named(source, tmp_path):
    done = run_tersor("convert", source.with_name("views.pt"), "-o", tmp_path / "out.pt", check=0)
    assert "tensor gap: is a view with gaps or repeated elements" in done.stderr and "(2 in all)" in done.stderr


@pytest.mark.parametrize("strides", [(1,), (1, 1), (0, 0), (4, 2), (2**63, 1), (-1, 1), (1, 4, 1),
                                     None, ("1", "4")])
def test_strides_that_no_dense_tensor_has_are_refused(source, tmp_path, strides):
    packed = tmp_path / "packed"
    run_tersor("pack", source.with_name("columns.pt"), "-o", packed, "-qq", check=0)
    header, data = split(packed.read_bytes())
    header = json.loads(header)
    metadata = header["__metadata__"]
    was = base64.b64decode(metadata["tersor_tree"])
    right = pickletools.optimize(pickle.dumps((1, 8), 2))[2:-1]
    assert was.count(right) == 1
    made = pickletools.optimize(pickle.dumps(strides, 2))[2:-1]
    metadata["tersor_tree"] = base64.b64encode(was.replace(right, made)).decode()
    metadata["tersor_check"] = "0" * 16
    packed.write_bytes(sealed(json.dumps(header, separators=(",", ":")).encode(), data))
    done = run_tersor("unpack", packed, "-o", tmp_path / "out.pt")
    assert done.returncode == 3 and "strides of tensor w" in one_line_error(done), done.stderr
    assert not (tmp_path / "out.pt").exists()
