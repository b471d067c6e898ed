/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 against its definition, bit by bit. */
#include "format/crc.h"
#include "unit.h"

#define POLYNOMIAL 0xedb88320u

/* One bit of input, which is 0: the register times x. */
static uint32_t times_x(uint32_t crc)
{
	return crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
}

static uint32_t naive_crc(uint32_t crc, const unsigned char *bytes, size_t n)
{
	crc = ~crc;
	for (size_t i = 0; i < n; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = times_x(crc);
	}
	return ~crc;
}

/* The product of two polynomials of which bit 31 is the constant term. */
static uint32_t naive_product(uint32_t a, uint32_t b)
{
	uint32_t sum = 0;

	for (int bit = 31; bit >= 0; bit--) {
		if (a >> bit & 1)
			sum ^= b;
		b = times_x(b);
	}
	return sum;
}

/* The first CRC moved past @n bytes, which is times x^8 for each, and the second added. */
static uint32_t naive_combine(uint32_t crc_a, uint32_t crc_b, uint64_t n)
{
	uint32_t power = UINT32_C(1) << 23; /* x^8 */

	for (; n; n >>= 1) {
		if (n & 1)
			crc_a = naive_product(crc_a, power);
		power = naive_product(power, power);
	}
	return crc_a ^ crc_b;
}

static void test_known_values(void **state)
{
	static const struct {
		const char *text;
		uint32_t crc;
	} rows[] = {
		{ "", 0 },
		{ "a", 0xe8b7be43 },
		{ "123456789", 0xcbf43926 },
		{ "The quick brown fox jumps over the lazy dog", 0x414fa339 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(tsr_crc32(0, rows[i].text, strlen(rows[i].text)), rows[i].crc);
	assert_int_equal(tsr_crc32(0, NULL, 0), 0);
	assert_int_equal(tsr_crc32(0x12345678, NULL, 0), 0x12345678);
}

static void test_every_length_alignment_and_start(void **state)
{
	unsigned char bytes[700];
	uint64_t random = 1;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)random_u32(&random);
	for (size_t n = 0; n < sizeof(bytes) - 64; n++) {
		const size_t at = n % 64;
		const uint32_t start = random_u32(&random);

		assert_int_equal(tsr_crc32(start, bytes + at, n), naive_crc(start, bytes + at, n));
	}
}

static void test_combining_is_what_one_pass_gives(void **state)
{
	unsigned char bytes[300];
	uint64_t random = 2;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)random_u32(&random);
	for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
		const uint32_t a = naive_crc(0, bytes, cut);
		const uint32_t b = naive_crc(0, bytes + cut, sizeof(bytes) - cut);

		assert_int_equal(tsr_crc32_combine(a, b, sizeof(bytes) - cut),
				 naive_crc(0, bytes, sizeof(bytes)));
	}
}

/* Lengths that no memory holds, also those that are negative as zlib's. */
static void test_combining_with_large_lengths(void **state)
{
	static const uint64_t lengths[] = { 0,
					    1,
					    0xffffffff,
					    0x100000000,
					    UINT64_C(6) << 30,
					    INT64_MAX - 1,
					    INT64_MAX,
					    UINT64_C(1) << 63,
					    UINT64_MAX - 1,
					    UINT64_MAX };
	uint64_t random = 3;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		const uint32_t a = random_u32(&random), b = random_u32(&random);

		assert_int_equal(tsr_crc32_combine(a, b, lengths[i]),
				 naive_combine(a, b, lengths[i]));
	}
	for (int i = 0; i < 1000; i++) {
		const uint64_t n = random_u64(&random) >> i % 64;
		const uint32_t a = random_u32(&random), b = random_u32(&random);

		assert_int_equal(tsr_crc32_combine(a, b, n), naive_combine(a, b, n));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_values),
		cmocka_unit_test(test_every_length_alignment_and_start),
		cmocka_unit_test(test_combining_is_what_one_pass_gives),
		cmocka_unit_test(test_combining_with_large_lengths),
	};

	return cmocka_run_group_tests_name("crc", tests, NULL, NULL);
}
