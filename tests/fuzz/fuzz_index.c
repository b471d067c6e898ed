/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a sharded checkpoint: the input is such a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/shard_index.h"
#include "fuzz.h"
#include "memory_files.h"

static struct tsr_file *file_of(const void *bytes, size_t n)
{
	static const char path[] = MEMORY "/index.json";
	struct tsr_file *f = NULL;

	REQUIRE(memory_put(path, bytes, n) && tsr_file_open(path, &f, NULL) == TSR_OK);
	return f;
}

static void check_index(const struct tsr_index *x)
{
	bool *used = calloc(x->nshards, sizeof(*used));

	REQUIRE(used && x->nentries > 0 && x->nshards > 0 && x->nshards <= x->nentries);
	for (size_t i = 0; i < x->nshards; i++) {
		const char *name = x->shards[i];

		REQUIRE(*name && strlen(name) <= 255 && !strchr(name, '/') && !strchr(name, '\\'));
		REQUIRE(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
		REQUIRE(!i || strcmp(x->shards[i - 1], name) < 0);
	}
	for (size_t i = 0; i < x->nentries; i++) {
		const struct tsr_named *e = &x->entries[i];

		REQUIRE(e->index < x->nshards);
		used[e->index] = true;
		REQUIRE(!i || strcmp(e[-1].name, e->name) < 0);
		REQUIRE(tsr_named_find(x->entries, x->nentries, e->name) == e);
	}
	for (size_t i = 0; i < x->nshards; i++)
		REQUIRE(used[i]);
	free(used);
}

/* The text of an index that says what this one says. */
static void compose(const struct tsr_index *x, struct tsr_text *out)
{
	const char **tensors = calloc(x->nentries, sizeof(*tensors));
	const char **shards = calloc(x->nentries, sizeof(*shards));

	REQUIRE(tensors && shards);
	/* Backwards: names need not be sorted. */
	for (size_t i = 0; i < x->nentries; i++) {
		const struct tsr_named *e = &x->entries[x->nentries - 1 - i];

		tensors[i] = e->name;
		shards[i] = x->shards[e->index];
	}
	tsr_index_compose(tensors, shards, x->nentries, 12345, out);
	REQUIRE(!out->failed);
	free(tensors);
	free(shards);
}

static void check_round_trip(const struct tsr_index *x)
{
	struct tsr_text text = { 0 };
	struct tsr_index *again = NULL;
	struct tsr_file *f;

	compose(x, &text);
	f = file_of(text.bytes, text.nbytes);
	REQUIRE(tsr_index_read(f, &again, NULL) == TSR_OK);
	REQUIRE(again->nentries == x->nentries && again->nshards == x->nshards);
	REQUIRE(again->has_total && again->total == 12345);
	for (size_t i = 0; i < x->nentries; i++) {
		REQUIRE(strcmp(again->entries[i].name, x->entries[i].name) == 0);
		REQUIRE(again->entries[i].index == x->entries[i].index);
	}
	for (size_t i = 0; i < x->nshards; i++)
		REQUIRE(strcmp(again->shards[i], x->shards[i]) == 0);
	tsr_index_free(again);
	tsr_file_close(f);
	tsr_text_free(&text);
}

const struct cost_bounds fuzz_cost = { 1000000, 100, 4 << 20, 300 };

void fuzz_input(const uint8_t *data, size_t size)
{
	struct tsr_file *f = file_of(data, size);
	struct tsr_index *x = NULL;
	struct tsr_err err;

	if (tsr_index_read(f, &x, &err) == TSR_OK) {
		check_index(x);
		check_round_trip(x);
		tsr_index_free(x);
	} else {
		REQUIRE(!x);
	}
	tsr_file_close(f);
}
