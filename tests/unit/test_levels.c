/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every codec gives is the same on every SIMD level, in pieces and at any alignment.  Nothing
 * is touched outside the arrays.
 */
#include <math.h>

#include "base/isa.h"
#include "coded.h"

static void expect_same(const struct guarded *a, const struct guarded *b, const char *what,
			const char *which)
{
	assert_int_equal(a->nbytes, b->nbytes);
	for (size_t i = 0; i < a->nbytes; i++) {
		if (a->bytes[i] != b->bytes[i])
			fail_msg("%s: %s: byte %zu of %zu is %02x and %02x", which, what, i,
				 a->nbytes, a->bytes[i], b->bytes[i]);
	}
}

static void expect_same_report(const struct tsr_encode_report *a, const struct tsr_encode_report *b,
			       const char *which)
{
	if (a->scale_underflow != b->scale_underflow || a->scale_overflow != b->scale_overflow ||
	    a->narrow_overflow != b->narrow_overflow)
		fail_msg("%s: reports differ", which);
}

/* --- The same bits on every SIMD level ------------------------------------------------------ */

static void compare_levels(const struct tsr_coding *coding, const struct on_level *levels,
			   size_t nlevels, size_t n, enum data data)
{
	struct tsr_coding other = *coding;
	struct coded base, level;
	struct guarded x;

	guarded_new(&x, n * sizeof(float));
	fill((float *)(void *)x.bytes, n, data, n + data * 1000003u);
	if (coding->codec->kinds == TSR_KIND_VARIANCE && n % 3)
		drop_signs((float *)(void *)x.bytes, n);
	other.codec = levels[0].codec;
	coded_new(&base, &other, (const float *)(const void *)x.bytes, n);
	for (size_t l = 1; l < nlevels; l++) {
		char which[200];

		other.codec = levels[l].codec;
		coded_new(&level, &other, (const float *)(const void *)x.bytes, n);
		describe(which, &other, levels[l].level, n, data);
		for (unsigned i = 0; i < coding->codec->nplanes; i++)
			expect_same(&base.plane[i], &level.plane[i], "plane", which);
		expect_same(&base.decoded, &level.decoded, "decoded", which);
		expect_same_report(&base.report, &level.report, which);
		coded_free(&level, &other);
	}
	coded_free(&base, coding);
	guarded_free(&x);
}

static void compare_levels_at_all_lengths(const struct tsr_coding *coding)
{
	struct on_level levels[LEVELS_MAX];
	const size_t nlevels = find_on_levels(coding->codec->name, levels);

	for (size_t n = 0; n <= 100; n++) {
		compare_levels(coding, levels, nlevels, n, DATA_SPECIAL);
		compare_levels(coding, levels, nlevels, n, (enum data)(1 + n % (DATA_COUNT - 1)));
	}
	for (unsigned data = 0; data < DATA_COUNT; data++) {
		compare_levels(coding, levels, nlevels, 4093, (enum data)data);
		compare_levels(coding, levels, nlevels, is_long_run() ? 1000003 : 20021,
			       (enum data)data);
	}
}

static void test_levels_agree(void **state)
{
	(void)state;
	for_each_codec(compare_levels_at_all_lengths);
}

/* Planes that no encoder makes: a file may hold anything. */
static void compare_levels_on_random_planes(const struct tsr_coding *coding)
{
	const size_t n = 5003;
	struct tsr_coding other = *coding;
	struct guarded plane[TSR_PLANES_MAX], base, level;
	const void *in[TSR_PLANES_MAX] = { NULL };
	uint64_t seed = coding->group;
	char which[200];

	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		guarded_new(&plane[i], (size_t)tsr_plane_nbytes(coding, i, n));
		for (size_t j = 0; j < plane[i].nbytes; j++)
			plane[i].bytes[j] = (unsigned char)(random_u32(&seed) & 1
								    ? random_u32(&seed)
								    : 0xff);
		in[i] = plane[i].bytes;
	}
	guarded_new(&base, n * sizeof(float));
	guarded_new(&level, n * sizeof(float));
	assert_true(tsr_isa_select("base"));
	other.codec = tsr_codec_find(coding->codec->name);
	other.codec->decode(&other, in, n, (float *)(void *)base.bytes);
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		if (strcmp(*name, "base") == 0 || !tsr_isa_select(*name))
			continue;
		other.codec = tsr_codec_find(coding->codec->name);
		other.codec->decode(&other, in, n, (float *)(void *)level.bytes);
		describe(which, &other, *name, n, 0);
		expect_same(&base, &level, "decoded", which);
	}
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		guarded_free(&plane[i]);
	guarded_free(&base);
	guarded_free(&level);
}

static void test_levels_agree_on_any_planes(void **state)
{
	(void)state;
	for_each_codec(compare_levels_on_random_planes);
}

/* As in test_math, through the compiled loops: fused where it is written, nowhere else. */
static void check_contraction(void)
{
	enum { N = 64 };
	static const float root = 0x1.030302p-9f, scale = 0x1.02p+0f;
	const struct tsr_coding split = coding_of("bf16+ulp8", TSR_SCALE_E8M8, 1);
	const struct tsr_coding linear = coding_of("ulinear8", TSR_SCALE_E8M8, 32);
	const struct tsr_coding root8 = coding_of("sqrt8", TSR_SCALE_E8M8, 32);
	struct tsr_encode_report report = { 0 };
	uint16_t narrow[N], scales[N / 32];
	int8_t correction[N];
	uint8_t code[N];
	float x[N];

	for (size_t i = 0; i < N; i++) {
		narrow[i] = 0x0100;
		correction[i] = 32;
	}
	split.codec->decode(&split, (const void *[]){ narrow, correction }, N, x);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(bits_of(x[i]), 0x01002041);
	for (size_t i = 0; i < N; i++)
		x[i] = i % 32 ? root : scale;
	linear.codec->encode(&linear, x, N, (void *[]){ code, scales }, &report);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(code[i], i % 32 ? 1 : 255);
	for (size_t i = 0; i < N; i++) {
		x[i] = i % 32 ? root * root : scale * scale;
		assert_true(sqrtf(x[i]) == (i % 32 ? root : scale));
	}
	root8.codec->encode(&root8, x, N, (void *[]){ code, scales }, &report);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(code[i], i % 32 ? 1 : 255);
}

static void test_contraction_on_every_level(void **state)
{
	(void)state;
	on_each_level(check_contraction);
}

/* --- Every correction and code --------------------------------------------------------------- */

/*
 * Beside a zero FP16 weight, a correction decodes to RN(q / levels) * 2^-25, which is exact; with a
 * scale of 1, a linear code to RN(q / levels).  Binary64 rounds such quotients the same way.
 */
static void check_quotients(void)
{
	static uint16_t zeros[65536];
	static int16_t wide[65536];
	static float y[65536];
	const float one = 1.0f;
	uint8_t bytes[256];

	for (int i = 0; i < 65536; i++)
		wide[i] = (int16_t)(i - 32768);
	for (int i = 0; i < 256; i++)
		bytes[i] = (uint8_t)i;
	const struct tsr_coding ulp16 = coding_of("fp16+ulp16", TSR_SCALE_F32, 1);
	const struct tsr_coding ulp8 = coding_of("fp16+ulp8", TSR_SCALE_F32, 1);
	const struct tsr_coding linear = coding_of("linear8", TSR_SCALE_F32, 256);
	const struct tsr_coding ulinear = coding_of("ulinear8", TSR_SCALE_F32, 256);

	ulp16.codec->decode(&ulp16, (const void *[]){ zeros, wide }, 65536, y);
	for (int i = 0; i < 65536; i++)
		assert_true(y[i] == (float)(wide[i] / 32767.0) * 0x1p-25f);
	ulp8.codec->decode(&ulp8, (const void *[]){ zeros, bytes }, 256, y);
	for (int i = 0; i < 256; i++)
		assert_true(y[i] == (float)((int8_t)i / 127.0) * 0x1p-25f);
	linear.codec->decode(&linear, (const void *[]){ bytes, &one }, 256, y);
	for (int i = 0; i < 256; i++)
		assert_true(y[i] == (float)((int8_t)i / 127.0));
	ulinear.codec->decode(&ulinear, (const void *[]){ bytes, &one }, 256, y);
	for (int i = 0; i < 256; i++)
		assert_true(y[i] == (float)(i / 255.0));
}

static void test_quotients_on_every_level(void **state)
{
	(void)state;
	on_each_level(check_quotients);
}

/* Each narrow weight with the corrections that test_math joins it with. */
static void test_levels_join_alike(void **state)
{
	static const char *const names[] = { "bf16+ulp8", "fp16+ulp8", "bf16+ulp16", "fp16+ulp16" };
	static uint16_t narrow[65536];
	static int16_t wide[65536];
	static int8_t bytes[65536];
	static float base[65536], level[65536];

	(void)state;
	for (int i = 0; i < 65536; i++)
		narrow[i] = (uint16_t)i;
	for (size_t c = 0; c < COUNT_OF(names); c++) {
		const bool is_wide = c >= 2;
		const int step = is_wide && !is_long_run() ? 251 : 1;
		const void *const planes[] = { narrow, is_wide ? (void *)wide : bytes };

		for (int q = is_wide ? -32768 : -128; q < (is_wide ? 32768 : 128); q += step) {
			struct tsr_coding coding;

			for (int i = 0; i < 65536; i++) {
				wide[i] = (int16_t)q;
				bytes[i] = (int8_t)q;
			}
			assert_true(tsr_isa_select("base"));
			coding = coding_of(names[c], TSR_SCALE_E8M8, 1);
			coding.codec->decode(&coding, planes, 65536, base);
			for (const char *const *name = tsr_isa_names(); *name; name++) {
				if (strcmp(*name, "base") == 0 || !tsr_isa_select(*name))
					continue;
				coding = coding_of(names[c], TSR_SCALE_E8M8, 1);
				coding.codec->decode(&coding, planes, 65536, level);
				if (memcmp(base, level, sizeof(base)) != 0)
					fail_msg("%s on %s: correction %d", names[c], *name, q);
			}
		}
	}
	assert_true(tsr_isa_select(NULL));
}

/* --- Pieces and alignment ------------------------------------------------------------------- */

/* Encode and decode [0, cut) and [cut, n) of arrays @shift elements into their memory. */
static void compare_cut(const struct tsr_coding *coding, const struct coded *whole, const float *x,
			size_t n, size_t cut, size_t shift)
{
	struct tsr_encode_report report = { 0 };
	struct tsr_coding rest = *coding;
	unsigned char *plane[TSR_PLANES_MAX] = { NULL };
	void *first[TSR_PLANES_MAX] = { NULL }, *second[TSR_PLANES_MAX] = { NULL };
	float *x_copy = calloc(n + shift + 1, sizeof(*x_copy));
	float *decoded = calloc(n + shift + 1, sizeof(*decoded));
	char which[200];

	assert_non_null(x_copy);
	assert_non_null(decoded);
	if (n)
		memcpy(x_copy + shift, x, n * sizeof(*x));
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const size_t size = tsr_dtype_bits(tsr_plane_dtype(coding, i)) / 8;

		plane[i] = malloc(whole->plane[i].nbytes + (shift + 1) * size);
		assert_non_null(plane[i]);
		first[i] = plane[i] + shift * size;
		second[i] = (unsigned char *)first[i] + tsr_plane_nbytes(coding, i, cut);
	}
	coding->codec->encode(coding, x_copy + shift, cut, first, &report);
	rest.first += cut;
	coding->codec->encode(&rest, x_copy + shift + cut, n - cut, second, &report);
	coding->codec->decode(coding, (const void *const *)first, cut, decoded + shift);
	coding->codec->decode(coding, (const void *const *)second, n - cut, decoded + shift + cut);
	describe(which, coding, tsr_isa_name(), n, (unsigned)cut);
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		if (memcmp(first[i], whole->plane[i].bytes, whole->plane[i].nbytes) != 0)
			fail_msg("%s: plane %u differs in pieces", which, i);
		free(plane[i]);
	}
	if (n && memcmp(decoded + shift, decoded_of(whole), n * sizeof(*decoded)) != 0)
		fail_msg("%s: decoded differs in pieces", which);
	expect_same_report(&report, &whole->report, which);
	free(x_copy);
	free(decoded);
}

static void compare_cuts(const struct tsr_coding *coding)
{
	const size_t n = coding->group > 1000 ? 3 * (size_t)coding->group + 17 : 3000 + 17;
	struct coded whole;
	float *x = malloc(n * sizeof(*x));
	uint64_t seed = coding->group;

	assert_non_null(x);
	fill(x, n, coding->group % 2 ? DATA_SPECIAL : DATA_FINITE, coding->group);
	coded_new(&whole, coding, x, n);
	for (int i = 0; i < 8; i++) {
		const size_t run = tsr_coding_align(coding);
		const size_t cut = random_u32(&seed) % (n / run + 1) * run;

		compare_cut(coding, &whole, x, n, cut, (size_t)i);
	}
	compare_cut(coding, &whole, x, n, 0, 1);
	coded_free(&whole, coding);
	free(x);
}

static void test_pieces_equal_the_whole(void **state)
{
	(void)state;
	for_each_codec(compare_cuts);
}

/* clang once added the rest to it, which makes it quiet, on the levels without masks. */
static void test_a_signaling_weight_is_kept_as_it_is(void **state)
{
	(void)state;
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		uint16_t narrow[67], rest[67];
		const void *planes[] = { narrow, rest };
		struct tsr_coding coding;
		uint32_t bits[67];

		if (!tsr_isa_select(*name))
			continue;
		for (unsigned i = 0; i < 67; i++) {
			narrow[i] = 0x7f9e;
			rest[i] = (uint16_t)(0x3f80 * (i % 2));
		}
		coding = tsr_coding_default(tsr_codec_find("bf16+bf16"));
		coding.codec->decode(&coding, planes, 67, (float *)(void *)bits);
		for (unsigned i = 0; i < 67; i++)
			assert_int_equal(bits[i], 0x7f9e0000);
	}
	assert_true(tsr_isa_select(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels_agree),
		cmocka_unit_test(test_levels_agree_on_any_planes),
		cmocka_unit_test(test_a_signaling_weight_is_kept_as_it_is),
		cmocka_unit_test(test_contraction_on_every_level),
		cmocka_unit_test(test_quotients_on_every_level),
		cmocka_unit_test(test_levels_join_alike),
		cmocka_unit_test(test_pieces_equal_the_whole),
	};

	return cmocka_run_group_tests_name("levels", tests, NULL, NULL);
}
