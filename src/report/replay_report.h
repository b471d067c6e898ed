/* SPDX-License-Identifier: Apache-2.0 */
/* A replay as JSON and as comma-separated values. */
#ifndef TSR_REPLAY_REPORT_H
#define TSR_REPLAY_REPORT_H

#include "text/text.h"
#include "tersor/replay.h"

#define TSR_REPLAY_SCHEMA "tersor.replay.v1"

/* The members of a JSON report besides "schema". */
void tsr_replay_put_json(const struct tsr_replay *r, struct tsr_text *json);

/* A line per step and parameter, and one per step for all of them ("*"). */
void tsr_replay_put_csv(const struct tsr_replay *r, struct tsr_text *csv);

#endif
