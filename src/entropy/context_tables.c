/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of contexts.  Contexts are finer than the tables of a piece are worth: neighbours that are alike
 * have one table, so that a piece has many where its codes are, and few bytes of tables.
 */
#include "entropy/context_tables.h"

#include <string.h>

#include "base/little_endian.h"

#define NSYMBOLS TSR_RANS_SYMBOLS
#define NCONTEXTS TSR_RANS_CONTEXT_COUNT

/* Contexts in a row that have one table, of which the first has codes. */
struct group {
	unsigned first;
	uint32_t *count; /* NSYMBOLS */
	uint32_t n; /* codes */
	int32_t bits; /* that these take with a table of their own, in 1/256 */
};

static uint32_t add_up(const uint32_t *count)
{
	uint32_t n = 0;

	for (unsigned s = 0; s < NSYMBOLS; s++)
		n += count[s];
	return n;
}

static int32_t bits_of(const uint32_t *a, const uint32_t *b, uint32_t n)
{
	static tsr_context_tables_informations_fn *const informations[] = TSR_ISA_VARIANTS(
		context_tables_informations);

	return (int32_t)(tsr_rans_information(n) - informations[tsr_isa_level()](a, b));
}

/* Contexts that have codes. */
static unsigned find_groups(uint32_t *count, struct group *groups)
{
	static const uint32_t nothing[NSYMBOLS];
	unsigned n = 0;

	for (unsigned c = 0; c < NCONTEXTS; c++) {
		struct group g = { .first = c, .count = count + NSYMBOLS * c };

		g.n = add_up(g.count);
		if (!g.n)
			continue;
		g.bits = bits_of(g.count, nothing, g.n);
		groups[n++] = g;
	}
	return n;
}

/* What is lost if this group has one table with the next. */
static int32_t loss_of(const struct group *g)
{
	return bits_of(g[0].count, g[1].count, g[0].n + g[1].n) - g[0].bits - g[1].bits;
}

/* Have group @i one table with the next. */
static void join(struct group *groups, unsigned n, int32_t *losses, unsigned i)
{
	struct group *g = &groups[i];

	g->bits += g[1].bits + losses[i];
	g->n += g[1].n;
	for (unsigned s = 0; s < NSYMBOLS; s++)
		g->count[s] += g[1].count[s];
	memmove(g + 1, g + 2, (n - i - 2) * sizeof(*g));
	memmove(losses + i, losses + i + 1, (n - i - 2) * sizeof(*losses));
	if (i)
		losses[i - 1] = loss_of(g - 1);
	if (i + 2 < n)
		losses[i] = loss_of(g);
}

static void number_tables(uint32_t begin, struct tsr_context_tables *t)
{
	t->n = 0;
	t->begin = (uint16_t)begin;
	for (unsigned c = 0; c < NCONTEXTS; c++) {
		t->n += begin >> c & 1;
		t->of[c] = (uint8_t)(t->n ? t->n - 1 : 0);
	}
}

static void choose(uint32_t *count, int32_t table_cost, struct tsr_context_tables *t)
{
	struct group groups[NCONTEXTS];
	int32_t losses[NCONTEXTS];
	unsigned n = find_groups(count, groups), i;
	uint32_t begin = 0;

	for (i = 0; i + 1 < n; i++)
		losses[i] = loss_of(&groups[i]);
	while ((i = tsr_rans_group_to_join(losses, n, table_cost)) < n)
		join(groups, n--, losses, i);
	for (i = 0; i < n; i++) {
		begin |= 1u << groups[i].first;
		memmove(count + NSYMBOLS * i, groups[i].count, NSYMBOLS * sizeof(*count));
	}
	number_tables(begin, t);
}

size_t tsr_context_tables_put(struct tsr_entropy *e, uint32_t *count, int32_t table_cost,
			      struct tsr_context_tables *t, uint8_t *bytes, uint64_t *cost)
{
	uint16_t freq[NSYMBOLS];
	size_t nbytes = 4;

	choose(count, table_cost, t);
	tsr_put_le(bytes, t->begin | (uint32_t)t->lowest << 16, 4);
	*cost = 0;
	for (unsigned i = 0; i < t->n; i++) {
		tsr_rans_frequencies_of(count + NSYMBOLS * i, freq);
		nbytes += tsr_rans_put_table(freq, bytes + nbytes);
		*cost += tsr_rans_counts_cost(count + NSYMBOLS * i, freq);
		tsr_rans_encoder_table(freq, e->encoder.symbols + NSYMBOLS * i);
	}
	return nbytes;
}

const char *tsr_context_tables_get(struct tsr_entropy *e, const uint8_t *bytes, size_t nbytes,
				   struct tsr_context_tables *t, size_t *used)
{
	uint16_t freq[NSYMBOLS];

	if (nbytes < 4)
		return "the list of its tables ends early";
	number_tables((uint32_t)tsr_get_le(bytes, 2), t);
	t->lowest = (uint16_t)tsr_get_le(bytes + 2, 2);
	if (!t->n || t->n > TSR_RANS_TABLE_COUNT)
		return "the list of its tables is none";
	*used = 4;
	for (unsigned i = 0; i < t->n; i++) {
		size_t table_nbytes;
		const char *wrong = tsr_rans_get_table(bytes + *used, nbytes - *used, TSR_RANS_BITS,
						       freq, &table_nbytes);

		if (wrong)
			return wrong;
		*used += table_nbytes;
		tsr_rans_decoder_table(freq, e->decoder.slots + ((size_t)i << TSR_RANS_BITS));
	}
	return NULL;
}

void tsr_context_tables_of_contexts(const struct tsr_context_tables *t, size_t n, uint8_t *contexts)
{
	static tsr_context_tables_bytes_fn *const replace[] = TSR_ISA_VARIANTS(
		context_tables_bytes);

	replace[tsr_isa_level()](t->of, n, contexts);
}
