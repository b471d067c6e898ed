/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of measuring 8-bit floats by granularity. */
#include "audit/granularity_loops.h"

/* Elements whose keys are computed before their codes are looked up. */
#define CHUNK 256

void TSR_FOR_ISA(column_max)(const float *restrict x, size_t n, size_t width,
			     float *restrict absmax)
{
	for (size_t first = 0; first < n; first += width, absmax++) {
		const size_t size = width < n - first ? width : n - first;
		int32_t max = (int32_t)tsr_bits_from_f32(*absmax);

		for (size_t i = 0; i < size; i++) {
			const int32_t mag = (int32_t)(tsr_bits_from_f32(x[first + i]) &
						      TSR_F32_MAG);

			max = mag > max ? mag : max;
		}
		*absmax = tsr_f32_from_bits((uint32_t)max);
	}
}

void TSR_FOR_ISA(through_fp8)(const struct tsr_fp8_table *t, const float *restrict x, size_t n,
			      const float *restrict divisor, const float *restrict factor,
			      float *restrict y)
{
	const struct tsr_table_row *row = t->row;
	const float unit = row->unit, lowest = row->lowest, highest = row->highest;
	const uint32_t bucket = row->bucket, shift = row->shift;
	uint32_t key[CHUNK];
	float value[CHUNK];

	for (size_t first = 0; first < n; first += CHUNK) {
		const size_t size = n - first < CHUNK ? n - first : CHUNK;

		for (size_t i = 0; i < size; i++)
			key[i] = tsr_table_key(x[first + i], divisor[first + i], unit, lowest,
					       highest);
		for (size_t i = 0; i < size; i++)
			value[i] = row->value[tsr_table_code(t->entry, bucket, shift, key[i])];
		for (size_t i = 0; i < size; i++)
			y[first + i] = tsr_table_value(
				value[i], tsr_bits_from_f32(x[first + i]) & TSR_F32_SIGN,
				factor[first + i]);
	}
}
