/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of Megatron-LM: an iteration's, in its legacy form or as torch.distributed.checkpoint. */
#include <stdio.h>

#include "base/fail.h"
#include "layouts/layouts.h"
#include "torch/dcp.h"

#define TRACKER "latest_checkpointed_iteration.txt"

/* --- FP32 masters ------------------------------------------------------------------------------- */

/* The states of an optimizer by its numbers, which are below @n; to be freed. */
static struct tsr_value **number_states(const struct tsr_value *state, size_t *n_ret)
{
	const struct tsr_value *mapping = tsr_value_mapping(state);
	const size_t n = mapping ? mapping->list.n / 2 : 0;
	struct tsr_value **states = calloc(n + 1, sizeof(struct tsr_value *));

	for (size_t i = 0; states && i < n; i++) {
		uint64_t id;

		if (tsr_value_get_u64(mapping->list.items[2 * i], &id) && id < n)
			states[id] = mapping->list.items[2 * i + 1];
	}
	*n_ret = n;
	return states;
}

/* Give a master to the state of its parameter; false: it has none, or there is no memory. */
static bool give(struct tsr_arena *arena, struct tsr_value *state, struct tsr_value *master)
{
	return state && state->type == TSR_VALUE_DICT && master->type == TSR_VALUE_TENSOR &&
	       !tsr_value_at(state, "fp32_param") &&
	       tsr_value_put_at(arena, state, "fp32_param", master);
}

/*
 * Master i of group g is of the parameter that the group lists at i, if all of the group's have one.
 * As a state it is called by its parameter's name, as torch_dist has it.
 */
static bool give_all(struct tsr_arena *arena, const struct tsr_value *inner,
		     const struct tsr_value *masters, struct tsr_value **states, size_t n)
{
	const struct tsr_value *groups = tsr_value_at(inner, "param_groups");

	if (!groups || groups->type != TSR_VALUE_LIST || masters->type != TSR_VALUE_LIST ||
	    groups->list.n != masters->list.n)
		return false;
	for (size_t g = 0; g < groups->list.n; g++) {
		const struct tsr_value *params = tsr_value_at(groups->list.items[g], "params");
		const struct tsr_value *of_group = masters->list.items[g];

		if (!params || params->type != TSR_VALUE_LIST || of_group->type != TSR_VALUE_LIST ||
		    params->list.n != of_group->list.n)
			return false;
		for (size_t i = 0; i < params->list.n; i++) {
			uint64_t id;

			if (!tsr_value_get_u64(params->list.items[i], &id) || id >= n ||
			    !give(arena, states[id], of_group->list.items[i]))
				return false;
		}
	}
	return true;
}

/* Take the list of masters out of the optimizer once its items are states. */
static enum tsr_status name_masters(const struct tsr_folder *d, const struct tsr_value *root)
{
	struct tsr_value *optimizer = tsr_value_at(root, "optimizer");
	const struct tsr_value *masters = tsr_value_at(optimizer, "fp32_from_fp16_params");
	const struct tsr_value *inner = tsr_value_at(optimizer, "optimizer");
	struct tsr_value **states;
	size_t kept = 0, n;
	bool given;

	if (!masters || optimizer->type != TSR_VALUE_DICT)
		return TSR_OK;
	states = number_states(tsr_value_at(inner, "state"), &n);
	if (!states)
		return tsr_fail_nomem(d->err, d->path);
	given = give_all(d->c->arena, inner, masters, states, n);
	free(states);
	if (!given)
		return tsr_fail(
			d->err, TSR_E_FORMAT,
			"%s: optimizer: fp32_from_fp16_params: expected one FP32 tensor for "
			"each parameter that param_groups lists",
			d->path);
	for (size_t i = 0; i + 1 < optimizer->list.n; i += 2) {
		if (optimizer->list.items[i + 1] == masters)
			continue;
		optimizer->list.items[kept] = optimizer->list.items[i];
		optimizer->list.items[kept + 1] = optimizer->list.items[i + 1];
		kept += 2;
	}
	optimizer->list.n = kept;
	return TSR_OK;
}

/* --- An iteration ------------------------------------------------------------------------------- */

/* Its directory of the only rank: mp_rank_00, or NULL. */
static const char *rank_of(const struct tsr_folder *d)
{
	return tsr_folder_has(d, "mp_rank_00") ? "mp_rank_00" : NULL;
}

static enum tsr_status read_rank(struct tsr_folder *d, void *ctx)
{
	struct tsr_value *root = NULL;
	const struct tsr_value *mapping;

	(void)ctx;
	if (tsr_folder_has(d, "distrib_optim.pt"))
		return tsr_fail(d->err, TSR_E_UNSUPPORTED,
				"%s: found distrib_optim.pt, flat buffers whose order no file of "
				"it keeps; save it as torch_dist with Megatron first",
				d->path);
	TSR_TRY(tsr_folder_torch(d, "model_optim_rng.pt", &root));
	mapping = tsr_value_mapping(root);
	if (!mapping)
		return tsr_fail(d->err, TSR_E_FORMAT,
				"%s/model_optim_rng.pt: found %s, expected a dict", d->path,
				tsr_value_kind(root));
	TSR_TRY(name_masters(d, root));
	return tsr_folder_set_all(d, d->root, mapping);
}

static enum tsr_status read_iteration(struct tsr_folder *d, void *ctx)
{
	if (tsr_dcp_looks_like(d->path))
		return tsr_dcp_folder_read(d);
	for (size_t i = 0; i < d->names.n; i++) {
		const char *name = d->names.names[i];

		if (strncmp(name, "mp_rank_", 8) == 0 && strcmp(name, "mp_rank_00") != 0)
			return tsr_fail(d->err, TSR_E_UNSUPPORTED,
					"%s: found %.200s: a model divided by tensor or pipeline "
					"parallelism, expected mp_rank_00 alone; save it as "
					"torch_dist with Megatron first",
					d->path, name);
	}
	return tsr_folder_within(d, "mp_rank_00", read_rank, ctx);
}

/* --- The directory above ------------------------------------------------------------------------ */

bool tsr_megatron_detect(const struct tsr_folder *d)
{
	return tsr_folder_has(d, TRACKER) || rank_of(d);
}

static enum tsr_status name_iteration(struct tsr_folder *d, char out[40])
{
	const char *line;
	char *end;

	TSR_TRY(tsr_folder_line(d, TRACKER, &line));
	snprintf(out, 40, "iter_%07llu", strtoull(line, &end, 10));
	if (strcmp(line, "release") == 0)
		strcpy(out, "release");
	else if (*line < '0' || *line > '9' || *end)
		return tsr_fail(d->err, TSR_E_FORMAT,
				"%s: " TRACKER ": expected the number of an iteration", d->path);
	return TSR_OK;
}

static bool is_iteration(const struct tsr_folder *d, const char *name)
{
	(void)d;
	return tsr_folder_numbered(name, "iter_", "");
}

enum tsr_status tsr_megatron_read(struct tsr_folder *d)
{
	char name[40];

	if (rank_of(d))
		return read_iteration(d, NULL);
	TSR_TRY(name_iteration(d, name));
	TSR_TRY(tsr_folder_within(d, name, read_iteration, NULL));
	return tsr_folder_skip_others(d, name, is_iteration);
}
