/* SPDX-License-Identifier: Apache-2.0 */
/* Which state of Gefen's optimizer belongs to which parameter. */
#include "names/optimizer_ids.h"

#include <ctype.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "text/named.h"

/* The array of the codes of an id, which has as many elements as its parameter; or SIZE_MAX. */
static size_t codes_of(const struct tsr_optim_id *id)
{
	const struct tsr_value *v = id->state ? tsr_value_at(id->state, "m_codebook") : NULL;

	return v && v->type == TSR_VALUE_TENSOR ? v->tensor.array : SIZE_MAX;
}

static bool fits(const struct tsr_checkpoint *c, const struct tsr_optim_id *id,
		 const struct tsr_param *param)
{
	const size_t codes = codes_of(id);

	return codes == SIZE_MAX || c->arrays[codes].numel == c->arrays[param->array].numel;
}

/* Each group is one parameter, and one at least has codes. */
static bool is_gefen(const struct tsr_optim *o)
{
	bool any = false;

	for (size_t i = 0; i < o->nids; i++)
		any = any || codes_of(&o->ids[i]) != SIZE_MAX;
	return any && o->groups->list.n == o->nids;
}

/* The parameters by their names in lower case, sorted, in memory that the caller frees. */
static enum tsr_status sort_lower(struct tsr_checkpoint *c, const struct tsr_param *params,
				  size_t nparams, struct tsr_named **ret, struct tsr_err *err)
{
	struct tsr_named *sorted;

	TSR_TRY(TSR_NEW(&sorted, nparams + 1, err, c->path));
	*ret = sorted;
	for (size_t i = 0; i < nparams; i++) {
		char *lower = tsr_arena_string(c->arena, params[i].name);

		if (!lower)
			return tsr_build_nomem(c, err);
		for (char *at = lower; *at; at++)
			*at = (char)tolower((unsigned char)*at);
		sorted[i] = (struct tsr_named){ lower, i };
	}
	tsr_named_sort(sorted, nparams);
	return TSR_OK;
}

/* The one parameter that a group's name is for, or SIZE_MAX. */
static size_t named_by(const struct tsr_optim *o, const struct tsr_optim_id *id,
		       const struct tsr_named *sorted, size_t nparams)
{
	const struct tsr_value *name = tsr_value_at(o->groups->list.items[id->group], "name");
	const struct tsr_named *found;

	if (!name || name->type != TSR_VALUE_STRING)
		return SIZE_MAX;
	found = tsr_named_find(sorted, nparams, name->text.bytes);
	if (!found || (found + 1 < sorted + nparams && strcmp(found[1].name, found->name) == 0))
		return SIZE_MAX;
	return found->index;
}

/* Give the ids their names; @sorted: by those of their groups, or NULL: by position. */
static bool join_all(const struct tsr_checkpoint *c, struct tsr_optim *o,
		     const struct tsr_param *params, size_t nparams, const struct tsr_named *sorted)
{
	for (size_t pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < o->nids; i++) {
			const size_t at = sorted ? named_by(o, &o->ids[i], sorted, nparams) : i;

			if (at >= nparams || !fits(c, &o->ids[i], &params[at]))
				return false;
			if (pass)
				o->ids[i].name = params[at].name;
		}
	}
	return true;
}

enum tsr_status tsr_gefen_join(struct tsr_checkpoint *c, struct tsr_optim *o,
			       const struct tsr_param *params, size_t nparams, bool ordered,
			       bool *joined_ret, struct tsr_err *err)
{
	TSR_OWNED(free) struct tsr_named *sorted = NULL;

	*joined_ret = false;
	if (!is_gefen(o))
		return TSR_OK;
	TSR_TRY(sort_lower(c, params, nparams, &sorted, err));
	*joined_ret = join_all(c, o, params, nparams, sorted) ||
		      (ordered && o->nids == nparams && join_all(c, o, params, nparams, NULL));
	return TSR_OK;
}
