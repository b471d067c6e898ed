/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about texts that may not end in NUL: their order, their digits, and whether a list has one. */
#include "text/bytes.h"

#include <string.h>

size_t tsr_name_index(const char *name, const void *list, size_t n, size_t size)
{
	const char *const *named;
	size_t i = 0;

	for (; i < n; i++) {
		named = (const void *)((const char *)list + i * size);
		if (strcmp(*named, name) == 0)
			break;
	}
	return i;
}

size_t tsr_word_place(const char *words, const char *word, size_t n)
{
	for (size_t place = 0; *words; place++) {
		const size_t len = strcspn(words, " ");

		if (len == n && memcmp(words, word, n) == 0)
			return place;
		words += len + (words[len] == ' ');
	}
	return SIZE_MAX;
}

bool tsr_is_word(const char *words, const char *word)
{
	return tsr_word_place(words, word, strlen(word)) != SIZE_MAX;
}

int tsr_compare_bytes(const char *a, size_t na, const char *b, size_t nb)
{
	const size_t n = na < nb ? na : nb;
	const int order = n ? memcmp(a, b, n) : 0;

	return order ? order : (na > nb) - (na < nb);
}

bool tsr_digits(const char *bytes, size_t n, uint64_t most, uint64_t *ret)
{
	uint64_t value = 0;

	for (size_t i = 0; i < n; i++) {
		if (bytes[i] < '0' || bytes[i] > '9' ||
		    __builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(bytes[i] - '0'), &value) ||
		    value > most)
			return false;
	}
	*ret = value;
	return n > 0;
}

bool tsr_digits_at_end(const char *bytes, size_t n, uint64_t most, uint64_t *ret)
{
	size_t at = n;

	while (at > 0 && bytes[at - 1] >= '0' && bytes[at - 1] <= '9')
		at--;
	return tsr_digits(bytes + at, n - at, most, ret);
}
