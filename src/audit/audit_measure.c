/* SPDX-License-Identifier: Apache-2.0 */
/* All codings tried on each tile of a checkpoint, which is read once. */
#include "audit/audit_strip.h"
#include "audit/audit_work.h"
#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/fingerprint.h"
#include "codec/measuring.h"
#include "pack/codec_rules.h"
#include "pack/outcome/moments.h"
#include "pack/walk.h"
#include "parts/part.h"

/* What one side of a job found; its sums and updates are behind it. */
struct found {
	uint64_t integers; /* whether all elements are */
	struct tsr_breach breach; /* of a variance with its momentum */
};

static size_t most_codings(const struct tsr_auditing *a)
{
	size_t n = 0;

	for (unsigned k = 0; k < TSR_AUDIT_KINDS; k++)
		n = a->lists[k]->n > n ? a->lists[k]->n : n;
	return n;
}

static struct tsr_trial_sums *sums_of(struct found *f)
{
	return (struct tsr_trial_sums *)(void *)(f + 1);
}

static struct tsr_update_measure *updates_of(const struct tsr_auditing *a, struct found *f)
{
	return (struct tsr_update_measure *)(void *)(sums_of(f) + most_codings(a));
}

static size_t found_nbytes(const struct tsr_auditing *a)
{
	return sizeof(struct found) + most_codings(a) * sizeof(struct tsr_trial_sums) +
	       tsr_audit_nupdates(a) * sizeof(struct tsr_update_measure);
}

/* --- Work --------------------------------------------------------------------------------------- */

/* The tile of a walk as a side of strips. */
static struct tsr_strip_side side_of(const struct tsr_auditing *a, const struct tsr_walked *t)
{
	struct found *f = t->found;

	memset(f, 0, found_nbytes(a));
	f->integers = tsr_pack_all_integers(t->data, t->tile.n);
	return (struct tsr_strip_side){ .tensor = &a->c->tensors[t->tile.tensor],
					.x = t->data,
					.first = t->tile.first,
					.sums = sums_of(f) };
}

static enum tsr_status try_tile(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	const struct tsr_auditing *a = ctx;
	struct tsr_strip_side side;

	if (!t->tensor->coding.codec)
		return TSR_OK;
	side = side_of(a, t);
	return tsr_audit_strips(a, &side, NULL, t->tile.n, NULL, err);
}

static enum tsr_status try_pair(void *ctx, const struct tsr_walked *const t[2], struct tsr_err *err)
{
	const struct tsr_auditing *a = ctx;
	struct tsr_strip_side m = side_of(a, t[0]), v = side_of(a, t[1]);

	const struct tsr_moments x = { m.x, v.x };
	struct found *f = t[1]->found;

	TSR_TRY(tsr_audit_strips(a, &m, &v, t[0]->tile.n, updates_of(a, f), err));
	if (tsr_update_suspect(&updates_of(a, f)[tsr_audit_nupdates(a) - 1], a->bound) &&
	    tsr_moments_checked(a->c, m.tensor, v.tensor))
		tsr_breach_find(&f->breach, &x, v.first, t[1]->tile.n, a->bound, a->pub.eps);
	return TSR_OK;
}

/* --- Figures ------------------------------------------------------------------------------------ */

/* Parts of an octave in which ranges are summed. */
#define OCTAVE 8388608.0

static struct tsr_audit_trial figures_of(const struct tsr_coding *coding,
					 const struct tsr_tensor *t, const struct tsr_trial_sums *s,
					 bool integers)
{
	const struct tsr_packed_tensor packed = { .measure = tsr_measure_result(&s->measure),
						  .report = s->report };
	struct tsr_tensor stored = *t;
	struct tsr_audit_trial r = {
		.measured = true,
		.nmse = tsr_measure_value(&s->measure, TSR_METRIC_NMSE),
		.rms_error = packed.measure.rms_error,
		.mean_rel = tsr_measure_value(&s->measure, TSR_METRIC_MEAN_REL),
		.zeroed = s->measure.flushed,
		.scale_underflow = s->report.scale_underflow,
		.scale_overflow = s->report.scale_overflow,
		.groups = s->groups,
		.stuck = s->stuck,
		.max_abs = s->measure.max_abs,
		.range_max = (float)(s->range_max / OCTAVE),
	};

	if (s->nranges)
		r.range_mean = (float)((double)s->range_sum / (double)s->nranges / OCTAVE);
	for (unsigned i = 0; i < coding->codec->nplanes; i++)
		r.nbytes += tsr_plane_nbytes(coding, i, t->numel);
	stored.coding = *coding;
	r.raw = tsr_pack_raw_reason(&stored, &packed, integers);
	return r;
}

/* What the elements themselves are like, which every coding saw. */
static void find_fault(struct tsr_audit_tensor *r, const struct tsr_measure *m)
{
	const bool negative = r->tensor->kind == TSR_KIND_VARIANCE && m->negative;

	if (m->nonfinite) {
		r->fault = TSR_AUDIT_NONFINITE;
		r->nfaulty = m->nonfinite;
	} else if (negative) {
		r->fault = TSR_AUDIT_NEGATIVE;
		r->nfaulty = m->negative;
	} else if (m->zeros == m->n) {
		r->fault = TSR_AUDIT_ZERO;
		r->nfaulty = m->n;
	}
}

static void finish_tensor(struct tsr_auditing *a, struct tsr_audit_tensor *r, unsigned kind)
{
	struct tsr_audit_trial *trials = (struct tsr_audit_trial *)r->trials;
	struct tsr_coding coding;

	for (unsigned i = 0; i < a->lists[kind]->n; i++) {
		const struct tsr_trial_sums *s = &a->sums[kind][i];

		if (!s->measured || !tsr_audit_coding(a, r->tensor, i, &coding))
			continue;
		trials[i] = figures_of(&coding, r->tensor, s, a->integers[kind]);
		find_fault(r, &s->measure);
	}
}

static void finish_pair(struct tsr_auditing *a, struct tsr_audit_pair *p)
{
	const size_t n = tsr_audit_nupdates(a);

	for (size_t i = 0; i < n; i++) {
		if (a->updates[i].n)
			tsr_audit_put_update(p, i, &a->updates[i]);
	}
	tsr_audit_put_before(p, &a->updates[n - 1]);
}

/* --- Commits, in the order of tiles ------------------------------------------------------------- */

static void add_updates(struct tsr_auditing *a, const struct tsr_walked *t)
{
	const struct tsr_update_measure *from = updates_of(a, t->found);
	const size_t pair = a->pair_of[a->place[t->tile.tensor] - 1];

	if (!pair || t->tensor->kind != TSR_KIND_VARIANCE)
		return;
	if (t->tile.first == 0)
		memset(a->updates, 0, tsr_audit_nupdates(a) * sizeof(*a->updates));
	for (size_t i = 0; i < tsr_audit_nupdates(a); i++)
		tsr_update_measure_merge(&a->updates[i], &from[i]);
	tsr_breach_merge(&a->pairs[pair - 1].breach, &((struct found *)t->found)->breach);
	if (t->tile.last)
		finish_pair(a, &a->pairs[pair - 1]);
}

static enum tsr_status commit_tile(void *ctx, const struct tsr_walked *t, struct tsr_err *err)
{
	struct tsr_auditing *a = ctx;
	const unsigned kind = tsr_audit_kind(t->tensor->kind);
	struct found *f = t->found;

	(void)err;
	if (!t->tensor->coding.codec)
		return TSR_OK;
	if (t->tile.first == 0) {
		memset(a->sums[kind], 0, a->lists[kind]->n * sizeof(**a->sums));
		a->integers[kind] = true;
	}
	a->integers[kind] = a->integers[kind] && f->integers;
	for (unsigned i = 0; i < a->lists[kind]->n; i++)
		tsr_trial_sums_merge(&a->sums[kind][i], &sums_of(f)[i]);
	add_updates(a, t);
	if (t->tile.last)
		finish_tensor(a, &a->tensors[a->place[t->tile.tensor] - 1], kind);
	return TSR_OK;
}

/* Drop pairs of which a side means nothing. */
static void drop_faulty_pairs(struct tsr_auditing *a)
{
	size_t n = 0;

	for (size_t i = 0; i < a->pub.npairs; i++) {
		const struct tsr_audit_pair p = a->pairs[i];
		const enum tsr_audit_fault m = a->tensors[p.momentum].fault;
		const enum tsr_audit_fault v = a->tensors[p.variance].fault;

		if ((m == TSR_AUDIT_SOUND || m == TSR_AUDIT_ZERO) &&
		    (v == TSR_AUDIT_SOUND || v == TSR_AUDIT_ZERO))
			a->pairs[n++] = p;
	}
	a->pub.npairs = n;
}

/* What jobs in flight may take in memory; fewer threads take less. */
#define IN_FLIGHT_MAX (UINT64_C(192) << 20)

static unsigned threads_of(const struct tsr_auditing *a, const struct tsr_run *run)
{
	const uint64_t job = 2 * (sizeof(struct tsr_coder_memory) + found_nbytes(a)) +
			     tsr_audit_strips_nbytes(a);
	const uint64_t most = IN_FLIGHT_MAX / job;
	const unsigned asked = tsr_run_threads(run);

	if (most <= TSR_PIPELINE_WAITING + 1)
		return 1;
	return most - TSR_PIPELINE_WAITING < asked ? (unsigned)most - TSR_PIPELINE_WAITING : asked;
}

enum tsr_status tsr_audit_measure(struct tsr_auditing *a, const struct tsr_run *run,
				  struct tsr_err *err)
{
	const struct tsr_walk walk = { .c = a->c,
				       .wanted = a->wanted,
				       .found_nbytes = found_nbytes(a),
				       .in_parts = true,
				       .work = try_tile,
				       .work_pair = try_pair,
				       .commit = commit_tile,
				       .ctx = a };
	struct tsr_run on_cpu = run ? *run : (struct tsr_run){ .threads = 1 };

	on_cpu.ngpus = 0;
	on_cpu.threads = threads_of(a, &on_cpu);
	TSR_TRY(tsr_inputs_name((const struct tsr_checkpoint *const[]){ a->c }, 1, 0, &on_cpu,
				err));
	TSR_TRY(tsr_walk_run(&walk, &on_cpu, err));
	drop_faulty_pairs(a);
	return tsr_part_is_one(on_cpu.parts) ? TSR_OK : tsr_audit_muon(a, &on_cpu, err);
}
