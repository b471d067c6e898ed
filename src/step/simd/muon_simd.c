/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon: the update of a matrix is made nearly orthogonal by five rounds of Newton and Schulz.  Matrices hold
 * values of BF16.  Products of two are exact in FP32; an element of a product of matrices is their sum in
 * ascending order, each addition rounded, whatever the SIMD level: vectors run along columns.
 */
#include <math.h>

#include "codec/loops.h"
#include "step/simd.h"

/* A block of a product that stays in registers. */
#define ROWS 4
#define COLUMNS 32

/* A block of fewer rows or columns. */
static void product_rest(const float *a, const float *b, size_t inner, size_t columns, size_t nrows,
			 size_t ncolumns, float *c)
{
	for (size_t i = 0; i < nrows; i++) {
		for (size_t j = 0; j < ncolumns; j++) {
			float sum = 0.0f;

			for (size_t k = 0; k < inner; k++)
				sum += a[i * inner + k] * b[k * columns + j];
			c[i * columns + j] = sum;
		}
	}
}

static void product_block(const float *restrict a, const float *restrict b, size_t inner,
			  size_t columns, float *restrict c)
{
	float sum[ROWS][COLUMNS] = { { 0.0f } };

	for (size_t k = 0; k < inner; k++) {
		const float *row = b + k * columns;

		for (size_t i = 0; i < ROWS; i++) {
			const float x = a[i * inner + k];

			for (size_t j = 0; j < COLUMNS; j++)
				sum[i][j] += x * row[j];
		}
	}
	for (size_t i = 0; i < ROWS; i++) {
		for (size_t j = 0; j < COLUMNS; j++)
			c[i * columns + j] = sum[i][j];
	}
}

/* c = a b, of @rows x @inner and @inner x @columns elements. */
static void multiply(const float *a, const float *b, size_t rows, size_t inner, size_t columns,
		     float *c)
{
	for (size_t j = 0; j < columns; j += COLUMNS) {
		const size_t ncolumns = columns - j < COLUMNS ? columns - j : COLUMNS;

		for (size_t i = 0; i < rows; i += ROWS) {
			const size_t nrows = rows - i < ROWS ? rows - i : ROWS;
			const float *from = a + i * inner;
			float *to = c + i * columns + j;

			if (nrows == ROWS && ncolumns == COLUMNS)
				product_block(from, b + j, inner, columns, to);
			else
				product_rest(from, b + j, inner, columns, nrows, ncolumns, to);
		}
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

/* Divide by the norm, which is at least @eps; all in BF16. */
static void normalize(float *x, size_t n, float eps)
{
	float norm = tsr_bf16_round((float)sqrt(tsr_step_sum_of_squares(x, n)));

	eps = tsr_bf16_round(eps);
	norm = norm < eps ? eps : norm;
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_bf16_round(x[i] / norm);
}

/* The buffers of a matrix that is no taller than wide. */
struct rounds {
	size_t rows, columns;
	float *x, *y; /* rows x columns */
	float *a, *b; /* rows x rows */
};

static void run_round(struct rounds *r)
{
	const size_t square = r->rows * r->rows, n = r->rows * r->columns;
	float *x = r->x;

	transpose(x, r->rows, r->columns, r->y);
	multiply(x, r->y, r->rows, r->columns, r->rows, r->a);
	for (size_t i = 0; i < square; i++)
		r->a[i] = tsr_bf16_round(r->a[i]);
	multiply(r->a, r->a, r->rows, r->rows, r->rows, r->b);
	for (size_t i = 0; i < square; i++)
		r->b[i] = tsr_step_muon_b(r->a[i], r->b[i]);
	multiply(r->b, x, r->rows, r->rows, r->columns, r->y);
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_step_muon_x(x[i], r->y[i]);
}

void TSR_FOR_ISA(step_matrix)(const struct tsr_step *step, const float *g, const float *m, float *w)
{
	const struct tsr_step_scalars s = step->scalars;
	const size_t n = (size_t)(step->rows * step->columns);
	const bool tall = step->rows > step->columns;
	struct rounds r = { .rows = (size_t)(tall ? step->columns : step->rows),
			    .columns = (size_t)(tall ? step->rows : step->columns),
			    .x = step->work,
			    .y = step->work + n };
	float *update = tall ? r.y : r.x;

	r.a = r.y + n;
	r.b = r.a + r.rows * r.rows;
	for (size_t i = 0; i < n; i++)
		update[i] = tsr_bf16_round(tsr_step_muon_update(&s, g[i], m[i]));
	if (tall)
		transpose(r.y, r.columns, r.rows, r.x);
	normalize(r.x, n, s.eps);
	for (unsigned i = 0; i < TSR_MUON_ROUNDS; i++)
		run_round(&r);
	if (tall)
		transpose(r.x, r.rows, r.columns, r.y);
	for (size_t i = 0; i < n; i++)
		w[i] = tsr_one_nan(tsr_step_move(&s, update[i], w[i] * s.keep));
}
