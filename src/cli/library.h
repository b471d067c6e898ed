/* SPDX-License-Identifier: Apache-2.0 */
/* A function of somebody else's library, or a kernel, over FP32 bit patterns, in child processes. */
#ifndef TSR_CLI_LIBRARY_H
#define TSR_CLI_LIBRARY_H

#include "sweep/results.h"
#include "tersor/run.h"

/* What such a function is: results of type @out for @n numbers, which are its alone for the call. */
typedef void cli_library_fn(const float *in, void *out, size_t n);

/* What to compare, and where. */
struct cli_library_plan {
	const char *library; /* path */
	bool on_gpu; /* it has kernels, for this GPU */
	unsigned gpu;
	const char *symbol;
	enum tsr_dtype out;
	const char *against; /* another symbol of it; NULL: @codec */
	const struct tsr_codec *codec; /* its first plane; with TSR_F32 what it decodes */
	uint32_t first, last;
	unsigned timeout_s; /* for a call, of at most 65,536 numbers */
};

/*
 * Run it in as many child processes as @run has threads.  They read and write nothing of this process but
 * counts; memory behind the arrays of a call is not theirs; what they print goes to the standard error.
 * Progress counts 4 bytes per pattern.  Not while other threads run: it forks.
 *
 * Returns TSR_E_FORMAT if the library cannot be loaded, lacks a symbol, crashes, ends its process or does
 * not return in time, and names it; TSR_E_IO; TSR_E_CANCELLED.
 */
enum tsr_status cli_library_run(const struct cli_library_plan *plan, const struct tsr_run *run,
				struct tsr_results *ret, struct tsr_err *err);

#endif
