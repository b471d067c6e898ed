/* SPDX-License-Identifier: Apache-2.0 */
/*
 * include/tersor/math.h against arithmetic done another way: values as binary64 or as integer
 * multiples of a power of two, and tables of midpoints instead of rounding tricks.
 */
#include <math.h>
#include <pthread.h>

#include "tersor/codec.h"
#include "tersor/math.h"
#include "unit.h"

/* --- Two threads over the sign bit ------------------------------------------------------------ */

/* One half of the 2^32 patterns.  Threads cannot fail a test, so they keep the first fault. */
struct half {
	uint32_t sign;
	uint32_t stride;
	void (*check)(struct half *h);
	const void *ctx;
	uint64_t nbad;
	uint32_t bad, got, want;
};

static void note(struct half *h, uint32_t bits, uint32_t got, uint32_t want)
{
	if (got == want)
		return;
	if (!h->nbad++) {
		h->bad = bits;
		h->got = got;
		h->want = want;
	}
}

static void *run_half(void *arg)
{
	struct half *h = arg;

	h->check(h);
	return NULL;
}

/* Every @stride-th magnitude with either sign. */
static void run_halves(void (*check)(struct half *h), const void *ctx, uint32_t stride)
{
	struct half halves[2] = {
		{ .sign = 0, .stride = stride, .check = check, .ctx = ctx },
		{ .sign = 0x80000000u, .stride = stride, .check = check, .ctx = ctx },
	};
	pthread_t other;

	assert_int_equal(pthread_create(&other, NULL, run_half, &halves[1]), 0);
	run_half(&halves[0]);
	assert_int_equal(pthread_join(other, NULL), 0);
	for (int i = 0; i < 2; i++) {
		if (halves[i].nbad)
			fail_msg("%08x: got %08x, want %08x; %llu wrong", halves[i].bad, halves[i].got,
				 halves[i].want, (unsigned long long)halves[i].nbad);
	}
}

/* A prime, so that no bit keeps a pattern; 1 in a long run. */
static uint32_t dense_stride(void)
{
	return is_long_run() ? 1 : 2039;
}

/* --- The two narrow formats, from their definition --------------------------------------------- */

static uint16_t narrow_bf16(float x)
{
	return (uint16_t)tsr_bf16_from_f32(x);
}

static uint16_t narrow_f16(float x)
{
	return (uint16_t)tsr_f16_from_f32(x);
}

static float widen_bf16(uint16_t narrow)
{
	return tsr_f32_from_bf16(narrow);
}

static float widen_f16(uint16_t narrow)
{
	return tsr_f32_from_f16(narrow);
}

struct format {
	const char *name;
	int mant, bias;
	uint16_t inf;
	uint16_t (*narrow)(float x);
	float (*widen)(uint16_t narrow);
	struct tsr_split_format (*split)(void);
	/* Bits of the value between magnitude i and the next; the last is where infinity begins. */
	uint32_t middle[0x7f80];
};

static struct tsr_split_format split_bf16(void)
{
	return tsr_split_bf16();
}

static struct tsr_split_format split_f16(void)
{
	return tsr_split_f16();
}

static struct format formats[] = {
	{ .name = "bf16", .mant = 7, .bias = 127, .inf = 0x7f80, .narrow = narrow_bf16,
	  .widen = widen_bf16, .split = split_bf16 },
	{ .name = "f16", .mant = 10, .bias = 15, .inf = 0x7c00, .narrow = narrow_f16,
	  .widen = widen_f16, .split = split_f16 },
};

/* A magnitude as an integer times 2^*exponent.  That of infinity is the next power of two. */
static int64_t significand_of(const struct format *f, uint16_t mag, int *exponent)
{
	const int field = mag >> f->mant, fraction = mag & ((1 << f->mant) - 1);

	*exponent = (field ? field : 1) - f->bias - f->mant;
	return field ? fraction | 1 << f->mant : fraction;
}

static double value_of(const struct format *f, uint16_t mag)
{
	int exponent;
	const int64_t significand = significand_of(f, mag, &exponent);

	return ldexp((double)significand, exponent);
}

static int fill_middles(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++) {
		struct format *f = &formats[i];

		for (uint16_t mag = 0; mag < f->inf; mag++) {
			const double exact = (value_of(f, mag) + value_of(f, (uint16_t)(mag + 1))) / 2;

			f->middle[mag] = bits_of((float)exact);
			assert_true((double)(float)exact == exact);
		}
	}
	return 0;
}

static void test_widening_gives_the_defined_value(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++) {
		const struct format *f = &formats[i];

		for (uint32_t n = 0; n < 0x10000; n++) {
			const uint16_t mag = n & 0x7fff;
			const uint32_t sign = (n & 0x8000) << 16, fraction = n & ((1u << f->mant) - 1);
			const uint32_t got = bits_of(f->widen((uint16_t)n));
			const uint32_t want = mag < f->inf ? bits_of((float)value_of(f, mag)) :
					      0x7f800000u | fraction << (23 - f->mant);

			if (got != (want | sign))
				fail_msg("%s %04x: got %08x, want %08x", f->name, n, got, want | sign);
		}
	}
}

static void test_narrowing_undoes_widening(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++) {
		const struct format *f = &formats[i];

		for (uint32_t n = 0; n < 0x10000; n++) {
			const uint32_t quiet = (n & 0x7fff) > f->inf ? 1u << (f->mant - 1) : 0;
			const uint16_t got = f->narrow(f->widen((uint16_t)n));

			if (got != (n | quiet))
				fail_msg("%s %04x: got %04x", f->name, n, got);
		}
	}
}

static void test_narrowing_at_every_tie(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++) {
		const struct format *f = &formats[i];

		for (uint16_t mag = 0; mag < f->inf; mag++) {
			const uint16_t even = (uint16_t)(mag + (mag & 1));
			const uint16_t want[3] = { mag, even, (uint16_t)(mag + 1) };

			for (uint32_t j = 0; j < 3; j++) {
				const uint32_t bits = f->middle[mag] + j - 1;
				const uint16_t got = f->narrow(float_of(bits));
				const uint16_t negative = f->narrow(float_of(bits | 0x80000000u));

				if (got != want[j] || negative != (want[j] | 0x8000))
					fail_msg("%s %08x: got %04x and %04x, want %04x", f->name, bits,
						 got, negative, want[j]);
			}
		}
		assert_int_equal(f->narrow(float_of(0x7f7fffff)), f->inf);
		assert_int_equal(f->narrow(float_of(0x7f800000)), f->inf);
		assert_int_equal(f->narrow(float_of(0xff7fffff)), f->inf | 0x8000);
		assert_int_equal(f->narrow(float_of(0xff800000)), f->inf | 0x8000);
	}
}

/* Going up through the magnitudes, the narrow one moves on at each midpoint. */
static void check_narrowing(struct half *h)
{
	const struct format *f = h->ctx;
	uint16_t mag = 0;

	for (uint64_t b = 0; b <= 0x7fffffffu; b += h->stride) {
		const uint32_t bits = (uint32_t)b;
		uint32_t want = f->inf | 1u << (f->mant - 1);

		while (mag < f->inf && bits > f->middle[mag])
			mag++;
		if (bits > 0x7f800000u)
			want |= (bits & 0x7fffff) >> (23 - f->mant);
		else
			want = mag < f->inf && bits == f->middle[mag] ? mag + (mag & 1u) : mag;
		note(h, bits | h->sign, f->narrow(float_of(bits | h->sign)), want | h->sign >> 16);
	}
}

static void test_narrowing_of_all_floats(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++)
		run_halves(check_narrowing, &formats[i], dense_stride());
}

static void test_narrowing_keeps_nan_sign_and_payload(void **state)
{
	static const uint32_t low[] = { 0, 1, 0xfff, 0x1000, 0x1fff };

	(void)state;
	for (uint32_t top = 0; top < 0x400; top++) {	/* the bits that FP16 has room for */
		for (size_t i = 0; i < COUNT_OF(low); i++) {
			const uint32_t payload = top << 13 | low[i];

			if (!payload)
				continue;
			for (uint32_t sign = 0; sign < 2; sign++) {
				const float x = float_of(sign << 31 | 0x7f800000u | payload);

				assert_int_equal(tsr_f16_from_f32(x), sign << 15 | 0x7e00 | top);
				assert_int_equal(tsr_bf16_from_f32(x), sign << 15 | 0x7fc0 | top >> 3);
			}
		}
	}
}

/* --- ULP split -------------------------------------------------------------------------------- */

/* An integer rounded to 24 significant bits, ties to even. */
static int64_t round_to_24_bits(int64_t v)
{
	const int64_t mag = v < 0 ? -v : v;
	int shift = 0;
	int64_t kept, rest, half;

	while (mag >> shift >= 1 << 24)
		shift++;
	if (!shift)
		return v;
	kept = mag >> shift;
	rest = mag - (kept << shift);
	half = INT64_C(1) << (shift - 1);
	kept += rest > half || (rest == half && (kept & 1));
	return v < 0 ? -(kept << shift) : kept << shift;
}

/* round(RN((x - n) / 2^l * levels)), halves away from zero, in integers. */
static int64_t expected_correction(const struct format *f, uint32_t x, uint16_t narrow, int levels)
{
	const int field = (int)(x >> 23 & 0xff);
	const int x_exponent = (field ? field : 1) - 150;
	const int64_t x_significand = (int64_t)(x & 0x7fffff) | (field ? 1 << 23 : 0);
	int n_exponent, shift;
	int64_t n_significand, diff, product, mag;

	if (!is_finite_bits(x) || (narrow & 0x7fff) >= f->inf)
		return 0;
	n_significand = significand_of(f, narrow & 0x7fff, &n_exponent);
	/* In units of the last place of x; half the ULP of n is 2^shift of them. */
	diff = x_significand - (n_significand ? n_significand << (n_exponent - x_exponent) : 0);
	shift = n_exponent - 1 - x_exponent;
	product = round_to_24_bits(diff * levels);
	mag = product < 0 ? -product : product;
	mag = shift > 60 ? 0 : ((mag << 1) + (INT64_C(1) << shift)) >> (shift + 1);
	return (product < 0) != (x >> 31 != 0) ? -mag : mag;
}

static void check_correction(struct half *h, const struct format *f, uint32_t mag)
{
	const uint32_t x = mag | h->sign;
	const uint16_t narrow = f->narrow(float_of(x));
	const float wide = f->widen(narrow);

	note(h, x, (uint32_t)tsr_ulp_correction(f->split(), float_of(x), wide, 127.0f),
	     (uint32_t)expected_correction(f, x, narrow, 127));
	note(h, x, (uint32_t)tsr_ulp_correction(f->split(), float_of(x), wide, 32767.0f),
	     (uint32_t)expected_correction(f, x, narrow, 32767));
}

/* All low 16 bits with every exponent and a few mantissas, all ones among them: they carry. */
static void check_corrections(struct half *h)
{
	static const uint32_t high[] = { 0x00, 0x01, 0x55, 0x7f };
	const uint32_t step = is_long_run() ? 1 : 5;

	for (uint32_t exponent = 0; exponent < 256; exponent++) {
		for (size_t i = 0; i < COUNT_OF(high); i++) {
			for (uint32_t low = 0; low < 0x10000; low += step)
				check_correction(h, h->ctx, exponent << 23 | high[i] << 16 | low);
			check_correction(h, h->ctx, exponent << 23 | high[i] << 16 | 0x8000);
			check_correction(h, h->ctx, exponent << 23 | high[i] << 16 | 0xffff);
		}
	}
}

/* Down to the least float, FP16 gives a zero weight and corrections of many bits. */
static void check_corrections_below_f16(struct half *h)
{
	for (uint32_t mag = 0; mag < 0x38800000u; mag += 127 * 61)
		check_correction(h, h->ctx, mag);
}

static void test_correction_is_exactly_rounded(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++)
		run_halves(check_corrections, &formats[i], 1);
	run_halves(check_corrections_below_f16, &formats[1], 1);
}

/* RN(n + RN(q / levels) * 2^l) by the definition of l, with the fused operation of libm. */
static void check_joins(struct half *h, uint32_t mag, int32_t first, int32_t step, float levels)
{
	const struct format *f = h->ctx;
	const uint16_t narrow = (uint16_t)(mag | h->sign >> 16);
	const struct tsr_split_format split = f->split();
	const float wide = f->widen(narrow);
	const int32_t end = levels > 127.0f ? 32768 : 128;
	float half_ulp;
	int exponent;

	significand_of(f, (uint16_t)mag, &exponent);
	half_ulp = ldexpf(1.0f, exponent - 1);
	for (int32_t q = first; q < end; q += step) {
		const float joined = fmaf((float)q / levels, half_ulp, wide);

		note(h, (uint32_t)narrow << 16 | (uint16_t)q, bits_of(tsr_ulp_join(split, wide, q, levels)),
		     bits_of(mag >= f->inf || q == 0 ? wide : joined));
	}
}

static void check_joins_8(struct half *h)
{
	for (uint32_t mag = 0; mag < 0x8000; mag++)
		check_joins(h, mag, -128, 1, 127.0f);
}

/* In a short run, other corrections with each narrow weight, and always the outermost. */
static void check_joins_16(struct half *h)
{
	const int32_t step = is_long_run() ? 1 : 2111;

	for (uint32_t mag = 0; mag < 0x8000; mag++) {
		check_joins(h, mag, (int32_t)(mag % (uint32_t)step) - 32768, step, 32767.0f);
		check_joins(h, mag, 32767, 1, 32767.0f);
		check_joins(h, mag, -32768, 65534, 32767.0f);
		check_joins(h, mag, -32767, 65534, 32767.0f);
	}
}

static void test_join_of_every_narrow_and_8_bit_correction_is_fused(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++)
		run_halves(check_joins_8, &formats[i], 1);
}

static void test_join_with_16_bit_corrections_is_fused(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++)
		run_halves(check_joins_16, &formats[i], 1);
}

/*
 * n = 2^-125 and q = 32: its ULP is 2^-148, half a BF16 ULP is 2^-133 = 2^15 of those, and
 * 2^15 * 32/127 = 8256.504.  One rounding gives 8257 = 0x2041.  With a product rounded first, to
 * multiples of 2^-149, it is 16513 halves, a tie that goes to 8256 = 0x2040.  The inputs are
 * volatile because a constant expression would be folded without contraction.
 */
static void test_join_is_fused_where_it_matters(void **state)
{
	volatile uint16_t narrow = 0x0100;
	volatile int32_t q = 32;

	(void)state;
	assert_int_equal((1 << 15) * 32 / 127, 8256);
	assert_true(2 * ((1 << 15) * 32 % 127) > 127);
	assert_int_equal(bits_of(tsr_ulp_join(tsr_split_bf16(), tsr_f32_from_bf16(narrow), q, 127.0f)),
			 0x01000000 + 8257);
}

/*
 * The other way round: 0x1.030302p-9 * 0x1.fa0be8p+7 is 0.49999996739, rounded up to
 * 0.5 - 2^-25; plus 0.5 that is the tie between 1 - 2^-24 and 1, which goes to 1.  Fused, the sum
 * stays below 1 and the code would be 0.
 */
static void test_codes_are_not_fused(void **state)
{
	volatile float x = 0x1.030302p-9f, inverse = 0x1.fa0be8p+7f;

	(void)state;
	assert_true((double)x * (double)inverse < 0.5 - 0x1p-25);
	assert_true((float)((double)x * (double)inverse) == 0x1.fffffep-2f);
	assert_int_equal(tsr_sqrt_code(x, inverse), 1);
	assert_int_equal(tsr_ulinear_code(x, inverse), 1);
	assert_int_equal(tsr_linear_code(x, inverse), 1);
	assert_int_equal(tsr_linear_code(-x, inverse), -1);
}

/* --- Exact split ------------------------------------------------------------------------------ */

static void check_exact16(struct half *h, uint32_t mag)
{
	const uint32_t x = mag | h->sign;
	const uint32_t narrow = tsr_exact16_narrow(float_of(x));
	const int32_t correction = tsr_exact16_correction(float_of(x), narrow);
	const uint32_t joined = bits_of(tsr_exact16_join(narrow, correction));

	note(h, x, narrow >> 15, x >> 31);
	note(h, x, (uint32_t)correction, (uint32_t)(int16_t)correction);	/* it fits */
	note(h, x, (uint32_t)tsr_exact16_overflows(float_of(x)),
	     (narrow & 0x7fff) == 0x7f80 && mag < 0x7f800000u);
	if (mag > 0x7f800000u) {
		note(h, x, joined >> 31, x >> 31);
		note(h, x, is_nan_bits(joined), true);
		note(h, x, (narrow & 0x7fff) > 0x7f80, true);
		return;
	}
	note(h, x, joined, x);
	/* The nearest narrow magnitude, halves up, in exact binary64. */
	note(h, x, narrow & 0x7fffu, (uint32_t)floor((double)mag / 65536.0 + 0.5));
}

static void check_exact16_dense(struct half *h)
{
	for (uint64_t mag = 0; mag <= 0x7fffffffu; mag += h->stride)
		check_exact16(h, (uint32_t)mag);
}

static void check_exact16_boundaries(struct half *h)
{
	static const uint32_t low[] = { 0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff };

	for (uint32_t top = 0; top < 0x8000; top++) {
		for (size_t i = 0; i < COUNT_OF(low); i++)
			check_exact16(h, top << 16 | low[i]);
	}
}

static void test_exact16_loses_nothing(void **state)
{
	(void)state;
	run_halves(check_exact16_boundaries, NULL, 1);
	run_halves(check_exact16_dense, NULL, dense_stride());
}

/* The rest of the NaN saturates next to infinity and at the end. */
static void test_exact16_of_outermost_nans(void **state)
{
	static const struct {
		uint32_t x;
		uint16_t narrow;
		int16_t correction;
		uint32_t joined;
	} rows[] = {
		{ 0x7f800000, 0x7f80, 0, 0x7f800000 },
		{ 0x7f800001, 0x7f81, -32768, 0x7f808000 },
		{ 0x7f808000, 0x7f81, -32768, 0x7f808000 },
		{ 0x7f808001, 0x7f81, -32767, 0x7f808001 },
		{ 0x7fc00000, 0x7fc0, 0, 0x7fc00000 },
		{ 0x7fff7fff, 0x7fff, 32767, 0x7fff7fff },
		{ 0x7fff8000, 0x7fff, 32767, 0x7fff7fff },
		{ 0x7fffffff, 0x7fff, 32767, 0x7fff7fff },
		{ 0x7f7f8000, 0x7f80, -32768, 0x7f7f8000 },	/* finite, with an infinite narrow one */
		{ 0x7f7fffff, 0x7f80, -1, 0x7f7fffff },
		{ 0x7f7f7fff, 0x7f7f, 32767, 0x7f7f7fff },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		for (uint32_t sign = 0; sign < 2; sign++) {
			const float x = float_of(rows[i].x | sign << 31);
			const uint32_t narrow = tsr_exact16_narrow(x);
			const int32_t correction = tsr_exact16_correction(x, narrow);

			assert_int_equal(narrow, rows[i].narrow | sign << 15);
			assert_int_equal(correction, rows[i].correction);
			assert_int_equal(bits_of(tsr_exact16_join(narrow, correction)),
					 rows[i].joined | sign << 31);
		}
	}
}

/* --- Float split ------------------------------------------------------------------------------ */

static void test_float_split_rest_and_join(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(formats); i++) {
		const struct format *f = &formats[i];

		for (int j = 0; j < 1000000; j++) {
			const float x = float_of(random_u32(&seed));
			const uint16_t narrow = f->narrow(x);
			const float wide = f->widen(narrow), rest = tsr_float_rest(x, wide);
			const float second = f->widen(f->narrow(rest));
			const uint32_t joined = bits_of(tsr_float_join(wide, second));

			if ((narrow & 0x7fff) >= f->inf) {
				assert_int_equal(bits_of(rest), 0);
				assert_int_equal(joined, bits_of(wide));
				continue;
			}
			/* Binary64 holds x - n exactly, and n + second up to one rounding at most. */
			assert_true((double)rest == (double)x - (double)wide);
			assert_int_equal(joined, second != 0.0f ? bits_of((float)((double)wide +
									(double)second)) : bits_of(wide));
		}
	}
	assert_int_equal(bits_of(tsr_float_join(-0.0f, 0.0f)), 0x80000000u);
	assert_int_equal(bits_of(tsr_float_join(-0.0f, -0.0f)), 0x80000000u);
}

/* --- Scales ----------------------------------------------------------------------------------- */

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

static void check_e8m8(struct half *h)
{
	uint32_t code = 0;

	for (uint64_t b = 0; !h->sign && b <= 0x7fffffffu; b += h->stride) {
		while (code < 0xfeff && b > (uint64_t)code << 15)
			code++;
		note(h, (uint32_t)b, tsr_e8m8_from_f32(float_of((uint32_t)b)), code);
	}
}

static void test_e8m8_of_all_magnitudes(void **state)
{
	(void)state;
	run_halves(check_e8m8, NULL, dense_stride());
}

/* --- Codes in a group ------------------------------------------------------------------------- */

/* RN of a binary64 result: one rounding for + - * / of two floats, 53 bits being 2 * 24 + 2 or more. */
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

	return tsr_softsign_code(m * unit, scale * unit);
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
	return tsr_softsign_value(code, scale);
}

static int linear_encode(float m, float scale)
{
	const float unit = tsr_group_unit(scale);

	return tsr_linear_code(m * unit, tsr_inverse_scale(127.0f, scale * unit));
}

static int linear_expect(float m, float scale)
{
	const double unit = expected_unit((double)scale);
	const double inverse = (double)rn(127.0 / (double)rn((double)scale * unit));

	return scale > 0 ? nearest(rn((double)rn((double)m * unit) * inverse), 127) : 0;
}

static float linear_decode(int code, float scale)
{
	return tsr_linear_value(code, scale);
}

static int ulinear_encode(float v, float scale)
{
	const float unit = tsr_group_unit(scale);

	return tsr_ulinear_code(v * unit, tsr_inverse_scale(255.0f, scale * unit));
}

static int ulinear_expect(float v, float scale)
{
	const double unit = expected_unit((double)scale);
	const double inverse = (double)rn(255.0 / (double)rn((double)scale * unit));

	return scale > 0 ? nearest(rn((double)rn((double)v * unit) * inverse), 255) : 0;
}

static float ulinear_decode(int code, float scale)
{
	return tsr_ulinear_value(code, scale);
}

/* Of a root; v itself is its square. */
static int sqrt_encode(float root, float scale)
{
	return tsr_sqrt_code(root, tsr_inverse_scale(255.0f, scale));
}

static int sqrt_expect(float root, float scale)
{
	return scale > 0 ? nearest(rn((double)root * (double)rn(255.0 / (double)scale)), 255) : 0;
}

static float sqrt_decode(int code, float scale)
{
	return sqrtf(tsr_sqrt_value(code, scale));
}

static const struct code_kind code_kinds[] = {
	{ "softsign8", 127, true, softsign_encode, softsign_expect, softsign_decode },
	{ "linear8", 127, true, linear_encode, linear_expect, linear_decode },
	{ "ulinear8", 255, false, ulinear_encode, ulinear_expect, ulinear_decode },
	{ "sqrt8", 255, false, sqrt_encode, sqrt_expect, sqrt_decode },
};

/* Scales at both ends, where the unit changes, and in between; those of sqrt8 are roots. */
static const float code_scales[] = {
	0x1p-74f, 0x1.fffffep-61f, 0x1p-60f, 0x1.8p-30f, 1.0f, 1.0078125f, 3.3f, 0x1.fep63f,
	0x1.fffffep63f,
};
static const float more_code_scales[] = {
	0x1p-149f, 0x1.8p-148f, 0x1.7p-140f, 0x1p-126f, 0x1.fffffep-127f, 0x1.fffffep119f, 0x1p120f,
	0x1.2345p127f, 0x1.fep127f, 0x1.fffffep127f,
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
		fail_msg("%s: %a of %a: got %d, want %d", k->name, (double)x, (double)scale, code, want);
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

static void test_value_is_one_quotient_times_the_scale(void **state)
{
	(void)state;
	for (int q = -127; q <= 127; q++) {
		const float fraction = rn((double)q / (254 - abs(q)));
		const float linear = rn(q / 127.0);

		assert_true(tsr_softsign_value(q, 3.3f) == rn((double)fraction * (double)3.3f));
		assert_true(tsr_linear_value(q, 3.3f) == rn((double)linear * (double)3.3f));
	}
	for (int q = 0; q <= 255; q++) {
		const float root = rn((double)rn(q / 255.0) * (double)3.3f);

		assert_true(tsr_ulinear_value(q, 3.3f) == root);
		assert_true(tsr_sqrt_value(q, 3.3f) == rn((double)root * (double)root));
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
	static const uint32_t nans[] = { 0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffffffff };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(nans); i++) {
		volatile float nan = float_of(nans[i]);

		assert_int_equal(tsr_softsign_code(nan, 1.0f), -127);
		assert_int_equal(tsr_softsign_code(nan, 0.0f), 0);
		assert_int_equal(tsr_softsign_code(1.0f, nan), 0);
		assert_int_equal(tsr_linear_code(nan, 127.0f), -127);
		assert_int_equal(tsr_linear_code(nan, 0.0f), -127);
		assert_int_equal(tsr_sqrt_code(nan, 255.0f), 0);
		assert_int_equal(tsr_ulinear_code(nan, 255.0f), 0);
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

/* --- What FlashOptim's papers and kernels give ------------------------------------------------- */

struct share {
	const char *codec;
	double percent;		/* of the finite FP32 values come back bit for bit */
};

#define PIECE 16384

/* Elements of one sign that come back; the two halves run at once. */
static void check_share(struct half *h)
{
	const struct tsr_coding coding = { .codec = h->ctx, .group = 1 };
	static _Thread_local float x[PIECE], y[PIECE];
	static _Thread_local uint32_t planes[2][PIECE];
	void *const out[2] = { planes[0], planes[1] };
	const void *const in[2] = { planes[0], planes[1] };
	struct tsr_encode_report report = { 0 };

	for (uint32_t mag = 0; mag < 0x7f800000u; mag += PIECE) {
		uint32_t exact = 0;

		for (uint32_t i = 0; i < PIECE; i++)
			x[i] = float_of(mag + i + h->sign);
		coding.codec->encode(&coding, x, PIECE, out, &report);
		coding.codec->decode(&coding, in, PIECE, y);
		for (uint32_t i = 0; i < PIECE; i++)
			exact += bits_of(x[i]) == bits_of(y[i]);
		h->nbad += exact;
	}
}

static void test_share_of_floats_that_come_back(void **state)
{
	static const struct share shares[] = {
		{ "bf16+ulp16", 99.7287 }, { "bf16+ulp8", 0.3868 }, { "bf16+bf16", 3.3379 },
		{ "fp16+ulp8", 0.3768 }, { "fp16+ulp16", 13.3328 }, { "fp16+fp16", 5.3920 },
		{ "bf16+exact16", 100 }, { "f32", 100 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(shares) && is_long_run(); i++) {
		const struct tsr_codec *codec = tsr_codec_find(shares[i].codec);
		struct half halves[2] = {
			{ .sign = 0, .check = check_share, .ctx = codec },
			{ .sign = 0x80000000u, .check = check_share, .ctx = codec },
		};
		double percent;
		pthread_t other;

		assert_int_equal(pthread_create(&other, NULL, run_half, &halves[1]), 0);
		run_half(&halves[0]);
		assert_int_equal(pthread_join(other, NULL), 0);
		percent = 100.0 * (double)(halves[0].nbad + halves[1].nbad) / (2.0 * 0x7f800000);
		if (!(fabs(percent - shares[i].percent) <= 0.001))
			fail_msg("%s: %.4f%% come back, want %.4f%%", shares[i].codec, percent,
				 shares[i].percent);
	}
}

/* The binade of 1: all normal ones are alike. */
static void test_mean_relative_error_of_bf16_ulp8(void **state)
{
	const struct tsr_split_format f = tsr_split_bf16();
	double sum = 0;

	(void)state;
	for (uint32_t bits = 0x3f800000; bits < 0x40000000; bits++) {
		const float x = float_of(bits), n = tsr_f32_from_bf16(tsr_bf16_from_f32(x));
		const float y = tsr_ulp_join(f, n, tsr_ulp_correction(f, x, n, 127.0f), 127.0f);

		sum += fabs((double)x - (double)y) / (double)x;
	}
	sum /= 0x800000;
	if (!(fabs(sum - 5.345e-6) < 0.0005e-6))
		fail_msg("mean relative error %.4e, want 5.345e-6", sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_widening_gives_the_defined_value),
		cmocka_unit_test(test_narrowing_undoes_widening),
		cmocka_unit_test(test_narrowing_at_every_tie),
		cmocka_unit_test(test_narrowing_of_all_floats),
		cmocka_unit_test(test_narrowing_keeps_nan_sign_and_payload),
		cmocka_unit_test(test_correction_is_exactly_rounded),
		cmocka_unit_test(test_join_of_every_narrow_and_8_bit_correction_is_fused),
		cmocka_unit_test(test_join_with_16_bit_corrections_is_fused),
		cmocka_unit_test(test_join_is_fused_where_it_matters),
		cmocka_unit_test(test_codes_are_not_fused),
		cmocka_unit_test(test_exact16_loses_nothing),
		cmocka_unit_test(test_exact16_of_outermost_nans),
		cmocka_unit_test(test_float_split_rest_and_join),
		cmocka_unit_test(test_e8m8_rounds_up_to_the_next_code),
		cmocka_unit_test(test_e8m8_is_never_infinite),
		cmocka_unit_test(test_e8m8_of_all_magnitudes),
		cmocka_unit_test(test_codes_follow_their_formula),
		cmocka_unit_test(test_codes_are_monotonic_at_their_thresholds),
		cmocka_unit_test(test_value_is_one_quotient_times_the_scale),
		cmocka_unit_test(test_codes_of_an_all_zero_group_are_zero),
		cmocka_unit_test(test_codes_of_nan_are_defined),
		cmocka_unit_test(test_largest_sqrt_scale_has_a_finite_square),
		cmocka_unit_test(test_share_of_floats_that_come_back),
		cmocka_unit_test(test_mean_relative_error_of_bf16_ulp8),
	};

	return cmocka_run_group_tests_name("math", tests, fill_middles, NULL);
}
