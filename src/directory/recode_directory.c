/* SPDX-License-Identifier: Apache-2.0 */
/* A packed directory with other planes coded: what it unpacks to, figures and generations stay. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "directory/by_file.h"
#include "directory/dir_target.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "parts/part.h"

struct recoding {
	struct tsr_directory *d;
	const struct tsr_recode_options *options;
	struct tsr_directory_watch watch;
	struct tsr_by_file by_file;
	struct tsr_dir_target target;
	struct tsr_err *err;
};

/* --- One file --------------------------------------------------------------------------------- */

static enum tsr_status check_copy(const struct recoding *r, const struct tsr_directory_entry *e,
				  const struct tsr_stored_file *found)
{
	if (found->nbytes == e->nbytes && found->hash == e->stored[0].hash)
		return TSR_OK;
	return tsr_fail(r->err, TSR_E_FORMAT,
			"%s/%s: damaged: found %" PRIu64 " bytes with the hash %016" PRIx64
			", expected %" PRIu64 " with %016" PRIx64,
			r->d->path, e->path, found->nbytes, found->hash, e->nbytes,
			e->stored[0].hash);
}

/* As the source has it: totals in an index of shards are those of their new files. */
static enum tsr_status copy_to(struct recoding *r, struct tsr_directory_entry *e, const char *to)
{
	const struct tsr_place_in from = { r->d->path, e->path, tsr_opens_links(r->options->open) };
	struct tsr_stored_file found = { 0 };

	if (r->target.parts)
		(void)tsr_dir_remove_file(to);
	TSR_TRY(tsr_copy_original(&r->by_file, &from, e, to, &found, r->err));
	TSR_TRY(check_copy(r, e, &found));
	e->stored_nbytes = found.nbytes;
	e->total_was = NULL;
	return tsr_dir_set_mode(to, e->mode, r->err);
}

static enum tsr_status copy(struct recoding *r, struct tsr_directory_entry *e, const char *out)
{
	char *to = tsr_path_join(out, e->path);
	const enum tsr_status status = to ? copy_to(r, e, to) : tsr_fail_nomem(r->err, out);

	free(to);
	return status;
}

static enum tsr_status run_recode(struct recoding *r, struct tsr_directory_entry *e,
				  const char *from, const char *to, const char *weights)
{
	struct tsr_recode_options o = *r->options;
	struct tsr_unpacking *u = NULL;
	enum tsr_status status;

	o.weights_out = weights;
	o.force = false;
	status = tsr_by_file_settle(
		&r->by_file, tsr_recode(from, to, &o, tsr_by_file_run(&r->by_file), &u, r->err));
	if (status == TSR_OK && u && r->watch.unpacked)
		r->watch.unpacked(r->watch.ctx, e, u);
	tsr_unpacking_free(u);
	return status;
}

/* Whether a file becomes two: a packed directory opens as a model unless it is coded as an archive. */
static enum tsr_status becomes_two(const struct recoding *r, const char *from, bool *ret)
{
	struct tsr_checkpoint *c = NULL;

	TSR_TRY(tsr_checkpoint_open(&from, 1, r->options->open, &c, r->err));
	*ret = tsr_stored_as_model(c, r->options->coded);
	tsr_checkpoint_close(c);
	return TSR_OK;
}

static enum tsr_status recode(struct recoding *r, struct tsr_directory_entry *e, const char *out)
{
	char *from = tsr_path_join(r->d->path, tsr_opened_file(e)->path);
	char *to = tsr_path_join(out, tsr_opened_file(e)->path);
	char *weights = tsr_path_join(out, e->path);
	enum tsr_status status = from && to && weights ? TSR_OK : tsr_fail_nomem(r->err, out);
	bool two = false;

	if (status == TSR_OK)
		status = becomes_two(r, from, &two);
	if (status == TSR_OK)
		status = tsr_stored_list(r->d, e, two, r->err);
	if (status == TSR_OK)
		status = run_recode(r, e, from, to, two ? weights : NULL);
	if (status == TSR_OK && !tsr_part_is_one(r->target.parts))
		status = tsr_stored_finish(e, out, r->err);
	free(from);
	free(to);
	free(weights);
	return status;
}

/* --- The directory ---------------------------------------------------------------------------- */

static enum tsr_status write_entry(struct recoding *r, struct tsr_directory_entry *e,
				   const char *out)
{
	enum tsr_status status;
	char *path;

	tsr_part_next_file(r->target.parts);
	TSR_TRY(tsr_by_file_next(&r->by_file, e->stored_nbytes, r->err));
	if (e->as == TSR_STORED_PACKED)
		return recode(r, e, out);
	/* Copies are of who joins the parts. */
	if (e->as == TSR_STORED_COPY)
		return tsr_part_is_one(r->target.parts) ? TSR_OK : copy(r, e, out);
	if (e->as == TSR_STORED_PART)
		return TSR_OK;
	path = tsr_path_join(out, e->path);
	status = path ? tsr_dir_make_in(&r->target, path, r->err) : tsr_fail_nomem(r->err, out);
	free(path);
	return status;
}

static enum tsr_status write_all(struct recoding *r, const char *out)
{
	for (size_t i = 0; i < r->d->n; i++)
		TSR_TRY(write_entry(r, &r->d->entries[i], out));
	tsr_part_end_files(r->target.parts);
	TSR_TRY(tsr_part_end(r->target.parts, r->err));
	TSR_TRY(tsr_dir_remove_index(&r->target, out, r->err));
	TSR_TRY(tsr_correct_totals(r->d, out, &r->by_file, r->err));
	TSR_TRY(tsr_by_file_settle(&r->by_file, tsr_directory_write_index(r->d, out, r->err)));
	return tsr_by_file_next(&r->by_file, 0, r->err);
}

static enum tsr_status run_recoding(struct recoding *r, const char *out, const struct tsr_run *run)
{
	const bool follow = tsr_opens_links(r->options->open);
	struct tsr_outdir *made = NULL;
	enum tsr_status status;
	uint64_t nbytes = 0;

	r->target = (struct tsr_dir_target){ out, true, r->options->force,
					     run ? run->parts : NULL };
	TSR_TRY(tsr_directory_remark_others(r->d, follow, r->err));
	for (size_t i = 0; i < r->d->n; i++) {
		TSR_TRY(tsr_check_stored(r->d, &r->d->entries[i], follow, r->err));
		nbytes += r->d->entries[i].stored_nbytes;
	}
	TSR_TRY(tsr_dir_check_target(r->d, &r->target, nbytes, r->err));
	if (r->options->dry_run)
		return TSR_OK;
	tsr_by_file_start(&r->by_file, run, r->d->path, nbytes);
	TSR_TRY(tsr_dir_start(r->d, &r->target, &made, r->err));
	status = write_all(r, tsr_outdir_path(made));
	return tsr_dir_end(r->d, &r->target, made, status, r->err);
}

enum tsr_status tsr_recode_directory(const char *path, const char *out,
				     const struct tsr_recode_options *options,
				     const struct tsr_directory_watch *watch,
				     const struct tsr_run *run, struct tsr_directory **ret,
				     struct tsr_err *err)
{
	struct tsr_recode_options o = tsr_recode_defaults();
	struct recoding r = { .options = &o, .watch = tsr_directory_watch_defaults(), .err = err };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&r.watch, watch, err));
	if (o.max_shard_nbytes || o.weights_out)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: files of a packed directory stay the files that they are",
				path);
	TSR_TRY(tsr_directory_open(path, &r.d, err));
	status = run_recoding(&r, out, run);
	if (status == TSR_OK)
		status = tsr_directory_durability(out, r.by_file.doubt, err);
	if (status == TSR_OK || status == TSR_E_DURABILITY)
		*ret = r.d;
	else
		tsr_directory_close(r.d);
	return status;
}
