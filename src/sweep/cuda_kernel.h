/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of somebody else's cubin, fatbin or PTX file, called on arrays of the host. */
#ifndef TSR_SWEEP_CUDA_KERNEL_H
#define TSR_SWEEP_CUDA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "tersor/status.h"

/* Threads of a block; as many blocks as give each element a thread. */
#define TSR_CUDA_KERNEL_THREADS 256u

/* Bytes behind the results that a kernel must leave alone, which is looked at after each call. */
#define TSR_CUDA_KERNEL_GUARD 4096u

/* Start from all zeros.  What is in it lives as long as the process: a kernel that failed ends that. */
struct tsr_cuda_kernels {
	const char *path;
	void *module;
	uint64_t in, out; /* addresses on the GPU */
};

/*
 * Load the CUDA driver, which need not be there before, and a file for GPU @gpu, with arrays of at most
 * @in_nbytes and @out_nbytes.  TSR_E_FORMAT without a driver or such a GPU, or for a file that it does not
 * take; messages begin with @path.  One file per process, used by one thread.
 */
enum tsr_status tsr_cuda_kernels_open(struct tsr_cuda_kernels *k, const char *path, unsigned gpu,
				      size_t in_nbytes, size_t out_nbytes, struct tsr_err *err);

/* The kernel of this name: extern "C" __global__ void f(const float *in, void *out, size_t n). */
enum tsr_status tsr_cuda_kernels_find(const struct tsr_cuda_kernels *k, const char *symbol,
				      void **ret, struct tsr_err *err);

/*
 * Call it on @n numbers at @in, and have its @out_nbytes of results in @out.  TSR_E_FORMAT if it fails, or
 * wrote just behind its results; the message says only how, such as "failed: an illegal memory access ...".
 */
enum tsr_status tsr_cuda_kernels_call(const struct tsr_cuda_kernels *k, void *kernel,
				      const float *in, size_t n, void *out, size_t out_nbytes,
				      struct tsr_err *err);

#endif
