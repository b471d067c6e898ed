/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that appear only when they are complete. */
#include "io/out_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/dir.h"
#include "io/file.h"

struct tsr_outdir {
	char *target; /* without slashes at its end */
	char *temp; /* the directory until it is published */
	bool force;
	bool made;
};

/* --- The target ------------------------------------------------------------------------------ */

/* A path without the slashes at its end, to be freed. */
static char *without_slashes(const char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	return strndup(path, len);
}

/* The directory that a path without slashes at its end is in, and its name there. */
static char *parent_of(const char *path, const char **name_ret)
{
	const char *slash = strrchr(path, '/');

	*name_ret = slash ? slash + 1 : path;
	if (!slash)
		return strdup(".");
	return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Whether @inner is @outer or in it; both are absolute and without links. */
static bool is_within(const char *inner, const char *outer)
{
	const size_t n = strlen(outer);

	return strncmp(inner, outer, n) == 0 &&
	       (inner[n] == '/' || inner[n] == '\0' || outer[n - 1] == '/');
}

static enum tsr_status check_apart(const char *input, const char *path, const char *parent,
				   const char *name, struct tsr_err *err)
{
	char *in = realpath(input, NULL), *dir = realpath(parent, NULL);
	char *out = dir ? tsr_path_join(dir, name) : NULL;
	enum tsr_status status = TSR_OK;

	if (!in || !dir)
		status = tsr_fail_errno(err, errno, "%s: cannot resolve", in ? parent : input);
	else if (!out)
		status = tsr_fail_nomem(err, path);
	else if (strcmp(out, in) == 0)
		status = tsr_fail(err, TSR_E_IO, "%s: output is the same directory as input %s",
				  path, input);
	else if (is_within(out, in))
		status = tsr_fail(err, TSR_E_IO, "%s: output is inside input %s", path, input);
	else if (is_within(in, out))
		status = tsr_fail(err, TSR_E_IO, "%s: input %s is inside the output", path, input);
	free(in);
	free(dir);
	free(out);
	return status;
}

/* Whether a directory may be replaced: it is empty, or has the file that shows what it is. */
static enum tsr_status check_sign(const char *path, const char *sign, struct tsr_err *err)
{
	char *file = tsr_path_join(path, sign);
	const bool has = file && tsr_dir_has(file);
	struct dirent *entry;
	bool empty = true;
	DIR *dir;

	free(file);
	if (has)
		return TSR_OK;
	dir = opendir(path);
	if (!dir)
		return tsr_fail_errno(err, errno, "%s: cannot open", path);
	while (empty && (entry = readdir(dir)))
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	closedir(dir);
	return empty ? TSR_OK
		     : tsr_fail(err, TSR_E_IO,
				"%s: output exists and has no %s, so it is not replaced", path,
				sign);
}

static enum tsr_status check_existing(const struct tsr_outdir_target *t, const char *path,
				      struct tsr_err *err)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return errno == ENOENT ? TSR_OK
				       : tsr_fail_errno(err, errno, "%s: cannot stat", path);
	if (!S_ISDIR(st.st_mode))
		return tsr_fail(err, TSR_E_IO, "%s: output exists and is not a directory", path);
	if (!t->force)
		return tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE, "%s: output exists", path);
	return t->sign ? check_sign(path, t->sign, err) : TSR_OK;
}

static enum tsr_status check_space(const char *parent, const char *path, uint64_t nbytes,
				   struct tsr_err *err)
{
	struct statvfs fs;

	if (statvfs(parent, &fs) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot stat its directory", path);
	if (fs.f_blocks && fs.f_frsize && nbytes / fs.f_frsize > fs.f_bavail)
		return tsr_fail_errno(err, ENOSPC, "%s: cannot reserve %" PRIu64 " bytes", path,
				      nbytes);
	return TSR_OK;
}

enum tsr_status tsr_outdir_check(const struct tsr_outdir_target *target, uint64_t nbytes,
				 struct tsr_err *err)
{
	char *path = without_slashes(target->path), *parent;
	enum tsr_status status = TSR_OK;
	const char *name;

	parent = path ? parent_of(path, &name) : NULL;
	if (!parent)
		status = tsr_fail_nomem(err, target->path);
	else if (!tsr_dir_is_name(name))
		status = tsr_fail(err, TSR_E_IO, "%s: output has no name", path);
	else if (!tsr_dir_is(parent))
		status = tsr_fail(err, TSR_E_IO, "%s: there is no directory to put it into", path);
	if (status == TSR_OK)
		status = check_apart(target->input, path, parent, name, err);
	if (status == TSR_OK)
		status = check_existing(target, path, err);
	if (status == TSR_OK)
		status = check_space(parent, path, nbytes, err);
	free(parent);
	free(path);
	return status;
}

/* --- Removing -------------------------------------------------------------------------------- */

static bool remove_entries(int fd);

/* Remove a directory of this run, or one that it replaced, and all in it: whether it is gone. */
static bool remove_tree(int at, const char *name)
{
	int fd;
	bool ok;

	/* What its owner may not enter can still be the owner's. */
	(void)fchmodat(at, name, 0700, 0);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return false;
	ok = remove_entries(fd);
	return unlinkat(at, name, AT_REMOVEDIR) == 0 && ok;
}

/* Takes over the descriptor. */
static bool remove_entries(int fd)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	bool ok = dir != NULL;

	if (!dir) {
		close(fd);
		return false;
	}
	while ((entry = readdir(dir))) {
		struct stat st;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISDIR(st.st_mode))
			ok = remove_tree(fd, entry->d_name) && ok;
		else
			ok = unlinkat(fd, entry->d_name, 0) == 0 && ok;
	}
	closedir(dir);
	return ok;
}

/* --- Making ---------------------------------------------------------------------------------- */

enum tsr_status tsr_directory_make(const char *path, struct tsr_err *err)
{
	if (mkdir(path, 0700) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot make the directory", path);
	return TSR_OK;
}

enum tsr_status tsr_path_set_mode(const char *path, unsigned mode, struct tsr_err *err)
{
	if (chmod(path, mode) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot set its mode", path);
	return TSR_OK;
}

enum tsr_status tsr_directory_sync(const char *path, struct tsr_err *err)
{
	enum tsr_status status = TSR_OK;
	int fd, failed;

	do {
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return tsr_fail_errno(err, errno, "%s: cannot open", path);
	do {
		failed = fsync(fd);
	} while (failed && errno == EINTR);
	if (failed)
		status = tsr_fail_errno(err, errno, "%s: cannot sync", path);
	close(fd);
	return status;
}

/* A new name beside the target, to be freed. */
static char *beside(const char *target, const char *end)
{
	const char *name;
	char *parent = parent_of(target, &name), *path = NULL;
	uint64_t random = 0;

	while (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		if (errno != EINTR) {
			free(parent);
			return NULL;
		}
	}
	if (parent && asprintf(&path, "%s/.%s.%016" PRIx64 ".%s", parent, name, random, end) < 0)
		path = NULL;
	free(parent);
	return path;
}

enum tsr_status tsr_outdir_create(const struct tsr_outdir_target *target, struct tsr_outdir **ret,
				  struct tsr_err *err)
{
	enum tsr_status status = TSR_OK;
	struct tsr_outdir *d;

	TSR_TRY(tsr_outdir_check(target, 0, err));
	d = calloc(1, sizeof(*d));
	if (!d)
		return tsr_fail_nomem(err, target->path);
	d->force = target->force;
	d->target = without_slashes(target->path);
	d->temp = d->target ? beside(d->target, "tmp") : NULL;
	if (!d->temp)
		status = tsr_fail_nomem(err, target->path);
	else
		status = tsr_directory_make(d->temp, err);
	d->made = status == TSR_OK;
	if (status == TSR_OK)
		*ret = d;
	else
		tsr_outdir_discard(d);
	return status;
}

const char *tsr_outdir_path(const struct tsr_outdir *d)
{
	return d->temp;
}

void tsr_outdir_discard(struct tsr_outdir *d)
{
	if (!d)
		return;
	if (d->made)
		(void)remove_tree(AT_FDCWD, d->temp);
	free(d->target);
	free(d->temp);
	free(d);
}

/* --- Publishing ------------------------------------------------------------------------------ */

/* Rename without replacing; without the flag, rename() replaces nothing but an empty directory. */
static int take_free_name(const struct tsr_outdir *d)
{
	if (renameat2(AT_FDCWD, d->temp, AT_FDCWD, d->target, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	return rename(d->temp, d->target);
}

/*
 * Take the name of a directory, which is then under the temporary name.  File systems that cannot
 * exchange two get it moved aside first: for a moment there is none, and both are complete.
 */
static int take_used_name(struct tsr_outdir *d)
{
	char *aside;
	int failed;

	if (renameat2(AT_FDCWD, d->temp, AT_FDCWD, d->target, RENAME_EXCHANGE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	aside = beside(d->target, "old");
	if (!aside || rename(d->target, aside) != 0) {
		free(aside);
		return -1;
	}
	failed = rename(d->temp, d->target);
	if (failed) {
		const int errnum = errno;

		(void)rename(aside, d->target);
		free(aside);
		errno = errnum;
		return -1;
	}
	free(d->temp);
	d->temp = aside;
	return 0;
}

/* The directory has its name; what is left to do cannot undo that. */
static enum tsr_status finish(struct tsr_outdir *d, bool replaced, struct tsr_err *err)
{
	const char *name;
	char *parent = parent_of(d->target, &name);
	bool synced = parent && tsr_directory_sync(parent, NULL) == TSR_OK;
	bool removed = true;

	free(parent);
	if (replaced)
		removed = remove_tree(AT_FDCWD, d->temp);
	d->made = false;
	if (synced && removed)
		return TSR_OK;
	if (!synced)
		return tsr_fail(
			err, TSR_E_DURABILITY,
			"%s: published and complete, but may not survive a power cut: cannot "
			"sync its directory",
			d->target);
	return tsr_fail(err, TSR_E_DURABILITY,
			"%s: published and complete, but cannot remove all of what it replaced, %s",
			d->target, d->temp);
}

enum tsr_status tsr_outdir_publish(struct tsr_outdir *d, unsigned mode, struct tsr_err *err)
{
	enum tsr_status status = tsr_directory_sync(d->temp, err);
	bool replaced = false;
	int failed;

	if (status == TSR_OK)
		status = tsr_path_set_mode(d->temp, mode, err);
	if (status != TSR_OK)
		goto discard;
	failed = take_free_name(d);
	if (failed && d->force && (errno == EEXIST || errno == ENOTEMPTY)) {
		failed = take_used_name(d);
		replaced = !failed;
	}
	if (failed && (errno == EEXIST || errno == ENOTEMPTY))
		status = tsr_fail_hint(err, TSR_E_IO, TSR_HINT_FORCE, "%s: output exists",
				       d->target);
	else if (failed)
		status = tsr_fail_errno(err, errno, "%s: cannot rename to it", d->target);
	else
		status = finish(d, replaced, err);
discard:
	tsr_outdir_discard(d);
	return status;
}
