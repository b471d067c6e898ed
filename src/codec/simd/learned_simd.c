/* SPDX-License-Identifier: Apache-2.0 */
/* Momenta by a learned codebook and variances as means of blocks: gefen8 and blockmean of Gefen. */
#include "codec/learned_math.h"
#include "codec/loops.h"
#include "codec/simd/absmax.h"

float TSR_FOR_ISA(absmax)(const float *restrict x, size_t n)
{
	return group_absmax(x, n);
}

static float narrow(const struct tsr_coding *coding, float x)
{
	return tsr_gefen_narrow(coding->narrow == TSR_BF16, coding->narrow == TSR_F16, x);
}

void TSR_FOR_ISA(encode_gefen8)(const struct tsr_coding *coding, const float *restrict x, size_t n,
				void *const plane[], struct tsr_encode_report *report)
{
	const float *entry = coding->codebook;
	uint8_t *restrict code = plane[0];
	float *scale = plane[1];

	(void)report;
	for (size_t first = 0; first < n; first += coding->group, scale++) {
		const size_t left = n - first;
		const size_t size = left < coding->group ? left : coding->group;
		const float absmax = narrow(coding, TSR_FOR_ISA(absmax)(x + first, size));

		*scale = absmax;
		for (size_t i = first; i < first + size; i++)
			code[i] = (uint8_t)tsr_gefen_code(entry, x[i], absmax);
	}
}

void TSR_FOR_ISA(decode_gefen8)(const struct tsr_coding *coding, const void *const plane[],
				size_t n, float *restrict x)
{
	const bool narrows = coding->narrow == TSR_BF16 || coding->narrow == TSR_F16;
	const float *entry = coding->codebook, *scale = plane[1];
	const uint8_t *restrict code = plane[0];
	float narrowed[256];

	for (size_t i = 0; narrows && i < 256; i++)
		narrowed[i] = narrow(coding, entry[i]);
	entry = narrows ? narrowed : entry;

	for (size_t first = 0; first < n; first += coding->group, scale++) {
		const size_t left = n - first;
		const size_t end = first + (left < coding->group ? left : coding->group);

		for (size_t i = first; i < end; i++)
			x[i] = tsr_gefen_value(entry, code[i], *scale);
	}
}

static double sum_of(const float *x, size_t n)
{
	double sum = 0;

	for (size_t first = 0; first < n; first += TSR_MEAN_PIECE) {
		const size_t left = n - first;
		const size_t end = first + (left < TSR_MEAN_PIECE ? left : TSR_MEAN_PIECE);
		double piece = 0;

		for (size_t i = first; i < end; i++)
			piece += (double)x[i];
		sum += piece;
	}
	return sum;
}

void TSR_FOR_ISA(encode_blockmean)(const struct tsr_coding *coding, const float *x, size_t n,
				   void *const plane[], struct tsr_encode_report *report)
{
	float *mean = plane[0];

	(void)report;
	for (size_t first = 0; first < n; first += coding->group) {
		const size_t left = n - first;
		const size_t size = left < coding->group ? left : coding->group;

		*mean++ = narrow(coding, tsr_block_mean(sum_of(x + first, size), size));
	}
}

void TSR_FOR_ISA(decode_blockmean)(const struct tsr_coding *coding, const void *const plane[],
				   size_t n, float *restrict x)
{
	const float *mean = plane[0];

	for (size_t first = 0; first < n; first += coding->group, mean++) {
		const size_t left = n - first;
		const size_t end = first + (left < coding->group ? left : coding->group);

		for (size_t i = first; i < end; i++)
			x[i] = *mean;
	}
}
