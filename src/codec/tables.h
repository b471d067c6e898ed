/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of codecs whose codes are tables: codec/table_math.h says how they are used. */
#ifndef TSR_CODEC_TABLES_H
#define TSR_CODEC_TABLES_H

#include "codec/table_math.h"

struct tsr_tables {
	const struct tsr_table_row *row;
	const uint32_t *entry;
	const float *bound; /* TSR_TABLE_ROWS of them where groups choose rows by them; or NULL */
	uint32_t nrows, nentries;
};

/*
 * The tables of a set, in static memory: computed when they are asked for first, which takes some
 * milliseconds for those with a row per exponent.  Thread-safe.
 */
const struct tsr_tables *tsr_tables_get(enum tsr_table_set set);

/* --- 8-bit floats ------------------------------------------------------------------------------ */

/* A format of 8-bit floats: a sign, exponent and significand.  Codes are without their sign. */
struct tsr_fp8_format {
	int fraction; /* bits of the significand behind the point */
	int bias;
	uint32_t ncodes; /* finite ones */
	bool infinite; /* whether the code behind these is an infinity */
};

/* Those of OCP. */
extern const struct tsr_fp8_format tsr_fp8_e4m3, tsr_fp8_e5m2;

/* whole * 2^exponent */
struct tsr_fp8_value {
	unsigned whole;
	int exponent;
};

/* The value of a code; what those from ncodes on stand for, formats say. */
struct tsr_fp8_value tsr_fp8_value(struct tsr_fp8_format f, uint32_t code);

#endif
