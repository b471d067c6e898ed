/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of packed files and of the files with their weights. */
#ifndef TSR_PACK_PACKED_META_H
#define TSR_PACK_PACKED_META_H

#include "ckpt/checkpoint_model.h"

/* The source's metadata, with `format` set and the entries of a packed file; to be freed. */
enum tsr_status tsr_packed_meta(const struct tsr_checkpoint *c, struct tsr_meta **ret,
				size_t *n_ret, struct tsr_err *err);

/* What a loader expects beside the weights: the source's metadata, without what only we read; to be freed. */
enum tsr_status tsr_packed_weights_meta(const struct tsr_checkpoint *c, struct tsr_meta **ret,
					size_t *n_ret, struct tsr_err *err);

#endif
