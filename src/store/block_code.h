/* SPDX-License-Identifier: Apache-2.0 */
/* A block of one tensor, or of a momentum and its variance, as the bytes of an object, and back. */
#ifndef TSR_STORE_BLOCK_CODE_H
#define TSR_STORE_BLOCK_CODE_H

#include "store/quantize.h"
#include "tersor/codec.h"
#include "tersor/store.h"

/* Tensors of a block: one, or a momentum (0) and its variance (1). */
#define TSR_SLOTS 2u

/* The name of an object: XXH3-128 of its bytes.  All zeros: none. */
struct tsr_object_id {
	uint64_t low, high;
};

/* What a block holds: @slots tensors of @kind and @dtype.  Only FP32 ones of a known kind lose anything. */
struct tsr_block_of {
	struct tsr_block at;
	unsigned slots;
	enum tsr_kind kind[TSR_SLOTS];
	enum tsr_dtype dtype;
};

/* The head of an object. */
struct tsr_object_head {
	struct tsr_block_of of;
	unsigned depth; /* number of blocks down to one without a base */
	struct tsr_object_id base; /* the block of the same place that it is decoded with */
};

/* Sums over elements: what errors are the quotients of. */
struct tsr_store_sums {
	double moved, weights; /* displacements squared, and the errors of those weights */
	double rounded,
		ulps; /* errors squared of all weights, and the distances of BF16 numbers there */
	double update, updates; /* errors of updates squared, and the updates */
	double root, roots; /* the same of roots of variances */
};

/* Memory that coding needs, for one thread. */
struct tsr_block_coder;

/* NULL when out of memory; to be freed with tsr_block_coder_free(), which takes NULL. */
struct tsr_block_coder *tsr_block_coder_new(void);
void tsr_block_coder_free(struct tsr_block_coder *c);

/* The most bytes of an object. */
#define TSR_OBJECT_MAX ((size_t)TSR_STORE_BLOCK * 20 + 65536)

/*
 * What weights were: @x in the version that the new ones are steps from, the object @id of @depth, and in the
 * last version, which is the same or later, and which their displacement counts from.
 */
struct tsr_block_base {
	struct tsr_object_id id;
	unsigned depth;
	const float *x, *last;
};

/*
 * Code a block.  @base: of weights; NULL: there is none.  @x: the elements of each slot.  @y: out: what they
 * decode to, for FP32.  @eps: what the optimizer adds to the root of a variance.  @sums: out: of this block.
 * Returns the number of bytes in @to, which has room for TSR_OBJECT_MAX; 0: the block is that of the last
 * version, to the precision that an exact version has.
 */
size_t tsr_block_encode(struct tsr_block_coder *c, const struct tsr_block_of *of,
			const struct tsr_store_tier *tier, const struct tsr_block_base *base,
			float eps, const void *const x[TSR_SLOTS], void *const y[TSR_SLOTS],
			uint8_t *to, struct tsr_store_sums *sums);

/* Read the head of an object.  NULL, or what is wrong with it. */
const char *tsr_object_head(const uint8_t *bytes, size_t nbytes, struct tsr_object_head *ret);

/* Decode an object; @base: what the block that its head names decodes to.  NULL, or what is wrong with it. */
const char *tsr_block_decode(struct tsr_block_coder *c, const struct tsr_block_of *of,
			     const uint8_t *bytes, size_t nbytes, const float *base,
			     void *const y[TSR_SLOTS]);

#endif
