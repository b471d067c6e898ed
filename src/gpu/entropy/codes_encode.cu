/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coding pieces of codes with tables chosen by what lies beside them (docs/format.md, "Contexts"): a block
 * of threads finds the means of a variance's rows and columns, counts the codes of each context, makes
 * tables, one per warp, and codes segments as those of other streams.
 */
#include "gpu/entropy/codes_means.cuh"
#include "gpu/entropy/codes_tables.cuh"
#include "gpu/entropy/encode_stream.cuh"

#define NTABLES TSR_RANS_TABLE_COUNT

static_assert(WARPS == NTABLES, "a warp makes a table");

/* Blocks of a multiprocessor: all there is room for. */
#define BLOCKS 5u

/* What a block has in global memory: the words of segments, sums of lines, and stored means. */
#define STAGED_WORDS (WARPS * STAGED)
#define BLOCK_STAGED (STAGED_WORDS + MEANS_STAGED)

/* What the threads of a block share. */
struct contexts_coding {
	struct coding one; /* without contexts; `count` has those of tables first */
	union {
		uint32_t count[TSR_RANS_CONTEXT_COUNT * NSYMBOLS]; /* until there are tables */
		struct packed_symbol symbol[NTABLES * NSYMBOLS];
	};
	struct context_groups groups;
	uint32_t table[NTABLES][TABLE_WORDS];
	struct made_table made[NTABLES];
	uint32_t total[NSYMBOLS];
	struct means_memory means;
};

/* What is put in front of segments. */
struct front {
	uint32_t means, nbytes; /* of the means; of all */
	uint32_t cost; /* of the codes by these tables, in 1/256 of a bit */
	bool increments; /* a symbol needs it */
};

/* --- Counts and tables --------------------------------------------------------------------------- */

/* A run, and what lies beside it, loaded ahead. */
struct loaded_run {
	uint32_t codes;
	struct run_beside beside;
};

template <enum context_sort SORT>
static __device__ __forceinline__ struct loaded_run load_codes(const struct context_source *s,
							       const unsigned char *codes,
							       const struct run_place *p,
							       uint32_t count)
{
	return { load_run<1>(codes + p->at, count).word[0], load_beside<SORT>(s, p, count) };
}

/* Where each code of a run is looked up: 256 times its context, or its table, plus the code. */
template <enum context_sort SORT, bool TABLES>
static __device__ __forceinline__ void pairs_of(const struct context_source *s,
						const struct run_place *p, struct loaded_run r,
						uint32_t count, uint64_t tables, uint32_t *pairs)
{
	contexts_of_run<SORT>(s, p, r.beside, count, pairs);
	if (TABLES)
		use_tables(tables, pairs);
#pragma unroll
	for (unsigned i = 0; i < TSR_RANS_RUN; i++)
		pairs[i] = pairs[i] * NSYMBOLS + __byte_perm(r.codes, 0, 0x4440 + i);
}

/* Blocks that are loaded at once. */
#define PAIRS_AHEAD 4u

template <enum context_sort SORT>
static __device__ __forceinline__ void count_pairs(const struct context_source *s,
						   const unsigned char *codes, uint32_t begin,
						   uint32_t size, uint32_t *counts)
{
	const unsigned lane = threadIdx.x % 32;
	const uint32_t whole = size - size % (PAIRS_AHEAD * TSR_RANS_BLOCK);
	struct run_place p = begin_runs(s, begin + TSR_RANS_RUN * lane);
	uint32_t pairs[TSR_RANS_RUN];

	for (uint32_t first = 0; first < whole; first += PAIRS_AHEAD * TSR_RANS_BLOCK) {
		struct loaded_run runs[PAIRS_AHEAD];
		struct run_place places[PAIRS_AHEAD];

#pragma unroll
		for (unsigned i = 0; i < PAIRS_AHEAD; i++) {
			places[i] = p;
			runs[i] = load_codes<SORT>(s, codes, &p, TSR_RANS_RUN);
			next_run<SORT>(s, &p);
		}
#pragma unroll
		for (unsigned i = 0; i < PAIRS_AHEAD; i++) {
			pairs_of<SORT, false>(s, &places[i], runs[i], TSR_RANS_RUN, 0, pairs);
#pragma unroll
			for (unsigned r = 0; r < TSR_RANS_RUN; r++)
				atomicAdd(&counts[pairs[r]], 1u);
		}
	}
	for (uint32_t first = whole; first < size; first += TSR_RANS_BLOCK) {
		const uint32_t count = count_run(size, first, lane);

		pairs_of<SORT, false>(s, &p, load_codes<SORT>(s, codes, &p, count), count, 0,
				      pairs);
#pragma unroll
		for (unsigned r = 0; r < TSR_RANS_RUN; r++)
			if (r < count)
				atomicAdd(&counts[pairs[r]], 1u);
		next_run<SORT>(s, &p);
	}
}

/* Tables of groups of contexts, each by a warp. */
static __device__ void make_tables(struct contexts_coding *c)
{
	const unsigned warp = threadIdx.x / 32;

	for (unsigned i = 0; i < NTABLES; i++)
		c->one.count[NSYMBOLS * i + threadIdx.x] =
			i < c->groups.n ? c->count[NSYMBOLS * c->groups.first[i] + threadIdx.x] : 0;
	__syncthreads();
	if (warp < c->groups.n)
		make_table(c->one.count + NSYMBOLS * warp, c->groups.codes[warp],
			   c->symbol + NSYMBOLS * warp, c->table[warp], &c->made[warp]);
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

/* How often codes occur whatever their contexts; whether they differ. */
static __device__ bool codes_differ(uint32_t n, struct contexts_coding *c)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < NTABLES; i++)
		sum += c->one.count[NSYMBOLS * i + threadIdx.x];
	c->total[threadIdx.x] = sum;
	return __syncthreads_and(sum < n);
}

/* Whether contexts make a stream smaller that is worth coding with them. */
static __device__ bool is_better(const struct front *f, uint32_t n, struct contexts_coding *c)
{
	if (!tsr_rans_is_worth(n, f->nbytes, f->cost))
		return false;
	if (threadIdx.x < 32)
		make_table(c->total, n, c->one.symbol, c->one.table, &c->one.made);
	__syncthreads();
	return 2048 * f->nbytes + f->cost < 2048 * c->one.made.nbytes + c->one.made.cost;
}

/* --- Segments ------------------------------------------------------------------------------------ */

/* The words of the segment of a warp, which end at @end; returns their first. */
template <enum context_sort SORT>
static __device__ __forceinline__ uint16_t *encode_pairs(const struct context_source *s,
							 const unsigned char *codes, uint32_t begin,
							 uint32_t size,
							 const struct packed_symbol *symbols,
							 uint64_t tables, bool increments,
							 uint16_t *end, uint32_t *x)
{
	const unsigned lane = threadIdx.x % 32;
	uint32_t first = size - size % TSR_RANS_BLOCK, pairs[TSR_RANS_RUN];
	struct run_place p = begin_runs(s, begin + first + TSR_RANS_RUN * lane);
	struct loaded_run next;

	if (first < size) {
		const uint32_t count = count_run(size, first, lane);

		pairs_of<SORT, true>(s, &p, load_codes<SORT>(s, codes, &p, count), count, tables,
				     pairs);
		push_run<false, true>(symbols, pairs, count, x, &end);
	}
	if (first) {
		run_before<SORT>(s, &p);
		next = load_codes<SORT>(s, codes, &p, TSR_RANS_RUN);
	}
	while (first) {
		pairs_of<SORT, true>(s, &p, next, TSR_RANS_RUN, tables, pairs);
		first -= TSR_RANS_BLOCK;
		/* What comes next is on its way meanwhile. */
		if (first) {
			run_before<SORT>(s, &p);
			next = load_codes<SORT>(s, codes, &p, TSR_RANS_RUN);
		}
		if (increments)
			push_run<true, true>(symbols, pairs, TSR_RANS_RUN, x, &end);
		else
			push_run<true, false>(symbols, pairs, TSR_RANS_RUN, x, &end);
	}
	return end;
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
	uint16_t *const end = staging_end(staging), *words = end;
	const uint32_t *means = (const uint32_t *)(staging + STAGED_WORDS) + LINES;
	uint32_t means_nbytes = 0, x = TSR_RANS_LOW, nbytes;
	struct front f;

	if (!s->variances)
		means_nbytes = find_means<SORT>(s, codes, &c->means, staging + STAGED_WORDS);
	for (unsigned i = threadIdx.x; i < TSR_RANS_CONTEXT_COUNT * NSYMBOLS; i += TSR_BLOCK)
		c->count[i] = 0;
	__syncthreads();
	count_pairs<SORT>(s, codes, begin, size, c->count);
	__syncthreads();
	choose_tables(c->count, &c->groups);
	make_tables(c);
	if (!codes_differ(s->n, c))
		return 0;
	f = front_of(c, means_nbytes);
	if (!is_better(&f, s->n, c))
		return 0;
	if (size)
		words = encode_pairs<SORT>(s, codes, begin, size, c->symbol,
					   tables_of_contexts(c->groups.begin), f.increments, end,
					   &x);
	nbytes = put_segments(size, s->n, words, (uint32_t)(end - words), x, f.nbytes, &c->one, to);
	if (nbytes)
		put_front(&f, c, means, to);
	return nbytes;
}

/* --- Pieces -------------------------------------------------------------------------------------- */

static __device__ uint32_t put_with_contexts(const struct tsr_gpu_codes *p,
					     struct contexts_coding *c, unsigned char *staging,
					     uint32_t *to)
{
	const unsigned char *codes = (const unsigned char *)p->codes;
	enum context_sort sort;
	struct context_source s;
	uint32_t nbytes;

	if (!tsr_contexts_are_possible(&p->beside, p->n))
		return 0;
	s = source_of(&p->beside, p->n, &sort);
	if (sort == OF_VARIANCES)
		nbytes = put_contexts<OF_VARIANCES>(&s, codes, c, staging, to);
	else if (sort == OF_MOMENTA)
		nbytes = put_contexts<OF_MOMENTA>(&s, codes, c, staging, to);
	else
		nbytes = put_contexts<OF_ANY>(&s, codes, c, staging, to);
	return nbytes ? nbytes << 8 | TSR_RANS_CONTEXTS : 0;
}

static __device__ __forceinline__ void encode_codes(struct tsr_gpu_codes *p,
						    struct contexts_coding *c,
						    unsigned char *staging)
{
	const unsigned warp = threadIdx.x / 32;
	uint32_t *to = (uint32_t *)p->coded, head = put_with_contexts(p, c, staging, to + 1);

	__syncthreads();
	if (!head) {
		const struct segment s = {
			(const unsigned char *)p->codes + warp * TSR_RANS_SEGMENT,
			warp < tsr_rans_count_segments(p->n) ? tsr_rans_segment_size(p->n, warp) : 0
		};

		head = put_stream<1>(&s, 0, false, p->n, &c->one, staging, to + 1);
	}
	if (threadIdx.x == 0) {
		to[0] = head;
		p->nbytes = 4 + (head >> 8);
	}
	__syncthreads();
}

static __global__ void __launch_bounds__(TSR_BLOCK, BLOCKS)
	encode_pieces_of_codes(struct tsr_gpu_codes *pieces, unsigned npieces,
			       unsigned char *staging)
{
	__shared__ struct contexts_coding c;

	for (unsigned p = blockIdx.x; p < npieces; p += gridDim.x)
		encode_codes(&pieces[p], &c, staging + (uint64_t)blockIdx.x * BLOCK_STAGED);
}

extern "C" enum tsr_status tsr_gpu_encode_codes(struct tsr_gpu_stream *stream,
						struct tsr_gpu_codes *pieces, unsigned npieces,
						struct tsr_err *err)
{
	const unsigned index = stream->gpu->index, most = BLOCKS * stream->gpu->nprocessors;
	const unsigned nblocks = npieces < most ? npieces : most;
	void *staging;

	if (!npieces)
		return TSR_OK;
	TSR_CUDA_TRY(index, err, cudaSetDevice((int)index), "cannot be used");
	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH - 1, (uint64_t)nblocks * BLOCK_STAGED,
				&staging, err));
	encode_pieces_of_codes<<<nblocks, TSR_BLOCK, 0, stream->handle>>>(pieces, npieces,
									  (unsigned char *)staging);
	TSR_CUDA_TRY(index, err, cudaGetLastError(), "cannot start coding");
	return TSR_OK;
}
