/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a recording (docs/recording.md). */
#ifndef TSR_RECORDING_MANIFEST_H
#define TSR_RECORDING_MANIFEST_H

#include "recording/recording_data.h"

/* Fill a recording from the directory's manifest. */
enum tsr_status tsr_recording_read_manifest(struct tsr_recording_data *r, struct tsr_err *err);

#endif
