/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of the kernels: TSR_BLOCK threads, each of which has one or a few vectors of W
 * consecutive elements; the vectors of a warp are side by side, so each access of it covers whole
 * sectors.  W is 4 (16 bytes of FP32 at a time), or 1 where arrays are not aligned for that.
 */
#ifndef TSR_GPU_VECTOR_CUH
#define TSR_GPU_VECTOR_CUH

#include <stdint.h>
#include <string.h>

#define TSR_BLOCK 256u
#define TSR_WHOLE_WARP 0xffffffffu

template <int NBYTES> struct tsr_word;
template <> struct tsr_word<1> {
	typedef unsigned char type;
};
template <> struct tsr_word<2> {
	typedef unsigned short type;
};
template <> struct tsr_word<4> {
	typedef unsigned int type;
};
template <> struct tsr_word<8> {
	typedef uint2 type;
};
template <> struct tsr_word<16> {
	typedef uint4 type;
};

/* What is read or written at once: 16 bytes, or a whole tile of N. */
template <typename T, int N> struct tsr_access {
	static const int width = 16 / sizeof(T) < N ? 16 / sizeof(T) : N, count = N / width;
	typedef typename tsr_word<sizeof(T) * width>::type word;

	T v[width];
};

/*
 * Tile number @tile of an array: N elements of it.  What is written leaves the cache first, as it would
 * otherwise evict what is read; reads use the cache as usual, which was faster.
 */
template <typename T, int N>
static __device__ __forceinline__ void load_tile(const void *array, uint64_t tile, T *x)
{
	typedef tsr_access<T, N> access;
	typedef typename access::word word;

#pragma unroll
	for (int i = 0; i < access::count; i++) {
		const word raw = ((const word *)array)[tile * access::count + i];
		access a;

		memcpy(&a, &raw, sizeof(a));
		*(access *)&x[i * access::width] = a;
	}
}

template <typename T, int N>
static __device__ __forceinline__ void store_tile(void *array, uint64_t tile, const T *x)
{
	typedef tsr_access<T, N> access;
	typedef typename access::word word;

#pragma unroll
	for (int i = 0; i < access::count; i++) {
		const access a = *(const access *)&x[i * access::width];
		word raw;

		memcpy(&raw, &a, sizeof(raw));
		__stcs((word *)array + tile * access::count + i, raw);
	}
}

/* Index of the first of @each vectors of this thread; they are TSR_BLOCK apart. */
static __device__ __forceinline__ uint64_t tsr_first_vector(unsigned each)
{
	return (uint64_t)blockIdx.x * (each * TSR_BLOCK) + threadIdx.x;
}

static inline unsigned tsr_blocks(uint64_t nvectors, unsigned each)
{
	return (unsigned)((nvectors + each * TSR_BLOCK - 1) / (each * TSR_BLOCK));
}

/* Whether an array begins at a multiple of @nbytes, a power of two. */
static inline bool tsr_is_aligned(const void *array, size_t nbytes)
{
	return ((uintptr_t)array & (nbytes - 1)) == 0;
}

/* Add what the threads of a warp have counted.  Integers: the order does not matter. */
static __device__ __forceinline__ void tsr_add_count(uint64_t *total, unsigned count)
{
	const unsigned sum = __reduce_add_sync(TSR_WHOLE_WARP, count);

	if (sum && threadIdx.x % 32 == 0)
		atomicAdd((unsigned long long *)total, (unsigned long long)sum);
}

#endif
