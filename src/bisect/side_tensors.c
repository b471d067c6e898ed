/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of one of two runs. */
#include "bisect/sides.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "names/aliases.h"

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
	return alias->role == TSR_ROLE_MOMENTUM	  ? "momentum"
	       : alias->role == TSR_ROLE_VARIANCE ? "variance"
						  : of;
}

static enum tsr_status grow(struct tsr_run_side *s, struct tsr_err *err)
{
	struct tsr_run_tensor *tensors;

	if (s->ntensors & (s->ntensors - 1))
		return TSR_OK;
	tensors = realloc(s->tensors, (s->ntensors ? 2 * s->ntensors : 1) * sizeof(*tensors));
	if (!tensors)
		return tsr_fail_nomem(err, s->pub.path);
	s->tensors = tensors;
	return TSR_OK;
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

enum tsr_status tsr_side_tensor(struct tsr_run_side *s, const struct tsr_signed_tensor *t,
				uint64_t rank, bool new, size_t *index_ret, struct tsr_err *err)
{
	struct tsr_run_tensor added = { .is = *t, .rank = rank, .twin = SIZE_MAX };
	const char *name = tsr_names_canonical(s->arena, t->name);

	added.key = name ? tsr_arena_printf(s->arena, "%s\n%s\n%" PRIu64, name,
					    tsr_side_slot(t->of), rank)
			 : NULL;
	if (!added.key)
		return tsr_side_nomem(s, err);
	if (!tsr_text_number(&s->keys, added.key, strlen(added.key), index_ret))
		return tsr_fail_nomem(err, s->pub.path);
	if (*index_ret < s->ntensors && new)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: tensors %.200s and %.200s: found two names of one %.60s",
				s->pub.path, s->tensors[*index_ret].is.name, t->name, t->of);
	if (*index_ret < s->ntensors)
		return check_same(s, &s->tensors[*index_ret], t, err);
	TSR_TRY(grow(s, err));
	added.is.name = tsr_arena_copy(s->arena, t->name, strlen(t->name));
	added.is.of = tsr_arena_copy(s->arena, t->of, strlen(t->of));
	added.is.shape = tsr_arena_dup(s->arena, t->shape, t->rank * sizeof(*t->shape));
	if (!added.is.name || !added.is.of || !added.is.shape)
		return tsr_side_nomem(s, err);
	s->tensors[s->ntensors++] = added;
	return TSR_OK;
}

bool tsr_is_gradient(const char *of)
{
	return strcmp(of, "gradient") == 0;
}
