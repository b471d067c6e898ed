/* SPDX-License-Identifier: Apache-2.0 */
/* Training state as integers whose error is bounded. */
#include "store/quantize.h"

#include <math.h>
#include <string.h>

/* How often a step is made smaller whose error is above the bound, and by how much. */
#define TRIES 12
#define SMALLER 0.9

/* Integers are exact in FP32. */
#define INTEGER_MAX 0x1p24f

static double square(double x)
{
	return x * x;
}

/* The step of a uniform quantizer whose error, step^2 / 12, has this mean square. */
static double step_of(double mean_square)
{
	return sqrt(12 * mean_square);
}

/* Whether quotients by a step make sense. */
static bool is_step(float step)
{
	return step >= 0x1p-120f && step <= 0x1p120f;
}

/* --- Weights ---------------------------------------------------------------------------------- */

void tsr_dequantize_steps(const int32_t *k, const float *base, size_t n, float step, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = base[i] + (float)k[i] * step;
}

/* False if an integer is too large. */
static bool divide(const float *x, const float *base, size_t n, float step, int32_t *k)
{
	float most = 0;

	for (size_t i = 0; i < n; i++) {
		const float q = nearbyintf((x[i] - base[i]) / step);

		most = fabsf(q) > most ? fabsf(q) : most;
		k[i] = fabsf(q) < INTEGER_MAX ? (int32_t)q : 0;
	}
	return most < INTEGER_MAX;
}

static double sum_differences(const float *a, const float *b, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += square((double)a[i] - b[i]);
	return sum;
}

float tsr_quantize_steps(const float *x, const float *base, size_t n, double bound, int32_t *k,
			 float *y)
{
	const double moved = sum_differences(x, base, n);
	double step = step_of(bound * moved / (double)n);

	for (int i = 0; i < TRIES; i++, step *= SMALLER) {
		if (!is_step((float)step) || !divide(x, base, n, (float)step, k))
			return 0;
		tsr_dequantize_steps(k, base, n, (float)step, y);
		if (sum_differences(y, x, n) <= bound * moved)
			return (float)step;
	}
	return 0;
}

/* --- Momenta ---------------------------------------------------------------------------------- */

void tsr_dequantize_ratios(const int32_t *k, const float *w, size_t n, float eps, float step,
			   float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = ((float)k[i] * step) * (sqrtf(w[i]) + eps);
}

static double sum_updates(const float *m, const float *v, size_t n, float eps)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += square(m[i] / (sqrtf(v[i]) + eps));
	return sum;
}

/* The error of the updates of @y and @w; infinite if an integer is too large. */
static double try_ratios(const float *m, const float *v, const float *w, size_t n, float eps,
			 float step, int32_t *k, float *y)
{
	float most = 0;
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		const float u = m[i] / (sqrtf(v[i]) + eps), q = nearbyintf(u / step);
		const float scale = sqrtf(w[i]) + eps;

		most = fabsf(q) > most ? fabsf(q) : most;
		k[i] = fabsf(q) < INTEGER_MAX ? (int32_t)q : 0;
		y[i] = ((float)k[i] * step) * scale;
		sum += square((double)(y[i] / scale) - u);
	}
	return most < INTEGER_MAX ? sum : INFINITY;
}

float tsr_quantize_ratios(const float *m, const float *v, const float *w, size_t n, float eps,
			  double bound, int32_t *k, float *y)
{
	const double all = sum_updates(m, v, n, eps);
	double step = step_of(bound * all / (double)n);

	for (int i = 0; i < TRIES; i++, step *= SMALLER) {
		if (!is_step((float)step))
			return 0;
		if (try_ratios(m, v, w, n, eps, (float)step, k, y) <= bound * all)
			return (float)step;
	}
	return 0;
}

/* --- Variances -------------------------------------------------------------------------------- */

#define UNIT_BITS 20
#define LEAST 1 /* of the bits of a positive number */
#define MOST 0x7f7fffff

static int32_t bits_of(float x)
{
	int32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* A mean difference in whole units. */
static int8_t units(double sum, uint32_t count)
{
	const double x = count ? nearbyint(sum / count / (1 << UNIT_BITS)) : 0;

	return (int8_t)(x < -127 ? -127 : x > 127 ? 127 : x);
}

static double mean_bits(const float *v, size_t n)
{
	double sum = 0;
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		sum += bits_of(v[i]);
		count += v[i] > 0;
	}
	return count ? sum / (double)count : 0;
}

/* The means of the rows, or given those, of the columns. */
static void find_means(struct tsr_integers *w, const struct tsr_block *b, uint32_t rows,
		       const float *v, double all, bool columns)
{
	const uint32_t nlines = columns ? b->columns : rows;
	double *const sum = w->sums;
	uint32_t r = 0, c = b->phase, *const count = (uint32_t *)(void *)w->contexts;

	memset(sum, 0, nlines * sizeof(*sum));
	memset(count, 0, nlines * sizeof(*count));
	for (uint32_t i = 0; i < b->n; i++) {
		const uint32_t line = columns ? c : r;

		if (v[i] > 0) {
			sum[line] += bits_of(v[i]) - all;
			sum[line] -= columns ? (double)w->lines[r] * (1 << UNIT_BITS) : 0;
			count[line]++;
		}
		if (++c == b->columns) {
			c = 0;
			r++;
		}
	}
	for (uint32_t i = 0; i < nlines; i++)
		w->lines[columns ? rows + i : i] = units(sum[i], count[i]);
}

void tsr_logs_find_means(struct tsr_integers *w, const struct tsr_block *b, const float *v,
			 int32_t *all_ret)
{
	const uint32_t rows = tsr_block_rows(b);

	*all_ret = (int32_t)mean_bits(v, b->n);
	if (!rows)
		return;
	find_means(w, b, rows, v, *all_ret, false);
	find_means(w, b, rows, v, *all_ret, true);
}

/* What is predicted of an element, and the number that is as many steps away. */
struct place {
	uint32_t row, column, rows;
};

static int64_t predict(const struct tsr_block *b, const struct tsr_logs *logs, struct place *p)
{
	int64_t bits = logs->all;

	if (!p->rows)
		return bits;
	bits += ((int64_t)logs->lines[p->row] + logs->lines[p->rows + p->column]) *
		(1 << UNIT_BITS);
	if (++p->column == b->columns) {
		p->column = 0;
		p->row++;
	}
	return bits;
}

static float value_of(int64_t predicted, int32_t k, uint32_t step)
{
	const int64_t far = predicted + (int64_t)k * step;
	const int32_t bits = (int32_t)(far < LEAST ? LEAST : far > MOST ? MOST : far);
	float x;

	if (k == TSR_INTEGER_NONE)
		return 0;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

void tsr_dequantize_logs(const struct tsr_block *b, const struct tsr_logs *logs, const int32_t *k,
			 float *y)
{
	struct place p = { 0, b->phase, logs->lines ? tsr_block_rows(b) : 0 };

	for (uint32_t i = 0; i < b->n; i++)
		y[i] = value_of(predict(b, logs, &p), k[i], logs->step);
}

static double sum_roots(const float *y, const float *v, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += square((double)sqrtf(y[i]) - sqrtf(v[i]));
	return sum;
}

static void try_logs(const struct tsr_block *b, const struct tsr_logs *logs, const float *v,
		     int32_t *k, float *y)
{
	struct place p = { 0, b->phase, logs->lines ? tsr_block_rows(b) : 0 };
	const float per_step = 1.0f / (float)logs->step;

	for (uint32_t i = 0; i < b->n; i++) {
		const int64_t predicted = predict(b, logs, &p);
		const float q = (float)(bits_of(v[i]) - predicted) * per_step;

		k[i] = v[i] > 0 ? (int32_t)nearbyintf(q) : TSR_INTEGER_NONE;
		y[i] = value_of(predicted, k[i], logs->step);
	}
}

uint32_t tsr_quantize_logs(const struct tsr_block *b, struct tsr_logs *logs, const float *v,
			   double bound, int32_t *k, float *y)
{
	/* A step d of the bits is one of d / 2^23 octaves, of which a root has half, on average 0.54 of it. */
	double step = sqrt(48 / 0.541 * bound) * (1 << 23), all = 0;

	for (uint32_t i = 0; i < b->n; i++)
		all += v[i];
	for (int i = 0; i < 2 * TRIES; i++, step *= SMALLER) {
		logs->step = step < 1 ? 1 : step > 0x1p27 ? 1u << 27 : (uint32_t)step;
		try_logs(b, logs, v, k, y);
		if (sum_roots(y, v, b->n) <= bound * all)
			return logs->step;
	}
	return 0;
}
