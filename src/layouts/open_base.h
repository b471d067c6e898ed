/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the base of a delta that is being read. */
#ifndef TSR_LAYOUTS_OPEN_BASE_H
#define TSR_LAYOUTS_OPEN_BASE_H

#include "tersor/checkpoint.h"

/*
 * What opens a checkpoint, deltas of a chain among them: @depth is the most that it may be deep.  @later: a
 * base that is not packed is not read now.
 */
typedef enum tsr_status tsr_open_fn(const char *const *paths, unsigned npaths,
				    const struct tsr_open_options *options, unsigned depth,
				    bool later, struct tsr_checkpoint **ret, struct tsr_err *err);

/*
 * If @c is a delta, open what it differs from with @opener, check that it is the base that @c names, and link
 * them; c->base owns it, also on failure.  @depth and @later as above.
 */
enum tsr_status tsr_open_base(struct tsr_checkpoint *c, const struct tsr_open_options *options,
			      unsigned depth, bool later, tsr_open_fn *opener, struct tsr_err *err);

#endif
