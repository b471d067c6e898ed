/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a step on a state and the same step in FP32 are apart.  Sums in binary64 depend
 * on their order, so the kernels keep that of the CPU: one thread adds what belongs to a lane of a run, and
 * another kernel adds runs one after the other.  Counts and maxima are the same in any order.
 */
#include <stddef.h>

#include "codec/sweep_math.h"
#include "gpu/step/gpu_step.cuh"

/* --- What is measured -------------------------------------------------------------------------- */

/* The measures of struct tsr_compare, in its order. */
enum { OF_STATE = 0, OF_QUANT = TSR_SLOTS, OF_UPDATE = 2 * TSR_SLOTS, OF_UPDATE_QUANT, NMEASURES };

static_assert(offsetof(struct tsr_compare, norm) == NMEASURES * sizeof(struct tsr_measure),
	      "struct tsr_compare begins with its measures");

/* How far y is from x, which are arrays or the differences of two; x NULL: not measured. */
struct pair {
	const float *x, *x_less, *y, *y_less;
};

struct compare_args {
	struct pair pair[NMEASURES + 1]; /* the last: of the update, for its norm */
	uint64_t n, run;
	double *lanes; /* SUMS of each lane of each run of each measure; the last is of the norm */
	struct tsr_compare *sums;
};

enum { REL, XX, DD, XD, SUMS };

/* --- Elements ---------------------------------------------------------------------------------- */

/*
 * A block of threads has a run.  Its first warp adds, a thread for each sum of each lane, in order; the
 * others compute what it adds, a stretch of elements ahead of it.
 */
#define STRETCH 1792u /* elements: a multiple of the threads that compute, and of the lanes */
#define ADDERS (TSR_MEASURE_LANES * SUMS)
#define COMPUTERS (TSR_BLOCK - ADDERS)

static_assert(ADDERS == 32, "one warp adds");
static_assert(STRETCH % COMPUTERS == 0 && STRETCH % TSR_MEASURE_LANES == 0, "whole rounds");

/* What is added: of each element |x - y| / |x|, x and x - y.  The gaps put them into other banks. */
struct stretch {
	float rel[STRETCH + TSR_MEASURE_LANES], x[STRETCH + TSR_MEASURE_LANES], d[STRETCH];
};

/* The counts of struct tsr_measure behind `n`, in its order. */
enum { EXACT, NONFINITE, NEGATIVE, OVERFLOWN, FLUSHED, SIGN_LOST, ZEROS, NCOUNTS };

static_assert(offsetof(struct tsr_measure, max_ulp) ==
		      offsetof(struct tsr_measure, exact) + NCOUNTS * sizeof(uint64_t),
	      "counts are next to each other");

struct counts {
	unsigned count[NCOUNTS];
	unsigned stalled; /* weights that should have moved and did not */
	uint32_t max_ulp, max_abs;
};

/* As the loops of src/codec/simd/measure_simd.c. */
static __device__ __forceinline__ void compute(struct stretch *s, unsigned i, struct counts *c,
					       float x, float y)
{
	const uint32_t x_bits = tsr_bits_from_f32(x), y_bits = tsr_bits_from_f32(y);
	const float d = x - y;
	const uint32_t ulp = tsr_sweep_ulp(x_bits, y_bits);
	const uint32_t d_mag = tsr_bits_from_f32(d) & TSR_F32_MAG;
	const bool finite = !is_nonfinite(x), zero = (x_bits & TSR_F32_MAG) == 0;
	const float relative = tsr_f32_from_bits(d_mag) / tsr_f32_from_bits(x_bits & TSR_F32_MAG);

	s->rel[i] = zero ? 0.0f : relative;
	s->x[i] = x;
	s->d[i] = d;
	c->count[EXACT] += x_bits == y_bits;
	c->count[NONFINITE] += !finite;
	c->count[OVERFLOWN] += finite && is_nonfinite(y);
	c->count[NEGATIVE] += x_bits >> 31 && !zero;
	c->count[FLUSHED] += !zero && (y_bits & TSR_F32_MAG) == 0;
	c->count[SIGN_LOST] += x_bits == TSR_F32_SIGN && y_bits == 0;
	c->count[ZEROS] += zero;
	c->max_ulp = ulp > c->max_ulp ? ulp : c->max_ulp;
	c->max_abs = d_mag > c->max_abs ? d_mag : c->max_abs;
}

/* The terms of a stretch from @first on, by the threads that compute; behind @end they are zeros. */
static __device__ void compute_stretch(const struct pair *p, uint64_t first, uint64_t end,
				       struct stretch *s, struct counts *c)
{
#pragma unroll
	for (unsigned round = 0; round < STRETCH / COMPUTERS; round++) {
		const unsigned i = round * COMPUTERS + threadIdx.x - ADDERS;
		const uint64_t at = first + i;
		float x, y;

		if (at >= end) {
			s->rel[i] = s->x[i] = s->d[i] = 0.0f;
			continue;
		}
		x = p->x[at];
		y = p->y[at];
		if (p->x_less) {
			c->stalled += x != p->x_less[at] && y == p->y_less[at];
			x -= p->x_less[at];
			y -= p->y_less[at];
		}
		compute(s, i, c, x, y);
	}
}

/*
 * Add a stretch to the sum of this thread: a product of two terms for each element of the lane.  Products
 * of floats are exact in binary64: fused or not, the sum is rounded once.
 */
static __device__ double add_stretch(const float *a, const float *b, double sum)
{
#pragma unroll 8
	for (unsigned i = threadIdx.x / SUMS; i < STRETCH; i += TSR_MEASURE_LANES)
		sum += b ? (double)a[i] * (double)b[i] : (double)a[i];
	return sum;
}

/* --- Runs of one measure ----------------------------------------------------------------------- */

static __device__ void put_counts(struct tsr_measure *m, const struct counts *c, uint64_t n)
{
	if (threadIdx.x == 0)
		atomicAdd((unsigned long long *)&m->n, (unsigned long long)n);
	for (unsigned i = 0; i < NCOUNTS; i++)
		tsr_add_count(&m->exact + i, c->count[i]);
	atomicMax((unsigned *)&m->max_ulp, c->max_ulp);
	atomicMax((unsigned *)&m->max_abs, c->max_abs);
}

/* blockIdx.x is the run, blockIdx.y the measure.  Reads 8 or 16 bytes per element. */
static __global__ void __launch_bounds__(TSR_BLOCK) measure(const __grid_constant__ compare_args a)
{
	__shared__ struct stretch stretches[2];
	const struct pair *p = &a.pair[blockIdx.y];
	const uint64_t first = blockIdx.x * a.run;
	const uint64_t end = first + a.run < a.n ? first + a.run : a.n;
	const bool adds = threadIdx.x < ADDERS;
	const unsigned which = threadIdx.x % SUMS;
	struct counts c = {};
	unsigned turn = 0;
	double sum = 0;

	if (!p->x)
		return;
	if (!adds)
		compute_stretch(p, first, end, &stretches[0], &c);
	__syncthreads();
	for (uint64_t at = first; at < end; at += STRETCH, turn ^= 1) {
		const struct stretch *s = &stretches[turn];

		if (adds)
			sum = add_stretch(which == REL	? s->rel
					  : which == DD ? s->d
							: s->x,
					  which == REL	? NULL
					  : which == XX ? s->x
							: s->d,
					  sum);
		else if (at + STRETCH < end)
			compute_stretch(p, at + STRETCH, end, &stretches[turn ^ 1], &c);
		__syncthreads();
	}
	if (adds)
		a.lanes[((uint64_t)blockIdx.y * gridDim.x + blockIdx.x) * ADDERS + threadIdx.x] =
			sum;
	if (blockIdx.y < NMEASURES)
		put_counts((struct tsr_measure *)a.sums + blockIdx.y, &c, end - first);
	if (blockIdx.y == OF_UPDATE_QUANT)
		tsr_add_count(&a.sums->stalled, c.stalled);
}

/* --- Runs -------------------------------------------------------------------------------------- */

/* A thread has one sum of one lane; a block has a measure, the last one the norm. */
static __global__ void add_runs(const __grid_constant__ compare_args a, uint64_t nruns)
{
	const unsigned lane = threadIdx.x / SUMS, sum = threadIdx.x % SUMS;
	const double *from = a.lanes + blockIdx.x * nruns * ADDERS + threadIdx.x;
	struct tsr_measure *m = (struct tsr_measure *)a.sums + blockIdx.x;
	double *to;

	if (blockIdx.x == NMEASURES)
		to = sum == XX ? &a.sums->norm[lane] : NULL;
	else if (!a.pair[blockIdx.x].x)
		to = NULL;
	else
		to = sum == REL	 ? &m->sum_rel[lane]
		     : sum == XX ? &m->sum_xx[lane]
		     : sum == DD ? &m->sum_dd[lane]
				 : &m->sum_xd[lane];
	if (!to)
		return;
	double total = *to;

#pragma unroll 8
	for (uint64_t run = 0; run < nruns; run++)
		total += from[run * ADDERS];
	*to = total;
}

/* --- Launches ---------------------------------------------------------------------------------- */

extern "C" enum tsr_status tsr_gpu_measure(struct tsr_gpu_stream *stream,
					   const struct tsr_compare_run *x, uint64_t run,
					   struct tsr_compare *sums, struct tsr_err *err)
{
	const uint64_t nruns = (x->n + run - 1) / run;
	const dim3 blocks((unsigned)nruns, NMEASURES + 1);
	struct compare_args a = {};
	void *lanes;

	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH_STAGING,
				(NMEASURES + 1) * nruns * ADDERS * sizeof(double), &lanes, err));
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		if (!x->before[slot])
			continue;
		a.pair[OF_STATE + slot] = { x->fp32_after[slot], NULL, x->after[slot], NULL };
		a.pair[OF_QUANT + slot] = { x->stepped[slot], NULL, x->after[slot], NULL };
	}
	a.pair[OF_UPDATE] = { x->fp32_after[0], x->fp32_before, x->stepped[0], x->before[0] };
	a.pair[OF_UPDATE_QUANT] = { x->stepped[0], x->before[0], x->after[0], x->before[0] };
	a.pair[NMEASURES] = { x->after[0], x->before[0], x->after[0], x->before[0] };
	a.n = x->n;
	a.run = run;
	a.lanes = (double *)lanes;
	a.sums = sums;
	measure<<<blocks, TSR_BLOCK, 0, stream->handle>>>(a);
	add_runs<<<NMEASURES + 1, ADDERS, 0, stream->handle>>>(a, nruns);
	return tsr_gpu_started(stream->gpu, "a comparison", "", err);
}
