/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do with files, directories and recordings. */
#ifndef TSR_CLI_OPERATIONS_H
#define TSR_CLI_OPERATIONS_H

#include "base/scope.h"
#include "cli/words.h"
#include "cli/work.h"
#include "pack/packing.h"
#include "recording/recording_summary.h"
#include "report/checkpoints/remarks.h"
#include "sweep/results.h"
#include "tersor/bisect.h"
#include "tersor/directory.h"
#include "tersor/granularity.h"

TSR_OWNED_BY(tsr_bisect_free, struct tsr_bisect)
TSR_OWNED_BY(tsr_directory_close, struct tsr_directory)
TSR_OWNED_BY(tsr_granularities_free, struct tsr_granularities)
TSR_OWNED_BY(tsr_learned_free, struct tsr_learned)
TSR_OWNED_BY(tsr_recording_close, struct tsr_recording)
TSR_OWNED_BY(tsr_recording_summary_free, struct tsr_recording_summary)
TSR_OWNED_BY(tsr_sweep_free, struct tsr_sweep)

/* --- One checkpoint from another: unpack, convert, apply and recoding ------------------------ */

/* What came of that. */
struct cli_unpacking {
	const char *shown; /* what -v shows of tensors; NULL: nothing */
	void (*report)(struct tsr_report *r, const struct tsr_unpacking *u);
	const char *output; /* what the report calls it; NULL: as -o does */
	enum tsr_status written;
	struct tsr_unpacking *u; /* NULL: the work failed, with the error */
	struct tsr_err *err;
	bool differs; /* --strict refuses it */
};

/* Report it; it is freed.  Exit status. */
int cli_end_unpacking(const struct cli_cmd *cmd, const struct cli_common *common,
		      const struct cli_unpacking *done);

/* --- Directories that are packed file by file, recordings that are coded --------------------- */

/* Warnings of pack about a packed file, alone or in a directory. */
typedef void cli_warn_packing(const struct cli_common *common, const struct tsr_packing *p);

/* Whether pack makes a directory: of one directory, unless the output's name is a safetensors file's. */
bool cli_packs_directory(const struct cli_common *common);

/* Whether diff compares two directories file by file. */
bool cli_diffs_directories(const struct cli_common *common);

/* Each does the work of its command and returns the exit status. */
int cli_pack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_pack_options *o, cli_warn_packing *warn);
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

/* --- Planes that are coded, or no longer: pack --entropy, convert --plain -------------------- */

/*
 * Write the one operand again, a packed file or directory or a recording, and report.  @how says which planes
 * are coded, and --model; @strict: as for cli_check_delta().  Exit status.
 */
int cli_recode(const struct cli_cmd *cmd, const struct cli_common *common,
	       struct tsr_recode_options *how, bool strict);

/* Which planes --entropy means; none without it. */
enum tsr_coded_planes cli_coded_planes(const struct cli_optional *entropy);

/* Misuse if @base is a packed directory, naming a file of it: with @model one with the weights alone. */
int cli_check_base(const struct cli_cmd *cmd, const char *base, bool model);

/*
 * Warn if none of a delta's planes uses its base, which with @strict is CLI_DIFFERS, and if it was written
 * away from @base; NULL: whoever reads it names the base.
 */
int cli_check_delta(const struct cli_common *common, const struct tsr_checkpoint *source,
		    const struct tsr_written_delta *d, const char *base, bool strict);

/* --- What pack says when it packed nothing: why, and what to do ------------------------------ */

/*
 * A warning, or with @strict an error and its exit status.  @kept: of all tensors that could be read.
 * @d: the directory whose files were all copied; NULL: the input is one checkpoint
 */
int cli_nothing_packed(const struct cli_common *common, bool strict,
		       const struct tsr_kept_raw *kept, const struct tsr_directory *d);

/* The same of one checkpoint, if no tensor of it has a codec and no plane is coded. */
int cli_check_packed(const struct cli_common *common, const struct tsr_pack_options *o,
		     const struct tsr_packing *p, const struct tsr_kept_raw *kept);

/* --- tersor audit --granularity: 8-bit floats by how many elements share a scale ------------- */

/*
 * Measure and report the tensors of @kinds (a mask; 0: all) of the operands.  @scale: how scales are stored,
 * as --scale has it; NULL: bf16.  Exit status: CLI_DIFFERS if a tensor could not be measured for its values.
 */
int cli_audit_granularity(const struct cli_cmd *cmd, const struct cli_common *common,
			  const char *scale, unsigned kinds);

/* --- tersor sweep --library: a function of somebody else's library --------------------------- */

/*
 * Sweep and report.  @max_ulp: the largest distance allowed, UINT64_MAX: not a bit may differ.  @baseline: a
 * report of the same range, or NULL.  Exit status: CLI_DIFFERS if a result is too far off, or a figure not as
 * it was.
 */
int cli_sweep_library(const struct cli_cmd *cmd, const struct cli_common *common,
		      struct tsr_results_plan *p, uint64_t max_ulp,
		      const struct tsr_json *baseline);

/* --- tersor replay --audit: what each codec would do to the state after every step in FP32 --- */

/* Replay in FP32 on the CPU and audit momenta and variances after each step.  Returns the exit status. */
int cli_replay_audit(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		     struct tsr_replay_options *o);

#endif
