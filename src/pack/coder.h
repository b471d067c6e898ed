/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_PACK_CODER_H
#define TSR_PACK_CODER_H

#include "pack/pieces.h"
#include "tersor/codec.h"
#include "gpu/gpu_work.h"
#include "tersor/measure.h"
#include "tersor/run.h"

/* Memory of a piece on its way through a codec. */
struct tsr_coder_memory {
	float x[TSR_PIECE_ELEMENTS];
	unsigned char plane[TSR_PLANES_MAX][TSR_PIECE_NBYTES];
	_Alignas(64) struct tsr_encode_report report; /* on its way from the GPU */
	_Alignas(64) float decoded[]; /* TSR_PIECE_ELEMENTS of coders that encode */
};

/*
 * Encodes and decodes one piece after the other in its own memory, on the CPU or on a GPU, with the
 * same bits.  On a GPU there is as much memory, and a stream; pieces are copied there and back,
 * without a detour as the memory here is the GPU's kind of host memory.  For one thread at a time.
 */
struct tsr_coder {
	struct tsr_coder_memory *m;
	enum tsr_status (*encode)(struct tsr_coder *coder, const struct tsr_coding *coding,
				  size_t n, struct tsr_measure *measure,
				  struct tsr_encode_report *report, struct tsr_err *err);
	enum tsr_status (*decode)(struct tsr_coder *coder, const struct tsr_coding *coding,
				  size_t n, struct tsr_err *err);
	/* NULL on the CPU: */
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	struct tsr_coder_memory *device; /* on the GPU; addresses only */
};

/*
 * For a pipeline (base/pipeline.h) whose scratch memory begins with a coder: one that encodes and
 * decodes, or that only decodes, on run->gpu if there is one, which is borrowed.  Nothing is left
 * behind by a failure.
 */
enum tsr_status tsr_coder_open_encoder(void *ctx, const struct tsr_run *run, void *coder,
				       struct tsr_err *err);
enum tsr_status tsr_coder_open_decoder(void *ctx, const struct tsr_run *run, void *coder,
				       struct tsr_err *err);
void tsr_coder_close(void *ctx, void *coder);

/*
 * Encode @n elements from m->x into m->plane, decode them again and add the error to @measure, and
 * what the encoder noticed to @report.  coding->first is the index of the first in its tensor.
 * m->decoded is overwritten.
 */
enum tsr_status tsr_coder_encode(struct tsr_coder *coder, const struct tsr_coding *coding, size_t n,
				 struct tsr_measure *measure, struct tsr_encode_report *report,
				 struct tsr_err *err);

/* Decode @n elements from m->plane into m->x.  A codec that the GPU lacks is decoded by the CPU. */
enum tsr_status tsr_coder_decode(struct tsr_coder *coder, const struct tsr_coding *coding, size_t n,
				 struct tsr_err *err);

/*
 * Elements @first to @first + @n - 1 of a tensor into @x, decoded or widened, as by
 * tsr_tensor_read_f32(); @n at most TSR_READ_MAX.  Overwrites m->x and m->plane.
 */
enum tsr_status tsr_coder_read_f32(struct tsr_coder *coder, const struct tsr_checkpoint *c,
				   const struct tsr_tensor *t, uint64_t first, size_t n, float *x,
				   struct tsr_err *err);

#endif
