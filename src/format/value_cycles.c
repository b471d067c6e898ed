/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that contain themselves, as trees whose nodes know their parents do: a pickle puts the object
 * into its memo before it gives it items and state, which may then name it.
 */
#include "format/value.h"

/* What `scratch` of a value says, which is 0 before. */
enum { MAKING = 1, FILLING, LEFT };

/* A value that was made already, in a place of a list. */
static bool cut(struct tsr_arena *a, struct tsr_value **place)
{
	struct tsr_value *back;

	if ((*place)->type != TSR_VALUE_CALL || *tsr_value_scratch(*place) != FILLING)
		return true;
	back = tsr_value_new(a, TSR_VALUE_BACK);
	if (!back)
		return false;
	back->object = *place;
	*place = back;
	return true;
}

/* False: no more room, or deeper than a graph may be, which tsr_value_check() says. */
static bool cut_below(struct tsr_arena *a, struct tsr_value *v, unsigned depth, bool *nomem)
{
	const size_t n = tsr_value_nchildren(v);

	if (n && depth == TSR_VALUE_DEPTH_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		struct tsr_value *child = tsr_value_child(v, i);

		if (v->type == TSR_VALUE_CALL)
			v->scratch = i < TSR_VALUE_CALL_ITEMS ? MAKING : FILLING;
		else
			v->scratch = MAKING;
		if (!child)
			continue;
		if (!child->scratch && !cut_below(a, child, depth + 1, nomem))
			return false;
		if (tsr_value_is_list(v) && !cut(a, &v->list.items[i])) {
			*nomem = true;
			return false;
		}
	}
	v->scratch = n ? LEFT : 0;
	return true;
}

bool tsr_value_cut_cycles(struct tsr_arena *a, struct tsr_value *root)
{
	bool nomem = false;

	cut_below(a, root, 0, &nomem);
	tsr_value_clear_scratch(root);
	return !nomem;
}
