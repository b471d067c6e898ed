/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of ZeRO stages, as param_shapes has them: names, shapes and places in flat groups. */
#include "base/fail.h"
#include "layouts/zero.h"
#include "text/shape.h"

enum tsr_status tsr_zero_shape(const struct tsr_zero *z, const char *name,
			       const struct tsr_value *v, unsigned *rank_ret,
			       const uint64_t **shape_ret, uint64_t *numel_ret)
{
	const bool is_size = v && tsr_value_is_call(v, "torch", "Size") && v->call.args &&
			     v->call.args->type == TSR_VALUE_TUPLE && v->call.args->list.n == 1;
	uint64_t *shape;

	v = is_size ? v->call.args->list.items[0] : v;
	if (!v || (v->type != TSR_VALUE_TUPLE && v->type != TSR_VALUE_LIST) ||
	    v->list.n > TSR_RANK_MAX)
		return tsr_fail(z->d->err, TSR_E_FORMAT,
				"%s: param_shapes: %.200s: expected a torch.Size", z->d->path,
				name);
	TSR_TRY(TSR_ARENA_NEW(&shape, v->list.n, z->d->c->arena,
			      tsr_build_nomem(z->d->c, z->d->err)));
	*rank_ret = (unsigned)v->list.n;
	*shape_ret = shape;
	for (size_t i = 0; i < v->list.n; i++) {
		if (!tsr_value_get_u64(v->list.items[i], &shape[i]))
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: param_shapes: %.200s: found a dimension that is no "
					"number of elements",
					z->d->path, name);
	}
	if (tsr_shape_numel(*rank_ret, shape, numel_ret) && *numel_ret < UINT64_MAX / 64)
		return TSR_OK;
	return tsr_fail(z->d->err, TSR_E_LIMIT,
			"%s: param_shapes: %.200s: shape is over the limit of 2^58 elements",
			z->d->path, name);
}

/* Zeros that stage 2 may put behind parameter @i of a group. */
static enum tsr_status padding_of(const struct tsr_zero *z, size_t group, size_t i, size_t n,
				  uint64_t *ret)
{
	const struct tsr_value *all = z->paddings, *list;

	*ret = 0;
	if (!all || all->type != TSR_VALUE_LIST)
		return TSR_OK;
	list = group < all->list.n ? all->list.items[group] : NULL;
	if (list && list->type == TSR_VALUE_LIST && list->list.n == n &&
	    tsr_value_get_u64(list->list.items[i], ret) && *ret < UINT64_MAX / 64)
		return TSR_OK;
	return tsr_fail(z->d->err, TSR_E_FORMAT,
			"%s: param_alignment_paddings: group %zu: expected %zu numbers of "
			"elements",
			z->d->path, group, n);
}

static enum tsr_status read_group(struct tsr_zero *z, size_t group, const struct tsr_value *shapes)
{
	const size_t n = shapes->list.n / 2;
	bool overflow = false;

	for (size_t i = 0; i < n; i++) {
		const struct tsr_value *name = shapes->list.items[2 * i];
		struct tsr_zero_param *p = &z->params[z->nparams];
		uint64_t padding = 0;

		if (name->type != TSR_VALUE_STRING)
			return tsr_fail(
				z->d->err, TSR_E_FORMAT,
				"%s: param_shapes: group %zu: found a name that is not text",
				z->d->path, group);
		*p = (struct tsr_zero_param){ .name = name->text.bytes,
					      .group = group,
					      .first = z->needed[group] };
		TSR_TRY(tsr_zero_shape(z, p->name, shapes->list.items[2 * i + 1], &p->rank,
				       &p->shape, &p->numel));
		TSR_TRY(padding_of(z, group, i, n, &padding));
		if (z->stage3)
			p->part = p->numel / z->nranks + (p->numel % z->nranks != 0);
		overflow |= __builtin_add_overflow(z->needed[group],
						   z->stage3 ? p->part : p->numel + padding,
						   &z->needed[group]);
		if (overflow || z->needed[group] > UINT64_MAX / 4)
			return tsr_fail(z->d->err, TSR_E_LIMIT,
					"%s: param_shapes: group %zu: is over the limit of 2^62 "
					"elements",
					z->d->path, group);
		z->nparams++;
	}
	return TSR_OK;
}

const struct tsr_zero_param *tsr_zero_find(const struct tsr_zero *z, const char *name)
{
	const struct tsr_named *found = tsr_named_find(z->by_name, z->nparams, name);

	return found ? &z->params[found->index] : NULL;
}

enum tsr_status tsr_zero_param_shapes(struct tsr_zero *z)
{
	const struct tsr_value *shapes = tsr_value_at(z->model[0], "param_shapes");
	size_t n = 0;

	if (!shapes || shapes->type != TSR_VALUE_LIST)
		return tsr_fail(z->d->err, TSR_E_UNSUPPORTED,
				"%s: model states: found no list param_shapes, without which flat "
				"partitions mean nothing",
				z->d->path);
	z->ngroups = shapes->list.n;
	for (size_t i = 0; i < z->ngroups; i++) {
		const struct tsr_value *group = tsr_value_mapping(shapes->list.items[i]);

		if (!group)
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: param_shapes: group %zu: expected a dict", z->d->path,
					i);
		n += group->list.n / 2;
	}
	TSR_TRY(TSR_TAKE(&z->params, n + 1, z->arena, z->d->err, z->d->path));
	TSR_TRY(TSR_TAKE(&z->needed, z->ngroups + 1, z->arena, z->d->err, z->d->path));
	TSR_TRY(TSR_TAKE(&z->group_at, z->ngroups + 1, z->arena, z->d->err, z->d->path));
	for (size_t i = 0; i < z->ngroups; i++) {
		TSR_TRY(read_group(z, i, tsr_value_mapping(shapes->list.items[i])));
		z->group_at[i + 1] = z->nparams;
	}
	TSR_TRY(TSR_TAKE(&z->by_name, z->nparams + 1, z->arena, z->d->err, z->d->path));
	for (size_t i = 0; i < z->nparams; i++)
		z->by_name[i] = (struct tsr_named){ z->params[i].name, i };
	tsr_named_sort(z->by_name, z->nparams);
	for (size_t i = 1; i < z->nparams; i++) {
		if (strcmp(z->by_name[i - 1].name, z->by_name[i].name) == 0)
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: param_shapes: %.200s: found twice", z->d->path,
					z->by_name[i].name);
	}
	return TSR_OK;
}
