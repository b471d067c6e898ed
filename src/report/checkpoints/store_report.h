/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a store and its snapshots; @store is the path of one. */
#ifndef TSR_REPORT_CHECKPOINTS_STORE_REPORT_H
#define TSR_REPORT_CHECKPOINTS_STORE_REPORT_H

#include "render/document.h"
#include "tersor/store.h"

/* A snapshot that was added; all of them; what they take; and one that was written as files. */
void tsr_store_added_report(const char *store, const struct tsr_store_added *added,
			    struct tsr_report *r);
void tsr_store_list_report(const struct tsr_store *s, struct tsr_report *r);
void tsr_store_usage_report(const char *store, const struct tsr_store *s, struct tsr_report *r);
void tsr_store_written_report(const struct tsr_snapshot_info *info, struct tsr_report *r);

/* For tsr_store_verify(), tsr_store_diff() and tsr_store_thin(), whose ctx is a table: a row each. */
void tsr_store_put_fault(void *table, const char *what);
void tsr_store_put_difference(void *table, const struct tsr_store_difference *d);
void tsr_store_put_change(void *table, const struct tsr_snapshot_info *before,
			  enum tsr_store_change change, const struct tsr_store_tier *tier);

/* The reports with these tables, which are freed. */
void tsr_store_verified_report(const char *store, const struct tsr_store *s,
			       struct tsr_table faults, struct tsr_report *r);
void tsr_store_compared_report(const struct tsr_store_compared *c, struct tsr_table t,
			       struct tsr_report *r);
void tsr_store_thinned_report(const char *store, const struct tsr_store *s, struct tsr_table t,
			      uint64_t freed, struct tsr_report *r);

#endif
