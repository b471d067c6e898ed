/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of state as COAT's program keeps it with range expansion. */
#include "codec/coat_state.h"

#include <math.h>
#include <string.h>

#include "codec/math.h"
#include "codec/power.h"
#include "codec/tables.h"

/* What a group has beside its codes. */
struct group {
	float s, k, c;
	tsr_fixed64 log_s, log_c;
};

/* A logarithm divided by k, within 2^-54 for a k of 1/16 or more, the least in use; far from 0: 1024. */
static tsr_fixed64 divide(tsr_fixed64 x, float k)
{
	const tsr_fixed64 far = 1024 * TSR_FIXED64_1;
	int exponent;
	const int64_t significand = (int64_t)ldexpf(frexpf(k, &exponent), 24);
	const tsr_fixed64 quotient = x * (1 << 24) / significand; /* at most twice |x| */

	if (exponent > 62)
		return 0;
	if (exponent >= 0)
		return quotient / ((tsr_fixed64)1 << exponent);
	if (exponent < -16 || quotient > far || quotient < -far)
		return quotient < 0 ? -far : far;
	return quotient * (1 << -exponent);
}

/* The logarithm of a code from 1 to ncodes - 1. */
static tsr_fixed64 log_of_code(const struct tsr_fp8_format *f, unsigned code)
{
	const struct tsr_fp8_value v = tsr_fp8_value(*f, code);

	return tsr_fixed64_log2(v.whole) + v.exponent * TSR_FIXED64_1;
}

/* The element without the sign of its code. */
static float magnitude_of(const struct tsr_fp8_format *f, const struct group *g, unsigned code)
{
	/* The program takes the power 1/k of anything, NaN too; the power 0 of it is 1. */
	if (g->k == 0 || isinf(g->k))
		return g->c;
	if (code >= f->ncodes)
		return f->infinite && code == f->ncodes && g->k > 0 ? INFINITY : NAN;
	if (!(g->k > 0) || !isfinite(g->s) || !isfinite(g->c))
		return NAN;
	if (code == 0 || g->s == 0 || g->c == 0)
		return 0;
	return copysignf(tsr_exp2_rounded(divide(log_of_code(f, code) + g->log_s, g->k) + g->log_c),
			 g->c);
}

static struct group read_group(const void *const plane[], size_t i)
{
	struct group g = { 0 };

	memcpy(&g.s, (const unsigned char *)plane[1] + i * sizeof(g.s), sizeof(g.s));
	memcpy(&g.k, (const unsigned char *)plane[2] + i * sizeof(g.k), sizeof(g.k));
	memcpy(&g.c, (const unsigned char *)plane[3] + i * sizeof(g.c), sizeof(g.c));
	if (isfinite(g.s) && g.s != 0)
		g.log_s = tsr_fixed64_log2_of(fabsf(g.s));
	if (isfinite(g.c) && g.c != 0)
		g.log_c = tsr_fixed64_log2_of(fabsf(g.c));
	return g;
}

static void decode(const struct tsr_fp8_format *f, const struct tsr_coding *coding,
		   const void *const plane[], size_t n, float *x)
{
	const unsigned char *codes = plane[0];
	struct group g = { 0 };

	for (size_t i = 0; i < n; i++) {
		float magnitude;

		if (i % coding->group == 0)
			g = read_group(plane, i / coding->group);
		magnitude = magnitude_of(f, &g, codes[i] & 0x7f);
		x[i] = codes[i] & 0x80 ? -magnitude : magnitude;
	}
}

static void decode_e4m3(const struct tsr_coding *coding, const void *const plane[], size_t n,
			float *x)
{
	decode(&tsr_fp8_e4m3, coding, plane, n, x);
}

static void decode_e5m2(const struct tsr_coding *coding, const void *const plane[], size_t n,
			float *x)
{
	decode(&tsr_fp8_e5m2, coding, plane, n, x);
}

#define CODEC(format, fp8, says) \
	{ \
		.name = #format "x", .summary = says ", its range expanded", .source = "COAT", \
		.kinds = TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE, .nplanes = 4, \
		.planes = { { "", TSR_PER_ELEMENT, fp8 }, \
			    { "::scale", TSR_PER_GROUP, TSR_F32 }, \
			    { "::expand", TSR_PER_GROUP_TOO, TSR_F32 }, \
			    { "::sqrt_minmax", TSR_PER_GROUP_TOO, TSR_F32 } }, \
		.companding = TSR_COMPANDING_POWER, .group = TSR_COAT_GROUP, \
		.scales = 1 << TSR_SCALE_F32, .grouped = true, .flat = true, \
		.decode = decode_##format, \
	}

const struct tsr_codec *tsr_coat_codec(enum tsr_dtype codes)
{
	static const struct tsr_codec of_e4m3 = CODEC(e4m3, TSR_F8_E4M3, "FP8 E4M3");
	static const struct tsr_codec of_e5m2 = CODEC(e5m2, TSR_F8_E5M2, "FP8 E5M2");

	if (codes == TSR_F8_E4M3)
		return &of_e4m3;
	return codes == TSR_F8_E5M2 ? &of_e5m2 : NULL;
}
