/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to a mistyped one, by edit distance. */
#include "text/nearest.h"

#include <string.h>

#define NAME_MAX_COMPARED 40

static unsigned edit_distance(const char *a, const char *b)
{
	unsigned row[NAME_MAX_COMPARED + 1];
	const size_t na = strlen(a), nb = strlen(b);

	if (na > NAME_MAX_COMPARED || nb > NAME_MAX_COMPARED)
		return NAME_MAX_COMPARED;
	for (unsigned j = 0; j <= nb; j++)
		row[j] = j;
	for (unsigned i = 1; i <= na; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			const unsigned substitute = diagonal + (a[i - 1] != b[j - 1]);
			unsigned least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

			diagonal = row[j];
			row[j] = substitute < least ? substitute : least;
		}
	}
	return row[nb];
}

void tsr_nearest_offer(struct tsr_nearest *nearest, const char *name)
{
	const unsigned distance = edit_distance(nearest->wrong, name);

	if (distance >= (nearest->name ? nearest->distance : strlen(nearest->wrong) / 3 + 2))
		return;
	nearest->name = name;
	nearest->distance = distance;
}
