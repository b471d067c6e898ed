/* SPDX-License-Identifier: Apache-2.0 */
/* Coded planes of a GPU against those of the CPU: the same bytes, back again, and damaged ones refused. */
#include <stdlib.h>
#include <string.h>

#include "check_gpu.h"

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

/* A piece of at most @n elements. */
static struct piece make_piece(struct tsr_gpu_coding coding, uint64_t n, enum content content,
			       uint64_t seed)
{
	struct piece p = { .n = (uint32_t)(n < TSR_ENTROPY_PIECE ? n : TSR_ENTROPY_PIECE) };
	const size_t nbytes = p.n * coding.kind.width;

	p.plain = must_have(malloc(nbytes));
	for (size_t i = 0; i < nbytes; i++)
		p.plain[i] = byte_of(content, i, nbytes, &seed);
	pieces_encode_on_cpu(coding, &p);
	return p;
}

/* A stream that is stored as it is though it has one symbol only, but for the last of @n if it is @other. */
static void check_needless_raw(uint32_t n, unsigned char other)
{
	const struct tsr_gpu_coding coding = { { .width = 1 }, false };
	struct piece p = make_piece(coding, n, ALL_EQUAL, n);
	const uint32_t padded = (n + 3) / 4 * 4;
	unsigned char *ours = must_have(malloc(n)), *theirs = must_have(malloc(n));
	bool decodes;

	memset(p.coded, 0, 4 + padded);
	memset(p.coded + 4, 7, n);
	p.coded[4 + n - 1] = other;
	p.coded[1] = (unsigned char)padded;
	p.coded[2] = (unsigned char)(padded >> 8);
	p.coded[3] = (unsigned char)(padded >> 16);
	p.nbytes = 4 + padded;
	decodes = pieces_cpu_decodes(coding, &p, ours);
	if (decodes != (other != 7 && n > 1) ||
	    (pieces_decode(coding, &p, 1, &theirs) == UINT64_MAX) != decodes)
		check_failed("%u equal symbols stored as they are, the last one %u: %s", n, other,
			     decodes ? "refused" : "taken");
	free(ours);
	free(theirs);
	pieces_free(&p);
}

static uint64_t check_damage(struct tsr_gpu_coding coding, uint32_t n, unsigned times)
{
	struct piece p = make_piece(coding, n, SKEWED, n);
	const uint64_t cases = pieces_check_damage(coding, &p, times);

	pieces_free(&p);
	return cases;
}

/* --- All of it ----------------------------------------------------------------------------------- */

static const struct tsr_gpu_coding codings[] = { { { 1, false }, false }, { { 2, false }, false },
						 { { 2, true }, false },  { { 4, false }, false },
						 { { 4, true }, false },  { { 8, false }, false } };

/* More pieces than blocks that an emulated GPU runs at a time: some blocks have two. */
#define MANY (13 * (uint64_t)TSR_ENTROPY_PIECE + 5)
#define PIECES_MAX 14

/* The pieces of a plane of @n elements. */
static void check_plane(struct tsr_gpu_coding coding, uint64_t n, enum content content)
{
	struct piece pieces[PIECES_MAX] = { { .n = 0 } };
	unsigned npieces = 0;

	for (uint64_t first = 0; first < n; first += TSR_ENTROPY_PIECE)
		pieces[npieces++] = make_piece(coding, n - first, content, n + content + first);
	pieces_check(coding, pieces, npieces, "a plane");
	while (npieces)
		pieces_free(&pieces[--npieces]);
}

void check_entropy(enum cases cases)
{
	static const uint64_t lengths[] = { 0,	    1,	    3,	    4,	    31,	   33,	  127,
					    128,    129,    1000,   32767,  32768, 32769, 65541,
					    262143, 262144, 262145, 524288, 600001 };
	const size_t nlengths = cases == CASES_ALL ? 19 : cases == CASES_SHORT ? 14 : 12;
	uint64_t count = 0;

	check_begin("coded planes have the CPU's bytes, and come back");
	for (size_t k = 0; k < COUNT_OF(codings); k++) {
		for (size_t i = 0; i < nlengths; i++) {
			for (int content = 0; content < CONTENTS; content++) {
				check_plane(codings[k], lengths[i], (enum content)content);
				count++;
			}
		}
	}
	check_plane(codings[0], MANY, SKEWED);
	check_end(count + 1);
	check_begin("damaged coded planes are refused where the CPU refuses them");
	count = 0;
	for (size_t k = 0; k < COUNT_OF(codings); k++)
		count += check_damage(codings[k], cases == CASES_ALL ? 70001 : 3001,
				      cases == CASES_ALL ? 400 : 40);
	for (uint32_t n = 1; n < 300000; n = 3 * n + 2) {
		check_needless_raw(n, 7);
		check_needless_raw(n, 8);
		count += 2;
	}
	check_end(count);
}
