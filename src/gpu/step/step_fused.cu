/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in one pass: one kernel decodes, steps and encodes. */
#include "gpu/step/fast_coded.cuh"
#include "gpu/step/fast_flash.cuh"
#include "gpu/step/fast_tight.cuh"

/* Chunks of 32 tiles that a warp takes together. */
#define RUN 8u

/* Tiles have numbers of 32 bits, also those that blocks look for behind the last one. */
#define TILES_MAX (UINT64_C(1) << 31)

/* --- Kernels ----------------------------------------------------------------------------------- */

typedef void step_kernel(const struct step_args args);

/*
 * Which weights there are and which rule it is are conditions that all threads share, so that there
 * are a dozen kernels and not hundreds.
 */
template <class states>
static __global__ void __launch_bounds__(TSR_BLOCK) step(const __grid_constant__ step_args args)
{
	const uint64_t tile = tsr_first_vector(1);

	step_tile<states, states::tile>(&args, tile, tile < args.ntiles);
}

/* Number of the run that a warp takes next: some takes long, so that none can be given out before. */
static __device__ __forceinline__ unsigned take_next(unsigned *taken)
{
	unsigned next = 0;

	if (threadIdx.x % 32 == 0)
		next = atomicAdd(taken, 1u);
	return __shfl_sync(TSR_WHOLE_WARP, next, 0);
}

/*
 * Tiles of a form whose table is in shared memory: one block on a multiprocessor, of which the table takes
 * much; its warps go through the tiles on their own.
 */
template <bool BF16, class form>
static __device__ __forceinline__ void step_runs(const struct step_args *a, float *table)
{
	const uint32_t ntiles = (uint32_t)a->ntiles, nchunks = (ntiles + 31) / 32;
	__shared__ unsigned taken;

	form::fill(a, table);
	if (threadIdx.x == 0)
		taken = 0;
	__syncthreads();
	for (uint32_t chunk = 0, left = 0;; chunk++, left--) {
		if (left == 0) {
			left = a->numbers.run;
			chunk = (take_next(&taken) * gridDim.x + blockIdx.x) * left;
		}
		const uint32_t tile = chunk * 32 + threadIdx.x % 32;
		const bool inside = tile < ntiles;

		if (chunk >= nchunks)
			return;
		/* What others read is not used: the first tile of the warp is there. */
		if (!a->fast ||
		    !fast_step<BF16, form>(a, table, { 0, inside ? tile : chunk * 32 }, inside))
			/* Unrolled a little: a lone slow warp waits for itself. */
			step_any<typename form::states, form::tile, 4>(a, tile, inside);
	}
}

template <bool BF16, class form>
static __global__ void __launch_bounds__(form::block, form::blocks)
	step_fast(const __grid_constant__ step_args args)
{
	if constexpr (form::table_nbytes > 0) {
		TSR_SHARED(float4, table);

		step_runs<BF16, form>(&args, (float *)table);
	} else {
		const uint64_t base = (uint64_t)blockIdx.x * form::block;
		const bool inside = base + threadIdx.x < args.ntiles;

		if (!args.fast ||
		    !fast_step<BF16, form>(&args, NULL, { base, inside ? threadIdx.x : 0 }, inside))
			step_any<typename form::states, form::tile, form::tile>(
				&args, base + threadIdx.x, inside);
	}
}

/* --- Which of them a step takes ---------------------------------------------------------------- */

struct kernel {
	unsigned momentum, variance; /* rows; TSR_ROW_NONE for a rule without them */
	uint32_t group; /* of states in groups */
	unsigned tile, block, table_nbytes;
	void (*prepare)(struct step_args *a); /* NULL: any weights, no fast path */
	step_kernel *run[2]; /* the second one for gradients in BF16 */
};

#define PLAIN(m, v, ...) \
	{ \
		TSR_ROW_##m, TSR_ROW_##v, __VA_ARGS__::group, __VA_ARGS__::tile, TSR_BLOCK, 0, \
			NULL, \
		{ \
			step<__VA_ARGS__>, step<__VA_ARGS__> \
		} \
	}
#define FAST(m, v, ...) \
	{ \
		TSR_ROW_##m, TSR_ROW_##v, __VA_ARGS__::states::group, __VA_ARGS__::tile, \
			__VA_ARGS__::block, __VA_ARGS__::table_nbytes, __VA_ARGS__::prepare, \
		{ \
			step_fast<false, __VA_ARGS__>, step_fast<true, __VA_ARGS__> \
		} \
	}

typedef split_tiles<plain<float, float>> f32_tiles;
typedef split_tiles<narrow_only<bf16, uint16_t>> bf16_tiles;
typedef group_tiles<grouped<group_softsign, int8_t>> softsign_tiles;
typedef group_tiles<grouped<group_sqrt, uint8_t>> sqrt_tiles;
typedef group_tiles<grouped<group_linear, int8_t>> linear_tiles;
typedef group_tiles<grouped<group_ulinear, uint8_t>> ulinear_tiles;

typedef step_states<softsign_tiles> softsign_alone;
typedef step_states<softsign_tiles, sqrt_tiles> flash_states;
typedef step_states<linear_tiles> linear_alone;
typedef step_states<linear_tiles, ulinear_tiles> linear_states;

/* Those with a fast path first, which needs weights bf16+ulp8. */
static const struct kernel kernels[] = {
	FAST(softsign8, NONE, fast_flash<group_softsign, group_sqrt, softsign_alone>),
	FAST(softsign8, sqrt8, fast_flash<group_softsign, group_sqrt, flash_states>),
	FAST(linear8, NONE, fast_flash<group_linear, group_ulinear, linear_alone>),
	FAST(linear8, ulinear8, fast_flash<group_linear, group_ulinear, linear_states>),
	FAST(ratio8, log8, fast_tight),
	FAST(e4m3x, e4m3x, fast_coded<coat_coder>),
	FAST(dyn8, dyn8, fast_coded<dynamic_coder>),
	PLAIN(NONE, NONE, step_states<no_tiles>),
	PLAIN(f32, NONE, step_states<f32_tiles>),
	PLAIN(f32, f32, step_states<f32_tiles, f32_tiles>),
	PLAIN(bf16, NONE, step_states<bf16_tiles>),
	PLAIN(bf16, bf16, step_states<bf16_tiles, bf16_tiles>),
	PLAIN(softsign8, NONE, softsign_alone),
	PLAIN(softsign8, sqrt8, flash_states),
	PLAIN(linear8, NONE, linear_alone),
	PLAIN(linear8, ulinear8, linear_states),
	PLAIN(ratio8, log8, fast_tight::states),
	PLAIN(e4m3x, e4m3x, fast_coded<coat_coder>::states),
	PLAIN(dyn8, dyn8, fast_coded<dynamic_coder>::states),
};

/* TSR_ROWS, which no kernel has, for a codec that is not in the list. */
static unsigned row_of(const struct tsr_codec *codec)
{
	if (!codec)
		return TSR_ROW_NONE;
	return codec->row ? codec->row : (unsigned)TSR_ROWS;
}

/* Whether kernels load and store such weights: codecs of the list that store each element by itself. */
static bool has_weights(const struct tsr_codec *codec)
{
	return codec->row && !codec->grouped && !codec->extra_bits;
}

/* Whether a state is of a codec of this row, in its groups and of its kind. */
static bool is_state(const struct tsr_step *step, unsigned slot, unsigned row, uint32_t group)
{
	const struct tsr_coding *c = &step->coding[slot];
	const bool grouped = c->codec && c->codec->grouped;

	return row_of(c->codec) == row && (!grouped || (c->group == group && !c->row)) &&
	       (!grouped || !c->codec->flat ||
		(c->kind == TSR_KIND_VARIANCE) == (slot == TSR_SLOT_VARIANCE));
}

/* NULL where there is none for such a step. */
static const struct kernel *kernel_of(const struct tsr_step *step)
{
	const struct tsr_codec *weight = step->coding[TSR_SLOT_WEIGHT].codec;

	for (const struct kernel *k = kernels; k < kernels + sizeof(kernels) / sizeof(*k); k++) {
		if ((k->prepare ? weight->row == TSR_ROW_bf16_ulp8 : has_weights(weight)) &&
		    is_state(step, TSR_SLOT_MOMENTUM, k->momentum, k->group) &&
		    is_state(step, TSR_SLOT_VARIANCE, k->variance, k->group))
			return k;
	}
	return NULL;
}

/* Scales are read one by one; everything else by 16 bytes. */
static bool is_aligned(const struct tsr_step *step, const void *grad)
{
	bool aligned = tsr_is_aligned(grad, 16);

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_codec *codec = step->coding[p].codec;

		for (unsigned i = 0; codec && i < codec->nplanes; i++)
			aligned &= codec->planes[i].unit == TSR_PER_GROUP ||
				   codec->planes[i].unit == TSR_PER_GROUP_TOO ||
				   tsr_is_aligned(step->plane[p][i], 16);
	}
	return aligned;
}

/* --- Launches ---------------------------------------------------------------------------------- */

/* All but the tiles.  The tables of codecs are in the GPU's memory then. */
static enum tsr_status fill_args(struct tsr_gpu *gpu, const struct tsr_step *step,
				 struct step_args *a, struct tsr_err *err)
{
	a->scalars = step->scalars;
	a->weight = row_of(step->coding[TSR_SLOT_WEIGHT].codec);
	a->grad_dtype = step->grad_dtype;
	a->fast = scalars_are_fast(&step->scalars, a->rule);
	a->masks = tsr_masks();
	a->eps = step->coding[TSR_SLOT_MOMENTUM].eps;
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		const struct tsr_coding *coding = &step->coding[p];
		const struct tsr_gpu_codec *codec = coding->codec ? tsr_gpu_codec_of(coding->codec)
								  : NULL;

		memcpy(a->slot[p].plane, step->plane[p], sizeof(a->slot[p].plane));
		a->slot[p].scale = coding->scale;
		if (codec)
			TSR_TRY(tsr_gpu_prepare_tables(gpu, codec, err));
		if (codec && codec->tables != TSR_TABLES_COUNT)
			a->slot[p].tables = gpu->tables[codec->tables];
	}
	return TSR_OK;
}

/* Blocks of threads; with a table, no more than run at the same time, whose warps then take runs. */
static unsigned count_blocks(const struct tsr_gpu *gpu, const struct kernel *k, struct step_args *a)
{
	uint64_t nblocks = (a->ntiles + k->block - 1) / k->block;

	if (!k->table_nbytes)
		return (unsigned)nblocks;
	nblocks = nblocks < gpu->nprocessors ? nblocks : gpu->nprocessors;
	/* Enough runs that no warp is left alone at the end. */
	a->numbers.run = (uint32_t)(a->ntiles / 32 / nblocks / k->block) + 1;
	a->numbers.run = a->numbers.run < RUN ? a->numbers.run : RUN;
	return (unsigned)nblocks;
}

static enum tsr_status start(struct tsr_gpu_stream *stream, const struct kernel *k,
			     struct step_args *a, struct tsr_err *err)
{
	step_kernel *const run = k->run[a->grad_dtype == TSR_BF16];
	unsigned nblocks;

	if (k->prepare)
		k->prepare(a);
	if (k->table_nbytes)
		TSR_CUDA_TRY(stream->gpu->index, err,
			     cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize,
						  (int)k->table_nbytes),
			     "no shared memory for tables of codes");
	nblocks = count_blocks(stream->gpu, k, a);
	run<<<nblocks, k->block, k->table_nbytes, stream->handle>>>(*a);
	return TSR_OK;
}

/* Whether fused kernels have the rule; and none negates gradients. */
static bool has_rule(const struct tsr_step *step, enum step_rule rule)
{
	static const int nstates[] = {
#define X(id, formula, nstates) nstates,
		STEP_RULES(X)
#undef X
	};

	return nstates[rule] != ANY_STATES && !step->scalars.maximize;
}

enum tsr_status tsr_gpu_step_fused(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				   enum step_rule rule, const void *grad, uint64_t n,
				   struct tsr_step_report *report, uint64_t *done_ret,
				   struct tsr_err *err)
{
	const bool blocks = tsr_step_stores_first(step);
	const struct kernel *kernel = blocks ? NULL : kernel_of(step);
	struct step_args a = {};

	*done_ret = 0;
	if (!has_rule(step, rule) ||
	    !(kernel || (blocks && has_weights(step->coding[TSR_SLOT_WEIGHT].codec))) ||
	    !is_aligned(step, grad))
		return TSR_OK;
	a.rule = rule;
	a.grad = grad;
	a.report = report;
	TSR_TRY(fill_args(stream->gpu, step, &a, err));
	if (blocks)
		return tsr_gpu_step_blocks(stream, step, &a, n, done_ret, err);
	n = n < TILES_MAX * kernel->tile ? n : TILES_MAX * kernel->tile;
	*done_ret = n - n % kernel->group;
	a.ntiles = *done_ret / kernel->tile;
	return a.ntiles ? start(stream, kernel, &a, err) : TSR_OK;
}
