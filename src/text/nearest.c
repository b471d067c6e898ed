/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to a wrong one: what other programs call it, or by edit distance. */
#include "text/nearest.h"

#include <stdbool.h>
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

/* Words of other programs and commands, and what is meant by them here. */
static const char *const meant[][2] = {
	{ "compress", "pack" },	     { "save", "pack" },	   { "restore", "unpack" },
	{ "extract", "unpack" },     { "decompress", "unpack" },   { "info", "inspect" },
	{ "list", "inspect" },	     { "show", "inspect" },	   { "compare", "diff" },
	{ "check", "verify" },	     { "test", "verify" },	   { "recommend", "audit" },
	{ "merge", "join" },	     { "tolerance", "max-error" }, { "bound", "max-error" },
	{ "codec", "state" },	     { "codecs", "codec" },	   { "as", "npy-dtype" },
	{ "out", "output" },	     { "output-dir", "output" },   { "outdir", "output" },
	{ "jobs", "threads" },	     { "workers", "threads" },	   { "overwrite", "force" },
	{ "gpu", "device" },	     { "dtype", "npy-dtype" },	   { "lossless", "entropy" },
	{ "max-size", "max-bytes" },
};

static bool means(const char *wrong, const char *name)
{
	for (size_t i = 0; i < sizeof(meant) / sizeof(*meant); i++) {
		if (strcmp(meant[i][0], wrong) == 0 && strcmp(meant[i][1], name) == 0)
			return true;
	}
	return false;
}

void tsr_nearest_offer(struct tsr_nearest *nearest, const char *name)
{
	const unsigned distance = means(nearest->wrong, name) ? 0
							      : edit_distance(nearest->wrong, name);

	if (distance >= (nearest->name ? nearest->distance : strlen(nearest->wrong) / 3 + 2))
		return;
	nearest->name = name;
	nearest->distance = distance;
}
