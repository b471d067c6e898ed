/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Levels that have shorter ways for ordinary values (src/codec/simd/lanes.h) give the bits of the
 * base level, which has none: every float, every code with every scale, and groups among which some
 * are not ordinary.
 */
#include <math.h>

#include "base/isa.h"
#include "coded.h"

#define N 65536u

static float x_data[N + 32];

/* Planes and decoded values of one encoding on one level. */
static unsigned char planes[2][TSR_PLANES_MAX][4 * N];
static float decoded[2][N];

static void on_level(unsigned which, const struct tsr_coding *coding, size_t n)
{
	struct tsr_encode_report report = { 0 };
	struct tsr_coding c = *coding;
	void *out[TSR_PLANES_MAX];
	const void *in[TSR_PLANES_MAX];

	c.codec = tsr_codec_find(coding->codec->name);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		in[i] = out[i] = planes[which][i];
	c.codec->encode(&c, x_data, n, out, &report);
	c.codec->decode(&c, in, n, decoded[which]);
}

static void compare(const struct tsr_coding *coding, const char *level, size_t n)
{
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const size_t nbytes = (size_t)tsr_plane_nbytes(coding, i, n);

		for (size_t k = 0; k < nbytes; k++) {
			if (planes[0][i][k] != planes[1][i][k])
				fail_msg("%s on %s: byte %zu of plane %u is %02x, not %02x",
					 coding->codec->name, level, k, i, planes[1][i][k],
					 planes[0][i][k]);
		}
	}
	for (size_t k = 0; k < n; k++) {
		if (bits_of(decoded[0][k]) != bits_of(decoded[1][k]))
			fail_msg("%s on %s: %08x comes back as %08x, not %08x", coding->codec->name,
				 level, bits_of(x_data[k]), bits_of(decoded[1][k]),
				 bits_of(decoded[0][k]));
	}
}

/* The first @n of x_data on every level. */
static void check_levels(const struct tsr_coding *coding, size_t n)
{
	assert_true(tsr_isa_select("base"));
	on_level(0, coding, n);
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		if (strcmp(*name, "base") == 0 || !tsr_isa_select(*name))
			continue;
		on_level(1, coding, n);
		compare(coding, *name, n);
	}
	assert_true(tsr_isa_select(NULL));
}

/* --- Weights -------------------------------------------------------------------------------- */

/*
 * Every @step-th float, in order, so that runs are all special or not at all, or shuffled, so that
 * each has a few special ones among them.
 */
static void check_floats(const char *codec, uint32_t step, uint32_t shuffle)
{
	const struct tsr_coding coding = coding_of(codec, TSR_SCALE_E8M8, 1);

	for (uint64_t first = 0; first <= UINT32_MAX; first += (uint64_t)N * step) {
		for (uint32_t i = 0; i < N; i++)
			x_data[i] = float_of(((uint32_t)first + i * step) * shuffle);
		check_levels(&coding, N);
	}
}

static void test_every_float(void **state)
{
	static const char *const codecs[] = { "bf16+ulp16", "fp16+ulp8",    "fp16+ulp16",
					      "bf16+bf16",  "fp16+fp16",    "bf16",
					      "fp16",	    "bf16+exact16", "bf16+trunc8" };
	const uint32_t step = is_long_run() ? 1 : 1021;

	(void)state;
	check_floats("bf16+ulp8", step, 1);
	check_floats("bf16+ulp8", step, 0x9e3779b1u);
	for (size_t i = 0; i < COUNT_OF(codecs); i++)
		check_floats(codecs[i], is_long_run() ? 61 : 8191, 0x9e3779b1u);
}

/* --- Groups --------------------------------------------------------------------------------- */

static const char *const grouped[] = { "softsign8", "linear8", "sqrt8", "ulinear8" };

static float random_value(uint64_t *seed, int exponent)
{
	const uint32_t r = random_u32(seed);

	return ldexpf((float)(int32_t)r, exponent - 31);
}

/* An infinity or the largest float among ordinary values. */
static void one_odd_value(size_t first, int exponent, uint32_t which, uint64_t *seed)
{
	for (size_t i = first; i < first + 16; i++)
		x_data[i] = random_value(seed, exponent);
	for (size_t i = first + 16; i < first + 32; i++)
		x_data[i] = float_of(which == 1 ? 0x7f800000 : 0x7f7fffff);
}

/*
 * Groups of all sizes that need no other way, some of them zeros, and in every fourth run one that
 * does.
 */
static void fill_groups(uint64_t *seed, bool is_signed, size_t n)
{
	const size_t odd_one = random_u32(seed) % (n / 8);

	for (size_t first = 0; first < n; first += 32) {
		const uint32_t r = random_u32(seed);
		const bool is_zero = r % 19 == 0;
		const int exponent = (int)(r >> 8) % (is_signed ? 100 : 120) - 60;

		for (size_t i = first; i < n && i < first + 32; i++) {
			const float x = random_value(seed, exponent);

			x_data[i] = is_zero ? copysignf(0.0f, x) : x;
			if (first / 32 == odd_one)
				x_data[i] = draw(r % 2 ? DATA_SPECIAL : DATA_TINY, seed);
			if (!is_signed && i % 11)
				x_data[i] = fabsf(x_data[i]);
		}
		if (first / 32 == odd_one && r % 3)
			one_odd_value(first, exponent, r % 3, seed);
	}
}

static void test_groups_of_all_sizes(void **state)
{
	const int runs = is_long_run() ? 20000 : 200;
	uint64_t seed = 32;

	(void)state;
	for (int run = 0; run < runs; run++) {
		const unsigned c = (unsigned)run % COUNT_OF(grouped);
		const struct tsr_coding coding = coding_of(
			grouped[c], (enum tsr_scale)(run / 4 % TSR_SCALE_F28), 32);
		const size_t n = 4096 + random_u32(&seed) % 4096;

		fill_groups(&seed, c < 2, n);
		check_levels(&coding, n);
	}
}

/* Every float up to the scale of its group, and what is put first makes the scale. */
static void check_every_magnitude(const char *codec, float scale, uint32_t step)
{
	const struct tsr_coding coding = coding_of(codec, TSR_SCALE_F32, 32);
	const uint32_t last = bits_of(scale);

	for (uint64_t first = 0; first <= last; first += (uint64_t)step * (N / 32 * 31)) {
		uint64_t bits = first;

		for (uint32_t i = 0; i < N; i++) {
			const uint32_t mag = (uint32_t)(bits < last ? bits : last);

			x_data[i] = i % 32 ? float_of(mag | (i & 1) << 31) : scale;
			bits += i % 32 ? step : 0;
		}
		check_levels(&coding, N);
	}
}

static void test_every_magnitude_in_a_group(void **state)
{
	static const float scales[] = { 1.0f, 0x1.fffffep-1f, 0x1.8p-30f, 0x1p-60f, 0x1.37ap118f };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(scales); i++) {
		check_every_magnitude("softsign8", scales[i], is_long_run() ? i ? 61 : 1 : 1021);
		check_every_magnitude("linear8", scales[i], is_long_run() ? 61 : 8191);
		check_every_magnitude("ulinear8", scales[i], is_long_run() ? 61 : 8191);
		check_every_magnitude("sqrt8", scales[i], is_long_run() ? 61 : 8191);
	}
}

/* Whatever a file holds: every code with every scale. */
static void check_every_code(const struct tsr_coding *coding)
{
	static uint16_t scales[N];
	static unsigned char codes[N];
	const void *const in[] = { codes, scales };
	const size_t per_piece = N / 32;

	for (uint32_t first = 0; first < 65536 * 8; first += (uint32_t)per_piece) {
		struct tsr_coding c = *coding;

		for (uint32_t g = 0; g < per_piece; g++) {
			scales[g] = (uint16_t)((first + g) / 8);
			for (uint32_t i = 0; i < 32; i++)
				codes[g * 32 + i] = (unsigned char)((first + g) % 8 * 32 + i);
		}
		assert_true(tsr_isa_select("base"));
		c.codec = tsr_codec_find(coding->codec->name);
		c.codec->decode(&c, in, N, decoded[0]);
		for (const char *const *name = tsr_isa_names(); *name; name++) {
			if (!tsr_isa_select(*name))
				continue;
			c.codec = tsr_codec_find(coding->codec->name);
			c.codec->decode(&c, in, N, decoded[1]);
			if (memcmp(decoded[0], decoded[1], sizeof(decoded[0])) != 0)
				fail_msg("%s on %s: scales from %u", c.codec->name, *name,
					 first / 8);
		}
	}
	assert_true(tsr_isa_select(NULL));
}

static void test_every_code_with_every_scale(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(grouped); i++) {
		const struct tsr_coding e8m8 = coding_of(grouped[i], TSR_SCALE_E8M8, 32);
		const struct tsr_coding f16 = coding_of(grouped[i], TSR_SCALE_F16, 32);

		check_every_code(&e8m8);
		check_every_code(&f16);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_float),
		cmocka_unit_test(test_groups_of_all_sizes),
		cmocka_unit_test(test_every_magnitude_in_a_group),
		cmocka_unit_test(test_every_code_with_every_scale),
	};

	return cmocka_run_group_tests_name("ordinary values", tests, NULL, NULL);
}
