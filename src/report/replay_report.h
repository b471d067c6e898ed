/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a replay. */
#ifndef TSR_REPORT_REPLAY_REPORT_H
#define TSR_REPORT_REPLAY_REPORT_H

#include "report/render/document.h"
#include "tersor/replay.h"

#define TSR_REPLAY_SCHEMA "tersor.replay.v1"

/* All forms that are asked for.  Of many steps and tensors text and page have a selection. */
void tsr_replay_report(const struct tsr_replay *replay, struct tsr_report *r);

/* --- Parts, for reports of several states ----------------------------------------------------- */

/* The members of a JSON report besides "schema". */
void tsr_replay_put_json(const struct tsr_replay *replay, struct tsr_text *json);

/* Names of columns; lines per step and parameter, and one per step for all ("*").  @state: put before. */
void tsr_replay_put_csv_names(const char *before, struct tsr_text *csv);
void tsr_replay_put_csv(const struct tsr_replay *replay, const char *state, struct tsr_text *csv);

/* What was replayed, and the gate that failed, if one did.  @state: its name where there are several. */
void tsr_replay_report_facts(const struct tsr_replay *replay, bool state, struct tsr_report *r);
void tsr_replay_report_gate(const struct tsr_replay *replay, const char *state,
			    struct tsr_report *r);

#endif
