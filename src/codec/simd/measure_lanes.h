/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes of the loops that measure.  Sums are written with GNU vector types of one fixed width, so that
 * which lane an element is added to does not depend on the SIMD level.
 */
#ifndef TSR_CODEC_SIMD_MEASURE_LANES_H
#define TSR_CODEC_SIMD_MEASURE_LANES_H

#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "codec/math.h"
#include "tersor/measure.h"

#define LANES TSR_MEASURE_LANES
#define INLINE static inline __attribute__((always_inline))
#define LOOP static __attribute__((noinline)) /* so that the registers are its own */

typedef float f32xl __attribute__((vector_size(4 * LANES)));
typedef int32_t i32xl __attribute__((vector_size(4 * LANES)));
typedef uint32_t u32xl __attribute__((vector_size(4 * LANES)));
typedef float f32xh __attribute__((vector_size(2 * LANES)));
typedef double f64xq __attribute__((vector_size(2 * LANES)));
typedef double f64xh __attribute__((vector_size(4 * LANES)));

/* Vector arguments pass through memory: their calling convention differs between levels. */
INLINE void load_f32(f32xl *v, const float *p)
{
	memcpy(v, p, sizeof(*v));
}

/* The lower and the upper half of the lanes: as wide as the conversions of AVX2. */
struct f64xl {
	f64xh low, high;
};

INLINE f64xh widen_half(f32xh v)
{
#if defined(__AVX__)
	return (f64xh)_mm256_cvtps_pd((__m128)v);
#elif defined(__SSE2__)
	/* gcc 12 makes a trip through memory of the general form. */
	const f64xq quarters[2] = { (f64xq)_mm_cvtps_pd((__m128)v),
				    (f64xq)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v)) };
	f64xh wide;

	memcpy(&wide, quarters, sizeof(wide));
	return wide;
#else
	return __builtin_convertvector(v, f64xh);
#endif
}

INLINE void widen(struct f64xl *out, const f32xl *v)
{
	out->low = widen_half(__builtin_shufflevector(*v, *v, 0, 1, 2, 3));
#ifdef __AVX__
	out->high = widen_half((f32xh)_mm256_extractf128_ps((__m256)*v, 1));
#else
	out->high = widen_half(__builtin_shufflevector(*v, *v, 4, 5, 6, 7));
#endif
}

/* Widening what comes from memory takes fewer steps than widening halves of a register. */
INLINE f32xh load_half(const float *p)
{
	f32xh v;

	memcpy(&v, p, sizeof(v));
	return v;
}

INLINE void add(struct f64xl *sum, const struct f64xl *v)
{
	sum->low += v->low;
	sum->high += v->high;
}

/*
 * The factors are FP32 values, so their product is exact in binary64: fused or not, the sum is
 * rounded once and is the same.
 */
INLINE void add_product(struct f64xl *sum, const struct f64xl *a, const struct f64xl *b)
{
#ifdef __FMA__
	sum->low = (f64xh)_mm256_fmadd_pd((__m256d)a->low, (__m256d)b->low, (__m256d)sum->low);
	sum->high = (f64xh)_mm256_fmadd_pd((__m256d)a->high, (__m256d)b->high, (__m256d)sum->high);
#else
	sum->low += a->low * b->low;
	sum->high += a->high * b->high;
#endif
}

/*
 * gcc 12 makes scalar code of comparisons of vectors that are wider than the registers, so where
 * they are, comparisons are made of other operations.
 */
INLINE i32xl not_zero(const f32xl *v)
{
#ifdef __AVX2__
	return *v != 0.0f;
#else
	return -((i32xl)*v & (int32_t)TSR_F32_MAG) >> 31;
#endif
}

/* Of integers from 0 on. */
INLINE void max_i32(i32xl *max, const i32xl *v)
{
#ifdef __AVX2__
	*max = (i32xl)_mm256_max_epi32((__m256i)*max, (__m256i)*v);
#else
	const i32xl more = (i32xl)((u32xl)*v - (u32xl)*max);

	*max = (i32xl)((u32xl)*max + (u32xl)(more & ~(more >> 31)));
#endif
}

/* How many lanes have had their sign bit set, over all or in each. */
#ifdef __AVX2__
typedef uint32_t counter;

INLINE void count(counter *c, const i32xl *v)
{
	*c += (uint32_t)__builtin_popcount((unsigned)_mm256_movemask_ps((__m256)*v));
	__asm__("" : "+r"(*c)); /* no putting together of several counters into a vector */
}

static inline uint32_t counter_value(const counter *c)
{
	return *c;
}
#else
typedef i32xl counter;

INLINE void count(counter *c, const i32xl *v)
{
	*c -= *v >> 31;
}

static inline uint32_t counter_value(const counter *c)
{
	uint32_t sum = 0;

	for (int i = 0; i < LANES; i++)
		sum += (uint32_t)(*c)[i];
	return sum;
}
#endif

/* The largest of the lanes of integers from 0 on. */
static inline int32_t lane_max(const i32xl *v)
{
	int32_t max = 0;

	for (int i = 0; i < LANES; i++)
		max = (*v)[i] > max ? (*v)[i] : max;
	return max;
}

#endif
