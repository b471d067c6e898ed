/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements of a tensor differ, where both runs have its values. */
#include "bisect/comparing.h"

#include "base/fail.h"
#include "ckpt/read.h"
#include "codec/math.h"

/* Elements that are read at once. */
#define PIECE 16384u

static enum tsr_status compare_tensor(const struct tsr_run_side *a, const struct tsr_run_side *b,
				      const struct tsr_pair *pair, struct tsr_bisect_tensor *ret,
				      struct tsr_err *err)
{
	const struct tsr_tensor *ta = a->at[pair->at[0]], *tb = b->at[pair->at[1]];
	float xa[PIECE], xb[PIECE];

	if (!ta || !tb || !tsr_tensor_has_f32(ta) || !tsr_tensor_has_f32(tb) ||
	    ta->numel != tb->numel)
		return TSR_OK;
	for (uint64_t at = 0; at < ta->numel; at += PIECE) {
		const size_t n = (size_t)(ta->numel - at < PIECE ? ta->numel - at : PIECE);

		TSR_TRY(tsr_checkpoint_read_f32(a->current, ta, at, n, xa, err));
		TSR_TRY(tsr_checkpoint_read_f32(b->current, tb, at, n, xb, err));
		for (size_t i = 0; i < n; i++) {
			if (tsr_bits_from_f32(xa[i]) == tsr_bits_from_f32(xb[i]) ||
			    ret->nelements++)
				continue;
			ret->element = at + i;
			ret->value[0] = (double)xa[i];
			ret->value[1] = (double)xb[i];
		}
	}
	return TSR_OK;
}

enum tsr_status tsr_find_elements(struct tsr_comparing *c, const struct tsr_pair *step,
				  struct tsr_err *err)
{
	struct tsr_bisect *r = c->result;

	for (unsigned k = 0; k < 2; k++) {
		if (c->side[k].kind->values)
			TSR_TRY(c->side[k].kind->values(&c->side[k], step->at[k], err));
		if (!c->side[k].current)
			return TSR_OK;
	}
	for (size_t i = 0; i < r->ntensors; i++) {
		struct tsr_bisect_tensor *t = &r->tensors[i];

		if (t->ndiffering && t->first_step == r->step)
			TSR_TRY(compare_tensor(&c->side[0], &c->side[1], &c->pairs[i], t, err));
	}
	return TSR_OK;
}
