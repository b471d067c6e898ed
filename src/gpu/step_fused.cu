/* SPDX-License-Identifier: Apache-2.0 */
/* Steps in one pass: decode, step, encode, each byte of state moved once each way. */
#include "gpu/step_kernels.h"
#include "gpu/step_rules.cuh"

/*
 * A thread has TILE elements and TILE_TEAM threads have a group.  Per element: the gradient is read,
 * state and weight are read and written.  Which weights there are and which rule it is are conditions
 * that all threads share, so that there are nine kernels and not hundreds.
 */
template <int NSTATES, class momentum, class variance>
static __global__ void __launch_bounds__(TSR_BLOCK) step(const struct step_args args)
{
	const struct step_args *a = &args;
	const uint64_t tile = tsr_first_vector(1);
	const bool inside = tile < a->ntiles;
	float g[TILE] = {}, w[TILE] = {}, m[TILE] = {}, v[TILE] = {};
	unsigned nonfinite = 0, overflow = 0;
	bool roots;
	struct tsr_encode_report *report = a->report ? a->report->encode : NULL;

	if (inside) {
		nonfinite = load_gradients(a, tile, g);
		load_weights(a, tile, w);
		momentum::load(&a->part[TSR_PART_MOMENTUM], tile, m);
		variance::load(&a->part[TSR_PART_VARIANCE], tile, v);
	}
	roots = run_rule<NSTATES, variance::takes_roots>(a, inside, g, w, m, v);
	if (inside)
		overflow = store_weights(a, tile, w);
	momentum::store(&a->part[TSR_PART_MOMENTUM], tile, inside, m, false,
			report ? &report[TSR_PART_MOMENTUM] : NULL);
	variance::store(&a->part[TSR_PART_VARIANCE], tile, inside, v, roots,
			report ? &report[TSR_PART_VARIANCE] : NULL);
	if (a->report) {
		tsr_add_count(&a->report->nonfinite_grad, nonfinite);
		tsr_add_count(&report[TSR_PART_WEIGHT].narrow_overflow, overflow);
	}
}

/* --- Which of them a step takes ---------------------------------------------------------------- */

typedef void step_kernel(const struct step_args args);

/* States go together: those of one row. */
static const struct {
	const char *momentum, *variance; /* NULL for a rule without them */
	step_kernel *kernel;
} kernels[] = {
	{ NULL, NULL, step<0, no_state, no_state> },
	{ "f32", NULL, step<1, f32_state, no_state> },
	{ "bf16", NULL, step<1, bf16_state, no_state> },
	{ "softsign8", NULL, step<1, grouped_state<softsign>, no_state> },
	{ "linear8", NULL, step<1, grouped_state<linear>, no_state> },
	{ "f32", "f32", step<2, f32_state, f32_state> },
	{ "bf16", "bf16", step<2, bf16_state, bf16_state> },
	{ "softsign8", "sqrt8", step<2, grouped_state<softsign>, grouped_state<root>> },
	{ "linear8", "ulinear8", step<2, grouped_state<linear>, grouped_state<ulinear>> },
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

static step_kernel *kernel_of(const struct tsr_step *step)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
		if (is_named(step->coding[TSR_PART_MOMENTUM].codec, kernels[i].momentum) &&
		    is_named(step->coding[TSR_PART_VARIANCE].codec, kernels[i].variance))
			return kernels[i].kernel;
	}
	return NULL;
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
	struct step_args a = {};

	if (!part || !tsr_gpu_step_has_kernel(step) || !is_aligned(step, grad))
		return 0;
	a.scalars = step->scalars;
	a.rule = rule;
	a.weight = weight_of(step);
	a.grad_dtype = step->grad_dtype;
	a.ordinary = scalars_are_ordinary(&step->scalars);
	a.grad = grad;
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		memcpy(a.part[p].plane, step->plane[p], sizeof(a.part[p].plane));
		a.part[p].scale = step->coding[p].scale;
	}
	a.ntiles = part / TILE;
	a.report = report;
	kernel_of(step)<<<tsr_blocks(a.ntiles, 1), TSR_BLOCK, 0, stream>>>(a);
	return part;
}
