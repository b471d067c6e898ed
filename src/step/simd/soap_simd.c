/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SOAP: Adam in the eigenbases of the sides of a matrix.  Sums are in ascending order and not fused, so they
 * have the same bits on every SIMD level: vectors run along columns.
 *
 * A column of a basis with the other sign, and columns in another order with the rows or columns of the
 * variance in the same one, give the same weights.  Stored bases are compared with those of programs, and the
 * momentum may be kept in them: signs are those of LAPACK, the order is that of falling eigenvalues.
 */
#include <math.h>
#include <stdlib.h>

#include "base/order.h"
#include "step/simd.h"

#define PRODUCT_ADD(a, b, sum) ((sum) + (a) * (b))
#include "step/simd/matrix_product.h"

/* A column of a basis, and the estimate of its eigenvalue. */
struct place {
	float value;
	uint32_t column;
};

TSR_COMPARE_BY(by_value, struct place, TSR_ORDER(b->value, a->value),
	       TSR_ORDER(a->column, b->column))

/* A step, and its work space. */
struct soap {
	const struct tsr_step_soap *s;
	size_t side[2]; /* rows, columns */
	const float *now[2]; /* the basis of each side; NULL: it has none, and is left as it is */
	float *next[TSR_BASES]; /* what becomes of factors and bases: see tsr_step_turn() */
	float *x, *y; /* of the matrix */
	float *square; /* of the longer side that has a basis */
	float *line, *scale; /* a number per element of that side */
	float *strip; /* COLUMNS of them */
	struct place *places; /* one as well */
	float *panel; /* TSR_MUON_PANEL */
};

static float *take(float **at, size_t n)
{
	*at += n;
	return *at - n;
}

static struct soap take_space(const struct tsr_step *step)
{
	const size_t n = (size_t)(step->rows * step->columns);
	const size_t most = (size_t)(step->side[0] > step->side[1] ? step->side[0] : step->side[1]);
	struct soap k = { .s = &step->scalars.soap,
			  .side = { (size_t)step->rows, (size_t)step->columns },
			  .now = { step->basis[2], step->basis[3] } };
	float *at = step->work;

	for (unsigned i = 0; i < TSR_BASES; i++)
		k.next[i] = take(&at, (size_t)(step->side[i % 2] * step->side[i % 2]));
	k.square = take(&at, most * most);
	k.line = take(&at, most);
	k.scale = take(&at, most);
	k.strip = take(&at, most * COLUMNS);
	k.places = (void *)take(&at, 2 * most);
	k.x = take(&at, n);
	k.y = take(&at, n);
	k.panel = at;
	return k;
}

/* Turn both sides of @x: each time x = x^T q, or with the transposed basis to go @back. */
static void turn(const struct soap *k, float *x, const float *const basis[], bool back)
{
	for (unsigned side = 0; side < 2; side++) {
		const size_t rows = k->side[side], columns = k->side[1 - side];
		const float *q = basis[side];
		const struct product p = { k->y, back ? k->square : q, columns, rows, rows };

		transpose(x, rows, columns, k->y);
		if (q && back)
			transpose(q, rows, rows, k->square);
		if (q)
			multiply(&p, false, k->panel, x);
		else
			memcpy(x, k->y, rows * columns * sizeof(*x));
	}
}

/* --- Adam ------------------------------------------------------------------------------------- */

static void move_weights(const struct soap *k, const struct tsr_step_scalars *s, const float *g,
			 float *const slot[])
{
	const size_t n = k->side[0] * k->side[1];
	float *w = slot[TSR_SLOT_WEIGHT], *m = slot[TSR_SLOT_MOMENTUM];
	float *v = slot[TSR_SLOT_VARIANCE], *x = k->x;
	float norm = 1.0f;

	memcpy(x, g, n * sizeof(*x));
	turn(k, x, k->now, false);
	for (size_t i = 0; i < n; i++) {
		m[i] = tsr_one_nan(s->beta1 * m[i] + s->rest1 * (k->s->turns ? x[i] : g[i]));
		v[i] = tsr_one_nan(s->beta2 * v[i] + s->rest2 * (x[i] * x[i]));
	}
	memcpy(x, m, n * sizeof(*x));
	if (!k->s->turns)
		turn(k, x, k->now, false);
	for (size_t i = 0; i < n; i++)
		x[i] /= tsr_sqrt(v[i]) + s->eps;
	turn(k, x, k->now, true);
	if (k->s->normalizes)
		norm = (float)sqrt(tsr_step_sum_of_squares(x, n) / (double)n) + k->s->least;
	for (size_t i = 0; i < n; i++)
		w[i] = tsr_one_nan((w[i] + s->rate * (x[i] / norm)) * s->keep);
}

/* --- Factors and bases ------------------------------------------------------------------------ */

/* Of one side: the mean of g g^T, of which both halves are the same sums. */
static void move_factor(const struct soap *k, const float *factor, const float *g, unsigned side)
{
	const size_t n = k->side[side], other = k->side[1 - side];
	const struct product p = { side ? k->y : g, side ? g : k->y, n, other, n };
	float *next = k->next[side];

	transpose(g, k->side[0], k->side[1], k->y);
	multiply(&p, true, k->panel, k->square);
	mirror(k->square, n);
	for (size_t i = 0; i < n * n; i++)
		next[i] = k->s->beta * factor[i] + k->s->rest * k->square[i];
}

/*
 * The reflection that makes a column zero below row @at, as LAPACK has it: the element there changes its
 * sign.  Its vector becomes row @at of the square, and what it is scaled by k->scale[at]: 0 for none.
 */
static void find_reflection(const struct soap *k, const float *column, size_t n, size_t at)
{
	const double head = column[at * COLUMNS];
	float *v = k->square + at * n;
	double rest = 0, beta;

	for (size_t i = at + 1; i < n; i++)
		rest += (double)column[i * COLUMNS] * (double)column[i * COLUMNS];
	k->scale[at] = 0.0f;
	if (rest == 0)
		return;
	beta = -copysign(sqrt(head * head + rest), head);
	v[at] = 1.0f;
	for (size_t i = at + 1; i < n; i++)
		v[i] = (float)((double)column[i * COLUMNS] / (head - beta));
	k->scale[at] = (float)((beta - head) / beta);
}

/* Reflect a strip of @n rows by a vector. */
static void reflect(const float *restrict v, float scale, size_t n, float *restrict x)
{
	float line[COLUMNS] = { 0.0f };

	for (size_t i = 0; i < n && scale != 0.0f; i++) {
		WHOLE
		for (size_t j = 0; j < COLUMNS; j++)
			line[j] += v[i] * x[i * COLUMNS + j];
	}
	for (size_t i = 0; i < n && scale != 0.0f; i++) {
		const float factor = scale * v[i];

		WHOLE
		for (size_t j = 0; j < COLUMNS; j++)
			x[i * COLUMNS + j] -= factor * line[j];
	}
}

/* Make @a, of @n x @n, the Q of its QR decomposition.  A strip of columns stays in the cache. */
static void orthogonalize(const struct soap *k, float *a, size_t n)
{
	const struct product all = { .b = a, .columns = n };
	struct panel strip = { .n = n, .x = k->strip };

	for (size_t j = 0; j < n; j += COLUMNS) {
		strip.column = j;
		strip.ncolumns = n - j < COLUMNS ? n - j : COLUMNS;
		fill_panel(&all, &strip);
		for (size_t at = 0; at < j + strip.ncolumns; at++) {
			if (at >= j)
				find_reflection(k, strip.x + (at - j), n, at);
			reflect(k->square + at * n + at, k->scale[at], n - at,
				strip.x + at * COLUMNS);
		}
	}
	for (size_t j = 0; j < n; j += COLUMNS) {
		const size_t ncolumns = n - j < COLUMNS ? n - j : COLUMNS;

		memset(strip.x, 0, n * COLUMNS * sizeof(float));
		for (size_t i = 0; i < ncolumns; i++)
			strip.x[(j + i) * COLUMNS + i] = 1.0f;
		for (size_t at = j + ncolumns; at-- > 0;)
			reflect(k->square + at * n + at, k->scale[at], n - at,
				strip.x + at * COLUMNS);
		for (size_t i = 0; i < n; i++)
			memcpy(a + i * n + j, strip.x + i * COLUMNS, ncolumns * sizeof(float));
	}
}

/* Put the rows or columns of a variance into the order of the new basis. */
static void sort_variance(const struct soap *k, unsigned side, float *v)
{
	const size_t rows = k->side[0], columns = k->side[1];

	for (size_t i = 0; i < rows; i++) {
		for (size_t j = 0; j < columns; j++)
			k->y[i * columns + j] = side ? v[i * columns + k->places[j].column]
						     : v[k->places[i].column * columns + j];
	}
	memcpy(v, k->y, rows * columns * sizeof(*v));
}

/* One round of power iteration from the basis as it is, its columns by falling eigenvalues; then QR. */
static void refresh(const struct soap *k, unsigned side, float *variance)
{
	const size_t n = k->side[side];
	const float *q = k->now[side];
	const struct product p = { k->next[side], q, n, n, n };
	float *next = k->next[2 + side], *line = k->line;

	multiply(&p, false, k->panel, k->square);
	memset(line, 0, n * sizeof(*line));
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < n; j++)
			line[j] += q[i * n + j] * k->square[i * n + j];
	}
	for (size_t j = 0; j < n; j++)
		k->places[j] = (struct place){ line[j] == line[j] ? line[j] : -INFINITY,
					       (uint32_t)j };
	qsort(k->places, n, sizeof(*k->places), by_value);
	sort_variance(k, side, variance);
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < n; j++)
			next[i * n + j] = k->square[i * n + k->places[j].column];
	}
	orthogonalize(k, next, n);
}

void TSR_FOR_ISA(step_soap)(const struct tsr_step *step, const float *g, float *const slot[])
{
	const struct soap k = take_space(step);
	const float *next[2] = { NULL };

	move_weights(&k, &step->scalars, g, slot);
	/* Also where the bases stay: what their rounding does to the momentum is part of the program. */
	if (k.s->turns)
		turn(&k, slot[TSR_SLOT_MOMENTUM], k.now, true);
	for (unsigned side = 0; side < 2; side++) {
		if (!k.now[side])
			continue;
		next[side] = k.next[2 + side];
		move_factor(&k, step->basis[side], g, side);
		if (k.s->refreshes)
			refresh(&k, side, slot[TSR_SLOT_VARIANCE]);
		else
			memcpy(k.next[2 + side], k.now[side],
			       k.side[side] * k.side[side] * sizeof(float));
	}
	if (k.s->turns)
		turn(&k, slot[TSR_SLOT_MOMENTUM], next, false);
}
