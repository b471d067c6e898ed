/* SPDX-License-Identifier: Apache-2.0 */
/* How many steps each parameter has seen. */
#ifndef TSR_REPLAY_COUNTERS_H
#define TSR_REPLAY_COUNTERS_H

#include "replay/replaying.h"

/* Find how many steps each parameter has seen before the first. */
enum tsr_status tsr_replay_read_counts(struct tsr_replaying *r);

/* Put the counts, and the number of the last step, into the checkpoint. */
enum tsr_status tsr_replay_write_counts(struct tsr_replaying *r);

#endif
