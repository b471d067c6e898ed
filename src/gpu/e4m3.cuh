/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to E4M3 where no instruction does it: on GPUs before sm_89, and where kernels run on a CPU. */
#ifndef TSR_GPU_E4M3_CUH
#define TSR_GPU_E4M3_CUH

#include "codec/math.h"

/* A finite float rounded to E4M3; beyond the largest, that. */
TSR_HD uint32_t tsr_e4m3_byte(float x)
{
	const uint32_t bits = tsr_bits_from_f32(x), mag = bits & TSR_F32_MAG;
	const uint32_t normal = ((mag + 0x7ffff + (mag >> 20 & 1)) >> 20) - (120 << 3);
	const uint32_t subnormal = tsr_bits_from_f32(tsr_abs(x) + 0x1p14f) -
				   tsr_bits_from_f32(0x1p14f);
	const uint32_t code = mag < 121u << 23 ? subnormal : normal;

	return (code < 126 ? code : 126) | bits >> 31 << 7;
}

#endif
