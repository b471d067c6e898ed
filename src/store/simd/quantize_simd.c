/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over elements of quantizing and of errors. */
#include <math.h>

#include "codec/math.h"
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

static inline float update(float m, float v, float eps)
{
	return m / (sqrtf(v) + eps);
}

static inline void add_update(float m, float v, float y, float w, float eps, double *sum,
			      double *all)
{
	const double u = update(m, v, eps);

	*sum += square(update(y, w, eps) - u);
	*all += u * u;
}

double TSR_FOR_ISA(sum_update_errors)(const float *const x[2], const float *const y[2], size_t n,
				      float eps, double *all_ref)
{
	const float *const m = x[0], *const v = x[1], *const z = y[0], *const w = y[1];
	double sum[LANES] = { 0 }, all[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(k, 0)
	add_update(m[i + k], v[i + k], z[i + k], w[i + k], eps, &sum[k], &all[k]);
	for (; i < n; i++)
		add_update(m[i], v[i], z[i], w[i], eps, &sum[i % LANES], &all[i % LANES]);
	*all_ref += add_lanes(all);
	return add_lanes(sum);
}

static inline void add_root(float x, float y, double *sum, double *all)
{
	const double root = sqrtf(x);

	*sum += square(sqrtf(y) - root);
	*all += root * root;
}

double TSR_FOR_ISA(sum_root_errors)(const float *x, const float *y, size_t n, double *all_ref)
{
	double sum[LANES] = { 0 }, all[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(k, 0)
	add_root(x[i + k], y[i + k], &sum[k], &all[k]);
	for (; i < n; i++)
		add_root(x[i], y[i], &sum[i % LANES], &all[i % LANES]);
	*all_ref += add_lanes(all);
	return add_lanes(sum);
}

uint32_t TSR_FOR_ISA(largest_bits)(const float *x, size_t n, uint32_t mask)
{
	uint32_t most = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t bits = tsr_bits_from_f32(x[i]) & mask;

		most = bits > most ? bits : most;
	}
	return most;
}

/* 2^-7 of the power of two at or below a number; of subnormal ones that of the smallest. */
static inline double distance(float x)
{
	const uint32_t power = tsr_bits_from_f32(x) & TSR_F32_INF;

	return (double)tsr_f32_from_bits(power ? power : 0x00800000) * 0x1p-7;
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

/* A quotient as an integer, 0 if it is too large to be one; the largest is noted. */
static inline int32_t integer(float q, float *most)
{
	const float size = fabsf(q);

	*most = size > *most ? size : *most;
	return (int32_t)round_f32(size < TSR_INTEGER_MAX ? q : 0);
}

static float largest(const float most[LANES])
{
	float all = 0;

	for (unsigned i = 0; i < LANES; i++)
		all = most[i] > all ? most[i] : all;
	return all;
}

float TSR_FOR_ISA(quantize_steps)(const float *x, const float *base, size_t n, float step,
				  int32_t *k)
{
	float most[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(j, 0)
	k[i + j] = integer((x[i + j] - base[i + j]) / step, &most[j]);
	for (; i < n; i++)
		k[i] = integer((x[i] - base[i]) / step, &most[0]);
	return largest(most);
}

void TSR_FOR_ISA(steps_undo)(const int32_t *k, const float *base, size_t n, float step, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = base[i] + (float)k[i] * step;
}

/* --- Momenta ---------------------------------------------------------------------------------- */

float TSR_FOR_ISA(quantize_ratios)(const float *m, const float *v, size_t n, float eps, float step,
				   int32_t *k)
{
	float most[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		EACH(j, 0)
	k[i + j] = integer(update(m[i + j], v[i + j], eps) / step, &most[j]);
	for (; i < n; i++)
		k[i] = integer(update(m[i], v[i], eps) / step, &most[0]);
	return largest(most);
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

	return tsr_f32_from_bits(k == TSR_INTEGER_NONE ? 0 : (uint32_t)(int32_t)near);
}

void TSR_FOR_ISA(quantize_logs)(const float *v, size_t n, double row, const double *column,
				double step, int32_t *k)
{
	for (size_t i = 0; i < n; i++) {
		const double predicted = column ? row + column[i] : row;
		const int32_t bits = (int32_t)tsr_bits_from_f32(v[i]);

		k[i] = bits ? (int32_t)(((bits - predicted) / step + TSR_ROUND_F64) - TSR_ROUND_F64)
			    : TSR_INTEGER_NONE;
	}
}

void TSR_FOR_ISA(logs_undo)(const int32_t *k, size_t n, double row, const double *column,
			    double step, float *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = log_value(column ? row + column[i] : row, k[i], step);
}
