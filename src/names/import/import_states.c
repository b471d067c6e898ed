/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressed states of other tools, as tensors that decode to FP32.  docs/internals/numerics.md has
 * their layouts.
 */
#include "names/state_dict.h"

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "names/import/import_parts.h"
#include "text/shape.h"

/* What is kept beside a narrow weight, under its name with a suffix. */
static const struct {
	const char *suffix;
	enum tsr_dtype narrow, rest;
	const char *codec;
} remainders[] = {
	{ ".error_bits", TSR_BF16, TSR_I8, "bf16+ulp8" }, /* FlashOptim */
	{ ".error_bits", TSR_BF16, TSR_I16, "bf16+ulp16" },
	{ ".error_bits", TSR_F16, TSR_I8, "fp16+ulp8" },
	{ ".error_bits", TSR_F16, TSR_I16, "fp16+ulp16" },
	{ ".master_param", TSR_BF16, TSR_I16, "bf16+exact16" }, /* TransformerEngine, Apex */
};

/* If array @rest is the remainder of a weight by this row of the table: make one tensor of both. */
static enum tsr_status join_weight(struct tsr_importing *m, size_t rest, size_t row)
{
	const struct tsr_array *a = &m->c->arrays[rest], *w;
	const size_t len = tsr_import_stem(a->name, remainders[row].suffix);
	const size_t weight = len ? tsr_import_find(m, a->name, len, "") : SIZE_MAX;

	if (weight == SIZE_MAX || m->coding[weight].codec)
		return TSR_OK;
	w = &m->c->arrays[weight];
	if (w->dtype != remainders[row].narrow || a->dtype != remainders[row].rest)
		return TSR_OK;
	if (tsr_shape_compare(a->rank, a->shape, w->rank, w->shape) != 0)
		return tsr_fail(m->err, TSR_E_FORMAT,
				"%s: tensor %.200s: has another shape than its weight %.200s",
				m->c->path, a->name, w->name);
	tsr_import_join(
		m, weight, rest,
		(struct tsr_coding){ .codec = tsr_codec_find(remainders[row].codec), .group = 1 });
	return TSR_OK;
}

static enum tsr_status recognise(struct tsr_importing *m)
{
	for (size_t i = 0; i < m->c->ntrees; i++)
		TSR_TRY(tsr_import_bitsandbytes_tree(m, m->c->trees[i]));
	for (size_t i = 0; i < m->c->narrays; i++) {
		TSR_TRY(tsr_import_bitsandbytes(m, i));
		TSR_TRY(tsr_import_coat(m, i));
		TSR_TRY(tsr_import_gefen(m, i));
		for (size_t row = 0; row < sizeof(remainders) / sizeof(*remainders); row++)
			TSR_TRY(join_weight(m, i, row));
	}
	/* These change names, by which the others are found. */
	for (size_t i = 0; i < m->c->narrays; i++)
		TSR_TRY(tsr_import_flashoptim_state(m, i));
	return TSR_OK;
}

/* --- The tree ---------------------------------------------------------------------------------- */

/* Values whose parts were taken out. */
#define MARK_CLEANED 2u

static bool is_part(const struct tsr_importing *m, const struct tsr_value *v)
{
	return v->type == TSR_VALUE_TENSOR && m->part[v->tensor.array];
}

/* Parts of tensors go; what they were part of is a tensor of its own. */
static enum tsr_status clean(struct tsr_importing *m, struct tsr_value *v)
{
	size_t kept = 0;

	if (!v || v->mark == MARK_CLEANED)
		return TSR_OK;
	v->mark = MARK_CLEANED;
	if (v->type == TSR_VALUE_TENSOR && v->tensor.wrapper) {
		TSR_TRY(tsr_import_torchao(m, v));
		return clean(m, v->tensor.attributes);
	}
	if (v->type == TSR_VALUE_CALL) {
		TSR_TRY(clean(m, v->call.args));
		return clean(m, v->call.items);
	}
	if (v->type == TSR_VALUE_DICT) {
		for (size_t i = 0; i + 1 < v->list.n; i += 2) {
			struct tsr_value **pair = &v->list.items[i];

			if (is_part(m, pair[1]))
				continue;
			if (pair[1]->type == TSR_VALUE_TENSOR &&
			    m->coding[pair[1]->tensor.array].codec)
				TSR_TRY(tsr_import_flashoptim_key(m, &pair[0]));
			v->list.items[kept++] = pair[0];
			v->list.items[kept++] = pair[1];
		}
		v->list.n = kept;
	}
	if (v->type == TSR_VALUE_DICT || v->type == TSR_VALUE_LIST || v->type == TSR_VALUE_TUPLE) {
		for (size_t i = 0; i < v->list.n; i++)
			TSR_TRY(clean(m, v->list.items[i]));
	}
	return TSR_OK;
}

/* --- Tensors ----------------------------------------------------------------------------------- */

static enum tsr_status add_tensor(struct tsr_importing *m, size_t i)
{
	const struct tsr_array *a = &m->c->arrays[i];
	const struct tsr_array *like = m->like[i] ? &m->c->arrays[m->like[i] - 1] : a;
	struct tsr_tensor t = { .name = a->name,
				.dtype = a->dtype,
				.rank = like->rank,
				.shape = like->shape,
				.numel = like->numel,
				.coding = { .group = 1 },
				.nplanes = 1,
				.orthogonal = a->orthogonal,
				.plane = { i } };

	if (m->coding[i].codec) {
		t.dtype = TSR_F32;
		t.coding = m->coding[i];
		t.nplanes = t.coding.codec->nplanes;
		for (unsigned p = 1; p < t.nplanes; p++)
			t.plane[p] = m->rest[i][p - 1];
		m->c->coded = true;
	}
	return tsr_build_tensor(m->c, &t, m->err);
}

static enum tsr_status make_tensors(struct tsr_importing *m, bool as_stored)
{
	struct tsr_checkpoint *c = m->c;

	if (c->ntrees && !as_stored) {
		for (size_t i = 0; i < c->narrays; i++)
			m->by_name[i] = (struct tsr_named){ c->arrays[i].name, i };
		tsr_named_sort(m->by_name, c->narrays);
		TSR_TRY(recognise(m));
		for (size_t i = 0; i < c->ntrees; i++)
			TSR_TRY(clean(m, c->trees[i]));
	}
	for (size_t i = 0; i < c->narrays; i++) {
		if (!m->part[i])
			TSR_TRY(add_tensor(m, i));
	}
	if (c->coded && !c->generation)
		c->generation = 1;
	return TSR_OK;
}

enum tsr_status tsr_import_states(struct tsr_checkpoint *c, const struct tsr_open_options *options,
				  struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct tsr_importing m = { .c = c, .err = err };
	const size_t n = c->narrays + 1;

	TSR_TRY(TSR_TAKE(&m.by_name, n, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&m.part, n, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&m.coding, n, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&m.rest, n, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&m.like, n, arena, err, c->path));
	return make_tensors(&m, options->as_stored);
}
