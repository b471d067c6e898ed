/* SPDX-License-Identifier: Apache-2.0 */
/* The means of the rows and columns of a piece of variances, as they are stored. */
#ifndef TSR_GPU_CODES_MEANS_CUH
#define TSR_GPU_CODES_MEANS_CUH

#include "gpu/entropy/gpu_contexts.cuh"

/* Most lines of a piece that has contexts, and what a block has for them in global memory. */
#define LINES (TSR_ENTROPY_PIECE / 8)
#define MEANS_STAGED (4 * LINES + (LINES + 64))

/* What the threads of a block share: the sums of columns, where these are fewer. */
struct means_memory {
	uint32_t columns[TSR_RANS_RUN * TSR_BLOCK];
	uint32_t sum[WARPS]; /* of all elements, of each warp */
};

/* The levels of @RUN elements from @i on, which have one scale if they are more than one. */
template <int RUN>
static __device__ __forceinline__ void levels_at(const struct context_source *s,
						 const unsigned char *codes, uint32_t i,
						 uint32_t *levels)
{
	if (RUN == 1) {
		levels[0] = level_of_element(s, i, codes[i]);
		return;
	}
	const int32_t scale = tsr_rans_scale_level(s->scales[i >> s->shift]);
	const uint32_t run = *(const uint32_t *)(codes + i);

#pragma unroll
	for (unsigned k = 0; k < RUN; k++)
		levels[k] = (uint32_t)(scale + tsr_rans_code_level((uint8_t)(run >> 8 * k)));
}

/* The sums of rows, a warp a row, to @sums; returns, in all lanes, that of those of the warp. */
template <int RUN>
static __device__ uint32_t sum_rows(const struct context_source *s, const unsigned char *codes,
				    uint32_t nrows, uint32_t *sums)
{
	const uint32_t lane = threadIdx.x % 32, columns = s->ncolumns;
	uint32_t all = 0;

	for (uint32_t row = threadIdx.x / 32; row < nrows; row += WARPS) {
		const uint32_t begin = row ? row * columns - s->before : 0;
		const uint32_t end = min(s->n, (row + 1) * columns - s->before);
		uint32_t sum = 0;

#pragma unroll 4
		for (uint32_t i = begin + RUN * lane; i < end; i += RUN * 32) {
			uint32_t levels[RUN];

			levels_at<RUN>(s, codes, i, levels);
#pragma unroll
			for (unsigned k = 0; k < RUN; k++)
				sum += levels[k];
		}
		sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
		if (lane == 0)
			sums[row] = sum;
		all += sum;
	}
	return all;
}

/* Add up @RUN columns from @column on, of rows @row, @row + @step and so on. */
template <int RUN>
static __device__ __forceinline__ void add_columns(const struct context_source *s,
						   const unsigned char *codes, uint32_t column,
						   uint32_t row, uint32_t step, uint32_t nrows,
						   uint32_t *sums)
{
	const uint32_t columns = s->ncolumns;

#pragma unroll 4
	for (; row < nrows; row += step) {
		const uint32_t i = row * columns + column - s->before; /* may be before the piece */
		uint32_t levels[RUN];

		if (i >= s->n)
			continue;
		levels_at<RUN>(s, codes, i, levels);
#pragma unroll
		for (unsigned k = 0; k < RUN; k++)
			sums[k] += levels[k];
	}
}

/* The sums of columns: threads have their own, or share them if there are fewer; to @sums. */
template <int RUN>
static __device__ void sum_columns(const struct context_source *s, const unsigned char *codes,
				   uint32_t nrows, struct means_memory *m, uint32_t *sums)
{
	const uint32_t columns = s->ncolumns, width = columns / RUN;

	if (width >= TSR_BLOCK) {
		for (uint32_t column = RUN * threadIdx.x; column < columns;
		     column += RUN * TSR_BLOCK) {
			uint32_t sum[RUN] = {};

			add_columns<RUN>(s, codes, column, 0, 1, nrows, sum);
			for (unsigned k = 0; k < RUN; k++)
				sums[column + k] = sum[k];
		}
		return;
	}
	for (uint32_t i = threadIdx.x; i < columns; i += TSR_BLOCK)
		m->columns[i] = 0;
	__syncthreads();
	if (threadIdx.x < TSR_BLOCK / width * width) {
		const uint32_t column = RUN * (threadIdx.x % width);
		uint32_t sum[RUN] = {};

		add_columns<RUN>(s, codes, column, threadIdx.x / width, TSR_BLOCK / width, nrows,
				 sum);
		for (unsigned k = 0; k < RUN; k++)
			atomicAdd(&m->columns[column + k], sum[k]);
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < columns; i += TSR_BLOCK)
		sums[i] = m->columns[i];
}

/* Find the means, have them stored in @staged, and returns their bytes there. */
template <enum context_sort SORT>
static __device__ uint32_t find_means(struct context_source *s, const unsigned char *codes,
				      struct means_memory *m, unsigned char *staged)
{
	const struct tsr_entropy_beside *b = s->beside;
	const uint32_t nrows = (uint32_t)tsr_contexts_rows(b, s->n),
		       ncolumns = (uint32_t)b->columns;
	const uint32_t nbytes = tsr_contexts_means_nbytes(nrows, ncolumns);
	uint32_t *const rows = (uint32_t *)staged, *const columns = rows + nrows;
	uint32_t *const stored = rows + LINES;
	int8_t *const lines = (int8_t *)(stored + 1);
	constexpr int RUN = SORT == OF_VARIANCES ? (int)TSR_RANS_RUN : 1;
	const uint32_t sum = sum_rows<RUN>(s, codes, nrows, rows);
	uint32_t all = 0;

	sum_columns<RUN>(s, codes, nrows, m, columns);
	if (threadIdx.x % 32 == 0)
		m->sum[threadIdx.x / 32] = sum;
	__syncthreads();
	for (unsigned i = 0; i < WARPS; i++)
		all += m->sum[i];
	s->all = (int32_t)(all / s->n);
	s->rows = lines;
	s->columns = lines + nrows;
	for (uint32_t i = threadIdx.x; i < nrows; i += TSR_BLOCK)
		lines[i] = (int8_t)tsr_rans_deviation(
			(int32_t)(rows[i] / tsr_contexts_row_size(b, s->n, nrows, i)), s->all);
	for (uint32_t i = threadIdx.x; i < ncolumns; i += TSR_BLOCK)
		lines[nrows + i] = (int8_t)tsr_rans_deviation(
			(int32_t)(columns[i] / tsr_contexts_column_size(b, s->n, nrows, i)),
			s->all);
	if (threadIdx.x == 0)
		stored[0] = (uint32_t)s->all;
	if (threadIdx.x < nbytes - (4 + nrows + ncolumns))
		lines[nrows + ncolumns + threadIdx.x] = 0;
	__syncthreads();
	return nbytes;
}

#endif
