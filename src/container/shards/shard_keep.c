/* SPDX-License-Identifier: Apache-2.0 */
/* An output in the shards that a model has already. */
#include "container/shards/shard_keep.h"

#include <stdlib.h>
#include <string.h>

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
	char **names; /* of the files; taken over by the outputs */
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
static enum tsr_status list_files(struct keeping *k, size_t nshards, struct tsr_shard_cuts *cuts,
				  struct tsr_err *err)
{
	const struct tsr_writer_plan *plan = &k->w->plan;

	for (size_t s = 0; s < nshards; s++) {
		const char *name = tsr_path_name(tsr_file_path(plan->like->files[s]));

		if (k->begin[s] == (s ? k->begin[s - 1] : 0) && (s || plan->narrays))
			continue;
		k->names[cuts->nfiles] = strdup(name);
		if (!k->names[cuts->nfiles])
			return tsr_fail_nomem(err, plan->path);
		cuts->ends[cuts->nfiles++] = k->begin[s];
	}
	return TSR_OK;
}

static enum tsr_status plan_files(struct keeping *k, size_t n, struct tsr_err *err)
{
	struct tsr_writer *w = k->w;
	char **names = k->names;

	w->nfiles = n;
	TSR_TRY(TSR_NEW(&w->files, n, err, w->plan.path));
	if (!tsr_dir_name_ends_with(w->plan.path, "/"))
		return tsr_outputs_plan_shards(&w->outputs, w->plan.path, w->plan.force, n, err);
	k->names = NULL;
	return tsr_outputs_plan_directory(&w->outputs, w->plan.path, w->plan.force,
					  tsr_path_name(w->plan.like->path), names, n, err);
}

static enum tsr_status keep(struct keeping *k, size_t nshards, struct tsr_shard_cuts *cuts,
			    struct tsr_err *err)
{
	const size_t n = k->w->plan.narrays;

	k->shard = calloc(n + 1, sizeof(*k->shard));
	k->begin = calloc(nshards + 1, sizeof(*k->begin));
	k->arrays = calloc(n + 1, sizeof(*k->arrays));
	k->names = calloc(nshards + 1, sizeof(*k->names));
	cuts->ends = calloc(nshards + 1, sizeof(*cuts->ends));
	if (!k->shard || !k->begin || !k->arrays || !k->names || !cuts->ends)
		return tsr_fail_nomem(err, k->w->plan.path);
	group(k, nshards);
	TSR_TRY(list_files(k, nshards, cuts, err));
	return plan_files(k, cuts->nfiles, err);
}

enum tsr_status tsr_shards_keep(struct tsr_writer *w, struct tsr_shard_cuts *ret,
				struct tsr_err *err)
{
	const size_t nshards = w->plan.like->nfiles - 1;
	struct tsr_shard_cuts cuts = { .ends = NULL };
	struct keeping k = { .w = w };
	enum tsr_status status = keep(&k, nshards, &cuts, err);

	for (size_t i = 0; k.names && i < nshards; i++)
		free(k.names[i]);
	free(k.names);
	free(k.arrays);
	free(k.begin);
	free(k.shard);
	if (status == TSR_OK)
		*ret = cuts;
	else
		free(cuts.ends);
	return status;
}
