/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of torch.distributed.checkpoint: boxes that together are the tensor, each in an archive. */
#include <stdio.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "torch/dcp_read.h"
#include "text/shape.h"
#include "torch/torch_archive.h"

/* One tensor being put together. */
struct joining {
	struct tsr_dcp_reading *r;
	const struct tsr_dcp_entry *e;
	const char *name; /* of the array */
	size_t nboxes; /* that have elements */
	struct tsr_dcp_box *boxes;
	struct tsr_chunk *chunks; /* of the layout, in the order of boxes */
	bool swapped;
};

char *tsr_dcp_where(const struct tsr_dcp_reading *r, const struct tsr_dcp_part *p)
{
	char *where;

	if (asprintf(&where, "%s: %.200s", tsr_file_path(r->c->files[p->index]), p->fqn) < 0)
		return NULL;
	return where;
}

static enum tsr_status fail(const struct joining *j, enum tsr_status code, const char *what)
{
	return TSR_DCP_FAIL(j->r, code, j->e->fqn, "%s", what);
}

/* --- Geometry ------------------------------------------------------------------------------- */

static int compare_starts(const void *va, const void *vb, void *vrank)
{
	const struct tsr_dcp_box *a = va, *b = vb;
	const unsigned rank = *(const unsigned *)vrank;

	return tsr_shape_compare(rank, a->start, rank, b->start);
}

/* Boxes that lie in the tensor, do not overlap and have its volume cover it. */
static enum tsr_status check_boxes(struct joining *j)
{
	const struct tsr_dcp_entry *e = j->e;
	uint64_t numel, volume, total = 0;
	bool overflow = false;

	if (!tsr_shape_numel(e->rank, e->shape, &numel))
		return fail(j, TSR_E_LIMIT, "shape is over the limit of 2^64 elements");
	for (size_t i = 0; i < e->nboxes; i++) {
		/* A box without elements may have large sizes all the same. */
		if (!tsr_shape_numel(e->rank, e->boxes[i].size, &volume))
			volume = 0;
		if (volume)
			j->boxes[j->nboxes++] = e->boxes[i];
		overflow |= __builtin_add_overflow(total, volume, &total);
	}
	if (total != numel || overflow)
		return TSR_DCP_FAIL(j->r, TSR_E_FORMAT, e->fqn,
				    "found chunks of %" PRIu64
				    " elements together, expected %" PRIu64,
				    total, numel);
	switch (tsr_dcp_boxes_check(j->boxes, j->nboxes, j->e->rank, &j->r->ncomparisons)) {
	case TSR_DCP_DISJOINT:
		return TSR_OK;
	case TSR_DCP_OVERLAP:
		return fail(j, TSR_E_FORMAT, "found chunks that overlap");
	case TSR_DCP_OVER_LIMIT:
		break;
	}
	return TSR_DCP_FAIL(
		j->r, TSR_E_LIMIT, j->e->fqn,
		"comparing its chunks goes over the limit of 2^22 comparisons and %u per "
		"chunk",
		TSR_DCP_COMPARED_PER_CHUNK);
}

/* --- Contents ------------------------------------------------------------------------------- */

static enum tsr_status check_view(const struct joining *j, const struct tsr_dcp_box *box,
				  const struct tsr_torch_view *v, const char *where)
{
	const struct tsr_dcp_entry *e = j->e;

	if (v->dtype != e->dtype)
		return tsr_fail(j->r->err, TSR_E_FORMAT,
				"%s: found dtype %s, expected %s as .metadata says (is this a mix "
				"of two saves?)",
				where, tsr_dtype_name(v->dtype), tsr_dtype_name(e->dtype));
	if (tsr_shape_compare(v->rank, v->shape, e->rank, box->size) != 0)
		return tsr_fail(
			j->r->err, TSR_E_FORMAT,
			"%s: found another shape of %u dimensions and %" PRIu64
			" elements, expected that in .metadata (is this a mix of two saves?)",
			where, v->rank, v->numel);
	return TSR_OK;
}

static enum tsr_status read_box(const struct joining *j, const struct tsr_dcp_box *box,
				struct tsr_dcp_part *part, struct tsr_torch_view *v)
{
	TSR_OWNED(free) char *where = tsr_dcp_where(j->r, part);

	if (!where)
		return tsr_fail_nomem(j->r->err, j->r->path);
	TSR_TRY(tsr_torch_read_tensor(j->r->c, part->index, part->offset, part->nbytes, where, v,
				      j->r->err));
	return check_view(j, box, v, where);
}

/* Find and use the part of a box; a box without elements may have none. */
static enum tsr_status take_part(const struct joining *j, const struct tsr_dcp_box *box,
				 bool needed, struct tsr_dcp_part **ret)
{
	struct tsr_dcp_part *part = tsr_dcp_find_part(&j->r->m, j->e, box->start);

	*ret = NULL;
	if (!part || part->used)
		return needed ? fail(j, TSR_E_FORMAT,
				     part ? "found two chunks for one entry of storage_data"
					  : "found a chunk that storage_data does not have")
			      : TSR_OK;
	part->used = true;
	*ret = part;
	return TSR_OK;
}

static uint64_t *copy_numbers(const struct joining *j, const uint64_t *numbers)
{
	return tsr_arena_dup(j->r->c->arena, numbers, j->e->rank * sizeof(*numbers));
}

static enum tsr_status add_chunk(struct joining *j, size_t i, const struct tsr_torch_view *v)
{
	struct tsr_chunk *chunk = &j->chunks[i];

	if (i > 0 && v->swapped != j->swapped)
		return fail(j, TSR_E_UNSUPPORTED, "found chunks that differ in byte order");
	j->swapped = v->swapped;
	tsr_torch_chunk(v, chunk);
	chunk->start = copy_numbers(j, j->boxes[i].start);
	chunk->size = copy_numbers(j, j->boxes[i].size);
	chunk->stride = copy_numbers(j, v->stride);
	if (!chunk->start || !chunk->size || !chunk->stride)
		return tsr_build_nomem(j->r->c, j->r->err);
	return TSR_OK;
}

/* Chunks without elements are not part of the array, but what is stored for them is checked. */
static enum tsr_status read_empty_boxes(const struct joining *j)
{
	struct tsr_torch_view view;

	for (size_t i = 0; i < j->e->nboxes; i++) {
		const struct tsr_dcp_box *box = &j->e->boxes[i];
		struct tsr_dcp_part *part;
		bool empty = false;

		for (unsigned d = 0; d < j->e->rank; d++)
			empty = empty || !box->size[d];
		if (!empty)
			continue;
		TSR_TRY(take_part(j, box, false, &part));
		if (part)
			TSR_TRY(read_box(j, box, part, &view));
	}
	return TSR_OK;
}

/* --- The array ------------------------------------------------------------------------------ */

/* Whether a chunk has its elements one after the other, @order going from the outermost dimension inwards. */
static bool is_in_order(const struct tsr_chunk *chunk, unsigned rank, const unsigned *order)
{
	uint64_t step = 1;

	for (unsigned i = rank; i-- > 0;) {
		const unsigned d = order[i];

		if (chunk->size[d] > 1 && chunk->stride[d] != step)
			return false;
		step *= chunk->size[d];
	}
	return true;
}

/* Chunks that all have their dimensions in one order, other than row-major, are parts of such a tensor. */
static enum tsr_status keep_order(const struct joining *j, struct tsr_array *a)
{
	const unsigned rank = a->rank;
	unsigned order[TSR_RANK_MAX];
	uint64_t *stride, step = 1;

	for (unsigned d = 0; d < rank; d++) {
		unsigned at = d;

		for (; at > 0 && j->chunks[0].stride[order[at - 1]] < j->chunks[0].stride[d]; at--)
			order[at] = order[at - 1];
		order[at] = d;
	}
	for (size_t i = 0; i < j->nboxes; i++) {
		if (!is_in_order(&j->chunks[i], rank, order))
			return TSR_OK;
	}
	TSR_TRY(TSR_ARENA_NEW(&stride, rank, j->r->c->arena, tsr_build_nomem(j->r->c, j->r->err)));
	for (unsigned i = rank; i-- > 0; step *= a->shape[order[i]])
		stride[order[i]] = step;
	if (!tsr_strides_are_rows(rank, a->shape, stride))
		a->stride = stride;
	return TSR_OK;
}

/* An array of several chunks, or one without elements, which is stored nowhere. */
static enum tsr_status join_chunks(const struct joining *j, struct tsr_array *a)
{
	struct tsr_checkpoint *c = j->r->c;
	struct tsr_layout *layout;

	*a = (struct tsr_array){ .dtype = j->e->dtype,
				 .rank = j->e->rank,
				 .shape = copy_numbers(j, j->e->shape) };
	if (!a->shape)
		return tsr_build_nomem(c, j->r->err);
	if (!j->nboxes)
		return TSR_OK;
	TSR_TRY(TSR_ARENA_NEW(&layout, 1, c->arena, tsr_build_nomem(c, j->r->err)));
	layout->nchunks = j->nboxes;
	layout->chunks = j->chunks;
	layout->swapped = j->swapped;
	a->layout = layout;
	return keep_order(j, a);
}

static enum tsr_status join(struct joining *j, size_t *array_ret)
{
	struct tsr_checkpoint *c = j->r->c;
	unsigned rank = j->e->rank;
	struct tsr_torch_view view;
	struct tsr_array a;

	TSR_TRY(check_boxes(j));
	if (j->nboxes > 1) {
		qsort_r(j->boxes, j->nboxes, sizeof(*j->boxes), compare_starts, &rank);
		TSR_TRY(TSR_ARENA_NEW(&j->chunks, j->nboxes, c->arena,
				      tsr_build_nomem(c, j->r->err)));
	}
	TSR_TRY(read_empty_boxes(j));
	for (size_t i = 0; i < j->nboxes; i++) {
		struct tsr_dcp_part *part;

		TSR_TRY(take_part(j, &j->boxes[i], true, &part));
		TSR_TRY(read_box(j, &j->boxes[i], part, &view));
		if (j->nboxes > 1)
			TSR_TRY(add_chunk(j, i, &view));
	}
	TSR_TRY(j->nboxes == 1 ? tsr_torch_array(c, &view, &a, j->r->err) : join_chunks(j, &a));
	a.name = tsr_arena_string(c->arena, j->e->fqn);
	if (!a.name)
		return tsr_build_nomem(c, j->r->err);
	return tsr_build_array(c, &a, array_ret, j->r->err);
}

enum tsr_status tsr_dcp_read_tensor(struct tsr_dcp_reading *r, const struct tsr_dcp_entry *e,
				    size_t *array_ret)
{
	TSR_OWNED(free) struct tsr_dcp_box *boxes = NULL;

	TSR_TRY(TSR_NEW(&boxes, e->nboxes + 1, r->err, r->path));
	return join(&(struct joining){ .r = r, .e = e, .boxes = boxes }, array_ret);
}
