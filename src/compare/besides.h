/* SPDX-License-Identifier: Apache-2.0 */
/* What two checkpoints have besides tensors: what was saved around them, and metadata of safetensors. */
#ifndef TSR_COMPARE_BESIDES_H
#define TSR_COMPARE_BESIDES_H

#include "ckpt/checkpoint_model.h"
#include "tersor/compare.h"

/* The outcome of comparing it.  Texts live as long as the first checkpoint. */
struct tsr_besides {
	uint64_t ndiffering;
	size_t nlisted;
	struct tsr_value_difference list[TSR_VALUES_LISTED]; /* the first */
	const char *not_compared; /* why what was saved around the tensors is not; NULL: it is */
};

/*
 * Compare values by type and bits: numbers, texts, the lengths of lists, keys of dicts in any order, objects,
 * and of tensors whether they are parameters, require a gradient, have the same strides and are the same
 * tensor as in the other places.  Only what both have is compared: trees, and metadata where both are
 * safetensors, but for the number of lossy generations.  A value that is shared on both sides counts once.
 */
enum tsr_status tsr_besides_compare(struct tsr_checkpoint *a, struct tsr_checkpoint *b,
				    struct tsr_besides *ret, struct tsr_err *err);

/* "besides tensors 3 values differ, first epoch: 3, 4", of an outcome in which some do. */
#define TSR_BESIDES_TEXT 400u
const char *tsr_besides_first(const struct tsr_besides *b, char text[TSR_BESIDES_TEXT]);

/* --- Values in words, as a comparison shows them ---------------------------------------------- */

#define TSR_VALUE_TEXT 1024u

/* Numbers with all of their digits, and bits of a NaN; the first of texts; lists by their length. */
void tsr_value_text_of(const struct tsr_value *v, char out[TSR_VALUE_TEXT]);

/* A TENSOR by its name, with what PyTorch knows of it; @stride: NULL, or those that it has. */
void tsr_value_tensor_text(const struct tsr_value *v, const struct tsr_tensor *t,
			   const uint64_t *stride, char out[TSR_VALUE_TEXT]);

#endif
