/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding by a codec's kernels. */
#include "codec/ratio_math.h"
#include "gpu/cuda.h"
#include "gpu/vector.cuh"

/* By the row of a codec. */
#define X(id, ...) &tsr_gpu_codec_##id,
static const struct tsr_gpu_codec *const codecs[] = { NULL, TSR_CODEC_LIST(X) };
#undef X

const struct tsr_gpu_codec *tsr_gpu_codec_of(const struct tsr_codec *codec)
{
	if (codec->learned)
		return codec->has_codebook ? &tsr_gpu_codec_gefen8 : &tsr_gpu_codec_blockmean;
	if (codec->rank) /* of what the products leave */
		return &tsr_gpu_codec_linear8;
	return codecs[codec->row];
}

struct coded_planes tsr_gpu_planes(const struct tsr_gpu_job *job, uint64_t first)
{
	const struct tsr_coding *coding = job->coding;
	const enum tsr_table_set set = tsr_gpu_codec_of(coding->codec)->tables;
	struct coded_planes p = {};

	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		p.plane[i] = (char *)job->plane[i] +
			     (first ? tsr_plane_nbytes(coding, i, first) : 0);
	p.scale = coding->scale;
	p.narrow = coding->narrow;
	if (set != TSR_TABLES_COUNT)
		p.tables = job->stream->gpu->tables[set];
	return p;
}

extern "C" bool tsr_gpu_has_codec(const struct tsr_codec *codec)
{
	return tsr_gpu_codec_of(codec) != NULL;
}

static enum tsr_status run(const struct tsr_gpu_job *job, struct tsr_err *err)
{
	const char *name = job->coding->codec->name;
	const struct tsr_gpu_codec *codec = tsr_gpu_codec_of(job->coding->codec);
	struct tsr_gpu *gpu = job->stream->gpu;

	if (!codec)
		return tsr_fail(err, TSR_E_UNSUPPORTED, "cuda:%u: no kernels for codec %s",
				gpu->index, name);
	TSR_TRY(tsr_gpu_use(gpu, err));
	TSR_TRY(tsr_gpu_prepare_tables(gpu, codec, err));
	if (job->n)
		codec->run(job);
	return tsr_gpu_started(gpu, job->decodes ? "decoding of " : "encoding to ", name, err);
}

extern "C" enum tsr_status tsr_gpu_encode(struct tsr_gpu_stream *stream,
					  const struct tsr_coding *coding, const float *x,
					  uint64_t n, void *const plane[],
					  struct tsr_encode_report *report, struct tsr_err *err)
{
	const struct tsr_gpu_job job = { stream, coding, plane, (float *)x, n, false, report };

	return run(&job, err);
}

extern "C" enum tsr_status tsr_gpu_decode(struct tsr_gpu_stream *stream,
					  const struct tsr_coding *coding,
					  const void *const plane[], uint64_t n, float *x,
					  struct tsr_err *err)
{
	const struct tsr_gpu_job job = { stream, coding, (void *const *)plane, x, n, true, NULL };

	return run(&job, err);
}

/* A thread has an element.  The terms of its product are added as tsr_products_fn has it. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	add_products(const float *factors, unsigned nstages, uint32_t columns, float sign,
		     uint64_t n, float *x, struct tsr_encode_report *report)
{
	const uint64_t i = tsr_first_vector(1), nleft = (n + columns - 1) / columns;
	float l[TSR_RANK], r[TSR_RANK], sum = 0.0f;
	bool finite = true;

	if (i < n) {
		for (unsigned stage = 0; stage < nstages; stage++) {
			const uint64_t at = stage * (nleft + columns);

			load_tile<float, TSR_RANK>(factors, at + i / columns, l);
			load_tile<float, TSR_RANK>(factors, at + nleft + i % columns, r);
#pragma unroll
			for (unsigned k = 0; k < TSR_RANK; k++)
				sum += l[k] * r[k];
		}
		x[i] = tsr_ratio_add_product(x[i], sum, sign);
		finite = tsr_abs(x[i]) < INFINITY;
	}
	if (report)
		tsr_add_count(&report->narrow_overflow, !finite);
}

extern "C" enum tsr_status tsr_gpu_add_products(struct tsr_gpu_stream *stream, const float *factors,
						unsigned nstages, uint32_t columns, float sign,
						uint64_t n, float *x,
						struct tsr_encode_report *report,
						struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	if (n)
		add_products<<<tsr_blocks(n, 1), TSR_BLOCK, 0, stream->handle>>>(
			factors, nstages, columns, sign, n, x, report);
	return tsr_gpu_started(stream->gpu, "products of factors", "", err);
}
