/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State as Gefen's program keeps it: of a momentum indices into a codebook and a magnitude per block, of
 * a variance a mean per block, in the type that gradients had.  Only decoded: gefen8 and blockmean of
 * codec/list.h have FP32 there.
 */
#ifndef TSR_CODEC_GEFEN_STATE_H
#define TSR_CODEC_GEFEN_STATE_H

#include "tersor/codec.h"

struct tsr_gefen_state {
	struct tsr_codec codec; /* first: a coding points to it */
	float table[256];
};

/* The codec of momenta with magnitudes of @dtype: F32, BF16 or F16; everything but the table. */
void tsr_gefen_state_init(struct tsr_gefen_state *s, enum tsr_dtype dtype);

/* The codec of variances with means of @dtype: F32, BF16 or F16; NULL for others.  Static storage. */
const struct tsr_codec *tsr_gefen_means(enum tsr_dtype dtype);

#endif
