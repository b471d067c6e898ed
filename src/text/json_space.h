/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces between the values of a JSON text. */
#ifndef TSR_TEXT_JSON_SPACE_H
#define TSR_TEXT_JSON_SPACE_H

#include <stddef.h>

/* Where a text goes on behind the spaces at @at, if there are any. */
static inline size_t tsr_json_after_space(const char *text, size_t nbytes, size_t at)
{
	while (at < nbytes &&
	       (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
		at++;
	return at;
}

#endif
