/* SPDX-License-Identifier: Apache-2.0 */
/* Import of Gefen's states: indices into the optimizer's codebook, magnitudes and means of blocks. */
#include "names/import/import_parts.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "codec/gefen_state.h"

#define CODES ".m_codebook"
#define CODEBOOK "gefen_codebook"

static bool is_codebook(const char *name)
{
	const char *dot = strrchr(name, '.');

	return strcmp(dot ? dot + 1 : name, CODEBOOK) == 0;
}

/* The codebook of the checkpoint's one optimizer of this kind. */
static enum tsr_status find_codebook(struct tsr_importing *m, const struct tsr_array *codes,
				     size_t *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < m->c->narrays; i++) {
		if (!is_codebook(m->c->arrays[i].name))
			continue;
		*ret = i;
		n++;
	}
	if (n != 1)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found codes of Gefen and %zu of " CODEBOOK
				", expected one",
				m->c->path, codes->name, n);
	return TSR_OK;
}

static enum tsr_status read_codec(struct tsr_importing *m, const struct tsr_array *codes,
				  enum tsr_dtype dtype, const struct tsr_codec **ret)
{
	struct tsr_gefen_state *s;
	const struct tsr_array *a;
	size_t book = 0;

	TSR_TRY(TSR_ARENA_NEW(&s, 1, m->c->arena, tsr_build_nomem(m->c, m->err)));
	TSR_TRY(find_codebook(m, codes, &book));
	a = &m->c->arrays[book];
	if (a->dtype != TSR_F32 || a->numel != 256)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found %" PRIu64 " of %s, expected 256 F32",
				m->c->path, a->name, a->numel, tsr_dtype_name(a->dtype));
	tsr_gefen_state_init(s, dtype);
	m->part[book] = true;
	*ret = &s->codec;
	return tsr_array_read(m->c, a, 0, sizeof(s->table), s->table, m->err);
}

/* Elements of a block: as many for each value.  0: they do not fit. */
static uint32_t block_of(const struct tsr_array *codes, const struct tsr_array *values)
{
	return tsr_gefen_means(values->dtype) ? tsr_import_block(codes, values) : 0;
}

enum tsr_status tsr_import_gefen(struct tsr_importing *m, size_t i)
{
	const struct tsr_array *a = &m->c->arrays[i];
	const size_t len = tsr_import_stem(a->name, CODES);
	struct tsr_coding coding = { .scale = TSR_SCALE_F32 };
	size_t weight, magnitudes, means;

	if (!len || a->dtype != TSR_U8)
		return TSR_OK;
	magnitudes = tsr_import_find(m, a->name, len, ".m_magnitude");
	if (magnitudes == SIZE_MAX)
		return tsr_fail(m->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found codes of Gefen, expected .m_magnitude "
				"beside them",
				m->c->path, a->name);
	coding.group = block_of(a, &m->c->arrays[magnitudes]);
	if (!coding.group)
		return tsr_import_bad_scales(m, a, &m->c->arrays[magnitudes]);
	TSR_TRY(read_codec(m, a, m->c->arrays[magnitudes].dtype, &coding.codec));
	tsr_import_join(m, i, magnitudes, coding);
	/* Both are stored in rows of a block; where the weight is known they have its shape. */
	weight = tsr_import_find(m, a->name, len, "");
	m->like[i] = weight != SIZE_MAX && m->c->arrays[weight].numel == a->numel ? weight + 1 : 0;
	means = tsr_import_find(m, a->name, len, ".vmean");
	if (means == SIZE_MAX)
		return TSR_OK;
	coding.group = block_of(a, &m->c->arrays[means]);
	if (!coding.group)
		return tsr_import_bad_scales(m, a, &m->c->arrays[means]);
	coding.codec = tsr_gefen_means(m->c->arrays[means].dtype);
	m->coding[means] = coding;
	m->like[means] = m->like[i] ? m->like[i] : i + 1;
	return TSR_OK;
}
