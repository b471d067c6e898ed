/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_TREE_H
#define TSR_TESTS_TREE_H

/*
 * Inputs that are several files.  Two bytes of options, then per file: its kind (TREE_), the length of its path,
 * the length of its bytes in three bytes, little-endian; the path, whose directories are made; the bytes.
 * Lengths past the end mean the end.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tree_kind {
	TREE_FILE, /* these bytes */
	TREE_TORCH, /* an archive of torch.save with this pickle, and each record as large as it asks for */
	TREE_SAFETENSORS, /* this header, and data as its data_offsets say */
	TREE_PACKED, /* as TREE_SAFETENSORS, and the header's check is put right */
	TREE_KINDS
};

#define TREE_HEAD 5u /* bytes before the path */
#define TREE_FILES_MAX 128u

/* The most data that is made for one tensor, and for one file. */
#define TREE_RECORD_MAX ((size_t)1 << 16)
#define TREE_DATA_MAX ((size_t)1 << 18)

struct tree_file {
	unsigned kind;
	const uint8_t *path, *bytes;
	size_t npath, nbytes;
};

struct tree {
	uint8_t options[2];
	struct tree_file files[TREE_FILES_MAX];
	size_t n;
};

void tree_parse(struct tree *t, const uint8_t *data, size_t nbytes);

/* Write the files below @directory (memory_files.h); those with paths that cannot be are left out. */
void tree_write(const struct tree *t, const char *directory);

/* The target's mutations. */
size_t tree_mutate(uint8_t *data, size_t nbytes, size_t room, unsigned seed);
size_t tree_cross(const uint8_t *a, size_t na, const uint8_t *b, size_t nb, uint8_t *out, size_t room, unsigned seed);

#endif
