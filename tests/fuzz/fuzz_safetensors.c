/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file: the input is such a file. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "format/shard_index.h"
#include "format/safetensors.h"
#include "fuzz.h"
#include "header_repair.h"
#include "memory_files.h"

/* Names, shapes and metadata of one input. */
#define ARENA_MAX (64u << 20)

/* A file without a name that starts with these bytes and has @nbytes in all. */
static struct tsr_file *file_of(const void *bytes, size_t n, uint64_t nbytes)
{
	static const char path[] = MEMORY "/input";
	struct tsr_file *f = NULL;

	REQUIRE(memory_put(path, bytes, n));
	memory_set_size(path, nbytes);
	REQUIRE(tsr_file_open(path, &f, NULL) == TSR_OK);
	return f;
}

/* Every byte behind the header belongs to one array; returns how many there are. */
static uint64_t check_contents(const struct tsr_st_contents *c, uint64_t file_nbytes)
{
	const uint64_t data_start = 8 + c->header_nbytes;
	uint64_t at = data_start;

	REQUIRE(c->header_nbytes <= TSR_ST_HEADER_MAX && data_start <= file_nbytes);
	for (size_t i = 0; i < c->narrays; i++) {
		const struct tsr_st_entry *a = &c->arrays[i];
		uint64_t numel = 1, nbits;

		REQUIRE(a->dtype < TSR_DTYPE_COUNT && a->rank <= TSR_RANK_MAX);
		REQUIRE(strlen(a->name) <= TSR_NAME_MAX);
		for (unsigned d = 0; d < a->rank; d++) {
			REQUIRE(a->shape[d] <= TSR_JSON_INT_MAX);
			REQUIRE(!__builtin_mul_overflow(numel, a->shape[d], &numel));
		}
		REQUIRE(a->numel == numel && a->offset == at);
		REQUIRE(!__builtin_mul_overflow(numel, (uint64_t)tsr_dtype_bits(a->dtype), &nbits));
		REQUIRE(nbits % 8 == 0 && a->nbytes == nbits / 8);
		REQUIRE(a->nbytes <= file_nbytes - at);
		at += a->nbytes;
	}
	REQUIRE(at == file_nbytes);
	return at - data_start;
}

static void check_equal(const struct tsr_st_contents *a, const struct tsr_st_contents *b)
{
	REQUIRE(a->narrays == b->narrays && a->nmeta == b->nmeta);
	for (size_t i = 0; i < a->narrays; i++) {
		const struct tsr_st_entry *x = &a->arrays[i], *y = &b->arrays[i];

		REQUIRE(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype);
		REQUIRE(x->rank == y->rank && x->numel == y->numel && x->nbytes == y->nbytes);
		for (unsigned d = 0; d < x->rank; d++)
			REQUIRE(x->shape[d] == y->shape[d]);
	}
	for (size_t i = 0; i < a->nmeta; i++) {
		REQUIRE(strcmp(a->meta[i].key, b->meta[i].key) == 0);
		REQUIRE(strcmp(a->meta[i].value, b->meta[i].value) == 0);
	}
}

/* The header that a writer makes of the same arrays in the same order says the same. */
static void check_round_trip(const struct tsr_st_contents *c, uint64_t data_nbytes)
{
	struct tsr_st_entry *entries = calloc(c->narrays + 1, sizeof(*entries));
	struct tsr_arena *arena = tsr_arena_new(ARENA_MAX);
	struct tsr_st_contents again = { 0 };
	struct tsr_text header = { 0 };
	struct tsr_file *f;
	struct tsr_err err;

	REQUIRE(entries && arena);
	for (size_t i = 0; i < c->narrays; i++) {
		const struct tsr_st_entry *a = &c->arrays[i];

		entries[i] = (struct tsr_st_entry){
			.name = a->name,
			.dtype = a->dtype,
			.rank = a->rank,
			.shape = a->shape,
			.nbytes = a->nbytes,
		};
	}
	REQUIRE(tsr_st_layout(entries, c->narrays) == data_nbytes);
	for (size_t i = 0; i < c->narrays; i++)
		REQUIRE(entries[i].offset == c->arrays[i].offset - 8 - c->header_nbytes);
	tsr_st_compose(entries, c->narrays, c->meta, c->nmeta, &header);
	REQUIRE(tsr_st_frame(&header, header.nbytes, "again", &err) == TSR_OK);
	REQUIRE(header.nbytes % 8 == 0);
	f = file_of(header.bytes, header.nbytes, header.nbytes + data_nbytes);
	REQUIRE(tsr_st_read(f, arena, &again, &err) == TSR_OK);
	check_equal(c, &again);
	tsr_file_close(f);
	tsr_st_contents_free(&again);
	tsr_arena_free(arena);
	tsr_text_free(&header);
	free(entries);
}

/* Returns the size that the file should have had, if that was all that was wrong; else 0. */
static uint64_t read_file(const void *bytes, size_t n, uint64_t nbytes)
{
	struct tsr_file *f = file_of(bytes, n, nbytes);
	struct tsr_arena *arena = tsr_arena_new(ARENA_MAX);
	struct tsr_st_contents c = { 0 };
	uint64_t right = 0;
	struct tsr_err err;

	REQUIRE(arena);
	if (tsr_st_read(f, arena, &c, &err) == TSR_OK) {
		check_round_trip(&c, check_contents(&c, nbytes));
	} else {
		REQUIRE(!c.arrays && !c.meta && !c.header);
		right = right_size(err.msg, nbytes);
	}
	tsr_st_contents_free(&c);
	tsr_arena_free(arena);
	tsr_file_close(f);
	return right;
}

const struct cost_bounds fuzz_cost = { 1000000, 100, 4 << 20, 300 };

/* Mutations seldom keep the length of the header right: try the input as it is, then repaired. */
void fuzz_input(const uint8_t *data, size_t size)
{
	char *copy;
	uint64_t right;

	read_file(data, size, size);
	if (size < 8)
		return;
	copy = malloc(size);
	REQUIRE(copy);
	memcpy(copy, data, size);
	repair_length(copy, size);
	right = read_file(copy, size, size);
	/* Nor that of the data: it may be a hole. */
	if (right && right < UINT64_C(1) << 48)
		REQUIRE(!read_file(copy, right < size ? (size_t)right : size, right));
	free(copy);
}
