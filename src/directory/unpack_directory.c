/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking a directory: every file comes back under its name, copies checked against their hashes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "directory/by_file.h"
#include "directory/directory_data.h"
#include "directory/dir_target.h"
#include "directory/shard_total.h"
#include "directory/stored.h"
#include "io/dir.h"
#include "parts/part.h"

struct unpacking {
	struct tsr_directory *d; /* the packed directory */
	const struct tsr_write_options *options;
	struct tsr_directory_watch watch;
	struct tsr_by_file by_file;
	struct tsr_dir_target target;
	struct tsr_err *err;
};

/* --- One file --------------------------------------------------------------------------------- */

static enum tsr_status copy(struct unpacking *u, const struct tsr_directory_entry *e,
			    const char *to)
{
	const struct tsr_place_in from = { u->d->path, e->path, tsr_opens_links(u->options->open) };
	struct tsr_stored_file found = { 0 };

	if (u->target.parts)
		(void)tsr_dir_remove_file(to);
	TSR_TRY(tsr_copy_original(&u->by_file, &from, e, to, &found, u->err));
	if (found.nbytes == e->nbytes && found.hash == e->stored[0].hash)
		return TSR_OK;
	return tsr_fail(u->err, TSR_E_FORMAT,
			"%s/%s: damaged: found %" PRIu64 " bytes with the hash %016" PRIx64
			", expected %" PRIu64 " with %016" PRIx64,
			u->d->path, e->path, found.nbytes, found.hash, e->nbytes,
			e->stored[0].hash);
}

static enum tsr_status unpack(struct unpacking *u, struct tsr_directory_entry *e, const char *to)
{
	struct tsr_write_options o = *u->options;
	struct tsr_unpacking *unpacking = NULL;
	enum tsr_status status;
	char *from;

	o.container = e->container;
	o.force = false;
	from = tsr_path_join(u->d->path, tsr_opened_file(e)->path);
	if (!from)
		return tsr_fail_nomem(u->err, e->path);
	status = tsr_by_file_settle(
		&u->by_file,
		tsr_unpack(from, to, &o, tsr_by_file_run(&u->by_file), &unpacking, u->err));
	free(from);
	TSR_TRY(status);
	if (!unpacking)
		return TSR_OK;
	if (e->container != TSR_CONTAINER_DCP)
		e->nbytes = tsr_unpacking_nbytes(unpacking);
	if (u->watch.unpacked)
		u->watch.unpacked(u->watch.ctx, e, unpacking);
	tsr_unpacking_free(unpacking);
	return TSR_OK;
}

/*
 * A DCP comes back as a directory.  It is made under the name of its packed file, which nothing else has,
 * and then its files are moved up, beside what else was in the source's directory.
 */
static enum tsr_status unpack_dcp(struct unpacking *u, struct tsr_directory_entry *e,
				  const char *out)
{
	char *made = tsr_path_join(out, tsr_opened_file(e)->path);
	enum tsr_status status;

	if (!made)
		return tsr_fail_nomem(u->err, out);
	status = unpack(u, e, made);
	if (status == TSR_OK)
		status = tsr_dir_move_up(made, e->mode, u->err);
	free(made);
	return status;
}

/* --- The directory ---------------------------------------------------------------------------- */

static enum tsr_status write_entry(struct unpacking *u, struct tsr_directory_entry *e,
				   const char *out)
{
	enum tsr_status status;
	char *to;

	tsr_part_next_file(u->target.parts);
	TSR_TRY(tsr_by_file_next(&u->by_file, e->stored_nbytes, u->err));
	/* Copies are of who joins the parts. */
	if (e->as == TSR_STORED_PART ||
	    (e->as == TSR_STORED_COPY && tsr_part_is_one(u->target.parts)))
		return TSR_OK;
	if (e->as == TSR_STORED_PACKED && e->container == TSR_CONTAINER_DCP)
		return unpack_dcp(u, e, out);
	to = tsr_path_join(out, e->path);
	if (!to)
		return tsr_fail_nomem(u->err, out);
	if (e->as == TSR_STORED_DIRECTORY)
		status = tsr_dir_make_in(&u->target, to, u->err);
	else if (e->as == TSR_STORED_COPY)
		status = copy(u, e, to);
	else
		status = unpack(u, e, to);
	if (status == TSR_OK && e->as != TSR_STORED_DIRECTORY && !tsr_part_is_one(u->target.parts))
		status = tsr_dir_set_mode(to, e->mode, u->err);
	free(to);
	return status;
}

/* Whether all files are there, before anything is written, and what they take.  Links are found here. */
static enum tsr_status check_all(struct unpacking *u, uint64_t *nbytes_ret)
{
	TSR_TRY(tsr_directory_remark_others(u->d, tsr_opens_links(u->options->open), u->err));
	*nbytes_ret = 0;
	for (size_t i = 0; i < u->d->n; i++) {
		const struct tsr_directory_entry *e = &u->d->entries[i];

		TSR_TRY(tsr_by_file_next(&u->by_file, 0, u->err));
		TSR_TRY(tsr_check_stored(u->d, e, tsr_opens_links(u->options->open), u->err));
		*nbytes_ret += e->nbytes;
	}
	return TSR_OK;
}

static enum tsr_status write_all(struct unpacking *u, const char *out)
{
	for (size_t i = 0; i < u->d->n; i++)
		TSR_TRY(write_entry(u, &u->d->entries[i], out));
	tsr_part_end_files(u->target.parts);
	TSR_TRY(tsr_part_end(u->target.parts, u->err));
	return tsr_by_file_next(&u->by_file, 0, u->err);
}

static enum tsr_status run_unpacking(struct unpacking *u, const char *out,
				     const struct tsr_run *run)
{
	struct tsr_outdir *made = NULL;
	uint64_t nbytes = 0, total = 0;
	enum tsr_status status;

	u->target = (struct tsr_dir_target){ out, false, u->options->force,
					     run ? run->parts : NULL };
	tsr_by_file_start(&u->by_file, run, u->d->path, 0);
	TSR_TRY(check_all(u, &nbytes));
	TSR_TRY(tsr_dir_check_target(u->d, &u->target, nbytes, u->err));
	if (u->options->dry_run)
		return TSR_OK;
	for (size_t i = 0; i < u->d->n; i++)
		total += u->d->entries[i].stored_nbytes;
	tsr_by_file_start(&u->by_file, run, u->d->path, total);
	TSR_TRY(tsr_dir_start(u->d, &u->target, &made, u->err));
	status = write_all(u, tsr_outdir_path(made));
	return tsr_dir_end(u->d, &u->target, made, status, u->err);
}

enum tsr_status tsr_unpack_directory(const char *path, const char *out,
				     const struct tsr_write_options *options,
				     const struct tsr_directory_watch *watch,
				     const struct tsr_run *run, struct tsr_directory **ret,
				     struct tsr_err *err)
{
	struct tsr_write_options o = tsr_write_defaults();
	struct unpacking u = { .options = &o, .watch = tsr_directory_watch_defaults(), .err = err };
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(tsr_options_take(&u.watch, watch, err));
	if (o.flashoptim || o.max_shard_nbytes || o.container != TSR_CONTAINER_COUNT)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: the files of a packed directory come back as they were, in no "
				"other container",
				path);
	TSR_TRY(tsr_directory_open(path, &u.d, err));
	status = run_unpacking(&u, out, run);
	if (status == TSR_OK)
		status = tsr_directory_durability(out, u.by_file.doubt, err);
	if (status == TSR_OK || status == TSR_E_DURABILITY)
		*ret = u.d;
	else
		tsr_directory_close(u.d);
	return status;
}
