/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of finding a codebook, against trying everything. */
#include "base/clock.h"
#include "base/fail.h"
#include "bench/bench.h"
#include "learn/optimum.h"

#include <string.h>

/* All bins, most values in the middle ones, no two neighbours alike. */
static void fill(uint64_t *count)
{
	uint64_t random = 1;

	for (unsigned i = 0; i < TSR_HISTOGRAM_BINS; i++) {
		const uint64_t off = i < TSR_HISTOGRAM_BINS / 2 ? TSR_HISTOGRAM_BINS / 2 - i
								: i - TSR_HISTOGRAM_BINS / 2;

		random = random * UINT64_C(6364136223846793005) + 1;
		count[i] = 1 + (UINT64_C(1) << 30) / (64 + off * off) + (random >> 56);
	}
}

enum tsr_status tsr_bench_codebook(unsigned repeats, struct tsr_bench_codebook *ret,
				   struct tsr_err *err)
{
	static uint64_t count[TSR_HISTOGRAM_BINS];
	float found[256], plain[256];

	fill(count);
	*ret = (struct tsr_bench_codebook){ .seconds = 1e30 };
	for (unsigned i = 0; i < repeats; i++) {
		const double started = tsr_seconds();

		TSR_TRY(tsr_optimum(count, TSR_HISTOGRAM_BINS, 256, true, found, err));
		if (tsr_seconds() - started < ret->seconds)
			ret->seconds = tsr_seconds() - started;
	}
	ret->plain_seconds = tsr_seconds();
	TSR_TRY(tsr_optimum_plain(count, TSR_HISTOGRAM_BINS, 256, true, plain, err));
	ret->plain_seconds = tsr_seconds() - ret->plain_seconds;
	ret->same = memcmp(found, plain, sizeof(found)) == 0;
	return TSR_OK;
}
