/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step on a state and the same step in FP32, and how far the two are apart.  Sums in binary64 depend
 * on their order, so the kernels keep that of the CPU: a thread adds what belongs to one lane of a run,
 * and another kernel adds runs one after the other.  Counts and maxima are the same in any order.
 */
#include <stddef.h>

#include "codec/sweep_math.h"
#include "gpu/step/gpu_step.cuh"

/* Elements that pass through FP32 arrays at a time, where runs allow. */
#define BATCH (UINT64_C(1) << 22)

/* --- What is measured -------------------------------------------------------------------------- */

/* The measures of struct tsr_compare, in its order. */
enum { OF_STATE = 0, OF_QUANT = TSR_PARTS, OF_UPDATE = 2 * TSR_PARTS, OF_UPDATE_QUANT, NMEASURES };

static_assert(offsetof(struct tsr_compare, norm) == NMEASURES * sizeof(struct tsr_measure),
	      "struct tsr_compare begins with its measures");

/* How far y is from x, which are arrays or the differences of two; x NULL: not measured. */
struct pair {
	const float *x, *x_less, *y, *y_less;
};

/* Weights before a step, after it, and as they are stored, for what is known of them alone. */
struct weights {
	const float *before, *stepped, *after;
};

struct compare_args {
	struct pair pair[NMEASURES];
	struct weights weights;
	uint64_t n, run;
	double *lanes; /* SUMS of each lane of each run of each measure, and of the norm */
	struct tsr_compare *sums;
};

enum { REL, XX, DD, XD, SUMS };

/* --- Lanes ------------------------------------------------------------------------------------- */

/* The elements of a lane of a run. */
struct lane {
	uint64_t first, end;
	double *sums;
};

static __device__ __forceinline__ struct lane find_lane(const struct compare_args *a)
{
	const uint64_t thread = tsr_first_vector(1), nruns = (a->n + a->run - 1) / a->run;
	const uint64_t run = thread / TSR_MEASURE_LANES, end = (run + 1) * a->run;
	const uint64_t lane = thread % TSR_MEASURE_LANES;

	if (run >= nruns)
		return { 0, 0, NULL };
	return { run * a->run + lane, end < a->n ? end : a->n,
		 a->lanes + ((blockIdx.y * nruns + run) * TSR_MEASURE_LANES + lane) * SUMS };
}

struct counts {
	double sum[SUMS];
	unsigned n, exact, nonfinite, negative, overflow, flushed, sign_lost, zeros;
	uint32_t max_ulp, max_abs;
};

/* As the loops of src/codec/simd/measure_simd.c. */
static __device__ __forceinline__ void add_one(struct counts *c, float x, float y)
{
	const uint32_t x_bits = tsr_bits_from_f32(x), y_bits = tsr_bits_from_f32(y);
	const float d = x - y;
	const uint32_t ulp = tsr_sweep_ulp(x_bits, y_bits);
	const uint32_t d_mag = tsr_bits_from_f32(d) & TSR_F32_MAG;
	const bool finite = !is_nonfinite(x), zero = (x_bits & TSR_F32_MAG) == 0;
	const float relative = tsr_f32_from_bits(d_mag) / tsr_f32_from_bits(x_bits & TSR_F32_MAG);

	/* Squares and products of floats are exact in binary64: fused or not, sums are the same. */
	c->sum[REL] += zero ? 0.0 : (double)relative;
	c->sum[XX] += (double)x * (double)x;
	c->sum[DD] += (double)d * (double)d;
	c->sum[XD] += (double)x * (double)d;
	c->n++;
	c->exact += x_bits == y_bits;
	c->nonfinite += !finite;
	c->overflow += finite && is_nonfinite(y);
	c->negative += x_bits >> 31 && !zero;
	c->flushed += !zero && (y_bits & TSR_F32_MAG) == 0;
	c->sign_lost += x_bits == TSR_F32_SIGN && y_bits == 0;
	c->zeros += zero;
	c->max_ulp = ulp > c->max_ulp ? ulp : c->max_ulp;
	c->max_abs = d_mag > c->max_abs ? d_mag : c->max_abs;
}

/* Elements whose loads are in flight together: sums wait for each other, not for memory. */
#define AHEAD 8

template <bool LESS>
static __device__ __forceinline__ void load(const float *x, const float *less, uint64_t first,
					    unsigned n, float *ret)
{
#pragma unroll
	for (unsigned k = 0; k < AHEAD; k++) {
		const uint64_t i = first + k * TSR_MEASURE_LANES;

		ret[k] = k < n ? x[i] : 0.0f;
		if (LESS && k < n)
			ret[k] -= less[i];
	}
}

template <bool LESS>
static __device__ __forceinline__ void add_pair(struct counts *c, const struct pair *p,
						const struct lane *lane)
{
	const uint64_t step = AHEAD * TSR_MEASURE_LANES;
	float x[AHEAD], y[AHEAD];
	uint64_t i = lane->first;

	for (; i + step - TSR_MEASURE_LANES < lane->end; i += step) {
		load<LESS>(p->x, p->x_less, i, AHEAD, x);
		load<LESS>(p->y, p->y_less, i, AHEAD, y);
#pragma unroll
		for (unsigned k = 0; k < AHEAD; k++)
			add_one(c, x[k], y[k]);
	}
	for (; i < lane->end; i += TSR_MEASURE_LANES) {
		load<LESS>(p->x, p->x_less, i, 1, x);
		load<LESS>(p->y, p->y_less, i, 1, y);
		add_one(c, x[0], y[0]);
	}
}

/* A thread has a lane of a run; blockIdx.y is the measure.  Reads 8 or 16 bytes per element. */
static __global__ void __launch_bounds__(TSR_BLOCK) measure(const __grid_constant__ compare_args a)
{
	const struct pair *p = &a.pair[blockIdx.y];
	struct tsr_measure *m = (struct tsr_measure *)a.sums + blockIdx.y;
	const struct lane lane = find_lane(&a);
	struct counts c = {};

	if (!p->x)
		return;
	if (p->x_less)
		add_pair<true>(&c, p, &lane);
	else
		add_pair<false>(&c, p, &lane);
	for (unsigned i = 0; i < SUMS && lane.sums; i++)
		lane.sums[i] = c.sum[i];
	tsr_add_count(&m->n, c.n);
	tsr_add_count(&m->exact, c.exact);
	tsr_add_count(&m->nonfinite, c.nonfinite);
	tsr_add_count(&m->negative, c.negative);
	tsr_add_count(&m->overflow, c.overflow);
	tsr_add_count(&m->flushed, c.flushed);
	tsr_add_count(&m->sign_lost, c.sign_lost);
	tsr_add_count(&m->zeros, c.zeros);
	atomicMax((unsigned *)&m->max_ulp, c.max_ulp);
	atomicMax((unsigned *)&m->max_abs, c.max_abs);
}

/* The same for what is known of the weights alone: the norm of the update, and what stalled. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	measure_weights(const __grid_constant__ compare_args a)
{
	const struct weights *w = &a.weights;
	struct lane lane = find_lane(&a);
	unsigned stalled = 0;
	double norm = 0;

	for (uint64_t i = lane.first; i < lane.end; i += TSR_MEASURE_LANES) {
		const float before = w->before[i], after = w->after[i], stored = after - before;

		norm += (double)stored * (double)stored;
		stalled += w->stepped[i] != before && after == before;
	}
	if (lane.sums)
		lane.sums[NMEASURES * ((a.n + a.run - 1) / a.run) * TSR_MEASURE_LANES * SUMS] =
			norm;
	tsr_add_count(&a.sums->stalled, stalled);
}

/* --- Runs -------------------------------------------------------------------------------------- */

/* A thread has one sum of one lane; a block has a measure, the last one the norm. */
static __global__ void add_runs(const __grid_constant__ compare_args a)
{
	const uint64_t nruns = (a.n + a.run - 1) / a.run;
	const unsigned lane = threadIdx.x / SUMS, sum = threadIdx.x % SUMS;
	const double *from = a.lanes + blockIdx.x * nruns * TSR_MEASURE_LANES * SUMS + threadIdx.x;
	struct tsr_measure *m = (struct tsr_measure *)a.sums + blockIdx.x;
	double *to;

	if (blockIdx.x == NMEASURES)
		to = sum ? NULL : &a.sums->norm[lane];
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
		total += from[run * TSR_MEASURE_LANES * SUMS];
	*to = total;
}

/* --- Batches ----------------------------------------------------------------------------------- */

/* The arrays of a batch; NULL where the rule keeps no such part. */
struct arrays {
	float *before[TSR_PARTS], *stepped[TSR_PARTS], *after[TSR_PARTS];
	float *fp32_before, *fp32_after[TSR_PARTS];
};

struct batch {
	struct tsr_gpu_stream *stream;
	struct tsr_step step; /* with planes and codings of the batch */
	const void *grad;
	uint64_t n, run;
	struct arrays x;
	double *lanes;
	struct tsr_compare *sums;
	struct tsr_step_report *report;
};

static enum tsr_status copy(const struct batch *b, float *to, const float *from,
			    struct tsr_err *err)
{
	return tsr_gpu_copy(b->stream, to, from, b->n * sizeof(float), err);
}

/* Decode all parts; momenta that are ratios become momenta by the variance that comes back. */
static enum tsr_status decode_all(const struct batch *b, float *const x[], struct tsr_err *err)
{
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &b->step.coding[part];

		if (coding->codec)
			TSR_TRY(tsr_gpu_decode(b->stream, coding,
					       (const void *const *)b->step.plane[part], b->n,
					       x[part], err));
	}
	return tsr_gpu_turn_ratios(b->stream, &b->step.coding[TSR_PART_MOMENTUM],
				   x[TSR_PART_MOMENTUM], x[TSR_PART_VARIANCE], b->n, false, err);
}

/* The momentum in ratios is encoded from its own array, of all others what was stepped. */
static enum tsr_status encode_all(const struct batch *b, struct tsr_err *err)
{
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &b->step.coding[part];
		float *x = b->x.stepped[part];

		if (!coding->codec)
			continue;
		if (coding->codec->relative) {
			TSR_TRY(copy(b, b->x.after[part], x, err));
			x = b->x.after[part];
			TSR_TRY(tsr_gpu_turn_ratios(b->stream, coding, x,
						    b->x.stepped[TSR_PART_VARIANCE], b->n, true,
						    err));
		}
		TSR_TRY(tsr_gpu_encode(b->stream, coding, x, b->n, b->step.plane[part],
				       &b->report->encode[part], err));
	}
	return TSR_OK;
}

static enum tsr_status step_f32(const struct batch *b, float *const x[],
				struct tsr_step_report *report, struct tsr_err *err)
{
	struct tsr_step step = b->step;

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!step.coding[part].codec)
			continue;
		step.coding[part] = tsr_coding_default(tsr_codec_find("f32"));
		step.plane[part][0] = x[part];
	}
	return tsr_gpu_step(b->stream, &step, b->grad, b->n, report, err);
}

static enum tsr_status encode_and_decode(const struct batch *b, unsigned part, struct tsr_err *err)
{
	const struct tsr_coding *coding = &b->step.coding[part];

	if (!coding->codec)
		return TSR_OK;
	TSR_TRY(tsr_gpu_encode(b->stream, coding, b->x.stepped[part], b->n, b->step.plane[part],
			       &b->report->encode[part], err));
	return tsr_gpu_decode(b->stream, coding, (const void *const *)b->step.plane[part], b->n,
			      b->x.after[part], err);
}

/* Weights move by the momentum that has been stored. */
static enum tsr_status step_in_two(const struct batch *b, struct tsr_err *err)
{
	float *const *x = b->x.stepped;

	TSR_TRY(tsr_gpu_block_moments(b->stream, &b->step, b->grad, b->n, x[TSR_PART_MOMENTUM],
				      x[TSR_PART_VARIANCE], b->report, err));
	TSR_TRY(encode_and_decode(b, TSR_PART_VARIANCE, err));
	TSR_TRY(encode_and_decode(b, TSR_PART_MOMENTUM, err));
	TSR_TRY(tsr_gpu_step_weights(b->stream, &b->step, b->x.after[TSR_PART_MOMENTUM],
				     x[TSR_PART_VARIANCE], b->n, x[TSR_PART_WEIGHT], err));
	return encode_and_decode(b, TSR_PART_WEIGHT, err);
}

static enum tsr_status step_both(const struct batch *b, struct tsr_err *err)
{
	const struct arrays *x = &b->x;

	TSR_TRY(decode_all(b, x->before, err));
	if (!b->grad)
		return TSR_OK;
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (x->before[part])
			TSR_TRY(copy(b, x->stepped[part], x->before[part], err));
	}
	if (tsr_step_stores_first(&b->step)) {
		TSR_TRY(step_in_two(b, err));
	} else {
		TSR_TRY(step_f32(b, x->stepped, b->report, err));
		TSR_TRY(encode_all(b, err));
		TSR_TRY(decode_all(b, x->after, err));
	}
	TSR_TRY(copy(b, x->fp32_before, x->fp32_after[TSR_PART_WEIGHT], err));
	return step_f32(b, x->fp32_after, NULL, err);
}

/* Without a gradient nothing moves. */
static void stand(struct arrays *x)
{
	for (unsigned part = 0; part < TSR_PARTS; part++)
		x->stepped[part] = x->after[part] = x->before[part];
}

static enum tsr_status measure_batch(const struct batch *b, struct tsr_err *err)
{
	const struct arrays *x = &b->x;
	const unsigned index = b->stream->gpu->index;
	const uint64_t threads = (b->n + b->run - 1) / b->run * TSR_MEASURE_LANES;
	const dim3 blocks(tsr_blocks(threads, 1), NMEASURES);
	struct compare_args a = {};

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!x->before[part])
			continue;
		a.pair[OF_STATE + part] = { x->fp32_after[part], NULL, x->after[part], NULL };
		a.pair[OF_QUANT + part] = { x->stepped[part], NULL, x->after[part], NULL };
	}
	a.pair[OF_UPDATE] = { x->fp32_after[0], x->fp32_before, x->stepped[0], x->before[0] };
	a.pair[OF_UPDATE_QUANT] = { x->stepped[0], x->before[0], x->after[0], x->before[0] };
	a.weights = { x->before[0], x->stepped[0], x->after[0] };
	a.n = b->n;
	a.run = b->run;
	a.lanes = b->lanes;
	a.sums = b->sums;
	TSR_CUDA_TRY(index, err, cudaSetDevice((int)index), "cannot be used");
	measure<<<blocks, TSR_BLOCK, 0, b->stream->handle>>>(a);
	measure_weights<<<blocks.x, TSR_BLOCK, 0, b->stream->handle>>>(a);
	add_runs<<<NMEASURES + 1, TSR_MEASURE_LANES * SUMS, 0, b->stream->handle>>>(a);
	TSR_CUDA_TRY(index, err, cudaGetLastError(), "cannot start a comparison");
	return TSR_OK;
}

/* Elements of a batch: whole runs. */
static uint64_t batch_size(uint64_t run, uint64_t n)
{
	const uint64_t size = run < BATCH ? BATCH - BATCH % run : run;

	return size < n ? size : n;
}

/* Place the arrays in the stream's memory. */
static enum tsr_status place(struct batch *b, uint64_t size, struct tsr_err *err)
{
	const uint64_t room = (size + 63) / 64 * 64, nruns = (size + b->run - 1) / b->run;
	const uint64_t lanes = (NMEASURES + 1) * nruns * TSR_MEASURE_LANES * SUMS;
	void *memory;
	float *x;

	TSR_TRY(tsr_gpu_scratch(b->stream, TSR_GPU_SCRATCH - 1,
				lanes * sizeof(double) + TSR_COMPARE_ARRAYS * room * sizeof(float),
				&memory, err));
	b->lanes = (double *)memory;
	x = (float *)(b->lanes + lanes);
	b->x.fp32_before = x;
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!b->step.coding[part].codec)
			continue;
		b->x.before[part] = x + (3 * part + 1) * room;
		b->x.stepped[part] = x + (3 * part + 2) * room;
		b->x.after[part] = x + (3 * part + 3) * room;
	}
	if (!b->grad)
		stand(&b->x);
	return TSR_OK;
}

/* The step on the batch that begins with element @first of those of @all. */
static void move_to(struct batch *b, const struct tsr_step *all, uint64_t first,
		    float *const fp32[], const void *grad)
{
	b->step = *all;
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &all->coding[part];

		if (!coding->codec)
			continue;
		for (unsigned i = 0; i < coding->codec->nplanes; i++)
			b->step.plane[part][i] = (char *)all->plane[part][i] +
						 tsr_plane_nbytes(coding, i, first);
		b->step.coding[part].first += first;
		b->x.fp32_after[part] = fp32[part] + first;
	}
	if (grad)
		b->grad = (const char *)grad + first * (tsr_dtype_bits(all->grad_dtype) / 8);
	else
		b->x.fp32_before = b->x.fp32_after[TSR_PART_WEIGHT];
}

extern "C" enum tsr_status tsr_gpu_step_compare(struct tsr_gpu_stream *stream,
						const struct tsr_step *step, float *const fp32[],
						const void *grad, uint64_t n, uint64_t run,
						struct tsr_compare *sums,
						struct tsr_step_report *report, struct tsr_err *err)
{
	const uint64_t size = batch_size(run, n);
	struct batch b = {};

	b.stream = stream;
	b.step = *step;
	b.grad = grad;
	b.run = run;
	b.sums = sums;
	b.report = report;
	TSR_TRY(place(&b, size, err));
	for (uint64_t first = 0; first < n; first += b.n) {
		b.n = n - first < size ? n - first : size;
		move_to(&b, step, first, fp32, grad);
		TSR_TRY(step_both(&b, err));
		TSR_TRY(measure_batch(&b, err));
	}
	return TSR_OK;
}
