/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a packed directory: the input is one, tried as it is and with its check put right. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "directory/traversal.h"
#include "io/hash.h"
#include "fuzz.h"
#include "memory_files.h"

static const char folder[] = MEMORY "/directory";

static void write_index(const void *bytes, size_t n)
{
	REQUIRE(memory_put(MEMORY "/directory/" TSR_DIRECTORY_INDEX, bytes, n));
}

/* Nothing in an index that was accepted leads out of the directory or to the file of another entry. */
static void check_path(const char *path)
{
	REQUIRE(*path && *path != '/' && !strchr(path, '\\') && strlen(path) <= TSR_NODE_PATH_MAX);
	for (const char *at = path; at; at = strchr(at, '/')) {
		at += *at == '/';
		REQUIRE(*at && *at != '/' && strncmp(at, "../", 3) != 0 && strcmp(at, "..") != 0);
	}
}

static void check_entries(const struct tsr_directory *d)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct tsr_directory_entry *e = &d->entries[i];

		check_path(e->path);
		REQUIRE(!i || strcmp(e[-1].path, e->path) < 0);
		REQUIRE(e->mode <= 0777 && tsr_directory_find(d, e->path) == e);
		for (unsigned j = 0; j < e->nstored; j++) {
			const struct tsr_directory_entry *other = tsr_directory_find(
				d, e->stored[j].path);

			check_path(e->stored[j].path);
			REQUIRE(!other || other == e);
		}
	}
}

/* Written and read back it says the same. */
static void check_round_trip(struct tsr_directory *d)
{
	struct tsr_traversal t = { .d = d };
	struct tsr_directory *again = NULL;
	char path[64];

	memory_remove(folder);
	snprintf(path, sizeof(path), "%s/" TSR_DIRECTORY_INDEX, folder);
	REQUIRE(tsr_directory_write_index(&t, path) == TSR_OK);
	REQUIRE(tsr_directory_open(folder, &again, NULL) == TSR_OK);
	REQUIRE(again->n == d->n && again->mode == d->mode);
	for (size_t i = 0; i < d->n; i++) {
		const struct tsr_directory_entry *a = &d->entries[i], *b = &again->entries[i];

		REQUIRE(strcmp(a->path, b->path) == 0 && a->as == b->as && a->mode == b->mode);
		REQUIRE(a->nbytes == b->nbytes && a->nstored == b->nstored);
	}
	tsr_directory_close(again);
}

static void try_index(const void *bytes, size_t n)
{
	struct tsr_directory *d = NULL;
	struct tsr_err err = { .msg = "" };

	write_index(bytes, n);
	if (tsr_directory_open(folder, &d, &err) != TSR_OK) {
		REQUIRE(!d && err.msg[0]);
		return;
	}
	check_entries(d);
	check_round_trip(d);
	tsr_directory_close(d);
}

const struct cost_bounds fuzz_cost = { 1000000, 100, 4 << 20, 300 };

void fuzz_input(const uint8_t *data, size_t size)
{
	char *sealed = malloc(size + 1), hex[17];

	try_index(data, size);
	if (size >= 19) {
		memcpy(sealed, data, size);
		memset(sealed + size - 19, '0', 16);
		snprintf(hex, sizeof(hex), "%016" PRIx64, tsr_hash(sealed, size, 0));
		memcpy(sealed + size - 19, hex, 16);
		try_index(sealed, size);
	}
	free(sealed);
}
