/* SPDX-License-Identifier: Apache-2.0 */
/* Coded planes of a GPU against those of the CPU: the same bytes, back again, and damaged ones refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_gpu.h"
#include "entropy/entropy.h"

/* --- Elements ------------------------------------------------------------------------------------ */

static uint32_t random_32(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 32);
}

enum content { ALL_EQUAL, ONE_OTHER, TWO, SKEWED, UNIFORM, RAMP, CONTENTS };

static unsigned char byte_of(enum content content, size_t i, size_t n, uint64_t *seed)
{
	const uint32_t r = random_32(seed);

	switch (content) {
	case ALL_EQUAL:
		return 7;
	case ONE_OTHER:
		return i == n / 2 ? 9 : 250;
	case TWO:
		return r % 3 ? 1 : 2;
	case SKEWED:
		return (unsigned char)(8 * (unsigned)__builtin_popcount(r >> 1) + r % 3);
	case UNIFORM:
		return (unsigned char)(r >> 8);
	default:
		return (unsigned char)(i >> 8);
	}
}

/* --- One plane ----------------------------------------------------------------------------------- */

struct plane {
	struct tsr_entropy_kind kind;
	uint64_t n, npieces, room; /* bytes from one coded piece to the next */
	unsigned char *plain, *coded; /* by the CPU; its pieces are `room` apart, too */
	uint32_t *nbytes;
};

static struct plane make_plane(struct tsr_entropy_kind kind, uint64_t n, enum content content)
{
	struct plane p = { .kind = kind, .n = n, .npieces = tsr_entropy_pieces(n) };
	struct tsr_entropy *e = must_have(tsr_entropy_new(kind.width));
	uint64_t seed = n + content;

	p.room = tsr_entropy_bound(kind, TSR_ENTROPY_PIECE);
	p.plain = must_have(malloc(n * kind.width + 1));
	p.coded = must_have(calloc(p.npieces + 1, p.room));
	p.nbytes = must_have(calloc(p.npieces + 1, sizeof(*p.nbytes)));
	for (uint64_t i = 0; i < n * kind.width; i++)
		p.plain[i] = byte_of(content, i, n * kind.width, &seed);
	for (uint64_t i = 0; i < p.npieces; i++) {
		const uint64_t first = i * TSR_ENTROPY_PIECE, left = n - first;

		p.nbytes[i] = (uint32_t)tsr_entropy_encode(
			e, kind, p.plain + first * kind.width,
			left < TSR_ENTROPY_PIECE ? left : TSR_ENTROPY_PIECE, p.coded + i * p.room);
	}
	tsr_entropy_free(e);
	return p;
}

static void free_plane(struct plane *p)
{
	free(p->plain);
	free(p->coded);
	free(p->nbytes);
}

static void *on_gpu(const void *host, uint64_t nbytes)
{
	struct tsr_err err;
	void *memory;

	must(tsr_gpu_alloc(gpu, nbytes + 16, "a test", &memory, &err), &err);
	if (host)
		must(tsr_gpu_put(stream, memory, host, nbytes, &err), &err);
	else
		must(tsr_gpu_zero(stream, memory, nbytes + 16, &err), &err);
	return memory;
}

static void fetch(void *host, void *memory, uint64_t nbytes)
{
	struct tsr_err err;

	must(tsr_gpu_get(stream, host, memory, nbytes, &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
	tsr_gpu_free(gpu, memory);
}

static void check_encode(const struct plane *p)
{
	void *plain = on_gpu(p->plain, p->n * p->kind.width),
	     *coded = on_gpu(NULL, p->npieces * p->room);
	uint32_t *nbytes = on_gpu(NULL, p->npieces * sizeof(*nbytes));
	unsigned char *theirs = must_have(malloc(p->npieces * p->room + 1));
	uint32_t *sizes = must_have(calloc(p->npieces + 1, sizeof(*sizes)));
	struct tsr_err err;

	must(tsr_gpu_entropy_encode(stream, p->kind, plain, p->n, coded, nbytes, &err), &err);
	fetch(theirs, coded, p->npieces * p->room);
	fetch(sizes, nbytes, p->npieces * sizeof(*sizes));
	tsr_gpu_free(gpu, plain);
	for (uint64_t i = 0; i < p->npieces; i++) {
		if (sizes[i] != p->nbytes[i])
			check_failed("width %u, n %llu, piece %llu: %u bytes, the CPU's has %u",
				     p->kind.width, (unsigned long long)p->n, (unsigned long long)i,
				     sizes[i], p->nbytes[i]);
		else if (memcmp(theirs + i * p->room, p->coded + i * p->room, sizes[i]) != 0)
			check_failed("width %u, n %llu, piece %llu: other bytes", p->kind.width,
				     (unsigned long long)p->n, (unsigned long long)i);
	}
	free(theirs);
	free(sizes);
}

/* Decode the pieces as they are now; returns the first that is damaged, UINT64_MAX if none is. */
static uint64_t decode(const struct plane *p, unsigned char *plain)
{
	uint64_t *begin = must_have(calloc(p->npieces + 1, sizeof(*begin))), damaged = UINT64_MAX;
	unsigned char *packed = must_have(malloc(p->npieces * p->room + 1));
	void *coded, *begins, *found, *to = on_gpu(NULL, p->n * p->kind.width);
	struct tsr_err err;

	for (uint64_t i = 0; i < p->npieces; i++) {
		memcpy(packed + begin[i], p->coded + i * p->room, p->nbytes[i]);
		begin[i + 1] = begin[i] + p->nbytes[i];
	}
	coded = on_gpu(packed, begin[p->npieces]);
	begins = on_gpu(begin, (p->npieces + 1) * sizeof(*begin));
	found = on_gpu(&damaged, sizeof(damaged));
	must(tsr_gpu_entropy_decode(stream, p->kind, coded, begins, p->n, to, found, &err), &err);
	fetch(plain, to, p->n * p->kind.width);
	fetch(&damaged, found, sizeof(damaged));
	tsr_gpu_free(gpu, coded);
	tsr_gpu_free(gpu, begins);
	free(begin);
	free(packed);
	return damaged;
}

static void check_decode(const struct plane *p)
{
	unsigned char *plain = must_have(malloc(p->n * p->kind.width + 1));

	if (decode(p, plain) != UINT64_MAX)
		check_failed("width %u, n %llu: taken for damaged", p->kind.width,
			     (unsigned long long)p->n);
	else if (memcmp(plain, p->plain, p->n * p->kind.width) != 0)
		check_failed("width %u, n %llu: other elements", p->kind.width,
			     (unsigned long long)p->n);
	free(plain);
}

/* --- Damage -------------------------------------------------------------------------------------- */

/* Whether the CPU decodes a piece, and to what. */
static bool cpu_decodes(const struct plane *p, unsigned char *plain)
{
	struct tsr_entropy *e = must_have(tsr_entropy_new(p->kind.width));
	const char *wrong = tsr_entropy_decode(e, p->kind, p->coded, p->nbytes[0], plain, p->n);

	tsr_entropy_free(e);
	return !wrong;
}

/* A stream that is stored as it is though it has one symbol only, but for the last of @n if it is @other. */
static void check_needless_raw(uint64_t n, unsigned char other)
{
	struct plane p = make_plane((struct tsr_entropy_kind){ .width = 1 }, n, ALL_EQUAL);
	const uint32_t padded = (uint32_t)((n + 3) / 4 * 4);
	unsigned char *ours = must_have(malloc(n)), *theirs = must_have(malloc(n));
	bool decodes;

	memset(p.coded, 0, 4 + padded);
	memset(p.coded + 4, 7, n);
	p.coded[4 + n - 1] = other;
	p.coded[1] = (unsigned char)padded;
	p.coded[2] = (unsigned char)(padded >> 8);
	p.coded[3] = (unsigned char)(padded >> 16);
	p.nbytes[0] = 4 + padded;
	decodes = cpu_decodes(&p, ours);
	if (decodes != (other != 7 && n > 1) || (decode(&p, theirs) == UINT64_MAX) != decodes)
		check_failed("%llu equal symbols stored as they are, the last one %u: %s",
			     (unsigned long long)n, other, decodes ? "refused" : "taken");
	free(ours);
	free(theirs);
	free_plane(&p);
}

/* Planes of one piece with a bit changed, or with another size: refused by both or by none. */
static uint64_t check_damage(struct tsr_entropy_kind kind, uint64_t n, unsigned times)
{
	struct plane p = make_plane(kind, n, SKEWED);
	unsigned char *ours = must_have(malloc(n * kind.width)),
		      *theirs = must_have(malloc(n * kind.width));
	const uint32_t nbytes = p.nbytes[0];
	uint64_t seed = n, refused = 0;

	for (unsigned i = 0; i < times; i++) {
		const uint32_t at = random_32(&seed) % (i % 2 ? nbytes : 64),
			       bit = random_32(&seed) % 8;
		bool decodes;

		p.coded[at] ^= (unsigned char)(1u << bit);
		p.nbytes[0] = i % 5 ? nbytes : nbytes - 4 * (random_32(&seed) % 9);
		decodes = cpu_decodes(&p, ours);
		refused += !decodes;
		if ((decode(&p, theirs) == UINT64_MAX) != decodes)
			check_failed("width %u, byte %u, bit %u: the CPU %s it", kind.width, at,
				     bit, decodes ? "takes" : "refuses");
		else if (decodes && memcmp(ours, theirs, n * kind.width) != 0)
			check_failed("width %u, byte %u, bit %u: other elements", kind.width, at,
				     bit);
		p.coded[at] ^= (unsigned char)(1u << bit);
	}
	if (!refused)
		check_failed("width %u: nothing was refused", kind.width);
	free(ours);
	free(theirs);
	free_plane(&p);
	return times;
}

/* --- All of it ----------------------------------------------------------------------------------- */

static const struct tsr_entropy_kind kinds[] = { { 1, false }, { 2, false }, { 2, true },
						 { 4, false }, { 4, true },  { 8, false } };

/* More pieces than blocks that an emulated GPU runs at a time: some blocks have two. */
#define MANY (13 * (uint64_t)TSR_ENTROPY_PIECE + 5)

static void check_plane(struct tsr_entropy_kind kind, uint64_t n, enum content content)
{
	struct plane p = make_plane(kind, n, content);

	check_encode(&p);
	check_decode(&p);
	free_plane(&p);
}

void check_entropy(enum cases cases)
{
	static const uint64_t lengths[] = { 0,	    1,	    3,	    4,	    31,	   33,	  127,
					    128,    129,    1000,   32767,  32768, 32769, 65541,
					    262143, 262144, 262145, 524288, 600001 };
	const size_t nlengths = cases == CASES_ALL ? 19 : cases == CASES_SHORT ? 14 : 12;
	uint64_t count = 0;

	check_begin("coded planes have the CPU's bytes, and come back");
	for (size_t k = 0; k < COUNT_OF(kinds); k++) {
		for (size_t i = 0; i < nlengths; i++) {
			for (int content = 0; content < CONTENTS; content++) {
				check_plane(kinds[k], lengths[i], (enum content)content);
				count++;
			}
		}
	}
	check_plane(kinds[0], MANY, SKEWED);
	check_end(count + 1);
	check_begin("damaged coded planes are refused where the CPU refuses them");
	count = 0;
	for (size_t k = 0; k < COUNT_OF(kinds); k++)
		count += check_damage(kinds[k], cases == CASES_ALL ? 70001 : 3001,
				      cases == CASES_ALL ? 400 : 40);
	for (uint64_t n = 1; n < 300000; n = 3 * n + 2) {
		check_needless_raw(n, 7);
		check_needless_raw(n, 8);
		count += 2;
	}
	check_end(count);
}
