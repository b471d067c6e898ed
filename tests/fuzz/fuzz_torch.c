/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of torch.save of any bytes, or (if the first byte is odd) one whose pickle is any bytes
 * and whose records are fixed: it is refused, or all its tensors are in the file.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checked_checkpoint.h"
#include "torch/torch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static void read_bytes(int fd, const uint8_t *bytes, size_t nbytes)
{
	struct tsr_checkpoint *c = empty_checkpoint();
	struct tsr_value *root = NULL;
	struct tsr_err err = { 0 };
	struct tsr_file *f = NULL;
	enum tsr_status status;
	unsigned file = 0;
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	REQUIRE(ftruncate(fd, 0) == 0);
	REQUIRE(pwrite(fd, bytes, nbytes, 0) == (ssize_t)nbytes);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
	static const uint8_t record[256];
	static int fd = -1;
	uint8_t *zip;
	size_t n;

	if (fd < 0)
		fd = memfd_create("torch", MFD_CLOEXEC);
	REQUIRE(fd >= 0);
	if (!nbytes)
		return 0;
	if (data[0] % 2 == 0) {
		read_bytes(fd, data + 1, nbytes - 1);
		return 0;
	}
	zip = small_zip((const struct small_member[]){ { "r/data.pkl", data + 1, nbytes - 1 },
						       { "r/data/0", record, sizeof(record) },
						       { "r/data/1", record, 4 },
						       { "r/version", "3", 1 } },
			4, &n);
	read_bytes(fd, zip, n);
	free(zip);
	return 0;
}
