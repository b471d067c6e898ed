/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of ZeRO stages once partitions are joined: model, optimizer by name, and the rest. */
#include <stdio.h>

#include "base/fail.h"
#include "layouts/zero.h"
#include "text/bytes.h"

/* What the files say of partitions, which whole tensors do not have, and what is joined. */
static const char partitioning[] =
	"module optimizer param_shapes buffer_names shared_params frozen_param_shapes "
	"frozen_param_fragments optimizer_state_dict base_optimizer_state "
	"single_partition_of_fp32_groups fp32_flat_groups zero_stage partition_count "
	"group_paddings "
	"param_alignment_paddings param_slice_mappings ds_zero_partition_groups param_groups";

static bool is_partitioning(const struct tsr_value *key)
{
	return key->type == TSR_VALUE_STRING &&
	       tsr_word_place(partitioning, key->text.bytes, key->text.nbytes) != SIZE_MAX;
}

/* --- The optimizer ------------------------------------------------------------------------------ */

static const struct tsr_value *base_of(const struct tsr_zero *z)
{
	if (z->common)
		return z->common;
	return tsr_value_at(tsr_value_at(z->optim[0], "optimizer_state_dict"),
			    z->stage3 ? "optimizer_state_dict" : "base_optimizer_state");
}

/* Add the names of a flat group's parameters. */
static enum tsr_status add_names(const struct tsr_zero *z, struct tsr_value *names, size_t group)
{
	struct tsr_arena *arena = z->d->c->arena;

	for (size_t i = z->group_at[group]; i < z->group_at[group + 1]; i++) {
		if (!tsr_value_add(arena, names, tsr_value_string(arena, z->params[i].name)))
			return tsr_build_nomem(z->d->c, z->d->err);
	}
	return TSR_OK;
}

/* A group of the base optimizer, with names in place of the numbers of flat groups. */
static enum tsr_status name_group(const struct tsr_zero *z, const struct tsr_value *old,
				  bool *listed, struct tsr_value **ret)
{
	struct tsr_arena *arena = z->d->c->arena;
	struct tsr_value *group = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *names = tsr_value_new(arena, TSR_VALUE_LIST);
	const struct tsr_value *params = tsr_value_at(old, "params");
	const struct tsr_value *mapping = tsr_value_mapping(old);

	for (size_t i = 0; mapping && i + 1 < mapping->list.n; i += 2) {
		if (!tsr_value_is_string(mapping->list.items[i], "params") &&
		    !tsr_value_put(arena, group, mapping->list.items[i],
				   mapping->list.items[i + 1]))
			return tsr_build_nomem(z->d->c, z->d->err);
	}
	for (size_t i = 0; params && params->type == TSR_VALUE_LIST && i < params->list.n; i++) {
		uint64_t id;

		if (!tsr_value_get_u64(params->list.items[i], &id) || id >= z->ngroups ||
		    listed[id])
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: optimizer states of rank 0: param_groups: found an "
					"entry that is no flat group, or one listed before",
					z->d->path);
		listed[id] = true;
		TSR_TRY(add_names(z, names, (size_t)id));
	}
	*ret = group;
	return tsr_folder_set(z->d, group, "params", names);
}

/* All groups; flat groups that none of the base optimizer's lists, as in elastic ones, are their own. */
static enum tsr_status name_groups(const struct tsr_zero *z, bool *listed, struct tsr_value *groups)
{
	const struct tsr_value *old = tsr_value_at(base_of(z), "param_groups");
	struct tsr_arena *arena = z->d->c->arena;
	struct tsr_value *group = NULL, *names;

	for (size_t i = 0; old && old->type == TSR_VALUE_LIST && i < old->list.n; i++) {
		TSR_TRY(name_group(z, old->list.items[i], listed, &group));
		if (!tsr_value_add(arena, groups, group))
			return tsr_build_nomem(z->d->c, z->d->err);
	}
	for (size_t g = 0; g < z->ngroups; g++) {
		if (listed[g])
			continue;
		group = tsr_value_new(arena, TSR_VALUE_DICT);
		names = tsr_value_new(arena, TSR_VALUE_LIST);
		TSR_TRY(add_names(z, names, g));
		TSR_TRY(tsr_folder_set(z->d, group, "params", names));
		if (!tsr_value_add(arena, groups, group))
			return tsr_build_nomem(z->d->c, z->d->err);
	}
	return TSR_OK;
}

static enum tsr_status make_optimizer(const struct tsr_zero *z, struct tsr_value *optimizer)
{
	struct tsr_arena *arena = z->d->c->arena;
	struct tsr_value *state = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *groups = tsr_value_new(arena, TSR_VALUE_LIST);
	bool *listed;

	for (size_t i = 0; i < z->nparams; i++) {
		if (z->params[i].state->list.n)
			TSR_TRY(tsr_folder_set(z->d, state, z->params[i].name, z->params[i].state));
	}
	TSR_TRY(TSR_TAKE(&listed, z->ngroups + 1, z->arena, z->d->err, z->d->path));
	TSR_TRY(name_groups(z, listed, groups));
	TSR_TRY(tsr_folder_set(z->d, optimizer, "state", state));
	return tsr_folder_set(z->d, optimizer, "param_groups", groups);
}

/* --- The rest ----------------------------------------------------------------------------------- */

/* Without marks: what one key shares with another is in both. */
static bool holds_tensor(const struct tsr_value *v)
{
	const size_t n = tsr_value_nchildren(v);

	if (v->type == TSR_VALUE_TENSOR)
		return true;
	for (size_t i = 0; i < n; i++) {
		const struct tsr_value *child = tsr_value_child(v, i);

		if (child && holds_tensor(child))
			return true;
	}
	return false;
}

/* Put what a file holds besides partitions into @dict; of other ranks than 0 only what has tensors. */
static enum tsr_status put_rest(const struct tsr_zero *z, const struct tsr_value *file, size_t rank,
				struct tsr_value *dict)
{
	const struct tsr_value *mapping = tsr_value_mapping(file);

	for (size_t i = 0; mapping && i + 1 < mapping->list.n; i += 2) {
		struct tsr_value *key = mapping->list.items[i], *v = mapping->list.items[i + 1];

		if (is_partitioning(key) || (rank && !holds_tensor(v)))
			continue;
		if (!tsr_value_put(z->d->c->arena, dict, key, v))
			return tsr_build_nomem(z->d->c, z->d->err);
	}
	return TSR_OK;
}

/* What a rank has of its own; ranks other than 0 rarely have anything. */
static enum tsr_status put_rank(const struct tsr_zero *z, size_t rank)
{
	struct tsr_arena *arena = z->d->c->arena;
	struct tsr_value *optim = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *model = rank ? tsr_value_new(arena, TSR_VALUE_DICT) : z->d->root;
	char key[40];

	if (!optim || !model)
		return tsr_build_nomem(z->d->c, z->d->err);
	if (rank < z->nmodels)
		TSR_TRY(put_rest(z, z->model[rank], rank, model));
	if (!rank && z->common)
		TSR_TRY(put_rest(z, z->common, rank, optim));
	if (rank < z->nranks)
		TSR_TRY(put_rest(z, tsr_value_at(z->optim[rank], "optimizer_state_dict"), rank,
				 optim));
	if (optim->list.n)
		TSR_TRY(rank ? tsr_folder_set(z->d, model, "zero_optimizer", optim)
			     : tsr_folder_put(z->d, "zero_optimizer", optim));
	snprintf(key, sizeof(key), "zero_rank_%zu", rank);
	return rank && model->list.n ? tsr_folder_put(z->d, key, model) : TSR_OK;
}

enum tsr_status tsr_zero_put(struct tsr_zero *z)
{
	struct tsr_value *optimizer = tsr_value_new(z->d->c->arena, TSR_VALUE_DICT), *model = NULL;
	const size_t n = z->nranks > z->nmodels ? z->nranks : z->nmodels;

	TSR_TRY(tsr_zero_model(z, &model));
	TSR_TRY(tsr_folder_put(z->d, "module", model));
	TSR_TRY(make_optimizer(z, optimizer));
	TSR_TRY(tsr_folder_put(z->d, "optimizer", optimizer));
	for (size_t i = 0; i < n; i++)
		TSR_TRY(put_rank(z, i));
	return n < 2 ? TSR_OK
		     : tsr_build_remark(
			       z->d->c, z->d->err,
			       "%.200s: of %zu ranks, values that are no tensors are those "
			       "of rank 0",
			       z->d->path, n);
}
