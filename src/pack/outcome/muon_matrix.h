/* SPDX-License-Identifier: Apache-2.0 */
/* A momentum of Muon as a matrix: how far coding it moves the update that is made orthogonal from it. */
#ifndef TSR_PACK_MUON_MATRIX_H
#define TSR_PACK_MUON_MATRIX_H

#include "ckpt/checkpoint_model.h"
#include "tersor/measure.h"
#include "tersor/pack.h"

/* A momentum, its update, and memory for another one: @n floats each. */
struct tsr_muon_matrix {
	const struct tsr_tensor *tensor;
	size_t n, rows;
	float *momentum, *before, *after, *work;
	void *plane[TSR_PLANES_MAX];
	float *block;
};

/* Read a momentum without a codec, and make its update.  To be closed if it is TSR_OK. */
enum tsr_status tsr_muon_matrix_open(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				     struct tsr_muon_matrix *ret, struct tsr_err *err);
void tsr_muon_matrix_close(struct tsr_muon_matrix *m);

/* What a coding makes of its update; NULL: the momentum as it is. */
void tsr_muon_matrix_measure(struct tsr_muon_matrix *m, const struct tsr_coding *coding,
			     struct tsr_update_measure *ret);

/* The same of elements that the caller has put into @m->after. */
void tsr_muon_matrix_compare(struct tsr_muon_matrix *m, struct tsr_update_measure *ret);

/* Multiplications beside a packing or its verification: some seconds. */
#define TSR_MUON_COST 2e11

/*
 * Which of the momenta of Muon among @n tensors to look at, so that @times updates of each take at most @cost
 * multiplications: every so many, and none of more than 2^22 elements.  @ret: per tensor.
 */
void tsr_muon_choose(const struct tsr_tensor *tensors, size_t n, double cost, double times,
		     bool *ret);

/*
 * The updates of Muon's momenta as @wanted codes them, or of some if there are many, into @results; @stored:
 * the same tensors as they are; @skip: NULL, or per tensor.
 */
enum tsr_status tsr_muon_measure_all(const struct tsr_checkpoint *stored,
				     const struct tsr_checkpoint *wanted, const bool *skip,
				     struct tsr_packed_tensor *results, struct tsr_err *err);

#endif
