/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group codecs whose codes are packed, 32 in k words: a warp has a group, and a share of 32 elements at a
 * time.  The codecs are those of gpu_groups.cuh with `packed_bits`.
 */
#ifndef TSR_GPU_PACKED_CUH
#define TSR_GPU_PACKED_CUH

#include "gpu/gpu_tables.cuh"

#define SHARE TSR_BIT_PACKED_SHARE

DEFINE_FORMULAS(softsign9, tsr_softsign9_value(code, scale))
DEFINE_FORMULAS(softsign10, tsr_softsign10_value(code, scale))
DEFINE_FORMULAS(max3, tsr_max3_value(code, scale))
DEFINE_FORMULAS(max4, tsr_max4_value(code, scale))

/* What the codes of a codec are taken for in C; and whether its groups' peak is their root mean square. */
template <class base, unsigned nbits, bool rms> struct packed : base {
	static const unsigned usual = 0, packed_bits = nbits;
	static const bool has_rms = rms;

	/* The code of an element from its bits, and the reverse. */
	static __device__ __forceinline__ typename base::code_type code_of(uint32_t stored)
	{
		if ((typename base::code_type) - 1 > 0)
			return (typename base::code_type)stored;
		return (typename base::code_type)((int32_t)(stored << (32 - nbits)) >>
						  (32 - nbits));
	}
	static __device__ __forceinline__ uint32_t bits_of(typename base::code_type code)
	{
		return (uint32_t)(int32_t)code & ((1u << nbits) - 1);
	}
};

template <class formulas, unsigned bits>
using packed_peak = packed<grouped<formulas, int16_t>, bits, false>;
template <class formulas, unsigned bits>
using packed_rms = packed<grouped<formulas, int8_t>, bits, true>;
template <unsigned bits> using packed_log = packed<logarithmic<bits>, bits, false>;

/* --- Shares ------------------------------------------------------------------------------------ */

/* The words of a share, of which a thread has one: those of a value come from the threads that have it. */
template <unsigned bits>
static __device__ __forceinline__ uint32_t pack_word(uint32_t value, unsigned lane)
{
	const unsigned from = lane * 32 / bits;
	uint32_t word = 0;

#pragma unroll
	for (unsigned i = 0; i < 32 / bits + 2; i++) {
		const int at = (int)((from + i) * bits) - (int)(lane * 32);
		const uint32_t v = __shfl_sync(TSR_WHOLE_WARP, value, (from + i) % 32);

		word |= at >= 32 ? 0 : at >= 0 ? v << at : v >> -at;
	}
	return word;
}

template <unsigned bits>
static __device__ __forceinline__ uint32_t unpack_word(const uint32_t *share, unsigned lane)
{
	const unsigned word = lane * bits / 32, at = lane * bits % 32;
	const uint32_t low = share[word] >> at;
	const uint32_t high = at + bits > 32 ? share[word + 1] << (32 - at) : 0;

	return (low | high) & ((1u << bits) - 1);
}

#endif
