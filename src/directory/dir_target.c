/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that packing or unpacking one makes. */
#include "directory/dir_target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/node_list.h"
#include "io/temporary.h"
#include "parts/part.h"

static bool is_stream(const struct tsr_dir_target *target)
{
	return strcmp(target->path, TSR_STANDARD_OUTPUT) == 0;
}

/* --- What is replaced --------------------------------------------------------------------------- */

/* A target while it is looked at. */
struct owned {
	struct tsr_outdir_rule rule;
	struct tsr_directory *d; /* the new one */
	struct tsr_directory *old; /* the packed one that is there, or NULL */
	const char **names; /* of @old */
	size_t n;
};

static bool is_listed(const void *ctx, const char *path)
{
	const struct owned *o = ctx;

	return o->names && tsr_directory_knows(o->names, o->n, path);
}

/* The parts of a checkpoint of torch.distributed.checkpoint may have had others' numbers. */
static bool is_written(const void *ctx, const char *path)
{
	const struct owned *o = ctx;
	const struct tsr_directory_entry e = { .path = path };

	return tsr_directory_find(o->d, path) ||
	       (tsr_dir_is_dcp_part(tsr_path_name(path)) && tsr_directory_metadata_of(o->d, &e));
}

/* End with disown().  An index that cannot be read lists nothing. */
static enum tsr_status own(struct owned *o, struct tsr_directory *d,
			   const struct tsr_dir_target *target, struct tsr_err *err)
{
	*o = (struct owned){ .d = d };
	o->rule = (struct tsr_outdir_rule){ target->force, target->packed ? is_listed : is_written,
					    o };
	if (!target->packed || !tsr_directory_is_packed(target->path) ||
	    tsr_directory_open(target->path, &o->old, NULL) != TSR_OK)
		return TSR_OK;
	o->names = tsr_directory_known(o->old, &o->n);
	if (o->names)
		return TSR_OK;
	tsr_directory_close(o->old);
	return tsr_fail_nomem(err, target->path);
}

static void disown(struct owned *o)
{
	free(o->names);
	tsr_directory_close(o->old);
}

enum tsr_status tsr_dir_check_target(struct tsr_directory *input,
				     const struct tsr_dir_target *target, uint64_t nbytes,
				     struct tsr_err *err)
{
	enum tsr_status status;
	struct owned o;

	/* What a dry run without an output has for one; starting it fails. */
	if (is_stream(target))
		return TSR_OK;
	TSR_TRY(tsr_outdir_check_outside(target->path, input->path, err));
	TSR_TRY(tsr_outdir_check_not_below(target->path, input->path, err));
	TSR_TRY(own(&o, input, target, err));
	status = tsr_outdir_check_target(target->path, &o.rule, err);
	disown(&o);
	TSR_TRY(status);
	/* Parts, and who joins them, find some of it there. */
	return target->parts ? TSR_OK : tsr_outdir_check_space(target->path, nbytes, err);
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

enum tsr_status tsr_dir_start(struct tsr_directory *d, const struct tsr_dir_target *target,
			      struct tsr_outdir **ret, struct tsr_err *err)
{
	enum tsr_status status;
	struct owned o;

	if (is_stream(target))
		return tsr_fail(err, TSR_E_USAGE, "%s: expected a name for the output directory",
				target->path);
	TSR_TRY(own(&o, d, target, err));
	if (target->parts)
		status = tsr_outdir_meet(target->path, &o.rule, shared_id(d, target->parts),
					 tsr_part_joins(target->parts), ret, err);
	else
		status = tsr_outdir_create(target->path, &o.rule, ret, err);
	disown(&o);
	if (target->parts || status != TSR_OK)
		return status;
	status = tsr_dir_set_mode(tsr_outdir_path(*ret), 0700, err);
	if (status != TSR_OK)
		tsr_outdir_discard(*ret);
	return status;
}

/* Sync the directories and set their permissions, those in others first. */
static enum tsr_status finish(const struct tsr_directory *d, const char *out, struct tsr_err *err)
{
	for (size_t i = d->n; i-- > 0;) {
		const struct tsr_directory_entry *e = &d->entries[i];
		enum tsr_status status;
		char *path;

		if (e->as != TSR_STORED_DIRECTORY)
			continue;
		path = tsr_path_join(out, e->path);
		if (!path)
			return tsr_fail_nomem(err, out);
		status = tsr_dir_sync(path, path, err);
		if (status == TSR_OK)
			status = tsr_dir_set_mode(path, e->mode, err);
		free(path);
		TSR_TRY(status);
	}
	return tsr_dir_set_mode(out, d->mode, err);
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

/* Files of all parts that are of no use any more, and those of one who was killed while joining. */
static enum tsr_status remove_strays(const struct tsr_directory *d, const char *out,
				     struct tsr_err *err)
{
	struct tsr_nodes nodes = { 0 };
	enum tsr_status status = tsr_nodes_list(out, false, &nodes, err);

	for (size_t i = 0; i < nodes.n && status == TSR_OK; i++) {
		const struct tsr_node *node = &nodes.list[i];
		char *path;

		if (node->is_directory || !tsr_temporary_is_name(tsr_path_name(node->path)) ||
		    is_stored(d, node->path))
			continue;
		path = tsr_path_join(out, node->path);
		if (!path)
			status = tsr_fail_nomem(err, out);
		else if (!tsr_dir_remove_file(path))
			status = tsr_fail_errno(err, errno, "%s: cannot remove", path);
		free(path);
	}
	tsr_nodes_free(&nodes);
	return status;
}

enum tsr_status tsr_dir_end(struct tsr_directory *d, const struct tsr_dir_target *target,
			    struct tsr_outdir *made, enum tsr_status status, struct tsr_err *err)
{
	const bool given_up = tsr_part_joins(target->parts) && status == TSR_E_BOUND;
	struct owned o;

	if (status == TSR_OK && target->parts)
		status = remove_strays(d, tsr_outdir_path(made), err);
	if (status == TSR_OK)
		status = finish(d, tsr_outdir_path(made), err);
	/* What may be replaced is looked at again. */
	if (status == TSR_OK)
		status = own(&o, d, target, err);
	if (status == TSR_OK) {
		status = tsr_outdir_publish(made, &o.rule, err);
		disown(&o);
		return status;
	}
	if (target->parts && !given_up)
		tsr_outdir_leave(made);
	else
		tsr_outdir_discard(made);
	return status;
}

enum tsr_status tsr_dir_remove_index(const struct tsr_dir_target *target, const char *out,
				     struct tsr_err *err)
{
	char *path;

	if (!target->parts)
		return TSR_OK;
	path = tsr_path_join(out, TSR_DIRECTORY_INDEX);
	if (!path)
		return tsr_fail_nomem(err, out);
	(void)tsr_dir_remove_file(path);
	free(path);
	return TSR_OK;
}

enum tsr_status tsr_dir_make_in(const struct tsr_dir_target *target, const char *path,
				struct tsr_err *err)
{
	enum tsr_status status;

	if (!target->parts)
		return tsr_dir_make(path, err);
	if (tsr_dir_is(path))
		return TSR_OK;
	status = tsr_dir_make(path, err);
	/* Another part may have made it meanwhile. */
	return status == TSR_OK || tsr_dir_is(path) ? TSR_OK : status;
}
