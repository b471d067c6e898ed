/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is a file without a name, for what is larger than memory. */
#ifndef TSR_IO_MAPPED_H
#define TSR_IO_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "io/file.h"

struct tsr_mapped;

/**
 * tsr_mapped_new() - Reserve memory on disk
 * @directory: where the file is, which never has a name there
 * @what:      what messages begin with
 * @nbytes:    all of it, reserved at once: a full disk shows now.  The file has zeros
 * @ret:       out: to be freed with tsr_mapped_free()
 *
 * Return: TSR_OK, TSR_E_IO or TSR_E_NOMEM.  A disk that fails later ends the process by SIGBUS.
 */
enum tsr_status tsr_mapped_new(const char *directory, const char *what, uint64_t nbytes,
			       struct tsr_mapped **ret, struct tsr_err *err);

/* The next @nbytes, aligned to cache lines; NULL when there are no more. */
void *tsr_mapped_take(struct tsr_mapped *m, uint64_t nbytes);

/* Part of it is not needed for some time: its whole pages go to disk.  Thread-safe. */
void tsr_mapped_leave(struct tsr_mapped *m, const void *at, size_t nbytes);

/* The file as one to be read, and where in it some of the memory is.  To be closed by the caller. */
enum tsr_status tsr_mapped_file(const struct tsr_mapped *m, struct tsr_file **ret,
				struct tsr_err *err);
uint64_t tsr_mapped_offset(const struct tsr_mapped *m, const void *at);

void tsr_mapped_free(struct tsr_mapped *m);

#endif
