/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matrix made nearly orthogonal by Muon's five rounds of Newton and Schulz, in FP32: what muon_simd.c does
 * in BF16, whose own rounding would hide the errors that are measured here.
 */
#include <math.h>

#include "step/simd.h"

/* Not fused: a sum has the same bits on every processor. */
#define PRODUCT_ADD(a, b, sum) ((sum) + (a) * (b))
#include "step/simd/matrix_product.h"

void TSR_FOR_ISA(step_orthogonalize)(float *x, size_t rows, size_t columns, float *work)
{
	const size_t n = rows * columns, least = rows < columns ? rows : columns,
		     square = least * least;
	float *y = work, *a = y + n, *b = a + square, *panel = b + square;
	const struct product xx = { x, y, least, n / least, least };
	const struct product aa = { a, a, least, least, least };
	const struct product bx = { b, x, least, least, n / least };
	const float norm = (float)sqrt(tsr_step_sum_of_squares(x, n));

	if (rows > columns) {
		transpose(x, rows, columns, y);
		memcpy(x, y, n * sizeof(*x));
	}
	for (size_t i = 0; i < n && norm > 0; i++)
		x[i] /= norm;
	for (unsigned round = 0; round < TSR_MUON_ROUNDS; round++) {
		transpose(x, least, n / least, y);
		multiply(&xx, true, panel, a);
		mirror(a, least);
		multiply(&aa, true, panel, b);
		mirror(b, least);
		for (size_t i = 0; i < square; i++)
			b[i] = (float)TSR_MUON_B * a[i] + (float)TSR_MUON_C * b[i];
		multiply(&bx, false, panel, y);
		for (size_t i = 0; i < n; i++)
			x[i] = (float)TSR_MUON_A * x[i] + y[i];
	}
}
