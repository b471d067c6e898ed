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

/* What a tensor is to its parameter, in one word for all optimizers that have it. */
static const char *slot_of(const char *of)
{
	const struct tsr_alias *alias = tsr_alias_find(of, strlen(of));

	if (!alias)
		return of;
	return alias->role == TSR_ROLE_MOMENTUM	  ? "momentum"
	       : alias->role == TSR_ROLE_VARIANCE ? "variance"
						  : of;
}

enum tsr_status tsr_side_add(struct tsr_run_side *s, const struct tsr_signed_tensor *t,
			     uint64_t rank, struct tsr_err *err)
{
	struct tsr_run_tensor *tensors = s->tensors, *added;
	char *name;

	if ((s->ntensors & (s->ntensors - 1)) == 0) {
		tensors = realloc(tensors, (s->ntensors ? 2 * s->ntensors : 1) * sizeof(*tensors));
		if (!tensors)
			return tsr_fail_nomem(err, s->pub.path);
		s->tensors = tensors;
	}
	name = tsr_names_canonical(t->name);
	if (!name)
		return tsr_fail_nomem(err, s->pub.path);
	added = &tensors[s->ntensors];
	*added = (struct tsr_run_tensor){ .is = *t, .rank = rank, .twin = SIZE_MAX };
	added->key = tsr_arena_printf(s->arena, "%s\n%s\n%" PRIu64, name, slot_of(t->of), rank);
	added->is.shape = tsr_arena_dup(s->arena, t->shape, t->rank * sizeof(*t->shape));
	free(name);
	if (!added->key || !added->is.shape)
		return tsr_side_nomem(s, err);
	s->ntensors++;
	return TSR_OK;
}
