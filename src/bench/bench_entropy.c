/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of coding the planes of a state on a CPU. */
#include <stdlib.h>

#include "base/fail.h"
#include "base/isa.h"
#include "base/pipeline.h"
#include "bench/bench_entropy.h"
#include "bench/bench_timing.h"

enum action { ENCODE, DECODE };

struct bench {
	enum action action;
	struct tsr_entropy_kind kind;
	const struct tsr_bench_state_plane *plane;
	size_t room; /* bytes from one coded piece to the next */
	unsigned char *coded;
	size_t *coded_nbytes; /* of each piece */
};

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

static enum tsr_status code_piece(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct bench *b = ctx;
	struct tsr_entropy **e = scratch;
	const struct tsr_bench_piece *p = &b->plane->pieces[job];
	unsigned char *plain = b->plane->plain + b->kind.width * p->first;
	unsigned char *coded = b->coded + job * b->room;
	const char *wrong = NULL;

	if (b->action == ENCODE)
		b->coded_nbytes[job] = p->codes ? tsr_entropy_encode_codes(*e, &p->variance, plain,
									   p->n, coded)
						: tsr_entropy_encode(*e, b->kind, plain, p->n,
								     coded);
	else if (p->codes)
		wrong = tsr_entropy_decode_codes(*e, &p->variance, coded, b->coded_nbytes[job],
						 plain, p->n);
	else
		wrong = tsr_entropy_decode(*e, b->kind, coded, b->coded_nbytes[job], plain, p->n);
	return wrong ? tsr_fail(err, TSR_E_FORMAT, "benchmark: a coded piece: %s", wrong) : TSR_OK;
}

static enum tsr_status measure(struct bench *b, enum action action, unsigned repeats,
			       const struct tsr_run *run, double *seconds_ret, struct tsr_err *err)
{
	const struct tsr_pipeline p = {
		.njobs = b->plane->npieces,
		.scratch_nbytes = sizeof(struct tsr_entropy *),
		.open = open_job,
		.close = close_job,
		.work = code_piece,
		.ctx = b,
	};

	b->action = action;
	return tsr_bench_time(&p, repeats, run, seconds_ret, err);
}

static enum tsr_status measure_plane(struct bench *b, unsigned repeats, const struct tsr_run *run,
				     struct tsr_bench_plane *ret, struct tsr_err *err)
{
	const double elements = (double)b->plane->n, nbytes = elements * b->kind.width;
	double encode, decode, coded = 0;

	b->coded = malloc(b->plane->npieces * b->room);
	b->coded_nbytes = calloc(b->plane->npieces, sizeof(*b->coded_nbytes));
	if (!b->coded || !b->coded_nbytes)
		return tsr_fail_nomem(err, "planes");
	TSR_TRY(measure(b, ENCODE, repeats, run, &encode, err));
	TSR_TRY(measure(b, DECODE, repeats, run, &decode, err));
	for (uint64_t job = 0; job < b->plane->npieces; job++)
		coded += (double)b->coded_nbytes[job];
	ret->coded_bytes_per_element = coded / elements;
	ret->encode_gbps = 1e-9 * nbytes / encode;
	ret->decode_gbps = 1e-9 * nbytes / decode;
	return TSR_OK;
}

static enum tsr_status measure_state(const struct tsr_bench_state *state, unsigned repeats,
				     const struct tsr_run *run, struct tsr_bench_entropy *ret,
				     struct tsr_err *err)
{
	enum tsr_status status = TSR_OK;

	for (unsigned i = 0; i < TSR_BENCH_PLANES && status == TSR_OK; i++) {
		const struct tsr_bench_plane_kind *kind = &tsr_bench_plane_kinds[i];
		struct bench b = { .kind = tsr_entropy_kind(kind->dtype),
				   .plane = &state->planes[i] };

		ret->planes[i] = (struct tsr_bench_plane){ .name = kind->name,
							   .elements = b.plane->n,
							   .bytes_per_element = b.kind.width };
		b.room = tsr_entropy_bound(b.kind, TSR_ENTROPY_PIECE);
		if (b.plane->n)
			status = measure_plane(&b, repeats, run, &ret->planes[i], err);
		free(b.coded);
		free(b.coded_nbytes);
	}
	return status;
}

enum tsr_status tsr_bench_entropy(const char *path, uint64_t elements, unsigned repeats,
				  const struct tsr_run *run, struct tsr_bench_entropy *ret,
				  struct tsr_err *err)
{
	struct tsr_bench_state state;
	enum tsr_status status;

	*ret = (struct tsr_bench_entropy){ .threads = tsr_run_threads(run), .isa = tsr_isa_name() };
	status = tsr_bench_state_get(path, elements, run, &state, err);
	if (status == TSR_OK)
		status = measure_state(&state, repeats, run, ret, err);
	tsr_bench_state_free(&state);
	return status;
}
