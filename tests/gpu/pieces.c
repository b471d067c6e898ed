/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of planes: a GPU's bytes against the CPU's, back again, and damaged ones refused. */
#include <stdlib.h>
#include <string.h>

#include "check_gpu.h"

/* --- On the CPU ---------------------------------------------------------------------------------- */

void pieces_encode_on_cpu(struct tsr_gpu_coding coding, struct piece *p)
{
	struct tsr_entropy *e = must_have(tsr_entropy_new(coding.kind.width));

	p->coded = must_have(calloc(tsr_entropy_bound(coding.kind, TSR_ENTROPY_PIECE), 1));
	p->nbytes = (uint32_t)(coding.contexts ? tsr_entropy_encode_codes(e, &p->variance, p->plain,
									  p->n, p->coded)
					       : tsr_entropy_encode(e, coding.kind, p->plain, p->n,
								    p->coded));
	tsr_entropy_free(e);
}

bool pieces_cpu_decodes(struct tsr_gpu_coding coding, const struct piece *p, void *plain)
{
	struct tsr_entropy *e = must_have(tsr_entropy_new(coding.kind.width));
	const char *wrong = coding.contexts ? tsr_entropy_decode_codes(e, &p->variance, p->coded,
								       p->nbytes, plain, p->n)
					    : tsr_entropy_decode(e, coding.kind, p->coded,
								 p->nbytes, plain, p->n);

	tsr_entropy_free(e);
	return !wrong;
}

void pieces_free(struct piece *p)
{
	free(p->scales);
	free(p->plain);
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
		must(tsr_gpu_copy(stream, memory, host, nbytes, &err), &err);
	return memory;
}

static void fetch(void *host, void *memory, uint64_t nbytes)
{
	struct tsr_err err;

	must(tsr_gpu_copy(stream, host, memory, nbytes, &err), &err);
	must(tsr_gpu_sync(stream, &err), &err);
}

/* Pieces and their scales, in device memory. */
struct batch {
	unsigned npieces;
	struct tsr_gpu_piece *host, *device;
};

/* With elements, or with coded pieces. */
static struct batch put_batch(struct tsr_gpu_coding coding, const struct piece *pieces,
			      unsigned npieces, bool coded)
{
	const uint64_t room = tsr_entropy_bound(coding.kind, TSR_ENTROPY_PIECE);
	struct batch b = { npieces, must_have(calloc(npieces + 1, sizeof(*b.host))), NULL };

	for (unsigned i = 0; i < npieces; i++) {
		const struct piece *p = &pieces[i];
		struct tsr_gpu_piece *c = &b.host[i];

		*c = (struct tsr_gpu_piece){ .variance = p->variance,
					     .n = p->n,
					     .nbytes = p->nbytes };
		c->plain = on_gpu(coded ? NULL : p->plain, p->n * coding.kind.width);
		c->coded = on_gpu(coded ? p->coded : NULL, coded ? p->nbytes : room);
		if (coding.contexts)
			c->variance.scales.scales = on_gpu(p->scales,
							   p->nscales * sizeof(*p->scales));
	}
	b.device = on_gpu(b.host, npieces * sizeof(*b.host));
	return b;
}

static void free_batch(struct batch *b)
{
	for (unsigned i = 0; i < b->npieces; i++) {
		struct tsr_gpu_piece *c = &b->host[i];

		tsr_gpu_free(gpu, c->plain);
		tsr_gpu_free(gpu, c->coded);
		tsr_gpu_free(gpu, (void *)c->variance.scales.scales);
	}
	tsr_gpu_free(gpu, b->device);
	free(b->host);
}

static void check_encode(struct tsr_gpu_coding coding, const struct piece *pieces, unsigned npieces,
			 const char *what)
{
	struct batch b = put_batch(coding, pieces, npieces, false);
	unsigned char *theirs = must_have(
		malloc(tsr_entropy_bound(coding.kind, TSR_ENTROPY_PIECE)));
	struct tsr_err err;

	must(tsr_gpu_encode_pieces(stream, coding, b.device, npieces, NULL, &err), &err);
	fetch(b.host, b.device, npieces * sizeof(*b.host));
	for (unsigned i = 0; i < npieces; i++) {
		const struct piece *p = &pieces[i];

		fetch(theirs, b.host[i].coded, p->nbytes);
		if (b.host[i].nbytes != p->nbytes)
			check_failed("%s, piece %u of %u: %u bytes, the CPU's has %u", what, i,
				     p->n, b.host[i].nbytes, p->nbytes);
		else if (memcmp(theirs, p->coded, p->nbytes) != 0)
			check_failed("%s, piece %u of %u: other bytes", what, i, p->n);
	}
	free_batch(&b);
	free(theirs);
}

uint64_t pieces_decode(struct tsr_gpu_coding coding, const struct piece *pieces, unsigned npieces,
		       unsigned char *const plain[])
{
	struct batch b = put_batch(coding, pieces, npieces, true);
	uint64_t damaged = UINT64_MAX;
	void *found = on_gpu(&damaged, sizeof(damaged));
	struct tsr_err err;

	must(tsr_gpu_decode_pieces(stream, coding, b.device, npieces, found, &err), &err);
	fetch(&damaged, found, sizeof(damaged));
	for (unsigned i = 0; i < npieces; i++)
		fetch(plain[i], b.host[i].plain, pieces[i].n * coding.kind.width);
	tsr_gpu_free(gpu, found);
	free_batch(&b);
	return damaged;
}

static void check_decode(struct tsr_gpu_coding coding, const struct piece *pieces, unsigned npieces,
			 const char *what)
{
	unsigned char **plain = must_have(calloc(npieces + 1, sizeof(*plain)));

	for (unsigned i = 0; i < npieces; i++)
		plain[i] = must_have(malloc(pieces[i].n * coding.kind.width));
	if (pieces_decode(coding, pieces, npieces, plain) != UINT64_MAX)
		check_failed("%s: taken for damaged", what);
	for (unsigned i = 0; i < npieces; i++) {
		if (memcmp(plain[i], pieces[i].plain, pieces[i].n * coding.kind.width) != 0)
			check_failed("%s, piece %u of %u: other elements", what, i, pieces[i].n);
		free(plain[i]);
	}
	free(plain);
}

void pieces_check(struct tsr_gpu_coding coding, const struct piece *pieces, unsigned npieces,
		  const char *what)
{
	check_encode(coding, pieces, npieces, what);
	check_decode(coding, pieces, npieces, what);
}

/* --- Damage -------------------------------------------------------------------------------------- */

uint64_t pieces_check_damage(struct tsr_gpu_coding coding, struct piece *p, unsigned times)
{
	const uint32_t nbytes = p->nbytes;
	unsigned char *ours = must_have(malloc(p->n * coding.kind.width)),
		      *theirs = must_have(malloc(p->n * coding.kind.width));
	uint64_t seed = p->n, refused = 0;

	for (unsigned i = 0; i < times; i++) {
		const uint32_t among = i % 2 == 0 ? nbytes : i % 4 == 1 ? 64 : 1200;
		const uint32_t at = random_32(&seed) % (among < nbytes ? among : nbytes),
			       bit = random_32(&seed) % 8;
		bool decodes;

		p->coded[at] ^= (unsigned char)(1u << bit);
		p->nbytes = i % 5 ? nbytes : nbytes - 4 * (random_32(&seed) % 9);
		decodes = pieces_cpu_decodes(coding, p, ours);
		refused += !decodes;
		if ((pieces_decode(coding, p, 1, &theirs) == UINT64_MAX) != decodes)
			check_failed("width %u, n %u, byte %u, bit %u: the CPU %s it",
				     coding.kind.width, p->n, at, bit,
				     decodes ? "takes" : "refuses");
		else if (decodes && memcmp(ours, theirs, p->n * coding.kind.width) != 0)
			check_failed("width %u, n %u, byte %u, bit %u: other elements",
				     coding.kind.width, p->n, at, bit);
		p->coded[at] ^= (unsigned char)(1u << bit);
	}
	p->nbytes = nbytes;
	if (!refused)
		check_failed("width %u, n %u: nothing was refused", coding.kind.width, p->n);
	free(ours);
	free(theirs);
	return times;
}

uint32_t random_32(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 32);
}
