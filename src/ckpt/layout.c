/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that are not one run of bytes: strided views, chunks, other byte orders. */
#include "ckpt/layout.h"

#include "base/arena.h"
#include "base/fail.h"
#include "io/file.h"
#include "ckpt/checkpoint_model.h"
#include "codec/math.h"

/* The most that is read at once to pick elements from. */
#define SPAN_NBYTES (256u << 10)

/* A span is read as a whole if at least one element in so many is wanted. */
#define SPAN_DENSITY 16u

struct dim {
	uint64_t size;
	uint64_t from, to; /* strides in elements: in the file, in the result */
};

struct reading {
	const struct tsr_checkpoint *c;
	const struct tsr_array *a;
	size_t item; /* bytes of an element as stored */
	uint64_t first; /* number of the first element that is wanted */
	char *to; /* where it goes */
	uint64_t start[TSR_RANK_MAX], size[TSR_RANK_MAX]; /* the box being read */
	uint64_t step[TSR_RANK_MAX]; /* elements of the array per step in each dimension */
	char *span; /* SPAN_NBYTES bytes */
	enum tsr_status (*box)(const struct reading *r); /* what is done with a box */
	/* In the other direction: elements at @from go to @put, in the order of @stride. */
	const char *from;
	const uint64_t *stride;
	tsr_put_run_fn *put;
	void *ctx;
	struct tsr_err *err;
};

/* --- Strides ------------------------------------------------------------------------------------- */

static void row_strides(unsigned rank, const uint64_t *shape, uint64_t *stride)
{
	uint64_t step = 1;

	for (unsigned d = rank; d-- > 0;) {
		stride[d] = step;
		step *= shape[d] ? shape[d] : 1;
	}
}

bool tsr_strides_are_rows(unsigned rank, const uint64_t *shape, const uint64_t *stride)
{
	uint64_t rows[TSR_RANK_MAX];

	row_strides(rank, shape, rows);
	return !rank || memcmp(rows, stride, rank * sizeof(*rows)) == 0;
}

bool tsr_strides_are_dense(unsigned rank, const uint64_t *shape, const uint64_t *stride)
{
	uint64_t numel = 1, found = 1;

	for (unsigned d = 0; d < rank; d++)
		numel *= shape[d];
	if (!numel)
		return true;
	/* The dimension whose stride is the product of those inside it, again and again. */
	for (unsigned i = 0; i < rank && found < numel; i++) {
		unsigned d = 0;

		while (d < rank && (shape[d] == 1 || stride[d] != found))
			d++;
		if (d == rank)
			return false;
		found *= shape[d];
	}
	return found == numel;
}

/* --- Arrays of one chunk ---------------------------------------------------------------------- */

struct tsr_layout *tsr_layout_whole(struct tsr_arena *arena, const struct tsr_array *a,
				    bool columns)
{
	struct tsr_layout *layout = tsr_arena_alloc(arena, sizeof(*layout));
	struct tsr_chunk *chunk = tsr_arena_alloc(arena, sizeof(*chunk));
	uint64_t *start = tsr_arena_alloc(arena, 2 * a->rank * sizeof(*start));
	uint64_t *stride, step = 1;

	if (!layout || !chunk || !start)
		return NULL;
	stride = start + a->rank;
	for (unsigned i = 0; i < a->rank; i++) {
		const unsigned d = columns ? i : a->rank - 1 - i;

		stride[d] = step;
		step *= a->shape[d];
	}
	*chunk = (struct tsr_chunk){ .start = start,
				     .size = a->shape,
				     .stride = stride,
				     .file = a->file,
				     .offset = a->offset,
				     .has_crc = a->has_crc,
				     .crc = a->crc,
				     .crc_offset = a->offset,
				     .crc_nbytes = a->nbytes };
	*layout = (struct tsr_layout){ .nchunks = 1, .chunks = chunk };
	return layout;
}

/* --- From a file, by strides ------------------------------------------------------------------ */

static void pick(const struct reading *r, const char *from, char *to, const struct dim *dims,
		 unsigned n)
{
	if (n == 0) {
		memcpy(to, from, r->item);
		return;
	}
	if (n == 1 && dims->from == 1 && dims->to == 1) {
		memcpy(to, from, dims->size * r->item);
		return;
	}
	for (uint64_t i = 0; i < dims->size; i++)
		pick(r, from + i * dims->from * r->item, to + i * dims->to * r->item, dims + 1,
		     n - 1);
}

/* Elements from the first to the last of a box, and how many of them the box has. */
static uint64_t extent(const struct dim *dims, unsigned n, uint64_t *volume_ret)
{
	uint64_t span = 1;

	*volume_ret = 1;
	for (unsigned d = 0; d < n; d++) {
		span += (dims[d].size - 1) * dims[d].from;
		*volume_ret *= dims[d].size;
	}
	return span;
}

static bool fits_span(const struct reading *r, const struct dim *dims, unsigned n)
{
	uint64_t volume;
	const uint64_t span = extent(dims, n, &volume);

	return span <= SPAN_NBYTES / r->item && span / SPAN_DENSITY <= volume;
}

/* @dims go from the largest stride in the file to the smallest. */
static enum tsr_status gather(const struct reading *r, const struct tsr_file *f, uint64_t from,
			      char *to, struct dim *dims, unsigned n)
{
	const struct dim outer = n ? dims[0] : (struct dim){ 1, 1, 1 };
	uint64_t volume, at_once = outer.size;

	if (n == 0 || (n == 1 && outer.from == 1 && outer.to == 1))
		return tsr_file_read(f, to, outer.size * r->item, from, r->err);
	while (at_once > 1 && !fits_span(r, dims, n)) {
		at_once = dims[0].size = (at_once + 1) / 2;
		if (at_once * outer.from > SPAN_NBYTES / r->item)
			at_once = dims[0].size = 1;
	}
	dims[0].size = at_once;
	if (!fits_span(r, dims, n)) { /* then at_once is 1: this dimension is done with */
		enum tsr_status status = TSR_OK;

		for (uint64_t i = 0; i < outer.size && status == TSR_OK; i++)
			status = gather(r, f, from + i * outer.from * r->item,
					to + i * outer.to * r->item, dims + 1, n - 1);
		dims[0] = outer;
		return status;
	}
	for (uint64_t i = 0; i < outer.size; i += at_once) {
		const uint64_t left = outer.size - i;

		dims[0].size = left < at_once ? left : at_once;
		TSR_TRY(tsr_file_read(f, r->span, extent(dims, n, &volume) * r->item,
				      from + i * outer.from * r->item, r->err));
		pick(r, r->span, to + i * outer.to * r->item, dims, n);
	}
	dims[0] = outer;
	return TSR_OK;
}

/* --- Boxes ------------------------------------------------------------------------------------ */

static void sort_dims(struct dim *dims, unsigned n)
{
	for (unsigned i = 1; i < n; i++) {
		const struct dim d = dims[i];
		unsigned at = i;

		for (; at > 0 && dims[at - 1].from < d.from; at--)
			dims[at] = dims[at - 1];
		dims[at] = d;
	}
}

/* What a chunk has of the box. */
static enum tsr_status read_from_chunk(const struct reading *r, const struct tsr_chunk *chunk)
{
	struct dim dims[TSR_RANK_MAX];
	uint64_t from = 0, to = 0;
	unsigned n = 0;

	for (unsigned d = 0; d < r->a->rank; d++) {
		const uint64_t box_end = r->start[d] + r->size[d];
		const uint64_t chunk_end = chunk->start[d] + chunk->size[d];
		const uint64_t begin = r->start[d] > chunk->start[d] ? r->start[d]
								     : chunk->start[d];
		const uint64_t end = box_end < chunk_end ? box_end : chunk_end;

		if (begin >= end)
			return TSR_OK;
		from += (begin - chunk->start[d]) * chunk->stride[d];
		to += begin * r->step[d];
		if (end - begin > 1)
			dims[n++] = (struct dim){ end - begin, chunk->stride[d], r->step[d] };
	}
	sort_dims(dims, n);
	return gather(r, r->c->files[chunk->file], chunk->offset + from * r->item,
		      r->to + (to - r->first) * r->item, dims, n);
}

static enum tsr_status read_box(const struct reading *r)
{
	for (size_t i = 0; i < r->a->layout->nchunks; i++)
		TSR_TRY(read_from_chunk(r, &r->a->layout->chunks[i]));
	return TSR_OK;
}

/*
 * Elements first to first + n - 1 of what the dimensions from @d on span, where the box has one index
 * in each earlier dimension: a part row, whole rows, a part row.
 */
static enum tsr_status read_range(struct reading *r, unsigned d, uint64_t first, uint64_t n)
{
	uint64_t row, part;

	if (d == r->a->rank)
		return r->box(r);
	row = r->step[d];
	part = first % row;
	if (part) {
		const uint64_t head = n < row - part ? n : row - part;

		r->start[d] = first / row;
		r->size[d] = 1;
		TSR_TRY(read_range(r, d + 1, part, head));
		first += head;
		n -= head;
	}
	if (n / row) {
		r->start[d] = first / row;
		r->size[d] = n / row;
		for (unsigned i = d + 1; i < r->a->rank; i++) {
			r->start[i] = 0;
			r->size[i] = r->a->shape[i];
		}
		TSR_TRY(r->box(r));
		first += n / row * row;
		n %= row;
	}
	if (!n)
		return TSR_OK;
	r->start[d] = first / row;
	r->size[d] = 1;
	return read_range(r, d + 1, 0, n);
}

/* --- Into another order ------------------------------------------------------------------------- */

/* @dims go from the largest stride to the smallest: the innermost that fill a run of bytes are one. */
static enum tsr_status put_runs(const struct reading *r, const char *from, uint64_t to,
				const struct dim *dims, unsigned n)
{
	uint64_t run = 1;
	unsigned inner = n;

	while (inner > 0 && dims[inner - 1].to == run &&
	       dims[inner - 1].size * run <= SPAN_NBYTES / r->item)
		run *= dims[--inner].size;
	if (!inner) {
		pick(r, from, r->span, dims, n);
		return r->put(r->ctx, r->span, run * r->item, to * r->item, r->err);
	}
	for (uint64_t i = 0; i < dims->size; i++)
		TSR_TRY(put_runs(r, from + i * dims->from * r->item, to + i * dims->to, dims + 1,
				 n - 1));
	return TSR_OK;
}

static enum tsr_status put_box(const struct reading *r)
{
	struct dim dims[TSR_RANK_MAX];
	uint64_t from = 0, to = 0;
	unsigned n = 0;

	for (unsigned d = 0; d < r->a->rank; d++) {
		from += r->start[d] * r->step[d];
		if (r->a->shape[d] > 1)
			to += r->start[d] * r->stride[d];
		if (r->size[d] > 1)
			dims[n++] = (struct dim){ r->size[d], r->stride[d], r->step[d] };
	}
	sort_dims(dims, n);
	for (unsigned i = 0; i < n; i++)
		dims[i] = (struct dim){ dims[i].size, dims[i].to, dims[i].from };
	return put_runs(r, r->from + (from - r->first) * r->item, to, dims, n);
}

enum tsr_status tsr_strided_put(const struct tsr_strided *t, uint64_t first, uint64_t n,
				const void *bytes, tsr_put_run_fn *put, void *ctx,
				struct tsr_err *err)
{
	const struct tsr_array a = { .rank = t->rank, .shape = t->shape };
	struct reading r = { .a = &a,
			     .item = t->item,
			     .first = first,
			     .box = put_box,
			     .from = bytes,
			     .stride = t->stride,
			     .put = put,
			     .ctx = ctx,
			     .err = err };
	TSR_OWNED(free) char *span = r.span = malloc(SPAN_NBYTES);

	if (!span)
		return tsr_fail_nomem(err, "a tile");
	row_strides(t->rank, t->shape, r.step);
	return n ? read_range(&r, 0, first, n) : TSR_OK;
}

/* --- Elements as stored, and as wanted -------------------------------------------------------- */

static enum tsr_status read_stored(const struct tsr_checkpoint *c, const struct tsr_array *a,
				   size_t item, uint64_t first, uint64_t n, void *buf,
				   struct tsr_err *err)
{
	struct tsr_array boxed = *a;
	struct reading r = {
		.c = c, .item = item, .first = first, .to = buf, .box = read_box, .err = err
	};
	TSR_OWNED(free) char *span = r.span = malloc(SPAN_NBYTES);

	if (!span)
		return tsr_fail_nomem(err, c->path);
	if (a->layout->flat) {
		boxed.rank = 1;
		boxed.shape = &a->numel;
	}
	r.a = &boxed;
	row_strides(boxed.rank, boxed.shape, r.step);
	return n ? read_range(&r, 0, first, n) : TSR_OK;
}

/* A complex number is two numbers. */
static size_t swapped_unit(enum tsr_dtype dtype)
{
	return dtype == TSR_C64 ? 4 : tsr_dtype_bits(dtype) / 8;
}

static void swap_bytes(unsigned char *at, size_t nbytes, size_t unit)
{
	for (; nbytes >= unit; nbytes -= unit, at += unit) {
		for (size_t i = 0; i < unit / 2; i++) {
			const unsigned char low = at[i];

			at[i] = at[unit - 1 - i];
			at[unit - 1 - i] = low;
		}
	}
}

static enum tsr_status read_bf16_integers(const struct tsr_checkpoint *c, const struct tsr_array *a,
					  uint64_t first, uint64_t n, int8_t *to,
					  struct tsr_err *err)
{
	TSR_OWNED(free) uint16_t *stored = malloc(n * sizeof(*stored) + 1);

	if (!stored)
		return tsr_fail_nomem(err, c->path);
	TSR_TRY(read_stored(c, a, sizeof(*stored), first, n, stored, err));
	if (a->layout->swapped)
		swap_bytes((unsigned char *)stored, n * sizeof(*stored), sizeof(*stored));
	for (uint64_t i = 0; i < n; i++) {
		const float value = tsr_f32_from_bf16(stored[i]);

		if (!(value >= -127.0f && value <= 127.0f) || value != (float)(int)value)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: tensor %.200s: element %" PRIu64
					": found %g, expected a "
					"whole number from -127 to 127",
					c->path, a->name, first + i, (double)value);
		to[i] = (int8_t)value;
	}
	return TSR_OK;
}

static enum tsr_status read_integers_bf16(const struct tsr_checkpoint *c, const struct tsr_array *a,
					  uint64_t first, uint64_t n, uint16_t *to,
					  struct tsr_err *err)
{
	TSR_OWNED(free) int8_t *stored = malloc(n + 1);

	if (!stored)
		return tsr_fail_nomem(err, c->path);
	if (a->memory)
		memcpy(stored, a->memory + first, n);
	else
		TSR_TRY(tsr_file_read(c->files[a->file], stored, n, a->offset + first, err));
	for (uint64_t i = 0; i < n; i++)
		to[i] = (uint16_t)tsr_bf16_from_f32((float)stored[i]);
	return TSR_OK;
}

enum tsr_status tsr_layout_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
				uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err)
{
	const size_t item = tsr_dtype_bits(a->dtype) / 8;

	if (a->layout->bf16_integers)
		return read_bf16_integers(c, a, offset, nbytes, buf, err);
	if (a->layout->integers_bf16)
		return read_integers_bf16(c, a, offset / item, nbytes / item, buf, err);
	TSR_TRY(read_stored(c, a, item, offset / item, nbytes / item, buf, err));
	if (a->layout->swapped)
		swap_bytes(buf, nbytes, swapped_unit(a->dtype));
	return TSR_OK;
}
