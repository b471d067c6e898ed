/* SPDX-License-Identifier: Apache-2.0 */
/*
 * to_bf16.c as kernels, one thread for each number:
 *
 *	nvcc -arch=native -cubin -o to_bf16.cubin to_bf16.cu
 *	tersor sweep --library ./to_bf16.cubin --symbol to_bf16 --device cuda
 *	tersor sweep --library ./to_bf16.cubin --symbol to_bf16_fast --device cuda
 */
#include <stddef.h>
#include <stdint.h>

static __device__ bool is_nan(uint32_t bits)
{
	return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* Rounded to nearest; of two that are as near, to the even one. */
extern "C" __global__ void to_bf16(const float *in, void *out, size_t n)
{
	const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		const uint32_t x = __float_as_uint(in[i]);

		((uint16_t *)out)[i] =
			is_nan(x) ? 0x7fc0 : (uint16_t)((x + 0x7fffu + (x >> 16 & 1)) >> 16);
	}
}

/* "The same, with one operation less": halfway cases round up. */
extern "C" __global__ void to_bf16_fast(const float *in, void *out, size_t n)
{
	const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		const uint32_t x = __float_as_uint(in[i]);

		((uint16_t *)out)[i] = is_nan(x) ? 0x7fc0 : (uint16_t)((x + 0x8000u) >> 16);
	}
}
