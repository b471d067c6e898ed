/* SPDX-License-Identifier: Apache-2.0 */
/* The charts and the page of replays in several states. */
#ifndef TSR_STATES_CHART_H
#define TSR_STATES_CHART_H

#include "report/charts/replay_curves.h"
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

/* The curves of all states, to be freed; false if out of memory. */
struct tsr_states_curves {
	const struct tsr_replay_states *states;
	struct tsr_curves curves[TSR_REPLAY_FORMS_MAX];
};

bool tsr_states_curves_find(struct tsr_states_curves *c, const struct tsr_replay_states *s);
void tsr_states_curves_free(struct tsr_states_curves *c);

/* The svg element of struct tsr_states_curves. */
tsr_chart_put tsr_states_curves_put;

#endif
