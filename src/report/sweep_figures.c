/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of one row of a sweep, by their names in reports. */
#include "report/sweep_figures.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
	const char *name;
	size_t at;
} counts[] = {
	{ "count", offsetof(struct tsr_sweep_row, count) },
	{ "exact", offsetof(struct tsr_sweep_row, exact) },
	{ "overflow", offsetof(struct tsr_sweep_row, overflow) },
	{ "nan_in", offsetof(struct tsr_sweep_row, nan_in) },
	{ "nan_out", offsetof(struct tsr_sweep_row, nan_out) },
	{ "compared", offsetof(struct tsr_sweep_row, compared) },
};

_Static_assert(sizeof(counts) / sizeof(*counts) == TSR_SWEEP_COUNTS, "a name for each count");

const char *tsr_sweep_count_name(unsigned i)
{
	return counts[i].name;
}

uint64_t tsr_sweep_get_count(const struct tsr_sweep_row *row, unsigned i)
{
	return *(const uint64_t *)(const void *)((const char *)row + counts[i].at);
}

void tsr_sweep_format_sum(char out[40], const uint64_t sum[2])
{
	if (sum[1])
		snprintf(out, 40, "%" PRIx64 "%016" PRIx64, sum[1], sum[0]);
	else
		snprintf(out, 40, "%" PRIx64, sum[0]);
}

bool tsr_sweep_row_equal(const struct tsr_sweep_row *a, const struct tsr_sweep_row *b)
{
	for (unsigned i = 0; i < TSR_SWEEP_COUNTS; i++) {
		if (tsr_sweep_get_count(a, i) != tsr_sweep_get_count(b, i))
			return false;
	}
	return a->rel_sum[0] == b->rel_sum[0] && a->rel_sum[1] == b->rel_sum[1] &&
	       !(a->max_rel < b->max_rel) && !(a->max_rel > b->max_rel) && a->max_ulp == b->max_ulp;
}
