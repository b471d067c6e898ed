/* SPDX-License-Identifier: Apache-2.0 */
/* The means of the rows and columns of a piece of variances, as they are stored. */
#ifndef TSR_GPU_CONTEXTS_MEANS_CUH
#define TSR_GPU_CONTEXTS_MEANS_CUH

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

/*
 * The place of the sum of a column.  Those of a run's elements are far apart, so that lanes do not wait for
 * each other's banks of memory.
 */
template <enum context_sort SORT>
static __device__ __forceinline__ uint32_t sum_of_column(const struct context_source *s, uint32_t i)
{
	return SORT == OF_RUNS ? i % TSR_RANS_RUN * (s->ncolumns / TSR_RANS_RUN) + i / TSR_RANS_RUN
			       : i;
}

/* Rows whose runs a thread loads at once. */
#define ROWS_AHEAD 8u

/* The runs of a column that a thread has: of every @step rows one. */
struct owned_runs {
	uint32_t column, row, step; /* in elements */
	bool has;
};

/* The sums of those: of two columns in a word each, of their scales' levels. */
struct owned_sums {
	uint32_t first, last, scales;
};

/* The levels of two codes, given as floats' upper halves. */
static __device__ __forceinline__ uint32_t two_levels(uint32_t a, uint32_t b)
{
	constexpr uint32_t ONE = 0x3f803f80; /* a code of 0 is as 1 */

	return (__vmaxs2(__byte_perm(a, b, 0x7632), ONE) - ONE) >> 3 & 0x7f007fu;
}

/*
 * Add the levels of a run, 0 of what is none, to the sums of its columns and of its row; @one_row: all lanes
 * of the warp have the same.
 */
static __device__ __forceinline__ void add_run(uint32_t codes, uint32_t scale, bool one_row,
					       bool has, uint32_t *row, struct owned_sums *sums)
{
	const uint32_t level = (uint32_t)tsr_rans_scale_level((uint16_t)scale);
	uint32_t bits[TSR_RANS_RUN], first, last, sum;

#pragma unroll
	for (unsigned i = 0; i < TSR_RANS_RUN; i++)
		bits[i] = __float_as_uint((float)(uint8_t)(codes >> 8 * i));
	first = two_levels(bits[0], bits[1]);
	last = two_levels(bits[2], bits[3]);
	sums->first += first;
	sums->last += last;
	sums->scales += level;
	sum = first + last;
	sum = (sum & 0xffff) + (sum >> 16) + TSR_RANS_RUN * level;
	if (one_row)
		sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
	if (has && (!one_row || threadIdx.x % 32 == 0))
		atomicAdd(row, sum);
}

/*
 * The runs of a thread.  Of 262,144 elements they are in at most 509 rows, since at least half of all threads
 * have some: a word has room for two sums of levels below 128.
 */
static __device__ __forceinline__ struct owned_sums add_rows(const struct context_source *s,
							     const unsigned char *codes,
							     struct owned_runs own, uint32_t nrows,
							     bool one_row, uint32_t *rows)
{
	struct owned_sums sums = { 0, 0, 0 };

	for (uint32_t begin = 0; begin < nrows; begin += ROWS_AHEAD * own.step) {
		uint32_t run[ROWS_AHEAD] = {}, scale[ROWS_AHEAD] = {};

#pragma unroll
		for (unsigned k = 0; k < ROWS_AHEAD; k++) {
			const uint32_t row = begin + k * own.step + own.row;
			/* Of the first row the beginning may be before the piece. */
			const uint32_t at = row * s->ncolumns + own.column - s->before;

			if (own.has && row < nrows && at < s->n) {
				run[k] = load_run<1>(codes + at, TSR_RANS_RUN).word[0];
				scale[k] = s->scales[at >> s->shift];
			}
		}
#pragma unroll
		for (unsigned k = 0; k < ROWS_AHEAD; k++) {
			const uint32_t row = begin + k * own.step + own.row;

			add_run(run[k], scale[k], one_row, own.row < own.step && row < nrows,
				rows + row, &sums);
		}
	}
	return sums;
}

/* Add the levels of a piece whose rows are runs: a thread has columns, or some of their rows. */
static __device__ __forceinline__ void add_matrix(const struct context_source *s,
						  const unsigned char *codes, uint32_t nrows,
						  uint32_t *rows, uint32_t *columns)
{
	const uint32_t width = s->ncolumns / TSR_RANS_RUN, across = min(width, TSR_BLOCK);
	const uint32_t step = TSR_BLOCK / across, row = threadIdx.x / across;
	const bool one_row = across % 32 == 0;

	for (uint32_t first = 0; first < width; first += across) {
		const uint32_t at = first + threadIdx.x % across;
		const struct owned_runs own = { TSR_RANS_RUN * at, row, step,
						row < step && at < width };
		const struct owned_sums sums = add_rows(s, codes, own, nrows, one_row, rows);

		if (!own.has)
			continue;
		atomicAdd(&columns[at], sums.scales + (sums.first & 0xffff));
		atomicAdd(&columns[width + at], sums.scales + (sums.first >> 16));
		atomicAdd(&columns[2 * width + at], sums.scales + (sums.last & 0xffff));
		atomicAdd(&columns[3 * width + at], sums.scales + (sums.last >> 16));
	}
}

/* Add the levels of any piece, one by one. */
static __device__ __forceinline__ void add_elements(const struct context_source *s,
						    const unsigned char *codes, uint32_t *rows,
						    uint32_t *columns)
{
	for (uint32_t i = threadIdx.x; i < s->n; i += TSR_BLOCK) {
		const uint32_t level = level_of_element(s, i, codes[i]);

		atomicAdd(&rows[(s->before + i) / s->ncolumns], level);
		atomicAdd(&columns[(s->before + i) % s->ncolumns], level);
	}
}

/* The sums of lines, all being 0 before; returns that of all. */
template <enum context_sort SORT>
static __device__ __forceinline__ uint32_t sum_lines(const struct context_source *s,
						     const unsigned char *codes, uint32_t nrows,
						     struct means_memory *m, uint32_t *sums)
{
	uint32_t sum = 0, all = 0;

	for (uint32_t i = threadIdx.x; i < nrows + s->ncolumns; i += TSR_BLOCK)
		sums[i] = 0;
	__syncthreads();
	if constexpr (SORT == OF_RUNS)
		add_matrix(s, codes, nrows, sums, sums + nrows);
	else
		add_elements(s, codes, sums, sums + nrows);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < nrows; i += TSR_BLOCK)
		sum += sums[i];
	sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
	if (threadIdx.x % 32 == 0)
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
	const struct tsr_entropy_variance *v = s->variance;
	const uint32_t ncolumns = s->ncolumns;

	for (uint32_t i = threadIdx.x; i < nrows; i += TSR_BLOCK)
		lines[i] = (int8_t)tsr_rans_deviation(
			(int32_t)(sums[i] / tsr_contexts_row_size(v, s->n, nrows, i)), s->all);
	for (uint32_t i = threadIdx.x; i < ncolumns; i += TSR_BLOCK)
		lines[nrows + i] = (int8_t)tsr_rans_deviation(
			(int32_t)(sums[nrows + sum_of_column<SORT>(s, i)] /
				  tsr_contexts_column_size(v, s->n, nrows, i)),
			s->all);
}

/* Find the means of a piece, have them stored in @staged, and return their bytes there. */
template <enum context_sort SORT>
static __device__ uint32_t find_means(struct context_source *s, const unsigned char *codes,
				      struct means_memory *m, unsigned char *staged)
{
	const uint32_t nrows = (uint32_t)tsr_contexts_rows(s->variance, s->n);
	const uint32_t ncolumns = s->ncolumns, nbytes = tsr_contexts_means_nbytes(nrows, ncolumns);
	uint32_t *const sums = (uint32_t *)staged, *const stored = sums + LINES;
	int8_t *const lines = (int8_t *)(stored + 1);
	uint32_t all;

	if (nrows + ncolumns <= SHARED_LINES)
		all = sum_lines<SORT>(s, codes, nrows, m, m->lines);
	else
		all = sum_lines<SORT>(s, codes, nrows, m, sums);
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
