/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs of momenta and variances that the name of an optimizer's state stands for. */
#ifndef TSR_CODEC_STATE_FORMS_H
#define TSR_CODEC_STATE_FORMS_H

#include <stdbool.h>

#include "tersor/codec.h"

/* The names of forms, as an option's values have them, and any pair of codecs: "ratio8/sqrt8". */
#define TSR_STATE_PAIR "MOMENTUM/VARIANCE"
#define TSR_STATE_FORMS "flash flashoptim tight fine four coat bitsandbytes gefen " TSR_STATE_PAIR

/* The name of the @i-th form: flash, which is pack's default, first; NULL behind the last. */
const char *tsr_state_form_at(unsigned i);

#endif
