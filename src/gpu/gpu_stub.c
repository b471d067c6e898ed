/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for the .cu files in a build without CUDA.  No GPU can be opened, so what needs an open
 * one is never reached.
 */
#include "base/fail.h"
#include "gpu/gpu_work.h"

static enum tsr_status fail(unsigned index, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_IO,
			"cuda:%u: built without CUDA; build where nvcc is on the PATH", index);
}

bool tsr_gpu_built(void)
{
	return false;
}

unsigned tsr_gpu_count(void)
{
	return 0;
}

enum tsr_status tsr_gpu_describe(unsigned index, char *text, size_t room, struct tsr_err *err)
{
	(void)text;
	(void)room;
	return fail(index, err);
}

enum tsr_status tsr_gpu_check(unsigned index, struct tsr_err *err)
{
	return fail(index, err);
}

enum tsr_status tsr_gpu_open(unsigned index, struct tsr_gpu **gpu_ret, struct tsr_err *err)
{
	*gpu_ret = NULL;
	return fail(index, err);
}

void tsr_gpu_close(struct tsr_gpu *gpu)
{
	(void)gpu;
}

unsigned tsr_gpu_index(const struct tsr_gpu *gpu)
{
	(void)gpu;
	return 0;
}

enum tsr_status tsr_gpu_alloc(struct tsr_gpu *gpu, uint64_t nbytes, const char *what,
			      void **memory_ret, struct tsr_err *err)
{
	(void)gpu;
	(void)nbytes;
	(void)what;
	*memory_ret = NULL;
	return fail(0, err);
}

void tsr_gpu_free(struct tsr_gpu *gpu, void *memory)
{
	(void)gpu;
	(void)memory;
}

enum tsr_status tsr_gpu_alloc_host(struct tsr_gpu *gpu, uint64_t nbytes, const char *what,
				   void **memory_ret, struct tsr_err *err)
{
	return tsr_gpu_alloc(gpu, nbytes, what, memory_ret, err);
}

void tsr_gpu_free_host(struct tsr_gpu *gpu, void *memory)
{
	tsr_gpu_free(gpu, memory);
}

enum tsr_status tsr_gpu_stream_new(struct tsr_gpu *gpu, struct tsr_gpu_stream **stream_ret,
				   struct tsr_err *err)
{
	(void)gpu;
	*stream_ret = NULL;
	return fail(0, err);
}

void tsr_gpu_stream_free(struct tsr_gpu_stream *stream)
{
	(void)stream;
}

enum tsr_status tsr_gpu_sync(struct tsr_gpu_stream *stream, struct tsr_err *err)
{
	(void)stream;
	return fail(0, err);
}

enum tsr_status tsr_gpu_put(struct tsr_gpu_stream *stream, void *device, const void *host,
			    uint64_t nbytes, struct tsr_err *err)
{
	(void)device;
	(void)host;
	(void)nbytes;
	return tsr_gpu_sync(stream, err);
}

enum tsr_status tsr_gpu_get(struct tsr_gpu_stream *stream, void *host, const void *device,
			    uint64_t nbytes, struct tsr_err *err)
{
	return tsr_gpu_put(stream, host, device, nbytes, err);
}

enum tsr_status tsr_gpu_copy(struct tsr_gpu_stream *stream, void *to, const void *from,
			     uint64_t nbytes, struct tsr_err *err)
{
	return tsr_gpu_put(stream, to, from, nbytes, err);
}

enum tsr_status tsr_gpu_zero(struct tsr_gpu_stream *stream, void *device, uint64_t nbytes,
			     struct tsr_err *err)
{
	return tsr_gpu_put(stream, device, NULL, nbytes, err);
}

enum tsr_status tsr_gpu_event_new(struct tsr_gpu *gpu, struct tsr_gpu_event **event_ret,
				  struct tsr_err *err)
{
	(void)gpu;
	*event_ret = NULL;
	return fail(0, err);
}

void tsr_gpu_event_free(struct tsr_gpu_event *event)
{
	(void)event;
}

enum tsr_status tsr_gpu_record(struct tsr_gpu_stream *stream, struct tsr_gpu_event *event,
			       struct tsr_err *err)
{
	(void)event;
	return tsr_gpu_sync(stream, err);
}

enum tsr_status tsr_gpu_wait(struct tsr_gpu_stream *stream, const struct tsr_gpu_event *event,
			     struct tsr_err *err)
{
	(void)event;
	return tsr_gpu_sync(stream, err);
}

enum tsr_status tsr_gpu_reach(const struct tsr_gpu_event *event, struct tsr_err *err)
{
	(void)event;
	return fail(0, err);
}

enum tsr_status tsr_gpu_seconds(const struct tsr_gpu_event *from, const struct tsr_gpu_event *to,
				double *seconds_ret, struct tsr_err *err)
{
	(void)from;
	(void)to;
	*seconds_ret = 0;
	return fail(0, err);
}

bool tsr_gpu_has_codec(const struct tsr_codec *codec)
{
	(void)codec;
	return false;
}

enum tsr_status tsr_gpu_encode(struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			       const float *x, uint64_t n, void *const plane[],
			       struct tsr_encode_report *report, struct tsr_err *err)
{
	(void)coding;
	(void)x;
	(void)n;
	(void)plane;
	(void)report;
	return tsr_gpu_sync(stream, err);
}

enum tsr_status tsr_gpu_decode(struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			       const void *const plane[], uint64_t n, float *x, struct tsr_err *err)
{
	(void)coding;
	(void)plane;
	(void)n;
	(void)x;
	return tsr_gpu_sync(stream, err);
}

enum tsr_status tsr_gpu_encode_host(struct tsr_gpu *gpu, const struct tsr_coding *coding,
				    const float *x, uint64_t n, void *const plane[],
				    struct tsr_encode_report *report, struct tsr_err *err)
{
	(void)gpu;
	return tsr_gpu_encode(NULL, coding, x, n, plane, report, err);
}

enum tsr_status tsr_gpu_decode_host(struct tsr_gpu *gpu, const struct tsr_coding *coding,
				    const void *const plane[], uint64_t n, float *x,
				    struct tsr_err *err)
{
	(void)gpu;
	return tsr_gpu_decode(NULL, coding, plane, n, x, err);
}

enum tsr_status tsr_gpu_sweep(struct tsr_gpu_stream *stream, const struct tsr_codec *codec,
			      uint32_t first, uint64_t n, struct tsr_sweep_row *rows,
			      struct tsr_err *err)
{
	(void)codec;
	(void)first;
	(void)n;
	(void)rows;
	return tsr_gpu_sync(stream, err);
}

enum tsr_status tsr_gpu_step(struct tsr_gpu_stream *stream, const struct tsr_step *step,
			     const void *grad, uint64_t n, struct tsr_step_report *report,
			     struct tsr_err *err)
{
	(void)step;
	(void)grad;
	(void)n;
	(void)report;
	return tsr_gpu_sync(stream, err);
}

bool tsr_gpu_step_is_fused(const struct tsr_step *step)
{
	(void)step;
	return false;
}
