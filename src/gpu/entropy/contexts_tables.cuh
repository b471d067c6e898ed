/* SPDX-License-Identifier: Apache-2.0 */
/* Which contexts of a piece share a table (format.md, "What an encoder writes"), by a block. */
#ifndef TSR_GPU_CONTEXTS_TABLES_CUH
#define TSR_GPU_CONTEXTS_TABLES_CUH

#include "gpu/entropy/gpu_entropy.cuh"

/* Contexts in a row that have one table; the first one has the counts of all. */
struct context_group {
	uint32_t first, codes; /* the first context; the codes of all */
	int32_t bits; /* that these take */
};

struct context_groups {
	uint32_t n;
	uint32_t begin; /* a bit for each first context */
	struct context_group group[TSR_RANS_CONTEXT_COUNT];
	int32_t losses[TSR_RANS_CONTEXT_COUNT]; /* if a group is joined with the next */
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
	const struct context_group *one = &g->group[i];
	uint32_t n;
	const int32_t bits = bits_of_contexts(counts + NSYMBOLS * one[0].first,
					      counts + NSYMBOLS * one[1].first, &n);

	if (threadIdx.x % 32 == 0)
		g->losses[i] = bits - one[0].bits - one[1].bits;
}

/* Only groups that have codes, by one warp; each is of one context. */
static __device__ void drop_empty(struct context_groups *g)
{
	const unsigned lane = threadIdx.x % 32;
	const struct context_group own = g->group[lane % TSR_RANS_CONTEXT_COUNT];
	const bool has = lane < TSR_RANS_CONTEXT_COUNT && own.codes;
	const uint32_t mask = __ballot_sync(TSR_WHOLE_WARP, has);

	if (lane == 0)
		g->n = __popc(mask);
	if (has)
		g->group[__popc(mask & ((1u << lane) - 1))] = own;
}

/* Join group @i of @n with the next but for their counts and what would be lost next, by one warp. */
static __device__ void join_groups(struct context_groups *g, unsigned n, unsigned i)
{
	const unsigned lane = threadIdx.x % 32;
	const bool moves = lane > i && lane + 1 < n;
	struct context_group own = g->group[moves ? lane + 1 : i];
	const struct context_group next = g->group[i + 1];
	const int32_t loss = g->losses[moves ? lane + 1 : i];

	__syncwarp();
	if (lane == i) {
		own.codes += next.codes;
		own.bits += next.bits + loss;
	}
	if (lane == i || moves) {
		g->group[lane] = own;
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
		const unsigned n = g->n,
			       i = tsr_rans_group_to_join(g->losses, n, TSR_RANS_TABLE_COST);
		const uint32_t to = g->group[i < n ? i : 0].first;
		const uint32_t from = g->group[i < n ? i + 1 : 0].first;

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

		if (threadIdx.x % 32 == 0)
			g->group[c] = { c, n, bits };
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
			g->begin |= 1u << g->group[i].first;
	}
	__syncthreads();
}

#endif
