/* SPDX-License-Identifier: Apache-2.0 */
/* Adding a checkpoint to a store. */
#include "base/fail.h"
#include "base/option_size.h"
#include "io/atomic_dir.h"
#include "store/encode_blocks.h"
#include "store/sources.h"

#define NAME_MAX_NBYTES 255u

struct tsr_store_add_options tsr_store_add_defaults(void)
{
	struct tsr_store_add_options o = { .size = sizeof(o) };

	(void)tsr_store_tier_find("exact", &o.tier);
	return o;
}

struct adding {
	struct tsr_store_source source;
	struct tsr_snapshot snapshot;
};

static enum tsr_status read_block(void *ctx, struct tsr_encode_scratch *s,
				  const struct tsr_block_job *job, struct tsr_err *err)
{
	const struct adding *a = ctx;
	const struct tsr_block_of of = tsr_job_block(&a->snapshot, job);
	const uint64_t element = tsr_dtype_bits(of.dtype) / 8,
		       at = job->piece * (uint64_t)TSR_STORE_BLOCK * element;
	const struct tsr_stored_tensor *t;

	if (job->rest)
		return tsr_source_read_rest(&a->source, &a->snapshot, job->item, s->source.y[0],
					    of.at.n, at, err);
	t = &a->snapshot.tensors[job->item];
	for (unsigned i = 0; i < t->slots; i++)
		TSR_TRY(tsr_source_read(&a->source, t->file[i], s->source.y[i],
					(size_t)(of.at.n * element), t->offset[i] + at, err));
	return TSR_OK;
}

static enum tsr_status check_options(const struct tsr_store *s,
				     const struct tsr_store_add_options *o, struct tsr_err *err)
{
	if (tsr_store_find(s, o->step))
		return tsr_fail(err, TSR_E_USAGE,
				"%s: has step %" PRIu64 " already; drop it first, or give another",
				s->path, o->step);
	if (o->name && strlen(o->name) > NAME_MAX_NBYTES)
		return tsr_fail(err, TSR_E_USAGE, "%s: a name of at most %u bytes is expected",
				s->path, NAME_MAX_NBYTES);
	return TSR_OK;
}

/* The version before: the last one of an earlier step. */
static const struct tsr_snapshot *find_base(const struct tsr_store *s, uint64_t step)
{
	const struct tsr_snapshot *found = NULL;

	for (size_t i = 0; i < s->nsnapshots; i++)
		if (s->snapshots[i].info.step < step)
			found = &s->snapshots[i];
	return found;
}

static enum tsr_status encode(struct tsr_store *s, struct adding *a, const struct tsr_run *run,
			      struct tsr_store_added *ret, struct tsr_err *err)
{
	struct tsr_encoding e = { .store = s,
				  .to = &a->snapshot,
				  .base = find_base(s, a->snapshot.info.step),
				  .read = read_block,
				  .ctx = a,
				  .added = ret };

	e.progress = (struct tsr_progress){ .run = run,
					    .what = a->source.path,
					    .total_nbytes = a->snapshot.info.nbytes };
	return tsr_encode_blocks(&e, run, err);
}

static enum tsr_status add(struct tsr_store *s, struct adding *a, const char *checkpoint,
			   const struct tsr_store_add_options *o, const struct tsr_run *run,
			   struct tsr_store_added *ret, struct tsr_err *err)
{
	struct tsr_snapshot_info *info = &a->snapshot.info;

	TSR_TRY(check_options(s, o, err));
	TSR_TRY(tsr_outdir_check_not_below(s->path, checkpoint, err));
	TSR_TRY(tsr_outdir_check_outside(s->path, checkpoint, err));
	TSR_TRY(tsr_source_open(&a->source, checkpoint, o->follow, s->arena, &a->snapshot,
				ret->note, err));
	ret->has_note = *ret->note != '\0';
	info->step = o->step;
	info->tier = o->tier;
	info->errors = (struct tsr_store_errors){ -1, -1, -1, -1 };
	info->name = tsr_arena_string(s->arena, o->name ? o->name : "");
	if (!info->name)
		return tsr_fail_nomem(err, s->path);
	TSR_TRY(tsr_store_begin(s, err));
	TSR_TRY(encode(s, a, run, ret, err));
	TSR_TRY(tsr_source_check_unchanged(&a->source, err));
	TSR_TRY(tsr_objects_sync(s, err));
	TSR_TRY(tsr_snapshot_write(s, &a->snapshot, false, err));
	ret->info = *info;
	return TSR_OK;
}

enum tsr_status tsr_store_add(struct tsr_store *s, const char *checkpoint,
			      const struct tsr_store_add_options *options,
			      const struct tsr_run *run, struct tsr_store_added *ret,
			      struct tsr_err *err)
{
	struct tsr_store_add_options o = tsr_store_add_defaults();
	struct adding a = { .snapshot = { .eps = 0 } };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	*ret = (struct tsr_store_added){ .has_note = false };
	status = add(s, &a, checkpoint, &o, run, ret, err);
	tsr_store_end(s, status == TSR_OK);
	tsr_source_close(&a.source);
	return status;
}
