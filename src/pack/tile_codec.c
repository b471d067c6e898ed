/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs at work on one tile after the other, on the CPU or on a GPU. */
#include "pack/tile_codec.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/read.h"
#include "codec/loops.h"
#include "codec/measuring.h"
#include "codec/narrow.h"
#include "codec/nonfinite.h"

/* Elements that are encoded, decoded and measured together, so that they stay in the L1 cache. */
#define BATCH_ELEMENTS 2048u

/* A multiple of the lanes too, so that an element's lane is that of its place in the tile. */
static size_t batch_of(const struct tsr_coding *coding)
{
	const size_t align = tsr_coding_align(coding);
	const size_t step = align % TSR_MEASURE_LANES ? align * TSR_MEASURE_LANES : align;

	return step < BATCH_ELEMENTS ? BATCH_ELEMENTS / step * step : step;
}

/* --- Ratios ----------------------------------------------------------------------------------- */

enum tsr_status tsr_coder_beside(struct tsr_coder *coder, const struct tsr_checkpoint *c,
				 const struct tsr_tensor *stored, const struct tsr_tensor *wanted,
				 uint64_t first, size_t n, struct tsr_err *err)
{
	const struct tsr_tensor *last = wanted ? wanted : stored;

	if (!coder->beside)
		coder->beside = malloc(sizeof(*coder->beside));
	if (!coder->beside)
		return tsr_fail_nomem(err, c->path);
	if (coder->gpu && last->coding.codec && last->coding.codec->rank)
		return tsr_tensor_factors(c, last, &last->coding, first, n, coder->beside->factors,
					  err);
	return tsr_beside_read(coder->beside, c, stored, wanted, first, n, err);
}

/* Whether the CPU turns momenta into what is coded, and back: a GPU makes products of factors itself. */
static bool turns(const struct tsr_coder *coder, const struct tsr_coding *coding)
{
	return coding->codec->relative || (coding->codec->rank && !coder->gpu);
}

/* Have ratios where momenta are; returns where these are now.  What no float can hold overflows. */
static const float *make_ratios(struct tsr_coder *coder, const struct tsr_coding *coding, size_t n,
				struct tsr_encode_report *report)
{
	struct tsr_beside *b = coder->beside;
	float *x = coder->m->x;

	if (!turns(coder, coding))
		return x;
	memcpy(b->momenta, x, n * sizeof(*x));
	tsr_ratios_make(coding, x, b->was, n);
	report->narrow_overflow += tsr_count_nonfinite(TSR_F32, x, n * sizeof(*x));
	return b->momenta;
}

/* Make @n ratios momenta; the first is element @first of the tile. */
static void undo_ratios(const struct tsr_coder *coder, const struct tsr_coding *coding,
			size_t first, float *x, size_t n)
{
	if (turns(coder, coding))
		tsr_ratios_undo(coding, x, coder->beside->will + first, n);
}

/* Have the momenta again where they were. */
static void restore_momenta(struct tsr_coder *coder, const struct tsr_coding *coding, size_t n)
{
	if (turns(coder, coding))
		memcpy(coder->m->x, coder->beside->momenta, n * sizeof(*coder->m->x));
}

/* --- On the CPU ------------------------------------------------------------------------------- */

/*
 * Elements @start to @end - 1, decoded to m->decoded; both multiples of the batch, or @end the last.
 * @elements: what they are measured against.
 */
static void encode_part(struct tsr_coder *coder, const struct tsr_coding *coding,
			enum tsr_dtype dtype, const float *elements, size_t start, size_t end,
			struct tsr_measure *measure, struct tsr_encode_report *report)
{
	struct tsr_coder_memory *m = coder->m;
	struct tsr_coding batch_coding = *coding;
	const size_t batch = batch_of(coding);

	for (size_t first = start; first < end; first += batch) {
		const size_t count = end - first < batch ? end - first : batch;
		float *decoded = m->decoded + (first - start);
		void *out[TSR_PLANES_MAX];
		const void *in[TSR_PLANES_MAX];

		for (unsigned i = 0; i < coding->codec->nplanes; i++)
			in[i] = out[i] = m->plane[i] + tsr_plane_nbytes(coding, i, first);
		batch_coding.first = coding->first + first;
		coding->codec->encode(&batch_coding, m->x + first, count, out, report);
		coding->codec->decode(coding, in, count, decoded);
		undo_ratios(coder, coding, first, decoded, count);
		tsr_round_to(dtype, decoded, count);
		tsr_measure_add(measure, elements + first, decoded, count);
	}
}

static enum tsr_status encode_on_cpu(struct tsr_coder *coder, const struct tsr_coding *coding,
				     enum tsr_dtype dtype, size_t n, struct tsr_measure *measure,
				     struct tsr_encode_report *report, struct tsr_err *err)
{
	const float *elements = make_ratios(coder, coding, n, report);
	const size_t batch = batch_of(coding);

	(void)err;
	for (size_t first = 0; first < n; first += batch)
		encode_part(coder, coding, dtype, elements, first,
			    n - first < batch ? n : first + batch, measure, report);
	restore_momenta(coder, coding, n);
	return TSR_OK;
}

static enum tsr_status decode_on_cpu(struct tsr_coder *coder, const struct tsr_coding *coding,
				     enum tsr_dtype dtype, size_t n, struct tsr_err *err)
{
	(void)err;
	coding->codec->decode(coding, (const void *const *)coder->plane, n, coder->m->x);
	undo_ratios(coder, coding, 0, coder->m->x, n);
	tsr_round_to(dtype, coder->m->x, n);
	return TSR_OK;
}

/* --- On a GPU --------------------------------------------------------------------------------- */

/* Append adding the products of a low-rank coding to the elements there; with a @sign of -1 subtracting. */
static enum tsr_status add_products(struct tsr_coder *coder, const struct tsr_coding *coding,
				    size_t n, float sign, struct tsr_encode_report *report,
				    struct tsr_err *err)
{
	const struct tsr_coding rows = tsr_factors_coding();
	const uint32_t nstages = tsr_factor_stages(coding);
	const size_t nrows = nstages ? ((n + coding->row - 1) / coding->row + coding->row) * nstages
				     : 0;
	struct tsr_gpu_stream *stream = coder->stream;
	unsigned char *codes;
	void *memory;
	float *x;

	if (!nstages)
		return TSR_OK;
	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH_MATRIX,
				nrows * (TSR_RANK * sizeof(*x) + TSR_FACTOR_NBYTES), &memory, err));
	x = memory;
	codes = (unsigned char *)(x + nrows * TSR_RANK);
	TSR_TRY(tsr_gpu_copy(stream, codes, coder->beside->factors, nrows * TSR_FACTOR_NBYTES,
			     err));
	TSR_TRY(tsr_gpu_decode(stream, &rows,
			       (const void *const[]){ codes, codes + nrows * TSR_RANK },
			       nrows * TSR_RANK, x, err));
	return tsr_gpu_add_products(stream, x, nstages, coding->row, sign, n, coder->device->x,
				    report, err);
}

/* Append the decoding of planes on the GPU, over the elements there, and their copy to @x. */
static enum tsr_status decode_there(struct tsr_coder *coder, const struct tsr_coding *coding,
				    size_t n, float *x, struct tsr_err *err)
{
	struct tsr_coder_memory *d = coder->device;

	TSR_TRY(tsr_gpu_decode(coder->stream, coding, (const void *const *)coder->device_plane, n,
			       d->x, err));
	TSR_TRY(add_products(coder, coding, n, 1, NULL, err));
	return tsr_gpu_copy(coder->stream, x, d->x, n * sizeof(*x), err);
}

/* Append all of it: elements to the GPU, encode, planes and report back, decode, elements back. */
static enum tsr_status encode_there(struct tsr_coder *coder, const struct tsr_coding *coding,
				    size_t n, struct tsr_err *err)
{
	struct tsr_coder_memory *m = coder->m, *d = coder->device;
	struct tsr_gpu_stream *stream = coder->stream;

	TSR_TRY(tsr_gpu_copy(stream, d->x, m->x, n * sizeof(*m->x), err));
	TSR_TRY(tsr_gpu_zero(stream, &d->report, sizeof(d->report), err));
	TSR_TRY(add_products(coder, coding, n, -1, &d->report, err));
	if (coding->factors)
		TSR_TRY(tsr_gpu_copy(stream, coder->device_plane[2],
				     coding->factors + coding->first / coding->row * coding->share,
				     tsr_plane_nbytes(coding, 2, n), err));
	TSR_TRY(tsr_gpu_encode(stream, coding, d->x, n, coder->device_plane, &d->report, err));
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_copy(stream, m->plane[i], coder->device_plane[i],
				     tsr_plane_nbytes(coding, i, n), err));
	TSR_TRY(tsr_gpu_copy(stream, &m->report, &d->report, sizeof(m->report), err));
	return decode_there(coder, coding, n, m->decoded, err);
}

/* The CPU measures, in the same order as when it encodes, so that sums round alike. */
static enum tsr_status encode_on_gpu(struct tsr_coder *coder, const struct tsr_coding *coding,
				     enum tsr_dtype dtype, size_t n, struct tsr_measure *measure,
				     struct tsr_encode_report *report, struct tsr_err *err)
{
	const struct tsr_coder_memory *m = coder->m;
	const size_t batch = batch_of(coding);
	const float *elements;

	if (n == 0 || !tsr_gpu_has_codec(coding->codec))
		return encode_on_cpu(coder, coding, dtype, n, measure, report, err);
	elements = make_ratios(coder, coding, n, report);
	TSR_TRY(encode_there(coder, coding, n, err));
	TSR_TRY(tsr_gpu_sync(coder->stream, err));
	report->scale_underflow += m->report.scale_underflow;
	report->scale_overflow += m->report.scale_overflow;
	report->narrow_overflow += m->report.narrow_overflow;
	undo_ratios(coder, coding, 0, coder->m->decoded, n);
	tsr_round_to(dtype, coder->m->decoded, n);
	for (size_t first = 0; first < n; first += batch)
		tsr_measure_add(measure, elements + first, m->decoded + first,
				n - first < batch ? n - first : batch);
	restore_momenta(coder, coding, n);
	return TSR_OK;
}

static enum tsr_status decode_on_gpu(struct tsr_coder *coder, const struct tsr_coding *coding,
				     enum tsr_dtype dtype, size_t n, struct tsr_err *err)
{
	/* There are no kernels for codes into a table that the file itself brings. */
	if (n == 0 || !tsr_gpu_has_codec(coding->codec))
		return decode_on_cpu(coder, coding, dtype, n, err);
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		TSR_TRY(tsr_gpu_copy(coder->stream, coder->device_plane[i], coder->m->plane[i],
				     tsr_plane_nbytes(coding, i, n), err));
	TSR_TRY(decode_there(coder, coding, n, coder->m->x, err));
	TSR_TRY(tsr_gpu_sync(coder->stream, err));
	undo_ratios(coder, coding, 0, coder->m->x, n);
	tsr_round_to(dtype, coder->m->x, n);
	return TSR_OK;
}

/* --- Either ----------------------------------------------------------------------------------- */

static enum tsr_status open_on_gpu(struct tsr_coder *coder, size_t nbytes, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_alloc_host(coder->gpu, nbytes, "tiles, in host memory", (void **)&coder->m,
				   err));
	TSR_TRY(tsr_gpu_alloc(coder->gpu, sizeof(*coder->device), "tiles", (void **)&coder->device,
			      err));
	return tsr_gpu_stream_new(coder->gpu, &coder->stream, err);
}

static enum tsr_status open_on(struct tsr_coder *coder, const struct tsr_run *run, bool encodes,
			       struct tsr_err *err)
{
	struct tsr_gpu *gpu = tsr_run_gpu(run);
	const size_t nbytes = sizeof(*coder->m) +
			      (encodes ? TSR_TILE_ELEMENTS * sizeof(*coder->m->decoded) : 0);
	enum tsr_status status = TSR_OK;

	*coder = (struct tsr_coder){
		.gpu = gpu,
		.encode = gpu ? encode_on_gpu : encode_on_cpu,
		.decode = gpu ? decode_on_gpu : decode_on_cpu,
		.m = gpu ? NULL : aligned_alloc(64, nbytes),
	};
	if (gpu)
		status = open_on_gpu(coder, nbytes, err);
	else if (!coder->m)
		status = tsr_fail_nomem(err, "work buffers");
	if (status != TSR_OK)
		tsr_coder_close(NULL, coder);
	TSR_TRY(status);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++) {
		coder->plane[i] = coder->m->plane[i];
		coder->device_plane[i] = gpu ? coder->device->plane[i] : NULL;
	}
	return TSR_OK;
}

/* --- Two at a time ---------------------------------------------------------------------------- */

/* Elements that both sides can be cut at, few enough to stay in a cache if there is such a number. */
static size_t strip_of(const struct tsr_coder_side *m, const struct tsr_coder_side *v, size_t n)
{
	const size_t a = m->coding ? batch_of(m->coding) : TSR_MEASURE_LANES;
	const size_t b = v->coding ? batch_of(v->coding) : TSR_MEASURE_LANES;
	const size_t large = a > b ? a : b, small = a > b ? b : a;

	const bool beside = m->coding && tsr_codec_is_beside(m->coding->codec);

	return beside || m->coder->gpu || large % small || large > n ? n : large;
}

/* What comes back of elements @first to @end - 1. */
static enum tsr_status encode_side(const struct tsr_coder_side *s, size_t first, size_t end,
				   const float **ret, struct tsr_err *err)
{
	struct tsr_coder *coder = s->coder;
	const float *elements;

	*ret = s->coding ? coder->m->decoded : coder->m->x + first;
	if (!s->coding)
		return TSR_OK;
	if (coder->gpu)
		return coder->encode(coder, s->coding, s->dtype, end, s->measure, s->report, err);
	elements = make_ratios(coder, s->coding, end, s->report);
	encode_part(coder, s->coding, s->dtype, elements, first, end, s->measure, s->report);
	restore_momenta(coder, s->coding, end);
	return TSR_OK;
}

enum tsr_status tsr_coder_encode_pair(const struct tsr_coder_side *m,
				      const struct tsr_coder_side *v, size_t n, float eps,
				      struct tsr_update_measure *update, struct tsr_err *err)
{
	const size_t strip = strip_of(m, v, n);

	for (size_t first = 0; first < n; first += strip) {
		const size_t end = n - first < strip ? n : first + strip;
		const struct tsr_moments before = { m->coder->m->x + first,
						    v->coder->m->x + first };
		struct tsr_moments after;

		TSR_TRY(encode_side(m, first, end, &after.m, err));
		TSR_TRY(encode_side(v, first, end, &after.v, err));
		tsr_update_measure_add(update, &before, &after, end - first, eps);
	}
	return TSR_OK;
}

/* --- Opening ---------------------------------------------------------------------------------- */

enum tsr_status tsr_coder_open_encoder(void *ctx, const struct tsr_run *run, void *coder,
				       struct tsr_err *err)
{
	(void)ctx;
	return open_on(coder, run, true, err);
}

enum tsr_status tsr_coder_open_decoder(void *ctx, const struct tsr_run *run, void *coder,
				       struct tsr_err *err)
{
	(void)ctx;
	return open_on(coder, run, false, err);
}

void tsr_coder_close(void *ctx, void *memory)
{
	struct tsr_coder *coder = memory;

	(void)ctx;
	free(coder->beside);
	coder->beside = NULL;
	if (!coder->gpu) {
		free(coder->m);
		return;
	}
	tsr_gpu_stream_free(coder->stream);
	tsr_gpu_free(coder->gpu, coder->device);
	tsr_gpu_free_host(coder->gpu, coder->m);
}

enum tsr_status tsr_coder_read_f32(struct tsr_coder *coder, const struct tsr_checkpoint *c,
				   const struct tsr_tensor *t, uint64_t first, size_t n, float *x,
				   struct tsr_err *err)
{
	const struct tsr_tensor *beside = tsr_tensor_beside(c, t);
	size_t before;

	if (!t->coding.codec)
		return tsr_tensor_read_plain(c, t, first, n, coder->plane[0], x, err);
	TSR_TRY(tsr_tensor_read_planes(c, t, first, n, coder->plane, &before, err));
	if (beside)
		TSR_TRY(tsr_coder_beside(coder, c, beside, NULL, first - before, before + n, err));
	TSR_TRY(coder->decode(coder, &t->coding, t->dtype, before + n, err));
	memcpy(x, coder->m->x + before, n * sizeof(*x));
	return TSR_OK;
}
