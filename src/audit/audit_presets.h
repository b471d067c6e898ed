/* SPDX-License-Identifier: Apache-2.0 */
/* The codings that tables of papers compare. */
#ifndef TSR_AUDIT_PRESETS_H
#define TSR_AUDIT_PRESETS_H

#include "tersor/codec.h"

/* FlashOptim, Figure 4; COAT, Tables 1 and 9; Gefen's blocks and codebook; FP8, FP16, BF16 and extra bits. */
#define TSR_AUDIT_TABLES "flashoptim-4 coat-1 coat-9 gefen extra-bits"

/* Those of one, into @ret with room for TSR_AUDIT_CODINGS_MAX; 0: there is no such table. */
unsigned tsr_audit_table_codings(const char *name, struct tsr_coding *ret);

#endif
