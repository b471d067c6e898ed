/* SPDX-License-Identifier: Apache-2.0 */
/* What a user of the library sees of a verification and a comparison. */
#include "compare/comparison.h"

#include "ckpt/checkpoint_model.h"

const struct tsr_checkpoint *tsr_verification_checked(const struct tsr_verification *v)
{
	return v->checked;
}

const struct tsr_verified_tensor *tsr_verification_tensor(const struct tsr_verification *v,
							  size_t index)
{
	return index < v->checked->ntensors ? &v->tensors[index] : NULL;
}

uint64_t tsr_verification_nfaults(const struct tsr_verification *v)
{
	return v->nfaults;
}

uint64_t tsr_verification_nmissing(const struct tsr_verification *v)
{
	return v->nmissing;
}

size_t tsr_comparison_ntensors(const struct tsr_comparison *c)
{
	return c->ntensors;
}

const struct tsr_diff_tensor *tsr_comparison_tensor(const struct tsr_comparison *c, size_t index)
{
	return index < c->ntensors ? &c->tensors[index] : NULL;
}

uint64_t tsr_comparison_ndiffering(const struct tsr_comparison *c)
{
	return c->ndiffering;
}

uint64_t tsr_comparison_nexceeding(const struct tsr_comparison *c)
{
	return c->nexceeding;
}

static const struct tsr_value_difference *listed(const struct tsr_besides *b, size_t index)
{
	return index < b->nlisted ? &b->list[index] : NULL;
}

uint64_t tsr_verification_nvalues(const struct tsr_verification *v)
{
	return v->besides.ndiffering;
}

const struct tsr_value_difference *tsr_verification_value(const struct tsr_verification *v,
							  size_t index)
{
	return listed(&v->besides, index);
}

uint64_t tsr_comparison_nvalues(const struct tsr_comparison *c)
{
	return c->besides.ndiffering;
}

const struct tsr_value_difference *tsr_comparison_value(const struct tsr_comparison *c,
							size_t index)
{
	return listed(&c->besides, index);
}

const struct tsr_diff_tensor *tsr_comparison_worst(const struct tsr_comparison *r)
{
	const struct tsr_diff_tensor *worst = NULL;

	for (size_t i = 0; i < r->ntensors; i++) {
		const struct tsr_diff_tensor *d = &r->tensors[i];

		if (d->kind != TSR_DIFF_COMPARED || !d->different)
			continue;
		if (!worst || d->nonfinite_different > worst->nonfinite_different ||
		    (d->nonfinite_different == worst->nonfinite_different &&
		     d->measure.nmse > worst->measure.nmse))
			worst = d;
	}
	return worst;
}
