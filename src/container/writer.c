/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a list of arrays into a container: laid out beforehand, put in any order, then published. */
#include "container/writer.h"

#include "io/crc.h"
#include "io/hash.h"
#include "io/meeting.h"
#include "io/temporary.h"
#include "base/fail.h"
#include "ckpt/build.h"
#include "container/packed/coded_plane_write.h"
#include "container/containers.h"
#include "container/writer_layout.h"

static enum tsr_status lay_out(struct tsr_writer *w, struct tsr_err *err)
{
	const struct tsr_container_row *row = tsr_container_row(w->plan.container);
	if (!row->lay_out)
		return tsr_fail(err, TSR_E_USAGE, "%s: cannot write a %s", w->plan.path,
				tsr_container_name(w->plan.container));
	for (size_t i = 0; i < w->plan.narrays; i++)
		w->ntags = w->plan.arrays[i].tag >= w->ntags ? w->plan.arrays[i].tag + 1 : w->ntags;
	w->nplaces = w->ntags + 1; /* number 0 is no next place, even if there is no array */
	if (w->nplaces > UINT32_MAX / 2)
		return tsr_fail(err, TSR_E_LIMIT, "%s: found %zu arrays, expected at most %u",
				w->plan.path, w->nplaces, UINT32_MAX / 2);
	w->arena = tsr_arena_new(SIZE_MAX);
	TSR_TRY(TSR_TAKE(&w->arrays, w->plan.narrays + 1, w->arena, err, w->plan.path));
	TSR_TRY(TSR_TAKE(&w->places, w->nplaces, w->arena, err, w->plan.path));
	if (w->plan.narrays)
		memcpy(w->arrays, w->plan.arrays, w->plan.narrays * sizeof(*w->arrays));
	return row->lay_out(w, err);
}

enum tsr_status tsr_writer_new(const struct tsr_writer_plan *plan, struct tsr_writer **ret,
			       struct tsr_err *err)
{
	TSR_OWNED(tsr_writer_free) struct tsr_writer *w = NULL;

	TSR_TRY(TSR_NEW(&w, 1, err, plan->path));
	w->plan = *plan;
	TSR_TRY(lay_out(w, err));
	return TSR_GIVE(ret, w);
}

/* --- Files -------------------------------------------------------------------------------------- */

static enum tsr_status check(struct tsr_writer *w, struct tsr_err *err)
{
	if (w->plan.base)
		TSR_TRY(tsr_outputs_check(&w->outputs, w->plan.base, err));
	return tsr_outputs_check(&w->outputs, w->plan.c, err);
}

/* Who named one file hears that there are several. */
static enum tsr_status note_shards(struct tsr_writer *w, struct tsr_err *err)
{
	if (!w->header_full)
		return TSR_OK;
	return tsr_build_note(
		w->plan.c, err,
		"%s: one header of all its %zu arrays would be over the limits of %" PRIu64
		" bytes and %u values: in %zu shards, %s and so on, with %s.index.json",
		w->plan.path, w->plan.narrays, TSR_ST_HEADER_MAX, TSR_ST_VALUES_MAX, w->nfiles,
		tsr_outputs_name(&w->outputs, 0), w->plan.path);
}

enum tsr_status tsr_writer_check(struct tsr_writer *w, struct tsr_err *err)
{
	TSR_TRY(check(w, err));
	return note_shards(w, err);
}

/* Files with coded arrays get shorter than they are laid out: nothing is reserved for them. */
static enum tsr_status create_outputs(struct tsr_writer *w, struct tsr_err *err)
{
	TSR_OWNED(free) uint64_t *nbytes = NULL;

	TSR_TRY(TSR_NEW(&nbytes, w->nfiles, err, w->plan.path));
	for (size_t i = 0; i < w->nfiles && w->plan.coded == TSR_CODED_NONE; i++)
		nbytes[i] = w->files[i].nbytes;
	/* What is coded has its places only when all of it is: parts do not share these files. */
	return tsr_outputs_create(
		&w->outputs, nbytes,
		w->plan.coded == TSR_CODED_NONE && !w->copies ? w->plan.part : NULL, err);
}

/*
 * All parts write their planes into one file, which the joining process codes.  It is next to the output,
 * not in a directory that they make: the joining process may fail once that is complete, and reads it again.
 */
static enum tsr_status meet_spool(struct tsr_writer *w, struct tsr_err *err)
{
	const struct tsr_part_request *request = tsr_part_request(w->plan.part);
	uint64_t id = tsr_part_file_id(w->plan.part), nbytes = 0;
	TSR_OWNED(free) char *path = NULL;

	for (size_t i = 0; i < w->nfiles; i++)
		nbytes += w->files[i].nbytes;
	id = tsr_hash(&id, sizeof(id), 1);
	TSR_TRY(tsr_file_meet(tsr_part_is_of_files(w->plan.part) ? request->path : w->plan.path, id,
			      nbytes, tsr_part_joins(w->plan.part), &path, &w->spool, err));
	return tsr_part_meet(w->plan.part, path, err);
}

/* Beside the output, where there will be room. */
static enum tsr_status create_spool(struct tsr_writer *w, struct tsr_err *err)
{
	TSR_OWNED(free) char *dir = NULL;

	if (w->plan.part)
		return meet_spool(w, err);
	if (strcmp(w->plan.path, TSR_STANDARD_OUTPUT) == 0)
		return tsr_file_scratch(w->plan.path, &w->spool, err);
	dir = tsr_path_directory(w->plan.path);
	if (!dir)
		return tsr_fail_nomem(err, w->plan.path);
	return tsr_file_scratch_in(dir, w->plan.path, &w->spool, err);
}

enum tsr_status tsr_writer_create(struct tsr_writer *w, struct tsr_err *err)
{
	/* In a directory that is made in parts, who failed to join them may have put files in place. */
	if (tsr_part_is_of_files(w->plan.part))
		TSR_TRY(tsr_outputs_take_back(&w->outputs, w->plan.part,
					      w->plan.coded == TSR_CODED_NONE, err));
	TSR_TRY(check(w, err));
	w->first_met = tsr_part_nmet(w->plan.part);
	if (w->plan.coded != TSR_CODED_NONE)
		return create_spool(w, err);
	return create_outputs(w, err);
}

enum tsr_status tsr_writer_end_part(struct tsr_writer *w, struct tsr_err *err)
{
	if (!tsr_part_is_one(w->plan.part))
		return TSR_OK;
	TSR_TRY(w->spool ? tsr_file_scratch_sync(w->spool, err)
			 : tsr_outputs_leave(&w->outputs, err));
	return tsr_part_end(w->plan.part, err);
}

enum tsr_status tsr_writer_copy(struct tsr_writer *w, struct tsr_err *err)
{
	if (tsr_part_is_of_files(w->plan.part))
		TSR_TRY(tsr_outputs_take_back(&w->outputs, w->plan.part, false, err));
	TSR_TRY(check(w, err));
	w->copies = true;
	if (!tsr_part_is_one(w->plan.part))
		TSR_TRY(create_outputs(w, err));
	return tsr_coded_write(w, w->plan.run, err);
}

/* An array that lies in the file as PyTorch has it: in another order of its dimensions than row-major. */
static bool is_strided(const struct tsr_writer *w, size_t tag, struct tsr_strided *ret)
{
	const struct tsr_checkpoint *c = w->plan.c;
	const struct tsr_tensor *t = &c->tensors[TSR_TAG_TENSOR(tag)];

	*ret = (struct tsr_strided){ .rank = t->rank,
				     .shape = t->shape,
				     .stride = c->arrays[t->plane[0]].stride,
				     .item = tsr_dtype_bits(t->dtype) / 8 };
	return ret->stride && t->numel && ret->item &&
	       (w->plan.container == TSR_CONTAINER_TORCH || w->plan.container == TSR_CONTAINER_DCP);
}

/* Bytes of one array on their way. */
struct put {
	const struct tsr_writer *w;
	size_t tag;
	bool noted; /* a part notes it; not a strided array, whose runs can be single elements */
	uint64_t nbytes; /* of the whole array */
	uint32_t sum;
};

static enum tsr_status put_run(void *ctx, const void *bytes, size_t nbytes, uint64_t offset,
			       struct tsr_err *err)
{
	const struct put *put = ctx;
	const struct tsr_writer *w = put->w;
	size_t at = put->tag;

	do {
		const struct tsr_place *p = &w->places[at];

		if (put->noted)
			tsr_part_wrote(w->plan.part, w->first_met + p->file, bytes, nbytes,
				       p->offset + offset);
		TSR_TRY(tsr_outfile_write(w->outputs.files[p->file], bytes, nbytes,
					  p->offset + offset, err));
		at = p->next;
	} while (at);
	return TSR_OK;
}

enum tsr_status tsr_writer_put(const struct tsr_writer *w, size_t tag, const void *bytes,
			       size_t nbytes, uint64_t offset, struct tsr_err *err)
{
	struct put put = { .w = w, .tag = tag };
	struct tsr_strided strided;

	if (w->spool) {
		tsr_part_wrote(w->plan.part, w->first_met, bytes, nbytes,
			       tsr_writer_spool_at(w, tag) + offset);
		return tsr_file_scratch_write(w->spool, bytes, nbytes,
					      tsr_writer_spool_at(w, tag) + offset, err);
	}
	put.noted = !is_strided(w, tag, &strided);
	if (put.noted)
		return put_run(&put, bytes, nbytes, offset, err);
	return tsr_strided_put(&strided, offset / strided.item, nbytes / strided.item, bytes,
			       put_run, &put, err);
}

/*
 * CRC-32 without its first and last inversion is linear: that of an array is the sum (XOR) of those of its
 * runs, each among zeros, whatever their order.  Zeros in front change nothing.
 */
static enum tsr_status sum_run(void *ctx, const void *bytes, size_t nbytes, uint64_t offset,
			       struct tsr_err *err)
{
	struct put *put = ctx;
	const uint32_t linear = ~tsr_crc32(UINT32_MAX, bytes, nbytes);

	(void)err;
	put->sum ^= tsr_crc32_combine(linear, 0, put->nbytes - offset - nbytes);
	return TSR_OK;
}

enum tsr_status tsr_writer_sum(const struct tsr_writer *w, size_t tag, const void *bytes,
			       size_t nbytes, uint64_t offset, uint32_t *ret, struct tsr_err *err)
{
	struct put put = { .w = w, .tag = tag };
	struct tsr_strided strided;

	*ret = 0;
	if (!w->narchives)
		return TSR_OK;
	if (!is_strided(w, tag, &strided)) {
		*ret = tsr_crc32(0, bytes, nbytes);
		return TSR_OK;
	}
	put.nbytes = tsr_tensor_nbytes(&w->plan.c->tensors[TSR_TAG_TENSOR(tag)]);
	/* The inversions, which the first bytes bring along: the CRC-32 of as many zeros. */
	put.sum = offset ? 0 : ~tsr_crc32_combine(UINT32_MAX, 0, put.nbytes);
	TSR_TRY(tsr_strided_put(&strided, offset / strided.item, nbytes / strided.item, bytes,
				sum_run, &put, err));
	*ret = put.sum;
	return TSR_OK;
}

void tsr_writer_commit(struct tsr_writer *w, size_t tag, uint64_t nbytes, uint32_t crc)
{
	struct tsr_strided strided;
	size_t at = tag;

	if (!w->narchives)
		return;
	do {
		const struct tsr_place *p = &w->places[at];
		struct tsr_zip_members *zip = &w->archives[p->archive].zip;

		if (!zip->n)
			; /* bytes that are no member of an archive */
		else if (is_strided(w, tag, &strided))
			zip->entries[p->member].crc ^= crc;
		else
			tsr_zip_members_sum(zip, p->member, crc, nbytes);
		at = p->next;
	} while (at);
}

/* The CRC-32 of what parts wrote at a place, against that of the runs which they say they had. */
static enum tsr_status check_place(const struct tsr_writer *w, const struct tsr_place *p,
				   const struct tsr_file *f, uint64_t nbytes, struct tsr_err *err)
{
	const struct tsr_zip_members *zip = &w->archives[p->archive].zip;
	const uint32_t expected = zip->n ? zip->entries[p->member].crc : 0;
	unsigned char bytes[1 << 16];
	uint32_t found = 0;

	for (uint64_t at = 0, n; zip->n && at < nbytes; at += n) {
		n = nbytes - at < sizeof(bytes) ? nbytes - at : sizeof(bytes);
		TSR_TRY(tsr_file_read(f, bytes, (size_t)n, p->offset + at, err));
		found = tsr_crc32(found, bytes, (size_t)n);
	}
	if (found == expected || !zip->n)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: found other bytes before byte %" PRIu64
			" than its parts wrote: CRC-32 %08" PRIx32 ", expected %08" PRIx32
			"; do all parts again",
			tsr_file_path(f), p->offset + nbytes, found, expected);
}

/* Parts note what they write but for strided arrays, which are read again once all their runs are known. */
static enum tsr_status check_strided(const struct tsr_writer *w, size_t tag, struct tsr_err *err)
{
	const uint64_t nbytes = tsr_tensor_nbytes(&w->plan.c->tensors[TSR_TAG_TENSOR(tag)]);
	struct tsr_strided strided;
	size_t at = tag;

	if (!is_strided(w, tag, &strided))
		return TSR_OK;
	do {
		const struct tsr_place *p = &w->places[at];
		TSR_OWNED(free) char *path = tsr_outfile_temporary(w->outputs.files[p->file]);
		TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

		if (!path)
			return tsr_fail_nomem(err, w->plan.path);
		TSR_TRY(tsr_file_open(path, &f, err));
		TSR_TRY(check_place(w, p, f, nbytes, err));
		at = p->next;
	} while (at);
	return TSR_OK;
}

/* One at a time: those of packed files are large, and hold what is known only now. */
static enum tsr_status write_header(struct tsr_writer *w, size_t file, struct tsr_err *err)
{
	struct tsr_writer_file *f = &w->files[file];
	enum tsr_status status = TSR_OK;

	if (w->plan.packed)
		TSR_TRY(tsr_safetensors_compose(w, f, f->header_nbytes - 8, &f->header, err));
	if (f->header.nbytes)
		status = tsr_outfile_write(w->outputs.files[file], f->header.bytes,
					   f->header.nbytes, 0, err);
	if (w->plan.packed)
		tsr_text_free(&f->header);
	return status;
}

enum tsr_status tsr_writer_publish(struct tsr_writer *w, struct tsr_err *err)
{
	TSR_TRY(note_shards(w, err));
	if (w->spool) {
		TSR_TRY(create_outputs(w, err));
		TSR_TRY(tsr_coded_write(w, w->plan.run, err));
	}
	for (size_t i = 0; w->narchives && w->outputs.part && i < w->plan.narrays; i++)
		TSR_TRY(check_strided(w, w->plan.arrays[i].tag, err));
	for (size_t i = 0; i < w->nfiles; i++)
		TSR_TRY(write_header(w, i, err));
	for (size_t i = 0; i < w->narchives; i++) {
		const struct tsr_writer_archive *a = &w->archives[i];

		if (a->zip.n)
			TSR_TRY(tsr_zip_members_write(&a->zip, w->outputs.files[a->file], err));
	}
	if (w->index_nbytes && !w->index.nbytes)
		TSR_TRY(tsr_safetensors_compose_index(w, err));
	return tsr_outputs_publish(&w->outputs, w->index.nbytes ? &w->index : NULL, err);
}

void tsr_writer_free(struct tsr_writer *w)
{
	if (!w)
		return;
	tsr_outputs_free(&w->outputs);
	for (size_t i = 0; w->files && i < w->nfiles; i++)
		tsr_text_free(&w->files[i].header);
	tsr_text_free(&w->index);
	for (size_t i = 0; i < w->narchives; i++)
		tsr_zip_members_free(&w->archives[i].zip);
	tsr_file_close(w->spool);
	tsr_arena_free(w->arena);
	free(w);
}
