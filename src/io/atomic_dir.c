/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that appear only when they are complete. */
#include "io/atomic_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/old_libc.h"
#include "io/dir.h"
#include "io/file_calls.h"
#include "io/temporary.h"

/* How deep the directories of a tree that is removed may be. */
#define DEPTH_MAX 64u

struct tsr_outdir {
	bool met; /* others make it too: what fails leaves it */
	int parent_fd;
	mode_t mode; /* of the directory that is replaced, or 0 */
	char *path; /* the target, without slashes at its end */
	const char *name; /* the last component, inside path */
	char *temp; /* the path of the temporary directory; NULL before it exists */
	bool held; /* it counts as an output in the making */
	const char *temp_name; /* its last component, inside temp */
};

/* --- Removing ------------------------------------------------------------------------------- */

static int remove_tree(int parent, const char *name, unsigned depth);

/* Remove what is in an open directory; -1 with errno.  Without allocations: memory may be what failed. */
static int remove_entries(int fd, unsigned depth)
{
	_Alignas(struct dirent64) char entries[2048];
	ssize_t n;

	while ((n = getdents64(fd, entries, sizeof(entries))) > 0) {
		bool removed = false;

		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *entry = (const void *)(entries + at);

			at += entry->d_reclen;
			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			if (remove_tree(fd, entry->d_name, depth) != 0)
				return -1;
			removed = true;
		}
		if (removed && lseek(fd, 0, SEEK_SET) != 0)
			return -1;
	}
	return n < 0 ? -1 : 0;
}

/* Remove a file, link or directory and all in it; links are not followed.  -1 with errno. */
static int remove_tree(int parent, const char *name, unsigned depth)
{
	struct stat st;
	int fd, failed, errnum;

	if (unlinkat(parent, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	if (depth == DEPTH_MAX) {
		errno = ELOOP;
		return -1;
	}
	/* What its owner may not enter is still the owner's. */
	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
	    (st.st_mode & 0700) != 0700)
		(void)fchmodat(parent, name, 0700, 0);
	fd = tsr_open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	failed = remove_entries(fd, depth + 1);
	errnum = errno;
	close(fd);
	errno = errnum;
	return failed ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
}

/* --- The target ----------------------------------------------------------------------------- */

/* A path without slashes at its end, to be freed, also on failure. */
static enum tsr_status trim(const char *path, char **ret, struct tsr_err *err)
{
	const char *name;

	*ret = tsr_path_trim(path);
	if (!*ret)
		return tsr_fail_nomem(err, path);
	name = tsr_path_name(*ret);
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return tsr_fail(err, TSR_E_IO, "%s: output has no name of its own", path);
	return TSR_OK;
}

static enum tsr_status check_entries(const char *path, size_t root,
				     const struct tsr_outdir_rule *rule, bool *empty_ret,
				     struct tsr_err *err);

/* One entry: what is not owned, or is a link or special file, keeps the directory from being replaced. */
static enum tsr_status check_entry(const char *path, size_t root,
				   const struct tsr_outdir_rule *rule, struct tsr_err *err)
{
	struct stat st;
	bool empty;

	if (lstat(path, &st) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat", path);
	if (!rule->owns || !(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) ||
	    !rule->owns(rule->ctx, path + root + 1))
		return tsr_fail(err, TSR_E_IO,
				"%.*s: output exists and is a directory of other things, which is "
				"not replaced: found %.255s in it",
				(int)root, path, path + root + 1);
	return S_ISDIR(st.st_mode) ? check_entries(path, root, rule, &empty, err) : TSR_OK;
}

/* All that is in a directory of the target, whose path has @root bytes. */
static enum tsr_status check_entries(const char *path, size_t root,
				     const struct tsr_outdir_rule *rule, bool *empty_ret,
				     struct tsr_err *err)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir found = { 0 };

	TSR_TRY(tsr_dir_list_all(path, &found, err));
	*empty_ret = !found.n;
	for (size_t i = 0; i < found.n; i++) {
		TSR_OWNED(free) char *full = tsr_path_join(path, found.names[i]);

		TSR_TRY(full ? check_entry(full, root, rule, err) : tsr_fail_nomem(err, path));
	}
	return TSR_OK;
}

/* *mode_ret: of the directory that is there, or 0. */
static enum tsr_status check_target(const char *path, const struct tsr_outdir_rule *rule,
				    mode_t *mode_ret, struct tsr_err *err)
{
	bool empty = true;
	struct stat st;

	*mode_ret = 0;
	if (lstat(path, &st) != 0)
		return errno == ENOENT ? TSR_OK
				       : tsr_fail_errno(err, errno, "%s: cannot stat", path);
	if (!S_ISDIR(st.st_mode))
		return tsr_fail(err, TSR_E_IO, "%s: output exists and is not a directory", path);
	TSR_TRY(check_entries(path, strlen(path), rule, &empty, err));
	*mode_ret = st.st_mode & 0777;
	if (empty || rule->force)
		return TSR_OK;
	return tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE, "%s: output exists", path);
}

/* Show a full disk before the work. */
static enum tsr_status check_space(int fd, const char *path, uint64_t nbytes, struct tsr_err *err)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs) == 0 && fs.f_blocks && fs.f_frsize &&
	    nbytes / fs.f_frsize > fs.f_bavail)
		return tsr_fail_errno(err, ENOSPC, "%s: cannot reserve %" PRIu64 " bytes", path,
				      nbytes);
	return TSR_OK;
}

enum tsr_status tsr_outdir_check_target(const char *path, const struct tsr_outdir_rule *rule,
					uint64_t nbytes, struct tsr_err *err)
{
	TSR_OWNED(free) char *trimmed = NULL;
	TSR_SCOPED(tsr_fd_close) int parent_fd = -1;
	mode_t mode;

	TSR_TRY(trim(path, &trimmed, err));
	TSR_TRY(tsr_path_open_directory(trimmed, &parent_fd, err));
	TSR_TRY(check_target(trimmed, rule, &mode, err));
	return check_space(parent_fd, path, nbytes, err);
}

/* The real path, to be freed; NULL of what is not there. */
static enum tsr_status resolve(const char *path, char **ret, struct tsr_err *err)
{
	*ret = realpath(path, NULL);
	if (*ret || errno == ENOENT || errno == ENOTDIR)
		return TSR_OK;
	return tsr_fail_errno(err, errno, "%s: cannot resolve", path);
}

/* Whether a path is @directory, or below it; false if one of them is not there. */
static enum tsr_status is_in(const char *path, const char *directory, bool *ret,
			     struct tsr_err *err)
{
	TSR_OWNED(free) char *at = NULL;
	TSR_OWNED(free) char *dir = NULL;
	size_t n;

	TSR_TRY(resolve(path, &at, err));
	TSR_TRY(resolve(directory, &dir, err));
	n = dir ? strlen(dir) : 0;
	*ret = at && n && strncmp(at, dir, n) == 0 && (!at[n] || at[n] == '/' || n == 1);
	return TSR_OK;
}

enum tsr_status tsr_outdir_check_outside(const char *path, const char *input, struct tsr_err *err)
{
	bool inside;

	TSR_TRY(is_in(input, path, &inside, err));
	return inside ? tsr_fail(err, TSR_E_IO, "%s: output is, or holds, the input %s", path,
				 input)
		      : TSR_OK;
}

enum tsr_status tsr_outdir_check_not_below(const char *path, const char *input, struct tsr_err *err)
{
	TSR_OWNED(free) char *trimmed = NULL;
	TSR_OWNED(free) char *parent = NULL;
	bool below = false;

	TSR_TRY(trim(path, &trimmed, err));
	parent = tsr_path_directory(trimmed);
	TSR_TRY(parent ? is_in(parent, input, &below, err) : tsr_fail_nomem(err, path));
	return below ? tsr_fail(err, TSR_E_IO, "%s: output is inside input %s", path, input)
		     : TSR_OK;
}

/* --- Making --------------------------------------------------------------------------------- */

/* Its name is known: the path of the directory in the making. */
static enum tsr_status name_temporary(struct tsr_outdir *d, const char *name, struct tsr_err *err)
{
	const int dir_len = (int)(d->name - d->path);

	if (asprintf(&d->temp, "%.*s%s", dir_len, d->path, name) < 0) {
		d->temp = NULL;
		return tsr_fail_nomem(err, d->path);
	}
	d->temp_name = d->temp + dir_len;
	return TSR_OK;
}

static enum tsr_status make_temporary(struct tsr_outdir *d, struct tsr_err *err)
{
	TSR_OWNED(free) char *name = NULL;
	enum tsr_status status;
	int failed;

	do {
		free(name);
		name = NULL;
		TSR_TRY(tsr_temporary_name(d->name, d->path, &name, err));
		failed = mkdirat(d->parent_fd, name, 0777);
	} while (failed && errno == EEXIST);
	if (failed)
		return tsr_fail_errno(err, errno, "%s: cannot create a directory beside it",
				      d->path);
	status = name_temporary(d, name, err);
	if (status != TSR_OK)
		unlinkat(d->parent_fd, name, AT_REMOVEDIR);
	return status;
}

/* Make the one that all processes have, or find it. */
static enum tsr_status meet_temporary(struct tsr_outdir *d, uint64_t id, bool joins,
				      struct tsr_err *err)
{
	TSR_OWNED(free) char *name = NULL;
	struct stat st;

	TSR_TRY(tsr_temporary_name_of(d->name, id, d->path, &name, err));
	if (!joins && mkdirat(d->parent_fd, name, 0700) != 0 && errno != EEXIST)
		return tsr_fail_errno(err, errno, "%s: cannot create a directory beside it",
				      d->path);
	if (fstatat(d->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot open %s, the directory of all parts",
				      d->path, name);
	if (!S_ISDIR(st.st_mode))
		return tsr_fail(err, TSR_E_IO,
				"%s: found a %s at %s, expected the directory of all parts",
				d->path, tsr_file_kind(st.st_mode), name);
	return name_temporary(d, name, err);
}

static enum tsr_status start(struct tsr_outdir *d, const char *path,
			     const struct tsr_outdir_rule *rule, struct tsr_err *err)
{
	TSR_TRY(trim(path, &d->path, err));
	d->name = tsr_path_name(d->path);
	TSR_TRY(tsr_path_open_directory(d->path, &d->parent_fd, err));
	TSR_TRY(check_target(d->path, rule, &d->mode, err));
	tsr_temporary_hold(1);
	d->held = true;
	return TSR_OK;
}

void tsr_outdir_leave(struct tsr_outdir *d)
{
	if (d->parent_fd >= 0)
		close(d->parent_fd);
	if (d->held)
		tsr_temporary_hold(-1);
	free(d->temp);
	free(d->path);
	free(d);
}

/* @id: of those that make it together; NULL: it is made alone. */
static enum tsr_status create(const char *path, const struct tsr_outdir_rule *rule,
			      const uint64_t *id, bool joins, struct tsr_outdir **ret,
			      struct tsr_err *err)
{
	struct tsr_outdir *d;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&d, 1, err, path));
	*d = (struct tsr_outdir){ .met = id, .parent_fd = -1 };
	status = start(d, path, rule, err);
	TSR_THEN(status, id ? meet_temporary(d, *id, joins, err) : make_temporary(d, err));
	return TSR_MADE(status, ret, d, tsr_outdir_leave);
}

enum tsr_status tsr_outdir_meet(const char *path, const struct tsr_outdir_rule *rule, uint64_t id,
				bool joins, struct tsr_outdir **ret, struct tsr_err *err)
{
	return create(path, rule, &id, joins, ret, err);
}

enum tsr_status tsr_outdir_create(const char *path, const struct tsr_outdir_rule *rule,
				  struct tsr_outdir **ret, struct tsr_err *err)
{
	return create(path, rule, NULL, false, ret, err);
}

const char *tsr_outdir_path(const struct tsr_outdir *d)
{
	return d->temp;
}

/* Whether a path leads to something below where it starts. */
static bool is_below(const char *name)
{
	const char *at = name;

	while (*at) {
		const size_t n = strcspn(at, "/");

		if (!n || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
			return false;
		at += n;
		if (*at == '/' && !*++at)
			return false;
	}
	return at != name;
}

/* Make the directories that lead to a file. */
static enum tsr_status make_way(struct tsr_outdir *d, const char *name, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = tsr_path_join(d->temp, name);
	size_t before = strlen(d->temp);

	if (!is_below(name))
		return tsr_fail(err, TSR_E_IO, "%s: cannot have a file \"%s\"", d->path, name);
	if (!path)
		return tsr_fail_nomem(err, d->path);
	for (char *slash = path + before; (slash = strchr(slash + 1, '/'));) {
		*slash = '\0';
		if (mkdir(path, 0777) == 0) {
			path[before] = '\0';
			TSR_TRY(tsr_dir_sync(path, d->path, err));
			path[before] = '/';
		} else if (errno != EEXIST) {
			return tsr_fail_errno(err, errno, "%s/%s: cannot make its directory",
					      d->path, name);
		}
		*slash = '/';
		before = (size_t)(slash - path);
	}
	return TSR_OK;
}

enum tsr_status tsr_outdir_file(struct tsr_outdir *d, const char *name, uint64_t nbytes,
				struct tsr_outfile **ret, struct tsr_err *err)
{
	TSR_OWNED(free) char *path = tsr_path_join(d->temp, name);
	TSR_OWNED(free) char *shown = tsr_path_join(d->path, name);

	TSR_TRY(make_way(d, name, err));
	return path && shown ? tsr_outfile_create_as(path, shown, nbytes, ret, err)
			     : tsr_fail_nomem(err, d->path);
}

/* --- Publishing ----------------------------------------------------------------------------- */

/* Where the system cannot exchange two names: the old directory steps aside first. */
static int rename_in_two_steps(struct tsr_outdir *d)
{
	char *aside = NULL;
	int failed;

	if (tsr_temporary_name(d->name, d->path, &aside, NULL) != TSR_OK) {
		errno = ENOMEM;
		return -1;
	}
	failed = renameat(d->parent_fd, d->name, d->parent_fd, aside);
	if (!failed && renameat(d->parent_fd, d->temp_name, d->parent_fd, d->name) != 0) {
		const int errnum = errno;

		renameat(d->parent_fd, aside, d->parent_fd, d->name);
		errno = errnum;
		failed = -1;
	}
	if (!failed)
		failed = renameat(d->parent_fd, aside, d->parent_fd, d->temp_name);
	free(aside);
	return failed;
}

/* Renaming to an absent or empty directory cannot replace anything else. */
static enum tsr_status take_name(struct tsr_outdir *d, const struct tsr_outdir_rule *rule,
				 bool *old_remains_ret, struct tsr_err *err)
{
	mode_t mode;

	*old_remains_ret = false;
	if (renameat(d->parent_fd, d->temp_name, d->parent_fd, d->name) == 0)
		return TSR_OK;
	if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
		return tsr_fail_errno(err, errno, "%s: cannot rename to it", d->path);
	TSR_TRY(check_target(d->path, rule, &mode, err));
	if (renameat2(d->parent_fd, d->temp_name, d->parent_fd, d->name, RENAME_EXCHANGE) != 0 &&
	    (!tsr_temporary_lacking(errno) || rename_in_two_steps(d) != 0))
		return tsr_fail_errno(err, errno, "%s: cannot rename to it", d->path);
	*old_remains_ret = true;
	return TSR_OK;
}

/* The directory has its name.  What is left to do cannot undo that. */
static enum tsr_status make_durable(struct tsr_outdir *d, bool old_remains, struct tsr_err *err)
{
	const bool synced = tsr_temporary_sync(d->parent_fd) == 0;

	if (!synced)
		tsr_fail_errno(err, errno,
			       "%s: published and complete, but may not survive a power cut: "
			       "cannot sync its directory",
			       d->path);
	if (synced && old_remains && remove_tree(d->parent_fd, d->temp_name, 0) != 0)
		tsr_fail_errno(err, errno,
			       "%s: published and complete, but cannot remove what it replaced, "
			       "now %s",
			       d->path, d->temp);
	else if (synced)
		return TSR_OK;
	if (err)
		err->code = TSR_E_DURABILITY;
	return TSR_E_DURABILITY;
}

enum tsr_status tsr_outdir_publish(struct tsr_outdir *d, const struct tsr_outdir_rule *rule,
				   struct tsr_err *err)
{
	bool old_remains = false;
	enum tsr_status status = TSR_OK;

	if (d->mode && fchmodat(d->parent_fd, d->temp_name, d->mode, 0) != 0)
		status = tsr_fail_errno(err, errno, "%s: cannot keep its mode", d->path);
	TSR_THEN(status, tsr_dir_sync(d->temp, d->path, err));
	TSR_THEN(status, take_name(d, rule, &old_remains, err));
	if (status != TSR_OK) {
		if (d->met)
			tsr_outdir_leave(d);
		else
			tsr_outdir_discard(d);
		return status;
	}
	status = make_durable(d, old_remains, err);
	d->held = false; /* for good: the output is there, and no signal says otherwise */
	tsr_outdir_leave(d);
	return status;
}

void tsr_outdir_discard(struct tsr_outdir *d)
{
	if (!d)
		return;
	if (d->temp)
		(void)remove_tree(d->parent_fd, d->temp_name, 0);
	tsr_outdir_leave(d);
}
