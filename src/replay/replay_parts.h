/* SPDX-License-Identifier: Apache-2.0 */
/* Replays in parts: processes that each take some tiles through all steps. */
#ifndef TSR_REPLAY_REPLAY_PARTS_H
#define TSR_REPLAY_REPLAY_PARTS_H

#include "parts/parted.h"
#include "replay/replaying.h"
#include "step/step_compare.h"

/*
 * Run a pipeline whose jobs are the tiles of a replay, and whose context begins with a pointer to the replay.
 * In parts each has the same tiles every time.  @found: as in struct tsr_parted.
 */
enum tsr_status tsr_replay_run_tiles(const struct tsr_pipeline *pipeline,
				     void (*found)(void *ctx, void *scratch, uint64_t job,
						   struct tsr_outcome *o));

/* What cannot be done in parts: TSR_E_UNSUPPORTED. */
enum tsr_status tsr_replay_check_parts(const struct tsr_replaying *r);

/* Name the checkpoint and @n steps as the inputs of the jobs that follow. */
enum tsr_status tsr_replay_name_steps(const struct tsr_replaying *r,
				      struct tsr_checkpoint *const steps[], unsigned n);

/* A comparison as an outcome. */
void tsr_compare_outcome(struct tsr_compare *c, struct tsr_outcome *o);

/*
 * After the last step: a part leaves the state of its tiles in a file beside @out, which all parts share; who
 * joins reads that of all tiles.  Nothing if @out is NULL.
 */
enum tsr_status tsr_replay_keep_state(struct tsr_replaying *r, const char *out);

/* After the last tile: TSR_PART_DONE ends a part's replay.  Who joins goes on as one process. */
enum tsr_status tsr_replay_end_part(struct tsr_replaying *r);

#endif
