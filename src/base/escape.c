/* SPDX-License-Identifier: Apache-2.0 */
/* Text from files, made safe to print. */
#include "tersor/escape.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

/*
 * Bidirectional controls can reorder what a terminal shows: U+202A..202E and U+2066..2069.  U+2028 and
 * U+2029 end lines, and U+FEFF is not seen.
 */
static int is_unsafe(uint32_t codepoint)
{
	return codepoint < 0x20 || (codepoint >= 0x7f && codepoint < 0xa0) ||
	       (codepoint >= 0x2028 && codepoint <= 0x202e) || codepoint == 0xfeff ||
	       (codepoint >= 0x2066 && codepoint <= 0x2069);
}

void tsr_escape(char *dst, size_t dst_nbytes, const char *src)
{
	static const char hex[] = "0123456789abcdef";
	const size_t room = dst_nbytes - 1;
	size_t at = 0, fits = 0; /* `fits`: where "..." still has room */
	size_t left = strlen(src);

	while (left) {
		uint32_t codepoint;
		size_t len = tsr_utf8_next(src, left, &codepoint);
		const int unsafe = !len || is_unsafe(codepoint);
		const size_t need = unsafe ? 4 * (len ? len : 1) : len;

		if (!len)
			len = 1;
		if (at + need > room) {
			at = fits;
			for (int i = 0; i < 3 && at < room; i++)
				dst[at++] = '.';
			break;
		}
		for (size_t i = 0; i < len; i++) {
			const unsigned char byte = (unsigned char)src[i];

			if (!unsafe) {
				dst[at++] = (char)byte;
				continue;
			}
			dst[at++] = '\\';
			dst[at++] = 'x';
			dst[at++] = hex[byte >> 4];
			dst[at++] = hex[byte & 15];
		}
		if (at + 3 <= room)
			fits = at;
		src += len;
		left -= len;
	}
	dst[at] = '\0';
}
