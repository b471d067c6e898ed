/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of contexts' tables. */
#include "entropy/context_tables.h"

#ifdef __AVX2__
#include <immintrin.h>

/* The 16 tables, for PSHUFB. */
static inline __m256i load_tables(const uint8_t *tables)
{
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)tables));
}

static size_t replace_bytes(const uint8_t *tables, size_t n, uint8_t *contexts)
{
	const __m256i table = load_tables(tables);
	size_t i = 0;

	for (; i + 32 <= n; i += 32) {
		__m256i *at = (__m256i *)(void *)(contexts + i);

		_mm256_storeu_si256(at, _mm256_shuffle_epi8(table, _mm256_loadu_si256(at)));
	}
	return i;
}
#else
static size_t replace_bytes(const uint8_t *tables, size_t n, uint8_t *contexts)
{
	(void)tables;
	(void)n;
	(void)contexts;
	return 0;
}
#endif

void TSR_FOR_ISA(context_tables_bytes)(const uint8_t *tables, size_t n, uint8_t *contexts)
{
	for (size_t i = replace_bytes(tables, n, contexts); i < n; i++)
		contexts[i] = tables[contexts[i]];
}

uint32_t TSR_FOR_ISA(context_tables_informations)(const uint32_t *a, const uint32_t *b)
{
	uint32_t sum = 0;

	for (unsigned s = 0; s < 256; s++)
		sum += tsr_rans_information(a[s] + b[s]);
	return sum;
}
