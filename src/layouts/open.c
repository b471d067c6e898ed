/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: what each input is, and how several become one checkpoint. */
#include "io/dir.h"
#include "io/spool.h"
#include "io/temporary.h"
#include "base/fail.h"
#include "io/pages.h"
#include "base/option_size.h"
#include "ckpt/coded/deltas.h"
#include "ckpt/meta.h"
#include "container/containers.h"
#include "container/packed/packed_read.h"
#include "container/tree.h"
#include "layouts/folder.h"
#include "layouts/open.h"
#include "names/state_dict.h"
#include "torch/dcp.h"
#include "torch/torch.h"

/* --- One input -------------------------------------------------------------------------------- */

static enum tsr_status read_path(struct tsr_checkpoint *c, const char *path,
				 const struct tsr_open_options *options, struct tsr_err *err)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;
	bool is_index = false;

	TSR_TRY(tsr_spool_open(path, &f, err));
	if (!c->path)
		c->path = tsr_arena_string(c->arena, path);
	status = c->path ? tsr_sharded_detect(f, &is_index, err) : tsr_fail_nomem(err, path);
	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	return is_index ? tsr_sharded_read(c, f, options, err)
			: tsr_container_read(c, f, options, err);
}

/* DIR/.metadata: the checkpoint of torch.distributed.checkpoint without other files of its folder. */
static bool is_metadata(const char *path)
{
	const char *name = tsr_path_name(path);

	return name > path + 1 && strcmp(name, ".metadata") == 0;
}

static enum tsr_status read_dcp(struct tsr_checkpoint *c, const char *path,
				const struct tsr_open_options *options, struct tsr_err *err)
{
	const char *directory = tsr_arena_copy(c->arena, path, (size_t)(strrchr(path, '/') - path));

	if (!directory)
		return tsr_build_nomem(c, err);
	if (!c->path)
		c->path = directory;
	if (!c->nfiles)
		c->container = TSR_CONTAINER_DCP;
	c->from_folder = true;
	return tsr_dcp_read_links(c, directory, options->follow, err);
}

/* --- All inputs ------------------------------------------------------------------------------- */

/* Sort the metadata of all files and drop what two of them agree on. */
static enum tsr_status join_meta(struct tsr_checkpoint *c, struct tsr_err *err)
{
	size_t kept = 0;

	tsr_meta_sort(c->meta, c->nmeta);
	for (size_t i = 0; i < c->nmeta; i++) {
		if (!kept || strcmp(c->meta[kept - 1].key, c->meta[i].key) != 0)
			c->meta[kept++] = c->meta[i];
		else if (strcmp(c->meta[kept - 1].value, c->meta[i].value) != 0)
			return tsr_fail(
				err, TSR_E_FORMAT,
				"%s: __metadata__: the inputs differ in the value of %.200s",
				c->path, c->meta[i].key);
	}
	c->nmeta = kept;
	return TSR_OK;
}

/* What unpacking left behind: how often these values went through a lossy codec. */
static enum tsr_status read_generation(struct tsr_checkpoint *c, struct tsr_err *err)
{
	const char *text = tsr_meta_find(c->meta, c->nmeta, TSR_GENERATION_KEY);
	unsigned long value;
	char *end;

	if (!text)
		return TSR_OK;
	value = strtoul(text, &end, 10);
	if (*text < '1' || *text > '9' || *end || value > TSR_GENERATION_MAX)
		return tsr_fail(
			err, TSR_E_FORMAT,
			"%s: __metadata__: found %s %.40s, expected an integer from 1 to %u",
			c->path, TSR_GENERATION_KEY, text, TSR_GENERATION_MAX);
	c->generation = (unsigned)value;
	return TSR_OK;
}

/* A delta opens its base, which may be a delta. */
static tsr_open_fn open_checkpoint;

/* Names, states and trees, once the arrays of all inputs are there. */
static enum tsr_status complete(struct tsr_checkpoint *c, const struct tsr_open_options *options,
				unsigned depth, bool later, bool joined, struct tsr_err *err)
{
	TSR_TRY(join_meta(c, err));
	if (!c->packed) {
		TSR_TRY(read_generation(c, err));
		TSR_TRY(tsr_state_dict_name(c, options, err));
		TSR_TRY(tsr_import_states(c, options, err));
	}
	TSR_TRY(tsr_build_index(c, err));
	TSR_TRY(tsr_packed_share(c, err));
	if (c->packed)
		c->set = tsr_tensors_set(c->tensors, c->ntensors);
	TSR_TRY(tsr_open_base(c, options, depth, later, open_checkpoint, err));
	TSR_TRY(tsr_tree_restore(c, err));
	TSR_TRY(tsr_places_mark(c, err));
	TSR_TRY(tsr_tree_complete(c, joined, err));
	return tsr_torch_name_carried(c, err);
}

static enum tsr_status read_all(struct tsr_checkpoint *c, const char *const *paths, unsigned npaths,
				const struct tsr_open_options *options, unsigned depth, bool later,
				struct tsr_err *err)
{
	for (unsigned i = 0; i < npaths; i++) {
		if (tsr_dir_is(paths[i]))
			TSR_TRY(tsr_folder_read(c, paths[i], options, err));
		else if (is_metadata(paths[i]))
			TSR_TRY(read_dcp(c, paths[i], options, err));
		else
			TSR_TRY(read_path(c, paths[i], options, err));
		if (c->packed && npaths > 1)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: is a packed file, which cannot be joined with others",
					paths[i]);
	}
	if (c->packed && c->shard.number != c->shard.count)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is shard %" PRIu64 " of %" PRIu64
				" of a packed checkpoint; name its *.index.json",
				c->path, c->shard.number, c->shard.count);
	return complete(c, options, depth, later, npaths > 1 || c->from_folder, err);
}

/* So many arrays are worth a look at all of the heap. */
#define TRIM_ARRAYS 10000u

static enum tsr_status begin(const struct tsr_open_options *o, const char *path,
			     struct tsr_checkpoint **ret, struct tsr_err *err)
{
	TSR_TRY(TSR_NEW(ret, 1, err, path));
	(*ret)->opaque = o->opaque;
	(*ret)->arena = tsr_arena_new(TSR_BUILD_NBYTES_FREE);
	return (*ret)->arena ? TSR_OK : tsr_fail_nomem(err, path);
}

static enum tsr_status open_checkpoint(const char *const *paths, unsigned npaths,
				       const struct tsr_open_options *o, unsigned depth, bool later,
				       struct tsr_checkpoint **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;

	TSR_TRY(begin(o, paths[0], &c, err));
	TSR_TRY(read_all(c, paths, npaths, o, depth, later, err));
	/* What their headers and indices were parsed into is as large as the model of them. */
	if (c->narrays >= TRIM_ARRAYS)
		tsr_pages_trim();
	return TSR_GIVE(ret, c);
}

enum tsr_status tsr_checkpoint_open(const char *const *paths, unsigned npaths,
				    const struct tsr_open_options *options,
				    struct tsr_checkpoint **ret, struct tsr_err *err)
{
	struct tsr_open_options o = tsr_open_defaults();

	TSR_TRY(tsr_options_take(&o, options, err));
	return open_checkpoint(paths, npaths, &o, TSR_CHAIN_MAX, false, ret, err);
}

enum tsr_status tsr_update_open(const char *path, const struct tsr_open_options *options,
				struct tsr_checkpoint **ret, struct tsr_err *err)
{
	return open_checkpoint(&path, 1, options, TSR_CHAIN_MAX, true, ret, err);
}

enum tsr_status tsr_job_open(const struct tsr_job_state *state, const struct tsr_open_options *o,
			     struct tsr_checkpoint **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;

	TSR_TRY(begin(o, state->name, &c, err));
	c->path = tsr_arena_string(c->arena, state->name);
	if (!c->path)
		return tsr_fail_nomem(err, state->name);
	TSR_TRY(tsr_torch_read_job(c, state, err));
	TSR_TRY(complete(c, o, 0, false, false, err));
	return TSR_GIVE(ret, c);
}
