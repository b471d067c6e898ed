/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of coding codes of variances on a GPU with tables chosen by contexts, in device time. */
#include <stdlib.h>

#include "base/fail.h"
#include "bench/bench_entropy.h"
#include "bench/bench_timing_gpu.h"
#include "gpu/gpu_work.h"

/* Where pieces begin in device memory. */
#define ALIGNMENT UINT64_C(16)

struct bench {
	const struct tsr_bench_gpu *on;
	const struct tsr_bench_state_plane *plane;
	unsigned copies, npieces; /* of the plane; all pieces, of all copies */
	uint64_t nbytes, room; /* of the codes of a copy; from one coded piece to the next */
	unsigned char *codes, *back, *coded; /* in device memory, as all that follow */
	uint16_t *scales;
	struct tsr_gpu_codes *encode, *decode;
	uint64_t *damaged;
};

static enum tsr_status allocate(struct bench *b, uint64_t nbytes, void *ret, struct tsr_err *err)
{
	return tsr_gpu_alloc(b->on->gpu, nbytes + ALIGNMENT, "benchmark codes", ret, err);
}

static enum tsr_status prepare(struct bench *b, uint64_t elements, struct tsr_err *err)
{
	const struct tsr_bench_state_plane *p = b->plane;

	for (uint64_t i = 0; i < p->npieces; i++)
		b->nbytes += (p->pieces[i].n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	b->copies = elements > p->n ? (unsigned)(elements / p->n) : 1;
	b->npieces = b->copies * (unsigned)p->npieces;
	b->room = tsr_entropy_bound((struct tsr_entropy_kind){ .width = 1 }, TSR_ENTROPY_PIECE);
	TSR_TRY(allocate(b, b->copies * b->nbytes, &b->codes, err));
	TSR_TRY(allocate(b, b->copies * b->nbytes, &b->back, err));
	TSR_TRY(allocate(b, b->npieces * b->room, &b->coded, err));
	TSR_TRY(allocate(b, b->npieces * sizeof(*b->encode), &b->encode, err));
	TSR_TRY(allocate(b, b->npieces * sizeof(*b->decode), &b->decode, err));
	TSR_TRY(allocate(b, b->copies * p->nscales * sizeof(*p->scales), &b->scales, err));
	return allocate(b, sizeof(*b->damaged), &b->damaged, err);
}

static void clean_up(struct bench *b)
{
	void *const memory[] = { b->codes,  b->back,   b->coded,  b->scales,
				 b->encode, b->decode, b->damaged };

	for (unsigned i = 0; i < sizeof(memory) / sizeof(*memory); i++)
		tsr_gpu_free(b->on->gpu, memory[i]);
}

/* --- What is coded ------------------------------------------------------------------------------- */

/* One copy of what has @nbytes, and all the others. */
static enum tsr_status put_copies(struct bench *b, void *to, const void *from, uint64_t nbytes,
				  struct tsr_err *err)
{
	for (unsigned i = 0; i < b->copies; i++)
		TSR_TRY(tsr_gpu_put(b->on->stream, (unsigned char *)to + i * nbytes, from, nbytes,
				    err));
	return TSR_OK;
}

/* The piece as it is @copy times behind the first; @at: where its codes are in one of them. */
static struct tsr_gpu_codes describe(const struct bench *b, const struct tsr_bench_piece *piece,
				     unsigned copy, uint64_t at)
{
	const struct tsr_bench_state_plane *p = b->plane;
	struct tsr_gpu_codes c = { .variance = piece->variance, .n = (uint32_t)piece->n };
	struct tsr_entropy_scales *scales = &c.variance.scales;

	c.codes = b->codes + copy * b->nbytes + at;
	if (piece->codes)
		scales->scales = b->scales + copy * p->nscales + (scales->scales - p->scales);
	return c;
}

/* The codes of one copy, and the descriptions of all pieces. */
static void lay_out(const struct bench *b, unsigned char *codes, struct tsr_gpu_codes *all)
{
	const struct tsr_bench_state_plane *p = b->plane;
	uint64_t at = 0;

	for (uint64_t i = 0; i < p->npieces; i++) {
		const struct tsr_bench_piece *piece = &p->pieces[i];

		for (uint64_t k = 0; k < piece->n; k++)
			codes[at + k] = p->plain[piece->first + k];
		for (unsigned copy = 0; copy < b->copies; copy++) {
			struct tsr_gpu_codes *c = &all[copy * p->npieces + i];

			*c = describe(b, piece, copy, at);
			c->coded = b->coded + (copy * p->npieces + i) * b->room;
		}
		at += (piece->n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	}
}

static enum tsr_status put_pieces(struct bench *b, unsigned char *codes, struct tsr_gpu_codes *all,
				  struct tsr_err *err)
{
	const struct tsr_bench_state_plane *p = b->plane;

	lay_out(b, codes, all);
	TSR_TRY(put_copies(b, b->codes, codes, b->nbytes, err));
	TSR_TRY(put_copies(b, b->scales, p->scales, p->nscales * sizeof(*p->scales), err));
	TSR_TRY(tsr_gpu_put(b->on->stream, b->encode, all, b->npieces * sizeof(*all), err));
	return tsr_gpu_sync(b->on->stream, err);
}

/* --- Measuring ----------------------------------------------------------------------------------- */

static enum tsr_status append_encode(void *ctx, struct tsr_err *err)
{
	struct bench *b = ctx;

	return tsr_gpu_encode_codes(b->on->stream, b->encode, b->npieces, err);
}

static enum tsr_status append_decode(void *ctx, struct tsr_err *err)
{
	struct bench *b = ctx;

	return tsr_gpu_decode_codes(b->on->stream, b->decode, b->npieces, b->damaged, err);
}

/* What was coded is decoded to other memory. */
static enum tsr_status turn(struct bench *b, struct tsr_gpu_codes *all, uint64_t *nbytes_ret,
			    struct tsr_err *err)
{
	const uint64_t none = UINT64_MAX;

	TSR_TRY(tsr_gpu_get(b->on->stream, all, b->encode, b->npieces * sizeof(*all), err));
	TSR_TRY(tsr_gpu_sync(b->on->stream, err));
	*nbytes_ret = 0;
	for (unsigned i = 0; i < b->npieces; i++) {
		*nbytes_ret += all[i].nbytes;
		all[i].codes = b->back + ((unsigned char *)all[i].codes - b->codes);
	}
	TSR_TRY(tsr_gpu_put(b->on->stream, b->decode, all, b->npieces * sizeof(*all), err));
	TSR_TRY(tsr_gpu_put(b->on->stream, b->damaged, &none, sizeof(none), err));
	return tsr_gpu_sync(b->on->stream, err);
}

/* Pieces of the first copy; @all: as decoding is told. */
static enum tsr_status compare_pieces(const struct bench *b, const struct tsr_gpu_codes *all,
				      uint64_t *compared_ret, struct tsr_err *err)
{
	const struct tsr_bench_state_plane *p = b->plane;
	const uint64_t n = p->npieces < TSR_BENCH_COMPARED ? p->npieces : TSR_BENCH_COMPARED;
	const struct tsr_entropy_kind kind = { .width = 1 };

	for (uint64_t i = 0; i < n; i++) {
		const struct tsr_bench_piece *from = &p->pieces[i];
		const unsigned char *back = all[i].codes;
		const struct tsr_bench_coded piece = { .plain = b->codes + (back - b->back),
						       .coded = all[i].coded,
						       .back = back,
						       .n = from->n,
						       .nbytes = all[i].nbytes };

		TSR_TRY(tsr_bench_compare_coded(b->on, kind, from->codes ? &from->variance : NULL,
						&piece, i, err));
	}
	*compared_ret = n;
	return TSR_OK;
}

static enum tsr_status measure(struct bench *b, struct tsr_gpu_codes *all,
			       struct tsr_bench_plane *ret, struct tsr_err *err)
{
	const double elements = (double)b->copies * (double)b->plane->n;
	double encode, decode;
	uint64_t nbytes, damaged;

	TSR_TRY(tsr_bench_time_gpu(b->on, append_encode, b, &encode, err));
	TSR_TRY(turn(b, all, &nbytes, err));
	TSR_TRY(tsr_bench_time_gpu(b->on, append_decode, b, &decode, err));
	TSR_TRY(tsr_gpu_get(b->on->stream, &damaged, b->damaged, sizeof(damaged), err));
	TSR_TRY(tsr_gpu_sync(b->on->stream, err));
	if (damaged != UINT64_MAX)
		return tsr_fail(err, TSR_E_FORMAT, "benchmark: a coded piece was not decoded");
	TSR_TRY(compare_pieces(b, all, &ret->compared, err));
	ret->elements = b->copies * b->plane->n;
	ret->bytes_per_element = 1;
	ret->coded_bytes_per_element = (double)nbytes / elements;
	ret->encode_gbps = 1e-9 * elements / encode;
	ret->decode_gbps = 1e-9 * elements / decode;
	return TSR_OK;
}

enum tsr_status tsr_bench_codes_gpu(const struct tsr_bench_gpu *on,
				    const struct tsr_bench_state_plane *plane, uint64_t elements,
				    struct tsr_bench_plane *ret, struct tsr_err *err)
{
	struct bench b = { .on = on, .plane = plane };
	enum tsr_status status = prepare(&b, elements, err);
	unsigned char *codes = malloc(b.nbytes);
	struct tsr_gpu_codes *all = calloc(b.npieces, sizeof(*all));

	if (status == TSR_OK && !(codes && all))
		status = tsr_fail_nomem(err, "benchmark codes");
	if (status == TSR_OK)
		status = put_pieces(&b, codes, all, err);
	if (status == TSR_OK)
		status = measure(&b, all, ret, err);
	free(codes);
	free(all);
	clean_up(&b);
	return status;
}
