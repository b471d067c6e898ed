/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of what was saved is the model's state_dict(). */
#ifndef TSR_NAMES_MODEL_TREE_H
#define TSR_NAMES_MODEL_TREE_H

#include "format/value.h"

/* The value that is the model's state_dict(), whose key names do not show; or NULL. */
struct tsr_value *tsr_state_dict_model(struct tsr_value *root);

/*
 * The key and value of the wrapper around model and optimizer: the only value of the root in which both
 * are, as in {"app": {"model": ..., "optim": ...}}, if the root itself has no model; or NULL.
 */
struct tsr_value **tsr_model_wrapper(const struct tsr_value *root);

#endif
