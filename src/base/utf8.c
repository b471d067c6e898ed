/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strictly. */
#include "base/utf8.h"

#include <string.h>

size_t tsr_utf8_next(const char *bytes, size_t nbytes, uint32_t *codepoint_ret)
{
	const unsigned char *b = (const unsigned char *)bytes;
	uint32_t cp, least;
	size_t len;

	if (!nbytes)
		return 0;
	if (b[0] < 0x80) {
		*codepoint_ret = b[0];
		return 1;
	}
	if (b[0] >= 0xc2 && b[0] < 0xe0) {
		len = 2;
		cp = b[0] & 0x1f;
		least = 0x80;
	} else if (b[0] >= 0xe0 && b[0] < 0xf0) {
		len = 3;
		cp = b[0] & 0x0f;
		least = 0x800;
	} else if (b[0] >= 0xf0 && b[0] < 0xf5) {
		len = 4;
		cp = b[0] & 0x07;
		least = 0x10000;
	} else {
		return 0;
	}
	if (nbytes < len)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((b[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (b[i] & 0x3f);
	}
	if (cp < least || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		return 0;
	*codepoint_ret = cp;
	return len;
}

size_t tsr_utf8_prefix(const char *bytes, size_t nbytes)
{
	uint32_t codepoint;
	size_t at = 0, len;

	while ((len = tsr_utf8_next(bytes + at, nbytes - at, &codepoint)) != 0)
		at += len;
	return at;
}

bool tsr_utf8_is_string(const char *bytes, size_t nbytes)
{
	return !nbytes ||
	       (!memchr(bytes, '\0', nbytes) && tsr_utf8_prefix(bytes, nbytes) == nbytes);
}

size_t tsr_utf8_put(char out[4], uint32_t cp)
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}
