/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of the containers use to lay out the files of a writer. */
#include "container/writer_layout.h"

#include "base/fail.h"

struct tsr_st_entry tsr_stored_array(const struct tsr_tensor *t, size_t tag)
{
	return (struct tsr_st_entry){ .name = t->name,
				      .dtype = t->dtype,
				      .rank = t->rank,
				      .shape = t->shape,
				      .nbytes = tsr_tensor_nbytes(t),
				      .tag = tag };
}

enum tsr_status tsr_writer_add_files(struct tsr_writer *w, size_t n, struct tsr_err *err)
{
	w->nfiles = n;
	TSR_TRY(TSR_TAKE(&w->files, n, w->arena, err, w->plan.path));
	if (w->plan.weights_path)
		return tsr_outputs_plan_pair(&w->outputs, w->plan.path, w->plan.weights_path,
					     w->plan.force, err);
	return tsr_outputs_plan(&w->outputs, w->plan.path, w->plan.force, n, err);
}

enum tsr_status tsr_writer_add_archives(struct tsr_writer *w, size_t n, struct tsr_err *err)
{
	TSR_TRY(TSR_TAKE(&w->archives, n + 1, w->arena, err, w->plan.path));
	w->narchives = n;
	return TSR_OK;
}

uint64_t tsr_writer_spool_at(const struct tsr_writer *w, size_t tag)
{
	const struct tsr_place *p = &w->places[tag];
	uint64_t at = p->offset;

	for (size_t i = 0; i < p->file; i++)
		at += w->files[i].nbytes;
	return at;
}

void tsr_writer_tensor_nbytes(const struct tsr_writer *w, size_t n, uint64_t *nbytes)
{
	for (size_t i = 0; i < n; i++)
		nbytes[i] = 0;
	for (size_t i = 0; i < w->plan.narrays; i++)
		nbytes[TSR_TAG_TENSOR(w->arrays[i].tag)] += w->arrays[i].nbytes;
}

void tsr_writer_planes(const struct tsr_writer *w, size_t n, struct tsr_written_plane *planes)
{
	memset(planes, 0, n * TSR_PLANES_MAX * sizeof(*planes));
	for (size_t i = 0; i < w->plan.narrays; i++) {
		const size_t tag = w->arrays[i].tag;

		planes[tag].nbytes = w->arrays[i].nbytes;
		planes[tag].differs = w->differs && w->differs[tag];
	}
}

uint64_t tsr_writer_nbytes(const struct tsr_writer *w)
{
	uint64_t total = w->index_nbytes;

	for (size_t i = 0; i < w->nfiles; i++)
		total += w->files[i].nbytes;
	return total;
}

const struct tsr_text *tsr_writer_header(const struct tsr_writer *w)
{
	return w->nfiles == 1 && w->files[0].header.nbytes ? &w->files[0].header : NULL;
}

uint64_t tsr_writer_data_nbytes(const struct tsr_writer *w)
{
	uint64_t total = 0;

	for (size_t i = 0; i < w->plan.narrays; i++)
		total += w->arrays[i].nbytes;
	return total;
}
