/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the base of a delta that is being read: its path, and whether it is the one that is named. */
#include "layouts/open.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/coded/deltas.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/temporary.h"

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
				  const struct tsr_open_options *o, bool named, tsr_open_fn *opener,
				  struct tsr_err *err)
{
	TSR_OWNED(free) char *directory = tsr_path_directory(path);
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	if (!directory)
		return tsr_fail_nomem(err, path);
	if (named)
		TSR_TRY(tsr_file_open_in(directory, tsr_path_name(path), o->follow, &f, err));
	TSR_TRY(opener(&path, 1, o, c->base_name.depth - 1, false, &c->base, err));
	return f ? tsr_file_check_unchanged(f, err) : TSR_OK;
}

enum tsr_status tsr_open_base(struct tsr_checkpoint *c, const struct tsr_open_options *options,
			      unsigned depth, bool later, tsr_open_fn *opener, struct tsr_err *err)
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
	TSR_TRY(open_named(c, path, &o, !options->base, opener, err));
	TSR_TRY(check_base(c, path, later, options->run, err));
	return tsr_delta_link(c, err);
}
