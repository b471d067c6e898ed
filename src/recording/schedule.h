/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_RECORDING_SCHEDULE_H
#define TSR_RECORDING_SCHEDULE_H

/* Learning rates from a file. */

#include <stddef.h>
#include <stdint.h>

#include "tersor/status.h"

/**
 * tsr_schedule_load() - Read a text file with lines "STEP LR", or "STEP LR LR ..." with one per group
 * @lr_ret: out: @nsteps * @ngroups values for steps @first to @first + @nsteps - 1, to be freed
 *
 * '#' begins a comment, ',' counts as a space.  Every step must have a line; others are ignored.
 */
enum tsr_status tsr_schedule_load(const char *path, uint64_t first, size_t nsteps, size_t ngroups,
				  double **lr_ret, struct tsr_err *err);

#endif
