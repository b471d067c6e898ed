/* SPDX-License-Identifier: Apache-2.0 */
/* Which codings an audit tries on which tensors, in which tiles. */
#include "audit/audit_figures.h"
#include "audit/audit_work.h"

#include "base/fail.h"
#include "base/multiple.h"
#include "ckpt/build.h"
#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/narrow.h"
#include "learn/factors.h"
#include "names/eps.h"

/* --- Codings ------------------------------------------------------------------------------------ */

/* Whether blocks must be learned for it. */
static bool is_learned(const struct tsr_coding *coding)
{
	return coding->codec &&
	       (coding->codec->learned || (coding->codec->grouped && coding->group == 0));
}

/* Find the coding that the verdict is to be on in a list, or add it. */
static enum tsr_status ask_for(struct tsr_auditing *a, const struct tsr_coding *asked,
			       enum tsr_kind kind, struct tsr_audit_list *list, struct tsr_err *err)
{
	struct tsr_coding *codings = (struct tsr_coding *)list->codings;
	unsigned i = 0;

	if (is_learned(asked) && !a->options.learned)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: codec %s is learned, and was not among those to try",
				a->c->path, asked->codec->name);
	while (i < list->n &&
	       (codings[i].codec != asked->codec || codings[i].scale != asked->scale))
		i++;
	if (i == list->n) {
		codings[list->n++] = *asked;
		codings[i].kind = kind;
	}
	*(kind == TSR_KIND_MOMENTUM ? &a->pub.momentum : &a->pub.variance) = i;
	a->pub.asked = true;
	return TSR_OK;
}

static enum tsr_status fill_list(struct tsr_auditing *a, enum tsr_kind kind, struct tsr_err *err)
{
	const struct tsr_audit_options *o = &a->options;
	struct tsr_audit_list *list = a->lists[tsr_audit_kind(kind)];
	struct tsr_coding *codings;

	TSR_TRY(TSR_ARENA_NEW(&codings, (o->ncodings + 1), a->arena, tsr_fail_nomem(err, "audit")));
	list->codings = codings;
	for (unsigned i = 0; i < o->ncodings; i++) {
		const struct tsr_codec *codec = o->codings[i].codec;

		if (o->codings[i].kind != kind || (o->kinds && !(o->kinds & kind)))
			continue;
		if (!codec || !(codec->kinds & kind))
			return tsr_fail(err, TSR_E_USAGE, "audit: found codec %s for a %s",
					codec ? codec->name : "none", tsr_kind_name(kind));
		if (!is_learned(&o->codings[i]) || a->options.learned)
			codings[list->n++] = o->codings[i];
	}
	if (!o->state || kind == TSR_KIND_WEIGHT || (o->kinds && !(o->kinds & kind)))
		return TSR_OK;
	return ask_for(a, &o->state[kind == TSR_KIND_VARIANCE], kind, list, err);
}

/* Ratios are measured beside logarithms of variances, which are as exact, or beside what comes first. */
static unsigned find_beside(const struct tsr_audit_list *variances)
{
	for (unsigned i = 0; i < variances->n; i++) {
		if (variances->codings[i].codec->companding == TSR_COMPANDING_LOG)
			return i;
	}
	return 0;
}

/* Whether a learned codec is among those to try. */
static bool wants_learned(const struct tsr_audit_options *o)
{
	for (unsigned i = 0; i < o->ncodings; i++) {
		if (is_learned(&o->codings[i]) && (!o->kinds || o->kinds & o->codings[i].kind))
			return true;
	}
	return false;
}

static bool has_states(const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		const enum tsr_kind kind = c->tensors[i].kind;

		if (kind == TSR_KIND_MOMENTUM || kind == TSR_KIND_VARIANCE)
			return true;
	}
	return false;
}

/* A codebook that cannot be learned is no failure: its codecs are left out, which a note says. */
static enum tsr_status learn(struct tsr_auditing *a, const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_err why = { 0 };
	enum tsr_status status;

	if (a->options.learned || !wants_learned(&a->options) || !has_states(a->c))
		return TSR_OK;
	status = tsr_learn(a->c, NULL, run, &a->own, &why);
	a->options.learned = a->own;
	if (status == TSR_OK)
		return TSR_OK;
	if (status != TSR_E_UNSUPPORTED) {
		*err = why;
		return status;
	}
	a->pub.unlearned = true;
	return tsr_build_note(a->c, err, "learned codecs are not tried: %s", why.msg);
}

/* --- Tensors ------------------------------------------------------------------------------------ */

/* The coding without regard to tiles; false if the tensor cannot have it. */
static bool coding_of(const struct tsr_auditing *a, const struct tsr_tensor *t, unsigned i,
		      struct tsr_coding *ret)
{
	const struct tsr_learned *learned = a->options.learned;
	const struct tsr_learned_tensor *known;

	*ret = a->lists[tsr_audit_kind(t->kind)]->codings[i];
	/* As pack does where there is no variance to be a ratio to, or no factors. */
	if ((ret->codec->relative && t->orthogonal) ||
	    (ret->codec->rank && !(t->factors && tsr_coding_share(ret, t->rank, t->shape))))
		*ret = tsr_coding_with(tsr_codec_find("softsign8"), ret->scale, 0);
	if (!tsr_codec_takes(ret->codec, t->dtype))
		return false;
	if (ret->codec->stochastic)
		ret->stream = tsr_coding_stream(t->name);
	if (a->c->eps > 0)
		tsr_coding_use_eps(ret, a->c->eps);
	if (is_learned(ret)) {
		known = tsr_learned_find(learned, t->weight ? t->weight : t->name);
		if (!known || known->numel != t->numel)
			return false;
		ret->group = t->kind == TSR_KIND_VARIANCE ? known->period : known->block;
		ret->codebook = learned->codebook;
	}
	ret->row = tsr_coding_row(ret, t->rank, t->shape);
	ret->share = tsr_coding_share(ret, t->rank, t->shape);
	if (ret->share)
		ret->factors = t->factors;
	return true;
}

/* Whether tiles of the tensor, as it is wanted, begin where groups do. */
static bool fits(const struct tsr_tensor *wanted, const struct tsr_coding *coding)
{
	const uint32_t align = tsr_coding_align(&wanted->coding);

	return wanted->numel <= TSR_TILE_ELEMENTS - TSR_TILE_ELEMENTS % align ||
	       align % tsr_coding_align(coding) == 0;
}

bool tsr_audit_coding(const struct tsr_auditing *a, const struct tsr_tensor *t, unsigned i,
		      struct tsr_coding *ret)
{
	const struct tsr_tensor *wanted = &a->wanted[t - a->c->tensors];

	if (!coding_of(a, t, i, ret) || !fits(wanted, ret))
		return false;
	return !ret->codec->relative || wanted->partner;
}

static bool has_any_coding(const struct tsr_auditing *a, const struct tsr_tensor *t)
{
	struct tsr_coding ignored;

	for (unsigned i = 0; i < a->lists[tsr_audit_kind(t->kind)]->n; i++) {
		if (coding_of(a, t, i, &ignored))
			return true;
	}
	return false;
}

static bool is_audited(const struct tsr_auditing *a, const struct tsr_tensor *t)
{
	return t->kind != TSR_KIND_OTHER && tsr_tensor_has_f32(t) && has_any_coding(a, t);
}

static bool is_small(const struct tsr_auditing *a, const struct tsr_tensor *t)
{
	return t->numel == 0 || (!t->ruled && t->numel < a->options.min_elements);
}

/* The partner of a tensor, if both are audited and alike; else NULL. */
static const struct tsr_tensor *partner_of(const struct tsr_auditing *a, size_t i)
{
	const struct tsr_checkpoint *c = a->c;
	const struct tsr_tensor *other = tsr_tensor_partner(c->tensors, c->ntensors, i);

	return other && tsr_tensor_same_shape(&c->tensors[i], other) && is_audited(a, other) &&
			       !is_small(a, other)
		       ? other
		       : NULL;
}

/* --- Tiles -------------------------------------------------------------------------------------- */

/* What tiles have to begin at multiples of for all codings, leaving out some if that is too many. */
static uint64_t align_of(const struct tsr_auditing *a, const struct tsr_tensor *t, uint64_t align)
{
	struct tsr_coding coding;

	for (unsigned i = 0; i < a->lists[tsr_audit_kind(t->kind)]->n; i++) {
		uint64_t both;

		if (!coding_of(a, t, i, &coding))
			continue;
		both = tsr_common_multiple(align, tsr_coding_align(&coding));
		align = both <= TSR_TILE_ELEMENTS ? both : align;
	}
	return align;
}

/* The walk reads elements of tensors that have a codec as FP32 values, in tiles of whole "rows". */
static void want(struct tsr_auditing *a, size_t i)
{
	const struct tsr_tensor *t = &a->c->tensors[i], *other = partner_of(a, i);
	struct tsr_tensor *w = &a->wanted[i];
	uint64_t align = 1;

	if (t->numel > TSR_TILE_ELEMENTS) {
		/* The same for both of a pair: the momentum's codings come first. */
		const bool second = other && t->kind == TSR_KIND_VARIANCE;

		align = align_of(a, second ? other : t, 1);
		align = other ? align_of(a, second ? t : other, align) : align;
	}
	w->coding = tsr_coding_default(tsr_codec_find("f32"));
	w->coding.row = (uint32_t)(align > 1 ? align : 0);
	w->nplanes = 1;
	w->partner = other ? t->partner : 0;
}

enum tsr_status tsr_audit_no_room(const struct tsr_auditing *a, struct tsr_err *err)
{
	if (!tsr_arena_full(a->arena))
		return tsr_fail_nomem(err, "audit");
	return tsr_fail(err, TSR_E_LIMIT,
			"%s: found so many tensors that their figures in all codecs take more than "
			"256 MiB; fewer codecs take less",
			a->c->path);
}

static enum tsr_status add_tensor(struct tsr_auditing *a, size_t i, struct tsr_err *err)
{
	const struct tsr_tensor *t = &a->c->tensors[i];
	struct tsr_audit_tensor *r = &a->tensors[a->pub.ntensors++];
	const unsigned n = a->lists[tsr_audit_kind(t->kind)]->n;

	a->place[i] = a->pub.ntensors;
	r->tensor = t;
	if (is_small(a, t)) {
		r->fault = TSR_AUDIT_SMALL;
		return TSR_OK;
	}
	want(a, i);
	r->trials = tsr_arena_alloc(a->arena, n * sizeof(*r->trials));
	return r->trials ? TSR_OK : tsr_audit_no_room(a, err);
}

/* A momentum whose update is made orthogonal, of no variance: its pair is itself. */
static bool is_muon(const struct tsr_auditing *a, size_t i)
{
	const struct tsr_tensor *t = &a->c->tensors[i];

	return t->orthogonal && t->rank >= 2 && !a->tensors[a->place[i] - 1].fault;
}

static enum tsr_status add_pair(struct tsr_auditing *a, size_t i, struct tsr_err *err)
{
	const struct tsr_tensor *w = &a->wanted[i];
	struct tsr_audit_pair *p;

	if (w->kind != TSR_KIND_MOMENTUM || !(w->partner || is_muon(a, i)))
		return TSR_OK;
	p = &a->pairs[a->pub.npairs++];
	p->momentum = a->place[i] - 1;
	p->variance = w->partner ? a->place[w->partner - 1] - 1 : p->momentum;
	a->pair_of[p->momentum] = a->pair_of[p->variance] = a->pub.npairs;
	p->updates = tsr_arena_alloc(a->arena, tsr_audit_nupdates(a) * sizeof(*p->updates));
	return p->updates ? TSR_OK : tsr_audit_no_room(a, err);
}

static enum tsr_status choose_tensors(struct tsr_auditing *a, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = a->c;

	for (size_t i = 0; i < c->ntensors; i++) {
		a->wanted[i] = c->tensors[i];
		a->wanted[i].coding = (struct tsr_coding){ .group = 1 };
		a->wanted[i].nplanes = 1;
		a->wanted[i].partner = 0;
		a->wanted[i].narrow = NULL;
	}
	for (size_t i = 0; i < c->ntensors; i++) {
		if (is_audited(a, &c->tensors[i]))
			TSR_TRY(add_tensor(a, i, err));
	}
	for (size_t i = 0; i < c->ntensors; i++) {
		if (a->place[i])
			TSR_TRY(add_pair(a, i, err));
	}
	return TSR_OK;
}

/* Memory for figures, and for those of the tensors that are being measured. */
static enum tsr_status allocate(struct tsr_auditing *a, struct tsr_err *err)
{
	const size_t n = a->c->ntensors + 1;

	a->tensors = tsr_arena_alloc(a->arena, n * sizeof(*a->tensors));
	a->pairs = tsr_arena_alloc(a->arena, n * sizeof(*a->pairs));
	a->wanted = tsr_arena_alloc(a->arena, n * sizeof(*a->wanted));
	a->place = tsr_arena_alloc(a->arena, n * sizeof(*a->place));
	a->pair_of = tsr_arena_alloc(a->arena, n * sizeof(*a->pair_of));
	a->updates = tsr_arena_alloc(a->arena, tsr_audit_nupdates(a) * sizeof(*a->updates));
	for (unsigned k = 0; k < TSR_AUDIT_KINDS; k++) {
		a->sums[k] = tsr_arena_alloc(a->arena, a->lists[k]->n * sizeof(**a->sums));
		if (!a->sums[k])
			return tsr_audit_no_room(a, err);
	}
	if (!a->tensors || !a->pairs || !a->wanted || !a->place || !a->pair_of || !a->updates)
		return tsr_audit_no_room(a, err);
	a->pub.tensors = a->tensors;
	a->pub.pairs = a->pairs;
	return TSR_OK;
}

enum tsr_status tsr_audit_plan(struct tsr_auditing *a, const struct tsr_run *run,
			       struct tsr_err *err)
{
	double betas[2] = { TSR_AUDIT_BETA1, TSR_AUDIT_BETA2 };
	unsigned rank = 0;

	a->lists[TSR_AUDIT_WEIGHT] = &a->pub.weights;
	a->lists[TSR_AUDIT_MOMENTUM] = &a->pub.momenta;
	a->lists[TSR_AUDIT_VARIANCE] = &a->pub.variances;
	a->pub.eps = tsr_names_eps(a->c, &a->pub.eps_known);
	a->pub.betas_known = tsr_names_betas(a->c, betas);
	a->pub.beta1 = betas[0];
	a->pub.beta2 = betas[1];
	if (a->options.eps > 0) {
		a->pub.eps = a->options.eps;
		a->pub.eps_known = true;
	}
	if (a->options.beta1 > 0 && a->options.beta2 > 0) {
		a->pub.beta1 = a->options.beta1;
		a->pub.beta2 = a->options.beta2;
		a->pub.betas_known = true;
	}
	a->bound = tsr_audit_moments(&a->pub).bound;
	TSR_TRY(learn(a, run, err));
	for (unsigned i = 0; i < a->options.ncodings; i++)
		rank = tsr_factor_rank(&a->options.codings[i], rank);
	TSR_TRY(tsr_factors_find(a->c, rank, run, err));
	for (unsigned kind = TSR_KIND_WEIGHT; kind <= TSR_KIND_VARIANCE; kind *= 2)
		TSR_TRY(fill_list(a, (enum tsr_kind)kind, err));
	a->pub.learned = a->options.learned;
	a->beside = find_beside(&a->pub.variances);
	TSR_TRY(allocate(a, err));
	TSR_TRY(choose_tensors(a, err));
	for (size_t i = 0; i < a->pub.ntensors; i++) {
		const struct tsr_audit_tensor *t = &a->tensors[i];

		a->pub.nalone += t->tensor->kind != TSR_KIND_WEIGHT &&
				 t->fault != TSR_AUDIT_SMALL && !a->pair_of[i];
	}
	if (a->pub.ntensors)
		return TSR_OK;
	return tsr_fail(err, TSR_E_UNSUPPORTED,
			"%s: found no tensor that one of the codecs takes, of the kinds asked for",
			a->c->path);
}
