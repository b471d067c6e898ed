/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes and shapes of tensors and arrays. */
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "ckpt/coded/coded_plane.h"

uint64_t tsr_array_stored_nbytes(const struct tsr_array *a)
{
	return a->coded ? a->coded->nbytes : a->nbytes;
}

uint64_t tsr_tensor_stored_nbytes(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	uint64_t total = 0;

	for (unsigned i = t->narrow ? 1 : 0; i < t->nplanes; i++)
		total += tsr_array_stored_nbytes(&c->arrays[t->plane[i]]);
	return total;
}

uint64_t tsr_checkpoint_stored_nbytes(const struct tsr_checkpoint *c)
{
	uint64_t total = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		total += tsr_tensor_stored_nbytes(c, &c->tensors[i]);
	return total;
}

uint64_t tsr_tensor_nbytes(const struct tsr_tensor *t)
{
	return t->numel * tsr_dtype_bits(t->dtype) / 8;
}

bool tsr_tensor_same_shape(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
	return a->rank == b->rank &&
	       (!a->rank || memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) == 0);
}
