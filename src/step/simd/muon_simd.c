/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon: the update of a matrix is made nearly orthogonal by five rounds of Newton and Schulz.  Matrices hold
 * values of BF16.  An element of a product of matrices is the sum of products in ascending order, each
 * addition rounded, whatever the SIMD level: vectors run along columns.  A GPU adds in this order, too.
 */
#include <math.h>
#include <string.h>

#include "step/simd.h"

/* Products are exact: it makes no difference whether they are added by a fused operation. */
#define PRODUCT_ADD tsr_step_muon_add
#include "step/simd/matrix_product.h"

/* Divide by the norm, which is at least @eps; all in BF16. */
static void normalize(float *x, size_t n, float eps)
{
	const float norm = tsr_bf16_round((float)sqrt(tsr_step_sum_of_squares(x, n)));

	for (size_t i = 0; i < n; i++)
		x[i] = tsr_step_muon_scaled(x[i], norm, eps);
}

/* The buffers of a matrix that is no taller than wide. */
struct rounds {
	size_t rows, columns;
	float *x, *y; /* rows x columns */
	float *a, *b; /* rows x rows */
	float *panel; /* TSR_MUON_PANEL */
};

static void run_round(struct rounds *r)
{
	const size_t rows = r->rows, square = rows * rows, n = rows * r->columns;
	const struct product a = { r->x, r->y, rows, r->columns, rows };
	const struct product aa = { r->a, r->a, rows, rows, rows };
	const struct product bx = { r->b, r->x, rows, rows, r->columns };

	transpose(r->x, rows, r->columns, r->y);
	multiply(&a, true, r->panel, r->a);
	mirror(r->a, rows);
	for (size_t i = 0; i < square; i++)
		r->a[i] = tsr_step_muon_round(r->a[i]);
	multiply(&aa, true, r->panel, r->b);
	mirror(r->b, rows);
	for (size_t i = 0; i < square; i++)
		r->b[i] = tsr_step_muon_b(r->a[i], r->b[i]);
	multiply(&bx, false, r->panel, r->y);
	for (size_t i = 0; i < n; i++)
		r->x[i] = tsr_step_muon_x(r->x[i], r->y[i]);
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
	r.panel = r.b + r.rows * r.rows;
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
