/* SPDX-License-Identifier: Apache-2.0 */
/* Finding GPUs, and making sure that their code rounds as the CPU's does. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/cuda.h"
#include "codec/math.h"

/*
 * One thread per case, 8 bytes read and 4 written each.  The inputs come from memory, so that the
 * compiler cannot fold the arithmetic.
 */
static __global__ void canary_kernel(const uint16_t *narrow, const int8_t *correction,
				     uint32_t *bits)
{
	const unsigned i = threadIdx.x;
	const float n = tsr_f32_from_bf16(narrow[i]);

	bits[i] = tsr_bits_from_f32(tsr_ulp_join(tsr_split_bf16(), n, correction[i], 127.0f));
}

#define CANARIES 4

/*
 * Cases in which fused and unfused arithmetic, or a flush of subnormals, give other bits; the
 * expected values are computed here by the host.
 */
static cudaError_t run_canary(uint32_t found[CANARIES], const uint16_t narrow[CANARIES],
			      const int8_t correction[CANARIES])
{
	uint16_t *d_narrow = NULL;
	int8_t *d_correction = NULL;
	uint32_t *d_bits = NULL;
	cudaError_t e = cudaMalloc(&d_narrow, CANARIES * sizeof(*d_narrow));

	if (e == cudaSuccess)
		e = cudaMalloc(&d_correction, CANARIES * sizeof(*d_correction));
	if (e == cudaSuccess)
		e = cudaMalloc(&d_bits, CANARIES * sizeof(*d_bits));
	if (e == cudaSuccess)
		e = cudaMemcpy(d_narrow, narrow, CANARIES * sizeof(*d_narrow),
			       cudaMemcpyHostToDevice);
	if (e == cudaSuccess)
		e = cudaMemcpy(d_correction, correction, CANARIES * sizeof(*d_correction),
			       cudaMemcpyHostToDevice);
	if (e == cudaSuccess) {
		canary_kernel<<<1, CANARIES>>>(d_narrow, d_correction, d_bits);
		e = cudaGetLastError();
	}
	if (e == cudaSuccess)
		e = cudaMemcpy(found, d_bits, CANARIES * sizeof(*d_bits), cudaMemcpyDeviceToHost);
	cudaFree(d_narrow);
	cudaFree(d_correction);
	cudaFree(d_bits);
	return e;
}

extern "C" bool tsr_gpu_built(void)
{
	return true;
}

extern "C" unsigned tsr_gpu_count(void)
{
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess || n < 0) {
		cudaGetLastError();
		return 0;
	}
	return (unsigned)n;
}

extern "C" enum tsr_status tsr_gpu_describe(unsigned index, char *text, size_t room,
					    struct tsr_err *err)
{
	cudaDeviceProp prop;
	const cudaError_t e = cudaGetDeviceProperties(&prop, (int)index);

	if (e != cudaSuccess)
		return tsr_gpu_fail(err, index, e, "cannot be used");
	snprintf(text, room, "%s, compute capability %d.%d, %zu GiB", prop.name, prop.major,
		 prop.minor, prop.totalGlobalMem >> 30);
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_check(unsigned index, struct tsr_err *err)
{
	static const uint16_t narrow[CANARIES] = { 0x0100, 0x0001, 0x8123, 0x3f80 };
	static const int8_t correction[CANARIES] = { 32, -77, 113, 5 };
	uint32_t found[CANARIES] = { 0 };
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e == cudaSuccess && index >= (unsigned)n)
		return tsr_fail(err, TSR_E_IO, "cuda:%u: no such GPU, found %d", index, n);
	if (e == cudaSuccess)
		e = cudaSetDevice((int)index);
	if (e == cudaSuccess)
		e = run_canary(found, narrow, correction);
	if (e != cudaSuccess)
		return tsr_gpu_fail(err, index, e, "cannot be used");
	for (unsigned i = 0; i < CANARIES; i++) {
		const float value = tsr_ulp_join(tsr_split_bf16(), tsr_f32_from_bf16(narrow[i]),
						 correction[i], 127.0f);

		if (found[i] != tsr_bits_from_f32(value))
			return tsr_fail(
				err, TSR_E_IO,
				"cuda:%u: rounds differently: found bits %08x, expected %08x",
				index, found[i], tsr_bits_from_f32(value));
	}
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_open(unsigned index, struct tsr_gpu **gpu_ret,
					struct tsr_err *err)
{
	struct tsr_gpu *gpu;
	int nprocessors = 0;

	*gpu_ret = NULL;
	TSR_TRY(tsr_gpu_check(index, err));
	TSR_CUDA_TRY(
		index, err,
		cudaDeviceGetAttribute(&nprocessors, cudaDevAttrMultiProcessorCount, (int)index),
		"does not say what it is");
	gpu = (struct tsr_gpu *)calloc(1, sizeof(*gpu));
	if (!gpu)
		return tsr_fail_nomem(err, "GPU");
	gpu->index = index;
	gpu->nprocessors = (unsigned)nprocessors;
	pthread_mutex_init(&gpu->lock, NULL);
	*gpu_ret = gpu;
	return TSR_OK;
}

extern "C" void tsr_gpu_close(struct tsr_gpu *gpu)
{
	if (gpu) {
		tsr_gpu_free_tables(gpu);
		pthread_mutex_destroy(&gpu->lock);
	}
	free(gpu);
}

extern "C" unsigned tsr_gpu_index(const struct tsr_gpu *gpu)
{
	return gpu->index;
}
