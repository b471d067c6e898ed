/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_STEP_MATH_H
#define TERSOR_STEP_MATH_H

/*
 * The update rules of optimizers, once, for C and for CUDA: see tersor/math.h, whose contract this
 * keeps.  docs/replay.md derives them; operations and their order are those of PyTorch on the CPU
 * (foreach=False), so that results can be compared by their bits.
 */

#include "tersor/math.h"

/*
 * What a rule needs to know of a step besides the elements.  Computed on the host in binary64, each
 * rounded once.  A rule uses those that its formula names.
 */
struct tsr_step_scalars {
	float keep; /* decoupled weight decay: w * keep, 1 - lr * weight_decay */
	float l2; /* coupled weight decay: g + l2 * w */
	float beta1, rest1; /* beta1 and 1 - beta1; SGD: momentum and 1 - dampening */
	float beta2, rest2;
	float root_correction2; /* sqrt(1 - beta2^t) */
	float eps;
	float rate; /* what the update is multiplied by: -lr, -lr / (1 - beta1^t) */
	float nesterov; /* SGD: the momentum if Nesterov's form is used, else 0 */
};

#endif
