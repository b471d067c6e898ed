/* SPDX-License-Identifier: Apache-2.0 */
/* Exact split: a narrow weight and the difference of the two bit patterns.  Nothing is lost. */
#include "codec/isa.h"
#include "codec/math.h"

static void encode(const struct tsr_coding *coding, const float *restrict x, size_t n,
		   void *const plane[], struct tsr_encode_report *report)
{
	uint16_t *restrict narrow = plane[0];
	int16_t *restrict correction = plane[1];
	uint32_t overflow = 0;

	(void)coding;
	for (size_t i = 0; i < n; i++) {
		const uint32_t n16 = tsr_exact16_narrow(x[i]);

		narrow[i] = (uint16_t)n16;
		correction[i] = (int16_t)tsr_exact16_correction(x[i], n16);
		overflow += (uint32_t)tsr_exact16_overflows(x[i]);
	}
	report->narrow_overflow += overflow;
}

static void decode(const struct tsr_coding *coding, const void *const plane[], size_t n,
		   float *restrict x)
{
	const uint16_t *restrict narrow = plane[0];
	const int16_t *restrict correction = plane[1];

	(void)coding;
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_exact16_join(narrow[i], correction[i]);
}

const struct tsr_codec TSR_FOR_ISA(codec_bf16_exact16) = {
	.name = "bf16+exact16",
	.summary = "BF16 and the other 16 bits: nothing is lost",
	.source = "tersor",
	.kinds = TSR_KIND_WEIGHT,
	.nplanes = 2,
	.planes = { { "", TSR_PER_ELEMENT, TSR_BF16 },
		    { "::error_bits", TSR_PER_ELEMENT, TSR_I16 } },
	.lossless = true,
	.encode = encode,
	.decode = decode,
};
