/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding streams (format.md, "Coded planes").  Whatever the bytes are, nothing outside of them and
 * of the plane is touched.
 */
#ifndef TSR_GPU_DECODE_STREAM_CUH
#define TSR_GPU_DECODE_STREAM_CUH

#include "gpu/entropy/gpu_entropy.cuh"

/* --- What a slot of a table says ---------------------------------------------------------------- */

#define NSLOTS (1u << TSR_RANS_BITS)

/*
 * pop() takes a symbol from a state, which may lack a word then.  An entry for each slot: one look.
 */
struct direct_table {
	uint32_t entry[NSLOTS];

	__device__ void put(unsigned slot, uint32_t symbol, uint32_t freq, uint32_t start)
	{
		entry[slot] = tsr_rans_entry(symbol, freq, slot - start);
	}
	__device__ uint32_t pop(uint32_t *x) const
	{
		const uint32_t e = entry[*x & (NSLOTS - 1)];

		*x = tsr_rans_pop(*x, e, TSR_RANS_BITS);
		return tsr_rans_entry_symbol(e);
	}
};

/* A symbol for each slot: a second look, in a third of the memory, where there are many tables. */
struct small_table {
	unsigned char symbol[NSLOTS];
	uint32_t range[NSYMBOLS]; /* frequency and first slot */

	__device__ void put(unsigned slot, uint32_t s, uint32_t freq, uint32_t start)
	{
		symbol[slot] = (unsigned char)s;
		range[s] = freq << 16 | start;
	}
	__device__ uint32_t pop(uint32_t *x) const
	{
		const uint32_t slot = *x & (NSLOTS - 1), s = symbol[slot], r = range[s];

		*x = (r >> 16) * (*x >> TSR_RANS_BITS) + slot - (r & 0xffff);
		return s;
	}
};

/* --- Streams ------------------------------------------------------------------------------------- */

/* A stream of a piece. */
struct stream_head {
	uint32_t mode;
	uint32_t body, nbytes; /* where it begins in the piece, a multiple of 4 */
	uint32_t nwords[WARPS],
		segment[WARPS]; /* of each segment, and where it begins in the piece */
};

/* Aligned, so that loads of several partial sums take nothing else that threads may write meanwhile. */
struct block_memory {
	alignas(16) uint32_t partial[WARPS];
	uint32_t start[NSYMBOLS + 1];
	uint32_t largest;
	unsigned wrong; /* something in the piece is */
};

/* The heads of all streams, by one thread. */
static __device__ bool read_heads(const uint32_t *piece, uint64_t nbytes, unsigned width,
				  struct stream_head *heads)
{
	uint64_t at = 4 * width;

	if (nbytes < at)
		return false;
	for (unsigned k = 0; k < width; k++) {
		const uint32_t head = piece[k];

		heads[k].mode = head & 0xff;
		heads[k].body = (uint32_t)at;
		heads[k].nbytes = head >> 8;
		if (heads[k].nbytes % 4 || heads[k].nbytes > nbytes - at)
			return false;
		at += heads[k].nbytes;
	}
	return at == nbytes;
}

/* What is behind the @nbytes bytes up to a multiple of 4 is zero. */
static __device__ bool is_padded(const uint32_t *bytes, uint32_t nbytes)
{
	return nbytes % 4 == 0 || bytes[nbytes / 4] >> 8 * (nbytes % 4) == 0;
}

/* The sizes of segments behind the table, by one thread. */
static __device__ bool read_segments(const uint32_t *piece, struct stream_head *h,
				     uint32_t table_nbytes, uint32_t n)
{
	const uint32_t nsegments = tsr_rans_count_segments(n);
	const uint32_t sizes = h->body + table_nbytes, end = h->body + h->nbytes;
	uint32_t at = sizes + round_up_to_4(2 * nsegments);

	if (at > end || !is_padded(piece + sizes / 4, 2 * nsegments))
		return false;
	for (uint32_t i = 0; i < nsegments; i++) {
		const uint32_t words = piece[sizes / 4 + i / 2] >> 16 * (i % 2) & 0xffff;
		const uint32_t states = 4 * tsr_rans_count_states(tsr_rans_segment_size(n, i));

		if (states + round_up_to_4(2 * words) > end - at ||
		    !is_padded(piece + (at + states) / 4, 2 * words))
			return false;
		h->nwords[i] = words;
		h->segment[i] = at;
		at += states + round_up_to_4(2 * words);
	}
	return at == end;
}

/* Bits @at to @at + @width - 1 of numbers that are there up to word @nwords. */
static __device__ __forceinline__ uint32_t get_bits(const uint32_t *words, uint32_t nwords,
						    uint32_t at, uint32_t width)
{
	const uint32_t low = words[at / 32];
	const uint32_t high = at / 32 + 1 < nwords ? words[at / 32 + 1] : 0;

	return (uint32_t)(((uint64_t)high << 32 | low) >> at % 32) & ((1u << width) - 1);
}

/* Where the symbols of a table begin, by all threads; false in all of them if it is malformed. */
static __device__ bool read_table(const uint32_t *body, uint32_t nbytes, struct block_memory *b,
				  uint32_t *used_ret)
{
	const unsigned s = threadIdx.x;
	const uint32_t head = nbytes >= 4 ? body[0] : 0;
	const uint32_t first = head & 0xff, last = head >> 8 & 0xff, width = head >> 16 & 0xff;
	const uint32_t nbits = (last - first + 1) * width;
	const uint32_t used = 4 + round_up_to_4((nbits + 7) / 8);
	uint32_t freq = 0, sum, start;
	bool wrong;

	if (first >= last || width < 1 || width > TSR_RANS_BITS || head >> 24 || nbytes < used)
		return false;
	if (s == 0)
		b->largest = 0;
	if (s >= first && s <= last)
		freq = get_bits(body + 1, (used - 4) / 4, (s - first) * width, width);
	start = sum_before(freq, b->partial, &sum);
	atomicMax(&b->largest, freq);
	b->start[s] = start;
	if (s == 0)
		b->start[NSYMBOLS] = sum;
	wrong = (s == first || s == last) && !freq;
	if (s == 0)
		wrong |= sum != 1u << TSR_RANS_BITS ||
			 (nbits % 32 && body[used / 4 - 1] >> nbits % 32);
	if (wrong)
		b->wrong = 1;
	__syncthreads();
	if (b->wrong || tsr_rans_number_width(b->largest) != width)
		return false;
	*used_ret = used;
	return true;
}

/* Each thread fills slots in a row. */
template <class table> static __device__ void fill_table(const struct block_memory *b, table *t)
{
	const unsigned each = (1u << TSR_RANS_BITS) / TSR_BLOCK;
	unsigned s = 0;

	for (unsigned step = NSYMBOLS / 2; step; step /= 2)
		s += b->start[s + step] <= each * threadIdx.x ? step : 0;
	for (unsigned slot = each * threadIdx.x; slot < each * (threadIdx.x + 1); slot++) {
		while (b->start[s + 1] <= slot)
			s++;
		t->put(slot, s, b->start[s + 1] - b->start[s], b->start[s]);
	}
}

/* Whether some of the symbols differ, by all threads; most streams show it at once. */
static __device__ bool symbols_differ(const uint32_t *symbols, uint32_t n)
{
	const uint32_t all = (symbols[0] & 0xff) * 0x01010101u;

	for (uint32_t i = 0; i < n; i += 4 * TSR_BLOCK) {
		const uint32_t at = i + 4 * threadIdx.x, left = at < n ? n - at : 0;
		const uint32_t others = left ? symbols[at / 4] ^ all : 0;

		if (!__syncthreads_and((left < 4 ? others & ((1u << 8 * left) - 1) : others) == 0))
			return true;
	}
	return false;
}

/* Have a stream ready to be decoded; false in all threads if it is damaged. */
template <class table>
static __device__ bool open_stream(const uint32_t *piece, uint32_t n, struct stream_head *h,
				   struct block_memory *b, table *t)
{
	const uint32_t *body = piece + h->body / 4;
	uint32_t used;

	switch (h->mode) {
	case TSR_RANS_RAW:
		return h->nbytes == round_up_to_4(n) && is_padded(body, n) &&
		       symbols_differ(body, n);
	case TSR_RANS_CONSTANT:
		return h->nbytes == 4 && body[0] < NSYMBOLS;
	case TSR_RANS_CODED:
		if (h->nbytes >= n || !read_table(body, h->nbytes, b, &used))
			return false;
		fill_table(b, t);
		__syncthreads();
		if (threadIdx.x == 0 && !read_segments(piece, h, used, n))
			b->wrong = 1;
		__syncthreads();
		return !b->wrong;
	default:
		return false;
	}
}

/* --- Segments ------------------------------------------------------------------------------------ */

/*
 * The words of a segment pass through shared memory: a ring of RING words for each warp, of which a half
 * is filled by what was loaded when the other half was.  So no lane waits for memory, and whatever the
 * segment is, lanes read inside of the ring.
 */
#define RING 256u
#define HALF (RING / 2)
#define LOADS (HALF / 2 / 32) /* of two words, by each lane */

/* A lane of a segment of a stream. */
struct lane_state {
	uint32_t x;
	uint32_t at, nwords; /* of the words that all lanes take */
	uint32_t filled; /* words that have been put into the ring */
	uint32_t next[LOADS]; /* those behind them */
	const uint32_t *words;
	uint16_t *ring;
};

/* Load the words that will be put into the ring next. */
static __device__ __forceinline__ void load_words(struct lane_state *l)
{
#pragma unroll
	for (unsigned i = 0; i < LOADS; i++) {
		const uint32_t at = l->filled / 2 + 32 * i + threadIdx.x % 32;

		l->next[i] = 2 * at < l->nwords ? l->words[at] : 0;
	}
}

static __device__ __forceinline__ void fill_half(struct lane_state *l)
{
	uint32_t *to = (uint32_t *)(l->ring + l->filled % RING);

	__syncwarp();
#pragma unroll
	for (unsigned i = 0; i < LOADS; i++)
		to[32 * i + threadIdx.x % 32] = l->next[i];
	l->filled += HALF;
	load_words(l);
	__syncwarp();
}

static __device__ __forceinline__ void begin_lane(struct lane_state *l, const unsigned char *piece,
						  const struct stream_head *h, unsigned segment,
						  uint32_t size)
{
	const uint32_t nstates = tsr_rans_count_states(size), lane = threadIdx.x % 32;
	const uint32_t *states = (const uint32_t *)(piece + h->segment[segment]);

	l->x = lane < nstates ? states[lane] : TSR_RANS_LOW;
	l->at = l->filled = 0;
	l->nwords = h->nwords[segment];
	l->words = states + nstates;
	load_words(l);
	fill_half(l);
	fill_half(l);
}

/* The state after a symbol is popped, in all lanes of a warp; with @SOME only where it @has one. */
template <bool SOME>
static __device__ __forceinline__ void refill(struct lane_state *l, uint32_t x, bool has)
{
	const bool lacks = (!SOME || has) && x < TSR_RANS_LOW;
	const uint32_t mask = __ballot_sync(TSR_WHOLE_WARP, lacks);
	const uint32_t before = (1u << threadIdx.x % 32) - 1;
	const uint32_t word = l->ring[(l->at + __popc(mask & before)) % RING];

	x = lacks ? x << 16 | word : x;
	l->x = !SOME || has ? x : l->x;
	l->at += __popc(mask);
}

template <bool SOME, class table>
static __device__ __forceinline__ uint32_t pop(const table *t, struct lane_state *l, bool has)
{
	uint32_t x = l->x;
	const uint32_t symbol = t->pop(&x);

	refill<SOME>(l, x, has);
	return symbol;
}

/* A segment of a piece, while it is decoded. */
template <int W> struct segment {
	const unsigned char *piece;
	const struct stream_head *heads;
	struct lane_state lane[W];
	uint32_t begin, size; /* in the elements of the piece */
	unsigned char *plain;
	unsigned width; /* of elements: W, or more if they are decoded in parts */
};

/*
 * The elements of a lane from @first on, of which it has @count; without @SOME as many as it can.
 * @CODED: a mask of the streams that are coded, or MIXED.
 */
#define MIXED (~0u)

/* Parts of elements that are wider than what is decoded at once. */
template <int W>
static __device__ __forceinline__ void store_parts(unsigned char *at, unsigned width,
						   struct run_of<W> run, uint32_t count)
{
	for (uint32_t i = 0; i < W * count; i++)
		at[i / W * width + i % W] = (unsigned char)(run.word[i / 4] >> 8 * (i % 4));
}

template <int W, unsigned CODED, bool SOME, class table>
static __device__ __forceinline__ void decode_run(struct segment<W> *s, const table *tables,
						  bool rotated, uint32_t first, uint32_t count)
{
	const uint32_t at = first + TSR_RANS_RUN * (threadIdx.x % 32);
	uint32_t symbols[W] = {};
	struct run_of<W> run;

#pragma unroll
	for (unsigned k = 0; k < W; k++) {
		const unsigned char *body = s->piece + s->heads[k].body;

		if (CODED == MIXED ? s->heads[k].mode == TSR_RANS_CODED : CODED >> k & 1) {
			/* A block takes at most half of the ring. */
			if (s->lane[k].filled - s->lane[k].at <= HALF)
				fill_half(&s->lane[k]);
#pragma unroll
			for (unsigned r = 0; r < TSR_RANS_RUN; r++)
				symbols[k] |= pop<SOME>(&tables[k], &s->lane[k], r < count)
					      << 8 * r;
		} else if (s->heads[k].mode == TSR_RANS_CONSTANT) {
			symbols[k] = body[0] * 0x01010101u;
		} else if (!SOME || count) {
			symbols[k] = *(const uint32_t *)(body + s->begin + at);
		}
	}
	run = merge_symbols<W>(symbols);
	if (W > 1 && rotated)
		rotate<W, true>(&run);
	if (W < 4 || s->width == W)
		store_run<W>(s->plain + (uint64_t)W * at, run, SOME ? count : TSR_RANS_RUN);
	else
		store_parts<W>(s->plain + (uint64_t)s->width * at, s->width, run, count);
}

template <int W, unsigned CODED, class table>
static __device__ __forceinline__ void decode_runs(struct segment<W> *s, const table *tables,
						   bool rotated)
{
	const uint32_t whole = s->size - s->size % TSR_RANS_BLOCK;

	for (uint32_t first = 0; first < whole; first += TSR_RANS_BLOCK)
		decode_run<W, CODED, false>(s, tables, rotated, first, TSR_RANS_RUN);
	if (whole < s->size)
		decode_run<W, CODED, true>(s, tables, rotated, whole,
					   count_run(s->size, whole, threadIdx.x % 32));
}

/* Loops for what bytes, BF16 and scales are like; all others have one that looks again at each block. */
template <int W, class table>
static __device__ __forceinline__ void decode_all(struct segment<W> *s, const table *tables,
						  bool rotated)
{
	unsigned coded = 0;

	for (unsigned k = 0; k < W; k++)
		coded |= (unsigned)(s->heads[k].mode == TSR_RANS_CODED) << k;
	if (W == 1 && coded == 1)
		decode_runs<W, 1>(s, tables, rotated);
	else if (W == 2 && coded == 2)
		decode_runs<W, 2>(s, tables, rotated);
	else if (W == 2 && coded == 3)
		decode_runs<W, 3>(s, tables, rotated);
	else
		decode_runs<W, MIXED>(s, tables, rotated);
}

template <int W, class table>
static __device__ __forceinline__ bool decode_segment(struct segment<W> *s, const table *tables,
						      bool rotated)
{
	bool fine = true;

#pragma unroll
	for (unsigned k = 0; k < W; k++) {
		if (s->heads[k].mode != TSR_RANS_CODED)
			continue;
		begin_lane(&s->lane[k], s->piece, &s->heads[k], threadIdx.x / 32, s->size);
		fine &= s->lane[k].x >= TSR_RANS_LOW;
	}
	decode_all<W>(s, tables, rotated);
#pragma unroll
	for (unsigned k = 0; k < W; k++) {
		const struct lane_state *l = &s->lane[k];

		if (s->heads[k].mode == TSR_RANS_CODED)
			fine &= l->x == TSR_RANS_LOW && l->at == l->nwords;
	}
	return fine;
}

/* --- Pieces -------------------------------------------------------------------------------------- */

/* What the threads of a block share: of W streams at a time, of elements of at most 8 bytes. */
template <int W, class table> struct piece_memory {
	table tables[W];
	uint16_t rings[W][WARPS][RING];
	struct stream_head heads[TSR_ENTROPY_WIDTH];
	struct block_memory block;
};

/* Streams @first to @first + W - 1 of a piece of @n elements, by all threads. */
template <int W, class table>
static __device__ bool decode_streams(struct piece_memory<W, table> *m, const unsigned char *piece,
				      uint32_t n, unsigned first, unsigned width, bool rotated,
				      unsigned char *plain)
{
	const unsigned index = threadIdx.x / 32;
	struct segment<W> s;

	for (unsigned k = 0; k < W; k++) {
		if (!open_stream((const uint32_t *)piece, n, &m->heads[first + k], &m->block,
				 &m->tables[k]))
			return false;
		s.lane[k].ring = m->rings[k][index];
	}
	__syncthreads();
	if (index >= tsr_rans_count_segments(n))
		return true;
	s.piece = piece;
	s.heads = m->heads + first;
	s.begin = index * TSR_RANS_SEGMENT;
	s.size = tsr_rans_segment_size(n, index);
	s.plain = plain + (uint64_t)width * s.begin + first;
	s.width = width;
	return decode_segment<W>(&s, m->tables, rotated);
}

/* A piece of @n > 0 elements, by all threads; false in all of them if it is damaged. */
template <int W, class table>
static __device__ __forceinline__ bool decode_piece(struct piece_memory<W, table> *m,
						    const unsigned char *piece, uint64_t nbytes,
						    uint32_t n, unsigned width, bool rotated,
						    unsigned char *plain)
{
	bool fine;

	if (threadIdx.x == 0)
		m->block.wrong = !read_heads((const uint32_t *)piece, nbytes, width, m->heads);
	__syncthreads();
	fine = !m->block.wrong;
	for (unsigned first = 0; first < width; first += W) {
		fine = fine && decode_streams<W>(m, piece, n, first, width, rotated, plain);
		/* All threads go on or none, and not before all have finished with the tables. */
		fine = __syncthreads_and(fine);
	}
	return fine;
}

#endif
