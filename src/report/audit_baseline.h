/* SPDX-License-Identifier: Apache-2.0 */
/* Earlier reports of audits: read back and compared with. */
#ifndef TSR_REPORT_AUDIT_BASELINE_H
#define TSR_REPORT_AUDIT_BASELINE_H

#include "text/json.h"
#include "text/text.h"

/* Read a report: TSR_E_FORMAT or TSR_E_UNSUPPORTED if it is none of an audit.  Free with tsr_json_free(). */
enum tsr_status tsr_audit_load(const char *path, struct tsr_json **ret, struct tsr_err *err);

/* A figure that changed. */
struct tsr_audit_change {
	char where[200]; /* "wte.weight.exp_avg: sqrt8: nmse" */
	char was[48], now[48]; /* as JSON; "none" where only the other report has it */
};

/*
 * What differs between two reports, but for the paths of files: *n_ret changes, of which *ret has the first
 * TSR_AUDIT_CHANGES_MAX, to be freed.  False if memory ran out.
 */
#define TSR_AUDIT_CHANGES_MAX 10000u
bool tsr_audit_compare(const struct tsr_json *was, const struct tsr_json *now,
		       struct tsr_audit_change **ret, size_t *n_ret);

/* Lines on the changes, at most 20 unless @verbose. */
void tsr_audit_put_changes(const struct tsr_audit_change *changes, size_t n, unsigned verbose,
			   struct tsr_text *out);

/* The same as the member "moved". */
void tsr_audit_put_moved(const struct tsr_audit_change *changes, size_t n, struct tsr_text *json);

#endif
