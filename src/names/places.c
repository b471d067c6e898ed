/* SPDX-License-Identifier: Apache-2.0 */
/* What the places of tensors in what was saved around them say of them. */
#include "names/state_dict.h"

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/build.h"
#include "names/optimizer_ids.h"
#include "names/key_path.h"
#include "names/model_tree.h"

/* Marks values that were visited. */
#define MARK_PLACED 12u

struct placing {
	struct tsr_checkpoint *c;
	size_t *tensor; /* per array: the tensor whose first plane it is, or SIZE_MAX */
	bool *placed; /* per tensor */
	size_t nmodel; /* tensors of models so far */
	struct tsr_key_path *field; /* the keys below a parameter */
	struct tsr_err *err;
};

enum place { PLACE_MODEL, PLACE_STATE, PLACE_ELSEWHERE };

static enum tsr_status place_tensor(struct placing *p, size_t array, enum place place)
{
	const size_t i = p->tensor[array];
	struct tsr_tensor *t;

	if (i == SIZE_MAX || p->placed[i])
		return TSR_OK;
	t = &p->c->tensors[i];
	p->placed[i] = true;
	if (place == PLACE_MODEL)
		t->model = ++p->nmodel;
	if (place != PLACE_STATE)
		return TSR_OK;
	TSR_TRY(tsr_key_path_text(p->field, 0, NULL, p->c->path, p->err));
	if (!p->field->text.nbytes)
		return TSR_OK;
	t->field = tsr_arena_copy(p->c->arena, p->field->text.bytes, p->field->text.nbytes);
	return t->field ? TSR_OK : tsr_build_nomem(p->c, p->err);
}

static enum tsr_status walk(struct placing *p, struct tsr_value *v, enum place place);

static enum tsr_status walk_state(struct placing *p, const struct tsr_value *mapping)
{
	const size_t depth = p->field->n;

	for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
		tsr_key_path_push(p->field, mapping->list.items[i], i / 2);
		TSR_TRY(walk(p, mapping->list.items[i + 1], PLACE_STATE));
		p->field->n = depth;
	}
	return TSR_OK;
}

/* The state of an optimizer, parameter by parameter; then its groups. */
static enum tsr_status walk_optimizer(struct placing *p, const struct tsr_value *v)
{
	const struct tsr_value *state = tsr_value_mapping(tsr_value_at(v, "state"));
	const struct tsr_value *mapping = tsr_value_mapping(v);

	for (size_t i = 0; i + 1 < state->list.n; i += 2) {
		const struct tsr_value *of = tsr_value_mapping(state->list.items[i + 1]);

		if (of)
			TSR_TRY(walk_state(p, of));
	}
	for (size_t i = 0; i + 1 < mapping->list.n; i += 2)
		TSR_TRY(walk(p, mapping->list.items[i + 1], PLACE_ELSEWHERE));
	return TSR_OK;
}

/* A tensor with the flattened key state.NAME.FIELD, as torch.distributed writes it. */
static enum tsr_status walk_flattened(struct placing *p, const struct tsr_value *key,
				      struct tsr_value *v)
{
	const char *field = key->type == TSR_VALUE_STRING && v->type == TSR_VALUE_TENSOR &&
					    strncmp(key->text.bytes, "state.", 6) == 0
				    ? strrchr(key->text.bytes + 6, '.')
				    : NULL;
	enum tsr_status status;

	if (!field || !field[1])
		return walk(p, v, PLACE_ELSEWHERE);
	tsr_key_path_push_bytes(p->field, field + 1, strlen(field + 1));
	status = walk(p, v, PLACE_STATE);
	p->field->n = 0;
	return status;
}

static enum tsr_status walk(struct placing *p, struct tsr_value *v, enum place place)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);
	const size_t depth = p->field->n;

	if (v->type == TSR_VALUE_TENSOR)
		return place_tensor(p, v->tensor.array, place);
	if (v->mark == MARK_PLACED)
		return TSR_OK;
	v->mark = MARK_PLACED;
	if (mapping && place == PLACE_STATE)
		return walk_state(p, mapping);
	if (place == PLACE_ELSEWHERE && tsr_optim_is(v))
		return walk_optimizer(p, v);
	if (mapping) {
		for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
			struct tsr_value *item = mapping->list.items[i + 1];

			TSR_TRY(place == PLACE_MODEL
					? walk(p, item, place)
					: walk_flattened(p, mapping->list.items[i], item));
		}
		return TSR_OK;
	}
	if (v->type != TSR_VALUE_LIST && v->type != TSR_VALUE_TUPLE)
		return TSR_OK;
	for (size_t i = 0; i < v->list.n; i++) {
		if (place == PLACE_STATE)
			tsr_key_path_push_index(p->field, i);
		TSR_TRY(walk(p, v->list.items[i], place));
		p->field->n = depth;
	}
	return TSR_OK;
}

static enum tsr_status mark_all(struct placing *p)
{
	struct tsr_checkpoint *c = p->c;

	tsr_build_by_array(c, p->tensor);
	/* The model first: what it has is its own, wherever else it stands. */
	for (size_t i = 0; i < c->ntrees; i++) {
		struct tsr_value *model = tsr_state_dict_model(c->trees[i]);

		if (model)
			TSR_TRY(walk(p, model, PLACE_MODEL));
	}
	for (size_t i = 0; i < c->ntrees; i++)
		TSR_TRY(walk(p, c->trees[i], PLACE_ELSEWHERE));
	return TSR_OK;
}

enum tsr_status tsr_places_mark(struct tsr_checkpoint *c, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = NULL;
	TSR_SCOPED(tsr_key_path_free) struct tsr_key_path field = { .n = 0 };
	struct placing p = { .c = c, .field = &field, .err = err };

	if (!c->ntrees)
		return TSR_OK;
	arena = tsr_arena_new(SIZE_MAX);
	TSR_TRY(TSR_TAKE(&p.tensor, c->narrays + 1, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&p.placed, c->ntensors + 1, arena, err, c->path));
	return mark_all(&p);
}
