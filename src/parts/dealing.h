/* SPDX-License-Identifier: Apache-2.0 */
/* Dealing jobs to parts by their bytes. */
#ifndef TSR_PARTS_DEALING_H
#define TSR_PARTS_DEALING_H

#include <stdbool.h>
#include <stdint.h>

#include "tersor/status.h"

/*
 * Jobs to be dealt, in their order.  @weigh is the bytes of one; @divides says whether a part may begin with
 * it, NULL: with any.
 */
struct tsr_deal {
	uint64_t njobs;
	uint64_t (*weigh)(void *ctx, uint64_t job);
	bool (*divides)(void *ctx, uint64_t job);
	void *ctx;
};

/* Consecutive jobs: @first to @end - 1, which can be none. */
struct tsr_job_range {
	uint64_t first, end;
	uint64_t nbytes;
};

/*
 * Deal jobs to @n parts, each consecutive ones, so that with the bytes that @load says they have already all
 * parts have as many as can be; adds what they get to @load.  Nothing but the numbers decides, so whoever
 * deals the same jobs gets the same.  *@ret is what part @number (from 1 on) gets.
 */
enum tsr_status tsr_deal_jobs(const struct tsr_deal *deal, uint64_t *load, unsigned n,
			      unsigned number, struct tsr_job_range *ret, struct tsr_err *err);

#endif
