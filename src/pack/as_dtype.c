/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point elements in another type. */
#include "pack/as_dtype.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "codec/math.h"
#include "codec/narrow.h"
#include "codec/nonfinite.h"
#include "names/roles.h"

/* Elements that are converted at once. */
#define BATCH 1024u

/*
 * To odd: what is not exact gets an odd last bit.  Then rounding to a narrower type is what rounding
 * the F64 itself would have been (Boldo and Melquiond, When double rounding is odd, 2005).
 */
static float round_to_odd(double x)
{
	const float f = (float)x;

	if ((double)f == x || isnan(x))
		return f;
	return tsr_f32_from_bits((tsr_bits_from_f32(f) - (fabs((double)f) > fabs(x))) | 1);
}

static void as_f32(enum tsr_dtype from, const unsigned char *in, size_t n, bool exact, float *x)
{
	double wide;

	if (from == TSR_F32)
		memcpy(x, in, n * sizeof(*x));
	else if (from != TSR_F64)
		tsr_widen(from, in, n, x);
	for (size_t i = 0; from == TSR_F64 && i < n; i++) {
		memcpy(&wide, in + i * sizeof(wide), sizeof(wide));
		x[i] = exact ? round_to_odd(wide) : (float)wide;
	}
}

bool tsr_takes_dtype(const struct tsr_tensor *t)
{
	return tsr_names_is_floating(t->dtype) && !t->quantized;
}

size_t tsr_as_dtype(enum tsr_dtype from, const void *in, size_t n, enum tsr_dtype to, void *out)
{
	const size_t in_item = tsr_dtype_bits(from) / 8, out_item = tsr_dtype_bits(to) / 8;
	uint64_t before, lost = 0;
	float x[BATCH];

	for (size_t at = 0; at < n; at += BATCH) {
		const size_t count = n - at < BATCH ? n - at : BATCH;
		const unsigned char *source = (const unsigned char *)in + at * in_item;
		unsigned char *target = (unsigned char *)out + at * out_item;

		as_f32(from, source, count, to != TSR_F32, x);
		before = from == TSR_F64 ? tsr_count_nonfinite(from, source, count * in_item)
					 : tsr_count_nonfinite(TSR_F32, x, count * sizeof(*x));
		tsr_narrow_in_place(to, x, count);
		memcpy(target, x, count * out_item);
		as_f32(to, target, count, false, x);
		lost += tsr_count_nonfinite(TSR_F32, x, count * sizeof(*x)) - before;
	}
	return lost;
}
