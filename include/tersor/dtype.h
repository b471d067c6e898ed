/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of tensors, and the limits on names and shapes. */
#ifndef TERSOR_DTYPE_H
#define TERSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"

/*
 * Element types, in the order of the safetensors reference: a writer puts tensors of a later type
 * first.  X(identifier, name in a file, bits)
 */
#define TSR_DTYPE_LIST(X) \
	X(BOOL, "BOOL", 8) \
	X(F4, "F4", 4) \
	X(F6_E2M3, "F6_E2M3", 6) \
	X(F6_E3M2, "F6_E3M2", 6) \
	X(U8, "U8", 8) \
	X(I8, "I8", 8) \
	X(F8_E5M2, "F8_E5M2", 8) \
	X(F8_E4M3, "F8_E4M3", 8) \
	X(F8_E8M0, "F8_E8M0", 8) \
	X(F8_E4M3FNUZ, "F8_E4M3FNUZ", 8) \
	X(F8_E5M2FNUZ, "F8_E5M2FNUZ", 8) \
	X(I16, "I16", 16) \
	X(U16, "U16", 16) \
	X(F16, "F16", 16) \
	X(BF16, "BF16", 16) \
	X(I32, "I32", 32) \
	X(U32, "U32", 32) \
	X(F32, "F32", 32) \
	X(C64, "C64", 64) \
	X(F64, "F64", 64) \
	X(I64, "I64", 64) \
	X(U64, "U64", 64)

enum tsr_dtype {
#define X(id, name, bits) TSR_##id,
	TSR_DTYPE_LIST(X)
#undef X
		TSR_DTYPE_COUNT
};

/* Limits on what a file may ask for; see docs/internals/format.md. */
#define TSR_RANK_MAX 64u
#define TSR_NAME_MAX 65535u

/* An entry of the metadata. */
struct tsr_meta {
	const char *key;
	const char *value;
};

/* "F32", ...; static storage. */
TSR_API const char *tsr_dtype_name(enum tsr_dtype dtype);

/* Bits per element: 4, 6, 8, 16, 32 or 64. */
TSR_API unsigned tsr_dtype_bits(enum tsr_dtype dtype);

/* The type with this name (case matters), or TSR_DTYPE_COUNT. */
TSR_API enum tsr_dtype tsr_dtype_find(const char *name);

#endif
