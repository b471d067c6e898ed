/* SPDX-License-Identifier: Apache-2.0 */
/* A recording with its gradients entropy coded, or plain again, file by file under the same names. */
#include "base/fail.h"
#include "base/option_size.h"
#include "ckpt/checkpoint_model.h"
#include "directory/copying.h"
#include "directory/write_directory.h"
#include "io/dir.h"
#include "pack/packing.h"
#include "recording/recording_data.h"

struct recoding {
	struct tsr_traversal t; /* of each node below the recording */
	struct tsr_recording_data *recording;
	const struct tsr_recode_options *options;
};

/* --- What becomes of a file --------------------------------------------------------------------- */

/* A gradient is a gradient, whatever it is called: nothing may be lost. */
static bool is_lossless(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->tensors[i].coding.codec)
			return false;
	}
	return true;
}

/* Why a file of gradients is only copied; NULL: it is worth a try. */
static const char *why_not(const struct recoding *r, const struct tsr_checkpoint *c)
{
	if (c->container != TSR_CONTAINER_SAFETENSORS)
		return "not safetensors";
	if (r->options->coded != TSR_CODED_NONE)
		return c->packed ? "packed already" : NULL;
	if (!c->packed)
		return "plain already";
	return is_lossless(c) ? NULL : "packed in a codec with loss";
}

static enum tsr_status look(struct recoding *r, struct tsr_directory_entry *e)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	const char *path;

	TSR_TRY(tsr_traversal_path(&r->t, r->t.d->path, e->path, &path));
	TSR_TRY(tsr_checkpoint_open(&path, 1, &r->recording->options, &c, r->t.err));
	e->reason = why_not(r, c);
	e->as = e->reason ? TSR_STORED_COPY : TSR_STORED_PACKED;
	e->container = c->container;
	return TSR_OK;
}

static enum tsr_status plan(struct tsr_traversal *t)
{
	struct recoding *r = (struct recoding *)t;
	const struct tsr_recording *recording = &r->recording->pub;

	for (size_t i = 0; i < recording->nsteps; i++) {
		for (size_t k = 0; k < recording->steps[i].nfiles; k++) {
			struct tsr_directory_entry *e = tsr_directory_find(
				t->d, recording->steps[i].files[k]);

			TSR_TRY(tsr_traversal_next(t, 0));
			if (e && e->as == TSR_STORED_COPY)
				TSR_TRY(look(r, e));
		}
	}
	return TSR_OK;
}

/* --- One file ----------------------------------------------------------------------------------- */

static enum tsr_status pack(struct recoding *r, const char *from, const char *to,
			    struct tsr_packing **ret)
{
	const struct tsr_name_rule raw = { ".*", TSR_KIND_OTHER };
	struct tsr_pack_options o = tsr_pack_defaults();
	bool matched = false;

	o.rules = &raw;
	o.nrules = 1;
	o.rules_matched = &matched;
	o.open = &r->recording->options;
	o.coded = TSR_CODED_ALL;
	o.meta_order = true;
	return tsr_traversal_settle(
		&r->t, tsr_pack(&from, 1, to, &o, tsr_traversal_run(&r->t), ret, r->t.err));
}

/* Whether what was coded is worth keeping: the reason if it is not. */
static enum tsr_status judge(struct recoding *r, struct tsr_directory_entry *e, const char *to,
			     const struct tsr_packing *packing)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;
	bool same = false;

	e->stored_nbytes = tsr_packing_nbytes(packing);
	if (e->stored_nbytes >= e->nbytes) {
		e->reason = "coding does not make it smaller";
		return TSR_OK;
	}
	TSR_TRY(tsr_open_below(&r->t, r->t.d->path, e->path, &f));
	TSR_TRY(tsr_unpacks_to(to, &r->recording->options, f, &same, r->t.err));
	if (!same)
		e->reason = "its header would not come back as it is";
	return TSR_OK;
}

static enum tsr_status code(struct recoding *r, struct tsr_directory_entry *e, const char *from,
			    const char *to)
{
	TSR_OWNED(tsr_packing_free) struct tsr_packing *packing = NULL;

	TSR_TRY(pack(r, from, to, &packing));
	TSR_TRY(judge(r, e, to, packing));
	if (e->reason) {
		(void)tsr_dir_remove_file(to);
		e->as = TSR_STORED_COPY;
		TSR_TRY(tsr_directory_copy(&r->t, e));
	}
	if (!e->reason && r->t.watch.packed)
		r->t.watch.packed(r->t.watch.ctx, e, packing);
	return TSR_OK;
}

static enum tsr_status decode(struct recoding *r, struct tsr_directory_entry *e, const char *from,
			      const char *to)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct tsr_unpacking *u = NULL;

	o.open = &r->recording->options;
	o.container = TSR_CONTAINER_SAFETENSORS;
	TSR_TRY(tsr_traversal_settle(
		&r->t, tsr_unpack(from, to, &o, tsr_traversal_run(&r->t), &u, r->t.err)));
	e->stored_nbytes = tsr_unpacking_nbytes(u);
	if (r->t.watch.unpacked)
		r->t.watch.unpacked(r->t.watch.ctx, e, u);
	tsr_unpacking_free(u);
	return TSR_OK;
}

static enum tsr_status write_file(struct tsr_traversal *t, struct tsr_directory_entry *e)
{
	struct recoding *r = (struct recoding *)t;
	const char *from, *to;

	TSR_TRY(tsr_traversal_path(t, t->d->path, e->path, &from));
	TSR_TRY(tsr_traversal_path(t, t->out, e->path, &to));
	TSR_TRY((r->options->coded == TSR_CODED_NONE ? decode : code)(r, e, from, to));
	return tsr_dir_set_mode(to, e->mode, t->err);
}

enum tsr_status tsr_recode_recording(const char *path, const char *out,
				     const struct tsr_recode_options *options,
				     const struct tsr_directory_watch *watch,
				     const struct tsr_run *run, struct tsr_directory **ret,
				     struct tsr_err *err)
{
	struct tsr_recode_options o = tsr_recode_defaults();
	TSR_OWNED(tsr_recording_close) struct tsr_recording *recording = NULL;
	struct recoding r = { .options = &o };

	TSR_TRY(tsr_options_take(&o, options, err));
	if (o.max_shard_nbytes || o.weights_out || o.coded == TSR_CODED_STATES)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: is a recording: its files stay files, coded whole or plain",
				path);
	TSR_TRY(tsr_recording_open(path, o.open, &recording, err));
	r.recording = (struct tsr_recording_data *)recording;
	r.t.follow = r.recording->options.follow;
	r.t.output = (struct tsr_dir_output){ out, false, o.force, o.dry_run, plan, write_file };
	return tsr_directory_make(&r.t, recording->path, watch, run, ret, err);
}
