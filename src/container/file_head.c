/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of a file, by which its container is detected. */
#include "container/file_head.h"

#include <string.h>

enum tsr_status tsr_file_head_read(const struct tsr_file *f, struct tsr_file_head *head,
				   struct tsr_err *err)
{
	*head = (struct tsr_file_head){ .file_nbytes = tsr_file_size(f) };
	head->n = head->file_nbytes < sizeof(head->bytes) ? (size_t)head->file_nbytes
							  : sizeof(head->bytes);
	return tsr_file_read(f, head->bytes, head->n, 0, err);
}

unsigned char tsr_file_head_json(const struct tsr_file_head *head, size_t at, size_t end)
{
	while (at < end && memchr(" \t\n\r", head->bytes[at], 4))
		at++;
	return at < end ? head->bytes[at] : 0;
}
