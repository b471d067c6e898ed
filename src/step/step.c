/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: the kind and name of each slot, and a step at the SIMD level in use. */
#include "step/step.h"

#include <string.h>

#include "step/simd.h"

enum tsr_kind tsr_slot_kind(enum tsr_slot slot)
{
	static const enum tsr_kind kinds[TSR_SLOTS] = {
		[TSR_SLOT_WEIGHT] = TSR_KIND_WEIGHT,
		[TSR_SLOT_MOMENTUM] = TSR_KIND_MOMENTUM,
		[TSR_SLOT_VARIANCE] = TSR_KIND_VARIANCE,
		[TSR_SLOT_MAX_VARIANCE] = TSR_KIND_VARIANCE,
	};

	return kinds[slot];
}

const char *tsr_slot_name(enum tsr_slot slot)
{
	return slot == TSR_SLOT_MAX_VARIANCE ? "max_variance" : tsr_kind_name(tsr_slot_kind(slot));
}

void tsr_step_apply(const struct tsr_step *step, const void *grad, uint64_t first, size_t n,
		    struct tsr_step_report *report)
{
	static tsr_step_fn *const apply[] = TSR_ISA_VARIANTS(step_apply);

	apply[tsr_isa_level()](step, grad, first, n, report);
}

void tsr_step_block_moments(const struct tsr_step *step, const float *g, size_t n, float *m,
			    float *v)
{
	static tsr_moments_fn *const moments[] = TSR_ISA_VARIANTS(step_block_moments);

	moments[tsr_isa_level()](step, g, n, m, v);
}

void tsr_step_weights(const struct tsr_step *step, const float *m, const float *v, size_t n,
		      float *w)
{
	static tsr_weights_fn *const weights[] = TSR_ISA_VARIANTS(step_weights);

	weights[tsr_isa_level()](step, m, v, n, w);
}

void tsr_step_matrix(const struct tsr_step *step, const float *g, const float *m, float *w)
{
	static tsr_matrix_fn *const matrix[] = TSR_ISA_VARIANTS(step_matrix);

	matrix[tsr_isa_level()](step, g, m, w);
}

/* They are the first that the work space has. */
void tsr_step_turn(const struct tsr_step *step)
{
	const float *from = step->work;

	for (unsigned i = 0; i < TSR_BASES; i++) {
		const size_t n = (size_t)(step->side[i % 2] * step->side[i % 2]);

		if (n)
			memcpy(step->basis[i], from, n * sizeof(*from));
		from += n;
	}
}

struct tsr_step tsr_step_from(const struct tsr_step *step, uint64_t first)
{
	struct tsr_step s = *step;

	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		const struct tsr_coding *coding = &step->coding[slot];

		for (unsigned i = 0; coding->codec && i < coding->codec->nplanes; i++)
			s.plane[slot][i] = (char *)step->plane[slot][i] +
					   tsr_plane_nbytes(coding, i, first);
		s.coding[slot].first += first;
	}
	return s;
}

uint64_t tsr_step_batch(uint64_t most, uint64_t align, uint64_t n)
{
	const uint64_t size = align < most ? most - most % align : align;

	return size < n ? size : n;
}
