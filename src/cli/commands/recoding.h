/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files whose planes are coded, or no longer: pack --entropy of a packed file, convert --plain. */
#ifndef TSR_CLI_RECODING_H
#define TSR_CLI_RECODING_H

#include "cli/cli.h"
#include "pack/packing.h"
#include "report/render/document.h"
#include "tersor/pack.h"

/*
 * Write the one operand again, a packed file or directory or a recording, and report.  @how says which planes
 * are coded, and --model; @strict: as for cli_check_delta().  Exit status.
 */
int cli_recode(const struct cli_cmd *cmd, const struct cli_common *common,
	       struct tsr_recode_options *how, bool strict);

/* A line: what coding gains, or in a dry run that it is not known. */
void cli_put_coded(struct tsr_text *out, uint64_t nbytes, uint64_t plain_nbytes, bool dry_run);

/* What a delta's planes became, with -v each of them, and the member "delta"; nothing without one. */
void cli_report_delta(struct tsr_report *r, const struct tsr_checkpoint *source,
		      const struct tsr_written_delta *d);

/* Which planes --entropy means, if it is given. */
enum tsr_coded_planes cli_coded_planes(const struct cli_optional *entropy);

/* Misuse if @base is a packed directory, naming a file of it: with @model one with the weights alone. */
int cli_check_base(const struct cli_cmd *cmd, const char *base, bool model);

/*
 * Warn if none of a delta's planes uses its base, which with @strict is CLI_DIFFERS, and if it was written
 * away from @base; NULL: whoever reads it names the base.
 */
int cli_check_delta(const struct cli_common *common, const struct tsr_checkpoint *source,
		    const struct tsr_written_delta *d, const char *base, bool strict);

#endif
