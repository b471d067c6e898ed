/* SPDX-License-Identifier: Apache-2.0 */
/* What pack says when it packed nothing: why, and what to do. */
#ifndef TSR_CLI_NOTHING_PACKED_H
#define TSR_CLI_NOTHING_PACKED_H

#include "cli/cli.h"
#include "report/packing/kept_raw.h"
#include "tersor/directory.h"

/*
 * A warning, or with @strict an error and its exit status.  @kept: of all tensors that could be read.
 * @d: the directory whose files were all copied; NULL: the input is one checkpoint
 */
int cli_nothing_packed(const struct cli_common *common, bool strict,
		       const struct tsr_kept_raw *kept, const struct tsr_directory *d);

/* The same of one checkpoint, if no tensor of it has a codec and no plane is coded. */
int cli_check_packed(const struct cli_common *common, const struct tsr_pack_options *o,
		     const struct tsr_packing *p, const struct tsr_kept_raw *kept);

#endif
