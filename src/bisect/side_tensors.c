/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of one of two runs. */
#include "bisect/sides.h"

#include "base/fail.h"
#include "base/grow.h"
#include "names/aliases.h"
#include "text/named.h"

enum tsr_status tsr_side_nomem(const struct tsr_run_side *s, struct tsr_err *err)
{
	return tsr_arena_full(s->arena)
		       ? tsr_fail(err, TSR_E_LIMIT, "%s: names take more than 1 GiB of memory",
				  s->pub.path)
		       : tsr_fail_nomem(err, s->pub.path);
}

const char *tsr_side_slot(const char *of)
{
	const struct tsr_alias *alias = tsr_alias_find(of, strlen(of));

	if (!alias)
		return of;
	return alias->role == TSR_ROLE_MOMENTUM	      ? "momentum"
	       : alias->role == TSR_ROLE_VARIANCE     ? "variance"
	       : alias->role == TSR_ROLE_MAX_VARIANCE ? "max_exp_avg_sq"
						      : of;
}

static enum tsr_status check_same(const struct tsr_run_side *s, const struct tsr_run_tensor *was,
				  const struct tsr_signed_tensor *t, struct tsr_err *err)
{
	if (was->is.dtype == t->dtype && was->is.rank == t->rank &&
	    memcmp(was->is.shape, t->shape, t->rank * sizeof(*t->shape)) == 0)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: tensor %.200s: found another shape or type at a later step",
			s->pub.path, t->name);
}

/* An item of the map. */
struct keyed {
	const char *key;
	size_t index;
};

static bool is_keyed(const void *item, const void *key)
{
	return strcmp(((const struct keyed *)item)->key, key) == 0;
}

static enum tsr_status add(struct tsr_run_side *s, const struct tsr_signed_tensor *t, uint64_t rank,
			   struct keyed *item, struct tsr_err *err)
{
	struct tsr_run_tensor added = { .is = *t, .rank = rank, .twin = SIZE_MAX };

	if (s->ntensors == s->room)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: tensor %.200s: was not there when the run was opened",
				s->pub.path, t->name);
	TSR_TRY(TSR_GROW(&s->tensors, s->ntensors, err, s->pub.path));
	added.key = tsr_arena_string(s->arena, item->key);
	added.is.name = tsr_arena_string(s->arena, t->name);
	added.is.of = tsr_arena_string(s->arena, t->of);
	added.is.shape = tsr_arena_dup(s->arena, t->shape, t->rank * sizeof(*t->shape));
	if (!added.key || !added.is.name || !added.is.of || !added.is.shape)
		return tsr_side_nomem(s, err);
	*item = (struct keyed){ added.key, s->ntensors };
	s->tensors[s->ntensors++] = added;
	return TSR_OK;
}

enum tsr_status tsr_side_tensor(struct tsr_run_side *s, const struct tsr_signed_tensor *t,
				uint64_t rank, size_t *index_ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *names = tsr_arena_new(SIZE_MAX);
	const char *name = tsr_names_canonical(names, t->name);
	const char *key = name ? tsr_arena_printf(names, "%s\n%s\n%" PRIu64, name,
						  tsr_side_slot(t->of), rank)
			       : NULL;
	struct keyed *item = NULL;
	struct tsr_run_tensor *was;
	bool is_new;

	s->keys.item_nbytes = sizeof(struct keyed);
	s->keys.same = is_keyed;
	if (key)
		item = tsr_map_put(&s->keys, tsr_map_hash(&s->keys, key, strlen(key), 0), key,
				   &is_new);
	if (!item)
		return tsr_fail_nomem(err, s->pub.path);
	if (is_new) {
		item->key = key;
		TSR_TRY(add(s, t, rank, item, err));
	}
	*index_ret = item->index;
	was = &s->tensors[item->index];
	if (was->pass == s->pass)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: tensors %.200s and %.200s: found two names of one %.60s",
				s->pub.path, was->is.name, t->name, t->of);
	was->pass = s->pass;
	return check_same(s, was, t, err);
}

enum tsr_status tsr_side_keys(const struct tsr_run_side *s, struct tsr_named **ret,
			      struct tsr_err *err)
{
	TSR_TRY(TSR_NEW(ret, s->ntensors + 1, err, s->pub.path));
	for (size_t i = 0; i < s->ntensors; i++)
		(*ret)[i] = (struct tsr_named){ s->tensors[i].key, i };
	tsr_named_sort(*ret, s->ntensors);
	return TSR_OK;
}

bool tsr_is_gradient(const char *of)
{
	return strcmp(of, "gradient") == 0;
}
