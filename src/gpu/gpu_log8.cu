/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of log8.  The tables are those of the CPU, copied: so are the bits. */
#include "gpu/gpu_teams.cuh"
extern "C" {
#include "codec/log8_math.h"
#include "codec/tables.h"
}

/* The stored scale and range of a team's group, for each of its threads. */
static __device__ __forceinline__ uint32_t scale_of(const struct team *t, const float *x,
						    const float *reach)
{
	uint32_t max = 0, least = INT32_MAX, stored;

	for (uint32_t k = t->thread; k < t->count; k += t->nthreads) {
		const uint32_t mag = tsr_bits_from_f32(x[t->first + k]) & TSR_F32_MAG;

		max = ::max(max, mag);
		least = ::min(least, mag ? mag : (uint32_t)INT32_MAX);
	}
	for (uint32_t distance = t->nthreads / 2; distance; distance /= 2) {
		max = ::max(max, __shfl_xor_sync(TSR_WHOLE_WARP, max, distance));
		least = ::min(least, __shfl_xor_sync(TSR_WHOLE_WARP, least, distance));
	}
	/* What is stored for a NaN is the largest scale, whichever NaN its root is. */
	stored = max > TSR_F32_INF ? TSR_F28_MAX
				   : tsr_f28_from_root(tsr_sqrt(tsr_f32_from_bits(max)));
	return stored |
	       tsr_log_range(reach, tsr_f28_scale(stored), tsr_sqrt(tsr_f32_from_bits(least)));
}

/* 4 bytes read, the second time from the cache, and 1 + 4/64 written per element. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_log(const float *x, uint64_t n, struct groups groups, unsigned log_team,
		   uint8_t *codes, uint32_t *scales, struct tsr_gpu_tables tables)
{
	const struct team t = my_team(n, groups, log_team);
	const uint32_t stored = scale_of(&t, x, tables.bound);
	const struct tsr_table_row *row = &tables.row[tsr_f28_range(stored)];
	const uint32_t *entry = tables.entry + row->first;
	const float divisor = tsr_table_divisor(tsr_f28_scale(stored));

	if (t.count && t.thread == 0)
		scales[t.group] = stored;
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		codes[t.first + k] = (uint8_t)tsr_log_code(row, entry, tsr_sqrt(x[t.first + k]),
							   divisor);
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_log(const uint8_t *codes, const uint32_t *scales, uint64_t n, struct groups groups,
		   unsigned log_team, struct tsr_gpu_tables tables, float *x)
{
	const struct team t = my_team(n, groups, log_team);

	if (!t.count)
		return;
	const uint32_t stored = scales[t.group];
	const float *value = tables.row[tsr_f28_range(stored)].value;

	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		x[t.first + k] = tsr_log_variance(value[codes[t.first + k]], tsr_f28_scale(stored));
}

static void run_encode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const float *x, uint64_t n, void *const plane[],
		       struct tsr_encode_report *report)
{
	const struct groups groups = groups_of(coding);
	const unsigned log_team = log_team_of(groups.size);

	(void)report;
	encode_log<<<team_blocks(coding, n, log_team), TSR_BLOCK, 0, stream->handle>>>(
		x, n, groups, log_team, (uint8_t *)plane[0], (uint32_t *)plane[1],
		stream->gpu->tables[TSR_TABLES_LOG]);
}

static void run_decode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const void *const plane[], uint64_t n, float *x)
{
	const struct groups groups = groups_of(coding);
	const unsigned log_team = log_team_of(groups.size);

	decode_log<<<team_blocks(coding, n, log_team), TSR_BLOCK, 0, stream->handle>>>(
		(const uint8_t *)plane[0], (const uint32_t *)plane[1], n, groups, log_team,
		stream->gpu->tables[TSR_TABLES_LOG], x);
}

static enum tsr_status prepare(struct tsr_gpu *gpu, struct tsr_err *err)
{
	return tsr_gpu_prepare_tables(gpu, TSR_TABLES_LOG, err);
}

const struct tsr_gpu_codec tsr_gpu_codec_log8 = { run_encode, run_decode, prepare };
