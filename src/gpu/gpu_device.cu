/* SPDX-License-Identifier: Apache-2.0 */
/* Finding GPUs, and making sure that their code rounds as the CPU's does. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/cuda.h"
#include "codec/math.h"

/*
 * Cases in which fused and unfused arithmetic, or a flush of subnormals, give other bits.  They come from
 * memory, so that the compiler cannot fold the arithmetic.
 */
#define CANARIES 4

struct canaries {
	uint16_t narrow[CANARIES];
	int8_t correction[CANARIES];
	uint32_t bits[CANARIES]; /* found */
};

static __host__ __device__ uint32_t canary_bits(const struct canaries *c, unsigned i)
{
	return tsr_bits_from_f32(tsr_ulp_join(tsr_split_bf16(), tsr_f32_from_bf16(c->narrow[i]),
					      c->correction[i], 127.0f));
}

static __global__ void canary_kernel(struct canaries *c)
{
	c->bits[threadIdx.x] = canary_bits(c, threadIdx.x);
}

static cudaError_t run_canary(struct canaries *c)
{
	struct canaries *device = NULL;
	cudaError_t e = cudaMalloc(&device, sizeof(*c));

	if (e == cudaSuccess)
		e = cudaMemcpy(device, c, sizeof(*c), cudaMemcpyHostToDevice);
	if (e == cudaSuccess) {
		canary_kernel<<<1, CANARIES>>>(device);
		e = cudaGetLastError();
	}
	if (e == cudaSuccess)
		e = cudaMemcpy(c, device, sizeof(*c), cudaMemcpyDeviceToHost);
	cudaFree(device);
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
	struct canaries c = { { 0x0100, 0x0001, 0x8123, 0x3f80 }, { 32, -77, 113, 5 }, {} };
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e == cudaSuccess && index >= (unsigned)n)
		return tsr_fail(err, TSR_E_IO, "cuda:%u: no such GPU, found %d", index, n);
	if (e == cudaSuccess)
		e = cudaSetDevice((int)index);
	if (e == cudaSuccess)
		e = run_canary(&c);
	if (e != cudaSuccess)
		return tsr_gpu_fail(err, index, e, "cannot be used");
	for (unsigned i = 0; i < CANARIES; i++) {
		if (c.bits[i] != canary_bits(&c, i))
			return tsr_fail(
				err, TSR_E_IO,
				"cuda:%u: rounds differently: found bits %08x, expected %08x",
				index, c.bits[i], canary_bits(&c, i));
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
