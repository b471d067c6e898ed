/* SPDX-License-Identifier: Apache-2.0 */
/* Which formula steps an element, by the optimizer and the order of operations. */
#ifndef TSR_STEP_RULES_H
#define TSR_STEP_RULES_H

#include "step/step.h"

/*
 * X(id, formula of step_math.h or torch_math.h, states besides the weight, whether GPUs have it in fused
 * kernels).  Each rule in those takes registers from all.
 */
#define TSR_STEP_RULES(X) \
	X(PLAIN_SGD, plain_sgd, 0, true) \
	X(SGD, sgd, 1, true) \
	X(LION, lion, 1, true) \
	X(FLASH_LION, flash_lion, 1, true) \
	X(ADAM, adam, 2, true) \
	X(ADAMW, adamw, 2, true) \
	X(FLASH_ADAM, flash_adam, 2, true) \
	X(COAT_ADAMW, coat_adamw, 2, false) \
	X(BITSANDBYTES_ADAM, bitsandbytes_adam, 2, false) \
	X(CPU_FUSED_SGD, cpu_fused_sgd, 1, false) \
	X(CPU_FUSED_ADAM, cpu_fused_adam, 2, false) \
	X(CUDA_ADAM, cuda_adam, 2, false) \
	X(CUDA_FUSED_ADAM, cuda_fused_adam, 2, false) \
	X(DOUBLE_PLAIN_SGD, double_plain_sgd, 0, false) \
	X(DOUBLE_SGD, double_sgd, 1, false) \
	X(DOUBLE_ADAM, double_adam, 2, false)

enum tsr_step_rule {
#define X(id, ...) TSR_RULE_##id,
	TSR_STEP_RULES(X)
#undef X
};

/* That of a step on FP32 arrays that does not tsr_step_stores_first(). */
enum tsr_step_rule tsr_step_rule(const struct tsr_step *step);

#endif
