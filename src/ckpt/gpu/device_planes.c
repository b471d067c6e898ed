/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entropy coding of planes in a GPU's memory (tersor/device.h): what kernels are told of them, and what is
 * where meanwhile.
 */
#include "base/fail.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/tensor_tiles.h"
#include "gpu/gpu_work.h"
#include "tersor/device.h"

/* All kinds of pieces; those with contexts come last, as others are the scales that they depend on. */
static const struct tsr_gpu_coding codings[] = {
	{ { 1, false }, false }, { { 2, false }, false }, { { 2, true }, false },
	{ { 4, false }, false }, { { 4, true }, false },  { { 8, false }, false },
	{ { 1, false }, true },
};
#define CODINGS (sizeof(codings) / sizeof(*codings))

/* Planes, and where things are in the scratch; its pieces of a kind are one behind the other. */
struct work {
	const struct tsr_device_plane *given;
	struct tsr_gpu_plane *planes;
	size_t n;
	uint32_t first[CODINGS + 1]; /* of each kind: its first piece */
	uint64_t spans, scales, staging, rooms, end;
	char *scratch;
	void *coded; /* to encode */
	uint64_t *ends, *damaged; /* to encode; to decode */
};

/* --- Planes -------------------------------------------------------------------------------------- */

static struct tsr_gpu_plane describe(const struct tsr_device_plane *d)
{
	const struct tsr_tensor t = { .coding = *d->coding };
	const struct tsr_entropy_kind kind = tsr_coded_kind(tsr_plane_dtype(d->coding, d->which));
	struct tsr_gpu_plane p = {
		.coding = { kind, tsr_coded_has_contexts(&t, d->which) },
		.plain = d->plain,
		.coded = d->coded,
		.coded_nbytes = d->coded_nbytes,
		.n = tsr_plane_nbytes(d->coding, d->which, d->n) / kind.width,
		.piece = (uint32_t)(tsr_coded_piece_nbytes(&t, d->which) / kind.width),
	};

	p.npieces = (uint32_t)((p.n + p.piece - 1) / p.piece);
	p.room = (uint32_t)(tsr_entropy_bound(kind, p.piece) + 15) / 16 * 16;
	if (p.coding.contexts) {
		p.variance = tsr_coded_variance(d->coding, d->columns, 0, d->scales);
		p.piece_scales = (uint32_t)tsr_plane_count(d->coding, 1, tsr_tensor_piece(&t));
	}
	return p;
}

static uint64_t index_nbytes(const struct tsr_gpu_plane *p)
{
	return (uint64_t)p->npieces * TSR_CODED_ENTRY;
}

/* A thread loads and stores four elements at once. */
static bool is_aligned(const struct tsr_gpu_plane *p)
{
	return p->npieces <= 1 || p->piece % 4 == 0;
}

uint64_t tsr_device_coded_bound(const struct tsr_device_plane *plane)
{
	const struct tsr_gpu_plane p = describe(plane);

	if (!is_aligned(&p))
		return 0;
	return (index_nbytes(&p) + p.n / p.piece * tsr_entropy_bound(p.coding.kind, p.piece) +
		tsr_entropy_bound(p.coding.kind, (size_t)(p.n % p.piece)) + 15) /
	       16 * 16;
}

/* --- The scratch --------------------------------------------------------------------------------- */

static bool is_same(struct tsr_gpu_coding a, struct tsr_gpu_coding b)
{
	return a.kind.width == b.kind.width && a.kind.rotated == b.kind.rotated &&
	       a.contexts == b.contexts;
}

static uint64_t round_up(uint64_t nbytes)
{
	return (nbytes + 255) / 256 * 256;
}

/* The scales of log8 that contexts need are made of the stored ones. */
static uint64_t made_scales(const struct work *w, size_t i)
{
	return w->planes[i].variance.logarithmic
		       ? tsr_plane_count(w->given[i].coding, 1, w->given[i].n)
		       : 0;
}

/* To be freed: w->planes. */
static bool lay_out(struct work *w, const struct tsr_gpu *gpu, bool decodes)
{
	uint64_t staging = 0, rooms = 0, scales = 0, staged;
	uint32_t npieces = 0;

	w->planes = calloc(w->n + 1, sizeof(*w->planes));
	for (size_t i = 0; w->planes && i < w->n; i++) {
		w->planes[i] = describe(&w->given[i]);
		if (!decodes)
			w->planes[i].coded = NULL;
		scales += round_up(made_scales(w, i) * sizeof(uint16_t));
	}
	for (size_t k = 0; w->planes && k < CODINGS; k++) {
		w->first[k] = npieces;
		for (size_t i = 0; i < w->n; i++) {
			struct tsr_gpu_plane *p = &w->planes[i];

			if (!is_same(p->coding, codings[k]))
				continue;
			p->first = npieces;
			p->rooms = rooms;
			npieces += p->npieces;
			rooms += (uint64_t)p->room * p->npieces;
		}
		staged = tsr_gpu_staging_nbytes(gpu, codings[k], npieces - w->first[k]);
		staging = staged > staging ? staged : staging;
	}
	w->first[CODINGS] = npieces;
	w->spans = round_up(npieces * sizeof(struct tsr_gpu_piece));
	w->scales = w->spans + round_up(w->n * sizeof(struct tsr_gpu_span));
	w->staging = w->scales + scales;
	w->rooms = w->staging + (decodes ? 0 : round_up(staging));
	w->end = w->rooms + (decodes ? 0 : rooms);
	return w->planes != NULL;
}

uint64_t tsr_device_coding_scratch(const struct tsr_gpu *gpu, const struct tsr_device_plane *planes,
				   size_t n, bool decodes)
{
	struct work w = { .given = planes, .n = n };
	const uint64_t nbytes = lay_out(&w, gpu, decodes) ? w.end : UINT64_MAX;

	free(w.planes);
	return nbytes;
}

/* --- Coding -------------------------------------------------------------------------------------- */

/* Let contexts of log8 have their scales, which are there when this is done on the GPU. */
static enum tsr_status make_scales(const struct work *w, struct tsr_gpu_stream *stream,
				   struct tsr_err *err)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct tsr_entropy_scales *s = &w->planes[i].variance.scales;

		if (made_scales(w, i))
			TSR_TRY(tsr_gpu_shorten_scales(stream, w->given[i].scales,
						       made_scales(w, i),
						       (uint16_t *)(uintptr_t)s->scales, err));
	}
	return TSR_OK;
}

static void place_scales(struct work *w)
{
	char *at = w->scratch + w->scales;

	for (size_t i = 0; i < w->n; i++) {
		if (made_scales(w, i))
			w->planes[i].variance.scales.scales = (uint16_t *)(void *)at;
		at += round_up(made_scales(w, i) * sizeof(uint16_t));
	}
}

static enum tsr_status append(struct tsr_gpu_stream *stream, void *ctx, struct tsr_err *err)
{
	struct work *w = ctx;
	struct tsr_gpu_piece *pieces = (void *)w->scratch;
	struct tsr_gpu_span *spans = (void *)(w->scratch + w->spans);

	place_scales(w);
	TSR_TRY(tsr_gpu_list_pieces(stream, w->planes, w->n, w->scratch + w->rooms, pieces, spans,
				    err));
	for (size_t k = 0; k < CODINGS; k++) {
		struct tsr_gpu_piece *first = pieces + w->first[k];
		const uint32_t npieces = w->first[k + 1] - w->first[k];

		if (codings[k].contexts)
			TSR_TRY(make_scales(w, stream, err));
		if (w->coded)
			TSR_TRY(tsr_gpu_encode_pieces(stream, codings[k], first, npieces,
						      w->scratch + w->staging, err));
		else
			TSR_TRY(tsr_gpu_decode_pieces(stream, codings[k], first, npieces,
						      w->damaged, err));
	}
	if (!w->coded)
		return TSR_OK;
	return tsr_gpu_place_pieces(stream, spans, w->n, pieces, w->first[CODINGS], w->coded,
				    w->ends, err);
}

/* What kernels rely on: how pieces are aligned, and, to decode, that there is an index. */
static enum tsr_status check(const struct work *w, bool decodes, struct tsr_err *err)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct tsr_gpu_plane *p = &w->planes[i];

		if (!is_aligned(p))
			return tsr_fail(
				err, TSR_E_UNSUPPORTED,
				"plane %zu: found pieces of %u elements, expected a multiple of 4",
				i, p->piece);
		if (decodes && p->coded_nbytes < index_nbytes(p))
			return tsr_fail(err, TSR_E_FORMAT,
					"coded plane %zu: found %" PRIu64
					" bytes, expected an index of %" PRIu64,
					i, p->coded_nbytes, index_nbytes(p));
	}
	return TSR_OK;
}

static enum tsr_status run(struct work *w, struct tsr_gpu *gpu, void *stream, bool decodes,
			   struct tsr_err *err)
{
	enum tsr_status status;

	if (!lay_out(w, gpu, decodes))
		return tsr_fail_nomem(err, "coding planes");
	status = check(w, decodes, err);
	TSR_THEN(status, tsr_gpu_with_stream(gpu, stream, append, w, err));
	free(w->planes);
	return status;
}

enum tsr_status tsr_device_code(struct tsr_gpu *gpu, void *stream,
				const struct tsr_device_plane *planes, size_t n, void *scratch,
				void *coded, uint64_t *ends, struct tsr_err *err)
{
	struct work w = {
		.given = planes, .n = n, .scratch = scratch, .coded = coded, .ends = ends
	};

	return run(&w, gpu, stream, false, err);
}

enum tsr_status tsr_device_uncode(struct tsr_gpu *gpu, void *stream,
				  const struct tsr_device_plane *planes, size_t n, void *scratch,
				  uint64_t *damaged, struct tsr_err *err)
{
	struct work w = { .given = planes, .n = n, .scratch = scratch, .damaged = damaged };

	return run(&w, gpu, stream, true, err);
}
