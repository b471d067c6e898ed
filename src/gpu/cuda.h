/* SPDX-License-Identifier: Apache-2.0 */
/* What the .cu files share: handles, errors, and the kernels of each codec. */
#ifndef TSR_GPU_CUDA_H
#define TSR_GPU_CUDA_H

#include <pthread.h>
#include <stdint.h>

#include <cuda_runtime.h>

extern "C" {
#include "base/fail.h"
#include "gpu/gpu_work.h"
}
#include "codec/list.h"
#include "codec/table_math.h"

/* Tables of codes in device memory; `row` is NULL until they are there. */
struct tsr_gpu_tables {
	const struct tsr_table_row *row;
	const uint32_t *entry;
	const float *bound;
};

struct tsr_gpu {
	unsigned index;
	unsigned nprocessors; /* multiprocessors */
	pthread_mutex_t lock; /* of the tables */
	struct tsr_gpu_tables tables[TSR_TABLES_COUNT];
};

struct tsr_gpu_stream {
	struct tsr_gpu *gpu;
	cudaStream_t handle;
	void *scratch[TSR_GPU_SCRATCH];
	uint64_t scratch_nbytes[TSR_GPU_SCRATCH];
};

/* Make a GPU the current one, which is the thread's own: every call selects the one that it is about. */
enum tsr_status tsr_gpu_use(const struct tsr_gpu *gpu, struct tsr_err *err);

/*
 * The one line for a CUDA failure.  Takes the error out of the runtime, so that it is not found
 * again by a later, innocent call.
 */
enum tsr_status tsr_gpu_fail(struct tsr_err *err, unsigned index, cudaError_t e, const char *fmt,
			     ...) __attribute__((format(printf, 4, 5)));

/* Forward the failure of a CUDA call to the caller of this function. */
#define TSR_CUDA_TRY(index, err, call, ...) \
	do { \
		const cudaError_t cuda_error_ = (call); \
		if (cuda_error_ != cudaSuccess) \
			return tsr_gpu_fail(err, index, cuda_error_, __VA_ARGS__); \
	} while (0)

/* Whether the kernels before this call were started: a failure says that @what could not be, of @name. */
static inline enum tsr_status tsr_gpu_started(const struct tsr_gpu *gpu, const char *what,
					      const char *name, struct tsr_err *err)
{
	TSR_CUDA_TRY(gpu->index, err, cudaGetLastError(), "cannot start %s%s", what, name);
	return TSR_OK;
}

/* Elements in device memory that a codec encodes or decodes. */
struct tsr_gpu_job {
	struct tsr_gpu_stream *stream;
	const struct tsr_coding *coding;
	void *const *plane;
	float *x; /* to encode, it is only read */
	uint64_t n;
	bool decodes;
	struct tsr_encode_report *report; /* may be NULL */
};

/*
 * How a codec's kernels are started, on a device that is current.  The error of the launch is found by
 * cudaGetLastError().  Its tables, if it has any, are in the GPU's memory then.
 */
struct tsr_gpu_codec {
	void (*run)(const struct tsr_gpu_job *job);
	enum tsr_table_set tables; /* TSR_TABLES_COUNT: none */
};

/* Where elements are stored, and what else their codec needs. */
struct coded_planes {
	void *plane[TSR_PLANES_MAX];
	enum tsr_scale scale;
	enum tsr_dtype narrow; /* of what is learned */
	struct tsr_gpu_tables tables;
	const float *codebook; /* in shared memory */
};

/* Those from element @first on, which begins a group or a vector. */
struct coded_planes tsr_gpu_planes(const struct tsr_gpu_job *job, uint64_t first);

/* NULL of a codec that is not in codec/list.h. */
const struct tsr_gpu_codec *tsr_gpu_codec_of(const struct tsr_codec *codec);

/* Have a codec's tables in the GPU's memory.  The device is current. */
enum tsr_status tsr_gpu_prepare_tables(struct tsr_gpu *gpu, const struct tsr_gpu_codec *codec,
				       struct tsr_err *err);
void tsr_gpu_free_tables(struct tsr_gpu *gpu);

#define X(id, ...) extern const struct tsr_gpu_codec tsr_gpu_codec_##id;
TSR_CODEC_LIST(X)
TSR_LEARNED_LIST(X)
#undef X

#endif
