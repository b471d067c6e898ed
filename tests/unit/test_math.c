/* SPDX-License-Identifier: Apache-2.0 */
/*
 * src/codec/math.h against arithmetic done another way: values as binary64 or as integer
 * multiples of a power of two, and tables of midpoints instead of rounding tricks.
 */
#include <math.h>
#include <pthread.h>

#include "tersor/codec.h"
#include "codec/math.h"
#include "unit.h"

/* --- Two threads over the sign bit ---------------------------------------------------------- */

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
			fail_msg("%08x: got %08x, want %08x; %llu wrong", halves[i].bad,
				 halves[i].got, halves[i].want, (unsigned long long)halves[i].nbad);
	}
}

/* A prime, so that no bit keeps a pattern; 1 in a long run. */
static uint32_t dense_stride(void)
{
	return is_long_run() ? 1 : 2039;
}

/* --- The two narrow formats, from their definition ------------------------------------------ */

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

static float round_bf16(float x)
{
	return tsr_bf16_round(x);
}

static float round_f16(float x)
{
	return tsr_f16_round(x);
}

struct format {
	const char *name;
	int mant, bias;
	uint16_t inf;
	uint16_t (*narrow)(float x);
	float (*widen)(uint16_t narrow);
	float (*round)(float x);
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
	{ .name = "bf16",
	  .mant = 7,
	  .bias = 127,
	  .inf = 0x7f80,
	  .narrow = narrow_bf16,
	  .widen = widen_bf16,
	  .round = round_bf16,
	  .split = split_bf16 },
	{ .name = "f16",
	  .mant = 10,
	  .bias = 15,
	  .inf = 0x7c00,
	  .narrow = narrow_f16,
	  .widen = widen_f16,
	  .round = round_f16,
	  .split = split_f16 },
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
			const double exact = (value_of(f, mag) + value_of(f, (uint16_t)(mag + 1))) /
					     2;

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
			const uint32_t sign = (n & 0x8000) << 16,
				       fraction = n & ((1u << f->mant) - 1);
			const uint32_t got = bits_of(f->widen((uint16_t)n));
			const uint32_t want = mag < f->inf
						      ? bits_of((float)value_of(f, mag))
						      : 0x7f800000u | fraction << (23 - f->mant);

			if (got != (want | sign))
				fail_msg("%s %04x: got %08x, want %08x", f->name, n, got,
					 want | sign);
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
					fail_msg("%s %08x: got %04x and %04x, want %04x", f->name,
						 bits, got, negative, want[j]);
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
		uint32_t want = f->inf | 1u << (f->mant - 1), rounded;

		while (mag < f->inf && bits > f->middle[mag])
			mag++;
		if (bits > 0x7f800000u)
			want |= (bits & 0x7fffff) >> (23 - f->mant);
		else
			want = mag < f->inf && bits == f->middle[mag] ? mag + (mag & 1u) : mag;
		note(h, bits | h->sign, f->narrow(float_of(bits | h->sign)), want | h->sign >> 16);
		/* Of a NaN it need only be special. */
		rounded = bits_of(f->round(float_of(bits | h->sign)));
		if (bits <= 0x7f800000u)
			note(h, bits | h->sign, rounded,
			     bits_of(f->widen((uint16_t)(want | h->sign >> 16))));
		else
			note(h, bits | h->sign, is_finite_bits(rounded), false);
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
	for (uint32_t top = 0; top < 0x400; top++) { /* the bits that FP16 has room for */
		for (size_t i = 0; i < COUNT_OF(low); i++) {
			const uint32_t payload = top << 13 | low[i];

			if (!payload)
				continue;
			for (uint32_t sign = 0; sign < 2; sign++) {
				const float x = float_of(sign << 31 | 0x7f800000u | payload);

				assert_int_equal(tsr_f16_from_f32(x), sign << 15 | 0x7e00 | top);
				assert_int_equal(tsr_bf16_from_f32(x),
						 sign << 15 | 0x7fc0 | top >> 3);
			}
		}
	}
}

/* --- ULP split ------------------------------------------------------------------------------ */

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

		note(h, (uint32_t)narrow << 16 | (uint16_t)q,
		     bits_of(tsr_ulp_join(split, wide, q, levels)),
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
	assert_int_equal(
		bits_of(tsr_ulp_join(tsr_split_bf16(), tsr_f32_from_bf16(narrow), q, 127.0f)),
		0x01000000 + 8257);
}

/* --- Exact split ---------------------------------------------------------------------------- */

static void check_exact16(struct half *h, uint32_t mag)
{
	const uint32_t x = mag | h->sign;
	const uint32_t narrow = tsr_exact16_narrow(float_of(x));
	const int32_t correction = tsr_exact16_correction(float_of(x), narrow);
	const uint32_t joined = bits_of(tsr_exact16_join(narrow, correction));

	note(h, x, narrow >> 15, x >> 31);
	note(h, x, (uint32_t)correction, (uint32_t)(int16_t)correction); /* it fits */
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
		{ 0x7f7f8000, 0x7f80, -32768, 0x7f7f8000 }, /* finite, its narrow one not */
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

/* --- Float split ---------------------------------------------------------------------------- */

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
			/* Both are exact in binary64. */
			assert_true((double)rest == (double)x - (double)wide);
			assert_int_equal(joined,
					 second != 0.0f
						 ? bits_of((float)((double)wide + (double)second))
						 : bits_of(wide));
		}
	}
	assert_int_equal(bits_of(tsr_float_join(-0.0f, 0.0f)), 0x80000000u);
	assert_int_equal(bits_of(tsr_float_join(-0.0f, -0.0f)), 0x80000000u);
}

/* --- What FlashOptim's papers and kernels give ---------------------------------------------- */

struct share {
	const char *codec;
	double percent; /* of the finite FP32 values come back bit for bit */
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
		{ "bf16+ulp16", 99.7287 }, { "bf16+ulp8", 0.3868 },
		{ "bf16+bf16", 3.3379 },   { "fp16+ulp8", 0.3768 },
		{ "fp16+ulp16", 13.3328 }, { "fp16+fp16", 5.3920 },
		{ "bf16+exact16", 100 },   { "f32", 100 },
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
		cmocka_unit_test(test_exact16_loses_nothing),
		cmocka_unit_test(test_exact16_of_outermost_nans),
		cmocka_unit_test(test_float_split_rest_and_join),
		cmocka_unit_test(test_share_of_floats_that_come_back),
		cmocka_unit_test(test_mean_relative_error_of_bf16_ulp8),
	};

	return cmocka_run_group_tests_name("math", tests, fill_middles, NULL);
}
