/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the 8-bit states of bitsandbytes; docs/containers.md has their layout. */
#ifndef TSR_NAMES_BITSANDBYTES_IMPORT_H
#define TSR_NAMES_BITSANDBYTES_IMPORT_H

#include "names/import_parts.h"

/* If array @i has the codes of a state: make one tensor of codes, table and scales. */
enum tsr_status tsr_import_bitsandbytes(struct tsr_importing *m, size_t i);

#endif
