/* SPDX-License-Identifier: Apache-2.0 */
/* States of stepped parameters that no rule of a replay is for: refused, or left as they are and named. */
#include "replay/replay_plan.h"

#include "base/fail.h"
#include "ckpt/build.h"
#include "ckpt/read.h"
#include "names/aliases.h"
#include "text/named.h"

/* --- Refused ---------------------------------------------------------------------------------- */

static enum tsr_status refuse_state(const struct tsr_replaying *r, const struct tsr_tensor *t,
				    const char *what)
{
	return tsr_fail(r->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: is %s; replay has no rule for it", r->c->path, t->name,
			what);
}

static bool is_stepped(const struct tsr_replaying *r, size_t weight)
{
	return weight != SIZE_MAX && r->parameters.of_weight[weight] != SIZE_MAX;
}

/* Refuse what is known to be part of another rule, and would be left as it is. */
static enum tsr_status check_roles(const struct tsr_replaying *r)
{
	for (size_t i = 0; i < r->c->ntensors; i++) {
		const struct tsr_tensor_role *role = &r->parameters.roles[i];

		if (!is_stepped(r, role->weight))
			continue;
		if (role->role == TSR_ROLE_SLOW_MOMENTUM)
			return refuse_state(r, &r->c->tensors[i],
					    "a second momentum, as AdEMAMix keeps one");
		if (role->role == TSR_ROLE_STATE)
			return refuse_state(r, &r->c->tensors[i], "a state of another optimizer");
	}
	return TSR_OK;
}

/* Refuse states that would be stepped as something else. */
static enum tsr_status check_slots(const struct tsr_replaying *r, const struct tsr_parameter *own)
{
	const struct tsr_tensor *slot[TSR_SLOTS] = { NULL };
	const struct tsr_tensor *m, *v;

	for (unsigned i = 0; i < TSR_SLOTS; i++) {
		if (own->tensor[i] != SIZE_MAX)
			slot[i] = &r->c->tensors[own->tensor[i]];
	}
	for (unsigned i = TSR_SLOT_VARIANCE; i < TSR_SLOTS; i++) {
		if (slot[i] && tsr_alias_is_around_mean(slot[i]->name))
			return refuse_state(r, slot[i],
					    "a variance of gradients around their momentum, as "
					    "AdaBelief keeps it");
	}
	m = slot[TSR_SLOT_MOMENTUM];
	v = slot[TSR_SLOT_VARIANCE];
	if (m && m->numel != slot[TSR_SLOT_WEIGHT]->numel)
		return refuse_state(r, m, "two momenta, as AdEMAMix of bitsandbytes keeps them");
	if (m && v && !m->partner && tsr_tensor_has_f32(m) && tsr_tensor_has_f32(v) &&
	    r->result->optimizer != TSR_OPTIMIZER_SOAP)
		return refuse_state(r, m,
				    "a momentum that its variance does not divide, as with "
				    "SOAP, which keeps them in another basis");
	return TSR_OK;
}

enum tsr_status tsr_replay_check_states(const struct tsr_replaying *r)
{
	TSR_TRY(check_roles(r));
	for (size_t i = 0; i < r->nparams; i++)
		TSR_TRY(check_slots(r, &r->parameters.list[i]));
	return TSR_OK;
}

/* --- Left as they are ------------------------------------------------------------------------- */

/* The end of a name comes first, then '.'. */
static int place_of(char c)
{
	return c == '.' ? 1 : c ? (unsigned char)c + 1 : 0;
}

/* "w.exp_avg" right behind "w", before "w-2". */
static int by_components(const void *va, const void *vb)
{
	const char *a = ((const struct tsr_named *)va)->name;
	const char *b = ((const struct tsr_named *)vb)->name;

	while (*a && *a == *b)
		a++, b++;
	return place_of(*a) - place_of(*b);
}

static bool goes_on(const char *name, const char *stem)
{
	const size_t n = strlen(stem);

	return strncmp(name, stem, n) == 0 && name[n] == '.';
}

/* Per tensor, the one whose name its own goes on from, as "w.exp_avg" from "w"; SIZE_MAX: none. */
static enum tsr_status find_stems(const struct tsr_replaying *r, size_t *stem)
{
	const struct tsr_checkpoint *c = r->c;
	TSR_OWNED(free) struct tsr_named *sorted = NULL;
	size_t last = SIZE_MAX;

	TSR_TRY(TSR_NEW(&sorted, c->ntensors + 1, r->err, c->path));
	for (size_t i = 0; i < c->ntensors; i++)
		sorted[i] = (struct tsr_named){ c->tensors[i].name, i };
	qsort(sorted, c->ntensors, sizeof(*sorted), by_components);
	for (const struct tsr_named *at = sorted; at < sorted + c->ntensors; at++) {
		while (last != SIZE_MAX && !goes_on(at->name, c->tensors[last].name))
			last = stem[last];
		stem[at->index] = last;
		if (last == SIZE_MAX || is_stepped(r, at->index))
			last = at->index;
	}
	return TSR_OK;
}

/* Mark the tensors that the steps read or write. */
static void mark_used(const struct tsr_replaying *r, bool *used)
{
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];

		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			if (p->tensor[slot] != SIZE_MAX &&
			    (slot == TSR_SLOT_WEIGHT || p->slots >> slot & 1))
				used[p->tensor[slot]] = true;
		}
		for (unsigned k = 0; k < TSR_BASES; k++) {
			if (p->side[k % 2])
				used[p->basis[k]] = true;
		}
		if (p->counter != SIZE_MAX)
			used[p->counter] = true;
	}
}

/*
 * Whether a tensor that the steps do not use is a state of a stepped parameter, or may be one: nothing says
 * whose it is.  Counters are none, nor is what an optimizer has of a group.
 */
static bool is_left(const struct tsr_replaying *r, size_t i, size_t stem)
{
	const struct tsr_tensor *t = &r->c->tensors[i];
	const struct tsr_tensor_role *role = &r->parameters.roles[i];
	const size_t weight = role->weight == SIZE_MAX ? stem : role->weight;
	const bool floating = tsr_names_is_floating(t->dtype);

	if (role->role == TSR_ROLE_STEP || role->role == TSR_ROLE_SCALAR)
		return false;
	if (weight != SIZE_MAX)
		return is_stepped(r, weight) && (floating || t->numel > 1);
	return role->state && floating && !strstr(t->name, "param_groups.");
}

enum tsr_status tsr_replay_note_states(struct tsr_replaying *r)
{
	const size_t ntensors = r->c->ntensors;
	TSR_OWNED(free) size_t *stem = NULL;
	TSR_OWNED(free) bool *used = NULL;
	const char *first = NULL;
	size_t n = 0;

	TSR_TRY(TSR_NEW(&stem, ntensors + 1, r->err, r->c->path));
	TSR_TRY(TSR_NEW(&used, ntensors + 1, r->err, r->c->path));
	TSR_TRY(find_stems(r, stem));
	mark_used(r, used);
	for (size_t i = 0; i < ntensors; i++) {
		if (used[i] || !is_left(r, i, stem[i]))
			continue;
		first = first ? first : r->c->tensors[i].name;
		n++;
	}
	if (!n)
		return TSR_OK;
	return tsr_build_note(r->c, r->err,
			      "%s: tensor %.200s: is a state that %s does not step: it stays as it "
			      "is, and training that uses it gives another result (%zu in all)",
			      r->c->path, first, tsr_optimizer_name(r->result->optimizer), n);
}
