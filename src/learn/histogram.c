/* SPDX-License-Identifier: Apache-2.0 */
/* How often values between -1 and 1 occur: what a codebook is learned from. */
#include "learn/histogram.h"

#include "codec/loops.h"
#include "codec/math.h"
#include "learn/learn_loops.h"

/* Values whose bins are computed together. */
#define PIECE 2048u

static void count_block(struct tsr_histogram *h, const float *x, size_t n)
{
	static tsr_absmax_fn *const absmax[] = TSR_ISA_VARIANTS(absmax);
	static tsr_bins_fn *const find_bins[] = TSR_ISA_VARIANTS(bins);
	const float largest = absmax[tsr_isa_level()](x, n);
	int32_t bins[PIECE];

	if (largest == 0.0f) {
		h->count[TSR_HISTOGRAM_BINS / 2] += n;
		return;
	}
	if (tsr_bits_from_f32(largest) >= TSR_F32_INF) {
		for (size_t i = 0; i < n; i++)
			h->nonfinite += (tsr_bits_from_f32(x[i]) & TSR_F32_MAG) >= TSR_F32_INF;
		return;
	}
	for (size_t first = 0; first < n; first += PIECE) {
		const size_t size = n - first < PIECE ? n - first : PIECE;

		find_bins[tsr_isa_level()](x + first, size, largest, bins);
		for (size_t i = 0; i < size; i++)
			h->count[bins[i]]++;
	}
}

void tsr_histogram_add(struct tsr_histogram *h, const float *x, size_t n, size_t block)
{
	for (size_t first = 0; first < n; first += block)
		count_block(h, x + first, n - first < block ? n - first : block);
}

void tsr_histogram_merge(struct tsr_histogram *into, const struct tsr_histogram *from)
{
	for (unsigned i = 0; i < TSR_HISTOGRAM_BINS; i++)
		into->count[i] += from->count[i];
	into->nonfinite += from->nonfinite;
}

unsigned tsr_histogram_nonempty(const uint64_t *count)
{
	unsigned n = 0;

	for (unsigned i = 0; i < TSR_HISTOGRAM_BINS; i++)
		n += count[i] != 0;
	return n;
}
