/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers and their hyperparameters. */
#ifndef TERSOR_OPTIMIZER_H
#define TERSOR_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/codec.h"
#include "tersor/status.h"

/* What an optimizer keeps of a parameter. */
enum tsr_slot {
	TSR_SLOT_WEIGHT,
	TSR_SLOT_MOMENTUM,
	TSR_SLOT_VARIANCE,
	TSR_SLOT_MAX_VARIANCE, /* AMSGrad's: the largest variance so far */
	TSR_SLOTS
};

/* TSR_KIND_WEIGHT, ...; and "weight", "momentum", "variance", "max_variance". */
TSR_API enum tsr_kind tsr_slot_kind(enum tsr_slot slot);
TSR_API const char *tsr_slot_name(enum tsr_slot slot);

/* The update rules that can be replayed.  docs/replay.md writes them out. */
enum tsr_optimizer {
	TSR_OPTIMIZER_SGD, /* torch.optim.SGD: momentum, dampening, Nesterov, L2 */
	TSR_OPTIMIZER_SGDW, /* the same with decoupled weight decay */
	TSR_OPTIMIZER_ADAM, /* torch.optim.Adam: L2 */
	TSR_OPTIMIZER_ADAMW, /* torch.optim.AdamW: decoupled weight decay */
	TSR_OPTIMIZER_LION, /* Chen et al., 2023: decoupled weight decay */
	TSR_OPTIMIZER_GEFEN, /* AdamW by the mean of a block's squares, and the momentum as it is stored */
	TSR_OPTIMIZER_MUON, /* torch.optim.Muon: momentum, orthogonalised; matrices only */
	TSR_OPTIMIZER_GEFEN_MUON, /* the same by the momentum as it is stored: Gefen's program */
	TSR_OPTIMIZER_SOAP, /* Adam in the eigenbases of Shampoo's factors */
	TSR_OPTIMIZER_COUNT /* none */
};

/* "sgd", "sgdw", "adam", "adamw", "lion", "gefen", "muon", "gefen-muon", "soap". */
TSR_API const char *tsr_optimizer_name(enum tsr_optimizer optimizer);
TSR_API bool tsr_optimizer_find(const char *name, enum tsr_optimizer *optimizer_ret);

/*
 * Whose order of operations a step follows.  docs/replay.md writes them out: results differ in last
 * places, with COAT's and bitsandbytes' also in where eps and the decay of weights enter.
 */
enum tsr_order {
	TSR_ORDER_TORCH_CPU, /* PyTorch's on a CPU, one operation at a time */
	TSR_ORDER_FLASHOPTIM,
	TSR_ORDER_COAT, /* AdamW only */
	TSR_ORDER_BITSANDBYTES, /* Adam and AdamW; both decay weights apart from the gradient */
	/*
	 * Gefen, GefenMuon and AdamW.  The step is always its program's; this is also its codebook, in
	 * which no entry is 0.
	 */
	TSR_ORDER_GEFEN,
	TSR_ORDER_TORCH_CUDA_FUSED, /* PyTorch's fused kernels on a GPU, from 2.11 on; SGD, Adam, AdamW */
	TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE, /* before 2.11: with hyperparameters in binary64 */
	TSR_ORDER_TORCH_CUDA_FOREACH, /* its default on a GPU */
	TSR_ORDER_TORCH_CUDA_FORLOOP,
	TSR_ORDER_TORCH_CUDA_CAPTURABLE, /* foreach with capturable; Adam and AdamW only */
	TSR_ORDER_TORCH_CPU_FUSED,
	TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP, /* capturable with foreach=False */
	TSR_ORDER_PYTORCH_OPTIMIZER, /* SOAP only; TSR_ORDER_TORCH_CPU is that of its authors' program */
	TSR_ORDER_COUNT /* none */
};

/* "torch-cpu" (which is also found as "pytorch"), "flashoptim", "coat", ..., "pytorch-optimizer". */
TSR_API const char *tsr_order_name(enum tsr_order order);
TSR_API bool tsr_order_find(const char *name, enum tsr_order *order_ret);

/* Whether the program whose order it is has the optimizer. */
TSR_API bool tsr_order_has(enum tsr_order order, enum tsr_optimizer optimizer);

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
	TSR_HYPER_MATCH_RMS, /* 0 or 1: Muon's lr times 0.2 sqrt(longer side), "match_rms_adamw" */
	TSR_HYPER_MAXIMIZE, /* 0, as where it is not set, or 1: the gradient is negated */
	TSR_HYPER_AMSGRAD, /* 0 or 1: updates are divided by the root of the largest variance */
	TSR_HYPER_TENSOR_LR, /* 0 or 1: the lr is a tensor, by which PyTorch divides otherwise */
	TSR_HYPER_SHAMPOO_BETA, /* of SOAP's factors; where it is not set, beta2 */
	TSR_HYPER_PRECONDITION_FREQUENCY, /* SOAP has new eigenbases every so many steps */
	TSR_HYPER_MAX_PRECOND_DIM, /* of longer rows or columns SOAP has none */
	TSR_HYPER_NORMALIZE_GRADS, /* 0 or 1: SOAP's update is divided by its root mean square */
	TSR_HYPER_CORRECT_BIAS, /* 0 or 1: SOAP's rate has Adam's bias correction */
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

#endif
