/* SPDX-License-Identifier: Apache-2.0 */
/* Files that several processes write together. */
#include "io/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/temporary.h"

/* The size of one that others have written, or else give it that size. */
static enum tsr_status settle_size(int fd, const char *name, uint64_t nbytes, bool joins,
				   const char *path, struct tsr_err *err)
{
	struct stat st;
	int failed;

	if (fstat(fd, &st) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat %s, the file of all parts", path,
				      name);
	if (joins && (uint64_t)st.st_size != nbytes)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found %ju bytes in %s, the file of all parts, expected "
				"%" PRIu64,
				path, (uintmax_t)st.st_size, name, nbytes);
	if ((uint64_t)st.st_size == nbytes)
		return TSR_OK;
	do {
		failed = ftruncate(fd, (off_t)nbytes);
	} while (failed && errno == EINTR);
	return failed ? tsr_fail_errno(err, errno, "%s: cannot give %s its size", path, name)
		      : TSR_OK;
}

/* Not waiting for the reader of a FIFO, which is none of ours. */
enum tsr_status tsr_file_met(int dir_fd, const char *name, unsigned mode, uint64_t nbytes,
			     bool joins, const char *path, int *fd_ret, struct tsr_err *err)
{
	const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;

	do {
		*fd_ret = openat(dir_fd, name, flags | (joins ? 0 : O_CREAT), (mode_t)mode);
	} while (*fd_ret < 0 && errno == EINTR);
	if (*fd_ret < 0)
		return tsr_fail_errno(err, errno, "%s: cannot open %s, the file of all parts", path,
				      name);
	return settle_size(*fd_ret, name, nbytes, joins, path, err);
}

/* The path of the temporary name that follows from @id. */
static enum tsr_status name_met(const char *path, uint64_t id, char **ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *name = NULL;
	TSR_OWNED(free) char *dir = tsr_path_directory(path);

	TSR_TRY(dir ? TSR_OK : tsr_fail_nomem(err, path));
	TSR_TRY(tsr_temporary_name_of(tsr_path_name(path), id, path, &name, err));
	*ret = tsr_path_join(dir, name);
	return *ret ? TSR_OK : tsr_fail_nomem(err, path);
}

enum tsr_status tsr_file_meet(const char *path, uint64_t id, uint64_t nbytes, bool joins,
			      char **name_ret, struct tsr_file **ret, struct tsr_err *err)
{
	enum tsr_status status;
	char *name = NULL;
	int fd = -1;

	TSR_TRY(name_met(path, id, &name, err));
	status = tsr_file_met(AT_FDCWD, name, 0666, nbytes, joins, path, &fd, err);
	if (status == TSR_OK)
		status = tsr_file_scratch_shared(fd, path, name, ret, err);
	else if (fd >= 0)
		close(fd);
	return TSR_MADE(status, name_ret, name, free);
}
