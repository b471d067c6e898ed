/* SPDX-License-Identifier: Apache-2.0 */
/* The means of the rows and columns of a piece of variances, as they are stored. */
#ifndef TSR_GPU_CODES_MEANS_CUH
#define TSR_GPU_CODES_MEANS_CUH

#include "gpu/entropy/gpu_contexts.cuh"

/* Most lines of a piece that has contexts, and what a block has for them in global memory. */
#define LINES (TSR_ENTROPY_PIECE / 8)
#define MEANS_STAGED (4 * LINES + (LINES + 64))

/* What the threads of a block share: the sums of lines, where there is room for them, and of all. */
#define SHARED_LINES 4000u

struct means_memory {
	uint32_t lines[SHARED_LINES];
	uint32_t sum[WARPS];
};

/* A run, and what lies beside it, loaded ahead. */
struct loaded_run {
	uint32_t codes;
	struct run_beside beside;
};

template <enum context_sort SORT>
static __device__ __forceinline__ struct loaded_run load_codes(const struct context_source *s,
							       const unsigned char *codes,
							       const struct run_place *p,
							       uint32_t count)
{
	return { load_run<1>(codes + p->at, count).word[0], load_beside<SORT>(s, p, count) };
}

/*
 * The place of the sum of a column.  Those of a run's elements are far apart, so that lanes do not wait for
 * each other's banks of memory.
 */
template <enum context_sort SORT>
static __device__ __forceinline__ uint32_t sum_of_column(const struct context_source *s, uint32_t i)
{
	return SORT == OF_VARIANCES
		       ? i % TSR_RANS_RUN * (s->ncolumns / TSR_RANS_RUN) + i / TSR_RANS_RUN
		       : i;
}

/* Add the levels of a run, which all lanes have, to its row and its columns. */
static __device__ __forceinline__ void add_run(const struct context_source *s, uint32_t codes,
					       uint32_t scale, uint32_t row, uint32_t column,
					       uint32_t *rows, uint32_t *columns)
{
	const bool one_row = __all_sync(TSR_WHOLE_WARP, row == __shfl_sync(TSR_WHOLE_WARP, row, 0));
	const int32_t above = tsr_rans_scale_level((uint16_t)scale);
	uint32_t sum = 0;

#pragma unroll
	for (unsigned i = 0; i < TSR_RANS_RUN; i++) {
		const uint32_t level = (uint32_t)(above +
						  tsr_rans_code_level((uint8_t)(codes >> 8 * i)));

		atomicAdd(&columns[sum_of_column<OF_VARIANCES>(s, column + i)], level);
		sum += level;
	}
	if (one_row)
		sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
	if (!one_row || threadIdx.x % 32 == 0)
		atomicAdd(&rows[row], sum);
}

/* The same of what may not be a run, one by one. */
template <enum context_sort SORT>
static __device__ void add_elements(const struct context_source *s, const unsigned char *codes,
				    uint32_t at, uint32_t count, uint32_t *rows, uint32_t *columns)
{
	const uint32_t ncolumns = s->ncolumns;

#pragma unroll 1
	for (uint32_t i = at; i < at + count; i++) {
		const uint32_t level = level_of_element(s, i, codes[i]);

		atomicAdd(&rows[(s->before + i) / ncolumns], level);
		atomicAdd(&columns[sum_of_column<SORT>(s, (s->before + i) % ncolumns)], level);
	}
}

/* Blocks that are loaded at once. */
#define LEVELS_AHEAD 4u

/* Add the levels of a segment to the sums of lines, by a warp. */
template <enum context_sort SORT>
static __device__ __forceinline__ void add_levels(const struct context_source *s,
						  const unsigned char *codes, uint32_t begin,
						  uint32_t size, uint32_t *rows, uint32_t *columns)
{
	const unsigned lane = threadIdx.x % 32;
	const uint32_t whole = size - size % (LEVELS_AHEAD * TSR_RANS_BLOCK);
	struct run_place p = begin_runs(s, begin + TSR_RANS_RUN * lane);
	uint32_t first = 0;

	for (; SORT == OF_VARIANCES && first < whole; first += LEVELS_AHEAD * TSR_RANS_BLOCK) {
		uint32_t run[LEVELS_AHEAD], scale[LEVELS_AHEAD];
		struct run_place q = p;

#pragma unroll
		for (unsigned i = 0; i < LEVELS_AHEAD; i++) {
			const uint32_t at = p.at + i * TSR_RANS_BLOCK;

			run[i] = load_run<1>(codes + at, TSR_RANS_RUN).word[0];
			scale[i] = s->scales[at >> s->shift];
		}
#pragma unroll
		for (unsigned i = 0; i < LEVELS_AHEAD; i++) {
			add_run(s, run[i], scale[i], q.row, q.column, rows, columns);
			next_run<SORT>(s, &q);
		}
		p = q;
	}
	for (; first < size; first += TSR_RANS_BLOCK) {
		const uint32_t count = count_run(size, first, lane);

		add_elements<SORT>(s, codes, p.at, count, rows, columns);
		p.at += TSR_RANS_BLOCK;
	}
}

/* The sums of lines, all being 0 before; returns that of all. */
template <enum context_sort SORT>
static __device__ __forceinline__ uint32_t sum_lines(const struct context_source *s,
						     const unsigned char *codes, uint32_t begin,
						     uint32_t size, uint32_t nrows,
						     struct means_memory *m, uint32_t *sums)
{
	const unsigned lane = threadIdx.x % 32;
	uint32_t sum = 0, all = 0;

	for (uint32_t i = threadIdx.x; i < nrows + s->ncolumns; i += TSR_BLOCK)
		sums[i] = 0;
	__syncthreads();
	add_levels<SORT>(s, codes, begin, size, sums, sums + nrows);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < nrows; i += TSR_BLOCK)
		sum += sums[i];
	sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
	if (lane == 0)
		m->sum[threadIdx.x / 32] = sum;
	__syncthreads();
	for (unsigned i = 0; i < WARPS; i++)
		all += m->sum[i];
	return all;
}

/* The deviations of lines, given their sums. */
template <enum context_sort SORT>
static __device__ __forceinline__ void deviate(const struct context_source *s, uint32_t nrows,
					       const uint32_t *sums, int8_t *lines)
{
	const struct tsr_entropy_beside *b = s->beside;
	const uint32_t ncolumns = s->ncolumns;

	for (uint32_t i = threadIdx.x; i < nrows; i += TSR_BLOCK)
		lines[i] = (int8_t)tsr_rans_deviation(
			(int32_t)(sums[i] / tsr_contexts_row_size(b, s->n, nrows, i)), s->all);
	for (uint32_t i = threadIdx.x; i < ncolumns; i += TSR_BLOCK)
		lines[nrows + i] = (int8_t)tsr_rans_deviation(
			(int32_t)(sums[nrows + sum_of_column<SORT>(s, i)] /
				  tsr_contexts_column_size(b, s->n, nrows, i)),
			s->all);
}

/* Find the means of a piece, a warp having a segment, and store them in @staged; returns their bytes. */
template <enum context_sort SORT>
static __device__ uint32_t find_means(struct context_source *s, const unsigned char *codes,
				      uint32_t begin, uint32_t size, struct means_memory *m,
				      unsigned char *staged)
{
	const uint32_t nrows = (uint32_t)tsr_contexts_rows(s->beside, s->n);
	const uint32_t ncolumns = s->ncolumns, nbytes = tsr_contexts_means_nbytes(nrows, ncolumns);
	uint32_t *const sums = (uint32_t *)staged, *const stored = sums + LINES;
	int8_t *const lines = (int8_t *)(stored + 1);
	uint32_t all;

	if (nrows + ncolumns <= SHARED_LINES)
		all = sum_lines<SORT>(s, codes, begin, size, nrows, m, m->lines);
	else
		all = sum_lines<SORT>(s, codes, begin, size, nrows, m, sums);
	s->all = (int32_t)(all / s->n);
	s->rows = lines;
	s->columns = lines + nrows;
	if (nrows + ncolumns <= SHARED_LINES)
		deviate<SORT>(s, nrows, m->lines, lines);
	else
		deviate<SORT>(s, nrows, sums, lines);
	if (threadIdx.x == 0)
		stored[0] = (uint32_t)s->all;
	if (threadIdx.x < nbytes - (4 + nrows + ncolumns))
		lines[nrows + ncolumns + threadIdx.x] = 0;
	__syncthreads();
	return nbytes;
}

#endif
