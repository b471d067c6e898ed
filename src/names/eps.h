/* SPDX-License-Identifier: Apache-2.0 */
/* The eps, betas and learning rate of a checkpoint's optimizer. */
#ifndef TSR_NAMES_EPS_H
#define TSR_NAMES_EPS_H

#include "ckpt/checkpoint_model.h"

/*
 * The `eps` of the param_groups in what was saved around the tensors, if all of them have the same one
 * and it is a positive number, which *known_ret says; else TSR_UPDATE_EPS.
 */
float tsr_names_eps(const struct tsr_checkpoint *c, bool *known_ret);

/* The least positive `lr` of these groups; 0: none has one. */
double tsr_names_lr(const struct tsr_checkpoint *c);

/* The `betas` of these groups, if all have the same two and both are between 0 and 1; else false. */
bool tsr_names_betas(const struct tsr_checkpoint *c, double ret[2]);

#endif
