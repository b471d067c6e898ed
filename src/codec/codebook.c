/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of 8-bit and 4-bit states with a table of values. */
#include "codec/codebook.h"

#include <string.h>

static unsigned code_at(const struct tsr_codebook *c, const unsigned char *codes, size_t i)
{
	if (c->codec.planes[0].dtype != TSR_F4)
		return codes[i];
	return i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
}

static void decode(const struct tsr_coding *coding, const void *const plane[], size_t n, float *x)
{
	const struct tsr_codebook *c = (const struct tsr_codebook *)coding->codec;
	const unsigned char *codes = plane[0], *scales = plane[1];

	for (size_t first = 0; first < n; first += coding->group) {
		const size_t left = n - first;
		const size_t end = first + (left < coding->group ? left : coding->group);
		float scale;

		memcpy(&scale, scales + first / coding->group * sizeof(scale), sizeof(scale));
		for (size_t i = first; i < end; i++)
			x[i] = c->table[code_at(c, codes, i)] * scale;
	}
}

void tsr_codebook_init(struct tsr_codebook *c, bool halves)
{
	c->codec = (struct tsr_codec){
		.name = "dyn8",
		.summary = "8-bit codes into a table, with a scale per group",
		.source = "bitsandbytes",
		.kinds = TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE,
		.nplanes = 2,
		.planes = { { "", TSR_PER_ELEMENT, TSR_U8 },
			    { "::absmax", TSR_PER_GROUP, TSR_F32 } },
		.grouped = true,
		.group = 256,
		.scales = 1 << TSR_SCALE_F32,
		.flat = true,
		.decode = decode,
	};
	if (halves) {
		c->codec.name = "dyn4";
		c->codec.summary = "4-bit codes into a table, with a scale per group";
		c->codec.planes[0].dtype = TSR_F4;
	}
}
