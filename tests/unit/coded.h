/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_CODED_H
#define TSR_TESTS_CODED_H

/* Encoding and decoding of made-up values in arrays that end at a page that cannot be touched. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/isa.h"
#include "tersor/codec.h"
#include "unit.h"

#define GUARD_BYTE 0xa5

/* --- Guarded arrays ------------------------------------------------------------------------- */

struct guarded {
	unsigned char *map;
	size_t map_nbytes;
	unsigned char *bytes; /* @nbytes that end at the guard page */
	size_t nbytes;
};

/* Mappings that were given back: there are many of few sizes, and making one is slow. */
static struct guarded spare_guarded[8];

static inline void guarded_map(struct guarded *g, size_t page)
{
	for (size_t i = 0; i < COUNT_OF(spare_guarded); i++) {
		if (spare_guarded[i].map && spare_guarded[i].map_nbytes == g->map_nbytes) {
			g->map = spare_guarded[i].map;
			spare_guarded[i].map = NULL;
			return;
		}
	}
	g->map = mmap(NULL, g->map_nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	assert_true(g->map != MAP_FAILED);
	assert_int_equal(mprotect(g->map, page, PROT_NONE), 0);
	assert_int_equal(mprotect(g->map + g->map_nbytes - page, page, PROT_NONE), 0);
}

static inline void guarded_new(struct guarded *g, size_t nbytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	g->nbytes = nbytes;
	g->map_nbytes = (nbytes + page - 1) / page * page + 2 * page;
	guarded_map(g, page);
	g->bytes = g->map + g->map_nbytes - page - nbytes;
	memset(g->map + page, GUARD_BYTE, g->map_nbytes - 2 * page);
}

/* What lies before the array is as it was; behind it, a write would have been a fault. */
static inline void guarded_check(const struct guarded *g)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (const unsigned char *b = g->map + page; b < g->bytes; b++) {
		if (*b != GUARD_BYTE)
			fail_msg("%zu bytes before an array were written to",
				 (size_t)(g->bytes - b));
	}
}

static inline void guarded_free(struct guarded *g)
{
	static size_t oldest;
	size_t i = 0;

	while (i < COUNT_OF(spare_guarded) && spare_guarded[i].map)
		i++;
	if (i == COUNT_OF(spare_guarded)) {
		i = oldest++ % COUNT_OF(spare_guarded);
		assert_int_equal(munmap(spare_guarded[i].map, spare_guarded[i].map_nbytes), 0);
	}
	spare_guarded[i] = *g;
}

/* --- Values --------------------------------------------------------------------------------- */

static const uint32_t specials[] = {
	0x00000000, 0x00000001, 0x00000002, 0x00007fff, 0x00008000, 0x00008001,
	0x0000ffff, 0x007fffff, 0x00800000, 0x00800001, 0x007f8000, 0x01000000,
	0x01002041, 0x20000000, 0x21ffffff, 0x22000000, /* 2^-63, up to 2^-59 */
	0x2b8cbccc, 0x2b8cbccd, /* 1e-12 */
	0x33000000, 0x33000001, 0x33800000, /* 2^-25 and 2^-24: where FP16 begins */
	0x387fc000, 0x387fe000, 0x387fffff, 0x38800000, /* the least normal FP16 */
	0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f804000, 0x3f808000,
	0x3f818000, 0x3f80ffff, 0x477fe000, 0x477fefff, 0x477ff000, 0x47800000, /* 65504, 65520 */
	0x5f7fffff, 0x5f800000, /* 2^64 */
	0x7b7fffff, 0x7b800000, /* 2^120 */
	0x7f7f0000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7f800001,
	0x7f808000, 0x7f810000, 0x7fbfffff, 0x7fc00000, 0x7fff8000, 0x7fffffff,
};

enum data {
	DATA_SPECIAL, /* half of them special, of either sign */
	DATA_FINITE, /* random finite patterns */
	DATA_WEIGHTS, /* as a training run has them, of either sign */
	DATA_TINY, /* groups of subnormals */
	DATA_HUGE, /* up to FLT_MAX */
	DATA_ZERO,
	DATA_COUNT
};

static inline float draw(enum data data, uint64_t *seed)
{
	const uint32_t r = random_u32(seed);
	uint32_t bits = random_u32(seed);

	switch (data) {
	case DATA_SPECIAL:
		return float_of(r & 1 ? specials[(r >> 2) % COUNT_OF(specials)] | (r & 2) << 30
				      : bits);
	case DATA_FINITE:
		return float_of(is_finite_bits(bits) ? bits : bits & 0xbfffffffu);
	case DATA_WEIGHTS:
		return (float)((double)(int32_t)bits * 0x1p-36) * float_of((r % 24 + 108) << 23);
	case DATA_TINY:
		return float_of(bits & 0x80ffffffu);
	case DATA_HUGE:
		return float_of(r & 7 ? (bits & 0x80ffffffu) | 0x7e000000u
				      : (bits & 0x800000ffu) | 0x7f7fff00u);
	case DATA_ZERO:
	case DATA_COUNT:
		break;
	}
	return float_of(bits & 0x80000000u);
}

static inline void fill(float *x, size_t n, enum data data, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		x[i] = draw(data, &seed);
}

/* The magnitudes, for the codecs of variances. */
static inline void drop_signs(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = float_of(bits_of(x[i]) & 0x7fffffffu);
}

static inline bool is_finite_data(enum data data)
{
	return data != DATA_SPECIAL;
}

/* --- Walking the table ---------------------------------------------------------------------- */

static const uint32_t groups[] = { 1, 2, 7, 31, 32, 33, 64, 1000, 65536 };

/* Calls check(coding) with every scale format, group size and kind that mean something. */
static inline void for_each_coding(const struct tsr_codec *codec,
				   void (*check)(const struct tsr_coding *coding))
{
	struct tsr_coding coding = { .codec = codec, .scale = TSR_SCALE_E8M8, .group = 1 };

	if (!codec->grouped) {
		check(&coding);
		return;
	}
	for (unsigned kind = TSR_KIND_MOMENTUM; kind <= TSR_KIND_VARIANCE; kind *= 2) {
		for (unsigned scale = 0; scale < TSR_SCALE_COUNT && codec->kinds & kind; scale++) {
			for (size_t i = 0; i < COUNT_OF(groups); i++) {
				coding.kind = (enum tsr_kind)kind;
				coding.scale = (enum tsr_scale)scale;
				coding.group =
					tsr_coding_with(codec, coding.scale, groups[i]).group;
				if (tsr_codec_has_scale(codec, coding.scale))
					check(&coding);
			}
		}
	}
}

static inline void for_each_codec(void (*check)(const struct tsr_coding *coding))
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

static inline void coded_new(struct coded *r, const struct tsr_coding *coding, const float *x,
			     size_t n)
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

static inline void coded_free(struct coded *r, const struct tsr_coding *coding)
{
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		guarded_free(&r->plane[i]);
	guarded_free(&r->decoded);
}

static inline const float *decoded_of(const struct coded *r)
{
	return (const float *)(const void *)r->decoded.bytes;
}

static inline void describe(char text[200], const struct tsr_coding *coding, const char *level,
			    size_t n, unsigned data)
{
	snprintf(text, 200, "%s on %s, scale %s, group %u, %zu elements, data %u",
		 coding->codec->name, level, tsr_scale_name(coding->scale), coding->group, n, data);
}

struct on_level {
	const char *level;
	const struct tsr_codec *codec;
};
#define LEVELS_MAX 8

/* The codec of a name on each level of this processor; the number of them.  Selecting takes long in a virtual machine. */
static inline UNUSED size_t find_on_levels(const char *name, struct on_level ret[LEVELS_MAX])
{
	size_t n = 0;

	for (const char *const *level = tsr_isa_names(); *level; level++) {
		if (!tsr_isa_select(*level))
			continue;
		assert_true(n < LEVELS_MAX);
		ret[n++] = (struct on_level){ *level, tsr_codec_find(name) };
	}
	assert_true(n && strcmp(ret[0].level, "base") == 0);
	assert_true(tsr_isa_select(NULL));
	return n;
}

/* Selects each level of this processor in turn, and the best one at the end. */
static inline void on_each_level(void (*check)(void))
{
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		if (tsr_isa_select(*name))
			check();
	}
	assert_true(tsr_isa_select(NULL));
}

static inline struct tsr_coding coding_of(const char *name, enum tsr_scale scale, uint32_t group)
{
	struct tsr_coding coding = { .codec = tsr_codec_find(name),
				     .scale = scale,
				     .group = group,
				     .eps = TSR_EPS_DEFAULT };

	assert_non_null(coding.codec);
	if (coding.codec->grouped && !tsr_codec_has_scale(coding.codec, scale))
		coding.scale = tsr_coding_default(coding.codec).scale;
	return coding;
}

#endif
