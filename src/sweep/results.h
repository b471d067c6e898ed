/* SPDX-License-Identifier: Apache-2.0 */
/* Results of two functions of one FP32 number, compared for a range of bit patterns. */
#ifndef TSR_SWEEP_RESULTS_H
#define TSR_SWEEP_RESULTS_H

#include "tersor/dtype.h"
#include "tersor/sweep.h"

/* Differing results that are kept, those of the lowest bit patterns. */
#define TSR_RESULTS_FIRST 10u

/* How the results for the bit patterns of one exponent field compare; all zeros: there are none. */
struct tsr_results_row {
	uint64_t count; /* bit patterns */
	uint64_t different; /* results that differ in a bit; two NaN do not, whatever their bits */
	uint64_t nan; /* of these: one is NaN and the other is not */
	uint64_t max_ulp; /* of the others that differ; -0 and +0 are 0 apart */
	uint32_t worst; /* the lowest pattern with that distance */
};

/* A result that differs. */
struct tsr_different {
	uint32_t input;
	uint32_t found, expected; /* bits of the output type */
	uint64_t ulp;
	bool nan; /* one of them is NaN: there is no distance */
};

struct tsr_results {
	struct tsr_results_row
		rows[TSR_SWEEP_ROWS]; /* by exponent field of the input; signs together */
	unsigned nfirst;
	struct tsr_different first[TSR_RESULTS_FIRST]; /* ascending by input */
};

/* What is compared: a function of a library with a codec or another function of it. */
struct tsr_results_plan {
	const char *library; /* path */
	bool on_gpu; /* it has kernels, for this GPU */
	unsigned gpu;
	const char *symbol;
	enum tsr_dtype out; /* of its results */
	const char *out_name; /* how the user says that */
	const char *against; /* another symbol of it; NULL: @codec */
	const struct tsr_codec *codec; /* its first plane; with TSR_F32 what it decodes */
	uint32_t first, last;
	uint64_t timeout_s; /* for a call, of at most 65,536 numbers */
};

/*
 * Add the results for @n consecutive patterns from @input on, of one exponent field: TSR_F32, TSR_BF16,
 * TSR_F16, or TSR_U8, whose distance is that of the numbers.
 */
void tsr_results_add(struct tsr_results *f, enum tsr_dtype out, uint32_t input, const void *found,
		     const void *expected, size_t n);

/* Add what @from has: the outcome does not depend on the order. */
void tsr_results_merge(struct tsr_results *into, const struct tsr_results *from);

/* All rows in one. */
struct tsr_results_row tsr_results_total(const struct tsr_results *f);

#endif
