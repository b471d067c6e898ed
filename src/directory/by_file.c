/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a directory, one file after the other: progress over all of it, copies and hashes. */
#include "directory/by_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "format/safetensors.h"
#include "io/hash.h"
#include "parts/part.h"

#define BUFFER_NBYTES (UINT64_C(1) << 20)

/* --- Progress --------------------------------------------------------------------------------- */

static bool report(void *ctx, uint64_t done, uint64_t total)
{
	const struct tsr_by_file *b = ctx;
	const double share = total ? (double)done / (double)total : 0;
	const uint64_t of_file = (uint64_t)(share * (double)b->file_nbytes);

	/* While the total is not known yet, nothing is done. */
	return b->given->progress(b->given->ctx, b->done_nbytes + of_file,
				  b->total_nbytes ? b->total_nbytes : 1);
}

void tsr_by_file_start(struct tsr_by_file *b, const struct tsr_run *run, const char *what,
		       uint64_t total_nbytes)
{
	*b = (struct tsr_by_file){ .given = run, .what = what, .total_nbytes = total_nbytes };
	if (!run)
		return;
	b->run = *run;
	b->run.progress = run->progress ? report : NULL;
	b->run.ctx = b;
}

/* How much of the current file is done. */
static enum tsr_status go_on(const struct tsr_by_file *b, uint64_t done, uint64_t total,
			     struct tsr_err *err)
{
	if (b->run.progress && !b->run.progress(b->run.ctx, done, total))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", b->what);
	return TSR_OK;
}

enum tsr_status tsr_by_file_next(struct tsr_by_file *b, uint64_t nbytes, struct tsr_err *err)
{
	b->done_nbytes += b->file_nbytes;
	b->file_nbytes = nbytes;
	return go_on(b, 0, nbytes, err);
}

const struct tsr_run *tsr_by_file_run(const struct tsr_by_file *b)
{
	return b->given ? &b->run : NULL;
}

struct tsr_parts *tsr_by_file_parts(const struct tsr_by_file *b)
{
	return b->given ? b->given->parts : NULL;
}

enum tsr_status tsr_by_file_settle(struct tsr_by_file *b, enum tsr_status status)
{
	if (status == TSR_PART_DONE && tsr_part_is_of_files(tsr_by_file_parts(b)))
		return TSR_OK;
	if (status != TSR_E_DURABILITY)
		return status;
	b->doubt = true;
	return TSR_OK;
}

/* --- Files ------------------------------------------------------------------------------------ */

enum tsr_status tsr_open_below(const struct tsr_place_in *at, struct tsr_file **ret,
			       struct tsr_err *err)
{
	char *full = tsr_path_join(at->directory, at->path);
	enum tsr_status status;
	char *slash;

	if (!full)
		return tsr_fail_nomem(err, at->directory);
	slash = strrchr(full, '/');
	*slash = '\0';
	status = tsr_file_open_in(slash == full ? "/" : full, slash + 1, at->follow, ret, err);
	free(full);
	return status;
}

struct copying {
	struct tsr_by_file *b;
	const struct tsr_file *from;
	struct tsr_outfile *to; /* NULL: only hash */
	struct tsr_hasher *hasher;
	char *buffer;
};

static enum tsr_status copy_bytes(const struct copying *c, struct tsr_err *err)
{
	const uint64_t nbytes = tsr_file_size(c->from);

	for (uint64_t at = 0; at < nbytes;) {
		const uint64_t left = nbytes - at;
		const size_t n = (size_t)(left < BUFFER_NBYTES ? left : BUFFER_NBYTES);

		TSR_TRY(tsr_file_read(c->from, c->buffer, n, at, err));
		tsr_hasher_add(c->hasher, c->buffer, n);
		if (c->to)
			TSR_TRY(tsr_outfile_write(c->to, c->buffer, n, at, err));
		at += n;
		TSR_TRY(go_on(c->b, at, nbytes, err));
	}
	return tsr_file_check_unchanged(c->from, err);
}

static enum tsr_status copy_open(struct tsr_by_file *b, const struct tsr_file *from, const char *to,
				 struct tsr_stored_file *ret, struct tsr_err *err)
{
	struct copying c = { .b = b, .from = from };
	enum tsr_status status = TSR_OK;

	c.hasher = tsr_hasher_new();
	c.buffer = malloc(BUFFER_NBYTES);
	if (!c.hasher || !c.buffer)
		status = tsr_fail_nomem(err, tsr_file_path(from));
	if (status == TSR_OK && to)
		status = tsr_outfile_create(to, false, tsr_file_size(from), &c.to, err);
	if (status == TSR_OK)
		status = copy_bytes(&c, err);
	if (status == TSR_OK) {
		ret->nbytes = tsr_file_size(from);
		ret->hash = tsr_hasher_value(c.hasher);
	}
	if (status == TSR_OK && c.to)
		status = tsr_by_file_settle(b, tsr_outfile_publish(c.to, err));
	else
		tsr_outfile_discard(c.to);
	tsr_hasher_free(c.hasher);
	free(c.buffer);
	return status;
}

enum tsr_status tsr_copy_file(struct tsr_by_file *b, const struct tsr_place_in *from,
			      const char *to, struct tsr_stored_file *ret, struct tsr_err *err)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_open_below(from, &f, err));
	status = copy_open(b, f, to, ret, err);
	tsr_file_close(f);
	return status;
}

static enum tsr_status hash_header(const struct tsr_file *f, struct tsr_stored_file *ret,
				   struct tsr_err *err)
{
	unsigned char length[8];
	uint64_t nbytes;
	enum tsr_status status;
	char *header;

	ret->nbytes = tsr_file_size(f);
	TSR_TRY(tsr_file_read(f, length, ret->nbytes < 8 ? (size_t)ret->nbytes : 8, 0, err));
	nbytes = ret->nbytes < 8 ? UINT64_MAX : tsr_get_le(length, 8);
	if (nbytes > TSR_ST_HEADER_MAX || nbytes + 8 > ret->nbytes)
		return tsr_fail(err, TSR_E_FORMAT, "%s: is no packed file", tsr_file_path(f));
	header = malloc((size_t)nbytes + 8);
	if (!header)
		return tsr_fail_nomem(err, tsr_file_path(f));
	status = tsr_file_read(f, header, (size_t)nbytes + 8, 0, err);
	if (status == TSR_OK)
		ret->hash = tsr_hash(header, (size_t)nbytes + 8, 0);
	free(header);
	return status;
}

enum tsr_status tsr_hash_header(const struct tsr_place_in *at, struct tsr_stored_file *ret,
				struct tsr_err *err)
{
	struct tsr_file *f = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_open_below(at, &f, err));
	status = hash_header(f, ret, err);
	tsr_file_close(f);
	return status;
}
