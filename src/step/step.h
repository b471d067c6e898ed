/* SPDX-License-Identifier: Apache-2.0 */
/* One step of an optimizer on one tensor, over any form of its state. */
#ifndef TSR_STEP_STEP_H
#define TSR_STEP_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "step/hyperparameters.h"
#include "tersor/codec.h"
#include "tersor/dtype.h"
#include "tersor/optimizer.h"
#include "step/step_math.h"

/* What SOAP has of both sides of a matrix: factors of rows and columns, then eigenbases of both. */
#define TSR_BASES 4

/**
 * struct tsr_step - One step of an optimizer on one tensor, whatever form its state has
 * @optimizer:  the update rule
 * @order:      whose order of operations; tsr_order_has() the optimizer
 * @scalars:    from tsr_step_scalars(), for the number of this step
 * @fp32:       those of the replay in FP32 that it is compared with; the same, unless they are varied
 * @grad_dtype: TSR_F32, TSR_BF16 or TSR_F16
 * @coding:     of each slot; codec NULL where the rule keeps none.  "f32" is FP32 state.  The
 *              seed of a stochastic codec must differ from step to step.  A momentum in a relative
 *              codec needs a variance.  With one, or if tsr_step_stores_first(),
 *              tsr_step_moments_align() is in its limit
 * @plane:      the planes of each slot: of the whole tensor
 * @rows, @columns: of the matrix, whose elements are stepped together, if the rule needs one; else 0
 * @side:       of SOAP: how many rows and columns of it are turned; 0: they are left as they are
 * @basis:      of SOAP, of such rows and columns: their factors, then their eigenbases
 * @work:       for such a step: tsr_step_work() floats that it may use
 *
 * Decode, update by the formulas of step_math.h in FP32, encode: the bits are those of the codecs
 * called one after the other, on every SIMD level and GPU.
 */
struct tsr_step {
	enum tsr_optimizer optimizer;
	enum tsr_order order;
	struct tsr_step_scalars scalars, fp32;
	enum tsr_dtype grad_dtype;
	struct tsr_coding coding[TSR_SLOTS];
	void *plane[TSR_SLOTS][TSR_PLANES_MAX];
	uint64_t rows, columns;
	uint64_t side[2];
	float *basis[TSR_BASES];
	float *work;
};

/*
 * Once every state that has these factors and bases was stepped, in FP32 as well: put what the last one made
 * of them in their place.  Of other optimizers it does nothing.
 */
void tsr_step_turn(const struct tsr_step *step);

/* What a step noticed; added up over calls.  Start from zeros. */
struct tsr_step_report {
	uint64_t nonfinite_grad; /* elements of the gradient that are NaN or infinite */
	struct tsr_encode_report encode[TSR_SLOTS];
};

/*
 * The scalars of step number @t (1 for the first) of a group, computed in binary64 and rounded once; in
 * the orders of FlashOptim, COAT, bitsandbytes and PyTorch's GPU kernels as these compute them from
 * hyperparameters in FP32.  The caller sets `elements`.  @h has passed tsr_hyper_check().  @fresh: there is
 * no momentum yet (it decodes to zeros), which SGD then starts from the gradient itself, undampened; in
 * FlashOptim's order a first step is like any other.
 */
struct tsr_step_scalars tsr_step_scalars(enum tsr_order order, enum tsr_optimizer optimizer,
					 const struct tsr_hyper *h, uint64_t t, bool fresh);

/*
 * Whether weights move by the momentum as it is stored, and variances by the means of their blocks, as
 * in Gefen: always by its rule, and of any state that has means.
 */
bool tsr_step_stores_first(const struct tsr_step *step);

/* The most elements of a matrix that is stepped as a whole. */
#define TSR_STEP_MATRIX_MAX (UINT64_C(1) << 24)

/* Elements of a factor of a product that are copied side by side. */
#define TSR_MUON_PANEL ((size_t)1 << 14)

/* What the update of such a matrix is multiplied by, of a rate at the step. */
float tsr_step_matrix_rate(const struct tsr_hyper *h, uint64_t rows, uint64_t columns);
size_t tsr_step_work(const struct tsr_step *step);

/*
 * What tsr_step_weights() is to other rules: the weights of a matrix by its gradient and its momentum.
 */
void tsr_step_matrix(const struct tsr_step *step, const float *g, const float *m, float *w);

/* Elements that share a variance. */
uint32_t tsr_step_block(const struct tsr_step *step);

/*
 * The two halves of such a step on arrays in FP32: the moments of @n elements of whole blocks, @v NULL
 * where the rule has no variance; and the weights by what has become of them.
 */
void tsr_step_block_moments(const struct tsr_step *step, const float *g, size_t n, float *m,
			    float *v);
void tsr_step_weights(const struct tsr_step *step, const float *m, const float *v, size_t n,
		      float *w);

/*
 * Where groups of the momentum and of the variance meet.  With a relative momentum, or one that is stored
 * first, it is at most TSR_GROUP_MAX.
 */
uint64_t tsr_step_moments_align(const struct tsr_step *step);

/* A tile has to begin at a multiple of this. */
uint64_t tsr_step_align(const struct tsr_step *step);

/*
 * Step elements @first to @first + @n - 1; @first is a multiple of tsr_step_align().  @grad and
 * planes point to the first element of the tensor, aligned for their elements.  Thread-safe on
 * disjoint tiles.  A non-finite gradient is stepped like any other, and counted.  Takes 48 KiB of
 * stack, with groups of more than 2048 elements 1,350 KiB.
 */
void tsr_step_apply(const struct tsr_step *step, const void *grad, uint64_t first, size_t n,
		    struct tsr_step_report *report);

/* The step on the elements from @first on, a multiple of tsr_step_align(), without their gradients. */
struct tsr_step tsr_step_from(const struct tsr_step *step, uint64_t first);

/* How many of @n elements pass through FP32 arrays at a time: a multiple of @align, up to @most if it can. */
uint64_t tsr_step_batch(uint64_t most, uint64_t align, uint64_t n);

#endif
