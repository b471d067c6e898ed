/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of finding factors: several rows at a time, so that what they share is loaded once. */
#include "learn/factor_loops.h"

#include <string.h>

#include "codec/list.h"

#define INLINE static inline __attribute__((always_inline))

/* A part of a row of a factor that is a register with AVX2. */
#define LANES 8u
#define PARTS (TSR_RANK / LANES)

typedef float lanes __attribute__((vector_size(4 * LANES)));

/* Part by part: gcc 12 keeps what is copied as a whole in memory. */
INLINE void load(lanes row[PARTS], const float *from)
{
	for (unsigned p = 0; p < PARTS; p++)
		memcpy(&row[p], from + p * LANES, sizeof(row[p]));
}

INLINE void store(float *to, const lanes row[PARTS])
{
	for (unsigned p = 0; p < PARTS; p++)
		memcpy(to + p * LANES, &row[p], sizeof(row[p]));
}

/* Rows at a time. */
#define ROWS 4u

INLINE void project_rows(const float *restrict m, size_t nrows, size_t n, const float *restrict w,
			 float *restrict y)
{
	lanes sum[ROWS][PARTS] = { { { 0 } } }, row[PARTS];

	for (size_t i = 0; i < n; i++) {
		load(row, w + i * TSR_RANK);
		for (size_t r = 0; r < nrows; r++) {
			for (unsigned p = 0; p < PARTS; p++)
				sum[r][p] += m[r * n + i] * row[p];
		}
	}
	for (size_t r = 0; r < nrows; r++)
		store(y + r * TSR_RANK, sum[r]);
}

void TSR_FOR_ISA(project)(const float *restrict m, size_t nrows, size_t n, const float *restrict w,
			  float *restrict y)
{
	for (; nrows >= ROWS; nrows -= ROWS, m += ROWS * n, y += ROWS * TSR_RANK)
		project_rows(m, ROWS, n, w, y);
	for (; nrows; nrows--, m += n, y += TSR_RANK)
		project_rows(m, 1, n, w, y);
}

INLINE void project_rows_back(const float *restrict m, size_t nrows, size_t n,
			      const float *restrict y, float *restrict z)
{
	lanes row[ROWS][PARTS], sum[PARTS];

	for (size_t r = 0; r < nrows; r++)
		load(row[r], y + r * TSR_RANK);
	for (size_t i = 0; i < n; i++) {
		load(sum, z + i * TSR_RANK);
		for (size_t r = 0; r < nrows; r++) {
			for (unsigned p = 0; p < PARTS; p++)
				sum[p] += m[r * n + i] * row[r][p];
		}
		store(z + i * TSR_RANK, sum);
	}
}

void TSR_FOR_ISA(project_back)(const float *restrict m, size_t nrows, size_t n,
			       const float *restrict y, float *restrict z)
{
	for (; nrows >= ROWS; nrows -= ROWS, m += ROWS * n, y += ROWS * TSR_RANK)
		project_rows_back(m, ROWS, n, y, z);
	for (; nrows; nrows--, m += n, y += TSR_RANK)
		project_rows_back(m, 1, n, y, z);
}
