/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec table and its lookups, the sizes of planes, what comes back at the edges of the range,
 * and what encoders report.
 */
#include <math.h>

#include "base/isa.h"
#include "coded.h"

/* --- Planes --------------------------------------------------------------------------------- */

static void check_plane_sizes(const struct tsr_coding *coding)
{
	static const uint64_t lengths[] = {
		0, 1, 31, 32, 33, 65535, 65536, 65537, UINT64_C(1) << 48
	};

	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const enum tsr_plane_unit unit = coding->codec->planes[i].unit;
		const bool shared = unit == TSR_PER_GROUP || unit == TSR_PER_GROUP_TOO;
		const uint64_t nbits = coding->codec->extra_bits + coding->codec->stochastic +
				       coding->codec->code_bits;
		const uint64_t size = tsr_dtype_bits(tsr_plane_dtype(coding, i)) / 8;

		assert_true(size == 1 || size == 2 || size == 4);
		for (size_t j = 0; j < COUNT_OF(lengths); j++) {
			const uint64_t n = lengths[j], group = coding->group;
			const uint64_t want = shared		       ? (n + group - 1) / group
					      : unit == TSR_BIT_PACKED ? (n + 31) / 32 * nbits
								       : n;

			assert_true(tsr_plane_count(coding, i, n) == want);
			assert_true(tsr_plane_nbytes(coding, i, n) == want * size);
		}
		if (shared) {
			assert_true(coding->codec->grouped);
		}
		if (unit == TSR_PER_GROUP) {
			assert_int_equal(tsr_plane_dtype(coding, i),
					 tsr_scale_dtype(coding->scale));
		}
	}
}

static void test_plane_sizes(void **state)
{
	(void)state;
	for_each_codec(check_plane_sizes);
}

static void test_bytes_per_element(void **state)
{
	static const struct {
		const char *codec;
		enum tsr_scale scale;
		uint32_t group;
		double nbytes;
	} rows[] = {
		{ "bf16+ulp8", TSR_SCALE_E8M8, 1, 3 },
		{ "bf16+ulp16", TSR_SCALE_E8M8, 1, 4 },
		{ "fp16+ulp8", TSR_SCALE_E8M8, 1, 3 },
		{ "fp16+ulp16", TSR_SCALE_E8M8, 1, 4 },
		{ "bf16", TSR_SCALE_E8M8, 1, 2 },
		{ "fp16", TSR_SCALE_E8M8, 1, 2 },
		{ "bf16+bf16", TSR_SCALE_E8M8, 1, 4 },
		{ "fp16+fp16", TSR_SCALE_E8M8, 1, 4 },
		{ "bf16+exact16", TSR_SCALE_E8M8, 1, 4 },
		{ "bf16+trunc1", TSR_SCALE_E8M8, 1, 2.125 },
		{ "bf16+trunc16", TSR_SCALE_E8M8, 1, 4 },
		{ "fp16+trunc13", TSR_SCALE_E8M8, 1, 3.625 },
		{ "bf16+sr16", TSR_SCALE_E8M8, 1, 4.125 },
		{ "fp16+sr8", TSR_SCALE_E8M8, 1, 3.125 },
		{ "f32", TSR_SCALE_E8M8, 1, 4 },
		{ "softsign8", TSR_SCALE_E8M8, 32, 1.0625 },
		{ "sqrt8", TSR_SCALE_F16, 32, 1.0625 },
		{ "linear8", TSR_SCALE_F32, 32, 1.125 },
		{ "ulinear8", TSR_SCALE_F32, 1, 5 },
		{ "e4m3", TSR_SCALE_F32, 128, 1 + 4.0 / 128 },
		{ "e5m2x", TSR_SCALE_F32, 128, 1 + 5.0 / 128 },
		{ "dyn8", TSR_SCALE_F32, 256, 1 + 4.0 / 256 },
		{ "ratio9", TSR_SCALE_E8M8, 64, 1.15625 },
		{ "ratio4", TSR_SCALE_E5M3, 64, 0.515625 },
		{ "log4", TSR_SCALE_F28, 256, 0.515625 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct tsr_coding coding = coding_of(rows[i].codec, rows[i].scale,
							   rows[i].group);

		assert_true(tsr_coding_bytes_per_element(&coding) == rows[i].nbytes);
	}
}

static void check_table(void)
{
	const struct tsr_codec *const *codecs = tsr_codecs();
	size_t n = 0;

	for (; codecs[n]; n++) {
		const struct tsr_codec *c = codecs[n];
		bool has_scales = false;

		assert_true(c->name && *c->name && c->summary && *c->summary && c->source &&
			    *c->source);
		assert_true(c->kinds && !(c->kinds & ~7u));
		assert_in_range(c->nplanes, 1, TSR_PLANES_MAX);
		assert_true(c->encode && c->decode);
		assert_ptr_equal(tsr_codec_find(c->name), c);
		for (size_t i = 0; i < n; i++)
			assert_string_not_equal(codecs[i]->name, c->name);
		for (unsigned i = 0; i < c->nplanes; i++) {
			const char *suffix = c->planes[i].suffix;

			/* "" or "::word", so that no plane can be taken for a tensor of its own. */
			assert_non_null(suffix);
			if (*suffix) {
				assert_memory_equal(suffix, "::", 2);
				assert_true(strlen(suffix) > 2);
				assert_int_equal(strspn(suffix + 2, "abcdefghijklmnopqrstuvwxyz_"),
						 strlen(suffix) - 2);
			}
			for (unsigned j = 0; j < i; j++)
				assert_string_not_equal(suffix, c->planes[j].suffix);
			has_scales = has_scales || c->planes[i].unit == TSR_PER_GROUP;
			assert_int_equal(c->planes[i].unit == TSR_BIT_PACKED,
					 i == 1 ? c->extra_bits != 0 : c->code_bits != 0);
		}
		assert_int_equal(c->family != NULL, c->extra_bits != 0);
		assert_true(!c->stochastic || c->extra_bits);
		assert_int_equal(has_scales, c->grouped);
		assert_int_equal(has_scales, c->group != 0);
		assert_int_equal(has_scales, c->scales != 0);
		assert_true(!c->relative || c->kinds == TSR_KIND_MOMENTUM);
		/* A weight keeps its name, and is a model for any reader. */
		if (c->kinds & TSR_KIND_WEIGHT)
			assert_string_equal(c->planes[0].suffix, "");
	}
	assert_int_equal(n, 21 + 8 + 2 * (16 + 13 + 16 + 16) + 13);
	assert_null(tsr_codec_find(""));
	assert_null(tsr_codec_find("BF16"));
	assert_null(tsr_codec_find("bf16+ulp"));
}

static void test_table(void **state)
{
	(void)state;
	on_each_level(check_table);
}

static void test_levels_have_one_table(void **state)
{
	const struct tsr_codec *const *base;

	(void)state;
	assert_true(tsr_isa_select("base"));
	base = tsr_codecs();
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		if (!tsr_isa_select(*name))
			continue;
		assert_string_equal(tsr_isa_name(), *name);
		for (size_t i = 0; base[i]; i++) {
			const struct tsr_codec *a = base[i], *b = tsr_codecs()[i];

			assert_string_equal(a->name, b->name);
			assert_true((a->encode == b->encode) ==
				    (tsr_codecs() == base)); /* its own code */
			assert_int_equal(a->kinds, b->kinds);
			assert_int_equal(a->nplanes, b->nplanes);
			assert_int_equal(a->grouped, b->grouped);
			assert_int_equal(a->extra_bits, b->extra_bits);
			assert_int_equal(a->stochastic, b->stochastic);
			for (unsigned j = 0; j < a->nplanes; j++) {
				assert_string_equal(a->planes[j].suffix, b->planes[j].suffix);
				assert_int_equal(a->planes[j].dtype, b->planes[j].dtype);
			}
		}
	}
	assert_true(tsr_isa_select(NULL));
}

static void test_unknown_level_changes_nothing(void **state)
{
	(void)state;
	assert_true(tsr_isa_select("base"));
	assert_false(tsr_isa_select("sse9"));
	assert_false(tsr_isa_select(""));
	assert_string_equal(tsr_isa_name(), "base");
	assert_true(tsr_isa_select(NULL));
}

static void test_names_of_kinds_and_scales(void **state)
{
	static const enum tsr_kind kinds[] = {
		TSR_KIND_OTHER,
		TSR_KIND_WEIGHT,
		TSR_KIND_MOMENTUM,
		TSR_KIND_VARIANCE,
	};
	static const char *const kind_names[] = { "other", "weight", "momentum", "variance" };
	static const char *const scale_names[] = { "e8m8", "f16", "f32", "f28", "e5m3" };
	static const enum tsr_dtype scale_dtypes[] = { TSR_U16, TSR_F16, TSR_F32, TSR_U32, TSR_U8 };
	enum tsr_kind kind;
	enum tsr_scale scale;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(kinds); i++) {
		assert_string_equal(tsr_kind_name(kinds[i]), kind_names[i]);
		assert_true(tsr_kind_find(kind_names[i], &kind));
		assert_int_equal(kind, kinds[i]);
	}
	for (unsigned i = 0; i < TSR_SCALE_COUNT; i++) {
		assert_string_equal(tsr_scale_name((enum tsr_scale)i), scale_names[i]);
		assert_int_equal(tsr_scale_dtype((enum tsr_scale)i), scale_dtypes[i]);
		assert_true(tsr_scale_find(scale_names[i], &scale));
		assert_int_equal(scale, i);
	}
	assert_false(tsr_kind_find("weights", &kind));
	assert_false(tsr_scale_find("E8M8", &scale));
	assert_false(tsr_scale_find("", &scale));
}

/* --- What comes back ------------------------------------------------------------------------ */

/* No finite group decodes to infinity or NaN, and a zero to anything else. */
static void check_edges(const struct tsr_coding *coding)
{
	const size_t n = 1009;
	float *x = malloc(n * sizeof(*x));
	char which[200];

	assert_non_null(x);
	for (unsigned data = 0; data < DATA_COUNT && coding->scale != TSR_SCALE_F16; data++) {
		struct coded r;

		if (!is_finite_data((enum data)data))
			continue;
		fill(x, n, (enum data)data, data);
		if (coding->codec->kinds == TSR_KIND_VARIANCE)
			drop_signs(x, n);
		x[0] = 0.0f;
		x[500] = data == DATA_HUGE ? float_of(0x7f7fffff) : float_of(0x00000001);
		x[n - 1] = -0.0f;
		coded_new(&r, coding, x, n);
		describe(which, coding, tsr_isa_name(), n, data);
		for (size_t i = 0; i < n && coding->codec->grouped; i++) {
			if (!is_finite_bits(bits_of(decoded_of(&r)[i])))
				fail_msg("%s: %a comes back as %a", which, (double)x[i],
					 (double)decoded_of(&r)[i]);
		}
		for (size_t i = 0; i < n && !coding->codec->no_zero; i++) {
			if (x[i] == 0.0f && decoded_of(&r)[i] != 0.0f)
				fail_msg("%s: 0 comes back as %a", which,
					 (double)decoded_of(&r)[i]);
		}
		coded_free(&r, coding);
	}
	free(x);
}

static void test_edges_of_the_range(void **state)
{
	(void)state;
	for_each_codec(check_edges);
}

static void check_lossless(const struct tsr_coding *coding)
{
	const size_t n = 50021;
	const bool exact16 = strcmp(coding->codec->name, "bf16+exact16") == 0;
	float *x = malloc(n * sizeof(*x));
	struct coded r;

	assert_non_null(x);
	fill(x, n, DATA_SPECIAL, 7);
	coded_new(&r, coding, x, n);
	for (size_t i = 0; i < n; i++) {
		const uint32_t was = bits_of(x[i]), is = bits_of(decoded_of(&r)[i]);

		if (exact16 && is_nan_bits(was))
			assert_true(is_nan_bits(is) && was >> 31 == is >> 31);
		else if (exact16 || strcmp(coding->codec->name, "f32") == 0)
			assert_int_equal(was, is);
		else if (!coding->codec->grouped && is_nan_bits(was))
			assert_true(is_nan_bits(is) && was >> 31 == is >> 31);
		else if (!coding->codec->grouped && (was & 0x7fffffff) == 0)
			assert_int_equal(was, is);
	}
	coded_free(&r, coding);
	free(x);
}

/* Zeros keep their sign and NaN stays NaN in every split; two codecs lose nothing at all. */
static void test_what_splits_keep(void **state)
{
	(void)state;
	for_each_codec(check_lossless);
}

/* A wrong row of the table would still agree with itself on every level. */
static void test_known_planes(void **state)
{
	static const float x[4] = { 1.0f, -0x1.00ff02p-3f, 0x1.8p-130f, 70000.0f };
	static const struct {
		const char *codec;
		uint16_t narrow[4];
		int32_t second[4];
	} rows[] = {
		/* The second is 0xbe007f81: 0x7f81 of 0x8000 to the next BF16, 0x7f off an FP16. */
		{ "bf16+ulp8", { 0x3f80, 0xbe00, 0x000c, 0x4789 }, { 0, -127, 0, -71 } },
		{ "bf16+ulp16", { 0x3f80, 0xbe00, 0x000c, 0x4789 }, { 0, -32640, 0, -18431 } },
		{ "bf16+exact16", { 0x3f80, 0xbe00, 0x000c, 0x4789 }, { 0, 0x7f81, 0, -0x4800 } },
		{ "fp16+ulp8", { 0x3c00, 0xb004, 0x0000, 0x7c00 }, { 0, 4, 0, 0 } },
		{ "fp16+ulp16", { 0x3c00, 0xb004, 0x0000, 0x7c00 }, { 0, 1016, 0, 0 } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct tsr_coding coding = coding_of(rows[i].codec, TSR_SCALE_E8M8, 1);
		struct coded r;

		coded_new(&r, &coding, x, 4);
		for (size_t j = 0; j < 4; j++) {
			int16_t wide;
			uint16_t narrow;
			int32_t second;

			memcpy(&narrow, r.plane[0].bytes + 2 * j, 2);
			memcpy(&wide, r.plane[1].bytes + (r.plane[1].nbytes == 8 ? 2 * j : 0), 2);
			second = r.plane[1].nbytes == 8 ? wide
							: ((const int8_t *)r.plane[1].bytes)[j];
			if (narrow != rows[i].narrow[j] || second != rows[i].second[j])
				fail_msg("%s: element %zu: got %04x and %d, want %04x and %d",
					 rows[i].codec, j, narrow, second, rows[i].narrow[j],
					 rows[i].second[j]);
		}
		coded_free(&r, &coding);
	}
}

/* --- Reports -------------------------------------------------------------------------------- */

static void check_reports(void)
{
	/* Groups of 2: zero; below what FP16 stores; its least scale; its largest; beyond. */
	static const float x[10] = {
		0.0f, -0.0f, 0x1p-25f, 0.0f, 0x1.000002p-25f, 0.0f, 65519.0f, 1.0f, 65520.0f, 1.0f,
	};
	static const float edge[4] = { 0x1.fefffep127f, 0x1.ffp127f, -0x1.fffffep127f, 1.0f };
	const struct tsr_coding f16 = coding_of("softsign8", TSR_SCALE_F16, 2);
	const struct tsr_coding e8m8 = coding_of("softsign8", TSR_SCALE_E8M8, 2);
	const struct tsr_coding exact = coding_of("bf16+exact16", TSR_SCALE_E8M8, 1);
	struct coded r;

	coded_new(&r, &f16, x, COUNT_OF(x));
	assert_int_equal(r.report.scale_underflow, 1);
	assert_int_equal(r.report.scale_overflow, 1);
	coded_free(&r, &f16);
	coded_new(&r, &e8m8, x, COUNT_OF(x));
	assert_int_equal(r.report.scale_underflow, 0);
	assert_int_equal(r.report.scale_overflow, 0);
	coded_free(&r, &e8m8);
	coded_new(&r, &exact, edge, COUNT_OF(edge));
	assert_int_equal(r.report.narrow_overflow, 2);
	coded_free(&r, &exact);
}

static void test_reports_count_what_was_noticed(void **state)
{
	(void)state;
	on_each_level(check_reports);
}

/* Infinity has an infinite narrow weight by right; what overflowed was finite. */
static void test_report_of_infinity_is_no_overflow(void **state)
{
	static const uint32_t bits[] = { 0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff,
					 0x7f7f7fff };
	const struct tsr_coding exact = coding_of("bf16+exact16", TSR_SCALE_E8M8, 1);
	float x[COUNT_OF(bits)];
	struct coded r;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bits); i++)
		x[i] = float_of(bits[i]);
	coded_new(&r, &exact, x, COUNT_OF(x));
	assert_int_equal(r.report.narrow_overflow, 0);
	coded_free(&r, &exact);
}

/* The table's word on it, for every codec: finite values of all sizes, and infinities. */
static void test_lossless_codecs_give_every_bit_back(void **state)
{
	enum { N = 1 << 16 };
	float *x = calloc(N, sizeof(*x));
	uint64_t seed = 16;

	(void)state;
	assert_non_null(x);
	for (size_t i = 0; i < N; i++) {
		const uint32_t bits = random_u32(&seed);

		x[i] = float_of((bits & 0x7f800000u) == 0x7f800000u ? bits & 0xff800000u : bits);
	}
	for (unsigned c = 0; tsr_codecs()[c]; c++) {
		const struct tsr_coding coding = tsr_coding_default(tsr_codecs()[c]);
		struct coded r;

		coded_new(&r, &coding, x, N);
		assert_int_equal(memcmp(decoded_of(&r), x, N * sizeof(*x)) == 0,
				 coding.codec->lossless);
		coded_free(&r, &coding);
	}
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_levels_have_one_table),
		cmocka_unit_test(test_unknown_level_changes_nothing),
		cmocka_unit_test(test_names_of_kinds_and_scales),
		cmocka_unit_test(test_plane_sizes),
		cmocka_unit_test(test_bytes_per_element),
		cmocka_unit_test(test_known_planes),
		cmocka_unit_test(test_edges_of_the_range),
		cmocka_unit_test(test_what_splits_keep),
		cmocka_unit_test(test_reports_count_what_was_noticed),
		cmocka_unit_test(test_report_of_infinity_is_no_overflow),
		cmocka_unit_test(test_lossless_codecs_give_every_bit_back),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
