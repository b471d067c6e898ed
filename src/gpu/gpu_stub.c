/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for the .cu files in a build without CUDA.  No GPU can be opened, so whatever needs an
 * open one is never reached.
 */
#include "base/fail.h"
#include "gpu/gpu_work.h"
#include "tersor/device.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static enum tsr_status fail(unsigned index, struct tsr_err *err)
{
	return tsr_fail(err, TSR_E_IO,
			"cuda:%u: built without CUDA; build where nvcc is on the PATH", index);
}

enum tsr_status tsr_gpu_describe(unsigned index, char *text, size_t room, struct tsr_err *err)
{
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

/* clang-format off */

/* X(type, function, value, arguments): those that say there is nothing. */
#define SAYING(X) \
	X(bool, tsr_gpu_built, false, void) \
	X(unsigned, tsr_gpu_count, 0, void) \
	X(unsigned, tsr_gpu_index, 0, const struct tsr_gpu *gpu) \
	X(bool, tsr_gpu_has_codec, false, const struct tsr_codec *codec) \
	X(uint64_t, tsr_gpu_staging_nbytes, 0, const struct tsr_gpu *gpu, struct tsr_gpu_coding coding, \
	  unsigned npieces)

/* X(function, arguments): those that only free. */
#define FREEING(X) \
	X(tsr_gpu_close, struct tsr_gpu *gpu) \
	X(tsr_gpu_free, struct tsr_gpu *gpu, void *memory) \
	X(tsr_gpu_free_host, struct tsr_gpu *gpu, void *memory) \
	X(tsr_gpu_stream_free, struct tsr_gpu_stream *stream) \
	X(tsr_gpu_event_free, struct tsr_gpu_event *event)

/* X(function, arguments but for `err`): those that fail. */
#define STREAM struct tsr_gpu_stream *stream
#define EVENT struct tsr_gpu_event *event
#define FAILING(X) \
	X(tsr_gpu_alloc, struct tsr_gpu *gpu, uint64_t nbytes, const char *what, void **memory_ret) \
	X(tsr_gpu_alloc_host, struct tsr_gpu *gpu, uint64_t nbytes, const char *what, void **memory_ret) \
	X(tsr_gpu_stream_new, struct tsr_gpu *gpu, struct tsr_gpu_stream **stream_ret) \
	X(tsr_gpu_sync, STREAM) \
	X(tsr_gpu_copy, STREAM, void *to, const void *from, uint64_t nbytes) \
	X(tsr_gpu_zero, STREAM, void *device, uint64_t nbytes) \
	X(tsr_gpu_event_new, struct tsr_gpu *gpu, struct tsr_gpu_event **event_ret) \
	X(tsr_gpu_record, STREAM, EVENT) \
	X(tsr_gpu_wait, STREAM, const EVENT) \
	X(tsr_gpu_reach, const EVENT) \
	X(tsr_gpu_seconds, const struct tsr_gpu_event *from, const struct tsr_gpu_event *to, double *ret) \
	X(tsr_gpu_encode, STREAM, const struct tsr_coding *coding, const float *x, uint64_t n, \
	  void *const plane[], struct tsr_encode_report *report) \
	X(tsr_gpu_decode, STREAM, const struct tsr_coding *coding, const void *const plane[], uint64_t n, \
	  float *x) \
	X(tsr_gpu_add_products, STREAM, const float *factors, unsigned nstages, uint32_t columns, \
	  float sign, uint64_t n, float *x, struct tsr_encode_report *report) \
	X(tsr_gpu_sweep, STREAM, const struct tsr_codec *codec, uint32_t first, uint64_t n, \
	  struct tsr_sweep_row *rows) \
	X(tsr_gpu_scratch, STREAM, unsigned which, uint64_t nbytes, void **memory_ret) \
	X(tsr_gpu_step_fused, STREAM, const struct tsr_step *step, const void *grad, uint64_t n, \
	  struct tsr_step_report *report, uint64_t *done_ret) \
	X(tsr_gpu_step_arrays, STREAM, const struct tsr_step *step, const void *grad, uint64_t n, \
	  float *const x[TSR_SLOTS], struct tsr_step_report *report) \
	X(tsr_gpu_block_moments, STREAM, const struct tsr_step *step, const void *grad, uint64_t n, \
	  float *m, float *v, struct tsr_step_report *report) \
	X(tsr_gpu_step_weights, STREAM, const struct tsr_step *step, const void *grad, const float *m, \
	  const float *v, uint64_t n, float *w) \
	X(tsr_gpu_turn_ratios, STREAM, float eps, const float *from, const float *variance, uint64_t n, \
	  bool make, float *to) \
	X(tsr_gpu_measure, STREAM, const struct tsr_compare_run *x, uint64_t run, struct tsr_compare *sums) \
	X(tsr_device_prepare, struct tsr_gpu *gpu, const struct tsr_coding *coding) \
	X(tsr_device_ratios, struct tsr_gpu *gpu, void *stream, const struct tsr_coding *coding, \
	  const float *m, const float *v, uint64_t n, float *ratios) \
	X(tsr_device_encode, struct tsr_gpu *gpu, void *stream, const struct tsr_coding *coding, \
	  const float *x, uint64_t n, void *const plane[], struct tsr_device_found *found) \
	X(tsr_device_decode, struct tsr_gpu *gpu, void *stream, const struct tsr_coding *coding, \
	  const void *const plane[], uint64_t n, float *x) \
	X(tsr_device_sign, struct tsr_gpu *gpu, void *stream, const struct tsr_to_sign *tensors, \
	  size_t n, uint64_t npieces, struct tsr_signed_piece *pieces) \
	X(tsr_gpu_encode_pieces, STREAM, struct tsr_gpu_coding coding, struct tsr_gpu_piece *pieces, \
	  unsigned npieces, void *staging) \
	X(tsr_gpu_decode_pieces, STREAM, struct tsr_gpu_coding coding, \
	  const struct tsr_gpu_piece *pieces, unsigned npieces, uint64_t *damaged) \
	X(tsr_gpu_list_pieces, STREAM, const struct tsr_gpu_plane *planes, size_t n, void *rooms, \
	  struct tsr_gpu_piece *pieces, struct tsr_gpu_span *spans) \
	X(tsr_gpu_shorten_scales, STREAM, const uint32_t *scales, uint64_t n, uint16_t *to) \
	X(tsr_gpu_place_pieces, STREAM, const struct tsr_gpu_span *spans, size_t n, \
	  struct tsr_gpu_piece *pieces, uint32_t npieces, void *coded, uint64_t *ends) \
	X(tsr_gpu_with_stream, struct tsr_gpu *gpu, void *stream, \
	  enum tsr_status (*work)(STREAM, void *ctx, struct tsr_err *err), void *ctx)

#define X(type, function, value, ...) type function(__VA_ARGS__) { return value; }
SAYING(X)
#undef X
#define X(function, ...) void function(__VA_ARGS__) {}
FREEING(X)
#undef X
#define X(function, ...) \
	enum tsr_status function(__VA_ARGS__, struct tsr_err *err) { return fail(0, err); }
FAILING(X)
