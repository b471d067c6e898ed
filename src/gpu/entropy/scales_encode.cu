/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coding pieces of scales (format.md, "Lines of scales"): a block of threads finds the means of rows and
 * columns, codes the rests, and the scales as they are, and keeps what has fewer bytes.
 */
#include "gpu/entropy/encode_stream.cuh"
#include "gpu/entropy/gpu_lines.cuh"

/* Blocks of a multiprocessor: scales are few, and a block has much memory for them. */
#define BLOCKS 2u

/* What a block has in global memory: the words of segments, sums of lines, rests, and the piece by lines. */
#define SUMS_AT (WARPS * STAGED)
#define RESTS_AT (SUMS_AT + TSR_LINES_MAX / 8 * 4)
#define LINES_AT (RESTS_AT + TSR_LINES_MAX * 4)
#define BLOCK_STAGED (LINES_AT + TSR_LINES_MAX * 4 + TSR_LINES_MAX / 8 + 4096)

static_assert(RESTS_AT % 16 == 0 && LINES_AT % 16 == 0, "elements are aligned");

/* What the threads of a block share. */
struct scales_coding {
	struct coding one;
	uint32_t column[TSR_BLOCK]; /* the sums of columns, where these are fewer */
	uint64_t sum[WARPS]; /* of all scales, of each warp */
};

/* --- Means --------------------------------------------------------------------------------------- */

/* The sums of rows, a warp a row; returns, in all lanes, that of those of the warp. */
template <int W>
static __device__ uint64_t sum_rows(const struct scale_lines *l, const void *scales, uint32_t *sums)
{
	const uint32_t lane = threadIdx.x % 32;
	uint64_t all = 0;

	for (uint32_t row = threadIdx.x / 32; row < l->nrows; row += WARPS) {
		const uint32_t begin = row ? row * l->ncolumns - l->before : 0;
		const uint32_t end = min(l->n, (row + 1) * l->ncolumns - l->before);
		uint32_t sum = 0;

		for (uint32_t i = begin + lane; i < end; i += 32)
			sum += tsr_rans_line_level(scale_at<W>(scales, i), W);
		sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
		if (lane == 0)
			sums[row] = sum;
		all += sum;
	}
	return all;
}

/* The sum of a column in rows @row, @row + @step and so on. */
template <int W>
static __device__ uint32_t sum_column(const struct scale_lines *l, const void *scales,
				      uint32_t column, uint32_t row, uint32_t step)
{
	uint32_t sum = 0;

	for (; row < l->nrows; row += step) {
		const uint32_t i = row * l->ncolumns + column -
				   l->before; /* may be before the piece */

		if (i < l->n)
			sum += tsr_rans_line_level(scale_at<W>(scales, i), W);
	}
	return sum;
}

/* The sums of columns: threads have their own, or share them if there are fewer. */
template <int W>
static __device__ void sum_columns(const struct scale_lines *l, const void *scales,
				   struct scales_coding *c, uint32_t *sums)
{
	const uint32_t columns = l->ncolumns, share = TSR_BLOCK / columns;

	if (share <= 1) {
		for (uint32_t i = threadIdx.x; i < columns; i += TSR_BLOCK)
			sums[i] = sum_column<W>(l, scales, i, 0, 1);
		return;
	}
	c->column[threadIdx.x] = 0;
	__syncthreads();
	if (threadIdx.x < share * columns)
		atomicAdd(&c->column[threadIdx.x % columns],
			  sum_column<W>(l, scales, threadIdx.x % columns, threadIdx.x / columns,
					share));
	__syncthreads();
	if (threadIdx.x < columns)
		sums[threadIdx.x] = c->column[threadIdx.x];
}

static __device__ __forceinline__ int8_t deviation_of(uint32_t sum, uint32_t n, int32_t all)
{
	return (int8_t)tsr_rans_line_deviation((int32_t)(sum / n), all);
}

/* Find the means, have them stored in @stored, and returns their bytes there. */
template <int W>
static __device__ uint32_t find_means(const struct tsr_entropy_grid *g, struct scale_lines *l,
				      const void *scales, struct scales_coding *c, uint32_t *sums,
				      uint32_t *stored)
{
	const struct tsr_entropy_beside b = tsr_lines_of(g);
	const uint32_t nbytes = tsr_contexts_means_nbytes(l->nrows, l->ncolumns);
	int8_t *const lines = (int8_t *)(stored + 1);
	const uint64_t sum = sum_rows<W>(l, scales, sums);
	uint64_t all = 0;

	sum_columns<W>(l, scales, c, sums + l->nrows);
	if (threadIdx.x % 32 == 0)
		c->sum[threadIdx.x / 32] = sum;
	__syncthreads();
	for (unsigned i = 0; i < WARPS; i++)
		all += c->sum[i];
	l->all = (int32_t)(all / l->n);
	l->rows = lines;
	l->columns = lines + l->nrows;
	for (uint32_t i = threadIdx.x; i < l->nrows; i += TSR_BLOCK)
		lines[i] = deviation_of(sums[i], tsr_contexts_row_size(&b, l->n, l->nrows, i),
					l->all);
	for (uint32_t i = threadIdx.x; i < l->ncolumns; i += TSR_BLOCK)
		lines[l->nrows + i] = deviation_of(sums[l->nrows + i],
						   tsr_contexts_column_size(&b, l->n, l->nrows, i),
						   l->all);
	if (threadIdx.x == 0)
		stored[0] = (uint32_t)l->all;
	if (threadIdx.x < nbytes - (4 + l->nrows + l->ncolumns))
		lines[l->nrows + l->ncolumns + threadIdx.x] = 0;
	__syncthreads();
	return nbytes;
}

/* --- Pieces -------------------------------------------------------------------------------------- */

/* The piece by its lines, at the end of @staging; returns its bytes. */
template <int W>
static __device__ uint32_t put_lines(const struct tsr_gpu_scales *p, struct scales_coding *c,
				     unsigned char *staging)
{
	struct scale_lines l = scale_lines_of(&p->grid, p->n);
	uint32_t *const to = (uint32_t *)(staging + LINES_AT);
	unsigned char *const rests = staging + RESTS_AT;
	uint32_t nbytes = find_means<W>(&p->grid, &l, p->scales, c, (uint32_t *)(staging + SUMS_AT),
					to + LINES_HEAD / 4);

	subtract_lines<W>(&l, 1, p->scales, rests);
	nbytes += put_piece<W>(rests, p->n, false, &c->one, staging,
			       to + (LINES_HEAD + nbytes) / 4);
	if (threadIdx.x == 0)
		to[0] = nbytes << 8 | TSR_ENTROPY_LINES;
	__syncthreads();
	return LINES_HEAD + nbytes;
}

template <int W>
static __device__ void encode_scales(struct tsr_gpu_scales *p, struct scales_coding *c,
				     unsigned char *staging)
{
	const uint32_t *const lines = (const uint32_t *)(staging + LINES_AT);
	uint32_t *const to = (uint32_t *)p->coded;
	const bool possible = tsr_lines_are_possible(&p->grid, p->n);
	const uint32_t lines_nbytes = possible ? put_lines<W>(p, c, staging) : UINT32_MAX;
	uint32_t nbytes = put_piece<W>((const unsigned char *)p->scales, p->n, false, &c->one,
				       staging, to);

	if (lines_nbytes < nbytes) {
		nbytes = lines_nbytes;
		for (uint32_t i = threadIdx.x; i < nbytes / 4; i += TSR_BLOCK)
			to[i] = lines[i];
	}
	if (threadIdx.x == 0)
		p->nbytes = nbytes;
	__syncthreads();
}

template <int W>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_pieces_of_scales(struct tsr_gpu_scales *pieces, unsigned npieces,
				unsigned char *staging)
{
	__shared__ struct scales_coding c;

	for (unsigned p = blockIdx.x; p < npieces; p += gridDim.x)
		encode_scales<W>(&pieces[p], &c, staging + (uint64_t)blockIdx.x * BLOCK_STAGED);
}

extern "C" enum tsr_status tsr_gpu_encode_scales(struct tsr_gpu_stream *stream, unsigned width,
						 struct tsr_gpu_scales *pieces, unsigned npieces,
						 struct tsr_err *err)
{
	const unsigned index = stream->gpu->index, most = BLOCKS * stream->gpu->nprocessors;
	const unsigned nblocks = npieces < most ? npieces : most;
	void *staging;

	if (!npieces)
		return TSR_OK;
	TSR_CUDA_TRY(index, err, cudaSetDevice((int)index), "cannot be used");
	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH - 1, (uint64_t)nblocks * BLOCK_STAGED,
				&staging, err));
	if (width == 2)
		encode_pieces_of_scales<2><<<nblocks, TSR_BLOCK, 0, stream->handle>>>(
			pieces, npieces, (unsigned char *)staging);
	else
		encode_pieces_of_scales<4><<<nblocks, TSR_BLOCK, 0, stream->handle>>>(
			pieces, npieces, (unsigned char *)staging);
	TSR_CUDA_TRY(index, err, cudaGetLastError(), "cannot start coding");
	return TSR_OK;
}
