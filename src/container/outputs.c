/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one output, published together: one file, shards, a packed pair, or a directory. */
#include "container/outputs.h"

#include <errno.h>

#include "io/dir.h"
#include "base/fail.h"
#include "io/temporary.h"
#include "ckpt/checkpoint_model.h"
#include "format/shard_index.h"

#define EXTENSION ".safetensors"

/* --- Names ------------------------------------------------------------------------------------- */

static size_t directory_len(const char *path)
{
	return (size_t)(tsr_path_name(path) - path);
}

/* NAME.safetensors, or NAME-rN.safetensors for a round after the first. */
static void put_round_name(struct tsr_text *text, const char *name, unsigned round)
{
	const size_t len = strlen(name) - strlen(EXTENSION);

	tsr_text_put(text, name, len);
	if (round > 1)
		tsr_text_printf(text, "-r%u", round);
	tsr_text_puts(text, EXTENSION);
}

static enum tsr_status name_round(struct tsr_outputs *o, unsigned round, struct tsr_err *err)
{
	const size_t dir = directory_len(o->path);
	TSR_SCOPED(tsr_text_free) struct tsr_text name = { 0 };
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };

	put_round_name(&name, o->path + dir, round);
	for (size_t i = 0; i < o->n && !name.failed; i++) {
		text.nbytes = 0;
		tsr_text_put(&text, o->path, dir);
		tsr_shard_name(name.bytes, i, o->n, &text);
		o->paths[i] = text.failed ? NULL
					  : tsr_arena_copy(o->arena, text.bytes, text.nbytes);
		if (!o->paths[i])
			return tsr_fail_nomem(err, o->path);
	}
	return name.failed ? tsr_fail_nomem(err, o->path) : TSR_OK;
}

static bool any_exists(const struct tsr_outputs *o)
{
	for (size_t i = 0; i < o->n; i++) {
		if (tsr_dir_has(o->paths[i]))
			return true;
	}
	return false;
}

/* The shards of the index that is to be replaced; a file that is no index has none. */
static enum tsr_status list_old(struct tsr_outputs *o, struct tsr_err *err)
{
	const size_t dir = directory_len(o->path);
	const size_t stem = strlen(o->path) - strlen(EXTENSION) - dir;
	TSR_OWNED(tsr_index_free) struct tsr_index *index = NULL;
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	enum tsr_status status;

	if (!tsr_dir_has(o->paths[o->n]))
		return TSR_OK;
	TSR_TRY(tsr_file_open(o->paths[o->n], &f, err));
	status = tsr_index_read(f, &index, err);
	if (status != TSR_OK)
		return status == TSR_E_IO || status == TSR_E_NOMEM ? status : TSR_OK;
	TSR_TRY(TSR_TAKE(&o->old, index->nshards + 1, o->arena, err, o->path));
	for (size_t i = 0; i < index->nshards; i++) {
		const char *shard = index->shards[i];

		/* Only files that are named as this output names its shards. */
		if (strncmp(shard, o->path + dir, stem) != 0 || shard[stem] != '-')
			continue;
		o->old[o->nold] = tsr_arena_printf(o->arena, "%.*s%s", (int)dir, o->path, shard);
		if (!o->old[o->nold++])
			return tsr_fail_nomem(err, o->path);
	}
	return TSR_OK;
}

static enum tsr_status name_shards(struct tsr_outputs *o, struct tsr_err *err)
{
	const size_t dir = directory_len(o->path), len = strlen(o->path);
	const size_t ext = strlen(EXTENSION);

	if (len <= dir + ext || strcmp(o->path + len - ext, EXTENSION) != 0)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: the name of an output in shards must end in " EXTENSION,
				o->path);
	o->paths[o->n] = tsr_arena_printf(o->arena, "%s.index.json", o->path);
	if (!o->paths[o->n])
		return tsr_fail_nomem(err, o->path);
	TSR_TRY(name_round(o, 1, err));
	for (unsigned round = 2; o->force && any_exists(o); round++)
		TSR_TRY(name_round(o, round, err));
	return o->force ? list_old(o, err) : TSR_OK;
}

static enum tsr_status start(struct tsr_outputs *o, const char *path, bool force, size_t n,
			     struct tsr_err *err)
{
	*o = (struct tsr_outputs){
		.path = path, .force = force, .n = n, .arena = tsr_arena_new(SIZE_MAX)
	};
	TSR_TRY(TSR_TAKE(&o->paths, n + 1, o->arena, err, path));
	return TSR_TAKE(&o->files, n + 1, o->arena, err, path);
}

enum tsr_status tsr_outputs_plan_shards(struct tsr_outputs *o, const char *path, bool force,
					size_t n, struct tsr_err *err)
{
	TSR_TRY(start(o, path, force, n, err));
	o->indexed = true;
	return name_shards(o, err);
}

enum tsr_status tsr_outputs_plan(struct tsr_outputs *o, const char *path, bool force, size_t n,
				 struct tsr_err *err)
{
	if (n > 1)
		return tsr_outputs_plan_shards(o, path, force, n, err);
	TSR_TRY(start(o, path, force, n, err));
	o->paths[0] = path;
	return TSR_OK;
}

enum tsr_status tsr_outputs_plan_directory(struct tsr_outputs *o, const char *path, bool force,
					   const char *index, const char *const *names, size_t n,
					   struct tsr_err *err)
{
	TSR_TRY(start(o, path, force, n, err));
	o->index = index;
	for (size_t i = 0; i < n; i++)
		o->paths[i] = names[i];
	return TSR_OK;
}

enum tsr_status tsr_outputs_plan_pair(struct tsr_outputs *o, const char *path, const char *weights,
				      bool force, struct tsr_err *err)
{
	const size_t dir = directory_len(path);

	TSR_TRY(start(o, path, force, 2, err));
	if (directory_len(weights) != dir || strncmp(weights, path, dir) != 0 ||
	    !tsr_dir_is_name(weights + dir) || strcmp(weights, path) == 0)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: expected another name in the directory of %s", weights, path);
	o->paths[0] = weights;
	o->paths[1] = path;
	return TSR_OK;
}

const char *tsr_outputs_name(const struct tsr_outputs *o, size_t i)
{
	return o->paths[i] + directory_len(o->paths[i]);
}

/* --- Files ------------------------------------------------------------------------------------- */

/* What a directory of the kind that this is has, which no other is replaced for. */
static bool owns(const void *ctx, const char *path)
{
	const struct tsr_outputs *o = ctx;

	return strcmp(path, o->index) == 0 || tsr_dir_is_dcp_part(path);
}

static struct tsr_outdir_rule rule_of(const struct tsr_outputs *o)
{
	return (struct tsr_outdir_rule){ o->force, owns, o };
}

static enum tsr_status check_directory(const struct tsr_outputs *o,
				       const struct tsr_checkpoint *inputs, struct tsr_err *err)
{
	const struct tsr_outdir_rule rule = rule_of(o);

	for (unsigned f = 0; f < inputs->nfiles; f++)
		TSR_TRY(tsr_outdir_check_outside(o->path, tsr_file_path(inputs->files[f]), err));
	return tsr_outdir_check_target(o->path, &rule, 0, err);
}

/* The output must be neither an input nor a delta's base. */
static enum tsr_status check_not_read(const struct tsr_checkpoint *inputs, const char *path,
				      struct tsr_err *err)
{
	for (const struct tsr_checkpoint *c = inputs; c; c = c->replaces_base ? NULL : c->base) {
		for (unsigned f = 0; f < c->nfiles; f++)
			TSR_TRY(tsr_file_check_not(c->files[f], path, err));
	}
	return TSR_OK;
}

enum tsr_status tsr_outputs_check(struct tsr_outputs *o, const struct tsr_checkpoint *inputs,
				  struct tsr_err *err)
{
	o->replaced = inputs->replaces_base ? inputs->base : NULL;
	if (o->index)
		return check_directory(o, inputs, err);
	for (size_t i = 0; i < o->n + o->indexed; i++) {
		TSR_TRY(check_not_read(inputs, o->paths[i], err));
		if (o->n > 1 && !o->indexed && o->force && tsr_dir_has(o->paths[i]))
			return tsr_fail(err, TSR_E_IO,
					"%s: exists, and two files cannot be replaced at once; "
					"remove %s and %s first",
					o->paths[i], o->paths[0], o->paths[1]);
		TSR_TRY(tsr_outfile_check_target(o->paths[i], o->force, err));
	}
	return TSR_OK;
}

static enum tsr_status meet(struct tsr_outputs *o, size_t i, uint64_t nbytes,
			    struct tsr_parts *part, struct tsr_err *err)
{
	TSR_OWNED(free) char *temp = NULL;

	TSR_TRY(tsr_outfile_meet(o->paths[i], o->force && o->n == 1 && !o->indexed, nbytes,
				 tsr_part_id(part), tsr_part_joins(part), &o->files[i], err));
	temp = tsr_outfile_temporary(o->files[i]);
	return temp ? tsr_part_meet(part, temp, err) : tsr_fail_nomem(err, o->path);
}

static enum tsr_status meet_all(struct tsr_outputs *o, const uint64_t *nbytes,
				struct tsr_parts *part, struct tsr_err *err)
{
	if (o->index)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "%s: a directory is not written in parts",
				o->path);
	o->part = part;
	for (size_t i = 0; i < o->n; i++)
		TSR_TRY(meet(o, i, nbytes[i], part, err));
	return TSR_OK;
}

enum tsr_status tsr_outputs_take_back(const struct tsr_outputs *o, const struct tsr_parts *part,
				      bool shared, struct tsr_err *err)
{
	for (size_t i = 0; i < o->n && !o->index; i++) {
		if (shared)
			TSR_TRY(tsr_outfile_take_back(o->paths[i], tsr_part_id(part), err));
		(void)tsr_dir_remove_file(o->paths[i]);
	}
	return TSR_OK;
}

enum tsr_status tsr_outputs_leave(struct tsr_outputs *o, struct tsr_err *err)
{
	for (size_t i = 0; i < o->n; i++) {
		struct tsr_outfile *f = o->files[i];

		o->files[i] = NULL;
		TSR_TRY(tsr_outfile_leave(f, err));
	}
	return TSR_OK;
}

static enum tsr_status create_file(struct tsr_outputs *o, size_t i, uint64_t nbytes,
				   struct tsr_err *err)
{
	if (o->index)
		return tsr_outdir_file(o->dir, o->paths[i], nbytes, &o->files[i], err);
	if (o->nold)
		return tsr_outfile_create_like(o->paths[i], o->old[i < o->nold ? i : 0], nbytes,
					       &o->files[i], err);
	return tsr_outfile_create(o->paths[i], o->force && o->n == 1 && !o->indexed, nbytes,
				  &o->files[i], err);
}

enum tsr_status tsr_outputs_create(struct tsr_outputs *o, const uint64_t *nbytes,
				   struct tsr_parts *part, struct tsr_err *err)
{
	const struct tsr_outdir_rule rule = rule_of(o);

	if (part)
		return meet_all(o, nbytes, part, err);
	if (o->index)
		TSR_TRY(tsr_outdir_create(o->path, &rule, &o->dir, err));
	for (size_t i = 0; i < o->n; i++)
		TSR_TRY(create_file(o, i, nbytes[i], err));
	return TSR_OK;
}

static enum tsr_status publish_index(const struct tsr_outputs *o, const struct tsr_text *index,
				     struct tsr_err *err)
{
	TSR_OWNED(tsr_outfile_discard) struct tsr_outfile *f = NULL;

	TSR_TRY(o->index ? tsr_outdir_file(o->dir, o->index, index->nbytes, &f, err)
			 : tsr_outfile_create(o->paths[o->n], o->force, index->nbytes, &f, err));
	/* Publishing replaces the index that is there now: it has to be the one that was read. */
	TSR_TRY(tsr_checkpoint_check_unchanged(o->replaced, err));
	TSR_TRY(tsr_outfile_write(f, index->bytes, index->nbytes, 0, err));
	return tsr_outfile_publish(&f, err);
}

/* All of them are tried; the message is about the first that stays. */
static enum tsr_status remove_old(const struct tsr_outputs *o, struct tsr_err *err)
{
	enum tsr_status status = TSR_OK;

	for (size_t i = 0; i < o->nold; i++) {
		if (tsr_dir_remove_file(o->old[i]) || status != TSR_OK)
			continue;
		tsr_fail_errno(err, errno,
			       "%s: published and complete, but cannot remove what it replaced, %s",
			       o->path, o->old[i]);
		status = TSR_E_DURABILITY;
		if (err)
			err->code = status;
	}
	return status;
}

/* The status of an output of several files after publishing the files and the index. */
static enum tsr_status tidy(const struct tsr_outputs *o, enum tsr_status status, size_t published,
			    struct tsr_err *err)
{
	if (status == TSR_OK)
		return remove_old(o, err);
	/* The first error is the one to report.  What parts wrote stays theirs, to be joined again. */
	for (size_t i = 0; status != TSR_E_DURABILITY && i < published; i++) {
		if (o->part)
			(void)tsr_outfile_take_back(o->paths[i], tsr_part_id(o->part), NULL);
		else
			(void)tsr_dir_remove_file(o->paths[i]);
	}
	return status;
}

enum tsr_status tsr_outputs_publish(struct tsr_outputs *o, const struct tsr_text *index,
				    struct tsr_err *err)
{
	const struct tsr_outdir_rule rule = rule_of(o);
	enum tsr_status status = TSR_OK, one;
	size_t published = 0;

	/* All of them or none: no signal ends it between two files. */
	tsr_temporary_hold(1);
	while (published < o->n && tsr_is_written(status)) {
		one = tsr_outfile_publish(&o->files[published], err);
		published += tsr_is_written(one);
		status = one == TSR_OK ? status : one;
	}
	if (index && tsr_is_written(status)) {
		one = publish_index(o, index, err);
		status = one == TSR_OK ? status : one;
	}
	if (o->dir && tsr_is_written(status)) {
		one = tsr_outdir_publish(o->dir, &rule, err);
		o->dir = NULL;
		status = one == TSR_OK ? status : one;
	} else if (!o->index) {
		status = tidy(o, status, published, err);
	}
	tsr_temporary_hold(-1);
	return status;
}

void tsr_outputs_free(struct tsr_outputs *o)
{
	for (size_t i = 0; o->files && i < o->n; i++)
		tsr_outfile_discard(o->files[i]);
	tsr_outdir_discard(o->dir);
	tsr_arena_free(o->arena);
	*o = (struct tsr_outputs){ 0 };
}
