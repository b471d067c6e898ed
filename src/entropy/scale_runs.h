/* SPDX-License-Identifier: Apache-2.0 */
/* Elements in a row that share a scale, one run after the other. */
#ifndef TSR_ENTROPY_SCALE_RUNS_H
#define TSR_ENTROPY_SCALE_RUNS_H

#include "entropy/entropy.h"

/* Where in the groups of a plane an element is. */
struct tsr_scale_run {
	const uint16_t *scale;
	uint64_t row, left_in_row;
	uint32_t group, left;
};

static inline struct tsr_scale_run tsr_scale_run_begin(const struct tsr_entropy_scales *s,
						       uint64_t first)
{
	struct tsr_scale_run at = {
		.scale = s->scales, .row = s->row, .left_in_row = UINT64_MAX, .group = s->group
	};
	const uint64_t in_row = s->row ? first % s->row : first;

	at.left = s->group - (uint32_t)(in_row % s->group);
	if (s->row)
		at.left_in_row = s->row - in_row;
	if (at.left > at.left_in_row)
		at.left = (uint32_t)at.left_in_row;
	return at;
}

/* @n elements on, which all have this scale. */
static inline void tsr_scale_run_advance(struct tsr_scale_run *at, uint32_t n)
{
	at->left -= n;
	at->left_in_row -= n;
	if (at->left)
		return;
	at->scale++;
	if (!at->left_in_row)
		at->left_in_row = at->row;
	at->left = at->left_in_row < at->group ? (uint32_t)at->left_in_row : at->group;
}

static inline uint32_t tsr_scale_run_least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

/* The whole groups of @size elements from here to the end of the row, at most @most; others are none. */
static inline uint64_t tsr_scale_run_groups(const struct tsr_scale_run *at, uint32_t size,
					    uint64_t most)
{
	const uint64_t n = at->left_in_row / size;

	if (at->group != size || at->left != size)
		return 0;
	return n < most ? n : most;
}

/* @n whole groups on. */
static inline void tsr_scale_run_skip(struct tsr_scale_run *at, uint64_t n)
{
	at->scale += n - 1;
	at->left_in_row -= (n - 1) * at->group;
	tsr_scale_run_advance(at, at->group);
}

#endif
