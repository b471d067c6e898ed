/* SPDX-License-Identifier: Apache-2.0 */
/* The codec table, its lookups, and the choice of a SIMD level. */
#include "tersor/codec.h"

#include <string.h>

#include "base/hash.h"
#include "codec/isa.h"

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
	[TSR_SCALE_E8M8] = { "e8m8", TSR_U16 },
	[TSR_SCALE_F16] = { "f16", TSR_F16 },
	[TSR_SCALE_F32] = { "f32", TSR_F32 },
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

/* --- SIMD levels --------------------------------------------------------------------------- */

#define X_BASE(id) &tsr_codec_##id##_base,
#define X_AVX2(id) &tsr_codec_##id##_avx2,
#define X_AVX512(id) &tsr_codec_##id##_avx512,

static const struct tsr_codec *const codecs_base[] = { TSR_CODEC_LIST(X_BASE) NULL };

#ifdef __x86_64__
static const struct tsr_codec *const codecs_avx2[] = { TSR_CODEC_LIST(X_AVX2) NULL };
static const struct tsr_codec *const codecs_avx512[] = { TSR_CODEC_LIST(X_AVX512) NULL };
#endif

static const struct isa {
	const char *name;
	bool (*supported)(void);
	const struct tsr_codec *const *codecs;
	tsr_measure_fn *measure_add;
} isas[] = {
#define X(isa) { #isa, tsr_cpu_has_##isa, codecs_##isa, tsr_measure_add_##isa },
	TSR_ISA_LIST(X)
#undef X
};

#define NISAS (sizeof(isas) / sizeof(*isas))

static const struct isa *isa_in_use;

static const struct isa *best_isa(void)
{
	size_t i = NISAS - 1;

	while (!isas[i].supported())
		i--;
	return &isas[i];
}

/* Racing first calls all store the same pointer. */
static const struct isa *isa(void)
{
	const struct isa *now = __atomic_load_n(&isa_in_use, __ATOMIC_RELAXED);

	if (!now) {
		now = best_isa();
		__atomic_store_n(&isa_in_use, now, __ATOMIC_RELAXED);
	}
	return now;
}

bool tsr_isa_select(const char *name)
{
	if (!name) {
		isa_in_use = best_isa();
		return true;
	}
	for (size_t i = 0; i < NISAS; i++) {
		if (strcmp(isas[i].name, name) == 0 && isas[i].supported()) {
			isa_in_use = &isas[i];
			return true;
		}
	}
	return false;
}

const char *tsr_isa_name(void)
{
	return isa()->name;
}

const char *const *tsr_isa_names(void)
{
	static const char *const names[] = {
#define X(isa) #isa,
		TSR_ISA_LIST(X)
#undef X
			NULL
	};

	return names;
}

void tsr_measure_add(struct tsr_measure *m, const float *x, const float *y, size_t n)
{
	isa()->measure_add(m, x, y, n);
}

/* --- Lookups ------------------------------------------------------------------------------- */

const struct tsr_codec *const *tsr_codecs(void)
{
	return isa()->codecs;
}

const struct tsr_codec *tsr_codec_find(const char *name)
{
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (strcmp((*c)->name, name) == 0)
			return *c;
	}
	return NULL;
}

struct tsr_coding tsr_coding_default(const struct tsr_codec *codec)
{
	return (struct tsr_coding){ .codec = codec,
				    .scale = TSR_SCALE_E8M8,
				    .group = codec->grouped ? TSR_GROUP_DEFAULT : 1 };
}

bool tsr_coding_is_same(const struct tsr_coding *a, const struct tsr_coding *b)
{
	return a->codec == b->codec &&
	       (!a->codec->grouped || (a->scale == b->scale && a->group == b->group));
}

uint32_t tsr_coding_run(const struct tsr_coding *coding)
{
	const struct tsr_codec *c = coding->codec;

	for (unsigned i = 0; i < c->nplanes; i++) {
		if (c->planes[i].unit == TSR_BIT_PACKED)
			return TSR_BIT_PACKED_RUN;
	}
	return coding->group;
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

uint64_t tsr_plane_count(const struct tsr_coding *coding, unsigned plane, uint64_t n)
{
	const struct tsr_plane_desc *p = &coding->codec->planes[plane];
	const uint64_t run = p->unit == TSR_BIT_PACKED ? TSR_BIT_PACKED_RUN : coding->group;
	const uint64_t nruns = n / run + (n % run != 0);

	switch (p->unit) {
	case TSR_PER_ELEMENT:
		return n;
	case TSR_PER_GROUP:
		return nruns;
	case TSR_BIT_PACKED:
		return nruns * tsr_packed_bits(coding->codec);
	}
	return 0;
}

uint64_t tsr_plane_nbytes(const struct tsr_coding *coding, unsigned plane, uint64_t n)
{
	return tsr_plane_count(coding, plane, n) *
	       (tsr_dtype_bits(tsr_plane_dtype(coding, plane)) / 8);
}

double tsr_coding_bytes_per_element(const struct tsr_coding *coding)
{
	double total = 0;

	for (unsigned i = 0; i < coding->codec->nplanes; i++) {
		const struct tsr_plane_desc *p = &coding->codec->planes[i];
		const double entry = tsr_dtype_bits(tsr_plane_dtype(coding, i)) / 8.0;

		if (p->unit == TSR_BIT_PACKED)
			total += tsr_packed_bits(coding->codec) / 8.0;
		else
			total += p->unit == TSR_PER_GROUP ? entry / coding->group : entry;
	}
	return total;
}
