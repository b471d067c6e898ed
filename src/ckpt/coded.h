/* SPDX-License-Identifier: Apache-2.0 */
/* Coded planes: arrays that hold the pieces of a plane entropy coded (docs/format.md, section 4.8). */
#ifndef TSR_CKPT_CODED_H
#define TSR_CKPT_CODED_H

#include "ckpt/checkpoint_model.h"
#include "entropy/differences.h"
#include "entropy/entropy.h"

/* What the name of a coded array ends in, and the bytes of an entry of its index. */
#define TSR_CODED_SUFFIX "::coded"
#define TSR_CODED_ENTRY 16u

/* The most elements of a tensor with coded planes, so that no size overflows. */
#define TSR_CODED_NUMEL_MAX (UINT64_C(1) << 56)

/* How a coded array is divided. */
struct tsr_coded {
	uint64_t nbytes; /* in its file */
	uint64_t npieces;
	uint64_t piece_nbytes; /* of the plane, per piece; the last one has what is left */
	bool with_scales; /* the codes of a variance, which have contexts by: */
	struct tsr_coding coding;
	uint64_t columns;
	size_t scales; /* which array of the checkpoint */
	/* of a delta: the array of its base that pieces may differ from; NULL: they do not */
	const struct tsr_array *old;
	struct tsr_difference_kind difference;
	const struct tsr_array *old_scales; /* of variances, in the base; theirs are the array: */
	size_t new_scales;
	unsigned plane; /* of its tensor */
	bool joined; /* pieces may be coded with those of the other plane, which is: */
	size_t partner; /* an array of the checkpoint */
};

/* How the elements of a plane are coded; types whose elements are no whole bytes by their bytes. */
struct tsr_entropy_kind tsr_coded_kind(enum tsr_dtype dtype);

/* The most bytes of a coded piece. */
size_t tsr_coded_piece_max(void);

/* The number of pieces of a tensor, and the bytes of @plane in each but the last. */
uint64_t tsr_coded_npieces(const struct tsr_tensor *t);
uint64_t tsr_coded_piece_nbytes(const struct tsr_tensor *t, unsigned plane);

/*
 * Take an array as a file has it, of U8, for the coded plane of a tensor: from now on it has the dtype and
 * shape of the plane, and reading it decodes.  TSR_E_FORMAT if it cannot be.
 */
enum tsr_status tsr_coded_take(struct tsr_checkpoint *c, struct tsr_array *a,
			       const struct tsr_tensor *t, unsigned plane, struct tsr_err *err);

/* Whether the pieces of a plane may have contexts by the scales of the tensor, its plane 1. */
bool tsr_coded_has_contexts(const struct tsr_tensor *t, unsigned plane);

/* What lies beside a piece of such codes that begins at element @first, with its scales from the first on. */
struct tsr_entropy_beside tsr_coded_beside(const struct tsr_coding *coding, uint64_t columns,
					   uint64_t first, const uint16_t *scales);

/* The elements of the last dimension: 1 without dimensions. */
uint64_t tsr_coded_columns(const struct tsr_tensor *t);

/* For codes of variances, whose piece begins at element @first of a tensor: their scales, old and new. */
void tsr_coded_put_scales(const struct tsr_coding *coding, uint64_t first, const void *old_scales,
			  const void *scales, struct tsr_entropy_old *ret);

/*
 * When all planes of a tensor are taken and it is part of the checkpoint: reading its codes will read its
 * scales, where contexts need them.
 */
enum tsr_status tsr_coded_link(struct tsr_checkpoint *c, const struct tsr_tensor *t,
			       struct tsr_err *err);

/*
 * tsr_array_read() of a coded array.  Every piece is compared with its hash in the index: TSR_E_FORMAT names
 * the one that is damaged.  Thread-safe.
 */
enum tsr_status tsr_coded_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err);

/* Memory that threads decode with, kept by a checkpoint; NULL is allowed. */
void tsr_decoding_free(struct tsr_decoding *d);

#endif
