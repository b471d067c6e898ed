/* SPDX-License-Identifier: Apache-2.0 */
/* The signature of a tensor whose bytes arrive one after the other. */
#ifndef TSR_RECORDING_SIGNING_H
#define TSR_RECORDING_SIGNING_H

#include "base/isa.h"
#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"
#include "tersor/signatures.h"

/* What is known of the values of a piece so far; begins as all zeros. */
struct tsr_signed_values {
	double squares[TSR_SIGN_LANES]; /* sums over every 32nd value */
	uint32_t largest; /* bits of the largest magnitude */
	uint32_t nonfinite, zeros;
};

#define TSR_SIGN_HASH 16u

/* What is known of the pieces so far. */
struct tsr_signed_sums {
	unsigned char hash[TSR_SIGN_HASH];
	double squares;
	float max;
	uint64_t npieces, nbytes, nonfinite, zeros;
};

struct tsr_signing {
	enum tsr_dtype dtype;
	struct tsr_signed_sums sums;
	size_t at; /* bytes of the piece so far */
	unsigned char piece[TSR_SIGN_PIECE]; /* aligned as the size is */
};

/* Begin a tensor; its next @nbytes bytes; its end. */
void tsr_signing_begin(struct tsr_signing *s, enum tsr_dtype dtype);
void tsr_signing_add(struct tsr_signing *s, const void *bytes, size_t nbytes);
void tsr_signing_end(struct tsr_signing *s, struct tsr_signature *ret);

bool tsr_signature_is_absent(const struct tsr_signature *s);
bool tsr_signature_equal(const struct tsr_signature *a, const struct tsr_signature *b);

/* Add @n values, per SIMD level. */
typedef void tsr_sign_values_fn(struct tsr_signed_values *s, const float *x, size_t n);
TSR_ISA_DECLARE(tsr_sign_values_fn, sign_values)

/* --- Signatures of tensors of an open checkpoint ---------------------------------------------- */

/* The type of the elements that are signed: packed tensors are signed as they are decoded. */
enum tsr_dtype tsr_signed_dtype(const struct tsr_tensor *t);

/* Of @n tensors into @ret; a tensor that is NULL is absent. */
enum tsr_status tsr_sign_tensors(const struct tsr_checkpoint *c,
				 const struct tsr_tensor *const *tensors, size_t n,
				 struct tsr_signature *ret, const struct tsr_run *run,
				 struct tsr_err *err);

#endif
