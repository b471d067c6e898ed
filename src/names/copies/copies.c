/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of a checkpoint that are copies of others: masters, and averages such as an EMA.  A
 * parameter is counted once, however often it is stored; docs/reading.md says what counts as a copy.
 */
#include "names/copies/copies.h"

#include <ctype.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "io/hash.h"
#include "names/aliases.h"
#include "text/bytes.h"
#include "text/named.h"

struct finding {
	const struct tsr_checkpoint *c;
	struct tsr_copies *s;
	bool tree; /* whether it is known which tensors are the model's */
	uint64_t nmodel; /* elements of the model's weights */
	const char **canonical; /* per tensor that is a weight */
	struct tsr_named *own; /* weights that others can be copies of, by canonical name */
	size_t nown;
	struct tsr_named *groups; /* weights outside the model in lists, by the name of the list */
	size_t ngroups;
	struct tsr_arena *arena;
	struct tsr_err *err;
};

/* Keys under which programs keep a second set of weights. */
static bool is_copy_key(const char *name)
{
	static const char keys[] = "ema model_ema ema_model ema_state_dict shadow shadow_params "
				   "averaged_model swa swa_model master master_params "
				   "master_weights fp32_params";

	return tsr_word_place(keys, name, strcspn(name, ".")) != SIZE_MAX;
}

/* The last component if it says that the tensor is a master, or NULL. */
static const char *master_alias(const char *name)
{
	const char *last = tsr_names_last(name);
	const struct tsr_alias *alias;

	alias = last > name ? tsr_alias_find(last, strlen(last)) : NULL;
	return alias && alias->role == TSR_ROLE_MASTER ? last : NULL;
}

static void count(struct tsr_copies *s, uint64_t nelements, const char *where)
{
	unsigned i = 0;

	s->nelements += nelements;
	while (i < s->nplaces && strcmp(s->places[i].name, where) != 0)
		i++;
	if (i == TSR_COPIES_MAX)
		return;
	if (i == s->nplaces) {
		snprintf(s->places[i].name, sizeof(s->places[i].name), "%s", where);
		s->places[i].nelements = 0;
		s->nplaces++;
	}
	s->places[i].nelements += nelements;
}

/* Whether a weight of the model has this canonical name and the shape of @t. */
static bool is_own(const struct finding *f, const char *canonical, const struct tsr_tensor *t)
{
	const struct tsr_named *found = tsr_named_find(f->own, f->nown, canonical);
	const struct tsr_tensor *w = found ? &f->c->tensors[found->index] : NULL;

	return w && w != t && tsr_tensor_same_shape(w, t);
}

/* Whether the end of a name is that of a weight of the model. */
static bool ends_like_own(const struct finding *f, const char *canonical,
			  const struct tsr_tensor *t)
{
	for (const char *at = strchr(canonical, '.'); at; at = strchr(at + 1, '.')) {
		if (is_own(f, at + 1, t))
			return true;
	}
	return false;
}

/* W.master_param beside W, or the same below the root of an optimizer. */
static enum tsr_status is_master(const struct finding *f, const struct tsr_tensor *t, bool *is_ret,
				 char where[64])
{
	const char *alias = master_alias(t->name), *base, *canonical;

	*is_ret = false;
	if (!alias)
		return TSR_OK;
	base = tsr_arena_copy(f->arena, t->name, (size_t)(alias - 1 - t->name));
	canonical = base ? tsr_names_canonical(f->arena, base) : NULL;
	if (!canonical)
		return tsr_fail_nomem(f->err, f->c->path);
	*is_ret = is_own(f, canonical, t) || ends_like_own(f, canonical, t);
	snprintf(where, 64, "*.%.40s", alias);
	return TSR_OK;
}

/* How long the name is without numbers at its end. */
static size_t without_numbers(const char *name)
{
	size_t n = strlen(name), end = n;

	while (end) {
		while (end && isdigit((unsigned char)name[end - 1]))
			end--;
		if (end == n || !end || name[end - 1] != '.')
			break;
		n = --end;
	}
	return n;
}

static enum tsr_status find_copy(struct finding *f, size_t i)
{
	const struct tsr_tensor *t = &f->c->tensors[i];
	const size_t len = without_numbers(t->name);
	char where[64];
	bool is;

	TSR_TRY(is_master(f, t, &is, where));
	if (!is && (f->tree ? !t->model : is_copy_key(t->name)) &&
	    ends_like_own(f, f->canonical[i], t)) {
		const size_t first = strcspn(t->name, ".");

		snprintf(where, sizeof(where), "%.*s.*", (int)(first < 40 ? first : 40), t->name);
		is = true;
	}
	if (!is && t->narrow) {
		snprintf(where, sizeof(where), "%.*s.*", (int)(len < 40 ? len : 40), t->name);
		is = true;
	}
	if (is)
		count(f->s, t->numel, where);
	if (is || !f->tree || t->model || !t->name[len])
		return TSR_OK;
	f->groups[f->ngroups] = (struct tsr_named){ tsr_arena_copy(f->arena, t->name, len), i };
	return f->groups[f->ngroups++].name ? TSR_OK : tsr_fail_nomem(f->err, f->c->path);
}

/* Whether an earlier checkpoint had weights of these names and shapes: then the model is a copy of it. */
static bool is_again(struct finding *f)
{
	struct tsr_copies *s = f->s;
	uint64_t id = 0;

	for (size_t i = 0; i < f->nown; i++) {
		const struct tsr_tensor *t = &f->c->tensors[f->own[i].index];
		const char *name = f->own[i].name;

		id += tsr_hash(name, strlen(name),
			       tsr_hash(t->shape, t->rank * sizeof(*t->shape), 0));
	}
	for (unsigned i = 0; i < s->nmodels; i++) {
		if (s->models[i] == id)
			return true;
	}
	if (f->nmodel && s->nmodels < TSR_COPIES_MODELS_MAX)
		s->models[s->nmodels++] = id;
	return false;
}

/* Lists outside the model with as many elements as it has, as flat partitions are. */
static void count_groups(struct finding *f)
{
	for (size_t first = 0, end; first < f->ngroups; first = end) {
		const char *name = f->groups[first].name;
		uint64_t n = 0;
		char where[64];

		for (end = first; end < f->ngroups && strcmp(f->groups[end].name, name) == 0; end++)
			n += f->c->tensors[f->groups[end].index].numel;
		snprintf(where, sizeof(where), "%.60s.*", name);
		for (size_t i = first; n == f->nmodel && i < end; i++)
			count(f->s, f->c->tensors[f->groups[i].index].numel, where);
	}
}

static enum tsr_status find(struct finding *f)
{
	const struct tsr_checkpoint *c = f->c;
	uint64_t masters = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		f->tree = f->tree || c->tensors[i].model;
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		if (t->kind != TSR_KIND_WEIGHT)
			continue;
		f->canonical[i] = tsr_names_canonical(f->arena, t->name);
		if (!f->canonical[i])
			return tsr_fail_nomem(f->err, c->path);
		if (f->tree ? !t->model : master_alias(t->name) || is_copy_key(t->name)) {
			masters += master_alias(t->name) ? t->numel : 0;
			continue;
		}
		f->own[f->nown++] = (struct tsr_named){ f->canonical[i], i };
		if (!f->tree && t->rank == 1 && t->name[without_numbers(t->name)])
			f->s->nlisted += t->numel;
		else
			f->nmodel += t->numel;
	}
	if (!f->nown) /* an optimizer's file: they are of the model in another one */
		f->s->nlisted += masters;
	tsr_named_sort(f->own, f->nown);
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->tensors[i].kind == TSR_KIND_WEIGHT)
			TSR_TRY(find_copy(f, i));
	}
	tsr_named_sort(f->groups, f->ngroups);
	count_groups(f);
	/* Other parts of the same parameters have their names and shapes, and are no copies. */
	if (f->nmodel && !c->nparts && is_again(f))
		count(f->s, f->nmodel, "another file");
	else
		f->s->nmodel += f->nmodel;
	return TSR_OK;
}

void tsr_copies_add_flat(struct tsr_copies *s)
{
	if (s->nmodel && s->nlisted >= s->nmodel && s->nlisted - s->nmodel <= s->nmodel / 100)
		count(s, s->nlisted, "masters of a model in another file");
}

enum tsr_status tsr_copies_add(struct tsr_copies *s, const struct tsr_checkpoint *c,
			       struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct finding f = { .c = c, .s = s, .arena = arena, .err = err };
	const size_t n = c->ntensors + 1;

	TSR_TRY(TSR_TAKE(&f.canonical, n, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&f.own, n, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&f.groups, n, arena, err, c->path));
	return find(&f);
}
