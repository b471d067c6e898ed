/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The factors of momenta that are matrices: subspace iteration.  W, whose columns are orthonormal, becomes
 * M^T (M W), made orthonormal again, and so nears the first right singular vectors of M; M is then about
 * (M W) W^T.
 */
#include "learn/factors.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/fail.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "ckpt/read.h"
#include "codec/loops.h"
#include "codec/math.h"
#include "learn/factor_loops.h"

/* Iterations: one more takes a hundredth off what is left. */
#define ROUNDS 3u

/* A column that keeps less than this of its square was a combination of those before, but for rounding. */
#define DEPENDENT 1e-10

struct factoring {
	struct tsr_checkpoint *c;
	unsigned nstages;
	struct tsr_progress progress;
};

/* One matrix; rows of w, z and left have TSR_RANK elements. */
struct matrix {
	const struct tsr_checkpoint *c;
	const struct tsr_tensor *t;
	size_t nrows, n;
	float unit; /* a power of two by which factors are divided, so that squares of elements are floats */
	float *w, *z, *left;
	struct tsr_coding
		before; /* of the first stage, while the second is found; else without a codec */
	struct tsr_read_scratch read;
	float x[TSR_READ_MAX], products[TSR_READ_MAX];
};

/* --- Passes over the elements -------------------------------------------------------------------- */

typedef void rows_fn(struct matrix *m, size_t first, size_t nrows, float *result);

static enum tsr_status for_rows(struct matrix *m, rows_fn *step, float *result, struct tsr_err *err)
{
	const size_t most = TSR_READ_MAX / m->n;

	for (size_t first = 0; first < m->nrows; first += most) {
		const size_t left = m->nrows - first, nrows = left < most ? left : most;

		TSR_TRY(tsr_tensor_read_f32(m->c, m->t, (uint64_t)first * m->n, nrows * m->n,
					    &m->read, m->x, err));
		if (m->before.codec) {
			TSR_TRY(tsr_tensor_products(m->c, m->t, &m->before, (uint64_t)first * m->n,
						    nrows * m->n, m->products, err));
			tsr_ratios_make(&m->before, m->x, m->products, nrows * m->n);
		}
		step(m, first, nrows, result);
	}
	return TSR_OK;
}

static void find_largest(struct matrix *m, size_t first, size_t nrows, float *largest)
{
	static tsr_absmax_fn *const absmax[] = TSR_ISA_VARIANTS(absmax);
	const float here = absmax[tsr_isa_level()](m->x, nrows * m->n);

	(void)first;
	*largest = here <= *largest ? *largest : here;
}

static void multiply(float *rows, size_t nrows, float by)
{
	for (size_t i = 0; i < nrows * TSR_RANK; i++)
		rows[i] *= by;
}

static void find_left(struct matrix *m, size_t first, size_t nrows, float *left)
{
	static tsr_project_fn *const project[] = TSR_ISA_VARIANTS(project);

	project[tsr_isa_level()](m->x, nrows, m->n, m->w, left + first * TSR_RANK);
}

static void there_and_back(struct matrix *m, size_t first, size_t nrows, float *z)
{
	static tsr_project_fn *const back[] = TSR_ISA_VARIANTS(project_back);

	find_left(m, first, nrows, m->left);
	multiply(m->left + first * TSR_RANK, nrows, 1 / m->unit);
	back[tsr_isa_level()](m->x, nrows, m->n, m->left + first * TSR_RANK, z);
}

/* --- Orthonormal columns -------------------------------------------------------------------------- */

static double square_of(const float *z, size_t n, unsigned k)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)z[i * TSR_RANK + k] * (double)z[i * TSR_RANK + k];
	return sum;
}

/* Take from column @k what it has of those before it. */
static void project_out(float *z, size_t n, unsigned k)
{
	double part[TSR_RANK] = { 0 };

	for (size_t i = 0; i < n; i++) {
		const float *row = z + i * TSR_RANK;

		for (unsigned j = 0; j < k; j++)
			part[j] += (double)row[k] * (double)row[j];
	}
	for (size_t i = 0; i < n; i++) {
		float *row = z + i * TSR_RANK;
		double rest = (double)row[k];

		for (unsigned j = 0; j < k; j++)
			rest -= part[j] * (double)row[j];
		row[k] = (float)rest;
	}
}

/* Gram and Schmidt's way, twice, since once is not exact enough.  Dependent columns become 0. */
static void make_orthonormal(float *z, size_t n)
{
	for (unsigned k = 0; k < TSR_RANK; k++) {
		const double before = square_of(z, n, k);
		double square, norm;

		project_out(z, n, k);
		project_out(z, n, k);
		square = square_of(z, n, k);
		norm = square > DEPENDENT * before ? sqrt(square) : INFINITY;
		for (size_t i = 0; i < n; i++)
			z[i * TSR_RANK + k] = (float)((double)z[i * TSR_RANK + k] / norm);
	}
}

/* --- One matrix ----------------------------------------------------------------------------------- */

/* Elements of 1 and -1 as from a generator of random numbers (Knuth's MMIX). */
static void begin(float *w, size_t n)
{
	uint64_t state = 1;

	for (size_t i = 0; i < n * TSR_RANK; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		w[i] = state >> 63 ? -1.0f : 1.0f;
	}
	make_orthonormal(w, n);
}

/* Both factors get the root of a column's length, so that their codes are equally exact. */
static void balance(struct matrix *m)
{
	for (unsigned k = 0; k < TSR_RANK; k++) {
		const float root = (float)sqrt(sqrt(square_of(m->left, m->nrows, k)));

		for (size_t i = 0; i < m->nrows && root > 0; i++)
			m->left[i * TSR_RANK + k] = m->left[i * TSR_RANK + k] / root * m->unit;
		for (size_t i = 0; i < m->n; i++)
			m->w[i * TSR_RANK + k] *= m->unit * root;
	}
}

static void encode(const struct matrix *m, unsigned char *plane)
{
	const struct tsr_coding coding = tsr_factors_coding();
	const size_t left = m->nrows * TSR_RANK, right = m->n * TSR_RANK;
	unsigned char *scales = plane + left + right;
	struct tsr_encode_report ignored = { 0 };

	coding.codec->encode(&coding, m->left, left, (void *const[]){ plane, scales }, &ignored);
	coding.codec->encode(&coding, m->w, right,
			     (void *const[]){ plane + left, scales + m->nrows * sizeof(uint16_t) },
			     &ignored);
}

static enum tsr_status find(struct matrix *m, unsigned char *plane, struct tsr_err *err)
{
	float largest = 0;

	m->unit = 1;
	TSR_TRY(for_rows(m, find_largest, &largest, err));
	if (!(largest > 0 && largest < INFINITY))
		return TSR_OK;
	m->unit = tsr_f32_from_bits(tsr_bits_from_f32(largest) & TSR_F32_INF);
	m->unit = m->unit < 0x1p-100f ? 0x1p-100f : m->unit > 0x1p100f ? 0x1p100f : m->unit;
	begin(m->w, m->n);
	for (unsigned i = 0; i < ROUNDS; i++) {
		float *const old = m->w;

		multiply(m->w, m->n, 1 / m->unit);
		memset(m->z, 0, m->n * TSR_RANK * sizeof(*m->z));
		TSR_TRY(for_rows(m, there_and_back, m->z, err));
		make_orthonormal(m->z, m->n);
		m->w = m->z;
		m->z = old;
	}
	multiply(m->w, m->n, 1 / m->unit);
	TSR_TRY(for_rows(m, find_left, m->left, err));
	balance(m);
	encode(m, plane);
	return TSR_OK;
}

static struct tsr_coding one_stage(void)
{
	return tsr_coding_with(tsr_codec_find("lowrank16+linear8"), TSR_SCALE_E8M8, 1);
}

/* A job is a tensor; those that are to have factors have room for them. */
static enum tsr_status work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct factoring *f = ctx;
	struct matrix *m = scratch;
	TSR_OWNED(free) float *rows = NULL;
	struct tsr_coding coding = one_stage();
	unsigned char *part;

	m->c = f->c;
	m->t = &f->c->tensors[job];
	if (!m->t->factors)
		return TSR_OK;
	m->nrows = (size_t)m->t->shape[0];
	m->n = (size_t)m->t->shape[1];
	TSR_TRY(TSR_NEW(&rows, (m->nrows + 2 * m->n) * TSR_RANK, err, m->t->name));
	m->left = rows;
	m->w = m->left + m->nrows * TSR_RANK;
	m->z = m->w + m->n * TSR_RANK;
	m->before.codec = NULL;
	coding.share = tsr_coding_share(&coding, m->t->rank, m->t->shape);
	part = (unsigned char *)m->t->factors;
	for (unsigned i = 0; i < f->nstages; i++, part += m->nrows * coding.share) {
		TSR_TRY(find(m, part, err));
		coding.factors = part;
		m->before = coding;
	}
	return TSR_OK;
}

/* --- All of them ---------------------------------------------------------------------------------- */

static enum tsr_status commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct factoring *f = ctx;
	const struct tsr_tensor *t = &f->c->tensors[job];

	(void)scratch;
	return tsr_progress_add(&f->progress, t->factors ? t->numel * sizeof(float) : 0, err);
}

/* Room for the factors of each matrix. */
static enum tsr_status make_room(struct factoring *f, struct tsr_err *err)
{
	const struct tsr_coding coding = one_stage();

	for (size_t i = 0; i < f->c->ntensors; i++) {
		struct tsr_tensor *t = &f->c->tensors[i];
		const uint32_t share = tsr_coding_share(&coding, t->rank, t->shape);
		unsigned char *room;

		if (!share || t->kind != TSR_KIND_MOMENTUM || !tsr_tensor_has_f32(t))
			continue;
		TSR_TRY(TSR_TAKE(&room, (size_t)t->shape[0] * share * f->nstages, f->c->factors,
				 err, f->c->path));
		t->factors = room;
		f->progress.total_nbytes += t->numel * sizeof(float);
	}
	return TSR_OK;
}

enum tsr_status tsr_factors_find(struct tsr_checkpoint *c, unsigned rank, const struct tsr_run *run,
				 struct tsr_err *err)
{
	struct factoring f = { .c = c,
			       .nstages = rank / TSR_RANK,
			       .progress = { .run = run, .what = c->path } };
	const struct tsr_pipeline p = { .njobs = c->ntensors,
					.scratch_nbytes = sizeof(struct matrix),
					.work = work,
					.commit = commit,
					.ctx = &f };

	if (rank <= c->factor_rank)
		return TSR_OK;
	c->factor_rank = rank;
	c->factors = c->factors ? c->factors : tsr_arena_new(SIZE_MAX);
	TSR_TRY(make_room(&f, err));
	if (f.progress.total_nbytes)
		TSR_TRY(tsr_pipeline_run(&p, run, err));
	return tsr_checkpoint_check_unchanged(c, err);
}
