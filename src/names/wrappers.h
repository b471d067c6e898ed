/* SPDX-License-Identifier: Apache-2.0 */
/* Wrappers around model and optimizer, in flat names. */
#ifndef TSR_NAMES_WRAPPERS_H
#define TSR_NAMES_WRAPPERS_H

#include "ckpt/checkpoint_model.h"

/* The first components of a name with the dot behind them: "app." of "app.optim.state.w.exp_avg". */
struct tsr_wrapper {
	const char *text;
	size_t len;
};

struct tsr_wrappers {
	size_t n;
	struct tsr_wrapper *list; /* sorted */
};

/*
 * The wrappers of a checkpoint: what stands both before "optim.state." or "optimizer.state." and
 * before "model." or "module.".  The list is in the arena.
 */
enum tsr_status tsr_wrappers_find(const struct tsr_checkpoint *c, struct tsr_arena *arena,
				  struct tsr_wrappers *ret, struct tsr_err *err);

/* How many bytes of a name are its wrapper; 0: none. */
size_t tsr_wrappers_len(const struct tsr_wrappers *w, const char *name);

#endif
