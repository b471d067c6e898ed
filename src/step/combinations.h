/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs of momentum and variance go with which rule. */
#ifndef TSR_STEP_COMBINATIONS_H
#define TSR_STEP_COMBINATIONS_H

#include "tersor/codec.h"
#include "tersor/optimizer.h"

/*
 * Why a step cannot have these codecs, in words; NULL if it can.  @momentum and @variance are NULL where the
 * rule keeps none.
 */
const char *tsr_step_refusal(enum tsr_optimizer optimizer, enum tsr_order order,
			     const struct tsr_codec *momentum, const struct tsr_codec *variance);

#endif
