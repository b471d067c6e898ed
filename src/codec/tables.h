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

#endif
