/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of momenta that are matrices, for low-rank codecs. */
#ifndef TSR_LEARN_FACTORS_H
#define TSR_LEARN_FACTORS_H

#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"

/* The rank that factors need for a coding, too, where others need @rank. */
static inline unsigned tsr_factor_rank(const struct tsr_coding *coding, unsigned rank)
{
	return coding->codec && coding->codec->rank > rank ? coding->codec->rank : rank;
}

/*
 * Give each momentum of @c that a low-rank codec can hold its factors, as the plane of a codec of @rank has
 * them, and so of one of a lower rank, unless they have them; kinds are known.  A rank of 0 needs none.
 * Reads each momentum five times for each stage.  The bits depend on neither threads nor the processor; the
 * factors of a matrix with an element that is not finite are 0.
 */
enum tsr_status tsr_factors_find(struct tsr_checkpoint *c, unsigned rank, const struct tsr_run *run,
				 struct tsr_err *err);

#endif
