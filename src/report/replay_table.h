/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a replay: what was replayed and how far it is from FP32. */
#ifndef TSR_REPORT_REPLAY_TABLE_H
#define TSR_REPORT_REPLAY_TABLE_H

#include "tersor/replay.h"
#include "text/text.h"

/* At most 80 columns.  Of many steps and tensors a selection; with @verbose all. */
void tsr_replay_put_table(const struct tsr_replay *r, bool verbose, struct tsr_text *out);

#endif
