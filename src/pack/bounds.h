/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds on the error of tensors: `--max-error` of pack, verify and diff. */
#ifndef TSR_PACK_BOUNDS_H
#define TSR_PACK_BOUNDS_H

#include "tersor/pack.h"

/*
 * The first of @n bounds that an error is over, and the error; NULL if it is over none.  @m, @u: of the
 * tensor and, if it is a variance, of its updates; NULL: not measured, which is over no bound; nor is a
 * @step below 0.
 */
const struct tsr_bound *tsr_bound_exceeded(const struct tsr_bound *bounds, unsigned n,
					   const struct tsr_measured *m,
					   const struct tsr_update_measured *u, double step,
					   double *error_ret);

/*
 * The weight, tensor *index_ret, that the updates @u of a variance are of, for tsr_weight_step().  False
 * without one of its size, or if @lr is not known (0).
 */
bool tsr_weight_of(const struct tsr_checkpoint *c, size_t variance,
		   const struct tsr_update_measured *u, double lr, size_t *index_ret);

/* The tensor that is furthest over a bound, in units of the bound, of @n that are over one. */
struct tsr_bound_worst {
	size_t n, tensor;
	const struct tsr_bound *bound;
	double error;
};

/* Add a tensor whose error is over @bound. */
void tsr_bound_worst_add(struct tsr_bound_worst *w, size_t tensor, const struct tsr_bound *bound,
			 double error);

/*
 * With @options->strict TSR_E_UNSUPPORTED, naming the first variance that becomes 0 under a momentum, or the
 * worst of the updates that are bad (tsr_update_level()).
 */
enum tsr_status tsr_pack_check_updates(const struct tsr_packing *p,
				       const struct tsr_pack_options *options, struct tsr_err *err);

/* TSR_E_BOUND, naming the packed tensor whose error is furthest over a bound, and how many are over one. */
enum tsr_status tsr_pack_check_bounds(const struct tsr_packing *p,
				      const struct tsr_pack_options *options, struct tsr_err *err);

#endif
