/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of names, sorted, in which things are found by their names. */
#include "text/named.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *va, const void *vb)
{
	const struct tsr_named *a = va, *b = vb;
	const int order = strcmp(a->name, b->name);

	return order ? order : (a->index > b->index) - (a->index < b->index);
}

void tsr_named_sort(struct tsr_named *list, size_t n)
{
	if (n)
		qsort(list, n, sizeof(*list), compare);
}

static int compare_joined(const char *name, const char *start, size_t len, const char *suffix)
{
	const int order = strncmp(name, start, len);

	return order ? order : strcmp(name + len, suffix);
}

const struct tsr_named *tsr_named_find_joined(const struct tsr_named *sorted, size_t n,
					      const char *name, size_t len, const char *suffix)
{
	size_t low = 0, high = n;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (compare_joined(sorted[mid].name, name, len, suffix) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < n && compare_joined(sorted[low].name, name, len, suffix) == 0 ? &sorted[low]
										   : NULL;
}

const struct tsr_named *tsr_named_find(const struct tsr_named *sorted, size_t n, const char *name)
{
	return tsr_named_find_joined(sorted, n, name, strlen(name), "");
}
