/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of one row of a sweep, by their names in reports. */
#ifndef TSR_REPORT_SWEEP_FIGURES_H
#define TSR_REPORT_SWEEP_FIGURES_H

#include "tersor/sweep.h"

/* The figures that are counts, in the order of reports. */
#define TSR_SWEEP_COUNTS 6u

const char *tsr_sweep_count_name(unsigned i);
uint64_t tsr_sweep_get_count(const struct tsr_sweep_row *row, unsigned i);

/* The sum of errors in hexadecimal, without leading zeros. */
void tsr_sweep_format_sum(char out[40], const uint64_t sum[2]);

/* Whether all members are equal. */
bool tsr_sweep_row_equal(const struct tsr_sweep_row *a, const struct tsr_sweep_row *b);

#endif
