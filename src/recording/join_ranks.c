/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that the ranks of a run wrote separately, as one checkpoint. */
#include "recording/recording_data.h"

#include "base/fail.h"
#include "base/order.h"
#include "ckpt/checkpoint_model.h"
#include "text/json.h"
#include "text/shape.h"
#include "ckpt/build.h"
#include "container/containers.h"

/* The most JSON values in the entry with the offsets of tensors. */
#define OFFSETS_VALUES_MAX 2000000u

/* What the file of one rank has of a tensor. */
struct slice {
	const struct tsr_checkpoint *part;
	const struct tsr_array *array;
	unsigned first_file; /* of the part, in the joined checkpoint */
	const uint64_t *start; /* NULL: the file does not say */
};

struct joining {
	struct tsr_checkpoint *c;
	size_t nslices;
	struct slice *slices;
	struct tsr_err *err;
};

/* --- Where tensors begin ---------------------------------------------------------------------- */

static const char *offsets_of(const struct tsr_checkpoint *part)
{
	const struct tsr_value *v;

	for (size_t i = 0; i < part->nmeta; i++) {
		if (strcmp(part->meta[i].key, TSR_OFFSETS_KEY) == 0)
			return part->meta[i].value;
	}
	for (size_t i = 0; i < part->ntrees; i++) {
		v = tsr_value_at(tsr_value_mapping(part->trees[i]), TSR_OFFSETS_KEY);
		if (v && v->type == TSR_VALUE_STRING)
			return v->text.bytes;
	}
	return NULL;
}

bool tsr_recording_has_offsets(const struct tsr_checkpoint *part)
{
	return offsets_of(part) != NULL;
}

/* {"saved_offsets": [12, 0]}: one number per dimension. */
static enum tsr_status read_start(struct joining *j, const struct tsr_json *v, struct slice *p)
{
	const struct tsr_json *list = tsr_json_get(v, "saved_offsets");
	uint64_t *start = tsr_arena_alloc(j->c->arena, p->array->rank * sizeof(*start)), end;
	unsigned n = 0;
	bool good = tsr_json_is_list(list);

	if (!start)
		return tsr_build_nomem(j->c, j->err);
	v = good ? tsr_json_first(list) : NULL;
	for (; v && good; v = tsr_json_next(v), n++)
		good = n < p->array->rank && tsr_json_u64(v, &start[n]) &&
		       !__builtin_add_overflow(start[n], p->array->shape[n], &end);
	if (!good || n != p->array->rank)
		return tsr_fail(j->err, TSR_E_FORMAT,
				"%s: " TSR_OFFSETS_KEY
				": tensor %.200s: expected saved_offsets, a list of %u integers",
				p->part->path, p->array->name, p->array->rank);
	p->start = start;
	return TSR_OK;
}

static enum tsr_status read_offsets(struct joining *j, const struct tsr_checkpoint *part,
				    struct slice *slices)
{
	const char *text = offsets_of(part);
	const struct tsr_json_rules rules = { .file = part->path,
					      .part = TSR_OFFSETS_KEY,
					      .max_depth = 8,
					      .max_values = OFFSETS_VALUES_MAX };
	TSR_OWNED(tsr_json_free) struct tsr_json *root = NULL;

	if (!text)
		return TSR_OK;
	TSR_TRY(tsr_json_parse(text, strlen(text), &rules, &root, j->err));
	if (tsr_json_type(root) != TSR_JSON_OBJECT)
		return tsr_fail(j->err, TSR_E_FORMAT,
				"%s: " TSR_OFFSETS_KEY
				": expected an object with a member per tensor",
				part->path);
	for (const struct tsr_json *v = tsr_json_first(root); v; v = tsr_json_next(v)) {
		const struct tsr_tensor *t = tsr_checkpoint_find(part, tsr_json_key(v));

		if (t)
			TSR_TRY(read_start(j, v, &slices[t - part->tensors]));
	}
	return TSR_OK;
}

/* --- Taking parts over ------------------------------------------------------------------------ */

/* Gradients are joined as they are stored: a tensor that reading converts is refused. */
static enum tsr_status check_plain(struct joining *j, const struct tsr_checkpoint *part,
				   const struct tsr_tensor *t)
{
	const struct tsr_array *a = &part->arrays[t->plane[0]];

	if (t->nplanes == 1 && !t->coding.codec &&
	    !(a->layout &&
	      (a->layout->flat || a->layout->bf16_integers || a->layout->integers_bf16)))
		return TSR_OK;
	return tsr_fail(j->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: is compressed, expected a gradient", part->path,
			t->name);
}

static enum tsr_status add_part(struct joining *j, struct tsr_checkpoint *part)
{
	const unsigned first_file = j->c->nfiles;
	struct slice *slices = j->slices + j->nslices;
	unsigned index;

	for (unsigned i = 0; i < part->nfiles; i++) {
		struct tsr_file *f = part->files[i];

		part->files[i] = NULL;
		TSR_TRY(tsr_build_file(j->c, f, &index, j->err));
	}
	part->nfiles = 0;
	for (size_t i = 0; i < part->ntensors; i++) {
		const struct tsr_tensor *t = &part->tensors[i];

		TSR_TRY(check_plain(j, part, t));
		slices[i] = (struct slice){ .part = part,
					    .array = &part->arrays[t->plane[0]],
					    .first_file = first_file };
	}
	j->nslices += part->ntensors;
	j->c->nunchecked += part->nunchecked;
	return read_offsets(j, part, slices);
}

/* --- Putting slices together ------------------------------------------------------------------ */

static enum tsr_status refuse(const struct joining *j, enum tsr_status code, const struct slice *p,
			      const char *what)
{
	return tsr_fail(j->err, code, "%s: tensor %.200s: %s", p->part->path, p->array->name, what);
}

static uint64_t *copy_numbers(const struct joining *j, const uint64_t *numbers, unsigned n)
{
	return tsr_arena_dup(j->c->arena, numbers, n * sizeof(*numbers));
}

/* A slice's box, @chunk of the array as the part has it, as a box of the whole. */
static bool move_chunk(const struct joining *j, const struct slice *p, struct tsr_chunk *chunk)
{
	const unsigned rank = p->array->rank;
	uint64_t *start = copy_numbers(j, chunk->start, rank);

	chunk->start = start;
	chunk->size = copy_numbers(j, chunk->size, rank);
	chunk->stride = copy_numbers(j, chunk->stride, rank);
	chunk->file += p->first_file;
	for (unsigned d = 0; d < rank && start && p->start; d++)
		start[d] += p->start[d];
	return chunk->start && chunk->size && chunk->stride;
}

/* Write the boxes of a slice to @chunks, which has room for them. */
static enum tsr_status add_chunks(const struct joining *j, const struct slice *p,
				  struct tsr_chunk *chunks, size_t *n)
{
	const struct tsr_layout *layout = p->array->layout;

	if (!layout)
		layout = tsr_layout_whole(j->c->arena, p->array, false);
	for (size_t i = 0; layout && i < layout->nchunks; i++) {
		chunks[*n] = layout->chunks[i];
		if (!move_chunk(j, p, &chunks[*n]))
			return tsr_build_nomem(j->c, j->err);
		++*n;
	}
	return layout ? TSR_OK : tsr_build_nomem(j->c, j->err);
}

static int by_start(const void *va, const void *vb, void *rank)
{
	const struct tsr_chunk *a = va, *b = vb;
	const unsigned n = *(const unsigned *)rank;

	return tsr_shape_compare(n, a->start, n, b->start);
}

/* Where the elements of @n slices are, into @a. */
static enum tsr_status lay_out(const struct joining *j, const struct slice *slices, size_t n,
			       struct tsr_array *a)
{
	struct tsr_layout *layout = tsr_arena_alloc(j->c->arena, sizeof(*layout));
	struct tsr_chunk *chunks;
	size_t nchunks = 0;

	for (size_t i = 0; i < n; i++)
		nchunks += slices[i].array->layout ? slices[i].array->layout->nchunks : 1;
	chunks = tsr_arena_alloc(j->c->arena, nchunks * sizeof(*chunks));
	if (!layout || !chunks)
		return tsr_build_nomem(j->c, j->err);
	layout->chunks = chunks;
	for (size_t i = 0; i < n; i++) {
		const struct tsr_layout *of_slice = slices[i].array->layout;
		const bool swapped = of_slice && of_slice->swapped;

		if (i && swapped != layout->swapped)
			return refuse(j, TSR_E_UNSUPPORTED, &slices[i],
				      "found slices that differ in byte order");
		layout->swapped = swapped;
		TSR_TRY(add_chunks(j, &slices[i], chunks, &layout->nchunks));
	}
	qsort_r(chunks, layout->nchunks, sizeof(*chunks), by_start, &a->rank);
	a->layout = layout;
	return TSR_OK;
}

/* --- Geometry --------------------------------------------------------------------------------- */

static int by_start_in(const void *va, const void *vb, void *vd)
{
	const struct slice *a = va, *b = vb;
	const unsigned d = *(const unsigned *)vd;

	return (a->start[d] > b->start[d]) - (a->start[d] < b->start[d]);
}

/* The one dimension in which slices begin elsewhere than at 0. */
static enum tsr_status find_cut(const struct joining *j, const struct slice *slices, size_t n,
				unsigned *ret)
{
	bool found = false;

	*ret = 0;
	for (size_t i = 0; i < n; i++) {
		for (unsigned d = 0; d < slices[i].array->rank; d++) {
			if (!slices[i].start[d])
				continue;
			if (found && d != *ret)
				return refuse(j, TSR_E_UNSUPPORTED, &slices[i],
					      "is cut along two dimensions, expected one");
			*ret = d;
			found = true;
		}
	}
	return TSR_OK;
}

/* Sort @n slices, check that together they are a whole tensor, and set @shape to its shape. */
static enum tsr_status fit(const struct joining *j, struct slice *slices, size_t n, uint64_t *shape)
{
	unsigned cut;
	uint64_t end = 0;

	if (!slices[0].array->rank) {
		return n == 1 ? TSR_OK
			      : refuse(j, TSR_E_FORMAT, &slices[1],
				       "has no dimensions and is in several files");
	}
	TSR_TRY(find_cut(j, slices, n, &cut));
	qsort_r(slices, n, sizeof(*slices), by_start_in, &cut);
	for (size_t i = 0; i < n; i++) {
		const struct tsr_array *a = slices[i].array;
		bool same = true;

		for (unsigned d = 0; d < a->rank; d++)
			same = same && (d == cut || a->shape[d] == slices[0].array->shape[d]);
		if (!same)
			return refuse(j, TSR_E_FORMAT, &slices[i],
				      "found a slice of another shape than in the other files");
		if (slices[i].start[cut] != end)
			return tsr_fail(j->err, TSR_E_FORMAT,
					"%s: tensor %.200s: found a slice that begins at %" PRIu64
					" of dimension %u, expected %" PRIu64,
					slices[i].part->path, a->name, slices[i].start[cut], cut,
					end);
		end += a->shape[cut];
	}
	memcpy(shape, slices[0].array->shape, slices[0].array->rank * sizeof(*shape));
	shape[cut] = end;
	return TSR_OK;
}

/* --- Tensors ---------------------------------------------------------------------------------- */

/* Slices have one type and rank, and the file of each says where it begins, unless it is alone. */
static enum tsr_status check_slices(const struct joining *j, const struct slice *slices, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		const struct tsr_array *a = slices[i].array, *first = slices[0].array;

		if (a->dtype != first->dtype || a->rank != first->rank)
			return tsr_fail(j->err, TSR_E_FORMAT,
					"%s: tensor %.200s: found dtype %s and %u dimensions, "
					"expected %s and %u as in %s",
					slices[i].part->path, a->name, tsr_dtype_name(a->dtype),
					a->rank, tsr_dtype_name(first->dtype), first->rank,
					slices[0].part->path);
	}
	for (size_t i = 0; i < n && n > 1; i++) {
		if (!slices[i].start)
			return tsr_fail(
				j->err, TSR_E_FORMAT,
				"%s: tensor %.200s: is in %zu files, expected " TSR_OFFSETS_KEY
				" to say where each slice begins",
				slices[i].part->path, slices[i].array->name, n);
	}
	return TSR_OK;
}

/* Move the slices that have elements to the front; returns how many, at least 1. */
static size_t drop_empty(struct slice *slices, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (slices[i].array->numel)
			slices[kept++] = slices[i];
	}
	return kept ? kept : 1;
}

static enum tsr_status add_tensor(const struct joining *j, const struct tsr_array *a)
{
	struct tsr_tensor t = { .name = a->name,
				.dtype = a->dtype,
				.rank = a->rank,
				.shape = a->shape,
				.kind = TSR_KIND_OTHER,
				.nplanes = 1 };

	TSR_TRY(tsr_build_array(j->c, a, &t.plane[0], j->err));
	t.numel = j->c->arrays[t.plane[0]].numel;
	return tsr_build_tensor(j->c, &t, j->err);
}

/* Make one tensor of its @n slices. */
static enum tsr_status join(const struct joining *j, struct slice *slices, size_t n)
{
	static const uint64_t zeros[TSR_RANK_MAX];
	const struct tsr_array *first = slices[0].array;
	uint64_t *shape = copy_numbers(j, first->shape, first->rank);
	struct tsr_array a = { .dtype = first->dtype, .rank = first->rank, .shape = shape };

	a.name = tsr_arena_string(j->c->arena, first->name);
	if (!a.name || !shape)
		return tsr_build_nomem(j->c, j->err);
	TSR_TRY(check_slices(j, slices, n));
	n = drop_empty(slices, n);
	if (!slices[0].array->numel) /* then all are, and their offsets mean nothing */
		return add_tensor(j, &a);
	if (!slices[0].start)
		slices[0].start = zeros;
	TSR_TRY(fit(j, slices, n, shape));
	if (n == 1 && !first->layout) {
		a.file = slices[0].array->file + slices[0].first_file;
		a.offset = slices[0].array->offset;
		a.has_crc = slices[0].array->has_crc;
		a.crc = slices[0].array->crc;
	} else {
		TSR_TRY(lay_out(j, slices, n, &a));
	}
	return add_tensor(j, &a);
}

TSR_COMPARE(by_name, struct slice, strcmp(a->array->name, b->array->name))

static enum tsr_status build(struct joining *j, struct tsr_checkpoint **parts, size_t nparts)
{
	struct tsr_checkpoint *c = j->c;
	size_t n = 0;
	size_t end;

	c->arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX);
	c->path = tsr_arena_string(c->arena, parts[0]->path);
	if (!c->path)
		return tsr_fail_nomem(j->err, parts[0]->path);
	c->container = parts[0]->container;
	for (size_t i = 0; i < nparts; i++)
		n += parts[i]->ntensors;
	TSR_TRY(TSR_NEW(&j->slices, n + 1, j->err, c->path));
	for (size_t i = 0; i < nparts; i++)
		TSR_TRY(add_part(j, parts[i]));
	/* Tensors are sorted by name. */
	if (j->nslices)
		qsort(j->slices, j->nslices, sizeof(*j->slices), by_name);
	for (size_t i = 0; i < j->nslices; i = end) {
		end = i + 1;
		while (end < j->nslices && by_name(&j->slices[i], &j->slices[end]) == 0)
			end++;
		TSR_TRY(join(j, j->slices + i, end - i));
	}
	return tsr_build_index(c, j->err);
}

enum tsr_status tsr_recording_join(struct tsr_checkpoint **parts, size_t nparts,
				   struct tsr_checkpoint **ret, struct tsr_err *err)
{
	struct joining j = { .err = err };
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&j.c, 1, err, parts[0]->path));
	status = build(&j, parts, nparts);
	free(j.slices);
	return TSR_MADE(status, ret, j.c, tsr_checkpoint_close);
}
