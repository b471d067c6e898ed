/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the inputs of a command from others, from their headers alone. */
#ifndef TSR_CKPT_FINGERPRINT_H
#define TSR_CKPT_FINGERPRINT_H

#include "ckpt/checkpoint_model.h"

/*
 * A hash of what the headers of a checkpoint's files say, and of the sizes and times of the files: elements
 * that were written anew keep the header and change the time.  @seed: the hash of what goes before.
 */
uint64_t tsr_checkpoint_fingerprint(const struct tsr_checkpoint *c, uint64_t seed);

#endif
