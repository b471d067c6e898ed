/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of names, sorted, in which things are found by their names. */
#include "text/named.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "base/scope.h"

TSR_COMPARE_BY(compare, struct tsr_named, strcmp(a->name, b->name), TSR_ORDER(a->index, b->index))

TSR_COMPARE_BY(by_address, struct tsr_named, TSR_ORDER((uintptr_t)a->name, (uintptr_t)b->name),
	       TSR_ORDER(a->index, b->index))

/* An entry of the list, and the place of its name among all names. */
struct placed {
	size_t place;
	struct tsr_named entry;
};

TSR_COMPARE_BY(by_place, struct placed, TSR_ORDER(a->place, b->place),
	       TSR_ORDER(a->entry.index, b->entry.index))

/*
 * Sort a list that is sorted by address and has only @nnames of these, so that each of them is compared
 * as if it came once: a file may have one long name in very many places.
 */
static bool sort_repeated(struct tsr_named *list, size_t n, size_t nnames)
{
	TSR_OWNED(free) struct tsr_named *names = malloc(nnames * sizeof(*names));
	TSR_OWNED(free) size_t *place = malloc(nnames * sizeof(*place));
	TSR_OWNED(free) struct placed *placed = malloc(n * sizeof(*placed));
	const bool ok = names && place && placed;
	size_t k = 0;

	for (size_t i = 0; i < n && ok; i++) {
		if (!i || list[i].name != list[i - 1].name)
			names[k] = (struct tsr_named){ list[i].name, k }, k++;
		placed[i] = (struct placed){ k - 1, list[i] };
	}
	if (ok)
		qsort(names, nnames, sizeof(*names), compare);
	/* Equal names at two addresses have one place. */
	for (size_t i = 0; i < nnames && ok; i++)
		place[names[i].index] = i && strcmp(names[i].name, names[i - 1].name) == 0
						? place[names[i - 1].index]
						: i;
	for (size_t i = 0; i < n && ok; i++)
		placed[i].place = place[placed[i].place];
	if (ok)
		qsort(placed, n, sizeof(*placed), by_place);
	for (size_t i = 0; i < n && ok; i++)
		list[i] = placed[i].entry;
	return ok;
}

void tsr_named_sort(struct tsr_named *list, size_t n)
{
	size_t nnames = n > 0;

	if (!n)
		return;
	qsort(list, n, sizeof(*list), by_address);
	for (size_t i = 1; i < n; i++)
		nnames += list[i].name != list[i - 1].name;
	/* Without memory it takes longer. */
	if (nnames == n || !sort_repeated(list, n, nnames))
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
