/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs at work on one tile after the other, on the CPU or on a GPU. */
#ifndef TSR_PACK_TILE_CODEC_H
#define TSR_PACK_TILE_CODEC_H

#include "ckpt/tensor_tiles.h"
#include "gpu/gpu_work.h"
#include "pack/beside.h"
#include "tersor/codec.h"
#include "tersor/measure.h"
#include "tersor/run.h"

/* Memory of a tile on its way through a codec. */
struct tsr_coder_memory {
	float x[TSR_TILE_ELEMENTS];
	unsigned char plane[TSR_PLANES_MAX][TSR_TILE_NBYTES];
	_Alignas(64) struct tsr_encode_report report; /* on its way from the GPU */
	_Alignas(64) float decoded[]; /* TSR_TILE_ELEMENTS of coders that encode */
};

/*
 * Encodes and decodes tiles in its own memory, with the same bits on the CPU and on a GPU.  With a
 * GPU this memory is pinned, so copies need no staging, and there is as much on the GPU and a stream.
 * For one thread at a time.
 *
 * encode: @n elements from m->x into m->plane, decoded again into m->decoded to add the error to
 * @measure, and what the encoder noticed to @report.  coding->first is the index of the first
 * element in its tensor.
 * decode: @n elements from m->plane into m->x.  The CPU decodes what the GPU has no kernel for.
 * Elements are FP32 values; what is decoded is rounded to @dtype, the tensor's.  With a relative or a
 * low-rank codec they are momenta, and tsr_coder_beside() comes first.
 */
struct tsr_coder {
	struct tsr_coder_memory *m;
	void *plane[TSR_PLANES_MAX]; /* m->plane */
	enum tsr_status (*encode)(struct tsr_coder *coder, const struct tsr_coding *coding,
				  enum tsr_dtype dtype, size_t n, struct tsr_measure *measure,
				  struct tsr_encode_report *report, struct tsr_err *err);
	enum tsr_status (*decode)(struct tsr_coder *coder, const struct tsr_coding *coding,
				  enum tsr_dtype dtype, size_t n, struct tsr_err *err);
	struct tsr_beside *beside; /* of the tile, with such a codec; NULL: there was none so far */
	/* NULL on the CPU: */
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	struct tsr_coder_memory *device; /* on the GPU; addresses only */
	void *device_plane[TSR_PLANES_MAX]; /* device->plane */
};

/* One side of a momentum and its variance that are encoded together. */
struct tsr_coder_side {
	struct tsr_coder *coder; /* m->x has the elements */
	const struct tsr_coding *coding; /* NULL: the elements are stored as they are */
	enum tsr_dtype dtype;
	struct tsr_measure *measure;
	struct tsr_encode_report *report;
};

/*
 * Encode @n elements of a momentum and of its variance as `encode` does, and add the error of their
 * updates to @update, of which the decoded values need not leave the cache.
 */
enum tsr_status tsr_coder_encode_pair(const struct tsr_coder_side *m,
				      const struct tsr_coder_side *v, size_t n, float eps,
				      struct tsr_update_measure *update, struct tsr_err *err);

/*
 * For a pipeline (base/pipeline.h) whose scratch memory begins with a coder: one that encodes and
 * decodes, or that only decodes, on the GPU that the pipeline gives it, if any, which is borrowed.  A
 * failure leaves nothing behind.
 */
enum tsr_status tsr_coder_open_encoder(void *ctx, const struct tsr_run *run, void *coder,
				       struct tsr_err *err);
enum tsr_status tsr_coder_open_decoder(void *ctx, const struct tsr_run *run, void *coder,
				       struct tsr_err *err);
void tsr_coder_close(void *ctx, void *coder);

/*
 * Get the variances that elements @first to @first + @n - 1 of a momentum go with: as by tsr_beside_read(),
 * but for a GPU of a low-rank coding its factors.
 */
enum tsr_status tsr_coder_beside(struct tsr_coder *coder, const struct tsr_checkpoint *c,
				 const struct tsr_tensor *stored, const struct tsr_tensor *wanted,
				 uint64_t first, size_t n, struct tsr_err *err);

/*
 * Elements @first to @first + @n - 1 of a tensor into @x, decoded or widened, as by
 * tsr_tensor_read_f32(); @n at most TSR_READ_MAX.  Overwrites m->x and m->plane.
 */
enum tsr_status tsr_coder_read_f32(struct tsr_coder *coder, const struct tsr_checkpoint *c,
				   const struct tsr_tensor *t, uint64_t first, size_t n, float *x,
				   struct tsr_err *err);

#endif
