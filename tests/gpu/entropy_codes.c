/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of codes with contexts: a GPU's bytes against the CPU's, back again, and damaged ones refused. */
#include <stdlib.h>
#include <string.h>

#include "check_gpu.h"
#include "entropy/contexts_math.h"

/* A piece of a matrix: where it begins, what rows and groups are like. */
struct shape {
	uint64_t first, columns, row; /* row: groups that cross no row */
	uint32_t n, group;
};

/* Runs of lanes that share row and scale, and all that makes them different. */
static const struct shape shapes[] = {
	{ 0, 64, 0, 20000, 32 },      { 0, 64, 64, 20001, 32 },	    { 0, 1024, 0, 262144, 32 },
	{ 4096, 2048, 0, 40960, 32 }, { 98304, 640, 0, 98304, 64 }, { 96, 36, 0, 65600, 4 },
	{ 0, 100, 0, 33000, 32 },     { 0, 77, 77, 33033, 32 },	    { 320, 77, 0, 33001, 32 },
	{ 17, 1000, 0, 40001, 128 },  { 0, 300, 300, 30000, 25 },   { 0, 8192, 0, 131072, 32 },
	{ 0, 4, 0, 300, 4 },	      { 0, 20000, 0, 20000, 32 },   { 0, 1, 0, 40, 32 },
	{ 0, 32, 0, 320, 32 },	      { 5, 16, 0, 123, 8 },	    { 0, 16, 0, 1, 32 },
	{ 0, 0, 0, 1000, 32 },
};

enum codes { LIKE_A_PRODUCT, NOISE, ONE_VALUE, TWO_VALUES, CODES };

/* --- A piece ------------------------------------------------------------------------------------- */

static const struct tsr_gpu_coding coding = { { .width = 1 }, true };

/* Octaves of the scale of an element. */
static uint32_t octaves_of(const struct piece *p, uint32_t i)
{
	return (p->scales[tsr_entropy_scale_of(&p->variance.scales, p->variance.first, i)] >> 8) -
	       0x70u;
}

/* A row times a column, relative to a scale, or what has nothing to do with these. */
static unsigned char code_of(enum codes codes, const struct piece *p, uint32_t i, uint64_t *seed)
{
	const uint64_t at = p->variance.first + i,
		       columns = p->variance.columns ? p->variance.columns : 1;
	const uint32_t r = random_32(seed), row = (uint32_t)(at / columns % 3),
		       column = (uint32_t)(at % columns % 3);

	switch (codes) {
	case LIKE_A_PRODUCT:
		return (unsigned char)((r % 5 + 10) << (row + column) >> octaves_of(p, i));
	case NOISE:
		return (unsigned char)(r >> 8);
	case ONE_VALUE:
		return 9;
	default:
		return r % 5 ? 100 : 101;
	}
}

/* Codes of sqrt8 or log8. */
enum sort { ROOTS, LOGARITHMS, SORTS };

static struct piece make_piece(const struct shape *s, enum codes codes, enum sort sort)
{
	struct piece p = { .n = s->n };
	uint64_t seed = s->n + codes;

	p.nscales = s->n + 1; /* more than there are groups */
	p.scales = must_have(malloc(p.nscales * sizeof(*p.scales)));
	p.plain = must_have(malloc(s->n));
	for (size_t i = 0; i < p.nscales; i++)
		p.scales[i] = (uint16_t)(0x7000 + 256 * (random_32(&seed) % 3) + i % 16);
	p.variance = (struct tsr_entropy_variance){
		.first = s->first,
		.columns = s->columns,
		.scales = { p.scales, s->row, s->group },
		.logarithmic = sort == LOGARITHMS,
	};
	for (uint32_t i = 0; i < s->n; i++)
		p.plain[i] = code_of(codes, &p, i, &seed);
	pieces_encode_on_cpu(coding, &p);
	return p;
}

/* --- All of it ----------------------------------------------------------------------------------- */

/* All shapes together, since pieces are of any tensors; returns how many had contexts. */
static unsigned check_codes(enum codes codes, enum sort sort)
{
	struct piece pieces[COUNT_OF(shapes)];
	unsigned with = 0;

	for (unsigned i = 0; i < COUNT_OF(shapes); i++) {
		pieces[i] = make_piece(&shapes[i], codes, sort);
		with += tsr_entropy_has_contexts(pieces[i].coded, pieces[i].nbytes);
	}
	pieces_check(coding, pieces, COUNT_OF(shapes), sort == ROOTS ? "sqrt8" : "log8");
	for (unsigned i = 0; i < COUNT_OF(shapes); i++)
		pieces_free(&pieces[i]);
	return with;
}

static uint64_t check_damage(const struct shape *s, enum sort sort, unsigned times)
{
	struct piece p = make_piece(s, LIKE_A_PRODUCT, sort);
	uint64_t cases;

	if (!tsr_entropy_has_contexts(p.coded, p.nbytes))
		check_failed("a piece of %u has no contexts", p.n);
	cases = pieces_check_damage(coding, &p, times);
	pieces_free(&p);
	return cases;
}

void check_entropy_codes(enum cases cases)
{
	const unsigned times = cases == CASES_ALL ? 600 : 60;
	uint64_t count = 0;

	check_begin("codes with contexts have the CPU's bytes, and come back");
	for (int codes = 0; codes < CODES; codes++) {
		for (int sort = 0; sort < SORTS; sort++) {
			const unsigned with = check_codes((enum codes)codes, (enum sort)sort);

			if (codes == LIKE_A_PRODUCT && with < (sort == LOGARITHMS ? 1 : 8))
				check_failed("only %u pieces have contexts", with);
			count += COUNT_OF(shapes);
		}
	}
	check_end(count);
	check_begin("damaged codes with contexts are refused where the CPU refuses them");
	count = check_damage(&shapes[0], ROOTS, times) + check_damage(&shapes[7], ROOTS, times);
	check_end(count);
}
