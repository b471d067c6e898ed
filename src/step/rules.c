/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of a step: see rules.h. */
#include "step/rules.h"

static enum tsr_step_rule adam_rule_of(const struct tsr_step *step)
{
	static const enum tsr_step_rule rules[TSR_ORDER_COUNT] = {
		[TSR_ORDER_FLASHOPTIM] = TSR_RULE_FLASH_ADAM,
		[TSR_ORDER_COAT] = TSR_RULE_COAT_ADAMW,
		[TSR_ORDER_BITSANDBYTES] = TSR_RULE_BITSANDBYTES_ADAM,
		[TSR_ORDER_TORCH_CPU_FUSED] = TSR_RULE_CPU_FUSED_ADAM,
		[TSR_ORDER_TORCH_CUDA_FOREACH] = TSR_RULE_CUDA_ADAM,
		[TSR_ORDER_TORCH_CUDA_FORLOOP] = TSR_RULE_CUDA_ADAM,
		[TSR_ORDER_TORCH_CUDA_CAPTURABLE] = TSR_RULE_CUDA_ADAM,
		[TSR_ORDER_TORCH_CUDA_CAPTURABLE_FORLOOP] = TSR_RULE_CUDA_ADAM,
		[TSR_ORDER_TORCH_CUDA_FUSED] = TSR_RULE_CUDA_FUSED_ADAM,
		[TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE] = TSR_RULE_DOUBLE_ADAM,
	};

	if (step->order == TSR_ORDER_TORCH_CPU)
		return step->optimizer == TSR_OPTIMIZER_ADAM ? TSR_RULE_ADAM : TSR_RULE_ADAMW;
	return rules[step->order];
}

static enum tsr_step_rule sgd_rule_of(const struct tsr_step *step)
{
	const bool momentum = step->coding[TSR_SLOT_MOMENTUM].codec;

	if (step->order == TSR_ORDER_TORCH_CUDA_FUSED_DOUBLE)
		return momentum ? TSR_RULE_DOUBLE_SGD : TSR_RULE_DOUBLE_PLAIN_SGD;
	if (step->order == TSR_ORDER_TORCH_CPU_FUSED && momentum)
		return TSR_RULE_CPU_FUSED_SGD;
	return momentum ? TSR_RULE_SGD : TSR_RULE_PLAIN_SGD;
}

enum tsr_step_rule tsr_step_rule(const struct tsr_step *step)
{
	switch (step->optimizer) {
	case TSR_OPTIMIZER_ADAM:
	case TSR_OPTIMIZER_ADAMW:
		return adam_rule_of(step);
	case TSR_OPTIMIZER_LION:
		return step->order == TSR_ORDER_FLASHOPTIM ? TSR_RULE_FLASH_LION : TSR_RULE_LION;
	default:
		return sgd_rule_of(step);
	}
}
