/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a SIMD level for steps. */
#include "step/step.h"

#include <string.h>

#include "step/simd.h"

enum tsr_kind tsr_part_kind(enum tsr_part part)
{
	static const enum tsr_kind kinds[TSR_PARTS] = {
		[TSR_PART_WEIGHT] = TSR_KIND_WEIGHT,
		[TSR_PART_MOMENTUM] = TSR_KIND_MOMENTUM,
		[TSR_PART_VARIANCE] = TSR_KIND_VARIANCE,
	};

	return kinds[part];
}

static const struct {
	const char *isa;
	tsr_step_fn *apply;
} levels[] = {
#define X(isa) { #isa, tsr_step_apply_##isa },
	TSR_ISA_LIST(X)
#undef X
};

void tsr_step_apply(const struct tsr_step *step, const void *grad, uint64_t first, size_t n,
		    struct tsr_step_report *report)
{
	size_t i = 0;

	while (strcmp(levels[i].isa, tsr_isa_name()) != 0)
		i++;
	levels[i].apply(step, grad, first, n, report);
}
