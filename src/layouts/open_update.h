/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a delta whose base is read only once, while it is decoded. */
#ifndef TSR_LAYOUTS_OPEN_UPDATE_H
#define TSR_LAYOUTS_OPEN_UPDATE_H

#include "tersor/checkpoint.h"

/*
 * tsr_checkpoint_open() of one file, but if it is a delta whose base is not packed, nobody knows that this is
 * the base until tsr_delta_prove() says so.
 */
enum tsr_status tsr_update_open(const char *path, const struct tsr_open_options *options,
				struct tsr_checkpoint **ret, struct tsr_err *err);

#endif
