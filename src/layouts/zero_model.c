/* SPDX-License-Identifier: Apache-2.0 */
/* The model of ZeRO stages: each weight once, in FP32 where the optimizer has it so. */
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "layouts/flat_join.h"
#include "layouts/zero.h"

/* The values of a mapping by their text keys. */
struct keyed {
	const struct tsr_value *mapping; /* may be NULL */
	struct tsr_named *sorted;
	size_t n;
};

struct modelling {
	const struct tsr_zero *z;
	struct keyed shared, frozen;
	struct keyed *fragments; /* of frozen parameters, per file of the model */
	size_t *owner; /* per array of the directory: 1 + the parameter that it is a copy of, or 0 */
	size_t narrays; /* of the directory, before any was joined */
	size_t ncopies; /* weights of which the files have a copy */
	const char *copy; /* the name of one */
};

/* --- Lookups ------------------------------------------------------------------------------------ */

static enum tsr_status index_keys(const struct tsr_zero *z, struct keyed *k,
				  const struct tsr_value *v)
{
	k->mapping = tsr_value_mapping(v);
	TSR_TRY(TSR_TAKE(&k->sorted, (k->mapping ? k->mapping->list.n / 2 : 0) + 1, z->arena,
			 z->d->err, z->d->path));
	for (size_t i = 0; k->mapping && i + 1 < k->mapping->list.n; i += 2) {
		const struct tsr_value *key = k->mapping->list.items[i];

		if (key->type == TSR_VALUE_STRING)
			k->sorted[k->n++] = (struct tsr_named){ key->text.bytes, i + 1 };
	}
	tsr_named_sort(k->sorted, k->n);
	return TSR_OK;
}

static struct tsr_value *at(const struct keyed *k, const char *name)
{
	const struct tsr_named *found = tsr_named_find(k->sorted, k->n, name);

	return found ? k->mapping->list.items[found->index] : NULL;
}

/* --- Frozen parameters -------------------------------------------------------------------------- */

static enum tsr_status add_fragments(const struct modelling *m, struct tsr_flat_join *j,
				     uint64_t numel)
{
	const struct tsr_zero *z = m->z;

	for (size_t i = 0; i < z->nmodels; i++) {
		const struct tsr_value *v = at(&m->fragments[i], j->name);
		uint64_t n;

		if (!v || v->type != TSR_VALUE_TENSOR)
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: model states of rank %zu: found no tensor %.200s in "
					"frozen_param_fragments",
					z->d->path, i, j->name);
		n = j->c->arrays[v->tensor.array].numel;
		n = n < numel - j->numel ? n : numel - j->numel;
		if (i == 0)
			j->dtype = j->c->arrays[v->tensor.array].dtype;
		if (n)
			TSR_TRY(tsr_flat_join_add(j, v->tensor.array, 0, n));
	}
	if (j->numel == numel)
		return TSR_OK;
	return tsr_fail(z->d->err, TSR_E_FORMAT,
			"%s: model states: %.200s: found fewer elements in frozen_param_fragments "
			"than frozen_param_shapes says",
			z->d->path, j->name);
}

/* --- Weights ------------------------------------------------------------------------------------ */

/* The parameter that a tensor of the model is a copy of, by name, by what is shared, or NULL. */
static const struct tsr_zero_param *original_of(const struct modelling *m, const char *name,
						const struct tsr_value *v)
{
	const struct tsr_zero_param *p = tsr_zero_find(m->z, name);
	const struct tsr_value *shared = p ? NULL : at(&m->shared, name);
	const size_t array = v->tensor.array - m->z->first;

	if (!p && shared && shared->type == TSR_VALUE_STRING)
		p = tsr_zero_find(m->z, shared->text.bytes);
	if (!p && array < m->narrays && m->owner[array])
		p = &m->z->params[m->owner[array] - 1];
	return p;
}

/* What stands for a tensor of the model in the result. */
static enum tsr_status replace(struct modelling *m, const char *name, struct tsr_value **v)
{
	const struct tsr_zero *z = m->z;
	const struct tsr_array *a = &z->d->c->arrays[(*v)->tensor.array];
	const struct tsr_zero_param *p = original_of(m, name, *v);
	const struct tsr_value *shape = p ? NULL : at(&m->frozen, name);
	size_t array = (*v)->tensor.array;
	const uint64_t *dims;
	uint64_t numel;
	unsigned rank;

	if (p) {
		array = p->weight;
		m->copy = a->numel && !m->ncopies++ ? name : m->copy;
	} else if (shape && z->divided) {
		/* A parameter that the optimizer does not have: stage 3 divides it all the same. */
		TSR_SCOPED(tsr_flat_join_free)
		struct tsr_flat_join j = { .c = z->d->c, .name = name, .err = z->d->err };

		TSR_TRY(tsr_zero_shape(z, name, shape, &rank, &dims, &numel));
		TSR_TRY(add_fragments(m, &j, numel));
		TSR_TRY(tsr_flat_join_finish(&j, rank, dims, &array));
	} else {
		return TSR_OK;
	}
	*v = tsr_value_tensor(z->d->c->arena, array);
	return *v ? TSR_OK : tsr_build_nomem(z->d->c, z->d->err);
}

/* Equal arrays of the file are one tensor under several names. */
static void find_owners(struct modelling *m, const struct tsr_value *model)
{
	for (size_t i = 0; i + 1 < model->list.n && !m->z->divided; i += 2) {
		const struct tsr_value *key = model->list.items[i], *v = model->list.items[i + 1];
		const struct tsr_zero_param *p;

		if (key->type != TSR_VALUE_STRING || v->type != TSR_VALUE_TENSOR)
			continue;
		p = tsr_zero_find(m->z, key->text.bytes);
		if (p && v->tensor.array - m->z->first < m->narrays)
			m->owner[v->tensor.array - m->z->first] = (size_t)(p - m->z->params) + 1;
	}
}

/* The items of the model in their order, and then parameters that it does not have. */
static enum tsr_status make_model(struct modelling *m, const struct tsr_value *old,
				  struct tsr_value *model)
{
	struct tsr_arena *arena = m->z->d->c->arena;
	struct keyed names = { .n = 0 };

	find_owners(m, old);
	for (size_t i = 0; i + 1 < old->list.n; i += 2) {
		struct tsr_value *key = old->list.items[i], *v = old->list.items[i + 1];

		if (key->type == TSR_VALUE_STRING && v->type == TSR_VALUE_TENSOR)
			TSR_TRY(replace(m, key->text.bytes, &v));
		if (!tsr_value_put(arena, model, key, v))
			return tsr_build_nomem(m->z->d->c, m->z->d->err);
	}
	TSR_TRY(index_keys(m->z, &names, old));
	for (size_t i = 0; i < m->z->nparams; i++) {
		const struct tsr_zero_param *p = &m->z->params[i];

		if (!at(&names, p->name))
			TSR_TRY(tsr_folder_set(m->z->d, model, p->name,
					       tsr_value_tensor(arena, p->weight)));
	}
	return TSR_OK;
}

static enum tsr_status note_copies(const struct modelling *m)
{
	const struct tsr_folder *d = m->z->d;

	if (!m->ncopies)
		return TSR_OK;
	return tsr_build_remark(
		d->c, d->err,
		"%.200s: weights are the FP32 ones of the optimizer files; their %zu "
		"copies in the model file (%.100s) are left out",
		d->path, m->ncopies, m->copy);
}

static enum tsr_status index_all(struct modelling *m)
{
	const struct tsr_zero *z = m->z;

	TSR_TRY(TSR_TAKE(&m->fragments, z->nmodels + 1, z->arena, z->d->err, z->d->path));
	TSR_TRY(TSR_TAKE(&m->owner, m->narrays + 1, z->arena, z->d->err, z->d->path));
	TSR_TRY(index_keys(z, &m->shared, tsr_value_at(z->model[0], "shared_params")));
	TSR_TRY(index_keys(z, &m->frozen, tsr_value_at(z->model[0], "frozen_param_shapes")));
	for (size_t i = 0; i < z->nmodels; i++)
		TSR_TRY(index_keys(z, &m->fragments[i],
				   tsr_value_at(z->model[i], "frozen_param_fragments")));
	return TSR_OK;
}

enum tsr_status tsr_zero_model(const struct tsr_zero *z, struct tsr_value **ret)
{
	const struct tsr_value *old = tsr_value_mapping(tsr_value_at(z->model[0], "module"));
	struct modelling m = { .z = z, .narrays = z->narrays };

	*ret = tsr_value_new(z->d->c->arena, TSR_VALUE_DICT);
	if (!old)
		return tsr_fail(z->d->err, TSR_E_FORMAT, "%s: model states: found no dict module",
				z->d->path);
	TSR_TRY(index_all(&m));
	TSR_TRY(make_model(&m, old, *ret));
	return note_copies(&m);
}
