/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for texts, so that each is hashed and compared once, wherever it is used. */
#ifndef TSR_TEXT_TEXT_NUMBERS_H
#define TSR_TEXT_TEXT_NUMBERS_H

#include "text/map.h"

/* Starts as zeros.  A file may share one long text among very many places: then it has one address. */
struct tsr_text_numbers {
	struct tsr_map by_address, by_text;
	size_t n; /* different texts so far, numbered from 0 */
};

/*
 * The number of a text, which must stay where it is; equal texts have the same.  Again at the same
 * address it costs nothing for its length.  False when out of memory.
 */
bool tsr_text_number(struct tsr_text_numbers *t, const char *bytes, size_t nbytes, size_t *ret);

void tsr_text_numbers_free(struct tsr_text_numbers *t);

#endif
