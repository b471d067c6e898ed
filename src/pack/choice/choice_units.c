/* SPDX-License-Identifier: Apache-2.0 */
/* What codecs are chosen for: a tensor, or a momentum with its variance, and the candidates it has. */
#include "pack/choice/choice_units.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/order.h"
#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/narrow.h"
#include "pack/bounds.h"
#include "pack/codec_rules.h"

/* --- Codings ------------------------------------------------------------------------------------- */

static const struct tsr_coding *coding_of(const struct tsr_candidate *candidate, enum tsr_kind kind)
{
	if (kind == TSR_KIND_WEIGHT)
		return &candidate->weight;
	return kind == TSR_KIND_MOMENTUM ? &candidate->momentum : &candidate->variance;
}

static void give_candidate(const struct tsr_checkpoint *c, const struct tsr_choice_unit *u,
			   const struct tsr_candidate *candidate)
{
	for (unsigned i = 0; i < u->n; i++) {
		struct tsr_tensor *t = &c->tensors[u->tensor[i]];
		struct tsr_coding coding = { .group = 1 };

		if (candidate && !u->nonfinite[i])
			coding = *coding_of(candidate, t->kind);
		if (c->eps > 0)
			tsr_coding_use_eps(&coding, c->eps);
		tsr_pack_give(t, &coding);
	}
}

void tsr_choice_unit_give(const struct tsr_checkpoint *c, const struct tsr_choice_options *o,
			  const struct tsr_choice_unit *u, unsigned option)
{
	give_candidate(c, u,
		       option < u->noptions ? &o->candidates[u->options[option].candidate] : NULL);
}

bool tsr_choice_unit_is_pair(const struct tsr_choice_unit *u)
{
	return u->n > 1 && !u->nonfinite[0] && !u->nonfinite[1];
}

double tsr_choice_unit_bound(const struct tsr_choice_unit *u, double bound)
{
	return u->by_step ? TSR_WEIGHT_STEP_MAX : bound;
}

/* --- Options ------------------------------------------------------------------------------------- */

/* Whether the momentum, which has a relative codec, has the variance of the unit to be a ratio to. */
static bool has_beside(const struct tsr_checkpoint *c, const struct tsr_choice_unit *u)
{
	const struct tsr_tensor *m = &c->tensors[u->tensor[0]];
	const struct tsr_tensor *v = tsr_choice_unit_is_pair(u) ? &c->tensors[u->tensor[1]] : NULL;

	return v && m->beside && tsr_tensor_beside(c, m) == v && tsr_tensor_has_f32(v) &&
	       tsr_tensor_same_shape(v, m);
}

/* Whether the tensors of a unit, which have the candidate's codings, are packed and can be measured. */
static bool is_option(const struct tsr_checkpoint *c, const struct tsr_choice_unit *u,
		      const struct tsr_candidate *candidate)
{
	bool any = false;

	for (unsigned i = 0; i < u->n; i++) {
		const struct tsr_tensor *t = &c->tensors[u->tensor[i]];

		if (!coding_of(candidate, t->kind)->codec)
			return false;
		any = any || t->coding.codec;
		if (t->coding.codec && t->coding.codec->relative && !has_beside(c, u))
			return false;
		if (t->coding.codec && t->coding.codec->rank && !t->coding.factors)
			return false;
	}
	return any && (!tsr_choice_unit_is_pair(u) ||
		       tsr_tensor_is_paired(c->tensors, c->ntensors, u->tensor[0], false));
}

static uint64_t planes_nbytes(const struct tsr_tensor *t)
{
	uint64_t nbytes = 0;

	if (!t->coding.codec)
		return tsr_tensor_nbytes(t);
	for (unsigned i = 0; i < t->nplanes; i++)
		nbytes += tsr_plane_nbytes(&t->coding, i, t->numel);
	return nbytes;
}

TSR_COMPARE_BY(by_nbytes, struct tsr_option, TSR_ORDER(a->nbytes, b->nbytes),
	       TSR_ORDER(a->candidate, b->candidate))

void tsr_choice_unit_list(const struct tsr_checkpoint *c, const struct tsr_choice_options *o,
			  struct tsr_choice_unit *u)
{
	uint64_t raw = 0;

	for (unsigned s = 0; s < u->n; s++)
		raw += tsr_tensor_nbytes(&c->tensors[u->tensor[s]]);
	u->noptions = u->ntried = 0;
	for (unsigned i = 0; i < o->ncandidates; i++) {
		struct tsr_option option = { .candidate = i };

		give_candidate(c, u, &o->candidates[i]);
		for (unsigned s = 0; s < u->n; s++)
			option.nbytes += planes_nbytes(&c->tensors[u->tensor[s]]);
		/* Of the same size, a model that opens is better. */
		if (is_option(c, u, &o->candidates[i]) && option.nbytes < raw + u->by_step)
			u->options[u->noptions++] = option;
	}
	if (u->noptions)
		qsort(u->options, u->noptions, sizeof(*u->options), by_nbytes);
	u->chosen = u->noptions;
}

/* --- Units --------------------------------------------------------------------------------------- */

/* Whether a candidate is for tensors of this kind and type. */
static bool has_candidate(const struct tsr_choice_options *o, const struct tsr_tensor *t)
{
	for (unsigned i = 0; t->kind != TSR_KIND_OTHER && i < o->ncandidates; i++) {
		const struct tsr_codec *codec = coding_of(&o->candidates[i], t->kind)->codec;

		if (codec && tsr_codec_takes(codec, t->dtype))
			return true;
	}
	return false;
}

/* What decides whether a choice is made for a tensor. */
struct finding {
	const struct tsr_checkpoint *c;
	const struct tsr_choice_options *o;
	const struct tsr_pack_given *given;
	const struct tsr_packed_tensor *results;
	bool by_step;
	size_t *variance_of; /* per tensor: the variance of a weight, from 1 on */
};

static bool is_to_choose(const struct finding *f, size_t i)
{
	const struct tsr_tensor *t = &f->c->tensors[i];

	return !tsr_pack_is_kept(f->given, i) && t->numel && f->results[i].raw == TSR_RAW_NO &&
	       has_candidate(f->o, t);
}

/* Of the weights whose momentum and variance a choice is made for together. */
static void find_variances(const struct finding *f)
{
	const struct tsr_update_measured any = { .n = 1 };
	size_t w;

	for (size_t i = 0; i < f->c->ntensors; i++) {
		if (tsr_tensor_partner(f->c->tensors, f->c->ntensors, i) && is_to_choose(f, i) &&
		    tsr_weight_of(f->c, i, &any, 1, &w))
			f->variance_of[w] = i + 1;
	}
}

/* The unit that begins with tensor @i; false if it is the second of one, or of none. */
static bool make_unit(const struct finding *f, size_t i, struct tsr_choice_unit *u)
{
	const struct tsr_tensor *t = &f->c->tensors[i];
	const size_t other = t->partner - 1;
	const bool pair = tsr_tensor_partner(f->c->tensors, f->c->ntensors, i) &&
			  is_to_choose(f, other);

	if (!is_to_choose(f, i) || (pair && other < i))
		return false;
	*u = (struct tsr_choice_unit){ .tensor = { i }, .n = 1 };
	if (!pair && f->by_step && t->kind == TSR_KIND_WEIGHT) {
		u->by_step = true;
		u->variance = f->variance_of[i] - 1;
		return f->variance_of[i] > 0;
	}
	if (!pair)
		return true;
	u->tensor[t->kind == TSR_KIND_MOMENTUM ? 1 : 0] = other;
	u->tensor[t->kind == TSR_KIND_MOMENTUM ? 0 : 1] = i;
	u->n = 2;
	return true;
}

enum tsr_status tsr_choice_units_find(const struct tsr_checkpoint *c,
				      const struct tsr_choice_options *o,
				      const struct tsr_pack_given *given,
				      const struct tsr_packed_tensor *results, bool by_step,
				      struct tsr_choice_units *ret, struct tsr_err *err)
{
	TSR_OWNED(free) size_t *variance_of = calloc(c->ntensors + 1, sizeof(*variance_of));
	const struct finding f = { c, o, given, results, by_step, variance_of };
	const size_t per_unit = o->ncandidates + 1;

	*ret = (struct tsr_choice_units){ .n = 0 };
	if (!variance_of)
		return tsr_fail_nomem(err, c->path);
	TSR_TRY(TSR_NEW(&ret->list, c->ntensors + 1, err, c->path));
	find_variances(&f);
	for (size_t i = 0; i < c->ntensors; i++)
		ret->n += make_unit(&f, i, &ret->list[ret->n]);
	TSR_TRY(TSR_NEW(&ret->options, (ret->n + 1) * per_unit, err, c->path));
	for (size_t i = 0; i < ret->n; i++) {
		ret->list[i].options = ret->options + i * per_unit;
		tsr_choice_unit_list(c, o, &ret->list[i]);
	}
	return TSR_OK;
}

void tsr_choice_units_free(struct tsr_choice_units *units)
{
	free(units->list);
	free(units->options);
	*units = (struct tsr_choice_units){ .n = 0 };
}
