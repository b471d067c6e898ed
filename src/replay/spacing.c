/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the learning rate can move the largest weights: FlashOptim's check_numerics. */
#include "replay/spacing.h"

#include <math.h>
#include <string.h>

/* Formats of the narrow weight: significand bits behind the point, and exponents of finite ones. */
struct narrow {
	int bits, least, most;
};

static const struct narrow bf16 = { 7, -126, 127 }, fp16 = { 10, -14, 15 },
			   fp32 = { 23, -126, 127 };

/* Bits that a correction adds behind those of the narrow weight, given its ULP. */
static double finer_by(const struct tsr_codec *codec, const struct narrow *narrow)
{
	if (strstr(codec->name, "+ulp16"))
		return 2 * 32767.0;
	if (strstr(codec->name, "+ulp8"))
		return 2 * 127.0;
	if (strstr(codec->name, "+exact16"))
		return 65536.0;
	if (codec->extra_bits)
		return ldexp(1, (int)codec->extra_bits);
	/*
	 * A float that is at most half an ULP: below that its own significand begins, one bit
	 * further down.
	 */
	if (codec->nplanes == 2)
		return ldexp(1, narrow->bits + 2);
	return 1;
}

double tsr_replay_spacing(const struct tsr_codec *codec, float magnitude)
{
	const struct narrow *narrow = strncmp(codec->name, "bf16", 4) == 0   ? &bf16
				      : strncmp(codec->name, "fp16", 4) == 0 ? &fp16
									     : &fp32;
	double spacing, finest;
	int exponent;

	if (!(fabsf(magnitude) < INFINITY))
		return INFINITY;
	exponent = magnitude == 0 ? fp32.least : ilogb((double)magnitude);
	if (exponent > narrow->most)
		return INFINITY;
	/* No codec tells apart what FP32 does not. */
	finest = ldexp(1, (exponent > fp32.least ? exponent : fp32.least) - fp32.bits);
	spacing = ldexp(1, (exponent > narrow->least ? exponent : narrow->least) - narrow->bits);
	if (narrow != &fp32)
		spacing /= finer_by(codec, narrow);
	/* A pair of FP16 ends at FP16's smallest number. */
	if (strcmp(codec->name, "fp16+fp16") == 0)
		spacing = fmax(spacing, ldexp(1, fp16.least - fp16.bits));
	return fmax(spacing, finest);
}

bool tsr_replay_is_stalled(const struct tsr_codec *codec, float largest, double lr)
{
	return lr > 0 && largest > 0 && lr < tsr_replay_spacing(codec, largest) / 2;
}
