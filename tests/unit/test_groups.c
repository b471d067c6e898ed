/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of groups in src/codec/group_math.h: scales and 8-bit codes, against binary64
 * arithmetic with each rounding to binary32 written out.
 */
#include <math.h>

#include "codec/group_math.h"
#include "unit.h"

/* --- Scales --------------------------------------------------------------------------------- */

static void test_e8m8_rounds_up_to_the_next_code(void **state)
{
	uint32_t last = 0;

	(void)state;
	for (uint32_t code = 0; code <= 0xfeff; code++) {
		const float value = tsr_f32_from_e8m8((uint16_t)code);
		const uint32_t above = code < 0xfeff ? code + 1 : 0xfeff;
		const int exponent = code < 0x100 ? -126 - 8 : (int)(code >> 8) - 127 - 8;
		const int significand = (int)(code & 0xff) + (code < 0x100 ? 0 : 256);

		assert_true((double)value == ldexp(significand, exponent));
		assert_int_equal(tsr_e8m8_from_f32(value), code);
		assert_int_equal(tsr_e8m8_from_f32(float_of(bits_of(value) + 1)), above);
		assert_true(!code || bits_of(value) > last);
		if (code) {
			assert_int_equal(tsr_e8m8_from_f32(float_of(last + 1)), code);
			assert_int_equal(tsr_e8m8_from_f32(float_of(bits_of(value) - 1)), code);
		}
		last = bits_of(value);
	}
	assert_int_equal(last, 0x7f7f8000);
}

/* The largest finite value is capped, and so is whatever else the absmax of a group can be. */
static void test_e8m8_is_never_infinite(void **state)
{
	static const uint32_t large[] = {
		0x7f7f8001, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(large); i++)
		assert_int_equal(tsr_e8m8_from_f32(float_of(large[i])), 0xfeff);
}

static void test_e8m8_of_all_magnitudes(void **state)
{
	const uint32_t stride = is_long_run() ? 1 : 2039;
	uint32_t code = 0;

	(void)state;
	for (uint64_t bits = 0; bits <= 0x7fffffffu; bits += stride) {
		while (code < 0xfeff && bits > (uint64_t)code << 15)
			code++;
		if (tsr_e8m8_from_f32(float_of((uint32_t)bits)) != code)
			fail_msg("%08x: not %04x", (uint32_t)bits, code);
	}
}

/* --- Codes in a group ----------------------------------------------------------------------- */

/* One rounding even so, for + - * / of two floats in binary64: 53 bits are more than 2 * 24 + 2. */
static float rn(double x)
{
	return (float)x;
}

static double expected_unit(double scale)
{
	return scale < ldexp(1, -60) ? ldexp(1, 64) : scale >= ldexp(1, 120) ? ldexp(1, -4) : 1.0;
}

/* floor(RN(|t| + 0.5)) with the sign of t, clamped. */
static int nearest(float t, int limit)
{
	const double away = floor((double)rn(fabs((double)t) + 0.5));
	const int code = away < limit ? (int)away : limit;

	return t < 0 ? -code : code;
}

struct code_kind {
	const char *name;
	int levels;
	bool is_signed;
	int (*encode)(float x, float scale);
	int (*expect)(float x, float scale);
	float (*decode)(int code, float scale);
};

static int softsign_encode(float m, float scale)
{
	const float unit = tsr_group_unit(scale);

	return tsr_softsign_code_in(tsr_bounds_i8(), m * unit, scale * unit);
}

static int softsign_expect(float m, float scale)
{
	const double unit = expected_unit((double)scale);
	const double mu = (double)rn((double)m * unit), su = (double)rn((double)scale * unit);
	const double z = (double)rn(2 * mu / (double)rn(su + fabs(mu)));

	return scale > 0 ? nearest(rn(127 * z), 127) : 0;
}

static float softsign_decode(int code, float scale)
{
	return tsr_softsign_value((float)code, scale);
}

static int linear_encode(float m, float scale)
{
	const float unit = tsr_group_unit(scale);

	return tsr_linear_code_in(tsr_bounds_i8(), m * unit,
				  tsr_inverse_scale(127.0f, scale * unit));
}

static int linear_expect(float m, float scale)
{
	const double unit = expected_unit((double)scale);
	const double inverse = (double)rn(127.0 / (double)rn((double)scale * unit));

	return scale > 0 ? nearest(rn((double)rn((double)m * unit) * inverse), 127) : 0;
}

static float linear_decode(int code, float scale)
{
	return tsr_linear_value((float)code, scale);
}

static int ulinear_encode(float v, float scale)
{
	const float unit = tsr_group_unit(scale);

	return tsr_ulinear_code_in(tsr_bounds_u8(), v * unit,
				   tsr_inverse_scale(255.0f, scale * unit));
}

static int ulinear_expect(float v, float scale)
{
	const double unit = expected_unit((double)scale);
	const double inverse = (double)rn(255.0 / (double)rn((double)scale * unit));

	return scale > 0 ? nearest(rn((double)rn((double)v * unit) * inverse), 255) : 0;
}

static float ulinear_decode(int code, float scale)
{
	return tsr_ulinear_value((float)code, scale);
}

/* Of a root; v itself is its square. */
static int sqrt_encode(float root, float scale)
{
	return tsr_root_code_in(tsr_bounds_u8(), root, tsr_inverse_scale(255.0f, scale));
}

static int sqrt_expect(float root, float scale)
{
	return scale > 0 ? nearest(rn((double)root * (double)rn(255.0 / (double)scale)), 255) : 0;
}

static float sqrt_decode(int code, float scale)
{
	return sqrtf(tsr_sqrt_value((float)code, scale));
}

static const struct code_kind code_kinds[] = {
	{ "softsign8", 127, true, softsign_encode, softsign_expect, softsign_decode },
	{ "linear8", 127, true, linear_encode, linear_expect, linear_decode },
	{ "ulinear8", 255, false, ulinear_encode, ulinear_expect, ulinear_decode },
	{ "sqrt8", 255, false, sqrt_encode, sqrt_expect, sqrt_decode },
};

/* Scales at both ends, where the unit changes, and in between; those of sqrt8 are roots. */
static const float code_scales[] = {
	0x1p-74f, 0x1.fffffep-61f, 0x1p-60f,	   0x1.8p-30f, 1.0f, 1.0078125f,
	3.3f,	  0x1.fep63f,	   0x1.fffffep63f,
};
static const float more_code_scales[] = {
	0x1p-149f,	 0x1.8p-148f, 0x1.7p-140f,   0x1p-126f,	  0x1.fffffep-127f,
	0x1.fffffep119f, 0x1p120f,    0x1.2345p127f, 0x1.fep127f, 0x1.fffffep127f,
};

/* How far a value may come back from where it was: half a step, times the slope of the inverse. */
static double error_bound(const struct code_kind *k, double x, double scale)
{
	const double half_step = 0.5 / k->levels;
	double slope = 1;

	if (k->encode == softsign_encode) {
		const double z = 2 * x / (scale + x) + half_step;
		const double top = z < 1 ? z : 1;

		slope = 2 / ((2 - top) * (2 - top));
	}
	/* Roundings of the code, of the result, and of a subnormal result (or its square). */
	return scale * half_step * slope * (1 + 1e-4) +
	       (k->encode == sqrt_encode ? ldexp(1, -75) : ldexp(1, -149));
}

static int check_code(const struct code_kind *k, float x, float scale)
{
	const int code = k->encode(x, scale), want = k->expect(x, scale);
	const float back = k->decode(code, scale);

	if (code != want)
		fail_msg("%s: %a of %a: got %d, want %d", k->name, (double)x, (double)scale, code,
			 want);
	if (!is_finite_bits(bits_of(back)) ||
	    !(fabs((double)back - (double)x) <= error_bound(k, (double)x, (double)scale)))
		fail_msg("%s: %a of %a comes back as %a", k->name, (double)x, (double)scale,
			 (double)back);
	if (k->is_signed) {
		assert_int_equal(k->encode(-x, scale), -code);
		assert_true(k->decode(-code, scale) == -back);
	}
	return code;
}

static void check_scale(const struct code_kind *k, float scale)
{
	const int steps = is_long_run() ? 1000003 : 20011;
	int last = 0;

	for (int i = 0; i <= steps; i++) {
		const int code = check_code(k, rn((double)scale * i / steps), scale);

		assert_true(code >= last);
		last = code;
	}
	assert_int_equal(last, k->levels);
	assert_int_equal(k->encode(0.0f, scale), 0);
	assert_int_equal(k->encode(-0.0f, scale), 0);
	assert_int_equal(bits_of(k->decode(0, scale)), 0);
	/* The largest code gives back the scale itself: a group keeps its largest element. */
	if (k->encode != sqrt_encode)
		assert_int_equal(bits_of(k->decode(k->levels, scale)), bits_of(scale));
}

static void test_codes_follow_their_formula(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(code_kinds); i++) {
		for (size_t j = 0; j < COUNT_OF(code_scales); j++)
			check_scale(&code_kinds[i], code_scales[j]);
		for (size_t j = 0; j < COUNT_OF(more_code_scales); j++) {
			if (code_kinds[i].encode != sqrt_encode)
				check_scale(&code_kinds[i], more_code_scales[j]);
		}
	}
}

/*
 * Float by float past every place where a code changes.  Linear codes never go back.  Softsign ones
 * may, since numerator and denominator are rounded each: within @wobble floats of the place.
 */
static void test_codes_are_monotonic_at_their_thresholds(void **state)
{
	const float scale = 1.2890625f;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(code_kinds); i++) {
		const struct code_kind *k = &code_kinds[i];
		const uint32_t wobble = k->encode == softsign_encode ? 8 : 0;

		for (int code = 0; code < k->levels; code++) {
			uint32_t low = 0, high = bits_of(scale);

			while (low < high) {
				const uint32_t mid = low + (high - low) / 2;

				if (k->encode(float_of(mid), scale) > code)
					high = mid;
				else
					low = mid + 1;
			}
			for (uint32_t j = 0; j < 400; j++) {
				const uint32_t bits = low + j - 200;
				const int got = check_code(k, float_of(bits), scale);

				if (bits + wobble < low)
					assert_int_equal(got, code);
				else if (bits >= low + wobble)
					assert_int_equal(got, code + 1);
				else
					assert_in_range(got, code, code + 1);
			}
		}
	}
}

/*
 * Fused or not: round(L z) of z = RN(2m / (s + |m|)) is what one operation on h = z / 2 makes,
 * for every h that there is.  Processors that have the operation use it.
 */
static void check_fused_softsign(uint32_t h_bits)
{
	static const int levels[] = { 127, 255, 511 };
	const float h = float_of(h_bits);

	for (size_t i = 0; i < COUNT_OF(levels); i++) {
		const int code = (int)fmaf(h, (float)(2 * levels[i]), 0.5f);

		if (code != nearest(rn(levels[i] * (double)rn(2 * (double)h)), 1000))
			fail_msg("%d levels, %a: %d", levels[i], (double)h, code);
	}
}

static void test_softsign_codes_may_be_fused(void **state)
{
	const uint32_t last = 0x3f020000, stride = is_long_run() ? 1 : 4001; /* a little over 0.5 */

	(void)state;
	for (uint32_t h = 0; h <= last; h += stride)
		check_fused_softsign(h);
	for (int code = 0; code < 127 + 255 + 511; code++) {
		const uint32_t near = bits_of(rn(code < 127 ? (code + 0.5) / 254
						 : code < 127 + 255
							 ? (code - 127 + 0.5) / 510
							 : (code - 127 - 255 + 0.5) / 1022));

		for (uint32_t h = near - 100; h < near + 100; h++)
			check_fused_softsign(h);
	}
}

/*
 * Nothing is fused here: 0x1.030302p-9 * 0x1.fa0be8p+7 is 0.49999996739, rounded up to
 * 0.5 - 2^-25; plus 0.5 that is the tie between 1 - 2^-24 and 1, which goes to 1.  Fused, the sum
 * stays below 1 and the code would be 0.
 */
static void test_codes_are_not_fused(void **state)
{
	volatile float x = 0x1.030302p-9f, inverse = 0x1.fa0be8p+7f;

	(void)state;
	assert_true((double)x * (double)inverse < 0.5 - 0x1p-25);
	assert_true((float)((double)x * (double)inverse) == 0x1.fffffep-2f);
	assert_int_equal(tsr_root_code_in(tsr_bounds_u8(), x, inverse), 1);
	assert_int_equal(tsr_ulinear_code_in(tsr_bounds_u8(), x, inverse), 1);
	assert_int_equal(tsr_linear_code_in(tsr_bounds_i8(), x, inverse), 1);
	assert_int_equal(tsr_linear_code_in(tsr_bounds_i8(), -x, inverse), -1);
}

static void test_value_is_one_quotient_times_the_scale(void **state)
{
	(void)state;
	for (int q = -127; q <= 127; q++) {
		const float fraction = rn((double)q / (254 - abs(q)));
		const float linear = rn(q / 127.0);

		assert_true(tsr_softsign_value((float)q, 3.3f) ==
			    rn((double)fraction * (double)3.3f));
		assert_true(tsr_linear_value((float)q, 3.3f) == rn((double)linear * (double)3.3f));
	}
	for (int q = 0; q <= 255; q++) {
		const float root = rn((double)rn(q / 255.0) * (double)3.3f);

		assert_true(tsr_ulinear_value((float)q, 3.3f) == root);
		assert_true(tsr_sqrt_value((float)q, 3.3f) == rn((double)root * (double)root));
	}
}

static void test_codes_of_an_all_zero_group_are_zero(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(code_kinds); i++) {
		assert_int_equal(code_kinds[i].encode(0.0f, 0.0f), 0);
		assert_int_equal(code_kinds[i].encode(-0.0f, 0.0f), 0);
		assert_int_equal(bits_of(code_kinds[i].decode(0, 0.0f)), 0);
	}
}

/* No tensor with a NaN is packed, but encoders meet them first. */
static void test_codes_of_nan_are_defined(void **state)
{
	static const uint32_t nans[] = { 0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001,
					 0xffffffff };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(nans); i++) {
		volatile float nan = float_of(nans[i]);

		assert_int_equal(tsr_softsign_code_in(tsr_bounds_i8(), nan, 1.0f), -127);
		assert_int_equal(tsr_softsign_code_in(tsr_bounds_i8(), nan, 0.0f), 0);
		assert_int_equal(tsr_softsign_code_in(tsr_bounds_i8(), 1.0f, nan), 0);
		assert_int_equal(tsr_linear_code_in(tsr_bounds_i8(), nan, 127.0f), -127);
		assert_int_equal(tsr_linear_code_in(tsr_bounds_i8(), nan, 0.0f), -127);
		assert_int_equal(tsr_root_code_in(tsr_bounds_u8(), nan, 255.0f), 0);
		assert_int_equal(tsr_ulinear_code_in(tsr_bounds_u8(), nan, 255.0f), 0);
		assert_true(tsr_inverse_scale(127.0f, nan) == 0.0f);
	}
}

static void test_largest_sqrt_scale_has_a_finite_square(void **state)
{
	const float scale = tsr_f32_from_e8m8(TSR_E8M8_SQRT_MAX);
	const float next = tsr_f32_from_e8m8(TSR_E8M8_SQRT_MAX + 1);

	(void)state;
	assert_true(is_finite_bits(bits_of(tsr_sqrt_value(255, scale))));
	assert_true((double)next * (double)next >= 0x1p128);
	assert_true(is_finite_bits(bits_of(tsr_sqrt_value(255, sqrtf(float_of(0x7f7fffff))))));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_e8m8_rounds_up_to_the_next_code),
		cmocka_unit_test(test_e8m8_is_never_infinite),
		cmocka_unit_test(test_e8m8_of_all_magnitudes),
		cmocka_unit_test(test_codes_follow_their_formula),
		cmocka_unit_test(test_codes_are_monotonic_at_their_thresholds),
		cmocka_unit_test(test_softsign_codes_may_be_fused),
		cmocka_unit_test(test_codes_are_not_fused),
		cmocka_unit_test(test_value_is_one_quotient_times_the_scale),
		cmocka_unit_test(test_codes_of_an_all_zero_group_are_zero),
		cmocka_unit_test(test_codes_of_nan_are_defined),
		cmocka_unit_test(test_largest_sqrt_scale_has_a_finite_square),
	};

	return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
