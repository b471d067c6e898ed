/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes of a learned codebook, by a table.
 *
 * Quotients t of an element and its block's magnitude are from -1 to 1, which is cut into cells.  Of the
 * cells that a codebook of Gefen has, none is wide enough for two places where the code changes.  A cell
 * has that place, as its distance from the centre of the cell, and in the lowest 8 bits the code to the
 * right of it.  An estimate of t decides unless it is so near to the place that its error matters.
 */
#ifndef TSR_GPU_GEFEN_CELLS_CUH
#define TSR_GPU_GEFEN_CELLS_CUH

#include "codec/learned_math.h"
#include "gpu/ptx.cuh"

#define GEFEN_ENTRIES 256u

/* Cells around the multiples of 2^-12: that many on either side of 0. */
#define GEFEN_CELLS_BESIDE 4096u
#define GEFEN_CELLS (2 * GEFEN_CELLS_BESIDE + 1)

/* A sum with it is rounded to such a multiple, of which the last places are the number. */
#define GEFEN_CELL_SUM 0x1.8p11f

/* In shared memory. */
struct gefen_table {
	float entry[GEFEN_ENTRIES];
	float cell[GEFEN_CELLS];
};

/*
 * How near an estimate may be.  t and m * RN(1/scale) are each within 2^-24 of m / scale, twice that in
 * all; the place where distances of two entries no more than 1/2 apart round to the same is within 2^-25
 * of the middle, and what is stored of that within 2^-25.
 */
#define GEFEN_NEAR 0x1.8p-23f

/* @entry has the whole codebook. */
static __device__ __forceinline__ float gefen_cell(const float *entry, uint32_t i)
{
	const float centre = (float)((int32_t)i - (int32_t)GEFEN_CELLS_BESIDE) * 0x1p-12f;
	const float reach = 0x1p-13f + 0x1p-22f;
	const int32_t left = tsr_nearest_entry(entry, centre - reach);
	const int32_t right = tsr_nearest_entry(entry, centre + reach);
	const float gap = entry[right] - entry[left];
	float place = -0x1p10f; /* far to the left: there is one code */

	if (right != left)
		place = 0.5f * (entry[left] - centre) + 0.5f * (entry[right] - centre);
	if (right > left + 1 || !(gap <= 0.5f))
		return tsr_f32_from_bits(0x7fc00000u); /* no estimate is far from it */
	return tsr_f32_from_bits((tsr_bits_from_f32(place) & ~0xffu) | (uint32_t)right);
}

/* By all threads of the block. */
static __device__ __forceinline__ void gefen_fill(const float *codebook, struct gefen_table *to)
{
	for (uint32_t i = threadIdx.x; i < GEFEN_ENTRIES; i += blockDim.x)
		to->entry[i] = codebook[i];
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < GEFEN_CELLS; i += blockDim.x)
		to->cell[i] = gefen_cell(to->entry, i);
	__syncthreads();
}

/*
 * The lowest 8 bits are tsr_gefen_code() of @m, unless @unsure is set; @inverse is RN(1/scale), or 0 for a
 * scale of 0.  |m| is at most the scale.
 */
static __device__ __forceinline__ uint32_t gefen_code(const struct gefen_table *table, float m,
						      float inverse, bool *unsure)
{
	const float sum = tsr_fma(m, inverse, GEFEN_CELL_SUM);
	const uint32_t first = 0x45400000u - GEFEN_CELLS_BESIDE; /* of 2^11 * 1.5 - 1 */
	const float from_centre = tsr_fma(m, inverse, GEFEN_CELL_SUM - sum);
	const float cell = table->cell[tsr_bits_from_f32(sum) - first];
	const float beyond = from_centre - cell;

	*unsure |= !(fabsf(beyond) > GEFEN_NEAR);
	return tsr_bits_from_f32(cell) + (uint32_t)((int32_t)tsr_bits_from_f32(beyond) >> 31);
}

#endif
