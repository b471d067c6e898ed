/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors are the model's own, by their names. */
#include "names/model_names.h"

#include <stdlib.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "names/roles.h"

enum tsr_status tsr_names_model(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				unsigned nrules, bool *model, struct tsr_err *err)
{
	struct tsr_tensor_role *roles = calloc(c->ntensors + 1, sizeof(*roles));
	enum tsr_status status;

	if (!roles)
		return tsr_fail_nomem(err, c->path);
	status = tsr_names_roles(c, rules, nrules, NULL, roles, err);
	for (size_t i = 0; i < c->ntensors && status == TSR_OK; i++) {
		const enum tsr_kind kind = c->tensors[i].kind;

		model[i] = !roles[i].state && kind != TSR_KIND_MOMENTUM &&
			   kind != TSR_KIND_VARIANCE;
	}
	free(roles);
	return status;
}
