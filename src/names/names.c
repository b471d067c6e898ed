/* SPDX-License-Identifier: Apache-2.0 */
/* What the tensors of a checkpoint are, by the names that training frameworks give them. */
#include "tersor/names.h"

#include <ctype.h>
#include <regex.h>

#include "base/fail.h"
#include "text/bytes.h"
#include "text/named.h"
#include "ckpt/checkpoint_model.h"
#include "text/shape.h"
#include "names/aliases.h"
#include "names/params/candidate.h"
#include "names/name_rules.h"
#include "names/params/parameters.h"
#include "names/quantized.h"
#include "names/wrappers.h"

/* Components that wrappers put into the names of parameters. */
static const char wrappers[] = "module _orig_mod _checkpoint_wrapped_module _fsdp_wrapped_module";

/* What may stand before the names of a model: its own key, or that of Flax. */
static const char model_keys[] = "model params";

struct assigning {
	struct tsr_checkpoint *c;
	struct tsr_candidate *all; /* one per tensor */
	size_t n;
	/*
	 * Those that may be weights, by canonical name.  The index of a master copy has @n added, so
	 * that it comes behind the model's own weight.
	 */
	struct tsr_named *weights;
	size_t nweights;
	struct tsr_wrappers wrappers;
	struct tsr_arena *arena;
	struct tsr_err *err;
};

/* Behind "prefix" if the name starts with it, else NULL. */
static const char *after(const char *name, const char *prefix)
{
	const size_t len = strlen(prefix);

	return strncmp(name, prefix, len) == 0 ? name + len : NULL;
}

/* Behind "chained_0." and its like, else NULL. */
static const char *after_chained(const char *name)
{
	const char *at = after(name, "chained_");

	if (!at || !isdigit((unsigned char)*at))
		return NULL;
	while (isdigit((unsigned char)*at))
		at++;
	return *at == '.' ? at + 1 : NULL;
}

/* Behind "opt_state.0." and its like, the tree of Optax: numbers and inner states follow; else NULL. */
static const char *after_optax(const char *name)
{
	static const char *const inner[] = { "inner_state.", "inner_opt_state." };
	const char *at = after(name, "opt_state."), *next = at;

	while (next) {
		const size_t digits = strspn(at, "0123456789");

		next = digits && at[digits] == '.' ? at + digits + 1 : NULL;
		for (size_t i = 0; !next && i < sizeof(inner) / sizeof(*inner); i++)
			next = after(at, inner[i]);
		at = next ? next : at;
	}
	return at;
}

/* Skip the prefixes of an optimizer's tree; *inside: whether there were any. */
static const char *strip_roots(const char *name, bool *inside)
{
	static const char *const roots[] = { "optimizer.", "optim.", "state." };

	*inside = false;
	for (;;) {
		const char *at = after_chained(name);

		at = at ? at : after_optax(name);
		for (size_t i = 0; !at && i < sizeof(roots) / sizeof(*roots); i++)
			at = after(name, roots[i]);
		if (!at || !*at)
			return name;
		name = at;
		*inside = true;
	}
}

char *tsr_names_canonical(struct tsr_arena *a, const char *name)
{
	char *out = tsr_arena_string(a, name), *end = out;
	bool leading = true;

	if (!out)
		return NULL;
	while (*name) {
		const char *dot = strchr(name, '.');
		const size_t len = dot ? (size_t)(dot - name) : strlen(name);
		const bool keyed = leading && tsr_word_place(model_keys, name, len) != SIZE_MAX;

		if (!dot || (!keyed && tsr_word_place(wrappers, name, len) == SIZE_MAX)) {
			memcpy(end, name, len);
			end += len;
			if (dot)
				*end++ = '.';
			leading = false;
		}
		name += len + (dot != NULL);
	}
	*end = '\0';
	return out;
}

/* The canonical name of a base or a name; one wrapper is nothing to tell names apart by, several are. */
static char *canonical_of(const struct assigning *a, const struct tsr_candidate *k,
			  const char *name)
{
	char *inner = tsr_names_canonical(a->arena, name);

	if (!inner || !k->wrapper || a->wrappers.n < 2)
		return inner;
	return tsr_arena_printf(a->arena, "%.*s%s", (int)k->wrapper, k->t->name, inner);
}

/* Split a name into base and role.  base stays NULL if the name is not a state's. */
static enum tsr_status parse_name(const struct assigning *a, struct tsr_candidate *k)
{
	const char *inner = k->t->name + k->wrapper;
	const char *name = strip_roots(inner, &k->optimizer);
	const char *last = tsr_names_last(name), *dot = strchr(name, '.');
	const bool rooted = k->optimizer;
	const struct tsr_alias *alias = NULL;

	k->optimizer = rooted || k->t->field;
	if (last > name + 1) {
		const struct tsr_alias *stepped = k->optimizer ? tsr_alias_find_stepped(name, last,
											&k->step)
							       : NULL;

		k->step += stepped ? (size_t)(last - k->t->name) : 0;
		alias = stepped ? stepped : tsr_alias_find(last, strlen(last));
		if (alias)
			k->base = tsr_arena_copy(a->arena, name,
						 (size_t)(last - (stepped ? 3 : 1) - name));
	}
	if (!alias && rooted && dot && dot[1]) {
		alias = tsr_alias_find(name, (size_t)(dot - name));
		if (alias)
			k->base = tsr_arena_string(a->arena, dot + 1);
	}
	if (alias) {
		k->role = alias->role;
		k->weak = alias->weak && !rooted;
		k->factored = alias->factored;
	}
	if (k->optimizer || (alias && !alias->weak))
		k->t->quantized = NULL;
	k->buffer = k->t->quantized || (!alias && tsr_alias_is_buffer(last));
	if (rooted && !k->t->field)
		k->t->field = alias ? alias->component : last;
	if (alias && !k->base)
		return tsr_fail_nomem(a->err, k->t->name);
	k->canonical = canonical_of(a, k, k->base ? k->base : inner);
	return k->canonical ? TSR_OK : tsr_fail_nomem(a->err, k->t->name);
}

/* --- Rules of the user ---------------------------------------------------------------------- */

static enum tsr_status apply_rule(struct assigning *a, const struct tsr_name_rule *rule,
				  bool *matched_ret)
{
	regex_t regex;
	const int failed = regcomp(&regex, rule->regex, REG_EXTENDED | REG_NOSUB);
	size_t nmatches = 0;

	if (failed) {
		char reason[200];

		regerror(failed, &regex, reason, sizeof(reason));
		return tsr_name_rule_fail(rule->regex, reason, a->err);
	}
	for (size_t i = 0; i < a->n; i++) {
		struct tsr_candidate *k = &a->all[i];

		if (regexec(&regex, k->t->name, 0, NULL, 0) != 0)
			continue;
		nmatches++;
		if (k->settled)
			continue;
		k->settled = true;
		k->t->kind = rule->kind;
		k->t->ruled = true;
	}
	regfree(&regex);
	*matched_ret = nmatches != 0;
	return tsr_name_rule_note(a->c, rule->regex, nmatches, a->err);
}

/* --- Joining states to weights --------------------------------------------------------------- */

static bool may_be_weight(const struct tsr_candidate *k)
{
	if (k->settled)
		return k->t->kind == TSR_KIND_WEIGHT;
	if (k->role == TSR_ROLE_MASTER && !k->weak)
		return k->t->rank > 0 && tsr_names_is_floating(k->t->dtype);
	if (k->role != TSR_ROLE_NONE && !k->weak)
		return false;
	return !k->optimizer && (k->t->rank > 0 || k->param) && tsr_names_is_floating(k->t->dtype);
}

static bool is_master(const struct tsr_candidate *k)
{
	return k->role == TSR_ROLE_MASTER;
}

/* A weak alias is also a name of its own: for a weight list it stands under its whole name. */
static enum tsr_status list_weights(struct assigning *a)
{
	TSR_TRY(TSR_TAKE(&a->weights, a->n + 1, a->arena, a->err, a->c->path));
	for (size_t i = 0; i < a->n; i++) {
		const struct tsr_candidate *k = &a->all[i];

		if (may_be_weight(k) && (!k->base || is_master(k)))
			a->weights[a->nweights++] = (struct tsr_named){ k->canonical,
									is_master(k) ? a->n + i
										     : i };
	}
	tsr_named_sort(a->weights, a->nweights);
	return TSR_OK;
}

static struct tsr_candidate *weight_of(const struct assigning *a, const struct tsr_named *entry)
{
	return &a->all[entry->index % a->n];
}

/* The weight that a state's base names, exactly or else without wrappers; NULL if none does. */
static enum tsr_status find_weight(struct assigning *a, const struct tsr_candidate *k,
				   struct tsr_candidate **ret)
{
	/* A base from inside a wrapper is not the name of anything outside. */
	const struct tsr_tensor *exact = k->wrapper ? NULL : tsr_checkpoint_find(a->c, k->base);
	struct tsr_candidate *found = exact ? &a->all[exact - a->c->tensors] : NULL;
	const struct tsr_named *at, *end = a->weights + a->nweights;

	*ret = NULL;
	if (found && may_be_weight(found) && found != k) {
		*ret = found;
		return TSR_OK;
	}
	at = tsr_named_find(a->weights, a->nweights, k->canonical);
	if (!at)
		return TSR_OK;
	*ret = weight_of(a, at);
	if (at + 1 == end || strcmp(at[1].name, at->name) != 0 ||
	    is_master(*ret) != is_master(weight_of(a, at + 1)))
		return TSR_OK;
	return tsr_fail_hint(a->err, TSR_E_FORMAT, TSR_HINT_RULES,
			     "%s: tensor %.200s: ambiguous: belongs to %.200s or to %.200s",
			     a->c->path, k->t->name, (*ret)->t->name,
			     weight_of(a, at + 1)->t->name);
}

static bool is_scalar(const struct tsr_candidate *k)
{
	return k->role == TSR_ROLE_SCALAR || k->role == TSR_ROLE_STEP;
}

/*
 * A state is shaped like its weight; AdEMAMix of bitsandbytes stacks its two momenta in one, SOAP of
 * HeavyBall those of all weights of a shape.
 */
static bool fits(const struct tsr_tensor *t, const struct tsr_tensor *w)
{
	return tsr_tensor_same_shape(t, w) ||
	       (t->rank == w->rank + 1 && (t->shape[0] == 1 || t->shape[0] == 2) &&
		tsr_shape_compare(w->rank, t->shape + 1, w->rank, w->shape) == 0);
}

/* Whether a weak alias counts. */
static bool fits_weak(const struct tsr_candidate *k)
{
	return k->weight &&
	       (fits(k->t, k->weight->t) || k->factored || (is_scalar(k) && k->t->numel <= 1));
}

static enum tsr_status join(struct assigning *a, struct tsr_candidate *k)
{
	const struct tsr_tensor *w;

	TSR_TRY(find_weight(a, k, &k->weight));
	if (k->weak && !fits_weak(k)) {
		k->role = TSR_ROLE_NONE;
		k->weight = NULL;
	}
	/* What is trained is no buffer, whatever it is called. */
	if (k->weight && tsr_candidate_is_state(k)) {
		k->weight->buffer = false;
		k->weight->t->quantized = NULL;
	}
	if (k->weak)
		return TSR_OK;
	if (!k->weight || is_scalar(k) || k->role == TSR_ROLE_STATE || k->t->numel == 0 ||
	    fits(k->t, k->weight->t))
		return TSR_OK;
	w = k->weight->t;
	/* A mean, a factor, a projection, codes or another arrangement is what its optimizer alone knows. */
	if (k->factored || !tsr_names_is_floating(k->t->dtype) || k->t->numel == w->numel ||
	    tsr_shape_is_reduced(k->t->rank, k->t->shape, w->rank, w->shape)) {
		k->role = TSR_ROLE_STATE;
		return TSR_OK;
	}
	return tsr_fail_hint(
		a->err, TSR_E_FORMAT, TSR_HINT_RULES,
		"%s: tensor %.200s: found shape %s, expected %s as its weight %.200s has",
		a->c->path, k->t->name, tsr_shape_words(k->t->rank, k->t->shape).text,
		tsr_shape_words(w->rank, w->shape).text, w->name);
}

/* What is of no kind of its own is TSR_KIND_OTHER. */
static const enum tsr_kind kinds[] = {
	[TSR_ROLE_NONE] = TSR_KIND_WEIGHT,
	[TSR_ROLE_MOMENTUM] = TSR_KIND_MOMENTUM,
	[TSR_ROLE_VARIANCE] = TSR_KIND_VARIANCE,
	[TSR_ROLE_MAX_VARIANCE] = TSR_KIND_VARIANCE,
	[TSR_ROLE_MASTER] = TSR_KIND_WEIGHT,
	[TSR_ROLE_STEP] = TSR_KIND_OTHER,
	[TSR_ROLE_SCALAR] = TSR_KIND_OTHER,
	[TSR_ROLE_STATE] = TSR_KIND_OTHER,
	[TSR_ROLE_SLOW_MOMENTUM] = TSR_KIND_MOMENTUM,
};

static enum tsr_kind kind_by_name(const struct tsr_candidate *k)
{
	return k->role == TSR_ROLE_NONE && (k->optimizer || k->buffer) ? TSR_KIND_OTHER
								       : kinds[k->role];
}

static enum tsr_kind kind_of(const struct tsr_candidate *k)
{
	const bool param = k->param || (k->weight && k->weight->t->rank == 0);

	if ((k->t->rank == 0 && !param) || !tsr_names_is_floating(k->t->dtype))
		return TSR_KIND_OTHER;
	return kind_by_name(k);
}

/*
 * A packed file records its kinds: a name that suggests another one is ignored, but what its name says to be
 * a state and its kind not is one that no kind is known for, as a momentum of another shape was.  What has no
 * dimensions is a weight or a state there if it was a parameter's.
 */
static void settle_packed(struct assigning *a)
{
	for (size_t i = 0; i < a->n; i++) {
		struct tsr_candidate *k = &a->all[i];
		const bool differs = k->t->rank == 0 && k->t->kind != TSR_KIND_OTHER
					     ? kind_by_name(k) != k->t->kind
					     : !k->param && kind_of(k) != k->t->kind;

		if (differs && k->t->rank && k->t->kind == TSR_KIND_OTHER &&
		    tsr_candidate_is_state(k))
			k->role = TSR_ROLE_STATE;
		else
			k->settled = differs;
		k->param = k->param ||
			   (!k->settled && k->t->rank == 0 && k->t->kind == TSR_KIND_WEIGHT);
	}
}

/* Only what an optimizer keeps and no kind is known for has a field. */
static void settle_field(struct tsr_candidate *k)
{
	const bool known = k->role != TSR_ROLE_NONE && k->role != TSR_ROLE_STATE;

	if (k->settled || known || k->t->kind != TSR_KIND_OTHER)
		k->t->field = NULL;
	else if (k->role == TSR_ROLE_STATE && !k->t->field)
		k->t->field = k->t->name + strlen(k->base) + 1;
}

static enum tsr_status assign(struct assigning *a, const struct tsr_name_rule *rules,
			      unsigned nrules, const bool *params, struct tsr_parameters *p)
{
	TSR_TRY(tsr_quantized_find(a->c, a->err));
	TSR_TRY(tsr_wrappers_find(a->c, a->arena, &a->wrappers, a->err));
	for (size_t i = 0; i < a->n; i++) {
		struct tsr_candidate *k = &a->all[i];

		k->t = &a->c->tensors[i];
		k->t->partner = 0;
		k->wrapper = tsr_wrappers_len(&a->wrappers, k->t->name);
		TSR_TRY(parse_name(a, k));
		k->param = params && params[i] && k->role == TSR_ROLE_NONE;
	}
	a->c->rules_matched = nrules ? tsr_arena_alloc(a->c->arena, nrules) : NULL;
	if (nrules && !a->c->rules_matched)
		return tsr_build_nomem(a->c, a->err);
	for (unsigned i = 0; i < nrules; i++)
		TSR_TRY(apply_rule(a, &rules[i], &a->c->rules_matched[i]));
	if (a->c->packed)
		settle_packed(a);
	TSR_TRY(list_weights(a));
	for (size_t i = 0; i < a->n; i++) {
		if (!a->all[i].settled && a->all[i].base &&
		    !(is_master(&a->all[i]) && !a->all[i].weak))
			TSR_TRY(join(a, &a->all[i]));
	}
	TSR_TRY(tsr_parameters_join(p, a->all, a->err));
	for (size_t i = 0; i < a->n; i++) {
		struct tsr_candidate *k = &a->all[i];

		if (k->settled) {
			settle_field(k);
			continue;
		}
		if (!a->c->packed || k->param || (k->weight && k->weight->param))
			k->t->kind = kind_of(k);
		if ((tsr_candidate_is_state(k) || k->role == TSR_ROLE_SLOW_MOMENTUM) && k->weight &&
		    k->t->kind != TSR_KIND_OTHER)
			k->t->weight = k->weight->t->name;
		settle_field(k);
	}
	return TSR_OK;
}

/* --- Roles ------------------------------------------------------------------------------------ */

static enum tsr_status tell_roles(struct assigning *a, struct tsr_parameters *p)
{
	for (size_t i = 0; i < a->n; i++) {
		struct tsr_candidate *k = &a->all[i];
		const enum tsr_role role = k->settled ? TSR_ROLE_NONE : k->role;
		size_t weight;

		if (k->settled && k->weak)
			TSR_TRY(join(a, k));
		if (role == TSR_ROLE_MASTER)
			TSR_TRY(find_weight(a, k, &k->weight));
		weight = k->weight && k->weight != k ? (size_t)(k->weight - a->all) : SIZE_MAX;
		p->roles[i] = (struct tsr_tensor_role){ role,
							k->optimizer || k->role != TSR_ROLE_NONE,
							weight };
		if (weight != SIZE_MAX && role == TSR_ROLE_MASTER)
			p->list[weight].master = i;
		if (weight != SIZE_MAX && role == TSR_ROLE_STEP)
			p->list[weight].counter = i;
	}
	return TSR_OK;
}

enum tsr_status tsr_names_fill(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
			       unsigned nrules, const bool *params, struct tsr_parameters *p,
			       struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct assigning a = { .c = c, .n = c->ntensors, .arena = arena, .err = err };

	TSR_TRY(tsr_parameters_init(p, c, err));
	TSR_TRY(TSR_TAKE(&a.all, a.n + 1, arena, err, c->path));
	TSR_TRY(assign(&a, rules, c->packed ? 0 : nrules, params, p));
	return tell_roles(&a, p);
}

enum tsr_status tsr_names_assign(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				 unsigned nrules, struct tsr_err *err)
{
	TSR_SCOPED(tsr_parameters_free) struct tsr_parameters p = { .n = 0 };

	if (c->packed)
		return tsr_quantized_find(c, err);
	return tsr_names_fill(c, rules, nrules, NULL, &p, err);
}
