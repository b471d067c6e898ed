/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of deltas: the input is up to four packed files, each behind its length in 3 bytes.  The first is to
 * be the base of the second, and so on; they are called 0, 1, 2, 3.  The last is opened and all of it is read.
 */
#include "ckpt/checkpoint_model.h"
#include "fuzz.h"
#include "memory_files.h"
#include "packed_repair.h"

#define FILES_MAX 4u

/* Arrays up to this size are read. */
#define READ_MAX (1u << 20)

static const char *const paths[FILES_MAX] = { MEMORY "/0", MEMORY "/1", MEMORY "/2", MEMORY "/3" };

/* What is read is what was hashed, or refused as damaged. */
static void read_array(const struct tsr_checkpoint *c, const struct tsr_array *a)
{
	unsigned char *bytes, *again;
	struct tsr_err err = { 0 };
	enum tsr_status status;
	const size_t n = (size_t)a->nbytes;

	if (a->nbytes > READ_MAX)
		return;
	bytes = malloc(n + 1);
	again = malloc(n + 1);
	REQUIRE(bytes && again);
	status = tsr_array_read(c, a, 0, n, bytes, &err);
	if (status != TSR_OK) {
		check_refusal(status, &err);
	} else {
		REQUIRE(tsr_array_read(c, a, 0, n, again, &err) == TSR_OK);
		REQUIRE(memcmp(bytes, again, n) == 0);
	}
	free(bytes);
	free(again);
}

/* The depths of a chain count down to a file that is no delta, and each base is the one that is named. */
static void check_chain(const struct tsr_checkpoint *c)
{
	for (; c->base; c = c->base) {
		REQUIRE(c->base_name.name && c->base_name.set == c->base->set);
		REQUIRE(c->base_name.depth <= TSR_CHAIN_MAX);
		REQUIRE(c->base->base_name.depth < c->base_name.depth);
	}
	REQUIRE(!c->base_name.name);
}

/* Open a file of the chain; @all: and read it.  Returns its set, or 0. */
static uint64_t open_file(const char *path, bool all)
{
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	const enum tsr_status status = tsr_checkpoint_open(&path, 1, NULL, &c, &err);
	uint64_t set;

	if (status != TSR_OK) {
		REQUIRE(!c);
		check_refusal(status, &err);
		return 0;
	}
	check_chain(c);
	for (size_t i = 0; i < c->narrays && all; i++)
		read_array(c, &c->arrays[i]);
	set = c->set;
	tsr_checkpoint_close(c);
	return set;
}

/* Let a header name a base by this set. */
static void repair_set(char *header, uint64_t nbytes, uint64_t set)
{
	static const char lead[] = "\\\"set\\\":\\\"";
	const char after = header[nbytes];
	char digits[17], *base, *at;

	header[nbytes] = '\0';
	base = strstr(header, "\\\"base\\\":{");
	at = base ? strstr(base, lead) : NULL;
	if (at && strlen(at) >= sizeof(lead) - 1 + 16) {
		snprintf(digits, sizeof(digits), "%016" PRIx64, set);
		memcpy(at + sizeof(lead) - 1, digits, 16);
	}
	header[nbytes] = after;
}

/* One file of the chain, as it is or with its header and what it says of its base put right. */
static uint64_t put_file(unsigned i, const uint8_t *bytes, size_t n, bool repaired, uint64_t set)
{
	char *copy = malloc(n + 1);

	REQUIRE(copy);
	memcpy(copy, bytes, n);
	if (repaired && n >= 8) {
		const uint64_t nbytes = repair_length(copy, n);

		if (i)
			repair_set(copy + 8, nbytes, set);
		repair_check(copy + 8, nbytes);
	}
	REQUIRE(memory_put(paths[i], copy, n));
	free(copy);
	return repaired ? open_file(paths[i], false) : 0;
}

static void try_chain(const uint8_t *data, size_t size, bool repaired)
{
	uint64_t set = 0;
	unsigned i = 0;

	for (; i < FILES_MAX && size >= 3; i++) {
		size_t n = data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16;

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		set = put_file(i, data, n, repaired, set);
		data += n;
		size -= n;
	}
	if (i)
		open_file(paths[i - 1], true);
	memory_clear();
}

/* Of each file of a chain up to 12 pieces are held, in 8 MiB each that are seldom touched. */
const struct cost_bounds fuzz_cost = { 60000000, 2000, 1600 << 20, 3000 };

void fuzz_input(const uint8_t *data, size_t size)
{
	try_chain(data, size, false);
	try_chain(data, size, true);
}
