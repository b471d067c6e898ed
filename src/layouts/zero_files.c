/* SPDX-License-Identifier: Apache-2.0 */
/* The files of DeepSpeed's ZeRO stages: one of the model and one of the optimizer per rank. */
#include <stdio.h>

#include "base/fail.h"
#include "layouts/zero.h"

/* --- Names of files ----------------------------------------------------------------------------- */

/* A file of one rank: "zero_pp_rank_1_mp_rank_00_optim_states.pt". */
struct rank_file {
	uint64_t rank, model_rank; /* of data and of model parallelism */
	bool optim;
};

/* Whether a name is one of a rank's files; old versions have no "_" before "optim_states". */
static bool parse(const char *name, struct rank_file *ret)
{
	static const char *const prefixes[] = { "", "bf16_", "fp16_" };
	int end = 0;

	*ret = (struct rank_file){ .rank = 0 };
	if (sscanf(name, "mp_rank_%5" SCNu64 "_model_states.pt%n", &ret->model_rank, &end) == 1 &&
	    end && !name[end])
		return true;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
		const size_t n = strlen(prefixes[i]);
		const char *tail;

		if (strncmp(name, prefixes[i], n) != 0)
			continue;
		end = 0;
		if (sscanf(name + n, "zero_pp_rank_%9" SCNu64 "_mp_rank_%5" SCNu64 "%n", &ret->rank,
			   &ret->model_rank, &end) != 2 ||
		    !end)
			continue;
		tail = name + n + end;
		ret->optim = strcmp(tail, "_optim_states.pt") == 0 ||
			     strcmp(tail, "optim_states.pt") == 0;
		return ret->optim || strcmp(tail, "_model_states.pt") == 0;
	}
	return false;
}

/* Parts of experts, and layers of pipelines. */
static bool is_parallel(const char *name)
{
	return (strncmp(name, "layer_", 6) == 0 && tsr_dir_name_ends_with(name, "states.pt")) ||
	       strncmp(name, "expp_rank_", 10) == 0;
}

/* --- Reading them ------------------------------------------------------------------------------- */

static enum tsr_status count_files(struct tsr_zero *z)
{
	uint64_t noptims = 0, nmodels = 0;

	for (size_t i = 0; i < z->d->names.n; i++) {
		const char *name = z->d->names.names[i];
		struct rank_file f;

		if (is_parallel(name) || (parse(name, &f) && f.model_rank))
			return tsr_fail(
				z->d->err, TSR_E_UNSUPPORTED,
				"%s: found %.200s: a model divided by tensor, pipeline or expert "
				"parallelism, expected one of data parallelism alone; let "
				"DeepSpeed's ds_to_universal.py join it first",
				z->d->path, name);
		if (!parse(name, &f))
			continue;
		noptims += f.optim;
		nmodels += !f.optim;
		z->divided = z->divided || (!f.optim && strncmp(name, "zero_pp_", 8) == 0);
	}
	if (noptims > TSR_ZERO_RANKS_MAX || nmodels > TSR_ZERO_RANKS_MAX)
		return tsr_fail(z->d->err, TSR_E_LIMIT, "%s: has more ranks than the limit of %u",
				z->d->path, TSR_ZERO_RANKS_MAX);
	z->nranks = noptims;
	z->nmodels = nmodels;
	return TSR_OK;
}

static enum tsr_status missing(const struct tsr_zero *z, const char *what, size_t rank, size_t n)
{
	return tsr_fail(z->d->err, TSR_E_FORMAT,
			"%s: found %zu files of %s without one of rank %zu (is it one save, and a "
			"complete one?)",
			z->d->path, n, what, rank);
}

static enum tsr_status read_file(struct tsr_zero *z, const char *name, const struct rank_file *f)
{
	struct tsr_value **list = f->optim ? z->optim : z->model;
	const size_t n = f->optim ? z->nranks : z->nmodels;

	if (f->rank >= n)
		return tsr_fail(z->d->err, TSR_E_FORMAT,
				"%s: found %.200s among files of %zu ranks, expected ranks 0 to "
				"%zu (is it one save, and a complete one?)",
				z->d->path, name, n, n - 1);
	if (list[f->rank])
		return tsr_fail(z->d->err, TSR_E_FORMAT, "%s: found %.200s and another of its rank",
				z->d->path, name);
	TSR_TRY(tsr_folder_torch(z->d, name, &list[f->rank]));
	if (tsr_value_mapping(list[f->rank]))
		return TSR_OK;
	return tsr_fail(z->d->err, TSR_E_FORMAT, "%s/%.200s: found %s, expected a dict", z->d->path,
			name, tsr_value_kind(list[f->rank]));
}

static enum tsr_status read_files(struct tsr_zero *z)
{
	TSR_TRY(TSR_TAKE(&z->model, z->nmodels + 1, z->arena, z->d->err, z->d->path));
	TSR_TRY(TSR_TAKE(&z->optim, z->nranks + 1, z->arena, z->d->err, z->d->path));
	for (size_t i = 0; i < z->d->names.n; i++) {
		struct rank_file f;

		if (parse(z->d->names.names[i], &f))
			TSR_TRY(read_file(z, z->d->names.names[i], &f));
	}
	for (size_t i = 0; i < z->nmodels; i++) {
		if (!z->model[i])
			return missing(z, "model states", i, z->nmodels);
	}
	for (size_t i = 0; i < z->nranks; i++) {
		const struct tsr_value *optim;

		if (!z->optim[i])
			return missing(z, "optimizer states", i, z->nranks);
		optim = tsr_value_at(z->optim[i], "optimizer_state_dict");
		if (!tsr_value_mapping(optim))
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: optimizer states of rank %zu: found no dict "
					"optimizer_state_dict",
					z->d->path, i);
	}
	if (z->nmodels)
		return TSR_OK;
	return tsr_fail(z->d->err, TSR_E_FORMAT, "%s: found no file of model states", z->d->path);
}

/* --- What they say ------------------------------------------------------------------------------ */

static const struct tsr_value *optim_of(const struct tsr_zero *z, size_t rank)
{
	return tsr_value_at(z->optim[rank], "optimizer_state_dict");
}

static const struct tsr_value *flat_list(const struct tsr_zero *z, size_t rank)
{
	return tsr_value_at(optim_of(z, rank),
			    z->stage3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
}

static enum tsr_status check_flat(const struct tsr_zero *z, size_t rank)
{
	const struct tsr_value *list = flat_list(z, rank);
	bool right = list && (list->type == TSR_VALUE_LIST || list->type == TSR_VALUE_TUPLE) &&
		     list->list.n == z->ngroups;

	for (size_t i = 0; right && i < list->list.n; i++)
		right = list->list.items[i]->type == TSR_VALUE_TENSOR;
	if (right)
		return TSR_OK;
	return tsr_fail(z->d->err, TSR_E_FORMAT,
			"%s: optimizer states of rank %zu: expected %zu flat FP32 tensors, as many "
			"as param_shapes has groups",
			z->d->path, rank, z->ngroups);
}

static enum tsr_status unknown_state(const struct tsr_zero *z, size_t rank)
{
	return tsr_fail(z->d->err, TSR_E_FORMAT,
			"%s: optimizer states of rank %zu: found a state that is of none of the "
			"%zu groups in param_shapes (is it one save?)",
			z->d->path, rank, z->ngroups);
}

static enum tsr_status list_states(struct tsr_zero *z, size_t rank)
{
	const struct tsr_value **of_rank = z->state + rank * z->ngroups;
	const struct tsr_value *base = tsr_value_at(
		optim_of(z, rank), z->stage3 ? "optimizer_state_dict" : "base_optimizer_state");
	const struct tsr_value *state = tsr_value_mapping(tsr_value_at(base, "state"));

	/* An elastic checkpoint has a list with the state of each group. */
	if (base && base->type == TSR_VALUE_LIST && base->list.n > z->ngroups)
		return unknown_state(z, rank);
	for (size_t i = 0; base && base->type == TSR_VALUE_LIST && i < base->list.n; i++)
		of_rank[i] = tsr_value_mapping(base->list.items[i]);
	for (size_t i = 0; state && i + 1 < state->list.n; i += 2) {
		uint64_t id;

		if (!tsr_value_get_u64(state->list.items[i], &id) || id >= z->ngroups)
			return unknown_state(z, rank);
		of_rank[id] = tsr_value_mapping(state->list.items[i + 1]);
	}
	return TSR_OK;
}

/* A number for all groups, or a list with one for each. */
static enum tsr_status check_partitions(const struct tsr_zero *z, size_t rank)
{
	const struct tsr_value *v = tsr_value_at(optim_of(z, rank), "partition_count");
	const bool is_list = v && v->type == TSR_VALUE_LIST;

	for (size_t i = 0; v && i < (is_list ? v->list.n : 1); i++) {
		const struct tsr_value *item = is_list ? v->list.items[i] : v;
		uint64_t n;

		if (!tsr_value_get_u64(item, &n) || n != z->nranks)
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: optimizer states of rank %zu: found a partition_count "
					"other than %zu, the number of its files (is it one save, "
					"and a complete one?)",
					z->d->path, rank, z->nranks);
	}
	return TSR_OK;
}

/* Files of two saves in one directory differ in the number of steps. */
static enum tsr_status check_steps(const struct tsr_zero *z)
{
	uint64_t first = 0, n = 0;

	tsr_value_get_u64(tsr_value_at(z->model[0], "global_steps"), &first);
	for (size_t i = 1; i < z->nmodels; i++) {
		if (tsr_value_get_u64(tsr_value_at(z->model[i], "global_steps"), &n) && n != first)
			return tsr_fail(z->d->err, TSR_E_FORMAT,
					"%s: model states of rank %zu: found global_steps %" PRIu64
					", expected %" PRIu64 " as on rank 0 (is it one save?)",
					z->d->path, i, n, first);
	}
	return TSR_OK;
}

static enum tsr_status read_params(struct tsr_zero *z)
{
	if (z->nranks)
		z->stage3 = tsr_value_at(optim_of(z, 0), "fp32_flat_groups") != NULL;
	if (z->nranks && z->divided && z->nmodels != z->nranks)
		return tsr_fail(z->d->err, TSR_E_FORMAT,
				"%s: found %zu files of model states and %zu of optimizer states, "
				"expected as many of each (is it one save, and a complete one?)",
				z->d->path, z->nmodels, z->nranks);
	for (size_t i = 0; i < z->nranks; i++)
		TSR_TRY(check_partitions(z, i));
	TSR_TRY(check_steps(z));
	if (z->nranks && !z->stage3)
		z->paddings = tsr_value_at(optim_of(z, 0), "param_alignment_paddings");
	TSR_TRY(tsr_zero_param_shapes(z));
	for (size_t i = 0; i < z->nparams; i++) {
		z->params[i].state = tsr_value_new(z->d->c->arena, TSR_VALUE_DICT);
		if (!z->params[i].state)
			return tsr_build_nomem(z->d->c, z->d->err);
	}
	/* The flat weights and the states of each rank; what is allocated is as much as was read. */
	for (size_t i = 0; i < z->nranks; i++)
		TSR_TRY(check_flat(z, i));
	TSR_TRY(TSR_TAKE(&z->flat, z->nranks * z->ngroups + 1, z->arena, z->d->err, z->d->path));
	TSR_TRY(TSR_TAKE(&z->state, z->nranks * z->ngroups + 1, z->arena, z->d->err, z->d->path));
	for (size_t i = 0; i < z->nranks; i++) {
		const struct tsr_value *flat = flat_list(z, i);

		for (size_t g = 0; g < z->ngroups; g++)
			z->flat[i * z->ngroups + g] = flat->list.items[g]->tensor.array;
		TSR_TRY(list_states(z, i));
	}
	return TSR_OK;
}

enum tsr_status tsr_zero_read(struct tsr_folder *d, bool universal, struct tsr_zero *ret)
{
	*ret = (struct tsr_zero){ .d = d,
				  .arena = tsr_arena_new(SIZE_MAX),
				  .first = d->c->narrays };
	TSR_TRY(count_files(ret));
	TSR_TRY(read_files(ret));
	if (ret->nranks && universal)
		return tsr_fail(
			d->err, TSR_E_UNSUPPORTED,
			"%s: found a directory zero and files of optimizer states, expected "
			"a universal checkpoint or one of ZeRO stages",
			d->path);
	return ret->nranks || universal ? read_params(ret) : TSR_OK;
}

void tsr_zero_free(struct tsr_zero *z)
{
	tsr_arena_free(z->arena);
}
