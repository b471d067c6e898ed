/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon: the update of a matrix is made nearly orthogonal by five rounds of Newton and Schulz.  Matrices hold
 * values of BF16.  An element of a product of matrices is the sum of products in ascending order, each
 * addition rounded, whatever the SIMD level: vectors run along columns.  A GPU adds in this order, too.
 */
#include <math.h>
#include <string.h>

#include "codec/loops.h"
#include "step/simd.h"

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
				sum[i][j] = tsr_step_muon_add(factor, x[k * COLUMNS + j],
							      sum[i][j]);
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
			sums[j] = tsr_step_muon_add(a[k], x[k * COLUMNS + j], sums[j]);
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
