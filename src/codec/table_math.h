/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of codecs whose codes are tables, for C and for CUDA: see codec/math.h, whose contract
 * they keep.  codec/tables.c makes the tables.
 *
 * The code of an element counts the thresholds that t = |x| / s has passed; s is the group's divisor.  It
 * decodes to the value of that code, times s.  No logarithm or power decides a bit: comparisons do.
 *
 * Thresholds are compared as keys: the bits of |t|, then its sign as the lowest bit.  So a tie can be
 * settled by the sign, and keys of positive numbers are ordered like them.  Keys are looked up in
 * buckets, those with the same bits above `shift`.  A bucket has at most one threshold inside.  Its entry
 * has the code of its first key in the upper 8 bits, and in the others what carries into these when a key
 * from the threshold on is added: 2^24 less the threshold, or 1.
 */
#ifndef TSR_CODEC_TABLE_MATH_H
#define TSR_CODEC_TABLE_MATH_H

#include <stdbool.h>

#include "codec/math.h"

#define TSR_TABLE_CODES 256u
#define TSR_TABLE_ROWS 256u

/* A row of a table: what a group needs. */
struct tsr_table_row {
	float value
		[TSR_TABLE_CODES]; /* of codes without their sign, and of others: tsr_table_entry() */
	float unit; /* 1, or what takes t out of the subnormal numbers before it becomes a key */
	float lowest, highest; /* t times the unit is clamped to these */
	uint32_t shift; /* at most 23 */
	uint32_t bucket; /* of `lowest` */
	uint32_t first; /* entry of that bucket */
	uint32_t ncodes;
};

/* How a code without sign and a sign are stored. */
enum tsr_table_layout {
	TSR_TABLE_SIGNED, /* the sign is bit 7 */
	TSR_TABLE_CENTRED, /* 127 plus or minus the code; -128 does not occur */
	TSR_TABLE_UNSIGNED, /* negative elements have code 0 */
};

enum tsr_table_set {
	TSR_TABLES_E4M3,
	TSR_TABLES_E5M2,
	TSR_TABLES_E4M3X, /* a row for each exponent of the expansion; row 0 is that of zeros */
	TSR_TABLES_E5M2X,
	TSR_TABLES_DYNAMIC, /* signed, unsigned */
	TSR_TABLES_LOG8, /* a row for each range of log8; bounds are what these reach down to */
	TSR_TABLES_LOG7, /* the same for the others of the family */
	TSR_TABLES_LOG6,
	TSR_TABLES_LOG4,
	TSR_TABLES_LOG3,
	TSR_TABLES_COUNT
};

/* How a codec's groups are coded. */
struct tsr_table_rule {
	enum tsr_table_set set;
	enum tsr_table_layout layout;
	float largest; /* the group's largest magnitude is this times s; 1: it is s */
	uint32_t row; /* of its table; unless the groups choose theirs */
	bool expanded; /* the row is chosen by the range of the group, and stored */
	bool keeps; /* no element but 0 has code 0 */
};

/* The rules of codecs.  Of 8-bit floats, small momenta become 0; no positive variance does. */
TSR_HD struct tsr_table_rule tsr_e4m3_rule(bool variance)
{
	const struct tsr_table_rule rule = { TSR_TABLES_E4M3, TSR_TABLE_SIGNED, 448.0f, 0,
					     false,	      variance };

	return rule;
}

TSR_HD struct tsr_table_rule tsr_e5m2_rule(bool variance)
{
	const struct tsr_table_rule rule = { TSR_TABLES_E5M2, TSR_TABLE_SIGNED, 57344.0f, 0,
					     false,	      variance };

	return rule;
}

TSR_HD struct tsr_table_rule tsr_e4m3x_rule(bool variance)
{
	const struct tsr_table_rule rule = {
		TSR_TABLES_E4M3X, TSR_TABLE_SIGNED, 1.0f, 0, true, true
	};

	return (void)variance, rule;
}

TSR_HD struct tsr_table_rule tsr_e5m2x_rule(bool variance)
{
	const struct tsr_table_rule rule = {
		TSR_TABLES_E5M2X, TSR_TABLE_SIGNED, 1.0f, 0, true, true
	};

	return (void)variance, rule;
}

TSR_HD struct tsr_table_rule tsr_dynamic_rule(bool variance)
{
	const struct tsr_table_rule rule = { TSR_TABLES_DYNAMIC,
					     variance ? TSR_TABLE_UNSIGNED : TSR_TABLE_CENTRED,
					     1.0f,
					     variance,
					     false,
					     true };

	return rule;
}

/* --- Groups ------------------------------------------------------------------------------------ */

/* The divisor, which is stored: 0 for zeros only, and a NaN or infinity as it is. */
TSR_HD float tsr_table_scale(struct tsr_table_rule rule, float absmax)
{
	const float scale = absmax / rule.largest;
	const float positive = scale > 0x1p-149f ? scale : 0x1p-149f;

	return absmax > 0.0f && tsr_bits_from_f32(absmax) < TSR_F32_INF ? positive : absmax;
}

/*
 * The row of an expanded group: the last one whose bound is not below the ratio of the largest and the
 * smallest magnitude other than 0, but at least 1; 0 for zeros.  Bounds fall from row 1 on.
 */
TSR_HD uint32_t tsr_table_expand(const float *bound, float absmax, float least)
{
	const float ratio = absmax / least;
	uint32_t row = 0;

	for (uint32_t step = TSR_TABLE_ROWS / 2; step; step /= 2)
		row += bound[row + step] >= ratio ? step : 0;
	return absmax > 0.0f ? (row ? row : 1) : absmax != absmax;
}

/* The least code but 0 that decodes to something: above 1 only where products underflow. */
TSR_HD uint32_t tsr_table_least(const struct tsr_table_row *row, float scale)
{
	uint32_t code = 1;

	if (scale >= 0x1p-80f && row->value[1] >= 0x1p-60f)
		return 1;
	while (scale > 0.0f && code + 1 < row->ncodes && !(row->value[code] * scale > 0.0f))
		code++;
	return code;
}

/* --- Elements ---------------------------------------------------------------------------------- */

/* What |x| is divided by: anything does for zeros. */
TSR_HD float tsr_table_divisor(float scale)
{
	return scale > 0.0f ? scale : 1.0f;
}

/* The key of t, with the sign of x; of a NaN the lowest. */
TSR_HD uint32_t tsr_table_key_of(float t, float x, float lowest, float highest)
{
	return tsr_bits_from_f32(tsr_clamp(t, lowest, highest)) << 1 | tsr_bits_from_f32(x) >> 31;
}

TSR_HD uint32_t tsr_table_key(float x, float divisor, float unit, float lowest, float highest)
{
	return tsr_table_key_of(tsr_abs(x) / divisor * unit, x, lowest, highest);
}

/* @entry is that of the row's first bucket, @bucket the number of that bucket. */
TSR_HD uint32_t tsr_table_code(const uint32_t *entry, uint32_t bucket, uint32_t shift, uint32_t key)
{
	const uint32_t rest = key & ((1u << shift) - 1);

	return (entry[(key >> shift) - bucket] + rest) >> 24;
}

/* The byte for a code of x; @least is what elements other than 0 have at least. */
TSR_HD uint32_t tsr_table_byte(enum tsr_table_layout layout, uint32_t code, float x, uint32_t least)
{
	const uint32_t bits = tsr_bits_from_f32(x), sign = bits >> 31;
	const uint32_t floor = bits << 1 ? least : 0;
	const uint32_t kept = code > floor ? code : floor;

	if (layout == TSR_TABLE_SIGNED)
		return kept | sign << 7;
	if (layout == TSR_TABLE_UNSIGNED)
		return sign ? 0 : kept;
	return sign ? 127 - (kept < 127 ? kept : 127) : 127 + kept;
}

/* The code and the sign of a byte. */
TSR_HD uint32_t tsr_table_index(enum tsr_table_layout layout, uint32_t byte)
{
	if (layout == TSR_TABLE_SIGNED)
		return byte & 0x7f;
	if (layout == TSR_TABLE_UNSIGNED)
		return byte;
	return byte < 127 ? 127 - byte : byte - 127;
}

TSR_HD uint32_t tsr_table_sign(enum tsr_table_layout layout, uint32_t byte)
{
	if (layout == TSR_TABLE_SIGNED)
		return (byte & 0x80) << 24;
	return layout == TSR_TABLE_CENTRED && byte < 127 ? TSR_F32_SIGN : 0;
}

/*
 * Where a row has the value of a byte with its sign.  Values below 0 are behind the codes: of layouts with
 * a sign these take half of a row.
 */
TSR_HD uint32_t tsr_table_entry(enum tsr_table_layout layout, uint32_t byte)
{
	return layout == TSR_TABLE_CENTRED ? (byte + 129) & 0xff : byte;
}

/* The decoded element; there is one NaN only, with the sign. */
TSR_HD float tsr_table_value(float value, uint32_t sign, float scale)
{
	const float magnitude = value * scale;
	const uint32_t bits = magnitude == magnitude ? tsr_bits_from_f32(magnitude) : 0x7fc00000u;

	return tsr_f32_from_bits(bits ^ sign);
}

#endif
