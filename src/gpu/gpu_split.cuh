/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs that store each element by itself, for kernels: a few elements of a thread at a time. */
#ifndef TSR_GPU_SPLIT_CUH
#define TSR_GPU_SPLIT_CUH

#include "gpu/cuda.h"
#include "gpu/shortcut.cuh"
#include "gpu/vector.cuh"

/* --- Narrow floats: a vector at a time ------------------------------------------------------- */

/*
 * GPUs convert two numbers with one instruction, and make one NaN of all; so a vector that holds a
 * NaN, which is rare, is left to the formulas.
 */
template <int W> static __device__ __forceinline__ bool holds_nan(const float *x)
{
	bool found = false;

#pragma unroll
	for (int k = 0; k < W; k++)
		found |= x[k] != x[k];
	return found;
}

/* What the narrow formats differ in, from the formulas of math.h and extra_bits_math.h. */
#define NARROW_FORMULAS(id) \
	struct id##_formulas { \
		static __device__ __forceinline__ uint32_t from_f32(float x) \
		{ \
			return tsr_##id##_from_f32(x); \
		} \
		static __device__ __forceinline__ uint32_t pair(float lo, float hi) \
		{ \
			return tsr_##id##_pair(lo, hi); \
		} \
		static __device__ __forceinline__ struct tsr_split_format format(void) \
		{ \
			return tsr_split_##id(); \
		} \
	};

NARROW_FORMULAS(bf16)
NARROW_FORMULAS(f16)

/*
 * Rounding a vector: two values per instruction, which makes fp16+fp16 1.41 times and fp16+ulp8 1.23 times as
 * fast on an H200; but for vectors with a NaN, whose payload it loses.
 */
template <class formulas> struct narrow_float : formulas {
	template <int W> static __device__ __forceinline__ void narrow(const float *x, uint16_t *n)
	{
		if (W == 1 || holds_nan<W>(x)) {
#pragma unroll
			for (int k = 0; k < W; k++)
				n[k] = (uint16_t)formulas::from_f32(x[k]);
		} else {
#pragma unroll
			for (int k = 0; k < W; k += 2) {
				const uint32_t pair = formulas::pair(x[k], x[k + 1]);

				n[k] = (uint16_t)pair;
				n[k + 1] = (uint16_t)(pair >> 16);
			}
		}
	}
};

struct bf16 : narrow_float<bf16_formulas> {
	template <int W> static __device__ __forceinline__ void widen(const uint16_t *n, float *x)
	{
#pragma unroll
		for (int k = 0; k < W; k++)
			x[k] = tsr_f32_from_bf16(n[k]);
	}
};

struct f16 : narrow_float<f16_formulas> {
	template <int W> static __device__ __forceinline__ void widen(const uint16_t *n, float *x)
	{
#pragma unroll
		for (int k = 0; k < W; k++)
			x[k] = tsr_f16_widen(n[k]);
		if (!holds_nan<W>(x))
			return;
#pragma unroll
		for (int k = 0; k < W; k++)
			x[k] = tsr_f32_from_f16(n[k]);
	}
};

/* --- Codecs: a vector and its two planes ----------------------------------------------------- */

/*
 * What is rounded to a narrow float is what that float stands for: one is found from the other.
 * encode() returns how many finite values that decode have an infinite narrow weight.
 */

template <typename code> struct narrow_planes {
	typedef uint16_t first;
	typedef code second;
	static const unsigned nplanes = 2;
	static const bool counts = false; /* what encode() returns is not always 0 */
};

template <class format, typename code> struct ulp_split : narrow_planes<code> {
	template <int W>
	static __device__ __forceinline__ unsigned encode(const float *x, uint16_t *n, code *c)
	{
		float rounded[W];

		format::template narrow<W>(x, n);
		format::template widen<W>(n, rounded);
#pragma unroll
		for (int k = 0; k < W; k++)
			c[k] = (code)tsr_ulp_correction(format::format(), x[k], rounded[k],
							TSR_LEVELS(code));
		return 0;
	}
	template <int W>
	static __device__ __forceinline__ void decode(const uint16_t *n, const code *c, float *x)
	{
		float narrow[W];

		format::template widen<W>(n, narrow);
#pragma unroll
		for (int k = 0; k < W; k++)
			x[k] = tsr_ulp_join(format::format(), narrow[k], c[k], TSR_LEVELS(code));
	}
};

template <class format, typename code> struct exact_split : narrow_planes<code> {
	static const bool counts = true;

	template <int W>
	static __device__ __forceinline__ unsigned encode(const float *x, uint16_t *n, code *c)
	{
		unsigned overflow = 0;

#pragma unroll
		for (int k = 0; k < W; k++) {
			const uint32_t narrow = tsr_exact16_narrow(x[k]);

			n[k] = (uint16_t)narrow;
			c[k] = (code)tsr_exact16_correction(x[k], narrow);
			overflow += (unsigned)tsr_exact16_overflows(x[k]);
		}
		return overflow;
	}
	template <int W>
	static __device__ __forceinline__ void decode(const uint16_t *n, const code *c, float *x)
	{
#pragma unroll
		for (int k = 0; k < W; k++)
			x[k] = tsr_exact16_join(n[k], c[k]);
	}
};

template <class format, typename code> struct float_split : narrow_planes<code> {
	template <int W>
	static __device__ __forceinline__ unsigned encode(const float *x, uint16_t *n, code *c)
	{
		float rest[W];

		format::template narrow<W>(x, n);
		format::template widen<W>(n, rest);
#pragma unroll
		for (int k = 0; k < W; k++)
			rest[k] = tsr_float_rest(x[k], rest[k]);
		format::template narrow<W>(rest, c);
		return 0;
	}
	/* The sum of a number and a NaN is that NaN, quiet, as CPUs have it. */
	template <int W>
	static __device__ __forceinline__ void decode(const uint16_t *n, const code *c, float *x)
	{
		float narrow[W], rest[W];

		format::template widen<W>(n, narrow);
		format::template widen<W>(c, rest);
#pragma unroll
		for (int k = 0; k < W; k++)
			x[k] = tsr_float_join(narrow[k], rest[k]);
		if (!holds_nan<W>(rest))
			return;
#pragma unroll
		for (int k = 0; k < W; k++) {
			if (fabsf(narrow[k]) < INFINITY && rest[k] != rest[k])
				x[k] = tsr_f32_from_bits(tsr_bits_from_f32(rest[k]) | 0x400000u);
		}
	}
};

template <class format, typename code> struct narrow_only : narrow_planes<uint8_t> {
	static const unsigned nplanes = 1;

	template <int W>
	static __device__ __forceinline__ unsigned encode(const float *x, first *n, second *c)
	{
		(void)c;
		format::template narrow<W>(x, n);
		return 0;
	}
	template <int W>
	static __device__ __forceinline__ void decode(const first *n, const second *c, float *x)
	{
		(void)c;
		format::template widen<W>(n, x);
	}
};

template <class format, typename code> struct plain : narrow_planes<uint8_t> {
	typedef float first;
	static const unsigned nplanes = 1;

	template <int W>
	static __device__ __forceinline__ unsigned encode(const float *x, first *n, second *c)
	{
		decode<W>(x, c, n);
		return 0;
	}
	template <int W>
	static __device__ __forceinline__ void decode(const first *n, const second *c, float *x)
	{
		(void)c;
#pragma unroll
		for (int k = 0; k < W; k++)
			x[k] = n[k];
	}
};

/* --- Tiles: N consecutive elements of a thread, in planes ------------------------------------- */

template <class codec, int N>
static __device__ __forceinline__ void load_split(const struct coded_planes &p, uint64_t tile,
						  float *w)
{
	typename codec::first a[N];
	typename codec::second b[N];

	load_tile<typename codec::first, N>(p.plane[0], tile, a);
	if constexpr (codec::nplanes == 2)
		load_tile<typename codec::second, N>(p.plane[1], tile, b);
	codec::template decode<N>(a, b, w);
}

template <class codec, int N>
static __device__ __forceinline__ unsigned store_split(const struct coded_planes &p, uint64_t tile,
						       const float *w)
{
	typename codec::first a[N];
	typename codec::second b[N];
	const unsigned overflow = codec::template encode<N>(w, a, b);

	store_tile<typename codec::first, N>(p.plane[0], tile, a);
	if constexpr (codec::nplanes == 2)
		store_tile<typename codec::second, N>(p.plane[1], tile, b);
	return overflow;
}

#endif
