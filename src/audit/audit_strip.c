/* SPDX-License-Identifier: Apache-2.0 */
/* A tile in strips that stay in the cache while all codings are tried on them. */
#include "audit/audit_strip.h"

#include <math.h>

#include "base/fail.h"
#include "base/multiple.h"
#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/measuring.h"
#include "codec/narrow.h"
#include "codec/nonfinite.h"

/* The least elements of a strip. */
#define STRIP_ELEMENTS 2048u

/* A coding that is tried, and what came back of a strip: of a relative codec the ratios. */
struct trial {
	struct tsr_coding coding;
	bool measured;
	float factor; /* what its states decay by; 0: they do not */
	float *decoded;
	unsigned
		ranges; /* the first trial with the same groups of the same values, maybe this one */
};

struct strips {
	const struct tsr_auditing *a;
	const struct tsr_strip_side *s, *v; /* NULL: there is no variance beside */
	struct trial *trials, *v_trials;
	unsigned n, nv;
	struct tsr_update_measure *updates;
	struct tsr_trial_memory memory;
	float *ratios, *momenta; /* of a relative codec: before; and after beside one variance */
	void *block;
};

/* --- Preparing ---------------------------------------------------------------------------------- */

static float factor_of(const struct tsr_auditing *a, const struct tsr_coding *coding)
{
	if (coding->kind == TSR_KIND_VARIANCE)
		return (float)a->pub.beta2;
	if (coding->kind != TSR_KIND_MOMENTUM)
		return 0;
	return (float)(coding->codec->relative ? a->pub.beta1 / sqrt(a->pub.beta2) : a->pub.beta1);
}

/* The first of the trials before @n with the groups of the @n-th; ratios have values of their own. */
static unsigned same_groups(const struct trial *trials, unsigned n)
{
	const struct tsr_coding *coding = &trials[n].coding;

	for (unsigned i = 0; i < n && !tsr_codec_is_beside(coding->codec); i++) {
		const struct tsr_coding *other = &trials[i].coding;

		if (trials[i].measured && other->codec->grouped &&
		    !tsr_codec_is_beside(other->codec) && other->group == coding->group &&
		    other->row == coding->row)
			return i;
	}
	return n;
}

/* The trials of a side; *align becomes what all of them can be cut at, or more than a tile. */
static unsigned fill_trials(const struct tsr_auditing *a, const struct tsr_strip_side *s,
			    struct trial *trials, uint64_t *align)
{
	const unsigned n = a->lists[tsr_audit_kind(s->tensor->kind)]->n;

	for (unsigned i = 0; i < n; i++) {
		struct trial *t = &trials[i];

		t->measured = tsr_audit_coding(a, s->tensor, i, &t->coding);
		if (!t->measured)
			continue;
		t->factor = factor_of(a, &t->coding);
		t->ranges = same_groups(trials, i);
		s->sums[i].measured = true;
		if (*align <= TSR_TILE_ELEMENTS)
			*align = tsr_common_multiple(*align, tsr_coding_align(&t->coding));
	}
	return n;
}

/* Arrays of floats that strips need besides what comes back. */
#define NARRAYS (2 * TSR_PLANES_MAX + 3)

/* A strip's memory; momenta and variances are all kept, of weights one at a time. */
static enum tsr_status allocate(struct strips *p, size_t room, struct tsr_err *err)
{
	const size_t kept = p->v ? p->n + p->nv : 1;
	float *at = NULL;

	TSR_TRY(TSR_NEW(&at, (NARRAYS + kept) * room, err, "strips"));
	p->block = at;
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++) {
		p->memory.plane[i] = at + (size_t)(2 * i) * room;
		p->memory.again[i] = at + (size_t)(2 * i + 1) * room;
	}
	at += 2 * TSR_PLANES_MAX * room;
	p->memory.x = at;
	p->ratios = at + room;
	p->momenta = at + 2 * room;
	at += 3 * room;
	for (unsigned i = 0; i < p->n; i++)
		p->trials[i].decoded = at + (p->v ? i * room : 0);
	for (unsigned i = 0; i < p->nv; i++)
		p->v_trials[i].decoded = at + (p->n + i) * room;
	return TSR_OK;
}

uint64_t tsr_audit_strips_nbytes(const struct tsr_auditing *a)
{
	uint64_t longest = STRIP_ELEMENTS;

	/* Groups that follow rows may leave a tile as the only strip. */
	for (size_t i = 0; i < a->c->ntensors; i++) {
		if (a->place[i] && a->c->tensors[i].rank > 1)
			longest = TSR_TILE_ELEMENTS;
	}
	return (NARRAYS + a->pub.momenta.n + a->pub.variances.n) * longest * sizeof(float);
}

/* --- One coding --------------------------------------------------------------------------------- */

static void look_at_groups(struct trial *t, bool ranges, const float *x, size_t n,
			   struct tsr_trial_memory *memory, struct tsr_trial_sums *sums)
{
	if (t->factor > 0)
		tsr_trial_stuck(&t->coding, t->decoded, n, t->factor, memory, sums);
	if (ranges && t->coding.codec->grouped)
		tsr_trial_range(&t->coding, x, n, sums);
}

/* What trials with the same groups have in common is measured once. */
static void copy_ranges(const struct trial *trials, unsigned n, struct tsr_trial_sums *sums)
{
	for (unsigned i = 0; i < n; i++) {
		const struct tsr_trial_sums *from = &sums[trials[i].ranges];

		if (!trials[i].measured || !trials[i].coding.codec->grouped)
			continue;
		sums[i].range_sum = from->range_sum;
		sums[i].nranges = from->nranges;
		sums[i].range_max = from->range_max;
	}
}

/* What the product of the factors, which is then in p->momenta, leaves of a momentum. */
static const float *rest_of(struct strips *p, const struct trial *t, const float *x, size_t n)
{
	const struct tsr_coding *coding = &t->coding;

	/* Nothing is read, as the coding has factors, so it cannot fail. */
	(void)tsr_tensor_products(p->a->c, p->s->tensor, coding, coding->first, n, p->momenta,
				  NULL);
	memcpy(p->ratios, x, n * sizeof(*x));
	tsr_ratios_make(coding, p->ratios, p->momenta, n);
	return p->ratios;
}

/* Any but relative codecs. */
static void try_coding(struct strips *p, const struct tsr_strip_side *s, struct trial *trials,
		       unsigned i, size_t first, size_t n)
{
	struct tsr_trial_sums *sums = &s->sums[i];
	struct trial *t = &trials[i];
	const float *x = s->x + first, *coded = x;
	const bool lowrank = t->coding.codec->rank;

	t->coding.first = s->first + first;
	if (lowrank)
		coded = rest_of(p, t, x, n);
	tsr_trial_code(&t->coding, coded, n, &p->memory, t->decoded, &sums->report);
	look_at_groups(t, t == &trials[t->ranges], coded, n, &p->memory, sums);
	if (lowrank)
		tsr_ratios_undo(&t->coding, t->decoded, p->momenta, n);
	tsr_round_to(s->tensor->dtype, t->decoded, n);
	tsr_measure_add(&sums->measure, x, t->decoded, n);
}

/* Momenta from ratios, beside the variances of trial @j; @nv: beside those of the checkpoint. */
static const float *momenta_beside(struct strips *p, const struct trial *t, unsigned j,
				   size_t first, size_t n)
{
	const bool as_it_is = j == p->nv || !p->v_trials[j].measured;
	const float *variances = as_it_is ? p->v->x + first : p->v_trials[j].decoded;

	memcpy(p->momenta, t->decoded, n * sizeof(*p->momenta));
	tsr_ratios_undo(&t->coding, p->momenta, variances, n);
	tsr_round_to(p->s->tensor->dtype, p->momenta, n);
	return p->momenta;
}

static void try_ratios(struct strips *p, struct trial *t, struct tsr_trial_sums *sums, size_t first,
		       size_t n)
{
	const float *m = p->s->x + first;

	memcpy(p->ratios, m, n * sizeof(*m));
	tsr_ratios_make(&t->coding, p->ratios, p->v->x + first, n);
	sums->report.narrow_overflow += tsr_count_nonfinite(TSR_F32, p->ratios, n * sizeof(*m));
	tsr_trial_code(&t->coding, p->ratios, n, &p->memory, t->decoded, &sums->report);
	look_at_groups(t, true, p->ratios, n, &p->memory, sums);
	tsr_measure_add(&sums->measure, m, momenta_beside(p, t, p->a->beside, first, n), n);
}

/* --- A strip ------------------------------------------------------------------------------------ */

static void try_side(struct strips *p, const struct tsr_strip_side *s, struct trial *trials,
		     unsigned ntrials, size_t first, size_t n)
{
	for (unsigned i = 0; i < ntrials; i++) {
		if (!trials[i].measured)
			continue;
		if (trials[i].coding.codec->relative)
			try_ratios(p, &trials[i], &s->sums[i], first, n);
		else
			try_coding(p, s, trials, i, first, n);
	}
}

/* The pairs of a momentum coding, or of the momenta as they are, with all of variances. */
static void try_row(struct strips *p, unsigned i, size_t first, size_t n)
{
	const struct tsr_moments before = { p->s->x + first, p->v->x + first };
	const struct trial *t = i < p->n ? &p->trials[i] : NULL;

	for (unsigned j = 0; j <= p->nv; j++) {
		struct tsr_moments after = before;

		if (j < p->nv && !p->v_trials[j].measured)
			continue;
		if (j < p->nv)
			after.v = p->v_trials[j].decoded;
		if (t)
			after.m = t->coding.codec->relative ? momenta_beside(p, t, j, first, n)
							    : t->decoded;
		tsr_update_measure_add(&p->updates[(size_t)i * (p->nv + 1) + j], &before, &after, n,
				       p->a->pub.eps);
	}
}

static void try_strip(struct strips *p, size_t first, size_t n)
{
	/* Ratios need what comes back of the variances. */
	if (p->v)
		try_side(p, p->v, p->v_trials, p->nv, first, n);
	try_side(p, p->s, p->trials, p->n, first, n);
	for (unsigned i = 0; p->v && i <= p->n; i++) {
		if (i == p->n || p->trials[i].measured)
			try_row(p, i, first, n);
	}
}

enum tsr_status tsr_audit_strips(const struct tsr_auditing *a, const struct tsr_strip_side *s,
				 const struct tsr_strip_side *v, size_t n,
				 struct tsr_update_measure *updates, struct tsr_err *err)
{
	struct strips p = { .a = a, .s = s, .v = v, .updates = updates };
	uint64_t align = TSR_MEASURE_LANES;
	enum tsr_status status;
	size_t strip = n;

	TSR_TRY(TSR_NEW(&p.trials, 2 * (TSR_AUDIT_CODINGS_MAX + 1), err, "strips"));
	p.v_trials = p.trials + TSR_AUDIT_CODINGS_MAX + 1;
	p.n = fill_trials(a, s, p.trials, &align);
	if (v)
		p.nv = fill_trials(a, v, p.v_trials, &align);
	if (align < STRIP_ELEMENTS)
		align *= STRIP_ELEMENTS / align;
	strip = align < n ? (size_t)align : n;
	status = allocate(&p, strip, err);
	for (size_t first = 0; status == TSR_OK && first < n; first += strip)
		try_strip(&p, first, n - first < strip ? n - first : strip);
	copy_ranges(p.trials, p.n, s->sums);
	if (v)
		copy_ranges(p.v_trials, p.nv, v->sums);
	free(p.block);
	free(p.trials);
	return status;
}
