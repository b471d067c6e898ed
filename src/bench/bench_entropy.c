/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The speed of coding the planes of a state.  Its second moments are a row times a column times noise, as
 * those of trained matrices are; plane by plane it has about the entropy of a trained state.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/isa.h"
#include "base/pipeline.h"
#include "bench/bench.h"
#include "bench/bench_entropy.h"
#include "bench/bench_timing.h"
#include "entropy/entropy.h"

#define COLUMNS 1024u /* rows and groups divide pieces */
#define GROUP 32u

_Static_assert(TSR_BENCH_TILE == TSR_ENTROPY_PIECE, "a job is a piece");

enum plane { WEIGHTS, CORRECTIONS, MOMENTA, VARIANCES };

const struct tsr_bench_plane_kind tsr_bench_plane_kinds[TSR_BENCH_PLANES] = {
	[WEIGHTS] = { "weights", TSR_BF16 },
	[CORRECTIONS] = { "corrections", TSR_I8 },
	[MOMENTA] = { "momenta", TSR_U8 },
	[VARIANCES] = { "variances", TSR_U8 },
};

enum action { FILL, ENCODE, DECODE };

struct bench {
	uint64_t n;
	enum action action;
	enum plane plane;
	unsigned char *plain[TSR_BENCH_PLANES], *coded;
	uint16_t *scales[TSR_BENCH_PLANES]; /* of momenta and variances */
	size_t *coded_nbytes; /* of each piece */
};

static size_t piece_room(enum plane plane)
{
	return tsr_entropy_bound(tsr_entropy_kind(tsr_bench_plane_kinds[plane].dtype),
				 TSR_ENTROPY_PIECE);
}

static enum tsr_status open_job(void *ctx, const struct tsr_run *run, void *scratch,
				struct tsr_err *err)
{
	struct tsr_entropy **e = scratch;

	(void)ctx;
	(void)run;
	*e = tsr_entropy_new(2);
	return *e ? TSR_OK : tsr_fail_nomem(err, "coding planes");
}

static void close_job(void *ctx, void *scratch)
{
	struct tsr_entropy **e = scratch;

	(void)ctx;
	tsr_entropy_free(*e);
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
static void fill_row(const struct bench *b, uint64_t first, size_t n)
{
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
	encode_part("bf16+ulp8", w, n, first, b->plain[WEIGHTS], b->plain[CORRECTIONS]);
	encode_part("softsign8", m, n, first, b->plain[MOMENTA], b->scales[MOMENTA]);
	encode_part("sqrt8", v, n, first, b->plain[VARIANCES], b->scales[VARIANCES]);
}

/* What lies beside the codes of a piece. */
static struct tsr_entropy_beside beside(const struct bench *b, uint64_t first)
{
	struct tsr_entropy_beside s = {
		.first = first,
		.columns = COLUMNS,
		.scales = { b->scales[b->plane] + first / GROUP, 0, GROUP },
	};

	if (b->plane == MOMENTA) {
		s.variances = b->plain[VARIANCES] + first;
		s.variance_scales = (struct tsr_entropy_scales){
			b->scales[VARIANCES] + first / GROUP, 0, GROUP
		};
	}
	return s;
}

static enum tsr_status code_piece(const struct bench *b, struct tsr_entropy *e, uint64_t job,
				  size_t n, struct tsr_err *err)
{
	const struct tsr_entropy_kind kind = tsr_entropy_kind(
		tsr_bench_plane_kinds[b->plane].dtype);
	const uint64_t first = job * TSR_ENTROPY_PIECE;
	const bool codes = b->scales[b->plane] != NULL;
	const struct tsr_entropy_beside s = beside(b, first);
	unsigned char *plain = b->plain[b->plane] + kind.width * first;
	unsigned char *coded = b->coded + job * piece_room(b->plane);
	const char *wrong = NULL;

	if (b->action == ENCODE)
		b->coded_nbytes[job] = codes ? tsr_entropy_encode_codes(e, &s, plain, n, coded)
					     : tsr_entropy_encode(e, kind, plain, n, coded);
	else if (codes)
		wrong = tsr_entropy_decode_codes(e, &s, coded, b->coded_nbytes[job], plain, n);
	else
		wrong = tsr_entropy_decode(e, kind, coded, b->coded_nbytes[job], plain, n);
	return wrong ? tsr_fail(err, TSR_E_FORMAT, "benchmark: a coded piece: %s", wrong) : TSR_OK;
}

static enum tsr_status do_job(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct bench *b = ctx;
	struct tsr_entropy **e = scratch;
	const uint64_t first = job * TSR_BENCH_TILE;
	const size_t n = tsr_bench_tile(b->n, first);

	if (b->action != FILL)
		return code_piece(b, *e, job, n, err);
	for (size_t i = 0; i < n; i += COLUMNS)
		fill_row(b, first + i, n - i < COLUMNS ? n - i : COLUMNS);
	return TSR_OK;
}

static enum tsr_status measure(struct bench *b, enum action action, unsigned repeats,
			       const struct tsr_run *run, double *seconds_ret, struct tsr_err *err)
{
	const struct tsr_pipeline p = {
		.njobs = tsr_bench_njobs(b->n),
		.scratch_nbytes = sizeof(struct tsr_entropy *),
		.open = open_job,
		.close = close_job,
		.work = do_job,
		.ctx = b,
	};

	b->action = action;
	return tsr_bench_time(&p, repeats, run, seconds_ret, err);
}

static enum tsr_status run_bench(struct bench *b, unsigned repeats, const struct tsr_run *run,
				 struct tsr_bench_entropy *ret, struct tsr_err *err)
{
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++) {
		struct tsr_bench_plane *plane = &ret->planes[i];
		double encode, decode, nbytes = 0;

		b->plane = (enum plane)i;
		plane->name = tsr_bench_plane_kinds[i].name;
		plane->bytes_per_element = tsr_dtype_bits(tsr_bench_plane_kinds[i].dtype) / 8;
		TSR_TRY(measure(b, ENCODE, repeats, run, &encode, err));
		TSR_TRY(measure(b, DECODE, repeats, run, &decode, err));
		for (uint64_t job = 0; job < tsr_bench_njobs(b->n); job++)
			nbytes += (double)b->coded_nbytes[job];
		plane->coded_bytes_per_element = nbytes / (double)b->n;
		plane->encode_gbps = 1e-9 * (double)b->n * plane->bytes_per_element / encode;
		plane->decode_gbps = 1e-9 * (double)b->n * plane->bytes_per_element / decode;
	}
	return TSR_OK;
}

static enum tsr_status make_planes(struct bench *b, const struct tsr_run *run, struct tsr_err *err)
{
	const uint64_t ngroups = b->n / GROUP + 1;
	double seconds;
	bool works;

	b->scales[MOMENTA] = malloc(ngroups * sizeof(uint16_t));
	b->scales[VARIANCES] = malloc(ngroups * sizeof(uint16_t));
	works = b->scales[MOMENTA] && b->scales[VARIANCES];
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++) {
		b->plain[i] = malloc(b->n * tsr_dtype_bits(tsr_bench_plane_kinds[i].dtype) / 8);
		works = works && b->plain[i];
	}
	if (!works)
		return tsr_fail_nomem(err, "planes");
	return measure(b, FILL, 1, run, &seconds, err);
}

static void free_planes(struct bench *b)
{
	for (unsigned i = 0; i < TSR_BENCH_PLANES; i++) {
		free(b->plain[i]);
		free(b->scales[i]);
	}
}

enum tsr_status tsr_bench_planes(uint64_t elements, const struct tsr_run *run,
				 void *planes[TSR_BENCH_PLANES], struct tsr_err *err)
{
	struct bench b = { .n = elements };
	const enum tsr_status status = make_planes(&b, run, err);

	for (unsigned i = 0; i < TSR_BENCH_PLANES && status == TSR_OK; i++) {
		planes[i] = b.plain[i];
		b.plain[i] = NULL;
	}
	free_planes(&b);
	return status;
}

enum tsr_status tsr_bench_entropy(uint64_t elements, unsigned repeats, const struct tsr_run *run,
				  struct tsr_bench_entropy *ret, struct tsr_err *err)
{
	const uint64_t njobs = tsr_bench_njobs(elements);
	struct bench b = { .n = elements };
	enum tsr_status status;

	*ret = (struct tsr_bench_entropy){ .threads = tsr_run_threads(run), .isa = tsr_isa_name() };
	b.coded = malloc(njobs * piece_room(WEIGHTS));
	b.coded_nbytes = calloc(njobs, sizeof(*b.coded_nbytes));
	status = b.coded && b.coded_nbytes ? make_planes(&b, run, err)
					   : tsr_fail_nomem(err, "planes");
	if (status == TSR_OK)
		status = run_bench(&b, repeats, run, ret, err);
	free_planes(&b);
	free(b.coded);
	free(b.coded_nbytes);
	return status;
}
