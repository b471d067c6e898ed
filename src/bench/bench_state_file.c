/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of a packed file, in memory: those of all its tensors behind each other, by what they hold. */
#include "base/fail.h"
#include "bench/bench_entropy.h"
#include "ckpt/coded.h"
#include "ckpt/tensor_tiles.h"

#define NOT_MEASURED TSR_BENCH_PLANES

struct reading {
	struct tsr_checkpoint *c;
	struct tsr_bench_state *s;
	uint64_t n[TSR_BENCH_PLANES], npieces[TSR_BENCH_PLANES], nscales[TSR_BENCH_PLANES];
	struct tsr_err *err;
};

/* Which of the planes that are measured this one belongs to. */
static unsigned index_of(const struct tsr_tensor *t, unsigned plane)
{
	const enum tsr_dtype dtype = tsr_plane_dtype(&t->coding, plane);

	if (t->coding.codec->planes[plane].unit != TSR_PER_ELEMENT)
		return NOT_MEASURED;
	if (t->kind == TSR_KIND_WEIGHT)
		return dtype == TSR_BF16 ? TSR_BENCH_WEIGHTS
		       : dtype == TSR_I8 ? TSR_BENCH_CORRECTIONS
					 : NOT_MEASURED;
	if (plane != 0 || tsr_dtype_bits(dtype) != 8)
		return NOT_MEASURED;
	return t->kind == TSR_KIND_MOMENTUM   ? TSR_BENCH_MOMENTA
	       : t->kind == TSR_KIND_VARIANCE ? TSR_BENCH_VARIANCES
					      : NOT_MEASURED;
}

static uint64_t scales_of(const struct reading *r, size_t k, unsigned plane)
{
	const struct tsr_tensor *t = tsr_checkpoint_tensor(r->c, k);

	return tsr_coded_has_contexts(t, plane)
		       ? tsr_plane_nbytes(&t->coding, 1, t->numel) / sizeof(uint16_t)
		       : 0;
}

/* The pieces of a plane, of which the elements before number @first, and their scales, or NULL. */
static void cut(const struct tsr_tensor *t, uint64_t first, const uint16_t *scales,
		struct tsr_bench_piece *pieces)
{
	const uint64_t size = tsr_tensor_piece(t);

	for (uint64_t at = 0; at < t->numel; at += size, pieces++) {
		const uint64_t left = t->numel - at;

		*pieces = (struct tsr_bench_piece){
			.first = first + at,
			.n = left < size ? (size_t)left : (size_t)size,
			.codes = scales != NULL,
		};
		if (pieces->codes)
			pieces->variance = tsr_coded_variance(
				&t->coding, tsr_coded_columns(t), at,
				scales + tsr_plane_count(&t->coding, 1, at));
	}
}

static enum tsr_status read_plane(struct reading *r, size_t k, unsigned plane, unsigned index)
{
	const struct tsr_tensor *t = tsr_checkpoint_tensor(r->c, k);
	struct tsr_bench_state_plane *p = &r->s->planes[index];
	const uint64_t width = tsr_dtype_bits(tsr_bench_plane_kinds[index].dtype) / 8;
	const uint64_t nscales = scales_of(r, k, plane);
	uint16_t *scales = p->scales + r->nscales[index];

	TSR_TRY(tsr_checkpoint_read_stored(r->c, t, plane, 0, t->numel * width,
					   p->plain + r->n[index] * width, r->err));
	if (nscales) {
		TSR_TRY(tsr_checkpoint_read_stored(r->c, t, 1, 0, nscales * sizeof(*scales), scales,
						   r->err));
		tsr_coded_shorten_scales(&t->coding, nscales * sizeof(*scales), scales);
	}
	cut(t, r->n[index], nscales ? scales : NULL, p->pieces + r->npieces[index]);
	return TSR_OK;
}

/* Count what there is to read, or read it. */
static enum tsr_status visit_planes(struct reading *r, bool reads)
{
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++)
		r->n[i] = r->npieces[i] = r->nscales[i] = 0;
	for (size_t k = 0; k < tsr_checkpoint_ntensors(r->c); k++) {
		const struct tsr_tensor *t = tsr_checkpoint_tensor(r->c, k);

		for (unsigned plane = 0; t->coding.codec && plane < t->nplanes; plane++) {
			const unsigned index = index_of(t, plane);

			if (index == NOT_MEASURED)
				continue;
			if (reads)
				TSR_TRY(read_plane(r, k, plane, index));
			r->n[index] += t->numel;
			r->npieces[index] += tsr_coded_npieces(t);
			r->nscales[index] += scales_of(r, k, plane);
		}
	}
	return TSR_OK;
}

static enum tsr_status read_state(struct reading *r)
{
	uint64_t all = 0;

	TSR_TRY(visit_planes(r, false));
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++) {
		all += r->n[i];
		TSR_TRY(tsr_bench_state_plane_alloc(&r->s->planes[i], i, r->n[i], r->npieces[i],
						    r->nscales[i], r->err));
	}
	if (!all)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: no packed weights, momenta or variances to measure",
				tsr_checkpoint_path(r->c));
	return visit_planes(r, true);
}

enum tsr_status tsr_bench_state_read(const char *path, struct tsr_bench_state *ret,
				     struct tsr_err *err)
{
	struct reading r = { .s = ret, .err = err };
	enum tsr_status status;

	TSR_TRY(tsr_checkpoint_open(&path, 1, NULL, &r.c, err));
	status = read_state(&r);
	tsr_checkpoint_close(r.c);
	return status;
}
