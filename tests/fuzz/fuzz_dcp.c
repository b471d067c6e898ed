/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the .metadata of a directory whose one data file, __0_0.distcp, holds four tensors
 * of two floats at multiples of BLOB_NBYTES, and the int 7 behind them.
 */
#include <stdio.h>

#include "checked_checkpoint.h"
#include "ckpt/checkpoint_model.h"
#include "torch/dcp.h"
#include "fuzz.h"
#include "memory_files.h"
#include "mutate.h"

#define TENSORS 4
#define BLOB_NBYTES 512u

#define PICKLE \
	"\200\002ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1" \
	"0U\3cpuK\2tQK\0K\2\205K\1\205\211ccollections\nOrderedDict\n)RtR."

static const char directory[] = MEMORY "/dcp";

static void put_file(const char *name, const void *bytes, size_t nbytes)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	REQUIRE(memory_put(path, bytes, nbytes));
}

/* A blob is filled up by its version, so that each has the same length. */
static size_t make_blob(uint8_t *out, const char *pickle, size_t nbytes)
{
	static const uint8_t filler[BLOB_NBYTES];
	struct small_member members[] = { { "r/data.pkl", pickle, nbytes },
					  { "r/data/0", filler, 8 },
					  { "r/version", "3", 1 },
					  { "r/x", filler, 0 } };
	uint8_t *zip;
	size_t n;

	for (unsigned i = 0; i < 2; i++) {
		zip = small_zip(members, 4, &n);
		REQUIRE(n <= BLOB_NBYTES);
		members[3].nbytes = BLOB_NBYTES - n;
		if (i)
			memcpy(out, zip, n);
		free(zip);
	}
	REQUIRE(n == BLOB_NBYTES);
	return n;
}

static void make_directory(void)
{
	static uint8_t data[(TENSORS + 1) * BLOB_NBYTES];

	if (!data[0]) {
		for (size_t i = 0; i < TENSORS; i++)
			make_blob(data + i * BLOB_NBYTES, PICKLE, sizeof(PICKLE) - 1);
		make_blob(data + TENSORS * BLOB_NBYTES, "\200\002K\7.", 5);
	}
	put_file("__0_0.distcp", data, sizeof(data));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t room, unsigned seed)
{
	struct buffer b = { data, nbytes, room };

	mutate_seed(seed);
	mutate_pickle(&b);
	return b.nbytes;
}

const struct cost_bounds fuzz_cost = { 1000000, 100, 4 << 20, 300 };

void fuzz_input(const uint8_t *data, size_t nbytes)
{
	struct tsr_checkpoint *c = empty_checkpoint();
	struct tsr_err err = { 0 };
	enum tsr_status status;

	make_directory();
	put_file(".metadata", data, nbytes);
	REQUIRE(tsr_dcp_looks_like(directory));
	status = tsr_dcp_read_links(c, directory, false, &err);
	if (status == TSR_OK) {
		REQUIRE(c->ntrees == 1);
		check_checkpoint(c, c->trees[0]);
	} else {
		check_refusal(status, &err);
	}
	tsr_checkpoint_close(c);
}
