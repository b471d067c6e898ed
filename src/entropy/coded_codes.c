/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of codes whose tables are chosen by what lies beside them. */
#include <string.h>

#include "base/little_endian.h"
#include "entropy/segments.h"

#define NSYMBOLS TSR_RANS_SYMBOLS
#define NCONTEXTS TSR_RANS_CONTEXT_COUNT

static const struct tsr_entropy_kind byte_kind = { .width = 1 };

/* What stands in front of the segments, and what the codes cost by it, in 1/256 of a bit. */
struct front {
	uint8_t bytes[TSR_CONTEXTS_MEANS_NBYTES + 4 + NCONTEXTS * TSR_RANS_TABLE_NBYTES];
	size_t nbytes;
	uint64_t cost;
};

/* A table that is not stored: all symbols alike. */
static void make_flat(uint16_t *freq)
{
	for (unsigned s = 0; s < NSYMBOLS; s++)
		freq[s] = (1u << TSR_RANS_BITS) / NSYMBOLS;
}

/* Store the table of a context where that is worth it.  Whether it is stored. */
static bool put_context(struct tsr_entropy *e, unsigned context, const uint32_t *count,
			struct front *f)
{
	uint16_t freq[NSYMBOLS];
	uint64_t cost, flat;
	uint32_t n = 0;
	size_t nbytes;
	bool stored;

	for (unsigned s = 0; s < NSYMBOLS; s++)
		n += count[s];
	if (!n)
		return false;
	tsr_rans_frequencies_of(count, freq);
	nbytes = tsr_rans_put_table(freq, f->bytes + f->nbytes);
	cost = tsr_rans_counts_cost(count, freq);
	flat = (uint64_t)n * 2048;
	stored = 2048 * nbytes + cost < flat;
	if (stored)
		f->nbytes += nbytes;
	else
		make_flat(freq);
	f->cost += stored ? cost : flat;
	tsr_rans_encoder_table(freq, e->encoder.symbols + NSYMBOLS * context);
	return stored;
}

/* The contexts of the codes, how often pairs occur, and what is to be stored in front of the segments. */
static void prepare(struct tsr_entropy *e, const struct tsr_entropy_beside *b, const uint8_t *codes,
		    size_t n, uint32_t *count, struct front *f)
{
	static tsr_rans_count_pairs_fn *const count_pairs[] = TSR_ISA_VARIANTS(rans_count_pairs);
	uint32_t stored = 0;
	size_t mask;

	f->nbytes = 0;
	f->cost = 0;
	if (!b->variances) {
		tsr_contexts_find_means(b, codes, n, &e->means);
		f->nbytes = tsr_contexts_put_means(&e->means, f->bytes);
	}
	tsr_contexts_fill(b, &e->means, n, e->contexts);
	count_pairs[tsr_isa_level()](codes, e->contexts, n, e->pairs, count);
	mask = f->nbytes;
	f->nbytes += 4;
	for (unsigned c = 0; c < NCONTEXTS; c++)
		stored |= (uint32_t)put_context(e, c, count + NSYMBOLS * c, f) << c;
	tsr_put_le(f->bytes + mask, stored, 4);
}

/* How often codes occur, whatever their contexts. */
static void add_contexts(const uint32_t *count, uint32_t *sum)
{
	memset(sum, 0, NSYMBOLS * sizeof(*sum));
	for (unsigned pair = 0; pair < NCONTEXTS * NSYMBOLS; pair++)
		sum[pair % NSYMBOLS] += count[pair];
}

/* Whether contexts make a stream smaller that is worth coding with them. */
static bool is_better(const struct front *f, const uint32_t *count, size_t n)
{
	uint16_t freq[NSYMBOLS];
	uint8_t table[TSR_RANS_TABLE_NBYTES];
	size_t table_nbytes;

	if (!tsr_rans_is_worth((uint32_t)n, (uint32_t)f->nbytes, f->cost))
		return false;
	tsr_rans_frequencies(count, TSR_RANS_BITS, freq);
	table_nbytes = tsr_rans_put_table(freq, table);
	return 2048 * f->nbytes + f->cost < 2048 * table_nbytes + tsr_rans_counts_cost(count, freq);
}

size_t tsr_entropy_encode_codes(struct tsr_entropy *e, const struct tsr_entropy_beside *b,
				const void *codes, size_t n, void *coded)
{
	uint32_t count[NCONTEXTS * NSYMBOLS], sum[NSYMBOLS];
	uint8_t *const head = coded, *const body = head + 4,
		       first = n ? *(const uint8_t *)codes : 0;
	enum tsr_rans_mode mode = TSR_RANS_CONTEXTS;
	size_t nbytes = 0;
	struct front f;

	if (!tsr_contexts_are_possible(b, n))
		return tsr_entropy_encode(e, byte_kind, codes, n, coded);
	prepare(e, b, codes, n, count, &f);
	add_contexts(count, sum);
	if (sum[first] < n && is_better(&f, sum, n)) {
		memcpy(body, f.bytes, f.nbytes);
		nbytes = tsr_rans_put_segments(e, NULL, e->pairs, n, body + f.nbytes,
					       n - f.nbytes - 1);
		nbytes += nbytes ? f.nbytes : 0;
	}
	if (!nbytes)
		nbytes = tsr_rans_put_stream(e, codes, sum, n, body, &mode);
	tsr_put_le(head, (uint64_t)nbytes << 8 | mode, 4);
	return 4 + nbytes;
}

static const char *get_tables(struct tsr_entropy *e, const uint8_t *bytes, size_t nbytes,
			      size_t *used)
{
	uint16_t freq[NSYMBOLS];

	if (nbytes < 4)
		return "the list of its tables ends early";
	if (bytes[1] || bytes[2] || bytes[3])
		return "it has a table of a context that there is not";
	*used = 4;
	for (unsigned c = 0; c < NCONTEXTS; c++) {
		size_t table_nbytes = 0;
		const char *wrong = NULL;

		if (bytes[0] >> c & 1)
			wrong = tsr_rans_get_table(bytes + *used, nbytes - *used, TSR_RANS_BITS,
						   freq, &table_nbytes);
		else
			make_flat(freq);
		if (wrong)
			return wrong;
		*used += table_nbytes;
		tsr_rans_decoder_table(freq, e->decoder.slots + ((size_t)c << TSR_RANS_BITS));
	}
	return NULL;
}

static const char *get_with_contexts(struct tsr_entropy *e, const struct tsr_entropy_beside *b,
				     const uint8_t *bytes, size_t nbytes, uint8_t *codes, size_t n)
{
	const char *wrong = NULL;
	size_t means_nbytes = 0, tables_nbytes;

	if (nbytes >= n)
		return "a coded stream is not smaller than its symbols";
	if (!b->variances)
		wrong = tsr_contexts_get_means(b, n, bytes, nbytes, &e->means, &means_nbytes);
	if (wrong)
		return wrong;
	bytes += means_nbytes;
	nbytes -= means_nbytes;
	wrong = get_tables(e, bytes, nbytes, &tables_nbytes);
	if (wrong)
		return wrong;
	tsr_contexts_fill(b, &e->means, n, e->contexts);
	return tsr_rans_get_segments(e, e->contexts, bytes + tables_nbytes, nbytes - tables_nbytes,
				     codes, n);
}

const char *tsr_entropy_decode_codes(struct tsr_entropy *e, const struct tsr_entropy_beside *b,
				     const void *coded, size_t nbytes, void *codes, size_t n)
{
	const uint8_t *const head = coded;

	if (nbytes < 4 || head[0] != TSR_RANS_CONTEXTS || !tsr_contexts_are_possible(b, n))
		return tsr_entropy_decode(e, byte_kind, coded, nbytes, codes, n);
	if (tsr_get_le(head + 1, 3) != nbytes - 4 || nbytes % 4)
		return "its stream has another size";
	return get_with_contexts(e, b, head + 4, nbytes - 4, codes, n);
}

bool tsr_entropy_has_contexts(const void *coded, size_t nbytes)
{
	return nbytes && *(const uint8_t *)coded == TSR_RANS_CONTEXTS;
}
