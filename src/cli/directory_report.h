/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and JSON of the files of a directory. */
#ifndef TSR_CLI_DIRECTORY_REPORT_H
#define TSR_CLI_DIRECTORY_REPORT_H

#include "cli/cli.h"
#include "report/summary.h"
#include "tersor/directory.h"
#include "text/text.h"

/* Totals of the tensors in all files, and the worst of them, which outlives its file. */
struct cli_directory_totals {
	struct tsr_summary summary;
	struct tsr_tensor worst;
	char worst_name[200], worst_file[200];
};

/* After the tensors of the file @path were added to the summary: before they are gone. */
void cli_directory_keep_worst(struct cli_directory_totals *totals, const char *path);

/* Bytes of all files before and after packing, and how many there are. */
struct cli_directory_sizes {
	uint64_t nbytes, stored_nbytes;
	size_t npacked, ncopied, ndirectories;
};

struct cli_directory_sizes cli_directory_sizes(const struct tsr_directory *d);

/* A line per file, why files with tensors were copied, and the table of tensors.  Exit status. */
int cli_directory_print(const struct tsr_directory *d, struct cli_directory_totals *totals);

/* What was lost, if anything was. */
void cli_print_losses(const struct tsr_losses *losses);

/* Lines of entries with a fault, which @lead says, or with -v of all. */
void cli_directory_print_faults(const struct cli_common *common, const struct tsr_directory *d,
				const char *lead);

/* The members "files" with every entry, and "totals" and "by_kind" if @totals is given. */
void cli_directory_put_json(struct tsr_text *json, const struct tsr_directory *d,
			    struct cli_directory_totals *totals);

#endif
