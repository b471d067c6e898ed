/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of frequencies, which a search for a scale runs through about twenty times. */
#include "entropy/frequencies.h"

uint32_t TSR_FOR_ISA(rans_shares)(const uint32_t *restrict count, unsigned n, uint64_t t,
				  uint32_t *restrict share)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		share[i] = tsr_rans_share(count[i], t);
		sum += share[i];
	}
	return sum;
}
