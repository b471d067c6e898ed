/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a codec's kernels, and running them on arrays in device or host memory. */
#include <string.h>

#include "gpu/cuda.h"

/* Elements that a call on host memory has on the GPU at a time, rounded down to whole runs. */
#define PIECE_ELEMENTS (UINT64_C(1) << 24)

static const struct tsr_gpu_codec *find_in(const struct tsr_gpu_codec *table, const char *name)
{
	while (table->name && strcmp(table->name, name) != 0)
		table++;
	return table->name ? table : NULL;
}

static const struct tsr_gpu_codec *find(const struct tsr_codec *codec)
{
	const char *name = codec->family ? codec->family : codec->name;
	const struct tsr_gpu_codec *found = find_in(tsr_gpu_split_codecs, name);

	found = found ? found : find_in(tsr_gpu_grouped_codecs, name);
	return found ? found : find_in(tsr_gpu_extra_bits_codecs, name);
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
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_encode(struct tsr_gpu_stream *stream,
					  const struct tsr_coding *coding, const float *x,
					  uint64_t n, void *const plane[],
					  struct tsr_encode_report *report, struct tsr_err *err)
{
	const struct tsr_gpu_codec *codec;

	TSR_TRY(prepare(stream, coding, &codec, err));
	if (n)
		codec->encode(stream->handle, coding, x, n, plane, report);
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
		codec->decode(stream->handle, coding, plane, n, x);
	TSR_CUDA_TRY(stream->gpu->index, err, cudaGetLastError(), "cannot start decoding of %s",
		     coding->codec->name);
	return TSR_OK;
}

/* --- Arrays in host memory ------------------------------------------------------------------- */

struct piece {
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	const struct tsr_coding *coding;
	uint64_t room; /* elements, where n is more a multiple of the run */
	float *x;
	void *plane[TSR_PLANES_MAX];
	struct tsr_encode_report *report;
};

static void piece_free(struct piece *p)
{
	tsr_gpu_stream_free(p->stream);
	tsr_gpu_free(p->gpu, p->x);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		tsr_gpu_free(p->gpu, p->plane[i]);
	tsr_gpu_free(p->gpu, p->report);
}

/* On failure, piece_free() frees what there is. */
static enum tsr_status piece_new(struct piece *p, struct tsr_gpu *gpu,
				 const struct tsr_coding *coding, uint64_t n, struct tsr_err *err)
{
	const uint64_t limit = PIECE_ELEMENTS - PIECE_ELEMENTS % tsr_coding_align(coding);

	*p = (struct piece){};
	p->gpu = gpu;
	p->coding = coding;
	p->room = n < limit ? n : limit;
	TSR_TRY(tsr_gpu_stream_new(gpu, &p->stream, err));
	TSR_TRY(tsr_gpu_alloc(gpu, p->room * sizeof(float), "elements", (void **)&p->x, err));
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_alloc(gpu, tsr_plane_nbytes(coding, i, p->room), "a plane",
				      &p->plane[i], err));
	TSR_TRY(tsr_gpu_alloc(gpu, sizeof(*p->report), "a report", (void **)&p->report, err));
	return tsr_gpu_zero(p->stream, p->report, sizeof(*p->report), err);
}

static enum tsr_status encode_piece(struct piece *p, const float *x, uint64_t first, uint64_t n,
				    void *const plane[], struct tsr_err *err)
{
	struct tsr_coding at = *p->coding;

	at.first += first;
	TSR_TRY(tsr_gpu_put(p->stream, p->x, x + first, n * sizeof(*x), err));
	TSR_TRY(tsr_gpu_encode(p->stream, &at, p->x, n, p->plane, p->report, err));
	for (unsigned i = 0; i < p->coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_get(p->stream,
				    (char *)plane[i] + tsr_plane_nbytes(p->coding, i, first),
				    p->plane[i], tsr_plane_nbytes(p->coding, i, n), err));
	return TSR_OK;
}

static enum tsr_status decode_piece(struct piece *p, const void *const plane[], uint64_t first,
				    uint64_t n, float *x, struct tsr_err *err)
{
	for (unsigned i = 0; i < p->coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_put(p->stream, p->plane[i],
				    (const char *)plane[i] + tsr_plane_nbytes(p->coding, i, first),
				    tsr_plane_nbytes(p->coding, i, n), err));
	TSR_TRY(tsr_gpu_decode(p->stream, p->coding, (const void *const *)p->plane, n, p->x, err));
	return tsr_gpu_get(p->stream, x + first, p->x, n * sizeof(*x), err);
}

extern "C" enum tsr_status tsr_gpu_encode_host(struct tsr_gpu *gpu, const struct tsr_coding *coding,
					       const float *x, uint64_t n, void *const plane[],
					       struct tsr_encode_report *report,
					       struct tsr_err *err)
{
	struct tsr_encode_report found = { 0, 0, 0 };
	struct piece p;
	enum tsr_status status = piece_new(&p, gpu, coding, n, err);

	for (uint64_t first = 0; first < n && status == TSR_OK; first += p.room)
		status = encode_piece(&p, x, first, n - first < p.room ? n - first : p.room, plane,
				      err);
	if (status == TSR_OK)
		status = tsr_gpu_get(p.stream, &found, p.report, sizeof(found), err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(p.stream, err);
	if (status == TSR_OK) {
		report->scale_underflow += found.scale_underflow;
		report->scale_overflow += found.scale_overflow;
		report->narrow_overflow += found.narrow_overflow;
	}
	piece_free(&p);
	return status;
}

extern "C" enum tsr_status tsr_gpu_decode_host(struct tsr_gpu *gpu, const struct tsr_coding *coding,
					       const void *const plane[], uint64_t n, float *x,
					       struct tsr_err *err)
{
	struct piece p;
	enum tsr_status status = piece_new(&p, gpu, coding, n, err);

	for (uint64_t first = 0; first < n && status == TSR_OK; first += p.room)
		status = decode_piece(&p, plane, first, n - first < p.room ? n - first : p.room, x,
				      err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(p.stream, err);
	piece_free(&p);
	return status;
}
