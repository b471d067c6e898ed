/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the library, at build time and at run time. */
#ifndef TERSOR_VERSION_H
#define TERSOR_VERSION_H

#include "tersor/api.h"

/* The version of these headers; as a number, major * 10000 + minor * 100 + patch. */
#define TSR_VERSION "1.0.0"
#define TSR_VERSION_NUMBER 10000u

/* The version of the library in use, which can be another one.  Static storage; thread-safe. */
TSR_API const char *tsr_version(void);
TSR_API unsigned tsr_version_number(void);

#endif
