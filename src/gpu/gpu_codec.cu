/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding by a codec's kernels, of arrays in device or host memory. */
#include "gpu/cuda.h"

/* Elements that a call on host memory has on the GPU at a time, rounded down to whole groups. */
#define BATCH_ELEMENTS (UINT64_C(1) << 24)

/* By the row of a codec. */
#define X(id, ...) &tsr_gpu_codec_##id,
static const struct tsr_gpu_codec *const codecs[] = { NULL, TSR_CODEC_LIST(X) };
#undef X

/* NULL of a codec that is not in codec/list.h. */
static const struct tsr_gpu_codec *find(const struct tsr_codec *codec)
{
	if (codec->learned)
		return codec->has_codebook ? &tsr_gpu_codec_gefen8 : &tsr_gpu_codec_blockmean;
	return codecs[codec->row];
}

extern "C" bool tsr_gpu_has_codec(const struct tsr_codec *codec)
{
	return find(codec) != NULL;
}

/* The kernels of a codec, and the stream's device made current. */
static enum tsr_status prepare(struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			       const struct tsr_gpu_codec **codec_ret, struct tsr_err *err)
{
	const unsigned index = stream->gpu->index;

	*codec_ret = find(coding->codec);
	if (!*codec_ret)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "cuda:%u: no kernels for codec %s", index,
				coding->codec->name);
	TSR_CUDA_TRY(index, err, cudaSetDevice((int)index), "cannot be used");
	return (*codec_ret)->prepare ? (*codec_ret)->prepare(stream->gpu, err) : TSR_OK;
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

/* --- Arrays in host memory ------------------------------------------------------------------- */

struct batch {
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	const struct tsr_coding *coding;
	uint64_t room; /* elements; a multiple of tsr_coding_align() unless it is all there are */
	float *x;
	void *plane[TSR_PLANES_MAX];
	struct tsr_encode_report *report;
};

static void batch_free(struct batch *b)
{
	tsr_gpu_stream_free(b->stream);
	tsr_gpu_free(b->gpu, b->x);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		tsr_gpu_free(b->gpu, b->plane[i]);
	tsr_gpu_free(b->gpu, b->report);
}

/* On failure, batch_free() frees what was allocated. */
static enum tsr_status batch_new(struct batch *b, struct tsr_gpu *gpu,
				 const struct tsr_coding *coding, uint64_t n, struct tsr_err *err)
{
	const uint64_t limit = BATCH_ELEMENTS - BATCH_ELEMENTS % tsr_coding_align(coding);

	*b = (struct batch){};
	b->gpu = gpu;
	b->coding = coding;
	b->room = n < limit ? n : limit;
	TSR_TRY(tsr_gpu_stream_new(gpu, &b->stream, err));
	TSR_TRY(tsr_gpu_alloc(gpu, b->room * sizeof(float), "elements", (void **)&b->x, err));
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_alloc(gpu, tsr_plane_nbytes(coding, i, b->room), "a plane",
				      &b->plane[i], err));
	TSR_TRY(tsr_gpu_alloc(gpu, sizeof(*b->report), "a report", (void **)&b->report, err));
	return tsr_gpu_zero(b->stream, b->report, sizeof(*b->report), err);
}

static enum tsr_status encode_batch(struct batch *b, const float *x, uint64_t first, uint64_t n,
				    void *const plane[], struct tsr_err *err)
{
	struct tsr_coding at = *b->coding;

	at.first += first;
	TSR_TRY(tsr_gpu_put(b->stream, b->x, x + first, n * sizeof(*x), err));
	TSR_TRY(tsr_gpu_encode(b->stream, &at, b->x, n, b->plane, b->report, err));
	for (unsigned i = 0; i < b->coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_get(b->stream,
				    (char *)plane[i] + tsr_plane_nbytes(b->coding, i, first),
				    b->plane[i], tsr_plane_nbytes(b->coding, i, n), err));
	return TSR_OK;
}

static enum tsr_status decode_batch(struct batch *b, const void *const plane[], uint64_t first,
				    uint64_t n, float *x, struct tsr_err *err)
{
	for (unsigned i = 0; i < b->coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_put(b->stream, b->plane[i],
				    (const char *)plane[i] + tsr_plane_nbytes(b->coding, i, first),
				    tsr_plane_nbytes(b->coding, i, n), err));
	TSR_TRY(tsr_gpu_decode(b->stream, b->coding, (const void *const *)b->plane, n, b->x, err));
	return tsr_gpu_get(b->stream, x + first, b->x, n * sizeof(*x), err);
}

extern "C" enum tsr_status tsr_gpu_encode_host(struct tsr_gpu *gpu, const struct tsr_coding *coding,
					       const float *x, uint64_t n, void *const plane[],
					       struct tsr_encode_report *report,
					       struct tsr_err *err)
{
	struct tsr_encode_report found = { 0, 0, 0 };
	struct batch b;
	enum tsr_status status = batch_new(&b, gpu, coding, n, err);

	for (uint64_t first = 0; first < n && status == TSR_OK; first += b.room)
		status = encode_batch(&b, x, first, n - first < b.room ? n - first : b.room, plane,
				      err);
	if (status == TSR_OK)
		status = tsr_gpu_get(b.stream, &found, b.report, sizeof(found), err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(b.stream, err);
	if (status == TSR_OK) {
		report->scale_underflow += found.scale_underflow;
		report->scale_overflow += found.scale_overflow;
		report->narrow_overflow += found.narrow_overflow;
	}
	batch_free(&b);
	return status;
}

extern "C" enum tsr_status tsr_gpu_decode_host(struct tsr_gpu *gpu, const struct tsr_coding *coding,
					       const void *const plane[], uint64_t n, float *x,
					       struct tsr_err *err)
{
	struct batch b;
	enum tsr_status status = batch_new(&b, gpu, coding, n, err);

	for (uint64_t first = 0; first < n && status == TSR_OK; first += b.room)
		status = decode_batch(&b, plane, first, n - first < b.room ? n - first : b.room, x,
				      err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(b.stream, err);
	batch_free(&b);
	return status;
}
