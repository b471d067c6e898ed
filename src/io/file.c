/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are read, and scratch files without a name. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/file_calls.h"
#include "io/page_cache.h"
#include "io/temporary.h"

/* The most that one read or write call moves on Linux. */
#define IO_MAX 0x7ffff000u

const char *tsr_file_kind(mode_t mode)
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

/* How a file gets its contents when they are wanted. */
struct later {
	pthread_mutex_t lock;
	struct tsr_file *filled; /* the file that has them; NULL before */
	tsr_file_fill *fill;
	void *ctx;
	void (*free_ctx)(void *);
};

struct tsr_file {
	int fd;
	bool scratch; /* no name, no other user, and it grows */
	bool beside; /* it is in a directory that was asked for */
	char *path;
	struct stat at_open;
	struct later *later; /* or NULL: @fd has the contents */
	struct tsr_trail *trail; /* of what was read; NULL: a scratch file, or out of memory */
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
				  tsr_file_kind(f->at_open.st_mode));
	if (status != TSR_OK) {
		tsr_file_close(f);
		return status;
	}
	if (!f->scratch)
		f->trail = tsr_trail_new();
	*ret = f;
	return TSR_OK;
}

static enum tsr_status open_path(struct tsr_file *f, int flags, struct tsr_file **ret,
				 struct tsr_err *err)
{
	f->fd = tsr_open_at(AT_FDCWD, f->path,
			    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
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
	TSR_OWNED(free) char *path = tsr_path_join(directory, "tersor-XXXXXX");
	int fd = path ? mkostemp(path, O_CLOEXEC) : -1;

	if (fd >= 0 && unlink(path) != 0) {
		const int errnum = errno;

		close(fd);
		fd = -1;
		errno = errnum;
	}
	return fd;
}

int tsr_nameless_open(const char *directory)
{
	int fd;

	do {
		fd = open(directory, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
		fd = open_and_unlink(directory);
	return fd;
}

int tsr_scratch_open(const char **directory_ret)
{
	const char *dir = getenv("TMPDIR");

	if (!dir || !*dir)
		dir = "/tmp";
	*directory_ret = dir;
	return tsr_nameless_open(dir);
}

enum tsr_status tsr_file_take_scratch(int fd, const char *path, const char *dir,
				      struct tsr_file **ret, struct tsr_err *err)
{
	struct tsr_file *f;

	if (fd < 0)
		return tsr_fail_errno(err, errno, "%s: cannot make a scratch file in %s", path,
				      dir);
	f = new_file(strdup(path));
	if (!f) {
		close(fd);
		return tsr_fail_nomem(err, path);
	}
	f->scratch = true;
	f->fd = fd;
	return finish_open(f, ret, err);
}

enum tsr_status tsr_file_scratch(const char *path, struct tsr_file **ret, struct tsr_err *err)
{
	const char *dir;
	const int fd = tsr_scratch_open(&dir);

	return tsr_file_take_scratch(fd, path, dir, ret, err);
}

enum tsr_status tsr_file_scratch_in(const char *directory, const char *path, struct tsr_file **ret,
				    struct tsr_err *err)
{
	TSR_TRY(tsr_file_take_scratch(tsr_nameless_open(directory), path, directory, ret, err));
	(*ret)->beside = true;
	return TSR_OK;
}

enum tsr_status tsr_file_scratch_shared(int fd, const char *path, const char *name,
					struct tsr_file **ret, struct tsr_err *err)
{
	TSR_OWNED(tsr_file_close) struct tsr_file *f = NULL;

	TSR_TRY(tsr_file_take_scratch(fd, path, name, &f, err));
	f->beside = true;
	if (fstat(fd, &f->at_open) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat %s, the file of all parts", path,
				      name);
	if (!S_ISREG(f->at_open.st_mode))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: %s, the file of all parts, is no regular file", path, name);
	return TSR_GIVE(ret, f);
}

enum tsr_status tsr_file_scratch_sync(const struct tsr_file *f, struct tsr_err *err)
{
	return tsr_temporary_sync(f->fd) != 0
		       ? tsr_fail_errno(err, errno, "%s: cannot sync", f->path)
		       : TSR_OK;
}

enum tsr_status tsr_file_scratch_later(const char *path, uint64_t nbytes, tsr_file_fill *fill,
				       void *ctx, void (*free_ctx)(void *), struct tsr_file **ret,
				       struct tsr_err *err)
{
	struct tsr_file *f = new_file(strdup(path));
	struct later *later = f ? calloc(1, sizeof(*later)) : NULL;

	if (!later) {
		tsr_file_close(f);
		free_ctx(ctx);
		return tsr_fail_nomem(err, path);
	}
	*later = (struct later){ .fill = fill, .ctx = ctx, .free_ctx = free_ctx };
	pthread_mutex_init(&later->lock, NULL);
	f->scratch = true;
	f->at_open.st_size = (off_t)nbytes;
	f->later = later;
	*ret = f;
	return TSR_OK;
}

/* The file with the contents of @f, which is another one if they were wanted later. */
static enum tsr_status contents_of(const struct tsr_file *f, const struct tsr_file **ret,
				   struct tsr_err *err)
{
	struct later *later = f->later;
	enum tsr_status status = TSR_OK;
	struct tsr_file *filled = NULL;

	*ret = f;
	if (!later)
		return TSR_OK;
	pthread_mutex_lock(&later->lock);
	if (!later->filled) {
		status = tsr_file_scratch(f->path, &filled, err);
		if (status == TSR_OK)
			status = later->fill(later->ctx, filled, err);
		if (status == TSR_OK)
			later->filled = filled;
		else
			tsr_file_close(filled);
	}
	*ret = later->filled;
	pthread_mutex_unlock(&later->lock);
	return status;
}

static void free_later(struct later *later)
{
	if (!later)
		return;
	tsr_file_close(later->filled);
	later->free_ctx(later->ctx);
	pthread_mutex_destroy(&later->lock);
	free(later);
}

void tsr_file_close(struct tsr_file *f)
{
	if (!f)
		return;
	free_later(f->later);
	if (f->fd >= 0) {
		tsr_trail_end(f->trail, f->fd);
		close(f->fd);
	}
	tsr_trail_free(f->trail);
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
	TSR_TRY(contents_of(f, &f, err));
	for (char *at = buf; nbytes;) {
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
		tsr_trail_read(f->trail, f->fd, offset, (uint64_t)got);
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
	TSR_OWNED(free) char *bytes = NULL;

	if (nbytes > nbytes_max)
		return tsr_fail(err, TSR_E_LIMIT,
				"%s: %s of %" PRIu64 " bytes is over the limit of %" PRIu64,
				f->path, what, nbytes, nbytes_max);
	bytes = malloc((size_t)nbytes + 1);
	if (!bytes)
		return tsr_fail_nomem(err, f->path);
	TSR_TRY(tsr_file_read(f, bytes, (size_t)nbytes, 0, err));
	bytes[nbytes] = '\0';
	return TSR_GIVE(ret, bytes);
}

enum tsr_status tsr_write_all(int fd, const char *path, const char *what, const void *buf,
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

	const char *what = f->beside ? "cannot write" : TSR_SCRATCH_FAILED;

	TSR_TRY(tsr_write_all(f->fd, f->path, what, buf, nbytes, offset, err));
	if (end > tsr_file_size(f))
		f->at_open.st_size = (off_t)end;
	return TSR_OK;
}

void tsr_file_scratch_drop(struct tsr_file *f, uint64_t nbytes, uint64_t offset)
{
#ifdef FALLOC_FL_PUNCH_HOLE
	(void)!fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)nbytes);
#else
	(void)f, (void)nbytes, (void)offset;
#endif
}

bool tsr_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int64_t tsr_file_time(const struct tsr_file *f)
{
	return (int64_t)f->at_open.st_mtim.tv_sec;
}

uint64_t tsr_file_nanoseconds(const struct tsr_file *f)
{
	return (uint64_t)f->at_open.st_mtim.tv_nsec;
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
	if (stat(f->path, &named) != 0 || !tsr_same_file(&named, was))
		return tsr_fail(err, TSR_E_IO, "%s: changed while reading: it was replaced",
				f->path);
	return TSR_OK;
}

static enum tsr_status check_not(const char *input, const struct stat *in, const char *path,
				 struct tsr_err *err)
{
	struct stat out;

	if (stat(path, &out) != 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? TSR_OK
			       : tsr_fail_errno(err, errno, "%s: cannot stat", path);
	if (tsr_same_file(in, &out))
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
