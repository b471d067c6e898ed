/* SPDX-License-Identifier: Apache-2.0 */
/* Which contexts of a piece share a table (docs/format.md, "What an encoder writes"), by a block. */
#ifndef TSR_GPU_CODES_TABLES_CUH
#define TSR_GPU_CODES_TABLES_CUH

#include "gpu/entropy/gpu_entropy.cuh"

/*
 * Groups of contexts in a row that have one table: the first context of each, which has codes and the counts
 * of all, how many codes they have, what bits these take, and what is lost if it is joined with the next.
 */
struct context_groups {
	uint32_t n, to_join;
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

/* Groups of one context each that has codes, by one thread, what all contexts have being known. */
static __device__ void drop_empty(struct context_groups *g)
{
	g->n = 0;
	for (unsigned c = 0; c < TSR_RANS_CONTEXT_COUNT; c++) {
		if (!g->codes[c])
			continue;
		g->first[g->n] = c;
		g->codes[g->n] = g->codes[c];
		g->bits[g->n++] = g->bits[c];
	}
}

/* Join group @i with the next but for their counts, by one thread. */
static __device__ void join_groups(struct context_groups *g, unsigned i)
{
	g->bits[i] += g->bits[i + 1] + g->losses[i];
	g->codes[i] += g->codes[i + 1];
	g->n--;
	for (unsigned k = i + 1; k < g->n; k++) {
		g->first[k] = g->first[k + 1];
		g->codes[k] = g->codes[k + 1];
		g->bits[k] = g->bits[k + 1];
	}
	for (unsigned k = i; k + 1 < g->n; k++)
		g->losses[k] = g->losses[k + 1];
}

/* Join groups as long as that pays, or there are too many. */
static __device__ void join_contexts(uint32_t *counts, struct context_groups *g)
{
	const unsigned warp = threadIdx.x / 32;

	for (;;) {
		if (threadIdx.x == 0)
			g->to_join = tsr_rans_group_to_join(g->losses, g->n);
		__syncthreads();

		const unsigned i = g->to_join;

		if (i == g->n)
			return;
		counts[NSYMBOLS * g->first[i] + threadIdx.x] +=
			counts[NSYMBOLS * g->first[i + 1] + threadIdx.x];
		__syncthreads();
		if (threadIdx.x == 0)
			join_groups(g, i);
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
	if (threadIdx.x == 0)
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
