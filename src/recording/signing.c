/* SPDX-License-Identifier: Apache-2.0 */
/* The signature of a tensor: XXH3-128 of its bytes, and figures of its values. */
#include "recording/signing.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "codec/math.h"
#include "codec/narrow.h"
#include "io/hash.h"

/* Bytes that are hashed and counted while they are in the cache. */
#define BLOCK_NBYTES ((size_t)1 << 15)

enum tsr_status tsr_signing_init(struct tsr_signing *s, struct tsr_err *err)
{
	s->hasher = tsr_hasher_new();
	return s->hasher ? TSR_OK : tsr_fail_nomem(err, "signatures");
}

void tsr_signing_free(struct tsr_signing *s)
{
	tsr_hasher_free(s->hasher);
}

void tsr_signing_begin(struct tsr_signing *s, enum tsr_dtype dtype)
{
	tsr_hasher_reset(s->hasher);
	s->dtype = dtype;
	s->values = (struct tsr_signed_values){ .n = 0 };
}

static void add_values(struct tsr_signing *s, const void *bytes, size_t nbytes)
{
	static tsr_sign_values_fn *const add[] = TSR_ISA_VARIANTS(sign_values);
	const size_t n = nbytes * 8 / tsr_dtype_bits(s->dtype);
	float x[BLOCK_NBYTES / sizeof(uint16_t)];

	if (s->dtype != TSR_F32 && s->dtype != TSR_F16 && s->dtype != TSR_BF16)
		return;
	tsr_widen(s->dtype, bytes, n, x);
	add[tsr_isa_level()](&s->values, x, n);
	s->values.n += n;
}

void tsr_signing_add(struct tsr_signing *s, const void *bytes, size_t nbytes)
{
	const unsigned char *at = bytes;

	while (nbytes) {
		const size_t n = nbytes < BLOCK_NBYTES ? nbytes : BLOCK_NBYTES;

		tsr_hasher_add(s->hasher, at, n);
		add_values(s, at, n);
		at += n;
		nbytes -= n;
	}
}

static uint32_t saturated(uint64_t n)
{
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

void tsr_signing_end(const struct tsr_signing *s, struct tsr_signature *ret)
{
	const struct tsr_signed_values *v = &s->values;
	uint64_t low, high;
	double squares = 0;

	tsr_hasher_value128(s->hasher, &low, &high);
	for (unsigned i = 0; i < 8; i++) {
		ret->hash[i] = (unsigned char)(high >> (56 - 8 * i));
		ret->hash[8 + i] = (unsigned char)(low >> (56 - 8 * i));
	}
	for (unsigned k = 0; k < TSR_SIGN_LANES; k++)
		squares += v->squares[k];
	ret->max = tsr_f32_from_bits(v->largest);
	ret->rms = v->n > v->nonfinite ? (float)sqrt(squares / (double)(v->n - v->nonfinite)) : 0;
	ret->nonfinite = saturated(v->nonfinite);
	ret->zeros = saturated(v->zeros);
}

enum tsr_status tsr_sign(const void *data, size_t nbytes, enum tsr_dtype dtype,
			 struct tsr_signature *ret, struct tsr_err *err)
{
	struct tsr_signing s;

	TSR_TRY(tsr_signing_init(&s, err));
	tsr_signing_begin(&s, dtype);
	tsr_signing_add(&s, data, nbytes);
	tsr_signing_end(&s, ret);
	tsr_signing_free(&s);
	return TSR_OK;
}

bool tsr_signature_is_absent(const struct tsr_signature *s)
{
	return !tsr_get_le(s->hash, 8) && !tsr_get_le(s->hash + 8, 8);
}

bool tsr_signature_equal(const struct tsr_signature *a, const struct tsr_signature *b)
{
	return memcmp(a->hash, b->hash, sizeof(a->hash)) == 0;
}
