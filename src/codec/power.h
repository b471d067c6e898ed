/* SPDX-License-Identifier: Apache-2.0 */
/* Powers of two as correctly rounded floats, in integers: what tables of codes are made of. */
#ifndef TSR_CODEC_POWER_H
#define TSR_CODEC_POWER_H

#include <stdint.h>

/* A number with 64 bits behind the point. */
__extension__ typedef __int128 tsr_fixed64;

#define TSR_FIXED64_1 ((tsr_fixed64)1 << 64)

/* log2(n) for n from 1 to 63, within 2^-64. */
tsr_fixed64 tsr_fixed64_log2(unsigned n);

/* log2(x) of a finite x > 0, within 2^-58. */
tsr_fixed64 tsr_fixed64_log2_of(float x);

/*
 * 2^a rounded to nearest even, subnormal numbers kept, to infinity past FLT_MAX.  The error before that
 * is below 2^-58 of the result: tests/test_tables.py shows that it is correctly rounded wherever tables
 * need it.
 */
float tsr_exp2_rounded(tsr_fixed64 a);

#endif
