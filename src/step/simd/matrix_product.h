/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of matrices, for a file that defines PRODUCT_ADD(a, b, sum): sum + a b.  An element is the sum of
 * products in ascending order, whatever the SIMD level: vectors run along columns.
 */
#ifndef TSR_STEP_MATRIX_PRODUCT_H
#define TSR_STEP_MATRIX_PRODUCT_H

#include <string.h>

#include "step/step.h"

/* A block of a product that stays in registers, and how many terms are added to all blocks at a time. */
#define ROWS 4
#ifdef __AVX512F__
#define COLUMNS 32
#else
#define COLUMNS 16
#endif
#define TERMS (TSR_MUON_PANEL / COLUMNS)

/* So short a loop the compiler would unroll instead of making vectors of it. */
#if defined(__clang__)
#define UNROLL
#define WHOLE
#else
#define UNROLL _Pragma("GCC unroll 8")
#define WHOLE _Pragma("GCC unroll 1")
#endif

/* Factors and sizes: @rows x @inner and @inner x @columns elements. */
struct product {
	const float *a, *b;
	size_t rows, inner, columns;
};

/* A stretch of the terms of sums in as many columns: those of the second factor, side by side. */
struct panel {
	size_t first, n; /* which terms */
	size_t column, ncolumns;
	float *x; /* n x COLUMNS */
};

static void fill_panel(const struct product *p, const struct panel *to)
{
	const float *from = p->b + to->first * p->columns + to->column;
	float *x = to->x;

	for (size_t k = 0; k < to->n; k++, from += p->columns, x += COLUMNS) {
		memcpy(x, from, to->ncolumns * sizeof(float));
		memset(x + to->ncolumns, 0, (COLUMNS - to->ncolumns) * sizeof(float));
	}
}

/* Add the terms to sums of consecutive rows; @a: the first factor, @inner elements per row. */
static void add_to_block(const float *restrict a, size_t inner, const float *restrict x, size_t n,
			 float sums[ROWS][COLUMNS])
{
	float sum[ROWS][COLUMNS];

	memcpy(sum, sums, sizeof(sum));
	for (size_t k = 0; k < n; k++) {
		UNROLL
		for (size_t i = 0; i < ROWS; i++) {
			const float factor = a[i * inner + k];

			WHOLE
			for (size_t j = 0; j < COLUMNS; j++)
				sum[i][j] = PRODUCT_ADD(factor, x[k * COLUMNS + j], sum[i][j]);
		}
	}
	memcpy(sums, sum, sizeof(sum));
}

/* To sums of one row. */
static void add_to_row(const float *restrict a, const float *restrict x, size_t n,
		       float sums[COLUMNS])
{
	for (size_t k = 0; k < n; k++) {
		WHOLE
		for (size_t j = 0; j < COLUMNS; j++)
			sums[j] = PRODUCT_ADD(a[k], x[k * COLUMNS + j], sums[j]);
	}
}

/* Add a panel to the rows before @end of its columns of c. */
static void add_panel(const struct product *p, const struct panel *panel, size_t end, float *c)
{
	for (size_t i = 0, nrows; i < end; i += nrows) {
		const float *a = p->a + i * p->inner + panel->first;
		float *to = c + i * p->columns + panel->column;
		float sums[ROWS][COLUMNS] = { { 0.0f } };

		nrows = p->rows - i < ROWS ? 1 : ROWS;
		for (size_t k = 0; k < nrows && panel->first; k++)
			memcpy(sums[k], to + k * p->columns, panel->ncolumns * sizeof(float));
		if (nrows == ROWS)
			add_to_block(a, p->inner, panel->x, panel->n, sums);
		else
			add_to_row(a, panel->x, panel->n, sums[0]);
		for (size_t k = 0; k < nrows; k++)
			memcpy(to + k * p->columns, sums[k], panel->ncolumns * sizeof(float));
	}
}

/* c = a b.  Of a @symmetric one the blocks that are wholly below the diagonal are left out. */
static void multiply(const struct product *p, bool symmetric, float *x, float *c)
{
	for (size_t j = 0; j < p->columns; j += COLUMNS) {
		const size_t left = p->columns - j;
		struct panel panel = { .column = j,
				       .ncolumns = left < COLUMNS ? left : COLUMNS,
				       .x = x };

		for (size_t k = 0; k < p->inner; k += panel.n) {
			panel.first = k;
			panel.n = p->inner - k < TERMS ? p->inner - k : TERMS;
			fill_panel(p, &panel);
			add_panel(p, &panel, symmetric ? j + panel.ncolumns : p->rows, c);
		}
	}
}

/* What is left out: both halves are sums of the same products in the same order. */
static void mirror(float *c, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		for (size_t j = 0; j < i; j++)
			c[i * size + j] = c[j * size + i];
	}
}

/* to[j][i] = x[i][j] */
static void transpose(const float *restrict x, size_t rows, size_t columns, float *restrict to)
{
	for (size_t i = 0; i < rows; i++) {
		for (size_t j = 0; j < columns; j++)
			to[j * rows + i] = x[i * columns + j];
	}
}

#endif
