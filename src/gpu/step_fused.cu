/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in one pass. */
#include "gpu/step_flash.cuh"
#include "gpu/step_kernels.h"
#include "gpu/step_tile.cuh"

/* Elements of a thread: FP32 by 16 bytes, codes for what a group costs to be shared. */
#define TILE_F32 4
#define TILE_BF16 8
#define TILE_CODES 16

#define FLASH_TILE 16

/* So many blocks at a time on a multiprocessor leave 72 registers; 5 to 12 were tried. */
#define FLASH_BLOCKS 7

/* --- Kernels ----------------------------------------------------------------------------------- */

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

template <class codec> struct flash_state {
	typedef grouped_state<codec> state;
};
template <> struct flash_state<no_codec> {
	typedef no_state state;
};

template <bool USUAL, int NSTATES, class momentum, class variance>
static __global__ void __launch_bounds__(FLASH_BLOCK, FLASH_BLOCKS)
	step_flash(const __grid_constant__ step_args args)
{
	const uint64_t tile = (uint64_t)blockIdx.x * FLASH_BLOCK + threadIdx.x;
	const bool inside = tile < args.ntiles;

	if (!args.flash ||
	    !flash_step<USUAL, NSTATES, momentum, variance, FLASH_TILE>(&args, inside))
		step_any<NSTATES, grouped_state<momentum>, typename flash_state<variance>::state,
			 FLASH_TILE>(&args, tile, inside);
}

/* --- Which of them a step takes ---------------------------------------------------------------- */

/* States go together: those of one row. */
struct kernel {
	const char *momentum, *variance; /* NULL for a rule without them */
	unsigned tile, block;
	step_kernel *run;
};

#define KERNEL(momentum, variance, nstates, m, v, n) \
	{ \
		momentum, variance, n, TSR_BLOCK, step<nstates, m, v, n> \
	}

static const struct kernel kernels[] = {
	KERNEL(NULL, NULL, 0, no_state, no_state, TILE_F32),
	KERNEL("f32", NULL, 1, f32_state, no_state, TILE_F32),
	KERNEL("bf16", NULL, 1, bf16_state, no_state, TILE_BF16),
	KERNEL("softsign8", NULL, 1, grouped_state<softsign>, no_state, TILE_CODES),
	KERNEL("linear8", NULL, 1, grouped_state<linear>, no_state, TILE_CODES),
	KERNEL("f32", "f32", 2, f32_state, f32_state, TILE_F32),
	KERNEL("bf16", "bf16", 2, bf16_state, bf16_state, TILE_BF16),
	KERNEL("softsign8", "sqrt8", 2, grouped_state<softsign>, grouped_state<root>, TILE_CODES),
	KERNEL("linear8", "ulinear8", 2, grouped_state<linear>, grouped_state<ulinear>, TILE_CODES),
};

#define FLASH(momentum, variance, ...) \
	{ \
		momentum, variance, FLASH_TILE, FLASH_BLOCK, step_flash<__VA_ARGS__> \
	}

/* With weights bf16+ulp8; first those that are usual. */
static const struct kernel flash_kernels[][4] = {
	{
		FLASH("softsign8", NULL, true, 1, softsign, no_codec),
		FLASH("softsign8", "sqrt8", true, 2, softsign, root),
		FLASH("linear8", NULL, true, 1, linear, no_codec),
		FLASH("linear8", "ulinear8", true, 2, linear, ulinear),
	},
	{
		FLASH("softsign8", NULL, false, 1, softsign, no_codec),
		FLASH("softsign8", "sqrt8", false, 2, softsign, root),
		FLASH("linear8", NULL, false, 1, linear, no_codec),
		FLASH("linear8", "ulinear8", false, 2, linear, ulinear),
	},
};

static const char *const weights[WEIGHT_OTHER] = {
	"f32",	     "bf16",	   "fp16",	   "bf16+ulp8", "bf16+ulp16",
	"fp16+ulp8", "fp16+ulp16", "bf16+exact16", "bf16+bf16", "fp16+fp16",
};

static enum step_weight weight_of(const struct tsr_step *step)
{
	unsigned i = 0;

	while (i < WEIGHT_OTHER && strcmp(weights[i], step->coding[TSR_PART_WEIGHT].codec->name))
		i++;
	return (enum step_weight)i;
}

static bool is_named(const struct tsr_codec *codec, const char *name)
{
	return codec && name ? strcmp(codec->name, name) == 0 : !codec && !name;
}

static const struct kernel *find_kernel(const struct tsr_step *step, const struct kernel *from,
					size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (is_named(step->coding[TSR_PART_MOMENTUM].codec, from[i].momentum) &&
		    is_named(step->coding[TSR_PART_VARIANCE].codec, from[i].variance))
			return &from[i];
	}
	return NULL;
}

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const struct kernel *kernel_of(const struct tsr_step *step)
{
	return find_kernel(step, kernels, COUNT(kernels));
}

/* NULL where there is none for such states. */
static const struct kernel *flash_kernel_of(const struct tsr_step *step, const struct step_args *a)
{
	const struct kernel *from = flash_kernels[!step_is_usual(a)];

	return a->weight == WEIGHT_BF16_ULP8 ? find_kernel(step, from, COUNT(*flash_kernels))
					     : NULL;
}

bool tsr_gpu_step_has_kernel(const struct tsr_step *step)
{
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *c = &step->coding[p];

		if (c->codec && c->codec->grouped && c->group != TSR_GROUP_DEFAULT)
			return false;
	}
	return weight_of(step) != WEIGHT_OTHER && kernel_of(step);
}

/* Scales are read one by one; everything else by 16 bytes. */
static bool is_aligned(const struct tsr_step *step, const void *grad)
{
	bool aligned = tsr_is_aligned(grad, 16);

	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_codec *codec = step->coding[p].codec;

		for (unsigned i = 0; codec && i < codec->nplanes; i++)
			aligned &= codec->planes[i].unit == TSR_PER_GROUP ||
				   tsr_is_aligned(step->plane[p][i], 16);
	}
	return aligned;
}

uint64_t tsr_gpu_step_fused(cudaStream_t stream, const struct tsr_step *step, enum step_rule rule,
			    const void *grad, uint64_t n, struct tsr_step_report *report)
{
	const uint64_t part = n - n % TSR_GROUP_DEFAULT;
	const struct kernel *kernel;
	struct step_args a = {};

	if (!part || !tsr_gpu_step_has_kernel(step) || !is_aligned(step, grad))
		return 0;
	a.scalars = step->scalars;
	a.rule = rule;
	a.weight = weight_of(step);
	a.grad_dtype = step->grad_dtype;
	a.ordinary = scalars_are_ordinary(&step->scalars);
	a.flash = scalars_are_flash(&step->scalars, rule);
	a.masks = tsr_masks();
	a.grad = grad;
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		memcpy(a.part[p].plane, step->plane[p], sizeof(a.part[p].plane));
		a.part[p].scale = step->coding[p].scale;
	}
	kernel = flash_kernel_of(step, &a);
	if (!kernel)
		kernel = kernel_of(step);
	a.ntiles = part / kernel->tile;
	a.report = report;
	kernel->run<<<(unsigned)((a.ntiles + kernel->block - 1) / kernel->block), kernel->block, 0,
		      stream>>>(a);
	return part;
}
