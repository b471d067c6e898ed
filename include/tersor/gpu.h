/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs there are, and using one. */
#ifndef TERSOR_GPU_H
#define TERSOR_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/status.h"

/*
 * Codecs on GPUs, with the bits of the CPU's.
 *
 * Failures are TSR_E_NOMEM if memory ran out, and TSR_E_IO for every other reason: built without
 * CUDA, no driver, no such GPU, a kernel that failed.  The message is "cuda:N: what: CUDA's reason".
 * After a kernel has failed, every later call on that GPU fails until the process ends.
 *
 * Everything may be called from any thread; a stream is used by one thread at a time.
 */

/* --- Which GPUs there are -------------------------------------------------------------------- */

/* Whether this build has CUDA code. */
TSR_API bool tsr_gpu_built(void);

/* Number of GPUs that can be used; 0 without CUDA, without a driver or without a GPU. */
TSR_API unsigned tsr_gpu_count(void);

/* Parse "cuda" (index 0) or "cuda:N"; false for anything else.  The GPU need not exist. */
TSR_API bool tsr_gpu_parse(const char *device, unsigned *index_ret);

/* "NVIDIA H100 80GB HBM3, compute capability 9.0, 79 GiB" of GPU @index into @text. */
TSR_API enum tsr_status tsr_gpu_describe(unsigned index, char *text, size_t room,
					 struct tsr_err *err);

/*
 * TSR_OK if GPU @index exists and rounds as the CPU does; else TSR_E_IO with the reason: built without
 * CUDA, no driver, no such GPU, a kernel that rounds differently.
 */
TSR_API enum tsr_status tsr_gpu_check(unsigned index, struct tsr_err *err);

/* --- Using one ------------------------------------------------------------------------------- */

struct tsr_gpu; /* a GPU in use */

/* Check GPU @index as tsr_gpu_check() does, and open it; to be closed with tsr_gpu_close(). */
TSR_API enum tsr_status tsr_gpu_open(unsigned index, struct tsr_gpu **gpu_ret, struct tsr_err *err);

/* NULL is allowed.  No work may be using it. */
TSR_API void tsr_gpu_close(struct tsr_gpu *gpu);

/* The index that it was opened with. */
TSR_API unsigned tsr_gpu_index(const struct tsr_gpu *gpu);

#endif
