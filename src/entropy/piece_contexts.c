/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces whose tables are chosen by contexts: of codes of variances, and of symbols with any contexts. */
#include <string.h>

#include "base/little_endian.h"
#include "entropy/context_tables.h"

#define NSYMBOLS TSR_RANS_SYMBOLS
#define NCONTEXTS TSR_RANS_CONTEXT_COUNT

static const struct tsr_entropy_kind byte_kind = { .width = 1 };

/* What stands in front of the segments, and what the codes cost by it, in 1/256 of a bit. */
struct front {
	uint8_t bytes[TSR_CONTEXTS_MEANS_NBYTES + TSR_CONTEXT_TABLES_NBYTES];
	size_t nbytes;
	uint64_t cost;
};

/* The tables of codes whose contexts @e has, and what is stored of them in front of the segments. */
static void prepare(struct tsr_entropy *e, const uint8_t *codes, size_t n, uint32_t *count,
		    struct tsr_context_tables *t, struct front *f)
{
	static tsr_rans_count_contexts_fn *const count_contexts[] = TSR_ISA_VARIANTS(
		rans_count_contexts);

	count_contexts[tsr_isa_level()](e->contexts, codes, n, NCONTEXTS, count);
	t->lowest = 0;
	f->nbytes += tsr_context_tables_put(e, count, TSR_RANS_TABLE_COST, t, f->bytes + f->nbytes,
					    &f->cost);
}

/* How often codes occur, whatever their tables. */
static void add_tables(const uint32_t *count, unsigned ntables, uint32_t *sum)
{
	memset(sum, 0, NSYMBOLS * sizeof(*sum));
	for (unsigned pair = 0; pair < ntables * NSYMBOLS; pair++)
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

/* Code by the contexts that @e has; @f has what the decoder finds them by. */
static size_t encode(struct tsr_entropy *e, struct front *f, const uint8_t *codes, size_t n,
		     uint8_t *coded)
{
	uint32_t count[NCONTEXTS * NSYMBOLS], sum[NSYMBOLS];
	uint8_t *const body = coded + 4;
	enum tsr_rans_mode mode = TSR_RANS_CONTEXTS;
	size_t nbytes = 0;
	struct tsr_context_tables tables;

	prepare(e, codes, n, count, &tables, f);
	add_tables(count, tables.n, sum);
	if (sum[codes[0]] < n && is_better(f, sum, n)) {
		tsr_context_tables_of_contexts(&tables, n, e->contexts);
		memcpy(body, f->bytes, f->nbytes);
		nbytes = tsr_rans_put_segments(e, e->contexts, codes, n, body + f->nbytes,
					       n - f->nbytes - 1);
		nbytes += nbytes ? f->nbytes : 0;
	}
	if (!nbytes)
		nbytes = tsr_rans_put_stream(e, codes, sum, n, body, &mode);
	tsr_put_le(coded, (uint64_t)nbytes << 8 | mode, 4);
	return 4 + nbytes;
}

size_t tsr_entropy_encode_codes(struct tsr_entropy *e, const struct tsr_entropy_variance *v,
				const void *codes, size_t n, void *coded)
{
	struct front f;

	if (!tsr_contexts_are_possible(v, n))
		return tsr_entropy_encode(e, byte_kind, codes, n, coded);
	tsr_contexts_find_means(v, codes, n, &e->means);
	f.nbytes = tsr_contexts_put_means(&e->means, f.bytes);
	tsr_contexts_fill(v, &e->means, n, e->contexts);
	return encode(e, &f, codes, n, coded);
}

size_t tsr_entropy_encode_symbols(struct tsr_entropy *e, const uint8_t *contexts,
				  const void *symbols, size_t n, void *coded)
{
	struct front f = { .nbytes = 0 };

	if (!contexts || !n)
		return tsr_entropy_encode(e, byte_kind, symbols, n, coded);
	memcpy(e->contexts, contexts, n);
	return encode(e, &f, symbols, n, coded);
}

/* Decode by the contexts that @e has: tables and segments. */
static const char *get_by_contexts(struct tsr_entropy *e, const uint8_t *bytes, size_t nbytes,
				   uint8_t *codes, size_t n)
{
	struct tsr_context_tables tables;
	size_t tables_nbytes;
	const char *wrong = tsr_context_tables_get(e, bytes, nbytes, &tables, &tables_nbytes);

	if (!wrong && tables.lowest)
		wrong = "the list of its tables is none";
	if (wrong)
		return wrong;
	tsr_context_tables_of_contexts(&tables, n, e->contexts);
	return tsr_rans_get_segments(e, e->contexts, bytes + tables_nbytes, nbytes - tables_nbytes,
				     codes, n);
}

static const char *get_with_means(struct tsr_entropy *e, const struct tsr_entropy_variance *v,
				  const uint8_t *bytes, size_t nbytes, uint8_t *codes, size_t n)
{
	const char *wrong;
	size_t means_nbytes;

	wrong = tsr_contexts_get_means(v, n, bytes, nbytes, &e->means, &means_nbytes);
	if (wrong)
		return wrong;
	tsr_contexts_fill(v, &e->means, n, e->contexts);
	return get_by_contexts(e, bytes + means_nbytes, nbytes - means_nbytes, codes, n);
}

/* NULL, or what is wrong with the head of a piece with contexts. */
static const char *check_head(const uint8_t *head, size_t nbytes, size_t n)
{
	if (tsr_get_le(head + 1, 3) != nbytes - 4 || nbytes % 4)
		return "its stream has another size";
	return nbytes - 4 >= n ? "a coded stream is not smaller than its symbols" : NULL;
}

const char *tsr_entropy_decode_codes(struct tsr_entropy *e, const struct tsr_entropy_variance *v,
				     const void *coded, size_t nbytes, void *codes, size_t n)
{
	const uint8_t *const head = coded;
	const char *wrong;

	if (nbytes < 4 || head[0] != TSR_RANS_CONTEXTS || !tsr_contexts_are_possible(v, n))
		return tsr_entropy_decode(e, byte_kind, coded, nbytes, codes, n);
	wrong = check_head(head, nbytes, n);
	return wrong ? wrong : get_with_means(e, v, head + 4, nbytes - 4, codes, n);
}

const char *tsr_entropy_decode_symbols(struct tsr_entropy *e, const uint8_t *contexts,
				       const void *coded, size_t nbytes, void *symbols, size_t n)
{
	const uint8_t *const head = coded;
	const char *wrong;

	if (nbytes < 4 || head[0] != TSR_RANS_CONTEXTS || !contexts)
		return tsr_entropy_decode(e, byte_kind, coded, nbytes, symbols, n);
	wrong = check_head(head, nbytes, n);
	if (wrong)
		return wrong;
	memcpy(e->contexts, contexts, n);
	return get_by_contexts(e, head + 4, nbytes - 4, symbols, n);
}

bool tsr_entropy_has_contexts(const void *coded, size_t nbytes)
{
	return nbytes && *(const uint8_t *)coded == TSR_RANS_CONTEXTS;
}
