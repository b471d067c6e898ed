/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece of a coded plane: all SIMD levels refuse it, or all decode the same elements, which come back
 * when they are coded again; and any bytes as elements.
 */
#include "base/isa.h"
#include "entropy/entropy.h"
#include "fuzz.h"

/* Larger pieces take the same paths, more slowly. */
#define MOST 70000u

static uint8_t first[MOST * TSR_ENTROPY_WIDTH], other[sizeof(first)];
static uint8_t coded[sizeof(first) + 64];

static const struct tsr_entropy_kind kinds[] = { { 1, false }, { 2, false }, { 2, true },
						 { 4, false }, { 4, true },  { 8, false } };

static void check_round_trip(struct tsr_entropy *e, struct tsr_entropy_kind kind,
			     const uint8_t *plain, size_t n)
{
	const size_t nbytes = tsr_entropy_encode(e, kind, plain, n, coded);

	REQUIRE(nbytes <= tsr_entropy_bound(kind, n));
	REQUIRE(!tsr_entropy_decode(e, kind, coded, nbytes, other, n));
	REQUIRE(memcmp(other, plain, kind.width * n) == 0);
}

/* Edges count the elements, of which an input of a few bytes may have as many as there are in a piece. */
const struct cost_bounds fuzz_cost = { 60000000, 1000, 32 << 20, 0 };

void fuzz_input(const uint8_t *data, size_t size)
{
	struct tsr_entropy_kind kind;
	struct tsr_entropy *e;
	bool accepted = false;
	size_t n;

	if (size < 4)
		return;
	kind = kinds[data[0] % (sizeof(kinds) / sizeof(*kinds))];
	n = (data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16) % (MOST + 1);
	e = tsr_entropy_new(kind.width);
	if (!e)
		return;
	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		uint8_t *const plain = isa == tsr_isa_names() ? first : other;
		bool works;

		if (!tsr_isa_select(*isa))
			continue;
		works = !tsr_entropy_decode(e, kind, data + 4, size - 4, plain, n);
		if (plain == first)
			accepted = works;
		REQUIRE(works == accepted);
		REQUIRE(!works || memcmp(plain, first, kind.width * n) == 0);
	}
	if (accepted)
		check_round_trip(e, kind, first, n);
	check_round_trip(e, kind, data + 4,
			 (size - 4) / kind.width < MOST ? (size - 4) / kind.width : MOST);
	tsr_entropy_free(e);
}
