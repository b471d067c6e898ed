/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the gradients of one step, from one file or one per rank. */
#ifndef TSR_RECORDING_OPEN_STEP_H
#define TSR_RECORDING_OPEN_STEP_H

#include "tersor/recording.h"

/* Put the number of step @index into the message in @err, which may be NULL, unless it is there. */
void tsr_recording_name_step(const struct tsr_recording *r, size_t index, struct tsr_err *err);

#endif
