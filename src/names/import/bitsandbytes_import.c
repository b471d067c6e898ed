/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the 8-bit states of bitsandbytes: codes, a table of 256 values, and a scale per group. */
#include "names/import/import_parts.h"

#include <inttypes.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "codec/codebook.h"

/* What the arrays of a state are called behind the parameter's name. */
static const struct {
	const char *codes, *table, *scales;
} states[] = {
	{ ".state1", ".qmap1", ".absmax1" }, /* momentum */
	{ ".state2", ".qmap2", ".absmax2" }, /* variance */
};

/* The group of @n elements in @ngroups groups: the least power of two that gives so many; or 0. */
static uint32_t group_of(uint64_t n, uint64_t ngroups)
{
	for (uint32_t group = 1; group <= TSR_GROUP_MAX && ngroups; group *= 2) {
		if (n / group + (n % group != 0) == ngroups)
			return group;
	}
	return 0;
}

/* A codec of its own, with the table that the file has. */
static enum tsr_status read_codec(const struct tsr_importing *m, const struct tsr_array *table,
				  const struct tsr_codec **ret)
{
	struct tsr_codebook *book;

	if (table->dtype != TSR_F32 || table->numel != 256)
		return tsr_fail(
			m->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found %" PRIu64 " of %s, expected a table of 256 F32",
			m->c->path, table->name, table->numel, tsr_dtype_name(table->dtype));
	book = tsr_arena_alloc(m->c->arena, sizeof(*book));
	if (!book)
		return tsr_build_nomem(m->c, m->err);
	tsr_codebook_init(book);
	*ret = &book->codec;
	return tsr_array_read(m->c, table, 0, sizeof(book->table), book->table, m->err);
}

static enum tsr_status try_state(struct tsr_importing *m, size_t i, size_t which)
{
	const struct tsr_array *a = &m->c->arrays[i];
	const size_t len = tsr_import_stem(a->name, states[which].codes);
	struct tsr_coding coding = { .scale = TSR_SCALE_F32 };
	size_t table, scales;

	if (!len || a->dtype != TSR_U8)
		return TSR_OK;
	table = tsr_import_find(m, a->name, len, states[which].table);
	scales = tsr_import_find(m, a->name, len, states[which].scales);
	if (table == SIZE_MAX || scales == SIZE_MAX)
		return tsr_fail(
			m->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found 8-bit codes, expected %s and %s beside them",
			m->c->path, a->name, states[which].table, states[which].scales);
	TSR_TRY(read_codec(m, &m->c->arrays[table], &coding.codec));
	coding.group = group_of(a->numel, m->c->arrays[scales].numel);
	if (!coding.group || m->c->arrays[scales].dtype != TSR_F32)
		return tsr_import_bad_scales(m, a, &m->c->arrays[scales]);
	tsr_import_join(m, i, scales, coding);
	m->part[table] = true;
	return TSR_OK;
}

enum tsr_status tsr_import_bitsandbytes(struct tsr_importing *m, size_t i)
{
	TSR_TRY(try_state(m, i, 0));
	return try_state(m, i, 1);
}
