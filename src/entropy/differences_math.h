/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of differences to older elements, for C and for CUDA; format.md, "Differences", has
 * them in words.  Integers only.
 */
#ifndef TSR_ENTROPY_DIFFERENCES_MATH_H
#define TSR_ENTROPY_DIFFERENCES_MATH_H

#include <stdint.h>

#include "entropy/rans_math.h"

/*
 * A number of @bits bits as it is ordered: that of a float of sign and magnitude, or of a signed one.  A
 * product flips the magnitude of a negative float: unlike a choice it is compiled for lanes of @bits bits.
 */
TSR_HD uint32_t tsr_difference_ordered(uint32_t x, unsigned bits, bool is_float)
{
	const uint32_t sign = 1u << (bits - 1);

	return x ^ sign ^ (is_float ? (x >> (bits - 1)) * (sign - 1) : 0);
}

TSR_HD uint32_t tsr_difference_unordered(uint32_t x, unsigned bits, bool is_float)
{
	const uint32_t sign = 1u << (bits - 1);

	return x ^ sign ^ (is_float ? (x >> (bits - 1) ^ 1) * (sign - 1) : 0);
}

/* How far a number of @bits bits is from another, modulo 2^bits: 0, -1, 1, -2, 2 are 0, 1, 2, 3, 4. */
TSR_HD uint32_t tsr_difference_fold(uint32_t x, uint32_t from, unsigned bits)
{
	const uint32_t d = (x - from) << (32 - bits);

	return (d << 1 ^ (0 - (d >> 31))) >> (32 - bits);
}

/* And back: gcc 12 takes wider lanes than it needs if these numbers have no sign. */
TSR_HD int32_t tsr_difference_unfold(uint32_t folded)
{
	return (int32_t)(folded >> 1) ^ -(int32_t)(folded & 1);
}

TSR_HD uint32_t tsr_difference_add(uint32_t from, int32_t difference, unsigned bits)
{
	return (from + (uint32_t)difference) & UINT32_MAX >> (32 - bits);
}

/*
 * The symbol of a folded difference: what has 4 bits or more gives their number and the three behind the
 * first.  The others are its rest, stored as they are.  Differences of one byte are symbols themselves.
 */
TSR_HD uint32_t tsr_difference_symbol(uint32_t folded, unsigned bits)
{
	/* Bits above the fourth, halving what is left of them. */
	uint32_t above = folded >> 4, rest = 0, half;

	if (bits <= 8)
		return folded;
	for (uint32_t shift = 16; shift; shift /= 2) {
		half = above >> shift ? shift : 0;
		above >>= half;
		rest += half;
	}
	rest += above;
	return 8 * rest + (folded >> rest);
}

TSR_HD uint32_t tsr_difference_rest(uint32_t symbol, unsigned bits)
{
	return bits <= 8 || symbol < 16 ? 0 : symbol / 8 - 1;
}

/* The folded difference of a symbol, but for its rest. */
TSR_HD uint32_t tsr_difference_base(uint32_t symbol, unsigned bits)
{
	const uint32_t rest = tsr_difference_rest(symbol, bits);

	return (symbol - 8 * rest) << rest;
}

/* The most that a symbol can be. */
TSR_HD uint32_t tsr_difference_symbol_max(unsigned bits)
{
	return bits <= 8 ? (1u << bits) - 1 : 8 * (bits - 4) + 15;
}

/* What a code of a variance is multiplied by for another scale in e8m8, in 1/65536, and at most 255. */
TSR_HD uint32_t tsr_difference_ratio(uint32_t from, uint32_t to)
{
	const uint32_t most = 255u << 16;
	const int32_t shift = (int32_t)(from >> 8) - (int32_t)(to >> 8);
	const uint64_t a = (uint64_t)(256 + (from & 255)) << 16, b = 256 + (to & 255);
	uint64_t ratio;

	if (shift > 8 || shift < -17)
		return shift > 0 ? most : 0;
	ratio = shift < 0 ? a / (b << -shift) : (a << shift) / b;
	return ratio < most ? (uint32_t)ratio : most;
}

TSR_HD uint32_t tsr_difference_rescale(uint32_t code, uint32_t ratio)
{
	const uint32_t nearest = (code * ratio + (1u << 15)) >> 16;

	return nearest < 255 ? nearest : 255;
}

/* The exponent of a float of @bits bits. */
TSR_HD uint8_t tsr_difference_exponent(uint32_t x, unsigned bits, unsigned mantissa)
{
	return (uint8_t)((x & ((1u << (bits - 1)) - 1)) >> mantissa);
}

/* The context of a float by its exponent, given that of context 0: in lanes of bytes. */
TSR_HD uint8_t tsr_difference_context(uint8_t exponent, uint8_t lowest)
{
	const uint8_t more = TSR_RANS_TABLE_COUNT - 1;
	const uint8_t above = (uint8_t)((exponent > lowest ? exponent : lowest) - lowest);

	return above < more ? above : more;
}

/* The context of a code of a variance: half octaves, of which its level has eight from 64 on. */
TSR_HD uint8_t tsr_difference_code_context(uint8_t code)
{
	return tsr_rans_context(tsr_rans_code_level(code), 64, 3);
}

/* Context 0 is so much below the mean exponent. */
#define TSR_DIFFERENCE_BELOW 4u

#endif
