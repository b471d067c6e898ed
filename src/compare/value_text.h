/* SPDX-License-Identifier: Apache-2.0 */
/* Values in words, as a comparison shows them. */
#ifndef TSR_COMPARE_VALUE_TEXT_H
#define TSR_COMPARE_VALUE_TEXT_H

#include "ckpt/checkpoint_model.h"

#define TSR_VALUE_TEXT 1024u

/* Numbers with all of their digits, and bits of a NaN; the first of texts; lists by their length. */
void tsr_value_text_of(const struct tsr_value *v, char out[TSR_VALUE_TEXT]);

/* A TENSOR by its name, with what PyTorch knows of it; @stride: NULL, or those that it has. */
void tsr_value_tensor_text(const struct tsr_value *v, const struct tsr_tensor *t,
			   const uint64_t *stride, char out[TSR_VALUE_TEXT]);

#endif
