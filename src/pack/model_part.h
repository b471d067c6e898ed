/* SPDX-License-Identifier: Apache-2.0 */
/* What of a checkpoint is the model: the part that loads into it strictly. */
#ifndef TSR_PACK_MODEL_PART_H
#define TSR_PACK_MODEL_PART_H

#include "tersor/checkpoint.h"

/*
 * Leave only the model in a checkpoint.  If what was saved around the tensors has a model's
 * state_dict, that is it: its tensors, and in a container with a tree all of it.  Other containers
 * have a tensor under each of the names that it has there.  Without one the model is what names do
 * not give to an optimizer.  TSR_E_UNSUPPORTED if there is nothing.
 */
enum tsr_status tsr_model_part(struct tsr_checkpoint *c, enum tsr_container to,
			       struct tsr_err *err);

#endif
