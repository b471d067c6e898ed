/* SPDX-License-Identifier: Apache-2.0 */
/* A function of somebody else's library, or a kernel, over FP32 bit patterns, in child processes. */
#ifndef TSR_CLI_LIBRARY_H
#define TSR_CLI_LIBRARY_H

#include "sweep/results.h"
#include "tersor/run.h"

/* What such a function is: results of type @out for @n numbers, which are its alone for the call. */
typedef void cli_library_fn(const float *in, void *out, size_t n);

/*
 * Run it in as many child processes as @run has threads.  They read and write nothing of this process but
 * counts; memory behind the arrays of a call is not theirs; what they print goes to the standard error.
 * Progress counts 4 bytes per pattern.  Not while other threads run: it forks.
 *
 * Returns TSR_E_FORMAT if the library cannot be loaded, lacks a symbol, crashes, ends its process or does
 * not return in time, and names it; TSR_E_IO; TSR_E_CANCELLED.
 */
enum tsr_status cli_library_run(const struct tsr_results_plan *plan, const struct tsr_run *run,
				struct tsr_results *ret, struct tsr_err *err);

#endif
