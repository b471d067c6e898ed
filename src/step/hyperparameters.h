/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_STEP_HYPERPARAMETERS_H
#define TSR_STEP_HYPERPARAMETERS_H

/* What optimizers have and accept as hyperparameters. */

#include <stdbool.h>

#include "tersor/optimizer.h"
#include "tersor/status.h"

/* Put every hyperparameter that @from has set. */
void tsr_hyper_override(struct tsr_hyper *h, const struct tsr_hyper *from);

/*
 * Fill in what is not set and has a default (PyTorch's: betas, eps, weight_decay, momentum,
 * dampening, nesterov, decouple_lr 0, match_rms 0; initial_lr: the lr).  An lr has none.
 */
void tsr_hyper_defaults(struct tsr_hyper *h, enum tsr_optimizer optimizer);

/*
 * TSR_E_UNSUPPORTED if a hyperparameter that the optimizer uses is missing or out of range, such as
 * a beta outside [0, 1) or a negative lr; the message begins with @where.
 */
enum tsr_status tsr_hyper_check(const struct tsr_hyper *h, enum tsr_optimizer optimizer,
				const char *where, struct tsr_err *err);

/* Whether the order is one of PyTorch's own. */
bool tsr_order_is_torch(enum tsr_order order);

/* Whether an update is made orthogonal; whether a step is of a whole matrix, as that is and SOAP's. */
bool tsr_optimizer_is_muon(enum tsr_optimizer optimizer);
bool tsr_optimizer_takes_matrices(enum tsr_optimizer optimizer);

/* Whether the update rule has this hyperparameter. */
bool tsr_optimizer_uses(enum tsr_optimizer optimizer, enum tsr_hyper_name name);

/* The one of this name, which is true if there is one; whether it is 0 or 1. */
bool tsr_hyper_find(const char *name, enum tsr_hyper_name *ret);
bool tsr_hyper_is_flag(enum tsr_hyper_name name);

/* Whether it is a switch that is off where it is not set. */
bool tsr_hyper_is_switch(enum tsr_hyper_name name);

/* Whether it is set, and not 0. */
bool tsr_hyper_is_on(const struct tsr_hyper *h, enum tsr_hyper_name name);

/* What the optimizer keeps besides the weight: a mask of 1 << enum tsr_slot. */
unsigned tsr_optimizer_slots(enum tsr_optimizer optimizer, const struct tsr_hyper *h);

#endif
