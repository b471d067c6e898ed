/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of state as Gefen's program keeps it. */
#include "codec/gefen_state.h"

#include "codec/narrow.h"

/* The value of block @i in a plane. */
static float value_of(const void *plane, enum tsr_dtype dtype, size_t i)
{
	const size_t size = tsr_dtype_bits(dtype) / 8;
	float value;

	tsr_widen(dtype, (const unsigned char *)plane + i * size, 1, &value);
	return value;
}

static void decode_momenta(const struct tsr_coding *coding, const void *const plane[], size_t n,
			   float *x)
{
	const struct tsr_gefen_state *s = (const struct tsr_gefen_state *)coding->codec;
	const unsigned char *codes = plane[0];
	float magnitude = 0;

	for (size_t i = 0; i < n; i++) {
		if (i % coding->group == 0)
			magnitude = value_of(plane[1], s->codec.planes[1].dtype, i / coding->group);
		x[i] = s->table[codes[i]] * magnitude;
	}
}

static void decode_means(const struct tsr_coding *coding, const void *const plane[], size_t n,
			 float *x)
{
	float mean = 0;

	for (size_t i = 0; i < n; i++) {
		if (i % coding->group == 0)
			mean = value_of(plane[0], coding->codec->planes[0].dtype,
					i / coding->group);
		x[i] = mean;
	}
}

void tsr_gefen_state_init(struct tsr_gefen_state *s, enum tsr_dtype dtype)
{
	s->codec = (struct tsr_codec){
		.name = "gefen8",
		.summary = "8-bit codes into a learned codebook, with a magnitude per block",
		.source = "Gefen",
		.kinds = TSR_KIND_MOMENTUM,
		.nplanes = 2,
		.planes = { { "", TSR_PER_ELEMENT, TSR_U8 },
			    { "::magnitude", TSR_PER_GROUP_TOO, dtype } },
		.grouped = true,
		.group = 1,
		.scales = 1 << TSR_SCALE_F32,
		.flat = true,
		.decode = decode_momenta,
	};
}

#define MEANS(dtype) \
	{ \
		.name = "blockmean", .summary = "a mean per block", .source = "Gefen", \
		.kinds = TSR_KIND_VARIANCE, .nplanes = 1, \
		.planes = { { "", TSR_PER_GROUP_TOO, dtype } }, .grouped = true, .group = 1, \
		.scales = 1 << TSR_SCALE_F32, .flat = true, .decode = decode_means, \
	}

const struct tsr_codec *tsr_gefen_means(enum tsr_dtype dtype)
{
	static const struct tsr_codec f32 = MEANS(TSR_F32), bf16 = MEANS(TSR_BF16),
				      f16 = MEANS(TSR_F16);

	if (dtype == TSR_F32)
		return &f32;
	if (dtype == TSR_BF16)
		return &bf16;
	return dtype == TSR_F16 ? &f16 : NULL;
}
