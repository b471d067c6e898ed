/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear only when they are complete, and standard output, which gets them whole. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/old_libc.h"
#include "io/file.h"
#include "io/file_calls.h"
#include "io/meeting.h"
#include "io/page_cache.h"
#include "io/temporary.h"

struct tsr_outfile {
	int dir_fd; /* -1 of a stream */
	int fd;
	bool force;
	bool stream; /* for standard output: a scratch file until it is complete */
	char *path; /* as the user gave it */
	const char *name; /* its last component, inside path */
	char *temp; /* name of the temporary file in the directory; NULL before it exists */
	struct stat old; /* the file that it replaces; no mode: none was there */
	struct tsr_trail *trail; /* of what was written; NULL: a stream, or out of memory */
	bool held; /* it counts as an output in the making */
	bool met; /* other processes write it too: it stays until it is published */
};

enum tsr_status tsr_path_check_not_in(const char *directory, const char *path, struct tsr_err *err)
{
	TSR_OWNED(free) char *parent = tsr_path_directory(path);
	struct stat in, out;

	if (!parent)
		return tsr_fail_nomem(err, path);
	if (stat(directory, &in) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat", directory);
	if (stat(parent, &out) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat its directory", path);
	if (tsr_same_file(&in, &out))
		return tsr_fail(err, TSR_E_IO, "%s: output is inside input %s", path, directory);
	return TSR_OK;
}

/* Open the directory of a target, which messages call @shown, and look at what is there. */
static enum tsr_status look_at_target(const char *path, const char *shown, bool force,
				      int *dir_fd_ret, struct stat *old_ret, struct tsr_err *err)
{
	const char *name = tsr_path_name(path);
	struct stat st;

	*old_ret = (struct stat){ 0 };
	if (!*name)
		return tsr_fail(err, TSR_E_IO, "%s: output has no file name", shown);
	TSR_TRY(tsr_path_open_directory(path, dir_fd_ret, err));
	if (fstatat(*dir_fd_ret, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		if (errno == ENOENT)
			return TSR_OK;
		return tsr_fail_errno(err, errno, "%s: cannot stat", shown);
	}
	if (!S_ISREG(st.st_mode))
		return tsr_fail(err, TSR_E_IO, "%s: output exists and is a %s, not a regular file",
				shown, tsr_file_kind(st.st_mode));
	if (!force)
		return tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE, "%s: output exists", shown);
	*old_ret = st;
	return TSR_OK;
}

/* --- Standard output ---------------------------------------------------------------------------- */

static bool is_stream(const char *path)
{
	return strcmp(path, TSR_STANDARD_OUTPUT) == 0;
}

static enum tsr_status start_stream(struct tsr_outfile *f, struct tsr_err *err)
{
	const char *dir;

	if (isatty(STDOUT_FILENO))
		return tsr_fail(err, TSR_E_IO, "%s: found a terminal, expected a file or pipe",
				f->path);
	f->stream = true;
	f->fd = tsr_scratch_open(&dir);
	return f->fd < 0 ? tsr_fail_errno(err, errno, "%s: cannot make a scratch file in %s",
					  f->path, dir)
			 : TSR_OK;
}

/* All of the scratch file to standard output; what was begun cannot be taken back. */
static enum tsr_status copy_stream(const struct tsr_outfile *f, struct tsr_err *err)
{
	char buf[1 << 16];
	off_t offset = 0;
	ssize_t got;

	while ((got = pread(f->fd, buf, sizeof(buf), offset)) != 0) {
		if (got < 0 && errno != EINTR)
			return tsr_fail_errno(err, errno, "%s: cannot read its scratch file",
					      f->path);
		for (ssize_t at = 0, put; at < got; at += put) {
			put = write(STDOUT_FILENO, buf + at, (size_t)(got - at));
			if (put < 0 && errno == EAGAIN)
				poll(&(struct pollfd){ .fd = STDOUT_FILENO, .events = POLLOUT }, 1,
				     -1);
			else if (put < 0)
				return tsr_fail_interrupted(err, errno, "%s: cannot write",
							    f->path);
			put = put < 0 ? 0 : put;
		}
		offset += got > 0 ? got : 0;
	}
	return TSR_OK;
}

/* --- Targets ------------------------------------------------------------------------------------ */

enum tsr_status tsr_outfile_check_target(const char *path, bool force, struct tsr_err *err)
{
	TSR_SCOPED(tsr_fd_close) int dir_fd = -1;
	struct stat old;

	return is_stream(path) ? TSR_OK : look_at_target(path, path, force, &dir_fd, &old, err);
}

static enum tsr_status open_temp(struct tsr_outfile *f, mode_t mode, struct tsr_err *err)
{
	TSR_OWNED(free) char *temp = NULL;

	do {
		free(temp);
		temp = NULL;
		TSR_TRY(tsr_temporary_name(f->name, f->path, &temp, err));
		f->fd = openat(f->dir_fd, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			       mode);
	} while (f->fd < 0 && (errno == EINTR || errno == EEXIST));
	if (f->fd < 0)
		return tsr_fail_errno(err, errno, "%s: cannot create a file beside it", f->path);
	f->temp = temp;
	temp = NULL;
	f->trail = tsr_trail_new();
	return TSR_OK;
}

/*
 * The mode of the file to be replaced, without set-uid, set-gid and sticky bits, and its owner and group
 * where that is permitted: else who writes it owns it, as of any new file.
 */
static enum tsr_status take_after(const struct tsr_outfile *f, const struct stat *old,
				  struct tsr_err *err)
{
	struct stat st;

	if (fstat(f->fd, &st) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat", f->path);
	if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
	    fchown(f->fd, old->st_uid, old->st_gid) != 0 && errno != EPERM && errno != EINVAL)
		return tsr_fail_errno(err, errno, "%s: cannot keep its owner", f->path);
	if (fchmod(f->fd, old->st_mode & 0777) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot keep its mode", f->path);
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

/* An open file is as the one that it replaces, if there is one, and has its size. */
static enum tsr_status prepare(struct tsr_outfile *f, const struct stat *old, uint64_t nbytes,
			       struct tsr_err *err)
{
	if (old->st_mode)
		TSR_TRY(take_after(f, old, err));
	return reserve(f, nbytes, err);
}

/* The file that it will replace, if there is one: a link has no permissions. */
static enum tsr_status stat_like(const char *path, struct stat *ret, struct tsr_err *err)
{
	if (lstat(path, ret) != 0 && errno != ENOENT)
		return tsr_fail_errno(err, errno, "%s: cannot stat", path);
	if (!S_ISREG(ret->st_mode))
		*ret = (struct stat){ 0 };
	return TSR_OK;
}

static enum tsr_status new_outfile(const char *path, bool force, struct tsr_outfile **ret,
				   struct tsr_err *err)
{
	struct tsr_outfile *f;

	TSR_TRY(TSR_NEW(&f, 1, err, path));
	*f = (struct tsr_outfile){ .dir_fd = -1, .fd = -1, .force = force, .path = strdup(path) };
	if (!f->path) {
		free(f);
		return tsr_fail_nomem(err, path);
	}
	f->name = tsr_path_name(f->path);
	*ret = f;
	return TSR_OK;
}

/* @like: what it has the permissions of; NULL: the file at the target. */
static enum tsr_status start(struct tsr_outfile *f, const char *path, const char *like,
			     uint64_t nbytes, struct tsr_err *err)
{
	struct stat old;

	if (is_stream(path)) {
		TSR_TRY(start_stream(f, err));
		return reserve(f, nbytes, err);
	}
	TSR_TRY(look_at_target(path, f->path, f->force, &f->dir_fd, &old, err));
	f->old = old;
	if (like)
		TSR_TRY(stat_like(like, &old, err));
	tsr_temporary_hold(1);
	f->held = true;
	TSR_TRY(open_temp(f, old.st_mode ? 0600 : 0666, err));
	return prepare(f, &old, nbytes, err);
}

/* --- Files that several processes write --------------------------------------------------------- */

static enum tsr_status open_met(struct tsr_outfile *f, mode_t mode, uint64_t id, uint64_t nbytes,
				bool joins, struct tsr_err *err)
{
	struct stat st;

	TSR_TRY(tsr_temporary_name_of(f->name, id, f->path, &f->temp, err));
	TSR_TRY(tsr_file_met(f->dir_fd, f->temp, mode, nbytes, joins, f->path, &f->fd, err));
	if (fstat(f->fd, &st) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat", f->temp);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return tsr_fail(err, TSR_E_IO, "%s: found a %s with %ju names, expected a file",
				f->temp, S_ISREG(st.st_mode) ? "file" : tsr_file_kind(st.st_mode),
				(uintmax_t)st.st_nlink);
	return TSR_OK;
}

static enum tsr_status meet(struct tsr_outfile *f, uint64_t id, uint64_t nbytes, bool joins,
			    struct tsr_err *err)
{
	struct stat old;

	TSR_TRY(look_at_target(f->path, f->path, f->force, &f->dir_fd, &old, err));
	TSR_TRY(open_met(f, old.st_mode ? 0600 : 0666, id, nbytes, joins, err));
	return joins ? TSR_OK : prepare(f, &old, nbytes, err);
}

enum tsr_status tsr_outfile_meet(const char *path, bool force, uint64_t nbytes, uint64_t id,
				 bool joins, struct tsr_outfile **ret, struct tsr_err *err)
{
	struct tsr_outfile *f;
	enum tsr_status status;

	if (is_stream(path))
		return tsr_fail(err, TSR_E_USAGE,
				"%s: is one process's own, expected a file that parts can share",
				path);
	TSR_TRY(new_outfile(path, force, &f, err));
	f->met = true;
	f->trail = tsr_trail_new();
	status = meet(f, id, nbytes, joins, err);
	return TSR_MADE(status, ret, f, tsr_outfile_discard);
}

enum tsr_status tsr_outfile_take_back(const char *path, uint64_t id, struct tsr_err *err)
{
	const char *name = tsr_path_name(path);
	TSR_OWNED(free) char *temp = NULL;
	TSR_SCOPED(tsr_fd_close) int dir_fd = -1;
	struct stat st;

	TSR_TRY(tsr_temporary_name_of(name, id, path, &temp, err));
	TSR_TRY(tsr_path_open_directory(path, &dir_fd, err));
	if (fstatat(dir_fd, temp, &st, AT_SYMLINK_NOFOLLOW) != 0 &&
	    fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    renameat(dir_fd, name, dir_fd, temp) == 0)
		(void)fchmodat(dir_fd, temp, (st.st_mode & 0777) | 0600, 0);
	return TSR_OK;
}

/* All that was written is on the disk. */
static enum tsr_status sync_and_close(struct tsr_outfile *f, struct tsr_err *err)
{
	int failed;

	if (tsr_temporary_sync(f->fd) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot sync", f->path);
	tsr_trail_end(f->trail, f->fd);
	failed = close(f->fd);
	f->fd = -1;
	if (failed && errno != EINTR)
		return tsr_fail_errno(err, errno, "%s: cannot close", f->path);
	return TSR_OK;
}

enum tsr_status tsr_outfile_leave(struct tsr_outfile *f, struct tsr_err *err)
{
	const enum tsr_status status = sync_and_close(f, err);

	tsr_outfile_discard(f);
	return status;
}

char *tsr_outfile_temporary(const struct tsr_outfile *f)
{
	TSR_OWNED(free) char *dir = tsr_path_directory(f->path);

	return dir && f->temp ? tsr_path_join(dir, f->temp) : NULL;
}

static enum tsr_status create(const char *path, const char *shown, const char *like, bool force,
			      uint64_t nbytes, struct tsr_outfile **ret, struct tsr_err *err)
{
	struct tsr_outfile *f;
	enum tsr_status status;

	TSR_TRY(new_outfile(shown, force, &f, err));
	status = start(f, path, like, nbytes, err);
	return TSR_MADE(status, ret, f, tsr_outfile_discard);
}

enum tsr_status tsr_outfile_create(const char *path, bool force, uint64_t nbytes,
				   struct tsr_outfile **ret, struct tsr_err *err)
{
	return create(path, path, NULL, force, nbytes, ret, err);
}

enum tsr_status tsr_outfile_create_like(const char *path, const char *like, uint64_t nbytes,
					struct tsr_outfile **ret, struct tsr_err *err)
{
	return create(path, path, like, false, nbytes, ret, err);
}

enum tsr_status tsr_outfile_create_as(const char *path, const char *shown, uint64_t nbytes,
				      struct tsr_outfile **ret, struct tsr_err *err)
{
	return create(path, shown, NULL, false, nbytes, ret, err);
}

enum tsr_status tsr_outfile_write(struct tsr_outfile *f, const void *buf, size_t nbytes,
				  uint64_t offset, struct tsr_err *err)
{
	TSR_TRY(tsr_write_all(f->fd, f->path, f->stream ? TSR_SCRATCH_FAILED : "cannot write", buf,
			      nbytes, offset, err));
	tsr_trail_written(f->trail, f->fd, offset, nbytes);
	return TSR_OK;
}

enum tsr_status tsr_outfile_read(const struct tsr_outfile *f, void *buf, size_t nbytes,
				 uint64_t offset, struct tsr_err *err)
{
	for (size_t done = 0; done < nbytes;) {
		const ssize_t n = pread(f->fd, (char *)buf + done, nbytes - done,
					(off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return tsr_fail_errno(err, errno, "%s: cannot read", f->path);
		if (n == 0)
			return tsr_fail(err, TSR_E_IO, "%s: ends before what was written", f->path);
		done += (size_t)n;
	}
	return TSR_OK;
}

/*
 * Rename without replacing; file systems that lack the flag get a hard link, which cannot either.
 * *lacking_ret: this one has neither, as FAT and some network file systems.
 */
static int rename_noreplace(const struct tsr_outfile *f, bool *temp_remains_ret, bool *lacking_ret)
{
	if (renameat2(f->dir_fd, f->temp, f->dir_fd, f->name, RENAME_NOREPLACE) == 0)
		return 0;
	if (!tsr_temporary_lacking(errno))
		return -1;
	if (linkat(f->dir_fd, f->temp, f->dir_fd, f->name, 0) != 0) {
		*lacking_ret = tsr_temporary_lacking(errno) || errno == EPERM;
		return -1;
	}
	*temp_remains_ret = unlinkat(f->dir_fd, f->temp, 0) != 0;
	return 0;
}

/* Whether what has a name is still the file that is to be replaced, unmodified. */
static bool is_old(const struct tsr_outfile *f, const char *name)
{
	struct stat now;

	return fstatat(f->dir_fd, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	       tsr_same_file(&now, &f->old) && now.st_size == f->old.st_size &&
	       now.st_mtim.tv_sec == f->old.st_mtim.tv_sec &&
	       now.st_mtim.tv_nsec == f->old.st_mtim.tv_nsec;
}

/*
 * Replace the file that was there and no other: what came in its place since is given back its name.  It is
 * looked at before, and after both names are exchanged at once; file systems that cannot do that get the
 * first look only.  *other_ret: it is another.
 */
static int rename_over(struct tsr_outfile *f, bool *temp_remains_ret, bool *other_ret)
{
	*other_ret = f->old.st_mode && !is_old(f, f->name);
	if (*other_ret)
		return -1;
	if (!f->old.st_mode)
		return renameat(f->dir_fd, f->temp, f->dir_fd, f->name);
	if (renameat2(f->dir_fd, f->temp, f->dir_fd, f->name, RENAME_EXCHANGE) != 0)
		return tsr_temporary_lacking(errno)
			       ? renameat(f->dir_fd, f->temp, f->dir_fd, f->name)
			       : -1;
	*other_ret = !is_old(f, f->temp);
	if (*other_ret && renameat2(f->dir_fd, f->temp, f->dir_fd, f->name, RENAME_EXCHANGE) == 0)
		return -1;
	f->met = *other_ret; /* it is not ours to remove */
	*temp_remains_ret = *other_ret || unlinkat(f->dir_fd, f->temp, 0) != 0;
	return 0;
}

/* Why a file cannot take its name. */
static enum tsr_status unnamed(const struct tsr_outfile *f, bool lacking, struct tsr_err *err)
{
	if (errno == EEXIST)
		return tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE, "%s: output exists", f->path);
	if (lacking)
		return tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE,
				     "%s: cannot rename to it: its file system has no way to do so "
				     "without replacing what may appear there",
				     f->path);
	return tsr_fail_errno(err, errno, "%s: cannot rename to it", f->path);
}

/* The file has its name.  What is left to do cannot undo that, only leave a doubt behind. */
static enum tsr_status make_durable(struct tsr_outfile *f, bool temp_remains, struct tsr_err *err)
{
	if (temp_remains)
		tsr_fail_errno(
			err, errno,
			"%s: published and complete, but cannot remove its temporary name %s",
			f->path, f->temp);
	/* One that remains is tried again at the end. */
	if (!temp_remains) {
		free(f->temp);
		f->temp = NULL;
	}
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

enum tsr_status tsr_outfile_publish(struct tsr_outfile **file, struct tsr_err *err)
{
	TSR_OWNED(tsr_outfile_discard) struct tsr_outfile *f = *file;
	bool temp_remains = false, lacking = false, other = false;
	enum tsr_status status;
	int failed;

	*file = NULL;
	if (f->stream)
		return copy_stream(f, err);
	TSR_TRY(sync_and_close(f, err));
	do {
		failed = f->force ? rename_over(f, &temp_remains, &other)
				  : rename_noreplace(f, &temp_remains, &lacking);
	} while (failed && !other && errno == EINTR);
	if (failed && other)
		return tsr_fail(err, TSR_E_IO,
				"%s: was modified or replaced by another program while its "
				"successor was written; that one is kept",
				f->path);
	if (failed)
		return unnamed(f, lacking, err);
	status = make_durable(f, temp_remains, err);
	f->held = false; /* for good: the output is there, and no signal says otherwise */
	return status;
}

void tsr_outfile_discard(struct tsr_outfile *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	if (f->temp && !f->met)
		unlinkat(f->dir_fd, f->temp, 0);
	if (f->dir_fd >= 0)
		close(f->dir_fd);
	if (f->held)
		tsr_temporary_hold(-1);
	tsr_trail_free(f->trail);
	free(f->temp);
	free(f->path);
	free(f);
}

enum tsr_status tsr_outfile_write_whole(const char *path, bool force, const void *bytes,
					size_t nbytes, struct tsr_err *err)
{
	TSR_OWNED(tsr_outfile_discard) struct tsr_outfile *f = NULL;

	TSR_TRY(tsr_outfile_create(path, force, nbytes, &f, err));
	TSR_TRY(tsr_outfile_write(f, bytes, nbytes, 0, err));
	return tsr_outfile_publish(&f, err);
}
