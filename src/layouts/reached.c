/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping the arrays of files whose parts became other arrays. */
#include "layouts/folder.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "format/value_walk.h"

/* Mark the arrays from @first on that the value has; once they have new numbers, give it these. */
static void visit(struct tsr_value *root, size_t first, size_t *number, bool renumber)
{
	struct tsr_value_walk walk = { .root = root,
				       .mark = renumber ? TSR_MARK_NUMBERED : TSR_MARK_KEPT };
	struct tsr_value *v;

	while ((v = tsr_value_walk_next(&walk)) != NULL) {
		if (v->type != TSR_VALUE_TENSOR || v->tensor.array < first)
			continue;
		if (renumber)
			v->tensor.array = number[v->tensor.array - first];
		else
			number[v->tensor.array - first] = 1;
	}
}

enum tsr_status tsr_keep_reached(struct tsr_checkpoint *c, size_t first, struct tsr_value *root,
				 struct tsr_err *err)
{
	TSR_OWNED(free) size_t *number = NULL;
	size_t kept = first;

	TSR_TRY(TSR_NEW(&number, c->narrays - first + 1, err, c->path));
	TSR_TRY(tsr_value_check(root, c->path, err));
	visit(root, first, number, false);
	for (size_t i = first; i < c->narrays; i++) {
		if (!number[i - first])
			continue;
		number[i - first] = kept;
		c->arrays[kept++] = c->arrays[i];
	}
	visit(root, first, number, true);
	c->narrays = kept;
	return TSR_OK;
}
