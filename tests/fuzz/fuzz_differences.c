/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece of differences to older elements: all SIMD levels refuse it, or all decode the same elements, which
 * come back when they are coded again; and any bytes as elements.
 */
#include "base/isa.h"
#include "entropy/differences.h"
#include "fuzz.h"

/* Larger pieces take the same paths, more slowly. */
#define MOST 40000u

static uint8_t old_plane[4 * MOST], old_correction[2 * MOST];
static uint16_t old_scales[MOST], scales[MOST];
static uint8_t first[4 * MOST], first_correction[2 * MOST], other[4 * MOST],
	other_correction[2 * MOST];
static uint8_t coded[6 * MOST];

static const struct tsr_difference_kind kinds[] = {
	{ TSR_DIFFERENCE_INTEGERS, 1, 0, 0 },  { TSR_DIFFERENCE_INTEGERS, 2, 0, 0 },
	{ TSR_DIFFERENCE_INTEGERS, 4, 0, 0 },  { TSR_DIFFERENCE_FLOATS, 2, 0, 7 },
	{ TSR_DIFFERENCE_FLOATS, 2, 0, 10 },   { TSR_DIFFERENCE_FLOATS, 4, 0, 23 },
	{ TSR_DIFFERENCE_FLOATS, 2, 1, 7 },    { TSR_DIFFERENCE_FLOATS, 2, 2, 7 },
	{ TSR_DIFFERENCE_VARIANCES, 1, 0, 0 },
};

/* Old elements and scales by two bytes of the input. */
static struct tsr_entropy_old make_old(struct tsr_difference_kind kind, const uint8_t *data)
{
	for (size_t i = 0; i < sizeof(old_plane); i++)
		old_plane[i] = (uint8_t)(i * data[0] + i / 7 * data[1]);
	for (size_t i = 0; i < sizeof(old_correction); i++)
		old_correction[i] = (uint8_t)(i * data[1] + i / 5);
	for (size_t i = 0; i < MOST; i++) {
		old_scales[i] = (uint16_t)(0x7e00 + (i * 7919 + data[0]) % 256);
		scales[i] = (uint16_t)(0x7e00 + i * data[1]);
	}
	return (struct tsr_entropy_old){ .kind = kind,
					 .plane = old_plane,
					 .correction = old_correction,
					 .first = data[1],
					 .old_scales = { old_scales, 0, 1u + data[0] % 64 },
					 .scales = { scales, 0, 1u + data[0] % 64 } };
}

static void check_round_trip(struct tsr_entropy *e, const struct tsr_entropy_old *old,
			     const uint8_t *plane, const uint8_t *correction, size_t n)
{
	const size_t nbytes = tsr_entropy_encode_differences(e, old, plane, correction, n, coded,
							     sizeof(coded));

	REQUIRE(nbytes && nbytes % 4 == 0);
	REQUIRE(!tsr_entropy_decode_differences(e, old, coded, nbytes, other, other_correction, n));
	REQUIRE(memcmp(other, plane, old->kind.width * n) == 0);
	REQUIRE(memcmp(other_correction, correction, old->kind.correction * n) == 0);
}

static bool decode(struct tsr_entropy *e, const struct tsr_entropy_old *old, const uint8_t *data,
		   size_t size, size_t n)
{
	bool accepted = false;

	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		const bool is_first = isa == tsr_isa_names();
		bool works;

		if (!tsr_isa_select(*isa))
			continue;
		works = !tsr_entropy_decode_differences(
			e, old, data, size, is_first ? first : other,
			is_first ? first_correction : other_correction, n);
		accepted = is_first ? works : accepted;
		REQUIRE(works == accepted);
		REQUIRE(is_first || !works || memcmp(other, first, old->kind.width * n) == 0);
	}
	return accepted;
}

/* Edges count the elements, of which an input of a few bytes may have as many as there are in a piece. */
const struct cost_bounds fuzz_cost = { 60000000, 1000, 32 << 20, 0 };

/* The kind, two bytes for the old elements, the number of elements in 2 bytes, and a piece. */
void fuzz_input(const uint8_t *data, size_t size)
{
	struct tsr_entropy_old old;
	struct tsr_entropy *e;
	size_t n;

	if (size < 6)
		return;
	old = make_old(kinds[data[0] % (sizeof(kinds) / sizeof(*kinds))], data + 1);
	n = 1 + (data[3] | (size_t)data[4] << 8) % MOST;
	e = tsr_entropy_new(TSR_ENTROPY_WIDTH);
	if (!e)
		return;
	if (decode(e, &old, data + 5, size - 5, n))
		check_round_trip(e, &old, first, first_correction, n);
	n = (size - 5) / (old.kind.width + old.kind.correction);
	if (n > 0 && n <= MOST)
		check_round_trip(e, &old, data + 5, data + 5 + n * old.kind.width, n);
	tsr_entropy_free(e);
}
