/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do with a directory that is packed file by file. */
#ifndef TSR_CLI_DIRECTORIES_H
#define TSR_CLI_DIRECTORIES_H

#include "cli/cli.h"
#include "report/summary.h"
#include "tersor/directory.h"

/* What pack says of a packed file, alone or in a directory. */
struct cli_packing_report {
	void (*warn)(const struct cli_common *common, const struct tsr_packing *p);
	void (*summarize)(const struct tsr_packing *p, struct tsr_summary *s);
};

/* Whether pack makes a directory: of one directory, unless the output's name is a safetensors file's. */
bool cli_packs_directory(const struct cli_common *common);

/* Each does the work of its command and returns the exit status. */
int cli_pack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_pack_options *o, const struct cli_packing_report *how);
int cli_unpack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_write_options *o);
int cli_inspect_directory(const struct cli_cmd *cmd, const struct cli_common *common);
int cli_verify_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_verify_options *o);

/* Whether diff compares two directories file by file. */
bool cli_diffs_directories(const struct cli_common *common);
/* Print what differs of files that are in no checkpoint. */
void cli_print_other_files(const struct cli_common *common, const struct tsr_directory *d);
int cli_diff_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_diff_options *o);

#endif
