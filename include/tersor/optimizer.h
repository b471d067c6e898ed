/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_OPTIMIZER_H
#define TERSOR_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/codec.h"
#include "tersor/status.h"

/* What an optimizer keeps of a parameter. */
enum tsr_part { TSR_PART_WEIGHT, TSR_PART_MOMENTUM, TSR_PART_VARIANCE, TSR_PARTS };

/* TSR_KIND_WEIGHT, ... */
TSR_API enum tsr_kind tsr_part_kind(enum tsr_part part);

/* The update rules that can be replayed.  docs/optimizers.md writes them out. */
enum tsr_optimizer {
	TSR_OPTIMIZER_SGD, /* torch.optim.SGD: momentum, dampening, Nesterov, L2 */
	TSR_OPTIMIZER_SGDW, /* the same with decoupled weight decay */
	TSR_OPTIMIZER_ADAM, /* torch.optim.Adam: L2 */
	TSR_OPTIMIZER_ADAMW, /* torch.optim.AdamW: decoupled weight decay */
	TSR_OPTIMIZER_LION, /* Chen et al., 2023: decoupled weight decay */
	TSR_OPTIMIZER_COUNT /* none */
};

/* "sgd", "sgdw", "adam", "adamw", "lion". */
TSR_API const char *tsr_optimizer_name(enum tsr_optimizer optimizer);
TSR_API bool tsr_optimizer_find(const char *name, enum tsr_optimizer *optimizer_ret);

/* Hyperparameters, as names in recordings, options and reports say them; all are numbers. */
enum tsr_hyper_name {
	TSR_HYPER_LR,
	TSR_HYPER_INITIAL_LR, /* that decouple_lr scales the weight decay by */
	TSR_HYPER_BETA1,
	TSR_HYPER_BETA2,
	TSR_HYPER_EPS,
	TSR_HYPER_WEIGHT_DECAY,
	TSR_HYPER_MOMENTUM,
	TSR_HYPER_DAMPENING,
	TSR_HYPER_NESTEROV, /* 0 or 1 */
	TSR_HYPER_DECOUPLE_LR, /* 0 or 1: weights shrink by weight_decay * lr / initial_lr */
	TSR_HYPER_COUNT
};

/* "lr", "initial_lr", "beta1", ... */
TSR_API const char *tsr_hyper_name(enum tsr_hyper_name name);

/* The hyperparameters of a group of parameters: those in the mask @set, by enum tsr_hyper_name. */
struct tsr_hyper {
	double value[TSR_HYPER_COUNT];
	unsigned set;
};

TSR_API bool tsr_hyper_is_set(const struct tsr_hyper *h, enum tsr_hyper_name name);
TSR_API void tsr_hyper_put(struct tsr_hyper *h, enum tsr_hyper_name name, double value);

/* Put every hyperparameter that @from has set. */
TSR_API void tsr_hyper_override(struct tsr_hyper *h, const struct tsr_hyper *from);

/*
 * Fill in what is not set and has a default (PyTorch's: betas, eps, weight_decay, momentum,
 * dampening, nesterov 0, decouple_lr 0; initial_lr: the lr).  An lr has none.
 */
TSR_API void tsr_hyper_defaults(struct tsr_hyper *h, enum tsr_optimizer optimizer);

/*
 * TSR_E_UNSUPPORTED if a hyperparameter that the optimizer uses is missing or out of range, such as
 * a beta outside [0, 1) or a negative lr; the message begins with @where.
 */
TSR_API enum tsr_status tsr_hyper_check(const struct tsr_hyper *h, enum tsr_optimizer optimizer,
					const char *where, struct tsr_err *err);

/* Whether the update rule has this hyperparameter. */
TSR_API bool tsr_optimizer_uses(enum tsr_optimizer optimizer, enum tsr_hyper_name name);

/* The kinds of state besides the weight that the optimizer keeps: a mask of enum tsr_kind. */
TSR_API unsigned tsr_optimizer_kinds(enum tsr_optimizer optimizer, const struct tsr_hyper *h);

#endif
