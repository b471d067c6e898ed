/* SPDX-License-Identifier: Apache-2.0 */
/* Whole tensors from the partitions of DeepSpeed's ZeRO stages. */
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "layouts/flat_join.h"
#include "layouts/zero.h"

/* What all ranks have of one thing, weights or a state, of a group: one array each. */
struct pieces {
	size_t *array;
	const char *field; /* "" for weights */
};

/* --- What each rank has ------------------------------------------------------------------------- */

static const struct tsr_array *flat_of(const struct tsr_zero *z, size_t rank, size_t group)
{
	return &z->d->c->arrays[z->flat[rank * z->ngroups + group]];
}

static enum tsr_status does_not_fit(const struct tsr_zero *z, size_t group, uint64_t found,
				    const char *of)
{
	return tsr_fail(z->d->err, TSR_E_FORMAT,
			"%s: group %zu: found flat partitions of %" PRIu64
			" elements%s, expected %" PRIu64
			" and padding for the parameters in param_shapes (is it one save?)",
			z->d->path, group, found, of, z->needed[group]);
}

/* Stages 1 and 2: all ranks together have the group, and fewer than 2 more elements per rank. */
static enum tsr_status check_divided_group(const struct tsr_zero *z, size_t group)
{
	const uint64_t align = 2 * (uint64_t)z->nranks;
	uint64_t found = 0, up;

	for (size_t i = 0; i < z->nranks; i++) {
		if (__builtin_add_overflow(found, flat_of(z, i, group)->numel, &found))
			return does_not_fit(z, group, UINT64_MAX, " and more");
	}
	up = (z->needed[group] + align - 1) / align * align;
	if (found >= z->needed[group] && found <= up)
		return TSR_OK;
	return does_not_fit(z, group, found, "");
}

/* Stage 3: each rank has its part of every parameter. */
static enum tsr_status check_divided_params(const struct tsr_zero *z, size_t group)
{
	for (size_t i = 0; i < z->nranks; i++) {
		const uint64_t found = flat_of(z, i, group)->numel;

		if (found != z->needed[group])
			return does_not_fit(z, group, found, " on a rank");
	}
	return TSR_OK;
}

/*
 * A state has as many elements as the weights on each rank.  It keeps the padding at the end of the
 * group, which weights may lack.
 */
static enum tsr_status check_state(const struct tsr_zero *z, size_t group, const struct pieces *p)
{
	bool ended = false;

	for (size_t i = 0; i < z->nranks; i++) {
		const uint64_t expected = flat_of(z, i, group)->numel;
		const uint64_t found = z->d->c->arrays[p->array[i]].numel;

		if (found < expected || (ended && expected) || (z->stage3 && found != expected))
			return tsr_fail(
				z->d->err, TSR_E_FORMAT,
				"%s: optimizer states of rank %zu: group %zu: %.100s: found "
				"%" PRIu64 " elements, expected %" PRIu64 " as the weights have",
				z->d->path, i, group, p->field, found, expected);
		ended = ended || found > expected;
	}
	return TSR_OK;
}

/* --- Parameters --------------------------------------------------------------------------------- */

/* Stages 1 and 2: from the ranks' parts one after the other. */
static enum tsr_status add_divided_group(const struct tsr_zero *z, const struct tsr_zero_param *p,
					 const struct pieces *pieces, struct tsr_flat_join *j)
{
	uint64_t base = 0;

	for (size_t i = 0; i < z->nranks && j->numel < p->numel; i++) {
		const uint64_t n = z->d->c->arrays[pieces->array[i]].numel;
		const uint64_t at = p->first + j->numel, left = p->numel - j->numel;

		if (at - base < n)
			TSR_TRY(tsr_flat_join_add(j, pieces->array[i], at - base,
						  left < n - (at - base) ? left : n - (at - base)));
		base += n;
	}
	return TSR_OK;
}

/* Stage 3: a run of each rank, the last ones shorter or empty. */
static enum tsr_status add_divided_param(const struct tsr_zero *z, const struct tsr_zero_param *p,
					 const struct pieces *pieces, struct tsr_flat_join *j)
{
	for (size_t i = 0; i < z->nranks && j->numel < p->numel; i++) {
		const uint64_t left = p->numel - j->numel;

		TSR_TRY(tsr_flat_join_add(j, pieces->array[i], p->first,
					  left < p->part ? left : p->part));
	}
	return TSR_OK;
}

static const char *join_name(const struct tsr_zero *z, const char *name, const char *field)
{
	return tsr_arena_printf(z->d->c->arena, "%s%s%s", name, *field ? "." : "", field);
}

static enum tsr_status join_param(const struct tsr_zero *z, const struct tsr_zero_param *p,
				  const struct pieces *pieces, size_t *array_ret)
{
	TSR_SCOPED(tsr_flat_join_free)
	struct tsr_flat_join j = { .c = z->d->c,
				   .name = join_name(z, p->name, pieces->field),
				   .err = z->d->err,
				   .dtype = z->d->c->arrays[pieces->array[0]].dtype };

	if (!j.name)
		return tsr_build_nomem(j.c, j.err);
	TSR_TRY(z->stage3 ? add_divided_param(z, p, pieces, &j)
			  : add_divided_group(z, p, pieces, &j));
	return tsr_flat_join_finish(&j, p->rank, p->shape, array_ret);
}

/* --- Groups ------------------------------------------------------------------------------------- */

/* The parameters of a group are next to each other. */
struct span {
	struct tsr_zero_param *params;
	size_t n;
};

/* A state with a value per element: the same field of all ranks, joined for each parameter. */
static enum tsr_status join_field(const struct tsr_zero *z, size_t group, struct pieces *pieces,
				  const struct span *span)
{
	struct tsr_checkpoint *c = z->d->c;

	for (size_t i = 0; i < z->nranks; i++) {
		const struct tsr_value *v = tsr_value_at(z->state[i * z->ngroups + group],
							 pieces->field);

		if (!v || v->type != TSR_VALUE_TENSOR)
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: optimizer states of rank %zu: group %zu: found no "
					"tensor %.100s, which rank 0 has",
					z->d->path, i, group, pieces->field);
		pieces->array[i] = v->tensor.array;
	}
	TSR_TRY(check_state(z, group, pieces));
	for (size_t i = 0; i < span->n; i++) {
		size_t array = 0;

		TSR_TRY(join_param(z, &span->params[i], pieces, &array));
		TSR_TRY(tsr_folder_set(z->d, span->params[i].state, pieces->field,
				       tsr_value_tensor(c->arena, array)));
	}
	return TSR_OK;
}

/* The longest number of a group, in bytes. */
#define NUMBER_MAX 16u

/* What is no value per element is the same on all ranks. */
static enum tsr_status check_same_number(const struct tsr_zero *z, size_t group, const char *field,
					 const struct tsr_value *first)
{
	const struct tsr_checkpoint *c = z->d->c;
	const struct tsr_array *a = &c->arrays[first->tensor.array];
	unsigned char expected[NUMBER_MAX], found[NUMBER_MAX];

	if (a->nbytes > NUMBER_MAX)
		return tsr_fail(
			z->d->err, TSR_E_UNSUPPORTED,
			"%s: optimizer states: group %zu: %.100s: found a tensor of %" PRIu64
			" elements, expected one number or a value per element",
			z->d->path, group, field, a->numel);
	TSR_TRY(tsr_array_read(c, a, 0, (size_t)a->nbytes, expected, z->d->err));
	for (size_t i = 1; i < z->nranks; i++) {
		const struct tsr_value *v = tsr_value_at(z->state[i * z->ngroups + group], field);
		const struct tsr_array *b = v && v->type == TSR_VALUE_TENSOR
						    ? &c->arrays[v->tensor.array]
						    : NULL;

		if (b && b->dtype == a->dtype && b->nbytes == a->nbytes) {
			TSR_TRY(tsr_array_read(c, b, 0, (size_t)b->nbytes, found, z->d->err));
			if (memcmp(found, expected, (size_t)a->nbytes) == 0)
				continue;
		}
		return tsr_fail(z->d->err, TSR_E_FORMAT,
				"%s: optimizer states of rank %zu: group %zu: %.100s: expected the "
				"number that rank 0 has (is it one save?)",
				z->d->path, i, group, field);
	}
	return TSR_OK;
}

/* A number of the group, such as `step`: each parameter gets one of its own, as rank 0 has it. */
static enum tsr_status copy_field(const struct tsr_zero *z, const char *field,
				  struct tsr_value *found, const struct span *span)
{
	struct tsr_checkpoint *c = z->d->c;

	for (size_t i = 0; i < span->n; i++) {
		struct tsr_value *v = found;

		if (found->type == TSR_VALUE_TENSOR) {
			struct tsr_array a = c->arrays[found->tensor.array];
			size_t array;

			a.name = join_name(z, span->params[i].name, field);
			if (!a.name)
				return tsr_build_nomem(c, z->d->err);
			TSR_TRY(tsr_build_array(c, &a, &array, z->d->err));
			v = tsr_value_tensor(c->arena, array);
		}
		TSR_TRY(tsr_folder_set(z->d, span->params[i].state, field, v));
	}
	return TSR_OK;
}

/* Each state becomes one of every parameter of its group; optimizers have fewer than ten. */
#define STATES_MAX 64u

static enum tsr_status join_states(const struct tsr_zero *z, size_t group, struct pieces *pieces,
				   const struct span *span)
{
	const struct tsr_value *state = z->state[group];

	if (state && state->list.n / 2 > STATES_MAX)
		return tsr_fail(
			z->d->err, TSR_E_LIMIT,
			"%s: optimizer states of rank 0: group %zu: %zu states are over the "
			"limit of %u",
			z->d->path, group, state->list.n / 2, STATES_MAX);
	for (size_t i = 0; state && i + 1 < state->list.n; i += 2) {
		const struct tsr_value *key = state->list.items[i];
		struct tsr_value *v = state->list.items[i + 1];
		const bool whole = v->type != TSR_VALUE_TENSOR ||
				   z->d->c->arrays[v->tensor.array].rank == 0 ||
				   tsr_value_is_string(key, "step");

		if (key->type != TSR_VALUE_STRING)
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: optimizer states of rank 0: group %zu: found a state "
					"whose key is not text",
					z->d->path, group);
		pieces->field = key->text.bytes;
		if (whole && v->type == TSR_VALUE_TENSOR)
			TSR_TRY(check_same_number(z, group, pieces->field, v));
		TSR_TRY(whole ? copy_field(z, pieces->field, v, span)
			      : join_field(z, group, pieces, span));
	}
	return TSR_OK;
}

static enum tsr_status check_same_states(const struct tsr_zero *z, size_t group)
{
	for (size_t i = 1; i < z->nranks; i++) {
		const struct tsr_value *v = z->state[i * z->ngroups + group],
				       *first = z->state[group];

		if (!v != !first || (v && v->list.n != first->list.n))
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: optimizer states of rank %zu: group %zu: found other "
					"states than on rank 0 (is it one save?)",
					z->d->path, i, group);
	}
	return TSR_OK;
}

static enum tsr_status join_group(const struct tsr_zero *z, size_t group, struct pieces *pieces,
				  const struct span *span)
{
	pieces->field = "";
	for (size_t i = 0; i < z->nranks; i++)
		pieces->array[i] = z->flat[i * z->ngroups + group];
	TSR_TRY(z->stage3 ? check_divided_params(z, group) : check_divided_group(z, group));
	for (size_t i = 0; i < span->n; i++)
		TSR_TRY(join_param(z, &span->params[i], pieces, &span->params[i].weight));
	TSR_TRY(check_same_states(z, group));
	return join_states(z, group, pieces, span);
}

enum tsr_status tsr_zero_join(struct tsr_zero *z)
{
	struct pieces pieces = { .array = NULL };

	TSR_TRY(TSR_TAKE(&pieces.array, z->nranks + 1, z->arena, z->d->err, z->d->path));
	for (size_t g = 0; g < z->ngroups; g++) {
		const struct span span = { z->params + z->group_at[g],
					   z->group_at[g + 1] - z->group_at[g] };

		TSR_TRY(join_group(z, g, &pieces, &span));
	}
	return TSR_OK;
}
