/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the codec table promises of every codec: the same bits on every SIMD level, in pieces and at
 * any alignment, inside its planes, and planes of the size that it tells.
 */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tersor/codec.h"
#include "unit.h"

#define GUARD_BYTE 0xa5

/* --- Arrays that end at a page that cannot be touched ------------------------------------------ */

struct guarded {
	unsigned char *map;
	size_t map_nbytes;
	unsigned char *bytes;	/* @nbytes that end at the guard page */
	size_t nbytes;
};

static void guarded_new(struct guarded *g, size_t nbytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	g->nbytes = nbytes;
	g->map_nbytes = (nbytes + page - 1) / page * page + 2 * page;
	g->map = mmap(NULL, g->map_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(g->map != MAP_FAILED);
	assert_int_equal(mprotect(g->map, page, PROT_NONE), 0);
	assert_int_equal(mprotect(g->map + g->map_nbytes - page, page, PROT_NONE), 0);
	g->bytes = g->map + g->map_nbytes - page - nbytes;
	memset(g->map + page, GUARD_BYTE, g->map_nbytes - 2 * page);
}

/* What lies before the array is as it was; behind it, a write would have been a fault. */
static void guarded_check(const struct guarded *g)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (const unsigned char *b = g->map + page; b < g->bytes; b++) {
		if (*b != GUARD_BYTE)
			fail_msg("%zu bytes before an array were written to", (size_t)(g->bytes - b));
	}
}

static void guarded_free(struct guarded *g)
{
	assert_int_equal(munmap(g->map, g->map_nbytes), 0);
}

/* --- Values ----------------------------------------------------------------------------------- */

static const uint32_t specials[] = {
	0x00000000, 0x00000001, 0x00000002, 0x00007fff, 0x00008000, 0x00008001, 0x0000ffff,
	0x007fffff, 0x00800000, 0x00800001, 0x007f8000, 0x01000000, 0x01002041,
	0x20000000, 0x21ffffff, 0x22000000,		/* 2^-63, up to 2^-59 */
	0x2b8cbccc, 0x2b8cbccd,				/* 1e-12 */
	0x33000000, 0x33000001, 0x33800000,		/* 2^-25 and 2^-24: where FP16 begins */
	0x387fc000, 0x387fe000, 0x387fffff, 0x38800000,	/* the least normal FP16 */
	0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f804000, 0x3f808000, 0x3f818000, 0x3f80ffff,
	0x477fe000, 0x477fefff, 0x477ff000, 0x47800000,	/* 65504, 65520 */
	0x5f7fffff, 0x5f800000,				/* 2^64 */
	0x7b7fffff, 0x7b800000,				/* 2^120 */
	0x7f7f0000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,
	0x7f800000, 0x7f800001, 0x7f808000, 0x7f810000, 0x7fbfffff, 0x7fc00000, 0x7fff8000, 0x7fffffff,
};

enum data {
	DATA_SPECIAL,		/* half of them special, of either sign */
	DATA_FINITE,		/* random finite patterns */
	DATA_WEIGHTS,		/* as a training run has them, of either sign */
	DATA_TINY,		/* groups of subnormals */
	DATA_HUGE,		/* up to FLT_MAX */
	DATA_ZERO,
	DATA_COUNT
};

static float draw(enum data data, uint64_t *seed)
{
	const uint32_t r = random_u32(seed);
	uint32_t bits = random_u32(seed);

	switch (data) {
	case DATA_SPECIAL:
		return float_of(r & 1 ? specials[(r >> 2) % COUNT_OF(specials)] | (r & 2) << 30 : bits);
	case DATA_FINITE:
		return float_of(is_finite_bits(bits) ? bits : bits & 0xbfffffffu);
	case DATA_WEIGHTS:
		return (float)((double)(int32_t)bits * 0x1p-36) * float_of((r % 24 + 108) << 23);
	case DATA_TINY:
		return float_of(bits & 0x80ffffffu);
	case DATA_HUGE:
		return float_of(r & 7 ? (bits & 0x80ffffffu) | 0x7e000000u : (bits & 0x800000ffu) | 0x7f7fff00u);
	case DATA_ZERO:
	case DATA_COUNT:
		break;
	}
	return float_of(bits & 0x80000000u);
}

static void fill(float *x, size_t n, enum data data, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		x[i] = draw(data, &seed);
}

/* The magnitudes, for the codecs of variances. */
static void drop_signs(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = float_of(bits_of(x[i]) & 0x7fffffffu);
}

static bool is_finite_data(enum data data)
{
	return data != DATA_SPECIAL;
}

/* --- Walking the table ------------------------------------------------------------------------- */

static const uint32_t groups[] = { 1, 2, 7, 31, 32, 33, 64, 1000, 65536 };

/* Calls check(coding, ctx) with every scale format and group size that mean something. */
static void for_each_coding(const struct tsr_codec *codec,
			    void (*check)(const struct tsr_coding *coding))
{
	struct tsr_coding coding = { .codec = codec, .scale = TSR_SCALE_E8M8, .group = 1 };

	if (!codec->grouped) {
		check(&coding);
		return;
	}
	for (unsigned scale = 0; scale < TSR_SCALE_COUNT; scale++) {
		for (size_t i = 0; i < COUNT_OF(groups); i++) {
			coding.scale = (enum tsr_scale)scale;
			coding.group = groups[i];
			check(&coding);
		}
	}
}

static void for_each_codec(void (*check)(const struct tsr_coding *coding))
{
	assert_true(tsr_isa_select(NULL));
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++)
		for_each_coding(*c, check);
	assert_true(tsr_isa_select(NULL));
}

/* The outcome of one encoding, in guarded arrays of exactly the size that is needed. */
struct coded {
	struct guarded plane[TSR_PLANES_MAX];
	struct guarded decoded;
	struct tsr_encode_report report;
};

static void coded_new(struct coded *r, const struct tsr_coding *coding, const float *x, size_t n)
{
	void *out[TSR_PLANES_MAX] = { NULL };
	const void *in[TSR_PLANES_MAX] = { NULL };

	r->report = (struct tsr_encode_report){ 0 };
	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		guarded_new(&r->plane[i], (size_t)tsr_plane_nbytes(coding, i, n));
		in[i] = out[i] = r->plane[i].bytes;
	}
	guarded_new(&r->decoded, n * sizeof(float));
	coding->codec->encode(coding, x, n, out, &r->report);
	coding->codec->decode(coding, in, n, (float *)(void *)r->decoded.bytes);
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		guarded_check(&r->plane[i]);
	guarded_check(&r->decoded);
}

static void coded_free(struct coded *r, const struct tsr_coding *coding)
{
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		guarded_free(&r->plane[i]);
	guarded_free(&r->decoded);
}

static const float *decoded_of(const struct coded *r)
{
	return (const float *)(const void *)r->decoded.bytes;
}

static void describe(char text[200], const struct tsr_coding *coding, size_t n, unsigned data)
{
	snprintf(text, 200, "%s on %s, scale %s, group %u, %zu elements, data %u", coding->codec->name,
		 tsr_isa_name(), tsr_scale_name(coding->scale), coding->group, n, data);
}

static void expect_same(const struct guarded *a, const struct guarded *b, const char *what,
			const char *which)
{
	assert_int_equal(a->nbytes, b->nbytes);
	for (size_t i = 0; i < a->nbytes; i++) {
		if (a->bytes[i] != b->bytes[i])
			fail_msg("%s: %s: byte %zu of %zu is %02x and %02x", which, what, i, a->nbytes,
				 a->bytes[i], b->bytes[i]);
	}
}

static void expect_same_report(const struct tsr_encode_report *a, const struct tsr_encode_report *b,
			       const char *which)
{
	if (a->scale_underflow != b->scale_underflow || a->scale_overflow != b->scale_overflow ||
	    a->narrow_overflow != b->narrow_overflow)
		fail_msg("%s: reports differ", which);
}

/* --- The same bits on every SIMD level ---------------------------------------------------------- */

static void compare_levels(const struct tsr_coding *coding, size_t n, enum data data)
{
	struct tsr_coding other = *coding;
	struct coded base, level;
	struct guarded x;
	char which[200];

	guarded_new(&x, n * sizeof(float));
	fill((float *)(void *)x.bytes, n, data, n + data * 1000003u);
	if (coding->codec->kinds == TSR_KIND_VARIANCE && n % 3)
		drop_signs((float *)(void *)x.bytes, n);
	assert_true(tsr_isa_select("base"));
	other.codec = tsr_codec_find(coding->codec->name);
	coded_new(&base, &other, (const float *)(const void *)x.bytes, n);
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		if (strcmp(*name, "base") == 0 || !tsr_isa_select(*name))
			continue;	/* this processor lacks it */
		other.codec = tsr_codec_find(coding->codec->name);
		coded_new(&level, &other, (const float *)(const void *)x.bytes, n);
		describe(which, &other, n, data);
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
	for (size_t n = 0; n <= 100; n++) {
		compare_levels(coding, n, DATA_SPECIAL);
		compare_levels(coding, n, (enum data)(1 + n % (DATA_COUNT - 1)));
	}
	for (unsigned data = 0; data < DATA_COUNT; data++) {
		compare_levels(coding, 4093, (enum data)data);
		compare_levels(coding, is_long_run() ? 1000003 : 20021, (enum data)data);
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
			plane[i].bytes[j] = (unsigned char)(random_u32(&seed) & 1 ? random_u32(&seed) : 0xff);
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
		describe(which, &other, n, 0);
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

/* Selects each level of this processor in turn, and the best one at the end. */
static void on_each_level(void (*check)(void))
{
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		if (tsr_isa_select(*name))
			check();
	}
	assert_true(tsr_isa_select(NULL));
}

static struct tsr_coding coding_of(const char *name, enum tsr_scale scale, uint32_t group)
{
	const struct tsr_coding coding = { tsr_codec_find(name), scale, group };

	assert_non_null(coding.codec);
	return coding;
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

/* --- Pieces and alignment ----------------------------------------------------------------------- */

/* Encode and decode [0, cut) and [cut, n) of arrays that start @shift elements into their memory. */
static void compare_cut(const struct tsr_coding *coding, const struct coded *whole, const float *x,
			size_t n, size_t cut, size_t shift)
{
	struct tsr_encode_report report = { 0 };
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
	coding->codec->encode(coding, x_copy + shift + cut, n - cut, second, &report);
	coding->codec->decode(coding, (const void *const *)first, cut, decoded + shift);
	coding->codec->decode(coding, (const void *const *)second, n - cut, decoded + shift + cut);
	describe(which, coding, n, (unsigned)cut);
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
		const size_t cut = random_u32(&seed) % (n / coding->group + 1) * coding->group;

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

/* --- Planes ------------------------------------------------------------------------------------- */

static void check_plane_sizes(const struct tsr_coding *coding)
{
	static const uint64_t lengths[] = { 0, 1, 31, 32, 33, 65535, 65536, 65537, UINT64_C(1) << 48 };

	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const bool shared = coding->codec->planes[i].unit == TSR_PER_GROUP;
		const uint64_t size = tsr_dtype_bits(tsr_plane_dtype(coding, i)) / 8;

		assert_true(size == 1 || size == 2 || size == 4);
		for (size_t j = 0; j < COUNT_OF(lengths); j++) {
			const uint64_t n = lengths[j], group = coding->group;
			const uint64_t want = shared ? (n + group - 1) / group : n;

			assert_true(tsr_plane_count(coding, i, n) == want);
			assert_true(tsr_plane_nbytes(coding, i, n) == want * size);
		}
		if (shared) {
			assert_true(coding->codec->grouped);
			assert_int_equal(tsr_plane_dtype(coding, i), tsr_scale_dtype(coding->scale));
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
		{ "bf16+ulp8", TSR_SCALE_E8M8, 1, 3 }, { "bf16+ulp16", TSR_SCALE_E8M8, 1, 4 },
		{ "fp16+ulp8", TSR_SCALE_E8M8, 1, 3 }, { "fp16+ulp16", TSR_SCALE_E8M8, 1, 4 },
		{ "bf16", TSR_SCALE_E8M8, 1, 2 }, { "fp16", TSR_SCALE_E8M8, 1, 2 },
		{ "bf16+bf16", TSR_SCALE_E8M8, 1, 4 }, { "fp16+fp16", TSR_SCALE_E8M8, 1, 4 },
		{ "bf16+exact16", TSR_SCALE_E8M8, 1, 4 }, { "f32", TSR_SCALE_E8M8, 1, 4 },
		{ "softsign8", TSR_SCALE_E8M8, 32, 1.0625 }, { "sqrt8", TSR_SCALE_F16, 32, 1.0625 },
		{ "linear8", TSR_SCALE_F32, 32, 1.125 }, { "ulinear8", TSR_SCALE_F32, 1, 5 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct tsr_coding coding = coding_of(rows[i].codec, rows[i].scale, rows[i].group);

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

		assert_true(c->name && *c->name && c->summary && *c->summary && c->source && *c->source);
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
		}
		assert_int_equal(has_scales, c->grouped);
		/* A weight keeps its name, and is a model for any reader. */
		if (c->kinds & TSR_KIND_WEIGHT)
			assert_string_equal(c->planes[0].suffix, "");
	}
	assert_int_equal(n, 14);
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
			assert_int_equal(a->kinds, b->kinds);
			assert_int_equal(a->nplanes, b->nplanes);
			assert_int_equal(a->grouped, b->grouped);
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
		TSR_KIND_OTHER, TSR_KIND_WEIGHT, TSR_KIND_MOMENTUM, TSR_KIND_VARIANCE,
	};
	static const char *const kind_names[] = { "other", "weight", "momentum", "variance" };
	static const char *const scale_names[] = { "e8m8", "f16", "f32" };
	static const enum tsr_dtype scale_dtypes[] = { TSR_U16, TSR_F16, TSR_F32 };
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

/* --- What comes back ----------------------------------------------------------------------------- */

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
		describe(which, coding, n, data);
		for (size_t i = 0; i < n && coding->codec->grouped; i++) {
			if (!is_finite_bits(bits_of(decoded_of(&r)[i])))
				fail_msg("%s: %a comes back as %a", which, (double)x[i],
					 (double)decoded_of(&r)[i]);
		}
		for (size_t i = 0; i < n; i++) {
			if (x[i] == 0.0f && decoded_of(&r)[i] != 0.0f)
				fail_msg("%s: 0 comes back as %a", which, (double)decoded_of(&r)[i]);
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
		/* The second is 0xbe007f81: 0x7f81 of 0x8000 towards the next BF16, 0x7f past an FP16. */
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
			second = r.plane[1].nbytes == 8 ? wide : ((const int8_t *)r.plane[1].bytes)[j];
			if (narrow != rows[i].narrow[j] || second != rows[i].second[j])
				fail_msg("%s: element %zu: got %04x and %d, want %04x and %d",
					 rows[i].codec, j, narrow, second, rows[i].narrow[j],
					 rows[i].second[j]);
		}
		coded_free(&r, &coding);
	}
}

/* --- Reports -------------------------------------------------------------------------------------- */

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
	static const uint32_t bits[] = { 0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff, 0x7f7f7fff };
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
		cmocka_unit_test(test_levels_agree),
		cmocka_unit_test(test_levels_agree_on_any_planes),
		cmocka_unit_test(test_contraction_on_every_level),
		cmocka_unit_test(test_pieces_equal_the_whole),
		cmocka_unit_test(test_edges_of_the_range),
		cmocka_unit_test(test_what_splits_keep),
		cmocka_unit_test(test_reports_count_what_was_noticed),
		cmocka_unit_test(test_report_of_infinity_is_no_overflow),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
