/* SPDX-License-Identifier: Apache-2.0 */
/* Replays in parts: processes that each take some tiles through all steps. */
#ifndef TSR_REPLAY_REPLAY_PARTS_H
#define TSR_REPLAY_REPLAY_PARTS_H

#include "parts/parted_pipeline.h"
#include "replay/replaying.h"

/*
 * Run a pipeline whose jobs are the tiles of a replay, and whose context begins with a pointer to the replay.
 * In parts each has the same tiles every time; the rest is as in struct tsr_parted.
 */
typedef void tsr_replay_restore_fn(void *ctx, void *scratch, uint64_t job);
enum tsr_status tsr_replay_run_tiles(struct tsr_pipeline pipeline, size_t found_at,
				     size_t found_nbytes, tsr_replay_restore_fn *restore);

/* What cannot be done in parts: TSR_E_UNSUPPORTED. */
enum tsr_status tsr_replay_check_parts(const struct tsr_replaying *r);

/* Name the checkpoint and @n steps as the inputs of the jobs that follow. */
enum tsr_status tsr_replay_name_steps(const struct tsr_replaying *r,
				      struct tsr_checkpoint *const steps[], unsigned n);

/*
 * After the last step of a replay with an output: a part leaves the state of its tiles in its report, where
 * the joining process reads that of all tiles.
 */
enum tsr_status tsr_replay_keep_state(struct tsr_replaying *r);

/* After the last tile: TSR_PART_DONE ends a part's replay.  Who joins goes on as one process. */
enum tsr_status tsr_replay_end_part(struct tsr_replaying *r);

#endif
