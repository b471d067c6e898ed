/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made state: its second moments are a row times a column times noise, as those of trained matrices are;
 * plane by plane it has about the entropy of a trained state.
 */
#include <math.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "bench/bench_entropy.h"
#include "bench/bench_timing.h"
#include "tersor/codec.h"

#define COLUMNS 1024u /* rows and groups divide pieces */
#define GROUP 32u

_Static_assert(TSR_BENCH_TILE == TSR_ENTROPY_PIECE, "a job is a piece");

const struct tsr_bench_plane_kind tsr_bench_plane_kinds[TSR_BENCH_PLANES] = {
	[TSR_BENCH_WEIGHTS] = { "weights", TSR_BF16 },
	[TSR_BENCH_CORRECTIONS] = { "corrections", TSR_I8 },
	[TSR_BENCH_MOMENTA] = { "momenta", TSR_U8 },
	[TSR_BENCH_VARIANCES] = { "variances", TSR_U8 },
};

enum tsr_status tsr_bench_state_plane_alloc(struct tsr_bench_state_plane *p, unsigned index,
					    uint64_t n, uint64_t npieces, uint64_t nscales,
					    struct tsr_err *err)
{
	const unsigned width = tsr_dtype_bits(tsr_bench_plane_kinds[index].dtype) / 8;

	p->n = n;
	p->npieces = npieces;
	p->nscales = nscales;
	p->plain = malloc(n * width + 1);
	p->pieces = calloc(npieces + 1, sizeof(*p->pieces));
	p->scales = calloc(nscales + 1, sizeof(*p->scales));
	return p->plain && p->pieces && p->scales ? TSR_OK : tsr_fail_nomem(err, "planes");
}

void tsr_bench_state_free(struct tsr_bench_state *s)
{
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++) {
		free(s->planes[i].plain);
		free(s->planes[i].pieces);
		free(s->planes[i].scales);
	}
}

/* About normal: the sum of four uniform numbers. */
static float noise(uint64_t *state)
{
	int sum = 0;

	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	for (unsigned i = 0; i < 4; i++)
		sum += (int)(uint16_t)(*state >> 16 * i) - 32768;
	return (float)sum * (1.7f / 65536);
}

static void encode_part(const char *codec, const float *x, size_t n, uint64_t first, void *narrow,
			void *rest)
{
	const struct tsr_coding coding = tsr_coding_default(tsr_codec_find(codec));
	struct tsr_encode_report report = { 0 };
	void *const out[TSR_PLANES_MAX] = {
		(unsigned char *)narrow + tsr_plane_nbytes(&coding, 0, first),
		(unsigned char *)rest + tsr_plane_nbytes(&coding, 1, first),
	};

	coding.codec->encode(&coding, x, n, out, &report);
}

/* The planes of one row. */
static void fill_row(const struct tsr_bench_state *s, uint64_t first, size_t n)
{
	const struct tsr_bench_state_plane *p = s->planes;
	float w[COLUMNS], m[COLUMNS], v[COLUMNS];
	uint64_t state = first + 1, columns = 1;
	const float row = expf(noise(&state));

	for (size_t i = 0; i < n; i++) {
		const float root = 1e-4f * row *
				   expf(0.4f * noise(&columns) + 0.4f * noise(&state));

		w[i] = 0.02f * noise(&state);
		m[i] = root * noise(&state);
		v[i] = root * root;
	}
	encode_part("bf16+ulp8", w, n, first, p[TSR_BENCH_WEIGHTS].plain,
		    p[TSR_BENCH_CORRECTIONS].plain);
	encode_part("softsign8", m, n, first, p[TSR_BENCH_MOMENTA].plain,
		    p[TSR_BENCH_MOMENTA].scales);
	encode_part("sqrt8", v, n, first, p[TSR_BENCH_VARIANCES].plain,
		    p[TSR_BENCH_VARIANCES].scales);
}

static enum tsr_status fill_piece(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_bench_state *s = ctx;
	const struct tsr_bench_piece *piece = &s->planes[0].pieces[job];

	(void)scratch;
	(void)err;
	for (size_t i = 0; i < piece->n; i += COLUMNS)
		fill_row(s, piece->first + i, piece->n - i < COLUMNS ? piece->n - i : COLUMNS);
	return TSR_OK;
}

static struct tsr_bench_piece piece_of(const struct tsr_bench_state *s, unsigned index,
				       uint64_t job)
{
	const struct tsr_bench_state_plane *p = &s->planes[index];
	const uint64_t first = job * TSR_ENTROPY_PIECE;

	return (struct tsr_bench_piece){
		.first = first,
		.n = tsr_bench_tile(p->n, first),
		.codes = index == TSR_BENCH_VARIANCES,
		.variance = { first, COLUMNS, { p->scales + first / GROUP, 0, GROUP }, false },
	};
}

enum tsr_status tsr_bench_state_make(uint64_t elements, const struct tsr_run *run,
				     struct tsr_bench_state *ret, struct tsr_err *err)
{
	const struct tsr_pipeline p = {
		.njobs = tsr_bench_njobs(elements),
		.work = fill_piece,
		.ctx = ret,
	};
	double seconds;

	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++)
		TSR_TRY(tsr_bench_state_plane_alloc(&ret->planes[i], i, elements, p.njobs,
						    elements / GROUP + 1, err));
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++)
		for (uint64_t job = 0; job < p.njobs; job++)
			ret->planes[i].pieces[job] = piece_of(ret, i, job);
	return tsr_bench_time(&p, 1, run, &seconds, err);
}
