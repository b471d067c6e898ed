/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and JSON of the files of a directory. */
#ifndef TSR_CLI_DIRECTORY_REPORT_H
#define TSR_CLI_DIRECTORY_REPORT_H

#include "cli/cli.h"
#include "report/summary.h"
#include "tersor/directory.h"

/* Bytes of all files before and after packing, and how many there are. */
struct cli_directory_sizes {
	uint64_t nbytes, stored_nbytes;
	size_t npacked, ncopied, ndirectories;
};

struct cli_directory_sizes cli_directory_sizes(const struct tsr_directory *d);

/*
 * The members that count files, "totals" and "by_kind" unless @totals is NULL, and "files"; in text the
 * columns @shown of the files, NULL: none.
 */
void cli_report_files(struct tsr_report *r, const struct tsr_directory *d,
		      struct tsr_summary *totals, const char *shown);

/*
 * The same with lines of entries with a fault in text, or with -v of all; @lead says that it is one, NULL:
 * no lines.
 */
void cli_report_faults(struct tsr_report *r, const struct tsr_directory *d, const char *lead);

#endif
