/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of contexts.  Contexts are finer than the tables of a piece are worth: neighbours that are alike
 * have one table, so that a piece has many where its codes are, and few bytes of tables.
 */
#include "entropy/context_tables.h"

#include <string.h>

#define NSYMBOLS 256u
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

void tsr_context_tables_choose(uint32_t *count, struct tsr_context_tables *t)
{
	struct group groups[NCONTEXTS];
	int32_t losses[NCONTEXTS];
	unsigned n = find_groups(count, groups), i;
	uint32_t begin = 0;

	for (i = 0; i + 1 < n; i++)
		losses[i] = loss_of(&groups[i]);
	while ((i = tsr_rans_group_to_join(losses, n)) < n)
		join(groups, n--, losses, i);
	for (i = 0; i < n; i++) {
		begin |= 1u << groups[i].first;
		memmove(count + NSYMBOLS * i, groups[i].count, NSYMBOLS * sizeof(*count));
	}
	tsr_context_tables_read(begin, t);
}

bool tsr_context_tables_are_possible(uint32_t begin)
{
	return begin && !(begin >> NCONTEXTS) &&
	       (unsigned)__builtin_popcount(begin) <= TSR_RANS_TABLE_COUNT;
}

void tsr_context_tables_read(uint32_t begin, struct tsr_context_tables *t)
{
	t->n = 0;
	t->begin = begin;
	for (unsigned c = 0; c < NCONTEXTS; c++) {
		t->n += begin >> c & 1;
		t->of[c] = (uint8_t)(t->n ? t->n - 1 : 0);
	}
}

void tsr_context_tables_of_contexts(const struct tsr_context_tables *t, size_t n, uint8_t *contexts)
{
	static tsr_context_tables_bytes_fn *const replace[] = TSR_ISA_VARIANTS(
		context_tables_bytes);

	replace[tsr_isa_level()](t->of, n, contexts);
}
