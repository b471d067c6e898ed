/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State as COAT's program keeps it with range expansion: an FP8 code per element, and per group F32
 * values s, k and c; the element is sign * |code * s|^(1/k) * c.  Only decoded: it is not a row of
 * codec/list.h, whose e4m3x and e5m2x need one F32 and one byte per group.
 */
#ifndef TSR_CODEC_COAT_STATE_H
#define TSR_CODEC_COAT_STATE_H

#include "tersor/codec.h"

#define TSR_COAT_GROUP 128u /* its default */

/* The codec of codes of type TSR_F8_E4M3 or TSR_F8_E5M2; NULL for others.  Static storage. */
const struct tsr_codec *tsr_coat_codec(enum tsr_dtype codes);

#endif
