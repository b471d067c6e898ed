/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces coded by what differs from older elements: symbols with tables chosen by these, and their rests. */
#include "entropy/differences.h"

#include <string.h>

#include "base/little_endian.h"
#include "entropy/base_elements.h"
#include "entropy/context_tables.h"
#include "entropy/differences_math.h"

#define NSYMBOLS TSR_RANS_SYMBOLS
#define NCONTEXTS TSR_RANS_CONTEXT_COUNT

/* Bytes in front of the symbols: the head of the piece, and that of their stream. */
#define HEADS 8u

/* --- Rests --------------------------------------------------------------------------------------- */

/* Symbols that are looked at together. */
#define TOGETHER 8u

/* Elements that are in a core's first cache from one step to the next. */
#define PART 2048u

/* Whether none of @n symbols has a rest, of elements of more than one byte. */
static inline bool have_no_rests(const uint8_t *symbols, size_t n)
{
	uint64_t all = 0, some, four[4];
	size_t i;

	for (i = 0; n - i >= sizeof(four); i += sizeof(four)) {
		memcpy(four, symbols + i, sizeof(four));
		all |= four[0] | four[1] | four[2] | four[3];
	}
	for (; n - i >= TOGETHER; i += TOGETHER) {
		memcpy(&some, symbols + i, TOGETHER);
		all |= some;
	}
	for (; i < n; i++)
		all |= symbols[i];
	return !(all & UINT64_C(0xf0f0f0f0f0f0f0f0));
}

/* The bits of all rests, given how often symbols occur in all contexts. */
static uint64_t rest_nbits(const uint32_t *count, unsigned bits)
{
	uint64_t nbits = 0;

	for (unsigned pair = 0; pair < NCONTEXTS * NSYMBOLS; pair++)
		nbits += (uint64_t)count[pair] * tsr_difference_rest(pair % NSYMBOLS, bits);
	return nbits;
}

/* Where in the rests a writer or a reader is. */
struct rests {
	uint64_t pending;
	unsigned npending;
	uint8_t *to; /* of a writer */
	const uint8_t *from; /* of a reader */
};

static void put_rest(struct rests *r, uint32_t difference, uint32_t rest)
{
	r->pending |= (difference & ((UINT64_C(1) << rest) - 1)) << r->npending;
	r->npending += rest;
	if (r->npending < 32)
		return;
	tsr_put_le(r->to, r->pending & UINT32_MAX, 4);
	r->to += 4;
	r->pending >>= 32;
	r->npending -= 32;
}

static void put_rests(const struct tsr_entropy *e, size_t n, unsigned bits, uint8_t *to)
{
	struct rests r = { .to = to };

	for (size_t i = 0, end; i < n && bits > 8; i = end) {
		end = n - i < TOGETHER ? n : i + TOGETHER;
		if (end - i == TOGETHER && have_no_rests(e->symbols + i, TOGETHER))
			continue;
		for (size_t k = i; k < end; k++)
			put_rest(&r, e->differences[k], tsr_difference_rest(e->symbols[k], bits));
	}
	if (r.npending)
		tsr_put_le(r.to, r.pending, 4);
}

/* The bits of the rests of symbols, added to *@nbits; false if one of them is not possible. */
static bool count_rests(const uint8_t *symbols, size_t n, unsigned bits, uint64_t *nbits)
{
	for (size_t i = 0, end; i < n; i = end) {
		end = n - i < TOGETHER ? n : i + TOGETHER;
		if (end - i == TOGETHER && have_no_rests(symbols + i, TOGETHER))
			continue;
		for (size_t k = i; k < end; k++) {
			if (symbols[k] > tsr_difference_symbol_max(bits))
				return false;
			*nbits += tsr_difference_rest(symbols[k], bits);
		}
	}
	return true;
}

/* Whether symbols are possible and have rests of so many bytes. */
static const char *check_rests(const uint8_t *symbols, size_t n, unsigned bits, size_t nbytes)
{
	uint64_t nbits = 0;

	for (size_t i = 0, m; i < n && bits > 8; i += m) {
		m = n - i < PART ? n - i : PART;
		if (!have_no_rests(symbols + i, m) && !count_rests(symbols + i, m, bits, &nbits))
			return "a difference is larger than its elements";
	}
	return nbytes == (nbits + 31) / 32 * 4 ? NULL
					       : "the rests of differences have another size";
}

static uint32_t get_rest(struct rests *r, uint32_t rest)
{
	uint32_t value;

	if (r->npending < rest) {
		r->pending |= tsr_get_le(r->from, 4) << r->npending;
		r->from += 4;
		r->npending += 32;
	}
	value = (uint32_t)(r->pending & ((UINT64_C(1) << rest) - 1));
	r->pending >>= rest;
	r->npending -= rest;
	return value;
}

/* Symbols that were checked, and their rests, to differences. */
static void get_rests(struct rests *r, const uint8_t *symbols, size_t n, unsigned bits,
		      uint32_t *differences)
{
	tsr_older_widen(symbols, n, differences);
	for (size_t i = 0, end; i < n && bits > 8; i = end) {
		end = n - i < TOGETHER ? n : i + TOGETHER;
		if (end - i == TOGETHER && have_no_rests(symbols + i, TOGETHER))
			continue;
		for (size_t k = i; k < end; k++)
			differences[k] = tsr_difference_base(symbols[k], bits) |
					 get_rest(r, tsr_difference_rest(symbols[k], bits));
	}
}

/* --- Pieces -------------------------------------------------------------------------------------- */

static bool are_equal(const uint8_t *symbols, size_t n)
{
	return memcmp(symbols, symbols + 1, n - 1) == 0;
}

/* The old elements from the one at @i on; not of variances. */
static struct tsr_entropy_old older_part(const struct tsr_entropy_old *old, size_t i)
{
	struct tsr_entropy_old part = *old;

	part.plane += i * old->kind.width;
	if (old->kind.correction)
		part.correction += i * old->kind.correction;
	return part;
}

/* The elements of variances' runs of scales are not divided. */
static size_t part_of(const struct tsr_entropy_old *old, size_t n)
{
	return n < PART || old->kind.of == TSR_DIFFERENCE_VARIANCES ? n : PART;
}

/* New elements to differences, symbols and contexts. */
static void subtract(struct tsr_entropy *e, const struct tsr_entropy_old *old, uint8_t lowest,
		     const uint8_t *plane, const uint8_t *correction, size_t n)
{
	const struct tsr_difference_kind kind = old->kind;

	for (size_t i = 0, m; i < n; i += m) {
		const struct tsr_entropy_old part = older_part(old, i);

		m = part_of(old, n - i);
		tsr_older_expect(&part, m, lowest, e->differences + i, e->contexts + i);
		tsr_older_subtract(&part, plane + i * kind.width,
				   kind.correction ? correction + i * kind.correction : NULL, m,
				   e->differences + i, e->symbols + i);
	}
}

/* What a table is taken to cost, in 1/256 of a bit: a head, and four bits a symbol from first to last. */
static int32_t table_cost(const uint32_t *count)
{
	unsigned first = NSYMBOLS, last = 0;

	for (unsigned pair = 0; pair < NCONTEXTS * NSYMBOLS; pair++) {
		const unsigned s = pair % NSYMBOLS;

		first = count[pair] && s < first ? s : first;
		last = count[pair] && s > last ? s : last;
	}
	return (int32_t)(2048 * 4 + 1024 * (last - first + 1));
}

/* The stream of symbols to @to; 0 if it does not fit. */
static size_t put_symbols(struct tsr_entropy *e, uint32_t *count, uint8_t lowest, size_t n,
			  uint8_t *to, size_t room, enum tsr_rans_mode *mode)
{
	struct tsr_context_tables tables = { .lowest = lowest };
	uint8_t front[TSR_CONTEXT_TABLES_NBYTES];
	size_t nbytes, segments_nbytes;
	uint64_t cost;

	if (are_equal(e->symbols, n)) {
		*mode = TSR_RANS_CONSTANT;
		tsr_put_le(to, e->symbols[0], 4);
		return 4;
	}
	*mode = TSR_RANS_CONTEXTS;
	nbytes = tsr_context_tables_put(e, count, table_cost(count), &tables, front, &cost);
	if (nbytes >= room)
		return 0;
	tsr_context_tables_of_contexts(&tables, n, e->contexts);
	memcpy(to, front, nbytes);
	segments_nbytes = tsr_rans_put_segments(e, e->contexts, e->symbols, n, to + nbytes,
						room - nbytes);
	return segments_nbytes ? nbytes + segments_nbytes : 0;
}

size_t tsr_entropy_encode_differences(struct tsr_entropy *e, const struct tsr_entropy_old *old,
				      const void *plane, const void *correction, size_t n,
				      void *coded, size_t room)
{
	static tsr_rans_count_contexts_fn *const count_contexts[] = TSR_ISA_VARIANTS(
		rans_count_contexts);
	const unsigned bits = tsr_older_bits(old->kind);
	uint32_t count[NCONTEXTS * NSYMBOLS];
	uint8_t *const head = coded;
	enum tsr_rans_mode mode;
	size_t rests_nbytes, symbols_nbytes;
	uint8_t lowest;

	lowest = tsr_older_lowest(old, n);
	subtract(e, old, lowest, plane, correction, n);
	count_contexts[tsr_isa_level()](e->contexts, e->symbols, n, NCONTEXTS, count);
	rests_nbytes = (size_t)(rest_nbits(count, bits) + 31) / 32 * 4;
	if (room < HEADS + 4 || room - HEADS - 4 < rests_nbytes)
		return 0;
	symbols_nbytes = put_symbols(e, count, lowest, n, head + HEADS, room - HEADS - rests_nbytes,
				     &mode);
	if (!symbols_nbytes)
		return 0;
	put_rests(e, n, bits, head + HEADS + symbols_nbytes);
	tsr_put_le(head,
		   (uint64_t)(4 + symbols_nbytes + rests_nbytes) << 8 | TSR_ENTROPY_DIFFERENCES, 4);
	tsr_put_le(head + 4, (uint64_t)symbols_nbytes << 8 | mode, 4);
	return HEADS + symbols_nbytes + rests_nbytes;
}

/* Symbols, given the older elements; what is expected of new variances goes to @expected, else NULL. */
static const char *get_symbols(struct tsr_entropy *e, const struct tsr_entropy_old *old,
			       unsigned mode, const uint8_t *bytes, size_t nbytes, size_t n,
			       uint32_t *expected)
{
	struct tsr_context_tables tables;
	const char *wrong;
	size_t used;

	if (mode == TSR_RANS_CONSTANT) {
		if (expected)
			tsr_older_expect(old, n, 0, expected, e->contexts);
		return tsr_rans_get_stream(e, mode, bytes, nbytes, e->symbols, n);
	}
	if (mode != TSR_RANS_CONTEXTS)
		return "symbols of differences are stored in a way that is not known";
	wrong = tsr_context_tables_get(e, bytes, nbytes, &tables, &used);
	if (wrong)
		return wrong;
	if (tables.lowest > (old->kind.of == TSR_DIFFERENCE_FLOATS ? UINT8_MAX : 0))
		return "what is no float has exponents";
	tsr_older_expect(old, n, (uint8_t)tables.lowest, expected, e->contexts);
	tsr_context_tables_of_contexts(&tables, n, e->contexts);
	return tsr_rans_get_segments(e, e->contexts, bytes + used, nbytes - used, e->symbols, n);
}

static bool are_zero(const uint8_t *symbols, size_t n)
{
	return symbols[0] == 0 && (n == 1 || are_equal(symbols, n));
}

/* Symbols and rests, which were checked and of which there may be none, NULL, to new elements. */
static void add(struct tsr_entropy *e, const struct tsr_entropy_old *old, const uint8_t *rests,
		uint8_t *plane, uint8_t *correction, size_t n, bool *rests_end_ret)
{
	const struct tsr_difference_kind kind = old->kind;
	const bool moved = kind.of == TSR_DIFFERENCE_VARIANCES;
	const unsigned bits = tsr_older_bits(kind);
	struct rests r = { .from = rests };

	for (size_t i = 0, m; i < n; i += m) {
		const struct tsr_entropy_old part = older_part(old, i);
		uint8_t *to = plane + i * kind.width;
		uint8_t *more = kind.correction ? correction + i * kind.correction : NULL;

		m = part_of(old, n - i);
		/* What did not change is copied. */
		if (!moved && are_zero(e->symbols + i, m)) {
			memcpy(to, part.plane, m * kind.width);
			if (more)
				memcpy(more, part.correction, m * kind.correction);
			continue;
		}
		if (!moved && (!rests || have_no_rests(e->symbols + i, m))) {
			tsr_older_move(&part, e->symbols + i, m, to, more);
			continue;
		}
		if (!moved)
			tsr_older_expect(&part, m, 0, e->expected, NULL);
		get_rests(&r, e->symbols + i, m, bits, e->differences);
		tsr_older_add(&part, e->expected, e->differences, m, to, more);
	}
	*rests_end_ret = !r.pending;
}

const char *tsr_entropy_decode_differences(struct tsr_entropy *e, const struct tsr_entropy_old *old,
					   const void *coded, size_t nbytes, void *plane,
					   void *correction, size_t n)
{
	const uint8_t *const head = coded;
	const bool moved = old->kind.of == TSR_DIFFERENCE_VARIANCES;
	const char *wrong;
	bool rests_end;
	size_t size, rests_nbytes;

	if (nbytes < HEADS || nbytes % 4 || head[0] != TSR_ENTROPY_DIFFERENCES ||
	    tsr_get_le(head + 1, 3) != nbytes - 4)
		return "its differences have another size";
	size = (size_t)tsr_get_le(head + 5, 3);
	if (size % 4 || size > nbytes - HEADS)
		return "a stream ends early";
	rests_nbytes = nbytes - HEADS - size;
	wrong = get_symbols(e, old, head[4], head + HEADS, size, n, moved ? e->expected : NULL);
	if (!wrong)
		wrong = check_rests(e->symbols, n, tsr_older_bits(old->kind), rests_nbytes);
	if (wrong)
		return wrong;
	add(e, old, rests_nbytes ? head + HEADS + size : NULL, plane, correction, n, &rests_end);
	return rests_end ? NULL : "bits behind the rests of differences are not zero";
}
