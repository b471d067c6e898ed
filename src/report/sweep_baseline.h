/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier reports of sweeps, read back. */
#ifndef TSR_REPORT_SWEEP_BASELINE_H
#define TSR_REPORT_SWEEP_BASELINE_H

#include <stddef.h>

#include "tersor/sweep.h"

/**
 * tsr_sweep_load() - Read a JSON report back
 * @ret: out: to be freed with tsr_sweep_free(); without codecs that this build does not have
 *
 * Return: TSR_OK; TSR_E_FORMAT for a file that is not a report, or whose figures cannot be those of
 * its range or do not add up; TSR_E_UNSUPPORTED for another schema; TSR_E_LIMIT; TSR_E_IO.
 */
enum tsr_status tsr_sweep_load(const char *path, struct tsr_sweep **ret, struct tsr_err *err);

#endif
