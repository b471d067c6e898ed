/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Differences from older elements come back for any elements, take the bytes that they should and no more
 * room than there is.  tests/test_delta.py compares them with another decoder.
 */
#include "base/isa.h"
#include "entropy/base_elements.h"
#include "entropy/differences.h"
#include "entropy/differences_math.h"
#include "unit.h"

#define MOST TSR_ENTROPY_PIECE

static const struct tsr_difference_kind kinds[] = {
	{ TSR_DIFFERENCE_INTEGERS, 1, 0, 0 }, { TSR_DIFFERENCE_INTEGERS, 2, 0, 0 },
	{ TSR_DIFFERENCE_INTEGERS, 4, 0, 0 }, { TSR_DIFFERENCE_FLOATS, 2, 0, 7 },
	{ TSR_DIFFERENCE_FLOATS, 2, 0, 10 },  { TSR_DIFFERENCE_FLOATS, 4, 0, 23 },
	{ TSR_DIFFERENCE_FLOATS, 2, 1, 7 },   { TSR_DIFFERENCE_FLOATS, 2, 2, 7 },
	{ TSR_DIFFERENCE_FLOATS, 2, 1, 10 },  { TSR_DIFFERENCE_VARIANCES, 1, 0, 0 },
};
static const size_t lengths[] = { 1, 2, 3, 5, 33, 127, 129, 999, 32767, 32769, 70001 };

static uint8_t old_plane[4 * MOST], plane[4 * MOST], back[4 * MOST];
static uint8_t old_correction[2 * MOST], correction[2 * MOST], back_correction[2 * MOST];
static uint8_t coded[5 * MOST + 4096], others[5 * MOST + 4096];
static uint16_t old_scales[MOST], scales[MOST];
static struct tsr_entropy *e;

static int set_up(void **state)
{
	(void)state;
	e = tsr_entropy_new(TSR_ENTROPY_WIDTH);
	return e ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	tsr_entropy_free(e);
	return 0;
}

/* Any old bytes; of the new ones one in @rarity is another. */
static void fill(unsigned rarity, uint64_t seed)
{
	for (size_t i = 0; i < sizeof(plane); i++) {
		const uint64_t r = random_u64(&seed);

		old_plane[i] = (uint8_t)r;
		plane[i] = (uint8_t)(r >> 16 & 0xffff) % rarity ? old_plane[i] : (uint8_t)(r >> 8);
		if (i < sizeof(correction)) {
			old_correction[i] = (uint8_t)(r >> 32);
			correction[i] = (r >> 48) % rarity ? old_correction[i] : (uint8_t)(r >> 40);
		}
	}
	for (size_t i = 0; i < MOST; i++) {
		const uint64_t r = random_u64(&seed);

		old_scales[i] = (uint16_t)(0x7e00 + r % 512);
		scales[i] = r % 997 ? (uint16_t)(old_scales[i] + r / 512 % 9) : (uint16_t)r;
	}
}

static struct tsr_entropy_old old_of(struct tsr_difference_kind kind)
{
	return (struct tsr_entropy_old){ .kind = kind,
					 .plane = old_plane,
					 .correction = old_correction,
					 .first = 7,
					 .old_scales = { old_scales, 50, 25 },
					 .scales = { scales, 50, 25 } };
}

static size_t encode(struct tsr_difference_kind kind, size_t n, uint8_t *to, size_t room)
{
	const struct tsr_entropy_old old = old_of(kind);

	return tsr_entropy_encode_differences(e, &old, plane, correction, n, to, room);
}

static const char *decode(struct tsr_difference_kind kind, size_t n, size_t nbytes)
{
	const struct tsr_entropy_old old = old_of(kind);

	return tsr_entropy_decode_differences(e, &old, coded, nbytes, back, back_correction, n);
}

static void assert_round_trip(struct tsr_difference_kind kind, size_t n)
{
	const size_t nbytes = encode(kind, n, coded, sizeof(coded));

	assert_true(nbytes && nbytes % 4 == 0);
	memset(back, 0xa5, n * kind.width + 1 < sizeof(back) ? n * kind.width + 1 : sizeof(back));
	assert_null(decode(kind, n, nbytes));
	assert_memory_equal(back, plane, n * kind.width);
	assert_memory_equal(back_correction, correction, n * kind.correction);
	if (n * kind.width < sizeof(back))
		assert_int_equal(back[n * kind.width], 0xa5);
}

static void test_any_elements_come_back(void **state)
{
	static const unsigned rarities[] = { 1, 3, 200 };

	(void)state;
	for (size_t r = 0; r < COUNT_OF(rarities); r++) {
		fill(rarities[r], r + 1);
		for (size_t k = 0; k < COUNT_OF(kinds); k++) {
			for (size_t i = 0; i < COUNT_OF(lengths); i++)
				assert_round_trip(kinds[k], lengths[i]);
			assert_round_trip(kinds[k], MOST);
		}
	}
}

/* An integer of two bytes, @step more than the old one. */
static void move_by(size_t i, uint32_t step)
{
	uint16_t x;

	memcpy(&x, old_plane + 2 * i, 2);
	x = (uint16_t)(x + step);
	memcpy(plane + 2 * i, &x, 2);
}

/* Around the smallest difference that is no symbol, and with a single rest, which may be anywhere. */
static void test_small_steps_come_back(void **state)
{
	static const uint32_t mosts[] = { 1, 7, 8, 9, 20 };
	uint64_t seed = 3;

	(void)state;
	fill(1, 4);
	for (size_t k = 0; k < COUNT_OF(mosts); k++) {
		for (size_t i = 0; i < 5000; i++)
			move_by(i, (uint32_t)(random_u64(&seed) % (mosts[k] + 1)));
		assert_round_trip(kinds[1], 5000);
	}
	for (size_t place = 0; place < 64; place++) {
		memcpy(plane, old_plane, sizeof(plane));
		move_by(place, 20000);
		assert_round_trip(kinds[1], 5000);
	}
}

static void assert_levels_agree(struct tsr_difference_kind kind)
{
	size_t nbytes;

	assert_true(tsr_isa_select("base"));
	nbytes = encode(kind, 70001, others, sizeof(others));
	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		if (!tsr_isa_select(*isa))
			continue;
		assert_int_equal(encode(kind, 70001, coded, sizeof(coded)), nbytes);
		assert_memory_equal(coded, others, nbytes);
		memset(back, 0xa5, sizeof(back));
		assert_null(decode(kind, 70001, nbytes));
		assert_memory_equal(back, plane, 70001 * kind.width);
		assert_memory_equal(back_correction, correction, 70001 * kind.correction);
	}
	assert_true(tsr_isa_select(NULL));
}

/* Also where most symbols are the first ones of their tables, which has a loop of its own. */
static void test_every_level_writes_the_same(void **state)
{
	static const unsigned rarities[] = { 5, 200, 5000 };

	(void)state;
	for (size_t r = 0; r < COUNT_OF(rarities); r++) {
		fill(rarities[r], 9);
		for (size_t k = 0; k < COUNT_OF(kinds); k++)
			assert_levels_agree(kinds[k]);
	}
}

static void assert_contexts(struct tsr_difference_kind kind, uint8_t lowest)
{
	const struct tsr_entropy_old old = old_of(kind);

	assert_int_equal(tsr_older_lowest(&old, 1 << 16), kind.mantissa == 10 ? 11 : 123);
	tsr_older_expect(&old, 1 << 16, lowest, NULL, others);
	for (uint32_t x = 0; x < 1 << 16; x++) {
		const uint32_t magnitude = kind.width == 2 ? x & 0x7fff : (x & 0x7fff) << 16;
		const int above = (int)(magnitude >> kind.mantissa) - lowest;

		assert_int_equal(others[x], above < 0 ? 0 : above > 7 ? 7 : above);
	}
}

/* Of all numbers of two bytes, and of four with these in front.  Context 0 is 4 below their mean. */
static void test_contexts_are_exponents_above_the_lowest(void **state)
{
	static const uint8_t lowests[] = { 0, 11, 120, 255 };

	(void)state;
	for (size_t k = 3; k < 6; k++) {
		for (uint32_t x = 0; x < 1 << 16; x++) {
			memset(old_plane + kinds[k].width * x, 0, 4);
			memcpy(old_plane + kinds[k].width * (x + 1) - 2, &(uint16_t){ (uint16_t)x },
			       2);
		}
		for (const char *const *isa = tsr_isa_names(); *isa; isa++)
			for (size_t i = 0; tsr_isa_select(*isa) && i < COUNT_OF(lowests); i++)
				assert_contexts(kinds[k], lowests[i]);
	}
	assert_true(tsr_isa_select(NULL));
}

/* Heads, and one symbol that all elements have. */
static void test_nothing_new_takes_twelve_bytes(void **state)
{
	(void)state;
	fill(1u << 30, 4);
	memcpy(plane, old_plane, sizeof(plane));
	memcpy(correction, old_correction, sizeof(correction));
	memcpy(scales, old_scales, sizeof(scales));
	for (size_t k = 0; k < COUNT_OF(kinds); k++)
		assert_int_equal(encode(kinds[k], MOST, coded, sizeof(coded)), 12);
}

/* One in 128 elements is one step away: entropy 0.075 bits, states 0.032 bits. */
static void test_rare_steps_take_a_hundredth_of_their_plane(void **state)
{
	uint64_t seed = 3;

	(void)state;
	fill(1u << 30, 4);
	for (size_t i = 0; i < MOST; i++) {
		const uint16_t was = (uint16_t)(0x3c00 + random_u64(&seed) % 512);
		const uint16_t is = (uint16_t)(was + (random_u64(&seed) % 128 == 0));

		memcpy(old_plane + 2 * i, &was, 2);
		memcpy(plane + 2 * i, &is, 2);
	}
	assert_true(encode(kinds[3], MOST, coded, sizeof(coded)) < MOST * 14 / 1000);
	assert_round_trip(kinds[3], MOST);
}

static void test_what_does_not_fit_is_not_written(void **state)
{
	const size_t n = 5000;

	(void)state;
	fill(3, 6);
	for (size_t k = 0; k < COUNT_OF(kinds); k++) {
		const size_t nbytes = encode(kinds[k], n, coded, sizeof(coded));

		assert_int_equal(encode(kinds[k], n, coded, nbytes), nbytes);
		for (size_t room = 0; room < nbytes; room += room + 40 < nbytes ? 37 : 1) {
			memset(others + room, 0x5a, 64);
			assert_int_equal(encode(kinds[k], n, others, room), 0);
			for (size_t i = 0; i < 64; i++)
				assert_int_equal(others[room + i], 0x5a);
		}
	}
}

/*
 * Changed bytes are refused or give other elements; cut ones are refused.  Which contexts share a table, and
 * the lowest exponent, may not matter.
 */
#define CONTEXTS_AT 8
static void test_damage_does_not_go_unnoticed(void **state)
{
	const size_t n = 3000;

	(void)state;
	fill(4, 8);
	for (size_t k = 0; k < COUNT_OF(kinds); k++) {
		const size_t nbytes = encode(kinds[k], n, coded, sizeof(coded));

		for (size_t i = 0; i < nbytes; i += i < 64 ? 1 : 61) {
			coded[i] ^= 0x10;
			if (!decode(kinds[k], n, nbytes) &&
			    (i < CONTEXTS_AT || i > CONTEXTS_AT + 2))
				assert_true(memcmp(back, plane, n * kinds[k].width) ||
					    memcmp(back_correction, correction,
						   n * kinds[k].correction));
			coded[i] ^= 0x10;
		}
		for (size_t cut = 0; cut < nbytes; cut += 4)
			assert_non_null(decode(kinds[k], n, cut));
	}
}

static void test_order_and_symbols_are_inverted(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (uint32_t x = 0; x < 65536; x++) {
		assert_int_equal(
			tsr_difference_unordered(tsr_difference_ordered(x, 16, true), 16, true), x);
		assert_int_equal(
			tsr_difference_unordered(tsr_difference_ordered(x, 16, false), 16, false),
			x);
	}
	/* -2, -1, -0, 0, 1, 2 in BF16. */
	assert_int_equal(tsr_difference_ordered(0xbf80, 16, true) -
				 tsr_difference_ordered(0xc000, 16, true),
			 0x80);
	assert_int_equal(
		tsr_difference_ordered(0, 16, true) - tsr_difference_ordered(0x8000, 16, true), 1);
	for (unsigned i = 0; i < 1000000; i++) {
		static const unsigned widths[] = { 8, 16, 24, 32 };
		const unsigned bits = widths[i % 4];
		const uint64_t r = random_u64(&seed);
		const uint32_t all = UINT32_MAX >> (32 - bits), x = (uint32_t)r & all;
		const uint32_t from = (x + ((uint32_t)(r >> 32) >> i % 32)) & all;
		const uint32_t z = tsr_difference_fold(x, from, bits);
		const uint32_t s = tsr_difference_symbol(z, bits),
			       rest = tsr_difference_rest(s, bits);

		assert_true(z <= all && s <= tsr_difference_symbol_max(bits) && s < 256);
		assert_int_equal(tsr_difference_base(s, bits) | (z & ((UINT64_C(1) << rest) - 1)),
				 z);
		assert_int_equal(tsr_difference_add(from, tsr_difference_unfold(z), bits), x);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_elements_come_back),
		cmocka_unit_test(test_small_steps_come_back),
		cmocka_unit_test(test_every_level_writes_the_same),
		cmocka_unit_test(test_contexts_are_exponents_above_the_lowest),
		cmocka_unit_test(test_nothing_new_takes_twelve_bytes),
		cmocka_unit_test(test_rare_steps_take_a_hundredth_of_their_plane),
		cmocka_unit_test(test_what_does_not_fit_is_not_written),
		cmocka_unit_test(test_damage_does_not_go_unnoticed),
		cmocka_unit_test(test_order_and_symbols_are_inverted),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
