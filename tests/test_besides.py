"""What differs besides tensors: `diff` and `verify --against` of checkpoints that resume differently."""
import json
import re
import shutil
import struct

import numpy as np
import pytest

from conftest import run_tersor, write_source
from test_entropy import quiet
from torchfile import Call, Dict, Global, ordered, pt, tensor

NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
FLAT = tensor(np.ones((3, 4), "f4"))


def checkpoint(**changed):
    """What a program saves: a model, an optimizer and what it keeps around them."""
    w, tied = tensor(np.arange(12, dtype="f4").reshape(3, 4)), tensor(np.zeros((5, 5), "f4"))
    group = {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "amsgrad": False, "foreach": None, "params": [0]}
    state = {0: {"step": tensor(np.float32(3)), "exp_avg": tensor(np.zeros((3, 4), "f4")),
                 "exp_avg_sq": tensor(np.ones((3, 4), "f4"))}}
    value = {"model": ordered([("w", w), ("head", tied), ("embed", tied)]),
             "optimizer": {"state": state, "param_groups": [group]},
             "epoch": 3, "big": 2**70, "name": "run", "rng": b"\x01\x02", "set": {1, 2}, "frozen": frozenset("ab"),
             "list": [1, [2, 3]], "minus": -0.0, "object": Call(Global("my.code", "Thing"), (1,), {"x": 2}),
             "class": Global("my.code", "Thing"), "dict": Dict({"a": 1, 2: "b"})}
    return {**value, **changed}


def group(**changed):
    """The optimizer with other values in its group."""
    value = checkpoint()["optimizer"]
    value["param_groups"][0].update(changed)
    return {"optimizer": value}


W, TIED = checkpoint()["model"]["w"], tensor(np.zeros((5, 5), "f4"))


def model(**changed):
    """The model with other tensors or attributes of tensors."""
    from_old = dict(checkpoint()["model"].items())
    return {"model": ordered({**from_old, **changed}.items())}


def with_(t, **more):
    copy = tensor(np.arange(12, dtype="f4").reshape(3, 4))
    for key, value in more.items():
        setattr(copy, key, value)
    return copy


CHANGES = {     # what is changed, and what the line says of it: keys, then both values
    "float": (group(lr=0.5), "optimizer.param_groups.0.lr: 0.001, 0.5"),
    "last bit of a float": (group(eps=1.0000000000000002e-08),
                            "optimizer.param_groups.0.eps: 1e-08, 1.0000000000000002e-08"),
    "nan": (group(lr=float("nan")), "optimizer.param_groups.0.lr: 0.001, nan (7ff8000000000000)"),
    "sign of zero": ({"minus": 0.0}, "minus: -0.0, 0.0"),
    "tuple": (group(betas=(0.9, 0.95)), "optimizer.param_groups.0.betas.1: 0.999, 0.95"),
    "length of a tuple": (group(betas=(0.9,)), "optimizer.param_groups.0.betas: a tuple of 2, a tuple of 1"),
    "tuple or list": (group(betas=[0.9, 0.999]), "optimizer.param_groups.0.betas: a tuple of 2, a list of 2"),
    "bool": (group(amsgrad=True), "optimizer.param_groups.0.amsgrad: False, True"),
    "bool or int": (group(amsgrad=0), "optimizer.param_groups.0.amsgrad: False, 0"),
    "None": (group(foreach=True), "optimizer.param_groups.0.foreach: None, True"),
    "another key": (group(fused=True), "optimizer.param_groups.0.fused: absent, True"),
    "int": ({"epoch": 4}, "epoch: 3, 4"),
    "int or float": ({"epoch": 3.0}, "epoch: 3, 3.0"),
    "long": ({"big": 2**70 + 1}, "big: 0x400000000000000000 (an int of 9 bytes), 0x400000000000000001 (an int"),
    "str": ({"name": "ran"}, 'name: "run", "ran"'),
    "bytes": ({"rng": b"\x01\x03"}, "rng: 0102 (2 bytes), 0103 (2 bytes)"),
    "set": ({"set": {1, 3}}, "set.1: 2, absent; set.1: absent, 3"),
    "frozenset": ({"frozen": frozenset("abc")}, 'absent, "c"'),
    "list in a list": ({"list": [1, [2, 4]]}, "list.1.1: 3, 4"),
    "value of a dict": ({"dict": Dict({"a": 1, 2: "c"})}, 'dict.2: "b", "c"'),
    "key of a dict": ({"dict": Dict({"a": 1, 3: "b"})}, 'dict.2: "b", absent; dict.3: absent, "b"'),
    "type of a key": ({"dict": Dict([("a", 1), (2.0, "b")])}, "2, 2.0"),
    "argument": ({"object": Call(Global("my.code", "Thing"), (2,), {"x": 2})}, "1, 2"),
    "state": ({"object": Call(Global("my.code", "Thing"), (1,), {"x": 3})}, "2, 3"),
    "class": ({"class": Global("my.code", "Other")}, "class: my.code.Thing, my.code.Other"),
    "class of an object": ({"object": Call(Global("my.code", "Other"), (1,), {"x": 2})}, "my.code.Other"),
    "gradient": (model(w=with_(W, requires_grad=True)), "model.w: tensor w, tensor w that requires a gradient"),
    "parameter": (model(w=with_(W, parameter=True)), "model.w: tensor w, parameter w"),
    "strides": (model(w=with_(W, stride=(1, 3))), "model.w: tensor w, tensor w with strides 1 3"),
    "alias gone": ({"model": ordered([("w", W), ("head", TIED)])}, "model.embed: tensor head, absent"),
    "attribute": ({"model": ordered(checkpoint()["model"].items(), _metadata=Dict({"": 2}))}, "absent"),
}


def write(path, value):
    path.write_bytes(pt(value))
    return path


def line_of(done):
    lines = [x for x in done.stdout.splitlines() if x.startswith("besides tensors: ")]
    return lines[0] if lines else ""


@pytest.mark.parametrize("what", CHANGES)
def test_one_leaf_that_differs_is_said(tmp_path, what):
    """Of each type; from a .pt, a converted, an unpacked and a packed file, with the status of a difference."""
    changed, words = CHANGES[what]
    old, new = write(tmp_path / "old.pt", checkpoint()), write(tmp_path / "new.pt", checkpoint(**changed))
    for other in forms(tmp_path, new):
        done = run_tersor("diff", old, other, "--max-error", "nmse=1", check=1)
        assert words in line_of(done), done.stdout
        report = json.loads(run_tersor("diff", old, other, "--max-error", "nmse=1", "--json", check=1).stdout)["besides"]
        assert report["not_compared"] is None and report["differing"] == len(report["values"]) > 0
    done = run_tersor("verify", tmp_path / "p", "--against", old, check=1)
    assert "besides tensors: " in done.stdout and re.search(r"is not what .+ was packed from: ", done.stderr)
    quiet("verify", tmp_path / "p", "--against", new)


def forms(tmp_path, path):
    quiet("convert", path, "-o", tmp_path / "c.safetensors", "-f")
    quiet("pack", path, "-o", tmp_path / "p", "-f")
    quiet("unpack", tmp_path / "p", "-o", tmp_path / "u.pt", "-f")
    return path, tmp_path / "c.safetensors", tmp_path / "u.pt", tmp_path / "p"


def test_what_is_the_same_is_not_said(tmp_path):
    """NaN with the same bits, an order of keys, of a set, a value that is shared or twice there."""
    shared = [1, 2]
    old = write(tmp_path / "old.pt", checkpoint(nan=NAN, a=shared, b=shared, **group(lr=float("nan"))))
    new = write(tmp_path / "new.pt", Dict(list(checkpoint(nan=NAN, a=[1, 2], b=[1, 2], set={2, 1},
                                                          **group(lr=float("nan"))).items())[::-1]))
    for source in new, old:
        for other in forms(tmp_path, source):
            done = run_tersor("diff", old, other, "--max-error", "nmse=1", check=0)
            assert line_of(done) == ""
    quiet("verify", tmp_path / "p", "--against", old)


def test_a_tie_is_a_value(tmp_path):
    """Two names of one tensor are another thing than two tensors with the same values."""
    old = write(tmp_path / "old.pt", checkpoint())
    new = write(tmp_path / "new.pt", checkpoint(**model(embed=tensor(np.zeros((5, 5), "f4")))))
    assert "model.embed: tensor head, tensor embed" in line_of(run_tersor("diff", old, new, check=1))
    swapped = write(tmp_path / "s.pt", {"a": W, "b": TIED, "c": W})
    other = write(tmp_path / "t.pt", {"a": W, "b": TIED, "c": TIED})
    assert "c: tensor a, tensor b" in line_of(run_tersor("diff", swapped, other, check=1))


def test_metadata_of_safetensors_is_compared(tmp_path):
    w = {"w": np.ones((40, 40), "f4")}
    old = write_source(tmp_path / "old.safetensors", w, {"format": "pt", "step": "1", "gone": "x"})
    new = write_source(tmp_path / "new.safetensors", w, {"step": "2", "format": "pt"})
    assert line_of(run_tersor("diff", old, new, check=1)) == \
        'besides tensors: 2 values differ (__metadata__.gone: "x", absent; __metadata__.step: "1", "2")'
    quiet("pack", old, "-o", tmp_path / "p")
    quiet("unpack", tmp_path / "p", "-o", tmp_path / "u.safetensors")
    quiet("verify", tmp_path / "p", "--against", old)
    quiet("diff", tmp_path / "u.safetensors", old, "--max-error", "nmse=1")    # which has a number of generations more
    run_tersor("verify", tmp_path / "p", "--against", new, check=1)
    quiet("convert", old, "-o", tmp_path / "plain.npz")
    quiet("diff", old, tmp_path / "plain.npz")


def test_what_only_one_side_has_is_not_compared_and_said(tmp_path):
    old = write(tmp_path / "old.pt", checkpoint())
    quiet("convert", old, "-o", tmp_path / "x.npz")
    quiet("convert", old, "-o", tmp_path / "dcp", "--to", "dcp")
    assert line_of(run_tersor("diff", old, tmp_path / "x.npz")) == "besides tensors: not compared, B has nothing else"
    assert line_of(run_tersor("diff", tmp_path / "dcp", old)) == \
        "besides tensors: not compared, keys of dcp are other ones"
    flat = write(tmp_path / "flat.pt", {"w": FLAT})
    quiet("convert", flat, "-o", tmp_path / "flat.npz")
    assert line_of(run_tersor("diff", flat, tmp_path / "flat.npz", check=0)) == ""


def test_the_first_are_listed_and_all_are_counted(tmp_path):
    old = write(tmp_path / "old.pt", {"w": FLAT, "l": list(range(5000))})
    new = write(tmp_path / "new.pt", {"w": FLAT, "l": list(range(1, 5001))})
    done = run_tersor("diff", old, new, check=1)
    assert line_of(done) == "besides tensors: 5000 values differ (l.0: 0, 1; l.1: 1, 2; l.2: 2, 3; ...)"
    report = json.loads(run_tersor("diff", old, new, "--json", check=1).stdout)["besides"]
    assert report["differing"] == 5000 and len(report["values"]) == 100
    assert report["values"][99] == {"where": "l.99", "a": "99", "b": "100"}
    assert len(run_tersor("diff", old, new, "-v", check=1).stdout.splitlines()) > 100


def test_values_that_are_reached_often_are_compared_once(tmp_path):
    """A list of lists of lists ...: more paths than could be walked."""
    def deep(leaf):
        value = [leaf, leaf]
        for _ in range(22):
            value = [value, value]
        return {"w": FLAT, "deep": value}
    old, new = write(tmp_path / "old.pt", deep("a")), write(tmp_path / "new.pt", deep("a"))
    run_tersor("diff", old, new, check=0, timeout=10)
    new = write(tmp_path / "new.pt", deep("b"))
    assert "2 values differ" in line_of(run_tersor("diff", old, new, check=1, timeout=10))


def test_files_of_directories_are_compared_so_too(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "training.pt", "a.pt", "b.pt":
        write(tmp_path / "in" / name, checkpoint())
    quiet("pack", tmp_path / "in", "-o", tmp_path / "p")
    quiet("verify", tmp_path / "p", "--against", tmp_path / "in")
    quiet("diff", tmp_path / "p", tmp_path / "in", "--max-error", "nmse=1")
    shutil.copytree(tmp_path / "in", tmp_path / "other")
    write(tmp_path / "other" / "training.pt", checkpoint(**group(lr=0.5)))
    told = run_tersor("diff", tmp_path / "p", tmp_path / "other", "--max-error", "nmse=1", check=1)
    assert "besides tensors 1 value differs, first optimizer.param_groups.0.lr: 0.001, 0.5" in " ".join(told.stdout.split())
    told = run_tersor("verify", tmp_path / "p", "--against", tmp_path / "other", check=1)
    assert "optimizer.param_groups.0.lr" in told.stdout
