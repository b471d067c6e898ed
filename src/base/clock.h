/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that durations are measured with. */
#ifndef TSR_BASE_CLOCK_H
#define TSR_BASE_CLOCK_H

#include <time.h>

/* Seconds of a clock that only goes forward. */
static inline double tsr_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
