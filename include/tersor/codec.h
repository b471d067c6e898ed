/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs: the ways to store the FP32 elements of a tensor. */
#ifndef TERSOR_CODEC_H
#define TERSOR_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/dtype.h"

/* What a tensor is to a training run.  The values are bits of a mask in struct tsr_codec. */
enum tsr_kind {
	TSR_KIND_OTHER = 0, /* passed through untouched */
	TSR_KIND_WEIGHT = 1,
	TSR_KIND_MOMENTUM = 2,
	TSR_KIND_VARIANCE = 4,
};

/* "weight", ...; "other" for TSR_KIND_OTHER. */
TSR_API const char *tsr_kind_name(enum tsr_kind kind);

/* The kind with this name ("weight", "momentum", "variance", "other"); false if there is none. */
TSR_API bool tsr_kind_find(const char *name, enum tsr_kind *kind_ret);

/* How the scale of a group is stored. */
enum tsr_scale {
	TSR_SCALE_E8M8, /* U16: exponent and 8 mantissa bits, rounded up; full FP32 range */
	TSR_SCALE_F16, /* F16: FlashOptim's; underflows below 2^-25, overflows from 65520 */
	TSR_SCALE_F32,
	TSR_SCALE_F28, /* U32: an f32 rounded up to a multiple of 16, and in these places the range */
	TSR_SCALE_E5M3, /* U8: 5 exponent and 3 mantissa bits, to nearest; from 1.125 * 2^-20 to 3840 */
	TSR_SCALE_COUNT
};

TSR_API const char *tsr_scale_name(enum tsr_scale scale);
TSR_API enum tsr_dtype tsr_scale_dtype(enum tsr_scale scale);
TSR_API bool tsr_scale_find(const char *name, enum tsr_scale *scale_ret);

#define TSR_GROUP_DEFAULT 32u
#define TSR_GROUP_MAX 65536u
#define TSR_EPS_DEFAULT 1e-8f /* PyTorch's */
#define TSR_PLANES_MAX 4

enum tsr_plane_unit {
	TSR_PER_ELEMENT, /* one entry per element, shaped like the tensor */
	TSR_PER_GROUP, /* one entry per group, rank 1; its dtype is that of the scale format */
	TSR_PER_GROUP_TOO, /* the same, of a dtype of its own */
	TSR_BIT_PACKED, /* 32 elements share tsr_packed_bits() entries of 32 bits, rank 1 */
	TSR_PER_ROW, /* `share` entries for each row of a matrix, rank 1 */
};

/* Elements that share whole words in a plane of TSR_BIT_PACKED. */
#define TSR_BIT_PACKED_SHARE 32u

struct tsr_plane_desc {
	const char *suffix; /* appended to the tensor's name; "" for the plane that keeps it */
	enum tsr_plane_unit unit;
	enum tsr_dtype dtype; /* unused for TSR_PER_GROUP */
};

/* What stands behind a narrow weight. */
enum tsr_correction {
	TSR_CORRECTION_NONE,
	TSR_CORRECTION_ULP, /* the difference, in units of half an ULP over its levels */
	TSR_CORRECTION_PATTERN, /* the difference of the bit patterns */
	TSR_CORRECTION_FLOAT, /* the difference, as a narrow float */
	TSR_CORRECTION_EXTRA_BITS, /* the next bits of the significand */
};

/* What is done to values before they become codes with a shared scale. */
enum tsr_companding {
	TSR_COMPANDING_NONE, /* no codes, or none with a shared scale */
	TSR_COMPANDING_LINEAR, /* nothing */
	TSR_COMPANDING_SOFTSIGN,
	TSR_COMPANDING_SQRT,
	TSR_COMPANDING_LOG, /* the logarithm of the root, in a range that the group chooses */
	TSR_COMPANDING_FLOAT, /* codes are narrow floats, or like them */
	TSR_COMPANDING_POWER, /* a power that the range of the group chooses; then narrow floats */
};

/* What contexts an entropy coder has for codes, by row, column and scale (format.md, section 18.4). */
enum tsr_contexts {
	TSR_CONTEXTS_NONE,
	TSR_CONTEXTS_ROOTS, /* of codes of square roots, with scales in e8m8 */
	TSR_CONTEXTS_LOGS, /* of codes of roots' logarithms, in groups of two elements or more */
};

struct tsr_codec;

/* A codec with its parameters: all that encoding and decoding need besides the data. */
struct tsr_coding {
	const struct tsr_codec *codec;
	enum tsr_scale scale; /* unused by codecs without groups */
	/*
	 * Elements per group, 1 to TSR_GROUP_MAX, of packed codes a multiple of TSR_BIT_PACKED_SHARE; 1 for
	 * codecs without groups.
	 */
	uint32_t group;
	/*
	 * What the elements are.  Codecs with tables for momenta and variances need it to encode, dyn8 to
	 * decode, too; others ignore it.
	 */
	enum tsr_kind kind;
	/*
	 * Of learned codecs, TSR_BF16 or TSR_F16: scales, means and decoded entries are rounded to it first,
	 * as in Gefen's program.  Anything else: they are FP32.
	 */
	enum tsr_dtype narrow;
	/* What the random bits of stochastic codecs depend on; other codecs and decoders ignore it: */
	uint64_t seed;
	uint64_t stream; /* tsr_coding_stream() of the tensor's name */
	uint64_t first; /* index in the tensor of the first element to encode */
	/*
	 * 0: groups are @group consecutive elements.  Otherwise no group crosses a row of so many
	 * elements, more than @group: a row is cut as if into floor(row / group) equal groups, their
	 * size rounded up and the last one shorter.
	 */
	uint32_t row;
	/*
	 * What relative codecs add to the root of a variance.  Negative, -0 too: its magnitude, and a root of
	 * 0 makes the momentum 0.  Others ignore it.
	 */
	float eps;
	uint32_t share; /* of low-rank codecs: bytes of the plane of factors for each row */
	union { /* borrowed */
		const float *codebook; /* of codecs with one: 256 finite entries, ascending */
		const unsigned char *factors; /* of low-rank ones: that plane, 2-byte aligned */
	};
};

/* What an encoder noticed that the decoded values do not show; encoders add to it. */
struct tsr_encode_report {
	uint64_t scale_underflow; /* groups with a nonzero element whose stored scale is 0 */
	uint64_t scale_overflow; /* groups whose stored scale is infinite */
	uint64_t narrow_overflow; /* finite elements whose narrow weight alone is infinite */
};

typedef void tsr_encode_fn(const struct tsr_coding *coding, const float *x, size_t n,
			   void *const plane[], struct tsr_encode_report *report);
typedef void tsr_decode_fn(const struct tsr_coding *coding, const void *const plane[], size_t n,
			   float *x);

/**
 * struct tsr_codec - One way to store the FP32 elements of a tensor
 * @name:       as in the command line and in packed files; never reused for another meaning
 * @summary:    a few words for help and documentation
 * @source:     the paper or program it comes from
 * @family:     what the names of codecs that differ in @extra_bits only have in common, with <k>
 *              for these; NULL for a codec on its own
 * @row:        its row of src/codec/list.h, which codecs of a family share; 0 for a codec not in it
 * @kinds:      mask of enum tsr_kind that it may be used for
 * @planes:     @nplanes arrays that together hold the tensor
 * @narrow:     type of the narrow weight; TSR_F32 if there is none
 * @correction: what the second plane says of the value behind the narrow weight
 * @parts:      into how many parts the correction divides the ULP of the narrow weight; 1 without a
 *              correction
 * @finest:     the smallest difference that a correction can store; 0 if nothing but @parts and
 *              FP32 limits it
 * @extra_bits: significand bits kept behind the narrow weight, of a truncated split; else 0
 * @code_bits:  bits of a code in a plane of TSR_BIT_PACKED; 0 of codecs whose codes are elements
 * @companding: what is done to values that share a scale
 * @contexts:   what contexts an entropy coder has for its codes
 * @group:      elements that share a scale unless another group is asked for; 0 without groups
 * @scales:     mask of 1 << enum tsr_scale: how it stores scales, the lowest one unless asked otherwise;
 *              0 without groups
 * @grouped:    whether elements share scales, so that `scale` and `group` matter
 * @relative:   whether it stores the elements of a momentum as ratios to the root of the variance of the
 *              same parameter: @encode and @decode work on these ratios, which tsr_ratios_make() and
 *              tsr_ratios_undo() turn elements into and back, so that `eps` matters
 * @no_zero:    whether no code of it is 0, so that `eps` is negative
 * @flat:       whether groups never follow rows
 * @learned:    whether its groups are learned from the data, tensor by tensor (tersor/learn.h); such a
 *              codec is not in tsr_codecs(), and no group is its default
 * @has_codebook: whether codes stand for entries of a codebook, so that `codebook` matters
 * @rank:       columns of the two factors whose product approximates a matrix, tensor by tensor: @encode and
 *              @decode work on what the product leaves, which tsr_ratios_make() and tsr_ratios_undo() take
 *              and give back.  Such a codec is not in tsr_codecs().  0: it has no factors
 * @stochastic: whether it rounds at random, so that `seed`, `stream` and `first` matter
 * @lossless:   whether every finite value and infinity comes back with its bits
 * @encode:     @n elements of @x into @plane; adds to @report
 * @encode_roots: the same for nonnegative elements of which @x has the square roots; NULL unless
 *              the codec stores roots
 * @decode:     the planes of @n elements into @x
 *
 * encode and decode work on any elements of a tensor from a multiple of tsr_coding_align() on, so
 * that a large tensor can be coded tile by tile.  All arrays are contiguous, little-endian and of
 * any alignment that malloc or an element boundary gives; they do not overlap.  Values are never
 * rejected here: for NaN, infinities and overflow see docs/internals/numerics.md; callers measure.
 * Thread-safe.  The same bits on every SIMD level and GPU.
 */
struct tsr_codec {
	const char *name;
	const char *summary;
	const char *source;
	const char *family;
	unsigned row;
	unsigned kinds;
	unsigned nplanes;
	struct tsr_plane_desc planes[TSR_PLANES_MAX];
	enum tsr_dtype narrow;
	enum tsr_correction correction;
	unsigned parts;
	double finest;
	unsigned extra_bits;
	unsigned code_bits;
	enum tsr_companding companding;
	enum tsr_contexts contexts;
	uint32_t group;
	unsigned scales;
	bool grouped;
	bool relative;
	bool no_zero;
	bool flat;
	bool learned;
	bool has_codebook;
	unsigned rank;
	bool stochastic;
	bool lossless;
	tsr_encode_fn *encode;
	tsr_encode_fn *encode_roots;
	tsr_decode_fn *decode;
};

/* Every codec but learned and low-rank ones, for the SIMD level in use; NULL at the end. */
TSR_API const struct tsr_codec *const *tsr_codecs(void);

/* The codec with this name, also a learned or low-rank one, or NULL. */
TSR_API const struct tsr_codec *tsr_codec_find(const char *name);

/*
 * A codec with the scale format and group that are its default, and seed 0; `kind` is the first that it
 * is for.
 */
TSR_API struct tsr_coding tsr_coding_default(const struct tsr_codec *codec);

/*
 * The same with scales stored as @scale if the codec has that format, else as by default, and with
 * groups of @group elements, or with 0 of as many as by default.  Groups of packed codes have the next
 * multiple of TSR_BIT_PACKED_SHARE.
 */
TSR_API struct tsr_coding tsr_coding_with(const struct tsr_codec *codec, enum tsr_scale scale,
					  uint32_t group);

/*
 * The codings of momenta and variances that a form of an optimizer's state stands for: "flash", "tight"
 * and so on, with default groups and scales; false if there is none.
 */
TSR_API bool tsr_state_form(const char *name, struct tsr_coding *momentum,
			    struct tsr_coding *variance);

/* Have a coding of a relative codec use the optimizer's @eps, with the sign that the codec wants. */
TSR_API void tsr_coding_use_eps(struct tsr_coding *coding, float eps);

/* Whether a codec can store its scales so. */
static inline bool tsr_codec_has_scale(const struct tsr_codec *codec, enum tsr_scale scale)
{
	return codec->scales >> scale & 1;
}

/* Whether no code of it is negative: negative elements cannot be stored. */
TSR_API bool tsr_coding_is_unsigned(const struct tsr_coding *coding);

/* The most elements of a row that groups follow. */
#define TSR_ROW_MAX 65536u

/*
 * The `row` of a tensor's coding: its last dimension if it has two or more and groups do not divide it.
 * 0 for codecs without groups or with flat ones, for scales of f16, which are FlashOptim's, and for rows
 * of more than TSR_ROW_MAX elements.  Of a low-rank codec the last dimension, or 0 if the `share` is.
 */
TSR_API uint32_t tsr_coding_row(const struct tsr_coding *coding, unsigned rank,
				const uint64_t *shape);

/*
 * The `share` of a tensor in a low-rank codec: a matrix whose rows have at least a group and at most
 * TSR_ROW_MAX elements, and of which factors of rank 16 take at most 1.5 bits per element.  0 for others.
 */
TSR_API uint32_t tsr_coding_share(const struct tsr_coding *coding, unsigned rank,
				  const uint64_t *shape);

/* How many elements a group really has: `group` without rows, else its share of a row. */
TSR_API uint32_t tsr_coding_group(const struct tsr_coding *coding);

/* How many groups a row has; 0 without rows. */
TSR_API uint32_t tsr_coding_row_groups(const struct tsr_coding *coding);

/* Whether two codings, each with a codec, store the same planes. */
TSR_API bool tsr_coding_is_same(const struct tsr_coding *a, const struct tsr_coding *b);

/**
 * tsr_ratios_make(), tsr_ratios_undo() - Momenta as ratios to their variances, and back
 * @coding:   of a relative codec
 * @x:        @n momenta, which become ratios; or the reverse
 * @variance: the variances of these elements: to make ratios those that were, to undo them those that
 *            are stored
 *
 * The ratio is RN(m / RN(RN(sqrt(v)) + eps)), or 0 where the divisor is 0; a momentum is the ratio times
 * such a divisor.  So an update m / (sqrt(v) + eps) keeps the ratio, whatever became of the variance.
 * Of a low-rank codec @variance has the elements of the product, which are subtracted and added.  Other
 * codecs' elements are left as they are.  Thread-safe.
 */
TSR_API void tsr_ratios_make(const struct tsr_coding *coding, float *x, const float *variance,
			     size_t n);
TSR_API void tsr_ratios_undo(const struct tsr_coding *coding, float *x, const float *variance,
			     size_t n);

/* Whether tsr_ratios_make() does something. */
static inline bool tsr_codec_is_beside(const struct tsr_codec *codec)
{
	return codec->relative || codec->rank;
}

/* Bits that an element takes in a plane of TSR_BIT_PACKED. */
static inline unsigned tsr_packed_bits(const struct tsr_codec *codec)
{
	return codec->extra_bits + codec->stochastic + codec->code_bits;
}

/* Elements that are coded together: a tile of a tensor has to begin at a multiple of this. */
TSR_API uint32_t tsr_coding_align(const struct tsr_coding *coding);

/* The `stream` of the tensor with this name. */
TSR_API uint64_t tsr_coding_stream(const char *name);

/* Element type of a plane. */
TSR_API enum tsr_dtype tsr_plane_dtype(const struct tsr_coding *coding, unsigned plane);

/*
 * Entries that a plane needs for @n elements; also the index of the entry of element @n if that is
 * a multiple of tsr_coding_align().
 */
TSR_API uint64_t tsr_plane_count(const struct tsr_coding *coding, unsigned plane, uint64_t n);

/* Bytes that a plane needs for @n elements; also the offset of element @n in it. */
TSR_API uint64_t tsr_plane_nbytes(const struct tsr_coding *coding, unsigned plane, uint64_t n);

/* Bytes per element over all planes, for long tensors. */
TSR_API double tsr_coding_bytes_per_element(const struct tsr_coding *coding);

#endif
