/* SPDX-License-Identifier: Apache-2.0 */
/* Directories and the names of files. */
#include "io/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "io/file.h"
#include "io/file_calls.h"
#include "io/temporary.h"

#define NAMES_MAX 100000u

bool tsr_dir_is(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool tsr_dir_is_link(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

bool tsr_dir_is_name(const char *s)
{
	return *s && strlen(s) <= TSR_FILE_NAME_MAX && !strpbrk(s, "/\\") && strcmp(s, ".") != 0 &&
	       strcmp(s, "..") != 0;
}

size_t tsr_dir_count_names(const char *path)
{
	char name[TSR_FILE_NAME_MAX + 1];
	size_t names = 0;

	for (const char *at = path;; at++) {
		const size_t n = strcspn(at, "/");

		if (n > TSR_FILE_NAME_MAX)
			return 0;
		memcpy(name, at, n);
		name[n] = '\0';
		if (!tsr_dir_is_name(name))
			return 0;
		names++;
		at += n;
		if (!*at)
			return names;
	}
}

bool tsr_dir_name_ends_with(const char *name, const char *suffix)
{
	const size_t n = strlen(name), len = strlen(suffix);

	return n >= len && strcmp(name + n - len, suffix) == 0;
}

static enum tsr_status add(struct tsr_dir *d, const char *path, const char *name,
			   struct tsr_err *err)
{
	if (d->n == NAMES_MAX)
		return tsr_fail(err, TSR_E_LIMIT, "%s: has more files than the limit of %u", path,
				NAMES_MAX);
	TSR_TRY(TSR_GROW(&d->names, d->n, err, path));
	d->names[d->n] = strdup(name);
	if (!d->names[d->n])
		return tsr_fail_nomem(err, path);
	d->n++;
	return TSR_OK;
}

static int by_name(const void *va, const void *vb)
{
	char *const *a = va, *const *b = vb;

	return strcmp(*a, *b);
}

static bool is_wanted(const char *name, const char *suffix, bool hidden)
{
	if (name[0] == '.' && (!hidden || strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
		return false;
	return tsr_dir_name_ends_with(name, suffix);
}

/* @hidden: also names that start with a dot. */
static enum tsr_status list(const char *path, const char *suffix, bool hidden, struct tsr_dir *ret,
			    struct tsr_err *err)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir d = { 0 };
	enum tsr_status status = TSR_OK;
	const struct dirent *entry;
	DIR *dir = opendir(path);

	if (!dir)
		return tsr_fail_errno(err, errno, "%s: cannot open", path);
	while (status == TSR_OK && (errno = 0, entry = readdir(dir))) {
		if (is_wanted(entry->d_name, suffix, hidden))
			status = add(&d, path, entry->d_name, err);
	}
	if (status == TSR_OK && errno)
		status = tsr_fail_errno(err, errno, "%s: cannot read the directory", path);
	closedir(dir);
	TSR_TRY(status);
	if (d.n)
		qsort(d.names, d.n, sizeof(*d.names), by_name);
	*ret = d;
	d = (struct tsr_dir){ 0 };
	return TSR_OK;
}

enum tsr_status tsr_dir_list(const char *path, const char *suffix, struct tsr_dir *ret,
			     struct tsr_err *err)
{
	return list(path, suffix, false, ret, err);
}

enum tsr_status tsr_dir_list_all(const char *path, struct tsr_dir *ret, struct tsr_err *err)
{
	return list(path, "", true, ret, err);
}

void tsr_dir_free(struct tsr_dir *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->names[i]);
	free(d->names);
	*d = (struct tsr_dir){ 0 };
}

enum tsr_status tsr_dir_make(const char *path, struct tsr_err *err)
{
	if (mkdir(path, 0700) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot make the directory", path);
	return TSR_OK;
}

enum tsr_status tsr_dir_set_mode(const char *path, unsigned mode, struct tsr_err *err)
{
	if (chmod(path, mode) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot set its mode", path);
	return TSR_OK;
}

static enum tsr_status move_up(const char *path, const char *name, unsigned mode,
			       struct tsr_err *err)
{
	TSR_OWNED(free) char *from = tsr_path_join(path, name);
	TSR_OWNED(free) char *parent = tsr_path_directory(path);
	TSR_OWNED(free) char *to = parent ? tsr_path_join(parent, name) : NULL;

	if (!from || !to)
		return tsr_fail_nomem(err, path);
	if (tsr_dir_has(to))
		return tsr_fail(err, TSR_E_FORMAT, "%s: is there already", to);
	if (rename(from, to) != 0)
		return tsr_fail_errno(err, errno, "%s: cannot rename to it", to);
	return tsr_dir_set_mode(to, mode, err);
}

enum tsr_status tsr_dir_move_up(const char *path, unsigned mode, struct tsr_err *err)
{
	TSR_SCOPED(tsr_dir_free) struct tsr_dir names = { 0 };

	TSR_TRY(tsr_dir_list_all(path, &names, err));
	for (size_t i = 0; i < names.n; i++)
		TSR_TRY(move_up(path, names.names[i], mode, err));
	return rmdir(path) == 0 ? TSR_OK : tsr_fail_errno(err, errno, "%s: cannot remove", path);
}

enum tsr_status tsr_dir_sync(const char *path, const char *shown, struct tsr_err *err)
{
	TSR_SCOPED(tsr_fd_close)
	int fd = tsr_open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || tsr_temporary_sync(fd) != 0
		       ? tsr_fail_errno(err, errno, "%s: cannot sync", shown)
		       : TSR_OK;
}

bool tsr_dir_remove_file(const char *path)
{
	return unlink(path) == 0 || errno == ENOENT;
}

/* After a stat that failed: the system did not say that nothing usable is there. */
static bool in_doubt(void)
{
	return errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != ELOOP &&
	       errno != ENAMETOOLONG;
}

bool tsr_dir_is_dcp_part(const char *name)
{
	int n = 0;

	return sscanf(name, "__%*u_%*u.distcp%n", &n) == 0 && n && !name[n];
}

bool tsr_dir_has(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 || in_doubt();
}

bool tsr_dir_has_in(const char *directory, const char *name)
{
	TSR_SCOPED(tsr_fd_close)
	int fd = tsr_open_at(AT_FDCWD, directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	return (fd >= 0 && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) || in_doubt();
}
