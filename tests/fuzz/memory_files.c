/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory, and the system's calls on them. */
#include "memory_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fuzz.h"

#define NODES_MAX 1024u
#define OPEN_MAX 256u
#define FIRST_FD (1 << 20)
#define FILE_MAX ((size_t)1 << 28)

/* A file or directory; without a path once it is removed, while it is open. */
struct node {
	char *path;
	bool is_directory, is_used;
	unsigned refs;
	mode_t mode;
	unsigned char *bytes;
	size_t nbytes, held, room; /* the bytes behind those that are held are zeros */
};

struct descriptor {
	struct node *node;
	size_t at; /* of a directory: the entry to be read next */
};

struct memory_dir {
	struct node *node;
	size_t at;
	struct dirent entry;
};

static struct node nodes[NODES_MAX];
static size_t nnodes;
static struct descriptor open_files[OPEN_MAX];
static struct memory_dir open_dirs[16];

/* --- Paths ------------------------------------------------------------------------------------ */

static bool is_ours(const char *path)
{
	return strncmp(path, MEMORY, sizeof(MEMORY) - 1) == 0 &&
	       (path[sizeof(MEMORY) - 1] == '/' || !path[sizeof(MEMORY) - 1]);
}

/* Without empty, "." and ".." components, to be freed; NULL with errno. */
static char *normal(const char *path)
{
	char *out = malloc(strlen(path) + 2), *to = out;

	REQUIRE(out);
	if (strlen(path) >= 4096) {
		free(out);
		errno = ENAMETOOLONG;
		return NULL;
	}
	while (*path) {
		const size_t n = strcspn(path, "/");

		if (n > 255) {
			free(out);
			errno = ENAMETOOLONG;
			return NULL;
		}
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (to > out && *--to != '/')
				;
		} else if (n && !(n == 1 && *path == '.')) {
			*to++ = '/';
			memcpy(to, path, n);
			to += n;
		}
		path += n + (path[n] == '/');
	}
	*to = '\0';
	return out;
}

static struct node *find_normal(const char *path)
{
	for (size_t i = 0; i < nnodes; i++) {
		if (nodes[i].path && strcmp(nodes[i].path, path) == 0)
			return &nodes[i];
	}
	return NULL;
}

/* The part of @path below @directory, or NULL. */
static const char *below(const char *directory, const char *path)
{
	const size_t n = strlen(directory);

	return path && strncmp(path, directory, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* Whether a file stands where a directory of the path should be, or there is none: an error for errno. */
static int check_parent(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *parent = strndup(path, slash ? (size_t)(slash - path) : 0);
	const struct node *n;

	REQUIRE(parent);
	n = find_normal(parent);
	free(parent);
	return !slash || slash == path ? 0 : !n ? ENOENT : n->is_directory ? 0 : ENOTDIR;
}

static struct node *find(const char *path)
{
	char *wanted = normal(path);
	struct node *n;
	int error;

	if (!wanted)
		return NULL;
	n = find_normal(wanted);
	error = n ? 0 : check_parent(wanted);
	if (n && !n->is_directory && path[strlen(path) - 1] == '/') {
		n = NULL;
		error = ENOTDIR;
	}
	free(wanted);
	errno = n ? errno : error ? error : ENOENT;
	return n;
}

static struct node *add_normal(char *path, bool is_directory)
{
	size_t i = 0;

	while (i < nnodes && nodes[i].is_used)
		i++;
	if (i == NODES_MAX) {
		free(path);
		errno = ENOSPC;
		return NULL;
	}
	if (i == nnodes)
		nnodes++;
	nodes[i] = (struct node){
		.path = path, .is_used = true, .is_directory = is_directory, .mode = 0644
	};
	return &nodes[i];
}

static struct node *add(const char *path, bool is_directory)
{
	char *name = normal(path);
	int error;

	if (!name)
		return NULL;
	error = !*name ? EEXIST : check_parent(name);
	if (error) {
		free(name);
		errno = error;
		return NULL;
	}
	return add_normal(name, is_directory);
}

/* Forget a node that has no name and is not open. */
static void drop(struct node *n)
{
	if (n->path || n->refs)
		return;
	free(n->bytes);
	*n = (struct node){ 0 };
}

static void unname(struct node *n)
{
	free(n->path);
	n->path = NULL;
	drop(n);
}

/* --- For targets ------------------------------------------------------------------------------ */

static int write_at(struct node *n, const void *bytes, size_t nbytes, size_t offset)
{
	if (offset > FILE_MAX || nbytes > FILE_MAX - offset) {
		errno = ENOSPC;
		return -1;
	}
	if (offset + nbytes > n->room) {
		n->room = offset + nbytes < 256 ? 512 : 2 * (offset + nbytes);
		n->bytes = realloc(n->bytes, n->room);
		REQUIRE(n->bytes);
	}
	if (offset > n->held)
		memset(n->bytes + n->held, 0, offset - n->held);
	if (nbytes)
		memcpy(n->bytes + offset, bytes, nbytes);
	if (offset + nbytes > n->held)
		n->held = offset + nbytes;
	if (n->held > n->nbytes)
		n->nbytes = n->held;
	return 0;
}

bool memory_make_directory(const char *path)
{
	char *name = normal(path);
	bool made = name != NULL;

	for (char *at = name ? name + 1 : NULL; made && at;) {
		char *slash = strchr(at, '/');
		const struct node *n;

		if (slash)
			*slash = '\0';
		n = find_normal(name);
		made = n ? n->is_directory : add(name, true) != NULL;
		if (slash)
			*slash = '/';
		at = slash ? slash + 1 : NULL;
	}
	free(name);
	return made;
}

/* A file without contents, for a target; NULL: none can be there. */
static struct node *put_node(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *parent = strndup(path, (size_t)(slash - path));
	bool made = parent && memory_make_directory(parent);
	struct node *n;

	free(parent);
	if (!made || !slash[1])
		return NULL;
	n = find(path);
	if (n && n->is_directory)
		return NULL;
	n = n ? n : add(path, false);
	if (n)
		n->nbytes = n->held = 0;
	return n;
}

bool memory_put(const char *path, const void *bytes, size_t nbytes)
{
	struct node *n = put_node(path);

	if (!n)
		return false;
	cost_more(nbytes);
	return write_at(n, bytes, nbytes, 0) == 0;
}

bool memory_give(const char *path, void *bytes, size_t nbytes)
{
	struct node *n = put_node(path);

	if (!n) {
		free(bytes);
		return false;
	}
	cost_more(nbytes);
	free(n->bytes);
	n->bytes = bytes;
	n->nbytes = n->held = n->room = nbytes;
	return true;
}

void memory_set_size(const char *path, uint64_t nbytes)
{
	struct node *n = find(path);

	REQUIRE(n && !n->is_directory && nbytes >= n->held && nbytes <= INT64_MAX);
	n->nbytes = nbytes;
}

size_t memory_count(const char *directory)
{
	size_t n = 0;

	for (size_t i = 0; i < nnodes; i++)
		n += below(directory, nodes[i].path) != NULL;
	return n;
}

void memory_remove(const char *directory)
{
	for (size_t i = 0; i < nnodes; i++) {
		if (below(directory, nodes[i].path))
			unname(&nodes[i]);
	}
}

void memory_clear(void)
{
	for (size_t i = 0; i < OPEN_MAX; i++)
		REQUIRE(!open_files[i].node);
	for (size_t i = 0; i < sizeof(open_dirs) / sizeof(*open_dirs); i++)
		REQUIRE(!open_dirs[i].node);
	for (size_t i = 0; i < nnodes; i++) {
		REQUIRE(!nodes[i].refs);
		if (nodes[i].path)
			unname(&nodes[i]);
	}
	nnodes = 0;
}

/* --- Descriptors ------------------------------------------------------------------------------ */

static struct descriptor *descriptor_of(int fd)
{
	if (fd < FIRST_FD || fd >= FIRST_FD + (int)OPEN_MAX)
		return NULL;
	REQUIRE(open_files[fd - FIRST_FD].node);
	return &open_files[fd - FIRST_FD];
}

static int open_node(struct node *n)
{
	for (size_t i = 0; i < OPEN_MAX; i++) {
		if (open_files[i].node)
			continue;
		open_files[i] = (struct descriptor){ .node = n };
		n->refs++;
		return FIRST_FD + (int)i;
	}
	drop(n);
	errno = EMFILE;
	return -1;
}

static int open_memory(const char *path, int flags, mode_t mode)
{
	struct node *n = find(path);

	if ((flags & O_TMPFILE) == O_TMPFILE) {
		if (!n)
			return -1;
		n = add_normal(NULL, false);
		return n ? open_node(n) : -1;
	}
	if (n && (flags & O_CREAT) && (flags & O_EXCL)) {
		errno = EEXIST;
		return -1;
	}
	if (n && !n->is_directory && (flags & O_DIRECTORY)) {
		errno = ENOTDIR;
		return -1;
	}
	if (n && n->is_directory && (flags & O_ACCMODE) != O_RDONLY) {
		errno = EISDIR;
		return -1;
	}
	if (!n && (flags & O_CREAT)) {
		n = add(path, false);
		if (n)
			n->mode = mode & 0777;
	}
	if (n && (flags & O_TRUNC))
		n->nbytes = n->held = 0;
	return n ? open_node(n) : -1;
}

/* The path of a name in an open directory of ours, to be freed; NULL: it is none of ours. */
static char *path_at(int fd, const char *name)
{
	const struct descriptor *d = descriptor_of(fd);
	char *path = NULL;

	if (*name == '/' || !d)
		return is_ours(name) ? strdup(name) : NULL;
	REQUIRE(d->node->path);
	REQUIRE(asprintf(&path, "%s/%s", d->node->path, name) >= 0);
	return path;
}

/* --- The system's calls ----------------------------------------------------------------------- */

#define CALL(type, name, ...) \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

/* Of those that are called with a mode only sometimes. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int fd, const char *path, int flags, ...);
int __wrap_openat(int fd, const char *path, int flags, ...);

static mode_t mode_of(int flags, va_list args)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE
		       ? (mode_t)va_arg(args, unsigned)
		       : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return is_ours(path) ? open_memory(path, flags, mode) : __real_open(path, flags, mode);
}

int __wrap_openat(int fd, const char *name, int flags, ...)
{
	char *path = path_at(fd, name);
	va_list args;
	mode_t mode;
	int got;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	got = path ? open_memory(path, flags, mode) : __real_openat(fd, name, flags, mode);
	free(path);
	return got;
}

CALL(int, close, int fd)
{
	struct descriptor *d = descriptor_of(fd);
	struct node *n;

	if (!d)
		return __real_close(fd);
	n = d->node;
	d->node = NULL;
	n->refs--;
	drop(n);
	return 0;
}

CALL(ssize_t, pread, int fd, void *buf, size_t nbytes, off_t offset)
{
	const struct descriptor *d = descriptor_of(fd);
	size_t held;

	if (!d)
		return __real_pread(fd, buf, nbytes, offset);
	if (offset < 0 || (size_t)offset >= d->node->nbytes)
		return 0;
	if (nbytes > d->node->nbytes - (size_t)offset)
		nbytes = d->node->nbytes - (size_t)offset;
	held = d->node->held > (size_t)offset ? d->node->held - (size_t)offset : 0;
	held = held < nbytes ? held : nbytes;
	if (held)
		memcpy(buf, d->node->bytes + offset, held);
	memset((char *)buf + held, 0, nbytes - held);
	return (ssize_t)nbytes;
}

CALL(ssize_t, pwrite, int fd, const void *buf, size_t nbytes, off_t offset)
{
	const struct descriptor *d = descriptor_of(fd);

	if (!d)
		return __real_pwrite(fd, buf, nbytes, offset);
	return write_at(d->node, buf, nbytes, (size_t)offset) == 0 ? (ssize_t)nbytes : -1;
}

static int stat_node(const struct node *n, struct stat *st)
{
	if (!n)
		return -1;
	*st = (struct stat){ .st_dev = 1,
			     .st_ino = (ino_t)(n - nodes) + 1,
			     .st_mode = (n->is_directory ? S_IFDIR | 0700 : S_IFREG) | n->mode,
			     .st_nlink = 1,
			     .st_size = (off_t)n->nbytes,
			     .st_blksize = 4096 };
	st->st_uid = getuid();
	st->st_gid = getgid();
	return 0;
}

CALL(int, fstat, int fd, struct stat *st)
{
	const struct descriptor *d = descriptor_of(fd);

	return d ? stat_node(d->node, st) : __real_fstat(fd, st);
}

CALL(int, stat, const char *path, struct stat *st)
{
	return is_ours(path) ? stat_node(find(path), st) : __real_stat(path, st);
}

CALL(int, lstat, const char *path, struct stat *st)
{
	return is_ours(path) ? stat_node(find(path), st) : __real_lstat(path, st);
}

CALL(int, fstatat, int fd, const char *name, struct stat *st, int flags)
{
	char *path = path_at(fd, name);
	const int got = path ? stat_node(find(path), st) : __real_fstatat(fd, name, st, flags);

	free(path);
	return got;
}

CALL(int, fstatfs, int fd, struct statfs *fs)
{
	if (!descriptor_of(fd))
		return __real_fstatfs(fd, fs);
	*fs = (struct statfs){ .f_type = TMPFS_MAGIC, .f_bsize = 4096 };
	return 0;
}

CALL(int, fsync, int fd)
{
	return descriptor_of(fd) ? 0 : __real_fsync(fd);
}

CALL(int, fchmod, int fd, mode_t mode)
{
	const struct descriptor *d = descriptor_of(fd);

	if (!d)
		return __real_fchmod(fd, mode);
	d->node->mode = mode & 0777;
	return 0;
}

static int set_mode(struct node *n, mode_t mode)
{
	if (!n)
		return -1;
	n->mode = mode & 0777;
	return 0;
}

CALL(int, chmod, const char *path, mode_t mode)
{
	return is_ours(path) ? set_mode(find(path), mode) : __real_chmod(path, mode);
}

CALL(int, fchmodat, int fd, const char *name, mode_t mode, int flags)
{
	char *path = path_at(fd, name);
	const int got = path ? set_mode(find(path), mode) : __real_fchmodat(fd, name, mode, flags);

	free(path);
	return got;
}

CALL(char *, realpath, const char *path, char *out)
{
	if (!is_ours(path))
		return __real_realpath(path, out);
	REQUIRE(!out);
	return find(path) ? normal(path) : NULL;
}

/* --- Directories ------------------------------------------------------------------------------ */

static int make_directory(const char *path)
{
	if (find(path)) {
		errno = EEXIST;
		return -1;
	}
	return add(path, true) ? 0 : -1;
}

CALL(int, mkdir, const char *path, mode_t mode)
{
	return is_ours(path) ? make_directory(path) : __real_mkdir(path, mode);
}

CALL(int, mkdirat, int fd, const char *name, mode_t mode)
{
	char *path = path_at(fd, name);
	const int got = path ? make_directory(path) : __real_mkdirat(fd, name, mode);

	free(path);
	return got;
}

static int remove_node(const char *path, bool is_directory)
{
	struct node *n = find(path);

	if (!n)
		return -1;
	if (n->is_directory != is_directory) {
		errno = is_directory ? ENOTDIR : EISDIR;
		return -1;
	}
	if (is_directory && memory_count(n->path)) {
		errno = ENOTEMPTY;
		return -1;
	}
	unname(n);
	return 0;
}

CALL(int, unlink, const char *path)
{
	return is_ours(path) ? remove_node(path, false) : __real_unlink(path);
}

CALL(int, rmdir, const char *path)
{
	return is_ours(path) ? remove_node(path, true) : __real_rmdir(path);
}

CALL(int, unlinkat, int fd, const char *name, int flags)
{
	char *path = path_at(fd, name);
	const int got = path ? remove_node(path, flags & AT_REMOVEDIR)
			     : __real_unlinkat(fd, name, flags);

	free(path);
	return got;
}

/* Give a node and all below it new paths. */
static void move(struct node *n, const char *to)
{
	const size_t skip = strlen(n->path);
	char *from = n->path;

	for (size_t i = 0; i < nnodes; i++) {
		char *path = NULL;

		if (&nodes[i] != n && !below(from, nodes[i].path))
			continue;
		REQUIRE(asprintf(&path, "%s%s", to, nodes[i].path + skip) >= 0);
		if (&nodes[i] != n)
			free(nodes[i].path);
		nodes[i].path = path;
	}
	free(from);
}

static int rename_path(const char *from, const char *to, unsigned flags)
{
	struct node *a = find(from), *b = a ? find(to) : NULL;
	char *target;
	int error;

	if (!a)
		return -1;
	REQUIRE(!(flags &
		  RENAME_EXCHANGE)); /* only file systems with it have replaced directories */
	if (b && (flags & RENAME_NOREPLACE)) {
		errno = EEXIST;
		return -1;
	}
	if (b && b != a &&
	    (b->is_directory != a->is_directory || (b->is_directory && memory_count(b->path)))) {
		errno = ENOTEMPTY;
		return -1;
	}
	target = normal(to);
	error = target ? check_parent(target) : errno;
	if (!error && b != a) {
		if (b)
			unname(b);
		move(a, target);
	}
	free(target);
	errno = error;
	return error ? -1 : 0;
}

CALL(int, renameat2, int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	char *a = path_at(from_fd, from), *b = path_at(to_fd, to);
	const int got = a && b ? rename_path(a, b, flags)
			       : __real_renameat2(from_fd, from, to_fd, to, flags);

	free(a);
	free(b);
	return got;
}

CALL(int, renameat, int from_fd, const char *from, int to_fd, const char *to)
{
	return __wrap_renameat2(from_fd, from, to_fd, to, 0);
}

CALL(int, rename, const char *from, const char *to)
{
	return is_ours(from) && is_ours(to) ? rename_path(from, to, 0) : __real_rename(from, to);
}

/* The name of the entry @*at of a directory, or of the first behind it, which @*at is set behind. */
static const char *next_entry(const struct node *directory, size_t *at)
{
	while (directory->path && *at < nnodes) {
		const char *name = below(directory->path, nodes[(*at)++].path);

		if (name && !strchr(name, '/'))
			return name;
	}
	return NULL;
}

CALL(DIR *, opendir, const char *path)
{
	struct node *n;

	if (!is_ours(path))
		return __real_opendir(path);
	n = find(path);
	if (!n || !n->is_directory) {
		errno = n ? ENOTDIR : errno;
		return NULL;
	}
	for (size_t i = 0; i < sizeof(open_dirs) / sizeof(*open_dirs); i++) {
		if (open_dirs[i].node)
			continue;
		open_dirs[i] = (struct memory_dir){ .node = n };
		n->refs++;
		return (DIR *)&open_dirs[i];
	}
	errno = EMFILE;
	return NULL;
}

static struct memory_dir *dir_of(DIR *dir)
{
	const uintptr_t at = (uintptr_t)dir;

	return at >= (uintptr_t)open_dirs && at < (uintptr_t)open_dirs + sizeof(open_dirs)
		       ? (void *)dir
		       : NULL;
}

CALL(struct dirent *, readdir, DIR *dir)
{
	struct memory_dir *d = dir_of(dir);
	const char *name;

	if (!d)
		return __real_readdir(dir);
	name = next_entry(d->node, &d->at);
	if (!name)
		return NULL;
	snprintf(d->entry.d_name, sizeof(d->entry.d_name), "%s", name);
	d->entry.d_type = DT_UNKNOWN;
	return &d->entry;
}

CALL(int, closedir, DIR *dir)
{
	struct memory_dir *d = dir_of(dir);

	if (!d)
		return __real_closedir(dir);
	d->node->refs--;
	drop(d->node);
	d->node = NULL;
	return 0;
}

CALL(off_t, lseek, int fd, off_t offset, int whence)
{
	struct descriptor *d = descriptor_of(fd);

	if (!d)
		return __real_lseek(fd, offset, whence);
	REQUIRE(offset == 0 && whence == SEEK_SET);
	d->at = 0;
	return 0;
}

/* One entry a call is enough. */
CALL(ssize_t, getdents64, int fd, void *buf, size_t room)
{
	struct descriptor *d = descriptor_of(fd);
	struct dirent64 *entry = buf;
	const char *name;

	if (!d)
		return __real_getdents64(fd, buf, room);
	name = next_entry(d->node, &d->at);
	if (!name)
		return 0;
	REQUIRE(room >= sizeof(*entry));
	*entry = (struct dirent64){ .d_ino = 1, .d_reclen = sizeof(*entry), .d_type = DT_UNKNOWN };
	snprintf(entry->d_name, sizeof(entry->d_name), "%s", name);
	return (ssize_t)sizeof(*entry);
}
