/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding pieces of codes of variances, with tables chosen by contexts (format.md, "Contexts"). */
#ifndef TSR_GPU_CONTEXTS_DECODE_CUH
#define TSR_GPU_CONTEXTS_DECODE_CUH

#include "gpu/entropy/decode_stream.cuh"
#include "gpu/entropy/gpu_contexts.cuh"

#define NTABLES TSR_RANS_TABLE_COUNT

/* What the threads of a block share. */
struct contexts_memory {
	struct small_table table[NTABLES];
	uint16_t ring[WARPS][RING];
	struct stream_head head;
	struct block_memory block;
	struct context_tables tables;
};

union codes_memory {
	struct piece_memory<1, direct_table> plain;
	struct contexts_memory contexts;
};

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
static __device__ bool open_piece(const uint32_t *piece, uint32_t nbytes, struct context_source *s,
				  struct contexts_memory *m)
{
	const uint32_t *body = piece + 1, size = nbytes - 4;
	uint32_t at, used, stored, ntables;

	if (nbytes % 4 || piece[0] >> 8 != size || size >= s->n ||
	    !read_means(body, size, s, &at) || size < at + 4)
		return false;
	stored = body[at / 4];
	ntables = (uint32_t)__popc(stored);
	if (!stored || stored >> TSR_RANS_CONTEXT_COUNT || ntables > NTABLES)
		return false;
	at += 4;
	if (threadIdx.x == 0) {
		m->head.mode = TSR_RANS_CONTEXTS;
		m->head.body = 4;
		m->head.nbytes = size;
		m->block.wrong = 0;
		m->tables = tables_of_contexts(stored);
	}
	for (unsigned i = 0; i < ntables; i++, at += used) {
		__syncthreads();
		if (!read_table(body + at / 4, size - at, &m->block, &used))
			return false;
		fill_table(&m->block, &m->table[i]);
	}
	if (threadIdx.x == 0 && !read_segments(piece, &m->head, at, s->n))
		m->block.wrong = 1;
	__syncthreads();
	return !m->block.wrong;
}

/* --- Segments ------------------------------------------------------------------------------------ */

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
			pop<SOME>(&m->table[__byte_perm(tables, 0, 0x4440 + r)], l, r < count)
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
