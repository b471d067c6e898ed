/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Truncated splits: the fixed point against values in binary64, random numbers against the known
 * answers, bit packing one bit after the other, and the codecs' loops against the formulas.
 */
#include <math.h>
#include <string.h>

#include "coded.h"
#include "codec/extra_bits_math.h"

/* --- The fixed point ------------------------------------------------------------------------- */

/* |x| in 2^-16ths of the last place of its narrow weight, the places below counted on. */
static uint32_t expected_extended(uint32_t bits, int mant, int bias)
{
	const double value = fabs((double)float_of(bits));
	int exponent = ilogb(value) < 1 - bias ? 1 - bias : ilogb(value);
	uint32_t field;
	double places;

	if (value == 0)
		exponent = 1 - bias;
	places = floor(ldexp(value, 16 + mant - exponent));
	field = (uint32_t)(exponent + bias - 1) << (16 + mant);
	/* The leading bit of a normal number adds 1 to its exponent field. */
	return (uint32_t)places + field;
}

static void check_extended(uint32_t bits)
{
	const uint32_t mag = bits & 0x7fffffff;
	const float x = float_of(bits);
	const uint32_t got[] = { tsr_bf16_extended(x), tsr_f16_extended(x), tsr_e5m2_extended(x),
				 tsr_e4m3_extended(x) };
	uint32_t want[4];

	if (mag > 0x7f800000) {
		want[0] = (tsr_bf16_from_f32(x) & 0x7fff) << 16;
		want[1] = (tsr_f16_from_f32(x) & 0x7fff) << 16;
		want[2] = (tsr_f16_from_f32(x) & 0x7f00) << 8;
	} else if (mag == 0x7f800000) {
		want[0] = 0x7f800000;
		want[1] = 0x7c000000;
		want[2] = 0x7c0000;
	} else {
		want[0] = expected_extended(bits, 7, 127);
		want[1] = mag < 0x47800000 ? expected_extended(bits, 10, 15) : 0x7c000000;
		want[2] = mag < 0x47800000 ? expected_extended(bits, 2, 15) : 0x7c0000;
	}
	want[3] = mag < 0x43f00000 ? expected_extended(bits, 3, 7) : 0x7f0000;
	for (int i = 0; i < 4; i++) {
		if (got[i] != want[i])
			fail_msg("%08x in format %d: got %08x, want %08x", bits, i, got[i],
				 want[i]);
	}
}

static void test_fixed_point_is_what_is_left_of_the_value(void **state)
{
	const uint32_t step = is_long_run() ? 1 : 1009;

	(void)state;
	for (uint64_t bits = 0; bits <= 0xffffffffu; bits += step)
		check_extended((uint32_t)bits);
	for (size_t i = 0; i < COUNT_OF(specials); i++) {
		check_extended(specials[i]);
		check_extended(specials[i] | 0x80000000);
	}
	for (uint32_t exponent = 0; exponent < 256; exponent++) {
		check_extended(exponent << 23);
		check_extended((exponent << 23) + 1);
		check_extended(exponent << 23 | 0x7fffff);
	}
}

/* --- Random numbers -------------------------------------------------------------------------- */

static void test_philox_gives_the_known_answers(void **state)
{
	static const struct {
		struct tsr_philox counter;
		uint32_t key[2];
		struct tsr_philox want;
	} rows[] = {
		{ { { 0, 0, 0, 0 } },
		  { 0, 0 },
		  { { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } } },
		{ { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff } },
		  { 0xffffffff, 0xffffffff },
		  { { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } } },
		{ { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 } },
		  { 0xa4093822, 0x299f31d0 },
		  { { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct tsr_philox got = tsr_philox4x32(rows[i].counter, rows[i].key[0],
							     rows[i].key[1]);

		for (int j = 0; j < 4; j++)
			assert_int_equal(got.word[j], rows[i].want.word[j]);
	}
}

/* --- The codecs ------------------------------------------------------------------------------ */

/* The @width bits of element @i, taken one after the other from the bytes of the plane. */
static uint32_t bits_of_element(const unsigned char *bytes, size_t i, unsigned width)
{
	uint32_t value = 0;

	for (unsigned b = 0; b < width; b++) {
		const size_t at = i * width + b;

		value |= (uint32_t)(bytes[at / 8] >> at % 8 & 1) << b;
	}
	return value;
}

struct formulas {
	enum tsr_dtype dtype;
	uint32_t sign, largest;
	uint32_t (*extended)(float x);
	float (*value)(uint32_t narrow, uint32_t extended);
};

static const struct formulas *formulas_of(enum tsr_dtype dtype)
{
	static const struct formulas formulas[] = {
		{ TSR_BF16, 0x8000, 0x7f7f, tsr_bf16_extended, tsr_f32_from_bf16_extended },
		{ TSR_F16, 0x8000, 0x7bff, tsr_f16_extended, tsr_f32_from_f16_extended },
		{ TSR_F8_E5M2, 0x80, 0x7b, tsr_e5m2_extended, tsr_f32_from_e5m2_extended },
		{ TSR_F8_E4M3, 0x80, 0x7e, tsr_e4m3_extended, tsr_f32_from_e4m3_extended },
	};
	size_t i = 0;

	while (formulas[i].dtype != dtype)
		i++;
	return &formulas[i];
}

struct expected {
	uint32_t narrow, stored;
	float decoded;
};

static struct expected expect(const struct tsr_coding *coding, float x, size_t i)
{
	const struct formulas *f = formulas_of(coding->codec->planes[0].dtype);
	const bool nearest = strcmp(coding->codec->family, "bf16+rn<k>") == 0;
	const uint32_t k = coding->codec->extra_bits, exact = f->extended(x);
	/* The half of the last bit that is kept, which carries through all above it. */
	const uint32_t e = nearest && exact < 0x7f800000 ? exact + (1u << (15 - k)) : exact;
	const uint64_t at = coding->first + i;
	const struct tsr_philox r = tsr_stochastic_bits(coding->seed, coding->stream, at / 8);
	const uint32_t random = r.word[at % 8 / 2] >> (at % 2 * 16) & 0xffff;
	const uint32_t drawn = coding->codec->stochastic ? tsr_stochastic_up(e, random, f->largest)
							 : 0;
	/* To nearest: up from the middle on. */
	const uint32_t up = nearest ? (e & 0xffff) >= 0x8000 : drawn;
	struct expected want = { .narrow = tsr_trunc_narrow(f->sign, x, e) + up,
				 .stored = tsr_trunc_extra(e, k) | drawn << k };

	want.decoded = f->value(want.narrow,
				tsr_trunc_join(f->sign, want.narrow, up, tsr_trunc_extra(e, k), k));
	return want;
}

static void check_elements(const struct tsr_coding *coding, const float *x, size_t n)
{
	const unsigned width = tsr_packed_bits(coding->codec);
	const size_t each = tsr_dtype_bits(coding->codec->planes[0].dtype) / 8;
	struct coded r;
	char which[200];

	coded_new(&r, coding, x, n);
	describe(which, coding, tsr_isa_name(), n, 0);
	for (size_t i = 0; i < n; i++) {
		const struct expected want = expect(coding, x[i], i);
		const uint32_t stored = bits_of_element(r.plane[1].bytes, i, width);
		uint16_t narrow = 0;

		memcpy(&narrow, r.plane[0].bytes + each * i, each);
		if (narrow != want.narrow || stored != want.stored ||
		    bits_of(decoded_of(&r)[i]) != bits_of(want.decoded))
			fail_msg("%s: element %zu, %08x: got %04x %x %08x, want %04x %x %08x",
				 which, i, bits_of(x[i]), narrow, stored,
				 bits_of(decoded_of(&r)[i]), want.narrow, want.stored,
				 bits_of(want.decoded));
	}
	for (size_t i = n; i < (n + 31) / 32 * 32; i++)
		assert_int_equal(bits_of_element(r.plane[1].bytes, i, width), 0);
	coded_free(&r, coding);
}

static void check_truncated(void)
{
	static const uint64_t firsts[] = { 0, 32, 5 * 512 + 96, (UINT64_C(1) << 35) - 64 };
	enum { N = 2000 };
	float x[N];

	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		struct tsr_coding coding = tsr_coding_default(*c);

		if (!(*c)->extra_bits)
			continue;
		coding.stream = tsr_coding_stream("a.weight");
		for (size_t i = 0; i < COUNT_OF(firsts); i++) {
			fill(x, N, i ? DATA_SPECIAL : DATA_WEIGHTS, i);
			coding.first = firsts[i];
			coding.seed = firsts[i] * 0x123456789abu;
			check_elements(&coding, x, i ? 600 + 37 * i : N);
		}
	}
}

static void test_planes_are_the_formulas_bit_by_bit(void **state)
{
	(void)state;
	on_each_level(check_truncated);
}

/* What random rounding adds is taken off again: decoded, both are the truncated value. */
static void test_stochastic_decodes_to_the_truncated_value(void **state)
{
	static const char *const pairs[][2] = { { "bf16+trunc16", "bf16+sr16" },
						{ "bf16+trunc3", "bf16+sr3" },
						{ "fp16+trunc13", "fp16+sr13" },
						{ "e5m2+trunc8", "e5m2+sr8" },
						{ "e4m3+trunc16", "e4m3+sr16" } };
	enum { N = 20011 };
	float *x = malloc(N * sizeof(*x));

	(void)state;
	assert_non_null(x);
	for (size_t i = 0; i < COUNT_OF(pairs); i++) {
		const struct tsr_coding trunc = coding_of(pairs[i][0], TSR_SCALE_E8M8, 1);
		const struct tsr_coding sr = coding_of(pairs[i][1], TSR_SCALE_E8M8, 1);
		const size_t each = tsr_dtype_bits(trunc.codec->planes[0].dtype) / 8;
		struct coded a, b;
		size_t up = 0;

		fill(x, N, DATA_SPECIAL, i);
		coded_new(&a, &trunc, x, N);
		coded_new(&b, &sr, x, N);
		for (size_t j = 0; j < N; j++) {
			assert_int_equal(bits_of(decoded_of(&a)[j]), bits_of(decoded_of(&b)[j]));
			up += memcmp(a.plane[0].bytes + each * j, b.plane[0].bytes + each * j,
				     each) != 0;
		}
		assert_in_range(up, N / 50, N);
		coded_free(&a, &trunc);
		coded_free(&b, &sr);
	}
	free(x);
}

static void test_largest_narrow_weight_is_never_rounded_up(void **state)
{
	(void)state;
	for (uint32_t random = 0; random < 0x10000; random += 0xffff) {
		assert_int_equal(tsr_stochastic_up(0x7f7fffff, random, tsr_bf16_largest()), 0);
		assert_int_equal(tsr_stochastic_up(0x7bffffff, random, tsr_f16_largest()), 0);
		assert_int_equal(tsr_stochastic_up(0x7f800000, random, tsr_bf16_largest()), 0);
		assert_int_equal(tsr_stochastic_up(0x7bffff, random, tsr_e5m2_largest()), 0);
		assert_int_equal(tsr_stochastic_up(0x7effff, random, tsr_e4m3_largest()), 0);
		assert_int_equal(tsr_stochastic_up(0x12340000, random, tsr_bf16_largest()), 0);
	}
	assert_int_equal(tsr_stochastic_up(0x7f7e0001, 0xffff, tsr_bf16_largest()), 1);
	assert_int_equal(tsr_stochastic_up(0x7f7e0001, 0xfffe, tsr_bf16_largest()), 0);
	assert_int_equal(tsr_stochastic_up(0x7bfeffff, 1, tsr_f16_largest()), 1);
	assert_int_equal(tsr_stochastic_up(0x7bfeffff, 0, tsr_f16_largest()), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fixed_point_is_what_is_left_of_the_value),
		cmocka_unit_test(test_philox_gives_the_known_answers),
		cmocka_unit_test(test_planes_are_the_formulas_bit_by_bit),
		cmocka_unit_test(test_stochastic_decodes_to_the_truncated_value),
		cmocka_unit_test(test_largest_narrow_weight_is_never_rounded_up),
	};

	return cmocka_run_group_tests_name("extra_bits", tests, NULL, NULL);
}
