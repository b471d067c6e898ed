/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the rows in folder_layouts.c. */
#ifndef TSR_LAYOUTS_LAYOUTS_H
#define TSR_LAYOUTS_LAYOUTS_H

#include "layouts/folder.h"

/* A folder of torch.distributed.checkpoint (torchtitan, Megatron's torch_dist) with all its files. */
bool tsr_dcp_folder_detect(const struct tsr_folder *d);
enum tsr_status tsr_dcp_folder_read(struct tsr_folder *d);

/* Accelerate's FSDP: directories of torch.distributed.checkpoint for model and optimizer. */
bool tsr_fsdp_folder_detect(const struct tsr_folder *d);
enum tsr_status tsr_fsdp_folder_read(struct tsr_folder *d);

/* DeepSpeed's ZeRO stages: the partitions of all ranks become whole tensors. */
bool tsr_deepspeed_detect(const struct tsr_folder *d);
enum tsr_status tsr_deepspeed_read(struct tsr_folder *d);

/* Its universal checkpoints, which are directories within such directories. */
bool tsr_universal_is(const struct tsr_folder *d);
enum tsr_status tsr_universal_read(struct tsr_folder *d);

/* Megatron-LM: its legacy files of one rank, or torch_dist below the file that names the latest. */
bool tsr_megatron_detect(const struct tsr_folder *d);
enum tsr_status tsr_megatron_read(struct tsr_folder *d);

/* Transformers, Accelerate and PEFT: weights in one file or shards, an optimizer, other states. */
bool tsr_hugging_face_detect(const struct tsr_folder *d);
enum tsr_status tsr_hugging_face_read(struct tsr_folder *d);

#endif
