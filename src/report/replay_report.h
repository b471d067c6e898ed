/* SPDX-License-Identifier: Apache-2.0 */
/* A replay as tables, as JSON and as comma-separated values. */
#ifndef TSR_REPLAY_REPORT_H
#define TSR_REPLAY_REPORT_H

#include "report/document.h"
#include "text/text.h"
#include "tersor/replay.h"

#define TSR_REPLAY_SCHEMA "tersor.replay.v1"

/* The members of a JSON report besides "schema". */
void tsr_replay_put_json(const struct tsr_replay *r, struct tsr_text *json);

/* A line per step and parameter, and one per step for all of them ("*"). */
void tsr_replay_put_csv(const struct tsr_replay *r, struct tsr_text *csv);

/* The names of its columns; and the lines, with @state and a comma before each unless it is NULL. */
void tsr_replay_put_csv_head(struct tsr_text *csv);
void tsr_replay_put_csv_lines(const struct tsr_replay *r, const char *state, struct tsr_text *csv);

/* At most 80 columns.  Of many steps and tensors a selection; with @verbose all. */
void tsr_replay_put_table(const struct tsr_replay *r, bool verbose, struct tsr_text *out);

/*
 * Parts of it: what was replayed, but for the state; and the gate that failed, if one did.  @state: its
 * name where there are several, or NULL.
 */
void tsr_replay_put_head(const struct tsr_replay *r, struct tsr_text *out);
void tsr_replay_put_gate(const struct tsr_replay *r, const char *state, struct tsr_text *out);

/* A figure of @n weights for a table, percentages and infinity included. */
void tsr_replay_format(char out[24], enum tsr_figure_name figure, double value, double n);

void tsr_replay_report(const struct tsr_replay *replay, struct tsr_report *r);

#endif
