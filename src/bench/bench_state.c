/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of a state, whose coding is measured: made, or those of a packed file. */
#include "bench/bench_state.h"

#include "base/fail.h"
#include "bench/bench_engine.h"
#include "ckpt/coded/coded_plane.h"
#include "ckpt/tensor_tiles.h"

#define GROUP 32u /* of the codecs of a made state; it divides rows, which divide pieces */

_Static_assert(TSR_BENCH_TILE == TSR_ENTROPY_PIECE, "a job is a piece");

static const struct {
	const char *name;
	enum tsr_dtype dtype;
} kinds[TSR_BENCH_STATE_PLANES] = {
	[TSR_BENCH_WEIGHTS] = { "weights", TSR_BF16 },
	[TSR_BENCH_CORRECTIONS] = { "corrections", TSR_I8 },
	[TSR_BENCH_MOMENTA] = { "momenta", TSR_U8 },
	[TSR_BENCH_VARIANCES] = { "variances", TSR_U8 },
};

/* Count the pieces of a tensor, of @size elements, behind those of the plane; if it can, describe them. */
static void add_pieces(struct tsr_bench_plane *p, uint64_t n, uint64_t size)
{
	const unsigned share = TSR_BENCH_PIECE_ALIGNMENT;

	for (uint64_t at = 0; at < n; at += size) {
		const uint64_t left = n - at < size ? n - at : size;

		if (p->pieces)
			p->pieces[p->npieces] = (struct tsr_bench_piece){ .at = p->room,
									  .n = (size_t)left };
		p->npieces++;
		p->room += (left + share - 1) / share * share;
	}
	p->n += n;
}

/* Room for what was counted, and nothing is there. */
static enum tsr_status allocate(struct tsr_bench_plane *p, struct tsr_err *err)
{
	p->plain = calloc(p->room + 1, p->kind.width);
	p->pieces = calloc(p->npieces + 1, sizeof(*p->pieces));
	p->scales = calloc(p->nscales + 1, sizeof(*p->scales));
	p->n = p->room = p->npieces = p->nscales = 0;
	return p->plain && p->pieces && p->scales ? TSR_OK : tsr_fail_nomem(err, "planes");
}

void tsr_bench_state_free(struct tsr_bench_state *s)
{
	for (unsigned i = 0; i < TSR_BENCH_STATE_PLANES; i++) {
		free(s->planes[i].plain);
		free(s->planes[i].pieces);
		free(s->planes[i].scales);
	}
}

/* --- Made ------------------------------------------------------------------------------------ */

/* What a job needs: values, and the scales of momenta, on which no coding depends. */
struct making {
	float x[TSR_ENTROPY_PIECE];
	uint16_t scales[TSR_ENTROPY_PIECE / GROUP];
};

static enum tsr_status make_piece(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_bench_plane *p = ((struct tsr_bench_state *)ctx)->planes;
	const struct tsr_bench_piece *piece = &p->pieces[job];
	struct making *making = scratch;
	const struct {
		enum tsr_kind kind;
		const char *codec;
		unsigned char *first;
		void *second;
	} planes[] = {
		{ TSR_KIND_WEIGHT, "bf16+ulp8", p[TSR_BENCH_WEIGHTS].plain + 2 * piece->at,
		  p[TSR_BENCH_CORRECTIONS].plain + piece->at },
		{ TSR_KIND_MOMENTUM, "softsign8", p[TSR_BENCH_MOMENTA].plain + piece->at,
		  making->scales },
		{ TSR_KIND_VARIANCE, "sqrt8", p[TSR_BENCH_VARIANCES].plain + piece->at,
		  p[TSR_BENCH_VARIANCES].scales + piece->at / GROUP },
	};

	(void)err;
	for (size_t i = 0; i < sizeof(planes) / sizeof(*planes); i++) {
		const struct tsr_coding c = tsr_coding_default(tsr_codec_find(planes[i].codec));
		void *const out[TSR_PLANES_MAX] = { planes[i].first, planes[i].second };
		struct tsr_encode_report report = { 0 };

		tsr_bench_values(planes[i].kind, piece->at, piece->n, making->x);
		c.codec->encode(&c, making->x, piece->n, out, &report);
	}
	return TSR_OK;
}

static enum tsr_status make_state(struct tsr_bench_state *s, uint64_t elements,
				  const struct tsr_run *run, struct tsr_err *err)
{
	const struct tsr_pipeline p = { .njobs = tsr_entropy_pieces(elements),
					.scratch_nbytes = sizeof(struct making),
					.work = make_piece,
					.ctx = s };
	const struct tsr_coding coding = tsr_coding_default(tsr_codec_find("sqrt8"));
	struct tsr_bench_plane *variances = &s->planes[TSR_BENCH_VARIANCES];

	for (unsigned i = 0; i < TSR_BENCH_STATE_PLANES; i++) {
		add_pieces(&s->planes[i], elements, TSR_ENTROPY_PIECE);
		s->planes[i].nscales = i == TSR_BENCH_VARIANCES ? elements / GROUP + 1 : 0;
		TSR_TRY(allocate(&s->planes[i], err));
		add_pieces(&s->planes[i], elements, TSR_ENTROPY_PIECE);
	}
	variances->nscales = elements / GROUP + 1;
	for (uint64_t i = 0; i < p.njobs; i++) {
		const uint64_t at = variances->pieces[i].at;

		variances->pieces[i].variance = tsr_coded_variance(&coding, TSR_BENCH_COLUMNS, at,
								   variances->scales + at / GROUP);
	}
	return tsr_pipeline_run(&p, run, err);
}

/* --- Of a file ------------------------------------------------------------------------------- */

/* Which of the planes that are measured this one belongs to; TSR_BENCH_STATE_PLANES: to none. */
static unsigned index_of(const struct tsr_tensor *t, unsigned plane)
{
	const enum tsr_dtype dtype = tsr_plane_dtype(&t->coding, plane);

	if (t->coding.codec->planes[plane].unit != TSR_PER_ELEMENT)
		return TSR_BENCH_STATE_PLANES;
	if (t->kind == TSR_KIND_WEIGHT)
		return dtype == TSR_BF16 ? TSR_BENCH_WEIGHTS
		       : dtype == TSR_I8 ? TSR_BENCH_CORRECTIONS
					 : TSR_BENCH_STATE_PLANES;
	if (plane != 0 || tsr_dtype_bits(dtype) != 8)
		return TSR_BENCH_STATE_PLANES;
	return t->kind == TSR_KIND_MOMENTUM   ? TSR_BENCH_MOMENTA
	       : t->kind == TSR_KIND_VARIANCE ? TSR_BENCH_VARIANCES
					      : TSR_BENCH_STATE_PLANES;
}

/* The pieces of a plane of a tensor, which were just described, from number @i on; @scales may be NULL. */
static enum tsr_status read_pieces(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				   unsigned plane, struct tsr_bench_plane *p, uint64_t i,
				   const uint16_t *scales, struct tsr_err *err)
{
	const unsigned width = p->kind.width;

	for (uint64_t at = 0; i < p->npieces; at += p->pieces[i++].n) {
		struct tsr_bench_piece *piece = &p->pieces[i];

		TSR_TRY(tsr_checkpoint_read_stored(c, t, plane, at * width, piece->n * width,
						   p->plain + piece->at * width, err));
		if (scales)
			piece->variance = tsr_coded_variance(
				&t->coding, tsr_coded_columns(t), at,
				scales + tsr_plane_count(&t->coding, 1, at));
	}
	return TSR_OK;
}

/* Count a plane of a tensor, or if there is room read it. */
static enum tsr_status add_plane(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				 unsigned plane, struct tsr_bench_plane *p, struct tsr_err *err)
{
	const uint64_t first = p->npieces;
	const uint64_t nbytes = tsr_coded_has_contexts(t, plane)
					? tsr_plane_nbytes(&t->coding, 1, t->numel)
					: 0;
	uint16_t *const scales = p->scales ? p->scales + p->nscales : NULL;

	add_pieces(p, t->numel, tsr_tensor_piece(t));
	p->nscales += nbytes / sizeof(*scales);
	if (!p->pieces)
		return TSR_OK;
	if (nbytes) {
		TSR_TRY(tsr_checkpoint_read_stored(c, t, 1, 0, nbytes, scales, err));
		tsr_coded_shorten_scales(&t->coding, nbytes, scales);
	}
	return read_pieces(c, t, plane, p, first, nbytes ? scales : NULL, err);
}

static enum tsr_status add_planes(const struct tsr_checkpoint *c, struct tsr_bench_state *s,
				  struct tsr_err *err)
{
	for (size_t k = 0; k < tsr_checkpoint_ntensors(c); k++) {
		const struct tsr_tensor *t = tsr_checkpoint_tensor(c, k);

		for (unsigned plane = 0; t->coding.codec && plane < t->nplanes; plane++) {
			const unsigned index = index_of(t, plane);

			if (index < TSR_BENCH_STATE_PLANES)
				TSR_TRY(add_plane(c, t, plane, &s->planes[index], err));
		}
	}
	return TSR_OK;
}

static enum tsr_status read_state(struct tsr_checkpoint *c, struct tsr_bench_state *s,
				  struct tsr_err *err)
{
	uint64_t all = 0;

	TSR_TRY(add_planes(c, s, err));
	for (unsigned i = 0; i < TSR_BENCH_STATE_PLANES; i++) {
		all += s->planes[i].n;
		TSR_TRY(allocate(&s->planes[i], err));
	}
	if (!all)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: no packed weights, momenta or variances to measure",
				tsr_checkpoint_path(c));
	return add_planes(c, s, err);
}

enum tsr_status tsr_bench_state_get(const char *path, uint64_t elements, const struct tsr_run *run,
				    struct tsr_bench_state *ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;

	*ret = (struct tsr_bench_state){ 0 };
	for (unsigned i = 0; i < TSR_BENCH_STATE_PLANES; i++) {
		ret->planes[i].name = kinds[i].name;
		ret->planes[i].kind = tsr_entropy_kind(kinds[i].dtype);
	}
	if (!path)
		return make_state(ret, elements, run, err);
	TSR_TRY(tsr_checkpoint_open(&path, 1, NULL, &c, err));
	return read_state(c, ret, err);
}
