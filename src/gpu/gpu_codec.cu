/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding by a codec's kernels. */
#include "gpu/cuda.h"

/* By the row of a codec. */
#define X(id, ...) &tsr_gpu_codec_##id,
static const struct tsr_gpu_codec *const codecs[] = { NULL, TSR_CODEC_LIST(X) };
#undef X

const struct tsr_gpu_codec *tsr_gpu_codec_of(const struct tsr_codec *codec)
{
	if (codec->learned)
		return codec->has_codebook ? &tsr_gpu_codec_gefen8 : &tsr_gpu_codec_blockmean;
	return codecs[codec->row];
}

struct coded_planes tsr_gpu_planes(const struct tsr_gpu_stream *stream,
				   const struct tsr_coding *coding, const void *const plane[],
				   uint64_t first)
{
	const enum tsr_table_set set = tsr_gpu_codec_of(coding->codec)->tables;
	struct coded_planes p = {};

	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		p.plane[i] = (char *)plane[i] + (first ? tsr_plane_nbytes(coding, i, first) : 0);
	p.scale = coding->scale;
	p.narrow = coding->narrow;
	if (set != TSR_TABLES_COUNT)
		p.tables = stream->gpu->tables[set];
	return p;
}

extern "C" bool tsr_gpu_has_codec(const struct tsr_codec *codec)
{
	return tsr_gpu_codec_of(codec) != NULL;
}

/* The kernels of a codec, and the stream's device made current. */
static enum tsr_status prepare(struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			       const struct tsr_gpu_codec **codec_ret, struct tsr_err *err)
{
	const unsigned index = stream->gpu->index;

	*codec_ret = tsr_gpu_codec_of(coding->codec);
	if (!*codec_ret)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "cuda:%u: no kernels for codec %s", index,
				coding->codec->name);
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	return tsr_gpu_prepare_tables(stream->gpu, *codec_ret, err);
}

extern "C" enum tsr_status tsr_gpu_encode(struct tsr_gpu_stream *stream,
					  const struct tsr_coding *coding, const float *x,
					  uint64_t n, void *const plane[],
					  struct tsr_encode_report *report, struct tsr_err *err)
{
	const struct tsr_gpu_codec *codec;

	TSR_TRY(prepare(stream, coding, &codec, err));
	if (n)
		codec->encode(stream, coding, x, n, plane, report);
	TSR_CUDA_TRY(stream->gpu->index, err, cudaGetLastError(), "cannot start encoding to %s",
		     coding->codec->name);
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_decode(struct tsr_gpu_stream *stream,
					  const struct tsr_coding *coding,
					  const void *const plane[], uint64_t n, float *x,
					  struct tsr_err *err)
{
	const struct tsr_gpu_codec *codec;

	TSR_TRY(prepare(stream, coding, &codec, err));
	if (n)
		codec->decode(stream, coding, plane, n, x);
	TSR_CUDA_TRY(stream->gpu->index, err, cudaGetLastError(), "cannot start decoding of %s",
		     coding->codec->name);
	return TSR_OK;
}
