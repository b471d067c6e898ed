/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coding streams (format.md, "Coded planes"): a block of threads counts the symbols of a stream, makes
 * its table, and codes its segments, one per warp, to staging memory; then it knows where they go.
 */
#ifndef TSR_GPU_ENCODE_STREAM_CUH
#define TSR_GPU_ENCODE_STREAM_CUH

#include "gpu/entropy/gpu_entropy.cuh"

/* Most bytes of a segment's words: no symbol costs more than 12 bits; and room to load whole words. */
#define STAGED (TSR_RANS_SEGMENT / 4 * 6 + 64)

/*
 * A tsr_rans_symbol whose numbers few instructions take.  Only symbols of more than half of the table may
 * need the increment; for a frequency of 1, whose quotient is then 1 too small, the first slot makes up.
 */
struct packed_symbol {
	uint32_t reciprocal;
	uint32_t
		rest; /* first slot from bit 19, increment in 17, shift from 12, 2^bits - frequency */
};

/* Most words of a stored table: its head, 256 numbers of 12 bits, and one that bits may run into. */
#define TABLE_WORDS 98u

struct made_table {
	uint32_t nbytes; /* stored */
	uint32_t cost; /* of what was counted, in 1/256 of a bit */
	bool increments; /* a symbol needs it */
};

/* What the threads of a block share. */
struct coding {
	struct packed_symbol symbol[NSYMBOLS];
	uint32_t count[WARPS * NSYMBOLS]; /* of each warp; then, in front, of all */
	uint32_t table[TABLE_WORDS]; /* as it is stored */
	uint32_t nwords[WARPS]; /* of each segment */
	struct made_table made; /* what the table is like */
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
		rotate<W, false>(&run);
	return symbols_of<W>(run, k);
}

/* Blocks whose elements are loaded at once: what comes between does not take as long as memory does. */
#define AHEAD 8

/*
 * Of a segment of @size elements each run of this lane, and how many elements it has: loaded N at a time,
 * and used.
 */
template <unsigned N, class load, class use>
static __device__ __forceinline__ void for_runs(uint32_t size, const load &load_run_at,
						const use &use_run)
{
	const uint32_t whole = size - size % (N * TSR_RANS_BLOCK);

	for (uint32_t first = 0; first < whole; first += N * TSR_RANS_BLOCK) {
		decltype(load_run_at(0, 0)) runs[N];

#pragma unroll
		for (unsigned i = 0; i < N; i++)
			runs[i] = load_run_at(first + i * TSR_RANS_BLOCK, TSR_RANS_RUN);
#pragma unroll
		for (unsigned i = 0; i < N; i++)
			use_run(first + i * TSR_RANS_BLOCK, runs[i], TSR_RANS_RUN);
	}
	for (uint32_t first = whole; first < size; first += TSR_RANS_BLOCK) {
		const uint32_t count = count_run(size, first, threadIdx.x % 32);

		use_run(first, load_run_at(first, count), count);
	}
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
	uint32_t *const counts = c->count + NSYMBOLS * warp;
	uint32_t sum = 0;

	for (unsigned i = lane; i < NSYMBOLS; i += 32)
		counts[i] = 0;
	__syncwarp();
	for_runs<AHEAD>(
		s->n,
		[=](uint32_t first, uint32_t count) {
			return symbols_at<W>(s, first, count, k, rotated);
		},
		[=](uint32_t, uint32_t symbols, uint32_t count) {
			count_run_of(counts, symbols, count);
		});
	__syncthreads();
	for (unsigned i = 0; i < WARPS; i++)
		sum += c->count[NSYMBOLS * i + threadIdx.x];
	__syncthreads();
	c->count[threadIdx.x] = sum;
}

/* Symbols of a lane of the warp that apportions frequencies. */
#define EACH (NSYMBOLS / 32)

/* Secant steps before bisection. */
#define SCALE_TRIES 8u

static __device__ __forceinline__ uint32_t sum_at(const uint32_t *count, uint64_t t)
{
	uint32_t sum = 0;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		sum += count[i] ? tsr_rans_share(count[i], t) : 0;
	return __reduce_add_sync(TSR_WHOLE_WARP, sum);
}

/*
 * A scale whose frequencies sum to @total if one is soon found, else the largest with a smaller sum;
 * *sum_ret: its sum.  Sums grow nearly as scales do.
 */
static __device__ uint64_t find_scale(const uint32_t *count, uint32_t present, uint32_t n,
				      uint32_t total, uint32_t *sum_ret)
{
	const uint64_t one = (UINT64_C(1) << TSR_RANS_SCALE_BITS) / n;
	uint64_t low = (total - present) * one, high = (total + present) * (one + 1) + 1;
	uint64_t t = total * one;

	*sum_ret = 0;
	for (unsigned tries = 0; high - low > 1; tries++) {
		const uint32_t sum = sum_at(count, t);

		if (sum <= total) {
			low = t;
			*sum_ret = sum;
		} else {
			high = t;
		}
		if (sum == total)
			break;
		t += (uint64_t)((int64_t)one * ((int32_t)total - (int32_t)sum));
		if (tries >= SCALE_TRIES || t <= low || t >= high)
			t = low + (high - low) / 2;
	}
	if (!*sum_ret)
		*sum_ret = sum_at(count, low);
	return low;
}

/* As tsr_rans_frequencies(), by one warp; each lane has symbols in a row. */
static __device__ void apportion(const uint32_t *count, uint32_t present, uint32_t n,
				 uint32_t *freq)
{
	const uint32_t total = 1u << TSR_RANS_BITS;
	uint32_t raised = 0, before, sum;
	const uint64_t t = find_scale(count, present, n, total, &sum);
	const uint32_t left = total - sum;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		freq[i] = count[i] ? tsr_rans_share(count[i], t) : 0;
	if (!left)
		return;
		/* What is left goes to the first of those that the next scale would raise. */
#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		raised += count[i] && tsr_rans_share(count[i], t + 1) > freq[i];
	before = sum_of_lanes_before(raised);
#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		if (count[i] && tsr_rans_share(count[i], t + 1) > freq[i] && before++ < left)
			freq[i]++;
}

/* As tsr_rans_frequencies_of(), likewise. */
static __device__ __forceinline__ void frequencies_of(const uint32_t *count, uint32_t n,
						      uint32_t *freq)
{
	uint32_t present = 0;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		present += count[i] != 0;
	present = __reduce_add_sync(TSR_WHOLE_WARP, present);
	if (present > 1) {
		apportion(count, present, n, freq);
		return;
	}
#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		freq[i] = count[i] ? (1u << TSR_RANS_BITS) - 1 : count[i ^ 1] != 0;
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

/* A table as it is stored, by one warp; each lane has frequencies in a row.  Returns its bytes. */
static __device__ __forceinline__ uint32_t store_table(const uint32_t *freq, uint32_t *table)
{
	const unsigned lane = threadIdx.x % 32;
	uint32_t first = NSYMBOLS, last = 0, largest = 0, width;

	for (unsigned i = lane; i < TABLE_WORDS; i += 32)
		table[i] = 0;
	__syncwarp();
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		if (freq[i]) {
			first = min(first, EACH * lane + i);
			last = EACH * lane + i;
			largest = max(largest, freq[i]);
		}
	}
	first = __reduce_min_sync(TSR_WHOLE_WARP, first);
	last = __reduce_max_sync(TSR_WHOLE_WARP, last);
	width = tsr_rans_number_width(__reduce_max_sync(TSR_WHOLE_WARP, largest));
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		const uint32_t at = (EACH * lane + i - first) * width;

		if (!freq[i])
			continue;
		atomicOr(&table[1 + at / 32], freq[i] << at % 32);
		if (at % 32 + width > 32)
			atomicOr(&table[2 + at / 32], freq[i] >> (32 - at % 32));
	}
	if (lane == 0)
		table[0] = first | last << 8 | width << 16;
	return 4 + round_up_to_4(((last - first + 1) * width + 7) / 8);
}

/* The table of symbols that occur @n > 0 times together, and what the encoder looks up, by one warp. */
static __device__ __noinline__ void make_table(const uint32_t *counts, uint32_t n,
					       struct packed_symbol *symbols, uint32_t *table,
					       struct made_table *made)
{
	const unsigned lane = threadIdx.x % 32;
	uint32_t count[EACH], freq[EACH], start = 0, cost = 0, nbytes;
	bool increments = false;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		count[i] = counts[EACH * lane + i];
	frequencies_of(count, n, freq);
#pragma unroll
	for (unsigned i = 0; i < EACH; i++)
		start += freq[i];
	start = sum_of_lanes_before(start);
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		if (freq[i]) {
			const struct packed_symbol s = pack_symbol(freq[i], start);

			symbols[EACH * lane + i] = s;
			increments |= s.rest >> 17 & 1;
			cost += count[i] * tsr_rans_cost(freq[i], TSR_RANS_BITS);
			start += freq[i];
		}
	}
	cost = __reduce_add_sync(TSR_WHOLE_WARP, cost);
	increments = __any_sync(TSR_WHOLE_WARP, increments);
	nbytes = store_table(freq, table);
	if (lane == 0)
		*made = { nbytes, cost, increments };
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

/* Push a run of symbols, of which a lane has @count, the last one first. */
template <bool WHOLE, bool INCREMENTS>
static __device__ __forceinline__ void push_found(const struct packed_symbol *found, uint32_t count,
						  uint32_t *x, uint16_t **words)
{
#pragma unroll
	for (unsigned r = TSR_RANS_RUN; r-- > 0;)
		push<INCREMENTS>(found[r], WHOLE || r < count, x, words);
}

/*
 * The words of a segment, which end at @end; returns their first.  load() gives a run of this lane and
 * look_up() its symbols, all together: each push waits for the one before, but not for shared memory.
 */
template <bool INCREMENTS, class load, class look_up>
static __device__ __forceinline__ uint16_t *encode_segment(uint32_t size, const load &load_run_at,
							   const look_up &symbols_of_run,
							   uint16_t *end, uint32_t *x)
{
	uint32_t first = size - size % TSR_RANS_BLOCK;
	struct packed_symbol found[TSR_RANS_RUN];

	if (first < size) {
		const uint32_t count = count_run(size, first, threadIdx.x % 32);

		symbols_of_run(load_run_at(first, count), found);
		push_found<false, INCREMENTS>(found, count, x, &end);
	}
	if (!first)
		return end;
	auto next = load_run_at(first - TSR_RANS_BLOCK, TSR_RANS_RUN);

	while (first) {
		symbols_of_run(next, found);
		first -= TSR_RANS_BLOCK;
		/* What comes next, at the end the first block again, is on its way meanwhile. */
		next = load_run_at(first ? first - TSR_RANS_BLOCK : 0, TSR_RANS_RUN);
		push_found<true, INCREMENTS>(found, TSR_RANS_RUN, x, &end);
	}
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

/* The words of segments, @nwords of each warp, to their places: see put_segments(). */
static __device__ uint32_t place_segments(uint32_t own, uint32_t n, const uint16_t *words,
					  uint32_t nwords, uint32_t x, uint32_t front,
					  struct coding *c, uint32_t *to)
{
	const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t nsegments = tsr_rans_count_segments(n);
	uint32_t nbytes, at;

	if (lane == 0)
		c->nwords[warp] = nwords;
	__syncthreads();
	at = place_segment(c, n, front + round_up_to_4(2 * nsegments), &nbytes);
	if (nbytes >= n)
		return 0;
	if (threadIdx.x < (nsegments + 1) / 2) {
		const unsigned i = 2 * threadIdx.x;

		to[front / 4 + threadIdx.x] = c->nwords[i] |
					      (i + 1 < nsegments ? c->nwords[i + 1] << 16 : 0);
	}
	if (own) {
		const uint32_t nstates = tsr_rans_count_states(own);

		if (lane < nstates)
			to[at / 4 + lane] = x;
		copy_words(to + at / 4 + nstates, words, nwords);
	}
	return nbytes;
}

/* Where the words of this warp's segment end. */
static __device__ __forceinline__ uint16_t *staging_end(unsigned char *staging)
{
	return (uint16_t *)(staging + (threadIdx.x / 32 + 1) * STAGED - 32);
}

/*
 * The segments to @to, behind what is @front bytes long and not put yet; returns the bytes of all that, or 0
 * if these are as many as the symbols.  A warp has one of @own elements, or none.
 */
template <class load, class look_up>
static __device__ __forceinline__ uint32_t put_segments(uint32_t own, uint32_t n, bool increments,
							const load &load_run_at,
							const look_up &symbols_of_run,
							uint32_t front, struct coding *c,
							unsigned char *staging, uint32_t *to)
{
	uint16_t *const end = staging_end(staging);
	uint32_t x = TSR_RANS_LOW;
	const uint16_t *words = increments ? encode_segment<true>(own, load_run_at, symbols_of_run,
								  end, &x)
					   : encode_segment<false>(own, load_run_at, symbols_of_run,
								   end, &x);

	return place_segments(own, n, words, (uint32_t)(end - words), x, front, c, to);
}

/* Table and segments to @to; returns their bytes, or 0 if these are as many as the symbols. */
template <int W>
static __device__ uint32_t put_coded(const struct segment *s, unsigned k, bool rotated, uint32_t n,
				     struct coding *c, unsigned char *staging, uint32_t *to)
{
	const auto load = [=](uint32_t first, uint32_t count) {
		return symbols_at<W>(s, first, count, k, rotated);
	};
	const auto look_up = [=](uint32_t bytes, struct packed_symbol *found) {
#pragma unroll
		for (unsigned r = 0; r < TSR_RANS_RUN; r++)
			found[r] = c->symbol[__byte_perm(bytes, 0, 0x4440 + r)];
	};
	const uint32_t nbytes = put_segments(s->n, n, c->made.increments, load, look_up,
					     c->made.nbytes, c, staging, to);

	for (unsigned i = threadIdx.x; i < (nbytes ? c->made.nbytes / 4 : 0); i += TSR_BLOCK)
		to[i] = c->table[i];
	return nbytes;
}

template <int W>
static __device__ void put_raw(const struct segment *s, unsigned k, bool rotated, uint32_t *to)
{
	uint32_t *own = to + threadIdx.x / 32 * (TSR_RANS_SEGMENT / 4) + threadIdx.x % 32;

	for_runs<AHEAD>(
		s->n,
		[=](uint32_t first, uint32_t count) {
			return symbols_at<W>(s, first, count, k, rotated);
		},
		[=](uint32_t first, uint32_t symbols, uint32_t count) {
			if (count)
				own[first / 4] = symbols;
		});
}

/* The head of a stream; its body is put to @to. */
template <int W>
static __device__ uint32_t put_stream(const struct segment *s, unsigned k, bool rotated, uint32_t n,
				      struct coding *c, unsigned char *staging, uint32_t *to)
{
	uint32_t nbytes = 0;

	count_symbols<W>(s, k, rotated, c);
	if (threadIdx.x == 0)
		c->only = NSYMBOLS;
	__syncthreads();
	if (c->count[threadIdx.x] == n)
		c->only = threadIdx.x;
	__syncthreads();
	if (c->only < NSYMBOLS) {
		if (threadIdx.x == 0)
			to[0] = c->only;
		return 4u << 8 | TSR_RANS_CONSTANT;
	}
	if (threadIdx.x < 32)
		make_table(c->count, n, c->symbol, c->table, &c->made);
	__syncthreads();
	if (tsr_rans_is_worth(n, c->made.nbytes, c->made.cost))
		nbytes = put_coded<W>(s, k, rotated, n, c, staging, to);
	if (nbytes)
		return nbytes << 8 | TSR_RANS_CODED;
	put_raw<W>(s, k, rotated, to);
	return round_up_to_4(n) << 8 | TSR_RANS_RAW;
}

/* --- Pieces -------------------------------------------------------------------------------------- */

/* A piece of @n > 0 elements to @to, by all threads; returns its bytes. */
template <int W>
static __device__ __forceinline__ uint32_t put_piece(const unsigned char *plain, uint32_t n,
						     bool rotated, struct coding *c,
						     unsigned char *staging, uint32_t *to)
{
	const unsigned warp = threadIdx.x / 32;
	const struct segment s = { plain + W * warp * (uint64_t)TSR_RANS_SEGMENT,
				   warp < tsr_rans_count_segments(n)
					   ? tsr_rans_segment_size(n, warp)
					   : 0 };
	uint32_t used = 4 * W;

	for (unsigned k = 0; k < W; k++) {
		const uint32_t head = put_stream<W>(&s, k, rotated, n, c, staging, to + used / 4);

		if (threadIdx.x == 0)
			to[k] = head;
		used += head >> 8;
		__syncthreads();
	}
	return used;
}

#endif
