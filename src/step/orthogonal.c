/* SPDX-License-Identifier: Apache-2.0 */
/* How far errors of Muon's momentum move its update, which is made nearly orthogonal from it. */
#include "step/orthogonal.h"

#include "codec/math.h"
#include "step/simd.h"

void tsr_orthogonalize(float *x, size_t rows, size_t columns, float *work)
{
	static tsr_orthogonal_fn *const orthogonalize[] = TSR_ISA_VARIANTS(step_orthogonalize);

	orthogonalize[tsr_isa_level()](x, rows, columns, work);
}

size_t tsr_orthogonal_work(size_t rows, size_t columns)
{
	const size_t least = rows < columns ? rows : columns;

	return rows * columns + 2 * least * least + TSR_MUON_PANEL;
}

/* Of the three products of a round two are symmetric, of which half is computed. */
double tsr_orthogonal_cost(double rows, double columns)
{
	const double least = rows < columns ? rows : columns;

	return TSR_MUON_ROUNDS * (1.5 * rows * columns * least + 0.5 * least * least * least);
}

void tsr_orthogonal_measure_add(struct tsr_update_measure *u, const float *before,
				const float *after, size_t n)
{
	u->n += n;
	for (size_t i = 0; i < n; i++) {
		const double d = (double)before[i] - (double)after[i];

		u->overflow += d - d != 0;
		u->max_before = tsr_max_magnitude(u->max_before, tsr_abs(before[i]));
		u->max_after = tsr_max_magnitude(u->max_after, tsr_abs(after[i]));
		u->sum_uu[i % TSR_MEASURE_LANES] += (double)before[i] * (double)before[i];
		u->sum_dd[i % TSR_MEASURE_LANES] += d * d;
	}
}
