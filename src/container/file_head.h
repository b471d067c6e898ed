/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of a file, by which its container is detected. */
#ifndef TSR_CONTAINER_FILE_HEAD_H
#define TSR_CONTAINER_FILE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file.h"

/* The first bytes of a file and what else shows its container. */
struct tsr_file_head {
	unsigned char bytes[512];
	size_t n;
	uint64_t file_nbytes;
	bool is_zip, has_npy; /* a zip archive, and one of arrays */
};

/* Read the head of a file, but not whether it is an archive. */
enum tsr_status tsr_file_head_read(const struct tsr_file *f, struct tsr_file_head *head,
				   struct tsr_err *err);

/* The first byte from @at on that is not a space in JSON; 0 if there is none before @end. */
unsigned char tsr_file_head_json(const struct tsr_file_head *head, size_t at, size_t end);

#endif
