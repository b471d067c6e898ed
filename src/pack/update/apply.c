/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a weight update onto the model that it was made for. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/checkpoint_model.h"
#include "container/shards/shard_cut.h"
#include "io/dir.h"
#include "io/temporary.h"
#include "layouts/open.h"
#include "pack/open_checkpoint.h"
#include "pack/packing.h"
#include "tersor/directory.h"

static enum tsr_status check_update(const struct tsr_checkpoint *c, struct tsr_err *err)
{
	if (!c->packed || !c->base)
		return tsr_fail(
			err, TSR_E_UNSUPPORTED,
			"%s: is not a packed delta, expected an update of weights; it comes "
			"before the model that it is for",
			c->path);
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		if (t->coding.codec)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: is packed as %s, expected an update of "
					"weights as they are",
					c->path, t->name, t->coding.codec->name);
	}
	return TSR_OK;
}

/* Of a packed directory the weights that other programs read are half of what it is unpacked from. */
static enum tsr_status check_alone(const struct tsr_checkpoint *base, struct tsr_err *err)
{
	for (unsigned i = 0; i < base->nfiles; i++) {
		const char *path = tsr_file_path(base->files[i]);
		TSR_SCOPED(tsr_text_free) struct tsr_text rest = { 0 };

		tsr_text_printf(&rest, "%s%s", path, TSR_DIRECTORY_SUFFIX);
		if (rest.failed)
			return tsr_fail_nomem(err, path);
		if (tsr_dir_has(rest.bytes))
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: is of a packed directory: %s%s beside it has the rest "
					"of its bits and would be lost; expected the name of an "
					"output",
					path, tsr_path_name(path), TSR_DIRECTORY_SUFFIX);
	}
	return TSR_OK;
}

/*
 * One plain file is replaced at once, and so is the index of shards, by one that names new shards; anything
 * else needs another name for its successor.  @ret: the name of the output, to be freed.
 */
static enum tsr_status in_place(const struct tsr_checkpoint *base, const char *model, char **ret,
				struct tsr_err *err)
{
	size_t len = strlen(base->path);

	TSR_TRY(check_alone(base, err));
	if (tsr_shards_are(base) && tsr_shards_are_own(base))
		len -= strlen(".index.json");
	else if (base->packed || base->container != TSR_CONTAINER_SAFETENSORS ||
		 base->nfiles != 1 || tsr_dir_is(base->path))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: is not one plain safetensors file, nor shards named after "
				"their index, which could be replaced; expected the name of an "
				"output",
				model);
	*ret = strndup(base->path, len);
	return *ret ? TSR_OK : tsr_fail_nomem(err, model);
}

/* A directory is written new: one that is there may have more than the model. */
static enum tsr_status check_directory(const struct tsr_checkpoint *base, const char *out,
				       const struct tsr_write_options *o, struct tsr_err *err)
{
	if (!tsr_dir_name_ends_with(out, "/"))
		return TSR_OK;
	if (!tsr_shards_are(base) || o->max_shard_nbytes)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: expected the name of a file: a directory gets the shards that "
				"the model has",
				out);
	if (o->force)
		return tsr_fail(err, TSR_E_USAGE, "%s: a directory of shards is not replaced", out);
	return TSR_OK;
}

static enum tsr_status apply(struct tsr_checkpoint *c, const char *model, const char *out,
			     const struct tsr_write_options *options, const struct tsr_run *run,
			     struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_write_options o = *options;
	TSR_OWNED(free) char *replaced = NULL;
	enum tsr_status status;

	TSR_TRY(check_update(c, err));
	if (!out) {
		TSR_TRY(in_place(c->base, model, &replaced, err));
		c->replaces_base = true;
		o.force = true;
	} else {
		TSR_TRY(check_directory(c->base, out, &o, err));
	}
	o.container = TSR_CONTAINER_SAFETENSORS;
	status = tsr_write_checkpoint(c, out ? out : replaced, &o, run, ret, err);
	/* A directory is not replaced in any case. */
	if (status != TSR_OK && err && err->hint == TSR_HINT_FORCE && out &&
	    tsr_dir_name_ends_with(out, "/"))
		err->hint = TSR_HINT_NONE;
	return status;
}

enum tsr_status tsr_apply(const char *update, const char *model, const char *out,
			  const struct tsr_write_options *options, const struct tsr_run *run,
			  struct tsr_unpacking **ret, struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct tsr_open_options open = tsr_open_defaults();
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&open, o.open, err));
	open.base = model;
	open.run = run;
	/* Parts read only their share of the base, and a dry run nothing at all: they are told before. */
	status = o.dry_run || (run && run->parts) ? tsr_checkpoint_open(&update, 1, &open, &c, err)
						  : tsr_update_open(update, &open, &c, err);
	TSR_THEN(status, apply(c, model, out, &o, run, ret, err));
	/* The base is said already. */
	if (status != TSR_OK && err && err->hint == TSR_HINT_BASE)
		err->hint = TSR_HINT_NONE;
	c = tsr_is_written(status) ? NULL : c;
	return status;
}
