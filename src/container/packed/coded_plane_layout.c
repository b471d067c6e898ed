/* SPDX-License-Identifier: Apache-2.0 */
/* Which planes of packed files are coded, and the order of their arrays. */
#include "container/packed/coded_plane_write.h"

#include "base/fail.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/coded/deltas.h"
#include "container/containers.h"
#include "container/packed/packed_write.h"

/* Shorter planes gain nothing, since tables and index take as much. */
#define LEAST_NBYTES 512u

/*
 * Where the first piece is shorter, what heads, index and a longer name take is more than 0.1% of it, so
 * that the plane has to gain at least TSR_CODED_GAIN.
 */
#define TRIED_NBYTES 131072u

/* Loaders of the model want narrow weights and what else it has under their names. */
static bool may_be_coded(const struct tsr_writer *w, const struct tsr_st_entry *e)
{
	const struct tsr_tensor *t = &w->plan.packed->tensors[TSR_TAG_TENSOR(e->tag)];
	const unsigned plane = TSR_TAG_PLANE(e->tag);
	const bool named = t->coding.codec && t->coding.codec->planes[plane].suffix[0];
	const bool state = t->kind == TSR_KIND_MOMENTUM || t->kind == TSR_KIND_VARIANCE;

	if (w->files[w->places[e->tag].file].plain || e->nbytes < LEAST_NBYTES)
		return false;
	return w->plan.coded == TSR_CODED_ALL ||
	       (w->plan.coded == TSR_CODED_STATES && (named || state));
}

bool tsr_coded_is_joined(const struct tsr_writer *w, size_t tag)
{
	const struct tsr_tensor *t = &w->plan.packed->tensors[TSR_TAG_TENSOR(tag)];
	const size_t first = tag - TSR_TAG_PLANE(tag);

	return w->plan.base && tsr_delta_joins(t) && w->coded_nbytes[first] &&
	       w->coded_nbytes[first + 1] && tsr_delta_old(w->plan.base, t, 1);
}

bool tsr_coded_is_tried(const struct tsr_writer *w, const struct tsr_st_entry *e)
{
	const struct tsr_tensor *t = &w->plan.packed->tensors[TSR_TAG_TENSOR(e->tag)];

	return w->coded_nbytes[e->tag] && !tsr_coded_is_joined(w, e->tag) &&
	       (e->nbytes < TRIED_NBYTES ||
		tsr_coded_piece_nbytes(t, TSR_TAG_PLANE(e->tag)) < TRIED_NBYTES);
}

enum tsr_dtype tsr_coded_plane_dtype(const struct tsr_tensor *t, size_t tag)
{
	return t->coding.codec ? tsr_plane_dtype(&t->coding, TSR_TAG_PLANE(tag)) : t->dtype;
}

size_t tsr_coded_choose_planes(struct tsr_writer *w)
{
	size_t piece_max = 0;

	for (size_t i = 0; i < w->plan.narrays; i++) {
		const struct tsr_st_entry *e = &w->arrays[i];
		const struct tsr_tensor *t = &w->plan.packed->tensors[TSR_TAG_TENSOR(e->tag)];

		if (may_be_coded(w, e)) {
			const enum tsr_dtype dtype = tsr_coded_plane_dtype(t, e->tag);
			const size_t most = tsr_entropy_bound(tsr_coded_kind(dtype),
							      TSR_ENTROPY_PIECE);

			piece_max = most > piece_max ? most : piece_max;
			w->coded_nbytes[e->tag] = (w->plan.base ? 2 : 1) * e->nbytes +
						  e->nbytes / 64;
		}
	}
	return piece_max;
}

static enum tsr_status name_coded(struct tsr_writer *w, struct tsr_st_entry *e, struct tsr_err *err)
{
	uint64_t *nbytes = &w->coded_nbytes[e->tag];

	TSR_TRY(tsr_packed_join_name(w->plan.c, e->name, TSR_CODED_SUFFIX, &e->name, err));
	e->dtype = TSR_U8;
	e->rank = 1;
	e->shape = nbytes;
	e->nbytes = *nbytes;
	return TSR_OK;
}

/* The order of a file with coded arrays, and a header with room for their sizes. */
static enum tsr_status lay_out_file(struct tsr_writer *w, struct tsr_writer_file *f,
				    struct tsr_err *err)
{
	struct tsr_st_entry *arrays = w->arrays + f->first;
	const size_t n = f->end - f->first;

	for (size_t i = 0; i < n; i++) {
		if (w->coded_nbytes[arrays[i].tag]) {
			f->coded = true;
			TSR_TRY(name_coded(w, &arrays[i], err));
		}
	}
	if (!f->coded)
		return TSR_OK;
	tsr_st_sort(arrays, n);
	(void)tsr_st_layout(arrays, n);
	TSR_TRY(tsr_safetensors_compose(w, f, 0, &f->header, err));
	f->header_nbytes = f->header.nbytes;
	tsr_text_free(&f->header);
	return TSR_OK;
}

enum tsr_status tsr_coded_lay_out(struct tsr_writer *w, struct tsr_err *err)
{
	for (size_t i = 0; i < w->nfiles; i++)
		TSR_TRY(lay_out_file(w, &w->files[i], err));
	return TSR_OK;
}
