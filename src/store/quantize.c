/* SPDX-License-Identifier: Apache-2.0 */
/* Training state as integers whose error is bounded. */
#include "store/quantize.h"

#include <math.h>
#include <string.h>

#include "codec/math.h"
#include "store/quantize_loops.h"

/* How often a step is made smaller whose error is above the bound, and a little more than it should need. */
#define TRIES 8
#define MARGIN 0.995

#define UNIT_BITS 20

/* Calls one of the loops. */
#define LOOP(name, type) static type *const name[] = TSR_ISA_VARIANTS(name)

LOOP(quantize_steps, tsr_steps_fn);
LOOP(quantize_ratios, tsr_ratios_fn);
LOOP(quantize_logs, tsr_logs_fn);
LOOP(steps_undo, tsr_steps_undo_fn);
LOOP(ratios_undo, tsr_ratios_undo_fn);
LOOP(logs_undo, tsr_logs_undo_fn);
LOOP(sum_differences, tsr_differences_fn);
LOOP(sum_update_errors, tsr_errors_fn);
LOOP(sum_root_errors, tsr_roots_fn);

/* The step of a uniform quantizer whose error, step^2 / 12, has this mean square. */
static double step_of(double mean_square)
{
	return sqrt(12 * mean_square);
}

/* Whether quotients by a step make sense. */
static bool is_step(double step)
{
	return step >= 0x1p-120 && step <= 0x1p120;
}

/* The next step to try after one with too large an error. */
static double smaller(double step, double error, double most)
{
	return step * sqrt(most / error) * MARGIN;
}

/* --- Weights ---------------------------------------------------------------------------------- */

void tsr_dequantize_steps(const int32_t *k, const float *base, size_t n, float step, float *y)
{
	steps_undo[tsr_isa_level()](k, base, n, step, y);
}

float tsr_quantize_steps(const float *x, const float *base, const float *last, size_t n,
			 double bound, int32_t *k, float *y)
{
	const unsigned isa = tsr_isa_level();
	const double most = bound * sum_differences[isa](x, last, n);
	double step = step_of(most / (double)n);

	for (int i = 0; i < TRIES && is_step(step); i++) {
		double error;

		if (quantize_steps[isa](x, base, n, (float)step, k) >= TSR_INTEGER_MAX)
			return 0;
		tsr_dequantize_steps(k, base, n, (float)step, y);
		error = sum_differences[isa](x, y, n);
		if (error <= most)
			return (float)step;
		step = smaller(step, error, most);
	}
	return 0;
}

/* --- Momenta ---------------------------------------------------------------------------------- */

void tsr_dequantize_ratios(const int32_t *k, const float *w, size_t n, float eps, float step,
			   float *y)
{
	ratios_undo[tsr_isa_level()](k, w, n, eps, step, y);
}

float tsr_quantize_ratios(const float *m, const float *v, const float *w, size_t n, float eps,
			  double bound, int32_t *k, float *y)
{
	const unsigned isa = tsr_isa_level();
	const float *const before[2] = { m, v }, *const after[2] = { y, w };
	double all = 0, step;

	(void)sum_update_errors[isa](before, before, n, eps, &all);
	step = step_of(bound * all / (double)n);
	for (int i = 0; i < TRIES && is_step(step); i++) {
		double error, same = 0;

		if (quantize_ratios[isa](m, v, n, eps, (float)step, k) >= TSR_INTEGER_MAX)
			return 0;
		tsr_dequantize_ratios(k, w, n, eps, (float)step, y);
		error = sum_update_errors[isa](before, after, n, eps, &same);
		if (error <= bound * all)
			return (float)step;
		step = smaller(step, error, bound * all);
	}
	return 0;
}

/* --- Variances -------------------------------------------------------------------------------- */

/* A mean difference in whole units. */
static int8_t units(double sum, uint64_t count)
{
	const double x = count ? nearbyint(sum / (double)count / (1 << UNIT_BITS)) : 0;

	return (int8_t)(x < -127 ? -127 : x > 127 ? 127 : x);
}

static double mean_bits(const float *v, size_t n)
{
	double sum = 0;
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		sum += (int32_t)tsr_bits_from_f32(v[i]);
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
	uint64_t *const count = w->sizes;
	uint32_t r = 0, c = b->phase;

	memset(sum, 0, nlines * sizeof(*sum));
	memset(count, 0, nlines * sizeof(*count));
	for (uint32_t i = 0; i < b->n; i++) {
		const uint32_t line = columns ? c : r;

		if (v[i] > 0) {
			sum[line] += (int32_t)tsr_bits_from_f32(v[i]) - all;
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

/* A run of elements of one row, or all of a block without rows. */
struct row {
	uint32_t first, n;
	double predicted;
	const double *column; /* from that of the first on; NULL: there are none */
};

/* What columns add to predictions, to @w->sums. */
static const double *column_bits(struct tsr_integers *w, const struct tsr_block *b,
				 const struct tsr_logs *l)
{
	const uint32_t rows = tsr_block_rows(b);

	for (uint32_t c = 0; l->lines && c < b->columns; c++)
		w->sums[c] = (double)l->lines[rows + c] * (1 << UNIT_BITS);
	return l->lines ? w->sums : NULL;
}

/* The run after @row, which begins as all zeros. */
static bool next_row(const struct tsr_block *b, const struct tsr_logs *l, const double *columns,
		     uint32_t number, struct row *row)
{
	const uint32_t first = row->first + row->n, column = number ? 0 : b->phase;
	const uint32_t left = b->n - first, whole = l->lines ? b->columns - column : left;

	*row = (struct row){ .first = first,
			     .n = left < whole ? left : whole,
			     .predicted = l->all,
			     .column = columns ? columns + column : NULL };
	if (left && l->lines)
		row->predicted += (double)l->lines[number] * (1 << UNIT_BITS);
	return left != 0;
}

void tsr_dequantize_logs(struct tsr_integers *w, const struct tsr_block *b,
			 const struct tsr_logs *l, const int32_t *k, float *y)
{
	const double *columns = column_bits(w, b, l);
	struct row row = { 0 };

	for (uint32_t i = 0; next_row(b, l, columns, i, &row); i++)
		logs_undo[tsr_isa_level()](k + row.first, row.n, row.predicted, row.column, l->step,
					   y + row.first);
}

static void find_logs(struct tsr_integers *w, const struct tsr_block *b, const struct tsr_logs *l,
		      const float *v, int32_t *k)
{
	const double *columns = column_bits(w, b, l);
	struct row row = { 0 };

	for (uint32_t i = 0; next_row(b, l, columns, i, &row); i++)
		quantize_logs[tsr_isa_level()](v + row.first, row.n, row.predicted, row.column,
					       l->step, k + row.first);
}

uint32_t tsr_quantize_logs(struct tsr_integers *w, const struct tsr_block *b, struct tsr_logs *l,
			   const float *v, double bound, int32_t *k, float *y)
{
	/* Of d / 2^23 octaves a root has half; the form of the significand makes 0.541 of its square. */
	double step = sqrt(48 / 0.541 * bound) * (1 << 23);

	for (int i = 0; i < 2 * TRIES && step >= TSR_LOG_STEP_MIN; i++) {
		double error, all = 0;

		l->step = step > TSR_LOG_STEP_MAX ? TSR_LOG_STEP_MAX : (uint32_t)step;
		find_logs(w, b, l, v, k);
		tsr_dequantize_logs(w, b, l, k, y);
		error = sum_root_errors[tsr_isa_level()](v, y, b->n, &all);
		if (error <= bound * all)
			return l->step;
		step = smaller(l->step, error, bound * all);
	}
	return 0;
}
