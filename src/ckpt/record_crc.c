/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32s of a container's records: the zip members of .pt and .npz. */
#include "ckpt/record_crc.h"

#include "base/order.h"
#include "io/crc.h"
#include "base/grow.h"
#include "io/file.h"
#include "base/progress.h"
#include "ckpt/build.h"
#include "ckpt/layout.h"
#include "parts/part.h"

/* --- Records that are checked while they are read ----------------------------------------------- */

static enum tsr_status damaged(const char *path, const char *tensor, uint32_t found,
			       uint32_t expected, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: data is damaged: found CRC-32 %08x, expected %08x",
			path, tensor, found, expected);
}

/* Whether the bytes of an array, read in order, are a whole record that has a checksum. */
static bool is_record(const struct tsr_array *a)
{
	return a->has_crc && !a->layout;
}

uint32_t tsr_record_sum(const struct tsr_array *a, const void *bytes, size_t nbytes)
{
	return is_record(a) ? tsr_crc32(0, bytes, nbytes) : 0;
}

enum tsr_status tsr_record_commit(struct tsr_record_crc *r, const struct tsr_checkpoint *c,
				  const struct tsr_array *a, uint64_t offset, uint64_t nbytes,
				  uint32_t crc, struct tsr_err *err)
{
	if (!is_record(a))
		return TSR_OK;
	r->crc = offset ? tsr_crc32_combine(r->crc, crc, nbytes) : crc;
	if (offset + nbytes < a->nbytes || r->crc == a->crc)
		return TSR_OK;
	return damaged(tsr_array_path(c, a), a->name, r->crc, a->crc, err);
}

/* --- Records that are checked beforehand -------------------------------------------------------- */

/* Bytes that are read at a time. */
#define READ_NBYTES (1u << 20)

struct record {
	unsigned file;
	uint64_t offset, nbytes;
	uint32_t crc;
	const char *tensor;
};

struct records {
	const struct tsr_checkpoint *c;
	size_t n;
	struct record *list;
	struct tsr_err *err;
};

static enum tsr_status add(struct records *r, struct record record)
{
	TSR_TRY(TSR_GROW(&r->list, r->n, r->err, r->c->path));
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

TSR_COMPARE_BY(by_place, struct record, TSR_ORDER(a->file, b->file),
	       TSR_ORDER(a->offset, b->offset))

static enum tsr_status check(const struct records *r, const struct record *record, char *buf)
{
	const struct tsr_file *f = r->c->files[record->file];
	uint32_t crc = 0;

	for (uint64_t at = 0; at < record->nbytes; at += READ_NBYTES) {
		const uint64_t left = record->nbytes - at;
		const size_t n = (size_t)(left < READ_NBYTES ? left : READ_NBYTES);

		TSR_TRY(tsr_file_read(f, buf, n, record->offset + at, r->err));
		crc = tsr_crc32(crc, buf, n);
	}
	if (crc == record->crc)
		return TSR_OK;
	return damaged(tsr_file_path(f), record->tensor, crc, record->crc, r->err);
}

/* Bytes of the longest record. */
static uint64_t longest(const struct records *r)
{
	uint64_t n = 0;

	for (size_t i = 0; i < r->n; i++)
		n = r->list[i].nbytes > n ? r->list[i].nbytes : n;
	return n;
}

/* Whether record @i is to be checked here; the joining process relies on them. */
static bool is_dealt(const struct tsr_run *run, size_t i)
{
	const struct tsr_part_request *part = run && run->parts ? tsr_part_request(run->parts)
								: NULL;

	return !part || (tsr_part_is_one(run->parts) && i % part->count == part->number - 1);
}

static enum tsr_status check_list(struct records *r, const struct tsr_run *run)
{
	struct tsr_progress progress = { .run = run, .what = r->c->path, .total_nbytes = 1 };
	TSR_OWNED(free) char *buf = NULL;

	if (!r->n)
		return TSR_OK;
	buf = malloc(READ_NBYTES < longest(r) ? READ_NBYTES : (size_t)longest(r) + 1);
	TSR_TRY(buf ? TSR_OK : tsr_fail_nomem(r->err, r->c->path));
	qsort(r->list, r->n, sizeof(*r->list), by_place);
	for (size_t i = 0; i < r->n; i++) {
		const bool again = i && by_place(&r->list[i - 1], &r->list[i]) == 0;

		if (!again && is_dealt(run, i))
			TSR_TRY(check(r, &r->list[i], buf));
		TSR_TRY(tsr_progress_add(&progress, 0, r->err));
	}
	return TSR_OK;
}

static enum tsr_status check_records(const struct tsr_checkpoint *c, bool all,
				     const struct tsr_run *run, struct tsr_err *err)
{
	struct records r = { .c = c, .err = err };
	enum tsr_status status = TSR_OK;

	for (size_t i = 0; i < c->ntensors && status == TSR_OK; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		for (unsigned p = 0; p < t->nplanes && status == TSR_OK; p++) {
			const struct tsr_array *a = &c->arrays[t->plane[p]];

			if (all || t->coding.codec || !is_record(a))
				status = add_array(&r, a);
		}
	}
	if (status == TSR_OK)
		status = check_list(&r, run);
	free(r.list);
	return status;
}

enum tsr_status tsr_records_check(const struct tsr_checkpoint *c, const struct tsr_run *run,
				  struct tsr_err *err)
{
	return check_records(c, false, run, err);
}

enum tsr_status tsr_records_check_all(const struct tsr_checkpoint *c, const struct tsr_run *run,
				      struct tsr_err *err)
{
	return check_records(c, true, run, err);
}
