/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of codecs whose codes are tables, for kernels: table_math.h with what a group shares. */
#ifndef TSR_GPU_TABLES_CUH
#define TSR_GPU_TABLES_CUH

#include "gpu/cuda.h"

extern "C" {
#include "codec/tables.h"
}

/* What the threads of a group share, of the group that they encode. */
struct coded_group {
	const struct tsr_table_row *row;
	const uint32_t *entry; /* of the row's first bucket */
	float scale, divisor, unit, lowest, highest;
	uint32_t bucket, shift, least;
};

static __device__ __forceinline__ struct coded_group coded_group_of(struct tsr_table_rule rule,
								    struct tsr_gpu_tables tables,
								    uint32_t row, float scale)
{
	struct coded_group out;

	out.scale = scale;
	out.row = &tables.row[row];
	out.entry = tables.entry + out.row->first;
	out.divisor = tsr_table_divisor(out.scale);
	out.unit = out.row->unit;
	out.lowest = out.row->lowest;
	out.highest = out.row->highest;
	out.bucket = out.row->bucket;
	out.shift = out.row->shift;
	out.least = rule.keeps ? tsr_table_least(out.row, out.scale) : 0;
	return out;
}

static __device__ __forceinline__ uint32_t magnitude(float x)
{
	return tsr_bits_from_f32(x) & TSR_F32_MAG;
}

/* What the smallest magnitude other than 0 is the smallest of. */
static __device__ __forceinline__ uint32_t unless_zero(uint32_t magnitude)
{
	return magnitude ? magnitude : (uint32_t)INT32_MAX;
}

static __device__ __forceinline__ uint8_t encode_one(struct tsr_table_rule rule,
						     const struct coded_group *g, float x)
{
	const uint32_t key = tsr_table_key(x, g->divisor, g->unit, g->lowest, g->highest);
	const uint32_t code = tsr_table_code(g->entry, g->bucket, g->shift, key);

	return (uint8_t)tsr_table_byte(rule.layout, code, x, g->least);
}

static __device__ __forceinline__ float decode_one(struct tsr_table_rule rule,
						   const struct tsr_table_row *row, float scale,
						   uint32_t byte)
{
	return tsr_table_value(row->value[tsr_table_index(rule.layout, byte)],
			       tsr_table_sign(rule.layout, byte), scale);
}

#endif
