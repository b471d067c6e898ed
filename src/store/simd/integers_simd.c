/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over integers: their symbols, and how large those of rows and columns are. */
#include "store/integers.h"

size_t TSR_FOR_ISA(integer_symbols)(const int32_t *k, size_t n, uint8_t *symbols)
{
	uint32_t others = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t zigzag = ((uint32_t)k[i] << 1) ^ (uint32_t)(k[i] >> 31);
		const uint32_t other = k[i] == TSR_INTEGER_NONE ? TSR_SYMBOL_NONE
								: TSR_SYMBOL_ESCAPE;

		symbols[i] = (uint8_t)(zigzag < TSR_SYMBOL_NONE ? zigzag : other);
		others += zigzag >= TSR_SYMBOL_NONE;
	}
	return others;
}

uint64_t TSR_FOR_ISA(integer_sums)(const int32_t *k, size_t n, uint64_t *columns)
{
	uint64_t all = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t size = k[i] < 0 ? 0 - (uint32_t)k[i] : (uint32_t)k[i];
		const uint32_t known = k[i] == TSR_INTEGER_NONE ? 0 : size;

		columns[i] += known;
		all += known;
	}
	return all;
}

void TSR_FOR_ISA(integer_contexts)(const int8_t *columns, size_t n, int32_t row, uint8_t *contexts)
{
	const int32_t most = TSR_ENTROPY_CONTEXTS - 1;

	for (size_t i = 0; i < n; i++) {
		const int32_t context = row + columns[i];

		contexts[i] = (uint8_t)(context < 0 ? 0 : context > most ? most : context);
	}
}
