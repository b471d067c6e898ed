/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coded pieces decode to what was coded, are the same on every SIMD level, and are refused where a byte
 * of them cannot be right.  tests/test_coded_planes.py compares them with another decoder.
 */
#include "entropy/contexts_math.h"
#include "entropy/entropy.h"
#include "entropy/frequencies.h"
#include "base/isa.h"
#include "unit.h"

#define MOST TSR_ENTROPY_PIECE

static uint8_t plain[MOST * TSR_ENTROPY_WIDTH + 4 * TSR_ENTROPY_WIDTH], back[sizeof(plain)];
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
static void assert_divides(uint32_t freq)
{
	const unsigned bits = TSR_RANS_BITS;
	static struct tsr_rans_symbol table[256];
	uint16_t frequencies[256] = { [0] = (uint16_t)freq, [1] = (uint16_t)((1u << bits) - freq) };
	const uint64_t end = (uint64_t)freq << (32 - bits);
	uint64_t random = freq;

	tsr_rans_encoder_table(frequencies, table);
	for (unsigned i = 0; i < 600; i++) {
		const uint64_t q = i < 300 ? (end / freq) - 1 - i
					   : random_u64(&random) % (end / freq);
		const uint64_t states[] = { q * freq, q * freq + freq - 1 };

		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(tsr_rans_quotient((uint32_t)states[k], table[0]), q);
	}
}

static void test_reciprocals_divide_exactly(void **state)
{
	(void)state;
	for (uint32_t freq = 1; freq < 1u << TSR_RANS_BITS; freq++)
		assert_divides(freq);
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

/* --- Codes ------------------------------------------------------------------------------------- */

static uint16_t scales[MOST];

/* Codes of a matrix of rank 1 but for noise, with scales that vary little. */
static void fill_codes(size_t n, size_t columns, uint64_t seed)
{
	uint64_t random = seed;

	for (size_t i = 0; i < n; i++) {
		const unsigned line = (unsigned)(1 + i % columns % 7) *
				      (unsigned)(1 + i / columns % 5);

		plain[i] = (uint8_t)(line * (4 + random_u32(&random) % 4));
		scales[i] = (uint16_t)(0x7f00 + random_u32(&random) % 64);
	}
}

/* Round trip; the mode it has. */
static unsigned code(const struct tsr_entropy_variance *v, size_t n)
{
	const size_t bound = tsr_entropy_bound(kinds[0], n);
	size_t nbytes;

	memset(coded + bound, 0x5a, 4);
	nbytes = tsr_entropy_encode_codes(e, v, plain, n, coded);
	assert_true(nbytes <= bound && nbytes % 4 == 0 && coded[bound] == 0x5a);
	memset(back, 0xa5, n + 1);
	assert_null(tsr_entropy_decode_codes(e, v, coded, nbytes, back, n));
	assert_memory_equal(back, plain, n);
	assert_int_equal(back[n], 0xa5);
	return coded[0];
}

static void test_codes_come_back_wherever_they_begin(void **state)
{
	static const struct {
		uint64_t first, columns;
		uint32_t group, row;
		size_t n;
		unsigned mode; /* 9: any */
	} cases[] = {
		{ 0, 64, 32, 0, 20000, 3 },	{ 262144, 65, 32, 0, 20000, 3 },
		{ 100, 48, 24, 48, 9999, 3 },	{ 47, 48, 24, 48, 9999, 3 },
		{ 0, 1000, 32, 0, 16384, 3 },	{ 0, 1, 32, 0, 9999, 9 },
		{ 0, 0, 32, 0, 1, 9 },		{ 5, 9999, 32, 0, 9999, 9 },
		{ 0, 64, 32, 64, 0, 9 },	{ 7, 64, 1, 0, 70000, 3 },
		{ 7, 64, 100000, 0, 70000, 3 }, { 77, 500, 500, 500, 32768, 3 },
		{ 3, 64, 32, 64, 262144, 3 },	{ 3, 64, 50, 64, 262143, 3 },
	};

	(void)state;
	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		if (!tsr_isa_select(*isa))
			continue;
		for (size_t i = 0; i < COUNT_OF(cases); i++) {
			const size_t n = cases[i].n;
			struct tsr_entropy_variance v = {
				.first = cases[i].first,
				.columns = cases[i].columns,
				.scales = { scales, cases[i].row, cases[i].group },
			};
			unsigned mode;

			fill_codes(n, v.columns ? v.columns : 1, i + 1);
			mode = n ? code(&v, n) : 9;
			assert_true(cases[i].mode == 9 || mode == cases[i].mode);
		}
	}
	assert_true(tsr_isa_select(NULL));
}

static void assert_levels_agree(const struct tsr_entropy_variance *v, size_t n)
{
	size_t nbytes;

	assert_true(tsr_isa_select("base"));
	nbytes = tsr_entropy_encode_codes(e, v, plain, n, others);
	assert_int_equal(others[0], 3);
	for (const char *const *isa = tsr_isa_names(); *isa; isa++) {
		if (!tsr_isa_select(*isa))
			continue;
		assert_int_equal(tsr_entropy_encode_codes(e, v, plain, n, coded), nbytes);
		assert_memory_equal(coded, others, nbytes);
	}
	assert_true(tsr_isa_select(NULL));
}

static void test_every_level_writes_the_same_codes(void **state)
{
	(void)state;
	for (uint32_t group = 30; group <= 32; group++) {
		struct tsr_entropy_variance v = { .first = 9,
						  .columns = 100,
						  .scales = { scales, 100, group } };

		fill_codes(50000, 100, 3);
		assert_levels_agree(&v, 50000);
		v.logarithmic = true;
		for (size_t i = 0; i < 50000; i++) {
			plain[i] = (uint8_t)(255 - i % 3 - (9 + i) % 100 % 7 * 30);
			scales[i] = (uint16_t)(0x7000 | (7 + i % 3));
		}
		assert_levels_agree(&v, 50000);
	}
}

/* A piece with contexts is none of a plane without them, nor one of another length. */
static void test_damaged_codes_are_refused(void **state)
{
	const struct tsr_entropy_variance v = { .columns = 50, .scales = { scales, 0, 32 } };
	const struct tsr_entropy_variance vector = { .columns = 5000, .scales = { scales, 0, 32 } };
	const size_t n = 5000;
	size_t nbytes, refused = 0;

	(void)state;
	fill_codes(n, 50, 4);
	nbytes = tsr_entropy_encode_codes(e, &v, plain, n, coded);
	assert_int_equal(coded[0], 3);
	assert_non_null(tsr_entropy_decode(e, kinds[0], coded, nbytes, back, n));
	assert_non_null(tsr_entropy_decode_codes(e, &vector, coded, nbytes, back, n));
	assert_non_null(tsr_entropy_decode_codes(e, &v, coded, nbytes, back, n - 1));
	for (size_t short_by = 1; short_by <= nbytes; short_by++)
		assert_non_null(tsr_entropy_decode_codes(e, &v, coded, nbytes - short_by, back, n));
	for (size_t i = 0; i < nbytes; i++) {
		coded[i] ^= (uint8_t)(1u << i % 8);
		refused += tsr_entropy_decode_codes(e, &v, coded, nbytes, back, n) != NULL;
		coded[i] ^= (uint8_t)(1u << i % 8);
	}
	/* All but means that change no context. */
	assert_in_range(refused, nbytes - 150, nbytes);
}

/* --- Refusals ---------------------------------------------------------------------------------- */

/* Bytes from @at on replaced: refused for this reason. */
static void assert_refused(const struct tsr_entropy_variance *v, size_t n, size_t nbytes, size_t at,
			   const char *bytes, size_t size, const char *why)
{
	const char *wrong;
	uint8_t was[8];

	memcpy(was, coded + at, size);
	memcpy(coded + at, bytes, size);
	wrong = v ? tsr_entropy_decode_codes(e, v, coded, nbytes, back, n)
		  : tsr_entropy_decode(e, kinds[0], coded, nbytes, back, n);
	memcpy(coded + at, was, size);
	assert_non_null(wrong);
	assert_string_equal(wrong, why);
}

/* A piece of one segment: head 4, table 4 and its numbers, sizes 4, states. */
static void test_what_is_wrong_is_said(void **state)
{
	const struct tsr_entropy_variance v = { .columns = 50, .scales = { scales, 0, 32 } };
	const size_t n = 4000,
		     list = 4 + 4 + 80 + 50 + 2; /* behind the means of 80 rows, 50 columns */
	size_t nbytes, states;

	(void)state;
	fill(FEW, n, 1);
	nbytes = encode(kinds[0], n);
	assert_int_equal(coded[0], 2);
	states = 12 + ((size_t)(coded[5] - coded[4] + 1) * coded[6] + 31) / 32 * 4;
	assert_refused(NULL, n, nbytes, 0, "\3", 1,
		       "a stream is stored in a way that is not known");
	assert_refused(NULL, n, nbytes, 1, "\1", 1, "a stream ends early");
	assert_refused(NULL, n, nbytes, 6, "\15", 1, "the head of a table is none");
	assert_refused(NULL, n, nbytes, 6, "\13", 1, "the frequencies of a table have another sum");
	assert_refused(NULL, n, nbytes, states - 4, "\377\377", 2, "a segment ends early");
	assert_refused(NULL, n, nbytes, states - 2, "\1", 1,
		       "bytes behind the sizes of segments are not zero");
	assert_refused(NULL, n, nbytes, states + 2, "\0\0", 2, "a state is too small");
	fill_codes(n, 50, 4);
	nbytes = tsr_entropy_encode_codes(e, &v, plain, n, coded);
	assert_int_equal(coded[0], 3);
	assert_refused(&v, n, nbytes, list + 2, "\1", 1, "the list of its tables is none");
	assert_refused(&v, n, nbytes, list, "\0\0", 2, "the list of its tables is none");
	assert_refused(&v, n, nbytes, list, "\377\1", 2, "the list of its tables is none");
}

/* --- As a filter ------------------------------------------------------------------------------- */

static size_t read_all(void *to, size_t nbytes)
{
	return fread(to, 1, nbytes, stdin);
}

/*
 * test_entropy encode-codes|decode-codes N FIRST COLUMNS ROW GROUP NSCALES sqrt8|log8: as below, with scales in
 * front of the piece.
 */
static const char *filter_codes(char **args, size_t *nbytes)
{
	const size_t n = (size_t)atol(args[1]), nscales = (size_t)atol(args[6]);
	struct tsr_entropy_variance v = {
		.first = (uint64_t)atol(args[2]),
		.columns = (uint64_t)atol(args[3]),
		.scales = { scales, (uint64_t)atol(args[4]), (uint32_t)atol(args[5]) },
		.logarithmic = strcmp(args[7], "log8") == 0,
	};
	uint32_t f28;
	size_t size;

	for (size_t i = 0; v.logarithmic && i < nscales; i++) {
		read_all(&f28, sizeof(f28));
		scales[i] = tsr_entropy_log_scale(f28);
	}
	if (!v.logarithmic)
		read_all(scales, 2 * nscales);
	size = read_all(coded, sizeof(coded));
	*nbytes = n;
	if (strcmp(args[0], "decode-codes") == 0)
		return tsr_entropy_decode_codes(e, &v, coded, size, plain, n);
	*nbytes = tsr_entropy_encode_codes(e, &v, coded, n, plain);
	return NULL;
}

/* test_entropy encode|decode WIDTH ROTATED N: a piece from standard input to standard output. */
static const char *filter_elements(char **args, size_t *nbytes)
{
	const struct tsr_entropy_kind kind = { (unsigned)atoi(args[1]), atoi(args[2]) != 0 };
	const size_t n = (size_t)atol(args[3]), size = read_all(coded, sizeof(coded));

	*nbytes = kind.width * n;
	if (strcmp(args[0], "decode") == 0)
		return tsr_entropy_decode(e, kind, coded, size, plain, n);
	*nbytes = tsr_entropy_encode(e, kind, coded, n, plain);
	return NULL;
}

static int filter(int nargs, char **args)
{
	const char *wrong;
	size_t nbytes;

	e = tsr_entropy_new(TSR_ENTROPY_WIDTH);
	if (!e)
		return 2;
	wrong = nargs == 8 ? filter_codes(args, &nbytes) : filter_elements(args, &nbytes);
	if (wrong)
		fputs(wrong, stderr);
	else
		fwrite(plain, 1, nbytes, stdout);
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
		cmocka_unit_test(test_codes_come_back_wherever_they_begin),
		cmocka_unit_test(test_every_level_writes_the_same_codes),
		cmocka_unit_test(test_damaged_codes_are_refused),
		cmocka_unit_test(test_what_is_wrong_is_said),
	};

	if (argc > 1)
		return filter(argc - 1, argv + 1);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
