/* SPDX-License-Identifier: Apache-2.0 */
/* Option structs of callers that know fewer or more members than this version. */
#include "base/option_size.h"

#include "base/fail.h"
#include "tersor/version.h"

/* More than any version will have: beyond it, a size is garbage, and nothing behind it is read. */
#define OPTIONS_NBYTES_MAX 8192u

enum tsr_status tsr_options_take(void *now, const void *given, struct tsr_err *err)
{
	size_t known, size;

	if (!given)
		return TSR_OK;
	memcpy(&known, now, sizeof(known));
	memcpy(&size, given, sizeof(size));
	if (size < sizeof(size) || size > OPTIONS_NBYTES_MAX)
		return tsr_fail(
			err, TSR_E_USAGE,
			"options: found a size of %zu bytes, expected what their defaults have",
			size);
	for (size_t i = known; i < size; i++) {
		if (((const unsigned char *)given)[i])
			return tsr_fail(err, TSR_E_USAGE,
					"options: byte %zu is set, which version " TSR_VERSION
					" does not know",
					i);
	}
	memcpy(now, given, size < known ? size : known);
	memcpy(now, &known, sizeof(known));
	return TSR_OK;
}
