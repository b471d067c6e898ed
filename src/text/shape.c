/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of tensors: their size, their order, and what messages say of them. */
#include "text/shape.h"

#include <inttypes.h>
#include <stdio.h>

void tsr_shape_text(char *out, size_t room, unsigned rank, const uint64_t *shape)
{
	size_t at = (size_t)snprintf(out, room, "[");

	for (unsigned d = 0; d < rank && at + 24 < room; d++)
		at += (size_t)snprintf(out + at, room - at, "%s%" PRIu64, d ? ", " : "", shape[d]);
	snprintf(out + at, room - at, "]");
}

bool tsr_shape_numel(unsigned rank, const uint64_t *shape, uint64_t *ret)
{
	bool overflow = false;

	*ret = 1;
	for (unsigned d = 0; d < rank; d++)
		overflow |= __builtin_mul_overflow(*ret, shape[d], ret);
	return !overflow;
}

int tsr_shape_compare(unsigned rank_a, const uint64_t *a, unsigned rank_b, const uint64_t *b)
{
	if (rank_a != rank_b)
		return rank_a < rank_b ? -1 : 1;
	for (unsigned d = 0; d < rank_a; d++) {
		if (a[d] != b[d])
			return a[d] < b[d] ? -1 : 1;
	}
	return 0;
}

bool tsr_shape_is_reduced(unsigned rank, const uint64_t *shape, unsigned of_rank,
			  const uint64_t *of_shape)
{
	uint64_t n, of;

	if (!tsr_shape_numel(rank, shape, &n) || !tsr_shape_numel(of_rank, of_shape, &of))
		return false;
	if (n == 1)
		return true;
	for (unsigned i = 0; i < rank && n < of; i++) {
		for (unsigned k = 0; k < of_rank; k++) {
			if (shape[i] > 1 && shape[i] == of_shape[k])
				return true;
		}
	}
	return false;
}
