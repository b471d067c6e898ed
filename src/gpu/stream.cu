/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, streams and events. */
#include <stdlib.h>

#include "gpu/cuda.h"

struct tsr_gpu_event {
	struct tsr_gpu *gpu;
	cudaEvent_t handle;
};

static cudaError_t make_current(const struct tsr_gpu *gpu)
{
	return cudaSetDevice((int)gpu->index);
}

enum tsr_status tsr_gpu_use(const struct tsr_gpu *gpu, struct tsr_err *err)
{
	TSR_CUDA_TRY(gpu->index, err, make_current(gpu), "cannot be used");
	return TSR_OK;
}

/* --- Memory ----------------------------------------------------------------------------------- */

static enum tsr_status allocate(struct tsr_gpu *gpu, uint64_t nbytes, const char *what, bool pinned,
				void **memory_ret, struct tsr_err *err)
{
	const size_t room = nbytes ? nbytes : 1;

	*memory_ret = NULL;
	TSR_TRY(tsr_gpu_use(gpu, err));
	TSR_CUDA_TRY(gpu->index, err,
		     pinned ? cudaMallocHost(memory_ret, room) : cudaMalloc(memory_ret, room),
		     "cannot allocate %llu bytes for %s", (unsigned long long)nbytes, what);
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_alloc(struct tsr_gpu *gpu, uint64_t nbytes, const char *what,
					 void **memory_ret, struct tsr_err *err)
{
	return allocate(gpu, nbytes, what, false, memory_ret, err);
}

extern "C" enum tsr_status tsr_gpu_alloc_host(struct tsr_gpu *gpu, uint64_t nbytes,
					      const char *what, void **memory_ret,
					      struct tsr_err *err)
{
	return allocate(gpu, nbytes, what, true, memory_ret, err);
}

extern "C" void tsr_gpu_free(struct tsr_gpu *gpu, void *memory)
{
	if (memory && make_current(gpu) == cudaSuccess)
		cudaFree(memory);
	cudaGetLastError();
}

extern "C" void tsr_gpu_free_host(struct tsr_gpu *gpu, void *memory)
{
	if (memory && make_current(gpu) == cudaSuccess)
		cudaFreeHost(memory);
	cudaGetLastError();
}

/* --- Streams ---------------------------------------------------------------------------------- */

extern "C" enum tsr_status tsr_gpu_stream_new(struct tsr_gpu *gpu,
					      struct tsr_gpu_stream **stream_ret,
					      struct tsr_err *err)
{
	struct tsr_gpu_stream *s = (struct tsr_gpu_stream *)calloc(1, sizeof(*s));
	cudaError_t e = make_current(gpu);

	*stream_ret = NULL;
	if (!s)
		return tsr_fail_nomem(err, "GPU stream");
	s->gpu = gpu;
	if (e == cudaSuccess)
		e = cudaStreamCreateWithFlags(&s->handle, cudaStreamNonBlocking);
	if (e != cudaSuccess) {
		free(s);
		return tsr_gpu_fail(err, gpu->index, e, "cannot make a stream");
	}
	*stream_ret = s;
	return TSR_OK;
}

extern "C" void tsr_gpu_stream_free(struct tsr_gpu_stream *stream)
{
	if (!stream)
		return;
	if (make_current(stream->gpu) == cudaSuccess) {
		cudaStreamSynchronize(stream->handle);
		cudaStreamDestroy(stream->handle);
	}
	for (unsigned i = 0; i < TSR_GPU_SCRATCH; i++)
		tsr_gpu_free(stream->gpu, stream->scratch[i]);
	cudaGetLastError();
	free(stream);
}

extern "C" enum tsr_status tsr_gpu_sync(struct tsr_gpu_stream *stream, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	TSR_CUDA_TRY(stream->gpu->index, err, cudaStreamSynchronize(stream->handle), "work failed");
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_scratch(struct tsr_gpu_stream *stream, unsigned which,
					   uint64_t nbytes, void **memory_ret, struct tsr_err *err)
{
	if (stream->scratch_nbytes[which] < nbytes) {
		TSR_TRY(tsr_gpu_sync(stream, err));
		tsr_gpu_free(stream->gpu, stream->scratch[which]);
		stream->scratch_nbytes[which] = 0;
		TSR_TRY(tsr_gpu_alloc(stream->gpu, nbytes, "elements in FP32",
				      &stream->scratch[which], err));
		stream->scratch_nbytes[which] = nbytes;
	}
	*memory_ret = stream->scratch[which];
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_copy(struct tsr_gpu_stream *stream, void *to, const void *from,
					uint64_t nbytes, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	TSR_CUDA_TRY(stream->gpu->index, err,
		     cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, stream->handle),
		     "cannot copy %llu bytes", (unsigned long long)nbytes);
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_zero(struct tsr_gpu_stream *stream, void *device,
					uint64_t nbytes, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	TSR_CUDA_TRY(stream->gpu->index, err, cudaMemsetAsync(device, 0, nbytes, stream->handle),
		     "cannot clear %llu bytes", (unsigned long long)nbytes);
	return TSR_OK;
}

/* --- Events ----------------------------------------------------------------------------------- */

extern "C" enum tsr_status tsr_gpu_event_new(struct tsr_gpu *gpu, struct tsr_gpu_event **event_ret,
					     struct tsr_err *err)
{
	struct tsr_gpu_event *event = (struct tsr_gpu_event *)calloc(1, sizeof(*event));
	cudaError_t e = make_current(gpu);

	*event_ret = NULL;
	if (!event)
		return tsr_fail_nomem(err, "GPU event");
	event->gpu = gpu;
	if (e == cudaSuccess)
		e = cudaEventCreate(&event->handle);
	if (e != cudaSuccess) {
		free(event);
		return tsr_gpu_fail(err, gpu->index, e, "cannot make an event");
	}
	*event_ret = event;
	return TSR_OK;
}

extern "C" void tsr_gpu_event_free(struct tsr_gpu_event *event)
{
	if (!event)
		return;
	if (make_current(event->gpu) == cudaSuccess)
		cudaEventDestroy(event->handle);
	cudaGetLastError();
	free(event);
}

extern "C" enum tsr_status tsr_gpu_record(struct tsr_gpu_stream *stream,
					  struct tsr_gpu_event *event, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	TSR_CUDA_TRY(stream->gpu->index, err, cudaEventRecord(event->handle, stream->handle),
		     "cannot record an event");
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_wait(struct tsr_gpu_stream *stream,
					const struct tsr_gpu_event *event, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	TSR_CUDA_TRY(stream->gpu->index, err, cudaStreamWaitEvent(stream->handle, event->handle, 0),
		     "cannot wait for an event");
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_reach(const struct tsr_gpu_event *event, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(event->gpu, err));
	TSR_CUDA_TRY(event->gpu->index, err, cudaEventSynchronize(event->handle), "work failed");
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_seconds(const struct tsr_gpu_event *from,
					   const struct tsr_gpu_event *to, double *seconds_ret,
					   struct tsr_err *err)
{
	float milliseconds = 0;

	TSR_TRY(tsr_gpu_reach(to, err));
	TSR_CUDA_TRY(to->gpu->index, err,
		     cudaEventElapsedTime(&milliseconds, from->handle, to->handle),
		     "cannot tell the time between events");
	*seconds_ret = 1e-3 * (double)milliseconds;
	return TSR_OK;
}
