/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the 16-bit remainders of weights that TransformerEngine and Apex keep. */
#ifndef TSR_NAMES_TRANSFORMER_ENGINE_IMPORT_H
#define TSR_NAMES_TRANSFORMER_ENGINE_IMPORT_H

#include "names/import_parts.h"

/* If array @i is the remainder of a BF16 weight (NAME.master_param): make one tensor of both. */
enum tsr_status tsr_import_transformer_engine(struct tsr_importing *m, size_t i);

#endif
