/* SPDX-License-Identifier: Apache-2.0 */
/* Coded planes: arrays that hold the pieces of a plane entropy coded (format.md, section 4.8). */
#ifndef TSR_CKPT_CODED_PLANE_H
#define TSR_CKPT_CODED_PLANE_H

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
	/* of codes of a variance: its coding, the array of its scales, elements of its last dimension */
	bool has_contexts;
	struct tsr_coding coding;
	size_t scales;
	uint64_t columns;
	/* of a delta: the array of its base that pieces may differ from; NULL: they do not */
	const struct tsr_array *old;
	struct tsr_difference_kind difference;
	const struct tsr_array *old_scales; /* of variances, in the base */
	size_t old_tensor; /* the tensor of the base that @old is of */
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

/*
 * The hash of the plane of a coded array in memory, whose index has no hashes yet and gets them: all of it is
 * decoded.  TSR_E_FORMAT if it is damaged.  Scales that contexts depend on come first.
 */
enum tsr_status tsr_coded_seal(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t *hash_ret, struct tsr_err *err);

/* The hash of a piece by the index: whoever has read it knows that it has that. */
enum tsr_status tsr_coded_hash(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t piece, uint64_t *hash_ret, struct tsr_err *err);

/* A coded piece of an array in memory: its bytes, and the hash of what they decode to. */
const unsigned char *tsr_coded_in_memory(const struct tsr_array *a, uint64_t piece,
					 size_t *nbytes_ret, uint64_t *hash_ret);

/*
 * Once the base of a delta is open: TSR_E_FORMAT if planes of which the base has none have pieces that differ
 * from older ones.  Reads their indices and the first byte of each piece, so that a plan can be refused.
 */
enum tsr_status tsr_coded_check_whole(const struct tsr_checkpoint *c, struct tsr_err *err);

/* --- Contexts (coded_plane_contexts.c) ----------------------------------------------------------- */

/* Whether codes are of square roots, with scales in e8m8. */
bool tsr_coded_is_root(const struct tsr_coding *coding);

/* Whether the pieces of a plane may have contexts by rows, columns and the scales, its tensor's plane 1. */
bool tsr_coded_has_contexts(const struct tsr_tensor *t, unsigned plane);

/* Scales as a file has them, @nbytes, to those that tsr_coded_variance() takes, in place. */
void tsr_coded_shorten_scales(const struct tsr_coding *coding, size_t nbytes, uint16_t *scales);

/* A piece of codes that begins at element @first, with its scales from the first on. */
struct tsr_entropy_variance tsr_coded_variance(const struct tsr_coding *coding, uint64_t columns,
					       uint64_t first, const uint16_t *scales);

/* The elements of the last dimension: 1 without dimensions. */
uint64_t tsr_coded_columns(const struct tsr_tensor *t);

/* For codes of variances, whose piece begins at element @first of a tensor: their scales, old and new. */
void tsr_coded_put_scales(const struct tsr_coding *coding, uint64_t first, const void *old_scales,
			  const void *scales, struct tsr_entropy_old *ret);

/*
 * When all planes of the @n tensors of a file are taken and are arrays of the checkpoint: reading codes will
 * read what contexts need.
 */
enum tsr_status tsr_coded_link(struct tsr_checkpoint *c, const struct tsr_tensor *tensors, size_t n,
			       struct tsr_err *err);

#endif
