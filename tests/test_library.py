"""libtersor as its users have it: examples/pack.c in C and C++, and the shared library by ctypes."""
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from conftest import BINARY, ROOT
from safetensors.numpy import save_file

BUILD = pathlib.Path(BINARY).resolve().parent
LIBRARY = BUILD / "libtersor.so"
HEADERS = ROOT / "include" / "tersor"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="only the tool is built")


def built(tmp_path, compiler, source):
    """A program that is linked with the shared library."""
    if not shutil.which(compiler[0]):
        pytest.skip(f"no {compiler[0]}")
    (tmp_path / "libtersor.so.1").symlink_to(LIBRARY)
    program = tmp_path / "program"
    subprocess.run([*compiler, "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}",
                    source, "-x", "none", tmp_path / "libtersor.so.1",
                    f"-Wl,-rpath,{tmp_path}", "-o", program], check=True)
    return program


@pytest.mark.parametrize("compiler", [["gcc", "-std=c11"], ["g++", "-std=c++17", "-x", "c++"]],
                         ids=["C", "C++"])
def test_the_example_packs_as_the_tool_does(compiler, tiny_gpt, tersor, tmp_path):
    program = built(tmp_path, compiler, ROOT / "examples" / "pack.c")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    done = subprocess.run([program, tiny_gpt, ours], capture_output=True, text=True, check=True)
    tersor("pack", tiny_gpt, "-o", theirs, check=0)
    assert ours.read_bytes() == theirs.read_bytes()
    found = re.fullmatch(r"(\d+) tensors\n(\d+) bytes, worst error (\S+)\n", done.stdout)
    assert int(found[1]) > 0 and int(found[2]) == ours.stat().st_size
    assert 0 < float(found[3]) < 0.1
    done = subprocess.run([program, tiny_gpt, ours], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"cannot pack: {ours}: output exists (force replaces an existing output)\n"


# --- By ctypes, as a binding would -----------------------------------------------------------


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("msg", ctypes.c_char * 1024), ("hint", ctypes.c_int)]


@pytest.fixture(scope="module")
def library():
    return ctypes.CDLL(str(LIBRARY))


def strings(*paths):
    return (ctypes.c_char_p * len(paths))(*(os.fsencode(path) for path in paths))


def test_the_version_is_that_of_the_headers(library):
    library.tsr_version.restype = ctypes.c_char_p
    version = library.tsr_version().decode()
    assert f'"{version}"' in (HEADERS / "version.h").read_text()
    major, minor, patch = map(int, version.split("."))
    assert library.tsr_version_number() == 10000 * major + 100 * minor + patch


def test_only_what_the_headers_declare_is_exported(library):
    assert library.tsr_pack
    for internal in ("tsr_json_read", "tsr_arena_new", "tsr_fail", "tsr_zip_open"):
        with pytest.raises(AttributeError):
            getattr(library, internal)


class Checkpoint:
    """An open checkpoint; its functions without their common beginning."""

    def __init__(self, library, path):
        self.library, self.handle, self.err = library, ctypes.c_void_p(), Err()
        status = library.tsr_checkpoint_open(strings(path), 1, None, ctypes.byref(self.handle),
                                             ctypes.byref(self.err))
        assert status == 0, self.err.msg

    def __getattr__(self, name):
        function = self.library["tsr_checkpoint_" + name]  # a new object, with types of its own

        def call(*args, restype=ctypes.c_size_t):
            function.restype = restype
            return function(self.handle, *args)
        return call


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_uint),
                ("shape", ctypes.POINTER(ctypes.c_uint64)), ("numel", ctypes.c_uint64)]


def header_of(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8:8 + size]), content[8 + size:]


def test_a_checkpoint_is_opened_searched_and_read(library, tiny_gpt, tersor, tmp_path):
    packed = tmp_path / "packed"
    tersor("pack", tiny_gpt, "-o", packed, check=0)
    header, data = header_of(tiny_gpt)
    meta = header.pop("__metadata__", {})
    plain = Checkpoint(library, tiny_gpt)
    both = [(plain, False), (Checkpoint(library, packed), True)]
    for c, is_packed in both:
        assert c.ntensors() == len(header) and c.nnotes() == 0
        assert c.tensor(ctypes.c_size_t(len(header)), restype=ctypes.c_void_p) is None
        assert c.find(b"no such tensor", restype=ctypes.c_void_p) is None
        assert c.is_packed(restype=ctypes.c_bool) == is_packed
        assert c.generation(restype=ctypes.c_uint) == is_packed
        assert c.container(restype=ctypes.c_int) == 0 and c.nmeta() == len(meta)
    assert plain.path(restype=ctypes.c_char_p) == os.fsencode(tiny_gpt)
    name, entry = next((n, e) for n, e in header.items() if e["dtype"] == "F32" and len(e["shape"]) > 1)
    begin, end = entry["data_offsets"]
    wanted = np.frombuffer(data[begin:end], "<f4")
    for c, is_packed in both:
        t = c.find(name.encode(), restype=ctypes.POINTER(Tensor))
        assert list(t.contents.shape[:t.contents.rank]) == entry["shape"]
        assert t.contents.numel == wanted.size
        x = np.zeros(wanted.size - 3, "<f4")
        read = [t, ctypes.c_uint64(3), ctypes.c_size_t(x.size), x.ctypes.data_as(ctypes.c_void_p),
                ctypes.byref(c.err)]
        assert c.read_f32(*read, restype=ctypes.c_int) == 0
        assert np.abs(x - wanted[3:]).max() < 1e-3 and (is_packed or (x == wanted[3:]).all())
        read[1] = ctypes.c_uint64(4)
        assert c.read_f32(*read, restype=ctypes.c_int) == 1 and b"past its end" in c.err.msg
    raw = ctypes.create_string_buffer(8)
    read = [plain.find(name.encode(), restype=ctypes.c_void_p), 0, ctypes.c_uint64(4),
            ctypes.c_size_t(8), raw, ctypes.byref(plain.err)]
    read[0] = ctypes.c_void_p(read[0])
    assert plain.read_stored(*read, restype=ctypes.c_int) == 0
    assert raw.raw == data[begin + 4:begin + 12]
    read[1] = 1
    assert plain.read_stored(*read, restype=ctypes.c_int) == 1
    for c, _ in both:
        c.close(restype=None)


def outcome(library, name, *args):
    """The status of a function and what it returned, a handle."""
    handle, err = ctypes.c_void_p(), Err()
    return library[name](*args, ctypes.byref(handle), ctypes.byref(err)), handle, err


def test_pack_verify_and_compare_by_default(library, tiny_gpt, tersor, tmp_path):
    ours, theirs = os.fsencode(tmp_path / "ours"), tmp_path / "theirs"
    tersor("pack", tiny_gpt, "-o", theirs, check=0)
    for name in ("tsr_packing_nbytes", "tsr_comparison_ndiffering", "tsr_unpacking_nbytes",
                 "tsr_verification_nfaults"):
        library[name].restype = ctypes.c_uint64
    library.tsr_packing_tensor.restype = library.tsr_verification_tensor.restype = ctypes.c_void_p
    library.tsr_packing_source.restype = library.tsr_comparison_tensor.restype = ctypes.c_void_p

    status, packing, err = outcome(library, "tsr_pack", strings(tiny_gpt), 1, ours, None, None)
    assert status == 0, err.msg
    assert (tmp_path / "ours").read_bytes() == theirs.read_bytes()
    assert library.tsr_packing_nbytes(packing) == theirs.stat().st_size
    assert library.tsr_packing_generation(packing) == 1 and library.tsr_packing_source(packing)
    assert library.tsr_packing_tensor(packing, ctypes.c_size_t(0))
    assert not library.tsr_packing_tensor(packing, ctypes.c_size_t(10**6))
    library.tsr_packing_free(packing)
    status, _, err = outcome(library, "tsr_pack", strings(tiny_gpt), 1, ours, None, None)
    assert status == 5 and err.hint == 1 and b"--" not in err.msg  # TSR_E_IO, TSR_HINT_FORCE

    status, verification, err = outcome(library, "tsr_verify", ours, None, None)
    assert status == 0, err.msg
    assert library.tsr_verification_nfaults(verification) == 0
    assert library.tsr_verification_tensor(verification, ctypes.c_size_t(0))
    assert not library.tsr_verification_tensor(verification, ctypes.c_size_t(10**6))
    library.tsr_verification_free(verification)

    status, comparison, err = outcome(library, "tsr_diff", strings(tiny_gpt), 1,
                                      strings(tmp_path / "ours"), 1, None, None)
    assert status == 0, err.msg
    n = library.tsr_comparison_ntensors(comparison)
    assert 0 < library.tsr_comparison_ndiffering(comparison) <= n
    assert library.tsr_comparison_tensor(comparison, ctypes.c_size_t(n - 1))
    assert not library.tsr_comparison_tensor(comparison, ctypes.c_size_t(n))
    library.tsr_comparison_free(comparison)

    back = tmp_path / "back"
    status, unpacking, err = outcome(library, "tsr_unpack", ours, os.fsencode(back), None, None)
    assert status == 0, err.msg
    assert library.tsr_unpacking_nbytes(unpacking) == back.stat().st_size
    assert library.tsr_unpacking_container(unpacking) == 0
    library.tsr_unpacking_free(unpacking)


def test_replay_by_default(library):
    data = ROOT / "tests" / "data" / "tiny-gpt"
    library.tsr_replay_step.restype = library.tsr_replay_failed_gate.restype = ctypes.c_void_p
    library.tsr_replay_param.restype = ctypes.c_char_p
    status, replay, err = outcome(library, "tsr_replay", strings(data / "checkpoint.safetensors"), 1,
                                  os.fsencode(data / "recording"), None, None, None)
    assert status == 0, err.msg
    n = library.tsr_replay_nsteps(replay)
    assert n > 0 and library.tsr_replay_nparams(replay) > 0 and library.tsr_replay_nmissing(replay) == 0
    assert library.tsr_replay_step(replay, ctypes.c_size_t(n - 1))
    assert not library.tsr_replay_step(replay, ctypes.c_size_t(n))
    assert library.tsr_replay_param(replay, ctypes.c_size_t(0))
    assert library.tsr_replay_gpus(replay, ctypes.byref(ctypes.c_void_p())) == 0
    assert not library.tsr_replay_failed_gate(replay, ctypes.byref(ctypes.c_size_t()),
                                              ctypes.byref(ctypes.c_size_t()))
    library.tsr_replay_free(replay)


FOUND = r"""
#include <stdio.h>
#include "tersor.h"
int main(int argc, char **argv)
{
	const char *const *path = (const char *const *)argv;
	struct tsr_verify_options v = tsr_verify_defaults();
	struct tsr_replay_options o = tsr_replay_defaults();
	struct tsr_verification *verified = NULL;
	struct tsr_comparison *compared = NULL;
	struct tsr_replay *replayed = NULL;
	const struct tsr_value_difference *d;
	const struct tsr_replay_missing *m;
	const struct tsr_numerics_warning *w;
	v.against = &path[2];
	v.nagainst = 1;
	o.check_numerics = true;
	if (argc != 4 || tsr_verify(argv[1], &v, NULL, &verified, NULL) != TSR_E_BOUND ||
	    tsr_diff(&path[1], 1, &path[2], 1, NULL, NULL, &compared, NULL) != TSR_OK ||
	    tsr_replay(&path[2], 1, path[3], NULL, &o, NULL, &replayed, NULL) != TSR_OK)
		return 1;
	printf("%d missing\n", (int)tsr_verification_nmissing(verified));
	for (int i = 0; (d = tsr_verification_value(verified, i)); i++)
		printf("%d: %s %s %s\n", (int)tsr_verification_nvalues(verified), d->where, d->a, d->b);
	for (int i = 0; (d = tsr_comparison_value(compared, i)); i++)
		printf("%d: %s %s %s\n", (int)tsr_comparison_nvalues(compared), d->where, d->a, d->b);
	for (int i = 0; (m = tsr_replay_missing(replayed, i)); i++)
		printf("%d: %s from %d, %d steps\n", (int)tsr_replay_nmissing(replayed), m->name, (int)m->first,
		       (int)m->nsteps);
	for (int i = 0; (w = tsr_replay_warning(replayed, i)); i++)
		printf("%d: step %d, %s, %g, %g\n", (int)tsr_replay_nwarnings(replayed), (int)w->step,
		       tsr_replay_param(replayed, w->param), w->largest, w->lr);
	tsr_verification_free(verified);
	tsr_comparison_free(compared);
	tsr_replay_free(replayed);
	return 0;
}
"""


def test_what_was_found_is_all_there(tmp_path, tersor):
    """What differs besides tensors, what is missing, what was not stepped and what cannot move."""
    w, recording = np.full(8, 100, np.float32), tmp_path / "recording"
    save_file({"a": w}, tmp_path / "less", {"k": "1"})
    save_file({"a": w, "b": w}, tmp_path / "more", {"k": "2"})
    tersor("pack", tmp_path / "less", "-o", tmp_path / "packed", check=0)
    recording.mkdir()
    (recording / "manifest.json").write_text(json.dumps({
        "format": "tersor-recording", "version": 1, "optimizer": "sgd", "param_groups": [{"params": ["a", "b"]}],
        "steps": [{"step": i, "file": f"{i}", "lr": [1e-9]} for i in (1, 2)]}))
    save_file({"a": w, "b": w}, recording / "1")
    save_file({"a": w}, recording / "2")
    (tmp_path / "found.c").write_text(FOUND)
    program = built(tmp_path, ["gcc", "-std=c11"], tmp_path / "found.c")
    found = subprocess.run([program, tmp_path / "packed", tmp_path / "more", recording], capture_output=True,
                           text=True, check=True).stdout
    assert found == """1 missing
1: __metadata__.k "1" "2"
1: __metadata__.k "1" "2"
1: b from 2, 1 steps
2: step 1, a, 100, 1e-09
2: step 1, b, 100, 1e-09
"""


@pytest.mark.parametrize("content, code, words", [
    (None, 5, "in: cannot open: No such file"), (b"not a checkpoint", 2, "in: "),
])
def test_failures_have_codes_and_messages(content, code, words, library, tmp_path):
    path, checkpoint, err = tmp_path / "in", ctypes.c_void_p(), Err()
    if content is not None:
        path.write_bytes(content)
    assert library.tsr_checkpoint_open(strings(path), 1, None, ctypes.byref(checkpoint),
                                       ctypes.byref(err)) == code
    assert err.code == code and words in err.msg.decode() and not checkpoint
