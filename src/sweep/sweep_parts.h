/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps, on the CPU or on GPUs, of which processes may each do a part. */
#ifndef TSR_SWEEP_SWEEP_PARTS_H
#define TSR_SWEEP_SWEEP_PARTS_H

#include "tersor/sweep.h"

/* What to sweep, and where: @ngpus indices of GPUs; none: the CPU. */
struct tsr_sweep_plan {
	const struct tsr_codec *const *codecs;
	unsigned ncodecs;
	uint32_t first, last;
	const unsigned *gpus;
	unsigned ngpus;
};

/*
 * tsr_sweep_run() or tsr_sweep_run_gpu().  With @run->parts the range is cut into as many shares as there are
 * parts: one is swept and TSR_PART_DONE returned, or what all parts found is added up.
 */
enum tsr_status tsr_sweep_in_parts(const struct tsr_sweep_plan *plan, const struct tsr_run *run,
				   struct tsr_sweep **ret, struct tsr_err *err);

#endif
