/* SPDX-License-Identifier: Apache-2.0 */
/* The header of an .npy file. */
#ifndef TSR_FORMAT_NPY_H
#define TSR_FORMAT_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/text.h"
#include "tersor/dtype.h"
#include "tersor/status.h"

/* The longest header that is read, of magic, length and text. */
#define TSR_NPY_HEADER_MAX (64u << 10)

/* The largest dimension that is read, as in the other formats. */
#define TSR_NPY_DIM_MAX ((UINT64_C(1) << 48) - 1)

/* What the header of an .npy file says. */
struct tsr_npy_header {
	enum tsr_dtype dtype;
	bool swapped; /* big-endian; the two halves of a complex number each; never for single bytes */
	bool fortran_order;
	unsigned rank;
	uint64_t shape[TSR_RANK_MAX];
	uint64_t numel, nbytes; /* of the data, which starts at @data_offset */
	uint64_t data_offset;
};

/**
 * tsr_npy_parse() - Read the header of an .npy file
 * @bytes: the first @nbytes bytes of a file of @file_nbytes; TSR_NPY_HEADER_MAX are always enough
 * @as:    what an opaque type of 1 or 2 bytes (|V1, <V2) holds; TSR_DTYPE_COUNT: it is refused
 * @where: the start of every message
 * @ret:   out: filled; untouched on failure
 *
 * Versions 1.0, 2.0 and 3.0.  F8_E5M2 is also known by the name <f1 that ml_dtypes gives it.
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED for objects, structures, text and types without a name in
 * TSR_DTYPE_LIST; TSR_E_LIMIT; TSR_E_FORMAT also where header and data do not fill the file exactly.
 */
enum tsr_status tsr_npy_parse(const void *bytes, size_t nbytes, uint64_t file_nbytes,
			      enum tsr_dtype as, const char *where, struct tsr_npy_header *ret,
			      struct tsr_err *err);

/*
 * The header that numpy writes for a C-order array of this type, appended to @out: always a
 * multiple of 64 bytes.  BF16 and 8-bit floats become <V2 and <V1, as ml_dtypes writes them (but
 * F8_E5M2, whose <f1 numpy refuses to load, is <V1 too).  TSR_E_UNSUPPORTED for types of 4 or 6
 * bits, TSR_E_NOMEM.
 */
enum tsr_status tsr_npy_compose(enum tsr_dtype dtype, unsigned rank, const uint64_t *shape,
				const char *where, struct tsr_text *out, struct tsr_err *err);

#endif
