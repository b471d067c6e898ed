/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the same steps in several states, side by side. */
#ifndef TSR_REPLAY_STATES_H
#define TSR_REPLAY_STATES_H

#include "report/document.h"
#include "text/text.h"
#include "tersor/replay.h"

/* What tsr_replay_forms() gave for which forms. */
struct tsr_replay_states {
	unsigned n;
	const struct tsr_replay_form *form;
	struct tsr_replay *const *replay;
};

/* Bytes per parameter that a state takes, without those of the comparison. */
double tsr_state_bytes(const struct tsr_replay *r);

/* The last step that was compared; SIZE_MAX: none. */
size_t tsr_states_last(const struct tsr_replay *r);

/* At most 80 columns: a line per state. */
void tsr_states_put_table(const struct tsr_replay_states *s, struct tsr_text *out);

/* The member "states": of each its name and what tsr_replay_put_json() puts. */
void tsr_states_put_json(const struct tsr_replay_states *s, struct tsr_text *json);

/* As tsr_replay_put_csv(), with the state in a column before. */
void tsr_states_put_csv(const struct tsr_replay_states *s, struct tsr_text *csv);

void tsr_states_report(const struct tsr_replay_states *s, struct tsr_report *r);

#endif
