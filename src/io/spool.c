/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs that can be read once, in order: spooled into a scratch file. */
#include "io/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/file_calls.h"

#define BUFFER_NBYTES (1u << 20)

/* Wait for data, or for a writer; then as read(). */
static ssize_t read_next(int fd, void *buf, size_t nbytes)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	ssize_t got;

	do {
		if (poll(&wait, 1, -1) < 0)
			return -1;
		got = read(fd, buf, nbytes);
	} while (got < 0 && errno == EAGAIN);
	return got;
}

static enum tsr_status copy(int fd, struct tsr_file *scratch, char *buf, struct tsr_err *err)
{
	const char *path = tsr_file_path(scratch);
	uint64_t at = 0;
	ssize_t got;

	while ((got = read_next(fd, buf, BUFFER_NBYTES)) != 0) {
		if (got < 0)
			return tsr_fail_interrupted(err, errno, "%s: cannot read", path);
		if (at + (uint64_t)got > TSR_SPOOL_NBYTES_MAX)
			return tsr_fail(err, TSR_E_LIMIT,
					"%s: more than the limit of %" PRIu64
					" bytes for an input that is not a file",
					path, TSR_SPOOL_NBYTES_MAX);
		TSR_TRY(tsr_file_scratch_write(scratch, buf, (size_t)got, at, err));
		at += (uint64_t)got;
	}
	return TSR_OK;
}

static enum tsr_status spool(int fd, const char *path, struct tsr_file **ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *buf = malloc(BUFFER_NBYTES);
	struct tsr_file *scratch = NULL;
	enum tsr_status status = buf ? tsr_file_scratch(path, &scratch, err)
				     : tsr_fail_nomem(err, path);

	if (status == TSR_OK)
		status = copy(fd, scratch, buf, err);
	return TSR_MADE(status, ret, scratch, tsr_file_close);
}

enum tsr_status tsr_spool_open(const char *path, struct tsr_file **ret, struct tsr_err *err)
{
	const bool own = strcmp(path, TSR_STANDARD_INPUT) == 0;
	TSR_SCOPED(tsr_fd_close) int fd = -1;
	struct stat st;

	/* The writer of a FIFO that was opened and closed again would get a broken pipe. */
	if (!own && (stat(path, &st) != 0 || !S_ISFIFO(st.st_mode)))
		return tsr_file_open(path, ret, err);
	fd = own ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
		 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
		return spool(fd, path, ret, err);
	return tsr_file_open(path, ret, err);
}
