/* SPDX-License-Identifier: Apache-2.0 */
/* What a packing left as it was, and why. */
#ifndef TSR_PACK_KEPT_TENSORS_H
#define TSR_PACK_KEPT_TENSORS_H

#include "tersor/pack.h"

/* Why data was not packed. */
enum tsr_kept {
	TSR_KEPT_DTYPE, /* it is not FP32 */
	TSR_KEPT_STATE, /* an optimizer keeps it, and no kind is known for it */
	TSR_KEPT_FACTOR, /* of a preconditioner, whose inverse root rounding breaks */
	TSR_KEPT_SMALL, /* few elements */
	TSR_KEPT_INTEGERS, /* all elements are integers */
	TSR_KEPT_CHOICE, /* no codec to choose from is within the bound */
	TSR_KEPT_VALUES, /* values that the codec cannot hold */
	TSR_KEPT_QUANTIZED, /* it belongs to a quantized weight */
	TSR_KEPT_OTHER, /* neither weight nor state, or kept by a rule */
	TSR_KEPT_COUNT
};

#define TSR_KEPT_FIELDS_MAX 8

struct tsr_kept_raw {
	struct tsr_kept_class {
		uint64_t ntensors, nbytes;
	} by[TSR_KEPT_COUNT];
	uint64_t nbytes, packed_nbytes; /* of all tensors, and of those that were packed */
	uint64_t dtype_nbytes[TSR_DTYPE_COUNT]; /* of TSR_KEPT_DTYPE */
	char fields[TSR_KEPT_FIELDS_MAX][32]; /* of TSR_KEPT_STATE, without numbers behind */
	unsigned nfields;
};

/* Add the tensors of a packing. */
void tsr_kept_raw_add(struct tsr_kept_raw *k, const struct tsr_packing *p);

#endif
