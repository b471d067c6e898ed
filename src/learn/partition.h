/* SPDX-License-Identifier: Apache-2.0 */
/* The length of the blocks that a tensor is made of, found in its elements (Gefen). */
#ifndef TSR_LEARN_PARTITION_H
#define TSR_LEARN_PARTITION_H

#include <stddef.h>
#include <stdint.h>

#include "tersor/learn.h"

/* A tensor on its way through; see tsr_partition_new(). */
struct tsr_partition;

/* What a part of a tensor says of each candidate; memory for one part after the other. */
struct tsr_partition_part;

/**
 * tsr_partition_new() - Prepare for a tensor of squared gradients, or of variances
 * @numel: its elements
 * @rule:  how blocks are chosen
 * @what:  for a message of failure
 * @ret:   out: to be freed with free()
 *
 * Candidates are the divisors of @numel.  Parts follow each other from the first element on; a result
 * does not depend on how the tensor is cut into them, nor on who prepares them.
 */
enum tsr_status tsr_partition_new(uint64_t numel, enum tsr_partition_rule rule, const char *what,
				  struct tsr_partition **ret, struct tsr_err *err);

/* Memory for parts of up to @room elements of any tensor; NULL if there is none. */
struct tsr_partition_part *tsr_partition_part_new(size_t room);
void tsr_partition_part_free(struct tsr_partition_part *part);

/*
 * Prepare elements @first to @first + @n - 1, which are nonnegative; by several threads at once on parts
 * of their own.  TSR_E_NOMEM.
 */
enum tsr_status tsr_partition_prepare(const struct tsr_partition *p, uint64_t first, const float *x,
				      size_t n, struct tsr_partition_part *part,
				      struct tsr_err *err);

/* Add the part that follows those added so far. */
void tsr_partition_add(struct tsr_partition *p, const struct tsr_partition_part *part);

/* The length of a block, 1 if elements have nothing in common; once all parts are added. */
uint64_t tsr_partition_period(const struct tsr_partition *p);

/* Candidate @i in ascending order; false past the last one. */
bool tsr_partition_candidate(const struct tsr_partition *p, size_t i, uint64_t *length_ret,
			     double *score_ret);

/* The largest divisor of @n that is at most @most. */
uint64_t tsr_largest_divisor(uint64_t n, uint64_t most);

#endif
