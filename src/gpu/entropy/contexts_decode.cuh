/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding pieces of codes of variances, with tables chosen by contexts (format.md, "Contexts"). */
#ifndef TSR_GPU_CONTEXTS_DECODE_CUH
#define TSR_GPU_CONTEXTS_DECODE_CUH

#include "gpu/entropy/decode_stream.cuh"
#include "gpu/entropy/gpu_contexts.cuh"

#define NTABLES TSR_RANS_TABLE_COUNT
#define NSLOTS (1u << TSR_RANS_BITS)

static_assert(WARPS == NTABLES, "a warp makes a table");

/* What the threads of a block share. */
struct contexts_memory {
	unsigned char symbol[NTABLES][NSLOTS]; /* of each slot */
	uint32_t range[NTABLES][NSYMBOLS]; /* frequency and first slot of each symbol */
	uint16_t ring[WARPS][RING];
	struct stream_head head;
	uint32_t table[NTABLES]; /* where each begins in the piece; 0: there is none */
	struct context_tables tables;
	uint32_t front; /* the bytes before the sizes of segments */
	bool wrong;
};

union codes_memory {
	struct piece_memory<1, direct_table> plain;
	struct contexts_memory contexts;
};

/* --- Tables -------------------------------------------------------------------------------------- */

/* The bytes of a table by its head; 0 if it is malformed. */
static __device__ uint32_t table_nbytes(uint32_t head)
{
	const uint32_t first = head & 0xff, last = head >> 8 & 0xff, width = head >> 16 & 0xff;

	if (first >= last || width < 1 || width > TSR_RANS_BITS || head >> 24)
		return 0;
	return 4 + round_up_to_4(((last - first + 1) * width + 7) / 8);
}

/* Where tables are, behind @means bytes of a body, by one thread; false if they do not fit. */
static __device__ bool find_tables(const uint32_t *piece, uint32_t means, struct contexts_memory *m)
{
	const uint32_t body = m->head.body, nbytes = m->head.nbytes;
	uint32_t at = means + 4, stored;

	if (nbytes < at)
		return false;
	stored = piece[(body + means) / 4];
	if (!stored || stored >> TSR_RANS_CONTEXT_COUNT || (unsigned)__popc(stored) > NTABLES)
		return false;
	m->tables = tables_of_contexts(stored);
	for (unsigned i = 0; i < NTABLES; i++) {
		m->table[i] = 0;
		if (i < (unsigned)__popc(stored)) {
			const uint32_t size = nbytes - at >= 4
						      ? table_nbytes(piece[(body + at) / 4])
						      : 0;

			if (!size || nbytes - at < size)
				return false;
			m->table[i] = body + at;
			at += size;
		}
	}
	m->front = at;
	return true;
}

/* Symbols of a lane of the warp that reads a table. */
#define EACH (NSYMBOLS / 32)

/* The ranges of a table that begins with @head, by one warp; false in all lanes if it is malformed. */
static __device__ bool read_ranges(const uint32_t *words, uint32_t *range)
{
	const unsigned lane = threadIdx.x % 32;
	const uint32_t head = words[0];
	const uint32_t first = head & 0xff, last = head >> 8 & 0xff, width = head >> 16 & 0xff;
	const uint32_t nbits = (last - first + 1) * width, nwords = (nbits + 31) / 32;
	uint32_t freq[EACH], largest = 0, sum = 0, before;
	bool wrong = nbits % 32 && words[nwords] >> nbits % 32;

#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		const uint32_t s = EACH * lane + i;

		freq[i] = s >= first && s <= last
				  ? get_bits(words + 1, nwords, (s - first) * width, width)
				  : 0;
		wrong |= (s == first || s == last) && !freq[i];
		largest = max(largest, freq[i]);
		sum += freq[i];
	}
	before = sum_of_lanes_before(sum);
#pragma unroll
	for (unsigned i = 0; i < EACH; i++) {
		range[EACH * lane + i] = freq[i] << 16 | before;
		before += freq[i];
	}
	largest = __reduce_max_sync(TSR_WHOLE_WARP, largest);
	sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
	wrong |= sum != NSLOTS || tsr_rans_number_width(largest) != width;
	return !__any_sync(TSR_WHOLE_WARP, wrong);
}

/* The symbols of slots, likewise; each lane fills slots in a row. */
static __device__ void fill_slots(const uint32_t *range, unsigned char *symbol)
{
	const unsigned each = NSLOTS / 32, begin = each * (threadIdx.x % 32);
	unsigned s = 0;

	__syncwarp();
	for (unsigned step = NSYMBOLS / 2; step; step /= 2)
		s += (range[s + step] & 0xffff) <= begin ? step : 0;
	for (unsigned slot = begin; slot < begin + each; slot += 4) {
		uint32_t word = 0;

#pragma unroll
		for (unsigned i = 0; i < 4; i++) {
			while ((range[s] & 0xffff) + (range[s] >> 16) <= slot + i)
				s++;
			word |= s << 8 * i;
		}
		*(uint32_t *)(symbol + slot) = word;
	}
}

/* --- The front of a piece ------------------------------------------------------------------------ */

/* The means, by all threads; false in all of them if they are wrong. */
static __device__ bool read_means(const uint32_t *body, uint32_t nbytes, struct context_source *s,
				  uint32_t *used_ret)
{
	const uint32_t nrows = (uint32_t)tsr_contexts_rows(s->variance, s->n),
		       ncolumns = s->ncolumns;

	*used_ret = tsr_contexts_means_nbytes(nrows, ncolumns);
	if (nbytes < *used_ret || body[0] > UINT16_MAX || !is_padded(body, 4 + nrows + ncolumns))
		return false;
	s->all = (int32_t)body[0];
	s->rows = (const int8_t *)(body + 1);
	s->columns = s->rows + nrows;
	return true;
}

/* Have a piece ready to be decoded; false in all threads if it is damaged. */
static __device__ bool open_piece(const uint32_t *piece, uint64_t nbytes, struct context_source *s,
				  struct contexts_memory *m)
{
	const unsigned warp = threadIdx.x / 32;
	uint32_t means;
	bool fine = true;

	if (nbytes % 4 || piece[0] >> 8 != nbytes - 4 || nbytes - 4 >= s->n ||
	    !read_means(piece + 1, (uint32_t)nbytes - 4, s, &means))
		return false;
	if (threadIdx.x == 0) {
		m->head.mode = TSR_RANS_CONTEXTS;
		m->head.body = 4;
		m->head.nbytes = (uint32_t)nbytes - 4;
		m->wrong = !find_tables(piece, means, m) ||
			   !read_segments(piece, &m->head, m->front, s->n);
	}
	__syncthreads();
	if (m->wrong)
		return false;
	if (m->table[warp])
		fine = read_ranges(piece + m->table[warp] / 4, m->range[warp]);
	fine = __syncthreads_and(fine);
	if (fine && m->table[warp])
		fill_slots(m->range[warp], m->symbol[warp]);
	__syncthreads();
	return fine;
}

/* --- Segments ------------------------------------------------------------------------------------ */

template <bool SOME>
static __device__ __forceinline__ uint32_t pop_with_table(const struct contexts_memory *m,
							  uint32_t table, struct lane_state *l,
							  bool has)
{
	const uint32_t slot = l->x & (NSLOTS - 1);
	const uint32_t symbol = m->symbol[table][slot], range = m->range[table][symbol];

	refill<SOME>(l, (range >> 16) * (l->x >> TSR_RANS_BITS) + slot - (range & 0xffff), has);
	return symbol;
}

template <bool SOME>
static __device__ __forceinline__ void decode_block(const struct contexts_memory *m,
						    uint32_t tables, uint32_t count,
						    struct lane_state *l, unsigned char *plain)
{
	struct run_of<1> run = {
	};

	/* A block takes at most half of the ring. */
	if (l->filled - l->at <= HALF)
		fill_half(l);
#pragma unroll
	for (unsigned r = 0; r < TSR_RANS_RUN; r++)
		run.word[0] |=
			pop_with_table<SOME>(m, __byte_perm(tables, 0, 0x4440 + r), l, r < count)
			<< 8 * r;
	store_run<1>(plain, run, SOME ? count : TSR_RANS_RUN);
}

template <enum context_sort SORT>
static __device__ __forceinline__ void decode_blocks(const struct contexts_memory *m,
						     const struct context_source *s, uint32_t begin,
						     uint32_t size, struct lane_state *l,
						     unsigned char *plain)
{
	const unsigned lane = threadIdx.x % 32;
	const uint32_t whole = size - size % TSR_RANS_BLOCK, rest = count_run(size, whole, lane);
	struct run_place p = begin_runs(s, begin + TSR_RANS_RUN * lane);
	struct run_inputs inputs = load_inputs<SORT>(s, &p, whole ? TSR_RANS_RUN : rest);
	const struct context_tables tables = m->tables;

	for (uint32_t first = 0; first < whole; first += TSR_RANS_BLOCK) {
		unsigned char *to = plain + p.at;

		const uint32_t contexts = contexts_of_run<SORT>(s, &p, inputs, TSR_RANS_RUN);

		next_run<SORT>(s, &p);
		/* What comes next is on its way meanwhile. */
		inputs = load_inputs<SORT>(s, &p,
					   first + TSR_RANS_BLOCK < whole ? TSR_RANS_RUN : rest);
		decode_block<false>(m, tables_of_run(&tables, pack_contexts(contexts)),
				    TSR_RANS_RUN, l, to);
	}
	if (whole < size) {
		const uint32_t contexts = contexts_of_run<SORT>(s, &p, inputs, rest);

		decode_block<true>(m, tables_of_run(&tables, pack_contexts(contexts)), rest, l,
				   plain + p.at);
	}
}

/* The segment of a warp; false if it is damaged. */
static __device__ bool decode_with_contexts(struct contexts_memory *m, const unsigned char *piece,
					    const struct context_source *s, enum context_sort sort,
					    unsigned char *plain)
{
	const unsigned index = threadIdx.x / 32;
	const uint32_t begin = index * TSR_RANS_SEGMENT;
	struct lane_state l;
	uint32_t size;
	bool fine;

	if (index >= tsr_rans_count_segments(s->n))
		return true;
	size = tsr_rans_segment_size(s->n, index);
	l.ring = m->ring[index];
	begin_lane(&l, piece, &m->head, index, size);
	fine = l.x >= TSR_RANS_LOW;
	if (sort == OF_RUNS)
		decode_blocks<OF_RUNS>(m, s, begin, size, &l, plain);
	else
		decode_blocks<OF_ANY>(m, s, begin, size, &l, plain);
	return fine && l.x == TSR_RANS_LOW && l.at == l.nwords;
}

/* --- Pieces -------------------------------------------------------------------------------------- */

/* A piece of codes; false in all threads if it is damaged. */
static __device__ bool decode_codes(union codes_memory *m, const struct tsr_gpu_piece *p)
{
	const unsigned char *piece = (const unsigned char *)p->coded;
	unsigned char *codes = (unsigned char *)p->plain;
	struct context_source s;
	enum context_sort sort;

	if (p->nbytes < 4 || piece[0] != TSR_RANS_CONTEXTS ||
	    !tsr_contexts_are_possible(&p->variance, p->n))
		return decode_piece<1>(&m->plain, piece, p->nbytes, p->n, 1, false, codes);
	s = source_of(&p->variance, p->n, &sort);
	return open_piece((const uint32_t *)piece, p->nbytes, &s, &m->contexts) &&
	       decode_with_contexts(&m->contexts, piece, &s, sort, codes);
}

#endif
