/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_EMULATE_LAUNCH_H
#define TSR_EMULATE_LAUNCH_H

/*
 * Launches: `kernel<<<blocks, threads, shared, stream>>>(arguments)` is rewritten to
 * `kernel ->* emulated_launch(blocks, threads, shared, stream)(arguments)`.
 */
#include <functional>
#include <tuple>
#include <utility>

extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

/* Run @body(@ctx) as every thread of every block. */
void emulated_grid(dim3 blocks, dim3 threads, void (*body)(void *ctx), void *ctx);

/* A kernel in the stream gets this argument: what it has of addresses is not of another GPU's memory. */
void emulated_check(cudaStream_t stream, const void *argument, size_t nbytes);

/* Append work to a stream, or do it now if that is NULL. */
void emulated_append(cudaStream_t stream, const std::function<void()> &work);

template <class... Args> struct emulated_call {
	dim3 blocks, threads;
	cudaStream_t stream;
	std::tuple<Args...> args;
};

struct emulated_launch {
	dim3 blocks, threads;
	cudaStream_t stream;

	emulated_launch(dim3 blocks_, dim3 threads_, size_t = 0, cudaStream_t stream_ = NULL)
		: blocks(blocks_), threads(threads_), stream(stream_)
	{
	}
	template <class... Args> emulated_call<Args...> operator()(Args... args) const
	{
		return { blocks, threads, stream, std::tuple<Args...>(args...) };
	}
};

template <class... Params, class... Args>
static void operator->*(void (*kernel)(Params...), emulated_call<Args...> call)
{
	struct bound {
		void (*kernel)(Params...);
		std::tuple<Params...> params;
	} b = { kernel, std::tuple<Params...>(call.args) };

	std::apply([&](const Params &...p) { (emulated_check(call.stream, &p, sizeof(p)), ...); },
		   b.params);
	emulated_append(call.stream, [b, call]() mutable {
		emulated_grid(
			call.blocks, call.threads,
			[](void *ctx) {
				struct bound *to = (struct bound *)ctx;

				std::apply(to->kernel, to->params);
			},
			&b);
	});
}

/* --- Where the threads of a warp or block wait for each other --------------------------------- */

#define warpSize 32u

/*
 * Give @value and wait for the other threads of the warp, all of which must be in the mask, there,
 * and at the same kind of operation; returns what each of them gave.
 */
const uint64_t *emulated_meet(const char *operation, unsigned mask, uint64_t value);
void __syncthreads(void);

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
	emulated_meet("__syncwarp", mask, 0);
}

template <class T> static inline uint64_t emulated_word(T value)
{
	uint64_t word = 0;

	static_assert(sizeof(T) <= sizeof(word), "up to 64 bits");
	memcpy(&word, &value, sizeof(value));
	return word;
}

template <class T> static inline T emulated_value(uint64_t word)
{
	T value;

	memcpy(&value, &word, sizeof(value));
	return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, unsigned lane)
{
	return emulated_value<T>(
		emulated_meet("__shfl_sync", mask, emulated_word(value))[lane % warpSize]);
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, unsigned distance)
{
	const unsigned from = (threadIdx.x % warpSize) ^ distance;

	return emulated_value<T>(emulated_meet("__shfl_xor_sync", mask, emulated_word(value))[from]);
}

/* A thread without a source keeps its own value. */
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned distance)
{
	const unsigned lane = threadIdx.x % warpSize, from = lane + distance;
	const uint64_t *all = emulated_meet("__shfl_down_sync", mask, emulated_word(value));

	return emulated_value<T>(all[from < warpSize ? from : lane]);
}

static inline unsigned __ballot_sync(unsigned mask, bool holds)
{
	const uint64_t *all = emulated_meet("__ballot_sync", mask, holds);
	unsigned bits = 0;

	for (unsigned i = 0; i < warpSize; i++)
		bits |= (unsigned)all[i] << i;
	return bits;
}

static inline bool __any_sync(unsigned mask, bool holds)
{
	return __ballot_sync(mask, holds) != 0;
}

static inline bool __all_sync(unsigned mask, bool holds)
{
	return __ballot_sync(mask, holds) == mask;
}

/* Whether it holds for all threads of the block. */
static inline int __syncthreads_and(int holds)
{
	static int all;

	__syncthreads();
	all = 1;
	__syncthreads();
	all &= holds != 0;
	__syncthreads();
	return all;
}

static inline unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
	const uint64_t *all = emulated_meet("__reduce_add_sync", mask, value);
	unsigned sum = 0;

	for (unsigned i = 0; i < warpSize; i++)
		sum += (unsigned)all[i];
	return sum;
}

static inline unsigned __reduce_max_sync(unsigned mask, unsigned value)
{
	const uint64_t *all = emulated_meet("__reduce_max_sync", mask, value);
	unsigned most = 0;

	for (unsigned i = 0; i < warpSize; i++)
		most = std::max(most, (unsigned)all[i]);
	return most;
}

static inline unsigned __reduce_min_sync(unsigned mask, unsigned value)
{
	const uint64_t *all = emulated_meet("__reduce_min_sync", mask, value);
	unsigned least = ~0u;

	for (unsigned i = 0; i < warpSize; i++)
		least = std::min(least, (unsigned)all[i]);
	return least;
}

#endif
