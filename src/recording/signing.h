/* SPDX-License-Identifier: Apache-2.0 */
/* The signature of a tensor whose bytes arrive one after the other. */
#ifndef TSR_RECORDING_SIGNING_H
#define TSR_RECORDING_SIGNING_H

#include "base/isa.h"
#include "tersor/measure.h"
#include "tersor/signatures.h"

/* Sums that are added apart from each other. */
#define TSR_SIGN_LANES TSR_MEASURE_LANES

/* What is known of the values so far; begins as all zeros. */
struct tsr_signed_values {
	double squares[TSR_SIGN_LANES]; /* sums over every 8th value */
	uint32_t largest; /* bits of the largest magnitude */
	uint64_t nonfinite, zeros, n;
};

struct tsr_hasher;

struct tsr_signing {
	struct tsr_hasher *hasher;
	enum tsr_dtype dtype;
	struct tsr_signed_values values;
};

/* TSR_E_NOMEM; tsr_signing_free() takes one that is all zeros. */
enum tsr_status tsr_signing_init(struct tsr_signing *s, struct tsr_err *err);
void tsr_signing_free(struct tsr_signing *s);

/* Begin a tensor; its next @nbytes bytes, a multiple of TSR_SIGN_LANES elements but for the last. */
void tsr_signing_begin(struct tsr_signing *s, enum tsr_dtype dtype);
void tsr_signing_add(struct tsr_signing *s, const void *bytes, size_t nbytes);
void tsr_signing_end(const struct tsr_signing *s, struct tsr_signature *ret);

bool tsr_signature_is_absent(const struct tsr_signature *s);
bool tsr_signature_equal(const struct tsr_signature *a, const struct tsr_signature *b);

/* Add @n values, per SIMD level. */
typedef void tsr_sign_values_fn(struct tsr_signed_values *s, const float *x, size_t n);
TSR_ISA_DECLARE(tsr_sign_values_fn, sign_values)

#endif
