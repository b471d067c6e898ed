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

static uint32_t random_32(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 32);
}

/* --- A piece ------------------------------------------------------------------------------------- */

struct piece {
	struct tsr_entropy_variance variance;
	uint32_t n, nbytes;
	size_t nscales, room;
	uint16_t *scales;
	unsigned char *codes, *coded; /* by the CPU */
};

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

	p.room = tsr_entropy_bound((struct tsr_entropy_kind){ .width = 1 }, TSR_ENTROPY_PIECE);
	p.nscales = s->n + 1; /* more than there are groups */
	p.scales = must_have(malloc(p.nscales * sizeof(*p.scales)));
	p.codes = must_have(malloc(s->n));
	p.coded = must_have(calloc(p.room, 1));
	for (size_t i = 0; i < p.nscales; i++)
		p.scales[i] = (uint16_t)(0x7000 + 256 * (random_32(&seed) % 3) + i % 16);
	p.variance = (struct tsr_entropy_variance){
		.first = s->first,
		.columns = s->columns,
		.scales = { p.scales, s->row, s->group },
		.logarithmic = sort == LOGARITHMS,
	};
	for (uint32_t i = 0; i < s->n; i++)
		p.codes[i] = code_of(codes, &p, i, &seed);
	return p;
}

static void encode_on_cpu(struct piece *p)
{
	struct tsr_entropy *e = must_have(tsr_entropy_new(1));

	p->nbytes = (uint32_t)tsr_entropy_encode_codes(e, &p->variance, p->codes, p->n, p->coded);
	tsr_entropy_free(e);
}

static bool cpu_decodes(const struct piece *p, unsigned char *codes)
{
	struct tsr_entropy *e = must_have(tsr_entropy_new(1));
	const char *wrong = tsr_entropy_decode_codes(e, &p->variance, p->coded, p->nbytes, codes,
						     p->n);

	tsr_entropy_free(e);
	return !wrong;
}

static void free_piece(struct piece *p)
{
	free(p->scales);
	free(p->codes);
	free(p->coded);
}

/* --- On the GPU ---------------------------------------------------------------------------------- */

static void *on_gpu(const void *host, uint64_t nbytes)
{
	struct tsr_err err;
	void *memory;

	must(tsr_gpu_alloc(gpu, nbytes + 16, "a test", &memory, &err), &err);
	must(tsr_gpu_zero(stream, memory, nbytes + 16, &err), &err);
	if (host)
		must(tsr_gpu_put(stream, memory, host, nbytes, &err), &err);
	return memory;
}

static void fetch(void *host, void *memory, uint64_t nbytes)
{
	struct tsr_err err;

	must(tsr_gpu_get(stream, host, memory, nbytes, &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
}

/* Pieces and their scales, in device memory. */
struct batch {
	unsigned npieces;
	struct tsr_gpu_codes *host, *device;
};

/* With codes, or with coded pieces. */
static struct batch put_batch(const struct piece *pieces, unsigned npieces, bool coded)
{
	struct batch b = { npieces, must_have(calloc(npieces, sizeof(*b.host))), NULL };

	for (unsigned i = 0; i < npieces; i++) {
		const struct piece *p = &pieces[i];
		struct tsr_gpu_codes *c = &b.host[i];
		const uint64_t nscales = p->nscales * sizeof(*p->scales);

		*c = (struct tsr_gpu_codes){ .variance = p->variance,
					     .n = p->n,
					     .nbytes = p->nbytes };
		c->codes = on_gpu(coded ? NULL : p->codes, p->n);
		c->coded = on_gpu(coded ? p->coded : NULL, coded ? p->nbytes : p->room);
		c->variance.scales.scales = on_gpu(p->scales, nscales);
	}
	b.device = on_gpu(b.host, npieces * sizeof(*b.host));
	return b;
}

static void free_batch(struct batch *b)
{
	for (unsigned i = 0; i < b->npieces; i++) {
		struct tsr_gpu_codes *c = &b->host[i];

		tsr_gpu_free(gpu, c->codes);
		tsr_gpu_free(gpu, c->coded);
		tsr_gpu_free(gpu, (void *)c->variance.scales.scales);
	}
	tsr_gpu_free(gpu, b->device);
	free(b->host);
}

static void check_encode(const struct piece *pieces, unsigned npieces, const char *what)
{
	struct batch b = put_batch(pieces, npieces, false);
	unsigned char *theirs = must_have(malloc(pieces[0].room));
	struct tsr_err err;

	must(tsr_gpu_encode_codes(stream, b.device, npieces, &err), &err);
	fetch(b.host, b.device, npieces * sizeof(*b.host));
	for (unsigned i = 0; i < npieces; i++) {
		const struct piece *p = &pieces[i];

		fetch(theirs, b.host[i].coded, p->nbytes);
		if (b.host[i].nbytes != p->nbytes)
			check_failed("%s %u of %u: %u bytes, the CPU's has %u", what, i, p->n,
				     b.host[i].nbytes, p->nbytes);
		else if (memcmp(theirs, p->coded, p->nbytes) != 0)
			check_failed("%s %u of %u: other bytes", what, i, p->n);
	}
	free_batch(&b);
	free(theirs);
}

/* The first piece that is damaged, UINT64_MAX if none is; @codes: of the first. */
static uint64_t decode(const struct piece *pieces, unsigned npieces, unsigned char *const codes[])
{
	struct batch b = put_batch(pieces, npieces, true);
	uint64_t damaged = UINT64_MAX;
	void *found = on_gpu(&damaged, sizeof(damaged));
	struct tsr_err err;

	must(tsr_gpu_decode_codes(stream, b.device, npieces, found, &err), &err);
	fetch(&damaged, found, sizeof(damaged));
	for (unsigned i = 0; i < npieces; i++)
		fetch(codes[i], b.host[i].codes, pieces[i].n);
	tsr_gpu_free(gpu, found);
	free_batch(&b);
	return damaged;
}

static void check_decode(const struct piece *pieces, unsigned npieces, const char *what)
{
	unsigned char *codes[COUNT_OF(shapes)];

	for (unsigned i = 0; i < npieces; i++)
		codes[i] = must_have(malloc(pieces[i].n));
	if (decode(pieces, npieces, codes) != UINT64_MAX)
		check_failed("%s: taken for damaged", what);
	for (unsigned i = 0; i < npieces; i++) {
		if (memcmp(codes[i], pieces[i].codes, pieces[i].n) != 0)
			check_failed("%s %u of %u: other codes", what, i, pieces[i].n);
		free(codes[i]);
	}
}

/* --- All of it ----------------------------------------------------------------------------------- */

/* All shapes together, since pieces are of any tensors; returns how many had contexts. */
static unsigned check_codes(enum codes codes, enum sort sort)
{
	struct piece pieces[COUNT_OF(shapes)];
	const char *what = sort == ROOTS ? "sqrt8" : "log8";
	unsigned with = 0;

	for (unsigned i = 0; i < COUNT_OF(shapes); i++) {
		pieces[i] = make_piece(&shapes[i], codes, sort);
		encode_on_cpu(&pieces[i]);
		with += tsr_entropy_has_contexts(pieces[i].coded, pieces[i].nbytes);
	}
	check_encode(pieces, COUNT_OF(shapes), what);
	check_decode(pieces, COUNT_OF(shapes), what);
	for (unsigned i = 0; i < COUNT_OF(shapes); i++)
		free_piece(&pieces[i]);
	return with;
}

/* Bits of a piece changed, most of them in front of its segments, or its size. */
static uint64_t check_damage(const struct shape *s, enum sort sort, unsigned times)
{
	struct piece p = make_piece(s, LIKE_A_PRODUCT, sort);
	unsigned char *ours = must_have(malloc(p.n)), *theirs = must_have(malloc(p.n));
	uint64_t seed = p.n, refused = 0;
	uint32_t nbytes;

	encode_on_cpu(&p);
	nbytes = p.nbytes;
	if (!tsr_entropy_has_contexts(p.coded, nbytes))
		check_failed("a piece of %u has no contexts", p.n);
	for (unsigned i = 0; i < times; i++) {
		const uint32_t among = i % 4 == 0 ? nbytes : i % 4 == 1 ? 16 : 1200;
		const uint32_t at = random_32(&seed) % among, bit = random_32(&seed) % 8;
		bool decodes;

		p.coded[at] ^= (unsigned char)(1u << bit);
		p.nbytes = i % 7 ? nbytes : nbytes - 4 * (random_32(&seed) % 9);
		decodes = cpu_decodes(&p, ours);
		refused += !decodes;
		if ((decode(&p, 1, &theirs) == UINT64_MAX) != decodes)
			check_failed("n %u, byte %u, bit %u: the CPU %s it", p.n, at, bit,
				     decodes ? "takes" : "refuses");
		else if (decodes && memcmp(ours, theirs, p.n) != 0)
			check_failed("n %u, byte %u, bit %u: other codes", p.n, at, bit);
		p.coded[at] ^= (unsigned char)(1u << bit);
	}
	if (!refused)
		check_failed("n %u: nothing was refused", p.n);
	free(ours);
	free(theirs);
	free_piece(&p);
	return times;
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
