/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a directory, one entry after the other. */
#include "directory/traversal.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "parts/part.h"

enum tsr_status tsr_traversal_open(struct tsr_traversal *t, const char *path,
				   const struct tsr_directory_watch *watch, struct tsr_err *err)
{
	t->watch = tsr_directory_watch_defaults();
	t->err = err ? err : &t->own;
	TSR_TRY(tsr_options_take(&t->watch, watch, t->err));
	if (t->packed)
		return tsr_directory_open(path, &t->d, t->err);
	return tsr_directory_list(path, t->follow, &t->nodes, &t->d, t->err);
}

enum tsr_status tsr_traversal_end(struct tsr_traversal *t, enum tsr_status status,
				  struct tsr_directory **ret)
{
	tsr_nodes_free(&t->nodes);
	tsr_arena_free(t->scratch);
	tsr_directory_close(t->bases);
	if (status == TSR_OK && t->doubt)
		status = tsr_fail(t->err, TSR_E_DURABILITY,
				  "%s: published and complete, but may not survive a power cut: "
				  "cannot sync a directory in it",
				  t->output.path);
	if (tsr_is_written(status))
		*ret = t->d;
	else
		tsr_directory_close(t->d);
	return status;
}

/* --- Progress --------------------------------------------------------------------------------- */

static bool report(void *ctx, uint64_t done, uint64_t total)
{
	const struct tsr_traversal *t = ctx;
	const double share = total ? (double)done / (double)total : 0;
	const uint64_t of_file = (uint64_t)(share * (double)t->file_nbytes);

	/* While the total is not known yet, nothing is done. */
	return t->given->progress(t->given->ctx, t->done_nbytes + of_file,
				  t->total_nbytes ? t->total_nbytes : 1);
}

void tsr_traversal_start(struct tsr_traversal *t, const struct tsr_run *run, bool plan)
{
	t->given = run;
	t->done_nbytes = t->file_nbytes = t->total_nbytes = 0;
	for (size_t i = 0; !plan && i < t->d->n; i++)
		t->total_nbytes += t->packed ? t->d->entries[i].stored_nbytes
					     : t->d->entries[i].nbytes;
	if (!run)
		return;
	t->run = *run;
	t->run.progress = run->progress ? report : NULL;
	t->run.ctx = t;
}

enum tsr_status tsr_traversal_at(const struct tsr_traversal *t, uint64_t done, uint64_t total)
{
	if (t->run.progress && !t->run.progress(t->run.ctx, done, total))
		return tsr_fail(t->err, TSR_E_CANCELLED, "%s: cancelled", t->d->path);
	return TSR_OK;
}

enum tsr_status tsr_traversal_next(struct tsr_traversal *t, uint64_t nbytes)
{
	tsr_arena_free(t->scratch);
	t->scratch = NULL;
	t->done_nbytes += t->file_nbytes;
	t->file_nbytes = nbytes;
	return tsr_traversal_at(t, 0, nbytes);
}

const struct tsr_run *tsr_traversal_run(const struct tsr_traversal *t)
{
	return t->given ? &t->run : NULL;
}

struct tsr_parts *tsr_traversal_parts(const struct tsr_traversal *t)
{
	return t->given ? t->given->parts : NULL;
}

enum tsr_status tsr_traversal_settle(struct tsr_traversal *t, enum tsr_status status)
{
	if (status == TSR_PART_DONE && tsr_part_is_of_files(tsr_traversal_parts(t)))
		return TSR_OK;
	if (status != TSR_E_DURABILITY)
		return status;
	t->doubt = true;
	return TSR_OK;
}

enum tsr_status tsr_traversal_path(struct tsr_traversal *t, const char *root, const char *name,
				   const char **ret)
{
	const size_t n = strlen(root) + strlen(name) + 2;
	char *path;

	if (!t->scratch)
		t->scratch = tsr_arena_new(SIZE_MAX);
	path = t->scratch ? tsr_arena_alloc(t->scratch, n) : NULL;
	if (!path)
		return tsr_fail_nomem(t->err, root);
	snprintf(path, n, "%s/%s", root, name);
	*ret = path;
	return TSR_OK;
}

enum tsr_status tsr_traversal_fault(struct tsr_traversal *t, struct tsr_directory_entry *e,
				    const char *fmt, ...)
{
	char text[TSR_ERR_MAX];
	va_list ap;

	if (e->fault)
		return TSR_OK;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	e->fault = tsr_arena_string(t->d->arena, text);
	t->d->nfaults += e->fault != NULL;
	return e->fault ? TSR_OK : tsr_directory_nomem(t->d, t->err);
}

/* --- Every entry ------------------------------------------------------------------------------ */

uint64_t tsr_traversal_source_nbytes(const struct tsr_traversal *t,
				     const struct tsr_directory_entry *e)
{
	uint64_t nbytes = e->nbytes;

	for (size_t i = 0; e->container == TSR_CONTAINER_DCP && i < t->d->n; i++) {
		if (tsr_directory_is_part(e, t->d->entries[i].path))
			nbytes += t->d->entries[i].nbytes;
	}
	return nbytes;
}

static uint64_t nbytes_to_read(const struct tsr_traversal *t, const struct tsr_directory_entry *e)
{
	if (t->packed)
		return e->stored_nbytes;
	return e->as == TSR_STORED_PART ? 0 : tsr_traversal_source_nbytes(t, e);
}

enum tsr_status tsr_traversal_each(struct tsr_traversal *t, tsr_visit *visit)
{
	for (size_t i = 0; i < t->d->n; i++) {
		struct tsr_directory_entry *e = &t->d->entries[i];

		tsr_part_next_file(tsr_traversal_parts(t));
		TSR_TRY(tsr_traversal_next(t, nbytes_to_read(t, e)));
		TSR_TRY(visit(t, e));
	}
	tsr_part_end_files(tsr_traversal_parts(t));
	return tsr_part_end(tsr_traversal_parts(t), t->err);
}
