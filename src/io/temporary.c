/* SPDX-License-Identifier: Apache-2.0 */
/* Names and descriptors for outputs in the making. */
#include "io/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/old_libc.h"
#include "io/file_calls.h"

char *tsr_path_directory(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return strdup(".");
	return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

const char *tsr_path_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *tsr_path_trim(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

int tsr_open_at(int dir_fd, const char *path, int flags)
{
	int fd;

	do {
		fd = openat(dir_fd, path, flags);
	} while (fd < 0 && errno == EINTR);
	return fd;
}

enum tsr_status tsr_path_open_directory(const char *path, int *fd_ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *dir = tsr_path_directory(path);

	if (!dir)
		return tsr_fail_nomem(err, path);
	*fd_ret = tsr_open_at(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *fd_ret < 0 ? tsr_fail_errno(err, errno, "%s: cannot open its directory", path)
			   : TSR_OK;
}

enum tsr_status tsr_temporary_name_of(const char *name, uint64_t id, const char *path, char **ret,
				      struct tsr_err *err)
{
	/* Of a long name only the beginning: the temporary one must not be longer than names can be. */
	if (asprintf(ret, ".%.200s.%016" PRIx64 ".tmp", name, id) < 0)
		return tsr_fail_nomem(err, path);
	return TSR_OK;
}

/* On Linux before 3.17. */
static ssize_t read_random(void *bytes, size_t nbytes)
{
	TSR_SCOPED(tsr_fd_close) int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -1 : read(fd, bytes, nbytes);
}

static enum tsr_status choose_random(const char *path, uint64_t *ret, struct tsr_err *err)
{
	ssize_t got;

	do {
		got = getrandom(ret, sizeof(*ret), 0);
	} while (got < 0 && errno == EINTR);
	if (got < 0 && errno == ENOSYS)
		got = read_random(ret, sizeof(*ret));
	if (got != (ssize_t)sizeof(*ret))
		return tsr_fail_errno(err, errno, "%s: no random name", path);
	return TSR_OK;
}

enum tsr_status tsr_temporary_name(const char *name, const char *path, char **ret,
				   struct tsr_err *err)
{
	uint64_t random;

	TSR_TRY(choose_random(path, &random, err));
	return tsr_temporary_name_of(name, random, path, ret, err);
}

bool tsr_temporary_is_name(const char *name)
{
	const size_t n = strlen(name);
	const char *digits = n > 22 ? name + n - 20 : NULL;

	return digits && name[0] == '.' && digits[-1] == '.' &&
	       strspn(digits, "0123456789abcdef") == 16 && strcmp(digits + 16, ".tmp") == 0;
}

static atomic_int in_the_making;

void tsr_temporary_hold(int change)
{
	atomic_fetch_add(&in_the_making, change);
}

bool tsr_temporary_any(void)
{
	return atomic_load(&in_the_making) != 0;
}

/* An interrupted fsync did not begin; any other failure is final: the kernel may drop the pages. */
int tsr_temporary_sync(int fd)
{
	int failed;

	do {
		failed = fsync(fd);
	} while (failed && errno == EINTR);
	return failed;
}

bool tsr_temporary_lacking(int errnum)
{
	return errnum == EINVAL || errnum == ENOSYS || errnum == EOPNOTSUPP;
}
