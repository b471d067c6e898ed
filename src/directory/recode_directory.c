/* SPDX-License-Identifier: Apache-2.0 */
/* A packed directory with other planes coded: what it unpacks to, figures and generations stay. */
#include "base/fail.h"
#include "base/option_size.h"
#include "directory/traversal.h"
#include "directory/stored.h"
#include "directory/write_directory.h"
#include "parts/part.h"

struct recoding {
	struct tsr_traversal t;
	const struct tsr_recode_options *options;
};

/* Whether a file becomes two: a packed directory opens as a model unless it is coded as an archive. */
static enum tsr_status becomes_two(const struct recoding *r, const char *from, bool *ret)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;

	TSR_TRY(tsr_checkpoint_open(&from, 1, r->options->open, &c, r->t.err));
	*ret = tsr_stored_as_model(c, r->options->coded);
	return TSR_OK;
}

static enum tsr_status recode(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	const struct recoding *r = (const struct recoding *)t;
	struct tsr_recode_options o = *r->options;
	struct tsr_unpacking *u = NULL;
	const char *from, *to;
	bool two;

	TSR_TRY(tsr_traversal_path(t, t->d->path, tsr_opened_file(e)->path, &from));
	TSR_TRY(tsr_traversal_path(t, t->out, tsr_opened_file(e)->path, &to));
	TSR_TRY(becomes_two(r, from, &two));
	TSR_TRY(tsr_stored_list(t->d, e, two, t->err));
	o.force = false;
	TSR_TRY(tsr_bases_find(t, e, &o.delta, &o.base_levels));
	if (two)
		TSR_TRY(tsr_traversal_path(t, t->out, e->path, &o.weights_out));
	TSR_TRY(tsr_traversal_settle(t,
				     tsr_recode(from, to, &o, tsr_traversal_run(t), &u, t->err)));
	if (u && t->watch.unpacked)
		t->watch.unpacked(t->watch.ctx, e, u);
	tsr_unpacking_free(u);
	return tsr_part_is_one(tsr_traversal_parts(t)) ? TSR_OK : tsr_stored_finish(t, e);
}

enum tsr_status tsr_recode_directory(const char *path, const char *out,
				     const struct tsr_recode_options *options,
				     const struct tsr_directory_watch *watch,
				     const struct tsr_run *run, struct tsr_directory **ret,
				     struct tsr_err *err)
{
	struct tsr_recode_options o = tsr_recode_defaults();
	struct recoding r = { .t.packed = true, .options = &o };
	struct tsr_open_options open;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_stored_open_options(&open, o.open, err));
	o.open = &open;
	if (o.max_shard_nbytes || o.weights_out)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: files of a packed directory stay the files that they are",
				path);
	r.t.delta = o.delta;
	r.t.follow = open.follow;
	r.t.output = (struct tsr_dir_output){ out, true, o.force, o.dry_run, NULL, recode };
	return tsr_directory_make(&r.t, path, watch, run, ret, err);
}
