/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contexts of codes.  The second moments of a matrix are close to the product of a row and a column
 * (Shazeer & Stern, arXiv 1804.04235), so that means of its lines say what to expect of an element.
 */
#include "entropy/contexts.h"

#include <string.h>

#include "base/little_endian.h"

void tsr_contexts_find_means(const struct tsr_entropy_variance *v, const uint8_t *codes, size_t n,
			     struct tsr_contexts_means *m)
{
	static tsr_contexts_sums_fn *const add_up[] = TSR_ISA_VARIANTS(contexts_sums);
	static tsr_contexts_sums_fn *const add_logs[] = TSR_ISA_VARIANTS(contexts_log_sums);
	uint32_t *const rows = m->row_sums, *const columns = m->column_sums;
	uint64_t sum = 0;

	m->nrows = (uint32_t)tsr_contexts_rows(v, n);
	m->ncolumns = (uint32_t)v->columns;
	memset(rows, 0, m->nrows * sizeof(*rows));
	memset(columns, 0, m->ncolumns * sizeof(*columns));
	(v->logarithmic ? add_logs : add_up)[tsr_isa_level()](v, codes, n, rows, columns);
	for (uint32_t i = 0; i < m->nrows; i++)
		sum += rows[i];
	m->all = (int32_t)(sum / n);
	for (uint32_t i = 0; i < m->nrows; i++)
		m->rows[i] = (int8_t)tsr_rans_deviation(
			(int32_t)(rows[i] / tsr_contexts_row_size(v, n, m->nrows, i)), m->all);
	for (uint32_t i = 0; i < m->ncolumns; i++)
		m->columns[i] = (int8_t)tsr_rans_deviation(
			(int32_t)(columns[i] / tsr_contexts_column_size(v, n, m->nrows, i)),
			m->all);
}

size_t tsr_contexts_put_means(const struct tsr_contexts_means *m, uint8_t *bytes)
{
	const size_t nbytes = tsr_contexts_means_nbytes(m->nrows, m->ncolumns);

	memset(bytes + nbytes - 4, 0, 4);
	tsr_put_le(bytes, (uint64_t)m->all, 4);
	memcpy(bytes + 4, m->rows, m->nrows);
	memcpy(bytes + 4 + m->nrows, m->columns, m->ncolumns);
	return nbytes;
}

const char *tsr_contexts_get_means(const struct tsr_entropy_variance *v, size_t n,
				   const uint8_t *bytes, size_t nbytes,
				   struct tsr_contexts_means *m, size_t *used)
{
	m->nrows = (uint32_t)tsr_contexts_rows(v, n);
	m->ncolumns = (uint32_t)v->columns;
	*used = tsr_contexts_means_nbytes(m->nrows, m->ncolumns);
	if (nbytes < *used)
		return "the means of rows and columns end early";
	if (tsr_get_le(bytes, 4) > UINT16_MAX)
		return "the mean of all is none";
	m->all = (int32_t)tsr_get_le(bytes, 4);
	memcpy(m->rows, bytes + 4, m->nrows);
	memcpy(m->columns, bytes + 4 + m->nrows, m->ncolumns);
	for (size_t i = 4 + (size_t)m->nrows + m->ncolumns; i < *used; i++)
		if (bytes[i])
			return "bytes behind the means of columns are not zero";
	return NULL;
}

void tsr_contexts_fill(const struct tsr_entropy_variance *v, const struct tsr_contexts_means *m,
		       size_t n, uint8_t *contexts)
{
	static tsr_contexts_fill_fn *const of_roots[] = TSR_ISA_VARIANTS(contexts_of_roots);
	static tsr_contexts_fill_fn *const of_logs[] = TSR_ISA_VARIANTS(contexts_of_logs);

	(v->logarithmic ? of_logs : of_roots)[tsr_isa_level()](v, m, n, contexts);
}
