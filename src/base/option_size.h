/* SPDX-License-Identifier: Apache-2.0 */
/* Option structs of other versions of the library: their size member. */
#ifndef TSR_BASE_OPTIONS_H
#define TSR_BASE_OPTIONS_H

#include "tersor/status.h"

/*
 * Take the options of a caller, which may have been compiled with the headers of another version.
 * Both structs begin with their size; members are only ever appended.  @now holds the defaults of
 * this version: what @given has of them replaces them.  NULL: none.  TSR_E_USAGE if @given was never
 * initialized, or has members set that this version does not know.
 */
enum tsr_status tsr_options_take(void *now, const void *given, struct tsr_err *err);

#endif
