/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs of momenta and variances that the name of an optimizer's state stands for. */
#ifndef TSR_CODEC_STATE_FORMS_H
#define TSR_CODEC_STATE_FORMS_H

#include <stdbool.h>

#include "tersor/codec.h"

/* flash, flashoptim, tight, coat, bitsandbytes or gefen, with default groups and scales; false for others. */
bool tsr_state_form(const char *name, struct tsr_coding *momentum, struct tsr_coding *variance);

#endif
