/* SPDX-License-Identifier: Apache-2.0 */
/* Which state of Gefen's optimizer belongs to which parameter. */
#ifndef TSR_NAMES_GEFEN_IDS_H
#define TSR_NAMES_GEFEN_IDS_H

#include "names/optimizer_ids.h"

/*
 * Its states have shapes of their own, but each parameter is a group with a name: that of the model in
 * lower case, or a number.  If the names fit @nparams parameters in one way, or all of them in their
 * order do by their sizes, give the ids their names; *joined_ret says so.  Others are left alone.
 */
enum tsr_status tsr_gefen_join(struct tsr_checkpoint *c, struct tsr_optim *o,
			       const struct tsr_param *params, size_t nparams, bool ordered,
			       bool *joined_ret, struct tsr_err *err);

#endif
