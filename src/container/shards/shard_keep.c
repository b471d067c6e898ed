/* SPDX-License-Identifier: Apache-2.0 */
/* An output in the shards that a model has already. */
#include "container/shards/shard_cut.h"

#include "base/fail.h"
#include "io/dir.h"
#include "io/temporary.h"

#define INDEX_ENDING ".safetensors.index.json"

bool tsr_shards_are(const struct tsr_checkpoint *c)
{
	/* The shards, then their index, which alone gives a checkpoint this path. */
	return !c->packed && c->container == TSR_CONTAINER_SAFETENSORS && c->nfiles > 1 &&
	       tsr_dir_name_ends_with(c->path, INDEX_ENDING) && !tsr_dir_is(c->path);
}

bool tsr_shards_are_own(const struct tsr_checkpoint *c)
{
	const char *index = tsr_path_name(c->path);
	const size_t len = strlen(index) - strlen(INDEX_ENDING);

	for (unsigned f = 0; f + 1 < c->nfiles; f++) {
		const char *name = tsr_path_name(tsr_file_path(c->files[f]));

		if (strncmp(name, index, len) != 0 || name[len] != '-')
			return false;
	}
	return true;
}

/* Arrays by shard; in each as they were. */
struct keeping {
	struct tsr_writer *w;
	size_t *shard; /* per array */
	size_t *begin; /* per shard, of its arrays that are placed */
	struct tsr_st_entry *arrays;
	const char **names; /* of the files */
};

static void group(struct keeping *k, size_t nshards)
{
	const struct tsr_writer_plan *plan = &k->w->plan;
	const struct tsr_checkpoint *like = plan->like;
	size_t shard = 0;

	for (size_t i = 0; i < plan->narrays; i++) {
		const struct tsr_tensor *old = tsr_checkpoint_find(like, k->w->arrays[i].name);

		if (old)
			shard = like->arrays[old->plane[0]].file;
		k->shard[i] = shard;
		k->begin[shard + 1]++;
	}
	for (size_t s = 0; s < nshards; s++)
		k->begin[s + 1] += k->begin[s];
	for (size_t i = 0; i < plan->narrays; i++)
		k->arrays[k->begin[k->shard[i]]++] = k->w->arrays[i];
	if (plan->narrays)
		memcpy(k->w->arrays, k->arrays, plan->narrays * sizeof(*k->arrays));
}

/* Shards that have arrays; the first, if there are none at all.  begin[s] is where shard s ends now. */
static void list_files(struct keeping *k, size_t nshards, struct tsr_shard_cuts *cuts)
{
	const struct tsr_writer_plan *plan = &k->w->plan;

	for (size_t s = 0; s < nshards; s++) {
		const char *name = tsr_path_name(tsr_file_path(plan->like->files[s]));

		if (k->begin[s] == (s ? k->begin[s - 1] : 0) && (s || plan->narrays))
			continue;
		k->names[cuts->nfiles] = name;
		cuts->ends[cuts->nfiles++] = k->begin[s];
	}
}

static enum tsr_status plan_files(struct keeping *k, size_t n, struct tsr_err *err)
{
	struct tsr_writer *w = k->w;

	w->nfiles = n;
	TSR_TRY(TSR_TAKE(&w->files, n, w->arena, err, w->plan.path));
	if (!tsr_dir_name_ends_with(w->plan.path, "/"))
		return tsr_outputs_plan_shards(&w->outputs, w->plan.path, w->plan.force, n, err);
	return tsr_outputs_plan_directory(&w->outputs, w->plan.path, w->plan.force,
					  tsr_path_name(w->plan.like->path), k->names, n, err);
}

enum tsr_status tsr_shards_keep(struct tsr_writer *w, struct tsr_shard_cuts *ret,
				struct tsr_err *err)
{
	const size_t n = w->plan.narrays, nshards = w->plan.like->nfiles - 1;
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct keeping k = { .w = w };

	*ret = (struct tsr_shard_cuts){ .ends = NULL };
	TSR_TRY(TSR_TAKE(&k.shard, n + 1, arena, err, w->plan.path));
	TSR_TRY(TSR_TAKE(&k.begin, nshards + 1, arena, err, w->plan.path));
	TSR_TRY(TSR_TAKE(&k.arrays, n + 1, arena, err, w->plan.path));
	TSR_TRY(TSR_TAKE(&k.names, nshards + 1, arena, err, w->plan.path));
	TSR_TRY(TSR_TAKE(&ret->ends, nshards + 1, w->arena, err, w->plan.path));
	group(&k, nshards);
	list_files(&k, nshards, ret);
	return plan_files(&k, ret->nfiles, err);
}
