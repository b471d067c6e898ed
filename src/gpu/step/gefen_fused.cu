/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gefen's step in one pass: a team of threads has a block of gefen8 and blockmean.  It reads the block's
 * gradients and momenta once for the mean and the largest momentum, and, unless its threads can keep
 * them, which takes a fifth less time, once more for the step, from the cache.
 *
 * Sums in the order of the CPU would have a thread add 64 squares.  The team adds in its own order, with
 * a bound on the error: if the mean within that bound is rounded to one number, it is the right one.
 * Where it is not, and where numbers are not ordinary, which is rare, the whole warp takes the block by
 * the formulas of the CPU.
 */
#include "gpu/gpu_learned.cuh"
#include "gpu/step/gefen_cells.cuh"
#include "gpu/step/step_fast.cuh"

#define GEFEN_BLOCK 640u
#define TILE 16

struct gefen_args {
	struct step_args step;
	uint32_t size; /* of a block */
	unsigned log_team;
	uint64_t nblocks;
	double inverse_size, below, above; /* below and above 1, by the bound on errors */
	float inverse_correction; /* RN(1 / root_correction2) */
	float entry[GEFEN_ENTRIES];
};

/* A block, and a thread of the team that has it. */
struct gefen_team {
	uint64_t block, tile; /* tile: the first one of the block */
	uint32_t ntiles, thread, nthreads;
	bool inside;
};

static __device__ __forceinline__ struct gefen_team gefen_team_of(const struct gefen_args *a,
								  uint64_t first)
{
	struct gefen_team t;

	t.nthreads = 1u << a->log_team;
	t.thread = threadIdx.x & (t.nthreads - 1);
	t.block = first + (threadIdx.x % 32 >> a->log_team);
	t.inside = t.block < a->nblocks;
	t.ntiles = t.inside ? a->size / TILE : 0;
	t.tile = t.block * (a->size / TILE);
	return t;
}

/* --- Moments ----------------------------------------------------------------------------------- */

/* The new momenta of a tile, before they are stored, and their gradients. */
template <bool BF16>
static __device__ __forceinline__ void gefen_moments(const struct step_args *a,
						     const struct gefen_table *table, uint64_t tile,
						     float scale, float *g, float *m)
{
	struct tsr_step_scalars scalars = a->scalars;
	uint8_t code[TILE];

	scalars.from_grad = 0.0f;
	load_gradients<TILE>(a->grad, fast_grad_dtype<BF16>(a), tile, g);
	load_tile<uint8_t, TILE>(a->slot[TSR_SLOT_MOMENTUM].plane[0], tile, code);
#pragma unroll
	for (int k = 0; k < TILE; k++)
		m[k] = tsr_step_toward(&scalars, g[k], table->entry[code[k]] * scale);
}

/* What a team finds out about a block. */
struct gefen_found {
	double sum; /* of squares */
	float scale;
};

static __device__ __forceinline__ void gefen_add(const float *g, const float *m,
						 struct gefen_found *f)
{
#pragma unroll
	for (int k = 0; k < TILE; k++) {
		f->sum = fma((double)g[k], (double)g[k], f->sum);
		f->scale = tsr_max_or_nan(f->scale, fabsf(m[k]));
	}
}

static __device__ __forceinline__ void gefen_join(uint32_t nthreads, struct gefen_found *f)
{
	for (uint32_t distance = 1; distance < nthreads; distance *= 2) {
		f->sum += __shfl_xor_sync(TSR_WHOLE_WARP, f->sum, distance);
		f->scale = tsr_max_or_nan(f->scale,
					  __shfl_xor_sync(TSR_WHOLE_WARP, f->scale, distance));
	}
}

/* --- A block ----------------------------------------------------------------------------------- */

/* What its elements are stepped by. */
struct gefen_step {
	float scale, inverse, size;
	float variance;
};

static __device__ __forceinline__ bool is_zero_or_between(float x, float from, float to)
{
	return x == 0.0f || is_between(x, from, to);
}

/* Returns whether all of it is ordinary. */
static __device__ __forceinline__ bool gefen_prepare(const struct gefen_args *a,
						     const struct gefen_found *f, float variance,
						     struct gefen_step *to)
{
	const struct tsr_step_scalars *s = &a->step.scalars;
	const double mean = f->sum * a->inverse_size;
	const float least = (float)(mean * a->below), most = (float)(mean * a->above);
	float root;

	to->variance = tsr_step_gefen_variance(s, least, variance);
	root = to->variance > 0.0f ? tsr_root_ordinary(to->variance) : 0.0f;
	to->size = tsr_quotient_ordinary(
		s->unbias1,
		tsr_near_quotient(root, s->root_correction2, a->inverse_correction) + s->eps);
	to->scale = f->scale;
	to->inverse = f->scale > 0.0f
			      ? tsr_reciprocal_step(f->scale, tsr_reciprocal_estimate(f->scale))
			      : 0.0f;
	return least == most && is_zero_or_between(least, 0x1p-100f, 0x1p60f) &&
	       is_zero_or_between(to->variance, 0x1p-100f, 0x1p60f) &&
	       is_zero_or_between(f->scale, 0x1p-60f, 0x1p60f);
}

/* --- Weights ----------------------------------------------------------------------------------- */

/* Any weights, by codes that are stored already. */
template <int N>
static __device__ __noinline__ void gefen_any_weights(const struct step_args *a,
						      const struct gefen_table *table,
						      uint64_t tile, float scale, float variance)
{
	float w[N];
	uint8_t code[N];
	unsigned overflow;

	load_tile<uint8_t, N>(a->slot[TSR_SLOT_MOMENTUM].plane[0], tile, code);
	load_weights<N>(a, tile, w);
#pragma unroll 4
	for (int k = 0; k < N; k++)
		w[k] = tsr_step_gefen_weight(
			&a->scalars, w[k],
			with_cpu_nan(tsr_gefen_value(table->entry, code[k], scale), scale),
			variance);
	overflow = store_weights<N>(a, tile, w);
	if (a->report && overflow)
		atomicAdd((unsigned long long *)&a->report->encode[TSR_SLOT_WEIGHT].narrow_overflow,
			  (unsigned long long)overflow);
}

/* The narrow weights of a tile, and their corrections if they have any. */
static __device__ __forceinline__ void gefen_load_weights(const struct step_args *a, uint64_t tile,
							  struct fast_words<TILE> *x)
{
	const struct coded_planes &p = a->slot[TSR_SLOT_WEIGHT];

	if (a->weight == TSR_ROW_bf16_ulp8 || a->weight == TSR_ROW_bf16)
		load_tile<uint32_t, TILE / 2>(p.plane[0], tile, x->narrow);
	if (a->weight == TSR_ROW_bf16_ulp8)
		load_tile<uint32_t, TILE / 4>(p.plane[1], tile, x->correction);
}

/*
 * Weights bf16+ulp8, or bf16 alone, if they are ordinary as in step_fast.cuh; else returns false, with
 * nothing stored.
 */
static __device__ __forceinline__ bool gefen_weights(const struct step_args *a, uint64_t tile,
						     const struct fast_words<TILE> *x,
						     const float *m, float size)
{
	const struct coded_planes &p = a->slot[TSR_SLOT_WEIGHT];
	const bool corrected = a->weight == TSR_ROW_bf16_ulp8;
	uint32_t correction[TILE / 4];
	struct fast_tile<TILE> t;

	if (!corrected && a->weight != TSR_ROW_bf16)
		return false;
#pragma unroll
	for (int k = 0; k < TILE; k += 2) {
		t.w[k] = low_of(x->narrow[k / 2]);
		t.w[k + 1] = high_of(x->narrow[k / 2]);
	}
	if (corrected)
		fast_weights<TILE>(a->masks, x, t.w);
#pragma unroll
	for (int k = 0; k < TILE; k++)
		t.w[k] = tsr_step_gefen_move(&a->scalars, t.w[k], m[k], size);
	if (!fast_were_normal<TILE>(x) || !fast_narrow<TILE>(&t))
		return false;
	store_tile<uint32_t, TILE / 2>(p.plane[0], tile, t.narrow);
	if (corrected) {
		fast_encode_weights<TILE>(a->masks, &t, correction);
		store_tile<uint32_t, TILE / 4>(p.plane[1], tile, correction);
	}
	return true;
}

/* --- Codes ------------------------------------------------------------------------------------- */

static __device__ __noinline__ uint32_t gefen_exact_code(const struct gefen_table *table, float m,
							 float scale)
{
	return (uint32_t)tsr_gefen_code(table->entry, m, scale);
}

/* Store the codes of momenta, which become what is stored. */
static __device__ __forceinline__ void gefen_store_momenta(const struct step_args *a,
							   const struct gefen_table *table,
							   uint64_t tile,
							   const struct gefen_step *s, float *m)
{
	uint8_t code[TILE];

#pragma unroll
	for (int first = 0; first < TILE; first += 4) {
		bool unsure = false;
		uint32_t byte[4];

#pragma unroll
		for (int i = 0; i < 4; i++)
			byte[i] = gefen_code(table, m[first + i], s->inverse, &unsure);
		if (unsure) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				byte[i] = gefen_exact_code(table, m[first + i], s->scale);
		}
#pragma unroll
		for (int i = 0; i < 4; i++) {
			code[first + i] = (uint8_t)byte[i];
			m[first + i] = tsr_gefen_value(table->entry, code[first + i], s->scale);
		}
	}
	store_tile<uint8_t, TILE>(a->slot[TSR_SLOT_MOMENTUM].plane[0], tile, code);
}

/* A tile of an ordinary block, of which the new momenta are in @m. */
static __device__ __forceinline__ void gefen_finish(const struct step_args *a,
						    const struct gefen_table *table, uint64_t tile,
						    const struct gefen_step *s,
						    const struct fast_words<TILE> *x, float *m)
{
	gefen_store_momenta(a, table, tile, s, m);
	if (!gefen_weights(a, tile, x, m, s->size))
		gefen_any_weights<TILE>(a, table, tile, s->scale, s->variance);
}

/* --- Any block --------------------------------------------------------------------------------- */

/* Of element @i, before it is stored. */
static __device__ __forceinline__ float gefen_momentum(const struct step_args *a,
						       const struct gefen_table *table, uint64_t i,
						       float scale)
{
	const uint8_t code = ((const uint8_t *)a->slot[TSR_SLOT_MOMENTUM].plane[0])[i];
	const float m = with_cpu_nan(tsr_gefen_value(table->entry, code, scale), scale);

	return tsr_one_nan(tsr_step_toward(&a->scalars, gradient_at(a->grad, a->grad_dtype, i), m));
}

/* By all threads of a warp, as move_blocks() and the kernels of both codecs do it. */
static __device__ __noinline__ void gefen_any_block(const struct gefen_args *p,
						    const struct gefen_table *table, uint64_t index)
{
	const struct step_args *a = &p->step;
	const struct team b = { index, index * p->size, p->size, threadIdx.x % 32, 32 };
	float *scales = (float *)a->slot[TSR_SLOT_MOMENTUM].plane[1];
	float *means = (float *)a->slot[TSR_SLOT_VARIANCE].plane[0];
	const float was = scales[index];
	const double sum = sum_of_block(
		b, [=](uint64_t i) { return square_at(a->grad, a->grad_dtype, i); });
	const float v = tsr_step_gefen_variance(&a->scalars, tsr_block_mean(sum, b.count),
						means[index]);
	uint32_t max = 0, nonfinite = 0;
	float scale;

	for (uint32_t k = b.thread; k < b.count; k += 32) {
		max = ::max(max, magnitude(gefen_momentum(a, table, b.first + k, was)));
		nonfinite += is_nonfinite(gradient_at(a->grad, a->grad_dtype, b.first + k));
	}
	scale = tsr_f32_from_bits(__reduce_max_sync(TSR_WHOLE_WARP, max));
	for (uint32_t k = b.thread; k < b.count; k += 32) {
		const uint64_t i = b.first + k;
		const float m = gefen_momentum(a, table, i, was);

		((uint8_t *)a->slot[TSR_SLOT_MOMENTUM].plane[0])[i] = (uint8_t)tsr_gefen_code(
			table->entry, m, scale);
		gefen_any_weights<1>(a, table, i, scale, v);
	}
	__syncwarp();
	if (b.thread == 0) {
		scales[index] = scale;
		means[index] = v;
	}
	if (a->report)
		tsr_add_count(&a->report->nonfinite_grad, nonfinite);
}

/* --- Kernels ----------------------------------------------------------------------------------- */

/* A block, of whose team each thread has at most a tile if it @KEEPS what it read. */
template <bool BF16, bool KEEPS>
static __device__ __forceinline__ bool gefen_block(const struct gefen_args *p,
						   const struct gefen_table *table,
						   const struct gefen_team *t)
{
	const struct step_args *a = &p->step;
	float *scale = (float *)a->slot[TSR_SLOT_MOMENTUM].plane[1] + t->block;
	float *mean = (float *)a->slot[TSR_SLOT_VARIANCE].plane[0] + t->block;
	const float was = t->inside ? *scale : 0.0f, variance = t->inside ? *mean : 0.0f;
	struct gefen_found found = { 0.0, 0.0f };
	struct fast_words<TILE> words;
	struct gefen_step s;
	float g[TILE], m[TILE];
	bool ordinary;

	for (uint32_t i = t->thread; i < t->ntiles; i += t->nthreads) {
		if (KEEPS)
			gefen_load_weights(a, t->tile + i, &words);
		gefen_moments<BF16>(a, table, t->tile + i, was, g, m);
		gefen_add(g, m, &found);
		if (KEEPS)
			break;
	}
	gefen_join(t->nthreads, &found);
	ordinary = gefen_prepare(p, &found, variance, &s) && a->fast;
	for (uint32_t i = t->thread; ordinary && i < t->ntiles; i += t->nthreads) {
		if (!KEEPS) {
			gefen_load_weights(a, t->tile + i, &words);
			gefen_moments<BF16>(a, table, t->tile + i, was, g, m);
		}
		gefen_finish(a, table, t->tile + i, &s, &words, m);
		if (KEEPS)
			break;
	}
	__syncwarp();
	if (ordinary && t->inside && t->thread == 0) {
		*scale = s.scale;
		*mean = s.variance;
	}
	return ordinary || !t->inside;
}

template <bool BF16, bool KEEPS>
static __global__ void __launch_bounds__(GEFEN_BLOCK, 1)
	step_gefen(const __grid_constant__ gefen_args args)
{
	const uint64_t warp = (uint64_t)blockIdx.x * (GEFEN_BLOCK / 32) + threadIdx.x / 32;
	const uint64_t nwarps = (uint64_t)gridDim.x * (GEFEN_BLOCK / 32);
	const unsigned log_teams = 5 - args.log_team; /* of a warp */
	TSR_SHARED(float4, shared);
	struct gefen_table *table = (struct gefen_table *)shared;

	gefen_fill(args.entry, table);
	for (uint64_t first = warp << log_teams; first < args.nblocks;
	     first += nwarps << log_teams) {
		const struct gefen_team t = gefen_team_of(&args, first);
		const bool done = gefen_block<BF16, KEEPS>(&args, table, &t);
		unsigned left = __ballot_sync(TSR_WHOLE_WARP, !done && t.thread == 0);

		for (; left; left &= left - 1)
			gefen_any_block(
				&args, table,
				first + ((unsigned)(__ffs((int)left) - 1) >> args.log_team));
	}
}

/* --- Which of them a step takes ---------------------------------------------------------------- */

typedef void gefen_kernel(const struct gefen_args args);

static bool has_kernel(const struct tsr_step *step)
{
	const struct tsr_coding *m = &step->coding[TSR_SLOT_MOMENTUM];
	const struct tsr_coding *v = &step->coding[TSR_SLOT_VARIANCE];

	return (step->optimizer == TSR_OPTIMIZER_GEFEN || step->optimizer == TSR_OPTIMIZER_ADAMW) &&
	       m->codec && v->codec && m->codec->has_codebook && v->codec->learned &&
	       m->group == v->group && m->group % TILE == 0 && m->narrow != TSR_BF16 &&
	       m->narrow != TSR_F16;
}

static bool gefen_scalars_fit(const struct tsr_step_scalars *s)
{
	return s->from_grad == 0.0f && s->eps >= 0x1p-40f && s->eps <= 0x1p20f &&
	       s->root_correction2 >= 0x1p-14f && s->root_correction2 <= 1.0f &&
	       s->unbias1 >= 1.0f && s->unbias1 <= 0x1p20f;
}

/* All but the step. */
static struct gefen_args args_of(const struct tsr_step *step, const struct step_args *a, uint64_t n)
{
	const struct tsr_coding *coding = &step->coding[TSR_SLOT_MOMENTUM];
	/* Sums of n numbers in any order are within n 2^-53 of each other, and there are two. */
	const double bound = 4.0 * (coding->group + 64.0) * 0x1p-53;
	struct gefen_args p = {};

	p.step = *a;
	p.step.fast = gefen_scalars_fit(&a->scalars);
	p.size = coding->group;
	while (p.log_team < 5 && (uint32_t)TILE << p.log_team < p.size)
		p.log_team++;
	p.nblocks = n / p.size;
	p.inverse_size = 1.0 / p.size;
	p.below = 1.0 - bound;
	p.above = 1.0 + bound;
	p.inverse_correction = 1.0f / a->scalars.root_correction2;
	memcpy(p.entry, coding->codebook, sizeof(p.entry));
	return p;
}

enum tsr_status tsr_gpu_step_blocks(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    const struct step_args *a, uint64_t n, uint64_t *done_ret,
				    struct tsr_err *err)
{
	static gefen_kernel *const runs[2][2] = {
		{ step_gefen<false, false>, step_gefen<false, true> },
		{ step_gefen<true, false>, step_gefen<true, true> },
	};
	const uint32_t size = step->coding[TSR_SLOT_MOMENTUM].group;
	const struct tsr_gpu *gpu = stream->gpu;
	struct gefen_args p;
	gefen_kernel *run;
	uint64_t nteams, nblocks;

	if (n < size || !has_kernel(step))
		return TSR_OK;
	p = args_of(step, a, n);
	run = runs[a->grad_dtype == TSR_BF16][size <= (uint32_t)TILE << p.log_team];
	TSR_CUDA_TRY(gpu->index, err,
		     cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize,
					  (int)sizeof(struct gefen_table)),
		     "no shared memory for tables of codes");
	nteams = GEFEN_BLOCK >> p.log_team; /* of a block of threads */
	nblocks = (p.nblocks + nteams - 1) / nteams;
	nblocks = nblocks < gpu->nprocessors ? nblocks : gpu->nprocessors;
	run<<<(unsigned)nblocks, GEFEN_BLOCK, sizeof(struct gefen_table), stream->handle>>>(p);
	*done_ret = n - n % size;
	return TSR_OK;
}
