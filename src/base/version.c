/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the library. */
#include "tersor/version.h"

const char *tsr_version(void)
{
	return TSR_VERSION;
}

unsigned tsr_version_number(void)
{
	return TSR_VERSION_NUMBER;
}
