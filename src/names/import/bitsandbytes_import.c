/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the 8-bit states of bitsandbytes: codes, a table of 256 values, and a scale per group. */
#include "names/import/import_parts.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "codec/codebook.h"
#include "format/value_walk.h"

/* What the arrays of a state are called behind the parameter's name. */
static const struct {
	const char *codes, *table, *scales;
} states[] = {
	{ ".state1", ".qmap1", ".absmax1" }, /* momentum */
	{ ".state2", ".qmap2", ".absmax2" }, /* variance */
};

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
	TSR_TRY(TSR_ARENA_NEW(&book, 1, m->c->arena, tsr_build_nomem(m->c, m->err)));
	tsr_codebook_init(book, false);
	*ret = &book->codec;
	return tsr_array_read(m->c, table, 0, sizeof(book->table), book->table, m->err);
}

/* Make one tensor of the arrays of a state: codes, table and scales. */
static enum tsr_status join_state(struct tsr_importing *m, size_t codes, size_t table,
				  size_t scales)
{
	const struct tsr_array *a = &m->c->arrays[codes], *s = &m->c->arrays[scales];
	/* Of stacked states, such as AdEMAMix's two momenta, each has blocks of its own. */
	const uint64_t n = s->rank > 1 && s->shape[0] ? s->shape[0] : 1;
	struct tsr_coding coding = { .scale = TSR_SCALE_F32 };

	TSR_TRY(read_codec(m, &m->c->arrays[table], &coding.codec));
	coding.group = a->numel % n ? 0 : tsr_import_group(a->numel / n, s->numel / n);
	if (!coding.group || s->dtype != TSR_F32 || (n > 1 && a->numel / n % coding.group))
		return tsr_import_bad_scales(m, a, s);
	tsr_import_join(m, codes, scales, coding);
	m->part[table] = true;
	return TSR_OK;
}

enum tsr_status tsr_import_bitsandbytes(struct tsr_importing *m, size_t i)
{
	const struct tsr_array *a = &m->c->arrays[i];

	for (size_t k = 0; k < sizeof(states) / sizeof(*states); k++) {
		const size_t len = tsr_import_stem(a->name, states[k].codes);
		size_t table, scales;

		if (!len || a->dtype != TSR_U8 || m->coding[i].codec)
			continue;
		table = tsr_import_find(m, a->name, len, states[k].table);
		scales = tsr_import_find(m, a->name, len, states[k].scales);
		if (table == SIZE_MAX || scales == SIZE_MAX)
			return tsr_fail(m->err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: found 8-bit codes, expected %s and %s "
					"beside them",
					m->c->path, a->name, states[k].table, states[k].scales);
		TSR_TRY(join_state(m, i, table, scales));
	}
	return TSR_OK;
}

/* The array of an entry that is a tensor called NAME@suffix, or SIZE_MAX. */
static size_t entry_of(const struct tsr_importing *m, const struct tsr_value *dict,
		       const char *suffix)
{
	const struct tsr_value *v = tsr_value_at(dict, suffix + 1);

	return v && v->type == TSR_VALUE_TENSOR && !v->tensor.wrapper &&
			       tsr_import_stem(m->c->arrays[v->tensor.array].name, suffix)
		       ? v->tensor.array
		       : SIZE_MAX;
}

enum tsr_status tsr_import_bitsandbytes_tree(struct tsr_importing *m, struct tsr_value *root)
{
	struct tsr_value_walk walk = { .root = root, .mark = TSR_MARK_STATES };
	const struct tsr_value *v;

	while ((v = tsr_value_walk_next(&walk)) != NULL) {
		for (size_t k = 0;
		     v->type == TSR_VALUE_DICT && k < sizeof(states) / sizeof(*states); k++) {
			const size_t codes = entry_of(m, v, states[k].codes);
			const size_t table = entry_of(m, v, states[k].table);
			const size_t scales = entry_of(m, v, states[k].scales);

			if (codes != SIZE_MAX && table != SIZE_MAX && scales != SIZE_MAX &&
			    m->c->arrays[codes].dtype == TSR_U8 && !m->coding[codes].codec)
				TSR_TRY(join_state(m, codes, table, scales));
		}
	}
	return TSR_OK;
}
