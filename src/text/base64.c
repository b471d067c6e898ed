/* SPDX-License-Identifier: Apache-2.0 */
/* Base64. */
#include "text/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void tsr_base64_put(struct tsr_text *out, const void *bytes, size_t nbytes)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < nbytes; i += 3) {
		const size_t n = nbytes - i < 3 ? nbytes - i : 3;
		const uint32_t bits = (uint32_t)at[i] << 16 |
				      (uint32_t)(n > 1 ? at[i + 1] : 0) << 8 |
				      (uint32_t)(n > 2 ? at[i + 2] : 0);
		char four[4];

		for (unsigned d = 0; d < 4; d++)
			four[d] = d <= n ? digits[bits >> (18 - 6 * d) & 63] : '=';
		tsr_text_put(out, four, sizeof(four));
	}
}

/* The value of a digit, or 64. */
static uint32_t value_of(char digit)
{
	const char *at = digit ? strchr(digits, digit) : NULL;

	return at ? (uint32_t)(at - digits) : 64;
}

bool tsr_base64_get(struct tsr_text *out, const char *text)
{
	const size_t len = strlen(text);

	if (len % 4)
		return false;
	for (size_t i = 0; i < len; i += 4) {
		const bool last = i + 4 == len;
		const size_t n = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 1 : 2) : 3;
		uint32_t bits = 0;
		char three[3];

		for (size_t d = 0; d < 4; d++) {
			const uint32_t value = d <= n ? value_of(text[i + d]) : 0;

			if (value == 64)
				return false;
			bits = bits << 6 | value;
		}
		if (bits & (n == 1 ? 0xffffu : n == 2 ? 0xffu : 0))
			return false;
		for (unsigned d = 0; d < 3; d++)
			three[d] = (char)(bits >> (16 - 8 * d) & 0xff);
		tsr_text_put(out, three, n);
	}
	return true;
}
