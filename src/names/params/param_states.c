/* SPDX-License-Identifier: Apache-2.0 */
/* The states of each parameter: one of a role, and a momentum with the variance that it is divided by. */
#include "names/params/parameters.h"

#include "names/aliases.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "names/params/candidate.h"
#include "text/named.h"

struct joining {
	struct tsr_parameters *p;
	struct tsr_candidate *all; /* one per tensor */
	size_t *next_factor;
	struct tsr_err *err;
};

enum tsr_status tsr_parameters_init(struct tsr_parameters *p, struct tsr_checkpoint *c,
				    struct tsr_err *err)
{
	p->c = c;
	p->n = c->ntensors;
	p->stray_state = false;
	if (!p->arena) {
		p->arena = tsr_arena_new(SIZE_MAX);
		TSR_TRY(TSR_TAKE(&p->list, p->n + 1, p->arena, err, c->path));
		TSR_TRY(TSR_TAKE(&p->roles, p->n + 1, p->arena, err, c->path));
		TSR_TRY(TSR_TAKE(&p->is_param, p->n + 1, p->arena, err, c->path));
	}
	for (size_t i = 0; i < p->n; i++)
		p->list[i] = (struct tsr_parameter){ { i, SIZE_MAX, SIZE_MAX, SIZE_MAX },
						     .counter = SIZE_MAX,
						     .master = SIZE_MAX };
	return TSR_OK;
}

void tsr_parameters_free(struct tsr_parameters *p)
{
	tsr_arena_free(p->arena);
}

/* --- One state of a role ---------------------------------------------------------------------- */

/* States go to their weight; those without one by their base, to the first that has it. */
static enum tsr_status find_parameters(const struct joining *j)
{
	const size_t n = j->p->c->ntensors;
	TSR_OWNED(free) struct tsr_named *strays = NULL;
	size_t nstrays = 0;

	TSR_TRY(TSR_NEW(&strays, n + 1, j->err, j->p->c->path));
	for (size_t i = 0; i < n; i++) {
		struct tsr_candidate *k = &j->all[i];

		if (!tsr_candidate_is_state(k))
			continue;
		if (k->weight)
			k->parameter = (size_t)(k->weight - j->all);
		else
			strays[nstrays++] = (struct tsr_named){ k->canonical, i };
	}
	tsr_named_sort(strays, nstrays);
	for (size_t i = 0; i < nstrays; i++) {
		const bool again = i && strcmp(strays[i].name, strays[i - 1].name) == 0;

		j->all[strays[i].index].parameter = again ? j->all[strays[i - 1].index].parameter
							  : strays[i].index;
	}
	return TSR_OK;
}

static size_t *slot_of(struct tsr_parameter *p, enum tsr_role role)
{
	if (role == TSR_ROLE_MAX_VARIANCE)
		return &p->tensor[TSR_SLOT_MAX_VARIANCE];
	return &p->tensor[role == TSR_ROLE_MOMENTUM ? TSR_SLOT_MOMENTUM : TSR_SLOT_VARIANCE];
}

/* Whether two states are of one step of a chain, or of an optimizer without such steps. */
static bool is_same_step(const struct tsr_candidate *a, const struct tsr_candidate *b)
{
	return a->step == b->step && strncmp(a->t->name, b->t->name, a->step) == 0;
}

/* Of the states that several steps have of a role, one is it: the momentum of the variance's step. */
static void choose(const struct joining *j, size_t i, size_t *slot)
{
	const size_t variance = j->p->list[j->all[i].parameter].tensor[TSR_SLOT_VARIANCE];
	const bool better = j->all[i].role == TSR_ROLE_MOMENTUM && variance != SIZE_MAX &&
			    is_same_step(&j->all[i], &j->all[variance]);

	j->all[better ? *slot : i].role = TSR_ROLE_STATE;
	*slot = better ? i : *slot;
}

static enum tsr_status add_state(const struct joining *j, size_t i)
{
	const struct tsr_candidate *k = &j->all[i], *other;
	size_t *slot = slot_of(&j->p->list[k->parameter], k->role);

	if (*slot == SIZE_MAX) {
		*slot = i;
		return TSR_OK;
	}
	other = &j->all[*slot];
	if (k->step && other->step) {
		choose(j, i, slot);
		return TSR_OK;
	}
	if (strcmp(other->t->name, k->t->name) > 0) {
		other = k;
		k = &j->all[*slot];
	}
	return tsr_fail_hint(j->err, TSR_E_FORMAT, TSR_HINT_RULES,
			     "%s: tensor %.200s: ambiguous: %.200s is also the %s of %.200s",
			     j->p->c->path, k->t->name, other->t->name,
			     k->role == TSR_ROLE_MOMENTUM ? "momentum" : "variance",
			     k->weight ? k->weight->t->name : k->base);
}

/* --- What they are divided by ----------------------------------------------------------------- */

/* The bytes of the name of a state that those of its parameter's other states begin with. */
static size_t stem_of(const struct tsr_tensor *t)
{
	const char *dot = strrchr(t->name, '.');

	return dot ? (size_t)(dot - t->name) + 1 : 0;
}

/* Number @at of the tensors by name, if it has this stem too; or NULL. */
static const struct tsr_candidate *sibling(const struct joining *j, const struct tsr_tensor *t,
					   size_t at)
{
	const struct tsr_checkpoint *c = j->p->c;
	const size_t stem = stem_of(t), i = at < c->ntensors ? c->tensor_by_name[at] : SIZE_MAX;

	return stem && i != SIZE_MAX && strncmp(c->tensors[i].name, t->name, stem) == 0 ? &j->all[i]
											: NULL;
}

/* Per place in the names, and one more: that of the next factor. */
static enum tsr_status find_factors(struct joining *j)
{
	const struct tsr_checkpoint *c = j->p->c;
	size_t next = SIZE_MAX;

	TSR_TRY(TSR_NEW(&j->next_factor, c->ntensors + 1, j->err, c->path));
	for (size_t at = c->ntensors + 1; at-- > 0;) {
		if (at < c->ntensors && tsr_alias_is_factor(&c->tensors[c->tensor_by_name[at]]))
			next = at;
		j->next_factor[at] = next;
	}
	return TSR_OK;
}

static bool has_factor(const struct joining *j, const struct tsr_tensor *t)
{
	return sibling(j, t, j->next_factor[tsr_checkpoint_from(j->p->c, t->name, stem_of(t))]);
}

/* Another state of this shape whose name says nothing. */
static bool has_unknown(const struct joining *j, const struct tsr_tensor *t)
{
	const struct tsr_candidate *k;
	size_t at = tsr_checkpoint_from(j->p->c, t->name, stem_of(t));

	while ((k = sibling(j, t, at++)) != NULL) {
		if (k->role == TSR_ROLE_NONE && tsr_tensor_same_shape(k->t, t))
			return true;
	}
	return false;
}

/*
 * What an optimizer with an eps divides by: state1 alone of Adagrad and RMSprop of bitsandbytes (Lion has no
 * eps), and m beside another state that is no variance, as KATE has it.
 */
static bool is_denominator(const struct joining *j, const struct tsr_tensor *t)
{
	const char *dot = strrchr(t->name, '.');

	if (j->p->c->eps <= 0 || !dot)
		return false;
	return strcmp(dot, ".state1") == 0 ||
	       ((strcmp(dot, ".m") == 0 || strcmp(dot, ".mu") == 0) && has_unknown(j, t));
}

/*
 * A momentum comes before the variance that its elements are divided by: AMSGrad divides by its second
 * variance.  Only a packed file says itself which variance a momentum is stored beside.
 */
static void pair(const struct joining *j, struct tsr_parameter *p)
{
	struct tsr_tensor *all = j->p->c->tensors, *m = &all[p->tensor[TSR_SLOT_MOMENTUM]], *v;
	const size_t variance = p->tensor[TSR_SLOT_VARIANCE];
	const size_t max = p->tensor[TSR_SLOT_MAX_VARIANCE];
	const size_t last = max != SIZE_MAX ? max : variance;

	/* SOAP's are in different bases: a momentum is not divided by the elements of its variance. */
	if (has_factor(j, m) ||
	    (variance != SIZE_MAX && !is_same_step(&j->all[m - all], &j->all[variance])))
		return;
	if (variance != SIZE_MAX && !j->p->c->packed && tsr_tensor_same_shape(m, &all[variance]))
		m->beside = all[variance].name;
	if (last == SIZE_MAX && is_denominator(j, m)) {
		j->all[m - all].role = TSR_ROLE_STATE;
		p->tensor[TSR_SLOT_MOMENTUM] = SIZE_MAX;
	}
	v = last == SIZE_MAX ? NULL : &all[last];
	if (!v || m->numel != v->numel || !tsr_tensor_has_f32(m) || !tsr_tensor_has_f32(v))
		return;
	m->partner = last + 1;
	v->partner = (size_t)(m - all) + 1;
}

static void free_joining(struct joining *j)
{
	free(j->next_factor);
}

enum tsr_status tsr_parameters_join(struct tsr_parameters *p, struct tsr_candidate *all,
				    struct tsr_err *err)
{
	TSR_SCOPED(free_joining) struct joining j = { .p = p, .all = all, .err = err };

	TSR_TRY(find_parameters(&j));
	TSR_TRY(find_factors(&j));
	for (unsigned momenta = 0; momenta < 2; momenta++) {
		for (size_t i = 0; i < p->n; i++) {
			if (tsr_candidate_is_state(&all[i]) &&
			    (all[i].role == TSR_ROLE_MOMENTUM) == momenta)
				TSR_TRY(add_state(&j, i));
		}
	}
	for (size_t i = 0; i < p->n; i++) {
		if (p->list[i].tensor[TSR_SLOT_MOMENTUM] != SIZE_MAX)
			pair(&j, &p->list[i]);
	}
	for (size_t i = 0; i < p->n; i++)
		p->stray_state |= tsr_candidate_is_state(&all[i]) && !all[i].weight &&
				  all[i].role != TSR_ROLE_MAX_VARIANCE;
	return TSR_OK;
}
