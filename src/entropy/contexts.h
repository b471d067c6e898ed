/* SPDX-License-Identifier: Apache-2.0 */
/* The contexts of codes of variances, by row, column and scale. */
#ifndef TSR_ENTROPY_CONTEXTS_H
#define TSR_ENTROPY_CONTEXTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"
#include "entropy/contexts_math.h"

/* Most rows, and most columns, of a piece that has contexts (tsr_contexts_are_possible()). */
#define TSR_CONTEXTS_LINES (TSR_ENTROPY_PIECE / 8)

/* Mean levels of variances: of all of a piece, and how those of its rows and columns deviate. */
struct tsr_contexts_means {
	uint32_t nrows, ncolumns;
	int32_t all;
	int8_t rows[TSR_CONTEXTS_LINES], columns[TSR_CONTEXTS_LINES];
	uint32_t row_sums[TSR_CONTEXTS_LINES],
		column_sums[TSR_CONTEXTS_LINES]; /* while they are found */
};

/* Most bytes of the means. */
#define TSR_CONTEXTS_MEANS_NBYTES (TSR_CONTEXTS_LINES + 8)

/* The means of @n variances, and their bytes, a multiple of 4. */
void tsr_contexts_find_means(const struct tsr_entropy_variance *v, const uint8_t *codes, size_t n,
			     struct tsr_contexts_means *m);
size_t tsr_contexts_put_means(const struct tsr_contexts_means *m, uint8_t *bytes);

/* Read them.  NULL, or what is wrong with them. */
const char *tsr_contexts_get_means(const struct tsr_entropy_variance *v, size_t n,
				   const uint8_t *bytes, size_t nbytes,
				   struct tsr_contexts_means *m, size_t *used);

/* The context of each element. */
void tsr_contexts_fill(const struct tsr_entropy_variance *v, const struct tsr_contexts_means *m,
		       size_t n, uint8_t *contexts);

/* The loops: sums of levels by row and column, which begin at 0, and contexts. */
typedef void tsr_contexts_sums_fn(const struct tsr_entropy_variance *v, const uint8_t *codes,
				  size_t n, uint32_t *rows, uint32_t *columns);
typedef void tsr_contexts_fill_fn(const struct tsr_entropy_variance *v,
				  const struct tsr_contexts_means *m, size_t n, uint8_t *contexts);
TSR_ISA_DECLARE(tsr_contexts_sums_fn, contexts_sums)
TSR_ISA_DECLARE(tsr_contexts_sums_fn, contexts_log_sums)
TSR_ISA_DECLARE(tsr_contexts_fill_fn, contexts_of_roots)
TSR_ISA_DECLARE(tsr_contexts_fill_fn, contexts_of_logs)

#endif
