/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of coded planes, for C and for CUDA; format.md, "Coded planes", has them in words.
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

TSR_HD uint32_t tsr_rans_count_segments(uint32_t n)
{
	return (n + TSR_RANS_SEGMENT - 1) / TSR_RANS_SEGMENT;
}

TSR_HD uint32_t tsr_rans_segment_size(uint32_t n, uint32_t segment)
{
	const uint32_t left = n - segment * TSR_RANS_SEGMENT;

	return left < TSR_RANS_SEGMENT ? left : TSR_RANS_SEGMENT;
}

/* The states that a segment of @n symbols has: with few symbols not all of them. */
TSR_HD uint32_t tsr_rans_count_states(uint32_t n)
{
	const uint32_t used = (n + TSR_RANS_RUN - 1) / TSR_RANS_RUN;

	return used < TSR_RANS_LANES ? used : TSR_RANS_LANES;
}

/* States are in [TSR_RANS_LOW, 2^32), begin and end at TSR_RANS_LOW, and shed words of 16 bits. */
#define TSR_RANS_LOW 65536u

/* The frequencies of a table sum to 2^TSR_RANS_BITS. */
#define TSR_RANS_BITS 12u

/* Most tables of a stream; contexts of codes, of which those in a row may have one table. */
#define TSR_RANS_TABLE_COUNT 8u
#define TSR_RANS_CONTEXT_COUNT 16u

/* How a stream is stored: the first byte of its head. */
enum tsr_rans_mode {
	TSR_RANS_RAW, /* its bytes as they are */
	TSR_RANS_CONSTANT, /* one symbol, which all elements have */
	TSR_RANS_CODED, /* a table, and segments */
	TSR_RANS_CONTEXTS, /* means, tables for the contexts, and segments */
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

/* The largest power of two that is at most @x > 0, as its exponent. */
TSR_HD uint32_t tsr_rans_log2(uint32_t x)
{
#ifdef __CUDA_ARCH__
	return 31 - (uint32_t)__clz((int)x);
#else
	return 31 - (uint32_t)__builtin_clz(x);
#endif
}

/*
 * A symbol for the encoder, which divides a state by its frequency through a reciprocal:
 * ((x + increment) * reciprocal >> 32) >> shift (Granlund & Montgomery 1994; Robison 2005).
 */
struct tsr_rans_symbol {
	uint32_t reciprocal;
	uint32_t
		rest; /* frequency from bit 20, its first slot from bit 8, increment in bit 4, shift */
};

/*
 * A reciprocal rounded up gives quotients that are exact where its error times the largest state, which is
 * @freq << (32 - @bits), does not reach its unit, 2^(31 + log); otherwise the one rounded down does, of
 * states that are 1 larger.  The unit modulo 2^32 is 0; it is divided in two steps, since a GPU divides 32
 * bits.
 */
TSR_HD struct tsr_rans_symbol tsr_rans_symbol_of(uint32_t freq, uint32_t start, unsigned bits)
{
	uint32_t shift = 0, increment = 1, reciprocal = UINT32_MAX;
	struct tsr_rans_symbol s;

	if (freq > 1) {
		const uint32_t log = tsr_rans_log2(freq - 1) + 1, half = 0x80000000u;
		const uint32_t rest = (half % freq) << log;

		shift = log - 1;
		reciprocal = ((half / freq) << log) + (rest + freq - 1) / freq;
		increment = reciprocal * freq * freq > 1u << (bits + log - 1);
		reciprocal -= increment;
	}
	s.reciprocal = reciprocal;
	s.rest = freq << 20 | start << 8 | increment << 4 | shift;
	return s;
}

TSR_HD uint32_t tsr_rans_symbol_freq(struct tsr_rans_symbol s)
{
	return s.rest >> 20;
}

/* x / freq, for states that shed no word before this symbol. */
TSR_HD uint32_t tsr_rans_quotient(uint32_t x, struct tsr_rans_symbol s)
{
	return (uint32_t)((uint64_t)(x + (s.rest >> 4 & 1)) * s.reciprocal >> 32) >> (s.rest & 15);
}

/* The state after a symbol, 2^bits (x / freq) + x mod freq + start; no word is to be shed. */
TSR_HD uint32_t tsr_rans_push(uint32_t x, struct tsr_rans_symbol s, unsigned bits)
{
	return x + (s.rest >> 8 & 0xfff) +
	       tsr_rans_quotient(x, s) * ((1u << bits) - tsr_rans_symbol_freq(s));
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
	uint32_t log = tsr_rans_log2(freq), x = freq << (16 - log);

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

/*
 * Whether @n symbols are stored coded, given the bytes of their table and what they cost by it: only if
 * that makes them 1/128 smaller, since decoding takes time.
 */
TSR_HD bool tsr_rans_is_worth(uint32_t n, uint32_t table_nbytes, uint64_t cost)
{
	uint64_t nbytes = table_nbytes + cost / 2048;

	for (uint32_t i = 0; i < tsr_rans_count_segments(n); i++)
		nbytes += 2 + 4 * tsr_rans_count_states(tsr_rans_segment_size(n, i));
	return nbytes < n - n / 128;
}

/*
 * 16 log2 of a code that a variance is the square of, linear between powers of two, and of a scale in e8m8
 * but for a constant.
 */
TSR_HD int32_t tsr_rans_code_level(uint8_t code)
{
	return (int32_t)(tsr_bits_from_f32((float)(code ? code : 1)) >> 19) - 16 * 127;
}

TSR_HD int32_t tsr_rans_scale_level(uint16_t scale)
{
	return scale >> 4;
}

/*
 * Of log8 the range of a group in sixteenths of an octave, given its number in the lowest bits of a scale;
 * the level of a code; and the context of one that is expected so far above its scale, given 65536 / range.
 */
TSR_HD int32_t tsr_rans_log_range(uint16_t scale)
{
	static const uint16_t ranges[16] = { 4,	 8,  12, 16,  24,  32,	40,  48,
					     64, 80, 96, 128, 160, 208, 272, 384 };

	return ranges[scale & 15];
}

#define TSR_RANS_LOG_HIGHEST 384

TSR_HD int32_t tsr_rans_log_code_level(uint8_t code, int32_t range)
{
	return TSR_RANS_LOG_HIGHEST - ((255 - code) * range >> 8);
}

TSR_HD uint8_t tsr_rans_log_context(int32_t above, int32_t per_level)
{
	const int32_t code = 255 + (above * per_level >> 8);

	return (uint8_t)((code < 0 ? 0 : code > 255 ? 255 : code) >> 4);
}

/* The deviation of a row's or column's mean from that of all, as it is stored. */
TSR_HD int32_t tsr_rans_deviation(int32_t mean, int32_t all)
{
	const int32_t deviation = mean - all;

	return deviation < -127 ? -127 : deviation > 127 ? 127 : deviation;
}

/*
 * The contexts of a variance, given how far above its scale it is expected, and of a momentum, given how
 * far above its scale the root of its variance is: ranges of 4 levels, a quarter of an octave, and of 8.
 */
#define TSR_RANS_VARIANCE_LOWEST 64
#define TSR_RANS_VARIANCE_SHIFT 2

TSR_HD uint8_t tsr_rans_context(int32_t level, int32_t lowest, int shift)
{
	const int32_t above = level - lowest, most = ((int32_t)TSR_RANS_CONTEXT_COUNT << shift) - 1;

	return (uint8_t)((above < 0 ? 0 : above > most ? most : above) >> shift);
}

/*
 * About @count log2(@count), in 1/256 of a bit, of a count of at most TSR_ENTROPY_PIECE: by it is judged
 * what contexts lose that have one table.
 */
TSR_HD uint32_t tsr_rans_information(uint32_t count)
{
	const uint32_t bits = tsr_bits_from_f32((float)(int32_t)count) >> 7;
	const uint32_t x = bits & 0xffff, curve = (x * (65536 - x) >> 16) * 22544 >> 16;

	return count * ((bits - (127u << 16) + curve) >> 8);
}

/* What a table of codes is taken to cost, 200 bytes, in 1/256 of a bit. */
#define TSR_RANS_TABLE_COST (200 * 2048)

/*
 * Of @n groups of contexts the one that has one table with the next: that which loses the least, if this is
 * less than a table costs, @cost, or there are too many.  @n if there is none.
 */
TSR_HD uint32_t tsr_rans_group_to_join(const int32_t *losses, uint32_t n, int32_t cost)
{
	uint32_t least = 0;

	if (n < 2)
		return n;
	for (uint32_t i = 1; i + 1 < n; i++)
		least = losses[i] < losses[least] ? i : least;
	return n > TSR_RANS_TABLE_COUNT || losses[least] < cost ? least : n;
}

/* The width of the numbers of a stored table, of which @largest is the largest. */
TSR_HD uint32_t tsr_rans_number_width(uint32_t largest)
{
	return largest ? tsr_rans_log2(largest) + 1 : 1;
}

#endif
