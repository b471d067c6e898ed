/* SPDX-License-Identifier: Apache-2.0 */
/* Files of DCP's Hugging Face writer that hold one rank's parts of tensors. */
#ifndef TSR_CONTAINER_HF_PARTS_H
#define TSR_CONTAINER_HF_PARTS_H

#include "ckpt/checkpoint_model.h"

/* {"NAME": {"saved_offsets": [0, 12]}, ...}: where in the whole tensor the stored one begins. */
#define TSR_OFFSETS_KEY "DCP_SHARDING_INFO"

/* TSR_E_UNSUPPORTED if a safetensors file with this metadata holds parts, which nothing here joins. */
enum tsr_status tsr_hf_parts_check(const char *path, const struct tsr_meta *meta, size_t nmeta,
				   struct tsr_err *err);

/* Whether a file is one of several ranks', by its name and that of another one beside it. */
bool tsr_hf_parts_named(const char *path);

/* Fail as tsr_hf_parts_check() does, about a file or a directory of such files. */
enum tsr_status tsr_hf_parts_refuse(const char *path, struct tsr_err *err);

#endif
