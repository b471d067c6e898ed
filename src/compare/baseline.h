/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier reports in JSON, read back and compared with. */
#ifndef TSR_COMPARE_BASELINE_H
#define TSR_COMPARE_BASELINE_H

#include "text/json.h"

/* How the reports of a command are compared. */
struct tsr_baseline {
	const char *schema;
	const char *list; /* the member that a report must have, an array */
	/* Members of a change: the names on the way to a figure; what is left of them is its "figure". */
	const char *names[2];
	/* Members that follow from the others of their object, and so are compared where those are equal. */
	const char *derived[2];
	bool named; /* elements of arrays have names, and only the baseline's list may have more of them */
};

extern const struct tsr_baseline tsr_audit_baseline, tsr_sweep_baseline, tsr_results_baseline;

/* Read a report: TSR_E_FORMAT or TSR_E_UNSUPPORTED if it is another.  Free with tsr_json_free(). */
enum tsr_status tsr_baseline_load(const struct tsr_baseline *b, const char *path,
				  struct tsr_json **ret, struct tsr_err *err);

/* The element of an array with this name; NULL if there is none. */
const struct tsr_json *tsr_baseline_find(const struct tsr_json *array, const char *name);

/* A figure that is not as it was. */
struct tsr_baseline_change {
	const char *name[2]; /* by names[] of the baseline; NULL: it has none */
	char figure[200];
	char was[48], now[48]; /* "none": it is not there */
};

typedef void tsr_baseline_each(void *ctx, const struct tsr_baseline_change *change);

/* Call @each for all figures of a report that differ, of which *n_ret is the number; false: out of memory. */
bool tsr_baseline_compare(const struct tsr_baseline *b, const struct tsr_json *was,
			  const struct tsr_text *now, tsr_baseline_each *each, void *ctx,
			  size_t *n_ret);

#endif
