/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of 8-bit and 4-bit optimizers with a table: a code per element and an F32 scale per group;
 * the value is table[code] * scale (bitsandbytes 8-bit optimizers, "dynamic" maps; torchao).  Of codes of
 * 4 bits the first of two elements is in the upper half of a byte.  Only decoded: it is not a row of
 * codec/list.h.  Each tensor may have a table of its own.
 */
#ifndef TSR_CODEC_CODEBOOK_H
#define TSR_CODEC_CODEBOOK_H

#include "tersor/codec.h"

struct tsr_codebook {
	struct tsr_codec codec; /* first: a coding points to it */
	float table[256];
};

/* Everything but the table; @halves: codes of 4 bits. */
void tsr_codebook_init(struct tsr_codebook *c, bool halves);

#endif
