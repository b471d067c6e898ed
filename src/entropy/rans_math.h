/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of coded planes, for C and for CUDA; docs/format.md, "Coded planes", has them in words.
 * Integers only: what is written depends on the elements alone.
 */
#ifndef TSR_ENTROPY_RANS_MATH_H
#define TSR_ENTROPY_RANS_MATH_H

#include <stdint.h>

#include "codec/math.h"

/* Elements of a segment, which has states of its own; of a block, of which each state takes 4 in a row. */
#define TSR_RANS_SEGMENT 32768u
#define TSR_RANS_BLOCK 128u
#define TSR_RANS_LANES 32u
#define TSR_RANS_RUN 4u

/* States are in [TSR_RANS_LOW, 2^32), begin and end at TSR_RANS_LOW, and shed words of 16 bits. */
#define TSR_RANS_LOW 65536u

/* The frequencies of a table sum to 2^TSR_RANS_BITS. */
#define TSR_RANS_BITS 12u

/* How a stream is stored: the first byte of its head. */
enum tsr_rans_mode {
	TSR_RANS_RAW, /* its bytes as they are */
	TSR_RANS_CONSTANT, /* one symbol, which all elements have */
	TSR_RANS_CODED, /* a table, and segments */
};

/*
 * What a slot of a table says: the symbol, its frequency, which is neither 0 nor the whole table and so
 * has 12 bits, and the place of the slot among those of the symbol.
 */
TSR_HD uint32_t tsr_rans_entry(uint32_t symbol, uint32_t freq, uint32_t place)
{
	return symbol | place << 8 | freq << 20;
}

TSR_HD uint32_t tsr_rans_entry_symbol(uint32_t entry)
{
	return entry & 0xff;
}

/* The state before a symbol was pushed, given the entry of its slot, without the word that may be missing. */
TSR_HD uint32_t tsr_rans_pop(uint32_t x, uint32_t entry, unsigned bits)
{
	return (entry >> 20) * (x >> bits) + (entry >> 8 & 0xfff);
}

/* Whether a state sheds a word before a symbol of this frequency. */
TSR_HD bool tsr_rans_sheds(uint32_t x, uint32_t freq, unsigned bits)
{
	return x >> (32 - bits) >= freq;
}

/* The state after a symbol; no word is to be shed. */
TSR_HD uint32_t tsr_rans_push(uint32_t x, uint32_t freq, uint32_t start, unsigned bits)
{
	return ((x / freq) << bits) + x % freq + start;
}

/*
 * The frequency of a symbol that occurs @count > 0 times at scale @t: its share rounded to nearest, and
 * at least 1.  The scale of a table is the largest @t whose frequencies sum to at most 2^bits.
 */
#define TSR_RANS_SCALE_BITS 32

TSR_HD uint32_t tsr_rans_share(uint64_t count, uint64_t t)
{
	const uint64_t share = (count * t + (UINT64_C(1) << (TSR_RANS_SCALE_BITS - 1))) >>
			       TSR_RANS_SCALE_BITS;

	return share > 1 ? (uint32_t)share : 1;
}

/* log2(2^bits / freq) in 1/256, rounded up: what a symbol costs. */
TSR_HD uint32_t tsr_rans_cost(uint32_t freq, unsigned bits)
{
	uint32_t log = 0, x = freq;

	while (x >= 2) {
		x >>= 1;
		log++;
	}
	x = freq << (16 - log);
	for (int i = 0; i < 8; i++) {
		x = (uint32_t)((uint64_t)x * x >> 16);
		log <<= 1;
		if (x >= 1u << 17) {
			x >>= 1;
			log |= 1;
		}
	}
	return (bits << 8) - log;
}

/* The width of the numbers of a stored table, of which @largest is the largest. */
TSR_HD uint32_t tsr_rans_number_width(uint32_t largest)
{
	uint32_t width = 1;

	while (largest >> width)
		width++;
	return width;
}

#endif
