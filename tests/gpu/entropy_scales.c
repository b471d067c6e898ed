/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of scales, by lines or not: a GPU's bytes against the CPU's, back again, and damaged ones refused. */
#include <stdlib.h>
#include <string.h>

#include "check_gpu.h"

/* Where a piece begins in its tensor, the scales of a row, and those of the piece. */
struct shape {
	uint64_t first, columns;
	uint32_t n;
};

/* Few columns and many, rows that are cut, and what has no lines. */
static const struct shape shapes[] = {
	{ 0, 32, 2048 },    { 5, 32, 2043 },	 { 64, 96, 8192 },    { 0, 256, 8192 },
	{ 77, 255, 9001 },  { 0, 257, 16384 },	 { 1000, 640, 8192 }, { 0, 4096, 131072 },
	{ 3, 8, 131072 },   { 0, 1, 1000 },	 { 0, 16, 131073 },   { 0, 64, 262144 },
	{ 0, 5000, 10000 }, { 12345, 96, 8191 }, { 0, 32, 3 },	      { 0, 0, 5000 },
};

enum content { LIKE_A_PRODUCT, NOISE, EQUAL, CONTENTS };

static uint32_t random_32(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 32);
}

/* --- A piece ------------------------------------------------------------------------------------- */

struct piece {
	struct tsr_entropy_grid grid;
	unsigned width;
	uint32_t n, nbytes;
	size_t room;
	unsigned char *scales, *coded; /* by the CPU */
};

static uint32_t scale_of(const struct piece *p, enum content content, uint32_t i, uint64_t *seed)
{
	const uint64_t at = p->grid.first + i, columns = p->grid.columns ? p->grid.columns : 1;
	const uint32_t r = random_32(seed);
	uint32_t level = 0x7000 + 16 * (uint32_t)(5 * (at / columns) % 640) +
			 16 * (uint32_t)(9 * (at % columns) % 320);

	if (content == NOISE)
		return r;
	if (content == EQUAL)
		level = 0x7f00;
	else
		level += 3 * (uint32_t)__builtin_popcount(r);
	return p->width == 2 ? level & 0xffff : (level & 0xffff) << 15 | r % 3;
}

static struct piece make_piece(const struct shape *s, unsigned width, enum content content)
{
	const struct tsr_entropy_kind kind = { .width = width };
	struct tsr_entropy *e = must_have(tsr_entropy_new(width));
	struct piece p = { .grid = { s->first, s->columns }, .width = width, .n = s->n };
	uint64_t seed = s->n + content;

	p.room = tsr_entropy_bound(kind, s->n);
	p.scales = must_have(malloc((size_t)width * s->n));
	p.coded = must_have(calloc(p.room, 1));
	for (uint32_t i = 0; i < s->n; i++) {
		const uint32_t scale = scale_of(&p, content, i, &seed);

		memcpy(p.scales + (size_t)width * i, &scale, width);
	}
	p.nbytes = (uint32_t)tsr_entropy_encode_scales(e, &p.grid, width, p.scales, s->n, p.coded);
	tsr_entropy_free(e);
	return p;
}

static void free_piece(struct piece *p)
{
	free(p->scales);
	free(p->coded);
}

static bool cpu_decodes(const struct piece *p, unsigned char *scales)
{
	struct tsr_entropy *e = must_have(tsr_entropy_new(p->width));
	const char *wrong = tsr_entropy_decode_scales(e, &p->grid, p->width, p->coded, p->nbytes,
						      scales, p->n);

	tsr_entropy_free(e);
	return !wrong;
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

static void fetch(void *host, const void *memory, uint64_t nbytes)
{
	struct tsr_err err;

	must(tsr_gpu_get(stream, host, memory, nbytes, &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
}

struct batch {
	unsigned npieces;
	struct tsr_gpu_scales host[COUNT_OF(shapes)], *device;
};

/* With scales, or with coded pieces. */
static struct batch put_batch(const struct piece *pieces, unsigned npieces, bool coded)
{
	struct batch b = { .npieces = npieces };

	for (unsigned i = 0; i < npieces; i++) {
		const struct piece *p = &pieces[i];
		const uint64_t nbytes = (uint64_t)p->width * p->n;

		b.host[i] = (struct tsr_gpu_scales){
			.grid = p->grid,
			.scales = on_gpu(coded ? NULL : p->scales, nbytes),
			.coded = on_gpu(coded ? p->coded : NULL, coded ? p->nbytes : p->room),
			.n = p->n,
			.nbytes = coded ? p->nbytes : 0,
		};
	}
	b.device = on_gpu(b.host, npieces * sizeof(*b.host));
	return b;
}

static void free_batch(struct batch *b)
{
	for (unsigned i = 0; i < b->npieces; i++) {
		tsr_gpu_free(gpu, b->host[i].scales);
		tsr_gpu_free(gpu, b->host[i].coded);
	}
	tsr_gpu_free(gpu, b->device);
}

static void check_encode(const struct piece *pieces, unsigned npieces)
{
	struct batch b = put_batch(pieces, npieces, false);
	struct tsr_err err;

	must(tsr_gpu_encode_scales(stream, pieces[0].width, b.device, npieces, &err), &err);
	fetch(b.host, b.device, npieces * sizeof(*b.host));
	for (unsigned i = 0; i < npieces; i++) {
		const struct piece *p = &pieces[i];
		unsigned char *theirs = must_have(malloc(p->nbytes));

		fetch(theirs, b.host[i].coded, p->nbytes);
		if (b.host[i].nbytes != p->nbytes)
			check_failed("width %u, %u of %u: %u bytes, the CPU's has %u", p->width, i,
				     p->n, b.host[i].nbytes, p->nbytes);
		else if (memcmp(theirs, p->coded, p->nbytes) != 0)
			check_failed("width %u, %u of %u: other bytes", p->width, i, p->n);
		free(theirs);
	}
	free_batch(&b);
}

/* The first piece that is damaged, UINT64_MAX if none is. */
static uint64_t decode(const struct piece *pieces, unsigned npieces, unsigned char *const scales[])
{
	struct batch b = put_batch(pieces, npieces, true);
	uint64_t damaged = UINT64_MAX;
	void *found = on_gpu(&damaged, sizeof(damaged));
	struct tsr_err err;

	must(tsr_gpu_decode_scales(stream, pieces[0].width, b.device, npieces, found, &err), &err);
	fetch(&damaged, found, sizeof(damaged));
	for (unsigned i = 0; i < npieces; i++)
		fetch(scales[i], b.host[i].scales, (uint64_t)pieces[i].width * pieces[i].n);
	tsr_gpu_free(gpu, found);
	free_batch(&b);
	return damaged;
}

static void check_decode(const struct piece *pieces, unsigned npieces)
{
	unsigned char *scales[COUNT_OF(shapes)];

	for (unsigned i = 0; i < npieces; i++)
		scales[i] = must_have(malloc((size_t)pieces[i].width * pieces[i].n));
	if (decode(pieces, npieces, scales) != UINT64_MAX)
		check_failed("width %u: taken for damaged", pieces[0].width);
	for (unsigned i = 0; i < npieces; i++) {
		if (memcmp(scales[i], pieces[i].scales, (size_t)pieces[i].width * pieces[i].n) != 0)
			check_failed("width %u, %u of %u: other scales", pieces[i].width, i,
				     pieces[i].n);
		free(scales[i]);
	}
}

/* --- All of it ----------------------------------------------------------------------------------- */

/* All shapes together, since pieces are of any tensors; returns how many had lines. */
static unsigned check_scales(unsigned width, enum content content)
{
	struct piece pieces[COUNT_OF(shapes)];
	unsigned with = 0;

	for (unsigned i = 0; i < COUNT_OF(shapes); i++) {
		pieces[i] = make_piece(&shapes[i], width, content);
		with += pieces[i].coded[0] == TSR_ENTROPY_LINES;
	}
	check_encode(pieces, COUNT_OF(shapes));
	check_decode(pieces, COUNT_OF(shapes));
	for (unsigned i = 0; i < COUNT_OF(shapes); i++)
		free_piece(&pieces[i]);
	return with;
}

/* Bits of a piece changed, most of them in front of its segments, its size, or its place. */
static uint64_t check_damage(const struct shape *s, unsigned width, unsigned times)
{
	struct piece p = make_piece(s, width, LIKE_A_PRODUCT);
	const size_t size = (size_t)width * p.n;
	unsigned char *ours = must_have(malloc(size)), *theirs = must_have(malloc(size));
	const uint32_t nbytes = p.nbytes;
	uint64_t seed = p.n, refused = 0;

	if (p.coded[0] != TSR_ENTROPY_LINES)
		check_failed("width %u: a piece of %u has no lines", width, p.n);
	for (unsigned i = 0; i < times; i++) {
		const uint32_t among = i % 4 == 0 ? nbytes : i % 4 == 1 ? 8 : 600;
		const uint32_t at = random_32(&seed) % (among < nbytes ? among : nbytes),
			       bit = random_32(&seed) % 8;
		bool decodes;

		p.coded[at] ^= (unsigned char)(1u << bit);
		p.nbytes = i % 7 ? nbytes : nbytes - 4 * (random_32(&seed) % 9);
		p.grid.columns = i % 11 ? s->columns : s->columns * 8;
		decodes = cpu_decodes(&p, ours);
		refused += !decodes;
		if ((decode(&p, 1, &theirs) == UINT64_MAX) != decodes)
			check_failed("width %u, byte %u, bit %u: the CPU %s it", width, at, bit,
				     decodes ? "takes" : "refuses");
		else if (decodes && memcmp(ours, theirs, size) != 0)
			check_failed("width %u, byte %u, bit %u: other scales", width, at, bit);
		p.coded[at] ^= (unsigned char)(1u << bit);
	}
	if (!refused)
		check_failed("width %u: nothing was refused", width);
	free(ours);
	free(theirs);
	free_piece(&p);
	return times;
}

void check_entropy_scales(enum cases cases)
{
	const unsigned times = cases == CASES_ALL ? 600 : 60;
	uint64_t count = 0;

	check_begin("scales by lines have the CPU's bytes, and come back");
	for (unsigned width = 2; width <= 4; width += 2) {
		for (int content = 0; content < CONTENTS; content++) {
			const unsigned with = check_scales(width, (enum content)content);

			if (content == LIKE_A_PRODUCT && with < 6)
				check_failed("width %u: only %u pieces have lines", width, with);
			count += COUNT_OF(shapes);
		}
	}
	check_end(count);
	check_begin("damaged scales are refused where the CPU refuses them");
	count = check_damage(&shapes[0], 2, times) + check_damage(&shapes[2], 4, times);
	check_end(count);
}
