/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_PACKED_REPAIR_H
#define TSR_TESTS_PACKED_REPAIR_H

/* Putting right what nearly every mutation of a packed file makes wrong: the lengths and the check of its header. */
#include "container/packed/packed.h"
#include "header_repair.h"
#include "io/hash.h"

/* The digits of the check over the header, which any mutation of it makes wrong; or NULL. */
static inline char *find_check(char *header)
{
	static const char lead[] = "\"" TSR_PACKED_CHECK_KEY "\":\"";
	char *at = strstr(header, lead);

	while (at && at > header && at[-1] == '\\')
		at = strstr(at + 1, lead);
	return at && strlen(at) >= sizeof(lead) - 1 + 16 ? at + sizeof(lead) - 1 : NULL;
}

/*
 * Make the check right, so that what is behind it is fuzzed too.  There is room for one more byte
 * behind the header.
 */
static inline void repair_check(char *header, uint64_t nbytes)
{
	const char after = header[nbytes];
	char digits[17], *check;

	header[nbytes] = '\0';
	check = find_check(header);
	if (check) {
		memcpy(check, TSR_PACKED_CHECK_ZEROS, 16);
		snprintf(digits, sizeof(digits), "%016" PRIx64, tsr_hash(header, nbytes, 0));
		memcpy(check, digits, 16);
	}
	header[nbytes] = after;
}

#endif
