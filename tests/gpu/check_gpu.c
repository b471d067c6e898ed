/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel against the codecs of the CPU, bit for bit; and what happens where a GPU fails.
 *
 * check_gpu [--small | --emulated]: exits 0, 1 on a difference, 77 where there is no GPU.  --small is
 * for memory and race checkers: few cases, none that fails on purpose.  --emulated is for kernels on
 * the CPU: what a CPU can try in a minute, and nothing that a GPU alone can show.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "check_gpu.h"
#include "gpu/gpu_work.h"

#define NO_GPU 77

/* --- Reporting -------------------------------------------------------------------------------- */

static const char *current_claim;
static uint64_t failures_here, failures, claims;

void check_begin(const char *claim)
{
	current_claim = claim;
	failures_here = 0;
}

void check_failed(const char *fmt, ...)
{
	va_list ap;

	failures_here++;
	if (failures_here > 3)
		return;
	va_start(ap, fmt);
	printf("     %s: ", current_claim);
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
}

void check_end(uint64_t cases)
{
	printf("%s %s (%llu cases)\n", failures_here ? "FAIL" : "ok  ", current_claim,
	       (unsigned long long)cases);
	fflush(stdout);
	failures += failures_here != 0;
	claims++;
}

void expect(bool holds, const char *what)
{
	if (!holds)
		check_failed("%s", what);
}

/* --- What cannot fail here --------------------------------------------------------------------- */

struct tsr_gpu *gpu;
struct tsr_gpu_stream *stream;

void must(enum tsr_status status, const struct tsr_err *err)
{
	if (status == TSR_OK)
		return;
	printf("FAIL %s\n", err->msg);
	exit(1);
}

void *must_have(void *memory)
{
	if (!memory) {
		printf("FAIL no memory\n");
		exit(1);
	}
	return memory;
}

/* --- Two streams ------------------------------------------------------------------------------- */

/* What one stream makes, another one reads behind an event. */
static void check_streams(void)
{
	enum { N = 1 << 20 };
	const struct tsr_coding coding = { .codec = tsr_codec_find("bf16"), .group = 1 };
	struct tsr_gpu_stream *other;
	struct tsr_gpu_event *start, *event;
	float *x;
	uint16_t *narrow, want = 0;
	void *device_x, *device_narrow;
	double seconds = -1;
	struct tsr_err err;

	check_begin("streams wait for each other's events");
	must(tsr_gpu_stream_new(gpu, &other, &err), &err);
	must(tsr_gpu_event_new(gpu, &start, &err), &err);
	must(tsr_gpu_event_new(gpu, &event, &err), &err);
	must(tsr_gpu_alloc_host(gpu, N * sizeof(*x), "values", (void **)&x, &err), &err);
	must(tsr_gpu_alloc_host(gpu, N * sizeof(*narrow), "values", (void **)&narrow, &err), &err);
	must(tsr_gpu_alloc(gpu, N * sizeof(*x), "values", &device_x, &err), &err);
	must(tsr_gpu_alloc(gpu, N * sizeof(*narrow), "values", &device_narrow, &err), &err);
	for (size_t i = 0; i < N; i++)
		x[i] = (float)(i % 256);
	must(tsr_gpu_record(stream, start, &err), &err);
	must(tsr_gpu_copy(stream, device_x, x, N * sizeof(*x), &err), &err);
	must(tsr_gpu_encode(stream, &coding, device_x, N, &device_narrow, NULL, &err), &err);
	must(tsr_gpu_record(stream, event, &err), &err);
	must(tsr_gpu_wait(other, event, &err), &err);
	must(tsr_gpu_copy(other, narrow, device_narrow, N * sizeof(*narrow), &err), &err);
	must(tsr_gpu_sync(other, &err), &err);
	for (size_t i = 0; i < N; i++) {
		struct tsr_encode_report report = { 0 };

		coding.codec->encode(&coding, &x[i], 1, (void *[]){ &want }, &report);
		expect(narrow[i] == want, "a value differs");
	}
	must(tsr_gpu_seconds(start, event, &seconds, &err), &err);
	expect(seconds > 0 && seconds < 10, "the time between events is implausible");
	tsr_gpu_free(gpu, device_narrow);
	tsr_gpu_free(gpu, device_x);
	tsr_gpu_free_host(gpu, narrow);
	tsr_gpu_free_host(gpu, x);
	tsr_gpu_event_free(event);
	tsr_gpu_event_free(start);
	tsr_gpu_stream_free(other);
	check_end(1);
}

/* --- Failures --------------------------------------------------------------------------------- */

static void expect_failure(enum tsr_status found, enum tsr_status wanted, const struct tsr_err *err,
			   const char *word)
{
	if (found != wanted || err->code != wanted)
		check_failed("status %d, expected %d", (int)found, (int)wanted);
	else if (!strstr(err->msg, word) || strchr(err->msg, '\n'))
		check_failed("message '%s', expected one line with '%s'", err->msg, word);
	else
		printf("     %s\n", err->msg);
}

static void check_names(void)
{
	static const char *const bad[] = { "",	    "cud",    "cuda:",	 "cuda:x",    "cuda:1x",
					   "cuda1", "cuda 1", "cuda:-1", "cuda:1024", "CUDA" };
	unsigned index = 9;

	check_begin("names of GPUs");
	expect(tsr_gpu_parse("cuda", &index) && index == 0, "cuda");
	expect(tsr_gpu_parse("cuda:17", &index) && index == 17, "cuda:17");
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		expect(!tsr_gpu_parse(bad[i], &index), bad[i]);
	check_end(2 + COUNT_OF(bad));
}

static void check_failures(void)
{
	const struct tsr_codec unknown = { .name = "unknown8" };
	const struct tsr_coding coding = { .codec = &unknown, .group = 1 };
	struct tsr_gpu *none;
	struct tsr_err err = { 0 };
	void *memory;

	check_begin("what cannot be done is refused with one line");
	expect_failure(tsr_gpu_open(1023, &none, &err), TSR_E_IO, &err, "no such GPU");
	expect(!none, "a GPU that is not there");
	expect_failure(tsr_gpu_alloc(gpu, UINT64_C(1) << 50, "a test", &memory, &err), TSR_E_NOMEM,
		       &err, "out of memory");
	expect(!memory, "memory that is not there");
	expect_failure(tsr_gpu_encode(stream, &coding, NULL, 1, NULL, NULL, &err),
		       TSR_E_UNSUPPORTED, &err, "unknown8");
	check_end(3);
	check_begin("and the GPU can still be used");
	must(tsr_gpu_alloc(gpu, 4096, "a test", &memory, &err), &err);
	must(tsr_gpu_zero(stream, memory, 4096, &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
	tsr_gpu_free(gpu, memory);
	check_end(1);
}

/* Last: nothing works on this GPU after it, in this process. */
static void check_failing_kernel(void)
{
	const struct tsr_coding coding = { .codec = tsr_codec_find("bf16"), .group = 1 };
	void *nowhere = (void *)(uintptr_t)4096, *memory;
	struct tsr_err err = { 0 };
	enum tsr_status status;

	check_begin("a kernel that fails is one line");
	status = tsr_gpu_encode(stream, &coding, nowhere, 1 << 20, &nowhere, NULL, &err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(stream, &err);
	expect_failure(status, TSR_E_IO, &err, "illegal");
	err = (struct tsr_err){ 0 };
	expect_failure(tsr_gpu_alloc(gpu, 1, "a test", &memory, &err), TSR_E_IO, &err, "illegal");
	check_end(2);
}

/* --- All together ------------------------------------------------------------------------------ */

static void check_coverage(void)
{
	uint64_t n = 0;

	check_begin("every codec has kernels");
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++, n++)
		expect(tsr_gpu_has_codec(*c), (*c)->name);
	check_end(n);
}

int main(int argc, char **argv)
{
	const bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
	const bool emulated = argc > 1 && strcmp(argv[1], "--emulated") == 0;
	const enum cases cases = small ? CASES_FEW : emulated ? CASES_SHORT : CASES_ALL;
	struct tsr_err err = { 0 };
	char text[256];

	check_names();
	check_coverage();
	if (tsr_gpu_count() == 0) {
		printf("no GPU here: %s\n",
		       tsr_gpu_check(0, &err) == TSR_OK ? "none counted" : err.msg);
		return failures ? 1 : NO_GPU;
	}
	must(tsr_gpu_describe(0, text, sizeof(text), &err), &err);
	must(tsr_gpu_open(0, &gpu, &err), &err);
	printf("cuda:%u: %s; the CPU's codecs are those of level %s\n", tsr_gpu_index(gpu), text,
	       tsr_isa_name());
	must(tsr_gpu_stream_new(gpu, &stream, &err), &err);
	if (!small)
		check_shortcuts(cases);
	check_codecs(cases);
	check_device(cases);
	check_sweeps(cases);
	check_steps(cases);
	check_entropy(cases);
	check_entropy_codes(cases);
	check_planes(cases);
	check_streams();
	if (!small)
		check_failures();
	if (!small && !emulated)
		check_failing_kernel();
	tsr_gpu_stream_free(stream);
	tsr_gpu_close(gpu);
	printf("%llu passed, %llu failed\n", (unsigned long long)(claims - failures),
	       (unsigned long long)failures);
	return failures != 0;
}
