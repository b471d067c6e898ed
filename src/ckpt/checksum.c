/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/checksum.h"

#include <stdlib.h>

#include "base/crc.h"
#include "base/fail.h"
#include "base/file.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/layout.h"

/* Bytes that are read at a time. */
#define STRIP_NBYTES (1u << 20)

bool tsr_array_is_streamed(const struct tsr_array *a)
{
	return a->has_crc && !a->layout;
}

bool tsr_record_is_streamed(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	return !t->coding.codec && tsr_array_is_streamed(&c->arrays[t->plane[0]]);
}

void tsr_record_add(struct tsr_record_crc *r, uint32_t crc, uint64_t nbytes)
{
	r->crc = tsr_crc32_combine(r->crc, crc, nbytes);
}

static enum tsr_status damaged(const char *path, const char *tensor, uint32_t found,
			       uint32_t expected, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: data is damaged: found CRC-32 %08x, expected %08x",
			path, tensor, found, expected);
}

enum tsr_status tsr_record_check(const struct tsr_checkpoint *c, const struct tsr_array *a,
				 const struct tsr_record_crc *r, struct tsr_err *err)
{
	if (r->crc == a->crc)
		return TSR_OK;
	return damaged(tsr_file_path(c->files[a->file]), a->name, r->crc, a->crc, err);
}

/* --- Beforehand ------------------------------------------------------------------------------- */

struct record {
	unsigned file;
	uint64_t offset, nbytes;
	uint32_t crc;
	const char *tensor;
};

struct records {
	const struct tsr_checkpoint *c;
	size_t n, room;
	struct record *list;
	struct tsr_err *err;
};

static enum tsr_status add(struct records *r, struct record record)
{
	if (r->n == r->room) {
		const size_t room = r->room ? 2 * r->room : 64;
		struct record *list = realloc(r->list, room * sizeof(*list));

		if (!list)
			return tsr_fail_nomem(r->err, r->c->path);
		r->list = list;
		r->room = room;
	}
	r->list[r->n++] = record;
	return TSR_OK;
}

static enum tsr_status add_array(struct records *r, const struct tsr_array *a)
{
	if (a->has_crc)
		return add(r, (struct record){ a->file, a->offset, a->nbytes, a->crc, a->name });
	for (size_t i = 0; a->layout && i < a->layout->nchunks; i++) {
		const struct tsr_chunk *chunk = &a->layout->chunks[i];

		if (chunk->has_crc)
			TSR_TRY(add(r, (struct record){ chunk->file, chunk->crc_offset,
							chunk->crc_nbytes, chunk->crc, a->name }));
	}
	return TSR_OK;
}

static int by_place(const void *va, const void *vb)
{
	const struct record *a = va, *b = vb;

	if (a->file != b->file)
		return a->file < b->file ? -1 : 1;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

static enum tsr_status check(const struct records *r, const struct record *record, char *strip)
{
	const struct tsr_file *f = r->c->files[record->file];
	uint32_t crc = 0;

	for (uint64_t at = 0; at < record->nbytes; at += STRIP_NBYTES) {
		const uint64_t left = record->nbytes - at;
		const size_t n = (size_t)(left < STRIP_NBYTES ? left : STRIP_NBYTES);

		TSR_TRY(tsr_file_read(f, strip, n, record->offset + at, r->err));
		crc = tsr_crc32(crc, strip, n);
	}
	if (crc == record->crc)
		return TSR_OK;
	return damaged(tsr_file_path(f), record->tensor, crc, record->crc, r->err);
}

static enum tsr_status check_list(struct records *r, const struct tsr_run *run)
{
	char *strip = malloc(STRIP_NBYTES);
	enum tsr_status status = strip ? TSR_OK : tsr_fail_nomem(r->err, r->c->path);

	if (r->n)
		qsort(r->list, r->n, sizeof(*r->list), by_place);
	for (size_t i = 0; i < r->n && status == TSR_OK; i++) {
		const bool again = i && by_place(&r->list[i - 1], &r->list[i]) == 0;

		if (!again)
			status = check(r, &r->list[i], strip);
		if (status == TSR_OK && run && run->progress && !run->progress(run->ctx, 0, 1))
			status = tsr_fail(r->err, TSR_E_CANCELLED, "%s: cancelled", r->c->path);
	}
	free(strip);
	return status;
}

enum tsr_status tsr_records_check(const struct tsr_checkpoint *c, bool all,
				  const struct tsr_run *run, struct tsr_err *err)
{
	struct records r = { .c = c, .err = err };
	enum tsr_status status = TSR_OK;

	for (size_t i = 0; i < c->ntensors && status == TSR_OK; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		for (unsigned p = 0; p < t->nplanes && status == TSR_OK; p++) {
			if (all || !tsr_record_is_streamed(c, t))
				status = add_array(&r, &c->arrays[t->plane[p]]);
		}
	}
	if (status == TSR_OK)
		status = check_list(&r, run);
	free(r.list);
	return status;
}
