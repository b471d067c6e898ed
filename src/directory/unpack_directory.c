/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking a directory: every file comes back under its name, copies checked against their hashes. */
#include "base/fail.h"
#include "base/option_size.h"
#include "directory/stored.h"
#include "directory/write_directory.h"
#include "io/dir.h"
#include "parts/part.h"

struct unpacking {
	struct tsr_traversal t;
	const struct tsr_write_options *options;
};

/*
 * A DCP comes back as a directory.  It is made under the name of its packed file, which nothing else has,
 * and then its files are moved up, beside what else was in the source's directory.
 */
static enum tsr_status unpack(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	struct tsr_write_options o = *((const struct unpacking *)t)->options;
	const bool dcp = e->container == TSR_CONTAINER_DCP;
	const char *packed = tsr_opened_file(e)->path, *from, *to;
	TSR_OWNED(tsr_unpacking_free) struct tsr_unpacking *u = NULL;

	o.container = e->container;
	o.force = false;
	TSR_TRY(tsr_traversal_path(t, t->d->path, packed, &from));
	TSR_TRY(tsr_traversal_path(t, t->out, dcp ? packed : e->path, &to));
	TSR_TRY(tsr_traversal_settle(t,
				     tsr_unpack(from, to, &o, tsr_traversal_run(t), &u, t->err)));
	if (u && !dcp)
		e->nbytes = tsr_unpacking_nbytes(u);
	if (u && t->watch.unpacked)
		t->watch.unpacked(t->watch.ctx, e, u);
	if (dcp)
		return tsr_dir_move_up(to, e->mode, t->err);
	if (tsr_part_is_one(tsr_traversal_parts(t)))
		return TSR_OK;
	return tsr_dir_set_mode(to, e->mode, t->err);
}

enum tsr_status tsr_unpack_directory(const char *path, const char *out,
				     const struct tsr_write_options *options,
				     const struct tsr_directory_watch *watch,
				     const struct tsr_run *run, struct tsr_directory **ret,
				     struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct unpacking u = { .t.packed = true, .options = &o };
	struct tsr_open_options open;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_stored_open_options(&open, o.open, err));
	o.open = &open;
	if (o.flashoptim || o.max_shard_nbytes || o.container != TSR_CONTAINER_COUNT)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: the files of a packed directory come back as they were, in no "
				"other container",
				path);
	u.t.follow = open.follow;
	u.t.output = (struct tsr_dir_output){ out, false, o.force, o.dry_run, NULL, unpack };
	return tsr_directory_make(&u.t, path, watch, run, ret, err);
}
