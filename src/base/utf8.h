/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strictly. */
#ifndef TSR_BASE_UTF8_H
#define TSR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Decode the UTF-8 sequence at the start of `nbytes` bytes.  Returns its length (1 to 4) and the
 * code point, or 0 if the bytes are not well formed (overlong forms and surrogates included).
 */
size_t tsr_utf8_next(const char *bytes, size_t nbytes, uint32_t *codepoint_ret);

/* How many bytes from the start are well formed sequences: @nbytes if all are. */
size_t tsr_utf8_prefix(const char *bytes, size_t nbytes);

/* Whether the bytes are UTF-8 without NULs, so that they can be a C string. */
bool tsr_utf8_is_string(const char *bytes, size_t nbytes);

/* Write a code point (not a surrogate, at most 0x10ffff) as UTF-8; returns the length. */
size_t tsr_utf8_put(char out[4], uint32_t codepoint);

#endif
