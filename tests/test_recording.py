"""Recordings of gradients by `tersor inspect`: manifests, plain directories, ranks, the recorder."""
import json
import math
import os
import random
import shutil
import socket

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import torchfile
from conftest import DATA, ROOT, one_line_error, run_tersor, safetensors_bytes
from torchfile import pt, run_bounded, run_torch, tensor

tmp_path = torchfile.tmp_path

RECORDING = DATA / "tiny-gpt" / "recording"
W = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.array([1, -2, 3], np.float32)
STEPS = {3: {"w": W, "b": B}, 4: {"w": W + 1, "b": B + 1}, 5: {"w": W + 2, "b": B + 2}}


def name_of(step):
    return f"step-{step:08d}.safetensors"


def manifest_of(**more):
    return {"format": "tersor-recording", "version": 1, "optimizer": "sgd",
            "param_groups": [{"params": ["w"], "momentum": 0.9, "nesterov": False},
                             {"params": ["b"], "momentum": 0.0, "weight_decay": 1e-4}],
            "steps": [{"step": s, "file": name_of(s), "lr": [0.1 * s, 0.2 * s], "loss": 1.0 / s}
                      for s in STEPS], **more}


def write(folder, manifest=None, steps=None):
    """A recording; its manifest may be a text or bytes."""
    folder.mkdir(exist_ok=True)
    for step, tensors in (STEPS if steps is None else steps).items():
        safetensors.numpy.save_file(tensors, folder / name_of(step), {"format": "pt"})
    manifest = manifest_of() if manifest is None else manifest
    if isinstance(manifest, dict):
        manifest = json.dumps(manifest)
    if isinstance(manifest, str):
        manifest = manifest.encode()
    (folder / "manifest.json").write_bytes(manifest)
    return folder


def inspected(folder, *options):
    return json.loads(run_tersor("inspect", folder, "--json", *options, check=0).stdout)


def refused(folder, *words, status=3, file=None):
    """Inspect refuses it with one line that names a file of the recording; returns the line."""
    done = run_tersor("inspect", folder, timeout=20)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    line = one_line_error(done)
    assert line.isprintable() and not done.stdout
    assert line.startswith(f"tersor: {folder / file if file else folder}"), line
    for word in words:
        assert str(word) in line, (word, line)
    return line


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "recording"


# ---- What a recording holds ----

def test_report_is_what_manifest_and_files_say():
    """Against Python's json and safetensors."""
    manifest = json.loads((RECORDING / "manifest.json").read_text())
    report = inspected(RECORDING)
    assert report["schema"] == "tersor.inspect.v1" and report["kind"] == "recording"
    assert report["optimizer"] == manifest["optimizer"] == "adamw"
    contents = [safetensors.deserialize((RECORDING / s["file"]).read_bytes())
                for s in manifest["steps"]]
    assert [s["step"] for s in report["steps"]] == [s["step"] for s in manifest["steps"]]
    for found, said, tensors in zip(report["steps"], manifest["steps"], contents):
        assert found["files"] == [said["file"]] and found["tensors"] == len(tensors)
        assert found["lr"] == pytest.approx(said["lr"], rel=1e-8)
        assert found["loss"] == pytest.approx(said["loss"], rel=1e-8)
        assert found["nbytes"] == sum(len(t["data"]) for _, t in tensors)
        assert found["dtypes"] == sorted({t["dtype"] for _, t in tensors})
    shapes = {name: t["shape"] for name, t in contents[0]}
    assert {t["name"]: t["shape"] for t in report["tensors"]} == shapes
    assert [t["name"] for t in report["tensors"]] == sorted(shapes)
    for t in report["tensors"]:
        assert t["name"] in manifest["param_groups"][t["param_group"]]["params"] and t["steps"] == 16
    for found, said in zip(report["param_groups"], manifest["param_groups"], strict=True):
        assert found["parameters"] == len(said["params"])
        assert found["elements"] == sum(math.prod(shapes[name]) for name in said["params"])
        assert found["hyperparameters"] == {"beta1": said["betas"][0], "beta2": said["betas"][1],
                                            "eps": said["eps"],
                                            "weight_decay": said["weight_decay"]}
    for g in (0, 1):
        lr = [s["lr"][g] for s in manifest["steps"]]
        assert report["param_groups"][g]["lr"] == pytest.approx([min(lr), max(lr)], rel=1e-8)
    losses = [s["loss"] for s in manifest["steps"]]
    totals = report["totals"]
    assert totals["loss"] == pytest.approx([min(losses), max(losses)], rel=1e-8)
    assert totals["nbytes"] == sum(len(t["data"]) for tensors in contents for _, t in tensors)
    assert (totals["steps"], totals["first_step"], totals["last_step"]) == (16, 401, 416)
    assert (totals["files"], totals["tensors"], totals["missing"]) == (16, 29, 0)


def test_report_for_people_says_the_same():
    text = run_tersor("inspect", RECORDING, check=0).stdout
    for word in ("adamw", "401 to 416", "16 files", "2.70 MB", "2.2326 to 2.42856", "BF16",
                 "11 parameters", "82,944 elements", "0.000200629 to 0.000210052",
                 "weight_decay 0.1", "18 parameters", "1,344 elements"):
        assert word in text, (word, text)
    assert "00000407" not in text
    verbose = run_tersor("inspect", "-v", RECORDING, check=0).stdout
    manifest = json.loads((RECORDING / "manifest.json").read_text())
    for s in manifest["steps"]:
        line, = (line for line in verbose.splitlines() if line.split()[:1] == [str(s["step"])])
        assert s["file"] in line and f"{s['lr'][0]:.6g}" in line and f"{s['loss']:.6g}" in line
    assert max(map(len, verbose.splitlines()[1:])) <= 80


def test_everything_optional_may_be_missing(folder):
    minimal = {"format": "tersor-recording", "version": 1,
               "steps": [{"step": s, "file": name_of(s)} for s in STEPS]}
    report = inspected(write(folder, minimal))
    assert report["optimizer"] is None and report["totals"]["loss"] is None
    assert report["param_groups"] == [{"parameters": 2, "elements": 15, "hyperparameters": {},
                                 "lr": None}]
    assert all(s["lr"] is None and s["loss"] is None for s in report["steps"])
    text = run_tersor("inspect", "-v", folder, check=0).stdout
    assert "optimizer not recorded" in text and "lr not recorded" in text


def test_one_group_without_params_has_all(folder):
    manifest = manifest_of(param_groups=[{"momentum": 0.5, "lr": 0.25}])
    for s in manifest["steps"]:
        del s["lr"]
    group, = inspected(write(folder, manifest))["param_groups"]
    assert group["parameters"] == 2
    assert group["hyperparameters"] == {"lr": 0.25, "momentum": 0.5}


def test_what_is_ignored(folder):
    """Members of PyTorch's groups that change nothing, members that are not known, null losses."""
    manifest = manifest_of(notes={"run": "x"}, grad_dtype="F32")
    manifest["param_groups"][0].update(foreach=None, fused=True, capturable=False, maximize=False,
                                       amsgrad=False, name="decay", decoupled_weight_decay=False)
    manifest["steps"][1].update(loss=None, seconds=3)
    report = inspected(write(folder, manifest))
    assert [s["loss"] for s in report["steps"]] == [pytest.approx(1 / 3), None, 0.2]


def test_every_hyperparameter(folder):
    values = {"initial_lr": 0.5, "eps": 1e-6, "weight_decay": 0.01, "momentum": 0.9,
              "dampening": 0.1, "nesterov": True, "decouple_lr": 1, "lr": 3e-4}
    manifest = manifest_of(optimizer="adamw")
    manifest["param_groups"][0] = {"params": ["w"], "betas": [0.8, 0.99],
                                   "decoupled_weight_decay": True, **values}
    found = inspected(write(folder, manifest))["param_groups"][0]["hyperparameters"]
    assert found == {**values, "nesterov": 1, "beta1": 0.8, "beta2": 0.99}


@pytest.mark.parametrize("optimizer", ["sgd", "sgdw", "adam", "adamw", "lion", "gefen", "muon", "gefen-muon", "soap"])
def test_optimizers(folder, optimizer):
    assert inspected(write(folder, manifest_of(optimizer=optimizer)))["optimizer"] == optimizer


def test_missing_gradients_are_counted(folder):
    steps = {3: {"w": W}, 4: {"w": W, "b": B}, 5: {"b": B}}
    report = inspected(write(folder, steps=steps))
    assert report["totals"]["missing"] == 2
    assert {t["name"]: t["steps"] for t in report["tensors"]} == {"w": 2, "b": 2}
    assert "2 gradients missing" in run_tersor("inspect", folder, check=0).stdout


def test_gradients_in_no_group_are_warned_of(folder):
    steps = {s: {**tensors, "extra": B} for s, tensors in STEPS.items()}
    done = run_tersor("inspect", write(folder, steps=steps), check=0)
    assert "warning" in done.stderr and "extra" in one_line_error(done)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_dtypes_of_gradients(folder, dtype):
    steps = {s: {k: v.astype(dtype) for k, v in tensors.items()} for s, tensors in STEPS.items()}
    if dtype is ml_dtypes.bfloat16:
        raw = {name: (v.tobytes(), list(v.shape)) for name, v in steps[3].items()}
        write(folder)
        for s in STEPS:
            header, data = {}, b""
            for name, (values, shape) in raw.items():
                header[name] = {"dtype": "BF16", "shape": shape,
                                "data_offsets": [len(data), len(data) + len(values)]}
                data += values
            (folder / name_of(s)).write_bytes(safetensors_bytes(header, data))
    else:
        write(folder, steps=steps)
    want = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[np.dtype(dtype).name]
    assert inspected(folder)["totals"]["dtypes"] == [want]


# ---- Manifests that are refused ----

def edited(path, value):
    """The manifest with one place set, or removed if the value is `...`."""
    manifest = manifest_of()
    at = manifest
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return manifest


@pytest.mark.parametrize("path, value, words", [
    (("format",), ..., ["format", "nothing"]),
    (("format",), "tersor-checkpoint", ["format", "tersor-checkpoint"]),
    (("format",), 1, ["format"]),
    (("version",), ..., ["version"]),
    (("version",), 2, ["version", "found 2", "expected 1"]),
    (("version",), 0, ["version", "found 0"]),
    (("version",), 1.5, ["version", "1.5"]),
    (("version",), "1", ["version"]),
    (("optimizer",), "adagrad", ["optimizer", "adagrad", "adamw"]),
    (("optimizer",), "AdamW", ["optimizer", "AdamW"]),
    (("optimizer",), 3, ["optimizer", "found 3"]),
    (("optimizer",), ["sgd"], ["optimizer", "a list"]),
    (("param_groups",), [], ["param_groups"]),
    (("param_groups",), {}, ["param_groups", "an object"]),
    (("param_groups",), None, ["param_groups", "null"]),
    (("param_groups", 0), "w", ["param_groups[0]"]),
    (("param_groups", 1, "params"), ..., ["param_groups[1]", "params"]),
    (("param_groups", 1, "params"), "b", ["param_groups[1]", "params", '"b"']),
    (("param_groups", 1, "params"), [3], ["param_groups[1]", "params", "found 3"]),
    (("param_groups", 1, "params"), [""], ["param_groups[1]", "params"]),
    (("param_groups", 1, "params"), ["x" * 65536], ["65536", "limit"]),
    (("param_groups", 1, "params"), ["b", "w"], ["parameter w", "group 0", "group 1"]),
    (("param_groups", 1, "params"), ["b", "b"], ["parameter b", "group 1"]),
    (("param_groups", 0, "momentum"), "0.9", ["param_groups[0]", "momentum"]),
    (("param_groups", 0, "momentum"), None, ["momentum", "null"]),
    (("param_groups", 0, "betas"), [0.9], ["betas", "two"]),
    (("param_groups", 0, "betas"), [0.9, 0.9, 0.9], ["betas", "two"]),
    (("param_groups", 0, "betas"), [0.9, "x"], ["betas"]),
    (("param_groups", 0, "betas"), 0.9, ["betas", "0.9"]),
    (("param_groups", 0, "nesterov"), 2, ["nesterov", "found 2"]),
    (("param_groups", 0, "nesterov"), "yes", ["nesterov", "yes"]),
    (("param_groups", 0, "maximize"), "no", ["maximize", '"no"']),
    (("param_groups", 0, "amsgrad"), "no", ["amsgrad", '"no"']),
    (("param_groups", 0, "decoupled_weight_decay"), True, ["decoupled_weight_decay"]),
    (("param_groups", 0, "adjust_lr_fn"), "own", ["adjust_lr_fn", "match_rms_adamw"]),
    (("param_groups", 0, "ns_steps"), 6, ["ns_steps", "found 6", "expected 5"]),
    (("param_groups", 0, "ns_coefficients"), [2, -1.5, 0.5], ["ns_coefficients", "3.4445"]),
    (("param_groups", 0, "ns_coefficients"), [3.4445, -4.775], ["ns_coefficients", "3.4445"]),
    (("param_groups", 0, "rho"), 0.9, ["param_groups[0]", "rho"]),
    (("steps",), ..., ["steps", "nothing"]),
    (("steps",), [], ["steps"]),
    (("steps",), {}, ["steps"]),
    (("steps", 1), 4, ["steps[1]"]),
    (("steps", 1, "step"), ..., ["steps[1]", "step"]),
    (("steps", 1, "step"), -4, ["steps[1]", "found -4"]),
    (("steps", 0, "step"), 0, ["steps[0]", "found 0"]),
    (("steps", 1, "step"), 4.5, ["steps[1]", "4.5"]),
    (("steps", 1, "step"), 2 ** 48, ["steps[1]", 2 ** 48]),
    (("steps", 1, "step"), "4", ["steps[1]"]),
    (("steps", 1, "step"), 5, ["step 5", "step 3", "expected 4"]),
    (("steps", 1, "step"), 3, ["step 3", "expected 4"]),
    (("steps", 2, "step"), 9, ["step 9", "step 4", "expected 5"]),
    (("steps", 2, "step"), 1, ["step 1", "step 4", "expected 5"]),
    (("steps", 1, "lr"), [0.1], ["step 4", "list of 1", "expected 2"]),
    (("steps", 1, "lr"), [0.1, 0.2, 0.3], ["step 4", "list of 3", "expected 2"]),
    (("steps", 1, "lr"), [], ["step 4", "list of 0", "expected 2"]),
    (("steps", 1, "lr"), 0.1, ["step 4", "lr"]),
    (("steps", 1, "lr"), None, ["step 4", "lr", "null"]),
    (("steps", 1, "lr"), [0.1, "x"], ["step 4", "lr", '"x"']),
    (("steps", 1, "lr"), [0.1, -0.1], ["step 4", "lr", "-0.1"]),
    (("steps", 1, "loss"), "2.5", ["step 4", "loss"]),
    (("steps", 1, "file"), ..., ["step 4", "file"]),
    (("steps", 1, "file"), 3, ["step 4", "file", "found 3"]),
    (("steps", 1, "files"), [name_of(4)], ["step 4", "both"]),
])
def test_refused(folder, path, value, words):
    refused(write(folder, edited(path, value)), *words, file="manifest.json")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".", "", "\\x", "a\\b",
                                  "x" * 256, "./" + name_of(4), "x/"])
@pytest.mark.parametrize("ranks", [False, True])
def test_refused_file_names(folder, name, ranks):
    (folder.parent / "x").mkdir(exist_ok=True)
    manifest = manifest_of()
    if ranks:
        del manifest["steps"][1]["file"]
        manifest["steps"][1]["files"] = [name_of(4), name]
    else:
        manifest["steps"][1]["file"] = name
    refused(write(folder, manifest), "step 4", "directories", file="manifest.json")


@pytest.mark.parametrize("value", [[], "x", None, {}, [None], [["x"]]])
def test_refused_lists_of_files(folder, value):
    manifest = edited(("steps", 1, "files"), value)
    del manifest["steps"][1]["file"]
    refused(write(folder, manifest), "step 4", "file", file="manifest.json")


@pytest.mark.parametrize("text, words", [
    ("0.30000000000000004", "NaN"), ("0.30000000000000004", "Infinity"),
    ("0.30000000000000004", "-Infinity"), ("0.30000000000000004", "1e999"),
    ("0.3333333333333333", "NaN"), ("0.3333333333333333", "1e999"), ("0.9", "NaN"),
    ("0.9", "1e999"), ("0.9", "0x1p-1"), ("0.9", ".9"), ("0.9", "+0.9"), ("0.9", "09"),
])
def test_refused_numbers(folder, text, words):
    """As Python's json writes them without being asked to be strict, and in other spellings."""
    manifest = json.dumps(manifest_of())
    assert text in manifest
    refused(write(folder, manifest.replace(text, words, 1)), file="manifest.json")


@pytest.mark.parametrize("manifest, words", [
    ('["tersor-recording"]', "manifest: found a list, expected an object"),
    ({"format": "tersor-recording.v2"}, 'format: found "tersor-recording.v2", expected "tersor-recording"'),
])
def test_refused_manifests_say_what_is_expected(folder, manifest, words):
    refused(write(folder, manifest), words, file="manifest.json")


@pytest.mark.parametrize("text", [
    b"", b" ", b"{", b"[]", b"null", b'"x"', b"1", b"\xff\xfe{}", b"\xef\xbb\xbf{}",
    json.dumps(manifest_of()).encode() + b"x", json.dumps(manifest_of()).encode() + b"\0",
    json.dumps(manifest_of()).replace('"version": 1', '"version": 1, "version": 1').encode(),
    json.dumps(manifest_of()).replace("w", "\x01").encode(),
    json.dumps(manifest_of()).encode("utf-16"),
    b"[" * 100000, b'{"format":' * 100000,
], ids=lambda text: repr(text[:12]))
def test_refused_texts(folder, text):
    refused(write(folder, text), file="manifest.json")


def test_truncated_manifest(folder):
    """At every byte; without its first one or two it is no JSON text that calls itself ours."""
    text = json.dumps(manifest_of(), indent=1)
    write(folder)
    for n in sorted({*range(8), *random.Random(1).sample(range(len(text)), 60)}):
        (folder / "manifest.json").write_text(text[:n])
        refused(folder, file="manifest.json")


@pytest.mark.parametrize("manifest, word", [
    ('{"format":"tersor-recording","version":1,"steps":[%s0]}' % ("0," * 2_000_000), "limit"),
    ('{"format":"tersor-recording","version":1,"steps":[%s{}]}' % ("{}," * 1_999_000), "steps[0]"),
    ('{"format":"tersor-recording","version":1,"x":"%s"}' % ("x" * (65 << 20)), "limit"),
    ('{"format":"tersor-recording","version":1,"steps":[{"step":1,"files":[%s]}]}'
     % ",".join(['"a"'] * 500_000), "step 1"),
    ('{"format":"tersor-recording","version":1,"param_groups":[{"params":[%s]}]}'
     % ",".join(['"a"'] * 500_000), "parameter a"),
], ids=["values", "steps", "text", "files", "params"])
def test_huge_manifests_take_bounded_memory(folder, manifest, word):
    done, peak, seconds = run_bounded("inspect", write(folder, manifest, {}))
    assert done.returncode in (3, 4) and word in one_line_error(done), done
    assert peak < 768 and seconds < 10, (peak, seconds)


# ---- Files of steps ----

def test_missing_file_is_named_with_its_step(folder):
    (write(folder) / name_of(4)).unlink()
    refused(folder, "step 4", "No such file", status=4, file=name_of(4))


@pytest.mark.parametrize("nbytes", [0, 4, 8, 20, -1])
def test_truncated_file_is_named_with_its_step(folder, nbytes):
    path = write(folder) / name_of(4)
    path.write_bytes(path.read_bytes()[:nbytes])
    refused(folder, "step 4", file=name_of(4))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.int64])
def test_other_dtypes_are_refused(folder, dtype):
    steps = {**STEPS, 4: {"w": W, "b": B.astype(dtype)}}
    refused(write(folder, steps=steps), "step 4", "tensor b", "BF16", file=name_of(4))


def test_shape_that_changes(folder):
    refused(write(folder, steps={**STEPS, 4: {"w": W.T.copy(), "b": B}}), "step 4", "tensor w",
            "[3, 4]", "[4, 3]", file=name_of(4))


def test_packed_file_is_no_step(folder):
    source = DATA / "tiny-gpt" / "checkpoint.safetensors"
    write(folder)
    run_tersor("pack", source, "-o", folder / name_of(4), "--force", check=0)
    refused(folder, "step 4", "packed", file=name_of(4))


@pytest.mark.parametrize("kind", ["symlink", "dangling", "fifo", "directory", "device", "socket"])
@pytest.mark.parametrize("manifest", [True, False])
def test_step_that_is_no_regular_file(folder, kind, manifest):
    path = write(folder) / name_of(4)
    path.rename(folder.parent / "real")
    if not manifest:
        (folder / "manifest.json").unlink()
    if kind == "symlink":
        path.symlink_to(folder.parent / "real")
    elif kind == "dangling":
        path.symlink_to(folder.parent / "nowhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    done = run_tersor("inspect", folder, timeout=10)
    assert done.returncode in (3, 4) and not done.stdout
    assert path.name in one_line_error(done) and "step 4" in one_line_error(done)
    if kind == "symlink":
        assert len(inspected(folder, "--follow-symlinks")["steps"]) == 3


def test_manifest_that_is_a_link(folder):
    (write(folder) / "manifest.json").rename(folder.parent / "real")
    (folder / "manifest.json").symlink_to("../real")
    refused(folder, "symbolic link", status=4, file="manifest.json")
    inspected(folder, "--follow-symlinks")


@pytest.mark.parametrize("extension, save", [
    ("pt", lambda path, t: path.write_bytes(pt({k: tensor(v) for k, v in t.items()}))),
    ("npz", lambda path, t: np.savez(path, **t)),
])
def test_containers_of_steps(folder, extension, save):
    manifest = manifest_of()
    write(folder, manifest, {})
    for s in manifest["steps"]:
        s["file"] = f"g{s['step']}.{extension}"
        save(folder / s["file"], STEPS[s["step"]])
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = {t["name"]: t["shape"] for t in inspected(folder)["tensors"]}
    assert found == {"w": [4, 3], "b": [3]}


# ---- Directories without a manifest ----

def plain(folder, names):
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(pt({k: tensor(v) for k, v in STEPS[3].items()}))
    return folder


@pytest.mark.parametrize("names, steps", [
    (["g-9.pt", "g-10.pt", "g-11.pt"], [9, 10, 11]),
    (["0001.pt", "0002.pt"], [1, 2]),
    (["step7.pt"], [7]),
    (["a08.pth", "b9.bin", "c010.ckpt"], [8, 9, 10]),
    (["grads_rank0_step00000000000000000012.pt", "grads_13.pt"], [12, 13]),
    (["1e5.pt", "x6.pt"], [5, 6]),
], ids=str)
def test_plain_directory(folder, names, steps):
    (plain(folder, names) / "notes.txt").write_text("3")
    report = inspected(folder)
    assert [(s["step"], s["files"]) for s in report["steps"]] == \
        [(n, [name]) for n, name in zip(steps, names, strict=True)]
    assert report["optimizer"] is None and report["param_groups"][0]["lr"] is None
    assert {t["name"]: (t["shape"], t["param_group"]) for t in report["tensors"]} == \
        {"w": ([4, 3], 0), "b": ([3], 0)}


@pytest.mark.parametrize("names, words", [
    (["g1.pt", "g3.pt"], ["step 3", "step 1", "expected 2"]),
    (["g1.pt", "h1.pt"], ["step 1", "g1.pt", "h1.pt"]),
    (["g1.pt", "g01.pt"], ["step 1", "g1.pt", "g01.pt"]),
    (["g1.pt", "g1.bin"], ["step 1", "g1.pt", "g1.bin"]),
    (["g0.pt", "g1.pt"], ["g0.pt", "step 0"]),
    (["g1.pt", "g2.pt", "optimizer.pt"], ["optimizer.pt", "number"]),
    (["g1.pt", "g281474976710656.pt"], ["g281474976710656.pt", "number"]),
], ids=str)
def test_plain_directory_refused(folder, names, words):
    refused(plain(folder, names), *words)


def test_plain_directory_of_safetensors_and_dcp(folder):
    write(folder)
    (folder / "manifest.json").unlink()
    assert [s["step"] for s in inspected(folder)["steps"]] == [3, 4, 5]
    torchfile.dcp(folder / "later-6", {"w": torchfile.whole(tensor(W)),
                                       "b": torchfile.whole(tensor(B))})
    report = inspected(folder)
    assert [s["step"] for s in report["steps"]] == [3, 4, 5, 6]
    assert [t["steps"] for t in report["tensors"]] == [4, 4]


def test_checkpoints_are_no_recordings(folder, tmp_path):
    """What was a checkpoint before there were recordings is one still."""
    data = DATA / "tiny-gpt"
    for path in (data / "hf", data / "dcp", DATA / "torch" / "dcp-2rank"):
        assert json.loads(run_tersor("inspect", path, "--json", check=0).stdout)["kind"] != \
            "recording"
    folder.mkdir()
    safetensors.numpy.save_file(STEPS[3], folder / "model-00001.safetensors")
    assert inspected(folder)["kind"] == "safetensors"
    (folder / "manifest.json").write_text('{"files": 1}')
    assert inspected(folder)["kind"] == "safetensors"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "manifest.json" not in one_line_error(run_tersor("inspect", empty, check=3))


# ---- Ranks ----

KEY = "DCP_SHARDING_INFO"


def ranks(folder, parts, offsets, container="safetensors", steps=(3,)):
    """A recording whose steps have one file per rank: tensors, and {name: offsets} or a text."""
    folder.mkdir()
    manifest = {"format": "tersor-recording", "version": 1, "steps": []}
    for step in steps:
        files = [f"step-{step}-rank{r}.{'pt' if container == 'pt' else 'safetensors'}"
                 for r in range(len(parts))]
        manifest["steps"].append({"step": step, "files": files})
        for name, tensors, at in zip(files, parts, offsets, strict=True):
            if isinstance(at, dict):
                at = json.dumps({k: {"saved_offsets": v} for k, v in at.items()})
            if container == "pt":
                values = {k: tensor(v) for k, v in tensors.items()}
                (folder / name).write_bytes(pt({**values, **({KEY: at} if at else {})}))
            else:
                safetensors.numpy.save_file({k: np.array(v) for k, v in tensors.items()},
                                            folder / name, {KEY: at} if at else None)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("container", ["safetensors", "pt"])
@pytest.mark.parametrize("parts, offsets", [
    ([{"w": W[:2], "b": B}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [2, 0]}]),
    ([{"w": W[3:]}, {"w": W[:3], "b": B}], [{"w": [3, 0]}, {"w": [0, 0], "b": [0]}]),
    ([{"w": W[:, :1]}, {"w": W[:, 1:], "b": B}], [{"w": [0, 0]}, {"w": [0, 1]}]),
    ([{"w": W, "b": B[:2]}, {"w": W[:0], "b": B[2:]}],
     [{"w": [0, 0], "b": [0]}, {"w": [4, 0], "b": [2]}]),
    ([{"w": W}, {"b": B}], [None, None]),
    ([{"w": W, "b": B}], [{"w": [0, 0], "b": [0]}]),
    ([{"w": W[r:r + 1], "b": B[r:r + 1]} for r in range(4)],
     [{"w": [r, 0], "b": [r]} for r in range(4)]),
], ids=["rows", "order", "columns", "empty", "disjoint", "one", "four"])
def test_ranks_are_joined(folder, parts, offsets, container):
    report = inspected(ranks(folder, parts, offsets, container, steps=(3, 4)))
    assert {t["name"]: t["shape"] for t in report["tensors"]} == {"w": [4, 3], "b": [3]}
    step = report["steps"][0]
    assert (step["tensors"], step["nbytes"], len(step["files"])) == (2, 60, len(parts))
    assert report["totals"]["files"] == 2 * len(parts)


@pytest.mark.parametrize("parts, offsets, words", [
    ([{"w": W[:2]}, {"w": W[2:]}], [None, None], ["tensor w", "2 files", KEY]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, None], ["tensor w", KEY]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [3, 0]}], ["begins at 3", "expected 2"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [1, 0]}], ["begins at 1", "expected 2"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [1, 0]}, {"w": [3, 0]}], ["begins at 1", "expected 0"]),
    ([{"w": W[:2]}, {"w": W[:2]}], [{"w": [0, 0]}, {"w": [0, 0]}], ["begins at 0", "expected 2"]),
    ([{"w": W}], [{"w": [4, 0]}], ["begins at 4", "expected 0"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [2, 1]}], ["two dimensions"]),
    ([{"w": W[:2]}, {"w": W[2:, :2]}], [{"w": [0, 0]}, {"w": [2, 0]}], ["another shape"]),
    ([{"w": W[:2]}, {"w": W[2:].astype(np.float16)}], [{"w": [0, 0]}, {"w": [2, 0]}],
     ["F16", "F32"]),
    ([{"w": W[:2]}, {"w": W[2]}], [{"w": [0, 0]}, {"w": [2]}], ["1 dim", "expected F32 and 2"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [2]}], ["saved_offsets", "2 integers"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [2, 0, 0]}], ["saved_offsets"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [-2, 0]}], ["saved_offsets"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [2.5, 0]}], ["saved_offsets"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": "2"}], ["saved_offsets"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [2 ** 64, 0]}], ["saved_offsets"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, '{"w": 3}'], ["saved_offsets"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, "[]"], [KEY, "object"]),
    ([{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, "{"], [KEY]),
    ([{"w": np.array(1, np.float32)}] * 2, [{"w": []}] * 2, ["no dimensions"]),
])
def test_ranks_that_do_not_fit(folder, parts, offsets, words):
    refused(ranks(folder, parts, offsets), "step 3", *words)


def test_missing_rank_is_named_with_its_step(folder):
    ranks(folder, [{"w": W[:2]}, {"w": W[2:]}], [{"w": [0, 0]}, {"w": [2, 0]}])
    (folder / "step-3-rank1.safetensors").unlink()
    refused(folder, "step 3", status=4, file="step-3-rank1.safetensors")


def test_many_ranks(folder):
    big = np.arange(600, dtype=np.float32).reshape(300, 2)
    report = inspected(ranks(folder, [{"w": big[r:r + 1]} for r in range(300)],
                             [{"w": [r, 0]} for r in range(300)]))
    assert report["tensors"][0]["shape"] == [300, 2]


# ---- The recorder ----

RECORD = """
import json, sys
import torch
sys.path.insert(0, sys.argv[1])
from tersor.record import GradientRecorder

def run(folder, kind="AdamW", early=True, dtype=None, **options):
    dtype = getattr(torch, dtype) if dtype else None
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    unused = torch.nn.Parameter(torch.ones(3))
    weights, biases = [model[0].weight, model[2].weight], [model[0].bias, model[2].bias, unused]
    groups = [{"params": weights}, {"params": biases, "weight_decay": 0.0}]
    optimizer = getattr(torch.optim, kind)(groups, lr=0.01, **options)
    names = [*model.named_parameters(), ("unused", unused)]
    attach = lambda: GradientRecorder(folder, optimizer, names, first_step=7, dtype=dtype)
    recorder = attach() if early else None
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    recorder = recorder or attach()
    seen = []
    for step in range(4):
        optimizer.zero_grad()
        for part in range(2):               # accumulation
            loss = model(torch.randn(3, 4)).pow(2).mean() / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        recorder.loss = loss if step != 2 else float("nan")
        if step == 3:
            recorder.close()
        before = [p.detach().clone() for p in weights]
        seen.append({"lr": [g["lr"] for g in optimizer.param_groups], "loss": loss.item(),
                     "grads": {n: p.grad.clone().to(dtype or p.grad.dtype).float().tolist()
                               for n, p in names if p.grad is not None}})
        optimizer.step()
        assert not all(torch.equal(a, b) for a, b in zip(before, weights)), "did not step"
        schedule.step()
    return seen

def refusal(folder, spoil, *args):
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    try:
        GradientRecorder(folder, optimizer, [("p", p)])
        p.grad = torch.ones(3)
        optimizer.step()
        spoil(optimizer)
        optimizer.step(*args)
    except (ValueError, FileExistsError) as error:
        return str(error)

nothing = lambda optimizer: None
change = lambda optimizer: optimizer.param_groups[0].update(momentum=0.5)
folder = sys.argv[2] + "/"
runs = [run(folder + name, **options) for name, options in json.loads(sys.argv[3]).items()]
print(json.dumps([runs, refusal(folder + "changed", change),
                  refusal(folder + "closure", nothing, lambda: None),
                  refusal(folder + "changed", nothing)]))
"""
RUNS = {f"{dtype or 'as-is'}-{early}": {"dtype": dtype, "early": early, "betas": [0.8, 0.9]}
        for dtype in (None, "bfloat16", "float16", "float32") for early in (True, False)}
OTHERS = {"sgd": {"kind": "SGD", "momentum": 0.9, "dampening": 0.0, "nesterov": True},
          "adam": {"kind": "Adam", "eps": 1e-6}}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Where the recorder ran, under the system's torch; what each run saw; what was refused."""
    folder = tmp_path_factory.mktemp("recorded")
    runs, *refusals = run_torch(RECORD, ROOT / "packaging" / "wheel", folder, json.dumps({**RUNS, **OTHERS}))
    return folder, dict(zip([*RUNS, *OTHERS], runs, strict=True)), refusals


ORDERS = """
import json, sys, types
import torch
sys.path.insert(0, sys.argv[1])
from tersor.record import order_of
fused = {"fused": True}
cases = [("2.11.0", "13.0", "adamw", True, "float32", fused), ("2.11.0", None, "adamw", True, "float32", fused),
         ("2.11.0", "13.0", "lion", True, "float32", fused), ("2.11.0", "13.0", "adamw", True, "bfloat16", fused),
         ("2.11.0", "13.0", "adamw", True, "float32", {"foreach": False}),
         ("2.11.0", "13.0", "adamw", True, "float32", {**fused, "differentiable": True}),
         ("2.11.0", "13.0", "sgd", True, "float32", {}), ("2.11.0", None, "adamw", False, "float32", fused),
         ("2.11.0", None, "adamw", False, "float32", {})]
found = []
for torch.__version__, torch.version.cuda, kind, cuda, dtype, options in cases:
    p = types.SimpleNamespace(is_cuda=cuda, dtype=getattr(torch, dtype))
    found.append(order_of(kind, {"params": [p], **options}))
print(json.dumps(found))
"""


def test_recorder_names_an_order_only_where_it_is_known():
    assert run_torch(ORDERS, ROOT / "packaging" / "wheel") == [
        "torch-cuda-fused", *[None] * 3, "torch-cuda-forloop", None, "torch-cuda-foreach", "torch-cpu-fused", "torch-cpu"]


@pytest.mark.parametrize("name", RUNS)
def test_recorder_writes_what_the_optimizer_sees(recorded, tmp_path, name):
    folder, seen, dtype = recorded[0] / name, recorded[1][name], RUNS[name]["dtype"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["optimizer"] == "adamw" and manifest["order"] == "torch-cpu"
    assert [g["params"] for g in manifest["param_groups"]] == \
        [["0.weight", "2.weight"], ["0.bias", "2.bias", "unused"]]
    assert [g["betas"] for g in manifest["param_groups"]] == [[0.8, 0.9]] * 2
    assert [g["weight_decay"] for g in manifest["param_groups"]] == [0.01, 0.0]
    assert [s["step"] for s in manifest["steps"]] == [7, 8, 9]
    assert sorted(p.name for p in folder.iterdir()) == \
        ["manifest.json", "step-00000007.pt", "step-00000008.pt", "step-00000009.pt"]
    for said, want in zip(manifest["steps"], seen):
        assert said["lr"] == want["lr"]
        out = tmp_path / "step.safetensors"
        run_tersor("convert", folder / said["file"], "-o", out, "--force", check=0)
        found = safetensors.deserialize(out.read_bytes())
        assert {name for name, _ in found} == set(want["grads"]) == \
            {"0.weight", "0.bias", "2.weight", "2.bias"}
        for name, t in found:
            kind = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}[t["dtype"]]
            assert np.dtype(kind).name == (dtype or "float32")
            values = np.frombuffer(t["data"], kind).astype(np.float32).reshape(t["shape"])
            assert np.array_equal(values, np.array(want["grads"][name], np.float32)), name
    assert [s["loss"] for s in manifest["steps"]] == [seen[0]["loss"], seen[1]["loss"], None]
    report = inspected(folder)
    assert report["totals"]["missing"] == 3     # the unused parameter's
    assert report["param_groups"][0]["hyperparameters"]["beta1"] == 0.8


@pytest.mark.parametrize("name", OTHERS)
def test_recorder_of_other_optimizers(recorded, name):
    report = inspected(recorded[0] / name)
    assert report["optimizer"] == name
    want = {"momentum": 0.9, "dampening": 0, "nesterov": 1} if name == "sgd" else {"eps": 1e-6}
    assert want.items() <= report["param_groups"][1]["hyperparameters"].items()


def test_recorder_refuses_what_it_cannot_record(recorded):
    folder, _, (changed, closure, again) = recorded
    assert "step 2" in changed and "hyperparameter" in changed
    assert "itself" in closure and "already" in again
    # What was recorded until then is a recording.
    assert inspected(folder / "changed")["totals"]["steps"] == 1


def test_a_killed_run_leaves_a_recording(recorded):
    """Whatever of the last step is there: files that no manifest names are not looked at."""
    folder = recorded[0] / "adam"
    (folder / "step-00000010.pt").write_bytes(b"half")
    (folder / "step-00000010.pt.tmp").write_bytes(b"half")
    (folder / "manifest.json.tmp").write_text("{")
    assert inspected(folder)["totals"]["last_step"] == 9


# ---- The same gradients in every form lead to the same checkpoint ----

def replayed(folder, out, *options):
    run_tersor("replay", DATA / "tiny-gpt" / "checkpoint.safetensors", folder, "-o", out, "--steps",
               "401..404", *options, check=0)
    return out.read_bytes()


def split(tensors, nranks, cut):
    """[({name: (dtype, shape, bytes)}, {name: offsets})] per rank: as torch.chunk() cuts rows."""
    parts = [({}, {}) for _ in range(nranks)]
    for name, t in tensors:
        raw = np.frombuffer(t["data"], np.uint16).reshape(t["shape"])
        d = cut % raw.ndim
        chunk = -(-raw.shape[d] // nranks)
        for r, (pieces, offsets) in enumerate(parts):
            start = min(r * chunk, raw.shape[d])
            piece = np.take(raw, range(start, min(start + chunk, raw.shape[d])), d)
            pieces[name] = (t["dtype"], list(piece.shape), piece.tobytes())
            offsets[name] = {"saved_offsets": [start if i == d else 0 for i in range(raw.ndim)]}
    return parts


def as_ranks(folder, nranks, cut):
    """The recording of tiny-gpt in a file per rank."""
    folder.mkdir()
    manifest = json.loads((RECORDING / "manifest.json").read_text())
    for step in manifest["steps"]:
        tensors = safetensors.deserialize((RECORDING / step.pop("file")).read_bytes())
        step["files"] = []
        for r, (pieces, offsets) in enumerate(split(tensors, nranks, cut)):
            header, data = {"__metadata__": {KEY: json.dumps(offsets)}}, b""
            for name, (dtype, shape, values) in pieces.items():
                header[name] = {"dtype": dtype, "shape": shape,
                                "data_offsets": [len(data), len(data) + len(values)]}
                data += values
            step["files"].append(f"step-{step['step']}-rank{r}")
            (folder / step["files"][-1]).write_bytes(safetensors_bytes(header, data))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("nranks, cut", [(1, 0), (3, 0), (5, 1), (100, 0)])
def test_replay_of_ranks(tmp_path, nranks, cut):
    whole = replayed(RECORDING, tmp_path / "whole.safetensors")
    assert replayed(as_ranks(tmp_path / "ranks", nranks, cut),
                    tmp_path / "ranks.safetensors") == whole
    assert whole != (DATA / "tiny-gpt" / "checkpoint.safetensors").read_bytes()


def test_replay_without_a_manifest(tmp_path):
    """What a manifest says can come from the command line and a schedule."""
    manifest = json.loads((RECORDING / "manifest.json").read_text())
    one, bare, schedule = tmp_path / "one", tmp_path / "bare", tmp_path / "lr.txt"
    one.mkdir()
    bare.mkdir()
    for step in manifest["steps"]:
        shutil.copy(RECORDING / step["file"], one)
        tensors = safetensors.deserialize((RECORDING / step["file"]).read_bytes())
        values = {name: tensor(np.frombuffer(t["data"], ml_dtypes.bfloat16).reshape(t["shape"]))
                  for name, t in tensors}
        (bare / f"grads{step['step']}.pt").write_bytes(pt(values))
        step["lr"] = step["lr"][:1]
    manifest["param_groups"] = [{"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}]
    (one / "manifest.json").write_text(json.dumps(manifest))
    schedule.write_text("".join(f"{s['step']} {s['lr'][0]!r}\n" for s in manifest["steps"]))
    options = ("--optimizer", "adamw", "--betas", "0.9,0.95", "--eps", "1e-8", "--weight-decay",
               "0.1", "--schedule", schedule)
    assert replayed(bare, tmp_path / "bare.safetensors", *options) == \
        replayed(one, tmp_path / "one.safetensors")
