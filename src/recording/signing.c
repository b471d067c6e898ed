/* SPDX-License-Identifier: Apache-2.0 */
/* The signature of a tensor: XXH3-128 of its bytes, and figures of its values. */
#include "recording/signing.h"

#include <math.h>
#include <string.h>

#include "base/little_endian.h"
#include "base/pipeline.h"
#include "codec/math.h"
#include "codec/narrow.h"
#include "io/hash.h"

/* What is hashed of a piece has a multiple of 64 bytes, at least 256: zeros follow its own. */
#define PADDED_MULTIPLE 64u
#define PADDED_MIN 256u

void tsr_signing_begin(struct tsr_signing *s, enum tsr_dtype dtype)
{
	s->dtype = dtype;
	s->at = 0;
	s->sums = (struct tsr_signed_sums){ .npieces = 0 };
}

/* XXH3-128 in big-endian order. */
static void hash_of(const void *bytes, size_t nbytes, unsigned char hash[TSR_SIGN_HASH])
{
	uint64_t low, high;

	tsr_hash128(bytes, nbytes, &low, &high);
	for (unsigned i = 0; i < 8; i++) {
		hash[i] = (unsigned char)(high >> (56 - 8 * i));
		hash[8 + i] = (unsigned char)(low >> (56 - 8 * i));
	}
}

/* The lanes are added by halves, as threads of a GPU can. */
static double add_lanes(double *lanes)
{
	for (unsigned half = TSR_SIGN_LANES / 2; half; half /= 2) {
		for (unsigned k = 0; k < half; k++)
			lanes[k] += lanes[k + half];
	}
	return lanes[0];
}

static bool has_figures(enum tsr_dtype dtype)
{
	return dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16;
}

/* @bytes has room for the zeros behind @n bytes, unless that is a whole piece. */
static void sign_piece(enum tsr_dtype dtype, const unsigned char *bytes, size_t n,
		       struct tsr_signed_piece *ret)
{
	static tsr_sign_values_fn *const add[] = TSR_ISA_VARIANTS(sign_values);
	const size_t multiple = (n + PADDED_MULTIPLE - 1) / PADDED_MULTIPLE * PADDED_MULTIPLE;
	struct tsr_signed_values v = { .zeros = 0 };
	float x[TSR_SIGN_PIECE / sizeof(uint16_t)];

	hash_of(bytes, multiple < PADDED_MIN ? PADDED_MIN : multiple, ret->hash);
	if (has_figures(dtype)) {
		const size_t nvalues = n * 8 / tsr_dtype_bits(dtype);

		tsr_widen(dtype, bytes, nvalues, x);
		add[tsr_isa_level()](&v, x, nvalues);
	}
	ret->squares = add_lanes(v.squares);
	ret->max = tsr_f32_from_bits(v.largest);
	ret->nonfinite = (uint16_t)v.nonfinite;
	ret->zeros = (uint16_t)v.zeros;
}

/* A piece of @n bytes joins those before it. */
static void add_piece(struct tsr_signed_sums *s, const struct tsr_signed_piece *p, uint64_t n)
{
	unsigned char both[2 * TSR_SIGN_HASH];

	memcpy(both, s->hash, TSR_SIGN_HASH);
	memcpy(both + TSR_SIGN_HASH, p->hash, TSR_SIGN_HASH);
	if (s->npieces++)
		hash_of(both, sizeof(both), s->hash);
	else
		memcpy(s->hash, p->hash, TSR_SIGN_HASH);
	s->nbytes += n;
	s->squares += p->squares;
	s->max = p->max > s->max ? p->max : s->max;
	s->nonfinite += p->nonfinite;
	s->zeros += p->zeros;
}

static void add_bytes(struct tsr_signing *s, const unsigned char *bytes, size_t n)
{
	struct tsr_signed_piece p;

	sign_piece(s->dtype, bytes, n, &p);
	add_piece(&s->sums, &p, n);
	s->at = 0;
}

void tsr_signing_add(struct tsr_signing *s, const void *bytes, size_t nbytes)
{
	const unsigned char *at = bytes;

	while (nbytes) {
		const size_t room = TSR_SIGN_PIECE - s->at, n = nbytes < room ? nbytes : room;

		if (n == TSR_SIGN_PIECE) {
			add_bytes(s, at, n);
		} else {
			memcpy(s->piece + s->at, at, n);
			s->at += n;
			if (s->at == TSR_SIGN_PIECE)
				add_bytes(s, s->piece, s->at);
		}
		at += n;
		nbytes -= n;
	}
}

static uint32_t saturated(uint64_t n)
{
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static void put(const struct tsr_signed_sums *s, enum tsr_dtype dtype, struct tsr_signature *ret)
{
	const uint64_t n = has_figures(dtype) ? s->nbytes * 8 / tsr_dtype_bits(dtype) : 0;

	memcpy(ret->hash, s->hash, sizeof(ret->hash));
	ret->max = s->max;
	ret->rms = n > s->nonfinite ? (float)sqrt(s->squares / (double)(n - s->nonfinite)) : 0;
	ret->nonfinite = saturated(s->nonfinite);
	ret->zeros = saturated(s->zeros);
}

void tsr_signing_end(struct tsr_signing *s, struct tsr_signature *ret)
{
	if (s->at || !s->sums.npieces) {
		const size_t padding = TSR_SIGN_PIECE - s->at;

		memset(s->piece + s->at, 0, padding < PADDED_MIN ? padding : PADDED_MIN);
		add_bytes(s, s->piece, s->at);
	}
	put(&s->sums, s->dtype, ret);
}

/* --- Tensors in memory ------------------------------------------------------------------------- */

struct signing_all {
	const struct tsr_to_sign *tensors;
	struct tsr_signature *ret;
};

static enum tsr_status sign(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct signing_all *k = ctx;
	const struct tsr_to_sign *t = &k->tensors[job];

	(void)err;
	if (t->data) {
		tsr_signing_begin(scratch, (enum tsr_dtype)t->dtype);
		tsr_signing_add(scratch, t->data, (size_t)t->nbytes);
		tsr_signing_end(scratch, &k->ret[t->index]);
	}
	return TSR_OK;
}

enum tsr_status tsr_sign(const struct tsr_to_sign *tensors, size_t n, struct tsr_signature *ret,
			 const struct tsr_run *run, struct tsr_err *err)
{
	struct signing_all k = { tensors, ret };
	const struct tsr_run threads = { .threads = run ? run->threads : 1 };
	const struct tsr_pipeline pipeline = {
		.njobs = n, .scratch_nbytes = sizeof(struct tsr_signing), .work = sign, .ctx = &k
	};

	return tsr_pipeline_run(&pipeline, &threads, err);
}

void tsr_sign_pieces(const struct tsr_to_sign *tensors, size_t n,
		     const struct tsr_signed_piece *pieces, struct tsr_signature *ret)
{
	for (const struct tsr_to_sign *t = tensors; t < tensors + n; t++) {
		const struct tsr_signed_piece *p = &pieces[t->first_piece];
		struct tsr_signed_sums sums = { .npieces = 0 };

		for (uint64_t at = 0; t->data && at < t->nbytes; at += TSR_SIGN_PIECE, p++)
			add_piece(&sums, p,
				  t->nbytes - at < TSR_SIGN_PIECE ? t->nbytes - at
								  : TSR_SIGN_PIECE);
		if (t->data && t->nbytes)
			put(&sums, (enum tsr_dtype)t->dtype, &ret[t->index]);
	}
}

bool tsr_signature_is_absent(const struct tsr_signature *s)
{
	return !tsr_get_le(s->hash, 8) && !tsr_get_le(s->hash + 8, 8);
}

bool tsr_signature_equal(const struct tsr_signature *a, const struct tsr_signature *b)
{
	return memcmp(a->hash, b->hash, sizeof(a->hash)) == 0;
}
