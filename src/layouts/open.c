/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: what each input is, and how several become one checkpoint. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/dir.h"
#include "io/temporary.h"
#include "io/spool.h"
#include "base/fail.h"
#include "io/pages.h"
#include "base/option_size.h"
#include "ckpt/deltas.h"
#include "ckpt/meta.h"
#include "container/containers.h"
#include "container/sharded.h"
#include "container/packed/packed_read.h"
#include "container/tree.h"
#include "layouts/folder.h"
#include "layouts/open_update.h"
#include "names/import/import_states.h"
#include "names/places.h"
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
		c->path = tsr_arena_copy(c->arena, path, strlen(path));
	status = c->path ? tsr_sharded_detect(f, &is_index, err) : tsr_fail_nomem(err, path);
	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	return is_index ? tsr_sharded_read(c, f, options, err)
			: tsr_container_read(c, f, options, err);
}

/* DIR/.metadata: the checkpoint of torch.distributed.checkpoint alone, without what lies beside it. */
static bool is_metadata(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash > path && strcmp(slash, "/.metadata") == 0;
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

/* --- Bases ------------------------------------------------------------------------------------ */

/* Of a base in another directory: its path in that. */
static const char *name_in_directory(const struct tsr_base_name *base, unsigned levels)
{
	return strchr(base->name + 3 * (size_t)levels, '/') + 1;
}

/*
 * A name that begins with "../" below a directory; takes the latter.  Paths of a chain stay short: a
 * directory is left by its name, unless that is a link, which leads elsewhere.
 */
static char *join_sibling(char *directory, const char *name)
{
	char *path;

	while (directory && strncmp(name, "../", 3) == 0 &&
	       tsr_dir_is_name(tsr_path_name(directory)) && !tsr_dir_is_link(directory)) {
		char *up = tsr_path_directory(directory);

		free(directory);
		directory = up;
		name += 3;
	}
	if (!directory)
		return NULL;
	path = strcmp(directory, ".") == 0 ? strdup(name) : tsr_path_join(directory, name);
	free(directory);
	return path;
}

/* The path of the base of a delta; to be freed.  A user may name the directory of many bases. */
static char *base_path(const struct tsr_checkpoint *c, const struct tsr_open_options *options)
{
	unsigned levels;

	if (options->base && tsr_base_name_is_valid(c->base_name.name, &levels) && levels &&
	    tsr_dir_is(options->base))
		return tsr_path_join(options->base, name_in_directory(&c->base_name, levels));
	if (options->base)
		return strdup(options->base);
	return join_sibling(tsr_path_directory(c->path), c->base_name.name);
}

/* So many arrays are worth a look at all of the heap. */
#define TRIM_ARRAYS 10000u

static enum tsr_status open_checkpoint(const char *const *paths, unsigned npaths,
				       const struct tsr_open_options *o, unsigned depth, bool later,
				       struct tsr_checkpoint **ret, struct tsr_err *err);

static enum tsr_status check_base(struct tsr_checkpoint *c, const char *path, bool later,
				  const struct tsr_run *run, struct tsr_err *err)
{
	if (!c->base->packed && later)
		return tsr_delta_prove_later(c, path, err);
	if (!c->base->packed)
		TSR_TRY(tsr_plain_set(c->base, run, err));
	return tsr_delta_check_base(c, path, err);
}

/*
 * The base at @path, which the delta names or the user.  A name from the file must be that of a regular file,
 * which is held while the checkpoint is opened, so that what takes its place is noticed.
 */
static enum tsr_status open_named(struct tsr_checkpoint *c, const char *path,
				  const struct tsr_open_options *o, bool named, struct tsr_err *err)
{
	TSR_OWNED(free) char *directory = tsr_path_directory(path);
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	if (!directory)
		return tsr_fail_nomem(err, path);
	if (named)
		TSR_TRY(tsr_file_open_in(directory, tsr_path_name(path), o->follow, &f, err));
	TSR_TRY(open_checkpoint(&path, 1, o, c->base_name.depth - 1, false, &c->base, err));
	return f ? tsr_file_check_unchanged(f, err) : TSR_OK;
}

/*
 * Open what a delta differs from; @depth is the most that it may be deep.  @later: one that is not packed is
 * not read now.
 */
static enum tsr_status open_base(struct tsr_checkpoint *c, const struct tsr_open_options *options,
				 unsigned depth, bool later, struct tsr_err *err)
{
	struct tsr_open_options o = *options;
	TSR_OWNED(free) char *path = NULL;

	if (!c->base_name.name)
		return TSR_OK;
	if (c->base_name.depth > depth)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: is a delta at depth %u in a chain that ends at depth %u",
				c->path, c->base_name.depth, depth);
	path = base_path(c, options);
	o.base = NULL;
	if (!path)
		return tsr_fail_nomem(err, c->path);
	if (!tsr_dir_has(path))
		return tsr_fail_hint(err, TSR_E_IO, TSR_HINT_BASE,
				     "%s: is a delta to %s, which is missing", c->path, path);
	TSR_TRY(open_named(c, path, &o, !options->base, err));
	TSR_TRY(check_base(c, path, later, options->run, err));
	return tsr_delta_link(c, err);
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
	TSR_TRY(open_base(c, options, depth, later, err));
	TSR_TRY(tsr_tree_restore(c, err));
	TSR_TRY(tsr_places_mark(c, err));
	TSR_TRY(tsr_tree_complete(c, npaths > 1 || c->from_folder, err));
	return tsr_torch_name_carried(c, err);
}

static enum tsr_status open_checkpoint(const char *const *paths, unsigned npaths,
				       const struct tsr_open_options *o, unsigned depth, bool later,
				       struct tsr_checkpoint **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;

	TSR_TRY(TSR_NEW(&c, 1, err, paths[0]));
	c->opaque = o->opaque;
	c->arena = tsr_arena_new(TSR_BUILD_NBYTES_FREE);
	if (!c->arena)
		return tsr_fail_nomem(err, paths[0]);
	TSR_TRY(read_all(c, paths, npaths, o, depth, later, err));
	/* What their headers and indices were parsed into is as large as the model of them. */
	if (c->narrays >= TRIM_ARRAYS)
		tsr_pages_trim();
	*ret = c;
	c = NULL;
	return TSR_OK;
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
