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

/* --- Codes with contexts ----------------------------------------------------------------------- */

static uint16_t scales[MOST];

/* Scales that differ, and a matrix of some width, by the first bytes of the input. */
static struct tsr_entropy_variance make_variance(const uint8_t *data)
{
	const struct tsr_entropy_variance v = {
		.first = data[1] * 97u,
		.columns = data[2],
		.scales = { scales, data[0] & 0x40 ? data[2] : 0, 1u + data[3] % 64 },
		.logarithmic = data[0] & 0x10,
	};

	for (size_t i = 0; i < MOST; i++)
		scales[i] = (uint16_t)(0x7e00 + (i * 7919 + data[4]) % 256);
	return v;
}

static void check_codes(struct tsr_entropy *e, const uint8_t *data, size_t size, size_t n)
{
	const struct tsr_entropy_variance v = make_variance(data);
	size_t nbytes;

	data += 6;
	size -= 6;
	if (!tsr_entropy_decode_codes(e, &v, data, size, first, n)) {
		nbytes = tsr_entropy_encode_codes(e, &v, first, n, coded);
		REQUIRE(!tsr_entropy_decode_codes(e, &v, coded, nbytes, other, n));
		REQUIRE(memcmp(other, first, n) == 0);
	}
	n = size < MOST ? size : MOST;
	nbytes = tsr_entropy_encode_codes(e, &v, data, n, coded);
	REQUIRE(nbytes <= tsr_entropy_bound(kinds[0], n));
	REQUIRE(!tsr_entropy_decode_codes(e, &v, coded, nbytes, other, n));
	REQUIRE(memcmp(other, data, n) == 0);
}

/* --- All --------------------------------------------------------------------------------------- */

static void check_elements(struct tsr_entropy *e, struct tsr_entropy_kind kind, const uint8_t *data,
			   size_t size, size_t n)
{
	bool accepted = false;

	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		uint8_t *const plain = isa == tsr_isa_names() ? first : other;
		bool works;

		if (!tsr_isa_select(*isa))
			continue;
		works = !tsr_entropy_decode(e, kind, data, size, plain, n);
		if (plain == first)
			accepted = works;
		REQUIRE(works == accepted);
		REQUIRE(!works || memcmp(plain, first, kind.width * n) == 0);
	}
	if (accepted)
		check_round_trip(e, kind, first, n);
	check_round_trip(e, kind, data, size / kind.width < MOST ? size / kind.width : MOST);
}

/* Edges count the elements, of which an input of a few bytes may have as many as there are in a piece. */
const struct cost_bounds fuzz_cost = { 60000000, 1000, 32 << 20, 0 };

void fuzz_input(const uint8_t *data, size_t size)
{
	struct tsr_entropy_kind kind;
	struct tsr_entropy *e;
	size_t n;

	if (size < 4 || (data[0] & 0x80 && size < 10))
		return;
	kind = kinds[data[0] % 16 % (sizeof(kinds) / sizeof(*kinds))];
	e = tsr_entropy_new(kind.width);
	if (!e)
		return;
	n = (data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16) % (MOST + 1);
	if (data[0] & 0x80)
		check_codes(e, data + 4, size - 4, n);
	else
		check_elements(e, kind, data + 4, size - 4, n);
	tsr_entropy_free(e);
}
