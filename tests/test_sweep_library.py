"""tersor sweep --library: functions that cc compiles here, with planted bugs, crashes and other misbehaviour."""
import csv
import json
import shutil
import subprocess
import time

import numpy as np
import pytest

from conftest import ROOT, one_line_error, run_tersor

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no cc")

MISBEHAVING = r"""
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define F(name) void name(const float *in, void *out, size_t n)
F(same) { memcpy(out, in, 4 * n); }
F(twice) { for (size_t i = 0; i < n; i++) ((float *)out)[i] = in[i] + in[i]; }
F(low_byte) { for (size_t i = 0; i < n; i++) { uint32_t x; memcpy(&x, &in[i], 4); ((uint8_t *)out)[i] = (uint8_t)x; } }
F(low_byte_off) { low_byte(in, out, n); for (size_t i = 0; i < n; i++) ((uint8_t *)out)[i] ^= in[i] == 1.5f ? 6 : 0; }
F(to_f16) { for (size_t i = 0; i < n; i++) ((_Float16 *)out)[i] = (_Float16)in[i]; }
F(one_off) { same(in, out, n); for (size_t i = 0; i < n; i++) { uint32_t *y = (uint32_t *)out + i; *y ^= *y == 0x3f800100; } }
F(no_nan) { for (size_t i = 0; i < n; i++) ((float *)out)[i] = in[i] == in[i] ? in[i] : 0; }
F(minus_zero) { for (size_t i = 0; i < n; i++) ((float *)out)[i] = in[i] == 0 ? -in[i] : in[i]; }
F(crashes) { same(in, out, n); for (size_t i = 0; i < n; i++) if (in[i] == 1.5f) *(volatile int *)8 = 1; }
F(aborts) { abort(); }
F(hangs) { same(in, out, n); for (size_t i = 0; i < n; i++) if (in[i] == 1.5f) for (;;) pause(); }
F(exits) { exit(0); }
F(writes_behind) { same(in, out, n); ((float *)out)[n] = 1; }
F(reads_behind) { same(in, out, n); *(float *)out += in[n]; }
F(writes_input) { memset((void *)in, 0, 4 * n); for (size_t i = 0; i < n; i++) ((float *)out)[i] = 0; }
F(prints) { same(in, out, n); puts("from the library"); fflush(stdout); }
"""
# A driver whose modules are libraries and whose kernels are functions that return the driver's status; and those.
DRIVER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuModuleLoad(void **module, const char *path) { return (*module = dlopen(path, RTLD_NOW)) ? 0 : 200; }
int cuModuleGetFunction(void **f, void *module, const char *name) { return (*f = dlsym(module, name)) ? 0 : 500; }
int cuMemAlloc_v2(uint64_t *address, size_t n) { return (*address = (uint64_t)malloc(n)) ? 0 : 2; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) { memcpy((void *)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { memcpy(to, (void *)from, n); return 0; }
int cuMemsetD8_v2(uint64_t to, unsigned char byte, size_t n) { memset((void *)to, byte, n); return 0; }
int cuGetErrorString(int e, const char **text) { *text = e == 700 ? "illegal access" : "other"; return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **args, void **extra)
{
    size_t n = *(size_t *)args[2];
    if ((size_t)gx * bx < n || (size_t)(gx - 1) * bx >= n) return 1;
    return ((int (*)(const float *, void *, size_t))f)(*(float **)args[0], *(void **)args[1], n);
}
"""
KERNELS = r"""
#include <string.h>
#include <unistd.h>
#define F(name) int name(const float *in, void *out, size_t n)
F(same) { memcpy(out, in, 4 * n); return 0; }
F(one_off) { same(in, out, n); for (size_t i = 0; i < n; i++) ((unsigned *)out)[i] ^= in[i] == 1.5f; return 0; }
F(fails) { same(in, out, n); for (size_t i = 0; i < n; i++) if (in[i] == 1.5f) return 700; return 0; }
F(writes_behind) { same(in, out, n); ((float *)out)[n + 1000] = 1; return 0; }
F(hangs) { for (;;) pause(); }
"""
LOADED = r"__attribute__((constructor)) static void at_load(void) { *(volatile int *)8 = 1; } void f(void) {}"


def compile_library(folder, name, source):
    if isinstance(source, str):
        (folder / f"{name}.c").write_text(source)
        source = folder / f"{name}.c"
    library = folder / f"{name}.so"
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture(scope="module")
def bf16(tmp_path_factory):
    return compile_library(tmp_path_factory.mktemp("bf16"), "to_bf16", ROOT / "examples" / "to_bf16.c")


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return compile_library(tmp_path_factory.mktemp("odd"), "odd", MISBEHAVING)


def sweep(library, symbol, *args, check=0):
    return run_tersor("sweep", "--library", library, "--symbol", symbol, *args, check=check)


def report(library, symbol, *args, check=0):
    return json.loads(sweep(library, symbol, "--json", *args, check=check).stdout)


# One binade, and the last numbers before infinity with the first NaN.
BINADE = ("--first", 0x3F800000, "--last", 0x3FFFFFFF)
TOP = ("--first", 0x7F700000, "--last", 0x7F8FFFFF)


@pytest.mark.parametrize("where", [BINADE, TOP, ("--first", 0, "--last", 0x1FFFFF), ("--first", 0xFF7F1234)], ids=str)
def test_a_correct_conversion_has_no_difference(bf16, where):
    assert "every result is the same" in sweep(bf16, "to_bf16", *where).stdout
    found = report(bf16, "to_bf16", *where)
    assert found["different"] == 0 and found["first_different"] == []
    last = where[3] if len(where) > 2 else 2**32 - 1
    assert found["count"] == sum(e["count"] for e in found["exponents"]) == last - where[1] + 1


def test_planted_bug_is_found_where_numpy_has_it(bf16):
    """Halfway cases above even numbers: 64 in a binade, each 1 ULP off."""
    found = report(bf16, "to_bf16_fast", *BINADE, check=1)
    bits = np.arange(0x3F800000, 0x40000000, dtype=np.uint64)
    wrong = np.flatnonzero(((bits + 0x8000) >> 16) != ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16))
    assert found["different"] == len(wrong) == 64 and found["max_ulp"] == 1 and found["nan"] == 0
    assert [int(r["input"], 16) for r in found["first_different"]] == [int(bits[i]) for i in wrong[:10]]
    first = found["first_different"][0]
    assert (first["input_value"], first["found"], first["found_value"], first["expected"], first["expected_value"],
            first["ulp"]) == (1.00390625, "0x3f81", 1.0078125, "0x3f80", 1, 1)
    assert found["worst"] == first["input"]


@pytest.mark.parametrize("threads", [1, 3])
def test_report_does_not_depend_on_processes(bf16, threads):
    args = ("--first", 0x3F812345, "--last", 0x40765432)
    assert report(bf16, "to_bf16_fast", *args, "-j", threads, check=1) == report(bf16, "to_bf16_fast", *args, check=1)


def test_gate_is_in_ulp(bf16, odd):
    sweep(bf16, "to_bf16_fast", *BINADE, "--max-ulp", 1)
    sweep(bf16, "to_bf16_fast", *BINADE, "--max-ulp", 0, check=1)
    zero = ("--out", "f32", "--codec", "f32", "--last", 9)
    sweep(odd, "minus_zero", *zero, "--max-ulp", 0)
    assert report(odd, "minus_zero", *zero, check=1)["different"] == 1


def test_nan_that_is_lost_differs_at_any_gate(odd):
    found = report(odd, "no_nan", "--out", "f32", "--codec", "f32", *TOP, "--max-ulp", 2**32 - 1, check=1)
    assert found["different"] == found["nan"] == 0xFFFFF and found["worst"] is None
    assert found["first_different"][0]["ulp"] is None
    found = report(odd, "same", "--out", "f32", "--against-symbol", "no_nan", *TOP, check=1)
    assert found["different"] == found["nan"] == 0xFFFFF


@pytest.mark.parametrize("symbol, args, different, ulp", [
    ("same", ("--out", "f32", "--codec", "f32"), 0, 0),
    ("same", ("--out", "f32", "--codec", "bf16"), 2**23 - 128, 32768),
    ("to_f16", ("--out", "f16"), 0, 0),
    ("one_off", ("--out", "f32", "--codec", "f32"), 1, 1),
    ("same", ("--out", "f32", "--against-symbol", "twice"), 2**23, 2**23),
    ("low_byte_off", ("--out", "u8", "--against-symbol", "low_byte"), 1, 6)], ids=str)
def test_types_and_references(odd, symbol, args, different, ulp):
    found = report(odd, symbol, *args, *BINADE, check=int(different > 0))
    assert (found["different"], found["max_ulp"]) == (different, ulp)
    assert found["out"] == args[1] and found["against"] == (args[3] if len(args) > 2 else "fp16")


@pytest.mark.parametrize("symbol, text", [
    ("crashes", "symbol crashes crashed (signal 11, Segmentation fault) on inputs 0x3fc00000 to 0x3fc0ffff"),
    ("aborts", "symbol aborts crashed (signal 6, Aborted) on inputs 0x3f8"),
    ("hangs", "symbol hangs did not return in 1 s on inputs 0x3fc00000 to 0x3fc0ffff"),
    ("exits", "symbol exits ended its process with status 0 on inputs 0x3f8"),
    ("writes_behind", "symbol writes_behind crashed (signal 11"),
    ("reads_behind", "symbol reads_behind crashed (signal 11"),
    ("nothing", "found no symbol nothing"), ("with\nlines", r"found no symbol with\x0alines"),
])
def test_misbehaviour_is_named_and_not_ours(odd, symbol, text):
    done = sweep(odd, symbol, "--out", "f32", "--codec", "f32", *BINADE, "--timeout", 1, check=3)
    assert one_line_error(done).startswith(f"tersor: {odd}: ") and text in done.stderr and done.stdout == ""


def test_second_symbol_is_the_one_that_crashes(odd):
    done = sweep(odd, "same", "--out", "f32", "--against-symbol", "crashes", *BINADE, check=3)
    assert "symbol crashes crashed" in one_line_error(done)


def test_function_that_writes_its_input_is_compared_with_the_true_one(odd):
    assert report(odd, "writes_input", "--out", "f32", "--codec", "f32", *BINADE, check=1)["different"] == 2**23


def test_what_it_prints_is_not_in_the_report(odd):
    done = sweep(odd, "prints", "--out", "f32", "--codec", "f32", "--last", 9, "--json")
    assert json.loads(done.stdout)["different"] == 0 and "from the library" in done.stderr


def test_what_is_no_library_is_refused(tmp_path):
    assert "No such file" in one_line_error(sweep(tmp_path / "none.so", "f", check=4))
    (tmp_path / "text.so").write_text("no library")
    assert "text.so: cannot be loaded: " in one_line_error(sweep(tmp_path / "text.so", "f", check=3))
    crash = compile_library(tmp_path, "crash", LOADED)
    assert "the library crashed (signal 11" in one_line_error(sweep(crash, "f", check=3))


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory):
    """--library with --device, by that driver."""
    folder = tmp_path_factory.mktemp("driver")
    compile_library(folder, "libcuda", DRIVER).rename(folder / "libcuda.so.1")
    kernels = compile_library(folder, "kernels", KERNELS)

    def run(symbol, *args, check=0, device="cuda"):
        return run_tersor("sweep", "--library", kernels, "--symbol", symbol, "--device", device, "--out", "f32",
                          "--codec", "f32", *BINADE, *args, env={"LD_LIBRARY_PATH": folder}, check=check)
    return run


def test_kernel_is_called_on_every_number(on_gpu):
    assert json.loads(on_gpu("same", "--json").stdout)["different"] == 0
    found = json.loads(on_gpu("one_off", "--json", check=1).stdout)
    assert found["different"] == 1 and found["first_different"][0]["input_value"] == 1.5


@pytest.mark.parametrize("symbol, args, text", [
    ("fails", (), "kernel fails on inputs 0x3fc00000 to 0x3fc0ffff failed: illegal access"),
    ("writes_behind", (), "kernel writes_behind on inputs 0x3f8"), ("writes_behind", (), "wrote behind its results"),
    ("hangs", ("--timeout", 1), "symbol hangs did not return in 1 s on inputs 0x3f8"),
    ("nothing", (), "found no kernel nothing"),
])
def test_kernel_that_misbehaves_is_named(on_gpu, symbol, args, text):
    assert text in one_line_error(on_gpu(symbol, *args, check=3))


def test_kernel_needs_a_driver_and_a_gpu(on_gpu, tmp_path):
    assert "the GPU cannot be used: other" in one_line_error(on_gpu("same", device="cuda:1", check=3))
    (tmp_path / "f.ptx").write_text("no kernel")
    done = run_tersor("sweep", "--library", tmp_path / "f.ptx", "--symbol", "f", "--device", "cuda", check=3)
    assert "needs the CUDA driver" in done.stderr or "cannot be loaded" in done.stderr
    one_line_error(done)


def test_no_process_is_left_behind(odd):
    sweep(odd, "hangs", "--out", "f32", "--codec", "f32", *BINADE, "--timeout", 1, check=3)
    time.sleep(0.1)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(odd) not in listed


def test_baseline_and_csv(bf16, tmp_path):
    base = tmp_path / "base.json"
    sweep(bf16, "to_bf16_fast", *BINADE, f"--json={base}", f"--csv={tmp_path / 'rows.csv'}", "-qq", check=1)
    rows = list(csv.DictReader(open(tmp_path / "rows.csv", encoding="ascii")))
    assert [(r["exponent"], r["different"], r["worst"]) for r in rows] == [("127", "64", "0x3f808000")]
    assert "every figure is as in the baseline" in sweep(bf16, "to_bf16_fast", *BINADE, "--baseline", base).stdout
    done = sweep(bf16, "to_bf16", *BINADE, "--baseline", base, check=1)
    assert "different" in done.stdout and "from the baseline" in done.stdout
    assert "found a sweep of" in one_line_error(sweep(bf16, "to_bf16", "--baseline", base, check=3))


@pytest.mark.parametrize("args, text", [
    (["--symbol", "f"], "needs --library"), (["--max-ulp", "0"], "needs --library"),
    (["--library", "x"], "--library needs --symbol"),
    (["--library", "x", "--symbol", "f", "--codec", "bf16", "--against-symbol", "g"], "exclude each other"),
    (["--library", "x", "--symbol", "f", "--codec", "bf16*"], "one codec"),
    (["--library", "x", "--symbol", "f", "--out", "f16", "--codec", "bf16"], "codec bf16 has no such codes"),
    (["--library", "x", "--symbol", "f", "--out", "u8"], "--out u8 needs --codec or --against-symbol"),
    (["--library", "x", "--symbol", "f", "--device", "cuda:0,1"], "expected cpu, cuda or cuda:N"),
    (["--library", "x", "--symbol", "f", "--svg=x.svg"], "--library and --svg exclude"),
    (["--library", "f.cubin", "--symbol", "f"], "has GPU code: add --device cuda"),
    (["--library", "x", "--symbol", "f", "--out", "f64"], "f64"),
    (["--library", "x", "--symbol", "f", "--part", "1/2", "--json=r"], "--library is not done in parts"),
], ids=str)
def test_wrong_command_line(args, text):
    assert text in one_line_error(run_tersor("sweep", *args, check=2))


def test_help_and_page_say_that_foreign_code_runs():
    assert "code is run, with your rights" in " ".join(run_tersor("sweep", "--help", check=0).stdout.split())
    assert "runs code of that library" in " ".join((ROOT / "man" / "tersor-sweep.1").read_text().split())
