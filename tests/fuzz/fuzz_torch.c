/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of torch.save of any bytes, or (if the first byte is odd) one whose pickle is any bytes
 * and whose records are fixed: it is refused, or all its tensors are in the file.  With bit 1 of the first
 * byte, objects of any class are carried.
 */
#include <stdio.h>

#include "checked_checkpoint.h"
#include "torch/torch.h"
#include "fuzz.h"
#include "memory_files.h"
#include "mutate.h"

static void read_bytes(const uint8_t *bytes, size_t nbytes, bool carry)
{
	struct tsr_checkpoint *c = empty_checkpoint();
	struct tsr_value *root = NULL;
	struct tsr_err err = { 0 };
	struct tsr_file *f = NULL;
	enum tsr_status status;
	unsigned file = 0;
	static const char path[] = MEMORY "/torch.pt";

	if (carry)
		c->opaque = TSR_OPAQUE_CARRY;
	REQUIRE(memory_put(path, bytes, nbytes));
	REQUIRE(tsr_file_open(path, &f, NULL) == TSR_OK);
	REQUIRE(tsr_build_file(c, f, &file, NULL) == TSR_OK);
	status = tsr_torch_read(c, file, 0, nbytes, "FUZZ", "", &root, &err);
	REQUIRE((status == TSR_OK) == (root != NULL));
	if (status == TSR_OK)
		check_checkpoint(c, root);
	else
		check_refusal(status, &err);
	tsr_checkpoint_close(c);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t room, unsigned seed)
{
	struct buffer b = { data + 1, nbytes - 1, room - 1 };

	mutate_seed(seed);
	if (!nbytes || mutate_pick(30) == 0)
		return LLVMFuzzerMutate(data, nbytes, room);
	if (data[0] % 2)
		mutate_pickle(&b);
	else
		mutate_zip(&b);
	return 1 + b.nbytes;
}

const struct cost_bounds fuzz_cost = { 6000000, 250, 8 << 20, 1500 };

void fuzz_input(const uint8_t *data, size_t nbytes)
{
	static const uint8_t record[256];
	uint8_t *zip;
	size_t n;

	if (!nbytes)
		return;
	if (data[0] % 2 == 0) {
		read_bytes(data + 1, nbytes - 1, data[0] & 2);
		return;
	}
	zip = small_zip((const struct small_member[]){ { "r/data.pkl", data + 1, nbytes - 1 },
						       { "r/data/0", record, sizeof(record) },
						       { "r/data/1", record, 4 },
						       { "r/version", "3", 1 } },
			4, &n);
	read_bytes(zip, n, data[0] & 2);
	free(zip);
}
