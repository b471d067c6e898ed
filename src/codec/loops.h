/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of codecs and of measuring, each once per SIMD level. */
#ifndef TSR_CODEC_LOOPS_H
#define TSR_CODEC_LOOPS_H

#include "base/isa.h"
#include "codec/list.h"
#include "tersor/codec.h"
#include "tersor/measure.h"

/* clang-format off */
#define X(id, ...) \
	TSR_ISA_DECLARE(tsr_encode_fn, encode_##id) \
	TSR_ISA_DECLARE(tsr_decode_fn, decode_##id)
TSR_CODEC_LIST(X)
TSR_LEARNED_LIST(X)
#undef X
/* clang-format on */
TSR_ISA_DECLARE(tsr_encode_fn, encode_sqrt8_roots)
TSR_ISA_DECLARE(tsr_encode_fn, encode_log8_roots)

/* The result of tsr_codecs(). */
typedef const struct tsr_codec *const tsr_codec_table[];
TSR_ISA_DECLARE(tsr_codec_table, codecs)
TSR_ISA_DECLARE(tsr_codec_table, learned_codecs)

/* The largest magnitude of @n values; of these a NaN is the largest. */
typedef float tsr_absmax_fn(const float *x, size_t n);
TSR_ISA_DECLARE(tsr_absmax_fn, absmax)

typedef void tsr_measure_fn(struct tsr_measure *m, const float *x, const float *y, size_t n);
TSR_ISA_DECLARE(tsr_measure_fn, measure_add)

typedef void tsr_update_measure_fn(struct tsr_update_measure *u, const struct tsr_moments *before,
				   const struct tsr_moments *after, size_t n, float eps);
TSR_ISA_DECLARE(tsr_update_measure_fn, update_measure_add)

/*
 * The plane of factors of a low-rank codec has a part for each stage: the matrix is about left * right^T, or
 * what the stage before leaves of it.  Each row of the two is a group of TSR_RANK codes of linear8: first the
 * codes of all rows of left, then of right, then the e8m8 scales in the same order.  The rest of a part is 0.
 */
#define TSR_FACTOR_NBYTES (TSR_RANK + sizeof(uint16_t)) /* of a row */

static inline struct tsr_coding tsr_factors_coding(void)
{
	return tsr_coding_with(tsr_codec_find("linear8"), TSR_SCALE_E8M8, TSR_RANK);
}

static inline uint32_t tsr_factor_stages(const struct tsr_coding *coding)
{
	return coding->codec->rank / TSR_RANK;
}

/* Columns of a product that are computed at once. */
#define TSR_PRODUCT_COLUMNS 256u

/*
 * Add to @x the products of a row of left with @n of right, of which @right has the columns one after the
 * other, each of TSR_PRODUCT_COLUMNS elements: ((x + l0 * r0) + l1 * r1) + ..., every operation rounded.
 */
typedef void tsr_products_fn(const float *left, const float *right, size_t n, float *x);
TSR_ISA_DECLARE(tsr_products_fn, products)

/* Add @n products to @x, or with a @sign of -1 subtract them. */
typedef void tsr_add_products_fn(float *x, const float *products, float sign, size_t n);
TSR_ISA_DECLARE(tsr_add_products_fn, add_products)

/* Momenta as ratios to the roots of their variances: what is given of the variances. */
enum tsr_ratio_given {
	TSR_RATIO_VARIANCES,
	TSR_RATIO_ROOTS,
};

/* As tsr_ratios_make() and tsr_ratios_undo(), of variances or of their roots. */
typedef void tsr_ratio_fn(float *x, const float *beside, enum tsr_ratio_given given, float eps,
			  size_t n);
TSR_ISA_DECLARE(tsr_ratio_fn, ratio_make)
TSR_ISA_DECLARE(tsr_ratio_fn, ratio_undo)

#endif
