/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of tensors of an open checkpoint. */
#ifndef TSR_RECORDING_SIGN_TENSORS_H
#define TSR_RECORDING_SIGN_TENSORS_H

#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"
#include "tersor/signatures.h"

/* The type of the elements that are signed: packed tensors are signed as they are decoded. */
enum tsr_dtype tsr_signed_dtype(const struct tsr_tensor *t);

/* Of @n tensors into @ret; a tensor that is NULL is absent. */
enum tsr_status tsr_sign_tensors(const struct tsr_checkpoint *c,
				 const struct tsr_tensor *const *tensors, size_t n,
				 struct tsr_signature *ret, const struct tsr_run *run,
				 struct tsr_err *err);

#endif
