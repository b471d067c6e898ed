/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in one pass: one kernel decodes, steps and encodes. */
#include "gpu/step/step_flash.cuh"

/* So many blocks at a time on a multiprocessor leave 72 registers; 5 to 12 were tried. */
#define FLASH_BLOCKS 7

#define FLASH_TILE 16

/* --- Kernels ----------------------------------------------------------------------------------- */

/*
 * Decode, step, encode: each byte of state moved once each way.  Called by all threads of a warp,
 * since those that have a group talk to each other; loads and stores if @inside.
 */
template <int NSTATES, class momentum, class variance, int N>
static __device__ __forceinline__ void step_tile(const struct step_args *a, uint64_t tile,
						 bool inside)
{
	float g[N] = {}, w[N] = {}, m[N] = {}, v[N] = {};
	unsigned nonfinite = 0, overflow = 0;
	bool roots;
	struct tsr_encode_report *report = a->report ? a->report->encode : NULL;

	if (inside) {
		load_gradients<N>(a, tile, g);
		nonfinite = count_nonfinite<N>(g);
		load_weights<N>(a, tile, w);
		momentum::template load<N>(&a->part[TSR_PART_MOMENTUM], tile, m);
		variance::template load<N>(&a->part[TSR_PART_VARIANCE], tile, v);
	}
	roots = run_rule<NSTATES, variance::takes_roots, N>(a, inside, g, w, m, v);
	if (inside)
		overflow = store_weights<N>(a, tile, w);
	momentum::template store<N>(&a->part[TSR_PART_MOMENTUM], tile, inside, m, false,
				    report ? &report[TSR_PART_MOMENTUM] : NULL);
	variance::template store<N>(&a->part[TSR_PART_VARIANCE], tile, inside, v, roots,
				    report ? &report[TSR_PART_VARIANCE] : NULL);
	if (a->report) {
		tsr_add_count(&a->report->nonfinite_grad, nonfinite);
		tsr_add_count(&report[TSR_PART_WEIGHT].narrow_overflow, overflow);
	}
}

typedef void step_kernel(const struct step_args args);

/*
 * Which weights there are and which rule it is are conditions that all threads share, so that there
 * are a dozen kernels and not hundreds.
 */
template <int NSTATES, class momentum, class variance, int N>
static __global__ void __launch_bounds__(TSR_BLOCK) step(const __grid_constant__ step_args args)
{
	const uint64_t tile = tsr_first_vector(1);

	step_tile<NSTATES, momentum, variance, N>(&args, tile, tile < args.ntiles);
}

/* Not a part of the kernel: its registers are for the elements that are ordinary. */
template <int NSTATES, class momentum, class variance, int N>
static __device__ __noinline__ void step_any(const struct step_args *a, uint64_t tile, bool inside)
{
	step_tile<NSTATES, momentum, variance, N>(a, tile, inside);
}

template <bool USUAL, int NSTATES, class momentum, class variance>
static __global__ void __launch_bounds__(FLASH_BLOCK, FLASH_BLOCKS)
	step_flash(const __grid_constant__ step_args args)
{
	const uint64_t tile = (uint64_t)blockIdx.x * FLASH_BLOCK + threadIdx.x;
	const bool inside = tile < args.ntiles;

	if (!args.flash || !flash_step<USUAL, NSTATES, typename momentum::codec,
				       typename variance::codec, FLASH_TILE>(&args, inside))
		step_any<NSTATES, momentum, variance, FLASH_TILE>(&args, tile, inside);
}

/* --- Which of them a step takes ---------------------------------------------------------------- */

struct kernel {
	unsigned momentum, variance; /* rows; TSR_ROW_NONE for a rule without them */
	unsigned tile, block;
	step_kernel *run;
};

#define KERNEL(m, v, nstates, momentum, variance, n) \
	{ \
		m, v, n, TSR_BLOCK, step<nstates, momentum, variance, n> \
	}
#define X(m, v) \
	KERNEL(TSR_ROW_##m, TSR_ROW_NONE, 1, state_##m, no_state, state_##m::tile), \
		KERNEL(TSR_ROW_##m, TSR_ROW_##v, 2, state_##m, state_##v, state_##m::tile),

static const struct kernel kernels[] = { KERNEL(TSR_ROW_NONE, TSR_ROW_NONE, 0, no_state, no_state,
						state_f32::tile),
					 TSR_STATE_PAIRS(X) };
#undef X

#define FLASH(m, v, ...) \
	{ \
		m, v, FLASH_TILE, FLASH_BLOCK, step_flash<__VA_ARGS__> \
	}
#define X(m, v) \
	{ FLASH(TSR_ROW_##m, TSR_ROW_NONE, false, 1, state_##m, no_state), \
	  FLASH(TSR_ROW_##m, TSR_ROW_NONE, true, 1, state_##m, no_state) }, \
		{ FLASH(TSR_ROW_##m, TSR_ROW_##v, false, 2, state_##m, state_##v), \
		  FLASH(TSR_ROW_##m, TSR_ROW_##v, true, 2, state_##m, state_##v) },

/* With weights bf16+ulp8; second those for a step_is_usual(). */
static const struct kernel flash_kernels[][2] = { TSR_FLASH_PAIRS(X) };
#undef X

/* TSR_ROWS, which no kernel has, for a codec that is not in the list. */
static unsigned row_of(const struct tsr_codec *codec)
{
	if (!codec)
		return TSR_ROW_NONE;
	return codec->row ? codec->row : (unsigned)TSR_ROWS;
}

static bool has_weights(unsigned row)
{
	switch (row) {
#define X(id, ...) case TSR_ROW_##id:
		TSR_SPLIT_LIST(X)
		TSR_PLAIN_LIST(X)
#undef X
		return true;
	default:
		return false;
	}
}

static bool takes(const struct kernel *k, const struct tsr_step *step)
{
	return k->momentum == row_of(step->coding[TSR_PART_MOMENTUM].codec) &&
	       k->variance == row_of(step->coding[TSR_PART_VARIANCE].codec);
}

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* NULL where there is none for such states. */
static const struct kernel *kernel_of(const struct tsr_step *step)
{
	for (size_t i = 0; i < COUNT(kernels); i++) {
		if (takes(&kernels[i], step))
			return &kernels[i];
	}
	return NULL;
}

static const struct kernel *flash_kernel_of(const struct tsr_step *step, const struct step_args *a)
{
	for (size_t i = 0; i < COUNT(flash_kernels) && a->weight == TSR_ROW_bf16_ulp8; i++) {
		if (takes(flash_kernels[i], step))
			return &flash_kernels[i][step_is_usual(a)];
	}
	return NULL;
}

bool tsr_gpu_step_has_kernel(const struct tsr_step *step)
{
	if (tsr_step_stores_first(step))
		return tsr_gpu_step_has_blocks(step) &&
		       has_weights(row_of(step->coding[TSR_PART_WEIGHT].codec));
	if (tsr_gpu_step_has_pair(step))
		return true;
	if (step->order == TSR_ORDER_COAT || step->order == TSR_ORDER_BITSANDBYTES)
		return false;
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *c = &step->coding[p];

		if (c->codec && c->codec->grouped && (c->group != TSR_GROUP_DEFAULT || c->row))
			return false;
	}
	return has_weights(row_of(step->coding[TSR_PART_WEIGHT].codec)) && kernel_of(step);
}

/* Scales are read one by one; everything else by 16 bytes. */
static bool is_aligned(const struct tsr_step *step, const void *grad)
{
	bool aligned = tsr_is_aligned(grad, 16);

	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_codec *codec = step->coding[p].codec;

		for (unsigned i = 0; codec && i < codec->nplanes; i++)
			aligned &= codec->planes[i].unit == TSR_PER_GROUP ||
				   codec->planes[i].unit == TSR_PER_GROUP_TOO ||
				   tsr_is_aligned(step->plane[p][i], 16);
	}
	return aligned;
}

/* All but the tiles. */
static struct step_args args_of(const struct tsr_step *step, enum step_rule rule, const void *grad,
				struct tsr_step_report *report)
{
	struct step_args a = {};

	a.scalars = step->scalars;
	a.rule = rule;
	a.weight = row_of(step->coding[TSR_PART_WEIGHT].codec);
	a.grad_dtype = step->grad_dtype;
	a.ordinary = scalars_are_ordinary(&step->scalars);
	a.flash = scalars_are_flash(&step->scalars, rule);
	a.masks = tsr_masks();
	a.grad = grad;
	a.report = report;
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		memcpy(a.part[p].plane, step->plane[p], sizeof(a.part[p].plane));
		a.part[p].scale = step->coding[p].scale;
	}
	return a;
}

enum tsr_status tsr_gpu_step_fused(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				   enum step_rule rule, const void *grad, uint64_t n,
				   struct tsr_step_report *report, uint64_t *done_ret,
				   struct tsr_err *err)
{
	const uint64_t part = n - n % TSR_GROUP_DEFAULT;
	struct step_args a = args_of(step, rule, grad, report);
	const struct kernel *kernel;

	*done_ret = 0;
	if (tsr_step_stores_first(step))
		return tsr_gpu_step_has_kernel(step)
			       ? tsr_gpu_step_blocks(stream, step, &a, is_aligned(step, grad), n,
						     done_ret, err)
			       : TSR_OK;
	if (!part || !tsr_gpu_step_has_kernel(step) || !is_aligned(step, grad))
		return TSR_OK;
	if (tsr_gpu_step_has_pair(step))
		return tsr_gpu_step_pair(stream, step, &a, n, done_ret, err);
	kernel = flash_kernel_of(step, &a);
	if (!kernel)
		kernel = kernel_of(step);
	a.ntiles = part / kernel->tile;
	kernel->run<<<(unsigned)((a.ntiles + kernel->block - 1) / kernel->block), kernel->block, 0,
		      stream->handle>>>(a);
	*done_ret = part;
	return TSR_OK;
}
