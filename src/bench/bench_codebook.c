/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of finding a codebook, against trying everything. */
#include "base/clock.h"
#include "base/fail.h"
#include "bench/bench.h"
#include "learn/optimum.h"

#include <string.h>

/* All bins, most values in the middle ones, no two neighbours alike. */
static void fill(uint64_t *count, unsigned nbins)
{
	uint64_t random = 1;

	for (unsigned i = 0; i < nbins; i++) {
		const uint64_t off = i < nbins / 2 ? nbins / 2 - i : i - nbins / 2;

		random = random * UINT64_C(6364136223846793005) + 1;
		count[i] = 1 + (UINT64_C(1) << 30) / (64 + off * off) + (random >> 56);
	}
}

enum tsr_status tsr_bench_codebook(unsigned nbins, unsigned repeats, struct tsr_bench_codebook *ret,
				   struct tsr_err *err)
{
	static uint64_t count[TSR_HISTOGRAM_BINS];
	float found[256], plain[256];

	fill(count, nbins);
	*ret = (struct tsr_bench_codebook){ .seconds = 1e30 };
	for (unsigned i = 0; i < repeats; i++) {
		const double started = tsr_seconds();

		TSR_TRY(tsr_optimum(count, nbins, 256, true, found, err));
		if (tsr_seconds() - started < ret->seconds)
			ret->seconds = tsr_seconds() - started;
	}
	ret->plain_seconds = tsr_seconds();
	TSR_TRY(tsr_optimum_plain(count, nbins, 256, true, plain, err));
	ret->plain_seconds = tsr_seconds() - ret->plain_seconds;
	ret->same = memcmp(found, plain, sizeof(found)) == 0;
	return TSR_OK;
}
