/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about texts that may not end in NUL: their order, their digits, and whether a list has one. */
#ifndef TSR_TEXT_BYTES_H
#define TSR_TEXT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which of @n elements of @size bytes, each of which begins with its name, is called so; @n: none. */
size_t tsr_name_index(const char *name, const void *list, size_t n, size_t size);

#define TSR_NAME_INDEX(name, list) \
	tsr_name_index((name), (list), sizeof(list) / sizeof(*(list)), sizeof(*(list)))
#define TSR_IS_AMONG(name, list) (TSR_NAME_INDEX((name), (list)) < sizeof(list) / sizeof(*(list)))

/* The same for a table of an enum: *ret is the one that is called so, if one is. */
#define TSR_FIND_NAME(name, list, ret) \
	(TSR_IS_AMONG((name), (list)) && \
	 (*(ret) = (__typeof__(*(ret)))TSR_NAME_INDEX((name), (list)), true))

/*
 * Which of some words, with one space between each and the next, the @n bytes at @word are, counted from 0;
 * SIZE_MAX: none of them.
 */
size_t tsr_word_place(const char *words, const char *word, size_t n);

/* Whether a text is one of the words. */
bool tsr_is_word(const char *words, const char *word);

/* The order of texts by their bytes, the shorter one first if it begins the other. */
int tsr_compare_bytes(const char *a, size_t na, const char *b, size_t nb);

/*
 * The value of @n bytes that are digits, at least one; false for anything else, and if it is over @most.
 */
bool tsr_digits(const char *bytes, size_t n, uint64_t most, uint64_t *ret);

/* The same of the digits that they end in. */
bool tsr_digits_at_end(const char *bytes, size_t n, uint64_t most, uint64_t *ret);

#endif
