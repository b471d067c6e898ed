/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of momenta that are matrices, for low-rank codecs. */
#ifndef TSR_LEARN_FACTORS_H
#define TSR_LEARN_FACTORS_H

#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"

/*
 * Give each momentum of @c that a low-rank codec can hold its factors, unless they have them, as the codec's
 * plane has them; kinds are known.  Reads each momentum five times.  The bits depend on neither threads nor
 * the processor; the factors of a matrix with an element that is not finite are 0.
 */
enum tsr_status tsr_factors_find(struct tsr_checkpoint *c, const struct tsr_run *run,
				 struct tsr_err *err);

#endif
