/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coding planes (docs/format.md, "Coded planes"): a block of threads counts the symbols of a stream, makes
 * its table, and codes its segments, one per warp, to staging memory; then it knows where they go.
 */
#include "gpu/gpu_entropy.cuh"

/*
 * Blocks of a multiprocessor: all there is room for.  They take one piece after the other, so that none
 * waits for the slowest of a batch, and have staging memory for the words of one.
 */
#define BLOCKS 6u

/* Most bytes of a segment's words: no symbol costs more than 12 bits; and room to load whole words. */
#define STAGED (TSR_RANS_SEGMENT / 4 * 6 + 64)

struct encode_args {
	const unsigned char *plain;
	uint64_t n, npieces; /* elements; pieces */
	unsigned char *coded;
	uint64_t room; /* bytes from one coded piece to the next */
	uint32_t *nbytes; /* of each coded piece */
	unsigned char *staging;
};

/*
 * A tsr_rans_symbol whose numbers few instructions take.  Only symbols of more than half of the table may
 * need the increment; for a frequency of 1, whose quotient is then 1 too small, the first slot makes up.
 */
struct packed_symbol {
	uint32_t reciprocal;
	uint32_t
		rest; /* first slot from bit 19, increment in 17, shift from 12, 2^bits - frequency */
};

/* What the threads of a block share. */
struct coding {
	struct packed_symbol symbol[NSYMBOLS];
	uint32_t count[WARPS][NSYMBOLS]; /* of each warp; then [0] of all */
	uint32_t freq[NSYMBOLS];
	uint32_t table[98]; /* as it is stored */
	uint32_t nwords[WARPS]; /* of each segment */
	uint32_t partial[WARPS];
	uint32_t cost, first, last, largest; /* of the table */
	bool increments; /* a symbol needs it */
	uint32_t only; /* the symbol that all elements have; NSYMBOLS if there are more */
};

/* A segment of a piece, in its elements. */
struct segment {
	const unsigned char *plain;
	uint32_t n; /* 0: the piece has no such segment */
};

/* The symbols of a lane's run from @first on, of which it has @count. */
template <int W>
static __device__ __forceinline__ uint32_t symbols_at(const struct segment *s, uint32_t first,
						      uint32_t count, unsigned k, bool rotated)
{
	const uint32_t at = first + TSR_RANS_RUN * (threadIdx.x % 32);
	struct run_of<W> run = load_run<W>(s->plain + (uint64_t)W * at, count);

	if (W > 1 && rotated)
		rotate<W>(&run);
	return symbols_of<W>(run, k);
}

/* Blocks whose elements are loaded at once: what comes between does not take as long as memory does. */
#define AHEAD 8

template <int W>
static __device__ __forceinline__ void load_ahead(const struct segment *s, uint32_t first,
						  unsigned k, bool rotated, uint32_t *symbols)
{
#pragma unroll
	for (unsigned i = 0; i < AHEAD; i++)
		symbols[i] = symbols_at<W>(s, first + i * TSR_RANS_BLOCK, TSR_RANS_RUN, k, rotated);
}

/* --- Tables -------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void count_run_of(uint32_t *counts, uint32_t symbols, uint32_t n)
{
#pragma unroll
	for (unsigned r = 0; r < TSR_RANS_RUN; r++) {
		if (r < n)
			atomicAdd(&counts[__byte_perm(symbols, 0, 0x4440 + r)], 1u);
	}
}

template <int W>
static __device__ void count_symbols(const struct segment *s, unsigned k, bool rotated,
				     struct coding *c)
{
	const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t whole = s->n - s->n % (AHEAD * TSR_RANS_BLOCK);
	uint32_t sum = 0;

	for (unsigned i = lane; i < NSYMBOLS; i += 32)
		c->count[warp][i] = 0;
	__syncwarp();
	for (uint32_t first = 0; first < whole; first += AHEAD * TSR_RANS_BLOCK) {
		uint32_t symbols[AHEAD];

		load_ahead<W>(s, first, k, rotated, symbols);
#pragma unroll
		for (unsigned i = 0; i < AHEAD; i++)
			count_run_of(c->count[warp], symbols[i], TSR_RANS_RUN);
	}
	for (uint32_t first = whole; first < s->n; first += TSR_RANS_BLOCK) {
		const uint32_t count = count_run(s->n, first, lane);

		count_run_of(c->count[warp], symbols_at<W>(s, first, count, k, rotated), count);
	}
	__syncthreads();
	for (unsigned i = 0; i < WARPS; i++)
		sum += c->count[i][threadIdx.x];
	__syncthreads();
	c->count[0][threadIdx.x] = sum;
}

/* Symbols of a lane of the warp that apportions frequencies. */
#define EACH (NSYMBOLS / 32)

static __device__ __forceinline__ uint32_t sum_at(const uint32_t *count, uint64_t t)
{
	uint32_t sum = 0;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		sum += count[i] ? tsr_rans_share(count[i], t) : 0;
	return __reduce_add_sync(TSR_WHOLE_WARP, sum);
}

/* As tsr_rans_frequencies(), by one warp; each lane has symbols in a row. */
static __device__ void apportion(uint32_t n, struct coding *c)
{
	const unsigned lane = threadIdx.x % 32;
	const uint32_t total = 1u << TSR_RANS_BITS;
	uint32_t count[EACH], present = 0, raised = 0, before;
	uint64_t low, high;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		count[i] = c->count[0][EACH * lane + i];
		present += count[i] != 0;
	}
	present = __reduce_add_sync(TSR_WHOLE_WARP, present);
	low = ((uint64_t)(total - present) << TSR_RANS_SCALE_BITS) / n;
	high = ((uint64_t)(total + present) << TSR_RANS_SCALE_BITS) / n + 1;
	while (high - low > 1) {
		const uint64_t middle = low + (high - low) / 2;

		if (sum_at(count, middle) <= total)
			low = middle;
		else
			high = middle;
	}
	/* What is left goes to the first of those that the next scale would raise. */
	const uint32_t left = total - sum_at(count, low);

#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		raised += count[i] &&
			  tsr_rans_share(count[i], low + 1) > tsr_rans_share(count[i], low);
	before = raised;
	for (unsigned d = 1; d < 32; d *= 2) {
		const uint32_t other = __shfl_sync(TSR_WHOLE_WARP, before, lane - d);

		before += lane >= d ? other : 0;
	}
	before -= raised;
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		uint32_t freq = 0;

		if (count[i]) {
			freq = tsr_rans_share(count[i], low);
			if (tsr_rans_share(count[i], low + 1) > freq && before++ < left)
				freq++;
		}
		c->freq[EACH * lane + i] = freq;
	}
}

static __device__ __forceinline__ struct packed_symbol pack_symbol(uint32_t freq, uint32_t start)
{
	const struct tsr_rans_symbol s = tsr_rans_symbol_of(freq, start, TSR_RANS_BITS);
	const uint32_t others = (1u << TSR_RANS_BITS) - freq;
	const uint32_t increment = freq == 1 ? 0 : s.rest >> 4 & 1;

	start += freq == 1 ? others : 0;
	return { s.reciprocal, start << 19 | increment << 17 | (s.rest & 15) << 12 | others };
}

/* tsr_rans_sheds() and tsr_rans_push() */
static __device__ __forceinline__ bool packed_sheds(uint32_t x, struct packed_symbol s)
{
	return x >= (s.rest & 0xfff) * (0u - (1u << (32 - TSR_RANS_BITS)));
}

template <bool INCREMENTS>
static __device__ __forceinline__ uint32_t push_packed(uint32_t x, struct packed_symbol s)
{
	const uint32_t increased = INCREMENTS ? x + (s.rest >> 17 & 1) : x;
	const uint32_t high = __umulhi(increased, s.reciprocal);
	const uint32_t quotient = __funnelshift_r(high, 0, s.rest >> 12);

	return quotient * (s.rest & 0xfff) + (x + (s.rest >> 19));
}

/* The stored table, and the symbols of the encoder; returns the bytes of the table. */
static __device__ uint32_t make_table(uint32_t n, struct coding *c)
{
	const unsigned s = threadIdx.x;
	uint32_t freq, start, all, width, used, at;

	if (s == 0) {
		c->first = NSYMBOLS;
		c->last = c->largest = 0;
		c->cost = 0;
		c->increments = false;
	}
	for (unsigned i = s; i < 98; i += TSR_BLOCK)
		c->table[i] = 0;
	__syncthreads();
	if (s < 32)
		apportion(n, c);
	__syncthreads();
	freq = c->freq[s];
	start = sum_before(freq, c->partial, &all);
	if (freq) {
		c->symbol[s] = pack_symbol(freq, start);
		if (c->symbol[s].rest >> 17 & 1)
			c->increments = true;
		atomicMin(&c->first, s);
		atomicMax(&c->last, s);
		atomicMax(&c->largest, freq);
		atomicAdd(&c->cost, c->count[0][s] * tsr_rans_cost(freq, TSR_RANS_BITS));
	}
	__syncthreads();
	width = tsr_rans_number_width(c->largest);
	if (freq) {
		at = (s - c->first) * width;
		atomicOr(&c->table[1 + at / 32], freq << at % 32);
		if (at % 32 + width > 32)
			atomicOr(&c->table[2 + at / 32], freq >> (32 - at % 32));
	}
	if (s == 0)
		c->table[0] = c->first | c->last << 8 | width << 16;
	used = ((c->last - c->first + 1) * width + 7) / 8;
	__syncthreads();
	return 4 + round_up_to_4(used);
}

/* --- Segments ------------------------------------------------------------------------------------ */

/* Push a symbol, in all lanes of a warp; words that lanes shed go in front of those at *words_ref. */
template <bool INCREMENTS>
static __device__ __forceinline__ void push(struct packed_symbol s, bool has, uint32_t *x,
					    uint16_t **words_ref)
{
	const bool sheds = has && packed_sheds(*x, s);
	const uint32_t mask = __ballot_sync(TSR_WHOLE_WARP, sheds);
	const uint32_t from_here = 0xffffffffu << threadIdx.x % 32;

	tsr_store_if(sheds, *words_ref - __popc(mask & from_here), (uint16_t)*x);
	*x = sheds ? *x >> 16 : *x;
	*words_ref -= __popc(mask);
	if (has)
		*x = push_packed<INCREMENTS>(*x, s);
}

/* The symbols are looked up together: each push waits for the one before, but not for shared memory. */
template <bool WHOLE, bool INCREMENTS>
static __device__ __forceinline__ void push_run(const struct coding *c, uint32_t symbols,
						uint32_t count, uint32_t *x, uint16_t **words)
{
	struct packed_symbol s[TSR_RANS_RUN];

#pragma unroll
	for (unsigned r = 0; r < TSR_RANS_RUN; r++)
		s[r] = c->symbol[__byte_perm(symbols, 0, 0x4440 + r)];
#pragma unroll
	for (unsigned r = TSR_RANS_RUN; r-- > 0;)
		push<INCREMENTS>(s[r], WHOLE || r < count, x, words);
}

/* The words of a segment, which end at @end; returns their first. */
template <int W, bool INCREMENTS>
static __device__ __forceinline__ uint16_t *encode_segment(const struct segment *s, unsigned k,
							   bool rotated, const struct coding *c,
							   uint16_t *end, uint32_t *state_ret)
{
	uint32_t x = TSR_RANS_LOW, first = s->n - s->n % TSR_RANS_BLOCK, next = 0;

	if (first < s->n) {
		const uint32_t count = count_run(s->n, first, threadIdx.x % 32);

		push_run<false, INCREMENTS>(c, symbols_at<W>(s, first, count, k, rotated), count,
					    &x, &end);
	}
	if (first)
		next = symbols_at<W>(s, first - TSR_RANS_BLOCK, TSR_RANS_RUN, k, rotated);
	while (first) {
		const uint32_t symbols = next;

		first -= TSR_RANS_BLOCK;
		/* What comes next is on its way meanwhile. */
		if (first)
			next = symbols_at<W>(s, first - TSR_RANS_BLOCK, TSR_RANS_RUN, k, rotated);
		push_run<true, INCREMENTS>(c, symbols, TSR_RANS_RUN, &x, &end);
	}
	*state_ret = x;
	return end;
}

/* Two words in a row, of which the first is at a multiple of 2 bytes. */
static __device__ __forceinline__ uint32_t two_words(const uint32_t *aligned, bool odd)
{
	return odd ? aligned[0] >> 16 | aligned[1] << 16 : aligned[0];
}

/* Copy words, of which the first is at a multiple of 2 bytes, to a multiple of 4, and pad them. */
static __device__ __forceinline__ void copy_words(uint32_t *to, const uint16_t *from, uint32_t n)
{
	const bool odd = (uintptr_t)from % 4 != 0;
	const uint32_t *aligned = (const uint32_t *)((uintptr_t)from & ~(uintptr_t)3);
	uint32_t i = threadIdx.x % 32;

	for (; i + 32 * (AHEAD - 1) < n / 2; i += 32 * AHEAD) {
		uint32_t two[AHEAD];

#pragma unroll
		for (unsigned k = 0; k < AHEAD; k++)
			two[k] = two_words(aligned + i + 32 * k, odd);
#pragma unroll
		for (unsigned k = 0; k < AHEAD; k++)
			to[i + 32 * k] = two[k];
	}
	for (; i < (n + 1) / 2; i += 32)
		to[i] = two_words(aligned + i, odd) & (2 * i + 1 == n ? 0xffff : 0xffffffff);
}

/* --- Streams ------------------------------------------------------------------------------------- */

/* The place of this thread's segment among the bytes of all; *all_ret: of all. */
static __device__ uint32_t place_segment(const struct coding *c, uint32_t n, uint32_t at,
					 uint32_t *all_ret)
{
	uint32_t mine = 0;

	for (uint32_t i = 0; i < tsr_rans_count_segments(n); i++) {
		if (i == threadIdx.x / 32)
			mine = at;
		at += 4 * tsr_rans_count_states(tsr_rans_segment_size(n, i)) +
		      round_up_to_4(2 * c->nwords[i]);
	}
	*all_ret = at;
	return mine;
}

/* Table and segments to @to; returns their bytes, or 0 if these are as many as the symbols. */
template <int W>
static __device__ uint32_t put_coded(const struct segment *s, unsigned k, bool rotated, uint32_t n,
				     uint32_t table_nbytes, struct coding *c,
				     unsigned char *staging, uint32_t *to)
{
	const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t nsegments = tsr_rans_count_segments(n), sizes = table_nbytes / 4;
	uint16_t *const end = (uint16_t *)(staging + (warp + 1) * STAGED - 32), *words = end;
	uint32_t nbytes, at, x = 0;

	if (s->n && c->increments)
		words = encode_segment<W, true>(s, k, rotated, c, end, &x);
	else if (s->n)
		words = encode_segment<W, false>(s, k, rotated, c, end, &x);
	if (lane == 0)
		c->nwords[warp] = (uint32_t)(end - words);
	__syncthreads();
	at = place_segment(c, n, table_nbytes + round_up_to_4(2 * nsegments), &nbytes);
	if (nbytes >= n)
		return 0;
	for (unsigned i = threadIdx.x; i < sizes; i += TSR_BLOCK)
		to[i] = c->table[i];
	if (threadIdx.x < (nsegments + 1) / 2) {
		const unsigned i = 2 * threadIdx.x;

		to[sizes + threadIdx.x] = c->nwords[i] |
					  (i + 1 < nsegments ? c->nwords[i + 1] << 16 : 0);
	}
	if (s->n) {
		const uint32_t nstates = tsr_rans_count_states(s->n);

		if (lane < nstates)
			to[at / 4 + lane] = x;
		copy_words(to + at / 4 + nstates, words, (uint32_t)(end - words));
	}
	return nbytes;
}

template <int W>
static __device__ void put_raw(const struct segment *s, unsigned k, bool rotated, uint32_t *to)
{
	const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t whole = s->n - s->n % (AHEAD * TSR_RANS_BLOCK);
	uint32_t *own = to + warp * (TSR_RANS_SEGMENT / 4) + lane;

	for (uint32_t first = 0; first < whole; first += AHEAD * TSR_RANS_BLOCK) {
		uint32_t symbols[AHEAD];

		load_ahead<W>(s, first, k, rotated, symbols);
#pragma unroll
		for (unsigned i = 0; i < AHEAD; i++)
			own[first / 4 + 32 * i] = symbols[i];
	}
	for (uint32_t first = whole; first < s->n; first += TSR_RANS_BLOCK) {
		const uint32_t count = count_run(s->n, first, lane);

		if (count)
			own[first / 4] = symbols_at<W>(s, first, count, k, rotated);
	}
}

/* The head of a stream; its body is put to @to. */
template <int W>
static __device__ uint32_t put_stream(const struct segment *s, unsigned k, bool rotated, uint32_t n,
				      struct coding *c, unsigned char *staging, uint32_t *to)
{
	uint32_t table_nbytes, nbytes = 0;

	count_symbols<W>(s, k, rotated, c);
	if (threadIdx.x == 0)
		c->only = NSYMBOLS;
	__syncthreads();
	if (c->count[0][threadIdx.x] == n)
		c->only = threadIdx.x;
	__syncthreads();
	if (c->only < NSYMBOLS) {
		if (threadIdx.x == 0)
			to[0] = c->only;
		return 4u << 8 | TSR_RANS_CONSTANT;
	}
	table_nbytes = make_table(n, c);
	if (tsr_rans_is_worth(n, table_nbytes, c->cost))
		nbytes = put_coded<W>(s, k, rotated, n, table_nbytes, c, staging, to);
	if (nbytes)
		return nbytes << 8 | TSR_RANS_CODED;
	put_raw<W>(s, k, rotated, to);
	return round_up_to_4(n) << 8 | TSR_RANS_RAW;
}

/* --- Pieces -------------------------------------------------------------------------------------- */

template <int W>
static __device__ __forceinline__ void encode_piece(const struct encode_args *a, bool rotated,
						    uint64_t p, struct coding *c)
{
	const uint64_t left = a->n - p * TSR_ENTROPY_PIECE;
	const uint32_t n = left < TSR_ENTROPY_PIECE ? (uint32_t)left : TSR_ENTROPY_PIECE;
	const unsigned warp = threadIdx.x / 32;
	unsigned char *staging = a->staging + (uint64_t)blockIdx.x * WARPS * STAGED;
	uint32_t *to = (uint32_t *)(a->coded + p * a->room);
	const struct segment s = {
		a->plain + W * (p * TSR_ENTROPY_PIECE + warp * (uint64_t)TSR_RANS_SEGMENT),
		warp < tsr_rans_count_segments(n) ? tsr_rans_segment_size(n, warp) : 0
	};
	uint32_t used = 4 * W;

	for (unsigned k = 0; k < W; k++) {
		const uint32_t head = put_stream<W>(&s, k, rotated, n, c, staging, to + used / 4);

		if (threadIdx.x == 0)
			to[k] = head;
		used += head >> 8;
		__syncthreads();
	}
	if (threadIdx.x == 0)
		a->nbytes[p] = used;
}

template <int W>
static __global__ void __launch_bounds__(TSR_BLOCK, BLOCKS)
	encode_pieces(const __grid_constant__ encode_args a, bool rotated)
{
	__shared__ struct coding c;

	for (uint64_t p = blockIdx.x; p < a.npieces; p += gridDim.x)
		encode_piece<W>(&a, rotated, p, &c);
}

typedef void encode_kernel(const struct encode_args, bool);

static encode_kernel *kernel_of(unsigned width)
{
	switch (width) {
	case 1:
		return encode_pieces<1>;
	case 2:
		return encode_pieces<2>;
	case 4:
		return encode_pieces<4>;
	default:
		return encode_pieces<8>;
	}
}

extern "C" enum tsr_status tsr_gpu_entropy_encode(struct tsr_gpu_stream *stream,
						  struct tsr_entropy_kind kind, const void *plain,
						  uint64_t n, void *coded, uint32_t *nbytes,
						  struct tsr_err *err)
{
	const unsigned index = stream->gpu->index, most = BLOCKS * stream->gpu->nprocessors;
	const uint64_t npieces = tsr_entropy_pieces(n);
	const unsigned nblocks = npieces < most ? (unsigned)npieces : most;
	struct encode_args a = {
		(const unsigned char *)plain,
		n,
		npieces,
		(unsigned char *)coded,
		tsr_entropy_bound(kind, TSR_ENTROPY_PIECE),
		nbytes,
		NULL,
	};
	void *staging;

	if (!n)
		return TSR_OK;
	TSR_CUDA_TRY(index, err, cudaSetDevice((int)index), "cannot be used");
	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH - 1, (uint64_t)nblocks * WARPS * STAGED,
				&staging, err));
	a.staging = (unsigned char *)staging;
	kernel_of(kind.width)<<<nblocks, TSR_BLOCK, 0, stream->handle>>>(a, kind.rotated);
	TSR_CUDA_TRY(index, err, cudaGetLastError(), "cannot start coding");
	return TSR_OK;
}
