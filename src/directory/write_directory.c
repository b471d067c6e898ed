/* SPDX-License-Identifier: Apache-2.0 */
/* Making a directory from another, entry by entry: packed, unpacked or recoded. */
#include "directory/write_directory.h"

#include "base/fail.h"
#include "directory/traversal.h"
#include "directory/copying.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "parts/part.h"

enum tsr_status tsr_directory_copy(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	struct tsr_stored_file found = { .path = e->path };
	const char *to;

	TSR_TRY(tsr_traversal_path(t, t->out, e->path, &to));
	if (tsr_traversal_parts(t))
		(void)tsr_dir_remove_file(to);
	TSR_TRY(tsr_copy_original(t, t->d->path, e, to, &found));
	if (t->packed)
		TSR_TRY(tsr_check_copy(t, e, &found));
	/* An index of shards has the source's total until their files are written. */
	if (t->output.indexed) {
		*(struct tsr_stored_file *)e->stored = found;
		e->total_was = NULL;
	}
	e->nbytes = found.nbytes;
	if (t->output.indexed || !t->packed)
		e->stored_nbytes = found.nbytes;
	return tsr_dir_set_mode(to, e->mode, t->err);
}

/* In parts another may have made it. */
static enum tsr_status make_directory(struct tsr_traversal *t, const char *path)
{
	enum tsr_status status;

	if (tsr_traversal_parts(t) && tsr_dir_is(path))
		return TSR_OK;
	status = tsr_dir_make(path, t->err);
	return tsr_traversal_parts(t) && tsr_dir_is(path) ? TSR_OK : status;
}

static enum tsr_status write_entry(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	const char *path;

	if (e->as == TSR_STORED_PACKED)
		return t->output.write(t, e);
	if (e->as == TSR_STORED_PART)
		return TSR_OK;
	/* The joining process makes the copies. */
	if (e->as == TSR_STORED_COPY)
		return tsr_part_is_one(tsr_traversal_parts(t)) ? TSR_OK : tsr_directory_copy(t, e);
	TSR_TRY(tsr_traversal_path(t, t->out, e->path, &path));
	return make_directory(t, path);
}

static enum tsr_status write_index(struct tsr_traversal *t)
{
	const char *path;

	TSR_TRY(tsr_traversal_path(t, t->out, TSR_DIRECTORY_INDEX, &path));
	/* One who failed to join the parts may have made it. */
	if (tsr_traversal_parts(t))
		(void)tsr_dir_remove_file(path);
	TSR_TRY(tsr_correct_totals(t));
	return tsr_directory_write_index(t, path);
}

static enum tsr_status write_all(struct tsr_traversal *t)
{
	TSR_TRY(tsr_traversal_each(t, write_entry));
	if (t->output.indexed)
		TSR_TRY(write_index(t));
	if (t->output.indexed && !t->packed)
		TSR_TRY(tsr_nodes_check_unchanged(&t->nodes, t->d->path, t->follow, t->err));
	return tsr_traversal_next(t, 0);
}

/* Whether all stored files are there, before anything is written.  Links are found here. */
static enum tsr_status check_all(struct tsr_traversal *t)
{
	TSR_TRY(tsr_directory_remark_others(t->d, t->follow, t->err));
	for (size_t i = 0; i < t->d->n; i++) {
		TSR_TRY(tsr_traversal_next(t, 0));
		TSR_TRY(tsr_check_stored(t, &t->d->entries[i]));
	}
	return TSR_OK;
}

/* Bytes that are written; a packed directory has an index besides its files. */
static uint64_t nbytes_to_write(const struct tsr_traversal *t)
{
	uint64_t nbytes = t->output.indexed ? t->d->index_nbytes : 0;

	for (size_t i = 0; i < t->d->n; i++)
		nbytes += t->output.indexed ? t->d->entries[i].stored_nbytes
					    : t->d->entries[i].nbytes;
	return nbytes;
}

static enum tsr_status make(struct tsr_traversal *t, const struct tsr_run *run)
{
	struct tsr_outdir *made = NULL;

	tsr_traversal_start(t, run, true);
	TSR_TRY(tsr_dir_check_target(t, 0));
	TSR_TRY(tsr_bases_open(t));
	TSR_TRY(t->output.plan ? t->output.plan(t) : check_all(t));
	TSR_TRY(tsr_dir_check_target(t, nbytes_to_write(t)));
	if (t->output.dry_run)
		return TSR_OK;
	tsr_traversal_start(t, run, false);
	TSR_TRY(tsr_dir_start(t, &made));
	return tsr_dir_end(t, made, write_all(t));
}

enum tsr_status tsr_directory_make(struct tsr_traversal *t, const char *path,
				   const struct tsr_directory_watch *watch,
				   const struct tsr_run *run, struct tsr_directory **ret,
				   struct tsr_err *err)
{
	enum tsr_status status = tsr_traversal_open(t, path, watch, err);

	if (status == TSR_OK)
		status = make(t, run);
	return tsr_traversal_end(t, status, ret);
}
