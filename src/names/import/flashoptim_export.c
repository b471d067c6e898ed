/* SPDX-License-Identifier: Apache-2.0 */
/* Export of a packed checkpoint as a compressed state dict of FlashOptim. */
#include "names/import/flashoptim_export.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"

#define QUANTIZED "::quantized"
#define SCALES "::scales"

struct arranging {
	struct tsr_checkpoint *c;
	size_t n; /* tensors there were */
	struct tsr_tensor *was; /* as they were packed */
	size_t *by_array; /* per array: number of the tensor whose first plane it is, or SIZE_MAX */
	size_t *weight; /* per tensor: of a state WEIGHT.FIELD that packed weight, or SIZE_MAX */
	struct tsr_value **states; /* per tensor: of a packed weight its state in a new tree */
	uint64_t bytewidth; /* of weights */
	struct tsr_err *err;
};

/* --- Planes become tensors ---------------------------------------------------------------------- */

static bool is_codec(const struct tsr_coding *coding, const char *name)
{
	return coding->codec && coding->codec == tsr_codec_find(name);
}

static bool is_state(const struct tsr_coding *coding)
{
	return (is_codec(coding, "softsign8") || is_codec(coding, "sqrt8")) &&
	       coding->scale == TSR_SCALE_F16 && coding->group == 32;
}

enum tsr_status tsr_flashoptim_check(const char *path, const char *tensor,
				     const struct tsr_coding *coding, uint64_t *bytewidth,
				     struct tsr_err *err)
{
	const uint64_t own = is_codec(coding, "bf16+ulp8")    ? 3
			     : is_codec(coding, "bf16+ulp16") ? 4
							      : 0;

	if (!coding->codec || is_state(coding))
		return TSR_OK;
	if (!own || (*bytewidth && *bytewidth != own))
		return tsr_fail_hint(err, TSR_E_UNSUPPORTED, TSR_HINT_PACK_COMPAT,
				     "%s: tensor %.200s: found codec %s with %s scales and groups "
				     "of %u, expected FlashOptim's",
				     path, tensor, coding->codec->name,
				     tsr_scale_name(coding->scale), coding->group);
	*bytewidth = own;
	return TSR_OK;
}

/* A tensor that is one array, unchanged. */
static enum tsr_status add_raw(struct arranging *a, const char *name, const char *suffix,
			       size_t array)
{
	const struct tsr_array *from = &a->c->arrays[array];
	const struct tsr_tensor t = { .name = tsr_arena_printf(a->c->arena, "%s%s", name, suffix),
				      .dtype = from->dtype,
				      .rank = from->rank,
				      .shape = from->shape,
				      .numel = from->numel,
				      .coding = { .group = 1 },
				      .nplanes = 1,
				      .plane = { array } };

	return t.name ? tsr_build_tensor(a->c, &t, a->err) : tsr_build_nomem(a->c, a->err);
}

/* 8-bit corrections are converted to BF16, 16-bit ones only relabelled. */
static enum tsr_status retype_correction(struct arranging *a, struct tsr_array *correction)
{
	struct tsr_layout *layout;

	if (correction->dtype == TSR_I16) {
		correction->dtype = TSR_BF16;
		return TSR_OK;
	}
	TSR_TRY(TSR_ARENA_NEW(&layout, 1, a->c->arena, tsr_build_nomem(a->c, a->err)));
	layout->integers_bf16 = true;
	correction->layout = layout;
	correction->dtype = TSR_BF16;
	correction->nbytes = 2 * correction->numel;
	return TSR_OK;
}

static enum tsr_status split_tensor(struct arranging *a, const struct tsr_tensor *t)
{
	if (!t->coding.codec)
		return add_raw(a, t->name, "", t->plane[0]);
	if (is_state(&t->coding)) {
		/*
		 * torch casts every float of a state to the type of its parameter when it loads it;
		 * FlashOptim (0.1.4) takes the bits of scales that are called BF16 for FP16.
		 */
		a->c->arrays[t->plane[1]].dtype = TSR_BF16;
		TSR_TRY(add_raw(a, t->name, QUANTIZED, t->plane[0]));
		return add_raw(a, t->name, SCALES, t->plane[1]);
	}
	TSR_TRY(retype_correction(a, &a->c->arrays[t->plane[1]]));
	TSR_TRY(add_raw(a, t->name, "", t->plane[0]));
	return add_raw(a, t->name, ".error_bits", t->plane[1]);
}

/* --- The tree of the checkpoint ------------------------------------------------------------------- */

#define MARK_ARRANGED 4u

/* The packed tensor that a value is, if it is one with a codec; else NULL. */
static const struct tsr_tensor *coded(const struct arranging *a, const struct tsr_value *v)
{
	const size_t i = v->type == TSR_VALUE_TENSOR ? a->by_array[v->tensor.array] : SIZE_MAX;

	return i != SIZE_MAX && a->was[i].coding.codec ? &a->was[i] : NULL;
}

static bool put(struct arranging *a, struct tsr_value *dict, const char *key, const char *suffix,
		struct tsr_value *value)
{
	const char *text = tsr_arena_printf(a->c->arena, "%s%s", key, suffix);

	return text && tsr_value_put_at(a->c->arena, dict, text, value);
}

/* The codes and scales of a state, under its key. */
static bool put_state(struct arranging *a, struct tsr_value *dict, const char *key,
		      struct tsr_value *codes, const struct tsr_tensor *t)
{
	return put(a, dict, key, QUANTIZED, codes) &&
	       put(a, dict, key, SCALES, tsr_value_tensor(a->c->arena, t->plane[1]));
}

/* The packed weight of which this is the state under @key, or NULL. */
static const struct tsr_tensor *weight_of(const struct arranging *a, const struct tsr_tensor *t,
					  const char *key)
{
	const size_t i = a->weight[t - a->was];

	return i != SIZE_MAX && strcmp(t->name + strlen(a->was[i].name) + 1, key) == 0 ? &a->was[i]
										       : NULL;
}

/* A parameter's state: codes and scales in place of values, and the weight's correction. */
static bool arrange_state(struct arranging *a, struct tsr_value *dict)
{
	struct tsr_arena *arena = a->c->arena;
	struct tsr_value *old = tsr_value_new(arena, TSR_VALUE_DICT);
	const struct tsr_tensor *weight = NULL;
	bool ok = old != NULL;

	if (!ok)
		return false;
	*old = *dict;
	dict->list.items = NULL;
	dict->list.n = dict->list.room = 0;
	for (size_t i = 0; ok && i + 1 < old->list.n; i += 2) {
		struct tsr_value *key = old->list.items[i], *value = old->list.items[i + 1];
		const struct tsr_tensor *t = coded(a, value);

		if (!t || !is_state(&t->coding) || key->type != TSR_VALUE_STRING) {
			ok = tsr_value_add(arena, dict, key) && tsr_value_add(arena, dict, value);
			continue;
		}
		weight = weight ? weight : weight_of(a, t, key->text.bytes);
		ok = put_state(a, dict, key->text.bytes, value, t);
	}
	if (ok && weight)
		ok = put(a, dict, "error_bits", "", tsr_value_tensor(arena, weight->plane[1]));
	return ok;
}

static bool arrange_group(struct arranging *a, struct tsr_value *dict)
{
	bool ok = true;

	if (!tsr_value_at(dict, "master_bytewidth"))
		ok = put(a, dict, "master_bytewidth", "",
			 tsr_value_int(a->c->arena, (int64_t)a->bytewidth));
	if (ok && !tsr_value_at(dict, "quantize"))
		ok = put(a, dict, "quantize", "", tsr_value_bool(a->c->arena, true));
	return ok;
}

static bool has_coded_state(const struct arranging *a, const struct tsr_value *dict)
{
	for (size_t i = 1; i < dict->list.n; i += 2) {
		const struct tsr_tensor *t = coded(a, dict->list.items[i]);

		if (t && is_state(&t->coding))
			return true;
	}
	return false;
}

static enum tsr_status arrange_value(struct arranging *a, struct tsr_value *v)
{
	bool ok = true;

	if (!v || v->mark == MARK_ARRANGED)
		return TSR_OK;
	v->mark = MARK_ARRANGED;
	if (v->type == TSR_VALUE_CALL) {
		TSR_TRY(arrange_value(a, v->call.args));
		return arrange_value(a, v->call.items);
	}
	if (!tsr_value_is_list(v))
		return TSR_OK;
	for (size_t i = 0; i < v->list.n; i++)
		TSR_TRY(arrange_value(a, v->list.items[i]));
	if (v->type == TSR_VALUE_DICT && has_coded_state(a, v))
		ok = arrange_state(a, v);
	else if (v->type == TSR_VALUE_DICT && tsr_value_at(v, "params"))
		ok = arrange_group(a, v);
	return ok ? TSR_OK : tsr_build_nomem(a->c, a->err);
}

/* --- A tree for a checkpoint that has none --------------------------------------------------------- */

static bool make_state(struct arranging *a, struct tsr_value *states, struct tsr_value *ids,
		       size_t weight)
{
	struct tsr_arena *arena = a->c->arena;
	struct tsr_value *dict = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *id = tsr_value_int(arena, (int64_t)ids->list.n);
	const size_t correction = a->was[weight].plane[1];

	a->states[weight] = dict;
	return put(a, dict, "error_bits", "", tsr_value_tensor(arena, correction)) &&
	       tsr_value_add(arena, ids, id) && tsr_value_put(arena, states, id, dict);
}

/* One group of all weights, in the order of the file, without hyperparameters. */
static bool make_optimizer(struct arranging *a, struct tsr_value *model,
			   struct tsr_value *optimizer)
{
	struct tsr_arena *arena = a->c->arena;
	struct tsr_value *states = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *groups = tsr_value_new(arena, TSR_VALUE_LIST);
	struct tsr_value *group = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *ids = tsr_value_new(arena, TSR_VALUE_LIST);
	bool ok = states && groups && group && ids;

	for (size_t i = 0; ok && i < a->n; i++) {
		const struct tsr_tensor *t = &a->was[i];

		if (is_state(&t->coding))
			continue;
		ok = put(a, model, t->name, "", tsr_value_tensor(a->c->arena, t->plane[0]));
		if (ok && t->coding.codec)
			ok = make_state(a, states, ids, i);
	}
	for (size_t i = 0; ok && i < a->n; i++) {
		const struct tsr_tensor *t = &a->was[i];
		const size_t weight = a->weight[i];

		if (weight != SIZE_MAX)
			ok = put_state(a, a->states[weight],
				       t->name + strlen(a->was[weight].name) + 1,
				       tsr_value_tensor(arena, t->plane[0]), t);
	}
	return ok && put(a, group, "params", "", ids) && arrange_group(a, group) &&
	       tsr_value_add(arena, groups, group) && put(a, optimizer, "state", "", states) &&
	       put(a, optimizer, "param_groups", "", groups);
}

static enum tsr_status make_tree(struct arranging *a)
{
	struct tsr_arena *arena = a->c->arena;
	struct tsr_value *root = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *model = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *optimizer = tsr_value_new(arena, TSR_VALUE_DICT);

	if (!root || !model || !optimizer || !make_optimizer(a, model, optimizer) ||
	    !put(a, root, "model", "", model) || !put(a, root, "optimizer", "", optimizer))
		return tsr_build_nomem(a->c, a->err);
	TSR_TRY(tsr_build_note(a->c, a->err,
			       "%s: holds no param_groups: the state dict numbers parameters in "
			       "the order of the file and has no hyperparameters",
			       a->c->path));
	return tsr_build_tree(a->c, root, a->err);
}

/* --- All of it ------------------------------------------------------------------------------------- */

/* Find the tensors by their first planes, and the weights of states by their names. */
static enum tsr_status index_tensors(struct arranging *a)
{
	struct tsr_checkpoint *c = a->c;

	TSR_TRY(TSR_ARENA_NEW(&a->by_array, c->narrays + 1, c->arena, tsr_build_nomem(c, a->err)));
	TSR_TRY(TSR_ARENA_NEW(&a->weight, a->n + 1, c->arena, tsr_build_nomem(c, a->err)));
	TSR_TRY(TSR_ARENA_NEW(&a->states, a->n + 1, c->arena, tsr_build_nomem(c, a->err)));
	for (size_t i = 0; i < c->narrays; i++)
		a->by_array[i] = SIZE_MAX;
	for (size_t i = 0; i < a->n; i++) {
		const struct tsr_tensor *t = &a->was[i], *weight;
		const char *dot = is_state(&t->coding) ? strrchr(t->name, '.') : NULL;
		const char *name = dot ? tsr_arena_copy(c->arena, t->name, (size_t)(dot - t->name))
				       : NULL;

		if (dot && !name)
			return tsr_build_nomem(c, a->err);
		weight = name ? tsr_checkpoint_find(c, name) : NULL;
		a->by_array[t->plane[0]] = i;
		a->weight[i] = weight && weight->coding.codec && !is_state(&weight->coding)
				       ? (size_t)(weight - a->was)
				       : SIZE_MAX;
	}
	return TSR_OK;
}

static enum tsr_status arrange(struct arranging *a)
{
	struct tsr_checkpoint *c = a->c;

	for (size_t i = 0; i < a->n; i++)
		TSR_TRY(tsr_flashoptim_check(c->path, a->was[i].name, &a->was[i].coding,
					     &a->bytewidth, a->err));
	if (!a->bytewidth)
		return tsr_fail_hint(a->err, TSR_E_UNSUPPORTED, TSR_HINT_PACK_COMPAT,
				     "%s: holds no packed weights", c->path);
	c->tensors = NULL;
	c->ntensors = 0;
	for (size_t i = 0; i < a->n; i++)
		TSR_TRY(split_tensor(a, &a->was[i]));
	for (size_t i = 0; i < c->ntrees; i++)
		TSR_TRY(arrange_value(a, c->trees[i]));
	return c->ntrees ? TSR_OK : make_tree(a);
}

enum tsr_status tsr_flashoptim_arrange(struct tsr_checkpoint *c, struct tsr_err *err)
{
	struct arranging a = { .c = c, .n = c->ntensors, .was = c->tensors, .err = err };
	enum tsr_status status = index_tensors(&a);

	TSR_THEN(status, arrange(&a));
	if (c->tensors != a.was)
		free(a.was);
	c->packed = false;
	return status;
}
