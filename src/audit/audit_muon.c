/* SPDX-License-Identifier: Apache-2.0 */
/* Momenta of Muon, judged by the update that is made orthogonal from them. */
#include "audit/audit_work.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/build.h"
#include "pack/outcome/muon_matrix.h"

/* Multiplications of all matrices in all codings: a minute or so. */
#define COST_MAX 2e12

struct judging {
	struct tsr_auditing *a;
	bool *chosen; /* per tensor of the checkpoint */
	size_t *pairs, n; /* those that are judged */
};

/* An update is the same beside every variance: there is none. */
static void put_update(const struct tsr_auditing *a, struct tsr_audit_pair *p, unsigned coding,
		       const struct tsr_update_measure *u)
{
	const size_t stride = (size_t)a->pub.variances.n + 1;

	for (size_t v = 0; v < stride; v++)
		tsr_audit_put_update(p, coding * stride + v, u);
}

static enum tsr_status work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct judging *j = ctx;
	struct tsr_auditing *a = j->a;
	struct tsr_audit_pair *p = &a->pairs[j->pairs[job]];
	const struct tsr_tensor *t = a->tensors[p->momentum].tensor;
	TSR_SCOPED(tsr_muon_matrix_close) struct tsr_muon_matrix m = { 0 };
	struct tsr_update_measure u;
	struct tsr_coding coding;

	(void)scratch;
	TSR_TRY(tsr_muon_matrix_open(a->c, t, &m, err));
	tsr_muon_matrix_measure(&m, NULL, &u);
	put_update(a, p, a->pub.momenta.n, &u);
	tsr_audit_put_before(p, &u);
	for (unsigned i = 0; i < a->pub.momenta.n; i++) {
		if (!tsr_audit_coding(a, t, i, &coding))
			continue;
		tsr_muon_matrix_measure(&m, &coding, &u);
		put_update(a, p, i, &u);
	}
	return TSR_OK;
}

static bool is_muon(const struct tsr_audit_pair *p)
{
	return p->momentum == p->variance;
}

/* Which pairs of Muon are judged; the others go.  Returns how many there were. */
static size_t choose(struct judging *j)
{
	struct tsr_auditing *a = j->a;
	size_t kept = 0, nmuon = 0;

	tsr_muon_choose(a->c->tensors, a->c->ntensors, COST_MAX, a->pub.momenta.n + 1, j->chosen);
	for (size_t i = 0; i < a->pub.npairs; i++) {
		const struct tsr_audit_pair p = a->pairs[i];
		const struct tsr_audit_tensor *m = &a->tensors[p.momentum];
		const bool judged = m->fault == TSR_AUDIT_SOUND &&
				    j->chosen[m->tensor - a->c->tensors];

		nmuon += is_muon(&p);
		if (is_muon(&p) && !judged)
			continue;
		if (is_muon(&p))
			j->pairs[j->n++] = kept;
		a->pairs[kept++] = p;
	}
	a->pub.npairs = kept;
	return nmuon;
}

enum tsr_status tsr_audit_muon(struct tsr_auditing *a, const struct tsr_run *run,
			       struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct judging j = { .a = a };
	struct tsr_pipeline pipeline = { .work = work, .ctx = &j };
	size_t nmuon;

	TSR_TRY(TSR_TAKE(&j.chosen, a->c->ntensors + 1, arena, err, "audit"));
	TSR_TRY(TSR_TAKE(&j.pairs, a->pub.npairs + 1, arena, err, "audit"));
	nmuon = choose(&j);
	pipeline.njobs = j.n;
	if (j.n)
		TSR_TRY(tsr_pipeline_run(&pipeline, run, err));
	if (nmuon == j.n)
		return TSR_OK;
	return tsr_build_note(a->c, err,
			      "%s: %zu of %zu momenta of Muon were made orthogonal, as its updates "
			      "are; %s",
			      a->c->path, j.n, nmuon,
			      j.n ? "they stand for the others"
				  : "all are too large, and how far updates move is not known");
}
