/* SPDX-License-Identifier: Apache-2.0 */
/* Files that several processes write together. */
#include "io/meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "io/file_calls.h"
#include "io/temporary.h"

/* How often a mark is looked for, and how long it is waited for in between: 10 seconds in all. */
#define LOOKS 500
#define PAUSE_NS 20000000L

/* --- Marks -------------------------------------------------------------------------------------- */

/* Not waiting for the reader of a FIFO, which is none of ours. */
enum tsr_status tsr_mark_open(int dir_fd, const char *name, int flags, unsigned mode, bool joins,
			      const char *path, int *fd_ret, bool *made_ret, struct tsr_err *err)
{
	flags |= O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
	*made_ret = false;
	do {
		*fd_ret = openat(dir_fd, name, flags);
		if (*fd_ret < 0 && errno == ENOENT && !joins) {
			*fd_ret = openat(dir_fd, name, flags | O_CREAT | O_EXCL, (mode_t)mode);
			*made_ret = *fd_ret >= 0;
		}
		/* Another may have made it in between, or removed it. */
	} while (*fd_ret < 0 && (errno == EINTR || errno == EEXIST));
	if (*fd_ret >= 0)
		return TSR_OK;
	return tsr_fail_errno(err, errno, "%s: cannot open %s, the file of all parts", path, name);
}

/* The mark of a file of this size; 0 if there is none yet, or none any more. */
static int read_mark(int fd, uint64_t nbytes, uint64_t *size_ret, uint64_t *mark_ret)
{
	unsigned char bytes[TSR_MARK_NBYTES] = { 0 };
	struct stat st;

	*mark_ret = 0;
	if (fstat(fd, &st) != 0)
		return -1;
	*size_ret = (uint64_t)st.st_size;
	if (*size_ret != nbytes + TSR_MARK_NBYTES)
		return 0;
	if (pread(fd, bytes, sizeof(bytes), (off_t)nbytes) != (ssize_t)sizeof(bytes))
		return -1;
	*mark_ret = tsr_get_le(bytes, sizeof(bytes));
	return 0;
}

/* Others are to see it at once, also from another machine. */
static enum tsr_status choose_mark(int fd, const char *path, uint64_t nbytes, uint64_t *ret,
				   struct tsr_err *err)
{
	unsigned char bytes[TSR_MARK_NBYTES];
	int failed;

	TSR_TRY(tsr_random_u64(path, ret, err));
	*ret |= 1; /* 0 says that there is none */
	do {
		failed = ftruncate(fd, (off_t)(nbytes + TSR_MARK_NBYTES));
	} while (failed && errno == EINTR);
	if (failed)
		return tsr_fail_errno(err, errno, "%s: cannot give it its size", path);
	tsr_put_le(bytes, *ret, sizeof(bytes));
	TSR_TRY(tsr_write_all(fd, path, "cannot write", bytes, sizeof(bytes), nbytes, err));
	do {
		failed = fsync(fd);
	} while (failed && errno == EINTR);
	return failed ? tsr_fail_errno(err, errno, "%s: cannot sync", path) : TSR_OK;
}

enum tsr_status tsr_mark_meet(int fd, const char *path, uint64_t nbytes, bool made,
			      uint64_t *mark_ret, struct tsr_err *err)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	uint64_t size;

	for (int i = 0; !made && i < LOOKS; i++) {
		if (read_mark(fd, nbytes, &size, mark_ret) != 0)
			return tsr_fail_errno(err, errno, "%s: cannot read its mark", path);
		if (*mark_ret)
			return TSR_OK;
		/* It was cut off: what this part writes now is of a file that it makes anew. */
		if (size == nbytes)
			break;
		nanosleep(&pause, NULL);
	}
	return choose_mark(fd, path, nbytes, mark_ret, err);
}

enum tsr_status tsr_mark_read(int fd, const char *path, const char *name, uint64_t nbytes,
			      uint64_t *mark_ret, struct tsr_err *err)
{
	uint64_t size;

	if (read_mark(fd, nbytes, &size, mark_ret) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot read its mark", path);
	if (*mark_ret || size == nbytes)
		return TSR_OK;
	return tsr_fail(err, TSR_E_FORMAT,
			"%s: found %" PRIu64 " bytes in %s, the file of all parts, expected "
			"%" PRIu64 " and a mark",
			path, size, name, nbytes);
}

bool tsr_mark_find(const char *name, uint64_t nbytes, uint64_t *mark_ret)
{
	const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	uint64_t size = 0;
	bool found;

	if (fd < 0)
		return false;
	found = read_mark(fd, nbytes, &size, mark_ret) == 0 && (*mark_ret || size == nbytes);
	close(fd);
	return found;
}

int tsr_mark_cut(int fd, uint64_t nbytes)
{
	int failed;

	do {
		failed = ftruncate(fd, (off_t)nbytes);
	} while (failed && errno == EINTR);
	return failed;
}

/* --- Scratch files ------------------------------------------------------------------------------ */

/* The path of the temporary name that follows from @id. */
static enum tsr_status name_met(const char *path, uint64_t id, char **ret, struct tsr_err *err)
{
	char *dir = tsr_path_directory(path), *name = NULL;
	enum tsr_status status = dir ? TSR_OK : tsr_fail_nomem(err, path);

	if (status == TSR_OK)
		status = tsr_temporary_name_of(tsr_path_name(path), id, path, &name, err);
	if (status == TSR_OK) {
		*ret = tsr_path_join(dir, name);
		status = *ret ? TSR_OK : tsr_fail_nomem(err, path);
	}
	free(name);
	free(dir);
	return status;
}

static enum tsr_status meet_by_name(const char *path, const char *name, uint64_t nbytes, bool joins,
				    uint64_t *mark_ret, struct tsr_file **ret, struct tsr_err *err)
{
	enum tsr_status status;
	bool made;
	int fd;

	TSR_TRY(tsr_mark_open(AT_FDCWD, name, O_RDWR, 0666, joins, path, &fd, &made, err));
	status = joins ? tsr_mark_read(fd, path, name, nbytes, mark_ret, err)
		       : tsr_mark_meet(fd, name, nbytes, made, mark_ret, err);
	if (status == TSR_OK)
		return tsr_file_scratch_shared(fd, path, name, ret, err);
	close(fd);
	return status;
}

enum tsr_status tsr_file_meet(const char *path, uint64_t id, uint64_t nbytes, bool joins,
			      char **name_ret, uint64_t *mark_ret, struct tsr_file **ret,
			      struct tsr_err *err)
{
	enum tsr_status status;
	char *name = NULL;

	TSR_TRY(name_met(path, id, &name, err));
	status = meet_by_name(path, name, nbytes, joins, mark_ret, ret, err);
	if (status == TSR_OK)
		*name_ret = name;
	else
		free(name);
	return status;
}
