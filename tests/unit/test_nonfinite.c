/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of values that are not finite, against the bit patterns that each type has. */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "codec/nonfinite.h"

/* Every pattern of 8 and 16 bits is counted once, and so is known by the formats' definitions. */
static void test_all_narrow_patterns(void **state)
{
	uint8_t bytes[256];
	static uint16_t halves[65536];

	(void)state;
	for (unsigned i = 0; i < 256; i++)
		bytes[i] = (uint8_t)i;
	for (unsigned i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	assert_int_equal(tsr_count_nonfinite(TSR_F8_E5M2, bytes, 256), 8);
	assert_int_equal(tsr_count_nonfinite(TSR_F8_E4M3, bytes, 256), 2);
	assert_int_equal(tsr_count_nonfinite(TSR_F8_E8M0, bytes, 256), 1);
	assert_int_equal(tsr_count_nonfinite(TSR_F8_E4M3FNUZ, bytes, 256), 1);
	assert_int_equal(tsr_count_nonfinite(TSR_F8_E5M2FNUZ, bytes, 256), 1);
	assert_int_equal(tsr_count_nonfinite(TSR_F16, halves, sizeof(halves)), 2 * 1024);
	assert_int_equal(tsr_count_nonfinite(TSR_BF16, halves, sizeof(halves)), 2 * 128);
	assert_int_equal(tsr_count_nonfinite(TSR_U8, bytes, 256), 0);
	assert_int_equal(tsr_count_nonfinite(TSR_I16, halves, sizeof(halves)), 0);
	assert_int_equal(tsr_first_nonfinite(TSR_F16, halves, sizeof(halves)), 0x7c00);
	assert_int_equal(tsr_first_nonfinite(TSR_BF16, halves, sizeof(halves)), 0x7f80);
	assert_true(tsr_first_nonfinite(TSR_U16, halves, sizeof(halves)) == SIZE_MAX);
}

/* Lengths around those that are looked through at once, at odd addresses. */
static void test_lengths_and_places(void **state)
{
	static const float bad[] = { INFINITY, -INFINITY, NAN };
	unsigned char room[1 + 600 * sizeof(float)];

	(void)state;
	for (size_t n = 0; n <= 600; n += n < 250 || n > 260 ? 50 : 1) {
		memset(room, 0, sizeof(room));
		assert_int_equal(tsr_count_nonfinite(TSR_F32, room + 1, n * sizeof(float)), 0);
		if (!n)
			continue;
		for (size_t at = 0; at < n; at += 7)
			memcpy(room + 1 + at * sizeof(float), &bad[at % 3], sizeof(float));
		assert_int_equal(tsr_count_nonfinite(TSR_F32, room + 1, n * sizeof(float)),
				 (n - 1) / 7 + 1);
		assert_int_equal(tsr_first_nonfinite(TSR_F32, room + 1, n * sizeof(float)), 0);
	}
}

static void test_wide_values(void **state)
{
	const double doubles[] = { 0.0, 1e308, (double)INFINITY, (double)NAN };
	const float complex_parts[] = { 1.0f, INFINITY, NAN, NAN };

	(void)state;
	assert_int_equal(tsr_count_nonfinite(TSR_F64, doubles, sizeof(doubles)), 2);
	assert_int_equal(tsr_first_nonfinite(TSR_F64, doubles, sizeof(doubles)), 2);
	assert_int_equal(tsr_count_nonfinite(TSR_C64, complex_parts, sizeof(complex_parts)), 3);
	assert_int_equal(tsr_first_nonfinite(TSR_C64, complex_parts, sizeof(complex_parts)), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_narrow_patterns),
		cmocka_unit_test(test_lengths_and_places),
		cmocka_unit_test(test_wide_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
