/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the .metadata of a directory whose one data file, __0_0.distcp, holds four tensors
 * of two floats at multiples of BLOB_NBYTES, and the int 7 behind them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "checked_checkpoint.h"
#include "ckpt/checkpoint_model.h"
#include "torch/dcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

#define TENSORS 4
#define BLOB_NBYTES 512u

#define PICKLE \
	"\200\002ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1" \
	"0U\3cpuK\2tQK\0K\2\205K\1\205\211ccollections\nOrderedDict\n)RtR."

static char directory[] = "/tmp/fuzz-dcp-XXXXXX";

static void put_file(const char *name, const void *bytes, size_t nbytes)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	REQUIRE(fd >= 0 && write(fd, bytes, nbytes) == (ssize_t)nbytes && close(fd) == 0);
}

static void remove_directory(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/.metadata", directory);
	unlink(path);
	snprintf(path, sizeof(path), "%s/__0_0.distcp", directory);
	unlink(path);
	rmdir(directory);
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
	uint8_t data[(TENSORS + 1) * BLOB_NBYTES];

	REQUIRE(mkdtemp(directory) != NULL);
	atexit(remove_directory);
	for (size_t i = 0; i < TENSORS; i++)
		make_blob(data + i * BLOB_NBYTES, PICKLE, sizeof(PICKLE) - 1);
	make_blob(data + TENSORS * BLOB_NBYTES, "\200\002K\7.", 5);
	put_file("__0_0.distcp", data, sizeof(data));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
	static int ready;
	struct tsr_checkpoint *c = empty_checkpoint();
	struct tsr_err err = { 0 };
	enum tsr_status status;

	if (!ready)
		make_directory();
	ready = 1;
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
	return 0;
}
