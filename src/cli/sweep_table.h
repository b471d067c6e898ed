/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_SWEEP_TABLE_H
#define TSR_CLI_SWEEP_TABLE_H

#include "report/sweep_report.h"

/* The totals of each codec, on stdout; with @verbose then its exponents.  At most 80 columns. */
void cli_sweep_print(const struct tsr_sweep *s, bool verbose);

/* What is not as in the baseline; without @verbose the first few. */
void cli_sweep_print_moved(const struct tsr_sweep_change *changes, size_t n, bool verbose);

#endif
