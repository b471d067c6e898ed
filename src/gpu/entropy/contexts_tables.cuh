/* SPDX-License-Identifier: Apache-2.0 */
/* Which contexts of a piece share a table (format.md, "What an encoder writes"), by a block. */
#ifndef TSR_GPU_CONTEXTS_TABLES_CUH
#define TSR_GPU_CONTEXTS_TABLES_CUH

#include "gpu/entropy/gpu_entropy.cuh"

/*
 * Groups of contexts in a row that have one table: the first context of each, which has codes and the counts
 * of all, how many codes they have, what bits these take, and what is lost if it is joined with the next.
 */
struct context_groups {
	uint32_t n;
	uint32_t begin; /* a bit for each first context */
	uint32_t first[TSR_RANS_CONTEXT_COUNT], codes[TSR_RANS_CONTEXT_COUNT];
	int32_t bits[TSR_RANS_CONTEXT_COUNT], losses[TSR_RANS_CONTEXT_COUNT];
};

/* The codes of one context, or of two, and the bits that they take with a table of their own; by one warp. */
static __device__ int32_t bits_of_contexts(const uint32_t *a, const uint32_t *b, uint32_t *n_ret)
{
	uint32_t n = 0, informations = 0;

	for (unsigned s = threadIdx.x % 32; s < NSYMBOLS; s += 32) {
		const uint32_t count = a[s] + (b ? b[s] : 0);

		n += count;
		informations += tsr_rans_information(count);
	}
	*n_ret = __reduce_add_sync(TSR_WHOLE_WARP, n);
	informations = __reduce_add_sync(TSR_WHOLE_WARP, informations);
	return (int32_t)(tsr_rans_information(*n_ret) - informations);
}

/* What is lost if group @i is joined with the next, by one warp. */
static __device__ void find_loss(const uint32_t *counts, struct context_groups *g, unsigned i)
{
	uint32_t n;
	const int32_t bits = bits_of_contexts(counts + NSYMBOLS * g->first[i],
					      counts + NSYMBOLS * g->first[i + 1], &n);

	if (threadIdx.x % 32 == 0)
		g->losses[i] = bits - g->bits[i] - g->bits[i + 1];
}

/* Groups of one context each that has codes, by one warp, what all contexts have being known. */
static __device__ void drop_empty(struct context_groups *g)
{
	const unsigned lane = threadIdx.x % 32;
	const uint32_t codes = lane < TSR_RANS_CONTEXT_COUNT ? g->codes[lane] : 0;
	const int32_t bits = lane < TSR_RANS_CONTEXT_COUNT ? g->bits[lane] : 0;
	const uint32_t has = __ballot_sync(TSR_WHOLE_WARP, codes != 0);
	const unsigned to = __popc(has & ((1u << lane) - 1));

	__syncwarp();
	if (lane == 0)
		g->n = __popc(has);
	if (codes) {
		g->first[to] = lane;
		g->codes[to] = codes;
		g->bits[to] = bits;
	}
}

/* tsr_rans_group_to_join(), by one warp. */
static __device__ unsigned group_to_join(const struct context_groups *g)
{
	const unsigned lane = threadIdx.x % 32, n = g->n;
	/* As unsigned numbers they are in the order of signed ones. */
	const uint32_t sign = 0x80000000u;
	const uint32_t loss = lane + 1 < n ? (uint32_t)g->losses[lane] ^ sign : UINT32_MAX;
	const uint32_t least = __reduce_min_sync(TSR_WHOLE_WARP, loss);
	const uint32_t has = __ballot_sync(TSR_WHOLE_WARP, loss == least);

	if (n < 2 || (n <= TSR_RANS_TABLE_COUNT && (int32_t)(least ^ sign) >= TSR_RANS_TABLE_COST))
		return n;
	return __ffs((int)has) - 1;
}

/* Join group @i of @n with the next but for their counts, by one warp. */
static __device__ void join_groups(struct context_groups *g, unsigned n, unsigned i)
{
	const unsigned lane = threadIdx.x % 32, from = lane > i ? lane + 1 : lane;
	const bool stays = lane >= i && lane + 1 < n;
	uint32_t first = 0, codes = 0;
	int32_t bits = 0, loss = 0;

	if (stays) {
		first = g->first[from];
		codes = g->codes[from] + (lane == i ? g->codes[i + 1] : 0);
		bits = g->bits[from] + (lane == i ? g->bits[i + 1] + g->losses[i] : 0);
		loss = lane + 2 < n ? g->losses[lane + 1] : 0;
	}
	__syncwarp();
	if (stays) {
		g->first[lane] = first;
		g->codes[lane] = codes;
		g->bits[lane] = bits;
		g->losses[lane] = loss;
	}
	if (lane == 0)
		g->n = n - 1;
}

/* Join groups as long as that pays, or there are too many. */
static __device__ void join_contexts(uint32_t *counts, struct context_groups *g)
{
	const unsigned warp = threadIdx.x / 32;

	for (;;) {
		const unsigned n = g->n, i = group_to_join(g);
		const uint32_t to = i < n ? g->first[i] : 0, from = i < n ? g->first[i + 1] : 0;

		__syncthreads();
		if (i == n)
			return;
		counts[NSYMBOLS * to + threadIdx.x] += counts[NSYMBOLS * from + threadIdx.x];
		if (warp == 0)
			join_groups(g, n, i);
		__syncthreads();
		if (warp < 2 && i + warp >= 1 && i + warp < g->n)
			find_loss(counts, g, i + warp - 1);
		__syncthreads();
	}
}

/* Choose tables by the counts of contexts, of which the first of each group has those of all then. */
static __device__ void choose_tables(uint32_t *counts, struct context_groups *g)
{
	const unsigned warp = threadIdx.x / 32;

	for (unsigned c = warp; c < TSR_RANS_CONTEXT_COUNT; c += WARPS) {
		uint32_t n;
		const int32_t bits = bits_of_contexts(counts + NSYMBOLS * c, NULL, &n);

		if (threadIdx.x % 32 == 0) {
			g->codes[c] = n;
			g->bits[c] = bits;
		}
	}
	__syncthreads();
	if (warp == 0)
		drop_empty(g);
	__syncthreads();
	for (unsigned i = warp; i + 1 < g->n; i += WARPS)
		find_loss(counts, g, i);
	__syncthreads();
	join_contexts(counts, g);
	if (threadIdx.x == 0) {
		g->begin = 0;
		for (unsigned i = 0; i < g->n; i++)
			g->begin |= 1u << g->first[i];
	}
	__syncthreads();
}

#endif
