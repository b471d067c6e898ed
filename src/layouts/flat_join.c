/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays put together from runs of the elements of others. */
#include "layouts/flat_join.h"

#include "base/grow.h"
#include "ckpt/checkpoint_model.h"

/* Whether the elements of an array lie in one run, each @stride_ret after the one before. */
static bool is_run(const struct tsr_array *a, uint64_t *stride_ret)
{
	const struct tsr_layout *l = a->layout;
	uint64_t step = 1;

	*stride_ret = 1;
	if (a->memory)
		return false;
	if (!l)
		return true;
	if (l->nchunks != 1 || l->flat || l->bf16_integers || l->integers_bf16)
		return false;
	if (a->rank == 1)
		*stride_ret = l->chunks->stride[0];
	for (unsigned d = a->rank; d-- > 0 && a->rank > 1;) {
		if (a->shape[d] != 1 && l->chunks->stride[d] != step)
			return false;
		step *= a->shape[d];
	}
	return true;
}

static enum tsr_status check_run(struct tsr_flat_join *j, const struct tsr_array *a,
				 uint64_t *stride_ret)
{
	const bool swapped = a->layout && a->layout->swapped;

	if (!is_run(a, stride_ret))
		return tsr_fail(j->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: found a part of it (%.200s) that is a view "
				"with strides, expected elements that follow each other",
				j->c->path, j->name, a->name);
	if (!j->n) {
		j->dtype = a->dtype;
		j->swapped = swapped;
	}
	if (a->dtype != j->dtype || swapped != j->swapped)
		return tsr_fail(j->err, TSR_E_FORMAT,
				"%s: tensor %.200s: found a part of it (%.200s) of dtype %s, "
				"expected %s and the byte order of the others",
				j->c->path, j->name, a->name, tsr_dtype_name(a->dtype),
				tsr_dtype_name(j->dtype));
	return TSR_OK;
}

/* Where array @a is stored. */
static struct tsr_chunk place_of(const struct tsr_array *a)
{
	if (a->layout)
		return *a->layout->chunks;
	return (struct tsr_chunk){ .file = a->file,
				   .offset = a->offset,
				   .has_crc = a->has_crc,
				   .crc = a->crc,
				   .crc_offset = a->offset,
				   .crc_nbytes = a->nbytes };
}

enum tsr_status tsr_flat_join_add(struct tsr_flat_join *j, size_t from, uint64_t first, uint64_t n)
{
	const struct tsr_array *a = &j->c->arrays[from];
	uint64_t *numbers, stride;
	struct tsr_chunk *chunk;

	TSR_TRY(check_run(j, a, &stride));
	TSR_TRY(TSR_GROW(&j->chunks, j->n, j->err, j->c->path));
	TSR_TRY(TSR_ARENA_NEW(&numbers, 3, j->c->arena, tsr_build_nomem(j->c, j->err)));
	numbers[0] = j->numel;
	numbers[1] = n;
	numbers[2] = stride;
	chunk = &j->chunks[j->n++];
	*chunk = place_of(a);
	chunk->offset += first * stride * (tsr_dtype_bits(a->dtype) / 8);
	chunk->start = numbers;
	chunk->size = numbers + 1;
	chunk->stride = numbers + 2;
	j->numel += n;
	return TSR_OK;
}

enum tsr_status tsr_flat_join_finish(struct tsr_flat_join *j, unsigned rank, const uint64_t *shape,
				     size_t *array_ret)
{
	struct tsr_array a = { .name = j->name, .dtype = j->dtype, .rank = rank, .shape = shape };
	struct tsr_layout *layout = tsr_arena_alloc(j->c->arena, sizeof(*layout));
	struct tsr_chunk *chunks = tsr_arena_alloc(j->c->arena, j->n * sizeof(*chunks));

	if (!layout || !chunks)
		return tsr_build_nomem(j->c, j->err);
	if (j->n) {
		memcpy(chunks, j->chunks, j->n * sizeof(*chunks));
		*layout = (struct tsr_layout){
			.nchunks = j->n, .chunks = chunks, .flat = true, .swapped = j->swapped
		};
		a.layout = layout;
	}
	return tsr_build_array(j->c, &a, array_ret, j->err);
}

void tsr_flat_join_free(struct tsr_flat_join *j)
{
	free(j->chunks);
	j->chunks = NULL;
	j->n = 0;
}
