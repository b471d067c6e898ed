/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the same steps in several states, side by side. */
#ifndef TSR_REPORT_STATES_REPORT_H
#define TSR_REPORT_STATES_REPORT_H

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

/* All forms that are asked for. */
void tsr_states_report(const struct tsr_replay_states *s, struct tsr_report *r);

#endif
