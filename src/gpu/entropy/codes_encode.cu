/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coding pieces of codes with tables chosen by what lies beside them (docs/format.md, "Contexts"): a block
 * of threads finds the means of a variance's rows and columns, counts the codes of each context, makes a
 * table for each, one per warp, and codes segments as those of other streams.
 */
#include "gpu/entropy/codes_means.cuh"
#include "gpu/entropy/encode_stream.cuh"

#define NCONTEXTS TSR_RANS_CONTEXT_COUNT

static_assert(WARPS == NCONTEXTS, "a warp makes the table of a context");

/* Blocks of a multiprocessor: all there is room for. */
#define BLOCKS 5u

/* What a block has in global memory: the words of segments, sums of lines, and stored means. */
#define STAGED_WORDS (WARPS * STAGED)
#define BLOCK_STAGED (STAGED_WORDS + MEANS_STAGED)

/* What the threads of a block share. */
struct contexts_coding {
	struct coding one; /* without contexts; `count` has those of contexts first */
	struct packed_symbol symbol[NCONTEXTS * NSYMBOLS];
	uint32_t table[NCONTEXTS][TABLE_WORDS];
	struct made_table made[NCONTEXTS];
	uint32_t n[NCONTEXTS]; /* codes of each context */
	bool stored[NCONTEXTS]; /* whether it has a table */
	uint32_t total[NSYMBOLS];
	struct means_memory means;
};

/* What is put in front of segments. */
struct front {
	uint32_t means, nbytes; /* of the means; of all */
	uint32_t cost; /* of the codes by these tables, in 1/256 of a bit */
	uint32_t stored; /* a bit for each context that has a table */
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

/* Where each code of a run is looked up: 256 times its context plus the code. */
template <enum context_sort SORT>
static __device__ __forceinline__ void pairs_of(const struct context_source *s,
						const struct run_place *p, struct loaded_run r,
						uint32_t count, uint32_t *pairs)
{
	contexts_of_run<SORT>(s, p, r.beside, count, pairs);
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
			pairs_of<SORT>(s, &places[i], runs[i], TSR_RANS_RUN, pairs);
#pragma unroll
			for (unsigned r = 0; r < TSR_RANS_RUN; r++)
				atomicAdd(&counts[pairs[r]], 1u);
		}
	}
	for (uint32_t first = whole; first < size; first += TSR_RANS_BLOCK) {
		const uint32_t count = count_run(size, first, lane);

		pairs_of<SORT>(s, &p, load_codes<SORT>(s, codes, &p, count), count, pairs);
#pragma unroll
		for (unsigned r = 0; r < TSR_RANS_RUN; r++)
			if (r < count)
				atomicAdd(&counts[pairs[r]], 1u);
		next_run<SORT>(s, &p);
	}
}

/* What a context costs without a table. */
static __device__ __forceinline__ uint32_t flat_cost(uint32_t n)
{
	return 2048 * n;
}

/* The table of the context of this warp, or none if it is not worth it. */
static __device__ void make_context(struct contexts_coding *c)
{
	const unsigned lane = threadIdx.x % 32, context = threadIdx.x / 32;
	const uint32_t *counts = c->one.count + NSYMBOLS * context;
	struct packed_symbol *symbols = c->symbol + NSYMBOLS * context;
	struct made_table *made = &c->made[context];
	uint32_t n = 0;
	bool stored = false;

	for (unsigned i = lane; i < NSYMBOLS; i += 32)
		n += counts[i];
	n = __reduce_add_sync(TSR_WHOLE_WARP, n);
	if (n) {
		make_table(counts, n, symbols, c->table[context], made);
		__syncwarp();
		stored = 2048 * made->nbytes + made->cost < flat_cost(n);
	}
	__syncwarp();
	if (!stored)
		for (unsigned i = lane; i < NSYMBOLS; i += 32)
			symbols[i] = pack_symbol((1u << TSR_RANS_BITS) / NSYMBOLS,
						 (1u << TSR_RANS_BITS) / NSYMBOLS * i);
	if (lane == 0) {
		c->n[context] = n;
		c->stored[context] = stored;
	}
}

static __device__ struct front front_of(const struct contexts_coding *c, uint32_t means)
{
	struct front f = { means, means + 4, 0, 0, false };

	for (unsigned i = 0; i < NCONTEXTS; i++) {
		f.stored |= (uint32_t)c->stored[i] << i;
		f.nbytes += c->stored[i] ? c->made[i].nbytes : 0;
		f.cost += c->stored[i] ? c->made[i].cost : flat_cost(c->n[i]);
		f.increments |= c->stored[i] && c->made[i].increments;
	}
	return f;
}

/* How often codes occur whatever their contexts; whether they differ. */
static __device__ bool codes_differ(uint32_t n, struct contexts_coding *c)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < NCONTEXTS; i++)
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
static __device__ __forceinline__ uint16_t *encode_pairs(
	const struct context_source *s, const unsigned char *codes, uint32_t begin, uint32_t size,
	const struct packed_symbol *symbols, bool increments, uint16_t *end, uint32_t *x)
{
	const unsigned lane = threadIdx.x % 32;
	uint32_t first = size - size % TSR_RANS_BLOCK, pairs[TSR_RANS_RUN];
	struct run_place p = begin_runs(s, begin + first + TSR_RANS_RUN * lane);
	struct loaded_run next;

	if (first < size) {
		const uint32_t count = count_run(size, first, lane);

		pairs_of<SORT>(s, &p, load_codes<SORT>(s, codes, &p, count), count, pairs);
		push_run<false, true>(symbols, pairs, count, x, &end);
	}
	if (first) {
		run_before<SORT>(s, &p);
		next = load_codes<SORT>(s, codes, &p, TSR_RANS_RUN);
	}
	while (first) {
		pairs_of<SORT>(s, &p, next, TSR_RANS_RUN, pairs);
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

/* Means, what contexts have tables, and these, at @to. */
static __device__ void put_front(const struct front *f, const struct contexts_coding *c,
				 const uint32_t *means, uint32_t *to)
{
	uint32_t at = f->means / 4;

	for (uint32_t i = threadIdx.x; i < at; i += TSR_BLOCK)
		to[i] = means[i];
	if (threadIdx.x == 0)
		to[at] = f->stored;
	at++;
	for (unsigned k = 0; k < NCONTEXTS; k++) {
		const uint32_t nwords = c->stored[k] ? c->made[k].nbytes / 4 : 0;

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
	for (unsigned i = threadIdx.x; i < NCONTEXTS * NSYMBOLS; i += TSR_BLOCK)
		c->one.count[i] = 0;
	__syncthreads();
	count_pairs<SORT>(s, codes, begin, size, c->one.count);
	__syncthreads();
	make_context(c);
	if (!codes_differ(s->n, c))
		return 0;
	f = front_of(c, means_nbytes);
	if (!is_better(&f, s->n, c))
		return 0;
	if (size)
		words = encode_pairs<SORT>(s, codes, begin, size, c->symbol, f.increments, end, &x);
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
