/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors are the model's own, by their names. */
#include "names/model_names.h"

#include "ckpt/checkpoint_model.h"
#include "names/params/parameters.h"

enum tsr_status tsr_names_model(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				unsigned nrules, bool *model, struct tsr_err *err)
{
	struct tsr_parameters p = { .n = 0 };
	const enum tsr_status status = tsr_names_fill(c, rules, nrules, NULL, &p, err);

	for (size_t i = 0; i < c->ntensors && status == TSR_OK; i++) {
		const enum tsr_kind kind = c->tensors[i].kind;

		model[i] = !p.roles[i].state && kind != TSR_KIND_MOMENTUM &&
			   kind != TSR_KIND_VARIANCE;
	}
	tsr_parameters_free(&p);
	return status;
}
