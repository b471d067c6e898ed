# SPDX-License-Identifier: Apache-2.0
"""The tests of each file of the parsers and of the file layer: unit tests, fuzz targets, tests from outside."""
import re

MODULES = ("src/format", "src/torch", "src/container", "src/text", "src/io")

# Of each row whose pattern fits a file, in this order.  Quick ones come first.
TESTS = (
    (r"text/json|text/base64", "test_json test_text", "json index safetensors", "test_safetensors test_sharded test_hostile"),
    (r"text/(map|named)", "test_map test_names test_value", "json pickle", "test_hostile test_sharded"),
    (r"text/(text|shape)", "test_text test_json test_npy", "npy safetensors", "test_npy test_sharded"),
    (r"format/safetensors", "", "safetensors packed", "test_sharded test_safetensors test_io"),
    (r"format/shard_index", "test_index", "index", "test_sharded"),
    (r"format/npy", "test_npy", "npy", "test_npy"),
    (r"format/zip_write", "test_zip_write test_zip", "zip", "test_npy test_torch_write"),
    (r"format/zip_", "test_zip test_zip_refused", "zip torch npy", "test_npy test_torch"),
    (r"format/(pickle|value)", "test_pickle test_pickle_write test_value test_pickle_limits", "pickle torch dcp",
     "test_opaque test_torch_write test_hostile"),
    (r"torch/dcp", "test_dcp", "dcp", "test_dcp test_dcp_write"),
    (r"torch/torch", "test_torch test_torch_refused", "torch dcp", "test_opaque test_torch_write test_torch"),
    (r"container/dcp", "test_dcp", "dcp", "test_dcp_write test_dcp"),
    (r"container/npy", "test_npy", "npy", "test_npy"),
    (r"container/(tree|packed)", "", "packed", "test_opaque test_reader test_companion test_format"),
    (r"container/(foreign|hf_parts|containers|file_head)", "", "packed torch npy",
     "test_frameworks test_commands test_hostile_directories test_safetensors test_npy test_torch"),
    (r"container/(safetensors|sharded|outputs|writer)", "", "safetensors",
     "test_sharded test_commands test_companion test_safetensors"),
    (r"io/(atomic_dir|dir|node)", "test_atomic_dir", "directory", "test_directory test_hostile_directories test_frameworks"),
    (r"io/", "test_file test_crc test_atomic_dir", "", "test_surroundings test_commands test_replay test_io"),
)

# What takes longest and no module depends on: inputs of 100 MB, and faults that other tests make too.
SHORT = ("-k", "not 100_mb and not million and not 4_gib and not random_points and not real_checkpoint "
               "and not bit_flip and not every_truncation and not every_allocation")


def of(path):
    """(unit tests, fuzz targets, test files) of a source file."""
    for pattern, *tests in TESTS:
        if re.search(f"src/{pattern}", path):
            return [names.split() for names in tests]
    raise KeyError(path)


def programs(units=None, fuzz=None):
    """What make builds for these tests, or for all."""
    if units is None:
        units = sorted({name for row in TESTS for name in row[1].split()})
        fuzz = sorted({name for row in TESTS for name in row[2].split()})
    return [f"build/tests/{name}" for name in units] + [f"build/tests/fuzz_{name}" for name in fuzz]
