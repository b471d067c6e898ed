/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of a replay that both people and programs see. */
#ifndef TSR_REPORT_REPLAY_TABLES_H
#define TSR_REPORT_REPLAY_TABLES_H

#include "report/charts/replay_curves.h"
#include "report/render/table.h"

/* Totals by step: figures as they are, and curves as people see them. */
struct tsr_table tsr_replay_steps_table(const struct tsr_replay *r, const struct tsr_curves *c);

/* Learning rates that are too small for the largest weights; parameters without a gradient. */
struct tsr_table tsr_replay_warnings(const struct tsr_replay *r);
struct tsr_table tsr_replay_missing_table(const struct tsr_replay *r);

#endif
