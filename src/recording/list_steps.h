/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a directory without a manifest, found by the names of its files. */
#ifndef TSR_RECORDING_LIST_STEPS_H
#define TSR_RECORDING_LIST_STEPS_H

#include "recording/recording_data.h"

/* Fill a recording from the names in a directory without a manifest. */
enum tsr_status tsr_recording_list_steps(struct tsr_recording_data *r, struct tsr_err *err);

/*
 * The number of the step in a file's name, the digits before its extension, if it has a name that a
 * step may have.
 */
bool tsr_recording_step_of(const char *name, uint64_t *step_ret);

#endif
