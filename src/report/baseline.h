/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier reports in JSON, read back and compared with. */
#ifndef TSR_REPORT_BASELINE_H
#define TSR_REPORT_BASELINE_H

#include "report/render/document.h"

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

extern const struct tsr_baseline tsr_audit_baseline, tsr_sweep_baseline;

/* Read a report: TSR_E_FORMAT or TSR_E_UNSUPPORTED if it is another.  Free with tsr_json_free(). */
enum tsr_status tsr_baseline_load(const struct tsr_baseline *b, const char *path,
				  struct tsr_json **ret, struct tsr_err *err);

/* The element of an array with this name; NULL if there is none. */
const struct tsr_json *tsr_baseline_find(const struct tsr_json *array, const char *name);

/*
 * Which figures of a report, whose JSON @r has up to its last member, differ from a baseline: puts the first
 * 10,000 behind the text and into the member "moved".
 */
void tsr_baseline_report(const struct tsr_baseline *b, const struct tsr_json *was,
			 struct tsr_report *r);

#endif
