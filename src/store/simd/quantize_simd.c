/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over elements of quantizing and of errors. */
#include <math.h>
#include <string.h>

#include "store/integers.h"
#include "store/quantize_loops.h"

#define LANES TSR_SUM_LANES

/* Elements that a loop takes at once, so that compilers see its length. */
#define EACH(i, from) for (size_t i = (from), each_end = (from) + LANES; i < each_end; i++)

static double add_lanes(const double sum[LANES])
{
	double all = 0;

	for (unsigned i = 0; i < LANES; i++)
		all += sum[i];
	return all;
}

static inline double square(double x)
{
	return x * x;
}

/* --- Sums ------------------------------------------------------------------------------------- */

double TSR_FOR_ISA(sum_differences)(const float *a, const float *b, size_t n)
{
	double sum[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(k, 0)
	sum[k] += square((double)a[i + k] - b[i + k]);
	for (; i < n; i++)
		sum[i % LANES] += square((double)a[i] - b[i]);
	return add_lanes(sum);
}

double TSR_FOR_ISA(sum_updates)(const float *m, const float *v, size_t n, float eps)
{
	double sum[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(k, 0)
	sum[k] += square(m[i + k] / (sqrtf(v[i + k]) + eps));
	for (; i < n; i++)
		sum[i % LANES] += square(m[i] / (sqrtf(v[i]) + eps));
	return add_lanes(sum);
}

double TSR_FOR_ISA(sum_total)(const float *x, size_t n)
{
	double sum[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(k, 0)
	sum[k] += x[i + k];
	for (; i < n; i++)
		sum[i % LANES] += x[i];
	return add_lanes(sum);
}

double TSR_FOR_ISA(sum_update_errors)(const float *const x[2], const float *const y[2], size_t n,
				      float eps, double *all_ref)
{
	double sum[LANES] = { 0 }, all[LANES] = { 0 };

	for (size_t i = 0; i < n; i++) {
		const double u = x[0][i] / (sqrtf(x[1][i]) + eps);

		sum[i % LANES] += square(y[0][i] / (sqrtf(y[1][i]) + eps) - u);
		all[i % LANES] += u * u;
	}
	*all_ref += add_lanes(all);
	return add_lanes(sum);
}

double TSR_FOR_ISA(sum_root_errors)(const float *x, const float *y, size_t n, double *all_ref)
{
	double sum[LANES] = { 0 }, all[LANES] = { 0 };

	for (size_t i = 0; i < n; i++) {
		const double root = sqrtf(x[i]);

		sum[i % LANES] += square(sqrtf(y[i]) - root);
		all[i % LANES] += root * root;
	}
	*all_ref += add_lanes(all);
	return add_lanes(sum);
}

/* 2^-7 of the power of two at or below a number; of subnormal ones that of the smallest. */
static inline double distance(float x)
{
	uint32_t bits;
	float power;

	memcpy(&bits, &x, sizeof(bits));
	bits &= 0x7f800000;
	bits = bits ? bits : 0x00800000;
	memcpy(&power, &bits, sizeof(power));
	return (double)power * 0x1p-7;
}

double TSR_FOR_ISA(sum_distances)(const float *x, size_t n)
{
	double sum[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(k, 0)
	sum[k] += square(distance(x[i + k]));
	for (; i < n; i++)
		sum[i % LANES] += square(distance(x[i]));
	return add_lanes(sum);
}

/* --- Weights ---------------------------------------------------------------------------------- */

static inline float round_f32(float x)
{
	return (x + TSR_ROUND_F32) - TSR_ROUND_F32;
}

static inline double step_one(float x, float base, float step, int32_t *k, float *y, float *most)
{
	const float q = (x - base) / step, size = fabsf(q);
	const float rounded = round_f32(size < TSR_INTEGER_MAX ? q : 0);

	*most = size > *most ? size : *most;
	*k = (int32_t)rounded;
	*y = base + rounded * step;
	return square((double)*y - x);
}

static float largest(const float most[LANES])
{
	float all = 0;

	for (unsigned i = 0; i < LANES; i++)
		all = most[i] > all ? most[i] : all;
	return all;
}

double TSR_FOR_ISA(quantize_steps)(const float *x, const float *base, size_t n, float step,
				   int32_t *k, float *y)
{
	double sum[LANES] = { 0 };
	float most[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(j, 0)
	sum[j] += step_one(x[i + j], base[i + j], step, &k[i + j], &y[i + j], &most[j]);
	for (; i < n; i++)
		sum[i % LANES] += step_one(x[i], base[i], step, &k[i], &y[i], &most[i % LANES]);
	return largest(most) < TSR_INTEGER_MAX ? add_lanes(sum) : INFINITY;
}

void TSR_FOR_ISA(steps_undo)(const int32_t *k, const float *base, size_t n, float step, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = base[i] + (float)k[i] * step;
}

/* --- Momenta ---------------------------------------------------------------------------------- */

static inline double ratio_one(float m, float v, float w, float eps, float step, int32_t *k,
			       float *y, float *most)
{
	const float u = m / (sqrtf(v) + eps), scale = sqrtf(w) + eps, size = fabsf(u / step);
	const float rounded = round_f32(size < TSR_INTEGER_MAX ? u / step : 0);

	*most = size > *most ? size : *most;
	*k = (int32_t)rounded;
	*y = (rounded * step) * scale;
	return square((double)(*y / scale) - u);
}

double TSR_FOR_ISA(quantize_ratios)(const float *m, const float *v, const float *w, size_t n,
				    float eps, float step, int32_t *k, float *y)
{
	double sum[LANES] = { 0 };
	float most[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(j, 0)
	sum[j] += ratio_one(m[i + j], v[i + j], w[i + j], eps, step, &k[i + j], &y[i + j],
			    &most[j]);
	for (; i < n; i++)
		sum[i % LANES] += ratio_one(m[i], v[i], w[i], eps, step, &k[i], &y[i],
					    &most[i % LANES]);
	return largest(most) < TSR_INTEGER_MAX ? add_lanes(sum) : INFINITY;
}

void TSR_FOR_ISA(ratios_undo)(const int32_t *k, const float *w, size_t n, float eps, float step,
			      float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = ((float)k[i] * step) * (sqrtf(w[i]) + eps);
}

/* --- Variances -------------------------------------------------------------------------------- */

#define LEAST 1.0 /* of the bits of a positive number */
#define MOST 0x7f7fffff.p0

/* The number whose bits are @k steps from what is predicted. */
static inline float log_value(double predicted, int32_t k, double step)
{
	const double far = predicted + k * step;
	const double near = far < LEAST ? LEAST : far > MOST ? MOST : far;
	const int32_t bits = k == TSR_INTEGER_NONE ? 0 : (int32_t)near;
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline double log_one(float v, double predicted, double step, int32_t *k, float *y)
{
	int32_t bits;
	double q;

	memcpy(&bits, &v, sizeof(bits));
	q = ((bits - predicted) / step + TSR_ROUND_F64) - TSR_ROUND_F64;
	*k = bits ? (int32_t)q : TSR_INTEGER_NONE;
	*y = log_value(predicted, *k, step);
	return square((double)sqrtf(*y) - sqrtf(v));
}

double TSR_FOR_ISA(quantize_logs)(const float *v, size_t n, double row, const double *column,
				  double step, int32_t *k, float *y)
{
	double sum[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(j, 0)
	sum[j] += log_one(v[i + j], column ? row + column[i + j] : row, step, &k[i + j], &y[i + j]);
	for (; i < n; i++)
		sum[i % LANES] += log_one(v[i], column ? row + column[i] : row, step, &k[i], &y[i]);
	return add_lanes(sum);
}

void TSR_FOR_ISA(logs_undo)(const int32_t *k, size_t n, double row, const double *column,
			    double step, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = log_value(column ? row + column[i] : row, k[i], step);
}
