/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs by name, and what a coding makes of a tensor: planes and their sizes. */
#include "tersor/codec.h"

#include <math.h>
#include <string.h>

#include "io/hash.h"
#include "codec/loops.h"
#include "codec/measuring.h"

static const struct {
	enum tsr_kind kind;
	const char *name;
} kinds[] = {
	{ TSR_KIND_OTHER, "other" },
	{ TSR_KIND_WEIGHT, "weight" },
	{ TSR_KIND_MOMENTUM, "momentum" },
	{ TSR_KIND_VARIANCE, "variance" },
};

const char *tsr_kind_name(enum tsr_kind kind)
{
	size_t i = 0;

	while (kinds[i].kind != kind)
		i++;
	return kinds[i].name;
}

bool tsr_kind_find(const char *name, enum tsr_kind *kind_ret)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strcmp(kinds[i].name, name) == 0) {
			*kind_ret = kinds[i].kind;
			return true;
		}
	}
	return false;
}

static const struct {
	const char *name;
	enum tsr_dtype dtype;
} scales[TSR_SCALE_COUNT] = {
	[TSR_SCALE_E8M8] = { "e8m8", TSR_U16 }, [TSR_SCALE_F16] = { "f16", TSR_F16 },
	[TSR_SCALE_F32] = { "f32", TSR_F32 },	[TSR_SCALE_F28] = { "f28", TSR_U32 },
	[TSR_SCALE_E5M3] = { "e5m3", TSR_U8 },
};

const char *tsr_scale_name(enum tsr_scale scale)
{
	return scales[scale].name;
}

enum tsr_dtype tsr_scale_dtype(enum tsr_scale scale)
{
	return scales[scale].dtype;
}

bool tsr_scale_find(const char *name, enum tsr_scale *scale_ret)
{
	for (unsigned i = 0; i < TSR_SCALE_COUNT; i++) {
		if (strcmp(scales[i].name, name) == 0) {
			*scale_ret = (enum tsr_scale)i;
			return true;
		}
	}
	return false;
}

/* --- Tables, per SIMD level ----------------------------------------------------------------- */

const struct tsr_codec *const *tsr_codecs(void)
{
	static const struct tsr_codec *const *const tables[] = TSR_ISA_VARIANTS(codecs);

	return tables[tsr_isa_level()];
}

void tsr_measure_add(struct tsr_measure *m, const float *x, const float *y, size_t n)
{
	static tsr_measure_fn *const add[] = TSR_ISA_VARIANTS(measure_add);

	add[tsr_isa_level()](m, x, y, n);
}

void tsr_update_measure_add(struct tsr_update_measure *u, const struct tsr_moments *before,
			    const struct tsr_moments *after, size_t n, float eps)
{
	static tsr_update_measure_fn *const add[] = TSR_ISA_VARIANTS(update_measure_add);

	add[tsr_isa_level()](u, before, after, n, eps);
}

static void add_products(float *x, const float *products, float sign, size_t n)
{
	static tsr_add_products_fn *const add[] = TSR_ISA_VARIANTS(add_products);

	add[tsr_isa_level()](x, products, sign, n);
}

void tsr_ratios_make(const struct tsr_coding *coding, float *x, const float *variance, size_t n)
{
	static tsr_ratio_fn *const make[] = TSR_ISA_VARIANTS(ratio_make);

	if (coding->codec->rank)
		add_products(x, variance, -1, n);
	if (coding->codec->relative)
		make[tsr_isa_level()](x, variance, TSR_RATIO_VARIANCES, coding->eps, n);
}

void tsr_ratios_undo(const struct tsr_coding *coding, float *x, const float *variance, size_t n)
{
	static tsr_ratio_fn *const undo[] = TSR_ISA_VARIANTS(ratio_undo);

	if (coding->codec->rank)
		add_products(x, variance, 1, n);
	if (coding->codec->relative)
		undo[tsr_isa_level()](x, variance, TSR_RATIO_VARIANCES, coding->eps, n);
}

/* --- Lookups ------------------------------------------------------------------------------- */

const struct tsr_codec *tsr_codec_find(const char *name)
{
	static const struct tsr_codec *const *const learned[] = TSR_ISA_VARIANTS(learned_codecs);

	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (strcmp((*c)->name, name) == 0)
			return *c;
	}
	for (const struct tsr_codec *const *c = learned[tsr_isa_level()]; *c; c++) {
		if (strcmp((*c)->name, name) == 0)
			return *c;
	}
	return NULL;
}

struct tsr_coding tsr_coding_default(const struct tsr_codec *codec)
{
	return tsr_coding_with(codec, TSR_SCALE_COUNT, 0);
}

struct tsr_coding tsr_coding_with(const struct tsr_codec *codec, enum tsr_scale scale,
				  uint32_t group)
{
	struct tsr_coding coding = { .codec = codec, .scale = TSR_SCALE_E8M8, .group = 1 };

	tsr_coding_use_eps(&coding, TSR_EPS_DEFAULT);
	for (unsigned kind = TSR_KIND_VARIANCE; kind; kind /= 2)
		coding.kind = codec->kinds & kind ? (enum tsr_kind)kind : coding.kind;
	if (!codec->grouped)
		return coding;
	coding.group = group ? group : codec->group;
	if (codec->code_bits)
		coding.group = (coding.group + TSR_BIT_PACKED_SHARE - 1) / TSR_BIT_PACKED_SHARE *
			       TSR_BIT_PACKED_SHARE;
	while (!tsr_codec_has_scale(codec, coding.scale))
		coding.scale++;
	if (tsr_codec_has_scale(codec, scale))
		coding.scale = scale;
	return coding;
}

void tsr_coding_use_eps(struct tsr_coding *coding, float eps)
{
	if (coding->codec && coding->codec->relative)
		coding->eps = copysignf(eps, coding->codec->no_zero ? -1.0f : 1.0f);
}

bool tsr_coding_is_unsigned(const struct tsr_coding *coding)
{
	const struct tsr_codec *c = coding->codec;

	return c->grouped &&
	       (c->kinds == TSR_KIND_VARIANCE ||
		(c->planes[0].dtype == TSR_U8 && c->flat && coding->kind == TSR_KIND_VARIANCE));
}

uint32_t tsr_coding_row(const struct tsr_coding *coding, unsigned rank, const uint64_t *shape)
{
	const uint64_t row = rank < 2 ? 0 : shape[rank - 1];

	if (coding->codec && coding->codec->rank)
		return tsr_coding_share(coding, rank, shape) ? (uint32_t)row : 0;
	if (!coding->codec || !coding->codec->grouped || coding->codec->learned ||
	    coding->codec->flat || coding->scale == TSR_SCALE_F16)
		return 0;
	return row > coding->group && row <= TSR_ROW_MAX && row % coding->group ? (uint32_t)row : 0;
}

uint32_t tsr_coding_share(const struct tsr_coding *coding, unsigned rank, const uint64_t *shape)
{
	uint64_t share; /* of a stage */

	if (!coding->codec || !coding->codec->rank || rank != 2 || !shape[0] ||
	    shape[1] < coding->group || shape[1] > TSR_ROW_MAX)
		return 0;
	share = TSR_FACTOR_NBYTES + TSR_FACTOR_NBYTES * shape[1] / shape[0];
	share += TSR_FACTOR_NBYTES * shape[1] % shape[0] != 0;
	return share * 16 <= shape[1] * 3 ? (uint32_t)share * tsr_factor_stages(coding) : 0;
}

uint32_t tsr_coding_group(const struct tsr_coding *coding)
{
	const uint32_t ngroups = coding->row / coding->group;

	return ngroups ? (coding->row + ngroups - 1) / ngroups : coding->group;
}

uint32_t tsr_coding_row_groups(const struct tsr_coding *coding)
{
	const uint32_t group = tsr_coding_group(coding);

	return (coding->row + group - 1) / group;
}

/* Whether codes stand for the same entries. */
static bool has_same_codebook(const struct tsr_coding *a, const struct tsr_coding *b)
{
	return !a->codec->has_codebook || a->codebook == b->codebook ||
	       memcmp(a->codebook, b->codebook, 256 * sizeof(*a->codebook)) == 0;
}

bool tsr_coding_is_same(const struct tsr_coding *a, const struct tsr_coding *b)
{
	return a->codec == b->codec && has_same_codebook(a, b) &&
	       (!a->codec->grouped ||
		(a->scale == b->scale && a->group == b->group && a->row == b->row &&
		 tsr_coding_is_unsigned(a) == tsr_coding_is_unsigned(b))) &&
	       (!a->codec->relative || a->eps == b->eps);
}

uint32_t tsr_coding_align(const struct tsr_coding *coding)
{
	const struct tsr_codec *c = coding->codec;

	for (unsigned i = 0; i < c->nplanes; i++) {
		if (c->planes[i].unit == TSR_BIT_PACKED && !c->grouped)
			return TSR_BIT_PACKED_SHARE;
	}
	return coding->row ? coding->row : coding->group;
}

uint64_t tsr_coding_stream(const char *name)
{
	return tsr_hash(name, strlen(name), 0);
}

enum tsr_dtype tsr_plane_dtype(const struct tsr_coding *coding, unsigned plane)
{
	const struct tsr_plane_desc *p = &coding->codec->planes[plane];

	return p->unit == TSR_PER_GROUP ? tsr_scale_dtype(coding->scale) : p->dtype;
}

/* Scales of the first @n elements. */
static uint64_t count_groups(const struct tsr_coding *coding, uint64_t n)
{
	const uint32_t group = tsr_coding_group(coding);
	const uint64_t rest = coding->row ? n % coding->row : n;
	const uint64_t before = coding->row ? n / coding->row * tsr_coding_row_groups(coding) : 0;

	return before + rest / group + (rest % group != 0);
}

uint64_t tsr_plane_count(const struct tsr_coding *coding, unsigned plane, uint64_t n)
{
	const struct tsr_plane_desc *p = &coding->codec->planes[plane];
	switch (p->unit) {
	case TSR_PER_ELEMENT:
		return n;
	case TSR_PER_GROUP:
	case TSR_PER_GROUP_TOO:
		return count_groups(coding, n);
	case TSR_BIT_PACKED:
		return (n / TSR_BIT_PACKED_SHARE + (n % TSR_BIT_PACKED_SHARE != 0)) *
		       tsr_packed_bits(coding->codec);
	case TSR_PER_ROW:
		return coding->row ? n / coding->row * coding->share : 0;
	}
	return 0;
}

uint64_t tsr_plane_nbytes(const struct tsr_coding *coding, unsigned plane, uint64_t n)
{
	return (tsr_plane_count(coding, plane, n) * tsr_dtype_bits(tsr_plane_dtype(coding, plane)) +
		7) /
	       8;
}

double tsr_coding_bytes_per_element(const struct tsr_coding *coding)
{
	double total = 0;

	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const struct tsr_plane_desc *p = &coding->codec->planes[i];
		const double entry = tsr_dtype_bits(tsr_plane_dtype(coding, i)) / 8.0;

		if (p->unit == TSR_BIT_PACKED)
			total += tsr_packed_bits(coding->codec) / 8.0;
		else if (p->unit == TSR_PER_ROW)
			total += coding->row ? (double)coding->share / coding->row : 0;
		else
			total += p->unit == TSR_PER_ELEMENT ? entry : entry / coding->group;
	}
	return total;
}
