/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a checkpoint of a store again: the file or directory as it was. */
#include "base/fail.h"
#include "base/little_endian.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "io/crc.h"
#include "io/dir.h"
#include "io/atomic_dir.h"
#include "io/file.h"
#include "store/ranges.h"

#define BUFFER_NBYTES ((size_t)1 << 20)

struct getting {
	struct tsr_store *store;
	const struct tsr_snapshot *snapshot;
	struct tsr_outfile **files; /* per path of the snapshot; NULL: a directory */
	struct tsr_progress progress;
	struct tsr_block_job *jobs;
};

/* --- Blocks ----------------------------------------------------------------------------------- */

static void close_reader(void *ctx, void *reader)
{
	(void)ctx;
	tsr_object_reader_close(reader);
}

static enum tsr_status open_reader(void *ctx, const struct tsr_run *run, void *reader,
				   struct tsr_err *err)
{
	(void)ctx;
	(void)run;
	return tsr_object_reader_open(reader, false, err);
}

struct writing_rest {
	struct tsr_outfile *f;
	const uint8_t *bytes;
};

static enum tsr_status write_part(void *ctx, uint64_t offset, size_t at, size_t nbytes,
				  struct tsr_err *err)
{
	const struct writing_rest *w = ctx;

	return tsr_outfile_write(w->f, w->bytes + at, nbytes, offset, err);
}

static enum tsr_status write_tensor(const struct getting *g, const struct tsr_stored_tensor *t,
				    void *const y[TSR_SLOTS], size_t nbytes, uint64_t at,
				    struct tsr_err *err)
{
	for (unsigned i = 0; i < t->slots; i++)
		TSR_TRY(tsr_outfile_write(g->files[t->file[i]], y[i], nbytes, t->offset[i] + at,
					  err));
	return TSR_OK;
}

static enum tsr_status work(void *ctx, void *scratch, uint64_t number, struct tsr_err *err)
{
	const struct getting *g = ctx;
	const struct tsr_snapshot *s = g->snapshot;
	struct tsr_object_reader *r = scratch;
	const struct tsr_block_job *job = &g->jobs[number];
	const struct tsr_block_of of = tsr_job_block(s, job);
	const uint64_t element = tsr_dtype_bits(of.dtype) / 8,
		       at = job->piece * (uint64_t)TSR_STORE_BLOCK * element;

	TSR_TRY(tsr_object_read(g->store, r, tsr_job_object(s, job), &of, err));
	if (!job->rest)
		return write_tensor(g, &s->tensors[job->item], r->y, (size_t)(of.at.n * element),
				    at, err);
	return tsr_rest_each(&s->paths[job->item], at, of.at.n, write_part,
			     &(struct writing_rest){ g->files[job->item], r->y[0] }, err);
}

static enum tsr_status commit(void *ctx, void *scratch, uint64_t number, struct tsr_err *err)
{
	struct getting *g = ctx;
	const struct tsr_block_of of = tsr_job_block(g->snapshot, &g->jobs[number]);

	(void)scratch;
	return tsr_progress_add(&g->progress,
				of.at.n * (uint64_t)of.slots * tsr_dtype_bits(of.dtype) / 8, err);
}

static enum tsr_status write_blocks(struct getting *g, const struct tsr_run *run,
				    struct tsr_err *err)
{
	struct tsr_pipeline p = { .scratch_nbytes = sizeof(struct tsr_object_reader),
				  .open = open_reader,
				  .close = close_reader,
				  .work = work,
				  .commit = commit,
				  .ctx = g };
	size_t njobs;

	TSR_TRY(tsr_block_jobs(g->snapshot, NULL, true, &g->jobs, &njobs, err));
	p.njobs = njobs;
	return njobs ? tsr_pipeline_run(&p, run, err) : TSR_OK;
}

/* --- Files ------------------------------------------------------------------------------------ */

static enum tsr_status crc_of(const struct tsr_outfile *f, const struct tsr_stored_crc *c,
			      void *buffer, uint32_t *ret, struct tsr_err *err)
{
	*ret = 0;
	for (uint64_t at = 0; at < c->nbytes;) {
		const uint64_t left = c->nbytes - at;
		const size_t n = left < BUFFER_NBYTES ? (size_t)left : BUFFER_NBYTES;

		TSR_TRY(tsr_outfile_read(f, buffer, n, c->offset + at, err));
		*ret = tsr_crc32(*ret, buffer, n);
		at += n;
	}
	return TSR_OK;
}

/* The checksums of zip members are those of what was written. */
static enum tsr_status correct_crcs(struct tsr_outfile *f, const struct tsr_stored_path *p,
				    void *buffer, struct tsr_err *err)
{
	uint32_t crc = 0;

	for (size_t i = 0; i < p->ncrcs; i++) {
		const struct tsr_stored_crc *c = &p->crcs[i];
		uint8_t bytes[4];

		if (!i || c[-1].offset != c->offset || c[-1].nbytes != c->nbytes)
			TSR_TRY(crc_of(f, c, buffer, &crc, err));
		tsr_put_le(bytes, crc, 4);
		TSR_TRY(tsr_outfile_write(f, bytes, 4, c->at, err));
	}
	return TSR_OK;
}

/* Complete the files, each of which is then done with. */
static enum tsr_status publish(struct getting *g, void *buffer, struct tsr_err *err)
{
	for (size_t i = 0; i < g->snapshot->npaths; i++) {
		const struct tsr_stored_path *p = &g->snapshot->paths[i];

		if (!g->files[i])
			continue;
		TSR_TRY(correct_crcs(g->files[i], p, buffer, err));
		TSR_TRY(tsr_outfile_publish(&g->files[i], err));
	}
	return TSR_OK;
}

static enum tsr_status write_all(struct getting *g, const struct tsr_run *run, struct tsr_err *err)
{
	TSR_OWNED(free) char *buffer = NULL;

	TSR_TRY(write_blocks(g, run, err));
	TSR_TRY(TSR_NEW(&buffer, BUFFER_NBYTES, err, g->store->path));
	return publish(g, buffer, err);
}

/* Permissions last: a directory may not let its owner write. */
static enum tsr_status set_modes(const struct tsr_snapshot *s, const char *root,
				 struct tsr_err *err)
{
	for (size_t i = s->npaths; i-- > 0;) {
		TSR_OWNED(free) char *path = tsr_path_join(root, s->paths[i].path);

		if (!path)
			return tsr_fail_nomem(err, root);
		TSR_TRY(tsr_dir_set_mode(path, s->paths[i].mode, err));
	}
	return TSR_OK;
}

static enum tsr_status write_directory(struct getting *g, struct tsr_outdir *d,
				       const struct tsr_run *run, struct tsr_err *err)
{
	const struct tsr_snapshot *s = g->snapshot;

	for (size_t i = 0; i < s->npaths; i++) {
		const struct tsr_stored_path *p = &s->paths[i];
		TSR_OWNED(free) char *path = tsr_path_join(tsr_outdir_path(d), p->path);

		if (!path)
			return tsr_fail_nomem(err, tsr_outdir_path(d));
		TSR_TRY(p->is_directory
				? tsr_dir_make(path, err)
				: tsr_outdir_file(d, p->path, p->nbytes, &g->files[i], err));
	}
	TSR_TRY(write_all(g, run, err));
	return set_modes(s, tsr_outdir_path(d), err);
}

static bool owns(const void *ctx, const char *path)
{
	const struct tsr_snapshot *s = ctx;

	for (size_t i = 0; i < s->npaths; i++)
		if (strcmp(s->paths[i].path, path) == 0)
			return true;
	return false;
}

/* Those that were not published; before the directory that they are in is ended. */
static void drop_files(struct getting *g)
{
	for (size_t i = 0; i < g->snapshot->npaths; i++) {
		tsr_outfile_discard(g->files[i]);
		g->files[i] = NULL;
	}
}

static enum tsr_status get_directory(struct getting *g, const char *out, bool force,
				     const struct tsr_run *run, struct tsr_err *err)
{
	const struct tsr_outdir_rule rule = { force, owns, g->snapshot };
	struct tsr_outdir *d = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_outdir_create(out, &rule, &d, err));
	status = write_directory(g, d, run, err);
	drop_files(g);
	if (status == TSR_OK)
		return tsr_outdir_publish(d, &rule, err);
	tsr_outdir_discard(d);
	return status;
}

static enum tsr_status get_file(struct getting *g, const char *out, bool force,
				const struct tsr_run *run, struct tsr_err *err)
{
	const struct tsr_stored_path *p = g->snapshot->paths;

	TSR_TRY(tsr_outfile_create(out, force, p->nbytes, &g->files[0], err));
	TSR_TRY(write_all(g, run, err));
	return tsr_dir_set_mode(out, p->mode, err);
}

enum tsr_status tsr_store_get(struct tsr_store *s, uint64_t step, const char *out, bool force,
			      const struct tsr_run *run, struct tsr_err *err)
{
	struct getting g = { .store = s, .snapshot = tsr_store_find(s, step) };
	enum tsr_status status;

	if (!g.snapshot)
		return tsr_fail(err, TSR_E_USAGE, "%s: has no step %" PRIu64, s->path, step);
	TSR_TRY(tsr_outdir_check_outside(out, s->path, err));
	TSR_TRY(tsr_outdir_check_not_below(out, s->path, err));
	g.progress = (struct tsr_progress){ .run = run,
					    .what = s->path,
					    .total_nbytes = g.snapshot->info.nbytes };
	status = TSR_NEW(&g.files, g.snapshot->npaths + 1, err, s->path);
	TSR_THEN(status,
		 (g.snapshot->is_file ? get_file : get_directory)(&g, out, force, run, err));
	if (g.files)
		drop_files(&g);
	free(g.files);
	free(g.jobs);
	return status;
}
