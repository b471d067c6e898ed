/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a packed file as if it were a plain one, for those that are joined where they lie. */
#ifndef TSR_RECORDING_PLAIN_PART_H
#define TSR_RECORDING_PLAIN_PART_H

#include "tersor/checkpoint.h"

/*
 * Replace a packed checkpoint of raw tensors by one with the same tensors and metadata, whose data is in a
 * file without a name, which is written when it is first read.  *part is NULL after a failure.
 */
enum tsr_status tsr_recording_plain_part(struct tsr_checkpoint **part, struct tsr_err *err);

#endif
