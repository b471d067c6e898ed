/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coding pieces of codes of variances with tables chosen by contexts (format.md, "Contexts"): a block
 * of threads finds the means of rows and columns, counts the codes of each context, makes
 * tables, one per warp, and codes segments as those of other streams.
 */
#ifndef TSR_GPU_CONTEXTS_ENCODE_CUH
#define TSR_GPU_CONTEXTS_ENCODE_CUH

#include "gpu/entropy/contexts_means.cuh"
#include "gpu/entropy/contexts_tables.cuh"
#include "gpu/entropy/encode_stream.cuh"

#define NTABLES TSR_RANS_TABLE_COUNT

static_assert(WARPS == NTABLES, "a warp makes a table");

/*
 * What a block has in global memory: for each warp, the contexts of a segment from the beginning on, and its
 * words from the end on, which take their place as contexts are done with; sums of lines, and stored means.
 */
#define STAGED_WORDS (WARPS * STAGED)
#define CONTEXTS_STAGED (STAGED_WORDS + MEANS_STAGED)

/* What the threads of a block share. */
struct contexts_coding {
	struct coding one; /* without contexts; `count` has those of tables first */
	union {
		struct means_memory means; /* first */
		uint32_t count[TSR_RANS_CONTEXT_COUNT * NSYMBOLS]; /* until there are tables */
		struct packed_symbol symbol[NTABLES * NSYMBOLS];
	};
	struct context_groups groups;
	uint32_t table[NTABLES][TABLE_WORDS];
	struct made_table made[NTABLES];
	uint32_t total[NSYMBOLS];
};

/* What is put in front of segments. */
struct front {
	uint32_t means, nbytes; /* of the means; of all */
	uint32_t cost; /* of the codes by these tables, in 1/256 of a bit */
	bool increments; /* a symbol needs it */
};

/* --- Counts and tables --------------------------------------------------------------------------- */

/* A run, and what its contexts depend on, loaded ahead. */
struct loaded_run {
	uint32_t codes;
	struct run_inputs inputs;
};

template <enum context_sort SORT>
static __device__ __forceinline__ struct loaded_run load_codes(const struct context_source *s,
							       const unsigned char *codes,
							       const struct run_place *p,
							       uint32_t count)
{
	return { load_run<1>(codes + p->at, count).word[0], load_inputs<SORT>(s, p, count) };
}

/* Count the codes of a run by contexts, in each of which 256 counts are. */
static __device__ __forceinline__ void count_pairs_of(uint32_t *counts, uint32_t codes,
						      uint32_t contexts, uint32_t n)
{
	const uint32_t first = first_pairs(codes, contexts), last = last_pairs(codes, contexts);
	const uint32_t at[TSR_RANS_RUN] = { first & 0xffff, first >> 16, last & 0xffff,
					    last >> 16 };

#pragma unroll
	for (unsigned r = 0; r < TSR_RANS_RUN; r++)
		if (r < n)
			atomicAdd(&counts[at[r]], 1u);
}

/* Blocks that are loaded at once. */
#define PAIRS_AHEAD 4u

/* Count codes by contexts, which are kept at @packed. */
template <enum context_sort SORT>
static __device__ __forceinline__ void count_pairs(const struct context_source *s,
						   const unsigned char *codes, uint32_t begin,
						   uint32_t size, uint32_t *counts,
						   uint16_t *packed)
{
	const unsigned lane = threadIdx.x % 32;
	/* Of the next run that is loaded; where runs are looked at one by one, of the one that is used. */
	struct run_place p = begin_runs(s, begin + TSR_RANS_RUN * lane);

	for_runs<SORT == OF_ANY ? 1 : PAIRS_AHEAD>(
		size,
		[&](uint32_t, uint32_t count) {
			const struct loaded_run run = load_codes<SORT>(s, codes, &p, count);

			if (SORT != OF_ANY)
				next_run<SORT>(s, &p);
			return run;
		},
		[&](uint32_t first, struct loaded_run run, uint32_t count) {
			const uint32_t contexts = contexts_of_run<SORT>(s, &p, run.inputs, count);

			if (count)
				packed[first / 4 + lane] = (uint16_t)pack_contexts(contexts);
			count_pairs_of(counts, run.codes, contexts, count);
			if (SORT == OF_ANY)
				next_run<SORT>(s, &p);
		});
}

/* The counts of groups, out of the way of what their tables become, and of all; whether codes differ. */
static __device__ bool take_counts(struct contexts_coding *c, uint32_t n)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < c->groups.n; i++) {
		const uint32_t count = c->count[NSYMBOLS * c->groups.group[i].first + threadIdx.x];

		c->one.count[NSYMBOLS * i + threadIdx.x] = count;
		sum += count;
	}
	c->total[threadIdx.x] = sum;
	return __syncthreads_and(sum < n);
}

/* The tables of groups, and that of all codes whatever their contexts, each by a warp. */
static __device__ void make_tables(struct contexts_coding *c, uint32_t n)
{
	for (unsigned i = threadIdx.x / 32; i <= c->groups.n; i += WARPS) {
		const bool all = i == c->groups.n;

		make_table(all ? c->total : c->one.count + NSYMBOLS * i,
			   all ? n : c->groups.group[i].codes,
			   all ? c->one.symbol : c->symbol + NSYMBOLS * i,
			   all ? c->one.table : c->table[i], all ? &c->one.made : &c->made[i]);
	}
	__syncthreads();
}

static __device__ struct front front_of(const struct contexts_coding *c, uint32_t means)
{
	struct front f = { means, means + 4, 0, false };

	for (unsigned i = 0; i < c->groups.n; i++) {
		f.nbytes += c->made[i].nbytes;
		f.cost += c->made[i].cost;
		f.increments |= c->made[i].increments;
	}
	return f;
}

/* Whether contexts make a stream smaller that is worth coding with them. */
static __device__ bool is_better(const struct front *f, uint32_t n, const struct contexts_coding *c)
{
	return tsr_rans_is_worth(n, f->nbytes, f->cost) &&
	       2048 * f->nbytes + f->cost < 2048 * c->one.made.nbytes + c->one.made.cost;
}

/* --- Segments ------------------------------------------------------------------------------------ */

/* A run, and its contexts. */
struct packed_run {
	uint32_t codes, contexts;
};

static __device__ __forceinline__ struct packed_run load_packed(const unsigned char *codes,
								const uint16_t *packed,
								uint32_t first, uint32_t count)
{
	return { load_run<1>(codes + first, count).word[0], count ? packed[first / 4] : 0u };
}

/* What an encoder looks up for the codes of a run. */
static __device__ __forceinline__ void symbols_of_run(const struct packed_symbol *symbols,
						      const struct context_tables *tables,
						      struct packed_run run,
						      struct packed_symbol *ret)
{
	const uint32_t above = tables_of_run(tables, run.contexts);
	const uint32_t first = first_pairs(run.codes, above), last = last_pairs(run.codes, above);

	ret[0] = symbols[first & 0xffff];
	ret[1] = symbols[first >> 16];
	ret[2] = symbols[last & 0xffff];
	ret[3] = symbols[last >> 16];
}

/* Means, with what contexts tables begin, and these, at @to. */
static __device__ void put_front(const struct front *f, const struct contexts_coding *c,
				 const uint32_t *means, uint32_t *to)
{
	uint32_t at = f->means / 4;

	for (uint32_t i = threadIdx.x; i < at; i += TSR_BLOCK)
		to[i] = means[i];
	if (threadIdx.x == 0)
		to[at] = c->groups.begin;
	at++;
	for (unsigned k = 0; k < c->groups.n; k++) {
		const uint32_t nwords = c->made[k].nbytes / 4;

		for (uint32_t i = threadIdx.x; i < nwords; i += TSR_BLOCK)
			to[at + i] = c->table[k][i];
		at += nwords;
	}
}

/* The body of a piece with contexts to @to; returns its bytes, or 0 if it is to have none. */
template <enum context_sort SORT>
static __device__ uint32_t put_contexts(struct context_source *s, const unsigned char *codes,
					struct contexts_coding *c, unsigned char *staging,
					uint32_t *to)
{
	const unsigned warp = threadIdx.x / 32;
	const uint32_t begin = warp * TSR_RANS_SEGMENT;
	const uint32_t size = warp < tsr_rans_count_segments(s->n)
				      ? tsr_rans_segment_size(s->n, warp)
				      : 0;
	uint16_t *const packed = (uint16_t *)(staging + warp * STAGED);
	const uint32_t *means = (const uint32_t *)(staging + STAGED_WORDS) + LINES;
	uint32_t means_nbytes, nbytes;
	struct context_tables tables;
	struct front f;

	means_nbytes = find_means<SORT>(s, codes, &c->means, staging + STAGED_WORDS);
	for (unsigned i = threadIdx.x; i < TSR_RANS_CONTEXT_COUNT * NSYMBOLS; i += TSR_BLOCK)
		c->count[i] = 0;
	__syncthreads();
	count_pairs<SORT>(s, codes, begin, size, c->count, packed);
	__syncthreads();
	choose_tables(c->count, &c->groups);
	if (!take_counts(c, s->n))
		return 0;
	make_tables(c, s->n);
	f = front_of(c, means_nbytes);
	if (!is_better(&f, s->n, c))
		return 0;
	tables = tables_of_contexts(c->groups.begin);
	nbytes = put_segments(
		size, s->n, f.increments,
		[=](uint32_t first, uint32_t count) {
			return load_packed(codes + begin + TSR_RANS_RUN * (threadIdx.x % 32),
					   packed + threadIdx.x % 32, first, count);
		},
		[&](struct packed_run run, struct packed_symbol *found) {
			symbols_of_run(c->symbol, &tables, run, found);
		},
		f.nbytes, &c->one, staging, to);
	if (nbytes)
		put_front(&f, c, means, to);
	return nbytes;
}

/* --- Pieces -------------------------------------------------------------------------------------- */

/* A piece of codes with contexts, or without where that is smaller; returns its bytes. */
static __device__ __forceinline__ uint32_t put_codes(const struct tsr_gpu_piece *p,
						     struct contexts_coding *c,
						     unsigned char *staging)
{
	const unsigned char *codes = (const unsigned char *)p->plain;
	uint32_t *to = (uint32_t *)p->coded, nbytes = 0;

	if (tsr_contexts_are_possible(&p->variance, p->n)) {
		enum context_sort sort;
		struct context_source s = source_of(&p->variance, p->n, &sort);

		if (sort == OF_RUNS)
			nbytes = put_contexts<OF_RUNS>(&s, codes, c, staging, to + 1);
		else
			nbytes = put_contexts<OF_ANY>(&s, codes, c, staging, to + 1);
	}
	__syncthreads();
	if (!nbytes)
		return put_piece<1>(codes, p->n, false, &c->one, staging, to);
	if (threadIdx.x == 0)
		to[0] = nbytes << 8 | TSR_RANS_CONTEXTS;
	return 4 + nbytes;
}

#endif
