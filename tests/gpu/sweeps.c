/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps of parts of the range on both sides.  tests/gpu/run.sh does the whole. */
#include <inttypes.h>
#include <string.h>

#include "check_gpu.h"
#include "tersor/sweep.h"

static const struct tsr_codec *codecs[256];
static unsigned ncodecs;

static void find_codecs(void)
{
	ncodecs = 0;
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if ((*c)->grouped)
			continue;
		if (ncodecs == COUNT_OF(codecs)) {
			check_failed("more codecs than the %zu that are swept at once", COUNT_OF(codecs));
			return;
		}
		codecs[ncodecs++] = *c;
	}
}

static void show_difference(const char *codec, unsigned exponent, const struct tsr_sweep_row *want,
			    const struct tsr_sweep_row *got)
{
	check_failed("%s, exponent %u: exact %" PRIu64 " overflow %" PRIu64 " NaN %" PRIu64
		     " %" PRIu64 " compared %" PRIu64 " sum %" PRIx64 " max %.9g %u, expected "
		     "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIx64
		     " %.9g %u",
		     codec, exponent, got->exact, got->overflow, got->nan_in, got->nan_out,
		     got->compared, got->rel_sum[0], (double)got->max_rel, got->max_ulp,
		     want->exact, want->overflow, want->nan_in, want->nan_out, want->compared,
		     want->rel_sum[0], (double)want->max_rel, want->max_ulp);
}

/* On as many GPUs as @gpus says, which may be the same one several times. */
static void compare(uint32_t first, uint32_t last, const unsigned *gpus, unsigned ngpus)
{
	struct tsr_sweep *want, *got;
	struct tsr_err err;

	must(tsr_sweep_run(codecs, ncodecs, first, last, NULL, &want, &err), &err);
	must(tsr_sweep_run_gpu(codecs, ncodecs, first, last, gpus, ngpus, NULL, &got, &err), &err);
	for (unsigned c = 0; c < ncodecs; c++) {
		for (unsigned e = 0; e < TSR_SWEEP_ROWS; e++) {
			const struct tsr_sweep_row *w = &want->results[c].rows[e];
			const struct tsr_sweep_row *g = &got->results[c].rows[e];

			if (memcmp(w, g, sizeof(*w)) != 0)
				show_difference(codecs[c]->name, e, w, g);
		}
	}
	tsr_sweep_free(want);
	tsr_sweep_free(got);
}

/* Where something begins or ends for one codec or another, and some between. */
static uint64_t compare_strata(bool every)
{
	static const unsigned strata[] = { 0,	1,   7,	  8,   63,  64,	 87,  90,  102, 103, 112,
					   113, 127, 142, 143, 200, 251, 252, 253, 254, 255 };
	const unsigned one[] = { 0 };
	uint64_t cases = 0;

	for (size_t i = 0; i < COUNT_OF(strata); i += every ? 1 : 7) {
		const uint32_t sign = i % 2 ? 0x80000000u : 0, from = sign | strata[i] << 23;
		const uint32_t middle = from + (37u << 15), end = from + (1u << 23);

		compare(from, from + (TSR_GPU_SWEEP_BATCH - 1), one, 1);
		compare(middle, middle + (TSR_GPU_SWEEP_BATCH - 1), one, 1);
		compare(end - TSR_GPU_SWEEP_BATCH, end - 1, one, 1);
		cases += 3 * ncodecs;
	}
	return cases;
}

void check_sweeps(enum cases cases)
{
	static const unsigned shared[] = { 0, 0, 0 };
	uint64_t n;

	find_codecs();
	check_begin("sweeps of parts of the range");
	n = compare_strata(cases != CASES_FEW);
	check_end(n);
	check_begin("sweeps that several GPUs share, of ranges that begin and end anywhere");
	compare(0x3f7ffff1, 0x3f7ffff3, shared, 3);
	compare(0x3f7ffff1, 0x3f80fffe, shared, 1);
	compare(0x3f7e7ff1, 0x3f81ffff, shared, 3);
	n = 3;
	if (cases == CASES_ALL) {
		compare(0x38000000, 0x47ffffff, shared, 3);
		n++;
	}
	check_end(n * ncodecs);
}
