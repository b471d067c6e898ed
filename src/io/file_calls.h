/* SPDX-License-Identifier: Apache-2.0 */
/* What files that call the system share. */
#ifndef TSR_IO_FILE_CALLS_H
#define TSR_IO_FILE_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tersor/status.h"

/* What a file that is not a regular one is. */
const char *tsr_file_kind(mode_t mode);

bool tsr_same_file(const struct stat *a, const struct stat *b);

/* open(), begun again where a signal interrupted it; creates nothing. */
int tsr_open_at(int dir_fd, const char *path, int flags);

/* Close a descriptor that is not -1, where its scope ends. */
static inline void tsr_fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* A descriptor of a file without a name in $TMPDIR (/tmp), for both ways; or -1 and errno. */
int tsr_scratch_open(const char **directory_ret);

/* The same in another directory. */
int tsr_nameless_open(const char *directory);

struct tsr_file;

/* A scratch file of such a descriptor, which is -1 with errno if it could not be opened. */
enum tsr_status tsr_file_take_scratch(int fd, const char *path, const char *dir,
				      struct tsr_file **ret, struct tsr_err *err);

/* What a message says where writing a scratch file fails. */
#define TSR_SCRATCH_FAILED "cannot write its scratch file in $TMPDIR or /tmp"

/* All of @nbytes at @offset of a regular file; @what: what the message says went wrong. */
enum tsr_status tsr_write_all(int fd, const char *path, const char *what, const void *buf,
			      size_t nbytes, uint64_t offset, struct tsr_err *err);

/* As tsr_fail_errno(), but TSR_E_CANCELLED where a signal interrupted a call that waits for others. */
#define tsr_fail_interrupted(err, errnum, ...) \
	((errnum) == EINTR ? tsr_fail(err, TSR_E_CANCELLED, __VA_ARGS__) \
			   : tsr_fail_errno(err, errnum, __VA_ARGS__))

#endif
