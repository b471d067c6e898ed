/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the inputs of a command from others, by their headers and by what is read of them. */
#ifndef TSR_CKPT_FINGERPRINT_H
#define TSR_CKPT_FINGERPRINT_H

#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"

/*
 * Name @n inputs of the jobs that follow, for tsr_part_inputs(); a NULL among them is none.  Nothing where
 * @run is not done in parts.  Compared are what the headers say, the sizes and times of the files, and places
 * in each array whose bytes no checksum of its file names.  @seed: the hash of what goes before.
 */
enum tsr_status tsr_inputs_name(const struct tsr_checkpoint *const c[], size_t n, uint64_t seed,
				const struct tsr_run *run, struct tsr_err *err);

#endif
