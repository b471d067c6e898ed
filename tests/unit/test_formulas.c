/* SPDX-License-Identifier: Apache-2.0 */
/*
 * That each codec's loops are its formulas: planes and decoded values against src/codec/group_math.h,
 * one element after the other.  The formulas themselves are the matter of test_math and test_groups.
 */
#include <math.h>

#include "coded.h"
#include "codec/group_math.h"

#define N 5003

static float x_data[N];

static void expect_bits(const struct tsr_coding *coding, const char *what, size_t i, uint32_t got,
			uint32_t want)
{
	char which[200];

	if (got == want)
		return;
	describe(which, coding, tsr_isa_name(), N, 0);
	fail_msg("%s: %s %zu (%08x): got %08x, want %08x", which, what, i, bits_of(x_data[i]), got,
		 want);
}

/* Entry @i of a plane, its sign extended where the plane has signs. */
static uint32_t entry_of(const struct tsr_coding *coding, const struct coded *r, unsigned plane,
			 size_t i)
{
	const unsigned char *bytes = r->plane[plane].bytes;
	uint16_t half;
	uint32_t word;

	switch (tsr_plane_dtype(coding, plane)) {
	case TSR_U8:
		return bytes[i];
	case TSR_I8:
		return (uint32_t)(int8_t)bytes[i];
	case TSR_F32:
		memcpy(&word, bytes + 4 * i, 4);
		return word;
	default:
		memcpy(&half, bytes + 2 * i, 2);
		return tsr_plane_dtype(coding, plane) == TSR_I16 ? (uint32_t)(int16_t)half : half;
	}
}

/* --- Weights -------------------------------------------------------------------------------- */

struct split {
	uint32_t narrow, second;
	float decoded;
};

static struct split ulp_split(bool bf16, float x, float levels)
{
	const struct tsr_split_format f = bf16 ? tsr_split_bf16() : tsr_split_f16();
	const uint32_t narrow = bf16 ? tsr_bf16_from_f32(x) : tsr_f16_from_f32(x);
	const float wide = bf16 ? tsr_f32_from_bf16(narrow) : tsr_f32_from_f16(narrow);
	const int32_t correction = tsr_ulp_correction(f, x, wide, levels);
	const struct split s = { narrow, (uint32_t)correction,
				 tsr_ulp_join(f, wide, correction, levels) };

	return s;
}

static struct split bf16_ulp8(float x)
{
	return ulp_split(true, x, 127.0f);
}

static struct split bf16_ulp16(float x)
{
	return ulp_split(true, x, 32767.0f);
}

static struct split fp16_ulp8(float x)
{
	return ulp_split(false, x, 127.0f);
}

static struct split fp16_ulp16(float x)
{
	return ulp_split(false, x, 32767.0f);
}

static struct split bf16_exact16(float x)
{
	const uint32_t narrow = tsr_exact16_narrow(x);
	const int32_t correction = tsr_exact16_correction(x, narrow);
	const struct split s = { narrow, (uint32_t)correction,
				 tsr_exact16_join(narrow, correction) };

	return s;
}

static struct split bf16_bf16(float x)
{
	const uint32_t narrow = tsr_bf16_from_f32(x);
	const float wide = tsr_f32_from_bf16(narrow);
	const uint32_t second = tsr_bf16_from_f32(tsr_float_rest(x, wide));
	const struct split s = { narrow, second, tsr_float_join(wide, tsr_f32_from_bf16(second)) };

	return s;
}

static struct split fp16_fp16(float x)
{
	const uint32_t narrow = tsr_f16_from_f32(x);
	const float wide = tsr_f32_from_f16(narrow);
	const uint32_t second = tsr_f16_from_f32(tsr_float_rest(x, wide));
	const struct split s = { narrow, second, tsr_float_join(wide, tsr_f32_from_f16(second)) };

	return s;
}

static struct split bf16(float x)
{
	const struct split s = { tsr_bf16_from_f32(x), 0, tsr_f32_from_bf16(tsr_bf16_from_f32(x)) };

	return s;
}

static struct split fp16(float x)
{
	const struct split s = { tsr_f16_from_f32(x), 0, tsr_f32_from_f16(tsr_f16_from_f32(x)) };

	return s;
}

static struct split f32(float x)
{
	const struct split s = { bits_of(x), 0, x };

	return s;
}

static const struct {
	const char *codec;
	struct split (*split)(float x);
} weight_codecs[] = {
	{ "bf16+ulp8", bf16_ulp8 },
	{ "bf16+ulp16", bf16_ulp16 },
	{ "fp16+ulp8", fp16_ulp8 },
	{ "fp16+ulp16", fp16_ulp16 },
	{ "bf16+exact16", bf16_exact16 },
	{ "bf16+bf16", bf16_bf16 },
	{ "fp16+fp16", fp16_fp16 },
	{ "bf16", bf16 },
	{ "fp16", fp16 },
	{ "f32", f32 },
};

static void test_splits(void **state)
{
	(void)state;
	for (size_t c = 0; c < COUNT_OF(weight_codecs); c++) {
		const struct tsr_coding coding = coding_of(weight_codecs[c].codec, TSR_SCALE_E8M8,
							   1);

		for (unsigned data = 0; data < DATA_COUNT; data++) {
			struct coded r;

			fill(x_data, N, (enum data)data, c * DATA_COUNT + data);
			coded_new(&r, &coding, x_data, N);
			for (size_t i = 0; i < N; i++) {
				const struct split want = weight_codecs[c].split(x_data[i]);

				expect_bits(&coding, "narrow", i, entry_of(&coding, &r, 0, i),
					    want.narrow);
				if (coding.codec->nplanes > 1)
					expect_bits(&coding, "second", i,
						    entry_of(&coding, &r, 1, i), want.second);
				expect_bits(&coding, "decoded", i, bits_of(decoded_of(&r)[i]),
					    bits_of(want.decoded));
			}
			coded_free(&r, &coding);
		}
	}
}

/* --- Groups --------------------------------------------------------------------------------- */

enum grouped { SOFTSIGN, LINEAR, SQRT, ULINEAR, GROUPED_COUNT };

static const char *const grouped_names[GROUPED_COUNT] = {
	[SOFTSIGN] = "softsign8",
	[LINEAR] = "linear8",
	[SQRT] = "sqrt8",
	[ULINEAR] = "ulinear8",
};

/* The scale of a group as it is stored, and the one that the encoder divides by. */
static uint32_t store_scale(enum grouped g, enum tsr_scale format, float scale, float *divisor_ret)
{
	uint32_t code;

	*divisor_ret = scale;
	switch (format) {
	case TSR_SCALE_E8M8:
		code = tsr_e8m8_from_f32(scale);
		if (g == SQRT && code > TSR_E8M8_SQRT_MAX)
			code = TSR_E8M8_SQRT_MAX;
		*divisor_ret = tsr_f32_from_e8m8(code);
		return code;
	case TSR_SCALE_F16:
		*divisor_ret = tsr_f16_divisor(scale);
		return tsr_f16_from_f32(scale);
	default:
		return bits_of(scale);
	}
}

static float load_scale(enum tsr_scale format, uint32_t stored)
{
	return format == TSR_SCALE_E8M8	 ? tsr_f32_from_e8m8(stored)
	       : format == TSR_SCALE_F16 ? tsr_f32_from_f16(stored)
					 : float_of(stored);
}

static int32_t code_of(enum grouped g, float x, float scale)
{
	const float unit = tsr_group_unit(scale);

	switch (g) {
	case SOFTSIGN:
		return tsr_softsign_code_in(tsr_bounds_i8(), x * unit, scale * unit);
	case LINEAR:
		return tsr_linear_code_in(tsr_bounds_i8(), x * unit,
					  tsr_inverse_scale(127.0f, scale * unit));
	case SQRT:
		return tsr_root_code_in(tsr_bounds_u8(), sqrtf(x),
					tsr_inverse_scale(255.0f, scale));
	default:
		return tsr_ulinear_code_in(tsr_bounds_u8(), x * unit,
					   tsr_inverse_scale(255.0f, scale * unit));
	}
}

static float value_of(enum grouped g, int32_t code, float scale)
{
	return g == SOFTSIGN ? tsr_softsign_value((float)code, scale)
	       : g == LINEAR ? tsr_linear_value((float)code, scale)
	       : g == SQRT   ? tsr_sqrt_value((float)code, scale)
			     : tsr_ulinear_value((float)code, scale);
}

/* The code of a positive variance: no smaller one than decodes to something, but in FlashOptim's form. */
static int32_t kept_code_of(enum grouped g, const struct tsr_coding *coding, float x, float divisor,
			    float scale)
{
	const bool kept = g >= SQRT && coding->scale != TSR_SCALE_F16 && x > 0.0f;
	int32_t code = code_of(g, x, divisor);

	while (kept && code < 255 && (code == 0 || value_of(g, code, scale) == 0.0f))
		code++;
	return code;
}

static void check_grouped(enum grouped g, const struct tsr_coding *coding, const struct coded *r)
{
	for (size_t first = 0; first < N; first += coding->group) {
		const size_t end = first + coding->group < N ? first + coding->group : N;
		const size_t group = first / coding->group;
		uint32_t peak = 0, stored;
		float scale;

		for (size_t i = first; i < end; i++) {
			const uint32_t mag = bits_of(x_data[i]) & 0x7fffffff;

			peak = mag > peak ? mag : peak;
		}
		scale = g == SQRT ? sqrtf(float_of(peak)) : float_of(peak);
		stored = store_scale(g, coding->scale, scale, &scale);
		expect_bits(coding, "scale of the group of", first, entry_of(coding, r, 1, group),
			    stored);
		for (size_t i = first; i < end; i++) {
			/* Through memory: gcc 12 makes trunc(x), which can be -0, of (float)(int32_t)x. */
			const float decoder = load_scale(coding->scale, stored);
			const volatile int32_t code = kept_code_of(g, coding, x_data[i], scale,
								   decoder);
			const float value = value_of(g, code, decoder);

			expect_bits(coding, "code", i, entry_of(coding, r, 0, i), (uint32_t)code);
			expect_bits(coding, "decoded", i, bits_of(decoded_of(r)[i]),
				    bits_of(value));
		}
	}
}

static void test_groups(void **state)
{
	(void)state;
	for (unsigned g = 0; g < GROUPED_COUNT; g++) {
		for (unsigned scale = 0; scale < TSR_SCALE_F28; scale++) {
			for (size_t i = 0; i < COUNT_OF(groups); i++) {
				const struct tsr_coding coding = coding_of(
					grouped_names[g], (enum tsr_scale)scale, groups[i]);
				struct coded r;

				fill(x_data, N, (enum data)(i % DATA_COUNT), g * 100 + i);
				if (g >= SQRT)
					drop_signs(x_data, N);
				coded_new(&r, &coding, x_data, N);
				check_grouped((enum grouped)g, &coding, &r);
				coded_free(&r, &coding);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_splits),
		cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests_name("formulas", tests, NULL, NULL);
}
