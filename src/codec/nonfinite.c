/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of values that are not finite, by the bits that each type marks them with. */
#include "codec/nonfinite.h"

#include <string.h>

/* Values of @size bytes whose bits under @mask are @pattern are not finite. */
struct special {
	unsigned size;
	uint64_t mask, pattern;
};

static const struct special specials[TSR_DTYPE_COUNT] = {
	[TSR_F8_E5M2] = { 1, 0x7c, 0x7c },
	[TSR_F8_E4M3] = { 1, 0x7f, 0x7f },
	[TSR_F8_E8M0] = { 1, 0xff, 0xff },
	[TSR_F8_E4M3FNUZ] = { 1, 0xff, 0x80 },
	[TSR_F8_E5M2FNUZ] = { 1, 0xff, 0x80 },
	[TSR_F16] = { 2, 0x7c00, 0x7c00 },
	[TSR_BF16] = { 2, 0x7f80, 0x7f80 },
	[TSR_F32] = { 4, 0x7f800000, 0x7f800000 },
	[TSR_C64] = { 4, 0x7f800000, 0x7f800000 },
	[TSR_F64] = { 8, UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff0000000000000) },
};

/* Values that are counted at once: a length that the compiler knows is looked through as vectors. */
#define BATCH 256u

#define DEFINE_COUNT(T) \
	static uint64_t count_##T(const unsigned char *at, size_t n, const struct special *s) \
	{ \
		const T mask = (T)s->mask, pattern = (T)s->pattern; \
		uint64_t count = 0; \
		T values[BATCH]; \
\
		for (; n >= BATCH; n -= BATCH, at += sizeof(values)) { \
			uint32_t found = 0; \
\
			memcpy(values, at, sizeof(values)); \
			for (size_t i = 0; i < BATCH; i++) \
				found += (values[i] & mask) == pattern; \
			count += found; \
		} \
		for (; n; n--, at += sizeof(T)) { \
			memcpy(values, at, sizeof(T)); \
			count += (values[0] & mask) == pattern; \
		} \
		return count; \
	}

DEFINE_COUNT(uint8_t)
DEFINE_COUNT(uint16_t)
DEFINE_COUNT(uint32_t)
DEFINE_COUNT(uint64_t)

uint64_t tsr_count_nonfinite(enum tsr_dtype dtype, const void *data, size_t nbytes)
{
	const struct special *s = &specials[dtype];

	switch (s->size) {
	case 1:
		return count_uint8_t(data, nbytes, s);
	case 2:
		return count_uint16_t(data, nbytes / 2, s);
	case 4:
		return count_uint32_t(data, nbytes / 4, s);
	case 8:
		return count_uint64_t(data, nbytes / 8, s);
	default:
		return 0;
	}
}

size_t tsr_first_nonfinite(enum tsr_dtype dtype, const void *data, size_t nbytes)
{
	const size_t size = specials[dtype].size;
	const unsigned char *bytes = data;

	for (size_t i = 0; size && i < nbytes / size; i++) {
		if (tsr_count_nonfinite(dtype, bytes + i * size, size))
			return i;
	}
	return SIZE_MAX;
}
