/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs on a stream of the caller: tersor/device.h. */
#include "codec/found_math.h"
#include "gpu/cuda.h"
#include "gpu/vector.cuh"

extern "C" {
#include "tersor/device.h"
}

/* Elements of a thread of the kernel that looks at them: many, as the warps' counts meet in one place. */
#define LOOKS 64u

/* A stream of the caller, for the functions that append to one of ours; it has no memory of its own. */
static struct tsr_gpu_stream stream_of(struct tsr_gpu *gpu, void *stream)
{
	return { gpu, (cudaStream_t)stream, {}, {} };
}

extern "C" enum tsr_status tsr_gpu_with_stream(struct tsr_gpu *gpu, void *stream,
					       enum tsr_status (*work)(struct tsr_gpu_stream *,
								       void *, struct tsr_err *),
					       void *ctx, struct tsr_err *err)
{
	struct tsr_gpu_stream s = stream_of(gpu, stream);

	return work(&s, ctx, err);
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	look_at(const float *x, uint64_t n, uint32_t limit, struct tsr_device_found *found)
{
	struct tsr_found_counts c = {};

#pragma unroll 8
	for (unsigned k = 0; k < LOOKS; k++) {
		const uint64_t i = tsr_first_vector(LOOKS) + k * TSR_BLOCK;

		tsr_found_count(&c, i < n ? x[i] : 0.0f, limit);
	}
	tsr_add_count(&found->nonfinite, c.nonfinite);
	tsr_add_count(&found->negative, c.negative);
	tsr_add_count(&found->nonzero, c.nonzero);
	tsr_add_count(&found->fractional, c.fractional);
	tsr_add_count(&found->wide, c.wide);
	tsr_add_count(&found->overflow, c.overflow);
}

extern "C" enum tsr_status tsr_device_prepare(struct tsr_gpu *gpu, const struct tsr_coding *coding,
					      struct tsr_err *err)
{
	const struct tsr_gpu_codec *codec = tsr_gpu_codec_of(coding->codec);

	if (coding->codec->learned || coding->codec->rank || !codec)
		return tsr_fail(
			err, TSR_E_UNSUPPORTED,
			"cuda:%u: codec %s is not encoded in a job: its groups or factors are "
			"learned from all of the data",
			gpu->index, coding->codec->name);
	TSR_TRY(tsr_gpu_use(gpu, err));
	return tsr_gpu_prepare_tables(gpu, codec, err);
}

extern "C" enum tsr_status tsr_device_ratios(struct tsr_gpu *gpu, void *stream,
					     const struct tsr_coding *coding, const float *m,
					     const float *v, uint64_t n, float *ratios,
					     struct tsr_err *err)
{
	struct tsr_gpu_stream s = stream_of(gpu, stream);

	return tsr_gpu_turn_ratios(&s, coding->eps, m, v, n, true, ratios, err);
}

extern "C" enum tsr_status tsr_device_encode(struct tsr_gpu *gpu, void *stream,
					     const struct tsr_coding *coding, const float *x,
					     uint64_t n, void *const plane[],
					     struct tsr_device_found *found, struct tsr_err *err)
{
	struct tsr_gpu_stream s = stream_of(gpu, stream);

	if (!n)
		return TSR_OK;
	TSR_TRY(tsr_gpu_use(gpu, err));
	if (found)
		look_at<<<tsr_blocks(n, LOOKS), TSR_BLOCK, 0, s.handle>>>(
			x, n, tsr_found_limit(coding->codec), found);
	return tsr_gpu_encode(&s, coding, x, n, plane, found ? &found->report : NULL, err);
}

extern "C" enum tsr_status tsr_device_decode(struct tsr_gpu *gpu, void *stream,
					     const struct tsr_coding *coding,
					     const void *const plane[], uint64_t n, float *x,
					     struct tsr_err *err)
{
	struct tsr_gpu_stream s = stream_of(gpu, stream);

	return tsr_gpu_decode(&s, coding, plane, n, x, err);
}
