/* SPDX-License-Identifier: Apache-2.0 */
/* The first step and tensor at which two runs differ. */
#include "bisect/comparing.h"

#include "base/fail.h"
#include "base/option_size.h"
#include "recording/signing.h"
#include "tersor/replay.h"
#include "text/bytes.h"
#include "text/named.h"

/* The least difference that a heat map shows, of tensors with the same root mean square. */
#define LEAST_CHANGE 0x1p-24f

const char *tsr_bisect_cause_name(enum tsr_bisect_cause cause)
{
	static const char *const names[] = { "equal",		"ranks",    "loaded state",
					     "hyperparameters", "gradient", "optimizer",
					     "state",		"tensors" };

	return names[cause];
}

/* --- Pairs of tensors -------------------------------------------------------------------------- */

static enum tsr_bisect_where where_of(const struct tsr_signed_tensor *a,
				      const struct tsr_signed_tensor *b)
{
	if (a->rank != b->rank || memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) != 0)
		return TSR_BISECT_SHAPES;
	return a->dtype == b->dtype ? TSR_BISECT_BOTH : TSR_BISECT_DTYPES;
}

static void add_pair(struct tsr_comparing *c, size_t a, size_t b)
{
	const struct tsr_run_tensor *ta = a == SIZE_MAX ? NULL : &c->side[0].tensors[a];
	const struct tsr_run_tensor *tb = b == SIZE_MAX ? NULL : &c->side[1].tensors[b];
	const struct tsr_run_tensor *t = ta ? ta : tb;
	struct tsr_bisect_tensor *is = &c->result->tensors[c->result->ntensors];

	is->name = t->is.name;
	is->of = t->is.of;
	is->rank = t->rank;
	is->where = !tb ? TSR_BISECT_ONLY_A : !ta ? TSR_BISECT_ONLY_B : where_of(&ta->is, &tb->is);
	c->result->npaired += is->where == TSR_BISECT_BOTH;
	for (unsigned i = 0; i < TSR_BISECT_COLUMNS; i++)
		is->heat[i] = -1;
	c->pairs[c->result->ntensors++] = (struct tsr_pair){ { a, b } };
}

/* Whether a source of this kind has such tensors; what else an optimizer keeps not all sources have. */
static bool is_of(enum tsr_bisect_source source, const char *of)
{
	return source == TSR_BISECT_SIGNATURES ||
	       tsr_is_gradient(of) == (source == TSR_BISECT_GRADIENTS);
}

/* Whether there is a file of a rank; what has no ranks is all of the first one's. */
static bool has_rank(const struct tsr_run_side *s, uint64_t rank)
{
	for (size_t i = 0; s->files && i < s->pub.nfiles; i++) {
		if (s->files[i]->rank == rank)
			return true;
	}
	return !s->files && rank == 0;
}

/* With other numbers of ranks only whole tensors can be compared, as the first rank has them. */
static bool is_comparable(const struct tsr_comparing *c, const struct tsr_run_side *s,
			  const struct tsr_run_tensor *t)
{
	const struct tsr_run_side *other = &c->side[s == &c->side[0]];

	if (!is_of(other->pub.source, t->is.of))
		return false;
	if (c->side[0].pub.nranks == c->side[1].pub.nranks)
		return has_rank(other, t->rank);
	return !t->is.part && t->rank == s->tensors[0].rank;
}

/* Whether it matters that the other side has no such tensor: not of counters and other states. */
static bool is_missed(const struct tsr_run_tensor *t)
{
	static const char *const matter[] = { "gradient", "weight", "momentum", "variance" };

	return TSR_IS_AMONG(tsr_side_slot(t->is.of), matter);
}

static enum tsr_status pair_all(struct tsr_comparing *c, struct tsr_err *err)
{
	struct tsr_run_side *a = &c->side[0], *b = &c->side[1];
	const size_t n = a->ntensors + b->ntensors;
	TSR_OWNED(free) struct tsr_named *of_b = NULL;
	TSR_OWNED(free) bool *taken = NULL;

	TSR_TRY(TSR_NEW(&c->result->tensors, n + 1, err, a->pub.path));
	TSR_TRY(TSR_NEW(&c->pairs, n + 1, err, a->pub.path));
	TSR_TRY(TSR_NEW(&taken, b->ntensors + 1, err, a->pub.path));
	TSR_TRY(tsr_side_keys(b, &of_b, err));
	for (size_t i = 0; i < a->ntensors; i++) {
		const struct tsr_named *found = tsr_named_find(of_b, b->ntensors,
							       a->tensors[i].key);

		if (!is_comparable(c, a, &a->tensors[i]))
			continue;
		if (found || is_missed(&a->tensors[i]))
			add_pair(c, i, found ? found->index : SIZE_MAX);
		if (found)
			taken[found->index] = true;
	}
	for (size_t i = 0; i < b->ntensors; i++) {
		if (!taken[i] && is_comparable(c, b, &b->tensors[i]) && is_missed(&b->tensors[i]))
			add_pair(c, SIZE_MAX, i);
	}
	if (!c->result->npaired)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: has no tensor in common with %s: found %.200s, %.60s, and "
				"%.200s, %.60s",
				a->pub.path, b->pub.path,
				a->ntensors ? a->tensors[0].is.name : "none",
				a->ntensors ? a->tensors[0].is.of : "",
				b->ntensors ? b->tensors[0].is.name : "none",
				b->ntensors ? b->tensors[0].is.of : "");
	return TSR_OK;
}

/* --- Steps ------------------------------------------------------------------------------------- */

/* A checkpoint that does not say its step is compared with the last one of the other side. */
static void number(struct tsr_run_side *s, const struct tsr_run_side *other)
{
	if (s->unnumbered && other->nsteps)
		s->steps[0] = other->steps[other->nsteps - 1];
}

static enum tsr_status pair_steps(struct tsr_comparing *c, struct tsr_err *err)
{
	struct tsr_run_side *a = &c->side[0], *b = &c->side[1];
	struct tsr_bisect *r = c->result;
	size_t k = 0;

	number(a, b);
	number(b, a);
	TSR_TRY(TSR_NEW(&c->steps, a->nsteps + 1, err, a->pub.path));
	for (size_t i = 0; i < a->nsteps; i++) {
		while (k < b->nsteps && b->steps[k] < a->steps[i])
			k++;
		if (k < b->nsteps && b->steps[k] == a->steps[i])
			c->steps[r->nsteps++] = (struct tsr_pair){ { i, k } };
	}
	for (unsigned i = 0; i < 2; i++) {
		const struct tsr_run_side *s = &c->side[i];

		if (!s->nsteps)
			return tsr_fail(err, TSR_E_FORMAT, "%s: has no whole step", s->pub.path);
		r->side[i] = s->pub;
		r->side[i].nsteps = s->nsteps;
		r->side[i].first_step = s->steps[0];
		r->side[i].last_step = s->steps[s->nsteps - 1];
	}
	if (!r->nsteps)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: has steps %" PRIu64 " to %" PRIu64 ", %s %" PRIu64
				" to %" PRIu64 ": none in common",
				a->pub.path, r->side[0].first_step, r->side[0].last_step,
				b->pub.path, r->side[1].first_step, r->side[1].last_step);
	r->first_common = a->steps[c->steps[0].at[0]];
	r->last_common = a->steps[c->steps[r->nsteps - 1].at[0]];
	r->ncolumns = r->nsteps < TSR_BISECT_COLUMNS ? (unsigned)r->nsteps : TSR_BISECT_COLUMNS;
	return TSR_OK;
}

/* What differs most, as far as figures show it. */
static float change_of(const struct tsr_signature *a, const struct tsr_signature *b)
{
	const float more = a->rms > b->rms ? a->rms : b->rms,
		    less = a->rms > b->rms ? b->rms : a->rms;
	const float change = more > 0 ? (more - less) / more : 0;

	return change > LEAST_CHANGE ? change : LEAST_CHANGE;
}

/* Whether a run begins at the step, which has no gradients then that the other one could have. */
static bool begins_at(const struct tsr_comparing *c, uint64_t step)
{
	return step == c->side[0].steps[0] || step == c->side[1].steps[0];
}

/* Compare a tensor at a step; whether it differs. */
static bool compare(struct tsr_comparing *c, size_t i, uint64_t step, unsigned column)
{
	struct tsr_bisect_tensor *t = &c->result->tensors[i];
	const struct tsr_signature *a = &c->side[0].signatures[c->pairs[i].at[0]];
	const struct tsr_signature *b = &c->side[1].signatures[c->pairs[i].at[1]];
	const bool differs = !tsr_signature_equal(a, b);
	const float change = differs ? change_of(a, b) : 0;

	if (tsr_signature_is_absent(a) && tsr_signature_is_absent(b))
		return false;
	if (tsr_is_gradient(t->of) && begins_at(c, step) &&
	    (tsr_signature_is_absent(a) || tsr_signature_is_absent(b)))
		return false;
	t->ncompared++;
	t->heat[column] = change > t->heat[column] ? change : t->heat[column];
	if (differs && !t->ndiffering++) {
		t->first_step = step;
		t->first[0] = *a;
		t->first[1] = *b;
		c->result->ndiffering++;
	}
	return differs;
}

/* What is known of a step: what was compared, and what differs. */
static struct tsr_step_found compare_step(struct tsr_comparing *c, size_t index)
{
	struct tsr_bisect *r = c->result;
	const uint64_t step = c->side[0].steps[c->steps[index].at[0]];
	const unsigned column = (unsigned)(index * r->ncolumns / r->nsteps);
	struct tsr_step_found found = { .step = step };

	if (!index || (index - 1) * r->ncolumns / r->nsteps != column)
		r->column[column] = step;
	for (size_t i = 0; i < r->ntensors; i++) {
		const uint64_t before = r->tensors[i].ncompared;
		bool differs;

		if (r->tensors[i].where != TSR_BISECT_BOTH)
			continue;
		differs = compare(c, i, step, column);
		if (tsr_is_gradient(r->tensors[i].of)) {
			found.gradients |= r->tensors[i].ncompared > before;
			found.gradients_differ |= differs;
		} else {
			found.states |= r->tensors[i].ncompared > before;
			found.states_differ |= differs;
		}
	}
	return found;
}

/* Whether ranks of a run agree at the step that is loaded. */
static void compare_ranks(const struct tsr_run_side *s, uint64_t step, struct tsr_bisect_ranks *ret)
{
	for (size_t i = 0; i < s->ntensors && !ret->name; i++) {
		const struct tsr_run_tensor *t = &s->tensors[i];

		if (t->twin == SIZE_MAX ||
		    tsr_signature_equal(&s->signatures[i], &s->signatures[t->twin]))
			continue;
		*ret = (struct tsr_bisect_ranks){ .step = step,
						  .rank = t->rank,
						  .other = s->tensors[t->twin].rank,
						  .name = t->is.name,
						  .of = t->is.of };
	}
}

static enum tsr_status compare_steps(struct tsr_comparing *c, const struct tsr_run *run,
				     struct tsr_err *err)
{
	struct tsr_bisect *r = c->result;
	struct tsr_step_found last = { .step = 0 };

	for (size_t i = 0; i < r->nsteps; i++) {
		struct tsr_step_found found;

		for (unsigned k = 0; k < 2; k++) {
			struct tsr_run_side *s = &c->side[k];
			const size_t at = c->steps[i].at[k];

			TSR_TRY(s->kind->load(s, at, run, err));
			compare_ranks(s, s->steps[at], &r->side[k].ranks);
		}
		found = compare_step(c, i);
		if (found.gradients)
			tsr_compare_rates(c, found.step);
		if (r->cause == TSR_BISECT_EQUAL) {
			tsr_judge_step(c, &found, i ? &last : NULL);
			if (r->cause != TSR_BISECT_EQUAL)
				TSR_TRY(tsr_find_elements(c, &c->steps[i], err));
		}
		last = found;
	}
	tsr_judge_rest(c);
	return TSR_OK;
}

/* --- The whole --------------------------------------------------------------------------------- */

struct tsr_bisect_options tsr_bisect_defaults(void)
{
	return (struct tsr_bisect_options){ .size = sizeof(struct tsr_bisect_options) };
}

static enum tsr_status bisect(struct tsr_comparing *c, const char *from, const struct tsr_run *run,
			      struct tsr_err *err)
{
	for (unsigned k = 0; k < 2; k++) {
		struct tsr_run_side *s = &c->side[k];

		s->room = s->ntensors;
		TSR_TRY(TSR_NEW(&s->signatures, s->ntensors + 1, err, s->pub.path));
		TSR_TRY(TSR_NEW(&s->at, s->ntensors + 1, err, s->pub.path));
	}
	TSR_TRY(pair_steps(c, err));
	TSR_TRY(pair_all(c, err));
	tsr_compare_groups(c);
	TSR_TRY(compare_steps(c, run, err));
	return tsr_replay_cause(c, from, run, err);
}

enum tsr_status tsr_bisect(const char *a, const char *b, const struct tsr_bisect_options *options,
			   const struct tsr_run *run, struct tsr_bisect **ret, struct tsr_err *err)
{
	struct tsr_bisect_options o = tsr_bisect_defaults();
	struct tsr_comparing *c;
	enum tsr_status status;

	TSR_TRY(tsr_options_take(&o, options, err));
	TSR_TRY(TSR_NEW(&c, 1, err, a));
	c->result = &c->pub;
	status = tsr_side_open(&c->side[0], a, o.open, err);
	TSR_THEN(status, tsr_side_open(&c->side[1], b, o.open, err));
	TSR_THEN(status, bisect(c, o.from, run, err));
	return TSR_MADE(status, ret, &c->pub, tsr_bisect_free);
}

void tsr_bisect_free(struct tsr_bisect *b)
{
	struct tsr_comparing *c = (struct tsr_comparing *)b;

	if (!c)
		return;
	tsr_replay_free(c->replay);
	tsr_side_close(&c->side[0]);
	tsr_side_close(&c->side[1]);
	free(c->pub.tensors);
	free(c->pairs);
	free(c->steps);
	free(c);
}
