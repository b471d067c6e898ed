/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_REPLAY_TABLE_H
#define TSR_CLI_REPLAY_TABLE_H

#include "cli/cli.h"
#include "tersor/replay.h"

/*
 * What was replayed and what became of it, on stdout, at most 80 columns.  Of many steps and
 * tensors a selection; with -v all.
 */
void cli_replay_table(const struct tsr_replay *r, const struct cli_common *common);

#endif
