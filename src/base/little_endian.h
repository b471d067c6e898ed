/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian numbers of any width in bytes. */
#ifndef TSR_BASE_LITTLE_ENDIAN_H
#define TSR_BASE_LITTLE_ENDIAN_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t tsr_get_le(const void *bytes, size_t nbytes)
{
	const unsigned char *b = bytes;
	uint64_t value = 0;

	while (nbytes--)
		value = value << 8 | b[nbytes];
	return value;
}

/* The low @nbytes bytes of @value. */
static inline void tsr_put_le(void *bytes, uint64_t value, size_t nbytes)
{
	unsigned char *b = bytes;

	for (size_t i = 0; i < nbytes; i++)
		b[i] = (unsigned char)(value >> 8 * i);
}

#endif
