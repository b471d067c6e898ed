/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether boxes of a tensor overlap.  Ranks cut tensors by planes, so planes part their boxes again: along
 * each dimension, sorted by their starts, wherever all boxes before have ended.  Only boxes that no plane
 * parts are compared by pairs, and there is a limit on all of it: a file may be made to have many.
 */
#include <stdlib.h>

#include "torch/dcp_read.h"

/* How often groups are parted again; a grid needs one level per dimension. */
#define LEVELS_MAX 64u

/* What sorting a box costs, in comparisons of numbers. */
#define SORTING 16u

static bool spend(uint64_t *left, uint64_t cost)
{
	if (*left < cost)
		return false;
	*left -= cost;
	return true;
}

static int compare_in_dimension(const void *va, const void *vb, void *vd)
{
	const struct tsr_dcp_box *a = va, *b = vb;
	const unsigned d = *(const unsigned *)vd;

	return (a->start[d] > b->start[d]) - (a->start[d] < b->start[d]);
}

static uint64_t end_of(const struct tsr_dcp_box *box, unsigned d)
{
	return box->start[d] + box->size[d];
}

static bool same_starts(const struct tsr_dcp_box *boxes, size_t n, unsigned d)
{
	size_t i = 1;

	while (i < n && boxes[i].start[d] == boxes[0].start[d])
		i++;
	return i == n;
}

/* How many of the first boxes, which are sorted along @d, a plane parts from the others; @n: none. */
static size_t parted(const struct tsr_dcp_box *boxes, size_t n, unsigned d)
{
	uint64_t end = end_of(&boxes[0], d);
	size_t i = 1;

	for (; i < n && boxes[i].start[d] < end; i++)
		end = end_of(&boxes[i], d) > end ? end_of(&boxes[i], d) : end;
	return i;
}

static enum tsr_dcp_overlap compare_pairs(const struct tsr_dcp_box *boxes, size_t n, unsigned rank,
					  uint64_t *left)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = i + 1; k < n; k++) {
			unsigned d = 0;

			while (d < rank && boxes[i].start[d] < end_of(&boxes[k], d) &&
			       boxes[k].start[d] < end_of(&boxes[i], d))
				d++;
			if (d == rank)
				return TSR_DCP_OVERLAP;
			if (!spend(left, d + 1))
				return TSR_DCP_OVER_LIMIT;
		}
	}
	return TSR_DCP_DISJOINT;
}

static enum tsr_dcp_overlap check(struct tsr_dcp_box *boxes, size_t n, unsigned rank,
				  unsigned levels, uint64_t *left)
{
	enum tsr_dcp_overlap found = TSR_DCP_DISJOINT;
	size_t first = n, at = 0;
	unsigned d = 0;

	for (; n > 1 && levels && first == n && d < rank; d++) {
		if (!spend(left, n))
			return TSR_DCP_OVER_LIMIT;
		if (same_starts(boxes, n, d))
			continue;
		if (!spend(left, SORTING * n))
			return TSR_DCP_OVER_LIMIT;
		qsort_r(boxes, n, sizeof(*boxes), compare_in_dimension, &d);
		first = parted(boxes, n, d);
	}
	if (first == n)
		return compare_pairs(boxes, n, rank, left);
	for (d--; at < n && found == TSR_DCP_DISJOINT; at += first) {
		first = parted(boxes + at, n - at, d);
		found = check(boxes + at, first, rank, levels - 1, left);
	}
	return found;
}

enum tsr_dcp_overlap tsr_dcp_boxes_check(struct tsr_dcp_box *boxes, size_t n, unsigned rank,
					 uint64_t *left)
{
	return check(boxes, n, rank, LEVELS_MAX, left);
}
