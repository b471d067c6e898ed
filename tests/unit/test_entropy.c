/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coded pieces decode to what was coded, are the same on every SIMD level, and are refused where a byte
 * of them cannot be right.  tests/test_coded_planes.py compares them with another decoder.
 */
#include "entropy/entropy.h"
#include "entropy/frequencies.h"
#include "base/isa.h"
#include "unit.h"

#define MOST TSR_ENTROPY_PIECE

static uint8_t plain[MOST * TSR_ENTROPY_WIDTH], back[sizeof(plain)];
static uint8_t coded[MOST * TSR_ENTROPY_WIDTH + 4 * TSR_ENTROPY_WIDTH];
static uint8_t others[sizeof(coded)];
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

/* Bytes of one shape of histogram. */
enum shape { EQUAL, TWO, RARE, FEW, BELL, FLAT_255, FLAT, SHAPES };

static uint8_t draw(enum shape shape, uint64_t *random)
{
	const uint64_t r = random_u64(random);
	int bell = 0;

	switch (shape) {
	case EQUAL:
		return 7;
	case TWO:
		return r & 1 ? 255 : 0;
	case RARE:
		return r % 1000 ? 3 : (uint8_t)(r >> 32);
	case FEW:
		return (uint8_t)(100 + __builtin_ctzll(r | 1u << 20));
	case BELL:
		for (unsigned i = 0; i < 8; i++)
			bell += (int)(r >> 8 * i & 63);
		return (uint8_t)(bell / 2);
	case FLAT_255:
		return (uint8_t)(r % 255);
	default:
		return (uint8_t)r;
	}
}

static void fill(enum shape shape, size_t nbytes, uint64_t seed)
{
	for (size_t i = 0; i < nbytes; i++)
		plain[i] = draw(shape, &seed);
}

static size_t encode(struct tsr_entropy_kind kind, size_t n)
{
	const size_t bound = tsr_entropy_bound(kind, n);
	size_t nbytes;

	memset(coded + bound, 0x5a, sizeof(coded) - bound < 64 ? sizeof(coded) - bound : 64);
	nbytes = tsr_entropy_encode(e, kind, plain, n, coded);
	assert_true(nbytes <= bound && nbytes % 4 == 0);
	if (bound < sizeof(coded))
		assert_int_equal(coded[bound], 0x5a);
	return nbytes;
}

static void assert_round_trip(struct tsr_entropy_kind kind, size_t n)
{
	const size_t nbytes = encode(kind, n), plain_nbytes = kind.width * n;

	memset(back, 0xa5, plain_nbytes + 1 < sizeof(back) ? plain_nbytes + 1 : plain_nbytes);
	assert_null(tsr_entropy_decode(e, kind, coded, nbytes, back, n));
	assert_memory_equal(back, plain, plain_nbytes);
	if (plain_nbytes < sizeof(back))
		assert_int_equal(back[plain_nbytes], 0xa5);
}

static const struct tsr_entropy_kind kinds[] = { { 1, false }, { 2, false }, { 2, true },
						 { 4, false }, { 4, true },  { 8, false } };
static const size_t lengths[] = { 0,   1,   2,	 3,   4,    5,	   31,	  32,	 33,   127,
				  128, 129, 255, 999, 4097, 32767, 32768, 32769, 65536 };

static void test_every_shape_and_length_comes_back(void **state)
{
	(void)state;
	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		if (!tsr_isa_select(*isa))
			continue;
		for (unsigned shape = 0; shape < SHAPES; shape++) {
			for (size_t k = 0; k < COUNT_OF(kinds); k++)
				for (size_t i = 0; i < COUNT_OF(lengths); i++) {
					fill(shape, kinds[k].width * lengths[i], i + 1);
					assert_round_trip(kinds[k], lengths[i]);
				}
			fill(shape, MOST, shape);
			assert_round_trip(kinds[0], MOST);
			assert_round_trip(kinds[0], MOST - 1);
		}
	}
	assert_true(tsr_isa_select(NULL));
}

static void test_every_level_writes_the_same(void **state)
{
	(void)state;
	for (unsigned shape = 0; shape < SHAPES; shape++) {
		size_t nbytes;

		fill(shape, 2 * 70001, shape);
		assert_true(tsr_isa_select("base"));
		nbytes = tsr_entropy_encode(e, kinds[2], plain, 70001, others);
		for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
			if (!tsr_isa_select(*isa))
				continue;
			assert_int_equal(encode(kinds[2], 70001), nbytes);
			assert_memory_equal(coded, others, nbytes);
		}
	}
	assert_true(tsr_isa_select(NULL));
}

/* Sizes by hand: heads, then what the entropy and the tables ask for. */
static void test_sizes(void **state)
{
	(void)state;
	fill(EQUAL, MOST, 0);
	assert_int_equal(encode(kinds[0], MOST), 8);
	fill(FLAT, MOST, 0);
	assert_int_equal(encode(kinds[0], MOST), 4 + MOST);
	/* One bit for each, 128 bytes of states and at most a word per state too many in 8 segments. */
	fill(TWO, MOST, 0);
	assert_in_range(encode(kinds[0], MOST), MOST / 8, MOST / 8 + 8 * 132 + 400);
	assert_int_equal(encode(kinds[0], 0), 0);
}

static void test_frequencies_sum_and_are_at_least_one(void **state)
{
	uint32_t count[256];
	uint16_t freq[256], again[256];
	uint64_t random = 5;

	(void)state;
	for (unsigned trial = 0; trial < 2000; trial++) {
		const unsigned bits = trial % 2 ? 12 : 11, spread = trial % 31;
		uint8_t table[TSR_RANS_TABLE_NBYTES];
		uint32_t sum = 0;
		size_t nbytes, used;

		for (unsigned s = 0; s < 256; s++)
			count[s] = random_u32(&random) % 3
					   ? random_u32(&random) >> (8 + spread % 24)
					   : 0;
		count[trial % 256] += 1;
		count[(trial + 1) % 256] += trial % 7 ? 1 : 200000;
		tsr_rans_frequencies(count, bits, freq);
		for (unsigned s = 0; s < 256; s++) {
			assert_int_equal(freq[s] > 0, count[s] > 0);
			sum += freq[s];
		}
		assert_int_equal(sum, 1u << bits);
		nbytes = tsr_rans_put_table(freq, table);
		assert_null(tsr_rans_get_table(table, nbytes, bits, again, &used));
		assert_int_equal(used, nbytes);
		assert_memory_equal(again, freq, sizeof(freq));
	}
}

/* Quotients by reciprocals are those of the formula, at both ends of all runs of states. */
static void assert_divides(uint32_t freq, unsigned bits)
{
	static struct tsr_rans_symbol table[256];
	uint16_t frequencies[256] = { [0] = (uint16_t)freq, [1] = (uint16_t)((1u << bits) - freq) };
	const uint64_t end = (uint64_t)freq << (32 - bits);
	uint64_t random = freq;

	tsr_rans_encoder_table(frequencies, bits, table);
	for (unsigned i = 0; i < 600; i++) {
		const uint64_t q = i < 300 ? (end / freq) - 1 - i
					   : random_u64(&random) % (end / freq);
		const uint64_t states[] = { q * freq, q * freq + freq - 1 };

		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(tsr_rans_quotient((uint32_t)states[k], table[0]),
					 q);
	}
}

static void test_reciprocals_divide_exactly(void **state)
{
	(void)state;
	for (unsigned bits = 11; bits <= 12; bits++)
		for (uint32_t freq = 1; freq < 1u << bits; freq++)
			assert_divides(freq, bits);
}

/* A piece with one byte changed is refused, or is another piece that decodes to other elements. */
static void test_changed_bytes_do_not_go_unnoticed(void **state)
{
	const size_t n = 3000;
	size_t nbytes, refused = 0;

	(void)state;
	fill(BELL, n, 3);
	nbytes = encode(kinds[0], n);
	for (size_t i = 0; i < nbytes; i++) {
		coded[i] ^= (uint8_t)(1u << i % 8);
		if (tsr_entropy_decode(e, kinds[0], coded, nbytes, back, n))
			refused++;
		else
			assert_memory_not_equal(back, plain, n);
		coded[i] ^= (uint8_t)(1u << i % 8);
	}
	/* The states must end where all begin: what is accepted is a coincidence. */
	assert_in_range(refused, nbytes - 2, nbytes);
	for (size_t short_by = 1; short_by < nbytes; short_by += 7)
		assert_non_null(tsr_entropy_decode(e, kinds[0], coded, nbytes - short_by, back, n));
	memset(coded + nbytes, 0, 4);
	assert_non_null(tsr_entropy_decode(e, kinds[0], coded, nbytes + 4, back, n));
	assert_non_null(tsr_entropy_decode(e, kinds[0], coded, nbytes, back, n - 1));
	assert_non_null(tsr_entropy_decode(e, kinds[0], coded, nbytes, back, n + 1));
	assert_null(tsr_entropy_decode(e, kinds[0], coded, nbytes, back, n));
}

/* test_entropy encode|decode WIDTH ROTATED N: a piece from standard input to standard output. */
static int filter(char **args)
{
	const struct tsr_entropy_kind kind = { (unsigned)atoi(args[1]), atoi(args[2]) != 0 };
	const size_t n = (size_t)atol(args[3]), nbytes = fread(coded, 1, sizeof(coded), stdin);
	const char *wrong = NULL;

	e = tsr_entropy_new(kind.width);
	if (!e)
		return 2;
	if (strcmp(args[0], "encode") == 0)
		fwrite(others, 1, tsr_entropy_encode(e, kind, coded, n, others), stdout);
	else if ((wrong = tsr_entropy_decode(e, kind, coded, nbytes, plain, n)) == NULL)
		fwrite(plain, kind.width, n, stdout);
	else
		fputs(wrong, stderr);
	tsr_entropy_free(e);
	return wrong != NULL;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_shape_and_length_comes_back),
		cmocka_unit_test(test_every_level_writes_the_same),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_frequencies_sum_and_are_at_least_one),
		cmocka_unit_test(test_reciprocals_divide_exactly),
		cmocka_unit_test(test_changed_bytes_do_not_go_unnoticed),
	};

	if (argc == 5)
		return filter(argv + 1);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
