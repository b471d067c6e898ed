/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon's update of a matrix: what src/step/simd/muon_simd.c does.  An element of a product of matrices is the
 * sum of its terms in ascending order by one thread, so that it has the bits of the CPU's.
 */
#include "gpu/step/gpu_step.cuh"

#define WARP 32u

/* --- The matrix that is made orthogonal -------------------------------------------------------- */

/* Element i of a matrix of @rows x @columns is element turned() of the transposed one. */
struct shape {
	uint64_t rows, columns;
	bool tall; /* more rows than columns: X is the transposed matrix */
};

static __device__ __forceinline__ uint64_t place_of(const struct shape &s, uint64_t i)
{
	return s.tall ? i % s.columns * s.rows + i / s.columns : i;
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	begin_matrix(const struct tsr_step_scalars s, const void *grad, enum tsr_dtype dtype,
		     const float *m, const struct shape shape, float *x)
{
	const uint64_t i = tsr_first_vector(1);

	if (i < shape.rows * shape.columns)
		x[place_of(shape, i)] = tsr_bf16_round(
			tsr_step_muon_update(&s, gradient_at(grad, dtype, i), m[i]));
}

/* A thread has a piece of tsr_step_sum_of_squares(). */
static __global__ void __launch_bounds__(TSR_BLOCK)
	add_pieces(const float *x, uint64_t n, double *pieces)
{
	const uint64_t i = tsr_first_vector(1), first = i * TSR_MEAN_PIECE;
	double piece = 0;

	if (first >= n)
		return;
	for (uint64_t k = first; k < n && k < first + TSR_MEAN_PIECE; k++)
		piece += tsr_step_square(x[k]);
	pieces[i] = piece;
}

/* One warp adds the pieces: each lane has one of the next 32, and all add them in their order. */
static __global__ void add_squares(const double *pieces, uint64_t npieces, float *norm)
{
	double sum = 0;

	for (uint64_t first = 0; first < npieces; first += WARP) {
		const uint64_t i = first + threadIdx.x;
		const double piece = i < npieces ? pieces[i] : 0;

#pragma unroll
		for (unsigned lane = 0; lane < WARP; lane++)
			sum += __shfl_sync(TSR_WHOLE_WARP, piece, (int)lane);
	}
	if (threadIdx.x == 0)
		*norm = tsr_bf16_round((float)sqrt(sum));
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	scale_matrix(float *x, uint64_t n, const float *norm, float eps)
{
	const uint64_t i = tsr_first_vector(1);

	if (i < n)
		x[i] = tsr_step_muon_scaled(x[i], *norm, eps);
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	move_matrix(const struct tsr_step_scalars s, const float *x, const struct shape shape,
		    float *w)
{
	const uint64_t i = tsr_first_vector(1);

	if (i < shape.rows * shape.columns)
		w[i] = tsr_one_nan(tsr_step_move(&s, x[place_of(shape, i)], w[i] * s.keep));
}

/* --- Products ---------------------------------------------------------------------------------- */

/* What becomes of a sum, an element of a product. */
enum product_kind {
	MAKES_A, /* X X^T */
	MAKES_B, /* of A A */
	MAKES_X, /* of B X */
};

/* All matrices are stored by rows.  The result is of @rows x @columns. */
struct product {
	const float *a, *b; /* of X X^T both are X */
	const float *like; /* the element that goes with a sum: of A or X */
	float *to;
	uint32_t rows, inner, columns;
};

#define SIDE 16u /* threads along each side of a tile of the result */
#define TERMS 16u /* terms of its sums that are in shared memory at a time */

static_assert(SIDE * SIDE == TSR_BLOCK, "a block has a tile");

/* The factors of a tile of EACH * SIDE rows and columns: term by term. */
template <unsigned EACH> struct factors {
	alignas(16) float a[TERMS][EACH * SIDE + 4], b[TERMS][EACH * SIDE + 4];
};

/* The terms of a thread's rows or columns; EACH is 4, or twice 4 that are half a tile apart. */
template <unsigned EACH>
static __device__ __forceinline__ void take(const float *row, unsigned thread, float *x)
{
#pragma unroll
	for (unsigned i = 0; i < EACH; i += 4)
		load_tile<float, 4>(row, (i * SIDE + thread * 4) / 4, &x[i]);
}

static __device__ __forceinline__ unsigned offset_of(unsigned thread, unsigned i)
{
	return i / 4 * 4 * SIDE + thread * 4 + i % 4;
}

/* Which row or column of a tile, and which of its terms, a thread fetches: side by side in memory. */
struct fetched {
	unsigned line, term;
};

template <unsigned EACH, bool ROWS>
static __device__ __forceinline__ struct fetched fetched_at(unsigned i)
{
	const unsigned width = EACH * SIDE, at = i * TSR_BLOCK + threadIdx.x;

	if (ROWS)
		return { i * SIDE + threadIdx.x / TERMS, threadIdx.x % TERMS };
	return { at % width, at / width };
}

/* EACH terms per thread of rows or columns of a matrix; zeros behind its ends. */
template <unsigned EACH, bool ROWS>
static __device__ __forceinline__ void fetch(const float *x, uint64_t first, uint32_t nlines,
					     uint32_t term, uint32_t nterms, float *got)
{
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		const struct fetched f = fetched_at<EACH, ROWS>(i);
		const uint64_t line = first + f.line, k = term + f.term;
		const uint64_t at = ROWS ? line * nterms + k : k * nlines + line;

		got[i] = line < nlines && k < nterms ? x[at] : 0.0f;
	}
}

template <unsigned EACH, bool ROWS>
static __device__ __forceinline__ void put(float (*to)[EACH * SIDE + 4], const float *got)
{
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		const struct fetched f = fetched_at<EACH, ROWS>(i);

		to[f.term][f.line] = got[i];
	}
}

/* Add the terms in shared memory to the sums of a thread. */
template <unsigned EACH>
static __device__ __forceinline__ void add_terms(const struct factors<EACH> *f,
						 float sum[EACH][EACH])
{
#pragma unroll
	for (unsigned k = 0; k < TERMS; k++) {
		alignas(16) float a[EACH], b[EACH];

		take<EACH>(f->a[k], threadIdx.x / SIDE, a);
		take<EACH>(f->b[k], threadIdx.x % SIDE, b);
#pragma unroll
		for (unsigned i = 0; i < EACH; i++) {
#pragma unroll
			for (unsigned j = 0; j < EACH; j++)
				sum[i][j] = tsr_step_muon_add(a[i], b[j], sum[i][j]);
		}
	}
}

template <enum product_kind KIND>
static __device__ __forceinline__ float element_of(const struct product &p, uint64_t at, float sum)
{
	if (KIND == MAKES_A)
		return tsr_step_muon_round(sum);
	return KIND == MAKES_B ? tsr_step_muon_b(p.like[at], sum)
			       : tsr_step_muon_x(p.like[at], sum);
}

/* Store a sum; of a symmetric product the element on the other side of the diagonal as well. */
template <enum product_kind KIND>
static __device__ __forceinline__ void put_sum(const struct product &p, uint64_t row,
					       uint64_t column, float sum)
{
	const uint64_t at = row * p.columns + column;
	float x;

	if (row >= p.rows || column >= p.columns || (KIND != MAKES_X && row > column))
		return;
	x = element_of<KIND>(p, at, sum);
	p.to[at] = x;
	if (KIND != MAKES_X && row < column)
		p.to[column * p.columns + row] = x;
}

/*
 * A block has a tile of the result; the next terms are fetched while those in shared memory are added.  Of
 * the symmetric products A and A A the tiles below the diagonal are left out.
 */
template <enum product_kind KIND, unsigned EACH>
static __global__ void __launch_bounds__(TSR_BLOCK) multiply(const __grid_constant__ product p)
{
	__shared__ struct factors<EACH> factors[2];
	const uint64_t row = (uint64_t)blockIdx.y * EACH * SIDE;
	const uint64_t column = (uint64_t)blockIdx.x * EACH * SIDE;
	float sum[EACH][EACH] = {}, a[EACH], b[EACH];
	unsigned turn = 0;

	if (KIND != MAKES_X && row > column)
		return;
	for (uint32_t k = 0; k < p.inner + TERMS; k += TERMS, turn ^= 1) {
		if (k < p.inner) {
			fetch<EACH, true>(p.a, row, p.rows, k, p.inner, a);
			fetch<EACH, KIND == MAKES_A>(p.b, column, p.columns, k, p.inner, b);
		}
		if (k)
			add_terms<EACH>(&factors[turn ^ 1], sum);
		if (k < p.inner) {
			put<EACH, true>(factors[turn].a, a);
			put<EACH, KIND == MAKES_A>(factors[turn].b, b);
		}
		__syncthreads();
	}
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
#pragma unroll
		for (unsigned j = 0; j < EACH; j++)
			put_sum<KIND>(p, row + offset_of(threadIdx.x / SIDE, i),
				      column + offset_of(threadIdx.x % SIDE, j), sum[i][j]);
	}
}

static dim3 tiles_of(const struct product *p, uint32_t side)
{
	return dim3((p->columns + side - 1) / side, (p->rows + side - 1) / side);
}

/* Large tiles read less; small ones are more, for a matrix that would leave processors without one. */
template <enum product_kind KIND>
static void start(const struct tsr_gpu_stream *stream, const struct product &p)
{
	const dim3 large = tiles_of(&p, 8 * SIDE), small = tiles_of(&p, 4 * SIDE);

	if (large.x * large.y / (KIND == MAKES_X ? 1 : 2) >= stream->gpu->nprocessors)
		multiply<KIND, 8><<<large, TSR_BLOCK, 0, stream->handle>>>(p);
	else
		multiply<KIND, 4><<<small, TSR_BLOCK, 0, stream->handle>>>(p);
}

/* --- The step ---------------------------------------------------------------------------------- */

/* In the stream's memory: of a matrix that is no taller than wide. */
struct rounds {
	uint32_t rows, columns;
	float *x, *y; /* rows x columns */
	float *a, *b; /* rows x rows */
	double *pieces;
	float *norm;
};

static enum tsr_status place(struct tsr_gpu_stream *stream, const struct shape *s, struct rounds *r,
			     struct tsr_err *err)
{
	const uint64_t n = s->rows * s->columns;
	const uint64_t npieces = (n + TSR_MEAN_PIECE - 1) / TSR_MEAN_PIECE;
	void *memory;
	uint64_t square;

	r->rows = (uint32_t)(s->tall ? s->columns : s->rows);
	r->columns = (uint32_t)(s->tall ? s->rows : s->columns);
	square = (uint64_t)r->rows * r->rows;
	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH_MATRIX,
				npieces * sizeof(double) + (2 * n + 2 * square + 1) * sizeof(float),
				&memory, err));
	r->pieces = (double *)memory;
	r->x = (float *)(r->pieces + npieces);
	r->y = r->x + n;
	r->a = r->y + n;
	r->b = r->a + square;
	r->norm = r->b + square;
	return TSR_OK;
}

static void run_rounds(const struct tsr_gpu_stream *stream, struct rounds *r)
{
	for (unsigned i = 0; i < TSR_MUON_ROUNDS; i++) {
		float *const x = r->x;

		start<MAKES_A>(stream, { x, x, NULL, r->a, r->rows, r->columns, r->rows });
		start<MAKES_B>(stream, { r->a, r->a, r->a, r->b, r->rows, r->rows, r->rows });
		start<MAKES_X>(stream, { r->b, x, x, r->y, r->rows, r->rows, r->columns });
		r->x = r->y;
		r->y = x;
	}
}

enum tsr_status tsr_gpu_step_matrix(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    const void *grad, const float *m, float *w, struct tsr_err *err)
{
	const struct shape shape = { step->rows, step->columns, step->rows > step->columns };
	const uint64_t n = step->rows * step->columns;
	const uint64_t npieces = (n + TSR_MEAN_PIECE - 1) / TSR_MEAN_PIECE;
	const unsigned blocks = tsr_blocks(n, 1);
	struct rounds r;

	TSR_TRY(place(stream, &shape, &r, err));
	begin_matrix<<<blocks, TSR_BLOCK, 0, stream->handle>>>(step->scalars, grad,
							       step->grad_dtype, m, shape, r.x);
	add_pieces<<<tsr_blocks(npieces, 1), TSR_BLOCK, 0, stream->handle>>>(r.x, n, r.pieces);
	add_squares<<<1, WARP, 0, stream->handle>>>(r.pieces, npieces, r.norm);
	scale_matrix<<<blocks, TSR_BLOCK, 0, stream->handle>>>(r.x, n, r.norm, step->scalars.eps);
	run_rounds(stream, &r);
	move_matrix<<<blocks, TSR_BLOCK, 0, stream->handle>>>(step->scalars, r.x, shape, w);
	return step_started(stream, step, err);
}
