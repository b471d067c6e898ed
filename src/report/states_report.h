/* SPDX-License-Identifier: Apache-2.0 */
/* Replays of the same steps in several states, side by side. */
#ifndef TSR_REPORT_STATES_REPORT_H
#define TSR_REPORT_STATES_REPORT_H

#include "report/charts/states_chart.h"
#include "report/render/document.h"

/* All forms that are asked for. */
void tsr_states_report(const struct tsr_replay_states *s, struct tsr_report *r);

#endif
