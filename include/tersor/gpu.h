/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_GPU_H
#define TERSOR_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "tersor/status.h"

/* Whether this build has CUDA code. */
bool tsr_gpu_built(void);

/* Number of GPUs that can be used; 0 without CUDA, without a driver or without a GPU. */
unsigned tsr_gpu_count(void);

/* "NVIDIA H100 80GB HBM3, compute capability 9.0, 79 GiB" of GPU @index into @text. */
enum tsr_status tsr_gpu_describe(unsigned index, char *text, size_t room, struct tsr_err *err);

/*
 * TSR_OK if GPU @index is there and its code keeps the numerics contract; else TSR_E_IO with the
 * reason: built without CUDA, no driver, no such GPU, a kernel that rounds differently.
 */
enum tsr_status tsr_gpu_check(unsigned index, struct tsr_err *err);

#endif
