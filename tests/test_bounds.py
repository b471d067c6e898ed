"""What the worst files cost, counted: work and memory are linear in the size of what is read.

build/counted/tersor counts operations and bytes allocated (tests/counted/counts.c), which depend neither on
the machine nor on its load.  Each case is made twice, the second of twice as many parts: that may cost
twice as much and a bit more for sorting, and neither may cost more than so much for each byte.
"""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import torchfile
import worst_cases
from conftest import BINARY, one_line_error, run_tersor, safetensors_bytes
from torchfile import Chunk, Sharded, converted, dcp, tensor

tmp_path = torchfile.tmp_path

COUNTED = os.environ.get("TERSOR_COUNTED", str(pathlib.Path(BINARY).parent / "counted" / "tersor"))

# What SECURITY.md promises: some twice what the costliest of these files need, which are
# pt_empty_lists with 523 operations and 79 bytes of memory for each byte, and pt_rank_64 with 598 operations to
# convert.  The first part is for what every run does, and for the buffers of a conversion.
OPERATIONS_FREE, OPERATIONS_PER_BYTE = 5e6, 1000
MEMORY_FREE, MEMORY_PER_BYTE = 40 << 20, 160

# Bytes that count besides those of the file: what is in it deflated, and names as often as they are given.
MORE = {
    "pt_deflated_pickle": lambda n: 100 * n,
    "pt_one_long_param_name": lambda n: n * len(worst_cases.LONG),
}

# Sorting takes a bit more than twice as long for twice as many; this is for one time.
GROWTH = 1.3

# Work that does not depend on what is in a file.
START = 1.5e6

INSPECT = ("inspect", "--opaque", "carry")
DRY_RUN = ("pack", "--dry-run", "--opaque", "carry", "-o", "OUT.safetensors")
TO_PT = ("convert", "--opaque", "carry", "-o", "OUT.pt")
TO_ST = ("convert", "--opaque", "carry", "-o", "OUT.safetensors")
DIFF = ("diff", "IN")
VERIFY = ("verify",)

# Function of worst_cases: parts, and commands, of which all but the first are for make check-long.  Parts are
# as few as show how cost grows.
LONG = os.environ.get("TERSOR_LONG")
CASES = {
    "st_tensors": (1500, INSPECT, DRY_RUN, TO_PT, DIFF),
    "st_metadata": (4000, INSPECT),
    "st_rank_64": (500, INSPECT, TO_PT),
    "st_names_with_a_common_prefix": (200, INSPECT, TO_PT),
    "st_escapes": (300, INSPECT),
    "st_brackets": (100000, INSPECT),
    "st_shape": (50000, INSPECT),
    "st_states": (250, INSPECT, DRY_RUN),
    "st_states_of_states": (150, INSPECT),
    "st_wrapped": (800, INSPECT),
    "pt_tensors": (300, INSPECT, DRY_RUN, TO_ST),
    "pt_views_of_one_storage": (1000, INSPECT, TO_ST),
    "pt_ties": (3000, INSPECT, TO_ST),
    "pt_rank_64": (300, INSPECT, TO_ST),
    "pt_a_long_key_of_many": (200, INSPECT, TO_PT),
    "pt_a_long_key_of_many_tensors": (100, INSPECT, TO_PT),
    "pt_a_long_text_in_many_places": (5000, INSPECT),
    "pt_a_long_text_in_many_sets": (1000, INSPECT),
    "pt_nested": (3000, INSPECT),
    "pt_deep": (20000, INSPECT),
    "pt_laughs": (1000, INSPECT),
    "pt_shared_lists": (500, INSPECT),
    "pt_nones": (20000, INSPECT),
    "pt_empty_lists": (10000, INSPECT),
    "pt_dict_items": (5000, INSPECT),
    "pt_keys": (4000, INSPECT, TO_PT),
    "pt_ints": (8000, INSPECT),
    "pt_objects": (1000, INSPECT, TO_PT),
    "pt_classes": (1000, INSPECT),
    "pt_deflated": (1 << 20, INSPECT, DRY_RUN),
    "pt_deflated_pickle": (1000, INSPECT),
    "pt_members": (1000, INSPECT),
    "pt_optimizer": (400, INSPECT, DRY_RUN),
    "pt_param_groups": (400, INSPECT, TO_PT),
    "pt_param_names": (400, INSPECT, TO_PT),
    "pt_one_long_param_name": (200, INSPECT),
    "pt_state_fields": (1000, INSPECT),
    "pt_optimizers": (400, INSPECT),
    "pt_one_optimizer_in_many_places": (100, INSPECT, DRY_RUN),
    "pt_wrappers": (2000, INSPECT),
    "npz_members": (1000, INSPECT, TO_ST),
    "npz_deflated": (1 << 20, INSPECT, DRY_RUN),
    "dcp_entries": (150, INSPECT),
    "dcp_chunks": (150, INSPECT, TO_ST),
    "dcp_grid": (1000, INSPECT),
    "dcp_pinwheel": (400, INSPECT),
    "dcp_chunks_of_rank_64": (200, INSPECT),
    "dcp_stairs": (500, INSPECT),
    "dcp_a_long_name_of_many_chunks": (500, INSPECT),
    "dcp_names_with_a_common_prefix": (250, INSPECT),
    "dcp_list_indices": (200, INSPECT),
    "dcp_a_long_key_of_many_paths": (200, INSPECT),
    "dcp_deep_paths": (50, INSPECT),
    "index_of_tensors": (1000, INSPECT),
    "index_of_shards": (100, INSPECT),
    "directory_of_copies": (1000, INSPECT, VERIFY),
    "directory_of_deep_paths": (100, VERIFY),
    "directory_of_packed": (500, VERIFY),
    "directory_of_parts": (1000, VERIFY),
    "recording_of_one_file": (1000, INSPECT),
    "recording_of_groups": (1000, INSPECT),
    "recording_of_new_names": (100, INSPECT),
    "zero_state_fields": (1000, INSPECT),
    "zero_state_numbers": (500, INSPECT),
    "zero_groups": (150, INSPECT),
    "zero_params": (500, INSPECT),
}


def nbytes_of(path):
    """A file's, or those of all files that are read with it."""
    folder = path if path.is_dir() else path.parent
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def cost(args, path, folder):
    """(operations, most memory at a time) of a command."""
    counts = folder / "counts"
    full = [str(path) if arg == "IN" else arg.replace("OUT", str(folder / "out")) for arg in args]
    done = subprocess.run([COUNTED, *full, path], env={**os.environ, "TERSOR_COUNTS": str(counts)},
                          capture_output=True, text=True, errors="replace", timeout=600)
    assert done.returncode in (0, 1, 3), done.stderr
    operations, memory, _ = map(int, counts.read_text().split())
    return operations, memory


@pytest.mark.parametrize("name, n, args", [(name, n, args) for name, (n, *commands) in CASES.items()
                                           for args in (commands if LONG else commands[:1])])
def test_cost_is_linear_in_size(name, n, args, tmp_path):
    found = []
    for parts in (n, 2 * n):
        folder = tmp_path / str(parts)
        (folder / "given").mkdir(parents=True)
        path = getattr(worst_cases, name)(folder / "given", parts)
        operations, memory = cost(args, path, folder)
        nbytes = nbytes_of(path) + MORE.get(name, lambda n: 0)(parts)
        assert operations < OPERATIONS_FREE + OPERATIONS_PER_BYTE * nbytes, (operations, nbytes)
        assert memory < MEMORY_FREE + MEMORY_PER_BYTE * nbytes, (memory, nbytes)
        found.append((nbytes, operations, memory))
    (nbytes, once, memory), (larger, twice, more) = found
    growth = GROWTH * max(2, larger / nbytes)
    assert twice < START + growth * once, found
    assert more < (2 << 20) + growth * memory, found


def test_every_worst_case_is_tried():
    made = {name for name in vars(worst_cases) if name.split("_")[0] in
            ("st", "pt", "npz", "dcp", "index", "directory", "recording", "zero") and "_" in name}
    assert made == set(CASES)


def test_an_operation_is_counted(tmp_path):
    """The counters count: a file of twice the size costs more than a little."""
    small, large = (cost(INSPECT, worst_cases.st_tensors(tmp_path, n), tmp_path) for n in (500, 5000))
    assert large[0] > 5 * small[0] and large[1] > 2 * small[1]


# ---- What the bounds need, seen from outside ----

def test_boxes_that_no_plane_parts_are_read(tmp_path):
    """Four strips around a square; ranks do not cut so, but the chunks do not overlap."""
    whole = np.arange(81, dtype=np.float32).reshape(9, 9)
    boxes = [((0, 0), (3, 6)), ((0, 6), (6, 3)), ((6, 3), (3, 6)), ((3, 0), (6, 3)), ((3, 3), (3, 3))]
    chunks = [Chunk(at, tensor(whole[at[0]:at[0] + size[0], at[1]:at[1] + size[1]].copy()))
              for at, size in boxes]
    source = dcp(tmp_path / "in", {"a": Sharded((9, 9), chunks)})
    assert converted(source, to=tmp_path / "out.safetensors")["a"][2] == whole.tobytes()


def test_chunks_that_overlap_behind_a_plane_are_refused(tmp_path):
    rows = [Chunk((i, 0), tensor(np.ones((1, 4), np.float32))) for i in range(2)]
    rows += [Chunk((2, 0), tensor(np.ones((2, 3), np.float32))),
             Chunk((3, 2), tensor(np.ones((1, 2), np.float32)))]
    source = dcp(tmp_path / "in", {"a": Sharded((4, 4), rows)})
    assert "overlap" in one_line_error(run_tersor("inspect", source, check=3))


def test_lists_have_a_place_for_what_is_missing(tmp_path):
    source = dcp(tmp_path / "in", {"a": 1, "b": 2}, paths={"a": ("x", 3), "b": ("x", 1)})
    out = tmp_path / "out.pt"
    run_tersor("convert", source, "-o", out, check=0)
    assert torchfile.load(out)["x"] == [None, 2, None, 1]


@pytest.mark.parametrize("index, status", [(65535, 0), (65567, 0), (65568, 3), (2 ** 63, 3)])
def test_lists_have_no_more_places_than_entries_can_fill(index, status, tmp_path):
    source = dcp(tmp_path / "in", {"a": 1, "b": 2}, paths={"a": ("x", index), "b": ("y",)})
    done = run_tersor("inspect", source, check=status)
    assert status == 0 or "limit of 65536 places" in one_line_error(done)


def test_states_of_a_group_have_a_limit(tmp_path):
    for n, status in ((64, 0), (65, 3)):
        folder = tmp_path / str(n)
        folder.mkdir()
        done = run_tersor("inspect", worst_cases.zero_state_fields(folder, n), check=status)
        assert status == 0 or "65 states are over the limit of 64" in one_line_error(done)


def test_deflated_data_is_inflated_when_it_is_read(tmp_path):
    """Into $TMPDIR, where there is no place."""
    for make in (worst_cases.pt_deflated, worst_cases.npz_deflated):
        path, env = make(tmp_path, 1000), {"TMPDIR": str(tmp_path / "nowhere")}
        run_tersor("inspect", path, env=env, check=0)
        run_tersor("pack", "--dry-run", path, "-o", tmp_path / "out.safetensors", env=env, check=0)
        assert "cannot make a scratch file" in one_line_error(
            run_tersor("convert", path, "-o", tmp_path / "out.safetensors", env=env, check=4))


def test_a_deflated_pickle_may_be_64_times_as_long(tmp_path):
    path = worst_cases.pt_deflated_pickle(tmp_path, 200000)
    assert "over the limit of 64 times and 16 MiB" in one_line_error(run_tersor("inspect", path, check=3))


def test_steps_with_the_same_file_are_counted_one_by_one(tmp_path):
    report = json.loads(run_tersor("inspect", "--json", worst_cases.recording_of_one_file(tmp_path, 5),
                                   check=0).stdout)
    assert len(report["steps"]) == 5 and {step["nbytes"] for step in report["steps"]} == {20}


@pytest.mark.parametrize("lists, word", [([["a", "a"]], "twice"), ([["a"], ["a", "b"]], "among other files"),
                                         ([["a", "b"], ["b", "a"]], "among other files"),
                                         ([["a", "b"], ["c", "a"]], "among other files")])
def test_a_file_is_in_steps_with_the_same_files(lists, word, tmp_path):
    path = worst_cases.recording(tmp_path, [
        {"step": i + 1, "files": [f"{name}.safetensors" for name in files]} for i, files in enumerate(lists)],
        [{"lr": 0.1}], ["w"])
    for name in "bc":
        (path / f"{name}.safetensors").write_bytes(safetensors_bytes({}))
    assert word in one_line_error(run_tersor("inspect", path, check=3))


def test_leftover_data_files_of_a_checkpoint_are_named(tmp_path):
    source = dcp(tmp_path / "in", {"a": torchfile.whole(tensor(np.ones(3, np.float32)))}, files=("empty.distcp",))
    assert "distcp" not in run_tersor("inspect", source, check=0).stderr
    (source / "__7_0.distcp").write_bytes(b"old")
    for args in (["inspect"], ["convert", "-o", tmp_path / "out.safetensors"]):
        assert "__7_0.distcp is not named by .metadata (1 such" in run_tersor(*args, source, check=0).stderr


def test_diff_goes_on_behind_a_file_that_cannot_be_read(tmp_path):
    source, packed = tmp_path / "source", tmp_path / "packed"
    source.mkdir()
    for name in "abc":
        (source / f"{name}.safetensors").write_bytes(safetensors_bytes(
            {"w": {"dtype": "F32", "shape": [5000], "data_offsets": [0, 20000]}},
            np.linspace(0, 1, 5000, dtype=np.float32).tobytes()))
    run_tersor("pack", source, "-o", packed, check=0)
    (source / "b.safetensors").write_bytes(b"\xff" * 100)
    done = run_tersor("diff", source, packed, check=3)
    assert "3 files compared: 3 differ" in done.stdout and "c.safetensors" in done.stdout
    assert "1 of 3 entries cannot be read" in one_line_error(done)


def test_two_entries_of_an_index_have_no_file_in_common(tmp_path):
    path = worst_cases.packed_directory(tmp_path, [
        worst_cases.packed_entry(".metadata", ["dcp.tersor"], kind="dcp"), worst_cases.packed_entry("dcp")])
    assert "names that no other entry's file has" in one_line_error(run_tersor("verify", path, check=3))


def test_sizes_of_an_index_do_not_wrap(tmp_path):
    path = worst_cases.packed_directory(tmp_path, [
        worst_cases.copied(f"{i:05}", nbytes=2 ** 48 - 1) for i in range(20000)])
    assert "below 2^63" in one_line_error(run_tersor("verify", path, check=3))
