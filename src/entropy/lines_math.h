/* SPDX-License-Identifier: Apache-2.0 */
/* Which pieces of scales may be coded by their lines (docs/internals/format.md, 18.8), for C and for CUDA. */
#ifndef TSR_ENTROPY_LINES_MATH_H
#define TSR_ENTROPY_LINES_MATH_H

#include "entropy/contexts_math.h"

/* More scales have no lines, so that everything has room in the workspace. */
#define TSR_LINES_MAX (TSR_ENTROPY_PIECE / 2)

/* The lines of scales are those of codes, with one scale for each code. */
TSR_HD struct tsr_entropy_beside tsr_lines_of(const struct tsr_entropy_grid *g)
{
	struct tsr_entropy_beside b;

	memset(&b, 0, sizeof(b));
	b.first = g->first;
	b.columns = g->columns;
	return b;
}

TSR_HD bool tsr_lines_are_possible(const struct tsr_entropy_grid *g, uint64_t n)
{
	const struct tsr_entropy_beside b = tsr_lines_of(g);

	return g->columns && g->columns <= n && n <= TSR_LINES_MAX &&
	       8 * (tsr_contexts_rows(&b, n) + g->columns) <= n;
}

#endif
