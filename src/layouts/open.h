/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what tsr_checkpoint_open() does not: a delta that is applied, and the state of a running job. */
#ifndef TSR_LAYOUTS_OPEN_H
#define TSR_LAYOUTS_OPEN_H

#include "tersor/checkpoint.h"
#include "tersor/saving.h"

/*
 * tsr_checkpoint_open() of one file, but if it is a delta whose base is not packed, nobody knows that this is
 * the base until tsr_delta_prove() says so.
 */
enum tsr_status tsr_update_open(const char *path, const struct tsr_open_options *options,
				struct tsr_checkpoint **ret, struct tsr_err *err);

/* A checkpoint without files: the offset of an array, or of its chunk, is the number of the job's tensor. */
enum tsr_status tsr_job_open(const struct tsr_job_state *state, const struct tsr_open_options *o,
			     struct tsr_checkpoint **ret, struct tsr_err *err);

/* --- Opening the base of a delta that is being read ------------------------------------------- */

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
