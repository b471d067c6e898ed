/* SPDX-License-Identifier: Apache-2.0 */
/* Dealing jobs to parts by their bytes. */
#include "parts/dealing.h"

#include "base/fail.h"
#include "base/order.h"

/* An empty tensor is a job too. */
static uint64_t weigh(const struct tsr_deal *d, uint64_t job)
{
	const uint64_t nbytes = d->weigh(d->ctx, job);

	return nbytes ? nbytes : 1;
}

TSR_COMPARE(by_value, uint64_t, TSR_ORDER(*a, *b))

/* The level up to which @more bytes fill parts that have @sorted: rounded down. */
static uint64_t level_of(const uint64_t *sorted, unsigned n, uint64_t more)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		sum += sorted[i];
		if (i + 1 == n || (sum + more) / (i + 1) <= sorted[i + 1])
			return (sum + more) / (i + 1);
	}
	return 0;
}

/* Jobs from @first on that go to one part together; returns where they end. */
static uint64_t take_unit(const struct tsr_deal *d, uint64_t first, uint64_t *nbytes_ret)
{
	uint64_t job = first;

	*nbytes_ret = 0;
	do {
		*nbytes_ret += weigh(d, job++);
	} while (job < d->njobs && d->divides && !d->divides(d->ctx, job));
	return job;
}

/* @end: where the share of each part ends, in bytes.  A unit is of the part that has its middle. */
static void deal_units(const struct tsr_deal *d, const uint64_t *end, uint64_t *load, unsigned n,
		       unsigned number, struct tsr_job_range *ret)
{
	uint64_t at = 0, nbytes;
	unsigned part = 0;

	*ret = (struct tsr_job_range){ .first = 0 };
	for (uint64_t job = 0, next; job < d->njobs; job = next) {
		next = take_unit(d, job, &nbytes);
		while (part + 1 < n && at + nbytes / 2 >= end[part])
			part++;
		if (part + 1 == number && !ret->nbytes)
			ret->first = job;
		if (part + 1 == number) {
			ret->end = next;
			ret->nbytes += nbytes;
		}
		if (part + 1 < number)
			ret->first = ret->end = next;
		load[part] += nbytes;
		at += nbytes;
	}
}

enum tsr_status tsr_deal_jobs(const struct tsr_deal *deal, uint64_t *load, unsigned n,
			      unsigned number, struct tsr_job_range *ret, struct tsr_err *err)
{
	TSR_OWNED(free) uint64_t *end = NULL;
	uint64_t total = 0, at = 0, level;

	TSR_TRY(TSR_NEW(&end, n, err, "parts"));
	for (uint64_t job = 0; job < deal->njobs; job++)
		total += weigh(deal, job);
	memcpy(end, load, n * sizeof(*end));
	qsort(end, n, sizeof(*end), by_value);
	level = level_of(end, n, total);
	for (unsigned i = 0; i < n; i++) {
		at += level > load[i] ? level - load[i] : 0;
		end[i] = at;
	}
	deal_units(deal, end, load, n, number, ret);
	return TSR_OK;
}
