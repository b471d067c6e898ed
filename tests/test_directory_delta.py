"""Deltas of directories: `pack DIR --delta PACKED_DIR`, and what reads them."""
import json
import re
import shutil

import pytest

from conftest import one_line_error, run_tersor
from test_delta import edited, training
from test_directory import TRAINER, tree
from test_entropy import quiet

DEEP = "optimizer/rank0"


def checkpoints(folder, steps=3):
    """Directories of a run: a model, a state two directories deep, and a file without tensors."""
    for i, path in enumerate(training(folder, steps)):
        step = folder / f"step{i}"
        (step / DEEP).mkdir(parents=True)
        shutil.copy(path, step / "model.safetensors")
        path.rename(step / DEEP / "state.safetensors")
        (step / "config.json").write_text(json.dumps({"step": i}))
    return [folder / f"step{i}" for i in range(steps)]


def pack(source, out, *options):
    quiet("pack", source, "-o", out, *options)
    return out


def size(packed):
    return sum(len(data) for data in tree(packed).values() if data is not None)


def packed_chain(folder, steps=3):
    sources = checkpoints(folder, steps)
    out = [pack(sources[0], folder / "p0", "--entropy")]
    for i in range(1, steps):
        out.append(pack(sources[i], folder / f"p{i}", "--delta", out[-1]))
    return sources, out


def unpacked(packed, out, *options):
    quiet("unpack", packed, "-o", out, *options)
    return tree(out)


def test_a_chain_of_directories_comes_back(tmp_path):
    sources, packed = packed_chain(tmp_path)
    for i in 1, 2:
        alone = pack(sources[i], tmp_path / f"alone{i}", "--entropy")
        assert size(packed[i]) < 0.9 * size(alone)
        quiet("verify", packed[i])
        quiet("verify", packed[i], "--against", sources[i])
        assert unpacked(packed[i], tmp_path / f"u{i}") == unpacked(alone, tmp_path / f"a{i}")
    inspected = json.loads(run_tersor("inspect", packed[2] / DEEP / "state.safetensors.tersor", "--json=-").stdout)
    assert [base["depth"] for base in inspected["bases"]] == [2, 1]
    assert run_tersor("diff", packed[1], packed[2], check=1).stderr == ""


def test_bases_are_named_by_short_paths_and_behind_links(tmp_path):
    _, packed = packed_chain(tmp_path)
    name = f"{DEEP}/state.safetensors.tersor"

    def bases(path, **where):
        return [base["file"] for base in json.loads(run_tersor("inspect", path, "--json=-", check=0, **where).stdout)["bases"]]

    assert bases(packed[2] / name) == [str(packed[1] / name), str(packed[0] / name)]
    assert bases(f"p2/{name}", cwd=tmp_path) == [f"p1/{name}", f"p0/{name}"]
    assert bases(name, cwd=packed[2])[0].endswith(f"../p1/{name}")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "latest").symlink_to(packed[2])
    (tmp_path / "links" / "p1").mkdir()
    assert len(bases(tmp_path / "links" / "latest" / name)) == 2
    quiet("verify", tmp_path / "links" / "latest")


def test_one_file_of_a_delta_is_read_by_itself(tmp_path):
    _, packed = packed_chain(tmp_path, 2)
    quiet("unpack", packed[1] / DEEP / "state.safetensors.tersor", "-o", tmp_path / "state.safetensors")
    quiet("unpack", packed[1], "-o", tmp_path / "all")
    assert (tmp_path / "state.safetensors").read_bytes() == (tmp_path / "all" / DEEP / "state.safetensors").read_bytes()


def test_a_packed_directory_becomes_the_same_delta(tmp_path):
    sources, packed = packed_chain(tmp_path, 2)
    again = pack(pack(sources[1], tmp_path / "plain"), tmp_path / "again", "--delta", f"{packed[0]}/")
    name = f"{DEEP}/state.safetensors.tersor"
    assert (again / name).read_bytes() == (packed[1] / name).read_bytes()
    quiet("convert", "--plain", again, "-o", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(tmp_path / "plain")


def test_bases_that_moved_are_named_by_their_directory(tmp_path):
    _, packed = packed_chain(tmp_path)
    before = unpacked(packed[1], tmp_path / "before")
    (tmp_path / "elsewhere").mkdir()
    moved = packed[0].rename(tmp_path / "elsewhere" / "renamed")
    for command in ("verify", packed[1]), ("unpack", packed[1], "-o", tmp_path / "x"):
        line = one_line_error(run_tersor(*command))
        assert "p0/" in line and line.endswith("which is missing; --base names it where it is"), line
    quiet("verify", packed[1], "--base", moved)
    assert unpacked(packed[1], tmp_path / "after", "--base", moved) == before
    state = packed[1] / DEEP / "state.safetensors.tersor"
    quiet("verify", state, "--base", moved)
    quiet("verify", state, "--base", moved / DEEP / "state.safetensors.tersor")
    # Another checkpoint of the same names is no base.
    other = pack(tmp_path / "step2", tmp_path / "other")
    refused = run_tersor("verify", packed[1], "--base", other)
    assert refused.returncode == 3 and "is not what" in refused.stdout + refused.stderr


def test_parts_make_the_same_delta(tmp_path):
    sources, packed = packed_chain(tmp_path, 2)
    command = "pack", sources[1], "-o", tmp_path / "parts", "--delta", packed[0]
    for i in 1, 2, 3:
        quiet(*command, "--part", f"{i}/3")
    run_tersor("join", tmp_path / "parts", check=0)
    assert tree(tmp_path / "parts") == tree(packed[1])


def test_what_differs_is_said(tmp_path):
    sources, packed = packed_chain(tmp_path, 2)
    shutil.copy(sources[1] / "model.safetensors", sources[1] / "new.safetensors")
    done = run_tersor("pack", sources[1], "-o", tmp_path / "p", "--delta", packed[0], f"--json={tmp_path}/j.json",
                      check=0)
    assert re.search(r"^delta to .*p0: 2 of 3 packed files differ from theirs$", done.stdout, re.M), done.stdout
    assert done.stderr == ""
    assert json.loads((tmp_path / "j.json").read_text())["delta"] == {"base": str(packed[0]), "files": 2}
    quiet("verify", tmp_path / "p")
    (tmp_path / "away").mkdir()
    told = run_tersor("pack", sources[1], "-o", tmp_path / "away" / "p", "--delta", packed[0], check=0)
    assert told.stderr.endswith(f"its base is not beside it: move it to where {packed[0]} is, or read it with --base\n")
    for path in sources[1].rglob("*.safetensors"):
        path.rename(path.with_name(f"renamed-{path.name}"))
    for options, status in ((), 0), (("--strict",), 1):
        told = run_tersor("pack", sources[1], "-o", tmp_path / "q", "-f", "--delta", packed[0], *options, check=status)
        assert "q: is no smaller than without --delta: " in told.stderr


def test_a_delta_of_a_real_directory_to_itself(tmp_path):
    base = pack(TRAINER, tmp_path / "base", "--entropy")
    delta = pack(TRAINER, tmp_path / "delta", "--delta", base)
    assert unpacked(delta, tmp_path / "u") == unpacked(base, tmp_path / "v")
    packed = sorted(path.relative_to(base) for path in base.rglob("*.tersor"))
    assert packed and all((delta / name).stat().st_size < 0.8 * (base / name).stat().st_size for name in packed)


@pytest.mark.parametrize("base, words", [
    ("step0", "is not a packed directory"), ("p0/model.safetensors.tersor", "is not a packed directory"),
    ("p0/.", "does not end in a name"), ("gone", "is not a packed directory")])
def test_what_is_no_base_of_a_directory_is_refused(tmp_path, base, words):
    sources, _ = packed_chain(tmp_path, 2)
    refused = run_tersor("pack", sources[1], "-o", tmp_path / "x", "--delta", f"{tmp_path}/{base}")
    assert refused.returncode in (2, 3) and words in refused.stderr, refused.stderr
    assert not (tmp_path / "x").exists()


def test_a_base_is_not_replaced(tmp_path):
    sources, packed = packed_chain(tmp_path, 2)
    before = tree(packed[0])
    for out in packed[0], packed[0] / "below":
        refused = run_tersor("pack", sources[1], "-f", "-o", out, "--delta", packed[0])
        assert re.search("output (would replace|is inside)", one_line_error(refused)), refused.stderr
        assert tree(packed[0]) == before


def test_a_chain_of_directories_has_a_limit(tmp_path):
    sources, packed = packed_chain(tmp_path)
    refused = run_tersor("pack", sources[0], "-o", tmp_path / "x", "--delta", packed[2], "--max-chain", 2)
    assert refused.returncode != 0 and "--max-chain allows more" in refused.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["..", "../p0", "../../p0/x", "../p0/../p0/x", "../p0/a/b", "../p0//x", "../",
                                  "p0/x", "../p0/", "../" * 66 + "a/" * 66 + "x"])
def test_names_of_bases_that_lead_elsewhere_are_refused(tmp_path, name):
    _, packed = packed_chain(tmp_path, 2)
    path = packed[1] / "model.safetensors.tersor"
    edited(path, lambda text: text["base"].update(name=name))
    refused = run_tersor("inspect", path)
    assert refused.returncode == 3 and "base is not the name of a file" in one_line_error(refused)


def test_a_file_that_could_have_several_bases_has_none(tmp_path):
    sources, _ = packed_chain(tmp_path, 2)
    for i, source in enumerate(sources):
        model = source / "model.safetensors"
        for rank in (0, 1) if i == 0 else (1, 2):
            shutil.copy(model, source / f"rank_{rank}.safetensors")
    pack(sources[0], tmp_path / "ranks0", "--entropy")
    packed = pack(sources[1], tmp_path / "ranks1", "--delta", tmp_path / "ranks0")
    bases = {rank: json.loads(run_tersor("inspect", packed / f"rank_{rank}.safetensors.tersor", "--json=-").stdout).get("bases")
             for rank in (1, 2)}
    assert bases[1][0]["file"].endswith("ranks0/rank_1.safetensors.tersor") and not bases[2]


def test_names_with_the_number_of_a_step_find_their_base(tmp_path):
    sources, _ = packed_chain(tmp_path, 2)
    packed = []
    for i, source in enumerate(sources):
        (source / "global_step").mkdir()
        for rank in 0, 1:
            shutil.copy(source / "model.safetensors", source / "global_step" / f"rank_{rank}.safetensors")
        (source / "global_step").rename(source / f"global_step{99 + i}")
        (source / "model.safetensors").rename(source / f"model-{i}.safetensors")
        packed.append(pack(source, tmp_path / f"run{i}", *(("--delta", packed[0]) if packed else ("--entropy",))))
    quiet("verify", packed[1], "--against", sources[1])
    bases = {str(path.relative_to(packed[1])): json.loads(run_tersor("inspect", path, "--json=-").stdout)["bases"]
             for path in packed[1].rglob("*.tersor")}
    assert {name: base[0]["file"].split("run0/")[-1] for name, base in bases.items()} == {
        "global_step100/rank_0.safetensors.tersor": "global_step99/rank_0.safetensors.tersor",
        "global_step100/rank_1.safetensors.tersor": "global_step99/rank_1.safetensors.tersor",
        "model-1.safetensors.tersor": "model-0.safetensors.tersor",
        f"{DEEP}/state.safetensors.tersor": f"{DEEP}/state.safetensors.tersor"}
