/* SPDX-License-Identifier: Apache-2.0 */
/* The contexts of codes of a variance (docs/internals/format.md, "Contexts"), run by run of a lane. */
#ifndef TSR_GPU_GPU_CONTEXTS_CUH
#define TSR_GPU_GPU_CONTEXTS_CUH

#include "entropy/contexts_math.h"
#include "gpu/entropy/gpu_entropy.cuh"

/* Pieces whose runs have one scale and one row; and others, whose elements are looked at one by one. */
enum context_sort { OF_RUNS, OF_ANY };

/* A piece, and its means. */
struct context_source {
	const struct tsr_entropy_variance
		*variance; /* in global memory; runs are done with what follows */
	const uint16_t *scales;
	uint32_t n, ncolumns;
	uint32_t before; /* elements of its first row in front of the piece */
	unsigned shift; /* log2 of the elements of a group */
	int32_t all;
	const int8_t *rows, *columns;
};

/* Whether groups divide the piece from its beginning on, and runs of lanes divide them. */
static __device__ bool scales_are_regular(const struct tsr_entropy_scales *s, uint64_t first)
{
	return s->group >= TSR_RANS_RUN && !(s->group & (s->group - 1)) && first % s->group == 0 &&
	       s->row % s->group == 0;
}

/* A source without means yet. */
static __device__ struct context_source source_of(const struct tsr_entropy_variance *v, uint32_t n,
						  enum context_sort *sort_ret)
{
	struct context_source s = {};
	const bool regular = scales_are_regular(&v->scales, v->first) &&
			     v->columns % TSR_RANS_RUN == 0 && n % TSR_RANS_RUN == 0 &&
			     !v->logarithmic;

	s.variance = v;
	s.n = n;
	s.scales = v->scales.scales;
	s.shift = __popc(v->scales.group - 1);
	s.ncolumns = (uint32_t)v->columns;
	s.before = (uint32_t)(v->first % v->columns);
	*sort_ret = regular ? OF_RUNS : OF_ANY;
	return s;
}

/* --- One by one ---------------------------------------------------------------------------------- */

static __device__ uint16_t scale_of_element(const struct tsr_entropy_scales *s, uint64_t first,
					    uint32_t i)
{
	return s->scales[tsr_entropy_scale_of(s, first, i)];
}

/* The level of a variance, its scale's included. */
static __device__ uint32_t level_of_element(const struct context_source *s, uint32_t i,
					    uint8_t code)
{
	const struct tsr_entropy_variance *v = s->variance;
	const uint16_t scale = scale_of_element(&v->scales, v->first, i);

	return (uint32_t)(tsr_rans_scale_level(scale) +
			  (v->logarithmic ? tsr_rans_log_code_level(code, tsr_rans_log_range(scale))
					  : tsr_rans_code_level(code)));
}

static __device__ uint32_t context_of_element(const struct context_source *s, uint32_t i)
{
	const struct tsr_entropy_variance *v = s->variance;
	const uint16_t scale = scale_of_element(&v->scales, v->first, i);
	const int32_t level = tsr_rans_scale_level(scale);

	const int32_t row = s->rows[(s->before + i) / v->columns];
	const int32_t column = s->columns[(s->before + i) % v->columns];

	if (v->logarithmic)
		return tsr_rans_log_context(s->all + row + column - level - TSR_RANS_LOG_HIGHEST,
					    65536 / tsr_rans_log_range(scale));
	return tsr_rans_context(column, TSR_RANS_VARIANCE_LOWEST + level - s->all - row,
				TSR_RANS_VARIANCE_SHIFT);
}

/* --- Runs ---------------------------------------------------------------------------------------- */

/* Where a lane is: the first element of its run, and that one's row and column. */
struct run_place {
	uint32_t at, row, column;
	uint32_t row_step, column_step; /* of a block */
};

static __device__ __forceinline__ struct run_place begin_runs(const struct context_source *s,
							      uint32_t at)
{
	const uint32_t columns = s->ncolumns;

	return { at, (s->before + at) / columns, (s->before + at) % columns,
		 TSR_RANS_BLOCK / columns, TSR_RANS_BLOCK % columns };
}

template <enum context_sort SORT>
static __device__ __forceinline__ void next_run(const struct context_source *s, struct run_place *p)
{
	p->at += TSR_RANS_BLOCK;
	if (SORT != OF_RUNS)
		return;
	p->row += p->row_step;
	p->column += p->column_step;
	if (p->column >= s->ncolumns) {
		p->column -= s->ncolumns;
		p->row++;
	}
}

/* What is loaded for a run, ahead of its use. */
struct run_inputs {
	uint32_t columns; /* their means, a byte each */
	int32_t row; /* the mean of the row */
	uint32_t scale;
};

/* Four bytes in a row, with as many behind them up to a multiple of 4. */
static __device__ __forceinline__ uint32_t load_4(const int8_t *at)
{
	const uint32_t *aligned = (const uint32_t *)((uintptr_t)at & ~(uintptr_t)3);
	const unsigned odd = (uintptr_t)at % 4;

	return odd ? __funnelshift_r(aligned[0], aligned[1], 8 * odd) : aligned[0];
}

template <enum context_sort SORT>
static __device__ __forceinline__ struct run_inputs load_inputs(const struct context_source *s,
								const struct run_place *p,
								uint32_t count)
{
	if (SORT == OF_ANY || !count)
		return { 0, 0, 0 };
	return { load_4(s->columns + p->column), s->rows[p->row], s->scales[p->at >> s->shift] };
}

/* The larger and the smaller of two numbers: at least @low and at most @high. */
static __device__ __forceinline__ int32_t between(int32_t low, int32_t x, int32_t high)
{
	return max(low, min(x, high));
}

/*
 * As tsr_rans_context(), of four numbers, in units of 2^-@SHIFT contexts, that are pairs of 16 bits: bytes,
 * the first one lowest.
 */
template <int SHIFT>
static __device__ __forceinline__ uint32_t contexts_above(uint32_t low, uint32_t high,
							  int32_t lowest)
{
	constexpr uint32_t MOST = (TSR_RANS_CONTEXT_COUNT << SHIFT) - 1, BOTH = 0x10001u;
	const uint32_t minus = __byte_perm((uint32_t)-lowest, 0, 0x1010);

	low = __viaddmin_s16x2_relu(low, minus, MOST * BOTH);
	high = __viaddmin_s16x2_relu(high, minus, MOST * BOTH);
	return __byte_perm(low >> SHIFT, high >> SHIFT, 0x6420);
}

/* The contexts of a run of @count elements: bytes, the first one lowest. */
template <enum context_sort SORT>
static __device__ __forceinline__ uint32_t contexts_of_run(const struct context_source *s,
							   const struct run_place *p,
							   struct run_inputs r, uint32_t count)
{
	if constexpr (SORT == OF_RUNS) {
		const int32_t scale = tsr_rans_scale_level((uint16_t)r.scale);

		return contexts_above<TSR_RANS_VARIANCE_SHIFT>(
			tsr_low_bytes_widened(r.columns), tsr_high_bytes_widened(r.columns),
			between(-256, TSR_RANS_VARIANCE_LOWEST + scale - s->all - r.row, 256));
	} else {
		uint32_t contexts = 0;

		/* Code that seldom runs is to be small. */
#pragma unroll 1
		for (unsigned i = 0; i < count; i++)
			contexts |= context_of_element(s, p->at + i) << 8 * i;
		return contexts;
	}
}

/* --- Tables of contexts -------------------------------------------------------------------------- */

/* The number of the table of each context. */
struct context_tables {
	uint32_t word[TSR_RANS_CONTEXT_COUNT / 4];
};

/* By what contexts tables begin, a bit each; those before the first have the first one. */
static __device__ struct context_tables tables_of_contexts(uint32_t begin)
{
	struct context_tables t = {};
	unsigned table = 0;

#pragma unroll
	for (unsigned c = 1; c < TSR_RANS_CONTEXT_COUNT; c++) {
		table += begin >> c & 1 && begin & ((1u << c) - 1);
		t.word[c / 4] |= table << 8 * (c % 4);
	}
	return t;
}

/* Contexts of a run, as bytes, as four bits each, and back to the bytes of their tables. */
static __device__ __forceinline__ uint32_t pack_contexts(uint32_t contexts)
{
	return __byte_perm(contexts | contexts >> 4, 0, 0x4420);
}

static __device__ __forceinline__ uint32_t tables_of_run(const struct context_tables *t,
							 uint32_t packed)
{
	return tsr_look_up_bytes(t->word, packed);
}

/* 256 times what a byte of @above says, plus the same byte of @codes: two in a word. */
static __device__ __forceinline__ uint32_t first_pairs(uint32_t codes, uint32_t above)
{
	return __byte_perm(codes, above, 0x5140);
}

static __device__ __forceinline__ uint32_t last_pairs(uint32_t codes, uint32_t above)
{
	return __byte_perm(codes, above, 0x7362);
}

#endif
