/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strictly. */
#ifndef TSR_BASE_UTF8_H
#define TSR_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/*
 * Decode the UTF-8 sequence at the start of `nbytes` bytes.  Returns its length (1 to 4) and the
 * code point, or 0 if the bytes are not well formed (overlong forms and surrogates included).
 */
size_t tsr_utf8_next(const char *bytes, size_t nbytes, uint32_t *codepoint_ret);

/* Write a code point (not a surrogate, at most 0x10ffff) as UTF-8; returns the length. */
size_t tsr_utf8_put(char out[4], uint32_t codepoint);

#endif
