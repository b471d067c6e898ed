/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in one pass: one kernel decodes, steps and encodes. */
#include "gpu/step/step_fast.cuh"

/* Numbers of tiles have 32 bits. */
#define ELEMENTS_MAX (UINT64_C(1) << 32)

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

/* Not a part of the fast kernel: its registers are for the elements that are ordinary. */
template <class states>
static __device__ __noinline__ void step_any(const struct step_args *a, uint64_t tile, bool inside)
{
	step_tile<states, FAST_TILE>(a, tile, inside);
}

template <class states, bool BF16>
static __global__ void __launch_bounds__(FAST_BLOCK, FAST_BLOCKS)
	step_fast(const __grid_constant__ step_args args)
{
	const uint32_t first = blockIdx.x * FAST_BLOCK, tile = first + threadIdx.x;
	const bool inside = tile < args.ntiles;

	if (!args.fast || !fast_step<BF16, states::nstates>(&args, inside ? tile : first, inside))
		step_any<states>(&args, tile, inside);
}

/* --- Which of them a step takes ---------------------------------------------------------------- */

struct kernel {
	unsigned momentum, variance; /* rows; TSR_ROW_NONE for a rule without them */
	unsigned tile;
	step_kernel *any;
	step_kernel *fast,
		*fast_bf16; /* NULL, or for weights bf16+ulp8; the latter for BF16 gradients */
};

#define ANY(m, v, ...) \
	{ \
		TSR_ROW_##m, TSR_ROW_##v, __VA_ARGS__::tile, step<__VA_ARGS__>, NULL, NULL \
	}
#define FAST(m, v, states) \
	{ \
		TSR_ROW_##m, TSR_ROW_##v, states::tile, step<states>, step_fast<states, false>, \
			step_fast<states, true> \
	}

typedef split_tiles<plain<float, float>> f32_tiles;
typedef split_tiles<narrow_only<bf16, uint16_t>> bf16_tiles;
typedef group_tiles<grouped<group_softsign, int8_t>> softsign_tiles;
typedef group_tiles<grouped<group_sqrt, uint8_t>> sqrt_tiles;
typedef group_tiles<grouped<group_linear, int8_t>> linear_tiles;
typedef group_tiles<grouped<group_ulinear, uint8_t>> ulinear_tiles;
typedef step_states<softsign_tiles> softsign_alone;
typedef step_states<softsign_tiles, sqrt_tiles> flash_states;

static const struct kernel kernels[] = {
	FAST(softsign8, NONE, softsign_alone),
	FAST(softsign8, sqrt8, flash_states),
	ANY(NONE, NONE, step_states<no_tiles>),
	ANY(f32, NONE, step_states<f32_tiles>),
	ANY(f32, f32, step_states<f32_tiles, f32_tiles>),
	ANY(bf16, NONE, step_states<bf16_tiles>),
	ANY(bf16, bf16, step_states<bf16_tiles, bf16_tiles>),
	ANY(linear8, NONE, step_states<linear_tiles>),
	ANY(linear8, ulinear8, step_states<linear_tiles, ulinear_tiles>),
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

/* Whether a state is of a codec of this row, in its usual groups. */
static bool is_state(const struct tsr_step *step, unsigned slot, unsigned row)
{
	const struct tsr_coding *c = &step->coding[slot];
	const bool grouped = c->codec && c->codec->grouped;

	return row_of(c->codec) == row && (!grouped || (c->group == TSR_GROUP_DEFAULT && !c->row));
}

/* NULL where there is none for such a step. */
static const struct kernel *kernel_of(const struct tsr_step *step)
{
	if (!has_weights(step->coding[TSR_SLOT_WEIGHT].codec) || tsr_step_stores_first(step))
		return NULL;
	for (const struct kernel *k = kernels; k < kernels + sizeof(kernels) / sizeof(*k); k++) {
		if (is_state(step, TSR_SLOT_MOMENTUM, k->momentum) &&
		    is_state(step, TSR_SLOT_VARIANCE, k->variance))
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

static void start(const struct tsr_gpu_stream *stream, const struct kernel *k, struct step_args *a)
{
	step_kernel *const fast = a->grad_dtype == TSR_BF16 ? k->fast_bf16 : k->fast;
	const bool is_fast = fast && a->weight == TSR_ROW_bf16_ulp8;
	const unsigned block = is_fast ? FAST_BLOCK : TSR_BLOCK;
	const unsigned nblocks = (unsigned)((a->ntiles + block - 1) / block);

	a->fast = scalars_are_fast(&a->scalars, a->rule);
	for (unsigned p = TSR_SLOT_MOMENTUM; p < TSR_SLOTS; p++)
		a->fast &= a->slot[p].scale == TSR_SCALE_E8M8;
	if (nblocks)
		(is_fast ? fast : k->any)<<<nblocks, block, 0, stream->handle>>>(*a);
}

/* Whether fused kernels have the rule; none negates gradients, or has a third state. */
static bool has_rule(const struct tsr_step *step)
{
	static const bool fused[] = {
#define X(id, formula, nstates, fused) fused,
		TSR_STEP_RULES(X)
#undef X
	};

	return fused[tsr_step_rule(step)] && !step->scalars.maximize && !step->scalars.amsgrad;
}

extern "C" enum tsr_status tsr_gpu_step_fused(struct tsr_gpu_stream *stream,
					      const struct tsr_step *step, const void *grad,
					      uint64_t n, struct tsr_step_report *report,
					      uint64_t *done_ret, struct tsr_err *err)
{
	const struct kernel *kernel = kernel_of(step);
	struct step_args a = {};

	*done_ret = 0;
	if (!kernel || !has_rule(step) || !is_aligned(step, grad))
		return TSR_OK;
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	n = n < ELEMENTS_MAX ? n - n % TSR_GROUP_DEFAULT : ELEMENTS_MAX;
	a.scalars = step->scalars;
	a.rule = tsr_step_rule(step);
	a.weight = row_of(step->coding[TSR_SLOT_WEIGHT].codec);
	a.grad_dtype = step->grad_dtype;
	a.masks = tsr_masks();
	a.grad = grad;
	a.ntiles = n / kernel->tile;
	a.report = report;
	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		memcpy(a.slot[p].plane, step->plane[p], sizeof(a.slot[p].plane));
		a.slot[p].scale = step->coding[p].scale;
	}
	start(stream, kernel, &a);
	*done_ret = n;
	return step_started(stream, step, err);
}
