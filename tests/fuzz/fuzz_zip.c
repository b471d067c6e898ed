/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zip archive of any bytes: it is refused, or its members lie inside it, apart from each other,
 * under names that differ; each is loaded, or refused, the same way however it is read.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/crc.h"
#include "format/zip.h"
#include "fuzz.h"
#include "memory_files.h"
#include "mutate.h"

#define LOAD_MAX (1u << 20)
#define PREFIX 7 /* bytes before the archive when it is a part of a file */

static struct tsr_file *open_bytes(const uint8_t *data, size_t nbytes)
{
	static const char around[PREFIX + 1] = "PK\5\6PK\1";
	static const char path[] = MEMORY "/zip";
	uint8_t *file = malloc(nbytes + 2 * PREFIX);
	struct tsr_file *f = NULL;

	REQUIRE(file);
	memcpy(file, around, PREFIX);
	memcpy(file + PREFIX, data, nbytes);
	memcpy(file + PREFIX + nbytes, around, PREFIX);
	REQUIRE(memory_put(path, file, nbytes + 2 * PREFIX) &&
		tsr_file_open(path, &f, NULL) == TSR_OK);
	free(file);
	return f;
}

static const struct tsr_zip *sorted_zip;

static int by_offset(const void *va, const void *vb)
{
	const struct tsr_zip_member *a = &sorted_zip->members[*(const size_t *)va],
				    *b = &sorted_zip->members[*(const size_t *)vb];

	return (a->offset > b->offset) - (a->offset < b->offset);
}

static void check_places(const struct tsr_zip *z, size_t nbytes)
{
	size_t *order = malloc((z->nmembers + 1) * sizeof(*order));
	uint64_t end = PREFIX;

	REQUIRE(order != NULL);
	for (size_t i = 0; i < z->nmembers; i++)
		order[i] = i;
	sorted_zip = z;
	qsort(order, z->nmembers, sizeof(*order), by_offset);
	for (size_t i = 0; i < z->nmembers; i++) {
		const struct tsr_zip_member *m = &z->members[order[i]];

		/* A local header and a name of one byte are between two members at least. */
		REQUIRE(m->offset >= end && m->offset - end >= 31);
		end = m->offset;
		REQUIRE(m->stored_nbytes <= PREFIX + nbytes - end);
		end += m->stored_nbytes;
	}
	free(order);
}

static void check_names(const struct tsr_zip *z)
{
	for (size_t i = 0; i < z->nmembers; i++) {
		const struct tsr_zip_member *m = &z->members[i];

		REQUIRE(*m->name && *m->name != '/' && !strchr(m->name, '\\'));
		REQUIRE(!strstr(m->name, "//") && !strstr(m->name, "/../"));
		REQUIRE(strncmp(m->name, "../", 3) != 0 && strcmp(m->name, "..") != 0);
		REQUIRE(tsr_zip_find(z, m->name) == m);
		if (i)
			REQUIRE(strcmp(z->by_name[i - 1].name, z->by_name[i].name) < 0);
	}
}

/* What was loaded is what a scratch file gets and what a peek shows. */
static void check_loaded(const struct tsr_file *f, const struct tsr_zip_member *m,
			 const uint8_t *loaded)
{
	struct tsr_file *scratch = NULL;
	uint8_t *again = malloc(m->nbytes + 1);
	const size_t some = (size_t)(m->nbytes / 2);
	size_t got = 0;

	REQUIRE(again != NULL);
	REQUIRE(!m->has_crc || tsr_crc32(0, loaded, m->nbytes) == m->crc);
	REQUIRE(tsr_zip_peek(f, m, again, some, &got, "zip", NULL) == TSR_OK && got == some);
	REQUIRE(memcmp(again, loaded, some) == 0);
	REQUIRE(tsr_zip_inflated(f, m, "zip", &scratch, NULL) == TSR_OK);
	REQUIRE(tsr_file_size(scratch) == m->nbytes);
	REQUIRE(tsr_file_read(scratch, again, m->nbytes, 0, NULL) == TSR_OK);
	REQUIRE(memcmp(again, loaded, m->nbytes) == 0);
	tsr_file_close(scratch);
	free(again);
}

static void try_member(const struct tsr_file *f, const struct tsr_zip_member *m)
{
	uint8_t start[100];
	struct tsr_err err;
	size_t got = 0;
	void *loaded = NULL;
	enum tsr_status status = tsr_zip_load(f, m, LOAD_MAX, "zip", &loaded, &err);

	REQUIRE(m->deflated || m->nbytes == m->stored_nbytes);
	if (status == TSR_OK)
		check_loaded(f, m, loaded);
	else
		REQUIRE(!loaded && (status == TSR_E_FORMAT || status == TSR_E_LIMIT));
	free(loaded);
	status = tsr_zip_peek(f, m, start, sizeof(start), &got, "zip", &err);
	REQUIRE(status == TSR_OK || (m->deflated && status == TSR_E_FORMAT));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t room, unsigned seed)
{
	struct buffer b = { data, nbytes, room };

	mutate_seed(seed);
	mutate_zip(&b);
	return b.nbytes;
}

const struct cost_bounds fuzz_cost = { 1000000, 100, 8 << 20, 1500 };

void fuzz_input(const uint8_t *data, size_t nbytes)
{
	struct tsr_zip *z = NULL;
	struct tsr_file *f;
	struct tsr_err err;
	enum tsr_status status;

	f = open_bytes(data, nbytes);
	status = tsr_zip_read(f, PREFIX, nbytes, "zip", &z, &err);
	REQUIRE(status == TSR_OK || status == TSR_E_FORMAT || status == TSR_E_LIMIT ||
		status == TSR_E_UNSUPPORTED);
	REQUIRE((status == TSR_OK) == (z != NULL));
	REQUIRE(status == TSR_OK || strncmp(err.msg, "zip: ", 5) == 0);
	if (z) {
		check_places(z, nbytes);
		check_names(z);
		for (size_t i = 0; i < z->nmembers; i++)
			try_member(f, &z->members[i]);
	}
	tsr_zip_free(z);
	tsr_file_close(f);
}
