/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_EMULATE_CUDA_RUNTIME_H
#define TSR_EMULATE_CUDA_RUNTIME_H

/*
 * As much of CUDA as src/gpu uses, on the CPU: kernels can be checked where there is no GPU, and
 * under the compiler's sanitizers.  Memory is the CPU's, work in streams is done as late as can be,
 * when something waits for it, and the threads of a block take turns (see emulate.cu).  What is not the same: which NaN arithmetic makes,
 * conversions of floats out of range, and everything about time.
 */
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __constant__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __builtin_assume(condition) ((void)0)
#define __launch_bounds__(...)
#define __restrict__ __restrict

/* --- Types ------------------------------------------------------------------------------------ */

struct alignas(8) uint2 {
	unsigned x, y;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) float4 {
	float x, y, z, w;
};
struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
};

/* --- The runtime ------------------------------------------------------------------------------ */

enum cudaError_t {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInvalidDevice = 101,
	cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind {
	cudaMemcpyHostToHost,
	cudaMemcpyHostToDevice,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault,
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;

struct cudaDeviceProp {
	char name[256];
	size_t totalGlobalMem;
	int major, minor, multiProcessorCount;
};

const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device);
cudaError_t emulated_malloc(void **memory, size_t nbytes);
cudaError_t emulated_status(void); /* of the current GPU: cudaSuccess until a kernel fails there */
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *to, int value, size_t nbytes);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);

template <class T> static inline cudaError_t cudaMalloc(T **memory, size_t nbytes)
{
	return emulated_malloc((void **)memory, nbytes);
}

cudaError_t emulated_malloc_host(void **memory, size_t nbytes);
cudaError_t cudaFreeHost(void *memory);

template <class T> static inline cudaError_t cudaMallocHost(T **memory, size_t nbytes)
{
	return emulated_malloc_host((void **)memory, nbytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind,
			    cudaStream_t stream = NULL);
cudaError_t cudaMemsetAsync(void *to, int value, size_t nbytes, cudaStream_t stream = NULL);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

#include "launch.h"

/* --- What a kernel calls ---------------------------------------------------------------------- */

static inline float __fmaf_rn(float a, float b, float c)
{
	return __builtin_fmaf(a, b, c);
}

static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}

/* Of eight bytes, those of @a lowest, the four that the digits of @select number. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select)
{
	const uint64_t bytes = (uint64_t)b << 32 | a;
	unsigned chosen = 0;

	for (unsigned i = 0; i < 4; i++)
		chosen |= (unsigned)(bytes >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
	return chosen;
}

static inline float __frcp_rn(float a)
{
	return 1.0f / a;
}

static inline float __fsqrt_rn(float a)
{
	return __builtin_sqrtf(a);
}

static inline double __dsqrt_rn(double a)
{
	return __builtin_sqrt(a);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
	return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

static inline uint64_t __umul64hi(uint64_t a, uint64_t b)
{
	return (uint64_t)((unsigned __int128)a * b >> 64);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)((uint64_t)a * b >> 32);
}

static inline int __popc(unsigned a)
{
	return __builtin_popcount(a);
}

static inline int __clz(int a)
{
	return a ? __builtin_clz((unsigned)a) : 32;
}

/* Of two signed halves: the larger ones; a sum, which is to fit, no larger than @most and not negative. */
static inline unsigned __vmaxs2(unsigned a, unsigned b)
{
	const int low = std::max((int16_t)a, (int16_t)b);
	const int high = std::max((int16_t)(a >> 16), (int16_t)(b >> 16));

	return (uint16_t)low | (unsigned)high << 16;
}

static inline unsigned __viaddmin_s16x2_relu(unsigned a, unsigned b, unsigned most)
{
	const int low = std::min((int16_t)a + (int16_t)b, (int)(int16_t)most);
	const int high = std::min((int16_t)(a >> 16) + (int16_t)(b >> 16), (int)(int16_t)(most >> 16));

	return (uint16_t)std::max(low, 0) | (unsigned)std::max(high, 0) << 16;
}

static inline int __ffs(int a)
{
	return __builtin_ffs(a);
}

static inline float __uint_as_float(unsigned bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline unsigned __float_as_uint(float x)
{
	unsigned bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline long long __double_as_longlong(double x)
{
	long long bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

template <class T> static inline T max(T a, T b)
{
	return a > b ? a : b;
}

template <class T> static inline T min(T a, T b)
{
	return a < b ? a : b;
}

template <class T> static inline void __stcs(T *p, T v)
{
	*p = v;
}

template <class T> static inline T __ldcs(const T *p)
{
	return *p;
}

template <class T> static inline T __ldg(const T *p)
{
	return *p;
}

/* The threads of an emulated GPU take turns: nothing is between reading and writing. */
template <class T> static inline T atomicAdd(T *p, T v)
{
	const T was = *p;

	*p = was + v;
	return was;
}

template <class T> static inline T atomicMin(T *p, T v)
{
	const T was = *p;

	*p = was < v ? was : v;
	return was;
}

template <class T> static inline T atomicOr(T *p, T v)
{
	const T was = *p;

	*p = was | v;
	return was;
}

template <class T> static inline T atomicMax(T *p, T v)
{
	const T was = *p;

	*p = was > v ? was : v;
	return was;
}

#endif
