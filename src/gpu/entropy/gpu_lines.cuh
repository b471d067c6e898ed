/* SPDX-License-Identifier: Apache-2.0 */
/* What coding and decoding of scales by their lines share (docs/internals/format.md, "Lines of scales"). */
#ifndef TSR_GPU_GPU_LINES_CUH
#define TSR_GPU_GPU_LINES_CUH

#include "entropy/lines_math.h"
#include "gpu/entropy/gpu_entropy.cuh"

/* The bytes in front of the means. */
#define LINES_HEAD 4u

/* The lines of a piece, and how their means deviate from that of all. */
struct scale_lines {
	uint32_t n, nrows, ncolumns;
	uint32_t before; /* scales of its first row in front of the piece */
	int32_t all;
	const int8_t *rows, *columns;
};

/* Without means yet. */
static __device__ struct scale_lines scale_lines_of(const struct tsr_entropy_grid *g, uint32_t n)
{
	const struct tsr_entropy_beside b = tsr_lines_of(g);
	struct scale_lines l = {};

	l.n = n;
	l.nrows = (uint32_t)tsr_contexts_rows(&b, n);
	l.ncolumns = (uint32_t)g->columns;
	l.before = (uint32_t)(g->first % g->columns);
	return l;
}

template <int W> static __device__ __forceinline__ uint32_t scale_at(const void *scales, uint32_t i)
{
	return W == 2 ? ((const uint16_t *)scales)[i] : ((const uint32_t *)scales)[i];
}

/* By all threads: take what is expected from scales, or, with a @sign of -1, add it to their rests. */
template <int W>
static __device__ void subtract_lines(const struct scale_lines *l, uint32_t sign, const void *from,
				      void *to)
{
	for (uint32_t i = threadIdx.x; i < l->n; i += TSR_BLOCK) {
		const uint32_t at = l->before + i;
		const uint32_t expected = tsr_rans_line_expected(
			l->all + 16 * l->rows[at / l->ncolumns], l->columns[at % l->ncolumns], W);
		const uint32_t number = scale_at<W>(from, i) - sign * expected;

		if (W == 2)
			((uint16_t *)to)[i] = (uint16_t)number;
		else
			((uint32_t *)to)[i] = number;
	}
	__syncthreads();
}

#endif
