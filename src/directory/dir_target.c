/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that packing or unpacking one makes. */
#include "directory/write_directory.h"

#include <errno.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/hash.h"
#include "io/node_list.h"
#include "io/temporary.h"
#include "parts/part.h"

static bool is_stream(const struct tsr_traversal *t)
{
	return strcmp(t->output.path, TSR_STANDARD_OUTPUT) == 0;
}

/* --- What is replaced --------------------------------------------------------------------------- */

/* A target while it is looked at. */
struct owned {
	struct tsr_outdir_rule rule;
	struct tsr_directory *d; /* the new one */
	struct tsr_directory *old; /* the packed one that is there, or NULL */
	struct tsr_named *names; /* of @old */
	size_t n;
};

static bool is_listed(const void *ctx, const char *path)
{
	const struct owned *o = ctx;

	return o->names && tsr_named_find(o->names, o->n, path);
}

/* The parts of a checkpoint of torch.distributed.checkpoint may have had others' numbers. */
static bool is_written(const void *ctx, const char *path)
{
	const struct owned *o = ctx;
	const struct tsr_directory_entry e = { .path = path };

	return tsr_directory_find(o->d, path) ||
	       (tsr_dir_is_dcp_part(tsr_path_name(path)) && tsr_directory_metadata_of(o->d, &e));
}

/* End with disown(), also on failure.  An index that cannot be read lists nothing. */
static enum tsr_status own(struct owned *o, const struct tsr_traversal *t)
{
	const struct tsr_dir_output *to = &t->output;

	*o = (struct owned){ .d = t->d };
	o->rule = (struct tsr_outdir_rule){ to->force, to->indexed ? is_listed : is_written, o };
	if (!to->indexed || !tsr_directory_is_packed(to->path) ||
	    tsr_directory_open(to->path, &o->old, NULL) != TSR_OK)
		return TSR_OK;
	o->names = tsr_directory_known(o->old, &o->n);
	return o->names ? TSR_OK : tsr_fail_nomem(t->err, to->path);
}

static void disown(struct owned *o)
{
	free(o->names);
	tsr_directory_close(o->old);
}

enum tsr_status tsr_dir_check_target(const struct tsr_traversal *t, uint64_t nbytes)
{
	const char *path = t->output.path;
	TSR_SCOPED(disown) struct owned o = { 0 };

	/* What a dry run without an output has for one; starting it fails. */
	if (is_stream(t))
		return TSR_OK;
	TSR_TRY(tsr_outdir_check_outside(path, t->d->path, t->err));
	TSR_TRY(tsr_outdir_check_not_below(path, t->d->path, t->err));
	TSR_TRY(own(&o, t));
	/* Parts, and the joining process, find some of it there. */
	return tsr_outdir_check_target(path, &o.rule, tsr_traversal_parts(t) ? 0 : nbytes, t->err);
}

/* What tells it from that of other parts, or of other files. */
static uint64_t shared_id(const struct tsr_directory *d, const struct tsr_parts *parts)
{
	uint64_t id = tsr_part_id(parts);

	for (size_t i = 0; i < d->n; i++) {
		const struct tsr_directory_entry *e = &d->entries[i];

		id = tsr_hash(e->path, strlen(e->path) + 1, id);
		id = tsr_hash(&e->nbytes, sizeof(e->nbytes), id);
	}
	return id;
}

enum tsr_status tsr_dir_start(struct tsr_traversal *t, struct tsr_outdir **ret)
{
	TSR_SCOPED(disown) struct owned o = { 0 };
	struct tsr_parts *parts = tsr_traversal_parts(t);
	const char *path = t->output.path;
	enum tsr_status status;

	if (is_stream(t))
		return tsr_fail(t->err, TSR_E_USAGE, "%s: expected a name for the output directory",
				path);
	TSR_TRY(own(&o, t));
	TSR_TRY(parts ? tsr_outdir_meet(path, &o.rule, shared_id(t->d, parts),
					tsr_part_joins(parts), ret, t->err)
		      : tsr_outdir_create(path, &o.rule, ret, t->err));
	t->out = tsr_outdir_path(*ret);
	if (parts)
		return TSR_OK;
	status = tsr_dir_set_mode(t->out, 0700, t->err);
	if (status != TSR_OK)
		tsr_outdir_discard(*ret);
	return status;
}

/* Sync the directories and set their permissions, those in others first. */
static enum tsr_status finish(struct tsr_traversal *t)
{
	for (size_t i = t->d->n; i-- > 0;) {
		const struct tsr_directory_entry *e = &t->d->entries[i];
		const char *path;

		if (e->as != TSR_STORED_DIRECTORY)
			continue;
		TSR_TRY(tsr_traversal_path(t, t->out, e->path, &path));
		TSR_TRY(tsr_dir_sync(path, path, t->err));
		TSR_TRY(tsr_dir_set_mode(path, e->mode, t->err));
	}
	return tsr_dir_set_mode(t->out, t->d->mode, t->err);
}

/* Whether a path below the directory is that of a file that belongs there. */
static bool is_stored(const struct tsr_directory *d, const char *path)
{
	if (tsr_directory_find(d, path))
		return true;
	for (size_t i = 0; i < d->n; i++) {
		for (unsigned k = 0; k < d->entries[i].nstored; k++)
			if (strcmp(d->entries[i].stored[k].path, path) == 0)
				return true;
	}
	return false;
}

/* A file of all parts that is of no use any more, or of one who was killed while joining. */
static enum tsr_status remove_stray(struct tsr_traversal *t, const struct tsr_node *node)
{
	const char *path;

	if (node->is_directory || !tsr_temporary_is_name(tsr_path_name(node->path)) ||
	    is_stored(t->d, node->path))
		return TSR_OK;
	TSR_TRY(tsr_traversal_path(t, t->out, node->path, &path));
	return tsr_dir_remove_file(path) ? TSR_OK
					 : tsr_fail_errno(t->err, errno, "%s: cannot remove", path);
}

static enum tsr_status remove_strays(struct tsr_traversal *t)
{
	TSR_SCOPED(tsr_nodes_free) struct tsr_nodes nodes = { 0 };

	TSR_TRY(tsr_nodes_list(t->out, false, &nodes, t->err));
	for (size_t i = 0; i < nodes.n; i++)
		TSR_TRY(remove_stray(t, &nodes.list[i]));
	return TSR_OK;
}

enum tsr_status tsr_dir_end(struct tsr_traversal *t, struct tsr_outdir *made,
			    enum tsr_status status)
{
	TSR_SCOPED(disown) struct owned o = { 0 };
	struct tsr_parts *parts = tsr_traversal_parts(t);
	const bool given_up = tsr_part_joins(parts) && status == TSR_E_BOUND;

	if (parts)
		TSR_THEN(status, remove_strays(t));
	TSR_THEN(status, finish(t));
	/* What may be replaced is looked at again. */
	TSR_THEN(status, own(&o, t));
	if (status == TSR_OK)
		return tsr_outdir_publish(made, &o.rule, t->err);
	if (parts && !given_up)
		tsr_outdir_leave(made);
	else
		tsr_outdir_discard(made);
	return status;
}
