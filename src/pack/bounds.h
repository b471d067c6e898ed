/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds on the error of packed tensors: `pack --max-error`. */
#ifndef TSR_PACK_BOUNDS_H
#define TSR_PACK_BOUNDS_H

#include "tersor/pack.h"

/* TSR_E_BOUND, naming the first tensor whose error is over a bound. */
enum tsr_status tsr_pack_check_bounds(const struct tsr_packing *p,
				      const struct tsr_pack_options *options, struct tsr_err *err);

#endif
