/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work and its cancellation, in one call. */
#ifndef TSR_BASE_PROGRESS_H
#define TSR_BASE_PROGRESS_H

#include <stdint.h>

#include "tersor/run.h"
#include "tersor/status.h"

/* How far work has come; @run may be NULL.  One thread at a time. */
struct tsr_progress {
	const struct tsr_run *run;
	const char *what; /* the file or recording that a message of cancellation names */
	uint64_t done_nbytes, total_nbytes;
};

/* Add @nbytes to what is done and report it: TSR_E_CANCELLED if the caller wants to stop. */
enum tsr_status tsr_progress_add(struct tsr_progress *p, uint64_t nbytes, struct tsr_err *err);

#endif
