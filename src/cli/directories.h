/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do with a directory that is packed file by file, and with a recording that is coded. */
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

/* Whether diff compares two directories file by file. */
bool cli_diffs_directories(const struct cli_common *common);

/* Each does the work of its command and returns the exit status. */
int cli_pack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_pack_options *o, const struct cli_packing_report *how);
int cli_unpack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_write_options *o);
int cli_inspect_directory(const struct cli_cmd *cmd, const struct cli_common *common);
int cli_verify_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_verify_options *o);
int cli_diff_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_diff_options *o);

/* cli_recode() of a packed directory or a recording. */
int cli_recode_files(const struct cli_cmd *cmd, const struct cli_common *common,
		     const struct tsr_recode_options *how, bool strict);

/* Lines about files that differ and are in no checkpoint, and members as of a directory. */
void cli_report_other_files(struct tsr_report *r, const struct tsr_directory *d);

#endif
