/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are read, and files that appear only when they are complete. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/temporary.h"

/* The most that one read or write call moves on Linux. */
#define IO_MAX 0x7ffff000u

/* What a file that is not a regular one is. */
static const char *kind_of(mode_t mode)
{
	if (S_ISDIR(mode))
		return "directory";
	if (S_ISLNK(mode))
		return "symbolic link";
	if (S_ISFIFO(mode))
		return "special file (FIFO)";
	if (S_ISSOCK(mode))
		return "special file (socket)";
	return "special file (device)";
}

/* --- Inputs --------------------------------------------------------------------------------- */

struct tsr_file {
	int fd;
	bool scratch; /* no name, no other user, and it grows */
	char *path;
	struct stat at_open;
};

/* No descriptor yet; takes over @path.  NULL when out of memory, which @path may show by NULL. */
static struct tsr_file *new_file(char *path)
{
	struct tsr_file *f = path ? calloc(1, sizeof(*f)) : NULL;

	if (!f) {
		free(path);
		return NULL;
	}
	f->fd = -1;
	f->path = path;
	return f;
}

/* Take in what the descriptor is, when the opening went well, or give up the file. */
static enum tsr_status finish_open(struct tsr_file *f, struct tsr_file **ret, struct tsr_err *err)
{
	enum tsr_status status = TSR_OK;

	if (f->fd < 0)
		status = tsr_fail_errno(err, errno, "%s: cannot open", f->path);
	else if (fstat(f->fd, &f->at_open) != 0)
		status = tsr_fail_errno(err, errno, "%s: cannot stat", f->path);
	else if (!S_ISREG(f->at_open.st_mode))
		status = tsr_fail(err, TSR_E_IO, "%s: found a %s, expected a regular file", f->path,
				  kind_of(f->at_open.st_mode));
	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	*ret = f;
	return TSR_OK;
}

static enum tsr_status open_path(struct tsr_file *f, int flags, struct tsr_file **ret,
				 struct tsr_err *err)
{
	do {
		f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
	} while (f->fd < 0 && errno == EINTR);
	if (f->fd < 0 && errno == ELOOP && (flags & O_NOFOLLOW)) {
		tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FOLLOW_LINKS,
			      "%s: found a symbolic link, expected a regular file", f->path);
		tsr_file_close(f);
		return TSR_E_IO;
	}
	return finish_open(f, ret, err);
}

enum tsr_status tsr_file_open(const char *path, struct tsr_file **ret, struct tsr_err *err)
{
	struct tsr_file *f;

	f = new_file(strdup(path));
	if (!f)
		return tsr_fail_nomem(err, path);
	return open_path(f, 0, ret, err);
}

char *tsr_path_join(const char *directory, const char *name)
{
	const size_t len = strlen(directory);
	const char *slash = len && directory[len - 1] != '/' ? "/" : "";
	char *path;

	return asprintf(&path, "%s%s%s", directory, slash, name) < 0 ? NULL : path;
}

enum tsr_status tsr_file_open_in(const char *directory, const char *name, bool follow,
				 struct tsr_file **ret, struct tsr_err *err)
{
	struct tsr_file *f;

	if (!*name || strchr(name, '/'))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found the file name \"%s\", expected one without directories",
				directory, name);
	f = new_file(tsr_path_join(directory, name));
	if (!f)
		return tsr_fail_nomem(err, directory);
	return open_path(f, follow ? 0 : O_NOFOLLOW, ret, err);
}

/* Where the system has no nameless files: one whose name is gone at once. */
static int open_and_unlink(const char *directory)
{
	char *path = tsr_path_join(directory, "tersor-XXXXXX");
	int fd = path ? mkostemp(path, O_CLOEXEC) : -1;

	if (fd >= 0 && unlink(path) != 0) {
		const int errnum = errno;

		close(fd);
		fd = -1;
		errno = errnum;
	}
	free(path);
	return fd;
}

enum tsr_status tsr_file_scratch(const char *path, struct tsr_file **ret, struct tsr_err *err)
{
	const char *dir = getenv("TMPDIR");
	struct tsr_file *f;

	if (!dir || !*dir)
		dir = "/tmp";
	f = new_file(strdup(path));
	if (!f)
		return tsr_fail_nomem(err, path);
	f->scratch = true;
	do {
		f->fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	} while (f->fd < 0 && errno == EINTR);
	if (f->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
		f->fd = open_and_unlink(dir);
	if (f->fd < 0) {
		tsr_fail_errno(err, errno, "%s: cannot make a scratch file in %s", path, dir);
		tsr_file_close(f);
		return TSR_E_IO;
	}
	return finish_open(f, ret, err);
}

void tsr_file_close(struct tsr_file *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	free(f);
}

const char *tsr_file_path(const struct tsr_file *f)
{
	return f->path;
}

uint64_t tsr_file_size(const struct tsr_file *f)
{
	return (uint64_t)f->at_open.st_size;
}

enum tsr_status tsr_file_read(const struct tsr_file *f, void *buf, size_t nbytes, uint64_t offset,
			      struct tsr_err *err)
{
	char *at = buf;

	while (nbytes) {
		const size_t want = nbytes < IO_MAX ? nbytes : IO_MAX;
		const ssize_t got = pread(f->fd, at, want, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return tsr_fail_errno(err, errno,
					      "%s: cannot read %zu bytes at offset %" PRIu64,
					      f->path, want, offset);
		if (got == 0)
			return tsr_fail(err, TSR_E_IO,
					"%s: changed while reading: ends at offset %" PRIu64
					", was %lld bytes",
					f->path, offset, (long long)f->at_open.st_size);
		at += got;
		nbytes -= (size_t)got;
		offset += (uint64_t)got;
	}
	return TSR_OK;
}

enum tsr_status tsr_file_load(const struct tsr_file *f, uint64_t nbytes_max, const char *what,
			      char **ret, struct tsr_err *err)
{
	const uint64_t nbytes = tsr_file_size(f);
	enum tsr_status status;
	char *bytes;

	if (nbytes > nbytes_max)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: %s of %" PRIu64 " bytes is over the limit of %" PRIu64,
				f->path, what, nbytes, nbytes_max);
	bytes = malloc((size_t)nbytes + 1);
	if (!bytes)
		return tsr_fail_nomem(err, f->path);
	status = tsr_file_read(f, bytes, (size_t)nbytes, 0, err);
	if (status != TSR_OK) {
		free(bytes);
		return status;
	}
	bytes[nbytes] = '\0';
	*ret = bytes;
	return TSR_OK;
}

/* @what: what the message says went wrong. */
static enum tsr_status write_all(int fd, const char *path, const char *what, const void *buf,
				 size_t nbytes, uint64_t offset, struct tsr_err *err)
{
	const char *at = buf;

	while (nbytes) {
		const size_t want = nbytes < IO_MAX ? nbytes : IO_MAX;
		const ssize_t put = pwrite(fd, at, want, (off_t)offset);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return tsr_fail_errno(err, errno, "%s: %s", path, what);
		if (put == 0)
			return tsr_fail(err, TSR_E_IO, "%s: %s: no progress", path, what);
		at += put;
		nbytes -= (size_t)put;
		offset += (uint64_t)put;
	}
	return TSR_OK;
}

enum tsr_status tsr_file_scratch_write(struct tsr_file *f, const void *buf, size_t nbytes,
				       uint64_t offset, struct tsr_err *err)
{
	const uint64_t end = offset + nbytes;

	TSR_TRY(write_all(f->fd, f->path, "cannot write its scratch file", buf, nbytes, offset,
			  err));
	if (end > tsr_file_size(f))
		f->at_open.st_size = (off_t)end;
	return TSR_OK;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

enum tsr_status tsr_file_check_unchanged(const struct tsr_file *f, struct tsr_err *err)
{
	const struct stat *was = &f->at_open;
	struct stat now, named;

	if (f->scratch)
		return TSR_OK;
	if (fstat(f->fd, &now) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat", f->path);
	if (now.st_size != was->st_size || now.st_mtim.tv_sec != was->st_mtim.tv_sec ||
	    now.st_mtim.tv_nsec != was->st_mtim.tv_nsec)
		return tsr_fail(err, TSR_E_IO, "%s: changed while reading: it was modified",
				f->path);
	if (stat(f->path, &named) != 0 || !same_file(&named, was))
		return tsr_fail(err, TSR_E_IO, "%s: changed while reading: it was replaced",
				f->path);
	return TSR_OK;
}

static enum tsr_status check_not(const char *input, const struct stat *in, const char *path,
				 struct tsr_err *err)
{
	struct stat out;

	if (stat(path, &out) == 0 && same_file(in, &out))
		return tsr_fail(err, TSR_E_IO, "%s: output is the same file as input %s", path,
				input);
	return TSR_OK;
}

enum tsr_status tsr_file_check_not(const struct tsr_file *f, const char *path, struct tsr_err *err)
{
	return check_not(f->path, &f->at_open, path, err);
}

enum tsr_status tsr_path_check_not(const char *input, const char *path, struct tsr_err *err)
{
	struct stat in;

	return stat(input, &in) == 0 ? check_not(input, &in, path, err) : TSR_OK;
}

/* --- Outputs -------------------------------------------------------------------------------- */

struct tsr_outfile {
	int dir_fd;
	int fd;
	bool force;
	char *path; /* as the user gave it */
	const char *name; /* its last component, inside path */
	char *temp; /* name of the temporary file in the directory; NULL before it exists */
};

enum tsr_status tsr_path_check_not_in(const char *directory, const char *path, struct tsr_err *err)
{
	char *parent = tsr_path_directory(path);
	struct stat in, out;
	bool inside;

	if (!parent)
		return tsr_fail_nomem(err, path);
	inside = stat(directory, &in) == 0 && stat(parent, &out) == 0 && same_file(&in, &out);
	free(parent);
	return inside ? tsr_fail(err, TSR_E_IO, "%s: output is inside input %s", path, directory)
		      : TSR_OK;
}

static enum tsr_status check_target(int dir_fd, const char *name, const char *path, bool force,
				    mode_t *mode_ret, struct tsr_err *err)
{
	struct stat st;

	*mode_ret = 0;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		if (errno == ENOENT)
			return TSR_OK;
		return tsr_fail_errno(err, errno, "%s: cannot stat", path);
	}
	if (!S_ISREG(st.st_mode))
		return tsr_fail(err, TSR_E_IO, "%s: output exists and is a %s, not a regular file",
				path, kind_of(st.st_mode));
	if (!force)
		return tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE, "%s: output exists", path);
	*mode_ret = st.st_mode & 07777;
	return TSR_OK;
}

enum tsr_status tsr_outfile_check_target(const char *path, bool force, struct tsr_err *err)
{
	enum tsr_status status;
	mode_t mode;
	int dir_fd;

	if (!*tsr_path_name(path))
		return tsr_fail(err, TSR_E_IO, "%s: output has no file name", path);
	TSR_TRY(tsr_path_open_directory(path, &dir_fd, err));
	status = check_target(dir_fd, tsr_path_name(path), path, force, &mode, err);
	close(dir_fd);
	return status;
}

static enum tsr_status open_temp(struct tsr_outfile *f, struct tsr_err *err)
{
	char *temp = NULL;

	do {
		free(temp);
		temp = NULL;
		TSR_TRY(tsr_temporary_name(f->name, f->path, &temp, err));
		f->fd = openat(f->dir_fd, temp,
			       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	} while (f->fd < 0 && (errno == EINTR || errno == EEXIST));
	if (f->fd < 0) {
		free(temp);
		return tsr_fail_errno(err, errno, "%s: cannot create a file beside it", f->path);
	}
	f->temp = temp;
	return TSR_OK;
}

/*
 * Show a full disk now rather than after the work.  Where reserving means to note down extents, it
 * is done, and also makes the file contiguous; tmpfs would allocate every page, which costs as much
 * as writing it and on one thread, so there the free space is looked at.  Writing has the last word.
 */
static enum tsr_status reserve(struct tsr_outfile *f, uint64_t nbytes, struct tsr_err *err)
{
	struct statfs fs;
	int failed;

	if (!nbytes)
		return TSR_OK;
	if (fstatfs(f->fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC) {
		if (fs.f_blocks && nbytes / (uint64_t)fs.f_bsize > fs.f_bavail)
			return tsr_fail_errno(err, ENOSPC, "%s: cannot reserve %" PRIu64 " bytes",
					      f->path, nbytes);
		return TSR_OK;
	}
	do {
		failed = fallocate(f->fd, 0, 0, (off_t)nbytes);
	} while (failed && errno == EINTR);
	if (failed && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		return tsr_fail_errno(err, errno, "%s: cannot reserve %" PRIu64 " bytes", f->path,
				      nbytes);
	return TSR_OK;
}

static enum tsr_status start(struct tsr_outfile *f, const char *path, uint64_t nbytes,
			     struct tsr_err *err)
{
	mode_t mode;

	if (!f->path)
		return tsr_fail_nomem(err, path);
	f->name = tsr_path_name(f->path);
	TSR_TRY(tsr_path_open_directory(path, &f->dir_fd, err));
	TSR_TRY(check_target(f->dir_fd, f->name, f->path, f->force, &mode, err));
	TSR_TRY(open_temp(f, err));
	if (mode && fchmod(f->fd, mode) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot keep its mode", f->path);
	return reserve(f, nbytes, err);
}

static enum tsr_status create(const char *path, const char *shown, bool force, uint64_t nbytes,
			      struct tsr_outfile **ret, struct tsr_err *err)
{
	struct tsr_outfile *f = calloc(1, sizeof(*f));
	enum tsr_status status;

	if (!f)
		return tsr_fail_nomem(err, shown);
	*f = (struct tsr_outfile){ .dir_fd = -1, .fd = -1, .force = force, .path = strdup(shown) };
	status = start(f, path, nbytes, err);
	if (status == TSR_OK)
		*ret = f;
	else
		tsr_outfile_discard(f);
	return status;
}

enum tsr_status tsr_outfile_create(const char *path, bool force, uint64_t nbytes,
				   struct tsr_outfile **ret, struct tsr_err *err)
{
	TSR_TRY(tsr_outfile_check_target(path, force, err));
	return create(path, path, force, nbytes, ret, err);
}

enum tsr_status tsr_outfile_create_as(const char *path, const char *shown, uint64_t nbytes,
				      struct tsr_outfile **ret, struct tsr_err *err)
{
	return create(path, shown, false, nbytes, ret, err);
}

enum tsr_status tsr_outfile_write(struct tsr_outfile *f, const void *buf, size_t nbytes,
				  uint64_t offset, struct tsr_err *err)
{
	return write_all(f->fd, f->path, "cannot write", buf, nbytes, offset, err);
}

/* Rename without replacing; file systems that lack the flag get a hard link, which cannot either. */
static int rename_noreplace(const struct tsr_outfile *f, bool *temp_remains_ret)
{
	if (renameat2(f->dir_fd, f->temp, f->dir_fd, f->name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (linkat(f->dir_fd, f->temp, f->dir_fd, f->name, 0) != 0)
		return -1;
	*temp_remains_ret = unlinkat(f->dir_fd, f->temp, 0) != 0;
	return 0;
}

/* The file has its name.  What is left to do cannot undo that, only leave a doubt behind. */
static enum tsr_status make_durable(struct tsr_outfile *f, bool temp_remains, struct tsr_err *err)
{
	if (temp_remains)
		tsr_fail_errno(
			err, errno,
			"%s: published and complete, but cannot remove its temporary name %s",
			f->path, f->temp);
	free(f->temp);
	f->temp = NULL;
	if (!temp_remains && tsr_temporary_sync(f->dir_fd) == 0)
		return TSR_OK;
	if (!temp_remains)
		tsr_fail_errno(err, errno,
			       "%s: published and complete, but may not survive a power cut: "
			       "cannot sync its directory",
			       f->path);
	if (err)
		err->code = TSR_E_DURABILITY;
	return TSR_E_DURABILITY;
}

enum tsr_status tsr_outfile_publish(struct tsr_outfile *f, struct tsr_err *err)
{
	enum tsr_status status;
	bool temp_remains = false;
	int failed;

	if (tsr_temporary_sync(f->fd) != 0) {
		status = tsr_fail_errno(err, errno, "%s: cannot sync", f->path);
		goto discard;
	}
	failed = close(f->fd);
	f->fd = -1;
	if (failed && errno != EINTR) {
		status = tsr_fail_errno(err, errno, "%s: cannot close", f->path);
		goto discard;
	}
	do {
		failed = f->force ? renameat(f->dir_fd, f->temp, f->dir_fd, f->name)
				  : rename_noreplace(f, &temp_remains);
	} while (failed && errno == EINTR);
	if (failed) {
		if (errno == EEXIST)
			status = tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE, "%s: output exists",
					       f->path);
		else
			status = tsr_fail_errno(err, errno, "%s: cannot rename to it", f->path);
		goto discard;
	}
	status = make_durable(f, temp_remains, err);
discard:
	tsr_outfile_discard(f);
	return status;
}

void tsr_outfile_discard(struct tsr_outfile *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	if (f->temp)
		unlinkat(f->dir_fd, f->temp, 0);
	if (f->dir_fd >= 0)
		close(f->dir_fd);
	free(f->temp);
	free(f->path);
	free(f);
}
