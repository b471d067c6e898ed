/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters an optimizer numbers, by rules that training programs follow. */
#ifndef TSR_NAMES_PARAM_ORDER_H
#define TSR_NAMES_PARAM_ORDER_H

#include "names/optimizer_ids.h"

/* Whether the state of an id can be that of the parameter with this array; without a state, it can. */
bool tsr_optim_can_have(const struct tsr_checkpoint *c, const struct tsr_optim *o,
			const struct tsr_optim_id *id, size_t param);

/*
 * Name the ids of an optimizer by the rules of docs/reading.md, "Matching state to parameters", from
 * @params of the model, in its order if @ordered.  Where rules fit and all that do agree, *proved_ret is
 * true, ids have names and a note says which rule it was; otherwise ids are left as they are.
 */
enum tsr_status tsr_order_prove(struct tsr_checkpoint *c, struct tsr_optim *o,
				const struct tsr_param *params, size_t nparams, bool ordered,
				bool *proved_ret, struct tsr_err *err);

#endif
