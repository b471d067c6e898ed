/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files without libFuzzer: how `make check` replays the corpora. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t room);

/* Of libFuzzer, which the targets' mutations call; here nothing is mutated. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t room)
{
	(void)data;
	(void)room;
	return nbytes;
}

static int replay(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t size = 0, room = 1;

	if (!f) {
		perror(path);
		return 1;
	}
	do {
		room *= 2;
		data = realloc(data, room);
		if (!data)
			abort();
		size += fread(data + size, 1, room - size, f);
	} while (size == room);
	fclose(f);
	/* Exactly as large as the input, so that tools see a read past its end. */
	data = realloc(data, size ? size : 1);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (int i = 1; i < argc; i++)
		failed |= replay(argv[i]);
	printf("%s: %d inputs\n", argv[0], argc - 1);
	return failed || argc < 2;
}
