/* SPDX-License-Identifier: Apache-2.0 */
/* Packing a directory: files with tensors become packed files, others are copied. */
#include "base/fail.h"
#include "base/option_size.h"
#include "directory/plan.h"
#include "directory/stored.h"
#include "directory/write_directory.h"
#include "io/dir.h"
#include "names/name_rules.h"

static enum tsr_status remove_stored(struct tsr_traversal *t, const struct tsr_directory_entry *e)
{
	for (unsigned i = 0; i < e->nstored; i++) {
		const char *path;

		TSR_TRY(tsr_traversal_path(t, t->out, e->stored[i].path, &path));
		(void)tsr_dir_remove_file(path);
	}
	return TSR_OK;
}

/* Copy the parts of a checkpoint that is not packed after all; the later ones have their turn. */
static enum tsr_status copy_parts(struct tsr_dir_packing *p,
				  const struct tsr_directory_entry *metadata)
{
	if (metadata->container != TSR_CONTAINER_DCP)
		return TSR_OK;
	tsr_dir_settle_parts(p, metadata, TSR_STORED_COPY);
	for (struct tsr_directory_entry *e = p->t.d->entries; e != metadata; e++) {
		if (tsr_directory_is_part(metadata, e->path) && e->as == TSR_STORED_COPY)
			TSR_TRY(tsr_directory_copy(&p->t, e));
	}
	return TSR_OK;
}

/* Keep what packing made, or copy if it turned out not to be worth it. */
static enum tsr_status keep_or_copy(struct tsr_dir_packing *p, struct tsr_directory_entry *e,
				    const struct tsr_packing *packing)
{
	struct tsr_traversal *t = &p->t;
	const char *reason;

	e->generation = tsr_packing_generation(packing);
	TSR_TRY(tsr_stored_finish(t, e));
	reason = tsr_dir_no_gain(p, e, packing);
	if (reason) {
		TSR_TRY(remove_stored(t, e));
		TSR_TRY(tsr_dir_plan_copy(p, e, reason));
		TSR_TRY(tsr_directory_copy(t, e));
		TSR_TRY(copy_parts(p, e));
	}
	if (t->watch.packed)
		t->watch.packed(t->watch.ctx, e, packing);
	return TSR_OK;
}

static enum tsr_status pack(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	struct tsr_dir_packing *p = (struct tsr_dir_packing *)t;
	const char *from, *to, *weights = NULL;
	TSR_OWNED(tsr_packing_free) struct tsr_packing *packing = NULL;
	struct tsr_pack_options o;

	TSR_TRY(tsr_traversal_path(t, t->d->path, e->path, &from));
	TSR_TRY(tsr_traversal_path(t, t->out, tsr_opened_file(e)->path, &to));
	if (e->nstored > 1)
		TSR_TRY(tsr_traversal_path(t, t->out, e->path, &weights));
	TSR_TRY(tsr_dir_file_options(p, e, weights, &o));
	TSR_TRY(tsr_traversal_settle(
		t, tsr_pack(&from, 1, to, &o, tsr_traversal_run(t), &packing, t->err)));
	if (packing)
		TSR_TRY(keep_or_copy(p, e, packing));
	return TSR_OK;
}

/* Rules are for all files together. */
static enum tsr_status plan(struct tsr_traversal *t)
{
	const struct tsr_pack_options *o = ((struct tsr_dir_packing *)t)->options;

	TSR_TRY(tsr_dir_plan(t));
	if (!o->strict || !o->rules_matched)
		return TSR_OK;
	return tsr_name_rules_strict(o->rules, o->nrules, o->rules_matched, t->d->path, t->err);
}

static enum tsr_status check_input(const char *path, const struct tsr_pack_options *o,
				   struct tsr_err *err)
{
	if (!tsr_dir_is(path))
		return tsr_fail(err, TSR_E_USAGE, "%s: is not a directory", path);
	if (o->max_shard_nbytes)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: files of a packed directory are not split into shards", path);
	if (o->choice && o->choice->max_nbytes)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: a number of bytes is for one packed file; each file of a "
				"directory has its own",
				path);
	if (tsr_directory_is_packed(path))
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: has a file " TSR_DIRECTORY_INDEX
				", so it is a packed directory already",
				path);
	return TSR_OK;
}

enum tsr_status tsr_pack_directory(const char *path, const char *out,
				   const struct tsr_pack_options *options,
				   const struct tsr_directory_watch *watch,
				   const struct tsr_run *run, struct tsr_directory **ret,
				   struct tsr_err *err)
{
	struct tsr_pack_options o = tsr_pack_defaults();
	struct tsr_dir_packing p = { .options = &o };
	struct tsr_open_options open;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_directory_open_options(&open, o.open, err));
	o.open = &open;
	if (o.delta && o.coded == TSR_CODED_NONE)
		o.coded = TSR_CODED_ALL;
	TSR_TRY(check_input(path, &o, err));
	p.t.delta = o.delta;
	p.t.follow = open.follow;
	p.t.output = (struct tsr_dir_output){ out, true, o.force, o.dry_run, plan, pack };
	return tsr_directory_make(&p.t, path, watch, run, ret, err);
}
