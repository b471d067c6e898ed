/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of names, sorted, in which things are found by their names. */
#ifndef TSR_TEXT_NAMED_H
#define TSR_TEXT_NAMED_H

#include <stddef.h>

/* A name, and the index of its owner in some other list. */
struct tsr_named {
	const char *name;
	size_t index;
};

/* Sort by name, then by index. */
void tsr_named_sort(struct tsr_named *list, size_t n);

/* The first entry of a sorted list that has this name, or NULL. */
const struct tsr_named *tsr_named_find(const struct tsr_named *sorted, size_t n, const char *name);

/* The same for the name that @suffix makes of the first @len bytes of @name. */
const struct tsr_named *tsr_named_find_joined(const struct tsr_named *sorted, size_t n,
					      const char *name, size_t len, const char *suffix);

#endif
