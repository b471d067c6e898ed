/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_HEADER_REPAIR_H
#define TSR_TESTS_HEADER_REPAIR_H

/* Putting right what nearly every mutation of a safetensors file makes wrong: its lengths. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Make the header end with its last "}}", and return its length. */
static inline uint64_t repair_length(char *bytes, size_t n)
{
	uint64_t end = n;

	while (end > 8 && memcmp(bytes + end - 2, "}}", 2) != 0)
		end--;
	while (end < n && bytes[end] == ' ')
		end++;
	end -= 8;
	memcpy(bytes, &end, sizeof(end));
	return end;
}

/* The size that a file of @nbytes would need by the message that refused it; 0: it was refused for another reason. */
static inline uint64_t right_size(const char *message, uint64_t nbytes)
{
	uint64_t found, expected;
	const char *why = strstr(message, "found ");

	return why && sscanf(why, "found %" SCNu64 " bytes of data, expected %" SCNu64, &found,
			     &expected) == 2
		       ? nbytes - found + expected
		       : 0;
}

#endif
